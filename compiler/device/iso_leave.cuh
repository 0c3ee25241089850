// How a tile's sums leave a consumer warpgroup of the wgmma kernel: at once, or kept in registers
// and later, under the products of the next tile. Owns nothing.
//
// A thread holds, of each part, accumulators i of a tile as wgmma lays them out: row
// (i & 2 ? 8 : 0) and columns i / 4 * 8 + (0 or 1), counted from the thread's first.
#ifndef ISO_LEAVE_CUH
#define ISO_LEAVE_CUH

#include "iso_gemm.cuh"

// Of one thread in a tile: its column group, the two rows of its accumulators, its first column. A
// kernel may have a Place of its own, with the same members.
struct IsoPlace {
    int group, row0, col0;                          // of its first pair
    int rows;                                       // end of the tile's live ones
    bool whole;                                     // every column of the tile exists

    __device__ __forceinline__ int row(int half) const {
        return row0 + 8 * half;
    }
    __device__ __forceinline__ bool lives(int half) const {
        return row(half) < rows;
    }
    // A row that exists, this one if it does.
    __device__ __forceinline__ int near_row(int half) const {
        return lives(half) ? row(half) : rows - 1;
    }
    // Whether a warp is known to have no such rows.
    __device__ __forceinline__ bool passes(int) const {
        return false;
    }
};

// Whole columns of roots or a wide Op: the four lanes of a row exchange pairs, so that each stores
// eight neighbouring columns at once.
template <class Op> ISO_CONSTEXPR bool iso_can_leave_wide(int regs) {
    return (Op::wide || Op::Tree::roots) && regs % 16 == 0;
}

template <class Op> ISO_CONSTEXPR bool iso_epilogue_reads() {
    return sizeof(typename Op::Inputs) >= 4;
}

// Whether the Op's inputs for eight neighbouring columns are words of 16 bytes: then the four lanes
// exchange rounded sums before they meet the inputs, else results after.
template <class Op, class = void> struct IsoReadsEights {
    static constexpr bool value = false;
};
template <class Op>
struct IsoReadsEights<Op, typename IsoExists<decltype(&Op::load_eight)>::Type> {
    static constexpr bool value = true;
};

// Whether what the Op reads can come as a block of the ring.
template <class Op, class = void> struct IsoTakesEights {
    static constexpr bool value = false;
};
template <class Op>
struct IsoTakesEights<Op, typename IsoExists<decltype(&Op::take_eight)>::Type> {
    static constexpr bool value = true;
};

template <class Op, class Place>
ISO_INLINE bool iso_leaves_wide(const Place &at, const IsoGemmGroup &g) {
    if constexpr (Op::Tree::roots) {
        return at.whole && (((unsigned long long)g.roots & 15) | (g.root_stride & 3) |
                            (g.root_row_stride & 3)) == 0;
    } else if constexpr (IsoReadsEights<Op>::value) {
        return at.whole && Op::eights(at.group, g) && iso_leave_wide(g);
    } else {
        return at.whole && iso_leave_pairs<Op>(at.group, g) && iso_leave_wide(g);
    }
}

// Four pairs of one row of a root, eight columns apart. Neighbouring lanes exchange two pairs, so
// that each has half of eight columns, and four of them two whole eights.
template <class Op, class Place>
ISO_INLINE void iso_leave_root(const IsoGemmGroup &g, const Place &at, int root, int half, int col,
                               const float2 (&sums)[Op::parts][4]) {
    int quad = threadIdx.x % 4, odd = quad % 2;
    float *out = g.roots + root * Op::parts * g.root_stride + at.row(half) * g.root_row_stride +
                 col - 2 * quad + 8 * odd + quad / 2 * 4;
#pragma unroll
    for (int i = 0; i < 2 * Op::parts; ++i, out += 16) {
        float2 even_one = sums[i / 2][i % 2 * 2], odd_one = sums[i / 2][i % 2 * 2 + 1];
        float2 kept = odd ? odd_one : even_one, sent = odd ? even_one : odd_one;
        float2 got = make_float2(__shfl_xor_sync(0xffffffff, sent.x, 1),
                                 __shfl_xor_sync(0xffffffff, sent.y, 1));
        float2 left = odd ? got : kept, right = odd ? kept : got;
        const unsigned words[4] = {__float_as_uint(left.x), __float_as_uint(left.y),
                                   __float_as_uint(right.x), __float_as_uint(right.y)};
        if (at.lives(half)) {
            iso_store16(out + i / 2 * (g.root_stride - 32), words);
        }
    }
}

// What four pairs of one row, eight columns apart, read, for the lane that will finish them; a row
// that does not exist takes the place of one that does.
template <class Op, class Place>
ISO_INLINE void iso_leave_ask(const IsoGemmGroup &g, const Place &at, int half, int col,
                              typename Op::Inputs *in) {
    if constexpr (IsoReadsEights<Op>::value) {
        Op::load_eight(at.group, g, at.near_row(half), col + threadIdx.x % 4 * 6, in);
    } else if constexpr (!Op::Tree::roots) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            iso_leave_load<Op, true>(at.group, g, at.near_row(half), col + 8 * j, in[j]);
        }
    }
}

