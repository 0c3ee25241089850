// Grouped products: each row (token, pick) with the weights of its expert. Consumer warpgroups run
// the same chains, trees and epilogues as iso_gemm_wgmma.cuh on what the producers bring, and what
// they give goes back to the rows' own places. The launch rule is in iso_abi.cuh. Owns no memory
// beyond its shared memory and its slice of the workspace.
//
// Persistent over items (iso_group_order.cuh) by column tiles. A row's sums are of that row and its
// expert's weights alone, so no bit depends on which rows share an item.
#ifndef ISO_GROUP_WGMMA_CUH
#define ISO_GROUP_WGMMA_CUH

#include "iso_group_load.cuh"

// As IsoPlace; of a row that does not exist the nearest that does.
struct IsoGroupPlace {
    int group, first_row, second_row, col0, left;   // left: rows of the warp after the first
    bool whole;

    __device__ __forceinline__ int row(int half) const {
        return half ? second_row : first_row;
    }
    __device__ __forceinline__ bool lives(int half) const {
        return left >= 8 * half;
    }
    __device__ __forceinline__ int near_row(int half) const {
        return row(half);
    }
    // The whole warp's.
    __device__ __forceinline__ bool passes(int half) const {
        return left + (int)(threadIdx.x % 32 / 4) < 8 * half;
    }
};

// Where a thread is in a tile: a warp's rows, its column tile and its last row wait in shared
// memory, twice: of this tile, and of the one before or the next one. They come from far away, so
// that they are asked for a tile ahead, in three steps that others lie between.
template <class Op, class Tile> struct IsoGroupWhere {
    static constexpr int words = 18, bytes = 4 * words;

    const IsoGroupArgs &args;
    IsoGroupWalk ahead;                             // at the tile that is asked for
    unsigned waiting, both;                         // the warp's own words of this tile; sum of two
    int step;                                       // of asking
    int first, last, word;                          // of its warp

    __device__ __forceinline__ unsigned other() const {
        return both - waiting;
    }
    __device__ __forceinline__ bool followed() const {
        return ahead.there();
    }
    __device__ __forceinline__ void ask_item() {
        if (step == 0 && followed()) {
            int at;
            ahead.at(at, word);
            first = args.items[at].first;
            last = args.items[at].count;
            step = 1;
        }
    }
    // All of a warp without rows know the item's last one.
    __device__ __forceinline__ void ask_rows() {
        if (step == 1) {
            int lane = threadIdx.x % 32, begin = (threadIdx.x - 128) / 32 * 16;
            first += begin;
            last -= 1 + begin;
            word = lane == 16 ? word : last;
            if (lane < 16) {
                word = first + (lane < last ? lane : last);
                word = args.out_sorted ? word : args.order[word];
            }
            step = 2;
        }
    }
    __device__ __forceinline__ void keep() {
        if (step == 2) {
            if (threadIdx.x % 32 < words) {
                iso_shared_store4(other() + 4 * (threadIdx.x % 32), (unsigned)word);
            }
            step = 3;
        }
    }
    // Goes on to the next tile; whether this warpgroup has a row of it.
    __device__ __forceinline__ bool open() {
        ask_item();
        ask_rows();
        keep();
        __syncwarp();
        step = 0;
        ahead.advance();
        waiting = other();
        return (int)iso_shared_load4(waiting + 68) >= -16 * (int)(threadIdx.x / 32 % 4);
    }
    __device__ __forceinline__ IsoGroupPlace place() const {
        int row = threadIdx.x % 32 / 4, column = (int)iso_shared_load4(waiting + 64);
        int last = (int)iso_shared_load4(waiting + 68);
        int group = iso_tile_group<Op>(args.gemm.group, Tile::bn, column);
        return IsoGroupPlace{group, (int)iso_shared_load4(waiting + 4 * row),
                             (int)iso_shared_load4(waiting + 4 * row + 32),
                             column * Tile::bn + (int)(threadIdx.x % 4) * 2,
                             last - row,
                             (column + 1) * Tile::bn <= args.gemm.group[group].columns};
    }
};

