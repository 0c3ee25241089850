/* Operands as views, and the dims that all operands of a kernel share. */
#include "plan_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool plan_misfit(Planner *planner, const char *format, ...)
{
    char sentence[256];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    planner->reason = str_copy(planner->arena, str_of(sentence));
    return false;
}

const Axis *plan_atom(const Planner *planner, int atom)
{
    return &planner->contract->axes[planner->contract->atom_axis[atom]];
}

const char *plan_axis_text(const Planner *planner, int atom)
{
    return str_copy(planner->arena, plan_atom(planner, atom)->name.text).s;
}

bool plan_same_tree(Arena *arena, const Tree *a, const Tree *b)
{
    Text one = {.arena = arena}, two = {.arena = arena};
    if (a == b)
        return true;
    tree_print(a, &one);
    tree_print(b, &two);
    return str_eq(text_str(&one), text_str(&two));
}

/* ---- views ----------------------------------------------------------------------------------- */

const Tensor *plan_tensor(const Planner *planner, const Binding *binding)
{
    const Op *op = planner->op->op;
    return binding->result ? &op->results[binding->tensor] : &op->params[binding->tensor];
}

static bool is_fixed(const Fix *fixes, int n, int atom)
{
    for (int i = 0; i < n; i++)
        if (fixes[i].atom == atom)
            return true;
    return false;
}

static bool is_coordinate(const Planner *planner, int atom)
{
    return plan_atom(planner, atom)->coordinate_of >= 0;
}

Atoms plan_view(const Planner *planner, const Binding *binding)
{
    Atoms view = {0};
    const Tensor *tensor = plan_tensor(planner, binding);
    for (int i = 0; i < tensor->n_atoms; i++)
        if (!is_fixed(binding->fixes, binding->n_fixes, tensor->atoms[i]) &&
            !is_coordinate(planner, tensor->atoms[i]))
            view.v[view.n++] = tensor->atoms[i];
    return view;
}

Atoms plan_piece_atoms(const Planner *planner, const DagPiece *piece)
{
    Binding result = {.result = true, .tensor = piece->result, .fixes = piece->fixes,
                      .n_fixes = piece->n_fixes};
    return plan_view(planner, &result);
}

bool atoms_equal(const Atoms *a, const Atoms *b)
{
    return a->n == b->n && !memcmp(a->v, b->v, sizeof(int) * (size_t)a->n);
}

u64 atoms_mask(const Atoms *a)
{
    u64 mask = 0;
    for (int i = 0; i < a->n; i++)
        mask |= (u64)1 << a->v[i];
    return mask;
}

/* ---- bindings -------------------------------------------------------------------------------- */

static bool same_fixes(const Binding *binding, const Fix *fixes, int n)
{
    if (binding->n_fixes != n)
        return false;
    for (int i = 0; i < n; i++)
        if (binding->fixes[i].atom != fixes[i].atom || binding->fixes[i].at != fixes[i].at)
            return false;
    return true;
}

static bool find_coordinate(Planner *planner, Binding *binding)
{
    const Tensor *tensor = plan_tensor(planner, binding);
    binding->coordinate = -1;
    for (int i = 0; i < tensor->n_atoms; i++) {
        if (!is_coordinate(planner, tensor->atoms[i]))
            continue;
        if (binding->coordinate >= 0)
            return plan_misfit(planner, "%.*s is indexed by two coordinates of a token",
                               STR_FMT(tensor->name.text));
        binding->coordinate = planner->contract->atom_axis[tensor->atoms[i]];
    }
    return true;
}

int binding_looked_up(const Binding *binding)
{
    int i = 0;
    while (binding->fixes[i].at >= 0)
        i++;
    return binding->fixes[i].atom;
}

