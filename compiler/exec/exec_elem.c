/* Element expressions of the executor: what each node that is no reduction computes. Every
 * operation is an f32 operation of device/iso_num.cuh, rounded once to the node's type. */
#include "exec_impl.h"

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"

#include <string.h>

/* ---- operations ------------------------------------------------------------------------------ */

static float const_value(const DagNode *node)
{
    const u16 half = (u16)node->bits;
    const void *pattern = node->type == DT_F32 ? (const void *)&node->bits : &half;
    float x;
    exec_load(node->type, pattern, 1, 1, &x);
    return x;
}

/* A cast to the same type and bf16 to f32 are moves; f16 to f32 changes the fields, so its NaN is
 * canonical; the others round. */
static float cast_value(DType from, DType to, float x)
{
    return from == to ? x : exec_round(to, exec_widen(from, x));
}

typedef struct Operands {
    i64 n;
    const float *a, *b;
    i64 step_a, step_b;
    float *out;
} Operands;

#define EACH1(o, f)                                                                                \
    for (i64 i = 0; i < (o)->n; i++)                                                               \
        (o)->out[i] = f((o)->a[i * (o)->step_a]);
#define EACH2(o, f)                                                                                \
    for (i64 i = 0; i < (o)->n; i++)                                                               \
        (o)->out[i] = f((o)->a[i * (o)->step_a], (o)->b[i * (o)->step_b]);

static void apply_fn(FnId fn, const Operands *o)
{
    switch (fn) {
#define X(id, name, arity, function)                                                               \
    case FN_##id:                                                                                  \
        EACH##arity(o, function) break;
#include "base/scalar.def"
#undef X
    case FN_COUNT:
        break;
    }
}

static void apply_cast(const DagNode *node, const Operands *o)
{
    DType from = node->args[0]->type, to = node->type;
    for (i64 i = 0; i < o->n; i++)
        o->out[i] = cast_value(from, to, o->a[i * o->step_a]);
}

static void round_run(DType type, float *x, i64 n)
{
    if (type != DT_F32)
        for (i64 i = 0; i < n; i++)
            x[i] = exec_round(type, x[i]);
}

static void apply(const DagNode *node, const Operands *o)
{
    switch (node->kind) {
    case DAG_CAST:
        apply_cast(node, o);
        return;
    case DAG_NEG:
        EACH1(o, iso_neg) return;
    case DAG_ADD:
        EACH2(o, iso_add) break;
    case DAG_SUB:
        EACH2(o, iso_sub) break;
    case DAG_MUL:
        EACH2(o, iso_mul) break;
    case DAG_DIV:
        EACH2(o, iso_div) break;
    case DAG_FN:
        apply_fn(node->fn, o);
        break;
    case DAG_INPUT:
    case DAG_CONST:
    case DAG_ONLY:
    case DAG_REDUCE:
    case DAG_ATTEND:
    case DAG_DRAW:
    case DAG_TOP:
        return;
    }
    round_run(node->type, o->out, o->n);
}

/* What is not at the index that a tensor says is -inf. */
typedef struct Keeping {
    ExecScope *scope;
    const ExecValue *value;
    const i64 *stride;
    float *out;
    int own; /* the dimension along which it is kept */
    u64 others;
    ExecLookup lookup;
    i64 place[MAX_ATOMS];
} Keeping;

static void keep_here(const Keeping *k, i64 from, i64 to)
{
    const ExecDim *along = &k->scope->space.dim[k->own];
    i64 at = exec_lookup_at(&k->lookup, k->place);
    ExecWalk walk;
    for (i64 i = 0; i < along->n; i++) {
        bool kept = along->at[i] == at;
        float *out = k->out + to + i * k->stride[k->own];
        const float *in = k->value->v + from + i * k->value->stride[k->own];
        exec_walk(&walk, &k->scope->space, k->others, 2,
                  (const i64 *const[]){k->stride, k->value->stride});
        while (exec_walk_next(&walk))
            for (i64 j = 0; j < walk.inner; j++)
                out[walk.offset[0] + j * walk.step[0]] =
                    kept ? in[walk.offset[1] + j * walk.step[1]] : iso_bits_f32(0xFF800000u);
    }
}

static void keep(Keeping *k, int d, i64 from, i64 to)
{
    const ExecSpace *space = &k->scope->space;
    while (d < space->n && !exec_looks_up(&k->lookup, 1, d))
        d++;
    if (d == space->n) {
        keep_here(k, from, to);
        return;
    }
    for (i64 i = 0; i < space->dim[d].n; i++) {
        k->place[d] = i;
        keep(k, d + 1, from + i * k->value->stride[d], to + i * k->stride[d]);
    }
}

static void eval_only(ExecScope *scope, const DagNode *node, const i64 *stride, float *out)
{
    u64 mask = exec_mask(scope->call, node);
    Keeping k = {.scope = scope, .value = exec_eval_over(scope, node->args[0], mask),
                 .stride = stride, .out = out, .others = mask};
    exec_lookup(scope, node, &node->fixes[0], 1, &k.lookup);
    for (int d = 0; d < scope->space.n; d++) {
        bool own = scope->space.dim[d].atom == node->fixes[0].atom;
        if (own)
            k.own = d;
        if (own || exec_looks_up(&k.lookup, 1, d))
            k.others &= ~((u64)1 << scope->space.dim[d].atom);
    }
    keep(&k, 0, 0, 0);
}

