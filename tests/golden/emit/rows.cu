
#include "iso_abi.cuh"
#include "iso_num.cuh"
#include "iso_fn.cuh"
#include "iso_short.cuh"
#include "iso_prim.cuh"
#include "iso_map.cuh"
#include "iso_row.cuh"

// flipped; threads 256, shared 0
// add 0, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_map_3c671b995dfc6fc6 {
extern "C" __global__ void __launch_bounds__(256)
iso_map_3c671b995dfc6fc6(const __grid_constant__ IsoMapCalls calls) {
    const IsoMapArgs &map = calls.map[blockIdx.y];
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    const unsigned chunks = (e1 + 7) / 8;
    for (unsigned at = blockIdx.x * 256u + threadIdx.x; at < rows * chunks; at += gridDim.x * 256u) {
        const unsigned row = at / chunks;
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        IsoU16 *const p1 = (IsoU16 *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const long long s1 = map.view[1].stride[1];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1);
        const auto body = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> y1;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const IsoU16 t1 = (IsoU16)(t0 ^ 0x8000u);
                y1.v[e] = t1;
            }
            iso_store(y1, p1, s1, i, n, wide);
        };
        iso_chunk<8>(at % chunks * 8, e1, vector, body);
    }
}
}

// moved; threads 256, shared 0
// add 0, mul 0, fma 0, div 1, sqrt 0, mma 0
namespace text_iso_map_8a3da9997bb8a4d5 {
extern "C" __global__ void __launch_bounds__(256)
iso_map_8a3da9997bb8a4d5(const __grid_constant__ IsoMapCalls calls) {
    const IsoMapArgs &map = calls.map[blockIdx.y];
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned e2 = map.extent[2];
    const unsigned rows = e0 * e1;
    const unsigned chunks = (e2 + 7) / 8;
    for (unsigned at = blockIdx.x * 256u + threadIdx.x; at < rows * chunks; at += gridDim.x * 256u) {
        const unsigned row = at / chunks;
        const unsigned i1 = row % e1;
        const unsigned r1 = row / e1;
        const unsigned i0 = r1;
        const float *const p0 = (const float *)map.view[0].ptr + i0 * map.view[0].stride[0] + i1 * map.view[0].stride[1];
        const long long s0 = map.view[0].stride[2];
        const IsoU16 *const p1 = (const IsoU16 *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const long long s1 = map.view[1].stride[2];
        float *const p2 = (float *)map.view[2].ptr + i0 * map.view[2].stride[0] + i1 * map.view[2].stride[1];
        const long long s2 = map.view[2].stride[2];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1) && iso_vector(p2, s2);
        const auto body = [&](long long i, int n, bool wide) {
            IsoPack<float, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> x1;
            iso_load(x1, p1, s1, i, n, wide);
            IsoPack<float, 8> y2;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const float t0 = x0.v[e];
                const IsoU16 t1 = x1.v[e];
                const float t2 = iso_f32_of_bf16(t1);
                const float t3 = iso_max(t0, t2);
                const float t4 = iso_div(t3, iso_bits_f32(0x40400000u /* 3 */));
                y2.v[e] = t4;
            }
            iso_store(y2, p2, s2, i, n, wide);
        };
        iso_chunk<8>(at % chunks * 8, e2, vector, body);
    }
}
}

// gated; threads 256, shared 0
// add 1, mul 2, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_map_fd12482ec7df112a {
extern "C" __global__ void __launch_bounds__(256)
iso_map_fd12482ec7df112a(const __grid_constant__ IsoMapCalls calls) {
    const IsoMapArgs &map = calls.map[blockIdx.y];
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    const unsigned chunks = (e1 + 7) / 8;
    for (unsigned at = blockIdx.x * 256u + threadIdx.x; at < rows * chunks; at += gridDim.x * 256u) {
        const unsigned row = at / chunks;
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        const float *const p1 = (const float *)map.view[1].ptr;
        const long long s1 = map.view[1].stride[1];
        const IsoU16 *const p2 = (const IsoU16 *)map.view[2].ptr + i0 * map.view[2].stride[0];
        const long long s2 = map.view[2].stride[1];
        IsoU16 *const p3 = (IsoU16 *)map.view[3].ptr + i0 * map.view[3].stride[0];
        const long long s3 = map.view[3].stride[1];
        IsoU16 *const p4 = (IsoU16 *)map.view[4].ptr + i0 * map.view[4].stride[0];
        const long long s4 = map.view[4].stride[1];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1) && iso_vector(p2, s2) && iso_vector(p3, s3) && iso_vector(p4, s4);
        const auto body = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<float, 8> x1;
            iso_load(x1, p1, s1, i, n, wide);
            IsoPack<IsoU16, 8> x2;
            iso_load(x2, p2, s2, i, n, wide);
            IsoPack<IsoU16, 8> y3;
            IsoPack<IsoU16, 8> y4;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_bf16(t0);
                const float t2 = x1.v[e];
                const float t3 = iso_add(t1, t2);
                const float t4 = iso_silu(t3);
                const IsoU16 t5 = iso_bf16_of_f32(t4);
                const IsoU16 t6 = x2.v[e];
                const IsoU16 t7 = iso_bf16_of_f32(iso_mul(iso_f32_of_bf16(t5), iso_f32_of_bf16(t6)));
                y3.v[e] = t7;
                const float t8 = iso_f32_of_bf16(t6);
                const float t9 = iso_mul(t8, t1);
                const float t10 = iso_neg(t9);
                const IsoU16 t11 = iso_f16_of_f32(t10);
                y4.v[e] = t11;
            }
            iso_store(y3, p3, s3, i, n, wide);
            iso_store(y4, p4, s4, i, n, wide);
        };
        iso_chunk<8>(at % chunks * 8, e1, vector, body);
    }
}
}

