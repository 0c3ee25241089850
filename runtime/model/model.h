/* What a model holds: its statements written out for every turn of their repeats, and where values,
 * weights, caches and a step's arrays lie; shared by the files of libiso, not public.
 * Ownership: iso_model owns everything here but its module and group.
 *
 * Calls before the `tail` run for all rows of a step, those from there on for wanted rows alone,
 * some at a time: no row depends on another but through a cache. */
#ifndef ISO_MODEL_IMPL_H
#define ISO_MODEL_IMPL_H

#include "group/group_plan.h"
#include "iso_model.h"

/* ---- the program (model_program.c) ----------------------------------------------------------- */

typedef enum SlotSource { SLOT_INPUT, SLOT_TABLE, SLOT_CACHE, SLOT_OP } SlotSource;

/* A value in one turn. */
typedef struct Slot {
    int value, turn;
    SlotSource source;
    int from;        /* the input, the table, the cache in its turn, or the call that gives it */
    int result;      /* of that call */
    int first, last; /* calls between which it is needed */
    bool crosses;    /* the tail uses it, what is before gives it */
    bool brought;    /* a cache's: ranks have its rows cut between them, all are brought here */
    size_t row_bytes; /* of this rank's part */
    size_t offset, gathered; /* in the memory of values; its wanted rows */
} Slot;

typedef struct CallArgument {
    bool weight;
    int index; /* of pieces or slots */
} CallArgument;

typedef struct ModelCall {
    int statement; /* -1: rows of a cache are written */
    int turn;
    int cache;     /* in its turn; -1: an op */
    int of;        /* cache: the slot that is written */
    CallArgument *arguments;
    int *results; /* slots */
} ModelCall;

typedef struct CacheTurn {
    int cache, turn;
    int slot; /* of what it is read as */
} CacheTurn;

/* A weight in one turn, as one parameter takes it. */
typedef struct WeightUse {
    int weight, turn, statement, parameter;
    int piece; /* in memory */
} WeightUse;

typedef struct Program {
    const Manifest *manifest;
    const MfModel *model;
    int n_calls, n_slots, n_caches, n_uses;
    ModelCall *calls;
    Slot *slots;
    CacheTurn *caches;
    WeightUse *uses;
    int tail;     /* the first call of it */
    int *outputs; /* slots */
    void *memory[8];
    CallArgument *all_arguments;
    int *all_results;
} Program;

/* ISO_NO_MODEL, ISO_OUT_OF_MEMORY; close it in any case. */
iso_status program_open(Program *program, const Manifest *manifest);
void program_close(Program *program);
/* Marks the calls that the outputs need, and with `caches` those that write the cache. */
void program_needs(const Program *program, const bool *outputs, bool caches, bool *calls);

/* A stretch of memory that is in use from one call to another. */
typedef struct Interval {
    int first, last;
    size_t bytes, *offset;
} Interval;

/* Gives every interval an offset so that none shares memory with another of its time; returns the
 * bytes that they take together. */
size_t plan_intervals(Interval *intervals, int n);

/* ---- memory (model_device.c) ----------------------------------------------------------------- */

/* Where a model's memory is. Rows are copied by the kernel of model_ptx.c, on the CPU by memcpy. */
typedef struct Device {
    const Driver *driver; /* NULL: the CPU */
    CuStream stream;
    CuModule kernels;
    CuFunction rows;
} Device;

/* Row i of `from`, or the one that from_index says, becomes row i of `to`, or the one that to_index
 * says. Negative indices name no row. */
typedef struct RowCopy {
    void *to;
    const void *from;                     /* the row numbered `first` */
    const int32_t *to_index, *from_index; /* on the device; NULL: i */
    int64_t rows;
    int64_t first, count; /* the rows that `from` has: others stay out; count 0: all */
    size_t row_bytes;     /* even */
} RowCopy;

iso_status device_open(Device *device, const iso_module *module);
void device_close(Device *device);
/* Aligned to 256 bytes, zeroed. */
iso_status device_new(const Device *device, size_t bytes, void **memory);
void device_free(const Device *device, void *memory);
/* In host memory that copies go to and from without the driver's waiting. */
iso_status device_host_new(const Device *device, size_t bytes, void **memory);
void device_host_free(const Device *device, void *memory);
/* Waits until they are there; nothing of the model is running. */
iso_status device_write(const Device *device, void *to, const void *from, size_t bytes);
iso_status device_read(const Device *device, void *to, const void *from, size_t bytes);
/* In order on the stream; host memory is device_host_new's, or the stream is synchronised first. */
iso_status device_copy(const Device *device, void *to, const void *from, size_t bytes);
iso_status device_fill(const Device *device, void *to, unsigned char value, size_t bytes);
iso_status device_rows(const Device *device, const RowCopy *copy);
iso_status device_sync(const Device *device);

extern const char model_ptx[];

/* ---- weights (model_weights.c) --------------------------------------------------------------- */

/* A part of a weight in memory, shared by all that use the same part of the same name. */
typedef struct Piece {
    int weight, turn;
    iso_tensor tensor;
    Box box;
} Piece;

