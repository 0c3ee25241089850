/* The scanner and parser: what is accepted, what is printed, what is refused and how. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

static const char whole[] =
    "contract m version 1; numerics sm_90; param H = 4096; param DEMANDED;\n"
    "axis tokens = sequence * position ragged, rows ragged;\n"
    "axis hidden = H, vocab = 100278 in 100352, heads = kv 8 * group 4 * pair 2;\n"
    "tree a = mma; tree b = split 8 { a } pairwise f32;\n"
    "tree c = split [176, H, 8] { round bf16 { every 3 { chain add } left f32 } } left f32;\n"
    "tree d = lanes 128 by 8 { chain } pairwise f32;\n"
    "op norm(x: bf16[tokens, hidden], u, w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"
    "    s = sum(hidden by d) f32(x) * f32(x);\n"
    "    m = max(hidden, group by every 8 { mma } left f32)x;\n"
    "    r = 1.0 / sqrt(s / len(hidden) + 1e-6) - 0x1.8p-3;\n"
    "    y[half 0, pair 1] = (2.0 * sum(hidden by d) x) / -(s + r)\n"
    "                        - (s - --r) * exp2.d3(q[half H]);\n"
    "}\n"
    "op two(s: f32[]) -> (p: f32[], q, r: f16[rows]) { }\n"
    "layout none { }\n"
    "layout l { dp 2 cuts rows; tp H cuts kv replicating, vocab else tokens; ep = dp * tp cuts e;\n"
    "           op two { tp cuts hidden else tokens; ep; } }\n"
    "schedule two when tokens <= 64 { tile 16 x H x 128; leaves across ctas; leaves in registers;\n"
    "                                 stages 4; kernel wgmma; }\n"
    "schedule two { }\n";

START_TEST(printing_is_a_fixed_point)
{
    Front f, g;
    front_open(&f, whole);
    ck_assert_msg(front_parse(&f), "%s", front_text(&f));
    Text first = {.arena = f.arena}, second = {.arena = f.arena};
    ast_print(&f.ast, &first);
    front_open(&g, first.s);
    ck_assert_msg(front_parse(&g), "%s", front_text(&g));
    ast_print(&g.ast, &second);
    ck_assert_str_eq(first.s, second.s);
    front_close(&f);
    front_close(&g);
}
END_TEST

static void check_expr(const char *written, const char *printed)
{
    Front f;
    char text[512], want[512];
    snprintf(text, sizeof text, "op o() -> y: f32[] { y = %s; }", written);
    snprintf(want, sizeof want, "op o() -> y: f32[] {\n    y = %s;\n}\n", printed);
    front_open(&f, text);
    ck_assert_msg(front_parse(&f), "%s", front_text(&f));
    Text out = {.arena = f.arena};
    ast_print(&f.ast, &out);
    ck_assert_str_eq(out.s, want);
    front_close(&f);
}

START_TEST(precedence)
{
    check_expr("a+b*c", "a + b * c");
    check_expr("(a+b)*c", "(a + b) * c");
    check_expr("a-(b-c)", "a - (b - c)");
    check_expr("(a-b)-c", "a - b - c");
    check_expr("a/(b*c)", "a / (b * c)");
    check_expr("-a*b", "-a * b");
    check_expr("-(a*b)", "-(a * b)");
    check_expr("sum(k by t) a*b+c", "sum(k by t) a * b + c");
    check_expr("(sum(k by t) a*b)+c", "sum(k by t) a * b + c");
    check_expr("sum(k by t) (a*b+c)", "sum(k by t) (a * b + c)");
    check_expr("(sum(k by t) a)*b", "(sum(k by t) a) * b");
    check_expr("2.0*sum(k by t) a*b", "2.0 * (sum(k by t) a * b)");
    check_expr("-sum(k by t) a", "-(sum(k by t) a)");
    check_expr("sum(k by t) max(j by t) a", "sum(k by t) max(j by t) a");
}
END_TEST

/* Every message: where it points, and its number. */
static void check_errors(const char *text, const char *want)
{
    Front f;
    char got[512] = "";
    front_open(&f, text);
    ck_assert(!front_parse(&f));
    for (int i = 0; i < f.diags.list.n; i++) {
        const Diag *d = f.diags.list.v[i];
        int line, column;
        source_position(&f.sources.files.v[d->span.file], d->span.lo, &line, &column);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s@%d:%d", i ? " " : "",
                 STR_FMT(diag_code(f.arena, d->id)), line, column);
    }
    ck_assert_msg(!strcmp(got, want), "got %s\nwant %s\n%s", got, want, front_text(&f));
    front_close(&f);
}

