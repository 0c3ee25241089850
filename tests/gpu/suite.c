/* The GPU suite: every op of a cubin, in every layout, schedule and at many row counts, against one
 * base result that the CPU executor confirms on sampled rows and columns.
 *
 * The base of an op is the first layout of one rank at the most rows. Row i of every other run has
 * the inputs of the base's row i + shift, so its output must be the base's row i + shift: equality
 * over row counts and row positions is one comparison of all bits. Outputs are poisoned before each
 * run. Ranks pass views of whole tensors, at their own origin and with the whole's strides.
 *
 * usage: suite FILE.cubin [--rows N] [--op NAME] [--no-cpu] [--quick] [--threads N] */
#include "gpu.h"
#include "sample.h"

#include "module.h"
#include "values.cuh"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TENSORS = 16, POISON = 0xCD, MAX_KERNELS = 256 };

static const int64_t row_counts[] = {1,  2,   9,   10,  16,  17,  32,  33,   63,  64,
                                     65, 127, 128, 129, 255, 256, 257, 1024, 4096};

typedef struct Totals {
    uint64_t runs, compared, differ, cpu_compared, cpu_differ;
    const char *kernels[MAX_KERNELS];
    int n_kernels;
} Totals;

typedef struct Case {
    const iso_module *module;
    const MfOp *op;
    const iso_op *base; /* one rank */
    int kind;
    int64_t most; /* rows of the base */
    int n, params;
    iso_tensor whole[MAX_TENSORS]; /* on the device, `most` rows */
    size_t bytes[MAX_TENSORS];
    DevicePtr expected[MAX_TENSORS]; /* the base's results */
    DevicePtr workspace, roots[16];
    size_t workspace_bytes, roots_bytes;
    Totals *totals;
} Case;

/* ---- plumbing ---- */

