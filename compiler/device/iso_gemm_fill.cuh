// The loading half of the wgmma kernel: what a tile takes of registers and shared memory, in which
// order CTAs go through tiles, the ring of stages, and its producer. Owns nothing: the ring lies in
// the CTA's shared memory, and a stage belongs to its producer from release to arrival.
//
// A tile loads no more rows than it has, nor than the launch; the tensor cores then read on into
// the rest of the stage, and what that gives lies in rows that nobody takes.
#ifndef ISO_GEMM_FILL_CUH
#define ISO_GEMM_FILL_CUH

#include "iso_leave.cuh"
#include "iso_wgmma.cuh"

// Near: the stack's levels from the lowest on that lie in shared memory, the rest in workspace.
// tail: steps of 16 k in a leaf's last block; room: words that a thread's accumulators and waiting
// values may take together; gathered: rows come by copies of threads.
template <int Bm, int Bn, int Stages, int Near = 0, int Cluster = 1> struct IsoWgmmaTile {
    static constexpr int bm = Bm, bn = Bn, stages = Stages, near = Near, cluster = Cluster;
    static constexpr int tail = 4, room = 176;
    static constexpr bool gathered = false;
};

template <class Op, class Tile> struct IsoWgmmaPlan {
    static constexpr int bk = 64;                   // one row of the 128-byte swizzle
    static constexpr int consumers = iso_ceil(Tile::bm, 64);
    static constexpr int threads = 128 * (1 + consumers);
    static constexpr int bnp = Op::b_trans ? 64 * iso_ceil(Tile::bn, 64) : Tile::bn;
    static constexpr int a_bytes = Tile::bm * bk * 2;
    static constexpr int b_bytes = bnp * bk * 2;    // of one part
    static constexpr int whole_bytes = a_bytes + Op::parts * b_bytes;
    static constexpr int stage_bytes = whole_bytes < 8192 ? 8192 : whole_bytes; // 64 rows are read
    static constexpr int regs = Tile::bn / 2;       // accumulators of one part in one thread
    // Parts in one product.
    static constexpr int joined =
        Op::parts * Tile::bn <= 256 && bnp == Tile::bn ? Op::parts : 1;
    static constexpr int level_floats = 64 * consumers * Tile::bn * Op::parts;
    static constexpr int far = Op::Tree::levels - Tile::near;   // levels in workspace
    // Of a tile's pieces (iso_leave.cuh) those that leave under the next one's products: as many
    // as the registers take beside its accumulators.
    static constexpr bool defers = Tile::bm >= 128 && consumers == 2 && Op::Tree::leaves == 1 &&
                                   Op::Tree::length == 1 + Op::Tree::roots &&
                                   iso_can_leave_wide<Op>(regs);
    static constexpr int piece_regs = Op::parts * (int)sizeof(typename Op::Sum);
    static constexpr bool plain =
        Op::parts == 1 && !iso_epilogue_reads<Op>() && !Tile::gathered;
    static constexpr int room = Tile::room + (plain ? 16 : 0) - Op::parts * regs;
    static constexpr int pieces = regs / 8, fit = room / piece_regs;
    static constexpr int all = Op::parts * regs + pieces * piece_regs;
    // A root is twice as wide.
    static constexpr int most = pieces - (Op::Tree::roots && (Tile::gathered || all > 128) ? 2 : 0);
    static constexpr int kept = !defers ? 0 : most < fit ? most : fit;
    // Whether what the epilogue reads of a tile comes as one more block, in a stage's place.
    static constexpr bool reads = IsoTakesEights<Op>::value && Op::groups == 1 &&
                                  !Tile::gathered && kept == 0 && Tile::bm % 64 == 0 &&
                                  Tile::bn % 64 == 0 && Tile::bm * Tile::bn * 2 <= stage_bytes;
    // What the CTAs of a cluster have in common, and how their tiles lie.
    static constexpr bool shares_b = Tile::cluster > 1 && Op::parts * Tile::bn > Tile::bm;
    static constexpr bool shares_a = Tile::cluster > 1 && !shares_b;
    static constexpr int high = shares_b ? Tile::cluster : 1, wide = shares_a ? Tile::cluster : 1;
    static constexpr int raster = 16 / high;        // clusters that share a sweep over columns

    static_assert(Tile::bm % 64 == 0 ? consumers <= 3 : Tile::bm == 16 || Tile::bm == 32,
                  "bm: 16, 32, 64, 128 or 192");
    static_assert(Tile::bm % 64 == 0 || !Op::a_trans, "a short tile is loaded row by row");
    static_assert(Tile::bm % (8 * wide) == 0 && (!Op::a_trans || !shares_a) && Tile::cluster <= 8,
                  "cluster: each CTA loads blocks of 8 rows");
    static_assert(Op::b_trans ? bnp % (64 * high) == 0 : Tile::bn % (8 * high) == 0,
                  "cluster: each CTA loads blocks of 8 columns, transposed of 64");
    static_assert(Tile::bn % 8 == 0 && Tile::bn >= 8 && Tile::bn <= 256, "bn");
    // Accumulators and waiting values of one thread, and what its CTA may take of both kinds.
    static constexpr int live = (Op::Tree::count('Q') ? 3 : Op::Tree::count('P') ? 2 : 1) *
                                    Op::parts * regs + kept * piece_regs;
    static constexpr int shared =
        1024 + Tile::stages * (stage_bytes + 16) + Tile::near * level_floats * 4;
    static_assert(live <= (consumers == 3 ? 112 : 200), "too many accumulators for the registers");
    static_assert(shared <= 232448, "too much shared memory");
    static_assert(Tile::near >= 0 && far >= 0, "near: at most the tree's levels");
    static_assert(Op::groups <= ISO_GEMM_GROUPS && Op::groups * Op::parts <= ISO_GEMM_MAPS, "maps");
};

