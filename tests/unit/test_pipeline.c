/* The stages together: outputs, failures and their codes, determinism, short memory, the cache, and
 * the rank-by-rank check, which must be able to fail. */
#include "cubin/cache.h"
#include "pipeline.h"
#include "verify/verify.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char small[] =
    "contract small version 1;\n"
    "numerics sm_90;\n"
    "axis tokens ragged;\n"
    "axis hidden = 64, ffn = 256;\n"
    "include \"trees/eight.isoi\";\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(ffn by eighth) h * w) + res; }\n"
    "op up(x: bf16[tokens, hidden], w: bf16[ffn, hidden]) -> y: bf16[tokens, ffn] {\n"
    "    y = bf16(sum(hidden by mma) x * w);\n"
    "}\n"
    "layout one { }\n"
    "layout four { tp 4 cuts ffn; }\n"
    "layout four_sp { tp 4 cuts ffn else tokens; }\n";
static const char tree[] = "tree eighth = split 8 { mma } pairwise f32;\n";

typedef struct Bench {
    MemoryFile files[2];
    MemoryFiles list;
    PipelineInput input;
    Pipeline p;
} Bench;

static void bench_open(Bench *b, const char *main_name, const char *tree_name, const char *text)
{
    memset(b, 0, sizeof *b);
    b->files[0] = (MemoryFile){str_of(main_name), str_of(text)};
    b->files[1] = (MemoryFile){str_of(tree_name), str_of(tree)};
    b->list = (MemoryFiles){2, b->files};
    b->input = (PipelineInput){.path = str_of(main_name), .reader = reader_memory(&b->list),
                               .cache = ""};
}

static bool bench_run(Bench *b, Stage last)
{
    ck_assert(pipeline_open(&b->p, &b->input));
    return pipeline_run(&b->p, last);
}

START_TEST(every_output_is_there)
{
    Bench b;
    bench_open(&b, "small.iso", "trees/eight.isoi", small);
    ck_assert(bench_run(&b, STAGE_EMIT));
    for (int i = 0; i < OUTPUT_COUNT; i++)
        if (output_stage((Output)i) <= STAGE_EMIT)
            ck_assert_msg(pipeline_output(&b.p, (Output)i).n > 0, "%s", output_name((Output)i));
    ck_assert_int_eq(b.p.certificate.failed, 0);
    pipeline_close(&b.p);
}
END_TEST

START_TEST(failures_have_their_codes)
{
    Bench b;
    bench_open(&b, "small.iso", "trees/eight.isoi", "contract x version 1; axis a = ;");
    ck_assert(!bench_run(&b, STAGE_EMIT));
    ck_assert_int_eq(b.p.outcome, OUTCOME_CONTRACT);
    char *messages = pipeline_messages(&b.p);
    ck_assert_ptr_nonnull(strstr(messages, "small.iso:1:"));
    free(messages);
    pipeline_close(&b.p);

    bench_open(&b, "small.iso", "trees/eight.isoi", small);
    b.input.layout = "fuor";
    ck_assert(!bench_run(&b, STAGE_EMIT));
    ck_assert_int_eq(b.p.outcome, OUTCOME_USAGE);
    pipeline_close(&b.p);

    bench_open(&b, "small.iso", "trees/eight.isoi", small);
    b.input.path = STR("other.iso");
    ck_assert(!bench_run(&b, STAGE_EMIT));
    ck_assert_int_eq(b.p.outcome, OUTCOME_USAGE);
    pipeline_close(&b.p);
}
END_TEST

START_TEST(the_folder_leaves_no_trace)
{
    Bench a, b;
    bench_open(&a, "small.iso", "trees/eight.isoi", small);
    bench_open(&b, "/else/where/small.iso", "/else/where/trees/eight.isoi", small);
    ck_assert(bench_run(&a, STAGE_EMIT) && bench_run(&b, STAGE_EMIT));
    ck_assert(str_eq(a.p.emitted.program, b.p.emitted.program));
    ck_assert(str_eq(pipeline_output(&a.p, OUTPUT_CERTIFICATE),
                     pipeline_output(&b.p, OUTPUT_CERTIFICATE)));
    ck_assert(str_is(reader_relative(a.p.out, STR("/else/where/small.iso"),
                                     STR("/else/where/trees/eight.isoi")),
                     "trees/eight.isoi"));
    ck_assert(str_is(reader_relative(a.p.out, STR("a/b/c.iso"), STR("a/d.isoi")), "../d.isoi"));
    ck_assert(str_is(reader_relative(a.p.out, STR("c.iso"), STR("../d.isoi")), "../d.isoi"));
    pipeline_close(&a.p);
    pipeline_close(&b.p);
}
END_TEST

