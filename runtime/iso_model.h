/* Models: the statements of a contract's `model` run as one, on one rank or over a group, on a
 * CUDA stream or on the CPU executor.
 *
 * A step takes a packed batch of rows, each a token of some sequence at some position: a prefill, a
 * chunk of one, decoding, the verification of drafted tokens, the scoring of whole sequences, or
 * any mix. A row's bits do not depend on which of these it is, nor on its neighbours.
 *
 * Ownership: a model lives until iso_model_unload and owns its weights, its memory, its cache and
 * its graphs; its module and its group must outlive it. Arrays of a step are the caller's, in host
 * memory, and are not kept.
 * Threads: one thread at a time may use a model. Models over a group are stepped by every rank in
 * the same order, with the same rows.
 * No call but iso_model_load allocates device memory; iso_model_step returns when its outputs are
 * in place. */
#ifndef ISO_MODEL_H
#define ISO_MODEL_H

#include "iso_group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct iso_model iso_model;

/* Zero-initialise, set `size`, then what differs from the default. */
typedef struct iso_model_config {
    size_t size;           /* sizeof(iso_model_config) */
    const char *weights;   /* a folder with model.safetensors or with shards and their index; a
                              .safetensors or .gguf file; "seed:N": numbers made from N */
    const uint8_t *digest; /* 32 bytes: iso_model_weights of these weights, where that is known;
                              NULL: it is computed, for which all of them are read */
    const char *layout;    /* NULL: one rank */
    iso_group *group;      /* this rank's; NULL where the layout has one rank */
    int64_t max_rows;      /* of a step */
    int max_sequences;     /* of a step */
    int64_t max_position;  /* positions of a sequence */
    int page;              /* positions of a page of the cache */
    int64_t pages;         /* of the cache; 0: no cache, every step is packed */
    int64_t output_rows;   /* wanted rows that are finished at a time, what follows the last repeat
                              being run for them alone; 0: 1024 */
    int64_t graph_rows;    /* steps of at most so many rows are CUDA graphs; 0: none */
} iso_model_config;

/* What a model needs of its rank, before it is loaded. */
typedef struct iso_model_sizes {
    size_t group;   /* iso_group_config.bytes */
    size_t weights; /* bytes of this rank's parts */
    size_t cache;
    size_t memory;  /* of values, inputs and workspaces */
    int page_ranks; /* that share the cache, by whole splits of keys (LANGUAGE.md, 9.8); 1: none */
    int64_t page_positions; /* of a split */
} iso_model_sizes;

/* Where n ranks share the cache each has 1 / n of its pages, page g lying on rank g % n of these,
 * and pages divide splits. Page i of a sequence must be one of rank
 * (pages[0] + i * page / page_positions) % n; pages[0] may be any page.
 * `rank` is the rank in the layout; config->group is not looked at, nor are the weights opened.
 * Statuses as iso_model_load's. */
iso_status iso_model_size(const iso_module *module, const iso_model_config *config, int rank,
                          iso_model_sizes *sizes);

/* Collective over the group. ISO_NO_MODEL where the contract has none; ISO_UNKNOWN_LAYOUT,
 * ISO_BAD_RANK, ISO_FILE, ISO_BAD_WEIGHT (a weight is missing, or has another shape), ISO_WEIGHTS
 * (ranks have others), ISO_GROUP_BYTES, ISO_OUT_OF_MEMORY, ISO_DRIVER. *model is NULL on failure.
 */
iso_status iso_model_load(iso_model **model, const iso_module *module,
                          const iso_model_config *config);
/* No step may be running. NULL is ignored. */
void iso_model_unload(iso_model *model);

/* A digest of the weights, whole: the same for every layout and storage. What trainer and sampler
 * compare beside the fingerprint. */
iso_status iso_model_weights(const iso_model *model, uint8_t digest[32]);

/* ---- steps ----------------------------------------------------------------------------------- */

/* Rows of one sequence, at position, position + 1, ... With pages, row and key p of the sequence
 * lie in the cache's page pages[p / page]: rows before these must be there, these are written. With
 * pages NULL the sequence begins here, at position 0, and is not kept. The sequences of a step are
 * all the one or all the other. */
typedef struct iso_sequence {
    int64_t id; /* for iso_trace: which one it is, whatever the step */
    int64_t position;
    int rows;
    const int32_t *pages;
} iso_sequence;

