/* A whole mixture of experts on the executor against plain loops: routing, the experts' products,
 * the weighted sum; a shared expert with a gate; a clamped SwiGLU with biases. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/iso_fn.cuh"
#include "device/iso_num.cuh"
#include "exec/exec.h"
#include "base/fdpa.h"
#include "meaning.h"

enum { TOKENS = 11, HIDDEN = 32, EXPERTS = 8, PICKS = 3, FFN = 48 };

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, experts = 8, picks = 3 of experts;\n"
    "axis hidden = 32, both = ffn 48 * half 2;\n"
    "tree by_expert = split 4 { chain } pairwise f32;\n"
    "tree parts = split 3 { mma } pairwise f32;\n"
    "op router(x: bf16[tokens, hidden], w: bf16[experts, hidden]) -> z: f32[tokens, experts] {\n"
    "    z = sum(hidden by mma) x * w;\n"
    "}\n"
    "op route(z: f32[tokens, experts]) -> (chosen: experts[tokens, picks],\n"
    "         weight: f32[tokens, picks]) {\n"
    "    e = exp(z - (max(experts by chain) z));\n"
    "    s = e / sum(experts by chain) e;\n"
    "    top chosen = s { over experts; order score; }\n"
    "    p = s[experts chosen];\n"
    "    weight = p / sum(picks by chain) p;\n"
    "}\n"
    "op gate_up(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
    "           wg, wu: bf16[experts, ffn, hidden]) -> h: bf16[tokens, picks, ffn] {\n"
    "    g = bf16(sum(hidden by mma) x * wg[experts chosen]);\n"
    "    u = bf16(sum(hidden by mma) x * wu[experts chosen]);\n"
    "    h = bf16(silu(f32(g))) * u;\n"
    "}\n"
    "op down(h: bf16[tokens, picks, ffn], chosen: experts[tokens, picks],\n"
    "        w: bf16[experts, hidden, ffn]) -> d: bf16[tokens, picks, hidden] {\n"
    "    d = bf16(sum(ffn by parts) h * w[experts chosen]);\n"
    "}\n"
    "op combine(d: bf16[tokens, picks, hidden], weight: f32[tokens, picks],\n"
    "           chosen: experts[tokens, picks], gate: bf16[tokens],\n"
    "           shared, res: bf16[tokens, hidden]) -> y: bf16[tokens, hidden] {\n"
    "    own = bf16(sum(picks at experts chosen by by_expert) weight * f32(d));\n"
    "    y = own + bf16(sigmoid(f32(gate))) * shared + res;\n"
    "}\n"
    "op clamped(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
    "           w: bf16[experts, both, hidden], b: bf16[experts, both])\n"
    "   -> h: bf16[tokens, picks, ffn] {\n"
    "    z = bf16(sum(hidden by mma) x * w[experts chosen]) + b[experts chosen];\n"
    "    g = minimum(f32(z[half 0]), 7.0);\n"
    "    u = bf16(minimum(maximum(f32(z[half 1]), -7.0), 7.0));\n"
    "    s = bf16(sigmoid(f32(bf16(g * 1.702))));\n"
    "    h = (u + 1.0) * (bf16(g) * s);\n"
    "}\n";

enum { ROUTER, ROUTE, GATE_UP, DOWN, COMBINE, CLAMPED };

static Front f;
static Contract contract;
static Dag dag;
static u16 x[TOKENS][HIDDEN], wr[EXPERTS][HIDDEN];
static u16 wg[EXPERTS][FFN][HIDDEN], wu[EXPERTS][FFN][HIDDEN];
static u16 wd[EXPERTS][HIDDEN][FFN], wb[EXPERTS][FFN][2][HIDDEN], bias[EXPERTS][FFN][2];
static u16 gate[TOKENS], shared[TOKENS][HIDDEN], res[TOKENS][HIDDEN];
static float z[TOKENS][EXPERTS], weight[TOKENS][PICKS];
static int32_t chosen[TOKENS][PICKS];
static u16 h[TOKENS][PICKS][FFN], d[TOKENS][PICKS][HIDDEN], y[TOKENS][HIDDEN];

static void fill(void *data, int n, u32 seed)
{
    u16 *to = data;
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        to[i] = (u16)((seed >> 31) << 15 | (0x3E00 + (seed >> 12) % 0x180));
    }
}

static void open_ops(void)
{
    meaning_open(&f, text, &contract, &dag);
    fill(x, sizeof x / 2, 1);
    fill(wr, sizeof wr / 2, 2);
    fill(wg, sizeof wg / 2, 3);
    fill(wu, sizeof wu / 2, 4);
    fill(wd, sizeof wd / 2, 5);
    fill(wb, sizeof wb / 2, 6);
    fill(bias, sizeof bias / 2, 7);
    fill(gate, sizeof gate / 2, 8);
    fill(shared, sizeof shared / 2, 9);
    fill(res, sizeof res / 2, 10);
}

static void close_ops(void)
{
    front_close(&f);
}

#define ARRAY2(a) {.data = a, .stride = {sizeof a[0] / sizeof a[0][0], 1}}
#define ARRAY3(a)                                                                                  \
    {.data = a, .stride = {sizeof a[0] / sizeof a[0][0][0], sizeof a[0][0] / sizeof a[0][0][0], 1}}

static void run(int op, ExecTensor *params, ExecTensor *results)
{
    static int positions[TOKENS];
    ExecJob job = {.contract = &contract, .op = &dag.ops[op], .params = params,
                   .results = results, .threads = 2, .positions = positions};
    exec_box_all(&contract, TOKENS, &job.box);
    ck_assert(exec_op(&job, f.arena));
}

static void run_layer(void)
{
    run(DOWN, (ExecTensor[]){ARRAY3(h), ARRAY2(chosen), ARRAY3(wd)}, &(ExecTensor)ARRAY3(d));
    run(COMBINE, (ExecTensor[]){ARRAY3(d), ARRAY2(weight), ARRAY2(chosen),
                                {.data = gate, .stride = {1}}, ARRAY2(shared), ARRAY2(res)},
        &(ExecTensor)ARRAY2(y));
}

static void run_router(void)
{
    run(ROUTER, (ExecTensor[]){ARRAY2(x), ARRAY2(wr)}, &(ExecTensor)ARRAY2(z));
    run(ROUTE, (ExecTensor[]){ARRAY2(z)}, (ExecTensor[]){ARRAY2(chosen), ARRAY2(weight)});
}

static void run_experts(void)
{
    run(GATE_UP, (ExecTensor[]){ARRAY2(x), ARRAY2(chosen), ARRAY3(wg), ARRAY3(wu)},
        &(ExecTensor)ARRAY3(h));
    run_layer();
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* A chain of tensor-core steps; b NULL: zeros. */
static float mma(const u16 *a, const u16 *b, int n)
{
    const FdpaClass *class = fdpa_class("sm_90", FDPA_BF16);
    u16 none[FFN] = {0};
    FdpaElem left[FFN], right[FFN];
    float c = 0;
    fdpa_decode(class, FDPA_BF16, a, 1, (size_t)n, left);
    fdpa_decode(class, FDPA_BF16, b ? b : none, 1, (size_t)n, right);
    for (int k = 0; k < n; k += 16)
        c = fdpa_step(class, left + k, right + k, c);
    return c;
}

