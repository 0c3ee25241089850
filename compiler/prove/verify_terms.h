/* The terms that a contract's outputs must have: its expressions and trees over the same leaves as
 * the PTX machine's. Shares no code with the executor.
 * Ownership: everything lives in the arena given. */
#ifndef ISOC_VERIFY_TERMS_H
#define ISOC_VERIFY_TERMS_H

#include "plan/plan.h"
#include "ptx/run.h"

/* CUDA text of one kernel per scalar function, `f` of x[0] into y[0]: their PTX is run to know a
 * function's term. The text is the contract's own. */
Str verify_terms_program(Arena *arena);

typedef struct Terms Terms;

/* A parameter in memory. */
typedef struct TermsTensor {
    const void *data;
    i64 line, pitch;          /* elements of a row; from one to the next */
    i64 sequences, positions; /* of an axis that is a coordinate: its length */
} TermsTensor;

/* Where the keys of a sequence lie, in steps along the stored axes. */
typedef struct TermsKeys {
    const int *lengths; /* of each sequence, or NULL */
    i64 longest;        /* of these */
    const int *turns;   /* where ranks share the keys */
    void (*place)(const void *self, int sequence, i64 key, i64 *a, i64 *b);
    const void *self;
} TermsKeys;

typedef struct TermsSetup {
    const Plan *plan;
    const PlanOp *at;
    int rank;
    bool joins;         /* cut reductions start from the roots of all ranks */
    i64 rows;           /* global */
    u64 first_param;    /* input number of parameter 0 */
    const TermsTensor *params;
    const int32_t *positions, *sequences; /* of each row of the part */
    const TermsKeys *keys;
    u64 first_roots;    /* of rank 0's roots */
    const PtxModule *functions;
    const FdpaClass *numerics;
    struct PtxChoices *choices; /* not NULL: what the kernel has ranked (ptx/choice.h) */
    struct PtxTests *tests; /* not NULL: gets what is known of functions (ptx/tests.h) */
} TermsSetup;

/* NULL with a sentence in *why: an op whose terms cannot be written yet. */
Terms *terms_open(const TermsSetup *setup, Str *why, Arena *arena);

/* Whether the order of scores alone decides what is drawn: there are no limits. */
bool terms_in_order(const Draw *draw);

/* Of the result's element at these global indices, by atom. 0: no piece has it. */
u64 terms_result(Terms *terms, int result, const i64 *index);
/* Of root `root` that the rank leaves of a reduction, of one of its values, at these indices; 0:
 * there is none. */
u64 terms_root(Terms *terms, const DagNode *reduce, int root, int value, const i64 *index);
/* Elements that a part has of a dimension. */
i64 terms_dim_size(const Terms *terms, const Part *part, const PlanDim *dim);
/* Where ranks share the keys of an `attend`: the splits [*first, *end) that the row of these
 * indices sees, and how many values a root has before its maximum and its sum. */
i64 terms_splits(Terms *terms, const i64 *index, i64 *first, i64 *end);
/* Of a split's root value `value`, its maximum or sum; and where a rank has the root, in elements:
 * -1: another has it. */
u64 terms_split(Terms *terms, const i64 *index, i64 split, i64 value);
i64 terms_split_place(const Terms *terms, int rank, const i64 *index, i64 split);
/* The place of a root's value in a rank's buffer of roots, in elements; -1: none. */
i64 terms_root_place(Terms *terms, int rank, const DagNode *reduce, int root, int value,
                     const i64 *index);

#endif
