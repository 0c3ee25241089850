/* What the files of the executor's attention share; private to exec_attend*.c.
 * Ownership: all of it lives in the scratch of the scope that the node is evaluated in. */
#ifndef ISOC_EXEC_ATTEND_IMPL_H
#define ISOC_EXEC_ATTEND_IMPL_H

#include "exec_impl.h"

enum { LANES = 4 };

/* Keys or values of one sequence at one index of the row's atoms, decoded as they are seen. */
typedef struct Stored {
    const ExecTensor *memory;
    const Tensor *tensor;
    i64 by_atom[MAX_ATOMS];
    i64 n;         /* elements of a key's row, */
    const i64 *at; /* and where they lie from its first */
    bool by_key;   /* panels are of keys, along their elements; else of elements, along keys */
    i64 depth;     /* of a panel */
    FdpaElem *panels;
    bool *seen;    /* by key */
    int sequence;  /* that they are of; -1: none */
    i64 batch;     /* offset of the row's indices */
} Stored;

typedef struct Attending {
    ExecScope *scope;
    const DagNode *node;
    const Attend *attend;
    const Contract *contract;
    const FdpaClass *class;
    ExecScope inner; /* the row's dimensions, then those of the score's sum */
    const ExecValue *queries, *sinks;
    FdpaElem *query;
    i64 depth;       /* of a score's chain, in whole groups */
    i64 capacity;    /* keys that there is room for, in whole blocks */
    Stored keys, values;
    float *scores, *weights; /* of a block */
    FdpaElem *weight;        /* by key */
    FdpaElem *weight_group, *value_group;
    const ExecSplits *splits; /* NULL: all keys are here */
    i64 width;                /* values of a root */
    const i64 *at;            /* of the row: index of each atom */
} Attending;

/* What a row keeps: of a split, or of all splits before. */
typedef struct Triple {
    bool present;
    float m, l;
    float *o;
} Triple;

typedef struct Lanes { /* row sums of a split */
    bool has[LANES];
    float sum[LANES];
} Lanes;

typedef struct Range { /* of keys */
    i64 lo, hi;
} Range;

/* What stands for an element that no one sees. */
static const FdpaElem exec_no_elem = {0, FDPA_EXP_ZERO};

static inline FdpaType exec_attend_type(DType type)
{
    return type == DT_F16 ? FDPA_F16 : FDPA_BF16;
}

/* The exponential that the statement names. */
float exec_attend_exp(const Attending *a, float x);
/* Adds x to a sum that may be absent, if x is there; what is absent leaves the other as it is. */
void exec_add_present(bool *has, float *sum, bool with, float x);

/* ---- stored rows: keys or values, decoded once for each sequence that rows are of ---- */

/* Of operand `arg` of the node, without room. */
void exec_stored_init(Attending *a, int arg, Stored *s);
/* Room for the capacity's keys: in panels of keys, or of elements. */
void exec_stored_room(Attending *a, Stored *s, bool by_key);
/* Turns to a sequence, and to the row's index of each atom: nothing of it is decoded yet. */
void exec_stored_turn(const Attending *a, Stored *s, int sequence, const i64 *at);

/* Takes the seen keys of the block that begins at key `block` into the split. */
void exec_attend_block(Attending *a, i64 block, Range seen, Triple *split, Lanes *lanes);

#endif
