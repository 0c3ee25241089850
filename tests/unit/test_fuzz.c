/* Texts for the fuzzer of contracts, replayed; and front ends that run out of memory at every
 * allocation. */
#include "replay.h"

#include "../fuzz/fuzz_contract.c"

START_TEST(texts_of_contracts)
{
    static const char *const folders[] = {"tests/fuzz/corpus/contract", "tests/reject",
                                          "tests/golden", "tests/ptx"};
    int n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        n += replay_folder(folders[i], LLVMFuzzerTestOneInput);
    ck_assert_int_gt(n, 200);
}
END_TEST

static const char sound[] =
    "contract t version 1; numerics sm_90; param H = 256; include \"b.iso\";\n"
    "axis tokens = sequence * position ragged, hidden = H, heads = kv 4 * group 2;\n"
    "tree row = lanes 8 by 8 { chain } pairwise f32;\n"
    "op f(x: bf16[tokens, hidden], w: bf16[heads, hidden]) -> (y: bf16[tokens, heads],\n"
    "    z: f32[tokens]) {\n"
    "    y = bf16(sum(hidden by split 4 { mma } pairwise f32) x * w);\n"
    "    s = sum(hidden by row) f32(x) * f32(x); z = 1.0 / sqrt(s / len(hidden) + 1e-6);\n"
    "}\n"
    "op e(ids: hidden[tokens], w: bf16[hidden]) -> y: bf16[tokens] { y = w[hidden ids]; }\n"
    "op g(q: bf16[tokens, heads, hidden], k, v: bf16[sequence, position, kv, hidden])\n"
    "   -> (o, l: f32[tokens, heads]) {\n"
    "    attend a, l = q, k, v { over hidden; scale_log2 H; window 4; } o = max(hidden by row) a;\n"
    "}\n"
    "model m { input x: bf16[tokens, hidden], c: bf16[tokens, kv, hidden],\n"
    "    q: bf16[tokens, heads, hidden];\n"
    "    table s, t: bf16[position, kv] = rope { theta H; scaling linear; factor 2; };\n"
    "    repeat 2 as layer { y, z = f(x, w: \"w.{2*layer+1}\"); cache k = c; o, l = g(q, k, k); }\n"
    "    output z, o; }\n"
    "layout l { tp 2 cuts kv else tokens; op f { tp cuts hidden; } }\n"
    "schedule f when tokens <= 64 { tile 16 x 64 x 128; leaves across ctas; }\n";

static const char faulty[] = "contract t version 1; axis a = ; op f(x: [a]) -> y: f32[a] { y = \n"
                             "axis b = 3 \xc3\x97; tree t = split 0 { u } pairwise f3;\n";

/* The front end with the k-th allocation failing; false when the run needed fewer. */
static bool run_failing(const char *text, u64 k)
{
    Input input = {{text, (int)strlen(text)}, STR("param UNUSED = 1;")};
    arena_fail_at(k);
    Arena *arena = arena_new();
    if (!arena)
        return true;
    Sources sources;
    Diags diags;
    Ast ast;
    jmp_buf out_of_memory;
    bool failed = setjmp(out_of_memory);
    if (!failed) {
        arena_on_oom(arena, &out_of_memory);
        if (parse_text(arena, &input, &sources, &diags, &ast))
            check_meaning(arena, &ast, &diags);
        Text out = {.arena = arena};
        diags_render_text(&diags, &out, true);
        diags_render_json(&diags, &out);
    }
    arena_free(arena);
    return failed;
}

static void fail_at_each(const char *text)
{
    u64 k = 1;
    while (run_failing(text, k))
        k++;
    arena_fail_at(0);
    ck_assert_int_gt(k, 2);
}

START_TEST(every_allocation_may_fail)
{
    fail_at_each(sound);
    fail_at_each(faulty);
}
END_TEST

Suite *fuzz_suite(void)
{
    Suite *suite = suite_create("fuzz");
    TCase *tc = tcase_create("fuzz");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, texts_of_contracts);
    tcase_add_test(tc, every_allocation_may_fail);
    suite_add_tcase(suite, tc);
    return suite;
}