template <class Op, int Regs, int Kept>
struct IsoGroupLater : IsoLater<Op, Regs, Kept, IsoGroupPlace> {
    static constexpr int most = Kept;
};

// Nothing is in them from here on: what they had need not be kept.
template <int Parts, int N> ISO_INLINE void iso_forget(float (&v)[Parts][N]) {
#pragma unroll
    for (int i = 0; i < Parts * N; ++i) {
        asm volatile("" : "=f"(v[i / N][i % N]));
    }
}

// The tree's body where a sum has several leaves: the tensor cores have the first block of a leaf
// before the last of the leaf before it is waited for, and what is done with values is done under
// products. So a quad drains once.
template <class Op, class Tile, class Where, class Later>
struct IsoGroupBody : IsoWgmmaBody<Op, Tile, Where, Later> {
    using Base = IsoWgmmaBody<Op, Tile, Where, Later>;
    using Group = IsoGroupPlan<Op, Tile>;
    using Plan = IsoWgmmaPlan<Op, Tile>;
    static constexpr int parts = Op::parts, regs = Plan::regs;
    static constexpr int steps = Plan::bk / 16;

    Where &here;
    unsigned near;                                  // the warp's own values that wait
    int waits;                                      // the level that acc is to be pushed to, or -1
    int previous;                                   // the stage that products end with, or -1
    bool leaves;                                    // the tile before is where values wait

    __device__ __forceinline__ bool sorted() const {
        return Tile::sorts && here.args.a_sorted;
    }

    // Both CTAs of a pair wait for it.
    __device__ __forceinline__ void release(int stage) {
        if (Tile::pairs && sorted()) {
            if (threadIdx.x % 32 < 2) {
                iso_mbar_arrive_at(Base::ring.empty + 8 * stage, threadIdx.x % 32);
            }
        } else {
            Base::release(stage);
        }
    }

    __device__ __forceinline__ void await() {
        iso_mbar_wait(Base::ring.full + 8 * Base::ring.stage, Base::ring.phase);
        if (!sorted()) {                            // threads have copied rows
            iso_proxy_fence();
        }
    }

    // Steps of a block; when they are under way those before are waited for.
    template <int From, int To>
    __device__ __forceinline__ void portion(float (&d)[parts][regs], bool first) {
        if constexpr (From == 0) {
            await();
        }
        if (first) {
            iso_forget(d);
        } else {
            Base::pin(d);
        }
        iso_wgmma_fence();
        Base::template block<To, From>(d, first);
        Base::pin(d);
        iso_wgmma_wait<1>();
        if (previous >= 0) {
            release(previous);
        }
        previous = To < (Tile::odd ? steps : 1) ? -1 : Base::ring.stage;
        if constexpr (To == steps || !Tile::odd) {
            Base::ring.template advance<Tile::stages>();
        }
    }

    // The first block of the leaf with this index in its unit, and the others.
    template <int Leaf> __device__ __forceinline__ void begin(float (&d)[parts][regs]) {
        portion<Leaf * Tile::odd % steps, steps>(d, true);
    }

    template <int Leaf> __device__ __forceinline__ void rest(float (&d)[parts][regs]) {
        constexpr int end = Leaf * Tile::odd % steps + Tile::odd;
        constexpr int last = Tile::odd ? end % steps : Tile::tail % steps;
        int whole = Base::blocks + (Tile::odd ? end / steps : last ? -1 : 0);
#pragma unroll 1
        for (int kb = 1; kb < whole; ++kb) {
            portion<0, steps>(d, false);
        }
        if constexpr (last > 0) {
            portion<0, last>(d, false);
        }
    }

    __device__ __forceinline__ void drain(float (&d)[parts][regs]) {
        iso_wgmma_wait<0>();
        Base::pin(d);
        if (previous >= 0) {
            release(previous);
        }
        previous = -1;
    }

    __device__ __forceinline__ void push(int level) {
        waits = level;
    }

