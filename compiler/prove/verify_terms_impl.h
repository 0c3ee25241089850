/* What the files of verify_terms share.
 * Ownership: everything lives in the arena of the terms. */
#ifndef ISOC_VERIFY_TERMS_IMPL_H
#define ISOC_VERIFY_TERMS_IMPL_H

#include "ptx/term.h"
#include "verify_terms.h"

enum { TERMS_FORESTS = 64, TERMS_VALUES = 3 };

/* Of one rank, on this op's tree of one reduction. */
typedef struct TermsGiven {
    const DagNode *reduce;
    int rank;
    Forest forest;
} TermsGiven;

typedef struct TermsEntry {
    u64 key, value;
} TermsEntry;

typedef struct TermsFunction TermsFunction;

struct Terms {
    TermsSetup setup;
    const Contract *contract;
    const OpDag *op;
    const Part *part;
    Arena *arena;
    int tokens, sequence, position;      /* atoms: a packed one and its coordinates, or -1 */
    const TreeNode *tree[TERMS_FORESTS]; /* by reduction */
    VEC(TermsGiven) given;               /* with `joins`: of all ranks heard */
    TermsFunction *function[FN_COUNT], *short_form[FN_COUNT];
    TermsFunction *weight; /* iso_short_weight */
    bool unknown; /* an index that must be known is not */
    int table_bits, entries;
    TermsEntry *table;
};

/* A monoid's value, as f32: what is of a narrower type is its widening. */
typedef struct TermsValue {
    u64 v[TERMS_VALUES];
} TermsValue;

/* ---- what was computed before (verify_terms.c): by a key, 0 if it was not */
u64 terms_key(u64 kind, int number, u64 mask, const i64 *index);
void terms_remember(Terms *terms, u64 key, u64 value);
u64 terms_recall(const Terms *terms, u64 key);

/* Atoms, a coordinate counting as its tokens. */
u64 terms_mask(const Terms *terms, u64 mask);
i64 terms_flat(const Terms *terms, const Part *part, const int *atoms, int n, const i64 *index);
/* The element of a parameter's memory at these indices, coordinates as they are. */
u64 terms_leaf(const Terms *terms, int param, const i64 *index);
/* The index that the node's fix says, by a parameter or by a choice; -1 where the axis does not
 * have it. */
i64 terms_looked_up(Terms *terms, const DagNode *node, const Fix *fix, const i64 *index);
/* Row of the rank that a token's global index is. */
i64 terms_row(const Terms *terms, i64 token);

/* ---- expressions (verify_terms.c) */
u64 terms_eval(Terms *terms, const DagNode *node, const i64 *index);
u64 terms_as_f32(Terms *terms, const DagNode *node, const i64 *index);
PtxType terms_type(DType type);
static inline u64 terms_narrow(DType type, u64 f32)
{
    return type == DT_F32 ? f32 : ptx_term_narrow(terms_type(type), f32);
}
static inline u64 terms_widen(DType type, u64 value)
{
    return type == DT_F32 ? value : ptx_term_widen(terms_type(type), value);
}
static inline u64 terms_binary(PtxOp op, u64 a, u64 b)
{
    const u64 args[] = {a, b};
    return ptx_term_f32(op, args, 2);
}

/* ---- constants (verify_terms_fold.c) */
u64 terms_constant(Terms *terms, u32 bits);
bool terms_is_constant(const Terms *terms, u64 term, u32 *bits);
/* The operation's result where all its arguments, f32, are constants; else 0. */
u64 terms_folded(Terms *terms, const DagNode *node, const u64 *args);
/* A value of the type as f32. */
u64 terms_widened(Terms *terms, DType type, u64 value);

/* ---- functions (verify_terms_fn.c): their own PTX on the argument's term */
u64 terms_function(Terms *terms, FnId fn, const u64 *args);
/* What stands for a function of a bf16 that is rounded to bf16 (device/iso_short.cuh). */
u64 terms_short_form(Terms *terms, FnId fn, u64 argument);
/* The weight in iso_short_join. */
u64 terms_short_weight(Terms *terms, u64 distance);

/* ---- reductions (verify_terms_reduce.c): as f32 */
u64 terms_reduce(Terms *terms, const DagNode *reduce, const i64 *index);
TermsValue terms_tree(Terms *terms, const DagNode *reduce, const TreeNode *node, const i64 *index);
int terms_reduce_number(const Terms *terms, const DagNode *reduce);

/* An index among others, by its score's term and by the rank that the kernel met. */
typedef struct TermsRanked {
    i64 index;
    u64 score;
    u32 rank;
} TermsRanked;

/* By rank, of equal ones the lower index first; or by index. */
void terms_rank_sort(TermsRanked *v, i64 n, bool by_index);

/* ---- choices (verify_terms_top.c): an index of `top` for a token's slot; false: the kernel did
 * not compare the scores that decide */
bool terms_chosen(Terms *terms, const DagNode *node, const i64 *index, i64 *chosen);
/* The same of `draw` (verify_terms_draw.c). */
bool terms_drawn(Terms *terms, const DagNode *node, const i64 *index, i64 *drawn);

/* ---- limits of a draw (verify_terms_limits.c) */
typedef struct TermsLimits {
    i64 top_k;          /* below 1: all */
    float top_p, min_p; /* from 1 on: all; to 0: all */
} TermsLimits;
/* Moves what they keep to the head, in order of indices; gives how many. n > 0. */
i64 terms_kept(Terms *terms, const TermsLimits *limits, TermsRanked *v, i64 n);

/* ---- attention (verify_terms_attend.c) */
u64 terms_attend(Terms *terms, const DagNode *node, const i64 *index);

#endif
