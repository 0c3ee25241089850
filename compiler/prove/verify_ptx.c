/* All launches of a cubin: found in its manifest, run by workers, told in a table. */
#include "verify_ptx_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Jobs {
    PtxJobs list;
    PtxOutcome *outcomes;
} Jobs;

typedef struct Pool {
    const VerifyPtxInput *input;
    const PtxModule *ptx;
    const Manifest *manifest;
    Jobs *jobs;
    Arena *arena; /* for what outlives a worker's job */
    u8 **covered; /* by kernel of the PTX: instructions that ran in some launch */
    pthread_mutex_t lock;
    int next, done;
    const char *problem;
} Pool;

/* ---- which launches ---------------------------------------------------------------------------
 */

/* The uneven launch is the last rank's: its rows begin where no others do. */
static void use_last_rank(PtxJob *uneven, const PtxJob *job)
{
    if (uneven->layout == job->layout && uneven->op == job->op &&
        uneven->schedule == job->schedule)
        uneven->rank = job->rank;
}

/* Of what goes over tokens in windows. */
static bool has_windows(const MfSpec *spec)
{
    MfAttendKernel kernel = spec->attend.kernel;
    return spec->family == MF_ATTEND && (kernel == MF_ATTEND_DECODE || kernel == MF_ATTEND_PARTS);
}

static bool sorts(const MfSpec *spec, iso_phase phase)
{
    return spec->family == MF_GEMM && spec->gemm.grouped && phase == ISO_PHASE_RUN &&
           (group_gives_sorted(spec) || group_takes_sorted(spec));
}

static void add_job(PtxJobs *jobs, const Manifest *m, Str only, PtxJob job, Arena *arena)
{
    if (job.spec < 0) /* a rank that has nothing to compute */
        return;
    if (only.n && !strstr(m->kernels[m->specs[job.spec].kernel].name, only.s))
        return;
    for (int i = 0; i < jobs->n; i++)
        if (jobs->v[i].spec == job.spec && !jobs->v[i].uneven) {
            use_last_rank(&jobs->v[i + 1], &job);
            return;
        }
    vec_push(arena, jobs, job);
    job.uneven = PTX_UNEVEN;
    vec_push(arena, jobs, job);
    job.uneven = PTX_FEW_ROWS;
    if (m->specs[job.spec].family == MF_GEMM && m->specs[job.spec].gemm.wgmma)
        vec_push(arena, jobs, job);
    job.uneven = PTX_MANY_TOKENS;
    if (has_windows(&m->specs[job.spec]))
        vec_push(arena, jobs, job);
    job.uneven = PTX_SORTED;
    if (sorts(&m->specs[job.spec], job.phase))
        vec_push(arena, jobs, job);
}

static void op_jobs(PtxJobs *jobs, const Manifest *m, Str only, int layout, int op, Arena *arena)
{
    const MfLayout *l = &m->layouts[layout];
    const MfLayoutOp *at = &l->ops[op];
    for (int rank = 0; rank < l->ranks; rank++) {
        for (int v = 0; v < at->n_variants; v++) {
            PtxJob job = {at->variants[v].specs[rank], layout, op, rank, v + 1, 0, -1,
                          at->join >= 0 ? ISO_PHASE_PART : ISO_PHASE_RUN, NULL};
            add_job(jobs, m, only, job, arena);
        }
        if (at->join >= 0)
            add_job(jobs, m, only,
                    (PtxJob){at->join, layout, op, rank, 0, 0, -1, ISO_PHASE_JOIN, NULL}, arena);
    }
}

void verify_ptx_jobs(const Manifest *m, Str only, PtxJobs *jobs, Arena *arena)
{
    for (int layout = 0; layout < m->n_layouts; layout++)
        for (int op = 0; op < m->layouts[layout].n_ops; op++)
            op_jobs(jobs, m, only, layout, op, arena);
}

/* ---- workers ----------------------------------------------------------------------------------
 */

static const char *open_session(PtxWorker *w, Arena *arena)
{
    const Manifest *m = w->module->manifest;
    isoc_source *sources = arena_array(arena, isoc_source, m->n_sources + 1);
    char *messages = NULL;
    for (int i = 0; i < m->n_sources; i++)
        sources[i] = (isoc_source){m->sources[i].name, m->sources[i].text};
    isoc_status status = isoc_session_open(sources, (size_t)m->n_sources, &w->session, &messages);
    free(messages);
    return status == ISOC_OK ? NULL : "the manifest's contract cannot be read";
}

const char *verify_ptx_open(PtxWorker *w, const VerifyPtxInput *input, const PtxModule *ptx,
                            Arena *arena)
{
    *w = (PtxWorker){.input = input, .ptx = ptx, .ways = {.arena = arena}};
    w->machine = (Machine){.arena = arena, .ptx = ptx, .seed = input->seed, .limit = input->limit,
                           .terms = input->prove != NULL};
    w->machine.numerics = fdpa_class("sm_90", FDPA_BF16);
    if (module_load_on(&w->module, input->artifact.s, (size_t)input->artifact.n, machine_driver(),
                       (CuModule)(void *)&w->machine))
        return "its kernels are not those of the PTX";
    return open_session(w, arena);
}

