/* The checked contract: names resolved, sizes known, every expression typed.
 * Ownership: lives in the front arena beside the syntax tree that it points into. */
#ifndef ISOC_CONTRACT_H
#define ISOC_CONTRACT_H

#include "base/fdpa.h"
#include "base/tree.h"
#include "device/iso_rope.cuh"
#include "front/ast.h"
#include "front/diag.h"

enum { MAX_ATOMS = 64, MAX_TENSOR_AXES = 8, MAX_MESHES = 8 };

typedef enum FnId {
#define X(id, name, arity, function) FN_##id,
#include "base/scalar.def"
#undef X
    FN_COUNT
} FnId;

/* ---- axes ---------------------------------------------------------------------------------
 * Atoms are the axes without factors; masks have a bit per atom. A product axis is its factors
 * row-major. A ragged axis (`tokens = sequence * position ragged`) is one free atom; its factors
 * are coordinates: atoms whose value each token determines. A sparse axis (`picks = 8 of experts`)
 * is an atom like any other; a tensor of indices of `experts` with tokens and picks says at which
 * element of that axis each of a token's slots stands. */
typedef struct Axis {
    Name name;
    i64 size;       /* elements; 0 when free */
    i64 stored;     /* elements in memory, > size when padded; 0 when free */
    bool free;      /* the length is known at launch */
    int coordinate_of; /* axis id of the ragged axis, or -1 */
    int parent;     /* axis id of the product it is a factor of, or -1 */
    int sparse_of;  /* > 0: for each token it has some elements of axis sparse_of - 1 */
    int atom;       /* bit of the masks, or -1 for a product */
    int n_factors;
    int *factors;   /* axis ids */
} Axis;

/* ---- ops ---------------------------------------------------------------------------------- */

/* An atom held at one index, q[half 0]; `at` below 0: at what a tensor of indices says for each of
 * its own elements, w[vocab ids] or w[experts chosen]. The tensor is parameter ~at, or, from
 * FIX_RESULT on, result ~at - FIX_RESULT, which a block form of the op sets. */
typedef struct Fix {
    int atom;
    i64 at;
} Fix;

enum { FIX_RESULT = 1 << 16, INDEX_RESULTS_MAX = 3 /* results of an op read as indices */ };

enum { INTEGERS = -1 }; /* Tensor.index_of */

typedef struct Tensor {
    Name name;
    DType type;   /* of indices and integers f32, which is as wide */
    int index_of; /* > 0: the elements are no values but indices, i32, of axis index_of - 1;
                     INTEGERS: integers that only `draw` reads */
    int n_axes;
    int axes[MAX_TENSOR_AXES]; /* axis ids as declared; strides are given per declared axis */
    int n_atoms;
    int atoms[MAX_ATOMS];      /* row-major */
    u64 mask;
} Tensor;

typedef struct Local {
    Name name;
    const AstExpr *value;
} Local;

typedef struct Piece { /* one assignment to a result, or to a part of it */
    int result;
    int n_fixes;
    Fix *fixes;
    const AstExpr *value;
} Piece;

/* What an `attend` statement says, defaults filled in. Its keys are the positions of the row's
 * sequence; its first value has the atoms `rows` and `values`, its second `rows`. */
typedef struct Attend {
    int tokens, sequence, position; /* the packed atom of the rows, and its coordinates */
    int n_over, over[MAX_ATOMS];    /* atoms of the score's sum, row-major */
    u64 batch;                      /* atoms that queries share with keys, the sum's apart */
    u64 rows, values;
    i64 block, split;               /* keys */
    bool capped;
    u32 scale, cap;                 /* f32 patterns */
    bool rounded;                   /* maxima */
    u32 inverse;                    /* with them: 1 over what a score times is an exponent */
    FnId exp2;
    DType weights;
    bool causal;
    i64 window;                     /* 0: none */
} Attend;

/* A limit of `draw`: none, a number, or each row's own. */
typedef struct DrawLimit {
    bool set;
    int param; /* of the op; -1: the number */
    u32 bits;  /* top_k: an integer; else an f32 pattern */
} DrawLimit;

/* What a `draw` statement says: an index of `axis` for each row. Parameters by number, -1: none. */
typedef struct Draw {
    int axis, atom;         /* that is drawn from */
    int tokens;             /* the packed atom of the rows */
    int seed, stream, temperature;
    DrawLimit top_k, top_p, min_p;
} Draw;

enum { DRAW_SEED, DRAW_STREAM, DRAW_TEMPERATURE, DRAW_TOP_K, DRAW_TOP_P, DRAW_MIN_P, DRAW_PARAMS };
/* The parameter that a row's own is in, or -1. */
int draw_param(const Draw *draw, int which);

/* What a `top` statement says: for each token the indices of `axis` that its slots stand at. */
typedef struct Top {
    int axis, atom;    /* that is ranked */
    int tokens, picks; /* atoms of the result */
    i64 k;             /* slots of a token */
    i64 groups, keep;  /* groups of equal length; 1 and 1: none */
    i64 group_sum;     /* first members whose scores' sum is the group's */
    bool by_index;     /* slots ascend by index, else by the scores' order */
} Top;

typedef struct Op {
    const AstOp *ast;
    Str name;
    int n_params, n_results;
    Tensor *params, *results;
    VEC(Local) locals;
    VEC(Piece) pieces;
    u64 space; /* atoms of the iteration space: results' and reduced */
} Op;

