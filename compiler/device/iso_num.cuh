// f32, bf16 and f16 arithmetic with one set of bits on host and device.
// Owns nothing: values only, in the common subset of C11 and CUDA C++, no includes under NVRTC.
//
// Rules every function here obeys:
//   - IEEE 754 binary32, round to nearest even, subnormals kept, nothing contracted.
//   - An operation whose result is NaN returns the canonical one: f32 0x7FFFFFFF, bf16 and f16
//     0x7FFF.
//   - A move keeps every bit. iso_neg and iso_abs act on the sign bit alone and are moves: a NaN
//     keeps its payload. Widening bf16 to f32 is a move too; widening f16 is an operation, because
//     it changes the format's fields, so its NaN is canonical.
//   - iso_min and iso_max propagate NaN and order -0 below +0.
#ifndef ISO_NUM_CUH
#define ISO_NUM_CUH

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ISO_ON_DEVICE 1
#define ISO_FN static __device__ __forceinline__
#else
#include <math.h>
#include <string.h>
#define ISO_ON_DEVICE 0
#define ISO_FN static inline
#endif

typedef float IsoF32;
typedef unsigned int IsoU32;
typedef unsigned short IsoU16;

#define ISO_NAN_BITS 0x7FFFFFFFu
#define ISO_NAN16_BITS 0x7FFFu
#define ISO_SIGN_BIT 0x80000000u

#if ISO_ON_DEVICE

ISO_FN IsoU32 iso_f32_bits(IsoF32 x) { return __float_as_uint(x); }
ISO_FN IsoF32 iso_bits_f32(IsoU32 u) { return __uint_as_float(u); }

