/* A row kernel's tree written out: what its lanes take, and in which order they are joined. */
#include "plan.h"

typedef VEC(JoinOp) Ops;

typedef struct Expander {
    Arena *arena;
    const RowTree *tree;
    VEC(const Run *) runs;
    VEC(int) n_runs;
    VEC(Ops) ops; /* per leaf, what follows it */
} Expander;

static void add_op(Expander *e, JoinOp op)
{
    vec_push(e->arena, &e->ops.v[e->ops.n - 1], op);
}

/* Lane l of a part: runs of W elements, one in every L * W. */
static void add_lane(Expander *e, Run part, i64 lane)
{
    i64 width = e->tree->lanes > 1 ? e->tree->run : part.len, end = part.start + part.len;
    VEC(Run) runs = {0};
    Ops none = {0};
    for (i64 at = part.start + lane * width; at < end; at += e->tree->lanes * width) {
        Run run = {at, end - at < width ? end - at : width};
        vec_push(e->arena, &runs, run);
    }
    vec_push(e->arena, &e->runs, runs.v);
    vec_push(e->arena, &e->n_runs, runs.n);
    vec_push(e->arena, &e->ops, none);
    if (e->tree->lanes > 1 && e->tree->lane_type != DT_F32)
        add_op(e, (JoinOp){NODE_ROUND, e->tree->lane_type});
}

static i64 left_size(i64 n)
{
    i64 left = 1;
    while (left * 2 < n)
        left *= 2;
    return left;
}

static void add_lanes(Expander *e, Run part, i64 first, i64 n)
{
    i64 left = e->tree->lane_join == JOIN_LEFT ? n - 1 : left_size(n);
    if (n == 1) {
        add_lane(e, part, first);
        return;
    }
    add_lanes(e, part, first, left);
    add_lanes(e, part, first + left, n - left);
    add_op(e, (JoinOp){NODE_JOIN, e->tree->lane_type});
}

static void add_part(Expander *e, Run part, const JoinOp *ops, int n_ops)
{
    i64 present = (part.len + e->tree->run - 1) / e->tree->run;
    if (present > e->tree->lanes)
        present = e->tree->lanes;
    add_lanes(e, part, 0, present);
    for (int i = 0; i < n_ops; i++)
        add_op(e, ops[i]);
}

static void pack_program(Expander *e, JoinProgram *out)
{
    int height = 0;
    *out = (JoinProgram){.n_roots = e->ops.n};
    for (int i = 0; i < e->ops.n; i++)
        out->total_ops += e->ops.v[i].n;
    out->n_ops = arena_array(e->arena, int, out->n_roots + 1);
    out->ops = arena_array(e->arena, JoinOp, out->total_ops + 1);
    for (int i = 0, o = 0; i < e->ops.n; i++) {
        out->n_ops[i] = e->ops.v[i].n;
        if (++height > out->depth)
            out->depth = height;
        for (int k = 0; k < e->ops.v[i].n; k++) {
            out->ops[o] = e->ops.v[i].v[k];
            height -= out->ops[o++].kind == NODE_JOIN;
        }
    }
}

void row_leaves(Arena *arena, const RowTree *tree, RowLeaves *out)
{
    Expander e = {.arena = arena, .tree = tree};
    const JoinOp *ops = tree->program.ops;
    for (int i = 0; i < tree->n_parts; i++) {
        add_part(&e, tree->parts[i], ops, tree->program.n_ops[i]);
        ops += tree->program.n_ops[i];
    }
    *out = (RowLeaves){.n = e.runs.n, .runs = e.runs.v, .n_runs = e.n_runs.v};
    pack_program(&e, &out->program);
}
