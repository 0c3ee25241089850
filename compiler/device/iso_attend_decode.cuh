// Attention of few rows of each of many sequences, over long caches: splits are spread over CTAs.
// Owns nothing; the launch rule is in iso_abi.cuh, a block's arithmetic in iso_attend.cuh.
//
// Neighbouring tokens of one sequence and the queries of one head of keys share a tile of rows. An
// item is one split of a tile; its piece is a head of keys and a chunk of the group. CTAs number
// the items of a window of tokens from what lies on the device, all alike, splits that may be short
// after the others, and draw units of (item, piece) from a counter: lengths may be anything and
// change between replays of a graph. A tile of several splits leaves each one's root (values,
// maximum, sum) in the workspace; the CTA that comes last joins them from the left. Counters say
// who does what, never the order. Where the roots have no room, a tile's splits are one item and
// are joined in registers.
//
// Loads run `ahead` blocks before their use, in a ring of 2 * ahead + 1 places that keys and values
// of a block take in turns.
#ifndef ISO_ATTEND_DECODE_CUH
#define ISO_ATTEND_DECODE_CUH

#include "iso_attend.cuh"

enum {
    ISO_DECODE_WINDOW = ISO_ATTEND_THREADS, // a token for each thread
    ISO_DECODE_NOWHERE = -1,                // in place of a key that is not loaded
    ISO_DECODE_STATE = 4480,                // bytes of IsoDecodeShared without its keys' places
    ISO_DECODE_MOST = 228 * 1024,           // of a multiprocessor, 1024 of them lost by each CTA
};

template <class Op> struct IsoDecodePlan {
    using Plan = IsoAttendPlan<Op>;
    static constexpr int stages = 2 * Op::ahead + 1;
    static constexpr int stage_bytes =
        Plan::k_bytes > Plan::v_bytes ? Plan::k_bytes : Plan::v_bytes;
    // Queries lie there until they are in registers, weights after.
    static constexpr int p_bytes = Plan::p_bytes > Plan::q_bytes ? Plan::p_bytes : Plan::q_bytes;
    // The state lies in the memory that the launch asks for: static memory is padded as far as any
    // kernel of the module has its own aligned, and then a second CTA has no room.
    static constexpr int p_at = stages * stage_bytes, state_at = p_at + p_bytes;
    static constexpr int state_bytes = ISO_DECODE_STATE + (Op::ahead + 1) * ISO_ATTEND_BLOCK * 8;
    static constexpr int shared_bytes = state_at + state_bytes;
    static constexpr int resident = Op::depth <= 128 && Op::width <= 128 ? 2 : 1;
    static constexpr int root = Op::width + 4; // floats of a row's root: values, maximum, sum, 0, 0

    static_assert(resident * (shared_bytes + 1024) <= ISO_DECODE_MOST, "room for as many CTAs");
};

template <class Op> struct IsoDecodeShared {
    IsoAttendShared<Op> rows;
    // Of the window's tokens.
    int sequence[ISO_DECODE_WINDOW], lo[ISO_DECODE_WINDOW], hi[ISO_DECODE_WINDOW];
    // Of the tokens before: splits but each tile's last, and tiles.
    int items[ISO_DECODE_WINDOW + 1];
    unsigned short tiles[ISO_DECODE_WINDOW + 1];
    int roots[ISO_DECODE_WINDOW]; // where a tile's begin, in rows of a token; -1: it has none
    int sums[ISO_ATTEND_WARPS];
    int last;
    unsigned drawn;
};

template <class Op> ISO_INLINE IsoDecodeShared<Op> &iso_decode_state(unsigned char *dynamic) {
    static_assert(sizeof(IsoDecodeShared<Op>) <= IsoDecodePlan<Op>::state_bytes, "state");
    return *(IsoDecodeShared<Op> *)(dynamic + IsoDecodePlan<Op>::state_at);
}

// The values of all threads up to this one, joined; *all: of all threads. Values are not negative.
template <bool Max> ISO_INLINE int iso_decode_scan(int x, int *sums, int *all) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int y = __shfl_up_sync(0xFFFFFFFFu, x, d);
        if (lane >= d) {
            x = Max ? iso_attend_max(x, y) : x + y;
        }
    }
    __syncthreads();
    if (lane == 31) {
        sums[warp] = x;
    }
    __syncthreads();
    int total = 0;
