/* Sums over a token's slots, a thread for neighbouring columns: its slots' elements are loaded all
 * at once, kept in shared memory, and taken in the order of their places. */
#include "emit_impl.h"

enum { SLOT_THREADS = 128, WARP = 32, SHARED_MAX = 48 * 1024 };

typedef struct Summing {
    Chunked c;
    int dim;      /* of the slots */
    i64 n;        /* slots of a token */
    u64 slots;    /* their atom */
    int threads;
    ExprScope lanes; /* of a lane's own slot */
} Summing;

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

static i64 kept_bytes(const Summing *s, int b)
{
    return s->n * s->c.width * dtype_bytes(binding_tensor(s->c.k->kernel, b)->type);
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
static void write_lanes(Summing *s)
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
            writer_line(w, "IsoSlots order%d;", b);
            writer_line(w, "order%d.sort<%lld>(place%d);", b, (long long)s->n, b);
        }
    }
    s->lanes = (ExprScope){.w = w, .outer = &s->c.row, .census = &s->c.k->census,
                           .input = lane_input, .user = s};
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* The binding of the reduce's places, -1: its slots are in their own order. */
static int place_of(const Kernel *kernel, const DagNode *reduce)
{
    return reduce->n_fixes ? kernel_kept(kernel, -1, reduce) : -1;
}

/* Only what stands somewhere is loaded, where that is the same for all that is summed. */
static Str is_there(const Summing *s, int b)
{
    const Kernel *kernel = s->c.k->kernel;
    Text on = {.arena = s->c.k->arena};
    int place = place_of(kernel, kernel->row.reduces[0]);
    for (int i = 1; i < kernel->row.n_reduces; i++)
        if (place_of(kernel, kernel->row.reduces[i]) != place)
            place = -1;
    text_printf(&on, "true");
    if (place >= 0)
        text_printf(&on, " && iso_slots_at(place%d, s) >= 0", place);
    if (is_looked_up(s, b))
        text_printf(&on, " && iso_slots_at(l%d, s) >= 0", b);
    return text_str(&on);
}

static Str kept_offset(const Summing *s, int b)
{
    Text at = {.arena = s->c.k->arena};
    text_printf(&at, "p%d", b);
    if (binding_of(s, b)->has[s->dim])
        text_printf(&at, " + s * map.view[%d].stride[%d]", b, s->dim);
    if (is_looked_up(s, b))
        text_printf(&at, " + (on ? iso_slots_at(l%d, s) : 0)", b);
    return text_str(&at);
}

static void write_kept(Summing *s, int b)
{
    Writer *w = &s->c.k->body;
    Str there = is_there(s, b), at = kept_offset(s, b);
    const int width = s->c.width, step = s->threads * s->c.width;
    writer_line(w, "__shared__ __align__(16) %s kept%d[%lld];", held(s, b), b,
                (long long)s->n * step);
    writer_line(w, "%s *const k%d = kept%d + threadIdx.x * %d;", held(s, b), b, b, width);
    writer_line(w, "IsoPack<%s, %d> loaded%d[%lld];", held(s, b), width, b, (long long)s->n);
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int s = 0; s < %lld; ++s)", (long long)s->n);
    writer_line(w, "const bool on = %.*s;", STR_FMT(there));
    writer_line(w, "iso_load(loaded%d[s], %.*s, s%d, i, on ? n : 0, even && on);", b, STR_FMT(at),
                b);
    writer_close(w, "");
    writer_line(w, "#pragma unroll");
    writer_line(w, "for (int s = 0; s < %lld; ++s)", (long long)s->n);
    writer_line(w, "    iso_store(loaded%d[s], k%d + s * %d, 1, 0, %d, true);", b, b, step, width);
}

