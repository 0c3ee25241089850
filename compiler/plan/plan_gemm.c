/* GEMM: sums of products by `mma` that share one operand, columns in groups, and per group an
 * epilogue: everything above the sums. JOIN of roots that leave the ranks is here too. */
#include "plan_impl.h"

/* ---- sums ------------------------------------------------------------------------------------ */

static bool is_operand(const DagNode *node)
{
    return node->kind == DAG_INPUT && node->type != DT_F32;
}

static bool reduce_fits(Planner *planner, const DagNode *reduce)
{
    const DagNode *body = reduce->args[0], *first = planner->op->reduces.v[0];
    if (reduce->monoid != MONOID_SUM || !tree_is_mma(reduce->tree))
        return plan_misfit(planner, "its sums are not tensor-core sums (`mma`)");
    if (body->kind != DAG_MUL || !is_operand(body->args[0]) || !is_operand(body->args[1]))
        return plan_misfit(planner, "what it sums is not a product of two parameters: compute the "
                           "operand in an op of its own");
    for (int i = 0; i < reduce->n_atoms; i++)
        if (plan_atom(planner, reduce->atoms[i])->free)
            return plan_misfit(planner, "it sums over %s, whose length is known only at launch",
                               plan_axis_text(planner, reduce->atoms[i]));
    bool same = reduce->n_atoms == first->n_atoms;
    for (int i = 0; same && i < reduce->n_atoms; i++)
        same = reduce->atoms[i] == first->atoms[i];
    if (!same)
        return plan_misfit(planner, "its products sum over different axes");
    return plan_same_tree(planner->arena, reduce->tree, first->tree) ||
           plan_misfit(planner, "its products have different trees");
}

static bool has_free(const Planner *planner, u64 mask)
{
    for (int a = 0; a < planner->contract->n_atoms; a++)
        if ((mask >> a & 1) && plan_atom(planner, a)->free)
            return true;
    return false;
}

static bool result_is_free(const Planner *planner, const Atoms *result)
{
    return has_free(planner, atoms_mask(result));
}

static bool shared_by_all(const OpDag *op, const DagNode *operand)
{
    for (int i = 0; i < op->reduces.n; i++) {
        const DagNode *body = op->reduces.v[i]->args[0];
        if (body->args[0] != operand && body->args[1] != operand)
            return false;
    }
    return true;
}

/* The fix of an operand that is read where a token's slots stand. */
static const Fix *slots_fix(const OpDag *op, const DagNode *operand)
{
    for (int i = 0; i < operand->n_fixes; i++)
        if (operand->fixes[i].at < 0 && fix_tensor(op->op, &operand->fixes[i])->n_axes == 2)
            return &operand->fixes[i];
    return NULL;
}

/* The operand with the rows: shared by all products, and the one with the free axis if there is
 * one, else the one with the result's first axis. */
static const DagNode *choose_rows(Planner *planner)
{
    const OpDag *op = planner->op;
    const DagNode *body = op->reduces.v[0]->args[0], *chosen = NULL;
    Atoms result = plan_piece_atoms(planner, &op->pieces.v[0]);
    for (int i = 0; i < 2; i++) {
        const DagNode *operand = body->args[i];
        if (!shared_by_all(op, operand) || slots_fix(op, operand))
            continue;
        bool better = has_free(planner, operand->mask) ||
                      (result.n && (operand->mask >> result.v[0] & 1) &&
                       !(chosen && has_free(planner, chosen->mask)));
        if (!chosen || better)
            chosen = operand;
    }
    if (!chosen)
        plan_misfit(planner, "its products share no operand");
    else if (!has_free(planner, chosen->mask) && result_is_free(planner, &result)) {
        plan_misfit(planner, "the operand that its products share does not have the rows");
        return NULL;
    }
    return chosen;
}

static const DagNode *other_operand(const DagNode *reduce, const DagNode *rows)
{
    const DagNode *body = reduce->args[0];
    return body->args[0] == rows ? body->args[1] : body->args[0];
}

