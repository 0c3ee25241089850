/* `attend` in the executor: row by row, split by split, block by block, as clause 6.13 has it. Only
 * keys that a row may see are read for it. */
#include "exec_impl.h"

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"
#include "device/iso_rounded.cuh"

#include <string.h>

enum { LANES = 4, RUN = 2, PARTS = 4, ROOT_TAIL = 4 };

#define LOG2_E 0x1.715476p+0f
#define LN_2 0x1.62e43p-1f

bool exec_can_attend(const ExecJob *job, const DagNode *node)
{
    return node->kind != DAG_ATTEND ||
           (job->positions && job->sequences && (job->lengths || node->attend->causal));
}

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

static FdpaType fdpa_type(DType type)
{
    return type == DT_F16 ? FDPA_F16 : FDPA_BF16;
}

static float exponential(const Attending *a, float x)
{
    switch (a->attend->exp2) {
    case FN_EXP2_D3:
        return iso_exp2_d3(x);
    case FN_EXP2_D6:
        return iso_exp2_d6(x);
    case FN_EX2:
        return iso_ex2(x);
    default:
        return iso_exp2(x);
    }
}

/* ---- stored rows ----------------------------------------------------------------------------- */

static const FdpaElem nothing = {0, FDPA_EXP_ZERO};

static void stored_init(Attending *a, int arg, Stored *s)
{
    const DagNode *input = a->node->args[arg];
    const ExecJob *job = a->scope->call->job;
    *s = (Stored){.memory = &job->params[input->param], .sequence = -1};
    s->tensor = &job->op->op->params[input->param];
    exec_atom_strides(a->contract, s->tensor, s->memory, s->by_atom);
}

static void stored_room(Attending *a, Stored *s, bool by_key)
{
    i64 rows = by_key ? a->capacity : s->n;
    s->by_key = by_key;
    s->depth = by_key ? a->depth : a->capacity;
    i64 n = (i64)fdpa_panels_size(a->class, (size_t)rows, (size_t)s->depth);
    s->panels = scratch_array(a->scope->scratch, FdpaElem, n);
    for (i64 i = 0; i < n; i++)
        s->panels[i] = nothing;
    s->seen = scratch_array(a->scope->scratch, bool, a->capacity);
}

static FdpaElem *stored_at(const Stored *s, i64 key, i64 i)
{
    i64 row = s->by_key ? key : i, k = s->by_key ? i : key;
    return &s->panels[(row / FDPA_PANEL * s->depth + k) * FDPA_PANEL + row % FDPA_PANEL];
}

/* `at`: the row's index of each atom. */
static void stored_turn(const Attending *a, Stored *s, int sequence, const i64 *at)
{
    i64 batch = 0;
    for (int i = 0; i < a->contract->n_atoms; i++)
        if (s->tensor->mask & a->attend->rows & (u64)1 << i)
            batch += s->by_atom[i] * at[i];
    if (s->sequence == sequence && s->batch == batch)
        return;
    s->sequence = sequence;
    s->batch = batch;
    memset(s->seen, 0, sizeof *s->seen * (size_t)a->capacity);
}

static void see(const Attending *a, Stored *s, i64 key)
{
    if (s->seen[key])
        return;
    const ExecTensor *t = s->memory;
    i64 place = t->place ? t->place[s->sequence * t->positions + key]
                         : s->by_atom[a->attend->sequence] * s->sequence +
                               s->by_atom[a->attend->position] * key;
    const u16 *row = (const u16 *)t->data + t->offset + place + s->batch;
    for (i64 i = 0; i < s->n; i++)
        *stored_at(s, key, i) = fdpa_elem(fdpa_type(s->tensor->type), row[s->at[i]]);
    s->seen[key] = true;
}

/* ---- a block --------------------------------------------------------------------------------- */

/* What times this is an exponent of 2. */
static float by(const Attending *a)
{
    return iso_bits_f32(a->attend->capped ? a->attend->cap : a->attend->scale);
}

/* Exponents of 2; with rounded maxima, what is one times `by`. */
static float scaled(const Attending *a, float score)
{
    if (a->attend->capped)
        score = iso_tanh(iso_mul(score, iso_bits_f32(a->attend->scale)));
    return a->attend->rounded ? score : iso_mul(score, by(a));
}

