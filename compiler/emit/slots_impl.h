/* Trees over the places of a token's slots, as the kernels that sum them take them.
 * Ownership: texts live in the emission's arena. */
#ifndef ISOC_SLOTS_IMPL_H
#define ISOC_SLOTS_IMPL_H

#include "emit_impl.h"

/* A program's operations with the parts that they take: of a join on its left and on its right, of
 * a rounding and a root alike. */
typedef struct SlotOp {
    char letter;
    int root;
    u32 left, right;
} SlotOp;

typedef struct SlotTree {
    int n, n_roots, depth;
    SlotOp op[MAX_LEAVES];
    u32 root[MAX_LEAVES]; /* the parts of each */
} SlotTree;

/* Parts alike, each rounded to `type`, and joined to those before it, or each a root. */
typedef struct AlikeTree {
    bool each;
    DType type;
    i64 length;
} AlikeTree;

/* Of at most 32 parts, operations and roots. */
void slots_tree(const JoinProgram *program, bool roots_out, SlotTree *out);
/* False where some part is of another length, or something else follows it. */
bool slots_alike(const RowTree *tree, AlikeTree *out);
/* The struct TreeN, and, of the former, what each lane knows of the operations. */
void slots_write_tree(KernelText *k, const RowTree *tree, const SlotTree *ops, int index);
void slots_write_alike(KernelText *k, const AlikeTree *tree, int index);

#endif
