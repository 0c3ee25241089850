/* Grids: CTA after CTA, its warps in turns. */
#include "grid.h"
#include "order.h"
#include "race.h"
#include "term.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_fault(PtxCta *c, const PtxInst *i, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    Str finding = str_format(c->report->arena, "%.*s, CTA (%u, %u, %u), PTX line %d: %s: %s",
                             STR_FMT(c->launch->kernel->name), c->id[0], c->id[1], c->id[2],
                             i ? i->line : 0, i ? ptx_op_name((PtxOp)i->op) : "the grid", text);
    if (!c->failed)
        vec_push(c->report->arena, &c->report->findings, finding);
    c->failed = true;
    return false;
}

u64 ptx_random(PtxCta *c)
{
    u64 x = c->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- one CTA ----------------------------------------------------------------------------------
 */

static size_t local_bytes(const PtxCta *c)
{
    return (size_t)c->n_warps * PTX_WARP * c->launch->kernel->local_bytes;
}

static void start_cta(PtxCta *c)
{
    c->failed = false;
    c->n_mbarriers = c->bulk.n = 0;
    c->changes = 0;
    c->random = c->launch->seed + c->id[0] + ((u64)c->id[1] << 20) + ((u64)c->id[2] << 40);
    memset(c->barrier, 0, sizeof c->barrier);
    memset(c->shared_known, 0, c->shared_end);
    memset(c->shared, 0xa5, c->shared_end);
    memset(c->local, 0xa5, local_bytes(c));
    for (size_t k = 0; c->local_shadow && k < local_bytes(c) / 2; k++)
        c->local_shadow[k] = TERM_UNDEFINED;
    if (c->shared_shadow)
        memset(c->shared_shadow, 0, (c->shared_end / 2 + 8) * sizeof *c->shared_shadow);
    for (int w = 0; w < c->n_warps; w++)
        ptx_warp_start(c, &c->warps[w], w);
}

/* True while some warp runs; *idle counts rounds in which all of them only polled. */
static bool run_round(PtxCta *c, int *idle)
{
    u64 before = c->changes;
    int live = 0, polled = 0;
    int first = c->launch->seed ? (int)(ptx_random(c) % (u64)c->n_warps) : 0;
    for (int k = 0; k < c->n_warps; k++) {
        PtxWarp *w = &c->warps[(first + k) % c->n_warps];
        live += w->wait != PTX_DONE;
        w->pause = false;
        if (w->wait == PTX_READY && !ptx_warp_turn(c, w))
            return false;
        polled += w->pause || w->wait != PTX_READY;
    }
    ptx_barrier_release(c);
    ptx_order_release(c);
    if (!ptx_bulk_turn(c))
        return false;
    *idle = c->changes == before && polled == c->n_warps ? *idle + 1 : 0;
    return live > 0;
}

static void say_deadlock(PtxCta *c)
{
    for (int k = 0; k < c->n_warps; k++) {
        const PtxWarp *w = &c->warps[k];
        if (w->wait == PTX_DONE)
            continue;
        const PtxInst *i = &c->launch->kernel->code.v[w->group[w->current].pc];
        ptx_fault(c, i, "warp %d waits here for ever", k);
        return;
    }
}

static void check_end(PtxCta *c)
{
    for (int k = 0; k < c->n_warps && !c->failed; k++)
        if (c->warps[k].products.n)
            ptx_fault(c, c->warps[k].products.v[0].inst, "is never waited for");
    if (c->bulk.n && !c->failed)
        ptx_fault(c, c->bulk.v[0].inst, "still copies when the CTA ends");
    const PtxKernel *kernel = c->launch->kernel;
    for (int b = 0; b < c->n_mbarriers && c->launch->copy_turns && !c->failed; b++)
        if (c->mbarrier[b].copied > c->mbarrier[b].waited)
            ptx_fault(c, &kernel->code.v[kernel->code.n - 1],
                      "the CTA ends, and nobody has waited for a copy to mbarrier %d", b);
}

static bool any_failed(PtxCta *const *peer, int n)
{
    bool failed = false;
    for (int k = 0; k < n; k++)
        failed |= peer[k]->failed;
    return failed;
}

/* One round of each CTA. True while some warp runs; *idle: rounds in which all only polled. */
static bool run_rounds(PtxCta *const *peer, int n, int *idle)
{
    bool live = false, all_idle = true;
    for (int k = 0; k < n && !any_failed(peer, n); k++) {
        int own = 0;
        live |= run_round(peer[k], &own);
        all_idle &= own > 0;
    }
    ptx_cluster_release(peer, n);
    *idle = all_idle ? *idle + 1 : 0;
    return live && !any_failed(peer, n);
}

static bool run_cluster(PtxCta *const *peer, int n)
{
    int idle = 0;
    u64 limit = peer[0]->launch->limit * (u64)n, start = peer[0]->report->instructions;
    for (int k = 0; k < n; k++)
        start_cta(peer[k]);
    ptx_race_start(peer, n);
    for (int k = 0; k < n; k++) {
        peer[k]->grid = peer[0]->grid;
        ptx_grid_start(peer[k]);
    }
    while (run_rounds(peer, n, &idle))
        if (idle > 3 || (limit && peer[0]->report->instructions - start > limit)) {
            for (int k = 0; k < n && !any_failed(peer, n); k++)
                say_deadlock(peer[k]);
            break;
        }
    for (int k = 0; k < n && !any_failed(peer, n); k++)
        check_end(peer[k]);
    PtxReport *report = peer[0]->report;
    u64 each = (report->instructions - start) / (u64)n;
    report->ctas += (u64)n;
    report->longest = each > report->longest ? each : report->longest;
    return !any_failed(peer, n);
}

/* ---- the grid ---------------------------------------------------------------------------------
 */

static void read_params(PtxCta *c)
{
    const PtxKernel *k = c->launch->kernel;
    for (int i = 0; i < k->n_params; i++)
        memcpy(c->param + k->params[i].offset, c->launch->params[i], k->params[i].size);
}

/* Rows of registers are read by vector instructions: the file begins at a cache line. */
static u32 *new_file(Arena *arena, u32 words)
{
    u8 *bytes = arena_alloc(arena, (size_t)words * 4 + 64);
    return (u32 *)(void *)(bytes + (64 - (uintptr_t)bytes % 64) % 64);
}

static bool open_cta(PtxCta *c)
{
    const PtxLaunch *a = c->launch;
    u32 threads = a->block[0] * a->block[1] * a->block[2];
    u64 shared = (u64)a->kernel->shared_static + a->shared_bytes;
    if (threads == 0 || threads > 1024 ||
        (a->kernel->max_threads && threads > a->kernel->max_threads))
        return ptx_fault(c, NULL, "launched with %u threads", threads);
    if (shared > PTX_MAX_SHARED)
        return ptx_fault(c, NULL, "launched with %u bytes of shared memory", a->shared_bytes);
    c->shared_end = (u32)shared;
    c->shared = arena_alloc(c->arena, shared + 16);
    c->shared_known = arena_alloc(c->arena, shared + 16);
    if (a->terms)
        c->shared_shadow = arena_array(c->arena, u64, shared / 2 + 8);
    c->n_warps = (int)(threads + PTX_WARP - 1) / PTX_WARP;
    c->local = arena_alloc(c->arena, local_bytes(c) + 16);
    if (a->terms)
        c->local_shadow = arena_array(c->arena, u64, local_bytes(c) / 2 + 8);
    c->param = arena_alloc(c->arena, a->kernel->param_bytes + 16);
    c->warps = arena_array(c->arena, PtxWarp, c->n_warps);
    for (int w = 0; w < c->n_warps; w++) {
        c->warps[w].file = new_file(c->arena, a->kernel->words);
        if (a->terms) {
            c->warps[w].shadow = arena_array(c->arena, PtxTerms, a->kernel->words);
            c->warps[w].taint = arena_array(c->arena, u32, a->kernel->words);
            ptx_order_open(c, &c->warps[w]);
        }
    }
    read_params(c);
    return true;
}

/* The clusters that have a CTA which is wanted. */
static bool place_cluster(PtxCta *const *peer, int n, u32 x, u32 y, u32 z)
{
    const PtxLaunch *a = peer[0]->launch;
    bool wanted = !a->wanted;
    for (int k = 0; k < n; k++) {
        u32 *id = peer[k]->id;
        id[0] = x + (u32)k, id[1] = y, id[2] = z;
        wanted = wanted || a->wanted(a->wanted_self, id);
    }
    return wanted;
}

static void run_all(PtxCta *const *peer, int n)
{
    const PtxLaunch *a = peer[0]->launch;
    if (a->grid[0] % (u32)n) {
        ptx_fault(peer[0], NULL, "%u CTAs in clusters of %d", a->grid[0], n);
        return;
    }
    for (u32 z = 0; z < a->grid[2]; z++)
        for (u32 y = 0; y < a->grid[1]; y++)
            for (u32 x = 0; x < a->grid[0]; x += (u32)n)
                if (place_cluster(peer, n, x, y, z) && !run_cluster(peer, n))
                    return;
}

static bool open_cluster(const PtxLaunch *launch, PtxReport *report, PtxCta *ctas, PtxCta **peer,
                         Arena *arena)
{
    int n = (int)launch->kernel->cluster;
    for (int k = 0; k < n; k++) {
        peer[k] = &ctas[k];
        ctas[k] = (PtxCta){.launch = launch, .report = report, .arena = arena, .rank = k,
                           .n_peers = n, .peer = peer};
    }
    for (int k = 0; k < n; k++)
        if (!open_cta(peer[k]))
            return false;
    return true;
}

bool ptx_run(const PtxLaunch *launch, PtxReport *report)
{
    Arena *arena = arena_new();
    if (!arena)
        return false;
    jmp_buf oom;
    int n = (int)launch->kernel->cluster;
    PtxCta *ctas = calloc((size_t)n, sizeof *ctas), *peer[PTX_CLUSTER_MAX];
    volatile bool ok = false;
    if (ctas && !setjmp(oom)) {
        arena_on_oom(arena, &oom);
        if (open_cluster(launch, report, ctas, peer, arena))
            run_all(peer, n);
        ok = !any_failed(peer, n);
    }
    free(ctas);
    arena_free(arena);
    return ok;
}
