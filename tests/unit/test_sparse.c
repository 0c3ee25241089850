/* Sparse axes and what stands at their slots: mixtures of experts. */
#include <check.h>

#include "contract.h"
#include "front.h"

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "param of = 3;\n"
    "axis tokens = sequence * position ragged, picks = of of experts, experts = 7;\n"
    "op some(chosen: experts[tokens, picks], x: f32[tokens, picks]) -> y: f32[tokens, picks] {\n"
    "    y = x;\n"
    "}\n";

static Front f;
static Contract contract;

static void open_ops(void)
{
    front_open(&f, text);
    ck_assert_msg(front_parse(&f) && check_contract(&f.ast, &contract, f.arena, &f.diags), "%s",
                  front_text(&f));
}

static void close_ops(void)
{
    front_close(&f);
}

START_TEST(slots_are_an_axis)
{
    const Tensor *chosen = &contract.ops[0].params[0], *x = &contract.ops[0].params[1];
    const Axis *picks = &contract.axes[x->axes[1]];
    ck_assert_int_eq((int)picks->size, 3);
    ck_assert_int_ge(picks->atom, 0);
    ck_assert_int_eq(picks->sparse_of, chosen->index_of);
    ck_assert_int_eq((int)contract.axes[chosen->index_of - 1].size, 7);
    ck_assert_int_eq(contract.axes[chosen->index_of - 1].sparse_of, 0);
    ck_assert(chosen->mask == x->mask);
}
END_TEST

Suite *sparse_suite(void)
{
    Suite *suite = suite_create("sparse");
    TCase *tc = tcase_create("sparse");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_add_test(tc, slots_are_an_axis);
    suite_add_tcase(suite, tc);
    return suite;
}
