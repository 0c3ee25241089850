/* Operations on constants, which the machine computes: what an index that is none gives is one. */
#include "verify_terms_impl.h"

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"

/* Keys of constants' patterns in what was computed before. */
static u64 key_of(u64 constant)
{
    return (constant ^ 0x636f6e7374616e74u) | 1;
}

u64 terms_constant(Terms *t, u32 bits)
{
    u64 term = ptx_term_const(bits);
    if (!terms_recall(t, key_of(term)))
        terms_remember(t, key_of(term), (u64)1 << 32 | bits);
    return term;
}

bool terms_is_constant(const Terms *t, u64 term, u32 *bits)
{
    u64 found = terms_recall(t, key_of(term));
    *bits = (u32)found;
    return found != 0;
}

static float function(FnId fn, const float *x)
{
    switch (fn) {
#define CALL_1(function) function(x[0])
#define CALL_2(function) function(x[0], x[1])
#define X(id, name, arity, function)                                                               \
    case FN_##id: return CALL_##arity(function);
#include "base/scalar.def"
#undef X
    default: return 0.0f;
    }
}

static float operation(const DagNode *node, const float *x)
{
    switch (node->kind) {
    case DAG_NEG: return iso_neg(x[0]);
    case DAG_ADD: return iso_add(x[0], x[1]);
    case DAG_SUB: return iso_sub(x[0], x[1]);
    case DAG_MUL: return iso_mul(x[0], x[1]);
    case DAG_DIV: return iso_div(x[0], x[1]);
    case DAG_FN: return function(node->fn, x);
    default: return x[0];
    }
}

u64 terms_folded(Terms *t, const DagNode *node, const u64 *args)
{
    float x[2] = {0};
    for (int i = 0; i < node->n_args; i++) {
        u32 bits;
        if (i >= 2 || !terms_is_constant(t, args[i], &bits))
            return TERM_CONCRETE;
        x[i] = iso_bits_f32(bits);
    }
    float y = operation(node, x);
    return terms_constant(t, node->type == DT_BF16  ? iso_bf16_of_f32(y)
                             : node->type == DT_F16 ? iso_f16_of_f32(y)
                                                    : iso_f32_bits(y));
}

u64 terms_widened(Terms *t, DType type, u64 value)
{
    u32 bits;
    if (type == DT_F32 || !terms_is_constant(t, value, &bits))
        return terms_widen(type, value);
    return terms_constant(t, iso_f32_bits(type == DT_BF16 ? iso_f32_of_bf16((IsoU16)bits)
                                                          : iso_f32_of_f16((IsoU16)bits)));
}
