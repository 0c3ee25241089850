/* Tensor-core leaves of the executor: both factors decoded once a tile, chains by fdpa.h. */
#include "exec_impl.h"

#include "base/fdpa.h"

#include <string.h>

/* Where a leaf's elements stand in the decoded rows: leaf by leaf in the order of the chain, each
 * filled up to whole groups with pairs that are zero on both sides. */
typedef struct Place {
    const TreeNode *node;
    i64 at, end;
} Place;

struct ExecMma {
    const FdpaClass *cls;
    int n_places;
    Place *places;
    i64 rows, columns, length;
    FdpaElem *a, *b;
    i64 *row_at, *column_at; /* elements of the tile */
    float *out;
    int next;                /* leaves are asked for in the order of their places */
    float *done;             /* of slots: [place][row][column], all at once; else NULL */
};

bool exec_is_mma(const ExecReduce *reduce)
{
    return tree_is_mma(reduce->node->tree);
}

/* ---- places ---------------------------------------------------------------------------------- */

static int count_leaves(const TreeNode *node)
{
    int n = 1;
    for (; node->kind != NODE_LEAF; node = node->left)
        n += node->kind == NODE_JOIN ? count_leaves(node->right) : 0;
    return n;
}

/* From the last leaf to the first, so that the left side, which may be deep, is a loop. */
static void list_leaves(const TreeNode *node, Place **end)
{
    for (; node->kind != NODE_LEAF; node = node->left)
        if (node->kind == NODE_JOIN)
            list_leaves(node->right, end);
    (--*end)->node = node;
}

