/* Choices by scores: what is a rank, what may be done with it, which scores it leaves behind. */
#include "ptx/choice.h"
#include "ptx/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 32, INPUT = 7 };

typedef struct Lab {
    Arena *arena;
    PtxReport report;
    PtxWays ways;
    PtxChoices choices;
    _Alignas(16) float in[2 * LANES];
    _Alignas(16) u32 out[LANES];
    u8 known[sizeof(u32) * LANES];
    u64 shadow[2 * LANES];
} Lab;

/* Scores x and y of each lane in %r1 and %r2, what it gives in %r0. */
static Lab *run(const char *body)
{
    Lab *lab = calloc(1, sizeof *lab);
    PtxModule module = {0};
    Str problem = {0};
    lab->arena = lab->report.arena = lab->ways.arena = lab->choices.arena = arena_new();
    lab->choices.ways = &lab->ways;
    for (int l = 0; l < 2 * LANES; l++)
        lab->in[l] = l % 4 == 3 ? -0.0f : (float)(l * 7 % 13 - 6);
    PtxMemory memory = {.arena = lab->arena};
    PtxRegion in = {.name = "in", .base = (u8 *)lab->in, .size = sizeof lab->in, .input = INPUT,
                    .element = 4};
    PtxRegion out = {.name = "out", .base = (u8 *)lab->out, .size = sizeof lab->out,
                     .writable = true, .known = lab->known, .shadow = lab->shadow};
    ptx_memory_add(&memory, &in);
    ptx_memory_add(&memory, &out);
    Str text = str_format(lab->arena,
                          ".version 9.0\n.visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n"
                          ".reg .pred %%p<8>;\n.reg .b32 %%r<32>;\n.reg .b64 %%d<16>;\n"
                          "ld.param.u64 %%d1, [p0];\nld.param.u64 %%d2, [p1];\n"
                          "mov.u32 %%r31, %%tid.x;\nmul.wide.u32 %%d0, %%r31, 4;\n"
                          "add.s64 %%d3, %%d1, %%d0;\nadd.s64 %%d4, %%d2, %%d0;\n"
                          "ld.global.u32 %%r1, [%%d3];\nld.global.u32 %%r2, [%%d3+128];\n"
                          "%s\nst.global.u32 [%%d4], %%r0;\nret;\n}\n", body);
    ck_assert_msg(ptx_parse(text, &module, &problem, lab->arena), "%.*s", STR_FMT(problem));
    PtxKernel *kernel = &module.kernels.v[0];
    u32 words = kernel->words;
    ptx_share_rows(kernel, lab->arena);
    ck_assert_uint_lt(kernel->words, words);
    void *a = lab->in, *b = lab->out;
    const void *params[] = {&a, &b};
    PtxLaunch launch = {.kernel = kernel, .grid = {1, 1, 1},
                        .block = {LANES, 1, 1}, .params = params, .memory = &memory,
                        .numerics = fdpa_class("sm_90", FDPA_BF16), .terms = true,
                        .choices = &lab->choices};
    ptx_run(&launch, &lab->report);
    return lab;
}

static void end(Lab *lab)
{
    arena_free(lab->arena);
    free(lab);
}

/* The rank of score `x` into `to`. */
#define RANK_BY(x, to, most)                                                                       \
    "setp.eq.s32 %p1, " x ", -2147483648;\nselp.b32 %r20, 0, " x ", %p1;\n"                        \
    "setp.lt.s32 %p2, %r20, 0;\nnot.b32 %r21, %r20;\nor.b32 %r22, %r20, -2147483648;\n"            \
    "selp.b32 %r23, %r21, %r22, %p2;\nand.b32 %r24, " x ", 2147483647;\n"                          \
    "setp.gt.u32 %p3, %r24, " most ";\nselp.b32 " to ", -1, %r23, %p3;\n"
#define RANK(x, to) RANK_BY(x, to, "2139095040")
#define GREATER "setp.gt.u32 %p4, %r3, %r4;\nselp.b32 %r0, 1, 0, %p4;\n"

START_TEST(comparisons)
{
    Lab *lab = run(RANK("%r1", "%r3") RANK("%r2", "%r4") GREATER);
    ck_assert_int_eq(lab->report.findings.n, 0);
    for (int l = 0; l < LANES; l++) {
        u32 rank;
        ck_assert_uint_eq(lab->shadow[2 * l], TERM_CONCRETE);
        ck_assert_uint_eq(lab->out[l], lab->in[l] > lab->in[l + LANES]);
        ck_assert(ptx_choices_rank(&lab->choices, ptx_term_leaf(INPUT, (u64)l), &rank));
        ck_assert_uint_eq(rank >> 31, lab->in[l] >= 0);
        ck_assert_int_eq(ptx_choices_foreign(&lab->choices), 2 * LANES - 1 - l);
    }
    ck_assert(!ptx_choices_rank(&lab->choices, ptx_term_leaf(INPUT, 2 * LANES), &(u32){0}));
    end(lab);
}
END_TEST

