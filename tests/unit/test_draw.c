/* `draw`: Philox by its published vectors, noise, what limits keep, the distribution, and that a
 * row's index depends on nothing but the row. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/iso_random.cuh"
#include "exec/exec.h"
#include "meaning.h"

enum { VOCAB = 61, ROWS = 200 };

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, vocab = 61;\n"
    "op plain(z: f32[tokens, vocab], seed: i32[tokens]) -> token: vocab[tokens] {\n"
    "    draw token = z, seed { over vocab; }\n"
    "}\n"
    "op own(logits: f32[tokens, vocab], seed, stream, k: i32[tokens], t, p, m: f32[tokens])\n"
    "   -> token: vocab[tokens] {\n"
    "    draw token = logits, seed, stream {\n"
    "        over vocab; temperature t; top_k k; top_p p; min_p m;\n"
    "    }\n"
    "}\n"
    "op fixed(z: f32[tokens, vocab], seed: i32[tokens], t: f32[tokens]) -> token: vocab[tokens] {\n"
    "    draw token = z / t, seed { over vocab; top_k 5; top_p 0.75; min_p 0.01; }\n"
    "}\n";

static Front f;
static Contract contract;
static Dag dag;

static void open_ops(void)
{
    meaning_open(&f, text, &contract, &dag);
}

static void close_ops(void)
{
    front_close(&f);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct Rows {
    int n;
    float *z, *t, *p, *m;
    int32_t *seed, *stream, *k, *token;
    int *position;
} Rows;

static Rows rows_new(int n)
{
    Rows r = {.n = n};
    r.z = arena_array(f.arena, float, n * VOCAB);
    float **reals[] = {&r.t, &r.p, &r.m};
    int32_t **words[] = {&r.seed, &r.stream, &r.k, &r.token};
    for (int i = 0; i < 3; i++)
        *reals[i] = arena_array(f.arena, float, n);
    for (int i = 0; i < 4; i++)
        *words[i] = arena_array(f.arena, int32_t, n);
    r.position = arena_array(f.arena, int, n);
    for (int i = 0; i < n; i++) {
        r.t[i] = 1;
        r.p[i] = 1;
        r.position[i] = i;
        r.token[i] = -77;
    }
    return r;
}

static void run(int op, const Rows *r)
{
    ExecTensor own[] = {{.data = r->z, .stride = {VOCAB, 1}}, {.data = r->seed, .stride = {1}},
                        {.data = r->stream, .stride = {1}},   {.data = r->k, .stride = {1}},
                        {.data = r->t, .stride = {1}},        {.data = r->p, .stride = {1}},
                        {.data = r->m, .stride = {1}}};
    ExecTensor fixed[] = {own[0], own[1], own[4]}, result = {.data = r->token, .stride = {1}};
    ExecJob job = {.contract = &contract, .op = &dag.ops[op], .params = op == 2 ? fixed : own,
                   .results = &result, .positions = r->position, .threads = 2};
    exec_box_all(&contract, r->n, &job.box);
    ck_assert(exec_op(&job, f.arena));
}

static float bell(u64 *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) * 0x1p-24f;
    }
    return (sum - 2) * 1.7320508f;
}

/* ---- the generator --------------------------------------------------------------------------- */

/* Of Random123's kat_vectors: counter, key, result. */
START_TEST(philox_gives_its_published_words)
{
    static const IsoU32 known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        IsoWords counter = {{known[i][0], known[i][1], known[i][2], known[i][3]}};
        IsoWords out = iso_philox(counter, known[i][4], known[i][5]);
        ck_assert_mem_eq(out.w, known[i] + 6, sizeof out.w);
    }
}
END_TEST

/* Against the same in f64, where the noise is great too. */
START_TEST(noise_is_a_double_logarithm)
{
    double worst = 0;
    for (u64 i = 0; i < 4000000; i++) {
        IsoU32 w = i < 2000000 ? (IsoU32)(i * 2147u) : (IsoU32)(i - 2000000) * 3u;
        double u = fmin((double)(float)(w | 1u) * 0x1p-32, 0x1.fffffep-1);
        double want = -log(-log1p(-u)), error = fabs(iso_gumbel(w) - want);
        worst = error > worst ? error : worst;
    }
    ck_assert_msg(worst < 4e-6, "%g", worst);
    ck_assert(iso_gumbel(0) > 22.18f && iso_gumbel(0) < 22.19f);
    ck_assert(iso_gumbel(0xFFFFFFFFu) > -2.82f);
}
END_TEST

