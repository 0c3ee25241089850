/* Layouts: who holds and computes what, what moves, what is refused. */
#include <check.h>

#include "dense.h"

static const DenseSizes QWEN = {4096, 12288, 8, 4, 64, 151936};

enum { INPUT_NORM, QKV, O_PROJ, GATE_UP, DOWN, LM_HEAD };

static bool apply(Dense *d, int op, const Layout *layout, OpLayout *at)
{
    return layout_apply(&d->contract, &d->dags[op], layout, at, d->arena, &d->diags);
}

static void assert_range(const Part *part, int atom, i64 lo, i64 hi)
{
    ck_assert_int_eq(part->lo[atom], lo);
    ck_assert_int_eq(part->hi[atom], hi);
}

static Str messages(Dense *d)
{
    Text text = {.arena = d->arena};
    for (int i = 0; i < d->diags.list.n; i++) {
        const Diag *diag = d->diags.list.v[i];
        text_printf(&text, "%.*s\n", STR_FMT(diag->message));
        for (int k = 0; k < diag->notes.n; k++)
            text_printf(&text, "  %.*s\n", STR_FMT(diag->notes.v[k]));
    }
    return text_str(&text);
}

static void assert_messages(Dense *d, const char *want)
{
    Str have = messages(d);
    ck_assert_msg(str_is(have, want), "messages:\n%.*s\nwanted:\n%s", STR_FMT(have), want);
}

/* ---- the table ------------------------------------------------------------------------------- */

START_TEST(the_table_is_total)
{
    ck_assert_int_eq(move_between(STAND_WHOLE, STAND_WHOLE, false), MOVE_NONE);
    ck_assert_int_eq(move_between(STAND_WHOLE, STAND_CUT, false), MOVE_SLICE);
    ck_assert_int_eq(move_between(STAND_CUT, STAND_WHOLE, false), MOVE_ALL_GATHER);
    ck_assert_int_eq(move_between(STAND_CUT, STAND_CUT, true), MOVE_NONE);
    ck_assert_int_eq(move_between(STAND_CUT, STAND_CUT, false), MOVE_ALL_TO_ALL);
    ck_assert_int_eq(move_between(STAND_PARTIAL, STAND_WHOLE, false), MOVE_ALL_REDUCE);
    ck_assert_int_eq(move_between(STAND_PARTIAL, STAND_CUT, false), MOVE_REDUCE_SCATTER);
    for (int held = 0; held < STAND_COUNT; held++)
        ck_assert_int_eq(move_between((Stand)held, STAND_PARTIAL, false), MOVE_REFUSE);
}
END_TEST

/* ---- Megatron's tensor and sequence parallelism ---------------------------------------------- */

START_TEST(sequence_parallel_moves_as_megatron_does)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_tp(&d, "sp", 4, true);
    const Layout *layout = &d.layouts[0];

    ck_assert(apply(&d, INPUT_NORM, layout, &at));
    ck_assert_int_eq(at.cut.axis[0], D_TOKENS);
    ck_assert_int_eq(at.param_move[0], MOVE_NONE);
    ck_assert_int_eq(at.result_move[0], MOVE_NONE);

    ck_assert(apply(&d, QKV, layout, &at));
    ck_assert_int_eq(at.cut.axis[0], D_KV);
    ck_assert_int_eq(at.param_move[0], MOVE_ALL_GATHER);
    ck_assert_int_eq(at.param_move[1], MOVE_NONE);

    ck_assert(apply(&d, O_PROJ, layout, &at));
    ck_assert(at.any_reduced);
    ck_assert_int_eq(at.finish.axis[0], D_TOKENS);
    ck_assert_int_eq(at.param_move[0], MOVE_NONE);
    ck_assert_int_eq(at.param_move[2], MOVE_NONE); /* res is needed where rows are finished */
    ck_assert_int_eq(at.result_move[0], MOVE_REDUCE_SCATTER);
    dense_close(&d);
}
END_TEST

START_TEST(without_sequence_parallel_sums_are_all_reduced)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_tp(&d, "tp", 4, false);
    ck_assert(apply(&d, INPUT_NORM, &d.layouts[0], &at));
    ck_assert_int_eq(at.cut.axis[0], -1);
    ck_assert(apply(&d, DOWN, &d.layouts[0], &at));
    ck_assert_int_eq(at.param_move[0], MOVE_NONE);
    ck_assert_int_eq(at.result_move[0], MOVE_ALL_REDUCE);
    dense_close(&d);
}
END_TEST