/* ---- dims ------------------------------------------------------------------------------------ */

static bool dim_of(Planner *planner, const Atoms *atoms, PlanDim *dim)
{
    if (atoms->n > MAX_TENSOR_AXES)
        return plan_misfit(planner, "a dimension has more than %d axes", MAX_TENSOR_AXES);
    dim->n_atoms = atoms->n;
    for (int i = 0; i < atoms->n; i++)
        dim->atoms[i] = atoms->v[i];
    return true;
}

static Atoms atoms_outside(const Atoms *all, u64 mask)
{
    Atoms rest = {0};
    for (int i = 0; i < all->n; i++)
        if (!(mask >> all->v[i] & 1))
            rest.v[rest.n++] = all->v[i];
    return rest;
}

static u64 dim_mask(const PlanDim *dim)
{
    u64 mask = 0;
    for (int i = 0; i < dim->n_atoms; i++)
        mask |= (u64)1 << dim->atoms[i];
    return mask;
}

static bool operand_dims(Planner *planner, Kernel *shape, int binding, const PlanDim *outer,
                         const PlanDim *k, bool *k_inner)
{
    const PlanDim dims[2] = {*outer, *k};
    Atoms view = plan_view(planner, &shape->bindings[binding]);
    if (!plan_match_dims(planner, &shape->bindings[binding], dims, 2))
        return false;
    if (shape->bindings[binding].coordinate >= 0)
        return plan_misfit(planner, "%.*s, an operand of a product, is indexed by position",
                           STR_FMT(plan_tensor(planner, &shape->bindings[binding])->name.text));
    *k_inner = !view.n || view.v[view.n - 1] == k->atoms[k->n_atoms - 1];
    return true;
}

/* The rows are those of the indices, tokens by slots, though a may have one row for each token. */
static bool grouped_rows(Planner *planner, Kernel *shape, const Fix *fix)
{
    Gemm *gemm = &shape->gemm;
    if (fix_is_result(fix))
        return plan_misfit(planner, "the indices of its weights are a result of the op: make two "
                           "ops of it");
    gemm->grouped = true;
    gemm->chosen = plan_bind(planner, shape, false, (int)~fix->at, NULL, 0, -1);
    if (gemm->chosen < 0)
        return false;
    Atoms all = plan_view(planner, &shape->bindings[gemm->chosen]);
    const PlanDim dims[3] = {{1, {all.v[0]}}, {1, {all.v[1]}}, gemm->k};
    Atoms a = plan_view(planner, &shape->bindings[gemm->a]);
    gemm->a_k_inner = a.n && a.v[a.n - 1] == gemm->k.atoms[gemm->k.n_atoms - 1];
    return dim_of(planner, &all, &gemm->rows) &&
           plan_match_dims(planner, &shape->bindings[gemm->chosen], dims, 2) &&
           plan_match_dims(planner, &shape->bindings[gemm->a], dims, 3) &&
           (shape->bindings[gemm->a].has[0] ||
            plan_misfit(planner, "the operand that its products share has no tokens"));
}

