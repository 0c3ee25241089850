// What the product probe's parts share: subjects, the kernels under test, the plain reference.
// A subject owns nothing; its kernels live in the part that made it.
#ifndef GEMM_PROBE_CUH
#define GEMM_PROBE_CUH

#include "iso_gemm_split.cuh"
#include "iso_gemm_stream.cuh"
#include "iso_gemm_wgmma.cuh"
#include "iso_join.cuh"

struct Variant {
    const char *name;
    const void *kernel;
    bool wgmma, split;
    int bm, bn, bk, stages, levels, near, bnp, threads, cluster;
    int high;                       // row tiles of a cluster
};

struct Subject {
    const char *name;
    int groups, parts, leaves;
    bool f16, a_trans, b_trans, roots;
    char tree[ISO_GEMM_LEAVES * 4];
    const void *reference;
    int count;
    Variant variant[24];
};

template <class Op, class Tile>
__global__ void __launch_bounds__(IsoWgmmaPlan<Op, Tile>::threads, 1)
    __cluster_dims__(Tile::cluster, 1, 1) probe_wgmma(const __grid_constant__ IsoGemmArgs args,
                const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_wgmma<Op, Tile>(args, maps);
}

template <class Op, class Tile>
__global__ void __launch_bounds__(IsoWgmmaPlan<Op, Tile>::threads,
                                  Tile::bm <= 64 && Tile::fused == 1 ? 2 : 1)
    __cluster_dims__(Op::Tree::leaves, 1, 1) probe_split(
        const __grid_constant__ IsoGemmArgs args, const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_split<Op, Tile>(args, maps);
}

template <class Op, class Tile>
__global__ void __launch_bounds__(128)
    probe_stream(const __grid_constant__ IsoGemmArgs args) {
    iso_gemm_stream<Op, Tile>(args);
}

template <class Op> __global__ void probe_join(const __grid_constant__ IsoJoinArgs args) {
    iso_join<Op>(args);
}

// --- the reference: one warp per 16 rows and 8 columns, every element fetched by itself ---

__device__ inline unsigned ref_pair(const void *base, bool k_outer, long long stride, int line,
                                    int lines, int k, int k_end) {
    unsigned v = 0;
    for (int i = 0; i < 2; ++i) {
        if (line < lines && k + i < k_end) {
            long long at = k_outer ? (k + i) * stride + line : line * stride + k + i;
            v |= (unsigned)((const unsigned short *)base)[at] << 16 * i;
        }
    }
    return v;
}

template <class Op>
__device__ void ref_leaf(const IsoGemmArgs &args, const IsoGemmGroup &g, int part, int leaf,
                         int rows, int row0, int col0, float (&d)[4]) {
    int lane = threadIdx.x, begin = args.leaf_begin[leaf], end = args.leaf_begin[leaf + 1];
    int row = row0 + lane / 4, col = col0 + lane / 4;
    d[0] = d[1] = d[2] = d[3] = 0.0f;
    for (int k0 = begin; k0 < end; k0 += 16) {
        int k = k0 + lane % 4 * 2;
        unsigned a[4], b[2];
        for (int i = 0; i < 4; ++i) {
            a[i] = ref_pair(args.a, Op::a_trans, args.a_stride, row + i % 2 * 8, rows,
                            k + i / 2 * 8, end);
        }
        for (int i = 0; i < 2; ++i) {
            b[i] = ref_pair(g.b[part], Op::b_trans, g.b_stride[part], col, g.columns, k + i * 8,
                            end);
        }
        iso_mma_k16<Op::f16>(d, a, b[0], b[1]);
    }
}

__device__ inline float ref_round(char c, float x) {
    return c == 'b' ? iso_f32_of_bf16(iso_bf16_of_f32(x)) : iso_f32_of_f16(iso_f16_of_f32(x));
}

