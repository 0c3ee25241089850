// Products whose leaves lie over the CTAs of a cluster: each streams its leaves of one tile through
// copy engine and wgmma, sends every other CTA what that one needs for its share of the columns,
// and walks the tree for its own. The launch rule is in iso_abi.cuh. Owns no memory beyond its
// shared memory.
//
// In the Op's program each L stands for what one CTA holds: a leaf, or `fused` leaves joined in
// registers as P or Q would.
#ifndef ISO_GEMM_SPLIT_CUH
#define ISO_GEMM_SPLIT_CUH

#include "iso_gemm_wgmma.cuh"

template <int Bm, int Bn, int Stages, int Fused> struct IsoSplitTile {
    static constexpr int bm = Bm, bn = Bn, stages = Stages, fused = Fused;
    static constexpr int near = 0, cluster = 1;     // of the wgmma kernel's ring
    static constexpr int tail = 4, room = 176;
    static constexpr bool gathered = false;
};

template <class Op, class Tile> struct IsoSplitPlan {
    using Wgmma = IsoWgmmaPlan<Op, Tile>;
    static constexpr int ctas = Op::Tree::leaves;   // of a cluster
    static constexpr int eights = Tile::bn / 8;     // columns, in the units that one thread holds
    static constexpr int share = iso_ceil(eights, ctas);
    static constexpr int live = (Tile::fused == 4 ? 3 : Tile::fused) * Op::parts * Wgmma::regs;

    // What a CTA receives: 16 bytes per thread with rows, eight columns of its share, part, sender.
    static constexpr int threads = Tile::bm < 64 ? Tile::bm * 2 : 128 * Wgmma::consumers;
    static constexpr int apart = threads * 16;
    static constexpr int value_bytes = Op::parts * share * apart;   // of one sender

    static_assert(Op::Tree::single && ctas >= 2 && ctas <= 8, "one L for each CTA of a cluster");
    static_assert(eights % ctas == 0, "bn: equal shares");
    static_assert(Tile::fused == 1 || Tile::fused == 2 || Tile::fused == 4, "fused");
    static_assert(live <= 200, "too many accumulators for the registers");
};

// The walk over the cluster's values, for eights [first, first + Batch) of one thread.
template <class Op, class Tile, bool Pairs, int Batch> struct IsoSplitJoin {
    using Plan = IsoSplitPlan<Op, Tile>;
    static constexpr int floats = 4 * Op::parts;
    const IsoGemmGroup &g;
    unsigned values;                                // received, this thread's first
    int group, own, first, row, col0, rows;         // eight `first` of its own, which begin at own
    typename Op::Inputs (&in)[Plan::share][2];

    __device__ __forceinline__ bool exists(int half) const {
        return row + 8 * half < rows;
    }

    __device__ __forceinline__ void leaf(int l, float (&v)[floats * Batch]) {
#pragma unroll
        for (int i = 0; i < Op::parts * Batch; ++i) {
            int place = i % Op::parts * Plan::share + first + i / Op::parts;
            float4 x = iso_shared_load_f4(values + l * Plan::value_bytes + place * Plan::apart);
            v[4 * i] = x.x;
            v[4 * i + 1] = x.y;
            v[4 * i + 2] = x.z;
            v[4 * i + 3] = x.w;
        }
    }

    __device__ __forceinline__ void root(int r, float (&v)[floats * Batch]) {
#pragma unroll
        for (int i = 0; i < 2 * Batch; ++i) {
            float pair[Op::parts][2];
#pragma unroll
            for (int p = 0; p < Op::parts; ++p) {
                pair[p][0] = v[i / 2 * floats + p * 4 + i % 2 * 2];
                pair[p][1] = v[i / 2 * floats + p * 4 + i % 2 * 2 + 1];
            }
            if (exists(i % 2)) {
                iso_leave_store<Op, Pairs>(group, g, r, row + i % 2 * 8,
                                           col0 + (own + first + i / 2) * 8, pair,
                                           in[first + i / 2][i % 2]);
            }
        }
    }

    __device__ __forceinline__ void done(float (&v)[floats * Batch]) {
        root(-1, v);
    }
};