// Tiles of a cluster (one of each CTA) in launch order: sweeps of `raster` rows of them, and in a
// sweep column by column.
struct IsoWgmmaTiles {
    int rows, columns, raster;

    template <class Plan> ISO_INLINE IsoWgmmaTiles make(int rows, int columns) {
        return IsoWgmmaTiles{iso_ceil(rows, Plan::high), iso_ceil(columns, Plan::wide),
                             Plan::raster};
    }
    __device__ __forceinline__ int count() const {
        return rows * columns;
    }
    __device__ __forceinline__ void at(int tile, int &row, int &column) const {
        int sweep = tile / (raster * columns);
        int left = rows - sweep * raster;
        int high = left < raster ? left : raster;
        int i = tile - sweep * raster * columns;
        column = i / high;
        row = sweep * raster + i - column * high;
    }
    // This CTA's own.
    template <class Plan>
    __device__ __forceinline__ void own(int tile, int &row, int &column) const {
        at(tile, row, column);
        row = row * Plan::high + blockIdx.x % Plan::high;
        column = column * Plan::wide + blockIdx.x % Plan::wide;
    }
};

// Of iso_fold.cuh, which a kernel of an Op that folds includes too.
template <class Op, int Regs>
ISO_INLINE void iso_fold(const IsoGemmArgs &args, int row0, int rows, int part,
                         float (&acc)[Regs]);

template <class Op, int Bn> ISO_INLINE int iso_tile_column(int tile) {
    if constexpr (IsoFolds<Op>::value) {
        return Op::Fold::begin(tile);
    } else {
        return tile * Bn;
    }
}

template <class Op, int Bn> ISO_INLINE int iso_wgmma_columns(const IsoGemmGroup *group) {
    if constexpr (IsoFolds<Op>::value) {
        return Op::Fold::parts;
    } else {
        return iso_column_tiles<Op>(group, Bn);
    }
}

// The ring of stages as its producer or a consumer walks it.
struct IsoRing {
    unsigned full, empty;                           // first barrier of each kind
    int stage;
    unsigned phase;

    template <int Stages> __device__ __forceinline__ void advance() {
        if (++stage == Stages) {
            stage = 0;
            phase ^= 1;
        }
    }
    // From the first stage on; n: Stages at most.
    template <int Stages> __device__ __forceinline__ void skip(int n) {
        stage = n == Stages ? 0 : n;
        phase = n == Stages;
    }
};

template <class Op, int Stages>
ISO_INLINE void iso_ring_init(const IsoGemmMaps &maps, const IsoRing &ring, int releases) {
    if (threadIdx.x >= 128 && threadIdx.x < 129 + Op::groups * Op::parts) {
        iso_tma_prefetch(threadIdx.x == 128 ? &maps.a : &maps.b[threadIdx.x - 129]);
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < Stages; ++s) {
            iso_mbar_init(ring.full + 8 * s, 1);
            iso_mbar_init(ring.empty + 8 * s, releases);
        }
        iso_mbar_init_fence();
    }
}

