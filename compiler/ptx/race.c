/* What warps, their lanes and engines know of one another, and the barriers that tell them. */
#include "race_impl.h"

#include <string.h>

/* What follows is later than what others know of. */
static void tick(PtxWarp *w)
{
    w->times->epoch++;
}

/* ---- starting */

static void open_warp(PtxCta *c, PtxWarp *w, u32 threads)
{
    w->times = arena_new_of(c->arena, struct PtxTimes);
    w->times->seen = ptx_clock_new(c->arena, threads);
}

static void open_races(PtxCta *c, u32 threads)
{
    PtxRaces *r = c->races = arena_new_of(c->arena, PtxRaces);
    size_t chunks = c->shared_end / PTX_CHUNK + 1, warps = (size_t)c->n_warps;
    r->threads = threads;
    r->chunks = (u32)chunks;
    r->unit = arena_alloc(c->arena, chunks);
    memset(r->unit, PTX_CHUNK, chunks);
    r->stored = arena_array(c->arena, PtxStored, chunks);
    r->loaded = arena_array(c->arena, PtxLoaded, chunks * warps);
    r->stored_fine = arena_array(c->arena, PtxStored, chunks * PTX_CHUNK);
    r->loaded_fine = arena_array(c->arena, PtxLoaded, chunks * PTX_CHUNK * warps);
    for (int b = 0; b < PTX_BARRIERS; b++)
        r->bar[b] = ptx_clock_new(c->arena, threads);
    r->cluster = ptx_clock_new(c->arena, threads);
    r->sum = ptx_clock_new(c->arena, threads);
    for (int i = 0; i < c->n_warps; i++)
        open_warp(c, &c->warps[i], threads);
}

/* What the CTAs before did is known to all. */
static void start_warp(PtxWarp *w, u32 epoch)
{
    struct PtxTimes *t = w->times;
    ptx_clock_set(t->seen, epoch);
    t->apart = t->by_warp = t->by_product = t->latest = 0;
    for (int l = 0; l < PTX_WARP; l++)
        t->touched[l] = 0;
    t->epoch = epoch + 1;
    t->changes++;
}

static void start_one(PtxCta *c, u32 own, u32 epoch)
{
    PtxRaces *r = c->races;
    r->own = own;
    r->engine_epoch = epoch;
    ptx_clock_set(r->cluster, 0);
    for (int b = 0; b < PTX_BARRIERS; b++)
        ptx_clock_set(r->bar[b], 0);
    for (int i = 0; i < c->n_warps; i++)
        start_warp(&c->warps[i], epoch);
}

static u32 last_epoch(const PtxCta *c)
{
    u32 last = c->races->engine_epoch + 1;
    for (int i = 0; i < c->n_warps; i++)
        last = c->warps[i].times->epoch > last ? c->warps[i].times->epoch : last;
    return last;
}

void ptx_race_start(PtxCta *const *peer, int n)
{
    u32 threads = 0, own = 0, epoch = 0;
    if (!peer[0]->launch->terms)
        return;
    for (int k = 0; k < n; k++)
        threads += (u32)peer[k]->n_warps + 1;
    for (int k = 0; k < n; k++) {
        if (!peer[k]->races)
            open_races(peer[k], threads);
        u32 last = last_epoch(peer[k]);
        epoch = last > epoch ? last : epoch;
    }
    for (int k = 0; k < n; k++) {
        start_one(peer[k], own, epoch);
        own += (u32)peer[k]->n_warps + 1;
    }
}

/* ---- what lanes know ------------------------------------------------------------------------- */

/* Lanes' own accesses up to now. Where no other lane has touched memory since what is known of all,
 * they are all there are. */
