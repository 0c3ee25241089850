/* The PTX machine: small programs whose results are known, and faults that it must name. */
#include "ptx/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 64, WORDS = 256 };

typedef struct Lab {
    Arena *arena;
    PtxModule module;
    PtxMemory memory;
    PtxReport report;
    _Alignas(16) u32 in[WORDS];
    _Alignas(16) u32 out[WORDS];
    u8 known[sizeof(u32) * WORDS];
} Lab;

static Lab *lab_open(void)
{
    Lab *lab = calloc(1, sizeof *lab);
    lab->arena = arena_new();
    lab->memory.arena = lab->report.arena = lab->arena;
    PtxRegion in = {.name = "in", .base = (u8 *)lab->in, .size = sizeof lab->in};
    PtxRegion out = {.name = "out",
                     .base = (u8 *)lab->out,
                     .size = sizeof lab->out,
                     .writable = true,
                     .known = lab->known};
    ptx_memory_add(&lab->memory, &in);
    ptx_memory_add(&lab->memory, &out);
    for (u32 i = 0; i < WORDS; i++)
        lab->in[i] = i * i + 1;
    return lab;
}

static void lab_close(Lab *lab)
{
    arena_free(lab->arena);
    free(lab);
}

/* A kernel of (in, out) around the body; %t is the thread, %i and %o the thread's own words. */
static Str program(Lab *lab, const char *body)
{
    return str_format(lab->arena,
                      ".version 9.0\n.target sm_90a\n.address_size 64\n"
                      ".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n"
                      ".maxntid 64, 1, 1\n{\n"
                      ".reg .pred %%p<8>;\n.reg .b16 %%h<8>;\n.reg .b32 %%r<32>;\n"
                      ".reg .f32 %%f<32>;\n.reg .b64 %%d<16>;\n.reg .b32 %%t;\n"
                      ".reg .b64 %%i;\n.reg .b64 %%o;\n.shared .align 16 .b8 tile[2048];\n"
                      "ld.param.u64 %%i, [k_param_0];\nld.param.u64 %%o, [k_param_1];\n"
                      "mov.u32 %%t, %%tid.x;\nmul.wide.u32 %%d0, %%t, 4;\n"
                      "add.s64 %%i, %%i, %%d0;\nadd.s64 %%o, %%o, %%d0;\n%s\nret;\n}\n",
                      body);
}

static bool run_seeded(Lab *lab, const char *body, u64 seed)
{
    Str text = program(lab, body), problem = {0};
    lab->module = (PtxModule){0};
    lab->report.findings.n = 0;
    if (!ptx_parse(text, &lab->module, &problem, lab->arena)) {
        vec_push(lab->arena, &lab->report.findings, problem);
        return false;
    }
    void *in = lab->in, *out = lab->out;
    const void *params[] = {&in, &out};
    PtxLaunch launch = {.kernel = ptx_find(&lab->module, STR("k")),
                        .grid = {1, 1, 1},
                        .block = {THREADS, 1, 1},
                        .params = params,
                        .memory = &lab->memory,
                        .numerics = fdpa_class("sm_90", FDPA_BF16),
                        .seed = seed};
    return ptx_run(&launch, &lab->report);
}

static bool run(Lab *lab, const char *body)
{
    return run_seeded(lab, body, 0);
}

static void expect_finding(const char *body, const char *words)
{
    Lab *lab = lab_open();
    ck_assert(!run(lab, body));
    ck_assert_int_gt(lab->report.findings.n, 0);
    ck_assert_msg(strstr(lab->report.findings.v[0].s, words) != NULL, "%s",
                  lab->report.findings.v[0].s);
    lab_close(lab);
}

/* ---- arithmetic and control -------------------------------------------------------------------
 */

