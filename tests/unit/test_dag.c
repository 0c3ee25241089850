/* The graph and its fingerprint: what moves it, and what must not. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "dag/dag.h"
#include "meaning.h"

typedef struct Built {
    Front front;
    Contract contract;
    Dag dag;
} Built;

static void build(Built *b, const char *text)
{
    meaning_open(&b->front, text, &b->contract, &b->dag);
}

static void drop(Built *b)
{
    front_close(&b->front);
}

static const char *printed(Built *b, int op)
{
    Text out = {.arena = b->front.arena};
    dag_print(&b->dag, &b->dag.ops[op], &out);
    char *fingerprint = strstr(out.s, "  fingerprint");
    *fingerprint = 0;
    return out.s;
}

/* ---- form ----------------------------------------------------------------------------------- */

#define HEAD                                                                                       \
    "contract c version 1; numerics sm_90;\n"                                                      \
    "axis tokens = sequence * position ragged, hidden = 64, ffn = 96 in 128;\n"                    \
    "axis heads = kv 2 * group 2, head_dim = half 2 * rot 8;\n"                                    \
    "param EPS = 1e-6;\n"                                                                          \
    "tree row = lanes 4 by 2 { chain } pairwise f32;\n"                                            \
    "tree par = split 4 { mma } pairwise f32;\n"

#define NORM                                                                                       \
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"            \
    "    ss = sum(hidden by row) f32(x) * f32(x);\n"                                               \
    "    r = 1.0 / sqrt(ss / len(hidden) + EPS);\n"                                                \
    "    y = bf16(f32(x) * r) * w;\n"                                                              \
    "}\n"

#define ROPE                                                                                       \
    "op rope(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"                   \
    "   -> y: bf16[tokens, heads, head_dim] {\n"                                                   \
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"                                         \
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"                                         \
    "}\n"

#define GATE                                                                                       \
    "op gate(x: bf16[tokens, hidden], wg, wu: bf16[ffn, hidden]) -> h: bf16[tokens, ffn] {\n"      \
    "    g = bf16(sum(hidden by par) x * wg);\n"                                                   \
    "    u = bf16(sum(hidden by par) x * wu);\n"                                                   \
    "    h = bf16(silu(f32(g))) * u;\n"                                                            \
    "}\n"

START_TEST(norm_shares_its_cast_and_converts_literals_once)
{
    Built b;
    build(&b, HEAD NORM);
    ck_assert_str_eq(printed(&b, 0),
                     "op norm\n"
                     "  %0 = x: bf16[tokens, hidden]\n"
                     "  %1 = cast %0: f32[tokens, hidden]\n"
                     "  %2 = constant 1 (0x3f800000): f32[]\n"
                     "  %3 = mul %1 %1: f32[tokens, hidden]\n"
                     "  %4 = sum over [hidden] by lanes 4 by 2 { chain } pairwise f32 %3: "
                     "f32[tokens]\n"
                     "  %5 = constant 64 (0x42800000): f32[]\n"
                     "  %6 = div %4 %5: f32[tokens]\n"
                     "  %7 = constant 9.99999997e-07 (0x358637bd): f32[]\n"
                     "  %8 = add %6 %7: f32[tokens]\n"
                     "  %9 = sqrt %8: f32[tokens]\n"
                     "  %10 = div %2 %9: f32[tokens]\n"
                     "  %11 = mul %1 %10: f32[tokens, hidden]\n"
                     "  %12 = cast %11: bf16[tokens, hidden]\n"
                     "  %13 = w: bf16[hidden]\n"
                     "  %14 = mul %12 %13: bf16[tokens, hidden]\n"
                     "  y = %14\n");
    ck_assert_int_eq(b.dag.ops[0].reduces.n, 1);
    for (int i = 0; i < b.dag.ops[0].nodes.n; i++)
        ck_assert_int_eq(b.dag.ops[0].nodes.v[i]->number, i);
    drop(&b);
}
END_TEST

