/* Orders beside those of shared memory: what a grid may touch before it has waited for the grid
 * before, registers that wgmma takes, and how many registers a CTA has to share out.
 * Ownership: the state belongs to warps and CTAs. */
#ifndef ISOC_PTX_ORDER_H
#define ISOC_PTX_ORDER_H

#include "machine.h"

/* What of an instruction must be looked at. */
enum { PTX_ORDER_GLOBAL = 1, PTX_ORDER_PRODUCT = 2 };

/* Finds these of all instructions of a kernel that is complete. */
void ptx_order_mark(PtxKernel *kernel, Arena *arena);

void ptx_order_open(PtxCta *cta, PtxWarp *warp);  /* once for a launch */
void ptx_order_start(PtxCta *cta, PtxWarp *warp); /* for each CTA */
/* Before an instruction with marks runs in these lanes; false on a finding. */
bool ptx_order_check(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);

/* Warps that wait for registers go on where there are enough. */
void ptx_order_release(PtxCta *cta);

#endif
