/* What the files of verify_ptx share: one launch that is to be checked.
 * Ownership: everything lives in the arenas of the worker that runs it. */
#ifndef ISOC_VERIFY_PTX_IMPL_H
#define ISOC_VERIFY_PTX_IMPL_H

#include "isoc.h"
#include "launch.h"
#include "machine.h"
#include "module.h"
#include "verify_ptx.h"

/* The first place where a spec is used: specs bind kernels, so this is every kernel as every op
 * uses it. */
typedef struct PtxJob {
    int spec, layout, op, rank, schedule; /* op: in the layout's list */
    iso_phase phase;
} PtxJob;

typedef struct PtxOutcome {
    i64 rows, outputs, differ, missing; /* outputs that a CTA should have written and did not */
    u64 ctas, grid, instructions;
    double seconds;
    Str finding; /* empty: none */
} PtxOutcome;

typedef struct PtxWorker {
    const VerifyPtxInput *input;
    const PtxModule *ptx;
    iso_module *module;
    isoc_session *session;
    PtxMemory memory;
    Machine machine;
} PtxWorker;

/* Launches, executes, compares. */
void verify_ptx_job(PtxWorker *worker, const PtxJob *job, Arena *arena, PtxOutcome *outcome);

/* ---- tensors (verify_ptx_data.c) */

/* Memory that is had when it is touched, and what the machine has to know about it. */
typedef struct PtxTensor {
    iso_tensor tensor;
    size_t bytes;
    int element;       /* bytes */
    u8 *known;         /* results: written ones */
    void *expected;    /* results: the executor's */
    u8 *filled;        /* parameters: a byte per page */
    i64 row_elements;  /* of one row, where rows lead; else 0 */
    u64 seed;
} PtxTensor;

typedef struct PtxMaps {
    VEC(void *) map;
    VEC(size_t) size;
} PtxMaps;

void *verify_ptx_map(PtxMaps *maps, size_t bytes, Arena *arena);
void verify_ptx_unmap(PtxMaps *maps);
/* A parameter that is filled when it is touched. */
void verify_ptx_param(PtxTensor *tensor, const char *name, PtxMemory *memory, PtxMaps *maps,
                      Arena *arena);
/* A result, unknown until it is written. */
void verify_ptx_result(PtxTensor *tensor, const char *name, PtxMemory *memory, PtxMaps *maps,
                       Arena *arena);
/* A buffer; its first `known` bytes are known to be zero. */
u8 *verify_ptx_buffer(const char *name, size_t bytes, size_t known, PtxMemory *memory,
                      PtxMaps *maps, Arena *arena);

#endif
