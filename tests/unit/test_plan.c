/* Plans: shapes, groups, leaves, schedules, refusals. */
#include <check.h>
#include <jansson.h>

#include "dense.h"

static const DenseSizes QWEN = {4096, 12288, 8, 4, 64, 151936};

enum { INPUT_NORM, QKV, O_PROJ, GATE_UP, DOWN, LM_HEAD };

static void open_planned(Dense *d, Plan *plan, const char *layout, int degree, bool sequence)
{
    dense_open(d, QWEN);
    dense_ops(d);
    dense_tp(d, layout, degree, sequence);
    ck_assert(plan_build(&d->dag, NULL, plan, d->arena, &d->diags));
    ck_assert_int_eq(plan->ops.n, d->dag.n_ops);
}

/* The kernel of a rank for a row count. */
static const Kernel *kernel_at(const Plan *plan, int op, int rank, i64 rows)
{
    const PlanOp *own = &plan->ops.v[op];
    for (int i = 0; i < own->n_variants; i++)
        if (rows >= own->variants[i].rows_min && rows <= own->variants[i].rows_max)
            return plan->kernels.v[own->variants[i].kernel_of_rank[rank]];
    ck_abort_msg("no kernel for %lld rows", (long long)rows);
    return NULL;
}

static Str program_text(Arena *arena, const JoinProgram *program)
{
    Text text = {.arena = arena};
    for (int i = 0, o = 0; i < program->n_roots; i++) {
        text_printf(&text, "L");
        for (int k = 0; k < program->n_ops[i]; k++, o++)
            text_printf(&text, "%c", program->ops[o].kind == NODE_JOIN ? '+' : 'r');
    }
    return text_str(&text);
}

static void assert_program(Arena *arena, const JoinProgram *program, const char *want)
{
    Str have = program_text(arena, program);
    ck_assert_msg(str_is(have, want), "%.*s, wanted %s", STR_FMT(have), want);
}

static void assert_refused(Dense *d, const char *message, const char *note)
{
    ck_assert_int_eq(d->diags.list.n, 1);
    const Diag *diag = d->diags.list.v[0];
    ck_assert_msg(str_is(diag->message, message), "%.*s", STR_FMT(diag->message));
    for (int i = 0; i < diag->notes.n; i++)
        if (str_is(diag->notes.v[i], note))
            return;
    for (int i = 0; i < diag->notes.n; i++)
        fprintf(stderr, "note: %.*s\n", STR_FMT(diag->notes.v[i]));
    ck_abort_msg("no note: %s", note);
}

static bool build_alone(Dense *d, Plan *plan)
{
    return plan_build(&d->dag, NULL, plan, d->arena, &d->diags);
}

/* ---- gemm ------------------------------------------------------------------------------------ */

START_TEST(qkv_is_one_kernel_of_three_groups)
{
    Dense d;
    Plan plan;
    open_planned(&d, &plan, "tp2", 2, false);
    const Kernel *kernel = kernel_at(&plan, QKV, 1, 4096);
    ck_assert_int_eq(kernel->family, FAMILY_GEMM);
    ck_assert_int_eq(kernel->gemm.n_groups, 3);
    ck_assert_int_eq(kernel->gemm.group[0].cols.n_atoms, 4);
    ck_assert_int_eq(kernel->gemm.group[1].cols.n_atoms, 3);
    ck_assert_int_eq(kernel->bindings[kernel->gemm.a].tensor, 0);
    ck_assert(kernel->gemm.a_k_inner);
    ck_assert(!kernel->gemm.roots_out);
    dense_close(&d);
}
END_TEST

START_TEST(gate_and_up_are_two_products_of_one_group)
{
    Dense d;
    Plan plan;
    open_planned(&d, &plan, "tp2", 2, false);
    const Kernel *kernel = kernel_at(&plan, GATE_UP, 0, 4096);
    ck_assert_int_eq(kernel->gemm.n_groups, 1);
    ck_assert_int_eq(kernel->gemm.group[0].n_products, 2);
    ck_assert_int_eq(kernel->gemm.group[0].n_pieces, 1);
    ck_assert_int_eq(kernel->gemm.tile_n * 2, 256);
    dense_close(&d);
}
END_TEST

