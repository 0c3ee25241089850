// Device side of the GPU suite: fills tensors, compares outputs bit by bit.
#include "values.cuh"

// rows x columns elements of bf16, contiguous; logical row = row + shift.
extern "C" __global__ void fill_bf16(unsigned short *out, long long rows, long long columns,
                                     int kind, unsigned seed, unsigned shift)
{
    long long n = rows * columns, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = value_bf16(kind, seed, (unsigned)(i / columns) + shift, (unsigned)(i % columns));
}

// found[0] += elements that differ, found[1] = min(index of one that differs)
extern "C" __global__ void compare_u16(const unsigned short *a, const unsigned short *b,
                                       long long n, unsigned long long *found)
{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        if (a[i] != b[i]) {
            atomicAdd(&found[0], 1ull);
            atomicMin(&found[1], (unsigned long long)i);
        }
}