/* ---- what is kept ---------------------------------------------------------------------------- */

/* By the clause's own words: each index against all others. */
static bool is_before(const float *z, int v, int u)
{
    return z[v] > z[u] || (z[v] == z[u] && v < u);
}

static u64 mass_before(const float *z, const bool *kept, int v, float most)
{
    u64 sum = 0;
    for (int u = 0; u < VOCAB; u++)
        if (kept[u] && is_before(z, u, v))
            sum += (u64)(iso_pair_scale(z[u], most) * 0x1p40f);
    return sum;
}

static void keep(const float *z, int k, float p, float m, bool *kept)
{
    int first = 0;
    bool all[VOCAB];
    for (int v = 1; v < VOCAB; v++)
        first = is_before(z, v, first) ? v : first;
    for (int v = 0; v < VOCAB; v++)
        kept[v] = z[v] > -INFINITY;
    for (int v = 0; v < VOCAB && m > 0; v++)
        kept[v] &= v == first || iso_pair_scale(z[v], z[first]) >= m;
    memcpy(all, kept, sizeof all);
    for (int v = 0; v < VOCAB && k > 0; v++) {
        int before = 0;
        for (int u = 0; u < VOCAB; u++)
            before += all[u] && is_before(z, u, v);
        kept[v] &= before < k;
    }
    if (!(p < 1))
        return;
    memcpy(all, kept, sizeof all);
    unsigned __int128 total = 0, share = (u64)((p > 0 ? p : 0) * 0x1p24f);
    for (int v = 0; v < VOCAB; v++)
        total += all[v] ? (u64)(iso_pair_scale(z[v], z[first]) * 0x1p40f) : 0;
    for (int v = 0; v < VOCAB; v++)
        kept[v] &= v == first || ((u64)(iso_pair_scale(z[v], z[first]) * 0x1p40f) &&
                                  mass_before(z, all, v, z[first]) < (u64)(total * share >> 24));
}

static int greatest(const float *z, const bool *kept, u32 seed, u32 stream, u32 position)
{
    int best = -1;
    float most = 0;
    for (int v = 0; v < VOCAB; v++) {
        IsoWords c = {{(u32)v / 4, position, 0, 0}};
        float x = z[v] + iso_gumbel(iso_philox(c, seed, stream).w[v % 4]);
        if (kept[v] && (best < 0 || x > most)) {
            best = v;
            most = x;
        }
    }
    return best;
}

/* Scores with many ties, limits at and beyond their edges. */
static Rows limited_rows(int n)
{
    static const float shares[] = {0.5f, 0.9f, 1, 0, -1, 1e-9f, NAN, 0.999999f, 2, 0.25f};
    static const float least[] = {0, 0.1f, 0.5f, 1, NAN, -1, 1e-6f};
    static const int counts[] = {0, 1, 2, 5, 60, 61, 1000, -3, 7};
    Rows r = rows_new(n);
    u64 state = 7;
    for (int i = 0; i < n; i++) {
        for (int v = 0; v < VOCAB; v++) {
            float z = bell(&state) * (i % 3 ? 2 : 0.2f);
            r.z[i * VOCAB + v] = i % 4 == 1 ? floorf(z) : i % 11 == 5 && v % 3 ? -INFINITY : z;
        }
        r.seed[i] = i * 7919;
        r.stream[i] = i % 5 - 2;
        r.k[i] = counts[i % 9];
        r.p[i] = shares[i % 10];
        r.m[i] = least[i % 7];
        r.position[i] = i * i;
        if (i % 13 != 3)
            continue;
        for (int v = 0; v < VOCAB; v++) /* a share that ends between two of equal mass */
            r.z[i * VOCAB + v] = v % 2 && v < 8 ? 1.5f : -INFINITY;
        r.k[i] = 0;
        r.p[i] = 0.25f * (float)(i % 4);
        r.m[i] = 0;
    }
    return r;
}

