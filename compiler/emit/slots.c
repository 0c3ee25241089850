/* Sums over a token's slots, a thread for neighbouring columns: its slots' elements are loaded some
 * at once, in the order of their places, and what of the tree they need is done between them. */
#include "slots_impl.h"

enum { SLOT_THREADS = 128, WARP = 32, SHARED_MAX = 48 * 1024, BATCH = 4,
       ROOTS_WRITTEN = 8 };

typedef struct Ordered {
    const DagNode *node;
    int reduce;
    Str name;
} Ordered;

typedef struct Summing {
    Chunked c;
    int dim;      /* of the slots */
    i64 n;        /* slots of a token */
    u64 slots;    /* their atom */
    int threads;
    ExprScope lanes; /* of a lane's own slot */
    VEC(Ordered) ordered;
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
static int width_of(const Summing *s, const DagNode *reduce)
{
    return reduce->mask & s->c.atoms ? s->c.width : 1;
}

/* The binding of the reduce's places, -1: its slots are in their own order. */
static int place_of(const Kernel *kernel, const DagNode *reduce)
{
    return reduce->n_fixes ? kernel_kept(kernel, -1, reduce) : -1;
}

static int batch_of(const Summing *s)
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
    writer_open(w, "for (int j = 0; j < %d; ++j)", batch_of(s));
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
                    batch_of(s));
    }
    writer_open(w, "const auto load%d = [&](const int *code, int first)", index);
    for (int i = 0; i < n; i++)
        write_load(s, own[i], index);
    writer_close(w, ";");
}

/* Whether all that the warp reads and writes of this chunk lies on 16 bytes, slots' elements as
 * those of the first do. */
static void write_fast(Summing *s)
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
static Str ordered(Summing *s, const DagNode *node, int index)
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

static void write_terms(Summing *s, const DagNode *const *values, int n, int width, int index)
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
            names[i] = ordered(s, below.v[i], index);
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

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct Stack {
    int n, v[MAX_LEAVES + 1];
} Stack;

static void write_ops(Summing *s, const char *monoid, const JoinOp *ops, int n, Stack *stack)
{
    Writer *w = &s->c.k->body;
    for (int i = 0; i < n; i++) {
        int top = stack->v[stack->n - 1];
        if (ops[i].kind == NODE_ROUND) {
            writer_line(w, "iso_slots_round<%s, %s>(q%d);", monoid, row_type(ops[i].type), top);
            continue;
        }
        stack->n--;
        writer_line(w, "iso_slots_join<%s, %s>(q%d, q%d);", monoid, row_type(ops[i].type),
                    stack->v[stack->n - 1], top);
        s->c.k->census.add++;
    }
}

/* What no slot stands below. */
static Str nothing_text(const Summing *s, Monoid monoid)
{
    return str_format(s->c.k->arena, "0x%08Xu", monoid == MONOID_SUM ? 0u : 0xFF800000u);
}

/* The lambda that takes a root; afterwards those that no slot stands below. */
static void write_root(Summing *s, const DagNode *reduce, const char *monoid, int index)
{
    Writer *w = &s->c.k->body;
    Str nothing = nothing_text(s, reduce->monoid);
    writer_open(w, "const auto root%d = [&](int r, const IsoColumns<%s, %d> &value)", index, monoid,
                width_of(s, reduce));
    if (s->c.k->kernel->row.roots_out && monoid_values(reduce->monoid) == 2)
        writer_line(w, "const IsoPair nothing = {__uint_as_float(%.*s), 0.0f};",
                    STR_FMT(nothing));
    else if (s->c.k->kernel->row.roots_out)
        writer_line(w, "const float nothing = __uint_as_float(%.*s);", STR_FMT(nothing));
    if (s->c.k->kernel->row.roots_out)
        writer_line(w, "iso_slots_store(args, r, column, live ? n : 0, value, nothing);");
    writer_close(w, ";");
}

