// The order in which a grouped product takes its rows: a counting sort by expert, over the CTAs of
// one cluster. The launch rule is in iso_abi.cuh. Owns nothing; of the buffers it writes, counts is
// read by this launch only.
//
// Rows of one expert keep their order, so that the result is a function of the indices alone; no
// bit of a product depends on it.
#ifndef ISO_GROUP_ORDER_CUH
#define ISO_GROUP_ORDER_CUH

#include "iso_gemm.cuh"

struct IsoOrderPlan {
    static constexpr int ctas = 8, threads = 512, warps = threads / 32;
    static constexpr int slots = ISO_GROUP_EXPERTS + 1;     // the last: rows without an expert
};

// CTAs that have rows: few rows are the first one's, and nothing waits for the others.
ISO_INLINE int iso_order_ctas(int rows) {
    return rows <= 16 * IsoOrderPlan::warps ? 1 : IsoOrderPlan::ctas;
}

struct IsoOrderShared {
    int at[IsoOrderPlan::warps][IsoOrderPlan::slots];       // counts, then places, of each warp
    int items[ISO_GROUP_EXPERTS + 2];                       // items of the experts before
    int first[ISO_GROUP_EXPERTS + 2];                       // rows of the experts before
    int total[IsoOrderPlan::warps][2];
};

static_assert(sizeof(IsoOrderShared) == ISO_ORDER_SHARED, "the launch rule");

// Rows [begin, end) of a warp, 32 at a time.
struct IsoOrderRows {
    const IsoOrderArgs &args;
    int begin, end;

    ISO_INLINE IsoOrderRows make(const IsoOrderArgs &args, int rows) {
        int part = (int)blockIdx.x * IsoOrderPlan::warps + (int)threadIdx.x / 32;
        int each = iso_ceil(iso_ceil(rows, 32), IsoOrderPlan::ctas * IsoOrderPlan::warps) * 32;
        int begin = part * each < rows ? part * each : rows;
        return IsoOrderRows{args, begin, begin + each < rows ? begin + each : rows};
    }
    // The index that a row has, of one that exists.
    __device__ __forceinline__ int index(int row) const {
        int own = row < end ? row : end - 1;
        if (args.chosen_token == args.picks * args.chosen_pick) {
            return args.chosen[own * args.chosen_pick];
        }
        int token = own / args.picks, pick = own - token * args.picks;
        return args.chosen[token * args.chosen_token + pick * args.chosen_pick];
    }
    // The slot of a row with an index, -1: it is not computed here.
    __device__ __forceinline__ int slot(int row, int index) const {
        return row < end ? iso_own_expert(index, args.all, args.begin, args.experts) : -1;
    }
};

enum { ISO_ORDER_BATCH = 8 };                       // loads of a lane on their way together

// The lanes whose rows have the slot of a lane's own, of each of its rows, n of which exist: votes
// on the slots' bits.
ISO_INLINE void iso_order_same(const int (&slot)[ISO_ORDER_BATCH], int n, int slots,
                               unsigned (&same)[ISO_ORDER_BATCH]) {
#pragma unroll
    for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
        same[i] = 0xffffffff;
    }
#pragma unroll 1
    for (int bit = 1; bit <= slots; bit *= 2) {     // -1 has all bits, and slots is no slot
#pragma unroll
        for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
            if (i > 0 && n == 1) {
                break;
            }
            unsigned set = __ballot_sync(0xffffffff, slot[i] & bit);
            same[i] &= slot[i] & bit ? set : ~set;
        }
    }
}

// Counts a warp's rows by slot; each row is told how many of its slot come before it in the warp.
ISO_INLINE void iso_order_walk(const IsoOrderRows &rows, int *at) {
    int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = rows.begin; first < rows.end; first += 32 * ISO_ORDER_BATCH) {
        int slot[ISO_ORDER_BATCH];
        unsigned same[ISO_ORDER_BATCH];
#pragma unroll
        for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
            slot[i] = rows.index(first + 32 * i + lane);
        }
#pragma unroll
        for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
            slot[i] = rows.slot(first + 32 * i + lane, slot[i]);
        }
        int n = iso_ceil(rows.end - first, 32);
        iso_order_same(slot, n, rows.args.experts + 1, same);
#pragma unroll
        for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
            if (i >= n) {
                break;
            }
            int row = first + 32 * i + lane;
            int before = __popc(same[i] & ((1u << lane) - 1));
            int place = slot[i] < 0 ? 0 : at[slot[i]] + before;
            if (row < rows.end) {
                rows.args.places[row] = IsoGroupRow{slot[i], place};
            }
            __syncwarp();
            if (slot[i] >= 0 && before == 0) {
                at[slot[i]] = place + __popc(same[i]);
            }
            __syncwarp();
        }
    }
}

// Puts the rows where the counts say.
ISO_INLINE void iso_order_put(const IsoOrderRows &rows, const int *at) {
    int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = rows.begin; first < rows.end; first += 32 * ISO_ORDER_BATCH) {
        IsoGroupRow own[ISO_ORDER_BATCH];
#pragma unroll
        for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
            int row = first + 32 * i + lane;
            own[i] = row < rows.end ? rows.args.places[row] : IsoGroupRow{-1, 0};
        }
#pragma unroll
        for (int i = 0; i < ISO_ORDER_BATCH; ++i) {
            if (own[i].slot >= 0) {
                rows.args.order[at[own[i].slot] + own[i].place] = first + 32 * i + lane;
            }
        }
    }
}

