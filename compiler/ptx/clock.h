/* What somebody knows of all warps and engines of a cluster, and of their lanes: for each the epoch
 * up to which its accesses lie before what follows. Kinds: what is ordered so; what of it a
 * fence.proxy.async has shown to engines and products; what of it a fence has made done for other
 * CTAs. The last two are of use only where the first says so too.
 * Ownership: everything lives in the arena of the launch. */
#ifndef ISOC_PTX_CLOCK_H
#define ISOC_PTX_CLOCK_H

#include "machine.h"

typedef enum PtxKind { PTX_SEEN, PTX_SHOWN, PTX_MADE_DONE, PTX_KINDS } PtxKind;

typedef struct PtxClock {
    u32 threads; /* warps and engines */
    u32 *all;    /* by kind and thread: of all its lanes */
    u32 **lane;  /* likewise where lanes of it are known further: by lane, then the greatest; NULL
                    of a thread, or at all: none is */
    bool uneven; /* some are */
} PtxClock;

PtxClock *ptx_clock_new(Arena *arena, u32 threads);
/* Of everybody up to an epoch. */
void ptx_clock_set(PtxClock *clock, u32 epoch);
void ptx_clock_join(PtxClock *to, const PtxClock *from, Arena *arena);
/* A kind becomes what is seen now, where that is more. */
void ptx_clock_promote(PtxClock *clock, PtxKind kind, Arena *arena);
/* These lanes of the thread are known up to the epoch. */
void ptx_clock_raise(PtxClock *clock, PtxKind kind, u32 thread, u32 lanes, u32 epoch, Arena *arena);

/* Whether some lane of a thread, or this one, is known further than all of them. */
bool ptx_clock_some(const PtxClock *clock, PtxKind kind, u32 thread, int lane, u32 epoch);

static inline u32 ptx_clock_of(const PtxClock *c, PtxKind kind, u32 thread)
{
    return c->all[(u32)kind * c->threads + thread];
}

static inline bool ptx_clock_knows(const PtxClock *c, PtxKind kind, u32 thread, int lane, u32 epoch)
{
    return epoch <= ptx_clock_of(c, kind, thread) ||
           (c->uneven && ptx_clock_some(c, kind, thread, lane, epoch));
}

#endif