static void add_own(PtxCta *c, PtxWarp *w, u32 mask, PtxKind kind, PtxClock *to)
{
    const struct PtxTimes *t = w->times;
    u32 thread = ptx_thread_of(c, w), known = ptx_clock_of(to, kind, thread);
    bool whole = (mask & w->alive) == w->alive;
    u32 others = whole ? 0 : t->by_warp, own = t->by_product > t->by_warp ? t->by_product
                                                                           : t->by_warp;
    for (int l = 0; l < PTX_WARP && t->latest > known; l++) {
        u32 *most = mask >> l & 1 ? &own : &others;
        *most = t->touched[l] > *most ? t->touched[l] : *most;
    }
    if (others <= known)
        ptx_clock_raise(to, kind, thread, 0xffffffffu, t->epoch, c->arena);
    else if (own > known)
        ptx_clock_raise(to, kind, thread, mask, t->epoch, c->arena);
}

/* What these lanes know becomes known to who sees `to`. */
static void release(PtxCta *c, PtxWarp *w, u32 mask, PtxClock *to)
{
    const struct PtxTimes *t = w->times;
    if (mask & ~t->apart)
        ptx_clock_join(to, t->seen, c->arena);
    for (u32 rest = mask & t->apart; rest; rest &= rest - 1)
        ptx_clock_join(to, t->lane[__builtin_ctz(rest)], c->arena);
    add_own(c, w, mask, PTX_SEEN, to);
    tick(w);
}

/* A lane that learns what its warp does not. */
static PtxClock *set_apart(PtxCta *c, PtxWarp *w, int lane)
{
    struct PtxTimes *t = w->times;
    if (t->apart >> lane & 1)
        return t->lane[lane];
    if (!t->lane[lane])
        t->lane[lane] = ptx_clock_new(c->arena, t->seen->threads);
    t->apart |= 1u << lane;
    ptx_clock_set(t->lane[lane], 0);
    ptx_clock_join(t->lane[lane], t->seen, c->arena);
    return t->lane[lane];
}

static void learn(PtxCta *c, PtxWarp *w, u32 mask, const PtxClock *from)
{
    struct PtxTimes *t = w->times;
    bool whole = (mask & w->alive) == w->alive;
    t->changes++;
    if (whole)
        ptx_clock_join(t->seen, from, c->arena);
    for (u32 rest = whole ? t->apart : mask; rest; rest &= rest - 1)
        ptx_clock_join(set_apart(c, w, __builtin_ctz(rest)), from, c->arena);
}

/* All lanes that are left have told one another what they know. */
static void learn_together(PtxCta *c, PtxWarp *w, const PtxClock *from)
{
    w->times->apart = 0;
    learn(c, w, w->alive, from);
}

static PtxClock *copy_of(PtxCta *c, const PtxClock *clock)
{
    PtxClock *copy = ptx_clock_new(c->arena, clock->threads);
    ptx_clock_join(copy, clock, c->arena);
    return copy;
}

const PtxClock *ptx_race_now(PtxCta *c, PtxWarp *w, int lane)
{
    if (!c->races)
        return NULL;
    struct PtxTimes *t = w->times;
    int who = lane < PTX_WARP && t->apart >> lane & 1 ? lane : PTX_BY_WARP;
    if (!t->now.clock || t->now.lane != who || t->now.changes != t->changes)
        t->now = (PtxCopied){copy_of(c, ptx_seen_by(w, lane)), who, t->changes, t->epoch};
    return t->now.clock;
}

const PtxClock *ptx_race_released(PtxCta *c, PtxWarp *w, int lane)
{
    if (!c->races)
        return NULL;
    struct PtxTimes *t = w->times;
    PtxCopied *was = &t->released;
    if (!was->clock || was->lane != lane || was->changes != t->changes || was->epoch < t->latest) {
        PtxClock *clock = ptx_clock_new(c->arena, t->seen->threads);
        *was = (PtxCopied){clock, lane, t->changes, t->epoch};
        release(c, w, 1u << lane, clock);
    }
    return was->clock;
}

/* ---- the engine */

void ptx_race_engine_tells(PtxCta *by, PtxMbarrier *b, const PtxClock *begun)
{
    PtxRaces *r = by->races;
    if (!r || !begun)
        return;
    if (!b->told)
        b->told = ptx_clock_new(by->arena, r->threads);
    ptx_clock_join(b->told, begun, by->arena);
    r->engine_epoch++;
    for (int kind = PTX_SEEN; kind <= PTX_SHOWN; kind++)
        ptx_clock_raise(b->told, (PtxKind)kind, ptx_engine_of(by), 0xffffffffu, r->engine_epoch,
                        by->arena);
}

