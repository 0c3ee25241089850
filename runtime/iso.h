/* libiso: runs the kernels of a numerical contract.
 *
 * A module is a cubin made by isoc, or a contract (.iso) compiled at load time. From a module one
 * gets ops by name, layout and rank, and runs them on a CUDA stream or on the CPU executor. Two
 * modules with equal fingerprints give equal bits, on every device, layout and row count.
 *
 * Ownership: a handle lives until its own free/unload call; ops belong to their module. Tensors,
 * workspaces and root buffers are always the caller's.
 * Threads: handles are immutable after loading; calls on one module from several threads are safe
 * when their tensors and workspaces are distinct. iso_last_error is per thread.
 * Errors: every call returns a status; nothing prints, nothing exits. iso_status_string gives the
 * status's sentence, iso_last_error what was wrong in this call.
 * No call but iso_module_load* allocates device memory or synchronises; the run calls can be
 * captured in a CUDA graph. */
#ifndef ISO_H
#define ISO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ISO_VERSION_MAJOR 0
#define ISO_VERSION_MINOR 1
#define ISO_VERSION_PATCH 0
#define ISO_VERSION "0.1.0"

/* The version of the library that is linked, as opposed to the header's. */
const char *iso_version(void);

/* ---- status ---------------------------------------------------------------------------------- */

typedef enum iso_status {
#define X(id, value, sentence) ISO_##id = value,
#include "status.def"
#undef X
} iso_status;

/* A sentence; never NULL, also for values that are no status. */
const char *iso_status_string(iso_status status);
/* What was wrong in the last failing call of this thread, with names and numbers; "" if none.
 * Valid until the next failing call of the thread. */
const char *iso_last_error(void);

/* ---- modules --------------------------------------------------------------------------------- */

typedef struct iso_module iso_module;
typedef struct iso_op iso_op;

typedef enum iso_device {
    ISO_CUDA = 0, /* the calling thread's current CUDA context, else device 0's primary one */
    ISO_CPU = 1,  /* the executor: the same bits, slowly */
} iso_device;

/* Zero-initialise, set `size`, then what differs from the default. */
typedef struct iso_config {
    size_t size;           /* sizeof(iso_config) */
    iso_device device;
    int cpu_threads;       /* ISO_CPU: 0 = one per processor */
    const char *cache_dir; /* for .iso files; NULL = $ISOC_CACHE, else the user's cache folder */
} iso_config;

/* Loads a cubin, or compiles a .iso file (needs NVRTC unless the cache has it). config may be NULL.
 * ISO_FILE, ISO_NOT_ISO, ISO_CORRUPT, ISO_VERSION_MISMATCH, ISO_CONTRACT, ISO_TOOLCHAIN,
 * ISO_DRIVER, ISO_ARCHITECTURE, ISO_OUT_OF_MEMORY. *module is NULL on failure. */
iso_status iso_module_load(iso_module **module, const char *path, const iso_config *config);
/* The same from the bytes of a cubin; they are copied. */
iso_status iso_module_load_data(iso_module **module, const void *data, size_t size,
                                const iso_config *config);
/* No kernel of the module may be running. NULL is ignored. */
void iso_module_unload(iso_module *module);

/* SHA-256 over the contract's numerics: what trainer and sampler compare. */
iso_status iso_module_fingerprint(const iso_module *module, uint8_t digest[32]);
/* ISO_FINGERPRINT unless the module's fingerprint is this one. */
iso_status iso_module_expect(const iso_module *module, const uint8_t digest[32]);
iso_status iso_module_name(const iso_module *module, const char **name, int *version);
/* Names in the contract's order; NULL past the end. */
const char *iso_module_op_name(const iso_module *module, int index);
const char *iso_module_layout_name(const iso_module *module, int index);
iso_status iso_module_layout_ranks(const iso_module *module, const char *layout, int *ranks);
/* The manifest's text, JSON that ends with a NUL, which lives as long as the module;
 * compiler/cubin/manifest_write.h is its format. bytes, without the NUL, may be NULL. */
iso_status iso_module_manifest(const iso_module *module, const char **json, size_t *bytes);

/* ---- ops ------------------------------------------------------------------------------------- */

