/* Sessions: a contract opened from texts and run on the executor, whole or by rank. This is what
 * the runtime's CPU device and the device tests compare with. */
#include "isoc.h"

#include "base/reader.h"
#include "dag/dag.h"
#include "exec/exec.h"
#include "front/parse.h"
#include "plan/plan.h"
#include "session_keys.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

struct isoc_session {
    Arena *arena; /* front and middle: as long as the session */
    Sources sources;
    MemoryFiles files;
    Ast ast;
    Contract contract;
    Dag dag;
    Plan plan;
};

/* ---- opening --------------------------------------------------------------------------------- */

static void copy_sources(isoc_session *s, const isoc_source *sources, size_t n)
{
    MemoryFile *files = arena_array(s->arena, MemoryFile, n);
    for (size_t i = 0; i < n; i++)
        files[i] = (MemoryFile){str_copy(s->arena, str_of(sources[i].name)),
                                str_copy(s->arena, str_of(sources[i].text))};
    s->files = (MemoryFiles){(int)n, files};
    s->sources = (Sources){.arena = s->arena, .reader = reader_memory(&s->files)};
}

/* The including file of the first source is none, so its own name is already resolved. */
static bool open_stages(isoc_session *s, Diags *diags)
{
    return parse_contract(&s->sources, s->files.v[0].name, &s->ast, s->arena, diags) &&
           check_contract(&s->ast, &s->contract, s->arena, diags) &&
           dag_build(&s->contract, &s->dag, s->arena, diags) &&
           plan_build(&s->dag, NULL, &s->plan, s->arena, diags);
}

static isoc_status open_in_arena(isoc_session *s, const isoc_source *sources, size_t n,
                                 char **messages)
{
    Diags diags;
    copy_sources(s, sources, n);
    diags_init(&diags, s->arena, &s->sources);
    if (open_stages(s, &diags))
        return ISOC_OK;
    Text text = {.arena = s->arena};
    diags_render_text(&diags, &text, false);
    *messages = strdup(text_str(&text).s);
    return ISOC_ERROR_CONTRACT;
}

isoc_status isoc_session_open(const isoc_source *sources, size_t n, isoc_session **session,
                              char **messages)
{
    if (session)
        *session = NULL;
    if (messages)
        *messages = NULL;
    if (!session || !messages || !sources || n == 0)
        return ISOC_ERROR_USAGE;
    Arena *arena = arena_new();
    if (!arena)
        return ISOC_ERROR_MEMORY;
    jmp_buf oom;
    if (setjmp(oom)) {
        arena_free(arena);
        return ISOC_ERROR_MEMORY;
    }
    arena_on_oom(arena, &oom);
    isoc_session *s = arena_new_of(arena, isoc_session);
    s->arena = arena;
    isoc_status status = open_in_arena(s, sources, n, messages);
    if (status != ISOC_OK) {
        arena_free(arena);
        return status;
    }
    arena_on_oom(arena, NULL);
    *session = s;
    return ISOC_OK;
}

void isoc_session_close(isoc_session *session)
{
    if (session)
        arena_free(session->arena);
}

void isoc_session_fingerprint(const isoc_session *session, uint8_t digest[32])
{
    memcpy(digest, session->dag.fingerprint.byte, 32);
}

/* ---- one call -------------------------------------------------------------------------------- */

typedef struct CallState {
    const isoc_session *session;
    const isoc_call *call;
    const PlanOp *plan_op; /* of the layout */
    Arena *arena;          /* scratch */
    const Part *part;      /* whose tensors were passed */
    ExecTensor *tensors;
} CallState;

static const PlanOp *find_plan_op(const isoc_session *s, const isoc_call *call)
{
    for (int i = 0; i < s->plan.ops.n; i++) {
        const PlanOp *p = &s->plan.ops.v[i];
        Str layout = p->at.layout ? p->at.layout->name.text : STR("");
        if (str_is(p->op->op->name, call->op) && str_is(layout, call->layout))
            return p;
    }
    return NULL;
}

/* The first local index of a declared axis, as a global one. */
static i64 axis_lo(const Contract *contract, const Part *part, const Axis *axis, i64 row_lo)
{
    if (axis->n_factors == 0 || axis->atom >= 0)
        return axis->free ? row_lo : part->lo[axis->atom];
    i64 lo = 0;
    for (int i = 0; i < axis->n_factors; i++) {
        const Axis *factor = &contract->axes[axis->factors[i]];
        lo = lo * factor->size + axis_lo(contract, part, factor, row_lo);
    }
    return lo;
}