static bool rows_operand(Planner *planner, Kernel *shape, const DagNode *rows)
{
    Gemm *gemm = &shape->gemm;
    const DagNode *reduce = planner->op->reduces.v[0];
    gemm->k = (PlanDim){.n_atoms = reduce->n_atoms};
    if (reduce->n_atoms > MAX_TENSOR_AXES)
        return plan_misfit(planner, "it sums over more than %d axes", MAX_TENSOR_AXES);
    for (int i = 0; i < reduce->n_atoms; i++)
        gemm->k.atoms[i] = reduce->atoms[i];
    gemm->a = plan_bind(planner, shape, false, rows->param, rows->fixes, rows->n_fixes, -1);
    if (gemm->a < 0)
        return false;
    Atoms view = plan_view(planner, &shape->bindings[gemm->a]);
    Atoms own = atoms_outside(&view, dim_mask(&gemm->k));
    if (!own.n)
        return plan_misfit(planner, "the shared operand has no axis outside the sum");
    if (slots_fix(planner->op, other_operand(reduce, rows)))
        return grouped_rows(planner, shape, slots_fix(planner->op, other_operand(reduce, rows)));
    return dim_of(planner, &own, &gemm->rows) &&
           operand_dims(planner, shape, gemm->a, &gemm->rows, &gemm->k, &gemm->a_k_inner);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static u64 reduces_below(const OpDag *op, const DagNode *node, u8 *seen)
{
    u64 mask = 0;
    if (seen[node->number])
        return 0;
    seen[node->number] = 1;
    for (int i = 0; i < op->reduces.n; i++)
        if (op->reduces.v[i] == node)
            return (u64)1 << i;
    for (int i = 0; i < node->n_args; i++)
        mask |= reduces_below(op, node->args[i], seen);
    return mask;
}

static u64 reduces_of(Planner *planner, const DagPiece *piece)
{
    u8 *seen = arena_array(planner->arena, u8, piece->value->number + 1);
    return reduces_below(planner->op, piece->value, seen);
}

static bool add_product(Planner *planner, Kernel *shape, GemmGroup *group, const DagNode *reduce,
                        const DagNode *rows)
{
    const DagNode *columns = other_operand(reduce, rows);
    int b = plan_bind(planner, shape, false, columns->param, columns->fixes, columns->n_fixes, -1);
    if (b < 0)
        return false;
    if (shape->gemm.grouped && shape->bindings[b].lookup != shape->gemm.chosen)
        return plan_misfit(planner, "some products' weights are read at indices and others' are "
                           "not, or at others");
    Atoms view = plan_view(planner, &shape->bindings[b]);
    Atoms own = atoms_outside(&view, dim_mask(&shape->gemm.k));
    u64 batch = atoms_mask(&own) & dim_mask(&shape->gemm.rows);
    if (batch)
        return plan_misfit(planner, "both operands of a product have the axis %s outside the sum: "
                           "a product for each index of it",
                           plan_axis_text(planner, __builtin_ctzll(batch)));
    if (!own.n)
        return plan_misfit(planner, "%.*s has no axis outside the sum: a product with one column",
                           STR_FMT(plan_tensor(planner, &shape->bindings[b])->name.text));
    if (!group->n_products && !dim_of(planner, &own, &group->cols))
        return false;
    if (group->n_products == MAX_PRODUCTS)
        return plan_misfit(planner, "an epilogue joins more than %d products", MAX_PRODUCTS);
    GemmProduct *product = &group->product[group->n_products++];
    *product = (GemmProduct){.reduce = reduce, .b = b};
    return operand_dims(planner, shape, b, &group->cols, &shape->gemm.k, &product->b_k_inner);
}

static bool add_piece(Planner *planner, Kernel *shape, int g, const DagPiece *piece)
{
    GemmGroup *group = &shape->gemm.group[g];
    const OpDag *op = planner->op;
    const PlanDim dims[2] = {shape->gemm.rows, group->cols};
    int before = shape->n_bindings;
    if (!plan_bind_inputs(planner, shape, piece->value, op->reduces.v, op->reduces.n, g) ||
        plan_bind(planner, shape, true, piece->result, piece->fixes, piece->n_fixes, g) < 0)
        return false;
    for (int i = before; i < shape->n_bindings; i++) {
        Binding *binding = &shape->bindings[i];
        if (!plan_match_dims(planner, binding, dims, 2))
            return false;
        if (binding->coordinate >= 0)
            return plan_misfit(planner, "an epilogue cannot index %.*s by position",
                               STR_FMT(plan_tensor(planner, binding)->name.text));
        if (binding->result && !(binding->has[0] && binding->has[1]))
            return plan_misfit(planner, "%.*s does not have all axes of its product",
                               STR_FMT(plan_tensor(planner, binding)->name.text));
    }
    group->pieces[group->n_pieces++] = piece;
    return true;
}

/* Reduces that some piece uses together belong to one group. */
static int make_groups(const OpDag *op, const u64 *uses, u64 *groups)
{
    int n = 0;
    for (int i = 0; i < op->pieces.n; i++) {
        u64 mask = uses[i];
        int kept = 0, at = -1;
        for (int g = 0; g < n; g++) {
            bool meets = groups[g] & mask;
            if (meets && at < 0)
                at = kept;
            if (!meets || at == kept) {
                groups[kept++] = groups[g];
                continue;
            }
            groups[at] |= groups[g];
        }
        n = kept;
        if (at < 0)
            groups[at = n++] = 0;
        groups[at] |= mask;
    }
    return n;
}

static bool build_group(Planner *planner, Kernel *shape, int g, u64 reduces, const u64 *uses,
                        const DagNode *rows)
{
    const OpDag *op = planner->op;
    GemmGroup *group = &shape->gemm.group[g];
    group->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->reduces.n; i++)
        if ((reduces >> i & 1) &&
            !add_product(planner, shape, group, op->reduces.v[i], rows))
            return false;
    for (int i = 0; i < op->pieces.n; i++)
        if ((uses[i] & reduces) && !add_piece(planner, shape, g, &op->pieces.v[i]))
            return false;
    return true;
}