/* ---- layouts, schedules --------------------------------------------------------------------- */

typedef struct Cut {
    int axis; /* id */
    bool replicating;
} Cut;

typedef struct Mesh {
    Name name;
    int degree;
    int n_product;    /* > 0: the product of these meshes of the layout, by index */
    int *product;
    int n_cuts;
    Cut *cuts;
    int else_axis;    /* axis id, or -1 */
} Mesh;

typedef struct Layout {
    Name name;
    int n_meshes;
    Mesh *meshes;
    int n_overrides;
    struct LayoutOverride {
        int op;
        int n_meshes;  /* each replaces the mesh of that name for this op */
        Mesh *meshes;
    } *overrides;
    const AstLayout *ast;
} Layout;

/* A schedule is data that never moves a bit; 0 and UNSET mean the compiler's table decides. */
typedef enum LeafPlace { LEAVES_UNSET, LEAVES_IN_REGISTERS, LEAVES_ACROSS_CTAS } LeafPlace;
typedef enum KernelChoice { KERNEL_UNSET, KERNEL_WGMMA, KERNEL_STREAM } KernelChoice;

typedef struct Schedule {
    int op;
    i64 rows_min, rows_max; /* inclusive bounds on the global count of the free axis */
    int tile_m, tile_n, tile_k;
    int stages;
    LeafPlace leaves;
    KernelChoice kernel;
    Span span;
} Schedule;

/* ---- the model: clause 13 -------------------------------------------------------------------
 * Values are set once: a name that is set again is another value. */
typedef struct ModelValue {
    Name name;
    Tensor tensor;
    int carry;   /* the value that takes its place in a repeat's next turn; -1: none */
    int read_in; /* the repeat in whose body it was read, from before it; -1 */
    bool used;
} ModelValue;

typedef struct ModelTable {
    int cos, sin; /* values */
    IsoRope rope;
} ModelTable;

typedef struct ModelCache {
    int of, as; /* values */
    int before; /* the statement that it stands before */
    int repeat; /* -1: none */
} ModelCache;

typedef struct ModelWeight {
    Name name;
    Str stack;            /* the first axis, whose name in braces stands for its index: a tensor of
                             the checkpoint for each; empty: one tensor */
    const Tensor *tensor; /* of the first parameter that takes it */
    i64 fan_in;           /* elements that an op sums for one result; 0: none */
    int n_order;          /* 0: the checkpoint's axes are the tensor's, less the stack's */
    int order[MAX_TENSOR_AXES]; /* else which of the tensor's each of them is */
} ModelWeight;

typedef struct ModelArgument {
    bool weight;
    int index;
} ModelArgument;

typedef struct ModelStatement {
    int op;
    int repeat;               /* -1: none */
    ModelArgument *arguments; /* as the op's parameters */
    int *results;             /* values, as the op's results */
    Span span;
} ModelStatement;

typedef struct ModelRepeat {
    Name index;
    int count;
    int first, end; /* statements */
} ModelRepeat;

typedef struct ModelOutput {
    Name name;
    int value;
} ModelOutput;

typedef struct Model {
    Name name;
    int tokens; /* axis id: what a row is one of */
    VEC(ModelValue) values;
    VEC(int) inputs; /* values */
    VEC(ModelTable) tables;
    VEC(ModelCache) caches;
    VEC(ModelWeight) weights;
    VEC(ModelStatement) statements;
    VEC(ModelRepeat) repeats;
    VEC(ModelOutput) outputs;
} Model;

typedef struct Contract {
    Str name;
    int version;
    const FdpaClass *numerics;
    int n_axes;
    Axis *axes;
    int n_atoms;
    int atom_axis[MAX_ATOMS];
    int n_trees;
    struct NamedTree {
        Name name;
        const Tree *tree;
    } *trees;
    int n_ops;
    Op *ops;
    int n_layouts;
    Layout *layouts;
    int n_schedules;
    Schedule *schedules;
    const Model *model; /* NULL: none */
    const Ast *ast;
} Contract;

/* Checks everything and reports all errors of a run; true if there was none. */
bool check_contract(const Ast *ast, Contract *contract, Arena *arena, Diags *diags);

/* The tree of a REDUCE expression, resolved by check (named or inline). */
const Tree *contract_tree(const Contract *contract, const AstTree *ast, Arena *arena);
const Op *contract_op(const Contract *contract, Str name);
const Layout *contract_layout(const Contract *contract, Str name);
/* The tensor of indices that a fix with `at` below 0 names. */
const Tensor *fix_tensor(const Op *op, const Fix *fix);
static inline bool fix_is_result(const Fix *fix)
{
    return fix->at < 0 && ~fix->at >= FIX_RESULT;
}
/* The parameter that says where the slots of a sparse atom stand, by number; -1: none does. */
int op_slots(const Op *op, int atom);
/* A slot that stands at `index`, -1: nowhere, is in the part [lo, hi) of its axis (9.7). */
static inline bool slot_is_in(i64 lo, i64 hi, i64 index)
{
    return index < 0 ? lo == 0 : index >= lo && index < hi;
}
/* A weight's name, "{*}" for the index along its first axis. */
Str weight_name(Arena *arena, const ModelWeight *weight);
/* Size of an atom, given the length of free axes. */
i64 atom_size(const Contract *contract, int atom, i64 free_length);

#endif