typedef struct Pieces {
    int n;
    Piece *piece;
    size_t bytes;
} Pieces;

/* ---- a step's arrays (model_batch.c) --------------------------------------------------------- */

enum { HEAD, TAIL, PASSES, MAX_SHARES = 8, MAX_INPUTS = 16 };

/* One stretch of memory, on the host and on the device, written once per step. Offsets are in
 * bytes; arrays of rows have room for max_rows. */
typedef struct Batch {
    char *host, *device; /* the same memory on the CPU */
    size_t positions[PASSES], sequences[PASSES], inputs[PASSES][MAX_INPUTS]; /* of rows; wanted */
    size_t places;                 /* of a row in the cache, int64; -1: none */
    size_t wanted;                 /* rows */
    size_t order;                  /* of the step, for each row as it runs */
    size_t live[PASSES];           /* rows of each share */
    size_t lengths, starts, turns, table; /* of sequences */
    size_t fixed, bytes;           /* what lies before the table; all */
    int64_t table_stride;
    size_t input_bytes[MAX_INPUTS]; /* of a row */
    int32_t *runs_at;               /* for each row of the step, on the host */
} Batch;

/* How this rank's rows of an op lie among all. */
typedef struct RowShare {
    int index, count;
} RowShare;

/* A step on its way. */
typedef struct Pass {
    const iso_step *step;
    int64_t rows, run_rows; /* run_rows: with those that fill a bucket */
    int64_t wanted;
    bool whole;             /* every row is wanted, in the order in which rows run */
    bool dealt;             /* rows run in another order than the step's */
    bool paged, live;       /* live: the device says how many rows there are */
    int64_t first, part;    /* wanted rows that the tail is at */
    int most_rows;          /* of one sequence, and keys; a bucket's are rounded up */
    int64_t most_keys;
    const iso_value *inputs[MAX_INPUTS];
} Pass;

/* The row of the step that is wanted in place i. */
static inline int64_t pass_wanted(const Pass *pass, int64_t i)
{
    return pass->step->wanted ? pass->step->wanted[i] : i;
}

/* Bytes of one row of an input's or output's value, whole: what a caller passes of it. */
size_t batch_row_bytes(const iso_model *model, int value);

iso_status batch_open(iso_model *model);
void batch_close(iso_model *model);
/* Fills the arrays and sends them. */
iso_status batch_fill(iso_model *model, const Pass *pass);

/* ---- the model (model_load.c) ---------------------------------------------------------------- */

typedef struct StatementOp {
    const iso_op *op;
    uint64_t placed; /* parameters that are given as the op needs them, not as they are held */
    int share;
    bool keys;       /* reads a cache */
} StatementOp;

/* How ranks share the keys of a sequence: by whole splits, `pieces` of them; 1: they do not. Page g
 * of the cache is page g / pieces on rank g % pieces. */
typedef struct KeyShare {
    int piece, pieces;
    int64_t split; /* positions */
} KeyShare;

typedef struct Trace Trace;
typedef struct Graph Graph;

struct iso_model {
    const iso_module *module;
    iso_group *group;
    int rank, ranks;
    const char *layout;
    iso_model_config config;
    Program program;
    StatementOp *ops; /* per statement */
    int n_shares;
    RowShare shares[MAX_SHARES];
    Pieces pieces;
    size_t value_bytes, workspace_bytes, cache_bytes, group_bytes;
    size_t *cache_row; /* bytes of a row of each cache in its turn */
    int deal;          /* ranks that share out the rows of `attend`; 1: none do */
    KeyShare keys;
    /* of the loaded model */
    Device device;
    uint8_t digest[32];
    char *values, *workspace;
    void **caches, **tables; /* per cache in its turn; per table cos, sin */
    Batch batch;
    bool *needed, *asked; /* scratch: calls, outputs */
    Trace *trace;
    iso_fault fault;
    char fault_op[128];
    bool shares_gpu; /* with other ranks, as threads of one process */
    Graph *graphs;
    char *out;      /* outputs on their way to the caller */
    size_t out_bytes;
    int64_t paired; /* pairs of calls that ran in one launch or share an order of rows */
};

/* The layout's part of the model: ops, parts, sizes; nothing is allocated on the device. */
iso_status model_plan(iso_model *model, const iso_module *module, const iso_model_config *config,
                      int rank);
/* What this rank has of a slot for that many rows in all; the box of the whole tensor. */
iso_status model_slot_box(const iso_model *model, int slot, int64_t rows, const MfTensor **tensor,
                          Box *box);
void whole_box(const Manifest *manifest, const MfTensor *tensor, int64_t rows, Box *box);
/* Of each of this rank's caches. */
int64_t model_cache_pages(const iso_model *model);
/* The piece of the keys that has a position of a sequence whose first page is this one. */
int model_key_piece(const iso_model *model, int32_t first_page, int64_t position);
/* As many of these rows as an op that shares keys takes at a time, by the group's memory. */
iso_status model_rows_at_once(const iso_model *model, const iso_op *op, int64_t rows, int64_t keys,
                              size_t bytes, int64_t *n);
int64_t model_tail_rows(const iso_model *model);
int64_t round_up(int64_t n, int64_t to);

#endif