/* A layout by its name, or (name NULL) by the degrees of its meshes as "tp=4 cp=2" (the first
 * layout of those degrees); and the rank in it, row-major over the meshes in the layout's order,
 * first mesh outermost. */
typedef struct iso_layout {
    const char *name;
    const char *degrees;
    int rank;
} iso_layout;

/* layout NULL: the contract on one rank. ISO_UNKNOWN_OP, ISO_UNKNOWN_LAYOUT, ISO_BAD_RANK. */
iso_status iso_op_get(const iso_module *module, const char *name, const iso_layout *layout,
                      const iso_op **op);

/* I32: indices of an axis, one for each token (`ids: vocab[tokens]`). */
typedef enum iso_dtype { ISO_BF16 = 0, ISO_F16 = 1, ISO_F32 = 2, ISO_I32 = 3 } iso_dtype;

enum { ISO_MAX_AXES = 8 };

/* A tensor in place. Strides count elements, one per axis of the contract's declaration; fused and
 * padded storage is given by strides. `data` points at the first element of this rank's part: on
 * the device for ISO_CUDA, in host memory for ISO_CPU. */
typedef struct iso_tensor {
    void *data;
    iso_dtype dtype;
    int n_axes;
    int64_t shape[ISO_MAX_AXES];
    int64_t stride[ISO_MAX_AXES];
} iso_tensor;

/* RUN and PART: what the rank computes with. JOIN: what it finishes (its own rows). */
typedef enum iso_phase { ISO_PHASE_RUN = 0, ISO_PHASE_PART = 1, ISO_PHASE_JOIN = 2 } iso_phase;

/* How many tensors a call passes: parameters first, then results, as declared. */
iso_status iso_op_tensors(const iso_op *op, int *params, int *results);
/* For a global row count: shape, dtype and contiguous strides of tensor `index` as this rank passes
 * it in that phase; data is NULL. An axis of size 0 is a table's, indexed by iso_run.positions or
 * .sequences: pass any length that holds them all. name may be NULL. ISO_BAD_COUNT past the end. */
iso_status iso_op_tensor(const iso_op *op, iso_phase phase, int64_t rows, int index,
                         iso_tensor *tensor, const char **name);

/* Where that part begins in the whole tensor: one index per declared axis. With the shape, it is
 * what a loader needs to cut a checkpoint's tensor. */
iso_status iso_op_origin(const iso_op *op, iso_phase phase, int64_t rows, int index,
                         int64_t origin[ISO_MAX_AXES]);

iso_status iso_op_fingerprint(const iso_op *op, uint8_t digest[32]);
/* How many schedules the op has in this layout: kernels for different row counts or batches. Any of
 * them may be asked for by number at any row count; none moves a bit. */
iso_status iso_op_schedules(const iso_op *op, int *schedules);
/* 1 if ranks must exchange roots. */
iso_status iso_op_needs_join(const iso_op *op, int *needs);
/* Bytes of this rank's roots for this many global rows. */
iso_status iso_op_roots(const iso_op *op, int64_t rows, size_t *bytes);
/* The same of an `attend` whose keys ranks share, by the keys of one sequence at most. */
iso_status iso_op_roots_of_keys(const iso_op *op, int64_t rows, int64_t most_keys, size_t *bytes);
/* Bytes of scratch, 256-byte aligned, that a run or part with this many global rows needs; zero it
 * once before its first use: runs leave it ready for the next. schedule: as in iso_run. `attend`
 * over very many keys is faster with more. */
iso_status iso_op_workspace(const iso_op *op, int64_t rows, int schedule, size_t *bytes);

/* Keys and values of `attend`, tensors with the axes sequence and position. Key j of sequence s
 * lies, in steps of those axes' strides,
 *   with block_table  at (block_table[s * block_table_stride + j / page], j % page): a paged cache
 *                     [blocks, page, ...] as vLLM has it, pages of any size;
 *   with starts       at (0, starts[s] + j): a packed batch, starts as in cu_seqlens;
 *   with neither      at (s, j).
 * A row's sequence s counts the lengths, starts and rows of the table; a negative one sees no key.
 * Arrays are int32 on the device for ISO_CUDA. most_rows and most_keys are hints by which a
 * schedule is chosen; a wrong one costs time, no bit.
 * Where ranks share the keys by whole splits, n of them (LANGUAGE.md, 9.8), split i of sequence s
 * is on rank (i + turns[s]) % n of these, turns NULL being zeros; only a rank's own are read there.
 * Then most_keys must be given, the same on all ranks, and no sequence may have more. */
