/* Comparisons of ranks, and the ways that these take from a score to a comparison. */
#include "choice.h"

#include "shadow.h"

#include <string.h>

enum { FIRST_BITS = 10, MOST_BITS = 15, WORD = 32 };

#define KNOWN ((u64)1 << WORD) /* beside a score's rank: to the contract */

/* ---- tables ---------------------------------------------------------------------------------- */

static u64 scatter(u64 x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static PtxPair *pair_slot(const PtxPairs *p, u64 term)
{
    u64 mask = ((u64)1 << p->bits) - 1, at = scatter(term) & mask;
    while (p->v[at].term && p->v[at].term != term)
        at = (at + 1) & mask;
    return &p->v[at];
}

/* The term's; a new one has the value 0. */
PtxPair *ptx_choice_pair(PtxPairs *p, u64 term, Arena *arena)
{
    if (!p->v || p->n * 2 > 1 << p->bits) {
        const PtxPairs old = *p;
        p->bits = old.v ? old.bits + 1 : FIRST_BITS;
        p->v = arena_array(arena, PtxPair, (u64)1 << p->bits);
        for (u64 i = 0; old.v && i < (u64)1 << old.bits; i++)
            if (old.v[i].term)
                *pair_slot(p, old.v[i].term) = old.v[i];
    }
    PtxPair *at = pair_slot(p, term);
    p->n += at->term == 0;
    at->term = term;
    return at;
}

static PtxNote *note_slot(const PtxNotes *n, u64 term)
{
    u64 mask = ((u64)1 << n->bits) - 1, at = scatter(term) & mask;
    while (n->v[at].term && n->v[at].term != term)
        at = (at + 1) & mask;
    return &n->v[at];
}

/* What was noted long ago is forgotten. */
static void make_room(PtxChoices *h)
{
    PtxNotes *notes = &h->notes[h->warp], *older = &h->older[h->warp];
    const PtxNotes old = *notes;
    bool full = old.v && old.n * 2 > 1 << old.bits;
    if (old.v && !full)
        return;
    if (full && old.bits == MOST_BITS) {
        *notes = *older;
        *older = old;
        notes->n = 0;
        if (notes->v)
            memset(notes->v, 0, sizeof *notes->v << notes->bits);
        if (notes->v)
            return;
    }
    notes->bits = !full ? FIRST_BITS : old.bits == MOST_BITS ? MOST_BITS : old.bits + 1;
    notes->v = arena_array(h->arena, PtxNote, (u64)1 << notes->bits);
    for (u64 i = 0; full && old.bits < MOST_BITS && i < (u64)1 << old.bits; i++)
        if (old.v[i].term)
            *note_slot(notes, old.v[i].term) = old.v[i];
}

static void put_note(PtxChoices *h, const PtxNote *note)
{
    make_room(h);
    PtxNotes *notes = &h->notes[h->warp];
    PtxNote *at = note_slot(notes, note->term);
    notes->n += at->term == 0;
    *at = *note;
}

const PtxNote *ptx_choice_find(const PtxChoices *h, u64 term)
{
    const PtxNotes *of[] = {&h->notes[h->warp], &h->older[h->warp]};
    for (int k = 0; k < 2 && term > TERM_UNDEFINED; k++) {
        const PtxNote *at = of[k]->v ? note_slot(of[k], term) : NULL;
        if (at && at->term)
            return at;
    }
    return NULL;
}

/* ---- what the contract asks ------------------------------------------------------------------ */

bool ptx_choices_rank(PtxChoices *h, u64 score, u32 *rank)
{
    PtxPair *at = h->scores.v ? pair_slot(&h->scores, score) : NULL;
    if (!at || !at->term)
        return false;
    at->value |= KNOWN;
    *rank = (u32)at->value;
    return true;
}

void ptx_choices_allow(PtxChoices *h, u64 term)
{
    PtxPair *at = h->values.v ? pair_slot(&h->values, term & ~TERM_NOT) : NULL;
    if (at && at->term)
        at->value |= KNOWN;
}

static i64 foreign(const PtxPairs *p)
{
    i64 n = 0;
    for (u64 i = 0; p->v && i < (u64)1 << p->bits; i++)
        n += p->v[i].term && !(p->v[i].value & KNOWN);
    return n;
}

i64 ptx_choices_foreign(const PtxChoices *h)
{
    return foreign(&h->scores) + foreign(&h->values);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static bool is_noted(const PtxInst *i)
{
    switch (i->op) {
    case PTX_SETP:
    case PTX_AND:
    case PTX_OR:
    case PTX_XOR:
    case PTX_NOT:
    case PTX_SHL:
    case PTX_SHR:
    case PTX_ADD:
    case PTX_SUB:
    case PTX_MIN:
    case PTX_MAX: return i->type < PTX_T_BF16 && ptx_bits((PtxType)i->type) <= WORD;
    case PTX_SELP: return ptx_bits((PtxType)i->type) <= WORD;
    default: return false;
    }
}

/* Adds what the argument is computed of; false: of another score than the others. */
static bool add_argument(const PtxChoices *h, PtxNote *note, PtxNoteArg arg)
{
    const PtxNote *of = ptx_choice_find(h, arg.term);
    u64 score = !arg.term ? 0 : of ? of->score : arg.term;
    if (score && note->score && score != note->score)
        return false;
    note->score = score ? score : note->score;
    note->half |= of && of->half;
    u64 shape = of ? of->shape : arg.term ? 1 : scatter(arg.bits + 0x636f6e7374u);
    note->shape = scatter(note->shape * 3 ^ shape);
    note->arg[note->n++] = arg;
    return true;
}

static void note_half(PtxChoices *h, PtxNoteKind kind, u64 half, u64 word)
{
    PtxNote note = {.term = word, .kind = kind, .shape = 2 + (u64)kind, .half = true};
    if (add_argument(h, &note, (PtxNoteArg){.term = half}))
        put_note(h, &note);
}

void ptx_choice_note_mask(PtxCta *c, u64 half, u32 mask, u64 term)
{
    PtxChoices *h = c->launch->choices;
    PtxNote note = {.term = term, .kind = PTX_NOTE_MASK, .shape = 1 << 8, .half = true};
    if (half > TERM_UNDEFINED && term > TERM_UNDEFINED &&
        add_argument(h, &note, (PtxNoteArg){.term = half}) &&
        add_argument(h, &note, (PtxNoteArg){.bits = mask}))
        put_note(h, &note);
}

static u32 number(const PtxWarp *w, const PtxArg *arg, int l)
{
    return arg->width == 1 ? w->file[arg->row] >> l & 1 : (u32)ptx_value(w, arg, l);
}

/* An operand as a note has it; a word that has a term in one half alone, and zeros, is that. */
static PtxNoteArg argument(PtxCta *c, PtxWarp *w, const PtxArg *arg, int l, u64 term)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    if (!(t.lo | t.hi))
        return (PtxNoteArg){.bits = number(w, arg, l)};
    bool word = arg->width == WORD, below = (number(w, arg, l) & 0xffff) != 0;
    if (word && !t.lo && t.hi > TERM_UNDEFINED && !below)
        note_half(c->launch->choices, PTX_NOTE_WIDE, t.hi, term);
    if (word && !t.hi && t.lo > TERM_UNDEFINED && !(number(w, arg, l) >> 16))
        note_half(c->launch->choices, PTX_NOTE_LOW, t.lo, term);
    return (PtxNoteArg){.term = term};
}

void ptx_choice_note(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, const u64 *args, int n,
                     u64 term)
{
    PtxNote note = {.term = term, .kind = PTX_NOTE_INST, .inst = i,
                    .predicate = i->args[0].width == 1};
    if (!is_noted(i) || n > PTX_NOTE_ARGS || term <= TERM_UNDEFINED)
        return;
    note.shape = ptx_term_operation((PtxOp)i->op, (PtxType)i->type, PTX_T_NONE, i->compare);
    for (int k = 0; k < n; k++) {
        PtxNoteArg arg = argument(c, w, &i->args[k + 1], l, args[k]);
        if (arg.term == term) /* that changes nothing */
            return;
        note.half |= arg.term && i->args[k + 1].width == 16;
        if (!add_argument(c->launch->choices, &note, arg))
            return;
    }
    put_note(c->launch->choices, &note);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* A word, or two of them: each concrete or with a term. */
typedef struct Operand {
    u64 value, term[2];
    bool whole; /* no halves of words with terms of their own */
} Operand;

static Operand operand(PtxWarp *w, const PtxArg *arg, int l)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    Operand o = {.value = ptx_value(w, arg, l), .whole = true};
    if (arg->width == 64) {
        o.term[0] = t.lo, o.term[1] = t.hi;
    } else {
        o.term[0] = t.lo;
        o.whole = arg->width == WORD && (!(t.lo | t.hi) || t.hi == TERM_WHOLE);
    }
    return o;
}

/* A score as the contract has it: bf16 is widened. */
static u64 score_of(const PtxNote *note)
{
    return note->half ? ptx_term_widen(PTX_T_BF16, note->score) : note->score;
}

bool ptx_choice_is_rank(PtxChoices *h, u64 term)
{
    if (h->ranks.v && pair_slot(&h->ranks, term)->term)
        return true;
    const PtxNote *note = ptx_choice_find(h, term);
    if (!note || ptx_choice_gives(h, note) != PTX_GIVES_RANK)
        return false;
    ptx_choice_pair(&h->ranks, term, h->arena)->value = score_of(note);
    return true;
}

/* Concrete, or with a rank as its most significant word. */
static bool is_key(PtxChoices *h, const Operand *o, bool wide)
{
    u64 low = wide ? o->term[0] : 0, high = o->term[wide];
    return o->whole && !low && (!high || ptx_choice_is_rank(h, high));
}

void ptx_choice_meet(PtxChoices *h, u64 term, u32 rank)
{
    if (term)
        ptx_choice_pair(&h->scores, pair_slot(&h->ranks, term)->value, h->arena)->value |= rank;
}

/* What is compared with a bound alone has no rank that is known here: the contract may ask for it
 * only where it was compared with another. */
static void meet_bound(PtxChoices *h, u64 score)
{
    ptx_choice_pair(&h->scores, score, h->arena);
}

/* Both may be compared, and one is or has a rank: they are. */
static bool compares(PtxChoices *h, const Operand *a, const Operand *b, bool wide)
{
    if (!(a->term[wide] | b->term[wide]) || !is_key(h, a, wide) || !is_key(h, b, wide))
        return false;
    ptx_choice_meet(h, a->term[wide], (u32)(wide ? a->value >> WORD : a->value));
    ptx_choice_meet(h, b->term[wide], (u32)(wide ? b->value >> WORD : b->value));
    return true;
}

static bool is_unsigned_compare(const PtxInst *i)
{
    bool equal = i->compare == PTX_EQ || i->compare == PTX_NE;
    return i->type == PTX_T_U32 || i->type == PTX_T_U64 ||
           (equal && i->type != PTX_T_F32 && ptx_bits((PtxType)i->type) >= WORD);
}

/* The upper word of a key that a constant was added to: then it may be compared with a constant,
 * which asks whether the key is in a range. */
static u64 moved_score(const PtxChoices *h, const Operand *o)
{
    return h->moved.v && o->term[1] && !o->term[0] ? pair_slot(&h->moved, o->term[1])->value : 0;
}

static bool is_in_range(PtxChoices *h, const Operand *a, const Operand *b)
{
    u64 score = moved_score(h, a) | moved_score(h, b);
    if (!score || !((a->term[0] | a->term[1]) == 0 || (b->term[0] | b->term[1]) == 0))
        return false;
    meet_bound(h, score);
    return true;
}

static bool moves_key(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    PtxChoices *h = c->launch->choices;
    Operand a = operand(w, &i->args[1], l), b = operand(w, &i->args[2], l);
    u64 key = a.term[1] | b.term[1];
    if (i->args[0].width != 64 || a.term[0] | b.term[0] || (a.term[1] && b.term[1]) ||
        !ptx_choice_is_rank(h, key))
        return false;
    u64 by = a.term[1] ? b.value : a.value;
    const u64 args[] = {key, ptx_term_const((u32)by), ptx_term_const((u32)(by >> WORD))};
    u64 what = ptx_term_operation(PTX_ADD, PTX_T_U64, PTX_T_NONE, 0);
    *out = (PtxTerms){TERM_CONCRETE, ptx_term_node(what, false, args, 3)};
    ptx_choice_pair(&h->moved, out->hi, h->arena)->value = pair_slot(&h->ranks, key)->value;
    return true;
}

static bool decides(PtxCta *c, PtxWarp *w, const PtxInst *i, int l)
{
    Operand a = operand(w, &i->args[1], l), b = operand(w, &i->args[2], l);
    bool wide = ptx_bits((PtxType)i->type) == 64;
    return is_unsigned_compare(i) && (compares(c->launch->choices, &a, &b, wide) ||
                                      (wide && is_in_range(c->launch->choices, &a, &b)));
}

static bool picks(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Operand a = operand(w, &i->args[1], l), b = operand(w, &i->args[2], l);
    if ((i->type != PTX_T_U32 && i->type != PTX_T_U64) ||
        !compares(c->launch->choices, &a, &b, i->type == PTX_T_U64))
        return false;
    bool first = i->op == PTX_MAX ? a.value >= b.value : a.value <= b.value;
    *out = *ptx_terms(w, &i->args[first ? 1 : 2], l);
    return true;
}

/* A predicate of one score that holds from some rank on, or up to one. */
static bool is_bound(PtxCta *c, PtxWarp *w, const PtxArg *arg, int l)
{
    PtxChoices *h = c->launch->choices;
    const PtxNote *note = ptx_choice_find(h, ptx_terms(w, arg, l)->lo);
    if (!note || !note->predicate || ptx_choice_gives(h, note) != PTX_GIVES_BOUND)
        return false;
    meet_bound(h, score_of(note));
    return true;
}

/* A predicate that decides: by a bound, or else by its value. */
static bool is_decided(PtxCta *c, PtxWarp *w, const PtxArg *arg, int l)
{
    u64 term = ptx_terms(w, arg, l)->lo;
    bool by_value = c->launch->choices->by_value && term > TERM_UNDEFINED;
    if (is_bound(c, w, arg, l))
        return true;
    if (by_value)
        ptx_choice_by_value(c->launch->choices, term);
    return by_value;
}

/* By what decides, between words without terms or of 64 bits. */
static bool selects(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    PtxTerms a = *ptx_terms(w, &i->args[1], l), b = *ptx_terms(w, &i->args[2], l);
    bool plain = !(a.lo | a.hi | b.lo | b.hi) || i->args[0].width == 64;
    if (!plain || !ptx_terms(w, &i->args[3], l)->lo ||
        !is_decided(c, w, &i->args[3], l))
        return false;
    *out = number(w, &i->args[3], l) ? a : b;
    return true;
}

bool ptx_choice_guard(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 lanes)
{
    const PtxArg guard = {.kind = PTX_REG, .row = i->guard, .width = 1};
    lanes &= w->taint[i->guard];
    if (!c->launch->choices)
        return false;
    c->launch->choices->warp = w->index;
    for (u32 rest = lanes; rest; rest &= rest - 1)
        if (!is_decided(c, w, &guard, __builtin_ctz(rest)))
            return false;
    for (u32 rest = lanes; rest; rest &= rest - 1)
        ptx_set_terms(w, &guard, __builtin_ctz(rest), (PtxTerms){TERM_CONCRETE, TERM_CONCRETE});
    return true;
}

/* ---- words of 64 bits ------------------------------------------------------------------------ */

static PtxTerms whole(u64 term)
{
    return (PtxTerms){term, term ? TERM_WHOLE : TERM_CONCRETE};
}

/* Of one word; where it is not that of one operand, false. */
static bool either_word(const Operand *a, const Operand *b, int k, u64 *term)
{
    bool no_a = !a->term[k] && !(u32)(a->value >> (k ? WORD : 0));
    bool no_b = !b->term[k] && !(u32)(b->value >> (k ? WORD : 0));
    *term = no_a ? b->term[k] : a->term[k];
    return no_a || no_b || !(a->term[k] | b->term[k]);
}

static bool joins_words(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Operand a = operand(w, &i->args[1], l), b = operand(w, &i->args[2], l);
    return i->args[0].width == 64 && either_word(&a, &b, 0, &out->lo) &&
           either_word(&a, &b, 1, &out->hi);
}

static bool shifts_word(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Operand a = operand(w, &i->args[1], l);
    *out = i->op == PTX_SHL ? (PtxTerms){TERM_CONCRETE, a.term[0]}
                            : (PtxTerms){a.term[1], TERM_CONCRETE};
    return i->args[0].width == 64 && i->type != PTX_T_S64 && number(w, &i->args[2], l) == WORD &&
           !ptx_terms(w, &i->args[2], l)->lo;
}

/* bfi of a word into the upper one. */
static bool inserts_word(PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Operand a = operand(w, &i->args[1], l), b = operand(w, &i->args[2], l);
    *out = (PtxTerms){b.term[0], a.term[0]};
    return i->args[0].width == 64 && number(w, &i->args[3], l) == WORD &&
           number(w, &i->args[4], l) == WORD &&
           !(ptx_terms(w, &i->args[3], l)->lo | ptx_terms(w, &i->args[4], l)->lo);
}

static bool converts_word(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    Operand a = operand(w, &i->args[1], l);
    bool counts = i->type == PTX_T_U64 && i->from == PTX_T_F32 && a.whole && a.term[0];
    if (counts && c->launch->choices->by_value) {
        ptx_choice_by_value(c->launch->choices, a.term[0]);
        return true;
    }
    bool widens = i->type == PTX_T_U64 && i->from == PTX_T_U32 && a.whole;
    bool narrows = i->type == PTX_T_U32 && i->from == PTX_T_U64;
    *out = widens ? (PtxTerms){a.term[0], TERM_CONCRETE} : whole(a.term[0]);
    return widens || narrows;
}

bool ptx_choice_apart(PtxCta *c, PtxWarp *w, const PtxInst *i, int l)
{
    PtxTerms t = *ptx_terms(w, &i->args[2], l);
    if (!c->launch->choices || i->args[2].width != 64)
        return false;
    ptx_set_terms(w, &i->args[0], l, whole(t.lo));
    ptx_set_terms(w, &i->args[1], l, whole(t.hi));
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

bool ptx_choice(PtxCta *c, PtxWarp *w, const PtxInst *i, int l, PtxTerms *out)
{
    *out = (PtxTerms){TERM_CONCRETE, TERM_CONCRETE};
    c->launch->choices->warp = w->index;
    switch (i->op) {
    case PTX_SETP: return decides(c, w, i, l);
    case PTX_SELP: return selects(c, w, i, l, out);
    case PTX_ADD: return moves_key(c, w, i, l, out);
    case PTX_MIN:
    case PTX_MAX: return picks(c, w, i, l, out);
    case PTX_AND:
    case PTX_OR:
        return i->type == PTX_T_PRED ? ptx_choice_logic(w, i, l, out)
                                     : i->op == PTX_OR && joins_words(w, i, l, out);
    case PTX_SHL:
    case PTX_SHR: return shifts_word(w, i, l, out);
    case PTX_BFI: return inserts_word(w, i, l, out);
    case PTX_CVT: return converts_word(c, w, i, l, out);
    default: return false;
    }
}

bool ptx_choice_of_lanes(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    PtxChoices *h = c->launch->choices;
    const PtxArg *from = &i->args[1];
    int winner = -1;
    if (!h || !(w->taint[from->row] & mask) || w->taint[i->args[2].row] & mask)
        return false;
    h->warp = w->index;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        Operand own = operand(w, from, l);
        if (!is_key(h, &own, false))
            return false;
        ptx_choice_meet(h, own.term[0], (u32)own.value);
        u32 best = winner < 0 ? 0 : (u32)ptx_value(w, from, winner);
        if (winner < 0 || (i->op == PTX_REDUX_MAX ? own.value > best : own.value < best))
            winner = l;
    }
    PtxTerms t = *ptx_terms(w, from, winner);
    for (u32 rest = mask; rest; rest &= rest - 1)
        ptx_set_terms(w, &i->args[0], __builtin_ctz(rest), t);
    return true;
}
