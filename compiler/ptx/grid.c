/* Stores of CTAs to a workspace, and what tells others of them. */
#include "grid.h"

#include "race.h"

/* What a CTA told a counter, or what a lane has learned of one. */
typedef struct PtxTold {
    u64 address;          /* of the counter */
    u32 cta, first;       /* that told; its first thread's number */
    const PtxClock *done; /* what it knew to be done */
    u32 warp, epoch;      /* that learned, and since when; others by what they know of it */
    int lane;
} PtxTold;

struct PtxGrid {
    VEC(PtxTold) told;
};

struct PtxLearned {
    VEC(PtxTold) waiting; /* for a fence of the warp */
    VEC(PtxTold) all;
};

enum { WORD = 4 };

/* A store's mark. */
enum { EPOCH_BITS = 32, LANE_BITS = 5, WARP_BITS = 5 };

typedef struct Mark {
    u32 cta, warp, lane, epoch;
} Mark;

static u64 pack(const Mark *m)
{
    u64 who = ((u64)m->cta << WARP_BITS | m->warp) << LANE_BITS | m->lane;
    return who << EPOCH_BITS | m->epoch;
}

static Mark unpack(u64 mark)
{
    u64 who = mark >> EPOCH_BITS;
    return (Mark){.cta = (u32)(who >> (WARP_BITS + LANE_BITS)),
                  .warp = (u32)(who >> LANE_BITS) & ((1u << WARP_BITS) - 1),
                  .lane = (u32)who & ((1u << LANE_BITS) - 1), .epoch = (u32)mark};
}

static u32 number_of(const PtxCta *c)
{
    const u32 *grid = c->launch->grid;
    return 1 + c->id[0] + grid[0] * (c->id[1] + grid[1] * c->id[2]);
}

static u64 *writer_at(PtxCta *c, u64 address)
{
    const PtxRegion *r = ptx_region_at(c, address, WORD);
    return r && r->writer ? &r->writer[(address - (u64)(uintptr_t)r->base) / WORD] : NULL;
}

void ptx_grid_start(PtxCta *c)
{
    if (!c->launch->terms)
        return;
    if (!c->grid)
        c->grid = arena_new_of(c->arena, struct PtxGrid);
    c->learned = arena_new_of(c->arena, struct PtxLearned);
}

void ptx_grid_store(PtxCta *c, PtxWarp *w, int lane, u64 address, u32 bytes)
{
    if (!c->grid)
        return;
    const Mark mark = {number_of(c), (u32)w->index, (u32)lane, ptx_race_access(c, w, lane)};
    for (u32 k = 0; k < bytes; k += WORD) {
        u64 *writer = writer_at(c, address + k);
        if (writer)
            *writer = pack(&mark);
    }
}

/* Whether a counter told it, and the lane knows of who learned that. */
static bool was_told(const PtxCta *c, const PtxWarp *w, int lane, const PtxTold *told,
                     const Mark *m)
{
    u32 thread = told->first + m->warp;
    return told->cta == m->cta &&
           ptx_clock_knows(told->done, PTX_SEEN, thread, (int)m->lane, m->epoch) &&
           ptx_clock_knows(told->done, PTX_MADE_DONE, thread, (int)m->lane, m->epoch) &&
           ptx_race_knows(c, w, lane, c, told->warp, (u32)told->lane, told->epoch);
}

/* Whether the lane has learned that the store with this mark is done. */
static bool knows(const PtxCta *c, const PtxWarp *w, int lane, const Mark *m)
{
    for (int k = 0; k < c->n_peers; k++)
        if (number_of(c->peer[k]) == m->cta)
            return ptx_race_knows(c, w, lane, c->peer[k], m->warp, m->lane, m->epoch);
    for (int i = 0; i < c->learned->all.n; i++)
        if (was_told(c, w, lane, &c->learned->all.v[i], m))
            return true;
    return false;
}

bool ptx_grid_load(PtxCta *c, const PtxWarp *w, const PtxInst *i, int lane, u64 address, u32 bytes)
{
    for (u32 k = 0; c->grid && k < bytes; k += WORD) {
        const u64 *writer = writer_at(c, address + k);
        const Mark m = unpack(writer ? *writer : 0);
        if (m.cta && !knows(c, w, lane, &m))
            return ptx_fault(c, i, "lane %d of warp %d reads what lane %u of warp %u of CTA %u of "
                                   "the grid has stored, and nothing has told so", lane, w->index,
                             m.lane, m.warp, m.cta - 1);
    }
    return true;
}

void ptx_grid_atomic(PtxCta *c, PtxWarp *w, int lane, u64 address)
{
    if (!c->grid)
        return;
    for (int i = 0; i < c->grid->told.n; i++)
        if (c->grid->told.v[i].address == address) {
            PtxTold learned = c->grid->told.v[i];
            learned.warp = (u32)w->index;
            learned.lane = lane;
            vec_push(c->arena, &c->learned->waiting, learned);
        }
    PtxTold told = {.address = address, .cta = number_of(c), .first = ptx_race_first(c),
                    .done = ptx_race_released(c, w, lane)};
    vec_push(c->arena, &c->grid->told, told);
}

void ptx_grid_fence(PtxCta *c, PtxWarp *w, u32 mask)
{
    if (!c->grid)
        return;
    ptx_race_fence(c, w, PTX_MADE_DONE, mask);
    int kept = 0;
    for (int i = 0; i < c->learned->waiting.n; i++) {
        PtxTold learned = c->learned->waiting.v[i];
        if (learned.warp != (u32)w->index || !(mask >> learned.lane & 1)) {
            c->learned->waiting.v[kept++] = learned;
            continue;
        }
        learned.epoch = ptx_race_access(c, w, learned.lane);
        vec_push(c->arena, &c->learned->all, learned);
    }
    c->learned->waiting.n = kept;
}
