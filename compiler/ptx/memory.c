/* Global, shared and parameter memory: bounds, what was never written, loads and stores. */
#include "grid.h"
#include "race.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* ---- regions ----------------------------------------------------------------------------------
 */

void ptx_memory_add(PtxMemory *memory, const PtxRegion *region)
{
    vec_push(memory->arena, &memory->regions, *region);
    int at = memory->regions.n - 1;
    for (; at > 0 && memory->regions.v[at - 1].base > region->base; at--)
        memory->regions.v[at] = memory->regions.v[at - 1];
    memory->regions.v[at] = *region;
}

static bool holds(const PtxRegion *r, u64 address, u32 bytes)
{
    u64 base = (u64)(uintptr_t)r->base;
    return address >= base && address - base <= r->size && r->size - (address - base) >= bytes;
}

const PtxRegion *ptx_region_at(PtxCta *c, u64 address, u32 bytes)
{
    if (c->last && holds(c->last, address, bytes))
        return c->last;
    const PtxMemory *m = c->launch->memory;
    int lo = 0, hi = m->regions.n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if ((u64)(uintptr_t)m->regions.v[mid].base <= address)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || !holds(&m->regions.v[lo - 1], address, bytes))
        return NULL;
    return c->last = &m->regions.v[lo - 1];
}

static u8 *global_at(PtxCta *c, const PtxInst *i, u64 address, u32 bytes, bool write)
{
    const PtxRegion *r = ptx_region_at(c, address, bytes);
    if (!r) {
        ptx_fault(c, i, "%s %u bytes at %#llx, outside of every tensor",
                  write ? "writes" : "reads", bytes, (unsigned long long)address);
        return NULL;
    }
    size_t at = (size_t)(address - (u64)(uintptr_t)r->base);
    if (r->touch)
        r->touch(r->self, at, bytes);
    if (write && !r->writable) {
        ptx_fault(c, i, "writes to %s at byte %zu, which is an input", r->name, at);
        return NULL;
    }
    if (write && r->once && memchr(r->known + at, 1, bytes)) {
        ptx_fault(c, i, "writes %s at byte %zu for the second time", r->name, at);
        return NULL;
    }
    for (u32 k = 0; write && r->known && k < bytes; k++)
        r->known[at + k] |= r->known[at + k] == 0; /* a store's mark stays */
    if (!write && r->known && memchr(r->known + at, 0, bytes)) {
        ptx_fault(c, i, "reads %s at byte %zu, which nobody has written", r->name, at);
        return NULL;
    }
    return r->base + at;
}

static u8 *shared_at(PtxCta *c, const PtxInst *i, u64 address, u32 bytes, bool write)
{
    if (address < PTX_SHARED_BASE || address > c->shared_end || c->shared_end - address < bytes) {
        ptx_fault(c, i, "%s %u bytes of shared memory at %llu, of %u", write ? "writes" : "reads",
                  bytes, (unsigned long long)address, c->shared_end);
        return NULL;
    }
    if (write) {
        memset(c->shared_known + address, 1, bytes);
    } else if (memchr(c->shared_known + address, 0, bytes)) {
        ptx_fault(c, i, "reads shared memory at %llu, which nobody has written",
                  (unsigned long long)address);
        return NULL;
    }
    return c->shared + address;
}

enum { FIRST_WRITER = 2, WRITERS = 254 };

/* Bytes of a workspace that another CTA has stored to: nothing orders the two. Counters are of
 * atomics alone. The mark is a CTA's number, but for 254. */
static bool stored_once(PtxCta *c, const PtxInst *i, u64 address, u32 bytes)
{
    const PtxRegion *r = ptx_region_at(c, address, bytes);
    const u32 *grid = c->launch->grid;
    u64 cta = c->id[0] + (u64)grid[0] * (c->id[1] + (u64)grid[1] * c->id[2]);
    u8 mark = (u8)(FIRST_WRITER + cta % WRITERS);
    if (!r || !r->known || r->once)
        return true;
    u8 *known = r->known + (address - (u64)(uintptr_t)r->base);
    for (u32 k = 0; k < bytes; k++) {
        if (known[k] >= FIRST_WRITER && known[k] != mark)
            return ptx_fault(c, i, "writes %s at byte %llu, as another CTA does", r->name,
                             (unsigned long long)(address + k - (u64)(uintptr_t)r->base));
        known[k] = mark;
    }
    return true;
}

static const u8 *param_at(PtxCta *c, const PtxInst *i, u64 address, u32 bytes)
{
    u64 at = address - PTX_PARAM_BASE;
    u32 size = c->launch->kernel->param_bytes;
    if (at > size || size - at < bytes) {
        ptx_fault(c, i, "reads %u bytes of the parameters at %lld, of %u", bytes, (long long)at,
                  size);
        return NULL;
    }
    return c->param + at;
}

