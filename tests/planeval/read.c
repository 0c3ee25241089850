/* A serialised plan from JSON to structures; what is missing or of another kind ends the run. */
#include "planeval.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("planeval: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(2);
}

void *room(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p)
        die("out of memory");
    return p;
}

#define ROOM(T, n) ((T *)room((size_t)(n), sizeof(T)))

/* ---- values ---------------------------------------------------------------------------------- */

static json_t *get(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (!v)
        die("the plan has no %s", key);
    return v;
}

static int64_t number(json_t *o, const char *key)
{
    json_t *v = get(o, key);
    if (!json_is_integer(v))
        die("%s is no integer", key);
    return json_integer_value(v);
}

static const char *text(json_t *o, const char *key)
{
    json_t *v = get(o, key);
    if (!json_is_string(v))
        die("%s is no text", key);
    return json_string_value(v);
}

static json_t *list(json_t *o, const char *key, int *n)
{
    json_t *v = get(o, key);
    if (!json_is_array(v))
        die("%s is no list", key);
    *n = (int)json_array_size(v);
    return v;
}

static int64_t item(json_t *array, int i)
{
    json_t *v = json_array_get(array, (size_t)i);
    if (!json_is_integer(v))
        die("an item is no integer");
    return json_integer_value(v);
}

static int *ints_of(json_t *array, int *n)
{
    *n = (int)json_array_size(array);
    int *v = ROOM(int, *n);
    for (int i = 0; i < *n; i++)
        v[i] = (int)item(array, i);
    return v;
}

static int *ints(json_t *o, const char *key, int *n)
{
    return ints_of(list(o, key, n), n);
}

static Type type_named(const char *name)
{
    if (!strcmp(name, "bf16"))
        return BF16;
    if (!strcmp(name, "f16"))
        return F16;
    if (!strcmp(name, "f32") || !strcmp(name, "i32"))
        return F32;
    die("no type is called %s", name);
}

