/* DAG nodes as straight statements over the device library's functions. */
#include "emit_impl.h"

const char *expr_held(DType type)
{
    return type == DT_F32 ? "float" : "IsoU16";
}

static const char *const widen[DT_COUNT] = {
    [DT_BF16] = "iso_f32_of_bf16", [DT_F16] = "iso_f32_of_f16"};
static const char *const narrow[DT_COUNT] = {
    [DT_BF16] = "iso_bf16_of_f32", [DT_F16] = "iso_f16_of_f32"};

static Str widened(Arena *arena, DType type, Str value)
{
    if (type == DT_F32)
        return value;
    return str_format(arena, "%s(%.*s)", widen[type], STR_FMT(value));
}

Str expr_round_text(Arena *arena, DType type, Str value)
{
    if (type == DT_F32)
        return value;
    return str_format(arena, "%s(%.*s)", narrow[type], STR_FMT(value));
}

static const Str *bound(const ExprScope *scope, const DagNode *node)
{
    for (; scope; scope = scope->outer)
        for (int i = 0; i < scope->nodes.n; i++)
            if (scope->nodes.v[i] == node)
                return &scope->names.v[i];
    return NULL;
}

void expr_bind(ExprScope *scope, const DagNode *node, Str name)
{
    vec_push(scope->w->text.arena, &scope->nodes, node);
    vec_push(scope->w->text.arena, &scope->names, name);
}

Str expr_f32(ExprScope *scope, const DagNode *node)
{
    return widened(scope->w->text.arena, node->type, expr_value(scope, node));
}

static Str constant(Arena *arena, const DagNode *node)
{
    return node->type == DT_F32 ? writer_f32(arena, node->bits)
                                : writer_u16(arena, node->type, node->bits);
}

static Str binary(ExprScope *scope, const DagNode *node, const char *function, int *count)
{
    Str a = expr_f32(scope, node->args[0]);
    Str b = expr_f32(scope, node->args[1]);
    ++*count;
    return str_format(scope->w->text.arena, "%s(%.*s, %.*s)", function, STR_FMT(a), STR_FMT(b));
}

/* A move but for the sign bit: a NaN keeps its payload. */
static Str negated(ExprScope *scope, const DagNode *node)
{
    Arena *arena = scope->w->text.arena;
    Str a = expr_value(scope, node->args[0]);
    if (node->type == DT_F32)
        return str_format(arena, "iso_neg(%.*s)", STR_FMT(a));
    return str_format(arena, "(IsoU16)(%.*s ^ 0x8000u)", STR_FMT(a));
}

static Str called(ExprScope *scope, const DagNode *node)
{
    static const char *const function[FN_COUNT] = {
#define X(id, name, arity, function) [FN_##id] = #function,
#include "base/scalar.def"
#undef X
    };
    Arena *arena = scope->w->text.arena;
    Text text = {.arena = arena};
    for (int i = 0; i < node->n_args; i++) {
        Str a = expr_f32(scope, node->args[i]);
        text_printf(&text, "%s%.*s", i ? ", " : "", STR_FMT(a));
    }
    scope->census->sqrt += node->fn == FN_SQRT;
    return str_format(arena, "%s(%.*s)", function[node->fn], STR_FMT(text_str(&text)));
}

static Str only(ExprScope *scope, const DagNode *node)
{
    Str a = expr_f32(scope, node->args[0]), kept = scope->kept(scope->user, node);
    return str_format(scope->w->text.arena, "%.*s ? %.*s : iso_bits_f32(0xFF800000u)",
                      STR_FMT(kept), STR_FMT(a));
}

/* Rounded to bf16 as the function itself would be. */
static Str short_form(ExprScope *scope, const DagNode *node)
{
    static const char *const function[FN_COUNT] = {
#define X(id, form, function) [FN_##id] = #form,
#include "base/short.def"
#undef X
    };
    Str a = expr_f32(scope, node->args[0]->args[0]);
    return str_format(scope->w->text.arena, "%s(%.*s)", function[node->args[0]->fn], STR_FMT(a));
}

static bool is_move(const DagNode *node)
{
    return node->kind == DAG_CAST && node->args[0]->type == node->type;
}

/* In f32, before it is rounded to the node's type; nothing where it is no operation. */
static Str operated(ExprScope *scope, const DagNode *node)
{
    switch (node->kind) {
    case DAG_CAST:
        return is_move(node)               ? (Str){0}
               : dag_has_short_form(node) ? short_form(scope, node)
                                          : expr_f32(scope, node->args[0]);
    case DAG_ADD: return binary(scope, node, "iso_add", &scope->census->add);
    case DAG_SUB: return binary(scope, node, "iso_sub", &scope->census->add);
    case DAG_MUL: return binary(scope, node, "iso_mul", &scope->census->mul);
    case DAG_DIV: return binary(scope, node, "iso_div", &scope->census->div);
    case DAG_FN: return called(scope, node);
    default: return (Str){0};
    }
}

