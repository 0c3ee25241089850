// Grouped product probe: every kernel against a plain reference that takes each row by itself, bit
// for bit, over routings (uniform, skewed by Zipf's law, all rows to one expert, rows without one,
// experts that lie elsewhere), outputs poisoned, NaN in rows that are not live.
//   group_probe [small | time | once | mutate]
// time: speed, and that of one ordinary product with as many rows; mutate: a wrong routing must be
// seen.
// Build: nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a --fmad=false -Icompiler/device
//        -Itests/gpu tests/gpu/group_probe.cu
#include <cuda.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm_probe.cuh"
#include "group_probe.cuh"
#include "iso_group_order.cuh"
#include "iso_group_wgmma.cuh"
#include "parts/plain.cuh"
#include "samples/gate_up.cu"

template <class Op, class Tile>
__global__ void __launch_bounds__(IsoWgmmaPlan<Op, Tile>::threads, 1)
    probe_group(const __grid_constant__ IsoGroupArgs args,
                const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_group<Op, Tile>(args, maps);
}

// Row order[i] of a to row i.
__global__ void probe_sort(const uint4 *a, uint4 *to, const int *order, int words, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        int row = order[i / words];
        if (row >= 0) {
            to[i] = a[(long long)row * words + i % words];
        }
    }
}

__global__ void __launch_bounds__(512) __cluster_dims__(8, 1, 1)
    probe_order(const __grid_constant__ IsoOrderArgs args) {
    iso_group_order(args);
}

// --- the reference: one warp for one row and 8 columns ---

__device__ inline unsigned group_pair(const unsigned short *p, int present) {
    return (present > 0 ? p[0] : 0) | (unsigned)(present > 1 ? p[1] : 0) << 16;
}

struct GroupProblem {
    IsoGroupArgs args;
    const int *chosen;                  // [token][pick]
    long long b_expert[2];              // strides of experts
    int begin, experts;
};

template <class Op>
__device__ void group_ref_leaf(const GroupProblem &q, int part, int leaf, int row, int expert,
                               int col0, float (&d)[4]) {
    const IsoGemmArgs &g = q.args.gemm;
    int lane = threadIdx.x, begin = g.leaf_begin[leaf], end = g.leaf_begin[leaf + 1];
    int token = row / q.args.picks, pick = row % q.args.picks, col = col0 + lane / 4;
    const unsigned short *pa = (const unsigned short *)g.a + token * g.a_stride +
                               pick * q.args.a_pick_stride;
    const unsigned short *pb = (const unsigned short *)g.group[0].b[part] +
                               expert * q.b_expert[part] + col * g.group[0].b_stride[part];
    bool weights = expert >= 0 && col < g.group[0].columns;
    d[0] = d[1] = d[2] = d[3] = 0.0f;
    for (int k0 = begin; k0 < end; k0 += 16) {
        int k = k0 + lane % 4 * 2;
        unsigned a[4] = {0, 0, 0, 0}, b[2];
        for (int i = 0; i < 2; ++i) {
            a[2 * i] = lane / 4 == 0 ? group_pair(pa + k + i * 8, end - k - i * 8) : 0;
            b[i] = weights ? group_pair(pb + k + i * 8, end - k - i * 8) : 0;
        }
        iso_mma_k16<Op::f16>(d, a, b[0], b[1]);
    }
}

template <class Op> __global__ void group_reference(const __grid_constant__ GroupProblem q) {
    float stack[8][Op::parts][4];
    const IsoGemmArgs &g = q.args.gemm;
    int row = blockIdx.y, col0 = blockIdx.x * 8, height = 0, leaf = 0, root = 0;
    int expert = q.chosen[row];
    if (expert < 0 ? q.begin != 0 : expert < q.begin || expert >= q.begin + q.experts) {
        return;
    }
    expert = expert < 0 ? -1 : expert - q.begin;
    for (int pc = 0; pc < Op::Tree::length; ++pc) {
        char c = Op::Tree::at(pc);
        if (c == 'L') {
            for (int p = 0; p < Op::parts; ++p) {
                group_ref_leaf<Op>(q, p, leaf, row, expert, col0, stack[height][p]);
            }
            ++height;
            ++leaf;
        } else if (c == 'R') {
            ref_leave<Op>(g, 0, root++, row, col0, stack[--height], row + 1);
        } else {
            --height;
            for (int i = 0; i < Op::parts * 4; ++i) {
                float &top = stack[height - 1][i / 4][i % 4];
                top = iso_add(top, stack[height][i / 4][i % 4]);
            }
        }
    }
    if constexpr (!Op::Tree::roots) {
        ref_leave<Op>(g, 0, -1, row, col0, stack[0], row + 1);
    }
}