static float narrow(float v)
{
    return iso_f32_of_bf16(iso_bf16_of_f32(v));
}

static float wide(u16 v)
{
    return iso_f32_of_bf16(v);
}

static void route_by_hand(int t, int32_t *own, float *w)
{
    float e[EXPERTS], most = 0, total = 0;
    for (int i = 0; i < EXPERTS; i++) {
        float logit = mma(x[t], wr[i], HIDDEN);
        e[i] = logit;
        most = i ? iso_max(most, logit) : logit;
    }
    for (int i = 0; i < EXPERTS; i++) {
        e[i] = iso_exp(iso_sub(e[i], most));
        total = i ? iso_add(total, e[i]) : e[i];
    }
    for (int i = 0; i < EXPERTS; i++)
        e[i] = iso_div(e[i], total);
    for (int k = 0; k < PICKS; k++) {
        own[k] = -1;
        for (int i = 0; i < EXPERTS; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++)
                taken |= own[j] == i;
            bool nan = e[i] != e[i];
            if (!taken && (own[k] < 0 || e[i] > e[own[k]] || (nan && e[own[k]] == e[own[k]])))
                own[k] = i;
        }
    }
    total = e[own[0]];
    for (int k = 1; k < PICKS; k++)
        total = iso_add(total, e[own[k]]);
    for (int k = 0; k < PICKS; k++)
        w[k] = iso_div(e[own[k]], total);
}

/* Row `n` of an expert's weight; NULL for a slot that stands nowhere. */
#define ROW(w, e, n) ((e) < 0 ? NULL : (const u16 *)(w)[e][n])

static void layer_by_hand(int t, const int32_t *own, const float *w, u16 *out)
{
    float slot[PICKS][HIDDEN];
    for (int k = 0; k < PICKS; k++) {
        u16 act[FFN];
        for (int n = 0; n < FFN; n++) {
            float g = narrow(mma(x[t], ROW(wg, own[k], n), HIDDEN));
            float u = narrow(mma(x[t], ROW(wu, own[k], n), HIDDEN));
            act[n] = iso_bf16_of_f32(iso_mul(narrow(iso_silu(g)), u));
        }
        for (int n = 0; n < HIDDEN; n++) {
            const u16 *row = ROW(wd, own[k], n);
            float part[3];
            for (int i = 0; i < 3; i++)
                part[i] = mma(act + 16 * i, row ? row + 16 * i : NULL, 16);
            slot[k][n] = narrow(iso_add(iso_add(part[0], part[1]), part[2]));
        }
    }
    for (int n = 0; n < HIDDEN; n++) {
        bool there[4] = {false};
        float sum[4] = {0};
        for (int e = 0; e < EXPERTS; e++)
            for (int k = 0; k < PICKS; k++)
                if (own[k] == e) {
                    float *s = &sum[e / 2];
                    *s = there[e / 2] ? iso_fma(w[k], slot[k][n], *s) : iso_mul(w[k], slot[k][n]);
                    there[e / 2] = true;
                }
        for (int step = 1; step < 4; step *= 2)
            for (int g = 0; g < 4; g += 2 * step) {
                if (there[g] && there[g + step])
                    sum[g] = iso_add(sum[g], sum[g + step]);
                else if (there[g + step])
                    sum[g] = sum[g + step];
                there[g] |= there[g + step];
            }
        float s = narrow(iso_mul(narrow(iso_sigmoid(wide(gate[t]))), wide(shared[t][n])));
        out[n] = iso_bf16_of_f32(iso_add(narrow(iso_add(narrow(sum[0]), s)), wide(res[t][n])));
    }
}

