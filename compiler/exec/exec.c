/* The executor's calls: a whole op, a rank's part of its reductions, and the join of the parts. */
#include "exec_impl.h"

#include <string.h>

void exec_box_all(const Contract *contract, i64 free_length, ExecBox *box)
{
    memset(box, 0, sizeof *box);
    box->free_length = free_length;
    for (int a = 0; a < contract->n_atoms; a++)
        box->atom[a].hi = atom_size(contract, a, free_length);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void piece_space(const ExecCall *call, const DagPiece *piece, ExecSpace *space, Arena *arena)
{
    const Tensor *result = &call->job->op->op->results[piece->result];
    space->n = 0;
    for (int i = 0; i < result->n_atoms; i++) {
        int atom = result->atoms[i];
        bool held = false;
        for (int f = 0; f < piece->n_fixes; f++)
            held |= piece->fixes[f].atom == atom;
        if (!held)
            space->dim[space->n++] = exec_dim(arena, &call->job->box.atom[atom], atom, true);
    }
}

typedef struct Demand { /* what the reductions below a value ask of its tiles */
    u64 all;            /* atoms that every reduction depends on: tiles of them repeat no work */
    i64 longest;        /* of the reductions that are no tensor-core products */
    u64 slots;          /* atoms of slots that products are looked up at */
} Demand;

static void demand_of(const ExecCall *call, const DagNode *node, bool *seen, Demand *demand)
{
    bool *mark = &seen[node->number - call->first];
    if (*mark)
        return;
    *mark = true;
    const ExecReduce *reduce = exec_reduce_of(call, node);
    if (reduce) {
        demand->all &= exec_mask(call, node);
        i64 n = exec_is_mma(reduce) || reduce->n_given ? 1 : reduce->hi - reduce->lo;
        demand->longest = n > demand->longest ? n : demand->longest;
        const Fix *slots = exec_is_mma(reduce) && !reduce->n_given ? exec_mma_slots(call, node)
                                                                   : NULL;
        if (slots)
            demand->slots |= (u64)1 << fix_tensor(call->job->op->op, slots)->atoms[1];
    }
    if (node->kind == DAG_ATTEND)
        demand->all &= node->attend->rows;
    if (node->kind == DAG_DRAW || node->kind == DAG_TOP) {
        bool draw = node->kind == DAG_DRAW;
        i64 n = atom_size(call->job->contract, draw ? node->draw->atom : node->top->atom, 0);
        demand->all &= (u64)1 << (draw ? node->draw->tokens : node->top->tokens);
        demand->longest = n > demand->longest ? n : demand->longest;
    }
    for (int i = 0; i < node->n_args; i++)
        demand_of(call, node->args[i], seen, demand);
}

/* Tiles for threads to share: up to 64 rows of up to 256 columns, fewer where rows are long. */
static void piece_tiles(const ExecCall *call, const DagNode *value, const ExecSpace *space,
                        ExecTiles *tiles, Arena *arena)
{
    enum { ROWS = 64, COLUMNS = 256, ROW_BUDGET = 1 << 18, SLOT_ROWS = 256, SLOT_COLUMNS = 64 };
    Demand demand = {.all = ~(u64)0, .longest = 1};
    demand_of(call, value, arena_array(arena, bool, call->n_numbers), &demand);
    u64 rows = 0;
    i64 width = demand.longest;
    for (int d = 0; d < space->n; d++) {
        const ExecDim *dim = &space->dim[d];
        u64 bit = (u64)1 << dim->atom;
        tiles->chunk[d] = demand.all & bit ? 1 : dim->n ? dim->n : 1;
        if (demand.all & bit && !rows)
            rows = bit;
        else if (!(demand.all & bit) && dim->n > width)
            width = dim->n;
    }
    i64 budget = ROW_BUDGET / width, most = demand.slots ? SLOT_ROWS : ROWS;
    exec_tiles_fill(space, demand.all & ~rows & ~demand.slots,
                    demand.slots ? SLOT_COLUMNS : COLUMNS, tiles);
    exec_tiles_fill(space, demand.slots, COLUMNS, tiles);
    exec_tiles_fill(space, rows, budget < 1 ? 1 : budget < most ? budget : most, tiles);
    exec_tiles_count(space, tiles);
}

static void piece_work(void *context, ExecScope *scope, const i64 *first)
{
    (void)first;
    exec_store(scope, context);
}

static void run_pieces(const ExecCall *call, Arena *arena)
{
    for (int i = 0; i < call->job->op->pieces.n; i++) {
        DagPiece piece = call->job->op->pieces.v[i];
        ExecSpace space;
        ExecTiles tiles;
        piece_space(call, &piece, &space, arena);
        piece_tiles(call, piece.value, &space, &tiles, arena);
        exec_run(call, &space, &tiles, piece_work, &piece, arena);
    }
}

bool exec_op(const ExecJob *job, Arena *arena)
{
    ExecCall call;
    exec_call_init(&call, job, arena);
    for (int i = 0; i < call.n_reduces; i++)
        if (call.reduces[i].cut)
            return false;
    for (int i = 0; i < job->op->nodes.n; i++)
        if (!exec_can_attend(job, job->op->nodes.v[i]) ||
            (job->op->nodes.v[i]->kind == DAG_DRAW && !job->positions))
            return false;
    run_pieces(&call, arena);
    return true;
}

static void leave_roots(void *context, ExecScope *scope, const i64 *first)
{
    (void)first;
    exec_eval(scope, context);
}

static const DagNode *find_attend(const OpDag *op)
{
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i]->kind == DAG_ATTEND && !op->nodes.v[i]->lse)
            return op->nodes.v[i];
    return NULL;
}

