/* Choices by numbers. Limits count the digits of ranks and sum weights as integers, which is more
 * than to compare: a rank is its number to all that does not compare it, and so are an f32 that
 * becomes an integer and a predicate that decides. Their terms are kept, to be compared with the
 * contract's. */
#include "choice.h"

#include "shadow.h"

enum { WORD = 32 };

void ptx_choice_by_value(PtxChoices *h, u64 term)
{
    if (term > TERM_UNDEFINED)
        ptx_choice_pair(&h->values, term & ~TERM_NOT, h->arena);
}

/* What is left of a term of one word. */
static u64 settled(PtxChoices *h, u64 term, u32 number)
{
    if (term <= TERM_UNDEFINED || !ptx_choice_is_rank(h, term))
        return term;
    ptx_choice_meet(h, term, number);
    return TERM_CONCRETE;
}

static void settle(PtxChoices *h, PtxWarp *w, const PtxArg *arg, int l)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    u64 value = ptx_value(w, arg, l);
    bool wide = arg->width == 2 * WORD;
    if (!wide && t.hi != TERM_WHOLE)
        return;
    u64 lo = settled(h, t.lo, (u32)value), hi = wide ? settled(h, t.hi, (u32)(value >> WORD))
                                                     : lo ? TERM_WHOLE : TERM_CONCRETE;
    ptx_set_terms(w, arg, l, (PtxTerms){lo, hi});
}

bool ptx_choice_settle(PtxCta *c, PtxWarp *w, const PtxInst *i, int l)
{
    int results = i->n_operands ? i->count[0] : 0;
    bool left = false;
    c->launch->choices->warp = w->index;
    for (int k = results; k < i->n_args; k++) {
        const PtxArg *arg = &i->args[k];
        if (arg->kind != PTX_REG || !(w->taint[arg->row] >> l & 1))
            continue;
        if (arg->width >= WORD)
            settle(c->launch->choices, w, arg, l);
        left |= w->taint[arg->row] >> l & 1;
    }
    for (int k = 0; !left && k < results; k++)
        ptx_set_terms(w, &i->args[k], l, (PtxTerms){TERM_CONCRETE, TERM_CONCRETE});
    return !left;
}

bool ptx_choice_logic(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    u64 a = ptx_terms(w, &i->args[1], l)->lo, b = ptx_terms(w, &i->args[2], l)->lo;
    const PtxArg *known = &i->args[a ? 2 : 1];
    if (a && b)
        return false;
    bool holds = w->file[known->row] >> l & 1;
    *out = (PtxTerms){holds == (i->op == PTX_OR) ? TERM_CONCRETE : a | b, TERM_CONCRETE};
    return true;
}
