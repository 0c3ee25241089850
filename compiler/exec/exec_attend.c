/* `attend` in the executor: row by row, split by split, block by block, as clause 6.13 has it. Only
 * keys that a row may see are read for it. */
#include "exec_attend_impl.h"

#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"

#include <string.h>

enum { ROOT_TAIL = 4 };

#define LOG2_E 0x1.715476p+0f
#define LN_2 0x1.62e43p-1f

bool exec_can_attend(const ExecJob *job, const DagNode *node)
{
    return node->kind != DAG_ATTEND ||
           (job->positions && job->sequences && (job->lengths || node->attend->causal));
}

/* ---- splits ---------------------------------------------------------------------------------- */

static Range within(Range keys, i64 lo, i64 length)
{
    return (Range){keys.lo > lo ? keys.lo : lo, keys.hi < lo + length ? keys.hi : lo + length};
}

static void attend_split(Attending *a, i64 lo, Range seen, Triple *split)
{
    Lanes lanes = {.has = {false}};
    split->present = false;
    for (i64 block = lo; block < lo + a->attend->split; block += a->attend->block) {
        Range here = within(seen, block, a->attend->block);
        if (here.lo < here.hi)
            exec_attend_block(a, block, here, split, &lanes);
    }
    for (int lane = 0; lane < LANES; lane += 2)
        exec_add_present(&lanes.has[lane], &lanes.sum[lane], lanes.has[lane + 1],
                         lanes.sum[lane + 1]);
    exec_add_present(&lanes.has[0], &lanes.sum[0], lanes.has[2], lanes.sum[2]);
    split->l = lanes.sum[0];
}

static void join_split(const Attending *a, const Triple *split, Triple *total)
{
    i64 n = a->node->lse ? 0 : a->values.n;
    if (!total->present) {
        total->present = true;
        total->m = split->m;
        total->l = split->l;
        if (n)
            memcpy(total->o, split->o, sizeof *total->o * (size_t)n);
        return;
    }
    float m = iso_max(total->m, split->m);
    float left = exec_attend_exp(a, iso_sub(total->m, m));
    float right = exec_attend_exp(a, iso_sub(split->m, m));
    total->m = m;
    total->l = iso_add(iso_mul(total->l, left), iso_mul(split->l, right));
    for (i64 i = 0; i < n; i++)
        total->o[i] = iso_add(iso_mul(total->o[i], left), iso_mul(split->o[i], right));
}

