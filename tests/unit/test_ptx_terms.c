/* Terms beside numbers: what they forget, what they keep, and what may not depend on an input. */
#include "ptx/blocks.h"
#include "ptx/run.h"
#include "ptx/term.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64, INPUT = 7 };

typedef struct Lab {
    Arena *arena;
    PtxReport report;
    const PtxKernel *kernel;
    _Alignas(16) u32 in[WORDS];
    _Alignas(16) u32 out[WORDS];
    u8 known[sizeof(u32) * WORDS];
    u64 shadow[2 * WORDS];
} Lab;

/* `element`: bytes of an input. The output's term of thread t is shadow[2 t]. */
static Lab *run_threads(const char *body, u32 element, u32 threads)
{
    Lab *lab = calloc(1, sizeof *lab);
    PtxModule module = {0};
    Str problem = {0};
    lab->arena = arena_new();
    lab->report.arena = lab->arena;
    PtxMemory memory = {.arena = lab->arena};
    PtxRegion in = {.name = "in", .base = (u8 *)lab->in, .size = sizeof lab->in, .input = INPUT,
                    .element = element};
    PtxRegion out = {.name = "out", .base = (u8 *)lab->out, .size = sizeof lab->out,
                     .writable = true, .known = lab->known, .shadow = lab->shadow};
    ptx_memory_add(&memory, &in);
    ptx_memory_add(&memory, &out);
    Str text = str_format(lab->arena,
                          ".version 9.0\n.visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n"
                          ".reg .pred %%p<4>;\n.reg .b16 %%h<8>;\n.reg .b32 %%r<16>;\n"
                          ".reg .f32 %%f<16>;\n.reg .b64 %%d<8>;\n"
                          ".shared .align 16 .b8 tile[256];\n"
                          "ld.param.u64 %%d1, [p0];\nld.param.u64 %%d2, [p1];\n"
                          "mov.u32 %%r0, %%tid.x;\nmul.wide.u32 %%d0, %%r0, 4;\n"
                          "add.s64 %%d3, %%d1, %%d0;\nadd.s64 %%d4, %%d2, %%d0;\n%s\nret;\n}\n",
                          body);
    ck_assert_msg(ptx_parse(text, &module, &problem, lab->arena), "%.*s", STR_FMT(problem));
    void *a = lab->in, *b = lab->out;
    const void *params[] = {&a, &b};
    PtxLaunch launch = {.kernel = ptx_find(&module, STR("k")), .grid = {1, 1, 1},
                        .block = {threads, 1, 1}, .params = params, .memory = &memory,
                        .numerics = fdpa_class("sm_90", FDPA_BF16), .terms = true};
    lab->kernel = launch.kernel;
    ptx_run(&launch, &lab->report);
    return lab;
}

static Lab *run(const char *body, u32 element)
{
    return run_threads(body, element, 32);
}

static void lab_close(Lab *lab)
{
    arena_free(lab->arena);
    free(lab);
}

static u64 term_of(const char *body, u32 element, int lane)
{
    Lab *lab = run(body, element);
    ck_assert_msg(lab->report.findings.n == 0, "%s", lab->report.findings.v[0].s);
    u64 term = lab->shadow[2 * lane];
    lab_close(lab);
    return term;
}

static void expect_finding_of(const char *body, const char *words, u32 threads)
{
    Lab *lab = run_threads(body, 4, threads);
    ck_assert_int_eq(lab->report.findings.n, 1);
    ck_assert_msg(strstr(lab->report.findings.v[0].s, words) != NULL, "%s",
                  lab->report.findings.v[0].s);
    lab_close(lab);
}

static void expect_finding(const char *body, const char *words)
{
    expect_finding_of(body, words, 32);
}

#define OF_TWO(operation)                                                                          \
    "ld.global.f32 %f1, [%d3];\nld.global.f32 %f2, [%d3+4];\n" operation                           \
    "\nst.global.f32 [%d4], %f3;"

