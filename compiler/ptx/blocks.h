/* Where a block's index goes: a proof of some CTAs is one of all if it reaches only addresses,
 * bounds and selections, so that the others do the same to other elements.
 * Ownership: nothing is kept. */
#ifndef ISOC_PTX_BLOCKS_H
#define ISOC_PTX_BLOCKS_H

#include "inst.h"

/* The first line where a number, or what a kernel stores for others, is computed from the block's
 * index or its rank in a cluster; 0: nowhere, whatever the kernel is launched with. */
int ptx_block_reaches(const PtxKernel *kernel, Arena *arena);

#endif
