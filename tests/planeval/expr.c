/* Expressions of a plan's op at one element: indices, operands, operations. */
#include "kernels.h"

#include <string.h>

/* ---- index spaces ---------------------------------------------------------------------------- */

static void part_range(const Machine *m, const Part *part, int atom, int64_t *lo, int64_t *hi)
{
    if (m->plan->size[atom]) {
        *lo = part->lo[atom];
        *hi = part->hi[atom];
    } else {
        *lo = m->rows * part->rows_index / part->rows_count;
        *hi = m->rows * (part->rows_index + 1) / part->rows_count;
    }
}

bool part_has(const Machine *m, const Part *part, int atom, int64_t index)
{
    int64_t lo, hi;
    part_range(m, part, atom, &lo, &hi);
    return index >= lo && index < hi;
}

void set_index(Frame *f, const int *atoms, int n, int64_t e)
{
    for (int i = n - 1; i >= 0; i--) {
        int64_t lo, hi;
        part_range(f->machine, f->part, atoms[i], &lo, &hi);
        f->index[atoms[i]] = lo + e % (hi - lo);
        e /= hi - lo;
    }
    if (e)
        die("a leaf ends past its part");
}

static bool contains(const int *v, int n, int x)
{
    for (int i = 0; i < n; i++)
        if (v[i] == x)
            return true;
    return false;
}

/* ---- operands -------------------------------------------------------------------------------- */

static int64_t index_of(const Frame *f, const Node *node, int atom)
{
    const Plan *plan = f->machine->plan;
    for (int i = 0; i < node->n_fixes; i++)
        if (node->fixes[i].atom == atom)
            return node->fixes[i].at < 0 ? looked_up(f, node, &node->fixes[i])
                                         : node->fixes[i].at;
    if (plan->coordinate_of[atom] < 0)
        return f->index[atom];
    if (!f->machine->coordinates)
        die("the op needs the rows' positions");
    return f->machine->coordinates[f->index[plan->coordinate_of[atom]]];
}

uint32_t load(const Frame *f, const Node *node)
{
    const Shape *shape = &f->kernel->op->params[node->param];
    const Memory *memory = &f->machine->params[node->param];
    int64_t at = memory->offset;
    for (int a = 0; a < shape->n_axes; a++) {
        int64_t i = 0;
        for (int k = 0; k < shape->n_atoms[a]; k++) {
            int atom = shape->atoms[a][k];
            int64_t own = index_of(f, node, atom);
            if (own < 0)
                return 0;
            i = i * f->machine->plan->size[atom] + own;
        }
        at += i * memory->stride[a];
    }
    return shape->type == F32 ? ((const uint32_t *)memory->data)[at]
                              : ((const uint16_t *)memory->data)[at];
}

static bool same_fixes(const Fixed *a, int n, const Fixed *b, int m)
{
    bool same = n == m;
    for (int i = 0; same && i < n; i++)
        same = a[i].atom == b[i].atom && a[i].at == b[i].at;
    return same;
}

/* The atoms of dimension d of a binding. */
static const int *binding_dim(const Kernel *k, int binding, int d, int *n)
{
    if (!k->n_groups) {
        *n = k->n_dim_atoms[d];
        return k->dims[d];
    }
    int group = k->bindings[binding].group;
    bool by_slots = k->chosen >= 0 && (binding == k->chosen || binding == k->a) && group < 0;
    if (by_slots && d < 2) {
        *n = 1;
        return &k->rows[d];
    }
    if (by_slots) {
        *n = k->n_k;
        return k->k;
    }
    bool is_a = binding == k->a && strcmp(k->family, "join"), inner = is_a;
    for (int g = 0; g < k->n_groups; g++)
        for (int p = 0; p < k->groups[g].n_products; p++)
            if (k->groups[g].products[p].b == binding && strcmp(k->family, "join")) {
                group = g;
                inner = true;
            }
    if (d == 1 && inner) {
        *n = k->n_k;
        return k->k;
    }
    *n = d == 0 && (is_a || !inner) ? k->n_rows : k->groups[group].n_cols;
    return d == 0 && (is_a || !inner) ? k->rows : k->groups[group].cols;
}