#pragma unroll
    for (int w = 0; w < ISO_ATTEND_WARPS; ++w) {
        if (w == warp) {
            x = Max ? iso_attend_max(x, total) : x + total;
        }
        total = Max ? iso_attend_max(total, sums[w]) : total + sums[w];
    }
    *all = total;
    return x;
}

template <class Op> struct IsoAttendDecode : IsoAttend<Op> {
    using Base = IsoAttend<Op>;
    using Plan = IsoAttendPlan<Op>;
    using Deep = IsoDecodePlan<Op>;
    using typename Base::Queries;
    using typename Base::Scores;
    using typename Base::Values;
    using Base::args;
    using Base::lane;
    using Base::range;
    using Base::warp;

    IsoDecodeShared<Op> &own;
    unsigned ring; // shared address of the loads' places
    int pieces, chunks;
    unsigned queries[Op::row_tiles][Op::depth / 16][4];
    // The item at hand: its tile's first token and their number, which root is its first, and what
    // of its piece.
    int token, tokens, root, piece;
    unsigned drawn; // thread 0: the unit after it

    // --- items ---

    // Tokens of the tile that begins at token t of the window.
    __device__ __forceinline__ int tokens_of(int t) const {
        int n = 1;
        while (n < args.tile_tokens && t + n < ISO_DECODE_WINDOW &&
               own.sequence[t + n] == own.sequence[t]) {
            ++n;
        }
        return n;
    }

    __device__ __forceinline__ int splits_of(int t, int n) const {
        int lo = 0x7FFFFFFF, hi = 0;
        for (int i = t; i < t + n; ++i) {
            if (own.lo[i] < own.hi[i]) {
                lo = iso_attend_min(lo, own.lo[i]);
                hi = iso_attend_max(hi, own.hi[i]);
            }
        }
        return lo < hi ? (hi - 1) / Op::split - lo / Op::split + 1 : 1;
    }

    __device__ __forceinline__ void open_token(int at, int live) {
        int t = threadIdx.x, of = at < live ? args.sequence[at] : ISO_ATTEND_NO_ROW;
        int2 keys = at < live && of >= 0 ? this->keys_of(at, of) : make_int2(0, 0);
        own.sequence[t] = at < live && of < 0 ? -1 : of;
        own.lo[t] = keys.x;
        own.hi[t] = keys.y;
    }

    // Numbers the items of the tokens from `first` on; `before`: roots of earlier windows, which
    // those of this one are added to.
    __device__ __forceinline__ void open_window(int first, int live, int *before) {
        int t = threadIdx.x, all;
        __syncthreads();
        open_token(first + t, live);
        __syncthreads();
        bool exists = first + t < live;
        bool starts = exists && (t == 0 || own.sequence[t - 1] != own.sequence[t]);
        int start = iso_decode_scan<true>(starts ? t + 1 : 0, own.sums, &all) - 1;
        bool leads = exists && (t - start) % args.tile_tokens == 0;
        int n = leads ? tokens_of(t) : 0, splits = leads ? splits_of(t, n) : 0;
        int wanted = splits > 1 ? splits * n : 0;
        int end = *before + iso_decode_scan<false>(wanted, own.sums, &all);
        *before = iso_attend_min(*before + all, args.most_roots);
        bool whole = end > args.most_roots;
        own.roots[t] = whole || splits < 2 ? -1 : end - wanted;
        own.items[t + 1] =
            iso_decode_scan<false>(whole || !leads ? 0 : splits - 1, own.sums, &all);
        own.tiles[t + 1] = iso_decode_scan<false>(leads, own.sums, &all);
        if (t == 0) {
            own.items[0] = own.tiles[0] = 0;
        }
        __syncthreads();
    }

    // The window's token before which there are at most n of what is counted, and after it more.
    template <class Count> __device__ __forceinline__ int find(const Count *counts, int n) const {
        int t = 0;
#pragma unroll
        for (int step = ISO_DECODE_WINDOW / 2; step > 0; step /= 2) {
            if (counts[t + step] <= n) {
                t += step;
            }
        }
        return t;
    }

    __device__ __forceinline__ void open_tile(int first, int t) {
        int r = threadIdx.x, chunk = piece % chunks;
        token = first + t;
        tokens = tokens_of(t);
        root = own.roots[t];
        this->head = piece / chunks;
        this->sequence = own.sequence[t];
        this->half = tokens * args.tile_group <= 8;
        __syncthreads();
        if (r < Plan::rows) {
            int step = r / args.tile_group, member = chunk * args.tile_group + r % args.tile_group;
            bool exists = step < tokens && member < args.group;
            own.rows.token[r] = token + step;
            own.rows.member[r] = member;
            own.rows.sequence[r] = exists ? this->sequence : ISO_ATTEND_NO_ROW;
            own.rows.lo[r] = exists ? own.lo[t + step] : 0;
            own.rows.hi[r] = exists ? own.hi[t + step] : 0;
        }
        __syncthreads();
        this->read_rows();
    }

    // --- blocks ---

    __device__ __forceinline__ unsigned stage(int load) const {
        return ring + load % Deep::stages * Deep::stage_bytes;
    }

    // Steps to a thread's key of a block along the stored axes; x = NOWHERE: it is not loaded.
    __device__ __forceinline__ int2 look_up(int block) const {
        int key = block + threadIdx.x;
        return this->is_loaded(key) ? iso_attend_place(args, this->sequence, key)
                                    : make_int2(ISO_DECODE_NOWHERE, 0);
    }

    __device__ __forceinline__ int2 *places(int n) const {
        return own.rows.place[n % (Op::ahead + 1)];
    }

    // Where key and value lie, in 16 bytes from the first of their head.
    __device__ __forceinline__ void keep_place(int n, int2 at) const {
        int2 place = at;
        if (at.x != ISO_DECODE_NOWHERE) {
            place.x = (int)((at.x * args.k_sequence + at.y * args.k_position) / 8);
            place.y = (int)((at.x * args.v_sequence + at.y * args.v_position) / 8);
        } else {
            place.y = ISO_DECODE_NOWHERE;
        }
        places(n)[threadIdx.x] = place;
    }

    // A thread has one chunk of every so many lines, so that its addresses are steps of constants.
    template <class Tile, bool Keys>
    __device__ __forceinline__ void load_lines(unsigned to, int n) const {
        constexpr int slots = Tile::chunks <= 8 ? 8 : Tile::chunks <= 16 ? 16 : 32, batch = 8;
        constexpr int lines = ISO_ATTEND_THREADS / slots;
        static_assert(Tile::chunks <= slots, "a thread for each chunk of a line");
        const IsoView &view = Keys ? args.k : args.v;
        int line = threadIdx.x / slots, chunk = threadIdx.x % slots;
        const char *from = (const char *)view.ptr + this->head * view.stride[1] * 2 + chunk * 16;
        const int2 *place = places(n) + line;
        to = Tile::at(to, line, chunk);
        if (chunk >= Tile::chunks) {
            return;
        }
#pragma unroll 1
        for (int i = 0; i < slots; i += batch, place += batch * lines) {
            // Places first: a copy is a border that no read is moved across.
            int at[batch];
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                at[j] = Keys ? place[j * lines].x : place[j * lines].y;
            }
#pragma unroll
            for (int j = 0; j < batch; ++j, to += lines * Tile::pitch) {
                bool loaded = at[j] != ISO_DECODE_NOWHERE;
                iso_cp_async16(to, from + (loaded ? (unsigned)at[j] : 0u) * 16ull, loaded ? 16 : 0);
            }
        }
    }

    __device__ __forceinline__ void load_block_keys(int n, int block, int end) const {
        if (block < end) {
            load_lines<Queries, true>(stage(2 * n), n);
        }
        iso_cp_async_commit();
    }

    __device__ __forceinline__ void load_block_values(int n, int block, int end) const {
        if (block < end) {
            load_lines<Values, false>(stage(2 * n + 1), n);
        }
        iso_cp_async_commit();
    }

    __device__ __forceinline__ void take_queries() {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
#pragma unroll
            for (int d = 0; d < Op::depth / 16; ++d) {
                iso_ldmatrix<false>(queries[i][d],
                                    Queries::at(this->q, i * 16 + lane % 16, 2 * d + lane / 16));
            }
        }
    }

    __device__ __forceinline__ void multiply_queries(Scores &s) const {
        float *flat = &s[0][0][0];
#pragma unroll
        for (int i = 0; i < Op::row_tiles * 16; ++i) {
            flat[i] = 0.0f;
        }
#pragma unroll
        for (int d = 0; d < Op::depth / 16; d += 2) {
            unsigned b[4][4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                iso_ldmatrix<false>(
                    b[n], Queries::at(this->k, warp * 32 + n * 8 + lane % 8, 2 * d + lane / 8));
            }
            // A chain's steps are apart, so that none waits for the one before.
#pragma unroll
            for (int j = 0; j < 2; ++j) {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
#pragma unroll
                    for (int i = 0; i < Op::row_tiles; ++i) {
                        iso_mma_k16<Op::f16>(s[i][n], queries[i][d + j], b[n][2 * j],
                                             b[n][2 * j + 1]);
                    }
                }
            }
        }
    }

    // Keys and values of blocks n to n + ahead - 1 are under way, in this order.
    __device__ __forceinline__ void attend_block(int n, int block, int end) {
        Scores s;
        int key0 = block + warp * 32 + lane % 4 * 2;
        int later = block + Op::ahead * ISO_ATTEND_BLOCK;
        iso_cp_async_wait<Deep::stages - 2>();
        __syncthreads();
        load_block_keys(n + Op::ahead, later, end);
        int2 next = look_up(later + ISO_ATTEND_BLOCK); // used once it has come
        this->k = stage(2 * n);
        multiply_queries(s);
        this->find_most(s, key0);
        __syncthreads();
        load_block_values(n + Op::ahead, later, end);
        this->take_most(block);
        this->weigh(s, key0);
        this->scale_out(this->o, this->alpha);
        keep_place(n + Op::ahead + 1, next);
        iso_cp_async_wait<Deep::stages - 1>();
        __syncthreads();
        this->take_sums(block);
        this->v = stage(2 * n + 1);
        if (this->is_odd(block)) {
            this->template multiply_values<true>(block);
        } else {
            this->template multiply_values<false>(block);
        }
    }

    __device__ __forceinline__ void begin(int first, int end) {
#pragma unroll
        for (int n = 0; n <= Op::ahead; ++n) {
            keep_place(n, look_up(first + n * ISO_ATTEND_BLOCK));
        }
        this->load_queries();
        iso_cp_async_commit();
        __syncthreads();
#pragma unroll
        for (int n = 0; n < Op::ahead; ++n) {
            load_block_keys(n, first + n * ISO_ATTEND_BLOCK, end);
            load_block_values(n, first + n * ISO_ATTEND_BLOCK, end);
        }
        iso_cp_async_wait<2 * Op::ahead>();
        __syncthreads();
        take_queries();
    }

    // Begins to ask for the next unit.
    __device__ __forceinline__ void draw() {
        if (threadIdx.x == 0) {
            drawn = gridDim.x + atomicAdd(args.draws, 1u);
        }
    }

    // Goes through keys from..end - 1. Alone: they are of one split, whose root is left as it is.
    __device__ __forceinline__ void walk_keys(int from, int end, bool alone) {
        int first = from / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK;
        begin(first, end);
#pragma unroll 1
        for (int block = first, n = 0; block < end; ++n) {
            int next = block + ISO_ATTEND_BLOCK;
            if (next >= end) {
                draw();
            }
            attend_block(n, block, end);
            if (!alone && (next % Op::split == 0 || next >= end)) {
                this->end_split(block / Op::split * Op::split);
                this->start_split();
            }
            block = next;
        }
        iso_cp_async_wait<0>();
    }

    // --- roots ---

    __device__ __forceinline__ float *root_of(int part, int r) const {
        long long row = root + part * tokens + r / args.tile_group;
        return args.roots +
               ((row * pieces + piece) * args.tile_group + r % args.tile_group) * Deep::root;
    }

    __device__ __forceinline__ bool exists(int r) const {
        return own.rows.sequence[r] != ISO_ATTEND_NO_ROW;
    }

    __device__ __forceinline__ int column(int n) const {
        return (warp * Plan::columns + n) * 8 + lane % 4 * 2;
    }

    __device__ __forceinline__ void store_root(int part, int i, int h) const {
        float pair = iso_add(this->sum[i][h], __shfl_xor_sync(0xFFFFFFFFu, this->sum[i][h], 1));
        float l = iso_add(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, 2));
        int r = this->row_of(i, h);
        if (!exists(r)) {
            return;
        }
        float *to = root_of(part, r);
