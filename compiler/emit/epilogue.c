/* What a product's Op (gemm.c) reads, computes and writes of its sums: the epilogue, as the device
 * library asks for it (iso_gemm.cuh). */
#include "emit_impl.h"

/* ---- what an epilogue touches ---------------------------------------------------------------- */

static int place_of(int *list, int *n, int most, int binding)
{
    for (int i = 0; i < *n; i++)
        if (list[i] == binding)
            return i;
    if (*n == most)
        return -1;
    list[*n] = binding;
    return (*n)++;
}

static const DagNode **group_values(Arena *arena, const GemmGroup *group)
{
    const DagNode **values = arena_array(arena, const DagNode *, group->n_pieces + 1);
    for (int i = 0; i < group->n_pieces; i++)
        values[i] = group->pieces[i]->value;
    return values;
}

/* What says where an operand is read stands before it. */
static bool list_operands(const Kernel *kernel, const GemmGroup *group, GroupBindings *out,
                          Arena *arena)
{
    DagNodes nodes;
    bool used[MAX_BINDINGS] = {false};
    int g = (int)(group - kernel->gemm.group);
    expr_below(arena, group_values(arena, group), group->n_pieces, &nodes);
    for (int i = 0; i < nodes.n; i++)
        if (nodes.v[i]->kind == DAG_INPUT)
            used[kernel_input(kernel, g, nodes.v[i])] = true;
    for (int i = 0; i < kernel->n_bindings; i++)
        if (used[i] && kernel->bindings[i].lookup >= 0)
            used[kernel->bindings[i].lookup] = true;
    for (int i = 0; i < kernel->n_bindings; i++)
        if (used[i] && place_of(out->operand, &out->n_operands, MAX_OPERANDS, i) < 0)
            return false;
    return true;
}

static bool list_bindings(const Kernel *kernel, const GemmGroup *group, GroupBindings *out,
                          Arena *arena)
{
    if (kernel->gemm.fold.n_reduces) {
        emit_fold_bindings(kernel, out);
        return true;
    }
    *out = (GroupBindings){0};
    bool fits = list_operands(kernel, group, out, arena);
    for (int i = 0; i < group->n_pieces; i++)
        if (place_of(out->result, &out->n_results, MAX_RESULTS,
                     kernel_piece(kernel, (int)(group - kernel->gemm.group), group->pieces[i])) < 0)
            return false;
    return fits;
}

bool emit_group_bindings(const Kernel *kernel, const GemmGroup *group, GroupBindings *out)
{
    jmp_buf oom;
    Arena *arena = arena_new();
    bool fits = false;
    if (arena && !setjmp(oom)) {
        arena_on_oom(arena, &oom);
        fits = list_bindings(kernel, group, out, arena);
    }
    arena_free(arena);
    return fits;
}

/* ---- epilogues ------------------------------------------------------------------------------- */

/* One group's part of the Op: what it reads for a pair of columns, whether pairs are words in
 * memory, the loads, and the two columns with their stores. */
typedef struct Epilogue {
    KernelText *k;
    const GemmGroup *group;
    int index;  /* of the group */
    int prefix; /* of its inputs' names; groups that do the same have one */
    GroupBindings touched;
    Writer fields, load, eight, value, store;
    Text pairs, eights;
    bool in_eights; /* what it reads can be loaded for eight columns at once */
    ExprScope row, element; /* of one row; of column col + i */
} Epilogue;

static Str input_name(const Epilogue *e, const DagNode *node)
{
    int binding = kernel_input(e->k->kernel, e->index, node), i = 0;
    while (e->touched.operand[i] != binding)
        i++;
    return str_format(e->k->arena, "in.in%d_%d", e->prefix, i);
}

static Str row_input(void *user, const DagNode *node)
{
    return input_name(user, node);
}

/* The type of 16 bits that every use of a sum rounds it to, f32 if there is none. */
static DType sum_rounded_to(const GemmGroup *group, const DagNode *reduce, const DagNodes *nodes)
{
    DType type = DT_COUNT;
    for (int i = 0; i < nodes->n; i++)
        for (int a = 0; a < nodes->v[i]->n_args; a++) {
            const DagNode *use = nodes->v[i];
            if (use->args[a] != reduce || use->kind == DAG_REDUCE)
                continue;
            if (use->kind != DAG_CAST || (type != DT_COUNT && type != use->type))
                return DT_F32;
            type = use->type;
        }
    for (int i = 0; i < group->n_pieces; i++)
        if (group->pieces[i]->value == reduce)
            return DT_F32;
    return type == DT_COUNT ? DT_F32 : type;
}

