/* Ranks on GPUs. `virtual`: threads of one process that share one GPU, through the same joins and
 * syncs. `pair`: two processes with a GPU each. `kill`: one of two dies in mid-run. `speed`: what a
 * collective costs.
 *
 * usage: gpu_ranks virtual|pair|kill|speed CUBIN [MOST_ROWS] */
#include "device.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int64_t row_counts[] = {1, 2, 63, 64, 65, 1024, 4096, 8192};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof row_counts[0], REPEATS = 10000 };

typedef struct Task {
    const char *path, *where, *folder;
    int64_t most;
    const iso_module *module; /* virtual: loaded once */
    pthread_barrier_t together;
    int ranks;
} Task;

/* Most bytes that any op moves in a layout of that many ranks. */
static size_t group_bytes(const iso_module *module, int ranks, int64_t rows)
{
    const Manifest *manifest = module->manifest;
    size_t most = 1 << 20;
    for (int l = 0; l < manifest->n_layouts; l++)
        for (int o = 0; o < manifest->n_ops && manifest->layouts[l].ranks == ranks; o++) {
            size_t bytes;
            const iso_op *op =
                op_of(module, manifest->ops[o].name, manifest->layouts[l].name, 0);
            must(iso_group_bytes(op, rows, &bytes), "iso_group_bytes");
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* ---- bits ---- */

static void check_layouts(Rank *rank, Device *d, const int64_t *rows, int n)
{
    const Manifest *manifest = rank->module->manifest;
    for (int l = 0; l < manifest->n_layouts; l++)
        for (int m = 0; m < n && manifest->layouts[l].ranks == rank->ranks; m++)
            if (rows[m] <= d->most)
                device_check(d,
                             op_of(rank->module, d->op->name, manifest->layouts[l].name,
                                   rank->rank),
                             rows[m]);
}

static void check_probes(Rank *rank, iso_group *group)
{
    for (int p = 0; p < N_PROBES; p++) {
        Whole whole;
        Device d;
        int64_t rows = probe_rows(&probes[p]);
        whole_open(&whole, rank->module, probes[p].op, rows);
        fill_probe(&probes[p], &whole);
        expect_probe(&probes[p], &whole);
        device_open(&d, rank, group, probes[p].op, rows);
        device_load(&d, &whole);
        check_layouts(rank, &d, &rows, 1);
        device_close(&d);
        whole_close(&whole);
    }
}

typedef struct Repeat {
    Device *d;
    const iso_op *op;
    iso_tensor tensors[TEST_TENSORS];
    iso_run run;
} Repeat;

static void repeat_once(void *user, void *stream)
{
    Repeat *r = user;
    r->run.stream = stream;
    device_poison(r->d);
    must(iso_op_run_group(r->d->group, r->op, r->tensors, r->d->n, &r->run), "iso_op_run_group");
    for (int i = r->d->params; i < r->d->n; i++)
        gpu_compare_more((DevicePtr)(uintptr_t)r->d->tensor[i].data, r->d->masked[i],
                         r->d->bytes[i]);
}

/* Every repeat is compared, on the device; as they are called and as graphs of three. */
static void repeat_thrice(void *user, void *stream)
{
    for (int i = 0; i < 3; i++)
        repeat_once(user, stream);
}

/* Threads of one process share the driver's lock, and a launch into a full queue keeps it: no
 * thread may queue so much that another cannot launch what it waits for. */
enum { DEEP = 8 };

static void repeat(Rank *rank, Device *d, const char *layout, int64_t rows, int times)
{
    Repeat r = {.d = d, .op = op_of(rank->module, d->op->name, layout, rank->rank)};
    uint64_t first, eager, graph;
    device_views(d, r.op, rows, r.tensors, &r.run);
    device_mask(d, r.tensors);
    gpu_compare_begin();
    for (int i = 0; i < times; i++) {
        repeat_once(&r, gpu_stream());
        if (rank->together && i % DEEP == 0)
            gpu_sync();
    }
    eager = gpu_compare_end(&first);
    gpu_compare_begin();
    for (int left = times / 3 + 1, now; left > 0; left -= now) {
        now = rank->together && left > DEEP ? DEEP : left;
        gpu_graph(repeat_thrice, &r, now);
    }
    graph = gpu_compare_end(&first);
    must(iso_group_status(d->group), "iso_group_status");
    rank->differ += eager + graph;
    if (rank->rank == 0)
        printf("  %s %s, %lld rows: %d calls and %d replays of 3: %llu and %llu halves differ\n",
               d->op->name, layout, (long long)rows, times, times / 3 + 1,
               (unsigned long long)eager, (unsigned long long)graph);
}

static void check_all(Rank *rank, int64_t most, size_t two_shot, int repeats)
{
    const Manifest *manifest = rank->module->manifest;
    iso_group *group =
        join_group(rank->module, rank->where, rank->rank, rank->ranks, 10,
                   group_bytes(rank->module, rank->ranks, most), two_shot);
    if (!strcmp(manifest->contract, "order"))
        check_probes(rank, group);
    for (int o = 0; o < manifest->n_ops; o++) {
        Device d;
        if (rank->together && !strcmp(manifest->ops[o].name, "lm_head"))
            continue; /* 16 copies of its weights */
        device_open(&d, rank, group, manifest->ops[o].name, most);
        check_layouts(rank, &d, row_counts, N_ROW_COUNTS);
        for (int l = 0; l < manifest->n_layouts && repeats; l++)
            if (manifest->layouts[l].ranks == rank->ranks &&
                manifest->layouts[l].ops[o].join >= 0)
                repeat(rank, &d, manifest->layouts[l].name, most < 64 ? most : 64, repeats);
        device_close(&d);
    }
    iso_group_destroy(group);
}

static void report(const Rank *rank, const char *how)
{
    printf("%s: %s of %d: rank %d: %llu runs, %llu of %llu halves differ\n",
           rank->module->manifest->contract, how, rank->ranks, rank->rank,
           (unsigned long long)rank->runs, (unsigned long long)rank->differ,
           (unsigned long long)rank->compared);
}

/* ---- virtual ranks ---- */

typedef struct Thread {
    pthread_t thread;
    Task *task;
    Rank rank;
} Thread;

static void *virtual_rank(void *user)
{
    Thread *t = user;
    gpu_open_thread();
    rank_meets(&t->rank);
    check_all(&t->rank, t->task->most, SIZE_MAX, 300);
    rank_meets(&t->rank);
    check_all(&t->rank, t->task->most, 1, 0);
    gpu_close_thread();
    return NULL;
}

static int run_virtual(Task *task, int ranks)
{
    Thread thread[GROUP_RANKS] = {0};
    int failed = 0;
    pthread_barrier_init(&task->together, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        thread[r].task = task;
        thread[r].rank = (Rank){.module = task->module, .where = task->where, .rank = r,
                                .ranks = ranks, .together = &task->together};
        if (pthread_create(&thread[r].thread, NULL, virtual_rank, &thread[r]))
            die("no thread for rank %d", r);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(thread[r].thread, NULL);
        failed |= thread[r].rank.differ != 0 || thread[r].rank.runs == 0;
        if (r == 0 || thread[r].rank.differ)
            report(&thread[r].rank, "virtual");
    }
    pthread_barrier_destroy(&task->together);
    return failed;
}

static int run_all_virtual(Task *task)
{
    iso_module *module;
    int failed = 0;
    gpu_open();
    must(iso_module_load(&module, task->path, NULL), task->path);
    task->module = module;
    for (int ranks = 2; ranks <= 16; ranks++)
        for (int l = 0; l < module->manifest->n_layouts; l++)
            if (module->manifest->layouts[l].ranks == ranks) {
                failed |= run_virtual(task, ranks);
                break;
            }
    iso_module_unload(module);
    return failed;
}

/* ---- a GPU each ---- */

static iso_module *open_rank(const Task *task, int rank)
{
    iso_module *module;
    gpu_open_device(rank);
    must(iso_module_load(&module, task->path, NULL), task->path);
    return module;
}

static int pair_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    Rank rank = {.module = open_rank(task, r), .where = task->where, .rank = r, .ranks = ranks};
    check_all(&rank, task->most, SIZE_MAX, 0);
    check_all(&rank, task->most, 1, 0);
    check_all(&rank, 64, 0, REPEATS);
    report(&rank, "pair");
    return rank.differ != 0;
}

/* ---- death ---- */

static void ready_name(const Task *task, int rank, char name[64])
{
    snprintf(name, 64, "%s/ready%d", task->folder, rank);
}

static void say_ready(const Task *task, int rank)
{
    char name[64];
    ready_name(task, rank, name);
    FILE *file = fopen(name, "w");
    if (file)
        fclose(file);
}

static void await_ready(const Task *task, int rank)
{
    char name[64];
    struct timespec wait = {0, 10000000};
    ready_name(task, rank, name);
    for (int i = 0; i < 3000 && unlink(name); i++)
        nanosleep(&wait, NULL);
}

static int killed_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    Rank rank = {.module = open_rank(task, r), .where = task->where, .rank = r, .ranks = ranks};
    iso_group *group = join_group(rank.module, task->where, r, ranks, 10, 1 << 20, 0);
    Device d;
    device_open(&d, &rank, group, "residual", 64);
    Repeat again = {.d = &d, .op = op_of(rank.module, "residual", "tp2", r)};
    device_views(&d, again.op, 64, again.tensors, &again.run);
    iso_status status = ISO_OK;
    for (int i = 0; !status; i++) {
        if (i == 10)
            say_ready(task, r);
        status = iso_op_run_group(group, again.op, again.tensors, d.n, &again.run);
        gpu_sync();
        if (!status)
            status = iso_group_status(group);
    }
    bool good = status == ISO_RANK_LOST && strstr(iso_last_error(), "residual");
    printf("  rank %d: %s\n", r, iso_last_error());
    iso_group_destroy(group);
    return !good;
}

