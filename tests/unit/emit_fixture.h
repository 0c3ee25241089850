/* Ops and kernels built by hand, so that emission is tested without the stages before it.
 * Ownership: everything lives in the fixture's arena. */
#ifndef ISOC_TEST_EMIT_FIXTURE_H
#define ISOC_TEST_EMIT_FIXTURE_H

#include "emit/emit.h"

#include <string.h>

enum { ATOM_TOKENS, ATOM_HIDDEN, ATOM_COLS, ATOM_K, FIXTURE_ATOMS };

typedef struct Fixture {
    Arena *arena;
    Contract contract;
    Axis axes[FIXTURE_ATOMS];
    Op op;
    Tensor params[8], results[4];
    OpDag dag;
    Kernel kernel;
    int numbers;
} Fixture;

static inline void fixture_start(Fixture *f, Arena *arena, const char *name, i64 hidden)
{
    static const char *const names[] = {"tokens", "hidden", "cols", "k"};
    const i64 sizes[] = {0, hidden, 1024, 4096};
    memset(f, 0, sizeof *f);
    f->arena = arena;
    f->contract = (Contract){.numerics = fdpa_class("sm_90", FDPA_BF16), .n_axes = FIXTURE_ATOMS,
                             .axes = f->axes, .n_atoms = FIXTURE_ATOMS};
    for (int i = 0; i < FIXTURE_ATOMS; i++) {
        f->axes[i] = (Axis){.name = {str_of(names[i]), {0}}, .size = sizes[i], .stored = sizes[i],
                            .free = !sizes[i], .coordinate_of = -1, .parent = -1, .atom = i};
        f->contract.atom_axis[i] = i;
    }
    f->op = (Op){.name = str_of(name), .params = f->params, .results = f->results};
    f->dag.op = &f->op;
    f->kernel.op = &f->dag;
}

static inline Tensor fixture_tensor(const char *name, DType type, u64 mask)
{
    Tensor t = {.name = {str_of(name), {0}}, .type = type, .mask = mask};
    for (int a = 0; a < FIXTURE_ATOMS; a++)
        if (mask >> a & 1)
            t.axes[t.n_axes++] = t.atoms[t.n_atoms++] = a;
    return t;
}

static inline const DagNode *fixture_node(Fixture *f, DagNode node)
{
    DagNode *copy = arena_new_of(f->arena, DagNode);
    *copy = node;
    copy->number = f->numbers++;
    vec_push(f->arena, &f->dag.nodes, copy);
    return copy;
}

/* A parameter over the atoms of `mask`, and its one node. */
static inline const DagNode *fixture_input(Fixture *f, const char *name, DType type, u64 mask)
{
    f->params[f->op.n_params] = fixture_tensor(name, type, mask);
    return fixture_node(
        f, (DagNode){.kind = DAG_INPUT, .type = type, .mask = mask, .param = f->op.n_params++});
}

static inline const DagNode *fixture_const(Fixture *f, DType type, u32 bits)
{
    return fixture_node(f, (DagNode){.kind = DAG_CONST, .type = type, .bits = bits});
}

static inline const DagNode *fixture_binary(Fixture *f, DagKind kind, const DagNode *a,
                                            const DagNode *b)
{
    return fixture_node(f, (DagNode){.kind = kind, .type = a->type, .mask = a->mask | b->mask,
                                     .n_args = 2, .args = {a, b}});
}

static inline const DagNode *fixture_cast(Fixture *f, DType type, const DagNode *a)
{
    return fixture_node(f, (DagNode){.kind = DAG_CAST, .type = type, .mask = a->mask, .n_args = 1,
                                     .args = {a}});
}

static inline const DagNode *fixture_fn(Fixture *f, FnId fn, const DagNode *a)
{
    return fixture_node(f, (DagNode){.kind = DAG_FN, .type = DT_F32, .mask = a->mask, .n_args = 1,
                                     .args = {a}, .fn = fn});
}

static inline const DagNode *fixture_reduce(Fixture *f, Monoid monoid, int atom, DType type,
                                            const DagNode *body)
{
    int *atoms = arena_new_of(f->arena, int);
    *atoms = atom;
    return fixture_node(f, (DagNode){.kind = DAG_REDUCE, .type = type,
                                     .mask = body->mask & ~((u64)1 << atom), .n_args = 1,
                                     .args = {body}, .monoid = monoid, .n_atoms = 1,
                                     .atoms = atoms});
}

/* A result over the atoms of `mask`. */
static inline const DagPiece *fixture_result(Fixture *f, const char *name, u64 mask,
                                             const DagNode *value)
{
    DagPiece *piece = arena_new_of(f->arena, DagPiece);
    f->results[f->op.n_results] = fixture_tensor(name, value->type, mask);
    *piece = (DagPiece){.result = f->op.n_results++, .value = value};
    return piece;
}

/* One-atom dims; every tensor gets a binding, parameters first. */
static inline void fixture_bind(Fixture *f, int n_dims, const int *atoms)
{
    Kernel *k = &f->kernel;
    k->n_dims = n_dims;
    for (int d = 0; d < n_dims; d++)
        k->dims[d] = (PlanDim){1, {atoms[d]}};
    for (int i = 0; i < f->op.n_params + f->op.n_results; i++) {
        bool result = i >= f->op.n_params;
        int tensor = result ? i - f->op.n_params : i;
        u64 mask = result ? f->results[tensor].mask : f->params[tensor].mask;
        Binding *b = &k->bindings[k->n_bindings++];
        *b = (Binding){.result = result, .tensor = tensor, .n_dims = n_dims, .group = -1,
                       .coordinate = -1, .lookup = -1};
        for (int d = 0; d < n_dims; d++)
            b->has[d] = mask >> atoms[d] & 1;
    }
}

/* The program of a tree expanded over an extent, its leaves being equal parts. */
static inline JoinProgram fixture_program(Arena *arena, const Tree *tree, i64 extent)
{
    JoinProgram program = {0};
    Forest leaves = {0};
    const TreeNode *root = tree_expand(arena, tree, extent);
    tree_leaves(arena, root, &leaves);
    tree_join_program(arena, root, &leaves, &program);
    return program;
}

#endif
