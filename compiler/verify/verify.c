/* Rank by rank against the whole, and a plain all-reduce beside it to show that the check tells. */
#include "verify.h"

#include "sample.h"

#include <stdlib.h>
#include <string.h>

typedef struct Verify {
    const Plan *plan;
    const VerifyInput *input;
    VerifyResult *result;
    Sample sample;
    const OpDag *op;
    Arena *arena; /* of one op in one layout */
    bool failed;
} Verify;

static ExecJob job_of(const Verify *v, const ExecBox *box, const ExecTensor *results)
{
    return (ExecJob){
        .contract = v->plan->dag->contract,
        .op = v->op,
        .params = v->sample.params,
        .results = results,
        .box = *box,
        .positions = v->sample.positions,
        .sequences = v->sample.sequences,
        .threads = v->input->threads,
    };
}

/* ---- one layout ------------------------------------------------------------------------------ */

/* The sampled outputs that lie in a part. */
static void part_box(const Verify *v, const Part *part, ExecBox *box)
{
    const Contract *c = v->plan->dag->contract;
    ExecBox ranges;
    exec_box_all(c, v->input->rows, &ranges);
    for (int a = 0; a < c->n_atoms; a++) {
        const Axis *axis = &c->axes[c->atom_axis[a]];
        ExecRange *range = &ranges.atom[a];
        if (axis->free) {
            part_rows(part, v->input->rows, &range->lo, &range->hi);
        } else if (axis->coordinate_of < 0) {
            range->lo = part->lo[a];
            range->hi = part->hi[a];
        }
    }
    sample_clip(&v->sample, &ranges, box, v->arena);
}

static i64 run_ranks(Verify *v, const PlanOp *at)
{
    i64 differ = 0;
    for (int rank = 0; rank < at->at.ranks; rank++) {
        ExecBox box;
        part_box(v, &at->part_of_rank[rank], &box);
        sample_poison(&v->sample, &box);
        ExecJob job = job_of(v, &box, v->sample.actual);
        if (!exec_op(&job, v->arena))
            v->failed = true;
        differ += sample_differ(&v->sample, &box);
    }
    return differ;
}

/* What every rank sends: its roots, with the box that they were computed in. */
typedef struct Sent {
    ExecRoots *roots;
    int n;
    ExecBox box;
} Sent;

static Sent *run_parts(Verify *v, const PlanOp *at)
{
    Sent *sent = arena_array(v->arena, Sent, at->at.ranks);
    for (int rank = 0; rank < at->at.ranks; rank++) {
        Sent *s = &sent[rank];
        part_box(v, &at->part_of_rank[rank], &s->box);
        ExecJob job = job_of(v, &s->box, v->sample.actual);
        if (!exec_part(&job, &s->roots, &s->n, v->arena))
            v->failed = true;
        for (int i = 0; i < s->n && !v->failed; i++)
            s->roots[i].box = &s->box;
    }
    return sent;
}

/* Joins what the sources of each rank sent, and finishes the rank's own results. */
static i64 run_joins(Verify *v, const PlanOp *at, const Sent *sent)
{
    int sources = v->plan->kernels.v[at->join_kernel]->join.n_sources;
    const ExecRoots **roots = arena_array(v->arena, const ExecRoots *, sources);
    int *n_roots = arena_array(v->arena, int, sources);
    i64 differ = 0;
    for (int rank = 0; rank < at->at.ranks && !v->failed; rank++) {
        for (int i = 0; i < sources; i++) {
            const Sent *s = &sent[at->sources_of_rank[rank * sources + i]];
            roots[i] = s->roots;
            n_roots[i] = s->n;
        }
        ExecBox box;
        part_box(v, &at->finish_of_rank[rank], &box);
        sample_poison(&v->sample, &box);
        ExecJob job = job_of(v, &box, v->sample.actual);
        if (!exec_join(&job, roots, n_roots, sources, v->arena))
            v->failed = true;
        differ += sample_differ(&v->sample, &box);
    }
    return differ;
}

/* ---- keys that ranks share by splits --------------------------------------------------------- */

/* Every sequence's keys come before its last row, so that there are no more than rows. */
static i64 root_rows(const Verify *v, const PlanOp *at, ExecSource *source, int rank)
{
    const Contract *c = v->plan->dag->contract;
    const Attend *attend = at->at.reduced->attend;
    const Part *part = &at->part_of_rank[rank];
    i64 rows = 1;
    for (int a = c->n_atoms - 1; a >= 0; a--) {
        i64 lo = part->lo[a], hi = part->hi[a];
        if (!(attend->rows >> a & 1))
            continue;
        if (c->axes[c->atom_axis[a]].free)
            part_rows(part, v->input->rows, &lo, &hi);
        source->lo[a] = lo;
        source->stride[a] = rows;
        rows *= hi - lo;
    }
    return rows;
}

