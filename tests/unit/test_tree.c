/* Trees: each form's meaning on small extents, then properties of random trees. */
#include <check.h>
#include <string.h>

#include "base/tree.h"

static Arena *arena;

static void setup(void)
{
    arena = arena_new();
}

static void teardown(void)
{
    arena_free(arena);
}

static const Tree *leaf(TreeForm form)
{
    Tree *t = arena_new_of(arena, Tree);
    t->form = form;
    return t;
}

static const Tree *part(TreeForm form, i64 count, i64 run, const Tree *child, JoinForm join,
                        DType type)
{
    Tree *t = arena_new_of(arena, Tree);
    *t = (Tree){.form = form, .count = count, .run = run, .join = join, .type = type,
                .child = child};
    return t;
}

static const Tree *written(const i64 *parts, int n, const Tree *child)
{
    Tree *t = arena_new_of(arena, Tree);
    *t = (Tree){.form = TREE_SPLIT, .n_parts = n, .parts = parts, .join = JOIN_LEFT,
                .type = DT_F32, .child = child};
    return t;
}

/* "((0..4 4..8) 8..12)"; a round is "bf16[...]", a bf16 join "(a b)bf16". */
static void show_node(const TreeNode *node, Text *out)
{
    if (node->kind == NODE_LEAF) {
        for (int i = 0; i < node->n_runs; i++)
            text_printf(out, "%s%d..%d", i ? "+" : "", (int)node->runs[i].start,
                        (int)(node->runs[i].start + node->runs[i].len));
        return;
    }
    text_printf(out, node->kind == NODE_ROUND ? "%s[" : "(", dtype_name(node->type));
    show_node(node->left, out);
    if (node->kind == NODE_ROUND) {
        text_printf(out, "]");
        return;
    }
    text_printf(out, " ");
    show_node(node->right, out);
    text_printf(out, ")%s", node->type == DT_F32 ? "" : dtype_name(node->type));
}

static const char *shown(const Tree *tree, i64 extent)
{
    Text out = {.arena = arena};
    const TreeNode *root = tree_expand(arena, tree, extent);
    if (!root)
        return "absent";
    show_node(root, &out);
    return out.s;
}

static const char *printed(const Tree *tree)
{
    Text out = {.arena = arena};
    tree_print(tree, &out);
    return out.s;
}

START_TEST(bare_leaf_is_one_run)
{
    ck_assert_str_eq(shown(leaf(TREE_MMA), 100), "0..100");
    ck_assert_str_eq(shown(leaf(TREE_MMA), 0), "absent");
    ck_assert_int_eq(tree_type(leaf(TREE_CHAIN)), DT_F32);
}
END_TEST

START_TEST(split_joins_balanced_or_left)
{
    const Tree *m = leaf(TREE_MMA);
    ck_assert_str_eq(shown(part(TREE_SPLIT, 4, 0, m, JOIN_PAIRWISE, DT_F32), 8),
                     "((0..2 2..4) (4..6 6..8))");
    ck_assert_str_eq(shown(part(TREE_SPLIT, 4, 0, m, JOIN_LEFT, DT_F32), 8),
                     "(((0..2 2..4) 4..6) 6..8)");
    ck_assert_str_eq(shown(part(TREE_SPLIT, 3, 0, m, JOIN_PAIRWISE, DT_F32), 3),
                     "((0..1 1..2) 2..3)");
    ck_assert_str_eq(shown(part(TREE_SPLIT, 6, 0, m, JOIN_PAIRWISE, DT_F32), 6),
                     "(((0..1 1..2) (2..3 3..4)) (4..5 5..6))");
}
END_TEST

START_TEST(join_type_rounds_its_operands)
{
    const Tree *m = leaf(TREE_MMA);
    ck_assert_str_eq(shown(part(TREE_SPLIT, 2, 0, m, JOIN_LEFT, DT_BF16), 4),
                     "(bf16[0..2] bf16[2..4])bf16");
    ck_assert_str_eq(shown(part(TREE_SPLIT, 1, 0, m, JOIN_LEFT, DT_BF16), 4), "bf16[0..4]");
    ck_assert_str_eq(shown(part(TREE_SPLIT, 1, 0, m, JOIN_LEFT, DT_F32), 4), "0..4");
    ck_assert_str_eq(shown(part(TREE_ROUND, 0, 0, m, JOIN_LEFT, DT_F16), 4), "f16[0..4]");
    const Tree *rounded = part(TREE_ROUND, 0, 0, m, JOIN_LEFT, DT_BF16);
    ck_assert_str_eq(shown(part(TREE_SPLIT, 2, 0, rounded, JOIN_LEFT, DT_F32), 4),
                     "(f32[bf16[0..2]] f32[bf16[2..4]])");
    const Tree *halves = part(TREE_SPLIT, 2, 0, m, JOIN_LEFT, DT_F32);
    ck_assert_str_eq(shown(part(TREE_ROUND, 0, 0, halves, JOIN_LEFT, DT_BF16), 4),
                     "bf16[(0..2 2..4)]");
    ck_assert_str_eq(shown(part(TREE_SPLIT, 2, 0, halves, JOIN_LEFT, DT_F16), 4),
                     "(f16[(0..1 1..2)] f16[(2..3 3..4)])f16");
}
END_TEST

