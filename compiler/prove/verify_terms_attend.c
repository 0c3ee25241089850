/* `attend` on terms, as clause 6.13 has it: row by row, split by split, block by block. */
#include "verify_terms_impl.h"

#include "ptx/tests.h"

#include <string.h>

enum { GROUP = 16, LANES = 4, RUN = 2, PARTS = 4 };

#define LOG2_E 0x3fb8aa3bu /* 0x1.715476p+0 */
#define LN_2 0x3f317218u   /* 0x1.62e43p-1 */
#define NO_KEYS 0xff800000u

/* A block with a seen key. */
typedef struct Block {
    i64 start, lo, hi; /* the row sees keys [lo, hi) of it */
    u64 alpha;         /* of a split's first: absent */
    u64 *weight;       /* factors of the rounded weights, from lo on */
} Block;

typedef struct Split {
    int first, n; /* blocks */
    u64 m, l;
    u64 before, own; /* what the join takes the splits before and this one by */
    u64 input;       /* of a join of ranks' roots: where the root is */
    i64 root;
} Split;

/* All of a row but its values. */
typedef struct RowTerms {
    int sequence;
    VEC(Block) blocks;
    VEC(Split) splits;
    u64 m, l;
    u64 sunk; /* what a sink leaves of values; absent without one */
} RowTerms;

typedef struct Attending {
    Terms *terms;
    const DagNode *node;
    const Attend *attend;
    const i64 *index;
    i64 depth;
    u64 *query; /* factors */
    RowTerms *row;
} Attending;

static u64 exponential(const Attending *a, u64 x)
{
    return terms_function(a->terms, a->attend->exp2, &x);
}

/* F(x - m) */
static u64 fall(const Attending *a, u64 x, u64 m)
{
    return exponential(a, terms_binary(PTX_SUB, x, m));
}

/* ---- rounded maxima: iso_rounded.cuh --------------------------------------------------------- */

#define ROUNDER 0x4b400000u    /* 0x1.8p23 */
#define BY_EIGHT 0x4cc00000u   /* 0x1.8p26 */
#define OVERFLOWS 0x74800000u  /* 0x1p106 */
#define ONE 0x3f800000u

static u64 fused(u64 x, u64 y, u64 z)
{
    const u64 args[] = {x, y, z};
    return ptx_term_f32(PTX_FMA, args, 3);
}

static u64 by(const Attending *a)
{
    return ptx_term_const(a->attend->capped ? a->attend->cap : a->attend->scale);
}

static u64 rounded_most(const Attending *a, u64 most)
{
    u64 x = terms_binary(PTX_MUL, most, by(a)), eight = ptx_term_const(BY_EIGHT);
    u64 n = terms_binary(PTX_SUB, terms_binary(PTX_ADD, x, eight), eight);
    return fused(terms_binary(PTX_MUL, x, ptx_term_const(OVERFLOWS)), ptx_term_const(0), n);
}

static u64 rounded_raise(u64 p, u64 rounded)
{
    const u64 shift[] = {rounded, ptx_term_const(23)};
    u64 n = ptx_term_node(ptx_term_operation(PTX_SHL, PTX_T_B32, PTX_T_NONE, 0), false, shift, 2);
    const u64 sum[] = {n, p};
    return ptx_term_node(ptx_term_operation(PTX_ADD, PTX_T_S32, PTX_T_NONE, 0), false, sum, 2);
}

/* Of the exponential's polynomial. */
static u64 near_zero(const Attending *a, u64 r)
{
    static const u32 d6[] = {0x3920bd38, 0x3aaf84a4, 0x3c1d96e9, 0x3d6357bd,
                             0x3e75fdee, 0x3f317218, ONE};
    static const u32 d3[] = {0x3d61512b, 0x3e780628, 0x3f317afd, ONE};
    int degree = a->attend->exp2 == FN_EXP2_D3 ? 3 : 6;
    const u32 *c = degree == 3 ? d3 : d6;
    u64 p = ptx_term_const(c[0]);
    for (int k = 1; k <= degree; k++)
        p = fused(p, r, ptx_term_const(c[k]));
    return p;
}

/* Of scores not above a multiple of 8 by more than 4: a normal number, or the greatest one where m
 * is NaN. The argument (tests/ptx/README.md) is about factors from 2^-100 to 2^100. */
#define TERM_NUMBER (TERM_RESULT | TERM_NO_SIGN)

