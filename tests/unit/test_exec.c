/* The executor against values worked out by hand, then each hazard of arithmetic shown to occur. */
#include <check.h>

#include "device/iso_fn.cuh"
#include "lab.h"

static Lab lab;

static void setup(void)
{
    lab_init(&lab, 3);
}

static void teardown(void)
{
    lab_free(&lab);
}

/* sum or another monoid over one row of f32 by a tree. */
static u32 reduced(Monoid monoid, const Tree *tree, int n, const float *x)
{
    Lab l;
    lab_init(&l, 0);
    int k = lab_axis(&l, n), p = lab_param(&l, DT_F32, 1, &k);
    lab_set_floats(&l, p, n, x);
    lab_result(&l, 0, NULL, lab_reduce(&l, monoid, tree, 1, &k, lab_input(&l, p)));
    ck_assert(lab_run(&l, 1));
    u32 bits = lab_out(&l, 0, 0);
    lab_free(&l);
    return bits;
}

#define ck_bits(a, b) ck_assert_uint_eq((a), lab_bits(b))

/* ---- order ----------------------------------------------------------------------------------- */

/* (1e20 + 1 - 1e20) + 1 = 1, (1e20 + 1) + (-1e20 + 1) = 0, lanes {1e20, -1e20} + {1, 1} = 2. */
START_TEST(cancellation_shows_the_order)
{
    const float x[] = {1e20f, 1, -1e20f, 1};
    const Tree *chain = lab_leaf(&lab, TREE_CHAIN);
    ck_bits(reduced(MONOID_SUM, chain, 4, x), 1.0f);
    ck_bits(reduced(MONOID_SUM, lab_split(&lab, 2, JOIN_PAIRWISE, chain), 4, x), 0.0f);
    ck_bits(reduced(MONOID_SUM, lab_parts(&lab, TREE_LANES, 2, 1, JOIN_PAIRWISE, DT_F32, chain), 4,
                    x), 2.0f);
    ck_bits(reduced(MONOID_SUM, lab_split(&lab, 4, JOIN_LEFT, chain), 4, x), 1.0f);
    ck_bits(reduced(MONOID_SUM, lab_parts(&lab, TREE_EVERY, 3, 0, JOIN_LEFT, DT_F32, chain), 4, x),
            1.0f);
}
END_TEST

/* Five parts in pairs: ((a b)(c d)) e, not (a b)((c d) e). */
START_TEST(pairwise_puts_the_largest_power_of_two_left)
{
    const float x[] = {1e20f, 1, -1e20f, 1, 3};
    const Tree *five = lab_split(&lab, 5, JOIN_PAIRWISE, lab_leaf(&lab, TREE_CHAIN));
    ck_bits(reduced(MONOID_SUM, five, 5, x), 3.0f);
    const float y[] = {1e20f, 1, 3, -1e20f, 1};
    ck_bits(reduced(MONOID_SUM, five, 5, y), 1.0f);
    ck_bits(reduced(MONOID_SUM, lab_split(&lab, 5, JOIN_LEFT, lab_leaf(&lab, TREE_CHAIN)), 5, y),
            1.0f);
}
END_TEST

START_TEST(one_element_is_moved)
{
    const float none = -0.0f;
    const Tree *chain = lab_leaf(&lab, TREE_CHAIN);
    ck_bits(reduced(MONOID_SUM, chain, 1, &none), -0.0f);
    float payload;
    memcpy(&payload, &(u32){0xFFA12345u}, sizeof payload);
    ck_assert_uint_eq(reduced(MONOID_SUM, chain, 1, &payload), 0xFFA12345u);
    const float two[] = {payload, 1};
    ck_assert_uint_eq(reduced(MONOID_SUM, chain, 2, two), 0x7FFFFFFFu);
}
END_TEST

/* A join's type rules even one part: bf16(1 + 2^-8 + 2^-9) = 1 + 2^-7. */
START_TEST(a_join_rounds_one_part)
{
    const float x = 1.005859375f;
    const Tree *one = lab_parts(&lab, TREE_SPLIT, 1, 0, JOIN_PAIRWISE, DT_BF16,
                                lab_leaf(&lab, TREE_CHAIN));
    ck_assert_uint_eq(reduced(MONOID_SUM, one, 1, &x), 0x3F81u);
}
END_TEST

