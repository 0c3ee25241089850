/* The scalar functions: what people rely on, and their error against libm in double. */
#include "device/iso_rounded.cuh"
#include "device/iso_short.cuh"

#include <check.h>
#include <math.h>
#include <stdbool.h>

static const IsoU32 NAN_BITS = ISO_NAN_BITS, INF = 0x7F800000, MINUS_INF = 0xFF800000;

#define BITS(x) iso_f32_bits(x)
#define INFINITE iso_bits_f32(INF)
#define MINUS_INFINITE iso_bits_f32(MINUS_INF)

static double logistic(double x) { return 1.0 / (1.0 + exp(-x)); }
static double ref_silu(double x) { return x * logistic(x); }
static double ref_gelu(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }
static double ref_softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double ref_gelu_tanh(double x)
{
    return x * logistic(1.5957691216057307118 * (x + 0.044715 * x * x * x));
}

#define FUNCTIONS(X)                                                                               \
    X(exp2, exp2, -130, 130, 0.81)                                                                 \
    X(exp2_d3, exp2, -126, 127, 1346)                                                              \
    X(exp2_d6, exp2, -126, 127, 0.81)                                                              \
    X(ex2, exp2, -126, 127, 2.1)                                                                   \
    X(exp, exp, -90, 90, 0.9)                                                                      \
    X(log2, log2, 0, 0x1p127, 1.8)                                                                 \
    X(log, log, 0, 0x1p127, 1.0)                                                                   \
    X(sigmoid, logistic, -87, 90, 2.5)                                                             \
    X(silu, ref_silu, -87, 1e9, 3.4)                                                               \
    X(tanh, tanh, -90, 90, 1.5)                                                                    \
    X(gelu, ref_gelu, -13, 1e9, 5.1)                                                               \
    X(gelu_tanh, ref_gelu_tanh, -1, 1e9, 3.1)                                                      \
    X(softplus, ref_softplus, -87, 1e9, 2.0)

#define X(name, reference, low, high, ulps)                                                        \
    static IsoF32 call_##name(IsoF32 x) { return iso_##name(x); }
FUNCTIONS(X)
#undef X

static const struct Function {
    const char *name;
    IsoF32 (*f)(IsoF32);
    double (*reference)(double);
    double low, high, ulps;
} TABLE[] = {
#define X(name, reference, low, high, ulps) {#name, call_##name, reference, low, high, ulps},
    FUNCTIONS(X)
#undef X
};

static double ulps_off(IsoF32 y, double exact)
{
    int exp;
    frexp(exact, &exp);
    return fabs(y - exact) / ldexp(1.0, exp < -125 ? -149 : exp - 24);
}

/* Proofs of attention rest on it. All of f32 in steps; tests/ptx/README.md has the whole. */
START_TEST(test_exponentials_have_no_sign)
{
    for (IsoU32 u = 0; u < 0xFFFFFF00u; u += 2411) {
        IsoF32 x = iso_bits_f32(u);
        IsoU32 bits = BITS(iso_exp2(x)) | BITS(iso_exp2_d6(x)) | BITS(iso_exp2_d3(x));
        bits |= BITS(iso_ex2(x));
        ck_assert_msg(bits >> 31 == 0, "%#x", u);
    }
}
END_TEST

/* The floats in their order, 0 being +0. */
static IsoF32 nth(int64_t n)
{
    return n < 0 ? -iso_bits_f32((IsoU32)-n) : iso_bits_f32((IsoU32)n);
}

/* The greatest score whose maximum is m. */
static IsoF32 greatest(IsoF32 m, IsoF32 by)
{
    int64_t low = -0x7f7fffff, high = 0x7f800000;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        *(iso_rounded_most(iso_mul(nth(middle), by)) <= m ? &low : &high) = middle;
    }
    return nth(low);
}

