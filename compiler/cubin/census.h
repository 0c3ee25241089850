/* A census of a cubin's own instructions against its PTX: what ptxas may add to the arithmetic that
 * the PTX has is known, so a contraction or an approximation of its own would show.
 * Ownership: nothing is kept. */
#ifndef ISOC_CENSUS_H
#define ISOC_CENSUS_H

#include "ptx/ptx.h"

typedef struct CodeCensus {
    int kernels; /* counted */
    int equal;   /* of them, with exactly the expected additions, products, fmas and mma steps */
    int twice;   /* with more of additions, products and fmas alike: ptxas has laid out a part of
                    their code more than once, where a contraction would take additions and products
                    away */
    int over;    /* with more scalar arithmetic than the PTX, its expansions and that explain */
} CodeCensus;

/* A line in `report` for each kernel that has more than its PTX explains. NULL, or why the cubin
 * cannot be read. */
const char *census_take(Str cubin, const PtxModule *ptx, CodeCensus *census, Text *report);

#endif