START_TEST(expressions)
{
    const u64 leaves[] = {ptx_term_leaf(INPUT, 3), ptx_term_leaf(INPUT, 4)};
    u64 sub = term_of(OF_TWO("sub.rn.f32 %f3, %f1, %f2;"), 4, 3);
    ck_assert_uint_eq(sub, ptx_term_f32(PTX_SUB, leaves, 2));
    ck_assert_uint_ne(sub, term_of(OF_TWO("sub.rn.f32 %f3, %f2, %f1;"), 4, 3));
    ck_assert_uint_ne(sub, term_of(OF_TWO("add.rn.f32 %f3, %f1, %f2;"), 4, 3));
    ck_assert_uint_eq(term_of(OF_TWO("add.rn.f32 %f3, %f1, %f2;"), 4, 3),
                      term_of(OF_TWO("add.rn.f32 %f3, %f2, %f1;"), 4, 3));
    ck_assert_uint_ne(term_of(OF_TWO("fma.rn.f32 %f3, %f1, %f2, %f1;"), 4, 3),
                      term_of(OF_TWO("mul.rn.f32 %f4, %f1, %f2;\nadd.rn.f32 %f3, %f4, %f1;"), 4,
                              3));
}
END_TEST

/* bf16 halves stay halves through loads, shifts and packing; widening has one form. */
START_TEST(pairs)
{
    u64 leaf = ptx_term_leaf(INPUT, 5); /* the upper half of word 2 */
    u64 widened = ptx_term_widen(PTX_T_BF16, leaf);
    u64 low = term_of("ld.global.u16 %h1, [%d3+2];\ncvt.u32.u16 %r1, %h1;\nshl.b32 %r2, %r1, 16;\n"
                      "mov.b32 %f1, %r2;\nsqrt.rn.f32 %f2, %f1;\nst.global.f32 [%d4], %f2;", 2, 2);
    u64 high = term_of("ld.global.u32 %r1, [%d3];\nand.b32 %r2, %r1, -65536;\nmov.b32 %f1, %r2;\n"
                       "sqrt.rn.f32 %f2, %f1;\nst.global.f32 [%d4], %f2;", 2, 2);
    ck_assert_uint_eq(low, high);
    ck_assert_uint_eq(low, ptx_term_f32(PTX_SQRT, &widened, 1));
}
END_TEST

#define STEP(a, b)                                                                                 \
    "ld.global.u32 %r1, [%d3];\nld.global.u32 %r2, [%d3+64];\nmov.f32 %f1, 0f00000000;\n"          \
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {" a "}, {" b       \
    "}, {%f1, %f1, %f1, %f1};\nst.global.f32 [%d4], %f2;"

/* The order of a group is forgotten, who is paired with whom is not. */
START_TEST(steps)
{
    u64 term = term_of(STEP("%r1, %r1, %r2, %r2", "%r1, %r2"), 2, 0);
    ck_assert_uint_eq(term, term_of(STEP("%r2, %r2, %r1, %r1", "%r2, %r1"), 2, 0));
    ck_assert_uint_ne(term, term_of(STEP("%r1, %r1, %r2, %r2", "%r2, %r1"), 2, 0));
    ck_assert_uint_ne(term, term_of(STEP("%r1, %r1, %r1, %r1", "%r1, %r2"), 2, 0));
    ck_assert_uint_ge(term, TERM_LEAST);
    /* A zero on one side alone is a member: the product of the other side and +0. */
    u64 half = term_of("mov.u32 %r3, 0;\n" STEP("%r1, %r1, %r3, %r3", "%r1, %r3"), 2, 0);
    u64 with = term_of("mov.u32 %r3, 0;\n" STEP("%r1, %r1, %r3, %r3", "%r1, %r2"), 2, 0);
    u64 other = term_of("mov.u32 %r3, 0;\n" STEP("%r1, %r1, %r2, %r2", "%r1, %r3"), 2, 0);
    ck_assert_uint_ne(with, half);
    ck_assert_uint_ne(with, TERM_POISON);
    ck_assert_uint_eq(with, other);
}
END_TEST

