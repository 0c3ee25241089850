/* What the files of verify_ptx share: one launch that is to be checked.
 * Ownership: everything lives in the arenas of the worker that runs it. */
#ifndef ISOC_VERIFY_PTX_IMPL_H
#define ISOC_VERIFY_PTX_IMPL_H

#include "isoc.h"
#include "launch/launch.h"
#include "machine.h"
#include "module.h"
#include "ptx/choice.h"
#include "verify_ptx.h"
#include "verify_terms.h"

enum {
    PTX_UNEVEN_BASE = 1, /* nothing is aligned but to its element */
    PTX_UNEVEN_ROWS = 2, /* rows at odd strides, and the last one not live */
    PTX_PADDED_ROWS = 4, /* rows at strides of 16 bytes; of all tensors, whichever is uneven */
};

enum {
    PTX_UNEVEN = PTX_UNEVEN_BASE | PTX_UNEVEN_ROWS,
    PTX_FEW_ROWS = 8, /* fewer than a tile of wgmma has */
    PTX_MANY_TOKENS = 16, /* of a request, more than a window of decode has */
    PTX_SORTED = 32, /* a grouped product's rows and results lie in the order of their experts */
    PTX_LIVE_JOIN = 64, /* a join's last row is not live either */
    PTX_SETTLED = 128,  /* weights may be loaded before the grid before has ended */
    PTX_FEW_CTAS = 256, /* each has all of a product's row tiles */
};

/* Tokens of one request, at positions `step` apart. with: 1 more than a request that takes turns
 * with it, or 0. every: the first of so many stands at `far`; 0: none does. */
typedef struct PtxTokens {
    int sequence, first, n, step, with, every, far;
} PtxTokens;

enum { PTX_REQUESTS = 8, PTX_TOKEN_RUNS = 24 };

typedef enum PtxPlaces { PTX_IN_PAGES, PTX_PACKED, PTX_BY_STRIDES } PtxPlaces;

/* What a launch of attention has, where a caller says it. */
typedef struct PtxRequests {
    int n, lengths[PTX_REQUESTS];
    PtxPlaces places;
    int page;
    int n_runs;
    PtxTokens run[PTX_TOKEN_RUNS];
    int not_live;      /* tokens at the end */
    bool no_lengths;   /* rows see as far as they stand */
    int roots;         /* that the workspace has; 0: as many as it should */
    int multiprocessors;
} PtxRequests;

/* The first place where a spec is used: specs bind kernels, so this is every kernel as every op
 * uses it. */
typedef struct PtxJob {
    int spec, layout, op, rank, schedule; /* op: in the layout's list */
    u16 uneven; /* what is not as a kernel likes it best: PTX_UNEVEN_... */
    int which; /* uneven tensor; parameters, results, then ranks' roots; -1: all */
    iso_phase phase;
    const PtxRequests *requests; /* of attention; NULL: as the job is uneven */
} PtxJob;

typedef struct PtxOutcome {
    i64 proved, unproved;
    bool refused;  /* no terms are known for the op */
    Str unlike; /* the first output whose term is not the contract's */
    i64 rows, outputs, differ, missing; /* outputs that a CTA should have written and did not */
    u64 ctas, grid, instructions;
    u64 longest;   /* instructions of a CTA, at most */
    double seconds;
    u8 *covered;   /* instructions of the kernel that ran */
    bool skipped;  /* the op does not take odd strides */
    Str finding; /* empty: none */
} PtxOutcome;

typedef struct PtxWorker {
    const VerifyPtxInput *input;
    const PtxModule *ptx;
    iso_module *module;
    isoc_session *session;
    PtxMemory memory;
    Machine machine;
    PtxWays ways;
} PtxWorker;

typedef VEC(PtxJob) PtxJobs;

/* Every spec of the manifest once, as far as its kernel's name holds `only`. */
void verify_ptx_jobs(const Manifest *manifest, Str only, PtxJobs *jobs, Arena *arena);
/* NULL, or why it cannot work. Close it in either case. */
const char *verify_ptx_open(PtxWorker *worker, const VerifyPtxInput *input, const PtxModule *ptx,
                            Arena *arena);
