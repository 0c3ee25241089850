/* Asynchronous copies. What cp.async copies arrives at the wait for its group, the last moment
 * allowed; bulk copies arrive when the engine takes them. */
#include "grid.h"
#include "race.h"
#include "shadow.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* ---- cp.async ---------------------------------------------------------------------------------
 */

RUN(begin)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 bytes = ptx_value(w, &i->args[3], l);
        if (i->args[2].imm != 16 || bytes > 16)
            return ptx_fault(c, i, "copies %llu of %lld bytes", (unsigned long long)bytes,
                             (long long)i->args[2].imm);
        PtxCopy copy = {
            .from = ptx_value(w, &i->args[1], l) + (u64)i->args[1].imm,
            .to = (u32)(ptx_value(w, &i->args[0], l) + (u64)i->args[0].imm),
            .bytes = (u32)bytes,
            .commit = w->copy_commits[l],
            .begun = ptx_race_now(c, w, l),
        };
        if (!ptx_grid_load(c, w, i, l, copy.from, copy.bytes))
            return false;
        vec_push(c->arena, &w->copies[l], copy);
    }
    return true;
}

static bool copy_now(PtxCta *c, PtxWarp *w, const PtxInst *i, int lane, const PtxCopy *copy)
{
    u8 *to = ptx_write_at(c, i, PTX_SHARED, copy->to, 16);
    const u8 *from = NULL;
    if (!to || !ptx_race_copied(c, w, i, lane, copy->to, 16, copy->begun))
        return false;
    memset(to, 0, 16);
    if (copy->from % 16)
        return ptx_fault(c, i, "copies from %#llx, which is not aligned",
                         (unsigned long long)copy->from);
    for (u32 k = 0; k < copy->bytes; k += 2) {
        from = ptx_read_at(c, i, PTX_GLOBAL, copy->from + k, 2);
        if (!from)
            return false;
        memcpy(to + k, from, 2);
    }
    if (c->shared_shadow) {
        ptx_shadow_clear(c, copy->to, 16);
        ptx_shadow_copy(c, copy->to, copy->from, copy->bytes);
    }
    return true;
}

RUN(commit)
{
    (void)c, (void)i;
    PTX_LANES(mask, w->copy_commits[l]++);
    return true;
}

/* All groups but the last n have arrived. */
static bool arrive(PtxCta *c, PtxWarp *w, const PtxInst *i, int lane, u64 n)
{
    u32 kept = 0;
    for (int k = 0; k < w->copies[lane].n; k++) {
        const PtxCopy copy = w->copies[lane].v[k];
        if ((u64)copy.commit + n >= w->copy_commits[lane])
            w->copies[lane].v[kept++] = copy;
        else if (!copy_now(c, w, i, lane, &copy))
            return false;
    }
    w->copies[lane].n = (int)kept;
    return true;
}

RUN(wait_group)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!arrive(c, w, i, l, (u64)i->args[0].imm))
            return false;
    }
    return true;
}

/* All copies that a thread has begun arrive, and then it does. */
RUN(arrive_copies)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        w->copy_commits[l]++;
        if (!arrive(c, w, i, l, 0))
            return false;
    }
    return ptx_mbarrier_arrive(c, w, i, mask);
}

/* ---- tensor maps ------------------------------------------------------------------------------
 */

#define MAP_MAGIC 0x697061746d617031u

void ptx_encode_map(PtxTensorMap *map, u64 base, u32 element, u32 rank, const u64 *dims,
                    const u64 *strides, const u32 *box, PtxSwizzle swizzle)
{
    *map = (PtxTensorMap){.magic = MAP_MAGIC, .base = base, .element = element, .rank = rank,
                          .swizzle = (u32)swizzle};
    for (u32 d = 0; d < PTX_MAP_DIMS; d++) {
        map->dim[d] = d < rank ? (u32)dims[d] : 1;
        map->box[d] = d < rank ? box[d] : 1;
        if (d > 0 && d < rank)
            map->stride[d - 1] = strides[d - 1];
    }
}