START_TEST(arithmetic)
{
    Lab *lab = lab_open();
    ck_assert(run(lab, "ld.global.u32 %r1, [%i];\n"
                       "mad.lo.s32 %r2, %r1, 3, -7;\n"
                       "shr.s32 %r3, %r2, 1;\nxor.b32 %r4, %r3, 0x55;\n"
                       "bfi.b32 %r5, %r4, %r1, 4, 8;\nst.global.u32 [%o], %r5;"));
    for (u32 t = 0; t < THREADS; t++) {
        u32 x = t * t + 1, y = (u32)((int32_t)(x * 3 - 7) >> 1) ^ 0x55;
        ck_assert_uint_eq(lab->out[t], (x & ~0xff0u) | (y & 0xff) << 4);
    }
    lab_close(lab);
}
END_TEST

START_TEST(lanes_part_and_meet)
{
    Lab *lab = lab_open();
    ck_assert(run(lab, "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\n"
                       "$loop:\nadd.s32 %r1, %r1, %r2;\nadd.s32 %r2, %r2, 1;\n"
                       "setp.le.u32 %p1, %r2, %t;\n@%p1 bra $loop;\n"
                       "shfl.sync.down.b32 %r3|%p2, %r1, 1, 31, -1;\n"
                       "st.global.u32 [%o], %r3;"));
    for (u32 t = 0; t < THREADS; t++) {
        u32 from = t % 32 == 31 ? t : t + 1;
        ck_assert_uint_eq(lab->out[t], from * (from + 1) / 2);
    }
    lab_close(lab);
}
END_TEST

START_TEST(nan_and_rounding)
{
    Lab *lab = lab_open();
    const float values[] = {1.0f, 1e-40f, 3.4e38f, -2.5f};
    memcpy(lab->in, values, sizeof values);
    lab->in[4] = 0xffc12345u;
    ck_assert(run(lab, "ld.global.f32 %f1, [%i];\nadd.rn.f32 %f2, %f1, %f1;\n"
                       "cvt.rn.bf16.f32 %h1, %f2;\nst.global.u16 [%o], %h1;"));
    ck_assert_uint_eq(lab->out[0] & 0xffff, 0x4000);
    ck_assert_uint_eq(lab->out[2] & 0xffff, 0x7f80);
    ck_assert_uint_eq(lab->out[3] & 0xffff, 0xc0a0);
    ck_assert_uint_eq(lab->out[4] & 0xffff, 0x7fff);
    lab_close(lab);
}
END_TEST

START_TEST(pairs_are_rounded_into_one_word)
{
    Lab *lab = lab_open();
    const float values[] = {1.0f, 3.4e38f, -2.5f, 0.0999f};
    memcpy(lab->in, values, sizeof values);
    lab->in[4] = 0xffc12345u;
    ck_assert(run(lab, "ld.global.f32 %f1, [%i];\nmov.f32 %f2, 0f3F800000;\n"
                       "cvt.rn.bf16x2.f32 %r1, %f1, %f2;\ncvt.rn.f16x2.f32 %r2, %f2, %f1;\n"
                       "st.global.u32 [%o], %r1;\nst.global.u32 [%o+256], %r2;"));
    ck_assert_uint_eq(lab->out[1], 0x7f803f80u);
    ck_assert_uint_eq(lab->out[2], 0xc0203f80u);
    ck_assert_uint_eq(lab->out[4], 0x7fff3f80u);
    ck_assert_uint_eq(lab->out[64 + 1], 0x3c007c00u);
    ck_assert_uint_eq(lab->out[64 + 3], 0x3c002e65u);
    lab_close(lab);
}
END_TEST

/* ---- shared memory, barriers, copies ----------------------------------------------------------
 */

/* The words in reverse order, through shared memory. */
#define REVERSE(middle)                                                                            \
    "shl.b32 %r1, %t, 2;\nmov.u32 %r9, tile;\nadd.s32 %r2, %r9, %r1;\n"                            \
    "ld.global.u32 %r3, [%i];\nst.shared.u32 [%r2], %r3;\n" middle                                 \
    "sub.s32 %r4, %r9, %r1;\nld.shared.u32 %r5, [%r4+252];\nst.global.u32 [%o], %r5;"