/* ---- parts ----------------------------------------------------------------------------------- */

START_TEST(a_listed_product_is_cut_by_its_outermost_factor)
{
    Dense d;
    OpLayout at;
    Part part;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_mesh(&d, dense_layout(&d, "heads"), "tp", 4, AXES(D_HEADS), -1);
    ck_assert(apply(&d, QKV, &d.layouts[0], &at));
    layout_part(&d.contract, &at, 3, &part);
    assert_range(&part, D_KV, 6, 8);
    assert_range(&part, D_GROUP, 0, 4);
    dense_close(&d);
}
END_TEST

START_TEST(replicating_ranks_share_the_group)
{
    Dense d;
    OpLayout at;
    Part part;
    dense_open(&d, (DenseSizes){8192, 28672, 8, 8, 64, 128256});
    d.parallel = dense_split(&d, 16, d.whole, JOIN_PAIRWISE);
    dense_ops(&d);
    dense_tp(&d, "tp16", 16, false)->cuts[0].replicating = true;
    ck_assert(apply(&d, O_PROJ, &d.layouts[0], &at));
    layout_part(&d.contract, &at, 5, &part);
    assert_range(&part, D_KV, 2, 3);
    assert_range(&part, D_GROUP, 4, 8);
    layout_held(&d.contract, &at, &d.ops[QKV].results[1], 5, &part);
    assert_range(&part, D_KV, 2, 3);
    assert_range(&part, D_GROUP, 0, 8); /* k has no group: ranks 4 and 5 hold the same head */
    dense_close(&d);
}
END_TEST

START_TEST(padded_axes_are_cut_by_their_stored_size)
{
    Dense d;
    OpLayout at;
    Part part;
    dense_open(&d, (DenseSizes){4096, 11008, 32, 1, 64, 100278});
    d.axes[D_VOCAB].stored = 100352;
    dense_ops(&d);
    dense_tp(&d, "tp4", 4, false);
    ck_assert(apply(&d, LM_HEAD, &d.layouts[0], &at));
    layout_part(&d.contract, &at, 2, &part);
    assert_range(&part, D_VOCAB, 50176, 75264);
    layout_part(&d.contract, &at, 3, &part);
    assert_range(&part, D_VOCAB, 75264, 100278);
    dense_close(&d);
}
END_TEST

START_TEST(else_cuts_lie_inside_listed_cuts)
{
    Dense d;
    OpLayout at;
    Part held, part;
    dense_open(&d, QWEN);
    dense_ops(&d);
    Layout *layout = dense_layout(&d, "long");
    dense_mesh(&d, layout, "tp", 2, AXES(D_KV, D_FFN, D_VOCAB), D_TOKENS);
    dense_mesh(&d, layout, "cp", 4, AXES(D_TOKENS), -1);
    ck_assert(apply(&d, O_PROJ, layout, &at));
    ck_assert_int_eq(at.ranks, 8);
    ck_assert_int_eq(at.result_move[0], MOVE_REDUCE_SCATTER);
    layout_part(&d.contract, &at, 6, &part); /* tp 1, cp 2 */
    ck_assert_int_eq(part.rows_index, 2);
    ck_assert_int_eq(part.rows_count, 4);
    layout_held(&d.contract, &at, &d.ops[O_PROJ].results[0], 6, &held);
    ck_assert_int_eq(held.rows_index, 5);
    ck_assert_int_eq(held.rows_count, 8);
    int sources[8];
    ck_assert_int_eq(layout_sources(&d.contract, &at, 6, sources), 2);
    ck_assert_int_eq(sources[0], 2);
    ck_assert_int_eq(sources[1], 6);
    dense_close(&d);
}
END_TEST

