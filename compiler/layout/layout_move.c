/* A layout applied to an op, and what must move: the one table, held against needed. */
#include "layout.h"

Move move_between(Stand held, Stand needed, bool same_axis)
{
    static const Move table[STAND_COUNT][STAND_COUNT] = {
        /* needed:        whole            cut                  partial */
        [STAND_WHOLE] = {MOVE_NONE, MOVE_SLICE, MOVE_REFUSE},
        [STAND_CUT] = {MOVE_ALL_GATHER, MOVE_ALL_TO_ALL, MOVE_REFUSE},
        [STAND_PARTIAL] = {MOVE_ALL_REDUCE, MOVE_REDUCE_SCATTER, MOVE_REFUSE},
    };
    if (held == STAND_CUT && needed == STAND_CUT && same_axis)
        return MOVE_NONE;
    return table[held][needed];
}

/* Over several meshes: slicing along one while gathering along another is an exchange, and roots
 * travel alone. */
static Move move_combine(Move a, Move b)
{
    if (a == b || b == MOVE_NONE)
        return a;
    if (a == MOVE_NONE)
        return b;
    bool a_roots = a >= MOVE_REDUCE_SCATTER, b_roots = b >= MOVE_REDUCE_SCATTER;
    if (a == MOVE_REFUSE || b == MOVE_REFUSE || a_roots != b_roots)
        return MOVE_REFUSE;
    return a_roots ? MOVE_ALL_REDUCE : MOVE_ALL_TO_ALL;
}

/* ---- stands ---------------------------------------------------------------------------------- */

/* What a plain mesh cuts, by itself or in a product. */
static int plain_axis(const OpLayout *at, const Cuts *cuts, int plain)
{
    if (cuts->axis[plain] >= 0)
        return cuts->axis[plain];
    for (int m = 0; m < at->n_meshes; m++)
        for (int i = 0; i < at->mesh[m]->n_product; i++)
            if (at->mesh[m]->product[i] == plain && cuts->axis[m] >= 0)
                return cuts->axis[m];
    return -1;
}

/* The atom along which a plain mesh of more than one rank cuts something of these atoms; -1. */
static int cut_atom_of(const Contract *contract, const OpLayout *at, const Cuts *cuts, u64 mask,
                       int plain)
{
    int axis = at->degree[plain] > 1 ? plain_axis(at, cuts, plain) : -1;
    if (axis < 0)
        return -1;
    int atom = axis_outer_atom(contract, axis);
    return mask >> atom & 1 ? atom : -1;
}

/* ---- parts compared -------------------------------------------------------------------------- */

typedef struct Fit {
    bool equal, inside, around; /* of needed against held */
} Fit;

/* [i/n, (i+1)/n) against [j/m, (j+1)/m): equal for every row count if equal as fractions. */
static void fit_rows(const Part *held, const Part *needed, Fit *fit)
{
    i64 i = needed->rows_index, n = needed->rows_count, j = held->rows_index, m = held->rows_count;
    bool same = i == j && n == m;
    bool inside = i * m >= j * n && (i + 1) * m <= (j + 1) * n;
    bool around = i * m <= j * n && (i + 1) * m >= (j + 1) * n;
    fit->equal &= same;
    fit->inside &= inside;
    fit->around &= around;
}

static Fit fit_of(const Contract *contract, const Tensor *tensor, const Part *held,
                  const Part *needed)
{
    Fit fit = {true, true, true};
    u64 mask = layout_tensor_atoms(contract, tensor);
    for (int a = 0; a < contract->n_atoms; a++) {
        if (!(mask >> a & 1))
            continue;
        if (contract->axes[contract->atom_axis[a]].free) {
            fit_rows(held, needed, &fit);
            continue;
        }
        if (contract->axes[contract->atom_axis[a]].coordinate_of >= 0) {
            bool same = held->keys_index == needed->keys_index &&
                        held->keys_count == needed->keys_count;
            fit = (Fit){fit.equal && same, fit.inside && same, fit.around && same};
            continue;
        }
        fit.equal &= held->lo[a] == needed->lo[a] && held->hi[a] == needed->hi[a];
        fit.inside &= needed->lo[a] >= held->lo[a] && needed->hi[a] <= held->hi[a];
        fit.around &= needed->lo[a] <= held->lo[a] && needed->hi[a] >= held->hi[a];
    }
    return fit;
}

/* The table speaks mesh by mesh; where meshes order their pieces differently only an exchange
 * brings what is needed. */