bool exec_attend_part(const ExecJob *job, Arena *arena)
{
    ExecCall call;
    ExecSpace space = {0};
    ExecTiles tiles;
    const DagNode *node = find_attend(job->op);
    exec_call_init(&call, job, arena);
    if (!node || !job->splits || !exec_can_attend(job, node))
        return false;
    for (int a = 0; a < job->contract->n_atoms; a++)
        if (node->mask >> a & 1)
            space.dim[space.n++] = exec_dim(arena, &job->box.atom[a], a, true);
    piece_tiles(&call, node, &space, &tiles, arena);
    exec_run(&call, &space, &tiles, leave_roots, (void *)node, arena);
    return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

int exec_reduce_atoms(const Contract *contract, const OpDag *op, int reduce, int *atoms)
{
    u64 left = exec_dimensions(contract, op->reduces.v[reduce]->mask);
    int n = 0;
    for (int r = 0; r < op->op->n_results; r++)
        for (int i = 0; i < op->op->results[r].n_atoms; i++) {
            int atom = op->op->results[r].atoms[i];
            if (left >> atom & 1)
                atoms[n++] = atom;
            left &= ~((u64)1 << atom);
        }
    for (int a = 0; a < contract->n_atoms; a++)
        if (left >> a & 1)
            atoms[n++] = a;
    return n;
}

static void reduce_space(const ExecJob *job, int reduce, ExecSpace *space, Arena *arena)
{
    int atoms[MAX_ATOMS];
    space->n = exec_reduce_atoms(job->contract, job->op, reduce, atoms);
    for (int i = 0; i < space->n; i++)
        space->dim[i] = exec_dim(arena, &job->box.atom[atoms[i]], atoms[i], true);
}

typedef struct PartWork {
    const ExecReduce *reduce;
    const ExecRoots *roots;
    i64 stride[MAX_ATOMS];
} PartWork;

static void part_work(void *context, ExecScope *scope, const i64 *first)
{
    const PartWork *w = context;
    int values = monoid_values(w->reduce->node->monoid);
    float **out = scratch_array(scope->scratch, float *, w->roots->forest.n);
    i64 at = 0;
    for (int d = 0; d < scope->space.n; d++)
        at += first[d] * w->stride[d];
    for (int i = 0; i < w->roots->forest.n; i++)
        out[i] = w->roots->values + (i * w->roots->elements + at) * values;
    exec_roots(scope, w->reduce, &w->roots->forest, out, w->stride);
}

static bool forest_of(const ExecReduce *r, Forest *forest, Arena *arena)
{
    return dag_folds(r->node)
               ? tree_part_forest(arena, r->node->tree, r->root, r->lo, r->hi, forest)
               : tree_forest(arena, r->root, r->lo, r->hi, forest);
}

static bool part_of(const ExecCall *call, int reduce, ExecRoots *roots, Arena *arena)
{
    const ExecReduce *r = &call->reduces[reduce];
    PartWork work = {.reduce = r, .roots = roots};
    ExecSpace space;
    ExecTiles tiles;
    *roots = (ExecRoots){.reduce = reduce};
    for (int i = 0; i < r->node->n_args; i++)
        if (exec_needs_cut(call, r->node->args[i], arena))
            return false;
    if (!r->one_run)
        return false;
    if (r->hi > r->lo && !forest_of(r, &roots->forest, arena))
        return false;
    reduce_space(call->job, reduce, &space, arena);
    roots->elements = exec_strides(&space, ~(u64)0, work.stride);
    roots->values = arena_array(arena, float,
                                roots->forest.n * roots->elements * monoid_values(r->node->monoid));
    if (roots->forest.n == 0)
        return true;
    piece_tiles(call, r->node, &space, &tiles, arena);
    exec_run(call, &space, &tiles, part_work, &work, arena);
    return true;
}

bool exec_part(const ExecJob *job, ExecRoots **roots, int *n_roots, Arena *arena)
{
    ExecCall call;
    exec_call_init(&call, job, arena);
    ExecBox *box = arena_new_of(arena, ExecBox);
    *box = job->box;
    *roots = arena_array(arena, ExecRoots, call.n_reduces);
    *n_roots = 0;
    for (int i = 0; i < call.n_reduces; i++) {
        if (!call.reduces[i].leaves)
            continue;
        ExecRoots *record = &(*roots)[(*n_roots)++];
        if (!part_of(&call, i, record, arena))
            return false;
        record->box = box;
    }
    return true;
}

/* ---- joins ----------------------------------------------------------------------------------- */

/* Where each index of a part's range stands in it; NULL where that is the index less the first. */
static const i64 *places_of(const ExecRange *range, i64 *lo, i64 *n, Arena *arena)
{
    *lo = range->lo;
    *n = range->hi - range->lo;
    if (!range->list)
        return NULL;
    i64 hi = *lo = range->n ? range->list[0] : 0;
    *n = range->n;
    for (int i = 0; i < range->n; i++) {
        *lo = range->list[i] < *lo ? range->list[i] : *lo;
        hi = range->list[i] > hi ? range->list[i] : hi;
    }
    i64 *place = arena_array(arena, i64, hi - *lo + 1);
    for (int i = 0; i < range->n; i++)
        place[range->list[i] - *lo] = i;
    return place;
}

/* Roots of one record become given ones of the call's reduce. */
static void give(const ExecJob *job, const ExecRoots *roots, ExecReduce *reduce, Arena *arena)
{
    const ExecBox *box = roots->box ? roots->box : &job->box;
    int values = monoid_values(reduce->node->monoid), atoms[MAX_ATOMS];
    int n_atoms = exec_reduce_atoms(job->contract, job->op, roots->reduce, atoms);
    ExecGiven given = {0};
    i64 stride = 1;
    for (int i = n_atoms - 1; i >= 0; i--) {
        i64 n;
        given.stride[atoms[i]] = stride;
        given.place[atoms[i]] =
            places_of(&box->atom[atoms[i]], &given.place_lo[atoms[i]], &n, arena);
        stride *= n;
    }
    for (int i = 0; i < roots->forest.n; i++) {
        given.node = roots->forest.v[i];
        given.values = roots->values + i * roots->elements * values;
        reduce->given[reduce->n_given++] = given;
    }
}

static bool give_all(ExecCall *call, int r, const ExecRoots *const *roots, const int *n_roots,
                     int ranks, Arena *arena)
{
    ExecReduce *reduce = &call->reduces[r];
    int total = 0;
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < n_roots[rank]; i++)
            if (roots[rank][i].reduce == r)
                total += roots[rank][i].forest.n;
    if (total == 0)
        return !reduce->cut;
    reduce->given = arena_array(arena, ExecGiven, total);
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < n_roots[rank]; i++)
            if (roots[rank][i].reduce == r)
                give(call->job, &roots[rank][i], reduce, arena);
    return exec_joins(reduce, arena);
}

bool exec_join(const ExecJob *job, const ExecRoots *const *roots, const int *n_roots, int ranks,
               Arena *arena)
{
    ExecCall call;
    exec_call_init(&call, job, arena);
    for (int r = 0; r < call.n_reduces; r++)
        if (!give_all(&call, r, roots, n_roots, ranks, arena))
            return false;
    run_pieces(&call, arena);
    return true;
}
