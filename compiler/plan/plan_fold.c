/* Products whose columns do not leave their kernel but are reduced there: a part of the trees over
 * the columns is what one tile has of a row, and leaves as a root. A row kernel joins the roots of
 * all ranks and finishes the op. */
#include "plan_impl.h"

enum { FOLD_LANES_MAX = 16, FOLD_RUN = 2, FOLD_REDUCES = 4 };

/* ---- shape ----------------------------------------------------------------------------------- */

static bool below(const DagNode *node, const DagNode *wanted)
{
    if (node == wanted)
        return true;
    for (int i = 0; i < node->n_args; i++)
        if (below(node->args[i], wanted))
            return true;
    return false;
}

static bool reads_outside(const DagNode *node, const DagNode *product)
{
    if (node->kind == DAG_REDUCE)
        return node == product;
    for (int i = 0; i < node->n_args; i++)
        if (reads_outside(node->args[i], product))
            return true;
    return false;
}

/* One product, and reductions of its columns by one tree. */
static bool reduces_fit(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    const DagNode *product = op->reduces.n ? op->reduces.v[0] : NULL;
    Fold *fold = &shape->gemm.fold;
    if (op->reduces.n < 2 || !tree_is_mma(product->tree))
        return false; /* nothing of this kind */
    fold->n_reduces = op->reduces.n - 1;
    fold->reduces = op->reduces.v + 1;
    if (fold->n_reduces > FOLD_REDUCES)
        return plan_misfit(planner, "it reduces a product's columns more than %d times",
                           FOLD_REDUCES);
    for (int i = 0; i < fold->n_reduces; i++) {
        const DagNode *reduce = fold->reduces[i];
        if (tree_is_mma(reduce->tree) || !dag_folds(reduce) || !below(reduce->args[0], product))
            return false;
        if (!plan_same_tree(planner->arena, reduce->tree, fold->reduces[0]->tree))
            return plan_misfit(planner, "its reductions have different trees");
        for (int k = 0; k < fold->n_reduces; k++)
            if (k != i && below(reduce->args[0], fold->reduces[k]))
                return plan_misfit(planner, "one of its reductions needs another's value");
    }
    for (int i = 0; i < op->pieces.n; i++)
        if (reads_outside(op->pieces.v[i].value, product))
            return plan_misfit(planner, "%.*s reads the product itself",
                               STR_FMT(op->op->results[op->pieces.v[i].result].name.text));
    return true;
}

/* The reduced axes are the columns; what the bodies read beside the product has a value a row. */
static bool columns_fit(Planner *planner, Kernel *shape)
{
    const Gemm *gemm = &shape->gemm;
    const PlanDim dims[2] = {gemm->rows, gemm->group[0].cols};
    const DagNode *const product[] = {planner->op->reduces.v[0]};
    int before = shape->n_bindings;
    for (int i = 0; i < gemm->fold.n_reduces; i++) {
        const DagNode *reduce = gemm->fold.reduces[i];
        bool same = reduce->n_atoms == dims[1].n_atoms;
        for (int k = 0; same && k < reduce->n_atoms; k++)
            same = reduce->atoms[k] == dims[1].atoms[k];
        if (!same)
            return plan_misfit(planner, "its reductions are not over its product's columns");
        if (!plan_bind_inputs(planner, shape, reduce->args[0], product, 1, 0))
            return false;
    }
    for (int i = before; i < shape->n_bindings; i++) {
        Binding *binding = &shape->bindings[i];
        if (!plan_match_dims(planner, binding, dims, 2))
            return false;
        if (binding->has[1] || binding->coordinate >= 0)
            return plan_misfit(planner, "it reads %.*s for each column, or by position",
                               STR_FMT(plan_tensor(planner, binding)->name.text));
    }
    return true;
}

static bool pieces_fit(Planner *planner, const Kernel *shape)
{
    const OpDag *op = planner->op;
    Atoms rows = {.n = shape->gemm.rows.n_atoms};
    for (int i = 0; i < rows.n; i++)
        rows.v[i] = shape->gemm.rows.atoms[i];
    for (int i = 0; i < op->pieces.n; i++) {
        Atoms own = plan_piece_atoms(planner, &op->pieces.v[i]);
        if (!atoms_equal(&own, &rows))
            return plan_misfit(planner, "%.*s does not have the product's rows alone",
                               STR_FMT(op->op->results[op->pieces.v[i].result].name.text));
    }
    return true;
}

