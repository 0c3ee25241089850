/* `draw` on terms, as clause 6.18 has it: which scores a row compares, with their noise, and by
 * their ranks as the kernel met them, which index it must draw. */
#include "device/iso_random.cuh"
#include "ptx/choice.h"
#include "verify_terms_impl.h"

#include <string.h>

typedef struct Drawing {
    Terms *terms;
    IsoU32 seed, stream, position;
    IsoWords words; /* of four indices */
    i64 quarter;    /* these, divided by 4; -1: none */
    i64 index;      /* the best so far; -1: none */
    u32 rank;
    u32 passed;     /* the greatest rank of those whose noise was not looked at */
    bool none;      /* a score is no number */
} Drawing;

static IsoU32 word_of(const Terms *t, int param, i64 row)
{
    const TermsTensor *memory = &t->setup.params[param < 0 ? 0 : param];
    return param < 0 ? 0 : ((const IsoU32 *)memory->data)[row / memory->line * memory->pitch +
                                                          row % memory->line];
}

static IsoU32 limit_of(const Terms *t, const DrawLimit *limit, i64 row, IsoU32 none)
{
    return !limit->set ? none : limit->param < 0 ? limit->bits : word_of(t, limit->param, row);
}

static TermsLimits limits_of(const Terms *t, const Draw *draw, i64 row)
{
    return (TermsLimits){
        .top_k = (int32_t)limit_of(t, &draw->top_k, row, 0),
        .top_p = iso_bits_f32(limit_of(t, &draw->top_p, row, 0x3f800000u)),
        .min_p = iso_bits_f32(limit_of(t, &draw->min_p, row, 0)),
    };
}

static bool is_limited(const TermsLimits *l)
{
    return l->top_k > 0 || l->top_p < 1 || l->min_p > 0;
}

static u64 with(u64 score, float noise)
{
    return terms_binary(PTX_ADD, score, ptx_term_const(iso_f32_bits(noise)));
}

/* More than the word's noise, which the kernel may add in its place: what is not above the best
 * then is not with its noise. */
static float bound_of(IsoU32 word)
{
    return iso_fma((float)(__builtin_clz(word | 1u) + 1), 0x1.62e430p-1f, 0x1p-10f);
}

/* False: the kernel did not compare what must be. A score of -inf is never drawn, and gets no
 * noise. */
static bool meet(Drawing *d, const TermsRanked *of)
{
    PtxChoices *choices = d->terms->setup.choices;
    if (of->index / 4 != d->quarter)
        d->words = iso_draw_words(d->seed, d->stream, d->position, (IsoU32)(of->index / 4));
    d->quarter = of->index / 4;
    IsoU32 word = d->words.w[of->index % 4];
    float noise = iso_gumbel(word), bound = bound_of(word);
    u32 rank, most;
    bool bounded = ptx_choices_rank(choices, with(of->score, bound), &most) && bound >= noise;
    d->none |= bounded && most == ISO_RANK_NAN;
    if (!ptx_choices_rank(choices, with(of->score, noise), &rank)) {
        d->passed = bounded && most > d->passed ? most : d->passed;
        return bounded || of->rank <= ISO_RANK_NEGATIVE_INFINITY;
    }
    if (d->index < 0 || rank > d->rank) {
        d->index = of->index;
        d->rank = rank;
    }
    return true;
}

static u64 score_at(Terms *t, const DagNode *node, const i64 *index, IsoU32 temperature)
{
    u64 score = terms_as_f32(t, node->args[0], index);
    bool divides = node->draw->temperature >= 0 && temperature << 1;
    return divides ? terms_binary(PTX_DIV, score, ptx_term_const(temperature)) : score;
}

/* A kernel may rank what stands past the row's end, where that decides nothing. */
static void allow_past(Terms *t, const DagNode *node, i64 *index, IsoU32 temperature)
{
    u32 rank;
    index[node->draw->atom] = atom_size(t->contract, node->draw->atom, 0);
    ptx_choices_rank(t->setup.choices, score_at(t, node, index, temperature), &rank);
}

/* The row's scores, each of which the kernel compared; false: not all are. */
static bool scores(Terms *t, const DagNode *node, const i64 *index, IsoU32 temperature,
                   TermsRanked *v)
{
    i64 own[MAX_ATOMS], n = atom_size(t->contract, node->draw->atom, 0);
    memcpy(own, index, sizeof own);
    for (i64 e = 0; e < n; e++) {
        own[node->draw->atom] = e;
        v[e] = (TermsRanked){.index = e, .score = score_at(t, node, own, temperature)};
        if (!ptx_choices_rank(t->setup.choices, v[e].score, &v[e].rank))
            return false;
    }
    allow_past(t, node, own, temperature);
    return true;
}

/* By order, or by limits: all ranks are numbers. Those that are possible move to the head; -1:
 * one is no number, or its number is not known. */
static i64 possible(TermsRanked *v, i64 n, bool *known)
{
    i64 left = 0;
    bool none = false;
    for (i64 i = 0; i < n; i++) {
        *known &= v[i].rank != 0;
        none |= v[i].rank == ISO_RANK_NAN;
        if (v[i].rank > ISO_RANK_NEGATIVE_INFINITY)
            v[left++] = v[i];
    }
    return none ? 0 : left;
}

static bool draw_noisy(Drawing *d, const TermsRanked *v, i64 n, i64 *drawn)
{
    for (i64 i = 0; i < n; i++)
        if (!meet(d, &v[i]))
            return false;
    *drawn = d->none ? -1 : d->index;
    return d->none || d->index < 0 || d->passed <= d->rank;
}

bool terms_drawn(Terms *t, const DagNode *node, const i64 *index, i64 *drawn)
{
    const Draw *draw = node->draw;
    i64 n = atom_size(t->contract, draw->atom, 0), row = terms_row(t, index[draw->tokens]);
    IsoU32 temperature = word_of(t, draw->temperature, row);
    TermsLimits limits = limits_of(t, draw, row);
    bool greedy = draw->temperature >= 0 && !(temperature << 1), known = true;
    TermsRanked *v = arena_array(t->arena, TermsRanked, n);
    Drawing d = {.terms = t, .index = -1, .quarter = -1, .seed = word_of(t, draw->seed, row),
                 .stream = word_of(t, draw->stream, row)};
    if (!t->setup.choices || !scores(t, node, index, temperature, v))
        return false;
    d.position = (IsoU32)t->setup.positions[row];
    if (!greedy && !is_limited(&limits))
        return draw_noisy(&d, v, n, drawn);
    n = possible(v, n, &known);
    *drawn = -1;
    if (!known || n == 0)
        return known;
    if (!greedy)
        return draw_noisy(&d, v, terms_kept(t, &limits, v, n), drawn);
    terms_rank_sort(v, n, false);
    *drawn = v[0].index;
    return true;
}