START_TEST(written_parts_may_be_empty)
{
    static const i64 parts[] = {3, 0, 2, 1};
    ck_assert_str_eq(shown(written(parts, 4, leaf(TREE_CHAIN)), 6), "((0..3 3..5) 5..6)");
}
END_TEST

START_TEST(every_is_anchored_at_zero)
{
    const Tree *t = part(TREE_EVERY, 4, 0, leaf(TREE_MMA), JOIN_LEFT, DT_F32);
    ck_assert_str_eq(shown(t, 10), "((0..4 4..8) 8..10)");
    ck_assert_str_eq(shown(t, 4), "0..4");
    /* A short part is a whole part whose tail is absent, so that its inner boundaries stay. */
    const Tree *inner = part(TREE_SPLIT, 2, 0, leaf(TREE_CHAIN), JOIN_LEFT, DT_F32);
    const Tree *outer = part(TREE_EVERY, 4, 0, inner, JOIN_LEFT, DT_F32);
    ck_assert_str_eq(shown(outer, 7), "((0..2 2..4) (4..6 6..7))");
    ck_assert_str_eq(shown(outer, 5), "((0..2 2..4) 4..5)");
}
END_TEST

START_TEST(lanes_interleave_the_sequence)
{
    const Tree *t = part(TREE_LANES, 2, 2, leaf(TREE_CHAIN), JOIN_PAIRWISE, DT_F32);
    ck_assert_str_eq(shown(t, 8), "(0..2+4..6 2..4+6..8)");
    ck_assert_str_eq(shown(t, 7), "(0..2+4..6 2..4+6..7)");
    ck_assert_str_eq(shown(t, 2), "0..2");
    /* Lanes of lanes take runs of the outer lane's sequence. */
    const Tree *inner = part(TREE_LANES, 2, 1, leaf(TREE_CHAIN), JOIN_LEFT, DT_F32);
    const Tree *outer = part(TREE_LANES, 2, 2, inner, JOIN_LEFT, DT_F32);
    ck_assert_str_eq(shown(outer, 8), "((0..1+4..5 1..2+5..6) (2..3+6..7 3..4+7..8))");
    const Tree *halves = part(TREE_SPLIT, 2, 0, leaf(TREE_CHAIN), JOIN_LEFT, DT_F32);
    const Tree *split_lane = part(TREE_LANES, 2, 2, halves, JOIN_LEFT, DT_F32);
    ck_assert_str_eq(shown(split_lane, 8), "((0..2 4..6) (2..4 6..8))");
}
END_TEST

START_TEST(vocabulary_sized_lanes_are_runs)
{
    const Tree *t = part(TREE_LANES, 128, 8, leaf(TREE_CHAIN), JOIN_PAIRWISE, DT_F32);
    const TreeNode *root = tree_expand(arena, t, 151936);
    Forest leaves;
    tree_leaves(arena, root, &leaves);
    ck_assert_int_eq(leaves.n, 128);
    ck_assert_int_eq(leaves.v[0]->n_runs, 149);
    ck_assert_int_eq(leaves.v[127]->n_runs, 148);
    ck_assert_int_eq(root->count, 151936);
}
END_TEST

START_TEST(deep_left_joins_do_not_recurse)
{
    const Tree *t = part(TREE_EVERY, 1, 0, leaf(TREE_CHAIN), JOIN_LEFT, DT_F32);
    const TreeNode *root = tree_expand(arena, t, 100000);
    Forest leaves;
    JoinProgram program;
    tree_leaves(arena, root, &leaves);
    ck_assert_int_eq(leaves.n, 100000);
    ck_assert(tree_join_program(arena, root, &leaves, &program));
    ck_assert_int_eq(program.depth, 2);
    ck_assert_int_eq(program.total_ops, 99999);
}
END_TEST