/* Of a block whose `scaled` has this maximum. */
static float block_most(const Attending *a, float most)
{
    return a->attend->rounded ? iso_rounded_most(iso_mul(most, by(a))) : most;
}

static float weight(const Attending *a, float x, float m)
{
    if (!a->attend->rounded)
        return exponential(a, iso_sub(x, m));
    if (a->attend->exp2 == FN_EX2)
        return iso_ex2_weight(x, by(a), m);
    return iso_rounded_weight(x, by(a), iso_bits_f32(a->attend->inverse), m,
                              a->attend->exp2 == FN_EXP2_D3 ? 3 : 6);
}

/* The block's exponents, and their maximum. What stands beside a seen key in its panel is computed
 * too, and never read. */
static float block_scores(Attending *a, i64 block, Range seen)
{
    float most = 0;
    for (i64 key = seen.lo; key < seen.hi; key++)
        see(a, &a->keys, key);
    FdpaTile t = {.a = a->query, .b = stored_at(&a->keys, block, 0), .m = 1,
                  .n = (size_t)(seen.hi - block), .kp = (size_t)a->depth, .k1 = (size_t)a->depth,
                  .out = a->scores, .ld = (size_t)a->attend->block};
    fdpa_tile(a->class, &t);
    for (i64 i = seen.lo - block; i < seen.hi - block; i++) {
        a->scores[i] = scaled(a, a->scores[i]);
        most = i == seen.lo - block ? a->scores[i] : iso_max(most, a->scores[i]);
    }
    return block_most(a, most);
}

/* What is absent leaves the other as it is. */
static void add_present(bool *has, float *sum, bool with, float x)
{
    *sum = !with ? *sum : *has ? iso_add(*sum, x) : x;
    *has |= with;
}

/* lanes 4 by 2, in each split 4 { chain add } pairwise, by places of the whole block. */
static void block_sums(const Attending *a, i64 block, Range seen, Lanes *lanes)
{
    i64 part_length = a->attend->block / (LANES * PARTS);
    bool has[LANES][PARTS] = {{false}};
    float sum[LANES][PARTS] = {{0}};
    for (i64 key = seen.lo; key < seen.hi; key++) {
        i64 i = key - block, lane = i / RUN % LANES;
        i64 part = (i / (RUN * LANES) * RUN + i % RUN) / part_length;
        add_present(&has[lane][part], &sum[lane][part], true, a->weights[i]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int part = 0; part < PARTS; part += 2)
            add_present(&has[lane][part], &sum[lane][part], has[lane][part + 1],
                        sum[lane][part + 1]);
        add_present(&has[lane][0], &sum[lane][0], has[lane][2], sum[lane][2]);
        lanes->has[lane] = has[lane][0];
        lanes->sum[lane] = sum[lane][0];
    }
}

static FdpaElem rounded(const Attending *a, float weight)
{
    return a->attend->weights == DT_F16 ? fdpa_elem(FDPA_F16, iso_f16_of_f32(weight))
                                        : fdpa_elem(FDPA_BF16, iso_bf16_of_f32(weight));
}

/* One step of a group of keys that holds unseen ones: these are no members. */
static void group_values(Attending *a, i64 group, Range seen, float *o)
{
    int n = a->class->group;
    for (i64 e = 0; e < a->values.n; e++) {
        for (int i = 0; i < n; i++) {
            bool member = group + i >= seen.lo && group + i < seen.hi;
            a->weight_group[i] = member ? a->weight[group + i] : nothing;
            a->value_group[i] = member ? *stored_at(&a->values, group + i, e) : nothing;
        }
        o[e] = fdpa_step(a->class, a->weight_group, a->value_group, o[e]);
    }
}