START_TEST(a_cut_sum_leaves_its_rank_as_roots)
{
    Dense d;
    Plan plan;
    open_planned(&d, &plan, "tp4", 4, true);
    const PlanOp *op = &plan.ops.v[O_PROJ];
    const Kernel *part = kernel_at(&plan, O_PROJ, 2, 1), *join = plan.kernels.v[op->join_kernel];
    ck_assert(part->gemm.roots_out);
    ck_assert_int_eq(part->gemm.n_leaves, 2);
    ck_assert_int_eq(part->gemm.leaf_lo[0], 0);
    ck_assert_int_eq(part->gemm.leaf_hi[1], 1024);
    ck_assert_int_eq(part->n_bindings, 2);
    assert_program(d.arena, &part->gemm.program, "LL+");
    ck_assert_int_eq(join->family, FAMILY_JOIN);
    ck_assert_int_eq(join->join.of, FAMILY_GEMM);
    assert_program(d.arena, &join->join.program, "LL+LL++");
    ck_assert_int_eq(join->n_bindings, 2); /* the residual and the result */
    ck_assert_int_eq(op->finish_of_rank[2].rows_index, 2);
    ck_assert_int_eq(op->finish_of_rank[2].rows_count, 4);
    ck_assert_int_eq(op->sources_of_rank[2 * 4 + 3], 3);
    dense_close(&d);
}
END_TEST

START_TEST(several_roots_follow_one_another)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    d.parallel = dense_split(&d, 8, d.whole, JOIN_LEFT);
    dense_down(&d);
    dense_tp(&d, "tp2", 2, false);
    ck_assert(build_alone(&d, &plan));
    const Kernel *first = kernel_at(&plan, 0, 0, 1), *second = kernel_at(&plan, 0, 1, 1);
    ck_assert_int_eq(first->gemm.n_roots, 1);
    assert_program(d.arena, &first->gemm.program, "LL+L+L+");
    ck_assert_int_eq(second->gemm.n_roots, 4);
    assert_program(d.arena, &second->gemm.program, "LLLL");
    const Join *join = &plan.kernels.v[plan.ops.v[0].join_kernel]->join;
    assert_program(d.arena, &join->program, "LL+L+L+L+");
    dense_close(&d);
}
END_TEST

START_TEST(weights_stored_the_other_way_are_transposed)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    OpDag *op = dense_op(&d, "p");
    const DagNode *x = dense_param(&d, op, "x", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *w = dense_param(&d, op, "w", DT_BF16, AXES(D_HIDDEN, D_FFN));
    dense_result(&d, op, "y", DT_F32, dense_product_sum(&d, op, d.whole, w, x, AXES(D_HIDDEN)),
                 AXES(D_TOKENS, D_FFN));
    ck_assert(build_alone(&d, &plan));
    const Kernel *kernel = kernel_at(&plan, 0, 0, 4096);
    ck_assert_int_eq(kernel->bindings[kernel->gemm.a].tensor, 0); /* the rows */
    ck_assert(!kernel->gemm.group[0].product[0].b_k_inner);
    ck_assert_int_eq(kernel->gemm.kernel, KERNEL_WGMMA);
    dense_close(&d);
}
END_TEST

/* The gradient of a weight: no operand has a free axis, so one kernel serves every launch. */
START_TEST(a_sum_over_rows_is_one_transposed_kernel)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    OpDag *op = dense_op(&d, "p");
    const DagNode *g = dense_param(&d, op, "g", DT_BF16, AXES(D_HIDDEN, D_FFN));
    const DagNode *x = dense_param(&d, op, "x", DT_BF16, AXES(D_HIDDEN, D_VOCAB));
    dense_result(&d, op, "y", DT_F32, dense_product_sum(&d, op, d.whole, g, x, AXES(D_HIDDEN)),
                 AXES(D_FFN, D_VOCAB));
    ck_assert(build_alone(&d, &plan));
    ck_assert_int_eq(plan.ops.v[0].n_variants, 1);
    const Gemm *gemm = &kernel_at(&plan, 0, 0, 1)->gemm;
    ck_assert_int_eq(gemm->kernel, KERNEL_WGMMA);
    ck_assert(!gemm->a_k_inner && !gemm->group[0].product[0].b_k_inner);
    ck_assert_int_eq(gemm->tile_m % 64, 0);
    ck_assert(gemm_shares_b(gemm)); /* rows that lie innermost are not shared out */
    dense_close(&d);
}
END_TEST

/* ---- schedules ------------------------------------------------------------------------------- */

