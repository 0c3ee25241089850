/* Kernels with other PTX than their own, proved or refused. */
#include "bench.h"

#include "prove/verify_terms.h"
#include "requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_FACTOR = 3 };

void bench_fail(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(2);
}

/* ---- trying --------------------------------------------------------------------------------- */

static void run_job(Bench *b, int i, PtxOutcome *all, PtxOutcome *one, Arena *arena)
{
    *one = (PtxOutcome){0};
    verify_ptx_job(&b->worker, &b->jobs.v[i], arena, one);
    all->longest = one->longest > all->longest ? one->longest : all->longest;
    all->unproved += one->unproved + (one->missing != 0);
    if (one->finding.n)
        all->finding = one->finding;
    all->unlike = one->unlike;
}

/* Until one refuses. A job that does not run the instruction does what the kernel's own does. */
static void run_jobs(Bench *b, PtxOutcome *all, Arena *arena)
{
    PtxOutcome one;
    for (int i = 0; i < b->jobs.n && !all->finding.n && !all->unproved; i++)
        if (b->only < 0 || b->of_job[i][b->only])
            run_job(b, i, all, &one, arena);
}

static Verdict verdict_of(const PtxOutcome *outcome)
{
    return outcome->finding.n ? FOUND : outcome->unproved ? UNLIKE : SURVIVES;
}

Verdict bench_run(Bench *b, PtxOutcome *outcome, Arena *arena)
{
    *outcome = (PtxOutcome){0};
    run_jobs(b, outcome, arena);
    return verdict_of(outcome);
}

Verdict bench_judge(Bench *b, Str ptx, PtxOutcome *outcome, Arena *arena)
{
    PtxModule module = {0};
    Str problem;
    PtxKernel own = *b->kernel;
    *outcome = (PtxOutcome){0};
    bool valid = ptx_parse(ptx, &module, &problem, arena);
    if (!valid)
        outcome->finding = problem;
    if (valid) {
        ptx_share_rows(&module.kernels.v[0], arena);
        *b->kernel = module.kernels.v[0];
        run_jobs(b, outcome, arena);
        *b->kernel = own;
    }
    return valid ? verdict_of(outcome) : INVALID;
}

Str bench_text(const Bench *b, Str line, Str text, Arena *arena)
{
    Text out = {.arena = arena};
    const char *end = line.s + line.n;
    text_add(&out, b->before);
    text_add(&out, (Str){b->body.s, (int)(line.s - b->body.s)});
    text_add(&out, text);
    text_add(&out, (Str){end, b->body.n - (int)(end - b->body.s)});
    return text_str(&out);
}

/* ---- setting up ----------------------------------------------------------------------------- */

static void compile(Bench *b, const char *contract)
{
    PipelineInput input = {.path = str_of(contract), .reader = reader_disk()};
    Pipeline *p = &b->pipeline;
    Binary functions = {0};
    Str problem;
    if (!pipeline_open(p, &input) || !pipeline_run(p, STAGE_ARTIFACT))
        bench_fail("the contract does not compile");
    if (!nvrtc_compile(p->nvrtc, verify_terms_program(p->out), p->arch, &functions, p->out,
                       &p->diags) ||
        !ptx_parse(functions.ptx, &b->functions, &problem, p->out) ||
        !ptx_parse(p->binary.ptx, &b->module, &problem, p->out))
        bench_fail("the PTX is not understood");
    for (int k = 0; k < b->module.kernels.n; k++)
        ptx_share_rows(&b->module.kernels.v[k], p->out);
}