START_TEST(a_product_that_cuts_spends_its_factors)
{
    Dense d;
    OpLayout at;
    static int factors[] = {0, 1};
    dense_open(&d, QWEN);
    dense_ops(&d);
    Layout *layout = dense_layout(&d, "sparse");
    dense_mesh(&d, layout, "dp", 2, AXES(D_TOKENS), -1);
    dense_mesh(&d, layout, "tp", 4, AXES(D_KV), D_TOKENS);
    Mesh *ep = dense_mesh(&d, layout, "ep", 0, AXES(D_FFN), -1);
    ep->n_product = 2;
    ep->product = factors;
    ck_assert(apply(&d, GATE_UP, layout, &at));
    ck_assert_int_eq(at.ranks, 8);
    ck_assert_int_eq(at.cut.axis[0], -1);
    ck_assert_int_eq(at.cut.axis[1], -1);
    ck_assert_int_eq(at.cut.axis[2], D_FFN);
    Part part;
    layout_part(&d.contract, &at, 5, &part); /* dp 1, tp 1 */
    assert_range(&part, D_FFN, 5 * 1536, 6 * 1536);
    ck_assert_int_eq(part.rows_count, 1);
    ck_assert_int_eq(at.param_move[0], MOVE_ALL_GATHER);
    ck_assert(apply(&d, QKV, layout, &at));
    ck_assert_int_eq(at.cut.axis[0], D_TOKENS);
    ck_assert_int_eq(at.cut.axis[1], D_KV);
    dense_close(&d);
}
END_TEST

START_TEST(an_override_rules_the_op_and_its_weights)
{
    Dense d;
    OpLayout at;
    Part part;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_tp(&d, "tp", 4, false);
    Layout *layout = &d.layouts[0], *other = dense_layout(&d, "of the override");
    dense_mesh(&d, other, "tp", 4, AXES(D_HIDDEN), -1);
    layout->n_overrides = 1;
    layout->overrides = arena_alloc(d.arena, sizeof *layout->overrides);
    layout->overrides[0].op = O_PROJ;
    layout->overrides[0].n_meshes = 1;
    layout->overrides[0].meshes = other->meshes;
    ck_assert(apply(&d, O_PROJ, layout, &at));
    ck_assert(!at.any_reduced);
    ck_assert_int_eq(at.param_move[0], MOVE_ALL_GATHER); /* o is held by heads */
    ck_assert_int_eq(at.param_move[1], MOVE_NONE);
    ck_assert_int_eq(at.param_move[2], MOVE_SLICE);
    ck_assert_int_eq(at.result_move[0], MOVE_ALL_GATHER);
    layout_held(&d.contract, &at, &d.ops[O_PROJ].params[1], 1, &part);
    assert_range(&part, D_HIDDEN, 1024, 2048);
    ck_assert(apply(&d, DOWN, layout, &at));
    ck_assert(at.any_reduced);
    dense_close(&d);
}
END_TEST

START_TEST(rows_are_parted_without_gap)
{
    for (int n = 1; n <= 17; n++)
        for (i64 rows = 0; rows < 40; rows++) {
            i64 next = 0;
            for (int i = 0; i < n; i++) {
                Part part = {.rows_index = i, .rows_count = n};
                i64 lo, hi;
                part_rows(&part, rows, &lo, &hi);
                ck_assert_int_eq(lo, next);
                ck_assert_int_le(lo, hi);
                next = hi;
            }
            ck_assert_int_eq(next, rows);
        }
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

START_TEST(a_degree_that_does_not_divide_is_refused)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_tp(&d, "tp3", 3, false);
    ck_assert(!apply(&d, QKV, &d.layouts[0], &at));
    assert_messages(&d, "tp 3 does not divide kv_heads 8; legal degrees: 1 2 4 8\n");
    dense_close(&d);
}
END_TEST

START_TEST(more_ranks_than_heads_must_replicate)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_tp(&d, "tp16", 16, false);
    ck_assert(!apply(&d, QKV, &d.layouts[0], &at));
    assert_messages(&d, "tp 16 does not divide kv_heads 8; legal degrees: 1 2 4 8\n"
                        "  `kv_heads replicating` lets several ranks hold one index\n");
    dense_close(&d);
}
END_TEST

START_TEST(a_cut_inside_a_chain_is_refused)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    d.parallel = dense_split(&d, 4, d.whole, JOIN_PAIRWISE);
    dense_ops(&d);
    dense_tp(&d, "tp8", 8, false);
    ck_assert(!apply(&d, DOWN, &d.layouts[0], &at));
    assert_messages(&d, "tp 8 cuts inside an mma chain of down; legal degrees: 1 2 4\n"
                        "  a rank has elements 0 to 1535 of 12288; one chain is from 0 to 3071\n"
                        "  cut at part borders: 3072 6144 9216\n");
    dense_close(&d);
}
END_TEST

