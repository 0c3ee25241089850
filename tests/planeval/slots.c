/* Slots: where they stand, what ranks them, and which rank's they are. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- indices --------------------------------------------------------------------------------- */

static int64_t from_param(const Frame *f, int64_t param, int atom)
{
    const Memory *memory = &f->machine->params[param];
    const Shape *shape = &f->kernel->op->params[param];
    int64_t at = memory->offset;
    for (int a = 0; a < shape->n_axes; a++)
        at += f->index[shape->atoms[a][0]] * memory->stride[a];
    int64_t own = ((const int32_t *)memory->data)[at];
    return own >= 0 && own < f->machine->plan->size[atom] ? own : -1;
}

/* The operand that sets a result: each result once, in the order of the fixes. */
static int setter(const Node *node, int64_t at)
{
    int k = strcmp(node->kind, "input") ? 1 : 0;
    for (int i = 0; i < node->n_fixes && node->fixes[i].at != at; i++) {
        bool first = ~node->fixes[i].at >= FIX_RESULT && node->fixes[i].at < 0;
        for (int j = 0; j < i; j++)
            first &= node->fixes[j].at != node->fixes[i].at;
        k += first;
    }
    return node->args[k];
}

int64_t looked_up(const Frame *f, const Node *node, const Fixed *fix)
{
    if (~fix->at < FIX_RESULT)
        return from_param(f, ~fix->at, fix->atom);
    int64_t own = (int32_t)node_value(f, setter(node, fix->at));
    return own >= 0 && own < f->machine->plan->size[fix->atom] ? own : -1;
}

int slot_places(const Frame *f, const Node *reduce, int64_t *places)
{
    Frame own = *f;
    int n = (int)f->machine->plan->size[reduce->slots];
    if (n > SLOTS_MOST)
        die("more slots than an evaluator of plans has room for");
    for (int k = 0; k < n; k++) {
        own.index[reduce->slots] = k;
        places[k] = looked_up(&own, reduce, &reduce->fixes[0]);
        for (int j = 0; j < k; j++)
            if (places[j] == places[k])
                places[k] = -1;
    }
    return n;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* A slot that stands nowhere is in the first part. */
bool owns_slots(const Frame *f, int result)
{
    const PlanOp *op = f->kernel->op;
    const Shape *shape = &op->results[result];
    for (int a = 0; a < shape->n_axes && !shape->integers; a++) {
        int slots = shape->atoms[a][0], of = f->machine->plan->slots_of[slots];
        for (int p = 0; of >= 0 && p < op->n_params; p++) {
            const Shape *by = &op->params[p];
            if (!by->integers || by->n_axes != 2 || by->atoms[1][0] != slots)
                continue;
            int64_t at = from_param(f, p, of);
            return at < 0 ? f->part->lo[of] == 0 : at >= f->part->lo[of] && at < f->part->hi[of];
        }
    }
    return true;
}

/* ---- top ------------------------------------------------------------------------------------- */

typedef struct Scored {
    int64_t index;
    float x;
} Scored;

/* NaN above all, equal to NaN; -0 equal to +0. */
static int above(float a, float b)
{
    bool na = a != a, nb = b != b;
    if (na || nb)
        return na - nb;
    return (a > b) - (a < b);
}

static int before(const void *a, const void *b)
{
    const Scored *x = a, *y = b;
    int c = above(y->x, x->x);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

static int lower(const void *a, const void *b)
{
    const Scored *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Those of the groups that are kept; the rest goes. */
static int64_t keep_groups(const Node *node, Scored *v, int64_t n)
{
    Scored *group = room((size_t)node->groups, sizeof *group);
    int64_t each = n / node->groups, kept = 0;
    Scored *own = room((size_t)each, sizeof *own);
    for (int g = 0; g < node->groups; g++) {
        memcpy(own, v + g * each, sizeof *own * (size_t)each);
        qsort(own, (size_t)each, sizeof *own, before);
        group[g] = (Scored){g, own[0].x};
        for (int i = 1; i < node->group_sum; i++)
            group[g].x = add(group[g].x, own[i].x);
    }
    qsort(group, (size_t)node->groups, sizeof *group, before);
    for (int64_t i = 0; i < n; i++) {
        bool in = false;
        for (int k = 0; k < node->keep; k++)
            in |= group[k].index == v[i].index / each;
        if (in)
            v[kept++] = v[i];
    }
    free(group);
    free(own);
    return kept;
}

uint32_t top_value(const Frame *f, const Node *node)
{
    Frame own = *f;
    int atom = node->over[0];
    int64_t n = f->machine->plan->size[atom], slot = f->index[node->slots];
    Scored *v = room((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        own.index[atom] = i;
        v[i] = (Scored){i, as_f32(F32, node_value(&own, node->args[0]))};
    }
    if (node->groups > 1)
        n = keep_groups(node, v, n);
    qsort(v, (size_t)n, sizeof *v, before);
    if (node->by_index)
        qsort(v, (size_t)f->machine->plan->size[node->slots], sizeof *v, lower);
    uint32_t index = (uint32_t)v[slot].index;
    free(v);
    return index;
}
