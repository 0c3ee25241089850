// Grouped products: each row (token, pick) with the weights of its expert. Producer warps gather
// the rows of one expert and copy its weights, consumer warpgroups run the same chains, trees and
// epilogues as iso_gemm_wgmma.cuh, and what they give goes back to the rows' own places. The launch
// rule is in iso_abi.cuh. Owns no memory beyond its shared memory and its slice of the workspace.
//
// Persistent over items (iso_group_order.cuh) by column tiles. A row's sums are of that row and its
// expert's weights alone, so no bit depends on which rows share an item.
#ifndef ISO_GROUP_WGMMA_CUH
#define ISO_GROUP_WGMMA_CUH

#include "iso_gemm_wgmma.cuh"

// Room: see IsoWgmmaTile; the producers need registers too, and roots leave through more of them.
template <int Bm, int Bn, int Stages, int Near = 0, int Tail = 4, int Room = 160>
struct IsoGroupTile {
    static constexpr int bm = Bm, bn = Bn, stages = Stages, near = Near, tail = Tail;
    static constexpr int cluster = 1;
    static constexpr int room = Room;
    static constexpr bool gathered = true;
};

template <class Op, class Tile> struct IsoGroupPlan {
    using Wgmma = IsoWgmmaPlan<Op, Tile>;
    static constexpr int sets = Tile::bm / 16;      // of 16 rows, which the producers load at once
    static constexpr int arrivals = 129;            // at a full stage: producers, the weights

    static_assert(!Op::a_trans, "rows are gathered whole");
    static_assert(Tile::stages >= 3, "stages");
    static_assert(Wgmma::consumers <= 2, "bm: 16, 32, 64 or 128");
};

// Arrives when all copies that this thread has begun have come.
ISO_INLINE void iso_cp_async_arrive(unsigned bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

ISO_INLINE void iso_tma_load_expert(unsigned dst, const void *map, unsigned bar, int c0, int c1,
                                    int c2, int expert) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(expert)
                 : "memory");
}

template <class Op, class Tile>
ISO_INLINE void iso_group_weights(const IsoGemmMaps &maps, unsigned smem, unsigned bar, int group,
                                  int expert, int col0, int k0, int leaf) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    iso_mbar_expect(bar, Op::parts * Plan::b_bytes);
#pragma unroll
    for (int p = 0; p < Op::parts; ++p) {
        const IsoTensorMap *map = &maps.b[group * Op::parts + p];
        unsigned dst = smem + Plan::a_bytes + p * Plan::b_bytes;
        if constexpr (Op::b_trans) {
#pragma unroll
            for (int i = 0; i < Plan::bnp / 64; ++i) {
                iso_tma_load_expert(dst + i * 8192, map, bar, col0 + i * 64, k0, leaf, expert);
            }
        } else {
            iso_tma_load_expert(dst, map, bar, k0, leaf, col0, expert);
        }
    }
}

// The producers' loads of rows: a thread loads 16 bytes of a row of each set.
template <class Op, class Tile> struct IsoGroupRows {
    using Plan = IsoGroupPlan<Op, Tile>;
    const IsoGroupArgs &args;
    int line;                                       // of this thread's loads in set 0
    unsigned to;                                    // where they go in a stage
    unsigned begin[Plan::sets];                     // of its rows, in units of 16 bytes
    bool all;                                       // the second half is read too

    __device__ __forceinline__ IsoGroupRows(const IsoGroupArgs &args) : args(args) {
        line = threadIdx.x / 8;
        to = line * 128 + (threadIdx.x % 8 ^ (line & 7)) * 16;
    }
    __device__ __forceinline__ void open(const IsoGroupItem &item) {
        int last = item.count - 1;
        all = item.count > 64;
#pragma unroll
        for (int i = 0; i < Plan::sets; ++i) {
            int n = i * 16 + line;
            int row = args.order[item.first + (n < last ? n : last)], token = row / args.picks;
            long long at = token * args.gemm.a_stride +
                           (row - token * args.picks) * args.a_pick_stride;
            begin[i] = (unsigned)(at / 8);
        }
    }
    // Past the leaf's end a row is zeros; one that does not exist is the last that does. The
    // barrier counts each thread when its copies have come.
    __device__ __forceinline__ void load(unsigned stage, unsigned bar, int leaf, int length,
                                         int k0) const {
        int k = k0 + threadIdx.x % 8 * 8;
        bool inside = k < length;
        const char *from = (const char *)args.gemm.a + 2ll * (leaf * length + (inside ? k : 0));
#pragma unroll
        for (int i = 0; i < Plan::sets; ++i) {
            if (i < 4 || all) {
                iso_cp_async16(stage + to + i * 2048, from + begin[i] * 16ull, inside ? 16 : 0);
            }
        }
        iso_cp_async_arrive(bar);
    }
};