static i64 root_values(const Verify *v, const Attend *attend)
{
    const Contract *c = v->plan->dag->contract;
    i64 n = 1;
    for (int a = 0; a < c->n_atoms; a++)
        n *= attend->values >> a & 1 ? atom_size(c, a, 0) : 1;
    return n + 4;
}

static bool leave_splits(Verify *v, const PlanOp *at, ExecSplits *splits, ExecSource *sources)
{
    for (int rank = 0; rank < at->at.ranks; rank++) {
        ExecBox box;
        const Attend *attend = at->at.reduced->attend;
        ExecSource *own = arena_array(v->arena, ExecSource, splits->pieces);
        i64 rows = root_rows(v, at, &sources[rank], rank);
        sources[rank].roots = calloc((size_t)(rows * splits->places * root_values(v, attend)),
                                     sizeof(float));
        splits->piece = at->part_of_rank[rank].keys_index;
        own[splits->piece] = sources[rank];
        splits->source = own;
        part_box(v, &at->part_of_rank[rank], &box);
        ExecJob job = job_of(v, &box, v->sample.actual);
        job.splits = splits;
        if (!sources[rank].roots || !exec_attend_part(&job, v->arena))
            return false;
    }
    return true;
}

static i64 join_splits(Verify *v, const PlanOp *at, ExecSplits *splits, const ExecSource *sources)
{
    ExecSource *heard = arena_array(v->arena, ExecSource, splits->pieces);
    i64 differ = 0;
    splits->piece = -1;
    splits->source = heard;
    for (int rank = 0; rank < at->at.ranks; rank++) {
        ExecBox box;
        for (int i = 0; i < splits->pieces; i++)
            heard[i] = sources[at->sources_of_rank[rank * splits->pieces + i]];
        part_box(v, &at->finish_of_rank[rank], &box);
        sample_poison(&v->sample, &box);
        ExecJob job = job_of(v, &box, v->sample.actual);
        job.splits = splits;
        v->failed |= !exec_op(&job, v->arena);
        differ += sample_differ(&v->sample, &box);
    }
    return differ;
}

static i64 run_shared(Verify *v, const PlanOp *at)
{
    const Attend *attend = at->at.reduced->attend;
    ExecSplits splits = {.pieces = at->part_of_rank[0].keys_count};
    ExecSource *sources = arena_array(v->arena, ExecSource, at->at.ranks);
    splits.places = ((v->input->rows + attend->split - 1) / attend->split + splits.pieces - 1) /
                    splits.pieces;
    i64 differ = 0;
    if (leave_splits(v, at, &splits, sources))
        differ = join_splits(v, at, &splits, sources);
    else
        v->failed = true;
    for (int rank = 0; rank < at->at.ranks; rank++)
        free(sources[rank].roots);
    return differ;
}

/* ---- the control ------------------------------------------------------------------------------
 * What an all-reduce without a tree does: each rank adds up what it has and rounds it to the wire's
 * type, and the sums are added in order of rank. The join sees that sum as the first root, and +0
 * as all the others, which changes nothing. */

static bool is_first(const PlanOp *at, int sources, int rank)
{
    for (int r = 0; r < at->at.ranks; r++)
        if (at->sources_of_rank[r * sources] == rank)
            return true;
    return false;
}

static float own_sum(const ExecRoots *roots, i64 element, DType wire)
{
    float sum = roots->values[element];
    for (int r = 1; r < roots->forest.n; r++)
        sum += roots->values[r * roots->elements + element];
    const float zero = 0;
    float sent;
    exec_join_values(MONOID_SUM, wire, &sum, &zero, &sent);
    return sent;
}

static void add_plainly(const PlanOp *at, Sent *sent, int sources, int first, DType wire)
{
    const int *ranks = NULL;
    for (int r = 0; r < at->at.ranks && !ranks; r++)
        if (at->sources_of_rank[r * sources] == first)
            ranks = &at->sources_of_rank[r * sources];
    for (int k = 0; k < sent[first].n; k++)
        for (i64 e = 0; e < sent[first].roots[k].elements; e++) {
            float sum = 0;
            for (int i = 0; i < sources; i++) {
                ExecRoots *roots = &sent[ranks[i]].roots[k];
                sum += own_sum(roots, e, wire);
                for (int r = 0; r < roots->forest.n; r++)
                    roots->values[r * roots->elements + e] = 0;
            }
            sent[first].roots[k].values[e] = sum;
        }
}

