/* Lines of arithmetic, then trees, then the layout. */
#include "explain_impl.h"

#include <string.h>

enum { NOTE_COLUMN = 56, LONGEST_LINE = 160 };

/* ---- expressions ---------------------------------------------------------------------------- */

/* Which nodes have a line of their own; line numbers start at 1. */
typedef struct Lines {
    const Dag *dag;
    const OpDag *op;
    int *line; /* by node number, 0: written where it is used */
    int n;
    bool body; /* inside a reduction's body, where only reductions have lines */
    int stop;  /* length of the text at which an expression is cut short */
} Lines;

static void write_value(const Lines *lines, const DagNode *node, Text *out);

/* An operand; `tight` asks for brackets around a sum or product. */
static void write_operand(const Lines *lines, const DagNode *node, bool tight, Text *out)
{
    bool arithmetic = (node->kind >= DAG_NEG && node->kind <= DAG_DIV) ||
                      node->kind == DAG_REDUCE;
    if (lines->line && lines->line[node->number] && (!lines->body || node->kind == DAG_REDUCE)) {
        text_printf(out, "[%d]", lines->line[node->number]);
        return;
    }
    text_printf(out, tight && arithmetic ? "(" : "");
    write_value(lines, node, out);
    text_printf(out, tight && arithmetic ? ")" : "");
}

static void write_call(const Lines *lines, const char *name, const DagNode *node, Text *out)
{
    text_printf(out, "%s(", name);
    for (int i = 0; i < node->n_args; i++) {
        text_printf(out, i ? ", " : "");
        write_operand(lines, node->args[i], false, out);
    }
    text_printf(out, ")");
}

static void write_reduce(const Lines *lines, const DagNode *node, Text *out)
{
    const Contract *contract = lines->dag->contract;
    Lines body = *lines;
    body.body = true;
    text_printf(out, "%s over ", monoid_name(node->monoid));
    int n;
    const int *summed = dag_summed(node, &n);
    for (int i = 0; i < n; i++)
        text_printf(out, "%s%.*s", i ? ", " : "",
                    STR_FMT(contract->axes[contract->atom_axis[summed[i]]].name.text));
    text_printf(out, node->n_fixes ? " at " : "");
    dag_print_fixes(contract, lines->op->op, node->fixes, node->n_fixes, out);
    text_printf(out, " of ");
    write_operand(&body, node->args[0], false, out);
}

static void write_value(const Lines *lines, const DagNode *node, Text *out)
{
    static const char signs[] = {[DAG_ADD] = '+', [DAG_SUB] = '-', [DAG_MUL] = '*',
                                 [DAG_DIV] = '/'};
    if (out->n >= lines->stop && node->n_args) {
        text_printf(out, "...");
        return;
    }
    switch (node->kind) {
    case DAG_INPUT:
        text_add(out, lines->op->op->params[node->param].name.text);
        dag_print_fixes(lines->dag->contract, lines->op->op, node->fixes, node->n_fixes, out);
        break;
    case DAG_CONST:
        text_printf(out, "%.9g", (double)dag_constant_value(node->type, node->bits));
        break;
    case DAG_CAST:
        write_call(lines, dtype_name(node->type), node, out);
        break;
    case DAG_FN:
        write_call(lines, dag_fn_name(node->fn), node, out);
        break;
    case DAG_ATTEND:
        write_call(lines, node->lse ? "attend lse" : "attend", node, out);
        dag_print_fixes(lines->dag->contract, lines->op->op, node->fixes, node->n_fixes, out);
        break;
    case DAG_DRAW:
        write_call(lines, "draw", node, out);
        break;
    case DAG_TOP:
        write_call(lines, "top", node, out);
        break;
    case DAG_ONLY:
        write_call(lines, "only", node, out);
        dag_print_fixes(lines->dag->contract, lines->op->op, node->fixes, node->n_fixes, out);
        break;
    case DAG_NEG:
        text_printf(out, "-");
        write_operand(lines, node->args[0], true, out);
        break;
    case DAG_REDUCE:
        write_reduce(lines, node, out);
        break;
    default:
        write_operand(lines, node->args[0], true, out);
        text_printf(out, " %c ", signs[node->kind]);
        write_operand(lines, node->args[1], true, out);
        break;
    }
}

Str explain_inline(const Dag *dag, const OpDag *op, const DagNode *node, int longest,
                   Arena *arena)
{
    Text out = {.arena = arena};
    const Lines lines = {.dag = dag, .op = op, .stop = longest};
    write_value(&lines, node, &out);
    return text_str(&out);
}

/* Where the node rounds. */
static const char *rounding_note(const DagNode *node, Arena *arena)
{
    const char *type = dtype_name(node->type);
    switch (node->kind) {
    case DAG_CAST:
        if (node->type == DT_F32)
            return "exact";
        return str_format(arena, "rounded to %s", type).s;
    case DAG_NEG:
    case DAG_ONLY:
        return "exact";
    case DAG_FN:
        return str_format(arena, node->fn == FN_SQRT ? "%s, rounded once"
                                 : node->fn == FN_MINIMUM || node->fn == FN_MAXIMUM
                                     ? "%s, exact" : "%s, as its text computes it", type).s;
    case DAG_REDUCE:
        return str_format(arena, "%s, by the tree below", type).s;
    case DAG_ATTEND:
        return "f32, as below";
    case DAG_DRAW:
        return "an index, as below";
    case DAG_TOP:
        return "indices, as below";
    case DAG_INPUT:
    case DAG_CONST:
        return "stored as it is";
    default:
        return str_format(arena, node->type == DT_F32 ? "%s, rounded once"
                                                      : "in f32, rounded once to %s", type).s;
    }
}

