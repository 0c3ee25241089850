// What group_probe.cu computes on: buffers that grow, values of two kinds, routings with seed 7.
// Owns the buffers, until the process ends.
#ifndef ISO_GROUP_PROBE_CUH
#define ISO_GROUP_PROBE_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "iso_short.cuh"
#include "probe.cuh"

// --- memory and values ---

enum { BUF_A, BUF_B, BUF_OUT, BUF_REF, BUF_WORK, BUF_CHOSEN, BUF_COUNTS, BUF_ORDER, BUF_ITEMS,
       BUF_DIFF, BUF_LIVE, BUF_PLACES, BUF_SORTED, BUFS };
static struct {
    char *ptr;
    size_t bytes;
} buffer[BUFS];

static char *need(int which, size_t bytes) {
    if (buffer[which].bytes < bytes) {
        CHECK(cudaFree(buffer[which].ptr));
        CHECK(cudaMalloc((void **)&buffer[which].ptr, bytes));
        buffer[which].bytes = bytes;
    }
    return buffer[which].ptr;
}

__device__ unsigned mix(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// Bell-shaped over some binades; kind 1: cancelling neighbours, zeros, some Inf and NaN.
__global__ void fill(unsigned short *p, long long n, unsigned seed, int kind) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        unsigned r = mix((unsigned)i * 2 + 1 + seed * 0x1000003), s = mix(r);
        float u = ((r & 0xffff) + (r >> 16) + (s & 0xffff)) / 65536.0f - 1.5f;
        u = ldexpf(u, -3 - (int)(s >> 29));
        unsigned short v = iso_bf16_of_f32(u);
        if (kind == 1) {
            v = s >> 16 & 15 ? v : (unsigned short)(r & 0x807f);
            v = mix(s) % 60013 == 0 ? (unsigned short)(r & 1 ? 0x7fc1 : 0xff80) : v;
        }
        p[i] = v;
    }
}

__global__ void differ(const unsigned *a, const unsigned *b, long long n, unsigned long long *out) {
    unsigned long long count = 0;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        count += a[i] != b[i];
    }
    if (count) {
        atomicAdd(out, count);
    }
}

// --- routings ---

enum Routing { UNIFORM, ZIPF, ONE, FEW, NONE };
static const char *const routing_name[] = {"uniform", "zipf", "one expert", "few", "some none"};

static unsigned long long random_state;

static double draw() {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

// Distinct experts for each token; seed 7. Zipf: expert number i (of a fixed shuffle) has weight
// 1 / (i + 1), drawn without replacement.
static void route(int *chosen, int tokens, int picks, int experts, int kind) {
    double *weight = (double *)malloc(sizeof *weight * experts);
    int *name = (int *)malloc(sizeof *name * experts);
    random_state = 7;
    for (int i = 0; i < experts; ++i) {
        int j = (int)(draw() * (i + 1));
        name[i] = name[j];
        name[j] = i;
    }
    for (int t = 0; t < tokens; ++t) {
        double left = 0;
        for (int i = 0; i < experts; ++i) {
            weight[i] = kind == ZIPF ? 1.0 / (i + 1) : kind == FEW ? (i < picks + 3) : 1.0;
            left += weight[i];
        }
        for (int p = 0; p < picks; ++p) {
            double at = draw() * left;
            int i = 0;
            while (i < experts - 1 && (at -= weight[i]) >= 0) {
                ++i;
            }
            while (weight[i] == 0) {
                i = (i + 1) % experts;
            }
            left -= weight[i];
            weight[i] = 0;
            chosen[t * picks + p] = kind == ONE ? (p ? -1 : 3 % experts)
                                    : kind == NONE && draw() < 0.25 ? -1 : name[i];
        }
    }
    free(weight);
    free(name);
}

#endif