void verify_ptx_close(PtxWorker *w)
{
    isoc_session_close(w->session);
    iso_module_unload(w->module);
}

static int take_job(Pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    int i = pool->next < pool->jobs->list.n && !pool->problem ? pool->next++ : -1;
    if (i >= 0 && pool->input->progress) {
        const MfSpec *spec = &pool->manifest->specs[pool->jobs->list.v[i].spec];
        pool->input->progress(pool->input->progress_self,
                              str_of(pool->manifest->kernels[spec->kernel].name), pool->done,
                              pool->jobs->list.n);
    }
    pthread_mutex_unlock(&pool->lock);
    return i;
}

static void merge_covered(Pool *pool, int spec, const u8 *covered)
{
    Str name = str_of(pool->manifest->kernels[pool->manifest->specs[spec].kernel].name);
    const PtxKernel *kernel = ptx_find(pool->ptx, name);
    u8 *all = pool->covered[kernel - pool->ptx->kernels.v];
    for (int i = 0; i < kernel->code.n; i++)
        all[i] |= covered[i];
}

static void end_job(Pool *pool, int i, const PtxOutcome *outcome)
{
    pthread_mutex_lock(&pool->lock);
    pool->jobs->outcomes[i] = *outcome;
    pool->jobs->outcomes[i].finding = str_copy(pool->arena, outcome->finding);
    pool->jobs->outcomes[i].unlike = str_copy(pool->arena, outcome->unlike);
    if (outcome->covered)
        merge_covered(pool, pool->jobs->list.v[i].spec, outcome->covered);
    pool->done++;
    pthread_mutex_unlock(&pool->lock);
}

static bool run_job(PtxWorker *w, Pool *pool, int i)
{
    Arena *arena = arena_new();
    jmp_buf oom;
    PtxOutcome outcome = {0};
    if (!arena)
        return false;
    arena_on_oom(arena, &oom);
    if (!setjmp(oom))
        verify_ptx_job(w, &pool->jobs->list.v[i], arena, &outcome);
    else
        outcome.finding = STR("memory is short");
    end_job(pool, i, &outcome);
    arena_free(arena);
    return true;
}

static void *work(void *self)
{
    Pool *pool = self;
    Arena *arena = arena_new();
    if (!arena)
        return NULL;
    PtxWorker w;
    const char *problem = verify_ptx_open(&w, pool->input, pool->ptx, arena);
    if (problem)
        pool->problem = problem;
    for (int i; !problem && (i = take_job(pool)) >= 0;)
        if (!run_job(&w, pool, i))
            break;
    verify_ptx_close(&w);
    arena_free(arena);
    return NULL;
}

