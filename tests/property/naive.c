/* A scalar reading of the language's clauses; shares the scalar functions' text and the tensor-core
 * step with the executor, nothing else. */
#include "naive.h"

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"

enum { LONGEST = 4096 };

static float to_f32(DType type, u32 bits)
{
    return type == DT_F32    ? iso_bits_f32(bits)
           : type == DT_BF16 ? iso_f32_of_bf16((u16)bits)
                             : iso_f32_of_f16((u16)bits);
}

static u32 from_f32(DType type, float x)
{
    return type == DT_F32    ? iso_f32_bits(x)
           : type == DT_BF16 ? iso_bf16_of_f32(x)
                             : iso_f16_of_f32(x);
}

static float rounded(DType type, float x)
{
    return to_f32(type, from_f32(type, x));
}

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct Value {
    bool present;
    DType type;
    float v[3];
} Value;

typedef struct Reading { /* of one element of a reduce */
    const Lab *lab;
    const DagNode *node;
    i64 *index;
} Reading;

/* Puts element k of the reduced axes, row-major, into the indices; or slot k. */
static void set_index(const Reading *r, i64 k)
{
    if (r->node->n_fixes)
        r->index[r->node->slots] = k;
    for (int i = r->node->n_fixes ? -1 : r->node->n_atoms - 1; i >= 0; i--) {
        i64 size = lab_size(r->lab, r->node->atoms[i]);
        r->index[r->node->atoms[i]] = k % size;
        k /= size;
    }
}

static float operand(const Reading *r, const DagNode *node, i64 k)
{
    set_index(r, k);
    return to_f32(node->type, naive_value(r->lab, node, r->index));
}

static u32 operand_bits(const Reading *r, const DagNode *node, i64 k)
{
    set_index(r, k);
    return naive_value(r->lab, node, r->index);
}

static Value value_of(Monoid monoid, float x)
{
    Value v = {.present = true, .type = DT_F32, .v = {x, 1}};
    if (monoid != MONOID_LOGSUMEXP)
        v.v[1] = 0;
    return v;
}

static void lse(DType t, const float *l, const float *r, float *out)
{
    float m = rounded(t, iso_max(l[0], r[0])), p[2];
    const float *in[2] = {l, r};
    for (int i = 0; i < 2; i++) {
        float d = in[i][0] == m ? 0 : rounded(t, iso_sub(in[i][0], m));
        p[i] = rounded(t, iso_mul(in[i][1], rounded(t, iso_exp(d))));
    }
    out[0] = m;
    out[1] = rounded(t, iso_add(p[0], p[1]));
}

static Value join(Monoid monoid, DType type, Value l, Value r)
{
    Value out = {.present = true, .type = type};
    if (!l.present || !r.present)
        return l.present ? l : r;
    if (monoid == MONOID_SUM)
        out.v[0] = rounded(type, iso_add(l.v[0], r.v[0]));
    else if (monoid == MONOID_MAX)
        out.v[0] = rounded(type, iso_max(l.v[0], r.v[0]));
    else
        lse(type, l.v, r.v, out.v);
    return out;
}

static Value in_type(Monoid monoid, DType type, Value v)
{
    for (int i = 0; v.present && v.type != type && i < monoid_values(monoid); i++)
        v.v[i] = rounded(type, v.v[i]);
    v.type = type;
    return v;
}

static Value mma(const Reading *r, const i64 *k, int n)
{
    const DagNode *body = r->node->args[0];
    const FdpaClass *cls = r->lab->contract.numerics;
    FdpaType type = body->args[0]->type == DT_F16 ? FDPA_F16 : FDPA_BF16;
    Value v = {.present = true, .type = DT_F32};
    for (int i = 0; i < n; i += cls->group) {
        FdpaElem a[32], b[32];
        for (int j = 0; j < cls->group; j++) {
            bool in = i + j < n;
            a[j] = fdpa_elem(type, in ? operand_bits(r, body->args[0], k[i + j]) : 0);
            b[j] = fdpa_elem(type, in ? operand_bits(r, body->args[1], k[i + j]) : 0);
        }
        v.v[0] = fdpa_step(cls, a, b, v.v[0]);
    }
    return v;
}

