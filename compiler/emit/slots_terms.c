/* What a sum over slots takes of each: where a lane's own slot stands, what is loaded for the slots
 * in the order of their places, and the terms computed of it. */
#include "slots_impl.h"

enum { BATCH = 4 }; /* slots whose elements are loaded at once */

static const Binding *binding_of(const Summing *s, int b)
{
    return &s->c.k->kernel->bindings[b];
}

/* The operand is read at what a slot says. */
static bool is_looked_up(const Summing *s, int b)
{
    int by = binding_of(s, b)->lookup;
    return by >= 0 && by != b && binding_of(s, by)->has[s->dim];
}

static bool is_of_slots(const Summing *s, int b)
{
    return binding_of(s, b)->has[s->dim] || is_looked_up(s, b);
}

static bool is_place(const Summing *s, int b)
{
    return binding_of(s, b)->lookup == b;
}

/* Elements of columns, one set for each slot. */
static bool is_kept(const Summing *s, int b)
{
    return !binding_of(s, b)->result && binding_of(s, b)->has[s->c.inner] && is_of_slots(s, b);
}

static const char *held(const Summing *s, int b)
{
    return expr_held(binding_tensor(s->c.k->kernel, b)->type);
}

/* ---- a lane's own slot ----------------------------------------------------------------------- */

/* " + own * stride", or nothing. */
static Str own_offset(const Summing *s, int b)
{
    if (!binding_of(s, b)->has[s->dim])
        return STR("");
    return str_format(s->c.k->arena, " + own * map.view[%d].stride[%d]", b, s->dim);
}

static Str lane_input(void *user, const DagNode *node)
{
    const Summing *s = user;
    int b = kernel_input(s->c.k->kernel, -1, node);
    Str at = own_offset(s, b);
    if (!is_looked_up(s, b))
        return str_format(s->c.k->arena, "p%d[0%.*s]", b, STR_FMT(at));
    return str_format(s->c.k->arena, "l%d < 0 ? (%s)0 : p%d[l%d%.*s]", b, held(s, b), b, b,
                      STR_FMT(at));
}

/* Where the lane's slot stands, and at what it has operands looked up. */
void slots_write_lanes(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    writer_line(w, "const int own = lane < %lld ? lane : 0;", (long long)s->n);
    for (int b = 0; b < kernel->n_bindings; b++) {
        int by = binding_of(s, b)->lookup;
        if (!is_place(s, b) && !is_looked_up(s, b))
            continue;
        writer_line(w, "const long long l%d = iso_look_up(p%d[0%.*s], map.lookup[%d]);", b, by,
                    STR_FMT(own_offset(s, by)), chunked_lookup(&s->c, b));
        if (is_place(s, b)) {
            writer_line(w, "const int place%d = iso_slots_place<%lld>(l%d);", b, (long long)s->n,
                        b);
            if (kernel->family == FAMILY_JOIN)
                continue;
            writer_line(w, "IsoSlots order%d;", b);
            writer_line(w, "order%d.sort<%lld>(place%d);", b, (long long)s->n, b);
        }
    }
    s->lanes = (ExprScope){.w = w, .outer = &s->c.row, .census = &s->c.k->census,
                           .input = lane_input, .user = s};
}

/* ---- what is loaded for each slot ------------------------------------------------------------ */

/* Columns of a thread that a sum has: one where it is the same for all. */
int slots_width(const Summing *s, const DagNode *reduce)
{
    return reduce->mask & s->c.atoms ? s->c.width : 1;
}

/* The binding of the reduce's places, -1: its slots are in their own order. */
int slots_place(const Kernel *kernel, const DagNode *reduce)
{
    return reduce->n_fixes ? kernel_kept(kernel, -1, reduce) : -1;
}

int slots_batch(const Summing *s)
{
    return s->n < BATCH ? (int)s->n : BATCH;
}

static Str kept_offset(const Summing *s, int b)
{
    Text at = {.arena = s->c.k->arena};
    text_printf(&at, "p%d", b);
    if (binding_of(s, b)->has[s->dim])
        text_printf(&at, " + (code[j] & ISO_SLOTS_SLOT) * map.view[%d].stride[%d]", b, s->dim);
    if (is_looked_up(s, b))
        text_printf(&at, " + (on ? at : 0)");
    return text_str(&at);
}

static void write_load(Summing *s, int b, int index)
{
    Writer *w = &s->c.k->body;
    bool looked_up = is_looked_up(s, b);
    Str at = kept_offset(s, b);
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int j = 0; j < %d; ++j)", slots_batch(s));
    if (looked_up)
        writer_line(w, "const long long at = iso_slots_at(l%d, code[j] & ISO_SLOTS_SLOT);", b);
    writer_line(w, "const bool on = first + j < codes%d.n%s;", index,
                looked_up ? " && at >= 0" : "");
    if (s->c.width > 1)
        writer_line(w, "iso_slots_load(z%d_%d[j], %.*s, i, on);", index, b, STR_FMT(at));
    else
        writer_line(w, "iso_load(z%d_%d[j], %.*s, s%d, i, on ? n : 0, wide);", index, b,
                    STR_FMT(at), b);
    writer_close(w, "");
}

