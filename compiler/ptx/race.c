/* Clocks of warps and engines, and the last accesses to each two bytes of shared memory. A clock is
 * three: what is known of the threads, what of the warps' stores a fence has told to the engines,
 * and what of them a fence has made done for other CTAs. */
#include "race.h"

#include <stdio.h>
#include <string.h>

/* Of one CTA; its threads are its warps, then its engine, counted through the cluster. */
struct PtxRaces {
    u32 threads, own; /* of the cluster; the CTA's first */
    u32 engine_epoch;
    u32 granules;
    u32 *write_epoch; /* by granule */
    u16 *write_thread;
    u32 *read;        /* by granule and warp of the CTA: epoch of the last one */
    u32 *bar[PTX_BARRIERS]; /* what arrivals there have released */
    u32 *cluster;     /* what arrivals at the cluster's barrier have released */
};

enum { GRANULE = 2, CLOCKS = 3 };

static u32 *new_clock(const PtxCta *c)
{
    return arena_array(c->arena, u32, CLOCKS * c->races->threads);
}

/* All clocks of n threads. */
static void join(u32 *to, const u32 *from, u32 n)
{
    for (u32 k = 0; from && k < CLOCKS * n; k++)
        to[k] = to[k] > from[k] ? to[k] : from[k];
}

static u32 thread_of(const PtxCta *c, const PtxWarp *w)
{
    return c->races->own + (u32)w->index;
}

/* What follows is later than what others know of. */
static void tick(PtxCta *c, PtxWarp *w)
{
    w->clock[thread_of(c, w)]++;
    w->snapshot = NULL;
}

static void learn(PtxCta *c, PtxWarp *w, const u32 *from)
{
    join(w->clock, from, c->races->threads);
    w->snapshot = NULL;
}

/* ---- starting */

static void open_races(PtxCta *c, u32 threads)
{
    c->races = arena_new_of(c->arena, PtxRaces);
    c->races->threads = threads;
    c->races->granules = c->shared_end / GRANULE + 8;
    c->races->write_epoch = arena_array(c->arena, u32, c->races->granules);
    c->races->write_thread = arena_array(c->arena, u16, c->races->granules);
    c->races->read = arena_array(c->arena, u32, (u64)c->races->granules * (u64)c->n_warps);
    for (int b = 0; b < PTX_BARRIERS; b++)
        c->races->bar[b] = new_clock(c);
    c->races->cluster = new_clock(c);
    for (int i = 0; i < c->n_warps; i++)
        c->warps[i].clock = new_clock(c);
}

static void start_one(PtxCta *c, u32 threads, u32 own)
{
    if (!c->races)
        open_races(c, threads);
    PtxRaces *r = c->races;
    r->own = own;
    r->engine_epoch = 0;
    memset(r->write_epoch, 0, sizeof *r->write_epoch * r->granules);
    memset(r->read, 0, sizeof *r->read * r->granules * (size_t)c->n_warps);
    memset(r->cluster, 0, sizeof *r->cluster * CLOCKS * threads);
    for (int b = 0; b < PTX_BARRIERS; b++)
        memset(r->bar[b], 0, sizeof *r->bar[b] * CLOCKS * threads);
    for (int i = 0; i < c->n_warps; i++) {
        memset(c->warps[i].clock, 0, sizeof *c->warps[i].clock * CLOCKS * threads);
        c->warps[i].snapshot = NULL;
        tick(c, &c->warps[i]); /* epoch 0 is no access */
    }
}

void ptx_race_start(PtxCta *const *peer, int n)
{
    u32 threads = 0, own = 0;
    for (int k = 0; k < n; k++)
        threads += (u32)peer[k]->n_warps + 1;
    for (int k = 0; k < n && peer[k]->launch->terms; k++) {
        start_one(peer[k], threads, own);
        own += (u32)peer[k]->n_warps + 1;
    }
}

/* ---- accesses */

