/* The tensor-core model against vectors recorded on silicon, and its fast forms against the
 * definition. */
#include "base/fdpa.h"

#include "vectors.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_K = 64 };

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* An operand given as an f32 pattern, in the format's own bits; exact for what the files hold. */
static uint32_t operand(FdpaType type, uint32_t f32)
{
    int exp = (int)((f32 >> 23) & 255), bias = type == FDPA_F16 ? 15 : 7,
        frac = type == FDPA_F16 ? 10 : 3;
    uint32_t sign = f32 >> 31, sig = (f32 & 0x7FFFFF) | (exp ? 0x800000u : 0u);
    if (type == FDPA_TF32)
        return f32;
    if (type == FDPA_BF16)
        return f32 >> 16;
    sign <<= type == FDPA_F16 ? 15 : 7;
    if (sig == 0)
        return sign;
    exp += bias - 127;
    if (exp < 1) {
        ck_assert_int_gt(exp, -24);
        return sign | (sig >> (23 - frac + 1 - exp));
    }
    return sign | ((uint32_t)exp << frac) | ((sig & 0x7FFFFF) >> (23 - frac));
}

typedef struct File {
    const char *path, *arch;
    FdpaType type;
    int k;
    bool from_zero; /* recorded without its c */
} File;

static const File FILES[] = {
    {"sm_80-a100-bf16-k8", "sm_80", FDPA_BF16, 8, false},
    {"sm_80-a100-fp16-k8", "sm_80", FDPA_F16, 8, false},
    {"sm_80-a100-tf32-k4", "sm_80", FDPA_TF32, 4, false},
    {"sm_89-ada-bf16-k8", "sm_89", FDPA_BF16, 8, false},
    {"sm_89-ada-fp16-k8", "sm_89", FDPA_F16, 8, false},
    {"sm_89-ada-tf32-k4", "sm_89", FDPA_TF32, 4, false},
    {"sm_89-ada-e4m3-k32", "sm_89", FDPA_E4M3, 32, false},
    {"sm_90-h200-bf16-k16", "sm_90", FDPA_BF16, 16, false},
    {"sm_90-h200-fp16-k16", "sm_90", FDPA_F16, 16, false},
    {"sm_90-h200-tf32-k4", "sm_90", FDPA_TF32, 4, false},
    {"sm_90-h200-e4m3-k32", "sm_90", FDPA_E4M3, 32, true},
    {"sm_100-b200-bf16-k16", "sm_100", FDPA_BF16, 16, false},
    {"sm_100-b200-fp16-k16", "sm_100", FDPA_F16, 16, false},
    {"sm_100-b200-tf32-k4", "sm_100", FDPA_TF32, 4, false},
};

/* Words of one line: k of a, k of b, c, d. The sign of a zero was not checked by those who recorded
 * it. */
static bool line_agrees(const FdpaClass *cls, FdpaType type, const uint32_t *w, int k,
                        bool from_zero)
{
    FdpaElem a[MAX_K], b[MAX_K];
    size_t kp = fdpa_padded(cls, (size_t)k);
    for (int i = 0; i < (int)kp; i++) {
        a[i] = fdpa_elem(type, i < k ? operand(type, w[i]) : 0);
        b[i] = fdpa_elem(type, i < k ? operand(type, w[k + i]) : 0);
    }
    float c = from_zero ? 0.0f : float_of(w[2 * k]), literal = c;
    for (size_t i = 0; i < kp; i += (size_t)cls->group)
        literal = fdpa_step(cls, a + i, b + i, literal);
    uint32_t d = w[2 * k + 1], got = bits_of(literal);
    ck_assert_uint_eq(bits_of(fdpa_chain(cls, a, b, kp, c)), got);
    return got == d || ((got | d) << 1) == 0;
}