static void write_absent(Summing *s, const RowTree *tree, const char *monoid, int index)
{
    Writer *w = &s->c.k->body;
    SlotTree ops;
    slots_tree(&tree->program, true, &ops);
    writer_line(w, "const IsoColumns<%s, %d> none = {};", monoid, s->c.width);
    for (int r = 0; r < ops.n_roots; r++) {
        writer_line(w, "if (!(codes%d.have & 0x%xu))", index, ops.root[r]);
        writer_line(w, "    root%d(%d, none);", index, r);
    }
}

/* The one root of parts that are joined, or those of parts that no slot is in. */
static void write_absent_alike(Summing *s, const RowTree *tree, const AlikeTree *alike,
                               const char *monoid, int index)
{
    Writer *w = &s->c.k->body;
    if (!alike->each) {
        writer_line(w, "root%d(0, q%d);", index, index);
        return;
    }
    writer_line(w, "const IsoColumns<%s, %d> none = {};", monoid, s->c.width);
    writer_line(w, "#pragma unroll 1");
    writer_line(w, "for (int r = 0; r < %d; ++r)", tree->n_parts);
    writer_line(w, "    if (!__ballot_sync(ISO_SLOTS_ALL, codes%d.have == (unsigned)r))", index);
    writer_line(w, "        root%d(r, none);", index);
}

/* The reduce's values, held as its type is. */
static void write_value(Summing *s, const DagNode *reduce, int q, int index)
{
    KernelText *k = s->c.k;
    Str nothing = nothing_text(s, reduce->monoid), text;
    if (reduce->monoid == MONOID_LOGSUMEXP)
        text = str_format(k->arena, "iso_slots_log<%s>(q%d.v[e], q%d.any, %.*s)",
                          row_type(reduce->type), q, q, STR_FMT(nothing));
    else
        text = str_format(k->arena, "iso_slots_final(q%d.v[e], q%d.any, %.*s)", q, q,
                          STR_FMT(nothing));
    text = expr_round_text(k->arena, reduce->type, text);
    writer_line(&k->body, "%s r%d[%d];", expr_held(reduce->type), index, width_of(s, reduce));
    writer_line(&k->body, "#pragma unroll");
    writer_line(&k->body, "for (int e = 0; e < %d; ++e)", width_of(s, reduce));
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
    int width = width_of(s, reduce);
    AlikeTree alike;
    Writer *w = &s->c.k->body;
    write_terms(s, values, product ? 2 : 1, width, index);
    write_root(s, reduce, monoid, index);
    writer_line(w, "const IsoColumns<%s, %d> q%d = iso_slots_sum<Tree%d, %s, %d, %lld, %d>("
                   "codes%d, IsoSlotStack<%s, %d, %d>{waiting, 0}, load%d, body%d, root%d);",
                monoid, width,
                index, index, monoid, width, (long long)s->n, batch_of(s), index, monoid, width,
                s->threads, index, index, index);
    s->c.k->census.fma += product != NULL;
    s->c.k->census.add += (!product && reduce->monoid == MONOID_SUM) + tree->program.total_ops;
    if (!kernel->row.roots_out)
        write_value(s, reduce, index, index);
    else if (slots_alike(tree, &alike))
        write_absent_alike(s, tree, &alike, monoid, index);
    else
        write_absent(s, tree, monoid, index);
}

/* Each root is joined to those before it, and nothing else is done. */
static bool joins_left(const JoinProgram *program)
{
    const JoinOp *op = program->ops;
    DType type = program->total_ops ? op[program->total_ops - 1].type : DT_F32;
    for (int r = 0; r < program->n_roots; r++)
        for (int i = 0; i < program->n_ops[r]; i++, op++)
            if (r == 0 || program->n_ops[r] > 1 || op->kind != NODE_JOIN || op->type != type)
                return false;
    return program->total_ops == program->n_roots - 1;
}

