/* The canonical text of nodes and ops, and what is hashed of it. */
#include <string.h>

#include "dag_impl.h"
#include "base/device_text.h"

/* ---- atoms ---------------------------------------------------------------------------------- */

static const Axis *atom_axis(const Contract *contract, int atom)
{
    return &contract->axes[contract->atom_axis[atom]];
}

static void number_atom(AtomOrder *order, int atom)
{
    if (order->number[atom] >= 0)
        return;
    order->number[atom] = order->n++;
    int ragged = atom_axis(order->contract, atom)->coordinate_of;
    if (ragged >= 0)
        number_atom(order, order->contract->axes[ragged].atom);
}

void atom_order(const Contract *contract, const Op *op, AtomOrder *order)
{
    *order = (AtomOrder){.contract = contract};
    for (int i = 0; i < MAX_ATOMS; i++)
        order->number[i] = -1;
    for (int i = 0; i < op->n_params; i++) {
        for (int j = 0; j < op->params[i].n_atoms; j++)
            number_atom(order, op->params[i].atoms[j]);
        if (op->params[i].index_of > 0)
            number_atom(order, contract->axes[op->params[i].index_of - 1].atom);
    }
    for (int i = 0; i < op->n_results; i++)
        for (int j = 0; j < op->results[i].n_atoms; j++)
            number_atom(order, op->results[i].atoms[j]);
    for (int i = 0; i < contract->n_atoms; i++)
        if (op->space & (u64)1 << i)
            number_atom(order, i);
}

/* "a1:4096", "a0:free", "a3:coordinate 1 of a0": which factor of a ragged axis it is. */
static void atom_text(const AtomOrder *order, int atom, Text *out)
{
    const Axis *axis = atom_axis(order->contract, atom);
    text_printf(out, "a%d:", order->number[atom]);
    if (axis->coordinate_of >= 0) {
        const Axis *ragged = &order->contract->axes[axis->coordinate_of];
        int which = 0;
        while (which < ragged->n_factors &&
               ragged->factors[which] != order->contract->atom_axis[atom])
            which++;
        text_printf(out, "coordinate %d of a%d", which, order->number[ragged->atom]);
    } else if (axis->free) {
        text_printf(out, "free");
    } else {
        text_printf(out, "%lld", (long long)axis->size);
    }
}

static void atoms_text(const AtomOrder *order, const int *atoms, int n, Text *out)
{
    text_printf(out, "[");
    for (int i = 0; i < n; i++) {
        text_printf(out, i ? ", " : "");
        atom_text(order, atoms[i], out);
    }
    text_printf(out, "]");
}

static void fixes_text(const AtomOrder *order, const Fix *fixes, int n, Text *out)
{
    for (int i = 0; i < n; i++) {
        text_printf(out, "%sa%d=", i ? " " : " at ", order->number[fixes[i].atom]);
        i64 at = fixes[i].at < 0 ? ~fixes[i].at : fixes[i].at;
        if (fix_is_result(&fixes[i]))
            text_printf(out, "result %lld", (long long)(at - FIX_RESULT));
        else
            text_printf(out, fixes[i].at < 0 ? "param %lld" : "%lld", (long long)at);
    }
}