/* A sink is a score in natural units with the weight of one key and no value. */
static void join_sink(const Attending *a, float sink, Triple *total)
{
    float s = iso_mul(sink, LOG2_E), m = iso_max(total->m, s);
    float left = exec_attend_exp(a, iso_sub(total->m, m));
    total->l = iso_add(iso_mul(total->l, left), exec_attend_exp(a, iso_sub(s, m)));
    total->m = m;
    for (i64 i = 0; !a->node->lse && i < a->values.n; i++)
        total->o[i] = iso_mul(total->o[i], left);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The keys that a token may see. */
static Range token_keys(const Attending *a, i64 token)
{
    const ExecJob *job = a->scope->call->job;
    i64 position = job->positions[token];
    int sequence = job->sequences[token];
    Range seen = {0, 0};
    if (sequence < 0)
        return seen;
    seen.hi = a->attend->causal ? position + 1 : INT32_MAX;
    if (job->lengths && job->lengths[sequence] < seen.hi)
        seen.hi = job->lengths[sequence];
    if (a->attend->window && position + 1 > a->attend->window)
        seen.lo = position + 1 - a->attend->window;
    return seen;
}

/* Where the root of a split of this row is: that of the own piece, or whose it is. NULL: none. */
static float *root_at(const Attending *a, Range seen, i64 split)
{
    const ExecSplits *s = a->splits;
    i64 first = seen.lo / a->attend->split, row = 0;
    int turn = s->turns ? s->turns[a->scope->call->job->sequences[a->at[a->attend->tokens]]] : 0;
    int piece = (int)((split + turn) % s->pieces);
    if (s->piece >= 0 && s->piece != piece)
        return NULL;
    const ExecSource *source = &s->source[piece];
    for (int i = 0; i < a->contract->n_atoms; i++)
        if (a->attend->rows >> i & 1)
            row += (a->at[i] - source->lo[i]) * source->stride[i];
    i64 own = (first + turn) % s->pieces; /* whose the row's first split is */
    i64 skipped = (piece - own + s->pieces) % s->pieces;
    i64 place = (split - first - skipped) / s->pieces;
    return source->roots + (row * s->places + place) * (a->width + ROOT_TAIL);
}

static void keep_root(const Attending *a, const Triple *split, float *root)
{
    memcpy(root, split->o, sizeof *root * (size_t)a->width);
    root[a->width] = split->m;
    root[a->width + 1] = split->l;
    root[a->width + 2] = root[a->width + 3] = 0;
}

static void take_root(const Attending *a, const float *root, Triple *split)
{
    split->present = true;
    split->m = root[a->width];
    split->l = root[a->width + 1];
    if (!a->node->lse)
        memcpy(split->o, root, sizeof *root * (size_t)a->width);
}

/* Roots that a rank leaves, or joins. */
static void attend_shared(Attending *a, Range seen, Triple *split, Triple *total)
{
    i64 length = a->attend->split;
    for (i64 i = seen.lo / length; i * length < seen.hi; i++) {
        float *root = root_at(a, seen, i);
        if (!root)
            continue;
        if (a->splits->piece < 0) {
            take_root(a, root, split);
            join_split(a, split, total);
        } else {
            attend_split(a, i * length, within(seen, i * length, length), split);
            keep_root(a, split, root);
        }
    }
}

static void attend_row(Attending *a, Range seen, const float *query, const float *sink,
                       Triple *split, Triple *total)
{
    i64 length = a->attend->split;
    for (i64 i = 0; query && i < a->keys.n; i++)
        a->query[i] = fdpa_elem(exec_attend_type(a->node->args[0]->type),
                                exec_pack(a->node->args[0]->type, query[i]));
    total->present = false;
    if (a->splits)
        attend_shared(a, seen, split, total);
    for (i64 lo = seen.lo / length * length; !a->splits && lo < seen.hi; lo += length) {
        attend_split(a, lo, within(seen, lo, length), split);
        join_split(a, split, total);
    }
    if (total->present && sink)
        join_sink(a, *sink, total);
}

/* ---- the node -------------------------------------------------------------------------------- */

static ExecDim one_index(ExecScratch *scratch, int atom, i64 at)
{
    i64 *list = scratch_array(scratch, i64, 1);
    *list = at;
    return (ExecDim){.atom = atom, .n = 1, .at = list, .dense = true};
}

static ExecDim whole_axis(ExecScratch *scratch, int atom, i64 size)
{
    i64 *list = scratch_array(scratch, i64, size);
    for (i64 i = 0; i < size; i++)
        list[i] = i;
    return (ExecDim){.atom = atom, .n = size, .at = list, .dense = true};
}

/* Appends the scope's dimensions in `mask`, and those that are held, with one index. */
static void add_dims(const Attending *a, u64 mask, ExecSpace *space)
{
    for (int d = 0; d < a->scope->space.n; d++)
        if (mask >> a->scope->space.dim[d].atom & 1)
            space->dim[space->n++] = a->scope->space.dim[d];
    for (int f = 0; f < a->node->n_fixes; f++)
        if (mask >> a->node->fixes[f].atom & 1)
            space->dim[space->n++] = one_index(a->scope->scratch, a->node->fixes[f].atom,
                                               a->node->fixes[f].at);
}

/* The rows' dimensions, those that keys have too first, then the score's sum: a scope of its own,
 * since the sum's axes may be axes of the values. */
static void open_queries(Attending *a)
{
    bool joins = a->splits && a->splits->piece < 0, leaves = a->splits && !joins;
    ExecScratch *scratch = a->scope->scratch;
    ExecScope *inner = &a->inner;
    *inner = (ExecScope){.call = a->scope->call, .scratch = scratch, .parent = a->scope};
    add_dims(a, a->attend->batch, &inner->space);
    add_dims(a, a->attend->rows & ~a->attend->batch, &inner->space);
    for (int f = 0; f < a->node->n_fixes; f++)
        inner->fresh |= (u64)1 << a->node->fixes[f].atom;
    u64 rows = exec_space_atoms(&inner->space);
    for (int i = 0; i < a->attend->n_over; i++) {
        int atom = a->attend->over[i];
        inner->space.dim[inner->space.n++] =
            whole_axis(scratch, atom, atom_size(a->contract, atom, 0));
        inner->fresh |= (u64)1 << atom;
    }
    exec_scope_start(inner);
    if (!joins) /* of which only roots are there */
        a->queries = exec_eval_over(inner, a->node->args[0], exec_space_atoms(&inner->space));
    if (a->node->n_args > 3 && !leaves)
        a->sinks = exec_eval_over(inner, a->node->args[3], rows);
}

/* Offsets of a stored row's elements along dimensions, row-major. */
static void list_elements(ExecScratch *scratch, const ExecSpace *space, Stored *s)
{
    i64 n = exec_space_size(space, ~(u64)0), *at = scratch_array(scratch, i64, n), done = 1;
    at[0] = 0;
    for (int d = 0; d < space->n; d++) {
        const ExecDim *dim = &space->dim[d];
        for (i64 i = done * dim->n - 1; i >= 0; i--)
            at[i] = at[i / dim->n] + s->by_atom[dim->atom] * dim->at[i % dim->n];
        done *= dim->n;
    }
    s->n = n;
    s->at = at;
}

static void open_stored(Attending *a)
{
    ExecScratch *scratch = a->scope->scratch;
    ExecSpace over = {0}, values = {0};
    exec_stored_init(a, 1, &a->keys);
    exec_stored_init(a, 2, &a->values);
    for (int i = 0; i < a->attend->n_over; i++)
        over.dim[over.n++] = whole_axis(scratch, a->attend->over[i],
                                        atom_size(a->contract, a->attend->over[i], 0));
    add_dims(a, a->attend->values, &values);
    list_elements(scratch, &over, &a->keys);
    list_elements(scratch, &values, &a->values);
    a->depth = (i64)fdpa_padded(a->class, (size_t)a->keys.n);
    exec_stored_room(a, &a->keys, true);
    if (!a->node->lse)
        exec_stored_room(a, &a->values, false);
}

static void open_block(Attending *a)
{
    ExecScratch *scratch = a->scope->scratch;
    i64 block = a->attend->block;
    a->scores = scratch_array(scratch, float, block);
    a->weights = scratch_array(scratch, float, block);
    a->weight = scratch_array(scratch, FdpaElem, a->capacity);
    a->weight_group = scratch_array(scratch, FdpaElem, a->class->group);
    a->value_group = scratch_array(scratch, FdpaElem, a->class->group);
    a->query = scratch_array(scratch, FdpaElem, a->depth);
    for (i64 i = 0; i < a->depth; i++)
        a->query[i] = exec_no_elem;
}

/* Room for the keys that any row of the scope sees. */
static void find_capacity(Attending *a)
{
    i64 most = 1, block = a->attend->block;
    for (int d = 0; d < a->scope->space.n; d++) {
        const ExecDim *dim = &a->scope->space.dim[d];
        for (i64 i = 0; dim->atom == a->attend->tokens && i < dim->n; i++) {
            i64 hi = token_keys(a, dim->at[i]).hi;
            most = hi > most ? hi : most;
        }
    }
    a->capacity = (most + block - 1) / block * block;
}

/* Where a row's result goes: its values along the dimensions that are no rows'. */
static void put_row(const Attending *a, const Triple *total, const i64 *stride, float *out)
{
    ExecWalk walk;
    i64 own[MAX_ATOMS];
    if (a->node->lse) {
        *out = total->present ? iso_add(iso_mul(total->m, LN_2), iso_log(total->l))
                              : iso_bits_f32(0xFF800000u);
        return;
    }
    float inverse = iso_div(1.0f, total->present ? total->l : 1.0f);
    exec_strides(&a->scope->space, a->attend->values, own);
    exec_walk(&walk, &a->scope->space, a->attend->values, 2, (const i64 *const[]){stride, own});
    while (exec_walk_next(&walk))
        for (i64 i = 0; i < walk.inner; i++) {
            float o = total->o[walk.offset[1] + i * walk.step[1]];
            out[walk.offset[0] + i * walk.step[0]] = !total->present ? 0
                                                     : a->attend->rounded ? iso_mul(o, inverse)
                                                                          : iso_div(o, total->l);
        }
}

typedef struct RowPlace {
    i64 at[MAX_ATOMS]; /* index of each atom */
    i64 query, sink, to;
} RowPlace;

static void place_row(const Attending *a, const i64 *index, int n, const i64 *stride, RowPlace *row)
{
    const ExecSpace *space = &a->inner.space, *outer = &a->scope->space;
    row->query = row->sink = row->to = 0;
    for (int i = 0; i < n; i++) {
        row->at[space->dim[i].atom] = space->dim[i].at[index[i]];
        row->query += a->queries ? index[i] * a->queries->stride[i] : 0;
        row->sink += a->sinks ? index[i] * a->sinks->stride[i] : 0;
        for (int k = 0; k < outer->n; k++)
            row->to += outer->dim[k].atom == space->dim[i].atom ? index[i] * stride[k] : 0;
    }
}

/* Every row of the inner space, the last dimension counted up first. */
static void attend_rows(Attending *a, const i64 *stride, float *out)
{
    const int *sequences = a->scope->call->job->sequences;
    const ExecSpace *space = &a->inner.space;
    int n = space->n - a->attend->n_over;
    i64 index[MAX_ATOMS] = {0};
    RowPlace row = {.at = {0}};
    Triple split = {.o = scratch_array(a->scope->scratch, float, a->values.n)};
    Triple total = {.o = scratch_array(a->scope->scratch, float, a->values.n)};
    for (int d = 0; d >= 0;) {
        place_row(a, index, n, stride, &row);
        i64 token = row.at[a->attend->tokens];
        a->at = row.at;
        Range seen = token_keys(a, token);
        exec_stored_turn(a, &a->keys, sequences[token], row.at);
        if (!a->node->lse)
            exec_stored_turn(a, &a->values, sequences[token], row.at);
        attend_row(a, seen, a->queries ? a->queries->v + row.query : NULL,
                   a->sinks ? a->sinks->v + row.sink : NULL, &split, &total);
        put_row(a, &total, stride, out + row.to);
        for (d = n - 1; d >= 0 && ++index[d] == space->dim[d].n; d--)
            index[d] = 0;
    }
}

void exec_attend(ExecScope *scope, const DagNode *node, const i64 *stride, float *out)
{
    Attending a = {.scope = scope, .node = node, .attend = node->attend};
    a.contract = scope->call->job->contract;
    a.class = a.contract->numerics;
    a.splits = scope->call->job->splits;
    a.width = 1;
    for (int i = 0; i < a.contract->n_atoms; i++)
        if (a.attend->values >> i & 1)
            a.width *= atom_size(a.contract, i, 0);
    find_capacity(&a);
    open_queries(&a);
    open_stored(&a);
    open_block(&a);
    attend_rows(&a, stride, out);
}