static PtxSpace space_of(u64 address)
{
    return address >= PTX_PARAM_BASE ? PTX_PARAM : PTX_GLOBAL;
}

static const u8 *read_map(PtxCta *c, const PtxInst *i, u64 address, PtxTensorMap *map)
{
    if (address % 64) {
        ptx_fault(c, i, "a tensor map at %#llx, which is not aligned", (unsigned long long)address);
        return NULL;
    }
    const u8 *bytes = ptx_read_at(c, i, space_of(address), address, 128);
    if (!bytes)
        return NULL;
    memcpy(map, bytes, sizeof *map);
    if (map->magic == MAP_MAGIC)
        return bytes;
    ptx_fault(c, i, "no tensor map at parameter byte %lld", (long long)(address - PTX_PARAM_BASE));
    return NULL;
}

RUN(prefetch)
{
    PtxTensorMap map;
    int l = __builtin_ctz(mask);
    return read_map(c, i, ptx_value(w, &i->args[0], l) + (u64)i->args[0].imm, &map) != NULL;
}

/* ---- bulk copies ------------------------------------------------------------------------------
 */

/* Into this CTA, or every one of a mask. */
enum { FEW_TURNS = 4 };

static bool send_bulk(PtxCta *c, PtxBulk bulk, u32 ranks)
{
    for (int k = 0; k < c->n_peers; k++) {
        PtxCta *to = c->peer[k];
        if (!(ranks >> k & 1))
            continue;
        if (!ptx_mbarrier_elsewhere(to, bulk.inst, bulk.barrier))
            return false;
        u32 most = c->launch->copy_turns ? c->launch->copy_turns : FEW_TURNS;
        bulk.delay = c->launch->seed ? (u32)(ptx_random(c) % most) : 0;
        vec_push(to->arena, &to->bulk, bulk);
    }
    return ranks >> c->n_peers == 0 || ptx_fault(c, bulk.inst, "to CTAs beyond the cluster");
}

RUN(begin_bulk)
{
    int rank = i->op == PTX_TMA_4D ? 4 : 3, barrier = 2 + rank;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        PtxBulk bulk = {.inst = i, .by = c, .begun = ptx_race_released(c, w, l)};
        u32 ranks = 1u << c->rank;
        if (i->op == PTX_TMA_3D_ALL)
            ranks = (u32)ptx_value(w, &i->args[6], l) & 0xffff;
        bulk.to = (u32)(ptx_value(w, &i->args[0], l) + (u64)i->args[0].imm);
        bulk.barrier = (u32)(ptx_value(w, &i->args[barrier], l) + (u64)i->args[barrier].imm);
        for (int d = 0; d < rank; d++)
            bulk.at[d] = (int32_t)ptx_value(w, &i->args[2 + d], l);
        if (!read_map(c, i, ptx_value(w, &i->args[1], l) + (u64)i->args[1].imm, &bulk.map))
            return false;
        if (bulk.map.rank != (u32)rank)
            return ptx_fault(c, i, "a tensor map of %u dimensions", bulk.map.rank);
        if (bulk.to % 128 || (bulk.map.swizzle == PTX_SWIZZLE_128B &&
                              bulk.map.box[0] * bulk.map.element != 128))
            return ptx_fault(c, i, "a box of %u elements to %u", bulk.map.box[0], bulk.to);
        if (!send_bulk(c, bulk, ranks))
            return false;
    }
    return true;
}

/* Where byte `at` of the box goes. */
static u32 swizzled(const PtxBulk *b, u32 at)
{
    u32 to = b->to + at;
    return b->map.swizzle == PTX_SWIZZLE_128B ? to ^ (to >> 7 & 7) << 4 : to;
}

