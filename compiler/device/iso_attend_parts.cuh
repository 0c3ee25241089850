// Attention whose keys lie on several ranks, by whole splits: each rank leaves the roots of those
// splits that it has, and whoever finishes a row joins them from the left.
// Owns nothing; the launch rule is in iso_abi.cuh, a split's arithmetic in iso_attend.cuh.
//
// A unit is a split of a tile of rows, for a head of keys and a chunk of the group, as in
// iso_attend_decode.cuh; every split is alone. Root k of a row is that of the k-th split that the
// row sees of those that the rank has.
#ifndef ISO_ATTEND_PARTS_CUH
#define ISO_ATTEND_PARTS_CUH

#include "iso_attend_decode.cuh"

// The first split from `from` on that a piece of the keys has, of a sequence's.
ISO_INLINE int iso_attend_own(const IsoAttendCut &cut, int from, int sequence, int piece) {
    int turn = cut.turn ? cut.turn[sequence] : 0;
    int past = (from + turn - piece) % cut.pieces;
    return from + (past > 0 ? cut.pieces - past : -past);
}

template <class Op> struct IsoAttendParts : IsoAttendDecode<Op> {
    using Base = IsoAttendDecode<Op>;
    using Deep = IsoDecodePlan<Op>;
    using Base::args;
    using Base::lane;
    using Base::own;
    using Base::piece;
    using Base::pieces;
    using Base::range;
    using Base::warp;

    const IsoAttendCut &cut;

    // --- units ---

    __device__ __forceinline__ int first_own(int key) const {
        return iso_attend_own(cut, key / Op::split, this->sequence, cut.piece);
    }

    // Splits of the tile that begins at token t of the window, of those that lie here.
    __device__ __forceinline__ int own_splits(int t) const {
        int lo = 0x7FFFFFFF, hi = 0, n = this->tokens_of(t);
        for (int i = t; i < t + n; ++i) {
            if (own.lo[i] < own.hi[i]) {
                lo = iso_attend_min(lo, own.lo[i]);
                hi = iso_attend_max(hi, own.hi[i]);
            }
        }
        if (lo >= hi) {
            return 0;
        }
        int first = iso_attend_own(cut, lo / Op::split, own.sequence[t], cut.piece);
        int last = (hi - 1) / Op::split;
        return first > last ? 0 : (last - first) / cut.pieces + 1;
    }

    __device__ __forceinline__ void open_window(int first, int live) {
        int t = threadIdx.x, all;
        __syncthreads();
        this->open_token(first + t, live);
        __syncthreads();
        bool exists = first + t < live;
        bool starts = exists && (t == 0 || own.sequence[t - 1] != own.sequence[t]);
        int start = iso_decode_scan<true>(starts ? t + 1 : 0, own.sums, &all) - 1;
        bool leads = exists && (t - start) % args.tile_tokens == 0;
        own.roots[t] = 0;
        own.items[t + 1] = iso_decode_scan<false>(leads ? own_splits(t) : 0, own.sums, &all);
        if (t == 0) {
            own.items[0] = 0;
        }
        __syncthreads();
    }

    // --- roots ---

    __device__ __forceinline__ void store_root(int split, int i, int h) const {
        float pair = iso_add(this->sum[i][h], __shfl_xor_sync(0xFFFFFFFFu, this->sum[i][h], 1));
        float l = iso_add(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, 2));
        int r = this->row_of(i, h), start = split * Op::split;
        if (!this->exists(r) || !this->sees(i, h, start, start + Op::split)) {
            return;
        }
        long long row = ((long long)own.rows.token[r] * args.heads + this->head) * args.group +
                        own.rows.member[r];
        int place = (split - first_own(this->lo[i][h])) / cut.pieces;
        float *to = cut.roots + (row * cut.places + place) * Deep::root;
#pragma unroll
        for (int n = 0; n < Base::Plan::columns; ++n) {
            *(float2 *)(to + this->column(n)) =
                make_float2(this->o[i][n][2 * h], this->o[i][n][2 * h + 1]);
        }
        if (warp == 0 && lane % 4 == 0) {
            *(float4 *)(to + Op::width) = make_float4(this->m[i][h], l, 0.0f, 0.0f);
        }
    }

    __device__ __forceinline__ void attend_unit(int first, int unit) {
        int item = unit / pieces, t = this->find(own.items, item);
        piece = unit % pieces;
        this->open_tile(first, t);
        this->start_split();
        int split = first_own(range.lo) + (item - own.items[t]) * cut.pieces;
        int start = split * Op::split;
        this->walk_keys(iso_attend_max(range.lo, start),
                        iso_attend_min(range.hi, start + Op::split), true);
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
            store_root(split, i, 0);
            store_root(split, i, 1);
        }
    }

    // Units are counted over all windows; the first is the CTA's own.
    __device__ __forceinline__ void run(int live) {
        unsigned next = blockIdx.x, before = 0;
#pragma unroll 1
        for (int first = 0; first < live; first += ISO_DECODE_WINDOW) {
            open_window(first, live);
            unsigned all = own.items[ISO_DECODE_WINDOW] * pieces;
#pragma unroll 1
            while (next - before < all) {
                attend_unit(first, next - before);
                if (threadIdx.x == 0) {
                    own.drawn = this->drawn;
                }
                __syncthreads();
                next = own.drawn;
            }
            before += all;
        }
        // The last CTA to come here leaves the counters as they were.
        if (threadIdx.x == 0 && atomicInc(args.draws + 1, gridDim.x - 1) == gridDim.x - 1) {
            args.draws[0] = 0;
        }
    }
};