START_TEST(text_is_canonical)
{
    static const i64 parts[] = {176, 160};
    const Tree *chain = part(TREE_LANES, 128, 8, leaf(TREE_CHAIN), JOIN_PAIRWISE, DT_F32);
    ck_assert_str_eq(printed(chain), "lanes 128 by 8 { chain } pairwise f32");
    ck_assert_str_eq(printed(written(parts, 2, leaf(TREE_CHAIN_ADD))),
                     "split [176, 160] { chain add } left f32");
    const Tree *t = part(TREE_SPLIT, 8, 0, leaf(TREE_MMA), JOIN_LEFT, DT_F32);
    ck_assert_str_eq(printed(part(TREE_ROUND, 0, 0, t, JOIN_LEFT, DT_BF16)),
                     "round bf16 { split 8 { mma } left f32 }");
    ck_assert_str_eq(printed(part(TREE_EVERY, 64, 0, leaf(TREE_MMA), JOIN_LEFT, DT_F32)),
                     "every 64 { mma } left f32");
}
END_TEST

static const char *problem(const Tree *tree, i64 extent)
{
    return str_copy(arena, tree_extent_problem(arena, tree, extent)).s;
}

START_TEST(extent_problems_name_the_way_out)
{
    static const i64 parts[] = {176, 160};
    const Tree *eight = part(TREE_SPLIT, 8, 0, leaf(TREE_MMA), JOIN_LEFT, DT_F32);
    ck_assert_str_eq(problem(eight, 4096), "");
    ck_assert_str_eq(problem(eight, 4100),
                     "8 equal parts of 4100: 8 does not divide it, 5 and 10 do");
    ck_assert_str_eq(problem(written(parts, 2, leaf(TREE_MMA)), 336), "");
    ck_assert_str_eq(problem(written(parts, 2, leaf(TREE_MMA)), 340),
                     "the written parts hold 336 of 340 elements");
    ck_assert_str_eq(problem(written(parts, 2, leaf(TREE_MMA)), 300),
                     "the first 2 written parts pass the end of 300");
    ck_assert_str_eq(problem(part(TREE_EVERY, 128, 0, eight, JOIN_LEFT, DT_F32), 5), "");
    ck_assert_str_eq(problem(part(TREE_EVERY, 100, 0, eight, JOIN_LEFT, DT_F32), 128),
                     "8 equal parts of 100: 8 does not divide it, 5 and 10 do");
    /* Lanes of 12 by 8 over 100 elements: the lane of the short run has 4, others 8. */
    ck_assert_str_ne(problem(part(TREE_LANES, 16, 8, eight, JOIN_LEFT, DT_F32), 100), "");
    ck_assert_str_eq(problem(part(TREE_LANES, 16, 8, eight, JOIN_LEFT, DT_F32), 96), "");
    ck_assert_str_ne(problem(part(TREE_EVERY, 0, 0, eight, JOIN_LEFT, DT_F32), 96), "");
    ck_assert_str_ne(problem(part(TREE_LANES, 4, 0, eight, JOIN_LEFT, DT_F32), 96), "");
    ck_assert_str_ne(problem(part(TREE_SPLIT, 0, 0, eight, JOIN_LEFT, DT_F32), 96), "");
    ck_assert_str_ne(problem(part(TREE_EVERY, 1, 0, leaf(TREE_MMA), JOIN_LEFT, DT_F32),
                             (i64)1 << 40), "");
}
END_TEST

START_TEST(free_axes_need_an_anchor)
{
    const Tree *eight = part(TREE_SPLIT, 8, 0, leaf(TREE_MMA), JOIN_LEFT, DT_F32);
    const Tree *every = part(TREE_EVERY, 128, 0, eight, JOIN_LEFT, DT_F32);
    ck_assert_ptr_nonnull(tree_anchor_problem(eight));
    ck_assert_ptr_nonnull(tree_anchor_problem(leaf(TREE_CHAIN)));
    ck_assert_ptr_null(tree_anchor_problem(every));
    ck_assert_ptr_null(tree_anchor_problem(part(TREE_ROUND, 0, 0, every, JOIN_LEFT, DT_BF16)));
    ck_assert_ptr_nonnull(
        tree_anchor_problem(part(TREE_SPLIT, 2, 0, every, JOIN_LEFT, DT_F32)));
}
END_TEST

