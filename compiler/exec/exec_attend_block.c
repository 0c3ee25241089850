/* One block of keys in the executor's attention: scores, weights, their sums by lanes, and the
 * chain of values, as clause 6.13 has them; and keys and values as they are stored, decoded when
 * they are seen. */
#include "exec_attend_impl.h"

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"
#include "device/iso_rounded.cuh"

#include <string.h>

enum { RUN = 2, PARTS = 4 };

float exec_attend_exp(const Attending *a, float x)
{
    switch (a->attend->exp2) {
    case FN_EXP2_D3:
        return iso_exp2_d3(x);
    case FN_EXP2_D6:
        return iso_exp2_d6(x);
    case FN_EX2:
        return iso_ex2(x);
    default:
        return iso_exp2(x);
    }
}

/* ---- stored rows ----------------------------------------------------------------------------- */

void exec_stored_init(Attending *a, int arg, Stored *s)
{
    const DagNode *input = a->node->args[arg];
    const ExecJob *job = a->scope->call->job;
    *s = (Stored){.memory = &job->params[input->param], .sequence = -1};
    s->tensor = &job->op->op->params[input->param];
    exec_atom_strides(a->contract, s->tensor, s->memory, s->by_atom);
}

void exec_stored_room(Attending *a, Stored *s, bool by_key)
{
    i64 rows = by_key ? a->capacity : s->n;
    s->by_key = by_key;
    s->depth = by_key ? a->depth : a->capacity;
    i64 n = (i64)fdpa_panels_size(a->class, (size_t)rows, (size_t)s->depth);
    s->panels = scratch_array(a->scope->scratch, FdpaElem, n);
    for (i64 i = 0; i < n; i++)
        s->panels[i] = exec_no_elem;
    s->seen = scratch_array(a->scope->scratch, bool, a->capacity);
}

static FdpaElem *stored_at(const Stored *s, i64 key, i64 i)
{
    i64 row = s->by_key ? key : i, k = s->by_key ? i : key;
    return &s->panels[(row / FDPA_PANEL * s->depth + k) * FDPA_PANEL + row % FDPA_PANEL];
}

/* `at`: the row's index of each atom. */
void exec_stored_turn(const Attending *a, Stored *s, int sequence, const i64 *at)
{
    i64 batch = 0;
    for (int i = 0; i < a->contract->n_atoms; i++)
        if (s->tensor->mask & a->attend->rows & (u64)1 << i)
            batch += s->by_atom[i] * at[i];
    if (s->sequence == sequence && s->batch == batch)
        return;
    s->sequence = sequence;
    s->batch = batch;
    memset(s->seen, 0, sizeof *s->seen * (size_t)a->capacity);
}

static void see(const Attending *a, Stored *s, i64 key)
{
    if (s->seen[key])
        return;
    const ExecTensor *t = s->memory;
    i64 place = t->place ? t->place[s->sequence * t->positions + key]
                         : s->by_atom[a->attend->sequence] * s->sequence +
                               s->by_atom[a->attend->position] * key;
    const u16 *row = (const u16 *)t->data + t->offset + place + s->batch;
    for (i64 i = 0; i < s->n; i++)
        *stored_at(s, key, i) = fdpa_elem(exec_attend_type(s->tensor->type), row[s->at[i]]);
    s->seen[key] = true;
}

/* ---- a block --------------------------------------------------------------------------------- */

/* What times this is an exponent of 2. */
static float by(const Attending *a)
{
    return iso_bits_f32(a->attend->capped ? a->attend->cap : a->attend->scale);
}

/* Exponents of 2; with rounded maxima, what is one times `by`. */
static float scaled(const Attending *a, float score)
{
    if (a->attend->capped)
        score = iso_tanh(iso_mul(score, iso_bits_f32(a->attend->scale)));
    return a->attend->rounded ? score : iso_mul(score, by(a));
}

/* Of a block whose `scaled` has this maximum. */
static float block_most(const Attending *a, float most)
{
    return a->attend->rounded ? iso_rounded_most(iso_mul(most, by(a))) : most;
}

static float weight(const Attending *a, float x, float m)
{
    if (!a->attend->rounded)
        return exec_attend_exp(a, iso_sub(x, m));
    if (a->attend->exp2 == FN_EX2)
        return iso_ex2_weight(x, by(a), m);
    return iso_rounded_weight(x, by(a), iso_bits_f32(a->attend->inverse), m,
                              a->attend->exp2 == FN_EXP2_D3 ? 3 : 6);
}

/* The block's exponents, and their maximum. What stands beside a seen key in its panel is computed
 * too, and never read. */