static Move move_fitting(const Contract *contract, const OpLayout *at, const Tensor *tensor,
                         bool finish, bool swap, Move move)
{
    for (int rank = 0; rank < at->ranks; rank++) {
        Part held, other;
        layout_held(contract, at, tensor, rank, &held);
        (finish ? layout_finish : layout_part)(contract, at, rank, &other);
        Fit fit = swap ? fit_of(contract, tensor, &other, &held)
                       : fit_of(contract, tensor, &held, &other);
        bool fits = move == MOVE_NONE         ? fit.equal
                    : move == MOVE_SLICE      ? fit.inside
                    : move == MOVE_ALL_GATHER ? fit.around
                                              : true;
        if (!fits)
            return MOVE_ALL_TO_ALL;
    }
    return move;
}

/* ---- moves ----------------------------------------------------------------------------------- */

static Move mesh_move(int held, int needed)
{
    Stand from = held >= 0 ? STAND_CUT : STAND_WHOLE, to = needed >= 0 ? STAND_CUT : STAND_WHOLE;
    return move_between(from, to, held == needed);
}

/* What brings a parameter to where one stage of the op needs it. */
static Move param_stage(const Contract *contract, const OpLayout *at, const Tensor *tensor,
                        bool finish)
{
    Cuts held;
    Move move = MOVE_NONE;
    const Cuts *need = finish ? &at->finish : &at->cut;
    u64 mask = layout_tensor_atoms(contract, tensor);
    layout_held_cuts(contract, at, tensor, &held);
    for (int m = 0; m < at->n_meshes; m++)
        if (!at->mesh[m]->n_product)
            move = move_combine(move, mesh_move(
                cut_atom_of(contract, at, &held, mask, m),
                cut_atom_of(contract, at, need, mask, m)));
    return move_fitting(contract, at, tensor, finish, false, move);
}

enum { INSIDE = 1, OUTSIDE = 2, ATTEND_SINKS = 3 };

/* Which parameters a value reads inside cut reduces, and which outside of them. */
static void mark_uses(const Contract *contract, const OpLayout *at, const DagNode *node,
                      u8 use, u8 *seen, u8 *uses)
{
    if (seen[node->number] & use)
        return;
    seen[node->number] |= use;
    if (node->kind == DAG_INPUT)
        uses[node->param] |= use;
    bool keys = layout_cuts_keys(contract, at, node);
    bool cut = keys || (node->kind == DAG_REDUCE && layout_cuts(contract, at, node));
    for (int i = 0; i < node->n_fixes; i++) /* where slots stand a join asks too */
        if (node->fixes[i].at < 0 && !fix_is_result(&node->fixes[i]))
            uses[~node->fixes[i].at] |= cut ? use | INSIDE : use;
    if (node->kind == DAG_DRAW)
        for (int i = 0; i < DRAW_PARAMS; i++)
            if (draw_param(node->draw, i) >= 0)
                uses[draw_param(node->draw, i)] |= use;
    for (int i = 0; i < node->n_args; i++) /* sinks are joined after all splits */
        mark_uses(contract, at, node->args[i], cut && !(keys && i == ATTEND_SINKS) ? INSIDE : use,
                  seen, uses);
}

/* Where the slots of a result stand, if a mesh may cut these. */
static void mark_slots(const Contract *contract, const OpLayout *at, const Tensor *result, u8 *uses)
{
    for (int i = 0; i < result->n_atoms; i++) {
        int of = contract->axes[contract->atom_axis[result->atoms[i]]].sparse_of - 1;
        int by = of < 0 ? -1 : op_slots(at->op, result->atoms[i]);
        if (by >= 0 && (at->space >> contract->axes[of].atom & 1))
            uses[by] |= OUTSIDE;
    }
}

static void param_moves(const Contract *contract, const OpDag *op, OpLayout *at, Arena *arena)
{
    int n_nodes = op->nodes.n ? op->nodes.v[op->nodes.n - 1]->number + 1 : 0;
    u8 *uses = arena_array(arena, u8, op->op->n_params + 1);
    u8 *seen = arena_array(arena, u8, n_nodes + 1);
    for (int i = 0; i < op->pieces.n; i++)
        mark_uses(contract, at, op->pieces.v[i].value, OUTSIDE, seen, uses);
    for (int r = 0; r < op->op->n_results; r++)
        mark_slots(contract, at, &op->op->results[r], uses);
    at->param_move = arena_array(arena, Move, op->op->n_params + 1);
    for (int p = 0; p < op->op->n_params; p++) {
        const Tensor *tensor = &op->op->params[p];
        Move move = MOVE_NONE;
        if (uses[p] & INSIDE)
            move = param_stage(contract, at, tensor, false);
        if (uses[p] & OUTSIDE)
            move = move_combine(move, param_stage(contract, at, tensor, true));
        at->param_move[p] = move;
    }
}

