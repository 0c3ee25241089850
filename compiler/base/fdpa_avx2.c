/* fdpa_tile for AVX2: eight columns, a panel, in the lanes of a vector; equal to the definition in
 * every bit. */
#include "fdpa_avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2")))

enum {
    LANES = FDPA_PANEL,
    SAFE_EXP = 118, /* above it: a special operand, or a result that may overflow to Inf */
};

/* Eight accumulators: sig / 2^23 x 2^exp, the sign that of `sign` (any lane value with that sign).
 */
typedef struct Acc {
    __m256i sig, exp, sign;
} Acc;

AVX2_INLINE __m256i splat(int x) { return _mm256_set1_epi32(x); }

AVX2_INLINE Acc acc_load(const float *c)
{
    __m256i u = _mm256_castps_si256(_mm256_loadu_ps(c));
    __m256i exp = _mm256_and_si256(_mm256_srli_epi32(u, 23), splat(255));
    __m256i frac = _mm256_and_si256(u, splat(0x7FFFFF));
    __m256i sub = _mm256_cmpeq_epi32(exp, _mm256_setzero_si256());
    __m256i sig = _mm256_or_si256(frac, _mm256_andnot_si256(sub, splat(0x800000)));
    __m256i zero = _mm256_cmpeq_epi32(sig, _mm256_setzero_si256());
    __m256i special = _mm256_cmpeq_epi32(exp, splat(255));
    exp = _mm256_sub_epi32(_mm256_max_epi32(exp, splat(1)), splat(127));
    exp = _mm256_blendv_epi8(exp, splat(FDPA_EXP_ZERO), zero);
    exp = _mm256_blendv_epi8(exp, splat(FDPA_EXP_INF), special);
    return (Acc){sig, exp, u};
}

AVX2_INLINE void acc_store(Acc c, float *out)
{
    __m256i zero = _mm256_cmpeq_epi32(c.sig, _mm256_setzero_si256());
    __m256i special = _mm256_cmpgt_epi32(c.exp, splat(127));
    __m256i sign = _mm256_and_si256(c.sign, splat((int)0x80000000));
    __m256i finite = _mm256_slli_epi32(_mm256_add_epi32(c.exp, splat(126)), 23);
    __m256i base = _mm256_blendv_epi8(finite, splat(254 << 23), special);
    __m256i bits = _mm256_or_si256(_mm256_add_epi32(base, c.sig), sign);
    _mm256_storeu_ps(out, _mm256_castsi256_ps(_mm256_andnot_si256(zero, bits)));
}

AVX2_INLINE __m256i elem_splat(const FdpaElem *e)
{
    int32_t word;
    memcpy(&word, e, sizeof word);
    return splat(word);
}

AVX2_INLINE __m256i elem_load(const FdpaElem *b) { return _mm256_loadu_si256((const __m256i *)b); }

/* E = max(floor, pair exponents, accumulator's exponent). An element's word has its exponent in the
 * high half; what 16-bit arithmetic does to the low half is shifted out. */
AVX2_INLINE __m256i top_exponent(const FdpaElem *a, const FdpaElem *b, int group, int floor,
                                 __m256i acc_exp)
{
    __m256i top = splat((int)0x80000000);
    for (int i = 0; i < group; i++)
        top = _mm256_max_epi16(top, _mm256_add_epi16(elem_splat(a + i), elem_load(b + i * LANES)));
    return _mm256_max_epi32(_mm256_max_epi32(_mm256_srai_epi32(top, 16), acc_exp), splat(floor));
}

/* The sum of the chopped products in units of 2^(E - bits). |sum| < 2^31 for every class with group
 * x 2^(bits + 2) x (1 - 2^-11)^2 below it: 16 pairs at 25 bits just fit. */