START_TEST(limits_keep_what_the_clause_says)
{
    Rows r = limited_rows(3 * ROWS);
    run(1, &r);
    for (int i = 0; i < r.n; i++) {
        bool kept[VOCAB];
        keep(r.z + i * VOCAB, r.k[i], r.p[i], r.m[i], kept);
        ck_assert_msg(r.token[i] == greatest(r.z + i * VOCAB, kept, (u32)r.seed[i],
                                             (u32)r.stream[i], (u32)r.position[i]),
                      "row %d: %d", i, r.token[i]);
    }
    run(2, &r);
    for (int i = 0; i < r.n; i++) {
        bool kept[VOCAB];
        keep(r.z + i * VOCAB, 5, 0.75f, 0.01f, kept);
        ck_assert_int_eq(r.token[i], greatest(r.z + i * VOCAB, kept, (u32)r.seed[i], 0,
                                              (u32)r.position[i]));
    }
}
END_TEST

START_TEST(greedy_rows_take_the_first)
{
    Rows r = limited_rows(ROWS);
    for (int i = 0; i < r.n; i++)
        r.t[i] = i % 2 ? -0.0f : 0;
    run(1, &r);
    for (int i = 0; i < r.n; i++) {
        int first = 0;
        for (int v = 1; v < VOCAB; v++)
            first = is_before(r.z + i * VOCAB, v, first) ? v : first;
        ck_assert_int_eq(r.token[i], first);
    }
}
END_TEST

START_TEST(rows_without_a_possible_index_draw_none)
{
    Rows r = rows_new(6);
    const float zeros[] = {0, NAN, -NAN, -INFINITY, INFINITY, 0};
    for (int i = 0; i < r.n; i++)
        for (int v = 0; v < VOCAB; v++)
            r.z[i * VOCAB + v] = i == 3 ? -INFINITY : v == 17 ? zeros[i] : -1;
    r.t[5] = NAN;
    run(1, &r);
    const int want[] = {0, -1, -1, -1, 17, -1};
    for (int i = 1; i < r.n; i++)
        ck_assert_int_eq(r.token[i], want[i]);
    ck_assert_int_ge(r.token[0], 0);
    run(0, &r);
    ck_assert_int_eq(r.token[1], -1);
    ck_assert_int_eq(r.token[3], -1);
    ck_assert_int_eq(r.token[4], 17);
}
END_TEST

/* ---- the distribution ------------------------------------------------------------------------ */

/* The probability that chi-square of so many degrees of freedom is above x: Wilson and Hilferty's
 * approximation, good to some hundredths. */
static double above(double x, int freedom)
{
    double d = 2.0 / (9.0 * freedom), z = (cbrt(x / freedom) - (1 - d)) / sqrt(d);
    return erfc(z / sqrt(2)) / 2;
}

/* Draws of one row of scores, by position and by seed, against softmax over what is kept. */
static double chi_square(int op, const Rows *r, int *freedom)
{
    bool kept[VOCAB];
    double p[VOCAB], sum = 0, x = 0;
    int count[VOCAB] = {0};
    keep(r->z, op ? r->k[0] : 0, op ? r->p[0] : 1, op ? r->m[0] : 0, kept);
    for (int v = 0; v < VOCAB; v++)
        sum += p[v] = kept[v] ? exp((double)r->z[v]) : 0;
    run(op, r);
    for (int i = 0; i < r->n; i++)
        count[r->token[i]]++;
    *freedom = -1;
    for (int v = 0; v < VOCAB; v++) {
        double want = p[v] / sum * r->n;
        ck_assert(kept[v] || !count[v]);
        if (!kept[v])
            continue;
        ck_assert_msg(want >= 5, "too few of %d", v);
        x += (count[v] - want) * (count[v] - want) / want;
        ++*freedom;
    }
    return x;
}

static Rows many(int n, bool by_seed)
{
    Rows r = rows_new(n);
    u64 state = 3;
    for (int v = 0; v < VOCAB; v++)
        r.z[v] = bell(&state);
    for (int i = 0; i < n; i++) {
        memcpy(r.z + i * VOCAB, r.z, sizeof(float) * VOCAB);
        r.seed[i] = by_seed ? i : 42;
        r.stream[i] = 0;
        r.position[i] = by_seed ? 9 : i;
        r.k[i] = 40;
        r.p[i] = 0.95f;
    }
    return r;
}