START_TEST(test_published_vectors)
{
    const File *f = &FILES[_i];
    const char *dir = getenv("ISO_VECTORS");
    const FdpaClass *cls = fdpa_class(f->arch, f->type);
    uint32_t w[2 * MAX_K + 2];
    int lines = 0, wrong = 0, words = 2 * f->k + 2;
    ck_assert_ptr_nonnull(cls);
    VectorFile v;
    if (!vectors_open(&v, dir ? dir : "../shared/vectors", f->path)) {
        if (_i == 0)
            fprintf(stderr, "skipped: published vectors are not here (set ISO_VECTORS)\n");
        return;
    }
    for (; vectors_words(&v, w, words); lines++)
        wrong += !line_agrees(cls, f->type, w, f->k, f->from_zero);
    vectors_close(&v);
    ck_assert_int_eq(lines, 5000);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* One line of our own recordings: 16 words of a, 16 of b, c, d, zeros with their sign. */
static void check_recorded(const char *name, FdpaType type)
{
    const FdpaClass *cls = fdpa_class("sm_90", type);
    uint32_t w[34];
    int lines = 0;
    VectorFile v;
    ck_assert(vectors_open(&v, "tests/vectors", name));
    for (; vectors_words(&v, w, 34); lines++) {
        FdpaElem a[16], b[16], panel[16 * FDPA_PANEL];
        for (int i = 0; i < 16; i++) {
            a[i] = fdpa_elem(type, w[i]);
            b[i] = fdpa_elem(type, w[16 + i]);
            for (int j = 0; j < FDPA_PANEL; j++)
                panel[i * FDPA_PANEL + j] = b[i];
        }
        float out = float_of(w[32]);
        FdpaTile t = {a, panel, 1, 1, 16, 0, 16, &out, 1, true};
        ck_assert_uint_eq(bits_of(fdpa_step(cls, a, b, out)), w[33]);
        fdpa_tile(cls, &t);
        ck_assert_uint_eq(bits_of(out), w[33]);
    }
    vectors_close(&v);
    ck_assert_int_eq(lines, 1920);
}

START_TEST(test_recorded_steps)
{
    check_recorded("h200-mma-bf16", FDPA_BF16);
    check_recorded("h200-mma-f16", FDPA_F16);
    check_recorded("h200-wgmma-bf16", FDPA_BF16);
}
END_TEST

/* Shapes of operand: ordinary, wide, near the least subnormals, all patterns, near overflow. */
static uint16_t draw(FdpaType type, int kind, uint64_t *rng)
{
    uint32_t r = (uint32_t)next(rng);
    uint32_t sign = r & 0x8000, frac = type == FDPA_BF16 ? r & 0x7F : r & 0x3FF,
             e = (r >> 16) & 0xFF;
    int shift = type == FDPA_BF16 ? 7 : 10, bias = type == FDPA_BF16 ? 127 : 15;
    uint32_t top = type == FDPA_BF16 ? 255 : 31;
    uint32_t exp = kind == 0   ? (uint32_t)bias - e % 6
                   : kind == 1 ? 1 + e % (top - 1)
                   : kind == 2 ? e % 3
                   : kind == 3 ? e % (top + 1)
                               : top - 1 - e % 4;
    if (kind == 2 && type == FDPA_BF16 && (r >> 30))
        exp += 50;
    if (kind == 3 && exp == top && (r >> 28))
        exp = 0;
    return (uint16_t)(sign | exp << shift | frac);
}

static float draw_acc(int kind, uint64_t *rng)
{
    uint32_t r = (uint32_t)next(rng), exp = (uint32_t)(next(rng) & 255);
    if (kind == 0)
        return float_of((r & 0x807FFFFF) | (120 + exp % 12) << 23);
    if (kind == 2)
        return float_of((r & 0x807FFFFF) | (exp % 20) << 23);
    if (kind == 4)
        return float_of((r & 0x807FFFFF) | (240 + exp % 15) << 23);
    return float_of(r);
}

enum { M = 3, N = 21, K = 64, ROUNDS = 120 };

typedef struct Case {
    uint16_t a[M][K], b[N][K];
    FdpaElem rows[M * K], panels[24 * K], flat[N * K];
    float c[M * N];
} Case;

static void make_case(Case *x, const FdpaClass *cls, FdpaType type, int kind, uint64_t *rng)
{
    for (int i = 0; i < M * K; i++)
        x->a[i / K][i % K] = draw(type, kind, rng);
    for (int i = 0; i < N * K; i++)
        x->b[i / K][i % K] = draw(type, kind, rng);
    for (int i = 0; i < M * N; i++)
        x->c[i] = draw_acc(kind, rng);
    for (int i = 0; i < M; i++)
        fdpa_decode(cls, type, x->a[i], 1, K, x->rows + i * K);
    for (int j = 0; j < N; j++)
        fdpa_decode(cls, type, x->b[j], 1, K, x->flat + j * K);
    ck_assert_uint_eq(fdpa_panels_size(cls, N, K), 24 * K);
    fdpa_decode_panels(cls, type, x->b, K, 1, N, K, x->panels);
}

static void check_case(const Case *x, const FdpaClass *cls, bool accumulate)
{
    float scalar[M * N], fast[M * N];
    FdpaTile t = {x->rows, x->panels, M, N, K, 16, K, scalar, N, accumulate};
    memcpy(scalar, x->c, sizeof scalar);
    memcpy(fast, x->c, sizeof fast);
    fdpa_tile_scalar(cls, &t);
    t.out = fast;
    fdpa_tile(cls, &t);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float c = accumulate ? x->c[i * N + j] : 0.0f;
            for (int k = 16; k < K; k += cls->group)
                c = fdpa_step(cls, x->rows + i * K + k, x->flat + j * K + k, c);
            ck_assert_uint_eq(bits_of(scalar[i * N + j]), bits_of(c));
            ck_assert_uint_eq(bits_of(fast[i * N + j]), bits_of(c));
        }
}

