/* Terms: what a value was computed from, as a 64-bit hash of its expression. Equal hashes mean,
 * but for chance, that the same operations were applied to the same inputs in the same order.
 * Ownership: values only. */
#ifndef ISOC_PTX_TERM_H
#define ISOC_PTX_TERM_H

#include "inst.h"

/* A term of 0 stands for bits that no input reached; its value is in the register. */
enum {
    TERM_CONCRETE = 0,
    TERM_WHOLE = 1,  /* the upper half of a 32-bit value whose term is at its lower half */
    TERM_POISON = 2, /* a product of a zero that stands for nothing with a value: no contract's */
    TERM_UNDEFINED = 3, /* a register that nothing was written to */
    TERM_LEAST = 16, /* all hashes are at least this */
};

/* What an expression shows of its value, in the term's upper bits; the hash has the other 55. */
#define TERM_TEST ((u64)1 << 63)     /* whether one of several values is Inf or NaN: 1 or 0 */
#define TERM_NO_SIGN ((u64)1 << 62)  /* the sign bit is clear */
#define TERM_RESULT ((u64)1 << 61)   /* of f32 arithmetic: a NaN is the canonical one */
#define TERM_MAXIMUM ((u64)1 << 60)  /* of several values: the hash is the sum of theirs */
#define TERM_NOT TERM_MAXIMUM        /* of a predicate: it is turned */
#define TERM_STEP ((u64)1 << 59)     /* of a tensor-core step, which never gives -0 */
#define TERM_ZEROED ((u64)1 << 58)   /* of something else, then of steps of zeros: -0 is +0 now */
/* Not above 0, or NaN: a negative constant, or a value less a maximum or itself. That the value is
 * one of the maximum's is the contract's doing: where a term equals the contract's, it is. */
#define TERM_FALL ((u64)1 << 57)
/* Rounded to that type, or the widening of what is: to be rounded to it again changes nothing. */
#define TERM_BF16 ((u64)1 << 56)
#define TERM_F16 ((u64)1 << 55)
#define TERM_HASH (((u64)1 << 55) - 1)

/* What an operation is: the opcode, its types, and how it rounds or compares. */
u64 ptx_term_operation(PtxOp op, PtxType type, PtxType from, u32 mode);
/* The node of an operation; arguments in order, but for the first two where they commute. */
u64 ptx_term_node(u64 operation, bool commutes, const u64 *args, int n);
u64 ptx_term_const(u32 bits);
/* Element `index` of input `input`. */
u64 ptx_term_leaf(u64 input, u64 index);
/* f32 operations as both sides write them. A maximum forgets the order of what it joins, and -inf
 * in it; +0 is not added to what has no sign, 1 is no factor of a result, and what falls is its own
 * minimum with what has no sign. */
u64 ptx_term_f32(PtxOp op, const u64 *args, int n);
/* `then` where a predicate holds, else `other`; comparisons are of f32. */
u64 ptx_term_select(u64 then, u64 other, u64 predicate);
u64 ptx_term_compare(PtxCompare compare, u64 a, u64 b);
u64 ptx_term_narrow(PtxType type, u64 f32); /* cvt.rn to bf16 or f16 */
u64 ptx_term_widen(PtxType type, u64 half); /* to f32: bf16 by its place, f16 by cvt */

/* ---- tests of values for Inf and NaN: tests joined by `or` are one, by the sum of their hashes */

u64 ptx_term_test(u64 value);
static inline u64 ptx_term_either(u64 a, u64 b)
{
    return TERM_TEST | ((a + b) & TERM_HASH);
}

/* ---- tensor-core steps: the members of a group have no order, but pairs stay pairs */

typedef unsigned __int128 TermSum;
/* A factor below 2^61; 0 for an absent one. */
u64 ptx_term_factor(u64 term);
/* The step: `sum` over the group's pairs of products of factors. An empty group changes nothing but
 * -0, which is no other than +0 to the next group. */
u64 ptx_term_step(u64 accumulator, TermSum sum, bool any);

#endif
