/* The GPU suite: every op of a cubin, in every layout, schedule and at many row counts, against one
 * base result that the CPU executor confirms on sampled rows and columns.
 *
 * The base of an op is the first layout of one rank at the most rows. Row i of every other run has
 * the inputs of the base's row i + shift, so its output must be the base's row i + shift: equality
 * over row counts and row positions is one comparison of all bits. Outputs are poisoned before each
 * run. Other modes: suite_usage below; tests/gpu/results.md says how to run them all. */
#include "case.h"
#include "modes.h"
#include "sample.h"
#include "values.cuh"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char suite_usage[] =
    "usage: gpu_suite FILE.cubin [--rows N] [--op NAME] [--no-cpu] [--quick] [--threads N]\n"
    "       gpu_suite FILE.cubin --sanitize I/N [--small] one Nth of the kernels at few rows,\n"
    "                                                     for compute-sanitizer\n"
    "       gpu_suite FILE.cubin --cublas FOLDER          products against cuBLAS\n"
    "       gpu_suite FILE.cubin --refuse                 what a device must refuse\n"
    "       gpu_suite FILE.cubin --attend [--op NAME]     attention against the CPU executor\n"
    "       gpu_suite FILE.cubin --draw [--op NAME]       draws and lookups against the executor\n"
    "       gpu_suite FILE.cubin --route [--op NAME]      routing, sums of slots, and their times\n"
    "       gpu_suite seeded KERNEL DEFECT [RUNS]         kernels with one defect\n";

static const int64_t row_counts[] = {1,  2,   9,   10,  16,  17,  32,  33,   63,  64,
                                     65, 127, 128, 129, 255, 256, 257, 1024, 4096};

typedef struct Options {
    const char *cubin, *op, *cublas;
    int64_t rows;
    bool cpu, quick, refuse, small, attend, draw, route;
    int shard, shards; /* shards > 0: sanitize */
    int threads;
} Options;

/* Where a product's columns are reduced, one output is a whole row's work. */
static int rows_to_sample(const Case *c)
{
    enum { ROWS = 24, ROWS_OF_FOLDS = 3 };
    const MfSpec *spec = op_spec(c->base, ISO_PHASE_RUN, c->most, 0);
    return spec && spec->family == MF_GEMM && spec->gemm.fold_values ? ROWS_OF_FOLDS : ROWS;
}

static void check_base_on_cpu(Case *c, isoc_session *session, int threads)
{
    SampleReport report;
    Sample sample = {.module = c->module,
                     .op = c->op,
                     .layout = c->base->layout->name,
                     .kind = c->kind,
                     .rows = c->most,
                     .threads = threads,
                     .most_rows = rows_to_sample(c),
                     .expected = c->expected,
                     .whole = c->whole};
    if (!sample_check(session, &sample, &report)) {
        fprintf(stderr, "gpu suite: the executor could not run op %s\n", c->op->name);
        exit(5);
    }
    c->totals->cpu_compared += report.compared;
    c->totals->cpu_differ += report.differ;
    printf("  CPU executor: %" PRIu64 " of %" PRIu64 " sampled outputs differ (%s)\n",
           report.differ, report.compared, report.what);
}

/* Every layout and schedule. */
static void run_ways(Case *c, Way way, bool only_new)
{
    for (int l = 0; l < c->module->manifest->n_layouts; l++) {
        int schedules;
        way.layout = &c->module->manifest->layouts[l];
        must(iso_op_schedules(case_op(c, way.layout, 0), &schedules), "iso_op_schedules");
        for (way.schedule = 1; way.schedule <= schedules; way.schedule++)
            if (!only_new || case_way_is_new(c, &way))
                case_way(c, &way);
    }
}

static void run_rows(Case *c, bool quick)
{
    int64_t last = -1;
    for (size_t m = 0; m < sizeof row_counts / sizeof row_counts[0]; m++) {
        int64_t rows = row_counts[m];
        if (rows > c->most || (quick && rows > 129))
            continue;
        int64_t shift = rows * 7 % (c->most - rows + 1);
        if (shift != last)
            case_fill(c, false, (unsigned)shift);
        last = shift;
        run_ways(c, (Way){.rows = rows, .live = rows, .shift = shift}, false);
    }
}

/* Rows past the live count, which lies on the device, keep what was there. */
static void run_live_rows(Case *c)
{
    int64_t rows = c->most < 100 ? c->most : 100;
    case_fill(c, false, 0);
    run_ways(c, (Way){.rows = rows, .live = rows * 2 / 3}, false);
    run_ways(c, (Way){.rows = rows, .live = 0}, false);
}