// Bytes of a stage: rows that no tile has are not loaded.
template <class Op, class Tile> ISO_INLINE int iso_wgmma_fill_bytes(const IsoGemmArgs &args) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    bool fewer = !Op::a_trans && Tile::cluster == 1 && args.rows < Tile::bm;
    return Plan::whole_bytes - (fewer ? (Tile::bm - args.rows) * 128 : 0);
}

// Columns of one part, or this CTA's share of them for all CTAs of the cluster.
template <class Op, class Tile>
ISO_INLINE void iso_wgmma_fill_b(const IsoTensorMap *map, unsigned dst, unsigned bar, int k0,
                                 int leaf, int col0) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    constexpr int lines = Op::b_trans ? 64 : Tile::bn / Plan::high;     // of one copy
    constexpr int copies = Op::b_trans ? Plan::bnp / 64 / Plan::high : 1;
    int first = Plan::shares_b ? iso_cluster_rank() * copies : 0;
#pragma unroll
    for (int i = 0; i < copies; ++i) {
        int skip = (first + i) * lines, c0 = Op::b_trans ? col0 + skip : k0;
        int c1 = Op::b_trans ? k0 : leaf, c2 = Op::b_trans ? leaf : col0 + skip;
        if constexpr (Plan::shares_b) {
            iso_tma_load_3d_all(dst + skip * 128, map, bar, c0, c1, c2, (1 << Tile::cluster) - 1);
        } else {
            iso_tma_load_3d(dst + skip * 128, map, bar, c0, c1, c2);
        }
    }
}

// All columns of a stage.
template <class Op, class Tile>
ISO_INLINE void iso_wgmma_fill_columns(const IsoGemmMaps &maps, unsigned smem, unsigned bar,
                                       int group, int col0, int k0, int leaf) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
#pragma unroll
    for (int p = 0; p < Op::parts; ++p) {
        iso_wgmma_fill_b<Op, Tile>(&maps.b[group * Op::parts + p],
                                   smem + Plan::a_bytes + p * Plan::b_bytes, bar, k0, leaf, col0);
    }
}

template <class Op, class Tile>
ISO_INLINE void iso_wgmma_fill_rows(const IsoGemmMaps &maps, unsigned smem, unsigned bar, int row0,
                                    int k0, int leaf) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    if constexpr (Op::a_trans) {
#pragma unroll
        for (int i = 0; i < Tile::bm / 64; ++i) {
            iso_tma_load_3d(smem + i * 8192, &maps.a, bar, row0 + i * 64, k0, leaf);
        }
    } else if constexpr (Plan::shares_a) {
        constexpr int share = Tile::bm / Tile::cluster;
        int rank = iso_cluster_rank();
        iso_tma_load_3d_all(smem + rank * share * 128, &maps.a, bar, k0, leaf, row0 + rank * share,
                            (1 << Tile::cluster) - 1);
    } else {
        iso_tma_load_3d(smem, &maps.a, bar, k0, leaf, row0);
    }
}

template <class Op, class Tile>
ISO_INLINE void iso_wgmma_fill(const IsoGemmMaps &maps, unsigned smem, unsigned bar, int bytes,
                               int group, int row0, int col0, int k0, int leaf) {
    iso_mbar_expect(bar, bytes);
    iso_wgmma_fill_rows<Op, Tile>(maps, smem, bar, row0, k0, leaf);
    iso_wgmma_fill_columns<Op, Tile>(maps, smem, bar, group, col0, k0, leaf);
}

// What a tile's epilogue reads, 64 columns after 64.
template <class Op, class Tile>
ISO_INLINE void iso_wgmma_fill_read(const IsoGemmMaps &maps, unsigned smem, unsigned bar, int row0,
                                    int col0) {
    iso_mbar_expect(bar, Tile::bm * Tile::bn * 2);
#pragma unroll
    for (int i = 0; i < Tile::bn / 64; ++i) {
        iso_tma_load_3d(smem + i * Tile::bm * 128, &maps.read, bar, col0 + i * 64, 0, row0);
    }
}