/* The same by a loop. */
static void write_joined_left(Summing *s, const char *monoid, int place)
{
    const Join *join = &s->c.k->kernel->join;
    Writer *w = &s->c.k->body;
    DType type = join->program.ops[join->program.total_ops - 1].type;
    writer_line(w, "IsoColumns<%s, %d> q0 = {};", monoid, s->c.width);
    writer_line(w, "int next = 0;");
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "for (int source = 0; source < %d; ++source)", join->n_sources);
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "for (int r = 0; r < args.source[source].roots; ++r, ++next)");
    writer_line(w, "const bool any = iso_slots_in(place%d, root_begin[next], root_end[next]);",
                place);
    writer_line(w, "const IsoColumns<%s, %d> x = iso_slots_root<%s, %d>(args.source[source], r, "
                   "column, live ? n : 0, any);", monoid, s->c.width, monoid, s->c.width);
    writer_line(w, "iso_slots_join<%s, %s>(q0, x);", monoid, row_type(type));
    writer_close(w, "");
    writer_close(w, "");
    s->c.k->census.add++;
}

static void write_root_ranges(KernelText *k)
{
    const Join *join = &k->kernel->join;
    Text begin = {.arena = k->arena}, end = {.arena = k->arena};
    for (int r = 0; r < join->n_roots; r++) {
        const Run *run = &join->runs[r];
        text_printf(&begin, "%s%lld", r ? ", " : "", (long long)run->start);
        text_printf(&end, "%s%lld", r ? ", " : "", (long long)(run->start + run->len));
    }
    writer_line(&k->head, "__constant__ constexpr int root_begin[] = {%.*s};",
                STR_FMT(text_str(&begin)));
    writer_line(&k->head, "__constant__ constexpr int root_end[] = {%.*s};",
                STR_FMT(text_str(&end)));
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
    if (join->n_roots > ROOTS_WRITTEN && joins_left(&join->program)) {
        write_joined_left(s, monoid, place);
        write_value(s, reduce, 0, 0);
        return;
    }
    for (int r = 0; r < join->n_roots; r++) {
        while (within == join->roots_of_rank[source]) {
            source++;
            within = 0;
        }
        writer_line(&s->c.k->body,
                    "IsoColumns<%s, %d> q%d = iso_slots_root<%s, %d>(args.source[%d], %d, "
                    "column, live ? n : 0, iso_slots_in(place%d, %lld, %lld));", monoid,
                    s->c.width, r,
                    monoid, s->c.width, source, within++, place, (long long)join->runs[r].start,
                    (long long)(join->runs[r].start + join->runs[r].len));
        stack.v[stack.n++] = r;
        write_ops(s, monoid, ops, join->program.n_ops[r], &stack);
        ops += join->program.n_ops[r];
    }
    write_value(s, reduce, stack.v[0], 0);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Bytes of a thread's values that wait for their right sides. */
static i64 waiting_bytes(const Summing *s)
{
    const Row *row = &s->c.k->kernel->row;
    i64 most = 16;
    for (int i = 0; i < row->n_reduces && s->c.k->kernel->family != FAMILY_JOIN; i++) {
        i64 each = (i64)s->c.width * monoid_values(row->reduces[i]->monoid) * 4;
        AlikeTree alike;
        int depth = slots_alike(&row->trees[i], &alike) ? 2 : row->trees[i].program.depth;
        i64 bytes = (depth - 1) * each;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int threads_of(const Summing *s)
{
    int threads = SLOT_THREADS;
    while (threads > WARP && threads * waiting_bytes(s) > SHARED_MAX)
        threads /= 2;
    return threads;
}

/* What is the same for all rows. */
static void write_before(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    writer_line(w, "const unsigned groups = (e%d + %d) / %d;", s->c.inner, WARP * s->c.width - 1,
                WARP * s->c.width);
    writer_line(w, "const int lane = threadIdx.x %% %d;", WARP);
    if (kernel->family == FAMILY_JOIN) {
        write_root_ranges(s->c.k);
        return;
    }
    writer_line(w, "__shared__ float4 waiting[%lld];",
                (long long)(waiting_bytes(s) / 16 * s->threads));
    for (int i = 0; i < kernel->row.n_reduces; i++) {
        SlotTree ops;
        AlikeTree alike;
        if (slots_alike(&kernel->row.trees[i], &alike)) {
            slots_write_alike(s->c.k, &alike, i);
            continue;
        }
        slots_tree(&kernel->row.trees[i].program, kernel->row.roots_out, &ops);
        slots_write_tree(s->c.k, &kernel->row.trees[i], &ops, i);
    }
}

/* Each warp has neighbouring tasks: columns of a row, then those of the next. */
static void open_tasks(Summing *s)
{
    Writer *w = &s->c.k->body;
    writer_line(w, "const unsigned tasks = rows * groups, warps = gridDim.x * %du;",
                s->threads / WARP);
    writer_line(w, "const unsigned share = (tasks + warps - 1) / warps;");
    writer_line(w, "unsigned task = (blockIdx.x * %du + threadIdx.x / %d) * share;",
                s->threads / WARP, WARP);
    writer_line(w, "const unsigned end = task + share < tasks ? task + share : tasks;");
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "while (task < end)");
    writer_line(w, "const unsigned row = task / groups;");
    writer_line(w, "const unsigned stop = (row + 1) * groups < end ? (row + 1) * groups : end;");
}

static bool has_reduce(const DagNode *node)
{
    bool found = node->kind == DAG_REDUCE;
    for (int i = 0; i < node->n_args && !found; i++)
        found = has_reduce(node->args[i]);
    return found;
}

/* What the terms have of a row, and of a lane's slot, before any sum. */
static void write_row_values(Summing *s, const DagNode *reduce, int index)
{
    DagNodes below;
    expr_below(s->c.k->arena, reduce->args, 1, &below);
    for (int i = 0; i < below.n; i++) {
        const DagNode *node = below.v[i];
        if (node->kind == DAG_CONST || (node->mask & s->c.atoms) || has_reduce(node))
            continue;
        if (node->mask & s->slots)
            ordered(s, node, index);
        else
            expr_value(&s->c.row, node);
    }
}

static void write_row_start(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    chunked_row(&s->c);
    write_lanes(s);
    for (int i = 0; i < kernel->row.n_reduces && kernel->family != FAMILY_JOIN; i++) {
        int place = place_of(kernel, kernel->row.reduces[i]);
        if (place < 0) {
            writer_line(w, "IsoSlots slots%d;", i);
            writer_line(w, "slots%d.count<%lld>();", i, (long long)s->n);
        }
        AlikeTree alike;
        if (slots_alike(&kernel->row.trees[i], &alike))
            writer_line(w, "const IsoSlotCodes codes%d = iso_slots_alike<Tree%d>(%s%d);", i, i,
                        place < 0 ? "slots" : "order", place < 0 ? i : place);
        else
            writer_line(w, "const IsoSlotCodes codes%d = iso_slots_codes<Tree%d, %lld>(%s%d, "
                           "follow%d);", i, i, (long long)s->n, place < 0 ? "slots" : "order",
                        place < 0 ? i : place, i);
        write_row_values(s, kernel->row.reduces[i], i);
    }
    if (kernel->family == FAMILY_JOIN || kernel->row.roots_out)
        row_write_place(&s->c);
}

static void write_chunk(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    int inner = s->c.inner, width = s->c.width;
    writer_line(w, "const unsigned first = (task %% groups * %d + lane) * %d;", WARP, width);
    writer_line(w, "const long long i = first;");
    writer_line(w, "const int n = first >= e%d ? 0 : first + %d <= e%d ? %d : (int)(e%d - first);",
                inner, width, inner, width, inner);
    write_fast(s);
    if (kernel->family == FAMILY_JOIN)
        writer_line(w, "const long long start = (long long)place * args.source_columns + "
                       "args.column_begin + first;");
    else if (kernel->row.roots_out)
        writer_line(w, "const long long start = (long long)place * map.extent[%d] + first;",
                    inner);
}

/* The sums and what is computed of them, of s->c.width columns. */
static void write_work(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    const Row *row = &kernel->row;
    const DagNode **values = arena_array(s->c.k->arena, const DagNode *, row->n_reduces + 1);
    int nodes = s->c.row.nodes.n, own = s->lanes.nodes.n, ordered_before = s->ordered.n;
    if (kernel->family == FAMILY_JOIN) {
        write_joined(s);
    } else {
        for (int i = 0; i < row->n_reduces; i++)
            values[i] = row->reduces[i]->args[0];
        chunked_packs(&s->c, s->c.width, values, row->n_reduces);
        for (int i = 0; i < row->n_reduces; i++)
            write_reduce(s, i);
    }
    if ((kernel->family == FAMILY_JOIN || !row->roots_out) && chunked_store(&s->c, "store")) {
        writer_line(&s->c.k->body, "if (live)");
        writer_line(&s->c.k->body, "    store(i, n, wide);");
    }
    s->c.row.nodes.n = s->c.row.names.n = nodes;
    s->lanes.nodes.n = s->lanes.names.n = own;
    s->ordered.n = ordered_before;
}

/* Chunks that lie well are read as they are; a lane beyond the columns reads the first and keeps
 * nothing. Of others each column is a chunk. */
static void write_chunks(Summing *s)
{
    Writer *w = &s->c.k->body;
    bool roots = s->c.k->kernel->family == FAMILY_JOIN || s->c.k->kernel->row.roots_out;
    int width = s->c.width;
    writer_open(w, "if (fast)");
    writer_line(w, "const bool live = n > 0;");
    writer_line(w, "const long long i = live ? first : 0;");
    if (roots)
        writer_line(w, "const long long column = live ? start : start - first;");
    writer_open(w, "const auto work = [&](int n, bool wide)");
    write_work(s);
    writer_close(w, ";");
    writer_line(w, "work(%d, true);", width);
    writer_close(w, " else {");
    writer_line(w, "    #pragma unroll 1");
    writer_open(w, "    for (int c = 0; c < %d; ++c)", width);
    writer_line(w, "const bool live = c < n;");
    writer_line(w, "const long long i = live ? first + c : 0;");
    if (roots)
        writer_line(w, "const long long column = start + c;");
    writer_open(w, "const auto work = [&](int n, bool wide)");
    s->c.width = 1;
    write_work(s);
    s->c.width = width;
    writer_close(w, ";");
    writer_line(w, "work(live, false);");
    writer_close(w, "");
    writer_line(w, "}");
}

static void open_kernel(Summing *s, KernelText *k)
{
    const Kernel *kernel = k->kernel;
    *s = (Summing){.dim = kernel->n_dims - 1};
    chunked_init(&s->c, k, kernel->n_dims - 2);
    s->c.width = row_columns(kernel);
    s->slots = s->c.apart = dim_mask(&kernel->dims[s->dim]);
    s->n = atom_size(k->contract, kernel->dims[s->dim].atoms[0], 0);
    s->threads = threads_of(s);
    k->family = kernel->family == FAMILY_JOIN ? "join" : "slots";
    k->parameters = "const __grid_constant__ IsoRowArgs args";
    k->arguments = "IsoRowArgs";
    k->threads = s->threads;
    k->bounds = str_format(k->arena, "%d, 4", s->threads).s; /* not to spill for more of them */
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_map.cuh\n"
                   "iso_row.cuh\niso_slots.cuh\n");
}

void emit_slots(KernelText *k)
{
    Writer *w = &k->body;
    Summing s;
    open_kernel(&s, k);
    writer_line(w, "const IsoMapArgs &map = args.map;");
    chunked_extents(&s.c);
    write_before(&s);
    open_tasks(&s);
    write_row_start(&s);
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "for (; task < stop; ++task)");
    write_chunk(&s);
    write_chunks(&s);
    writer_close(w, "");
    writer_close(w, "");
}
