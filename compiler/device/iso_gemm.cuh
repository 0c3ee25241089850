// What both product kernels share: which group and columns a tile has, how many rows are live, and
// how a pair of columns leaves the kernel. Owns nothing.
//
// An Op, as the emitter writes it:
//   struct Op {
//       static constexpr int groups, parts;
//       static constexpr bool f16, a_trans, b_trans;
//       using Tree = IsoTree<'L', 'L', '+'>;
//       static __device__ void epilogue(int group, const IsoGemmGroup &g, int row, int col,
//                                       int valid, const float (&acc)[parts][2]);
//   };
// The epilogue gets columns col and, where valid is 2, col + 1 of one row.
#ifndef ISO_GEMM_CUH
#define ISO_GEMM_CUH

#include "iso_abi.cuh"
#include "iso_tree.cuh"

ISO_CONSTEXPR int iso_ceil(int x, int y) {
    return (x + y - 1) / y;
}

ISO_INLINE int iso_live_rows(const int *rows_dev, int rows) {
    if (!rows_dev) {
        return rows;
    }
    int live = *rows_dev;
    return live < rows ? live : rows;
}

template <class Op> ISO_INLINE int iso_column_tiles(const IsoGemmGroup *group, int bn) {
    int n = 0;
#pragma unroll
    for (int g = 0; g < Op::groups; ++g) {
        n += iso_ceil(group[g].columns, bn);
    }
    return n;
}

// Turns a column tile of the launch into its group, leaving the tile's index in that group.
template <class Op> ISO_INLINE int iso_tile_group(const IsoGemmGroup *group, int bn, int &tile) {
    int found = 0;
#pragma unroll
    for (int g = 0; g + 1 < Op::groups; ++g) {
        int n = iso_ceil(group[g].columns, bn);
        if (found == g && tile >= n) {
            tile -= n;
            found = g + 1;
        }
    }
    return found;
}

template <class Op>
ISO_INLINE void iso_root_pair(const IsoGemmGroup &g, int root, int row, int col, int valid,
                              const float (&acc)[Op::parts][2]) {
#pragma unroll
    for (int p = 0; p < Op::parts; ++p) {
        float *out = g.roots + (root * Op::parts + p) * g.root_stride + row * g.root_row_stride;
        iso_store_pair_f32(out + col, 1, valid, acc[p][0], acc[p][1]);
    }
}

// root < 0: the value is the whole tree's.
template <class Op>
ISO_INLINE void iso_leave(int group, const IsoGemmGroup &g, int root, int row, int col,
                          const float (&acc)[Op::parts][2]) {
    int valid = g.columns - col;
    if (valid <= 0) {
        return;
    }
    valid = valid < 2 ? valid : 2;
    if constexpr (Op::Tree::roots) {
        iso_root_pair<Op>(g, root, row, col, valid, acc);
    } else {
        Op::epilogue(group, g, row, col, valid, acc);
    }
}

#endif
