/* ROW over a token's slots, for many columns side by side: every sum runs over the same slots, in
 * their own order or at their places. */
#include "plan_impl.h"

enum { SLOTS_MAX = 32, OPS_MAX = 31 }; /* a warp's lanes have them, and one root is another */

/* -1: the reduce sums no slots. */
static int slots_of(Planner *planner, const DagNode *reduce)
{
    int n;
    const int *summed = dag_summed(reduce, &n);
    return n == 1 && plan_atom(planner, summed[0])->sparse_of ? summed[0] : -1;
}

/* The slots that all sums run over. An op that sums none is told nothing. */
static bool find_slots(Planner *planner, int *slots)
{
    const OpDag *op = planner->op;
    *slots = -1;
    for (int i = 0; i < op->reduces.n && *slots < 0; i++)
        *slots = slots_of(planner, op->reduces.v[i]);
    if (*slots < 0)
        return false;
    for (int i = 0; i < op->reduces.n; i++)
        if (slots_of(planner, op->reduces.v[i]) != *slots)
            return plan_misfit(planner, "it sums over other axes than %s too",
                               plan_axis_text(planner, *slots));
    return plan_atom(planner, *slots)->size <= SLOTS_MAX ||
           plan_misfit(planner, "it sums %lld slots, and a warp has %d",
                       (long long)plan_atom(planner, *slots)->size, SLOTS_MAX);
}

/* Joins and roundings. */
static int count_ops(const TreeNode *node)
{
    int n = 0;
    for (; node->kind != NODE_LEAF && n <= OPS_MAX; node = node->left)
        n += 1 + (node->kind == NODE_JOIN ? count_ops(node->right) : 0);
    return n;
}

static bool tree_fits(Planner *planner, const DagNode *reduce)
{
    const Tree *leaf = reduce->tree;
    i64 places = reduce_extent(planner->contract, reduce);
    while (leaf->form == TREE_ROUND || leaf->form == TREE_SPLIT || leaf->form == TREE_EVERY)
        leaf = leaf->child;
    if (leaf->form != TREE_CHAIN && leaf->form != TREE_CHAIN_ADD)
        return plan_misfit(planner, "the parts of its tree are no chains of slots");
    const Tree *top = reduce->tree;
    if (top->form == TREE_SPLIT && !top->n_parts && top->join == JOIN_LEFT && top->child == leaf)
        return true; /* one part after another */
    return count_ops(tree_expand(planner->arena, reduce->tree, places)) <= OPS_MAX ||
           plan_misfit(planner, "its tree has more than %d joins and roundings", OPS_MAX);
}

static bool piece_fits(Planner *planner, Kernel *shape, const DagPiece *piece, const Atoms *space,
                       int slots)
{
    Atoms own = plan_piece_atoms(planner, piece);
    Str name = planner->op->op->results[piece->result].name.text;
    if (atoms_mask(&own) >> slots & 1)
        return plan_misfit(planner, "%.*s has %s itself", STR_FMT(name),
                           plan_axis_text(planner, slots));
    if (!atoms_equal(&own, space))
        return plan_misfit(planner, "its results run over different axes");
    return plan_bind_inputs(planner, shape, piece->value, NULL, 0, -1) &&
           plan_bind(planner, shape, true, piece->result, piece->fixes, piece->n_fixes, -1) >= 0;
}

bool plan_slots(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    int slots;
    *shape = (Kernel){.family = FAMILY_ROW, .op = op, .n_pieces = op->pieces.n};
    shape->row = (Row){.columns = true, .n_reduces = op->reduces.n, .reduces = op->reduces.v};
    if (!find_slots(planner, &slots))
        return false;
    for (int i = 0; i < op->reduces.n; i++)
        if (!tree_fits(planner, op->reduces.v[i]))
            return false;
    Atoms space = plan_piece_atoms(planner, &op->pieces.v[0]), outer = space;
    if (space.n < 2 || plan_atom(planner, space.v[space.n - 1])->free)
        return plan_misfit(planner, "it has no columns side by side");
    shape->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++) {
        shape->pieces[i] = &op->pieces.v[i];
        if (!piece_fits(planner, shape, &op->pieces.v[i], &outer, slots))
            return false;
    }
    space.v[space.n++] = slots;
    return plan_make_dims(planner, shape, &space, 1);
}

/* Two words of 16 bytes, where no sum holds pairs and all slots' elements have 16 bits. */
int row_columns(const Kernel *kernel)
{
    const Op *op = kernel->op->op;
    bool pairs = false, wide = false;
    for (int i = 0; i < kernel->row.n_reduces; i++)
        pairs = pairs || monoid_values(kernel->row.reduces[i]->monoid) > 1;
    for (int i = 0; i < kernel->n_bindings; i++) {
        const Binding *b = &kernel->bindings[i];
        const Tensor *tensor = b->result ? &op->results[b->tensor] : &op->params[b->tensor];
        wide = wide || (b->has[kernel->n_dims - 2] && b->has[kernel->n_dims - 1] &&
                        tensor->type == DT_F32);
    }
    return pairs || wide || kernel->family == FAMILY_JOIN ? 8 : 16;
}