/* Groups of keys are counted from the block's start, which is a multiple of their length. */
static void block_values(Attending *a, i64 block, Range seen, float *o)
{
    i64 n = a->class->group, lo = (seen.lo + n - 1) / n * n, hi = seen.hi / n * n;
    for (i64 key = seen.lo; key < seen.hi; key++) {
        see(a, &a->values, key);
        a->weight[key] = rounded(a, a->weights[key - block]);
    }
    if (seen.lo < lo)
        group_values(a, lo - n, seen, o);
    if (lo < hi) {
        FdpaTile t = {.a = a->weight, .b = a->values.panels, .m = 1, .n = (size_t)a->values.n,
                      .kp = (size_t)a->capacity, .k0 = (size_t)lo, .k1 = (size_t)hi, .out = o,
                      .ld = (size_t)a->values.n, .accumulate = true};
        fdpa_tile(a->class, &t);
    }
    if (hi < seen.hi && hi >= lo)
        group_values(a, hi, seen, o);
}

static void attend_block(Attending *a, i64 block, Range seen, Triple *split, Lanes *lanes)
{
    Lanes sums;
    bool first = !split->present;
    float most = block_scores(a, block, seen), m = first ? most : iso_max(split->m, most);
    float alpha = first ? 1 : exponential(a, iso_sub(split->m, m));
    for (i64 i = seen.lo - block; i < seen.hi - block; i++)
        a->weights[i] = weight(a, a->scores[i], m);
    block_sums(a, block, seen, &sums);
    for (int lane = 0; lane < LANES; lane++) {
        if (a->attend->rounded)
            sums.sum[lane] = iso_rounded_sum(sums.sum[lane], m);
        if (lanes->has[lane])
            lanes->sum[lane] = iso_mul(lanes->sum[lane], alpha);
        add_present(&lanes->has[lane], &lanes->sum[lane], sums.has[lane], sums.sum[lane]);
    }
    for (i64 i = 0; !a->node->lse && i < a->values.n; i++)
        split->o[i] = first ? 0 : iso_mul(split->o[i], alpha);
    if (!a->node->lse)
        block_values(a, block, seen, split->o);
    split->m = m;
    split->present = true;
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
            attend_block(a, block, here, split, &lanes);
    }
    for (int lane = 0; lane < LANES; lane += 2)
        add_present(&lanes.has[lane], &lanes.sum[lane], lanes.has[lane + 1], lanes.sum[lane + 1]);
    add_present(&lanes.has[0], &lanes.sum[0], lanes.has[2], lanes.sum[2]);
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
    float left = exponential(a, iso_sub(total->m, m)), right = exponential(a, iso_sub(split->m, m));
    total->m = m;
    total->l = iso_add(iso_mul(total->l, left), iso_mul(split->l, right));
    for (i64 i = 0; i < n; i++)
        total->o[i] = iso_add(iso_mul(total->o[i], left), iso_mul(split->o[i], right));
}

/* A sink is a score in natural units with the weight of one key and no value. */
static void join_sink(const Attending *a, float sink, Triple *total)
{
    float s = iso_mul(sink, LOG2_E), m = iso_max(total->m, s);
    float left = exponential(a, iso_sub(total->m, m));
    total->l = iso_add(iso_mul(total->l, left), exponential(a, iso_sub(s, m)));
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
    for (i64 i = 0; i < a->keys.n; i++)
        a->query[i] = fdpa_elem(fdpa_type(a->node->args[0]->type),
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
    a->queries = exec_eval_over(inner, a->node->args[0], exec_space_atoms(&inner->space));
    if (a->node->n_args > 3)
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
    stored_init(a, 1, &a->keys);
    stored_init(a, 2, &a->values);
    for (int i = 0; i < a->attend->n_over; i++)
        over.dim[over.n++] = whole_axis(scratch, a->attend->over[i],
                                        atom_size(a->contract, a->attend->over[i], 0));
    add_dims(a, a->attend->values, &values);
    list_elements(scratch, &over, &a->keys);
    list_elements(scratch, &values, &a->values);
    a->depth = (i64)fdpa_padded(a->class, (size_t)a->keys.n);
    stored_room(a, &a->keys, true);
    if (!a->node->lse)
        stored_room(a, &a->values, false);
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
        a->query[i] = nothing;
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
        row->query += index[i] * a->queries->stride[i];
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
        stored_turn(a, &a->keys, sequences[token], row.at);
        if (!a->node->lse)
            stored_turn(a, &a->values, sequences[token], row.at);
        attend_row(a, seen, a->queries->v + row.query, a->sinks ? a->sinks->v + row.sink : NULL,
                   &split, &total);
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
