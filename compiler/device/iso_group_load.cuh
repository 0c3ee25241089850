// What the producer warps of a grouped product do: they gather the rows of one expert and copy its
// weights, stage by stage; and the way of a CTA through the tiles. Owns nothing.
#ifndef ISO_GROUP_LOAD_CUH
#define ISO_GROUP_LOAD_CUH

#include "iso_gemm_wgmma.cuh"

// Room: see IsoWgmmaTile; the producers need registers too, and roots leave through more of them.
// Odd: blocks go on over the leaves' borders, and a leaf takes so many steps of 16 k more than
// whole blocks; 0: a leaf has blocks of its own.
// Sorts: whether rows may lie in the order: 0, 1, or 2, where two CTAs of a cluster then have two
// column tiles of the same rows, and each loads half of these for both.
template <int Bm, int Bn, int Stages, int Near = 0, int Tail = 4, int Room = 160, int Odd = 0,
          int Sorts = 0>
struct IsoGroupTile {
    static constexpr int bm = Bm, bn = Bn, stages = Stages, near = Near, tail = Tail;
    static constexpr int cluster = 1;
    static constexpr int room = Room, odd = Odd;
    static constexpr bool gathered = true, sorts = Sorts > 0, pairs = Sorts == 2;
};

template <class Op, class Tile> struct IsoGroupPlan {
    using Wgmma = IsoWgmmaPlan<Op, Tile>;
    static constexpr int sets = Tile::bm / 16;      // of 16 rows, which the producers load at once
    static constexpr int arrivals = 129;            // at a full stage: producers, the weights
    // A tile with several leaves leaves through the shared memory where its values have waited.
    static constexpr bool stages = !Op::Tree::roots && Op::Tree::leaves > 1;
    static constexpr bool staged = stages && Op::wide;
    static constexpr int pitch = Tile::bn * 2 + 16;         // of its rows there, in bytes
    static constexpr int level_bytes = Op::parts * Wgmma::regs * 128;   // of one warp
    static constexpr int warp_bytes =
        Tile::near > 0 ? Tile::near * level_bytes : stages ? 16 * pitch : 0;
    static constexpr int near_bytes = 4 * Wgmma::consumers * warp_bytes;
    static constexpr int shared = Wgmma::shared + ISO_GROUP_WAITING +
                                  (Tile::near > 0 ? 0 : near_bytes);
    // What is loaded as one: a leaf, or all of them.
    static constexpr int chains = Tile::odd ? 1 : Op::Tree::leaves;

    // Elements of one, and blocks.
    ISO_INLINE int length(const IsoGemmArgs &args) {
        return (args.leaf_begin[1] - args.leaf_begin[0]) * (Op::Tree::leaves / chains);
    }
    ISO_INLINE int blocks(const IsoGemmArgs &args) {
        return iso_ceil(length(args), Wgmma::bk);
    }

    static_assert(!Op::a_trans, "rows are gathered whole");
    static_assert(Tile::stages >= 3, "stages");
    static_assert(Wgmma::consumers <= 2, "bm: 16, 32, 64 or 128");
    static_assert(shared <= 232448, "too much shared memory");
    static_assert(Wgmma::raster == 16, "the way of IsoGroupWalk");
    static_assert(!Tile::pairs || (Tile::bm == 128 && Op::Tree::count('L') == 0), "pairs");
    static_assert(!staged || 16 * pitch <= warp_bytes, "a warp's part of a tile");
};

// A CTA's way through the tiles: as IsoWgmmaTiles has them, without its divisions. Shared: 1 where
// a cluster of two takes two columns at a time, else 0.
struct IsoGroupWalk {
    const IsoWgmmaTiles &tiles;
    int shared;
    int tile, sweep, place;                         // place: in its sweep

    ISO_INLINE IsoGroupWalk make(const IsoWgmmaTiles &tiles, int shared) {
        int first = (int)blockIdx.x >> shared;
        IsoGroupWalk walk{tiles, shared, first, 0, first};
        walk.settle();
        return walk;
    }
    __device__ __forceinline__ bool there() const {
        return tile < tiles.count();
    }
    __device__ __forceinline__ void advance() {
        tile += gridDim.x >> shared;
        place += gridDim.x >> shared;
        settle();
    }
    __device__ __forceinline__ void settle() {
        for (int all = tiles.raster * tiles.columns; place >= all; ++sweep) {
            place -= all;
        }
    }
    // Without a division: the compiler would make one for all sweeps.
    __device__ __forceinline__ void at(int &row, int &column) const {
        int first = sweep * tiles.raster, left = tiles.rows - first, rest = place % 16;
        column = place / 16;
        if (left < 16) {
            column = 0;
            for (rest = place; rest >= left; rest -= left) {
                ++column;
            }
        }
        row = first + rest;
        column = (column << shared) + (blockIdx.x & shared);
    }
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
    unsigned begin[Plan::sets];                     // of its rows, in units of 16 bytes

