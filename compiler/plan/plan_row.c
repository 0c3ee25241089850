/* ROW: every sum runs over the same innermost axes, by lanes inside contiguous parts; then the
 * pieces, over the whole row or once for it. */
#include "plan_impl.h"

enum {
    LANES_MAX = 1024,
    WARP = 32,
    SPREAD_THREADS = 256,
    CLUSTER_MAX = 8,
};

/* ---- the tree's shape ------------------------------------------------------------------------ */

static const Tree *below_rounds(const Tree *tree)
{
    while (tree->form == TREE_ROUND)
        tree = tree->child;
    return tree;
}

static bool is_chain(const Tree *tree)
{
    return tree->form == TREE_CHAIN || tree->form == TREE_CHAIN_ADD;
}

bool plan_row_tree_fits(Planner *planner, const Tree *tree)
{
    const Tree *at = below_rounds(tree);
    while (at->form == TREE_SPLIT || at->form == TREE_EVERY)
        at = below_rounds(at->child);
    if (is_chain(at))
        return true;
    if (at->form == TREE_MMA)
        return plan_misfit(planner, "it sums by `mma`, which is for products");
    if (at->count > LANES_MAX || (at->count & (at->count - 1)))
        return plan_misfit(planner, "%lld lanes: a row has a power of two of them, up to %d",
                           (long long)at->count, LANES_MAX);
    return is_chain(at->child) ||
           plan_misfit(planner, "its lanes hold more than a chain each");
}

/* ---- shape ----------------------------------------------------------------------------------- */

static bool same_axes(const DagNode *a, const DagNode *b)
{
    if (a->n_atoms != b->n_atoms)
        return false;
    for (int i = 0; i < a->n_atoms; i++)
        if (a->atoms[i] != b->atoms[i])
            return false;
    return true;
}

static bool reduces_fit(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    if (!op->reduces.n)
        return plan_misfit(planner, "it has no sum: it is a map");
    shape->row.n_reduces = op->reduces.n;
    shape->row.reduces = op->reduces.v;
    for (int i = 0; i < op->reduces.n; i++) {
        const DagNode *reduce = op->reduces.v[i];
        if (reduce->n_fixes)
            return plan_misfit(planner, "it sums the slots of %s at their places",
                               plan_axis_text(planner, reduce->slots));
        if (!same_axes(reduce, op->reduces.v[0]))
            return plan_misfit(planner, "its sums run over different axes");
        for (int k = 0; k < reduce->n_atoms; k++)
            if (plan_atom(planner, reduce->atoms[k])->free)
                return plan_misfit(planner, "it sums over %s, whose length is known only at launch",
                                   plan_axis_text(planner, reduce->atoms[k]));
        if (!plan_row_tree_fits(planner, reduce->tree))
            return false;
    }
    return true;
}

static u64 mask_of(const int *atoms, int n)
{
    u64 mask = 0;
    for (int i = 0; i < n; i++)
        mask |= (u64)1 << atoms[i];
    return mask;
}

/* Axes outside the sum, in the order of the first result. */
static Atoms outer_atoms(const Planner *planner, u64 inner)
{
    Atoms own = plan_piece_atoms(planner, &planner->op->pieces.v[0]), outer = {0};
    for (int i = 0; i < own.n; i++)
        if (!(inner >> own.v[i] & 1))
            outer.v[outer.n++] = own.v[i];
    return outer;
}

static bool piece_fits(Planner *planner, const DagPiece *piece, const Atoms *outer, u64 inner)
{
    Atoms own = plan_piece_atoms(planner, piece);
    u64 mask = atoms_mask(&own), rest = mask & ~inner;
    if (rest == atoms_mask(outer) && ((mask & inner) == inner || !(mask & inner)))
        return true;
    return plan_misfit(planner, "%.*s has neither the summed axes beside the outer ones nor the "
                       "outer ones alone",
                       STR_FMT(planner->op->op->results[piece->result].name.text));
}

bool plan_row(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    *shape = (Kernel){.family = FAMILY_ROW, .op = op, .n_pieces = op->pieces.n};
    if (!reduces_fit(planner, shape))
        return false;
    const DagNode *first = op->reduces.v[0];
    u64 inner = mask_of(first->atoms, first->n_atoms);
    Atoms space = outer_atoms(planner, inner), outer = space;
    shape->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        shape->pieces[i] = piece;
        if (!piece_fits(planner, piece, &outer, inner) ||
            !plan_bind_inputs(planner, shape, piece->value, NULL, 0, -1) ||
            plan_bind(planner, shape, true, piece->result, piece->fixes, piece->n_fixes, -1) < 0)
            return false;
    }
    for (int i = 0; i < first->n_atoms; i++)
        space.v[space.n++] = first->atoms[i];
    return plan_bind_slots(planner, shape) &&
           plan_make_dims(planner, shape, &space, first->n_atoms);
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The value of a part, before what splits and rounds above it make of it. One lane alone is
 * rounded to the lanes' type, which is the lanes' own doing. */
