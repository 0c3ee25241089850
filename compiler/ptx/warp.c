/* Warps: lanes in groups by place, always the group that is furthest behind; shuffles and votes.
 * Groups that meet become one. An instruction of the whole warp parks a group until all lanes that
 * take part have come. */
#include "choice.h"
#include "order.h"
#include "race.h"
#include "shadow.h"
#include "tests.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

enum { SHARE = 4096 }; /* instructions in one turn, at most */

/* ---- shuffles and votes -----------------------------------------------------------------------
 */

static int source_of(PtxOp op, int lane, u32 b, u32 c, bool *inside)
{
    int segment = (int)(c >> 8 & 31), clamp = (int)(c & 31);
    int least = lane & segment, most = least | (clamp & ~segment), n = (int)(b & 31), from;
    switch (op) {
    case PTX_SHFL_DOWN: from = lane + n, *inside = from <= most; break;
    case PTX_SHFL_UP: from = lane - n, *inside = from >= most; break;
    case PTX_SHFL_BFLY: from = lane ^ n, *inside = from <= most; break;
    default: from = least | (n & ~segment), *inside = from <= most; break;
    }
    return *inside ? from : lane;
}

int ptx_shuffle_source(const PtxWarp *w, const PtxInst *i, int lane)
{
    bool inside;
    const PtxArg *b = &i->args[i->n_args - 3], *c = &i->args[i->n_args - 2];
    return source_of((PtxOp)i->op, lane, (u32)ptx_value(w, b, lane), (u32)ptx_value(w, c, lane),
                     &inside);
}

/* Whoever takes part must be in the mask that it gives. */
static bool masks(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    const u32 *members = ptx_row32(w, i, i->n_args - 1);
    for (u32 rest = mask; rest; rest &= rest - 1)
        if (!(members[__builtin_ctz(rest)] >> __builtin_ctz(rest) & 1))
            return ptx_fault(c, i, "lane %d is not in the mask that it gives",
                             __builtin_ctz(rest));
    return true;
}

RUN(shuffle)
{
    int first = i->n_args - 4;
    u32 *d = ptx_row32(w, i, 0), *p = first == 2 ? ptx_row32(w, i, 1) : NULL, old[PTX_WARP];
    const u32 *a = ptx_row32(w, i, first), *b = ptx_row32(w, i, first + 1),
              *s = ptx_row32(w, i, first + 2);
    if (!masks(c, w, i, mask))
        return false;
    for (int l = 0; l < PTX_WARP; l++)
        old[l] = a[l];
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        bool inside;
        int from = source_of((PtxOp)i->op, l, b[l], s[l], &inside);
        if (!(mask >> from & 1))
            return ptx_fault(c, i, "lane %d takes from lane %d, which does not take part", l, from);
        d[l] = old[from];
        if (p)
            *p = inside ? *p | 1u << l : *p & ~(1u << l);
    }
    return true;
}

/* bar.warp.sync: lanes that give the same mask meet. */
RUN(meet)
{
    const u32 *members = ptx_row32(w, i, 0);
    u32 same;
    for (u32 rest = mask; rest; rest &= ~same) {
        u32 first = members[__builtin_ctz(rest)];
        same = 0;
        PTX_LANES(rest, same |= (u32)(members[l] == first) << l);
        ptx_race_lanes(c, w, same);
    }
    return masks(c, w, i, mask);
}

RUN(ballot)
{
    u32 *d = ptx_row32(w, i, 0), votes = *ptx_row32(w, i, 1) & mask;
    PTX_LANES(mask, d[l] = votes);
    return masks(c, w, i, mask);
}

RUN(most)
{
    u32 *d = ptx_row32(w, i, 0), value = 0;
    const u32 *a = ptx_row32(w, i, 1);
    (void)c;
    PTX_LANES(mask, value = a[l] > value ? a[l] : value);
    PTX_LANES(mask, d[l] = value);
    return true;
}

RUN(least)
{
    u32 *d = ptx_row32(w, i, 0), value = 0xffffffffu;
    const u32 *a = ptx_row32(w, i, 1);
    (void)c;
    PTX_LANES(mask, value = a[l] < value ? a[l] : value);
    PTX_LANES(mask, d[l] = value);
    return true;
}

RUN(elect)
{
    u32 *d = ptx_row32(w, i, 0), *p = ptx_row32(w, i, 1);
    u32 leader = (u32)__builtin_ctz(mask);
    PTX_LANES(mask, d[l] = leader);
    *p = (*p & ~mask) | 1u << leader;
    return masks(c, w, i, mask);
}

RUN(nothing)
{
    (void)c, (void)w, (void)i, (void)mask;
    return true;
}

