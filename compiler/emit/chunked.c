/* The frame that elementwise and row kernels share: rows, pointers, chunks of the inner dim. */
#include "emit_impl.h"

static bool has_inner(const Chunked *c, int binding)
{
    return c->k->kernel->bindings[binding].has[c->inner];
}

static const char *held_by(const Chunked *c, int binding)
{
    const Tensor *tensor = binding_tensor(c->k->kernel, binding);
    return tensor->index_of ? "int" : expr_held(tensor->type);
}

int chunked_lookup(const Chunked *c, int binding)
{
    int n = 0;
    for (int i = 0; i < binding; i++)
        n += c->k->kernel->bindings[i].lookup >= 0;
    return n;
}

/* Tokens are the inner dim: each element of a chunk has an index of its own. */
static bool looks_up_inside(const Chunked *c, int binding)
{
    int by = c->k->kernel->bindings[binding].lookup;
    return by >= 0 && has_inner(c, by);
}

/* At what is ranked for a slot, or says where it stands: a lane's own. */
static bool looks_up_slot(const Chunked *c, int binding)
{
    const Kernel *kernel = c->k->kernel;
    int by = kernel->bindings[binding].lookup;
    return by >= 0 && (kernel->bindings[by].result ||
                       (kernel->row.columns && kernel->bindings[by].has[kernel->n_dims - 1]));
}

static bool looks_up_row(const Chunked *c, int binding)
{
    return c->k->kernel->bindings[binding].lookup >= 0 && !looks_up_inside(c, binding) &&
           !looks_up_slot(c, binding);
}

static Str row_input(void *user, const DagNode *node)
{
    const Chunked *c = user;
    int b = kernel_input(c->k->kernel, -1, node);
    if (looks_up_row(c, b))
        return str_format(c->k->arena, "l%d < 0 ? (%s)0 : *p%d", b, held_by(c, b), b);
    return str_format(c->k->arena, "*p%d", b);
}

static Str element_kept(void *user, const DagNode *node)
{
    const Chunked *c = user;
    return str_format(c->k->arena, "i + e == l%d", kernel_kept(c->k->kernel, -1, node));
}

static Str element_input(void *user, const DagNode *node)
{
    const Chunked *c = user;
    return str_format(c->k->arena, "x%d.v[e]", kernel_input(c->k->kernel, -1, node));
}

void chunked_init(Chunked *c, KernelText *k, int inner)
{
    *c = (Chunked){.k = k, .inner = inner, .width = 4};
    c->atoms = dim_mask(&k->kernel->dims[c->inner]);
    c->row = (ExprScope){
        .w = &k->body, .census = &k->census, .input = row_input, .user = c};
    for (int i = 0; i < k->kernel->n_bindings; i++)
        if (has_inner(c, i) && dtype_bytes(binding_tensor(k->kernel, i)->type) == 2)
            c->width = 8;
}

bool dim_is_free(const Contract *contract, const PlanDim *dim)
{
    for (int i = 0; i < dim->n_atoms; i++)
        if (contract->axes[contract->atom_axis[dim->atoms[i]]].free)
            return true;
    return false;
}

void chunked_extents(Chunked *c)
{
    Writer *w = &c->k->body;
    const char *begin = c->k->kernel->family == FAMILY_JOIN ? "args.row_begin" : "0";
    Text product = {.arena = c->k->arena};
    writer_line(w, "iso_grid_begin();");
    for (int d = 0; d < c->k->kernel->n_dims; d++) {
        if (dim_is_free(c->k->contract, &c->k->kernel->dims[d]))
            writer_line(w, "const unsigned e%d = iso_live(map.rows_dev, map.extent[%d], "
                           "map.rows_each, %s);", d, d, begin);
        else
            writer_line(w, "const unsigned e%d = map.extent[%d];", d, d);
        if (d < c->inner)
            text_printf(&product, "%se%d", d ? " * " : "", d);
    }
    if (!c->inner)
        text_add(&product, STR("1"));
    writer_line(w, "const unsigned rows = %.*s;", STR_FMT(text_str(&product)));
}

/* i0 = row / (e1 e2), i1 = row / e2 % e1, i2 = row % e2 */
static void indices(Chunked *c)
{
    Writer *w = &c->k->body;
    Str rest = STR("row");
    for (int d = c->inner - 1; d >= 0; d--) {
        if (!d) {
            writer_line(w, "const unsigned i0 = %.*s;", STR_FMT(rest));
            break;
        }
        writer_line(w, "const unsigned i%d = %.*s %% e%d;", d, STR_FMT(rest), d);
        writer_line(w, "const unsigned r%d = %.*s / e%d;", d, STR_FMT(rest), d);
        rest = str_format(c->k->arena, "r%d", d);
    }
}