static void run_plainly(Verify *v, const PlanOp *at, Sent *sent)
{
    int sources = v->plan->kernels.v[at->join_kernel]->join.n_sources;
    for (int i = 0; i < v->op->reduces.n; i++)
        if (v->op->reduces.v[i]->monoid != MONOID_SUM)
            return;
    for (int rank = 0; rank < at->at.ranks; rank++)
        if (is_first(at, sources, rank))
            add_plainly(at, sent, sources, rank, v->op->op->results[0].type);
    run_joins(v, at, sent);
    v->result->plain_outputs += sample_count(&v->sample, &v->sample.box);
    v->result->plain_differ += sample_differ(&v->sample, &v->sample.box);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* One layout's outcome; equal ones share a line. */
typedef struct Line {
    Text layouts;
    i64 differ;
    Digest digest;
} Line;

typedef VEC(Line) Lines;

static void add_line(Verify *v, Lines *lines, Str layout, i64 differ)
{
    Digest digest = sample_digest(&v->sample, v->arena);
    int i = 0;
    while (i < lines->n && (lines->v[i].differ != differ ||
                            !digest_eq(&lines->v[i].digest, &digest)))
        i++;
    if (i == lines->n) {
        Line line = {.layouts = {.arena = v->arena}, .differ = differ, .digest = digest};
        vec_push(v->arena, lines, line);
    }
    text_printf(&lines->v[i].layouts, " %.*s", STR_FMT(layout));
}

static void print_lines(Verify *v, const Lines *lines, Text *report)
{
    for (int i = 0; i < lines->n; i++)
        text_printf(report, "  %lld outputs, %lld differ, digest %.16s:%.*s\n",
                    (long long)sample_count(&v->sample, &v->sample.box),
                    (long long)lines->v[i].differ, digest_hex(v->arena, &lines->v[i].digest).s,
                    STR_FMT(text_str(&lines->v[i].layouts)));
}

static void run_layout(Verify *v, const PlanOp *at, Lines *lines)
{
    sample_poison(&v->sample, &v->sample.box);
    Sent *sent = NULL;
    i64 differ;
    if (at->join_kernel < 0) {
        differ = run_ranks(v, at);
    } else if (at->at.reduced->kind == DAG_ATTEND) {
        differ = run_shared(v, at);
    } else {
        sent = run_parts(v, at);
        differ = v->failed ? 0 : run_joins(v, at, sent);
    }
    /* What no rank computed is still poisoned. */
    i64 left = sample_differ(&v->sample, &v->sample.box);
    differ = differ > left ? differ : left;
    Str layout = at->at.layout ? at->at.layout->name.text : STR("-");
    v->result->outputs += sample_count(&v->sample, &v->sample.box);
    v->result->differ += differ;
    add_line(v, lines, layout, differ);
    if (sent && !v->failed)
        run_plainly(v, at, sent);
}

static bool run_op(Verify *v, const OpDag *op, Text *report)
{
    Arena *arena = v->arena;
    v->op = op;
    if (!sample_open(&v->sample, v->plan, op, v->input->rows, v->input->columns,
                     v->input->seed + (u64)(op - v->plan->dag->ops), arena))
        return false;
    Lines lines = {0};
    text_printf(report, "%.*s: M = %lld rows;", STR_FMT(op->op->name), (long long)v->input->rows);
    sample_print(&v->sample, report);
    text_printf(report, "\n");
    ExecJob job = job_of(v, &v->sample.box, v->sample.expected);
    if (!exec_op(&job, arena))
        v->failed = true;
    for (int i = 0; i < v->plan->ops.n && !v->failed; i++)
        if (v->plan->ops.v[i].op == op)
            run_layout(v, &v->plan->ops.v[i], &lines);
    print_lines(v, &lines, report);
    sample_close(&v->sample);
    return !v->failed;
}

/* Each op has an arena of its own: its roots and lists are gone before the next one's are made. */
static bool verify_op(const Plan *plan, const VerifyInput *input, const OpDag *op,
                      VerifyResult *result, Text *report)
{
    Verify v = {.plan = plan, .input = input, .result = result, .arena = arena_new()};
    jmp_buf oom;
    volatile bool ok = false;
    if (!v.arena)
        return false;
    arena_on_oom(v.arena, &oom);
    if (!setjmp(oom))
        ok = run_op(&v, op, report);
    sample_close(&v.sample);
    arena_free(v.arena);
    return ok;
}

bool verify_cpu(const Plan *plan, const VerifyInput *input, VerifyResult *result, Text *report)
{
    *result = (VerifyResult){0};
    for (int i = 0; i < plan->dag->n_ops; i++) {
        const OpDag *op = &plan->dag->ops[i];
        if (input->progress)
            input->progress(input->progress_self, op->op->name, i, plan->dag->n_ops);
        if (!verify_op(plan, input, op, result, report))
            return false;
    }
    return true;
}