/* The caller's pointer is at the part's own first element. */
static void bind_tensor(CallState *c, const Tensor *tensor, int index)
{
    const Contract *contract = &c->session->contract;
    i64 row_lo, row_hi;
    part_rows(c->part, c->call->rows, &row_lo, &row_hi);
    ExecTensor *to = &c->tensors[index];
    to->data = c->call->tensors[index].data;
    for (int i = 0; i < tensor->n_axes; i++) {
        to->stride[i] = c->call->tensors[index].stride[i];
        to->offset -=
            to->stride[i] * axis_lo(contract, c->part, &contract->axes[tensor->axes[i]], row_lo);
    }
}

static void part_box(const Contract *contract, const Part *part, i64 rows, ExecBox *box)
{
    exec_box_all(contract, rows, box);
    for (int atom = 0; atom < contract->n_atoms; atom++) {
        if (contract->axes[contract->atom_axis[atom]].free)
            part_rows(part, rows, &box->atom[atom].lo, &box->atom[atom].hi);
        else
            box->atom[atom].lo = part->lo[atom], box->atom[atom].hi = part->hi[atom];
    }
}

/* Live rows are counted from the first that the rank computes with, also in a join. */
static void limit_live_rows(const CallState *c, ExecBox *box)
{
    const Contract *contract = &c->session->contract;
    i64 first, end;
    part_rows(&c->plan_op->part_of_rank[c->call->rank], c->call->rows, &first, &end);
    end = first + c->call->live_rows;
    for (int atom = 0; atom < contract->n_atoms && c->call->live_rows >= 0; atom++) {
        ExecRange *range = &box->atom[atom];
        if (contract->axes[contract->atom_axis[atom]].free && range->hi > end)
            range->hi = range->lo > end ? range->lo : end;
    }
}

static bool select_indices(const CallState *c, ExecBox *box)
{
    const Contract *contract = &c->session->contract;
    for (size_t i = 0; i < c->call->n_select; i++) {
        const isoc_selection *selection = &c->call->select[i];
        int found = -1;
        for (int a = 0; a < contract->n_atoms; a++)
            if (str_is(contract->axes[contract->atom_axis[a]].name.text, selection->axis))
                found = a;
        if (found < 0)
            return false;
        box->atom[found].n = (int)selection->n;
        box->atom[found].list = selection->index;
    }
    return true;
}

/* ---- roots -----------------------------------------------------------------------------------
 * The order of the buffer against the executor's.
 * Products: ((root * parts + part) * rows + row) * columns + column of all groups.
 * Rows: (root * values + value) * rows + row. */
typedef struct RootPlace {
    i64 start, root_stride, value_stride, row_stride, columns; /* of one reduce */
    int values;
} RootPlace;

static i64 dim_size(const ExecBox *box, const PlanDim *dim)
{
    i64 size = 1;
    for (int i = 0; i < dim->n_atoms; i++)
        size *= box->atom[dim->atoms[i]].hi - box->atom[dim->atoms[i]].lo;
    return size;
}

static bool gemm_place(const ExecBox *box, const Gemm *gemm, const DagNode *reduce,
                       RootPlace *place)
{
    i64 columns = 0, first = 0, rows = dim_size(box, &gemm->rows);
    int parts = 1, product = -1;
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        i64 own = dim_size(box, &group->cols);
        if (group->n_products > parts)
            parts = group->n_products;
        for (int p = 0; p < group->n_products; p++)
            if (group->product[p].reduce == reduce)
                product = p, first = columns, place->columns = own;
        columns += own;
    }
    place->start = product * rows * columns + first;
    place->root_stride = place->value_stride = parts * rows * columns;
    place->row_stride = columns;
    place->values = 1;
    return product >= 0;
}

/* All reduces' values of a root, one after another. */
static bool fold_place(const Fold *fold, i64 rows, const DagNode *reduce, RootPlace *place)
{
    int before = 0, i = 0;
    while (i < fold->n_reduces && fold->reduces[i] != reduce)
        before += monoid_values(fold->reduces[i++]->monoid);
    *place = (RootPlace){.start = before * rows, .root_stride = fold->values * rows,
                         .value_stride = rows, .row_stride = 1, .columns = 1,
                         .values = monoid_values(reduce->monoid)};
    return i < fold->n_reduces;
}

