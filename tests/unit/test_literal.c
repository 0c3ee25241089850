/* Literals: one rounding from the text, in every type. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/literal.h"

static u32 bits_of(const char *text, DType type)
{
    u32 bits = 0xDEAD;
    ck_assert_msg(literal_bits(str_of(text), type, &bits), "%s is a number", text);
    return bits;
}

static u32 strtof_bits(const char *text)
{
    float f = strtof(text, NULL);
    u32 bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

START_TEST(known_values)
{
    ck_assert_uint_eq(bits_of("1.0", DT_F32), 0x3F800000);
    ck_assert_uint_eq(bits_of("1e-6", DT_F32), 0x358637BD);
    ck_assert_uint_eq(bits_of("0x1.8p-3", DT_F32), 0x3E400000);
    ck_assert_uint_eq(bits_of("0", DT_F32), 0);
    ck_assert_uint_eq(bits_of("0.0e9", DT_F32), 0);
    ck_assert_uint_eq(bits_of("0.1", DT_BF16), 0x3DCD);
    ck_assert_uint_eq(bits_of("65504", DT_F16), 0x7BFF);
    ck_assert_uint_eq(bits_of("65519.999", DT_F16), 0x7BFF);
    ck_assert_uint_eq(bits_of("65520", DT_F16), 0x7C00);
    ck_assert_uint_eq(bits_of("1e39", DT_F32), 0x7F800000);
    ck_assert_uint_eq(bits_of("1e999999999", DT_BF16), 0x7F80);
    ck_assert_uint_eq(bits_of("1e-999999999", DT_F32), 0);
    ck_assert_uint_eq(bits_of("0x1p-149", DT_F32), 1);
    ck_assert_uint_eq(bits_of("0x1p-150", DT_F32), 0);
    ck_assert_uint_eq(bits_of("0x1.00000001p-150", DT_F32), 1);
    ck_assert_uint_eq(bits_of("0x1p-24", DT_F16), 1);
}
END_TEST

/* Through double this one is rounded twice and comes out as 1. */
START_TEST(no_second_rounding)
{
    ck_assert_uint_eq(bits_of("1.00000005960464477540", DT_F32), 0x3F800001);
    /* Just above the middle of two bf16 values; f32 would first round it to the middle. */
    ck_assert_uint_eq(bits_of("1.00390625000001", DT_BF16), 0x3F81);
    ck_assert_uint_eq(bits_of("1.00390625", DT_BF16), 0x3F80);
    ck_assert_uint_eq(bits_of("1.01171875", DT_BF16), 0x3F82);
}
END_TEST

START_TEST(f32_agrees_with_strtof)
{
    u64 seed = 1;
    char text[80];
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        u32 pattern = (u32)(seed >> 33) & 0x7FFFFFFF;
        float f;
        memcpy(&f, &pattern, sizeof f);
        if (!(f <= 3.4e38f))
            continue;
        snprintf(text, sizeof text, i % 2 ? "%.9g" : "%.4e", f);
        ck_assert_msg(bits_of(text, DT_F32) == strtof_bits(text), "%s", text);
        snprintf(text, sizeof text, "%.12e", (double)f * (1 + 0x1p-24));
        ck_assert_msg(bits_of(text, DT_F32) == strtof_bits(text), "%s", text);
    }
}
END_TEST

START_TEST(every_half_value_and_its_upper_middle)
{
    static const DType types[] = {DT_BF16, DT_F16};
    char text[200];
    for (int t = 0; t < 2; t++) {
        u32 infinity = types[t] == DT_BF16 ? 0x7F80 : 0x7C00;
        int precision = types[t] == DT_BF16 ? 7 : 10, bias = types[t] == DT_BF16 ? 133 : 24;
        for (u32 bits = 0; bits < infinity; bits += types[t] == DT_BF16 ? 7 : 1) {
            int e = (int)(bits >> precision);
            u32 m = (bits & ((1u << precision) - 1)) | (e ? 1u << precision : 0);
            e = (e ? e - 1 : 0) - bias;
            snprintf(text, sizeof text, "0x%xp%d", m, e);
            ck_assert_uint_eq(bits_of(text, types[t]), bits);
            ck_assert(literal_exact(str_of(text), types[t]));
            snprintf(text, sizeof text, "0x%x.8p%d", m, e);
            ck_assert_uint_eq(bits_of(text, types[t]), bits + (bits & 1));
            ck_assert(!literal_exact(str_of(text), types[t]));
            snprintf(text, sizeof text, "0x%x.7fffffffffffffffffffp%d", m, e);
            ck_assert_uint_eq(bits_of(text, types[t]), bits);
        }
    }
}
END_TEST

START_TEST(long_texts_are_cut_with_a_sticky_digit)
{
    char text[2000] = "1.00390625";
    memset(text + 10, '0', 1500);
    text[1510] = 0;
    ck_assert_uint_eq(bits_of(text, DT_BF16), 0x3F80);
    ck_assert_uint_eq(bits_of(strcat(text, "1"), DT_BF16), 0x3F81);
    memset(text, '9', 1000);
    strcpy(text + 1000, "e-1000");
    ck_assert_uint_eq(bits_of(text, DT_F32), 0x3F800000);
    ck_assert(!literal_exact(str_of(text), DT_F32));
}
END_TEST

START_TEST(exact_counts)
{
    ck_assert(literal_exact(STR("4096"), DT_BF16));
    ck_assert(literal_exact(STR("5120"), DT_BF16));
    ck_assert(!literal_exact(STR("151936"), DT_BF16));
    ck_assert(literal_exact(STR("151936"), DT_F32));
    ck_assert(!literal_exact(STR("16777217"), DT_F32));
}
END_TEST

START_TEST(what_is_no_number)
{
    static const char *const texts[] = {"", "x", "1e", "1e+", "1x", "0x", "0x.p1", ".", "1.0f"};
    u32 bits;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ck_assert_msg(!literal_bits(str_of(texts[i]), DT_F32, &bits), "%s", texts[i]);
}
END_TEST

Suite *literal_suite(void)
{
    Suite *suite = suite_create("literal");
    TCase *tc = tcase_create("literal");
    tcase_add_test(tc, known_values);
    tcase_add_test(tc, no_second_rounding);
    tcase_add_test(tc, f32_agrees_with_strtof);
    tcase_add_test(tc, every_half_value_and_its_upper_middle);
    tcase_add_test(tc, long_texts_are_cut_with_a_sticky_digit);
    tcase_add_test(tc, exact_counts);
    tcase_add_test(tc, what_is_no_number);
    suite_add_tcase(suite, tc);
    return suite;
}