int fix_compare(const AtomOrder *order, const Fix *a, const Fix *b)
{
    int na = order->number[a->atom], nb = order->number[b->atom];
    if (na != nb)
        return na < nb ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

const char *dag_kind_name(DagKind kind)
{
    static const char *const names[] = {
        [DAG_INPUT] = "input", [DAG_CONST] = "const", [DAG_CAST] = "cast", [DAG_NEG] = "neg",
        [DAG_ADD] = "add",     [DAG_SUB] = "sub",     [DAG_MUL] = "mul",   [DAG_DIV] = "div",
        [DAG_FN] = "fn",       [DAG_ONLY] = "only",   [DAG_REDUCE] = "reduce",
        [DAG_ATTEND] = "attend", [DAG_DRAW] = "draw", [DAG_TOP] = "top",
    };
    return names[kind];
}

const char *dag_fn_name(FnId fn)
{
    static const char *const names[] = {
#define X(id, name, arity, function) name,
#include "base/scalar.def"
#undef X
    };
    return names[fn];
}

void dag_print_attend(const Attend *attend, Text *out)
{
    text_printf(out, "block %lld split %lld ", (long long)attend->block, (long long)attend->split);
    text_printf(out, attend->capped ? "scale 0x%08x cap_log2 0x%08x" : "scale_log2 0x%08x",
                attend->scale, attend->cap);
    text_printf(out, " %s weights %s mask %s", dag_fn_name(attend->exp2),
                dtype_name(attend->weights), attend->causal ? "causal" : "none");
    if (attend->window)
        text_printf(out, " window %lld", (long long)attend->window);
    if (attend->rounded)
        text_printf(out, " maxima rounded");
}

int draw_param(const Draw *draw, int which)
{
    const int own[DRAW_PARAMS] = {draw->seed,        draw->stream,      draw->temperature,
                                  draw->top_k.param, draw->top_p.param, draw->min_p.param};
    return own[which];
}

static void print_param(const Op *op, const char *what, int param, Text *out)
{
    if (param < 0)
        return;
    text_printf(out, " %s ", what);
    if (op)
        text_add(out, op->params[param].name.text);
    else
        text_printf(out, "param %d", param);
}

static void print_limit(const Op *op, const char *what, const DrawLimit *limit, bool integer,
                        Text *out)
{
    if (limit->set && limit->param >= 0)
        print_param(op, what, limit->param, out);
    else if (limit->set)
        text_printf(out, integer ? " %s %u" : " %s 0x%08x", what, limit->bits);
}

void dag_print_draw(const Op *op, const Draw *draw, Text *out)
{
    print_param(op, "seed", draw->seed, out);
    print_param(op, "stream", draw->stream, out);
    print_param(op, "temperature", draw->temperature, out);
    print_limit(op, "top_k", &draw->top_k, true, out);
    print_limit(op, "top_p", &draw->top_p, false, out);
    print_limit(op, "min_p", &draw->min_p, false, out);
}

void dag_print_top(const Top *top, Text *out)
{
    text_printf(out, " %lld by %s", (long long)top->k, top->by_index ? "index" : "score");
    if (top->groups > 1)
        text_printf(out, " groups %lld keep %lld group_sum %lld", (long long)top->groups,
                    (long long)top->keep, (long long)top->group_sum);
}

/* The node without its operands, "reduce sum f32 [a1:4096] by split 8 { mma } pairwise f32". */
static void node_head(const AtomOrder *order, const Op *op, const DagNode *node, Text *out)
{
    text_printf(out, "%s %s", dag_kind_name(node->kind), dtype_name(node->type));
    switch (node->kind) {
    case DAG_INPUT:
        text_printf(out, " %d ", node->param);
        atoms_text(order, op->params[node->param].atoms, op->params[node->param].n_atoms, out);
        fixes_text(order, node->fixes, node->n_fixes, out);
        break;
    case DAG_CONST:
        text_printf(out, " 0x%0*x", 2 * dtype_bytes(node->type), node->bits);
        break;
    case DAG_FN:
        text_printf(out, " %s", dag_fn_name(node->fn));
        break;
    case DAG_ONLY:
        fixes_text(order, node->fixes, node->n_fixes, out);
        break;
    case DAG_REDUCE:
        text_printf(out, " %s ", monoid_name(node->monoid));
        if (node->n_fixes)
            atoms_text(order, &node->slots, 1, out);
        else
            atoms_text(order, node->atoms, node->n_atoms, out);
        fixes_text(order, node->fixes, node->n_fixes, out);
        text_printf(out, " by ");
        tree_print(node->tree, out);
        break;
    case DAG_ATTEND:
        text_printf(out, " %s over ", node->lse ? "lse" : "value");
        atoms_text(order, node->attend->over, node->attend->n_over, out);
        text_printf(out, " ");
        dag_print_attend(node->attend, out);
        fixes_text(order, node->fixes, node->n_fixes, out);
        break;
    case DAG_DRAW:
        text_printf(out, " over ");
        atoms_text(order, &node->draw->atom, 1, out);
        dag_print_draw(NULL, node->draw, out);
        break;
    case DAG_TOP:
        text_printf(out, " over ");
        atoms_text(order, &node->top->atom, 1, out);
        text_printf(out, " at ");
        atoms_text(order, &node->top->picks, 1, out);
        dag_print_top(node->top, out);
        break;
    default:
        break;
    }
}

Digest dag_node_id(const AtomOrder *order, const Op *op, const DagNode *node, Arena *arena)
{
    Text text = {.arena = arena};
    node_head(order, op, node, &text);
    for (int i = 0; i < node->n_args; i++)
        text_add(&text, (Str){(const char *)node->args[i]->id.byte, 32});
    return sha256(text.s, (size_t)text.n);
}

/* ---- what else decides the bits ------------------------------------------------------------- */

/* sqrt, minimum and maximum are exact by clause; the others are what their text says. */
static bool fn_has_text(FnId fn)
{
    return fn != FN_SQRT && fn != FN_MINIMUM && fn != FN_MAXIMUM;
}

static bool has_rounded_maxima(const OpDag *op)
{
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i]->kind == DAG_ATTEND && op->nodes.v[i]->attend->rounded)
            return true;
    return false;
}