template <class Op, class Tile>
ISO_INLINE void iso_group_produce(const IsoGroupArgs &args, const IsoGemmMaps &maps, unsigned smem,
                                  IsoRing ring, const IsoWgmmaTiles &tiles) {
    using Plan = IsoGroupPlan<Op, Tile>;
    int length = args.gemm.leaf_begin[1] - args.gemm.leaf_begin[0];
    IsoGroupRows<Op, Tile> rows(args);
#pragma unroll 1
    for (int t = blockIdx.x; t < tiles.count(); t += gridDim.x) {
        int at, column;
        tiles.at(t, at, column);
        int group = iso_tile_group<Op>(args.gemm.group, Tile::bn, column);
        IsoGroupItem item = args.items[at];
        rows.open(item);
#pragma unroll 1
        for (int leaf = 0; leaf < Op::Tree::leaves; ++leaf) {
#pragma unroll 1
            for (int k = 0; k < length; k += Plan::Wgmma::bk) {
                unsigned stage = smem + ring.stage * Plan::Wgmma::stage_bytes;
                unsigned bar = ring.full + 8 * ring.stage;
                iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                if ((int)threadIdx.x == ring.stage % 4 * 32) {  // the warps take turns
                    iso_group_weights<Op, Tile>(maps, stage, bar, group, item.expert,
                                                column * Tile::bn, k, leaf);
                }
                __syncwarp();
                rows.load(stage, bar, leaf, length, k);
                ring.template advance<Tile::stages>();
            }
        }
    }
}

// As IsoPlace; of a row that does not exist the nearest that does.
struct IsoGroupPlace {
    int group, first_row, second_row, col0, live;   // live: how many of the two exist
    bool whole;

    __device__ __forceinline__ int row(int half) const {
        return half ? second_row : first_row;
    }
    __device__ __forceinline__ bool lives(int half) const {
        return half < live;
    }
    __device__ __forceinline__ int near_row(int half) const {
        return row(half);
    }
};

template <class Op, class Tile> struct IsoGroupWhere {
    const IsoGroupArgs &args;
    const IsoWgmmaTiles &tiles;
    int tile;

    __device__ __forceinline__ bool followed() const {
        return tile + (int)gridDim.x < tiles.count();
    }
    __device__ __forceinline__ IsoGroupPlace place() const {
        int at, column, thread = threadIdx.x - 128;
        tiles.at(tile, at, column);
        int group = iso_tile_group<Op>(args.gemm.group, Tile::bn, column);
        IsoGroupItem item = args.items[at];
        int i = thread / 32 * 16 + thread % 32 / 4, last = item.count - 1;
        int first = args.order[item.first + (i < last ? i : last)];
        int second = args.order[item.first + (i + 8 < last ? i + 8 : last)];
        return IsoGroupPlace{group, first, second, column * Tile::bn + thread % 4 * 2,
                             (i <= last) + (i + 8 <= last),
                             (column + 1) * Tile::bn <= args.gemm.group[group].columns};
    }
};

