/* The kernels of a plan, run for one element of a result at a time. */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Value {
    float v[VALUES_MOST];
    bool absent; /* no slot stands below it */
} Value;

struct RowCache {
    bool valid;
    int64_t key[ATOMS_MOST];
    bool *have;
    float *reduced;
};

enum { STACK = 4096 };

/* ---- monoids --------------------------------------------------------------------------------- */

static Value joined(const char *monoid, Type t, Value l, Value r)
{
    Value out = {{0}, false};
    if (l.absent || r.absent)
        return l.absent ? r : l;
    if (!strcmp(monoid, "sum")) {
        out.v[0] = rounded(t, add(l.v[0], r.v[0]));
    } else if (!strcmp(monoid, "max")) {
        out.v[0] = rounded(t, greater(l.v[0], r.v[0]));
    } else if (!strcmp(monoid, "logsumexp")) {
        float m = rounded(t, greater(l.v[0], r.v[0])), e[2];
        float d[2] = {l.v[0] == m ? 0 : rounded(t, binary("sub", l.v[0], m)),
                      r.v[0] == m ? 0 : rounded(t, binary("sub", r.v[0], m))};
        for (int i = 0; i < 2; i++)
            function("exp", d[i], 0, &e[i]);
        float p = rounded(t, mul(l.v[1], rounded(t, e[0])));
        float q = rounded(t, mul(r.v[1], rounded(t, e[1])));
        out.v[0] = m;
        out.v[1] = rounded(t, add(p, q));
    } else {
        die("no monoid is called %s", monoid);
    }
    return out;
}

static float finished(const char *monoid, Type t, Value v)
{
    float s;
    if (v.absent)
        return strcmp(monoid, "sum") ? -INFINITY : 0;
    if (strcmp(monoid, "logsumexp"))
        return v.v[0];
    function("log", v.v[1], 0, &s);
    return rounded(t, add(v.v[0], rounded(t, s)));
}

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct Stack {
    int n;
    Value value[STACK];
} Stack;

static void push(Stack *s, Value v)
{
    if (s->n == STACK)
        die("a program's stack is too high");
    s->value[s->n++] = v;
}

