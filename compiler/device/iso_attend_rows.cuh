// Rows of a warpgroup in a tile of attention by wgmma: where they are and what they see, the splits
// before, results. Owns nothing; iso_attend_steps.cuh has the arithmetic of a block.
#ifndef ISO_ATTEND_ROWS_CUH
#define ISO_ATTEND_ROWS_CUH

#include "iso_attend_tile.cuh"

ISO_INLINE void iso_store16_if(bool does, void *to, const unsigned (&v)[4]) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %0, 0;\n\t"
                 "@p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n\t}" ::"r"((int)does),
                 "l"(__cvta_generic_to_global(to)), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

// All that a thread of the 64 rows keeps.
template <class Op> struct IsoAttendRows {
    using Plan = IsoAttendWgmmaPlan<Op>;
    static constexpr int regs = Plan::regs;

    const IsoAttendArgs &args;
    IsoAttendWgmmaShared &shared;
    int n;                        // blocks passed
    int tokens;                   // of this thread's rows, 8 apart: 16 bits each
    int own;                      // first token of the sequence
    float total;                  // of the splits before: total_of in the four lanes of the rows
    bool fresh;                   // values are of no block yet: what o holds is nobody's
    float m[2], sum[2], alpha[2]; // of the split; sum: of this lane
    float s[64], o[regs];         // scores, then weights, of a block; values
    unsigned p[32];               // weights, rounded

    ISO_INLINE unsigned smem() { return iso_shared(iso_attend_dynamic); }
    ISO_INLINE int lane() { return iso_attend_thread() % 32; }
    ISO_INLINE int group() { return iso_attend_thread() / 128 - 1; }

    // --- rows ---

    // Tiles that this warp has passed.
    ISO_INLINE int *passed() {
        return &iso_attend_state<Op>().passed[iso_attend_thread() / 32 - 4];
    }
    ISO_INLINE const IsoAttendOpened &tile() {
        return iso_attend_state<Op>().tile[iso_attend_peek(passed()) & 1];
    }

    ISO_INLINE int row_of(int h) {
        int thread = iso_attend_thread() - 128;
        return thread / 32 * 16 + h * 8 + thread % 32 / 4;
    }
    // Unpacked anew at each use: both halves would be kept.
    __device__ __forceinline__ int token_of(int h) const {
        int both;
        asm volatile("mov.b32 %0, %1;" : "=r"(both) : "r"(tokens));
        return both >> 16 * h & 0xFFFF;
    }
    // Of a row that exists.
    __device__ __forceinline__ int member_of(const IsoAttendOpened &t, int h) const {
        return t.member0 + row_of(h) - token_of(h) * args.tile_group;
    }
    // Rows that do not exist have the last token's place, which then has no token.
    __device__ __forceinline__ void find_tokens() {
        tokens = 0;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int at = row_of(h) / args.tile_group, member = row_of(h) - at * args.tile_group;
            bool exists = tile().member0 + member < args.group;
            tokens |= (exists ? at : ISO_ATTEND_WGMMA_ROWS - 1) << 16 * h;
        }
    }
    // Whether the row exists and is of the sequence.
    __device__ __forceinline__ bool is_of(const IsoAttendOpened &t, int h) const {
        return t.own[token_of(h)] == own;
    }
    // The keys that a row sees.
    __device__ __forceinline__ int2 keys_of(const IsoAttendOpened &t, int h) const {
        int at = token_of(h);
        int2 keys = make_int2(iso_attend_peek(&t.lo[at]), iso_attend_peek(&t.hi[at]));
        return is_of(t, h) ? keys : make_int2(0, 0);
    }
    // Whether a row sees a key in [from, to).
    ISO_INLINE bool sees(int2 keys, int from, int to) {
        return iso_attend_max(keys.x, from) < iso_attend_min(keys.y, to);
    }

    // The tile's range is kept for each warp apart.
    ISO_INLINE const IsoAttendRange &range() {
        return iso_attend_state<Op>().range[iso_attend_thread() / 32 - 4];
    }
    ISO_INLINE int range_lo() { return iso_attend_peek(&range().lo); }
    ISO_INLINE int range_hi() { return iso_attend_peek(&range().hi); }
    ISO_INLINE int range_all_hi() { return iso_attend_peek(&range().all_hi); }

    // --- splits ---

    __device__ __forceinline__ void clear_out() {
#pragma unroll
        for (int i = 0; i < regs; ++i) {
            o[i] = 0.0f;
        }
    }

    __device__ __forceinline__ void start_split() {
        m[0] = m[1] = iso_bits_f32(0xFF800000u);
        sum[0] = sum[1] = 0.0f;
        clear_out();
        fresh = true;
    }

    ISO_INLINE unsigned totals() {
        return smem() + Plan::total_at + (iso_attend_thread() - 128) * 16;
    }
    static constexpr int total_step = 256 * 16;

    // The maximum (0) and the sum (1) of row h.
    __device__ __forceinline__ float total_of(int h, int which) const {
        return __shfl_sync(0xFFFFFFFFu, total, (iso_attend_thread() % 32 & 28) + 2 * h + which);
    }
    __device__ __forceinline__ void keep_sums(const float (&m)[2], const float (&l)[2]) {
        int own_lane = lane() % 4;
        total = own_lane / 2 ? own_lane % 2 ? l[1] : m[1] : own_lane % 2 ? l[0] : m[0];
    }

    // The values of all splits so far, in place of those of the one from `start` on: joined to
    // those of the splits before, where both are there. All: each row sees keys of it, and of those
    // before if any row does; rows of other sequences may hold anything.
    template <bool All>
    __device__ __forceinline__ void end_split(int start, const float (&m)[2],
                                              const float (&sum)[2]) {
        float left[2], right[2], next_m[2], next_l[2], l[2];
        bool here[2], before[2];
        unsigned own = totals();
        const IsoAttendOpened &t = shared.tile[All ? 0 : iso_attend_peek(passed()) & 1];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float pair = iso_add(sum[h], __shfl_xor_sync(0xFFFFFFFFu, sum[h], 1));
            l[h] = iso_add(pair, __shfl_xor_sync(0xFFFFFFFFu, pair, 2));
        }
        if (!All && start <= range_lo()) {
            keep_sums(m, l); // there is none before
            return;
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float total_m = total_of(h, 0), total_l = total_of(h, 1);
            float most = iso_max(total_m, m[h]);
            int2 keys = All ? make_int2(0, 0x7FFFFFFF) : keys_of(t, h);
            here[h] = All || sees(keys, start, start + Op::split);
            before[h] = All ? start > 0 : sees(keys, 0, start);
            left[h] = Op::weight(iso_sub(total_m, most));
            right[h] = Op::weight(iso_sub(m[h], most));
            float both = iso_add(iso_mul(total_l, left[h]), iso_mul(l[h], right[h]));
            next_m[h] = !here[h] ? total_m : before[h] ? most : m[h];
            next_l[h] = !here[h] ? total_l : before[h] ? both : l[h];
        }
        keep_sums(next_m, next_l);
        if (!All || start > range_lo()) {
#pragma unroll
            for (int i = 0; i < regs / 4; ++i) {
                float4 v = iso_shared_load_f4(own + i * total_step);
                float total[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    int h = j / 2;
                    float &x = o[4 * i + j];
                    float both = iso_add(iso_mul(total[j], left[h]), iso_mul(x, right[h]));
                    x = All ? both : !here[h] ? total[j] : before[h] ? both : x;
                }
            }
        }
    }

    __device__ __forceinline__ void keep_total() {
        unsigned own = totals();
#pragma unroll
        for (int i = 0; i < regs / 4; ++i) {
            iso_shared_store_f4(own + i * total_step, make_float4(o[4 * i], o[4 * i + 1],
                                                                  o[4 * i + 2], o[4 * i + 3]));
        }
    }

    // --- results ---

    __device__ __forceinline__ void join_sink(const IsoAttendOpened &t, int h, float &total_m,
                                              float &total_l) {
        const float *sinks = (const float *)args.sinks.ptr + t.head * args.sinks.stride[1];
        float sink = is_of(t, h) ? sinks[member_of(t, h) * args.sinks.stride[2]] : 0.0f;
        float x = iso_mul(sink, ISO_LOG2E), most = iso_max(total_m, x);
        float left = Op::weight(iso_sub(total_m, most));
        total_l = iso_add(iso_mul(total_l, left), Op::weight(iso_sub(x, most)));
        total_m = most;
#pragma unroll
        for (int i = 0; i < regs; i += 4) {
            o[i + 2 * h] = iso_mul(o[i + 2 * h], left);
            o[i + 2 * h + 1] = iso_mul(o[i + 2 * h + 1], left);
        }
    }

    __device__ __forceinline__ long long place_in(const IsoView &to, const IsoAttendOpened &t,
                                                  int h) const {
        return t.head * to.stride[1] + (t.token0 + token_of(h)) * to.stride[0] +
               member_of(t, h) * to.stride[2];
    }

    // Sixteen of a thread's values: four blocks of eight columns from `column` on, of two rows.
    typedef float Values[16];

    struct Result {
        long long place;  // of the row's values
        bool own, any;    // the row is of the sequence; it sees keys
        float l, inverse; // inverse: for rounded maxima
    };

    // The four lanes of a row exchange pairs, so that each stores eight neighbouring columns.
    __device__ __forceinline__ void store_wide(const Values &x, int h, int column,
                                               const Result &row) const {
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            words[j] = (unsigned)Op::value(x[4 * j + 2 * h]) |
                       (unsigned)Op::value(x[4 * j + 2 * h + 1]) << 16;
        }
        iso_quad_transpose(words);
        if (row.own) {
            unsigned short *to = (unsigned short *)args.o.ptr + row.place;
            iso_store16(to + column + lane() % 4 * 8, words); // a uint4 is stored by words
        }
    }

    __device__ __forceinline__ void store_each(const Values &x, int h, int column,
                                               const Result &row) const {
        typename Op::Value *to = (typename Op::Value *)args.o.ptr + row.place;
        int first = column + lane() % 4 * 2;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (row.own) {
                to[(first + i / 2 * 8 + i % 2) * args.o.stride[4]] =
                    Op::value(x[i / 2 * 4 + 2 * h + i % 2]);
            }
        }
    }

    __device__ __forceinline__ bool is_wide() const {
        const IsoView &to = args.o;
        long long all = to.stride[0] | to.stride[1] | to.stride[2];
        return sizeof(typename Op::Value) == 2 && to.stride[4] == 1 && all % 8 == 0 &&
               (unsigned long long)to.ptr % 16 == 0;
    }

    __device__ __forceinline__ void store_lse(const IsoAttendOpened &t, int h, bool any, float m,
                                              float l) const {
        float x = iso_add(iso_mul(m, ISO_LN2), iso_log(l));
        ((float *)args.lse.ptr)[place_in(args.lse, t, h)] = any ? x : iso_bits_f32(0xFF800000u);
    }

    __device__ __forceinline__ void store_values(int column, const Result (&row)[2], bool wide) {
        Values x;
        unsigned from = totals() + column / 8 * total_step;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float4 v = iso_shared_load_f4(from + j * total_step);
            x[4 * j] = v.x, x[4 * j + 1] = v.y, x[4 * j + 2] = v.z, x[4 * j + 3] = v.w;
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int i = 2 * h; i < 16; i += i % 2 ? 3 : 1) {
                float quotient = iso_attend_value<Op>(x[i], row[h].l, row[h].inverse);
                x[i] = row[h].any ? quotient : 0.0f;
            }
            if constexpr (sizeof(typename Op::Value) == 2) {
                if (wide) {
                    store_wide(x, h, column, row[h]);
                    continue;
                }
            }
            store_each(x, h, column, row[h]);
        }
    }

    // From the thread's own part of shared memory, so that the code exists once.
    __device__ __forceinline__ void store_by_loop(const Result (&row)[2], bool wide) {
        keep_total();
#pragma unroll 1
        for (int column = 0; column < Op::width; column += 32) {
            store_values(column, row, wide);
        }
    }

    // From registers, without branches: a tile runs this once, each instruction is waited for.
    __device__ __forceinline__ void store_at_once(const Result (&row)[2]) const {
        int eighth = iso_attend_thread() & 3;
        unsigned short *to[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            to[h] = (unsigned short *)args.o.ptr + row[h].place + eighth * 8;
        }
#pragma unroll
        for (int i = 0; i < regs; i += 16) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                unsigned words[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float *x = &o[i + 4 * j + 2 * h];
                    float low = iso_attend_value<Op>(x[0], row[h].l, row[h].inverse);
                    float high = iso_attend_value<Op>(x[1], row[h].l, row[h].inverse);
                    words[j] = (unsigned)Op::value(low) | (unsigned)Op::value(high) << 16;
                    words[j] = row[h].any ? words[j] : 0;
                }
                iso_quad_transpose(words);
                iso_store16_if(row[h].own, to[h] + i * 2, words);
            }
        }
    }

    __device__ __forceinline__ void store() {
        Result row[2];
        const IsoAttendOpened &t = tile();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int2 keys = keys_of(t, h);
            float m = total_of(h, 0);
            row[h].l = total_of(h, 1);
            row[h].own = is_of(t, h);
            row[h].any = keys.x < keys.y;
            row[h].place = row[h].own ? place_in(args.o, t, h) : 0;
            if constexpr (Op::sinks) {
                join_sink(t, h, m, row[h].l);
            }
            row[h].inverse = Op::rounded ? iso_div(1.0f, row[h].l) : 0.0f;
            if constexpr (Op::lse) {
                if (row[h].own && lane() % 4 == 0) {
                    store_lse(t, h, row[h].any, m, row[h].l);
                }
            }
        }
        bool wide = is_wide();
        if constexpr (Op::rounded && sizeof(typename Op::Value) == 2) {
            if (wide) {
                store_at_once(row);
                return;
            }
        }
        store_by_loop(row, wide);
    }
};

#endif