START_TEST(indices_go_down_to_the_parameters)
{
    Built b;
    build(&b, HEAD ROPE);
    ck_assert_str_eq(printed(&b, 0),
                     "op rope\n"
                     "  %0 = q[half 0]: bf16[tokens, kv, group, rot]\n"
                     "  %1 = cos: bf16[position, rot]\n"
                     "  %2 = mul %0 %1: bf16[tokens, position, kv, group, rot]\n"
                     "  %3 = q[half 1]: bf16[tokens, kv, group, rot]\n"
                     "  %4 = sin: bf16[position, rot]\n"
                     "  %5 = mul %3 %4: bf16[tokens, position, kv, group, rot]\n"
                     "  %6 = sub %2 %5: bf16[tokens, position, kv, group, rot]\n"
                     "  %7 = mul %3 %1: bf16[tokens, position, kv, group, rot]\n"
                     "  %8 = mul %0 %4: bf16[tokens, position, kv, group, rot]\n"
                     "  %9 = add %7 %8: bf16[tokens, position, kv, group, rot]\n"
                     "  y[half 0] = %6\n"
                     "  y[half 1] = %9\n");
    drop(&b);
    /* Through a local, and under a reduction over another axis. */
    build(&b, HEAD "op o(q: f32[tokens, head_dim]) -> y: f32[tokens, rot] {\n"
                   "  a = q * q + 1.0; y = a[half 1] - a[half 0]; }\n"
                   "op p(q: f32[tokens, head_dim]) -> y: f32[tokens] {\n"
                   "  s = sum(rot by chain) q; y = s[half 1]; }\n");
    ck_assert_ptr_nonnull(strstr(printed(&b, 0), "%1 = mul %0 %0: f32[tokens, rot]"));
    ck_assert_ptr_nonnull(strstr(printed(&b, 0), "%0 = q[half 1]: f32[tokens, rot]"));
    ck_assert_ptr_nonnull(strstr(printed(&b, 1), "%0 = q[half 1]: f32[tokens, rot]"));
    ck_assert_ptr_nonnull(strstr(printed(&b, 1), "%1 = sum over [rot] by chain %0: f32[tokens]"));
    drop(&b);
}
END_TEST

START_TEST(literals_take_the_type_beside_them)
{
    Built b;
    build(&b, HEAD "op o(x: bf16[tokens], z: f32[tokens])\n"
                   " -> (a, b: bf16[tokens], c: f32[tokens]) {\n"
                   "  a = 0.1 * x; b = x - -0.1;\n"
                   "  c = f32(bf16(0.1)) * z + maximum(z, 0.1) - --0.25; }\n");
    const char *text = printed(&b, 0);
    ck_assert_ptr_nonnull(strstr(text, "constant 0.100097656 (0x3dcd): bf16[]"));
    ck_assert_ptr_nonnull(strstr(text, "constant -0.100097656 (0xbdcd): bf16[]"));
    ck_assert_ptr_nonnull(strstr(text, "constant 0.100000001 (0x3dcccccd): f32[]"));
    ck_assert_ptr_nonnull(strstr(text, "constant 0.25 (0x3e800000): f32[]"));
    drop(&b);
}
END_TEST

/* ---- the fingerprint ------------------------------------------------------------------------ */

static const char base[] = HEAD NORM ROPE GATE;

/* The base text with the first `old` after `from` replaced. */
static const char *edited(const char *from, const char *old, const char *new)
{
    static char text[8192];
    const char *start = strstr(base, from), *at = start ? strstr(start, old) : NULL;
    ck_assert_msg(at != NULL, "%s is not in the contract", old);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, new, at + strlen(old));
    return text;
}

typedef struct Edit {
    const char *from, *old, *new;
} Edit;

