// One instruction after another on all kinds of numbers: corners of integers, conversions, and
// floating point with subnormals, infinities and NaN.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void integers(const unsigned *in, unsigned *out)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, a = in[t], b = in[t + 512], r = 0;
    int x = (int)a, y = (int)b | 1;
    long long wide = (long long)x * y;
    unsigned long long both = (unsigned long long)a << 32 | b;
    r += __umulhi(a, b) ^ (unsigned)__mulhi(x, y);
    r = r * 3 + (unsigned)(x / y) + (unsigned)(x % y) + a / (b | 1) + a % (b | 1);
    r = r * 5 + (unsigned)(wide >> 13) + (unsigned)(both / (a | 1)) + (unsigned)(both >> (b % 64));
    r = r * 7 + (unsigned)min(x, y) + (unsigned)max(x, y) + min(a, b) + max(a, b);
    r = r * 11 + (unsigned)abs(x) + (unsigned)(x >> (b % 32)) + (a << (b % 32)) + (a >> (b % 32));
    r = r * 13 + __byte_perm(a, b, b & 0x7777u) + (unsigned)__popc(a) + (unsigned)__clz(x);
    r = r * 17 + (unsigned)(short)a + (unsigned)(unsigned short)b + (a < b) + (x < y) * 2;
    unsigned f, g;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(f) : "r"(a), "r"(b & 255), "r"(b >> 8 & 63));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(g) : "r"(a), "r"(r), "r"(b & 63), "r"(b >> 8 & 63));
    int h;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(h) : "r"(x), "r"(b & 31), "r"(b >> 8 & 31));
    unsigned long shifted;
    asm("shl.b64 %0, %1, %2;" : "=l"(shifted) : "l"(both), "r"(b & 127));
    unsigned sh;
    asm("shr.s32 %0, %1, %2;" : "=r"(sh) : "r"(a), "r"(b & 63));
    out[t] = r + f * 19 + g * 23 + (unsigned)h * 29 + (unsigned)(shifted >> 32) + sh * 31;
}

extern "C" __global__ void conversions(const unsigned *in, unsigned *out)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, bits = in[t];
    float x = __uint_as_float(bits);
    unsigned short h, b;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    float up, down = __uint_as_float((unsigned)b << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(up) : "h"((unsigned short)bits));
    unsigned r = b + h * 65537u + __float_as_uint(up) * 3 + __float_as_uint(down) * 5;
    r = r * 7 + (unsigned)__float2int_rz(x) + __float2uint_rz(x);
    r = r * 11 + __float_as_uint(__int2float_rn((int)bits));
    r += __float_as_uint(__uint2float_rn(bits));
    r = r * 13 + __float_as_uint(__ll2float_rn((long long)bits * (int)(bits >> 3)));
    out[t] = r;
}

extern "C" __global__ void reals(const unsigned *in, unsigned *out)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    float a = __uint_as_float(in[t]), b = __uint_as_float(in[t + 512]);
    float c = __uint_as_float(in[t + 1024]), lo, hi;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(lo) : "f"(a), "f"(b));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(hi) : "f"(a), "f"(b));
    unsigned r = __float_as_uint(__fadd_rn(a, b)) + 3 * __float_as_uint(__fsub_rn(a, c));
    r = r * 5 + __float_as_uint(__fmul_rn(a, b)) + 7 * __float_as_uint(__fmaf_rn(a, b, c));
    r = r * 11 + __float_as_uint(__fdiv_rn(a, c)) + 13 * __float_as_uint(__fsqrt_rn(b));
    r = r * 17 + __float_as_uint(lo) + 19 * __float_as_uint(hi);
    out[t] = r + (a < b) + 2 * (a == c) + 4 * (a >= b) + 8 * (b != c) + 16 * !(a <= c);
}
