// What both product kernels share: which group and columns a tile has, how many rows are live, and
// how a pair of columns leaves the kernel. Owns nothing.
//
// An Op, as the emitter writes it:
//   struct Op {
//       static constexpr int groups, parts;
//       static constexpr bool f16, a_trans, b_trans;
//       using Tree = IsoTree<'L', 'L', '+'>;
//       using Sum = unsigned;        // two neighbouring sums as the epilogue takes them
//       static __device__ Sum sum(float x, float y);
//       struct Inputs { ... };       // what the epilogue reads for one pair of columns
//       static __device__ bool pairs(int group, const IsoGemmGroup &g);
//       template <bool Pairs> static __device__ void load(
//           int group, const IsoGemmGroup &g, int row, int col, int valid, Inputs &in);
//       template <bool Pairs> static __device__ void store(
//           int group, const IsoGemmGroup &g, int row, int col, int valid,
//           const Sum (&sum)[parts], const Inputs &in);
//       static __device__ bool eights(int group, const IsoGemmGroup &g);
//       static __device__ void load_eight(
//           int group, const IsoGemmGroup &g, int row, int col, Inputs *in);
//       static __device__ void take_eight(const unsigned (&word)[4], Inputs *in);
//       static constexpr bool wide;
//       static __device__ unsigned value0(
//           int group, const IsoGemmGroup &g, int row, int col,
//           const Sum (&sum)[parts], const Inputs &in);
//   };
// A Sum is a word, rounded, where every sum is rounded to one type of 16 bits; else it is float2.
// load and store serve columns col and, where valid is 2, col + 1 of one row. With Pairs, valid is
// 2, col is even and pairs(group, g) said that every view takes a pair in one access. All loads of
// a bundle of pairs come before its stores, so that they wait for memory together. A wide Op has
// one result of two bytes, of which value0 gives the pair that store would store; the kernel may
// then store several pairs at once. load_eight, where it exists, loads four pairs from column col
// on, a multiple of 8, where eights(group, g) said that every view has them in one word. take_eight
// is the same of words that the kernel has loaded; it exists where what is read is one operand of
// two bytes that lies as the sums do. An Op whose tree leaves roots derives from IsoNoEpilogue.
#ifndef ISO_GEMM_CUH
#define ISO_GEMM_CUH

#include "iso_abi.cuh"
#include "iso_tree.cuh"

struct IsoNoEpilogue {
    static constexpr bool wide = false;
    using Sum = float2;
    ISO_INLINE Sum sum(float x, float y) {
        return make_float2(x, y);
    }
    struct Inputs {};
    ISO_INLINE bool pairs(int, const IsoGemmGroup &) {
        return true;
    }
    template <bool Pairs>
    ISO_INLINE void load(int, const IsoGemmGroup &, int, int, int, Inputs &) {
    }
};

// Whether an Op reduces its columns (iso_fold.cuh).
template <class T> struct IsoExists {
    using Type = void;
};
template <class Op, class = void> struct IsoFolds {
    static constexpr bool value = false;
};
template <class Op> struct IsoFolds<Op, typename IsoExists<typename Op::Fold>::Type> {
    static constexpr bool value = true;
};

// Whether pairs along axis `inner` of a view of 2-byte elements are aligned words, wherever the
// other `axes` - 1 indices point.
ISO_INLINE bool iso_view_pairs(const IsoView &v, int axes, int inner) {
    bool fits = ((unsigned long long)v.ptr & 3) == 0;
    for (int i = 0; i < axes; ++i) {
        fits = fits && (i == inner ? v.stride[i] == 1 : (v.stride[i] & 1) == 0);
    }
    return fits;
}

// Whether eight of them from a multiple of 8 on are one aligned word.
ISO_INLINE bool iso_view_eights(const IsoView &v, int axes, int inner) {
    bool fits = ((unsigned long long)v.ptr & 15) == 0;
    for (int i = 0; i < axes; ++i) {
        fits = fits && (i == inner ? v.stride[i] == 1 : (v.stride[i] & 7) == 0);
    }
    return fits;
}

// Where a view that is read at an index has it; -1: the index is none of those that are here, and
// what is read there is +0.
ISO_INLINE long long iso_view_at(const IsoView &v, int index) {
    long long at = index - v.stride[3];
    return at >= 0 && at < v.stride[4] ? at * v.stride[2] : -1;
}

// Which of the experts [begin, begin + experts) of `all` an index is; `experts`: it is none of all,
// and who has the first has it; -1: it lies elsewhere.
ISO_INLINE int iso_own_expert(int index, int all, int begin, int experts) {
    int own = index - begin;
    if (index < 0 || index >= all) {
        return begin == 0 ? experts : -1;
    }
    return own >= 0 && own < experts ? own : -1;
}

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

template <class Op> ISO_INLINE bool iso_leave_pairs(int group, const IsoGemmGroup &g) {
    if constexpr (Op::Tree::roots) {
        return (((unsigned long long)g.roots & 7) | (g.root_stride & 1) |
                (g.root_row_stride & 1)) == 0;
    } else {
        return Op::pairs(group, g);
    }
}

// Whether eight columns from a multiple of 8 on are one aligned word of the only result.
ISO_INLINE bool iso_leave_wide(const IsoGemmGroup &g) {
    const IsoView &v = g.result[0];
    return (((unsigned long long)v.ptr & 15) | (v.stride[0] & 7)) == 0;
}

// Writes one pair: a root's, or through the epilogue the whole tree's. Without Pairs the columns
// may end before the pair does.
template <class Op, bool Pairs>
ISO_INLINE void iso_leave_load(int group, const IsoGemmGroup &g, int row, int col,
                               typename Op::Inputs &in) {
    int valid = Pairs || g.columns - col > 1 ? 2 : 1;
    if (Pairs || col < g.columns) {
        Op::template load<Pairs>(group, g, row, col, valid, in);
    }
}

template <class Op, bool Pairs>
ISO_INLINE void iso_leave_store(int group, const IsoGemmGroup &g, int root, int row, int col,
                                const float (&acc)[Op::parts][2], const typename Op::Inputs &in) {
    int valid = Pairs || g.columns - col > 1 ? 2 : 1;
    if (!Pairs && col >= g.columns) {
        return;
    }
    if constexpr (Op::Tree::roots) {
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            float *out = g.roots + (root * Op::parts + p) * g.root_stride + row * g.root_row_stride;
            iso_store_pair_f32<Pairs>(out + col, 1, valid, acc[p][0], acc[p][1]);
        }
    } else {
        typename Op::Sum sum[Op::parts];
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            sum[p] = Op::sum(acc[p][0], acc[p][1]);
        }
        Op::template store<Pairs>(group, g, row, col, valid, sum, in);
    }
}

#endif