/* Each kernel of the contract once at each row count; the suite proper compares bits. */
enum { SANITIZE_ROWS = 130 };
static void run_each_kernel(Case *c, const Options *options, Seen *seen)
{
    static const Way ways[] = {{.rows = 1, .live = 1},
                               {.rows = 17, .live = 17},
                               {.rows = 65, .live = 40},
                               {.rows = SANITIZE_ROWS, .live = SANITIZE_ROWS}};
    c->blind = true;
    c->shard = options->shard;
    c->shards = options->shards;
    case_fill(c, true, 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        c->seen = &seen[i];
        run_ways(c, ways[i], true);
    }
}

typedef struct Captured {
    Case *c;
    iso_run run;
    iso_tensor tensors[MAX_TENSORS];
} Captured;

static void captured_run(void *user, void *stream)
{
    Captured *captured = user;
    captured->run.stream = stream;
    must(iso_op_run(captured->c->base, captured->tensors, captured->c->n, &captured->run),
         "iso_op_run under capture");
}

static void run_graph(Case *c)
{
    Way way = {.layout = c->base->layout, .rows = c->most < 64 ? c->most : 64};
    way.live = way.rows;
    case_fill(c, false, 0);
    Captured captured = {.c = c, .run = case_run(c, c->base, way.rows, 0)};
    case_views(c, c->base, ISO_PHASE_RUN, way.rows, captured.tensors);
    case_poison(c);
    gpu_sync();
    gpu_graph(captured_run, &captured, 20);
    case_compare(c, c->base, &way);
}

/* ---- main ---- */

static void run_case(const Options *options, const iso_module *module, const MfOp *op, int kind,
                     isoc_session *session, Totals *totals)
{
    Case c;
    Totals before = *totals;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    printf("%s, %s values\n", op->name, kind == VALUES_NORMAL ? "normal" : "adversarial");
    case_open(&c, module, op, kind, options->rows, totals);
    case_base(&c);
    if (session)
        check_base_on_cpu(&c, session, options->threads);
    run_rows(&c, options->quick);
    run_live_rows(&c);
    run_graph(&c);
    case_close(&c);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    printf("  %" PRIu64 " runs, %" PRIu64 " of %" PRIu64 " outputs differ (%.1f s)\n",
           totals->runs - before.runs, totals->differ - before.differ,
           totals->compared - before.compared,
           (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec));
    fflush(stdout);
}

/* ---- sizes for tools that are a hundred times slower ---- */

/* Sizes of a product are arguments of its kernel, so that the same kernel may have less to do. */
static void shrink_atom(Manifest *manifest, int atom, int by)
{
    manifest->atoms[atom].size /= by;
    manifest->atoms[atom].stored /= by;
    for (int l = 0; l < manifest->n_layouts; l++)
        for (int i = 0; i < manifest->layouts[l].n_ops; i++)
            for (int r = 0; r < manifest->layouts[l].ranks; r++) {
                MfLayoutOp *op = &manifest->layouts[l].ops[i];
                op->parts[r].lo[atom] /= by;
                op->parts[r].hi[atom] /= by;
                if (op->join_parts) {
                    op->join_parts[r].lo[atom] /= by;
                    op->join_parts[r].hi[atom] /= by;
                }
            }
}

/* Every product's columns and leaves to a quarter: each has one axis of at least 32 among its
 * columns and one among what it sums. */
static void shrink_products(Manifest *manifest)
{
    enum { BY = 4, LEAST = 32 };
    for (int a = 0; a < manifest->n_atoms; a++)
        if (manifest->atoms[a].size >= LEAST)
            shrink_atom(manifest, a, BY);
    for (int s = 0; s < manifest->n_specs; s++) {
        MfGemm *gemm = &manifest->specs[s].gemm;
        for (int i = 0; i < gemm->n_leaves; i++) {
            gemm->leaf_lo[i] /= BY;
            gemm->leaf_hi[i] /= BY;
        }
    }
}

static void shrink_vocabulary(Manifest *manifest)
{
    enum { LARGE = 16384, BY = 16 };
    for (int a = 0; a < manifest->n_atoms; a++)
        if (manifest->atoms[a].size >= LARGE)
            shrink_atom(manifest, a, BY);
}

static bool read_options(int argc, char **argv, Options *options)
{
    *options = (Options){.rows = 4096, .cpu = true, .threads = 8};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--rows") && i + 1 < argc)
            options->rows = atoll(argv[++i]);
        else if (!strcmp(argv[i], "--op") && i + 1 < argc)
            options->op = argv[++i];
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            options->threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--cublas") && i + 1 < argc)
            options->cublas = argv[++i];
        else if (!strcmp(argv[i], "--no-cpu"))
            options->cpu = false;
        else if (!strcmp(argv[i], "--quick"))
            options->quick = true;
        else if (!strcmp(argv[i], "--sanitize") && i + 1 < argc &&
                 sscanf(argv[i + 1], "%d/%d", &options->shard, &options->shards) == 2)
            i++;
        else if (!strcmp(argv[i], "--small"))
            options->small = true;
        else if (!strcmp(argv[i], "--attend"))
            options->attend = true;
        else if (!strcmp(argv[i], "--draw"))
            options->draw = true;
        else if (!strcmp(argv[i], "--route"))
            options->route = true;
        else if (!strcmp(argv[i], "--refuse"))
            options->refuse = true;
        else if (argv[i][0] != '-' && !options->cubin)
            options->cubin = argv[i];
        else
            return false;
    }
    return options->cubin != NULL && options->rows > 0 && options->shards >= 0;
}

