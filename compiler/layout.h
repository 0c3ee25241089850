/* Layouts: which rank holds and computes what, and what must move between the two.
 * Ownership: results live in the arena of the caller. */
#ifndef ISOC_LAYOUT_H
#define ISOC_LAYOUT_H

#include "dag.h"

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

enum { MAX_MESHES = 8 };

/* A layout applied to one op. Meshes as the layout lists them; a product mesh that cuts the op
 * spends its factors. */
typedef struct OpLayout {
    const Layout *layout; /* NULL: one rank, nothing cut */
    const Op *op;
    int ranks;            /* product of the plain meshes' degrees */
    int n_meshes;
    int degree[MAX_MESHES];
    int cut_axis[MAX_MESHES];      /* axis id that this mesh cuts the op along, -1: replicated */
    bool replicating[MAX_MESHES];
    bool cuts_reduced[MAX_MESHES]; /* the cut axis is reduced by the op: roots must be joined */
    bool any_reduced;
    Move *param_move;  /* per parameter: what brings it from where it is held */
    Move *result_move; /* per result: what brings it to where it is held */
} OpLayout;

/* The part of an axis space that one rank has. Atoms of fixed size by range; the rows of the free
 * atom as piece `rows_index` of `rows_count`: [floor(T i / n), floor(T (i + 1) / n)). */
typedef struct Part {
    i64 lo[MAX_ATOMS], hi[MAX_ATOMS];
    int rows_index, rows_count;
} Part;

/* Refuses (ISO4xxx, on the layout) cuts inside a node with the legal degrees, degrees that do not
 * divide, axes that no tree lets a mesh cut, and moves the table refuses. */
bool layout_apply(const Contract *contract, const OpDag *op, const Layout *layout, OpLayout *out,
                  Arena *arena, Diags *diags);

/* What `rank` computes of the op; what it holds of a tensor (by the layout's rule on its axes). */
void layout_part(const Contract *contract, const OpLayout *at, int rank, Part *part);
void layout_held(const Contract *contract, const OpLayout *at, const Tensor *tensor, int rank,
                 Part *part);
void part_rows(const Part *part, i64 rows, i64 *lo, i64 *hi);

/* The forest of a reduce that a rank owns, on the tree expanded over the whole extent. */
bool layout_forest(const Contract *contract, const DagNode *reduce, const TreeNode *root,
                   const Part *part, Forest *forest, Arena *arena);

#endif