// --- subjects ---

struct GroupVariant {
    const char *name;
    const void *kernel;
    int bm, bn, threads, smem, tail, odd, cluster, level_bytes;
};

struct GroupSubject {
    const char *name;
    const void *reference;
    int parts, leaves;
    bool roots, per_pick;               // per_pick: a has a row for each pick
    bool sorted;                        // and these lie in the order
    int count, profiled;                // profiled: the variant that once() runs
    GroupVariant variant[12];
    const void *dense;                  // an ordinary product of the same Op
    int dense_bm, dense_bn, dense_smem, dense_threads, dense_cluster;
};

template <class Op, class Tile> static void add(GroupSubject &s, const char *name) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    s.variant[s.count++] = GroupVariant{name, (const void *)probe_group<Op, Tile>, Tile::bm,
                                        Tile::bn, Plan::threads,
                                        IsoGroupPlan<Op, Tile>::shared,
                                        Tile::tail, Tile::odd, 1 + Tile::pairs,
                                        Plan::far * Plan::level_floats * 4};
}

template <class Op, class Tile> static void add_dense(GroupSubject &s) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    s.dense = (const void *)probe_wgmma<Op, Tile>;
    s.dense_bm = Tile::bm, s.dense_bn = Tile::bn, s.dense_smem = Plan::shared;
    s.dense_threads = Plan::threads, s.dense_cluster = Tile::cluster;
}

using Eighth = IsoTree<'L', 'L', '+', 'L', 'L', '+', '+', 'L', 'L', '+', 'L', 'L', '+', '+', '+'>;
using EighthQuads = IsoTree<'Q', 'Q', '+'>;
using EighthPairs = IsoTree<'P', 'P', '+', 'P', 'P', '+', '+'>;

template <class Op> static GroupSubject subject(const char *name, bool per_pick) {
    GroupSubject s = {};
    s.name = name;
    s.reference = (const void *)group_reference<Op>;
    s.parts = Op::parts, s.leaves = Op::Tree::leaves;
    s.roots = Op::Tree::roots;
    s.per_pick = per_pick;
    return s;
}

static GroupSubject sorted(GroupSubject s) {
    s.sorted = true;
    return s;
}

static GroupSubject gate_up() {
    GroupSubject s = subject<GateUp>("gate_up", false);
    add<GateUp, IsoGroupTile<128, 128, 4>>(s, "128 x (128+128), 4");
    add<GateUp, IsoGroupTile<128, 96, 5>>(s, "128 x (96+96), 5");
    add<GateUp, IsoGroupTile<64, 128, 5>>(s, "64 x (128+128), 5");
    add<GateUp, IsoGroupTile<32, 64, 10>>(s, "32 x (64+64), 10");
    add<GateUp, IsoGroupTile<16, 64, 12>>(s, "16 x (64+64), 12");
    add<GateUp, IsoGroupTile<16, 96, 8>>(s, "16 x (96+96), 8");
    add_dense<GateUp, IsoWgmmaTile<128, 128, 4>>(s);
    return s;
}