START_TEST(every_row_count_has_one_kernel)
{
    static const i64 counts[] = {0, 1, 16, 17, 32, 33, 64, 65, 4096, INT32_MAX};
    Dense d;
    Plan plan;
    open_planned(&d, &plan, "tp8", 8, true);
    for (int op = 0; op < plan.ops.n; op++)
        for (int rank = 0; rank < 8; rank++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                const Kernel *kernel = kernel_at(&plan, op, rank, counts[i]);
                if (kernel->family == FAMILY_GEMM)
                    ck_assert_int_eq(kernel->gemm.kernel, KERNEL_WGMMA);
            }
    dense_close(&d);
}
END_TEST

START_TEST(uneven_leaves_stream_for_all_rows)
{
    static const i64 parts[] = {4000, 4096, 4192};
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    d.parallel = dense_tree(&d, (Tree){.form = TREE_SPLIT, .n_parts = 3, .parts = parts,
                                       .join = JOIN_LEFT, .type = DT_F32, .child = d.whole});
    dense_down(&d);
    ck_assert(build_alone(&d, &plan));
    ck_assert_int_eq(kernel_at(&plan, 0, 0, 4096)->gemm.kernel, KERNEL_STREAM);
    ck_assert_int_eq(kernel_at(&plan, 0, 0, 4096)->gemm.leaf_hi[1], 8096);
    dense_close(&d);
}
END_TEST

static Schedule *add_schedule(Dense *d, i64 rows_max)
{
    static Schedule schedules[2];
    Schedule *schedule = &schedules[d->contract.n_schedules++];
    *schedule = (Schedule){.op = 0, .rows_max = rows_max};
    d->contract.schedules = schedules;
    return schedule;
}

START_TEST(the_contracts_schedule_comes_first)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    dense_down(&d);
    Schedule *few = add_schedule(&d, 48), *rest = add_schedule(&d, INT64_MAX);
    few->tile_m = 16;
    few->leaves = LEAVES_ACROSS_CTAS;
    rest->tile_m = 128;
    rest->tile_n = 160;
    ck_assert(build_alone(&d, &plan));
    const Variant *first = &plan.ops.v[0].variants[0];
    ck_assert_str_eq(first->schedule, "contract");
    ck_assert_int_eq(first->rows_max, 48);
    ck_assert_int_eq(kernel_at(&plan, 0, 0, 48)->gemm.tile_m, 16);
    ck_assert_int_eq(kernel_at(&plan, 0, 0, 49)->gemm.tile_n, 160);
    ck_assert_int_eq(kernel_at(&plan, 0, 0, 49)->gemm.kernel, KERNEL_WGMMA);
    dense_close(&d);
}
END_TEST

START_TEST(a_tile_that_no_kernel_has_is_refused)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    dense_down(&d);
    add_schedule(&d, INT64_MAX)->tile_m = 100;
    ck_assert(!build_alone(&d, &plan));
    ck_assert_int_eq(d.diags.list.n, 1);
    Str message = d.diags.list.v[0]->message;
    ck_assert_msg(str_is(message, "down cannot follow this schedule: tile 100 x 64 x 64: the "
                                  "wgmma kernel has 16, 32, 64, 128 or 192 rows by 8 to 256 "
                                  "columns in steps of 8 by 64"), "%.*s", STR_FMT(message));
    dense_close(&d);
}
END_TEST

START_TEST(equal_kernels_are_one)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    dense_ops(&d);
    dense_tp(&d, "a", 8, false);
    dense_tp(&d, "b", 8, true);
    ck_assert(build_alone(&d, &plan));
    for (int op = 0; op < DENSE_OPS - 2; op++)
        for (int rank = 0; rank < 8; rank++) {
            const Variant *a = plan.ops.v[op].variants;
            const Variant *b = plan.ops.v[op + d.dag.n_ops].variants;
            ck_assert_int_eq(a->kernel_of_rank[0], b->kernel_of_rank[rank]);
        }
    dense_close(&d);
}
END_TEST

/* ---- row and map ----------------------------------------------------------------------------- */

START_TEST(a_norm_is_a_row_kernel_of_lanes)
{
    Dense d;
    Plan plan;
    open_planned(&d, &plan, "tp2", 2, true);
    const Kernel *kernel = kernel_at(&plan, INPUT_NORM, 1, 7);
    ck_assert_int_eq(kernel->family, FAMILY_ROW);
    ck_assert_int_eq(kernel->n_dims, 2);
    ck_assert_int_eq(kernel->row.trees[0].lanes, 128);
    ck_assert_int_eq(kernel->row.trees[0].run, 8);
    ck_assert_int_eq(kernel->row.trees[0].n_parts, 1);
    ck_assert_int_eq(kernel->row.threads, 128);
    dense_close(&d);
}
END_TEST