static void place_leaves(struct ExecMma *mma, const Forest *roots, ExecScratch *scratch)
{
    for (int i = 0; i < roots->n; i++)
        mma->n_places += count_leaves(roots->v[i]);
    mma->places = scratch_array(scratch, Place, mma->n_places);
    Place *end = mma->places + mma->n_places;
    for (int i = roots->n - 1; i >= 0; i--)
        list_leaves(roots->v[i], &end);
    for (int i = 0; i < mma->n_places; i++) {
        Place *p = &mma->places[i];
        p->at = mma->length;
        mma->length += (i64)fdpa_padded(mma->cls, (size_t)p->node->count);
        p->end = mma->length;
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* One row of a factor into the leaves' places; the gaps are zero already. */
static void place_row(const struct ExecMma *mma, const ExecReduce *reduce, DType type,
                      const float *x, u16 *row)
{
    for (int p = 0; p < mma->n_places; p++) {
        const TreeNode *node = mma->places[p].node;
        u16 *to = row + mma->places[p].at;
        for (int r = 0; r < node->n_runs; r++) {
            const float *from = x + node->runs[r].start - reduce->lo;
            exec_save(type, from, node->runs[r].len, 1, 1, to);
            to += node->runs[r].len;
        }
    }
}

/* All rows of a factor as patterns; what both factors have is one index in a tile. */
static u16 *factor_rows(ExecTile *tile, const struct ExecMma *mma, const DagNode *factor, i64 rows)
{
    ExecScope *scope = &tile->scope;
    u64 over = exec_space_atoms(&tile->reduce->over);
    i64 k = exec_space_size(&tile->reduce->over, ~(u64)0);
    u16 *pattern = scratch_array(scope->scratch, u16, rows * mma->length);
    const ExecValue *x = exec_eval_over(scope, factor, exec_mask(scope->call, factor) | over);
    memset(pattern, 0, sizeof *pattern * (size_t)(rows * mma->length));
    for (i64 r = 0; r < rows; r++)
        place_row(mma, tile->reduce, factor->type, x->v + r * k, pattern + r * mma->length);
    return pattern;
}

static FdpaType fdpa_type(DType type)
{
    return type == DT_F16 ? FDPA_F16 : FDPA_BF16;
}

static FdpaElem *decode_rows(ExecTile *tile, struct ExecMma *mma, const DagNode *factor)
{
    size_t length = (size_t)mma->length;
    FdpaElem *rows = scratch_array(tile->scope.scratch, FdpaElem, mma->rows * mma->length);
    const u16 *pattern = factor_rows(tile, mma, factor, mma->rows);
    for (i64 r = 0; r < mma->rows; r++)
        fdpa_decode(mma->cls, fdpa_type(factor->type), pattern + r * mma->length, 1, length,
                    rows + r * mma->length);
    return rows;
}

static FdpaElem *decode_columns(ExecTile *tile, struct ExecMma *mma, const DagNode *factor)
{
    size_t length = (size_t)mma->length, n = (size_t)mma->columns;
    const u16 *pattern = factor_rows(tile, mma, factor, mma->columns);
    FdpaElem *panels = scratch_array(tile->scope.scratch, FdpaElem,
                                     fdpa_panels_size(mma->cls, n, length));
    fdpa_decode_panels(mma->cls, fdpa_type(factor->type), pattern, (ptrdiff_t)length, 1, n, length,
                       panels);
    return panels;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Element of the tile at each index of the dimensions in `mask`, row-major over those. */
static i64 *elements_at(const ExecTile *tile, u64 mask)
{
    i64 all[MAX_ATOMS], own[MAX_ATOMS];
    const ExecSpace *space = &tile->scope.space;
    exec_strides(space, tile->outer, all);
    i64 n = exec_strides(space, mask, own);
    i64 *at = scratch_array(tile->scope.scratch, i64, n);
    ExecWalk walk;
    exec_walk(&walk, space, mask, 2, (const i64 *const[]){own, all});
    while (exec_walk_next(&walk))
        for (i64 i = 0; i < walk.inner; i++)
            at[walk.offset[0] + i * walk.step[0]] = walk.offset[1] + i * walk.step[1];
    return at;
}

/* ---- slots: one operand is read at indices of tokens and slots -------------------------------
 * Rows are a tile's slots, in the order of their indices: those of one index share columns. */

const Fix *exec_mma_slots(const ExecCall *call, const DagNode *reduce)
{
    const DagNode *a = reduce->args[0]->args[0], *b = reduce->args[0]->args[1];
    const Op *op = call->job->op->op;
    const Fix *slots = NULL;
    int lookups = 0;
    for (int i = 0; b->kind == DAG_INPUT && i < b->n_fixes; i++)
        if (b->fixes[i].at < 0) {
            slots = &b->fixes[i];
            lookups++;
        }
    if (lookups != 1 || fix_is_result(slots) || fix_tensor(op, slots)->n_atoms != 2)
        return NULL;
    u64 own = fix_tensor(op, slots)->mask, columns = exec_mask(call, b) & ~own;
    for (int i = 0; i < reduce->n_atoms; i++)
        columns &= ~((u64)1 << reduce->atoms[i]);
    u64 beyond = exec_mask(call, a) & exec_mask(call, reduce) & ~own;
    bool apart = !(op->params[b->param].mask & own) && !beyond;
    return apart && columns ? slots : NULL;
}

typedef struct Slots {
    ExecTile *tile;
    struct ExecMma *mma;
    const Tensor *by;
    i64 stride[MAX_ATOMS]; /* of the rows */
    i64 *index;            /* per row: what is looked up */
    i64 *order;            /* rows by index */
} Slots;

/* By index, then by row: a merge of runs, which needs no context. */
static void sort_rows(const i64 *key, i64 *order, i64 *other, i64 n)
{
    for (i64 width = 1; width < n; width *= 2) {
        for (i64 lo = 0; lo < n; lo += 2 * width) {
            i64 mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n;
            for (i64 i = lo, j = mid, k = lo; k < hi; k++)
                other[k] = i < mid && (j == hi || key[order[i]] <= key[order[j]]) ? order[i++]
                                                                                  : order[j++];
        }
        memcpy(order, other, sizeof *order * (size_t)n);
    }
}

static void find_order(Slots *s, const Fix *fix)
{
    ExecScope *scope = &s->tile->scope;
    i64 place[MAX_ATOMS] = {0}, rows = s->mma->rows;
    ExecLookup lookup;
    exec_lookup(scope, s->tile->reduce->node->args[0]->args[1], fix, 0, &lookup);
    s->index = scratch_array(scope->scratch, i64, rows);
    s->order = scratch_array(scope->scratch, i64, rows);
    for (i64 r = 0; r < rows; r++) {
        for (int i = 0; i < lookup.n_dims; i++)
            place[lookup.dim[i]] = r / s->stride[lookup.dim[i]] %
                                   scope->space.dim[lookup.dim[i]].n;
        s->index[r] = exec_lookup_at(&lookup, place);
        s->order[r] = r;
    }
    sort_rows(s->index, s->order, scratch_array(scope->scratch, i64, rows), rows);
}

/* The rows' factor in that order; rows that differ in the slot alone may be one row of it. */
static void decode_ordered(Slots *s, const DagNode *factor)
{
    ExecScope *scope = &s->tile->scope;
    struct ExecMma *mma = s->mma;
    i64 own[MAX_ATOMS], rows = mma->rows, *from = scratch_array(scope->scratch, i64, rows);
    u64 mask = exec_mask(scope->call, factor) & s->tile->outer;
    const u16 *pattern =
        factor_rows(s->tile, mma, factor, exec_strides(&scope->space, mask, own));
    ExecWalk walk;
    exec_walk(&walk, &scope->space, s->by->mask & s->tile->outer, 2,
              (const i64 *const[]){s->stride, own});
    while (exec_walk_next(&walk))
        for (i64 i = 0; i < walk.inner; i++)
            from[walk.offset[0] + i * walk.step[0]] = walk.offset[1] + i * walk.step[1];
    mma->a = scratch_array(scope->scratch, FdpaElem, rows * mma->length);
    for (i64 r = 0; r < rows; r++)
        fdpa_decode(mma->cls, fdpa_type(factor->type),
                    pattern + from[s->order[r]] * mma->length, 1, (size_t)mma->length,
                    mma->a + r * mma->length);
}

/* The columns at one row's index: the factor over a tile that has that row alone. */
static void decode_index(Slots *s, i64 row)
{
    ExecTile one = *s->tile;
    ExecSpace *space = &one.scope.space;
    one.scope.parent = NULL;
    for (int d = 0; d < space->n; d++)
        if (s->by->mask >> space->dim[d].atom & 1) {
            space->dim[d].at += row / s->stride[d] % space->dim[d].n;
            space->dim[d].n = 1;
        }
    exec_scope_start(&one.scope);
    s->mma->b = decode_columns(&one, s->mma, s->tile->reduce->node->args[0]->args[1]);
}

static void run_rows(Slots *s, i64 first, i64 n)
{
    struct ExecMma *mma = s->mma;
    ExecMark mark = scratch_mark(s->tile->scope.scratch);
    decode_index(s, s->order[first]);
    for (int p = 0; p < mma->n_places; p++) {
        FdpaTile t = {.a = mma->a + first * mma->length, .b = mma->b, .m = (size_t)n,
                      .n = (size_t)mma->columns, .kp = (size_t)mma->length,
                      .k0 = (size_t)mma->places[p].at, .k1 = (size_t)mma->places[p].end,
                      .out = mma->done + (p * mma->rows + first) * mma->columns,
                      .ld = (size_t)mma->columns};
        fdpa_tile(mma->cls, &t);
    }
    scratch_release(s->tile->scope.scratch, mark);
}

static void start_slots(ExecTile *tile, struct ExecMma *mma, const Fix *fix)
{
    ExecScope *scope = &tile->scope;
    const DagNode *body = tile->reduce->node->args[0];
    Slots s = {.tile = tile, .mma = mma, .by = fix_tensor(scope->call->job->op->op, fix)};
    mma->rows = exec_strides(&scope->space, s.by->mask & tile->outer, s.stride);
    u64 columns = exec_mask(scope->call, body->args[1]) & tile->outer & ~s.by->mask;
    mma->columns = exec_space_size(&scope->space, columns);
    i64 *at = elements_at(tile, s.by->mask & tile->outer);
    mma->column_at = elements_at(tile, columns);
    find_order(&s, fix);
    decode_ordered(&s, body->args[0]);
    mma->done = scratch_array(scope->scratch, float, mma->n_places * mma->rows * mma->columns);
    for (i64 first = 0, end; first < mma->rows; first = end) {
        for (end = first + 1; end < mma->rows &&
                              s.index[s.order[end]] == s.index[s.order[first]];)
            end++;
        run_rows(&s, first, end - first);
    }
    mma->row_at = scratch_array(scope->scratch, i64, mma->rows);
    for (i64 r = 0; r < mma->rows; r++)
        mma->row_at[r] = at[s.order[r]];
}

struct ExecMma *exec_mma_start(ExecTile *tile, const Forest *roots)
{
    const ExecCall *call = tile->scope.call;
    const DagNode *body = tile->reduce->node->args[0];
    const Fix *slots = exec_mma_slots(call, tile->reduce->node);
    u64 a = exec_mask(call, body->args[0]) & tile->outer;
    u64 b = exec_mask(call, body->args[1]) & tile->outer;
    struct ExecMma *mma = scratch_alloc(tile->scope.scratch, sizeof *mma);
    *mma = (struct ExecMma){.cls = call->job->contract->numerics,
                            .rows = exec_space_size(&tile->scope.space, a),
                            .columns = exec_space_size(&tile->scope.space, b & ~a)};
    place_leaves(mma, roots, tile->scope.scratch);
    if (slots) {
        start_slots(tile, mma, slots);
        return mma;
    }
    mma->row_at = elements_at(tile, a);
    mma->column_at = elements_at(tile, b & ~a);
    mma->out = scratch_array(tile->scope.scratch, float, mma->rows * mma->columns);
    mma->a = decode_rows(tile, mma, body->args[0]);
    mma->b = decode_columns(tile, mma, body->args[1]);
    return mma;
}

void exec_mma_leaf(const ExecTile *tile, const TreeNode *node, float *out)
{
    struct ExecMma *mma = tile->mma;
    while (mma->places[mma->next].node != node)
        mma->next = (mma->next + 1) % mma->n_places;
    const Place *place = &mma->places[mma->next];
    if (mma->done) {
        const float *done = mma->done + mma->next * mma->rows * mma->columns;
        for (i64 i = 0; i < mma->rows; i++)
            for (i64 j = 0; j < mma->columns; j++)
                out[mma->row_at[i] + mma->column_at[j]] = done[i * mma->columns + j];
        return;
    }
    FdpaTile t = {.a = mma->a, .b = mma->b, .m = (size_t)mma->rows, .n = (size_t)mma->columns,
                  .kp = (size_t)mma->length, .k0 = (size_t)place->at, .k1 = (size_t)place->end,
                  .out = mma->out, .ld = (size_t)mma->columns};
    fdpa_tile(mma->cls, &t);
    for (i64 i = 0; i < mma->rows; i++)
        for (i64 j = 0; j < mma->columns; j++)
            out[mma->row_at[i] + mma->column_at[j]] = mma->out[i * mma->columns + j];
}
