/* Clocks: joining them, and lanes of which more is known than of their warp. */
#include "clock.h"

#include <string.h>

enum { MOST = PTX_WARP, LANES }; /* a lane's array: by lane, then the greatest */

PtxClock *ptx_clock_new(Arena *arena, u32 threads)
{
    PtxClock *c = arena_new_of(arena, PtxClock);
    c->threads = threads;
    c->all = arena_array(arena, u32, PTX_KINDS * threads);
    return c;
}

void ptx_clock_set(PtxClock *c, u32 epoch)
{
    for (u32 k = 0; k < PTX_KINDS * c->threads; k++)
        c->all[k] = epoch;
    for (u32 k = 0; c->uneven && k < PTX_KINDS * c->threads; k++)
        if (c->lane[k])
            memset(c->lane[k], 0, LANES * sizeof **c->lane);
    c->uneven = false;
}

static u32 *lanes_at(PtxClock *c, u32 k, Arena *arena)
{
    if (!c->lane)
        c->lane = arena_array(arena, u32 *, PTX_KINDS * c->threads);
    if (!c->lane[k])
        c->lane[k] = arena_array(arena, u32, LANES);
    c->uneven = true;
    return c->lane[k];
}

/* What is known of each lane is known of all. */
static void even_out(PtxClock *c, u32 k)
{
    u32 least = UINT32_MAX, *lane = c->lane[k];
    lane[MOST] = 0;
    for (int l = 0; l < PTX_WARP; l++) {
        least = lane[l] < least ? lane[l] : least;
        lane[MOST] = lane[l] > lane[MOST] ? lane[l] : lane[MOST];
    }
    c->all[k] = least > c->all[k] ? least : c->all[k];
}

static void join_lanes(PtxClock *to, u32 k, const PtxClock *from, u32 f, Arena *arena)
{
    const u32 *lane = from->uneven ? from->lane[f] : NULL;
    if (!lane || lane[MOST] <= to->all[k])
        return;
    u32 *own = lanes_at(to, k, arena);
    for (int l = 0; l < PTX_WARP; l++) {
        u32 least = to->all[k] > lane[l] ? to->all[k] : lane[l];
        own[l] = own[l] > least ? own[l] : least;
    }
    even_out(to, k);
}

void ptx_clock_join(PtxClock *to, const PtxClock *from, Arena *arena)
{
    u32 n = PTX_KINDS * to->threads;
    for (u32 k = 0; from && k < n; k++)
        to->all[k] = to->all[k] > from->all[k] ? to->all[k] : from->all[k];
    for (u32 k = 0; from && from->uneven && k < n; k++)
        join_lanes(to, k, from, k, arena);
}

void ptx_clock_promote(PtxClock *c, PtxKind kind, Arena *arena)
{
    u32 *to = c->all + (u32)kind * c->threads;
    for (u32 t = 0; t < c->threads; t++)
        to[t] = to[t] > c->all[t] ? to[t] : c->all[t];
    for (u32 t = 0; c->uneven && t < c->threads; t++)
        join_lanes(c, (u32)kind * c->threads + t, c, t, arena);
}

void ptx_clock_raise(PtxClock *c, PtxKind kind, u32 thread, u32 lanes, u32 epoch, Arena *arena)
{
    u32 k = (u32)kind * c->threads + thread;
    if (lanes == 0xffffffffu) {
        c->all[k] = epoch > c->all[k] ? epoch : c->all[k];
        return;
    }
    u32 *lane = lanes_at(c, k, arena);
    for (int l = 0; l < PTX_WARP; l++) {
        u32 least = lanes >> l & 1 && epoch > c->all[k] ? epoch : c->all[k];
        lane[l] = lane[l] > least ? lane[l] : least;
    }
    even_out(c, k);
}

bool ptx_clock_some(const PtxClock *c, PtxKind kind, u32 thread, int lane, u32 epoch)
{
    const u32 *known = c->lane[(u32)kind * c->threads + thread];
    return known && known[lane < PTX_WARP ? lane : MOST] >= epoch;
}