/* Slots' elements lie on 16 bytes as those of the first do. */
static void write_even(Summing *s)
{
    Text even = {.arena = s->c.k->arena};
    text_printf(&even, "wide");
    for (int b = 0; b < s->c.k->kernel->n_bindings; b++) {
        int each = 16 / dtype_bytes(binding_tensor(s->c.k->kernel, b)->type);
        if (is_kept(s, b) && binding_of(s, b)->has[s->dim])
            text_printf(&even, " && map.view[%d].stride[%d] %% %d == 0", b, s->dim, each);
        if (is_kept(s, b) && is_looked_up(s, b))
            text_printf(&even, " && map.lookup[%d].stride %% %d == 0", chunked_lookup(&s->c, b),
                        each);
    }
    writer_line(&s->c.k->body, "const bool even = %.*s;", STR_FMT(text_str(&even)));
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

/* The values of slot s: each was computed by its own lane. */
static void write_taken(Summing *s, const DagNode *const *values, int n, const DagNodes *below,
                        const Str *names, ExprScope *scope)
{
    Writer *w = &s->c.k->body;
    for (int i = 0; i < below->n; i++) {
        const DagNode *node = below->v[i];
        if (!names[i].n || !is_taken(below, node, values, n, s))
            continue;
        Str name = writer_decl(w, expr_held(node->type), "iso_slots_at(%.*s, s)",
                               STR_FMT(names[i]));
        expr_bind(scope, node, name);
    }
}

static void write_kept_packs(Summing *s, const DagNodes *below)
{
    bool loaded[MAX_BINDINGS] = {false};
    for (int i = 0; i < below->n; i++) {
        if (below->v[i]->kind != DAG_INPUT)
            continue;
        int b = kernel_input(s->c.k->kernel, -1, below->v[i]);
        if (!is_kept(s, b) || loaded[b])
            continue;
        loaded[b] = true;
        writer_line(&s->c.k->body, "IsoPack<%s, %d> x%d;", held(s, b), s->c.width, b);
        writer_line(&s->c.k->body, "iso_load(x%d, k%d + s * %d, 1, 0, %d, true);", b, b,
                    s->threads * s->c.width, s->c.width);
    }
}

static void write_terms(Summing *s, const DagNode *const *values, int n, int index)
{
    KernelText *k = s->c.k;
    Writer *w = &k->body;
    DagNodes below;
    ExprScope taken = {.w = w, .outer = &s->c.row, .census = &k->census}, element;
    expr_hoist(&s->c.row, values, n, s->c.atoms | s->slots);
    expr_below(k->arena, values, n, &below);
    Str *names = arena_array(k->arena, Str, below.n + 1);
    for (int i = 0; i < below.n; i++)
        if (of_lane(s, below.v[i]) && below.v[i]->kind != DAG_CONST)
            names[i] = expr_value(&s->lanes, below.v[i]);
    writer_open(w, "const auto body%d = [&](int s, IsoTerms<%d> &terms)", index, s->c.width);
    write_kept_packs(s, &below);
    write_taken(s, values, n, &below, names, &taken);
    chunked_loop(&s->c, s->c.width, &taken, &element);
    for (int i = 0; i < n; i++) {
        Str value = expr_f32(&element, values[i]);
        writer_line(w, "terms.%c[e] = %.*s;", "ab"[i], STR_FMT(value));
    }
    writer_close(w, "");
    writer_close(w, ";");
}

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct Stack {
    int n, v[MAX_LEAVES + 1];
} Stack;

static void write_ops(Summing *s, const char *monoid, const JoinOp *ops, int n, Stack *stack,
                      int index)
{
    Writer *w = &s->c.k->body;
    for (int i = 0; i < n; i++) {
        int top = stack->v[stack->n - 1];
        if (ops[i].kind == NODE_ROUND) {
            writer_line(w, "iso_slots_round<%s, %s>(q%d_%d);", monoid, row_type(ops[i].type),
                        index, top);
            continue;
        }
        stack->n--;
        writer_line(w, "iso_slots_join<%s, %s>(q%d_%d, q%d_%d);", monoid, row_type(ops[i].type),
                    index, stack->v[stack->n - 1], index, top);
        s->c.k->census.add++;
    }
}

/* What no slot stands below. */
static Str nothing_text(const Summing *s, Monoid monoid)
{
    return str_format(s->c.k->arena, "0x%08Xu", monoid == MONOID_SUM ? 0u : 0xFF800000u);
}

static void write_roots(Summing *s, const DagNode *reduce, const Stack *stack, int index)
{
    Writer *w = &s->c.k->body;
    Str nothing = nothing_text(s, reduce->monoid);
    if (monoid_values(reduce->monoid) == 2)
        writer_line(w, "const IsoPair nothing = {__uint_as_float(%.*s), 0.0f};",
                    STR_FMT(nothing));
    else
        writer_line(w, "const float nothing = __uint_as_float(%.*s);", STR_FMT(nothing));
    for (int r = 0; r < stack->n; r++)
        writer_line(w, "iso_slots_store(args, %d, column, n, q%d_%d, nothing);", r, index,
                    stack->v[r]);
}

/* The reduce's values, held as its type is. */
static void write_value(Summing *s, const DagNode *reduce, const Stack *stack, int index)
{
    KernelText *k = s->c.k;
    Str nothing = nothing_text(s, reduce->monoid), text;
    if (reduce->monoid == MONOID_LOGSUMEXP)
        text = str_format(k->arena, "iso_slots_log<%s>(q%d_%d.v[e], q%d_%d.any, %.*s)",
                          row_type(reduce->type), index, stack->v[0], index, stack->v[0],
                          STR_FMT(nothing));
    else
        text = str_format(k->arena, "iso_slots_final(q%d_%d.v[e], q%d_%d.any, %.*s)", index,
                          stack->v[0], index, stack->v[0], STR_FMT(nothing));
    text = expr_round_text(k->arena, reduce->type, text);
    writer_line(&k->body, "%s r%d[%d];", expr_held(reduce->type), index, s->c.width);
    writer_line(&k->body, "#pragma unroll");
    writer_line(&k->body, "for (int e = 0; e < %d; ++e)", s->c.width);
    writer_line(&k->body, "    r%d[e] = %.*s;", index, STR_FMT(text));
    expr_bind(&s->c.row, reduce,
              str_format(k->arena, "r%d[%s]", index, reduce->mask & s->c.atoms ? "e" : "0"));
}

static void write_reduce(Summing *s, int index)
{
    const Kernel *kernel = s->c.k->kernel;
    const DagNode *reduce = kernel->row.reduces[index];
    const RowTree *tree = &kernel->row.trees[index];
    const DagNode *product = tree->form == TREE_CHAIN ? expr_product(reduce) : NULL;
    const DagNode *values[2] = {product ? product->args[0] : reduce->args[0],
                                product ? product->args[1] : NULL};
    const char *monoid = row_monoid(reduce->monoid, product != NULL);
    int place = place_of(kernel, reduce);
    const JoinOp *ops = tree->program.ops;
    Writer *w = &s->c.k->body;
    Stack stack = {0};
    write_terms(s, values, product ? 2 : 1, index);
    if (place >= 0)
        writer_line(w, "IsoSlots slots%d = order%d;", index, place);
    else
        writer_line(w, "IsoSlots slots%d;", index);
    if (place < 0)
        writer_line(w, "slots%d.count<%lld>();", index, (long long)s->n);
    for (int i = 0; i < tree->n_parts; i++) {
        writer_line(w, "IsoColumns<%s, %d> q%d_%d = iso_slots_part<%s, %d>(slots%d, %lld, body%d);",
                    monoid, s->c.width, index, i, monoid, s->c.width, index,
                    (long long)(tree->parts[i].start + tree->parts[i].len), index);
        stack.v[stack.n++] = i;
        write_ops(s, monoid, ops, tree->program.n_ops[i], &stack, index);
        ops += tree->program.n_ops[i];
    }
    s->c.k->census.fma += product != NULL;
    s->c.k->census.add += !product && reduce->monoid == MONOID_SUM;
    if (kernel->row.roots_out)
        write_roots(s, reduce, &stack, index);
    else
        write_value(s, reduce, &stack, index);
}

/* From the roots that all ranks sent: those are there below which a slot stands. */
static void write_joined(Summing *s)
{
    const Join *join = &s->c.k->kernel->join;
    const DagNode *reduce = join->reduces[0];
    const char *monoid = row_monoid(reduce->monoid, false);
    const JoinOp *ops = join->program.ops;
    int place = place_of(s->c.k->kernel, reduce), source = 0, within = 0;
    Stack stack = {0};
    for (int r = 0; r < join->n_roots; r++) {
        while (within == join->roots_of_rank[source]) {
            source++;
            within = 0;
        }
        writer_line(&s->c.k->body,
                    "IsoColumns<%s, %d> q0_%d = iso_slots_load<%s, %d>(args.source[%d], %d, "
                    "column, n, iso_slots_in(place%d, %lld, %lld));", monoid, s->c.width, r,
                    monoid, s->c.width, source, within++, place, (long long)join->runs[r].start,
                    (long long)(join->runs[r].start + join->runs[r].len));
        stack.v[stack.n++] = r;
        write_ops(s, monoid, ops, join->program.n_ops[r], &stack, 0);
        ops += join->program.n_ops[r];
    }
    write_value(s, reduce, &stack, 0);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Fewer threads where many slots' elements are kept. */
static int threads_of(const Summing *s)
{
    i64 bytes = 0;
    int threads = SLOT_THREADS;
    for (int b = 0; b < s->c.k->kernel->n_bindings; b++)
        bytes += is_kept(s, b) ? kept_bytes(s, b) : 0;
    while (threads > WARP && threads * bytes > SHARED_MAX)
        threads /= 2;
    return threads;
}

static void write_packs(Summing *s)
{
    const Row *row = &s->c.k->kernel->row;
    const DagNode **values = arena_array(s->c.k->arena, const DagNode *, row->n_reduces + 1);
    for (int i = 0; i < row->n_reduces; i++)
        values[i] = row->reduces[i]->args[0];
    chunked_packs(&s->c, s->c.width, values, row->n_reduces);
    write_even(s);
    for (int b = 0; b < s->c.k->kernel->n_bindings; b++)
        if (is_kept(s, b))
            write_kept(s, b);
}

static void write_chunk(Summing *s)
{
    Writer *w = &s->c.k->body;
    int inner = s->c.inner, width = s->c.width;
    writer_line(w, "const unsigned first = (task %% groups * %d + lane) * %d;", WARP, width);
    writer_line(w, "const long long i = first;");
    writer_line(w, "const int n = first >= e%d ? 0 : first + %d <= e%d ? %d : (int)(e%d - first);",
                inner, width, inner, width, inner);
    writer_line(w, "const bool wide = vector && n == %d;", width);
}

void emit_slots(KernelText *k)
{
    const Kernel *kernel = k->kernel;
    bool join = kernel->family == FAMILY_JOIN;
    Writer *w = &k->body;
    Summing s = {.dim = kernel->n_dims - 1};
    chunked_init(&s.c, k, kernel->n_dims - 2);
    s.slots = s.c.apart = dim_mask(&kernel->dims[s.dim]);
    s.n = atom_size(k->contract, kernel->dims[s.dim].atoms[0], 0);
    s.threads = threads_of(&s);
    k->family = join ? "join" : "slots";
    k->parameters = "const __grid_constant__ IsoRowArgs args";
    k->arguments = "IsoRowArgs";
    k->threads = s.threads;
    k->bounds = str_format(k->arena, "%d", s.threads).s;
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_map.cuh\n"
                   "iso_row.cuh\niso_slots.cuh\n");
    writer_line(w, "const IsoMapArgs &map = args.map;");
    chunked_extents(&s.c);
    writer_line(w, "const unsigned groups = (e%d + %d) / %d;", s.c.inner, WARP * s.c.width - 1,
                WARP * s.c.width);
    writer_line(w, "const int lane = threadIdx.x %% %d;", WARP);
    writer_open(w, "for (unsigned task = blockIdx.x * %du + threadIdx.x / %d; "
                   "task < rows * groups; task += gridDim.x * %du)", s.threads / WARP, WARP,
                s.threads / WARP);
    writer_line(w, "const unsigned row = task / groups;");
    chunked_row(&s.c);
    write_lanes(&s);
    write_chunk(&s);
    if (join || kernel->row.roots_out) {
        row_write_place(&s.c);
        writer_line(w, "const long long column = (long long)place * map.extent[%d] + first;",
                    s.c.inner);
    }
    if (join)
        write_joined(&s);
    else
        write_packs(&s);
    for (int i = 0; i < kernel->row.n_reduces && !join; i++)
        write_reduce(&s, i);
    if ((join || !kernel->row.roots_out) && chunked_store(&s.c, "store"))
        writer_line(w, "if (n > 0)\n        store(i, n, wide);");
    writer_close(w, "");
}
