/* What the parts of explain share; private to explain*.c.
 * Ownership: as explain.h. */
#ifndef ISOC_EXPLAIN_IMPL_H
#define ISOC_EXPLAIN_IMPL_H

#include "explain.h"

/* A node that a rank sends, as it is: the maximal nodes of its part. */
typedef struct OwnedRoot {
    const TreeNode *node;
    int n;
    Str ranks; /* "0, 4" */
} OwnedRoot;

typedef struct OwnedRoots {
    int n, cap;
    OwnedRoot *v;
} OwnedRoots;

typedef struct TreeDrawing {
    const Contract *contract;
    const DagNode *reduce;
    const TreeNode *root;
    const OwnedRoots *owned; /* empty: nothing is cut */
    Arena *arena;
    Text *out;
} TreeDrawing;

void explain_tree(const TreeDrawing *drawing);
/* `name`: how the lines above call the reduction. */
bool explain_reduce(const Contract *contract, const DagNode *reduce, const OpLayout *at, Str name,
                    Text *out, Arena *arena);
/* What one row of an attend computes; `like`: where the other value of its rows is explained. */
void explain_attend(const Contract *contract, const DagNode *node, Str name, Str like, Text *out);
void explain_draw(const Contract *contract, const Op *op, const Draw *draw, Str name, Text *out);
void explain_top(const Contract *contract, const Top *top, Str name, Text *out);
/* Both draw the same. */
bool explain_alike(const Contract *contract, const DagNode *a, const DagNode *b);
bool explain_layout(const Contract *contract, const OpDag *op, const OpLayout *at, Text *out,
                    Arena *arena);
/* "0..512", "4 runs of 8 from 0 by 1024" */
Str explain_elements(Arena *arena, const TreeNode *node);

#endif
