/* Plans: which kernel programs exist, what each computes, and which of them run for an op in a
 * layout at a row count. A plan is data that proof, emit and manifest only read.
 * Ownership: lives in the middle arena. */
#ifndef ISOC_PLAN_H
#define ISOC_PLAN_H

#include "layout/layout.h"

/* ---- what kernels iterate over -------------------------------------------------------------
 * A kernel's dimension is a run of atoms collapsed row-major. Operands are views: a tensor with
 * some atoms held, and per dimension one stride (0 when it has none of its atoms). Every operand
 * has all or none of a dimension's atoms, in the same order, so that one stride serves; the
 * runtime checks that the tensor's own strides collapse. */
enum { MAX_DIMS = 6, MAX_BINDINGS = 24, MAX_LOOKUPS = 4 };

typedef struct PlanDim {
    int n_atoms;
    int atoms[MAX_TENSOR_AXES];
} PlanDim;

typedef struct Binding {
    bool result;   /* of op->results; else of op->params */
    int tensor;
    int n_fixes;
    const Fix *fixes;
    int n_dims;    /* of the kernel or group that it belongs to */
    bool has[MAX_DIMS];
    int group;     /* GEMM, JOIN of GEMM: the group whose epilogue touches it; -1: a or b */
    int coordinate; /* axis id of a ragged axis's coordinate (position) that the tensor has: its
                       index is what the row's token says; -1: none */
    int lookup;    /* binding of the parameter that says, for each token, at which index of the one
                      fixed atom with `at` below 0 the tensor is read, or itself, where it says what
                      is kept of that atom; -1: none */
} Binding;

/* The atom of a binding with a lookup that is looked up. */
int binding_looked_up(const Binding *binding);

typedef enum Family {
    FAMILY_MAP,  /* elementwise over the dims */
    FAMILY_ROW,  /* reductions over the last dim, then elementwise */
    FAMILY_GEMM, /* products with an epilogue, or their roots */
    FAMILY_JOIN, /* roots of all ranks, joined in tree order, then the rest of the op */
    FAMILY_ATTEND, /* attention over the keys of each token's sequence */
    FAMILY_DRAW, /* an index of the last dim for each row */
    FAMILY_TOP,  /* the first indices of the last dim but one, at the last dim's slots; `row` has
                    the sums over either */
    FAMILY_ORDER, /* of a program only: it sorts the rows of grouped products by expert */
} Family;

/* ---- trees of rows --------------------------------------------------------------------------- */

/* The one tree shape of rows: contiguous parts of the axis, each summed by lanes (one lane: the
 * whole part in order), the lanes joined, then the parts. */
typedef struct RowTree {
    TreeForm form;       /* of the leaves: CHAIN or CHAIN_ADD */
    int n_parts;
    const Run *parts;    /* elements of the reduced dim, relative to the rank's part */
    int lanes;           /* a power of two, 1: none */
    i64 run;
    JoinForm lane_join;  /* only where lanes > 1 */
    DType lane_type;
    JoinProgram program; /* over the parts; with roots_out the stack ends with n_roots values */
    /* Parts are `of_span` of `step` elements in each of `spans` spans, the last of a span maybe
     * shorter, that of the last span too; lanes, parts and spans are joined pairwise in f32.
     * 0 spans: they are not so. */
    int spans, of_span;
    i64 span, step;
} RowTree;

static inline i64 row_tree_end(const RowTree *tree)
{
    const Run *last = &tree->parts[tree->n_parts - 1];
    return last->start + last->len;
}

/* ---- gemm ------------------------------------------------------------------------------------ */

enum {
    MAX_PRODUCTS = 4, /* of one group */
    MAX_GROUPS = 4,
    MAX_MAPS = 8,     /* groups times products of the widest group */
    MAX_LEAVES = 64,
    MAX_OPERANDS = 6, /* read by one epilogue */
    MAX_RESULTS = 3,  /* written by one epilogue */
    MAX_SOURCES = 16, /* ranks that one join hears */
};

typedef struct GemmProduct {
    const DagNode *reduce;
    int b;           /* binding of the operand with the columns: dims (cols, k) */
    bool b_k_inner;  /* [n, k] in memory (k contiguous), else [k, n] */
} GemmProduct;

/* Columns that share an epilogue: q, k and v are three groups of one kernel; gate_up is one group
 * of two products. */
typedef struct GemmGroup {
    PlanDim cols;
    int n_products;
    GemmProduct product[MAX_PRODUCTS];
    int n_pieces;
    const DagPiece **pieces; /* results written by the epilogue, dims (rows, cols) */
} GemmGroup;

/* What becomes of a product's columns in its kernel: each part of a tree over them, which is what a
 * tile has of a row, is a root, stored as [root][value of all reduces][row] f32. A JOIN of rows
 * finishes. */