/* A maximum has no order, and +0 and 1 are nothing where that is sure. */
START_TEST(what_is_left_out)
{
    const u64 leaves[] = {ptx_term_leaf(INPUT, 1), ptx_term_leaf(INPUT, 2),
                          ptx_term_leaf(INPUT, 3)};
    u64 ab[] = {ptx_term_f32(PTX_MAX, leaves, 2), leaves[2]}, bc[] = {leaves[0], 0};
    bc[1] = ptx_term_f32(PTX_MAX, leaves + 1, 2);
    ck_assert_uint_eq(ptx_term_f32(PTX_MAX, ab, 2), ptx_term_f32(PTX_MAX, bc, 2));
    ck_assert_uint_ne(ptx_term_f32(PTX_MAX, ab, 2), ab[0]);
    u64 least[] = {ptx_term_const(0xff800000u), ab[0]};
    u64 raw[] = {ptx_term_const(0xff800000u), leaves[0]};
    ck_assert_uint_eq(ptx_term_f32(PTX_MAX, least, 2), ab[0]);
    ck_assert_uint_ne(ptx_term_f32(PTX_MAX, raw, 2), leaves[0]);
    u64 sum = ptx_term_f32(PTX_ADD, leaves, 2), one[] = {sum, ptx_term_const(0x3f800000u)};
    u64 zero[] = {sum, ptx_term_const(0)}, plain[] = {sum | TERM_NO_SIGN, ptx_term_const(0)};
    ck_assert_uint_eq(ptx_term_f32(PTX_MUL, one, 2), sum);
    ck_assert_uint_ne(ptx_term_f32(PTX_ADD, zero, 2), sum); /* it may be -0 */
    ck_assert_uint_eq(ptx_term_f32(PTX_ADD, plain, 2), plain[0]);
    one[0] = leaves[0]; /* a NaN of its own is changed by a product */
    ck_assert_uint_ne(ptx_term_f32(PTX_MUL, one, 2), leaves[0]);
}
END_TEST

/* A value of 16 bits that was rounded keeps them; one that was read may be some other NaN. */
START_TEST(rounded_once)
{
    const PtxType types[] = {PTX_T_BF16, PTX_T_F16};
    for (int i = 0; i < 2; i++) {
        u64 half = ptx_term_narrow(types[i], ptx_term_leaf(INPUT, 1));
        u64 wide = ptx_term_widen(types[i], half), read = ptx_term_leaf(INPUT, 2);
        ck_assert_uint_ne(wide, half);
        ck_assert_uint_eq(ptx_term_narrow(types[i], wide), half);
        ck_assert_uint_ne(ptx_term_narrow(types[1 - i], wide), half);
        ck_assert_uint_ne(ptx_term_narrow(types[i], ptx_term_widen(types[i], read)), read);
    }
}
END_TEST

/* A branch around arithmetic is the selection that it could have been. */
START_TEST(both_ways)
{
    const char *branch = OF_TWO("setp.lt.f32 %p1, %f1, %f2;\nmov.f32 %f3, %f1;\n@%p1 bra $x;\n"
                                "add.rn.f32 %f4, %f1, %f2;\nmul.rn.f32 %f3, %f4, %f2;\n$x:");
    const char *two = OF_TWO("setp.lt.f32 %p1, %f1, %f2;\n@%p1 bra $x;\n"
                             "add.rn.f32 %f4, %f1, %f2;\nmul.rn.f32 %f3, %f4, %f2;\nbra $y;\n"
                             "$x:\nmov.f32 %f3, %f1;\n$y:");
    const char *turned = OF_TWO("setp.gt.f32 %p1, %f2, %f1;\nadd.rn.f32 %f4, %f1, %f2;\n"
                                "mul.rn.f32 %f4, %f4, %f2;\nselp.f32 %f3, %f1, %f4, %p1;");
    const char *wrong = OF_TWO("setp.gt.f32 %p1, %f2, %f1;\nadd.rn.f32 %f4, %f1, %f2;\n"
                               "mul.rn.f32 %f4, %f4, %f2;\nselp.f32 %f3, %f4, %f1, %p1;");
    u64 term = term_of(branch, 4, 3);
    ck_assert_uint_eq(term, term_of(two, 4, 3));
    ck_assert_uint_eq(term, term_of(turned, 4, 3));
    ck_assert_uint_ne(term, term_of(wrong, 4, 3));
}
END_TEST

