/* Clusters: addresses of other CTAs' shared memory, arrivals and stores there, and the barrier of
 * all threads of a cluster, whose two halves must follow one another. */
#include "race.h"
#include "shadow.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* A cluster address: the CTA's rank and one, then the address within its shared memory. */
enum { RANK_SHIFT = 24 };

PtxCta *ptx_peer(PtxCta *c, const PtxInst *i, u64 *address)
{
    u64 rank = *address >> RANK_SHIFT;
    *address &= ((u64)1 << RANK_SHIFT) - 1;
    if (rank == 0)
        return c;
    if (rank <= (u64)c->n_peers)
        return c->peer[rank - 1];
    ptx_fault(c, i, "the shared memory of CTA %llu of a cluster of %d",
              (unsigned long long)rank - 1, c->n_peers);
    return NULL;
}

RUN(map_address)
{
    u32 *d = ptx_row32(w, i, 0);
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address = ptx_value(w, &i->args[1], l), rank = ptx_value(w, &i->args[2], l);
        if (address >> RANK_SHIFT || rank >= (u64)c->n_peers)
            return ptx_fault(c, i, "maps %llu into CTA %llu of %d", (unsigned long long)address,
                             (unsigned long long)rank, c->n_peers);
        d[l] = (u32)(address | (rank + 1) << RANK_SHIFT);
    }
    return true;
}

static PtxMbarrier *barrier_at(PtxCta *c, PtxWarp *w, const PtxInst *i, int arg, int l,
                               PtxCta **peer)
{
    u64 address = ptx_value(w, &i->args[arg], l) + (u64)i->args[arg].imm;
    *peer = ptx_peer(c, i, &address);
    if (!*peer)
        return NULL;
    if (*peer == c)
        return ptx_mbarrier(c, i, (u32)address);
    PtxMbarrier *b = ptx_mbarrier_elsewhere(*peer, i, (u32)address);
    if (!b || w->meets > b->meets)
        return b;
    ptx_fault(c, i, "an mbarrier of another CTA, which it has not met since that was made");
    return NULL;
}

RUN(arrive)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        PtxCta *peer;
        PtxMbarrier *b = barrier_at(c, w, i, 1, __builtin_ctz(rest), &peer);
        if (!b)
            return false;
        if (b->pending == 0)
            return ptx_fault(c, i, "more arrivals at an mbarrier than it was made for");
        b->pending--;
        ptx_race_arrive(c, w, rest & -rest, b);
        ptx_mbarrier_bytes(peer, b, 0);
    }
    return true;
}

static void send_terms(PtxCta *peer, PtxWarp *w, const PtxInst *i, int l, u64 address)
{
    u64 terms[8];
    for (int k = 0; k < 4; k++) {
        PtxTerms t = *ptx_terms(w, &i->args[1 + k], l);
        terms[2 * k] = t.lo;
        terms[2 * k + 1] = t.hi;
    }
    ptx_shadow_write(peer, PTX_SHARED, address, 16, terms);
}

RUN(send)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 address = ptx_value(w, &i->args[0], l) + (u64)i->args[0].imm;
        PtxCta *peer = ptx_peer(c, i, &address), *counts;
        u8 *to = peer ? ptx_write_at(peer, i, PTX_SHARED, address, 16) : NULL;
        PtxMbarrier *b = to ? barrier_at(c, w, i, 5, l, &counts) : NULL;
        if (!b)
            return false;
        if (!ptx_race_engine(peer, c, i, address, 16, ptx_race_released(c, w, l)))
            return false;
        if (counts != peer)
            return ptx_fault(c, i, "the barrier lies in another CTA than the data");
        for (int k = 0; k < 4; k++) {
            u32 word = (u32)ptx_value(w, &i->args[1 + k], l);
            memcpy(to + 4 * k, &word, 4);
        }
        if (peer->shared_shadow)
            send_terms(peer, w, i, l, address);
        ptx_race_engine_tells(c, b, ptx_race_released(c, w, l));
        ptx_mbarrier_bytes(peer, b, -16);
    }
    return true;
}

/* ---- the barrier of the cluster */

RUN(arrive_all)
{
    (void)mask;
    if (w->arrived)
        return ptx_fault(c, i, "arrives at the cluster's barrier again before it has waited");
    w->arrived = true;
    if (i->op == PTX_CLUSTER_RELEASE)
        ptx_race_cluster_arrive(c, w);
    return true;
}

RUN(wait_all)
{
    (void)mask;
    if (!w->arrived)
        return ptx_fault(c, i, "waits at the cluster's barrier and has not arrived");
    w->arrived = false;
    w->acquires = i->op == PTX_CLUSTER_ACQUIRE;
    c->changes++;
    w->wait = PTX_AT_BARRIER;
    w->barrier = PTX_BARRIERS;
    return true;
}

void ptx_cluster_release(PtxCta *const *peer, int n)
{
    int waiting = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < peer[k]->n_warps; i++) {
            const PtxWarp *w = &peer[k]->warps[i];
            bool here = w->wait == PTX_AT_BARRIER && w->barrier == PTX_BARRIERS;
            if (!here && w->wait != PTX_DONE)
                return;
            waiting += here;
        }
    if (waiting)
        ptx_race_cluster_meet(peer, n);
    for (int k = 0; waiting && k < n; k++) {
        peer[k]->changes++;
        for (int i = 0; i < peer[k]->n_warps; i++)
            if (peer[k]->warps[i].wait == PTX_AT_BARRIER) {
                peer[k]->warps[i].wait = PTX_READY;
                peer[k]->warps[i].meets++;
            }
    }
}

PtxRun ptx_find_cluster(const PtxInst *i)
{
    switch (i->op) {
    case PTX_MAPA: return ptx_shape(i, "rrr") ? map_address : NULL;
    case PTX_MBAR_ARRIVE_AT: return ptx_shape(i, "sa") ? arrive : NULL;
    case PTX_SEND: return ptx_shape(i, "arrrra") ? send : NULL;
    case PTX_CLUSTER_ARRIVE:
    case PTX_CLUSTER_RELEASE: return i->n_args == 0 ? arrive_all : NULL;
    case PTX_CLUSTER_WAIT:
    case PTX_CLUSTER_ACQUIRE: return i->n_args == 0 ? wait_all : NULL;
    default: return NULL;
    }
}
