/* Races in shared memory: two accesses to a byte by different warps, or by a warp and the copy
 * engine, one of them a write, with no barrier between them. Each warp has a clock of what it has
 * seen of the others, which barriers join; a copy or a product reads and writes between its issue
 * and its wait, and sees what a warp stored after a fence.proxy.async. Lanes of one warp are not
 * told apart.
 * Ownership: everything lives in the arena of the launch. */
#ifndef ISOC_PTX_RACE_H
#define ISOC_PTX_RACE_H

#include "machine.h"

/* All CTAs' clocks and accesses are new. Without terms there are none, and every call below does
 * nothing. */
void ptx_race_start(PtxCta *const *peer, int n);

/* A warp's own access now; with `since`, one that may have happened at any time from there on. */
bool ptx_race_read(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u64 address, u32 bytes,
                   const u32 *since);
bool ptx_race_write(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u64 address, u32 bytes,
                    const u32 *since);
/* What the warp has seen so far; NULL where races are not looked for. */
const u32 *ptx_race_now(PtxCta *cta, PtxWarp *warp);

/* The engine of `by` writes into `cta`: an access `begun` at some time, told to a barrier. */
bool ptx_race_engine(PtxCta *cta, PtxCta *by, const PtxInst *inst, u64 address, u32 bytes,
                     const u32 *begun);
void ptx_race_engine_tells(PtxCta *by, PtxMbarrier *barrier, const u32 *begun);

/* fence.proxy.async: engines and products see what the warp knows to be stored. */
void ptx_race_proxy(PtxCta *cta, PtxWarp *warp);

/* For grid.h. A fence makes done what the warp knows to be stored; done ones, by warps of the CTA;
 * the warp's epoch now; a new one; whether it knows of another warp's. */
void ptx_race_fence(PtxCta *cta, PtxWarp *warp);
const u32 *ptx_race_done(PtxCta *cta, PtxWarp *warp);
u32 ptx_race_epoch(const PtxCta *cta, const PtxWarp *warp);
void ptx_race_tick(PtxCta *cta, PtxWarp *warp);
bool ptx_race_knows(const PtxCta *cta, const PtxWarp *warp, u32 other, u32 epoch);

/* Barriers. */
void ptx_race_arrive(PtxCta *cta, PtxWarp *warp, PtxMbarrier *barrier);
void ptx_race_complete(PtxCta *cta, PtxMbarrier *barrier);
void ptx_race_wait(PtxCta *cta, PtxWarp *warp, const PtxMbarrier *barrier);
/* bar.sync and bar.arrive at barrier b; then all warps that wait there. */
void ptx_race_bar(PtxCta *cta, PtxWarp *warp, int b);
void ptx_race_meet(PtxCta *cta, int b);
/* barrier.cluster: an arrival that releases; then all who waited, if they acquire. */
void ptx_race_cluster_arrive(PtxCta *cta, PtxWarp *warp);
void ptx_race_cluster_meet(PtxCta *const *peer, int n);

#endif