/* The index of a dim for one operand: its own coordinate's where it has one. */
static Str index_text(const Chunked *c, const Binding *b, int dim)
{
    const Contract *contract = c->k->contract;
    if (b->coordinate < 0 || !dim_is_free(contract, &c->k->kernel->dims[dim]))
        return str_format(c->k->arena, "i%d", dim);
    const Axis *ragged = &contract->axes[contract->axes[b->coordinate].coordinate_of];
    bool last = ragged->factors[ragged->n_factors - 1] == b->coordinate;
    return str_format(c->k->arena, "map.%s[i%d]", last ? "position" : "sequence", dim);
}

static void pointer(Chunked *c, int binding)
{
    const Binding *b = &c->k->kernel->bindings[binding];
    const char *type = held_by(c, binding), *constant = b->result ? "" : "const ";
    Text at = {.arena = c->k->arena};
    for (int d = 0; d < c->inner; d++) {
        if (!b->has[d])
            continue;
        Str index = index_text(c, b, d);
        text_printf(&at, " + %.*s * map.view[%d].stride[%d]", STR_FMT(index), binding, d);
    }
    bool itself = b->lookup == binding;
    if (looks_up_row(c, binding) && !itself) {
        writer_line(&c->k->body, "const long long l%d = iso_look_up(*p%d, map.lookup[%d]);",
                    binding, b->lookup, chunked_lookup(c, binding));
        text_printf(&at, " + (l%d < 0 ? 0 : l%d)", binding, binding);
    }
    writer_line(&c->k->body, "%s%s *const p%d = (%s%s *)map.view[%d].ptr%.*s;", constant, type,
                binding, constant, type, binding, STR_FMT(text_str(&at)));
    if (itself && !looks_up_slot(c, binding) && c->k->kernel->own != binding + 1)
        writer_line(&c->k->body, "const long long l%d = iso_look_up(*p%d, map.lookup[%d]);",
                    binding, binding, chunked_lookup(c, binding));
    if (has_inner(c, binding))
        writer_line(&c->k->body, "const long long s%d = map.view[%d].stride[%d];", binding,
                    binding, c->inner);
}

void chunked_row(Chunked *c)
{
    indices(c);
    Text vector = {.arena = c->k->arena};
    for (int i = 0; i < c->k->kernel->n_bindings; i++) {
        pointer(c, i);
        if (has_inner(c, i) && !looks_up_inside(c, i) &&
            !binding_tensor(c->k->kernel, i)->index_of)
            text_printf(&vector, "%siso_vector(p%d, s%d)", vector.n ? " && " : "", i, i);
    }
    if (!vector.n)
        text_add(&vector, STR("false"));
    writer_line(&c->k->body, "const bool vector = %.*s;", STR_FMT(text_str(&vector)));
}

void chunked_packs(Chunked *c, int width, const DagNode *const *values, int n)
{
    Writer *w = &c->k->body;
    bool loaded[MAX_BINDINGS] = {false};
    DagNodes nodes;
    expr_below(c->k->arena, values, n, &nodes);
    for (int i = 0; i < nodes.n; i++) {
        if (nodes.v[i]->kind != DAG_INPUT || !(nodes.v[i]->mask & c->atoms) ||
            (nodes.v[i]->mask & c->apart))
            continue;
        int b = kernel_input(c->k->kernel, -1, nodes.v[i]);
        if (loaded[b])
            continue;
        loaded[b] = true;
        writer_line(w, "IsoPack<%s, %d> x%d;", held_by(c, b), width, b);
        int by = c->k->kernel->bindings[b].lookup;
        if (looks_up_inside(c, b))
            writer_line(w, "iso_load_looked_up(x%d, p%d, map.view[%d].stride[%d], p%d, s%d, "
                           "map.lookup[%d], i, n);", b, b, b, c->inner, by, by,
                        chunked_lookup(c, b));
        else if (looks_up_row(c, b))
            writer_line(w, "iso_load(x%d, p%d, s%d, i, l%d < 0 ? 0 : n, wide && l%d >= 0);", b, b,
                        b, b, b);
        else
            writer_line(w, "iso_load(x%d, p%d, s%d, i, n, wide);", b, b, b);
    }
}

