/* Runs every suite of suites.def; CK_RUN_SUITE=name picks one. */
#include <check.h>
#include <stdlib.h>

#define X(name) Suite *name##_suite(void);
#include "suites.def"
#undef X

int main(void)
{
    SRunner *runner = srunner_create(NULL);
#define X(name) srunner_add_suite(runner, name##_suite());
#include "suites.def"
#undef X
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