/* The kernel's text from ".visible .entry" to the brace that ends it. */
static void find_text(Bench *b)
{
    Str ptx = b->pipeline.binary.ptx;
    const char *first = strstr(ptx.s, ".visible .entry");
    Str entry = str_format(b->arena, ".visible .entry %.*s(", STR_FMT(b->kernel->name));
    const char *start = strstr(ptx.s, entry.s), *end = strstr(start, "\n}\n");
    if (!first || !start || !end)
        bench_fail("the kernel's text is not found");
    b->before = (Str){ptx.s, (int)(first - ptx.s)};
    b->body = (Str){start, (int)(end + 3 - start)};
    b->first_line = 1;
    for (const char *at = ptx.s; at < start; at++)
        b->first_line += *at == '\n';
}

/* Ways of joins and of products by wgmma that no tensor's place decides. */
static void add_ways(Bench *b, PtxJob job)
{
    const MfSpec *spec = &b->worker.module->manifest->specs[job.spec];
    bool wgmma = spec->family == MF_GEMM && spec->gemm.wgmma;
    static const u16 of_joins[] = {PTX_LIVE_JOIN, PTX_UNEVEN | PTX_LIVE_JOIN},
                    of_products[] = {PTX_SETTLED, PTX_FEW_CTAS,
                                     PTX_SETTLED | PTX_FEW_ROWS};
    const u16 *ways = job.phase == ISO_PHASE_JOIN ? of_joins : of_products;
    int n = job.phase == ISO_PHASE_JOIN ? 2 : 3;
    for (int i = 0; i < n && (job.phase == ISO_PHASE_JOIN || wgmma); i++) {
        job.uneven = ways[i];
        vec_push(b->arena, &b->jobs, job);
    }
}

/* The kernel's first spec in all ways that decide between its paths: all uneven, all padded or just
 * as long as they are, only bases or only strides uneven, and one tensor or rank's roots at a time;
 * then its other specs. */
static void add_uneven(Bench *b)
{
    const Manifest *m = b->worker.module->manifest;
    const PtxJob first = b->jobs.v[0], last = b->jobs.v[1];
    const MfOp *op = &m->ops[m->specs[first.spec].op];
    int ones = op->n_params + op->n_results;
    if (first.phase == ISO_PHASE_JOIN)
        ones += m->layouts[first.layout].ranks;
    PtxJobs others = b->jobs;
    b->jobs = (PtxJobs){0};
    vec_push(b->arena, &b->jobs, last);
    static const u8 ways[] = {PTX_PADDED_ROWS, 0, PTX_PADDED_ROWS | PTX_UNEVEN_BASE,
                              PTX_PADDED_ROWS | PTX_UNEVEN_ROWS};
    for (int which = -1; which < ones; which++)
        for (int way = which < 0 ? 0 : 2; way < 4; way++) {
            PtxJob job = first;
            job.uneven = ways[way];
            job.which = which;
            if (which < 0 || !verify_ptx_aligned(&m->specs[first.spec], which))
                vec_push(b->arena, &b->jobs, job);
        }
    add_ways(b, first);
    for (int i = 2; i < others.n; i++)
        vec_push(b->arena, &b->jobs, others.v[i]);
}

static const char *op_name(const Bench *b, const PtxJob *job)
{
    const Manifest *m = b->worker.module->manifest;
    return m->ops[m->specs[job->spec].op].name;
}

/* Of decoding attention: launches that are named one by one. */
static void add_requests(Bench *b)
{
    PtxJobs own = b->jobs;
    b->jobs = (PtxJobs){0};
    const Requests *at;
    for (int i = 0; (at = requests_at(i)); i++)
        for (int k = 0; k < own.n; k++) {
            PtxJob job = own.v[k];
            if (job.uneven || !str_is(str_of(at->op), op_name(b, &job)))
                continue;
            job.uneven = at->uneven;
            job.requests = &at->requests;
            vec_push(b->arena, &b->jobs, job);
        }
}

static bool is_decoding(const Bench *b)
{
    const MfSpec *spec = &b->worker.module->manifest->specs[b->jobs.v[0].spec];
    return spec->family == MF_ATTEND && spec->attend.kernel == MF_ATTEND_DECODE;
}

