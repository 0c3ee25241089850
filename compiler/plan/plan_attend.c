/* ATTEND: one attention of packed tokens, its value stored as it is or rounded, and its LSE. */
#include "plan_impl.h"

enum { GROUP = 16, PRECISION = 25 }; /* of the class that the kernel's steps are */

/* ---- what the op computes -------------------------------------------------------------------- */

static const DagNode *below_cast(const DagNode *node)
{
    return node->kind == DAG_CAST ? node->args[0] : node;
}

static bool same_attention(const DagNode *a, const DagNode *b)
{
    bool same = a->attend == b->attend && a->n_args == b->n_args;
    for (int i = 0; same && i < a->n_args; i++)
        same = a->args[i] == b->args[i];
    return same;
}

/* The value, and where there is one the LSE; every result is one of them. */
static bool find_results(Planner *planner, const DagNode **value, const DagNode **lse)
{
    const OpDag *op = planner->op;
    *value = *lse = NULL;
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        const DagNode *node = below_cast(piece->value);
        if (node->kind != DAG_ATTEND || node->n_fixes || piece->n_fixes)
            return plan_misfit(planner, "%.*s is more than a value of `attend`, rounded",
                               STR_FMT(op->op->results[piece->result].name.text));
        const DagNode **place = node->lse ? lse : value;
        if (*place)
            return plan_misfit(planner, "a value of `attend` is stored twice");
        if (node->lse && node != piece->value)
            return plan_misfit(planner, "the logarithm of the sum is stored as f32 only");
        *place = node;
    }
    if (!*value)
        return plan_misfit(planner, "the value of `attend` is not stored");
    return !*lse || same_attention(*value, *lse) ||
           plan_misfit(planner, "it has several `attend`");
}

static bool operands_fit(Planner *planner, const DagNode *node)
{
    for (int i = 0; i < node->n_args; i++)
        if (node->args[i]->kind != DAG_INPUT || node->args[i]->n_fixes)
            return plan_misfit(planner, "an operand of `attend` is no parameter as it is: compute "
                               "it in an op of its own");
    return true;
}

/* ---- dimensions ------------------------------------------------------------------------------ */

static void add_atom(PlanDim *dim, int atom)
{
    dim->atoms[dim->n_atoms++] = atom;
}

/* Tokens, heads of keys, group, what a score sums, what a value has: as their tensors list them. */
static bool make_dims(Planner *planner, Kernel *kernel, const DagNode *node)
{
    const Attend *a = node->attend;
    const Tensor *queries = &planner->op->op->params[node->args[0]->param];
    const Tensor *values = &planner->op->op->params[node->args[2]->param];
    kernel->n_dims = ATTEND_DIMS;
    if (queries->n_atoms > MAX_TENSOR_AXES || values->n_atoms > MAX_TENSOR_AXES)
        return plan_misfit(planner, "its operands have more than %d axes", MAX_TENSOR_AXES);
    for (int i = 0; i < queries->n_atoms; i++) {
        u64 atom = (u64)1 << queries->atoms[i];
        if (queries->atoms[i] == a->tokens)
            add_atom(&kernel->dims[ATTEND_TOKENS], queries->atoms[i]);
        else if (a->rows & atom)
            add_atom(&kernel->dims[a->batch & atom ? ATTEND_HEADS : ATTEND_GROUP],
                     queries->atoms[i]);
    }
    for (int i = 0; i < a->n_over; i++)
        add_atom(&kernel->dims[ATTEND_DEPTH], a->over[i]);
    for (int i = 0; i < values->n_atoms; i++)
        if (a->values >> values->atoms[i] & 1)
            add_atom(&kernel->dims[ATTEND_WIDTH], values->atoms[i]);
    return true;
}

static i64 dim_elements(const Planner *planner, const PlanDim *dim)
{
    i64 n = 1;
    for (int i = 0; i < dim->n_atoms; i++)
        n *= atom_size(planner->contract, dim->atoms[i], 0);
    return n;
}