/* An array of one element, or row of elements, for each row: f32, bf16 as bits, int32 for indices.
 */
typedef struct iso_value {
    const char *name;
    void *data;
    size_t bytes;
} iso_value;

typedef struct iso_step {
    const iso_sequence *sequences; /* rows are numbered through them in order */
    int n_sequences;
    const iso_value *inputs; /* for every row; those that no asked output needs may be left out */
    int n_inputs;
    const int32_t *wanted; /* the rows whose outputs are asked; NULL: all */
    int n_wanted;          /* 0 with wanted NULL: all */
    const iso_value *outputs; /* arrays of the wanted rows, whole: this rank writes its part */
    int n_outputs;            /* 0: only the cache is written */
} iso_step;

/* Where a layout cuts the rows of `attend`, as context parallelism does, every rank keeps the keys
 * and values of all rows, and a step that is no graph deals its rows out in zigzag, so that ranks
 * have as many keys to see. Neither moves a bit, and arrays are as without.
 *
 * Runs what the asked outputs need. ISO_INVALID_ARGUMENT, ISO_STEP_ROWS (more rows, sequences or
 * positions than the model was loaded for), ISO_PAGES (a page that the cache does not have),
 * ISO_BAD_TENSOR (an input or output of another size), and what a group reports. */
iso_status iso_model_step(iso_model *model, const iso_step *step);

/* Names in the contract's order; NULL past the end. */
const char *iso_model_input_name(const iso_module *module, int index);
const char *iso_model_output_name(const iso_module *module, int index);
/* Shape and dtype of an input or output for that many rows, whole; data NULL. */
iso_status iso_model_value(const iso_module *module, const char *name, int64_t rows,
                           iso_tensor *tensor);
/* The model's rope table of that number, whole, in the dtype that the contract gives it: cosines
 * and sines of `positions` rows, row-major. bytes: of each array. ISO_BAD_COUNT past the last
 * table, ISO_BAD_TENSOR for arrays of another size. */
iso_status iso_model_table(const iso_module *module, int table, int64_t positions, void *cos,
                           void *sin, size_t bytes);
/* The part of an output that this rank writes, as iso_op_held has it, for at most output_rows
 * wanted rows: more are finished in turns of so many, each of them cut so. */
iso_status iso_model_part(const iso_model *model, const char *output, int64_t rows,
                          iso_tensor *tensor, int64_t origin[ISO_MAX_AXES]);

/* ---- what was computed ----------------------------------------------------------------------- */

/* Steps from here on write what ops give, this rank's part of it, to a file of this rank in the
 * folder, which must exist. ops: names as "qkv,down"; NULL: all. folder NULL: no longer. */
iso_status iso_model_trace(iso_model *model, const char *folder, const char *ops);

/* The first element, in the order of the ops as they run, then of sequences, rows and indices, that
 * two folders have and have unequal. */
typedef struct iso_difference {
    char op[128], value[128];
    int turn; /* of the repeat; -1: outside */
    int64_t sequence, position, index; /* index: in the row, whole */
    uint32_t a, b;                     /* the elements' bits */
    int64_t compared, differ;          /* elements, all in all */
} iso_difference;

/* Rows are met by their sequence's id and position, whatever the layouts, pages and chunks were;
 * the last writing of a row counts. ISO_FILE, ISO_NOT_ISO, ISO_OUT_OF_MEMORY; *difference has
 * differ = 0 where nothing differs. */
iso_status iso_trace_diff(const char *a, const char *b, iso_difference *difference);

/* A test aid: in the following steps flips the last bit of one element of what an op gives.
 * op NULL: no longer. */
typedef struct iso_fault {
    const char *op;
    int result; /* of the op's */
    int turn;   /* -1: outside of a repeat */
    int64_t sequence, position, index;
} iso_fault;
iso_status iso_model_fault(iso_model *model, const iso_fault *fault);

/* The kernels that a step of that many rows launches, one call of `line` for each: op, turn (-1:
 * outside of a repeat) and the kernel's name. */
typedef void (*iso_kernel_line)(void *user, const char *op, int turn, const char *kernel);
iso_status iso_model_kernels(const iso_model *model, int64_t rows, iso_kernel_line line,
                             void *user);

#ifdef __cplusplus
}
#endif
#endif
