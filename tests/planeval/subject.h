/* What is compared: a contract with its meaning and its plans, from a file or built in memory.
 * Ownership: a subject owns its memory until subject_close. */
#ifndef PLANEVAL_SUBJECT_H
#define PLANEVAL_SUBJECT_H

#include "exec/exec.h"
#include "plan/plan.h"

enum { MOST_TENSORS = 16 };

typedef struct Subject {
    Arena *arena;
    const Contract *contract;
    const Dag *dag;
    const Plan *plan;
    void *owner;
} Subject;

/* A layer in memory with small sizes and layouts of several kinds; odd: with trees that round. */
bool subject_small(Subject *subject, bool odd);
/* A contract's file, all its layouts; prints why not. */
bool subject_file(Subject *subject, const char *path);
void subject_close(Subject *subject);

/* One op's tensors in memory, filled from a seed. Axes whose product is large share elements: rows
 * of a weight overlap, each at its own shift, so that no weight is held in full. */
typedef struct Sample {
    const OpDag *op;
    i64 rows;
    ExecTensor params[MOST_TENSORS], results[MOST_TENSORS];
    i64 param_size[MOST_TENSORS], result_size[MOST_TENSORS]; /* elements in memory */
    int *positions;
    ExecBox box; /* long atoms by lists */
} Sample;

void sample_make(const Subject *subject, const OpDag *op, i64 rows, int kind, u64 seed,
                 Arena *arena, Sample *sample);
/* The result over the box, packed row-major as the evaluator of plans writes it. */
void *sample_packed(const Subject *subject, const Sample *sample, int result, size_t *bytes,
                    Arena *arena);

#endif