static int group_bindings(const Kernel *shape, int g, bool result)
{
    int n = 0;
    for (int i = 0; i < shape->n_bindings; i++)
        n += shape->bindings[i].group == g && shape->bindings[i].result == result;
    return n;
}

/* What one launch has room for. */
static bool launch_fits(Planner *planner, const Kernel *shape)
{
    const Gemm *gemm = &shape->gemm;
    const GemmGroup *first = &gemm->group[0];
    if (gemm->n_groups * first->n_products > MAX_MAPS)
        return plan_misfit(planner, "it has more than %d products", MAX_MAPS);
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        if (group->n_products != first->n_products)
            return plan_misfit(planner, "its results join different numbers of products");
        if (group_bindings(shape, g, false) > MAX_OPERANDS ||
            group_bindings(shape, g, true) > MAX_RESULTS)
            return plan_misfit(planner, "an epilogue reads over %d tensors or writes over %d",
                               MAX_OPERANDS, MAX_RESULTS);
        for (int p = 0; p < group->n_products; p++)
            if (group->product[p].b_k_inner != first->product[0].b_k_inner)
                return plan_misfit(planner, "some weights are stored with the summed axis "
                                   "innermost and others are not");
    }
    return true;
}

static bool groups_fit(Planner *planner, Kernel *shape, const DagNode *rows)
{
    const OpDag *op = planner->op;
    u64 *uses = arena_array(planner->arena, u64, op->pieces.n);
    u64 *groups = arena_array(planner->arena, u64, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++)
        if (!(uses[i] = reduces_of(planner, &op->pieces.v[i])))
            return plan_misfit(planner, "%.*s has no product",
                               STR_FMT(op->op->results[op->pieces.v[i].result].name.text));
    shape->gemm.n_groups = make_groups(op, uses, groups);
    if (shape->gemm.n_groups > MAX_GROUPS)
        return plan_misfit(planner, "its results make %d column groups; a kernel has at most %d",
                           shape->gemm.n_groups, MAX_GROUPS);
    for (int g = 0; g < shape->gemm.n_groups; g++)
        if (!build_group(planner, shape, g, groups[g], uses, rows))
            return false;
    return launch_fits(planner, shape);
}

