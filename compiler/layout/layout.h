/* Layouts: which rank holds and computes what, and what must move between the two.
 * Ownership: results live in the arena of the caller. */
#ifndef ISOC_LAYOUT_H
#define ISOC_LAYOUT_H

#include "dag/dag.h"

/* Held, then needed: the one movement table (LANGUAGE.md, clause 9). */
#define MOVE_LIST(X)                                                                               \
    X(NONE, "nothing")                                                                             \
    X(SLICE, "slice")                                                                              \
    X(ALL_GATHER, "all-gather")                                                                    \
    X(ALL_TO_ALL, "all-to-all")                                                                    \
    X(REDUCE_SCATTER, "reduce-scatter") /* roots to the owner of the rows */                       \
    X(ALL_REDUCE, "all-reduce")         /* roots to every rank */                                  \
    X(REFUSE, "refuse")

typedef enum Move {
#define X(id, name) MOVE_##id,
    MOVE_LIST(X)
#undef X
        MOVE_COUNT
} Move;

const char *move_name(Move move);

/* How a mesh's ranks stand to a tensor: each has all of it, a part, or an unfinished sum. */
typedef enum Stand { STAND_WHOLE, STAND_CUT, STAND_PARTIAL, STAND_COUNT } Stand;

/* Total: one entry for every pair. same_axis: both are cuts, along one axis. */
Move move_between(Stand held, Stand needed, bool same_axis);

/* Along which axis each mesh of the layout cuts something: the first of its listed axes that the
 * thing has, else the `else` axis, else none. A product that cuts spends its factors. */
typedef struct Cuts {
    int axis[MAX_MESHES]; /* axis id, -1: replicated or spent */
    bool replicating[MAX_MESHES];
    bool by_else[MAX_MESHES];
} Cuts;

/* Slots are cut by ownership (LANGUAGE.md, 9.7): what has a sparse axis, picks of experts, has the
 * atom of experts too for a mesh that cuts experts, and element (token, slot) of it is in the part
 * whose range of that atom the slot stands in; a slot that stands nowhere is in the first part
 * (slot_is_in). In memory every rank's tensor has all tokens and slots, of which it holds its own.
 * Where slots stand is what the op's parameter of indices with them says (op_slots); an op without
 * one computes all slots. */

/* A layout applied to one op. Meshes as the layout lists them. What a rank computes is cut by
 * `cut`. Where a mesh cuts a reduced axis, roots are exchanged, and what the rank finishes from
 * them is cut by `finish`: there such a mesh cuts the results by their own axes. */
typedef struct OpLayout {
    const Layout *layout; /* NULL: one rank, nothing cut */
    const Op *op;
    u64 space;            /* atoms that meshes may cut: its own, and those that its slots are of */
    int ranks;            /* product of the plain meshes' degrees; the first mesh is outermost */
    int n_meshes;
    const Mesh *mesh[MAX_MESHES]; /* overrides applied */
    int degree[MAX_MESHES];       /* a product's is the product */
    Cuts cut, finish;
    bool cuts_reduced[MAX_MESHES]; /* the cut axis is reduced by the op: roots must be joined */
    bool any_reduced;
    const DagNode *reduced; /* the first cut reduce, or `attend` whose keys are cut; NULL: none */
    Move *param_move;  /* per parameter: what brings it from where it is held */
    Move *result_move; /* per result: what brings it to where it is held */
} OpLayout;

/* The atoms that a mesh may cut of a tensor: its own, and those that its slots are of, but of a
 * tensor that says where they stand, which is whole. Positions are cut of what has sequences too,
 * the keys and values of `attend`. */
u64 layout_tensor_atoms(const Contract *contract, const Tensor *tensor);
/* The part of an axis space that one rank has. Atoms of fixed size by range; the rows of the free
 * atom as piece `rows_index` of `rows_count`: [floor(T i / n), floor(T (i + 1) / n)). */
typedef struct Part {
    i64 lo[MAX_ATOMS], hi[MAX_ATOMS];
    int rows_index, rows_count;
    int keys_index, keys_count; /* of a sequence's splits those whose number is index modulo count,
                                   what the launch says of the sequence added (9.8) */
} Part;

/* Refuses (ISO4xxx, on the layout) cuts inside a node with the legal degrees, degrees that do not
 * divide, and cuts of axes that the op holds at an index. Warns (-Wroots) where a rank owns more
 * than one root. `at` has cut and finish; movement need not be known. */
bool layout_check(const Contract *contract, const OpDag *op, const OpLayout *at, Arena *arena,
                  Diags *diags);
/* Applies the layout to the op: layout_check, and then what must move; refuses moves that the table
 * refuses. layout NULL: one rank. */
bool layout_apply(const Contract *contract, const OpDag *op, const Layout *layout, OpLayout *out,
                  Arena *arena, Diags *diags);

/* What `rank` computes of the op; what it finishes once roots are joined (the same where none
 * are); what it holds of a tensor (by the layout's rule on the tensor's axes; an override rules
 * the op's tensors without a free axis). */
void layout_part(const Contract *contract, const OpLayout *at, int rank, Part *part);
void layout_finish(const Contract *contract, const OpLayout *at, int rank, Part *part);
void layout_held(const Contract *contract, const OpLayout *at, const Tensor *tensor, int rank,
                 Part *part);
void part_rows(const Part *part, i64 rows, i64 *lo, i64 *hi);

/* True if the reduce's atoms are cut, so that its roots leave the rank. */
bool layout_cuts(const Contract *contract, const OpLayout *at, const DagNode *reduce);
/* Whether ranks have some splits of an `attend`'s keys each. */
bool layout_cuts_keys(const Contract *contract, const OpLayout *at, const DagNode *node);
/* Whether ranks leave roots of it: it is cut, or joins what products give (dag_folds). */
bool layout_leaves_roots(const Contract *contract, const OpLayout *at, const DagNode *reduce);
/* The ranks whose roots of the op's cut reduces `rank` joins, in the order of their elements. */
int layout_sources(const Contract *contract, const OpLayout *at, int rank, int *ranks);
/* Index and count of the pieces that the meshes cut an atom into, for a rank; count 1: uncut. */
void layout_piece(const Contract *contract, const OpLayout *at, const Cuts *cuts, int atom,
                  int rank, i64 *index, i64 *count);
/* The cuts of whatever has the atoms of a mask, by the layout's meshes or the op's overrides. */
void layout_cuts_of(const Contract *contract, const OpLayout *at, u64 mask, bool overridden,
                    Cuts *cuts);
/* The cuts of a tensor as it is held. */
void layout_held_cuts(const Contract *contract, const OpLayout *at, const Tensor *tensor,
                      Cuts *cuts);
/* OpLayout.space. */
u64 layout_op_atoms(const Contract *contract, const OpDag *op);
/* A listed axis is cut along its outermost atom. */
int axis_outer_atom(const Contract *contract, int axis);
/* The factor after an atom's axis in the product that holds it, by its outermost atom; or -1. */
int axis_next_atom(const Contract *contract, int atom);
/* The reduce's elements [lo, hi) in a part; false where they are not contiguous in its order. */
bool layout_range(const Contract *contract, const DagNode *reduce, const Part *part, i64 *lo,
                  i64 *hi);
/* The extent that the reduce's tree is expanded over. */
i64 reduce_extent(const Contract *contract, const DagNode *reduce);

/* The forest of a reduce that a rank owns, on the tree expanded over the whole extent. */
bool layout_forest(const Contract *contract, const DagNode *reduce, const TreeNode *root,
                   const Part *part, Forest *forest, Arena *arena);

#endif
