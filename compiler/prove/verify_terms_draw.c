/* `draw` without limits on terms, as clause 6.18 has it: which scores a row compares, with their
 * noise, and by their ranks as the kernel met them, which index it must draw. */
#include "device/iso_random.cuh"
#include "ptx/choice.h"
#include "verify_terms_impl.h"

#include <string.h>

typedef struct Drawing {
    Terms *terms;
    const DagNode *node;
    IsoU32 seed, stream, position;
    IsoWords words; /* of four indices */
    i64 index;      /* the best so far; -1: none */
    u32 rank;
    u32 passed;     /* the greatest rank of those whose noise was not looked at */
    bool none;      /* a score is no number */
} Drawing;

bool terms_draws(const Draw *draw)
{
    return draw->temperature < 0 && !draw->top_k.set && !draw->top_p.set && !draw->min_p.set;
}

static IsoU32 word_of(const Terms *t, int param, i64 row)
{
    const TermsTensor *memory = &t->setup.params[param < 0 ? 0 : param];
    return param < 0 ? 0 : ((const IsoU32 *)memory->data)[row / memory->line * memory->pitch +
                                                          row % memory->line];
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

/* False: the kernel did not compare what must be. */
static bool meet(Drawing *d, i64 e, u64 score, IsoU32 word)
{
    PtxChoices *choices = d->terms->setup.choices;
    float noise = iso_gumbel(word), bound = bound_of(word);
    u32 own, rank, most;
    bool bounded = ptx_choices_rank(choices, with(score, bound), &most) && bound >= noise;
    if (!ptx_choices_rank(choices, score, &own))
        return false;
    d->none |= bounded && most == ISO_RANK_NAN;
    if (!ptx_choices_rank(choices, with(score, noise), &rank)) {
        d->passed = bounded && most > d->passed ? most : d->passed;
        return bounded;
    }
    if (d->index < 0 || rank > d->rank) {
        d->index = e;
        d->rank = rank;
    }
    return true;
}

bool terms_drawn(Terms *t, const DagNode *node, const i64 *index, i64 *drawn)
{
    const Draw *draw = node->draw;
    i64 own[MAX_ATOMS], n = atom_size(t->contract, draw->atom, 0);
    i64 row = terms_row(t, index[draw->tokens]);
    Drawing d = {.terms = t, .node = node, .index = -1, .seed = word_of(t, draw->seed, row),
                 .stream = word_of(t, draw->stream, row)};
    if (!t->setup.choices || !terms_draws(draw))
        return false;
    d.position = (IsoU32)t->setup.positions[row];
    memcpy(own, index, sizeof own);
    for (i64 e = 0; e < n; e++) {
        if (e % 4 == 0)
            d.words = iso_draw_words(d.seed, d.stream, d.position, (IsoU32)(e / 4));
        own[draw->atom] = e;
        if (!meet(&d, e, terms_as_f32(t, node->args[0], own), d.words.w[e % 4]))
            return false;
    }
    *drawn = d.none ? -1 : d.index;
    return d.none || d.index < 0 || d.passed <= d.rank;
}
