/* Kernels of attend: which ops fit, what the plan makes of them, the text, a proof that tells. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "emit/emit.h"
#include "meaning.h"
#include "golden.h"
#include "proof/proof.h"

#define FORM(depth, body)                                                                          \
    "contract c version 1; numerics sm_90;\n"                                                      \
    "axis tokens = sequence * position ragged, heads = kv 2 * group 4, d = " #depth ";\n"          \
    "op f(q: bf16[tokens, heads, d], k, v: bf16[sequence, position, kv, d])\n"                     \
    "   -> (o: bf16[tokens, heads, d], l: f32[tokens, heads]) {\n" body "}\n"

#define WHOLE(settings)                                                                            \
    "    attend x, y = q, k, v { over d; scale_log2 0.18033688; " settings " }\n"                  \
    "    o = bf16(x);\n    l = y;\n"

typedef struct Attention {
    Front f;
    Contract contract;
    Dag dag;
} Attention;

static bool planned(Attention *a, const char *text, Plan *plan)
{
    meaning_open(&a->f, text, &a->contract, &a->dag);
    return plan_build(&a->dag, NULL, plan, a->f.arena, &a->f.diags);
}

START_TEST(few_tokens_are_decoded)
{
    Attention a;
    Plan plan;
    ck_assert(planned(&a, FORM(128, WHOLE("")), &plan));
    const PlanOp *op = &plan.ops.v[0];
    ck_assert_int_eq(op->n_variants, 3);
    ck_assert_int_eq(op->variants[0].rows_max, 128);
    const Kernel *few = plan.kernels.v[op->variants[0].kernel_of_rank[0]];
    ck_assert_int_eq(op->variants[1].rows_min, 0); /* it takes any, and is asked last */
    const Kernel *most = plan.kernels.v[op->variants[1].kernel_of_rank[0]];
    const Kernel *many = plan.kernels.v[op->variants[2].kernel_of_rank[0]];
    ck_assert_int_eq(few->family, FAMILY_ATTEND);
    ck_assert_int_eq(few->attend.choice, ATTEND_DECODE);
    ck_assert_int_eq(most->attend.choice, ATTEND_WGMMA);
    ck_assert_int_eq(most->attend.row_tiles, 8);
    ck_assert_int_eq(many->attend.choice, ATTEND_MMA);
    ck_assert_int_eq(few->attend.row_tiles, 1);
    ck_assert_int_eq(many->attend.row_tiles, 2);
    ck_assert_int_eq(many->attend.depth, 128);
    front_close(&a.f);
    ck_assert(planned(&a, FORM(256, WHOLE("")), &plan)); /* wgmma has no room for it */
    ck_assert_int_eq(plan.ops.v[0].n_variants, 2);
    front_close(&a.f);
}
END_TEST

static const struct Misfit {
    const char *text, *reason;
} misfits[] = {
    {FORM(64, WHOLE("block 64;")), "attend: its blocks have 64 keys; the kernel takes 128"},
    {FORM(80, WHOLE("")), "attend: its keys have 80 elements; the kernel takes 64, 96, 128 or 256"},
    {FORM(64, "    attend x, y = q, k, v { over d; scale_log2 1; }\n"
              "    o = bf16(x + 1.0);\n    l = y;\n"),
     "attend: o is more than a value of `attend`, rounded"},
    {FORM(64, "    attend x, y = q, k, v { over d; scale_log2 1; }\n"
              "    attend z = q, k, v { over d; scale_log2 2; }\n"
              "    o = bf16(z);\n    l = y;\n"),
     "attend: it has several `attend`"},
    {FORM(64, "    p = q * q;\n    attend x, y = p, k, v { over d; scale_log2 1; }\n"
              "    o = bf16(x);\n    l = y;\n"),
     "attend: an operand of `attend` is no parameter as it is: compute it in an op of its own"},
};

enum { MISFITS = sizeof misfits / sizeof misfits[0] };

START_TEST(what_does_not_fit_is_said)
{
    Attention a;
    Plan plan;
    ck_assert(!planned(&a, misfits[_i].text, &plan));
    const Diag *diag = a.f.diags.list.v[a.f.diags.list.n - 1];
    ck_assert_msg(str_is(diag->notes.v[0], misfits[_i].reason), "%.*s",
                  STR_FMT(diag->notes.v[0]));
    front_close(&a.f);
}
END_TEST

/* Each number that the kernel's text is made from, changed, is another term. */
START_TEST(a_changed_number_is_no_proof)
{
    Attention a;
    Plan plan;
    Certificate certificate;
    ck_assert(planned(&a, FORM(64, WHOLE("")), &plan));
    ck_assert(proof_check(&plan, &certificate, a.f.arena, &a.f.diags));
    Attend *computes = &plan.kernels.v[0]->attend.computes;
    const Attend whole = *computes;
    switch (_i) {
    case 0: computes->split *= 2; break;
    case 1: computes->block /= 2; break;
    case 2: computes->scale ^= 1; break;
    case 3: computes->exp2 = FN_EXP2_D3; break;
    case 4: computes->window = 5; break;
    default: computes->causal = false; break;
    }
    ck_assert(!proof_check(&plan, &certificate, a.f.arena, &a.f.diags));
    *computes = whole;
    ck_assert(proof_check(&plan, &certificate, a.f.arena, &a.f.diags));
    front_close(&a.f);
}
END_TEST

START_TEST(the_text_is_the_golden_one)
{
    Attention a;
    Plan plan;
    Emitted emitted;
    ck_assert(planned(&a, FORM(96, WHOLE("window 100; split 256; exp exp2.d3;")), &plan));
    ck_assert(emit_program(&plan, STR("attention"), &emitted, a.f.arena, &a.f.diags));
    golden_compare("tests/golden/emit/attend.cu", emitted.program, a.f.arena);
    front_close(&a.f);
}
END_TEST

Suite *plan_attend_suite(void)
{
    Suite *suite = suite_create("plan_attend");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, few_tokens_are_decoded);
    tcase_add_loop_test(tc, what_does_not_fit_is_said, 0, MISFITS);
    tcase_add_loop_test(tc, a_changed_number_is_no_proof, 0, 6);
    tcase_add_test(tc, the_text_is_the_golden_one);
    suite_add_tcase(suite, tc);
    return suite;
}
