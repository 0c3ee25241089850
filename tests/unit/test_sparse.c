/* Sparse axes and what stands at their slots: mixtures of experts. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"
#include "exec/exec.h"
#include "base/fdpa.h"
#include "meaning.h"

enum { TOKENS = 9, PICKS = 3, EXPERTS = 7, HIDDEN = 40, FFN = 6 };

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "param of = 3;\n"
    "axis tokens = sequence * position ragged, picks = of of experts, experts = 7;\n"
    "axis hidden = 40, ffn = 6;\n"
    "op some(chosen: experts[tokens, picks], x: f32[tokens, picks]) -> y: f32[tokens, picks] {\n"
    "    y = x;\n"
    "}\n"
    "op rows(chosen: experts[tokens, picks], w: bf16[experts, hidden])\n"
    "   -> y: bf16[tokens, picks, hidden] { y = w[experts chosen]; }\n"
    "op products(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
    "            w: bf16[experts, ffn, hidden]) -> y: f32[tokens, picks, ffn] {\n"
    "    y = sum(hidden by mma) x * w[experts chosen];\n"
    "}\n"
    "op computed(z: f32[tokens, experts], chosen: experts[tokens, picks])\n"
    "   -> y: f32[tokens, picks] { e = exp(z);  y = e[experts chosen]; }\n"
    "op kept(z: f32[tokens, experts], chosen: experts[tokens, picks])\n"
    "   -> y: f32[tokens, picks] { y = max(experts by chain) z[experts = chosen]; }\n"
    "op drawn(z: f32[tokens, experts], seed: i32[tokens]) -> (t: experts[tokens],\n"
    "         y: f32[tokens], k: f32[tokens, experts]) {\n"
    "    draw t = z, seed { over experts; }\n"
    "    e = -z;  y = e[experts t];  k = z[experts = t];\n"
    "}\n"
#define COMBINE(name, by, body)                                                                    \
    "op " name "(d: bf16[tokens, picks, ffn], v: f32[tokens, picks],\n"                            \
    "    chosen: experts[tokens, picks]) -> y: f32[tokens, ffn] { y = " by " " body "; }\n"
    COMBINE("chained", "sum(picks at experts chosen by chain)", "v * f32(d)")
    COMBINE("one_by_one", "sum(picks at experts chosen by chain add)", "v * f32(d)")
    COMBINE("pairs", "sum(picks at experts chosen by split 7 { chain } pairwise f32)", "v * f32(d)")
    COMBINE("parts", "sum(picks at experts chosen by split [3, 4] { chain } pairwise f32)",
            "v * f32(d)")
    COMBINE("bare", "sum(picks at experts chosen by split 7 { chain } pairwise f32)", "f32(d)")
    COMBINE("rounded", "f32(sum(picks at experts chosen by split 7 { chain } left bf16)",
            "v * f32(d))")
    COMBINE("in_lanes", "sum(picks at experts chosen by lanes 3 by 1 { chain } pairwise f32)",
            "v * f32(d)")
    COMBINE("most", "max(picks at experts chosen by split 7 { chain } pairwise f32)", "v * f32(d)")
    COMBINE("lse", "logsumexp(picks at experts chosen by split 7 { chain } pairwise f32)",
            "v * f32(d)")
    COMBINE("in_order", "f32(len(picks)) * sum(picks by chain)", "v * f32(d)");

enum { SOME, ROWS, PRODUCTS, COMPUTED, KEPT, DRAWN, CHAIN, ONE_BY_ONE, PAIRS, PARTS, BARE, ROUNDED,
       LANES, MOST, LSE, SLOTS };

static Front f;
static Contract contract;
static Dag dag;
/* All tokens at one expert and others; a token without slots, two with some; experts 0 and 6 have
 * no token. */
static const int32_t chosen[TOKENS][PICKS] = {{1, 2, 3}, {1, 5, 4}, {3, 1, 2}, {-1, -1, -1},
                                              {1, -1, 7}, {2, 1, 5}, {5, 3, 1}, {1, 4, 2},
                                              {INT32_MAX, 1, INT32_MIN}};
static u16 x[TOKENS * HIDDEN], w[EXPERTS * FFN * HIDDEN];
static float z[TOKENS * EXPERTS], v[TOKENS][PICKS];
static u16 d[TOKENS][PICKS][FFN];