/* Each join in bf16: 256 + 1 stays 256, so four ones after it are lost one by one from the left and
 * kept in pairs. */
START_TEST(joins_round_in_their_type)
{
    const float x[] = {256, 1, 1, 1};
    const Tree *chain = lab_leaf(&lab, TREE_CHAIN);
    const Tree *left = lab_parts(&lab, TREE_SPLIT, 4, 0, JOIN_LEFT, DT_BF16, chain);
    const Tree *pairs = lab_parts(&lab, TREE_SPLIT, 4, 0, JOIN_PAIRWISE, DT_BF16, chain);
    ck_assert_uint_eq(reduced(MONOID_SUM, left, 4, x), 0x4380u);
    ck_assert_uint_eq(reduced(MONOID_SUM, pairs, 4, x), 0x4381u);
}
END_TEST

/* ---- products under a chain ------------------------------------------------------------------ */

/* (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last bit survives only in an fma. */
static u32 product_sum(TreeForm form)
{
    Lab l;
    lab_init(&l, 0);
    int k = lab_axis(&l, 2), p = lab_param(&l, DT_F32, 1, &k), q = lab_param(&l, DT_F32, 1, &k);
    const float x[] = {1, 1 + 0x1p-12f}, y[] = {-1 - 0x1p-11f, 1 + 0x1p-12f};
    lab_set_floats(&l, p, 2, x);
    lab_set_floats(&l, q, 2, y);
    const DagNode *product = lab_op(&l, DAG_MUL, DT_F32, lab_input(&l, p), lab_input(&l, q));
    lab_result(&l, 0, NULL, lab_reduce(&l, MONOID_SUM, lab_leaf(&l, form), 1, &k, product));
    ck_assert(lab_run(&l, 1));
    u32 bits = lab_out(&l, 0, 0);
    lab_free(&l);
    return bits;
}

START_TEST(a_chain_fuses_and_chain_add_rounds)
{
    ck_bits(product_sum(TREE_CHAIN), 0x1p-24f);
    ck_bits(product_sum(TREE_CHAIN_ADD), 0.0f);
}
END_TEST

/* The first product is a mul: -0, where an fma onto +0 would give +0. */
START_TEST(the_first_product_is_a_mul)
{
    int k = lab_axis(&lab, 1), p = lab_param(&lab, DT_F32, 1, &k);
    const float x = -0.0f;
    lab_set_floats(&lab, p, 1, &x);
    const DagNode *in = lab_input(&lab, p);
    const DagNode *one = lab_const(&lab, DT_F32, 0x3F800000u);
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_SUM, lab_leaf(&lab, TREE_CHAIN), 1, &k,
                                         lab_op(&lab, DAG_MUL, DT_F32, in, one)));
    ck_assert(lab_run(&lab, 1));
    ck_bits(lab_out(&lab, 0, 0), -0.0f);
}
END_TEST

/* ---- tensor-core leaves ---------------------------------------------------------------------- */

static u32 mma_sum(const Tree *tree, int n, const float *x, const float *y)
{
    Lab l;
    lab_init(&l, 0);
    int k = lab_axis(&l, n), p = lab_param(&l, DT_BF16, 1, &k), q = lab_param(&l, DT_BF16, 1, &k);
    lab_set_floats(&l, p, n, x);
    lab_set_floats(&l, q, n, y);
    const DagNode *product = lab_op(&l, DAG_MUL, DT_BF16, lab_input(&l, p), lab_input(&l, q));
    lab_result(&l, 0, NULL, lab_reduce(&l, MONOID_SUM, tree, 1, &k, product));
    ck_assert(lab_run(&l, 1));
    u32 bits = lab_out(&l, 0, 0);
    lab_free(&l);
    return bits;
}

