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
    static constexpr int eights = Tile::bn / 8;
    static constexpr int warps = eights % 4 == 0 ? 4 : eights % 3 == 0 ? 3 : eights == 2 ? 2 : 1;
    static constexpr int column_blocks = eights / warps;    // of 8 columns, of one warp
    static constexpr int busy = 32 * warps;                 // threads that multiply; all load
    static constexpr int frags = row_blocks * column_blocks;
    static constexpr int a_bytes = Tile::bm * Tile::bk * 2;
    static constexpr int b_bytes = Tile::bn * Tile::bk * 2; // of one part
    static constexpr int stage_bytes = a_bytes + Op::parts * b_bytes;
    static constexpr bool joins_here = Tile::split && Op::Tree::leaves > 1;

    static_assert(Tile::bm == 16 || Tile::bm == 32 || Tile::bm == 64, "bm: 16, 32 or 64");
    static_assert(eights <= 3 || eights % 4 == 0 || eights % 3 == 0, "bn: some warps idle");
    static_assert(Tile::bn % 8 == 0 && Tile::bn <= 128, "bn: a multiple of 8 up to 128");
    static_assert(!Op::b_trans || (Tile::bn & (Tile::bn - 1)) == 0, "bn: a power of two");
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

// An operand as one thread loads it, block after block of Lines lines of Line elements: k runs
// along the lines, or from line to line (KOuter). What does not exist becomes zero.
template <int Lines, int Line, bool KOuter> struct IsoStreamSource {
    static constexpr int chunks = Line / 8;
    static constexpr int step = 128 / chunks;               // lines from one chunk to the next
    static constexpr int count = (Lines + step - 1) / step; // chunks of a block in this thread

    const unsigned short *ptr;                              // this thread's first chunk
    long long stride;                                       // between lines
    int lines, length;                                      // that exist from there on
    unsigned to;                                            // where the chunk goes in a stage
    bool aligned;                                           // everything, to 16 bytes

    __device__ __forceinline__ void open(const unsigned short *p, long long line_stride,
                                         int line_count, int line_length) {
        int line = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
        aligned = (((unsigned long long)p | (unsigned long long)line_stride * 2) & 15) == 0;
        ptr = p + line * line_stride + chunk * 8;
        stride = line_stride;
        lines = line_count - line;
        length = line_length - chunk * 8;
        to = IsoSharedTile<Line>::at(0, line, chunk);
    }

    // Whether this thread's chunk i lies in the block.
    __device__ __forceinline__ bool mine(int i) const {
        return Lines % step == 0 || i + 1 < count || threadIdx.x < Lines % step * chunks;
    }

    __device__ __forceinline__ void load(unsigned dst) {
        int present = length < 0 ? 0 : length > 8 ? 8 : length;
        if (aligned) {
#pragma unroll
            for (int i = 0; i < count; ++i) {
                if (mine(i)) {
                    iso_cp_async16(dst + to + i * 2048, ptr + i * step * stride,
                                   i * step < lines ? present * 2 : 0);
                }
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < count; ++i) {
                if (mine(i)) {
                    iso_stream_gather(dst + to + i * 2048, ptr + i * step * stride,
                                      i * step < lines ? present : 0);
                }
            }
        }
        ptr += KOuter ? Lines * stride : Line;
        (KOuter ? lines : length) -= KOuter ? Lines : Line;
    }
};

