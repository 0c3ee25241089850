/* A tree drawn with box characters; what repeats is said once. */
#include "explain_impl.h"

enum { WHOLE_LEAVES = 16, SHOWN_DEPTH = 2, LISTED = 9, LISTED_ENDS = 3 };

#define TEE "\xe2\x94\x9c\xe2\x94\x80 "
#define CORNER "\xe2\x94\x94\xe2\x94\x80 "
#define BAR "\xe2\x94\x82  "

typedef struct Drawing {
    const TreeDrawing *of;
    int leaf; /* number of the next leaf */
    int leaves;
    int next_root;
} Drawing;

static bool is_owned(const Drawing *draw, const TreeNode *node)
{
    const OwnedRoots *owned = draw->of->owned;
    return draw->next_root < owned->n && owned->v[draw->next_root].node == node;
}

static int count_leaves(const Drawing *draw, const TreeNode *node)
{
    Forest leaves;
    tree_leaves(draw->of->arena, node, &leaves);
    return leaves.n;
}

/* ---- leaves --------------------------------------------------------------------------------- */

Str explain_elements(Arena *arena, const TreeNode *node)
{
    const Run *runs = node->runs;
    if (node->kind != NODE_LEAF || node->n_runs == 1)
        return str_format(arena, "%lld..%lld", (long long)node->lo, (long long)node->hi);
    i64 step = runs[1].start - runs[0].start;
    int even = 1;
    while (even < node->n_runs && runs[even].len == runs[0].len &&
           runs[even].start - runs[even - 1].start == step)
        even++;
    if (even >= node->n_runs - 1) /* the last may be short */
        return str_format(arena, "%d runs of %lld from %lld by %lld%s", node->n_runs,
                          (long long)runs[0].len, (long long)runs[0].start, (long long)step,
                          even == node->n_runs ? "" : ", the last short");
    return str_format(arena, "%d runs from %lld to %lld", node->n_runs, (long long)node->lo,
                      (long long)node->hi);
}

static void mma_steps(const FdpaClass *numerics, i64 count, Text *out)
{
    i64 steps = (count + numerics->group - 1) / numerics->group, rest = count % numerics->group;
    text_printf(out, "%lld step%s of %d", (long long)steps, steps == 1 ? "" : "s",
                numerics->group);
    if (rest)
        text_printf(out, ", the last filled with %d zeros", numerics->group - (int)rest);
}

static void leaf_arithmetic(const Drawing *draw, const TreeNode *leaf, Text *out)
{
    const DagNode *reduce = draw->of->reduce;
    bool product = reduce->monoid == MONOID_SUM && reduce->args[0]->kind == DAG_MUL;
    const char *join = reduce->monoid == MONOID_SUM ? "add" : monoid_name(reduce->monoid);
    i64 n = leaf->count;
    if (leaf->leaf == TREE_MMA)
        mma_steps(draw->of->contract->numerics, n, out);
    else if (product && leaf->leaf == TREE_CHAIN)
        text_printf(out, "1 mul, %lld fma", (long long)(n - 1));
    else
        text_printf(out, "%lld %s", (long long)(n - 1), join);
}