static const DagNode *cut_reduce_below(const Contract *contract, const OpLayout *at,
                                       const DagNode *node)
{
    if ((node->kind == DAG_REDUCE && layout_cuts(contract, at, node)) ||
        layout_cuts_keys(contract, at, node))
        return node;
    for (int i = 0; i < node->n_args; i++) {
        const DagNode *found = cut_reduce_below(contract, at, node->args[i]);
        if (found)
            return found;
    }
    return NULL;
}

static const DagNode *result_reduce(const Contract *contract, const OpDag *op, const OpLayout *at,
                                    int result)
{
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        const DagNode *reduce =
            piece->result == result ? cut_reduce_below(contract, at, piece->value) : NULL;
        if (reduce)
            return reduce;
    }
    return NULL;
}

/* Roots go to the owner of the rows or columns, if the finishing ranks cut what the sum has. */
static Move roots_move(const Contract *contract, const OpLayout *at, const DagNode *reduce, int m)
{
    int atom = cut_atom_of(contract, at, &at->finish, reduce->mask, m);
    return move_between(STAND_PARTIAL, atom >= 0 ? STAND_CUT : STAND_WHOLE, false);
}

static Move result_move(const Contract *contract, const OpDag *op, const OpLayout *at, int result)
{
    Cuts held;
    Move move = MOVE_NONE, roots = MOVE_NONE;
    const Tensor *tensor = &op->op->results[result];
    const DagNode *reduce = result_reduce(contract, op, at, result);
    u64 mask = layout_tensor_atoms(contract, tensor);
    layout_held_cuts(contract, at, tensor, &held);
    for (int m = 0; m < at->n_meshes; m++) {
        if (at->mesh[m]->n_product)
            continue;
        int from = cut_atom_of(contract, at, &at->finish, mask, m);
        int to = cut_atom_of(contract, at, &held, mask, m);
        move = move_combine(move, mesh_move(from, to));
        if (reduce && at->cuts_reduced[m] && at->degree[m] > 1)
            roots = move_combine(roots, roots_move(contract, at, reduce, m));
    }
    move = move_fitting(contract, at, tensor, true, true, move);
    return move_combine(roots, move);
}

/* What the reduce's value has of what the rank finishes, a source has computed. */
static bool source_has(const Contract *contract, const OpLayout *at, const DagNode *reduce,
                       int rank, int source)
{
    Tensor value = {.mask = reduce->mask};
    Part need, have;
    for (int a = 0; a < contract->n_atoms; a++)
        if (reduce->mask >> a & 1)
            value.atoms[value.n_atoms++] = a;
    layout_finish(contract, at, rank, &need);
    layout_part(contract, at, source, &have);
    return fit_of(contract, &value, &have, &need).inside;
}

/* Meshes are digits of a row's rank in the order of the text: one that cuts a sum, and rows for
 * who finishes it, stands behind those that cut rows of the sum itself. */
static bool sources_fit(const Contract *contract, const OpLayout *at, Arena *arena, Diags *diags)
{
    int *sources = arena_array(arena, int, at->ranks);
    for (int rank = 0; rank < at->ranks && at->reduced; rank++) {
        int n = layout_sources(contract, at, rank, sources), m = 0;
        for (int i = 0; i < n; i++) {
            if (source_has(contract, at, at->reduced, rank, sources[i]))
                continue;
            while (!at->cuts_reduced[m] || at->degree[m] == 1)
                m++;
            Diag *diag = diag_add(diags, DIAG_LAYOUT_MOVE, at->mesh[m]->name.span,
                                  "in layout %.*s rank %d finishes elements of %.*s that rank %d "
                                  "has no roots of", STR_FMT(at->layout->name.text), rank,
                                  STR_FMT(at->op->name), sources[i]);
            diag_note(diags, diag, "write %.*s, which cuts its sum, behind the meshes that cut its "
                      "results along the same axis", STR_FMT(at->mesh[m]->name.text));
            return false;
        }
    }
    return true;
}

