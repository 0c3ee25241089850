/* bar.sync and bar.arrive, and mbarriers with their phases and byte counts. */
#include "race.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* ---- bar.sync, bar.arrive ---------------------------------------------------------------------
 */

static u32 live_threads(const PtxCta *c)
{
    u32 n = 0;
    for (int i = 0; i < c->n_warps; i++)
        n += (u32)__builtin_popcount(c->warps[i].alive);
    return n;
}

/* Those who have returned count as arrived where no count is given. */
void ptx_barrier_release(PtxCta *c)
{
    for (int b = 0; b < PTX_BARRIERS; b++) {
        u32 wanted = c->barrier[b].expected ? c->barrier[b].expected : live_threads(c);
        if (c->barrier[b].arrived == 0 || c->barrier[b].arrived < wanted)
            continue;
        c->barrier[b].arrived = c->barrier[b].expected = 0;
        ptx_race_meet(c, b);
        c->changes++;
        for (int i = 0; i < c->n_warps; i++)
            if (c->warps[i].wait == PTX_AT_BARRIER && c->warps[i].barrier == b)
                c->warps[i].wait = PTX_READY;
    }
}

/* Its number, or -1 with a finding. */
static int bar_arrive(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    int lane = __builtin_ctz(mask);
    u64 id = ptx_value(w, &i->args[0], lane);
    u32 count = i->n_args > 1 ? (u32)ptx_value(w, &i->args[1], lane) : 0;
    if (id >= PTX_BARRIERS || count % PTX_WARP) {
        ptx_fault(c, i, "barrier %llu of %u threads", (unsigned long long)id, count);
        return -1;
    }
    if (c->barrier[id].arrived && c->barrier[id].expected != count) {
        ptx_fault(c, i, "barrier %d is waited at for %u and for %u threads", (int)id,
                  c->barrier[id].expected, count);
        return -1;
    }
    c->barrier[id].expected = count;
    c->barrier[id].arrived += count ? PTX_WARP : (u32)__builtin_popcount(w->alive);
    c->changes++;
    ptx_race_bar(c, w, (int)id);
    return (int)id;
}

RUN(bar_sync)
{
    int id = bar_arrive(c, w, i, mask);
    if (id < 0)
        return false;
    w->wait = PTX_AT_BARRIER;
    w->barrier = id;
    return true;
}

RUN(bar_pass)
{
    return bar_arrive(c, w, i, mask) >= 0;
}

/* ---- mbarriers --------------------------------------------------------------------------------
 */

PtxMbarrier *ptx_mbarrier(PtxCta *c, const PtxInst *i, u32 address)
{
    for (int k = 0; k < c->n_mbarriers; k++)
        if (c->mbarrier[k].address == address)
            return &c->mbarrier[k];
    ptx_fault(c, i, "no mbarrier was initialised at %u", address);
    return NULL;
}

PtxMbarrier *ptx_mbarrier_elsewhere(PtxCta *c, const PtxInst *i, u32 address)
{
    PtxMbarrier *b = ptx_mbarrier(c, i, address);
    if (!b || b->fenced)
        return b;
    ptx_fault(c, i, "the mbarrier at %u was initialised without a fence", address);
    return NULL;
}

static void complete(PtxCta *c, PtxMbarrier *b)
{
    c->changes++;
    if (b->pending || b->bytes)
        return;
    b->phase++;
    b->pending = b->count;
    ptx_race_complete(c, b);
}

void ptx_mbarrier_bytes(PtxCta *c, PtxMbarrier *b, i64 bytes)
{
    b->bytes += bytes;
    complete(c, b);
}

static PtxMbarrier *barrier_of(PtxCta *c, PtxWarp *w, const PtxInst *i, int arg, int lane)
{
    const PtxArg *at = &i->args[arg];
    return ptx_mbarrier(c, i, (u32)(ptx_value(w, at, lane) + (u64)at->imm));
}

