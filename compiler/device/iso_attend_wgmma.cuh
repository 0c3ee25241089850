// Attention by wgmma: prefill, chunks of it and training. Owns nothing; the launch rule is in
// iso_abi.cuh, the arithmetic LANGUAGE.md's 6.13; the tile's rows and its copies are
// iso_attend_tile.cuh's.
//
// A CTA has 128 rows. Two warps copy queries, blocks of keys and blocks of values by the copy
// engine; two warpgroups have 64 rows each. A thread's 32 weights of a row in a block are the
// clause's lane threadIdx % 4, and stay in registers as the left operand of the values' product.
// The warpgroups take turns at the tensor cores, so that the exponentials of one are computed under
// the products of the other; in a run of blocks that all rows see, a block's values are multiplied
// beside the next one's scores. Values of the splits before wait in shared memory.
//
// Keys that no row of the sequence in the tile sees may be copied. Where rows see different keys of
// a block, the weights of the unseen are +0; if a value of the block is NaN or Inf, each row gets
// steps of its own, with the values that it does not see as zeros.
#ifndef ISO_ATTEND_WGMMA_CUH
#define ISO_ATTEND_WGMMA_CUH

#include "iso_attend_tile.cuh"
#include "iso_wgmma.cuh"

// iso_wgmma_desc with a stride of 1024, its words apart: what changes from step to step is the low
// one, which has room for any address.
ISO_INLINE unsigned iso_attend_desc_low(unsigned addr, unsigned leading) {
    return addr >> 4 | leading >> 4 << 16;
}
ISO_INLINE unsigned long long iso_attend_desc(unsigned low) {
    return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | low;
}

// What is the same in all lanes, so that ptxas sees it: wgmma takes its descriptors from uniform
// registers, and each that is not known to be uniform goes through three instructions first.
ISO_INLINE unsigned iso_attend_uniform(unsigned x) {
    return __shfl_sync(0xFFFFFFFFu, x, 0);
}

// The exponential of numbers that are not above 0, or NaN, stage by stage: in a row of independent
// instructions none waits for the one before.
template <class Op, int N> ISO_INLINE void iso_attend_weights(float (&x)[N]) {
    if constexpr (Op::degree <= ISO_ATTEND_EX2) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            x[i] = Op::weight(x[i]);
        }
    } else {
        constexpr float d6[] = {0x1.417a7p-13f,  0x1.5f0948p-10f, 0x1.3b2dd2p-7f, 0x1.c6af7ap-5f,
                                0x1.ebfbdcp-3f, 0x1.62e43p-1f,   1.0f};
        constexpr float d3[] = {0x1.c2a256p-5f, 0x1.f00c5p-3f, 0x1.62f5fap-1f, 1.0f};
        float t[N], p[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            x[i] = iso_max(x[i], -127.0f);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            t[i] = iso_add(x[i], ISO_ROUNDER);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            p[i] = iso_sub(t[i], ISO_ROUNDER);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            x[i] = iso_sub(x[i], p[i]);
            p[i] = Op::degree == 6 ? d6[0] : d3[0];
        }
#pragma unroll
        for (int k = 1; k <= Op::degree; ++k) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                p[i] = iso_fma(p[i], x[i], Op::degree == 6 ? d6[k] : d3[k < 4 ? k : 3]);
            }
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            x[i] = iso_scale_once(p[i], t[i]);
        }
    }
}

// iso_ex2_weight, then iso_rounded_weight, stage by stage.
template <class Op, int N> ISO_INLINE void iso_attend_ex2_weights(float (&x)[N], float m) {
    float by = iso_attend_by<Op>(), base = iso_sub(0.0f, m);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = iso_fma(x[i], by, base);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = iso_ex2(x[i]);
    }
}
template <class Op, int N> ISO_INLINE void iso_attend_rounded_weights(float (&x)[N], float m) {
    constexpr float d6[] = {0x1.417a7p-13f,  0x1.5f0948p-10f, 0x1.3b2dd2p-7f, 0x1.c6af7ap-5f,
                            0x1.ebfbdcp-3f, 0x1.62e43p-1f,   1.0f};
    constexpr float d3[] = {0x1.c2a256p-5f, 0x1.f00c5p-3f, 0x1.62f5fap-1f, 1.0f};
    float t[N], p[N], by = iso_attend_by<Op>();
    float least = iso_rounded_least(m, iso_bits_f32(Op::inverse)), base = iso_sub(ISO_ROUNDER, m);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = iso_max(x[i], least);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        t[i] = iso_fma(x[i], by, base);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        p[i] = iso_sub(base, t[i]);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = iso_fma(x[i], by, p[i]);
        p[i] = Op::degree == 6 ? d6[0] : d3[0];
    }
