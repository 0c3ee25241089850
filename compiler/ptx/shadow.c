/* Terms of registers: moves keep them, pairs stay pairs, everything else is a node. */
#include "shadow.h"

#include "choice.h"
#include "tests.h"

#include <string.h>

static const PtxTerms nothing = {TERM_CONCRETE, TERM_CONCRETE};

static u64 pair_term(u64 lo, u64 hi)
{
    const u64 args[] = {lo, hi};
    return ptx_term_node(ptx_term_operation(PTX_MOV, PTX_T_B32, PTX_T_B16, 0), false, args, 2);
}

/* bf16 in the upper half of a word with nothing below is its widening. */
u64 ptx_word_term(PtxTerms t, u32 value)
{
    if (t.hi == TERM_WHOLE)
        return t.lo;
    if (!t.lo && !t.hi)
        return ptx_term_const(value);
    if (!t.lo && !(value & 0xffff))
        return ptx_term_widen(PTX_T_BF16, t.hi);
    return pair_term(t.lo ? t.lo : ptx_term_const(value & 0xffff),
                     t.hi ? t.hi : ptx_term_const(value >> 16));
}

/* ---- operands ---------------------------------------------------------------------------------
 */

static u32 value_of(const PtxWarp *w, const PtxArg *arg, int l)
{
    if (arg->width == 1)
        return w->file[arg->row] >> l & 1;
    return (u32)ptx_value(w, arg, l);
}

static u64 term_of_arg(PtxWarp *w, const PtxArg *arg, int l)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    if (arg->width == 32)
        return ptx_word_term(t, value_of(w, arg, l));
    return t.lo ? t.lo : ptx_term_const(value_of(w, arg, l));
}

static void set_whole(PtxWarp *w, const PtxArg *arg, int l, u64 term)
{
    ptx_set_terms(w, arg, l, (PtxTerms){term, arg->width == 32 ? TERM_WHOLE : TERM_CONCRETE});
}

/* ---- any operation ----------------------------------------------------------------------------
 */

static bool is_real(const PtxInst *i)
{
    switch (i->op) {
    case PTX_ADD:
    case PTX_SUB:
    case PTX_MUL:
    case PTX_DIV:
    case PTX_FMA:
    case PTX_SQRT:
    case PTX_MIN:
        return i->type == PTX_T_F32;
    case PTX_MAX:
        return i->type == PTX_T_F32 && i->flags & PTX_FLAG_NAN;
    case PTX_EX2:
        return true;
    default:
        return false;
    }
}

u64 ptx_shadow_operation(const PtxInst *i, const u64 *args, int n)
{
    if (is_real(i))
        return ptx_term_f32((PtxOp)i->op, args, n);
    if (i->op == PTX_NOT && i->type == PTX_T_PRED && args[0] > TERM_UNDEFINED)
        return args[0] ^ TERM_NOT;
    if (i->op == PTX_SELP)
        return ptx_term_select(args[0], args[1], args[2]);
    if (i->op == PTX_SETP && i->type == PTX_T_F32)
        return ptx_term_compare((PtxCompare)i->compare, args[0], args[1]);
    if (i->op == PTX_CVT && i->from == PTX_T_F32 && i->flags == PTX_FLAG_RN)
        return ptx_term_narrow((PtxType)i->type, args[0]);
    if (i->op == PTX_CVT && i->type == PTX_T_F32 && i->flags == 0)
        return ptx_term_widen((PtxType)i->from, args[0]);
    u32 mode = i->flags | (u32)i->compare << 16;
    u64 what = ptx_term_operation((PtxOp)i->op, (PtxType)i->type, (PtxType)i->from, mode);
    return ptx_term_node(what, false, args, n);
}

static void trace(PtxTrace *to, const PtxInst *i, const u64 *args, int n, u64 term)
{
    PtxTraceNode *node = arena_new_of(to->arena, PtxTraceNode);
    *node = (PtxTraceNode){.inst = i, .n = n, .term = term};
    memcpy(node->args, args, sizeof *args * (size_t)n);
    vec_push(to->arena, &to->nodes, *node);
}

/* A product of f32, or a number raised by its exponent, may be a function's last operation. */
static bool ends_function(const PtxInst *i, u64 term)
{
    return i->op == PTX_MUL ? (term & TERM_RESULT) != 0
                            : i->op == PTX_ADD && i->type == PTX_T_S32;
}

