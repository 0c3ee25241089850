/* The meaning of an op: a hash-consed graph of tensor-valued expressions, and its fingerprint.
 * Ownership: nodes live in the middle arena; equal meaning = equal pointer within one OpDag. */
#ifndef ISOC_DAG_H
#define ISOC_DAG_H

#include "check/contract.h"

typedef enum DagKind {
    DAG_INPUT,  /* a parameter, some atoms held; args: what sets the results that it is held at
                   (Fix), each once, in the order of its fixes */
    DAG_CONST,  /* bits of `type` */
    DAG_CAST,
    DAG_NEG,
    DAG_ADD,
    DAG_SUB,
    DAG_MUL,
    DAG_DIV,
    DAG_FN,
    DAG_ONLY,   /* args[0] where the atom of its one fix has the index that the fix says, else
                   -inf; its atoms are its own and the operand's; args[1]: what sets the result that
                   says it, if it is none of the parameters */
    DAG_REDUCE, /* monoid over `atoms` (row-major, as one axis) by `tree` of args[0]. With a fix it
                   is sum(picks at experts chosen by T): `atoms` is the fix's atom, experts, over
                   whose elements, the *places*, the tree goes and layouts cut; args[0] has `slots`,
                   picks, and not experts; slot k is the element at the place that the fix's tensor
                   says for it, other places hold none (6.23); args[1] as DAG_ONLY's */
    DAG_ATTEND, /* queries, keys, values and maybe sinks: a value of `attend`, some atoms held */
    DAG_DRAW,   /* scores: the index that `draw` gives, as an f32's pattern */
    DAG_TOP,    /* scores: the indices that `top` gives, likewise */
} DagKind;

typedef struct DagNode {
    DagKind kind;
    DType type;
    u64 mask;        /* atoms that the value depends on */
    int n_args;
    const struct DagNode *args[4];
    int param;       /* INPUT */
    int n_fixes;
    const Fix *fixes;
    u32 bits;        /* CONST: the value's pattern in its type */
    FnId fn;
    Monoid monoid;   /* REDUCE */
    const Tree *tree;
    int n_atoms;
    const int *atoms;
    int slots;       /* REDUCE with a fix */
    const Attend *attend;
    bool lse;        /* ATTEND: the second value */
    const Draw *draw;
    const Top *top;
    Digest id;       /* of the canonical text below this node; names of locals are not in it */
    int number;      /* index in OpDag.nodes, a topological order */
} DagNode;

typedef struct DagPiece {
    int result;
    int n_fixes;
    const Fix *fixes;
    const DagNode *value;
} DagPiece;

typedef struct OpDag {
    const Op *op;
    VEC(const DagNode *) nodes; /* topological */
    VEC(DagPiece) pieces;       /* in order of result, then of fixes */
    VEC(const DagNode *) reduces;
    Digest fingerprint;
} OpDag;

typedef struct Dag {
    const Contract *contract;
    int n_ops;
    OpDag *ops;
    Digest fingerprint; /* over the ops' fingerprints in order of name, class, functions, model */
} Dag;

bool dag_build(const Contract *contract, Dag *dag, Arena *arena, Diags *diags);

/* The canonical text whose SHA-256 is the op's fingerprint: axes by size and order of first use,
 * parameters and results by position and name, the class by its parameters, the functions used by
 * the digest of their text. LANGUAGE.md, clause 11. */
void dag_canonical(const Dag *dag, const OpDag *op, Text *out);
/* "block 128 split 1024 scale_log2 0x3e029396 exp2.d6 weights bf16 mask causal": all but `over`. */
void dag_print_attend(const Attend *attend, Text *out);
/* The canonical text of the contract's model, which there is: ops by their fingerprints, or, for
 * people, by their names. */
void dag_model_text(const Dag *dag, bool names, Text *out);
/* "seed s top_k 50": all but `over`; parameters by name, or by number where op is NULL. */
void dag_print_draw(const Op *op, const Draw *draw, Text *out);
/* "8 by score groups 8 keep 4 group_sum 2": all but `over`. */
void dag_print_top(const Top *top, Text *out);
/* For people and goldens: one numbered line a node. */
void dag_print(const Dag *dag, const OpDag *op, Text *out);
/* The atoms of a reduce's operand that it takes away: `atoms`, or its slots. */
const int *dag_summed(const DagNode *reduce, int *n);
/* What sets the result that a fix of the node is held at; NULL: a parameter, or a constant. */
const DagNode *dag_index_value(const DagNode *node, const Fix *fix);
/* "[half 0, vocab ids]", or nothing. */
void dag_print_fixes(const Contract *contract, const Op *op, const Fix *fixes, int n, Text *out);
/* Whether a reduction joins what products give: its parts (tree_parts) then leave the kernel of the
 * products as roots, cut or not. */
bool dag_folds(const DagNode *reduce);
/* Something in the op is computed by steps of the contract's class. */
bool dag_uses_mma(const OpDag *op);
/* Whether a node rounds a function of a bf16 to bf16 at once, for which there is a short form. */
bool dag_has_short_form(const DagNode *cast);
const char *dag_kind_name(DagKind kind);
const char *dag_fn_name(FnId fn);
float dag_constant_value(DType type, u32 bits);
/* "1e-06 (0x358637bd)" */
void dag_print_constant(DType type, u32 bits, Text *out);

/* ---- terms: the value of one tree node, for proofs -------------------------------------------
 * Two nodes with equal digests compute the same value of the same inputs. A leaf is (monoid, form,
 * body, runs), a join (monoid, type, left, right), a round (type, child). */
Digest term_leaf(const DagNode *reduce, TreeForm form, const Run *runs, int n_runs);
Digest term_join(Monoid monoid, DType type, const Digest *left, const Digest *right);
Digest term_round(DType type, const Digest *child);
Digest term_of(const DagNode *reduce, const TreeNode *node);

#endif
