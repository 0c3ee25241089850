// Scalar functions of the contract language, in f32, with one set of bits on host and device.
// Owns nothing: straight-line code over iso_num.cuh's operations, integer ones and selects (both
// sides computed before, so that no compiler branches); no tables, no library function, no hardware
// approximation. The text is part of every fingerprint.
//
// NaN in gives the canonical NaN out, everywhere. The error is the largest found, in units in the
// last place of the exact result, where that is a normal number:
//
//   exp2       0.81  whole numbers exact; overflow +Inf; underflow through subnormals, rounded once
//   exp        0.9   exp(0) = 1; overflow and underflow likewise
//   log2       1.8   powers of two exact; log2(+-0) = -Inf; below zero NaN
//   log        1.0   log(1) = +0; log(s) >= 0 for s >= 1; log(+-0) = -Inf; below zero NaN
//   sigmoid    2.5   0 at -Inf, 1 at +Inf
//   silu       3.4   for x >= -87, below it e^x is subnormal; -0 at -Inf, +Inf at +Inf
//   tanh       1.5   odd, -0 kept; never beyond 1
//   gelu       5.1   for x >= -13, below it 10; -0 at -Inf, +Inf at +Inf
//   gelu_tanh  3.1   for x >= -1, growing to 154 at -9; ends like gelu's
//   softplus   2.0   +0 at -Inf, +Inf at +Inf
//   exp2.d6    0.81  for x in [-126, 127]; +0 below -126.5, +Inf from 127.5; whole numbers exact
//   exp2.d3    1346  (1.0e-4 relative) likewise
//
// Constants are hex floats; the comment gives them in decimal. Polynomials are minimax fits whose
// coefficients were rounded to f32 one after another, the others refitted each time.
#ifndef ISO_FN_CUH
#define ISO_FN_CUH

#include "iso_num.cuh"

// Adding 1.5 x 2^23 rounds a small number to the nearest integer n and leaves n in the low bits.
#define ISO_ROUNDER 0x1.8p23f
#define ISO_ROUNDER_BITS 0x4B400000u
#define ISO_LOG2E 0x1.715476p+0f // 1.442695022
#define ISO_LN2 0x1.62e43p-1f    // 0.6931471825
#define ISO_LN2_LOW (-0x1.05c61p-29f) // -1.904654324e-9: ln 2 - ISO_LN2

// -|x|, as a move.
ISO_FN IsoF32 iso_minus_abs(IsoF32 x) { return iso_bits_f32(iso_f32_bits(x) | ISO_SIGN_BIT); }

ISO_FN IsoF32 iso_clamp(IsoF32 x, IsoF32 low, IsoF32 high)
{
    return iso_min(iso_max(x, low), high);
}

// p x 2^n for the n that `rounded` holds, |n| <= 254: two exact powers, so that only the last
// product rounds. A NaN p stays NaN whatever the powers are.
ISO_FN IsoF32 iso_scale(IsoF32 p, IsoF32 rounded)
{
    IsoU32 n = iso_f32_bits(rounded) - (ISO_ROUNDER_BITS - 254u), half = n >> 1;
    return iso_mul(iso_mul(p, iso_bits_f32(half << 23)), iso_bits_f32((n - half) << 23));
}

// 2^r for |r| <= 1/2.
ISO_FN IsoF32 iso_exp2_near_zero(IsoF32 r)
{
    IsoF32 p = 0x1.417a7p-13f;                 // 0.0001532927854
    p = iso_fma(p, r, 0x1.5f0948p-10f);        // 0.001339097042
    p = iso_fma(p, r, 0x1.3b2dd2p-7f);         // 0.009618499316
    p = iso_fma(p, r, 0x1.c6af7ap-5f);         // 0.05550359562
    p = iso_fma(p, r, 0x1.ebfbdcp-3f);         // 0.2402264774
    p = iso_fma(p, r, 0x1.62e43p-1f);          // 0.6931471825
    return iso_fma(p, r, 1.0f);
}

