/* `isoc verify` without a device: every op in every layout, rank by rank on the executor, against
 * the op executed whole; bit for bit on sampled rows and columns.
 * Ownership: nothing is kept; scratch comes from arenas of its own. */
#ifndef ISOC_VERIFY_H
#define ISOC_VERIFY_H

#include "plan/plan.h"

typedef struct VerifyInput {
    i64 rows;
    u64 seed;
    int columns; /* wanted per result; part borders are always among them */
    int threads;
    void (*progress)(void *self, Str op, int done, int total);
    void *progress_self;
} VerifyInput;

typedef struct VerifyResult {
    i64 outputs, differ;         /* over all ops and layouts */
    i64 plain_outputs, plain_differ; /* the same where a plain all-reduce takes the tree's place */
} VerifyResult;

/* Adds a table to `report`. False when memory is short or the executor refuses a part, which plans
 * exclude. */
bool verify_cpu(const Plan *plan, const VerifyInput *input, VerifyResult *result, Text *report);

#endif