/* 1 - 2^-25 keeps the bit below f32's and chops the sum; 1 - 2^-26 is chopped to 1 before it. */
START_TEST(mma_steps_chop)
{
    float x[17] = {1}, y[17] = {1};
    const Tree *mma = lab_leaf(&lab, TREE_MMA);
    x[1] = -0x1p-13f, y[1] = 0x1p-12f;
    ck_assert_uint_eq(mma_sum(mma, 17, x, y), 0x3F7FFFFFu);
    x[1] = -0x1p-13f, y[1] = 0x1p-13f;
    ck_assert_uint_eq(mma_sum(mma, 17, x, y), 0x3F800000u);
}
END_TEST

/* 1, 2^-25 and -1 at 0, 15 and 16. One leaf: 1 + 2^-25 chops to 1, then 1 - 1. Cut at 8, the other
 * two meet first: -1 + 2^-25 chops to -1 + 2^-24. */
START_TEST(groups_start_where_leaves_start)
{
    float x[24] = {0}, y[24] = {0};
    const i64 lengths[] = {8, 16};
    const Tree *mma = lab_leaf(&lab, TREE_MMA);
    Tree cut = {.form = TREE_SPLIT, .n_parts = 2, .parts = lengths, .type = DT_F32,
                .join = JOIN_LEFT, .child = mma};
    x[0] = 1, y[0] = 1;
    x[15] = 0x1p-12f, y[15] = 0x1p-13f;
    x[16] = -1, y[16] = 1;
    ck_bits(mma_sum(mma, 24, x, y), 0.0f);
    ck_bits(mma_sum(&cut, 24, x, y), 0x1p-24f);
}
END_TEST

START_TEST(mma_never_gives_minus_zero)
{
    const float x[] = {-0.0f}, y[] = {1};
    ck_bits(mma_sum(lab_leaf(&lab, TREE_MMA), 1, x, y), 0.0f);
    const float nan[] = {INFINITY}, zero[] = {0};
    ck_assert_uint_eq(mma_sum(lab_leaf(&lab, TREE_MMA), 1, nan, zero), 0x7FFFFFFFu);
}
END_TEST

/* ---- element arithmetic ---------------------------------------------------------------------- */

static u32 binary(DagKind kind, DType type, u32 a, u32 b)
{
    Lab l;
    lab_init(&l, 0);
    int p = lab_param(&l, type, 0, NULL), q = lab_param(&l, type, 0, NULL);
    lab_set(&l, p, 0, a);
    lab_set(&l, q, 0, b);
    lab_result(&l, 0, NULL, lab_op(&l, kind, type, lab_input(&l, p), lab_input(&l, q)));
    ck_assert(lab_run(&l, 1));
    u32 bits = lab_out(&l, 0, 0);
    lab_free(&l);
    return bits;
}

static u32 cast(DType from, DType to, u32 bits)
{
    Lab l;
    lab_init(&l, 0);
    int p = lab_param(&l, from, 0, NULL);
    lab_set(&l, p, 0, bits);
    lab_result(&l, 0, NULL, lab_cast(&l, to, lab_input(&l, p)));
    ck_assert(lab_run(&l, 1));
    u32 out = lab_out(&l, 0, 0);
    lab_free(&l);
    return out;
}

START_TEST(bf16_operations_round_once)
{
    ck_assert_uint_eq(binary(DAG_ADD, DT_BF16, 0x4380, 0x3F80), 0x4380); /* 256 + 1, a tie */
    ck_assert_uint_eq(binary(DAG_ADD, DT_BF16, 0x4381, 0x3F80), 0x4382); /* 258 + 1, a tie up */
    ck_assert_uint_eq(binary(DAG_MUL, DT_BF16, 0x7F7F, 0x4000), 0x7F80); /* overflow to Inf */
    ck_assert_uint_eq(binary(DAG_SUB, DT_BF16, 0x7F80, 0x7F80), 0x7FFF); /* Inf - Inf */
    ck_assert_uint_eq(binary(DAG_SUB, DT_BF16, 0x0080, 0x0081), 0x8001); /* a subnormal */
    ck_assert_uint_eq(binary(DAG_DIV, DT_F16, 0x3C00, 0x4200), 0x3555);  /* 1 / 3 */
    ck_assert_uint_eq(binary(DAG_MUL, DT_F16, 0x7BFF, 0x4000), 0x7C00);
}
END_TEST

