/* MAP: no sum; every piece of every result over the same dims. */
#include "plan_impl.h"

bool plan_map(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    Atoms space = plan_piece_atoms(planner, &op->pieces.v[0]);
    if (op->reduces.n)
        return plan_misfit(planner, "it has a sum, and a map has none");
    *shape = (Kernel){.family = FAMILY_MAP, .op = op, .n_pieces = op->pieces.n};
    shape->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        Atoms own = plan_piece_atoms(planner, piece);
        shape->pieces[i] = piece;
        if (!atoms_equal(&own, &space))
            return plan_misfit(planner, "%.*s and %.*s run over different axes: write two ops",
                               STR_FMT(op->op->results[op->pieces.v[0].result].name.text),
                               STR_FMT(op->op->results[piece->result].name.text));
        if (!plan_bind_inputs(planner, shape, piece->value, NULL, 0, -1) ||
            plan_bind(planner, shape, true, piece->result, piece->fixes, piece->n_fixes, -1) < 0)
            return false;
    }
    return plan_bind_slots(planner, shape) && plan_make_dims(planner, shape, &space, 0);
}