void check_binding(const Frame *f, int binding)
{
    const Kernel *k = f->kernel;
    const Binding *b = &k->bindings[binding];
    const Shape *shape = b->result ? &k->op->results[b->tensor] : &k->op->params[b->tensor];
    for (int a = 0; a < shape->n_axes; a++)
        for (int i = 0; i < shape->n_atoms[a]; i++) {
            int atom = shape->atoms[a][i], n = 0;
            bool found = f->machine->plan->coordinate_of[atom] >= 0;
            for (int x = 0; x < b->n_fixes; x++)
                found |= b->fixes[x].atom == atom;
            for (int d = 0; d < b->n_has && !found; d++) {
                const int *dim = binding_dim(k, binding, d, &n);
                found = b->has[d] && contains(dim, n, atom);
            }
            if (!found)
                die("%s: binding %d does not step along an atom of %s", k->op->name, binding,
                    shape->name);
        }
}

void need_binding(const Frame *f, bool result, int tensor, const Fixed *fixes, int n)
{
    for (int i = 0; i < f->kernel->n_bindings; i++) {
        const Binding *b = &f->kernel->bindings[i];
        if (b->result == result && b->tensor == tensor &&
            same_fixes(b->fixes, b->n_fixes, fixes, n)) {
            check_binding(f, i);
            return;
        }
    }
    die("%s: a %s kernel binds no tensor %d", f->kernel->op->name, f->kernel->family, tensor);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static uint32_t operation(const Frame *f, const Node *node)
{
    float x[2] = {0, 0}, out;
    for (int i = 0; i < node->n_args && i < 2; i++)
        x[i] = as_f32(f->kernel->op->nodes[node->args[i]].type, node_value(f, node->args[i]));
    if (strcmp(node->kind, "fn"))
        out = binary(node->kind, x[0], x[1]);
    else if (!function(node->name, x[0], x[1], &out))
        die("no function is called %s", node->name);
    return as_bits(node->type, out);
}

uint32_t node_value(const Frame *f, int number)
{
    const Node *node = &f->kernel->op->nodes[number];
    if (!strcmp(node->kind, "input")) {
        need_binding(f, false, node->param, node->fixes, node->n_fixes);
        return load(f, node);
    }
    if (!strcmp(node->kind, "const"))
        return node->bits;
    if (!strcmp(node->kind, "only")) {
        int atom = node->fixes[0].atom;
        if (~node->fixes[0].at < FIX_RESULT)
            need_binding(f, false, (int)~node->fixes[0].at, node->fixes, 1);
        return f->index[atom] == looked_up(f, node, &node->fixes[0])
                   ? node_value(f, node->args[0])
                   : 0xFF800000u;
    }
    if (!strcmp(node->kind, "top"))
        return top_value(f, node);
    if (!strcmp(node->kind, "reduce")) {
        if (!f->have[number])
            die("%s: a %s kernel uses a reduction it does not compute", f->kernel->op->name,
                f->kernel->family);
        return as_bits(node->type, f->reduced[number]);
    }
    if (!strcmp(node->kind, "neg"))
        return node_value(f, node->args[0]) ^ (node->type == F32 ? 0x80000000u : 0x8000u);
    if (!strcmp(node->kind, "cast")) {
        const Node *from = &f->kernel->op->nodes[node->args[0]];
        uint32_t bits = node_value(f, node->args[0]);
        return from->type == node->type ? bits : as_bits(node->type, as_f32(from->type, bits));
    }
    return operation(f, node);
}

float node_f32(const Frame *f, int number)
{
    return as_f32(f->kernel->op->nodes[number].type, node_value(f, number));
}
