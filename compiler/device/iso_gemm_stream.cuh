// Products with few rows, or with leaves that the copy engine cannot cut: one CTA per column tile
// and leaf streams the weights once through cp.async and mma.sync. The launch rule is in
// iso_abi.cuh. The last CTA of a tile to arrive walks the tree: the counter says who joins, never
// in what order. With split off, one CTA runs all leaves and keeps waiting values in shared memory.
#ifndef ISO_GEMM_STREAM_CUH
#define ISO_GEMM_STREAM_CUH

#include "iso_gemm.cuh"

template <int Bm, int Bn, int Bk, int Stages, bool Split> struct IsoStreamTile {
    static constexpr int bm = Bm, bn = Bn, bk = Bk, stages = Stages;
    static constexpr bool split = Split;
};

template <class Op, class Tile> struct IsoStreamPlan {
    static constexpr int threads = 128;
    static constexpr int row_blocks = Tile::bm / 16;        // of 16 rows, all in every warp
    static constexpr int column_blocks = Tile::bn / 32;     // of 8 columns, of one warp
    static constexpr int frags = row_blocks * column_blocks;
    static constexpr int a_bytes = Tile::bm * Tile::bk * 2;
    static constexpr int b_bytes = Tile::bn * Tile::bk * 2; // of one part
    static constexpr int stage_bytes = a_bytes + Op::parts * b_bytes;
    static constexpr bool joins_here = Tile::split && Op::Tree::leaves > 1;

    static_assert(Tile::bm == 16 || Tile::bm == 32 || Tile::bm == 64, "bm: 16, 32 or 64");
    static_assert(Tile::bn == 32 || Tile::bn == 64 || Tile::bn == 128, "bn: 32, 64 or 128");
    static_assert(Tile::bk == 32 || Tile::bk == 64 || Tile::bk == 128, "bk: 32, 64 or 128");
    static_assert(Tile::stages >= 2, "stages");
};

// A tile of 2-byte elements in shared memory, in lines of Line elements along the contiguous axis,
// 16-byte chunks permuted so that eight lines' equal chunks fall into different banks.
template <int Line> struct IsoSharedTile {
    static constexpr int chunks = Line / 8;

    ISO_INLINE unsigned at(unsigned base, int line, int chunk) {
        constexpr int mask = chunks < 8 ? chunks - 1 : 7;
        constexpr int every = chunks < 8 ? 8 / chunks : 1;
        return base + (line * chunks + (chunk ^ (line / every & mask))) * 16;
    }
};

// An operand as the loader sees it: `lines` lines of `length` elements from ptr, the rest zero.
struct IsoStreamSource {
    const unsigned short *ptr;
    long long stride;                                       // between lines
    int lines, length;                                      // present ones
    bool aligned;                                           // all of it, to 16 bytes

    ISO_INLINE IsoStreamSource make(const unsigned short *ptr, long long stride, int lines,
                                    int length) {
        bool aligned = (((unsigned long long)ptr | (unsigned long long)stride * 2) & 15) == 0;
        return IsoStreamSource{ptr, stride, lines, length, aligned};
    }
};

// The eight elements from p of which only `present` exist, for lines without alignment.
ISO_INLINE void iso_stream_gather(unsigned dst, const unsigned short *p, int present) {
    unsigned v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned lo = 2 * i < present ? p[2 * i] : 0, hi = 2 * i + 1 < present ? p[2 * i + 1] : 0;
        v[i] = lo | hi << 16;
    }
    iso_shared_store16(dst, v);
}

// Fills Lines lines of Line elements from element (line0, from) of the source.
template <int Lines, int Line>
ISO_INLINE void iso_stream_load(unsigned dst, const IsoStreamSource &s, int line0, int from) {
    constexpr int chunks = Line / 8;
#pragma unroll
    for (int i = threadIdx.x; i < Lines * chunks; i += 128) {
        int line = i / chunks, chunk = i % chunks, at = from + chunk * 8;
        int present = line0 + line < s.lines ? s.length - at : 0;
        present = present < 0 ? 0 : present > 8 ? 8 : present;
        const unsigned short *p = s.ptr;
        if (present > 0) {
            p += (line0 + line) * s.stride + at;
        }
        unsigned to = IsoSharedTile<Line>::at(dst, line, chunk);
        if (s.aligned) {
            iso_cp_async16(to, p, present * 2);
        } else {
            iso_stream_gather(to, p, present);
        }
    }
}