START_TEST(what_must_be_concrete)
{
    expect_finding("ld.global.u32 %r1, [%d3];\nmul.wide.u32 %d5, %r1, 4;", "64 bits that depend");
    expect_finding("ld.global.f32 %f1, [%d3];\nsetp.lt.f32 %p1, %f1, 0f00000000;\n"
                   "@%p1 bra $x;\nst.global.f32 [%d4], %f1;\n$x:", "depending on an input");
    expect_finding("ld.global.f32 %f1, [%d3];\nsetp.lt.f32 %p1, %f1, 0f00000000;\n"
                   "@%p1 st.global.f32 [%d4], %f1;", "depending on an input");
    expect_finding("st.global.u32 [%d7], %r0;", "an address that depends");
    expect_finding("ld.global.u32 %r1, [%d3];\n"
                   "shfl.sync.down.b32 %r2|%p1, %r0, %r1, 31, -1;", "an operand that depends");
}
END_TEST

#define PLACES                                                                                     \
    "mov.u32 %r4, tile;\nshl.b32 %r5, %r0, 2;\nadd.s32 %r1, %r4, %r5;\n"                           \
    "xor.b32 %r6, %r5, 128;\nadd.s32 %r3, %r4, %r6;\n"
#define PUT "st.shared.u32 [%r1], %r0;\n"
#define TAKE "ld.shared.u32 %r2, [%r3];\nst.global.u32 [%d4], %r2;\n"

/* Warps that exchange words: as far as no barrier is between, a race. */
START_TEST(races)
{
    Lab *lab = run_threads(PLACES PUT "bar.sync 0;\n" TAKE, 4, 64);
    ck_assert_msg(lab->report.findings.n == 0, "%s", lab->report.findings.v[0].s);
    lab_close(lab);
    expect_finding_of(PLACES PUT "bar.sync 0;\n" TAKE PUT, "no barrier is between", 64);
    expect_finding_of(PLACES "st.shared.u32 [%r4], %r0;", "which lane 0 of warp 0 has written", 64);
}
END_TEST

#define NEXT /* %r1: a lane's own word; %r3: its neighbour's */                                    \
    "mov.u32 %r4, tile;\nshl.b32 %r5, %r0, 2;\nadd.s32 %r1, %r4, %r5;\n"                           \
    "xor.b32 %r6, %r5, 4;\nadd.s32 %r3, %r4, %r6;\n"
#define HALF "setp.lt.u32 %p1, %r0, 16;\n"
#define WARP "bar.warp.sync -1;\n"
#define ODD "and.b32 %r7, %r0, 1;\nsetp.eq.u32 %p1, %r7, 1;\nsetp.eq.u32 %p2, %r0, 0;\n"
#define BARRIER(n) "mov.u32 %r8, tile;\n@%p2 mbarrier.init.shared::cta.b64 [%r8+128], " n ";\n" WARP
#define ARRIVE "mbarrier.arrive.shared::cta.b64 _, [%r8+128];\n"
#define AWAIT "$w:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r8+128], 0;\n@!%p3 bra $w;\n"

static void expect_none(const char *body)
{
    Lab *lab = run(body, 4);
    ck_assert_msg(lab->report.findings.n == 0, "%s", lab->report.findings.v[0].s);
    lab_close(lab);
}

