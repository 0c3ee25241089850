/* attend on the CPU: by hand, against clause 6.13 written a second time, and the same bits for a
 * row however its batch is put together. */
#include "attend_lab.h"

#include <math.h>

/* ---- by hand --------------------------------------------------------------------------------- */

typedef struct Hand { /* one head of depth 16, n keys whose scores are given */
    int n;
    float score[4], value[4];
} Hand;

static void by_hand(const char *settings, const Hand *hand, float *value, float *lse)
{
    Attention a;
    char text[1024];
    snprintf(text, sizeof text,
             "contract c version 1; numerics sm_90;\n"
             "axis tokens = sequence * position ragged, depth = 16, width = 1;\n"
             "op f(q: bf16[tokens, depth], k: bf16[sequence, position, depth],\n"
             "     v: bf16[sequence, position, width])\n"
             "   -> (o: f32[tokens, width], l: f32[tokens]) {\n"
             "    attend o, l = q, k, v { over depth; %s }\n}\n", settings);
    attention_open(&a, text);
    u16 q[DEPTH] = {0x3F80}, k[4 * DEPTH] = {0}, v[4];
    for (int i = 0; i < hand->n; i++) {
        k[i * DEPTH] = (u16)(iso_f32_bits(hand->score[i]) >> 16);
        v[i] = (u16)(iso_f32_bits(hand->value[i]) >> 16);
    }
    const ExecTensor params[] = {{.data = q, .stride = {DEPTH, 1}},
                                 {.data = k, .stride = {0, DEPTH, 1}},
                                 {.data = v, .stride = {0, 1, 1}}};
    const ExecTensor results[] = {{.data = value, .stride = {1, 1}}, {.data = lse, .stride = {1}}};
    const int position = hand->n - 1, sequence = 0;
    ExecJob job = {.contract = &a.contract, .op = &a.dag.ops[0], .params = params,
                   .results = results, .positions = &position, .sequences = &sequence,
                   .threads = 1};
    exec_box_all(&a.contract, 1, &job.box);
    ck_assert(exec_op(&job, a.f.arena));
    front_close(&a.f);
}

#define ck_bits(a, b) ck_assert_uint_eq(iso_f32_bits(a), iso_f32_bits(b))

START_TEST(one_key_is_its_value)
{
    float o, lse;
    by_hand("scale_log2 0.5;", &(Hand){1, {16}, {-3.5f}}, &o, &lse);
    ck_bits(o, -3.5f);
    ck_bits(lse, 8 * 0x1.62e43p-1f);
}
END_TEST

/* Scores 4, 3, 2 in base 2: weights 1, 1/2, 1/4. */
START_TEST(weights_are_powers_of_two)
{
    float o, lse;
    by_hand("scale_log2 1;", &(Hand){3, {4, 3, 2}, {1, 2, 4}}, &o, &lse);
    ck_bits(o, 3.0f / 1.75f);
    ck_bits(lse, iso_add(4 * 0x1.62e43p-1f, iso_log(1.75f)));
}
END_TEST

/* The later key is larger: the earlier one weighs 1/2. */
START_TEST(the_larger_score_weighs_one)
{
    float o, lse;
    by_hand("scale_log2 1;", &(Hand){2, {1, 2}, {8, 1}}, &o, &lse);
    ck_bits(o, 5.0f / 1.5f);
}
END_TEST

/* tanh(0) = 0 and |tanh| < 1: a cap of 2^1 bounds an exponent of 100 by 2. */
START_TEST(a_cap_bounds_scores)
{
    float o, lse;
    by_hand("scale 0.5; cap_log2 2;", &(Hand){2, {0, 100}, {1, 2}}, &o, &lse);
    ck_bits(o, iso_div(2 + 0.25f, 1.25f));
}
END_TEST

START_TEST(a_window_has_its_own_position)
{
    float o, lse;
    by_hand("scale_log2 1; window 1;", &(Hand){3, {9, 9, 0}, {1, 2, 7}}, &o, &lse);
    ck_bits(o, 7.0f);
    ck_bits(lse, 0.0f);
    by_hand("scale_log2 1; window 2;", &(Hand){3, {9, 0, 0}, {1, 2, 7}}, &o, &lse);
    ck_bits(o, 4.5f);
}
END_TEST

