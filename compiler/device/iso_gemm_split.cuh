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

// The walk over the cluster's values, for eights [first, first + Batch) of one thread; leave(r, v)
// takes a root, or what is left at the end.
template <class Op, class Tile, int Batch, class Leave> struct IsoSplitJoin {
    using Plan = IsoSplitPlan<Op, Tile>;
    static constexpr int floats = 4 * Op::parts * Batch;
    unsigned values;                                // received, this thread's first
    int first;
    const Leave &leave;

    __device__ __forceinline__ void leaf(int l, float (&v)[floats]) {
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
    __device__ __forceinline__ void root(int r, float (&v)[floats]) {
        leave(r, v);
    }
    __device__ __forceinline__ void done(float (&v)[floats]) {
        leave(-1, v);
    }
};

template <class Op, class Tile, int Batch, class Leave>
ISO_INLINE void iso_split_walk(unsigned values, int first, const Leave &leave) {
    float stack[Op::Tree::levels + 1][4 * Op::parts * Batch];
    IsoSplitJoin<Op, Tile, Batch, Leave> join{values, first, leave};
    iso_tree_unroll<typename Op::Tree, 0, 0, 0, 0>(join, stack);
}

// What the epilogue reads is asked for before the values have come.
template <class Op, class Tile, bool Pairs>
ISO_INLINE void iso_split_join(const IsoGemmGroup &g, const IsoPlace &at, unsigned values,
                               unsigned bar, unsigned phase) {
    using Plan = IsoSplitPlan<Op, Tile>;
    constexpr int batch = Plan::share % 2 == 0 ? 2 : 1;
    typename Op::Inputs in[Plan::share][2];
#pragma unroll
    for (int i = 0; i < 2 * Plan::share; ++i) {
        if (at.lives(i % 2)) {
            iso_leave_load<Op, Pairs>(at.group, g, at.row(i % 2), at.col0 + i / 2 * 8,
                                      in[i / 2][i % 2]);
        }
    }
    iso_mbar_wait(bar, phase);
#pragma unroll
    for (int first = 0; first < Plan::share; first += batch) {
        auto leave = [&](int r, const float (&v)[4 * Op::parts * batch]) {
#pragma unroll
            for (int i = 0; i < 2 * batch; ++i) {
                float pair[Op::parts][2];
#pragma unroll
                for (int p = 0; p < Op::parts; ++p) {
                    pair[p][0] = v[(i / 2 * Op::parts + p) * 4 + i % 2 * 2];
                    pair[p][1] = v[(i / 2 * Op::parts + p) * 4 + i % 2 * 2 + 1];
                }
                if (at.lives(i % 2)) {
                    iso_leave_store<Op, Pairs>(at.group, g, r, at.row(i % 2),
                                               at.col0 + (first + i / 2) * 8, pair,
                                               in[first + i / 2][i % 2]);
                }
            }
        };
        iso_split_walk<Op, Tile, batch>(values, first, leave);
    }
}

// The same in words of 16 bytes, four eights at a time.
template <class Op, class Tile>
ISO_INLINE void iso_split_join_wide(const IsoGemmGroup &g, const IsoPlace &at, unsigned values,
                                    unsigned bar, unsigned phase) {
    constexpr int share = IsoSplitPlan<Op, Tile>::share;
    typename Op::Inputs in[share / 2][4];
#pragma unroll
    for (int set = 0; set < share / 2; ++set) {
        iso_leave_ask<Op>(g, at, set % 2, at.col0 + set / 2 * 32, in[set]);
    }
    iso_mbar_wait(bar, phase);
#pragma unroll
    for (int first = 0; first < share; first += 4) {
        auto leave = [&](int r, const float (&v)[16 * Op::parts]) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                typename Op::Sum sums[Op::parts][4];
#pragma unroll
                for (int i = 0; i < 4 * Op::parts; ++i) {
                    const float *x = &v[(i % 4 * Op::parts + i / 4) * 4 + half * 2];
                    sums[i / 4][i % 4] = Op::sum(x[0], x[1]);
                }
                if constexpr (Op::Tree::roots) {
                    iso_leave_root<Op>(g, at, r, half, at.col0 + first * 8, sums);
                } else {
                    iso_leave_eights<Op>(g, at, half, at.col0 + first * 8, sums,
                                         in[first / 2 + half]);
                }
            }
        };
        iso_split_walk<Op, Tile, 4>(values, first, leave);
    }
}

// One tile, by whatever its columns and tensors allow.
template <class Op, class Tile>
ISO_INLINE void iso_split_leave(const IsoGemmGroup &g, const IsoPlace &at, unsigned values,
                                unsigned bar, unsigned phase) {
    if constexpr (iso_can_leave_wide<Op>(IsoSplitPlan<Op, Tile>::share * 4)) {
        if (iso_leaves_wide<Op>(at, g)) {
            iso_split_join_wide<Op, Tile>(g, at, values, bar, phase);
            return;
        }
    } else if (at.whole && iso_leave_pairs<Op>(at.group, g)) {
        iso_split_join<Op, Tile, true>(g, at, values, bar, phase);
        return;
    }
    iso_split_join<Op, Tile, false>(g, at, values, bar, phase);
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
    int col0 = at.column * Tile::bn + iso_cluster_rank() * Plan::share * 8 + thread % 4 * 2;
    const IsoGemmGroup &g = args.group[at.group];
    bool whole = (at.column + 1) * Tile::bn <= g.columns;
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
            IsoPlace place{at.group, row, col0, end, whole};
            iso_split_leave<Op, Tile>(g, place, values + thread * 16, bar, phase);
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
