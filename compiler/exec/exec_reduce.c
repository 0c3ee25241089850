/* Reductions of the executor: a tree walked node by node, over many elements at a time. */
#include "exec_impl.h"

#include "device/iso_num.cuh"

#include <string.h>

/* Values of a reduction's body held at once, at most, unless one element has more. */
enum { BODY_BUDGET = 1 << 19 };

/* ---- chains ---------------------------------------------------------------------------------- */

typedef struct Chain {
    const ExecTile *tile;
    const TreeNode *node;
    Monoid monoid;
    DType type[2];
    const float *x[2]; /* of one element: factors, or body and weight, from the box's first index */
} Chain;

/* A product first, then products added in one rounding. */
static float chain_products(const Chain *c)
{
    float acc = 0.0f;
    bool present = false;
    for (int r = 0; r < c->node->n_runs; r++) {
        i64 k = c->node->runs[r].start - c->tile->reduce->lo, end = k + c->node->runs[r].len;
        if (!present && k < end) {
            acc = iso_mul(c->x[0][k], c->x[1][k]);
            present = true;
            k++;
        }
        for (; k < end; k++)
            acc = iso_fma(c->x[0][k], c->x[1][k], acc);
    }
    return acc;
}

static void chain_joins(const Chain *c, float *acc)
{
    bool present = false;
    for (int r = 0; r < c->node->n_runs; r++) {
        i64 k = c->node->runs[r].start - c->tile->reduce->lo, end = k + c->node->runs[r].len;
        for (; k < end; k++) {
            float next[2];
            exec_lift(c->monoid, exec_widen(c->type[0], c->x[0][k]), next);
            if (present)
                exec_join_values(c->monoid, DT_F32, acc, next, acc);
            else
                memcpy(acc, next, sizeof *acc * (size_t)monoid_values(c->monoid));
            present = true;
        }
    }
}

static void chain_leaf(const ExecTile *tile, const TreeNode *node, float *out)
{
    static const i64 none[MAX_ATOMS];
    const ExecValue *x = tile->value[0], *y = tile->value[1];
    const DagNode *body = tile->reduce->node->args[0];
    Chain c = {.tile = tile, .node = node, .monoid = tile->reduce->node->monoid,
               .type = {body->type, DT_F32}};
    int values = monoid_values(c.monoid);
    if (y && !tile->fused)
        c.type[1] = tile->reduce->node->args[1]->type;
    ExecWalk walk;
    exec_walk(&walk, &tile->scope.space, tile->outer, 2,
              (const i64 *const[]){x->stride, y ? y->stride : none});
    while (exec_walk_next(&walk)) {
        for (i64 i = 0; i < walk.inner; i++, out += values) {
            c.x[0] = x->v + walk.offset[0] + i * walk.step[0];
            c.x[1] = y ? y->v + walk.offset[1] + i * walk.step[1] : NULL;
            if (tile->fused)
                *out = chain_products(&c);
            else
                chain_joins(&c, out);
        }
    }
}

/* ---- trees ----------------------------------------------------------------------------------- */

static void join_all(Monoid monoid, DType type, i64 elements, const float *right, float *left)
{
    int values = monoid_values(monoid);
    if (monoid == MONOID_SUM && type == DT_F32) {
        for (i64 e = 0; e < elements; e++)
            left[e] = iso_add(left[e], right[e]);
        return;
    }
    for (i64 e = 0; e < elements; e++)
        exec_join_values(monoid, type, left + e * values, right + e * values, left + e * values);
}

static void round_all(const TreeNode *node, i64 n, float *x)
{
    for (i64 i = 0; i < n; i++)
        x[i] = exec_round(node->type, exec_widen(node->left->type, x[i]));
}

static void leaf_value(ExecTile *tile, const TreeNode *node, float *out)
{
    if (tile->mma)
        exec_mma_leaf(tile, node, out);
    else
        chain_leaf(tile, node, out);
}

