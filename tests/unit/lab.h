/* An op built in memory, without a contract's text: for tests of the executor, plans and proofs.
 * Ownership: everything lives in the lab's arena; lab_free ends it all. */
#ifndef ISOC_TEST_LAB_H
#define ISOC_TEST_LAB_H

#include <math.h>
#include <string.h>

#include "exec/exec.h"

enum { LAB_TENSORS = 8, LAB_NODES = 96 };

typedef struct Lab {
    Arena *arena;
    Contract contract;
    Axis axes[MAX_ATOMS];
    Op op;
    Tensor params[LAB_TENSORS], results[LAB_TENSORS];
    ExecTensor in[LAB_TENSORS], out[LAB_TENSORS];
    OpDag dag;
    i64 rows; /* the length of free axes */
} Lab;

static inline void lab_init(Lab *lab, i64 rows)
{
    memset(lab, 0, sizeof *lab);
    lab->arena = arena_new();
    lab->rows = rows;
    lab->contract.name = STR("lab");
    lab->contract.numerics = fdpa_class("sm_90", FDPA_BF16);
    lab->contract.axes = lab->axes;
    lab->contract.n_ops = 1;
    lab->contract.ops = &lab->op;
    lab->op.name = STR("op");
    lab->op.params = lab->params;
    lab->op.results = lab->results;
    lab->dag.op = &lab->op;
}

static inline void lab_free(Lab *lab)
{
    arena_free(lab->arena);
}

/* ---- axes and tensors ------------------------------------------------------------------------ */

static inline int lab_axis_named(Lab *lab, Str name, i64 size)
{
    int id = lab->contract.n_axes++, atom = lab->contract.n_atoms++;
    lab->axes[id] = (Axis){.size = size, .stored = size, .free = size == 0, .coordinate_of = -1,
                           .parent = -1, .atom = atom};
    lab->axes[id].name.text = name;
    lab->contract.atom_axis[atom] = id;
    return atom;
}

/* Size 0: free. In a lab each axis is an atom, and its number is both. */
static inline int lab_axis(Lab *lab, i64 size)
{
    return lab_axis_named(lab, str_format(lab->arena, "a%d", lab->contract.n_axes), size);
}

static inline i64 lab_size(const Lab *lab, int atom)
{
    return lab->axes[atom].free ? lab->rows : lab->axes[atom].size;
}

static inline Tensor lab_tensor(Lab *lab, Str name, DType type, int n, const int *atoms,
                                ExecTensor *memory)
{
    Tensor t = {.type = type, .n_axes = n, .n_atoms = n};
    i64 size = 1;
    t.name.text = name;
    for (int i = n - 1; i >= 0; i--) {
        t.axes[i] = t.atoms[i] = atoms[i];
        t.mask |= (u64)1 << atoms[i];
        memory->stride[i] = size;
        size *= lab_size(lab, atoms[i]);
    }
    memory->data = arena_alloc(lab->arena, (size_t)(size * dtype_bytes(type)) + 16);
    return t;
}

static inline int lab_param(Lab *lab, DType type, int n, const int *atoms)
{
    int p = lab->op.n_params++;
    lab->params[p] = lab_tensor(lab, str_format(lab->arena, "p%d", p), type, n, atoms,
                                &lab->in[p]);
    return p;
}