/* Exact and free of arithmetic: written where it is used. */
static bool is_inline(const DagNode *node)
{
    return node->kind == DAG_INPUT || node->kind == DAG_CONST ||
           (node->kind == DAG_CAST && node->type == DT_F32 && node->args[0]->kind == DAG_INPUT);
}

/* Reductions, and nodes outside of their bodies, in order. */
static void choose_lines(Lines *lines, Arena *arena)
{
    const OpDag *op = lines->op;
    bool *outside = arena_array(arena, bool, op->nodes.n + 1);
    lines->line = arena_array(arena, int, op->nodes.n + 1);
    for (int i = 0; i < op->pieces.n; i++)
        outside[op->pieces.v[i].value->number] = true;
    for (int i = op->nodes.n - 1; i >= 0; i--) {
        const DagNode *node = op->nodes.v[i];
        if (outside[i] && node->kind != DAG_REDUCE)
            for (int j = 0; j < node->n_args; j++)
                outside[node->args[j]->number] = true;
    }
    for (int i = 0; i < op->nodes.n; i++)
        if ((outside[i] || op->nodes.v[i]->kind == DAG_REDUCE) && !is_inline(op->nodes.v[i]))
            lines->line[i] = ++lines->n;
}

/* Adds blanks up to a column of the line being written. */
static void pad_line(Text *out, int column)
{
    int at = 0;
    for (int i = out->n; i > 0 && out->s[i - 1] != '\n'; i--)
        at++;
    text_printf(out, "%*s", at < column ? column - at : 2, "");
}

static void write_lines(Lines *lines, Text *out)
{
    const OpDag *op = lines->op;
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        if (!lines->line[i])
            continue;
        text_printf(out, "  [%d] ", lines->line[i]);
        lines->stop = out->n + LONGEST_LINE;
        write_value(lines, node, out);
        pad_line(out, NOTE_COLUMN);
        text_printf(out, "%s\n", rounding_note(node, out->arena));
    }
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        text_printf(out, "  %.*s", STR_FMT(op->op->results[piece->result].name.text));
        dag_print_fixes(lines->dag->contract, op->op, piece->fixes, piece->n_fixes, out);
        text_printf(out, " = ");
        lines->stop = out->n + LONGEST_LINE;
        write_operand(lines, piece->value, false, out);
        text_printf(out, "\n");
    }
}

static void write_attends(const Lines *lines, Text *out)
{
    const OpDag *op = lines->op;
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        Str name = str_format(out->arena, "[%d]", lines->line[i]), like = {0};
        for (int j = 0; j < i; j++)
            if (op->nodes.v[j]->kind == DAG_ATTEND && op->nodes.v[j]->attend == node->attend)
                like = str_format(out->arena, "[%d]", lines->line[j]);
        if (node->kind == DAG_ATTEND)
            explain_attend(lines->dag->contract, node, name, like, out);
        if (node->kind == DAG_DRAW)
            explain_draw(lines->dag->contract, op->op, node->draw, name, out);
        if (node->kind == DAG_TOP)
            explain_top(lines->dag->contract, node->top, name, out);
    }
}

static void write_constants(const OpDag *op, Text *out)
{
    bool any = false;
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        if (node->kind != DAG_CONST)
            continue;
        text_printf(out, any ? ", %s " : "  constants: %s ", dtype_name(node->type));
        dag_print_constant(node->type, node->bits, out);
        any = true;
    }
    text_printf(out, any ? "\n" : "");
}

static Str tensor_type(const Contract *contract, const Tensor *tensor)
{
    return tensor->index_of > 0   ? contract->axes[tensor->index_of - 1].name.text
           : tensor->index_of < 0 ? STR("i32")
                                  : str_of(dtype_name(tensor->type));
}

static void write_tensors(const Contract *contract, const Tensor *tensors, int n, Text *out)
{
    for (int i = 0; i < n; i++) {
        text_printf(out, "%s%.*s: %.*s[", i ? ", " : "", STR_FMT(tensors[i].name.text),
                    STR_FMT(tensor_type(contract, &tensors[i])));
        for (int j = 0; j < tensors[i].n_axes; j++)
            text_printf(out, "%s%.*s", j ? ", " : "",
                        STR_FMT(contract->axes[tensors[i].axes[j]].name.text));
        text_printf(out, "]");
    }
}

/* ---- all ------------------------------------------------------------------------------------ */

bool explain_op(const Dag *dag, const OpDag *op, const OpLayout *at, Text *out, Arena *arena)
{
    Lines lines = {.dag = dag, .op = op};
    choose_lines(&lines, arena);
    text_printf(out, "op %.*s(", STR_FMT(op->op->name));
    write_tensors(dag->contract, op->op->params, op->op->n_params, out);
    text_printf(out, ") -> ");
    write_tensors(dag->contract, op->op->results, op->op->n_results, out);
    text_printf(out, "\n  fingerprint %.*s\n\nOne element:\n",
                STR_FMT(digest_hex(arena, &op->fingerprint)));
    write_lines(&lines, out);
    write_constants(op, out);
    write_attends(&lines, out);
    for (int i = 0; i < op->reduces.n; i++) {
        const DagNode *reduce = op->reduces.v[i];
        Str name = str_format(arena, "[%d]", lines.line[reduce->number]);
        int like = 0;
        while (!explain_alike(dag->contract, reduce, op->reduces.v[like]))
            like++;
        if (like < i) {
            text_printf(out, "\n%.*s has the tree of [%d]\n", STR_FMT(name),
                        lines.line[op->reduces.v[like]->number]);
            continue;
        }
        if (!explain_reduce(dag->contract, reduce, at, name, out, arena))
            return false;
    }
    return !at || explain_layout(dag->contract, op, at, out, arena);
}