static const TreeNode *node_of(Arena *arena, const TreeNode *root, const RowTree *tree, Run run)
{
    Forest forest = {0};
    bool keeps = tree->lanes > 1 && tree->lane_type != DT_F32;
    tree_forest(arena, root, run.start, run.start + run.len, &forest);
    const TreeNode *node = forest.v[0];
    while (node->kind == NODE_ROUND && !(keeps && node->left->kind == NODE_LEAF))
        node = node->left;
    return node;
}

static void row_program(Arena *arena, const TreeNode *root, const Forest *roots,
                        const Runs *parts, RowTree *out)
{
    Forest *below = arena_array(arena, Forest, roots->n + 1);
    for (int i = 0, p = 0; i < roots->n; i++)
        for (; p < parts->n && parts->v[p].start < roots->v[i]->hi; p++)
            if (parts->v[p].start >= roots->v[i]->lo)
                vec_push(arena, &below[i], node_of(arena, root, out, parts->v[p]));
    plan_forest_program(arena, roots, below, &out->program);
}

void plan_row_tree(Arena *arena, const DagNode *reduce, const TreeNode *root, const Forest *roots,
                   RowTree *out)
{
    Runs all = {0}, own = {0};
    const Tree *leaf = below_rounds(reduce->tree);
    i64 lo = roots->n ? roots->v[0]->lo : 0, hi = roots->n ? roots->v[roots->n - 1]->hi : 0;
    while (leaf->form == TREE_SPLIT || leaf->form == TREE_EVERY)
        leaf = below_rounds(leaf->child);
    tree_parts(arena, reduce->tree, root->hi, &all);
    for (int i = 0; i < all.n; i++)
        if (all.v[i].start >= lo && all.v[i].start < hi)
            vec_push(arena, &own, all.v[i]);
    Run *relative = arena_array(arena, Run, own.n + 1);
    for (int i = 0; i < own.n; i++)
        relative[i] = (Run){own.v[i].start - lo, own.v[i].len};
    out->n_parts = own.n;
    out->parts = relative;
    out->form = is_chain(leaf) ? leaf->form : leaf->child->form;
    out->lanes = is_chain(leaf) ? 1 : (int)leaf->count;
    out->run = is_chain(leaf) ? 1 : leaf->run;
    out->lane_join = leaf->join;
    out->lane_type = is_chain(leaf) ? DT_F32 : leaf->type;
    row_program(arena, root, roots, &own, out);
}

/* ---- many short parts ------------------------------------------------------------------------ */

/* The pairwise join of n values, each of them this text. */
static void pairwise_text(Text *out, int n, Str value)
{
    int left = 1;
    if (n == 1) {
        text_add(out, value);
        return;
    }
    while (left * 2 < n)
        left *= 2;
    pairwise_text(out, left, value);
    pairwise_text(out, n - left, value);
    text_add(out, STR("+"));
}

bool plan_joins_spans(Arena *arena, int spans, int of_span, const JoinProgram *program)
{
    Text span = {.arena = arena}, all = {.arena = arena};
    pairwise_text(&span, of_span, STR("L"));
    pairwise_text(&all, spans, text_str(&span));
    return str_eq(text_str(&all), postfix_text(arena, program, false, 1));
}

static bool parts_are_spans(const RowTree *tree)
{
    for (int i = 0; i < tree->n_parts; i++) {
        int span = i / tree->of_span;
        i64 start = span * tree->span + i % tree->of_span * tree->step;
        i64 end = span == tree->spans - 1 ? row_tree_end(tree) : (span + 1) * tree->span;
        i64 left = end - start;
        if (left < 1 || tree->parts[i].start != start ||
            tree->parts[i].len != (left < tree->step ? left : tree->step))
            return false;
    }
    return true;
}