static bool root_place(const CallState *c, const ExecBox *box, const DagNode *reduce,
                       RootPlace *place)
{
    const Plan *plan = &c->session->plan;
    const Kernel *kernel = plan->kernels.v[c->plan_op->variants[0].kernel_of_rank[0]];
    if (kernel->gemm.fold.n_reduces)
        return fold_place(&kernel->gemm.fold, dim_size(box, &kernel->gemm.rows), reduce, place);
    if (kernel->family == FAMILY_GEMM)
        return gemm_place(box, &kernel->gemm, reduce, place);
    i64 rows = 1;
    for (int d = 0; d < kernel->n_dims - 1; d++)
        rows *= dim_size(box, &kernel->dims[d]);
    *place = (RootPlace){.root_stride = rows * monoid_values(reduce->monoid),
                         .value_stride = rows,
                         .row_stride = 1,
                         .columns = 1,
                         .values = monoid_values(reduce->monoid)};
    return kernel->family == FAMILY_ROW;
}

/* Element e of root r, value v: its place in the buffer. */
static i64 root_index(const RootPlace *place, int root, i64 element, int value)
{
    i64 row = element / place->columns, column = element % place->columns;
    i64 values = value * place->value_stride;
    return place->start + root * place->root_stride + values + row * place->row_stride + column;
}

static void copy_roots(const RootPlace *place, ExecRoots *roots, float *write, const float *read)
{
    for (int r = 0; r < roots->forest.n; r++)
        for (i64 e = 0; e < roots->elements; e++)
            for (int v = 0; v < place->values; v++) {
                i64 at = root_index(place, r, e, v);
                float *own = &roots->values[(r * roots->elements + e) * place->values + v];
                if (write)
                    write[at] = *own;
                else
                    *own = read[at];
            }
}

/* ---- phases ---------------------------------------------------------------------------------- */

static bool shares_keys(const PlanOp *op)
{
    return op->at.reduced && op->at.reduced->kind == DAG_ATTEND;
}

/* Coordinates by global row, from the rank's own; whoever joins splits has those of the rows that
 * it computes. NULL where none are given: the executor must not need them then. */
static const int *by_row(CallState *c, const int32_t *own)
{
    i64 lo, hi;
    const PlanOp *p = c->plan_op;
    part_rows(shares_keys(p) ? &p->part_of_rank[c->call->rank] : c->part, c->call->rows, &lo, &hi);
    int *all = own ? arena_array(c->arena, int, hi + 1) : NULL;
    for (i64 i = lo; all && i < hi; i++)
        all[i] = own[i - lo];
    return all;
}

/* Whether the call has the coordinates that the op's tables are indexed by. */
static bool has_coordinates(const CallState *c)
{
    const Contract *contract = &c->session->contract;
    const Op *op = c->plan_op->op->op;
    for (int i = 0; i < c->plan_op->op->nodes.n; i++)
        if (c->plan_op->op->nodes.v[i]->kind == DAG_DRAW && !c->call->positions)
            return false;
    for (int i = 0; i < op->n_params; i++)
        for (int k = 0; k < op->params[i].n_axes; k++) {
            int axis = op->params[i].axes[k], ragged = contract->axes[axis].coordinate_of;
            if (ragged < 0)
                continue;
            const Axis *r = &contract->axes[ragged];
            bool position = r->factors[r->n_factors - 1] == axis;
            if (!(position ? c->call->positions : c->call->sequences))
                return false;
        }
    return true;
}

/* ---- keys that ranks share by splits ---- */

static void place_source(const CallState *c, int rank, float *roots, ExecSource *source)
{
    const Contract *contract = &c->session->contract;
    const PlanOp *p = c->plan_op;
    const Kernel *kernel = c->session->plan.kernels.v[p->join_kernel];
    ExecBox box;
    i64 stride = 1;
    *source = (ExecSource){.roots = roots};
    part_box(contract, &p->part_of_rank[rank], c->call->rows, &box);
    for (int d = ATTEND_GROUP; d >= ATTEND_TOKENS; d--)
        for (int i = kernel->dims[d].n_atoms - 1; i >= 0; i--) {
            int atom = kernel->dims[d].atoms[i];
            source->lo[atom] = box.atom[atom].lo;
            source->stride[atom] = stride;
            stride *= box.atom[atom].hi - box.atom[atom].lo;
        }
}

