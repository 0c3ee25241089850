/* A branch around arithmetic, on a comparison of inputs: both ways are computed, and each register
 * that differs becomes a selection by the comparison's term. What else depends on an input branches
 * nowhere. */
#include "shadow.h"

#include "tests.h"

#include <string.h>

/* Instructions [start, end). */
typedef struct Arm {
    int start, end;
} Arm;

typedef struct Fork {
    Arm fall, jump; /* the ways where the branch is not taken, and where it is */
    int join;
} Fork;

static bool is_arithmetic(const PtxInst *i)
{
    return !i->guarded && i->op <= PTX_SELP && i->n_operands > 0;
}

/* The first instruction from `at` on, before `end`, that is no arithmetic. */
static int arithmetic_end(const PtxKernel *k, int at, int end)
{
    while (at < end && is_arithmetic(&k->code.v[at]))
        at++;
    return at;
}

/* if (!p) { fall } join, or if (!p) { fall; bra join } else { jump } join. */
static bool find_fork(const PtxKernel *k, int at, Fork *f)
{
    int target = k->code.v[at].target, end = arithmetic_end(k, at + 1, target);
    if (target <= at)
        return false;
    f->fall = (Arm){at + 1, end};
    f->jump = (Arm){target, target};
    f->join = target;
    if (end == target)
        return true;
    const PtxInst *last = &k->code.v[end];
    if (last->op != PTX_BRA || last->guarded || end + 1 != target || last->target < target)
        return false;
    f->jump.end = f->join = last->target;
    return arithmetic_end(k, target, f->join) == f->join;
}

/* ---- registers that the arms write ----------------------------------------------------------- */

typedef struct Saved {
    PtxArg arg;
    u32 number[2 * PTX_WARP];
    PtxTerms terms[PTX_WARP];
    u32 taint;
} Saved;

/* A branch's ways and what they write, found when it is first met. */
struct PtxFork {
    Fork ways;
    int n;
    Saved *before, *fall, *jump; /* each register before, and after either way */
};

static u32 words_of(const PtxArg *arg)
{
    return arg->width == 64 ? 2 * PTX_WARP : arg->width == 1 ? 1 : PTX_WARP;
}

static void save(const PtxWarp *w, Saved *s)
{
    memcpy(s->number, w->file + s->arg.row, words_of(&s->arg) * 4);
    memcpy(s->terms, w->shadow + s->arg.row, sizeof s->terms);
    s->taint = w->taint[s->arg.row];
}

static void restore(PtxWarp *w, const Saved *s)
{
    memcpy(w->file + s->arg.row, s->number, words_of(&s->arg) * 4);
    memcpy(w->shadow + s->arg.row, s->terms, sizeof s->terms);
    w->taint[s->arg.row] = s->taint;
}

static void find_written(PtxCta *c, Arm arm, PtxFork *f)
{
    for (int pc = arm.start; pc < arm.end; pc++) {
        const PtxInst *i = &c->launch->kernel->code.v[pc];
        for (int k = 0; k < i->count[0]; k++) {
            bool known = false;
            for (int r = 0; r < f->n; r++)
                known |= f->before[r].arg.row == i->args[k].row;
            if (!known)
                f->before[f->n++].arg = i->args[k];
        }
    }
}

static int most_written(const PtxCta *c, Arm arm)
{
    int n = 0;
    for (int pc = arm.start; pc < arm.end; pc++)
        n += c->launch->kernel->code.v[pc].count[0];
    return n;
}

/* NULL: its ways are not arithmetic alone. */
static PtxFork *fork_at(PtxCta *c, int at)
{
    if (!c->forks)
        c->forks = arena_array(c->arena, PtxFork *, c->launch->kernel->code.n);
    if (c->forks[at])
        return c->forks[at];
    Fork ways;
    if (!find_fork(c->launch->kernel, at, &ways))
        return NULL;
    PtxFork *f = c->forks[at] = arena_new_of(c->arena, PtxFork);
    int most = most_written(c, ways.fall) + most_written(c, ways.jump) + 1;
    f->ways = ways;
    f->before = arena_array(c->arena, Saved, most);
    find_written(c, ways.fall, f);
    find_written(c, ways.jump, f);
    f->fall = arena_array(c->arena, Saved, f->n + 1);
    f->jump = arena_array(c->arena, Saved, f->n + 1);
    for (int r = 0; r < f->n; r++)
        f->fall[r].arg = f->jump[r].arg = f->before[r].arg;
    return f;
}

/* ---- both ways ------------------------------------------------------------------------------- */

