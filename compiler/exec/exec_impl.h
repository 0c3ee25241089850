/* Inside the executor: index spaces, scopes of values, the reductions' state. Only exec*.c read it.
 * Ownership: everything of a call lives in the call's arena or in a worker's scratch. */
#ifndef ISOC_EXEC_IMPL_H
#define ISOC_EXEC_IMPL_H

#include "exec.h"

/* ---- spaces and values ---------------------------------------------------------------------
 * A space is an ordered product of atoms, each with the indices wanted of it. A value is the array
 * of one node over the dimensions of a space that the node depends on, row-major. Elements are
 * f32 patterns: bf16 by its own widening; f16 by a widening that keeps a NaN's payload, so that
 * moves between memory and memory keep every bit. */
typedef struct ExecDim {
    int atom;
    i64 n;
    const i64 *at;
    bool dense; /* at[i] = at[0] + i */
} ExecDim;

typedef struct ExecSpace {
    int n;
    ExecDim dim[MAX_ATOMS];
} ExecSpace;

typedef struct ExecValue {
    float *v;
    i64 stride[MAX_ATOMS]; /* by dimension of the space; 0: does not depend on it */
} ExecValue;

/* ---- a call ---------------------------------------------------------------------------------- */

/* One root of a cut reduce as a rank left it: values[element][monoid_values], the element's number
 * by the place of its indices in the part's lists. */
typedef struct ExecGiven {
    const TreeNode *node;
    const float *values;
    i64 stride[MAX_ATOMS];       /* by atom, in elements */
    const i64 *place[MAX_ATOMS]; /* of index - place_lo; NULL: itself */
    i64 place_lo[MAX_ATOMS];
} ExecGiven;

typedef struct ExecStep { /* of the tree above the roots, on a stack of values */
    NodeKind kind;        /* LEAF: the next root */
    DType type, from;     /* of the value, and of a ROUND's operand */
} ExecStep;

typedef struct ExecReduce {
    const DagNode *node;
    const TreeNode *root; /* NULL: no element */
    ExecSpace over;       /* the reduced atoms in the box's ranges */
    i64 extent, lo, hi;   /* of the atoms as one axis: all of it, and what the box has */
    bool one_run;         /* the box has just [lo, hi) of it */
    bool cut;
    bool leaves;          /* roots: it is cut, or its parts leave a kernel of products */
    int n_given;          /* > 0: joined from roots, not computed */
    ExecGiven *given;
    VEC(ExecStep) steps;
    int height;           /* of the stack */
} ExecReduce;

typedef struct ExecCall {
    const ExecJob *job;
    int first, n_numbers; /* DagNode.number: least, and how many from there */
    u64 *mask;            /* by number: atoms as dimensions, coordinates replaced by their axis */
    int *reduce_of;       /* by number: index into reduces, or -1 */
    int n_reduces;
    ExecReduce *reduces;
} ExecCall;

/* Clears the result; marks the reduces that the box cuts. */
void exec_call_init(ExecCall *call, const ExecJob *job, Arena *arena);
ExecReduce *exec_reduce_of(const ExecCall *call, const DagNode *node); /* NULL: not a reduce */
/* Atoms as dimensions: a coordinate is its axis. */
u64 exec_dimensions(const Contract *contract, u64 atoms);
u64 exec_mask(const ExecCall *call, const DagNode *node);
/* The node or something below it is a reduce that the box cuts. */
bool exec_needs_cut(const ExecCall *call, const DagNode *node, Arena *arena);

/* ---- scratch: a stack inside a worker's arena ------------------------------------------------ */

typedef struct ExecScratch {
    Arena *arena;
    struct ExecBlock *first, *block;
    size_t used;
} ExecScratch;

typedef struct ExecMark {
    struct ExecBlock *block;
    size_t used;
} ExecMark;

/* Not cleared. */
void *scratch_alloc(ExecScratch *scratch, size_t size);
#define scratch_array(scratch, T, n) ((T *)scratch_alloc((scratch), sizeof(T) * (size_t)(n)))
ExecMark scratch_mark(const ExecScratch *scratch);
void scratch_release(ExecScratch *scratch, ExecMark mark);

/* ---- spaces ---------------------------------------------------------------------------------- */

