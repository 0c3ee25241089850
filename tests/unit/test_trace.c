/* Traces as files: one row is compared, and what no row can be is refused. */
#define LLVMFuzzerTestOneInput fuzz_trace
#include "../fuzz/fuzz_trace.c"

#include <check.h>
#include <string.h>

typedef struct File {
    char magic[8];
    TraceRecord record;
    TraceRow row;
    uint16_t values[4];
} File;

/* A row of two by two, of which this rank has all. */
static File file_of(void)
{
    File file = {.record = {.op = "norm", .value = "y", .turn = -1, .element_bytes = 2,
                            .n_axes = 2, .whole = {2, 2}, .hi = {2, 2}, .rows = 1,
                            .row_bytes = 8},
                 .row = {1, 7}, .values = {1, 2, 3, 4}};
    memcpy(file.magic, TRACE_MAGIC, sizeof file.magic);
    return file;
}

static iso_status compare(const File *file, size_t size, iso_difference *difference)
{
    return compare_trace((const uint8_t *)file, size, difference);
}

START_TEST(a_row_equals_itself)
{
    File file = file_of();
    iso_difference d;
    ck_assert_msg(!compare(&file, sizeof file, &d), "%s", iso_last_error());
    ck_assert_int_eq(d.compared, 4);
    ck_assert_int_eq(d.differ, 0);
}
END_TEST

START_TEST(what_is_no_row_is_refused)
{
    iso_difference d;
    for (size_t n = 0; n < sizeof(File); n++) {
        File file = file_of();
        if (n != sizeof file.magic) /* a trace of no records */
            ck_assert_int_eq(compare(&file, n, &d), ISO_NOT_ISO);
    }
    /* Sizes whose product is zero, or less, in 64 bits. */
    const int64_t large = (int64_t)1 << 32;
    File file = file_of();
    file.record.whole[0] = file.record.whole[1] = large;
    ck_assert_int_eq(compare(&file, sizeof file, &d), ISO_NOT_ISO);
    file.record.whole[1] = large / 2;
    ck_assert_int_eq(compare(&file, sizeof file, &d), ISO_NOT_ISO);
    file = file_of();
    file.record.whole[0] = -2;
    ck_assert_int_eq(compare(&file, sizeof file, &d), ISO_NOT_ISO);
    file = file_of();
    file.record.lo[1] = 1;
    ck_assert_int_eq(compare(&file, sizeof file, &d), ISO_NOT_ISO);
    file = file_of();
    file.record.rows = INT64_MAX;
    ck_assert_int_eq(compare(&file, sizeof file, &d), ISO_NOT_ISO);
}
END_TEST

Suite *trace_suite(void);
Suite *trace_suite(void)
{
    Suite *suite = suite_create("trace");
    TCase *tests = tcase_create("files");
    tcase_add_test(tests, a_row_equals_itself);
    tcase_add_test(tests, what_is_no_row_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
