/* Terms of memory: leaves of inputs, and what was stored. */
#include "shadow.h"

static void read_region(const PtxRegion *r, u64 address, u32 bytes, u64 *terms)
{
    u64 at = address - (u64)(uintptr_t)r->base;
    for (u32 k = 0; k < bytes / 2; k++, at += 2) {
        if (r->shadow)
            terms[k] = r->shadow[at / 2];
        else if (!r->input)
            terms[k] = TERM_CONCRETE;
        else
            terms[k] = at % r->element ? TERM_WHOLE : ptx_term_leaf(r->input, at / r->element);
    }
}

/* Of shared memory and a thread's own; NULL: what has no terms. */
static u64 *shadow_at(PtxCta *c, PtxSpace space, u64 address, u32 bytes)
{
    if (space == PTX_SHARED && address <= c->shared_end && c->shared_end - address >= bytes)
        return c->shared_shadow + address / 2;
    u64 at = space == PTX_LOCAL ? ptx_local_place(c, address, bytes) : UINT64_MAX;
    return at == UINT64_MAX ? NULL : c->local_shadow + at / 2;
}

void ptx_shadow_read(PtxCta *c, PtxSpace space, u64 address, u32 bytes, u64 *terms)
{
    const PtxRegion *r = space == PTX_GLOBAL ? ptx_region_at(c, address, bytes) : NULL;
    if (r)
        read_region(r, address, bytes, terms);
    const u64 *from = r ? NULL : shadow_at(c, space, address, bytes);
    for (u32 k = 0; !r && k < bytes / 2; k++)
        terms[k] = from ? from[k] : TERM_CONCRETE;
}

void ptx_shadow_write(PtxCta *c, PtxSpace space, u64 address, u32 bytes, const u64 *terms)
{
    const PtxRegion *r = space == PTX_GLOBAL ? ptx_region_at(c, address, bytes) : NULL;
    u64 *to = shadow_at(c, space, address, bytes); /* outside: the number's write is the finding */
    for (u32 k = 0; k < bytes / 2; k++)
        if (to)
            to[k] = terms[k];
        else if (r && r->shadow)
            r->shadow[(address - (u64)(uintptr_t)r->base) / 2 + k] = terms[k];
}

void ptx_shadow_copy(PtxCta *c, u32 to, u64 from, u32 bytes)
{
    u64 terms[8];
    ptx_shadow_read(c, PTX_GLOBAL, from, bytes, terms);
    ptx_shadow_write(c, PTX_SHARED, to, bytes, terms);
}

void ptx_shadow_clear(PtxCta *c, u32 to, u32 bytes)
{
    static const u64 none[8];
    ptx_shadow_write(c, PTX_SHARED, to, bytes, none);
}

/* ---- loads and stores -------------------------------------------------------------------------
 */

static bool address_of(PtxCta *c, PtxWarp *w, const PtxInst *i, const PtxArg *at, int l,
                       u64 *address)
{
    if (w->taint[at->row] >> l & 1)
        return ptx_fault(c, i, "an address that depends on an input, or on nothing");
    *address = ptx_address(w, i, at, l);
    return true;
}

/* The terms of a word that has one of its own, or none. */
static bool is_whole(const u64 *halves)
{
    return halves[0] ? halves[1] == TERM_WHOLE : !halves[1];
}

static void put_word(u64 *halves, u64 term)
{
    halves[0] = term;
    halves[1] = term ? TERM_WHOLE : TERM_CONCRETE;
}

bool ptx_shadow_load(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    u32 each = (u32)ptx_bits((PtxType)i->type) / 8, n = i->vec ? i->vec : 1;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address, terms[8] = {0};
        if (!address_of(c, w, i, &i->args[n], l, &address) ||
            !ptx_read_at(c, i, (PtxSpace)i->space, address, each * n))
            return false;
        if (each > 1)
            ptx_shadow_read(c, (PtxSpace)i->space, address, each * n, terms);
        for (u32 k = 0; k < n; k++) {
            const u64 *t = &terms[k * each / 2];
            PtxTerms pair = {t[0], each == 4 ? t[1] : each == 8 ? t[2] : TERM_CONCRETE};
            bool words = is_whole(t) && is_whole(t + 2) && c->launch->choices;
            if (each == 8 && (t[0] | t[1] | t[2] | t[3]) && !words)
                return ptx_fault(c, i, "loads 64 bits that depend on an input");
            ptx_set_terms(w, &i->args[k], l, pair);
        }
    }
    return true;
}

bool ptx_shadow_store(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    u32 each = (u32)ptx_bits((PtxType)i->type) / 8, n = i->vec ? i->vec : 1;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address, terms[8] = {0};
        if (!address_of(c, w, i, &i->args[0], l, &address))
            return false;
        for (u32 k = 0; k < n; k++) {
            PtxTerms t = *ptx_terms(w, &i->args[1 + k], l);
            if (each == 2 && t.hi == TERM_WHOLE)
                return ptx_fault(c, i, "stores half of a float");
            terms[k * each / 2] = t.lo;
            if (each == 4)
                terms[k * 2 + 1] = t.hi;
            if (each == 8) {
                put_word(&terms[k * 4], t.lo);
                put_word(&terms[k * 4 + 2], t.hi);
            }
        }
        if (each > 1)
            ptx_shadow_write(c, (PtxSpace)i->space, address, each * n, terms);
    }
    return true;
}