/* All of an atom of fixed size. */
ExecDim exec_whole_axis(ExecScratch *scratch, int atom, i64 size);
/* `list`: the range's list is meant where it has one. */
ExecDim exec_dim(Arena *arena, const ExecRange *range, int atom, bool list);
i64 exec_space_size(const ExecSpace *space, u64 mask);
u64 exec_space_atoms(const ExecSpace *space);
/* Row-major strides of the dimensions in `mask`, 0 for the others; returns the size. */
i64 exec_strides(const ExecSpace *space, u64 mask, i64 *stride);

/* Sub-boxes of a space, `chunk` indices of each dimension at a time. */
typedef struct ExecTiles {
    i64 chunk[MAX_ATOMS], count[MAX_ATOMS];
    i64 total;
} ExecTiles;

void exec_tiles_count(const ExecSpace *space, ExecTiles *tiles);
/* Grows the chunks of the dimensions in `mask`, the innermost first, while their product is at
 * most `budget`. */
void exec_tiles_fill(const ExecSpace *space, u64 mask, i64 budget, ExecTiles *tiles);
/* Gives the atoms of which the tile does not have all; `first` is the tile's place. */
u64 exec_tile(const ExecSpace *space, const ExecTiles *tiles, i64 index, ExecSpace *out,
              i64 *first);

/* A walk over the dimensions in `mask` with up to three arrays in step. The innermost dimension
 * is the caller's to run: `inner` indices, at `step` in each array. Dimensions that all arrays
 * lay out as one are run as one. */
enum { EXEC_WALKED = 3 };

typedef struct ExecWalk {
    int n, arrays;
    i64 size[MAX_ATOMS], at[MAX_ATOMS];
    i64 stride[EXEC_WALKED][MAX_ATOMS];
    i64 inner, step[EXEC_WALKED], offset[EXEC_WALKED];
    bool started, empty;
} ExecWalk;

void exec_walk(ExecWalk *walk, const ExecSpace *space, u64 mask, int arrays,
               const i64 *const *strides);
bool exec_walk_next(ExecWalk *walk);

/* ---- scopes ---------------------------------------------------------------------------------- */

/* The values of nodes over one space. `fresh`: the atoms whose indices are not the parent's; what
 * does not depend on them is the parent's value. */
typedef struct ExecScope {
    const ExecCall *call;
    ExecScratch *scratch;
    struct ExecScope *parent;
    ExecSpace space;
    u64 fresh;
    ExecValue **memo; /* by number */
} ExecScope;

void exec_scope_start(ExecScope *scope);
const ExecValue *exec_eval(ExecScope *scope, const DagNode *node);
/* The value written out over all dimensions in `mask`. */
const ExecValue *exec_eval_over(ExecScope *scope, const DagNode *node, u64 mask);
/* Evaluates in `scope` all that `node` needs and that does not depend on `fresh`: later scopes
 * below find it, and their scratch ends before it does. */
void exec_eval_outside(ExecScope *scope, const DagNode *node, u64 fresh);
/* A parameter over the scope's space, laid out by `stride`. */
void exec_input(ExecScope *scope, const DagNode *node, const i64 *stride, float *out);
/* Writes the piece's value over the scope's space into its result. */
void exec_store(ExecScope *scope, const DagPiece *piece);

/* Strides by atom, in elements: an axis of factors is its atoms row-major. */
void exec_atom_strides(const Contract *contract, const Tensor *tensor, const ExecTensor *memory,
                       i64 *by_atom);

/* ---- lookups ---------------------------------------------------------------------------------
 * A tensor of indices by the dimensions of a scope: a parameter in memory, or a value of the op,
 * whose f32 patterns are the integers. */
typedef struct ExecLookup {
    const ExecTensor *memory; /* NULL: the value */
    const ExecValue *value;
    int n_dims, dim[2];       /* of the scope's space: the tokens', and maybe the slots' */
    const i64 *at[2];         /* the dimensions' indices */
    i64 size;                 /* of the axis that the indices are of */
    i64 stride;               /* the caller's */
    const ExecRange *here;    /* slots: of these indices, those that the box has */
} ExecLookup;

void exec_lookup(ExecScope *scope, const DagNode *node, const Fix *fix, i64 stride,
                 ExecLookup *out);
/* The index; -1 where it is none. place: of each dimension, which of its indices. */
i64 exec_lookup_at(const ExecLookup *lookup, const i64 *place);
/* Some lookup depends on the dimension. */
bool exec_looks_up(const ExecLookup *lookups, int n, int dim);

