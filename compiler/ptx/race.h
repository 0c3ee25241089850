/* Races in shared memory: two accesses to a byte by different lanes, or by a lane and the copy
 * engine, one of them a write, with no barrier between them. Each warp has a clock of what all its
 * lanes have seen of the others and of one another, which barriers join, and so has a lane that has
 * seen more than its warp. bar.warp.sync orders the lanes that meet there; shuffles, votes, elect,
 * ldmatrix and mma.sync order no memory. An ldmatrix reads for all lanes of its warp. A copy or a
 * product reads and writes between its issue and its wait, and sees what a lane stored after a
 * fence.proxy.async of who knew of the store; that a product is done is known to every lane that
 * has waited for it.
 * Ownership: everything lives in the arena of the launch. */
#ifndef ISOC_PTX_RACE_H
#define ISOC_PTX_RACE_H

#include "clock.h"

/* All CTAs' clocks and accesses are new. Without terms there are none, and every call below does
 * nothing. */
void ptx_race_start(PtxCta *const *peer, int n);

/* Who reads or writes: a lane; all of its warp; a product of its warp. */
enum { PTX_BY_WARP = PTX_WARP, PTX_BY_PRODUCT };

/* An access now; with `since`, one that may have happened at any time from there on. */
bool ptx_race_read(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane, u64 address,
                   u32 bytes, const PtxClock *since);
/* Of lanes that store together: the same bits, by several of them, are no race. */
bool ptx_race_store(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask, int lane,
                    u64 address, u32 bytes);
/* An atomic addition to a word. */
bool ptx_race_add(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane, u64 address);
/* What a copy of the lane's brings. */
bool ptx_race_copied(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane, u64 address,
                     u32 bytes, const PtxClock *since);
/* What a lane (PTX_BY_WARP: all) has seen so far; NULL where races are not looked for. */
const PtxClock *ptx_race_now(PtxCta *cta, PtxWarp *warp, int lane);
/* The same for who follows the lane, its own accesses among them. */
const PtxClock *ptx_race_released(PtxCta *cta, PtxWarp *warp, int lane);

/* The engine of `by` writes into `cta`: an access `begun` at some time, told to a barrier. */
bool ptx_race_engine(PtxCta *cta, PtxCta *by, const PtxInst *inst, u64 address, u32 bytes,
                     const PtxClock *begun);
void ptx_race_engine_tells(PtxCta *by, PtxMbarrier *barrier, const PtxClock *begun);

/* fence.proxy.async: engines and products see what these lanes know to be stored; and a fence that
 * makes it done for other CTAs. */
void ptx_race_fence(PtxCta *cta, PtxWarp *warp, PtxKind kind, u32 mask);

/* For grid.h: the CTA's first thread; an access of the lane to other memory, which gets an epoch;
 * whether a lane knows of one by a lane of the CTA's. */
u32 ptx_race_first(const PtxCta *cta);
u32 ptx_race_access(PtxCta *cta, PtxWarp *warp, int lane);
bool ptx_race_knows(const PtxCta *cta, const PtxWarp *warp, int lane, const PtxCta *by,
                    u32 by_warp, u32 by_lane, u32 epoch);

/* Barriers. */
void ptx_race_arrive(PtxCta *cta, PtxWarp *warp, u32 mask, PtxMbarrier *barrier);
void ptx_race_complete(PtxCta *cta, PtxMbarrier *barrier);
void ptx_race_wait(PtxCta *cta, PtxWarp *warp, u32 mask, const PtxMbarrier *barrier);
/* bar.sync and bar.arrive at barrier b; then all warps that wait there. */
void ptx_race_bar(PtxCta *cta, PtxWarp *warp, int b);
void ptx_race_meet(PtxCta *cta, int b);
/* bar.warp.sync of these lanes. */
void ptx_race_lanes(PtxCta *cta, PtxWarp *warp, u32 mask);
/* barrier.cluster: an arrival that releases; then all who waited, if they acquire. */
void ptx_race_cluster_arrive(PtxCta *cta, PtxWarp *warp);
void ptx_race_cluster_meet(PtxCta *const *peer, int n);

#endif