static isoc_status run_shared(CallState *c, ExecJob *job)
{
    const isoc_call *call = c->call;
    const PlanOp *p = c->plan_op;
    const Part *own = &p->part_of_rank[call->rank];
    ExecSource *sources = arena_array(c->arena, ExecSource, own->keys_count);
    int *heard = arena_array(c->arena, int, p->at.ranks);
    i64 split = p->at.reduced->attend->split;
    if (!call->keys || call->keys->most_keys <= 0)
        return ISOC_ERROR_USAGE;
    ExecSplits splits = {.pieces = own->keys_count, .piece = -1, .turns = call->keys->turns,
                         .source = sources};
    splits.places = ((call->keys->most_keys + split - 1) / split + splits.pieces - 1) /
                    splits.pieces;
    job->splits = &splits;
    if (call->phase == ISOC_PART) {
        splits.piece = own->keys_index;
        place_source(c, call->rank, call->roots, &sources[splits.piece]);
        return exec_attend_part(job, c->arena) ? ISOC_OK : ISOC_ERROR_USAGE;
    }
    int n = layout_sources(&c->session->contract, &p->at, call->rank, heard);
    for (int i = 0; i < n; i++)
        place_source(c, heard[i], (float *)(uintptr_t)call->sources[heard[i]], &sources[i]);
    return exec_op(job, c->arena) ? ISOC_OK : ISOC_ERROR_USAGE;
}

static isoc_status run_part(CallState *c, const ExecJob *job)
{
    ExecRoots *roots;
    ExecBox *whole = arena_new_of(c->arena, ExecBox); /* the buffer has room for dead rows */
    int n;
    if (!exec_part(job, &roots, &n, c->arena))
        return ISOC_ERROR_USAGE;
    part_box(&c->session->contract, c->part, c->call->rows, whole);
    for (int i = 0; i < n; i++) {
        RootPlace place;
        if (!root_place(c, whole, c->plan_op->op->reduces.v[roots[i].reduce], &place))
            return ISOC_ERROR_USAGE;
        copy_roots(&place, &roots[i], c->call->roots, NULL);
    }
    return ISOC_OK;
}

/* One source's roots of one reduce, in the executor's order. */
static bool source_roots(CallState *c, int rank, int reduce, ExecRoots *out)
{
    const Contract *contract = &c->session->contract;
    const PlanOp *p = c->plan_op;
    const DagNode *node = p->op->reduces.v[reduce];
    ExecBox *box = arena_new_of(c->arena, ExecBox);
    part_box(contract, &p->part_of_rank[rank], c->call->rows, box);
    const TreeNode *root = tree_expand(c->arena, node->tree, reduce_extent(contract, node));
    int atoms[MAX_ATOMS], n = exec_reduce_atoms(contract, p->op, reduce, atoms);
    RootPlace place;
    out->reduce = reduce;
    out->box = box;
    out->elements = 1;
    for (int i = 0; i < n; i++)
        out->elements *= box->atom[atoms[i]].hi - box->atom[atoms[i]].lo;
    if (!layout_forest(contract, node, root, &p->part_of_rank[rank], &out->forest, c->arena) ||
        !root_place(c, box, node, &place))
        return false;
    out->values = arena_array(c->arena, float, out->forest.n * out->elements * place.values);
    copy_roots(&place, out, NULL, c->call->sources[rank]);
    return true;
}

static isoc_status run_join(CallState *c, const ExecJob *job)
{
    const PlanOp *p = c->plan_op;
    const Contract *contract = &c->session->contract;
    int *heard = arena_array(c->arena, int, p->at.ranks);
    int sources = layout_sources(contract, &p->at, c->call->rank, heard);
    const ExecRoots **roots = arena_array(c->arena, const ExecRoots *, sources);
    int *counts = arena_array(c->arena, int, sources);
    for (int i = 0; i < sources; i++) {
        ExecRoots *own = arena_array(c->arena, ExecRoots, p->op->reduces.n);
        for (int r = 0; r < p->op->reduces.n; r++)
            if (layout_leaves_roots(contract, &p->at, p->op->reduces.v[r]) &&
                !source_roots(c, heard[i], r, &own[counts[i]++]))
                return ISOC_ERROR_USAGE;
        roots[i] = own;
    }
    return exec_join(job, roots, counts, sources, c->arena) ? ISOC_OK : ISOC_ERROR_USAGE;
}

