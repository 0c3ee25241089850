/* Drawings against tests/golden/explain. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/explain.h"
#include "meaning.h"
#include "golden.h"

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, hidden = 256, ffn = 208 in 256, vocab = 2100;\n"
    "axis experts = 64, picks = 8 of experts, heads = kv 4 * group 2, head_dim = half 2 * rot 16;\n"
    "tree row = lanes 32 by 8 { chain } pairwise f32;\n"
    "tree tiles = every 64 { split 2 { chain add } pairwise f32 } left f32;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"
    "    ss = sum(hidden by row) f32(x) * f32(x);\n"
    "    y = bf16(f32(x) * (1.0 / sqrt(ss / len(hidden) + 1e-6))) * w;\n"
    "}\n"
    "op rope(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"
    "}\n"
    "op o_proj(o: bf16[tokens, heads, head_dim], w: bf16[hidden, heads, head_dim],\n"
    "          res: bf16[tokens, hidden]) -> y: bf16[tokens, hidden] {\n"
    "    y = bf16(sum(heads, head_dim by split 8 { mma } pairwise f32) o * w) + res;\n"
    "}\n"
    "op gate(x: bf16[tokens, hidden], wg, wu: bf16[ffn, hidden]) -> h: bf16[tokens, ffn] {\n"
    "    g = bf16(sum(hidden by mma) x * wg); u = bf16(sum(hidden by mma) x * wu);\n"
    "    h = bf16(silu(f32(g))) * u;\n"
    "}\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn]) -> y: bf16[tokens, hidden] {\n"
    "    y = sum(ffn by split [40, 56, 72, 40] { round bf16 { mma } } left bf16) h * w;\n"
    "}\n"
    "op soft(z: f32[tokens, vocab]) -> y: f32[tokens, vocab] {\n"
    "    m = max(vocab by tiles) z; d = sum(vocab by tiles) exp(z - m);\n"
    "    y = exp(z - m) / d;\n"
    "}\n"
    "op attention(q: bf16[tokens, heads, head_dim], k, v: bf16[sequence, position, kv, head_dim],\n"
    "             sinks: bf16[heads])\n"
    "   -> (o: bf16[tokens, heads, head_dim], lse: f32[tokens, heads]) {\n"
    "    s = f32(sinks);\n"
    "    attend a, lse = q, k, v, s { over head_dim; scale_log2 0.25503483; window 4096; }\n"
    "    o = bf16(a);\n"
    "}\n"
    "op capped(q: bf16[tokens, heads, head_dim], k, v: bf16[sequence, position, kv, head_dim])\n"
    "   -> o: f32[tokens, heads, rot] {\n"
    "    attend a = q, k, v { over head_dim; scale 0.0035355339; cap_log2 72.134752; exp exp2.d3;\n"
    "                         block 64; split 512; mask none; }\n"
    "    o = a[half 1];\n"
    "}\n"
    "op sample(z: f32[tokens, vocab], t: f32[tokens], seed, k: i32[tokens])\n"
    "   -> token: vocab[tokens] {\n"
    "    draw token = z, seed { over vocab; temperature t; top_k k; top_p 0.9; }\n"
    "}\n"
    "op logit(z: f32[tokens, vocab], ids: vocab[tokens]) -> y: f32[tokens] {\n"
    "    y = max(vocab by split 4 { chain } left f32) z[vocab = ids];\n"
    "}\n"
    "op route(z: f32[tokens, experts]) -> chosen: experts[tokens, picks] {\n"
    "    top chosen = z { over experts; groups 8; keep 4; group_sum 2; order score; }\n"
    "}\n"
    "op expert(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
    "          w: bf16[experts, ffn, hidden]) -> h: bf16[tokens, picks, ffn] {\n"
    "    h = bf16(sum(hidden by mma) x * w[experts chosen]);\n"
    "}\n"
    "op combine(d: bf16[tokens, picks, hidden], weight: f32[tokens, picks],\n"
    "           chosen: experts[tokens, picks]) -> y: bf16[tokens, hidden] {\n"
    "    y = bf16(sum(picks at experts chosen by split 4 { chain } pairwise f32)\n"
    "             weight * f32(d));\n"
    "}\n"
    "layout ep { dp 2 cuts tokens; tp 2 cuts kv else tokens; ep = dp * tp cuts experts; }\n"
    "layout one { }\n"
    "layout four { tp 4 cuts kv, ffn, vocab; }\n"
    "layout sp { dp 2 cuts tokens; tp 2 cuts kv, ffn, vocab else tokens; }\n";

typedef struct Drawing {
    const char *op, *layout; /* NULL: no layout */
} Drawing;