/* The lambda that brings the elements of some slots, in their order. */
static void write_loads(Summing *s, const DagNodes *below, int index)
{
    Writer *w = &s->c.k->body;
    bool seen[MAX_BINDINGS] = {false};
    int n = 0, own[MAX_BINDINGS];
    for (int i = 0; i < below->n; i++) {
        int b = below->v[i]->kind == DAG_INPUT ? kernel_input(s->c.k->kernel, -1, below->v[i]) : -1;
        if (b < 0 || !is_kept(s, b) || seen[b])
            continue;
        seen[b] = true;
        own[n++] = b;
        writer_line(w, "IsoPack<%s, %d> z%d_%d[%d];", held(s, b), s->c.width, index, b,
                    slots_batch(s));
    }
    writer_open(w, "const auto load%d = [&](const int *code, int first)", index);
    for (int i = 0; i < n; i++)
        write_load(s, own[i], index);
    writer_close(w, ";");
}

/* Whether all that the warp reads and writes of this chunk lies on 16 bytes, slots' elements as
 * those of the first do. */
void slots_write_fast(Summing *s)
{
    Text even = {.arena = s->c.k->arena};
    text_printf(&even, "vector && n == %d", s->c.width);
    for (int b = 0; b < s->c.k->kernel->n_bindings; b++) {
        int each = 16 / dtype_bytes(binding_tensor(s->c.k->kernel, b)->type);
        if (is_kept(s, b) && binding_of(s, b)->has[s->dim])
            text_printf(&even, " && map.view[%d].stride[%d] %% %d == 0", b, s->dim, each);
        if (is_kept(s, b) && is_looked_up(s, b))
            text_printf(&even, " && map.lookup[%d].stride %% %d == 0", chunked_lookup(&s->c, b),
                        each);
    }
    writer_line(&s->c.k->body, "const bool fast = __ballot_sync(ISO_SLOTS_ALL, n == 0 || (%.*s)) "
                               "== ISO_SLOTS_ALL;", STR_FMT(text_str(&even)));
}

/* ---- terms ----------------------------------------------------------------------------------- */

static bool of_lane(const Summing *s, const DagNode *node)
{
    return (node->mask & s->slots) && !(node->mask & s->c.atoms);
}

static bool is_taken(const DagNodes *below, const DagNode *node, const DagNode *const *values,
                     int n, const Summing *s)
{
    for (int i = 0; i < n; i++)
        if (values[i] == node)
            return true;
    for (int i = 0; i < below->n; i++)
        for (int k = 0; k < below->v[i]->n_args; k++)
            if (below->v[i]->kind != DAG_REDUCE && below->v[i]->args[k] == node &&
                !of_lane(s, below->v[i]))
                return true;
    return false;
}

/* The values of the slot at place `at` in order: each was computed by its own lane, and is in the
 * at-th by now. */
static void write_taken(Summing *s, const DagNode *const *values, int n, const DagNodes *below,
                        const Str *names, ExprScope *scope)
{
    Writer *w = &s->c.k->body;
    for (int i = 0; i < below->n; i++) {
        const DagNode *node = below->v[i];
        if (!names[i].n || !is_taken(below, node, values, n, s))
            continue;
        Str name = writer_decl(w, expr_held(node->type), "iso_slots_at(%.*s, at)",
                               STR_FMT(names[i]));
        expr_bind(scope, node, name);
    }
}

static void name_packs(Summing *s, const DagNodes *below, int index)
{
    bool named[MAX_BINDINGS] = {false};
    for (int i = 0; i < below->n; i++) {
        int b = below->v[i]->kind == DAG_INPUT ? kernel_input(s->c.k->kernel, -1, below->v[i]) : -1;
        if (b < 0 || !is_kept(s, b) || named[b])
            continue;
        named[b] = true;
        writer_line(&s->c.k->body, "const IsoPack<%s, %d> &x%d = z%d_%d[j];", held(s, b),
                    s->c.width, b, index, b);
    }
}

/* The lane's value, in the lane of its slot's place in order. */
Str slots_ordered(Summing *s, const DagNode *node, int index)
{
    for (int i = 0; i < s->ordered.n; i++)
        if (s->ordered.v[i].node == node && s->ordered.v[i].reduce == index)
            return s->ordered.v[i].name;
    Str own = expr_value(&s->lanes, node);
    Str name = writer_decl(&s->c.k->body, expr_held(node->type),
                           "iso_slots_at(%.*s, codes%d.code & ISO_SLOTS_SLOT)", STR_FMT(own),
                           index);
    vec_push(s->c.k->arena, &s->ordered, ((Ordered){node, index, name}));
    return name;
}

void slots_write_terms(Summing *s, const DagNode *const *values, int n, int width, int index)
{
    KernelText *k = s->c.k;
    Writer *w = &k->body;
    DagNodes below;
    ExprScope taken = {.w = w, .outer = &s->c.row, .census = &k->census}, element;
    expr_hoist(&s->c.row, values, n, s->c.atoms | s->slots);
    expr_below(k->arena, values, n, &below);
    Str *names = arena_array(k->arena, Str, below.n + 1);
    for (int i = 0; i < below.n; i++)
        if (of_lane(s, below.v[i]) && below.v[i]->kind != DAG_CONST &&
            is_taken(&below, below.v[i], values, n, s))
            names[i] = slots_ordered(s, below.v[i], index);
    write_loads(s, &below, index);
    writer_open(w, "const auto body%d = [&](int j, int at, IsoTerms<%d> &terms)", index, width);
    name_packs(s, &below, index);
    write_taken(s, values, n, &below, names, &taken);
    chunked_loop(&s->c, width, &taken, &element);
    for (int i = 0; i < n; i++) {
        Str value = expr_f32(&element, values[i]);
        writer_line(w, "terms.%c[e] = %.*s;", "ab"[i], STR_FMT(value));
    }
    writer_close(w, "");
    writer_close(w, ";");
}