/* Binds the tensor of the indices too: a parameter, or the result that the kernel ranks for. */
static bool find_lookup(Planner *planner, Kernel *kernel, Binding *binding)
{
    const Fix *by = NULL;
    int others = 0;
    const Str name = plan_tensor(planner, binding)->name.text;
    binding->lookup = -1;
    for (int i = 0; i < binding->n_fixes; i++)
        if (binding->fixes[i].at < 0) {
            if (by)
                return plan_misfit(planner, "%.*s is read at two indices from parameters",
                                   STR_FMT(name));
            by = &binding->fixes[i];
        }
    if (!by)
        return true;
    bool own = !fix_is_result(by) && ~by->at == binding->tensor;
    if (kernel->family == FAMILY_GEMM && !own && fix_tensor(planner->op->op, by)->n_axes != 2)
        return plan_misfit(planner, "%.*s is read at an index for each token", STR_FMT(name));
    if (fix_is_result(by) && kernel->family != FAMILY_TOP)
        return plan_misfit(planner, "%.*s is read at indices that the op sets", STR_FMT(name));
    for (int i = 0; i < kernel->n_bindings; i++)
        others += kernel->bindings[i].lookup >= 0;
    if (others == MAX_LOOKUPS)
        return plan_misfit(planner, "more than %d operands are read at indices from parameters",
                           MAX_LOOKUPS);
    i64 tensor = ~by->at - (fix_is_result(by) ? FIX_RESULT : 0);
    if (own)
        binding->lookup = kernel->n_bindings;
    else
        binding->lookup = plan_bind(planner, kernel, fix_is_result(by), (int)tensor, NULL, 0,
                                    binding->group);
    return binding->lookup >= 0;
}

int plan_bind(Planner *planner, Kernel *kernel, bool result, int tensor, const Fix *fixes,
              int n_fixes, int group)
{
    for (int i = 0; i < kernel->n_bindings; i++) {
        const Binding *old = &kernel->bindings[i];
        if (old->result == result && old->tensor == tensor && old->group == group &&
            same_fixes(old, fixes, n_fixes))
            return i;
    }
    Binding binding = {.result = result, .tensor = tensor, .fixes = fixes, .n_fixes = n_fixes,
                       .group = group};
    if (!find_coordinate(planner, &binding) || !find_lookup(planner, kernel, &binding))
        return -1;
    if (kernel->n_bindings == MAX_BINDINGS) {
        plan_misfit(planner, "it has more than %d operands", MAX_BINDINGS);
        return -1;
    }
    kernel->bindings[kernel->n_bindings] = binding;
    return kernel->n_bindings++;
}

bool plan_bind_places(Planner *planner, Kernel *kernel, const DagNode *reduce)
{
    if (!reduce->n_fixes)
        return true;
    if (fix_is_result(&reduce->fixes[0]))
        return plan_misfit(planner, "slots stand where the op itself says");
    return plan_bind(planner, kernel, false, (int)~reduce->fixes[0].at, reduce->fixes, 1, -1) >= 0;
}

static bool bind_below(Planner *planner, Kernel *kernel, const DagNode *node,
                       const DagNode *const *stop, int n_stop, int group, u8 *seen)
{
    if (seen[node->number])
        return true;
    seen[node->number] = 1;
    for (int i = 0; i < n_stop; i++)
        if (node == stop[i])
            return true;
    if (node->kind == DAG_INPUT)
        return plan_bind(planner, kernel, false, node->param, node->fixes, node->n_fixes,
                         group) >= 0;
    if (node->kind == DAG_ONLY && fix_is_result(&node->fixes[0]))
        return plan_misfit(planner, "it keeps indices that it sets itself");
    if (node->kind == DAG_ONLY &&
        plan_bind(planner, kernel, false, (int)~node->fixes[0].at, node->fixes, 1, group) < 0)
        return false;
    if (node->kind == DAG_REDUCE && !plan_bind_places(planner, kernel, node))
        return false;
    for (int i = 0; i < node->n_args; i++)
        if (!bind_below(planner, kernel, node->args[i], stop, n_stop, group, seen))
            return false;
    return true;
}