static void open_ops(void)
{
    u32 r = 7;
    meaning_open(&f, text, &contract, &dag);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        x[i] = (u16)(0x3E00 + ((r = r * 1664525 + 1013904223) >> 8) % 0x200);
    for (int i = 0; i < EXPERTS * FFN * HIDDEN; i++)
        w[i] = (u16)(0x3E00 + ((r = r * 1664525 + 1013904223) >> 8) % 0x200);
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        z[i] = (float)(i * 37 % 101) * 0x1p-5f;
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < PICKS; k++) {
            bool stands = chosen[t][k] >= 0 && chosen[t][k] < EXPERTS;
            v[t][k] = stands ? (float)((t * 31 + k * 17) % 29 - 11) * 0x1.234568p-3f : NAN;
            for (int n = 0; n < FFN; n++)
                d[t][k][n] = (u16)(stands ? 0x3E80 + ((r = r * 1664525 + 1013904223) >> 8) % 0x200
                                          : 0x7FC1);
        }
}

static void close_ops(void)
{
    front_close(&f);
}

#define CHOSEN {.data = (void *)chosen, .stride = {PICKS, 1}}
#define Z {.data = z, .stride = {EXPERTS, 1}}

static void run(int op, ExecTensor *params, ExecTensor *results)
{
    static int positions[TOKENS];
    ExecJob job = {.contract = &contract, .op = &dag.ops[op], .params = params,
                   .results = results, .threads = 2, .positions = positions};
    exec_box_all(&contract, TOKENS, &job.box);
    ck_assert(exec_op(&job, f.arena));
}

static bool stands(int t, int k)
{
    return chosen[t][k] >= 0 && chosen[t][k] < EXPERTS;
}

START_TEST(slots_are_an_axis)
{
    const Tensor *chosen = &contract.ops[0].params[0], *x = &contract.ops[0].params[1];
    const Axis *picks = &contract.axes[x->axes[1]];
    ck_assert_int_eq((int)picks->size, 3);
    ck_assert_int_ge(picks->atom, 0);
    ck_assert_int_eq(picks->sparse_of, chosen->index_of);
    ck_assert_int_eq((int)contract.axes[chosen->index_of - 1].size, 7);
    ck_assert_int_eq(contract.axes[chosen->index_of - 1].sparse_of, 0);
    ck_assert(chosen->mask == x->mask);
}
END_TEST

START_TEST(rows_of_slots)
{
    static u16 y[TOKENS][PICKS][HIDDEN];
    run(ROWS, (ExecTensor[]){CHOSEN, {.data = w, .stride = {HIDDEN, 1}}},
        &(ExecTensor){.data = y, .stride = {PICKS * HIDDEN, HIDDEN, 1}});
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < PICKS; k++)
            for (int h = 0; h < HIDDEN; h++)
                ck_assert_uint_eq(y[t][k][h], stands(t, k) ? w[chosen[t][k] * HIDDEN + h] : 0);
}
END_TEST

/* By hand: groups of 16 from c = +0, as clause 6.5 has it. */
static u32 product(const u16 *a, const u16 *b)
{
    const FdpaClass *class = fdpa_class("sm_90", FDPA_BF16);
    float c = 0;
    u16 pattern[2][48] = {{0}};
    FdpaElem row[2][48];
    memcpy(pattern[0], a, sizeof *a * HIDDEN);
    if (b)
        memcpy(pattern[1], b, sizeof *b * HIDDEN);
    for (int i = 0; i < 2; i++)
        fdpa_decode(class, FDPA_BF16, pattern[i], 1, 48, row[i]);
    for (int k = 0; k < 48; k += 16)
        c = fdpa_step(class, row[0] + k, row[1] + k, c);
    return iso_f32_bits(c);
}

START_TEST(products_of_slots)
{
    static float y[TOKENS][PICKS][FFN];
    x[3 * HIDDEN + 1] = 0x7F80; /* an infinity times the zeros of a slot that stands nowhere */
    run(PRODUCTS, (ExecTensor[]){{.data = x, .stride = {HIDDEN, 1}}, CHOSEN,
                                 {.data = w, .stride = {FFN * HIDDEN, HIDDEN, 1}}},
        &(ExecTensor){.data = y, .stride = {PICKS * FFN, FFN, 1}});
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < PICKS; k++)
            for (int n = 0; n < FFN; n++)
                ck_assert_uint_eq(
                    iso_f32_bits(y[t][k][n]),
                    product(x + t * HIDDEN,
                            stands(t, k) ? w + (chosen[t][k] * FFN + n) * HIDDEN : NULL));
    ck_assert_uint_eq(iso_f32_bits(y[3][0][0]), 0x7FFFFFFF);
    ck_assert_uint_eq(iso_f32_bits(y[4][1][0]), 0);
}
END_TEST