START_TEST(barrier_orders_warps)
{
    Lab *lab = lab_open();
    for (u64 seed = 0; seed < 4; seed++) {
        ck_assert(run_seeded(lab, REVERSE("bar.sync 0;\n"), seed));
        for (u32 t = 0; t < THREADS; t++)
            ck_assert_uint_eq(lab->out[t], lab->in[THREADS - 1 - t]);
    }
    ck_assert(!run(lab, REVERSE("")));
    ck_assert(strstr(lab->report.findings.v[0].s, "nobody has written") != NULL);
    lab_close(lab);
}
END_TEST

/* The second warp reads what the first has written, which need not wait for it. */
#define HANDED(by_first)                                                                           \
    "and.b32 %r0, %t, 31;\nshl.b32 %r1, %r0, 2;\nmov.u32 %r9, tile;\nadd.s32 %r2, %r9, %r1;\n"     \
    "setp.gt.u32 %p1, %t, 31;\n@%p1 bra $second;\n"                                               \
    "ld.global.u32 %r3, [%i];\nst.shared.u32 [%r2], %r3;\n" by_first "bra $end;\n"                \
    "$second:\nbar.sync 1, 64;\nld.shared.u32 %r5, [%r2];\nst.global.u32 [%o], %r5;\n$end:"

START_TEST(barrier_is_passed_without_waiting)
{
    Lab *lab = lab_open();
    for (u64 seed = 0; seed < 4; seed++) {
        ck_assert(run_seeded(lab, HANDED("bar.arrive 1, 64;\n"), seed));
        for (u32 t = 32; t < THREADS; t++)
            ck_assert_uint_eq(lab->out[t], lab->in[t - 32]);
    }
    ck_assert(!run(lab, HANDED("")));
    lab_close(lab);
}
END_TEST

#define COPIES(wait)                                                                               \
    "shl.b32 %r1, %t, 4;\nmov.u32 %r9, tile;\nadd.s32 %r2, %r9, %r1;\n"                            \
    "ld.param.u64 %d1, [k_param_0];\nmul.wide.u32 %d2, %t, 16;\nadd.s64 %d1, %d1, %d2;\n"          \
    "cp.async.cg.shared.global.L2::128B [%r2], [%d1], 16, 8;\n"                                    \
    "cp.async.commit_group;\n" wait                                                                \
    "ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2];\nadd.s32 %r7, %r3, %r6;\n"                      \
    "add.s32 %r7, %r7, %r4;\nst.global.u32 [%o], %r7;"

START_TEST(async_copies_arrive_at_the_wait)
{
    Lab *lab = lab_open();
    ck_assert(run(lab, COPIES("cp.async.wait_group 0;\n")));
    for (u32 t = 0; t < THREADS; t++)
        ck_assert_uint_eq(lab->out[t], lab->in[4 * t] + lab->in[4 * t + 1]);
    ck_assert(!run(lab, COPIES("cp.async.wait_group 1;\n")));
    lab_close(lab);
}
END_TEST

/* ---- the tensor core --------------------------------------------------------------------------
 */

/* A = ones in k 0 and 1 of every row, B = the lanes' own words. */
START_TEST(tensor_core_step)
{
    Lab *lab = lab_open();
    const u32 ones = 0x3f803f80u;
    lab->in[0] = ones;
    ck_assert(run(lab, "mov.u32 %r1, 0x3f803f80;\nmov.u32 %r2, 0;\nmov.f32 %f1, 0f3F800000;\n"
                       "and.b32 %r3, %t, 3;\nsetp.eq.s32 %p1, %r3, 0;\n"
                       "selp.b32 %r4, %r1, %r2, %p1;\n"
                       "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, "
                       "{%r1, %r1, %r1, %r1}, {%r4, %r2}, {%f1, %f1, %f1, %f1};\n"
                       "st.global.f32 [%o], %f5;"));
    float three = 3;
    for (u32 t = 0; t < THREADS; t++)
        ck_assert(memcmp(&lab->out[t], &three, 4) == 0);
    lab_close(lab);
}
END_TEST

