// Eight leaves joined in pairs and a residual: the whole tree on one rank.
#include "iso_gemm_stream.cuh"
#include "iso_gemm_wgmma.cuh"

struct OProj {
    static constexpr int groups = 1, parts = 1;
    static constexpr bool f16 = false, a_trans = false, b_trans = false;
    using Tree = IsoTree<'L', 'L', '+', 'L', 'L', '+', '+', 'L', 'L', '+', 'L', 'L', '+', '+', '+'>;

    using Sum = unsigned;
    static __device__ __forceinline__ Sum sum(float x, float y) {
        return iso_round_pair<false>(x, y);
    }
    struct Inputs {
        unsigned in0;
    };
    static __device__ __forceinline__ bool pairs(int group, const IsoGemmGroup &g) {
        return iso_view_pairs(g.operand[0], 2, 1) && iso_view_pairs(g.result[0], 2, 1);
    }
    template <bool Pairs>
    static __device__ __forceinline__ void load(int group, const IsoGemmGroup &g, int row, int col,
                                                int valid, Inputs &in) {
        const IsoView &res = g.operand[0];
        in.in0 = iso_load_pair<Pairs>((const IsoU16 *)res.ptr + row * res.stride[0] +
                                          col * res.stride[1], res.stride[1], valid);
    }
    static constexpr bool wide = true;
    static __device__ __forceinline__ unsigned value0(int, const IsoGemmGroup &, int, int,
                                                      const Sum (&sum)[parts],
                                                      const Inputs &in) {
        float last[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            IsoU16 t0 = (IsoU16)(sum[0] >> 16 * i), t1 = (IsoU16)(in.in0 >> 16 * i);
            last[i] = iso_add(iso_f32_of_bf16(t0), iso_f32_of_bf16(t1));
        }
        return iso_round_pair<false>(last[0], last[1]);
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

struct OProjQuads : OProj {
    using Tree = IsoTree<'Q', 'Q', '+'>;
};

using OProjLarge = IsoWgmmaTile<128, 128, 5, 1>;
extern "C" __global__ void __launch_bounds__(384, 1)
    o_proj_large(const __grid_constant__ IsoGemmArgs args,
                 const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_wgmma<OProjQuads, OProjLarge>(args, maps);
}

using OProjSmall = IsoStreamTile<16, 64, 128, 4, true>;
extern "C" __global__ void __launch_bounds__(128)
    o_proj_small(const __grid_constant__ IsoGemmArgs args) {
    iso_gemm_stream<OProj, OProjSmall>(args);
}
