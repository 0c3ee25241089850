/* Groups: the ranks of a layout, run as one. Roots and tensors move between them; every sum is
 * finished by the contract's own tree, so the bits are those of one rank.
 *
 * One process has one rank, or several threads of a process have one each. Every rank calls the
 * same ops with the same layout and row count in the same order.
 *
 * Ownership: a group lives until iso_group_destroy; its module must outlive it.
 * Threads: one thread at a time may use a group. Calls on one group go to one stream, or to streams
 * that the caller orders. Threads that have a rank each on one GPU must not queue so many launches
 * that the driver makes one of them wait: it would wait with the others locked out; and the GPU
 * must have a queue for each (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default, at most 32). While one of
 * them is in a call none may do what waits for the whole GPU, as allocating, freeing and loading a
 * module do, and a kernel's first launch where modules are loaded lazily (so run them with
 * CUDA_MODULE_LOADING=EAGER): it would wait for the call, which waits for it.
 * Calls of two groups on streams that do not wait for each other run side by side; a graph that was
 * captured while there was one group is not to be replayed beside another's calls.
 * No call but create and destroy allocates, waits on the host for another rank (ISO_CUDA), or
 * synchronises; iso_op_run_group can be captured in a CUDA graph. With ISO_CPU a call returns when
 * it is done, and so waits for the other ranks.
 * Faults: where a rank dies, hangs past the time limit, or runs something else, every other rank
 * gets ISO_RANK_LOST, ISO_RANK_TIMEOUT or ISO_DISORDER, and iso_last_error names the rank and the
 * op. With ISO_CUDA that is from iso_group_status once the stream is done, and from the next call.
 * The results of a failed call are not to be used; a group that failed stays failed. */
#ifndef ISO_GROUP_H
#define ISO_GROUP_H

#include "iso.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct iso_group iso_group;

/* Zero-initialise, set `size`, then what differs from the default. */
typedef struct iso_group_config {
    size_t size;            /* sizeof(iso_group_config) */
    int rank, ranks;        /* ranks 0: both from $RANK and $WORLD_SIZE, as torchrun sets them */
    const char *bootstrap;  /* "tcp://HOST:PORT", rank 0 listens there; "file:FOLDER", for one host;
                               NULL: $MASTER_ADDR, port $ISO_GROUP_PORT, else $MASTER_PORT + 1 */
    double timeout;         /* seconds that a rank may be late; 0: 60, more than ranks differ by
                               where each loads its part of a checkpoint, and so little that a rank
                               that hangs is named, and the op, before long. It counts from when
                               the others begin to wait */
    size_t bytes;           /* most that one op moves (iso_group_bytes); 0: 64 MiB. A rank keeps
                               four such buffers for its peers and one for itself on a GPU, two and
                               one with ISO_CPU */
    const uint8_t *weights; /* NULL, or 32 bytes that must be equal on all ranks */
    size_t two_shot;        /* bytes of one rank's roots times its peers above which each rank joins
                               a share of the rows and passes on results; 0: as measured; moves no
                               bit */
    int island;             /* ranks of unequal islands do not use each other's memory, nor do those
                               of other hosts: bytes go through NCCL ($ISO_NCCL, else
                               libnccl.so.2), which moves no bit. A graph that holds calls of a
                               group that failed is not to be replayed then */
    void *nccl_comm;        /* ISO_CUDA: an ncclComm_t of this group's ranks, instead of rank, ranks
                               and bootstrap. Used in iso_group_create alone, on the legacy stream
                               of the current context */
} iso_group_config;

/* Collective: returns when every rank has come. ISO_BOOTSTRAP, ISO_RANK_TIMEOUT, ISO_RANK_LOST,
 * ISO_FINGERPRINT, ISO_WEIGHTS, ISO_DRIVER, ISO_OUT_OF_MEMORY, ISO_UNSUPPORTED (GPUs without peer
 * access). *group is NULL on failure. */
iso_status iso_group_create(iso_group **group, const iso_module *module,
                            const iso_group_config *config);
/* Collective too, unless the group has failed: no work on it may be running, and graphs that hold
 * its calls are to be destroyed before. NULL is ignored. */
void iso_group_destroy(iso_group *group);

/* What iso_group_config.bytes must be for this op at this many global rows. */
iso_status iso_group_bytes(const iso_op *op, int64_t rows, size_t *bytes);
/* The same of an `attend` whose keys ranks share, by the keys of one sequence at most. */
iso_status iso_group_bytes_of_keys(const iso_op *op, int64_t rows, int64_t most_keys,
                                   size_t *bytes);
/* Shape, dtype and contiguous strides of a tensor as this rank holds it, which is how
 * iso_op_run_group takes it, and where that begins in the whole tensor. */
iso_status iso_op_held(const iso_op *op, int64_t rows, int index, iso_tensor *tensor,
                       int64_t origin[ISO_MAX_AXES]);

/* Runs an op over the group, joins and movement included. The op's layout has as many ranks as the
 * group, the op is this rank's. Tensors are as iso_op_held says. */
iso_status iso_op_run_group(iso_group *group, const iso_op *op, const iso_tensor *tensors, int n,
                            const iso_run *run);

/* ISO_OK, or how the group failed; does not wait. */
iso_status iso_group_status(iso_group *group);

#ifdef __cplusplus
}
#endif
#endif