// What the epilogue reads is asked for before the values have come.
template <class Op, class Tile, bool Pairs>
ISO_INLINE void iso_split_join(const IsoGemmGroup &g, int group, unsigned values, unsigned bar,
                               unsigned phase, int row, int col0, int rows) {
    using Plan = IsoSplitPlan<Op, Tile>;
    constexpr int batch = Plan::share % 2 == 0 ? 2 : 1, height = Op::Tree::levels + 1;
    int own = iso_cluster_rank() * Plan::share;
    typename Op::Inputs in[Plan::share][2];
#pragma unroll
    for (int i = 0; i < 2 * Plan::share; ++i) {
        if (row + i % 2 * 8 < rows) {
            iso_leave_load<Op, Pairs>(group, g, row + i % 2 * 8, col0 + (own + i / 2) * 8,
                                      in[i / 2][i % 2]);
        }
    }
    iso_mbar_wait(bar, phase);
#pragma unroll
    for (int i = 0; i < Plan::share; i += batch) {
        float stack[height][4 * Op::parts * batch];
        IsoSplitJoin<Op, Tile, Pairs, batch> join{g, values, group, own, i, row, col0, rows, in};
        iso_tree_unroll<typename Op::Tree, 0, 0, 0, 0>(join, stack);
    }
}

// Where a cluster works: its column tile, and the row tiles from blockIdx.z on.
struct IsoSplitPlace {
    int group, column, rows, tiles;
};

template <class Op, class Tile>
ISO_INLINE void iso_split_produce(const IsoGemmArgs &args, const IsoGemmMaps &maps, unsigned smem,
                                  IsoRing ring, const IsoSplitPlace &at, int early) {
    using Plan = IsoSplitPlan<Op, Tile>;
    constexpr int bk = Plan::Wgmma::bk;
    int blocks = iso_ceil(args.leaf_begin[1] - args.leaf_begin[0], bk);
    int leaf0 = iso_cluster_rank() * Tile::fused, bytes = iso_wgmma_fill_bytes<Op, Tile>(args);
    int leaf = leaf0 + early / blocks, kb = early % blocks;
    bool once = iso_uniform(threadIdx.x / 32) == 0 && iso_elect();
    ring.template skip<Tile::stages>(early);
#pragma unroll 1
    for (int row = blockIdx.z; row < at.tiles; row += gridDim.z) {
        for (; once && leaf < leaf0 + Tile::fused; ++leaf, kb = 0) {
            for (; kb < blocks; ++kb) {
                iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                iso_wgmma_fill<Op, Tile>(maps, smem + ring.stage * Plan::Wgmma::stage_bytes,
                                         ring.full + 8 * ring.stage, bytes, at.group,
                                         row * Tile::bm,
                                         at.column * Tile::bn, kb * bk, leaf);
                ring.template advance<Tile::stages>();
            }
        }
        leaf = leaf0;
        if (row + gridDim.z < at.tiles) {
            __syncwarp();
            iso_cluster_sync();         // the values are taken
        }
    }
}

// Sends each other CTA of the cluster the columns of its share. A thread's own stay with it.
template <class Op, class Tile>
ISO_INLINE void iso_split_send(const float (&acc)[Op::parts][Tile::bn / 2], unsigned values,
                               unsigned bar) {
    using Plan = IsoSplitPlan<Op, Tile>;
    int own = iso_cluster_rank();
    unsigned mine = values + own * Plan::value_bytes;
#pragma unroll
    for (int i = 0; i < Op::parts * Plan::eights; ++i) {
        int part = i / Plan::eights, eight = i % Plan::eights, to = eight / Plan::share;
        const float *v = &acc[part][eight * 4];
        unsigned place = mine + (part * Plan::share + eight % Plan::share) * Plan::apart;
        float4 four = make_float4(v[0], v[1], v[2], v[3]);
        if (to == own) {
            iso_shared_store_f4(place, four);
        } else {
            iso_cluster_send_f4(place, bar, to, four);
        }
    }
}

