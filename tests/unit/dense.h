/* The ops of a dense decoder layer, built in memory: for tests of layouts, plans and proofs that
 * should not depend on the front end.
 * Ownership: everything lives in the Dense's arena until dense_close. */
#ifndef ISOC_TEST_DENSE_H
#define ISOC_TEST_DENSE_H

#include <string.h>

#include "plan/plan.h"

enum { D_TOKENS, D_HIDDEN, D_FFN, D_KV, D_GROUP, D_HALF, D_ROT, D_VOCAB, D_ATOMS };
enum { D_HEADS = D_ATOMS, D_HEAD_DIM, D_AXES };
enum { DENSE_OPS = 8, DENSE_LAYOUTS = 24 };

typedef struct Dense {
    Arena *arena;
    Sources sources;
    Diags diags;
    Contract contract;
    Axis axes[D_AXES];
    Op ops[DENSE_OPS];
    OpDag dags[DENSE_OPS];
    Layout layouts[DENSE_LAYOUTS];
    Dag dag;
    const Tree *parallel, *whole, *row;
    int numbers;
} Dense;

/* ---- axes ------------------------------------------------------------------------------------ */

static inline void dense_axis(Dense *d, int axis, const char *name, i64 size, int parent)
{
    d->axes[axis] = (Axis){.name = {str_of(name), {0}}, .size = size, .stored = size,
                           .free = !size, .coordinate_of = -1, .parent = parent, .atom = axis};
    d->contract.atom_axis[axis] = axis;
}

static inline void dense_product(Dense *d, int axis, const char *name, int a, int b)
{
    int *factors = arena_array(d->arena, int, 2);
    factors[0] = a;
    factors[1] = b;
    d->axes[axis] = (Axis){.name = {str_of(name), {0}}, .size = d->axes[a].size * d->axes[b].size,
                           .coordinate_of = -1, .parent = -1, .atom = -1, .n_factors = 2,
                           .factors = factors};
    d->axes[axis].stored = d->axes[axis].size;
}

/* ---- trees ----------------------------------------------------------------------------------- */

static inline const Tree *dense_tree(Dense *d, Tree tree)
{
    Tree *copy = arena_new_of(d->arena, Tree);
    *copy = tree;
    return copy;
}

static inline const Tree *dense_split(Dense *d, i64 n, const Tree *child, JoinForm join)
{
    return dense_tree(d, (Tree){.form = TREE_SPLIT, .count = n, .join = join, .type = DT_F32,
                                .child = child});
}

/* ---- tensors and nodes ----------------------------------------------------------------------- */

static inline Tensor dense_tensor(Dense *d, const char *name, DType type, int n, const int *axes)
{
    Tensor t = {.name = {str_of(name), {0}}, .type = type, .n_axes = n};
    for (int i = 0; i < n; i++) {
        t.axes[i] = axes[i];
        const Axis *axis = &d->axes[axes[i]];
        for (int k = 0; k < (axis->atom < 0 ? axis->n_factors : 1); k++)
            t.atoms[t.n_atoms++] = axis->atom < 0 ? axis->factors[k] : axis->atom;
    }
    for (int i = 0; i < t.n_atoms; i++)
        t.mask |= (u64)1 << t.atoms[i];
    return t;
}

#define AXES(...) (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__}

static inline const DagNode *dense_node(Dense *d, OpDag *op, DagNode node)
{
    DagNode *copy = arena_new_of(d->arena, DagNode);
    *copy = node;
    copy->number = op->nodes.n;
    Text text = {.arena = d->arena};
    text_printf(&text, "%d %d %d %d %u %d %d", node.kind, node.type, node.param, node.fn, node.bits,
                node.monoid, node.n_atoms);
    for (int i = 0; i < node.n_args; i++)
        text_printf(&text, " %.*s", STR_FMT(digest_hex(d->arena, &node.args[i]->id)));
    if (node.kind == DAG_REDUCE)
        tree_print(node.tree, &text);
    copy->id = sha256(text.s, (size_t)text.n);
    vec_push(d->arena, &op->nodes, copy);
    if (node.kind == DAG_REDUCE)
        vec_push(d->arena, &op->reduces, copy);
    return copy;
}

