/* Sums of slots in the executor: each is an element at its place, other places hold none, and what
 * is absent is no operand of anything (clauses 6.3 and 6.23). */
#include "exec_impl.h"

#include "device/iso_num.cuh"

#include <string.h>

/* ---- where slots stand ----------------------------------------------------------------------- */

static bool same_token(const ExecSlots *s, const i64 *place)
{
    for (int i = 0; i + 1 < s->lookup.n_dims; i++)
        if (s->token[i] != place[s->lookup.dim[i]])
            return false;
    return s->known;
}

void exec_slots(ExecScope *scope, const ExecReduce *reduce, ExecSlots *out)
{
    memset(out, 0, sizeof *out);
    exec_lookup(scope, reduce->node, &reduce->node->fixes[0], 0, &out->lookup);
    out->n = reduce->over.dim[0].n;
    out->slot = scratch_array(scope->scratch, int, out->lookup.size);
    memset(out->slot, 0xFF, sizeof *out->slot * (size_t)out->lookup.size);
    out->at = scratch_array(scope->scratch, i64, out->n);
}

void exec_slots_of(ExecSlots *s, const i64 *place)
{
    i64 own[MAX_ATOMS];
    if (same_token(s, place))
        return;
    for (i64 k = 0; s->known && k < s->n; k++)
        if (s->at[k] >= 0)
            s->slot[s->at[k]] = -1;
    s->known = true;
    for (int i = 0; i < s->lookup.n_dims; i++)
        s->token[i] = own[s->lookup.dim[i]] = place[s->lookup.dim[i]];
    for (i64 k = 0; k < s->n; k++) {
        own[s->lookup.dim[s->lookup.n_dims - 1]] = k;
        s->at[k] = exec_lookup_at(&s->lookup, own);
        if (s->at[k] >= 0 && s->slot[s->at[k]] >= 0)
            s->at[k] = -1; /* the first of two at one place stands there */
        if (s->at[k] >= 0)
            s->slot[s->at[k]] = (int)k;
    }
}

static bool leaf_has(const TreeNode *node, i64 place)
{
    for (int r = 0; r < node->n_runs; r++)
        if (place >= node->runs[r].start && place < node->runs[r].start + node->runs[r].len)
            return true;
    return false;
}

static bool node_has(const TreeNode *node, i64 place)
{
    for (; node->kind != NODE_LEAF; node = node->left) {
        if (place < node->lo || place >= node->hi)
            return false;
        if (node->kind == NODE_JOIN && node_has(node->right, place))
            return true;
    }
    return leaf_has(node, place);
}

bool exec_slots_in(const ExecSlots *s, const TreeNode *node)
{
    for (i64 k = 0; k < s->n; k++)
        if (s->at[k] >= 0 && node_has(node, s->at[k]))
            return true;
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* One element of the outer dimensions. */
typedef struct Placed {
    ExecTile *tile;
    const ExecSlots *slots;
    Monoid monoid;
    DType type;
    const float *x[2]; /* of slot 0: the factors, or the body alone */
    i64 step[2];
} Placed;

static bool leaf_value(const Placed *p, const TreeNode *node, float *out)
{
    bool present = false;
    for (int r = 0; r < node->n_runs; r++) {
        i64 end = node->runs[r].start + node->runs[r].len;
        for (i64 at = node->runs[r].start; at < end; at++) {
            i64 k = p->slots->slot[at];
            float next[2];
            if (k < 0)
                continue;
            float a = p->x[0][k * p->step[0]], b = p->tile->fused ? p->x[1][k * p->step[1]] : 0;
            if (p->tile->fused) {
                *out = present ? iso_fma(a, b, *out) : iso_mul(a, b);
            } else {
                exec_lift(p->monoid, exec_widen(p->type, a), present ? next : out);
                if (present)
                    exec_join_values(p->monoid, DT_F32, out, next, out);
            }
            present = true;
        }
    }
    return present;
}

/* Down the left side to a leaf, then up. False: absent, and nothing is written. */
static bool place_value(const Placed *p, const TreeNode *node, float *out)
{
    if (!exec_slots_in(p->slots, node))
        return false;
    ExecScratch *scratch = p->tile->scope.scratch;
    int depth = exec_left_depth(node), values = monoid_values(p->monoid);
    ExecMark mark = scratch_mark(scratch);
    const TreeNode **up = scratch_array(scratch, const TreeNode *, depth);
    for (int i = 0; i < depth; i++, node = node->left)
        up[i] = node;
    bool present = leaf_value(p, node, out);
    while (depth-- > 0) {
        float right[3];
        if (up[depth]->kind == NODE_ROUND) {
            for (int v = 0; present && v < values; v++)
                out[v] = exec_round(up[depth]->type, exec_widen(up[depth]->left->type, out[v]));
        } else if (place_value(p, up[depth]->right, right)) {
            if (present)
                exec_join_values(p->monoid, up[depth]->type, out, right, out);
            else
                memcpy(out, right, sizeof *out * (size_t)values);
            present = true;
        }
    }
    scratch_release(scratch, mark);
    return present;
}

void exec_absent(Monoid monoid, float *out)
{
    out[0] = exec_of_nothing(monoid);
    for (int v = 1; v < monoid_values(monoid); v++)
        out[v] = 0;
}

void exec_places(ExecTile *tile, const TreeNode *root, float *out)
{
    const ExecSpace *space = &tile->scope.space;
    const DagNode *node = tile->reduce->node;
    int outer = space->n - 1, values = monoid_values(node->monoid);
    i64 place[MAX_ATOMS] = {0};
    ExecSlots slots;
    Placed p = {.tile = tile, .slots = &slots, .monoid = node->monoid,
                .type = node->args[0]->type};
    exec_slots(&tile->scope, tile->reduce, &slots);
    for (i64 e = 0; e < tile->elements; e++, out += values) {
        exec_slots_of(&slots, place);
        for (int i = 0; i < 2 && tile->value[i]; i++) {
            p.x[i] = tile->value[i]->v;
            p.step[i] = tile->value[i]->stride[outer];
            for (int d = 0; d < outer; d++)
                p.x[i] += place[d] * tile->value[i]->stride[d];
        }
        if (!place_value(&p, root, out))
            exec_absent(node->monoid, out);
        for (int d = outer - 1; d >= 0 && ++place[d] == space->dim[d].n; d--)
            place[d] = 0;
    }
}