static void node(PtxCta *c, PtxWarp *w, const PtxInst *i, int l)
{
    u64 args[PTX_TRACE_ARGS];
    int n = 0;
    for (int k = 1; k < i->n_args && n < PTX_TRACE_ARGS; k++)
        args[n++] = term_of_arg(w, &i->args[k], l);
    u64 term = ptx_shadow_operation(i, args, n);
    if (c->launch->trace)
        trace(c->launch->trace, i, args, n, term);
    if (c->launch->choices)
        ptx_choice_note(c, w, i, l, args, n, term);
    if (c->launch->tests && ends_function(i, term))
        term |= ptx_tests_flags(c->launch->tests, term);
    set_whole(w, &i->args[0], l, term);
}

/* ---- words by halves --------------------------------------------------------------------------
 */

typedef struct Halves {
    u64 term[2];
    u32 value[2];
} Halves;

/* False for a whole term, which has no halves. */
static bool halves_of(PtxWarp *w, const PtxArg *arg, int l, Halves *h)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    u32 v = value_of(w, arg, l);
    *h = (Halves){{t.lo, t.hi}, {v & 0xffff, v >> 16}};
    return t.hi != TERM_WHOLE;
}

static bool is_zero(const Halves *h, int k)
{
    return !h->term[k] && h->value[k] == 0;
}

static bool is_ones(const Halves *h, int k)
{
    return !h->term[k] && h->value[k] == 0xffff;
}

/* A half's bits under a concrete mask. */
static bool masked(const Halves *a, const Halves *b, int k, u64 *term)
{
    const Halves *mask = a->term[k] ? b : a;
    if (mask->term[k] || mask->value[k] == 0 || mask->value[k] == 0xffff)
        return false;
    const u64 args[] = {a->term[k] | b->term[k], ptx_term_const(mask->value[k])};
    *term = ptx_term_node(ptx_term_operation(PTX_AND, PTX_T_B16, PTX_T_NONE, 0), false, args, 2);
    return true;
}

/* One half of and, or, xor; false where it needs a node of its own. */
static bool bits_half(PtxOp op, const Halves *a, const Halves *b, int k, u64 *term)
{
    *term = TERM_CONCRETE;
    if (!a->term[k] && !b->term[k])
        return true;
    if (op == PTX_AND && masked(a, b, k, term))
        return true;
    bool zero_a = is_zero(a, k), zero_b = is_zero(b, k);
    if (op == PTX_AND) {
        if (zero_a || zero_b)
            return true;
        if (!is_ones(a, k) && !is_ones(b, k))
            return false;
        *term = is_ones(a, k) ? b->term[k] : a->term[k];
        return true;
    }
    *term = zero_a ? b->term[k] : a->term[k];
    return zero_a || zero_b;
}

static bool by_halves(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Halves a, b;
    if (i->args[0].width != 32 || !halves_of(w, &i->args[1], l, &a) ||
        !halves_of(w, &i->args[2], l, &b))
        return false;
    switch (i->op) {
    case PTX_AND:
    case PTX_OR:
    case PTX_XOR:
        return bits_half((PtxOp)i->op, &a, &b, 0, &out->lo) &&
               bits_half((PtxOp)i->op, &a, &b, 1, &out->hi);
    case PTX_SHL:
        *out = (PtxTerms){TERM_CONCRETE, a.term[0]};
        return !b.term[0] && b.value[0] == 16 && b.value[1] == 0;
    case PTX_SHR:
        *out = (PtxTerms){a.term[1], TERM_CONCRETE};
        return !b.term[0] && b.value[0] == 16 && b.value[1] == 0 && i->type != PTX_T_S32;
    default:
        return false;
    }
}

/* Selections of whole halves. */
static bool permuted(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Halves a, b;
    if (!halves_of(w, &i->args[1], l, &a) || !halves_of(w, &i->args[2], l, &b) ||
        ptx_terms(w, &i->args[3], l)->lo)
        return false;
    u32 selector = value_of(w, &i->args[3], l);
    const u64 from[] = {a.term[0], a.term[1], b.term[0], b.term[1]};
    u64 to[2];
    for (int k = 0; k < 2; k++, selector >>= 8) {
        u32 low = selector & 15, high = selector >> 4 & 15;
        if (low & 9 || high != low + 1)
            return false;
        to[k] = from[low / 2];
    }
    *out = (PtxTerms){to[0], to[1]};
    return true;
}

/* ---- moves ------------------------------------------------------------------------------------
 */

static bool select_terms(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    if (ptx_terms(w, &i->args[3], l)->lo)
        return false;
    *out = *ptx_terms(w, &i->args[value_of(w, &i->args[3], l) ? 1 : 2], l);
    return true;
}

static bool move_terms(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    if (i->n_args == 2) {
        *out = *ptx_terms(w, &i->args[1], l);
        return true;
    }
    if (i->count[0] != 1)
        return false;
    *out = (PtxTerms){ptx_terms(w, &i->args[1], l)->lo, ptx_terms(w, &i->args[2], l)->lo};
    return true;
}