/* Words of 64 bits with a rank above an index; what is picked keeps the rank. */
START_TEST(keys)
{
    Lab *lab = run(RANK("%r1", "%r3") RANK("%r2", "%r4")
                   "mov.b64 %d5, {%r31, %r3};\nmov.b64 %d6, {%r31, %r4};\n"
                   "max.u64 %d7, %d5, %d6;\nshr.u64 %d8, %d7, 32;\ncvt.u32.u64 %r5, %d8;\n"
                   "setp.eq.s32 %p4, %r5, %r3;\nselp.b32 %r0, 1, 0, %p4;\n");
    ck_assert_int_eq(lab->report.findings.n, 0);
    for (int l = 0; l < LANES; l++) {
        ck_assert_uint_eq(lab->shadow[2 * l], TERM_CONCRETE);
        ck_assert_uint_eq(lab->out[l], lab->in[l] >= lab->in[l + LANES]);
    }
    end(lab);
}
END_TEST

#define BELOW_ZERO                                                                                 \
    "setp.eq.s32 %p1, %r1, -2147483648;\nselp.b32 %r20, 0, %r1, %p1;\nsetp.lt.s32 %p2, %r20, 0;\n"
#define NUMBER "and.b32 %r24, %r1, 2147483647;\nsetp.le.u32 %p3, %r24, 2139095040;\n"
#define GIVE "selp.b32 %r0, 1, 0, %p4;\n"

/* A predicate that holds up to some rank goes as the numbers go; so does whether a key is in a
 * range. One that tells -0 from +0, or a NaN by its sign, is no bound. */
START_TEST(bounds)
{
    static const char *const bodies[] = {
        BELOW_ZERO NUMBER "and.pred %p4, %p2, %p3;\n" GIVE,
        RANK("%r1", "%r3") "mov.b64 %d5, {%r31, %r3};\nadd.s64 %d6, %d5, -4294967296;\n"
        "setp.lt.u64 %p4, %d6, 9223372032559808512;\n" GIVE,
    };
    static const char *const others[] = {
        BELOW_ZERO "mov.pred %p4, %p2;\n" GIVE,
        "setp.lt.s32 %p2, %r1, 0;\n" NUMBER "and.pred %p4, %p2, %p3;\n" GIVE,
        "shr.u32 %r0, %r1, 31;\n",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        Lab *lab = run(bodies[i]);
        ck_assert_int_eq(lab->report.findings.n, 0);
        for (int l = 0; l < LANES; l++) {
            ck_assert_uint_eq(lab->shadow[2 * l], TERM_CONCRETE);
            ck_assert_uint_eq(lab->out[l], lab->in[l] < 0);
        }
        ck_assert_int_eq(ptx_choices_foreign(&lab->choices), LANES);
        end(lab);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        Lab *lab = run(others[i]);
        ck_assert_uint_ge(lab->shadow[0], TERM_LEAST);
        end(lab);
    }
}
END_TEST

/* Any other number of a score is a term as before, and so is what is computed of a rank. */
START_TEST(no_ranks)
{
    static const char *const bodies[] = {
        "mov.u32 %r3, %r1;\nmov.u32 %r4, %r2;\n" GREATER,
        RANK_BY("%r1", "%r3", "2139095041") RANK_BY("%r2", "%r4", "2139095041") GREATER,
        RANK("%r1", "%r3") "mov.u32 %r4, %r2;\n" GREATER,
        RANK("%r1", "%r3") RANK("%r2", "%r4") "add.s32 %r3, %r3, 1;\n" GREATER,
        RANK("%r1", "%r3") "shr.u32 %r0, %r3, 31;\n",
        RANK("%r1", "%r3") RANK("%r2", "%r4") "setp.lt.s32 %p4, %r3, %r4;\n"
        "selp.b32 %r0, 1, 0, %p4;\n",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        Lab *lab = run(bodies[i]);
        ck_assert_int_eq(lab->report.findings.n, 0);
        ck_assert_uint_ge(lab->shadow[0], TERM_LEAST);
        end(lab);
    }
}
END_TEST

Suite *ptx_choice_suite(void)
{
    Suite *suite = suite_create("ptx_choice");
    TCase *tests = tcase_create("choices");
    tcase_add_test(tests, comparisons);
    tcase_add_test(tests, keys);
    tcase_add_test(tests, bounds);
    tcase_add_test(tests, no_ranks);
    suite_add_tcase(suite, tests);
    return suite;
}
