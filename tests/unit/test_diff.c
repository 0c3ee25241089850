/* Differences between two contracts, in words. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "explain/diff.h"
#include "front.h"

#define HEAD                                                                                       \
    "contract c version 1; numerics sm_90;\n"                                                      \
    "axis tokens ragged, hidden = 64, ffn = 96, half = 2;\n"                                       \
    "tree row = lanes 4 by 2 { chain } pairwise f32; tree par = split 8 { mma } pairwise f32;\n"

#define NORM                                                                                       \
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"             \
    "    ss = sum(hidden by row) f32(x) * f32(x);\n"                                               \
    "    r = 1.0 / sqrt(ss / len(hidden) + 1e-6);\n"                                               \
    "    y = bf16(f32(x) * r) * w;\n"                                                              \
    "}\n"

#define DOWN                                                                                       \
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"             \
    "   -> y: bf16[tokens, hidden] {\n"                                                            \
    "    y = bf16(sum(ffn by par) h * w) + res;\n"                                                 \
    "}\n"

#define TURN                                                                                       \
    "op turn(q: bf16[tokens, half], c: bf16[tokens]) -> y: bf16[tokens, half] {\n"                 \
    "    y[half 0] = q[half 0] * c; y[half 1] = q[half 1] * c;\n"                                  \
    "}\n"

static const char base[] = HEAD NORM DOWN TURN;

static const Dag *dag_of(Front *f, const char *text)
{
    front_open(f, text);
    Contract *contract = arena_new_of(f->arena, Contract);
    Dag *dag = arena_new_of(f->arena, Dag);
    ck_assert_msg(front_parse(f), "%s", front_text(f));
    ck_assert_msg(check_contract(&f->ast, contract, f->arena, &f->diags), "%s", front_text(f));
    ck_assert(dag_build(contract, dag, f->arena, &f->diags));
    return dag;
}

static void compare(const char *a, const char *b, const char *words, int want)
{
    Front fa, fb;
    int different;
    const Dag *da = dag_of(&fa, a), *db = dag_of(&fb, b);
    Text out = {.arena = fa.arena};
    ck_assert(diff_contracts(da, db, &out, fa.arena, &different));
    ck_assert_str_eq(out.s, words);
    ck_assert_int_eq(different, want);
    front_close(&fa);
    front_close(&fb);
}

static void edit(const char *old, const char *new, const char *words)
{
    char text[4096];
    const char *at = strstr(base, old);
    ck_assert_msg(at != NULL, "%s is not in the contract", old);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, new, at + strlen(old));
    compare(base, text, words, 1);
}

START_TEST(equal_contracts)
{
    compare(base, base, "3 ops equal, 0 differ\n", 0);
}
END_TEST

START_TEST(trees)
{
    edit("split 8", "split 4",
         "down differs\n"
         "  tree of sum over ffn 96 differs: `split 8 { mma } pairwise f32` in a, "
         "`split 4 { mma } pairwise f32` in b\n"
         "2 ops equal, 1 differs\n");
    edit("sum(hidden", "max(hidden",
         "norm differs\n"
         "  sum over hidden 64 in a, max over hidden 64 in b\n"
         "2 ops equal, 1 differs\n");
}
END_TEST

START_TEST(roundings)
{
    edit("bf16(f32(x) * r) * w", "bf16(f32(x) * r * f32(w))",
         "norm differs\n"
         "  rounding of `(f32(x) * (1 / sqrt(((sum over hidden of f32(x) * f32(x)) / 64) + "
         "9.99999997e-07))) * ...` to bf16 only in b\n"
         "  `bf16(f32(x) * (1 / sqrt(((sum over hidden of f32(x) * f32(x)) / 64) + "
         "9.99999997e-07))) * w` is computed in bf16 in a, in f32 in b\n"
         "  rounding of `f32(x) * (1 / sqrt(((sum over hidden of f32(x) * f32(x)) / 64) + "
         "9.99999997e-07))` to bf16 only in a\n"
         "2 ops equal, 1 differs\n");
    edit("bf16(sum(ffn by par) h * w) + res", "bf16((sum(ffn by par) h * w) + f32(res))",
         "down differs\n"
         "  rounding of `(sum over ffn of h * w) + f32(res)` to bf16 only in b\n"
         "  `bf16(sum over ffn of h * w) + res` is computed in bf16 in a, in f32 in b\n"
         "  rounding of `sum over ffn of h * w` to bf16 only in a\n"
         "2 ops equal, 1 differs\n");
}
END_TEST

START_TEST(constants)
{
    edit("1e-6", "1e-5",
         "norm differs\n"
         "  constant f32 9.99999997e-07 (0x358637bd) in a, f32 9.99999975e-06 (0x3727c5ac) in b\n"
         "2 ops equal, 1 differs\n");
}
END_TEST

START_TEST(operations_and_operands)
{
    edit("h * w) + res", "h * w) - res",
         "down differs\n"
         "  `bf16(sum over ffn of h * w) + res` in a, `bf16(sum over ffn of h * w) - res` in b\n"
         "2 ops equal, 1 differs\n");
    edit("y[half 1] = q[half 1]", "y[half 1] = q[half 0]",
         "turn differs\n"
         "  `q[half 1]` in a, `q[half 0]` in b\n"
         "2 ops equal, 1 differs\n");
    edit("q[half 0] * c", "c * q[half 0]",
         "turn differs\n"
         "  `q[half 0] * c` in a, `c * q[half 0]` in b\n"
         "2 ops equal, 1 differs\n");
    edit("sqrt(", "exp(",
         "norm differs\n"
         "  `sqrt(((sum over hidden of f32(x) * f32(x)) / 64) + 9.99999997e-07)` in a, "
         "`exp(((sum over hidden of f32(x) * f32(x)) / 64) + 9.99999997e-07)` in b\n"
         "2 ops equal, 1 differs\n");
}
END_TEST

START_TEST(interfaces)
{
    compare(HEAD "op o(x: f32[tokens, hidden], k: f32[]) -> y: f32[tokens, hidden] { y = x * k; }",
            HEAD "op o(x: f32[tokens, ffn], c: f32[]) -> y: f32[tokens, ffn] { y = x * c; }",
            "o differs\n"
            "  parameter 1 is `x: f32[tokens, hidden 64]` in a, `x: f32[tokens, ffn 96]` in b\n"
            "  parameter 2 is `k: f32[]` in a, `c: f32[]` in b\n"
            "  result 1 is `y: f32[tokens, hidden 64]` in a, `y: f32[tokens, ffn 96]` in b\n"
            "0 ops equal, 1 differs\n", 1);
}
END_TEST

START_TEST(ops_on_one_side_and_the_class)
{
    static const char other[] =
        "contract d version 1; numerics sm_80;\n"
        "axis tokens ragged, hidden = 64, ffn = 96, half = 2;\n"
        "tree row = lanes 4 by 2 { chain } pairwise f32; tree par = split 8 { mma } pairwise f32;\n"
        DOWN TURN "op new(x: f32[tokens]) -> y: f32[tokens] { y = -x; }\n";
    compare(base, other,
            "norm only in a\n"
            "down differs\n"
            "  tensor-core class: fdpa group 16 bits 25 floor -133 out 24 in a, "
            "fdpa group 8 bits 24 floor -132 out 24 in b\n"
            "new only in b\n"
            "numerics: fdpa group 16 bits 25 floor -133 out 24 in a, "
            "fdpa group 8 bits 24 floor -132 out 24 in b\n"
            "1 op equal, 3 differ\n", 3);
}
END_TEST

Suite *diff_suite(void)
{
    Suite *suite = suite_create("diff");
    TCase *tc = tcase_create("diff");
    tcase_add_test(tc, equal_contracts);
    tcase_add_test(tc, trees);
    tcase_add_test(tc, roundings);
    tcase_add_test(tc, constants);
    tcase_add_test(tc, operations_and_operands);
    tcase_add_test(tc, interfaces);
    tcase_add_test(tc, ops_on_one_side_and_the_class);
    suite_add_tcase(suite, tc);
    return suite;
}