template <class Op, class Place>
ISO_INLINE void iso_leave_eights(const IsoGemmGroup &g, const Place &at, int half, int col,
                                 const typename Op::Sum (&sums)[Op::parts][4],
                                 const typename Op::Inputs *in) {
    constexpr bool early = IsoReadsEights<Op>::value;
    int quad = threadIdx.x % 4, first = early ? col + 6 * quad : col, apart = early ? 2 : 8;
    typename Op::Sum mine[Op::parts][4];
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4 * Op::parts; ++i) {
        mine[i / 4][i % 4] = sums[i / 4][i % 4];
    }
    if constexpr (early) {
        iso_quad_transpose(mine[0]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        typename Op::Sum sum[Op::parts];
#pragma unroll
        for (int p = 0; p < Op::parts; ++p) {
            sum[p] = mine[p][j];
        }
        words[j] = Op::value0(at.group, g, at.near_row(half), first + apart * j, sum, in[j]);
    }
    if constexpr (!early) {
        iso_quad_transpose(words);
    }
    if (at.lives(half)) {
        unsigned short *out =
            (unsigned short *)g.result[0].ptr + at.row(half) * g.result[0].stride[0];
        iso_store16(out + col + 6 * quad, words);
    }
}

template <class Op, int Regs> struct IsoLeave {
    static constexpr int parts = Op::parts;

    // Moves later accumulators down, so that an epilogue's code exists once per bundle.
    template <int By> ISO_INLINE void shift(float (&acc)[parts][Regs]) {
#pragma unroll
        for (int p = 0; p < parts; ++p) {
#pragma unroll
            for (int i = 0; i + By < Regs; ++i) {
                acc[p][i] = acc[p][i + By];
            }
        }
    }

    // Pairs: all columns of the tile exist.
    template <bool Pairs, class Place>
    ISO_INLINE void bundles(const IsoGemmGroup &g, const Place &at, int root,
                            float (&acc)[parts][Regs]) {
        constexpr int most = Pairs ? 32 : 8, bundle = Regs < most ? Regs : most;
#pragma unroll 1
        for (int done = 0; done < Regs; done += bundle) {
            typename Op::Inputs in[bundle / 2];
#pragma unroll
            for (int i = 0; i < bundle; i += 2) {
                int half = i & 2 ? 1 : 0, col = at.col0 + 2 * done + i / 4 * 8;
                if (done + i < Regs && at.lives(half)) {
                    iso_leave_load<Op, Pairs>(at.group, g, at.row(half), col, in[i / 2]);
                }
            }
#pragma unroll
            for (int i = 0; i < bundle; i += 2) {
                int half = i & 2 ? 1 : 0, col = at.col0 + 2 * done + i / 4 * 8;
                float v[parts][2];
#pragma unroll
                for (int p = 0; p < parts; ++p) {
                    v[p][0] = acc[p][i];
                    v[p][1] = acc[p][i + 1];
                }
                if (done + i < Regs && at.lives(half)) {
                    iso_leave_store<Op, Pairs>(at.group, g, root, at.row(half), col, v, in[i / 2]);
                }
            }
            shift<bundle>(acc);
        }
    }

    // What the epilogue reads comes from far away: all of it is asked for at once, if the registers
    // take it: a product of one leaf may have the tile before waiting in them.
    static constexpr int read = iso_epilogue_reads<Op>() ? Regs / 2 *
                                (int)sizeof(typename Op::Inputs) / 4 : 0;
    static constexpr bool at_once = read > 0 && parts * Regs + read <= 128 &&
                                    Op::Tree::length > 1 + Op::Tree::roots;

    // Pieces of 32 columns of both rows, after `done` accumulators, with what they read.
    template <int Sets, class Place>
    ISO_INLINE void sets(const IsoGemmGroup &g, const Place &at, int root, int done,
                         const float (&acc)[parts][Regs],
                         const typename Op::Inputs (&in)[Sets][4]) {
#pragma unroll
        for (int set = 0; set < Sets; ++set) {
            if (at.passes(set % 2)) {
                continue;
            }
            typename Op::Sum sums[parts][4];
#pragma unroll
            for (int i = 0; i < 4 * parts; ++i) {
                const float *v = &acc[i / 4][set / 2 * 16 + set % 2 * 2 + i % 4 * 4];
                sums[i / 4][i % 4] = Op::sum(v[0], v[1]);
            }
            int col = at.col0 + 2 * done + set / 2 * 32;
            if constexpr (Op::Tree::roots) {
                iso_leave_root<Op>(g, at, root, set % 2, col, sums);
            } else {
                iso_leave_eights<Op>(g, at, set % 2, col, sums, in[set]);
            }
        }
    }

    template <class Place>
    ISO_INLINE void wide(const IsoGemmGroup &g, const Place &at, int root,
                         float (&acc)[parts][Regs]) {
        constexpr int bundle = at_once ? Regs : Regs % 32 == 0 ? 32 : 16;
#pragma unroll 1
        for (int done = 0; done < Regs; done += bundle) {
            typename Op::Inputs in[bundle / 8][4];
#pragma unroll
            for (int set = 0; set < bundle / 8; ++set) {
                if (!at.passes(set % 2)) {
                    iso_leave_ask<Op>(g, at, set % 2, at.col0 + 2 * done + set / 2 * 32, in[set]);
                }
            }
            sets(g, at, root, done, acc, in);
            shift<bundle>(acc);
        }
    }

    template <class Place>
    ISO_INLINE void now(const IsoGemmArgs &args, const Place &at, int root,
                        float (&acc)[parts][Regs]) {
        const IsoGemmGroup &g = args.group[at.group];
        if constexpr (iso_can_leave_wide<Op>(Regs)) {
            if (iso_leaves_wide<Op>(at, g)) {
                wide(g, at, root, acc);
                return;
            }
        } else if (at.whole && iso_leave_pairs<Op>(at.group, g)) {
            bundles<true>(g, at, root, acc);
            return;
        }
        bundles<false>(g, at, root, acc);
    }
};