static bool has_ex2(const OpDag *op)
{
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        if ((node->kind == DAG_FN && node->fn == FN_EX2) ||
            (node->kind == DAG_ATTEND && node->attend->exp2 == FN_EX2))
            return true;
    }
    return false;
}

static bool uses_function_text(const OpDag *op)
{
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        if (node->kind == DAG_FN && fn_has_text(node->fn))
            return true;
        if (node->kind == DAG_REDUCE && monoid_values(node->monoid) > 1)
            return true;
        if (node->kind == DAG_ATTEND || node->kind == DAG_DRAW)
            return true;
    }
    return false;
}

static bool has_products(const DagNode *node)
{
    if (node->kind == DAG_REDUCE)
        return tree_is_mma(node->tree);
    for (int i = 0; i < node->n_args; i++)
        if (has_products(node->args[i]))
            return true;
    return false;
}

bool dag_folds(const DagNode *reduce)
{
    return has_products(reduce->args[0]);
}

bool dag_uses_mma(const OpDag *op)
{
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        if (node->kind == DAG_ATTEND || (node->kind == DAG_REDUCE && tree_is_mma(node->tree)))
            return true;
    }
    return false;
}

/* Without comments, and with every stretch of blanks as one: editing a comment moves no bit. */
static void code_of(const char *s, Text *out)
{
    bool blank = false;
    while (*s) {
        const char *end = NULL;
        if (s[0] == '/' && s[1] == '/')
            end = strchr(s, '\n');
        else if (s[0] == '/' && s[1] == '*' && (end = strstr(s + 2, "*/")))
            end += 2;
        if (s[0] == '/' && (s[1] == '/' || s[1] == '*')) {
            s = end ? end : s + strlen(s);
            blank = true;
            continue;
        }
        if (strchr(" \t\n\r", *s)) {
            blank = true;
        } else {
            text_printf(out, "%s%c", blank ? " " : "", *s);
            blank = false;
        }
        s++;
    }
}

static void function_text(Arena *arena, Text *out)
{
    Text code = {.arena = arena};
    for (const DeviceText *file = device_texts; file->name; file++)
        if (!strcmp(file->name, "iso_num.cuh") || !strcmp(file->name, "iso_fn.cuh"))
            code_of(file->text, &code);
    Digest digest = sha256(code.s, (size_t)code.n);
    text_printf(out, "functions %.*s\n", STR_FMT(digest_hex(arena, &digest)));
}

