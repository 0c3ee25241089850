/* The kernels of a plan against the executor, bit for bit.
 * Ownership: the folder's files are the caller's to remove. */
#ifndef PLANEVAL_COMPARE_H
#define PLANEVAL_COMPARE_H

#include "subject.h"

typedef struct Counts {
    long jobs, elements, differ;
} Counts;

typedef struct Compare {
    const char *planeval, *folder;
    const Subject *subject;
    const char *op; /* NULL: all */
    bool quiet;
    Arena *arena;   /* of one sample */
    Counts counts;
} Compare;

/* All of the subject's layouts at some row counts. False: a run failed, which includes an
 * evaluator that finds the plan wrong in itself. */
bool compare_subject(Compare *compare, const i64 *rows, int n_rows);

#endif