static const Drawing drawings[] = {
    {"norm", NULL},   {"rope", NULL}, {"down", NULL},   {"soft", NULL},      {"gate", "four"},
    {"norm", "sp"},   {"norm", "one"}, {"o_proj", "sp"}, {"o_proj", "four"},
    {"attention", "four"}, {"capped", NULL}, {"sample", NULL}, {"logit", "four"},
    {"route", NULL},  {"expert", "ep"}, {"combine", "ep"},
};

/* Fingerprints follow the functions' text, drawings do not. */
static void hide_fingerprint(char *drawn)
{
    char *at = strstr(drawn, "fingerprint ");
    ck_assert_ptr_nonnull(at);
    memset(at + strlen("fingerprint "), '.', 64);
}

START_TEST(drawings_are_as_recorded)
{
    const Drawing *drawing = &drawings[_i];
    Front f;
    Contract contract;
    Dag dag;
    OpLayout at;
    meaning_open(&f, text, &contract, &dag);
    int i = 0;
    while (!str_is(dag.ops[i].op->name, drawing->op))
        i++;
    if (drawing->layout)
        ck_assert_msg(layout_apply(&contract, &dag.ops[i],
                                   contract_layout(&contract, str_of(drawing->layout)), &at,
                                   f.arena, &f.diags),
                      "%s", front_text(&f));
    Text out = {.arena = f.arena};
    ck_assert(explain_op(&dag, &dag.ops[i], drawing->layout ? &at : NULL, &out, f.arena));
    hide_fingerprint(out.s);
    Str name = drawing->layout ? str_format(f.arena, "%s-%s", drawing->op, drawing->layout)
                               : str_of(drawing->op);
    golden_compare(str_format(f.arena, "tests/golden/explain/%s.txt", name.s).s, text_str(&out),
                   f.arena);
    front_close(&f);
}
END_TEST

/* A value used many times over is written out only so far. */
START_TEST(long_expressions_are_cut)
{
    Front f;
    Contract contract;
    Dag dag;
    char body[4096] = "contract c version 1; numerics sm_90; axis t ragged, h = 4;\n"
                      "op o(x: f32[t, h]) -> y: f32[t] {\n a0 = x + x;\n";
    for (int i = 1; i < 13; i++)
        snprintf(body + strlen(body), sizeof body - strlen(body), " a%d = a%d * a%d;\n", i, i - 1,
                 i - 1);
    strcat(body, " y = sum(h by chain) a12; }\n");
    meaning_open(&f, body, &contract, &dag);
    Text out = {.arena = f.arena};
    ck_assert(explain_op(&dag, &dag.ops[0], NULL, &out, f.arena));
    ck_assert_int_lt(out.n, 4000);
    ck_assert_ptr_nonnull(strstr(out.s, "..."));
    front_close(&f);
}
END_TEST

Suite *explain_suite(void)
{
    Suite *suite = suite_create("explain");
    TCase *tc = tcase_create("explain");
    tcase_add_loop_test(tc, drawings_are_as_recorded, 0, sizeof drawings / sizeof *drawings);
    tcase_add_test(tc, long_expressions_are_cut);
    suite_add_tcase(suite, tc);
    return suite;
}