// The chain of one leaf for one CTA's tile.
template <class Op, class Tile> struct IsoStreamChain {
    using Plan = IsoStreamPlan<Op, Tile>;
    using Acc = float[Op::parts][Plan::row_blocks][Plan::column_blocks][4];

    using SourceA = IsoStreamSource<Op::a_trans ? Tile::bk : Tile::bm,
                                    Op::a_trans ? Tile::bm : Tile::bk, Op::a_trans>;
    using SourceB = IsoStreamSource<Op::b_trans ? Tile::bk : Tile::bn,
                                    Op::b_trans ? Tile::bn : Tile::bk, Op::b_trans>;
    unsigned smem;
    int k_length;
    SourceA a;
    SourceB b[Op::parts];

    __device__ __forceinline__ IsoStreamChain(const IsoGemmArgs &args, const IsoGemmGroup &g,
                                              unsigned smem, int leaf, int row0, int rows, int col0)
        : smem(smem) {
        int k0 = args.leaf_begin[leaf];
        k_length = args.leaf_begin[leaf + 1] - k0;
        const unsigned short *pa = (const unsigned short *)args.a;
        if constexpr (Op::a_trans) {
            a.open(pa + k0 * args.a_stride + row0, args.a_stride, k_length, rows - row0);
        } else {
            a.open(pa + row0 * args.a_stride + k0, args.a_stride, rows - row0, k_length);
        }
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            const unsigned short *pb = (const unsigned short *)g.b[p];
            long long stride = g.b_stride[p];
            if constexpr (Op::b_trans) {
                b[p].open(pb + k0 * stride + col0, stride, k_length, g.columns - col0);
            } else {
                b[p].open(pb + col0 * stride + k0, stride, g.columns - col0, k_length);
            }
        }
    }

    // The next block of k.
    __device__ __forceinline__ void load(int stage) {
        unsigned dst = smem + stage * Plan::stage_bytes;
        a.load(dst);
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            b[p].load(dst + Plan::a_bytes + p * Plan::b_bytes);
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

    // The operands of 32 k for one warp.
    struct Frags {
        unsigned a[Plan::row_blocks][2][4];
        unsigned b[Op::parts][Plan::column_blocks][4];
    };

    __device__ __forceinline__ void load_frags(Frags &f, unsigned tile, int k) {
        int col0 = threadIdx.x / 32 * (Plan::column_blocks * 8);
#pragma unroll
        for (int m = 0; m < Plan::row_blocks; ++m) {
            load_a(f.a[m][0], tile, m, k);
            load_a(f.a[m][1], tile, m, k + 16);
        }
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
#pragma unroll
            for (int n = 0; n < Plan::column_blocks; ++n) {
                load_b(f.b[p][n], tile + Plan::a_bytes + p * Plan::b_bytes, col0 + n * 8, k);
            }
        }
    }

    __device__ __forceinline__ void multiply(Acc &acc, const Frags &f, int half) {
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
#pragma unroll
            for (int n = 0; n < Plan::column_blocks; ++n) {
#pragma unroll
                for (int m = 0; m < Plan::row_blocks; ++m) {
                    iso_mma_k16<Op::f16>(acc[p][m][n], f.a[m][half], f.b[p][n][2 * half],
                                         f.b[p][n][2 * half + 1]);
                }
            }
        }
    }

    // One stage; the next operands are on their way while these are multiplied.
    __device__ __forceinline__ void steps(Acc &acc, int stage) {
        unsigned tile = smem + stage * Plan::stage_bytes;
        Frags f[2];
        load_frags(f[0], tile, 0);
#pragma unroll
        for (int i = 0; i < Tile::bk / 32; ++i) {
            if (i + 1 < Tile::bk / 32) {
                load_frags(f[(i + 1) % 2], tile, (i + 1) * 32);
            }
            multiply(acc, f[i % 2], 0);
            multiply(acc, f[i % 2], 1);
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
                load(s);
            }
            iso_cp_async_commit();
        }
#pragma unroll 1
        for (int kb = 0, stage = 0; kb < blocks; ++kb) {
            iso_cp_async_wait<Tile::stages - 2>();
            __syncthreads();
            if (kb + Tile::stages - 1 < blocks) {
                load(stage == 0 ? Tile::stages - 1 : stage - 1);
            }
            iso_cp_async_commit();
            if (threadIdx.x < Plan::busy) {
                steps(acc, stage);
            }
            stage = stage + 1 == Tile::stages ? 0 : stage + 1;
        }
        iso_cp_async_wait<0>();
        __syncthreads();
    }
};

// A CTA's tile on its way out. Fragments are numbered row block by row block.
template <class Op, class Tile> struct IsoStreamOut {
    using Plan = IsoStreamPlan<Op, Tile>;
    using Inputs = typename Op::Inputs;
    const IsoGemmGroup &g;
    int group, row0, rows, col0;
    bool pairs;                                             // every pair exists in one word

    ISO_INLINE IsoStreamOut make(const IsoGemmArgs &args, int group, int row0, int rows,
                                 int col0) {
        const IsoGemmGroup &g = args.group[group];
        return IsoStreamOut{g, group, row0, rows, col0,
                            col0 + Tile::bn <= g.columns && iso_leave_pairs<Op>(group, g)};
    }

    // Two pairs of a fragment, in rows 8 apart.
    __device__ __forceinline__ int row(int frag, int half) const {
        return row0 + frag / Plan::column_blocks * 16 + half * 8 + threadIdx.x % 32 / 4;
    }
    __device__ __forceinline__ int col(int frag) const {
        int block = threadIdx.x / 32 * Plan::column_blocks + frag % Plan::column_blocks;
        return col0 + block * 8 + threadIdx.x % 4 * 2;
    }

    template <bool Pairs> __device__ __forceinline__ void load_as(int frag, Inputs (&in)[2]) const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (row(frag, h) < rows) {
                iso_leave_load<Op, Pairs>(group, g, row(frag, h), col(frag), in[h]);
            }
        }
    }
    __device__ __forceinline__ void load(int frag, Inputs (&in)[2]) const {
        if (pairs) {
            load_as<true>(frag, in);
        } else {
            load_as<false>(frag, in);
        }
    }

    template <bool Pairs>
    __device__ __forceinline__ void store_as(int root, int frag, const float (&v)[Op::parts][4],
                                             const Inputs (&in)[2]) const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float pair[Op::parts][2];