// The chain of one leaf for one CTA's tile.
template <class Op, class Tile> struct IsoStreamChain {
    using Plan = IsoStreamPlan<Op, Tile>;
    using Acc = float[Op::parts][Plan::row_blocks][Plan::column_blocks][4];

    unsigned smem;
    int k_length;
    IsoStreamSource a, b[Op::parts];

    // row0 and col0 are folded into the sources.
    __device__ __forceinline__ IsoStreamChain(const IsoGemmArgs &args, const IsoGemmGroup &g,
                                              unsigned smem, int leaf, int row0, int rows, int col0)
        : smem(smem) {
        int k0 = args.leaf_begin[leaf];
        k_length = args.leaf_begin[leaf + 1] - k0;
        const unsigned short *pa = (const unsigned short *)args.a;
        if constexpr (Op::a_trans) {
            a = IsoStreamSource::make(pa + k0 * args.a_stride + row0, args.a_stride, k_length,
                                      rows - row0);
        } else {
            a = IsoStreamSource::make(pa + row0 * args.a_stride + k0, args.a_stride, rows - row0,
                                      k_length);
        }
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            const unsigned short *pb = (const unsigned short *)g.b[p];
            long long stride = g.b_stride[p];
            if constexpr (Op::b_trans) {
                b[p] = IsoStreamSource::make(pb + k0 * stride + col0, stride, k_length,
                                             g.columns - col0);
            } else {
                b[p] = IsoStreamSource::make(pb + col0 * stride + k0, stride, g.columns - col0,
                                             k_length);
            }
        }
    }

    __device__ __forceinline__ void load(int block, int stage) const {
        unsigned dst = smem + stage * Plan::stage_bytes;
        int k = block * Tile::bk;
        if constexpr (Op::a_trans) {
            iso_stream_load<Tile::bk, Tile::bm>(dst, a, k, 0);
        } else {
            iso_stream_load<Tile::bm, Tile::bk>(dst, a, 0, k);
        }
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            unsigned to = dst + Plan::a_bytes + p * Plan::b_bytes;
            if constexpr (Op::b_trans) {
                iso_stream_load<Tile::bk, Tile::bn>(to, b[p], k, 0);
            } else {
                iso_stream_load<Tile::bn, Tile::bk>(to, b[p], 0, k);
            }
        }
    }

    // Rows 16 * block on, k from k0 on: the step's A operand.
    __device__ __forceinline__ void load_a(unsigned (&v)[4], unsigned tile, int block, int k0) {
        int lane = threadIdx.x % 32;
        if constexpr (Op::a_trans) {
            int k = k0 + lane / 16 * 8 + lane % 8, chunk = block * 2 + lane / 8 % 2;
            iso_ldmatrix<true>(v, IsoSharedTile<Tile::bm>::at(tile, k, chunk));
        } else {
            int row = block * 16 + lane % 16, chunk = k0 / 8 + lane / 16;
            iso_ldmatrix<false>(v, IsoSharedTile<Tile::bk>::at(tile, row, chunk));
        }
    }

    // Eight columns from col on, 32 k from k0 on: the B operands of two steps.
    __device__ __forceinline__ void load_b(unsigned (&v)[4], unsigned tile, int col, int k0) {
        int lane = threadIdx.x % 32;
        if constexpr (Op::b_trans) {
            iso_ldmatrix<true>(v, IsoSharedTile<Tile::bn>::at(tile, k0 + lane, col / 8));
        } else {
            iso_ldmatrix<false>(
                v, IsoSharedTile<Tile::bk>::at(tile, col + lane % 8, k0 / 8 + lane / 8));
        }
    }

    __device__ __forceinline__ void steps(Acc &acc, int stage) {
        unsigned tile = smem + stage * Plan::stage_bytes;
        int col0 = threadIdx.x / 32 * (Plan::column_blocks * 8);
#pragma unroll
        for (int k = 0; k < Tile::bk; k += 32) {
            unsigned va[Plan::row_blocks][2][4];
#pragma unroll
            for (int m = 0; m < Plan::row_blocks; ++m) {
                load_a(va[m][0], tile, m, k);
                load_a(va[m][1], tile, m, k + 16);
            }
#pragma unroll
            for (int p = 0; p < Op::parts; ++p) {
#pragma unroll
                for (int n = 0; n < Plan::column_blocks; ++n) {
                    unsigned vb[4];
                    load_b(vb, tile + Plan::a_bytes + p * Plan::b_bytes, col0 + n * 8, k);
#pragma unroll
                    for (int m = 0; m < Plan::row_blocks; ++m) {
                        iso_mma_k16<Op::f16>(acc[p][m][n], va[m][0], vb[0], vb[1]);
                        iso_mma_k16<Op::f16>(acc[p][m][n], va[m][1], vb[2], vb[3]);
                    }
                }
            }
        }
    }

    // Starts from +0, which is the same as absent: no step returns -0.
    __device__ __forceinline__ void run(Acc &acc) {
        float *flat = &acc[0][0][0][0];
#pragma unroll
        for (int i = 0; i < Op::parts * Plan::frags * 4; ++i) {
            flat[i] = 0.0f;
        }
        int blocks = iso_ceil(k_length, Tile::bk);
#pragma unroll
        for (int s = 0; s < Tile::stages - 1; ++s) {
            if (s < blocks) {
                load(s, s);
            }
            iso_cp_async_commit();
        }
#pragma unroll 1
        for (int kb = 0, stage = 0; kb < blocks; ++kb) {
            iso_cp_async_wait<Tile::stages - 2>();
            __syncthreads();
            int next = kb + Tile::stages - 1;
            if (next < blocks) {
                load(next, stage == 0 ? Tile::stages - 1 : stage - 1);
            }
            iso_cp_async_commit();
            steps(acc, stage);
            stage = stage + 1 == Tile::stages ? 0 : stage + 1;
        }
        iso_cp_async_wait<0>();
        __syncthreads();
    }
};

