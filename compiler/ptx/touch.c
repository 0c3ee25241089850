/* Who touched which bytes of shared memory last, and whether who touches them now knows of it.
 * Bytes are kept in chunks of sixteen, the unit of copies, products and ldmatrix, until something
 * touches less of one: by words then, or by bytes. */
#include "race_impl.h"
#include "shadow.h"

#include <stdio.h>
#include <string.h>

enum { WORD = 4 };

/* One access. */
typedef struct Touch {
    const PtxInst *inst;
    PtxWarp *warp;         /* NULL: the engine's */
    const PtxClock *known; /* to who does it */
    u32 thread, epoch;
    int lane;
    u32 together; /* lanes that store with it */
    bool stores, adds; /* an addition at once, which no other disturbs */
} Touch;

/* A unit's records. */
typedef struct Unit {
    PtxStored *stored;
    PtxLoaded *loaded, *added; /* by warp; NULL where nothing was added */
} Unit;

static bool is_engine(const PtxCta *c, u32 thread)
{
    return thread < c->races->own || thread >= ptx_engine_of(c);
}

/* Takes what was stored through a fence. */
static bool is_async(const Touch *t)
{
    return !t->warp || t->lane == PTX_BY_PRODUCT;
}

/* ---- findings -------------------------------------------------------------------------------- */

static bool race(PtxCta *c, const Touch *t, u64 address, const char *what, u32 thread, int lane,
                 u32 line)
{
    char other[64] = "a copy", own[40] = "a copy", at[24] = "";
    if (!is_engine(c, thread) && lane < PTX_WARP)
        snprintf(other, sizeof other, "lane %d of warp %u", lane, thread - c->races->own);
    else if (!is_engine(c, thread))
        snprintf(other, sizeof other, "warp %u", thread - c->races->own);
    if (line)
        snprintf(at, sizeof at, " in line %u", line);
    if (t->warp && t->lane < PTX_WARP)
        snprintf(own, sizeof own, "lane %d of warp %d", t->lane, t->warp->index);
    else if (t->warp)
        snprintf(own, sizeof own, "warp %d", t->warp->index);
    return ptx_fault(c, t->inst, "%s %s shared memory at %llu, which %s has %s%s, and no barrier "
                                 "is between", own,
                     t->stores ? "writes" : t->adds ? "adds to" : "reads",
                     (unsigned long long)address, other, what, at);
}

static bool no_fence(PtxCta *c, const Touch *t, u64 address, const PtxStored *s)
{
    return ptx_fault(c, t->inst, "shared memory at %llu was stored to by lane %u of warp %u in "
                                 "line %u, and no fence.proxy.async is between",
                     (unsigned long long)address, s->lane, s->thread - c->races->own, s->line);
}

/* ---- one unit -------------------------------------------------------------------------------- */

/* Lanes that store the same bits to the same place at once: whose comes last makes no difference,
 * which the memory model leaves open. */
static bool agree(const Touch *t, const PtxStored *s)
{
    const PtxInst *i = t->inst;
    PtxWarp *w = t->warp;
    bool now = t->together >> s->lane & 1 && s->lane < t->lane && s->line == (u32)i->line &&
               ptx_address(w, i, &i->args[0], s->lane) == ptx_address(w, i, &i->args[0], t->lane);
    for (int a = 1; now && a < i->n_args; a++) {
        PtxTerms x = *ptx_terms(w, &i->args[a], s->lane), y = *ptx_terms(w, &i->args[a], t->lane);
        now = x.lo == y.lo && x.hi == y.hi &&
              ptx_value(w, &i->args[a], s->lane) == ptx_value(w, &i->args[a], t->lane);
    }
    return now;
}

