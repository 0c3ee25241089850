/* Hashes of expressions, and what expressions show of their values. */
#include "term.h"

#define PRIME (((u64)1 << 61) - 1)

static u64 mix(u64 x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static u64 reserved(u64 hash)
{
    hash &= TERM_HASH;
    return hash < TERM_LEAST ? hash + TERM_LEAST : hash;
}

u64 ptx_term_operation(PtxOp op, PtxType type, PtxType from, u32 mode)
{
    return mix((u64)op << 48 | (u64)type << 40 | (u64)from << 32 | mode);
}

u64 ptx_term_node(u64 operation, bool commutes, const u64 *args, int n)
{
    u64 hash = operation;
    for (int i = 0; i < n; i++) {
        u64 arg = args[i];
        if (arg == TERM_POISON)
            return TERM_POISON;
        if (commutes && i < 2 && n > 1) {
            u64 least = args[0] < args[1] ? args[0] : args[1];
            u64 most = args[0] < args[1] ? args[1] : args[0];
            arg = i == 0 ? least : most;
        }
        hash = mix(hash ^ mix(arg + (u64)i));
    }
    return reserved(hash);
}

/* A constant shows its sign; all that it is not is a NaN, unless the canonical one. */
u64 ptx_term_const(u32 bits)
{
    u64 flags = (bits >> 31 ? TERM_FALL : TERM_NO_SIGN) |
                ((bits & 0x7fffffffu) <= 0x7f800000u || bits == 0x7fffffffu ? TERM_RESULT : 0);
    return reserved(mix(mix(0x636f6e7374u) ^ bits)) | flags;
}

u64 ptx_term_leaf(u64 input, u64 index)
{
    return reserved(mix(mix(input + 0x6c656166u) ^ index));
}

/* ---- f32 --------------------------------------------------------------------------------------
 */

/* What a maximum joins. */
static u64 members(u64 term)
{
    return term & TERM_MAXIMUM ? term & TERM_HASH : mix(term ^ 0x6d6178u) & TERM_HASH;
}

/* The order of its operands, and -inf among them, are nothing to a maximum. */
static u64 maximum(u64 a, u64 b)
{
    u64 least = ptx_term_const(0xff800000u), either = a | b;
    if (a == TERM_POISON || b == TERM_POISON)
        return TERM_POISON;
    if (a == least)
        a = b, b = least;
    if (b == least && a & TERM_RESULT)
        return a;
    u64 hash = b == least ? members(a) : members(a) + members(b);
    return TERM_MAXIMUM | TERM_RESULT | (either & TERM_NO_SIGN) | (a & b & TERM_FALL) |
           (hash & TERM_HASH);
}

static bool is_plain(u64 term)
{
    return (term & (TERM_NO_SIGN | TERM_RESULT)) == (TERM_NO_SIGN | TERM_RESULT);
}

/* x + 0 where x is not -0, x * 1, and the minimum of x not above 0 and of another not below: x,
 * where its NaN is the canonical one. */
static bool is_unchanged(PtxOp op, u64 x, u64 by)
{
    if (op == PTX_MIN)
        return x & TERM_RESULT && x & TERM_FALL && is_plain(by);
    return op == PTX_ADD ? is_plain(x) && by == ptx_term_const(0)
                         : op == PTX_MUL && x & TERM_RESULT && by == ptx_term_const(0x3f800000u);
}

/* Which results of operands without a sign have none; a canonical NaN has none. */
static u64 sign_of(PtxOp op, const u64 *args, int n)
{
    u64 all = TERM_NO_SIGN;
    if (op == PTX_EX2)
        return all;
    /* a zero of either sign, or NaN, and what has no sign */
    if (op == PTX_FMA && (args[0] == ptx_term_const(0) || args[1] == ptx_term_const(0)))
        return args[2] & TERM_NO_SIGN;
    for (int i = 0; i < n; i++)
        all &= args[i];
    return op == PTX_ADD || op == PTX_MUL || op == PTX_FMA || op == PTX_DIV || op == PTX_SQRT
               ? all
               : 0;
}

u64 ptx_term_f32(PtxOp op, const u64 *args, int n)
{
    bool commutes = op == PTX_ADD || op == PTX_MUL || op == PTX_FMA || op == PTX_MIN;
    u32 mode = op == PTX_MIN ? PTX_FLAG_NAN : PTX_FLAG_RN;
    if (op == PTX_MAX)
        return maximum(args[0], args[1]);
    for (int i = 0; n == 2 && i < 2; i++)
        if (is_unchanged(op, args[i], args[1 - i]))
            return args[i];
    u64 what = ptx_term_operation(op, PTX_T_F32, PTX_T_NONE, mode);
    u64 node = ptx_term_node(what, commutes, args, n);
    bool most = op == PTX_SUB && (args[1] & TERM_MAXIMUM || args[0] == args[1]);
    u64 falls = most ? TERM_FALL : 0;
    return node == TERM_POISON ? node : node | TERM_RESULT | falls | sign_of(op, args, n);
}

u64 ptx_term_select(u64 then, u64 other, u64 predicate)
{
    if (predicate & TERM_NOT)
        return ptx_term_select(other, then, predicate ^ TERM_NOT);
    const u64 args[] = {then, other, predicate};
    u64 what = ptx_term_operation(PTX_SELP, PTX_T_B32, PTX_T_NONE, 0);
    u64 node = ptx_term_node(what, false, args, 3);
    if (then == other)
        return then;
    return node == TERM_POISON ? node : node | (then & other & (TERM_RESULT | TERM_NO_SIGN));
}

static PtxCompare opposite(PtxCompare compare)
{
    switch (compare) {
    case PTX_EQ: return PTX_NE;
    case PTX_NE: return PTX_EQ;
    case PTX_LT: return PTX_GE;
    case PTX_LE: return PTX_GT;
    case PTX_GT: return PTX_LE;
    default: return PTX_LT;
    }
}

/* Written with `less` alone: its operands change places for `greater`; an unordered comparison is
 * what the opposite is not. */
u64 ptx_term_compare(PtxCompare compare, u64 a, u64 b)
{
    if (compare & PTX_UNORDERED)
        return TERM_NOT ^ ptx_term_compare(opposite((PtxCompare)(compare & ~PTX_UNORDERED)), a, b);
    bool turned = compare == PTX_GT || compare == PTX_GE;
    const u64 args[] = {turned ? b : a, turned ? a : b};
    u32 mode = compare == PTX_GT ? PTX_LT : compare == PTX_GE ? PTX_LE : compare;
    return ptx_term_node(ptx_term_operation(PTX_SETP, PTX_T_F32, PTX_T_NONE, mode),
                         compare == PTX_EQ || compare == PTX_NE, args, 2);
}

u64 ptx_term_test(u64 value)
{
    return TERM_TEST | (mix(mix(value) ^ 0x74657374u) & TERM_HASH);
}

/* What is rounded and its widening differ by this, so that one is had from the other. */
#define WIDENED ((u64)0x2c6fe96ee78b6a & TERM_HASH)

static u64 rounded_to(PtxType type)
{
    return type == PTX_T_BF16 ? TERM_BF16 : TERM_F16;
}

u64 ptx_term_narrow(PtxType type, u64 f32)
{
    if (f32 == ptx_term_const(0)) /* +0 is +0 in any type */
        return f32;
    if (f32 & rounded_to(type))
        return f32 ^ WIDENED;
    u64 what = ptx_term_operation(PTX_CVT, type, PTX_T_F32, PTX_FLAG_RN);
    u64 node = ptx_term_node(what, false, &f32, 1);
    return node == TERM_POISON ? node : node | rounded_to(type);
}

u64 ptx_term_widen(PtxType type, u64 half)
{
    if (half == ptx_term_const(0))
        return half;
    if (half & rounded_to(type))
        return half ^ WIDENED;
    PtxOp op = type == PTX_T_BF16 ? PTX_SHL : PTX_CVT;
    return ptx_term_node(ptx_term_operation(op, PTX_T_F32, type, 0), false, &half, 1);
}

u64 ptx_term_factor(u64 term)
{
    u64 x = mix(term ^ 0x70726f64756374u) & PRIME;
    return x == PRIME || x == 0 ? 1 : x;
}

u64 ptx_term_step(u64 accumulator, TermSum sum, bool any)
{
    if (accumulator == TERM_POISON)
        return accumulator;
    if (!any)
        return accumulator && !(accumulator & TERM_STEP) ? accumulator | TERM_ZEROED : accumulator;
    accumulator &= ~TERM_ZEROED;
    u64 x = (u64)(sum & PRIME) + (u64)(sum >> 61 & PRIME) + (u64)(sum >> 122);
    x = (x & PRIME) + (x >> 61);
    x = x >= PRIME ? x - PRIME : x;
    return reserved(mix(mix(accumulator + 0x73746570u) ^ x)) | TERM_RESULT | TERM_STEP;
}
