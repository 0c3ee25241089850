/* `top` in the executor: a row's indices sorted by their scores, groups first where there are some,
 * as clause 6.22 has it. */
#include "exec_impl.h"

#include "device/iso_random.cuh"

#include <stdlib.h>

typedef struct Ranked {
    i64 index;
    u32 rank;
    float z;
} Ranked;

static int before(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int ascending(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sort(Ranked *v, i64 n, int (*order)(const void *, const void *))
{
    qsort(v, (size_t)n, sizeof *v, order);
}

/* Of members that are in order. */
static float group_score(const Top *top, const Ranked *member)
{
    float sum = member[0].z;
    for (i64 i = 1; i < top->group_sum; i++)
        sum = iso_add(sum, member[i].z);
    return sum;
}

/* Moves the kept groups' members to the head; how many they are. */
static i64 keep_groups(const Top *top, Ranked *v, i64 n, Ranked *group)
{
    i64 size = n / top->groups;
    for (i64 g = 0; g < top->groups; g++) {
        sort(v + g * size, size, before);
        float z = group_score(top, v + g * size);
        group[g] = (Ranked){g, iso_score_rank(z), z};
    }
    sort(group, top->groups, before);
    sort(group, top->keep, ascending);
    for (i64 k = 0; k < top->keep; k++)
        for (i64 i = 0; i < size; i++)
            v[k * size + i] = v[group[k].index * size + i];
    return top->keep * size;
}

/* A row of n scores: top->k indices. */
static void choose(const Top *top, const float *scores, i64 n, i64 step, ExecScratch *scratch,
                   i64 *out)
{
    ExecMark mark = scratch_mark(scratch);
    Ranked *v = scratch_array(scratch, Ranked, n);
    for (i64 i = 0; i < n; i++)
        v[i] = (Ranked){i, iso_score_rank(scores[i * step]), scores[i * step]};
    if (top->groups > 1)
        n = keep_groups(top, v, n, scratch_array(scratch, Ranked, top->groups));
    sort(v, n, before);
    if (top->by_index)
        sort(v, top->k, ascending);
    for (i64 i = 0; i < top->k; i++)
        out[i] = v[i].index;
    scratch_release(scratch, mark);
}

/* ---- all rows of a scope --------------------------------------------------------------------- */

/* As many as there are: none. */
static int dim_of(const ExecSpace *space, int atom)
{
    int d = 0;
    while (d < space->n && space->dim[d].atom != atom)
        d++;
    return d;
}

void exec_top(ExecScope *scope, const DagNode *node, const i64 *stride, float *out)
{
    const Top *top = node->top;
    i64 n = atom_size(scope->call->job->contract, top->atom, 0);
    exec_eval_outside(scope, node->args[0], (u64)1 << top->atom);
    ExecMark mark = scratch_mark(scope->scratch);
    ExecScope inner = {.call = scope->call, .scratch = scope->scratch, .parent = scope,
                       .space = scope->space, .fresh = (u64)1 << top->atom};
    int tokens = dim_of(&scope->space, top->tokens), picks = dim_of(&scope->space, top->picks);
    int last = dim_of(&scope->space, top->atom);
    inner.space.n += last == inner.space.n;
    inner.space.dim[last] = exec_whole_axis(scope->scratch, top->atom, n);
    exec_scope_start(&inner);
    const ExecValue *scores = exec_eval(&inner, node->args[0]);
    i64 *chosen = scratch_array(scope->scratch, i64, top->k);
    for (i64 i = 0; i < scope->space.dim[tokens].n; i++) {
        choose(top, scores->v + i * scores->stride[tokens], n, scores->stride[last],
                     scope->scratch, chosen);
        for (i64 k = 0; k < scope->space.dim[picks].n; k++)
            out[i * stride[tokens] + k * stride[picks]] =
                iso_bits_f32((u32)chosen[scope->space.dim[picks].at[k]]);
    }
    scratch_release(scope->scratch, mark);
}
