/* The join of ranks' roots: the tree above them, walked as the tree itself is. */
#include "exec_impl.h"

#include <string.h>

int exec_left_depth(const TreeNode *node)
{
    int depth = 0;
    for (; node->kind != NODE_LEAF; node = node->left)
        depth++;
    return depth;
}

/* Roots are the highest nodes of the tree inside a rank's part, and come left to right: the first
 * node met from above that has a root's elements is that root. */
static bool is_root(const ExecReduce *reduce, int next, const TreeNode *node)
{
    if (next >= reduce->n_given)
        return false;
    const TreeNode *root = reduce->given[next].node;
    return root->lo == node->lo && root->hi == node->hi && root->count == node->count &&
           root->type == node->type;
}

/* How many nodes stand above the next root; -1 if there is none on the left side. */
static int depth_of_root(const ExecReduce *reduce, int next, const TreeNode *node)
{
    int depth = 0;
    for (; !is_root(reduce, next, node); depth++, node = node->left)
        if (node->kind == NODE_LEAF)
            return -1;
    return depth;
}

static void step(ExecReduce *reduce, Arena *arena, NodeKind kind, DType type, DType from)
{
    vec_push(arena, &reduce->steps, ((ExecStep){kind, type, from}));
}

/* The walk written down once: a leaf takes the next root, a join the two newest values. */
static bool joins(ExecReduce *reduce, const TreeNode *node, int *next, int height, Arena *arena)
{
    int depth = depth_of_root(reduce, *next, node);
    if (depth < 0)
        return false;
    const TreeNode **up = arena_array(arena, const TreeNode *, depth);
    for (int i = 0; i < depth; i++, node = node->left)
        up[i] = node;
    ++*next;
    step(reduce, arena, NODE_LEAF, node->type, node->type);
    reduce->height = height + 1 > reduce->height ? height + 1 : reduce->height;
    while (depth-- > 0) {
        bool join = up[depth]->kind == NODE_JOIN;
        if (join && !joins(reduce, up[depth]->right, next, height + 1, arena))
            return false;
        step(reduce, arena, up[depth]->kind, up[depth]->type, up[depth]->left->type);
    }
    return true;
}

bool exec_joins(ExecReduce *reduce, Arena *arena)
{
    int next = 0;
    return reduce->root && joins(reduce, reduce->root, &next, 0, arena) &&
           next == reduce->n_given;
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct Joined {
    const ExecReduce *reduce;
    u64 mask;             /* of the reduced value */
    i64 index[MAX_ATOMS]; /* of the element */
    float *stack;
    bool *present;        /* by place in the stack */
    ExecSlots *slots;     /* NULL: every root is there */
} Joined;

static const float *given_value(const Joined *j, const ExecGiven *given, int values)
{
    i64 element = 0;
    for (int a = 0; a < MAX_ATOMS; a++)
        if (j->mask >> a & 1) {
            i64 i = j->index[a] - given->place_lo[a];
            element += given->stride[a] * (given->place[a] ? given->place[a][i] : i);
        }
    return given->values + element * values;
}

static const float *joined_value(const Joined *j)
{
    Monoid monoid = j->reduce->node->monoid;
    int values = monoid_values(monoid), next = 0;
    float *end = j->stack;
    bool *there = j->present;
    for (int i = 0; i < j->reduce->steps.n; i++) {
        const ExecStep *s = &j->reduce->steps.v[i];
        if (s->kind == NODE_LEAF) {
            const ExecGiven *given = &j->reduce->given[next++];
            memcpy(end, given_value(j, given, values), sizeof *end * (size_t)values);
            end += values;
            *there++ = !j->slots || exec_slots_in(j->slots, given->node);
        } else if (s->kind == NODE_ROUND) {
            for (int v = 1; v <= values; v++)
                end[-v] = exec_round(s->type, exec_widen(s->from, end[-v]));
        } else {
            end -= values;
            there--;
            if (there[-1] && there[0])
                exec_join_values(monoid, s->type, end - values, end, end - values);
            else if (there[0])
                memcpy(end - values, end, sizeof *end * (size_t)values);
            there[-1] |= there[0];
        }
    }
    if (!j->present[0])
        exec_absent(monoid, j->stack);
    return j->stack;
}

/* The slots are summed, and have no dimension in the scope: a scope below it has. */
static ExecSlots *slots_of(ExecScope *scope, const ExecReduce *reduce)
{
    if (!reduce->node->n_fixes)
        return NULL;
    ExecScope *inner = scratch_alloc(scope->scratch, sizeof *inner);
    ExecSlots *slots = scratch_alloc(scope->scratch, sizeof *slots);
    *inner = (ExecScope){.call = scope->call, .scratch = scope->scratch, .parent = scope,
                         .space = scope->space, .fresh = exec_space_atoms(&reduce->over)};
    inner->space.dim[inner->space.n++] = reduce->over.dim[0];
    exec_scope_start(inner);
    exec_slots(inner, reduce, slots);
    return slots;
}

void exec_joined(ExecScope *scope, const ExecReduce *reduce, float *out)
{
    const DagNode *node = reduce->node;
    i64 stride[MAX_ATOMS], place[MAX_ATOMS] = {0};
    Joined j = {.reduce = reduce, .mask = exec_mask(scope->call, node),
                .slots = slots_of(scope, reduce)};
    i64 n = exec_strides(&scope->space, j.mask, stride);
    j.stack = scratch_array(scope->scratch, float, reduce->height * monoid_values(node->monoid));
    j.present = scratch_array(scope->scratch, bool, reduce->height);
    for (i64 e = 0; e < n; e++) {
        for (int d = 0; d < scope->space.n; d++) {
            const ExecDim *dim = &scope->space.dim[d];
            if (!(j.mask >> dim->atom & 1))
                continue;
            place[d] = e / stride[d] % dim->n;
            j.index[dim->atom] = dim->at[place[d]];
        }
        if (j.slots)
            exec_slots_of(j.slots, place);
        out[e] = exec_final(node->monoid, node->type, joined_value(&j));
    }
}