START_TEST(a_nan_that_is_seen_stays)
{
    float o, lse;
    Hand hand = {2, {0, 0}, {1, 0}};
    hand.value[1] = iso_bits_f32(0x7FC00000u);
    by_hand("scale_log2 1;", &hand, &o, &lse);
    ck_assert_uint_eq(iso_f32_bits(o), 0x7FFFFFFFu);
    ck_bits(lse, iso_log(2.0f));
    /* an infinite score has no difference to itself */
    by_hand("scale_log2 1;", &(Hand){2, {0, 1.0f / 0.0f}, {1, 2}}, &o, &lse);
    ck_assert_uint_eq(iso_f32_bits(o), 0x7FFFFFFFu);
}
END_TEST

/* ---- against the clause ---------------------------------------------------------------------- */

typedef struct Form {
    const char *text;
    bool sinks;
} Form;

static const Form forms[] = {
    {ATTENTION(SCALE), false},
    {ATTENTION(SMALL), false},
    {ATTENTION(SCALE "exp exp2.d3; block 64; split 64;"), false},
    {ATTENTION(SCALE "exp exp2; block 32; split 64; window 37;"), false},
    {ATTENTION("scale 0.05; cap_log2 7.2; block 48; split 144;"), false},
    {ATTENTION(SCALE "exp exp2.d3; maxima rounded;"), false},
    {ATTENTION("scale 0.05; cap_log2 7.2; block 48; split 144; maxima rounded;"), false},
    {SUNK(SMALL "window 21; maxima rounded;"), true},
    {ATTENTION(SCALE "exp ex2; maxima rounded;"), false},
    {ATTENTION("scale 0.05; cap_log2 7.2; block 48; split 144; exp ex2; maxima rounded;"), false},
    {SUNK(SMALL "window 21; exp ex2;"), true},
    {SUNK(SMALL "window 21;"), true},
    {SUNK(SCALE), true},
};

static int compare_rows(const Attention *a, const Batch *b, const Bits *bits, Variant variant,
                        bool sinks, int step)
{
    int differ = 0;
    for (int t = 0; t < b->n; t++)
        for (int h = 0; h < HEADS && (t % step == 0 || t == b->n - 1); h++) {
            float want[DEPTH + 1];
            ref_token(a, b->request[t], b->position[t], b->length[b->sequence[t]], variant, sinks,
                      h, want);
            bool same = iso_f32_bits(want[DEPTH]) == bits->lse[t][h] &&
                        !memcmp(want, &bits->o[t][h * DEPTH], sizeof(float) * DEPTH);
            differ += !same;
        }
    return differ;
}