static void eval_operation(ExecScope *scope, const DagNode *node, const i64 *stride, float *out)
{
    const ExecValue *a = exec_eval(scope, node->args[0]);
    const ExecValue *b = node->n_args > 1 ? exec_eval(scope, node->args[1]) : a;
    ExecWalk walk;
    exec_walk(&walk, &scope->space, exec_mask(scope->call, node), 3,
              (const i64 *const[]){stride, a->stride, b->stride});
    while (exec_walk_next(&walk)) {
        Operands o = {walk.inner, a->v + walk.offset[1], b->v + walk.offset[2], walk.step[1],
                      walk.step[2], out + walk.offset[0]};
        apply(node, &o);
    }
}

/* ---- scopes ---------------------------------------------------------------------------------- */

void exec_scope_start(ExecScope *scope)
{
    int n = scope->call->n_numbers;
    scope->memo = scratch_array(scope->scratch, ExecValue *, n);
    memset(scope->memo, 0, sizeof *scope->memo * (size_t)n);
}

/* A value of the parent, by this scope's dimensions: their indices are the same there. */
static ExecValue *from_parent(ExecScope *scope, const DagNode *node)
{
    const ExecValue *above = exec_eval(scope->parent, node);
    const ExecSpace *from = &scope->parent->space;
    ExecValue *value = scratch_alloc(scope->scratch, sizeof *value);
    memset(value, 0, sizeof *value);
    value->v = above->v;
    for (int d = 0; d < scope->space.n; d++)
        for (int p = 0; p < from->n; p++)
            if (from->dim[p].atom == scope->space.dim[d].atom)
                value->stride[d] = above->stride[p];
    return value;
}

static ExecValue *eval_here(ExecScope *scope, const DagNode *node)
{
    ExecValue *value = scratch_alloc(scope->scratch, sizeof *value);
    i64 n = exec_strides(&scope->space, exec_mask(scope->call, node), value->stride);
    value->v = scratch_array(scope->scratch, float, n);
    if (n == 0)
        return value;
    if (node->kind == DAG_INPUT)
        exec_input(scope, node, value->stride, value->v);
    else if (node->kind == DAG_CONST)
        value->v[0] = const_value(node);
    else if (node->kind == DAG_REDUCE)
        exec_reduce(scope, exec_reduce_of(scope->call, node), value->v);
    else if (node->kind == DAG_ATTEND)
        exec_attend(scope, node, value->stride, value->v);
    else if (node->kind == DAG_ONLY)
        eval_only(scope, node, value->stride, value->v);
    else if (node->kind == DAG_DRAW)
        exec_draw(scope, node, value->stride, value->v);
    else if (node->kind == DAG_TOP)
        exec_top(scope, node, value->stride, value->v);
    else
        eval_operation(scope, node, value->stride, value->v);
    return value;
}

const ExecValue *exec_eval(ExecScope *scope, const DagNode *node)
{
    ExecValue **memo = &scope->memo[node->number - scope->call->first];
    if (!*memo) {
        bool above = scope->parent && !(exec_mask(scope->call, node) & scope->fresh);
        *memo = above ? from_parent(scope, node) : eval_here(scope, node);
    }
    return *memo;
}

const ExecValue *exec_eval_over(ExecScope *scope, const DagNode *node, u64 mask)
{
    const ExecValue *value = exec_eval(scope, node);
    mask &= exec_space_atoms(&scope->space);
    if ((exec_mask(scope->call, node) & mask) == mask &&
        !(scope->parent && !(exec_mask(scope->call, node) & scope->fresh)))
        return value;
    ExecValue *whole = scratch_alloc(scope->scratch, sizeof *whole);
    whole->v = scratch_array(scope->scratch, float,
                             exec_strides(&scope->space, mask, whole->stride));
    ExecWalk walk;
    exec_walk(&walk, &scope->space, mask, 2, (const i64 *const[]){whole->stride, value->stride});
    while (exec_walk_next(&walk)) {
        float *out = whole->v + walk.offset[0];
        const float *in = value->v + walk.offset[1];
        for (i64 i = 0; i < walk.inner; i++)
            out[i] = in[i * walk.step[1]];
    }
    return whole;
}

static bool *seen_new(ExecScope *scope)
{
    size_t n = (size_t)scope->call->n_numbers;
    return memset(scratch_array(scope->scratch, bool, n), 0, n * sizeof(bool));
}

static void eval_outside(ExecScope *scope, const DagNode *node, u64 fresh, bool *seen)
{
    bool *mark = &seen[node->number - scope->call->first];
    if (*mark)
        return;
    *mark = true;
    if (!(exec_mask(scope->call, node) & fresh)) {
        exec_eval(scope, node);
        return;
    }
    const ExecReduce *reduce = exec_reduce_of(scope->call, node);
    if ((reduce && reduce->n_given) || node->kind == DAG_ATTEND)
        return;
    if (reduce || node->kind > DAG_ATTEND) {
        fresh |= reduce                    ? exec_space_atoms(&reduce->over)
                 : node->kind == DAG_TOP ? (u64)1 << node->top->atom
                                         : (u64)1 << node->draw->atom;
        seen = seen_new(scope);
    }
    for (int i = 0; i < node->n_args; i++)
        eval_outside(scope, node->args[i], fresh, seen);
}

void exec_eval_outside(ExecScope *scope, const DagNode *node, u64 fresh)
{
    eval_outside(scope, node, fresh, seen_new(scope));
}
