/* The exact operations on the host: against what a device recorded, and against their rules. */
#include "vectors.h"
#include "../vectors/functions.h"

#include <check.h>
#include <string.h>

static const IsoU32 EDGES[] = {
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x33800000, 0x3F7FFFFF, 0x3F800000,
    0x3F800001, 0x40000000, 0x4B000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    0x7FC12345, 0x7FFFFFFF,
};
enum { EDGE_COUNT = 2 * sizeof EDGES / sizeof *EDGES };

static IsoU32 edge(int i) { return EDGES[i / 2] | (i & 1 ? ISO_SIGN_BIT : 0); }
static bool is_nan(IsoU32 u) { return (u & 0x7FFFFFFF) > 0x7F800000; }

static int function_named(const char *name)
{
    for (int f = 0; f < VECTOR_FUNCTIONS; f++)
        if (strcmp(name, vector_names[f]) == 0)
            return f;
    ck_abort_msg("no function %s", name);
    return -1;
}

START_TEST(test_device_results)
{
    char name[64];
    uint32_t w[4];
    int lines = 0;
    VectorFile v;
    ck_assert(vectors_open(&v, "tests/vectors", "h200-functions"));
    for (; vectors_name(&v, name) && vectors_words(&v, w, 4); lines++) {
        IsoU32 got = vector_apply(function_named(name), w[0], w[1], w[2]);
        if (got != w[3])
            ck_abort_msg("%s(%08x, %08x, %08x): host %08x, device %08x", name, w[0], w[1], w[2],
                         got, w[3]);
    }
    vectors_close(&v);
    ck_assert_int_eq(lines, 1000 * VECTOR_FUNCTIONS);
}
END_TEST

static VectorU64 sweep(int function)
{
    VectorU64 sum = 0;
    for (VectorU64 x = 0; x < 1ull << 32; x += VECTOR_STRIDE)
        sum += vector_mix((IsoU32)x, vector_apply(function, (IsoU32)x, 0, 0));
    return sum;
}

START_TEST(test_device_sweeps)
{
    char name[64];
    int stride, compared = 0;
    VectorU64 sum;
    VectorFile v;
    ck_assert(vectors_open(&v, "tests/vectors", "h200-sweep"));
    while (vectors_name(&v, name) && fscanf(v.pipe, "%d %llx", &stride, &sum) == 2) {
        if (stride != VECTOR_STRIDE)
            continue;
        ck_assert_msg(sweep(function_named(name)) == sum, "%s differs from the device", name);
        compared++;
    }
    vectors_close(&v);
    for (int f = 0; f < VECTOR_FUNCTIONS; f++)
        compared -= vector_sweeps[f];
    ck_assert_int_eq(compared, 0);
}
END_TEST

/* Every operation but a move: a NaN result is the canonical one. */
START_TEST(test_canonical_nan)
{
    for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
        if (f == VECTOR_neg || f == VECTOR_abs || f == VECTOR_f32_of_bf16 ||
            f == VECTOR_bf16_of_f32 || f == VECTOR_f16_of_f32)
            continue;
        for (int i = 0; i < EDGE_COUNT; i++)
            for (int j = 0; j < EDGE_COUNT; j++) {
                IsoU32 got = vector_apply(f, edge(i), edge(j), edge((i + 3 * j) % EDGE_COUNT));
                if (is_nan(got) && got != ISO_NAN_BITS)
                    ck_abort_msg("%s gives %08x", vector_names[f], got);
            }
    }
    for (int i = 0; i < EDGE_COUNT; i++)
        if (is_nan(edge(i))) {
            ck_assert_uint_eq(iso_bf16_of_f32(iso_bits_f32(edge(i))), ISO_NAN16_BITS);
            ck_assert_uint_eq(iso_f16_of_f32(iso_bits_f32(edge(i))), ISO_NAN16_BITS);
        }
}
END_TEST