static void compare(int t)
{
    u16 own[HIDDEN];
    layer_by_hand(t, chosen[t], weight[t], own);
    for (int n = 0; n < HIDDEN; n++)
        ck_assert_msg(y[t][n] == own[n], "y[%d][%d] is %04x, not %04x", t, n, y[t][n], own[n]);
}

static void compare_all(void)
{
    for (int t = 0; t < TOKENS; t++) {
        int32_t own[PICKS];
        float w[PICKS];
        route_by_hand(t, own, w);
        for (int k = 0; k < PICKS; k++) {
            ck_assert_int_eq(chosen[t][k], own[k]);
            ck_assert_uint_eq(iso_f32_bits(weight[t][k]), iso_f32_bits(w[k]));
        }
        compare(t);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

START_TEST(a_layer)
{
    run_router();
    run_experts();
    compare_all();
}
END_TEST

/* Ties go to the lowest expert: all tokens have experts 0, 1 and 2, the others none. */
START_TEST(all_tokens_to_some_experts)
{
    memset(wr, 0, sizeof wr);
    run_router();
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < PICKS; k++)
            ck_assert_int_eq(chosen[t][k], k);
    run_experts();
    compare_all();
}
END_TEST

START_TEST(padding_rows_touch_no_other)
{
    u16 before[TOKENS][HIDDEN];
    run_router();
    run_experts();
    memcpy(before, y, sizeof y);
    for (int n = 0; n < HIDDEN; n++)
        x[4][n] = 0x7FC0;
    x[7][3] = 0x7F80;
    run_router();
    ck_assert_int_eq(chosen[4][0], 0);
    ck_assert(weight[4][0] != weight[4][0]);
    run_experts();
    for (int t = 0; t < TOKENS; t++)
        if (t != 4 && t != 7)
            ck_assert_mem_eq(y[t], before[t], sizeof y[t]);
    compare(4);
    compare(7);
}
END_TEST

START_TEST(slots_that_stand_nowhere)
{
    run_router();
    for (int k = 0; k < PICKS; k++) {
        chosen[2][k] = -1;
        weight[2][k] = NAN;
    }
    chosen[5][1] = EXPERTS;
    run_experts();
    chosen[5][1] = -1;
    compare(2);
    compare(5);
    for (int n = 0; n < HIDDEN; n++)
        ck_assert_uint_eq(d[2][0][n], 0);
}
END_TEST

START_TEST(clamped_and_biased)
{
    run_router();
    bias[chosen[1][0]][5][0] = 0x4120; /* 10: the gate's clamp */
    bias[chosen[1][0]][5][1] = 0xC120;
    run(CLAMPED, (ExecTensor[]){ARRAY2(x), ARRAY2(chosen),
                                {.data = wb, .stride = {FFN * 2 * HIDDEN, HIDDEN, 1}},
                                {.data = bias, .stride = {FFN * 2, 1}}}, &(ExecTensor)ARRAY3(h));
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < PICKS; k++)
            for (int n = 0; n < FFN; n++) {
                int e = chosen[t][k];
                float v[2];
                for (int i = 0; i < 2; i++)
                    v[i] = narrow(iso_add(narrow(mma(x[t], wb[e][n][i], HIDDEN)),
                                          wide(bias[e][n][i])));
                float g = iso_min(v[0], 7.0f), u = iso_min(iso_max(v[1], -7.0f), 7.0f);
                float s = narrow(iso_sigmoid(narrow(iso_mul(g, 1.702f))));
                float gs = narrow(iso_mul(g, s));
                ck_assert_uint_eq(h[t][k][n],
                                  iso_bf16_of_f32(iso_mul(narrow(iso_add(u, 1.0f)), gs)));
            }
}
END_TEST

Suite *mixture_suite(void)
{
    Suite *suite = suite_create("mixture");
    TCase *tc = tcase_create("mixture");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_add_test(tc, a_layer);
    tcase_add_test(tc, all_tokens_to_some_experts);
    tcase_add_test(tc, padding_rows_touch_no_other);
    tcase_add_test(tc, slots_that_stand_nowhere);
    tcase_add_test(tc, clamped_and_biased);
    suite_add_tcase(suite, tc);
    return suite;
}