template <int Tail> static GroupSubject down(const char *name) {
    GroupSubject s = subject<Plain<Eighth>>(name, true);
    add<Plain<EighthQuads>, IsoGroupTile<128, 128, 5, 1, Tail, 160, 0, 1>>(s, "128 x 128 by 4, 5");
    add<Plain<EighthPairs>, IsoGroupTile<128, 96, 4, 2, Tail, 160, 0, 1>>(s, "128 x 96 by 2, 4");
    add<Plain<EighthQuads>, IsoGroupTile<64, 128, 7, 1, Tail, 160, 0, 1>>(s, "64 x 128 by 4, 7");
    add<Plain<EighthQuads>, IsoGroupTile<32, 64, 16, 1, Tail, 160, 0, 1>>(s, "32 x 64 by 4, 16");
    add<Plain<EighthQuads>, IsoGroupTile<16, 64, 18, 1, Tail, 160, 0, 1>>(s, "16 x 64 by 4, 18");
    add<Plain<EighthQuads>, IsoGroupTile<16, 128, 9, 1, Tail, 160, 0, 1>>(s, "16 x 128 by 4, 9");
    if constexpr (Tail != 4) {
        s.profiled = s.count;
        using On = IsoGroupTile<128, 128, 5, 1, 4, 160, Tail, 2>;
        add<Plain<EighthQuads>, On>(s, "128 x 128, on");
        add<Plain<EighthPairs>, IsoGroupTile<128, 96, 4, 2, 4, 160, Tail, 2>>(s, "128 x 96, on");
        add<Plain<EighthQuads>, IsoGroupTile<32, 64, 16, 1, 4, 160, Tail, 1>>(s, "32 x 64, on");
        add<Plain<EighthQuads>, IsoGroupTile<16, 128, 9, 1, 4, 160, Tail, 1>>(s, "16 x 128, on");
    }
    add_dense<Plain<EighthQuads>, IsoWgmmaTile<128, 128, 5, 1, 2>>(s);
    return s;
}

static GroupSubject down_one() {
    GroupSubject s = subject<Plain<IsoTree<'L'>>>("down whole", true);
    add<Plain<IsoTree<'L'>>, IsoGroupTile<128, 256, 4, 0, 4, 160, 0, 1>>(s, "128 x 256, 4");
    add<Plain<IsoTree<'L'>>, IsoGroupTile<128, 128, 6, 0, 4, 160, 0, 1>>(s, "128 x 128, 6");
    add<Plain<IsoTree<'L'>>, IsoGroupTile<16, 128, 10, 0, 4, 160, 0, 1>>(s, "16 x 128, 10");
    add_dense<Plain<IsoTree<'L'>>, IsoWgmmaTile<128, 256, 4>>(s);
    return s;
}

struct RootsOp : IsoNoEpilogue {
    static constexpr int groups = 1, parts = 1;
    static constexpr bool f16 = false, a_trans = false, b_trans = false;
    using Tree = IsoTree<'L', 'R'>;
};

static GroupSubject down_roots() {
    GroupSubject s = subject<RootsOp>("down TP 8", true);
    add<RootsOp, IsoGroupTile<128, 128, 6, 0, 4, 160, 0, 1>>(s, "128 x 128, 6");
    add<RootsOp, IsoGroupTile<16, 128, 10, 0, 4, 160, 0, 1>>(s, "16 x 128, 10");
    return s;
}

// --- launches ---

struct Shape {
    int tokens, picks, experts, begin, own, leaf, columns, routing, spare, kind;
};

static cudaStream_t stream;
static int copies = 1;
static size_t copy_bytes;

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void encode(IsoTensorMap *map, const void *ptr, int leaf, int leaves, int lines,
                   long long stride, int experts, long long expert_stride, int box) {
    static Encode entry;
    if (!entry) {
        cudaDriverEntryPointQueryResult r;
        CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&entry, 12000,
                                               cudaEnableDefault, &r));
    }
    cuuint64_t dims[4] = {(cuuint64_t)leaf, (cuuint64_t)leaves, (cuuint64_t)lines,
                          (cuuint64_t)experts};
    cuuint64_t strides[3] = {(cuuint64_t)(leaves > 1 ? leaf * 2 : 16), (cuuint64_t)stride * 2,
                             (cuuint64_t)expert_stride * 2};
    cuuint32_t boxes[4] = {64, 1, (cuuint32_t)box, 1}, ones[4] = {1, 1, 1, 1};
    CUresult r = entry((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, experts ? 4 : 3,
                       (void *)ptr, dims, strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", (int)r);
        exit(1);
    }
}

static int ceil_div(int x, int y) { return (x + y - 1) / y; }

struct Case {
    GroupProblem q;
    IsoOrderArgs order;
    size_t out_bytes;
};

