// The end of a product that several ranks share: their roots, read in tree order, joined as the
// program says, then the epilogue. The launch rule is in iso_abi.cuh. Owns nothing.
// Op is a product's Op whose program has one leaf per root received (of all sources together).
#ifndef ISO_JOIN_CUH
#define ISO_JOIN_CUH

#include "iso_gemm.cuh"

template <class Op> struct IsoJoinBody {
    const IsoJoinArgs &args;
    int group, row, col, offset, valid;                     // offset: columns of groups before
    int source, within;                                     // the next root

    __device__ __forceinline__ void leaf(int, float (&v)[2 * Op::parts]) {
        const IsoJoinSource &s = args.source[source];
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            const float *from = s.ptr + (within * Op::parts + p) * s.root_stride +
                                (args.row_begin + row) * s.row_stride + offset + col;
            float2 x = iso_load_pair_f32(from, 1, valid);
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
        Op::epilogue(group, args.group[group], row, col, valid, acc);
    }
};

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
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        float stack[Op::Tree::levels + 1][2 * Op::parts];
        int valid = columns - col < 2 ? 1 : 2;
        IsoJoinBody<Op> body{args, group, row, col, offset, valid, 0, 0};
        iso_tree_unroll<typename Op::Tree, 0, 0, 0, 0>(body, stack);
    }
}

#endif
