/* Two graphs are walked side by side from their results; equal ids end the walk. */
#include "diff.h"

#include <string.h>

#include "explain.h"

enum { LONGEST = 60 };

typedef struct Side {
    const Dag *dag;
    const OpDag *op;
} Side;

typedef VEC(int) SeenNumbers;

typedef struct Walk {
    Side a, b;
    SeenNumbers *seen; /* per node of a: the nodes of b that it was compared with */
    int found;
    const Attend *told; /* the last statement whose settings were told: it may have two values */
    Arena *arena;
    Text *out;
} Walk;

/* ---- words ---------------------------------------------------------------------------------- */

static Str shown(const Walk *w, const Side *side, const DagNode *node)
{
    return explain_inline(side->dag, side->op, node, LONGEST, w->arena);
}

static void report(Walk *w)
{
    text_printf(w->out, "  ");
    w->found++;
}

static Str constant_text(Arena *arena, const DagNode *node)
{
    Text text = {.arena = arena};
    text_printf(&text, "%s ", dtype_name(node->type));
    dag_print_constant(node->type, node->bits, &text);
    return text_str(&text);
}

static Str tree_text(Arena *arena, const DagNode *reduce)
{
    Text text = {.arena = arena};
    tree_print(reduce->tree, &text);
    return text_str(&text);
}