/* ---- faults -----------------------------------------------------------------------------------
 */

START_TEST(unknown_is_an_error)
{
    expect_finding("lg2.approx.f32 %f1, %f2;", "line 22: unknown instruction lg2.approx.f32");
    expect_finding("add.f32 %f1, %f2, %f3;", "unknown instruction add.f32");
    expect_finding("add.rn.ftz.f32 %f1, %f2, %f3;", "unknown instruction");
    expect_finding("add.s32 %r1, %r2, %q3;", "unknown name %q3");
    expect_finding("add.s32 %r1, %r2, %d3;", "operands that are not known");
    expect_finding("bra $nowhere;", "a branch to nowhere");
}
END_TEST

START_TEST(faults_are_named)
{
    expect_finding("st.global.u32 [%i], %t;", "which is an input");
    expect_finding("ld.global.u32 %r1, [%o];", "nobody has written");
    expect_finding("ld.global.u32 %r1, [%i+65536];", "outside of every tensor");
    expect_finding("ld.global.u32 %r1, [%i+2];", "not aligned");
    expect_finding("ld.shared.u32 %r1, [tile+2048];", "shared memory");
    expect_finding("setp.lt.u32 %p1, %t, 32;\n@%p1 bra $x;\nbar.sync 0, 96;\n$x:", "for ever");
    expect_finding("setp.lt.u32 %p1, %t, 5;\n@%p1 bra $x;\nbar.sync 0;\nbra $y;\n"
                   "$x:\nbar.sync 1;\n$y:",
                   "never meets again");
    expect_finding("mov.u32 %r1, tile;\n"
                   "mbarrier.arrive.shared::cta.b64 _, [%r1];",
                   "no mbarrier");
}
END_TEST

START_TEST(one_write_each)
{
    Lab *lab = lab_open();
    lab->memory.regions.v[0].once = lab->memory.regions.v[0].writable;
    lab->memory.regions.v[1].once = lab->memory.regions.v[1].writable;
    ck_assert(!run(lab, "st.global.u32 [%o], %t;\nst.global.u32 [%o], %t;"));
    ck_assert(strstr(lab->report.findings.v[0].s, "for the second time") != NULL);
    lab_close(lab);
}
END_TEST

/* Every prefix and many damaged texts: an answer, never a crash. */
START_TEST(damaged_texts)
{
    Lab *lab = lab_open();
    char copy[4096];
    Str text = program(lab, COPIES("cp.async.wait_group 0;\n"));
    srand(1);
    for (int n = 0; n < 3000; n++) {
        PtxModule module = {0};
        Str problem;
        memcpy(copy, text.s, (size_t)text.n);
        int size = n < text.n ? n : text.n;
        for (int k = 0; n >= text.n && k < 3; k++)
            copy[rand() % text.n] = text.s[rand() % text.n];
        ptx_parse((Str){copy, size}, &module, &problem, lab->arena);
    }
    lab_close(lab);
}
END_TEST

Suite *ptx_suite(void);
Suite *ptx_suite(void)
{
    Suite *suite = suite_create("ptx");
    TCase *tests = tcase_create("machine");
    tcase_add_test(tests, arithmetic);
    tcase_add_test(tests, lanes_part_and_meet);
    tcase_add_test(tests, nan_and_rounding);
    tcase_add_test(tests, pairs_are_rounded_into_one_word);
    tcase_add_test(tests, barrier_orders_warps);
    tcase_add_test(tests, barrier_is_passed_without_waiting);
    tcase_add_test(tests, async_copies_arrive_at_the_wait);
    tcase_add_test(tests, tensor_core_step);
    tcase_add_test(tests, unknown_is_an_error);
    tcase_add_test(tests, faults_are_named);
    tcase_add_test(tests, one_write_each);
    tcase_add_test(tests, damaged_texts);
    suite_add_tcase(suite, tests);
    return suite;
}
