// Reductions of many kinds: shuffles over parts of a warp, votes, shared memory, loops that end at
// different times for different lanes.
#include <cuda_runtime.h>

__device__ float number(unsigned bits)
{
    return __uint_as_float((bits & 0x807FFFFFu) | 0x3F000000u);
}

extern "C" __global__ void shuffles(const unsigned *in, unsigned *out)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, v = in[t], lane = threadIdx.x % 32;
    unsigned a = __shfl_down_sync(~0u, v, 3), b = __shfl_up_sync(~0u, v, 5, 16);
    unsigned c = __shfl_xor_sync(~0u, v, 9, 8), d = __shfl_sync(~0u, v, (int)(v >> 7), 32);
    unsigned votes = __ballot_sync(~0u, v & 4), half = 0;
    if (lane < 16)
        half = __shfl_sync(0xFFFFu, v, (int)(lane ^ 5));
    __syncwarp();
    out[t] = a + 3 * b + 5 * c + 7 * d + __popc(votes) * 11 + __clz((int)(votes >> lane)) + half;
}

extern "C" __global__ void tree(const unsigned *in, unsigned *out)
{
    __shared__ float part[4];
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = number(in[t]);
    for (int k = 1; k < 8; ++k)
        sum = __fmaf_rn(number(in[t + 512 * k]), sum, number(in[t + 64 * k]));
    for (int s = 16; s; s >>= 1)
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, s));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    float all = __fmul_rn(__fadd_rn(part[0], part[1]), __fadd_rn(part[2], part[3]));
    out[t] = __float_as_uint(__fdiv_rn(all, __fsqrt_rn(__fmul_rn(sum, sum))));
}

extern "C" __global__ void ways(const unsigned *in, unsigned *out)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, v = in[t], n = v % 37, sum = 0;
    for (unsigned k = 0; k < n; ++k) {
        if ((v >> (k % 32)) & 1) {
            sum = sum * 31 + k;
            if (sum % 97 == 5)
                continue;
        } else if (k % 5 == 3) {
            sum ^= in[(t + k) % 4096];
        }
        ++sum;
    }
    if (v % 11 == 0)
        return;
    out[t] = sum;
}
