// The end of a product that several ranks share: their roots, read in tree order, joined as the
// program says, then the epilogue. The launch rule is in iso_abi.cuh. Owns nothing.
// Op is a product's Op whose program has one leaf per root received (of all sources together).
#ifndef ISO_JOIN_CUH
#define ISO_JOIN_CUH

#include "iso_gemm.cuh"

// Roots that are read before any is added: they lie in other GPUs' memory, so all are to be on
// their way at once. More than these would not fit into registers.
enum { ISO_JOIN_AHEAD = 32 };

// The next root in the order of the sources.
struct IsoJoinAt {
    int source, within;
};

template <class Op, bool Pairs>
ISO_INLINE void iso_join_root(const IsoJoinArgs &args, IsoJoinAt &at, long long row, int column,
                              int valid, float (&v)[2 * Op::parts]) {
    const IsoJoinSource &s = args.source[at.source];
#pragma unroll
    for (int p = 0; p < Op::parts; ++p) {
        const float *from = s.ptr + (at.within * Op::parts + p) * s.root_stride +
                            row * s.row_stride + column;
        float2 x = iso_load_pair_f32<Pairs>(from, 1, valid);
        v[2 * p] = x.x;
        v[2 * p + 1] = x.y;
    }
    if (++at.within == s.roots) {
        at.within = 0;
        ++at.source;
    }
}

template <class Op, bool Pairs> struct IsoJoinBody {
    static constexpr int leaves = Op::Tree::leaves;
    static constexpr bool ahead = leaves * Op::parts <= ISO_JOIN_AHEAD;

    const IsoJoinArgs &args;
    int group, row, col, offset, valid;                     // offset: columns of groups before
    bool out_pairs;                                         // in the epilogue
    IsoJoinAt at;
    typename Op::Inputs in;
    float root_values[ahead ? leaves : 1][2 * Op::parts];

    __device__ __forceinline__ void begin() {
        if constexpr (ahead) {
#pragma unroll
            for (int l = 0; l < leaves; ++l) {
                next(root_values[l]);
            }
        }
        if (out_pairs) {
            Op::template load<true>(group, args.group[group], row, col, 2, in);
        } else {
            Op::template load<false>(group, args.group[group], row, col, valid, in);
        }
    }

    __device__ __forceinline__ void next(float (&v)[2 * Op::parts]) {
        iso_join_root<Op, Pairs>(args, at, args.row_begin + row, offset + col, valid, v);
    }

    __device__ __forceinline__ void leaf(int l, float (&v)[2 * Op::parts]) {
        if constexpr (ahead) {
#pragma unroll
            for (int i = 0; i < 2 * Op::parts; ++i) {
                v[i] = root_values[l][i];
            }
        } else {
            next(v);
        }
    }

    __device__ __forceinline__ void root(int, float (&)[2 * Op::parts]) {
    }

    __device__ __forceinline__ void done(float (&v)[2 * Op::parts]) {
        typename Op::Sum sum[Op::parts];
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            sum[p] = Op::sum(v[2 * p], v[2 * p + 1]);
        }
        const IsoGemmGroup &g = args.group[group];
        if (out_pairs) {
            Op::template store<true>(group, g, row, col, 2, sum, in);
        } else {
            Op::template store<false>(group, g, row, col, valid, sum, in);
        }
    }
};

// Whether the pair at this even column is one word in every source.
template <class Op> ISO_INLINE bool iso_join_pairs(const IsoJoinArgs &args, int first, int valid) {
    bool fits = valid == 2 && first % 2 == 0;
    for (int i = 0; i < args.sources; ++i) {
        const IsoJoinSource &s = args.source[i];
        fits = fits && (((unsigned long long)s.ptr & 7) | (s.root_stride & 1) |
                        (s.row_stride & 1)) == 0;
    }
    return fits;
}

// Of a grouped product: whether the row's expert lies here.
ISO_INLINE bool iso_join_owns(const IsoJoinArgs &args, int row) {
    if (!args.chosen) {
        return true;
    }
    int token = row / args.rows_each, pick = row - token * args.rows_each;
    int index = args.chosen[token * args.chosen_token + pick * args.chosen_pick];
    return iso_own_expert(index, args.all, args.begin, args.experts) >= 0;
}

template <class Op, bool Pairs>
ISO_INLINE void iso_join_rows(const IsoJoinArgs &args, int group, int col, int offset, int valid) {
    int most = (args.row_begin + args.rows) / args.rows_each;
    int rows = iso_live_rows(args.rows_dev, most) * args.rows_each - args.row_begin;
    bool out_pairs = valid == 2 && Op::pairs(group, args.group[group]);
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        if (!iso_join_owns(args, row)) {
            continue;
        }
        float stack[Op::Tree::levels + 1][2 * Op::parts];
        IsoJoinBody<Op, Pairs> body{args,  group,     row,    col, offset,
                                    valid, out_pairs, {0, 0}, {},  {}};
        body.begin();
        iso_tree_unroll<typename Op::Tree, 0, 0, 0, 0>(body, stack);
    }
}

template <class Op> ISO_INLINE void iso_join(const IsoJoinArgs &args) {
    static_assert(Op::Tree::valid && !Op::Tree::roots,
                  "a join finishes its tree");
    iso_grid_begin();
    int pair = blockIdx.x * blockDim.x + threadIdx.x;
    int group = iso_tile_group<Op>(args.group, 2, pair);
    int columns = args.group[group].columns, col = pair * 2, offset = 0;
    if (col >= columns) {
        return;
    }
    for (int g = 0; g < group; ++g) {
        offset += args.group[g].columns;
    }
    int valid = columns - col < 2 ? 1 : 2;
    if (iso_join_pairs<Op>(args, offset + col, valid)) {
        iso_join_rows<Op, true>(args, group, col, offset, valid);
    } else {
        iso_join_rows<Op, false>(args, group, col, offset, valid);
    }
}

#endif
