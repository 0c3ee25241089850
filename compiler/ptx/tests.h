/* Branches on whether values are numbers. A kernel may take another way for Inf and NaN: its tests
 * of values are terms of their own (TERM_TEST), a branch on them goes as the numbers go, and where
 * it shows that values are finite, a product of theirs with +0 is +0 from there on.
 * Ownership: everything lives in the arena given. */
#ifndef ISOC_PTX_TESTS_H
#define ISOC_PTX_TESTS_H

#include "machine.h"
#include "term.h"

typedef struct PtxFact {
    u64 key, value;
} PtxFact;

typedef struct PtxTests {
    Arena *arena;
    int bits, n;
    PtxFact *table;
    i64 taken[2]; /* branches whose values were all finite; which had others */
    i64 zeros;    /* products with +0 that rested on that */
} PtxTests;

/* What is known of a term's value by a theorem on the function that gave it: TERM_NO_SIGN,
 * TERM_RESULT. */
void ptx_tests_know(PtxTests *tests, u64 term, u64 flags);
u64 ptx_tests_flags(const PtxTests *tests, u64 term);

/* The terms of an instruction that tests values, or joins tests; false: it is none. */
bool ptx_shadow_test(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane, PtxTerms *out);
/* Keeps what a result was made of, where a test of it may follow. */
void ptx_shadow_note(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane,
                     const PtxTerms *out);
/* A branch whose guard has terms in these lanes; false: they are no tests. */
bool ptx_shadow_tested(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 lanes);
/* Whether the value, of a tensor-core operand of this type, is known to be finite here. */
bool ptx_tests_finite(PtxTests *tests, PtxType type, u64 value);

#endif