template <class Op>
__device__ void ref_leave(const IsoGemmArgs &args, int group, int root, int row, int col,
                          const float (&v)[Op::parts][4], int rows) {
    const IsoGemmGroup &g = args.group[group];
    for (int h = 0; h < 2; ++h) {
        int r = row + threadIdx.x / 4 + 8 * h, c = col + threadIdx.x % 4 * 2;
        int valid = g.columns - c < 2 ? g.columns - c : 2;
        float acc[Op::parts][2];
        for (int p = 0; p < Op::parts; ++p) {
            acc[p][0] = v[p][2 * h];
            acc[p][1] = v[p][2 * h + 1];
        }
        if (r >= rows || valid <= 0) {
            continue;
        }
        if constexpr (Op::Tree::roots) {
            for (int i = 0; i < valid * Op::parts; ++i) {
                int p = i / valid, j = i % valid;
                g.roots[(root * Op::parts + p) * g.root_stride + r * g.root_row_stride + c + j] =
                    acc[p][j];
            }
        } else {
            typename Op::Inputs in;
            Op::template load<false>(group, g, r, c, valid, in);
            typename Op::Sum sum[Op::parts];
            for (int p = 0; p < Op::parts; ++p) {
                sum[p] = Op::sum(acc[p][0], acc[p][1]);
            }
            Op::template store<false>(group, g, r, c, valid, sum, in);
        }
    }
}

template <class Op> __global__ void probe_reference(const __grid_constant__ IsoGemmArgs args) {
    float stack[8][Op::parts][4];
    int tile = blockIdx.x, group = 0, height = 0, leaf = 0, root = 0;
    while (tile >= (args.group[group].columns + 7) / 8) {
        tile -= (args.group[group++].columns + 7) / 8;
    }
    int row0 = blockIdx.y * 16, col0 = tile * 8, rows = args.rows;
    for (int pc = 0; pc < Op::Tree::length; ++pc) {
        char c = Op::Tree::at(pc);
        if (c == 'L') {
            for (int p = 0; p < Op::parts; ++p) {
                ref_leaf<Op>(args, args.group[group], p, leaf, rows, row0, col0, stack[height][p]);
            }
            ++height;
            ++leaf;
        } else if (c == 'R') {
            ref_leave<Op>(args, group, root++, row0, col0, stack[--height], rows);
        } else {
            height -= c == '+';
            for (int i = 0; i < Op::parts * 4; ++i) {
                float &top = stack[height - 1][i / 4][i % 4];
                top = c == '+' ? iso_add(top, stack[height][i / 4][i % 4]) : ref_round(c, top);
            }
        }
    }
    if constexpr (!Op::Tree::roots) {
        ref_leave<Op>(args, group, -1, row0, col0, stack[0], rows);
    }
}

// --- building subjects ---

template <class Op> Subject probe_subject(const char *name) {
    Subject s = {};
    s.name = name;
    s.groups = Op::groups;
    s.parts = Op::parts;
    s.leaves = Op::Tree::leaves;
    s.f16 = Op::f16;
    s.a_trans = Op::a_trans;
    s.b_trans = Op::b_trans;
    s.roots = Op::Tree::roots;
    for (int i = 0; i < Op::Tree::length; ++i) {
        s.tree[i] = Op::Tree::at(i);
    }
    s.reference = (const void *)probe_reference<Op>;
    return s;
}

template <class Op, class Tile> void probe_add_wgmma(Subject &s, const char *name) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    s.variant[s.count++] = Variant{name, (const void *)probe_wgmma<Op, Tile>, true, false,
                                   Tile::bm, Tile::bn, 64, Tile::stages, Op::Tree::levels,
                                   Tile::near, Plan::bnp, Plan::threads, Tile::cluster,
                                   Plan::high};
}

template <class Op, class Tile> void probe_add_split(Subject &s, const char *name) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    s.variant[s.count++] = Variant{name, (const void *)probe_split<Op, Tile>, true, true,
                                   Tile::bm, Tile::bn, 64, Tile::stages, 0, 0, Plan::bnp,
                                   Plan::threads, Op::Tree::leaves, 1};
}

template <class Op, class Tile> void probe_add_stream(Subject &s, const char *name) {
    s.variant[s.count++] = Variant{name, (const void *)probe_stream<Op, Tile>, false, Tile::split,
                                   Tile::bm, Tile::bn, Tile::bk, Tile::stages, Op::Tree::levels,
                                   0, Tile::bn, 128, 1, 1};
}

#endif
