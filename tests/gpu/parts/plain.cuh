// An Op whose epilogue stores one bf16 (or f16), for any tree and any transposition.
template <class Program, bool F16 = false, bool ATrans = false, bool BTrans = false> struct Plain {
    static constexpr int groups = 1, parts = 1;
    static constexpr bool f16 = F16, a_trans = ATrans, b_trans = BTrans;
    using Tree = Program;

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
                                                      const float (&acc)[parts][2],
                                                      const Inputs &in) {
        unsigned out = 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            out |= (unsigned)(F16 ? iso_f16_of_f32(acc[0][i]) : iso_bf16_of_f32(acc[0][i]))
                   << 16 * i;
        }
        return out;
    }
    template <bool Pairs>
    static __device__ __forceinline__ void store(int group, const IsoGemmGroup &g, int row, int col,
                                                 int valid, const float (&acc)[parts][2],
                                                 const Inputs &in) {
        const IsoView &y = g.result[0];
        iso_store_pair<Pairs>((IsoU16 *)y.ptr + row * y.stride[0] + col * y.stride[1],
                              y.stride[1], valid, value0(group, g, row, col, acc, in));
    }
};