    __device__ __forceinline__ bool nears(int level) const {
        return Plan::far == 0 || (Tile::near > 0 && level < Tile::near);
    }

    __device__ __forceinline__ unsigned near_at(int level, int i) const {
        return near + level * Group::level_bytes + i * 512 + threadIdx.x % 32 * 16;
    }

    // What waits goes, in quarters under as many products: the tile before to its rows, acc to the
    // stack.
    template <int Quarter> __device__ __forceinline__ void clear() {
        constexpr int all = parts * regs / 4;
        if constexpr (Group::staged && Quarter == 0) {
            if (leaves) {
                leave_staged(here.other());
            }
        }
        if (Quarter < 2 || waits < 0) {
            return;
        }
        if (nears(waits)) {
#pragma unroll
            for (int i = (Quarter - 2) * all / 2; i < (Quarter - 1) * all / 2; ++i) {
                const float *v = &Base::acc[i / (regs / 4)][i % (regs / 4) * 4];
                iso_shared_store_f4(near_at(waits, i), make_float4(v[0], v[1], v[2], v[3]));
            }
        } else if (Quarter == 3) {
            Base::push(waits);
        }
        if (Quarter == 3) {
            waits = -1;
        }
    }

    __device__ __forceinline__ void clear_all() {
        clear<0>();
        clear<1>();
        clear<2>();
        clear<3>();
    }

    __device__ __forceinline__ void join(int level) {
        if (!nears(level)) {
            Base::join(level);
            return;
        }
#pragma unroll
        for (int i = 0; i < parts * regs / 4; ++i) {
            float *v = &Base::acc[i / (regs / 4)][i % (regs / 4) * 4];
            float4 left = iso_shared_load_f4(near_at(level, i));
            v[0] = iso_add(left.x, v[0]);
            v[1] = iso_add(left.y, v[1]);
            v[2] = iso_add(left.z, v[2]);
            v[3] = iso_add(left.w, v[3]);
        }
        Base::pin(Base::acc);
    }