template <class Op>
ISO_INLINE void iso_attend_parts(const IsoAttendArgs &args, const IsoAttendCut &cut) {
    using Deep = IsoDecodePlan<Op>;
    extern __shared__ unsigned char iso_dynamic[];
    IsoDecodeShared<Op> &shared = iso_decode_state<Op>(iso_dynamic);
    iso_grid_begin();
    unsigned ring = iso_shared(iso_dynamic), p = ring + Deep::p_at;
    int chunks = (args.group + args.tile_group - 1) / args.tile_group;
    int live = args.rows_dev ? *args.rows_dev : args.rows;
    IsoAttendParts<Op> body{
        {{args, shared.rows, p, ring, ring, p, 0, (int)threadIdx.x / 32, (int)threadIdx.x % 32},
         shared, ring, args.heads * chunks, chunks}, cut};
    body.run(live < args.rows ? live : args.rows);
}

// --- the join ---

// A row of a warp: each lane has every 32nd column.
template <class Op> struct IsoAttendJoin {
    static constexpr int columns = Op::width / 32, root = Op::width + 4;
    static constexpr int ahead = columns > 4 ? 4 : 8;

    const IsoAttendArgs &args;
    const IsoAttendCut &cut;
    int token, head, member, lane;
    float m, l, o[columns];

    struct Root {
        float m, l, o[columns];
    };

    // Where the next root is: splits from a row's first on are the pieces' in turns.
    struct Next {
        int piece, turn, place;
    };
    __device__ __forceinline__ Next first_root(int first, int sequence) const {
        int turn = cut.turn ? cut.turn[sequence] : 0;
        return Next{(first + turn) % cut.pieces, 0, 0};
    }
    __device__ __forceinline__ const float *root_of(Next &next) const {
        const IsoAttendSource &from = cut.source[next.piece];
        long long row = ((long long)(token + from.token) * from.heads + head + from.head) *
                            from.group + member + from.member;
        const float *root_at = from.roots + (row * cut.places + next.place) * root;
        next.piece = next.piece + 1 < cut.pieces ? next.piece + 1 : 0;
        bool round = ++next.turn == cut.pieces;
        next.turn = round ? 0 : next.turn;
        next.place += round;
        return root_at;
    }

    // Roots may lie in other GPUs' memory: some are asked for before the first is used.
    __device__ __forceinline__ void load_roots(Root (&roots)[ahead], int n, Next &next) const {
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (i < n) {
                const float *x = root_of(next);
                roots[i].m = x[Op::width];
                roots[i].l = x[Op::width + 1];
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    roots[i].o[c] = x[c * 32 + lane];
                }
            }
        }
    }

    __device__ __forceinline__ void take_root(const Root &own, bool before) {
        float most = before ? iso_max(m, own.m) : own.m;
        float left = Op::weight(iso_sub(m, most)), right = Op::weight(iso_sub(own.m, most));
        float both = iso_add(iso_mul(l, left), iso_mul(own.l, right));
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            float sum = iso_add(iso_mul(o[c], left), iso_mul(own.o[c], right));
            o[c] = before ? sum : own.o[c];
        }
        l = before ? both : own.l;
        m = most;
    }

    __device__ __forceinline__ void take_roots(int first, int end, int sequence) {
        Next next = first_root(first, sequence);
#pragma unroll 1
        for (int split = first; split < end; split += ahead) {
            Root roots[ahead];
            load_roots(roots, end - split, next);
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                if (split + i < end) {
                    take_root(roots[i], split + i > first);
                }
            }
        }
    }

    __device__ __forceinline__ void take_sink() {
        float sink = ((const float *)args.sinks.ptr)[head * args.sinks.stride[1] +
                                                     member * args.sinks.stride[2]];
        float x = iso_mul(sink, ISO_LOG2E), most = iso_max(m, x);
        float left = Op::weight(iso_sub(m, most));
        l = iso_add(iso_mul(l, left), Op::weight(iso_sub(x, most)));
        m = most;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            o[c] = iso_mul(o[c], left);
        }
    }

    __device__ __forceinline__ void store(bool any) const {
        const IsoView &to = args.o;
        typename Op::Value *row = (typename Op::Value *)to.ptr + token * to.stride[0] +
                                  head * to.stride[1] + member * to.stride[2];
        float inverse = Op::rounded ? iso_div(1.0f, l) : 0.0f;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            float x = iso_attend_value<Op>(o[c], l, inverse);
            row[(c * 32 + lane) * to.stride[4]] = Op::value(any ? x : 0.0f);
        }
        if constexpr (Op::lse) {
            float x = iso_add(iso_mul(m, ISO_LN2), iso_log(l));
            if (lane == 0) {
                ((float *)args.lse.ptr)[token * args.lse.stride[0] + head * args.lse.stride[1] +
                                        member * args.lse.stride[2]] =
                    any ? x : iso_bits_f32(0xFF800000u);
            }
        }
    }

    __device__ __forceinline__ void run() {
        int sequence = args.sequence[token];
        int2 keys = sequence >= 0 ? iso_attend_keys<Op>(args, token, sequence) : make_int2(0, 0);
        int first = keys.x / Op::split, end = (keys.y + Op::split - 1) / Op::split;
        bool any = keys.x < keys.y;
        m = iso_bits_f32(0xFF800000u);
        l = 0.0f;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            o[c] = 0.0f;
        }
        if (any) {
            take_roots(first, end, sequence);
        }
        if constexpr (Op::sinks) {
            take_sink();
        }
        store(any);
    }
};

template <class Op>
ISO_INLINE void iso_attend_join(const IsoAttendArgs &args, const IsoAttendCut &cut) {
    iso_grid_begin();
    int row = blockIdx.y * ISO_ATTEND_WARPS + threadIdx.x / 32, token = blockIdx.x;
    int live = args.rows_dev ? *args.rows_dev - cut.source[0].token : args.rows;
    if (token < live && row < args.heads * args.group) {
        IsoAttendJoin<Op> body{args, cut, token, row / args.group, row % args.group,
                               (int)threadIdx.x % 32};
        body.run();
    }
}

#endif
