/* Whether a kernel's way from a score to a number is the rank of scores, for every score: scores
 * are halved until each comparison goes one way for all of a part, and what is left moves bits. */
#include "choice.h"

#include "device/iso_random.cuh"

#include <string.h>

enum { MOST_STEPS = 32, MOST_PARTS = 1 << 16, CONSTANT = -1, SCORE = -2 };

#define SIGN 0x80000000u
#define INFINITE 0x7f800000u

/* Of all scores of a part: each bit of a number is known, or is that bit of the score, or one that
 * is `shift` higher, or its opposite. A predicate is 0 or 1. */
typedef struct Bits {
    u32 known, value, turned;
    int shift;
} Bits;

typedef struct Step {
    const PtxNote *note;
    int from[PTX_NOTE_ARGS]; /* an earlier step, or one of the above */
    Bits bits;
} Step;

typedef struct Way {
    const PtxChoices *choices;
    int n, parts;
    Step step[MOST_STEPS];
    bool bound;      /* a predicate is looked at, and not a rank */
    u32 least[2], most[2]; /* ranks for which it is false, or true */
} Way;

/* ---- the steps in order ---------------------------------------------------------------------- */

/* The step that computes the term, `depth` steps from the last one; MOST_STEPS: there are too many,
 * or one is what it is computed of, turned twice. */
static int add_step(Way *w, PtxNoteArg arg, int depth)
{
    const PtxNote *note = ptx_choice_find(w->choices, arg.term);
    if (!arg.term)
        return CONSTANT;
    if (!note)
        return SCORE;
    for (int i = 0; i < w->n; i++)
        if (w->step[i].note == note)
            return i;
    if (depth == MOST_STEPS)
        return MOST_STEPS;
    Step step = {.note = note};
    for (int k = 0; k < note->n; k++) {
        step.from[k] = add_step(w, note->arg[k], depth + 1);
        if (step.from[k] == MOST_STEPS)
            return MOST_STEPS;
    }
    if (w->n == MOST_STEPS)
        return MOST_STEPS;
    w->step[w->n] = step;
    return w->n++;
}

/* ---- numbers of a part ----------------------------------------------------------------------- */

static Bits constant(u32 value)
{
    return (Bits){.known = ~0u, .value = value};
}

static u32 least(Bits x)
{
    return x.value & x.known;
}

static u32 most(Bits x)
{
    return x.value | ~x.known;
}

static bool same(Bits a, Bits b)
{
    return a.known == b.known && !((a.value ^ b.value) & a.known) &&
           !((a.turned ^ b.turned) & ~a.known) && (a.known == ~0u || a.shift == b.shift);
}

static Bits opposite(Bits x)
{
    return (Bits){x.known, ~x.value, ~x.turned, x.shift};
}

/* Whether two numbers' bits are those of the score at the same places. */
static bool meet(Bits a, Bits b)
{
    return a.known == ~0u || b.known == ~0u || a.shift == b.shift;
}

static u32 turned(Bits x)
{
    return x.turned & ~x.known;
}

static int shift_of(Bits a, Bits b)
{
    return a.known == ~0u ? b.shift : a.shift;
}

static Bits both(Bits a, Bits b)
{
    u32 no = (a.known & ~a.value) | (b.known & ~b.value) |
             (~a.known & ~b.known & (a.turned ^ b.turned));
    u32 yes = a.known & a.value & b.known & b.value;
    return (Bits){no | yes, yes, turned(a) | turned(b), shift_of(a, b)};
}

static Bits differing(Bits a, Bits b)
{
    u32 own = least(a) ^ least(b) ^ turned(a) ^ turned(b);
    return (Bits){~(a.known ^ b.known), own, own, shift_of(a, b)};
}

/* 1 or 0 for all of the part; -1: for some. */
static int is_equal(Bits a, Bits b)
{
    if ((a.value ^ b.value) & a.known & b.known)
        return 0;
    return same(a, b) ? 1 : -1;
}