static Case place(const GroupSubject &s, const Shape &h, char *out, bool write) {
    Case c;
    memset(&c, 0, sizeof c);
    IsoGemmArgs &g = c.q.args.gemm;
    int k = h.leaf * s.leaves, rows = (h.tokens + h.spare) * h.picks;
    int lines = s.per_pick ? rows : h.tokens + h.spare;
    g.rows = rows;
    g.leaves = s.leaves;
    for (int i = 0; i <= s.leaves; ++i) {
        g.leaf_begin[i] = i * h.leaf;
    }
    g.a = need(BUF_A, (size_t)lines * k * 2);
    g.a_stride = s.per_pick ? (long long)k * h.picks : k;
    c.q.args.a_pick_stride = s.per_pick ? k : 0;
    c.q.args.picks = h.picks;
    size_t part = (size_t)h.own * h.columns * k * 2;
    copy_bytes = part * s.parts;
    char *b = need(BUF_B, copy_bytes * copies);
    for (int p = 0; p < s.parts; ++p) {
        g.group[0].b[p] = b + part * p;
        g.group[0].b_stride[p] = k;
        c.q.b_expert[p] = (long long)h.columns * k;
    }
    g.group[0].columns = h.columns;
    g.group[0].result[0].ptr = out;
    g.group[0].result[0].stride[0] = h.columns;
    g.group[0].result[0].stride[1] = 1;
    g.group[0].roots = (float *)out;
    g.group[0].root_row_stride = h.columns;
    g.group[0].root_stride = (long long)h.columns * rows;
    c.out_bytes = (size_t)rows * h.columns * (s.roots ? 4 : 2);
    int *chosen = (int *)need(BUF_CHOSEN, (size_t)rows * 4);
    c.q.chosen = chosen;
    c.q.begin = h.begin;
    c.q.experts = h.own;
    int *order = (int *)need(BUF_ORDER, (size_t)rows * 4);
    IsoGroupRow *places = (IsoGroupRow *)need(BUF_PLACES, (size_t)rows * 8);
    char *items = need(BUF_ITEMS, ((size_t)rows + 16) * 16);
    c.q.args.order = order;
    c.q.args.items = (IsoGroupItem *)(items + 16);
    c.q.args.n_items = (int *)items;
    c.order = IsoOrderArgs{0, h.tokens + h.spare, h.picks, chosen, h.picks, 1, h.experts, h.begin,
                           h.own, 0,
                           (int *)need(BUF_COUNTS, ISO_GROUP_COUNTS * 4), places, order,
                           (IsoGroupItem *)(items + 16), (int *)items};
    if (write) {
        int *host = (int *)malloc(sizeof(int) * rows);
        route(host, h.tokens + h.spare, h.picks, h.experts, h.routing);
        CHECK(cudaMemcpy(chosen, host, sizeof(int) * rows, cudaMemcpyHostToDevice));
        free(host);
        fill<<<1024, 256>>>((unsigned short *)g.a, (long long)lines * k, 1, h.kind);
        fill<<<1024, 256>>>((unsigned short *)b, (long long)(copy_bytes * copies / 2), 2, h.kind);
        if (h.spare) {
            long long from = (long long)h.tokens * (s.per_pick ? h.picks : 1) * k;
            CHECK(cudaMemset((char *)g.a + from * 2, 0xff, ((long long)lines * k - from) * 2));
        }
    }
    if (h.spare) {
        CHECK(cudaMemcpy(need(BUF_LIVE, 4), &h.tokens, 4, cudaMemcpyHostToDevice));
        c.order.rows_dev = (int *)buffer[BUF_LIVE].ptr;
    }
    return c;
}

static void launch(const void *kernel, dim3 grid, int threads, int smem, void **params,
                   int cluster = 1) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr[2];
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    attr[1].id = cudaLaunchAttributeClusterDimension;
    attr[1].val.clusterDim.x = cluster;
    attr[1].val.clusterDim.y = attr[1].val.clusterDim.z = 1;
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = smem;
    config.stream = stream;
    config.attrs = attr;
    config.numAttrs = 1 + (cluster > 1);
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    CHECK(cudaLaunchKernelExC(&config, kernel, params));
}

static void run_order(const Case &c, int bm) {
    IsoOrderArgs order = c.order;
    order.bm = bm;
    void *params[] = {&order};
    launch((const void *)probe_order, dim3(8), 512, ISO_ORDER_SHARED, params);
}