static Value chain(const Reading *r, const i64 *k, int n, bool fused)
{
    const DagNode *body = r->node->args[0];
    Monoid monoid = r->node->monoid;
    Value v = {0};
    for (int i = 0; i < n; i++) {
        if (k[i] < 0)
            continue;
        if (fused && v.present)
            v.v[0] = iso_fma(operand(r, body->args[0], k[i]), operand(r, body->args[1], k[i]),
                             v.v[0]);
        else
            v = join(monoid, DT_F32, v, value_of(monoid, operand(r, body, k[i])));
    }
    return v;
}

static Value pairwise(Monoid monoid, DType type, const Value *v, int n)
{
    int left = 1;
    if (n == 1)
        return v[0];
    while (2 * left < n)
        left *= 2;
    return join(monoid, type, pairwise(monoid, type, v, left),
                pairwise(monoid, type, v + left, n - left));
}

/* Which part of the tree element i of n is in. */
static int part_of(const Tree *tree, i64 i, i64 n)
{
    if (tree->form == TREE_EVERY)
        return (int)(i / tree->count);
    if (tree->form == TREE_LANES)
        return (int)(i / tree->run % tree->count);
    if (!tree->n_parts)
        return (int)(i / (n / tree->count));
    int p = 0;
    for (i64 end = tree->parts[0]; i >= end; end += tree->parts[++p])
        ;
    return p;
}

static Value tree_of(const Reading *r, const Tree *tree, const i64 *k, int n, int places);

/* n elements in the first of so many places. */
static Value parts_of(const Reading *r, const Tree *tree, const i64 *k, int n, int places)
{
    static _Thread_local i64 pool[16 * LONGEST];
    static _Thread_local int used;
    Monoid monoid = r->node->monoid;
    i64 *own = pool + used;
    Value part[LONGEST];
    int parts = tree->form == TREE_LANES ? (int)tree->count : part_of(tree, places - 1, places) + 1;
    for (int p = 0; p < parts; p++) {
        int m = 0, of = 0;
        for (int i = 0; i < places; i++) {
            if (part_of(tree, i, places) != p)
                continue;
            of++;
            if (i < n)
                own[m++] = k[i];
        }
        if (tree->form == TREE_EVERY)
            of = (int)tree->count;
        used += m;
        part[p] = in_type(monoid, tree->type, tree_of(r, tree->child, own, m, of));
        used -= m;
    }
    if (tree->join == JOIN_PAIRWISE)
        return pairwise(monoid, tree->type, part, parts);
    for (int p = 1; p < parts; p++)
        part[0] = join(monoid, tree->type, part[0], part[p]);
    return part[0];
}

static Value tree_of(const Reading *r, const Tree *tree, const i64 *k, int n, int places)
{
    const DagNode *body = r->node->args[0];
    bool product = r->node->monoid == MONOID_SUM && body->kind == DAG_MUL && body->type == DT_F32;
    bool some = false;
    for (int i = 0; i < n && !some; i++)
        some = k[i] >= 0;
    if (!some)
        return (Value){0};
    switch (tree->form) {
    case TREE_MMA:
        return mma(r, k, n);
    case TREE_CHAIN:
        return chain(r, k, n, product);
    case TREE_CHAIN_ADD:
        return chain(r, k, n, false);
    case TREE_ROUND:
        return in_type(r->node->monoid, tree->type, tree_of(r, tree->child, k, n, places));
    default:
        return parts_of(r, tree, k, n, places);
    }
}