START_TEST(test_forms_agree)
{
    static const char *const archs[] = {"sm_70", "sm_80", "sm_90"};
    static Case x;
    uint64_t rng = 7;
    for (size_t i = 0; i < 3; i++)
        for (int type = FDPA_BF16; type <= FDPA_F16; type++) {
            const FdpaClass *cls = fdpa_class(archs[i], (FdpaType)type);
            for (int round = 0; cls && round < ROUNDS; round++) {
                make_case(&x, cls, (FdpaType)type, round % 5, &rng);
                check_case(&x, cls, round & 1);
            }
        }
}
END_TEST

static void check_panels(FdpaType type, size_t n, size_t k, ptrdiff_t ld, ptrdiff_t stride)
{
    static uint16_t src[40 * 40];
    static FdpaElem panels[48 * 48], row[48];
    const FdpaClass *cls = fdpa_class("sm_90", type);
    size_t kp = fdpa_padded(cls, k), size = fdpa_panels_size(cls, n, k);
    int wrong = 0;
    uint64_t rng = 3;
    for (size_t i = 0; i < 40 * 40; i++)
        src[i] = draw(type, (int)(i % 5), &rng);
    memset(panels, 0x55, sizeof panels);
    fdpa_decode_panels(cls, type, src, ld, stride, n, k, panels);
    for (size_t j = 0; j < size / kp; j++) {
        if (j < n)
            fdpa_decode(cls, type, src + (ptrdiff_t)j * ld, stride, k, row);
        for (size_t i = 0; i < kp; i++) {
            bool in = j < n && i < k;
            FdpaElem want =
                fdpa_elem(type, in ? src[(ptrdiff_t)j * ld + (ptrdiff_t)i * stride] : 0);
            const FdpaElem *got = &panels[(j / 8 * kp + i) * 8 + j % 8];
            wrong += memcmp(got, &want, sizeof want) != 0;
            wrong += j < n && memcmp(&row[i], &want, sizeof want) != 0;
        }
    }
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_eq(panels[size].sig, 0x5555);
}

/* Elements adjacent along k, along rows, and neither; whole and broken panels and groups. */
START_TEST(test_decode_layouts)
{
    for (int type = FDPA_BF16; type <= FDPA_F16; type++)
        for (size_t n = 7; n < 20; n += 4)
            for (size_t k = 7; k < 20; k += 3) {
                check_panels((FdpaType)type, n, k, 40, 1);
                check_panels((FdpaType)type, n, k, 1, 40);
                check_panels((FdpaType)type, n, k, 40, 2);
            }
}
END_TEST

/* Sixteen products near 4 and an accumulator of the same exponent leave 32 bits: the sum must still
 * be exact. */
START_TEST(test_widest_sum)
{
    const FdpaClass *cls = fdpa_class("sm_90", FDPA_F16);
    uint16_t a[16], b[16];
    FdpaElem rows[16], panel[16 * FDPA_PANEL];
    float out[1];
    for (int sign = 0; sign < 2; sign++) {
        for (int i = 0; i < 16; i++) {
            a[i] = (uint16_t)(0x3FFF | sign << 15);
            b[i] = 0x3FFF;
        }
        fdpa_decode(cls, FDPA_F16, a, 1, 16, rows);
        fdpa_decode_panels(cls, FDPA_F16, b, 16, 1, 1, 16, panel);
        *out = sign ? -0x1.fffffep0f : 0x1.fffffep0f;
        FdpaTile t = {rows, panel, 1, 1, 16, 0, 16, out, 1, true};
        fdpa_tile(cls, &t);
        ck_assert_uint_eq(bits_of(*out), bits_of(sign ? -0x1.07c002p6f : 0x1.07c002p6f));
    }
}
END_TEST