void dag_file_text(const char *name, Text *out)
{
    Text code = {.arena = out->arena};
    for (const DeviceText *file = device_texts; file->name; file++)
        if (!strcmp(file->name, name))
            code_of(file->text, &code);
    Digest digest = sha256(code.s, (size_t)code.n);
    text_printf(out, "%s %.*s\n", name, STR_FMT(digest_hex(out->arena, &digest)));
}

static void class_text(const Contract *contract, Text *out)
{
    char text[128];
    fdpa_text(contract->numerics, text, sizeof text);
    text_printf(out, "class %s\n", text);
}

/* ---- ops ------------------------------------------------------------------------------------ */

static void tensors_text(const AtomOrder *order, const char *what, const Tensor *tensors, int n,
                         Text *out)
{
    for (int i = 0; i < n; i++) {
        text_printf(out, "%s %d %.*s ", what, i, STR_FMT(tensors[i].name.text));
        if (tensors[i].index_of == INTEGERS) {
            text_printf(out, "i32 ");
        } else if (tensors[i].index_of) {
            text_printf(out, "index of ");
            atom_text(order, order->contract->axes[tensors[i].index_of - 1].atom, out);
            text_printf(out, " ");
        } else {
            text_printf(out, "%s ", dtype_name(tensors[i].type));
        }
        atoms_text(order, tensors[i].atoms, tensors[i].n_atoms, out);
        text_printf(out, "\n");
    }
}

void dag_canonical(const Dag *dag, const OpDag *op, Text *out)
{
    AtomOrder order;
    atom_order(dag->contract, op->op, &order);
    text_printf(out, "isoc numerics 1\nop %.*s\n", STR_FMT(op->op->name));
    if (dag_uses_mma(op))
        class_text(dag->contract, out);
    if (uses_function_text(op))
        function_text(out->arena, out);
    if (has_rounded_maxima(op))
        dag_file_text("iso_rounded.cuh", out);
    if (has_ex2(op))
        dag_file_text("iso_ex2.cuh", out);
    tensors_text(&order, "param", op->op->params, op->op->n_params, out);
    tensors_text(&order, "result", op->op->results, op->op->n_results, out);
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        text_printf(out, "%%%d = ", i);
        node_head(&order, op->op, node, out);
        for (int j = 0; j < node->n_args; j++)
            text_printf(out, " %%%d", node->args[j]->number);
        text_printf(out, "\n");
    }
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        text_printf(out, "store %d", piece->result);
        fixes_text(&order, piece->fixes, piece->n_fixes, out);
        text_printf(out, " = %%%d\n", piece->value->number);
    }
}

void dag_fingerprint_op(const Dag *dag, OpDag *op, Arena *arena)
{
    Text text = {.arena = arena};
    dag_canonical(dag, op, &text);
    op->fingerprint = sha256(text.s, (size_t)text.n);
}

void dag_fingerprint_all(Dag *dag, Arena *arena)
{
    Text text = {.arena = arena};
    const OpDag **sorted = arena_array(arena, const OpDag *, dag->n_ops + 1);
    for (int i = 0; i < dag->n_ops; i++) {
        int j = i;
        for (; j > 0; j--) {
            Str a = sorted[j - 1]->op->name, b = dag->ops[i].op->name;
            int c = memcmp(a.s, b.s, (size_t)(a.n < b.n ? a.n : b.n));
            if (c < 0 || (c == 0 && a.n <= b.n))
                break;
            sorted[j] = sorted[j - 1];
        }
        sorted[j] = &dag->ops[i];
    }
    text_printf(&text, "isoc contract 1\n");
    class_text(dag->contract, &text);
    function_text(arena, &text);
    for (int i = 0; i < dag->n_ops; i++)
        text_printf(&text, "op %.*s\n", STR_FMT(digest_hex(arena, &sorted[i]->fingerprint)));
    if (dag->contract->model)
        dag_model_text(dag, false, &text);
    dag->fingerprint = sha256(text.s, (size_t)text.n);
}
