// Attention of packed tokens over the keys of their sequences: a tile of rows, and blocks of keys
// that it goes through. Owns nothing; the launch rule is in iso_abi.cuh, the arithmetic
// LANGUAGE.md's 6.13; iso_attend_walk.cuh and iso_attend_decode.cuh have the kernels.
//
// A CTA has a tile of rows: some tokens, and for each the queries of one head of keys (its group).
// Tokens of one sequence are taken together, whatever lies between them, so that any batch is right
// and a batch in order is fast. Keys come in blocks of 128. Warp w scores keys 32 w to 32 w + 31 of
// a block: a thread's eight weights of a row are the clause's part w of lane threadIdx % 4, so that
// the row sums' order is the accumulator's own. Weights pass through shared memory, and warp w then
// takes a quarter of the values' columns through all groups of 16 keys in order.
//
// What no row of the sequence in the tile sees is loaded as zeros. Where rows see different keys of
// a block, the weights of the unseen are +0; that leaves an accumulator as it is unless a value is
// NaN or Inf, and then each row gets steps of its own, with the values that it does not see as
// zeros.
#ifndef ISO_ATTEND_CUH
#define ISO_ATTEND_CUH

#include "iso_attend_base.cuh"

// Lines of Line elements of 2 bytes, and 16 bytes between them: eight lines' equal chunks lie in
// different banks.
template <int Line> struct IsoAttendTile {
    static constexpr int chunks = Line / 8;
    static constexpr int pitch = (chunks + 1) * 16;

    ISO_INLINE unsigned at(unsigned base, int line, int chunk) {
        return base + line * pitch + chunk * 16;
    }
};

template <class Op> struct IsoAttendPlan {
    static constexpr int rows = 16 * Op::row_tiles;
    static constexpr int columns = Op::width / 32; // blocks of eight, of one warp
    static constexpr int batch = columns > 4 ? 2 : columns; // of them, multiplied in turns
    static constexpr int q_bytes = rows * IsoAttendTile<Op::depth>::pitch;
    static constexpr int k_bytes = ISO_ATTEND_BLOCK * IsoAttendTile<Op::depth>::pitch;
    static constexpr int v_bytes = ISO_ATTEND_BLOCK * IsoAttendTile<Op::width>::pitch;
    static constexpr int p_bytes = rows * IsoAttendTile<ISO_ATTEND_BLOCK>::pitch;
    static constexpr int shared_bytes = q_bytes + k_bytes + v_bytes + p_bytes;

    static_assert(Op::depth % 32 == 0 && Op::width % 32 == 0, "whole pairs of steps, four warps");
    static_assert(Op::split % ISO_ATTEND_BLOCK == 0, "splits are whole blocks");
};

// What the warps tell each other.
template <class Op> struct IsoAttendShared {
    static constexpr int rows = IsoAttendPlan<Op>::rows;
    float most[ISO_ATTEND_WARPS][rows];
    float part[ISO_ATTEND_WARPS][4][rows];
    int sequence[rows], token[rows], member[rows]; // of each row
    int lo[rows], hi[rows];                        // keys that it sees now; none: equal
    int2 place[Op::ahead + 1][ISO_ATTEND_BLOCK];   // where a block's keys lie: see iso_attend_place
    int odd;                                       // a value of the block is no number
};