void verify_ptx_close(PtxWorker *worker);
/* Whether the tensor must be aligned, whatever is uneven: wgmma's operands, attention's. */
bool verify_ptx_aligned(const MfSpec *spec, int tensor);
/* Launches, executes, compares. */
void verify_ptx_job(PtxWorker *worker, const PtxJob *job, Arena *arena, PtxOutcome *outcome);

/* ---- tensors (verify_ptx_data.c) */

/* Memory that is had when it is touched, and what the machine has to know about it. */
typedef struct PtxTensor {
    iso_tensor tensor;
    size_t bytes;
    i64 elements;      /* without the gaps */
    i64 line, pitch;   /* elements of a row; from one to the next */
    int element;       /* bytes */
    i64 indices;       /* of an axis of this size; 0: values */
    u8 *known;         /* results: written ones */
    void *expected;    /* results: the executor's */
    u8 *filled;        /* parameters: a byte per page */
    u64 *shadow;       /* results: a term per two bytes, where terms are wanted */
    i64 row_elements;  /* of one row, where rows lead; else 0 */
    bool scores;       /* of a draw: rows without an order among them */
    u64 seed;
} PtxTensor;

typedef struct PtxMaps {
    VEC(void *) map;
    VEC(size_t) size;
} PtxMaps;

void verify_ptx_unmap(PtxMaps *maps);
/* Where tensors come from and go to. */
typedef struct PtxPlace {
    PtxMemory *memory;
    PtxMaps maps;
    Arena *arena;
    bool terms;
    bool failed;  /* memory was short */
    size_t shift; /* bytes from an aligned address to each tensor */
} PtxPlace;

/* A parameter that is filled when it is touched; its elements are the leaves of input `input`. */
void verify_ptx_param(PtxPlace *place, PtxTensor *tensor, const char *name, u64 input);
/* A result, unknown until it is written. */
void verify_ptx_result(PtxPlace *place, PtxTensor *tensor, const char *name);
/* A buffer; its first `known` bytes are known to be zero. */
u8 *verify_ptx_buffer(PtxPlace *place, const char *name, size_t bytes, size_t known);

/* Requests, for attention. */
typedef struct PtxKeys PtxKeys;
/* Rows by expert, for grouped products. */
typedef struct PtxGroups PtxGroups;

/* One launch as it is tried. */
enum { PTX_MAX_TENSORS = 32, PTX_MAX_TILES = 64 };

typedef struct PtxProof PtxProof;

typedef struct PtxTrial {
    PtxWorker *worker;
    const PtxJob *job;
    PtxOutcome *outcome;
    Arena *arena;
    PtxPlace place;
    const iso_op *op;
    const MfSpec *spec;
    i64 rows;      /* global */
    i64 own_rows;  /* of the product's row dimension, in this rank */
    i64 part_rows, live_rows; /* of the free axis in this rank; of them, live ones */
    int n_params, n_results;
    PtxTensor tensor[PTX_MAX_TENSORS];
    iso_tensor passed[PTX_MAX_TENSORS];
    PtxTensor roots; /* PART: what it writes */
    const void **sources; /* JOIN */
    const int32_t *position, *sequence; /* of each row of the part */
    PtxKeys *keys;        /* ATTEND */
    PtxGroups *groups;    /* grouped GEMM */
    iso_run run;          /* as it was passed */
    int32_t *none_live;   /* 0, for a call without live rows */
    size_t counters;      /* the workspace's first bytes, which are 0 before and after */
    int n_tiles;
    i64 tile[PTX_MAX_TILES]; /* columns' tiles that run, counted over all groups */
} PtxTrial;

/* Runs a launch as it was prepared, with an op of any module of the cubin (verify_ptx_job.c). */
iso_status verify_ptx_start(PtxTrial *trial, const iso_op *op);

/* ---- tiles of a product (verify_ptx_tiles.c) */

