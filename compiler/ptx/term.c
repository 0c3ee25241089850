/* Hashes of expressions. */
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

u64 ptx_term_const(u32 bits)
{
    return reserved(mix(mix(0x636f6e7374u) ^ bits));
}

u64 ptx_term_leaf(u64 input, u64 index)
{
    return reserved(mix(mix(input + 0x6c656166u) ^ index));
}

u64 ptx_term_f32(PtxOp op, const u64 *args, int n)
{
    bool commutes = op == PTX_ADD || op == PTX_MUL || op == PTX_FMA || op == PTX_MIN ||
                    op == PTX_MAX;
    u32 mode = op == PTX_MIN || op == PTX_MAX ? PTX_FLAG_NAN : PTX_FLAG_RN;
    return ptx_term_node(ptx_term_operation(op, PTX_T_F32, PTX_T_NONE, mode), commutes, args, n);
}

u64 ptx_term_narrow(PtxType type, u64 f32)
{
    return ptx_term_node(ptx_term_operation(PTX_CVT, type, PTX_T_F32, PTX_FLAG_RN), false, &f32, 1);
}

u64 ptx_term_widen(PtxType type, u64 half)
{
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
    if (!any || accumulator == TERM_POISON)
        return accumulator;
    u64 x = (u64)(sum & PRIME) + (u64)(sum >> 61 & PRIME) + (u64)(sum >> 122);
    x = (x & PRIME) + (x >> 61);
    x = x >= PRIME ? x - PRIME : x;
    return reserved(mix(mix(accumulator + 0x73746570u) ^ x));
}
