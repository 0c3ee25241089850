// Products by copy engine and wgmma: one producer warpgroup, one consumer warpgroup per 64 rows,
// persistent over tiles. The CTAs of a cluster take neighbouring tiles, of the same columns where a
// tile is wider than high, else of the same rows, and each loads its share of what they have in
// common for all of them. The launch rule is in iso_abi.cuh. A CTA owns its slice of the workspace,
// and in it every thread reads only what it wrote itself.
#ifndef ISO_GEMM_WGMMA_CUH
#define ISO_GEMM_WGMMA_CUH

#include "iso_gemm_fill.cuh"

// One tile in one consumer warpgroup: the body of the tree's interpreter.
template <class Op, class Tile, class Where, class Later> struct IsoWgmmaBody {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    static constexpr int parts = Op::parts, regs = Plan::regs;

    const IsoGemmArgs &args;
    IsoRing &ring;
    float4 *stack;                                  // this thread's first far element
    unsigned near_stack;                            // and its first near one
    unsigned a_tile, b_tile;                        // of stage 0, this warpgroup's rows
    int blocks;                                     // of one leaf
    const Where &where;
    Later &later;                                   // the tile before
    float acc[parts][regs];

    __device__ __forceinline__ void release(int stage) {
        if constexpr (Tile::cluster > 1) {
            if (threadIdx.x % 32 < Tile::cluster) {
                iso_mbar_arrive_at(ring.empty + 8 * stage, threadIdx.x % 32);
            }
        } else if (threadIdx.x % 32 == 0) {
            iso_mbar_arrive(ring.empty + 8 * stage);
        }
    }

    // The parts' columns lie side by side in a stage: one product takes all that it can, since each
    // reads its rows of A anew.
    template <int Steps, int From = 0>
    __device__ __forceinline__ void block(float (&d)[parts][regs], bool first) {
        constexpr int n = Plan::joined * Tile::bn;
        constexpr unsigned a_step = Op::a_trans ? 2048 : 32, b_step = Op::b_trans ? 2048 : 32;
        unsigned offset = ring.stage * Plan::stage_bytes;
        unsigned a_at = iso_uniform(a_tile + offset), b_at = iso_uniform(b_tile + offset);
        unsigned long long a = iso_wgmma_desc(a_at, Op::a_trans ? 8192 : 16, 1024);
#pragma unroll
        for (int k = From; k < Steps; ++k) {
#pragma unroll
            for (int p = 0; p < parts; p += Plan::joined) {
                unsigned long long b = iso_wgmma_desc(b_at + p * Plan::b_bytes,
                                                      Op::b_trans ? 8192 : 16, 1024);
                IsoWgmma<n, Op::f16, Op::a_trans, Op::b_trans>::step(
                    *(float (*)[n / 2])d[p], a + (k * a_step >> 4), b + (k * b_step >> 4),
                    !(first && k == From));
            }
        }
        iso_wgmma_commit();
    }

    __device__ __forceinline__ void pin(float (&d)[parts][regs]) {
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            iso_pin(d[p]);
        }
    }

    // One block more; the products of the one before end, and its stage is given back.
    __device__ __forceinline__ void await() {
        iso_mbar_wait(ring.full + 8 * ring.stage, ring.phase);
        if constexpr (Tile::gathered) {
            iso_proxy_fence();
        }
    }

    // `previous`: the stage of the block in flight.
    template <bool Leaves, int Steps>
    __device__ __forceinline__ void step(float (&d)[parts][regs], int &previous) {
        await();
        pin(d);
        iso_wgmma_fence();
        block<Steps>(d, false);
        pin(d);
        iso_wgmma_wait<1>();
        release(previous);
        if constexpr (Leaves) {
            later.leave_one(args);
        }
        previous = ring.stage;
        ring.template advance<Tile::stages>();
    }

    // A leaf's chain keeps one group of products in flight. Its first block stands outside the
    // loops: with its scale a constant 0, ptxas sees that nothing before it defines d, and does not
    // serialise the products.
    __device__ __forceinline__ void begin(float (&d)[parts][regs]) {
        constexpr int steps = Plan::bk / 16;
        await();
        pin(d);
        iso_wgmma_fence();
        block<steps>(d, true);
    }

    __device__ __forceinline__ void first(float (&d)[parts][regs], int &previous) {
        begin(d);
        previous = ring.stage;
        ring.template advance<Tile::stages>();
    }

    // The same while the last block of another leaf ends.
    __device__ __forceinline__ void first_after(float (&before)[parts][regs],
                                                float (&d)[parts][regs], int &previous) {
        begin(d);
        iso_wgmma_wait<1>();
        pin(before);
        release(previous);
        previous = ring.stage;
        ring.template advance<Tile::stages>();
    }

    // The other blocks, under which the tile before leaves. A tail comes after another block.
    __device__ __forceinline__ void rest(float (&d)[parts][regs], int &previous) {
        constexpr int steps = Plan::bk / 16;
        int kb = 1, end = Tile::tail < steps ? blocks - 1 : blocks;
#pragma unroll 1
        for (; kb < end && later.left > 0; ++kb) {
            step<true, steps>(d, previous);
        }
#pragma unroll 1
        for (; kb < end; ++kb) {
            step<false, steps>(d, previous);
        }
        if constexpr (Tile::tail < steps) {
            step<false, Tile::tail>(d, previous);
        }
    }

    __device__ __forceinline__ void last(float (&d)[parts][regs], int previous) {
        iso_wgmma_wait<0>();
        pin(d);
        release(previous);
    }

    __device__ __forceinline__ void chain(float (&d)[parts][regs]) {
        int previous;
        first(d, previous);
        rest(d, previous);
        last(d, previous);
    }

    __device__ __forceinline__ void leaf(int) {
        chain(acc);
    }

    // d = left + d
    __device__ __forceinline__ void add(const float (&left)[parts][regs], float (&d)[parts][regs]) {
#pragma unroll
        for (int p = 0; p < parts; ++p) {
#pragma unroll
            for (int i = 0; i < regs; ++i) {
                d[p][i] = iso_add(left[p][i], d[p][i]);
            }
        }
        pin(d);
    }

    __device__ __forceinline__ void pair(int) {
        int previous;
        float left[parts][regs];
        first(left, previous);
        rest(left, previous);
        first_after(left, acc, previous);
        rest(acc, previous);
        last(acc, previous);
        add(left, acc);
    }

    // A leaf begins before the one before it has ended, and sums are joined under its products.
    __device__ __forceinline__ void quad(int) {
        int previous;
        float left[parts][regs], third[parts][regs];
        first(acc, previous);
        rest(acc, previous);
        first_after(acc, left, previous);
        rest(left, previous);
        first_after(left, third, previous);
        add(acc, left);
        rest(third, previous);
        first_after(third, acc, previous);
        rest(acc, previous);
        last(acc, previous);
        add(third, acc);
        add(left, acc);
    }

    __device__ __forceinline__ float4 *slot(int level) const {
        return stack + (level - Tile::near) * (Plan::level_floats / 4);
    }

    __device__ __forceinline__ unsigned near_slot(int level) const {
        return near_stack + level * (Plan::level_floats * 4);
    }

    // Element i of a level lies at i times the number of consumer threads.
    static constexpr int apart = 128 * Plan::consumers;

    __device__ __forceinline__ void push(int level) {
#pragma unroll
        for (int i = 0; i < parts * regs / 4; ++i) {
            const float *v = &acc[i / (regs / 4)][i % (regs / 4) * 4];
            float4 x = make_float4(v[0], v[1], v[2], v[3]);
            if (Plan::far == 0 || (Tile::near > 0 && level < Tile::near)) {
                iso_shared_store_f4(near_slot(level) + i * apart * 16, x);
            } else {
                slot(level)[i * apart] = x;
            }
        }
    }

    __device__ __forceinline__ void join(int level) {
#pragma unroll
        for (int i = 0; i < parts * regs / 4; ++i) {
            float *v = &acc[i / (regs / 4)][i % (regs / 4) * 4];
            float4 left;
            if (Plan::far == 0 || (Tile::near > 0 && level < Tile::near)) {
                left = iso_shared_load_f4(near_slot(level) + i * apart * 16);
            } else {
                left = slot(level)[i * apart];
            }
            v[0] = iso_add(left.x, v[0]);
            v[1] = iso_add(left.y, v[1]);
            v[2] = iso_add(left.z, v[2]);
            v[3] = iso_add(left.w, v[3]);
        }
        pin(acc);
    }

    __device__ __forceinline__ void round(char c) {
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            iso_tree_round(c, acc[p]);
        }
    }

    // The sums leave, or wait for the next tile's products where there is one.
    __device__ __forceinline__ void root(int r) {
        if constexpr (IsoFolds<Op>::value) {
            where.fold(acc);
        } else {
            leave(r);
        }
    }

    // What the epilogue reads has come as one more block.
    __device__ __forceinline__ void leave_with_block(const IsoPlace &at) {
        constexpr int sets = regs / 8;
        typename Op::Inputs in[sets][4];
        int quad = threadIdx.x % 4, lane_row = threadIdx.x % 32 / 4;
        unsigned row = a_tile + ring.stage * Plan::stage_bytes +
                       (threadIdx.x % 128 / 32 * 16 + lane_row) * 128;
        await();
#pragma unroll
        for (int set = 0; set < sets; ++set) {
            unsigned word[4], eight = (quad + set / 2 % 2 * 4) ^ lane_row;
            iso_shared_load16(word, row + set / 4 * Tile::bm * 128 + set % 2 * 1024 + eight * 16);
            Op::take_eight(word, in[set]);
        }
        iso_proxy_fence();                          // read, before a copy may overwrite it
        __syncwarp();
        release(ring.stage);
        ring.template advance<Tile::stages>();
        const IsoGemmGroup &g = args.group[at.group];
        if (iso_leaves_wide<Op>(at, g)) {
            IsoLeave<Op, regs>::sets(g, at, -1, 0, acc, in);
        } else {
            IsoLeave<Op, regs>::now(args, at, -1, acc);
        }
    }

    __device__ __forceinline__ void leave(int r) {
        later.leave_all(args);
        auto at = where.place();
        if constexpr (Plan::reads) {
            if (args.reads) {
                leave_with_block(at);
                return;
            }
        }
        if (Plan::kept > 0 && where.followed() && iso_leaves_wide<Op>(at, args.group[at.group])) {
            later.take(args, at, acc);
        } else {
            IsoLeave<Op, regs>::now(args, at, r, acc);
        }
    }
};