/* The sums of two columns, rounded, are a word each where all are rounded to one type. */
static DType packed_sums(const KernelText *k)
{
    const Gemm *gemm = &k->kernel->gemm;
    DType type = DT_COUNT;
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        DagNodes nodes;
        expr_below(k->arena, group_values(k->arena, group), group->n_pieces, &nodes);
        for (int p = 0; p < group->n_products; p++) {
            DType own = sum_rounded_to(group, group->product[p].reduce, &nodes);
            if (own == DT_F32 || (type != DT_COUNT && own != type))
                return DT_F32;
            type = own;
        }
    }
    return type;
}

static Str element_input(void *user, const DagNode *node)
{
    const Epilogue *e = user;
    Str name = input_name(e, node);
    if (node->type == DT_F32)
        return str_format(e->k->arena, "i ? %.*s.y : %.*s.x", STR_FMT(name), STR_FMT(name));
    return str_format(e->k->arena, "(IsoU16)(%.*s >> 16 * i)", STR_FMT(name));
}

/* "(const IsoU16 *)g.operand[0].ptr + row * g.operand[0].stride[0] + ..." */
static Str address(const Epilogue *e, const char *list, int place, int binding)
{
    const Binding *b = &e->k->kernel->bindings[binding];
    const Tensor *tensor = binding_tensor(e->k->kernel, binding);
    const char *type = tensor->index_of ? "int" : expr_held(tensor->type);
    Text text = {.arena = e->k->arena};
    text_printf(&text, "(%s%s *)g.%s[%d].ptr", b->result ? "" : "const ", type, list, place);
    static const char *const index[2] = {"row", "col"};
    for (int d = 0; d < 2; d++)
        if (b->has[d])
            text_printf(&text, " + %s * g.%s[%d].stride[%d]", index[d], list, place, d);
    return text_str(&text);
}

static void add_pairs(Epilogue *e, const char *list, int place, int binding, bool f32)
{
    int axes = e->k->kernel->bindings[binding].lookup < 0 ? 2 : 3;
    text_printf(&e->pairs, "%siso_view_pairs(g.%s[%d], %d, 1)", e->pairs.n ? " && " : "", list,
                place, axes);
    if (f32)
        text_printf(&e->pairs, " && ((unsigned long long)g.%s[%d].ptr & 7) == 0", list, place);
}

/* An operand that is read at an index: where that is, and +0 where it is not there. */
static Str looked_up(Epilogue *e, int i, int binding, Str read)
{
    int by = e->k->kernel->bindings[binding].lookup, place = 0;
    if (by < 0)
        return read;
    while (e->touched.operand[place] != by)
        place++;
    writer_line(&e->load, "const long long at%d = iso_view_at(g.operand[%d], in.in%d_%d);", i, i,
                e->prefix, place);
    return str_format(e->k->arena, "at%d < 0 ? %s : %.*s", i,
                      e->k->kernel->bindings[binding].has[1] &&
                              binding_tensor(e->k->kernel, binding)->type == DT_F32
                          ? "make_float2(0.0f, 0.0f)" : "0",
                      STR_FMT(read));
}

/* Input i of the four pairs of eight columns. */
static void write_eight(Epilogue *e, int i, const Binding *bound, const Tensor *tensor, Str from)
{
    if (bound->lookup >= 0 || tensor->index_of || (bound->has[1] && tensor->type == DT_F32)) {
        e->in_eights = false;
        return;
    }
    if (bound->has[1]) {
        text_printf(&e->eights, "%siso_view_eights(g.operand[%d], 2, 1)",
                    e->eights.n ? " && " : "", i);
        writer_line(&e->eight, "unsigned word%d[4];", i);
        writer_line(&e->eight, "iso_load16(%.*s, word%d);", STR_FMT(from), i);
    } else {
        writer_line(&e->eight, "const %s word%d = *(%.*s);", expr_held(tensor->type), i,
                    STR_FMT(from));
    }
    writer_line(&e->eight, "#pragma unroll");
    writer_open(&e->eight, "for (int i = 0; i < 4; ++i)");
    writer_line(&e->eight, "in[i].in%d_%d = word%d%s;", e->prefix, i, i,
                bound->has[1] ? "[i]" : "");
    writer_close(&e->eight, "");
}

