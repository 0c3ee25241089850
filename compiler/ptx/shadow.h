/* Terms beside numbers: every register and every two bytes of memory have one. Integers that no
 * input reached stay concrete, so that addresses, bounds and branches are what they are.
 * Ownership: shadows belong to the warp, the CTA or the region that they stand beside. */
#ifndef ISOC_PTX_SHADOW_H
#define ISOC_PTX_SHADOW_H

#include "machine.h"
#include "term.h"

/* Before the numbers of the instruction are computed; false on a finding. */
bool ptx_shadow(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);

/* The operation's term; and the operations of a run, with their arguments and terms. */
u64 ptx_shadow_operation(const PtxInst *inst, const u64 *args, int n);

enum { PTX_TRACE_ARGS = 8 };

typedef struct PtxTraceNode {
    const PtxInst *inst;
    int n;
    u64 args[PTX_TRACE_ARGS], term;
} PtxTraceNode;

typedef struct PtxTrace {
    Arena *arena;
    u64 argument; /* the caller's */
    VEC(PtxTraceNode) nodes;
} PtxTrace;

typedef struct PtxFork PtxFork;
/* A branch with inputs' terms in its guard: goes both ways as far as these are arithmetic, to where
 * they meet, which *pc becomes. False on a finding. */
bool ptx_fork(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask, int *pc);

/* The same for what is done later than its instruction. */
void ptx_shadow_product(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, const u64 *a,
                        const u64 *b, int n, bool accumulate);

/* ---- memory: `bytes` (even) from an address whose access was checked; a term per two bytes */
void ptx_shadow_read(PtxCta *cta, PtxSpace space, u64 address, u32 bytes, u64 *terms);
void ptx_shadow_write(PtxCta *cta, PtxSpace space, u64 address, u32 bytes, const u64 *terms);
/* Copies to shared memory. */
void ptx_shadow_copy(PtxCta *cta, u32 to, u64 from, u32 bytes);
void ptx_shadow_clear(PtxCta *cta, u32 to, u32 bytes);

/* Loads and stores (shadow_memory.c). */
bool ptx_shadow_load(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);
bool ptx_shadow_store(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);

/* ---- tensor cores (shadow_tensor.c) */
bool ptx_shadow_ldmatrix(PtxCta *cta, PtxWarp *warp, const PtxInst *inst);
/* Of a half that a step takes: of what no input reached, nothing for +0. */
u64 ptx_operand_term(u64 term, u32 value);
bool ptx_shadow_mma(PtxCta *cta, PtxWarp *warp, const PtxInst *inst);
/* Terms of a step's left operand in four registers from argument `first` on: [row][k]. */
void ptx_shadow_left(PtxWarp *warp, const PtxInst *inst, int first, u64 *terms);

/* ---- registers */

static inline PtxTerms *ptx_terms(PtxWarp *w, const PtxArg *arg, int lane)
{
    return &w->shadow[arg->row + (u32)lane];
}

static inline void ptx_set_terms(PtxWarp *w, const PtxArg *arg, int lane, PtxTerms t)
{
    u32 bit = 1u << lane;
    *ptx_terms(w, arg, lane) = t;
    w->taint[arg->row] = t.lo | t.hi ? w->taint[arg->row] | bit : w->taint[arg->row] & ~bit;
}

/* A whole 32-bit value as one term: of an f32, or of a word's pattern. */
u64 ptx_word_term(PtxTerms terms, u32 value);

#endif
