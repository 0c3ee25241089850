/* Bits, moves, comparisons and selections. */
#include "machine.h"

#include "device/iso_num.cuh"

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

/* ---- predicates: one word a row, a bit per lane ------------------------------------------------
 */

#define PREDICATE(name, expression)                                                                \
    RUN(name)                                                                                      \
    {                                                                                              \
        u32 *d = ptx_row32(w, i, 0);                                                               \
        u32 a = *ptx_row32(w, i, 1), b = *ptx_row32(w, i, i->n_args - 1);                          \
        (void)c, (void)b;                                                                          \
        *d = (*d & ~mask) | ((expression) & mask);                                                 \
        return true;                                                                               \
    }
PREDICATE(and_pred, a &b)
PREDICATE(or_pred, a | b)
PREDICATE(xor_pred, a ^ b)
PREDICATE(not_pred, ~a)
PREDICATE(mov_pred, a)

/* ---- words ------------------------------------------------------------------------------------
 */

#define WORDS(name, S, row, expression)                                                            \
    RUN(name)                                                                                      \
    {                                                                                              \
        S *d = row(w, i, 0);                                                                       \
        const S *x = row(w, i, 1), *y = row(w, i, i->n_args - 1);                                  \
        (void)c;                                                                                   \
        PTX_LANES(mask, S a = x[l]; S b = y[l]; (void)b; d[l] = (expression));                     \
        return true;                                                                               \
    }
#define BOTH(name, expression)                                                                     \
    WORDS(name##_32, u32, ptx_row32, expression) WORDS(name##_64, u64, ptx_row64, expression)
BOTH(and, a &b)
BOTH(or, a | b)
BOTH(xor, a ^ b)
BOTH(not, ~a)
BOTH(mov, a)
WORDS(not_16, u32, ptx_row32, ~a & 0xffff)

/* Shift counts are u32 and saturate. */
#define SHIFT(name, S, V, row, bits, expression, beyond)                                           \
    RUN(name)                                                                                      \
    {                                                                                              \
        S *d = row(w, i, 0);                                                                       \
        const S *x = row(w, i, 1);                                                                 \
        const u32 *y = ptx_row32(w, i, 2);                                                         \
        (void)c;                                                                                   \
        PTX_LANES(mask, V a = (V)x[l]; u32 n = y[l];                                               \
                  d[l] = (S)(n < (bits) ? (V)(expression) : (V)(beyond)));                         \
        return true;                                                                               \
    }
SHIFT(shl_16, u32, u16, ptx_row32, 16, (u32)a << n, 0)
SHIFT(shl_32, u32, u32, ptx_row32, 32, a << n, 0)
SHIFT(shl_64, u64, u64, ptx_row64, 64, a << n, 0)
SHIFT(shr_u16, u32, u16, ptx_row32, 16, a >> n, 0)
SHIFT(shr_u32, u32, u32, ptx_row32, 32, a >> n, 0)
SHIFT(shr_u64, u64, u64, ptx_row64, 64, a >> n, 0)
SHIFT(shr_s32, u32, int32_t, ptx_row32, 32, a >> n, a < 0 ? -1 : 0)
SHIFT(shr_s64, u64, i64, ptx_row64, 64, a >> n, a < 0 ? -1 : 0)

RUN(bfi_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2), *at = ptx_row32(w, i, 3),
              *len = ptx_row32(w, i, 4);
    (void)c;
    PTX_LANES(mask, u32 p = at[l] & 0xff; u32 n = len[l] & 0xff;
              u64 field = (((u64)1 << (n > 32 ? 32 : n)) - 1) << (p > 32 ? 32 : p);
              d[l] = (u32)((b[l] & ~field) | ((u64)a[l] << (p > 32 ? 32 : p) & field)));
    return true;
}

RUN(bfi_64)
{
    u64 *d = ptx_row64(w, i, 0);
    const u64 *a = ptx_row64(w, i, 1), *b = ptx_row64(w, i, 2);
    const u32 *at = ptx_row32(w, i, 3), *len = ptx_row32(w, i, 4);
    (void)c;
    PTX_LANES(mask, u32 p = at[l] & 0xff; u32 n = len[l] & 0xff;
              u64 ones = n > 63 ? ~(u64)0 : ((u64)1 << n) - 1;
              u64 field = p > 63 ? 0 : ones << p;
              d[l] = (b[l] & ~field) | ((p > 63 ? 0 : a[l] << p) & field));
    return true;
}