    // A warp's rows of the tile, rounded, to where its values have waited.
    __device__ __forceinline__ void stage(const IsoGroupPlace &at) {
        const IsoGemmGroup &g = Base::args.group[at.group];
        unsigned to = near + threadIdx.x % 32 / 4 * Group::pitch + threadIdx.x % 4 * 4;
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            typename Op::Inputs in[regs / 4];
            if (at.passes(half)) {
                break;
            }
#pragma unroll
            for (int i = 0; i < regs / 4; ++i) {
                iso_leave_load<Op, true>(at.group, g, at.near_row(half), at.col0 + i * 8, in[i]);
            }
#pragma unroll
            for (int i = 0; i < regs / 4; ++i) {
                typename Op::Sum sums[parts];
#pragma unroll
                for (int p = 0; p < parts; ++p) {
                    const float *v = &Base::acc[p][4 * i + 2 * half];
                    sums[p] = Op::sum(v[0], v[1]);
                }
                unsigned word = Op::value0(at.group, g, at.near_row(half), at.col0 + i * 8, sums,
                                           in[i]);
                iso_shared_store4(to + half * 8 * Group::pitch + i * 16, word);
            }
        }
        __syncwarp();
        leaves = true;
    }

    // And from there to where they are to be, of the tile whose words wait. A thread's columns are
    // the same in all rows; no row waits for another, and those that do not exist are read as the
    // last that does.
    __device__ __forceinline__ void leave_staged(unsigned waiting) {
        constexpr int chunks = Tile::bn / 8, rows = 32 / chunks, times = iso_ceil(16, rows);
        int lane = threadIdx.x % 32, row = lane / chunks, chunk = lane % chunks;
        int column = (int)iso_shared_load4(waiting + 64);
        int last = (int)iso_shared_load4(waiting + 68), to[times];
        int group = iso_tile_group<Op>(Base::args.group, Tile::bn, column);
        const IsoView &view = Base::args.group[group].result[0];
        unsigned long long out = (unsigned long long)view.ptr + (column * Tile::bn + chunk * 8) * 2;
        unsigned from = near + chunk * 16, words[times][4];
        int stride = (int)view.stride[0] * 2;
        asm volatile("" : "+r"(stride));            // it is made 32 bits once
        last = last < 15 ? last : 15;
#pragma unroll
        for (int i = 0; i < times; ++i) {
            int at = row + i * rows < last ? row + i * rows : last;
            to[i] = (int)iso_shared_load4(waiting + 4 * at);
            iso_shared_load16(words[i], from + at * Group::pitch);
        }
        last = row < rows ? last - row : -1;
#pragma unroll
        for (int i = 0; i < times; ++i) {
            if (i * rows <= last) {
                iso_store16((void *)(out + (long long)to[i] * stride), words[i]);
            }
        }
        __syncwarp();
        leaves = false;
    }

    __device__ __forceinline__ void root(int r) {
        Base::later.leave_all(Base::args);
        IsoGroupPlace at = here.place();
        if (at.passes(0)) {
            return;
        }
        const IsoGemmGroup &g = Base::args.group[at.group];
        bool wide = iso_leaves_wide<Op>(at, g);
        if constexpr (Group::staged) {
            if (wide && g.result[0].stride[0] >> 30 == 0) {
                stage(at);
                return;
            }
        }
        if (Later::most > 0 && here.followed() && wide) {
            Base::later.take(Base::args, at, Base::acc);
        } else {
            IsoLeave<Op, regs>::now(Base::args, at, r, Base::acc);
        }
    }

    __device__ __forceinline__ void leaf(int) {
        clear_all();
        Base::chain(Base::acc);
    }

    __device__ __forceinline__ void pair(int) {
        float left[parts][regs];
        begin<0>(left);
        clear_all();
        here.keep();
        here.ask_item();
        rest<0>(left);
        begin<1>(Base::acc);
        here.ask_rows();
        rest<1>(Base::acc);
        drain(Base::acc);
        Base::pin(left);
        Base::add(left, Base::acc);
    }

    __device__ __forceinline__ void quad(int) {
        float x[parts][regs], y[parts][regs];
        begin<0>(x);
        clear<0>();
        here.ask_item();
        rest<0>(x);
        clear<1>();
        begin<1>(y);
        clear<2>();
        here.ask_rows();
        rest<1>(y);
        clear<3>();
        begin<2>(Base::acc);
        Base::pin(x);
        Base::pin(y);
        Base::add(x, y);
        rest<2>(Base::acc);
        begin<3>(x);
        Base::pin(Base::acc);
        here.keep();
        rest<3>(x);
        drain(x);
        Base::add(Base::acc, x);
#pragma unroll
        for (int i = 0; i < parts * regs; ++i) {
            Base::acc[i / regs][i % regs] = iso_add(y[i / regs][i % regs], x[i / regs][i % regs]);
        }
        Base::pin(Base::acc);
    }

    // A tile, of so many blocks, is let pass: none of the warpgroup's rows exist.
    __device__ __forceinline__ void pass(int blocks) {
        Base::later.leave_all(Base::args);
        clear_all();
#pragma unroll 1
        for (int i = 0; i < blocks; ++i) {
            iso_mbar_wait(Base::ring.full + 8 * Base::ring.stage, Base::ring.phase);
            release(Base::ring.stage);
            Base::ring.template advance<Tile::stages>();
        }
    }

    __device__ __forceinline__ void end() {
        Base::later.leave_all(Base::args);
        if constexpr (Group::staged) {
            if (leaves) {
                leave_staged(here.waiting);
            }
        }
    }
};