AVX2_INLINE __m256i product_sum(const FdpaElem *a, const FdpaElem *b, int group, int bits,
                                __m256i top)
{
    __m256i high = _mm256_slli_epi32(_mm256_add_epi32(top, splat(26 - bits)), 16);
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < group; i++) {
        __m256i x = elem_splat(a + i), y = elem_load(b + i * LANES);
        __m256i down = _mm256_srli_epi32(_mm256_sub_epi16(high, _mm256_add_epi16(x, y)), 16);
        __m256i p = _mm256_madd_epi16(_mm256_and_si256(x, splat(0xFFFF)), y);
        __m256i mag = _mm256_srlv_epi32(_mm256_abs_epi32(p), down);
        sum = _mm256_add_epi32(sum, _mm256_sign_epi32(mag, p));
    }
    return sum;
}

/* floor(log2(mag)) + 127. Clearing the bit under the leading one keeps the conversion from rounding
 * up to the next power of two. */
AVX2_INLINE __m256i leading(__m256i mag)
{
    __m256i m = _mm256_andnot_si256(_mm256_srli_epi32(mag, 1), mag);
    return _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(m)), 23);
}

/* sum x 2^(top - bits), chopped to 24 significant bits and to multiples of 2^-149. */
AVX2_INLINE Acc normalise(__m256i sum, __m256i top, int bits)
{
    __m256i mag = _mm256_abs_epi32(sum);
    __m256i least = _mm256_sub_epi32(splat(bits - 149), top);
    __m256i drop = _mm256_max_epi32(_mm256_sub_epi32(leading(mag), splat(127 + 23)), least);
    __m256i lift = _mm256_sub_epi32(_mm256_setzero_si256(), drop);
    __m256i sig = _mm256_or_si256(_mm256_srlv_epi32(mag, drop), _mm256_sllv_epi32(mag, lift));
    __m256i exp = _mm256_add_epi32(_mm256_add_epi32(drop, top), splat(23 - bits));
    __m256i zero = _mm256_cmpeq_epi32(sig, _mm256_setzero_si256());
    return (Acc){sig, _mm256_blendv_epi8(exp, splat(FDPA_EXP_ZERO), zero), sum};
}

/* Lanes that met a special operand, may overflow, or overflowed 32 bits: all eight by the
 * definition. */
AVX2 static void step_literal(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, Acc *acc)
{
    float c[LANES];
    acc_store(*acc, c);
    for (int j = 0; j < LANES; j++) {
        FdpaElem col[32];
        for (int i = 0; i < cls->group; i++)
            col[i] = b[i * LANES + j];
        c[j] = fdpa_step(cls, a, col, c[j]);
    }
    *acc = acc_load(c);
}

AVX2_INLINE void step(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, int group,
                      int bits, Acc *acc)
{
    __m256i top = top_exponent(a, b, group, cls->floor, acc->exp);
    __m256i products = product_sum(a, b, group, bits, top);
    __m256i down = _mm256_add_epi32(_mm256_sub_epi32(top, acc->exp), splat(25 - bits));
    __m256i mag = _mm256_srlv_epi32(_mm256_slli_epi32(acc->sig, 2), down);
    __m256i c = _mm256_sign_epi32(mag, _mm256_or_si256(acc->sign, splat(1)));
    __m256i sum = _mm256_add_epi32(products, c);
    __m256i wrapped = _mm256_and_si256(_mm256_xor_si256(products, sum), _mm256_xor_si256(c, sum));
    __m256i rare = _mm256_or_si256(wrapped, _mm256_cmpgt_epi32(top, splat(SAFE_EXP)));
    if (__builtin_expect(_mm256_movemask_ps(_mm256_castsi256_ps(rare)), 0))
        step_literal(cls, a, b, acc);
    else
        *acc = normalise(sum, top, bits);
}

/* Two panels share the loop so that one's latency hides behind the other's work. */
AVX2_INLINE void chain(const FdpaClass *cls, const FdpaTile *t, const FdpaElem *a,
                       const FdpaElem *b, int panels, int group, int bits, Acc *acc)
{
    size_t panel = t->kp * LANES;
    for (size_t k = t->k0; k < t->k1; k += (size_t)group)
        for (int p = 0; p < panels; p++)
            step(cls, a + k, b + (size_t)p * panel + k * LANES, group, bits, &acc[p]);
}

