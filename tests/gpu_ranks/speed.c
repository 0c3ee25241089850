/* What o_proj's collective costs on several GPUs: the call over the group less the product. */
#include "task.h"

#include <stdio.h>

typedef struct Timed {
    Repeat repeat;
    void *roots;
} Timed;

enum { CALLS = 10, REPLAYS = 20, N_SIZES = 15 };

/* Microseconds of a call; one-shot, two-shot and the default in a graph. */
typedef struct Line {
    int64_t rows;
    float part, whole[3], part_called, whole_called;
} Line;

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

static void measure(Timed *timed, Line *line, int way)
{
    line->part = gpu_graph(timed_part, timed, REPLAYS) / CALLS;
    line->whole[way] = gpu_graph(timed_group, timed, REPLAYS) / CALLS;
    line->part_called = gpu_microseconds(timed_part, timed, REPLAYS) / CALLS;
    line->whole_called = gpu_microseconds(timed_group, timed, REPLAYS) / CALLS;
    must(iso_group_status(timed->repeat.d->group), "iso_group_status");
}

/* 8 KiB of roots, then twice as many, to 128 MiB. */
static int sizes(int64_t columns, Line *lines)
{
    int n = 0;
    for (int64_t bytes = 8 << 10; bytes <= 128 << 20 && n < N_SIZES; bytes *= 2)
        if (bytes % (columns * 4) == 0)
            lines[n++] = (Line){.rows = bytes / (columns * 4)};
    return n;
}

static int speed_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    static const size_t ways[] = {SIZE_MAX, 1, 0};
    char layout[16];
    iso_tensor y;
    Line lines[N_SIZES];
    Rank rank = open_rank(task, r);
    must(iso_op_tensor(op_of(rank.module, "o_proj", "tp1", 0), ISO_PHASE_RUN, 1, 3, &y, NULL),
         "o_proj");
    int n = sizes(y.shape[1], lines);
    int64_t most = lines[n - 1].rows;
    size_t bytes = group_bytes(rank.module, ranks, most);
    snprintf(layout, sizeof layout, "tp%d", ranks);
    for (int way = 0; way < 3; way++) {
        iso_group *group = rank_group(&rank, 10, bytes, ways[way]);
        Device d;
        device_prepare(&d, &rank, group, "o_proj", most);
        for (int i = 0; i < n; i++) {
            Timed timed = {.roots = group->plane->scratch};
            repeat_open(&timed.repeat, &d, layout, lines[i].rows);
            measure(&timed, &lines[i], way);
        }
        device_release(&d);
        iso_group_destroy(group);
    }
    for (int i = 0; i < n && r == 0; i++) {
        const Line *l = &lines[i];
        printf("  %9lld bytes of roots: in a graph: product %6.1f us, the rest one-shot %6.1f, "
               "two-shot %6.1f, default %6.1f; called: product %6.1f, default whole %6.1f\n",
               (long long)(l->rows * y.shape[1] * 4), (double)l->part,
               (double)(l->whole[0] - l->part), (double)(l->whole[1] - l->part),
               (double)(l->whole[2] - l->part), (double)l->part_called, (double)l->whole_called);
    }
    return 0;
}

int run_speed(Task *task)
{
    return run_ranks(task, speed_rank);
}