/* A binding of the tokens', heads', group's dimension and of one more. */
static int bind(Planner *planner, Kernel *kernel, bool result, int tensor, int inner)
{
    Binding *binding = &kernel->bindings[kernel->n_bindings];
    PlanDim dims[ATTEND_DEPTH + 1];
    *binding = (Binding){.result = result, .tensor = tensor, .group = -1, .coordinate = -1,
                         .lookup = -1};
    for (int d = 0; d < ATTEND_DEPTH; d++)
        dims[d] = kernel->dims[d];
    int n = ATTEND_DEPTH;
    if (inner >= 0)
        dims[n++] = kernel->dims[inner];
    if (!plan_match_dims(planner, binding, dims, n))
        return -1;
    bool has = inner >= 0 && binding->has[ATTEND_DEPTH];
    binding->n_dims = ATTEND_DIMS;
    binding->has[ATTEND_DEPTH] = has && inner == ATTEND_DEPTH;
    binding->has[ATTEND_WIDTH] = has && inner == ATTEND_WIDTH;
    return kernel->n_bindings++;
}

static bool bind_operands(Planner *planner, Kernel *kernel, const DagNode *node)
{
    AttendKernel *k = &kernel->attend;
    k->queries = bind(planner, kernel, false, node->args[0]->param, ATTEND_DEPTH);
    k->keys = k->queries < 0 ? -1 : bind(planner, kernel, false, node->args[1]->param,
                                         ATTEND_DEPTH);
    k->values = k->keys < 0 ? -1 : bind(planner, kernel, false, node->args[2]->param, ATTEND_WIDTH);
    k->sinks = -1;
    if (k->values < 0 || node->n_args <= 3)
        return k->values >= 0;
    k->sinks = bind(planner, kernel, false, node->args[3]->param, -1);
    if (k->sinks >= 0 && kernel->bindings[k->sinks].has[ATTEND_TOKENS])
        return plan_misfit(planner, "its sinks differ by token");
    return k->sinks >= 0;
}

static bool bind_results(Planner *planner, Kernel *kernel)
{
    AttendKernel *k = &kernel->attend;
    k->value = k->lse = -1;
    for (int i = 0; i < kernel->n_pieces; i++) {
        const DagPiece *piece = kernel->pieces[i];
        bool lse = below_cast(piece->value)->lse;
        int at = bind(planner, kernel, true, piece->result, lse ? -1 : ATTEND_WIDTH);
        *(lse ? &k->lse : &k->value) = at;
        if (at < 0)
            return false;
    }
    return true;
}

/* ---- what the kernel can do ------------------------------------------------------------------ */

static bool size_fits(Planner *planner, i64 n, const char *what)
{
    return n == 64 || n == 96 || n == 128 || n == 256 ||
           plan_misfit(planner, "%s have %lld elements; the kernel takes 64, 96, 128 or 256", what,
                       (long long)n);
}

static bool numbers_fit(Planner *planner, const Kernel *kernel)
{
    const Attend *a = &kernel->attend.computes;
    const FdpaClass *class = planner->contract->numerics;
    if (class->group != GROUP || class->bits != PRECISION)
        return plan_misfit(planner, "the kernel's steps are not those of %s", class->name);
    if (a->block != ATTEND_BLOCK)
        return plan_misfit(planner, "its blocks have %lld keys; the kernel takes %d",
                           (long long)a->block, ATTEND_BLOCK);
    return size_fits(planner, kernel->attend.depth, "its keys") &&
           size_fits(planner, kernel->attend.width, "its values");
}