/* Down the left side to a leaf, then up: a `left` join may be half a million nodes deep. */
static void tree_value(ExecTile *tile, const TreeNode *node, float *out)
{
    Monoid monoid = tile->reduce->node->monoid;
    ExecScratch *scratch = tile->scope.scratch;
    i64 n = tile->elements * monoid_values(monoid);
    ExecMark mark = scratch_mark(scratch);
    int depth = exec_left_depth(node);
    const TreeNode **up = scratch_array(scratch, const TreeNode *, depth);
    for (int i = 0; i < depth; i++, node = node->left)
        up[i] = node;
    leaf_value(tile, node, out);
    float *right = depth ? scratch_array(scratch, float, n) : NULL;
    while (depth-- > 0) {
        if (up[depth]->kind == NODE_ROUND) {
            round_all(up[depth], n, out);
        } else {
            tree_value(tile, up[depth]->right, right);
            join_all(monoid, up[depth]->type, tile->elements, right, out);
        }
    }
    scratch_release(scratch, mark);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

static TreeForm leaf_form(const TreeNode *node)
{
    while (node->kind != NODE_LEAF)
        node = node->left;
    return node->leaf;
}

/* A chain takes a sum's f32 product unrounded, whoever else may use the product. */
static bool is_fused(const ExecReduce *reduce)
{
    const DagNode *body = reduce->node->args[0];
    return reduce->node->monoid == MONOID_SUM && body->kind == DAG_MUL && body->type == DT_F32 &&
           leaf_form(reduce->root) == TREE_CHAIN;
}

static void tile_values(ExecTile *tile, const Forest *roots)
{
    const DagNode *body = tile->reduce->node->args[0];
    u64 over = exec_space_atoms(&tile->reduce->over);
    if (exec_is_mma(tile->reduce)) {
        tile->mma = exec_mma_start(tile, roots);
        return;
    }
    tile->fused = is_fused(tile->reduce);
    const DagNode *const values[2] = {tile->fused ? body->args[0] : body,
                                      tile->fused ? body->args[1] : NULL};
    for (int i = 0; i < 2; i++)
        if (values[i])
            tile->value[i] = exec_eval_over(&tile->scope, values[i],
                                            exec_mask(tile->scope.call, values[i]) | over);
}

/* Rows and columns of a product are what only one factor has; what both have goes one by one. */
static void mma_chunks(const ExecScope *scope, const ExecReduce *reduce, const ExecSpace *outer,
                       ExecTiles *tiles)
{
    enum { ROWS = 64, COLUMNS = 128, SLOTS = 2048, SLOT_COLUMNS = 64 };
    const Fix *slots = exec_mma_slots(scope->call, reduce->node);
    if (slots) {
        u64 own = fix_tensor(scope->call->job->op->op, slots)->mask;
        exec_tiles_fill(outer, own, SLOTS, tiles);
        exec_tiles_fill(outer, ~own, SLOT_COLUMNS, tiles);
        return;
    }
    const DagNode *body = reduce->node->args[0];
    u64 a = exec_mask(scope->call, body->args[0]), b = exec_mask(scope->call, body->args[1]);
    exec_tiles_fill(outer, a & ~b, ROWS, tiles);
    exec_tiles_fill(outer, b & ~a, COLUMNS, tiles);
}

static void chunks(const ExecScope *scope, const ExecReduce *reduce, const ExecSpace *outer,
                   ExecTiles *tiles)
{
    for (int d = 0; d < outer->n; d++)
        tiles->chunk[d] = 1;
    i64 length = exec_space_size(&reduce->over, ~(u64)0);
    if (exec_is_mma(reduce))
        mma_chunks(scope, reduce, outer, tiles);
    else
        exec_tiles_fill(outer, ~(u64)0, 1 + BODY_BUDGET / (length + 1), tiles);
    exec_tiles_count(outer, tiles);
}

typedef struct Sink { /* where element 0 of each root goes */
    float **out;
    i64 stride[MAX_ATOMS]; /* by outer dimension, in elements */
    bool final;
} Sink;

static void sink_root(const ExecTile *tile, const ExecSpace *outer, const float *x,
                      DType type, const Sink *sink, i64 at, float *out)
{
    const DagNode *node = tile->reduce->node;
    i64 stride[MAX_ATOMS];
    int values = monoid_values(node->monoid);
    exec_strides(outer, ~(u64)0, stride);
    ExecWalk walk;
    exec_walk(&walk, outer, ~(u64)0, 2, (const i64 *const[]){stride, sink->stride});
    while (exec_walk_next(&walk)) {
        for (i64 i = 0; i < walk.inner; i++) {
            const float *from = x + (walk.offset[0] + i * walk.step[0]) * values;
            i64 to = at + walk.offset[1] + i * walk.step[1];
            if (sink->final)
                out[to] = exec_final(node->monoid, node->type, from);
            else
                for (int v = 0; v < values; v++)
                    out[to * values + v] = exec_widen(type, from[v]);
        }
    }
}

static void tile_run(ExecScope *parent, const ExecReduce *reduce, const Forest *roots,
                     const ExecSpace *outer, const Sink *sink, const i64 *first, u64 partial)
{
    ExecTile tile = {.reduce = reduce, .scope = {.call = parent->call, .scratch = parent->scratch,
                                                 .parent = parent, .space = *outer}};
    ExecSpace *space = &tile.scope.space;
    i64 at = 0;
    tile.outer = exec_space_atoms(outer);
    tile.elements = exec_space_size(outer, ~(u64)0);
    tile.scope.fresh = partial | exec_space_atoms(&reduce->over);
    for (int d = 0; d < reduce->over.n; d++)
        space->dim[space->n++] = reduce->over.dim[d];
    exec_scope_start(&tile.scope);
    tile_values(&tile, roots);
    float *x = scratch_array(parent->scratch, float,
                             tile.elements * monoid_values(reduce->node->monoid));
    for (int d = 0; d < outer->n; d++)
        at += first[d] * sink->stride[d];
    for (int i = 0; i < roots->n; i++) {
        if (reduce->node->n_fixes)
            exec_places(&tile, roots->v[i], x);
        else
            tree_value(&tile, roots->v[i], x);
        sink_root(&tile, outer, x, roots->v[i]->type, sink, at, sink->out[i]);
    }
}

/* The outer dimensions: those of the scope that the reduced value depends on. */
static void outer_space(const ExecScope *scope, const ExecReduce *reduce, const i64 *stride,
                        ExecSpace *outer, Sink *sink)
{
    u64 mask = exec_mask(scope->call, reduce->node);
    outer->n = 0;
    for (int d = 0; d < scope->space.n; d++)
        if (mask >> scope->space.dim[d].atom & 1) {
            sink->stride[outer->n] = stride[d];
            outer->dim[outer->n++] = scope->space.dim[d];
        }
}

static void reduce_tiles(ExecScope *scope, const ExecReduce *reduce, const Forest *roots,
                         Sink *sink, const i64 *stride)
{
    ExecSpace outer, part;
    ExecTiles tiles;
    i64 first[MAX_ATOMS];
    u64 partial = 0;
    outer_space(scope, reduce, stride, &outer, sink);
    chunks(scope, reduce, &outer, &tiles);
    for (int d = 0; d < outer.n; d++)
        if (tiles.count[d] > 1)
            partial |= (u64)1 << outer.dim[d].atom;
    for (int i = 0; i < reduce->node->n_args; i++)
        exec_eval_outside(scope, reduce->node->args[i],
                          partial | exec_space_atoms(&reduce->over));
    for (i64 t = 0; t < tiles.total; t++) {
        ExecMark mark = scratch_mark(scope->scratch);
        exec_tile(&outer, &tiles, t, &part, first);
        tile_run(scope, reduce, roots, &part, sink, first, partial);
        scratch_release(scope->scratch, mark);
    }
}

void exec_roots(ExecScope *scope, const ExecReduce *reduce, const Forest *roots, float **out,
                const i64 *stride)
{
    Sink sink = {.out = out};
    reduce_tiles(scope, reduce, roots, &sink, stride);
}

/* ---- the whole ------------------------------------------------------------------------------- */

void exec_reduce(ExecScope *scope, const ExecReduce *reduce, float *out)
{
    i64 stride[MAX_ATOMS];
    i64 n = exec_strides(&scope->space, exec_mask(scope->call, reduce->node), stride);
    const TreeNode *root = reduce->root;
    if (!root) {
        for (i64 e = 0; e < n; e++)
            out[e] = exec_of_nothing(reduce->node->monoid);
    } else if (reduce->n_given) {
        exec_joined(scope, reduce, out);
    } else {
        Forest roots = {.v = &root, .n = 1, .cap = 1};
        Sink sink = {.out = &out, .final = true};
        reduce_tiles(scope, reduce, &roots, &sink, stride);
    }
}