enum { FOLD_COLUMNS = 256 }; /* of a part and of a tile */

typedef struct Fold {
    int n_reduces;           /* 0: the columns are stored */
    const DagNode **reduces; /* over the columns */
    RowTree *trees;          /* per reduce: equal but for their bodies, without joins above parts */
    int n_roots;             /* of each reduce */
    int values;              /* of a root, all reduces together */
} Fold;

typedef struct Gemm {
    Fold fold;
    int a;           /* binding of the operand with the rows: dims (rows, k) */
    bool a_k_inner;
    PlanDim rows, k;
    /* Grouped: the rows are the slots of tokens, and every product's other operand is read at what
     * `chosen` says for the row. a's dims are (tokens, slots, k), chosen's (tokens, slots). */
    bool grouped;
    int chosen;      /* binding */
    int n_groups;
    GemmGroup group[MAX_GROUPS];
    /* The rank's forest: leaves in order, and what follows each. roots_out: values of the forest's
     * roots are stored as [root][row][col of all groups] f32 and a JOIN kernel finishes. */
    bool roots_out;
    int n_leaves;
    i64 leaf_lo[MAX_LEAVES], leaf_hi[MAX_LEAVES]; /* elements of k, relative to the rank's part */
    JoinProgram program; /* over the leaves; with roots_out the stack ends with n_roots values */
    int n_roots;
    int root_leaves[MAX_LEAVES]; /* leaves below each root, in order */
    KernelChoice kernel;
    LeafPlace leaves;
    int tile_m, tile_n, tile_k, stages;
    bool runs_on;  /* grouped: blocks of k go on over the borders of leaves */
    int fused;     /* neighbouring leaves that a CTA joins in registers: 1, 2 or 4 */
    int near, far; /* waiting values of a CTA in shared memory, and in workspace (wgmma) */
    int cluster;   /* CTAs: with leaves across CTAs, one for each `fused` leaves of a tile;
                      otherwise neighbouring tiles, which share the loads of a, or of b where a
                      tile is wider than high; grouped: of a, where gemm_sorts */
} Gemm;

/* A join program as a postfix text (device/iso_tree.cuh): L the next leaf or root, + join, b and h
 * round; with roots, R takes each value that nothing consumes as soon as it is complete. From
 * fused = 2 on LL+ is P, and with 4 PP+ is Q. */
Str postfix_text(Arena *arena, const JoinProgram *program, bool roots, int fused);
/* Greatest height of its stack. */
int postfix_depth(Str text);
/* Whether the CTAs of a cluster have neighbouring row tiles of the same columns. */
bool gemm_shares_b(const Gemm *gemm);
/* Bytes of shared memory through which the tiles of a grouped product leave, where no values
 * wait. */
i64 gemm_staging(const Gemm *gemm);
/* The text with L for each unit of `fused` leaves, and their number; more than MAX_LEAVES if some
 * unit is of another size. */
Str postfix_units(Arena *arena, Str text, int fused, int *n);

/* ---- row, map, join -------------------------------------------------------------------------- */

/* A row tree written out: its leaves in order, and one program over them all. */
typedef struct RowLeaves {
    int n;
    const Run **runs; /* per leaf its elements, in the order of the chain */
    int *n_runs;
    JoinProgram program;
} RowLeaves;

void row_leaves(Arena *arena, const RowTree *tree, RowLeaves *out);

typedef struct Row {
    int n_reduces;
    const DagNode **reduces; /* topological; all over the last dim's atoms */
    RowTree *trees;          /* per reduce */
    bool roots_out;          /* stores the forest's roots of reduces[0] instead of finishing, as
                                [root][value of the monoid][outer dims] f32 */
    int n_roots;
    int threads;             /* of one row, in each of its CTAs */
    bool columns;            /* the last dim is a token's slots; a thread has neighbouring elements
                                of the dim before, and goes through the slots itself */
    bool spread;             /* threads take parts, not lanes of one part after another: all trees
                                have spans */
    int cluster;             /* CTAs of one row; more than 1 only where it is spread, and one sum
                                and values of whole rows are all that there is */
} Row;


typedef struct Join {
    Family of;                /* GEMM: dims and groups as in `gemm`; ROW: dims as a row kernel's,
                                 its other reduces as in `row` */
    int n_reduces;            /* the op's cut reduces, in order */
    const DagNode **reduces;
    int n_sources;            /* ranks heard */
    int n_roots;              /* of all sources together, the same for each reduce */
    bool folds;               /* of a product's columns (Fold): dims as a row kernel's; every reduce
                                 is joined, as `spans` of `of_span` roots, pairwise */
    int spans, of_span;
    int *roots_of_rank;       /* per source */
    JoinProgram program;      /* over all sources' roots */
    const Run *runs;          /* per root its elements, of the first reduce */
} Join;