// Where one fragment of this thread lies: two pairs, in rows 8 apart.
template <class Op, class Tile>
ISO_INLINE void iso_stream_leave(int group, const IsoGemmGroup &g, int root, int row0, int rows,
                                 int col0, int m, int n, const float (&v)[Op::parts][4]) {
    using Plan = IsoStreamPlan<Op, Tile>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int col = col0 + (warp * Plan::column_blocks + n) * 8 + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int row = row0 + m * 16 + h * 8 + lane / 4;
        float pair[Op::parts][2];
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            pair[p][0] = v[p][2 * h];
            pair[p][1] = v[p][2 * h + 1];
        }
        if (row < rows) {
            iso_leave<Op>(group, g, root, row, col, pair);
        }
    }
}

// One fragment's walk over the partial leaves in the workspace.
template <class Op, class Tile> struct IsoStreamJoin {
    using Plan = IsoStreamPlan<Op, Tile>;
    const IsoGemmGroup &g;
    const float4 *leaves;                                   // this tile's and thread's
    int group, row0, rows, col0, m, n;

    __device__ __forceinline__ void leaf(int l, float (&v)[4 * Op::parts]) {
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            int frag = (l * Op::parts + p) * Plan::frags + m * Plan::column_blocks + n;
            float4 x = __ldcg(leaves + frag * 128);
            v[4 * p] = x.x;
            v[4 * p + 1] = x.y;
            v[4 * p + 2] = x.z;
            v[4 * p + 3] = x.w;
        }
    }

    __device__ __forceinline__ void root(int r, float (&v)[4 * Op::parts]) {
        float parts[Op::parts][4];
#pragma unroll
        for (int i = 0; i < 4 * Op::parts; ++i) {
            parts[i / 4][i % 4] = v[i];
        }
        iso_stream_leave<Op, Tile>(group, g, r, row0, rows, col0, m, n, parts);
    }

    __device__ __forceinline__ void done(float (&v)[4 * Op::parts]) {
        root(-1, v);
    }
};

// True in every thread of the CTA that arrives last at its tile; leaves the counter at zero.
ISO_INLINE bool iso_stream_last(unsigned *counter, int arrivals) {
    __shared__ unsigned last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicInc(counter, arrivals - 1) == (unsigned)(arrivals - 1);
        __threadfence();
    }
    __syncthreads();
    bool mine = last;
    __syncthreads();
    return mine;
}