/* `turn`: the bit that is a sign, or 0. */
static int is_less(Bits a, Bits b, bool or_equal, u32 turn)
{
    if ((a.known & b.known & turn) != turn)
        return -1;
    u32 a_least = least(a) ^ turn, a_most = most(a) ^ turn;
    u32 b_least = least(b) ^ turn, b_most = most(b) ^ turn;
    if (or_equal ? a_most <= b_least : a_most < b_least)
        return 1;
    return (or_equal ? a_least > b_most : a_least >= b_most) ? 0 : -1;
}

static u32 sign_of(const PtxInst *i)
{
    return i->type == PTX_T_S32 ? SIGN : i->type == PTX_T_S16 ? SIGN >> 16 : 0;
}

static int compare(const PtxInst *i, Bits a, Bits b)
{
    u32 turn = sign_of(i);
    int equal = is_equal(a, b);
    switch (i->compare) {
    case PTX_EQ: return equal;
    case PTX_NE: return equal < 0 ? equal : !equal;
    case PTX_LT: return is_less(a, b, false, turn);
    case PTX_LE: return is_less(a, b, true, turn);
    case PTX_GT: return is_less(b, a, false, turn);
    default: return is_less(b, a, true, turn);
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef enum Outcome { AGREES, DIFFERS, DIVIDES } Outcome;

static Outcome chosen(int which, Bits yes, Bits no, Bits *to)
{
    *to = which ? yes : no;
    return which < 0 ? DIVIDES : AGREES;
}

static Outcome do_inst(const PtxInst *i, const Bits *a, Bits *to)
{
    bool predicate = i->type == PTX_T_PRED, half = ptx_bits((PtxType)i->type) == 16;
    if (!meet(a[0], a[1]) || (half && i->op != PTX_SETP && i->op != PTX_SELP))
        return DIFFERS;
    switch (i->op) {
    case PTX_SETP: return chosen(compare(i, a[0], a[1]), constant(1), constant(0), to);
    case PTX_SELP:
        return chosen(a[2].known == ~0u ? (int)a[2].value : -1, a[0], a[1], to);
    case PTX_MIN:
        return chosen(is_less(a[0], a[1], true, sign_of(i)), a[0], a[1], to);
    case PTX_MAX:
        return chosen(is_less(a[0], a[1], true, sign_of(i)), a[1], a[0], to);
    case PTX_AND: *to = both(a[0], a[1]); return AGREES;
    case PTX_OR: *to = opposite(both(opposite(a[0]), opposite(a[1]))); return AGREES;
    case PTX_XOR: *to = differing(a[0], a[1]); return AGREES;
    case PTX_NOT: *to = predicate ? differing(a[0], constant(1)) : opposite(a[0]); return AGREES;
    default: return DIFFERS;
    }
}

static Bits shifted_up(Bits x)
{
    return (Bits){x.known << 16 | 0xffff, x.value << 16, x.turned << 16, x.shift - 16};
}

static Bits shifted_down(Bits x)
{
    return (Bits){x.known >> 16 | 0xffff0000u, x.value >> 16, x.turned >> 16, x.shift + 16};
}

static Outcome do_step(const Way *w, Bits score, Step *s)
{
    Bits arg[PTX_NOTE_ARGS] = {constant(0), constant(0), constant(0)};
    for (int k = 0; k < s->note->n; k++)
        arg[k] = s->from[k] == SCORE      ? s->note->half ? shifted_down(score) : score
                 : s->from[k] == CONSTANT ? constant(s->note->arg[k].bits)
                                          : w->step[s->from[k]].bits;
    switch (s->note->kind) {
    case PTX_NOTE_WIDE: s->bits = shifted_up(arg[0]); return AGREES;
    case PTX_NOTE_LOW: s->bits = arg[0]; return AGREES;
    case PTX_NOTE_MASK: s->bits = both(arg[0], arg[1]); return AGREES;
    default: return do_inst(s->note->inst, arg, &s->bits);
    }
}

/* ---- the rank -------------------------------------------------------------------------------- */

/* iso_score_rank, case by case; false: not one case for all of the part. */
static bool rank_of(Bits score, Bits *rank)
{
    Bits size = both(score, constant(~SIGN));
    bool number = most(size) <= INFINITE, zero = most(size) == 0;
    if (!(score.known & SIGN) || (!number && least(size) <= INFINITE) ||
        (!zero && least(size) == 0))
        return false;
    *rank = !number               ? constant(ISO_RANK_NAN)
            : zero                ? constant(SIGN)
            : score.value & SIGN  ? opposite(score)
                                  : opposite(both(opposite(score), constant(~SIGN)));
    return true;
}

static bool is_rank(u32 score, Bits rank, bool last)
{
    u32 bits = rank.known & rank.value;
    u32 from = last ? most((Bits){0}) : 0;
    bits |= ~rank.known & (from ^ rank.turned);
    return bits == iso_score_rank(iso_bits_f32(score));
}

/* A predicate is one for all of the part; the ranks that it holds for, or does not, are kept. */
static Outcome part_is_bound(Way *w, Bits rank)
{
    Bits holds = w->step[w->n - 1].bits;
    if (holds.known != ~0u)
        return DIVIDES;
    u32 lo = least(rank), hi = most(rank), which = holds.value & 1;
    w->least[which] = lo < w->least[which] ? lo : w->least[which];
    w->most[which] = hi > w->most[which] ? hi : w->most[which];
    return AGREES;
}

static Outcome part_agrees(Way *w, Bits score)
{
    Bits rank;
    for (int i = 0; i < w->n; i++) {
        Outcome outcome = do_step(w, score, &w->step[i]);
        if (outcome != AGREES)
            return outcome;
    }
    if (!rank_of(score, &rank))
        return DIVIDES;
    if (w->bound)
        return part_is_bound(w, rank);
    bool text = is_rank(least(score), rank, false) && is_rank(most(score), rank, true);
    return text && same(rank, w->step[w->n - 1].bits) ? AGREES : DIFFERS;
}

/* The scores with these bits, of which `free` lower ones are any. */
static bool all_agree(Way *w, u32 bits, u32 always, int free)
{
    u32 any = free ? ~0u >> (32 - free) & ~always : 0;
    Bits score = {.known = ~any, .value = bits};
    Outcome outcome = w->parts++ < MOST_PARTS ? part_agrees(w, score) : DIFFERS;
    if (outcome != DIVIDES)
        return outcome == AGREES;
    if (!any)
        return false;
    return all_agree(w, bits, always, free - 1) &&
           all_agree(w, bits | 1u << (free - 1), always, free - 1);
}

static bool is_bound(Way *w, bool half)
{
    w->bound = true;
    w->parts = 0;
    w->least[0] = w->least[1] = ~0u;
    return all_agree(w, 0, half ? 0xffff : 0, 32) &&
           (w->most[0] < w->least[1] || w->most[1] < w->least[0]);
}

static PtxGives gives(const PtxChoices *h, const PtxNote *note)
{
    Way w = {.choices = h};
    if (add_step(&w, (PtxNoteArg){.term = note->term}, 0) != w.n - 1)
        return PTX_GIVES_OTHER;
    if (note->predicate)
        return is_bound(&w, note->half) ? PTX_GIVES_BOUND : PTX_GIVES_OTHER;
    return all_agree(&w, 0, note->half ? 0xffff : 0, 32) ? PTX_GIVES_RANK : PTX_GIVES_OTHER;
}

PtxGives ptx_choice_gives(PtxChoices *h, const PtxNote *note)
{
    PtxWays *ways = h->ways;
    for (int i = 0; i < ways->all.n; i++)
        if (ways->all.v[i].shape == note->shape)
            return ways->all.v[i].gives;
    PtxWay way = {note->shape, gives(h, note)};
    vec_push(ways->arena, &ways->all, way);
    return way.gives;
}