bool plan_attend(Planner *planner, Kernel *shape)
{
    const OpDag *op = planner->op;
    const DagNode *value, *lse;
    *shape = (Kernel){.family = FAMILY_ATTEND, .op = op, .n_pieces = op->pieces.n};
    if (op->reduces.n)
        return plan_misfit(planner, "it has a sum beside `attend`");
    if (!find_results(planner, &value, &lse) || !operands_fit(planner, value) ||
        !make_dims(planner, shape, value))
        return false;
    shape->pieces = arena_array(planner->arena, const DagPiece *, op->pieces.n);
    for (int i = 0; i < op->pieces.n; i++)
        shape->pieces[i] = &op->pieces.v[i];
    shape->attend.computes = *value->attend;
    shape->attend.depth = dim_elements(planner, &shape->dims[ATTEND_DEPTH]);
    shape->attend.width = dim_elements(planner, &shape->dims[ATTEND_WIDTH]);
    return numbers_fit(planner, shape) && bind_operands(planner, shape, value) &&
           bind_results(planner, shape);
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* Up to FEW_TOKENS they may be of as many sequences. MMA keeps a row's values twice in registers,
 * which WIDE ones have not for two tiles; decode has shared memory for two CTAs, not of WIDE. */
enum { FEW_TOKENS = 128, NARROW = 64, WIDE = 128, WGMMA_ROWS = 128 };

static AttendSchedule mma_schedule(const AttendKernel *shape)
{
    AttendSchedule s = {*shape, 0, ROWS_MAX};
    s.kernel.choice = ATTEND_MMA;
    s.kernel.row_tiles = shape->width > WIDE ? 1 : 2;
    s.kernel.ahead = s.kernel.resident = 1;
    return s;
}

static AttendSchedule decode_schedule(const AttendKernel *shape)
{
    AttendSchedule s = {*shape, 0, FEW_TOKENS};
    s.kernel.choice = ATTEND_DECODE;
    s.kernel.row_tiles = 1;
    s.kernel.ahead = shape->depth <= NARROW && shape->width <= NARROW ? 2 : 1;
    s.kernel.resident = shape->depth <= WIDE && shape->width <= WIDE ? 2 : 1;
    return s;
}

/* Any batch, of the widths that its registers and shared memory have room for. */
static AttendSchedule wgmma_schedule(const AttendKernel *shape)
{
    AttendSchedule s = {*shape, 0, ROWS_MAX};
    s.kernel.choice = ATTEND_WGMMA;
    s.kernel.row_tiles = WGMMA_ROWS / 16;
    s.kernel.ahead = s.kernel.resident = 1;
    return s;
}

int plan_attend_schedules(const AttendKernel *shape, AttendSchedule out[ATTEND_SCHEDULES])
{
    int n = 0;
    out[n++] = decode_schedule(shape);
    if (shape->depth <= WIDE && shape->width <= WIDE)
        out[n++] = wgmma_schedule(shape);
    out[n++] = mma_schedule(shape);
    return n;
}

const char *attend_choice_name(AttendChoice choice)
{
    static const char *const names[] = {"mma", "decode", "wgmma", "parts", "join"};
    return names[choice];
}

/* ---- keys cut by splits ---------------------------------------------------------------------- */

/* Decode's, which has a unit for every split. */
bool plan_attend_parts(Planner *planner, const Kernel *shape, Kernel *parts)
{
    AttendKernel *k = &parts->attend;
    *parts = *shape;
    parts->n_bindings = parts->n_pieces = 0;
    *k = decode_schedule(&shape->attend).kernel;
    k->choice = ATTEND_PARTS;
    k->sinks = k->value = k->lse = -1;
    k->queries = bind(planner, parts, false, shape->bindings[shape->attend.queries].tensor,
                      ATTEND_DEPTH);
    k->keys = bind(planner, parts, false, shape->bindings[shape->attend.keys].tensor,
                   ATTEND_DEPTH);
    k->values = bind(planner, parts, false, shape->bindings[shape->attend.values].tensor,
                     ATTEND_WIDTH);
    return k->queries >= 0 && k->keys >= 0 && k->values >= 0;
}

bool plan_attend_join(Planner *planner, const Kernel *shape, int n_sources, Kernel *join)
{
    AttendKernel *k = &join->attend;
    if (n_sources > MAX_SOURCES)
        return plan_misfit(planner, "%d ranks share its keys; a join hears at most %d", n_sources,
                           MAX_SOURCES);
    *join = *shape;
    join->n_bindings = 0;
    k->choice = ATTEND_JOIN;
    k->row_tiles = k->ahead = k->resident = 1;
    k->queries = k->keys = k->values = k->sinks = -1;
    if (shape->attend.sinks >= 0)
        k->sinks = bind(planner, join, false, shape->bindings[shape->attend.sinks].tensor, -1);
    join->join.n_sources = n_sources;
    join->join.roots_of_rank = arena_array(planner->arena, int, n_sources);
    for (int i = 0; i < n_sources; i++)
        join->join.roots_of_rank[i] = 1; /* of a split */
    return bind_results(planner, join);
}
