// What the kernels of attention share: weights and values as `maxima rounded` has them or not, what
// a token sees, and where keys lie. Owns nothing; the arithmetic is LANGUAGE.md's 6.13.
#ifndef ISO_ATTEND_BASE_CUH
#define ISO_ATTEND_BASE_CUH

#include "iso_abi.cuh"
#include "iso_ex2.cuh"
#include "iso_fn.cuh"
#include "iso_prim.cuh"
#include "iso_rounded.cuh"

enum {
    ISO_ATTEND_BLOCK = 128,
    ISO_ATTEND_WARPS = 4,
    ISO_ATTEND_THREADS = 128,
    ISO_ATTEND_NO_ROW = -2, // in place of a sequence; -1 is a row of no sequence
    ISO_ATTEND_EX2 = 1,     // in place of a polynomial's degree
};

// --- what `maxima rounded` changes ---

// What times this is an exponent.
template <class Op> ISO_INLINE float iso_attend_by() {
    return iso_bits_f32(Op::capped ? Op::cap : Op::scale);
}

// An exponent of 2, or what is one times that.
template <class Op> ISO_INLINE float iso_attend_scaled(float score) {
    if constexpr (Op::capped) {
        float x = iso_tanh(iso_mul(score, iso_bits_f32(Op::scale)));
        return Op::rounded ? x : iso_mul(x, iso_attend_by<Op>());
    }
    return Op::rounded ? score : iso_mul(score, iso_attend_by<Op>());
}

template <class Op> ISO_INLINE float iso_attend_rounded(float most) {
    return iso_rounded_most(iso_mul(most, iso_attend_by<Op>()));
}

template <class Op> ISO_INLINE float iso_attend_weight(float x, float m) {
    if constexpr (Op::rounded && Op::degree == ISO_ATTEND_EX2) {
        return iso_ex2_weight(x, iso_attend_by<Op>(), m);
    } else if constexpr (Op::rounded) {
        return iso_rounded_weight(x, iso_attend_by<Op>(), iso_bits_f32(Op::inverse), m, Op::degree);
    }
    return Op::weight(iso_sub(x, m));
}

// Of a lane in a block. `seen`: the row sees a key of the lane; if not the sum is +0, and stays it.
template <class Op> ISO_INLINE float iso_attend_sum(float x, float m, bool seen) {
    if constexpr (Op::rounded) {
        float sum = iso_rounded_sum(x, m);
        return seen ? sum : x;
    }
    return x;
}

template <class Op> ISO_INLINE float iso_attend_value(float o, float l, float inverse) {
    return Op::rounded ? iso_mul(o, inverse) : iso_div(o, l);
}

// Keys that some row of the tile sees, and those that all rows see that see any.
struct IsoAttendRange {
    int lo, hi, all_lo, all_hi;
};

ISO_INLINE int iso_attend_max(int a, int b) { return a > b ? a : b; }
ISO_INLINE int iso_attend_min(int a, int b) { return a < b ? a : b; }

// Whether a key of [from, to) in the block is the lane's: pairs of keys go to four lanes in turn.
ISO_INLINE bool iso_attend_lane_sees(int from, int to, int block, int lane) {
    int first = iso_attend_max(from - block, 0), end = iso_attend_min(to - block, ISO_ATTEND_BLOCK);
    int passed = (first - 2 * lane) & 7;
    return first + (passed < 2 ? 0 : 8 - passed) < end;
}

// Steps along the stored keys' sequence and position axes: of a page and in it, of the packed rows,
// or of the sequence and its position.
ISO_INLINE int2 iso_attend_place(const IsoAttendArgs &args, int sequence, int key) {
    if (args.block_table) {
        int page = args.block_table[sequence * args.block_table_stride + key / args.page];
        return make_int2(page, key % args.page);
    }
    return args.key_start ? make_int2(0, args.key_start[sequence] + key)
                          : make_int2(sequence, key);
}

// The keys that a token of a sequence may see.
template <class Op>
ISO_INLINE int2 iso_attend_keys(const IsoAttendArgs &args, int token, int sequence) {
    int position = args.position[token], first = 0, end = 0x7FFFFFFF;
    if constexpr (Op::causal) {
        end = position + 1;
    }
    if (args.length) {
        end = iso_attend_min(end, args.length[sequence]);
    }
    if constexpr (Op::window > 0) {
        first = iso_attend_max(0, position + 1 - Op::window);
    }
    return first < end ? make_int2(first, end) : make_int2(0, 0);
}

#endif