bool plan_gemm(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    *shape = (Kernel){.family = FAMILY_GEMM, .op = op};
    if (!op->reduces.n)
        return plan_misfit(planner, "it has no sum of products");
    if (op->reduces.n > MAX_MAPS)
        return plan_misfit(planner, "it has more than %d products", MAX_MAPS);
    for (int i = 0; i < op->reduces.n; i++)
        if (!reduce_fits(planner, op->reduces.v[i]))
            return false;
    const DagNode *rows = choose_rows(planner);
    return rows && rows_operand(planner, shape, rows) && groups_fit(planner, shape, rows);
}

bool plan_gemm_product(Planner *planner, Kernel *shape)
{
    const DagNode *product = planner->op->reduces.v[0];
    const DagNode *rows = reduce_fits(planner, product) ? choose_rows(planner) : NULL;
    shape->gemm.n_groups = 1;
    return rows && rows_operand(planner, shape, rows) &&
           add_product(planner, shape, &shape->gemm.group[0], product, rows) &&
           launch_fits(planner, shape);
}

/* ---- one rank -------------------------------------------------------------------------------- */

void plan_forest_program(Arena *arena, const Forest *roots, const Forest *leaves_of_root,
                         JoinProgram *out)
{
    JoinProgram *part = arena_array(arena, JoinProgram, roots->n + 1);
    *out = (JoinProgram){0};
    for (int i = 0; i < roots->n; i++) {
        tree_join_program(arena, roots->v[i], &leaves_of_root[i], &part[i]);
        out->n_roots += part[i].n_roots;
        out->total_ops += part[i].total_ops;
        if (part[i].depth + i > out->depth)
            out->depth = part[i].depth + i;
    }
    out->n_ops = arena_array(arena, int, out->n_roots + 1);
    out->ops = arena_array(arena, JoinOp, out->total_ops + 1);
    for (int i = 0, n = 0, o = 0; i < roots->n; i++) {
        for (int k = 0; k < part[i].n_roots; k++)
            out->n_ops[n++] = part[i].n_ops[k];
        for (int k = 0; k < part[i].total_ops; k++)
            out->ops[o++] = part[i].ops[k];
    }
}

static bool add_leaf(Planner *planner, Gemm *gemm, const TreeNode *leaf, i64 base)
{
    if (leaf->n_runs != 1)
        return plan_misfit(planner, "a leaf of its tree is made of lanes");
    if (gemm->n_leaves == MAX_LEAVES)
        return plan_misfit(planner, "its tree has more than %d leaves", MAX_LEAVES);
    gemm->leaf_lo[gemm->n_leaves] = leaf->lo - base;
    gemm->leaf_hi[gemm->n_leaves++] = leaf->hi - base;
    return true;
}

/* Keeps the bindings of the products, or those of the epilogues; at: where each is now. */
static void keep_bindings(Kernel *kernel, bool epilogues, int *at)
{
    int n = kernel->n_bindings;
    kernel->n_bindings = 0;
    for (int i = 0; i < n; i++) {
        Binding binding = kernel->bindings[i];
        at[i] = kernel->n_bindings;
        bool chosen = epilogues && kernel->gemm.grouped && i == kernel->gemm.chosen;
        if ((binding.group >= 0) != epilogues && !chosen)
            continue;
        if (binding.lookup >= 0)
            binding.lookup = at[binding.lookup];
        kernel->bindings[kernel->n_bindings++] = binding;
    }
}

/* The products and their operands: what a rank runs when its roots leave it. */
static void keep_roots_only(Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    int at[MAX_BINDINGS];
    keep_bindings(kernel, false, at);
    gemm->a = at[gemm->a];
    gemm->chosen = at[gemm->chosen];
    for (int g = 0; g < gemm->n_groups; g++) {
        gemm->group[g].n_pieces = 0;
        gemm->group[g].pieces = NULL;
        for (int p = 0; p < gemm->group[g].n_products; p++)
            gemm->group[g].product[p].b = at[gemm->group[g].product[p].b];
    }
}