/* ---- fences and other memory */

void ptx_race_fence(PtxCta *c, PtxWarp *w, PtxKind kind, u32 mask)
{
    if (!c->races)
        return;
    struct PtxTimes *t = w->times;
    bool whole = (mask & w->alive) == w->alive;
    for (u32 rest = whole ? t->apart : mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        PtxClock *own = set_apart(c, w, l);
        ptx_clock_promote(own, kind, c->arena);
        add_own(c, w, 1u << l, kind, own);
    }
    if (whole) {
        ptx_clock_promote(t->seen, kind, c->arena);
        add_own(c, w, mask, kind, t->seen);
    }
    t->changes++;
    tick(w);
}

u32 ptx_race_first(const PtxCta *c)
{
    return c->races ? c->races->own : 0;
}

u32 ptx_race_access(PtxCta *c, PtxWarp *w, int lane)
{
    if (!c->races)
        return 0;
    struct PtxTimes *t = w->times;
    return t->latest = t->touched[lane] = t->epoch;
}

bool ptx_race_knows(const PtxCta *c, const PtxWarp *w, int lane, const PtxCta *by, u32 by_warp,
                    u32 by_lane, u32 epoch)
{
    return (c == by && by_warp == (u32)w->index && by_lane == (u32)lane) ||
           ptx_clock_knows(ptx_seen_by(w, lane), PTX_SEEN, by->races->own + by_warp, (int)by_lane,
                           epoch);
}

/* ---- barriers -------------------------------------------------------------------------------- */

void ptx_race_arrive(PtxCta *c, PtxWarp *w, u32 mask, PtxMbarrier *b)
{
    if (!c->races)
        return;
    if (!b->told)
        b->told = ptx_clock_new(c->arena, c->races->threads);
    release(c, w, mask, b->told);
}

void ptx_race_complete(PtxCta *c, PtxMbarrier *b)
{
    if (!b->told)
        return;
    if (!b->knows)
        b->knows = ptx_clock_new(c->arena, c->races->threads);
    ptx_clock_join(b->knows, b->told, c->arena);
}

void ptx_race_wait(PtxCta *c, PtxWarp *w, u32 mask, const PtxMbarrier *b)
{
    if (c->races && b->knows && mask)
        learn(c, w, mask, b->knows);
}

void ptx_race_bar(PtxCta *c, PtxWarp *w, int b)
{
    if (c->races)
        release(c, w, w->alive, c->races->bar[b]);
}

void ptx_race_meet(PtxCta *c, int b)
{
    if (!c->races)
        return;
    for (int i = 0; i < c->n_warps; i++)
        if (c->warps[i].wait == PTX_AT_BARRIER && c->warps[i].barrier == b)
            learn_together(c, &c->warps[i], c->races->bar[b]);
    ptx_clock_set(c->races->bar[b], 0);
}

void ptx_race_lanes(PtxCta *c, PtxWarp *w, u32 mask)
{
    if (!c->races)
        return;
    struct PtxTimes *t = w->times;
    if (!t->apart && mask == w->alive) {
        add_own(c, w, mask, PTX_SEEN, t->seen);
        t->changes++;
        tick(w);
        return;
    }
    ptx_clock_set(c->races->sum, 0);
    release(c, w, mask, c->races->sum);
    if (mask == w->alive)
        learn_together(c, w, c->races->sum);
    else
        learn(c, w, mask, c->races->sum);
}

void ptx_race_cluster_arrive(PtxCta *c, PtxWarp *w)
{
    if (c->races)
        release(c, w, w->alive, c->races->cluster);
}

void ptx_race_cluster_meet(PtxCta *const *peer, int n)
{
    for (int k = 0; k < n && peer[k]->races; k++)
        for (int i = 0; i < peer[k]->n_warps; i++)
            for (int from = 0; from < n && peer[k]->warps[i].acquires; from++)
                learn(peer[k], &peer[k]->warps[i], peer[k]->warps[i].alive,
                      peer[from]->races->cluster);
}
