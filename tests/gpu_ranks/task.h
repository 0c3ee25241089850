/* What the modes of gpu_ranks share: where ranks meet, and one op that is called again and again.
 * Ownership: strings and modules are the caller's. */
#ifndef TEST_GPU_TASK_H
#define TEST_GPU_TASK_H

#include "device.h"
#include "iso_model.h"

typedef struct Task {
    const char *path, *where, *folder;
    int64_t most;
    int ranks;                /* a process and a GPU each */
    int island;               /* ranks that reach each other's memory; 0: all */
    int repeats;              /* -1: as many as the mode does by itself */
    const iso_module *module; /* virtual: loaded once */
    pthread_barrier_t together;
} Task;

typedef struct Repeat {
    Device *d;
    const iso_op *op;
    iso_tensor tensors[TEST_TENSORS];
    iso_run run;
} Repeat;

/* This process takes the rank's GPU and loads the task's cubin there. */
Rank open_rank(const Task *task, int rank);
/* Runs `work` with a process per rank; 0 if it returned 0 everywhere. */
int run_ranks(Task *task, RankWork work);
/* Most bytes that any op moves in a layout of that many ranks. */
size_t group_bytes(const iso_module *module, int ranks, int64_t rows);

/* The op of the rank in a layout, and the tensors of its calls. */
void repeat_open(Repeat *r, Device *d, const char *layout, int64_t rows);
/* Calls it that often, then replays a graph of three as often, and compares every result. */
void repeat(Rank *rank, Device *d, const char *layout, int64_t rows, int times);

/* Launches of the model that had two calls. */
int64_t launches_paired(const iso_model *model);

/* Each returns 0 if all went as it should. */
int run_stress(Task *task);
int run_kills(Task *task);
int run_hangs(Task *task);
int run_mismatches(Task *task);
int run_comm(Task *task);
int run_model(Task *task);
int run_pairs(Task *task);
int run_speed(Task *task);

#endif