// Where a thread is in a tile, found when it is needed: registers are scarce until then.
template <class Op, class Tile> struct IsoWgmmaWhere {
    const IsoGemmArgs &args;
    const IsoWgmmaTiles &tiles;
    int tile, rows;

    __device__ __forceinline__ bool followed() const {
        return tile + (int)gridDim.x / Tile::cluster < tiles.count();
    }
    template <int Regs> __device__ __forceinline__ void fold(float (&acc)[1][Regs]) const {
        int row, column, thread = threadIdx.x - 128;
        tiles.template own<IsoWgmmaPlan<Op, Tile>>(tile, row, column);
        int end = (row + 1) * Tile::bm;
        iso_fold<Op>(args, row * Tile::bm + thread / 32 * 16 + thread % 32 / 4,
                     end < rows ? end : rows, column, acc[0]);
    }
    __device__ __forceinline__ IsoPlace place() const {
        int row, column, thread = threadIdx.x - 128;
        tiles.template own<IsoWgmmaPlan<Op, Tile>>(tile, row, column);
        int group = iso_tile_group<Op>(args.group, Tile::bn, column);
        int end = (row + 1) * Tile::bm;
        return IsoPlace{group, row * Tile::bm + thread / 32 * 16 + thread % 32 / 4,
                        column * Tile::bn + thread % 4 * 2, end < rows ? end : rows,
                        (column + 1) * Tile::bn <= args.group[group].columns};
    }
};

