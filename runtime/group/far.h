/* Ranks whose memory cannot be reached: NCCL carries bytes of their slots, and of flags.
 * Ownership: a Far owns its communicator and the thread that watches it; words, slots and flags are
 * the plane's. */
#ifndef ISO_FAR_H
#define ISO_FAR_H

#include "group.h"
#include "nccl.h"

/* In host memory that the device sees. A flag is an epoch above a tag. */
typedef struct Word {
    volatile uint32_t lost[GROUP_RANKS + 1]; /* as store_mirror writes them */
    volatile uint64_t report, found;     /* the first failure, as group_ptx.h says: by a kernel, by
                                            the watcher */
    volatile uint64_t begun, ended;      /* flags of the exchange that runs, of the last one done */
} Word;

typedef struct FarConfig {
    const PlaneConfig *plane;
    const Driver *driver;
    Word *word;
    bool far[GROUP_RANKS];
    CuAddress own_flag, flags; /* of this rank to send, of each rank as it came */
} FarConfig;

typedef struct Far Far;

/* Collective, with a time limit. */
iso_status far_open(Far **far, const FarConfig *config);
/* `failed`: the others may not come. */
void far_close(Far *far, bool failed);

/* Queues the flag and the parcels to and from each far rank. Where one does not come within the
 * time limit, or is lost, the report says so and what is queued ends all the same. */
iso_status far_exchange(Far *far, const Parcels *parcels, char *const slots[GROUP_RANKS],
                        CuStream stream);

#endif