/* Lanes of one warp: barriers order them, what else moves lanes together does not. */
START_TEST(lanes)
{
    const char *between = "no barrier is between";
    expect_none(NEXT PUT WARP TAKE);
    expect_none(NEXT PUT "bar.sync 0;\n" TAKE WARP PUT);
    expect_none(NEXT PUT "ld.shared.u32 %r2, [%r1];\n" PUT); /* a lane's own words */
    expect_finding(NEXT PUT TAKE, "lane 0 of warp 0 reads shared memory at 1028, which");
    expect_finding(NEXT PUT TAKE, "lane 1 of warp 0 has written in line");
    expect_finding(NEXT PUT WARP TAKE PUT, "which lane 1 of warp 0 has read in line");
    expect_finding(NEXT PUT "shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;\n" TAKE, between);
    expect_finding(NEXT ODD PUT "vote.sync.ballot.b32 %r2, %p1, -1;\n" TAKE, between);
    expect_finding(NEXT PUT "membar.gl;\n" TAKE, between);
    /* Of half a warp. */
    expect_none(NEXT HALF PUT "@%p1 bar.warp.sync 65535;\n@%p1 ld.shared.u32 %r2, [%r3];\n");
    expect_finding(NEXT HALF PUT "@%p1 bar.warp.sync 65535;\n@!%p1 ld.shared.u32 %r2, [%r3];\n",
                   "lane 16 of warp 0 reads shared memory");
    expect_finding("bar.warp.sync 65535;", "lane 16 is not in the mask");
}
END_TEST

/* Lanes that store to one place at once, and bytes beside one another. */
START_TEST(lanes_at_one_place)
{
    expect_none("mov.u32 %r4, tile;\nmov.u32 %r5, 7;\nst.shared.u32 [%r4], %r5;\n");
    expect_finding("mov.u32 %r4, tile;\nst.shared.u32 [%r4], %r0;\n",
                   "lane 1 of warp 0 writes shared memory at 1024, which lane 0");
    expect_finding("mov.u32 %r4, tile;\nmov.u32 %r5, 7;\nst.shared.u32 [%r4], %r5;\n"
                   "st.shared.u32 [%r4], %r5;\n", "which lane 31 of warp 0 has written");
    expect_none("mov.u32 %r4, tile;\nadd.s32 %r5, %r4, %r0;\ncvt.u16.u32 %h1, %r0;\n"
                "st.shared.u8 [%r5], %h1;\nst.shared.u8 [%r5], %h1;\n");
}
END_TEST

/* Additions at once do not disturb one another, but whoever else is there. */
START_TEST(lanes_that_add)
{
#define ZERO "mov.u32 %r4, tile;\nmov.u32 %r5, 1;\nsetp.eq.u32 %p1, %r0, 3;\n" \
             "@%p1 st.shared.u32 [%r4], %r5;\n"
#define ADD "red.shared.add.u32 [%r4], %r5;\n"
#define SUM "ld.shared.u32 %r2, [%r4];\n"
    expect_none(ZERO WARP ADD ADD WARP SUM);
    expect_finding(ZERO ADD, "lane 0 of warp 0 adds to shared memory at 1024, which lane 3");
    expect_finding(ZERO WARP ADD SUM, "which lane 1 of warp 0 has added to in line");
    expect_finding(ZERO WARP SUM ADD,
                   "lane 0 of warp 0 adds to shared memory at 1024, which lane 1");
}
END_TEST