static int moved(const Edit *edit, bool *contract_moved)
{
    Built a, b;
    int ops = 0;
    build(&a, base);
    build(&b, edited(edit->from, edit->old, edit->new));
    for (int i = 0; i < a.dag.n_ops; i++)
        ops += !digest_eq(&a.dag.ops[i].fingerprint, &b.dag.ops[i].fingerprint);
    *contract_moved = !digest_eq(&a.dag.fingerprint, &b.dag.fingerprint);
    drop(&a);
    drop(&b);
    return ops;
}

static const Edit numeric[] = {
    {"axis", "hidden = 64", "hidden = 128"},
    {"axis", "96 in", "95 in"},
    {"axis", "rot 8", "rot 4"},
    {"param", "1e-6", "1e-5"},
    {"tree row", "lanes 4", "lanes 8"},
    {"tree row", "by 2", "by 4"},
    {"tree row", "chain", "chain add"},
    {"tree row", "pairwise f32", "left f32"},
    {"tree par", "split 4", "split 8"},
    {"tree par", "split 4", "split [16, 16, 8, 24]"},
    {"tree par", "{ mma }", "{ round bf16 { mma } }"},
    {"tree par", "pairwise f32", "pairwise bf16"},
    {"op norm", "1.0 /", "1.0000001 /"},
    {"op norm", "len(hidden)", "64.001"},
    {"op norm", "f32(x) * f32(x)", "f32(x)"},
    {"op norm", "sum(", "max("},
    {"op norm", "ss / len", "ss * len"},
    {"op norm", "sqrt(", "exp("},
    {"op norm", "bf16(f32(x) * r) * w", "bf16(f32(x) * r * f32(w))"},
    {"op norm", "* w;", "+ w;"},
    {"op rope", "- q[half 1]", "+ q[half 1]"},
    {"op rope", "q[half 0] * cos - q[half 1] * sin", "q[half 1] * cos - q[half 0] * sin"},
    {"op rope", "q[half 0] * cos - q[half 1] * sin", "q[half 1] * sin - q[half 0] * cos"},
    {"op gate", "silu", "gelu"},
    {"op gate", "bf16(silu(f32(g)))", "bf16(silu(f32(u)))"},
    {"op gate", "x * wu", "x * wg"},
    {"op gate", "bf16(silu(f32(g))) * u", "bf16(silu(f32(g)) * f32(u))"},
    {"op gate", "wg, wu:", "wu, wg:"},
    {"op gate", "h = bf16(silu(f32(g))) * u", "h = bf16(f16(silu(f32(g)))) * u"},
    {"numerics", "sm_90", "sm_80"},
};

START_TEST(every_numeric_change_moves_it)
{
    const Edit *edit = &numeric[_i];
    bool contract;
    int ops = moved(edit, &contract);
    ck_assert_msg(ops >= 1 && contract, "%s -> %s moves %d ops", edit->old, edit->new, ops);
}
END_TEST

static const Edit harmless[] = {
    {"contract", "c version 1", "d version 2"},
    {"axis", "96 in 128", "96 in 256"},
    {"axis", "axis", "# a comment\naxis"},
    {"axis", "1e-6", "0.000001"},
    {"tree par", "tree par", "tree unused = mma; tree par"},
    {"op norm", "ss = sum(hidden by row) f32(x) * f32(x);",
     "total = sum(hidden by row) f32(x) * f32(x); ss = total;"},
    {"op norm", "sum(hidden by row)", "sum(hidden by lanes 4 by 2 { chain } pairwise f32)"},
    {"op norm", "f32(x) * r", "f32(f32(x)) * r"},
    {"op norm", "len(hidden)", "64"},
    {"op gate", "g = bf16(sum(hidden by par) x * wg);\n    u = bf16(sum(hidden by par) x * wu);",
     "u = bf16(sum(hidden by par) x * wu);\n    g = bf16(sum(hidden by par) x * wg);"},
    {"op gate", "silu(f32(g))", "(silu((f32(g))))"},
    {"op gate", "op gate", "layout l { tp 2 cuts kv, ffn; }\nop gate"},
    {"op gate", "op gate", "schedule norm when tokens <= 64 { stages 4; }\nop gate"},
    {"numerics", "sm_90", "sm_100"},
};