START_TEST(rows_are_as_the_clause_says)
{
    const int lengths[] = {1, 2, 15, 16, 17, 127, 128, 129};
    Attention a;
    Batch b;
    attention_open(&a, forms[_i].text);
    Bits bits = run_whole(&a, lengths, 8, &b);
    ck_assert_int_eq(compare_rows(&a, &b, &bits, AS_WRITTEN, forms[_i].sinks, 3), 0);
    bits_free(&bits);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

START_TEST(long_rows_are_as_the_clause_says)
{
    const int lengths[] = {1023, 1024, 1025};
    Attention a;
    Batch b = {.lengths = false};
    attention_open(&a, forms[0].text);
    for (int r = 0; r < 3; r++)
        batch_slot(&b, r, lengths[r]);
    for (int r = 0; r < 3; r++)
        for (int p = lengths[r] - 2; p < lengths[r]; p++)
            batch_token(&b, r, p);
    Bits bits = run(&a, &b);
    ck_assert_int_eq(compare_rows(&a, &b, &bits, AS_WRITTEN, false, 1), 0);
    bits_free(&bits);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

/* Of one row in f64, by the textbook: scale, cap and sinks in natural units. */
static double near_softmax(const Attention *a, const Batch *b, const Bits *bits, bool sinks, int t,
                           int h)
{
    const Attend *at = attend_of(a);
    double scale = (double)iso_bits_f32(at->scale), cap = (double)iso_bits_f32(at->cap) * log(2);
    double most = 0, sum = 0, value[DEPTH] = {0};
    int p = b->position[t], from = at->window && p >= at->window ? p + 1 - (int)at->window : 0;
    for (int pass = 0; pass < 2; pass++)
        for (int key = from; key <= p + sinks; key++) {
            double s = 0;
            for (int i = 0; i < DEPTH && key <= p; i++)
                s += (double)iso_f32_of_bf16(content(OF_QUERY, 0, p, h * DEPTH + i)) *
                     (double)iso_f32_of_bf16(content(OF_KEY, 0, key, h / GROUP * DEPTH + i));
            s = key > p ? (double)sink_of(h) : at->capped ? cap * tanh(s * scale)
                                                          : s * scale * log(2);
            most = pass == 0 && (key == from || s > most) ? s : most;
            sum += pass ? exp(s - most) : 0;
            for (int i = 0; pass && i < DEPTH && key <= p; i++)
                value[i] += exp(s - most) * (double)iso_f32_of_bf16(
                                                content(OF_VALUE, 0, key, h / GROUP * DEPTH + i));
        }
    double off = fabs((double)iso_bits_f32(bits->lse[t][h]) - most - log(sum));
    for (int i = 0; i < DEPTH; i++) {
        double e = fabs((double)iso_bits_f32(bits->o[t][h * DEPTH + i]) - value[i] / sum);
        ck_assert_msg(e < 0.02, "token %d, head %d, element %d is off by %g", t, h, i, e);
    }
    return off;
}

START_TEST(values_are_near_softmax)
{
    const int length = 150;
    Attention a;
    Batch b;
    attention_open(&a, forms[_i].text);
    Bits bits = run_whole(&a, &length, 1, &b);
    double most = attend_of(&a)->exp2 == FN_EXP2_D3 ? 2e-3 : 2e-5;
    for (int t = 0; t < length; t += 7)
        for (int h = 0; h < HEADS; h++) {
            double off = near_softmax(&a, &b, &bits, forms[_i].sinks, t, h);
            ck_assert_msg(off < most, "the lse of token %d is off by %g", t, off);
        }
    bits_free(&bits);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

/* Every rule of the clause moves bits of these rows. */
START_TEST(each_rule_shows)
{
    const int length = 300;
    Attention a;
    Batch b;
    attention_open(&a, ATTENTION(SCALE "block 64; split 128; window 203;"));
    Bits bits = run_whole(&a, &length, 1, &b);
    ck_assert_int_eq(compare_rows(&a, &b, &bits, AS_WRITTEN, false, 17), 0);
    ck_assert_int_gt(compare_rows(&a, &b, &bits, (Variant)_i, false, 17), 0);
    bits_free(&bits);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

/* ---- however a batch is put together --------------------------------------------------------- */

static const int three[] = {130, 17, 67};

typedef struct Whole {
    Attention a;
    Batch b;
    Bits bits;
    int first[3];
} Whole;

static void whole_open(Whole *w, const char *text)
{
    attention_open(&w->a, text);
    w->bits = run_whole(&w->a, three, 3, &w->b);
    for (int r = 1; r < 3; r++)
        w->first[r] = w->first[r - 1] + three[r - 1];
}

static void whole_close(Whole *w)
{
    bits_free(&w->bits);
    batch_free(&w->b);
    front_close(&w->a.f);
}

/* Each token of the batch has the bits that it has when all requests are whole; gives how many
 * differ, and ends the batch. */
static int differ(const Whole *w, Batch *b)
{
    int n = 0;
    Bits bits = run(&w->a, b);
    for (int t = 0; t < b->n; t++) {
        if (b->sequence[t] < 0 || b->length[b->sequence[t]] == 0)
            continue;
        int at = w->first[b->request[t]] + b->position[t];
        n += memcmp(bits.o[t], w->bits.o[at], sizeof bits.o[t]) ||
             memcmp(bits.lse[t], w->bits.lse[at], sizeof bits.lse[t]);
    }
    bits_free(&bits);
    batch_free(b);
    return n;
}

/* Query chunks cut anywhere, the last row alone, other requests before and between. */
START_TEST(chunks_and_packing_move_no_bit)
{
    Whole w = {.first = {0}};
    whole_open(&w, forms[_i].text);
    const int cuts[][2] = {{0, 130}, {0, 1}, {1, 17}, {16, 33}, {129, 130}, {63, 130}, {100, 129}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        Batch b = {.threads = 1 + (int)i % 3};
        batch_slot(&b, 2, three[2]);
        batch_slot(&b, 0, cuts[i][1]);
        batch_slot(&b, 1, three[1]);
        for (int p = cuts[i][0]; p < cuts[i][1]; p++) {
            batch_token(&b, 1, p);
            if (p % 3 == 0)
                batch_token(&b, 0, p % three[2]);
        }
        batch_token(&b, 2, 16);
        ck_assert_int_eq(differ(&w, &b), 0);
    }
    whole_close(&w);
}
END_TEST

static u64 random_next(u64 *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Tokens of all requests in any order, requests in any slot. */
START_TEST(permuted_tokens_move_no_bit)
{
    Whole w = {.first = {0}};
    whole_open(&w, forms[5].text);
    u64 state = 88172645463325252u;
    for (int trial = 0; trial < 3; trial++) {
        Batch b = {.threads = 2};
        for (int i = 0; i < 3; i++)
            batch_slot(&b, (i + trial) % 3, three[(i + trial) % 3]);
        for (int i = 0; i < 60; i++) {
            int slot = (int)(random_next(&state) % 3);
            batch_token(&b, slot, (int)(random_next(&state) % (u64)b.length[slot]));
        }
        ck_assert_int_eq(differ(&w, &b), 0);
    }
    whole_close(&w);
}
END_TEST

/* Later keys of the same sequence, of others, and memory that belongs to none are NaN or
 * infinite. */
START_TEST(unseen_keys_touch_nothing)
{
    const u16 stale[] = {0x7FC0, 0x7F80, 0xFF80, 0xFFFF, 0x7F7F};
    Whole w = {.first = {0}};
    whole_open(&w, forms[_i].text);
    for (int i = 0; i < 5; i++) {
        Batch b = {.stale = stale[i]};
        batch_slot(&b, 0, 100);
        batch_slot(&b, 1, 3);
        batch_slot(&b, 2, 48);
        b.positions = 200;
        for (int p = 0; p < 100; p += 1 + p % 7)
            batch_token(&b, 0, p);
        for (int p = 0; p < 48; p += 5) {
            batch_token(&b, 2, p);
            batch_token(&b, 1, p % 3);
        }
        ck_assert_int_eq(differ(&w, &b), 0);
    }
    whole_close(&w);
}
END_TEST

/* Pages of 16 and 528 keys in any order, and packed rows; what no request owns is NaN. */
START_TEST(pages_move_no_bit)
{
    const i64 sizes[] = {1, 16, 528};
    Whole w = {.first = {0}};
    i64 place[3 * 130];
    whole_open(&w, forms[_i].text);
    for (int s = 0; s < 3; s++) {
        i64 per = (130 + sizes[s] - 1) / sizes[s], pages = 3 * per + 2;
        Batch b = {.stale = 0x7FC1, .place = place, .places = pages * sizes[s]};
        for (int r = 0; r < 3; r++)
            batch_slot(&b, r, three[r]);
        for (i64 i = 0; i < 3 * 130; i++) {
            i64 page = (i / 130 * per + i % 130 / sizes[s]) * 7 % (3 * per);
            place[i] = (page + 1) * sizes[s] + i % 130 % sizes[s];
        }
        for (int r = 0; r < 3; r++)
            for (int p = r; p < three[r]; p += 4)
                batch_token(&b, r, p);
        ck_assert_int_eq(differ(&w, &b), 0);
    }
    whole_close(&w);
}
END_TEST

/* Padding rows are of no sequence, or of one without keys. */
START_TEST(a_row_without_keys_is_zero)
{
    Whole w = {.first = {0}};
    whole_open(&w, forms[_i].text);
    Batch b = {.lengths = true, .stale = 0x7FC0};
    batch_slot(&b, 1, three[1]);
    batch_slot(&b, 0, 0);
    batch_token(&b, 0, 5);
    batch_token(&b, -1, 0);
    batch_token(&b, 1, 9);
    batch_token(&b, 0, 6);
    Bits bits = run(&w.a, &b);
    for (int t = 1; t < 3; t++)
        for (int i = 0; i < ROW; i++) {
            ck_assert_uint_eq(bits.o[t][i], 0);
            ck_assert_uint_eq(bits.lse[t][i / DEPTH], 0xFF800000u);
        }
    bits_free(&bits);
    ck_assert_int_eq(differ(&w, &b), 0);
    whole_close(&w);
}
END_TEST

START_TEST(without_a_mask_all_keys_are_seen)
{
    Attention a;
    Batch b = {.lengths = true};
    attention_open(&a, ATTENTION(SMALL "mask none;"));
    batch_slot(&b, 0, 61);
    batch_slot(&b, 1, 4);
    batch_token(&b, 0, 0);
    batch_token(&b, 1, 3);
    batch_token(&b, 0, 60);
    Bits bits = run(&a, &b);
    ck_assert_int_eq(compare_rows(&a, &b, &bits, AS_WRITTEN, false, 1), 0);
    bits_free(&bits);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

/* ---- in expressions -------------------------------------------------------------------------- */

/* Runs an op of q, k, v for one request of 20 keys; o: its first result, f32, `n` of a token. */
static void run_op(const char *text, int n, const i64 *stride, float *o)
{
    Attention a;
    Batch b = {.slots = 0};
    attention_open(&a, text);
    batch_slot(&b, 0, 20);
    for (int p = 0; p < 20; p++)
        batch_token(&b, 0, p);
    i64 rows;
    u16 *k = stored_rows(&b, 1, OF_KEY, &rows), *v = stored_rows(&b, 1, OF_VALUE, &rows);
    u16 q[20 * ROW];
    for (int t = 0; t < 20; t++)
        for (int i = 0; i < ROW; i++)
            q[t * ROW + i] = content(OF_QUERY, 0, t, i);
    const ExecTensor params[] = {{.data = q, .stride = {ROW, DEPTH, 1}},
                                 {.data = k, .stride = {20 * KEY, KEY, DEPTH, 1}},
                                 {.data = v, .stride = {20 * KEY, KEY, DEPTH, 1}}};
    ExecTensor result = {.data = o, .stride = {n}};
    memcpy(result.stride + 1, stride, sizeof *stride * 3);
    ExecJob job = {.contract = &a.contract, .op = &a.dag.ops[0], .params = params,
                   .results = &result, .positions = b.position, .sequences = b.sequence,
                   .threads = 2};
    exec_box_all(&a.contract, 20, &job.box);
    ck_assert(exec_op(&job, a.f.arena));
    free(k);
    free(v);
    batch_free(&b);
    front_close(&a.f);
}

#define OP(results, rest)                                                                          \
    HEAD "op f(q: bf16[tokens, heads, head_dim], k, v: bf16[sequence, position, kv, head_dim])\n"  \
    "   -> " results " {\n    attend a = q, k, v { over head_dim; " SMALL " }\n" rest "}\n"

/* a[half 1], a[group 0]: what is held of a value is not held of its queries. */
START_TEST(values_are_held_at_indices)
{
    static float all[20 * ROW], half[20 * ROW / 2], group[20 * ROW / 2];
    run_op(OP("o: f32[tokens, heads, head_dim]", "o = a;"), ROW, (const i64[]){DEPTH, 1, 0}, all);
    run_op(OP("o: f32[tokens, heads, rot]", "o = a[half 1];"), ROW / 2, (const i64[]){8, 1, 0},
           half);
    run_op(OP("o: f32[tokens, kv, head_dim]", "o = a[group 1];"), ROW / 2, (const i64[]){16, 1, 0},
           group);
    for (int t = 0; t < 20; t++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < 8; i++) {
                ck_bits(half[(t * HEADS + h) * 8 + i], all[(t * HEADS + h) * DEPTH + 8 + i]);
                if (h % 2)
                    ck_bits(group[(t * KV + h / 2) * DEPTH + i], all[(t * HEADS + h) * DEPTH + i]);
            }
}
END_TEST

/* A value goes into a reduction, and the queries are computed. */
START_TEST(values_go_into_sums)
{
    static float all[20 * ROW], sum[20 * HEADS];
    run_op(OP("o: f32[tokens, heads, head_dim]", "o = a;"), ROW, (const i64[]){DEPTH, 1, 0}, all);
    run_op(HEAD "op f(q: bf16[tokens, heads, head_dim],\n"
                "     k, v: bf16[sequence, position, kv, head_dim]) -> o: f32[tokens, heads] {\n"
                "    p = q * 1.0;\n"
                "    attend a = p, k, v { over head_dim; " SMALL " }\n"
                "    o = sum(head_dim by chain) a; }\n", HEADS, (const i64[]){1, 0, 0}, sum);
    for (int r = 0; r < 20 * HEADS; r++) {
        float want = all[r * DEPTH];
        for (int i = 1; i < DEPTH; i++)
            want = iso_add(want, all[r * DEPTH + i]);
        ck_bits(sum[r], want);
    }
}
END_TEST

START_TEST(what_is_missing_is_said)
{
    Attention a;
    attention_open(&a, ATTENTION(SCALE "mask none;"));
    const int zero = 0;
    ExecJob job = {.contract = &a.contract, .op = &a.dag.ops[0], .positions = &zero,
                   .sequences = &zero, .threads = 1};
    exec_box_all(&a.contract, 0, &job.box);
    ck_assert(!exec_op(&job, a.f.arena));
    job.lengths = &zero;
    ck_assert(exec_op(&job, a.f.arena));
    job.sequences = NULL;
    ck_assert(!exec_op(&job, a.f.arena));
    front_close(&a.f);
}
END_TEST

Suite *attend_suite(void)
{
    Suite *suite = suite_create("attend");
    TCase *tc = tcase_create("all");
    enum { FORMS = sizeof forms / sizeof forms[0] };
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, one_key_is_its_value);
    tcase_add_test(tc, weights_are_powers_of_two);
    tcase_add_test(tc, the_larger_score_weighs_one);
    tcase_add_test(tc, a_cap_bounds_scores);
    tcase_add_test(tc, a_window_has_its_own_position);
    tcase_add_test(tc, a_nan_that_is_seen_stays);
    tcase_add_loop_test(tc, rows_are_as_the_clause_says, 0, FORMS);
    tcase_add_test(tc, long_rows_are_as_the_clause_says);
    tcase_add_loop_test(tc, values_are_near_softmax, 0, FORMS);
    tcase_add_loop_test(tc, each_rule_shows, AS_WRITTEN + 1, VARIANTS);
    tcase_add_loop_test(tc, chunks_and_packing_move_no_bit, 0, FORMS);
    tcase_add_test(tc, permuted_tokens_move_no_bit);
    tcase_add_loop_test(tc, unseen_keys_touch_nothing, 0, FORMS);
    tcase_add_loop_test(tc, pages_move_no_bit, 0, FORMS);
    tcase_add_loop_test(tc, a_row_without_keys_is_zero, 0, FORMS);
    tcase_add_test(tc, without_a_mask_all_keys_are_seen);
    tcase_add_test(tc, values_are_held_at_indices);
    tcase_add_test(tc, values_go_into_sums);
    tcase_add_test(tc, what_is_missing_is_said);
    suite_add_tcase(suite, tc);
    return suite;
}