static const Tree *lanes(Dense *d, i64 n, i64 run, DType type)
{
    return dense_tree(d, (Tree){.form = TREE_LANES, .count = n, .run = run, .join = JOIN_PAIRWISE,
                                .type = type,
                                .child = dense_tree(d, (Tree){.form = TREE_CHAIN_ADD})});
}

static const Tree *every(Dense *d, i64 n, const Tree *child, DType type)
{
    return dense_tree(d, (Tree){.form = TREE_EVERY, .count = n, .join = JOIN_LEFT, .type = type,
                                .child = child});
}

/* Leaves and program as the kernel has them against the tree as the contract has it. */
static void assert_row_tree(Dense *d, const Tree *tree, i64 vocab)
{
    Plan plan;
    RowLeaves have;
    Forest want = {0};
    JoinProgram program;
    dense_open(d, (DenseSizes){64, 64, 2, 1, 8, vocab});
    OpDag *op = dense_op(d, "lse");
    const DagNode *x = dense_param(d, op, "x", DT_F32, AXES(D_TOKENS, D_VOCAB));
    const DagNode *sum = dense_reduce(d, op, MONOID_LOGSUMEXP, tree, x, AXES(D_VOCAB));
    dense_result(d, op, "y", DT_F32, sum, AXES(D_TOKENS));
    ck_assert(build_alone(d, &plan));
    row_leaves(d->arena, &kernel_at(&plan, 0, 0, 1)->row.trees[0], &have);
    const TreeNode *root = tree_expand(d->arena, tree, vocab);
    tree_leaves(d->arena, root, &want);
    tree_join_program(d->arena, root, &want, &program);
    ck_assert_int_eq(have.n, want.n);
    for (int i = 0; i < want.n; i++) {
        ck_assert_int_eq(have.n_runs[i], want.v[i]->n_runs);
        for (int k = 0; k < want.v[i]->n_runs; k++) {
            ck_assert_int_eq(have.runs[i][k].start, want.v[i]->runs[k].start);
            ck_assert_int_eq(have.runs[i][k].len, want.v[i]->runs[k].len);
        }
    }
    Str text = program_text(d->arena, &program);
    assert_program(d->arena, &have.program, text.s);
    ck_assert_int_eq(have.program.depth, program.depth);
    for (int i = 0; i < program.total_ops; i++)
        ck_assert_int_eq(have.program.ops[i].type, program.ops[i].type);
    dense_close(d);
}

START_TEST(row_trees_are_the_contracts)
{
    static const i64 sizes[] = {1, 7, 8, 9, 31, 64, 65, 300, 1000, 1024, 1031};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Dense trees, d;
        dense_open(&trees, QWEN);
        const Tree *chain = dense_tree(&trees, (Tree){.form = TREE_CHAIN});
        const Tree *four = lanes(&trees, 4, 2, DT_F32), *half = lanes(&trees, 8, 3, DT_BF16);
        assert_row_tree(&d, chain, sizes[i]);
        assert_row_tree(&d, four, sizes[i]);
        assert_row_tree(&d, half, sizes[i]);
        assert_row_tree(&d, every(&trees, 64, four, DT_F32), sizes[i]);
        assert_row_tree(&d, every(&trees, 100, half, DT_F32), sizes[i]);
        assert_row_tree(&d, every(&trees, 300, every(&trees, 70, four, DT_BF16), DT_F32), sizes[i]);
        const Tree *two = dense_split(&trees, 2, four, JOIN_PAIRWISE);
        assert_row_tree(&d, every(&trees, 100, two, DT_F32), sizes[i]);
        assert_row_tree(&d, every(&trees, 100, dense_split(&trees, 5, chain, JOIN_LEFT), DT_BF16),
                        sizes[i]);
        dense_close(&trees);
    }
}
END_TEST