static Str axes_text(Arena *arena, const Side *side, const int *atoms, int n)
{
    const Contract *contract = side->dag->contract;
    Text text = {.arena = arena};
    for (int i = 0; i < n; i++) {
        const Axis *axis = &contract->axes[contract->atom_axis[atoms[i]]];
        text_printf(&text, "%s%.*s", i ? ", " : "", STR_FMT(axis->name.text));
        if (!axis->free)
            text_printf(&text, " %lld", (long long)axis->size);
    }
    return text_str(&text);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void walk(Walk *w, const DagNode *a, const DagNode *b);

static bool was_seen(Walk *w, const DagNode *a, const DagNode *b)
{
    SeenNumbers *seen = &w->seen[a->number];
    for (int i = 0; i < seen->n; i++)
        if (seen->v[i] == b->number)
            return true;
    vec_push(w->arena, seen, b->number);
    return false;
}

static void walk_args(Walk *w, const DagNode *a, const DagNode *b)
{
    for (int i = 0; i < a->n_args && i < b->n_args; i++)
        walk(w, a->args[i], b->args[i]);
}

static bool is_rounding(const DagNode *node)
{
    return node->kind == DAG_CAST && node->type != DT_F32;
}

/* A cast that only one side has: said, and the walk goes on below it. */
static void walk_cast(Walk *w, const DagNode *a, const DagNode *b, bool in_a)
{
    const DagNode *cast = in_a ? a : b;
    if (is_rounding(cast)) {
        report(w);
        text_printf(w->out, "rounding of `%.*s` to %s only in %s\n",
                    STR_FMT(shown(w, in_a ? &w->a : &w->b, cast->args[0])),
                    dtype_name(cast->type), in_a ? "a" : "b");
    }
    walk(w, in_a ? a->args[0] : a, in_a ? b : b->args[0]);
}

static void walk_reduce(Walk *w, const DagNode *a, const DagNode *b)
{
    int n_a, n_b;
    const int *summed_a = dag_summed(a, &n_a), *summed_b = dag_summed(b, &n_b);
    Str axes_a = axes_text(w->arena, &w->a, summed_a, n_a);
    Str axes_b = axes_text(w->arena, &w->b, summed_b, n_b);
    Str tree_a = tree_text(w->arena, a), tree_b = tree_text(w->arena, b);
    const char *name = monoid_name(a->monoid);
    int before = w->found;
    if (a->monoid != b->monoid) {
        report(w);
        text_printf(w->out, "%s over %.*s in a, %s over %.*s in b\n", name, STR_FMT(axes_a),
                    monoid_name(b->monoid), STR_FMT(axes_b));
    } else if (a->n_fixes != b->n_fixes) {
        report(w);
        text_printf(w->out, "%s over %.*s is by places in %s, in order in %s\n", name,
                    STR_FMT(axes_a), a->n_fixes ? "a" : "b", a->n_fixes ? "b" : "a");
    } else if (!str_eq(axes_a, axes_b)) {
        report(w);
        text_printf(w->out, "axes of %s differ: %.*s in a, %.*s in b\n", name, STR_FMT(axes_a),
                    STR_FMT(axes_b));
    }
    if (!str_eq(tree_a, tree_b)) {
        report(w);
        text_printf(w->out, "tree of %s over %.*s differs: `%.*s` in a, `%.*s` in b\n", name,
                    STR_FMT(axes_a), STR_FMT(tree_a), STR_FMT(tree_b));
    }
    if (w->found == before)
        walk_args(w, a, b);
    else if (!digest_eq(&a->args[0]->id, &b->args[0]->id))
        walk(w, a->args[0], b->args[0]);
}

static Str attend_text(Arena *arena, const Attend *attend)
{
    Text text = {.arena = arena};
    dag_print_attend(attend, &text);
    return text_str(&text);
}

static void walk_attend(Walk *w, const DagNode *a, const DagNode *b)
{
    Str over_a = axes_text(w->arena, &w->a, a->attend->over, a->attend->n_over);
    Str over_b = axes_text(w->arena, &w->b, b->attend->over, b->attend->n_over);
    Str text_a = attend_text(w->arena, a->attend), text_b = attend_text(w->arena, b->attend);
    bool again = w->told == a->attend;
    w->told = a->attend;
    if (!again && !str_eq(over_a, over_b)) {
        report(w);
        text_printf(w->out, "scores of attend sum over %.*s in a, over %.*s in b\n",
                    STR_FMT(over_a), STR_FMT(over_b));
    }
    if (!again && !str_eq(text_a, text_b)) {
        report(w);
        text_printf(w->out, "settings of attend differ: `%.*s` in a, `%.*s` in b\n",
                    STR_FMT(text_a), STR_FMT(text_b));
    }
    if (a->n_args != b->n_args && !again) {
        report(w);
        text_printf(w->out, "attend has sinks only in %s\n", a->n_args > b->n_args ? "a" : "b");
    }
    walk_args(w, a, b);
}

static void walk_draw(Walk *w, const DagNode *a, const DagNode *b)
{
    Text text_a = {.arena = w->arena}, text_b = {.arena = w->arena};
    dag_print_draw(NULL, a->draw, &text_a);
    dag_print_draw(NULL, b->draw, &text_b);
    if (!str_eq(text_str(&text_a), text_str(&text_b))) {
        report(w);
        text_printf(w->out, "settings of draw differ: `%.*s` in a, `%.*s` in b\n",
                    STR_FMT(text_str(&text_a)), STR_FMT(text_str(&text_b)));
    }
    walk_args(w, a, b);
}

/* z[vocab = ids], by other indices or along another axis. */
static bool keeps_otherwise(const Walk *w, const DagNode *a, const DagNode *b)
{
    return a->kind == DAG_ONLY &&
           (a->fixes[0].at != b->fixes[0].at ||
            !str_eq(axes_text(w->arena, &w->a, &a->fixes[0].atom, 1),
                    axes_text(w->arena, &w->b, &b->fixes[0].atom, 1)));
}

static void walk_top(Walk *w, const DagNode *a, const DagNode *b)
{
    Text text_a = {.arena = w->arena}, text_b = {.arena = w->arena};
    dag_print_top(a->top, &text_a);
    dag_print_top(b->top, &text_b);
    if (!str_eq(text_str(&text_a), text_str(&text_b))) {
        report(w);
        text_printf(w->out, "settings of top differ: `%.*s` in a, `%.*s` in b\n",
                    STR_FMT(text_str(&text_a)), STR_FMT(text_str(&text_b)));
    }
    walk_args(w, a, b);
}

static void two_ways(Walk *w, const DagNode *a, const DagNode *b)
{
    report(w);
    text_printf(w->out, "`%.*s` in a, `%.*s` in b\n", STR_FMT(shown(w, &w->a, a)),
                STR_FMT(shown(w, &w->b, b)));
}

static void walk_constants(Walk *w, const DagNode *a, const DagNode *b)
{
    report(w);
    text_printf(w->out, "constant %.*s in a, %.*s in b\n", STR_FMT(constant_text(w->arena, a)),
                STR_FMT(constant_text(w->arena, b)));
}

/* The same operation in another type, or on other operands. */
static void walk_alike(Walk *w, const DagNode *a, const DagNode *b)
{
    if (a->type != b->type) {
        report(w);
        text_printf(w->out, "`%.*s` is computed in %s in a, in %s in b\n",
                    STR_FMT(shown(w, &w->a, a)), dtype_name(a->type), dtype_name(b->type));
    }
    walk_args(w, a, b);
}

static int atom_place(const Tensor *tensor, int atom)
{
    int i = 0;
    while (i < tensor->n_atoms && tensor->atoms[i] != atom)
        i++;
    return i;
}

/* The same parameter at the same indices: its type and axes are compared with the interface. */
static bool is_same_input(const Walk *w, const DagNode *a, const DagNode *b)
{
    if (a->kind != DAG_INPUT || b->kind != DAG_INPUT || a->param != b->param ||
        a->n_fixes != b->n_fixes)
        return false;
    const Tensor *in_a = &w->a.op->op->params[a->param], *in_b = &w->b.op->op->params[b->param];
    for (int i = 0; i < a->n_fixes; i++)
        if (a->fixes[i].at != b->fixes[i].at ||
            atom_place(in_a, a->fixes[i].atom) != atom_place(in_b, b->fixes[i].atom))
            return false;
    return true;
}

/* Operands in the other order: nothing below them differs. */
static bool is_swapped(const DagNode *a, const DagNode *b)
{
    return a->n_args == 2 && digest_eq(&a->args[0]->id, &b->args[1]->id) &&
           digest_eq(&a->args[1]->id, &b->args[0]->id);
}

static void walk(Walk *w, const DagNode *a, const DagNode *b)
{
    if (digest_eq(&a->id, &b->id) || was_seen(w, a, b) || is_same_input(w, a, b))
        return;
    bool cast_a = a->kind == DAG_CAST, cast_b = b->kind == DAG_CAST;
    if (cast_a != cast_b) {
        walk_cast(w, a, b, cast_a);
    } else if (cast_a && a->type != b->type) {
        report(w);
        text_printf(w->out, "`%.*s` becomes %s in a, %s in b\n",
                    STR_FMT(shown(w, &w->a, a->args[0])), dtype_name(a->type),
                    dtype_name(b->type));
        walk_args(w, a, b);
    } else if (a->kind != b->kind || (a->kind == DAG_FN && a->fn != b->fn) ||
               a->kind == DAG_INPUT || keeps_otherwise(w, a, b) || a->lse != b->lse ||
               is_swapped(a, b)) {
        two_ways(w, a, b);
    } else if (a->kind == DAG_CONST) {
        walk_constants(w, a, b);
    } else if (a->kind == DAG_REDUCE) {
        walk_reduce(w, a, b);
    } else if (a->kind == DAG_ATTEND) {
        walk_attend(w, a, b);
    } else if (a->kind == DAG_DRAW) {
        walk_draw(w, a, b);
    } else if (a->kind == DAG_TOP) {
        walk_top(w, a, b);
    } else {
        walk_alike(w, a, b);
    }
}

/* ---- ops ------------------------------------------------------------------------------------ */

/* An index's type is the axis that it is of. */
static Str type_text(const Side *side, const Tensor *tensor)
{
    if (tensor->index_of > 0)
        return side->dag->contract->axes[tensor->index_of - 1].name.text;
    return str_of(tensor->index_of ? "i32" : dtype_name(tensor->type));
}

static void compare_tensors(Walk *w, const char *what, const Tensor *a, int n_a, const Tensor *b,
                            int n_b)
{
    if (n_a != n_b) {
        report(w);
        text_printf(w->out, "%d %ss in a, %d in b\n", n_a, what, n_b);
    }
    for (int i = 0; i < n_a && i < n_b; i++) {
        Str at_a = axes_text(w->arena, &w->a, a[i].atoms, a[i].n_atoms);
        Str at_b = axes_text(w->arena, &w->b, b[i].atoms, b[i].n_atoms);
        Str type_a = type_text(&w->a, &a[i]), type_b = type_text(&w->b, &b[i]);
        if (str_eq(a[i].name.text, b[i].name.text) && str_eq(type_a, type_b) &&
            str_eq(at_a, at_b))
            continue;
        report(w);
        text_printf(w->out, "%s %d is `%.*s: %.*s[%.*s]` in a, `%.*s: %.*s[%.*s]` in b\n", what,
                    i + 1, STR_FMT(a[i].name.text), STR_FMT(type_a), STR_FMT(at_a),
                    STR_FMT(b[i].name.text), STR_FMT(type_b), STR_FMT(at_b));
    }
}

static bool same_place(const Walk *w, const DagPiece *a, const DagPiece *b)
{
    if (a->result != b->result || a->n_fixes != b->n_fixes)
        return false;
    for (int i = 0; i < a->n_fixes; i++)
        if (a->fixes[i].at != b->fixes[i].at ||
            !str_eq(axes_text(w->arena, &w->a, &a->fixes[i].atom, 1),
                    axes_text(w->arena, &w->b, &b->fixes[i].atom, 1)))
            return false;
    return true;
}

static Str class_text(Arena *arena, const Dag *dag)
{
    char text[128];
    fdpa_text(dag->contract->numerics, text, sizeof text);
    return str_copy(arena, str_of(text));
}

/* What no comparison above puts into words: the first line of the canonical texts that differs. */
static void first_line(Walk *w)
{
    Text a = {.arena = w->arena}, b = {.arena = w->arena};
    dag_canonical(w->a.dag, w->a.op, &a);
    dag_canonical(w->b.dag, w->b.op, &b);
    int start = 0, i = 0;
    for (; i < a.n && i < b.n && a.s[i] == b.s[i]; i++)
        if (a.s[i] == '\n')
            start = i + 1;
    report(w);
    text_printf(w->out, "`%.*s` in a, `%.*s` in b\n", (int)strcspn(a.s + start, "\n"),
                a.s + start, (int)strcspn(b.s + start, "\n"), b.s + start);
}

static void diff_op(Walk *w)
{
    const OpDag *a = w->a.op, *b = w->b.op;
    w->seen = arena_array(w->arena, SeenNumbers, a->nodes.n + 1);
    text_printf(w->out, "%.*s differs\n", STR_FMT(a->op->name));
    compare_tensors(w, "parameter", a->op->params, a->op->n_params, b->op->params,
                    b->op->n_params);
    compare_tensors(w, "result", a->op->results, a->op->n_results, b->op->results,
                    b->op->n_results);
    if (dag_uses_mma(a) && dag_uses_mma(b) &&
        !fdpa_same(w->a.dag->contract->numerics, w->b.dag->contract->numerics)) {
        report(w);
        text_printf(w->out, "tensor-core class: %.*s in a, %.*s in b\n",
                    STR_FMT(class_text(w->arena, w->a.dag)),
                    STR_FMT(class_text(w->arena, w->b.dag)));
    }
    for (int i = 0; i < a->pieces.n && i < b->pieces.n; i++)
        if (same_place(w, &a->pieces.v[i], &b->pieces.v[i]))
            walk(w, a->pieces.v[i].value, b->pieces.v[i].value);
    if (!w->found)
        first_line(w);
}

static const OpDag *op_named(const Dag *dag, Str name)
{
    for (int i = 0; i < dag->n_ops; i++)
        if (str_eq(dag->ops[i].op->name, name))
            return &dag->ops[i];
    return NULL;
}

/* Models are compared by their texts, which name ops; the first line that differs is told. */
static void diff_models(const Dag *a, const Dag *b, Text *out, Arena *arena, int *different)
{
    Text text_a = {.arena = arena}, text_b = {.arena = arena};
    const Model *of_a = a->contract->model, *of_b = b->contract->model;
    if (of_a)
        dag_model_text(a, true, &text_a);
    if (of_b)
        dag_model_text(b, true, &text_b);
    if (str_eq(text_str(&text_a), text_str(&text_b)))
        return;
    ++*different;
    if (!of_a || !of_b) {
        text_printf(out, "model %.*s only in %s\n",
                    STR_FMT(of_a ? of_a->name.text : of_b->name.text), of_a ? "a" : "b");
        return;
    }
    int start = 0;
    for (int i = 0; i < text_a.n && i < text_b.n && text_a.s[i] == text_b.s[i]; i++)
        if (text_a.s[i] == '\n')
            start = i + 1;
    text_printf(out, "model %.*s differs\n  `%.*s` in a, `%.*s` in b\n", STR_FMT(of_a->name.text),
                (int)strcspn(text_a.s + start, "\n"), text_a.s + start,
                (int)strcspn(text_b.s + start, "\n"), text_b.s + start);
}

bool diff_contracts(const Dag *a, const Dag *b, Text *out, Arena *arena, int *different)
{
    int equal = 0;
    *different = 0;
    for (int i = 0; i < a->n_ops; i++) {
        const OpDag *op = &a->ops[i], *other = op_named(b, op->op->name);
        Walk w = {.a = {a, op}, .b = {b, other}, .arena = arena, .out = out};
        if (!other) {
            text_printf(out, "%.*s only in a\n", STR_FMT(op->op->name));
        } else if (digest_eq(&op->fingerprint, &other->fingerprint)) {
            equal++;
            continue;
        } else {
            diff_op(&w);
        }
        ++*different;
    }
    for (int i = 0; i < b->n_ops; i++)
        if (!op_named(a, b->ops[i].op->name)) {
            text_printf(out, "%.*s only in b\n", STR_FMT(b->ops[i].op->name));
            ++*different;
        }
    int models = 0;
    diff_models(a, b, out, arena, &models);
    if (!fdpa_same(a->contract->numerics, b->contract->numerics))
        text_printf(out, "numerics: %.*s in a, %.*s in b\n", STR_FMT(class_text(arena, a)),
                    STR_FMT(class_text(arena, b)));
    text_printf(out, "%d op%s equal, %d differ%s\n", equal, equal == 1 ? "" : "s", *different,
                *different == 1 ? "s" : "");
    *different += models;
    return true;
}
