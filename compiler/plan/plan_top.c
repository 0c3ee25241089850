/* TOP: one `top`, with sums over what is ranked, or over a token's slots, and what is computed of
 * each slot. */
#include "plan_impl.h"

enum { RANKED_MAX = 1024, SLOTS_MAX = 32, GROUPS_MAX = 32 }; /* a warp's */

static bool find_top(Planner *planner, const DagNode **top)
{
    const OpDag *op = planner->op;
    *top = NULL;
    for (int i = 0; i < op->nodes.n; i++) {
        if (op->nodes.v[i]->kind != DAG_TOP)
            continue;
        if (*top)
            return plan_misfit(planner, "it ranks twice: write two ops");
        *top = op->nodes.v[i];
    }
    return true;
}

static bool is_small(Planner *planner, const Top *top)
{
    i64 n = planner->contract->axes[top->axis].size;
    if (n > RANKED_MAX)
        return plan_misfit(planner, "it ranks %lld indices, and a warp takes %d", (long long)n,
                           RANKED_MAX);
    if (top->k > SLOTS_MAX)
        return plan_misfit(planner, "it fills %lld slots, and a warp has %d", (long long)top->k,
                           SLOTS_MAX);
    return top->groups <= GROUPS_MAX ||
           plan_misfit(planner, "it has %lld groups, and a warp takes %d", (long long)top->groups,
                       GROUPS_MAX);
}

static bool is_below(const DagNode *node, const DagNode *wanted)
{
    if (node == wanted)
        return true;
    for (int i = 0; i < node->n_args; i++)
        if (is_below(node->args[i], wanted))
            return true;
    return false;
}

static bool reduces_fit(Planner *planner, Kernel *shape)
{
    const DagNode *top = shape->top.node;
    shape->row.n_reduces = planner->op->reduces.n;
    shape->row.reduces = planner->op->reduces.v;
    for (int i = 0; i < shape->row.n_reduces; i++) {
        const DagNode *reduce = shape->row.reduces[i];
        bool ranked = reduce->n_atoms == 1 && reduce->atoms[0] == top->top->atom;
        bool slots = reduce->n_atoms == 1 && reduce->atoms[0] == top->top->picks;
        if (!ranked && !slots)
            return plan_misfit(planner, "it sums over other axes than %s and %s",
                               plan_axis_text(planner, top->top->atom),
                               plan_axis_text(planner, top->top->picks));
        if (ranked && is_below(reduce, top))
            return plan_misfit(planner, "it sums over %s what depends on what is chosen",
                               plan_axis_text(planner, top->top->atom));
        if (slots && is_below(top, reduce))
            return plan_misfit(planner, "what is ranked depends on a sum over %s",
                               plan_axis_text(planner, top->top->picks));
        if (!plan_row_tree_fits(planner, reduce->tree))
            return false;
    }
    return true;
}

static bool piece_fits(Planner *planner, const DagPiece *piece, const Top *top)
{
    Atoms own = plan_piece_atoms(planner, piece);
    u64 mask = atoms_mask(&own), tokens = (u64)1 << top->tokens;
    if (mask == tokens || mask == (tokens | (u64)1 << top->picks))
        return true;
    return plan_misfit(planner, "%.*s has other axes than the tokens and %s",
                       STR_FMT(planner->op->op->results[piece->result].name.text),
                       plan_axis_text(planner, top->picks));
}

bool plan_top(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    *shape = (Kernel){.family = FAMILY_TOP, .op = op, .n_pieces = op->pieces.n};
    if (!find_top(planner, &shape->top.node))
        return false;
    const Top *top = shape->top.node->top;
    shape->top.computes = *top;
    if (!is_small(planner, top) || !reduces_fit(planner, shape))
        return false;
    shape->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        shape->pieces[i] = piece;
        if (!piece_fits(planner, piece, top) ||
            !plan_bind_inputs(planner, shape, piece->value, NULL, 0, -1) ||
            plan_bind(planner, shape, true, piece->result, piece->fixes, piece->n_fixes, -1) < 0)
            return false;
    }
    Atoms space = {TOP_DIMS, {top->tokens, top->atom, top->picks}};
    return plan_make_dims(planner, shape, &space, 1);
}
