/* The language read naively: one element at a time, straight from the tree as declared, without
 * expansion, blocks or memory of what was computed. Slow, and written apart from the executor.
 * Ownership: nothing is kept. */
#ifndef ISOC_TEST_NAIVE_H
#define ISOC_TEST_NAIVE_H

#include "../unit/lab.h"

/* The node's value at the indices of its atoms, as a pattern of its type. */
u32 naive_value(const Lab *lab, const DagNode *node, const i64 *index);

#endif