/* Which slot stands at each place; -1: none. */
static void places_of(const Lab *lab, const DagNode *node, const i64 *index, i64 *k, int n)
{
    const Tensor *by = fix_tensor(&lab->op, &node->fixes[0]);
    const ExecTensor *memory = &lab->in[~node->fixes[0].at];
    for (int i = 0; i < n; i++)
        k[i] = -1;
    for (int slot = (int)lab_size(lab, node->slots) - 1; slot >= 0; slot--) {
        i64 row = index[by->atoms[0]] * memory->stride[0];
        int32_t at = ((const int32_t *)memory->data)[row + slot];
        if (at >= 0 && at < n)
            k[at] = slot;
    }
}

static u32 reduce_value(const Lab *lab, const DagNode *node, i64 *index)
{
    i64 k[LONGEST];
    int n = 1;
    for (int i = 0; i < node->n_atoms; i++)
        n *= (int)lab_size(lab, node->atoms[i]);
    for (int i = 0; i < n; i++)
        k[i] = i;
    if (node->n_fixes)
        places_of(lab, node, index, k, n);
    Reading r = {lab, node, index};
    Value v = tree_of(&r, node->tree, k, n, n);
    if (!v.present)
        return from_f32(node->type, node->monoid == MONOID_SUM ? 0.0f : -INFINITY);
    if (node->monoid == MONOID_LOGSUMEXP)
        v.v[0] = rounded(v.type, iso_add(v.v[0], rounded(v.type, iso_log(v.v[1]))));
    return from_f32(node->type, v.v[0]);
}

/* ---- elements -------------------------------------------------------------------------------- */

static u32 input_value(const Lab *lab, const DagNode *node, const i64 *index)
{
    const Tensor *t = &lab->params[node->param];
    i64 at = 0;
    for (int i = 0; i < t->n_atoms; i++)
        at += index[t->atoms[i]] * lab->in[node->param].stride[i];
    const void *data = lab->in[node->param].data;
    return t->type == DT_F32 ? ((const u32 *)data)[at] : ((const u16 *)data)[at];
}

#define CALL1(f) f(a)
#define CALL2(f) f(a, b)

static float function_value(FnId fn, float a, float b)
{
    switch (fn) {
#define X(id, name, arity, function)                                                               \
    case FN_##id:                                                                                  \
        return CALL##arity(function);
#include "base/scalar.def"
#undef X
    default:
        return 0;
    }
}

static float operation(const DagNode *node, float a, float b)
{
    switch (node->kind) {
    case DAG_ADD:
        return iso_add(a, b);
    case DAG_SUB:
        return iso_sub(a, b);
    case DAG_MUL:
        return iso_mul(a, b);
    case DAG_DIV:
        return iso_div(a, b);
    case DAG_FN:
        return function_value(node->fn, a, b);
    default:
        return a;
    }
}

static u32 sign_flipped(DType type, u32 bits)
{
    return bits ^ (type == DT_F32 ? 0x80000000u : 0x8000u);
}

u32 naive_value(const Lab *lab, const DagNode *node, const i64 *index)
{
    i64 own[MAX_ATOMS];
    u32 arg[2] = {0, 0};
    float x[2];
    memcpy(own, index, sizeof own);
    if (node->kind == DAG_INPUT)
        return input_value(lab, node, index);
    if (node->kind == DAG_CONST)
        return node->bits;
    if (node->kind == DAG_REDUCE)
        return reduce_value(lab, node, own);
    for (int i = 0; i < node->n_args; i++) {
        arg[i] = naive_value(lab, node->args[i], index);
        x[i] = to_f32(node->args[i]->type, arg[i]);
    }
    if (node->kind == DAG_NEG)
        return sign_flipped(node->type, arg[0]);
    if (node->kind == DAG_CAST && node->type == node->args[0]->type)
        return arg[0];
    return from_f32(node->type, operation(node, x[0], node->n_args > 1 ? x[1] : x[0]));
}