static bool after_store(PtxCta *c, const Touch *t, u64 address, const PtxStored *s)
{
    bool own = s->thread == t->thread && (!t->warp || s->lane == t->lane);
    bool engine = is_engine(c, s->thread);
    if (!own && !ptx_clock_knows(t->known, PTX_SEEN, s->thread, s->lane, s->epoch) &&
        !(s->thread == t->thread && t->together && agree(t, s)))
        return race(c, t, address, "written", s->thread, s->lane, s->line);
    if (!is_async(t) || engine)
        return true;
    return ptx_clock_knows(t->known, PTX_SHOWN, s->thread, s->lane, s->epoch) ||
           no_fence(c, t, address, s);
}

/* Of a warp's loads those by lanes that are not known; by a product, which every lane knows. */
static bool after_load(PtxCta *c, const Touch *t, u64 address, u32 thread, const PtxLoaded *r,
                       const char *what)
{
    bool own = t->warp && thread == t->thread;
    if (!r->lanes && !own &&
        !ptx_clock_knows(t->known, PTX_SEEN, thread, PTX_BY_PRODUCT, r->epoch))
        return race(c, t, address, what, thread, PTX_BY_PRODUCT, r->line);
    for (u32 rest = r->lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!(own && l == t->lane) && !ptx_clock_knows(t->known, PTX_SEEN, thread, l, r->epoch))
            return race(c, t, address, what, thread, l, r->line);
    }
    return true;
}

static bool after_loads(PtxCta *c, const Touch *t, u64 address, const PtxLoaded *r,
                        const char *what)
{
    const u32 *known = t->known->all + c->races->own;
    for (u32 w = 0; r && w < (u32)c->n_warps; w++)
        if (r[w].epoch > known[w] && !after_load(c, t, address, c->races->own + w, &r[w], what))
            return false;
    return true;
}

/* Loads that all lanes know of are forgotten: who knows of a later one knows of them. */
static void note_load(const Touch *t, PtxLoaded *r)
{
    u32 lanes = t->lane < PTX_WARP ? 1u << t->lane : t->lane == PTX_BY_WARP ? 0xffffffffu : 0;
    u32 before = r->epoch > ptx_clock_of(t->warp->times->seen, PTX_SEEN, t->thread) ? r->lanes : 0;
    *r = (PtxLoaded){t->epoch, before | lanes, (u32)t->inst->line};
}