static bool race(PtxCta *c, const PtxInst *i, u64 address, const char *what, u32 thread)
{
    u32 own = c->races->own, engine = own + (u32)c->n_warps;
    char who[32] = "a copy";
    if (thread >= own && thread < engine)
        snprintf(who, sizeof who, "warp %u", thread - own);
    return ptx_fault(c, i, "shared memory at %llu is also %s by %s, and no barrier is between",
                     (unsigned long long)address, what, who);
}

/* A warp stored to these bytes, and an engine or a product takes them with no fence between. */
static bool unfenced(const PtxRaces *r, u64 granule, const u32 *clock, u32 by, bool is_engine)
{
    return r->write_epoch[granule] && !is_engine &&
           r->write_epoch[granule] > clock[r->threads + by];
}

static bool is_engine(const PtxCta *c, u32 thread)
{
    return thread < c->races->own || thread >= c->races->own + (u32)c->n_warps;
}

static bool no_fence(PtxCta *c, const PtxInst *i, u64 address, u32 by)
{
    return ptx_fault(c, i, "shared memory at %llu was stored to by warp %u, and no "
                           "fence.proxy.async is between",
                     (unsigned long long)address, by - c->races->own);
}

/* Accesses by `thread`, which knows of the others what `clock` says, in `epoch` of its own. */
static bool reads(PtxCta *c, const PtxInst *i, u64 address, u32 bytes, const u32 *clock,
                  u32 thread, u32 epoch)
{
    PtxRaces *r = c->races;
    for (u64 g = address / GRANULE; g * GRANULE < address + bytes && g < r->granules; g++) {
        u32 by = r->write_thread[g];
        if (r->write_epoch[g] && by != thread && r->write_epoch[g] > clock[by])
            return race(c, i, g * GRANULE, "written", by);
        if (i->op == PTX_WGMMA && unfenced(r, g, clock, by, is_engine(c, by)))
            return no_fence(c, i, g * GRANULE, by);
        r->read[g * (u64)c->n_warps + (thread - r->own)] = epoch;
    }
    return true;
}

static bool writes(PtxCta *c, const PtxInst *i, u64 address, u32 bytes, const u32 *clock,
                   u32 thread, u32 epoch)
{
    PtxRaces *r = c->races;
    for (u64 g = address / GRANULE; g * GRANULE < address + bytes && g < r->granules; g++) {
        u32 by = r->write_thread[g];
        const u32 *read = &r->read[g * (u64)c->n_warps];
        if (r->write_epoch[g] && by != thread && r->write_epoch[g] > clock[by])
            return race(c, i, g * GRANULE, "written", by);
        if (is_engine(c, thread) && unfenced(r, g, clock, by, is_engine(c, by)))
            return no_fence(c, i, g * GRANULE, by);
        for (u32 w = 0; w < (u32)c->n_warps; w++)
            if (read[w] > clock[r->own + w] && r->own + w != thread)
                return race(c, i, g * GRANULE, "read", r->own + w);
        r->write_thread[g] = (u16)thread;
        r->write_epoch[g] = epoch;
    }
    return true;
}

bool ptx_race_read(PtxCta *c, PtxWarp *w, const PtxInst *i, u64 address, u32 bytes,
                   const u32 *since)
{
    u32 own = c->races ? thread_of(c, w) : 0;
    return !c->races || reads(c, i, address, bytes, since ? since : w->clock, own, w->clock[own]);
}

bool ptx_race_write(PtxCta *c, PtxWarp *w, const PtxInst *i, u64 address, u32 bytes,
                    const u32 *since)
{
    u32 own = c->races ? thread_of(c, w) : 0;
    return !c->races || writes(c, i, address, bytes, since ? since : w->clock, own, w->clock[own]);
}

const u32 *ptx_race_now(PtxCta *c, PtxWarp *w)
{
    if (!c->races)
        return NULL;
    if (!w->snapshot) {
        u32 *copy = new_clock(c);
        memcpy(copy, w->clock, sizeof *copy * CLOCKS * c->races->threads);
        w->snapshot = copy;
    }
    return w->snapshot;
}