/* Whether neighbouring columns never lie side by side: something within them is fixed. */
static bool lies_apart(const Binding *binding, const Tensor *tensor)
{
    for (int i = 0; i < binding->n_fixes; i++)
        if (binding->fixes[i].at >= 0 && tensor->n_atoms &&
            binding->fixes[i].atom == tensor->atoms[tensor->n_atoms - 1])
            return true;
    return false;
}

static void write_input(Epilogue *e, int i)
{
    int binding = e->touched.operand[i];
    const Binding *bound = &e->k->kernel->bindings[binding];
    const Tensor *tensor = binding_tensor(e->k->kernel, binding);
    bool f32 = tensor->type == DT_F32, pair = bound->has[1];
    Str from = address(e, "operand", i, binding);
    Arena *arena = e->k->arena;
    write_eight(e, i, bound, tensor, from);
    if (bound->lookup >= 0)
        from = str_format(arena, "%.*s + at%d", STR_FMT(from), i);
    if (!pair) {
        writer_line(&e->fields, "%s in%d_%d;", tensor->index_of ? "int" : expr_held(tensor->type),
                    e->prefix, i);
        Str read = looked_up(e, i, binding, str_format(arena, "*(%.*s)", STR_FMT(from)));
        writer_line(&e->load, "in.in%d_%d = %.*s;", e->prefix, i, STR_FMT(read));
        return;
    }
    bool apart = lies_apart(bound, tensor);
    if (!apart)
        add_pairs(e, "operand", i, binding, f32);
    writer_line(&e->fields, "%s in%d_%d;", f32 ? "float2" : "unsigned", e->prefix, i);
    Str read = str_format(arena, "iso_load_pair%s<%s>(%.*s, g.operand[%d].stride[1], valid)",
                          f32 ? "_f32" : "", apart ? "false" : "Pairs", STR_FMT(from), i);
    read = looked_up(e, i, binding, read);
    writer_line(&e->load, "in.in%d_%d = %.*s;", e->prefix, i, STR_FMT(read));
}

/* A packed sum stands for its rounding, others for themselves. */
static void bind_sum(Epilogue *e, int p, const DagNodes *nodes)
{
    const DagNode *reduce = e->group->product[p].reduce;
    Arena *arena = e->k->arena;
    if (packed_sums(e->k) == DT_F32) {
        Str value = str_format(arena, "(i ? sum[%d].y : sum[%d].x)", p, p);
        expr_bind(&e->element, reduce, expr_round_text(arena, reduce->type, value));
        return;
    }
    for (int i = 0; i < nodes->n; i++)
        if (nodes->v[i]->kind == DAG_CAST && nodes->v[i]->args[0] == reduce)
            expr_bind(&e->element, nodes->v[i],
                      str_format(arena, "(IsoU16)(sum[%d] >> 16 * i)", p));
}

static void bind_sums(Epilogue *e)
{
    DagNodes nodes;
    expr_below(e->k->arena, group_values(e->k->arena, e->group), e->group->n_pieces, &nodes);
    for (int p = 0; p < e->group->n_products; p++)
        bind_sum(e, p, &nodes);
}

/* Both columns; where an operation ends a result of 16 bits, it is rounded for both at once. */
static void write_column(Epilogue *e, int i, const DagNode *value)
{
    bool rounds = expr_rounds(&e->element, value);
    Str text = rounds ? expr_unrounded(&e->element, value) : expr_value(&e->element, value);
    writer_line(&e->value, rounds                  ? "last%d[i] = %.*s;"
                           : value->type == DT_F32 ? "out%d[i] = %.*s;"
                                                   : "out%d |= (unsigned)%.*s << 16 * i;",
                i, STR_FMT(text));
}

static void write_columns(Epilogue *e)
{
    Writer *w = &e->value;
    int n = e->group->n_pieces;
    bool *rounds = arena_array(e->k->arena, bool, n + 1);
    for (int i = 0; i < n; i++) {
        const DagNode *value = e->group->pieces[i]->value;
        rounds[i] = expr_rounds(&e->element, value);
        writer_line(w, value->type == DT_F32 ? "float out%d[2];"
                       : rounds[i]           ? "float last%d[2];"
                                             : "unsigned out%d = 0;", i);
    }
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int i = 0; i < 2; ++i)");
    for (int i = 0; i < n; i++)
        write_column(e, i, e->group->pieces[i]->value);
    writer_close(w, "");
    for (int i = 0; i < n; i++)
        if (rounds[i])
            writer_line(w, "const unsigned out%d = iso_round_pair<%s>(last%d[0], last%d[1]);", i,
                        e->group->pieces[i]->value->type == DT_F16 ? "true" : "false", i, i);
}

