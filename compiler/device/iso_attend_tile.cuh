// A tile of attention by wgmma: its shared memory, its tokens and what they see, and the warps that
// copy queries, keys and values. Owns nothing; iso_attend_wgmma.cuh computes.
#ifndef ISO_ATTEND_TILE_CUH
#define ISO_ATTEND_TILE_CUH

#include "iso_attend.cuh"

enum {
    ISO_ATTEND_WGMMA_ROWS = 128,
    ISO_ATTEND_WGMMA_THREADS = 384,
    ISO_ATTEND_PANEL = ISO_ATTEND_BLOCK * 128, // bytes of 64 columns of 128 rows
    ISO_ATTEND_STATE = 3072,                   // bytes of IsoAttendWgmmaShared, rounded up
    ISO_ATTEND_BATCH = 16,                     // weights that a thread computes together
    ISO_ATTEND_BAR_TURN = 1,                   // and 2: the warpgroups' turns
    ISO_ATTEND_BAR_ODD = 3,                    // and 4: of the warps of one
};

// Bytes of shared memory, which is aligned to 1024; two stages of keys and of values.
template <class Op> struct IsoAttendWgmmaPlan {
    static constexpr int steps = Op::depth / 16;
    static constexpr int q_panels = (Op::depth + 63) / 64, v_panels = (Op::width + 63) / 64;
    static constexpr int regs = Op::width / 2; // of the values' product in one thread
    static constexpr int k_bytes = q_panels * ISO_ATTEND_PANEL;
    static constexpr int v_bytes = v_panels * ISO_ATTEND_PANEL;
    static constexpr int total_bytes = Op::width * ISO_ATTEND_WGMMA_ROWS * 4;
    static constexpr int k_at = k_bytes, v_at = k_at + 2 * k_bytes, total_at = v_at + 2 * v_bytes;
    static constexpr int state_at = total_at + total_bytes;
    static constexpr int shared_bytes = state_at + ISO_ATTEND_STATE;

    static_assert(Op::depth % 16 == 0 && Op::width % 32 == 0, "whole steps, whole quads of blocks");
    static_assert(Op::depth <= 128 && Op::width <= 128, "registers and shared memory");
    static_assert(Op::split % ISO_ATTEND_BLOCK == 0, "splits are whole blocks");
};

// What the warps tell each other, and what is too seldom used for registers.
struct IsoAttendWgmmaShared {
    unsigned long long q_full, k_full[2], k_empty[2], v_full[2], v_empty[2];
    int sequence[ISO_ATTEND_WGMMA_ROWS]; // of each token of the tile
    int lo[ISO_ATTEND_WGMMA_ROWS], hi[ISO_ATTEND_WGMMA_ROWS]; // keys that it sees; none: equal
    unsigned first[4]; // a bit for each token: none before it is of its sequence
    float total_m[ISO_ATTEND_WGMMA_ROWS], total_l[ISO_ATTEND_WGMMA_ROWS]; // of the splits before
    int token0, tokens; // of the tile
    int member0;
    IsoAttendRange range[8]; // of each consumer's warp
    float order[8];    // written to be before what follows
    int odd[2][8];     // of each warp: blocks passed with a value that is no number
};

static_assert(sizeof(IsoAttendWgmmaShared) <= ISO_ATTEND_STATE, "state");

// Read anew at each use: an address that is made of it costs no register where it is not used.
ISO_INLINE int iso_attend_thread() {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// A word of shared memory, read anew at each use.
ISO_INLINE int iso_attend_peek(const void *p) {
    int x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(iso_shared(p)) : "memory");
    return x;
}

extern __shared__ __align__(1024) unsigned char iso_attend_dynamic[];

template <class Op> ISO_INLINE IsoAttendWgmmaShared &iso_attend_state() {
    return *(IsoAttendWgmmaShared *)(iso_attend_dynamic + IsoAttendWgmmaPlan<Op>::state_at);
}