static inline const DagNode *dense_param(Dense *d, OpDag *op, const char *name, DType type, int n,
                                         const int *axes)
{
    Op *own = (Op *)op->op;
    Tensor tensor = dense_tensor(d, name, type, n, axes);
    own->params[own->n_params] = tensor;
    return dense_node(d, op, (DagNode){.kind = DAG_INPUT, .type = type, .mask = tensor.mask,
                                       .param = own->n_params++});
}

static inline const DagNode *dense_binary(Dense *d, OpDag *op, DagKind kind, const DagNode *a,
                                          const DagNode *b)
{
    return dense_node(d, op, (DagNode){.kind = kind, .type = a->type, .mask = a->mask | b->mask,
                                       .n_args = 2, .args = {a, b}});
}

static inline const DagNode *dense_cast(Dense *d, OpDag *op, DType type, const DagNode *a)
{
    return dense_node(d, op, (DagNode){.kind = DAG_CAST, .type = type, .mask = a->mask,
                                       .n_args = 1, .args = {a}});
}

static inline const DagNode *dense_fn(Dense *d, OpDag *op, FnId fn, const DagNode *a)
{
    return dense_node(d, op, (DagNode){.kind = DAG_FN, .type = DT_F32, .mask = a->mask,
                                       .n_args = 1, .args = {a}, .fn = fn});
}

static inline const DagNode *dense_const(Dense *d, OpDag *op, u32 bits)
{
    return dense_node(d, op, (DagNode){.kind = DAG_CONST, .type = DT_F32, .bits = bits});
}

static inline const DagNode *dense_reduce(Dense *d, OpDag *op, Monoid monoid, const Tree *tree,
                                          const DagNode *body, int n, const int *atoms)
{
    u64 mask = 0;
    int *own = arena_array(d->arena, int, n);
    for (int i = 0; i < n; i++) {
        own[i] = atoms[i];
        mask |= (u64)1 << atoms[i];
    }
    ((Op *)op->op)->space |= mask;
    return dense_node(d, op, (DagNode){.kind = DAG_REDUCE, .type = DT_F32,
                                       .mask = body->mask & ~mask, .n_args = 1, .args = {body},
                                       .monoid = monoid, .tree = tree, .n_atoms = n, .atoms = own});
}

static inline void dense_result(Dense *d, OpDag *op, const char *name, DType type,
                                const DagNode *value, int n, const int *axes)
{
    Op *own = (Op *)op->op;
    Tensor tensor = dense_tensor(d, name, type, n, axes);
    own->results[own->n_results] = tensor;
    own->space |= tensor.mask;
    DagPiece piece = {.result = own->n_results++, .value = value};
    vec_push(d->arena, &op->pieces, piece);
}

static inline OpDag *dense_op(Dense *d, const char *name)
{
    int i = d->contract.n_ops++;
    d->ops[i] = (Op){.name = str_of(name), .params = arena_array(d->arena, Tensor, 8),
                     .results = arena_array(d->arena, Tensor, 4)};
    d->dags[i] = (OpDag){.op = &d->ops[i]};
    d->dag.n_ops = d->contract.n_ops;
    return &d->dags[i];
}

/* ---- ops ------------------------------------------------------------------------------------- */

static inline const DagNode *dense_product_sum(Dense *d, OpDag *op, const Tree *tree,
                                               const DagNode *a, const DagNode *b, int n,
                                               const int *atoms)
{
    return dense_reduce(d, op, MONOID_SUM, tree, dense_binary(d, op, DAG_MUL, a, b), n, atoms);
}