static inline bool verify_ptx_is_gemm(const PtxTrial *trial)
{
    return trial->spec->family == MF_GEMM;
}
/* Of every group the first, the last and one between, in trial->tile. */
void verify_ptx_choose_tiles(PtxTrial *trial);
bool verify_ptx_wanted(void *trial, const u32 cta[3]);
/* So many that a CTA has what it should have. */
int verify_ptx_multiprocessors(const PtxTrial *trial);
/* Of the whole grid. */
i64 verify_ptx_tiles(const PtxTrial *trial);
/* How many elements of all results the CTAs that run should write. */
i64 verify_ptx_outputs(const PtxTrial *trial);

/* ---- terms (verify_ptx_prove.c) */

/* Before the machine runs: NULL where the op's terms cannot be written, which the outcome says. */
PtxProof *verify_ptx_prove_open(PtxTrial *trial);
/* Compares the terms of all that was written with the contract's. */
void verify_ptx_prove(PtxProof *proof);

/* ---- tokens (verify_ptx_tables.c) */

/* Gives each row of the part a position and a sequence, which are in no order. */
void verify_ptx_coordinates(PtxTrial *trial);
/* Tables get an entry for each coordinate. */
void verify_ptx_table_shape(const PtxTrial *trial, int tensor, iso_tensor *shape);
/* The length of the tensor's axis that is a coordinate of this kind; 0: it has none. */
i64 verify_ptx_table(const PtxTrial *trial, int tensor, MfCoordinate kind);
/* Sets what a run needs of them; false if memory is short. */
bool verify_ptx_pass_coordinates(PtxTrial *trial);

/* ---- attention (verify_ptx_attend.c) */

/* Makes requests and rows, and where their keys lie. */
void verify_ptx_keys(PtxTrial *trial);
/* Whether attention reads the tensor by copies of 16 bytes. */
bool verify_ptx_copied(const MfSpec *spec, int tensor);
/* Whether the tensor holds keys or values: its shape then, and its elements. */
bool verify_ptx_stored(const PtxTrial *trial, int tensor);
void verify_ptx_shape(const PtxTrial *trial, int index, iso_tensor *tensor);
void verify_ptx_fill_keys(PtxTrial *trial, int tensor);
/* Sets what a run needs of the requests; false if memory is short. */
bool verify_ptx_pass_keys(PtxTrial *trial, iso_run *run);
/* The same for the executor, once they are passed. */
/* Keys of a request at most; what is written of a rank's roots where ranks share keys. */
i64 verify_ptx_most_keys(const PtxTrial *r);
i64 verify_ptx_roots_seen(const PtxTrial *r);
isoc_keys verify_ptx_executor_keys(const PtxTrial *trial);
/* And for terms. */
const TermsKeys *verify_ptx_terms_keys(const PtxTrial *trial);
/* An axis of the tensor that is a coordinate of this kind, or -1. */
int verify_ptx_coordinate_axis(const PtxTrial *trial, int tensor, MfCoordinate kind);

/* ---- grouped products (verify_ptx_group.c) */

/* Fills the tensor if it says where slots stand. */
void verify_ptx_group_fill(PtxTrial *trial, int tensor);
/* Finds the items that this makes; the machine gets as many multiprocessors as CTAs are wanted. */
void verify_ptx_group_open(PtxTrial *trial);
/* Whether its rows have that order as they stand; starts it so. */
bool verify_ptx_group_sorts(const PtxTrial *trial);
iso_status verify_ptx_group_start(PtxTrial *trial, const iso_op *op, int tensors);
/* Whether a CTA runs, given which columns' tiles are chosen; how many elements those that run have
 * (of each product), given the width of a columns' tile. */
bool verify_ptx_group_wanted(const PtxTrial *trial, i64 cta,
                             bool (*chosen)(const PtxTrial *, i64));
i64 verify_ptx_group_area(const PtxTrial *trial, bool (*chosen)(const PtxTrial *, i64),
                          i64 (*width)(const PtxTrial *, i64));

/* The place of element `at` of memory among the elements without gaps; -1: in a gap. */
static inline i64 verify_ptx_flat(const PtxTensor *t, i64 at)
{
    return at % t->pitch < t->line ? at / t->pitch * t->line + at % t->pitch : -1;
}

static inline u64 verify_ptx_scatter(u64 x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

enum { PTX_INPUT_PARAM = 1, PTX_INPUT_ROOTS = 1000 }; /* of parameter 0; of rank 0's roots */

#endif
