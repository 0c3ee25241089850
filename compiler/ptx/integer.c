/* Integer arithmetic. */
#include "machine.h"

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* Rows of 32-bit words hold narrower values zero-extended. S: the word, V: the value's type. */
#define BINARY(name, S, V, U, row, expression)                                                     \
    RUN(name)                                                                                      \
    {                                                                                              \
        S *d = row(w, i, 0);                                                                       \
        const S *x = row(w, i, 1), *y = row(w, i, 2);                                              \
        (void)c;                                                                                   \
        PTX_LANES(mask, V a = (V)x[l]; V b = (V)y[l]; d[l] = (U)(expression));                     \
        return true;                                                                               \
    }

#define EACH_WIDTH(name, unsigned_, signed_)                                                       \
    BINARY(name##_u16, u32, u16, u16, ptx_row32, unsigned_)                                        \
    BINARY(name##_s16, u32, int16_t, u16, ptx_row32, signed_)                                      \
    BINARY(name##_u32, u32, u32, u32, ptx_row32, unsigned_)                                        \
    BINARY(name##_s32, u32, int32_t, u32, ptx_row32, signed_)                                      \
    BINARY(name##_u64, u64, u64, u64, ptx_row64, unsigned_)                                        \
    BINARY(name##_s64, u64, i64, u64, ptx_row64, signed_)

/* Wrapping forms compute on unsigned words, whatever the type says. */
EACH_WIDTH(add, (u64)a + (u64)b, (u64)a + (u64)b)
EACH_WIDTH(sub, (u64)a - (u64)b, (u64)a - (u64)b)
EACH_WIDTH(mul, (u64)a *(u64)b, (u64)a *(u64)b)
EACH_WIDTH(min, a < b ? a : b, a < b ? a : b)
EACH_WIDTH(max, a > b ? a : b, a > b ? a : b)
/* As the hardware has it: a division by zero gives ones, the overflowing one wraps. */
EACH_WIDTH(div, b ? a / b : (u64)-1, b == 0 ? (u64)-1 : b == -1 ? 0 - (u64)a : (u64)(a / b))
EACH_WIDTH(rem, b ? a % b : a, b == 0 ? (u64)a : b == -1 ? 0 : (u64)(a % b))
BINARY(mul_hi_u32, u32, u32, u32, ptx_row32, (u64)a *b >> 32)
BINARY(mul_hi_s32, u32, int32_t, u32, ptx_row32, (u64)((i64)a * b) >> 32)
BINARY(mul_hi_u64, u64, u64, u64, ptx_row64, (unsigned __int128)a *b >> 64)
BINARY(mul_hi_s64, u64, i64, u64, ptx_row64, (unsigned __int128)((__int128)a * b) >> 64)

#define WIDE(name, D, drow, V, expression)                                                         \
    RUN(name)                                                                                      \
    {                                                                                              \
        D *d = drow(w, i, 0);                                                                      \
        const u32 *x = ptx_row32(w, i, 1), *y = ptx_row32(w, i, 2);                                \
        (void)c;                                                                                   \
        PTX_LANES(mask, V a = (V)x[l]; V b = (V)y[l]; d[l] = (D)(expression));                     \
        return true;                                                                               \
    }
WIDE(mul_wide_u16, u32, ptx_row32, u16, (u32)a *b)
WIDE(mul_wide_s16, u32, ptx_row32, int16_t, (int32_t)a *b)
WIDE(mul_wide_u32, u64, ptx_row64, u32, (u64)a *b)
WIDE(mul_wide_s32, u64, ptx_row64, int32_t, (i64)a *b)

RUN(mad_lo_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2), *e = ptx_row32(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = a[l] * b[l] + e[l]);
    return true;
}

RUN(mad_lo_64)
{
    u64 *d = ptx_row64(w, i, 0);
    const u64 *a = ptx_row64(w, i, 1), *b = ptx_row64(w, i, 2), *e = ptx_row64(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = a[l] * b[l] + e[l]);
    return true;
}

RUN(mad_wide_u32)
{
    u64 *d = ptx_row64(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2);
    const u64 *e = ptx_row64(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = (u64)a[l] * b[l] + e[l]);
    return true;
}

RUN(mad_wide_s32)
{
    u64 *d = ptx_row64(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2);
    const u64 *e = ptx_row64(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = (u64)((i64)(int32_t)a[l] * (int32_t)b[l]) + e[l]);
    return true;
}

#define UNARY(name, S, V, U, row, expression)                                                      \
    RUN(name)                                                                                      \
    {                                                                                              \
        S *d = row(w, i, 0);                                                                       \
        const S *x = row(w, i, 1);                                                                 \
        (void)c;                                                                                   \
        PTX_LANES(mask, V a = (V)x[l]; d[l] = (U)(expression));                                    \
        return true;                                                                               \
    }
UNARY(neg_16, u32, u16, u16, ptx_row32, 0 - (u32)a)
UNARY(neg_32, u32, u32, u32, ptx_row32, 0 - a)
UNARY(neg_64, u64, u64, u64, ptx_row64, 0 - a)
UNARY(abs_16, u32, int16_t, u16, ptx_row32, a < 0 ? 0 - (u32)a : (u32)a)
UNARY(abs_32, u32, int32_t, u32, ptx_row32, a < 0 ? 0 - (u32)a : (u32)a)
UNARY(abs_64, u64, i64, u64, ptx_row64, a < 0 ? 0 - (u64)a : (u64)a)

static PtxRun pick(const PtxInst *i, const PtxRun runs[6])
{
    static const u8 types[] = {PTX_T_U16, PTX_T_S16, PTX_T_U32, PTX_T_S32, PTX_T_U64, PTX_T_S64};
    for (int k = 0; k < 6; k++)
        if (i->type == types[k])
            return runs[k];
    return NULL;
}

#define PICK(name)                                                                                 \
    pick(i, (const PtxRun[]){name##_u16, name##_s16, name##_u32, name##_s32, name##_u64,           \
                             name##_s64})

static PtxRun find_mul(const PtxInst *i)
{
    if (i->flags == PTX_FLAG_HI)
        return pick(i, (const PtxRun[]){NULL, NULL, mul_hi_u32, mul_hi_s32, mul_hi_u64,
                                        mul_hi_s64});
    if (i->flags == PTX_FLAG_WIDE)
        return pick(i, (const PtxRun[]){mul_wide_u16, mul_wide_s16, mul_wide_u32, mul_wide_s32,
                                        NULL, NULL});
    return i->flags == PTX_FLAG_LO ? PICK(mul) : NULL;
}

static PtxRun find_mad(const PtxInst *i)
{
    if (i->flags == PTX_FLAG_WIDE)
        return pick(i, (const PtxRun[]){NULL, NULL, mad_wide_u32, mad_wide_s32, NULL, NULL});
    return pick(i, (const PtxRun[]){NULL, NULL, mad_lo_32, mad_lo_32, mad_lo_64, mad_lo_64});
}

PtxRun ptx_find_integer(const PtxInst *i)
{
    int operands = i->n_operands;
    if (i->type == PTX_T_F32 || i->n_args != operands)
        return NULL;
    switch (i->op) {
    case PTX_ADD: return operands == 3 ? PICK(add) : NULL;
    case PTX_SUB: return operands == 3 ? PICK(sub) : NULL;
    case PTX_MIN: return operands == 3 ? PICK(min) : NULL;
    case PTX_MAX: return operands == 3 ? PICK(max) : NULL;
    case PTX_DIV: return operands == 3 ? PICK(div) : NULL;
    case PTX_REM: return operands == 3 ? PICK(rem) : NULL;
    case PTX_MUL: return operands == 3 ? find_mul(i) : NULL;
    case PTX_MAD: return operands == 4 ? find_mad(i) : NULL;
    case PTX_NEG:
        return operands == 2 ? pick(i, (const PtxRun[]){NULL, neg_16, NULL, neg_32, NULL, neg_64})
                             : NULL;
    case PTX_ABS:
        return operands == 2 ? pick(i, (const PtxRun[]){NULL, abs_16, NULL, abs_32, NULL, abs_64})
                             : NULL;
    default: return NULL;
    }
}
