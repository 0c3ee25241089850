/* DRAW: one `draw`, its index stored, and its scores computed from what rows and their indices
 * have. */
#include "plan_impl.h"

static bool shape_fits(Planner *planner, const DagNode **draw)
{
    const OpDag *op = planner->op;
    *draw = op->pieces.v[0].value;
    if (op->pieces.n > 1 || (*draw)->kind != DAG_DRAW)
        return plan_misfit(planner, "it has other results than one drawn index: write two ops");
    if (op->reduces.n)
        return plan_misfit(planner, "its scores come from a sum: compute them in an op of their "
                           "own");
    return true;
}

/* What a row has of its own, as a kernel with the tokens and the drawn axis reads it. */
static bool bind_params(Planner *planner, Kernel *shape, const Draw *draw)
{
    DrawKernel *k = &shape->draw;
    for (int i = 0; i < DRAW_PARAMS; i++) {
        k->param[i] = -1;
        if (draw_param(draw, i) < 0)
            continue;
        k->param[i] = plan_bind(planner, shape, false, draw_param(draw, i), NULL, 0, -1);
        if (k->param[i] < 0)
            return false;
    }
    return true;
}

bool plan_draw(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    const DagPiece *piece = &op->pieces.v[0];
    const DagNode *node;
    *shape = (Kernel){.family = FAMILY_DRAW, .op = op, .n_pieces = 1};
    if (!shape_fits(planner, &node))
        return false;
    shape->draw.computes = *node->draw;
    shape->draw.scores = node->args[0];
    shape->pieces = arena_array(planner->arena, const DagPiece *, 1);
    shape->pieces[0] = piece;
    Atoms space = {2, {node->draw->tokens, node->draw->atom}};
    if (!plan_bind_inputs(planner, shape, node->args[0], NULL, 0, -1) ||
        !bind_params(planner, shape, node->draw))
        return false;
    shape->draw.token = plan_bind(planner, shape, true, piece->result, NULL, 0, -1);
    return shape->draw.token >= 0 && plan_make_dims(planner, shape, &space, 1);
}
