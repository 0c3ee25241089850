// Attention by wgmma: prefill, chunks of it and training. Owns nothing; the launch rule is in
// iso_abi.cuh, the arithmetic LANGUAGE.md's 6.13, the rows of a tile and what they may see
// iso_attend.cuh's.
//
// A CTA has 128 rows. One warp copies their queries, and blocks of keys and of values by the copy
// engine; two warpgroups have 64 rows each. A thread's 32 weights of a row in a block are the
// clause's lane threadIdx % 4, and stay in registers as the left operand of the values' product.
// The warpgroups take turns at the tensor cores, so that the exponentials of one are computed under
// the products of the other; in a run of blocks that all rows see, a warpgroup's own next scores
// are under way too. Values of the splits before wait in shared memory.
//
// Keys that no row of the sequence in the tile sees may be copied. Where rows see different keys of
// a block, the weights of the unseen are +0; if a value of the block is NaN or Inf, each row gets
// steps of its own, with the values that it does not see as zeros.
#ifndef ISO_ATTEND_WGMMA_CUH
#define ISO_ATTEND_WGMMA_CUH

#include "iso_attend.cuh"
#include "iso_wgmma.cuh"

enum {
    ISO_ATTEND_WGMMA_ROWS = 128,
    ISO_ATTEND_WGMMA_THREADS = 384,
    ISO_ATTEND_PANEL = ISO_ATTEND_BLOCK * 128, // bytes of 64 columns of 128 rows
    ISO_ATTEND_BAR_TURN = 1,                   // and 2: the warpgroups' turns
    ISO_ATTEND_BAR_ODD = 3,                    // and 4: of the warps of one
};

// Bytes of shared memory, from a multiple of 1024 on; two stages of keys and of values.
template <class Op> struct IsoAttendWgmmaPlan {
    static constexpr int steps = Op::depth / 16;
    static constexpr int q_panels = (Op::depth + 63) / 64, v_panels = (Op::width + 63) / 64;
    static constexpr int regs = Op::width / 2; // of the values' product in one thread
    static constexpr int k_bytes = q_panels * ISO_ATTEND_PANEL;
    static constexpr int v_bytes = v_panels * ISO_ATTEND_PANEL;
    static constexpr int total_bytes = Op::width * ISO_ATTEND_WGMMA_ROWS * 4;
    static constexpr int k_at = k_bytes, v_at = k_at + 2 * k_bytes, total_at = v_at + 2 * v_bytes;
    static constexpr int shared_bytes = 1024 + total_at + total_bytes;

    static_assert(Op::depth % 16 == 0 && Op::width % 32 == 0, "whole steps, whole quads of blocks");
    static_assert(Op::depth <= 128 && Op::width <= 128, "registers and shared memory");
    static_assert(Op::split % ISO_ATTEND_BLOCK == 0, "splits are whole blocks");
};

// What the warps tell each other.
struct IsoAttendWgmmaShared {
    unsigned long long q_full, k_full[2], k_empty[2], v_full[2], v_empty[2];
    int sequence[ISO_ATTEND_WGMMA_ROWS]; // of each token of the tile
    int lo[ISO_ATTEND_WGMMA_ROWS], hi[ISO_ATTEND_WGMMA_ROWS]; // keys that it sees; none: equal
    unsigned first[4]; // a bit for each token: none before it is of its sequence
    float order[8];
    int odd[2][2];     // of each warpgroup: blocks passed with a value that is no number
};

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

// iso_wgmma_desc with a stride of 1024, its words apart: what changes from step to step is the low
// one, which has room for any address.
ISO_INLINE unsigned iso_attend_desc_low(unsigned addr, unsigned leading) {
    return addr >> 4 | leading >> 4 << 16;
}
ISO_INLINE unsigned long long iso_attend_desc(unsigned low) {
    return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | low;
}