RUN(init)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u32 address = (u32)(ptx_value(w, &i->args[0], l) + (u64)i->args[0].imm);
        u32 count = (u32)ptx_value(w, &i->args[1], l);
        if (address % 8 || !ptx_write_at(c, i, PTX_SHARED, address, 8))
            return ptx_fault(c, i, "an mbarrier at %u", address);
        for (int k = 0; k < c->n_mbarriers; k++)
            if (c->mbarrier[k].address == address)
                return ptx_fault(c, i, "the mbarrier at %u is initialised twice", address);
        if (c->n_mbarriers == PTX_MBARRIERS || count == 0)
            return ptx_fault(c, i, "an mbarrier too many, or one of no arrivals");
        c->mbarrier[c->n_mbarriers++] =
            (PtxMbarrier){.address = address, .count = count, .pending = count,
                          .meets = w->meets};
    }
    return true;
}

/* Of these lanes those that name the same mbarrier as the first. */
static u32 of_one(const PtxWarp *w, const PtxInst *i, int arg, u32 mask)
{
    u64 at = ptx_value(w, &i->args[arg], __builtin_ctz(mask));
    u32 same = 0;
    PTX_LANES(mask, same |= (u32)(ptx_value(w, &i->args[arg], l) == at) << l);
    return same;
}

static bool arrive(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask, int arg, bool expects)
{
    u32 told = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        PtxMbarrier *b = barrier_of(c, w, i, arg, l);
        if (!b)
            return false;
        u32 same = told >> l & 1 ? 0 : of_one(w, i, arg, rest);
        if (same && b->pending >= (u32)__builtin_popcount(same))
            ptx_race_arrive(c, w, same, b); /* all in one phase */
        else if (same)
            ptx_race_arrive(c, w, same = 1u << l, b);
        told |= same;
        if (b->pending == 0)
            return ptx_fault(c, i, "more arrivals at an mbarrier than it was made for");
        if (expects)
            b->bytes += (i64)ptx_value(w, &i->args[2], l);
        b->pending--;
        complete(c, b);
    }
    /* Others may run before what follows: what was given back too early is then lost. */
    w->pause |= c->launch->seed && (ptx_random(c) & 1);
    return true;
}

RUN(arrive_plain)
{
    return arrive(c, w, i, mask, 1, false);
}

bool ptx_mbarrier_arrive(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    return arrive(c, w, i, mask, 0, false);
}

RUN(arrive_expect)
{
    return arrive(c, w, i, mask, 1, true);
}

/* True once the phase of that parity is over: the phase under way has the other one. */
RUN(try_wait)
{
    u32 *d = ptx_row32(w, i, 0), same;
    for (u32 rest = mask; rest; rest &= ~same) {
        PtxMbarrier *b = barrier_of(c, w, i, 1, __builtin_ctz(rest));
        if (!b)
            return false;
        u32 over = 0;
        same = of_one(w, i, 1, rest);
        PTX_LANES(same,
                  over |= (u32)((b->phase & 1) != (ptx_value(w, &i->args[2], l) & 1)) << l);
        *d = (*d & ~same) | over;
        b->waited = over ? b->phase : b->waited;
        w->pause |= over != same;
        ptx_race_wait(c, w, over, b);
    }
    return true;
}

PtxRun ptx_find_barrier(const PtxInst *i)
{
    switch (i->op) {
    case PTX_BAR: return ptx_shape(i, "r") || ptx_shape(i, "rr") ? bar_sync : NULL;
    case PTX_BAR_ARRIVE: return ptx_shape(i, "rr") ? bar_pass : NULL;
    case PTX_MBAR_INIT: return ptx_shape(i, "ar") ? init : NULL;
    case PTX_MBAR_ARRIVE: return ptx_shape(i, "sa") ? arrive_plain : NULL;
    case PTX_MBAR_EXPECT: return ptx_shape(i, "sar") ? arrive_expect : NULL;
    case PTX_MBAR_TRY: return ptx_shape(i, "par") ? try_wait : NULL;
    default: return NULL;
    }
}