static void sort_rows(const GroupSubject &s, const Shape &h, const Case &c) {
    long long words = (long long)h.leaf * s.leaves / 8, rows = c.q.args.gemm.rows;
    if (!s.sorted) {
        return;
    }
    char *to = need(BUF_SORTED, (size_t)(rows * words * 16));
    CHECK(cudaMemset(to, 0xff, (size_t)(rows * words * 16)));
    probe_sort<<<1024, 256>>>((const uint4 *)c.q.args.gemm.a, (uint4 *)to, c.q.args.order,
                              (int)words, rows * words);
}

static void run_product(const GroupSubject &s, const GroupVariant &v, const Shape &h,
                        const Case &c, int copy) {
    static IsoGemmMaps maps;
    IsoGroupArgs args = c.q.args;
    int rows = args.gemm.rows, items = rows / v.bm + h.own + 1;
    items = items < rows ? items : rows;
    for (int p = 0; p < s.parts; ++p) {
        args.gemm.group[0].b[p] = (const char *)args.gemm.group[0].b[p] + copy * copy_bytes;
        int chains = v.odd ? 1 : s.leaves;
        encode(&maps.b[p], args.gemm.group[0].b[p], h.leaf * s.leaves / chains, chains, h.columns,
               h.leaf * s.leaves, h.own, c.q.b_expert[p], v.bn);
    }
    if (s.sorted) {
        int chains = v.odd ? 1 : s.leaves, k = h.leaf * s.leaves;
        args.a_sorted = 1;
        encode(&maps.a, need(BUF_SORTED, (size_t)rows * k * 2), k / chains, chains, rows, k, 0, 0,
               v.bm < 64 ? v.bm : 64);
    }
    int tiles = items * ceil_div(h.columns, v.bn), grid = tiles < 132 ? tiles : 132;
    args.gemm.workspace = (float *)need(BUF_WORK, (size_t)grid * v.level_bytes + 16);
    void *params[] = {&args, &maps};
    grid = ceil_div(grid, v.cluster) * v.cluster;
    launch(v.kernel, dim3(grid), v.threads, v.smem, params, v.cluster);
}

static void run_dense(const GroupSubject &s, const Shape &h, const Case &c) {
    static IsoGemmMaps maps;
    IsoGemmArgs args = c.q.args.gemm;
    args.a_stride = (long long)h.leaf * s.leaves;
    args.a = need(BUF_A, (size_t)args.rows * args.a_stride * 2);
    encode(&maps.a, args.a, h.leaf, s.leaves, args.rows, args.a_stride, 0, 0,
           s.dense_bm / s.dense_cluster);
    for (int p = 0; p < s.parts; ++p) {
        encode(&maps.b[p], args.group[0].b[p], h.leaf, s.leaves, h.columns, args.a_stride, 0, 0,
               s.dense_bn);
    }
    void *params[] = {&args, &maps};
    launch(s.dense, dim3(132), s.dense_threads, s.dense_smem, params);
}

// --- comparing ---

static int failures;

static bool fits(const GroupVariant &v, const Shape &h) {
    int odd = h.leaf > 64 ? ceil_div(h.leaf % 64, 16) : 0;
    return v.odd ? v.odd == odd : v.tail == (odd ? odd : 4);
}

