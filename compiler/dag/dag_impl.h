/* What the parts of dag share: canonical text of nodes; private to dag_*.c.
 * Ownership: as dag.h. */
#ifndef ISOC_DAG_IMPL_H
#define ISOC_DAG_IMPL_H

#include "dag.h"

/* An op's atoms by order of first use in its parameters, then results: names and the order of
 * declaration are not part of the meaning. */
typedef struct AtomOrder {
    const Contract *contract;
    int n;
    int number[MAX_ATOMS]; /* -1: not used by the op */
} AtomOrder;

void atom_order(const Contract *contract, const Op *op, AtomOrder *order);

/* DagNode.id; of its operands they are known. */
Digest dag_node_id(const AtomOrder *order, const Op *op, const DagNode *node, Arena *arena);
int fix_compare(const AtomOrder *order, const Fix *a, const Fix *b);

/* "iso_rope.cuh" and the digest of that device file without comments. */
void dag_file_text(const char *name, Text *out);

void dag_fingerprint_op(const Dag *dag, OpDag *op, Arena *arena);
void dag_fingerprint_all(Dag *dag, Arena *arena);

#endif
