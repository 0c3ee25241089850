// What the product probe runs: buffers and their values, a problem laid out in them, a launch of a
// subject's variant or of its reference.
// The buffers are the program's own and last as long as it does.
#ifndef GEMM_PROBE_LAUNCH_CUH
#define GEMM_PROBE_LAUNCH_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm_probe.cuh"
#include "probe.cuh"

// --- buffers: one of each kind, grown on demand ---

enum { BUF_A, BUF_B, BUF_RES, BUF_OUT, BUF_REF, BUF_WORK, BUF_COUNT, BUF_ROOTS, BUF_ROWS, BUF_DIFF,
       BUFS };
static struct {
    char *ptr;
    size_t bytes;
} buffer[BUFS];

static cudaStream_t stream;     // the default one, except while a graph is captured
static int copies = 1;          // of the weights, so that timing does not measure the cache

static char *need(int which, size_t bytes) {
    if (buffer[which].bytes < bytes) {
        CHECK(cudaFree(buffer[which].ptr));
        CHECK(cudaMalloc((void **)&buffer[which].ptr, bytes));
        CHECK(cudaMemset(buffer[which].ptr, 0, bytes));
        buffer[which].bytes = bytes;
    }
    return buffer[which].ptr;
}

// --- values ---

__device__ unsigned long long mix(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

__device__ unsigned short special(unsigned r, bool f16) {
    const unsigned short bf[] = {0x7fc1, 0xffff, 0x7f80, 0xff80, 0x7f7f, 0xff7f, 0x0001, 0x8000};
    const unsigned short hf[] = {0x7e01, 0xffff, 0x7c00, 0xfc00, 0x7bff, 0xfbff, 0x0001, 0x8000};
    return f16 ? hf[r & 7] : bf[r & 7];
}

// kind 0: normal; 1: 24 binades with cancelling neighbours, zeros and subnormals; 2: sparse NaN,
// Inf, extremes; 3: products near the subnormal range; 4: any bits at all.
__device__ unsigned short value(unsigned long long i, unsigned long long seed, int kind, bool f16,
                                bool negate) {
    unsigned long long r = mix(i * 2 + 1 + seed * 0x1000003);
    float u = ((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff)) / 65536.0f - 1.5f;
    if (kind == 4) {
        return (unsigned short)r;
    }
    if (kind == 2 && r % 6007 == 0) {
        return special(r >> 40, f16);
    }
    if (kind == 1 && r >> 58 == 0) {
        return (unsigned short)(r >> 20 & 0x807f);
    }
    if (kind == 1 && (i & 1) && (r >> 50 & 1)) {
        unsigned short v = value(i - 1, seed, kind, f16, negate);
        return negate ? v ^ 0x8000 : v;
    }
    if (kind == 1) {
        u = ldexpf(u, (int)(r >> 48 & 15) + (f16 ? -10 : -8));
    }
    if (kind == 3) {
        u = ldexpf(u, f16 ? -9 : -70 + (int)(r >> 48 & 7));
    }
    return f16 ? iso_f16_of_f32(u) : iso_bf16_of_f32(u);
}

__global__ void fill(unsigned short *p, long long n, unsigned long long seed, int kind, bool f16,
                     bool negate) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        p[i] = value(i, seed, kind, f16, negate);
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

__global__ void touched(const unsigned *a, unsigned poison, long long n, unsigned long long *out) {
    unsigned long long count = 0;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        count += a[i] != poison;
    }
    atomicAdd(out, count);
}

static unsigned long long count_of(bool reset) {
    unsigned long long *d = (unsigned long long *)need(BUF_DIFF, 8), h = 0;
    if (reset) {
        CHECK(cudaMemset(d, 0, 8));
    } else {
        CHECK(cudaMemcpy(&h, d, 8, cudaMemcpyDeviceToHost));
    }
    return h;
}

// --- one problem ---

struct Problem {
    int rows, spare;                // spare: rows allocated beyond the live ones
    int columns[ISO_GEMM_GROUPS];
    int leaf[ISO_GEMM_LEAVES];      // lengths
    int a_pad, b_pad, out_pad;      // added to the strides
    int kind;
};

struct Layout {
    IsoGemmArgs args;
    size_t out_bytes, b_bytes;
};

