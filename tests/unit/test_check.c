/* What the checked contract holds, and that no fault is told as the consequence of another. */
#include <check.h>

#include "check/contract.h"
#include "front.h"

static const char text[] =
    "contract t version 7; numerics sm_90; param H = 256, EPS = 1e-6;\n"
    "axis tokens = sequence * position ragged, hidden = H, vocab = 100 in 128;\n"
    "axis heads = kv 4 * group 2, head_dim = half 2 * rot 3;\n"
    "tree row = lanes 8 by 8 { chain } pairwise f32; tree alias = split 2 { row } left f32;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden])\n"
    "   -> (y: bf16[tokens, hidden], r: f32[tokens]) {\n"
    "    s = sum(hidden by alias) f32(x) * f32(x);\n"
    "    r = 1.0 / sqrt(s / len(hidden) + EPS);\n"
    "    y = bf16(f32(x) * r) * w;\n"
    "}\n"
    "op rope(q: bf16[tokens, heads, head_dim], cos: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 1] = q[half 0] * cos; y[half 0] = q[half 1] * cos;\n"
    "}\n"
    "op head(q: bf16[heads, rot]) -> y: bf16[rot] { y = q[heads 5]; }\n"
    "layout l { dp 2 cuts tokens; tp 4 cuts kv replicating, vocab else tokens;\n"
    "           ep = dp * tp cuts rot; op norm { tp cuts hidden; } }\n"
    "schedule norm when tokens < 64 { tile 1 x 2 x H; stages 3; leaves across ctas;\n"
    "                                 kernel stream; }\n"
    "schedule norm when tokens >= 64 { leaves in registers; kernel wgmma; }\n";

static Front f;
static Contract contract;

static void open_contract(void)
{
    front_open(&f, text);
    ck_assert_msg(front_parse(&f) && check_contract(&f.ast, &contract, f.arena, &f.diags), "%s",
                  front_text(&f));
    ck_assert_str_eq(front_text(&f), "");
}

static void close_contract(void)
{
    front_close(&f);
}

static const Axis *axis(const char *name)
{
    for (int i = 0; i < contract.n_axes; i++)
        if (str_is(contract.axes[i].name.text, name))
            return &contract.axes[i];
    ck_abort_msg("no axis %s", name);
    return NULL;
}

START_TEST(axes_and_atoms)
{
    ck_assert_int_eq(contract.version, 7);
    ck_assert_int_eq(contract.n_atoms, 9);
    ck_assert(axis("tokens")->free && axis("tokens")->size == 0 && axis("tokens")->atom >= 0);
    ck_assert_int_eq(axis("position")->coordinate_of, (int)(axis("tokens") - contract.axes));
    ck_assert_int_eq(axis("tokens")->n_factors, 2);
    ck_assert(axis("vocab")->size == 100 && axis("vocab")->stored == 128);
    ck_assert(axis("heads")->size == 8 && axis("heads")->atom == -1);
    ck_assert_int_eq(axis("group")->parent, (int)(axis("heads") - contract.axes));
    ck_assert_int_eq(contract.atom_axis[axis("group")->atom], (int)(axis("group") - contract.axes));
    ck_assert_int_eq(atom_size(&contract, axis("tokens")->atom, 17), 17);
    ck_assert_int_eq(atom_size(&contract, axis("kv")->atom, 17), 4);
}
END_TEST

START_TEST(ops)
{
    const Op *norm = contract_op(&contract, STR("norm"));
    const Op *rope = contract_op(&contract, STR("rope"));
    u64 tokens = (u64)1 << axis("tokens")->atom, hidden = (u64)1 << axis("hidden")->atom;
    ck_assert(norm->params[0].mask == (tokens | hidden) && norm->params[1].mask == hidden);
    ck_assert(norm->space == (tokens | hidden));
    ck_assert_int_eq(norm->locals.n, 2); /* s, and r, which is read */
    ck_assert_int_eq(norm->pieces.n, 2);
    ck_assert_int_eq(rope->pieces.v[0].n_fixes, 1);
    ck_assert_int_eq(rope->pieces.v[0].fixes[0].atom, axis("half")->atom);
    ck_assert_int_eq(rope->pieces.v[0].fixes[0].at, 1);
    ck_assert_int_eq(rope->results[0].n_atoms, 5);
    ck_assert_int_eq(rope->results[0].n_axes, 3);
    ck_assert(!(rope->space & (u64)1 << axis("position")->atom));
    const AstExpr *y = norm->pieces.v[1].value;
    ck_assert(y->type == DT_BF16 && y->axis_mask == (tokens | hidden));
    ck_assert_ptr_null(contract_op(&contract, STR("none")));
}
END_TEST