static u64 known_of_weight(const Attending *a)
{
    const u32 least = 27u << 23, greatest = 227u << 23;
    u32 factor = a->attend->capped ? a->attend->cap : a->attend->scale;
    return a->terms->setup.tests && factor >= least && factor <= greatest ? TERM_NUMBER : 0;
}

static u64 rounded_weight(const Attending *a, u64 u, u64 m)
{
    if (a->attend->exp2 == FN_EX2)
        return exponential(a, fused(u, by(a), terms_binary(PTX_SUB, ptx_term_const(0), m)));
    u64 base = terms_binary(PTX_SUB, ptx_term_const(ROUNDER), m);
    u64 least = terms_binary(PTX_MUL, terms_binary(PTX_SUB, m, ptx_term_const(0x42f80000)),
                             ptx_term_const(a->attend->inverse));
    u64 v = terms_binary(PTX_MAX, u, least), t = fused(v, by(a), base);
    u64 r = fused(v, by(a), terms_binary(PTX_SUB, base, t));
    u64 raised = rounded_raise(near_zero(a, r), t);
    u64 known = known_of_weight(a);
    if (known)
        ptx_tests_know(a->terms->setup.tests, raised, known);
    return raised | known;
}

/* What is absent leaves the other as it is. */
static u64 added(u64 a, u64 b)
{
    return !a ? b : !b ? a : terms_binary(PTX_ADD, a, b);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static void set_over(const Attending *a, i64 e, i64 *index)
{
    for (int i = a->attend->n_over - 1; i >= 0; i--) {
        i64 size = atom_size(a->terms->contract, a->attend->over[i], a->terms->setup.rows);
        index[a->attend->over[i]] = e % size;
        e /= size;
    }
}

static void open_query(Attending *a)
{
    i64 own[MAX_ATOMS];
    memcpy(own, a->index, sizeof own);
    a->depth = 1;
    for (int i = 0; i < a->attend->n_over; i++)
        a->depth *= atom_size(a->terms->contract, a->attend->over[i], a->terms->setup.rows);
    a->query = arena_array(a->terms->arena, u64, a->depth);
    for (i64 e = 0; e < a->depth; e++) {
        set_over(a, e, own);
        a->query[e] = ptx_term_factor(terms_eval(a->terms, a->node->args[0], own));
    }
}

/* Element of a stored row of the row's sequence. */
static u64 stored(const Attending *a, int arg, int sequence, i64 key, i64 *index)
{
    const TermsKeys *keys = a->terms->setup.keys;
    const DagNode *input = a->node->args[arg];
    keys->place(keys->self, sequence, key, &index[a->terms->sequence], &index[a->terms->position]);
    for (int f = 0; f < input->n_fixes; f++)
        index[input->fixes[f].atom] = input->fixes[f].at;
    return terms_leaf(a->terms, input->param, index);
}

static u64 score(const Attending *a, i64 key)
{
    i64 own[MAX_ATOMS];
    u64 acc = TERM_CONCRETE;
    memcpy(own, a->index, sizeof own);
    for (i64 k = 0; k < a->depth; k += GROUP) {
        TermSum sum = 0;
        for (i64 e = k; e < k + GROUP && e < a->depth; e++) {
            set_over(a, e, own);
            sum += (TermSum)a->query[e] *
                   ptx_term_factor(stored(a, 1, a->row->sequence, key, own));
        }
        acc = ptx_term_step(acc, sum, true);
    }
    if (a->attend->capped) {
        acc = terms_binary(PTX_MUL, acc, ptx_term_const(a->attend->scale));
        acc = terms_function(a->terms, FN_TANH, &acc);
    }
    return a->attend->rounded ? acc : terms_binary(PTX_MUL, acc, by(a));
}

/* ---- a split --------------------------------------------------------------------------------- */

/* Sums of the four lanes of a block, each of four parts, by places of the whole block. */
static void block_sums(const Attending *a, const Block *b, const u64 *weight, u64 *lane)
{
    u64 part[LANES][PARTS] = {{0}};
    i64 length = a->attend->block / (LANES * PARTS);
    for (i64 key = b->lo; key < b->hi; key++) {
        i64 i = key - b->start, at = i / (RUN * LANES) * RUN + i % RUN;
        u64 *to = &part[i / RUN % LANES][at / length];
        *to = added(*to, weight[key - b->lo]);
    }
    for (int k = 0; k < LANES; k++)
        lane[k] = added(added(part[k][0], part[k][1]), added(part[k][2], part[k][3]));
}

static void attend_block(Attending *a, Block *b, u64 *m, u64 *lane)
{
    i64 n = b->hi - b->lo;
    u64 *t = arena_array(a->terms->arena, u64, n), sums[LANES], before = *m, most = 0;
    for (i64 i = 0; i < n; i++) {
        t[i] = score(a, b->lo + i);
        most = most ? terms_binary(PTX_MAX, most, t[i]) : t[i];
    }
    most = a->attend->rounded ? rounded_most(a, most) : most;
    *m = before ? terms_binary(PTX_MAX, before, most) : most;
    b->alpha = before ? fall(a, before, *m) : TERM_CONCRETE;
    b->weight = arena_array(a->terms->arena, u64, n);
    for (i64 i = 0; i < n; i++) {
        t[i] = a->attend->rounded ? rounded_weight(a, t[i], *m) : fall(a, t[i], *m);
        b->weight[i] = ptx_term_factor(terms_narrow(a->attend->weights, t[i]));
    }
    block_sums(a, b, t, sums);
    for (int k = 0; k < LANES; k++) {
        if (a->attend->rounded && sums[k])
            sums[k] = fused(*m, ptx_term_const(0), sums[k]);
        /* An absent sum is held as +0 (6.15): times alpha it is +0, or NaN where the maximum is
         * NaN and with it every weight of the row. */
        u64 held = lane[k] ? lane[k] : ptx_term_const(0);
        lane[k] = added(b->alpha ? terms_binary(PTX_MUL, held, b->alpha) : lane[k], sums[k]);
    }
}

static i64 least(i64 a, i64 b)
{
    return a < b ? a : b;
}

static i64 most(i64 a, i64 b)
{
    return a > b ? a : b;
}

static void attend_split(Attending *a, i64 start, i64 lo, i64 hi)
{
    Split split = {.first = a->row->blocks.n};
    u64 lane[LANES] = {0};
    for (i64 at = start; at < start + a->attend->split; at += a->attend->block) {
        Block b = {.start = at, .lo = most(lo, at), .hi = least(hi, at + a->attend->block)};
        if (b.lo >= b.hi)
            continue;
        attend_block(a, &b, &split.m, lane);
        vec_push(a->terms->arena, &a->row->blocks, b);
        split.n++;
    }
    split.l = added(added(lane[0], lane[1]), added(lane[2], lane[3]));
    vec_push(a->terms->arena, &a->row->splits, split);
}

/* ---- a row ----------------------------------------------------------------------------------- */

static void join(const Attending *a, Split *split)
{
    RowTerms *r = a->row;
    if (!r->m) {
        r->m = split->m, r->l = split->l;
        return;
    }
    u64 m = terms_binary(PTX_MAX, r->m, split->m);
    split->before = fall(a, r->m, m);
    split->own = fall(a, split->m, m);
    r->l = terms_binary(PTX_ADD, terms_binary(PTX_MUL, r->l, split->before),
                        terms_binary(PTX_MUL, split->l, split->own));
    r->m = m;
}

static void join_sink(const Attending *a)
{
    RowTerms *r = a->row;
    u64 sink = terms_as_f32(a->terms, a->node->args[3], a->index);
    u64 x = terms_binary(PTX_MUL, sink, ptx_term_const(LOG2_E));
    u64 m = terms_binary(PTX_MAX, r->m, x);
    r->sunk = fall(a, r->m, m);
    r->l = terms_binary(PTX_ADD, terms_binary(PTX_MUL, r->l, r->sunk), fall(a, x, m));
    r->m = m;
}

/* Keys [lo, hi) that the row sees. */
static void seen_keys(const Attending *a, i64 *lo, i64 *hi)
{
    const TermsSetup *setup = &a->terms->setup;
    i64 row = terms_row(a->terms, a->index[a->attend->tokens]);
    i64 position = setup->positions[row];
    int sequence = setup->sequences[row];
    *lo = *hi = 0;
    a->row->sequence = sequence;
    if (sequence < 0)
        return;
    *hi = a->attend->causal ? position + 1 : INT32_MAX;
    if (setup->keys->lengths)
        *hi = least(*hi, setup->keys->lengths[sequence]);
    if (a->attend->window)
        *lo = most(0, position + 1 - a->attend->window);
}

/* ---- roots of splits that ranks share -------------------------------------------------------- */

static i64 row_values(const Terms *t, const Attend *attend)
{
    i64 n = 1;
    for (int i = 0; i < t->contract->n_atoms; i++)
        n *= attend->values >> i & 1 ? atom_size(t->contract, i, 0) : 1;
    return n;
}

/* Of a row by its place in a rank's part. */
static i64 root_of_row(const Terms *t, const Attend *attend, int rank, const i64 *index, i64 first,
                       i64 split, int sequence)
{
    const PlanOp *at = t->setup.at;
    const Part *part = &at->part_of_rank[rank];
    const Kernel *kernel = t->setup.plan->kernels.v[at->join_kernel];
    i64 pieces = part->keys_count, turn = t->setup.keys->turns[sequence], row = 0;
    i64 places = (t->setup.keys->longest + attend->split - 1) / attend->split;
    for (int d = ATTEND_TOKENS; d <= ATTEND_GROUP; d++)
        row = row * terms_dim_size(t, part, &kernel->dims[d]) +
              terms_flat(t, part, kernel->dims[d].atoms, kernel->dims[d].n_atoms, index);
    if ((split + turn) % pieces != part->keys_index)
        return -1;
    i64 skipped = (part->keys_index - (first + turn) % pieces + pieces) % pieces;
    places = (places + pieces - 1) / pieces;
    return (row * places + (split - first - skipped) / pieces) * (row_values(t, attend) + 4);
}

static bool joins_splits(const Attending *a)
{
    const PlanOp *at = a->terms->setup.at;
    return a->terms->setup.joins && at->at.reduced && at->at.reduced->kind == DAG_ATTEND;
}

/* What the ranks sent. */
static void take_splits(Attending *a, i64 lo, i64 hi)
{
    Terms *t = a->terms;
    const PlanOp *at = t->setup.at;
    int *heard = arena_array(t->arena, int, at->at.ranks);
    int n = layout_sources(t->contract, &at->at, t->setup.rank, heard);
    i64 length = a->attend->split, width = row_values(t, a->attend);
    for (i64 split = lo / length; split * length < hi; split++)
        for (int i = 0; i < n; i++) {
            i64 root = root_of_row(t, a->attend, heard[i], a->index, lo / length, split,
                                   a->row->sequence);
            u64 input = t->setup.first_roots + (u64)heard[i];
            if (root < 0)
                continue;
            Split s = {.m = ptx_term_leaf(input, (u64)(root + width)),
                       .l = ptx_term_leaf(input, (u64)(root + width + 1)), .input = input,
                       .root = root};
            vec_push(t->arena, &a->row->splits, s);
        }
}

static RowTerms *attend_row(Attending *a)
{
    Terms *t = a->terms;
    u64 key = terms_key(1 << 20, a->node->args[1]->number, a->attend->rows, a->index);
    RowTerms *found = (RowTerms *)(uintptr_t)terms_recall(t, key);
    if (found)
        return found;
    i64 lo, hi, split = a->attend->split;
    a->row = arena_new_of(t->arena, RowTerms);
    seen_keys(a, &lo, &hi);
    bool given = joins_splits(a);
    if (given && lo < hi)
        take_splits(a, lo, hi);
    if (lo < hi && !given)
        open_query(a);
    for (i64 at = lo / split * split; at < hi && lo < hi && !given; at += split)
        attend_split(a, at, lo, hi);
    for (int i = 0; i < a->row->splits.n; i++)
        join(a, &a->row->splits.v[i]);
    if (a->row->m && a->node->n_args > 3)
        join_sink(a);
    terms_remember(t, key, (u64)(uintptr_t)a->row);
    return a->row;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* One step for each group of keys with a seen one; groups are counted from the block's start. */
static u64 block_values(const Attending *a, const Block *b, u64 acc, i64 *index)
{
    for (i64 group = b->lo / GROUP * GROUP; group < b->hi; group += GROUP) {
        TermSum sum = 0;
        for (i64 key = most(group, b->lo); key < group + GROUP && key < b->hi; key++)
            sum += (TermSum)b->weight[key - b->lo] *
                   ptx_term_factor(stored(a, 2, a->row->sequence, key, index));
        acc = ptx_term_step(acc, sum, true);
    }
    return acc;
}

static i64 value_number(const Attending *a, const i64 *index)
{
    const PlanOp *at = a->terms->setup.at;
    const PlanDim *width = &a->terms->setup.plan->kernels.v[at->join_kernel]->dims[ATTEND_WIDTH];
    return terms_flat(a->terms, &at->part_of_rank[0], width->atoms, width->n_atoms, index);
}

static u64 split_value(const Attending *a, const Split *s, i64 *index)
{
    u64 o = TERM_CONCRETE;
    if (s->input)
        return ptx_term_leaf(s->input, (u64)(s->root + value_number(a, a->index)));
    for (int i = s->first; i < s->first + s->n; i++) {
        const Block *b = &a->row->blocks.v[i];
        o = block_values(a, b, o ? terms_binary(PTX_MUL, o, b->alpha) : o, index);
    }
    return o;
}

static u64 value(const Attending *a)
{
    const RowTerms *r = a->row;
    i64 own[MAX_ATOMS];
    u64 o = TERM_CONCRETE;
    memcpy(own, a->index, sizeof own);
    if (!r->m)
        return ptx_term_const(0);
    for (int i = 0; i < r->splits.n; i++) {
        const Split *s = &r->splits.v[i];
        u64 x = split_value(a, s, own);
        o = i == 0 ? x
                   : terms_binary(PTX_ADD, terms_binary(PTX_MUL, o, s->before),
                                  terms_binary(PTX_MUL, x, s->own));
    }
    if (r->sunk)
        o = terms_binary(PTX_MUL, o, r->sunk);
    if (a->attend->rounded)
        return terms_binary(PTX_MUL, o, terms_binary(PTX_DIV, ptx_term_const(ONE), r->l));
    return terms_binary(PTX_DIV, o, r->l);
}

static u64 logarithm(const Attending *a)
{
    u64 l = a->row->l;
    if (!a->row->m)
        return ptx_term_const(NO_KEYS);
    return terms_binary(PTX_ADD, terms_binary(PTX_MUL, a->row->m, ptx_term_const(LN_2)),
                        terms_function(a->terms, FN_LOG, &l));
}

u64 terms_attend(Terms *t, const DagNode *node, const i64 *index)
{
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (int f = 0; f < node->n_fixes; f++)
        own[node->fixes[f].atom] = node->fixes[f].at;
    Attending a = {.terms = t, .node = node, .attend = node->attend, .index = own};
    a.row = attend_row(&a);
    return node->lse ? logarithm(&a) : value(&a);
}

/* ---- what a rank leaves of a split ----------------------------------------------------------- */

static const DagNode *value_node(const Terms *t)
{
    for (int i = 0; i < t->op->nodes.n; i++)
        if (t->op->nodes.v[i]->kind == DAG_ATTEND && !t->op->nodes.v[i]->lse)
            return t->op->nodes.v[i];
    return NULL;
}

static Attending open_row(Terms *t, const i64 *index)
{
    const DagNode *node = value_node(t);
    Attending a = {.terms = t, .node = node, .attend = node->attend, .index = index};
    a.row = attend_row(&a);
    return a;
}

i64 terms_splits(Terms *t, const i64 *index, i64 *first, i64 *end)
{
    Attending a = open_row(t, index);
    i64 lo, hi, split = a.attend->split;
    seen_keys(&a, &lo, &hi);
    *first = lo / split;
    *end = *first + a.row->splits.n;
    return row_values(t, a.attend);
}

u64 terms_split(Terms *t, const i64 *index, i64 split, i64 value)
{
    Attending a = open_row(t, index);
    i64 lo, hi, own[MAX_ATOMS], width = row_values(t, a.attend);
    seen_keys(&a, &lo, &hi);
    const Split *s = &a.row->splits.v[split - lo / a.attend->split];
    if (value >= width)
        return value == width ? s->m : s->l;
    const PlanDim *dim =
        &t->setup.plan->kernels.v[t->setup.at->join_kernel]->dims[ATTEND_WIDTH];
    memcpy(own, index, sizeof own);
    for (int i = dim->n_atoms - 1; i >= 0; i--) {
        i64 size = atom_size(t->contract, dim->atoms[i], 0);
        own[dim->atoms[i]] = value % size;
        value /= size;
    }
    a.index = own;
    return split_value(&a, s, own);
}

i64 terms_split_place(const Terms *t, int rank, const i64 *index, i64 split)
{
    const DagNode *node = value_node(t);
    RowTerms row = {.sequence = -1};
    Attending a = {.terms = (Terms *)(uintptr_t)t, .node = node, .attend = node->attend,
                   .index = index, .row = &row};
    i64 lo, hi;
    seen_keys(&a, &lo, &hi);
    return root_of_row(t, node->attend, rank, index, lo / node->attend->split, split,
                       row.sequence);
}