/* ---- the engine */

static u32 engine_of(const PtxCta *by)
{
    return by->races->own + (u32)by->n_warps;
}

bool ptx_race_engine(PtxCta *c, PtxCta *by, const PtxInst *i, u64 address, u32 bytes,
                     const u32 *begun)
{
    return !c->races || !begun ||
           writes(c, i, address, bytes, begun, engine_of(by), by->races->engine_epoch + 1);
}

void ptx_race_engine_tells(PtxCta *by, PtxMbarrier *b, const u32 *begun)
{
    if (!by->races || !begun)
        return;
    if (!b->told)
        b->told = new_clock(by);
    join(b->told, begun, by->races->threads);
    b->told[engine_of(by)] = ++by->races->engine_epoch;
}

/* ---- fences and barriers */

/* One of the other clocks becomes the first. */
static void copy_clock(PtxCta *c, PtxWarp *w, int which)
{
    u32 n = c->races->threads;
    memcpy(w->clock + (u32)which * n, w->clock, sizeof *w->clock * n);
}

void ptx_race_proxy(PtxCta *c, PtxWarp *w)
{
    if (!c->races)
        return;
    copy_clock(c, w, 1);
    tick(c, w);
}

void ptx_race_fence(PtxCta *c, PtxWarp *w)
{
    copy_clock(c, w, 2);
    tick(c, w);
}

void ptx_race_tick(PtxCta *c, PtxWarp *w)
{
    tick(c, w);
}

u32 ptx_race_epoch(const PtxCta *c, const PtxWarp *w)
{
    return c->races ? w->clock[thread_of(c, w)] : 0;
}

bool ptx_race_knows(const PtxCta *c, const PtxWarp *w, u32 warp, u32 epoch)
{
    return w->clock[c->races->own + warp] >= epoch;
}

const u32 *ptx_race_done(PtxCta *c, PtxWarp *w)
{
    return ptx_race_now(c, w) + 2 * c->races->threads + c->races->own;
}

void ptx_race_arrive(PtxCta *c, PtxWarp *w, PtxMbarrier *b)
{
    if (!c->races)
        return;
    if (!b->told)
        b->told = new_clock(c);
    join(b->told, w->clock, c->races->threads);
    tick(c, w);
}

void ptx_race_complete(PtxCta *c, PtxMbarrier *b)
{
    if (!b->told)
        return;
    if (!b->knows)
        b->knows = new_clock(c);
    join(b->knows, b->told, c->races->threads);
}

void ptx_race_wait(PtxCta *c, PtxWarp *w, const PtxMbarrier *b)
{
    if (c->races && b->knows)
        learn(c, w, b->knows);
}

void ptx_race_bar(PtxCta *c, PtxWarp *w, int b)
{
    if (!c->races)
        return;
    join(c->races->bar[b], w->clock, c->races->threads);
    tick(c, w);
}

void ptx_race_meet(PtxCta *c, int b)
{
    if (!c->races)
        return;
    for (int i = 0; i < c->n_warps; i++)
        if (c->warps[i].wait == PTX_AT_BARRIER && c->warps[i].barrier == b)
            learn(c, &c->warps[i], c->races->bar[b]);
    memset(c->races->bar[b], 0, sizeof *c->races->bar[b] * CLOCKS * c->races->threads);
}

void ptx_race_cluster_arrive(PtxCta *c, PtxWarp *w)
{
    if (!c->races)
        return;
    join(c->races->cluster, w->clock, c->races->threads);
    tick(c, w);
}

void ptx_race_cluster_meet(PtxCta *const *peer, int n)
{
    for (int k = 0; k < n && peer[k]->races; k++)
        for (int i = 0; i < peer[k]->n_warps; i++)
            for (int from = 0; from < n && peer[k]->warps[i].acquires; from++)
                learn(peer[k], &peer[k]->warps[i], peer[from]->races->cluster);
}
