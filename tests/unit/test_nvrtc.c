/* NVRTC by dlopen: a clean kernel, the device library as headers, and every refusal. The parts that
 * need the library are skipped, saying so, where it is not installed. */
#include "cubin/cubin.h"
#include "cubin/nvrtc.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

typedef struct Box {
    Arena *arena;
    Sources sources;
    Diags diags;
} Box;

static void box_open(Box *box)
{
    memset(box, 0, sizeof *box);
    box->arena = arena_new();
    box->sources.arena = box->arena;
    diags_init(&box->diags, box->arena, &box->sources);
}

static const Nvrtc *library(Box *box)
{
    static bool said;
    const Nvrtc *nvrtc = nvrtc_open(&box->diags);
    if (!nvrtc && !said)
        fprintf(stderr, "skipped: NVRTC is not installed\n");
    said = true;
    return nvrtc;
}

static DiagId judge(Box *box, const char *log)
{
    box_open(box);
    ck_assert(!nvrtc_judge_log(str_of(log), &box->diags));
    ck_assert_int_eq(box->diags.errors, 1);
    return box->diags.list.v[0]->id;
}

START_TEST(spills_are_refused)
{
    Box box;
    ck_assert_int_eq(judge(&box, "ptxas info    : Function properties for iso_gemm_1\n"
                                 "ptxas         .     0 bytes stack frame, 16 bytes spill stores, "
                                 "8 bytes spill loads\n"),
                     DIAG_KERNEL_SPILLS);
    ck_assert_str_eq(box.diags.list.v[0]->message.s,
                     "kernel iso_gemm_1 spills registers: 16 bytes stored, 8 loaded");
    arena_free(box.arena);
}
END_TEST

START_TEST(advisories_are_refused)
{
    static const struct {
        const char *line;
        DiagId id;
    } rows[] = {
        {"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
         "serialized due to non wgmma instructions in function 'iso_gemm_2'\n",
         DIAG_WGMMA_SERIALISED},
        {"ptxas info    : (C7515) Potential Performance Loss: ... in the function 'iso_gemm_2'\n",
         DIAG_WGMMA_SERIALISED},
        {"ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain "
         "minimum register requirements in function 'iso_gemm_2'\n",
         DIAG_SETMAXNREG_IGNORED},
        {"ptxas info    : (C7508) 'setmaxnreg' ignored in function 'iso_gemm_2'\n",
         DIAG_SETMAXNREG_IGNORED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Box box;
        ck_assert_int_eq(judge(&box, rows[i].line), rows[i].id);
        ck_assert_ptr_nonnull(strstr(box.diags.list.v[0]->message.s, "kernel iso_gemm_2:"));
        arena_free(box.arena);
    }
}
END_TEST

START_TEST(a_clean_log_is_taken)
{
    Box box;
    box_open(&box);
    ck_assert(nvrtc_judge_log(STR("ptxas info    : Function properties for k\n"
                                  "ptxas         .     128 bytes stack frame, 0 bytes spill stores,"
                                  " 0 bytes spill loads\n"),
                              &box.diags));
    arena_free(box.arena);
}
END_TEST

static const char small_kernel[] =
    "extern \"C\" __global__ void k(float *a) { __shared__ float s[32]; s[threadIdx.x] = "
    "a[threadIdx.x]; __syncthreads(); a[threadIdx.x] = s[31 - threadIdx.x] * 3.0f + 1.0f; }\n";

START_TEST(a_kernel_compiles_the_same_twice)
{
    Box box;
    Binary one, two;
    box_open(&box);
    const Nvrtc *nvrtc = library(&box);
    if (nvrtc) {
        ck_assert(nvrtc_compile(nvrtc, str_of(small_kernel), STR("sm_90a"), &one, box.arena,
                                &box.diags));
        ck_assert(nvrtc_compile(nvrtc, str_of(small_kernel), STR("sm_90a"), &two, box.arena,
                                &box.diags));
        ck_assert(str_eq(one.cubin, two.cubin));
        ck_assert_int_eq(one.kernels.n, 1);
        ck_assert_str_eq(one.kernels.v[0].name.s, "k");
        ck_assert_int_gt(one.kernels.v[0].registers, 0);
        ck_assert_int_ge((int)one.kernels.v[0].shared, 128);
        /* Nothing was contracted: the product and the sum are apart. */
        ck_assert_ptr_nonnull(strstr(one.ptx.s, "mul.rn.f32"));
        ck_assert_ptr_null(strstr(one.ptx.s, "fma.rn.f32"));
    }
    arena_free(box.arena);
}
END_TEST

START_TEST(refused_text_is_an_error_with_its_line)
{
    Box box;
    Binary out;
    box_open(&box);
    const Nvrtc *nvrtc = library(&box);
    if (nvrtc) {
        ck_assert(!nvrtc_compile(nvrtc, STR("__global__ void k() { x = 1; }\n"), STR("sm_90a"),
                                 &out, box.arena, &box.diags));
        ck_assert_int_eq(box.diags.list.v[0]->id, DIAG_NVRTC_FAILED);
        ck_assert_ptr_nonnull(strstr(box.diags.list.v[0]->notes.v[0].s, "kernels.cu(1): error"));
    }
    arena_free(box.arena);
}
END_TEST

Suite *nvrtc_suite(void);
Suite *nvrtc_suite(void)
{
    Suite *suite = suite_create("nvrtc");
    TCase *tests = tcase_create("nvrtc");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, spills_are_refused);
    tcase_add_test(tests, advisories_are_refused);
    tcase_add_test(tests, a_clean_log_is_taken);
    tcase_add_test(tests, a_kernel_compiles_the_same_twice);
    tcase_add_test(tests, refused_text_is_an_error_with_its_line);
    suite_add_tcase(suite, tests);
    return suite;
}