START_TEST(casts_round_and_moves_keep_payloads)
{
    ck_assert_uint_eq(cast(DT_F32, DT_BF16, 0x7F7FFFFF), 0x7F80);
    ck_assert_uint_eq(cast(DT_F32, DT_BF16, 0xFFA12345), 0x7FFF);
    ck_assert_uint_eq(cast(DT_F32, DT_BF16, 0x80000001), 0x8000);
    ck_assert_uint_eq(cast(DT_BF16, DT_F32, 0xFFA1), 0xFFA10000);
    ck_assert_uint_eq(cast(DT_BF16, DT_BF16, 0xFFA1), 0xFFA1);
    ck_assert_uint_eq(cast(DT_F16, DT_F16, 0xFD23), 0xFD23);
    ck_assert_uint_eq(cast(DT_F16, DT_F32, 0xFD23), 0x7FFFFFFF);
    ck_assert_uint_eq(cast(DT_F32, DT_F16, 0x33000001), 0x0001); /* above half the least */
    ck_assert_uint_eq(cast(DT_F32, DT_F16, 0x33000000), 0x0000); /* a tie to even */
}
END_TEST

START_TEST(negation_is_a_move)
{
    int p = lab_param(&lab, DT_F16, 0, NULL);
    lab_set(&lab, p, 0, 0x7D23);
    lab_result(&lab, 0, NULL, lab_op(&lab, DAG_NEG, DT_F16, lab_input(&lab, p), NULL));
    ck_assert(lab_run(&lab, 1));
    ck_assert_uint_eq(lab_out(&lab, 0, 0), 0xFD23);
}
END_TEST

/* ---- monoids --------------------------------------------------------------------------------- */

START_TEST(max_orders_zeros_and_keeps_nan)
{
    const Tree *chain = lab_leaf(&lab, TREE_CHAIN);
    const float zeros[] = {-0.0f, 0.0f}, other[] = {0.0f, -0.0f}, nan[] = {NAN, 1};
    ck_bits(reduced(MONOID_MAX, chain, 2, zeros), 0.0f);
    ck_bits(reduced(MONOID_MAX, chain, 2, other), 0.0f);
    ck_assert_uint_eq(reduced(MONOID_MAX, chain, 2, nan), 0x7FFFFFFFu);
}
END_TEST

START_TEST(logsumexp_of_few)
{
    const Tree *chain = lab_leaf(&lab, TREE_CHAIN);
    const float one[] = {3.5f}, inf[] = {-INFINITY, -INFINITY}, top[] = {1, INFINITY, 2};
    const float mixed[] = {-INFINITY, 2, -INFINITY}, two[] = {1, 2}, equal[] = {5, 5};
    ck_bits(reduced(MONOID_LOGSUMEXP, chain, 1, one), 3.5f);
    ck_bits(reduced(MONOID_LOGSUMEXP, chain, 2, inf), -INFINITY);
    ck_bits(reduced(MONOID_LOGSUMEXP, chain, 3, top), INFINITY);
    ck_bits(reduced(MONOID_LOGSUMEXP, chain, 3, mixed), 2.0f);
    ck_bits(reduced(MONOID_LOGSUMEXP, chain, 2, equal), iso_add(5, iso_log(2)));
    float s = iso_add(iso_mul(1, iso_exp(-1)), 1);
    ck_bits(reduced(MONOID_LOGSUMEXP, chain, 2, two), iso_add(2, iso_log(s)));
}
END_TEST

/* No element, no value: a result all the same. */
START_TEST(a_reduction_of_nothing)
{
    lab.rows = 0;
    int t = lab_axis(&lab, 0), p = lab_param(&lab, DT_F32, 1, &t);
    const Tree *every = lab_parts(&lab, TREE_EVERY, 4, 0, JOIN_LEFT, DT_F32,
                                  lab_leaf(&lab, TREE_CHAIN));
    const DagNode *x = lab_input(&lab, p);
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_SUM, every, 1, &t, x));
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_MAX, every, 1, &t, x));
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_LOGSUMEXP, every, 1, &t, x));
    ck_assert(lab_run(&lab, 1));
    ck_bits(lab_out(&lab, 0, 0), 0.0f);
    ck_bits(lab_out(&lab, 1, 0), -INFINITY);
    ck_bits(lab_out(&lab, 2, 0), -INFINITY);
}
END_TEST