START_TEST(test_moves_keep_payloads)
{
    ck_assert_uint_eq(iso_f32_bits(iso_neg(iso_bits_f32(0x7F812345))), 0xFF812345);
    ck_assert_uint_eq(iso_f32_bits(iso_abs(iso_bits_f32(0xFF812345))), 0x7F812345);
    int wrong = 0;
    for (IsoU32 h = 0; h < 0x10000; h++)
        wrong += iso_f32_bits(iso_f32_of_bf16((IsoU16)h)) != h << 16;
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(test_min_max)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        for (int j = 0; j < EDGE_COUNT; j++) {
            IsoF32 a = iso_bits_f32(edge(i)), b = iso_bits_f32(edge(j));
            IsoU32 low = iso_f32_bits(iso_min(a, b)), high = iso_f32_bits(iso_max(a, b));
            if (is_nan(edge(i)) || is_nan(edge(j))) {
                ck_assert_uint_eq(low, ISO_NAN_BITS);
                ck_assert_uint_eq(high, ISO_NAN_BITS);
                continue;
            }
            bool first = a < b || (a == b && (edge(i) >> 31) >= (edge(j) >> 31));
            ck_assert_uint_eq(low, edge(first ? i : j));
            ck_assert_uint_eq(high, edge(first ? j : i));
        }
}
END_TEST

/* Every value comes back, what lies just beside the middle of two goes to the nearer, the middle
 * itself to the even one. */
START_TEST(test_f16_rounding)
{
    int wrong = 0;
    for (IsoU32 h = 0; h < 0x7C00; h++) {
        IsoF32 x = iso_f32_of_f16((IsoU16)h);
        IsoF32 y = h < 0x7BFF ? iso_f32_of_f16((IsoU16)(h + 1)) : 0x1p16f;
        IsoU32 middle = iso_f32_bits(x * 0.5f + y * 0.5f);
        wrong += iso_f16_of_f32(x) != h || iso_f16_of_f32(iso_neg(x)) != (h | 0x8000);
        wrong += iso_f16_of_f32(iso_bits_f32(middle)) != h + (h & 1);
        wrong += iso_f16_of_f32(iso_bits_f32(middle - 1)) != h;
        wrong += iso_f16_of_f32(iso_bits_f32(middle + 1)) != h + 1;
    }
    ck_assert_int_eq(wrong, 0);
    ck_assert_uint_eq(iso_f16_of_f32(1e30f), 0x7C00);
    ck_assert_uint_eq(iso_f16_of_f32(iso_bits_f32(0xFF800000)), 0xFC00);
}
END_TEST

START_TEST(test_bf16_rounding)
{
    int wrong = 0;
    for (IsoU32 h = 0; h < 0x7F80; h++) {
        IsoU32 middle = h << 16 | 0x8000;
        wrong += iso_bf16_of_f32(iso_bits_f32(h << 16)) != h;
        wrong += iso_bf16_of_f32(iso_bits_f32(middle - 1)) != h;
        wrong += iso_bf16_of_f32(iso_bits_f32(middle)) != h + (h & 1);
        wrong += iso_bf16_of_f32(iso_bits_f32(middle + 1)) != h + 1;
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(test_once_rounded)
{
    ck_assert_uint_eq(iso_f32_bits(iso_fma(0x1.000002p0f, 0x1.fffffep-1f, -1.0f)), 0x337FFFFE);
    ck_assert_uint_eq(iso_f32_bits(iso_mul(0x1p-100f, 0x1p-49f)), 1);
    ck_assert_uint_eq(iso_f32_bits(iso_div(0x1p-149f, 2.0f)), 0);
    ck_assert_uint_eq(iso_f32_bits(iso_div(0x1.8p-148f, 2.0f)), 2);
    ck_assert_uint_eq(iso_f32_bits(iso_sqrt(0x1p-149f)), 0x1A3504F3);
    ck_assert_uint_eq(iso_f32_bits(iso_sqrt(-0.0f)), ISO_SIGN_BIT);
}
END_TEST

Suite *num_suite(void);
Suite *num_suite(void)
{
    Suite *s = suite_create("num");
    TCase *t = tcase_create("num");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, test_device_results);
    tcase_add_test(t, test_device_sweeps);
    tcase_add_test(t, test_canonical_nan);
    tcase_add_test(t, test_moves_keep_payloads);
    tcase_add_test(t, test_min_max);
    tcase_add_test(t, test_f16_rounding);
    tcase_add_test(t, test_bf16_rounding);
    tcase_add_test(t, test_once_rounded);
    suite_add_tcase(s, t);
    return s;
}