typedef struct iso_keys {
    const int32_t *lengths; /* keys of each sequence, these rows' own included; may be NULL for
                               causal attention: as far as a row sees */
    const int32_t *starts;
    const int32_t *block_table;
    int64_t block_table_stride; /* elements from one sequence's row to the next's */
    int page;                   /* keys of a block */
    int most_rows;              /* rows of one sequence that this run has at most; 0: unknown */
    int64_t most_keys;          /* keys of one sequence at most; 0: unknown */
    const int32_t *turns;
} iso_keys;

/* New rows of keys and values, and the paged caches that they go to. rows[i] is [tokens, ...],
 * cache[i] is [blocks, page, ...] with the same further axes, whose strides may differ (heads
 * before places too); all have the same tokens and page. Row r goes to slot s = slots[r], which is
 * place s % page of block s / page, as in vLLM's slot_mapping; a negative slot is skipped. Slots
 * must lie in the cache and differ from each other; on ISO_CUDA that is not checked. */
typedef struct iso_cache_rows {
    const iso_tensor *rows, *cache;
    int n;                      /* 1 to 4: keys and values at once */
    const int64_t *slots;       /* of each row, on the device for ISO_CUDA */
    const int32_t *rows_device; /* as in iso_run */
} iso_cache_rows;

/* Moves bytes, whatever they are; no part of a contract. The module, which must have an `attend`,
 * says on which device. */
iso_status iso_cache_write(const iso_module *module, const iso_cache_rows *what, void *stream);

/* How a run is made. `rows` is the global row count, before any cut. schedule: 0 chooses by the row
 * count, for `attend` by iso_keys' hints too; s > 0 takes schedule s - 1. rows_device: NULL, or a
 * device int32 with the live rows of this rank's tensors (for a join: of the roots that it reads,
 * which may have more rows than it finishes), at most what their shapes say; rows past it are left
 * untouched. positions and sequences are those of the rows that a rank computes, in a join too. */
typedef struct iso_run {
    int64_t rows;
    int schedule;
    int settled; /* not 0: the tensors without rows (weights) were written by what had ended when
                    this run was enqueued; products may load them while what is before still runs */
    const int32_t *rows_device;
    const int32_t *positions; /* of each row of this rank, where a table is indexed by them */
    const int32_t *sequences; /* likewise; NULL where no tensor of the op has such an axis */
    const iso_keys *keys;     /* `attend`: where its keys and values are; NULL: by their strides,
                                 as far as a causal row sees */
    void *workspace;
    size_t workspace_bytes;
    void *stream; /* CUstream; ISO_CPU ignores it and returns when done */
} iso_run;

/* Runs an op that needs no join. tensors: parameters, then results. */
iso_status iso_op_run(const iso_op *op, const iso_tensor *tensors, int n, const iso_run *run);
/* Computes this rank's roots into `roots` (iso_op_roots bytes, 256-byte aligned). Tensors that only
 * the join reads or writes (a residual, results) may have data NULL. */
iso_status iso_op_part(const iso_op *op, const iso_tensor *tensors, int n, void *roots,
                       const iso_run *run);
/* Joins all ranks' roots in tree order, left operand first, and finishes the op for the rows that
 * this rank owns. roots: one buffer per rank of the layout, in order of rank, readable here. */
iso_status iso_op_join(const iso_op *op, const void *const *roots, int ranks,
                       const iso_tensor *tensors, int n, const iso_run *run);

/* The kernel that a run with this many global rows launches; its name holds the hash of its text.
 * For logs and tests; "" where the rank is idle. */
iso_status iso_op_kernel(const iso_op *op, iso_phase phase, int64_t rows, int schedule,
                         const char **name);

#ifdef __cplusplus
}
#endif
#endif