/* ---- spaces ---------------------------------------------------------------------------------- */

/* A reduction whose body needs another reduction: softmax of a row. */
START_TEST(reductions_nest)
{
    int t = lab_axis(&lab, 0), k = lab_axis(&lab, 3), both[] = {t, k};
    int p = lab_param(&lab, DT_F32, 2, both);
    const float x[] = {0, 1, 2, 5, 5, 5, -1, 0, -INFINITY};
    const Tree *chain = lab_leaf(&lab, TREE_CHAIN);
    lab_set_floats(&lab, p, 9, x);
    const DagNode *in = lab_input(&lab, p);
    const DagNode *m = lab_reduce(&lab, MONOID_MAX, chain, 1, &k, in);
    const DagNode *e = lab_fn(&lab, FN_EXP, lab_op(&lab, DAG_SUB, DT_F32, in, m), NULL);
    const DagNode *s = lab_reduce(&lab, MONOID_SUM, chain, 1, &k, e);
    lab_result(&lab, 2, both, lab_op(&lab, DAG_DIV, DT_F32, e, s));
    ck_assert(lab_run(&lab, 2));
    float a = iso_exp(-2), b = iso_exp(-1);
    float sum = iso_add(iso_add(a, b), 1);
    ck_bits(lab_out(&lab, 0, 0), iso_div(a, sum));
    ck_bits(lab_out(&lab, 0, 2), iso_div(1, sum));
    ck_bits(lab_out(&lab, 0, 4), iso_div(1, 3));
    ck_bits(lab_out(&lab, 0, 8), 0.0f);
}
END_TEST

/* Rows 2 and 0 and columns 4, 1 of a product, as listed; nothing else is written. */
START_TEST(a_box_of_lists)
{
    int t = lab_axis(&lab, 0), n = lab_axis(&lab, 5), k = lab_axis(&lab, 20);
    int tk[] = {t, k}, nk[] = {n, k}, tn[] = {t, n};
    int p = lab_param(&lab, DT_BF16, 2, tk), q = lab_param(&lab, DT_BF16, 2, nk);
    const DagNode *product = lab_op(&lab, DAG_MUL, DT_BF16, lab_input(&lab, p),
                                    lab_input(&lab, q));
    u64 seed = 7;
    lab_result(&lab, 2, tn, lab_reduce(&lab, MONOID_SUM, lab_leaf(&lab, TREE_MMA), 1, &k, product));
    lab_fill(&lab, 0, &seed);
    ck_assert(lab_run(&lab, 1));
    u32 whole[15];
    memcpy(whole, lab.out[0].data, sizeof whole);
    memset(lab.out[0].data, 0xA5, sizeof whole);
    const i64 rows[] = {2, 0}, columns[] = {4, 1};
    ExecJob job = lab_job(&lab, 2);
    job.box.atom[t].n = job.box.atom[n].n = 2;
    job.box.atom[t].list = rows;
    job.box.atom[n].list = columns;
    ck_assert(exec_op(&job, lab.arena));
    for (int i = 0; i < 15; i++) {
        bool wanted = i / 5 != 1 && (i % 5 == 4 || i % 5 == 1);
        ck_assert_uint_eq(lab_out(&lab, 0, i), wanted ? whole[i] : 0xA5A5A5A5u);
    }
}
END_TEST

