// A tile of attention by wgmma: its shared memory, its tokens and what they see, the warp that
// opens tiles, and those that copy queries, keys and values. Owns nothing; iso_attend_wgmma.cuh
// computes.
//
// A CTA stays for many tiles. The next one is opened, and its queries and keys are copied, while
// the last one's values are stored, so that there is room for two tiles' tokens.
#ifndef ISO_ATTEND_TILE_CUH
#define ISO_ATTEND_TILE_CUH

#include "iso_attend_base.cuh"

enum {
    ISO_ATTEND_WGMMA_ROWS = 128,
    ISO_ATTEND_WGMMA_THREADS = 384,
    ISO_ATTEND_PANEL = ISO_ATTEND_BLOCK * 128, // bytes of 64 columns of 128 rows
    ISO_ATTEND_STATE = 3072,                   // bytes of IsoAttendWgmmaShared, rounded up
    ISO_ATTEND_BATCH = 16,                     // weights that a thread computes together
    ISO_ATTEND_BAR_TURN = 1,                   // and 2: the warpgroups' turns
    ISO_ATTEND_BAR_ODD = 3,                    // and 4: the other one has looked
    ISO_ATTEND_NO_OWN = 255,                   // of a row that does not exist
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

// A tile's tokens.
struct IsoAttendOpened {
    int lo[ISO_ATTEND_WGMMA_ROWS], hi[ISO_ATTEND_WGMMA_ROWS]; // keys that a token sees; none: equal
    unsigned char own[ISO_ATTEND_WGMMA_ROWS]; // first token of its sequence, or ISO_ATTEND_NO_OWN
    unsigned first[4];                        // a bit for each token: it is that
    IsoAttendRange range;                     // of the first token's sequence
    int last;                                 // the first token of the last sequence
    int token0, tokens;                       // no tokens: there are no tiles any more
    int member0, head;
};

// What the warps tell each other, and what is too seldom used for registers.
struct IsoAttendWgmmaShared {
    unsigned long long q_full, q_empty, k_full[2], k_empty[2], v_full[2], v_empty[2];
    unsigned long long tile_full[2], tile_empty[2];
    IsoAttendOpened tile[2];
    IsoAttendRange range[8]; // of each consumer's warp
    float order[8];          // written to be before what follows
    int odd[2][8];           // of each warp: blocks passed with a value that is no number
    int passed[8];           // tiles, of each consumer's warp
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

ISO_INLINE int iso_attend_over_lanes_min(int x) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        x = iso_attend_min(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
    }
    return x;
}

// By a whole warp: what the sequence whose first token is `own` sees in the tile.
ISO_INLINE IsoAttendRange iso_attend_look(const IsoAttendOpened &tile, int own) {
    IsoAttendRange range{0x7FFFFFFF, 0, 0, 0x7FFFFFFF};
    for (int r = threadIdx.x % 32; r < tile.tokens; r += 32) {
        int lo = tile.lo[r], hi = tile.hi[r];
        if (tile.own[r] == own && lo < hi) {
            range.lo = iso_attend_min(range.lo, lo);
            range.hi = iso_attend_max(range.hi, hi);
            range.all_lo = iso_attend_max(range.all_lo, lo);
            range.all_hi = iso_attend_min(range.all_hi, hi);
        }
    }
    range.lo = iso_attend_over_lanes_min(range.lo);
    range.hi = -iso_attend_over_lanes_min(-range.hi);
    range.all_lo = -iso_attend_over_lanes_min(-range.all_lo);
    range.all_hi = iso_attend_over_lanes_min(range.all_hi);
    return range;
}

// The same: most tiles have one sequence.
ISO_INLINE IsoAttendRange iso_attend_range(const IsoAttendOpened &tile, int own) {
    return own ? iso_attend_look(tile, own) : tile.range;
}

// The first token of the next sequence from token `from` on, where there is one.
ISO_INLINE int iso_attend_next_first(const IsoAttendOpened &tile, int from) {
    while (true) {
        unsigned bits = tile.first[from / 32] >> from % 32;
        if (bits) {
            return from + 31 - __clz(bits & -bits);
        }
        from = (from / 32 + 1) * 32;
    }
}

// Calls body.attend for each sequence of the tile, in the order of their first tokens.
template <class Body> ISO_INLINE void iso_attend_sequences(Body &body) {
#pragma unroll 1
    for (int own = 0;; own = iso_attend_next_first(body.tile(), body.own + 1)) {
        body.own = own;
        body.attend();
        if (body.own == iso_attend_peek(&body.tile().last)) {
            break;
        }
    }
}

// By one lane, for its warp.
ISO_INLINE void iso_attend_arrive(unsigned long long *bar) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        iso_mbar_arrive(iso_shared(bar));
    }
}