START_TEST(cuts_own_whole_nodes)
{
    const Tree *eight = part(TREE_SPLIT, 8, 0, leaf(TREE_MMA), JOIN_PAIRWISE, DT_F32);
    const TreeNode *root = tree_expand(arena, eight, 64);
    Forest forest;
    ck_assert(tree_forest(arena, root, 0, 32, &forest));
    ck_assert_int_eq(forest.n, 1);
    ck_assert_int_eq(forest.v[0]->count, 32);
    ck_assert(tree_forest(arena, root, 8, 32, &forest));
    ck_assert_int_eq(forest.n, 2);
    ck_assert(tree_forest(arena, root, 16, 16, &forest));
    ck_assert_int_eq(forest.n, 0);
    ck_assert(!tree_forest(arena, root, 0, 20, &forest));
    const Tree *lanes = part(TREE_LANES, 4, 8, leaf(TREE_CHAIN), JOIN_PAIRWISE, DT_F32);
    ck_assert(!tree_forest(arena, tree_expand(arena, lanes, 64), 0, 32, &forest));
    /* Whole leaves, but not in the tree's order: lane 0 holds 0..2 and 4..6. */
    const Tree *halves = part(TREE_SPLIT, 2, 0, leaf(TREE_CHAIN), JOIN_LEFT, DT_F32);
    const Tree *halved = part(TREE_LANES, 2, 2, halves, JOIN_LEFT, DT_F32);
    ck_assert(!tree_forest(arena, tree_expand(arena, halved, 8), 2, 4, &forest));
    ck_assert(!tree_forest(arena, tree_expand(arena, halved, 8), 4, 6, &forest));
    /* One run a lane is a contiguous part like any other. */
    ck_assert(tree_forest(arena, tree_expand(arena, lanes, 32), 0, 16, &forest));
    ck_assert_int_eq(forest.n, 1);
}
END_TEST

/* ---- properties ----------------------------------------------------------------------------- */

static u64 seed;

static i64 below(i64 n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (i64)((seed >> 33) % (u64)n);
}

static i64 divisor_of(i64 n)
{
    i64 d = 1 + below(n < 12 ? n : 12);
    while (n % d)
        d--;
    return d;
}

static const Tree *random_tree(i64 extent, int depth)
{
    static const TreeForm leaves[] = {TREE_MMA, TREE_CHAIN, TREE_CHAIN_ADD};
    if (depth == 0 || below(5) == 0)
        return leaf(leaves[below(3)]);
    DType type = below(4) ? DT_F32 : DT_BF16;
    JoinForm join = below(2) ? JOIN_PAIRWISE : JOIN_LEFT;
    i64 count, run;
    switch (below(5)) {
    case 0:
        return part(TREE_ROUND, 0, 0, random_tree(extent, depth - 1), JOIN_LEFT, type);
    case 1:
        count = 1 + below(extent + 3);
        return part(TREE_EVERY, count, 0, random_tree(count, depth - 1), join, type);
    case 2: /* lanes of equal length unless the inner tree takes any */
        run = 1 + below(4);
        count = 1 + below(6);
        return part(TREE_LANES, count, run,
                    extent % (count * run) ? leaf(TREE_CHAIN)
                                           : random_tree(extent / count, depth - 1),
                    join, type);
    default:
        count = divisor_of(extent);
        return part(TREE_SPLIT, count, 0, random_tree(extent / count, depth - 1), join, type);
    }
}

/* The value of a node as a digest of its whole subtree. */
static Digest value_of(const TreeNode *node)
{
    Text text = {.arena = arena};
    show_node(node, &text);
    return sha256(text.s, (size_t)text.n);
}

START_TEST(leaves_partition_the_extent)
{
    for (u64 start = 1; start < 400; start++) {
        seed = start;
        i64 extent = 1 + below(200);
        const Tree *tree = random_tree(extent, 3);
        ck_assert_msg(problem(tree, extent)[0] == 0, "%s over %d: %s", printed(tree),
                      (int)extent, problem(tree, extent));
        Forest leaves;
        u8 seen[256] = {0};
        tree_leaves(arena, tree_expand(arena, tree, extent), &leaves);
        for (int i = 0; i < leaves.n; i++)
            for (int j = 0; j < leaves.v[i]->n_runs; j++)
                for (i64 e = 0; e < leaves.v[i]->runs[j].len; e++)
                    seen[leaves.v[i]->runs[j].start + e]++;
        for (i64 e = 0; e < 256; e++)
            ck_assert_msg(seen[e] == (e < extent), "%s over %d: element %d %d times",
                          printed(tree), (int)extent, (int)e, seen[e]);
    }
}
END_TEST

