/* `isoc verify --device ptx`: the kernels' PTX, launched by the runtime on the PTX machine, against
 * the executor, bit for bit; with a few tiles of columns, all of k, and row counts that leave a
 * tail.
 * Ownership: nothing is kept; scratch comes from arenas of its own. */
#ifndef ISOC_VERIFY_PTX_H
#define ISOC_VERIFY_PTX_H

#include "plan/plan.h"
#include "ptx/ptx.h"

struct PtxTrial;

typedef struct VerifyPtxInput {
    Str artifact; /* the cubin with its manifest */
    Str ptx;
    int threads;
    const Plan *prove;     /* not NULL: terms too, against this plan's contract */
    const PtxModule *functions; /* prove: what verify_terms_program gives, as PTX */
    Text *certificate;     /* not NULL: gets one JSON object per launch */
    bool terms_only;       /* prove: no numbers from the executor */
    bool few_keys;         /* attention of a few short requests */
    bool small;            /* and of few rows; of a product's columns the last tile alone */
    u64 limit;             /* instructions of one CTA before it is said to run for ever; 0: none */
    u64 seed;     /* of the inputs, the tiles, and the order of warps and copies */
    Str only;     /* kernels whose name holds it; empty: all */
    /* Called with each launch (verify_ptx_impl.h) before it runs, and after; may be NULL. */
    void (*watch)(void *self, struct PtxTrial *trial, bool after);
    void *watch_self;
    void (*progress)(void *self, Str kernel, int done, int total);
    void *progress_self;
} VerifyPtxInput;

typedef struct VerifyPtxResult {
    int kernels, launches, findings;
    i64 outputs, differ;
    i64 proved, unproved; /* outputs whose term is the contract's; is another */
    i64 instructions, covered; /* of the kernels launched; of them, those that ran */
    int refused;          /* launches of ops whose terms cannot be written yet */
} VerifyPtxResult;

/* Adds a table to `report`. NULL, or why nothing could be run. */
const char *verify_ptx(const VerifyPtxInput *input, VerifyPtxResult *result, Text *report);

#endif