START_TEST(trees_are_resolved)
{
    ck_assert_int_eq(contract.n_trees, 2);
    const Op *norm = contract_op(&contract, STR("norm"));
    Text out = {.arena = f.arena};
    tree_print(contract_tree(&contract, norm->locals.v[0].value->tree, f.arena), &out);
    ck_assert_str_eq(out.s, "split 2 { lanes 8 by 8 { chain } pairwise f32 } left f32");
}
END_TEST

START_TEST(layouts_and_schedules)
{
    const Layout *l = contract_layout(&contract, STR("l"));
    ck_assert_int_eq(l->n_meshes, 3);
    ck_assert(l->meshes[1].degree == 4 && l->meshes[1].n_cuts == 2);
    ck_assert(l->meshes[1].cuts[0].replicating && !l->meshes[1].cuts[1].replicating);
    ck_assert_int_eq(l->meshes[1].else_axis, (int)(axis("tokens") - contract.axes));
    ck_assert(l->meshes[2].n_product == 2 && l->meshes[2].product[1] == 1);
    ck_assert_int_eq(l->n_overrides, 1);
    ck_assert(l->overrides[0].op == 0 && l->overrides[0].meshes[0].degree == 4);
    ck_assert_int_eq(l->overrides[0].meshes[0].else_axis, -1);
    const Schedule *s = contract.schedules;
    ck_assert(s[0].rows_min == 0 && s[0].rows_max == 63 && s[1].rows_min == 64);
    ck_assert(s[1].rows_max == INT64_MAX && s[0].tile_k == 256 && s[0].stages == 3);
    ck_assert(s[0].leaves == LEAVES_ACROSS_CTAS && s[0].kernel == KERNEL_STREAM);
    ck_assert(s[1].leaves == LEAVES_IN_REGISTERS && s[1].tile_m == 0);
}
END_TEST

static int errors_of(const char *body)
{
    Front g;
    Contract c;
    front_open(&g, body);
    ck_assert_msg(front_parse(&g), "%s", front_text(&g));
    ck_assert(!check_contract(&g.ast, &c, g.arena, &g.diags));
    int n = g.diags.errors;
    ck_assert_msg(n == 1, "%s", front_text(&g));
    front_close(&g);
    return n;
}

/* One fault each, whatever else it spoils. */
START_TEST(no_consequences)
{
#define HEAD "contract t version 1; numerics sm_90;"
    errors_of(HEAD "axis a = N; op f(x: f32[a]) -> y: f32[a] { y = x / len(a); }"
                   "layout l { tp 2 cuts a; }");
    errors_of(HEAD "axis a = 4;"
                   "op f(x: f32[b]) -> y: f32[a] { s = x + x; y = sum(a by chain) s; }");
    errors_of(HEAD "axis a = 4; tree t = split 0 { chain } left f32; tree u = round f32 { t };"
                   "op f(x: f32[a]) -> y: f32[] { y = sum(a by u) x; }");
    errors_of(HEAD "axis a = 4;"
                   "op f(x: f32[a]) -> y: f32[a] { s = z; t = s * s; y = t + exp(s); }");
    errors_of(HEAD "axis a = 4; op f(x: bf16[a]) -> y: f32[a] { s = x * f32(x); y = s; }");
    errors_of(HEAD "axis a = 4; op f(x: fp32[a]) -> y: f32[a] { y = x; }");
    errors_of(HEAD "axis a = 4; op f(x: f32[a]) -> y: f32[a] { y[a 9] = x[a 0]; }");
    errors_of(HEAD "axis a = 4; op f(x: f32[a]) -> y: f32[a] { s = x; s = x + x; y = s; }");
    errors_of(HEAD "axis a = 4; op f(x: f32[a]) -> y: f32[a] { y = x; } layout l { tp 2 cuts b; }");
}
END_TEST

Suite *check_suite(void)
{
    Suite *suite = suite_create("check");
    TCase *tc = tcase_create("check");
    tcase_add_checked_fixture(tc, open_contract, close_contract);
    tcase_add_test(tc, axes_and_atoms);
    tcase_add_test(tc, ops);
    tcase_add_test(tc, trees_are_resolved);
    tcase_add_test(tc, layouts_and_schedules);
    tcase_add_test(tc, no_consequences);
    suite_add_tcase(suite, tc);
    return suite;
}
