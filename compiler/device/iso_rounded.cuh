// Weights with `maxima rounded` (LANGUAGE.md 6.13), with one set of bits on host and device.
// Owns nothing: straight-line code over iso_num.cuh's operations. The text is part of the
// fingerprint of contracts that have such weights.
//
// An exponent is u times C, m the maximum, a whole number. T = fma(u, C, R - m) has R + n in it, n
// the whole number nearest to the weight's exponent; (R - m) - T is then -(n + m), exactly, and
// fma(u, C, that) what is left of the exponent, rounded once. 2^n is added to the polynomial's own
// exponent as an integer.
#ifndef ISO_ROUNDED_CUH
#define ISO_ROUNDED_CUH

#include "iso_fn.cuh"

// The nearest multiple of 8, ties to even ones; NaN from 2^22 on, where a product overflows.
ISO_FN IsoF32 iso_rounded_most(IsoF32 x)
{
    IsoF32 n = iso_sub(iso_add(x, 0x1.8p26f), 0x1.8p26f);
    return iso_fma(iso_mul(x, 0x1p106f), 0.0f, n);
}

// The least u that is told from lower ones: their weights are 2^-124 or a little more.
ISO_FN IsoF32 iso_rounded_least(IsoF32 m, IsoF32 inverse)
{
    return iso_mul(iso_sub(m, 124.0f), inverse);
}

// 2^n p for the n that `rounded` holds, where that is a normal number.
ISO_FN IsoF32 iso_rounded_raise(IsoF32 p, IsoF32 rounded)
{
#if ISO_ON_DEVICE
    IsoU32 r; // as PTX, so that it is these operations wherever it stands
    asm("{\n\t.reg .b32 n;\n\tshl.b32 n, %1, 23;\n\tadd.s32 %0, n, %2;\n\t}"
        : "=r"(r)
        : "r"(iso_f32_bits(rounded)), "r"(iso_f32_bits(p)));
    return iso_bits_f32(r);
#else
    return iso_bits_f32((iso_f32_bits(rounded) << 23) + iso_f32_bits(p));
#endif
}

// 2^r for |r| <= 1/2, as exp2.d3.
ISO_FN IsoF32 iso_rounded_near_zero(IsoF32 r)
{
    IsoF32 p = iso_fma(0x1.c2a256p-5f, r, 0x1.f00c5p-3f);
    return iso_fma(iso_fma(p, r, 0x1.62f5fap-1f), r, 1.0f);
}

// Where m is NaN so is the row, by iso_rounded_sum, and the weight is any number.
ISO_FN IsoF32 iso_rounded_weight(IsoF32 u, IsoF32 by, IsoF32 inverse, IsoF32 m, int degree)
{
    IsoF32 base = iso_sub(ISO_ROUNDER, m), v = iso_max(u, iso_rounded_least(m, inverse));
    IsoF32 t = iso_fma(v, by, base), r = iso_fma(v, by, iso_sub(base, t));
    return iso_rounded_raise(degree == 3 ? iso_rounded_near_zero(r) : iso_exp2_near_zero(r), t);
}

// A lane's sum in a block.
ISO_FN IsoF32 iso_rounded_sum(IsoF32 x, IsoF32 m) { return iso_fma(m, 0.0f, x); }

#endif