// The first stages of a CTA, whose columns are loaded before what comes before has ended. A thread
// loads them, before it becomes the producer.
template <class Op, class Tile> struct IsoEarly {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    int stages, leaf0, blocks;

    // Calls what(stage's memory, its barrier, k0, leaf) for each of them.
    template <class What>
    __device__ __forceinline__ void each(unsigned smem, const IsoRing &ring,
                                         const What &what) const {
        int leaf = leaf0, kb = 0;
#pragma unroll 1
        for (int s = 0; s < stages; ++s) {
            what(smem + s * Plan::stage_bytes, ring.full + 8 * s, kb * Plan::bk, leaf);
            if (++kb == blocks) {
                kb = 0;
                ++leaf;
            }
        }
    }
    ISO_INLINE IsoEarly columns(const IsoGemmArgs &args, const IsoGemmMaps &maps, unsigned smem,
                                const IsoRing &ring, int group, int col0, int leaf0, int leaves) {
        int blocks = iso_ceil(args.leaf_begin[1] - args.leaf_begin[0], Plan::bk);
        int all = leaves * blocks, bytes = iso_wgmma_fill_bytes<Op, Tile>(args);
        IsoEarly early{all < Tile::stages ? all : Tile::stages, leaf0, blocks};
        if (iso_uniform(threadIdx.x / 32) == 0 && iso_elect()) {
            early.each(smem, ring, [&](unsigned stage, unsigned bar, int k0, int leaf) {
                iso_mbar_expect(bar, bytes);
                iso_wgmma_fill_columns<Op, Tile>(maps, stage, bar, group, col0, k0, leaf);
            });
        }
        return early;
    }
    // Where the tile does not exist, what was asked for must come before the CTA ends.
    __device__ __forceinline__ void rows(const IsoGemmMaps &maps, unsigned smem,
                                         const IsoRing &ring, int row0, bool exists) const {
        if (stages == 0 || iso_uniform(threadIdx.x / 32) != 0 || !iso_elect()) {
            return;
        }
        each(smem, ring, [&](unsigned stage, unsigned bar, int k0, int leaf) {
            iso_wgmma_fill_rows<Op, Tile>(maps, stage, bar, row0, k0, leaf);
        });
        for (int s = 0; s < stages && !exists; ++s) {
            iso_mbar_wait(ring.full + 8 * s, 0);
        }
    }
};

template <class Op, class Tile>
ISO_INLINE void iso_wgmma_produce(const IsoGemmArgs &args, const IsoGemmMaps &maps, unsigned smem,
                                  IsoRing ring, const IsoWgmmaTiles &tiles, int early) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    int blocks = iso_ceil(args.leaf_begin[1] - args.leaf_begin[0], Plan::bk);
    int bytes = iso_wgmma_fill_bytes<Op, Tile>(args);
    int leaf = early / blocks, kb = early % blocks;
    ring.template skip<Tile::stages>(early);
    for (int t = blockIdx.x / Tile::cluster; t < tiles.count(); t += gridDim.x / Tile::cluster) {
        int row, column;
        tiles.template own<Plan>(t, row, column);
        int group = iso_tile_group<Op>(args.group, Tile::bn, column);
        int col0 = iso_tile_column<Op, Tile::bn>(column);
        for (; leaf < Op::Tree::leaves; ++leaf, kb = 0) {
            for (; kb < blocks; ++kb) {
                iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                iso_wgmma_fill<Op, Tile>(maps, smem + ring.stage * Plan::stage_bytes,
                                         ring.full + 8 * ring.stage, bytes, group, row * Tile::bm,
                                         col0, kb * Plan::bk, leaf);
                ring.template advance<Tile::stages>();
            }
        }
        leaf = 0;
        if constexpr (Plan::reads) {
            if (args.reads) {
                iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
                iso_wgmma_fill_read<Op, Tile>(maps, smem + ring.stage * Plan::stage_bytes,
                                              ring.full + 8 * ring.stage, row * Tile::bm, col0);
                ring.template advance<Tile::stages>();
            }
        }
    }
    // The others' last releases must find this CTA's barriers still there.
    for (int s = 0; Tile::cluster > 1 && s < Tile::stages; ++s) {
        iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
        ring.template advance<Tile::stages>();
    }
}

#endif