/* Seeds are fixed: the p-values are 0.61, 0.29, 0.66 and 0.34. */
START_TEST(draws_follow_softmax)
{
    for (int i = 0; i < 4; i++) {
        Rows r = many(60000, i % 2);
        int freedom;
        double x = chi_square(i / 2, &r, &freedom), p = above(x, freedom);
        ck_assert_msg(p > 0.01 && p < 0.99, "case %d: chi-square %g of %d, p %g", i, x, freedom, p);
        if (getenv("DRAW_SHOW"))
            fprintf(stderr, "case %d: chi-square %.1f of %d, p %.2f\n", i, x, freedom, p);
    }
}
END_TEST

/* ---- what a row depends on ------------------------------------------------------------------- */

static void copy_row(const Rows *from, int i, Rows *to, int at)
{
    memcpy(to->z + at * VOCAB, from->z + i * VOCAB, sizeof(float) * VOCAB);
    to->seed[at] = from->seed[i];
    to->stream[at] = from->stream[i];
    to->k[at] = from->k[i];
    to->p[at] = from->p[i];
    to->m[at] = from->m[i];
    to->t[at] = from->t[i];
    to->position[at] = from->position[i];
}

START_TEST(rows_do_not_depend_on_each_other)
{
    Rows all = limited_rows(ROWS);
    run(1, &all);
    for (int part = 1; part <= 7; part += 2) {
        Rows some = rows_new(ROWS / part);
        for (int i = 0; i < some.n; i++)
            copy_row(&all, (i * 37 + part) % ROWS, &some, i);
        run(1, &some);
        for (int i = 0; i < some.n; i++)
            ck_assert_int_eq(some.token[i], all.token[(i * 37 + part) % ROWS]);
    }
}
END_TEST

START_TEST(seeds_streams_and_positions_differ)
{
    Rows r = many(300, false);
    int equal[3] = {0};
    for (int i = 0; i < r.n; i++) {
        r.k[i] = 0;
        r.p[i] = 1;
        r.seed[i] = i % 4 == 1;
        r.stream[i] = i % 4 == 2;
        r.position[i] = i / 4 + (i % 4 == 3 ? 1000 : 0);
    }
    run(1, &r);
    for (int i = 0; i < r.n; i += 4)
        for (int k = 1; k < 4; k++)
            equal[k - 1] += r.token[i] == r.token[i + k];
    for (int k = 0; k < 3; k++)
        ck_assert_int_lt(equal[k], 20); /* of 75; about 5 by chance */
}
END_TEST

START_TEST(the_graph_as_text)
{
    Text out = {.arena = f.arena}, hashed = {.arena = f.arena};
    dag_print(&dag, &dag.ops[1], &out);
    *strstr(out.s, "  fingerprint") = 0;
    ck_assert_str_eq(out.s, "op own\n"
                            "  %0 = logits: f32[tokens, vocab]\n"
                            "  %1 = draw over vocab seed seed stream stream temperature t top_k k "
                            "top_p p min_p m %0: f32[tokens]\n"
                            "  token = %1\n");
    dag_canonical(&dag, &dag.ops[2], &hashed);
    const char *after = strchr(strstr(hashed.s, "functions "), '\n') + 1;
    ck_assert_str_eq(after, "param 0 z f32 [a0:free, a1:61]\n"
                            "param 1 seed i32 [a0:free]\n"
                            "param 2 t f32 [a0:free]\n"
                            "result 0 token index of a1:61 [a0:free]\n"
                            "%0 = input f32 0 [a0:free, a1:61]\n"
                            "%1 = input f32 2 [a0:free]\n"
                            "%2 = div f32 %0 %1\n"
                            "%3 = draw f32 over [a1:61] seed param 1 top_k 5 top_p 0x3f400000 "
                            "min_p 0x3c23d70a %2\n"
                            "store 0 = %3\n");
}
END_TEST

Suite *draw_suite(void)
{
    Suite *suite = suite_create("draw");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, philox_gives_its_published_words);
    tcase_add_test(tc, noise_is_a_double_logarithm);
    tcase_add_test(tc, limits_keep_what_the_clause_says);
    tcase_add_test(tc, greedy_rows_take_the_first);
    tcase_add_test(tc, rows_without_a_possible_index_draw_none);
    tcase_add_test(tc, draws_follow_softmax);
    tcase_add_test(tc, rows_do_not_depend_on_each_other);
    tcase_add_test(tc, seeds_streams_and_positions_differ);
    tcase_add_test(tc, the_graph_as_text);
    suite_add_tcase(suite, tc);
    return suite;
}