/* One result of two bytes that has rows and columns: the kernel may store it in wide words. */
static bool is_wide(const KernelText *k)
{
    const Gemm *gemm = &k->kernel->gemm;
    bool wide = true;
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        if (group->n_pieces != 1 || group->pieces[0]->value->type == DT_F32)
            return false;
        const Binding *b = &k->kernel->bindings[kernel_piece(k->kernel, g, group->pieces[0])];
        wide = wide && b->has[0] && b->has[1];
    }
    return wide;
}

static void write_stores(Epilogue *e, bool wide)
{
    for (int i = 0; i < e->group->n_pieces; i++) {
        int binding = kernel_piece(e->k->kernel, e->index, e->group->pieces[i]), place = 0;
        bool f32 = e->group->pieces[i]->value->type == DT_F32;
        while (e->touched.result[place] != binding)
            place++;
        Str to = address(e, "result", place, binding);
        add_pairs(e, "result", place, binding, f32);
        if (f32)
            writer_line(&e->store, "iso_store_pair_f32<Pairs>(%.*s, g.result[%d].stride[1], valid, "
                                   "out%d[0], out%d[1]);", STR_FMT(to), place, i, i);
        else
            writer_line(&e->store, "iso_store_pair<Pairs>(%.*s, g.result[%d].stride[1], valid, "
                                   "%s%d%s);", STR_FMT(to), place, wide ? "value" : "out", i,
                        wide ? "(group, g, row, col, sum, in)" : "");
    }
}

static void build_epilogue(KernelText *k, int index, int prefix, Epilogue *e)
{
    const GemmGroup *group = &k->kernel->gemm.group[index];
    *e = (Epilogue){.k = k, .group = group, .index = index, .prefix = prefix};
    list_bindings(k->kernel, group, &e->touched, k->arena);
    writer_init(&e->fields, k->arena);
    writer_init(&e->load, k->arena);
    writer_init(&e->eight, k->arena);
    writer_init(&e->value, k->arena);
    writer_init(&e->store, k->arena);
    e->pairs.arena = e->eights.arena = k->arena;
    e->in_eights = e->touched.n_operands > 0 && group->n_products == 1;
    e->row = (ExprScope){.w = &e->value, .census = &k->census, .input = row_input, .user = e};
    e->element = (ExprScope){.w = &e->value, .outer = &e->row, .census = &k->census,
                             .input = element_input, .user = e};
    bind_sums(e);
    expr_hoist(&e->row, group_values(k->arena, group), group->n_pieces, dim_mask(&group->cols));
    for (int i = 0; i < e->touched.n_operands; i++)
        write_input(e, i);
    write_columns(e);
    write_stores(e, is_wide(k));
}

/* Groups that do the same share the text: 1; others are told apart. */
static int build_epilogues(KernelText *k, Epilogue *e)
{
    int n = k->kernel->gemm.n_groups;
    bool same = true;
    build_epilogue(k, 0, 0, &e[0]);
    Census once = k->census;
    for (int i = 1; i < n; i++) {
        build_epilogue(k, i, 0, &e[i]);
        same = same && str_eq(text_str(&e[i].load.text), text_str(&e[0].load.text)) &&
               str_eq(text_str(&e[i].value.text), text_str(&e[0].value.text)) &&
               str_eq(text_str(&e[i].store.text), text_str(&e[0].store.text)) &&
               str_eq(text_str(&e[i].pairs), text_str(&e[0].pairs));
    }
    k->census = once;
    for (int i = 1; i < n && !same; i++)
        build_epilogue(k, i, i, &e[i]);
    return same ? 1 : n;
}

static void insert_groups(Writer *w, const Epilogue *e, int n, size_t writer)
{
    for (int i = 0; i < n; i++) {
        const Writer *part = (const Writer *)((const char *)&e[i] + writer);
        if (n > 1)
            writer_open(w, "if (group == %d)", i);
        writer_insert(w, text_str(&part->text));
        if (n > 1)
            writer_close(w, "");
    }
}

