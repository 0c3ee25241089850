/* Repeats of every joined op while another stream's products fill the GPU and a second group comes
 * and goes. */
#include "task.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 64, REPEATS = 10000, GROUPS = 25, LOAD_ROWS = 1024, BYTES = 1 << 22 };

typedef struct Stress {
    const Task *task;
    Rank rank; /* of each thread its own */
    atomic_bool *stop;
    long calls;
} Stress;

/* Products of one rank, one after another. */
static void *load_gpu(void *user)
{
    Stress *s = user;
    Device d;
    iso_tensor tensors[TEST_TENSORS];
    iso_run run;
    gpu_open_thread();
    device_prepare(&d, &s->rank, NULL, "gate_up", LOAD_ROWS);
    device_views(&d, d.base, LOAD_ROWS, tensors, &run);
    for (; !*s->stop; s->calls++) {
        must(iso_op_run(d.base, tensors, d.n, &run), "gate_up");
        if (s->calls % 8 == 0)
            gpu_sync();
    }
    device_release(&d);
    gpu_close_thread();
    return NULL;
}

/* As many groups on every rank, each of which does something. */
static void *come_and_go(void *user)
{
    Stress *s = user;
    Device d;
    char where[128], layout[16];
    gpu_open_thread();
    snprintf(where, sizeof where, "file:%s/second", s->task->folder);
    snprintf(layout, sizeof layout, "tp%d", s->rank.ranks);
    s->rank.where = where;
    for (; s->calls < GROUPS; s->calls++) {
        iso_group *group = rank_group(&s->rank, 30, BYTES, s->calls % 2 ? 1 : SIZE_MAX);
        device_prepare(&d, &s->rank, group, "o_proj", ROWS);
        device_check(&d, op_of(s->rank.module, "o_proj", layout, s->rank.rank), ROWS);
        device_release(&d);
        iso_group_destroy(group);
    }
    gpu_close_thread();
    return NULL;
}

static int stress_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    static const char *const ops[] = {"o_proj", "down"};
    Rank rank = open_rank(task, r);
    atomic_bool stop = false;
    Stress load = {task, rank, &stop, 0}, groups = {task, rank, &stop, 0};
    pthread_t threads[2];
    char layout[2][16];
    iso_group *group = rank_group(&rank, 30, BYTES, 0);
    snprintf(layout[0], sizeof layout[0], "tp%d", ranks);
    snprintf(layout[1], sizeof layout[1], "tp%d_sp", ranks);
    if (pthread_create(&threads[0], NULL, load_gpu, &load) ||
        pthread_create(&threads[1], NULL, come_and_go, &groups))
        die("no threads for rank %d", r);
    for (int i = 0; i < 4; i++) {
        Device d;
        device_prepare(&d, &rank, group, ops[i / 2], ROWS);
        repeat(&rank, &d, layout[i % 2], ROWS, task->repeats > 0 ? task->repeats : REPEATS);
        device_release(&d);
    }
    pthread_join(threads[1], NULL);
    stop = true;
    pthread_join(threads[0], NULL);
    iso_group_destroy(group);
    rank.differ += groups.rank.differ;
    if (r == 0)
        printf("stress of %d GPUs: %ld products beside, %ld groups came and went: %llu differ\n",
               ranks, load.calls, groups.calls, (unsigned long long)rank.differ);
    return rank.differ != 0;
}

int run_stress(Task *task)
{
    char folder[128];
    snprintf(folder, sizeof folder, "%s/second", task->folder);
    if (mkdir(folder, 0700))
        die("no folder for the second group");
    int failed = run_ranks(task, stress_rank);
    rmdir(folder);
    return failed;
}
