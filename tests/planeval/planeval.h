/* An evaluator of serialised plans: what their kernels would compute, element by element, leaf by
 * leaf in the kernels' own order. It knows nothing of the contract's trees and includes nothing of
 * the compiler but the text of the scalar functions, which the language defines as that text.
 * Ownership: a program that runs once; what it reads it keeps until it ends. */
#ifndef PLANEVAL_H
#define PLANEVAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { AXES_MOST = 8, ATOMS_MOST = 64, VALUES_MOST = 3 };

typedef enum Type { BF16, F16, F32 } Type;

/* ---- arithmetic (arith.c) -------------------------------------------------------------------- */

float as_f32(Type type, uint32_t bits);
uint32_t as_bits(Type type, float x); /* rounded; NaN canonical */
float rounded(Type type, float x);
float add(float a, float b);
float mul(float a, float b);
float fma_once(float a, float b, float c);
float binary(const char *kind, float a, float b);
float greater(float a, float b);
/* By its name in the language; false if there is none. */
bool function(const char *name, float a, float b, float *out);

typedef struct StepClass {
    int group, bits, floor, out_bits;
} StepClass;

/* One tensor-core step in integers: `group` pairs of patterns and an f32 accumulator. */
float step(const StepClass *cls, Type type, const uint32_t *a, const uint32_t *b, float c);

/* ---- the plan (read.c) ----------------------------------------------------------------------- */

typedef struct Fixed {
    int atom;
    int64_t at;
} Fixed;

typedef struct Shape {
    const char *name;
    Type type;
    bool integers;
    int n_axes, n_atoms[AXES_MOST];
    int *atoms[AXES_MOST];
} Shape;

typedef struct Node {
    const char *kind, *name; /* name: of a function or monoid */
    Type type;
    int param, n_args, args[3], n_fixes, n_over;
    Fixed *fixes;
    int *over;
    uint32_t bits;
    int slots; /* a reduce of slots, a top: their atom; -1 */
    int groups, keep, group_sum;
    bool by_index;
} Node;

typedef struct Piece {
    int result, n_fixes, value;
    Fixed *fixes;
} Piece;

typedef struct PlanOp {
    const char *name;
    int n_params, n_results, n_nodes, n_pieces;
    Shape *params, *results;
    Node *nodes;
    Piece *pieces;
} PlanOp;

typedef struct Program { /* after root i: n_ops[i] of ops */
    int n_roots, *n_ops;
    struct ProgramStep {
        bool join;
        Type type;
    } *ops;
} Program;

typedef struct Binding {
    bool result;
    int tensor, n_fixes, n_has, group;
    Fixed *fixes;
    bool has[AXES_MOST];
} Binding;

typedef struct Product {
    int reduce, b;
} Product;

typedef struct Group {
    int n_cols, *cols, n_products, n_pieces, *pieces;
    Product *products;
} Group;

typedef struct Leaf { /* runs of elements, relative to the rank's part */
    int n;
    int64_t (*runs)[2];
} Leaf;

typedef struct RowReduce {
    int reduce, n_leaves;
    bool chain_add;
    Leaf *leaves;
    Program program;
} RowReduce;

typedef struct Kernel {
    const char *family;
    const PlanOp *op;
    int n_bindings, n_pieces, *pieces;
    Binding *bindings;
    int n_dims, n_dim_atoms[AXES_MOST], *dims[AXES_MOST];
    int chosen; /* of grouped products: where their rows' slots stand; -1: they are not grouped */
    int a, n_rows, *rows, n_k, *k, n_groups; /* gemm, and a join of products */
    Group *groups;
    int n_leaves;
    Leaf *leaves;
    Program program; /* gemm, join */
    bool roots_out;
    int n_roots;
    int n_reduces;
    RowReduce *reduces;  /* row */
    int *joined;         /* join: nodes */
    int n_sources, *roots_of_rank;
} Kernel;

typedef struct Part {
    int64_t lo[ATOMS_MOST], hi[ATOMS_MOST];
    int rows_index, rows_count;
} Part;

typedef struct Placed { /* an op in a layout */
    const PlanOp *op;
    const char *layout;
    int ranks, n_variants, join;
    Part *parts, *finish;
    int **sources;
    struct {
        int64_t lo, hi;
        int *kernel;
    } *variants;
} Placed;

typedef struct Plan {
    StepClass cls;
    int n_atoms, *coordinate_of;
    int *slots_of; /* atom whose elements a token's slots are; -1 */
    int64_t *size; /* 0: free */
    int n_ops, n_kernels, n_placed;
    PlanOp *ops;
    Kernel *kernels;
    Placed *placed;
} Plan;

void plan_read(json_t *root, Plan *plan);
void *room(size_t count, size_t size);
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* ---- running (kernels.c) --------------------------------------------------------------------- */

typedef struct Memory {
    const void *data;
    int64_t offset, stride[AXES_MOST]; /* by declared axis, in elements */
} Memory;

typedef struct Machine {
    const Plan *plan;
    const Placed *at;
    int64_t rows;
    const int64_t *coordinates; /* position of each row; NULL: none */
    const Memory *params;
    struct RowCache *cache; /* per rank: the reduces of the row last met */
} Machine;

void machine_init(Machine *machine);
/* The element as `rank` would write it; false if that rank does not. */
bool machine_element(Machine *machine, int rank, int result, const int64_t *index, uint32_t *bits);

#endif