bool plan_bind_inputs(Planner *planner, Kernel *kernel, const DagNode *node,
                      const DagNode *const *stop, int n_stop, int group)
{
    u8 *seen = arena_array(planner->arena, u8, node->number + 1);
    return bind_below(planner, kernel, node, stop, n_stop, group, seen);
}

/* ---- dims ------------------------------------------------------------------------------------ */

static int position_of(const Atoms *view, int atom)
{
    for (int i = 0; i < view->n; i++)
        if (view->v[i] == atom)
            return i;
    return -1;
}

/* 1: the view has the dim's atoms, together and in order; 0: none of them; -1: otherwise. */
static int match_dim(const Atoms *view, const PlanDim *dim)
{
    int first = dim->n_atoms ? position_of(view, dim->atoms[0]) : -1, have = 0;
    for (int i = 0; i < dim->n_atoms; i++) {
        int at = position_of(view, dim->atoms[i]);
        have += at >= 0;
        if (at >= 0 && at != first + i)
            return -1;
    }
    return have == 0 ? 0 : have == dim->n_atoms ? 1 : -1;
}

/* A fixed atom between two atoms of a dim breaks the dim's one stride, though the view hides it. */
static bool is_broken(const Planner *planner, const Binding *binding, const PlanDim *dim)
{
    const Tensor *tensor = plan_tensor(planner, binding);
    int at = 0;
    while (at < tensor->n_atoms && tensor->atoms[at] != dim->atoms[0])
        at++;
    for (int i = 0; i < dim->n_atoms; i++)
        if (at + i >= tensor->n_atoms || tensor->atoms[at + i] != dim->atoms[i])
            return true;
    return false;
}

/* A table is addressed along the tokens' dimension by each token's coordinate. */
static bool match_coordinate(Planner *planner, Binding *binding, const PlanDim *dims, int n_dims)
{
    if (binding->coordinate < 0)
        return true;
    const Axis *axes = planner->contract->axes, *coordinate = &axes[binding->coordinate];
    for (int d = 0; d < n_dims; d++) {
        if (dims[d].atoms[0] != axes[coordinate->coordinate_of].atom)
            continue;
        binding->has[d] = true;
        return d + 1 < n_dims ||
               plan_misfit(planner, "%.*s is indexed by %.*s along the innermost dimension, which "
                           "a thread reads in order",
                           STR_FMT(plan_tensor(planner, binding)->name.text),
                           STR_FMT(coordinate->name.text));
    }
    return true;
}

bool plan_match_dims(Planner *planner, Binding *binding, const PlanDim *dims, int n_dims)
{
    Atoms view = plan_view(planner, binding);
    const Tensor *tensor = plan_tensor(planner, binding);
    int matched = 0;
    binding->n_dims = n_dims;
    for (int d = 0; d < n_dims; d++) {
        int match = match_dim(&view, &dims[d]);
        if (match == 1 && is_broken(planner, binding, &dims[d]))
            match = -1;
        if (match < 0)
            return plan_misfit(planner,
                               "%.*s does not have %s and what follows it together in one order "
                               "with the other operands", STR_FMT(tensor->name.text),
                               plan_axis_text(planner, dims[d].atoms[0]));
        binding->has[d] = match == 1;
        matched += match ? dims[d].n_atoms : 0;
    }
    if (matched != view.n)
        return plan_misfit(planner, "%.*s has an axis that the kernel does not run over",
                           STR_FMT(tensor->name.text));
    return match_coordinate(planner, binding, dims, n_dims);
}

