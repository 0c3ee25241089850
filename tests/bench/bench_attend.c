/* Attention: decode steps over paged caches and prefill, each schedule in turn in one run, as
 * replays of graphs; medians, with the least and the most beside them. Prints Markdown.
 *
 * usage: bench_attend FILE.cubin [decode|prefill] [--schedule NAME] [--batch NAME]
 * The file is tests/bench/attention.iso, compiled. Decode counts bytes of keys and values, prefill
 * the products of causal attention. */
#include "gpu.h"
#include "module.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 11, MOST_RANKS = 16, MOST_SEQUENCES = 256, PAST_L2 = 192 << 20, MOST_COPIES = 64 };
enum { KV_HEADS = 8, HEADS = 32, DEPTH = 128, KEY_BYTES = KV_HEADS * DEPTH * 2 };
enum { MOST_ROWS = 32768, POOL_KEYS = 640 * 1024 };

typedef struct Workload {
    const char *name;
    int sequences, rows; /* rows of each: its last ones */
    int keys, keys_most; /* of each; keys_most > 0: from keys to it, spread evenly in logarithm */
    int page;            /* 0: packed */
    bool prefill;
} Workload;

static const Workload workloads[] = {
    {"64 x 8k", 64, 1, 8192, 0, 16, false},
    {"64 x 8k, pages of 528", 64, 1, 8192, 0, 528, false},
    {"4 x 64k", 4, 1, 65536, 0, 16, false},
    {"64 x 512..32k", 64, 1, 512, 32768, 16, false},
    {"64 x 1..16k", 64, 1, 1, 16384, 16, false},
    {"256 x 1k", 256, 1, 1024, 0, 16, false},
    {"16 x 2k", 16, 1, 2048, 0, 16, false},
    {"1 x 8k", 1, 1, 8192, 0, 16, false},
    {"1 x 64k", 1, 1, 65536, 0, 16, false},
    {"64 x 8k, 4 rows each", 64, 4, 8192, 0, 16, false},
    {"32 x 8k, 8 rows each", 32, 8, 8192, 0, 16, false},
    {"1 x 16k", 1, 16384, 16384, 0, 0, true},
    {"1 x 4k", 1, 4096, 4096, 0, 0, true},
    {"4 x 4k", 4, 4096, 4096, 0, 0, true},
    {"16 x 1k", 16, 1024, 1024, 0, 0, true},
    {"64 x 512", 64, 512, 512, 0, 0, true},
    {"1 x 2k of 32k in pages", 1, 2048, 32768, 0, 16, true},
};