static const char *leaf_name(TreeForm form)
{
    return form == TREE_MMA ? "mma" : form == TREE_CHAIN ? "chain" : "chain add";
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void draw_node(Drawing *draw, const TreeNode *node, Str margin, int depth);

static void draw_owner(Drawing *draw, const TreeNode *node)
{
    Text *out = draw->of->out;
    if (is_owned(draw, node)) {
        const OwnedRoot *root = &draw->of->owned->v[draw->next_root];
        text_printf(out, "   <- rank%s %.*s", root->n > 1 ? "s" : "", STR_FMT(root->ranks));
        draw->next_root++;
    }
    text_printf(out, "\n");
}

/* The children of a join in one list: two, or more where joins go left to right. That is down a
 * left spine as far as no part is larger than the first. */
static void list_children(const Drawing *draw, const TreeNode *node, Forest *children)
{
    Arena *arena = draw->of->arena;
    const TreeNode *at = node, *first = node->left;
    Forest spine = {0};
    i64 largest = 0;
    int listed = 1;
    do {
        vec_push(arena, &spine, at);
        largest = at->right->count > largest ? at->right->count : largest;
        at = at->left;
        if (at->count >= largest) {
            first = at;
            listed = spine.n;
        }
    } while (at->kind == NODE_JOIN && at->type == node->type && !is_owned(draw, at));
    *children = (Forest){0};
    vec_push(arena, children, first);
    while (listed-- > 0)
        vec_push(arena, children, spine.v[listed]->right);
}

static void skip_children(Drawing *draw, const Forest *children, int from, int to, Str margin)
{
    const OwnedRoots *owned = draw->of->owned;
    i64 hi = children->v[to - 1]->hi;
    int leaves = 0;
    for (int i = from; i < to; i++)
        leaves += count_leaves(draw, children->v[i]);
    while (draw->next_root < owned->n && owned->v[draw->next_root].node->hi <= hi)
        draw->next_root++;
    text_printf(draw->of->out, "%.*s" BAR "... %d more: leaves %d..%d, elements %lld..%lld\n",
                STR_FMT(margin), to - from, draw->leaf, draw->leaf + leaves,
                (long long)children->v[from]->lo, (long long)hi);
    draw->leaf += leaves;
}

static void draw_children(Drawing *draw, const Forest *children, Str margin, int depth)
{
    for (int i = 0; i < children->n; i++) {
        if (children->n > LISTED && i == LISTED_ENDS) {
            skip_children(draw, children, i, children->n - 1, margin);
            i = children->n - 1;
        }
        bool last = i == children->n - 1;
        text_printf(draw->of->out, "%.*s%s", STR_FMT(margin), last ? CORNER : TEE);
        Str inner = str_format(draw->of->arena, "%.*s%s", STR_FMT(margin), last ? "   " : BAR);
        draw_node(draw, children->v[i], inner, depth + 1);
    }
}

static void draw_leaf(Drawing *draw, const TreeNode *leaf)
{
    Text *out = draw->of->out;
    Str elements = explain_elements(draw->of->arena, leaf);
    text_printf(out, "leaf %d: %s %.*s (", draw->leaf++, leaf_name(leaf->leaf),
                STR_FMT(elements));
    leaf_arithmetic(draw, leaf, out);
    text_printf(out, ")");
    draw_owner(draw, leaf);
}

/* True where the left subtree always has the largest power of two of leaves below the whole. */
static bool is_balanced(const Drawing *draw, const TreeNode *node, int leaves)
{
    if (leaves == 1)
        return node->kind == NODE_LEAF;
    int left = 1;
    while (left * 2 < leaves)
        left *= 2;
    return node->kind == NODE_JOIN && count_leaves(draw, node->left) == left &&
           is_balanced(draw, node->left, left) &&
           is_balanced(draw, node->right, leaves - left);
}

/* A subtree in one line, where the whole has too many leaves to be drawn. */
static void draw_summary(Drawing *draw, const TreeNode *node)
{
    Text *out = draw->of->out;
    Forest leaves;
    tree_leaves(draw->of->arena, node, &leaves);
    const TreeNode *first = leaves.v[0];
    text_printf(out, "leaves %d..%d, %s, %sin %s; leaf %d: %.*s (", draw->leaf,
                draw->leaf + leaves.n, leaf_name(first->leaf),
                is_balanced(draw, node, leaves.n) ? "pairwise " : "joined ",
                dtype_name(node->type), draw->leaf,
                STR_FMT(explain_elements(draw->of->arena, first)));
    leaf_arithmetic(draw, first, out);
    text_printf(out, ")");
    draw->leaf += leaves.n;
    draw_owner(draw, node);
}

static void draw_join(Drawing *draw, const TreeNode *node, const Forest *children)
{
    Monoid monoid = draw->of->reduce->monoid;
    text_printf(draw->of->out, "%s in %s%s", monoid == MONOID_SUM ? "add" : monoid_name(monoid),
                dtype_name(node->type), children->n > 2 ? ", left to right" : "");
    draw_owner(draw, node);
}

static void draw_node(Drawing *draw, const TreeNode *node, Str margin, int depth)
{
    Forest children;
    if (node->kind == NODE_LEAF) {
        draw_leaf(draw, node);
        return;
    }
    bool closed = draw->of->owned->n ? is_owned(draw, node) : depth > SHOWN_DEPTH;
    if (draw->leaves > WHOLE_LEAVES && closed) {
        draw_summary(draw, node);
        return;
    }
    if (node->kind == NODE_ROUND) {
        text_printf(draw->of->out, "round to %s", dtype_name(node->type));
        draw_owner(draw, node);
        children = (Forest){0};
        vec_push(draw->of->arena, &children, node->left);
    } else {
        list_children(draw, node, &children);
        draw_join(draw, node, &children);
    }
    draw_children(draw, &children, margin, depth);
}

void explain_tree(const TreeDrawing *drawing)
{
    Drawing draw = {.of = drawing};
    draw.leaves = count_leaves(&draw, drawing->root);
    text_printf(drawing->out, "    ");
    draw_node(&draw, drawing->root, STR("    "), 0);
}
