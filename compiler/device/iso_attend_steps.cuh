// A block of keys in a warpgroup of attention by wgmma: its products, its weights, and the values
// that are no numbers. Owns nothing; iso_attend_wgmma.cuh goes through the blocks.
#ifndef ISO_ATTEND_STEPS_CUH
#define ISO_ATTEND_STEPS_CUH

#include "iso_attend_rows.cuh"
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

// p = the polynomial of the Op's exponential, each coefficient for all of x.
template <class Op, int N>
ISO_INLINE void iso_attend_polynomial(const float (&x)[N], float (&p)[N]) {
    constexpr float d6[] = {0x1.417a7p-13f,  0x1.5f0948p-10f, 0x1.3b2dd2p-7f, 0x1.c6af7ap-5f,
                            0x1.ebfbdcp-3f, 0x1.62e43p-1f,   1.0f};
    constexpr float d3[] = {0x1.c2a256p-5f, 0x1.f00c5p-3f, 0x1.62f5fap-1f, 1.0f};
#pragma unroll
    for (int i = 0; i < N; ++i) {
        p[i] = Op::degree == 6 ? d6[0] : d3[0];
    }
#pragma unroll
    for (int k = 1; k <= Op::degree; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            p[i] = iso_fma(p[i], x[i], Op::degree == 6 ? d6[k] : d3[k < 4 ? k : 3]);
        }
    }
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
        }
        iso_attend_polynomial<Op>(x, p);
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
    }
    iso_attend_polynomial<Op>(x, p);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        x[i] = iso_rounded_raise(p[i], t[i]);
    }
}