/* ---- attend ---------------------------------------------------------------------------------- */

/* Dimensions of an ATTEND kernel; the last two are an operand's own elements: those that a score
 * sums, those of a value. */
enum { ATTEND_TOKENS, ATTEND_HEADS, ATTEND_GROUP, ATTEND_DEPTH, ATTEND_WIDTH, ATTEND_DIMS };
enum { ATTEND_BLOCK = 128 }; /* keys that the kernels' warps share out */

/* Which program. Each takes any batch: MMA is the general one. Where ranks have some splits each,
 * PARTS leaves the roots of a rank's, and JOIN, which reads no key, joins those of join.n_sources
 * ranks. */
typedef enum AttendChoice {
    ATTEND_MMA, ATTEND_DECODE, ATTEND_WGMMA, ATTEND_PARTS, ATTEND_JOIN
} AttendChoice;
const char *attend_choice_name(AttendChoice choice);

typedef struct AttendKernel {
    Attend computes; /* all numbers of its text; the proof compares them with the contract's */
    i64 depth, width;
    int queries, keys, values, sinks, value, lse; /* bindings; -1: none */
    AttendChoice choice;
    int row_tiles;   /* of 16 rows, of one CTA */
    int ahead;       /* blocks whose loads begin before another's are used */
    int resident;    /* CTAs that a multiprocessor has room for */
} AttendKernel;

/* ---- draw ------------------------------------------------------------------------------------ */

typedef struct DrawKernel {
    Draw computes; /* all numbers of its text; the proof compares them with the contract's */
    const DagNode *scores;
    int param[DRAW_PARAMS], token; /* bindings; -1: none */
} DrawKernel;

/* ---- top ------------------------------------------------------------------------------------- */

enum { TOP_ROWS, TOP_RANKED, TOP_SLOTS, TOP_DIMS }; /* of a TOP kernel */

typedef struct TopKernel {
    Top computes; /* all numbers of its text; the proof compares them with the contract's */
    const DagNode *node;
} TopKernel;

typedef struct Kernel {
    Family family;
    const OpDag *op;
    int n_dims;               /* MAP: all; ROW: outer dims, then the reduced one; GEMM: none */
    PlanDim dims[MAX_DIMS];
    int n_bindings;
    Binding bindings[MAX_BINDINGS];
    int own;                  /* MAP, ROW and its JOIN: 0, or one more than the binding that says
                                 where slots stand; what stands on other ranks is not written */
    int n_pieces;             /* all but GEMM, which has them by group */
    const DagPiece **pieces;
    Gemm gemm;
    Row row;
    Join join;
    AttendKernel attend;
    DrawKernel draw;
    TopKernel top;
} Kernel;

/* Of a row kernel of columns: how many a thread has at a time. */
int row_columns(const Kernel *kernel);
/* Whether the rows of a grouped product, those of slots, may lie in the order of their experts. */
bool gemm_sorts(const Kernel *kernel);

/* ---- what runs when -------------------------------------------------------------------------- */

typedef struct Variant {
    i64 rows_min, rows_max; /* inclusive, of the global row count */
    const char *schedule;   /* "contract" or "table": who chose it */
    int *kernel_of_rank;    /* index into Plan.kernels; -1: the rank has nothing to compute */
} Variant;

typedef struct PlanOp {
    const OpDag *op;
    OpLayout at;
    Part *part_of_rank;
    int n_variants;
    Variant *variants;
    int join_kernel;      /* -1: no roots leave a rank */
    Part *finish_of_rank; /* what the join of each rank writes; NULL without a join */
    int *sources_of_rank; /* [rank][join.n_sources]: whose roots it hears, in order */
} PlanOp;

typedef struct Plan {
    const Dag *dag;
    VEC(Kernel *) kernels; /* equal specifications once */
    VEC(PlanOp) ops;       /* per layout, per op, in order; layouts[0] of the contract first */
} Plan;

/* only: restrict to one layout, or NULL for all. A contract without layouts has one rank. An op
 * that no kernel family takes is refused (ISO5201) with one note per family. */
bool plan_build(const Dag *dag, const Layout *only, Plan *plan, Arena *arena, Diags *diags);

/* For people and goldens: a line for each op, layout and row count, then the kernels. */
void plan_print(const Plan *plan, Text *out);
/* The plan in full, as JSON, for evaluators that know nothing of the contract's trees: layouts,
 * parts, operands, leaves, join programs, epilogues. tests/planeval/README.md states the format. */
void plan_json(const Plan *plan, Text *out);

#endif