/* What is joined has the whole reduced axes, whatever the rank's own part of them is; of results
 * that have them too it finishes its own indices. */
static void widen_reduced(const OpDag *op, const Contract *contract, ExecBox *box, Arena *arena)
{
    for (int r = 0; r < op->reduces.n; r++)
        for (int i = 0; i < op->reduces.v[r]->n_atoms; i++) {
            int atom = op->reduces.v[r]->atoms[i];
            const Axis *axis = &contract->axes[contract->atom_axis[atom]];
            ExecRange *range = &box->atom[atom];
            if (axis->free || (range->lo == 0 && range->hi == axis->size))
                continue;
            i64 *own = arena_array(arena, i64, range->hi - range->lo);
            for (i64 k = range->lo; k < range->hi; k++)
                own[k - range->lo] = k;
            *range = (ExecRange){0, axis->size, (int)(range->hi - range->lo), own};
        }
}

static bool place_keys(CallState *c, ExecJob *job)
{
    i64 lo, hi;
    job->lengths = c->call->keys->lengths;
    part_rows(c->part, c->call->rows, &lo, &hi);
    return session_keys(c->call->keys, job, lo, hi, c->tensors, c->arena);
}

static isoc_status run_call(CallState *c)
{
    const isoc_call *call = c->call;
    const Contract *contract = &c->session->contract;
    const PlanOp *p = c->plan_op;
    const Op *op = p->op->op;
    c->part =
        call->phase == ISOC_JOIN ? &p->finish_of_rank[call->rank] : &p->part_of_rank[call->rank];
    if (!has_coordinates(c))
        return ISOC_ERROR_USAGE;
    c->tensors = arena_array(c->arena, ExecTensor, op->n_params + op->n_results);
    for (int i = 0; i < op->n_params; i++)
        bind_tensor(c, &op->params[i], i);
    for (int i = 0; i < op->n_results; i++)
        bind_tensor(c, &op->results[i], op->n_params + i);
    ExecJob job = {
        .contract = contract,
        .op = p->op,
        .params = c->tensors,
        .results = c->tensors + op->n_params,
        .positions = by_row(c, call->positions),
        .sequences = by_row(c, call->sequences),
        .threads = call->threads > 0 ? call->threads : 1,
    };
    part_box(contract, c->part, call->rows, &job.box);
    if (call->keys && !place_keys(c, &job))
        return ISOC_ERROR_USAGE;
    if (call->phase == ISOC_JOIN)
        widen_reduced(p->op, contract, &job.box, c->arena);
    limit_live_rows(c, &job.box);
    if (!select_indices(c, &job.box))
        return ISOC_ERROR_USAGE;
    if (call->phase != ISOC_RUN && shares_keys(p))
        return run_shared(c, &job);
    if (call->phase == ISOC_PART)
        return run_part(c, &job);
    if (call->phase == ISOC_JOIN)
        return run_join(c, &job);
    return exec_op(&job, c->arena) ? ISOC_OK : ISOC_ERROR_USAGE;
}

isoc_status isoc_session_run(isoc_session *session, const isoc_call *call)
{
    if (!session || !call || !call->op || !call->layout || !call->tensors)
        return ISOC_ERROR_USAGE;
    CallState state = {.session = session, .call = call, .plan_op = find_plan_op(session, call)};
    if (!state.plan_op || call->rank < 0 || call->rank >= state.plan_op->at.ranks ||
        (call->phase == ISOC_JOIN && state.plan_op->join_kernel < 0))
        return ISOC_ERROR_USAGE;
    state.arena = arena_new();
    if (!state.arena)
        return ISOC_ERROR_MEMORY;
    jmp_buf oom;
    if (setjmp(oom)) {
        arena_free(state.arena);
        return ISOC_ERROR_MEMORY;
    }
    arena_on_oom(state.arena, &oom);
    isoc_status status = run_call(&state);
    arena_free(state.arena);
    return status;
}