/* An mbarrier tells who waits what lanes had done that arrived, not what others had. */
START_TEST(lanes_at_mbarriers)
{
    expect_none(NEXT ODD BARRIER("32") PUT ARRIVE AWAIT TAKE);
    expect_none(NEXT ODD BARRIER("1") PUT WARP "@%p2 " ARRIVE AWAIT TAKE);
    expect_none(NEXT ODD BARRIER("16") "@%p1 " PUT "@%p1 " ARRIVE AWAIT
                "@!%p1 ld.shared.u32 %r2, [%r3];\n");
    expect_finding(NEXT ODD BARRIER("1") PUT "@%p2 " ARRIVE AWAIT TAKE,
                   "lane 0 of warp 0 reads shared memory at 1028, which lane 1");
    /* One lane has waited, its neighbour has not. */
    expect_finding(NEXT ODD BARRIER("16") "@%p1 " PUT "@%p1 " ARRIVE "@!%p2 bra $x;\n" AWAIT
                   "ld.shared.u32 %r2, [%r3];\n$x:\nsetp.eq.u32 %p3, %r0, 2;\n"
                   "@%p3 ld.shared.u32 %r2, [%r3];\n", "lane 2 of warp 0 reads shared memory");
}
END_TEST

/* ldmatrix reads for all lanes, and is no barrier. */
START_TEST(lanes_at_ldmatrix)
{
#define ROWS "mov.u32 %r4, tile;\nmov.u32 %r7, 0;\nand.b32 %r5, %r0, 15;\nshl.b32 %r5, %r5, 4;\n" \
             "add.s32 %r1, %r4, %r5;\nsetp.lt.u32 %p1, %r0, 16;\n"
#define ROW "@%p1 st.shared.v4.b32 [%r1], {%r7, %r7, %r7, %r7};\n"
#define MATRICES "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%r1];\n"
    expect_none(ROWS ROW WARP MATRICES WARP ROW);
    expect_finding(ROWS ROW MATRICES, "warp 0 reads shared memory at 1024, which lane 0 of warp 0");
    expect_finding(ROWS ROW WARP MATRICES ROW, "which lane 1 of warp 0 has read");
}
END_TEST

START_TEST(block_indices)
{
    static const struct {
        const char *body;
        bool reaches;
    } cases[] = {
        {"mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %d5, %r1, 4;\nadd.s64 %d4, %d4, %d5;\n"
         "setp.lt.u32 %p1, %r1, 7;\n@%p1 st.global.u32 [%d4], %r0;", false},
        {"mov.u32 %r1, %ctaid.x;\nadd.s32 %r2, %r1, %r0;\nst.global.u32 [%d4], %r2;", true},
        {"mov.u32 %r1, %ctaid.y;\ncvt.rn.f32.u32 %f1, %r1;", true},
        {"mov.u32 %r1, %ctaid.z;\nmov.u32 %r2, tile;\nst.shared.u32 [%r2], %r1;\n"
         "ld.shared.u32 %r3, [%r2];\nst.global.u32 [%d4], %r3;", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Lab *lab = run(cases[i].body, 4);
        ck_assert_int_eq(ptx_block_reaches(lab->kernel, lab->arena) != 0, cases[i].reaches);
        lab_close(lab);
    }
}
END_TEST

START_TEST(undefined_registers)
{
    u64 term = term_of("st.global.u32 [%d4], %r9;", 4, 0);
    ck_assert_uint_eq(term, TERM_UNDEFINED);
}
END_TEST

Suite *ptx_terms_suite(void);
Suite *ptx_terms_suite(void)
{
    Suite *suite = suite_create("ptx_terms");
    TCase *tests = tcase_create("terms");
    tcase_add_test(tests, expressions);
    tcase_add_test(tests, pairs);
    tcase_add_test(tests, steps);
    tcase_add_test(tests, what_is_left_out);
    tcase_add_test(tests, rounded_once);
    tcase_add_test(tests, both_ways);
    tcase_add_test(tests, what_must_be_concrete);
    tcase_add_test(tests, races);
    tcase_add_test(tests, lanes);
    tcase_add_test(tests, lanes_at_one_place);
    tcase_add_test(tests, lanes_that_add);
    tcase_add_test(tests, lanes_at_mbarriers);
    tcase_add_test(tests, lanes_at_ldmatrix);
    tcase_add_test(tests, block_indices);
    tcase_add_test(tests, undefined_registers);
    suite_add_tcase(suite, tests);
    return suite;
}