static void must(iso_status status, const char *what)
{
    if (status == ISO_OK)
        return;
    fprintf(stderr, "gpu suite: %s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(5);
}

static size_t tensor_bytes(const iso_tensor *tensor)
{
    size_t bytes = tensor->dtype == ISO_F32 ? 4 : 2;
    for (int i = 0; i < tensor->n_axes; i++)
        bytes *= (size_t)tensor->shape[i];
    return bytes;
}

static bool has_rows(const Case *c, int tensor)
{
    const MfTensor *t = &c->op->tensors[tensor];
    return !c->module->manifest->atoms[t->axes[0].atom[0]].size;
}

static int64_t inner_elements(const iso_tensor *tensor)
{
    int64_t inner = 1;
    for (int i = tensor->n_axes > 1; i < tensor->n_axes; i++)
        inner *= tensor->shape[i];
    return inner;
}

static void note_kernel(Case *c, const iso_op *op, iso_phase phase, int64_t rows, int schedule)
{
    const char *name;
    must(iso_op_kernel(op, phase, rows, schedule, &name), "iso_op_kernel");
    for (int i = 0; i < c->totals->n_kernels; i++)
        if (!strcmp(c->totals->kernels[i], name))
            return;
    if (c->totals->n_kernels < MAX_KERNELS)
        c->totals->kernels[c->totals->n_kernels++] = name;
    int ranks = op->layout->ranks;
    printf("  first run of %s: layout %s (%d rank%s), schedule %d, %" PRId64 " rows\n", name,
           op->layout->name, ranks, ranks > 1 ? "s" : "", schedule, rows);
}

static void grow(DevicePtr *buffer, size_t *have, size_t need)
{
    if (need <= *have)
        return;
    gpu_sync();
    if (*buffer)
        gpu_free(*buffer);
    *buffer = gpu_alloc(need);
    *have = need;
    gpu_set(*buffer, 0, need);
}

/* ---- inputs ---- */

static void fill_inputs(Case *c, bool weights, unsigned shift)
{
    for (int i = 0; i < c->params; i++) {
        iso_tensor *t = &c->whole[i];
        if (!weights && !has_rows(c, i))
            continue;
        gpu_fill_bf16((DevicePtr)(uintptr_t)t->data, t->n_axes > 1 ? t->shape[0] : 1,
                      inner_elements(t) * (t->dtype == ISO_F32 ? 2 : 1), c->kind,
                      sample_seed(i), has_rows(c, i) ? shift : 0);
    }
}

static void open_case(Case *c)
{
    for (int i = 0; i < c->n; i++) {
        must(iso_op_tensor(c->base, ISO_PHASE_RUN, c->most, i, &c->whole[i], NULL),
             "iso_op_tensor");
        c->bytes[i] = tensor_bytes(&c->whole[i]);
        c->whole[i].data = (void *)(uintptr_t)gpu_alloc(c->bytes[i]);
        if (i >= c->params)
            c->expected[i] = gpu_alloc(c->bytes[i]);
    }
}

static void close_case(Case *c)
{
    gpu_sync();
    for (int i = 0; i < c->n; i++) {
        gpu_free((DevicePtr)(uintptr_t)c->whole[i].data);
        if (i >= c->params)
            gpu_free(c->expected[i]);
    }
    for (int r = 0; r < 16; r++)
        if (c->roots[r])
            gpu_free(c->roots[r]);
    if (c->workspace)
        gpu_free(c->workspace);
}

/* ---- running ---- */

/* The rank's view of each whole tensor: its shape and origin, the whole's strides. */
static void rank_view(Case *c, const iso_op *op, iso_phase phase, int64_t rows, iso_tensor *tensors)
{
    for (int i = 0; i < c->n; i++) {
        int64_t origin[ISO_MAX_AXES], offset = 0;
        must(iso_op_tensor(op, phase, rows, i, &tensors[i], NULL), "iso_op_tensor");
        must(iso_op_origin(op, phase, rows, i, origin), "iso_op_origin");
        for (int a = 0; a < tensors[i].n_axes; a++) {
            tensors[i].stride[a] = c->whole[i].stride[a];
            offset += origin[a] * tensors[i].stride[a];
        }
        tensors[i].data = (char *)c->whole[i].data + offset * (tensors[i].dtype == ISO_F32 ? 4 : 2);
    }
}

static void poison(Case *c)
{
    for (int i = c->params; i < c->n; i++)
        gpu_set((DevicePtr)(uintptr_t)c->whole[i].data, POISON, c->bytes[i]);
}

/* All bits of the first `rows` rows of each result against the base's rows from `shift`. */
static void compare(Case *c, const iso_op *op, int64_t rows, int64_t shift, int schedule)
{
    for (int i = c->params; i < c->n; i++) {
        size_t row = c->bytes[i] / (size_t)c->most;
        uint64_t first,
            differ = gpu_compare((DevicePtr)(uintptr_t)c->whole[i].data,
                                 c->expected[i] + row * (size_t)shift, row * (size_t)rows, &first);
        uint64_t elements = row * (uint64_t)rows / (c->whole[i].dtype == ISO_F32 ? 4 : 2);
        c->totals->compared += elements;
        c->totals->differ += differ;
        if (differ)
            printf("  DIFFERS: op %s, layout %s, schedule %d, %" PRId64 " rows, shift %" PRId64
                   ", tensor %s: %" PRIu64 " of %" PRIu64 ", first in row %" PRIu64
                   " column %" PRIu64 "\n",
                   c->op->name, op->layout->name, schedule, rows, shift, c->op->tensors[i].name,
                   differ, elements, first * 2 / row,
                   first * 2 % row / (c->whole[i].dtype == ISO_F32 ? 4 : 2));
    }
}

static void run_rank(Case *c, const iso_op *op, int64_t rows, int schedule, bool join)
{
    iso_tensor tensors[MAX_TENSORS];
    size_t need;
    must(iso_op_workspace(op, rows, schedule, &need), "iso_op_workspace");
    grow(&c->workspace, &c->workspace_bytes, need);
    iso_run run = {.rows = rows,
                   .schedule = schedule,
                   .stream = gpu_stream(),
                   .workspace = (void *)(uintptr_t)c->workspace,
                   .workspace_bytes = c->workspace_bytes};
    rank_view(c, op, join ? ISO_PHASE_PART : ISO_PHASE_RUN, rows, tensors);
    c->totals->runs++;
    note_kernel(c, op, join ? ISO_PHASE_PART : ISO_PHASE_RUN, rows, schedule);
    if (join)
        must(iso_op_part(op, tensors, c->n, (void *)(uintptr_t)c->roots[op->rank], &run),
             "iso_op_part");
    else
        must(iso_op_run(op, tensors, c->n, &run), "iso_op_run");
}

static const iso_op *get_op(Case *c, const MfLayout *layout, int rank)
{
    iso_layout at = {.name = layout->name, .rank = rank};
    const iso_op *op;
    must(iso_op_get(c->module, c->op->name, &at, &op), "iso_op_get");
    return op;
}

/* The most that any rank has: a cut may leave more roots on one rank than on another. */
static void make_roots(Case *c, const MfLayout *layout, int64_t rows)
{
    size_t need = 0;
    for (int r = 0; r < layout->ranks; r++) {
        size_t own;
        must(iso_op_roots(get_op(c, layout, r), rows, &own), "iso_op_roots");
        need = own > need ? own : need;
    }
    if (need <= c->roots_bytes)
        return;
    for (int r = 0; r < 16; r++) {
        if (c->roots[r])
            gpu_free(c->roots[r]);
        c->roots[r] = gpu_alloc(need);
    }
    c->roots_bytes = need;
}

static void join_rank(Case *c, const iso_op *op, int64_t rows)
{
    iso_tensor tensors[MAX_TENSORS];
    const void *roots[16];
    for (int r = 0; r < 16; r++)
        roots[r] = (const void *)(uintptr_t)c->roots[r];
    iso_run run = {.rows = rows, .stream = gpu_stream()};
    rank_view(c, op, ISO_PHASE_JOIN, rows, tensors);
    note_kernel(c, op, ISO_PHASE_JOIN, rows, 0);
    must(iso_op_join(op, roots, op->layout->ranks, tensors, c->n, &run), "iso_op_join");
}

/* Whether the rank's results are the whole: then each rank's own run is compared. */
static bool is_whole(Case *c, const iso_op *op, iso_phase phase, int64_t rows)
{
    iso_tensor part, whole;
    must(iso_op_tensor(op, phase, rows, c->params, &part, NULL), "iso_op_tensor");
    must(iso_op_tensor(c->base, ISO_PHASE_RUN, rows, c->params, &whole, NULL), "iso_op_tensor");
    return tensor_bytes(&part) == tensor_bytes(&whole);
}

/* One layout, one schedule, one row count: all ranks one after another. */
static void run_layout(Case *c, const MfLayout *layout, int64_t rows, int64_t shift, int schedule)
{
    const iso_op *op = get_op(c, layout, 0);
    int join;
    must(iso_op_needs_join(op, &join), "iso_op_needs_join");
    bool whole = is_whole(c, op, join ? ISO_PHASE_JOIN : ISO_PHASE_RUN, rows);
    if (join) {
        make_roots(c, layout, rows);
        for (int r = 0; r < layout->ranks; r++) {
            gpu_set(c->roots[r], POISON, c->roots_bytes);
            run_rank(c, get_op(c, layout, r), rows, schedule, true);
        }
    }
    poison(c);
    for (int r = 0; r < layout->ranks; r++) {
        op = get_op(c, layout, r);
        if (whole && r)
            poison(c);
        if (join)
            join_rank(c, op, rows);
        else
            run_rank(c, op, rows, schedule, false);
        if (whole)
            compare(c, op, rows, shift, schedule);
    }
    if (!whole)
        compare(c, op, rows, shift, schedule);
}

/* ---- what is run ---- */

static void run_base(Case *c)
{
    fill_inputs(c, true, 0);
    poison(c);
    run_rank(c, c->base, c->most, 0, false);
    gpu_sync();
    for (int i = c->params; i < c->n; i++) {
        DevicePtr result = c->expected[i];
        c->expected[i] = (DevicePtr)(uintptr_t)c->whole[i].data;
        c->whole[i].data = (void *)(uintptr_t)result;
    }
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

static void run_op(Case *c, bool quick)
{
    int64_t last = -1;
    for (size_t m = 0; m < sizeof row_counts / sizeof row_counts[0]; m++) {
        int64_t rows = row_counts[m];
        if (rows > c->most || (quick && rows > 129))
            continue;
        int64_t shift = rows * 7 % (c->most - rows + 1);
        if (shift != last)
            fill_inputs(c, false, (unsigned)shift);
        last = shift;
        for (int l = 0; l < c->module->manifest->n_layouts; l++) {
            const MfLayout *layout = &c->module->manifest->layouts[l];
            int schedules;
            must(iso_op_schedules(get_op(c, layout, 0), &schedules), "iso_op_schedules");
            for (int s = 1; s <= schedules; s++)
                run_layout(c, layout, rows, shift, s);
        }
    }
}

/* Rows past the live count, which lies on the device, keep what was there. */
static void run_live_rows(Case *c)
{
    int64_t rows = c->most < 100 ? c->most : 100;
    int32_t live = (int32_t)(rows * 2 / 3);
    DevicePtr live_device = gpu_alloc(4);
    int schedules;
    gpu_write(live_device, &live, 4);
    fill_inputs(c, false, 0);
    must(iso_op_schedules(c->base, &schedules), "iso_op_schedules");
    for (int s = 1; s <= schedules; s++) {
        iso_tensor tensors[MAX_TENSORS];
        size_t need;
        must(iso_op_workspace(c->base, rows, s, &need), "iso_op_workspace");
        grow(&c->workspace, &c->workspace_bytes, need);
        iso_run run = {.rows = rows,
                       .schedule = s,
                       .stream = gpu_stream(),
                       .rows_device = (const int32_t *)(uintptr_t)live_device,
                       .workspace = (void *)(uintptr_t)c->workspace,
                       .workspace_bytes = c->workspace_bytes};
        rank_view(c, c->base, ISO_PHASE_RUN, rows, tensors);
        poison(c);
        must(iso_op_run(c->base, tensors, c->n, &run), "iso_op_run");
        compare(c, c->base, live, 0, s);
        for (int i = c->params; i < c->n; i++) {
            size_t row = c->bytes[i] / (size_t)c->most, dead = row * (size_t)(rows - live);
            DevicePtr reference = gpu_alloc(dead);
            uint64_t first;
            gpu_set(reference, POISON, dead);
            uint64_t touched = gpu_compare((DevicePtr)(uintptr_t)c->whole[i].data + row * live,
                                           reference, dead, &first);
            c->totals->compared += dead / 2;
            c->totals->differ += touched;
            if (touched)
                printf("  DIFFERS: op %s, schedule %d wrote past its live rows\n", c->op->name, s);
            gpu_free(reference);
        }
    }
    gpu_free(live_device);
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
    int64_t rows = c->most < 64 ? c->most : 64;
    size_t need;
    fill_inputs(c, false, 0);
    must(iso_op_workspace(c->base, rows, 0, &need), "iso_op_workspace");
    grow(&c->workspace, &c->workspace_bytes, need);
    Captured captured = {.c = c,
                         .run = {.rows = rows,
                                 .workspace = (void *)(uintptr_t)c->workspace,
                                 .workspace_bytes = c->workspace_bytes}};
    rank_view(c, c->base, ISO_PHASE_RUN, rows, captured.tensors);
    poison(c);
    gpu_sync();
    gpu_graph(captured_run, &captured, 20);
    compare(c, c->base, rows, 0, 0);
}

/* ---- main ---- */

typedef struct Options {
    const char *cubin, *op;
    int64_t rows;
    bool cpu, quick;
    int threads;
} Options;

static void run_case(const Options *options, const iso_module *module, const MfOp *op, int kind,
                     isoc_session *session, Totals *totals)
{
    Case c = {.module = module,
              .op = op,
              .kind = kind,
              .most = options->rows,
              .n = op->n_params + op->n_results,
              .params = op->n_params,
              .totals = totals};
    must(iso_op_get(module, op->name, NULL, &c.base), "iso_op_get");
    Totals before = *totals;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    printf("%s, %s values\n", op->name, kind == VALUES_NORMAL ? "normal" : "adversarial");
    open_case(&c);
    run_base(&c);
    if (session)
        check_base_on_cpu(&c, session, options->threads);
    run_op(&c, options->quick);
    run_live_rows(&c);
    run_graph(&c);
    close_case(&c);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    printf("  %" PRIu64 " runs, %" PRIu64 " of %" PRIu64 " outputs differ (%.1f s)\n",
           totals->runs - before.runs, totals->differ - before.differ,
           totals->compared - before.compared,
           (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec));
    fflush(stdout);
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
        else if (!strcmp(argv[i], "--no-cpu"))
            options->cpu = false;
        else if (!strcmp(argv[i], "--quick"))
            options->quick = true;
        else if (argv[i][0] != '-' && !options->cubin)
            options->cubin = argv[i];
        else
            return false;
    }
    return options->cubin != NULL && options->rows > 0;
}

int main(int argc, char **argv)
{
    Options options;
    Totals totals = {0};
    iso_module *module, *cpu = NULL;
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr,
                "usage: %s FILE.cubin [--rows N] [--op NAME] [--no-cpu] [--quick] "
                "[--threads N]\n",
                argv[0]);
        return 2;
    }
    gpu_open();
    must(iso_module_load(&module, options.cubin, NULL), options.cubin);
    iso_config on_cpu = {.size = sizeof on_cpu, .device = ISO_CPU};
    if (options.cpu)
        must(iso_module_load(&cpu, options.cubin, &on_cpu), options.cubin);
    const Manifest *manifest = module->manifest;
    printf("%s on %s, driver %d, fingerprint ", manifest->contract, gpu_name(),
           gpu_driver_version());
    for (int i = 0; i < 32; i++)
        printf("%02x", manifest->fingerprint[i]);
    printf("\n");
    for (int i = 0; i < manifest->n_ops; i++)
        for (int kind = VALUES_NORMAL; kind <= VALUES_ADVERSARIAL; kind++)
            if (!options.op || !strcmp(options.op, manifest->ops[i].name))
                run_case(&options, module, &manifest->ops[i], kind, cpu ? cpu->session : NULL,
                         &totals);
    printf("%s: %" PRIu64 " runs with %d kernels: %" PRIu64 " of %" PRIu64 " outputs differ; CPU "
           "executor: %" PRIu64 " of %" PRIu64 " sampled outputs differ\n",
           manifest->contract, totals.runs, totals.n_kernels, totals.differ, totals.compared,
           totals.cpu_differ, totals.cpu_compared);
    iso_module_unload(cpu);
    iso_module_unload(module);
    return totals.differ || totals.cpu_differ ? 4 : 0;
}