static u32 draw(u32 *state, u32 below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Splits and roundings of `places` places down to lanes or a chain. */
static const Tree *draw_rows(Dense *d, u32 *state, i64 places, int depth)
{
    static const DType types[] = {DT_F32, DT_BF16, DT_F16};
    Tree tree = {.join = (JoinForm)draw(state, 2), .type = types[draw(state, 3)]};
    u32 form = depth ? draw(state, 5) : 4;
    i64 n = 2 + draw(state, 3);
    if (form == 4) {
        tree.form = TREE_LANES;
        tree.count = (i64)1 << draw(state, 5);
        tree.run = 1 + draw(state, 9);
        tree.child = dense_tree(d, (Tree){.form = TREE_CHAIN});
        return draw(state, 3) ? dense_tree(d, tree) : tree.child;
    }
    tree.form = form == 3 ? TREE_ROUND : form == 2 && places % n == 0 ? TREE_SPLIT : TREE_EVERY;
    tree.count = tree.form == TREE_SPLIT ? n : 12 * (1 + draw(state, 9));
    i64 below = form == 3 ? places : tree.form == TREE_SPLIT ? places / n : tree.count;
    tree.child = draw_rows(d, state, below, depth - 1);
    return dense_tree(d, tree);
}

START_TEST(random_row_trees_are_the_contracts)
{
    u32 state = 88172645u + (u32)_i;
    for (int i = 0; i < 200; i++) {
        Dense trees, d;
        i64 extent = 1 + draw(&state, 400);
        dense_open(&trees, QWEN);
        assert_row_tree(&d, draw_rows(&trees, &state, extent, 3), extent);
        dense_close(&trees);
    }
}
END_TEST

START_TEST(a_cut_row_sum_leaves_roots_and_joins_them)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    d.row = dense_split(&d, 8, lanes(&d, 64, 8, DT_F32), JOIN_PAIRWISE);
    dense_norm(&d, "norm");
    dense_mesh(&d, dense_layout(&d, "wide"), "tp", 4, AXES(D_HIDDEN), -1);
    ck_assert(build_alone(&d, &plan));
    const PlanOp *op = &plan.ops.v[0];
    const Kernel *part = kernel_at(&plan, 0, 3, 1), *join = plan.kernels.v[op->join_kernel];
    ck_assert(part->row.roots_out);
    ck_assert_int_eq(part->row.n_roots, 1);
    ck_assert_int_eq(part->row.trees[0].n_parts, 2);
    ck_assert_int_eq(part->n_bindings, 1);
    ck_assert_int_eq(join->join.of, FAMILY_ROW);
    assert_program(d.arena, &join->join.program, "LL+LL++");
    ck_assert_int_eq(op->at.result_move[0], MOVE_ALL_REDUCE);
    ck_assert_int_eq(op->finish_of_rank[1].lo[D_HIDDEN], 1024);
    dense_close(&d);
}
END_TEST

START_TEST(halves_of_a_result_make_one_map)
{
    Dense d;
    Plan plan;
    static const Fix fix[2] = {{D_HALF, 0}, {D_HALF, 1}};
    dense_open(&d, QWEN);
    OpDag *op = dense_op(&d, "swap");
    const DagNode *x = dense_param(&d, op, "x", DT_BF16, AXES(D_TOKENS, D_HEADS, D_HEAD_DIM));
    u64 rest = x->mask & ~((u64)1 << D_HALF);
    dense_result(&d, op, "y", DT_BF16, x, AXES(D_TOKENS, D_HEADS, D_HEAD_DIM));
    op->pieces.n = 0;
    for (int i = 0; i < 2; i++) {
        DagPiece piece = {.n_fixes = 1, .fixes = &fix[1 - i]};
        piece.value = dense_node(&d, op, (DagNode){.kind = DAG_INPUT, .type = DT_BF16, .mask = rest,
                                                   .n_fixes = 1, .fixes = &fix[i]});
        vec_push(d.arena, &op->pieces, piece);
    }
    ck_assert(build_alone(&d, &plan));
    const Kernel *kernel = kernel_at(&plan, 0, 0, 1);
    ck_assert_int_eq(kernel->family, FAMILY_MAP);
    ck_assert_int_eq(kernel->n_bindings, 4);
    ck_assert_int_eq(kernel->n_dims, 3); /* tokens; kv_heads * group; rot */
    dense_close(&d);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

START_TEST(a_scaled_operand_fits_no_family)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    OpDag *op = dense_op(&d, "p");
    const DagNode *x = dense_param(&d, op, "x", DT_BF16, AXES(D_TOKENS, D_HIDDEN));
    const DagNode *w = dense_param(&d, op, "w", DT_BF16, AXES(D_FFN, D_HIDDEN));
    const DagNode *xx = dense_binary(&d, op, DAG_MUL, x, x);
    dense_result(&d, op, "y", DT_F32, dense_product_sum(&d, op, d.whole, xx, w, AXES(D_HIDDEN)),
                 AXES(D_TOKENS, D_FFN));
    ck_assert(!build_alone(&d, &plan));
    assert_refused(&d, "p fits no kernel family",
                   "gemm: what it sums is not a product of two parameters: compute the operand in "
                   "an op of its own");
    dense_close(&d);
}
END_TEST