/* A span ends where a part does not begin a step after the one before. */
void plan_row_spans(RowTree *tree)
{
    const Run *parts = tree->parts;
    int n = 1;
    if (!tree->n_parts || tree->lanes < 2 || tree->lanes > WARP ||
        tree->lane_join == JOIN_LEFT || tree->lane_type != DT_F32)
        return;
    tree->step = parts[0].len;
    while (n < tree->n_parts && parts[n].start == n * tree->step &&
           parts[n - 1].len == tree->step)
        n++;
    tree->of_span = n;
    tree->span = parts[n - 1].start + parts[n - 1].len;
    tree->spans = tree->n_parts % n ? 0 : tree->n_parts / n;
    if (tree->spans && !parts_are_spans(tree))
        tree->spans = 0;
}

/* Parts that are all full look like one span: as many as the program joins so. */
static void divide_span(Arena *arena, RowTree *tree)
{
    int spans = 1;
    while (spans <= tree->n_parts &&
           (tree->n_parts % spans ||
            !plan_joins_spans(arena, spans, tree->n_parts / spans, &tree->program)))
        spans++;
    tree->spans = spans <= tree->n_parts ? spans : 0;
    tree->of_span = tree->spans ? tree->n_parts / spans : 0;
    tree->span = tree->of_span * tree->step;
}

static void find_spans(Arena *arena, RowTree *tree)
{
    if ((i64)tree->n_parts * tree->lanes >= SPREAD_THREADS)
        plan_row_spans(tree);
    if (tree->spans == 1)
        divide_span(arena, tree);
    else if (tree->spans &&
             !plan_joins_spans(arena, tree->spans, tree->of_span, &tree->program))
        tree->spans = 0;
}

/* Whether every value that is stored is one of the whole row, of one sum: it is then enough that
 * one CTA knows the sum. */
static bool one_knows(const Kernel *kernel)
{
    const Row *row = &kernel->row;
    u64 inner = mask_of(row->reduces[0]->atoms, row->reduces[0]->n_atoms);
    for (int i = 0; i < kernel->n_pieces; i++)
        if (kernel->pieces[i]->value->mask & inner)
            return false;
    return row->n_reduces == 1;
}

static void spread_row(Kernel *kernel, i64 rows)
{
    Row *row = &kernel->row;
    i64 lanes = (i64)row->trees[0].n_parts * row->trees[0].lanes;
    row->cluster = 1;
    row->spread = kernel->family == FAMILY_ROW;
    for (int i = 0; i < row->n_reduces; i++)
        row->spread = row->spread && row->trees[i].spans;
    if (!row->spread)
        return;
    row->threads = SPREAD_THREADS;
    while (one_knows(kernel) && rows <= ROW_CLUSTER_ROWS && row->cluster < CLUSTER_MAX &&
           2 * row->cluster * SPREAD_THREADS <= lanes)
        row->cluster *= 2;
}

bool plan_row_rank(Planner *planner, const RankPlan *rank, Kernel *kernel)
{
    Row *row = &kernel->row;
    row->trees = arena_array(planner->arena, RowTree, row->n_reduces);
    row->roots_out = rank->roots_out;
    if (row->columns && rank->roots_out &&
        !(row->reduces[0]->mask >> kernel->dims[kernel->n_dims - 2].atoms[0] & 1))
        return plan_misfit(planner, "its sum is the same for all of %s",
                           plan_axis_text(planner, kernel->dims[kernel->n_dims - 2].atoms[0]));
    row->threads = WARP;
    for (int i = 0; i < row->n_reduces; i++) {
        Forest roots = {0};
        layout_forest(planner->contract, row->reduces[i], rank->roots[i], &rank->part, &roots,
                      planner->arena);
        plan_row_tree(planner->arena, row->reduces[i], rank->roots[i], &roots,
                      &row->trees[i]);
        row->n_roots = roots.n;
        if (row->trees[i].lanes > row->threads)
            row->threads = row->trees[i].lanes;
        if (roots.n == 1)
            find_spans(planner->arena, &row->trees[i]);
    }
    if (kernel->family == FAMILY_TOP || row->columns)
        row->threads = WARP;
    if (rank->roots_out) {
        kernel->n_pieces = 0;
        kernel->pieces = NULL;
        Kernel whole = *kernel;
        kernel->n_bindings = 0;
        if (!plan_bind_inputs(planner, kernel, row->reduces[0], NULL, 0, -1))
            return false;
        for (int i = 0; i < kernel->n_bindings; i++)
            if (!plan_match_dims(planner, &kernel->bindings[i], whole.dims, whole.n_dims))
                return false;
    }
    spread_row(kernel, rank->rows);
    return true;
}