/* cos: f32[position, k] read at each token's position. */
START_TEST(coordinates_pick_rows)
{
    int t = lab_axis(&lab, 0), pos = lab_axis(&lab, 0), k = lab_axis(&lab, 2);
    int factors[] = {pos, pos}, tk[] = {t, k}, pk[] = {pos, k};
    lab.axes[t].n_factors = 2;
    lab.axes[t].factors = factors;
    lab.axes[pos].coordinate_of = t;
    int p = lab_param(&lab, DT_F32, 2, pk);
    const float x[] = {10, 11, 20, 21, 30, 31};
    const int at[] = {2, 0, 2};
    lab_set_floats(&lab, p, 6, x);
    lab_result(&lab, 2, tk, lab_input(&lab, p));
    ExecJob job = lab_job(&lab, 1);
    job.positions = at;
    ck_assert(exec_op(&job, lab.arena));
    ck_bits(lab_out(&lab, 0, 0), 30.0f);
    ck_bits(lab_out(&lab, 0, 3), 11.0f);
    ck_bits(lab_out(&lab, 0, 5), 31.0f);
}
END_TEST

/* y[half 0] = x[half 1], y[half 1] = x[half 0] * 2. */
START_TEST(pieces_hold_atoms)
{
    int h = lab_axis(&lab, 2), k = lab_axis(&lab, 2), hk[] = {h, k};
    int p = lab_param(&lab, DT_F32, 2, hk);
    const float x[] = {1, 2, 3, 4};
    const Fix at[] = {{h, 0}, {h, 1}};
    DagNode *half[2];
    for (int i = 0; i < 2; i++) {
        half[i] = (DagNode *)lab_input(&lab, p);
        half[i]->n_fixes = 1;
        half[i]->fixes = &at[i];
        half[i]->mask &= ~((u64)1 << h);
    }
    const DagNode *two = lab_const(&lab, DT_F32, 0x40000000u);
    const DagNode *twice = lab_op(&lab, DAG_MUL, DT_F32, half[0], two);
    lab_set_floats(&lab, p, 4, x);
    lab_result(&lab, 2, hk, half[1]);
    lab.dag.pieces.v[0].n_fixes = 1;
    lab.dag.pieces.v[0].fixes = &at[0];
    DagPiece second = {.n_fixes = 1, .fixes = &at[1], .value = twice};
    vec_push(lab.arena, &lab.dag.pieces, second);
    ck_assert(lab_run(&lab, 1));
    const float want[] = {3, 4, 2, 4};
    ck_assert_mem_eq(lab.out[0].data, want, sizeof want);
}
END_TEST

/* ---- parts ----------------------------------------------------------------------------------- */

START_TEST(a_cut_box_is_not_an_op)
{
    int k = lab_axis(&lab, 8), p = lab_param(&lab, DT_F32, 1, &k);
    const Tree *two = lab_split(&lab, 2, JOIN_LEFT, lab_leaf(&lab, TREE_CHAIN));
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_SUM, two, 1, &k, lab_input(&lab, p)));
    ExecJob job = lab_job(&lab, 1);
    ExecRoots *roots;
    int n;
    job.box.atom[k].hi = 4;
    ck_assert(!exec_op(&job, lab.arena));
    ck_assert(exec_part(&job, &roots, &n, lab.arena));
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(roots[0].forest.n, 1);
    job.box.atom[k].hi = 3; /* inside a chain */
    ck_assert(!exec_part(&job, &roots, &n, lab.arena));
}
END_TEST

/* Three ranks hold 1e20, (1, -1e20) and 1 of a chain of four parts: the roots and their join. */
START_TEST(parts_join_in_the_tree)
{
    int k = lab_axis(&lab, 4), p = lab_param(&lab, DT_F32, 1, &k);
    const float x[] = {1e20f, 1, -1e20f, 1};
    const i64 cut[] = {0, 1, 3, 4};
    const Tree *tree = lab_split(&lab, 4, JOIN_PAIRWISE, lab_leaf(&lab, TREE_CHAIN));
    lab_set_floats(&lab, p, 4, x);
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_SUM, tree, 1, &k, lab_input(&lab, p)));
    const ExecRoots *all[3];
    int n[3];
    for (int r = 0; r < 3; r++) {
        ExecJob job = lab_job(&lab, 1);
        ExecRoots *roots;
        job.box.atom[k].lo = cut[r];
        job.box.atom[k].hi = cut[r + 1];
        ck_assert(exec_part(&job, &roots, &n[r], lab.arena));
        all[r] = roots;
    }
    ck_assert_int_eq(all[1][0].forest.n, 2);
    ck_bits(lab_bits(all[1][0].values[1]), -1e20f);
    ExecJob job = lab_job(&lab, 1);
    ck_assert(exec_join(&job, all, n, 3, lab.arena));
    ck_bits(lab_out(&lab, 0, 0), 0.0f);
    ck_assert(!exec_join(&job, all, n, 2, lab.arena));
    const ExecRoots *swapped[] = {all[1], all[0], all[2]};
    ck_assert(!exec_join(&job, swapped, n, 3, lab.arena));
}
END_TEST