#pragma unroll
            for (int p = 0; p < Op::parts; ++p) {
                pair[p][0] = v[p][2 * h];
                pair[p][1] = v[p][2 * h + 1];
            }
            if (row(frag, h) < rows) {
                iso_leave_store<Op, Pairs>(group, g, root, row(frag, h), col(frag), pair, in[h]);
            }
        }
    }
    __device__ __forceinline__ void store(int root, int frag, const float (&v)[Op::parts][4],
                                          const Inputs (&in)[2]) const {
        if (pairs) {
            store_as<true>(root, frag, v, in);
        } else {
            store_as<false>(root, frag, v, in);
        }
    }
};

// The walk over the partial leaves in the workspace, for Batch fragments of one thread at a time.
template <class Op, class Tile, int Batch> struct IsoStreamJoin {
    using Plan = IsoStreamPlan<Op, Tile>;
    static constexpr int floats = 4 * Op::parts;            // of one fragment
    const IsoStreamOut<Op, Tile> &out;
    const float4 *leaves;                                   // this tile's and thread's
    int frag0;
    typename Op::Inputs in[Batch][2];

    __device__ __forceinline__ void leaf(int l, float (&v)[floats * Batch]) {
#pragma unroll
        for (int i = 0; i < Op::parts * Batch; ++i) {
            int frag = (l * Op::parts + i % Op::parts) * Plan::frags + frag0 + i / Op::parts;
            float4 x = __ldcg(leaves + frag * Plan::busy);
            v[4 * i] = x.x;
            v[4 * i + 1] = x.y;
            v[4 * i + 2] = x.z;
            v[4 * i + 3] = x.w;
        }
    }

    __device__ __forceinline__ void root(int r, float (&v)[floats * Batch]) {
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
            float parts[Op::parts][4];
#pragma unroll
            for (int i = 0; i < floats; ++i) {
                parts[i / 4][i % 4] = v[b * floats + i];
            }
            out.store(r, frag0 + b, parts, in[b]);
        }
    }

    __device__ __forceinline__ void done(float (&v)[floats * Batch]) {
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
    float4 *partial = (float4 *)args.workspace + tile * leaves * frags * Plan::busy + threadIdx.x;
    typename IsoStreamChain<Op, Tile>::Acc acc;
    IsoStreamChain<Op, Tile>(args, g, smem, leaf, row0, rows, col0).run(acc);
    float4 *mine = partial + leaf * frags * Plan::busy;
    const float *v = &acc[0][0][0][0];
    bool busy = threadIdx.x < Plan::busy;
#pragma unroll
    for (int i = 0; busy && i < frags; ++i) {
        __stcg(mine + i * Plan::busy,
               make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
    }
    if (!iso_stream_last(args.counters + tile, leaves) || !busy) {
        return;
    }
    constexpr int most = Op::parts == 1 ? 4 : 2, batch = Plan::frags < most ? Plan::frags : most;
    auto out = IsoStreamOut<Op, Tile>::make(args, group, row0, rows, col0);
#pragma unroll 1
    for (int f = 0; f < Plan::frags; f += batch) {
        float stack[height][4 * Op::parts * batch];
        IsoStreamJoin<Op, Tile, batch> join{out, partial, f, {}};
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            out.load(f + i, join.in[i]);
        }
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
        return smem + Tile::stages * Plan::stage_bytes +
               (level * frags * Plan::busy + threadIdx.x) * 16;
    }

    __device__ __forceinline__ void leaf(int l) {
        IsoStreamChain<Op, Tile>(args, args.group[group], smem, l, row0, rows, col0).run(acc);
    }

    __device__ __forceinline__ void push(int level) {
        const float *v = &acc[0][0][0][0];
#pragma unroll
        for (int i = 0; threadIdx.x < Plan::busy && i < frags; ++i) {
            iso_shared_store_f4(
                slot(level) + i * Plan::busy * 16,
                make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
        }
    }

    __device__ __forceinline__ void join(int level) {
        float *v = &acc[0][0][0][0];
#pragma unroll
        for (int i = 0; threadIdx.x < Plan::busy && i < frags; ++i) {
            float4 left = iso_shared_load_f4(slot(level) + i * Plan::busy * 16);
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
        if (threadIdx.x >= Plan::busy) {
            return;
        }
        auto out = IsoStreamOut<Op, Tile>::make(args, group, row0, rows, col0);
        typename Op::Inputs in[Plan::frags][2];
#pragma unroll
        for (int i = 0; i < Plan::frags; ++i) {
            out.load(i, in[i]);
        }
#pragma unroll
        for (int i = 0; i < Plan::frags; ++i) {
            int m = i / Plan::column_blocks, n = i % Plan::column_blocks;
            float v[Op::parts][4];
#pragma unroll
            for (int j = 0; j < 4 * Op::parts; ++j) {
                v[j / 4][j % 4] = acc[j / 4][m][n][j % 4];
            }
            out.store(r, i, v, in[i]);
        }
    }
};

template <class Op, class Tile> ISO_INLINE void iso_gemm_stream(const IsoGemmArgs &args) {
    extern __shared__ unsigned char iso_dynamic[];
    static_assert(Op::Tree::single, "P and Q are for the wgmma kernel");
    unsigned smem = iso_shared(iso_dynamic);
    iso_grid_begin();
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