// A tile, of roots the only one, leaves in pieces of one row and 32 columns; the last `Kept` of
// them wait, rounded if they can be, and leave one by one when the kernel has time. The next one
// is in front.
template <class Op, int Regs, int Kept, class Place = IsoPlace> struct IsoLater {
    static constexpr int parts = Op::parts, pieces = Regs / 8;
    int left = 0;
    Place at{};
    typename Op::Sum sums[parts][4 * Kept];

    ISO_INLINE void leave_piece(const IsoGemmGroup &g, const Place &at, int half,
                                const typename Op::Sum (&sums)[parts][4]) {
        typename Op::Inputs in[4];
        if (at.passes(half)) {
            return;
        }
        if constexpr (Op::Tree::roots) {
            iso_leave_root<Op>(g, at, 0, half, at.col0, sums);
        } else {
            iso_leave_ask<Op>(g, at, half, at.col0, in);
            iso_leave_eights<Op>(g, at, half, at.col0, sums, in);
        }
    }

    ISO_INLINE typename Op::Sum sum(const float (&acc)[Regs], int piece, int j) {
        const float *v = &acc[piece / 2 * 16 + piece % 2 * 2 + 4 * j];
        return Op::sum(v[0], v[1]);
    }

    // The first pieces leave at once.
    __device__ __forceinline__ void split(const IsoGemmGroup &g, const float (&acc)[parts][Regs]) {
#pragma unroll
        for (int piece = 0; piece < pieces; ++piece) {
            typename Op::Sum now[parts][4];
#pragma unroll
            for (int i = 0; i < 4 * parts; ++i) {
                typename Op::Sum x = sum(acc[i / 4], piece, i % 4);
                if (piece < pieces - Kept) {
                    now[i / 4][i % 4] = x;
                } else {
                    sums[i / 4][4 * (piece - pieces + Kept) + i % 4] = x;
                }
            }
            if (piece < pieces - Kept) {
                leave_piece(g, at, piece % 2, now);
                at.col0 += piece % 2 * 32;
            }
        }
        left = Kept;
    }

    // Of a tile that leaves wide.
    __device__ __forceinline__ void take(const IsoGemmArgs &args, const Place &place,
                                         const float (&acc)[parts][Regs]) {
        at = place;
        split(args.group[place.group], acc);
    }

    __device__ __forceinline__ void leave_one(const IsoGemmArgs &args) {
        typename Op::Sum first[parts][4];
#pragma unroll
        for (int i = 0; i < 4 * parts; ++i) {
            first[i / 4][i % 4] = sums[i / 4][i % 4];
        }
        leave_piece(args.group[at.group], at, left & 1, first);
        at.col0 += (left & 1) * 32;
        --left;
#pragma unroll
        for (int i = 0; i < parts * 4 * (Kept - 1); ++i) {
            int part = i / (4 * (Kept - 1)), word = i % (4 * (Kept - 1));
            sums[part][word] = sums[part][word + 4];
        }
    }

    __device__ __forceinline__ void leave_all(const IsoGemmArgs &args) {
#pragma unroll 1
        while (left > 0) {
            leave_one(args);
        }
    }
};

// Every tile leaves at once.
template <class Op, int Regs, class Place> struct IsoLater<Op, Regs, 0, Place> {
    static constexpr int left = 0;

    __device__ __forceinline__ void take(const IsoGemmArgs &, const Place &,
                                         const float (&)[Op::parts][Regs]) {
    }
    __device__ __forceinline__ void leave_one(const IsoGemmArgs &) {
    }
    __device__ __forceinline__ void leave_all(const IsoGemmArgs &) {
    }
};

#endif