bool plan_gemm_rank(Planner *planner, const RankPlan *rank, Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    Forest roots = {0};
    layout_forest(planner->contract, planner->op->reduces.v[0], rank->roots[0], &rank->part, &roots,
                  planner->arena);
    Forest *leaves = arena_array(planner->arena, Forest, roots.n + 1);
    bool folds = gemm->fold.n_reduces > 0;
    gemm->n_roots = roots.n;
    gemm->roots_out = rank->roots_out && !folds;
    gemm->n_leaves = 0;
    for (int i = 0; i < roots.n; i++) {
        tree_leaves(planner->arena, roots.v[i], &leaves[i]);
        for (int k = 0; k < leaves[i].n; k++)
            if (!add_leaf(planner, gemm, leaves[i].v[k], roots.v[0]->lo))
                return false;
        gemm->root_leaves[i] = leaves[i].n;
    }
    plan_forest_program(planner->arena, &roots, leaves, &gemm->program);
    if (gemm->roots_out)
        keep_roots_only(kernel);
    return !folds || plan_fold_rank(planner, rank, kernel);
}

/* ---- join ------------------------------------------------------------------------------------ */

/* Keeps what the rest of the op touches. */
static bool join_operands(Planner *planner, const Kernel *shape, Kernel *join)
{
    if (shape->family == FAMILY_GEMM) {
        int at[MAX_BINDINGS];
        keep_bindings(join, true, at);
        join->gemm.chosen = at[join->gemm.chosen];
        join->gemm.a = -1;
        for (int g = 0; g < join->gemm.n_groups; g++)
            for (int p = 0; p < join->gemm.group[g].n_products; p++)
                join->gemm.group[g].product[p].b = -1;
        return true;
    }
    join->n_bindings = 0;
    const OpDag *op = planner->op;
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        if (!plan_bind_inputs(planner, join, piece->value, op->reduces.v, op->reduces.n, -1) ||
            plan_bind(planner, join, true, piece->result, piece->fixes, piece->n_fixes, -1) < 0)
            return false;
    }
    if (join->row.columns && !plan_bind_places(planner, join, op->reduces.v[0]))
        return false;
    for (int i = 0; i < join->n_bindings; i++)
        if (!plan_match_dims(planner, &join->bindings[i], join->dims, join->n_dims))
            return false;
    return true;
}

bool plan_join(Planner *planner, const Kernel *shape, const OpLayout *at,
               const TreeNode *const *roots, const int *sources, int n_sources, Kernel *join)
{
    Forest all = {0};
    if (n_sources > MAX_SOURCES)
        return plan_misfit(planner, "%d ranks share a sum; a join hears at most %d", n_sources,
                           MAX_SOURCES);
    if (shape->gemm.fold.n_reduces)
        return plan_fold_join(planner, shape, at, roots, sources, n_sources, join);
    *join = *shape;
    join->family = FAMILY_JOIN;
    join->join = (Join){.of = shape->family, .n_reduces = planner->op->reduces.n,
                        .reduces = planner->op->reduces.v, .n_sources = n_sources};
    join->join.roots_of_rank = arena_array(planner->arena, int, n_sources);
    for (int i = 0; i < n_sources; i++) {
        Part part;
        Forest own = {0};
        layout_part(planner->contract, at, sources[i], &part);
        layout_forest(planner->contract, planner->op->reduces.v[0], roots[0], &part, &own,
                      planner->arena);
        join->join.roots_of_rank[i] = own.n;
        for (int k = 0; k < own.n; k++)
            vec_push(planner->arena, &all, own.v[k]);
    }
    Run *runs = arena_array(planner->arena, Run, all.n + 1);
    for (int i = 0; i < all.n; i++)
        runs[i] = (Run){all.v[i]->lo, all.v[i]->hi - all.v[i]->lo};
    join->join.runs = runs;
    join->join.n_roots = all.n;
    tree_join_program(planner->arena, roots[0], &all, &join->join.program);
    return join_operands(planner, shape, join);
}
