/* The compiler as a library: all that the runtime, and any other program, may see of it.
 *
 * Ownership: a result or session owns what it points to until its free call; inputs are copied.
 * Threads: calls are independent; one session may be used by one thread at a time.
 * Nothing prints and nothing exits: messages come back as text. */
#ifndef ISOC_H
#define ISOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first seven are the exit codes of the command. */
typedef enum isoc_status {
    ISOC_OK = 0,
    ISOC_ERROR_CONTRACT = 1,
    ISOC_ERROR_USAGE = 2,     /* an unknown layout or op, a file that cannot be read, NULL */
    ISOC_ERROR_TOOLCHAIN = 3, /* NVRTC is missing or refused the text */
    ISOC_BITS_DIFFER = 4,
    ISOC_INCONCLUSIVE = 5,
    ISOC_ERROR_MEMORY = 6,
    ISOC_ERROR_ARTIFACT = 7,  /* not a cubin of isoc's, or damaged */
} isoc_status;

/* ---- compiling ------------------------------------------------------------------------------- */

typedef struct isoc_options {
    size_t size;            /* sizeof(isoc_options); zero-initialise the rest */
    const char *arch;       /* NULL: "sm_90a" */
    const char *layout;     /* NULL: all of the contract's */
    const char *cache_dir;  /* NULL: $ISOC_CACHE, else the user's cache folder; "": none */
    int jobs;               /* threads at most, 0: any number; the output does not depend on it */
} isoc_options;

typedef struct isoc_result {
    void *cubin;            /* with its manifest section; NULL on failure */
    size_t cubin_size;
    char *messages;         /* diagnostics as text, "" if none; never NULL but for lack of memory */
    void *memory;           /* private */
} isoc_result;

/* Compiles a contract file. */
isoc_status isoc_compile_file(const char *path, const isoc_options *options, isoc_result *result);
void isoc_result_free(isoc_result *result);

/* ---- artefacts ------------------------------------------------------------------------------- */

/* Finds the manifest in a cubin's bytes (it points into them; not zero-terminated) and checks that
 * the cubin's own bytes have the digest that the manifest states. *intact tells the latter.
 * ISOC_ERROR_ARTIFACT where there is no manifest section or the file is damaged. */
isoc_status isoc_cubin_manifest(const void *cubin, size_t size, const char **json,
                                size_t *json_size, bool *intact);

/* ---- the CPU executor ------------------------------------------------------------------------ */

/* A contract ready to be executed on the CPU: the written definition of its bits. */
typedef struct isoc_session isoc_session;

typedef struct isoc_source {
    const char *name, *text; /* zero-terminated */
} isoc_source;

/* Opens a contract from its files' texts, the main file first; includes are looked up by the names
 * that the manifest's sources have. On failure *messages (free() it) says why. */
isoc_status isoc_session_open(const isoc_source *sources, size_t n, isoc_session **session,
                              char **messages);
void isoc_session_close(isoc_session *session);
void isoc_session_fingerprint(const isoc_session *session, uint8_t digest[32]);

/* A tensor at the rank's own first element; strides in elements per declared axis. */
typedef struct isoc_tensor {
    void *data;
    const int64_t *stride;
} isoc_tensor;

/* Some indices of one atom of the results: a sample of them. */
typedef struct isoc_selection {
    const char *axis;     /* an axis without factors; the ragged axis for rows */
    const int64_t *index; /* ascending, global */
    size_t n;
} isoc_selection;

typedef enum isoc_phase { ISOC_RUN, ISOC_PART, ISOC_JOIN } isoc_phase;

/* Where keys and values of `attend` lie: as iso_keys of libiso. */
typedef struct isoc_keys {
    const int32_t *lengths, *starts, *block_table;
    int64_t block_table_stride;
    int page;
    int64_t most_keys; /* where ranks share the keys: by it roots have their places */
    const int32_t *turns;
} isoc_keys;

typedef struct isoc_call {
    const char *op, *layout; /* layout "": one rank */
    int rank;
    isoc_phase phase;
    int64_t rows;               /* global */
    int64_t live_rows;          /* of this rank's tensors; negative: all */
    const int32_t *positions, *sequences; /* of each row of this rank, for tables; else NULL */
    const isoc_keys *keys;      /* `attend`; NULL: by the strides, as far as a causal row sees */
    const isoc_tensor *tensors; /* parameters, then results */
    float *roots;               /* PART writes, as iso_op_roots lays them out */
    const float *const *sources; /* JOIN reads, one per rank of the layout */
    const isoc_selection *select; /* RUN: only these results are computed; NULL: all */
    size_t n_select;
    int threads;
} isoc_call;

isoc_status isoc_session_run(isoc_session *session, const isoc_call *call);

#ifdef __cplusplus
}
#endif
#endif