/* Half a million parts from left to right: no stack is that deep. */
START_TEST(a_deep_tree_is_a_loop)
{
    enum { N = 500000 };
    int k = lab_axis(&lab, N), p = lab_param(&lab, DT_F32, 1, &k);
    const Tree *tree = lab_parts(&lab, TREE_EVERY, 1, 0, JOIN_LEFT, DT_F32,
                                 lab_leaf(&lab, TREE_CHAIN));
    for (int i = 0; i < N; i++)
        lab_set(&lab, p, i, 0x3F800000u);
    lab_result(&lab, 0, NULL, lab_reduce(&lab, MONOID_SUM, tree, 1, &k, lab_input(&lab, p)));
    ck_assert(lab_run(&lab, 1));
    ck_bits(lab_out(&lab, 0, 0), (float)N);
}
END_TEST

/* Every allocation of a worker may fail; the caller's jump target is taken each time. */
START_TEST(memory_runs_out)
{
    int t = lab_axis(&lab, 0), k = lab_axis(&lab, 64), tk[] = {t, k};
    int p = lab_param(&lab, DT_F32, 2, tk);
    const DagNode *x = lab_input(&lab, p);
    lab_result(&lab, 1, &t, lab_reduce(&lab, MONOID_SUM, lab_leaf(&lab, TREE_CHAIN), 1, &k, x));
    volatile int failures = 0, successes = 0;
    for (volatile u64 at = 1; !successes; at++) {
        jmp_buf out;
        Arena *volatile arena = arena_new();
        if (!setjmp(out)) {
            ExecJob job = lab_job(&lab, 2);
            arena_on_oom(arena, &out);
            arena_fail_at(at);
            ck_assert(exec_op(&job, arena));
            successes++;
        } else {
            failures++;
        }
        arena_fail_at(0);
        arena_free(arena);
    }
    ck_assert_int_ge(failures, 2);
}
END_TEST

Suite *exec_suite(void)
{
    Suite *suite = suite_create("exec");
    TCase *tc = tcase_create("exec");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, cancellation_shows_the_order);
    tcase_add_test(tc, pairwise_puts_the_largest_power_of_two_left);
    tcase_add_test(tc, one_element_is_moved);
    tcase_add_test(tc, a_join_rounds_one_part);
    tcase_add_test(tc, joins_round_in_their_type);
    tcase_add_test(tc, a_chain_fuses_and_chain_add_rounds);
    tcase_add_test(tc, the_first_product_is_a_mul);
    tcase_add_test(tc, mma_steps_chop);
    tcase_add_test(tc, groups_start_where_leaves_start);
    tcase_add_test(tc, mma_never_gives_minus_zero);
    tcase_add_test(tc, bf16_operations_round_once);
    tcase_add_test(tc, casts_round_and_moves_keep_payloads);
    tcase_add_test(tc, negation_is_a_move);
    tcase_add_test(tc, max_orders_zeros_and_keeps_nan);
    tcase_add_test(tc, logsumexp_of_few);
    tcase_add_test(tc, a_reduction_of_nothing);
    tcase_add_test(tc, reductions_nest);
    tcase_add_test(tc, a_box_of_lists);
    tcase_add_test(tc, coordinates_pick_rows);
    tcase_add_test(tc, pieces_hold_atoms);
    tcase_add_test(tc, a_cut_box_is_not_an_op);
    tcase_add_test(tc, parts_join_in_the_tree);
    tcase_add_test(tc, a_deep_tree_is_a_loop);
    tcase_add_test(tc, memory_runs_out);
    suite_add_tcase(suite, tc);
    return suite;
}