// softmax; threads 256, shared 0
// add 3, mul 0, fma 0, div 1, sqrt 0, mma 0
namespace text_iso_row_0c8034e096adcdfd {
extern "C" __global__ void __launch_bounds__(256)
iso_row_0c8034e096adcdfd(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i0 = row;
        const float *const p0 = (const float *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        float *const p1 = (float *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const long long s1 = map.view[1].stride[1];
        float *const p2 = (float *)map.view[2].ptr + i0 * map.view[2].stride[0];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<4> &terms) {
            IsoPack<float, 4> x0;
            iso_load(x0, p0, s0, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float t0 = x0.v[e];
                terms.a[e] = t0;
            }
        };
        const float t1 = iso_row_part<IsoMax, IsoLanes<256, 4, false, ISO_F32>, IsoPace<256, 4, 4>>(0, 1500, vector, body0);
        const auto body1 = [&](long long i, int n, bool wide, IsoTerms<4> &terms) {
            IsoPack<float, 4> x0;
            iso_load(x0, p0, s0, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float t2 = x0.v[e];
                const float t3 = iso_sub(t2, t1);
                const float t4 = iso_exp(t3);
                terms.a[e] = t4;
            }
        };
        const float t5 = iso_row_part<IsoSum, IsoLanes<64, 8, false, ISO_F32>, IsoPace<256, 4, 1>>(0, 1500, vector, body1);
        if (threadIdx.x == 0) {
            *p2 = t5;
        }
        const auto store = [&](long long i, int n, bool wide) {
            IsoPack<float, 4> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<float, 4> y1;
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float t6 = x0.v[e];
                const float t7 = iso_sub(t6, t1);
                const float t8 = iso_exp(t7);
                const float t9 = iso_div(t8, t5);
                y1.v[e] = t9;
            }
            iso_store(y1, p1, s1, i, n, wide);
        };
        iso_row_each<IsoPace<256, 4, 1>>(e1, vector, store);
    }
}
}

// left_lanes; threads 128, shared 0
// add 2, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_row_147f45b05c4929d3 {
extern "C" __global__ void __launch_bounds__(128)
iso_row_147f45b05c4929d3(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        IsoU16 *const p1 = (IsoU16 *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const long long s1 = map.view[1].stride[1];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<8> &terms) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_f16(t0);
                terms.a[e] = t1;
            }
        };
        const IsoU16 t2 = iso_f16_of_f32(iso_row_part<IsoSum, IsoLanes<128, 8, true, ISO_F16>, IsoPace<128, 8, 4>>(0, 1003, vector, body0));
        const auto store = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> y1;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t3 = x0.v[e];
                const IsoU16 t4 = iso_f16_of_f32(iso_sub(iso_f32_of_f16(t3), iso_f32_of_f16(t2)));
                y1.v[e] = t4;
            }
            iso_store(y1, p1, s1, i, n, wide);
        };
        iso_row_each<IsoPace<128, 8, 2>>(e1, vector, store);
    }
}
}