template <class Op> struct IsoAttend {
    using Plan = IsoAttendPlan<Op>;
    using Queries = IsoAttendTile<Op::depth>;
    using Values = IsoAttendTile<Op::width>;
    using Weights = IsoAttendTile<ISO_ATTEND_BLOCK>;
    typedef float Out[Op::row_tiles][Plan::columns][4];

    const IsoAttendArgs &args;
    IsoAttendShared<Op> &shared;
    unsigned q, k, v, p; // shared addresses
    int head, warp, lane;
    int sequence;
    bool half; // no row is among the upper eight of a tile's 16
    IsoAttendRange range;
    // Of rows m * 16 + h * 8 + lane / 4, the same in every warp.
    int lo[Op::row_tiles][2], hi[Op::row_tiles][2];
    float m[Op::row_tiles][2], sum[Op::row_tiles][2];             // of the split; sum: of this lane
    float alpha[Op::row_tiles][2];
    float total_m[Op::row_tiles][2], total_l[Op::row_tiles][2];   // of the splits before
    Out o, total_o;

    __device__ __forceinline__ int row_of(int tile, int half) const {
        return tile * 16 + half * 8 + lane / 4;
    }

    // --- rows ---

    __device__ __forceinline__ void open_rows(int tokens) {
        int r = threadIdx.x;
        if (r >= Plan::rows) {
            return;
        }
        int chunks = (args.group + args.tile_group - 1) / args.tile_group;
        int step = r / args.tile_group;
        int token = blockIdx.x / chunks * args.tile_tokens + step;
        int member = blockIdx.x % chunks * args.tile_group + r % args.tile_group;
        bool exists = step < args.tile_tokens && token < tokens && member < args.group;
        int own = exists ? args.sequence[token] : ISO_ATTEND_NO_ROW;
        shared.token[r] = token;
        shared.member[r] = member;
        shared.sequence[r] = exists && own < 0 ? -1 : own;
    }

    __device__ __forceinline__ void load_queries() {
        const unsigned short *from = (const unsigned short *)args.q.ptr + head * args.q.stride[1];
        for (int i = threadIdx.x; i < Plan::rows * Queries::chunks; i += ISO_ATTEND_THREADS) {
            int r = i / Queries::chunks, chunk = i % Queries::chunks;
            bool exists = shared.sequence[r] != ISO_ATTEND_NO_ROW;
            long long at = shared.token[r] * args.q.stride[0] + shared.member[r] * args.q.stride[2];
            iso_cp_async16(Queries::at(q, r, chunk), from + (exists ? at + chunk * 8 : 0),
                           exists ? 16 : 0);
        }
    }

    __device__ __forceinline__ int2 keys_of(int token, int of) const {
        return iso_attend_keys<Op>(args, token, of);
    }

    // Turns to the rows of a sequence.
    __device__ __forceinline__ void open_sequence(int of) {
        sequence = of;
        __syncthreads();
        if (threadIdx.x < Plan::rows) {
            bool mine = of >= 0 && shared.sequence[threadIdx.x] == of;
            int2 keys = mine ? keys_of(shared.token[threadIdx.x], of) : make_int2(0, 0);
            shared.lo[threadIdx.x] = keys.x;
            shared.hi[threadIdx.x] = keys.y;
        }
        __syncthreads();
        read_rows();
    }

    // What the rows see.
    __device__ __forceinline__ void read_rows() {
        range = IsoAttendRange{0x7FFFFFFF, 0, 0, 0x7FFFFFFF};
        for (int r = 0; r < Plan::rows; ++r) {
            if (shared.lo[r] < shared.hi[r]) {
                range.lo = iso_attend_min(range.lo, shared.lo[r]);
                range.hi = iso_attend_max(range.hi, shared.hi[r]);
                range.all_lo = iso_attend_max(range.all_lo, shared.lo[r]);
                range.all_hi = iso_attend_min(range.all_hi, shared.hi[r]);
            }
        }
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                lo[i][h] = shared.lo[row_of(i, h)];
                hi[i][h] = shared.hi[row_of(i, h)];
            }
        }
    }

    // Whether a row sees a key in [from, to).
    __device__ __forceinline__ bool sees(int i, int h, int from, int to) const {
        return iso_attend_max(lo[i][h], from) < iso_attend_min(hi[i][h], to);
    }

    // --- keys and values ---

    __device__ __forceinline__ bool is_loaded(int key) const {
        return key >= range.lo && key < range.hi;
    }

    __device__ __forceinline__ void find_places(int block, int buffer) {
        int key = block + threadIdx.x;
        if (is_loaded(key)) {
            shared.place[buffer][threadIdx.x] = iso_attend_place(args, sequence, key);
        }
    }

    template <class Tile>
    __device__ __forceinline__ void load(unsigned to, const IsoView &view, long long by_sequence,
                                         long long by_position, int block, int buffer) {
        const unsigned short *from = (const unsigned short *)view.ptr + head * view.stride[1];
#pragma unroll 4
        for (int i = threadIdx.x; i < ISO_ATTEND_BLOCK * Tile::chunks; i += ISO_ATTEND_THREADS) {
            int line = i / Tile::chunks, chunk = i % Tile::chunks;
            bool loaded = is_loaded(block + line);
            int2 place = loaded ? shared.place[buffer][line] : make_int2(0, 0);
            long long at = place.x * by_sequence + place.y * by_position;
            iso_cp_async16(Tile::at(to, line, chunk), from + (loaded ? at + chunk * 8 : 0),
                           loaded ? 16 : 0);
        }
    }

    __device__ __forceinline__ void load_keys(int block, int buffer) {
        load<Queries>(k, args.k, args.k_sequence, args.k_position, block, buffer);
    }
    __device__ __forceinline__ void load_values(int block, int buffer) {
        load<Values>(v, args.v, args.v_sequence, args.v_position, block, buffer);
    }

    // --- scores and weights ---

    typedef float Scores[Op::row_tiles][4][4];

    __device__ __forceinline__ void multiply_keys(Scores &s) {
        float *flat = &s[0][0][0];
#pragma unroll
        for (int i = 0; i < Op::row_tiles * 16; ++i) {
            flat[i] = 0.0f;
        }
#pragma unroll 2
        for (int d = 0; d < Op::depth; d += 32) {
            unsigned b[4][4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                iso_ldmatrix<false>(
                    b[n], Queries::at(k, warp * 32 + n * 8 + lane % 8, d / 8 + lane / 8));
            }
#pragma unroll
            for (int i = 0; i < Op::row_tiles; ++i) {
                unsigned a[2][4];
                iso_ldmatrix<false>(a[0], Queries::at(q, i * 16 + lane % 16, d / 8 + lane / 16));
                iso_ldmatrix<false>(a[1],
                                    Queries::at(q, i * 16 + lane % 16, d / 8 + 2 + lane / 16));
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    iso_mma_k16<Op::f16>(s[i][n], a[0], b[n][0], b[n][1]);
                    iso_mma_k16<Op::f16>(s[i][n], a[1], b[n][2], b[n][3]);
                }
            }
        }
    }

    __device__ __forceinline__ bool is_seen(int i, int h, int key) const {
        return key >= lo[i][h] && key < hi[i][h];
    }

    // Exponents of 2 in place of scores; the block's maximum of each row goes to shared memory. An
    // unseen key stands back as -inf, which no maximum minds.
    __device__ __forceinline__ void find_most(Scores &s, int key0) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (h && half) {
                    continue;
                }
                float most = iso_bits_f32(0xFF800000u);