/* ---- element arithmetic ---------------------------------------------------------------------- */

float exec_round(DType type, float x);
/* The same number as f32; what a chain takes. */
float exec_widen(DType type, float x);
u16 exec_pack(DType type, float x); /* bf16 and f16: the pattern */
void exec_load(DType type, const void *data, i64 n, i64 step, float *out);
void exec_save(DType type, const float *x, i64 n, i64 step, i64 x_step, void *data);

/* ---- reductions ------------------------------------------------------------------------------ */

/* A tile of a reduction: its own scope has the outer dimensions, then the reduced atoms. */
typedef struct ExecTile {
    const ExecReduce *reduce;
    ExecScope scope;
    u64 outer;              /* atoms of the outer dimensions */
    i64 elements;           /* of the outer dimensions */
    struct ExecMma *mma;    /* tensor-core leaves */
    bool fused;             /* a product under a chain */
    const ExecValue *value[2]; /* the factors of a product; or the body, and NULL */
} ExecTile;

bool exec_is_mma(const ExecReduce *reduce);
/* The fix of tokens and slots at which the second operand of a product is read, so that rows of one
 * index can be computed together; NULL: none, or in no such way. */
const Fix *exec_mma_slots(const ExecCall *call, const DagNode *reduce);
/* Decodes both operands for the leaves below the roots. */
struct ExecMma *exec_mma_start(ExecTile *tile, const Forest *roots);
/* out: [element], row-major over the outer dimensions. */
void exec_mma_leaf(const ExecTile *tile, const TreeNode *node, float *out);

/* At which place each slot of a token stands, and which slot stands at a place (-1: none). */
typedef struct ExecSlots {
    ExecLookup lookup;
    i64 n, *at;
    int *slot;
    bool known; /* of a token: its place in the dimensions of the lookup */
    i64 token[2];
} ExecSlots;

/* The scope's space has the slots too. */
void exec_slots(ExecScope *scope, const ExecReduce *reduce, ExecSlots *out);
void exec_slots_of(ExecSlots *slots, const i64 *place);
/* Some slot stands below the node. */
bool exec_slots_in(const ExecSlots *slots, const TreeNode *node);
/* One root of a sum of slots, as exec_mma_leaf has leaves; exec_absent's where it is absent. */
void exec_places(ExecTile *tile, const TreeNode *root, float *out);
/* What stands for an absent root: no one reads it but as the value of no element. */
void exec_absent(Monoid monoid, float *out);

/* The finished value over the scope's space, laid out as exec_strides has it. */
void exec_reduce(ExecScope *scope, const ExecReduce *reduce, float *out);
/* The values of roots: out[i] is where root i's element 0 lies, [element][monoid_values] with
 * `stride` per dimension of the scope's space, in elements. */
void exec_roots(ExecScope *scope, const ExecReduce *reduce, const Forest *roots, float **out,
                const i64 *stride);

/* How many nodes stand above the first leaf. */
int exec_left_depth(const TreeNode *node);
/* The value of a reduce whose roots are given, as exec_reduce gives it. */
void exec_joined(ExecScope *scope, const ExecReduce *reduce, float *out);
/* Writes the tree above the given roots down as steps; false if they are not all of it. */
bool exec_joins(ExecReduce *reduce, Arena *arena);

/* ---- attend ---------------------------------------------------------------------------------- */

/* The node over the scope's space, laid out as exec_strides has it. */
void exec_attend(ExecScope *scope, const DagNode *node, const i64 *stride, float *out);
/* The job has what the node reads. */
bool exec_can_attend(const ExecJob *job, const DagNode *node);

/* ---- draw ------------------------------------------------------------------------------------ */

void exec_draw(ExecScope *scope, const DagNode *node, const i64 *stride, float *out);

/* ---- top ------------------------------------------------------------------------------------- */

void exec_top(ExecScope *scope, const DagNode *node, const i64 *stride, float *out);

/* ---- workers --------------------------------------------------------------------------------- */

/* Does one tile: the scope has its space; `first` is its place in the whole. */
typedef void ExecWork(void *context, ExecScope *scope, const i64 *first);
void exec_run(const ExecCall *call, const ExecSpace *space, const ExecTiles *tiles, ExecWork *work,
              void *context, Arena *arena);

#endif
