// Device side of the GPU suite: fills tensors, compares outputs bit by bit.
#include "values.cuh"

#include "iso_fn.cuh"

// rows x columns elements of bf16, contiguous; logical row = row + shift.
extern "C" __global__ void fill_bf16(unsigned short *out, long long rows, long long columns,
                                     int kind, unsigned seed, unsigned shift)
{
    long long n = rows * columns, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = value_bf16(kind, seed, (unsigned)(i / columns) + shift, (unsigned)(i % columns));
}

extern "C" __global__ void fill_indices(int *out, long long n, unsigned seed, unsigned shift)
{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = value_index(seed, (unsigned)i + shift);
}

// g = bf16(silu(g)) * u, as a gated epilogue rounds it
extern "C" __global__ void gate_bf16(unsigned short *g, const unsigned short *u, long long n)
{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float gate = iso_f32_of_bf16(iso_bf16_of_f32(iso_silu(iso_f32_of_bf16(g[i]))));
        g[i] = iso_bf16_of_f32(iso_mul(gate, iso_f32_of_bf16(u[i])));
    }
}

// Box and Muller's normal values, from two hashes.
extern "C" __global__ void fill_normal(unsigned short *out, long long n, unsigned seed,
                                       float deviation)
{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned low = (unsigned)i, high = (unsigned)(i >> 32);
        float u = (value_hash(seed, high, low) >> 8) * 0x1p-24f + 0x1p-25f;
        float v = (value_hash(seed + 1, high, low) >> 8) * 0x1p-24f;
        out[i] = iso_bf16_of_f32(deviation * sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));
    }
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