/* Results as values, and their stores; or both together. */
static void write_results(Writer *w, Epilogue *e, int n, bool wide)
{
    static const char parameters[] = "int group, const IsoGemmGroup &g, int row, int col, ";
    static const char values[] = "const Sum (&sum)[parts], const Inputs &in";
    writer_line(w, "static constexpr bool wide = %s;", wide ? "true" : "false");
    if (wide) {
        writer_open(w, "ISO_INLINE unsigned value0(%s%s)", parameters, values);
        for (int i = 0; i < n; i++)
            writer_line(&e[i].value, "return out0;");
        insert_groups(w, e, n, offsetof(Epilogue, value));
        if (n > 1)
            writer_line(w, "return 0;");
        writer_close(w, "");
    }
    writer_line(w, "template <bool Pairs>");
    writer_open(w, "ISO_INLINE void store(%sint valid, %s)", parameters, values);
    for (int i = 0; i < n && !wide; i++) {
        writer_insert(&e[i].value, text_str(&e[i].store.text));
        e[i].store = e[i].value;
    }
    insert_groups(w, e, n, offsetof(Epilogue, store));
    writer_close(w, "");
}

static void write_sum(Writer *w, DType packed)
{
    writer_line(w, "using Sum = %s;", packed == DT_F32 ? "float2" : "unsigned");
    writer_open(w, "ISO_INLINE Sum sum(float x, float y)");
    writer_line(w, "return %s(x, y);", packed == DT_F32   ? "make_float2"
                                       : packed == DT_F16 ? "iso_round_pair<true>"
                                                          : "iso_round_pair<false>");
    writer_close(w, "");
}

/* A function of the group that says how its views lie. */
static void write_question(Writer *w, const Epilogue *e, int n, const char *name, size_t text)
{
    writer_open(w, "ISO_INLINE bool %s(int group, const IsoGemmGroup &g)", name);
    for (int i = 0; i < n; i++) {
        Str answer = text_str((const Text *)((const char *)&e[i] + text));
        if (i + 1 < n)
            writer_line(w, "if (group == %d) return %.*s;", i, STR_FMT(answer));
        else
            writer_line(w, "return %.*s;", STR_FMT(answer));
    }
    writer_close(w, "");
}

/* What is read lies as the sums do: a tile of it can come through the ring of stages. */
static void write_taken(KernelText *k, const Epilogue *e)
{
    Writer *w = &k->head;
    if (e->touched.n_operands != 1 || !k->kernel->bindings[e->touched.operand[0]].has[0])
        return;
    writer_open(w, "ISO_INLINE void take_eight(const unsigned (&word)[4], Inputs *in)");
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int i = 0; i < 4; ++i)");
    writer_line(w, "in[i].in%d_0 = word[i];", e->prefix);
    writer_close(w, "");
    writer_close(w, "");
}

static void write_loads(KernelText *k, const Epilogue *e, int n)
{
    static const char parameters[] = "int group, const IsoGemmGroup &g, int row, int col, ";
    Writer *w = &k->head;
    bool eights = is_wide(k) && packed_sums(k) != DT_F32;
    for (int i = 0; i < n; i++)
        eights = eights && e[i].in_eights && e[i].eights.n;
    write_question(w, e, n, "pairs", offsetof(Epilogue, pairs));
    writer_line(w, "template <bool Pairs>");
    writer_open(w, "ISO_INLINE void load(%sint valid, Inputs &in)", parameters);
    insert_groups(w, e, n, offsetof(Epilogue, load));
    writer_close(w, "");
    if (!eights)
        return;
    write_question(w, e, n, "eights", offsetof(Epilogue, eights));
    writer_open(w, "ISO_INLINE void load_eight(%sInputs *in)", parameters);
    insert_groups(w, e, n, offsetof(Epilogue, eight));
    writer_close(w, "");
    if (n == 1)
        write_taken(k, e);
}

void emit_epilogues(KernelText *k)
{
    Writer *w = &k->head;
    Epilogue e[MAX_GROUPS];
    int n = build_epilogues(k, e);
    write_sum(w, packed_sums(k));
    writer_open(w, "struct Inputs");
    for (int i = 0; i < n; i++)
        writer_insert(w, text_str(&e[i].fields.text));
    writer_close(w, ";");
    write_loads(k, e, n);
    write_results(w, e, n, is_wide(k));
}