bool plan_fold(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    *shape = (Kernel){.family = FAMILY_GEMM, .op = op};
    if (!reduces_fit(planner, shape))
        return false;
    OpDag product = *op;
    product.reduces.n = 1;
    Planner alone = *planner;
    alone.op = &product;
    bool fits = plan_gemm_product(&alone, shape);
    planner->reason = alone.reason;
    return fits && columns_fit(planner, shape) && pieces_fit(planner, shape);
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* A tile's columns are one part, its lanes those that threads have neighbouring columns of. */
static bool tree_fits(Planner *planner, const RowTree *tree)
{
    if (tree->spans && tree->step == FOLD_COLUMNS && tree->run == FOLD_RUN &&
        tree->lanes >= 4 && tree->lanes <= FOLD_LANES_MAX)
        return true;
    return plan_misfit(planner, "the parts of its reductions' tree are not %d columns, in 4, 8 or "
                       "16 lanes by %d that are joined pairwise in f32", FOLD_COLUMNS, FOLD_RUN);
}

bool plan_fold_rank(Planner *planner, const RankPlan *rank, Kernel *kernel)
{
    Fold *fold = &kernel->gemm.fold;
    fold->trees = arena_array(planner->arena, RowTree, fold->n_reduces);
    fold->values = 0;
    for (int i = 0; i < fold->n_reduces; i++) {
        Forest roots = {0};
        layout_forest(planner->contract, fold->reduces[i], rank->roots[i + 1], &rank->part, &roots,
                      planner->arena);
        plan_row_tree(planner->arena, fold->reduces[i], rank->roots[i + 1], &roots,
                      &fold->trees[i]);
        plan_row_spans(&fold->trees[i]);
        fold->n_roots = roots.n;
        fold->values += monoid_values(fold->reduces[i]->monoid);
        if (!tree_fits(planner, &fold->trees[i]))
            return false;
    }
    if (kernel->gemm.n_leaves != 1)
        return plan_misfit(planner, "its product is not one chain of `mma`");
    return true;
}

/* ---- join ------------------------------------------------------------------------------------ */

static bool join_dims(Planner *planner, const Gemm *gemm, Kernel *join)
{
    const OpDag *op = planner->op;
    Atoms space = {0};
    join->n_pieces = op->pieces.n;
    join->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        join->pieces[i] = piece;
        if (!plan_bind_inputs(planner, join, piece->value, op->reduces.v, op->reduces.n, -1) ||
            plan_bind(planner, join, true, piece->result, piece->fixes, piece->n_fixes, -1) < 0)
            return false;
    }
    for (int i = 0; i < gemm->rows.n_atoms; i++)
        space.v[space.n++] = gemm->rows.atoms[i];
    for (int i = 0; i < gemm->group[0].cols.n_atoms; i++)
        space.v[space.n++] = gemm->group[0].cols.atoms[i];
    return plan_make_dims(planner, join, &space, gemm->group[0].cols.n_atoms);
}

bool plan_fold_join(Planner *planner, const Kernel *shape, const OpLayout *at,
                    const TreeNode *const *roots, const int *sources, int n_sources, Kernel *out)
{
    const Fold *fold = &shape->gemm.fold;
    const DagNode *reduce = fold->reduces[0];
    Forest all = {0};
    RowTree tree;
    *out = (Kernel){.family = FAMILY_JOIN, .op = planner->op};
    Join *join = &out->join;
    *join = (Join){.of = FAMILY_ROW, .folds = true, .n_reduces = fold->n_reduces,
                   .reduces = fold->reduces, .n_sources = n_sources};
    join->roots_of_rank = arena_array(planner->arena, int, n_sources);
    for (int i = 0; i < n_sources; i++) {
        Part part;
        Forest own = {0};
        layout_part(planner->contract, at, sources[i], &part);
        layout_forest(planner->contract, reduce, roots[1], &part, &own, planner->arena);
        join->roots_of_rank[i] = own.n;
        for (int k = 0; k < own.n; k++)
            vec_push(planner->arena, &all, own.v[k]);
    }
    join->n_roots = all.n;
    tree_join_program(planner->arena, roots[1], &all, &join->program);
    plan_row_tree(planner->arena, reduce, roots[1], &all, &tree);
    plan_row_spans(&tree);
    join->spans = tree.spans;
    join->of_span = tree.of_span;
    if (!tree.spans ||
        !plan_joins_spans(planner->arena, tree.spans, tree.of_span, &join->program))
        return plan_misfit(planner, "the parts of its reductions' tree are not joined pairwise");
    return join_dims(planner, &shape->gemm, out);
}