// Turns a warp's counts into places within the CTA; gives the CTA's counts away.
ISO_INLINE void iso_order_count(const IsoOrderArgs &args, IsoOrderShared &shared) {
    for (int slot = threadIdx.x; slot <= args.experts; slot += IsoOrderPlan::threads) {
        int sum = 0;
#pragma unroll
        for (int w = 0; w < IsoOrderPlan::warps; ++w) {
            int own = shared.at[w][slot];
            shared.at[w][slot] = sum;
            sum += own;
        }
        __stcg(args.counts + blockIdx.x * IsoOrderPlan::slots + slot, sum);
    }
}

// x summed over this thread and those before it, of both values.
ISO_INLINE int2 iso_order_scan(int2 x, IsoOrderShared &shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int a = __shfl_up_sync(0xffffffff, x.x, d), b = __shfl_up_sync(0xffffffff, x.y, d);
        x.x += lane >= d ? a : 0;
        x.y += lane >= d ? b : 0;
    }
    if (lane == 31) {
        shared.total[warp][0] = x.x;
        shared.total[warp][1] = x.y;
    }
    __syncthreads();
#pragma unroll 1
    for (int w = 0; w < warp; ++w) {
        x.x += shared.total[w][0];
        x.y += shared.total[w][1];
    }
    return x;
}

// Rows of a slot in all CTAs (x) and in those before this one (y).
ISO_INLINE int2 iso_order_rows_of(const IsoOrderArgs &args, int ctas, int slot) {
    int2 sum = make_int2(0, 0);
#pragma unroll
    for (int c = 0; c < IsoOrderPlan::ctas; ++c) {
        if (c > 0 && ctas == 1) {
            break;
        }
        int own = __ldcg(args.counts + c * IsoOrderPlan::slots + slot);
        sum.x += own;
        sum.y += c < (int)blockIdx.x ? own : 0;
    }
    return sum;
}

ISO_INLINE void iso_order_shift(IsoOrderShared &shared, int slot, int by) {
#pragma unroll
    for (int w = 0; w < IsoOrderPlan::warps; ++w) {
        shared.at[w][slot] += by;
    }
}

// From the CTA's places to the launch's, and where each expert's rows and items begin. Rows without
// an expert come after all others: one thread beyond has them.
ISO_INLINE void iso_order_places(const IsoOrderArgs &args, int ctas, IsoOrderShared &shared) {
    int slot = threadIdx.x, experts = args.experts;
    int2 own = slot < experts ? iso_order_rows_of(args, ctas, slot) : make_int2(0, 0);
    int2 each = make_int2(own.x, iso_ceil(own.x, args.bm));
    int2 end = iso_order_scan(each, shared);
    if (slot < experts) {
        shared.first[slot] = end.x - each.x;
        shared.items[slot] = end.y - each.y;
        iso_order_shift(shared, slot, end.x - each.x + own.y);
    }
    if (slot == IsoOrderPlan::threads - 1) {
        int2 none = iso_order_rows_of(args, ctas, experts);
        shared.first[experts] = end.x;
        shared.items[experts] = end.y;
        shared.first[experts + 1] = end.x + none.x;
        shared.items[experts + 1] = end.y + iso_ceil(none.x, args.bm);
        iso_order_shift(shared, experts, end.x + none.y);
    }
    __syncthreads();
}

ISO_INLINE void iso_order_items(const IsoOrderArgs &args, int ctas, const IsoOrderShared &shared) {
    int items = shared.items[args.experts + 1];
    int thread = blockIdx.x * IsoOrderPlan::threads + threadIdx.x;
    if (thread == 0) {
        *args.n_items = items;
    }
    for (int item = thread; item < items; item += ctas * IsoOrderPlan::threads) {
        int low = 0, high = args.experts + 1;       // the last slot whose items begin at or before
        while (high - low > 1) {
            int middle = (low + high) / 2;
            (shared.items[middle] <= item ? low : high) = middle;
        }
        int first = shared.first[low] + (item - shared.items[low]) * args.bm;
        int left = shared.first[low + 1] - first;
        args.items[item] = IsoGroupItem{low, first, left < args.bm ? left : args.bm, 0};
    }
}

ISO_INLINE void iso_group_order(const IsoOrderArgs &args) {
    extern __shared__ __align__(16) unsigned char iso_order_dynamic[];
    IsoOrderShared &shared = *(IsoOrderShared *)iso_order_dynamic;
    int *at = shared.at[threadIdx.x / 32];
    for (int slot = threadIdx.x % 32; slot <= args.experts; slot += 32) {
        at[slot] = 0;
    }
    iso_grid_begin();
    int rows = iso_live_rows(args.rows_dev, args.rows) * args.picks;
    int ctas = iso_order_ctas(rows);
    if ((int)blockIdx.x >= ctas) {
        return;
    }
    IsoOrderRows mine = IsoOrderRows::make(args, rows);
    __syncwarp();
    iso_order_walk(mine, at);
    __syncthreads();
    iso_order_count(args, shared);
    if (ctas == 1) {
        __syncthreads();
    } else {
        iso_cluster_sync();
    }
    iso_order_places(args, ctas, shared);
    iso_order_put(mine, at);
    iso_order_items(args, ctas, shared);
}

#endif
