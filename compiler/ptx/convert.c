/* cvt: between integers, and to and from f32, bf16 and f16. */
#include "machine.h"

#include "device/iso_num.cuh"

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* ---- integers ---------------------------------------------------------------------------------
 */

static u64 narrow(u64 v, PtxType type)
{
    switch (type) {
    case PTX_T_U8: return (u8)v;
    case PTX_T_S8: return (u64)(i64)(int8_t)v;
    case PTX_T_U16: return (u16)v;
    case PTX_T_S16: return (u64)(i64)(int16_t)v;
    case PTX_T_U32: return (u32)v;
    case PTX_T_S32: return (u64)(i64)(int32_t)v;
    default: return v;
    }
}

RUN(cvt_integer)
{
    const PtxArg *d = &i->args[0], *a = &i->args[1];
    u64 keep = d->width == 64 ? ~(u64)0 : d->width == 16 ? 0xffff : 0xffffffffu;
    (void)c;
    PTX_LANES(mask, u64 v = narrow(narrow(ptx_value(w, a, l), (PtxType)i->from), (PtxType)i->type);
              if (d->width == 64) ptx_row64(w, i, 0)[l] = v;
              else ptx_row32(w, i, 0)[l] = (u32)(v & keep));
    return true;
}

/* ---- floats -----------------------------------------------------------------------------------
 */

#define CONVERT(name, D, drow, S, srow, expression)                                                \
    RUN(name)                                                                                      \
    {                                                                                              \
        D *d = drow(w, i, 0);                                                                      \
        const S *x = srow(w, i, 1);                                                                \
        (void)c;                                                                                   \
        PTX_LANES(mask, S a = x[l]; d[l] = (D)(expression));                                       \
        return true;                                                                               \
    }
CONVERT(bf16_of_f32, u32, ptx_row32, u32, ptx_row32, iso_bf16_of_f32(iso_bits_f32(a)))
CONVERT(f16_of_f32, u32, ptx_row32, u32, ptx_row32, iso_f16_of_f32(iso_bits_f32(a)))
CONVERT(f32_of_f16, u32, ptx_row32, u32, ptx_row32, iso_f32_bits(iso_f32_of_f16((u16)a)))
CONVERT(f32_of_bf16, u32, ptx_row32, u32, ptx_row32, a << 16)
CONVERT(f32_of_s32, u32, ptx_row32, u32, ptx_row32, iso_f32_bits((float)(int32_t)a))
CONVERT(f32_of_u32, u32, ptx_row32, u32, ptx_row32, iso_f32_bits((float)a))
CONVERT(f32_of_s64, u32, ptx_row32, u64, ptx_row64, iso_f32_bits((float)(i64)a))
CONVERT(f32_of_u64, u32, ptx_row32, u64, ptx_row64, iso_f32_bits((float)a))

/* Toward zero, saturating; NaN gives 0. */
static int32_t to_s32(float x)
{
    return x != x             ? 0
           : x >= 2147483648.f  ? INT32_MAX
           : x < -2147483648.f ? INT32_MIN
                               : (int32_t)x;
}

static u32 to_u32(float x)
{
    return x != x || x <= 0 ? 0 : x >= 4294967296.f ? UINT32_MAX : (u32)x;
}

static u64 to_u64(float x)
{
    return x != x || x <= 0 ? 0 : x >= 18446744073709551616.f ? UINT64_MAX : (u64)x;
}

CONVERT(s32_of_f32, u32, ptx_row32, u32, ptx_row32, (u32)to_s32(iso_bits_f32(a)))
CONVERT(u32_of_f32, u32, ptx_row32, u32, ptx_row32, to_u32(iso_bits_f32(a)))
CONVERT(u64_of_f32, u64, ptx_row64, u32, ptx_row32, to_u64(iso_bits_f32(a)))

/* The first source goes to the upper half. */
#define CONVERT_PAIR(name, narrowed)                                                               \
    RUN(name)                                                                                      \
    {                                                                                              \
        u32 *d = ptx_row32(w, i, 0);                                                               \
        const u32 *high = ptx_row32(w, i, 1), *low = ptx_row32(w, i, 2);                           \
        (void)c;                                                                                   \
        PTX_LANES(mask, u32 h = narrowed(iso_bits_f32(high[l]));                                   \
                  d[l] = h << 16 | narrowed(iso_bits_f32(low[l])));                                \
        return true;                                                                               \
    }
CONVERT_PAIR(bf16x2_of_f32, iso_bf16_of_f32)
CONVERT_PAIR(f16x2_of_f32, iso_f16_of_f32)

static PtxRun find_to_f32(const PtxInst *i)
{
    if (i->from == PTX_T_F16)
        return i->flags == 0 ? f32_of_f16 : NULL;
    if (i->from == PTX_T_BF16)
        return i->flags == 0 ? f32_of_bf16 : NULL;
    if (i->flags != PTX_FLAG_RN)
        return NULL;
    switch (i->from) {
    case PTX_T_S32: return f32_of_s32;
    case PTX_T_U32: return f32_of_u32;
    case PTX_T_S64: return f32_of_s64;
    case PTX_T_U64: return f32_of_u64;
    default: return NULL;
    }
}

static PtxRun find_from_f32(const PtxInst *i)
{
    if (i->flags == PTX_FLAG_RN)
        return i->type == PTX_T_BF16 ? bf16_of_f32 : i->type == PTX_T_F16 ? f16_of_f32 : NULL;
    if (i->flags == PTX_FLAG_RZI)
        return i->type == PTX_T_S32   ? s32_of_f32
               : i->type == PTX_T_U32 ? u32_of_f32
               : i->type == PTX_T_U64 ? u64_of_f32
                                      : NULL;
    return NULL;
}

static bool is_real(PtxType type)
{
    return type == PTX_T_F32 || type == PTX_T_F16 || type == PTX_T_BF16;
}

PtxRun ptx_find_convert(const PtxInst *i)
{
    if (i->op == PTX_CVT_BF16X2 || i->op == PTX_CVT_F16X2)
        return !ptx_shape(i, "rrr") ? NULL : i->op == PTX_CVT_BF16X2 ? bf16x2_of_f32 : f16x2_of_f32;
    if (i->op != PTX_CVT || !ptx_shape(i, "vv"))
        return NULL;
    if (i->type == PTX_T_F32)
        return find_to_f32(i);
    if (i->from == PTX_T_F32)
        return find_from_f32(i);
    return !is_real((PtxType)i->type) && !is_real((PtxType)i->from) && i->flags == 0 ? cvt_integer
                                                                                     : NULL;
}