static const u8 *constant_at(PtxCta *c, const PtxInst *i, u64 address, u32 bytes)
{
    u64 at = address - PTX_CONSTANT_BASE;
    u32 size = c->launch->kernel->constant_bytes;
    if (at > size || size - at < bytes) {
        ptx_fault(c, i, "reads %u bytes of the constants at %lld, of %u", bytes, (long long)at,
                  size);
        return NULL;
    }
    return c->launch->kernel->constants + at;
}

u64 ptx_local_place(const PtxCta *c, u64 address, u32 bytes)
{
    u64 at = address - PTX_LOCAL_BASE, thread = at / PTX_LOCAL_MOST;
    u32 size = c->launch->kernel->local_bytes;
    at %= PTX_LOCAL_MOST;
    bool inside = thread < (u64)c->n_warps * PTX_WARP && at <= size && size - at >= bytes;
    return inside ? thread * size + at : UINT64_MAX;
}

static u8 *local_at(PtxCta *c, const PtxInst *i, u64 address, u32 bytes, bool write)
{
    u64 at = ptx_local_place(c, address, bytes);
    if (at == UINT64_MAX) {
        ptx_fault(c, i, "%s %u bytes outside of a thread's own memory", write ? "writes" : "reads",
                  bytes);
        return NULL;
    }
    return c->local + at;
}

static bool misaligned(PtxCta *c, const PtxInst *i, u64 address, u32 bytes)
{
    if (bytes > 16 || address % bytes == 0)
        return false;
    ptx_fault(c, i, "an access of %u bytes at %#llx is not aligned", bytes,
              (unsigned long long)address);
    return true;
}

const u8 *ptx_read_at(PtxCta *c, const PtxInst *i, PtxSpace space, u64 address, u32 bytes)
{
    if (misaligned(c, i, address, bytes))
        return NULL;
    if (space == PTX_SHARED)
        return shared_at(c, i, address, bytes, false);
    if (space == PTX_CONSTANT)
        return constant_at(c, i, address, bytes);
    if (space == PTX_LOCAL)
        return local_at(c, i, address, bytes, false);
    return space == PTX_PARAM ? param_at(c, i, address, bytes)
                              : global_at(c, i, address, bytes, false);
}

const u8 *ptx_operand_at(PtxCta *c, const PtxInst *i, u64 address, u32 bytes, bool *known)
{
    bool inside = address >= PTX_SHARED_BASE && address + bytes <= c->shared_end;
    *known = !inside || !memchr(c->shared_known + address, 0, bytes);
    return *known ? ptx_read_at(c, i, PTX_SHARED, address, bytes) : c->shared + address;
}

u8 *ptx_write_at(PtxCta *c, const PtxInst *i, PtxSpace space, u64 address, u32 bytes)
{
    if (misaligned(c, i, address, bytes))
        return NULL;
    if (space == PTX_SHARED)
        return shared_at(c, i, address, bytes, true);
    if (space == PTX_GLOBAL)
        return global_at(c, i, address, bytes, true);
    if (space == PTX_LOCAL)
        return local_at(c, i, address, bytes, true);
    ptx_fault(c, i, "writes to the parameters, or to constants");
    return NULL;
}

/* ---- loads and stores -------------------------------------------------------------------------
 */

static void put_lane(PtxWarp *w, const PtxArg *arg, int lane, const u8 *from, u32 bytes,
                     bool is_signed)
{
    u64 v = 0;
    memcpy(&v, from, bytes);
    if (is_signed && bytes < 8) {
        int up = 64 - 8 * (int)bytes;
        v = (u64)((i64)(v << up) >> up);
    }
    if (arg->width == 64)
        ((u64 *)(void *)(w->file + arg->row))[lane] = v;
    else
        w->file[arg->row + (u32)lane] = arg->width == 16 ? (u32)(v & 0xffff) : (u32)v;
}

static u32 element_bytes(const PtxInst *i)
{
    return (u32)ptx_bits((PtxType)i->type) / 8;
}

static bool is_signed(const PtxInst *i)
{
    return i->type == PTX_T_S8 || i->type == PTX_T_S16 || i->type == PTX_T_S32;
}

RUN(load)
{
    u32 each = element_bytes(i), n = i->vec ? i->vec : 1;
    const PtxArg *at = &i->args[n];
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address = ptx_address(w, i, at, l);
        const u8 *from = ptx_read_at(c, i, (PtxSpace)i->space, address, each * n);
        if (!from ||
            (i->space == PTX_SHARED && !ptx_race_read(c, w, i, l, address, each * n, NULL)) ||
            (i->space == PTX_GLOBAL && !ptx_grid_load(c, w, i, l, address, each * n)))
            return false;
        for (u32 k = 0; k < n; k++)
            put_lane(w, &i->args[k], l, from + k * each, each, is_signed(i));
    }
    return true;
}

