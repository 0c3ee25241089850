/* Ranks on GPUs. `virtual`: threads of one process that share one GPU, through the same joins and
 * syncs. The others start a process per GPU. `bits`: every op in every layout of that many ranks,
 * and 10,000 repeats of each that moves something. `stress`: repeats while products run and groups
 * come and go. `kill`, `hang`: one dies or stops in mid-run. `mismatch`: one has other weights, or
 * runs another op. `comm`: they meet over NCCL. `model`: a whole model. `pairs`: one on one GPU,
 * against its calls one by one. `speed`: what a collective costs.
 *
 * usage: gpu_ranks MODE CUBIN [MOST_ROWS [GPUS [REPEATS [ISLAND]]]]
 * ISLAND: so many ranks reach each other's memory, the others through NCCL. */
#include "group/group_plan.h"
#include "task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t row_counts[] = {1, 2, 63, 64, 65, 1024, 4096, 8192};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof row_counts[0], REPEATS = 10000, REPEAT_ROWS = 64 };

size_t group_bytes(const iso_module *module, int ranks, int64_t rows)
{
    const Manifest *manifest = module->manifest;
    size_t most = 1 << 20;
    for (int l = 0; l < manifest->n_layouts; l++)
        for (int o = 0; o < manifest->n_ops && manifest->layouts[l].ranks == ranks; o++) {
            size_t bytes;
            const iso_op *op =
                op_of(module, manifest->ops[o].name, manifest->layouts[l].name, 0);
            must(iso_group_bytes_of_keys(op, rows, rows, &bytes), "iso_group_bytes_of_keys");
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* ---- bits ----
 * Where ranks share keys, `model` compares. */

static void check_layouts(Rank *rank, Device *d, const int64_t *rows, int n)
{
    const Manifest *manifest = rank->module->manifest;
    for (int l = 0; l < manifest->n_layouts; l++)
        for (int m = 0; m < n && manifest->layouts[l].ranks == rank->ranks; m++) {
            const iso_op *op =
                op_of(rank->module, d->op->name, manifest->layouts[l].name, rank->rank);
            if (rows[m] <= d->most && !op_shares_keys(op))
                device_check(d, op, rows[m]);
        }
}

/* Of the rank that has most; every rank must come to the same. */
static size_t bytes_of_roots(const Rank *rank, const Device *d, const char *layout)
{
    size_t most = 0;
    for (int r = 0; r < rank->ranks; r++) {
        const iso_op *op = op_of(rank->module, d->op->name, layout, r);
        size_t own = op->at->join >= 0 ? roots_bytes(op, rank->ranks, 0) : 0;
        most = own > most ? own : most;
    }
    return most;
}

/* Row counts about those where two shots begin, and where a join no longer takes its places early,
 * by the bytes of one row's roots. */
static void check_thresholds(Rank *rank, Device *d)
{
    const Manifest *manifest = rank->module->manifest;
    for (int l = 0; l < manifest->n_layouts; l++) {
        if (manifest->layouts[l].ranks != rank->ranks)
            continue;
        const iso_op *op =
            op_of(rank->module, d->op->name, manifest->layouts[l].name, rank->rank);
        if (op_shares_keys(op))
            continue;
        size_t bytes =
            bytes_of_roots(rank, d, manifest->layouts[l].name) / (size_t)rank->ranks;
        size_t peers = bytes ? (size_t)op->at->sources[rank->rank].n - 1 : 0;
        int64_t at[2] = {bytes ? 256 << 10 : 0, peers ? (int64_t)(d->group->two_shot / peers) : 0};
        for (int i = 0; i < 2 && bytes; i++)
            for (int64_t rows = at[i] / (int64_t)bytes - 1; rows <= at[i] / (int64_t)bytes + 1;
                 rows++)
                if (rows > 0 && rows <= d->most)
                    device_check(d, op, rows);
    }
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
        device_prepare(&d, rank, group, probes[p].op, rows);
        device_load(&d, &whole);
        check_layouts(rank, &d, &rows, 1);
        device_release(&d);
        whole_close(&whole);
    }
}

void repeat_open(Repeat *r, Device *d, const char *layout, int64_t rows)
{
    r->d = d;
    r->op = op_of(d->rank->module, d->op->name, layout, d->rank->rank);
    device_views(d, r->op, rows, r->tensors, &r->run);
}

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

/* What the op's call over a group is called elsewhere; NULL if nothing moves. */
static const char *movement(const iso_op *op, int64_t rows)
{
    GroupPlan plan;
    Box run, held;
    must(group_plan(op, rows, 0, &plan), "group_plan");
    if (!plan.slot_bytes)
        return NULL;
    if (plan.n_gathers)
        return plan.join        ? "all-gather, then roots joined"
               : plan.n_sends   ? "all-gather, then all-to-all"
                                : "all-gather";
    if (!plan.join)
        return "all-to-all";
    must(phase_box(op, ISO_PHASE_PART, 0, op->op->n_params, rows, &run), "phase_box");
    must(phase_box(op, ISO_PHASE_JOIN, 0, op->op->n_params, rows, &held), "phase_box");
    if (plan.n_sends && !plan.two_shot)
        return "joined, then results sent";
    return box_equal(&op->op->tensors[op->op->n_params], &run, &held) ? "all-reduce"
                                                                      : "reduce-scatter";
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

void repeat(Rank *rank, Device *d, const char *layout, int64_t rows, int times)
{
    Repeat r;
    uint64_t first, eager, graph;
    repeat_open(&r, d, layout, rows);
    device_mask(d, r.op, rows, r.tensors);
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
        printf("  %s %s, %s, %lld rows: %d calls and %d replays of 3: %llu and %llu differ\n",
               d->op->name, layout, movement(r.op, rows), (long long)rows, times, times / 3 + 1,
               (unsigned long long)eager, (unsigned long long)graph);
}

/* Each movement of the op once, in the first layout that has it. */
static void repeat_all(Rank *rank, Device *d, int times)
{
    const Manifest *manifest = rank->module->manifest;
    int64_t rows = d->most < REPEAT_ROWS ? d->most : REPEAT_ROWS;
    const char *done[16];
    int n = 0;
    for (int l = 0; l < manifest->n_layouts && n < 16; l++) {
        const char *layout = manifest->layouts[l].name;
        if (manifest->layouts[l].ranks != rank->ranks)
            continue;
        done[n] = movement(op_of(rank->module, d->op->name, layout, rank->rank), rows);
        bool known = !done[n];
        for (int i = 0; i < n; i++)
            known |= done[i] == done[n];
        if (known)
            continue;
        n++;
        repeat(rank, d, layout, rows, times);
    }
}

static void check_all(Rank *rank, int64_t most, size_t two_shot, int repeats)
{
    const Manifest *manifest = rank->module->manifest;
    iso_group *group =
        rank_group(rank, 10, group_bytes(rank->module, rank->ranks, most), two_shot);
    if (!strcmp(manifest->contract, "order"))
        check_probes(rank, group);
    for (int o = 0; o < manifest->n_ops; o++) {
        Device d;
        if (rank->together && !strcmp(manifest->ops[o].name, "lm_head"))
            continue; /* 16 copies of its weights */
        device_prepare(&d, rank, group, manifest->ops[o].name, most);
        check_layouts(rank, &d, row_counts, N_ROW_COUNTS);
        if (two_shot == 0)
            check_thresholds(rank, &d);
        if (repeats)
            repeat_all(rank, &d, repeats);
        device_release(&d);
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

/* A stream that shares a queue of the GPU with another waits behind what that one waits for: every
 * rank needs one of its own. */
static int run_all_virtual(Task *task)
{
    iso_module *module;
    int failed = 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
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

Rank open_rank(const Task *task, int rank)
{
    iso_module *module;
    gpu_open_device(rank);
    must(iso_module_load(&module, task->path, NULL), task->path);
    return (Rank){.module = module,
                  .where = task->where,
                  .rank = rank,
                  .ranks = task->ranks,
                  .island = task->island};
}

int run_ranks(Task *task, RankWork work)
{
    int pids[GROUP_RANKS];
    start_ranks(task->ranks, work, task, pids);
    return end_ranks(task->ranks, pids, -1) != 0;
}

static int bits_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    Rank rank = open_rank(task, r);
    (void)ranks;
    check_all(&rank, task->most, SIZE_MAX, 0);
    check_all(&rank, task->most, 1, 0);
    check_all(&rank, task->most, 0, 0);
    if (task->repeats)
        check_all(&rank, REPEAT_ROWS, 0, task->repeats > 0 ? task->repeats : REPEATS);
    if (r == 0 || rank.differ)
        report(&rank, "GPUs, each with its rank,");
    return rank.differ != 0 || rank.runs == 0;
}

static int run_bits(Task *task)
{
    return run_ranks(task, bits_rank);
}

/* ---- main ---- */

static const struct Mode {
    const char *name;
    int (*run)(Task *task);
} modes[] = {{"virtual", run_all_virtual},
             {"bits", run_bits},
             {"stress", run_stress},
             {"kill", run_kills},
             {"hang", run_hangs},
             {"mismatch", run_mismatches},
             {"comm", run_comm},
             {"model", run_model},
             {"pairs", run_pairs},
             {"speed", run_speed}};

static const struct Mode *mode_of(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(name, modes[i].name))
            return &modes[i];
    return NULL;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/iso-ranks-XXXXXX", where[64];
    const struct Mode *mode = argc > 2 ? mode_of(argv[1]) : NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mode || !mkdtemp(folder))
        die("usage: %s MODE CUBIN [MOST_ROWS [GPUS [REPEATS [ISLAND]]]]", argv[0]);
    snprintf(where, sizeof where, "file:%s", folder);
    Task task = {.path = argv[2], .where = where, .folder = folder,
                 .most = argc > 3 ? atoll(argv[3]) : 4096,
                 .ranks = argc > 4 ? atoi(argv[4]) : 2,
                 .repeats = argc > 5 ? atoi(argv[5]) : -1,
                 .island = argc > 6 ? atoi(argv[6]) : 0};
    if (task.ranks < 2 || task.ranks > GROUP_RANKS)
        die("%d GPUs", task.ranks);
    int failed = mode->run(&task);
    rmdir(folder);
    return failed ? 4 : 0;
}