static void fill_buffer(char *p, long long n, unsigned seed, const Subject &s, int kind, bool neg) {
    fill<<<1024, 256>>>((unsigned short *)p, n, seed, kind, s.f16, neg);
}

// Places the operands of a problem and its outputs in `out`.
static Layout place(const Subject &s, const Problem &q, char *out, bool write) {
    Layout l;
    memset(&l, 0, sizeof l);
    IsoGemmArgs &a = l.args;
    a.leaves = s.leaves;
    for (int i = 0; i < s.leaves; ++i) {
        a.leaf_begin[i + 1] = a.leaf_begin[i] + q.leaf[i];
    }
    int k = a.leaf_begin[s.leaves], lines = q.rows + q.spare;
    a.rows = q.rows;
    a.a_stride = (s.a_trans ? (lines + 7) / 8 * 8 : k) + q.a_pad;
    long long na = a.a_stride * (s.a_trans ? k : lines), nb = 0, nout = 0;
    a.a = need(BUF_A, na * 2 + 64);
    for (int g = 0; g < s.groups; ++g) {
        int n = q.columns[g];
        long long stride = (s.b_trans ? (n + 7) / 8 * 8 : k) + q.b_pad;
        for (int p = 0; p < s.parts; ++p) {
            a.group[g].b_stride[p] = stride;
            a.group[g].b[p] = (void *)(nb * 2);
            nb += (stride * (s.b_trans ? k : n) + 63) / 64 * 64;
        }
        a.group[g].columns = n;
        IsoView &y = a.group[g].result[0];
        y.stride[0] = n + q.out_pad;
        y.stride[1] = 1;
        y.ptr = out ? out + nout * 2 : 0;
        a.group[g].operand[0].ptr = need(BUF_RES, (size_t)lines * (n + q.out_pad) * 2);
        a.group[g].operand[0].stride[0] = n + q.out_pad;
        a.group[g].operand[0].stride[1] = 1;
        nout += ((n + q.out_pad) * (long long)lines + 63) / 64 * 64;
        if (s.roots) {
            a.group[g].root_row_stride = n + q.out_pad;
            a.group[g].root_stride = a.group[g].root_row_stride * lines;
            a.group[g].roots = (float *)out;
            nout = a.group[g].root_stride * 2 * s.leaves;
        }
    }
    char *b = need(BUF_B, nb * 2 * copies + 64);
    for (int i = 0; i < s.groups * s.parts; ++i) {
        const void *&p = a.group[i / s.parts].b[i % s.parts];
        p = b + (size_t)p;
    }
    if (write) {
        fill_buffer(need(BUF_A, 0), na, 1 + q.rows, s, q.kind, true);
        fill_buffer(b, nb * copies, 2, s, q.kind, false);
        fill_buffer(need(BUF_RES, 0), (long long)buffer[BUF_RES].bytes / 2, 3, s, 0, false);
    }
    l.b_bytes = nb * 2;
    l.out_bytes = (nout * 2 + 3) / 4 * 4;
    return l;
}

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void encode(IsoTensorMap *map, const Subject &s, const void *ptr, bool k_outer, int lines,
                   long long stride, int leaf, int leaves, int box) {
    static Encode entry;
    if (!entry) {
        cudaDriverEntryPointQueryResult r;
        CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&entry, 12000,
                                               cudaEnableDefault, &r));
    }
    cuuint64_t dims[3] = {(cuuint64_t)leaf, (cuuint64_t)leaves, (cuuint64_t)lines};
    cuuint64_t strides[2] = {(cuuint64_t)(leaves > 1 ? leaf * 2 : 16), (cuuint64_t)stride * 2};
    cuuint32_t boxes[3] = {64, 1, (cuuint32_t)box}, ones[3] = {1, 1, 1};
    if (k_outer) {
        dims[0] = lines, dims[1] = leaf, dims[2] = leaves;
        strides[0] = stride * 2, strides[1] = (cuuint64_t)leaf * stride * 2;
        boxes[1] = 64, boxes[2] = 1;
    }
    CUresult r = entry((CUtensorMap *)map,
                       s.f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                       3, (void *)ptr, dims, strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", (int)r);
        exit(1);
    }
}

static bool map_fits(const void *ptr, long long stride) {
    return (size_t)ptr % 16 == 0 && stride % 8 == 0;
}