static bool inside(const PtxBulk *b, int dim, i64 at)
{
    return at >= 0 && at < (i64)b->map.dim[dim];
}

/* Up to 16 bytes of a line; what lies outside is zero. */
static bool copy_chunk(PtxCta *c, const PtxBulk *b, u32 x, const u32 *index, u32 at)
{
    const PtxTensorMap *m = &b->map;
    u32 each = m->element, n = 16 / each;
    u64 line = m->base;
    u8 *to = ptx_write_at(c, b->inst, PTX_SHARED, swizzled(b, at), 16);
    if (!to || !ptx_race_engine(c, b->by, b->inst, swizzled(b, at), 16, b->begun))
        return false;
    memset(to, 0, 16);
    if (c->shared_shadow)
        ptx_shadow_clear(c, swizzled(b, at), 16);
    for (int d = 1; d < PTX_MAP_DIMS; d++) {
        if (!inside(b, d, b->at[d] + index[d]))
            return true;
        line += (u64)(b->at[d] + index[d]) * m->stride[d - 1];
    }
    for (u32 k = 0; k < n; k++) {
        i64 column = b->at[0] + x + k;
        if (!inside(b, 0, column))
            continue;
        const u8 *from = ptx_read_at(c, b->inst, PTX_GLOBAL, line + (u64)column * each, each);
        if (!from)
            return false;
        memcpy(to + k * each, from, each);
        if (c->shared_shadow)
            ptx_shadow_copy(c, swizzled(b, at) + k * each, line + (u64)column * each, each);
    }
    return true;
}

static bool copy_box(PtxCta *c, const PtxBulk *b)
{
    const u32 *box = b->map.box;
    u32 at = 0, step = 16 / b->map.element, lines = box[1] * box[2] * box[3];
    for (u32 line = 0; line < lines; line++) {
        const u32 index[PTX_MAP_DIMS] = {0, line % box[1], line / box[1] % box[2],
                                         line / box[1] / box[2]};
        for (u32 x = 0; x < box[0]; x += step, at += 16)
            if (!copy_chunk(c, b, x, index, at))
                return false;
    }
    PtxMbarrier *barrier = ptx_mbarrier(c, b->inst, b->barrier);
    if (barrier) {
        barrier->copied = barrier->phase + 1;
        ptx_race_engine_tells(b->by, barrier, b->begun);
        ptx_mbarrier_bytes(c, barrier, -(i64)at);
    }
    return barrier != NULL;
}

bool ptx_bulk_turn(PtxCta *c)
{
    int kept = 0;
    for (int k = 0; k < c->bulk.n; k++) {
        PtxBulk b = c->bulk.v[k];
        c->changes++;
        if (b.delay > 0) {
            b.delay--;
            c->bulk.v[kept++] = b;
        } else if (!copy_box(c, &b)) {
            return false;
        }
    }
    c->bulk.n = kept;
    return true;
}

PtxRun ptx_find_copy(const PtxInst *i)
{
    switch (i->op) {
    case PTX_CP_ASYNC: return ptx_shape(i, "aarr") && i->args[2].kind == PTX_IMM ? begin : NULL;
    case PTX_CP_COMMIT: return i->n_args == 0 ? commit : NULL;
    case PTX_CP_WAIT: return ptx_shape(i, "n") ? wait_group : NULL;
    case PTX_CP_ARRIVE: return ptx_shape(i, "a") ? arrive_copies : NULL;
    case PTX_PREFETCH_MAP: return ptx_shape(i, "a") ? prefetch : NULL;
    case PTX_TMA_3D: return ptx_shape(i, "aarrra") ? begin_bulk : NULL;
    case PTX_TMA_4D: return ptx_shape(i, "aarrrra") ? begin_bulk : NULL;
    case PTX_TMA_3D_ALL: return ptx_shape(i, "aarrrar") ? begin_bulk : NULL;
    default: return NULL;
    }
}