static Fixed *fixes(json_t *o, int *n)
{
    json_t *v = list(o, "fixes", n);
    Fixed *f = ROOM(Fixed, *n);
    for (int i = 0; i < *n; i++) {
        json_t *pair = json_array_get(v, (size_t)i);
        f[i] = (Fixed){(int)item(pair, 0), item(pair, 1)};
    }
    return f;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static Shape *shapes(json_t *o, const char *key, int *n)
{
    json_t *v = list(o, key, n);
    Shape *s = ROOM(Shape, *n);
    for (int i = 0; i < *n; i++) {
        json_t *t = json_array_get(v, (size_t)i), *axes = list(t, "axes", &s[i].n_axes);
        s[i].name = text(t, "name");
        s[i].type = type_named(text(t, "type"));
        s[i].integers = !strcmp(text(t, "type"), "i32");
        if (s[i].n_axes > AXES_MOST)
            die("%s has too many axes", s[i].name);
        for (int a = 0; a < s[i].n_axes; a++)
            s[i].atoms[a] = ints_of(json_array_get(axes, (size_t)a), &s[i].n_atoms[a]);
    }
    return s;
}

static void node_read(json_t *o, int index, Node *node)
{
    node->kind = text(o, "kind");
    node->type = type_named(text(o, "type"));
    node->slots = json_object_get(o, "slots") ? (int)number(o, "slots") : -1;
    if (!strcmp(node->kind, "input")) {
        node->param = (int)number(o, "param");
        node->fixes = fixes(o, &node->n_fixes);
    }
    if (!strcmp(node->kind, "const")) {
        node->bits = (uint32_t)number(o, "bits");
    } else if (json_object_get(o, "args")) {
        int *args = ints(o, "args", &node->n_args);
        if (node->n_args > 3)
            die("a node has %d operands", node->n_args);
        for (int i = 0; i < node->n_args; i++)
            if ((node->args[i] = args[i]) >= index)
                die("node %d uses a later one", index);
    }
    if (!strcmp(node->kind, "only"))
        node->fixes = fixes(o, &node->n_fixes);
    if (!strcmp(node->kind, "fn"))
        node->name = text(o, "fn");
    if (!strcmp(node->kind, "reduce")) {
        node->name = text(o, "monoid");
        node->over = ints(o, "over", &node->n_over);
        if (node->slots >= 0)
            node->fixes = fixes(o, &node->n_fixes);
    }
    if (!strcmp(node->kind, "top")) {
        node->over = ints(o, "over", &node->n_over);
        node->groups = (int)number(o, "groups");
        node->keep = (int)number(o, "keep");
        node->group_sum = (int)number(o, "group_sum");
        node->by_index = json_is_true(get(o, "by_index"));
    }
}

static void op_read(json_t *o, PlanOp *op)
{
    json_t *nodes = list(o, "nodes", &op->n_nodes), *pieces = list(o, "pieces", &op->n_pieces);
    op->name = text(o, "name");
    op->params = shapes(o, "params", &op->n_params);
    op->results = shapes(o, "results", &op->n_results);
    op->nodes = ROOM(Node, op->n_nodes);
    op->pieces = ROOM(Piece, op->n_pieces);
    for (int i = 0; i < op->n_nodes; i++)
        node_read(json_array_get(nodes, (size_t)i), i, &op->nodes[i]);
    for (int i = 0; i < op->n_pieces; i++) {
        json_t *p = json_array_get(pieces, (size_t)i);
        op->pieces[i].result = (int)number(p, "result");
        op->pieces[i].value = (int)number(p, "value");
        op->pieces[i].fixes = fixes(p, &op->pieces[i].n_fixes);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void program_read(json_t *o, Program *program)
{
    int n, total = 0;
    json_t *ops = list(o, "ops", &n);
    program->n_roots = (int)number(o, "n_roots");
    if (n != program->n_roots)
        die("a program of %d roots has %d entries", program->n_roots, n);
    program->n_ops = ROOM(int, n);
    for (int i = 0; i < n; i++)
        total += program->n_ops[i] = (int)json_array_size(json_array_get(ops, (size_t)i));
    program->ops = ROOM(struct ProgramStep, total);
    for (int i = 0, at = 0; i < n; i++)
        for (int k = 0; k < program->n_ops[i]; k++, at++) {
            const char *s = json_string_value(
                json_array_get(json_array_get(ops, (size_t)i), (size_t)k));
            if (!s || (strncmp(s, "join ", 5) && strncmp(s, "round ", 6)))
                die("a program's step is neither join nor round");
            program->ops[at].join = s[0] == 'j';
            program->ops[at].type = type_named(strchr(s, ' ') + 1);
        }
}

static void bindings_read(json_t *o, Kernel *kernel)
{
    json_t *v = list(o, "bindings", &kernel->n_bindings);
    kernel->bindings = ROOM(Binding, kernel->n_bindings);
    for (int i = 0; i < kernel->n_bindings; i++) {
        Binding *b = &kernel->bindings[i];
        json_t *own = json_array_get(v, (size_t)i), *has = list(own, "has", &b->n_has);
        b->result = json_is_true(get(own, "result"));
        b->tensor = (int)number(own, "tensor");
        b->group = (int)number(own, "group");
        b->fixes = fixes(own, &b->n_fixes);
        for (int d = 0; d < b->n_has && d < AXES_MOST; d++)
            b->has[d] = json_is_true(json_array_get(has, (size_t)d));
    }
}

static void groups_read(json_t *o, Kernel *kernel)
{
    json_t *v = list(o, "groups", &kernel->n_groups);
    kernel->a = (int)number(o, "a");
    kernel->chosen = json_object_get(o, "chosen") ? (int)number(o, "chosen") : -1;
    kernel->rows = ints(o, "rows", &kernel->n_rows);
    kernel->k = ints(o, "k", &kernel->n_k);
    kernel->groups = ROOM(Group, kernel->n_groups);
    for (int g = 0; g < kernel->n_groups; g++) {
        Group *group = &kernel->groups[g];
        json_t *own = json_array_get(v, (size_t)g);
        json_t *products = list(own, "products", &group->n_products);
        group->cols = ints(own, "cols", &group->n_cols);
        group->pieces = ints(own, "pieces", &group->n_pieces);
        group->products = ROOM(Product, group->n_products);
        for (int p = 0; p < group->n_products; p++) {
            json_t *product = json_array_get(products, (size_t)p);
            group->products[p] = (Product){(int)number(product, "reduce"),
                                           (int)number(product, "b")};
        }
    }
}

static void leaf_read(json_t *runs, Leaf *leaf)
{
    leaf->n = (int)json_array_size(runs);
    leaf->runs = room((size_t)leaf->n, sizeof *leaf->runs);
    for (int i = 0; i < leaf->n; i++) {
        json_t *run = json_array_get(runs, (size_t)i);
        leaf->runs[i][0] = item(run, 0);
        leaf->runs[i][1] = item(run, 1);
    }
}

static void gemm_read(json_t *o, Kernel *kernel)
{
    json_t *leaves = list(o, "leaves", &kernel->n_leaves);
    groups_read(o, kernel);
    program_read(get(o, "program"), &kernel->program);
    kernel->leaves = ROOM(Leaf, kernel->n_leaves);
    for (int i = 0; i < kernel->n_leaves; i++) {
        json_t *bounds = json_array_get(leaves, (size_t)i);
        Leaf *leaf = &kernel->leaves[i];
        leaf->n = 1;
        leaf->runs = room(1, sizeof *leaf->runs);
        leaf->runs[0][0] = item(bounds, 0);
        leaf->runs[0][1] = item(bounds, 1) - item(bounds, 0);
    }
}

static void row_read(json_t *o, Kernel *kernel)
{
    json_t *v = list(o, "reduces", &kernel->n_reduces);
    kernel->reduces = ROOM(RowReduce, kernel->n_reduces);
    for (int i = 0; i < kernel->n_reduces; i++) {
        RowReduce *r = &kernel->reduces[i];
        json_t *own = json_array_get(v, (size_t)i), *leaves = list(own, "leaves", &r->n_leaves);
        r->reduce = (int)number(own, "reduce");
        r->chain_add = !strcmp(text(own, "form"), "chain add");
        r->leaves = ROOM(Leaf, r->n_leaves);
        for (int l = 0; l < r->n_leaves; l++)
            leaf_read(json_array_get(leaves, (size_t)l), &r->leaves[l]);
        program_read(get(own, "program"), &r->program);
    }
}

static void join_read(json_t *o, Kernel *kernel)
{
    if (json_object_get(o, "groups"))
        groups_read(o, kernel);
    kernel->joined = ints(o, "reduces", &kernel->n_reduces);
    kernel->roots_of_rank = ints(o, "roots_of_rank", &kernel->n_sources);
    program_read(get(o, "program"), &kernel->program);
}

static void kernel_read(json_t *o, const Plan *plan, Kernel *kernel)
{
    json_t *dims = list(o, "dims", &kernel->n_dims);
    kernel->family = text(o, "family");
    kernel->op = &plan->ops[number(o, "op")];
    kernel->pieces = ints(o, "pieces", &kernel->n_pieces);
    for (int d = 0; d < kernel->n_dims && d < AXES_MOST; d++)
        kernel->dims[d] = ints_of(json_array_get(dims, (size_t)d), &kernel->n_dim_atoms[d]);
    bindings_read(o, kernel);
    if (!strcmp(kernel->family, "gemm"))
        gemm_read(o, kernel);
    if (!strcmp(kernel->family, "row") || !strcmp(kernel->family, "top"))
        row_read(o, kernel);
    if (!strcmp(kernel->family, "join"))
        join_read(o, kernel);
    else if (strcmp(kernel->family, "map")) {
        kernel->roots_out = json_is_true(get(o, "roots_out"));
        kernel->n_roots = (int)number(o, "n_roots");
    }
    if (!strcmp(kernel->family, "gemm"))
        kernel->pieces = NULL, kernel->n_pieces = 0;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static Part *parts_read(json_t *o, const char *key, int ranks)
{
    int n;
    json_t *v = list(o, key, &n);
    Part *parts = ROOM(Part, ranks);
    if (n != ranks)
        die("%d %s for %d ranks", n, key, ranks);
    for (int r = 0; r < n; r++) {
        int n_atoms, n_rows;
        json_t *own = json_array_get(v, (size_t)r), *atoms = list(own, "atoms", &n_atoms);
        int *rows = ints(own, "rows", &n_rows);
        parts[r].rows_index = rows[0];
        parts[r].rows_count = rows[1];
        for (int i = 0; i < n_atoms; i++) {
            json_t *range = json_array_get(atoms, (size_t)i);
            parts[r].lo[item(range, 0)] = item(range, 1);
            parts[r].hi[item(range, 0)] = item(range, 2);
        }
    }
    return parts;
}

static void placed_read(json_t *o, const Plan *plan, Placed *at)
{
    int n;
    json_t *variants = list(o, "variants", &at->n_variants);
    at->op = &plan->ops[number(o, "op")];
    at->layout = text(o, "layout");
    at->ranks = (int)number(o, "ranks");
    at->join = (int)number(o, "join");
    at->parts = parts_read(o, "parts", at->ranks);
    at->variants = room((size_t)at->n_variants, sizeof *at->variants);
    for (int i = 0; i < at->n_variants; i++) {
        json_t *own = json_array_get(variants, (size_t)i), *rows = list(own, "rows", &n);
        at->variants[i].lo = item(rows, 0);
        at->variants[i].hi = item(rows, 1);
        at->variants[i].kernel = ints(own, "kernel_of_rank", &n);
    }
    if (at->join < 0)
        return;
    at->finish = parts_read(o, "finish_parts", at->ranks);
    json_t *sources = list(o, "sources", &n);
    at->sources = ROOM(int *, at->ranks);
    for (int r = 0; r < at->ranks; r++)
        at->sources[r] = ints_of(json_array_get(sources, (size_t)r), &n);
}

static void atoms_read(json_t *root, Plan *plan)
{
    json_t *v = list(root, "atoms", &plan->n_atoms);
    plan->size = ROOM(int64_t, plan->n_atoms);
    plan->coordinate_of = ROOM(int, plan->n_atoms);
    plan->slots_of = ROOM(int, plan->n_atoms);
    for (int a = 0; a < plan->n_atoms; a++) {
        json_t *own = json_array_get(v, (size_t)a);
        bool coordinate = json_object_get(own, "coordinate_of");
        plan->coordinate_of[a] = coordinate ? (int)number(own, "coordinate_of") : -1;
        plan->size[a] = coordinate ? 0 : number(own, "size");
        plan->slots_of[a] = json_object_get(own, "slots_of") ? (int)number(own, "slots_of") : -1;
    }
}

void plan_read(json_t *root, Plan *plan)
{
    json_t *cls = get(root, "class"), *ops = list(root, "ops", &plan->n_ops);
    json_t *kernels = list(root, "kernels", &plan->n_kernels);
    json_t *placed = list(root, "plans", &plan->n_placed);
    if (number(root, "isoc_plan") != 1)
        die("the plan's format is not 1");
    plan->cls = (StepClass){(int)number(cls, "group"), (int)number(cls, "bits"),
                            (int)number(cls, "floor"), (int)number(cls, "out_bits")};
    atoms_read(root, plan);
    plan->ops = ROOM(PlanOp, plan->n_ops);
    plan->kernels = ROOM(Kernel, plan->n_kernels);
    plan->placed = ROOM(Placed, plan->n_placed);
    for (int i = 0; i < plan->n_ops; i++)
        op_read(json_array_get(ops, (size_t)i), &plan->ops[i]);
    for (int i = 0; i < plan->n_kernels; i++)
        kernel_read(json_array_get(kernels, (size_t)i), plan, &plan->kernels[i]);
    for (int i = 0; i < plan->n_placed; i++)
        placed_read(json_array_get(placed, (size_t)i), plan, &plan->placed[i]);
}
