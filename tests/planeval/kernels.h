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

/* ---- expressions (expr.c) -------------------------------------------------------------------- */

uint32_t node_value(const Frame *f, int number);
float node_f32(const Frame *f, int number);
/* What a parameter holds where an input node reads it; 0 where the index is of no element. */
uint32_t load(const Frame *f, const Node *node);
bool part_has(const Machine *m, const Part *part, int atom, int64_t index);
/* Element e of the part's atoms, row-major. */
void set_index(Frame *f, const int *atoms, int n, int64_t e);
/* The kernel steps along the dimensions that the binding has: an atom of the tensor elsewhere
 * would stay at its first index. */
void check_binding(const Frame *f, int binding);
/* Some binding of the kernel is this tensor with these fixes. */
void need_binding(const Frame *f, bool result, int tensor, const Fixed *fixes, int n);

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
