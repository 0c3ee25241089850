/* `top` on terms, as clause 6.22 has it: which scores a row ranks, and by their ranks as the kernel
 * met them, which indices it must choose. */
#include "ptx/choice.h"
#include "verify_terms_impl.h"

#include <stdlib.h>
#include <string.h>

/* Of one token, in order of its slots; NULL: the kernel did not rank what must be. */
typedef struct Chosen {
    i64 *index;
} Chosen;

static int before(const void *a, const void *b)
{
    const TermsRanked *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int ascending(const void *a, const void *b)
{
    const TermsRanked *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

void terms_rank_sort(TermsRanked *v, i64 n, bool by_index)
{
    qsort(v, (size_t)n, sizeof *v, by_index ? ascending : before);
}

/* The group's score is the sum, from the left, of its first members'. */
static bool rank_group(Terms *t, const Top *top, TermsRanked *member, i64 size, TermsRanked *group)
{
    terms_rank_sort(member, size, false);
    group->score = member[0].score;
    for (i64 i = 1; i < top->group_sum; i++)
        group->score = terms_binary(PTX_ADD, group->score, member[i].score);
    return ptx_choices_rank(t->setup.choices, group->score, &group->rank);
}

/* Moves the kept groups' members to the head; how many they are, 0 where a sum was not ranked. */
static i64 keep_groups(Terms *t, const Top *top, TermsRanked *v, i64 n)
{
    i64 size = n / top->groups;
    TermsRanked *group = arena_array(t->arena, TermsRanked, top->groups);
    for (i64 g = 0; g < top->groups; g++) {
        group[g].index = g;
        if (!rank_group(t, top, v + g * size, size, &group[g]))
            return 0;
    }
    terms_rank_sort(group, top->groups, false);
    terms_rank_sort(group, top->keep, true);
    for (i64 k = 0; k < top->keep; k++)
        memmove(v + k * size, v + group[k].index * size, sizeof *v * (size_t)size);
    return top->keep * size;
}

static bool rank_all(Terms *t, const DagNode *node, i64 n, const i64 *index, TermsRanked *v)
{
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (i64 e = 0; e < n; e++) {
        own[node->top->atom] = e;
        v[e].index = e;
        v[e].score = terms_as_f32(t, node->args[0], own);
        if (!ptx_choices_rank(t->setup.choices, v[e].score, &v[e].rank))
            return false;
    }
    return true;
}

static void choose(Terms *t, const DagNode *node, const i64 *index, Chosen *chosen)
{
    const Top *top = node->top;
    i64 n = atom_size(t->contract, top->atom, 0);
    TermsRanked *v = arena_array(t->arena, TermsRanked, n);
    if (!rank_all(t, node, n, index, v))
        return;
    if (top->groups > 1 && (n = keep_groups(t, top, v, n)) == 0)
        return;
    terms_rank_sort(v, n, false);
    if (top->by_index)
        terms_rank_sort(v, top->k, true);
    chosen->index = arena_array(t->arena, i64, top->k);
    for (i64 i = 0; i < top->k; i++)
        chosen->index[i] = v[i].index;
}

bool terms_chosen(Terms *t, const DagNode *node, const i64 *index, i64 *chosen)
{
    const Top *top = node->top;
    u64 key = terms_key((u64)1 << 21, node->number, (u64)1 << top->tokens, index);
    Chosen *of = (Chosen *)(uintptr_t)terms_recall(t, key);
    if (!t->setup.choices)
        return false;
    if (!of) {
        of = arena_new_of(t->arena, Chosen);
        choose(t, node, index, of);
        terms_remember(t, key, (u64)(uintptr_t)of);
    }
    *chosen = of->index ? of->index[index[top->picks]] : -1;
    return of->index != NULL;
}