static Str computed(ExprScope *scope, const DagNode *node)
{
    switch (node->kind) {
    case DAG_INPUT: return scope->input(scope->user, node);
    case DAG_NEG: return negated(scope, node);
    case DAG_ONLY: return only(scope, node);
    case DAG_CONST:
    case DAG_ATTEND:
    case DAG_DRAW:
    case DAG_TOP:
    case DAG_REDUCE: return STR(""); /* without a statement; reduces are bound before use */
    default: break;
    }
    if (is_move(node))
        return expr_value(scope, node->args[0]);
    return expr_round_text(scope->w->text.arena, node->type, operated(scope, node));
}

Str expr_value(ExprScope *scope, const DagNode *node)
{
    if (node->kind == DAG_CONST)
        return constant(scope->w->text.arena, node);
    const Str *known = bound(scope, node);
    if (known)
        return *known;
    Str value = computed(scope, node);
    Str name = writer_decl(scope->w, expr_held(node->type), "%.*s", STR_FMT(value));
    expr_bind(scope, node, name);
    return name;
}

bool expr_rounds(const ExprScope *scope, const DagNode *node)
{
    bool operation = node->kind == DAG_FN || (node->kind >= DAG_ADD && node->kind <= DAG_DIV) ||
                     (node->kind == DAG_CAST && !is_move(node));
    return operation && node->type != DT_F32 && !bound(scope, node);
}

Str expr_unrounded(ExprScope *scope, const DagNode *node)
{
    return operated(scope, node);
}

static bool listed(const DagNodes *nodes, const DagNode *node)
{
    for (int i = 0; i < nodes->n; i++)
        if (nodes->v[i] == node)
            return true;
    return false;
}

static void add_below(Arena *arena, const DagNode *node, DagNodes *out)
{
    if (listed(out, node))
        return;
    if (node->kind != DAG_REDUCE)
        for (int i = 0; i < node->n_args; i++)
            add_below(arena, node->args[i], out);
    vec_push(arena, out, node);
}

void expr_below(Arena *arena, const DagNode *const *values, int n, DagNodes *out)
{
    *out = (DagNodes){0};
    for (int i = 0; i < n; i++)
        add_below(arena, values[i], out);
}

void expr_hoist(ExprScope *scope, const DagNode *const *values, int n, u64 atoms)
{
    DagNodes nodes;
    expr_below(scope->w->text.arena, values, n, &nodes);
    for (int i = 0; i < nodes.n; i++)
        if (!(nodes.v[i]->mask & atoms))
            expr_value(scope, nodes.v[i]);
}

const DagNode *expr_product(const DagNode *reduce)
{
    const DagNode *body = reduce->args[0];
    bool fuses = reduce->monoid == MONOID_SUM && body->kind == DAG_MUL && body->type == DT_F32;
    return fuses ? body : NULL;
}

/* ---- bindings -------------------------------------------------------------------------------- */

static bool fixes_equal(const Fix *a, int n_a, const Fix *b, int n_b)
{
    if (n_a != n_b)
        return false;
    for (int i = 0; i < n_a; i++)
        if (a[i].atom != b[i].atom || a[i].at != b[i].at)
            return false;
    return true;
}

static int find_binding(const Kernel *kernel, int group, bool result, int tensor,
                        const Fix *fixes, int n)
{
    for (int i = 0; i < kernel->n_bindings; i++) {
        const Binding *b = &kernel->bindings[i];
        if (b->result == result && b->tensor == tensor && b->group == group &&
            fixes_equal(b->fixes, b->n_fixes, fixes, n))
            return i;
    }
    return -1;
}

int kernel_input(const Kernel *kernel, int group, const DagNode *node)
{
    return find_binding(kernel, group, false, node->param, node->fixes, node->n_fixes);
}

int kernel_kept(const Kernel *kernel, int group, const DagNode *node)
{
    return find_binding(kernel, group, false, (int)~node->fixes[0].at, node->fixes, 1);
}

int kernel_piece(const Kernel *kernel, int group, const DagPiece *piece)
{
    return find_binding(kernel, group, true, piece->result, piece->fixes, piece->n_fixes);
}

const Tensor *binding_tensor(const Kernel *kernel, int binding)
{
    const Binding *b = &kernel->bindings[binding];
    const Op *op = kernel->op->op;
    return b->result ? &op->results[b->tensor] : &op->params[b->tensor];
}

u64 dim_mask(const PlanDim *dim)
{
    u64 mask = 0;
    for (int i = 0; i < dim->n_atoms; i++)
        mask |= (u64)1 << dim->atoms[i];
    return mask;
}