START_TEST(a_cut_inside_lanes_is_refused)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_mesh(&d, dense_layout(&d, "wide"), "tp", 2, AXES(D_HIDDEN), -1);
    ck_assert(!apply(&d, INPUT_NORM, &d.layouts[0], &at));
    assert_messages(&d, "tp 2 cuts inside lanes of input_norm; legal degrees: 1\n"
                        "  a rank has elements 0 to 2047 of 4096; one lane is from 0 to 3079\n"
                        "  a tree of that many parts can be cut: split 2 { lanes 128 by 8 "
                        "{ chain } pairwise f32 } pairwise f32\n");
    dense_close(&d);
}
END_TEST

START_TEST(an_inner_axis_of_a_sum_cannot_be_cut)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_mesh(&d, dense_layout(&d, "inner"), "tp", 2, AXES(D_ROT), -1);
    ck_assert(!apply(&d, O_PROJ, &d.layouts[0], &at));
    assert_messages(&d, "tp cuts rot inside o_proj, whose order runs over outer axes first; legal "
                        "degrees: 1\n");
    dense_close(&d);
}
END_TEST

START_TEST(several_roots_are_warned_of)
{
    Dense d;
    OpLayout at;
    dense_open(&d, QWEN);
    d.parallel = dense_split(&d, 8, d.whole, JOIN_LEFT);
    dense_ops(&d);
    dense_tp(&d, "tp4", 4, false);
    ck_assert(apply(&d, DOWN, &d.layouts[0], &at));
    assert_messages(&d, "rank 1 owns 2 roots of down, not one\n"
                        "  it stores and sends 2 values of f32 (8 bytes) for each output where one "
                        "(4 bytes) would do\n"
                        "  a tree whose outermost join has 4 parts gives every rank one root\n");
    dense_close(&d);
}
END_TEST

/* ---- forests --------------------------------------------------------------------------------- */

START_TEST(nine_heads_on_three_ranks_have_one_root_each)
{
    Dense d;
    OpLayout at;
    dense_open(&d, (DenseSizes){576, 1536, 3, 3, 32, 49152});
    d.parallel = dense_split(&d, 3, dense_split(&d, 2, d.whole, JOIN_PAIRWISE), JOIN_LEFT);
    dense_ops(&d);
    dense_tp(&d, "tp3", 3, true);
    ck_assert(apply(&d, O_PROJ, &d.layouts[0], &at));
    ck_assert_int_eq(d.diags.list.n, 0);
    const DagNode *reduce = d.dags[O_PROJ].reduces.v[0];
    const TreeNode *root = tree_expand(d.arena, reduce->tree, 576);
    for (int r = 0; r < 3; r++) {
        Part part;
        Forest forest = {0};
        layout_part(&d.contract, &at, r, &part);
        ck_assert(layout_forest(&d.contract, reduce, root, &part, &forest, d.arena));
        ck_assert_int_eq(forest.n, 1);
        ck_assert_int_eq(forest.v[0]->lo, r * 192);
        ck_assert_int_eq(forest.v[0]->hi, r * 192 + 192);
    }
    dense_close(&d);
}
END_TEST

Suite *layout_suite(void);
Suite *layout_suite(void)
{
    Suite *suite = suite_create("layout");
    TCase *tests = tcase_create("layout");
    tcase_add_test(tests, the_table_is_total);
    tcase_add_test(tests, sequence_parallel_moves_as_megatron_does);
    tcase_add_test(tests, without_sequence_parallel_sums_are_all_reduced);
    tcase_add_test(tests, a_listed_product_is_cut_by_its_outermost_factor);
    tcase_add_test(tests, replicating_ranks_share_the_group);
    tcase_add_test(tests, padded_axes_are_cut_by_their_stored_size);
    tcase_add_test(tests, else_cuts_lie_inside_listed_cuts);
    tcase_add_test(tests, a_product_that_cuts_spends_its_factors);
    tcase_add_test(tests, an_override_rules_the_op_and_its_weights);
    tcase_add_test(tests, rows_are_parted_without_gap);
    tcase_add_test(tests, a_degree_that_does_not_divide_is_refused);
    tcase_add_test(tests, more_ranks_than_heads_must_replicate);
    tcase_add_test(tests, a_cut_inside_a_chain_is_refused);
    tcase_add_test(tests, a_cut_inside_lanes_is_refused);
    tcase_add_test(tests, an_inner_axis_of_a_sum_cannot_be_cut);
    tcase_add_test(tests, several_roots_are_warned_of);
    tcase_add_test(tests, nine_heads_on_three_ranks_have_one_root_each);
    suite_add_tcase(suite, tests);
    return suite;
}
