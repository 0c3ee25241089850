/* The parts of the tensor-core model that AVX2 makes faster; fdpa.c alone calls them.
 * Owns nothing. Each returns how many elements along k it decoded, 0 without AVX2. */
#ifndef ISOC_FDPA_AVX2_H
#define ISOC_FDPA_AVX2_H

#include "fdpa.h"

/* A row of adjacent bf16 or f16 elements. */
size_t fdpa_row_avx2(FdpaType type, const void *src, size_t k, FdpaElem *row);

/* A whole panel of bf16 or f16, its elements adjacent along k (stride 1) or along rows (ld 1). */
size_t fdpa_panel_avx2(FdpaType type, const void *src, ptrdiff_t ld, ptrdiff_t stride, size_t k,
                       FdpaElem *panel);

#endif
