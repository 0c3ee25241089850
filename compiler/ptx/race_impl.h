/* What race.c (who knows what) and touch.c (who touched what) share.
 * Ownership: as in race.h. */
#ifndef ISOC_PTX_RACE_IMPL_H
#define ISOC_PTX_RACE_IMPL_H

#include "race.h"

/* A copy of a clock, which holds as long as nothing has changed. */
typedef struct PtxCopied {
    PtxClock *clock;
    int lane;
    u32 changes, epoch;
} PtxCopied;

struct PtxTimes {
    PtxClock *seen;            /* by all lanes, of their own warp too */
    PtxClock *lane[PTX_WARP];  /* by one, */
    u32 apart;                 /* if it has seen more than that */
    u32 epoch;                 /* of what is done now */
    u32 touched[PTX_WARP];     /* a lane's last access, */
    u32 by_warp, by_product;   /* the warp's and its products', */
    u32 latest;                /* and of these the last */
    u32 changes;               /* of what has been seen */
    PtxCopied now, released;
};

/* The last store to some bytes, and the last loads of a warp, by one lane or several. */
typedef struct PtxStored {
    u32 epoch, line;
    u16 thread;
    u8 lane;
} PtxStored;

typedef struct PtxLoaded {
    u32 epoch, lanes, line; /* no lanes: a product */
} PtxLoaded;

/* Of one CTA; its threads are its warps, then its engine, counted through the cluster. */
struct PtxRaces {
    u32 threads, own; /* of the cluster; the CTA's first */
    u32 engine_epoch;
    u32 chunks;
    u8 *unit;                        /* by chunk: bytes that are told apart */
    PtxStored *stored, *stored_fine; /* by chunk; by byte, where the unit is less */
    PtxLoaded *loaded, *loaded_fine; /* likewise, by warp of the CTA */
    PtxLoaded *added;                /* by word and warp; NULL before the first addition */
    PtxClock *bar[PTX_BARRIERS];     /* what arrivals there have released */
    PtxClock *cluster;               /* what arrivals at the cluster's barrier have released */
    PtxClock *sum;                   /* scratch */
};

enum { PTX_CHUNK = 16 };

static inline u32 ptx_thread_of(const PtxCta *c, const PtxWarp *w)
{
    return c->races->own + (u32)w->index;
}

static inline u32 ptx_engine_of(const PtxCta *c)
{
    return c->races->own + (u32)c->n_warps;
}

/* What a lane has seen, or all of them. */
static inline const PtxClock *ptx_seen_by(const PtxWarp *w, int lane)
{
    const struct PtxTimes *t = w->times;
    return lane < PTX_WARP && t->apart >> lane & 1 ? t->lane[lane] : t->seen;
}

#endif
