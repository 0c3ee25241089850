/* The generator of rotary tables: every scaling against entries computed elsewhere with 200 bits
 * and rounded where the text rounds; its functions against the C library's in binary64. */
#include <check.h>
#include <math.h>

#include "device/iso_rope.cuh"

static const IsoRope ropes[] = {
    {.dim = 64, .theta = 1e5},
    {.dim = 128, .theta = 1e6},
    {.dim = 128, .scaling = ISO_ROPE_LINEAR, .theta = 1e4, .factor = 4},
    {.dim = 128, .scaling = ISO_ROPE_LLAMA3, .theta = 5e5, .factor = 8, .low = 1, .high = 4,
     .original = 8192},
    {.dim = 128, .scaling = ISO_ROPE_YARN, .theta = 5e5, .factor = 8, .original = 8192,
     .beta_fast = 32, .beta_slow = 1, .attention_factor = 1.2079441541679836, .truncate = 1},
    {.dim = 64, .scaling = ISO_ROPE_YARN, .theta = 150000, .factor = 32, .original = 4096,
     .beta_fast = 32, .beta_slow = 1},
};

static const struct {
    int rope, column, position;
    IsoU32 frequency, cos, sin;
} entries[] = {
    {0, 0, 1, 0x3f800000, 0x3f0a5140, 0x3f576aa4},
    {0, 1, 32767, 0x3f32a506, 0x3e876b5b, 0x3f76e225},
    {0, 5, 4096, 0x3e297409, 0x3f379d00, 0xbf32633f},
    {0, 17, 100000, 0x3b109edb, 0x3f39379c, 0x3f30b8c5},
    {0, 16, 12345, 0x3b4f3e38, 0x3e6b0894, 0x3f792a5f},
    {0, 21, 7777, 0x3a092e02, 0xbf196f2c, 0xbf4cec98},
    {0, 30, 131071, 0x37ac431d, 0xbf668338, 0x3edeb5cc},
    {0, 31, 1, 0x37706b6d, 0x3f800000, 0x37706b6d},
    {1, 0, 1, 0x3f800000, 0x3f0a5140, 0x3f576aa4},
    {1, 1, 32767, 0x3f4e4bad, 0xbf7f9ce4, 0x3d612e31},
    {1, 5, 4096, 0x3eadfcff, 0xbf7bd656, 0xbe37e9b9},
    {1, 17, 100000, 0x3cd0c1a8, 0xbf64d1d2, 0xbee5965c},
    {1, 32, 12345, 0x3a83126f, 0x3f79c0c2, 0xbe60d61a},
    {1, 37, 7777, 0x39b229fa, 0xbf60ceb8, 0x3ef4ede5},
    {1, 62, 131071, 0x35ceaf79, 0x3f7acd95, 0x3e4d488b},
    {1, 63, 1, 0x35a68e4c, 0x3f800000, 0x35a68e4c},
    {2, 0, 1, 0x3e800000, 0x3f780aa5, 0x3e7d5777},
    {2, 1, 32767, 0x3e5dafd7, 0x3f7fb635, 0x3d4252cf},
    {2, 5, 4096, 0x3df953cf, 0xbf2751b8, 0x3f41c0ce},
    {2, 17, 100000, 0x3cb15978, 0xbf703019, 0xbeb12722},
    {2, 32, 12345, 0x3b23d70a, 0x3f59c951, 0xbf068e1e},
    {2, 37, 7777, 0x3a9f91cc, 0xbf7fc32c, 0xbd306f0c},
    {2, 62, 131071, 0x380bd472, 0xbeac111f, 0xbf711c46},
    {2, 63, 1, 0x37f22ce2, 0x3f800000, 0x37f22ce2},
    {3, 0, 1, 0x3f800000, 0x3f0a5140, 0x3f576aa4},
    {3, 1, 32767, 0x3f508ac1, 0xbca813f8, 0x3f7ff234},
    {3, 5, 4096, 0x3eb7ab7d, 0x3f1ddade, 0xbf4989e3},
    {3, 17, 100000, 0x3cfaf53f, 0xbf6bdc38, 0xbec70eac},
    {3, 32, 12345, 0x3a0995d2, 0x3f7b18b6, 0x3e4775e3},
    {3, 37, 7777, 0x3884fdbf, 0x3f617e35, 0x3ef26547},
    {3, 62, 131071, 0x34ca41b0, 0x3f7fb01f, 0x3d4a2c41},
    {3, 63, 1, 0x34a4c2ff, 0x3f800000, 0x34a4c2ff},
    {4, 0, 1, 0x3f800000, 0x3f271466, 0x3f821b08},
    {4, 1, 32767, 0x3f508ac1, 0xbccb0762, 0x3f9a9595},
    {4, 5, 4096, 0x3eb7ab7d, 0x3f3eae12, 0xbf737289},
    {4, 17, 100000, 0x3cfaf53f, 0xbf8e73f7, 0xbef0733b},
    {4, 32, 12345, 0x39cf2bd9, 0x3e4c0992, 0xbf987fb1},
    {4, 37, 7777, 0x3884fdbf, 0x3f883104, 0x3f126672},
    {4, 62, 131071, 0x34ca41b0, 0x3f9a6dab, 0x3d7436aa},
    {4, 63, 1, 0x34a4c2ff, 0x3f9a9dea, 0x34c705df},
    {5, 0, 1, 0x3f800000, 0x3f3a4129, 0x3f910981},
    {5, 1, 32767, 0x3f306535, 0xbf8272ff, 0x3f615014},
    {5, 5, 4096, 0x3e1f0cfd, 0xbd27cf6b, 0x3fac4819},
    {5, 17, 100000, 0x390799b9, 0x3fa0f9e7, 0x3ef66b1e},
    {5, 16, 12345, 0x39ef543c, 0x3f896f0c, 0xbf500add},
    {5, 21, 7777, 0x375242fa, 0x3fab8b1c, 0x3e062e9b},
    {5, 30, 131071, 0x34eb93eb, 0x3fac1391, 0x3d9e85d5},
    {5, 31, 1, 0x34a252d3, 0x3fac5c86, 0x34da94a1},
};