#pragma unroll
                for (int n = 0; n < 4; ++n) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float t = iso_attend_scaled<Op>(s[i][n][2 * h + e]);
                        s[i][n][2 * h + e] = t;
                        most = is_seen(i, h, key0 + n * 8 + e) ? iso_max(most, t) : most;
                    }
                }
                most = iso_max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
                most = iso_max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
                if (lane % 4 == 0) {
                    shared.most[warp][row_of(i, h)] = most;
                }
            }
        }
    }

    // The new maximum, and what it makes of the old.
    __device__ __forceinline__ void take_most(int block) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int r = row_of(i, h);
                if (h && half) {
                    alpha[i][h] = 1.0f;
                    continue;
                }
                float most = Op::rounded ? iso_bits_f32(0xFF800000u) : m[i][h];
                bool here = sees(i, h, block, block + ISO_ATTEND_BLOCK);
#pragma unroll
                for (int w = 0; w < ISO_ATTEND_WARPS; ++w) {
                    most = iso_max(most, shared.most[w][r]);
                }
                if constexpr (Op::rounded) {
                    float next = iso_attend_rounded<Op>(most);
                    most = iso_max(m[i][h], here ? next : iso_bits_f32(0xFF800000u));
                }
                float fall = Op::weight(iso_sub(m[i][h], most));
                bool counts = sees(i, h, block / Op::split * Op::split, block) && here;
                alpha[i][h] = counts ? fall : 1.0f;
                m[i][h] = most;
            }
        }
    }

    ISO_INLINE unsigned rounded(float w) {
        if constexpr (Op::values_f16) {
            return iso_f16_of_f32(w);
        }
        return iso_bf16_of_f32(w);
    }

    // Weights go to shared memory, rounded; so do this warp's parts of the row sums, not rounded.
    __device__ __forceinline__ void weigh(const Scores &s, int key0) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int r = row_of(i, h);
                float part = 0.0f;
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    if (h && half) {
                        iso_shared_store4(Weights::at(p, r, warp * 4 + n) + lane % 4 * 4, 0);
                        continue;
                    }
                    float w[2];
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float x = iso_attend_weight<Op>(s[i][n][2 * h + e], m[i][h]);
                        w[e] = is_seen(i, h, key0 + n * 8 + e) ? x : 0.0f;
                        part = iso_add(part, w[e]);
                    }
                    unsigned pair = rounded(w[0]) | rounded(w[1]) << 16;
                    iso_shared_store4(Weights::at(p, r, warp * 4 + n) + lane % 4 * 4, pair);
                }
                shared.part[warp][lane % 4][r] = part;
            }
        }
    }

    // Weights are not below +0, so that an absent sum may be +0.
    __device__ __forceinline__ void take_sums(int block) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int r = row_of(i, h), own = lane % 4;
                if (h && half) {
                    continue;
                }
                float left = iso_add(shared.part[0][own][r], shared.part[1][own][r]);
                float right = iso_add(shared.part[2][own][r], shared.part[3][own][r]);
                bool seen = iso_attend_lane_sees(lo[i][h], hi[i][h], block, own);
                float x = iso_attend_sum<Op>(iso_add(left, right), m[i][h], seen);
                sum[i][h] = iso_add(iso_mul(sum[i][h], alpha[i][h]), x);
            }
        }
    }

    // --- values ---

    // Whether some row does not see a key that another sees, and a value of the block is no number.
    __device__ __forceinline__ bool is_odd(int block) {
        bool mixed = range.all_lo > iso_attend_max(range.lo, block) ||
                     range.all_hi < iso_attend_min(range.hi, block + ISO_ATTEND_BLOCK);
        if (!mixed) {
            return false;
        }
        if (threadIdx.x == 0) {
            shared.odd = 0;
        }
        __syncthreads();
        constexpr unsigned inf = Op::values_f16 ? 0x7C00u : 0x7F80u;
        bool odd = false;
        for (int c = 0; c < Values::chunks; ++c) {
            unsigned x[4];
            iso_shared_load16(x, Values::at(v, threadIdx.x, c));
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                odd |= (x[j] & inf) == inf || (x[j] >> 16 & inf) == inf;
            }
        }
        if (odd) {
            shared.odd = 1;
        }
        __syncthreads();
        return shared.odd != 0;
    }

    // Two neighbouring values of one column, those that row r does not see as zeros.
    __device__ __forceinline__ unsigned seen_pair(unsigned pair, int r, int key) const {
        int from = shared.lo[r], to = shared.hi[r];
        unsigned low = key >= from && key < to ? pair & 0xFFFFu : 0u;
        unsigned high = key + 1 >= from && key + 1 < to ? pair & 0xFFFF0000u : 0u;
        return low | high;
    }

    // A step for each row apart.
    __device__ __forceinline__ void step_by_rows(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1, int tile, int key) const {
        float out[4];
#pragma unroll 1
        for (int r = 0; r < 16; ++r) {
            float d[4] = {c[0], c[1], c[2], c[3]};
            iso_mma_k16<Op::values_f16>(d, a, seen_pair(b0, tile * 16 + r, key),
                                        seen_pair(b1, tile * 16 + r, key + 8));
            bool low = lane / 4 == r, high = lane / 4 + 8 == r;
            out[0] = low ? d[0] : out[0];
            out[1] = low ? d[1] : out[1];
            out[2] = high ? d[2] : out[2];
            out[3] = high ? d[3] : out[3];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            c[j] = out[j];
        }
    }

    __device__ __forceinline__ void scale_out(Out &x, const float (&by)[Op::row_tiles][2]) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int n = 0; n < Plan::columns; ++n) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    x[i][n][j] = iso_mul(x[i][n][j], by[i][j / 2]);
                }
            }
        }
    }

    template <bool ByRows> __device__ __forceinline__ void multiply_values(int block) {
        constexpr int together = ByRows || Op::row_tiles > 1 || Op::width > 128 ? 1 : 4;
#pragma unroll together
        for (int key = 0; key < ISO_ATTEND_BLOCK; key += 32) {
            unsigned a[Op::row_tiles][2][4];
#pragma unroll
            for (int i = 0; i < Op::row_tiles; ++i) {
                int r = i * 16 + lane % 16;
                iso_ldmatrix<false>(a[i][0], Weights::at(p, r, key / 8 + lane / 16));
                iso_ldmatrix<false>(a[i][1], Weights::at(p, r, key / 8 + 2 + lane / 16));
            }
#pragma unroll
            for (int n = 0; n < Plan::columns; n += Plan::batch) {
                multiply_columns<ByRows>(n, key, block + key, a);
            }
        }
    }

    // Some blocks of columns by 32 keys; a column's steps are apart, so that none waits for the one
    // before.
    template <bool ByRows>
    __device__ __forceinline__ void multiply_columns(int n, int line, int key,
                                                     const unsigned (&a)[Op::row_tiles][2][4]) {
        unsigned b[Plan::batch][4];
#pragma unroll
        for (int c = 0; c < Plan::batch; ++c) {
            iso_ldmatrix<true>(b[c], Values::at(v, line + lane, warp * Plan::columns + n + c));
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int c = 0; c < Plan::batch; ++c) {
#pragma unroll
                for (int i = 0; i < Op::row_tiles; ++i) {
                    unsigned low = b[c][2 * half], high = b[c][2 * half + 1];
                    if constexpr (ByRows) {
                        step_by_rows(o[i][n + c], a[i][half], low, high, i,
                                     key + half * 16 + lane % 4 * 2);
                    } else {
                        iso_mma_k16<Op::values_f16>(o[i][n + c], a[i][half], low, high);
                    }
                }
            }
        }
    }

    // --- splits ---

    __device__ __forceinline__ void start_split() {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
            m[i][0] = m[i][1] = iso_bits_f32(0xFF800000u);
            sum[i][0] = sum[i][1] = 0.0f;
#pragma unroll
            for (int n = 0; n < Plan::columns; ++n) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    o[i][n][j] = 0.0f;
                }
            }
        }
    }

    // The split's values as they are, or joined to those of the splits before.
    // What the splits before and this one weigh when they are joined.
    struct Shares {
        float most, left, right;
    };
    ISO_INLINE Shares shares_of(float total_m, float m) {
        float most = iso_max(total_m, m);
        return Shares{most, Op::weight(iso_sub(total_m, most)), Op::weight(iso_sub(m, most))};
    }

    __device__ __forceinline__ void join_row(int i, int h, float l, bool before, Shares by) {
        float both = iso_add(iso_mul(total_l[i][h], by.left), iso_mul(l, by.right));
        total_m[i][h] = before ? by.most : m[i][h];
        total_l[i][h] = before ? both : l;
#pragma unroll
        for (int n = 0; n < Plan::columns; ++n) {
#pragma unroll
            for (int j = 2 * h; j < 2 * h + 2; ++j) {
                float x = iso_add(iso_mul(total_o[i][n][j], by.left),
                                  iso_mul(o[i][n][j], by.right));
                total_o[i][n][j] = before ? x : o[i][n][j];
            }
        }
    }

    __device__ __forceinline__ void end_split(int start) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float pair = iso_add(sum[i][h], __shfl_xor_sync(0xFFFFFFFFu, sum[i][h], 1));
                float l = iso_add(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, 2));
                if (sees(i, h, start, start + Op::split)) {
                    Shares by = shares_of(total_m[i][h], m[i][h]);
                    join_row(i, h, l, sees(i, h, 0, start), by);
                }
            }
        }
    }

    __device__ __forceinline__ void clear_totals() {
        start_split();
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
            total_m[i][0] = total_m[i][1] = m[i][0];
            total_l[i][0] = total_l[i][1] = 0.0f;
#pragma unroll
            for (int n = 0; n < Plan::columns; ++n) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    total_o[i][n][j] = 0.0f;
                }
            }
        }
    }

    // --- results ---

    __device__ __forceinline__ void join_sink(int i, int h) {
        const float *sinks = (const float *)args.sinks.ptr + head * args.sinks.stride[1];
        float sink = sinks[shared.member[row_of(i, h)] * args.sinks.stride[2]];
        float x = iso_mul(sink, ISO_LOG2E), most = iso_max(total_m[i][h], x);
        float left = Op::weight(iso_sub(total_m[i][h], most));
        total_l[i][h] = iso_add(iso_mul(total_l[i][h], left), Op::weight(iso_sub(x, most)));
        total_m[i][h] = most;
#pragma unroll
        for (int n = 0; n < Plan::columns; ++n) {
            total_o[i][n][2 * h] = iso_mul(total_o[i][n][2 * h], left);
            total_o[i][n][2 * h + 1] = iso_mul(total_o[i][n][2 * h + 1], left);
        }
    }

    __device__ __forceinline__ void store_row(int i, int h, bool any) const {
        int r = row_of(i, h);
        const IsoView &to = args.o;
        typename Op::Value *row = (typename Op::Value *)to.ptr + head * to.stride[1] +
                                  shared.token[r] * to.stride[0] + shared.member[r] * to.stride[2];
        float inverse = Op::rounded ? iso_div(1.0f, total_l[i][h]) : 0.0f;
#pragma unroll
        for (int n = 0; n < Plan::columns; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                int column = (warp * Plan::columns + n) * 8 + lane % 4 * 2 + e;
                float x = iso_attend_value<Op>(total_o[i][n][2 * h + e], total_l[i][h], inverse);
                row[column * to.stride[4]] = Op::value(any ? x : 0.0f);
            }
        }
    }

    __device__ __forceinline__ void store_lse(int i, int h, bool any) const {
        int r = row_of(i, h);
        const IsoView &to = args.lse;
        float x = iso_add(iso_mul(total_m[i][h], ISO_LN2), iso_log(total_l[i][h]));
        ((float *)to.ptr)[head * to.stride[1] + shared.token[r] * to.stride[0] +
                          shared.member[r] * to.stride[2]] = any ? x : iso_bits_f32(0xFF800000u);
    }

    __device__ __forceinline__ void store() {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                bool any = lo[i][h] < hi[i][h];
                if (shared.sequence[row_of(i, h)] != sequence) {
                    continue;
                }
                if constexpr (Op::sinks) {
                    join_sink(i, h);
                }
                store_row(i, h, any);
                if constexpr (Op::lse) {
                    if (warp == 0 && lane % 4 == 0) {
                        store_lse(i, h, any);
                    }
                }
            }
        }
    }
};

#endif
