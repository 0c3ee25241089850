// Two products of one operand held together, `whole` each, and an epilogue over both.
#include "iso_gemm_stream.cuh"
#include "iso_gemm_wgmma.cuh"
#include "iso_short.cuh"

struct GateUp {
    static constexpr int groups = 1, parts = 2;
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
        float last[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            IsoU16 t0 = (IsoU16)(sum[0] >> 16 * i), t1 = (IsoU16)(sum[1] >> 16 * i);
            IsoU16 t2 = iso_bf16_of_f32(iso_short_silu(iso_f32_of_bf16(t0)));
            last[i] = iso_mul(iso_f32_of_bf16(t2), iso_f32_of_bf16(t1));
        }
        return iso_round_pair<false>(last[0], last[1]);
    }
    template <bool Pairs>
    static __device__ __forceinline__ void store(int group, const IsoGemmGroup &g, int row, int col,
                                                 int valid, const Sum (&sum)[parts],
                                                 const Inputs &in) {
        const IsoView &h = g.result[0];
        iso_store_pair<Pairs>((IsoU16 *)h.ptr + row * h.stride[0] + col * h.stride[1],
                              h.stride[1], valid, value0(group, g, row, col, sum, in));
    }
};

using GateUpLarge = IsoWgmmaTile<128, 128, 4>;
extern "C" __global__ void __launch_bounds__(384, 1)
    gate_up_large(const __grid_constant__ IsoGemmArgs args,
                  const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_wgmma<GateUp, GateUpLarge>(args, maps);
}

using GateUpSmall = IsoStreamTile<16, 32, 128, 4, true>;
extern "C" __global__ void __launch_bounds__(128)
    gate_up_small(const __grid_constant__ IsoGemmArgs args) {
    iso_gemm_stream<GateUp, GateUpSmall>(args);
}