START_TEST(nothing_else_does)
{
    const Edit *edit = &harmless[_i];
    bool contract;
    int ops = moved(edit, &contract);
    ck_assert_msg(ops == 0 && !contract, "%s -> %s moves %d ops", edit->old, edit->new, ops);
}
END_TEST

/* Names of axes and the order of declarations are not meaning either. */
START_TEST(names_and_order_of_axes_do_not_count)
{
    Built a, b;
    build(&a, "contract c version 1; numerics sm_90; axis t ragged, h = 8, k = 4;\n"
              "op o(x: f32[t, h, k]) -> y: f32[t] { y = sum(h, k by chain) x; }\n");
    build(&b, "contract c version 1; numerics sm_90; axis k = 8, u ragged, m = 9, h = 4;\n"
              "op o(x: f32[u, k, h]) -> y: f32[u] { y = sum(k, h by chain) x; }\n");
    ck_assert(digest_eq(&a.dag.fingerprint, &b.dag.fingerprint));
    drop(&b);
    build(&b, "contract c version 1; numerics sm_90; axis t ragged, h = 8, k = 4;\n"
              "op o(x: f32[t, h, k]) -> y: f32[t] { y = sum(k, h by chain) x; }\n");
    ck_assert(!digest_eq(&a.dag.fingerprint, &b.dag.fingerprint));
    drop(&a);
    drop(&b);
}
END_TEST

START_TEST(a_norm_does_not_depend_on_the_tensor_cores)
{
    Built a, b;
    build(&a, base);
    build(&b, edited("numerics", "sm_90", "sm_80"));
    ck_assert(digest_eq(&a.dag.ops[0].fingerprint, &b.dag.ops[0].fingerprint));
    ck_assert(!digest_eq(&a.dag.ops[2].fingerprint, &b.dag.ops[2].fingerprint));
    drop(&a);
    drop(&b);
}
END_TEST

/* Two engines built years apart compare these. An intended change of the canonical text raises its
 * version line. */
START_TEST(fingerprints_stay)
{
    Built b;
    build(&b, base);
    ck_assert_str_eq(digest_hex(b.front.arena, &b.dag.ops[0].fingerprint).s,
                     "e9d197f1a72d7963a8364df2eaea595b110d8d7eacfbadad88325426cff8b356");
    ck_assert_str_eq(digest_hex(b.front.arena, &b.dag.ops[1].fingerprint).s,
                     "3abc453167468517de8a984d351ead8cf61fae0a65fe03b1d0c8d492a7dc8e48");
    drop(&b);
}
END_TEST

static const char *const tree_texts[] = {
    "mma",
    "split 4 { mma } pairwise f32",
    "split [16, 40, 8] { chain add } left bf16",
    "every 16 { split 2 { chain } left f32 } pairwise f32",
    "lanes 4 by 2 { chain } pairwise f16",
    "round bf16 { split 2 { round f16 { lanes 2 by 8 { chain add } left f32 } } left f32 }",
};

START_TEST(tree_texts_parse_to_themselves)
{
    char text[512];
    Built b;
    const char *tree = tree_texts[_i], *product = strstr(tree, "mma") ? "x * x" : "f32(x)";
    snprintf(text, sizeof text, HEAD "op o(x: bf16[tokens, hidden]) -> y: f32[tokens] {\n"
                                     "  y = f32(sum(hidden by %s) %s); }\n", tree, product);
    build(&b, text);
    Text out = {.arena = b.front.arena};
    tree_print(b.dag.ops[0].reduces.v[0]->tree, &out);
    ck_assert_str_eq(out.s, tree);
    drop(&b);
}
END_TEST

/* ---- terms ---------------------------------------------------------------------------------- */

