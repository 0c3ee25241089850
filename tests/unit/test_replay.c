/* What fuzzers of imports and of PTX start from, replayed, so that they are built with the rest. */
#include "replay.h"

#define LLVMFuzzerTestOneInput fuzz_import
#include "../fuzz/fuzz_import.c"
#undef LLVMFuzzerTestOneInput

#define LLVMFuzzerTestOneInput fuzz_ptx
#include "../fuzz/fuzz_ptx.c"
#undef LLVMFuzzerTestOneInput

START_TEST(configs)
{
    ck_assert_int_gt(replay_folder("tests/import", fuzz_import), 10);
}
END_TEST

START_TEST(ptx)
{
    ck_assert_int_gt(replay_folder("tests/ptx/foreign", fuzz_ptx), 2);
}
END_TEST

Suite *replay_suite(void);
Suite *replay_suite(void)
{
    Suite *suite = suite_create("replay");
    TCase *tests = tcase_create("replay");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, configs);
    tcase_add_test(tests, ptx);
    suite_add_tcase(suite, tests);
    return suite;
}
