/* compare PLANEVAL [CONTRACT.iso...]: each op, layout and some row counts. Without contracts: two
 * small layers built in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compare.h"

static bool compare_open(Compare *c, Subject *subject, const char *name, const i64 *rows, int n)
{
    Counts none = {0};
    c->subject = subject;
    c->counts = none;
    printf("%s: %d ops, their plans against the executor ...\n", name, subject->dag->n_ops);
    bool ok = compare_subject(c, rows, n);
    printf("%s: %ld of %ld elements differ, %ld runs of plans, %d kernels\n", name,
           c->counts.differ, c->counts.elements, c->counts.jobs, subject->plan->kernels.n);
    subject_close(subject);
    return ok && c->counts.differ == 0 && c->counts.elements > 0;
}

static bool compare_small(Compare *c, bool odd)
{
    static const i64 rows[] = {1, 5, 40, 129, 0};
    Subject subject;
    return subject_small(&subject, odd) &&
           compare_open(c, &subject, odd ? "a small layer, rounded trees" : "a small layer", rows,
                        5);
}

static bool compare_file(Compare *c, const char *path)
{
    static const i64 rows[] = {3, 65};
    Subject subject;
    return subject_file(&subject, path) && compare_open(c, &subject, path, rows, 2);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/planeval-XXXXXX", command[64];
    Compare c = {.planeval = argc > 1 ? argv[1] : "build/planeval"};
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    c.folder = folder;
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool ok = argc > 2 || compare_small(&c, false);
    ok = (argc > 2 || compare_small(&c, true)) && ok;
    for (int i = 2; i < argc; i++)
        ok &= compare_file(&c, argv[i]);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 && ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