// log_prob; threads 32, shared 0
// add 1, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_row_177f4a300c687d8a {
extern "C" __global__ void __launch_bounds__(32)
iso_row_177f4a300c687d8a(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        float *const p1 = (float *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const long long s1 = map.view[1].stride[1];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<1> &terms) {
            IsoPack<IsoU16, 1> x0;
            iso_load(x0, p0, s0, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 1; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_bf16(t0);
                terms.a[e] = t1;
            }
        };
        const float t2 = iso_log_of_sum<ISO_F32>(iso_row_part<IsoLogSumExp, IsoLanes<32, 2, true, ISO_F32>, IsoPace<32, 1, 1>>(0, 1003, vector, body0));
        const auto store = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<float, 8> y1;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t3 = x0.v[e];
                const float t4 = iso_f32_of_bf16(t3);
                const float t5 = iso_sub(t4, t2);
                y1.v[e] = t5;
            }
            iso_store(y1, p1, s1, i, n, wide);
        };
        iso_row_each<IsoPace<32, 8, 2>>(e1, vector, store);
    }
}
}

// chained; threads 32, shared 0
// add 0, mul 0, fma 1, div 1, sqrt 0, mma 0
namespace text_iso_row_19d178f748516b0b {
extern "C" __global__ void __launch_bounds__(32)
iso_row_19d178f748516b0b(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        const float *const p1 = (const float *)map.view[1].ptr;
        const long long s1 = map.view[1].stride[1];
        IsoU16 *const p2 = (IsoU16 *)map.view[2].ptr + i0 * map.view[2].stride[0];
        const long long s2 = map.view[2].stride[1];
        float *const p3 = (float *)map.view[3].ptr + i0 * map.view[3].stride[0];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1) && iso_vector(p2, s2);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<8> &terms) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<float, 8> x1;
            iso_load(x1, p1, s1, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_bf16(t0);
                terms.a[e] = t1;
                const float t2 = x1.v[e];
                terms.b[e] = t2;
            }
        };
        const float t3 = iso_row_part<IsoSumOfProducts, IsoLanes<1, 1, false, ISO_F32>, IsoPace<32, 8, 4>>(0, 576, vector, body0);
        if (threadIdx.x == 0) {
            *p3 = t3;
        }
        const auto store = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> y2;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t4 = x0.v[e];
                const float t5 = iso_f32_of_bf16(t4);
                const float t6 = iso_div(t5, t3);
                const IsoU16 t7 = iso_bf16_of_f32(t6);
                y2.v[e] = t7;
            }
            iso_store(y2, p2, s2, i, n, wide);
        };
        iso_row_each<IsoPace<32, 8, 1>>(e1, vector, store);
    }
}
}

// rounded; threads 32, shared 0
// add 2, mul 2, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_row_1c3688b3f61eac35 {
__constant__ constexpr char program0[] = "LL+bLL+b+bLL+b+b";
__constant__ constexpr int begin0[] = {0, 200, 400, 600, 800, 1000, 1003};
struct Program0 {
    static constexpr int depth = 3;
    ISO_FN const char *text() { return program0; }
    ISO_FN const int *begin() { return begin0; }
};

extern "C" __global__ void __launch_bounds__(32)
iso_row_1c3688b3f61eac35(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        const IsoU16 *const p1 = (const IsoU16 *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const long long s1 = map.view[1].stride[1];
        IsoU16 *const p2 = (IsoU16 *)map.view[2].ptr + i0 * map.view[2].stride[0];
        const long long s2 = map.view[2].stride[1];
        IsoU16 *const p3 = (IsoU16 *)map.view[3].ptr + i0 * map.view[3].stride[0];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1) && iso_vector(p2, s2);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<8> &terms) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> x1;
            iso_load(x1, p1, s1, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_bf16(t0);
                const IsoU16 t2 = x1.v[e];
                const float t3 = iso_f32_of_bf16(t2);
                const float t4 = iso_mul(t1, t3);
                terms.a[e] = t4;
            }
        };
        const auto root0 = [&](int r, float value) {
        };
        const IsoU16 t5 = iso_bf16_of_f32(iso_row_reduce<IsoSum, IsoLanes<16, 8, false, ISO_BF16>, IsoPace<32, 8, 4>, Program0>(vector, body0, root0));
        if (threadIdx.x == 0) {
            *p3 = t5;
        }
        const auto store = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> x1;
            iso_load(x1, p1, s1, i, n, wide);
            IsoPack<IsoU16, 8> y2;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t6 = x0.v[e];
                const IsoU16 t7 = x1.v[e];
                const IsoU16 t8 = iso_bf16_of_f32(iso_mul(iso_f32_of_bf16(t5), iso_f32_of_bf16(t7)));
                const IsoU16 t9 = iso_bf16_of_f32(iso_add(iso_f32_of_bf16(t6), iso_f32_of_bf16(t8)));
                y2.v[e] = t9;
            }
            iso_store(y2, p2, s2, i, n, wide);
        };
        iso_row_each<IsoPace<32, 8, 2>>(e1, vector, store);
    }
}
}