AVX2_INLINE void columns(const FdpaClass *cls, const FdpaTile *t, size_t j, int panels, int group,
                         int bits)
{
    size_t cols = t->n - j < (size_t)panels * LANES ? t->n - j : (size_t)panels * LANES;
    for (size_t i = 0; i < t->m; i++) {
        float c[2 * LANES] = {0}, *out = t->out + i * t->ld + j;
        Acc acc[2];
        if (t->accumulate)
            memcpy(c, out, cols * sizeof *c);
        for (int p = 0; p < panels; p++)
            acc[p] = acc_load(c + p * LANES);
        chain(cls, t, t->a + i * t->kp, t->b + j * t->kp, panels, group, bits, acc);
        for (int p = 0; p < panels; p++)
            acc_store(acc[p], c + p * LANES);
        memcpy(out, c, cols * sizeof *c);
    }
}

AVX2_INLINE void tile(const FdpaClass *cls, const FdpaTile *t, int group, int bits)
{
    size_t j = 0;
    for (; j + LANES < t->n; j += 2 * LANES)
        columns(cls, t, j, 2, group, bits);
    if (j < t->n)
        columns(cls, t, j, 1, group, bits);
}

AVX2 static void tile_16_25(const FdpaClass *cls, const FdpaTile *t) { tile(cls, t, 16, 25); }
AVX2 static void tile_8_25(const FdpaClass *cls, const FdpaTile *t) { tile(cls, t, 8, 25); }
AVX2 static void tile_8_24(const FdpaClass *cls, const FdpaTile *t) { tile(cls, t, 8, 24); }
AVX2 static void tile_4_any(const FdpaClass *cls, const FdpaTile *t) { tile(cls, t, 4, cls->bits); }

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

bool fdpa_tile_avx2(const FdpaClass *cls, const FdpaTile *t)
{
    if (!has_avx2() || cls->out_bits != 24)
        return false;
    if (t->k0 >= t->k1 && t->accumulate)
        return true;
    if (cls->group == 16 && cls->bits == 25)
        tile_16_25(cls, t);
    else if (cls->group == 8 && cls->bits == 25)
        tile_8_25(cls, t);
    else if (cls->group == 8 && cls->bits == 24)
        tile_8_24(cls, t);
    else if (cls->group == 4 && cls->bits <= 25)
        tile_4_any(cls, t);
    else
        return false;
    return true;
}

/* Eight adjacent halves as eight elements, see fdpa_elem. */
AVX2_INLINE __m256i decode8(const uint16_t *p, int exp_bits)
{
    int frac_bits = 15 - exp_bits, all = (1 << exp_bits) - 1;
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i frac = _mm256_and_si256(u, splat((1 << frac_bits) - 1));
    __m256i exp = _mm256_and_si256(_mm256_srli_epi32(u, frac_bits), splat(all));
    __m256i none = _mm256_setzero_si256(), sub = _mm256_cmpeq_epi32(exp, none);
    __m256i hidden = _mm256_andnot_si256(sub, splat(1 << frac_bits));
    __m256i sig = _mm256_slli_epi32(_mm256_or_si256(frac, hidden), 13 - frac_bits);
    __m256i special = _mm256_cmpeq_epi32(exp, splat(all));
    __m256i inf = _mm256_cmpeq_epi32(frac, none);
    __m256i kind = _mm256_blendv_epi8(splat(FDPA_EXP_NAN), splat(FDPA_EXP_INF), inf);
    __m256i sign = _mm256_or_si256(_mm256_slli_epi32(u, 16), splat(1));
    exp = _mm256_sub_epi32(_mm256_max_epi32(exp, splat(1)), splat(all >> 1));
    exp = _mm256_blendv_epi8(exp, splat(FDPA_EXP_ZERO), _mm256_cmpeq_epi32(sig, none));
    exp = _mm256_blendv_epi8(exp, kind, special);
    sig = _mm256_and_si256(_mm256_sign_epi32(sig, sign), splat(0xFFFF));
    return _mm256_or_si256(sig, _mm256_slli_epi32(exp, 16));
}

