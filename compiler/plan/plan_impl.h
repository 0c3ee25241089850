/* What the files of the plan stage share: shapes of kernels before a layout is known, and the
 * completion of a shape for one rank.
 * Ownership: everything lives in the planner's arena. */
#ifndef ISOC_PLAN_IMPL_H
#define ISOC_PLAN_IMPL_H

#include "plan.h"

enum { ROWS_MAX = INT32_MAX }; /* kernels count rows in an int */

typedef struct Planner {
    const Contract *contract;
    const OpDag *op;
    Arena *arena;
    Str reason; /* why the family tried last does not take the op */
} Planner;

/* False with planner->reason set: the sentence that the refusal shows. */
bool plan_misfit(Planner *planner, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const Axis *plan_atom(const Planner *planner, int atom);
const char *plan_axis_text(const Planner *planner, int atom);
bool plan_same_tree(Arena *arena, const Tree *a, const Tree *b);

/* ---- operands (plan_dims.c) ------------------------------------------------------------------ */

typedef struct Atoms {
    int n;
    int v[MAX_ATOMS];
} Atoms;

const Tensor *plan_tensor(const Planner *planner, const Binding *binding);
/* The tensor's atoms but the fixed ones and coordinates, as they lie in memory. */
Atoms plan_view(const Planner *planner, const Binding *binding);
/* Atoms of the part of a result that a piece writes. */
Atoms plan_piece_atoms(const Planner *planner, const DagPiece *piece);
bool atoms_equal(const Atoms *a, const Atoms *b);
u64 atoms_mask(const Atoms *a);

/* The binding of an operand, added if new; -1 with the reason when there is no room or the tensor
 * has more than one coordinate. */
int plan_bind(Planner *planner, Kernel *kernel, bool result, int tensor, const Fix *fixes,
              int n_fixes, int group);
/* Binds every input below a node, not below reduces of `stop` (may be NULL). */
bool plan_bind_inputs(Planner *planner, Kernel *kernel, const DagNode *node,
                      const DagNode *const *stop, int n_stop, int group);
/* Binds what says where the slots of a sum stand, if it is told. */
bool plan_bind_places(Planner *planner, Kernel *kernel, const DagNode *reduce);
/* Binds what says where a result's slots stand, if a parameter does: their axis is then a dim. */
bool plan_bind_slots(Planner *planner, Kernel *kernel);
/* Where a part has some of a result's slots, binds what says which. */
bool plan_own_slots(Planner *planner, Kernel *kernel, const Part *part);
/* Sets n_dims and has[] of a binding against dims; false with the reason when some dim is had in
 * part, or atoms are left over. */
bool plan_match_dims(Planner *planner, Binding *binding, const PlanDim *dims, int n_dims);
/* Cuts the iteration atoms into the fewest dims that every binding has whole or not at all. The
 * free atom is a dim of its own, and so are the last `inner` atoms (0: no such rule). */
bool plan_make_dims(Planner *planner, Kernel *kernel, const Atoms *space, int inner);

/* ---- families -------------------------------------------------------------------------------- */

bool plan_map(Planner *planner, Kernel *shape);
bool plan_row(Planner *planner, Kernel *shape);
/* Rows as well, whose last dim is slots. */
bool plan_slots(Planner *planner, Kernel *shape);
bool plan_fold(Planner *planner, Kernel *shape);
bool plan_gemm(Planner *planner, Kernel *shape);
bool plan_attend(Planner *planner, Kernel *shape);
bool plan_draw(Planner *planner, Kernel *shape);
bool plan_top(Planner *planner, Kernel *shape);
/* A row kernel sums by the tree. */
bool plan_row_tree_fits(Planner *planner, const Tree *tree);

/* The first reduce alone, as a product whose columns no piece takes. */
bool plan_gemm_product(Planner *planner, Kernel *shape);
/* A reduce's parts below the roots, and what joins them; their regularity, if they have it; whether
 * a program joins spans of parts pairwise, and these. */
void plan_row_tree(Arena *arena, const DagNode *reduce, const TreeNode *root, const Forest *roots,
                   RowTree *out);
void plan_row_spans(RowTree *tree);
bool plan_joins_spans(Arena *arena, int spans, int of_span, const JoinProgram *program);

/* A shape for one rank of a layout. */
typedef struct RankPlan {
    const OpLayout *at;
    const TreeNode *const *roots; /* per reduce of the op, expanded over its extent */
    Part part;
    bool roots_out;
    bool empty; /* no element of the cut sums */
    i64 rows;   /* the least global row count that the kernel is for */
} RankPlan;

bool plan_row_rank(Planner *planner, const RankPlan *rank, Kernel *kernel);
bool plan_gemm_rank(Planner *planner, const RankPlan *rank, Kernel *kernel);
/* After plan_gemm_rank, where the shape is plan_fold's. */
bool plan_fold_rank(Planner *planner, const RankPlan *rank, Kernel *kernel);
bool plan_fold_join(Planner *planner, const Kernel *shape, const OpLayout *at,
                    const TreeNode *const *roots, const int *sources, int n_sources, Kernel *join);
/* The join of all sources' roots and the rest of the op, from the op's whole shape. */
bool plan_join(Planner *planner, const Kernel *shape, const OpLayout *at,
               const TreeNode *const *roots, const int *sources, int n_sources, Kernel *join);

/* Leaves of a forest in order, and the program that joins them to the forest's roots. */
void plan_forest_program(Arena *arena, const Forest *roots, const Forest *leaves_of_root,
                         JoinProgram *out);

/* ---- schedules (plan_table.c) ---------------------------------------------------------------- */

/* The kernel, tile, stages and place of leaves for a row count from `rows` on, the contract's
 * schedule first, the table for what it leaves open. False with the reason: no kernel obeys. */
bool plan_schedule(Planner *planner, const Schedule *contract, i64 rows, const Part *part,
                   Kernel *kernel);
/* Row counts at which the table changes its mind, ascending. */
int plan_table_borders(const i64 **borders);
enum { ROW_CLUSTER_ROWS = 256 }; /* up to which CTAs share a row of many parts */
/* Attention, which contracts' schedules do not speak of: its programs, and the row counts at which
 * each is taken where nothing else is known of a batch, the first that has the count. */
typedef struct AttendSchedule {
    AttendKernel kernel;
    i64 rows_min, rows_max;
} AttendSchedule;

enum { ATTEND_SCHEDULES = 3 };
int plan_attend_schedules(const AttendKernel *shape, AttendSchedule out[ATTEND_SCHEDULES]);
/* The two kernels of a layout whose ranks have some splits each. */
bool plan_attend_parts(Planner *planner, const Kernel *shape, Kernel *parts);
bool plan_attend_join(Planner *planner, const Kernel *shape, int n_sources, Kernel *join);

/* ---- text (plan_print.c) --------------------------------------------------------------------- */

/* A kernel's specification in full: equal texts = equal specifications. `brief` shortens long
 * lists for people. */
void plan_print_kernel(const Dag *dag, const Kernel *kernel, bool brief, Text *out);

#endif
