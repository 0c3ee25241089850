/* The CPU executor: the written definition of the language. It walks trees literally and shares
 * nothing with the emitter but the scalar functions' text.
 * Ownership: tensors belong to the caller; results of the calls live in the caller's arena. */
#ifndef ISOC_EXEC_H
#define ISOC_EXEC_H

#include "dag/dag.h"

/* A tensor in memory, addressed by global logical indices: element (i0, i1, ...) of the declared
 * axes lies at data + bytes(type) * (offset + sum i_k stride_k). A rank's shard is the same with
 * an offset, so that parts and wholes run the same code. Strides and offset in elements. */
typedef struct ExecTensor {
    void *data;
    i64 offset;
    i64 stride[MAX_TENSOR_AXES];
    /* Keys and values of `attend` that are packed or in pages: where row (sequence, position) lies,
     * in elements, at place[sequence * positions + position]. NULL: by the strides. */
    const i64 *place;
    i64 positions;
} ExecTensor;

/* Which results are wanted: per atom a list of indices (NULL: the range [lo, hi)). Reduced atoms
 * use the range only; for a rank's part it is that part. */
typedef struct ExecRange {
    i64 lo, hi;
    int n;
    const i64 *list;
} ExecRange;

typedef struct ExecBox {
    ExecRange atom[MAX_ATOMS];
    i64 free_length; /* of the free atoms: the extent of a reduction over one */
} ExecBox;

/* The whole box of a contract with free atoms of the given length. */
void exec_box_all(const Contract *contract, i64 free_length, ExecBox *box);

/* A rank's (or any) partial reduction: for each reduce of OpDag.reduces that the box cuts, the
 * values of the maximal nodes of its forest, in order.
 * values: [root][element of the reduce's own free atoms inside the box, row-major in the order of
 * exec_reduce_atoms][monoid_values]. `box` says which elements those are; NULL: those of the job
 * that joins. */
typedef struct ExecRoots {
    int reduce;   /* index into OpDag.reduces */
    Forest forest;
    i64 elements;
    float *values;
    const ExecBox *box;
} ExecRoots;

/* Keys of `attend` that ranks share by whole splits: split i of sequence s is on piece
 * (i + turns[s]) % pieces. A rank leaves the roots of its own, root k of a row being that of the
 * k-th split that the row sees of them: values, maximum, sum, 0, 0, at
 * ((row * places) + k) * (values + 4). */
typedef struct ExecSource {
    float *roots;
    i64 lo[MAX_ATOMS], stride[MAX_ATOMS]; /* of the row's atoms: the first index, in rows */
} ExecSource;

typedef struct ExecSplits {
    int pieces;
    int piece;        /* whose roots are written; -1: those of all are joined */
    const int *turns; /* NULL: zeros */
    i64 places;
    const ExecSource *source; /* of each piece; of the own one alone where that is written */
} ExecSplits;

typedef struct ExecJob {
    const Contract *contract;
    const OpDag *op;
    const ExecTensor *params, *results; /* as declared */
    ExecBox box;
    const int *positions;   /* of each token, for ops that use it; else NULL */
    const int *sequences;   /* sequence of each token, likewise; -1: of none, a row without keys */
    const int *lengths;     /* keys of each sequence; NULL: as far as a causal row sees */
    const ExecSplits *splits; /* NULL: all keys are here */
    int threads;            /* >= 1 */
} ExecJob;

/* Computes the results inside the box. The arena is scratch and may be freed by the caller
 * afterwards. False only when a reduce of the box is cut (use the two calls below), or when
 * `attend` lacks the coordinates or lengths that it needs. */
bool exec_op(const ExecJob *job, Arena *arena);

/* Writes the roots of job->splits->piece. */
bool exec_attend_part(const ExecJob *job, Arena *arena);

/* One roots record per cut reduce. False if a leaf would be cut, if what the box has of the
 * reduced axes is not one run of them, or if a cut reduce needs the value of another. */
bool exec_part(const ExecJob *job, ExecRoots **roots, int *n_roots, Arena *arena);

/* Finishes the op from all ranks' roots in order of rank: values are joined in tree order, then
 * the rest of the op is computed. The box has the full reduced ranges; its other ranges lie inside
 * those of the parts. False if the roots do not cover the tree. */
bool exec_join(const ExecJob *job, const ExecRoots *const *roots, const int *n_roots, int ranks,
               Arena *arena);

/* The reduce's own free atoms in the order of ExecRoots.values: as the op's results list them,
 * then by number. Returns how many. */
int exec_reduce_atoms(const Contract *contract, const OpDag *op, int reduce, int *atoms);

/* The joins as scalars, for tests and the join's definition: left operand first. Each operation
 * is rounded to `type`.
 *   sum        l + r
 *   max        NaN if either is NaN, else the greater, -0 below +0
 *   logsumexp  (m, s): m = max(lm, rm); f(a) = exp(a = m ? +0 : a - m);
 *              s = ls * f(lm) + rs * f(rm): two products, one sum; nothing contracted
 * The comparison a = m is of values; it keeps two infinities of one sign from making a NaN. */
void exec_join_values(Monoid monoid, DType type, const float *left, const float *right, float *out);

/* What an element gives (x; x; (x, +1)) and what the whole gives: the value itself, or m + log(s),
 * in `type` with each operation rounded. The value of a reduction with no element is +0, -Inf for
 * max and logsumexp. */
void exec_lift(Monoid monoid, float x, float *out);
float exec_final(Monoid monoid, DType type, const float *value);
float exec_of_nothing(Monoid monoid);

#endif