// Stage and phase of the n-th block that a CTA passes.
struct IsoAttendPlace {
    int stage;
    unsigned phase;

    ISO_INLINE IsoAttendPlace of(int n) {
        return IsoAttendPlace{n & 1, (unsigned)n >> 1 & 1};
    }
};

ISO_INLINE void iso_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

ISO_INLINE void iso_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

ISO_INLINE void iso_tma_load_4d(unsigned dst, const void *map, unsigned bar, int c0, int c1, int c2,
                                int c3) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

// --- the tile's tokens ---

template <class Op> struct IsoAttendTokens {
    const IsoAttendArgs &args;
    IsoAttendWgmmaShared &shared;

    __device__ __forceinline__ int2 keys_of(int token, int sequence) const {
        if (sequence < 0) {
            return make_int2(0, 0);
        }
        int position = args.position[token], from = 0, end = 0x7FFFFFFF;
        if constexpr (Op::causal) {
            end = position + 1;
        }
        if (args.length) {
            end = iso_attend_min(end, args.length[sequence]);
        }
        if constexpr (Op::window > 0) {
            from = iso_attend_max(0, position + 1 - Op::window);
        }
        return from < end ? make_int2(from, end) : make_int2(0, 0);
    }

    // Queries of the rows that no token has are zeros: nobody takes what comes of them.
    __device__ __forceinline__ void clear_rows() const {
        int rows = args.tile_group * args.tile_tokens;
        unsigned zeros[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (int i = threadIdx.x; i < (ISO_ATTEND_WGMMA_ROWS - rows) * 8; i += blockDim.x) {
#pragma unroll
            for (int p = 0; p < IsoAttendWgmmaPlan<Op>::q_panels; ++p) {
                iso_shared_store16(iso_shared(iso_attend_dynamic) + p * ISO_ATTEND_PANEL +
                                       rows * 128 + i * 16,
                                   zeros);
            }
        }
        iso_async_fence();
    }

    // By the first 128 threads, in two parts with a barrier between and one after.
    __device__ __forceinline__ void open(int token0, int member0, int tokens) {
        int r = threadIdx.x;
        if (r == 0) {
            shared.token0 = token0;
            shared.tokens = tokens;
            shared.member0 = member0;
        }
        int own = r < tokens ? iso_attend_max(args.sequence[token0 + r], -1) : ISO_ATTEND_NO_ROW;
        int2 keys = r < tokens ? keys_of(token0 + r, own) : make_int2(0, 0);
        shared.sequence[r] = own;
        shared.lo[r] = keys.x;
        shared.hi[r] = keys.y;
    }
    __device__ __forceinline__ void find_first() {
        int r = threadIdx.x, own = shared.sequence[r];
        bool first = r < shared.tokens && (r == 0 || shared.sequence[r - 1] != own);
        for (int before = r - 2; first && before >= 0; --before) {
            first = shared.sequence[before] != own;
        }
        unsigned bits = __ballot_sync(0xFFFFFFFFu, first);
        if (r % 32 == 0) {
            shared.first[r / 32] = bits;
        }
    }

    ISO_INLINE int over_lanes_min(int x) {
#pragma unroll
        for (int by = 16; by > 0; by /= 2) {
            x = iso_attend_min(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
        }
        return x;
    }

    __device__ __forceinline__ IsoAttendRange range_of(int sequence) const {
        IsoAttendRange range{0x7FFFFFFF, 0, 0, 0x7FFFFFFF};
        for (int r = threadIdx.x % 32; r < shared.tokens; r += 32) {
            int lo = shared.lo[r], hi = shared.hi[r];
            if (shared.sequence[r] == sequence && lo < hi) {
                range.lo = iso_attend_min(range.lo, lo);
                range.hi = iso_attend_max(range.hi, hi);
                range.all_lo = iso_attend_max(range.all_lo, lo);
                range.all_hi = iso_attend_min(range.all_hi, hi);
            }
        }
        range.lo = over_lanes_min(range.lo);
        range.hi = -over_lanes_min(-range.hi);
        range.all_lo = -over_lanes_min(-range.all_lo);
        range.all_hi = over_lanes_min(range.all_hi);
        return range;
    }
};

// Calls body.attend for each sequence of the tile, in the order of their first tokens.
template <class Body>
ISO_INLINE void iso_attend_sequences(const IsoAttendWgmmaShared &shared, Body &body) {
#pragma unroll 1
    for (int r = 0; r < ISO_ATTEND_WGMMA_ROWS;) {
        unsigned bits = shared.first[r / 32] >> r % 32;
        if (bits) {
            r += 32 - __clz(bits & -bits);
            body.attend(shared.sequence[r - 1]);
        } else {
            r = (r / 32 + 1) * 32;
        }
    }
}

// --- the warps that copy: keys the first, values the second ---

template <class Op, bool Values> struct IsoAttendProducer {
    using Plan = IsoAttendWgmmaPlan<Op>;
    static constexpr int panels = Values ? Plan::v_panels : Plan::q_panels;
    const IsoAttendArgs &args;
    const IsoAttendMaps &maps;
    const IsoAttendTokens<Op> &tile;
    IsoAttendWgmmaShared &shared;
    unsigned smem;
    int n; // blocks copied

    __device__ __forceinline__ void load_queries() {
        if (threadIdx.x % 32 == 0) {
            unsigned bar = iso_shared(&shared.q_full);
            iso_mbar_expect(bar, Plan::q_panels * 128 * args.tile_group * args.tile_tokens);
#pragma unroll
            for (int i = 0; i < Plan::q_panels; ++i) {
                iso_tma_load_4d(smem + i * ISO_ATTEND_PANEL, &maps.q, bar, i * 64, shared.member0,
                                blockIdx.y, shared.token0);
            }
        }
    }

    // One lane has one piece of the block; a piece that no row sees is of no sequence: zeros.
    __device__ __forceinline__ void load(int block, int2 place) {
        const IsoTensorMap &map = Values ? maps.v : maps.k;
        unsigned full = iso_shared(Values ? shared.v_full : shared.k_full);
        unsigned empty = iso_shared(Values ? shared.v_empty : shared.k_empty);
        IsoAttendPlace at = IsoAttendPlace::of(n);
        int lane = threadIdx.x % 32, own_head = !Values || args.v.stride[1] ? blockIdx.y : 0;
        unsigned to = smem + (Values ? Plan::v_at : Plan::k_at) +
                      at.stage * panels * ISO_ATTEND_PANEL + lane * args.piece * 128;
        iso_mbar_wait(empty + 8 * at.stage, at.phase ^ 1);
        if (lane == 0) {
            iso_mbar_expect(full + 8 * at.stage, panels * ISO_ATTEND_PANEL);
        }
        __syncwarp();
        if (lane < ISO_ATTEND_BLOCK / args.piece) {
#pragma unroll
            for (int i = 0; i < panels; ++i) {
                iso_tma_load_4d(to + i * ISO_ATTEND_PANEL, &map, full + 8 * at.stage, i * 64,
                                own_head, place.y, place.x);
            }
        }
        __syncwarp();
        ++n;
    }

    __device__ __forceinline__ void attend(int sequence) {
        IsoAttendRange range = tile.range_of(sequence);
#pragma unroll 1
        for (int block = range.lo / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK; block < range.hi;
             block += ISO_ATTEND_BLOCK) {
            int key = block + (int)threadIdx.x % 32 * args.piece;
            bool seen = key < range.hi && key + args.piece > range.lo &&
                        key < block + ISO_ATTEND_BLOCK;
            load(block, seen ? iso_attend_place(args, sequence, key) : make_int2(-1, 0));
        }
    }
};

#endif