RUN(trap)
{
    (void)w, (void)mask;
    return ptx_fault(c, i, "the kernel traps");
}

PtxRun ptx_find_warp(const PtxInst *i)
{
    switch (i->op) {
    case PTX_SHFL_DOWN:
    case PTX_SHFL_UP:
    case PTX_SHFL_BFLY:
    case PTX_SHFL_IDX:
        return ptx_shape(i, "rrrrr") || ptx_shape(i, "rprrrr") ? shuffle : NULL;
    case PTX_BALLOT: return ptx_shape(i, "rpr") ? ballot : NULL;
    case PTX_REDUX_MAX: return ptx_shape(i, "rrr") ? most : NULL;
    case PTX_REDUX_MIN: return ptx_shape(i, "rrr") ? least : NULL;
    case PTX_ELECT: return ptx_shape(i, "rpr") ? elect : NULL;
    case PTX_BAR_WARP: return ptx_shape(i, "r") ? meet : NULL;
    case PTX_DEP_LAUNCH: return i->n_args == 0 ? nothing : NULL;
    case PTX_TRAP: return i->n_args == 0 ? trap : NULL;
    default: return NULL;
    }
}

/* ---- groups -----------------------------------------------------------------------------------
 */

static void merge(PtxWarp *w)
{
    for (int a = 0; a < w->n_groups; a++)
        for (int b = w->n_groups - 1; b > a; b--)
            if (w->group[a].pc == w->group[b].pc) {
                w->group[a].mask |= w->group[b].mask;
                w->group[a].parked = false;
                w->group[b] = w->group[--w->n_groups];
            }
}

/* The group furthest behind of those that may go on; false if none may. */
static bool choose(PtxWarp *w)
{
    w->current = -1;
    for (int g = 0; g < w->n_groups; g++)
        if (!w->group[g].parked &&
            (w->current < 0 || w->group[g].pc < w->group[w->current].pc))
            w->current = g;
    return w->current >= 0;
}

static void settle(PtxWarp *w)
{
    for (int g = 0; g < w->n_groups; g++)
        if (!w->group[g].mask)
            w->group[g--] = w->group[--w->n_groups];
    merge(w);
    if (!choose(w) && w->n_groups) /* whoever was waited for has left */
        w->group[w->current = 0].parked = false;
}

static void branch(PtxWarp *w, PtxGroup *g, const PtxInst *i, u32 taken)
{
    u32 rest = g->mask & ~taken;
    if (!rest) {
        g->pc = i->target;
    } else {
        g->pc++;
        if (taken) {
            g->mask = rest;
            w->group[w->n_groups++] = (PtxGroup){i->target, taken, false};
        }
    }
}

static void leave(PtxWarp *w, PtxGroup *g, u32 mask)
{
    w->alive &= ~mask;
    g->mask &= ~mask;
    g->pc++;
    if (!g->mask)
        settle(w);
    if (!w->alive)
        w->wait = PTX_DONE;
}

/* The lanes without which the instruction cannot run. */
static u32 members(const PtxWarp *w, const PtxInst *i, u32 mask)
{
    switch (i->op) {
    case PTX_SHFL_DOWN:
    case PTX_SHFL_UP:
    case PTX_SHFL_BFLY:
    case PTX_SHFL_IDX:
    case PTX_BALLOT:
    case PTX_REDUX_MAX:
    case PTX_REDUX_MIN:
    case PTX_ELECT:
        return (u32)ptx_value(w, &i->args[i->n_args - 1], __builtin_ctz(mask)) & w->alive;
    default:
        return w->alive;
    }
}

/* Parks the group; false: nobody is left who could bring the missing lanes. */
static bool park(PtxCta *c, PtxWarp *w, PtxGroup *g, const PtxInst *i)
{
    g->parked = true;
    if (choose(w))
        return true;
    return ptx_fault(c, i, "warp %d is divided here and never meets again", w->index);
}

static bool both_ways(PtxCta *c, PtxWarp *w, const PtxInst *i, PtxGroup *g)
{
    if (!ptx_fork(c, w, i, g->mask, &g->pc))
        return false;
    if (w->n_groups > 1)
        settle(w);
    return true;
}

static bool step(PtxCta *c, PtxWarp *w, const PtxInst *i, PtxGroup *g)
{
    u32 mask = g->mask;
    if (i->guarded) {
        u32 p = w->file[i->guard];
        mask &= i->guard_not ? ~p : p;
    }
    if (w->shadow && i->op == PTX_BRA && i->guarded && w->taint[i->guard] & g->mask &&
        !ptx_shadow_tested(c, w, i, g->mask) && !ptx_choice_guard(c, w, i, g->mask))
        return both_ways(c, w, i, g);
    if (w->shadow && !ptx_shadow(c, w, i, mask))
        return false;
    if (w->shadow && i->order && mask && !ptx_order_check(c, w, i, mask))
        return false;
    if (i->op == PTX_BRA) {
        branch(w, g, i, mask);
    } else if (i->op == PTX_RET) {
        leave(w, g, mask);
    } else {
        if (mask && !i->run(c, w, i, mask))
            return false;
        g->pc++;
    }
    if (w->n_groups > 1)
        settle(w);
    return true;
}