template <class Op, class Tile>
ISO_INLINE void iso_stream_split(const IsoGemmArgs &args, unsigned smem, int group, int row0,
                                 int rows, int col0) {
    using Plan = IsoStreamPlan<Op, Tile>;
    constexpr int leaves = Op::Tree::leaves;
    constexpr int height = Op::Tree::levels + 1;
    constexpr int frags = Op::parts * Plan::frags;
    const IsoGemmGroup &g = args.group[group];
    int leaf = blockIdx.y;
    long long tile = (long long)(row0 / Tile::bm) * gridDim.x + blockIdx.x;
    float4 *partial = (float4 *)args.workspace + tile * leaves * frags * 128 + threadIdx.x;
    typename IsoStreamChain<Op, Tile>::Acc acc;
    IsoStreamChain<Op, Tile>(args, g, smem, leaf, row0, rows, col0).run(acc);
    float4 *mine = partial + leaf * frags * 128;
    const float *v = &acc[0][0][0][0];
#pragma unroll
    for (int i = 0; i < frags; ++i) {
        __stcg(mine + i * 128, make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
    }
    if (!iso_stream_last(args.counters + tile, leaves)) {
        return;
    }
#pragma unroll 1
    for (int f = 0; f < Plan::frags; ++f) {
        float stack[height][4 * Op::parts];
        IsoStreamJoin<Op, Tile> join{g,    partial, group, row0, rows,
                                     col0, f / Plan::column_blocks, f % Plan::column_blocks};
        iso_tree_unroll<typename Op::Tree, 0, 0, 0, 0>(join, stack);
    }
}

// All leaves in one CTA: the body of the tree's interpreter.
template <class Op, class Tile> struct IsoStreamBody {
    using Plan = IsoStreamPlan<Op, Tile>;
    using Acc = typename IsoStreamChain<Op, Tile>::Acc;
    static constexpr int frags = Op::parts * Plan::frags;

    const IsoGemmArgs &args;
    unsigned smem;
    int group, row0, rows, col0;
    Acc acc;

    __device__ __forceinline__ unsigned slot(int level) const {
        return smem + Tile::stages * Plan::stage_bytes + (level * frags * 128 + threadIdx.x) * 16;
    }

    __device__ __forceinline__ void leaf(int l) {
        IsoStreamChain<Op, Tile>(args, args.group[group], smem, l, row0, rows, col0).run(acc);
    }

    __device__ __forceinline__ void push(int level) {
        const float *v = &acc[0][0][0][0];
#pragma unroll
        for (int i = 0; i < frags; ++i) {
            iso_shared_store_f4(slot(level) + i * 2048, make_float4(v[4 * i], v[4 * i + 1],
                                                                    v[4 * i + 2], v[4 * i + 3]));
        }
    }

    __device__ __forceinline__ void join(int level) {
        float *v = &acc[0][0][0][0];
#pragma unroll
        for (int i = 0; i < frags; ++i) {
            float4 left = iso_shared_load_f4(slot(level) + i * 2048);
            v[4 * i] = iso_add(left.x, v[4 * i]);
            v[4 * i + 1] = iso_add(left.y, v[4 * i + 1]);
            v[4 * i + 2] = iso_add(left.z, v[4 * i + 2]);
            v[4 * i + 3] = iso_add(left.w, v[4 * i + 3]);
        }
    }

    __device__ __forceinline__ void round(char c) {
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
#pragma unroll
            for (int i = 0; i < Plan::frags; ++i) {
                iso_tree_round(c, acc[p][i / Plan::column_blocks][i % Plan::column_blocks]);
            }
        }
    }

    __device__ __forceinline__ void root(int r) {
#pragma unroll
        for (int i = 0; i < Plan::frags; ++i) {
            int m = i / Plan::column_blocks, n = i % Plan::column_blocks;
            float v[Op::parts][4];
#pragma unroll
            for (int j = 0; j < 4 * Op::parts; ++j) {
                v[j / 4][j % 4] = acc[j / 4][m][n][j % 4];
            }
            iso_stream_leave<Op, Tile>(group, args.group[group], r, row0, rows, col0, m, n, v);
        }
    }
};

template <class Op, class Tile> ISO_INLINE void iso_gemm_stream(const IsoGemmArgs &args) {
    extern __shared__ unsigned char iso_dynamic[];
    static_assert(Op::Tree::count('P') == 0, "P is for the wgmma kernel");
    unsigned smem = iso_shared(iso_dynamic);
    int tile = blockIdx.x;
    int group = iso_tile_group<Op>(args.group, Tile::bn, tile);
    int rows = iso_live_rows(args.rows_dev, args.rows), col0 = tile * Tile::bn;
#pragma unroll 1
    for (int row0 = blockIdx.z * Tile::bm; row0 < rows; row0 += gridDim.z * Tile::bm) {
        if constexpr (IsoStreamPlan<Op, Tile>::joins_here) {
            iso_stream_split<Op, Tile>(args, smem, group, row0, rows, col0);
        } else {
            IsoStreamBody<Op, Tile> body{args, smem, group, row0, rows, col0, {}};
            iso_tree_run<typename Op::Tree>(body);
            if constexpr (!Op::Tree::roots) {
                body.root(-1);
            }
        }
    }
}

#endif