static void probe(const GroupSubject &s, const Shape &h, bool mutate) {
    Case c = place(s, h, 0, true);
    char *ref = need(BUF_REF, c.out_bytes), *out = need(BUF_OUT, c.out_bytes);
    unsigned long long *diff = (unsigned long long *)need(BUF_DIFF, 8), n;
    CHECK(cudaMemset(ref, 0xa5, c.out_bytes));
    c = place(s, h, ref, false);
    void *params[] = {&c.q};
    CHECK(cudaLaunchKernel(s.reference, dim3(ceil_div(h.columns, 8), h.tokens * h.picks), 32,
                           params, 0, 0));
    if (mutate) {
        int other = 1;
        CHECK(cudaMemcpy((int *)c.q.chosen + 5, &other, 4, cudaMemcpyHostToDevice));
    }
    for (int i = 0; i < s.count; ++i) {
        if (!fits(s.variant[i], h)) {
            continue;
        }
        c = place(s, h, out, false);
        for (int repeat = 0; repeat < 2; ++repeat) {
            CHECK(cudaMemset(out, 0xa5, c.out_bytes));
            CHECK(cudaMemset(diff, 0, 8));
            CHECK(cudaMemset(c.order.order, 0xff, (size_t)c.q.args.gemm.rows * 4));
            run_order(c, s.variant[i].bm);
            sort_rows(s, h, c);
            run_product(s, s.variant[i], h, c, 0);
            differ<<<512, 256>>>((unsigned *)out, (unsigned *)ref, c.out_bytes / 4, diff);
            CHECK(cudaMemcpy(&n, diff, 8, cudaMemcpyDeviceToHost));
            if (n || (mutate && !repeat)) {
                failures += n != 0;
                printf("  %s %s, %s: tokens %d of %d x %d, experts %d + %d of %d, %s: %llu of %zu "
                       "differ\n", mutate ? "(mutated)" : "DIFFER", s.name, s.variant[i].name,
                       h.tokens, h.tokens + h.spare, h.picks, h.begin, h.own, h.experts,
                       routing_name[h.routing], n, c.out_bytes / 4);
            }
        }
    }
}

// --- speed ---