static const char *replay(const JoinProgram *program, const Forest *roots)
{
    Str stack[256];
    int n = 0;
    const JoinOp *op = program->ops;
    for (int i = 0; i < roots->n; i++) {
        Text text = {.arena = arena};
        show_node(roots->v[i], &text);
        ck_assert_int_lt(n, program->depth);
        stack[n++] = text_str(&text);
        for (int j = 0; j < program->n_ops[i]; j++, op++) {
            const char *type = op->type == DT_F32 ? "" : dtype_name(op->type);
            if (op->kind == NODE_ROUND) {
                stack[n - 1] = str_format(arena, "%s[%.*s]", dtype_name(op->type),
                                          STR_FMT(stack[n - 1]));
                continue;
            }
            n--;
            stack[n - 1] = str_format(arena, "(%.*s %.*s)%s", STR_FMT(stack[n - 1]),
                                      STR_FMT(stack[n]), type);
        }
    }
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(op - program->ops, program->total_ops);
    return stack[0].s;
}

/* Cuts the extent at random legal places and rebuilds the whole from the ranks' roots. */
START_TEST(forests_and_their_program_rebuild_the_tree)
{
    int many = 0;
    for (u64 start = 1; start < 600; start++) {
        seed = start * 7919;
        i64 extent = 1 + below(200), lo = 0;
        const TreeNode *root = tree_expand(arena, random_tree(extent, 3), extent);
        Forest roots = {0}, forest;
        while (lo < extent) {
            i64 hi = lo + 1 + below(extent - lo);
            while (!tree_forest(arena, root, lo, hi, &forest))
                hi++;
            for (int i = 0; i < forest.n; i++)
                vec_push(arena, &roots, forest.v[i]);
            lo = hi;
        }
        JoinProgram program;
        ck_assert(tree_join_program(arena, root, &roots, &program));
        many += roots.n > 1;
        Digest rebuilt = sha256(replay(&program, &roots), strlen(replay(&program, &roots)));
        Digest whole = value_of(root);
        ck_assert(digest_eq(&rebuilt, &whole));
    }
    ck_assert_int_gt(many, 100);
}
END_TEST

START_TEST(programs_refuse_what_is_no_partition)
{
    const Tree *four = part(TREE_SPLIT, 4, 0, leaf(TREE_MMA), JOIN_PAIRWISE, DT_F32);
    const TreeNode *root = tree_expand(arena, four, 8);
    Forest leaves, less = {0}, swapped = {0};
    JoinProgram program;
    tree_leaves(arena, root, &leaves);
    for (int i = 0; i < 3; i++)
        vec_push(arena, &less, leaves.v[i]);
    ck_assert(!tree_join_program(arena, root, &less, &program));
    for (int i = 0; i < 4; i++)
        vec_push(arena, &swapped, leaves.v[i ^ 1]);
    ck_assert(!tree_join_program(arena, root, &swapped, &program));
    vec_push(arena, &leaves, leaves.v[0]);
    ck_assert(!tree_join_program(arena, root, &leaves, &program));
}
END_TEST

Suite *tree_suite(void)
{
    Suite *suite = suite_create("tree");
    TCase *tc = tcase_create("tree");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, bare_leaf_is_one_run);
    tcase_add_test(tc, split_joins_balanced_or_left);
    tcase_add_test(tc, join_type_rounds_its_operands);
    tcase_add_test(tc, written_parts_may_be_empty);
    tcase_add_test(tc, every_is_anchored_at_zero);
    tcase_add_test(tc, lanes_interleave_the_sequence);
    tcase_add_test(tc, vocabulary_sized_lanes_are_runs);
    tcase_add_test(tc, deep_left_joins_do_not_recurse);
    tcase_add_test(tc, text_is_canonical);
    tcase_add_test(tc, extent_problems_name_the_way_out);
    tcase_add_test(tc, free_axes_need_an_anchor);
    tcase_add_test(tc, cuts_own_whole_nodes);
    tcase_add_test(tc, leaves_partition_the_extent);
    tcase_add_test(tc, forests_and_their_program_rebuild_the_tree);
    tcase_add_test(tc, programs_refuse_what_is_no_partition);
    suite_add_tcase(suite, tc);
    return suite;
}