static void run_workers(Pool *pool)
{
    enum { MOST = 64 };
    pthread_t thread[MOST];
    int n = pool->input->threads < MOST ? pool->input->threads : MOST, started = 0;
    while (started < n - 1 && pthread_create(&thread[started], NULL, work, pool) == 0)
        started++;
    work(pool);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

/* ---- the table --------------------------------------------------------------------------------
 */

static void print_job(const Pool *pool, int i, Text *out)
{
    static const char *const phases[] = {"run", "part", "join", "run+1", "part+1", "join+1"};
    const Manifest *m = pool->manifest;
    const PtxJob *job = &pool->jobs->list.v[i];
    const PtxOutcome *o = &pool->jobs->outcomes[i];
    if (o->skipped)
        return;
    const MfLayout *layout = &m->layouts[job->layout];
    const MfSpec *spec = &m->specs[job->spec];
    text_printf(out, "%-26s %-12s %-14s %-6s %5lld %4llu/%-6llu %9llu %8lld %6lld  %.1f s\n",
                m->kernels[spec->kernel].name, m->ops[spec->op].name,
                layout->name[0] ? layout->name : "-",
                phases[job->phase + (job->uneven & PTX_UNEVEN ? 3 : 0)], (long long)o->rows,
                (unsigned long long)o->ctas, (unsigned long long)o->grid,
                (unsigned long long)o->instructions, (long long)o->outputs, (long long)o->differ,
                o->seconds);
    if (o->finding.n)
        text_printf(out, "    finding: %.*s\n", STR_FMT(o->finding));
    if (o->refused)
        text_printf(out, "    %.*s\n", STR_FMT(o->unlike));
    else if (o->unlike.n)
        text_printf(out, "    not proved: %lld outputs, the first is %.*s\n",
                    (long long)o->unproved, STR_FMT(o->unlike));
    if (o->missing)
        text_printf(out, "    finding: %lld outputs too many or too few were written\n",
                    (long long)o->missing);
}

/* One object of the certificate. */
static void certify_job(const Pool *pool, int i, Text *out)
{
    static const char *const phases[] = {"run", "part", "join"};
    const Manifest *m = pool->manifest;
    const PtxJob *job = &pool->jobs->list.v[i];
    const PtxOutcome *o = &pool->jobs->outcomes[i];
    text_printf(out,
                "%s    {\"kernel\": \"%s\", \"op\": \"%s\", \"layout\": \"%s\", \"rank\": %d,\n"
                "     \"phase\": \"%s\", \"uneven\": %s, \"rows\": %lld,\n"
                "     \"ctas\": %llu, \"of\": %llu,\n"
                "     \"outputs\": %lld, \"differ\": %lld, \"proved\": %lld, \"unproved\": %lld,\n"
                "     \"findings\": %d}",
                i ? ",\n" : "", m->kernels[m->specs[job->spec].kernel].name,
                m->ops[m->specs[job->spec].op].name, m->layouts[job->layout].name, job->rank,
                phases[job->phase], job->uneven & PTX_UNEVEN ? "true" : "false", (long long)o->rows,
                (unsigned long long)o->ctas,
                (unsigned long long)o->grid, (long long)o->outputs, (long long)o->differ,
                (long long)o->proved, (long long)o->unproved + o->refused,
                (o->finding.n > 0) + (o->missing != 0));
}

/* Instructions of kernels that were launched, and how many of them ran. */
static void count_covered(const Pool *pool, const u8 *launched, VerifyPtxResult *result)
{
    for (int k = 0; k < pool->ptx->kernels.n; k++)
        for (int i = 0; launched[k] && i < pool->ptx->kernels.v[k].code.n; i++) {
            result->instructions++;
            result->covered += pool->covered[k][i];
        }
}

static void sum_up(const Pool *pool, VerifyPtxResult *result, Text *out)
{
    const Manifest *m = pool->manifest;
    u8 *launched = arena_array(pool->arena, u8, pool->ptx->kernels.n + 1);
    text_printf(out, "%-26s %-12s %-14s %-6s %5s %11s %9s %8s %6s\n", "kernel", "op", "layout",
                "phase", "rows", "CTAs", "warp-ins", "outputs", "differ");
    for (int i = 0; i < pool->jobs->list.n; i++) {
        const PtxOutcome *o = &pool->jobs->outcomes[i];
        int kernel = m->specs[pool->jobs->list.v[i].spec].kernel;
        print_job(pool, i, out);
        if (pool->input->certificate)
            certify_job(pool, i, pool->input->certificate);
        result->launches += !o->skipped;
        result->outputs += o->outputs;
        result->differ += o->differ;
        result->proved += o->proved;
        result->unproved += o->unproved;
        result->refused += o->refused;
        result->findings += (o->finding.n > 0) + (o->missing != 0);
        const PtxKernel *program = ptx_find(pool->ptx, str_of(m->kernels[kernel].name));
        if (!launched[program - pool->ptx->kernels.v]++)
            result->kernels++;
    }
    count_covered(pool, launched, result);
}

static const char *run_pool(Pool *pool, VerifyPtxResult *result, Text *report)
{
    Jobs jobs = {0};
    pool->jobs = &jobs;
    verify_ptx_jobs(pool->manifest, pool->input->only, &jobs.list, pool->arena);
    jobs.outcomes = arena_array(pool->arena, PtxOutcome, jobs.list.n + 1);
    pool->covered = arena_array(pool->arena, u8 *, pool->ptx->kernels.n + 1);
    for (int k = 0; k < pool->ptx->kernels.n; k++)
        pool->covered[k] = arena_array(pool->arena, u8, pool->ptx->kernels.v[k].code.n + 1);
    pthread_mutex_init(&pool->lock, NULL);
    run_workers(pool);
    pthread_mutex_destroy(&pool->lock);
    if (pool->problem)
        return pool->problem;
    sum_up(pool, result, report);
    return NULL;
}

const char *verify_ptx(const VerifyPtxInput *input, VerifyPtxResult *result, Text *report)
{
    PtxModule ptx = {0};
    Str problem;
    const char *json;
    size_t size;
    bool intact;
    Manifest *manifest;
    *result = (VerifyPtxResult){0};
    if (!ptx_parse(input->ptx, &ptx, &problem, report->arena))
        return problem.s;
    for (int k = 0; k < ptx.kernels.n; k++)
        ptx_share_rows(&ptx.kernels.v[k], report->arena);
    if (isoc_cubin_manifest(input->artifact.s, (size_t)input->artifact.n, &json, &size, &intact) !=
            ISOC_OK ||
        manifest_read(json, size, &manifest))
        return "its manifest cannot be read";
    Pool pool = {.input = input, .ptx = &ptx, .manifest = manifest, .arena = report->arena};
    const char *why = run_pool(&pool, result, report);
    manifest_free(manifest);
    return why;
}