// Queries of the rows that no token has are zeros: nobody takes what comes of them.
template <class Op> ISO_INLINE void iso_attend_clear_rows(const IsoAttendArgs &args) {
    int rows = args.tile_group * args.tile_tokens;
    unsigned zeros[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int i = threadIdx.x; i < (ISO_ATTEND_WGMMA_ROWS - rows) * 8; i += blockDim.x) {
#pragma unroll
        for (int p = 0; p < IsoAttendWgmmaPlan<Op>::q_panels; ++p) {
            iso_shared_store16(iso_shared(iso_attend_dynamic) + p * ISO_ATTEND_PANEL + rows * 128 +
                                   i * 16,
                               zeros);
        }
    }
    iso_async_fence();
}

// --- the warp that opens tiles ---

template <class Op> struct IsoAttendOpener {
    static constexpr int each = ISO_ATTEND_WGMMA_ROWS / 32; // tokens of a lane, 32 apart
    const IsoAttendArgs &args;
    IsoAttendWgmmaShared &shared;
    int live;

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

    // The first token with the sequence of token r, which differs from the one before.
    ISO_INLINE int look_for(const int *sequence, int r) {
        int at = 0;
        while (at < r && sequence[at] != sequence[r]) {
            ++at;
        }
        return at;
    }

    // The first tokens, found for those alone that differ from the one before; `sequence` of the
    // tile's tokens.
    __device__ __forceinline__ void find_first(IsoAttendOpened &tile, const int *sequence) const {
        unsigned starts[each], lane = threadIdx.x % 32;
        int last = 0;
#pragma unroll
        for (int k = 0; k < each; ++k) {
            int r = k * 32 + lane;
            bool start = r < tile.tokens && (r == 0 || sequence[r - 1] != sequence[r]);
            int own = start ? look_for(sequence, r) : ISO_ATTEND_NO_OWN;
            starts[k] = __ballot_sync(0xFFFFFFFFu, start);
            unsigned first = __ballot_sync(0xFFFFFFFFu, own == r);
            tile.own[r] = own;
            last = first ? k * 32 + 31 - __clz(first) : last;
            if (lane == 0) {
                tile.first[k] = first;
                tile.last = last;
            }
        }
        __syncwarp();
        int run = 0; // where the last run before began
#pragma unroll
        for (int k = 0; k < each; ++k) {
            int r = k * 32 + lane;
            unsigned upto = starts[k] & 0xFFFFFFFFu >> (31 - lane);
            int from = upto ? k * 32 + 31 - __clz(upto) : run;
            run = starts[k] ? k * 32 + 31 - __clz(starts[k]) : run;
            if (r < tile.tokens && from != r) {
                tile.own[r] = tile.own[from];
            }
        }
        __syncwarp();
    }

    __device__ __forceinline__ void open(IsoAttendOpened &tile, int token0, int member0,
                                         int head) const {
        int tokens = iso_attend_min(args.tile_tokens, live - token0);
        int2 keys[each];
#pragma unroll
        for (int k = 0; k < each; ++k) {
            int r = k * 32 + threadIdx.x % 32;
            int sequence = r < tokens ? iso_attend_max(args.sequence[token0 + r], -1)
                                      : ISO_ATTEND_NO_ROW;
            keys[k] = r < tokens ? keys_of(token0 + r, sequence) : make_int2(0, 0);
            tile.hi[r] = sequence; // until the first tokens are known
        }
        if (threadIdx.x % 32 == 0) {
            tile.token0 = token0;
            tile.tokens = tokens;
            tile.member0 = member0;
            tile.head = head;
        }
        __syncwarp();
        find_first(tile, tile.hi);
#pragma unroll
        for (int k = 0; k < each; ++k) {
            int r = k * 32 + threadIdx.x % 32;
            tile.lo[r] = keys[k].x;
            tile.hi[r] = keys[k].y;
        }
        __syncwarp();
        IsoAttendRange range = iso_attend_look(tile, 0);
        if (threadIdx.x % 32 == 0) {
            tile.range = range;
        }
    }

    __device__ __forceinline__ unsigned draw() const {
        unsigned drawn = 0;
        if (threadIdx.x % 32 == 0) {
            drawn = gridDim.x + atomicAdd(args.draws, 1u);
        }
        return __shfl_sync(0xFFFFFFFFu, drawn, 0);
    }

    // The last tokens see most keys: they go first.
    __device__ __forceinline__ void run() const {
        int chunks = (args.group + args.tile_group - 1) / args.tile_group;
        int tiles = (live + args.tile_tokens - 1) / args.tile_tokens * chunks;
        unsigned unit = blockIdx.x;
#pragma unroll 1
        for (int t = 0;; ++t, unit = draw()) {
            IsoAttendOpened &tile = shared.tile[t & 1];
            bool there = unit < (unsigned)(tiles * args.heads);
            int i = tiles - 1 - (int)unit / args.heads;
            iso_mbar_wait(iso_shared(&shared.tile_empty[t & 1]), (t >> 1 & 1) ^ 1);
            if (there) {
                open(tile, i / chunks * args.tile_tokens, i % chunks * args.tile_group,
                     unit % args.heads);
            } else if (threadIdx.x % 32 == 0) {
                tile.tokens = 0;
            }
            iso_attend_arrive(&shared.tile_full[t & 1]);
            if (!there) {
                break;
            }
        }
        // The last CTA to come here leaves the counters as they were.
        if (threadIdx.x % 32 == 0 && atomicInc(args.draws + 1, gridDim.x - 1) == gridDim.x - 1) {
            args.draws[0] = 0;
        }
    }
};

