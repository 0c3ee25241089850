/* The manifest's format: every path that its JSON has, with its type, against the golden file of
 * the format's number. A change here without a new MANIFEST_FORMAT breaks launchers. */
#include "golden.h"
#include "pipeline.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char contract[] =
    "contract every_family version 3;\n"
    "numerics sm_90;\n"
    "axis tokens = sequence * position ragged;\n"
    "axis hidden = 64, ffn = 256;\n"
    "axis heads = kv_heads 4 * group 2, head_dim = half 2 * rot 8;\n"
    "tree eighth = split 8 { mma } pairwise f32;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"
    "    ss = sum(hidden by lanes 32 by 2 { chain } pairwise f32) f32(x) * f32(x);\n"
    "    y = bf16(f32(x) * (1.0 / sqrt(ss / len(hidden) + 1e-6))) * w;\n"
    "}\n"
    "op square(x: bf16[tokens, ffn]) -> ss: f32[tokens] {\n"
    "    ss = sum(ffn by split 8 { chain } pairwise f32) f32(x) * f32(x);\n"
    "}\n"
    "op rope(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"
    "}\n"
    "op up(x: bf16[tokens, hidden], wg, wu: bf16[ffn, hidden]) -> y: bf16[tokens, ffn] {\n"
    "    y = bf16(silu(sum(hidden by mma) x * wg)) * bf16(sum(hidden by mma) x * wu);\n"
    "}\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(ffn by eighth) h * w) + res; }\n"
    "model both {\n"
    "    input x: bf16[tokens, hidden], q: bf16[tokens, heads, head_dim];\n"
    "    table cos, sin: bf16[position, rot] = rope { theta 10000; };\n"
    "    repeat 2 as layer {\n"
    "        h = norm(x, w: \"layers.{layer}.norm\");\n"
    "        f = up(h, wg: \"gate\", wu: \"up\");\n"
    "        x = down(f, w: \"layers.{layer}.down\", res: x);\n"
    "        q = rope(q, cos, sin);\n"
    "        cache keys = q;\n"
    "    }\n"
    "    output x, q;\n"
    "}\n"
    "layout one { }\n"
    "layout four { dp 2 cuts tokens; tp 4 cuts kv_heads, ffn else tokens; }\n";

typedef VEC(Str) Paths;

static void collect(const json_t *value, Str path, Paths *paths, Arena *arena)
{
    static const char *const types[] = {"object", "array", "string", "integer", "real",
                                        "boolean", "boolean", "null"};
    vec_push(arena, paths,
             str_format(arena, "%.*s: %s", STR_FMT(path), types[json_typeof(value)]));
    const char *key;
    const json_t *child;
    for (size_t i = 0; i < json_array_size(value); i++)
        collect(json_array_get(value, i), str_format(arena, "%.*s[]", STR_FMT(path)), paths, arena);
    json_object_foreach((json_t *)value, key, child)
    {
        bool index = *key >= '0' && *key <= '9'; /* an atom's number */
        collect(child, str_format(arena, "%.*s.%s", STR_FMT(path), index ? "N" : key), paths,
                arena);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const Str *)a)->s, ((const Str *)b)->s);
}

static Str skeleton(Str manifest, Arena *arena)
{
    json_t *root = json_loadb(manifest.s, (size_t)manifest.n, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(root);
    Paths paths = {0};
    Text text = {.arena = arena};
    collect(root, STR(""), &paths, arena);
    qsort(paths.v, (size_t)paths.n, sizeof *paths.v, by_text);
    for (int i = 0; i < paths.n; i++)
        if (i == 0 || !str_eq(paths.v[i], paths.v[i - 1]))
            text_printf(&text, "%.*s\n", STR_FMT(paths.v[i]));
    json_decref(root);
    return text_str(&text);
}

static Str manifest_of(Pipeline *p)
{
    static const Str options[] = {{"--fmad=false", 12}};
    Digest digest = sha256("", 0);
    ManifestBuild build = {.arch = STR("sm_90a"), .nvrtc_major = 13, .n_options = 1,
                           .options = options, .cubin = &digest, .cuda = &digest, .ptx = &digest};
    Text text = {.arena = p->out};
    ck_assert(manifest_write(&p->sources, &p->plan, &p->emitted, &p->certificate, &build, &text));
    return text_str(&text);
}

static void open_contract(Pipeline *p, MemoryFiles *files)
{
    PipelineInput input = {.path = STR("m.iso"), .reader = reader_memory(files), .cache = ""};
    ck_assert(pipeline_open(p, &input));
    bool ok = pipeline_run(p, STAGE_EMIT);
    char *messages = pipeline_messages(p);
    ck_assert_msg(ok, "%s", messages);
    free(messages);
}

START_TEST(format_is_the_golden_one)
{
    Pipeline p;
    MemoryFile file = {STR("m.iso"), STR(contract)};
    MemoryFiles files = {1, &file};
    open_contract(&p, &files);
    Str path = str_format(p.out, "tests/golden/manifest-%d.txt", MANIFEST_FORMAT);
    Str own = skeleton(manifest_of(&p), p.out);
    golden_compare(path.s, own, p.out);
    pipeline_close(&p);
}
END_TEST

START_TEST(writing_twice_gives_the_same_bytes)
{
    Pipeline p, q;
    MemoryFile file = {STR("m.iso"), STR(contract)};
    MemoryFiles files = {1, &file};
    open_contract(&p, &files);
    open_contract(&q, &files);
    ck_assert(str_eq(manifest_of(&p), manifest_of(&q)));
    pipeline_close(&p);
    pipeline_close(&q);
}
END_TEST

Suite *manifest_suite(void);
Suite *manifest_suite(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tests = tcase_create("manifest");
    tcase_add_test(tests, format_is_the_golden_one);
    tcase_add_test(tests, writing_twice_gives_the_same_bytes);
    suite_add_tcase(suite, tests);
    return suite;
}