    __device__ __forceinline__ void open(const IsoGroupItem &item) {
        int last = item.count - 1;
#pragma unroll
        for (int i = 0; i < Plan::sets; ++i) {
            int n = i * 16 + threadIdx.x / 8;
            int row = args.order[item.first + (n < last ? n : last)], token = row / args.picks;
            long long at = token * args.gemm.a_stride +
                           (row - token * args.picks) * args.a_pick_stride;
            begin[i] = (unsigned)(at / 8);
        }
    }
    // Past the leaf's end a row is zeros as far as products read; rows that do not exist are the
    // last that does, or zeros. The barrier counts each thread when its copies have come.
    __device__ __forceinline__ void load(int count, unsigned stage, unsigned bar, int leaf,
                                         int length, int k0) const {
        int line = threadIdx.x / 8, chunk = threadIdx.x % 8, k = k0 + chunk * 8;
        bool inside = k < length, all = count > 64;
        unsigned to = stage + line * 128 + (chunk ^ line % 8) * 16;
        unsigned long long from = (unsigned long long)args.gemm.a +
                                  2ll * (leaf * length + (inside ? k : 0));
        // Addresses first, in registers of their own: a copy keeps its operands until it is taken.
        // Made anew for every block, since kept in 64 bits they would take those registers.
        if (Tile::tail == 4 || k < iso_ceil(length, 16) * 16) {
            unsigned long long at[Plan::sets];
#pragma unroll
            for (int i = 0; i < Plan::sets; ++i) {
                asm volatile("mad.wide.u32 %0, %1, 16, %2;"
                             : "=l"(at[i])
                             : "r"(begin[i]), "l"(from));
            }
#pragma unroll
            for (int i = 0; i < Plan::sets; ++i) {
                bool own = inside && (i < 4 || all);
                iso_cp_async16(to + i * 2048, (const void *)at[i], own ? 16 : 0);
            }
        }
        iso_cp_async_arrive(bar);
    }
};

template <class Op, class Tile>
ISO_INLINE void iso_group_produce(const IsoGroupArgs &args, const IsoGemmMaps &maps, unsigned smem,
                                  IsoRing ring, const IsoWgmmaTiles &tiles) {
    using Plan = IsoGroupPlan<Op, Tile>;
    int length = Plan::length(args.gemm);
    IsoGroupRows<Op, Tile> rows{args, {}};
#pragma unroll 1
    for (IsoGroupWalk walk = IsoGroupWalk::make(tiles, 0); walk.there(); walk.advance()) {
        int at, column;
        walk.at(at, column);
        int group = iso_tile_group<Op>(args.gemm.group, Tile::bn, column);
        IsoGroupItem item = args.items[at];
        rows.open(item);
#pragma unroll 1
        for (int leaf = 0; leaf < Plan::chains; ++leaf) {
#pragma unroll 1
            for (int k = 0; k < length; k += Plan::Wgmma::bk) {
                unsigned stage = smem + ring.stage * Plan::Wgmma::stage_bytes;
                unsigned bar = ring.full + 8 * ring.stage;
                iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                if ((int)threadIdx.x == ring.stage % 4 * 32) {  // the warps take turns
                    iso_mbar_expect(bar, Op::parts * Plan::Wgmma::b_bytes);
                    iso_group_weights<Op, Tile>(maps, stage, bar, group, item.expert,
                                                column * Tile::bn, k, leaf);
                }
                __syncwarp();
                rows.load(item.count, stage, bar, leaf, length, k);
                ring.template advance<Tile::stages>();
            }
        }
    }
}

// Rows of an item that lie in the order, 64 at a time, from its first on; beyond its last are
// others', whose products nobody takes.
template <class Op, class Tile>
ISO_INLINE void iso_group_rows(const IsoGemmMaps &maps, unsigned stage, unsigned bar,
                               const IsoGroupItem &item, int k, int leaf) {
    if constexpr (Tile::pairs) {
        int own = iso_cluster_rank() * 64;
        if (own < item.count) {
            iso_tma_load_3d_all(stage + own * 128, &maps.a, bar, k, leaf, item.first + own, 3);
        }
    } else {
#pragma unroll
        for (int row = 0; row < Tile::bm; row += 64) {
            if (row < item.count) {
                iso_tma_load_3d(stage + row * 128, &maps.a, bar, k, leaf, item.first + row);
            }
        }
    }
}

// One thread's.
template <class Op, class Tile>
ISO_INLINE void iso_group_produce_sorted(const IsoGroupArgs &args, const IsoGemmMaps &maps,
                                         unsigned smem, IsoRing ring, const IsoWgmmaTiles &tiles) {
    using Plan = IsoGroupPlan<Op, Tile>;
    constexpr int box = Tile::bm < 64 ? Tile::bm : 64, stages = Tile::stages;
    int length = Plan::length(args.gemm);
#pragma unroll 1
    for (IsoGroupWalk walk = IsoGroupWalk::make(tiles, Tile::pairs); walk.there();
         walk.advance()) {
        int at, column;
        walk.at(at, column);
        int group = iso_tile_group<Op>(args.gemm.group, Tile::bn, column);
        IsoGroupItem item = args.items[at];
        int bytes = Op::parts * Plan::Wgmma::b_bytes + (item.count > box ? 256 : 128) * box;
#pragma unroll 1
        for (int leaf = 0; leaf < Plan::chains; ++leaf) {
#pragma unroll 1
            for (int k = 0; k < length; k += Plan::Wgmma::bk) {
                unsigned stage = smem + ring.stage * Plan::Wgmma::stage_bytes;
                unsigned bar = ring.full + 8 * ring.stage;
                iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                iso_mbar_expect(bar, bytes);
                iso_group_rows<Op, Tile>(maps, stage, bar, item, k, leaf);
                iso_group_weights<Op, Tile>(maps, stage, bar, group, item.expert,
                                            column * Tile::bn, k, leaf);
                ring.template advance<stages>();
            }
        }
    }
    // The other's last releases must find this CTA's barriers still there.
    for (int s = 0; Tile::pairs && s < stages; ++s) {
        iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
        ring.template advance<stages>();
    }
}

#endif