template <class Op, class Tile>
ISO_INLINE void iso_wgmma_consume(const IsoGemmArgs &args, unsigned smem, IsoRing ring,
                                  const IsoWgmmaTiles &tiles, int rows) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    using Later = IsoLater<Op, Plan::regs, Plan::kept>;
    using Where = IsoWgmmaWhere<Op, Tile>;
    using Body = IsoWgmmaBody<Op, Tile, Where, Later>;
    int thread = threadIdx.x - 128, half = iso_uniform(threadIdx.x / 128) - 1;
    float4 *stack = (float4 *)args.workspace + thread +
                    (long long)blockIdx.x * Plan::far * (Plan::level_floats / 4);
    unsigned near_stack = smem + Tile::stages * Plan::stage_bytes + thread * 16;
    int blocks = iso_ceil(args.leaf_begin[1] - args.leaf_begin[0], Plan::bk);
    Later later;
    for (int t = blockIdx.x / Tile::cluster; t < tiles.count(); t += gridDim.x / Tile::cluster) {
        Where where{args, tiles, t, rows};
        Body body{args, ring, stack, near_stack, smem + half * 8192, smem + Plan::a_bytes,
                  blocks, where, later, {}};
        iso_tree_run<typename Op::Tree>(body);
        if constexpr (!Op::Tree::roots) {
            body.root(-1);
        }
    }
}

