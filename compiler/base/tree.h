/* Reduction trees: how the elements of an axis become one value, whatever is joined.
 * Ownership: trees and nodes are immutable and live in the arena that made them. */
#ifndef ISOC_TREE_H
#define ISOC_TREE_H

#include "base.h"

typedef enum TreeForm {
    TREE_MMA,       /* tensor-core steps of the class's group, ascending */
    TREE_CHAIN,     /* left to right in f32; a product under it is a mul, then fmas */
    TREE_CHAIN_ADD, /* left to right in f32; products are rounded first */
    TREE_SPLIT,     /* N contiguous parts, equal or as written */
    TREE_EVERY,     /* parts of N from index 0, the last may be short */
    TREE_LANES,     /* N interleaved parts in runs of W */
    TREE_ROUND,     /* the child's value rounded */
    TREE_NAME,      /* syntax only: a reference to a named tree; gone after check */
} TreeForm;

typedef enum JoinForm { JOIN_PAIRWISE, JOIN_LEFT } JoinForm;

/* A tree as declared, names resolved. */
typedef struct Tree {
    TreeForm form;
    i64 count;        /* SPLIT, LANES: parts; EVERY: the length of a part */
    int n_parts;      /* SPLIT with written lengths; else 0 */
    const i64 *parts;
    i64 run;          /* LANES: W */
    JoinForm join;    /* SPLIT, EVERY, LANES */
    DType type;       /* the join's, or ROUND's */
    const struct Tree *child;
} Tree;

/* What is joined. X(ID, name in the language, f32 values of one that is being joined) */
#define MONOID_LIST(X)                                                                             \
    X(SUM, "sum", 1)                                                                               \
    X(MAX, "max", 1)                                                                               \
    X(LOGSUMEXP, "logsumexp", 2) /* (max, sum of exp(x - max)) */

typedef enum Monoid {
#define X(id, name, values) MONOID_##id,
    MONOID_LIST(X)
#undef X
        MONOID_COUNT
} Monoid;

const char *monoid_name(Monoid monoid);
int monoid_values(Monoid monoid);

/* ---- expansion over an extent ------------------------------------------------------------- */

/* Elements start, start + 1, ... start + len - 1. */
typedef struct Run {
    i64 start, len;
} Run;

typedef enum NodeKind { NODE_LEAF, NODE_JOIN, NODE_ROUND } NodeKind;

/* One node of a tree written out for a given extent. An absent part has no node. A JOIN's
 * operands already have its type (a ROUND stands between where they had not). */
typedef struct TreeNode {
    NodeKind kind;
    TreeForm leaf;   /* LEAF: MMA, CHAIN or CHAIN_ADD */
    int n_runs;      /* LEAF: its elements in the order of the chain */
    const Run *runs;
    DType type;      /* of the value */
    const struct TreeNode *left, *right; /* JOIN both, ROUND left */
    i64 count;       /* elements below */
    i64 lo, hi;      /* least element, greatest + 1 */
} TreeNode;

/* NULL when the extent is 0. */
const TreeNode *tree_expand(Arena *arena, const Tree *tree, i64 extent);

/* The type of the reduced value: the outermost join's or round's, f32 for a bare leaf. */
DType tree_type(const Tree *tree);
/* True if a leaf form of the tree is MMA (trees do not mix leaf forms: check). */
bool tree_is_mma(const Tree *tree);
/* Why a free axis cannot use the tree (no `every` anchors it), or NULL. */
const char *tree_anchor_problem(const Tree *tree);
/* Why the extent does not fit the tree ("8 equal parts of 4100"), or an empty string. */
Str tree_extent_problem(Arena *arena, const Tree *tree, i64 extent);

/* Canonical text: "split 8 { mma } pairwise f32". Equal texts = equal trees. */
void tree_print(const Tree *tree, Text *out);

/* A contiguous cut [lo, hi) of the extent owns a forest: the maximal nodes all of whose elements
 * lie inside. False if some leaf lies partly inside: the cut is then illegal. */
typedef VEC(const TreeNode *) Forest;
bool tree_forest(Arena *arena, const TreeNode *root, i64 lo, i64 hi, Forest *forest);

/* The post-order walk over given roots of one tree, left to right: what a kernel or the join does
 * after each root. After root i: `n_ops[i]` operations from `ops`, in order: on a stack whose top
 * is the newest value, JOIN takes (second, top), ROUND takes top. Every binary tree over ordered
 * leaves is such a program, so it is the kernels' encoding of trees. */
typedef struct JoinOp {
    NodeKind kind; /* JOIN or ROUND */
    DType type;
} JoinOp;

typedef struct JoinProgram {
    int n_roots;
    int *n_ops;      /* per root */
    JoinOp *ops;     /* all, in order */
    int total_ops;
    int depth;       /* greatest stack height */
} JoinProgram;

/* roots must be a left-to-right partition of `root`'s elements into nodes of it. */
bool tree_join_program(Arena *arena, const TreeNode *root, const Forest *roots, JoinProgram *out);
/* The parts of an extent below all `split`s and `every`s, each one leaf or the lanes of one. */
typedef VEC(Run) Runs;
void tree_parts(Arena *arena, const Tree *tree, i64 extent, Runs *parts);
/* Of these the nodes of those that lie in [lo, hi); false if one lies in it in part. */
bool tree_part_forest(Arena *arena, const Tree *tree, const TreeNode *root, i64 lo, i64 hi,
                      Forest *forest);
/* All leaves below a node, left to right. */
void tree_leaves(Arena *arena, const TreeNode *root, Forest *leaves);

#endif