/* What follows root `root`; `at` counts the program's steps. */
static void follow(Stack *s, const Program *program, const char *monoid, int root, int *at)
{
    for (int k = 0; k < program->n_ops[root]; k++, ++*at) {
        Type t = program->ops[*at].type;
        if (s->n < (program->ops[*at].join ? 2 : 1))
            die("a program takes what is not there");
        if (program->ops[*at].join) {
            Value right = s->value[--s->n];
            s->value[s->n - 1] = joined(monoid, t, s->value[s->n - 1], right);
        } else {
            for (int i = 0; i < VALUES_MOST; i++)
                s->value[s->n - 1].v[i] = rounded(t, s->value[s->n - 1].v[i]);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static Node operand(const Binding *b)
{
    return (Node){.kind = "input", .param = b->tensor, .n_fixes = b->n_fixes, .fixes = b->fixes};
}

static Value mma_leaf(Frame *f, const Leaf *leaf, const Node *a, const Node *b)
{
    const StepClass *cls = &f->machine->plan->cls;
    Type type = f->kernel->op->params[a->param].type;
    uint32_t x[64], y[64];
    int n = 0;
    Value out = {{0}, false};
    for (int r = 0; r < leaf->n; r++)
        for (int64_t e = 0; e < leaf->runs[r][1]; e++) {
            set_index(f, f->kernel->k, f->kernel->n_k, leaf->runs[r][0] + e);
            x[n] = load(f, a);
            y[n++] = load(f, b);
            if (n == cls->group) {
                out.v[0] = step(cls, type, x, y, out.v[0]);
                n = 0;
            }
        }
    if (n) {
        for (; n < cls->group; n++)
            x[n] = y[n] = 0;
        out.v[0] = step(cls, type, x, y, out.v[0]);
    }
    return out;
}

/* Leaves and program of one product; what stays on the stack are its roots. */
static void product_roots(Frame *f, const Product *product, Stack *s)
{
    const Kernel *k = f->kernel;
    int at = 0;
    if (k->program.n_roots != k->n_leaves)
        die("%s: %d leaves for a program of %d", k->op->name, k->n_leaves, k->program.n_roots);
    check_binding(f, k->a);
    check_binding(f, product->b);
    Node a = operand(&k->bindings[k->a]), b = operand(&k->bindings[product->b]);
    for (int l = 0; l < k->n_leaves; l++) {
        push(s, mma_leaf(f, &k->leaves[l], &a, &b));
        follow(s, &k->program, "sum", l, &at);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static Value element_value(Frame *f, const Node *reduce)
{
    return (Value){{node_f32(f, reduce->args[0]), 1}, false};
}

/* Puts the element of a place into the index: the slot that stands there; false: none does. */
static bool set_slot(Frame *f, const Node *reduce, const int64_t *places, int n, int64_t e)
{
    int64_t place = f->part->lo[reduce->over[0]] + e;
    if (reduce->slots < 0) {
        set_index(f, reduce->over, reduce->n_over, e);
        return true;
    }
    for (int k = 0; k < n; k++)
        if (places[k] == place) {
            f->index[reduce->slots] = k;
            return true;
        }
    return false;
}

static Value chain_leaf(Frame *f, const RowReduce *r, const Leaf *leaf)
{
    const Node *reduce = &f->kernel->op->nodes[r->reduce];
    const Node *body = &f->kernel->op->nodes[reduce->args[0]];
    bool product = !r->chain_add && !strcmp(reduce->name, "sum") && !strcmp(body->kind, "mul") &&
                   body->type == F32;
    int64_t places[SLOTS_MOST];
    int n = reduce->slots >= 0 ? slot_places(f, reduce, places) : 0;
    bool first = true;
    Value acc = {{0}, false};
    for (int run = 0; run < leaf->n; run++)
        for (int64_t e = 0; e < leaf->runs[run][1]; e++) {
            if (!set_slot(f, reduce, places, n, leaf->runs[run][0] + e))
                continue;
            if (first)
                acc = element_value(f, reduce);
            else if (product)
                acc.v[0] = fma_once(node_f32(f, body->args[0]), node_f32(f, body->args[1]),
                                    acc.v[0]);
            else
                acc = joined(reduce->name, F32, acc, element_value(f, reduce));
            first = false;
        }
    acc.absent = first;
    return acc;
}

static void row_roots(Frame *f, const RowReduce *r, Stack *s)
{
    int at = 0;
    if (r->program.n_roots != r->n_leaves)
        die("%s: %d leaves for a program of %d", f->kernel->op->name, r->n_leaves,
            r->program.n_roots);
    for (int l = 0; l < r->n_leaves; l++) {
        push(s, chain_leaf(f, r, &r->leaves[l]));
        follow(s, &r->program, f->kernel->op->nodes[r->reduce].name, l, &at);
    }
}

/* ---- what a kernel has reduced --------------------------------------------------------------- */

static void keep(Frame *f, int reduce, const Stack *s)
{
    const Node *node = &f->kernel->op->nodes[reduce];
    if (s->n != 1)
        die("%s: a program ends with %d values", f->kernel->op->name, s->n);
    f->have[reduce] = true;
    f->reduced[reduce] = finished(node->name, node->type, s->value[0]);
}

static Frame frame_of(const Frame *like, const Kernel *kernel, const Part *part)
{
    Frame f = *like;
    f.kernel = kernel;
    f.part = part;
    return f;
}

/* The roots of `reduce` that a rank's kernel leaves, at the element of `like`. */
static void kernel_roots(const Frame *like, const Kernel *kernel, const Part *part, int reduce,
                         Stack *s)
{
    Frame f = frame_of(like, kernel, part);
    Stack *own = room(1, sizeof *own);
    if (!kernel->roots_out)
        die("%s: a rank that should leave roots leaves none", kernel->op->name);
    for (int g = 0; g < kernel->n_groups; g++)
        for (int p = 0; p < kernel->groups[g].n_products; p++)
            if (kernel->groups[g].products[p].reduce == reduce)
                product_roots(&f, &kernel->groups[g].products[p], own);
    for (int i = 0; !strcmp(kernel->family, "row") && i < kernel->n_reduces; i++)
        if (kernel->reduces[i].reduce == reduce)
            row_roots(&f, &kernel->reduces[i], own);
    if (own->n != kernel->n_roots)
        die("%s: %d roots where the plan says %d", kernel->op->name, own->n, kernel->n_roots);
    for (int i = 0; i < own->n; i++)
        push(s, own->value[i]);
    free(own);
}

static const Kernel *kernel_of(const Machine *m, int rank)
{
    for (int v = 0; v < m->at->n_variants; v++)
        if (m->rows >= m->at->variants[v].lo && m->rows <= m->at->variants[v].hi) {
            int k = m->at->variants[v].kernel[rank];
            return k < 0 ? NULL : &m->plan->kernels[k];
        }
    die("no variant is for %lld rows", (long long)m->rows);
}

static void source_holds(const Frame *f, const Kernel *kernel, const Part *part)
{
    for (int a = 0; a < kernel->op->results[0].n_axes; a++)
        for (int i = 0; i < kernel->op->results[0].n_atoms[a]; i++) {
            int atom = kernel->op->results[0].atoms[a][i];
            if (!part_has(f->machine, part, atom, f->index[atom]))
                die("%s: a join hears a rank that has not the element", kernel->op->name);
        }
}

static void join_reduces(Frame *f, int rank)
{
    const Machine *m = f->machine;
    const Kernel *join = f->kernel;
    Stack *s = room(1, sizeof *s), *roots = room(1, sizeof *roots);
    for (int r = 0; r < join->n_reduces; r++) {
        int at = 0, root = 0;
        s->n = 0;
        for (int i = 0; i < join->n_sources; i++) {
            int source = m->at->sources[rank][i];
            const Kernel *kernel = kernel_of(m, source);
            roots->n = 0;
            if (kernel) {
                source_holds(f, kernel, &m->at->parts[source]);
                kernel_roots(f, kernel, &m->at->parts[source], join->joined[r], roots);
            }
            if (roots->n != join->roots_of_rank[i])
                die("%s: source %d leaves %d roots, the join takes %d", join->op->name, source,
                    roots->n, join->roots_of_rank[i]);
            for (int k = 0; k < roots->n; k++, root++) {
                push(s, roots->value[k]);
                follow(s, &join->program, join->op->nodes[join->joined[r]].name, root, &at);
            }
        }
        keep(f, join->joined[r], s);
    }
    free(s);
    free(roots);
}

static void gemm_reduces(Frame *f, const Group *group)
{
    Stack *s = room(1, sizeof *s);
    for (int p = 0; p < group->n_products; p++) {
        s->n = 0;
        product_roots(f, &group->products[p], s);
        keep(f, group->products[p].reduce, s);
    }
    free(s);
}

static void row_reduces(Frame *f)
{
    Stack *s = room(1, sizeof *s);
    for (int i = 0; i < f->kernel->n_reduces; i++) {
        s->n = 0;
        row_roots(f, &f->kernel->reduces[i], s);
        keep(f, f->kernel->reduces[i].reduce, s);
    }
    free(s);
}

/* Reductions of a row are the same for all its elements. */
static void row_cached(Frame *f, int rank)
{
    const Kernel *k = f->kernel;
    struct RowCache *cache = &f->machine->cache[rank];
    int64_t key[ATOMS_MOST] = {0};
    int last = k->n_dims - 1;
    for (int d = 0; d < last; d++)
        for (int i = 0; i < k->n_dim_atoms[d]; i++)
            key[k->dims[d][i]] = f->index[k->dims[d][i]] + 1;
    f->have = cache->have;
    f->reduced = cache->reduced;
    if (cache->valid && !memcmp(cache->key, key, sizeof key))
        return;
    memset(cache->have, 0, sizeof(bool) * (size_t)k->op->n_nodes);
    Frame inner = *f;
    if (!strcmp(k->family, "join"))
        join_reduces(&inner, rank);
    else
        row_reduces(&inner);
    memcpy(cache->key, key, sizeof key);
    cache->valid = true;
}

/* ---- elements -------------------------------------------------------------------------------- */

void machine_init(Machine *m)
{
    m->cache = room((size_t)m->at->ranks, sizeof *m->cache);
    for (int r = 0; r < m->at->ranks; r++) {
        m->cache[r].have = room((size_t)m->at->op->n_nodes, sizeof(bool));
        m->cache[r].reduced = room((size_t)m->at->op->n_nodes, sizeof(float));
    }
}

static bool piece_writes(const Frame *f, const Piece *piece, int result)
{
    bool writes = piece->result == result;
    for (int i = 0; i < piece->n_fixes; i++)
        writes &= f->index[piece->fixes[i].atom] == piece->fixes[i].at;
    return writes;
}

static bool in_part(const Frame *f, int result)
{
    const Shape *shape = &f->kernel->op->results[result];
    for (int a = 0; a < shape->n_axes; a++)
        for (int i = 0; i < shape->n_atoms[a]; i++)
            if (!part_has(f->machine, f->part, shape->atoms[a][i], f->index[shape->atoms[a][i]]))
                return false;
    return owns_slots(f, result);
}

static uint32_t write_piece(const Frame *f, const Piece *piece)
{
    need_binding(f, true, piece->result, piece->fixes, piece->n_fixes);
    return node_value(f, piece->value);
}

/* A gemm's piece belongs to the group whose products it reads. */
static bool gemm_element(Frame *f, int rank, int result, uint32_t *bits)
{
    const Kernel *k = f->kernel;
    bool join = !strcmp(k->family, "join");
    for (int g = 0; g < k->n_groups; g++)
        for (int i = 0; i < k->groups[g].n_pieces; i++) {
            const Piece *piece = &k->op->pieces[k->groups[g].pieces[i]];
            if (!piece_writes(f, piece, result))
                continue;
            f->have = room((size_t)k->op->n_nodes, sizeof(bool));
            f->reduced = room((size_t)k->op->n_nodes, sizeof(float));
            Frame inner = *f; /* reductions move the indices */
            if (join)
                join_reduces(&inner, rank);
            else
                gemm_reduces(&inner, &k->groups[g]);
            *bits = write_piece(f, piece);
            free(f->have);
            free(f->reduced);
            return true;
        }
    return false;
}

static bool plain_element(Frame *f, int rank, int result, uint32_t *bits)
{
    const Kernel *k = f->kernel;
    for (int i = 0; i < k->n_pieces; i++) {
        const Piece *piece = &k->op->pieces[k->pieces[i]];
        if (!piece_writes(f, piece, result))
            continue;
        f->have = f->machine->cache[rank].have;
        if (strcmp(k->family, "map"))
            row_cached(f, rank);
        *bits = write_piece(f, piece);
        return true;
    }
    return false;
}

bool machine_element(Machine *m, int rank, int result, const int64_t *index, uint32_t *bits)
{
    bool join = m->at->join >= 0;
    Frame f = {.machine = m,
               .kernel = join ? &m->plan->kernels[m->at->join] : kernel_of(m, rank),
               .part = join ? &m->at->finish[rank] : &m->at->parts[rank]};
    memcpy(f.index, index, sizeof f.index);
    if (!f.kernel || !in_part(&f, result))
        return false;
    return f.kernel->n_groups ? gemm_element(&f, rank, result, bits)
                              : plain_element(&f, rank, result, bits);
}