// What the wgmma kernel needs, as iso_abi.cuh has it.
static bool wgmma_fits(const Subject &s, const IsoGemmArgs &a) {
    bool fits = map_fits(a.a, a.a_stride);
    for (int i = 0; i < s.groups * s.parts; ++i) {
        const IsoGemmGroup &g = a.group[i / s.parts];
        fits = fits && map_fits(g.b[i % s.parts], g.b_stride[i % s.parts]);
    }
    for (int i = 0; i <= a.leaves; ++i) {
        fits = fits && a.leaf_begin[i] == i * a.leaf_begin[1];
    }
    bool inner = a.leaves > 1 && !(s.a_trans && s.b_trans);
    return fits && !(inner && a.leaf_begin[1] % 8);
}

static void make_maps(IsoGemmMaps &maps, const Subject &s, const Variant &v, const IsoGemmArgs &a) {
    int leaf = a.leaf_begin[1];
    encode(&maps.a, s, a.a, s.a_trans, a.rows, a.a_stride, leaf, a.leaves,
           v.split || v.cluster == 1 ? (a.rows < v.bm ? a.rows : v.bm)
                                     : v.bm / (v.cluster / v.high));
    for (int i = 0; i < s.groups * s.parts; ++i) {
        const IsoGemmGroup &g = a.group[i / s.parts];
        encode(&maps.b[i], s, g.b[i % s.parts], s.b_trans, g.columns, g.b_stride[i % s.parts],
               leaf, a.leaves, v.bn / v.high);
    }
}

static int ceil_div(int x, int y) { return (x + y - 1) / y; }

static int column_tiles(const Subject &s, const IsoGemmArgs &a, int bn) {
    int n = 0;
    for (int g = 0; g < s.groups; ++g) {
        n += ceil_div(a.group[g].columns, bn);
    }
    return n;
}

static void launch_reference(const Subject &s, IsoGemmArgs a) {
    void *params[] = {&a};
    dim3 grid(column_tiles(s, a, 8), ceil_div(a.rows, 16));
    CHECK(cudaLaunchKernel(s.reference, grid, 32, params, 0, stream));
}

// The launch rule of iso_abi.cuh. False: the variant is not applicable.
static bool launch(const Subject &s, const Variant &v, IsoGemmArgs a) {
    int tiles_m = ceil_div(a.rows, v.bm), tiles_n = column_tiles(s, a, v.bn);
    if (v.wgmma) {
        static IsoGemmMaps maps;
        if (!wgmma_fits(s, a)) {
            return false;
        }
        make_maps(maps, s, v, a);
        int level = ceil_div(v.bm, 64) * 64 * v.bn * s.parts * 4;
        int lines = v.bm + s.parts * v.bnp;
        int smem = 1024 + v.stages * ((lines < 64 ? 64 : lines) * 128 + 16) +
                   (v.split ? v.bm * v.bn * s.parts * 4 + 16 : v.near * level);
        int clusters = ceil_div(tiles_m, v.high) * ceil_div(tiles_n, v.cluster / v.high);
        int most = 132 / v.cluster;
        dim3 grid((clusters < most ? clusters : most) * v.cluster, 1, 1);
        if (v.split) {
            grid = dim3(tiles_n * v.cluster, 1, tiles_m);
        }
        a.workspace = (float *)need(BUF_WORK, (size_t)grid.x * (v.levels - v.near) * level);
        CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        void *params[] = {&a, &maps};
        CHECK(cudaLaunchKernel(v.kernel, grid, v.threads, params, smem, stream));
        return true;
    }
    int smem = v.stages * (v.bm + s.parts * v.bn) * v.bk * 2 +
               (v.split ? 0 : v.levels * s.parts * v.bm * v.bn * 4);
    if (v.split && s.leaves > 1) {
        a.workspace = (float *)need(BUF_WORK, (size_t)tiles_m * tiles_n * s.leaves * s.parts *
                                                  v.bm * v.bn * 4);
        a.counters = (unsigned *)need(BUF_COUNT, (size_t)tiles_m * tiles_n * 4);
    }
    CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    void *params[] = {&a};
    dim3 grid(tiles_n, v.split ? s.leaves : 1, tiles_m);
    CHECK(cudaLaunchKernel(v.kernel, grid, v.threads, params, smem, stream));
    return true;
}

#endif