// --- the warps that copy: keys the first, values the second ---

template <class Op, bool Values> struct IsoAttendProducer {
    using Plan = IsoAttendWgmmaPlan<Op>;
    static constexpr int panels = Values ? Plan::v_panels : Plan::q_panels;
    const IsoAttendArgs &args;
    const IsoAttendMaps &maps;
    IsoAttendWgmmaShared &shared;
    unsigned smem;
    int n;      // blocks copied
    int passed; // tiles
    int own;    // first token of the sequence

    __device__ __forceinline__ const IsoAttendOpened &tile() const {
        return shared.tile[passed & 1];
    }

    __device__ __forceinline__ void load_queries() {
        iso_mbar_wait(iso_shared(&shared.q_empty), (passed & 1) ^ 1);
        if (threadIdx.x % 32 == 0) {
            unsigned bar = iso_shared(&shared.q_full);
            iso_mbar_expect(bar, Plan::q_panels * 128 * args.tile_group * args.tile_tokens);
#pragma unroll
            for (int i = 0; i < Plan::q_panels; ++i) {
                iso_tma_load_4d(smem + i * ISO_ATTEND_PANEL, &maps.q, bar, i * 64, tile().member0,
                                tile().head, tile().token0);
            }
        }
    }

    // One lane has one piece of the block; a piece that no row sees is of no sequence: zeros.
    __device__ __forceinline__ void load(int block, int2 place) {
        const IsoTensorMap &map = Values ? maps.v : maps.k;
        unsigned full = iso_shared(Values ? shared.v_full : shared.k_full);
        unsigned empty = iso_shared(Values ? shared.v_empty : shared.k_empty);
        IsoAttendPlace at = IsoAttendPlace::of(n);
        int lane = threadIdx.x % 32, own_head = !Values || args.v.stride[1] ? tile().head : 0;
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

    __device__ __forceinline__ void attend() {
        IsoAttendRange range = iso_attend_range(tile(), own);
        int sequence = args.sequence[tile().token0 + own];
#pragma unroll 1
        for (int block = range.lo / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK; block < range.hi;
             block += ISO_ATTEND_BLOCK) {
            int key = block + (int)threadIdx.x % 32 * args.piece;
            bool seen = key < range.hi && key + args.piece > range.lo &&
                        key < block + ISO_ATTEND_BLOCK;
            load(block, seen ? iso_attend_place(args, sequence, key) : make_int2(-1, 0));
        }
    }

    __device__ __forceinline__ void run() {
#pragma unroll 1
        for (passed = 0;; ++passed) {
            iso_mbar_wait(iso_shared(&shared.tile_full[passed & 1]), passed >> 1 & 1);
            if (!tile().tokens) {
                break;
            }
            if constexpr (!Values) {
                load_queries();
            }
            iso_attend_sequences(*this);
            iso_attend_arrive(&shared.tile_empty[passed & 1]);
        }
    }
};

#endif