// log_sum; threads 64, shared 0
// add 0, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_row_92255fd4c50b8fd3 {
__constant__ constexpr char program0[] = "LL+L+";
__constant__ constexpr int begin0[] = {0, 512, 1024, 1500};
struct Program0 {
    static constexpr int depth = 2;
    ISO_FN const char *text() { return program0; }
    ISO_FN const int *begin() { return begin0; }
};

extern "C" __global__ void __launch_bounds__(64)
iso_row_92255fd4c50b8fd3(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned rows = e0;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i0 = row;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0];
        const long long s0 = map.view[0].stride[1];
        float *const p1 = (float *)map.view[1].ptr + i0 * map.view[1].stride[0];
        const bool vector = iso_vector(p0, s0);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<8> &terms) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_bf16(t0);
                terms.a[e] = t1;
            }
        };
        const auto root0 = [&](int r, IsoPair value) {
        };
        const float t2 = iso_log_of_sum<ISO_F32>(iso_row_reduce<IsoLogSumExp, IsoLanes<64, 8, false, ISO_F32>, IsoPace<64, 8, 1>, Program0>(vector, body0, root0));
        if (threadIdx.x == 0) {
            *p1 = t2;
        }
    }
}
}

// head_norm; threads 32, shared 0
// add 1, mul 2, fma 1, div 2, sqrt 1, mma 0
namespace text_iso_row_efb8b0b034aca25c {
extern "C" __global__ void __launch_bounds__(32)
iso_row_efb8b0b034aca25c(const __grid_constant__ IsoRowArgs args) {
    const IsoMapArgs &map = blockIdx.y ? args.also : args.map;
    iso_grid_begin();
    const unsigned e0 = iso_live(map.rows_dev, map.extent[0], map.rows_each, 0);
    const unsigned e1 = map.extent[1];
    const unsigned e2 = map.extent[2];
    const unsigned rows = e0 * e1;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned i1 = row % e1;
        const unsigned r1 = row / e1;
        const unsigned i0 = r1;
        const IsoU16 *const p0 = (const IsoU16 *)map.view[0].ptr + i0 * map.view[0].stride[0] + i1 * map.view[0].stride[1];
        const long long s0 = map.view[0].stride[2];
        const IsoU16 *const p1 = (const IsoU16 *)map.view[1].ptr;
        const long long s1 = map.view[1].stride[2];
        IsoU16 *const p2 = (IsoU16 *)map.view[2].ptr + i0 * map.view[2].stride[0] + i1 * map.view[2].stride[1];
        const long long s2 = map.view[2].stride[2];
        const bool vector = iso_vector(p0, s0) && iso_vector(p1, s1) && iso_vector(p2, s2);
        const auto body0 = [&](long long i, int n, bool wide, IsoTerms<8> &terms) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t0 = x0.v[e];
                const float t1 = iso_f32_of_bf16(t0);
                terms.a[e] = t1;
                terms.b[e] = t1;
            }
        };
        const float t2 = iso_row_part<IsoSumOfProducts, IsoLanes<16, 8, false, ISO_F32>, IsoPace<32, 8, 4>>(0, 40, vector, body0);
        const float t3 = iso_div(t2, iso_bits_f32(0x42200000u /* 40 */));
        const float t4 = iso_add(t3, iso_bits_f32(0x358637BDu /* 9.99999997e-07 */));
        const float t5 = iso_sqrt(t4);
        const float t6 = iso_div(iso_bits_f32(0x3F800000u /* 1 */), t5);
        const auto store = [&](long long i, int n, bool wide) {
            IsoPack<IsoU16, 8> x0;
            iso_load(x0, p0, s0, i, n, wide);
            IsoPack<IsoU16, 8> x1;
            iso_load(x1, p1, s1, i, n, wide);
            IsoPack<IsoU16, 8> y2;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const IsoU16 t7 = x0.v[e];
                const float t8 = iso_f32_of_bf16(t7);
                const float t9 = iso_mul(t8, t6);
                const IsoU16 t10 = iso_bf16_of_f32(t9);
                const IsoU16 t11 = x1.v[e];
                const IsoU16 t12 = iso_bf16_of_f32(iso_mul(iso_f32_of_bf16(t10), iso_f32_of_bf16(t11)));
                y2.v[e] = t12;
            }
            iso_store(y2, p2, s2, i, n, wide);
        };
        iso_row_each<IsoPace<32, 8, 2>>(e2, vector, store);
    }
}
}