template <class Op> struct IsoAttendSteps : IsoAttendRows<Op> {
    using Base = IsoAttendRows<Op>;
    using Plan = IsoAttendWgmmaPlan<Op>;
    using Base::alpha, Base::fresh, Base::m, Base::n, Base::o, Base::p, Base::regs, Base::s;
    using Base::shared, Base::sum;
    using Base::clear_out, Base::group, Base::keys_of, Base::lane, Base::range_all_hi;
    using Base::range_lo, Base::sees;
    using Base::smem;

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

    // The other warpgroup's turn begins under the last steps: it takes as long to come.
    __device__ __forceinline__ void multiply_values(int stage) {
        unsigned v = iso_attend_desc_low(smem() + Plan::v_at + stage * Plan::v_bytes,
                                         ISO_ATTEND_PANEL);
        unsigned b = iso_attend_uniform(v);
        iso_pin(o);
        iso_wgmma_fence();
#pragma unroll
        for (int k = 0; k < ISO_ATTEND_BLOCK / 16; ++k) {
            if (k == ISO_ATTEND_BLOCK / 16 - 2) {
                pass_turn();
            }
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

    // The i-th of part j of a row, as an element of the scores; of its keys in order the bit is of.
    ISO_INLINE int element(int h, int j, int i) { return 2 * h + j * 16 + i / 2 * 4 + i % 2; }
    ISO_INLINE int bit_of(int element) { return element / 4 * 2 + element % 2; }

    // A bit for each of the lane's keys of a block that is less than n past its first one: pairs, 8
    // apart.
    ISO_INLINE unsigned keys_below(int n) {
        n = iso_attend_min(iso_attend_max(n, 0), ISO_ATTEND_BLOCK);
        int bits = n / 8 * 2 + iso_attend_min(n % 8, 2);
        return bits < 32 ? (1u << bits) - 1 : 0xFFFFFFFFu;
    }
    // Those that a row sees, key0 the first.
    ISO_INLINE unsigned seen_of(int2 keys, int key0) {
        return keys_below(keys.y - key0) & ~keys_below(keys.x - key0);
    }

    // Mixed: rows may see different keys of the block.
    template <bool Mixed> ISO_INLINE bool is_seen(int element, unsigned seen) {
        return !Mixed || (seen >> bit_of(element) & 1) != 0;
    }

    // Exponents of 2 in place of scores; the maximum of row h in this thread.
    template <bool Mixed>
    __device__ __forceinline__ float most_of(int h, unsigned seen) {
        float most[4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                int at = element(h, j, i);
                float t = iso_attend_scaled<Op>(s[at]);
                s[at] = t;
                float hidden = is_seen<Mixed>(at, seen) ? t : iso_bits_f32(0xFF800000u);
                most[j] = i == 0 ? hidden : iso_max(most[j], hidden);
            }
        }
        return iso_max(iso_max(most[0], most[1]), iso_max(most[2], most[3]));
    }

    // Weights of row h in place of exponents, some of each part at a time, and their sum. `never`
    // is false, which ptxas does not know: with rounded maxima it would begin all of a row's
    // weights before it ends one, and has no registers for them. `after`: what goes before the row.
    template <bool Mixed>
    __device__ __forceinline__ float weigh_row(int h, unsigned seen, bool never, float after) {
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
                    s[at] = is_seen<Mixed>(at, seen) ? x[j * each + e] : 0.0f;
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
        const IsoAttendOpened &t = shared.tile[First ? iso_attend_peek(this->passed()) & 1 : 0];
        float most[2], fall[2];
        int2 keys[2];
        unsigned seen[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            keys[h] = First ? keys_of(t, h) : make_int2(0, 0);
            seen[h] = First ? seen_of(keys[h], key0) : 0;
            most[h] = most_of<First>(h, seen[h]);
            seen[h] &= First ? ~(range_lo() >> 31) : 0; // all, which ptxas does not know
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
                bool here = !First || sees(keys[h], block, block + ISO_ATTEND_BLOCK);
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
            bool counts = First ? sees(keys[h], block / Op::split * Op::split, block) &&
                                      sees(keys[h], block, block + ISO_ATTEND_BLOCK)
                                : !starts;
            alpha[h] = counts ? fall[h] : 1.0f;
            float x = weigh_row<First>(h, seen[h], never, h == 0 ? m[0] : sum[0]);
            x = iso_attend_sum<Op>(x, m[h], !First || seen[h] != 0);
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
    template <bool First> __device__ __forceinline__ void scale_out() {
        if (First || !Op::rounded || alpha[0] != 1.0f || alpha[1] != 1.0f) {
#pragma unroll
            for (int i = 0; i < regs; ++i) {
                o[i] = iso_mul(o[i], alpha[i / 2 % 2]);
            }
        }
    }

    // --- values that are no numbers ---

    // Looks at values of the block that is passed as number `i`: those that some row does not see.
    // Each warpgroup at its share of them.
    __device__ __forceinline__ void look_at_values(int block, int i) {
        constexpr unsigned inf = Op::values_f16 ? 0x7C00u : 0x7F80u;
        constexpr int lines = 256 / 8; // at a time, of 128 bytes
        IsoAttendPlace at = IsoAttendPlace::of(i);
        int thread = iso_attend_thread() - 128, *flags = shared.odd[at.stage];
        int all = Op::window ? 0 : iso_attend_max(range_all_hi() - block, 0);
        unsigned v = smem() + Plan::v_at + at.stage * Plan::v_bytes + thread * 16;
        iso_mbar_wait(iso_shared(&shared.v_full[at.stage]), at.phase);
        unsigned odd = 0;
#pragma unroll 1
        for (int line = all / lines * lines; line < ISO_ATTEND_BLOCK; line += lines) {
#pragma unroll
            for (int p = 0; p < Plan::v_panels; ++p) {
                unsigned x[4];
                iso_shared_load16(x, v + p * ISO_ATTEND_PANEL + line * 128);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    odd |= (x[j] & inf) == inf || (x[j] >> 16 & inf) == inf ? 1u : 0u;
                }
            }
        }
        if (odd != 0) {
            flags[thread / 32] = i + 1;
        }
        iso_barrier_arrive(ISO_ATTEND_BAR_ODD + 1 - group(), 256);
    }

    // Whether one of those is no number, once the other warpgroup has looked.
    __device__ __forceinline__ bool has_odd(int i) {
        const int *flags = shared.odd[i & 1];
        iso_barrier_sync(ISO_ATTEND_BAR_ODD + group(), 256);
        bool any = false;
#pragma unroll
        for (int w = 0; w < 8; ++w) {
            any |= iso_attend_peek(&flags[w]) == i + 1;
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
        int2 low = keys_of(this->tile(), 0), high = keys_of(this->tile(), 1);
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
        __syncwarp(); // read by every lane, before one gives the values back
#pragma unroll
        for (int i = 0; i < regs; ++i) {
            o[i] = out[i];
        }
    }
};

#endif
