/* Block forms as text and graph: what moves an attend's fingerprint, what does not, and how
 * differences are told. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "explain/diff.h"
#include "meaning.h"

static const char base[] =
    "contract c version 1; numerics sm_90; param SCALE = 0.25503483, SPLIT = 1024;\n"
    "axis tokens = sequence * position ragged, wide = 3;\n"
    "axis heads = kv 2 * group 2, head_dim = half 2 * rot 8;\n"
    "op attention(q: bf16[tokens, heads, head_dim], k, v: bf16[sequence, position, kv, head_dim],\n"
    "             s: f32[heads]) -> (o: bf16[tokens, heads, head_dim], lse: f32[tokens, heads]) {\n"
    "    attend a, lse = q, k, v, s {\n"
    "        over head_dim; scale_log2 SCALE; exp exp2.d6; weights bf16; block 128;\n"
    "        split SPLIT; mask causal; window 512;\n"
    "    }\n"
    "    o = bf16(a);\n"
    "}\n";

typedef struct Built {
    Front f;
    Contract contract;
    Dag dag;
    char text[2048]; /* names point into it */
} Built;

static void build(Built *b, const char *text)
{
    meaning_open(&b->f, text, &b->contract, &b->dag);
}

typedef struct Edit {
    const char *old, *new;
} Edit;

static void build_edited(Built *b, const Edit *edit)
{
    const char *at = strstr(base, edit->old);
    ck_assert_msg(at != NULL, "%s is not in the contract", edit->old);
    snprintf(b->text, sizeof b->text, "%.*s%s%s", (int)(at - base), base, edit->new,
             at + strlen(edit->old));
    build(b, b->text);
}

static bool moves(const Edit *edit)
{
    Built a, b;
    build(&a, base);
    build_edited(&b, edit);
    bool moved = !digest_eq(&a.dag.ops[0].fingerprint, &b.dag.ops[0].fingerprint);
    ck_assert_int_eq(moved, !digest_eq(&a.dag.fingerprint, &b.dag.fingerprint));
    front_close(&a.f);
    front_close(&b.f);
    return moved;
}

/* ---- the fingerprint ------------------------------------------------------------------------- */

static const Edit numeric[] = {
    {"0.25503483", "0.25503480"},
    {"scale_log2 SCALE", "scale SCALE; cap_log2 72"},
    {"exp2.d6", "exp2.d3"},
    {"exp2.d6", "exp2"},
    {"exp2.d6;", "exp2.d6; maxima rounded;"},
    {"block 128", "block 64"},
    {"SPLIT = 1024", "SPLIT = 2048"},
    {"window 512", "window 513"},
    {"window 512;", ""},
    {"mask causal; window 512;", "mask none;"},
    {"q, k, v, s {", "q, k, v {"},
    {"q, k, v, s {", "q, v, k, s {"},
    {"over head_dim", "over rot, half"},
    {"numerics sm_90", "numerics sm_80"},
    {"rot 8", "rot 4"},
    {"group 2", "group 4"},
    {"o = bf16(a)", "o = bf16(a * a)"},
    {"bf16[sequence, position, kv", "bf16[position, sequence, kv"},
};

START_TEST(every_setting_moves_it)
{
    ck_assert_msg(moves(&numeric[_i]), "%s", numeric[_i].new);
}
END_TEST

static const Edit other[] = {
    {"split SPLIT", "split 1024"},
    {"block 128;", ""},
    {"split SPLIT; ", ""},
    {"SCALE = 0.25503483", "SCALE = 0x1.0527dap-2"},
    {"exp exp2.d6; ", ""},
    {"exp2.d6;", "exp2.d6; maxima exact;"},
    {"weights bf16; ", ""},
    {"mask causal; ", ""},
    {"over head_dim", "over half, rot"},
    {"over head_dim; scale_log2 SCALE;", "scale_log2 SCALE; over head_dim;"},
    {"wide = 3", "wide = 5"},
    {"attend a, lse = q, k, v, s {", "t = q; z = s; attend a, lse = t, k, v, z {"},
    {"o = bf16(a)", "b = a; o = bf16(b)"},
};

START_TEST(nothing_else_does)
{
    ck_assert_msg(!moves(&other[_i]), "%s", other[_i].new);
}
END_TEST