#pragma unroll
    for (int k = 1; k <= Op::degree; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            p[i] = iso_fma(p[i], x[i], Op::degree == 6 ? d6[k] : d3[k < 4 ? k : 3]);
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = iso_rounded_raise(p[i], t[i]);
    }
}

// --- a warpgroup with 64 rows ---

template <class Op> struct IsoAttendConsumer {
    using Plan = IsoAttendWgmmaPlan<Op>;
    static constexpr int regs = Plan::regs;

    const IsoAttendArgs &args;
    const IsoAttendTokens<Op> &tile;
    IsoAttendWgmmaShared &shared;
    int n;                        // blocks passed
    int tokens;                   // of this thread's rows, 8 apart: 16 bits each
    int sequence;
    bool fresh;                   // values are of no block yet: what o holds is nobody's
    float m[2], sum[2], alpha[2]; // of the split; sum: of this lane
    float s[64], o[regs];         // scores, then weights, of a block; values
    unsigned p[32];               // weights, rounded

    ISO_INLINE unsigned smem() { return iso_shared(iso_attend_dynamic); }
    ISO_INLINE int lane() { return iso_attend_thread() % 32; }
    ISO_INLINE int group() { return iso_attend_thread() / 128 - 1; }

    // --- rows ---

    ISO_INLINE int row_of(int h) {
        int thread = iso_attend_thread() - 128;
        return thread / 32 * 16 + h * 8 + thread % 32 / 4;
    }
    __device__ __forceinline__ int token_of(int h) const { return tokens >> 16 * h & 0xFFFF; }
    __device__ __forceinline__ int member_of(int h) const {
        return shared.member0 + row_of(h) % args.tile_group;
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
        int2 keys = make_int2(iso_attend_peek(&shared.lo[at]), iso_attend_peek(&shared.hi[at]));
        return is_of(h) ? keys : make_int2(0, 0);
    }
    // Whether a row sees a key in [from, to).
    ISO_INLINE bool sees(int2 keys, int from, int to) {
        return iso_attend_max(keys.x, from) < iso_attend_min(keys.y, to);
    }

    // --- products ---

    __device__ __forceinline__ void wait_turn() {
        iso_barrier_sync(ISO_ATTEND_BAR_TURN + group(), 256);
    }
    __device__ __forceinline__ void pass_turn() {
        iso_barrier_arrive(ISO_ATTEND_BAR_TURN + 1 - group(), 256);
    }

    ISO_INLINE void release(unsigned long long *empty, int stage) {
        if (lane() == 0) {
            iso_mbar_arrive(iso_shared(&empty[stage]));
        }
    }

    __device__ __forceinline__ void multiply_keys(int stage) {
        unsigned q = iso_attend_desc_low(smem() + group() * 8192, 16);
        unsigned k = iso_attend_desc_low(smem() + Plan::k_at + stage * Plan::k_bytes, 16);
        unsigned a = iso_attend_uniform(q), b = iso_attend_uniform(k);
        iso_pin(s);
        iso_wgmma_fence();
#pragma unroll
        for (int i = 0; i < Plan::steps; ++i) {
            int at = (i / 4 * ISO_ATTEND_PANEL + i % 4 * 32) >> 4;
            IsoWgmma<ISO_ATTEND_BLOCK, Op::f16, false, false>::step(
                s, iso_attend_desc(a + at), iso_attend_desc(b + at), i != 0);
        }
        iso_wgmma_commit();
    }

    __device__ __forceinline__ void multiply_values(int stage) {
        unsigned v = iso_attend_desc_low(smem() + Plan::v_at + stage * Plan::v_bytes,
                                         ISO_ATTEND_PANEL);
        unsigned b = iso_attend_uniform(v);
        iso_pin(o);
        iso_wgmma_fence();
#pragma unroll
        for (int k = 0; k < ISO_ATTEND_BLOCK / 16; ++k) {
            IsoWgmmaRegs<Op::width, Op::values_f16>::step(
                o, &p[4 * k], iso_attend_desc(b + (k * 2048 >> 4)), k > 0 || !fresh);
        }
        iso_wgmma_commit();
        fresh = false;
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

    // Exponents of 2 in place of scores; the maximum of row h in this thread.
    template <bool Mixed>
    __device__ __forceinline__ float most_of(int h, int key0, int2 keys) {
        float most[4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                int at = element(h, j, i);
                float t = iso_attend_scaled<Op>(s[at]);
                s[at] = t;
                float hidden = is_seen<Mixed>(at, key0, keys) ? t : iso_bits_f32(0xFF800000u);
                most[j] = i == 0 ? hidden : iso_max(most[j], hidden);
            }
        }
        return iso_max(iso_max(most[0], most[1]), iso_max(most[2], most[3]));
    }

    // Weights of row h in place of exponents, some of each part at a time, and their sum. `never`
    // is false, which ptxas does not know: with rounded maxima it would begin all of a row's
    // weights before it ends one, and has no registers for them. `after`: what goes before the row.
    template <bool Mixed>
    __device__ __forceinline__ float weigh_row(int h, int key0, int2 keys, bool never,
                                               float after) {
        constexpr int each = ISO_ATTEND_BATCH / (Op::capped ? 8 : 4);
        float part[4];
#pragma unroll
        for (int i = 0; i < 8; i += each) {
            float x[4 * each];
#pragma unroll
            for (int e = 0; e < 4 * each; ++e) {
                float t = s[element(h, e / each, i + e % each)];
                x[e] = Op::rounded ? t : iso_sub(t, m[h]);
            }
            float most = never ? i == 0 ? after : part[3] : m[h];
            if constexpr (Op::rounded && Op::degree == ISO_ATTEND_EX2) {
                iso_attend_ex2_weights<Op>(x, most);
            } else if constexpr (Op::rounded) {
                iso_attend_rounded_weights<Op>(x, most);
            } else {
                iso_attend_weights<Op>(x);
            }
#pragma unroll
            for (int e = 0; e < each; ++e) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    int at = element(h, j, i + e);
                    s[at] = is_seen<Mixed>(at, key0, keys) ? x[j * each + e] : 0.0f;
                    part[j] = i + e == 0 ? s[at] : iso_add(part[j], s[at]);
                }
            }
        }
        return iso_add(iso_add(part[0], part[1]), iso_add(part[2], part[3]));
    }

    // Weights of scores, and their sums. First: the block is the first of a run, and maybe mixed;
    // after it all rows that see keys have begun, but that a later block may start a split.
    template <bool First>
    __device__ __forceinline__ void weigh(int block, bool starts) {
        int key0 = First ? block + lane() % 4 * 2 : 0;
        float most[2], fall[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            most[h] = most_of<First>(h, key0, First ? keys_of(h) : make_int2(0, 0));
        }
#pragma unroll
        for (int by = 1; by <= 2; ++by) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                most[h] = iso_max(most[h], __shfl_xor_sync(0xFFFFFFFFu, most[h], by));
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if constexpr (Op::rounded) {
                float next = iso_attend_rounded<Op>(most[h]);
                bool here = !First || sees(keys_of(h), block, block + ISO_ATTEND_BLOCK);
                most[h] = here ? next : most[h];
            }
            most[h] = iso_max(m[h], most[h]);
            fall[h] = iso_sub(m[h], most[h]);
            m[h] = most[h];
        }
        iso_attend_weights<Op>(fall);
        bool never = Op::rounded && range_lo() < 0;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int2 keys = First ? keys_of(h) : make_int2(0, 0);
            bool counts = First ? sees(keys, block / Op::split * Op::split, block) &&
                                      sees(keys, block, block + ISO_ATTEND_BLOCK)
                                : !starts;
            alpha[h] = counts ? fall[h] : 1.0f;
            float x = weigh_row<First>(h, key0, keys, never, h == 0 ? m[0] : sum[0]);
            x = iso_attend_sum<Op>(x, m[h]);
            sum[h] = iso_add(iso_mul(sum[h], alpha[h]), x);
        }
    }

    __device__ __forceinline__ void pack() {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            p[i] = rounded(s[2 * i], s[2 * i + 1]);
        }
    }

    // Rounded maxima seldom rise; 1 changes nothing.
    __device__ __forceinline__ void scale_out() {
        if (!Op::rounded || alpha[0] != 1.0f || alpha[1] != 1.0f) {
#pragma unroll
            for (int i = 0; i < regs; ++i) {
                o[i] = iso_mul(o[i], alpha[i / 2 % 2]);
            }
        }
    }

    // --- values that are no numbers ---

    __device__ __forceinline__ bool is_odd(int stage) {
        constexpr unsigned inf = Op::values_f16 ? 0x7C00u : 0x7F80u;
        unsigned v = smem() + Plan::v_at + stage * Plan::v_bytes;
        int thread = iso_attend_thread() - 128, *flags = shared.odd[n & 1];
        bool odd = false;
#pragma unroll 4
        for (int i = thread % 128; i < Plan::v_bytes / 16; i += 128) {
            unsigned x[4];
            iso_shared_load16(x, v + i * 16);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                odd |= (x[j] & inf) == inf || (x[j] >> 16 & inf) == inf;
            }
        }
        if (odd) {
            flags[thread / 32] = n + 1;
        }
        iso_barrier_sync(ISO_ATTEND_BAR_ODD + group(), 128);
        bool any = false;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            any |= iso_attend_peek(&flags[thread / 128 * 4 + w]) == n + 1;
        }
        return any;
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
        unsigned v = smem() + Plan::v_at + stage * Plan::v_bytes;
        int lane = iso_attend_thread() % 32;
        int2 low = keys_of(0), high = keys_of(1);
        unsigned weights[32];
        float out[regs];
        if (fresh) {
            clear_out();
            fresh = false;
        }
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

    // --- blocks ---

    // What is of the split from `block` on, in place of the one before, whose values are whole.
    __device__ __forceinline__ void cross_border(int block, const float (&last_m)[2],
                                                 const float (&last_sum)[2]) {
        end_split<Op::window == 0>(block - Op::split, last_m, last_sum);
        keep_total();
        fresh = true;
    }

    // A block that not all rows may see, or that begins. `after`: beside its scores, the values of
    // the block before.
    __device__ __forceinline__ void edge_block(int block, bool after) {
        IsoAttendPlace at = IsoAttendPlace::of(n + after), before = IsoAttendPlace::of(n);
        iso_mbar_wait(iso_shared(&shared.k_full[at.stage]), at.phase);
        if (after) {
            iso_mbar_wait(iso_shared(&shared.v_full[before.stage]), before.phase);
            wait_turn();
            multiply_keys(at.stage);
            multiply_values(before.stage);
            pass_turn();
            iso_wgmma_wait<0>();
            iso_pin(s);
            iso_pin(o);
            release(shared.v_empty, before.stage);
            ++n;
            if (block % Op::split == 0) {
                cross_border(block, m, sum);
                m[0] = m[1] = iso_bits_f32(0xFF800000u);
                sum[0] = sum[1] = 0.0f;
            }
        } else {
            wait_turn();
            multiply_keys(at.stage);
            pass_turn();
            iso_wgmma_wait<0>();
            iso_pin(s);
        }
        release(shared.k_empty, at.stage);
        weigh<true>(block, false);
        pack();
        scale_out();
    }

    // The scores of a block that all rows see beside the values of the one before; between them may
    // be the border of splits.
    // Whether the keys of the block that is passed as number `keys`, and the values of the one
    // before, are there.
    __device__ __forceinline__ bool are_there(int keys) {
        IsoAttendPlace k = IsoAttendPlace::of(keys), v = IsoAttendPlace::of(keys - 1);
        return iso_mbar_try(iso_shared(&shared.k_full[k.stage]), k.phase) &
               iso_mbar_try(iso_shared(&shared.v_full[v.stage]), v.phase);
    }

    // `there`: are_there for this block; then for the next one, asked under other work.
    __device__ __forceinline__ void next_block(int block, bool &there) {
        IsoAttendPlace before = IsoAttendPlace::of(n), at = IsoAttendPlace::of(n + 1);
        if (!there) {
            iso_mbar_wait(iso_shared(&shared.k_full[at.stage]), at.phase);
            iso_mbar_wait(iso_shared(&shared.v_full[before.stage]), before.phase);
        }
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
        weigh<false>(block, starts);
        // Memory is written in order: ptxas moves no weights behind the wait.
        int thread = iso_attend_thread();
        if (thread % 32 == 0) {
            shared.order[thread / 32 - 4] = iso_add(sum[0], sum[1]);
        }
        iso_wgmma_wait<0>();
        iso_pin(o);
        release(shared.v_empty, before.stage);
        there = are_there(n + 2);
        pack();
        if (starts) {
            cross_border(block, last_m, last_sum);
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
        fresh = true;
    }

    ISO_INLINE unsigned totals() {
        return smem() + Plan::total_at + (iso_attend_thread() - 128) * 16;
    }
    static constexpr int total_step = 256 * 16;

    // The values of all splits so far, in place of those of the one from `start` on: joined to
    // those of the splits before, where both are there. All: each row sees keys of it, and of those
    // before if any row does; rows of other sequences may hold anything.
    template <bool All>
    __device__ __forceinline__ void end_split(int start, const float (&m)[2],
                                              const float (&sum)[2]) {
        float left[2], right[2];
        bool here[2], before[2];
        unsigned own = totals();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int row = row_of(h);
            float total_m = shared.total_m[row], total_l = shared.total_l[row];
            float pair = iso_add(sum[h], __shfl_xor_sync(0xFFFFFFFFu, sum[h], 1));
            float l = iso_add(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, 2));
            float most = iso_max(total_m, m[h]);
            int2 keys = All ? make_int2(0, 0x7FFFFFFF) : keys_of(h);
            here[h] = All || sees(keys, start, start + Op::split);
            before[h] = All ? start > 0 : sees(keys, 0, start);
            left[h] = Op::weight(iso_sub(total_m, most));
            right[h] = Op::weight(iso_sub(m[h], most));
            float both = iso_add(iso_mul(total_l, left[h]), iso_mul(l, right[h]));
            __syncwarp();
            shared.total_m[row] = !here[h] ? total_m : before[h] ? most : m[h];
            shared.total_l[row] = !here[h] ? total_l : before[h] ? both : l;
        }
        __syncwarp();
        if (start > range_lo()) {
#pragma unroll
            for (int i = 0; i < regs / 4; ++i) {
                float4 t = iso_shared_load_f4(own + i * total_step);
                float total[4] = {t.x, t.y, t.z, t.w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    int h = j / 2;
                    float &x = o[4 * i + j];
                    float both = iso_add(iso_mul(total[j], left[h]), iso_mul(x, right[h]));
                    x = All ? both : !here[h] ? total[j] : before[h] ? both : x;
                }
            }
        }
    }

    __device__ __forceinline__ void keep_total() {
        unsigned own = totals();
#pragma unroll
        for (int i = 0; i < regs / 4; ++i) {
            iso_shared_store_f4(own + i * total_step, make_float4(o[4 * i], o[4 * i + 1],
                                                                  o[4 * i + 2], o[4 * i + 3]));
        }
    }

    // --- results ---

    __device__ __forceinline__ void join_sink(int h, float &total_m, float &total_l) {
        const float *sinks = (const float *)args.sinks.ptr + blockIdx.y * args.sinks.stride[1];
        float sink = member_of(h) < args.group ? sinks[member_of(h) * args.sinks.stride[2]] : 0.0f;
        float x = iso_mul(sink, ISO_LOG2E), most = iso_max(total_m, x);
        float left = Op::weight(iso_sub(total_m, most));
        total_l = iso_add(iso_mul(total_l, left), Op::weight(iso_sub(x, most)));
        total_m = most;
#pragma unroll
        for (int i = 0; i < regs; i += 4) {
            o[i + 2 * h] = iso_mul(o[i + 2 * h], left);
            o[i + 2 * h + 1] = iso_mul(o[i + 2 * h + 1], left);
        }
    }

    __device__ __forceinline__ long long place_in(const IsoView &to, int h) const {
        return blockIdx.y * to.stride[1] + (shared.token0 + token_of(h)) * to.stride[0] +
               member_of(h) * to.stride[2];
    }

    // Sixteen of a thread's values: four blocks of eight columns from `column` on, of two rows.
    typedef float Values[16];

    // The four lanes of a row exchange pairs, so that each stores eight neighbouring columns.
    __device__ __forceinline__ void store_wide(const Values &x, int h, int column, bool own) const {
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            words[j] = (unsigned)Op::value(x[4 * j + 2 * h]) |
                       (unsigned)Op::value(x[4 * j + 2 * h + 1]) << 16;
        }
        iso_quad_transpose(words);
        if (own) {
            unsigned short *row = (unsigned short *)args.o.ptr + place_in(args.o, h);
            *(uint4 *)(row + column + lane() % 4 * 8) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }

    __device__ __forceinline__ void store_each(const Values &x, int h, int column, bool own) const {
        typename Op::Value *row =
            (typename Op::Value *)args.o.ptr + (own ? place_in(args.o, h) : 0);
        int first = column + lane() % 4 * 2;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (own) {
                row[(first + i / 2 * 8 + i % 2) * args.o.stride[4]] =
                    Op::value(x[i / 2 * 4 + 2 * h + i % 2]);
            }
        }
    }

    __device__ __forceinline__ bool is_wide() const {
        const IsoView &to = args.o;
        long long all = to.stride[0] | to.stride[1] | to.stride[2];
        return sizeof(typename Op::Value) == 2 && to.stride[4] == 1 && all % 8 == 0 &&
               (unsigned long long)to.ptr % 16 == 0;
    }

    __device__ __forceinline__ void store_lse(int h, bool any, float m, float l) const {
        float x = iso_add(iso_mul(m, ISO_LN2), iso_log(l));
        ((float *)args.lse.ptr)[place_in(args.lse, h)] = any ? x : iso_bits_f32(0xFF800000u);
    }

    // `inverse` of l, for rounded maxima.
    __device__ __forceinline__ void store_values(int column, const float (&l)[2],
                                                 const float (&inverse)[2], bool wide) {
        Values x;
        unsigned from = totals() + column / 8 * total_step;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float4 v = iso_shared_load_f4(from + j * total_step);
            x[4 * j] = v.x, x[4 * j + 1] = v.y, x[4 * j + 2] = v.z, x[4 * j + 3] = v.w;
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int2 keys = keys_of(h);
#pragma unroll
            for (int i = 2 * h; i < 16; i += i % 2 ? 3 : 1) {
                float quotient = iso_attend_value<Op>(x[i], l[h], inverse[h]);
                x[i] = keys.x < keys.y ? quotient : 0.0f;
            }
            if constexpr (sizeof(typename Op::Value) == 2) {
                if (wide) {
                    store_wide(x, h, column, is_of(h));
                    continue;
                }
            }
            store_each(x, h, column, is_of(h));
        }
    }

    // From the thread's own part of shared memory, so that the code exists once.
    __device__ __forceinline__ void store() {
        float l[2], inverse[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float m = shared.total_m[row_of(h)];
            l[h] = shared.total_l[row_of(h)];
            if constexpr (Op::sinks) {
                join_sink(h, m, l[h]);
            }
            if constexpr (Op::lse) {
                int2 keys = keys_of(h);
                if (is_of(h) && lane() % 4 == 0) {
                    store_lse(h, keys.x < keys.y, m, l[h]);
                }
            }
        }
        inverse[0] = Op::rounded ? iso_div(1.0f, l[0]) : 0.0f;
        inverse[1] = Op::rounded ? iso_div(1.0f, l[1]) : 0.0f;
        keep_total();
        bool wide = is_wide();
#pragma unroll 1
        for (int column = 0; column < Op::width; column += 32) {
            store_values(column, l, inverse, wide);
        }
    }

    // --- the walk ---

    // The tile's range is kept for each warp apart.
    ISO_INLINE const IsoAttendRange &range() {
        return iso_attend_state<Op>().range[iso_attend_thread() / 32 - 4];
    }
    ISO_INLINE int range_lo() { return iso_attend_peek(&range().lo); }
    ISO_INLINE int range_hi() { return iso_attend_peek(&range().hi); }
    ISO_INLINE int range_all_hi() { return iso_attend_peek(&range().all_hi); }

    __device__ __forceinline__ void open_sequence(int of) {
        IsoAttendRange range = tile.range_of(of);
        int thread = iso_attend_thread();
        sequence = of;
        __syncwarp();
        if (thread % 32 == 0) {
            shared.range[thread / 32 - 4] = range;
        }
        if (thread % 4 == 0) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                shared.total_m[row_of(h)] = iso_bits_f32(0xFF800000u);
                shared.total_l[row_of(h)] = 0.0f;
            }
        }
        __syncwarp();
        start_split();
    }

    ISO_INLINE bool is_mixed(int block) {
        return iso_attend_peek(&range().all_lo) > block ||
               range_all_hi() < block + ISO_ATTEND_BLOCK;
    }

    // A run of blocks goes through one pipeline. What follows a mixed block waits until its values
    // have been looked at.
    __device__ __forceinline__ void attend(int of) {
        open_sequence(of);
#pragma unroll 1
        for (int block = range_lo() / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK;
             block < range_hi();) {
            bool after = false, there = false, mixed;
            do {
                mixed = is_mixed(block);
                edge_block(block, after);
                int whole = range_all_hi() / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK;
                block += ISO_ATTEND_BLOCK;
#pragma unroll 1
                for (; !mixed && block < whole; block += ISO_ATTEND_BLOCK) {
                    next_block(block, there);
                }
                after = true;
            } while (!mixed && block < range_hi());
            last_values(block - ISO_ATTEND_BLOCK, mixed);
            bool last = block >= range_hi();
            if (block % Op::split == 0 || last) {
                end_split<false>((block - 1) / Op::split * Op::split, m, sum);
                if (!last) {
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
            for (int w = 0; w < 8; ++w) {
                shared.odd[i][w] = 0;
            }
        }
        iso_mbar_init_fence();
    }
}

template <class Op>
ISO_INLINE void iso_attend_wgmma(const IsoAttendArgs &args, const IsoAttendMaps &maps) {
    IsoAttendWgmmaShared &shared = iso_attend_state<Op>();
    int live = args.rows_dev ? iso_attend_min(*args.rows_dev, args.rows) : args.rows;
    // The last tiles see most keys: they go first.
    int chunks = (args.group + args.tile_group - 1) / args.tile_group;
    int i = gridDim.x - 1 - blockIdx.x, token0 = i / chunks * args.tile_tokens;
    if (token0 >= live) {
        return;
    }
    IsoAttendTokens<Op> tile{args, shared};
    iso_attend_wgmma_init<Op>(shared);
    tile.clear_rows();
    if (threadIdx.x < 128) {
        tile.open(token0, i % chunks * args.tile_group,
                  iso_attend_min(args.tile_tokens, live - token0));
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        tile.find_first();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        iso_registers_shrink<40>();
        if (threadIdx.x < 32) {
            IsoAttendProducer<Op, false> body{args, maps, tile, shared,
                                              iso_shared(iso_attend_dynamic), 0};
            body.load_queries();
            iso_attend_sequences(shared, body);
        } else if (threadIdx.x < 64) {
            IsoAttendProducer<Op, true> body{args, maps, tile, shared,
                                             iso_shared(iso_attend_dynamic), 0};
            iso_attend_sequences(shared, body);
        }
    } else {
        iso_registers_grow<232>();
        IsoAttendConsumer<Op> body{args, tile, shared, 0};
        body.find_tokens();
        if (body.group() == 1) {
            body.pass_turn();
        }
        iso_mbar_wait(iso_shared(&shared.q_full), 0);
        iso_attend_sequences(shared, body);
        if (body.group() == 0) {
            body.wait_turn();
        }
    }
}

#endif
