/* Tests of values for Inf and NaN, and what their branches show. */
#include "tests.h"

#include "shadow.h"

enum { FIRST_BITS = 10 };

/* ---- facts ------------------------------------------------------------------------------------
 */

static u64 scatter(u64 x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static PtxFact *slot(const PtxTests *t, u64 key)
{
    u64 mask = ((u64)1 << t->bits) - 1, at = scatter(key) & mask;
    while (t->table[at].key && t->table[at].key != key)
        at = (at + 1) & mask;
    return &t->table[at];
}

static void grow(PtxTests *t)
{
    PtxFact *old = t->table;
    u64 n = old ? (u64)1 << t->bits : 0;
    t->bits = old ? t->bits + 1 : FIRST_BITS;
    t->table = arena_array(t->arena, PtxFact, (u64)1 << t->bits);
    for (u64 i = 0; i < n; i++)
        if (old[i].key)
            *slot(t, old[i].key) = old[i];
}

static void remember(PtxTests *t, u64 key, u64 value)
{
    if (!t->table || t->n * 2 > 1 << t->bits)
        grow(t);
    PtxFact *at = slot(t, key);
    t->n += at->key == 0;
    *at = (PtxFact){key, value};
}

static u64 recall(const PtxTests *t, u64 key)
{
    return t->table ? slot(t, key)->value : 0;
}

/* Keys of facts that are not terms of their own. */
static u64 key_of(u64 term, u32 mask)
{
    return scatter(term ^ (u64)mask << 40) | 1;
}

void ptx_tests_know(PtxTests *t, u64 term, u64 flags)
{
    remember(t, key_of(term & TERM_HASH, 1), flags);
}

u64 ptx_tests_flags(const PtxTests *t, u64 term)
{
    return recall(t, key_of(term & TERM_HASH, 1));
}

static u32 exponent_of(PtxType type)
{
    return type == PTX_T_F16 ? 0x7c00 : 0x7f80;
}

bool ptx_tests_finite(PtxTests *t, PtxType type, u64 value)
{
    bool known = recall(t, key_of(value, exponent_of(type))) != 0;
    t->zeros += known;
    return known;
}

/* ---- what tests -------------------------------------------------------------------------------
 */

static u32 number(const PtxWarp *w, const PtxArg *arg, int l)
{
    return arg->width == 1 ? w->file[arg->row] >> l & 1 : (u32)ptx_value(w, arg, l);
}

static bool is_exponent(u32 half)
{
    return half == 0x7c00 || half == 0x7f80;
}

/* One half of a word and a mask of exponents: what it was made of is kept. */
static void note_exponent(PtxTests *t, u64 half, u64 value, u32 mask)
{
    if (half > TERM_UNDEFINED && value > TERM_UNDEFINED && is_exponent(mask))
        remember(t, half ^ mask, value);
}

/* and.b32 of a word with a mask: as any other operation, but its halves are noted. */
static void note_and(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, const PtxTerms *out)
{
    PtxTerms a = *ptx_terms(w, &i->args[1], l), b = *ptx_terms(w, &i->args[2], l);
    u32 mask = number(w, &i->args[b.lo | b.hi ? 1 : 2], l);
    PtxTerms from = b.lo | b.hi ? b : a;
    if ((a.lo | a.hi) && (b.lo | b.hi))
        return;
    note_exponent(c->launch->tests, out->lo, from.lo, mask & 0xffff);
    note_exponent(c->launch->tests, out->hi, from.hi, mask >> 16);
}

void ptx_shadow_note(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, const PtxTerms *out)
{
    if (c->launch->tests && i->op == PTX_AND && i->args[0].width == 32)
        note_and(c, w, i, l, out);
}

/* setp.eq of a masked word with the mask. */
static bool compares(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, u64 *test)
{
    PtxTests *t = c->launch->tests;
    PtxTerms a = *ptx_terms(w, &i->args[1], l), b = *ptx_terms(w, &i->args[2], l);
    u32 mask = number(w, &i->args[2], l), value = number(w, &i->args[1], l);
    if (i->compare != PTX_EQ || b.lo | b.hi || a.hi == TERM_WHOLE || (a.lo && a.hi))
        return false;
    u32 own = a.lo ? mask & 0xffff : mask >> 16, rest = a.lo ? mask >> 16 : mask & 0xffff;
    u32 stands = a.lo ? value >> 16 : value & 0xffff;
    u64 of = is_exponent(own) && rest == stands ? recall(t, (a.lo | a.hi) ^ own) : 0;
    if (!of)
        return false;
    *test = ptx_term_test(of ^ own);
    PtxTested tested = {*test & TERM_HASH, of, own};
    vec_push(c->arena, &w->tested[l], tested);
    return true;
}

static bool is_test(u64 term)
{
    return (term & TERM_TEST) != 0;
}

static bool is_zero(PtxWarp *w, const PtxArg *arg, int l)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    return !(t.lo | t.hi) && number(w, arg, l) == 0;
}