template <class Op, class Tile>
ISO_INLINE void iso_split_consume(const IsoGemmArgs &args, unsigned smem, unsigned values,
                                  unsigned bar, IsoRing ring, const IsoSplitPlace &at) {
    using Plan = IsoSplitPlan<Op, Tile>;
    using Never = IsoLater<Op, Plan::Wgmma::regs, 0>;
    using Body = IsoWgmmaBody<Op, Tile, IsoSplitPlace, Never>;
    int thread = threadIdx.x - 128, half = iso_uniform(threadIdx.x / 128) - 1;
    int blocks = iso_ceil(args.leaf_begin[1] - args.leaf_begin[0], Plan::Wgmma::bk);
    int col0 = at.column * Tile::bn + thread % 4 * 2;
    const IsoGemmGroup &g = args.group[at.group];
    bool pairs = (at.column + 1) * Tile::bn <= g.columns && iso_leave_pairs<Op>(at.group, g);
    unsigned phase = 0;
    Never never;
#pragma unroll 1
    for (int tile = blockIdx.z; tile < at.tiles; tile += gridDim.z, phase ^= 1) {
        int row = tile * Tile::bm + half * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
        int end = (tile + 1) * Tile::bm < at.rows ? (tile + 1) * Tile::bm : at.rows;
        Body body{args, ring, nullptr, 0, smem + half * 8192, smem + Plan::Wgmma::a_bytes, blocks,
                  at, never, {}};
        if (thread == 0) {
            iso_mbar_expect(bar, (Plan::ctas - 1) * Plan::value_bytes);
        }
        if constexpr (Tile::fused == 1) {
            body.leaf(0);
        } else if constexpr (Tile::fused == 2) {
            body.pair(0);
        } else {
            body.quad(0);
        }
        if (thread < Plan::threads) {
            iso_split_send<Op, Tile>(body.acc, values + thread * 16, bar);
            if (pairs) {
                iso_split_join<Op, Tile, true>(g, at.group, values + thread * 16, bar, phase, row,
                                               col0, end);
            } else {
                iso_split_join<Op, Tile, false>(g, at.group, values + thread * 16, bar, phase, row,
                                                col0, end);
            }
        }
        if (tile + gridDim.z < at.tiles) {
            __syncwarp();
            iso_cluster_sync();
        }
    }
    iso_mbar_wait(bar, phase ^ 1);                  // all that was sent here has come
}

template <class Op, class Tile>
ISO_INLINE void iso_gemm_split(const IsoGemmArgs &args, const IsoGemmMaps &maps) {
    using Plan = IsoSplitPlan<Op, Tile>;
    extern __shared__ unsigned char iso_dynamic[];
    unsigned smem = (iso_shared(iso_dynamic) + 1023) & ~1023u;
    unsigned values = smem + Tile::stages * Plan::Wgmma::stage_bytes;
    unsigned full = values + Plan::ctas * Plan::value_bytes, bar = full + 16 * Tile::stages;
    IsoRing ring{full, full + 8 * Tile::stages, 0, 0};
    if (threadIdx.x == 0) {
        iso_mbar_init(bar, 1);
    }
    iso_ring_init<Op, Tile::stages>(maps, ring, 4 * Plan::Wgmma::consumers);
    __syncthreads();
    iso_cluster_start();
    iso_grid_open();
    IsoSplitPlace at{0, (int)blockIdx.x / Plan::ctas, 0, 0};
    at.group = iso_tile_group<Op>(args.group, Tile::bn, at.column);
    IsoEarly<Op, Tile> early{0, 0, 1};
    if (args.settled) {
        early = IsoEarly<Op, Tile>::columns(args, maps, smem, ring, at.group, at.column * Tile::bn,
                                            iso_cluster_rank() * Tile::fused, Tile::fused);
    }
    iso_grid_wait();
    at.rows = iso_live_rows(args.rows_dev, args.rows);
    at.tiles = iso_ceil(at.rows, Tile::bm);
    early.rows(maps, smem, ring, blockIdx.z * Tile::bm, (int)blockIdx.z < at.tiles);
    constexpr int consumers = Plan::Wgmma::consumers;
    constexpr int registers = iso_wgmma_registers(consumers, Plan::live);
    if (iso_uniform(threadIdx.x / 32) < 4) {
        if constexpr (registers > 0) {
            iso_registers_shrink<iso_wgmma_registers_kept(consumers, Plan::live)>();
        }
        iso_split_produce<Op, Tile>(args, maps, smem, ring, at, early.stages);
    } else {
        if constexpr (registers > 0) {
            iso_registers_grow<registers>();
        }
        iso_split_consume<Op, Tile>(args, smem, values, bar, ring, at);
    }
}

#endif