template <class Op, class Tile>
ISO_INLINE void iso_group_consume(const IsoGroupArgs &args, unsigned smem, IsoRing ring,
                                  const IsoWgmmaTiles &tiles) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    using Group = IsoGroupPlan<Op, Tile>;
    using Later = IsoGroupLater<Op, Plan::regs, Plan::kept>;
    using Where = IsoGroupWhere<Op, Tile>;
    using Body = IsoGroupBody<Op, Tile, Where, Later>;
    int thread = threadIdx.x - 128, half = thread / 128;
    float4 *stack = (float4 *)args.gemm.workspace + thread +
                    (long long)blockIdx.x * Plan::far * (Plan::level_floats / 4);
    unsigned near = smem + Tile::stages * Plan::stage_bytes +
                    thread / 32 * Group::warp_bytes;
    int leaf = args.gemm.leaf_begin[1] - args.gemm.leaf_begin[0];
    int blocks = Tile::odd ? leaf / Plan::bk : iso_ceil(leaf, Plan::bk);
    unsigned waiting = ring.full + 16 * Tile::stages + thread / 32 * 2 * Where::bytes;
    Later later;
    IsoGroupWalk walk = IsoGroupWalk::make(tiles, Tile::pairs && args.a_sorted);
    Where where{args, walk, waiting, 2 * waiting + Where::bytes, 0, 0, 0, 0};
    Body body{{args.gemm, ring, stack, 0, smem + half * 8192, smem + Plan::a_bytes, blocks, where,
               later, {}}, where, near, -1, -1, false};
#pragma unroll 1
    while (where.followed()) {
        if (!where.open()) {
            body.pass(Group::chains * Group::blocks(args.gemm));
            continue;
        }
        iso_tree_run<typename Op::Tree>(body);
        if constexpr (!Op::Tree::roots) {
            body.root(-1);
        }
    }
    body.end();
}

template <class Op, class Tile>
ISO_INLINE void iso_group_init(const IsoGemmMaps &maps, const IsoRing &ring, bool sorted) {
    using Plan = IsoGroupPlan<Op, Tile>;
    if (threadIdx.x >= 128 && threadIdx.x < 128 + Op::groups * Op::parts) {
        iso_tma_prefetch(&maps.b[threadIdx.x - 128]);
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < Tile::stages; ++s) {
            iso_mbar_init(ring.full + 8 * s, sorted ? 1 : Plan::arrivals);
            iso_mbar_init(ring.empty + 8 * s,
                          4 * Plan::Wgmma::consumers << (Tile::pairs && sorted));
        }
        iso_mbar_init_fence();
    }
    __syncthreads();
    if constexpr (Tile::pairs) {
        iso_cluster_start();
    }
}

template <class Op, class Tile>
ISO_INLINE void iso_gemm_group(const IsoGroupArgs &args, const IsoGemmMaps &maps) {
    using Plan = IsoWgmmaPlan<Op, Tile>;
    using Group = IsoGroupPlan<Op, Tile>;
    // Aligned, so that what waits has the room that other kernels lose to that.
    extern __shared__ __align__(1024) unsigned char iso_group_dynamic[];
    unsigned smem = iso_shared(iso_group_dynamic);
    unsigned full = smem + Tile::stages * Plan::stage_bytes + Group::near_bytes;
    IsoRing ring{full, full + 8 * Tile::stages, 0, 0};
    bool sorted = Tile::sorts && args.a_sorted;
    iso_group_init<Op, Tile>(maps, ring, sorted);
    iso_grid_begin();
    IsoWgmmaTiles tiles = IsoWgmmaTiles::make<Plan>(
        *args.n_items,
        iso_column_tiles<Op>(args.gemm.group, Tile::bn) >> (Tile::pairs && sorted));
    if (threadIdx.x < 128) {
        if constexpr (Plan::consumers == 2) {
            iso_registers_shrink<40>();
        }
        if (!sorted) {
            iso_group_produce<Op, Tile>(args, maps, smem, ring, tiles);
        } else if constexpr (Tile::sorts) {
            if (iso_uniform(threadIdx.x / 32) == 0 && iso_elect()) {
                iso_group_produce_sorted<Op, Tile>(args, maps, smem, ring, tiles);
            }
        }
    } else {
        if constexpr (Plan::consumers == 2) {
            iso_registers_grow<232>();
        }
        iso_group_consume<Op, Tile>(args, smem, ring, tiles);
    }
}

#endif