/* mov.b32 {lo, hi}, word */
static bool unpack(PtxWarp *w, const PtxInst *i, int l)
{
    PtxTerms t = *ptx_terms(w, &i->args[2], l);
    if (t.hi == TERM_WHOLE || i->args[2].width != 32)
        return false;
    ptx_set_terms(w, &i->args[0], l, (PtxTerms){t.lo, TERM_CONCRETE});
    ptx_set_terms(w, &i->args[1], l, (PtxTerms){t.hi, TERM_CONCRETE});
    return true;
}

/* Between 16 and 32 bits without a sign: the lower half stays. */
static bool widened(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    bool plain = (i->type == PTX_T_U32 || i->type == PTX_T_U16 || i->type == PTX_T_S32) &&
                 (i->from == PTX_T_U16 || i->from == PTX_T_U32);
    PtxTerms t = *ptx_terms(w, &i->args[1], l);
    if (!plain || t.hi == TERM_WHOLE)
        return false;
    *out = i->from == PTX_T_U32 && i->args[0].width == 32 ? t : (PtxTerms){t.lo, TERM_CONCRETE};
    return true;
}

static bool kept(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    *out = nothing;
    switch (i->op) {
    case PTX_MOV: return move_terms(w, i, l, out);
    case PTX_SELP: return select_terms(w, i, l, out);
    case PTX_CVT: return widened(w, i, l, out);
    case PTX_PRMT: return permuted(w, i, l, out);
    case PTX_AND:
    case PTX_OR:
    case PTX_XOR:
    case PTX_SHL:
    case PTX_SHR: return i->type != PTX_T_PRED && by_halves(w, i, l, out);
    default: return false;
    }
}

/* A mask takes bits from halves, of which a choice may be made. */
static void note_mask(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, const PtxTerms *out)
{
    PtxTerms a = *ptx_terms(w, &i->args[1], l), b = *ptx_terms(w, &i->args[2], l);
    u32 mask = value_of(w, &i->args[b.lo | b.hi ? 1 : 2], l);
    PtxTerms from = b.lo | b.hi ? b : a;
    if (out->lo != from.lo)
        ptx_choice_note_mask(c, from.lo, mask & 0xffff, out->lo);
    if (out->hi != from.hi)
        ptx_choice_note_mask(c, from.hi, mask >> 16, out->hi);
}

static bool lane(PtxCta *c, PtxWarp *w, const PtxInst *i, int l)
{
    PtxTerms out;
    if (i->op == PTX_MOV && i->count[0] == 2)
        return unpack(w, i, l) || ptx_choice_apart(c, w, i, l) ||
               ptx_fault(c, i, "takes a float apart");
    if (c->launch->choices && ptx_choice(c, w, i, l, &out)) {
        ptx_set_terms(w, &i->args[0], l, out);
        return true;
    }
    if (c->launch->choices && c->launch->choices->by_value && ptx_choice_settle(c, w, i, l))
        return true;
    if (c->launch->tests && ptx_shadow_test(c, w, i, l, &out)) {
        ptx_set_terms(w, &i->args[0], l, out);
        return true;
    }
    if (kept(w, i, l, &out)) {
        ptx_shadow_note(c, w, i, l, &out);
        if (c->launch->choices && i->op == PTX_AND && i->args[0].width == 32)
            note_mask(c, w, i, l, &out);
        ptx_set_terms(w, &i->args[0], l, out);
        return true;
    }
    if (i->args[0].width == 64)
        return ptx_fault(c, i, "64 bits that depend on an input, or on nothing");
    node(c, w, i, l);
    return true;
}

/* Two numbers rounded into one word, the first into the upper half. */
static bool narrow_pair(PtxWarp *w, const PtxInst *i, u32 mask)
{
    PtxType type = i->op == PTX_CVT_BF16X2 ? PTX_T_BF16 : PTX_T_F16;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        PtxTerms t = nothing;
        if (w->taint[i->args[1].row] >> l & 1)
            t.hi = ptx_term_narrow(type, term_of_arg(w, &i->args[1], l));
        if (w->taint[i->args[2].row] >> l & 1)
            t.lo = ptx_term_narrow(type, term_of_arg(w, &i->args[2], l));
        ptx_set_terms(w, &i->args[0], l, t);
    }
    return true;
}

/* ---- shuffles: the numbers are moved by the instruction, the terms alike */