static void must(iso_status status, const char *what)
{
    if (status == ISO_OK)
        return;
    fprintf(stderr, "bench: %s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(5);
}

/* ---- times ----------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What is timed of the op: a schedule, or a phase of a rank. */
typedef struct Timed {
    const iso_op *op;
    iso_phase phase;
    int schedule;
} Timed;

/* ---- one workload ---------------------------------------------------------------------------- */

typedef struct Subject {
    const Workload *work;
    const iso_op *op;
    int rows, copies, stride, keys[MOST_SEQUENCES];
    double total_keys, seen; /* pairs of a row and a key */
    iso_tensor tensors[4];
    DevicePtr positions, sequences, lengths, starts, turns, table, workspace;
    size_t workspace_bytes;
    int schedule;
    iso_phase phase; /* PART, JOIN: of a rank that has some splits of the keys; the roots */
    DevicePtr roots;
} Subject;

static uint32_t scatter(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Lengths of a mixed batch grow by one factor from sequence to sequence. */
static void choose_keys(Subject *s)
{
    const Workload *w = s->work;
    double most = w->keys_most ? w->keys_most : w->keys;
    for (int i = 0; i < w->sequences; i++) {
        double share = w->sequences > 1 ? (double)(i * 37 % w->sequences) / (w->sequences - 1) : 0;
        s->keys[i] = (int)(w->keys * pow(most / w->keys, share) + 0.5);
        s->total_keys += s->keys[i];
        s->seen += (double)w->rows * s->keys[i] - 0.5 * (double)w->rows * (w->rows - 1);
    }
}

static void write_ints(DevicePtr *to, const int32_t *from, int n)
{
    *to = gpu_alloc((size_t)n * 4);
    gpu_write(*to, from, (size_t)n * 4);
}

static void make_rows(Subject *s)
{
    static int32_t position[MOST_ROWS], sequence[MOST_ROWS], start[MOST_SEQUENCES];
    static int32_t turn[MOST_SEQUENCES];
    for (int i = 0, before = 0; i < s->work->sequences; before += s->keys[i++]) {
        start[i] = before;
        turn[i] = i;
        for (int r = 0; r < s->work->rows; r++, s->rows++) {
            position[s->rows] = s->keys[i] - s->work->rows + r;
            sequence[s->rows] = i;
        }
    }
    write_ints(&s->positions, position, s->rows);
    write_ints(&s->sequences, sequence, s->rows);
    write_ints(&s->lengths, s->keys, s->work->sequences);
    write_ints(&s->starts, start, s->work->sequences);
    write_ints(&s->turns, turn, s->work->sequences);
}

/* Tables of as many copies as L2 cannot hold, over permuted pages of one pool. */
static void make_tables(Subject *s)
{
    int page = s->work->page, pages = POOL_KEYS / page, longest = 0, next = 0;
    for (int i = 0; i < s->work->sequences; i++)
        longest = s->keys[i] > longest ? s->keys[i] : longest;
    s->stride = (longest + page - 1) / page;
    int32_t *order = calloc((size_t)pages, 4);
    size_t one = (size_t)s->work->sequences * (size_t)s->stride;
    int32_t *table = calloc(one * (size_t)s->copies, 4);
    for (int i = 0; i < pages; i++)
        order[i] = i;
    for (int i = pages - 1; i > 0; i--) {
        int with = (int)(scatter((uint32_t)i) % (uint32_t)(i + 1)), x = order[i];
        order[i] = order[with];
        order[with] = x;
    }
    for (int c = 0; c < s->copies; c++)
        for (int i = 0; i < s->work->sequences; i++)
            for (int p = 0; p * page < s->keys[i]; p++)
                table[(size_t)c * one + (size_t)(i * s->stride + p)] = order[next++ % pages];
    s->table = gpu_alloc(one * (size_t)s->copies * 4);
    gpu_write(s->table, table, one * (size_t)s->copies * 4);
    free(order);
    free(table);
}

static int64_t longest(const Subject *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->work->sequences; i++)
        most = s->keys[i] > most ? s->keys[i] : most;
    return most;
}

static void open_roots(Subject *s)
{
    size_t bytes;
    if (s->phase == ISO_PHASE_RUN)
        return;
    must(iso_op_roots_of_keys(s->op, s->rows, longest(s), &bytes), "iso_op_roots_of_keys");
    s->roots = gpu_alloc(bytes);
    gpu_set(s->roots, 0, bytes);
}

static void open_subject(Subject *s, const Timed *timed, const Workload *work, DevicePtr k,
                         DevicePtr v)
{
    const iso_op *op = timed->op;
    *s = (Subject){.work = work, .op = op, .schedule = timed->schedule, .phase = timed->phase};
    choose_keys(s);
    double bytes = 2.0 * KEY_BYTES * s->total_keys;
    s->copies = work->prefill ? 1 : (int)(PAST_L2 / bytes) + 1;
    s->copies = s->copies > MOST_COPIES ? MOST_COPIES : s->copies;
    make_rows(s);
    if (work->page)
        make_tables(s);
    for (int i = 0; i < 4; i++)
        must(iso_op_tensor(op, ISO_PHASE_RUN, s->rows, i, &s->tensors[i], NULL), "iso_op_tensor");
    size_t rows = (size_t)s->rows * HEADS * DEPTH;
    DevicePtr data[] = {gpu_alloc(rows * 2), k, v, gpu_alloc(rows * 2)};
    gpu_fill_normal(data[0], rows, 3, 1);
    for (int i = 0; i < 4; i++)
        s->tensors[i].data = (void *)(uintptr_t)data[i];
    for (int i = 1; i <= 2; i++) {
        iso_tensor *t = &s->tensors[i];
        t->shape[0] = work->page ? POOL_KEYS / work->page : 1;
        t->shape[1] = work->page ? work->page : POOL_KEYS;
        t->stride[1] = KV_HEADS * DEPTH;
        t->stride[0] = t->shape[1] * t->stride[1];
    }
    must(iso_op_workspace(op, s->rows, 0, &s->workspace_bytes), "iso_op_workspace");
    s->workspace = gpu_alloc(s->workspace_bytes);
    gpu_set(s->workspace, 0, s->workspace_bytes);
    open_roots(s);
}

static void close_subject(Subject *s)
{
    DevicePtr own[] = {s->positions, s->sequences, s->lengths, s->starts, s->turns, s->workspace,
                       (DevicePtr)(uintptr_t)s->tensors[0].data,
                       (DevicePtr)(uintptr_t)s->tensors[3].data};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        gpu_free(own[i]);
    if (s->work->page)
        gpu_free(s->table);
    if (s->phase != ISO_PHASE_RUN)
        gpu_free(s->roots);
}

/* A join reads as many roots of every rank; here they are one rank's. */
static void launch(const Subject *s, const iso_run *run)
{
    const void *all[MOST_RANKS];
    for (int r = 0; r < MOST_RANKS; r++)
        all[r] = (const void *)(uintptr_t)s->roots;
    if (s->phase == ISO_PHASE_RUN)
        must(iso_op_run(s->op, s->tensors, 4, run), "iso_op_run");
    else if (s->phase == ISO_PHASE_PART)
        must(iso_op_part(s->op, s->tensors, 4, (void *)(uintptr_t)s->roots, run), "iso_op_part");
    else
        must(iso_op_join(s->op, all, s->op->layout->ranks, s->tensors, 4, run), "iso_op_join");
}

static void launch_all(void *user, void *stream)
{
    Subject *s = user;
    for (int c = 0; c < s->copies; c++) {
        iso_keys keys = {.lengths = (const int32_t *)(uintptr_t)s->lengths,
                         .most_keys = longest(s),
                         .turns = (const int32_t *)(uintptr_t)s->turns};
        size_t one = (size_t)s->work->sequences * (size_t)s->stride * 4;
        if (s->work->page) {
            keys.block_table = (const int32_t *)(uintptr_t)(s->table + one * (size_t)c);
            keys.block_table_stride = s->stride;
            keys.page = s->work->page;
        } else {
            keys.starts = (const int32_t *)(uintptr_t)s->starts;
        }
        iso_run run = {.rows = s->rows,
                       .schedule = s->schedule,
                       .positions = (const int32_t *)(uintptr_t)s->positions,
                       .sequences = (const int32_t *)(uintptr_t)s->sequences,
                       .keys = &keys,
                       .workspace = (void *)(uintptr_t)s->workspace,
                       .workspace_bytes = s->workspace_bytes,
                       .stream = stream};
        launch(s, &run);
    }
}

/* ---- schedules ------------------------------------------------------------------------------- */

enum { MOST_TIMED = 16 };

static const char *schedule_name(const Timed *timed)
{
    static const char *const names[] = {"mma", "decode", "wgmma", "parts", "join"};
    return names[op_spec(timed->op, timed->phase, 1, timed->schedule)->attend.kernel];
}

/* Schedules of one rank, then the parts and joins of layouts whose ranks share the keys. */
static int list_timed(const iso_module *module, const Workload *work, const char *only,
                      Timed *timed)
{
    const Manifest *manifest = module->manifest;
    int n = 0, schedules;
    for (int l = 0; l < manifest->n_layouts; l++) {
        const iso_op *op;
        const iso_layout at = {.name = manifest->layouts[l].name};
        must(iso_op_get(module, "attention", &at, &op), at.name);
        must(iso_op_schedules(op, &schedules), "iso_op_schedules");
        for (int i = 0; i < schedules && manifest->layouts[l].ranks == 1; i++)
            timed[n++] = (Timed){op, ISO_PHASE_RUN, i + 1};
        for (int phase = ISO_PHASE_PART; phase <= ISO_PHASE_JOIN && !work->prefill; phase++)
            if (op_shares_keys(op))
                timed[n++] = (Timed){op, (iso_phase)phase, 0};
    }
    for (int i = 0; i < n && only;)
        if (strcmp(only, schedule_name(&timed[i])))
            timed[i] = timed[--n];
        else
            i++;
    return n;
}

static void print_times(const Subject *s, const char *schedule, double *us)
{
    qsort(us, REPEATS, sizeof *us, by_time);
    double bytes = 2.0 * KEY_BYTES * s->total_keys, flops = 4.0 * HEADS * DEPTH * s->seen;
    double median = us[REPEATS / 2];
    printf("| %s | %s%s%s | %.1f (%.1f-%.1f) | ", s->work->name, schedule,
           s->phase ? " of " : "", s->phase ? s->op->layout->name : "", median, us[0],
           us[REPEATS - 1]);
    bytes /= s->phase == ISO_PHASE_PART ? s->op->layout->ranks : 1;
    if (s->phase == ISO_PHASE_JOIN)
        printf("|\n");
    else
        printf("%.2f %s |\n", s->work->prefill ? flops / median / 1e6 : bytes / median / 1e6,
           s->work->prefill ? "TFLOP/s" : "TB/s");
    fflush(stdout);
}

/* All graphs, replayed in turn. */
static void run_workload(const iso_module *module, const Workload *work, DevicePtr k, DevicePtr v,
                         const char *only)
{
    static Subject s[MOST_TIMED];
    static double us[MOST_TIMED][REPEATS];
    void *graph[MOST_TIMED];
    Timed timed[MOST_TIMED];
    int n = list_timed(module, work, only, timed);
    for (int i = 0; i < n; i++) {
        open_subject(&s[i], &timed[i], work, k, v);
        graph[i] = gpu_record(launch_all, &s[i]);
        gpu_replay(graph[i]);
    }
    for (int r = 0; r < REPEATS; r++)
        for (int i = 0; i < n; i++)
            us[i][r] = gpu_replay(graph[i]) * 1e3 / s[i].copies;
    for (int i = 0; i < n; i++) {
        print_times(&s[i], schedule_name(&timed[i]), us[i]);
        gpu_forget(graph[i]);
        close_subject(&s[i]);
    }
}

int main(int argc, char **argv)
{
    const char *cubin = NULL, *kind = NULL, *only = NULL, *batch = NULL;
    iso_module *module;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--schedule") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--batch") && i + 1 < argc)
            batch = argv[++i];
        else
            *(cubin ? &kind : &cubin) = argv[i];
    }
    if (!cubin || (kind && strcmp(kind, "decode") && strcmp(kind, "prefill"))) {
        fprintf(stderr, "usage: bench_attend FILE.cubin [decode|prefill] [--schedule NAME] "
                        "[--batch NAME]\n");
        return 2;
    }
    gpu_open();
    must(iso_module_load(&module, cubin, NULL), "iso_module_load");
    printf("%s, driver %d; medians of %d (least-most)\n\n| batch | schedule | us | |\n"
           "| --- | --- | --- | --- |\n", gpu_name(), gpu_driver_version(), REPEATS);
    size_t elements = (size_t)POOL_KEYS * KV_HEADS * DEPTH;
    DevicePtr k = gpu_alloc(elements * 2), v = gpu_alloc(elements * 2);
    gpu_fill_normal(k, elements, 1, 1);
    gpu_fill_normal(v, elements, 2, 1);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if ((!kind || workloads[i].prefill == !strcmp(kind, "prefill")) &&
            (!batch || !strcmp(batch, workloads[i].name)))
            run_workload(module, &workloads[i], k, v, only);
    iso_module_unload(module);
    return 0;
}