START_TEST(terms_tell_trees_apart)
{
    Built b;
    build(&b, base);
    const DagNode *reduce = b.dag.ops[2].reduces.v[0], *other = b.dag.ops[2].reduces.v[1];
    const TreeNode *root = tree_expand(b.front.arena, reduce->tree, 64);
    Digest whole = term_of(reduce, root), left = term_of(reduce, root->left);
    Digest right = term_of(reduce, root->right), joined, again = term_of(reduce, root);
    ck_assert(digest_eq(&whole, &again));
    joined = term_join(MONOID_SUM, DT_F32, &left, &right);
    ck_assert(digest_eq(&whole, &joined));
    joined = term_join(MONOID_SUM, DT_F32, &right, &left);
    ck_assert(!digest_eq(&whole, &joined));
    joined = term_join(MONOID_SUM, DT_F32, &left, &left);
    ck_assert(!digest_eq(&whole, &joined));
    joined = term_join(MONOID_SUM, DT_F32, &right, &right);
    ck_assert(!digest_eq(&whole, &joined));
    joined = term_join(MONOID_MAX, DT_F32, &left, &right);
    ck_assert(!digest_eq(&whole, &joined));
    joined = term_of(other, root);
    ck_assert(!digest_eq(&whole, &joined));
    const Run one = {0, 16}, two[] = {{0, 8}, {8, 8}}, gap[] = {{0, 8}, {9, 7}};
    Digest leaf = term_leaf(reduce, TREE_MMA, &one, 1);
    joined = term_leaf(reduce, TREE_MMA, two, 2);
    ck_assert(digest_eq(&leaf, &joined));
    joined = term_leaf(reduce, TREE_MMA, gap, 2);
    ck_assert(!digest_eq(&leaf, &joined));
    joined = term_leaf(reduce, TREE_CHAIN, &one, 1);
    ck_assert(!digest_eq(&leaf, &joined));
    joined = term_round(DT_BF16, &leaf);
    ck_assert(!digest_eq(&leaf, &joined));
    drop(&b);
}
END_TEST

START_TEST(deep_trees_have_terms)
{
    Built b;
    build(&b, "contract c version 1; numerics sm_90; axis t ragged, v = 40000;\n"
              "op o(x: f32[t, v]) -> y: f32[t] { y = sum(v by every 1 { chain } left f32) x; }\n");
    const DagNode *reduce = b.dag.ops[0].reduces.v[0];
    const TreeNode *root = tree_expand(b.front.arena, reduce->tree, 40000);
    Digest value = term_of(reduce, root), left = term_of(reduce, root->left);
    Digest right = term_of(reduce, root->right);
    Digest joined = term_join(MONOID_SUM, DT_F32, &left, &right);
    ck_assert(digest_eq(&value, &joined));
    drop(&b);
}
END_TEST

Suite *dag_suite(void)
{
    Suite *suite = suite_create("dag");
    TCase *tc = tcase_create("dag");
    tcase_add_test(tc, norm_shares_its_cast_and_converts_literals_once);
    tcase_add_test(tc, indices_go_down_to_the_parameters);
    tcase_add_test(tc, literals_take_the_type_beside_them);
    tcase_add_loop_test(tc, every_numeric_change_moves_it, 0, sizeof numeric / sizeof *numeric);
    tcase_add_loop_test(tc, nothing_else_does, 0, sizeof harmless / sizeof *harmless);
    tcase_add_test(tc, names_and_order_of_axes_do_not_count);
    tcase_add_test(tc, a_norm_does_not_depend_on_the_tensor_cores);
    tcase_add_test(tc, fingerprints_stay);
    tcase_add_loop_test(tc, tree_texts_parse_to_themselves, 0,
                        sizeof tree_texts / sizeof *tree_texts);
    tcase_add_test(tc, terms_tell_trees_apart);
    tcase_add_test(tc, deep_trees_have_terms);
    suite_add_tcase(suite, tc);
    return suite;
}