RUN(store)
{
    u32 each = element_bytes(i), n = i->vec ? i->vec : 1;
    const PtxArg *at = &i->args[0];
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address = ptx_address(w, i, at, l);
        u8 *to = ptx_write_at(c, i, (PtxSpace)i->space, address, each * n);
        if (!to ||
            (i->space == PTX_SHARED &&
             !ptx_race_store(c, w, i, mask, l, address, each * n)) ||
            (i->space == PTX_GLOBAL && !stored_once(c, i, address, each * n)))
            return false;
        if (i->space == PTX_GLOBAL)
            ptx_grid_store(c, w, l, address, each * n);
        for (u32 k = 0; k < n; k++) {
            u64 v = ptx_value(w, &i->args[1 + k], l);
            memcpy(to + k * each, &v, each);
        }
    }
    return true;
}

/* ---- atomics: CTAs run one after another, so each is one step */

static bool atomic(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask, bool wraps)
{
    const PtxArg *at = &i->args[1];
    u32 *d = ptx_row32(w, i, 0);
    const u32 *limit = ptx_row32(w, i, 2);
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address = ptx_value(w, at, l) + (u64)at->imm;
        u32 old, now;
        if (!ptx_read_at(c, i, PTX_GLOBAL, address, 4))
            return false;
        u8 *word = ptx_write_at(c, i, PTX_GLOBAL, address, 4);
        if (!word)
            return false;
        memcpy(&old, word, 4);
        now = wraps ? old >= limit[l] ? 0 : old + 1 : old + limit[l];
        memcpy(word, &now, 4);
        d[l] = old;
        ptx_grid_atomic(c, w, l, address);
    }
    return true;
}

RUN(atomic_inc)
{
    return atomic(c, w, i, mask, true);
}

RUN(atomic_add)
{
    return atomic(c, w, i, mask, false);
}

static bool add_shared(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask, u32 *old)
{
    const PtxArg *at = &i->args[old ? 1 : 0];
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address = ptx_value(w, at, l) + (u64)at->imm;
        u32 sum;
        const u8 *from = ptx_read_at(c, i, PTX_SHARED, address, 4);
        u8 *to = from ? ptx_write_at(c, i, PTX_SHARED, address, 4) : NULL;
        if (!to || !ptx_race_add(c, w, i, l, address))
            return false;
        memcpy(&sum, from, 4);
        u32 before = sum;
        sum += (u32)ptx_value(w, at + 1, l);
        if (old)
            old[l] = before;
        memcpy(to, &sum, 4);
    }
    return true;
}

RUN(red_add_32)
{
    return add_shared(c, w, i, mask, NULL);
}

RUN(atom_shared_add)
{
    return add_shared(c, w, i, mask, ptx_row32(w, i, 0));
}

/* Spaces have one address each way here. */
RUN(cvta)
{
    u64 *d = ptx_row64(w, i, 0);
    const u64 *a = ptx_row64(w, i, 1);
    (void)c;
    PTX_LANES(mask, d[l] = a[l]);
    return true;
}

RUN(fence)
{
    if (i->op == PTX_FENCE_PROXY || i->op == PTX_FENCE_PROXY_CTA)
        ptx_race_fence(c, w, PTX_SHOWN, mask);
    if (i->op == PTX_FENCE)
        ptx_grid_fence(c, w, mask);
    for (int k = 0; i->op != PTX_FENCE && k < c->n_mbarriers; k++)
        c->mbarrier[k].fenced = true;
    return true;
}

static bool transfer_fits(const PtxInst *i, bool is_load)
{
    u32 n = i->vec ? i->vec : 1, bits = (u32)ptx_bits((PtxType)i->type);
    if (i->n_args != (int)n + 1 || element_bytes(i) * n > 16)
        return false;
    for (u32 k = 0; k <= n; k++) {
        const PtxArg *arg = &i->args[k];
        bool address = k == (is_load ? n : 0);
        if (address ? arg->kind != PTX_ADDR || arg->width < 32
                    : arg->width < 16 || (arg->width < bits) ||
                          (is_load && arg->kind != PTX_REG) || arg->kind == PTX_ADDR)
            return false;
    }
    return true;
}

PtxRun ptx_find_memory(const PtxInst *i)
{
    switch (i->op) {
    case PTX_LD: return transfer_fits(i, true) ? load : NULL;
    case PTX_ST: return transfer_fits(i, false) ? store : NULL;
    case PTX_ATOM_INC: return ptx_shape(i, "rar") ? atomic_inc : NULL;
    case PTX_ATOM_ADD: return ptx_shape(i, "rar") ? atomic_add : NULL;
    case PTX_RED_ADD_32: return ptx_shape(i, "ar") ? red_add_32 : NULL;
    case PTX_ATOM_SHARED_ADD: return ptx_shape(i, "rar") ? atom_shared_add : NULL;
    case PTX_CVTA:
    case PTX_CVTA_LOCAL:
    case PTX_CVTA_PARAM: return ptx_shape(i, "ll") ? cvta : NULL;
    case PTX_FENCE:
    case PTX_FENCE_PROXY:
    case PTX_FENCE_PROXY_CTA:
    case PTX_FENCE_INIT: return i->n_args == 0 ? fence : NULL;
    default: return NULL;
    }
}
