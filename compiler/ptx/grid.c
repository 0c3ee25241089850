/* Stores of CTAs to a workspace, and what tells others of them. */
#include "grid.h"

#include "race.h"

/* What a CTA told a counter, or what a warp has learned of one. */
typedef struct PtxTold {
    u64 address;     /* of the counter; of what was learned: 0 */
    u32 cta;         /* that told */
    const u32 *done; /* by its warps: the epoch up to which their stores are done */
    u32 warp, epoch; /* that learned, and since when; others by what they know of it */
} PtxTold;

struct PtxGrid {
    VEC(PtxTold) told;
};

struct PtxLearned {
    VEC(PtxTold) waiting; /* for a fence of the warp */
    VEC(PtxTold) all;
};

enum { WORD = 4, EPOCH_BITS = 32, WARP_BITS = 8 };

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

void ptx_grid_store(PtxCta *c, const PtxWarp *w, u64 address, u32 bytes)
{
    u64 mark = (u64)number_of(c) << (EPOCH_BITS + WARP_BITS) | (u64)w->index << EPOCH_BITS |
               ptx_race_epoch(c, w);
    for (u32 k = 0; c->grid && k < bytes; k += WORD) {
        u64 *writer = writer_at(c, address + k);
        if (writer)
            *writer = mark;
    }
}

/* Whether the warp has learned that the store with this mark is done. */
static bool knows(const PtxCta *c, const PtxWarp *w, u64 mark)
{
    u32 cta = (u32)(mark >> (EPOCH_BITS + WARP_BITS)), epoch = (u32)mark;
    u32 by = (u32)(mark >> EPOCH_BITS) & ((1u << WARP_BITS) - 1);
    if (cta == number_of(c))
        return by == (u32)w->index || ptx_race_knows(c, w, by, epoch);
    for (int k = 0; k < c->n_peers; k++)
        if (number_of(c->peer[k]) == cta)
            return ptx_race_knows(c->peer[k], w, by, epoch);
    for (int i = 0; i < c->learned->all.n; i++) {
        const PtxTold *told = &c->learned->all.v[i];
        if (told->cta == cta && told->done[by] >= epoch &&
            ptx_race_knows(c, w, told->warp, told->epoch))
            return true;
    }
    return false;
}

bool ptx_grid_load(PtxCta *c, const PtxWarp *w, const PtxInst *i, u64 address, u32 bytes)
{
    for (u32 k = 0; c->grid && k < bytes; k += WORD) {
        const u64 *writer = writer_at(c, address + k);
        if (writer && *writer && !knows(c, w, *writer))
            return ptx_fault(c, i, "reads what warp %u of CTA %u of the grid has stored, and "
                                   "nothing has told so", (u32)(*writer >> EPOCH_BITS) & 255,
                             (u32)(*writer >> (EPOCH_BITS + WARP_BITS)) - 1);
    }
    return true;
}

void ptx_grid_atomic(PtxCta *c, PtxWarp *w, u64 address)
{
    if (!c->grid)
        return;
    for (int i = 0; i < c->grid->told.n; i++)
        if (c->grid->told.v[i].address == address) {
            PtxTold learned = c->grid->told.v[i];
            learned.warp = (u32)w->index;
            vec_push(c->arena, &c->learned->waiting, learned);
        }
    PtxTold told = {.address = address, .cta = number_of(c), .done = ptx_race_done(c, w)};
    vec_push(c->arena, &c->grid->told, told);
}

void ptx_grid_fence(PtxCta *c, PtxWarp *w)
{
    if (!c->grid)
        return;
    ptx_race_fence(c, w);
    u32 epoch = ptx_race_epoch(c, w);
    int kept = 0;
    for (int i = 0; i < c->learned->waiting.n; i++) {
        PtxTold learned = c->learned->waiting.v[i];
        if (learned.warp != (u32)w->index) {
            c->learned->waiting.v[kept++] = learned;
            continue;
        }
        learned.epoch = epoch;
        vec_push(c->arena, &c->learned->all, learned);
    }
    c->learned->waiting.n = kept;
    ptx_race_tick(c, w);
}