typedef struct Cost {
    PtxJob job;
    u64 instructions;
    u8 *covered;
} Cost;

static int compare_cost(const void *a, const void *b)
{
    const Cost *x = a, *y = b;
    return (x->instructions > y->instructions) - (x->instructions < y->instructions);
}

/* Which instructions each job runs; the cheapest job comes first. */
static void learn_jobs(Bench *b, PtxOutcome *all, Arena *arena)
{
    Cost *cost = arena_array(arena, Cost, b->jobs.n + 1);
    int n = b->kernel->code.n;
    for (int i = 0; i < b->jobs.n; i++) {
        PtxOutcome one;
        run_job(b, i, all, &one, arena);
        if (one.finding.n || one.unproved)
            fprintf(stderr, "bench: launch %d of %s: %.*s\n", i, op_name(b, &b->jobs.v[i]),
                    STR_FMT(one.finding.n ? one.finding : one.unlike));
        cost[i] = (Cost){b->jobs.v[i], one.instructions, one.covered};
    }
    qsort(cost, (size_t)b->jobs.n, sizeof *cost, compare_cost);
    b->covered = arena_array(b->arena, u8, n + 1);
    b->of_job = arena_array(b->arena, u8 *, b->jobs.n + 1);
    for (int i = 0; i < b->jobs.n; i++) {
        b->jobs.v[i] = cost[i].job;
        b->of_job[i] = arena_array(b->arena, u8, n + 1);
        for (int k = 0; cost[i].covered && k < n; k++)
            b->covered[k] |= b->of_job[i][k] = cost[i].covered[k];
    }
}

static void try_own(Bench *b)
{
    PtxOutcome outcome = {0};
    Arena *arena = arena_new();
    b->worker.machine.limit = 0;
    b->only = -1;
    learn_jobs(b, &outcome, arena);
    if (verdict_of(&outcome) != SURVIVES)
        bench_fail("the kernel itself is refused");
    b->worker.machine.limit = LIMIT_FACTOR * outcome.longest;
    arena_free(arena);
}

/* And the launch whose rows lie in another order, where there is one. */
static void keep_two(Bench *b)
{
    int n = 0;
    for (int i = 0; i < b->jobs.n; i++)
        if (i < 2 || b->jobs.v[i].uneven & PTX_SORTED)
            b->jobs.v[n++] = b->jobs.v[i];
    b->jobs.n = n;
}

void bench_choose(Bench *b, const char *kernel, bool every)
{
    b->jobs.n = 0;
    verify_ptx_jobs(b->worker.module->manifest, str_of(kernel), &b->jobs, b->arena);
    if (!b->jobs.n)
        bench_fail("no such kernel");
    if (every && is_decoding(b))
        add_requests(b);
    else if (every)
        add_uneven(b);
    const Manifest *m = b->worker.module->manifest;
    Str name = str_of(m->kernels[m->specs[b->jobs.v[0].spec].kernel].name);
    b->kernel = (PtxKernel *)(uintptr_t)ptx_find(&b->module, name);
    find_text(b);
    if (!every)
        keep_two(b);
    try_own(b);
}

Bench *bench_open(const char *contract, bool small)
{
    Bench *b = calloc(1, sizeof *b);
    if (!b || !(b->arena = arena_new()))
        bench_fail("no memory");
    compile(b, contract);
    b->input = (VerifyPtxInput){.artifact = b->pipeline.artifact, .ptx = b->pipeline.binary.ptx,
                                .threads = 1, .prove = &b->pipeline.plan,
                                .functions = &b->functions, .terms_only = true, .few_keys = true,
                                .small = small, .seed = 1};
    const char *problem = verify_ptx_open(&b->worker, &b->input, &b->module, b->arena);
    if (problem)
        bench_fail(problem);
    return b;
}

void bench_close(Bench *b)
{
    verify_ptx_close(&b->worker);
}

