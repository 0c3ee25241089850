// The end of a product that several ranks share: their roots, read in tree order, joined as the
// program says, then the epilogue. The launch rule is in iso_abi.cuh. Owns nothing.
// Op is a product's Op whose program has one leaf per root received (of all sources together).
#ifndef ISO_JOIN_CUH
#define ISO_JOIN_CUH

#include "iso_gemm.cuh"

template <class Op> struct IsoJoinBody {
    const IsoJoinArgs &args;
    int group, row, col, offset, valid;                     // offset: columns of groups before
    bool pairs, out_pairs;                                  // in every source; in the epilogue
    int source, within;                                     // the next root
    typename Op::Inputs in;

    __device__ __forceinline__ void leaf(int, float (&v)[2 * Op::parts]) {
        const IsoJoinSource &s = args.source[source];
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            const float *from = s.ptr + (within * Op::parts + p) * s.root_stride +
                                (args.row_begin + row) * s.row_stride + offset + col;
            float2 x = pairs ? iso_load_pair_f32<true>(from, 1, 2)
                             : iso_load_pair_f32<false>(from, 1, valid);
            v[2 * p] = x.x;
            v[2 * p + 1] = x.y;
        }
        if (++within == s.roots) {
            within = 0;
            ++source;
        }
    }

    __device__ __forceinline__ void root(int, float (&)[2 * Op::parts]) {
    }

    __device__ __forceinline__ void done(float (&v)[2 * Op::parts]) {
        float acc[Op::parts][2];
#pragma unroll
        for (int i = 0; i < 2 * Op::parts; ++i) {
            acc[i / 2][i % 2] = v[i];
        }
        const IsoGemmGroup &g = args.group[group];
        if (out_pairs) {
            Op::template store<true>(group, g, row, col, 2, acc, in);
        } else {
            Op::template store<false>(group, g, row, col, valid, acc, in);
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

template <class Op> ISO_INLINE void iso_join(const IsoJoinArgs &args) {
    static_assert(Op::Tree::valid && !Op::Tree::roots,
                  "a join finishes its tree");
    int pair = blockIdx.x * blockDim.x + threadIdx.x;
    int group = iso_tile_group<Op>(args.group, 2, pair);
    int columns = args.group[group].columns, col = pair * 2, offset = 0;
    if (col >= columns) {
        return;
    }
    for (int g = 0; g < group; ++g) {
        offset += args.group[g].columns;
    }
    int rows = iso_live_rows(args.rows_dev, args.row_begin + args.rows) - args.row_begin;
    int valid = columns - col < 2 ? 1 : 2;
    bool pairs = iso_join_pairs<Op>(args, offset + col, valid);
    bool out_pairs = valid == 2 && Op::pairs(group, args.group[group]);
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        float stack[Op::Tree::levels + 1][2 * Op::parts];
        IsoJoinBody<Op> body{args, group, row, col, offset, valid, pairs, out_pairs, 0, 0, {}};
        if (out_pairs) {
            Op::template load<true>(group, args.group[group], row, col, 2, body.in);
        } else {
            Op::template load<false>(group, args.group[group], row, col, valid, body.in);
        }
        iso_tree_unroll<typename Op::Tree, 0, 0, 0, 0>(body, stack);
    }
}

#endif