void chunked_open(Chunked *c, const char *name, const char *parameters, int width,
                  const DagNode *const *values, int n)
{
    writer_open(&c->k->body, "const auto %s = [&](long long i, int n, bool wide%s)", name,
                parameters);
    chunked_packs(c, width, values, n);
}

void chunked_loop(Chunked *c, int width, const ExprScope *outer, ExprScope *element)
{
    writer_line(&c->k->body, "#pragma unroll");
    writer_open(&c->k->body, "for (int e = 0; e < %d; ++e)", width);
    *element = (ExprScope){.w = &c->k->body, .outer = outer, .census = &c->k->census,
                           .input = element_input, .kept = element_kept, .user = c};
}

static const DagNode **piece_values(Chunked *c, bool inner, int *n)
{
    const Kernel *kernel = c->k->kernel;
    const DagNode **values = arena_array(c->k->arena, const DagNode *, kernel->n_pieces + 1);
    *n = 0;
    for (int i = 0; i < kernel->n_pieces; i++)
        if (has_inner(c, kernel_piece(kernel, -1, kernel->pieces[i])) == inner)
            values[(*n)++] = kernel->pieces[i]->value;
    return values;
}

/* Which index the op's slots are of, as iso_owns takes it. */
static Str owner_text(const Chunked *c)
{
    int b = c->k->kernel->own - 1, atom = binding_looked_up(&c->k->kernel->bindings[b]);
    return str_format(c->k->arena, "map.lookup[%d], %lld", chunked_lookup(c, b),
                      (long long)atom_size(c->k->contract, atom, 0));
}

void chunked_own(Chunked *c)
{
    int b = c->k->kernel->own - 1;
    if (b < 0 || has_inner(c, b))
        return;
    writer_line(&c->k->body, "if (!iso_owns(*p%d, %.*s))", b, STR_FMT(owner_text(c)));
    writer_line(&c->k->body, "    continue;");
}

static void store(Chunked *c, int binding)
{
    int own = c->k->kernel->own - 1;
    if (own < 0 || !has_inner(c, own))
        writer_line(&c->k->body, "iso_store(y%d, p%d, s%d, i, n, wide);", binding, binding,
                    binding);
    else
        writer_line(&c->k->body, "iso_store_own(y%d, p%d, s%d, i, n, p%d, s%d, %.*s);", binding,
                    binding, binding, own, own, STR_FMT(owner_text(c)));
}

bool chunked_store(Chunked *c, const char *name)
{
    const Kernel *kernel = c->k->kernel;
    Writer *w = &c->k->body;
    int n;
    const DagNode **values = piece_values(c, true, &n);
    if (!n)
        return false;
    expr_hoist(&c->row, values, n, c->atoms);
    chunked_open(c, name, "", c->width, values, n);
    for (int i = 0; i < kernel->n_pieces; i++) {
        int b = kernel_piece(kernel, -1, kernel->pieces[i]);
        if (has_inner(c, b))
            writer_line(w, "IsoPack<%s, %d> y%d;", held_by(c, b), c->width, b);
    }
    ExprScope element;
    chunked_loop(c, c->width, &c->row, &element);
    for (int i = 0; i < kernel->n_pieces; i++) {
        int b = kernel_piece(kernel, -1, kernel->pieces[i]);
        if (!has_inner(c, b))
            continue;
        Str value = expr_value(&element, kernel->pieces[i]->value);
        writer_line(w, "y%d.v[e] = %.*s;", b, STR_FMT(value));
    }
    writer_close(w, "");
    for (int i = 0; i < kernel->n_pieces; i++) {
        int b = kernel_piece(kernel, -1, kernel->pieces[i]);
        if (has_inner(c, b))
            store(c, b);
    }
    writer_close(w, ";");
    return true;
}

void chunked_store_row(Chunked *c, const char *condition)
{
    const Kernel *kernel = c->k->kernel;
    int n;
    const DagNode **values = piece_values(c, false, &n);
    if (!n)
        return;
    expr_hoist(&c->row, values, n, c->atoms);
    if (condition)
        writer_open(&c->k->body, "if (%s)", condition);
    for (int i = 0; i < kernel->n_pieces; i++) {
        int b = kernel_piece(kernel, -1, kernel->pieces[i]);
        if (has_inner(c, b))
            continue;
        Str value = expr_value(&c->row, kernel->pieces[i]->value);
        writer_line(&c->k->body, "*p%d = %.*s;", b, STR_FMT(value));
    }
    if (condition)
        writer_close(&c->k->body, "");
}