#pragma unroll
        for (int n = 0; n < Plan::columns; ++n) {
            __stcg((float2 *)(to + column(n)),
                   make_float2(this->o[i][n][2 * h], this->o[i][n][2 * h + 1]));
        }
        if (warp == 0 && lane % 4 == 0) {
            __stcg((float4 *)(to + Op::width), make_float4(this->m[i][h], l, 0.0f, 0.0f));
        }
    }

    // A part's roots begin at the address; behind its maximum and sum there are a row's weights.
    __device__ __forceinline__ void join_root(unsigned from, int i, int h, int start) {
        if (!this->sees(i, h, start, start + Op::split)) {
            return;
        }
        from += this->row_of(i, h) * Deep::root * 4;
        float4 tail = iso_shared_load_f4(from + Op::width * 4);
#pragma unroll
        for (int n = 0; n < Plan::columns; ++n) {
            float2 pair = iso_shared_load_f2(from + column(n) * 4);
            this->o[i][n][2 * h] = pair.x;
            this->o[i][n][2 * h + 1] = pair.y;
        }
        this->m[i][h] = tail.x;
        float most = iso_max(this->total_m[i][h], tail.x);
        this->join_row(i, h, tail.y, this->sees(i, h, 0, start), {most, tail.z, tail.w});
    }

    // The rows' roots of some parts go to the ring, a token's rows after another's.
    __device__ __forceinline__ void load_roots(int first, int parts) const {
        int left = args.group - piece % chunks * args.tile_group;
        int members = iso_attend_min(args.tile_group, left);
        int pitch = args.tile_group * Deep::root, begin = first * tokens;
#pragma unroll 1
        for (int n = begin + warp; n < begin + parts * tokens; n += ISO_ATTEND_WARPS) {
            const float *from = args.roots + ((long long)(root + n) * pieces + piece) * pitch;
            unsigned to = ring + (n - begin) * pitch * 4;
#pragma unroll 4
            for (int c = lane; c < members * (Deep::root / 4); c += 32) {
                iso_cp_async16(to + c * 16, from + c * 4, 16);
            }
        }
        iso_cp_async_commit();
        iso_cp_async_wait<0>();
    }

    // What the splits weigh that were loaded, the first of which begins at `start`: a chain of
    // maxima, then exponentials none of which waits for another. Each thread has the chain of one
    // row, `m` its maximum so far, and the weights of one part in eight.
    __device__ __forceinline__ void weigh_roots(int parts, int each, int start, float &m) const {
        int r = threadIdx.x % Plan::rows, own_part = threadIdx.x / Plan::rows;
        int lo = own.rows.lo[r], hi = own.rows.hi[r];
        unsigned tail = ring + (r * Deep::root + Op::width) * 4;
#pragma unroll 2
        for (int part = 0; part < parts; ++part, start += Op::split, tail += each) {
            if (iso_attend_max(lo, start) < iso_attend_min(hi, start + Op::split)) {
                float next = iso_bits_f32(iso_shared_load4(tail)), before = m;
                m = lo < start ? iso_max(before, next) : next;
                if (part % (ISO_ATTEND_THREADS / Plan::rows) == own_part) {
                    iso_shared_store4(tail + 8, iso_f32_bits(Op::weight(iso_sub(before, m))));
                    iso_shared_store4(tail + 12, iso_f32_bits(Op::weight(iso_sub(next, m))));
                }
            }
        }
    }

    // Whether the CTA is the last of so many that come here; leaves the counter at zero.
    __device__ __forceinline__ bool comes_last(int arrivals) {
        unsigned *counter = args.counters + (long long)token * pieces + piece;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            own.last = atomicInc(counter, arrivals - 1) == (unsigned)(arrivals - 1);
            __threadfence();
        }
        __syncthreads();
        return own.last != 0;
    }

    __device__ __forceinline__ void join_roots(int splits) {
        int start = range.lo / Op::split * Op::split, rows = tokens * args.tile_group;
        int each = rows * Deep::root * 4, most = Deep::stages * Deep::stage_bytes / each;
        float m = iso_bits_f32(0xFF800000u);
#pragma unroll 1
        for (int first = 0; first < splits; first += most) {
            int parts = iso_attend_min(most, splits - first);
            __syncthreads();
            load_roots(first, parts);
            __syncthreads();
            weigh_roots(parts, each, start, m);
            __syncthreads();
#pragma unroll 1
            for (int part = 0; part < parts; ++part, start += Op::split) {
#pragma unroll
                for (int i = 0; i < Op::row_tiles; ++i) {
                    join_root(ring + part * each, i, 0, start);
                    join_root(ring + part * each, i, 1, start);
                }
            }
        }
    }

    // --- units ---

    // Whether the tile's values are complete.
    __device__ __forceinline__ bool leave_root(int part, int splits) {
#pragma unroll
        for (int i = 0; i < Op::row_tiles; ++i) {
            store_root(part, i, 0);
            store_root(part, i, 1);
        }
        bool last = comes_last(splits);
        if (last) {
            join_roots(splits);
        }
        return last;
    }

    __device__ __forceinline__ void attend_unit(int first, int unit) {
        int item = unit / pieces, full = own.items[ISO_DECODE_WINDOW];
        int t = item < full ? find(own.items, item) : find(own.tiles, item - full);
        int splits = own.items[t + 1] - own.items[t] + 1;
        piece = unit % pieces;
        open_tile(first, t);
        this->clear_totals();
        bool alone = root >= 0;
        int part = item < full ? item - own.items[t] : splits - 1;
        int start = (range.lo / Op::split + part) * Op::split;
        int from = alone ? iso_attend_max(range.lo, start) : range.lo;
        int end = alone ? iso_attend_min(range.hi, start + Op::split) : range.hi;
        if (from < end) {
            walk_keys(from, end, alone);
        } else {
            draw();
        }
        if (!alone || leave_root(part, splits)) {
            this->store();
        }
    }

    // Units are counted over all windows; the first is the CTA's own.
    __device__ __forceinline__ void run(int live) {
        int roots = 0;
        unsigned next = blockIdx.x, before = 0;
#pragma unroll 1
        for (int first = 0; first < live; first += ISO_DECODE_WINDOW) {
            open_window(first, live, &roots);
            unsigned all = (own.items[ISO_DECODE_WINDOW] + own.tiles[ISO_DECODE_WINDOW]) * pieces;
#pragma unroll 1
            while (next - before < all) {
                attend_unit(first, next - before);
                if (threadIdx.x == 0) {
                    own.drawn = drawn;
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

template <class Op> ISO_INLINE void iso_attend_decode(const IsoAttendArgs &args) {
    using Deep = IsoDecodePlan<Op>;
    extern __shared__ unsigned char iso_dynamic[];
    IsoDecodeShared<Op> &shared = iso_decode_state<Op>(iso_dynamic);
    iso_grid_begin();
    unsigned ring = iso_shared(iso_dynamic), p = ring + Deep::p_at;
    int chunks = (args.group + args.tile_group - 1) / args.tile_group;
    int live = args.rows_dev ? *args.rows_dev : args.rows;
    IsoAttendDecode<Op> body{
        {args, shared.rows, p, ring, ring, p, 0, (int)threadIdx.x / 32, (int)threadIdx.x % 32},
        shared, ring, args.heads * chunks, chunks};
    body.run(live < args.rows ? live : args.rows);
}

#endif