START_TEST(tables_are_the_written_ones)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const IsoRope *rope = &ropes[entries[i].rope];
        IsoF32 frequency = iso_rope_frequency(rope, entries[i].column), cos, sin;
        iso_rope_entry(frequency, iso_rope_attention(rope), entries[i].position, &cos, &sin);
        ck_assert_uint_eq(iso_f32_bits(frequency), entries[i].frequency);
        ck_assert_uint_eq(iso_f32_bits(cos), entries[i].cos);
        ck_assert_uint_eq(iso_f32_bits(sin), entries[i].sin);
    }
}
END_TEST

/* The library's binary64 rounds to the same binary32 but where it stands next to a tie. */
START_TEST(turns_are_rounded_once)
{
    int different = 0;
    for (unsigned i = 0; i < 400000; i++) {
        IsoF32 angle = (IsoF32)(i * 2654435761u >> 8) * 0x1p-7f;
        double c, s;
        iso_turn((double)angle, &c, &s);
        different += (IsoF32)c != (IsoF32)cos((double)angle);
        different += (IsoF32)s != (IsoF32)sin((double)angle);
    }
    ck_assert_int_eq(different, 0);
}
END_TEST

START_TEST(logarithms_and_powers)
{
    double worst = 0;
    for (double x = 0.7; x < 1e7; x *= 1.0009)
        worst = fmax(worst, fabs(iso_ln(x) - log(x)) / fmax(fabs(log(x)), 1e-3));
    for (double x = -30; x < 30; x += 0.0021)
        worst = fmax(worst, fabs(iso_e_to(x) - exp(x)) / exp(x));
    ck_assert(worst < 5e-16);
}
END_TEST

Suite *rope_suite(void);
Suite *rope_suite(void)
{
    Suite *suite = suite_create("rope");
    TCase *tests = tcase_create("rope");
    tcase_add_test(tests, tables_are_the_written_ones);
    tcase_add_test(tests, turns_are_rounded_once);
    tcase_add_test(tests, logarithms_and_powers);
    suite_add_tcase(suite, tests);
    return suite;
}