static bool touch(PtxCta *c, const Touch *t, u64 address, Unit u)
{
    PtxStored *s = u.stored;
    PtxLoaded *own = t->adds ? u.added : u.loaded;
    bool seen = s->epoch <= ptx_clock_of(t->known, PTX_SEEN, s->thread);
    bool shown = !is_async(t) || s->epoch <= ptx_clock_of(t->known, PTX_SHOWN, s->thread);
    if (!(seen && shown) && !after_store(c, t, address, s))
        return false;
    if (!t->adds && !after_loads(c, t, address, u.added, "added to"))
        return false;
    if ((t->stores || t->adds) && !after_loads(c, t, address, u.loaded, "read"))
        return false;
    if (!t->stores) {
        note_load(t, &own[t->thread - c->races->own]);
        return true;
    }
    *s = (PtxStored){t->epoch, (u32)t->inst->line, (u16)t->thread, (u8)t->lane};
    return true;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void refine(PtxCta *c, u64 chunk, u32 unit)
{
    PtxRaces *r = c->races;
    size_t warps = (size_t)c->n_warps;
    for (u32 b = 0; b < PTX_CHUNK; b += unit) {
        u64 at = chunk * PTX_CHUNK + b, from = chunk * PTX_CHUNK + b / WORD * WORD;
        bool words = r->unit[chunk] == WORD;
        r->stored_fine[at] = words ? r->stored_fine[from] : r->stored[chunk];
        memmove(&r->loaded_fine[at * warps],
                words ? &r->loaded_fine[from * warps] : &r->loaded[chunk * warps],
                warps * sizeof *r->loaded);
    }
    r->unit[chunk] = (u8)unit;
}

/* From `begin` to `end` within one chunk. */
static bool touch_chunk(PtxCta *c, const Touch *t, u64 begin, u64 end)
{
    PtxRaces *r = c->races;
    u64 chunk = begin / PTX_CHUNK, warps = (u64)c->n_warps;
    u32 unit = (begin | end) % WORD ? 1 : (begin | end) % PTX_CHUNK ? WORD : PTX_CHUNK;
    if (unit < r->unit[chunk])
        refine(c, chunk, unit);
    if (r->unit[chunk] == PTX_CHUNK)
        return touch(c, t, begin, (Unit){&r->stored[chunk], &r->loaded[chunk * warps], NULL});
    for (u64 at = begin; at < end; at += r->unit[chunk])
        if (!touch(c, t, at, (Unit){&r->stored_fine[at], &r->loaded_fine[at * warps],
                                    r->added ? &r->added[at / WORD * warps] : NULL}))
            return false;
    if (unit == PTX_CHUNK && t->stores) {
        r->stored[chunk] = r->stored_fine[begin];
        r->unit[chunk] = PTX_CHUNK; /* who knows of this store knows of the loads before it */
    }
    return true;
}

static bool touch_all(PtxCta *c, const Touch *t, u64 address, u32 bytes)
{
    u64 end = address + bytes;
    while (address < end && address / PTX_CHUNK < c->races->chunks) {
        u64 next = (address / PTX_CHUNK + 1) * PTX_CHUNK;
        if (!touch_chunk(c, t, address, next < end ? next : end))
            return false;
        address = next;
    }
    return true;
}

static bool by_warp(PtxCta *c, PtxWarp *w, const PtxInst *i, int lane, u64 address, u32 bytes,
                    const PtxClock *since, u32 together, bool stores)
{
    if (!c->races)
        return true;
    struct PtxTimes *times = w->times;
    u32 *last = lane < PTX_WARP ? &times->touched[lane]
                : lane == PTX_BY_WARP ? &times->by_warp : &times->by_product;
    Touch t = {.inst = i, .warp = w, .known = since ? since : ptx_seen_by(w, lane),
               .thread = ptx_thread_of(c, w), .epoch = times->epoch, .lane = lane,
               .together = together, .stores = stores};
    *last = times->latest = times->epoch;
    return touch_all(c, &t, address, bytes);
}

bool ptx_race_read(PtxCta *c, PtxWarp *w, const PtxInst *i, int lane, u64 address, u32 bytes,
                   const PtxClock *since)
{
    return by_warp(c, w, i, lane, address, bytes, since, 0, false);
}

bool ptx_race_store(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask, int lane, u64 address,
                    u32 bytes)
{
    return by_warp(c, w, i, lane, address, bytes, NULL, mask, true);
}

bool ptx_race_add(PtxCta *c, PtxWarp *w, const PtxInst *i, int lane, u64 address)
{
    PtxRaces *r = c->races;
    if (!r)
        return true;
    if (!r->added)
        r->added = arena_array(c->arena, PtxLoaded,
                               (size_t)r->chunks * PTX_CHUNK / WORD * (size_t)c->n_warps);
    Touch t = {.inst = i, .warp = w, .known = ptx_seen_by(w, lane), .thread = ptx_thread_of(c, w),
               .epoch = w->times->epoch, .lane = lane, .adds = true};
    w->times->touched[lane] = w->times->latest = w->times->epoch;
    return touch_all(c, &t, address, WORD);
}

bool ptx_race_copied(PtxCta *c, PtxWarp *w, const PtxInst *i, int lane, u64 address, u32 bytes,
                     const PtxClock *since)
{
    return by_warp(c, w, i, lane, address, bytes, since, 0, true);
}

bool ptx_race_engine(PtxCta *c, PtxCta *by, const PtxInst *i, u64 address, u32 bytes,
                     const PtxClock *begun)
{
    if (!c->races || !begun)
        return true;
    Touch t = {.inst = i, .known = begun, .thread = ptx_engine_of(by),
               .epoch = by->races->engine_epoch + 1, .stores = true};
    return touch_all(c, &t, address, bytes);
}
