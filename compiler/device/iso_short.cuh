// Short forms of iso_fn.cuh's functions, with their bits where they stand, so that they are in no
// fingerprint. Owns nothing. iso_short_silu is for arguments that are bf16 and results that are
// rounded to bf16 at once: for each of the 65536 arguments the rounded result is that of the
// function itself, which a test and the prover try one by one. iso_short_join is the join of two
// log-sum-exps.
//
// Straight-line code, so that neighbouring elements run side by side; an IEEE division would
// branch.
#ifndef ISO_SHORT_CUH
#define ISO_SHORT_CUH

#include "iso_ex2.cuh"
#include "iso_fn.cuh"

// -1 / d for d in [-2^17, -2^16]: a parabola off by 1 in 99, and Newton's step twice.
ISO_FN IsoF32 iso_short_reciprocal(IsoF32 d)
{
    IsoF32 r = iso_fma(d, 0x1.4afd6ap-50f, 0x1.745d18p-32f), e;
    r = iso_fma(d, r, 0x1.0f83ep-15f);
    e = iso_fma(d, r, 1.0f);
    r = iso_fma(r, e, r);
    e = iso_fma(d, r, 1.0f);
    return iso_fma(r, e, r);
}

// x / (1 + e^-x) with q = e^-|x| 2^16, which stays normal as long as the result is no zero. For
// x >= 0 the number before 2^16 stands in its place: at x = 2^-7 the result is 2^-25 below a tie.
ISO_FN IsoF32 iso_short_silu(IsoF32 x)
{
    IsoF32 low = iso_max(x, -128.0f), a = iso_max(iso_minus_abs(low), -105.0f);
    IsoF32 q = iso_ex2(iso_fma(a, ISO_LOG2E, 16.0f));
    IsoF32 r = iso_short_reciprocal(iso_sub(-0x1p16f, q));
    return iso_mul(low, iso_mul(x < 0.0f ? q : 0x1.fffffep15f, r));
}

// The greater of x and a number: of a NaN the number.
ISO_FN IsoF32 iso_at_least(IsoF32 x, IsoF32 least)
{
#if ISO_ON_DEVICE
    IsoF32 r;
    asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(least));
    return r;
#else
    return x > least ? x : least;
#endif
}

// e^-|d|, and e^-87 where that is more or d is a NaN: above, iso_exp's bits, whose last product is
// exact, so that 2^n may be added to the exponent.
ISO_FN IsoF32 iso_short_weight(IsoF32 d)
{
    IsoF32 c = iso_at_least(iso_minus_abs(d), -87.0f);
    IsoF32 t = iso_fma(c, ISO_LOG2E, ISO_ROUNDER), n = iso_sub(t, ISO_ROUNDER);
    IsoF32 r = iso_fma(n, -ISO_LN2_LOW, iso_fma(n, -ISO_LN2, c));
    IsoF32 p = 0x1.6a4f28p-10f;                // iso_exp's
    p = iso_fma(p, r, 0x1.12398p-7f);
    p = iso_fma(p, r, 0x1.5558aep-5f);
    p = iso_fma(p, r, 0x1.555492p-3f);
    p = iso_fma(p, r, 0x1.fffffcp-2f);
    p = iso_fma(p, r, 1.0f);
    return iso_bits_f32(iso_f32_bits(iso_fma(p, r, 1.0f)) + (iso_f32_bits(t) << 23));
}

// iso_pair_join with one exponential: the part with the greater maximum has the weight 1. Sums are
// not below 1 and not above the number of their elements: 2^31 e^-87 and less is lost in them.
// Where the maximum is an Inf or a NaN, so is the end of the sum, whatever its s, which is not that
// of iso_pair_join.
ISO_FN IsoPair iso_short_join(IsoPair a, IsoPair b)
{
    IsoPair r;
    IsoU32 less = a.m < b.m;
    IsoF32 weight = iso_short_weight(iso_sub(a.m, b.m));
    IsoF32 low = less ? a.s : b.s, high = less ? b.s : a.s;
    r.m = iso_max(a.m, b.m);
    r.s = iso_add(high, iso_mul(low, weight));
    return r;
}

#endif