/* Weights of rounded maxima where tests/ptx/README.md says that their ranges end. */
START_TEST(test_rounded_weights_at_ends)
{
    static const IsoF32 factors[] = {0x1p-100f, 0x1.3p-20f, 0.12751743f, 1.0f, 0x1.7p9f, 0x1p100f};
    static const IsoF32 most[] = {-0x1p22f, -0x1p22f + 8, -128, -8, 0, 8, 120, 128, 0x1p22f};
    IsoF32 by = factors[_i % 6], inverse = iso_div(1.0f, by);
    int degree = _i / 6 ? 6 : 3;
    for (int k = 0; k < 9; k++) {
        IsoF32 m = most[k], low = iso_rounded_least(m, inverse);
        const IsoF32 u[] = {-INFINITY, low, nextafterf(low, INFINITY), greatest(m, by)};
        for (int i = 0; i < 4; i++) {
            IsoU32 bits = BITS(iso_rounded_weight(u[i], by, inverse, m, degree));
            ck_assert_msg(bits >> 23 >= 1 && bits >> 23 <= 131, "%a: %#x", (double)m, bits);
        }
    }
    ck_assert_uint_eq(BITS(iso_rounded_weight(1.0f, by, inverse, NAN, degree)), 0x7f7fffff);
}
END_TEST

/* The same of all scores that a maximum may be of, in steps. */
START_TEST(test_rounded_weights_are_numbers)
{
    static const IsoU32 most[] = {0, 0x41000000, 0xc1000000, 0x42d00000, 0xc47a0000,
                                  0x47800000, 0xca800000, 0x4a800000, 0x7fffffff};
    enum { MAXIMA = sizeof most / sizeof *most };
    int degree = _i / MAXIMA ? 6 : 3;
    IsoF32 m = iso_bits_f32(most[_i % MAXIMA]), by = 0.12751743f;
    for (IsoU32 u = 0; u < 0xFFFFFF00u; u += 24091) {
        IsoF32 x = iso_bits_f32(u);
        if (m == m && !(iso_rounded_most(iso_mul(x, by)) <= m))
            continue;
        IsoU32 bits = BITS(iso_rounded_weight(x, by, iso_div(1.0f, by), m, degree));
        ck_assert_msg(bits < 0x7f800000, "%#x", u);
    }
}
END_TEST

START_TEST(test_error)
{
    const struct Function *f = &TABLE[_i];
    for (IsoU32 k = 0; k < 1u << 19; k++) {
        IsoF32 x = iso_bits_f32(k * 8191u + k % 7);
        if (!(x >= f->low && x <= f->high))
            continue;
        double exact = f->reference(x), size = fabs(exact);
        if (size < 0x1p-126 || size > 0x1.fffffep127)
            continue;
        if (!(ulps_off(f->f(x), exact) <= f->ulps))
            ck_abort_msg("%s(%a)", f->name, (double)x);
    }
}
END_TEST

START_TEST(test_exact_points)
{
    for (int n = -149; n <= 127; n++) {
        IsoF32 p = (IsoF32)ldexp(1.0, n);
        ck_assert_uint_eq(BITS(iso_exp2((IsoF32)n)), BITS(p));
        ck_assert_uint_eq(BITS(iso_log2(p)), BITS((IsoF32)n));
        if (n >= -126) {
            ck_assert_uint_eq(BITS(iso_exp2_d3((IsoF32)n)), BITS(p));
            ck_assert_uint_eq(BITS(iso_exp2_d6((IsoF32)n)), BITS(p));
            ck_assert_uint_eq(BITS(iso_ex2((IsoF32)n)), BITS(p));
        }
    }
    ck_assert_uint_eq(BITS(iso_exp(0.0f)), 0x3F800000);
    ck_assert_uint_eq(BITS(iso_exp(-0.0f)), 0x3F800000);
    ck_assert_uint_eq(BITS(iso_log(1.0f)), 0);
    ck_assert_uint_eq(BITS(iso_sigmoid(0.0f)), 0x3F000000);
    ck_assert_uint_eq(BITS(iso_tanh(-0.0f)), ISO_SIGN_BIT);
    ck_assert_uint_eq(BITS(iso_gelu(-0.0f)), ISO_SIGN_BIT);
    ck_assert_uint_eq(BITS(iso_gelu_tanh(-0.0f)), ISO_SIGN_BIT);
    ck_assert_uint_eq(BITS(iso_silu(-0.0f)), ISO_SIGN_BIT);
}
END_TEST

