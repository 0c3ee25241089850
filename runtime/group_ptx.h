/* The kernel of a sync, as PTX that the driver compiles when a group is opened.
 * Ownership: static text.
 *
 * iso_group_sync(peers, flags, state, lost, report, timeout, ranks, tag), one block with a thread
 * per rank:
 *   peers    u64[ranks]: where each rank keeps the flag that this rank sets
 *   flags    u64[ranks]: the flags that the others set here, epoch above tag
 *   state    u32[2]: the epoch of the last sync; whether one failed
 *   lost     u32[ranks] in host memory: not 0 once a rank is gone
 *   report   u64 in host memory: the first failure is written there, as the constants below say
 *   timeout  nanoseconds
 * After a failure no further sync tells or waits. */
#ifndef ISO_GROUP_PTX_H
#define ISO_GROUP_PTX_H

extern const char group_ptx[];

/* report = kind << 56 | rank << 32 | tag */
enum { SYNC_LOST = 1, SYNC_LATE = 2, SYNC_DISORDER = 3 };

#endif
