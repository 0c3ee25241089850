// An Op whose epilogue stores one bf16 (or f16), for any tree and any transposition.
template <class Program, bool F16 = false, bool ATrans = false, bool BTrans = false> struct Plain {
    static constexpr int groups = 1, parts = 1;
    static constexpr bool f16 = F16, a_trans = ATrans, b_trans = BTrans;
    using Tree = Program;

    using Sum = unsigned;
    static __device__ __forceinline__ Sum sum(float x, float y) {
        return iso_round_pair<F16>(x, y);
    }
    struct Inputs {};
    static __device__ __forceinline__ bool pairs(int, const IsoGemmGroup &g) {
        return iso_view_pairs(g.result[0], 2, 1);
    }
    template <bool Pairs>
    static __device__ __forceinline__ void load(int, const IsoGemmGroup &g, int row, int col,
                                                int valid, Inputs &in) {
    }
    static constexpr bool wide = true;
    static __device__ __forceinline__ unsigned value0(int, const IsoGemmGroup &, int, int,
                                                      const Sum (&sum)[parts],
                                                      const Inputs &in) {
        return sum[0];
    }
    template <bool Pairs>
    static __device__ __forceinline__ void store(int group, const IsoGemmGroup &g, int row, int col,
                                                 int valid, const Sum (&sum)[parts],
                                                 const Inputs &in) {
        const IsoView &y = g.result[0];
        iso_store_pair<Pairs>((IsoU16 *)y.ptr + row * y.stride[0] + col * y.stride[1],
                              y.stride[1], valid, value0(group, g, row, col, sum, in));
    }
};