bool ptx_warp_turn(PtxCta *c, PtxWarp *w)
{
    const PtxInst *code = c->launch->kernel->code.v;
    int share = c->launch->seed ? (int)(ptx_random(c) % SHARE) + 1 : SHARE;
    for (int n = 0; n < share && w->wait == PTX_READY; n++) {
        PtxGroup *g = &w->group[w->current];
        if (g->pc >= c->launch->kernel->code.n)
            return ptx_fault(c, &code[g->pc - 1], "goes on past the last instruction");
        const PtxInst *i = &code[g->pc];
        u32 need = i->aligned ? members(w, i, g->mask) : 0;
        if ((g->mask & need) != need) {
            if (!park(c, w, g, i))
                return false;
            continue;
        }
        c->report->instructions++;
        if (c->report->covered)
            c->report->covered[g->pc] = 1;
        if (!step(c, w, i, g))
            return false;
        if (w->pause)
            return true;
    }
    return true;
}

/* ---- starting ---------------------------------------------------------------------------------
 */

static void set_specials(PtxCta *c, PtxWarp *w)
{
    const PtxLaunch *a = c->launch;
    const u32 *block = a->block;
    for (int l = 0; l < PTX_WARP; l++) {
        u32 t = (u32)(w->index * PTX_WARP + l);
        const u32 value[PTX_SPECIALS] = {
            t % block[0], t / block[0] % block[1], t / (block[0] * block[1]),
            block[0],     block[1],                block[2],
            c->id[0],     c->id[1],                c->id[2],
            a->grid[0],   a->grid[1],              a->grid[2],
            (u32)l,       (u32)c->rank,
        };
        for (int s = 0; s < PTX_SPECIALS; s++)
            if (a->kernel->special[s])
                w->file[a->kernel->special[s] + (u32)l] = value[s];
    }
}

static void set_consts(const PtxKernel *k, u32 *file)
{
    for (int i = 0; i < k->consts.n; i++) {
        const PtxConst *constant = &k->consts.v[i];
        u32 *row = file + constant->row;
        if (constant->width == 1)
            row[0] = (u32)constant->bits;
        else
            for (int l = 0; l < PTX_WARP; l++)
                if (constant->width == 64)
                    ((u64 *)(void *)row)[l] = constant->bits;
                else
                    row[l] = (u32)constant->bits;
    }
}

static void known_row(PtxWarp *w, u32 row)
{
    memset(w->shadow + row, 0, PTX_WARP * sizeof *w->shadow);
    w->taint[row] = 0;
}

static void start_shadow(const PtxKernel *k, PtxWarp *w)
{
    for (u32 r = 0; r < k->words; r++) {
        w->shadow[r] = (PtxTerms){TERM_UNDEFINED, TERM_UNDEFINED};
        w->taint[r] = 0xffffffffu;
    }
    for (int i = 0; i < k->consts.n; i++)
        known_row(w, k->consts.v[i].row);
    for (int s = 0; s < PTX_SPECIALS; s++)
        known_row(w, k->special[s]);
}

/* Registers begin with a pattern that is no sensible value, so that reading one too early shows. */
void ptx_warp_start(PtxCta *c, PtxWarp *w, int index)
{
    const PtxLaunch *a = c->launch;
    u32 threads = a->block[0] * a->block[1] * a->block[2];
    u32 left = threads - (u32)index * PTX_WARP;
    w->index = index;
    w->wait = PTX_READY;
    w->alive = left >= PTX_WARP ? 0xffffffffu : (1u << left) - 1;
    w->n_groups = 1;
    w->current = 0;
    w->group[0] = (PtxGroup){0, w->alive, false};
    w->pause = w->arrived = false;
    w->meets = 0;
    w->product_commits = 0;
    w->products.n = 0;
    for (int l = 0; l < PTX_WARP; l++)
        w->copy_commits[l] = 0, w->copies[l].n = w->tested[l].n = 0;
    for (u32 r = 0; r < a->kernel->words; r++)
        w->file[r] = 0xffc0dead;
    if (w->shadow)
        start_shadow(a->kernel, w);
    ptx_order_start(c, w);
    set_consts(a->kernel, w->file);
    set_specials(c, w);
}