START_TEST(lanes_in_number_not_a_power_of_two_fit_no_family)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    d.row = lanes(&d, 96, 8, DT_F32);
    dense_norm(&d, "norm");
    ck_assert(!build_alone(&d, &plan));
    assert_refused(&d, "norm fits no kernel family",
                   "row: 96 lanes: a row has a power of two of them, up to 1024");
    dense_close(&d);
}
END_TEST

START_TEST(a_batched_product_fits_no_family)
{
    Dense d;
    Plan plan;
    dense_open(&d, QWEN);
    OpDag *op = dense_op(&d, "p");
    const DagNode *x = dense_param(&d, op, "x", DT_BF16, AXES(D_TOKENS, D_KV, D_HIDDEN));
    const DagNode *w = dense_param(&d, op, "w", DT_BF16, AXES(D_KV, D_FFN, D_HIDDEN));
    dense_result(&d, op, "y", DT_F32, dense_product_sum(&d, op, d.whole, x, w, AXES(D_HIDDEN)),
                 AXES(D_TOKENS, D_KV, D_FFN));
    ck_assert(!build_alone(&d, &plan));
    assert_refused(&d, "p fits no kernel family",
                   "gemm: both operands of a product have the axis kv_heads outside the sum: a "
                   "product for each index of it");
    dense_close(&d);
}
END_TEST

/* ---- text ------------------------------------------------------------------------------------ */

START_TEST(plans_are_written_alike_twice)
{
    Str text[2];
    for (int i = 0; i < 2; i++) {
        Dense d;
        Plan plan;
        open_planned(&d, &plan, "tp4", 4, true);
        Text out = {.arena = d.arena};
        plan_print(&plan, &out);
        plan_json(&plan, &out);
        char *copy = malloc((size_t)out.n);
        memcpy(copy, out.s, (size_t)out.n);
        text[i] = (Str){copy, out.n};
        dense_close(&d);
    }
    ck_assert(str_eq(text[0], text[1]));
    free((void *)text[0].s);
    free((void *)text[1].s);
}
END_TEST

START_TEST(plan_json_is_json)
{
    Dense d;
    Plan plan;
    open_planned(&d, &plan, "tp8", 8, true);
    Text out = {.arena = d.arena};
    plan_json(&plan, &out);
    json_t *root = json_loadb(out.s, (size_t)out.n, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq((int)json_array_size(json_object_get(root, "kernels")), plan.kernels.n);
    const json_t *op = json_array_get(json_object_get(root, "plans"), O_PROJ);
    ck_assert_int_eq((int)json_array_size(json_object_get(op, "sources")), 8);
    json_decref(root);
    dense_close(&d);
}
END_TEST

Suite *plan_suite(void);
Suite *plan_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("plan");
    tcase_add_test(tests, qkv_is_one_kernel_of_three_groups);
    tcase_add_test(tests, gate_and_up_are_two_products_of_one_group);
    tcase_add_test(tests, a_cut_sum_leaves_its_rank_as_roots);
    tcase_add_test(tests, several_roots_follow_one_another);
    tcase_add_test(tests, weights_stored_the_other_way_are_transposed);
    tcase_add_test(tests, a_sum_over_rows_is_one_transposed_kernel);
    tcase_add_test(tests, every_row_count_has_one_kernel);
    tcase_add_test(tests, uneven_leaves_stream_for_all_rows);
    tcase_add_test(tests, the_contracts_schedule_comes_first);
    tcase_add_test(tests, a_tile_that_no_kernel_has_is_refused);
    tcase_add_test(tests, equal_kernels_are_one);
    tcase_add_test(tests, a_norm_is_a_row_kernel_of_lanes);
    tcase_add_test(tests, row_trees_are_the_contracts);
    tcase_add_loop_test(tests, random_row_trees_are_the_contracts, 0, 4);
    tcase_add_test(tests, a_cut_row_sum_leaves_roots_and_joins_them);
    tcase_add_test(tests, halves_of_a_result_make_one_map);
    tcase_add_test(tests, a_scaled_operand_fits_no_family);
    tcase_add_test(tests, lanes_in_number_not_a_power_of_two_fit_no_family);
    tcase_add_test(tests, a_batched_product_fits_no_family);
    tcase_add_test(tests, plans_are_written_alike_twice);
    tcase_add_test(tests, plan_json_is_json);
    suite_add_tcase(suite, tests);
    return suite;
}
