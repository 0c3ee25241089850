/* The kernels of a plan, run by the evaluator of plans, against the executor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

static Str path_of(const Compare *c, const char *kind, int a, int b)
{
    return str_format(c->arena, "%s/%s%d_%d", c->folder, kind, a, b);
}

static bool write_bytes(Str path, const void *data, size_t size)
{
    FILE *file = fopen(path.s, "wb");
    bool ok = file && fwrite(data, 1, size, file) == size;
    return file && fclose(file) == 0 && ok;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void add_params(const Compare *c, const Sample *s, Text *out)
{
    const Op *op = s->op->op;
    text_printf(out, ", \"params\": [");
    for (int i = 0; i < op->n_params; i++) {
        text_printf(out, "%s{\"file\": \"%s\", \"offset\": 0, \"stride\": [", i ? ", " : "",
                    path_of(c, "param", i, 0).s);
        for (int k = 0; k < op->params[i].n_axes; k++)
            text_printf(out, "%s%lld", k ? ", " : "", (long long)s->params[i].stride[k]);
        text_printf(out, "]}");
    }
    text_printf(out, "]");
}

static void add_lists(const Compare *c, const Sample *s, Text *out)
{
    bool first = true;
    text_printf(out, ", \"lists\": [");
    for (int a = 0; a < c->subject->contract->n_atoms; a++) {
        const ExecRange *range = &s->box.atom[a];
        if (!range->list)
            continue;
        text_printf(out, "%s[%d, [", first ? "" : ", ", a);
        for (int i = 0; i < range->n; i++)
            text_printf(out, "%s%lld", i ? ", " : "", (long long)range->list[i]);
        text_printf(out, "]]");
        first = false;
    }
    text_printf(out, "], \"coordinates\": [");
    for (i64 r = 0; r < s->rows; r++)
        text_printf(out, "%s%d", r ? ", " : "", s->positions[r]);
    text_printf(out, "]");
}

static void add_job(const Compare *c, const Sample *s, int number, Str layout, Text *out)
{
    text_printf(out, "%s{\"op\": \"%.*s\", \"layout\": \"%.*s\", \"rows\": %lld",
                number ? ",\n" : "", STR_FMT(s->op->op->name), STR_FMT(layout),
                (long long)s->rows);
    add_params(c, s, out);
    add_lists(c, s, out);
    text_printf(out, ", \"results\": [");
    for (int i = 0; i < s->op->op->n_results; i++)
        text_printf(out, "%s\"%s\"", i ? ", " : "", path_of(c, "result", number, i).s);
    text_printf(out, "]}");
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* The file's bytes, or as many zero bytes as there should be and false. */
static bool read_bytes(Str path, u8 *data, size_t size)
{
    FILE *file = fopen(path.s, "rb");
    size_t got = file ? fread(data, 1, size + 1, file) : 0;
    return file && fclose(file) == 0 && got == size;
}

static void compare_result(Compare *c, const Sample *s, int job, int result, Str layout)
{
    size_t size, first = 0;
    const u8 *want = sample_packed(c->subject, s, result, &size, c->arena);
    u8 *have = arena_alloc(c->arena, size + 1);
    bool whole = read_bytes(path_of(c, "result", job, result), have, size);
    size_t each = (size_t)dtype_bytes(s->op->op->results[result].type);
    long differ = 0;
    for (size_t e = 0; e < size / each; e++) {
        if (whole && memcmp(want + e * each, have + e * each, each) == 0)
            continue;
        first = differ++ ? first : e;
    }
    if (differ && !c->quiet)
        printf("DIFFER: op %.*s layout %.*s, %lld rows: %ld of %zu elements of result %d, "
               "element %zu first\n", STR_FMT(s->op->op->name), STR_FMT(layout),
               (long long)s->rows, differ, size / each, result, first);
    c->counts.differ += differ;
    c->counts.elements += (long)(size / each);
}

static Str layout_name(const PlanOp *at)
{
    return at->at.layout ? at->at.layout->name.text : STR("");
}

static bool write_params(const Compare *c, const Sample *s)
{
    for (int i = 0; i < s->op->op->n_params; i++)
        if (!write_bytes(path_of(c, "param", i, 0), s->params[i].data,
                         (size_t)(s->param_size[i] * dtype_bytes(s->op->op->params[i].type))))
            return false;
    return true;
}

static bool run_jobs(const Compare *c, const Text *jobs)
{
    Str path = path_of(c, "jobs", 0, 0);
    Str command = str_format(c->arena, "%s %s/plan0_0 %s%s", c->planeval, c->folder, path.s,
                             c->quiet ? " 2>/dev/null" : "");
    return write_bytes(path, jobs->s, (size_t)jobs->n) && system(command.s) == 0;
}

/* One op at one row count, in all layouts. */
static bool compare_op(Compare *c, const OpDag *op, i64 rows, int kind)
{
    Sample s;
    Text jobs = {.arena = c->arena};
    int n = 0;
    const Plan *plan = c->subject->plan;
    sample_make(c->subject, op, rows, kind, (u64)(rows * 3 + kind + 1), c->arena, &s);
    ExecJob job = {.contract = c->subject->contract, .op = op, .params = s.params,
                   .results = s.results, .box = s.box, .positions = s.positions, .threads = 1};
    if (!exec_op(&job, c->arena) || !write_params(c, &s))
        return false;
    text_printf(&jobs, "[");
    for (int i = 0; i < plan->ops.n; i++)
        if (plan->ops.v[i].op == op)
            add_job(c, &s, n++, layout_name(&plan->ops.v[i]), &jobs);
    text_printf(&jobs, "]\n");
    if (!run_jobs(c, &jobs))
        return false;
    n = 0;
    for (int i = 0; i < plan->ops.n; i++) {
        if (plan->ops.v[i].op != op)
            continue;
        for (int r = 0; r < op->op->n_results; r++)
            compare_result(c, &s, n, r, layout_name(&plan->ops.v[i]));
        n++;
    }
    c->counts.jobs += n;

    return true;
}

static bool is_wanted(const Compare *c, int op)
{
    return !c->op || str_is(c->subject->dag->ops[op].op->name, c->op);
}

bool compare_subject(Compare *c, const i64 *rows, int n_rows)
{
    Text plan = {.arena = c->subject->arena};
    plan_json(c->subject->plan, &plan);
    c->arena = arena_new();
    bool ok = write_bytes(path_of(c, "plan", 0, 0), plan.s, (size_t)plan.n);
    arena_free(c->arena);
    for (int o = 0; ok && o < c->subject->dag->n_ops; o++)
        for (int i = 0; ok && is_wanted(c, o) && i < n_rows; i++) {
            c->arena = arena_new();
            ok = compare_op(c, &c->subject->dag->ops[o], rows[i], i % 3);
            arena_free(c->arena);
        }
    return ok;
}