static bool result_moves(const Contract *contract, const OpDag *op, OpLayout *at, Arena *arena,
                         Diags *diags)
{
    bool good = true;
    at->result_move = arena_array(arena, Move, op->op->n_results + 1);
    for (int r = 0; r < op->op->n_results; r++) {
        at->result_move[r] = result_move(contract, op, at, r);
        if (at->result_move[r] != MOVE_REFUSE)
            continue;
        good = false;
        Diag *diag = diag_add(diags, DIAG_LAYOUT_MOVE, at->layout->name.span,
                              "in layout %.*s no one movement brings %.*s of %.*s to where it is "
                              "held", STR_FMT(at->layout->name.text),
                              STR_FMT(op->op->results[r].name.text), STR_FMT(op->op->name));
        diag_note(diags, diag, "roots of its sums and finished values would both have to move; "
                  "cut the op and its results along the same axes");
    }
    return good;
}

/* ---- the stage ------------------------------------------------------------------------------- */

static void apply_meshes(const Layout *layout, int op, OpLayout *at)
{
    at->ranks = 1;
    at->n_meshes = layout ? layout->n_meshes : 0;
    for (int m = 0; m < at->n_meshes; m++) {
        at->mesh[m] = &layout->meshes[m];
        at->degree[m] = layout->meshes[m].degree;
        if (!layout->meshes[m].n_product)
            at->ranks *= at->degree[m];
    }
    for (int m = 0; m < at->n_meshes; m++) {
        const Mesh *mesh = at->mesh[m];
        for (int i = 0; i < mesh->n_product; i++)
            at->degree[m] = (i ? at->degree[m] : 1) * layout->meshes[mesh->product[i]].degree;
    }
    for (int i = 0; layout && i < layout->n_overrides; i++)
        for (int j = 0; layout->overrides[i].op == op && j < layout->overrides[i].n_meshes; j++)
            for (int m = 0; m < at->n_meshes; m++)
                if (str_eq(layout->overrides[i].meshes[j].name.text, at->mesh[m]->name.text))
                    at->mesh[m] = &layout->overrides[i].meshes[j];
}

static void mark_reduced(const Contract *contract, const OpDag *op, OpLayout *at)
{
    for (int i = 0; i < op->reduces.n && !at->reduced; i++)
        if (layout_cuts(contract, at, op->reduces.v[i]))
            at->reduced = op->reduces.v[i];
    for (int i = 0; i < op->reduces.n && !at->reduced; i++)
        if (dag_folds(op->reduces.v[i]))
            at->reduced = op->reduces.v[i];
    for (int i = 0; i < op->nodes.n && !at->reduced; i++)
        if (layout_cuts_keys(contract, at, op->nodes.v[i]))
            at->reduced = op->nodes.v[i];
    at->any_reduced = at->reduced != NULL;
    for (int m = 0; m < at->n_meshes; m++) {
        int atom = at->cut.axis[m] >= 0 ? axis_outer_atom(contract, at->cut.axis[m]) : -1;
        for (int i = 0; i < op->reduces.n && atom >= 0; i++)
            for (int k = 0; k < op->reduces.v[i]->n_atoms; k++)
                at->cuts_reduced[m] |= op->reduces.v[i]->atoms[k] == atom;
        at->cuts_reduced[m] |= at->reduced && at->reduced->kind == DAG_ATTEND &&
                               at->reduced->attend->position == atom;
        for (int i = 0; at->cuts_reduced[m] && i < at->mesh[m]->n_product; i++)
            at->cuts_reduced[at->mesh[m]->product[i]] = true;
    }
}

/* A mesh that cuts a sum leaves its ranks free to finish by the results' own axes. */
static void choose_finish(const Contract *contract, const OpDag *op, OpLayout *at)
{
    Cuts results;
    u64 mask = 0;
    for (int r = 0; r < op->op->n_results; r++)
        mask |= layout_tensor_atoms(contract, &op->op->results[r]);
    layout_cuts_of(contract, at, mask & at->space, false, &results);
    at->finish = at->cut;
    for (int m = 0; m < at->n_meshes; m++)
        if (at->cuts_reduced[m]) {
            at->finish.axis[m] = results.axis[m];
            at->finish.replicating[m] = results.replicating[m];
            at->finish.by_else[m] = results.by_else[m];
        }
}

bool layout_apply(const Contract *contract, const OpDag *op, const Layout *layout, OpLayout *out,
                  Arena *arena, Diags *diags)
{
    *out = (OpLayout){.layout = layout, .op = op->op};
    apply_meshes(layout, (int)(op->op - contract->ops), out);
    out->space = layout_op_atoms(contract, op);
    layout_cuts_of(contract, out, out->space, true, &out->cut);
    mark_reduced(contract, op, out);
    choose_finish(contract, op, out);
    if (!layout_check(contract, op, out, arena, diags))
        return false;
    if (!sources_fit(contract, out, arena, diags))
        return false;
    param_moves(contract, op, out, arena);
    return result_moves(contract, op, out, arena, diags);
}
