/* f32 arithmetic: the executor's own functions. */
#include "machine.h"

#include "device/iso_ex2.cuh"

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

#define BINARY(name, function)                                                                     \
    RUN(name)                                                                                      \
    {                                                                                              \
        u32 *d = ptx_row32(w, i, 0);                                                               \
        const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2);                                \
        (void)c;                                                                                   \
        PTX_LANES(mask, d[l] = iso_f32_bits(function(iso_bits_f32(a[l]), iso_bits_f32(b[l]))));    \
        return true;                                                                               \
    }
BINARY(add_f32, iso_add)
BINARY(sub_f32, iso_sub)
BINARY(mul_f32, iso_mul)
BINARY(div_f32, iso_div)
BINARY(min_f32, iso_min)
BINARY(max_f32, iso_max)

static float max_of_numbers(float a, float b)
{
    return a != a ? iso_canon(b) : b != b ? a : iso_max(a, b);
}
BINARY(max_numbers_f32, max_of_numbers)

RUN(fma_f32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2), *e = ptx_row32(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = iso_f32_bits(iso_fma(iso_bits_f32(a[l]), iso_bits_f32(b[l]),
                                                iso_bits_f32(e[l]))));
    return true;
}

RUN(sqrt_f32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1);
    (void)c;
    PTX_LANES(mask, d[l] = iso_f32_bits(iso_sqrt(iso_bits_f32(a[l]))));
    return true;
}

RUN(ex2_f32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1);
    (void)c;
    PTX_LANES(mask, d[l] = iso_f32_bits(iso_ex2(iso_bits_f32(a[l]))));
    return true;
}

static PtxRun find_binary(const PtxInst *i)
{
    switch (i->op) {
    case PTX_ADD: return add_f32;
    case PTX_SUB: return sub_f32;
    case PTX_MUL: return mul_f32;
    case PTX_DIV: return div_f32;
    case PTX_MIN: return min_f32;
    case PTX_MAX: return i->flags & PTX_FLAG_NAN ? max_f32 : max_numbers_f32;
    default: return NULL;
    }
}

PtxRun ptx_find_float(const PtxInst *i)
{
    if (i->op == PTX_EX2)
        return ptx_shape(i, "rr") ? ex2_f32 : NULL;
    if (i->type != PTX_T_F32)
        return NULL;
    if (ptx_shape(i, "rrrr"))
        return i->op == PTX_FMA ? fma_f32 : NULL;
    if (ptx_shape(i, "rr"))
        return i->op == PTX_SQRT ? sqrt_f32 : NULL;
    return ptx_shape(i, "rrr") ? find_binary(i) : NULL;
}
