/* Orders between CTAs: who reads what another CTA has stored to a workspace must know, by a
 * counter, that it was stored. A fence of the device makes stores done that a lane knows of; an
 * atomic tells its counter what is done, and learns, once a fence follows, what others told it. The
 * CTAs run one after another, so that without this any order would do.
 * Ownership: everything lives in the arena of the launch. */
#ifndef ISOC_PTX_GRID_H
#define ISOC_PTX_GRID_H

#include "machine.h"

/* After a store to a region that is no result. */
void ptx_grid_store(PtxCta *cta, PtxWarp *warp, int lane, u64 address, u32 bytes);
/* Before a load; false on a finding. */
bool ptx_grid_load(PtxCta *cta, const PtxWarp *warp, const PtxInst *inst, int lane, u64 address,
                   u32 bytes);
void ptx_grid_atomic(PtxCta *cta, PtxWarp *warp, int lane, u64 address);
void ptx_grid_fence(PtxCta *cta, PtxWarp *warp, u32 mask);
/* A CTA begins, which knows of nothing. */
void ptx_grid_start(PtxCta *cta);

#endif