static bool run_arm(PtxCta *c, PtxWarp *w, Arm arm, u32 mask)
{
    for (int pc = arm.start; pc < arm.end; pc++) {
        const PtxInst *i = &c->launch->kernel->code.v[pc];
        c->report->instructions++;
        if (c->report->covered)
            c->report->covered[pc] = 1;
        if (!ptx_shadow(c, w, i, mask) || !i->run(c, w, i, mask))
            return false;
    }
    return true;
}

static u64 value_term(const Saved *s, int l)
{
    PtxTerms t = s->terms[l];
    if (s->arg.width == 32)
        return ptx_word_term(t, s->number[l]);
    return t.lo ? t.lo : ptx_term_const(s->arg.width == 1 ? s->number[0] >> l & 1 : s->number[l]);
}

static void put_number(PtxWarp *w, const Saved *from, int l)
{
    u32 *to = w->file + from->arg.row, bit = 1u << l;
    if (from->arg.width == 1)
        *to = (*to & ~bit) | (from->number[0] & bit);
    else if (from->arg.width == 64)
        memcpy(to + 2 * l, from->number + 2 * l, 8);
    else
        to[l] = from->number[l];
}

static bool same(const Saved *a, const Saved *b, int l)
{
    bool numbers = a->arg.width == 1 ? !((a->number[0] ^ b->number[0]) >> l & 1)
                   : a->arg.width == 64 ? !memcmp(a->number + 2 * l, b->number + 2 * l, 8)
                                        : a->number[l] == b->number[l];
    bool concrete = !(a->terms[l].lo | a->terms[l].hi);
    return a->terms[l].lo == b->terms[l].lo && a->terms[l].hi == b->terms[l].hi &&
           (!concrete || numbers);
}

/* One lane of one register: `jump` where the branch was taken. */
static bool merge(PtxCta *c, PtxWarp *w, const PtxInst *i, const Saved *fall, const Saved *jump,
                  int l)
{
    const PtxArg guard = {.row = i->guard, .width = 1};
    u64 test = ptx_terms(w, &guard, l)->lo;
    bool holds = w->file[i->guard] >> l & 1, taken = holds != i->guard_not;
    const Saved *chosen = taken ? jump : fall;
    put_number(w, chosen, l);
    if (!test || same(fall, jump, l)) {
        ptx_set_terms(w, &chosen->arg, l, chosen->terms[l]);
        return true;
    }
    if (chosen->arg.width == 64)
        return ptx_fault(c, i, "64 bits that depend on an input, or on nothing");
    const Saved *yes = i->guard_not ? fall : jump, *no = i->guard_not ? jump : fall;
    u64 term = ptx_term_select(value_term(yes, l), value_term(no, l), test);
    ptx_set_terms(w, &chosen->arg, l,
                  (PtxTerms){term, chosen->arg.width == 32 ? TERM_WHOLE : TERM_CONCRETE});
    return true;
}

static bool run_both(PtxCta *c, PtxWarp *w, const PtxInst *i, PtxFork *f, u32 mask)
{
    for (int r = 0; r < f->n; r++) {
        if (f->before[r].arg.row == i->guard)
            return ptx_fault(c, i, "a branch whose guard changes before the ways meet");
        save(w, &f->before[r]);
    }
    if (!run_arm(c, w, f->ways.fall, mask))
        return false;
    for (int r = 0; r < f->n; r++) {
        save(w, &f->fall[r]);
        restore(w, &f->before[r]);
    }
    if (!run_arm(c, w, f->ways.jump, mask))
        return false;
    for (int r = 0; r < f->n; r++) {
        save(w, &f->jump[r]);
        for (u32 rest = mask; rest; rest &= rest - 1)
            if (!merge(c, w, i, &f->fall[r], &f->jump[r], __builtin_ctz(rest)))
                return false;
    }
    return true;
}

bool ptx_fork(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask, int *pc)
{
    const PtxArg guard = {.row = i->guard, .width = 1};
    u32 depends = w->taint[i->guard] & mask;
    bool undefined = false;
    for (u32 rest = depends; rest; rest &= rest - 1)
        undefined |= ptx_terms(w, &guard, __builtin_ctz(rest))->lo <= TERM_UNDEFINED;
    PtxFork *f = undefined ? NULL : fork_at(c, (int)(i - c->launch->kernel->code.v));
    if (!f)
        return ptx_fault(c, i, "is done or not depending on an input, or on nothing");
    if (!run_both(c, w, i, f, mask))
        return false;
    *pc = f->ways.join;
    return true;
}