// The exponential of numbers that are not above 0, or NaN.
template <class Op> ISO_INLINE float iso_attend_weight(float x) {
    if constexpr (Op::degree == 0) {
        return Op::weight(x);
    } else {
        float c = iso_max(x, -127.0f), t = iso_add(c, ISO_ROUNDER);
        float r = iso_sub(c, iso_sub(t, ISO_ROUNDER));
        float p;
        if constexpr (Op::degree == 6) {
            p = iso_exp2_near_zero(r);
        } else {
            p = iso_fma(0x1.c2a256p-5f, r, 0x1.f00c5p-3f);
            p = iso_fma(iso_fma(p, r, 0x1.62f5fap-1f), r, 1.0f);
        }
        return iso_scale_once(p, t);
    }
}

// --- the tile's tokens ---

template <class Op> struct IsoAttendTokens {
    const IsoAttendArgs &args;
    IsoAttendWgmmaShared &shared;
    int token0, tokens; // of the tile

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

    // By the first 128 threads, in two parts with a barrier between and one after.
    __device__ __forceinline__ void open() {
        int r = threadIdx.x;
        int own = r < tokens ? iso_attend_max(args.sequence[token0 + r], -1) : ISO_ATTEND_NO_ROW;
        int2 keys = r < tokens ? keys_of(token0 + r, own) : make_int2(0, 0);
        shared.sequence[r] = own;
        shared.lo[r] = keys.x;
        shared.hi[r] = keys.y;
    }
    __device__ __forceinline__ void find_first() {
        int r = threadIdx.x, own = shared.sequence[r];
        bool first = r < tokens && (r == 0 || shared.sequence[r - 1] != own);
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
        for (int r = threadIdx.x % 32; r < tokens; r += 32) {
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

ISO_INLINE bool iso_attend_mixed(const IsoAttendRange &range, int block) {
    return range.all_lo > block || range.all_hi < block + ISO_ATTEND_BLOCK;
}

// Calls body.attend for each sequence of the tile, in the order of their first tokens.
template <class Body>
ISO_INLINE void iso_attend_sequences(const IsoAttendWgmmaShared &shared, Body &body) {
#pragma unroll 1
    for (int word = 0; word < 4; ++word) {
#pragma unroll 1
        for (unsigned bits = shared.first[word]; bits; bits &= bits - 1) {
            body.attend(shared.sequence[word * 32 + __ffs(bits) - 1]);
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
    int head, n; // n: blocks copied

    __device__ __forceinline__ void load_queries(int member) {
        if (threadIdx.x % 32 == 0) {
            unsigned bar = iso_shared(&shared.q_full);
            iso_mbar_expect(bar, Plan::q_panels * 128 * args.tile_group * args.tile_tokens);
#pragma unroll
            for (int i = 0; i < Plan::q_panels; ++i) {
                iso_tma_load_4d(smem + i * ISO_ATTEND_PANEL, &maps.q, bar, i * 64, member, head,
                                tile.token0);
            }
        }
    }

    // One lane has one piece of the block; a piece that no row sees is of no sequence: zeros.
    __device__ __forceinline__ void load(int block, int2 place) {
        const IsoTensorMap &map = Values ? maps.v : maps.k;
        unsigned full = iso_shared(Values ? shared.v_full : shared.k_full);
        unsigned empty = iso_shared(Values ? shared.v_empty : shared.k_empty);
        IsoAttendPlace at = IsoAttendPlace::of(n);
        int lane = threadIdx.x % 32, own_head = !Values || args.v.stride[1] ? head : 0;
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

// --- a warpgroup with 64 rows ---

template <class Op> struct IsoAttendConsumer {
    using Plan = IsoAttendWgmmaPlan<Op>;
    static constexpr int regs = Plan::regs;

    const IsoAttendArgs &args;
    const IsoAttendTokens<Op> &tile;
    IsoAttendWgmmaShared &shared;
    unsigned smem;
    int head, member0;     // of the tile's rows
    int group, warp, lane; // of the consumers; in the warpgroup
    int n;                 // blocks passed
    int tokens;            // of this thread's rows, 8 apart: 16 bits each
    int sequence;
    int first_split;       // that a row of the sequence sees
    float m[2], sum[2], alpha[2];     // of the split; sum: of this lane
    float total_m[2], total_l[2];     // of the splits before
    float s[64], o[regs]; // scores, then weights, of a block; values
    unsigned p[32];       // weights, rounded

    // --- rows ---

    __device__ __forceinline__ int row_of(int h) const {
        return group * 64 + warp * 16 + h * 8 + lane / 4;
    }
    __device__ __forceinline__ int token_of(int h) const { return tokens >> 16 * h & 0xFFFF; }
    __device__ __forceinline__ int member_of(int h) const {
        return member0 + row_of(h) % args.tile_group;
    }
    // Rows that do not exist have the last token's place, which then has no token.
    __device__ __forceinline__ void find_tokens() {
        tokens = 0;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int at = member_of(h) < args.group ? row_of(h) / args.tile_group
                                               : ISO_ATTEND_WGMMA_ROWS - 1;
            tokens |= at << 16 * h;
        }
    }
    // Whether the row exists and is of the sequence.
    __device__ __forceinline__ bool is_of(int h) const {
        return shared.sequence[token_of(h)] == sequence;
    }
    // The keys that a row sees.
    __device__ __forceinline__ int2 keys_of(int h) const {
        int at = token_of(h);
        return is_of(h) ? make_int2(shared.lo[at], shared.hi[at]) : make_int2(0, 0);
    }
    // Whether a row sees a key in [from, to).
    ISO_INLINE bool sees(int2 keys, int from, int to) {
        return iso_attend_max(keys.x, from) < iso_attend_min(keys.y, to);
    }

    // --- products ---

    __device__ __forceinline__ void wait_turn() {
        iso_barrier_sync(ISO_ATTEND_BAR_TURN + group, 256);
    }
    __device__ __forceinline__ void pass_turn() {
        iso_barrier_arrive(ISO_ATTEND_BAR_TURN + 1 - group, 256);
    }

    __device__ __forceinline__ void release(unsigned long long *empty, int stage) {
        if (lane == 0) {
            iso_mbar_arrive(iso_shared(&empty[stage]));
        }
    }

    __device__ __forceinline__ void multiply_keys(int stage) {
        unsigned a = iso_attend_desc_low(smem + group * 8192, 16);
        unsigned b = iso_attend_desc_low(smem + Plan::k_at + stage * Plan::k_bytes, 16);
        iso_pin(s);
        iso_wgmma_fence();
#pragma unroll
        for (int k = 0; k < Plan::steps; ++k) {
            int at = (k / 4 * ISO_ATTEND_PANEL + k % 4 * 32) >> 4;
            IsoWgmma<ISO_ATTEND_BLOCK, Op::f16, false, false>::step(
                s, iso_attend_desc(a + at), iso_attend_desc(b + at), k != 0);
        }
        iso_wgmma_commit();
    }

    __device__ __forceinline__ void multiply_values(int stage) {
        unsigned b = iso_attend_desc_low(smem + Plan::v_at + stage * Plan::v_bytes,
                                         ISO_ATTEND_PANEL);
        iso_pin(o);
        iso_wgmma_fence();
#pragma unroll
        for (int k = 0; k < ISO_ATTEND_BLOCK / 16; ++k) {
            IsoWgmmaRegs<Op::width, Op::values_f16>::step(
                o, &p[4 * k], iso_attend_desc(b + (k * 2048 >> 4)));
        }
        iso_wgmma_commit();
    }

    // --- weights ---

    ISO_INLINE unsigned rounded(float low, float high) {
        unsigned pair;
        if constexpr (Op::values_f16) {
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        } else {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        }
        return pair;
    }

    // Element i of the scores: its row's half, and its key in the block but for the lane.
    ISO_INLINE int half_of(int i) { return i / 2 % 2; }
    ISO_INLINE int key_of(int i) { return i / 4 * 8 + i % 2; }
    // The i-th of part j of a row.
    ISO_INLINE int element(int h, int j, int i) { return 2 * h + j * 16 + i / 2 * 4 + i % 2; }

    // Mixed: rows may see different keys of the block.
    template <bool Mixed> ISO_INLINE bool is_seen(int i, int key0, int2 keys) {
        int key = key0 + key_of(i);
        return !Mixed || (key >= keys.x && key < keys.y);
    }

    // Exponents of 2 in place of scores; the maximum of row h and of what it had before.
    template <bool Mixed>
    __device__ __forceinline__ float most_of(int h, int key0, int2 keys) {
        float most[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                int at = element(h, j, i);
                float t = iso_mul(s[at], iso_bits_f32(Op::scale));
                if constexpr (Op::capped) {
                    t = iso_mul(iso_tanh(t), iso_bits_f32(Op::cap));
                }
                s[at] = t;
                float hidden = is_seen<Mixed>(at, key0, keys) ? t : iso_bits_f32(0xFF800000u);
                most[j] = i == 0 ? hidden : iso_max(most[j], hidden);
            }
        }
        float x = iso_max(iso_max(most[0], most[1]), iso_max(most[2], most[3]));
        x = iso_max(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
        x = iso_max(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
        return iso_max(m[h], x);
    }

    // Weights of scores, and their sums. After the first block of a run all rows that see keys have
    // begun, but that this block may start a split.
    template <bool Mixed, bool First>
    __device__ __forceinline__ void weigh(int block, bool starts) {
        int key0 = block + lane % 4 * 2;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int2 keys = First ? keys_of(h) : make_int2(0, 0);
            float most = most_of<Mixed>(h, key0, keys), part[4];
            float fall = iso_attend_weight<Op>(iso_sub(m[h], most));
            bool counts = First ? sees(keys, block / Op::split * Op::split, block) &&
                                      sees(keys, block, block + ISO_ATTEND_BLOCK)
                                : !starts;
            alpha[h] = counts ? fall : 1.0f;
            m[h] = most;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    int at = element(h, j, i);
                    float x = iso_attend_weight<Op>(iso_sub(s[at], most));
                    s[at] = is_seen<Mixed>(at, key0, keys) ? x : 0.0f;
                    part[j] = i == 0 ? s[at] : iso_add(part[j], s[at]);
                }
            }
            sum[h] = iso_add(iso_mul(sum[h], alpha[h]),
                             iso_add(iso_add(part[0], part[1]), iso_add(part[2], part[3])));
        }
    }

    __device__ __forceinline__ void pack() {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            p[i] = rounded(s[2 * i], s[2 * i + 1]);
        }
    }

    __device__ __forceinline__ void scale_out() {
#pragma unroll
        for (int i = 0; i < regs; ++i) {
            o[i] = iso_mul(o[i], alpha[i / 2 % 2]);
        }
    }

    // --- values that are no numbers ---

    __device__ __forceinline__ bool is_odd(int stage) {
        constexpr unsigned inf = Op::values_f16 ? 0x7C00u : 0x7F80u;
        unsigned v = smem + Plan::v_at + stage * Plan::v_bytes;
        int *flag = &shared.odd[group][n & 1];
        bool odd = false;
#pragma unroll 4
        for (int i = warp * 32 + lane; i < Plan::v_bytes / 16; i += 128) {
            unsigned x[4];
            iso_shared_load16(x, v + i * 16);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                odd |= (x[j] & inf) == inf || (x[j] >> 16 & inf) == inf;
            }
        }
        if (__ballot_sync(0xFFFFFFFFu, odd) && lane == 0) {
            *flag = n + 1;
        }
        iso_barrier_sync(ISO_ATTEND_BAR_ODD + group, 128);
        return *(volatile int *)flag == n + 1;
    }

    // Two neighbouring values of one column, those outside [from, to) as zeros.
    ISO_INLINE unsigned seen_pair(unsigned pair, int from, int to, int key) {
        unsigned low = key >= from && key < to ? pair & 0xFFFFu : 0u;
        unsigned high = key + 1 >= from && key + 1 < to ? pair & 0xFFFF0000u : 0u;
        return low | high;
    }

    // A step for each row apart.
    ISO_INLINE void step_by_rows(float *c, const unsigned *weights, unsigned b0, unsigned b1,
                                 int key, int2 low, int2 high) {
        unsigned a[4] = {weights[0], weights[1], weights[2], weights[3]};
        float from[4] = {c[0], c[1], c[2], c[3]};
        int own = threadIdx.x % 32 / 4;
#pragma unroll 1
        for (int r = 0; r < 16; ++r) {
            int first = __shfl_sync(0xFFFFFFFFu, r < 8 ? low.x : high.x, r % 8 * 4);
            int end = __shfl_sync(0xFFFFFFFFu, r < 8 ? low.y : high.y, r % 8 * 4);
            float d[4] = {from[0], from[1], from[2], from[3]};
            iso_mma_k16<Op::values_f16>(d, a, seen_pair(b0, first, end, key),
                                        seen_pair(b1, first, end, key + 8));
            if (own == r) {
                c[0] = d[0], c[1] = d[1];
            }
            if (own + 8 == r) {
                c[2] = d[2], c[3] = d[3];
            }
        }
    }

    // In a thread's own memory, since this is rare and registers are not.
    __device__ __forceinline__ void multiply_by_rows(int block, int stage) {
        unsigned v = smem + Plan::v_at + stage * Plan::v_bytes;
        int2 low = keys_of(0), high = keys_of(1);
        unsigned weights[32];
        float out[regs];
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            weights[i] = p[i];
        }
#pragma unroll
        for (int i = 0; i < regs; ++i) {
            out[i] = o[i];
        }
#pragma unroll 1
        for (int key = 0; key < ISO_ATTEND_BLOCK; key += 16) {
            int line = key + lane % 16;
#pragma unroll 1
            for (int c = 0; c < Op::width / 8; c += 2) {
                int chunk = c + lane / 16, at = block + key + lane % 4 * 2;
                unsigned b[4];
                iso_ldmatrix<true>(b, v + chunk / 8 * ISO_ATTEND_PANEL + line * 128 +
                                          ((chunk % 8 ^ line % 8) << 4));
                step_by_rows(&out[4 * c], &weights[key / 4], b[0], b[1], at, low, high);
                step_by_rows(&out[4 * c + 4], &weights[key / 4], b[2], b[3], at, low, high);
            }
        }
#pragma unroll
        for (int i = 0; i < regs; ++i) {
            o[i] = out[i];
        }
    }

    // --- runs of blocks in one split: all but single ones are seen by all rows ---

    template <bool Mixed> __device__ __forceinline__ void first_block(int block) {
        IsoAttendPlace at = IsoAttendPlace::of(n);
        iso_mbar_wait(iso_shared(&shared.k_full[at.stage]), at.phase);
        wait_turn();
        multiply_keys(at.stage);
        pass_turn();
        iso_wgmma_wait<0>();
        iso_pin(s);
        release(shared.k_empty, at.stage);
        weigh<Mixed, true>(block, false);
        pack();
        scale_out();
    }


    // The scores of a block beside the values of the one before; between them may be the border of
    // splits.
    __device__ __forceinline__ void next_block(int block) {
        IsoAttendPlace before = IsoAttendPlace::of(n), at = IsoAttendPlace::of(n + 1);
        iso_mbar_wait(iso_shared(&shared.k_full[at.stage]), at.phase);
        iso_mbar_wait(iso_shared(&shared.v_full[before.stage]), before.phase);
        wait_turn();
        multiply_keys(at.stage);
        multiply_values(before.stage);
        pass_turn();
        iso_wgmma_wait<1>();
        iso_pin(s);
        release(shared.k_empty, at.stage);
        bool starts = block % Op::split == 0;
        float last_m[2], last_sum[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            last_m[h] = m[h];
            last_sum[h] = sum[h];
            m[h] = starts ? iso_bits_f32(0xFF800000u) : m[h];
            sum[h] = starts ? 0.0f : sum[h];
        }
        weigh<false, false>(block, starts);
        if (lane == 0) {
            shared.order[group * 4 + warp] = iso_add(sum[0], sum[1]);
        }
        iso_wgmma_wait<0>();
        iso_pin(o);
        release(shared.v_empty, before.stage);
        pack();
        if (starts) {
            end_split(block - Op::split, last_m, last_sum);
            keep_total();
            clear_out();
        } else {
            scale_out();
        }
        ++n;
    }

    __device__ __forceinline__ void last_values(int block, bool mixed) {
        IsoAttendPlace at = IsoAttendPlace::of(n);
        iso_mbar_wait(iso_shared(&shared.v_full[at.stage]), at.phase);
        if (mixed && is_odd(at.stage)) {
            wait_turn();
            pass_turn();
            multiply_by_rows(block, at.stage);
        } else {
            wait_turn();
            multiply_values(at.stage);
            pass_turn();
            iso_wgmma_wait<0>();
            iso_pin(o);
        }
        release(shared.v_empty, at.stage);
        ++n;
    }

    // --- splits ---

    __device__ __forceinline__ void clear_out() {
#pragma unroll
        for (int i = 0; i < regs; ++i) {
            o[i] = 0.0f;
        }
    }

    __device__ __forceinline__ void start_split() {
        m[0] = m[1] = iso_bits_f32(0xFF800000u);
        sum[0] = sum[1] = 0.0f;
        clear_out();
    }

    __device__ __forceinline__ unsigned total_at(int i) const {
        return smem + Plan::total_at + ((i * 2 + group) * 128 + warp * 32 + lane) * 16;
    }

    // The values of all splits so far, in place of those of the one from `start` on: joined to
    // those of the splits before, where both are there.
    __device__ __forceinline__ void end_split(int start, const float (&m)[2],
                                              const float (&sum)[2]) {
        float left[2], right[2];
        bool here[2], before[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float pair = iso_add(sum[h], __shfl_xor_sync(0xFFFFFFFFu, sum[h], 1));
            float l = iso_add(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, 2));
            float most = iso_max(total_m[h], m[h]);
            int2 keys = keys_of(h);
            here[h] = sees(keys, start, start + Op::split);
            before[h] = sees(keys, 0, start);
            left[h] = Op::weight(iso_sub(total_m[h], most));
            right[h] = Op::weight(iso_sub(m[h], most));
            float both = iso_add(iso_mul(total_l[h], left[h]), iso_mul(l, right[h]));
            total_m[h] = !here[h] ? total_m[h] : before[h] ? most : m[h];
            total_l[h] = !here[h] ? total_l[h] : before[h] ? both : l;
        }
        if (start >= first_split + Op::split) {
#pragma unroll
            for (int i = 0; i < regs / 4; ++i) {
                float4 t = iso_shared_load_f4(total_at(i));
                float total[4] = {t.x, t.y, t.z, t.w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    int h = j / 2;
                    float &x = o[4 * i + j];
                    float both = iso_add(iso_mul(total[j], left[h]), iso_mul(x, right[h]));
                    x = !here[h] ? total[j] : before[h] ? both : x;
                }
            }
        }
    }

    __device__ __forceinline__ void keep_total() {
#pragma unroll
        for (int i = 0; i < regs / 4; ++i) {
            iso_shared_store_f4(total_at(i), make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2],
                                                         o[4 * i + 3]));
        }
    }

    // --- results ---

    __device__ __forceinline__ void join_sink(int h) {
        const float *sinks = (const float *)args.sinks.ptr + head * args.sinks.stride[1];
        float sink = member_of(h) < args.group ? sinks[member_of(h) * args.sinks.stride[2]] : 0.0f;
        float x = iso_mul(sink, ISO_LOG2E), most = iso_max(total_m[h], x);
        float left = Op::weight(iso_sub(total_m[h], most));
        total_l[h] = iso_add(iso_mul(total_l[h], left), Op::weight(iso_sub(x, most)));
        total_m[h] = most;
#pragma unroll
        for (int i = 0; i < regs; i += 4) {
            o[i + 2 * h] = iso_mul(o[i + 2 * h], left);
            o[i + 2 * h + 1] = iso_mul(o[i + 2 * h + 1], left);
        }
    }

    __device__ __forceinline__ long long place_in(const IsoView &to, int h) const {
        return head * to.stride[1] + (tile.token0 + token_of(h)) * to.stride[0] +
               member_of(h) * to.stride[2];
    }

    // The four lanes of a row exchange pairs, so that each stores eight neighbouring columns.
    __device__ __forceinline__ void store_wide(int h, bool own, bool any) const {
        unsigned short *row = (unsigned short *)args.o.ptr + (own ? place_in(args.o, h) : 0);
#pragma unroll
        for (int i = 0; i < regs; i += 16) {
            unsigned words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float x = iso_div(o[i + 4 * j + 2 * h], total_l[h]);
                float y = iso_div(o[i + 4 * j + 2 * h + 1], total_l[h]);
                words[j] = (unsigned)Op::value(any ? x : 0.0f) |
                           (unsigned)Op::value(any ? y : 0.0f) << 16;
            }
            iso_quad_transpose(words);
            if (own) {
                *(uint4 *)(row + 2 * i + lane % 4 * 8) =
                    make_uint4(words[0], words[1], words[2], words[3]);
            }
        }
    }

    __device__ __forceinline__ void store_row(int h, bool own, bool any) const {
        typename Op::Value *row =
            (typename Op::Value *)args.o.ptr + (own ? place_in(args.o, h) : 0);
#pragma unroll
        for (int i = 0; i < regs; i += 4) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                int column = 2 * i + lane % 4 * 2 + e;
                float x = iso_div(o[i + 2 * h + e], total_l[h]);
                if (own) {
                    row[column * args.o.stride[4]] = Op::value(any ? x : 0.0f);
                }
            }
        }
    }

    __device__ __forceinline__ bool is_wide() const {
        const IsoView &to = args.o;
        long long all = to.stride[0] | to.stride[1] | to.stride[2];
        return sizeof(typename Op::Value) == 2 && to.stride[4] == 1 && all % 8 == 0 &&
               (unsigned long long)to.ptr % 16 == 0;
    }

    __device__ __forceinline__ void store_lse(int h, bool any) const {
        float x = iso_add(iso_mul(total_m[h], ISO_LN2), iso_log(total_l[h]));
        ((float *)args.lse.ptr)[place_in(args.lse, h)] = any ? x : iso_bits_f32(0xFF800000u);
    }

    __device__ __forceinline__ void store() {
        bool wide = is_wide();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int2 keys = keys_of(h);
            bool any = keys.x < keys.y, own = is_of(h);
            if constexpr (Op::sinks) {
                join_sink(h);
            }
            if (sizeof(typename Op::Value) == 2 && wide) {
                if constexpr (sizeof(typename Op::Value) == 2) {
                    store_wide(h, own, any);
                }
            } else {
                store_row(h, own, any);
            }
            if constexpr (Op::lse) {
                if (own && lane % 4 == 0) {
                    store_lse(h, any);
                }
            }
        }
    }

    // --- the walk ---

    // From `block` on: the end of what goes through one pipeline.
    ISO_INLINE int end_of_run(const IsoAttendRange &range, int block) {
        return iso_attend_mixed(range, block)
                   ? block + ISO_ATTEND_BLOCK
                   : range.all_hi / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK;
    }

    __device__ __forceinline__ void attend(int of) {
        sequence = of;
        IsoAttendRange range = tile.range_of(of);
        total_m[0] = total_m[1] = iso_bits_f32(0xFF800000u);
        total_l[0] = total_l[1] = 0.0f;
        first_split = range.lo / Op::split * Op::split;
        start_split();
#pragma unroll 1
        for (int block = range.lo / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK; block < range.hi;) {
            bool mixed = iso_attend_mixed(range, block);
            int end = end_of_run(range, block);
            if (mixed) {
                first_block<true>(block);
            } else {
                first_block<false>(block);
            }
#pragma unroll 1
            for (block += ISO_ATTEND_BLOCK; block < end; block += ISO_ATTEND_BLOCK) {
                next_block(block);
            }
            last_values(block - ISO_ATTEND_BLOCK, mixed);
            if (block % Op::split == 0 || block >= range.hi) {
                end_split((block - 1) / Op::split * Op::split, m, sum);
                if (block < range.hi) {
                    keep_total();
                    start_split();
                }
            }
        }
        store();
    }
};

