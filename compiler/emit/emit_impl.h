/* What the families' emitters share: a kernel being written, and expressions as statements.
 * Ownership: everything lives in the emission's arena. */
#ifndef ISOC_EMIT_IMPL_H
#define ISOC_EMIT_IMPL_H

#include "emit.h"
#include "writer.h"

/* A kernel's text in two halves, because its name is the digest of both: what stands at file
 * scope before the function, and the function's body. */
typedef struct KernelText {
    Arena *arena;
    const Contract *contract;
    const Kernel *kernel;
    Writer head, body;
    const char *family;
    const char *parameters; /* of the function */
    const char *arguments;  /* their structs' names */
    const char *bounds;     /* of __launch_bounds__ */
    int cluster;            /* CTAs; 0 as 1: no clusters */
    Str files;
    int threads;
    i64 shared_bytes;
    Census census;
} KernelText;

void emit_row(KernelText *k); /* and the join of a row's roots */
void emit_map(KernelText *k);
void emit_gemm(KernelText *k);
void emit_epilogues(KernelText *k); /* of a product or join */
void emit_attend(KernelText *k);
void emit_draw(KernelText *k);
void emit_top(KernelText *k);
void emit_join(KernelText *k); /* of a product's roots */
/* What the Op of a product has whose columns are reduced; the value of one of its reductions from
 * all ranks' roots (fold.c). */
void fold_write_op(KernelText *k);
Str fold_joined_text(Arena *arena, const Join *join, int index, int threads);
void emit_order(KernelText *k);

void emit_kernel(const Contract *contract, const Kernel *kernel, EmittedKernel *out, Arena *arena);

/* ---- expressions -----------------------------------------------------------------------------
 * One statement per node, in SSA form. bf16 and f16 values are held as their 16 bits, so that a
 * move keeps them; every operation on them widens, computes in f32 and rounds once. A scope sees
 * the values of the scopes around it. */
typedef struct ExprScope {
    Writer *w;
    const struct ExprScope *outer;
    Census *census;
    /* The text that reads an input here. */
    Str (*input)(void *user, const struct DagNode *node);
    /* The condition under which an ONLY has its operand's value here. */
    Str (*kept)(void *user, const struct DagNode *node);
    void *user;
    VEC(const DagNode *) nodes;
    VEC(Str) names;
} ExprScope;

/* The value's name or constant, after writing what it needs. */
Str expr_value(ExprScope *scope, const DagNode *node);
/* Whether the value is an operation, rounded to 16 bits and not yet done; in f32 before that. */
bool expr_rounds(const ExprScope *scope, const DagNode *node);
Str expr_unrounded(ExprScope *scope, const DagNode *node);
/* Gives a name to a value computed elsewhere. */
void expr_bind(ExprScope *scope, const DagNode *node, Str name);
/* All nodes below the given ones in topological order; a reduce is listed, not entered. */
typedef VEC(const DagNode *) DagNodes;
void expr_below(Arena *arena, const DagNode *const *values, int n, DagNodes *out);
/* Computes in this scope what of the values does not depend on `atoms`. */
void expr_hoist(ExprScope *scope, const DagNode *const *values, int n, u64 atoms);
/* The value as f32, widened where it is narrower. */
Str expr_f32(ExprScope *scope, const DagNode *node);
/* An f32 text rounded to a type and held as that type is held. */
Str expr_round_text(Arena *arena, DType type, Str value);
/* How a type is held: "float", or "IsoU16" as its bits. */
const char *expr_held(DType type);
/* What a reduce sums when its leaves may fuse: the factors of a product in f32, else NULL. */
const DagNode *expr_product(const DagNode *reduce);

/* ---- bindings and dims ----------------------------------------------------------------------- */

/* Index of the binding that reads the input, or takes the piece; group: Binding.group. */
int kernel_input(const Kernel *kernel, int group, const DagNode *node);
/* The binding that says what an ONLY keeps. */
int kernel_kept(const Kernel *kernel, int group, const DagNode *node);
int kernel_piece(const Kernel *kernel, int group, const DagPiece *piece);
const Tensor *binding_tensor(const Kernel *kernel, int binding);
u64 dim_mask(const PlanDim *dim);
bool dim_is_free(const Contract *contract, const PlanDim *dim);

/* ---- what ROW and MAP share: chunks of neighbouring elements along the inner dim -------------
 * In the text, binding k of the kernel has the row pointer pK, the inner step sK, and in a chunk
 * the packs xK (read) and yK (written). */
typedef struct Chunked {
    KernelText *k;
    int inner;  /* the inner dim */
    int width;  /* elements of a chunk: 16 bytes of the narrowest type that has the inner dim */
    u64 atoms;  /* the inner dim's */
    u64 apart;  /* of operands that the caller loads itself */
    ExprScope row;
} Chunked;

void chunked_init(Chunked *c, KernelText *k, int inner);
/* eD: the extent of outer dim D, the live one for the free dim; `rows`: their product. */
void chunked_extents(Chunked *c);
/* From `row`: indices iD of the outer dims, pointers, steps, and `vector`. */
void chunked_row(Chunked *c);
/* Which of the kernel's lookups the binding has. */
int chunked_lookup(const Chunked *c, int binding);
/* Goes on with the next row where the row's slot stands on another rank. */
void chunked_own(Chunked *c);
/* "const auto NAME = [&](long long i, int n, bool widePARAMETERS) {" with the packs that the
 * values read; then the loop over the chunk's elements e and its scope. The caller closes both. */
void chunked_open(Chunked *c, const char *name, const char *parameters, int width,
                  const DagNode *const *values, int n);
void chunked_loop(Chunked *c, int width, const ExprScope *outer, ExprScope *element);
/* The packs alone: of elements i .. i + n - 1, `wide` as in a chunk's lambda. */
void chunked_packs(Chunked *c, int width, const DagNode *const *values, int n);
/* A whole lambda that stores the pieces that have the inner dim; false, and nothing written, if
 * there are none. The other pieces, under a condition unless it is NULL. */
bool chunked_store(Chunked *c, const char *name);
void chunked_store_row(Chunked *c, const char *condition);

/* A reduce over the inner dim, its value then known to the row: a pass of the row's threads. */
void row_write_reduce(Chunked *c, int index);
/* The same of terms that the lambda `body` gives, at a pace: "IsoPace<...>". */
void row_bind_reduce(Chunked *c, int index, Str body, Str pace);
/* The reduce's value as a text, held as its type is, then known to the row. */
void row_bind_value(Chunked *c, const DagNode *reduce, Str value);
/* "IsoSum"; "ISO_F32". */
/* IsoSpread<...> of a tree that has spans. */
Str row_spread_text(Arena *arena, const RowTree *tree, int cluster);
const char *row_monoid(Monoid monoid, bool fused);
const char *row_type(DType type);
/* Declares `place`: the row's among the rows of the roots. */
void row_write_place(Chunked *c);
void emit_slots(KernelText *k); /* a row kernel of columns, and the join of its roots */

#endif