// Inline PTX, so that no optimiser folds or contracts what the contract wrote.
#define ISO_OP2(name, ptx)                                                                         \
    ISO_FN IsoF32 name(IsoF32 a, IsoF32 b)                                                         \
    {                                                                                              \
        IsoF32 r;                                                                                  \
        asm(ptx " %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));                                        \
        return r;                                                                                  \
    }
ISO_OP2(iso_add, "add.rn.f32")
ISO_OP2(iso_sub, "sub.rn.f32")
ISO_OP2(iso_mul, "mul.rn.f32")
ISO_OP2(iso_div, "div.rn.f32")
ISO_OP2(iso_min, "min.NaN.f32")
ISO_OP2(iso_max, "max.NaN.f32")
#undef ISO_OP2

ISO_FN IsoF32 iso_fma(IsoF32 a, IsoF32 b, IsoF32 c)
{
    IsoF32 r;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
    return r;
}

ISO_FN IsoF32 iso_sqrt(IsoF32 a)
{
    IsoF32 r;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}

// xor.b32 and and.b32 in PTX: neg.f32 and abs.f32 may canonicalise a NaN, a move must not.
ISO_FN IsoF32 iso_neg(IsoF32 a)
{
    IsoU32 r;
    asm("xor.b32 %0, %1, 0x80000000;" : "=r"(r) : "r"(iso_f32_bits(a)));
    return iso_bits_f32(r);
}

ISO_FN IsoF32 iso_abs(IsoF32 a)
{
    IsoU32 r;
    asm("and.b32 %0, %1, 0x7fffffff;" : "=r"(r) : "r"(iso_f32_bits(a)));
    return iso_bits_f32(r);
}

ISO_FN IsoU16 iso_bf16_of_f32(IsoF32 x)
{
    IsoU16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

ISO_FN IsoU16 iso_f16_of_f32(IsoF32 x)
{
    IsoU16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

ISO_FN IsoF32 iso_f32_of_f16(IsoU16 h)
{
    IsoF32 r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
}

#else

ISO_FN IsoU32 iso_f32_bits(IsoF32 x)
{
    IsoU32 u;
    memcpy(&u, &x, sizeof u);
    return u;
}

ISO_FN IsoF32 iso_bits_f32(IsoU32 u)
{
    IsoF32 x;
    memcpy(&x, &u, sizeof x);
    return x;
}

ISO_FN IsoF32 iso_canon(IsoF32 x) { return x != x ? iso_bits_f32(ISO_NAN_BITS) : x; }

ISO_FN IsoF32 iso_add(IsoF32 a, IsoF32 b) { return iso_canon(a + b); }
ISO_FN IsoF32 iso_sub(IsoF32 a, IsoF32 b) { return iso_canon(a - b); }
ISO_FN IsoF32 iso_mul(IsoF32 a, IsoF32 b) { return iso_canon(a * b); }
ISO_FN IsoF32 iso_div(IsoF32 a, IsoF32 b) { return iso_canon(a / b); }
ISO_FN IsoF32 iso_fma(IsoF32 a, IsoF32 b, IsoF32 c) { return iso_canon(fmaf(a, b, c)); }
ISO_FN IsoF32 iso_sqrt(IsoF32 a) { return iso_canon(sqrtf(a)); }

ISO_FN IsoF32 iso_neg(IsoF32 a) { return iso_bits_f32(iso_f32_bits(a) ^ ISO_SIGN_BIT); }
ISO_FN IsoF32 iso_abs(IsoF32 a) { return iso_bits_f32(iso_f32_bits(a) & ~ISO_SIGN_BIT); }

// The order of values as an order of unsigned integers, -0 just below +0.
ISO_FN IsoU32 iso_order_key(IsoF32 x)
{
    IsoU32 u = iso_f32_bits(x);
    return u & ISO_SIGN_BIT ? ~u : u | ISO_SIGN_BIT;
}

ISO_FN IsoF32 iso_min(IsoF32 a, IsoF32 b)
{
    if (a != a || b != b)
        return iso_bits_f32(ISO_NAN_BITS);
    return iso_order_key(b) < iso_order_key(a) ? b : a;
}

ISO_FN IsoF32 iso_max(IsoF32 a, IsoF32 b)
{
    if (a != a || b != b)
        return iso_bits_f32(ISO_NAN_BITS);
    return iso_order_key(a) < iso_order_key(b) ? b : a;
}

ISO_FN IsoU16 iso_bf16_of_f32(IsoF32 x)
{
    IsoU32 u = iso_f32_bits(x);
    if (x != x)
        return ISO_NAN16_BITS;
    return (IsoU16)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

// u >> n rounded to nearest even, 1 <= n <= 31.
ISO_FN IsoU32 iso_shift_rne(IsoU32 u, IsoU32 n)
{
    IsoU32 kept = u >> n, rest = u & ((1u << n) - 1u), half = 1u << (n - 1u);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

ISO_FN IsoU16 iso_f16_of_f32(IsoF32 x)
{
    IsoU32 u = iso_f32_bits(x), sign = (u >> 16) & 0x8000u, mag = u & ~ISO_SIGN_BIT;
    IsoU32 exp = mag >> 23, sig = (mag & 0x7FFFFFu) | 0x800000u;
    if (x != x)
        return ISO_NAN16_BITS;
    if (exp >= 143u) // 2^16 and above
        return (IsoU16)(sign | 0x7C00u);
    if (exp >= 113u) // normal; a carry out of the significand is right
        return (IsoU16)(sign | iso_shift_rne(mag - (112u << 23), 13u));
    if (exp < 102u) // below half the least subnormal
        return (IsoU16)sign;
    return (IsoU16)(sign | iso_shift_rne(sig, 126u - exp));
}

ISO_FN IsoF32 iso_f32_of_f16(IsoU16 h)
{
    IsoU32 sign = (IsoU32)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, sig = h & 0x3FFu;
    IsoF32 sub;
    if (exp == 31u)
        return iso_bits_f32(sig ? ISO_NAN_BITS : sign | 0x7F800000u);
    if (exp)
        return iso_bits_f32(sign | ((exp + 112u) << 23) | (sig << 13));
    sub = (IsoF32)sig * 0x1p-24f; // exact
    return iso_bits_f32(sign | iso_f32_bits(sub));
}

#endif

ISO_FN IsoF32 iso_f32_of_bf16(IsoU16 b) { return iso_bits_f32((IsoU32)b << 16); }

#endif
