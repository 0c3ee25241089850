// attention

#include "iso_abi.cuh"
#include "iso_num.cuh"
#include "iso_fn.cuh"
#include "iso_rounded.cuh"
#include "iso_prim.cuh"
#include "iso_attend.cuh"
#include "iso_attend_decode.cuh"
#include "iso_attend_walk.cuh"
#include "iso_wgmma.cuh"
#include "iso_attend_base.cuh"
#include "iso_attend_tile.cuh"
#include "iso_attend_wgmma.cuh"

// f; threads 128, shared 90752
// add 0, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_attend_856fb3acff76a920 {
struct Op {
    static constexpr int depth = 96, width = 96, row_tiles = 1, ahead = 1;
    static constexpr int split = 256, window = 100;
    static constexpr bool f16 = false, values_f16 = false;
    static constexpr bool causal = true, capped = false, sinks = false, lse = true;
    static constexpr unsigned scale = 0x3e38aa3bu, cap = 0x00000000u;
    static constexpr bool rounded = false;
    static constexpr unsigned inverse = 0x00000000u;
    static constexpr int degree = 3;
    typedef IsoU16 Value;
    ISO_FN float weight(float x) { return iso_exp2_d3(x); }
    ISO_FN Value value(float x) { return iso_bf16_of_f32(x); }
};

extern "C" __global__ void __launch_bounds__(128, 2)
iso_attend_856fb3acff76a920(const __grid_constant__ IsoAttendArgs args) {
    iso_attend_decode<Op>(args);
}
}

// f; threads 128, shared 68608
// add 0, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_attend_94673c51511d6e1d {
struct Op {
    static constexpr int depth = 96, width = 96, row_tiles = 2, ahead = 1;
    static constexpr int split = 256, window = 100;
    static constexpr bool f16 = false, values_f16 = false;
    static constexpr bool causal = true, capped = false, sinks = false, lse = true;
    static constexpr unsigned scale = 0x3e38aa3bu, cap = 0x00000000u;
    static constexpr bool rounded = false;
    static constexpr unsigned inverse = 0x00000000u;
    static constexpr int degree = 3;
    typedef IsoU16 Value;
    ISO_FN float weight(float x) { return iso_exp2_d3(x); }
    ISO_FN Value value(float x) { return iso_bf16_of_f32(x); }
};

extern "C" __global__ void __launch_bounds__(128)
iso_attend_94673c51511d6e1d(const __grid_constant__ IsoAttendArgs args) {
    iso_grid_begin();
    iso_attend<Op>(args);
}
}

// f; threads 384, shared 216064
// add 0, mul 0, fma 0, div 0, sqrt 0, mma 0
namespace text_iso_attend_cb8e860507f7dc78 {
struct Op {
    static constexpr int depth = 96, width = 96, row_tiles = 8, ahead = 1;
    static constexpr int split = 256, window = 100;
    static constexpr bool f16 = false, values_f16 = false;
    static constexpr bool causal = true, capped = false, sinks = false, lse = true;
    static constexpr unsigned scale = 0x3e38aa3bu, cap = 0x00000000u;
    static constexpr bool rounded = false;
    static constexpr unsigned inverse = 0x00000000u;
    static constexpr int degree = 3;
    typedef IsoU16 Value;
    ISO_FN float weight(float x) { return iso_exp2_d3(x); }
    ISO_FN Value value(float x) { return iso_bf16_of_f32(x); }
};

extern "C" __global__ void __launch_bounds__(384, 1)
iso_attend_cb8e860507f7dc78(const __grid_constant__ IsoAttendArgs args, const __grid_constant__ IsoAttendMaps maps) {
    iso_grid_begin();
    iso_attend_wgmma<Op>(args, maps);
}
}
