/* One op of a module with tensors on the device, and what the suite's tests do with it.
 * Ownership: a Case owns its buffers from case_open to case_close; the module is the caller's. */
#ifndef TEST_CASE_H
#define TEST_CASE_H

#include "gpu.h"

#include "module.h"

enum { MAX_TENSORS = 16, MAX_KERNELS = 256, MAX_RANKS = 16, POISON = 0xCD };

/* Kernels that have run, by name. */
typedef struct Seen {
    const char *names[MAX_KERNELS];
    int n;
} Seen;

typedef struct Totals {
    uint64_t runs, compared, differ, cpu_compared, cpu_differ;
    Seen kernels;
} Totals;

typedef struct Case {
    const iso_module *module;
    const MfOp *op;
    const iso_op *base; /* one rank */
    int kind;           /* of values */
    int64_t most;       /* rows of the base */
    int n, params;
    iso_tensor whole[MAX_TENSORS]; /* on the device, `most` rows */
    size_t bytes[MAX_TENSORS];
    DevicePtr expected[MAX_TENSORS]; /* the base's results */
    DevicePtr workspace, roots[MAX_RANKS];
    size_t workspace_bytes, roots_bytes;
    DevicePtr live;                /* an int32 */
    DevicePtr positions, sequences; /* of the base's rows */
    bool blind;     /* there is no base: nothing is compared */
    Seen *seen;     /* NULL, or where each run's kernels are noted */
    int shard, shards; /* which kernels are new at all: one share of all, by their hash */
    Totals *totals;
} Case;

/* One way to run an op. Rows from `live` on, which is at most `rows`, must stay untouched. */
typedef struct Way {
    const MfLayout *layout;
    int schedule;
    int64_t rows, live;
    int64_t shift; /* which of the base's rows is row 0 */
} Way;

/* Ends the program unless the call succeeded: a test that cannot run fails. */
void must(iso_status status, const char *what);

void case_open(Case *c, const iso_module *module, const MfOp *op, int kind, int64_t rows,
               Totals *totals);
void case_close(Case *c);
bool case_has_rows(const Case *c, int tensor);
/* Parameters from row `shift` of their values on; weights only where asked for. */
void case_fill(Case *c, bool weights, unsigned shift);
void case_poison(Case *c);
/* Runs the base in schedule 0 and keeps its results as the expected ones. */
void case_base(Case *c);

const iso_op *case_op(const Case *c, const MfLayout *layout, int rank);
/* The rank's views of the whole tensors. */
void case_views(Case *c, const iso_op *op, iso_phase phase, int64_t rows, iso_tensor *tensors);
/* A run with this case's stream and workspace; its rows are the base's, from row 0 on. */
iso_run case_run(Case *c, const iso_op *op, int64_t rows, int schedule);
/* All ranks one after another, each result compared with the base's rows. */
void case_way(Case *c, const Way *way);
/* Whether the way launches a kernel of this shard that was not seen yet. */
bool case_way_is_new(Case *c, const Way *way);
/* All bits of each result: live rows against the base's, the others against the poison. */
void case_compare(Case *c, const iso_op *op, const Way *way);

/* The sum of the four 16-bit words of r: nearly normal, with deviation 1. */
static inline float bell(uint64_t r)
{
    int64_t sum = (int64_t)(r & 0xffff) + (int64_t)(r >> 16 & 0xffff) +
                  (int64_t)(r >> 32 & 0xffff) + (int64_t)(r >> 48) - 2 * 0xffff;
    return (float)sum / 37837.0f;
}

/* Bytes of an element. */
static inline size_t element(const iso_tensor *t)
{
    return (size_t)manifest_dtype_bytes(t->dtype);
}

static inline size_t elements(const iso_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_axes; i++)
        n *= (size_t)t->shape[i];
    return n;
}

#endif