static u32 extract(u32 x, u32 at, u32 n, bool is_signed)
{
    at &= 0xff, n &= 0xff;
    u64 wide = is_signed ? (u64)(i64)(int32_t)x : x;
    u64 shifted = is_signed ? (u64)((i64)wide >> (at > 32 ? 32 : at)) : wide >> (at > 32 ? 32 : at);
    if (n == 0)
        return 0;
    if (n >= 32)
        return (u32)shifted;
    u32 field = (u32)shifted & ((1u << n) - 1);
    u32 last = at + n - 1 > 31 ? 31 : at + n - 1;
    return is_signed && (x >> last & 1) ? field | ~((1u << n) - 1) : field;
}

RUN(bfe_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *at = ptx_row32(w, i, 2), *n = ptx_row32(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = extract(a[l], at[l], n[l], i->type == PTX_T_S32));
    return true;
}

static u32 permute(u32 a, u32 b, u32 selector)
{
    u64 bytes = (u64)b << 32 | a;
    u32 out = 0;
    for (int k = 0; k < 4; k++) {
        u32 s = selector >> (4 * k) & 15;
        u32 byte = (u32)(bytes >> (8 * (s & 7))) & 0xff;
        if (s & 8)
            byte = byte & 0x80 ? 0xff : 0;
        out |= byte << (8 * k);
    }
    return out;
}

RUN(prmt_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2), *s = ptx_row32(w, i, 3);
    (void)c;
    PTX_LANES(mask, d[l] = permute(a[l], b[l], s[l]));
    return true;
}

RUN(popc_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1);
    (void)c;
    PTX_LANES(mask, d[l] = (u32)__builtin_popcount(a[l]));
    return true;
}

RUN(clz_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1);
    (void)c;
    PTX_LANES(mask, d[l] = a[l] ? (u32)__builtin_clz(a[l]) : 32);
    return true;
}

/* ---- pairs: mov.b32 %r, {%h, %h} and back, mov.b64 likewise ------------------------------------
 */

RUN(pack_32)
{
    u32 *d = ptx_row32(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2);
    (void)c;
    PTX_LANES(mask, d[l] = (a[l] & 0xffff) | b[l] << 16);
    return true;
}

RUN(unpack_32)
{
    u32 *a = ptx_row32(w, i, 0), *b = ptx_row32(w, i, 1);
    const u32 *x = ptx_row32(w, i, 2);
    (void)c;
    PTX_LANES(mask, u32 v = x[l]; a[l] = v & 0xffff; b[l] = v >> 16);
    return true;
}

RUN(pack_64)
{
    u64 *d = ptx_row64(w, i, 0);
    const u32 *a = ptx_row32(w, i, 1), *b = ptx_row32(w, i, 2);
    (void)c;
    PTX_LANES(mask, d[l] = a[l] | (u64)b[l] << 32);
    return true;
}

RUN(unpack_64)
{
    u32 *a = ptx_row32(w, i, 0), *b = ptx_row32(w, i, 1);
    const u64 *x = ptx_row64(w, i, 2);
    (void)c;
    PTX_LANES(mask, u64 v = x[l]; a[l] = (u32)v; b[l] = (u32)(v >> 32));
    return true;
}

/* A special register or 32-bit address moved to where 64 bits are wanted. */
static PtxRun find_mov(const PtxInst *i)
{
    int bits = ptx_bits((PtxType)i->type);
    if (i->n_operands != 2)
        return NULL;
    if (i->type == PTX_T_PRED)
        return i->n_args == 2 ? mov_pred : NULL;
    if (i->n_args == 2)
        return bits == 64 ? mov_64 : mov_32;
    if (bits == 32)
        return !ptx_shape(i, "rrr") ? NULL : i->count[0] == 1 ? pack_32 : unpack_32;
    if (bits != 64)
        return NULL;
    return ptx_shape(i, "lrr") ? pack_64 : ptx_shape(i, "rrl") ? unpack_64 : NULL;
}

/* ---- comparisons ------------------------------------------------------------------------------
 */

#define COMPARE(name, S, V, row, convert)                                                          \
    RUN(name)                                                                                      \
    {                                                                                              \
        const S *x = row(w, i, 1), *y = row(w, i, 2);                                              \
        u32 out = 0;                                                                               \
        (void)c;                                                                                   \
        PTX_LANES(mask, V a = convert(x[l]); V b = convert(y[l]); bool yes;                        \
                  switch (i->compare & ~PTX_UNORDERED) {                                           \
                      case PTX_EQ: yes = a == b; break;                                            \
                      case PTX_NE: yes = a < b || a > b; break;                                    \
                      case PTX_LT: yes = a < b; break;                                             \
                      case PTX_LE: yes = a <= b; break;                                            \
                      case PTX_GT: yes = a > b; break;                                             \
                      default: yes = a >= b; break;                                                \
                  } if (i->compare & PTX_UNORDERED) yes |= a != a || b != b;                       \
                  out |= (u32)yes << l);                                                           \
        u32 *d = ptx_row32(w, i, 0);                                                               \
        *d = (*d & ~mask) | out;                                                                   \
        return true;                                                                               \
    }
