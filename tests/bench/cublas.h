/* cublasLt, opened at run time: the yardstick of bench_gemm.
 * Ownership: a Yardstick lives until cublas_close; buffers are the caller's. */
#ifndef BENCH_CUBLAS_H
#define BENCH_CUBLAS_H

#include "gpu.h"

#include <stdbool.h>

/* y[m, n] = a * b, all row-major bf16, y bf16 or f32; a is [m, k], or [k, m] if k_outer; b is
 * [n, k], or [k, n] if transposed. With c, of y's shape and type, y = a * b + c.
 * The i-th launch takes the b of copy i % copies, `b_step` bytes apart. */
typedef struct Product {
    int64_t m, n, k;
    bool k_outer, transposed, f32;
    DevicePtr a, b, c, y;
    size_t b_step;
    int copies, launches;
} Product;

typedef struct Yardstick Yardstick;

/* NULL and a message if there is no cublasLt. */
Yardstick *cublas_open(void);
void cublas_close(Yardstick *yardstick);
size_t cublas_version(const Yardstick *yardstick);
/* A graph of `launches` products by the fastest of the library's heuristics; *tried: how many. */
void *cublas_record(Yardstick *yardstick, const Product *product, int *tried);

#endif
