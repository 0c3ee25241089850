// Three products of one operand, `whole` each: q, k and v of one launch.
#include "iso_gemm_stream.cuh"
#include "iso_gemm_wgmma.cuh"

struct Qkv {
    static constexpr int groups = 3, parts = 1;
    static constexpr bool f16 = false, a_trans = false, b_trans = false;
    using Tree = IsoTree<'L'>;

    using Sum = unsigned;
    static __device__ __forceinline__ Sum sum(float x, float y) {
        return iso_round_pair<false>(x, y);
    }
    struct Inputs {};
    static __device__ __forceinline__ bool pairs(int group, const IsoGemmGroup &g) {
        return iso_view_pairs(g.result[0], 2, 1);
    }
    template <bool Pairs>
    static __device__ __forceinline__ void load(int group, const IsoGemmGroup &g, int row, int col,
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

using QkvLarge = IsoWgmmaTile<128, 256, 4>;
extern "C" __global__ void __launch_bounds__(384, 1)
    qkv_large(const __grid_constant__ IsoGemmArgs args, const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_wgmma<Qkv, QkvLarge>(args, maps);
}

using QkvSmall = IsoStreamTile<16, 24, 128, 6, true>;
extern "C" __global__ void __launch_bounds__(128)
    qkv_small(const __grid_constant__ IsoGemmArgs args) {
    iso_gemm_stream<Qkv, QkvSmall>(args);
}
