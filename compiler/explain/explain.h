/* `isoc explain`: the arithmetic of one output element, drawn; who owns what, and what moves.
 * Ownership: nothing is kept; scratch comes from `arena`. */
#ifndef ISOC_EXPLAIN_H
#define ISOC_EXPLAIN_H

#include "layout/layout.h"

/* at: the op under a layout, or NULL for its numerics alone. False if a rank's part cuts a node,
 * which layout_apply refuses. */
bool explain_op(const Dag *dag, const OpDag *op, const OpLayout *at, Text *out, Arena *arena);

/* "f32(x) * f32(x)": the node and all below it in one line, cut short where it is longer. */
Str explain_inline(const Dag *dag, const OpDag *op, const DagNode *node, int longest,
                   Arena *arena);

#endif