/* The k-th allocation fails, for every k that a run has (thinned out where there are many). */
START_TEST(short_memory_is_survived)
{
    bool done = false;
    int runs = 0;
    for (u64 k = 1; !done; k += 1 + k / 64) {
        Bench b;
        bench_open(&b, "small.iso", "trees/eight.isoi", small);
        arena_fail_at(k);
        if (pipeline_open(&b.p, &b.input)) {
            done = pipeline_run(&b.p, STAGE_EMIT);
            ck_assert_int_eq(b.p.outcome, done ? OUTCOME_OK : OUTCOME_MEMORY);
            pipeline_close(&b.p);
        }
        runs++;
    }
    arena_fail_at(0);
    ck_assert_int_gt(runs, 3);
}
END_TEST

START_TEST(ranks_agree_and_a_wrong_part_shows)
{
    Bench b;
    VerifyInput input = {.rows = 9, .columns = 64, .seed = 7, .threads = 1};
    VerifyResult result;
    bench_open(&b, "small.iso", "trees/eight.isoi", small);
    ck_assert(bench_run(&b, STAGE_PLAN));
    Text report = {.arena = b.p.out};
    ck_assert(verify_cpu(&b.p.plan, &input, &result, &report));
    ck_assert_int_gt((int)result.outputs, 1000);
    ck_assert_int_eq((int)result.differ, 0);
    ck_assert_int_gt((int)result.plain_differ, 0); /* the order of addition is seen */
    for (int i = 0; i < b.p.plan.ops.n; i++) {
        PlanOp *op = &b.p.plan.ops.v[i];
        if (str_is(op->op->op->name, "up") && op->at.ranks == 4) /* its last column is nobody's */
            op->part_of_rank[3].hi[b.p.contract.ops[1].results[0].atoms[1]]--;
    }
    ck_assert(verify_cpu(&b.p.plan, &input, &result, &report));
    ck_assert_int_gt((int)result.differ, 0);
    pipeline_close(&b.p);
}
END_TEST

START_TEST(a_damaged_cache_entry_is_none)
{
    Arena *arena = arena_new();
    char folder[] = "/tmp/isoc-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    Digest key = sha256("key", 3);
    Binary in = {.cubin = STR("cubin's bytes"), .ptx = STR("ptx's text")}, out = {0};
    ck_assert(!cache_get(str_of(folder), &key, &out, arena));
    cache_put(str_of(folder), &key, &in, arena);
    ck_assert(cache_get(str_of(folder), &key, &out, arena));
    ck_assert(str_eq(out.cubin, in.cubin) && str_eq(out.ptx, in.ptx));
    Str path = str_format(arena, "%s/%s", folder, digest_hex(arena, &key).s);
    FILE *f = fopen(path.s, "r+");
    ck_assert_ptr_nonnull(f);
    fseek(f, -1, SEEK_END);
    fputc('X', f);
    fclose(f);
    ck_assert(!cache_get(str_of(folder), &key, &out, arena));
    ck_assert_int_eq(unlink(path.s), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    arena_free(arena);
}
END_TEST

Suite *pipeline_suite(void);
Suite *pipeline_suite(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tests = tcase_create("pipeline");
    tcase_add_test(tests, every_output_is_there);
    tcase_add_test(tests, failures_have_their_codes);
    tcase_add_test(tests, the_folder_leaves_no_trace);
    tcase_add_test(tests, short_memory_is_survived);
    tcase_add_test(tests, ranks_agree_and_a_wrong_part_shows);
    tcase_add_test(tests, a_damaged_cache_entry_is_none);
    suite_add_tcase(suite, tests);
    return suite;
}