// Registers per thread after the producer gave some of its own away, and what it keeps; 0: the
// launch bound is enough. The producer counts in fewer where the consumers hold many values.
ISO_CONSTEXPR int iso_wgmma_registers(int consumers, int live) {
    return consumers == 2 ? (live > 160 ? 240 : 232) : consumers == 3 ? 160 : 0;
}
ISO_CONSTEXPR int iso_wgmma_registers_kept(int consumers, int live) {
    return consumers == 2 ? (live > 160 ? 24 : 40) : 32;
}

// A CTA's first tile is known before the live rows are where the launch has no others, or one row
// of tiles; with more than two rows of tiles its begin no longer counts.
template <class Op, class Tile>
ISO_INLINE IsoEarly<Op, Tile> iso_wgmma_early(const IsoGemmArgs &args, const IsoGemmMaps &maps,
                                              unsigned smem, const IsoRing &ring, int &row) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    if constexpr (!IsoFolds<Op>::value) {
        constexpr int one = Tile::cluster == 1 ? Tile::bm : 0;
        if (args.settled && args.rows <= (args.rows_dev ? one : 2 * Tile::bm)) {
            IsoWgmmaTiles tiles = IsoWgmmaTiles::make<Plan>(
                iso_ceil(args.rows, Tile::bm), iso_wgmma_columns<Op, Tile::bn>(args.group));
            int column;
            tiles.template own<Plan>(blockIdx.x / Tile::cluster, row, column);
            int group = iso_tile_group<Op>(args.group, Tile::bn, column);
            return IsoEarly<Op, Tile>::columns(args, maps, smem, ring, group, column * Tile::bn, 0,
                                               Op::Tree::leaves);
        }
    }
    return IsoEarly<Op, Tile>{0, 0, 1};
}

template <class Op, class Tile>
ISO_INLINE void iso_gemm_wgmma(const IsoGemmArgs &args, const IsoGemmMaps &maps) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    extern __shared__ unsigned char iso_dynamic[];
    unsigned smem = (iso_shared(iso_dynamic) + 1023) & ~1023u;
    unsigned full = smem + Tile::stages * Plan::stage_bytes + Tile::near * Plan::level_floats * 4;
    IsoRing ring{full, full + 8 * Tile::stages, 0, 0};
    iso_ring_init<Op, Tile::stages>(maps, ring, 4 * Plan::consumers * Tile::cluster);
    __syncthreads();
    if constexpr (Tile::cluster > 1) {
        iso_cluster_start();
    }
    iso_grid_open();
    int row = 0;                                    // of its first tile, where that is known
    auto early = iso_wgmma_early<Op, Tile>(args, maps, smem, ring, row);
    iso_grid_wait();
    int rows = iso_live_rows(args.rows_dev, args.rows);
    IsoWgmmaTiles tiles = IsoWgmmaTiles::make<Plan>(
        iso_ceil(rows, Tile::bm), iso_wgmma_columns<Op, Tile::bn>(args.group));
    early.rows(maps, smem, ring, row * Tile::bm, rows > 0);
    constexpr int registers = iso_wgmma_registers(Plan::consumers, Plan::live);
    unsigned warp = iso_uniform(threadIdx.x / 32);
    if (warp < 4) {
        if constexpr (registers > 0) {
            iso_registers_shrink<iso_wgmma_registers_kept(Plan::consumers, Plan::live)>();
        }
        if (warp == 0 && iso_elect()) {
            iso_wgmma_produce<Op, Tile>(args, maps, smem, ring, tiles, early.stages);
        }
    } else {
        if constexpr (registers > 0) {
            iso_registers_grow<registers>();
        }
        iso_wgmma_consume<Op, Tile>(args, smem, ring, tiles, rows);
    }
}

#endif
