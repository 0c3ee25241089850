/* The kernels of a group, as PTX that the driver compiles when the group is opened.
 * Ownership: static text.
 *
 * iso_group_sync(peers, flags, state, lost, gone, report, timeout, ranks, tag, early), one block
 * with a thread per rank:
 *   peers    u64[ranks]: where each rank keeps the flag that this rank sets
 *   flags    u64[ranks]: the flags that the others set here, epoch above tag
 *   state    u32[2]: the epoch of the last sync; whether one failed
 *   lost     u32[ranks] in host memory: not 0 once a rank is gone
 *   gone     u32 in host memory: 1 + the first rank that is gone: what others wait for then may
 *            never come, so they wait a second more
 *   report   u64 in host memory: the first failure is written there, as the constants below say
 *   timeout  nanoseconds
 *   early    when what is launched next with programmatic stream serialization may take its places:
 *            SYNC_AFTER all that, SYNC_ONCE the others have come, or SYNC_BEFORE
 * After a failure no further sync tells or waits.
 *
 * iso_group_mark(state, flag, word, tag, ahead), one thread: the epoch of the last sync, and
 * `ahead` more, above the tag, to `flag` and to `word` in host memory.
 *
 * iso_group_pick(pick), any number of blocks of any size: a DevicePick given by value.
 *
 * iso_group_copy(copies), any x by n blocks of any size: DeviceCopy 0 to n - 1 of a list given by
 * value. What they write must not overlap what they read. */
#ifndef ISO_GROUP_PTX_H
#define ISO_GROUP_PTX_H

#include <stdint.h>

extern const char group_ptx[];

/* Rows of `width` units of 1 << log bytes, log 1 to 4, `units` in all; addresses and pitches in
 * bytes, of whole units. */
typedef struct DeviceCopy {
    uint64_t to, from, to_pitch, from_pitch;
    uint32_t units, width, log, unused;
} DeviceCopy;

enum { DEVICE_COPIES = 32 };

/* A Pick (group.h) of units of 1 << log bytes, `units` in all, `width` of one slot. */
typedef struct DevicePick {
    uint64_t to, from, index;
    int64_t to_token, to_slot, from_token, from_slot, index_token, index_slot;
    uint32_t units, width, slots, log, all, lo, hi, unused;
} DevicePick;

/* `early` of a sync. */
enum { SYNC_AFTER = 0, SYNC_ONCE = 1, SYNC_BEFORE = 2 };

/* The kind in a report, kind << 56 | rank << 32 | tag. */
enum { SYNC_LOST = 1, SYNC_LATE = 2, SYNC_DISORDER = 3 };

#endif