static int run_kills(Task *task)
{
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        int pids[2];
        struct timespec wait = {0, 1234567L + i * 123456789L};
        start_ranks(2, killed_rank, task, pids);
        await_ready(task, 0);
        await_ready(task, 1);
        nanosleep(&wait, NULL);
        kill(pids[i % 2], SIGKILL);
        failed += end_ranks(2, pids, i % 2);
    }
    printf("3 ranks killed: %s\n", failed ? "FAILED" : "the other learnt it each time");
    return failed != 0;
}

/* ---- speed ---- */

typedef struct Timed {
    Repeat repeat;
    void *roots;
} Timed;

enum { CALLS = 10 };

static void timed_group(void *user, void *stream)
{
    Repeat *r = &((Timed *)user)->repeat;
    r->run.stream = stream;
    for (int i = 0; i < CALLS; i++)
        must(iso_op_run_group(r->d->group, r->op, r->tensors, r->d->n, &r->run), "run");
}

static void timed_part(void *user, void *stream)
{
    Timed *timed = user;
    Repeat *r = &timed->repeat;
    r->run.stream = stream;
    for (int i = 0; i < CALLS; i++)
        must(iso_op_part(r->op, r->tensors, r->d->n, timed->roots, &r->run), "part");
}

static int speed_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    static const size_t ways[] = {SIZE_MAX, 1, 0};
    static const int64_t rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192};
    enum { N = sizeof rows / sizeof rows[0] };
    Rank rank = {.module = open_rank(task, r), .where = task->where, .rank = r, .ranks = ranks};
    float whole[3][N], part[N], called[N], alone[N];
    size_t bytes = group_bytes(rank.module, ranks, 8192);
    for (int way = 0; way < 3; way++) {
        iso_group *group = join_group(rank.module, task->where, r, ranks, 10, bytes, ways[way]);
        Device d;
        device_open(&d, &rank, group, "o_proj", 8192);
        for (int i = 0; i < N; i++) {
            Timed timed = {.repeat = {.d = &d, .op = op_of(rank.module, "o_proj", "tp2", r)},
                           .roots = group->plane->scratch};
            device_views(&d, timed.repeat.op, rows[i], timed.repeat.tensors, &timed.repeat.run);
            part[i] = gpu_graph(timed_part, &timed, 20) / CALLS;
            alone[i] = gpu_microseconds(timed_part, &timed, 20) / CALLS;
            called[i] = gpu_microseconds(timed_group, &timed, 20) / CALLS;
            whole[way][i] = gpu_graph(timed_group, &timed, 20) / CALLS;
            must(iso_group_status(group), "iso_group_status");
        }
        device_close(&d);
        iso_group_destroy(group);
    }
    for (int i = 0; i < N && r == 0; i++)
        printf("  roots %9lld bytes: in a graph: part %6.1f us, collective one-shot %6.1f us, "
               "two-shot %6.1f us; called: part %6.1f us, with the default join %6.1f us\n",
               (long long)rows[i] * 4096 * 4, (double)part[i], (double)(whole[0][i] - part[i]),
               (double)(whole[1][i] - part[i]), (double)alone[i], (double)called[i]);
    return 0;
}

/* ---- main ---- */

static int run_pair(Task *task, RankWork work)
{
    int pids[2];
    start_ranks(2, work, task, pids);
    return end_ranks(2, pids, -1) != 0;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/iso-ranks-XXXXXX", where[64];
    if (argc < 3 || !mkdtemp(folder))
        die("usage: %s virtual|pair|kill|speed CUBIN [MOST_ROWS]", argv[0]);
    snprintf(where, sizeof where, "file:%s", folder);
    Task task = {.path = argv[2], .where = where, .folder = folder,
                 .most = argc > 3 ? atoll(argv[3]) : 4096};
    int failed = 2;
    if (!strcmp(argv[1], "virtual"))
        failed = run_all_virtual(&task);
    else if (!strcmp(argv[1], "pair"))
        failed = run_pair(&task, pair_rank);
    else if (!strcmp(argv[1], "kill"))
        failed = run_kills(&task);
    else if (!strcmp(argv[1], "speed"))
        failed = run_pair(&task, speed_rank);
    rmdir(folder);
    return failed ? 4 : 0;
}