static int run_suite(const Options *options, const iso_module *module, isoc_session *session)
{
    const Manifest *manifest = module->manifest;
    Totals totals = {0};
    for (int i = 0; i < manifest->n_ops; i++)
        for (int kind = VALUES_NORMAL; kind <= VALUES_ADVERSARIAL; kind++)
            if (!options->op || !strcmp(options->op, manifest->ops[i].name))
                run_case(options, module, &manifest->ops[i], kind, session, &totals);
    printf("%s: %" PRIu64 " runs with %d kernels: %" PRIu64 " of %" PRIu64 " outputs differ; CPU "
           "executor: %" PRIu64 " of %" PRIu64 " sampled outputs differ\n",
           manifest->contract, totals.runs, totals.kernels.n, totals.differ, totals.compared,
           totals.cpu_differ, totals.cpu_compared);
    return totals.differ || totals.cpu_differ || !totals.compared ? 4 : 0;
}

/* The ops whose kernels are products, or the others, whose kernels know their sizes. */
static void sanitize_ops(const Options *options, const iso_module *module, bool products,
                         Totals *totals, Seen *seen)
{
    for (int i = 0; i < module->manifest->n_ops; i++) {
        Case c;
        case_open(&c, module, &module->manifest->ops[i], VALUES_NORMAL, SANITIZE_ROWS, totals);
        const MfSpec *spec = op_spec(c.base, ISO_PHASE_RUN, 1, 0);
        if (products == (spec && spec->family == MF_GEMM))
            run_each_kernel(&c, options, seen);
        case_close(&c);
        fflush(stdout);
    }
}

static int run_sanitize(const Options *options, const iso_module *module)
{
    Totals totals = {0};
    Seen seen[4] = {0};
    shrink_vocabulary(module->manifest);
    sanitize_ops(options, module, false, &totals, seen);
    if (options->small)
        shrink_products(module->manifest);
    sanitize_ops(options, module, true, &totals, seen);
    printf("%s, shard %d of %d: %" PRIu64 " runs with %d kernels\n", module->manifest->contract,
           options->shard, options->shards, totals.runs, totals.kernels.n);
    return 0;
}

static int run_module(const Options *options)
{
    iso_module *module, *cpu = NULL;
    int result;
    must(iso_module_load(&module, options->cubin, NULL), options->cubin);
    printf("%s on %s, driver %d, fingerprint ", module->manifest->contract, gpu_name(),
           gpu_driver_version());
    for (int i = 0; i < 32; i++)
        printf("%02x", module->manifest->fingerprint[i]);
    printf("\n");
    if (options->attend) {
        iso_config on_cpu = {.size = sizeof on_cpu, .device = ISO_CPU};
        must(iso_module_load(&cpu, options->cubin, &on_cpu), options->cubin);
        result = attend_check(module, cpu, options->op);
    } else if (options->draw || options->route) {
        iso_config on_cpu = {.size = sizeof on_cpu, .device = ISO_CPU, .cpu_threads = 16};
        must(iso_module_load(&cpu, options->cubin, &on_cpu), options->cubin);
        result = (options->draw ? draw_check : route_check)(module, cpu, options->op,
                                                            !options->quick);
    } else if (options->cublas) {
        result = cublas_compare(module, options->cublas);
    } else if (options->refuse) {
        result = refuse_all(module, options->cubin);
    } else if (options->shards) {
        result = run_sanitize(options, module);
    } else {
        iso_config on_cpu = {.size = sizeof on_cpu, .device = ISO_CPU};
        if (options->cpu)
            must(iso_module_load(&cpu, options->cubin, &on_cpu), options->cubin);
        result = run_suite(options, module, cpu ? cpu->session : NULL);
    }
    iso_module_unload(cpu);
    iso_module_unload(module);
    return result;
}

int main(int argc, char **argv)
{
    Options options;
    if (argc > 2 && !strcmp(argv[1], "seeded")) {
        gpu_open();
        return seeded_run(argc - 2, argv + 2);
    }
    if (!read_options(argc, argv, &options)) {
        fputs(suite_usage, stderr);
        return 2;
    }
    gpu_open();
    return run_module(&options);
}