static float block_scores(Attending *a, i64 block, Range seen)
{
    float most = 0;
    for (i64 key = seen.lo; key < seen.hi; key++)
        see(a, &a->keys, key);
    FdpaTile t = {.a = a->query, .b = stored_at(&a->keys, block, 0), .m = 1,
                  .n = (size_t)(seen.hi - block), .kp = (size_t)a->depth, .k1 = (size_t)a->depth,
                  .out = a->scores, .ld = (size_t)a->attend->block};
    fdpa_tile(a->class, &t);
    for (i64 i = seen.lo - block; i < seen.hi - block; i++) {
        a->scores[i] = scaled(a, a->scores[i]);
        most = i == seen.lo - block ? a->scores[i] : iso_max(most, a->scores[i]);
    }
    return block_most(a, most);
}

/* What is absent leaves the other as it is. */
void exec_add_present(bool *has, float *sum, bool with, float x)
{
    *sum = !with ? *sum : *has ? iso_add(*sum, x) : x;
    *has |= with;
}

/* lanes 4 by 2, in each split 4 { chain add } pairwise, by places of the whole block. */
static void block_sums(const Attending *a, i64 block, Range seen, Lanes *lanes)
{
    i64 part_length = a->attend->block / (LANES * PARTS);
    bool has[LANES][PARTS] = {{false}};
    float sum[LANES][PARTS] = {{0}};
    for (i64 key = seen.lo; key < seen.hi; key++) {
        i64 i = key - block, lane = i / RUN % LANES;
        i64 part = (i / (RUN * LANES) * RUN + i % RUN) / part_length;
        exec_add_present(&has[lane][part], &sum[lane][part], true, a->weights[i]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int part = 0; part < PARTS; part += 2)
            exec_add_present(&has[lane][part], &sum[lane][part], has[lane][part + 1],
                        sum[lane][part + 1]);
        exec_add_present(&has[lane][0], &sum[lane][0], has[lane][2], sum[lane][2]);
        lanes->has[lane] = has[lane][0];
        lanes->sum[lane] = sum[lane][0];
    }
}

static FdpaElem rounded(const Attending *a, float weight)
{
    return a->attend->weights == DT_F16 ? fdpa_elem(FDPA_F16, iso_f16_of_f32(weight))
                                        : fdpa_elem(FDPA_BF16, iso_bf16_of_f32(weight));
}

/* One step of a group of keys that holds unseen ones: these are no members. */
static void group_values(Attending *a, i64 group, Range seen, float *o)
{
    int n = a->class->group;
    for (i64 e = 0; e < a->values.n; e++) {
        for (int i = 0; i < n; i++) {
            bool member = group + i >= seen.lo && group + i < seen.hi;
            a->weight_group[i] = member ? a->weight[group + i] : exec_no_elem;
            a->value_group[i] = member ? *stored_at(&a->values, group + i, e) : exec_no_elem;
        }
        o[e] = fdpa_step(a->class, a->weight_group, a->value_group, o[e]);
    }
}

/* Groups of keys are counted from the block's start, which is a multiple of their length. */
static void block_values(Attending *a, i64 block, Range seen, float *o)
{
    i64 n = a->class->group, lo = (seen.lo + n - 1) / n * n, hi = seen.hi / n * n;
    for (i64 key = seen.lo; key < seen.hi; key++) {
        see(a, &a->values, key);
        a->weight[key] = rounded(a, a->weights[key - block]);
    }
    if (seen.lo < lo)
        group_values(a, lo - n, seen, o);
    if (lo < hi) {
        FdpaTile t = {.a = a->weight, .b = a->values.panels, .m = 1, .n = (size_t)a->values.n,
                      .kp = (size_t)a->capacity, .k0 = (size_t)lo, .k1 = (size_t)hi, .out = o,
                      .ld = (size_t)a->values.n, .accumulate = true};
        fdpa_tile(a->class, &t);
    }
    if (hi < seen.hi && hi >= lo)
        group_values(a, hi, seen, o);
}

void exec_attend_block(Attending *a, i64 block, Range seen, Triple *split, Lanes *lanes)
{
    Lanes sums;
    bool first = !split->present;
    float most = block_scores(a, block, seen), m = first ? most : iso_max(split->m, most);
    float alpha = first ? 1 : exec_attend_exp(a, iso_sub(split->m, m));
    for (i64 i = seen.lo - block; i < seen.hi - block; i++)
        a->weights[i] = weight(a, a->scores[i], m);
    block_sums(a, block, seen, &sums);
    for (int lane = 0; lane < LANES; lane++) {
        if (a->attend->rounded)
            sums.sum[lane] = iso_rounded_sum(sums.sum[lane], m);
        if (lanes->has[lane])
            lanes->sum[lane] = iso_mul(lanes->sum[lane], alpha);
        exec_add_present(&lanes->has[lane], &lanes->sum[lane], sums.has[lane], sums.sum[lane]);
    }
    for (i64 i = 0; !a->node->lse && i < a->values.n; i++)
        split->o[i] = first ? 0 : iso_mul(split->o[i], alpha);
    if (!a->node->lse)
        block_values(a, block, seen, split->o);
    split->m = m;
    split->present = true;
}
