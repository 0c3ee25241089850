/* One rank of a group on a GPU: an op's whole tensors there, and runs compared with one rank's.
 * Ownership: a Device owns its buffers; freeing waits for the GPU, so ranks that share one free
 * together. */
#ifndef TEST_GPU_RANKS_H
#define TEST_GPU_RANKS_H

#include "gpu.h"
#include "ranks.h"

#include <pthread.h>

typedef struct Rank {
    const iso_module *module;
    const char *where;
    int rank, ranks;
    int island; /* ranks that reach each other's memory; 0: all */
    pthread_barrier_t *together; /* of the threads of one process, else NULL */
    uint64_t runs, compared, differ;
} Rank;

typedef struct Device {
    Rank *rank;
    iso_group *group;
    const MfOp *op;
    const iso_op *base;
    int n, params;
    int64_t most;
    iso_tensor tensor[TEST_TENSORS];                          /* parameters, and a run's results */
    Whole host;                                             /* indices, where the host has them */
    DevicePtr expected[TEST_TENSORS], masked[TEST_TENSORS]; /* of results; masked: this rank's */
    DevicePtr own[TEST_TENSORS]; /* parameters with slots of ranks, this rank's; NULL: none yet */
    size_t bytes[TEST_TENSORS];
    DevicePtr workspace;
    size_t workspace_bytes;
} Device;

void rank_meets(const Rank *rank);
iso_group *rank_group(const Rank *rank, double timeout, size_t bytes, size_t two_shot);
/* Random parameters, results of one rank for `most` rows. */
void device_prepare(Device *d, Rank *rank, iso_group *group, const char *op, int64_t most);
/* Parameters and expected results from the host. */
void device_load(Device *d, const Whole *whole);
void device_release(Device *d);

/* What one run of the rank's op takes: of slots that ranks share, its own. */
void device_views(Device *d, const iso_op *op, int64_t rows, iso_tensor *tensors,
                  iso_run *run);
/* Fills `masked`: the rank's part of the expected results amid poison. */
void device_mask(Device *d, const iso_op *op, int64_t rows, const iso_tensor *tensors);
void device_poison(const Device *d);
/* Runs, waits, compares every bit, outside of the rank's part too. */
void device_check(Device *d, const iso_op *op, int64_t rows);

#endif