static inline void dense_norm(Dense *d, const char *name)
{
    OpDag *op = dense_op(d, name);
    const DagNode *x = dense_param(d, op, "x", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *w = dense_param(d, op, "w", DT_BF16, AXES(D_HIDDEN));
    const DagNode *wide = dense_cast(d, op, DT_F32, x);
    const DagNode *ss = dense_reduce(d, op, MONOID_SUM, d->row,
                                     dense_binary(d, op, DAG_MUL, wide, wide), AXES(D_HIDDEN));
    const DagNode *r = dense_binary(d, op, DAG_DIV, dense_const(d, op, 0x3f800000),
                                    dense_fn(d, op, FN_SQRT, ss));
    const DagNode *y = dense_binary(d, op, DAG_MUL, wide, r);
    y = dense_binary(d, op, DAG_MUL, dense_cast(d, op, DT_BF16, y), w);
    dense_result(d, op, "y", DT_BF16, y, AXES(D_TOKENS, D_HIDDEN));
}

static inline void dense_qkv(Dense *d)
{
    OpDag *op = dense_op(d, "qkv");
    const DagNode *x = dense_param(d, op, "x", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    static const char *const weights[] = {"wq", "wk", "wv"}, *const results[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        int heads = i ? D_KV : D_HEADS;
        const DagNode *w = dense_param(d, op, weights[i], DT_BF16,
                                       AXES(heads, D_HEAD_DIM, D_HIDDEN));
        const DagNode *sum = dense_product_sum(d, op, d->whole, x, w, AXES(D_HIDDEN));
        dense_result(d, op, results[i], DT_BF16, dense_cast(d, op, DT_BF16, sum),
                     AXES(D_TOKENS, heads, D_HEAD_DIM));
    }
}

static inline void dense_o_proj(Dense *d)
{
    OpDag *op = dense_op(d, "o_proj");
    const DagNode *o = dense_param(d, op, "o", DT_BF16, AXES(D_TOKENS, D_HEADS, D_HEAD_DIM));
    const DagNode *w = dense_param(d, op, "w", DT_BF16, AXES(D_HIDDEN, D_HEADS, D_HEAD_DIM));
    const DagNode *res = dense_param(d, op, "res", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *sum = dense_product_sum(d, op, d->parallel, o, w,
                                           AXES(D_KV, D_GROUP, D_HALF, D_ROT));
    dense_result(d, op, "y", DT_BF16,
                 dense_binary(d, op, DAG_ADD, dense_cast(d, op, DT_BF16, sum), res),
                 AXES(D_TOKENS, D_HIDDEN));
}

static inline void dense_gate_up(Dense *d)
{
    OpDag *op = dense_op(d, "gate_up");
    const DagNode *x = dense_param(d, op, "x", DT_BF16, AXES(D_TOKENS, D_HIDDEN)), *sum[2];
    static const char *const weights[] = {"wg", "wu"};
    for (int i = 0; i < 2; i++) {
        const DagNode *w = dense_param(d, op, weights[i], DT_BF16, AXES(D_FFN, D_HIDDEN));
        sum[i] = dense_cast(d, op, DT_BF16,
                            dense_product_sum(d, op, d->whole, x, w, AXES(D_HIDDEN)));
    }
    const DagNode *act = dense_fn(d, op, FN_SILU, dense_cast(d, op, DT_F32, sum[0]));
    dense_result(d, op, "h", DT_BF16,
                 dense_binary(d, op, DAG_MUL, dense_cast(d, op, DT_BF16, act), sum[1]),
                 AXES(D_TOKENS, D_FFN));
}

static inline void dense_down(Dense *d)
{
    OpDag *op = dense_op(d, "down");
    const DagNode *h = dense_param(d, op, "h", DT_BF16, AXES(D_TOKENS, D_FFN));
    const DagNode *w = dense_param(d, op, "w", DT_BF16, AXES(D_HIDDEN, D_FFN));
    const DagNode *res = dense_param(d, op, "res", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *sum = dense_product_sum(d, op, d->parallel, h, w, AXES(D_FFN));
    dense_result(d, op, "y", DT_BF16,
                 dense_binary(d, op, DAG_ADD, dense_cast(d, op, DT_BF16, sum), res),
                 AXES(D_TOKENS, D_HIDDEN));
}

static inline void dense_lm_head(Dense *d)
{
    OpDag *op = dense_op(d, "lm_head");
    const DagNode *x = dense_param(d, op, "x", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *w = dense_param(d, op, "w", DT_BF16, AXES(D_VOCAB, D_HIDDEN));
    dense_result(d, op, "logits", DT_F32,
                 dense_product_sum(d, op, d->whole, x, w, AXES(D_HIDDEN)),
                 AXES(D_TOKENS, D_VOCAB));
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The last mesh added to the layout that was started last. */
static inline Layout *dense_layout(Dense *d, const char *name)
{
    Layout *layout = &d->layouts[d->contract.n_layouts++];
    *layout = (Layout){.name = {str_of(name), {0}}, .meshes = arena_array(d->arena, Mesh, 8)};
    return layout;
}

static inline Mesh *dense_mesh(Dense *d, Layout *layout, const char *name, int degree, int n,
                               const int *axes, int else_axis)
{
    Mesh *mesh = &layout->meshes[layout->n_meshes++];
    *mesh = (Mesh){.name = {str_of(name), {0}}, .degree = degree, .n_cuts = n,
                   .cuts = arena_array(d->arena, Cut, n + 1), .else_axis = else_axis};
    for (int i = 0; i < n; i++)
        mesh->cuts[i].axis = axes[i];
    return mesh;
}

/* tp DEGREE cuts kv_heads, ffn, vocab [else tokens]; */
static inline Mesh *dense_tp(Dense *d, const char *name, int degree, bool sequence)
{
    return dense_mesh(d, dense_layout(d, name), "tp", degree, AXES(D_KV, D_FFN, D_VOCAB),
                      sequence ? D_TOKENS : -1);
}

/* ---- whole ----------------------------------------------------------------------------------- */

typedef struct DenseSizes {
    i64 hidden, ffn, kv, group, half, vocab;
} DenseSizes;

/* parallel: as for the contracts, unless tree_parts is 0 (one chain) or negative (left). */
static inline void dense_open(Dense *d, DenseSizes s)
{
    memset(d, 0, sizeof *d);
    d->arena = arena_new();
    d->sources.arena = d->arena;
    diags_init(&d->diags, d->arena, &d->sources);
    d->contract = (Contract){.name = STR("dense"), .numerics = fdpa_class("sm_90", FDPA_BF16),
                             .n_axes = D_AXES, .axes = d->axes, .n_atoms = D_ATOMS, .ops = d->ops,
                             .layouts = d->layouts};
    d->dag = (Dag){.contract = &d->contract, .ops = d->dags};
    dense_axis(d, D_TOKENS, "tokens", 0, -1);
    dense_axis(d, D_HIDDEN, "hidden", s.hidden, -1);
    dense_axis(d, D_FFN, "ffn", s.ffn, -1);
    dense_axis(d, D_KV, "kv_heads", s.kv, D_HEADS);
    dense_axis(d, D_GROUP, "group", s.group, D_HEADS);
    dense_axis(d, D_HALF, "half", 2, D_HEAD_DIM);
    dense_axis(d, D_ROT, "rot", s.half, D_HEAD_DIM);
    dense_axis(d, D_VOCAB, "vocab", s.vocab, -1);
    dense_product(d, D_HEADS, "heads", D_KV, D_GROUP);
    dense_product(d, D_HEAD_DIM, "head_dim", D_HALF, D_ROT);
    d->whole = dense_tree(d, (Tree){.form = TREE_MMA});
    d->row = dense_tree(d, (Tree){.form = TREE_LANES, .count = 128, .run = 8, .join = JOIN_PAIRWISE,
                                  .type = DT_F32,
                                  .child = dense_tree(d, (Tree){.form = TREE_CHAIN})});
    d->parallel = dense_split(d, 8, d->whole, JOIN_PAIRWISE);
}

static inline void dense_ops(Dense *d)
{
    dense_norm(d, "input_norm");
    dense_qkv(d);
    dense_o_proj(d);
    dense_gate_up(d);
    dense_down(d);
    dense_lm_head(d);
}

static inline void dense_close(Dense *d)
{
    arena_free(d->arena);
}

#endif
