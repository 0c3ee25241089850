/* A census of a cubin's own instructions against its PTX: what ptxas may add to the arithmetic that
 * the PTX has is known, so a contraction or an approximation of its own would show.
 * Ownership: nothing is kept. */
#ifndef ISOC_CENSUS_H
#define ISOC_CENSUS_H

#include "ptx/ptx.h"

typedef struct CodeCensus {
    int kernels; /* counted */
    int equal;   /* of them, with exactly the expected additions, products, fmas and mma steps */
    int over;    /* with more scalar arithmetic than the PTX and its expansions explain */
} CodeCensus;

/* A line in `report` for each kernel that has too much. NULL, or why the cubin cannot be read. */
const char *census_take(Str cubin, const PtxModule *ptx, CodeCensus *census, Text *report);

#endif
