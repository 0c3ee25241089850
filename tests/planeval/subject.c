/* Contracts and tensors for the comparison of the two evaluators. */
#include "subject.h"

#include <stdio.h>
#include <stdlib.h>

#include "../unit/dense.h"
#include "pipeline.h"

/* ---- contracts ------------------------------------------------------------------------------- */

/* Joins in bf16, products rounded before they are added. */
static void odd_trees(Dense *d)
{
    const Tree *add = dense_tree(d, (Tree){.form = TREE_CHAIN_ADD});
    d->parallel = dense_tree(d, (Tree){.form = TREE_SPLIT, .count = 8, .join = JOIN_LEFT,
                                       .type = DT_BF16, .child = d->whole});
    d->row = dense_tree(d, (Tree){.form = TREE_LANES, .count = 32, .run = 4, .type = DT_F32,
                                  .join = JOIN_PAIRWISE, .child = add});
}

/* A row-parallel product and a norm in f32: every bit of the sums shows, and the squares are not
 * exact. */
static void wide_ops(Dense *d)
{
    OpDag *op = dense_op(d, "sum_f32");
    const DagNode *h = dense_param(d, op, "h", DT_BF16, AXES(D_TOKENS, D_FFN));
    const DagNode *w = dense_param(d, op, "w", DT_BF16, AXES(D_HIDDEN, D_FFN));
    const DagNode *sum = dense_product_sum(d, op, d->parallel, h, w, AXES(D_FFN));
    dense_result(d, op, "y", DT_F32, sum, AXES(D_TOKENS, D_HIDDEN));

    op = dense_op(d, "norm_f32");
    const DagNode *x = dense_param(d, op, "x", DT_F32, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *ss = dense_reduce(d, op, MONOID_SUM, d->row,
                                     dense_binary(d, op, DAG_MUL, x, x), AXES(D_HIDDEN));
    dense_result(d, op, "y", DT_F32,
                 dense_binary(d, op, DAG_MUL, x, dense_fn(d, op, FN_SQRT, ss)),
                 AXES(D_TOKENS, D_HIDDEN));
}

bool subject_small(Subject *subject, bool odd)
{
    Dense *d = malloc(sizeof *d);
    Plan *plan = calloc(1, sizeof *plan);
    dense_open(d, (DenseSizes){.hidden = 256, .ffn = 384, .kv = 8, .group = 2, .half = 8,
                               .vocab = 80});
    if (odd)
        odd_trees(d);
    dense_ops(d);
    wide_ops(d);
    dense_layout(d, "single");
    dense_tp(d, "tp2", 2, false);
    dense_tp(d, "tp4_sequence", 4, true);
    dense_tp(d, "tp8", 8, false);
    dense_tp(d, "tp8_sequence", 8, true);
    bool ok = plan_build(&d->dag, NULL, plan, d->arena, &d->diags);
    if (!ok) {
        Text text = {.arena = d->arena};
        diags_render_text(&d->diags, &text, false);
        fprintf(stderr, "%s", text_str(&text).s);
    }
    *subject = (Subject){d->arena, &d->contract, &d->dag, plan, NULL};
    return ok;
}

bool subject_file(Subject *subject, const char *path)
{
    Pipeline *p = calloc(1, sizeof *p);
    PipelineInput input = {.path = str_of(path), .reader = reader_disk(), .cache = ""};
    if (!p || !pipeline_open(p, &input) || !pipeline_run(p, STAGE_PLAN)) {
        char *messages = p ? pipeline_messages(p) : NULL;
        fprintf(stderr, "%s", messages ? messages : "out of memory\n");
        free(messages);
        return false;
    }
    *subject = (Subject){p->mid, &p->contract, &p->dag, &p->plan, p};
    return true;
}

void subject_close(Subject *subject)
{
    if (subject->owner)
        pipeline_close(subject->owner);
    else
        arena_free(subject->arena);
    free(subject->owner ? subject->owner : (void *)subject->plan);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static u64 next(u64 *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* kind 0: near 1; 1: forty binades, both signs; 2: also any pattern, one in 500. */
static u32 pattern(DType type, int kind, u64 *state)
{
    u64 r = next(state);
    u32 exponent = kind == 0 ? 123 + (u32)(r >> 40) % 5 : 107 + (u32)(r >> 40) % 40;
    u32 bits = ((u32)(r >> 32) & 0x80000000u) | exponent << 23 | ((u32)r & 0x7FFFFF);
    if (kind == 2 && (r >> 50) % 500 == 0)
        bits = (u32)(r >> 7);
    return type == DT_F32 ? bits : type == DT_BF16 ? bits >> 16 : bits >> 16 & 0xBFFF;
}

static i64 axis_size(const Contract *c, int axis, i64 rows)
{
    const Axis *a = &c->axes[axis];
    if (a->coordinate_of >= 0 || a->free)
        return rows;
    return a->size;
}

static i64 lay_out(const Subject *s, const Tensor *t, i64 rows, bool overlap, ExecTensor *memory)
{
    enum { SHIFT = 8, LARGE = 1 << 20 };
    i64 stride[MAX_TENSOR_AXES], total = 1, span = 1;
    for (int i = t->n_axes - 1; i >= 0; i--) {
        stride[i] = total;
        total *= axis_size(s->contract, t->axes[i], rows);
    }
    for (int i = t->n_axes - 2, at = SHIFT; overlap && total > LARGE && i >= 0; i--) {
        stride[i] = at;
        at *= (int)axis_size(s->contract, t->axes[i], rows);
    }
    for (int i = 0; i < t->n_axes; i++) {
        memory->stride[i] = stride[i];
        span += (axis_size(s->contract, t->axes[i], rows) - 1) * stride[i];
    }
    return span > 0 ? span : 1;
}

static void fill(void *data, DType type, i64 n, int kind, u64 *state)
{
    for (i64 i = 0; i < n; i++) {
        u32 bits = pattern(type, kind, state);
        if (type == DT_F32)
            ((u32 *)data)[i] = bits;
        else
            ((u16 *)data)[i] = (u16)bits;
    }
}

/* Both ends, both sides of where ranks meet, and some more. */
static void sample_atom(ExecRange *range, int ranks, u64 *state, Arena *arena)
{
    enum { MORE = 2 };
    i64 size = range->hi, *list = arena_array(arena, i64, 2 * ranks + MORE);
    if (size <= 2 * ranks + MORE)
        return;
    for (int r = 0; r < ranks; r++) {
        list[range->n++] = size * r / ranks;
        list[range->n++] = size * (r + 1) / ranks - 1;
    }
    for (int i = 0; i < MORE; i++)
        list[range->n++] = (i64)(next(state) % (u64)size);
    range->list = list;
}

/* Wide axes at every border of eight ranks, factors and rows at fewer indices. */
static void sample_box(const Subject *s, Sample *sample, u64 *state, Arena *arena)
{
    exec_box_all(s->contract, sample->rows, &sample->box);
    for (int a = 0; a < s->contract->n_atoms; a++) {
        const Axis *axis = &s->contract->axes[s->contract->atom_axis[a]];
        if (axis->coordinate_of < 0)
            sample_atom(&sample->box.atom[a], axis->free ? 3 : axis->parent < 0 ? 8 : 2, state,
                        arena);
    }
}

/* Mostly indices of the axis, and some that are none. */
static void fill_indices(int32_t *data, i64 n, i64 size, u64 *state)
{
    for (i64 i = 0; i < n; i++) {
        u64 r = next(state);
        data[i] = i % 4 == 1 ? (r & 1 ? -1 : (int32_t)size) : (int32_t)(r % (u64)size);
    }
}

void sample_make(const Subject *s, const OpDag *op, i64 rows, int kind, u64 seed, Arena *arena,
                 Sample *sample)
{
    u64 state = seed * 0x9E3779B97F4A7C15u | 1;
    *sample = (Sample){.op = op, .rows = rows, .positions = arena_array(arena, int, rows + 1)};
    for (int i = 0; i < op->op->n_params; i++) {
        const Tensor *t = &op->op->params[i];
        i64 n = lay_out(s, t, rows, true, &sample->params[i]);
        sample->param_size[i] = n;
        sample->params[i].data = arena_alloc(arena, (size_t)(n * dtype_bytes(t->type)));
        if (t->index_of > 0)
            fill_indices(sample->params[i].data, n, s->contract->axes[t->index_of - 1].size,
                         &state);
        else
            fill(sample->params[i].data, t->type, n, kind, &state);
    }
    for (int i = 0; i < op->op->n_results; i++) {
        const Tensor *t = &op->op->results[i];
        i64 n = lay_out(s, t, rows, false, &sample->results[i]);
        sample->result_size[i] = n;
        sample->results[i].data = arena_alloc(arena, (size_t)(n * dtype_bytes(t->type)));
    }
    for (i64 r = 0; r < rows; r++)
        sample->positions[r] = (int)(next(&state) % (u64)rows);
    sample_box(s, sample, &state, arena);
}

/* ---- results --------------------------------------------------------------------------------- */

static i64 wanted_count(const ExecRange *range)
{
    return range->list ? range->n : range->hi - range->lo;
}

static i64 wanted_at(const ExecRange *range, i64 i)
{
    return range->list ? range->list[i] : range->lo + i;
}

/* Results lie row-major over all of their atoms. */
static i64 element_at(const Subject *s, const Sample *sample, const Tensor *t, i64 e)
{
    i64 at = 0, stride = 1;
    for (int i = t->n_atoms - 1; i >= 0; i--) {
        const ExecRange *range = &sample->box.atom[t->atoms[i]];
        const Axis *axis = &s->contract->axes[s->contract->atom_axis[t->atoms[i]]];
        at += wanted_at(range, e % wanted_count(range)) * stride;
        e /= wanted_count(range);
        stride *= axis->free ? sample->rows : axis->size;
    }
    return at;
}

void *sample_packed(const Subject *s, const Sample *sample, int result, size_t *bytes,
                    Arena *arena)
{
    const Tensor *t = &sample->op->op->results[result];
    int size = dtype_bytes(t->type);
    i64 n = 1;
    for (int i = 0; i < t->n_atoms; i++)
        n *= wanted_count(&sample->box.atom[t->atoms[i]]);
    *bytes = (size_t)(n * size);
    u8 *packed = arena_alloc(arena, *bytes + 1);
    const u8 *data = sample->results[result].data;
    for (i64 e = 0; e < n; e++)
        memcpy(packed + e * size, data + element_at(s, sample, t, e) * size, (size_t)size);
    return packed;
}
