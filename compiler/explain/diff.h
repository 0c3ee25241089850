/* `isoc diff`: which ops of two contracts differ in their numerics, and where.
 * Ownership: nothing is kept; scratch comes from `arena`. */
#ifndef ISOC_DIFF_H
#define ISOC_DIFF_H

#include "dag/dag.h"

/* different: ops whose numerics differ, or that only one contract has, and the model likewise. */
bool diff_contracts(const Dag *a, const Dag *b, Text *out, Arena *arena, int *different);

#endif
