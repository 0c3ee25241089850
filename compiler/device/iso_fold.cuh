// Products whose columns are reduced where they are: a tile has the columns of one part of the
// reductions' tree, a thread those of one lane, or of every fourth one. What is left of a row is a
// root for each part. Owns nothing.
//
// An Op that folds derives from IsoNoEpilogue and has, beside an Op's members,
//   using Fold = IsoSpread<...>;     // the parts; Fold::step columns are a tile
//   static constexpr int lanes;      // 4, 8 or 16, of runs of two columns
//   struct Inputs { ... };           // what the reductions read for a row
//   static __device__ void row(const IsoGemmGroup &g, int row, Inputs &in);
//   struct Values { ... };           // of all reductions
//   static __device__ void next(const Inputs &in, int col, float sum, bool first, Values &v);
//   static constexpr bool picks;     // one of the values is that of a column, or -inf
//   static __device__ int wanted(const Inputs &in);              // which one
//   static __device__ void pick(const Inputs &in, bool found, float sum, Values &v);
//   static __device__ void join(Values &left, const Values &right);
//   static __device__ Values below(const Values &v, int by);     // of the lane `by` further on
//   static __device__ void store(float *to, long long step, const Values &v);
#ifndef ISO_FOLD_CUH
#define ISO_FOLD_CUH

#include "iso_gemm.cuh"
#include "iso_row_spread.cuh"

// A column's index among this rank's.
ISO_INLINE int iso_fold_index(int index, const IsoGemmGroup &g) {
    return (unsigned)index - (unsigned)g.first_column;
}

// The lanes of a part, in the threads of a quad: lane 4 i + q is thread q's v[i]. Thread 0 gets the
// join in v[0].
template <class Op, int Each>
ISO_INLINE void iso_fold_lanes(typename Op::Values (&v)[Each], int quad, int present) {
#pragma unroll
    for (int i = 0; i < Each; ++i) {
#pragma unroll
        for (int s = 1; s < 4; s *= 2) {
            typename Op::Values right = Op::below(v[i], s);
            if (quad % (2 * s) == 0 && 4 * i + quad + s < present) {
                Op::join(v[i], right);
            }
        }
    }
#pragma unroll
    for (int s = 1; s < Each; s *= 2) {
#pragma unroll
        for (int i = 0; i + s < Each; i += 2 * s) {
            if (4 * (i + s) < present) {
                Op::join(v[i], v[i + s]);
            }
        }
    }
}

// One thread's columns of a part, of two rows eight apart. Half of them at a time, so that the code
// is half as long.
template <class Op, bool Whole, int Each, int Regs>
ISO_INLINE void iso_fold_columns(const typename Op::Inputs (&in)[2], int begin, int width,
                                 float (&acc)[Regs], typename Op::Values (&v)[2][Each]) {
    constexpr int half = Regs / 2;
    int quad = threadIdx.x % 4;
#pragma unroll 1
    for (int done = 0; done < Regs; done += half) {
#pragma unroll
        for (int i = 0; i < half; ++i) {
            int lane = i / 4 % Each, row = i / 2 % 2, at = 2 * done + i / 4 * 8 + quad * 2 + i % 2;
            bool first = i / 4 < Each && i % 2 == 0 && done == 0;
            if (Whole || at < width) {
                Op::next(in[row], begin + at, acc[i], first, v[row][lane]);
            }
        }
#pragma unroll
        for (int i = 0; i < half; ++i) {
            acc[i] = acc[i + half];
        }
    }
}

// A row's wanted column, in the thread that has it. Few tiles have one of a warp's rows.
template <class Op, int Each, int Regs>
ISO_INLINE void iso_fold_pick(const typename Op::Inputs (&in)[2], int begin, int width,
                              const float (&acc)[Regs], typename Op::Values (&v)[2][Each]) {
    float sum[2] = {};
    int own[2], quad = threadIdx.x % 4;
    bool here = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        int at = Op::wanted(in[i]) - begin;
        bool mine = (unsigned)at < (unsigned)width && at / 2 % 4 == quad;
        own[i] = mine ? at / 8 * 2 + at % 2 : -1;
        here = here || mine;
    }
    if (here) {
#pragma unroll
        for (int i = 0; i < Regs; ++i) {
            sum[i / 2 % 2] = own[i / 2 % 2] == i / 4 * 2 + i % 2 ? acc[i] : sum[i / 2 % 2];
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < Each; ++k) {
            Op::pick(in[i], k == 0 && own[i] >= 0, sum[i], v[i][k]);
        }
    }
}

// A tile's part leaves as one root of each of its rows.
template <class Op, int Regs>
ISO_INLINE void iso_fold(const IsoGemmArgs &args, int row0, int rows, int part,
                         float (&acc)[Regs]) {
    using Fold = typename Op::Fold;
    static_assert(Fold::step == 2 * Regs, "a tile is a part");
    constexpr int each = Op::lanes / 4;
    const IsoGemmGroup &g = args.group[0];
    int quad = threadIdx.x % 4, begin = Fold::begin(part), width = Fold::end(part) - begin;
    int runs = iso_ceil(width, 2), present = runs < Op::lanes ? runs : Op::lanes;
    typename Op::Inputs in[2];
    typename Op::Values v[2][each];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        Op::row(g, row0 + 8 * i < rows ? row0 + 8 * i : rows - 1, in[i]);
    }
    if constexpr (Op::picks) {
        iso_fold_pick<Op>(in, begin, width, acc, v);
    }
    if (width == Fold::step) {
        iso_fold_columns<Op, true>(in, begin, width, acc, v);
    } else {
        iso_fold_columns<Op, false>(in, begin, width, acc, v);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        int row = row0 + 8 * i;
        iso_fold_lanes<Op>(v[i], quad, present);
        if (quad == 0 && row < rows) {
            Op::store(g.roots + (long long)part * Op::values * g.root_stride + row, g.root_stride,
                      v[i][0]);
        }
    }
}

#endif