START_TEST(computed_values_of_slots)
{
    float y[TOKENS][PICKS], k[TOKENS][PICKS];
    run(COMPUTED, (ExecTensor[]){Z, CHOSEN}, &(ExecTensor){.data = y, .stride = {PICKS, 1}});
    run(KEPT, (ExecTensor[]){Z, CHOSEN}, &(ExecTensor){.data = k, .stride = {PICKS, 1}});
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < PICKS; i++) {
            float own = stands(t, i) ? z[t * EXPERTS + chosen[t][i]] : 0;
            ck_assert_uint_eq(iso_f32_bits(y[t][i]), iso_f32_bits(iso_exp(own)));
            ck_assert_uint_eq(iso_f32_bits(k[t][i]),
                              stands(t, i) ? iso_f32_bits(own) : 0xFF800000u);
        }
}
END_TEST

START_TEST(indices_that_the_op_sets)
{
    int32_t drawn[TOKENS], seed[TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    float y[TOKENS], k[TOKENS][EXPERTS];
    z[2 * EXPERTS] = NAN; /* this row draws nothing */
    run(DRAWN, (ExecTensor[]){Z, {.data = seed, .stride = {1}}},
        (ExecTensor[]){{.data = drawn, .stride = {1}}, {.data = y, .stride = {1}},
                       {.data = k, .stride = {EXPERTS, 1}}});
    ck_assert_int_eq(drawn[2], -1);
    for (int t = 0; t < TOKENS; t++) {
        float own = drawn[t] < 0 ? 0 : z[t * EXPERTS + drawn[t]];
        ck_assert_uint_eq(iso_f32_bits(y[t]), iso_f32_bits(iso_neg(own)));
        for (int e = 0; e < EXPERTS; e++)
            ck_assert_uint_eq(iso_f32_bits(k[t][e]),
                              e == drawn[t] ? iso_f32_bits(own) : 0xFF800000u);
    }
    Text out = {.arena = f.arena};
    dag_canonical(&dag, &dag.ops[DRAWN], &out);
    ck_assert_ptr_nonnull(strstr(text_str(&out).s, "at a1=result 0 %"));
}
END_TEST

/* ---- sums of slots --------------------------------------------------------------------------- */

static int slot_at(int t, int place)
{
    int found = -1;
    for (int k = PICKS - 1; k >= 0; k--)
        found = chosen[t][k] == place ? k : found;
    return found;
}

/* What a test joins: a value that is there or not. */
typedef struct Maybe {
    bool there;
    float x;
} Maybe;

static Maybe both(Maybe a, Maybe b, int op)
{
    if (!a.there || !b.there)
        return a.there ? a : b;
    return (Maybe){true, op == MOST ? iso_max(a.x, b.x) : iso_add(a.x, b.x)};
}

/* By hand, from the text of clauses 6.3, 6.4 and 6.6. */
static Maybe element(int op, int t, int n, int place)
{
    int k = slot_at(t, place);
    if (k < 0)
        return (Maybe){false, 0};
    float x = iso_f32_of_bf16(d[t][k][n]);
    return (Maybe){true, op == BARE ? x : iso_mul(v[t][k], x)};
}

static Maybe chain(int op, int t, int n, int lo, int hi, int step)
{
    Maybe c = {false, 0};
    for (int e = lo; e < hi; e += step) {
        int k = slot_at(t, e);
        if (k < 0)
            continue;
        if (c.there && op != ONE_BY_ONE)
            c.x = iso_fma(v[t][k], iso_f32_of_bf16(d[t][k][n]), c.x);
        else
            c = both(c, element(op, t, n, e), op);
    }
    return c;
}

static Maybe pairs(int op, int t, int n, int lo, int hi)
{
    int half = 1;
    if (hi - lo == 1)
        return element(op, t, n, lo);
    while (2 * half < hi - lo)
        half *= 2;
    return both(pairs(op, t, n, lo, lo + half), pairs(op, t, n, lo + half, hi), op);
}

static float by_hand(int op, int t, int n)
{
    Maybe y = {false, 0};
    if (op == CHAIN || op == ONE_BY_ONE)
        y = chain(op, t, n, 0, EXPERTS, 1);
    else if (op == PARTS)
        y = both(chain(op, t, n, 0, 3, 1), chain(op, t, n, 3, 7, 1), op);
    else if (op == LANES)
        y = both(both(chain(op, t, n, 0, 7, 3), chain(op, t, n, 1, 7, 3), op),
                 chain(op, t, n, 2, 7, 3), op);
    else if (op == ROUNDED)
        for (int e = 0; e < EXPERTS; e++) {
            Maybe next = element(op, t, n, e);
            next.x = iso_f32_of_bf16(iso_bf16_of_f32(next.x));
            y = both(y, next, op);
            y.x = iso_f32_of_bf16(iso_bf16_of_f32(y.x));
        }
    else
        y = pairs(op, t, n, 0, EXPERTS);
    return y.there ? y.x : op == MOST ? -INFINITY : 0;
}

#define COMBINED                                                                                   \
    {.data = d, .stride = {PICKS * FFN, FFN, 1}}, {.data = v, .stride = {PICKS, 1}}, CHOSEN

START_TEST(sums_at_places)
{
    float y[TOKENS][FFN];
    for (int op = CHAIN; op <= MOST; op++) {
        run(op, (ExecTensor[]){COMBINED}, &(ExecTensor){.data = y, .stride = {FFN, 1}});
        for (int t = 0; t < TOKENS; t++)
            for (int n = 0; n < FFN; n++)
                ck_assert_msg(iso_f32_bits(y[t][n]) == iso_f32_bits(by_hand(op, t, n)),
                              "op %d: y[%d][%d] is %08x, not %08x", op, t, n,
                              iso_f32_bits(y[t][n]), iso_f32_bits(by_hand(op, t, n)));
        ck_assert_uint_eq(iso_f32_bits(y[3][0]), op == MOST ? 0xFF800000u : 0);
    }
}
END_TEST

START_TEST(slots_in_their_own_order)
{
    float y[TOKENS][FFN];
    run(SLOTS, (ExecTensor[]){COMBINED}, &(ExecTensor){.data = y, .stride = {FFN, 1}});
    for (int t = 0; t < TOKENS; t++)
        for (int n = 0; n < FFN; n++) {
            float c = iso_mul(v[t][0], iso_f32_of_bf16(d[t][0][n]));
            for (int k = 1; k < PICKS; k++)
                c = iso_fma(v[t][k], iso_f32_of_bf16(d[t][k][n]), c);
            ck_assert_uint_eq(iso_f32_bits(y[t][n]), iso_f32_bits(iso_mul(3, c)));
        }
}
END_TEST

START_TEST(ranks_sum_what_stands_at_theirs)
{
    enum { RANKS = 3 };
    static const int border[RANKS + 1] = {0, 3, 4, 7};
    static const int ops[] = {PAIRS, PARTS, BARE, ROUNDED, MOST, LSE};
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++) {
        float whole[TOKENS][FFN], y[TOKENS][FFN];
        ExecTensor params[] = {COMBINED}, result = {.data = whole, .stride = {FFN, 1}};
        ExecRoots *roots[RANKS];
        int n[RANKS], ranks = 0;
        run(ops[o], params, &result);
        ExecJob job = {.contract = &contract, .op = &dag.ops[ops[o]], .params = params,
                       .results = &result, .threads = 2};
        int experts = job.op->reduces.v[0]->atoms[0];
        for (int r = 0; r < RANKS; r += ops[o] == PARTS ? 2 : 1) {
            exec_box_all(&contract, TOKENS, &job.box);
            job.box.atom[experts].lo = border[r];
            job.box.atom[experts].hi = border[ops[o] == PARTS && r ? RANKS : r + 1];
            if (ops[o] == PARTS && r)
                job.box.atom[experts].lo = border[1];
            ck_assert(exec_part(&job, &roots[ranks], &n[ranks], f.arena));
            ck_assert_int_eq(n[ranks++], 1);
        }
        exec_box_all(&contract, TOKENS, &job.box);
        result.data = y;
        ck_assert(exec_join(&job, (const ExecRoots *const *)roots, n, ranks, f.arena));
        ck_assert_mem_eq(y, whole, sizeof y);
    }
}
END_TEST

Suite *sparse_suite(void)
{
    Suite *suite = suite_create("sparse");
    TCase *tc = tcase_create("sparse");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_add_test(tc, slots_are_an_axis);
    tcase_add_test(tc, rows_of_slots);
    tcase_add_test(tc, products_of_slots);
    tcase_add_test(tc, computed_values_of_slots);
    tcase_add_test(tc, indices_that_the_op_sets);
    tcase_add_test(tc, sums_at_places);
    tcase_add_test(tc, slots_in_their_own_order);
    tcase_add_test(tc, ranks_sum_what_stands_at_theirs);
    suite_add_tcase(suite, tc);
    return suite;
}