// A warpgroup none of whose rows exist lets a tile pass.
template <int Stages> ISO_INLINE void iso_group_skip(IsoRing &ring, int blocks) {
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
        iso_mbar_wait(ring.full + 8 * ring.stage, ring.phase);
        if (threadIdx.x % 32 == 0) {
            iso_mbar_arrive(ring.empty + 8 * ring.stage);
        }
        ring.template advance<Stages>();
    }
}

template <class Op, class Tile>
ISO_INLINE void iso_group_consume(const IsoGroupArgs &args, unsigned smem, IsoRing ring,
                                  const IsoWgmmaTiles &tiles) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    using Later = IsoLater<Op, Plan::regs, Plan::kept, IsoGroupPlace>;
    using Where = IsoGroupWhere<Op, Tile>;
    using Body = IsoWgmmaBody<Op, Tile, Where, Later>;
    int thread = threadIdx.x - 128, half = thread / 128;
    float4 *stack = (float4 *)args.gemm.workspace + thread +
                    (long long)blockIdx.x * Plan::far * (Plan::level_floats / 4);
    unsigned near_stack = smem + Tile::stages * Plan::stage_bytes + thread * 16;
    int blocks = iso_ceil(args.gemm.leaf_begin[1] - args.gemm.leaf_begin[0], Plan::bk);
    Later later;
#pragma unroll 1
    for (int t = blockIdx.x; t < tiles.count(); t += gridDim.x) {
        int at, column;
        tiles.at(t, at, column);
        if (half > 0 && args.items[at].count <= 64 * half) {
            later.leave_all(args.gemm);
            iso_group_skip<Tile::stages>(ring, Op::Tree::leaves * blocks);
            continue;
        }
        Where where{args, tiles, t};
        Body body{args.gemm, ring, stack, near_stack, smem + half * 8192, smem + Plan::a_bytes,
                  blocks, where, later, {}};
        iso_tree_run<typename Op::Tree>(body);
        if constexpr (!Op::Tree::roots) {
            body.root(-1);
        }
    }
    later.leave_all(args.gemm);
}

template <class Op, class Tile>
ISO_INLINE void iso_group_init(const IsoGemmMaps &maps, const IsoRing &ring) {
    using Plan = IsoGroupPlan<Op, Tile>;
    if (threadIdx.x >= 128 && threadIdx.x < 128 + Op::groups * Op::parts) {
        iso_tma_prefetch(&maps.b[threadIdx.x - 128]);
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < Tile::stages; ++s) {
            iso_mbar_init(ring.full + 8 * s, Plan::arrivals);
            iso_mbar_init(ring.empty + 8 * s, 4 * Plan::Wgmma::consumers);
        }
        iso_mbar_init_fence();
    }
    __syncthreads();
}

template <class Op, class Tile>
ISO_INLINE void iso_gemm_group(const IsoGroupArgs &args, const IsoGemmMaps &maps) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    extern __shared__ unsigned char iso_dynamic[];
    unsigned smem = (iso_shared(iso_dynamic) + 1023) & ~1023u;
    unsigned full = smem + Tile::stages * Plan::stage_bytes + Tile::near * Plan::level_floats * 4;
    IsoRing ring{full, full + 8 * Tile::stages, 0, 0};
    iso_group_init<Op, Tile>(maps, ring);
    iso_grid_begin();
    IsoWgmmaTiles tiles = IsoWgmmaTiles::make<Plan>(
        *args.n_items, iso_column_tiles<Op>(args.gemm.group, Tile::bn));
    if (threadIdx.x < 128) {
        if constexpr (Plan::consumers == 2) {
            iso_registers_shrink<40>();
        }
        iso_group_produce<Op, Tile>(args, maps, smem, ring, tiles);
    } else {
        if constexpr (Plan::consumers == 2) {
            iso_registers_grow<232>();
        }
        iso_group_consume<Op, Tile>(args, smem, ring, tiles);
    }
}

#endif