/* A test or a concrete 0 from each side; two tests are one. */
static bool either(PtxWarp *w, const PtxInst *i, int l, u64 *test)
{
    u64 a = ptx_terms(w, &i->args[1], l)->lo, b = ptx_terms(w, &i->args[2], l)->lo;
    bool has_a = is_test(a), has_b = is_test(b);
    if ((!has_a && !is_zero(w, &i->args[1], l)) || (!has_b && !is_zero(w, &i->args[2], l)) ||
        (a | b) & TERM_NOT)
        return false;
    *test = has_a && has_b ? ptx_term_either(a, b) : has_a ? a : b;
    return has_a || has_b;
}

/* selp 1, 0 and setp.ne 0, not: a test as an integer, and back; what is turned has a flag. */
static bool converts(PtxWarp *w, const PtxInst *i, int l, u64 *test)
{
    u64 a = ptx_terms(w, &i->args[i->op == PTX_SELP ? 3 : 1], l)->lo;
    *test = a;
    if (!is_test(a))
        return false;
    if (i->op == PTX_NOT)
        *test = a ^ TERM_NOT;
    if (i->op == PTX_NOT)
        return i->type == PTX_T_PRED;
    if (i->op == PTX_SELP)
        return number(w, &i->args[1], l) == 1 && is_zero(w, &i->args[2], l) &&
               !ptx_terms(w, &i->args[1], l)->lo;
    if (i->compare == PTX_EQ)
        *test = a ^ TERM_NOT;
    return (i->compare == PTX_NE || i->compare == PTX_EQ) && is_zero(w, &i->args[2], l);
}

bool ptx_shadow_test(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    u64 test = TERM_CONCRETE;
    bool is = false;
    switch (i->op) {
    case PTX_SETP: is = compares(c, w, i, l, &test) || converts(w, i, l, &test); break;
    case PTX_OR: is = either(w, i, l, &test); break;
    case PTX_NOT:
    case PTX_SELP: is = converts(w, i, l, &test); break;
    default: break;
    }
    *out = (PtxTerms){test, is && i->args[0].width == 32 ? TERM_WHOLE : TERM_CONCRETE};
    return is;
}

/* ---- branches ---------------------------------------------------------------------------------
 */

/* All that the lane tested, if that is what the branch tests: then it has shown them finite. */
static void conclude(PtxCta *c, PtxWarp *w, int l, u64 test, bool odd)
{
    PtxTests *t = c->launch->tests;
    u64 sum = 0;
    for (int k = 0; k < w->tested[l].n; k++)
        sum += w->tested[l].v[k].hash;
    for (int k = 0; !odd && (sum & TERM_HASH) == (test & TERM_HASH) && k < w->tested[l].n; k++)
        remember(t, key_of(w->tested[l].v[k].value, w->tested[l].v[k].mask), 1);
    t->taken[odd]++;
    w->tested[l].n = 0;
}

bool ptx_shadow_tested(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 lanes)
{
    const PtxArg guard = {.row = i->guard, .width = 1};
    if (!c->launch->tests)
        return false;
    lanes &= w->taint[i->guard];
    for (u32 rest = lanes; rest; rest &= rest - 1)
        if (!is_test(ptx_terms(w, &guard, __builtin_ctz(rest))->lo))
            return false;
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 test = ptx_terms(w, &guard, l)->lo;
        bool turned = (test & TERM_NOT) != 0;
        conclude(c, w, l, test, (w->file[i->guard] >> l & 1) != turned);
    }
    return true;
}