#define AS_U16(v) ((u16)(v))
#define AS_S16(v) ((int16_t)(v))
#define AS_U32(v) (v)
#define AS_S32(v) ((int32_t)(v))
#define AS_U64(v) (v)
#define AS_S64(v) ((i64)(v))
COMPARE(setp_u16, u32, u16, ptx_row32, AS_U16)
COMPARE(setp_s16, u32, int16_t, ptx_row32, AS_S16)
COMPARE(setp_u32, u32, u32, ptx_row32, AS_U32)
COMPARE(setp_s32, u32, int32_t, ptx_row32, AS_S32)
COMPARE(setp_u64, u64, u64, ptx_row64, AS_U64)
COMPARE(setp_s64, u64, i64, ptx_row64, AS_S64)
COMPARE(setp_f32, u32, float, ptx_row32, iso_bits_f32)

static PtxRun find_setp(const PtxInst *i)
{
    if (i->n_operands != 3 || i->n_args != 3 ||
        (i->compare & PTX_UNORDERED && i->type != PTX_T_F32))
        return NULL;
    switch (i->type) {
    case PTX_T_U16:
    case PTX_T_B16: return setp_u16;
    case PTX_T_S16: return setp_s16;
    case PTX_T_U32:
    case PTX_T_B32: return setp_u32;
    case PTX_T_S32: return setp_s32;
    case PTX_T_U64:
    case PTX_T_B64: return setp_u64;
    case PTX_T_S64: return setp_s64;
    case PTX_T_F32: return setp_f32;
    default: return NULL;
    }
}

#define SELECT(name, S, row)                                                                       \
    RUN(name)                                                                                      \
    {                                                                                              \
        S *d = row(w, i, 0);                                                                       \
        const S *a = row(w, i, 1), *b = row(w, i, 2);                                              \
        u32 p = *ptx_row32(w, i, 3);                                                               \
        (void)c;                                                                                   \
        PTX_LANES(mask, d[l] = p >> l & 1 ? a[l] : b[l]);                                          \
        return true;                                                                               \
    }
SELECT(selp_32, u32, ptx_row32)
SELECT(selp_64, u64, ptx_row64)

/* ---- choosing ---------------------------------------------------------------------------------
 */

#define LOGIC(name)                                                                                \
    (i->type == PTX_T_PRED ? name##_pred : bits == 64 ? name##_64 : name##_32)

static PtxRun find_shift(const PtxInst *i, int bits)
{
    if (i->op == PTX_SHL)
        return bits == 16 ? shl_16 : bits == 32 ? shl_32 : shl_64;
    if (i->type == PTX_T_S16)
        return NULL;
    if (i->type == PTX_T_S32)
        return shr_s32;
    if (i->type == PTX_T_S64)
        return shr_s64;
    return bits == 16 ? shr_u16 : bits == 32 ? shr_u32 : shr_u64;
}

static PtxRun find_of(const PtxInst *i, int bits)
{
    switch (i->op) {
    case PTX_AND: return LOGIC(and);
    case PTX_OR: return LOGIC(or);
    case PTX_XOR: return LOGIC(xor);
    case PTX_SHL:
    case PTX_SHR: return find_shift(i, bits);
    default: return NULL;
    }
}

PtxRun ptx_find_logic(const PtxInst *i)
{
    int bits = ptx_bits((PtxType)i->type);
    if (i->op == PTX_MOV)
        return find_mov(i);
    if (i->op == PTX_SETP)
        return find_setp(i);
    if (i->n_args != i->n_operands)
        return NULL;
    switch (i->op) {
    case PTX_SELP: return i->n_args != 4 ? NULL : bits == 64 ? selp_64 : selp_32;
    case PTX_NOT: return i->n_args != 2 ? NULL : bits == 16 ? not_16 : LOGIC(not);
    case PTX_BFI: return i->n_args != 5 ? NULL : bits == 64 ? bfi_64 : bfi_32;
    case PTX_BFE: return i->n_args == 4 && bits == 32 ? bfe_32 : NULL;
    case PTX_PRMT: return i->n_args == 4 ? prmt_32 : NULL;
    case PTX_POPC: return i->n_args == 2 && bits == 32 ? popc_32 : NULL;
    case PTX_CLZ: return i->n_args == 2 && bits == 32 ? clz_32 : NULL;
    default: return i->n_args == 3 ? find_of(i, bits) : NULL;
    }
}