static float clock_graph(const GroupSubject &s, const GroupVariant *v, const Shape &h,
                         const Case &c, int n, bool order) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t e[2];
    float ms = 0, best = 1e9f;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < n; ++i) {
        if (order) {
            run_order(c, v ? v->bm : 128);
        }
        if (v) {
            run_product(s, *v, h, c, i % copies);
        } else if (!order) {
            run_dense(s, h, c);
        }
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&e[0]));
    CHECK(cudaEventCreate(&e[1]));
    CHECK(cudaGraphLaunch(exec, stream));
    for (int i = 0; i < 5; ++i) {
        CHECK(cudaEventRecord(e[0], stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(e[1], stream));
        CHECK(cudaEventSynchronize(e[1]));
        CHECK(cudaEventElapsedTime(&ms, e[0], e[1]));
        best = ms < best ? ms : best;
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    stream = 0;
    return best * 1e3f / n;
}

static int touched(const Shape &h) {
    int rows = h.tokens * h.picks, *host = (int *)malloc(sizeof(int) * rows), n = 0;
    char *seen = (char *)calloc(1, h.experts);
    route(host, h.tokens, h.picks, h.experts, h.routing);
    for (int i = 0; i < rows; ++i) {
        n += host[i] >= 0 && !seen[host[i]];
        seen[host[i] < 0 ? 0 : host[i]] = 1;
    }
    free(host);
    free(seen);
    return n;
}

static void clock_one(const GroupSubject &s, const Shape &h) {
    bool few = h.tokens <= 128;
    copies = few && h.experts * (long long)h.columns * h.leaf < 100000000ll ? 2 : 1;
    Case c = place(s, h, need(BUF_OUT, place(s, h, 0, true).out_bytes), false);
    double flops = 2.0 * h.tokens * h.picks * h.columns * s.parts * h.leaf * s.leaves;
    double bytes = 2.0 * touched(h) * h.columns * s.parts * h.leaf * s.leaves;
    int n = few ? 12 : 4;
    printf("%s: %d tokens x %d, %d experts (%d touched), k %d, columns %d, %s\n", s.name, h.tokens,
           h.picks, h.experts, touched(h), h.leaf * s.leaves, h.columns, routing_name[h.routing]);
    for (int i = 0; i < s.count; ++i) {
        const GroupVariant &v = s.variant[i];
        if (!fits(v, h) || (few ? v.bm > 32 : v.bm < 64)) {
            continue;
        }
        run_order(c, v.bm);
        sort_rows(s, h, c);
        float us = clock_graph(s, &v, h, c, n, !s.sorted);
        printf("  %-20s %8.1f us %7.1f TFLOP/s %7.1f GB/s of weights\n", v.name, us,
               flops / us / 1e6, bytes / us / 1e3);
    }
    if (s.dense && !few) {
        float us = clock_graph(s, 0, h, c, n, false);
        printf("  %-20s %8.1f us %7.1f TFLOP/s\n", "ordinary", us, flops / us / 1e6);
    }
    printf("  %-20s %8.1f us\n", "order alone", clock_graph(s, 0, h, c, 16, true));
    fflush(stdout);
    copies = 1;
}

static Shape shape(int tokens, int picks, int experts, int leaf, int columns, int routing) {
    return Shape{tokens, picks, experts, 0, experts, leaf, columns, routing, 0, 0};
}

static void clock_all() {
    for (int routing = UNIFORM; routing <= ZIPF; ++routing) {
        clock_one(gate_up(), shape(8192, 8, 128, 2048, 768, routing));
        clock_one(down<2>("down"), shape(8192, 8, 128, 96, 2048, routing));
        clock_one(sorted(down<2>("down, sorted")), shape(8192, 8, 128, 96, 2048, routing));
        clock_one(down_one(), shape(8192, 8, 128, 768, 2048, routing));
        clock_one(sorted(down_one()), shape(8192, 8, 128, 768, 2048, routing));
        clock_one(gate_up(), shape(64, 8, 128, 2048, 768, routing));
        clock_one(down<2>("down"), shape(64, 8, 128, 96, 2048, routing));
    }
    clock_one(gate_up(), shape(1, 8, 128, 2048, 768, UNIFORM));
    clock_one(down<2>("down"), shape(1, 8, 128, 96, 2048, UNIFORM));
}

static void bits(bool small) {
    static const int tokens[] = {1, 2, 31, 33, 205, 1024};
    for (int i = 0; i < (small ? 4 : 6); ++i) {
        for (int routing = UNIFORM; routing <= NONE; ++routing) {
            Shape h = shape(tokens[i], 8, 16, 192, 200, routing);
            h.spare = i % 2 ? 5 : 0;
            h.kind = i / 2 % 2;
            probe(gate_up(), h, false);
            h.leaf = 96, h.columns = 136;
            probe(down<2>("down"), h, false);
            probe(sorted(down<2>("down, sorted")), h, false);
            h.leaf = 64;
            probe(down<4>("down, 64"), h, false);
            probe(down_roots(), h, false);
            probe(sorted(down_roots()), h, false);
            h.leaf = 40;
            probe(down_one(), h, false);
            h.begin = 4, h.own = 8, h.leaf = 96;
            probe(down<2>("down EP"), h, false);
            probe(sorted(down<2>("down EP, sorted")), h, false);
        }
    }
    if (!small) {
        probe(gate_up(), shape(300, 8, 128, 2048, 768, ZIPF), false);
        probe(down<2>("down"), shape(300, 8, 128, 96, 2048, ZIPF), false);
        probe(sorted(down<2>("down, sorted")), shape(300, 8, 128, 96, 2048, ZIPF), false);
        probe(down<2>("down"), shape(1500, 8, 128, 96, 2048, UNIFORM), false);
        probe(sorted(down<2>("down, sorted")), shape(1500, 8, 128, 96, 2048, UNIFORM), false);
        probe(gate_up(), shape(70, 10, 512, 256, 256, UNIFORM), false);
    }
}

// One launch of each kernel, for a profiler.
static void once() {
    GroupSubject subjects[] = {gate_up(), down_one(), down<2>("down")};
    Shape shapes[] = {shape(8192, 8, 128, 2048, 768, UNIFORM),
                      shape(8192, 8, 128, 768, 2048, UNIFORM),
                      shape(8192, 8, 128, 96, 2048, UNIFORM)};
    for (int i = 0; i < 3; ++i) {
        size_t bytes = place(subjects[i], shapes[i], 0, true).out_bytes;
        Case c = place(subjects[i], shapes[i], need(BUF_OUT, bytes), false);
        run_order(c, 128);
        run_product(subjects[i], subjects[i].variant[subjects[i].profiled],
                    shapes[i], c, 0);
        run_dense(subjects[i], shapes[i], c);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "once")) {
        once();
    } else
    if (argc > 1 && !strcmp(argv[1], "time")) {
        clock_all();
    } else if (argc > 1 && !strcmp(argv[1], "mutate")) {
        probe(gate_up(), shape(33, 8, 16, 192, 200, UNIFORM), true);
        return failures == 0;
    } else {
        bits(argc > 1 && !strcmp(argv[1], "small"));
    }
    CHECK(cudaDeviceSynchronize());
    printf("%s\n", failures ? "FAILED" : "all bits equal");
    return failures != 0;
}