static bool may_merge(const Planner *planner, const Kernel *kernel, const PlanDim *dim, int atom)
{
    PlanDim wider = *dim;
    if (dim->n_atoms == MAX_TENSOR_AXES || plan_atom(planner, atom)->free ||
        plan_atom(planner, dim->atoms[0])->free)
        return false;
    wider.atoms[wider.n_atoms++] = atom;
    for (int i = 0; i < kernel->n_bindings; i++) {
        Atoms view = plan_view(planner, &kernel->bindings[i]);
        int match = match_dim(&view, &wider);
        if (match < 0 || (match == 1 && is_broken(planner, &kernel->bindings[i], &wider)))
            return false;
    }
    return true;
}

/* What is kept is told by the index of the innermost dim. */
static bool kept_along(Planner *planner, const Kernel *kernel)
{
    const PlanDim *inner = &kernel->dims[kernel->n_dims - 1];
    if (kernel->row.columns)
        return true; /* slots' places */
    for (int i = 0; i < kernel->n_bindings; i++) {
        const Binding *b = &kernel->bindings[i];
        if (b->lookup == i &&
            (inner->n_atoms != 1 || inner->atoms[0] != binding_looked_up(b) ||
             b->has[kernel->n_dims - 1]))
            return plan_misfit(planner, "it keeps indices of %s, which is not the innermost axis",
                               plan_axis_text(planner, binding_looked_up(b)));
    }
    return true;
}

bool plan_make_dims(Planner *planner, Kernel *kernel, const Atoms *space, int inner)
{
    kernel->n_dims = 0;
    for (int i = 0; i < space->n; i++) {
        bool border = i == 0 || (inner && i == space->n - inner);
        PlanDim *last = border ? NULL : &kernel->dims[kernel->n_dims - 1];
        if (last && may_merge(planner, kernel, last, space->v[i])) {
            last->atoms[last->n_atoms++] = space->v[i];
            continue;
        }
        if (inner && i > space->n - inner)
            return plan_misfit(planner, "its operands do not all have the summed axes, or none of "
                               "them, in one order");
        if (kernel->n_dims == MAX_DIMS)
            return plan_misfit(planner, "its operands' axes do not collapse to %d dimensions",
                               MAX_DIMS);
        kernel->dims[kernel->n_dims++] = (PlanDim){1, {space->v[i]}};
    }
    for (int i = 0; i < kernel->n_bindings; i++)
        if (!plan_match_dims(planner, &kernel->bindings[i], kernel->dims, kernel->n_dims))
            return false;
    return kept_along(planner, kernel);
}

/* ---- slots that are results ------------------------------------------------------------------ */

/* The parameter that says where some result's slots stand, and the axis that they are of; -1. */
static int slots_param(Planner *planner, int *of)
{
    const Op *op = planner->op->op;
    for (int r = 0; r < op->n_results; r++)
        for (int i = 0; i < op->results[r].n_atoms; i++) {
            *of = plan_atom(planner, op->results[r].atoms[i])->sparse_of - 1;
            int by = *of < 0 ? -1 : op_slots(op, op->results[r].atoms[i]);
            if (by >= 0)
                return by;
        }
    return -1;
}

bool plan_bind_slots(Planner *planner, Kernel *kernel)
{
    int of, by = slots_param(planner, &of);
    return by < 0 || plan_bind(planner, kernel, false, by, NULL, 0, -1) >= 0;
}

bool plan_own_slots(Planner *planner, Kernel *kernel, const Part *part)
{
    int of, by = slots_param(planner, &of);
    const Axis *axis = by < 0 ? NULL : &planner->contract->axes[of];
    if (!axis || (part->lo[axis->atom] == 0 && part->hi[axis->atom] == axis->size))
        return true;
    Fix *fix = arena_new_of(planner->arena, Fix);
    *fix = (Fix){axis->atom, ~(i64)by};
    int binding = plan_bind(planner, kernel, false, by, fix, 1, -1);
    kernel->own = binding + 1;
    return binding >= 0 && plan_match_dims(planner, &kernel->bindings[binding], kernel->dims,
                                           kernel->n_dims);
}
