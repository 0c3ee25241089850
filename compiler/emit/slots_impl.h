/* What the files of the kernels that sum a token's slots share; private to slots*.c.
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

/* ---- a kernel being written ------------------------------------------------------------------ */

/* A lane's value, by its name in the lane of its slot's place in order. */
typedef struct Ordered {
    const DagNode *node;
    int reduce;
    Str name;
} Ordered;

typedef struct Summing {
    Chunked c;
    int dim;      /* of the slots */
    i64 n;        /* slots of a token */
    u64 slots;    /* their atom */
    int threads;
    ExprScope lanes; /* of a lane's own slot */
    VEC(Ordered) ordered;
} Summing;

/* ---- terms (slots_terms.c) ------------------------------------------------------------------- */

/* Where the lane's slot stands, and at what it has operands looked up. */
void slots_write_lanes(Summing *s);
/* Declares `fast`: all that the warp reads and writes of this chunk lies on 16 bytes. */
void slots_write_fast(Summing *s);
/* The name of a lane's value, in the lane of its slot's place in the order of reduce `index`. */
Str slots_ordered(Summing *s, const DagNode *node, int index);
/* The lambdas loadN and bodyN: some slots' elements, and the terms of one slot. */
void slots_write_terms(Summing *s, const DagNode *const *values, int n, int width, int index);
/* Columns of a thread that a sum has: one where it is the same for all. */
int slots_width(const Summing *s, const DagNode *reduce);
/* The binding of the reduce's places, -1: its slots are in their own order. */
int slots_place(const Kernel *kernel, const DagNode *reduce);
/* Slots whose elements are loaded at once. */
int slots_batch(const Summing *s);

/* ---- sums (slots_sums.c) --------------------------------------------------------------------- */

/* Reduce `index` of the kernel: its value then known to the row, or its roots stored. */
void slots_write_reduce(Summing *s, int index);
/* The constants that say which places each root has. */
void slots_write_root_ranges(KernelText *k);
/* From the roots that all ranks sent: those are there below which a slot stands. */
void slots_write_joined(Summing *s);

#endif
