/* Ranks with a GPU each, of which one dies or stops at a random moment of a run. */
#include "task.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 64, KILLS = 10, HANGS = 3, HANG_TIMEOUT = 2 };

typedef struct Trial {
    Task *task;
    int number, wrong; /* the rank that dies or stops */
    iso_status want;
    double timeout;
} Trial;

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds,
                            (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* ---- the ranks ---- */

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

static void await_ready(const Task *task)
{
    for (int r = 0; r < task->ranks; r++) {
        char name[64];
        ready_name(task, r, name);
        for (int i = 0; i < 3000 && unlink(name); i++)
            nap(0.01);
    }
}

static void run_graph(void *user, void *stream)
{
    Repeat *again = user;
    again->run.stream = stream;
    for (int i = 0; i < 3; i++)
        must(iso_op_run_group(again->d->group, again->op, again->tensors, again->d->n, &again->run),
             "iso_op_run_group");
}

/* Every second trial replays a graph. */
static iso_status run_once(const Trial *trial, Repeat *again, void *graph)
{
    iso_status status = ISO_OK;
    if (trial->number % 2)
        gpu_replay(graph);
    else
        status = iso_op_run_group(again->d->group, again->op, again->tensors, again->d->n,
                                  &again->run);
    gpu_sync();
    return status ? status : iso_group_status(again->d->group);
}

static int learnt(const Trial *trial, int rank, iso_status status, const char *op)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d ", trial->wrong);
    bool good = status == trial->want && strstr(iso_last_error(), name) &&
                strstr(iso_last_error(), op);
    if (!good)
        printf("  FAULT: rank %d wanted status %d of %s, got %d: %s\n", rank, trial->want, name,
               status, iso_last_error());
    return !good;
}

static int trial_rank(int r, int ranks, void *user)
{
    const Trial *trial = user;
    const Task *task = trial->task;
    char layout[16];
    Device d;
    Repeat again;
    Rank rank = open_rank(task, r);
    iso_group *group =
        rank_group(&rank, trial->timeout, 1 << 20, trial->number / 2 % 2 ? 1 : SIZE_MAX);
    snprintf(layout, sizeof layout, "tp%d", ranks);
    device_prepare(&d, &rank, group, "residual", ROWS);
    repeat_open(&again, &d, layout, ROWS);
    void *graph = gpu_record(run_graph, &again);
    iso_status status = ISO_OK;
    for (int i = 0; !status; i++) {
        if (i == 10)
            say_ready(task, r);
        status = run_once(trial, &again, graph);
    }
    int bad = learnt(trial, r, status, "residual");
    gpu_forget(graph);
    iso_group_destroy(group);
    return bad;
}

/* ---- the trials ---- */

/* Seconds from the signal until every other rank has ended, which is after it learnt the status. */
static int run_trial(Trial *trial, int signal, double *seconds)
{
    Task *task = trial->task;
    int pids[GROUP_RANKS];
    start_ranks(task->ranks, trial_rank, trial, pids);
    await_ready(task);
    nap(0.02 + rand() % 500 / 1000.0);
    double sent = clock_seconds();
    kill(pids[trial->wrong], signal);
    int stopped = pids[trial->wrong], others = 0, failed = 0;
    for (int r = 0; r < task->ranks; r++)
        if (r != trial->wrong)
            pids[others++] = pids[r];
    failed = end_ranks(others, pids, -1);
    *seconds = clock_seconds() - sent;
    kill(stopped, SIGKILL);
    waitpid(stopped, NULL, 0);
    return failed;
}

static int run_trials(Task *task, const char *what, int signal, int times, Trial trial)
{
    int failed = 0;
    double most = 0, seconds;
    srand((unsigned)getpid());
    times = task->repeats > 0 ? task->repeats : times;
    for (int i = 0; i < times; i++) {
        trial.number = i;
        trial.wrong = (i + 1) % task->ranks;
        failed += run_trial(&trial, signal, &seconds);
        printf("  rank %d %s: the others had ended after %.2f s\n", trial.wrong, what, seconds);
        most = seconds > most ? seconds : most;
    }
    printf("%d times one of %d ranks %s: %s; all others had ended after at most %.2f s\n", times,
           task->ranks, what, failed ? "FAILED" : "each other learnt which and in what op", most);
    return failed != 0;
}

int run_kills(Task *task)
{
    return run_trials(task, "was killed", SIGKILL, KILLS,
                      (Trial){.task = task, .want = ISO_RANK_LOST, .timeout = 10});
}

int run_hangs(Task *task)
{
    return run_trials(task, "stopped", SIGSTOP, HANGS,
                      (Trial){.task = task, .want = ISO_RANK_TIMEOUT, .timeout = HANG_TIMEOUT});
}

/* ---- ranks that have loaded or run something else ---- */

static int other_weights(int r, int ranks, void *user)
{
    const Trial *trial = user;
    iso_group *group;
    uint8_t weights[32] = {7};
    Rank rank = open_rank(trial->task, r);
    iso_group_config config = {.size = sizeof config,
                               .rank = r,
                               .ranks = ranks,
                               .bootstrap = rank.where,
                               .timeout = trial->timeout,
                               .weights = weights};
    weights[5] = r == trial->wrong;
    iso_status status = iso_group_create(&group, rank.module, &config);
    return learnt(trial, r, status, "");
}

static int other_op(int r, int ranks, void *user)
{
    const Trial *trial = user;
    char layout[16];
    Device d;
    Repeat once;
    Rank rank = open_rank(trial->task, r);
    iso_group *group = rank_group(&rank, trial->timeout, 1 << 20, 0);
    snprintf(layout, sizeof layout, "tp%d", ranks);
    device_prepare(&d, &rank, group, r == trial->wrong ? "sixteen" : "residual", ROWS);
    repeat_open(&once, &d, layout, ROWS);
    iso_status status = iso_op_run_group(group, once.op, once.tensors, d.n, &once.run);
    gpu_sync();
    if (!status)
        status = iso_group_status(group);
    int bad = r == trial->wrong ? status != ISO_DISORDER : learnt(trial, r, status, "residual");
    iso_group_destroy(group);
    return bad;
}

int run_mismatches(Task *task)
{
    Trial weights = {.task = task, .wrong = 1, .want = ISO_WEIGHTS, .timeout = 10};
    Trial op = {.task = task, .wrong = 1, .want = ISO_DISORDER, .timeout = 10};
    int pids[GROUP_RANKS];
    start_ranks(task->ranks, other_weights, &weights, pids);
    int failed = end_ranks(task->ranks, pids, -1);
    start_ranks(task->ranks, other_op, &op, pids);
    failed += end_ranks(task->ranks, pids, -1);
    printf("of %d ranks one has other weights, one runs another op: %s\n", task->ranks,
           failed ? "FAILED" : "each rank learns who");
    return failed != 0;
}