START_TEST(all_errors_of_a_file_are_told_once)
{
    check_errors("axis a 4;\naxis b = 5;\naxis c = ;\n", "ISO1201@1:8 ISO1201@3:10");
    check_errors("op o() -> y: f32[] {\n a = ;\n b = c;\n d = * e;\n}\naxis = 3;\n",
                 "ISO1201@2:6 ISO1201@4:6 ISO1201@6:6");
    check_errors("op o(x: [t]) -> y: f32[] { a = b; c = d; }\naxis = 3;\n",
                 "ISO1201@1:9 ISO1201@2:6");
    check_errors("axis a = 4\naxis b = 5;\naxis = 6;\n", "ISO1202@1:11 ISO1201@3:6");
    check_errors("op o() -> y: f32[] {\n a = b\n}\naxis = 6;\n", "ISO1202@2:7 ISO1201@4:6");
    check_errors("op o() -> y: f32[] { a = b;\naxis c = 3;\naxis = 6;\n",
                 "ISO1203@2:1 ISO1201@3:6");
    check_errors("layout l { tp 2 cuts ; ep garbage * { x } ; }\n}\naxis = 1;\n",
                 "ISO1201@1:22 ISO1201@1:35 ISO1201@2:1 ISO1201@3:6");
    check_errors("tree t = split 8 { mma pairwise f32;\naxis = 1;\n", "ISO1201@1:24 ISO1201@2:6");
    check_errors("op o() -> y: f32[] { y = sum(k by split 8 { mma pairwise f32) x; z = ; }\n",
                 "ISO1201@1:49 ISO1201@1:70");
    check_errors("op o() -> y: f32[] { a = b;", "ISO1203@1:28");
    check_errors("axis left = 4; axis b = 1.0f;", "ISO1205@1:6 ISO1102@1:25");
    check_errors("axis a = 4 \xc3\x97 5;", "ISO1101@1:12");
    check_errors("include \"nothing.iso\";", "ISO1001@1:9");
    check_errors("contract a version 1; contract b version 2; numerics x; numerics y;",
                 "ISO1401@1:32 ISO1402@1:66");
}
END_TEST

START_TEST(limits_are_errors)
{
    char text[200000];
    int n = snprintf(text, sizeof text, "op o() -> y: f32[] { y = ");
    memset(text + n, '(', 5000);
    text[n + 5000] = 0;
    check_errors(text, "ISO1204@1:90");
    memset(text + n, '-', 5000);
    strcpy(text + n + 5000, "a; }");
    check_errors(text, "ISO1204@1:811");
    for (int i = 0; i < 5000; i++)
        memcpy(text + n + 2 * i, "a+", 2);
    strcpy(text + n + 10000, "a; }");
    check_errors(text, "ISO1204@1:26");
    memset(text, 'a', 129);
    strcpy(text + 129, ";");
    check_errors(text, "ISO1104@1:1 ISO1201@1:1");
    check_errors("# \xff", "ISO1003@1:3");
}
END_TEST

START_TEST(includes)
{
    Front f;
    front_open(&f, "include \"b.iso\"; include \"b.iso\"; axis x = 1;");
    front_add(&f, "b.iso", "include \"c.iso\"; axis b = 1;");
    front_add(&f, "c.iso", "axis c = 1;");
    ck_assert_msg(front_parse(&f), "%s", front_text(&f));
    ck_assert_int_eq(f.ast.axes.n, 3);
    ck_assert(str_is(f.ast.axes.v[0].name.text, "c"));
    front_close(&f);

    front_open(&f, "include \"b.iso\";");
    front_add(&f, "b.iso", "\ninclude \"c.iso\";");
    front_add(&f, "c.iso", "include \"b.iso\";");
    ck_assert(!front_parse(&f));
    ck_assert_str_eq(front_text(&f),
                     "In file included from b.iso:2:\n"
                     "In file included from main.iso:1:\n"
                     "c.iso:1:9: error: 'b.iso' includes itself [ISO1301]\n"
                     "include \"b.iso\";\n"
                     "        ^~~~~~~\n"
                     "b.iso:2:9: note: 'c.iso' is included from here\n"
                     "include \"c.iso\";\n"
                     "        ^~~~~~~\n"
                     "note: remove one include of the circle; what both files need goes into a "
                     "third that both include\n");
    front_close(&f);
}
END_TEST

START_TEST(rendering)
{
    Front f;
    front_open(&f, "axis \xc3\xbc\t= 4;\n\taxis b 5;");
    ck_assert(!front_parse(&f));
    ck_assert_str_eq(front_text(&f),
                     "main.iso:1:6: error: '\xc3\xbc' is not a character of the language "
                     "[ISO1101]\n"
                     "axis \xc3\xbc  = 4;\n"
                     "     ^\n"
                     "main.iso:2:9: error: expected 'ragged' or '=' before '5' [ISO1201]\n"
                     "        axis b 5;\n"
                     "               ^\n");
    Text json = {.arena = f.arena};
    diags_render_json(&f.diags, &json);
    json_t *root = json_loads(json.s, 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq(json_array_size(root), 2);
    json_t *first = json_array_get(root, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "code")), "ISO1101");
    ck_assert_int_eq(json_integer_value(json_object_get(first, "column")), 6);
    json_decref(root);
    front_close(&f);
}
END_TEST

START_TEST(registry)
{
    DiagId id;
    Front f;
    front_open(&f, "");
    ck_assert(diag_lookup(STR("ISO1203"), &id) && id == DIAG_UNCLOSED_BLOCK);
    ck_assert(!diag_lookup(STR("ISO9999"), &id));
    for (int i = 0; i < DIAG_COUNT; i++) {
        Str code = diag_code(f.arena, (DiagId)i), text = diag_explanation(f.arena, (DiagId)i);
        ck_assert(diag_lookup(code, &id));
        ck_assert_msg(id == (DiagId)i, "%s is given twice", code.s);
        ck_assert_msg(strstr(text.s, "before:") && strstr(text.s, "after:"), "%s", code.s);
    }
    front_close(&f);
}
END_TEST

Suite *parse_suite(void)
{
    Suite *suite = suite_create("parse");
    TCase *tc = tcase_create("parse");
    tcase_add_test(tc, printing_is_a_fixed_point);
    tcase_add_test(tc, precedence);
    tcase_add_test(tc, all_errors_of_a_file_are_told_once);
    tcase_add_test(tc, limits_are_errors);
    tcase_add_test(tc, includes);
    tcase_add_test(tc, rendering);
    tcase_add_test(tc, registry);
    suite_add_tcase(suite, tc);
    return suite;
}