template <class Op> ISO_INLINE void iso_attend_wgmma_init(IsoAttendWgmmaShared &shared) {
    if (threadIdx.x == 0) {
        iso_mbar_init(iso_shared(&shared.q_full), 1);
        for (int i = 0; i < 2; ++i) {
            iso_mbar_init(iso_shared(&shared.k_full[i]), 1);
            iso_mbar_init(iso_shared(&shared.v_full[i]), 1);
            iso_mbar_init(iso_shared(&shared.k_empty[i]), 8);
            iso_mbar_init(iso_shared(&shared.v_empty[i]), 8);
            shared.odd[0][i] = shared.odd[1][i] = 0;
        }
        iso_mbar_init_fence();
    }
}

template <class Op>
ISO_INLINE void iso_attend_wgmma(const IsoAttendArgs &args, const IsoAttendMaps &maps) {
    using Plan = IsoAttendWgmmaPlan<Op>;
    extern __shared__ unsigned char iso_dynamic[];
    __shared__ IsoAttendWgmmaShared shared;
    unsigned smem = (iso_shared(iso_dynamic) + 1023) & ~1023u;
    int live = args.rows_dev ? iso_attend_min(*args.rows_dev, args.rows) : args.rows;
    // The last tiles see most keys: they go first.
    int chunks = (args.group + args.tile_group - 1) / args.tile_group;
    int i = gridDim.x - 1 - blockIdx.x;
    int token0 = i / chunks * args.tile_tokens, member0 = i % chunks * args.tile_group;
    if (token0 >= live) {
        return;
    }
    int head = blockIdx.y;
    IsoAttendTokens<Op> tile{args, shared, token0, iso_attend_min(args.tile_tokens, live - token0)};
    iso_attend_wgmma_init<Op>(shared);
    if (threadIdx.x < 128) {
        tile.open();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        tile.find_first();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        iso_registers_shrink<40>();
        if (threadIdx.x < 32) {
            IsoAttendProducer<Op, false> body{args, maps, tile, shared, smem, head, 0};
            body.load_queries(member0);
            iso_attend_sequences(shared, body);
        } else if (threadIdx.x < 64) {
            IsoAttendProducer<Op, true> body{args, maps, tile, shared, smem, head, 0};
            iso_attend_sequences(shared, body);
        }
    } else {
        iso_registers_grow<232>();
        int thread = threadIdx.x - 128;
        IsoAttendConsumer<Op> body{args, tile, shared, smem, head, member0, thread / 128,
                                   thread % 128 / 32, thread % 32, 0};
        body.find_tokens();
        if (body.group == 1) {
            body.pass_turn();
        }
        iso_mbar_wait(iso_shared(&shared.q_full), 0);
        iso_attend_sequences(shared, body);
        if (body.group == 0) {
            body.wait_turn();
        }
    }
}

#endif
