/* What the limits of `draw` keep of a row, as clause 6.18 has it, by the numbers that ranks stand
 * for; and the values by which a kernel may decide it. */
#include "device/iso_random.cuh"
#include "ptx/choice.h"
#include "verify_terms_impl.h"

#define TO_MASS 0x53800000u /* 0x1p40 */
#define ONE 0x3f800000u

bool terms_in_order(const Draw *draw)
{
    return !draw->top_k.set && !draw->top_p.set && !draw->min_p.set;
}

/* The score of a rank; of zeros +0. */
static IsoU32 score_bits(u32 rank)
{
    return rank & ISO_SIGN_BIT ? rank ^ ISO_SIGN_BIT : ~rank;
}

static float weight_of(const TermsRanked *v, u32 most)
{
    return iso_pair_scale(iso_bits_f32(score_bits(v->rank)), iso_bits_f32(score_bits(most)));
}

/* iso_pair_scale of a score and a number. */
static u64 weight_term(Terms *t, u64 score, u64 most)
{
    u64 distance = terms_binary(PTX_SUB, score, most);
    return ptx_term_select(ptx_term_const(ONE), terms_function(t, FN_EXP, &distance),
                           ptx_term_compare(PTX_EQ, score, most));
}

/* Sums of a score's weight as an integer, and its comparison with min_p, may decide. */
static void allow_values(Terms *t, const TermsLimits *limits, const TermsRanked *v, i64 n)
{
    PtxChoices *choices = t->setup.choices;
    u64 most = ptx_term_const(score_bits(v[0].rank));
    for (i64 i = 0; i < n; i++) {
        u64 weight = weight_term(t, v[i].score, most);
        ptx_choices_allow(choices, terms_binary(PTX_MUL, weight, ptx_term_const(TO_MASS)));
        ptx_choices_allow(choices, ptx_term_compare(PTX_GE, weight,
                                                    ptx_term_const(iso_f32_bits(limits->min_p))));
    }
}

/* In order, the first in any case; gives how many are left at the head. */
static i64 keep_weights(const TermsLimits *limits, TermsRanked *v, i64 n)
{
    u32 most = v[0].rank;
    i64 kept = 1;
    for (i64 i = 1; i < n; i++)
        if (!(limits->min_p > 0) || weight_of(&v[i], most) >= limits->min_p)
            v[kept++] = v[i];
    return kept;
}

static u64 mass_of(const TermsRanked *v, u32 most)
{
    return iso_draw_mass(weight_of(v, most));
}

/* Those before which less than the share lies, and that have a mass. */
static i64 keep_share(const TermsLimits *limits, TermsRanked *v, i64 n)
{
    u64 total = 0, before = mass_of(&v[0], v[0].rank);
    i64 kept = 1;
    for (i64 i = 0; i < n; i++)
        total += mass_of(&v[i], v[0].rank);
    u64 share = iso_draw_share(total, limits->top_p);
    for (i64 i = 1; i < n && before < share; i++) {
        u64 mass = mass_of(&v[i], v[0].rank);
        if (mass)
            v[kept++] = v[i];
        before += mass;
    }
    return kept;
}

i64 terms_kept(Terms *t, const TermsLimits *limits, TermsRanked *v, i64 n)
{
    bool shares = limits->top_p < 1;
    terms_rank_sort(v, n, false);
    if (shares || limits->min_p > 0)
        allow_values(t, limits, v, n);
    n = keep_weights(limits, v, n);
    if (limits->top_k > 0 && limits->top_k < n)
        n = limits->top_k;
    n = shares ? keep_share(limits, v, n) : n;
    terms_rank_sort(v, n, true);
    return n;
}