ISO_FN IsoF32 iso_exp2(IsoF32 x)
{
    IsoF32 c = iso_clamp(x, -151.0f, 129.0f), t = iso_add(c, ISO_ROUNDER);
    return iso_scale(iso_exp2_near_zero(iso_sub(c, iso_sub(t, ISO_ROUNDER))), t);
}

// The short forms scale once: 2^-127 is taken as 0 and 2^128 as Inf.
ISO_FN IsoF32 iso_scale_once(IsoF32 p, IsoF32 rounded)
{
    return iso_mul(p, iso_bits_f32((iso_f32_bits(rounded) << 23) + 0x3F800000u));
}

ISO_FN IsoF32 iso_exp2_d6(IsoF32 x)
{
    IsoF32 c = iso_clamp(x, -127.0f, 128.0f), t = iso_add(c, ISO_ROUNDER);
    return iso_scale_once(iso_exp2_near_zero(iso_sub(c, iso_sub(t, ISO_ROUNDER))), t);
}

ISO_FN IsoF32 iso_exp2_d3(IsoF32 x)
{
    IsoF32 c = iso_clamp(x, -127.0f, 128.0f), t = iso_add(c, ISO_ROUNDER);
    IsoF32 r = iso_sub(c, iso_sub(t, ISO_ROUNDER));
    IsoF32 p = 0x1.c2a256p-5f;                 // 0.05500904843
    p = iso_fma(p, r, 0x1.f00c5p-3f);          // 0.2422109842
    p = iso_fma(p, r, 0x1.62f5fap-1f);         // 0.6932829022
    return iso_scale_once(iso_fma(p, r, 1.0f), t);
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2.
ISO_FN IsoF32 iso_exp(IsoF32 x)
{
    IsoF32 c = iso_clamp(x, -105.0f, 90.0f), t = iso_fma(c, ISO_LOG2E, ISO_ROUNDER);
    IsoF32 n = iso_sub(t, ISO_ROUNDER);
    IsoF32 r = iso_fma(n, -ISO_LN2_LOW, iso_fma(n, -ISO_LN2, c));
    IsoF32 p = 0x1.6a4f28p-10f;                // 0.00138209993
    p = iso_fma(p, r, 0x1.12398p-7f);          // 0.00836867094
    p = iso_fma(p, r, 0x1.5558aep-5f);         // 0.04166826233
    p = iso_fma(p, r, 0x1.555492p-3f);         // 0.1666652113
    p = iso_fma(p, r, 0x1.fffffcp-2f);         // 0.4999999404
    p = iso_fma(p, r, 1.0f);
    return iso_scale(iso_fma(p, r, 1.0f), t);
}

// ln(1 + f) for |f| <= 1/3.
ISO_FN IsoF32 iso_log1p_near_zero(IsoF32 f)
{
    IsoF32 p = -0x1.07a796p-3f;                // -0.1287376136
    p = iso_fma(p, f, 0x1.1e718ep-3f);         // 0.1398650259
    p = iso_fma(p, f, -0x1.f33d4cp-4f);        // -0.1218846291
    p = iso_fma(p, f, 0x1.1ed482p-3f);         // 0.140053764
    p = iso_fma(p, f, -0x1.559c2ap-3f);        // -0.1668017656
    p = iso_fma(p, f, 0x1.99d05ap-3f);         // 0.2001044303
    p = iso_fma(p, f, -0x1.fffefap-3f);        // -0.2499980479
    p = iso_fma(p, f, 0x1.555506p-2f);         // 0.3333321512
    p = iso_fma(p, f, -0.5f);
    return iso_fma(p, iso_mul(f, f), f);
}

// x = 2^e (1 + f), 1 + f in [2/3, 4/3).
typedef struct IsoLogParts {
    IsoF32 e, f;
} IsoLogParts;

ISO_FN IsoLogParts iso_log_parts(IsoF32 x)
{
    IsoLogParts s;
    IsoF32 scaled = iso_mul(x, 0x1p24f); // a subnormal has no exponent of its own
    IsoU32 sub = x < 0x1p-126f;
    IsoU32 u = iso_f32_bits(sub ? scaled : x) + (0x3F800000u - 0x3F2AAAABu);
    s.f = iso_sub(iso_bits_f32((u & 0x007FFFFFu) + 0x3F2AAAABu), 1.0f);
    s.e = iso_sub(iso_bits_f32(0x4B000000u | (u >> 23)), sub ? 8388759.0f : 8388735.0f);
    return s;
}

// What a logarithm is where x is not a positive finite number.
ISO_FN IsoF32 iso_log_edges(IsoF32 x, IsoF32 inside)
{
    IsoF32 outside = x == 0.0f ? iso_bits_f32(0xFF800000u) : iso_bits_f32(ISO_NAN_BITS);
    IsoF32 above = x < iso_bits_f32(0x7F800000u) ? inside : x;
    return x > 0.0f ? above : outside;
}

ISO_FN IsoF32 iso_log(IsoF32 x)
{
    IsoLogParts s = iso_log_parts(x);
    return iso_log_edges(x, iso_fma(s.e, ISO_LN2, iso_log1p_near_zero(s.f)));
}

ISO_FN IsoF32 iso_log2(IsoF32 x)
{
    IsoLogParts s = iso_log_parts(x);
    return iso_log_edges(x, iso_fma(iso_log1p_near_zero(s.f), ISO_LOG2E, s.e));
}

// n / (1 + e^-|v|) with n = x for v >= 0 and x e^-|v| below: x times the logistic function of v,
// without overflow and without cancellation.
ISO_FN IsoF32 iso_gated(IsoF32 x, IsoF32 v)
{
    IsoF32 e = iso_exp(iso_minus_abs(v)), low = iso_mul(x, e);
    return iso_div(v < 0.0f ? low : x, iso_add(1.0f, e));
}

ISO_FN IsoF32 iso_sigmoid(IsoF32 x) { return iso_gated(1.0f, x); }

// Below -128 the gate is 0; the bound keeps -Inf x 0 away.
ISO_FN IsoF32 iso_silu(IsoF32 x) { return iso_gated(iso_max(x, -128.0f), x); }

// x times the logistic function of 2 sqrt(2 / pi) (x + 0.044715 x^3).
ISO_FN IsoF32 iso_gelu_tanh(IsoF32 x)
{
    IsoF32 k = iso_fma(iso_mul(x, x), 0x1.2444f2p-4f, 0x1.988454p+0f); // 0.07135481387 1.595769167
    return iso_gated(iso_max(x, -16.0f), iso_mul(x, k));
}

// |x| + |x|^3 P(x^2) up to 0.6, 1 - 2 / (1 + e^2|x|) above.
ISO_FN IsoF32 iso_tanh(IsoF32 x)
{
    IsoF32 a = iso_abs(x), s = iso_mul(a, a), small, big, sign;
    IsoF32 p = -0x1.828776p-8f;                // -0.005897966679
    p = iso_fma(p, s, 0x1.54c3c2p-6f);         // 0.02079862542
    p = iso_fma(p, s, -0x1.b89abap-5f);        // -0.05378471687
    p = iso_fma(p, s, 0x1.1109bep-3f);         // 0.133319363
    p = iso_fma(p, s, -0x1.55553ep-2f);        // -0.3333329856
    small = iso_fma(iso_mul(p, s), a, a);
    big = iso_sub(1.0f, iso_div(2.0f, iso_add(1.0f, iso_exp(iso_add(a, a)))));
    sign = iso_bits_f32((iso_f32_bits(x) & ISO_SIGN_BIT) | 0x3F800000u);
    return iso_mul(sign, a < 0.6f ? small : big); // a product, so that NaN is canonical
}

// The normal distribution's tail beyond t >= 0: e^(-t^2/2) R(t), R(t) = z P(1 - 2z) with
// z = 1 / (1 + 3t/8). The exponential of t^2's rounding error is put back.
ISO_FN IsoF32 iso_normal_tail(IsoF32 t)
{
    IsoF32 s = iso_mul(t, t), low = iso_fma(t, t, iso_neg(s));
    IsoF32 e = iso_exp(iso_mul(s, -0.5f)), z = iso_div(1.0f, iso_fma(t, 0.375f, 1.0f));
    IsoF32 u = iso_fma(iso_mul(t, 0.75f), z, -1.0f); // 1 - 2z without its rounding error
    IsoF32 p = -0x1.573e28p-15f;               // -4.091773008e-5
    p = iso_fma(p, u, -0x1.48dbf2p-13f);       // -0.000156812268
    p = iso_fma(p, u, 0x1.8f24acp-16f);        // 2.37907916e-5
    p = iso_fma(p, u, 0x1.07e3ep-10f);         // 0.001006660983
    p = iso_fma(p, u, 0x1.3fb2a2p-11f);        // 0.000609775132
    p = iso_fma(p, u, -0x1.a43ffep-8f);        // -0.006412505638
    p = iso_fma(p, u, -0x1.676a1ap-9f);        // -0.00274211471
    p = iso_fma(p, u, 0x1.fd5a46p-5f);         // 0.06217683479
    p = iso_fma(p, u, -0x1.626a2cp-3f);        // -0.1730540693
    p = iso_fma(p, u, 0x1.129e6p-2f);          // 0.2681822777
    return iso_mul(iso_fma(iso_mul(low, -0.5f), e, e), iso_mul(p, z));
}

// x times the normal distribution, with full precision in the lower tail. Beyond 15 the tail is 0.
ISO_FN IsoF32 iso_gelu(IsoF32 x)
{
    IsoF32 tail = iso_normal_tail(iso_min(iso_abs(x), 15.0f));
    return iso_mul(iso_max(x, -15.0f), x < 0.0f ? tail : iso_sub(1.0f, tail));
}

// max(x, 0) + ln(1 + e^-|x|).
ISO_FN IsoF32 iso_softplus(IsoF32 x)
{
    IsoF32 e = iso_exp(iso_minus_abs(x));
    IsoF32 halved = iso_fma(e, 0.5f, -0.5f); // (1 + e) / 2 - 1
    IsoU32 upper = e > 0x1.555556p-2f;       // 1/3
    IsoF32 r = iso_log1p_near_zero(upper ? halved : e), raised = iso_add(r, ISO_LN2);
    return iso_add(iso_max(x, 0.0f), upper ? raised : r);
}

// A log-sum-exp in parts: the sum is s x e^m. One element x is the pair (x, 1).
typedef struct IsoPair {
    IsoF32 m, s;
} IsoPair;

// A softmax-weighted sum in parts: (o x e^m) / (s x e^m).
typedef struct IsoTriple {
    IsoF32 m, s, o;
} IsoTriple;

// What brings a part with maximum x to the joint maximum m; equal ones, Infs too, stay as they are.
ISO_FN IsoF32 iso_pair_scale(IsoF32 x, IsoF32 m)
{
    IsoF32 scale = iso_exp(iso_sub(x, m));
    return x == m ? 1.0f : scale;
}

ISO_FN IsoPair iso_pair_join(IsoPair a, IsoPair b)
{
    IsoPair r;
    r.m = iso_max(a.m, b.m);
    r.s = iso_add(iso_mul(a.s, iso_pair_scale(a.m, r.m)), iso_mul(b.s, iso_pair_scale(b.m, r.m)));
    return r;
}

ISO_FN IsoTriple iso_triple_join(IsoTriple a, IsoTriple b)
{
    IsoTriple r;
    IsoF32 ka, kb;
    r.m = iso_max(a.m, b.m);
    ka = iso_pair_scale(a.m, r.m);
    kb = iso_pair_scale(b.m, r.m);
    r.s = iso_add(iso_mul(a.s, ka), iso_mul(b.s, kb));
    r.o = iso_add(iso_mul(a.o, ka), iso_mul(b.o, kb));
    return r;
}

#endif