static inline i64 lab_elements(const Lab *lab, const Tensor *tensor)
{
    i64 n = 1;
    for (int i = 0; i < tensor->n_atoms; i++)
        n *= lab_size(lab, tensor->atoms[i]);
    return n;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static inline DagNode *lab_node(Lab *lab, DagKind kind, DType type)
{
    DagNode *node = arena_new_of(lab->arena, DagNode);
    node->kind = kind;
    node->type = type;
    node->number = lab->dag.nodes.n;
    vec_push(lab->arena, &lab->dag.nodes, node);
    return node;
}

static inline const DagNode *lab_input(Lab *lab, int param)
{
    DagNode *node = lab_node(lab, DAG_INPUT, lab->params[param].type);
    node->param = param;
    node->mask = lab->params[param].mask;
    return node;
}

static inline const DagNode *lab_const(Lab *lab, DType type, u32 bits)
{
    DagNode *node = lab_node(lab, DAG_CONST, type);
    node->bits = bits;
    return node;
}

static inline const DagNode *lab_op(Lab *lab, DagKind kind, DType type, const DagNode *a,
                                    const DagNode *b)
{
    DagNode *node = lab_node(lab, kind, type);
    node->n_args = b ? 2 : 1;
    node->args[0] = a;
    node->args[1] = b;
    node->mask = a->mask | (b ? b->mask : 0);
    return node;
}

static inline const DagNode *lab_cast(Lab *lab, DType type, const DagNode *a)
{
    return lab_op(lab, DAG_CAST, type, a, NULL);
}

static inline const DagNode *lab_fn(Lab *lab, FnId fn, const DagNode *a, const DagNode *b)
{
    DagNode *node = (DagNode *)lab_op(lab, DAG_FN, DT_F32, a, b);
    node->fn = fn;
    return node;
}

static inline const DagNode *lab_reduce(Lab *lab, Monoid monoid, const Tree *tree, int n,
                                        const int *atoms, const DagNode *body)
{
    DagNode *node = (DagNode *)lab_op(lab, DAG_REDUCE, tree_type(tree), body, NULL);
    int *copy = arena_array(lab->arena, int, n);
    memcpy(copy, atoms, sizeof(int) * (size_t)n);
    node->monoid = monoid;
    node->tree = tree;
    node->n_atoms = n;
    node->atoms = copy;
    for (int i = 0; i < n; i++)
        node->mask &= ~((u64)1 << atoms[i]);
    vec_push(lab->arena, &lab->dag.reduces, node);
    return node;
}

static inline int lab_result(Lab *lab, int n, const int *atoms, const DagNode *value)
{
    int r = lab->op.n_results++;
    lab->results[r] = lab_tensor(lab, str_format(lab->arena, "r%d", r), value->type, n, atoms,
                                 &lab->out[r]);
    vec_push(lab->arena, &lab->dag.pieces, ((DagPiece){.result = r, .value = value}));
    return r;
}

/* ---- trees ----------------------------------------------------------------------------------- */

static inline const Tree *lab_leaf(Lab *lab, TreeForm form)
{
    Tree *t = arena_new_of(lab->arena, Tree);
    t->form = form;
    return t;
}

static inline const Tree *lab_parts(Lab *lab, TreeForm form, i64 count, i64 run, JoinForm join,
                                    DType type, const Tree *child)
{
    Tree *t = arena_new_of(lab->arena, Tree);
    *t = (Tree){.form = form, .count = count, .run = run, .join = join, .type = type,
                .child = child};
    return t;
}

static inline const Tree *lab_split(Lab *lab, i64 count, JoinForm join, const Tree *child)
{
    return lab_parts(lab, TREE_SPLIT, count, 0, join, DT_F32, child);
}

/* ---- running --------------------------------------------------------------------------------- */

static inline ExecJob lab_job(const Lab *lab, int threads)
{
    ExecJob job = {.contract = &lab->contract, .op = &lab->dag, .params = lab->in,
                   .results = lab->out, .threads = threads};
    exec_box_all(&lab->contract, lab->rows, &job.box);
    return job;
}

static inline bool lab_run(Lab *lab, int threads)
{
    ExecJob job = lab_job(lab, threads);
    return exec_op(&job, lab->arena);
}

static inline u32 lab_bits(float x)
{
    u32 u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline u32 lab_out(const Lab *lab, int result, i64 at)
{
    const void *data = lab->out[result].data;
    return lab->results[result].type == DT_F32 ? ((const u32 *)data)[at]
                                               : ((const u16 *)data)[at];
}

static inline void lab_set(Lab *lab, int param, i64 at, u32 bits)
{
    if (lab->params[param].type == DT_F32)
        ((u32 *)lab->in[param].data)[at] = bits;
    else
        ((u16 *)lab->in[param].data)[at] = (u16)bits;
}

static inline void lab_set_floats(Lab *lab, int param, int n, const float *x)
{
    for (int i = 0; i < n; i++)
        lab_set(lab, param, i, lab_bits(x[i]) >> (lab->params[param].type == DT_BF16 ? 16 : 0));
}

/* xorshift; one seed gives one sequence. */
static inline u64 lab_random(u64 *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* kind 0: near 1, both signs; 1: many binades; 2: any pattern, with NaN and Inf. */
static inline u32 lab_random_bits(DType type, int kind, u64 *state)
{
    u64 r = lab_random(state);
    u32 fraction = (u32)r & 0x7FFFFFu, sign = (u32)(r >> 32) & 0x80000000u;
    u32 exponent = kind == 0 ? 124 + (u32)(r >> 40) % 6 : 64 + (u32)(r >> 40) % 120;
    if (kind == 2)
        return (u32)r & (type == DT_F32 ? 0xFFFFFFFFu : 0xFFFFu);
    if (type == DT_F16)
        return sign >> 16 | (kind == 0 ? 13 + exponent % 5 : exponent % 30) << 10 | fraction >> 13;
    return (sign | exponent << 23 | fraction) >> (type == DT_BF16 ? 16 : 0);
}

static inline void lab_fill(Lab *lab, int kind, u64 *state)
{
    for (int p = 0; p < lab->op.n_params; p++)
        for (i64 i = 0; i < lab_elements(lab, &lab->params[p]); i++)
            lab_set(lab, p, i, lab_random_bits(lab->params[p].type, kind, state));
}

#endif