static bool shuffled(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    int first = i->n_args - 4;
    PtxTerms old[PTX_WARP];
    for (int l = 0; l < PTX_WARP; l++)
        old[l] = *ptx_terms(w, &i->args[first], l);
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        int from = ptx_shuffle_source(w, i, l);
        for (int k = first + 1; k < i->n_args; k++)
            if (ptx_terms(w, &i->args[k], l)->lo)
                return ptx_fault(c, i, "an operand that depends on an input, or on nothing");
        ptx_set_terms(w, &i->args[0], l, old[from]);
        if (first == 2)
            ptx_set_terms(w, &i->args[1], l, nothing);
    }
    return true;
}

/* ---- all instructions -------------------------------------------------------------------------
 */

static u32 sources_taint(const PtxWarp *w, const PtxInst *i, int first)
{
    u32 taint = 0;
    for (int k = first; k < i->n_args; k++)
        if (i->args[k].kind == PTX_REG || i->args[k].kind == PTX_ADDR)
            taint |= w->taint[i->args[k].row];
    return taint;
}

static bool arithmetic(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    int results = i->n_operands ? i->count[0] : 0;
    u32 taint = sources_taint(w, i, results) & mask;
    for (int k = 0; k < results; k++)
        w->taint[i->args[k].row] &= ~(mask & ~taint);
    for (u32 rest = mask & ~taint; rest; rest &= rest - 1)
        for (int k = 0; k < results; k++)
            *ptx_terms(w, &i->args[k], __builtin_ctz(rest)) = nothing;
    for (u32 rest = taint; rest; rest &= rest - 1)
        if (!lane(c, w, i, __builtin_ctz(rest)))
            return false;
    return true;
}

/* How many of the first operands are written. */
static int written_operands(const PtxInst *i)
{
    switch (i->op) {
    case PTX_WGMMA: return i->vec * 4;
    case PTX_LDMATRIX:
    case PTX_LDMATRIX_T: return 4;
    case PTX_ELECT: return 2;
    case PTX_CVTA:
    case PTX_CVTA_PARAM:
    case PTX_CVTA_LOCAL:
    case PTX_ATOM_INC:
    case PTX_ATOM_ADD:
    case PTX_ATOM_SHARED_ADD:
    case PTX_BALLOT:
    case PTX_REDUX_MAX:
    case PTX_REDUX_MIN:
    case PTX_MAPA:
    case PTX_MBAR_TRY: return 1;
    default: return 0;
    }
}

/* Barriers, copies, descriptors: nothing of theirs may depend on an input. */
static bool concrete(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    int first = written_operands(i);
    bool left = i->op == PTX_WGMMA && i->n_args == first + 9; /* in four registers */
    if (sources_taint(w, i, first + (left ? 4 : 0)) & mask)
        return ptx_fault(c, i, "an operand that depends on an input, or on nothing");
    for (int k = 0; k < first && i->op != PTX_WGMMA; k++)
        for (u32 rest = mask; rest; rest &= rest - 1)
            ptx_set_terms(w, &i->args[k], __builtin_ctz(rest), nothing);
    return true;
}

/* Values are sent with their terms (cluster.c); where to must not depend on an input. */
static bool addresses(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    u32 taint = 0;
    for (int k = 0; k < i->n_args; k++)
        if (i->args[k].kind == PTX_ADDR)
            taint |= w->taint[i->args[k].row] & mask;
    return !taint || ptx_fault(c, i, "an address that depends on an input, or on nothing");
}

bool ptx_shadow(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    if (i->guarded && w->taint[i->guard] & w->group[w->current].mask && i->op != PTX_BRA)
        return ptx_fault(c, i, "is done or not depending on an input, or on nothing");
    if (!mask)
        return true;
    switch (i->op) {
    case PTX_LD: return ptx_shadow_load(c, w, i, mask);
    case PTX_ST: return ptx_shadow_store(c, w, i, mask);
    case PTX_SHFL_DOWN:
    case PTX_SHFL_UP:
    case PTX_SHFL_BFLY:
    case PTX_SHFL_IDX: return shuffled(c, w, i, mask);
    case PTX_LDMATRIX:
    case PTX_LDMATRIX_T: return concrete(c, w, i, mask) && ptx_shadow_ldmatrix(c, w, i);
    case PTX_MMA_BF16:
    case PTX_MMA_F16: return ptx_shadow_mma(c, w, i);
    case PTX_CVT_BF16X2:
    case PTX_CVT_F16X2: return narrow_pair(w, i, mask);
    case PTX_SEND: return addresses(c, w, i, mask);
    case PTX_REDUX_MAX:
    case PTX_REDUX_MIN: return ptx_choice_of_lanes(c, w, i, mask) || concrete(c, w, i, mask);
    case PTX_EX2: return arithmetic(c, w, i, mask);
    default:
        return i->op <= PTX_TRAP ? arithmetic(c, w, i, mask) : concrete(c, w, i, mask);
    }
}