START_TEST(test_ends)
{
    ck_assert_uint_eq(BITS(iso_exp2(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_exp2(MINUS_INFINITE)), 0);
    ck_assert_uint_eq(BITS(iso_exp2_d3(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_exp2_d3(MINUS_INFINITE)), 0);
    ck_assert_uint_eq(BITS(iso_exp2_d6(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_exp2_d6(MINUS_INFINITE)), 0);
    ck_assert_uint_eq(BITS(iso_ex2(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_ex2(MINUS_INFINITE)), 0);
    ck_assert_uint_eq(BITS(iso_exp(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_exp(MINUS_INFINITE)), 0);
    ck_assert_uint_eq(BITS(iso_log(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_log2(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_sigmoid(INFINITE)), 0x3F800000);
    ck_assert_uint_eq(BITS(iso_sigmoid(MINUS_INFINITE)), 0);
    ck_assert_uint_eq(BITS(iso_silu(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_silu(MINUS_INFINITE)), ISO_SIGN_BIT);
    ck_assert_uint_eq(BITS(iso_gelu(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_gelu(MINUS_INFINITE)), ISO_SIGN_BIT);
    ck_assert_uint_eq(BITS(iso_gelu_tanh(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_gelu_tanh(MINUS_INFINITE)), ISO_SIGN_BIT);
    ck_assert_uint_eq(BITS(iso_tanh(INFINITE)), 0x3F800000);
    ck_assert_uint_eq(BITS(iso_tanh(MINUS_INFINITE)), 0xBF800000);
    ck_assert_uint_eq(BITS(iso_softplus(INFINITE)), INF);
    ck_assert_uint_eq(BITS(iso_softplus(MINUS_INFINITE)), 0);
}
END_TEST

START_TEST(test_overflow_and_underflow)
{
    ck_assert_uint_eq(BITS(iso_exp(0x1.62e42ep6f)), 0x7F7FFF84);
    ck_assert_uint_eq(BITS(iso_exp(0x1.62e43p6f)), INF);
    ck_assert_uint_eq(BITS(iso_exp(-103.97f)), 1);
    ck_assert_uint_eq(BITS(iso_exp(-103.98f)), 0);
    ck_assert_uint_eq(BITS(iso_exp2(128.0f)), INF);
    ck_assert_uint_eq(BITS(iso_exp2(0x1.fffffep6f)), 0x7F7FFFA7);
    ck_assert_uint_eq(BITS(iso_ex2(0x1.fffffep6f)), 0x7F7FFFA8);
    ck_assert_uint_eq(BITS(iso_ex2(-0x1.f7fffep6f)), 0x0080002C);
    ck_assert_uint_eq(BITS(iso_ex2(-0x1.f80002p6f)), 0);
    ck_assert_uint_eq(BITS(iso_exp2(-149.5f)), 1);
    ck_assert_uint_eq(BITS(iso_exp2(-150.0f)), 0);
    ck_assert_uint_eq(BITS(iso_exp2(-130.25f)), BITS((IsoF32)exp2(-130.25)));
}
END_TEST

START_TEST(test_log_domain)
{
    ck_assert_uint_eq(BITS(iso_log(0.0f)), MINUS_INF);
    ck_assert_uint_eq(BITS(iso_log(-0.0f)), MINUS_INF);
    ck_assert_uint_eq(BITS(iso_log2(-0.0f)), MINUS_INF);
    ck_assert_uint_eq(BITS(iso_log(-0x1p-149f)), NAN_BITS);
    ck_assert_uint_eq(BITS(iso_log2(-1.0f)), NAN_BITS);
    ck_assert_uint_eq(BITS(iso_log(MINUS_INFINITE)), NAN_BITS);
}
END_TEST

/* Log-probabilities rest on it. */
START_TEST(test_log_is_not_negative_from_one)
{
    int wrong = 0;
    for (IsoU32 u = 0x3F800000; u < 0x40000000; u++)
        wrong += (int)(BITS(iso_log(iso_bits_f32(u))) >> 31);
    for (IsoU32 u = 0x40000000; u < INF; u += 1021)
        wrong += !(iso_log(iso_bits_f32(u)) > 0.69f);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* Each short form against its function, for every argument that there is. */
START_TEST(test_short_forms)
{
    for (IsoU32 b = 0; b < 65536; b++) {
        IsoF32 x = iso_f32_of_bf16((IsoU16)b);
#define X(id, form, function)                                                                      \
        ck_assert_msg(iso_bf16_of_f32(form(x)) == iso_bf16_of_f32(function(x)),                    \
                      #form " of bf16 0x%04x", b);
#include "base/short.def"
#undef X
    }
}
END_TEST

START_TEST(test_nan)
{
    for (IsoU32 i = 0; i < sizeof TABLE / sizeof *TABLE; i++) {
        ck_assert_uint_eq(BITS(TABLE[i].f(iso_bits_f32(0x7F812345))), NAN_BITS);
        ck_assert_uint_eq(BITS(TABLE[i].f(iso_bits_f32(0xFFFFFFFF))), NAN_BITS);
    }
}
END_TEST

START_TEST(test_tanh_is_odd_and_bounded)
{
    int wrong = 0;
    for (IsoU32 u = 0; u <= INF; u += 1997) {
        IsoF32 x = iso_bits_f32(u), y = iso_tanh(x);
        wrong += BITS(iso_tanh(iso_neg(x))) != BITS(iso_neg(y)) || !(y <= 1.0f);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

static IsoPair pair(IsoF32 m, IsoF32 s) { return (IsoPair){m, s}; }

START_TEST(test_pair)
{
    IsoPair r = iso_pair_join(pair(3.0f, 1.0f), pair(3.0f, 1.0f));
    ck_assert(r.m == 3.0f && r.s == 2.0f);
    r = iso_pair_join(pair(MINUS_INFINITE, 1.0f), pair(-7.0f, 1.0f));
    ck_assert(r.m == -7.0f && r.s == 1.0f);
    r = iso_pair_join(pair(MINUS_INFINITE, 1.0f), pair(MINUS_INFINITE, 1.0f));
    ck_assert(r.m == MINUS_INFINITE && r.s == 2.0f);
    r = iso_pair_join(pair(1.0f, 2.0f), pair(0.0f, 1.0f));
    ck_assert_uint_eq(BITS(r.s), BITS(iso_add(2.0f, iso_exp(-1.0f))));
    r = iso_pair_join(pair(iso_bits_f32(0xFFC00001), 1.0f), pair(0.0f, 1.0f));
    ck_assert(BITS(r.m) == NAN_BITS && BITS(r.s) == NAN_BITS);
}
END_TEST

/* The short join's weight is exp's from -87 on; a step of 1 was tried once. */
START_TEST(test_short_weight)
{
    for (IsoU32 u = 0; u <= 0x42AE0000u; u += 997) {
        IsoF32 d = iso_bits_f32(u);
        ck_assert_uint_eq(BITS(iso_short_weight(d)), BITS(iso_exp(iso_neg(d))));
        ck_assert_uint_eq(BITS(iso_short_weight(iso_neg(d))), BITS(iso_exp(iso_neg(d))));
    }
    IsoF32 least = iso_exp(-87.0f);
    ck_assert(iso_short_weight(1e30f) == least && iso_short_weight(INFINITE) == least);
    ck_assert(iso_short_weight(iso_bits_f32(NAN_BITS)) == least);
}
END_TEST

/* Maxima near and far, equal, infinite and NaN, beside sums as long as any. */
static IsoPair some_pair(IsoU32 a, IsoU32 b)
{
    static const IsoF32 ends[] = {-3.4e38f, 3.4e38f, -0.0f, 0.0f, 1e-40f, 88.0f};
    IsoF32 m = (IsoF32)(int)(a >> 8) * 0x1p-16f, s = 1.0f + (IsoF32)(b >> 8) * 0x1p-8f;
    if (a % 16 == 0)
        m = a >> 4 & 1 ? INFINITE : MINUS_INFINITE;
    if (a % 16 == 1)
        m = iso_bits_f32(NAN_BITS);
    if (a % 16 == 2)
        m = ends[(a >> 4) % 6];
    return pair(m, b % 2 ? s : 1.0f + (IsoF32)(b >> 8) * 0x1p-24f);
}

START_TEST(test_short_join)
{
    IsoU32 x = 1;
    for (int k = 0; k < 1000000; k++) {
        IsoPair v[2];
        for (int i = 0; i < 2; i++) {
            IsoU32 a = x = x * 1664525u + 1013904223u, b = x = x * 1664525u + 1013904223u;
            v[i] = some_pair(a >> 4, b);
        }
        v[1].m = k % 5 ? v[1].m : iso_add(v[0].m, iso_mul(v[1].m, 0.25f));
        IsoPair r = iso_pair_join(v[0], v[1]), q = iso_short_join(v[0], v[1]);
        ck_assert_uint_eq(BITS(r.m), BITS(q.m));
        ck_assert_uint_eq(BITS(iso_add(r.m, iso_log(r.s))), BITS(iso_add(q.m, iso_log(q.s))));
        if (iso_sub(r.m, r.m) == 0.0f)
            ck_assert_uint_eq(BITS(r.s), BITS(q.s));
    }
}
END_TEST

/* One logit's log-probability, x - (m + log s), is never above zero. */
START_TEST(test_log_probability)
{
    int wrong = 0;
    for (IsoU32 k = 0; k < 200000; k++) {
        IsoF32 x = iso_bits_f32(0x3F000000 + k * 641), y = iso_bits_f32(0xC1A00000 - k * 127);
        IsoPair r = iso_pair_join(pair(x, 1.0f), pair(y, 1.0f));
        IsoF32 lse = iso_add(r.m, iso_log(r.s));
        wrong += !(iso_sub(x, lse) <= 0.0f && iso_sub(y, lse) <= 0.0f);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(test_triple)
{
    IsoTriple a = {2.0f, 1.0f, 10.0f}, b = {2.0f, 3.0f, -4.0f};
    IsoTriple r = iso_triple_join(a, b);
    ck_assert(r.m == 2.0f && r.s == 4.0f && r.o == 6.0f);
    b.m = MINUS_INFINITE;
    r = iso_triple_join(a, b);
    ck_assert(r.m == 2.0f && r.s == 1.0f && r.o == 10.0f);
}
END_TEST

Suite *fn_suite(void);
Suite *fn_suite(void)
{
    Suite *s = suite_create("fn");
    TCase *t = tcase_create("fn");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, test_error, 0, (int)(sizeof TABLE / sizeof *TABLE));
    tcase_add_test(t, test_exact_points);
    tcase_add_test(t, test_ends);
    tcase_add_test(t, test_overflow_and_underflow);
    tcase_add_test(t, test_log_domain);
    tcase_add_test(t, test_log_is_not_negative_from_one);
    tcase_add_test(t, test_short_forms);
    tcase_add_test(t, test_nan);
    tcase_add_test(t, test_tanh_is_odd_and_bounded);
    tcase_add_test(t, test_exponentials_have_no_sign);
    tcase_add_loop_test(t, test_rounded_weights_at_ends, 0, 12);
    tcase_add_loop_test(t, test_rounded_weights_are_numbers, 0, 18);
    tcase_add_test(t, test_pair);
    tcase_add_test(t, test_short_weight);
    tcase_add_test(t, test_short_join);
    tcase_add_test(t, test_log_probability);
    tcase_add_test(t, test_triple);
    suite_add_tcase(s, t);
    return s;
}
