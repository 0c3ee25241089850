/* Inputs and samples of `isoc verify`: which outputs are looked at, and what the tensors hold.
 * Ownership: memory of a Sample is mapped by sample_open and given back by sample_close. */
#ifndef ISOC_SAMPLE_H
#define ISOC_SAMPLE_H

#include "exec/exec.h"
#include "plan/plan.h"

typedef struct Sample {
    const Contract *contract;
    const Op *op;
    ExecBox box;          /* lists for the fixed atoms of results, whole ranges for the rest */
    u64 reduced;          /* atoms that some reduce of the op sums: parameters have all of them */
    i64 rows;
    ExecTensor *params, *expected, *actual;
    void **maps;
    size_t *sizes;
    int n_maps;
    int *positions, *sequences; /* of each row */
} Sample;

/* Element `at` of a tensor's memory, from a counter and the row that it belongs to: rows are of
 * several kinds. */
void sample_put(DType type, void *data, i64 at, u64 seed, i64 row);

enum { SAMPLE_INTEGERS = 40 }; /* integers are below it, but for some */

/* The same of a tensor of indices: of `list`, or NULL for those below n; some of them are no index
 * of the axis, which has `size`. */
void sample_put_index(void *data, i64 at, u64 seed, const i64 *list, i64 n, i64 size);

/* Chooses the outputs and fills the parameters. Tensors are as large as the contract says, but
 * only what the sample touches has memory. */
bool sample_open(Sample *sample, const Plan *plan, const OpDag *op, i64 rows, int columns,
                 u64 seed, Arena *arena);
void sample_close(Sample *sample);

/* The sample's part that lies in a box given by ranges. */
void sample_clip(const Sample *sample, const ExecBox *ranges, ExecBox *box, Arena *arena);
/* The results' elements in a box: how many; poisoned in `actual`; how many differ there. */
i64 sample_count(const Sample *sample, const ExecBox *box);
void sample_poison(const Sample *sample, const ExecBox *box);
i64 sample_differ(const Sample *sample, const ExecBox *box);
/* SHA-256 of the sampled outputs of `actual`, in order. */
Digest sample_digest(const Sample *sample, Arena *arena);
/* "tokens 33; hidden 0, 15, ..." */
void sample_print(const Sample *sample, Text *out);

#endif