static float one_step(const char *arch, uint16_t a0, uint16_t b0, uint16_t a1, uint16_t b1, float c)
{
    const FdpaClass *cls = fdpa_class(arch, FDPA_BF16);
    uint16_t a[16] = {a0, a1}, b[16] = {b0, b1};
    FdpaElem x[16], y[16];
    fdpa_decode(cls, FDPA_BF16, a, 1, 16, x);
    fdpa_decode(cls, FDPA_BF16, b, 1, 16, y);
    return fdpa_step(cls, x, y, c);
}

/* What one H200 gave for single corner cases. */
START_TEST(test_corners)
{
    const uint32_t nan = 0x7FFFFFFF, inf = 0x7F800000;
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0, 0, 0, 0, -0.0f)), 0);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7FC1, 0, 0, 0, 1)), nan);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7F80, 0x8000, 0, 0, 1)), nan);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7F80, 0x3F80, 0xFF80, 0x3F80, 1)), nan);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0, 0, 0, 0, float_of(0xFF812345))), nan);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7F00, 0x7F00, 0, 0, 3)), inf);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7F00, 0x7F00, 0x7F00, 0xFF00, 3)), 0);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x5F00, 0x5F80, 0, 0, 0x1.fffffep127f)),
                      0x7F800000);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7300, 0x3F80, 0, 0, 0x1.fffffep127f)),
                      0x7F7FFFFF);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0x7380, 0x3F80, 0, 0, 0x1.fffffep127f)), inf);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0xB300, 0x3F80, 0, 0, 1)), 0x3F7FFFFF);
    ck_assert_uint_eq(bits_of(one_step("sm_90", 0xB280, 0x3F80, 0, 0, 1)), 0x3F800000);
}
END_TEST

START_TEST(test_classes)
{
    char text[64];
    const FdpaClass *h = fdpa_class("sm_90", FDPA_BF16), *b = fdpa_class("sm_100", FDPA_BF16);
    ck_assert(fdpa_same(h, b));
    ck_assert_ptr_eq(h, fdpa_class("sm_90", FDPA_F16));
    ck_assert(!fdpa_same(h, fdpa_class("sm_80", FDPA_BF16)));
    ck_assert(!fdpa_same(fdpa_class("sm_90", FDPA_E4M3), fdpa_class("sm_100", FDPA_E4M3)));
    ck_assert_ptr_null(fdpa_class("sm_70", FDPA_BF16));
    ck_assert_ptr_null(fdpa_class("sm_12", FDPA_BF16));
    fdpa_text(b, text, sizeof text);
    ck_assert_str_eq(text, "fdpa group 16 bits 25 floor -133 out 24");
}
END_TEST

/* A step on zeros keeps every finite accumulator that a step can make, and turns -0 into +0. */
START_TEST(test_zero_group_is_neutral)
{
    uint64_t rng = 11;
    for (int i = 0; i < 20000; i++) {
        uint32_t u = (uint32_t)next(&rng);
        if ((u & 0x7F800000) == 0x7F800000 || u == 0x80000000)
            continue;
        ck_assert_uint_eq(bits_of(one_step("sm_90", 0, 0x3F80, 0, 0, float_of(u))), u);
    }
}
END_TEST

Suite *fdpa_suite(void);
Suite *fdpa_suite(void)
{
    Suite *s = suite_create("fdpa");
    TCase *t = tcase_create("fdpa");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, test_published_vectors, 0, (int)(sizeof FILES / sizeof *FILES));
    tcase_add_test(t, test_recorded_steps);
    tcase_add_test(t, test_forms_agree);
    tcase_add_test(t, test_decode_layouts);
    tcase_add_test(t, test_widest_sum);
    tcase_add_test(t, test_corners);
    tcase_add_test(t, test_classes);
    tcase_add_test(t, test_zero_group_is_neutral);
    suite_add_tcase(s, t);
    return s;
}
