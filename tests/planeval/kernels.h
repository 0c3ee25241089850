/* One kernel at one element, for the files that run it.
 * Ownership: as planeval.h. */
#ifndef PLANEVAL_KERNELS_H
#define PLANEVAL_KERNELS_H

#include "planeval.h"

enum { FIX_RESULT = 1 << 16, SLOTS_MOST = 64 };

/* One kernel of one rank at one element: indices of atoms are global. */
typedef struct Frame {
    const Machine *machine;
    const Kernel *kernel;
    const Part *part;
    int64_t index[ATOMS_MOST];
    bool *have;     /* by node: a reduce whose value the kernel has */
    float *reduced;
} Frame;

uint32_t node_value(const Frame *f, int number);

/* ---- slots (slots.c) ------------------------------------------------------------------------- */

/* What a node's fix says for the element, from a parameter of indices or from what the op ranks;
 * -1: no index of the atom. */
int64_t looked_up(const Frame *f, const Node *node, const Fixed *fix);
/* At which place each slot of a reduce stands; -1: nowhere. Of two at one place the first has it.
 * Gives how many slots there are. */
int slot_places(const Frame *f, const Node *reduce, int64_t *places);
/* The index that a `top` gives for the element's slot. */
uint32_t top_value(const Frame *f, const Node *node);
/* The rank's part has the slots of a result that stand in its range. */
bool owns_slots(const Frame *f, int result);

#endif