START_TEST(the_graph_as_text)
{
    Built b;
    build(&b, base);
    Text out = {.arena = b.f.arena};
    dag_print(&b.dag, &b.dag.ops[0], &out);
    *strstr(out.s, "  fingerprint") = 0;
    ck_assert_str_eq(out.s,
        "op attention\n"
        "  %0 = q: bf16[tokens, kv, group, half, rot]\n"
        "  %1 = k: bf16[sequence, position, kv, half, rot]\n"
        "  %2 = v: bf16[sequence, position, kv, half, rot]\n"
        "  %3 = s: f32[kv, group]\n"
        "  %4 = attend over [half, rot] block 128 split 1024 scale_log2 0x3e8293ed exp2.d6 "
        "weights bf16 mask causal window 512 %0 %1 %2 %3: f32[tokens, kv, group, half, rot]\n"
        "  %5 = cast %4: bf16[tokens, kv, group, half, rot]\n"
        "  %6 = attend lse over [half, rot] block 128 split 1024 scale_log2 0x3e8293ed exp2.d6 "
        "weights bf16 mask causal window 512 %0 %1 %2 %3: f32[tokens, kv, group]\n"
        "  o = %5\n"
        "  lse = %6\n");
    front_close(&b.f);
}
END_TEST

/* Every choice stands in what is hashed, written or not. */
START_TEST(the_canonical_text_has_every_choice)
{
    Built b;
    build_edited(&b, &(Edit){"scale_log2 SCALE; exp exp2.d6; weights bf16; block 128;\n"
                             "        split SPLIT; mask causal; window 512;",
                             "scale SCALE; cap_log2 8;"});
    Text out = {.arena = b.f.arena};
    dag_canonical(&b.dag, &b.dag.ops[0], &out);
    ck_assert_ptr_nonnull(strstr(out.s, "class fdpa group 16 bits 25"));
    ck_assert_ptr_nonnull(strstr(out.s, "functions "));
    ck_assert_ptr_nonnull(strstr(out.s,
        "param 1 k bf16 [a5:coordinate 0 of a0, a6:coordinate 1 of a0, a1:2, a3:2, a4:8]"));
    ck_assert_ptr_nonnull(strstr(out.s,
        "attend f32 value over [a3:2, a4:8] block 128 split 1024 scale 0x3e8293ed "
        "cap_log2 0x41000000 exp2.d6 weights bf16 mask causal %0 %1 %2 %3\n"));
    front_close(&b.f);
}
END_TEST

/* ---- differences ----------------------------------------------------------------------------- */

static void differs(const Edit *edit, const char *words)
{
    Built a, b;
    int different;
    build(&a, base);
    build_edited(&b, edit);
    Text out = {.arena = a.f.arena};
    ck_assert(diff_contracts(&a.dag, &b.dag, &out, a.f.arena, &different));
    ck_assert_str_eq(out.s, str_format(a.f.arena, "attention differs\n%s0 ops equal, 1 differs\n",
                                       words).s);
    front_close(&a.f);
    front_close(&b.f);
}

START_TEST(differences_in_words)
{
    differs(&(Edit){"block 128", "block 64"},
            "  settings of attend differ: `block 128 split 1024 scale_log2 0x3e8293ed exp2.d6 "
            "weights bf16 mask causal window 512` in a, `block 64 split 1024 scale_log2 0x3e8293ed "
            "exp2.d6 weights bf16 mask causal window 512` in b\n");
    differs(&(Edit){"over head_dim", "over rot, half"},
            "  scores of attend sum over half 2, rot 8 in a, over rot 8, half 2 in b\n");
    differs(&(Edit){"q, k, v, s {", "q, k, v {"}, "  attend has sinks only in a\n");
    differs(&(Edit){"q, k, v, s {", "q, v, k, s {"},
            "  `k` in a, `v` in b\n  `v` in a, `k` in b\n");
    differs(&(Edit){"o = bf16(a)", "o = bf16(a * 2)"},
            "  `attend(q, k, v, s)` in a, `attend(q, k, v, s) * 2` in b\n");
}
END_TEST

Suite *block_suite(void)
{
    Suite *suite = suite_create("block");
    TCase *tc = tcase_create("all");
    tcase_add_loop_test(tc, every_setting_moves_it, 0, sizeof numeric / sizeof numeric[0]);
    tcase_add_loop_test(tc, nothing_else_does, 0, sizeof other / sizeof other[0]);
    tcase_add_test(tc, the_graph_as_text);
    tcase_add_test(tc, the_canonical_text_has_every_choice);
    tcase_add_test(tc, differences_in_words);
    suite_add_tcase(suite, tc);
    return suite;
}