AVX2_INLINE void elem_store(FdpaElem *to, __m256i v) { _mm256_storeu_si256((__m256i *)to, v); }

/* Eight rows of eight words become eight columns. */
AVX2_INLINE void transpose8(__m256i r[8])
{
    __m256i pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            quads[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
            quads[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x31);
    }
}

AVX2_INLINE size_t panel_along_k(const uint16_t *src, ptrdiff_t ld, size_t k, int exp_bits,
                                 FdpaElem *panel)
{
    size_t i = 0;
    for (; i + LANES <= k; i += LANES) {
        __m256i r[LANES];
        for (int j = 0; j < LANES; j++)
            r[j] = decode8(src + j * ld + (ptrdiff_t)i, exp_bits);
        transpose8(r);
        for (int j = 0; j < LANES; j++)
            elem_store(panel + (i + (size_t)j) * LANES, r[j]);
    }
    return i;
}

AVX2_INLINE size_t panel_along_rows(const uint16_t *src, ptrdiff_t stride, size_t k, int exp_bits,
                                    FdpaElem *panel)
{
    for (size_t i = 0; i < k; i++)
        elem_store(panel + i * LANES, decode8(src + (ptrdiff_t)i * stride, exp_bits));
    return k;
}

AVX2_INLINE size_t panel(const uint16_t *src, ptrdiff_t ld, ptrdiff_t stride, size_t k,
                         int exp_bits, FdpaElem *to)
{
    if (stride == 1)
        return panel_along_k(src, ld, k, exp_bits, to);
    return ld == 1 ? panel_along_rows(src, stride, k, exp_bits, to) : 0;
}

AVX2_INLINE size_t row(const uint16_t *src, size_t k, int exp_bits, FdpaElem *to)
{
    size_t i = 0;
    for (; i + LANES <= k; i += LANES)
        elem_store(to + i, decode8(src + i, exp_bits));
    return i;
}

AVX2 static size_t row_bf16(const void *src, size_t k, FdpaElem *to) { return row(src, k, 8, to); }

AVX2 static size_t row_f16(const void *src, size_t k, FdpaElem *to) { return row(src, k, 5, to); }

AVX2 static size_t panel_bf16(const void *src, ptrdiff_t ld, ptrdiff_t stride, size_t k,
                              FdpaElem *to)
{
    return panel(src, ld, stride, k, 8, to);
}

AVX2 static size_t panel_f16(const void *src, ptrdiff_t ld, ptrdiff_t stride, size_t k,
                             FdpaElem *to)
{
    return panel(src, ld, stride, k, 5, to);
}

size_t fdpa_row_avx2(FdpaType type, const void *src, size_t k, FdpaElem *to)
{
    if (!has_avx2() || (type != FDPA_BF16 && type != FDPA_F16))
        return 0;
    return type == FDPA_BF16 ? row_bf16(src, k, to) : row_f16(src, k, to);
}

size_t fdpa_panel_avx2(FdpaType type, const void *src, ptrdiff_t ld, ptrdiff_t stride, size_t k,
                       FdpaElem *to)
{
    if (!has_avx2() || (type != FDPA_BF16 && type != FDPA_F16))
        return 0;
    return type == FDPA_BF16 ? panel_bf16(src, ld, stride, k, to)
                             : panel_f16(src, ld, stride, k, to);
}

#else

size_t fdpa_row_avx2(FdpaType type, const void *src, size_t k, FdpaElem *to)
{
    (void)type, (void)src, (void)k, (void)to;
    return 0;
}

size_t fdpa_panel_avx2(FdpaType type, const void *src, ptrdiff_t ld, ptrdiff_t stride, size_t k,
                       FdpaElem *to)
{
    (void)type, (void)src, (void)ld, (void)stride, (void)k, (void)to;
    return 0;
}

bool fdpa_tile_avx2(const FdpaClass *cls, const FdpaTile *t)
{
    (void)cls;
    (void)t;
    return false;
}

#endif
