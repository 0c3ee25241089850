/* `draw` in the executor: each row's scores in order, what the limits keep, the greatest with its
 * noise, as clause 6.18 has it. */
#include "exec_impl.h"

#include "device/iso_random.cuh"

#include <stdlib.h>

typedef struct Candidate {
    i64 index;
    u32 rank;
    float z;
    u64 mass;
} Candidate;

typedef struct Row {
    u32 seed, stream, position;
    bool greedy;
    i64 top_k;          /* 0: all */
    float top_p, min_p; /* top_p from 1 on: all; min_p to 0: all */
} Row;

/* ---- what a row brings ----------------------------------------------------------------------- */

static u32 word_at(const ExecJob *job, int param, i64 token)
{
    if (param < 0)
        return 0;
    const ExecTensor *t = &job->params[param];
    return ((const u32 *)t->data)[t->offset + t->stride[0] * token];
}

static u32 limit_at(const ExecJob *job, const DrawLimit *limit, i64 token, u32 none)
{
    if (!limit->set)
        return none;
    return limit->param < 0 ? limit->bits : word_at(job, limit->param, token);
}

static Row row_of(const ExecJob *job, const Draw *draw, i64 token)
{
    i64 k = (int32_t)limit_at(job, &draw->top_k, token, 0);
    return (Row){.seed = word_at(job, draw->seed, token),
                 .stream = word_at(job, draw->stream, token),
                 .position = (u32)job->positions[token],
                 .top_k = k > 0 ? k : 0,
                 .top_p = iso_bits_f32(limit_at(job, &draw->top_p, token, 0x3F800000u)),
                 .min_p = iso_bits_f32(limit_at(job, &draw->min_p, token, 0))};
}

/* ---- one row --------------------------------------------------------------------------------- */

static int before(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The possible ones, the first in order at the head; -1 where a score is no number. */
static i64 candidates(const float *scores, i64 n, i64 step, float temperature, Candidate *out)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        float z = scores[i * step];
        if (temperature != 0)
            z = iso_div(z, temperature);
        u32 rank = iso_score_rank(z);
        if (rank == ISO_RANK_NAN)
            return -1;
        if (rank <= ISO_RANK_NEGATIVE_INFINITY)
            continue;
        Candidate own = {.index = i, .rank = rank, .z = z};
        if (count && before(&own, &out[0]) < 0) {
            Candidate head = out[0];
            out[0] = own;
            own = head;
        }
        out[count++] = own;
    }
    return count;
}

static i64 keep_min_p(Candidate *c, i64 n, float min_p)
{
    i64 kept = 0;
    for (i64 i = 0; i < n; i++)
        if (i == 0 || iso_pair_scale(c[i].z, c[0].z) >= min_p)
            c[kept++] = c[i];
    return kept;
}

/* Of candidates in order. */
static i64 keep_top_p(Candidate *c, i64 n, float top_p)
{
    u64 total = 0, sum = 0, share, mass;
    i64 kept = 0;
    for (i64 i = 0; i < n; i++) {
        c[i].mass = iso_draw_mass(iso_pair_scale(c[i].z, c[0].z));
        total += c[i].mass;
    }
    share = iso_draw_share(total, top_p);
    for (i64 i = 0; i < n && (i == 0 || sum < share); i++) {
        mass = c[i].mass;
        if (mass || i == 0)
            c[kept++] = c[i];
        sum += mass;
    }
    return kept;
}

static i64 keep(const Row *row, Candidate *c, i64 n)
{
    if (row->min_p > 0)
        n = keep_min_p(c, n, row->min_p);
    if (row->top_k || row->top_p < 1)
        qsort(c, (size_t)n, sizeof *c, before);
    if (row->top_k && row->top_k < n)
        n = row->top_k;
    return row->top_p < 1 ? keep_top_p(c, n, row->top_p) : n;
}

static i64 draw_row(const Row *row, Candidate *c, i64 n)
{
    if (n < 1 || row->greedy)
        return n < 1 ? -1 : c[0].index;
    n = keep(row, c, n);
    i64 best = -1;
    u32 most = 0;
    for (i64 i = 0; i < n; i++) {
        IsoWords words = iso_draw_words(row->seed, row->stream, row->position,
                                        (u32)(c[i].index / 4));
        u32 rank = iso_score_rank(iso_add(c[i].z, iso_gumbel(words.w[c[i].index % 4])));
        if (best < 0 || rank > most || (rank == most && c[i].index < best)) {
            most = rank;
            best = c[i].index;
        }
    }
    return best;
}

/* ---- all rows of a scope --------------------------------------------------------------------- */

void exec_draw(ExecScope *scope, const DagNode *node, const i64 *stride, float *out)
{
    const ExecJob *job = scope->call->job;
    const Draw *draw = node->draw;
    i64 n = atom_size(job->contract, draw->atom, 0);
    exec_eval_outside(scope, node->args[0], (u64)1 << draw->atom);
    ExecMark mark = scratch_mark(scope->scratch);
    ExecScope inner = {.call = scope->call, .scratch = scope->scratch, .parent = scope,
                       .space = scope->space, .fresh = (u64)1 << draw->atom};
    int tokens = 0, last = 0;
    while (scope->space.dim[tokens].atom != draw->tokens)
        tokens++;
    /* A lookup may hold the axis itself, which is then there already. */
    while (last < inner.space.n && inner.space.dim[last].atom != draw->atom)
        last++;
    inner.space.n += last == inner.space.n;
    inner.space.dim[last] = exec_whole_axis(scope->scratch, draw->atom, n);
    exec_scope_start(&inner);
    const ExecValue *scores = exec_eval(&inner, node->args[0]);
    Candidate *c = scratch_array(scope->scratch, Candidate, n);
    for (i64 i = 0; i < scope->space.dim[tokens].n; i++) {
        i64 token = scope->space.dim[tokens].at[i];
        Row row = row_of(job, draw, token);
        float temperature = 0;
        if (draw->temperature >= 0) {
            temperature = iso_bits_f32(word_at(job, draw->temperature, token));
            row.greedy = temperature == 0;
        }
        i64 count = candidates(scores->v + i * scores->stride[tokens], n, scores->stride[last],
                               temperature, c);
        out[i * stride[tokens]] = iso_bits_f32((u32)(int32_t)draw_row(&row, c, count));
    }
    scratch_release(scope->scratch, mark);
}
