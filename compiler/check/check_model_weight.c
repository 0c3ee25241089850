/* The weights that a model passes: their names in the checkpoint, and what takes them. Clause
 * 13.4. */
#include "check_model_impl.h"

#include <string.h>

/* Decimal digits from `at` on, at most four; where they end. */
static int skip_digits(Str text, int at)
{
    int end = at;
    while (end < text.n && end < at + 4 && text.s[end] >= '0' && text.s[end] <= '9')
        end++;
    return end;
}

/* "layer", or "4*layer+3" and either half of that. */
static bool is_index(Str inside, Str index)
{
    int at = skip_digits(inside, 0);
    if (at && (at == inside.n || inside.s[at++] != '*'))
        return false;
    if (inside.n - at < index.n || !str_eq((Str){inside.s + at, index.n}, index))
        return false;
    at += index.n;
    return at == inside.n || (inside.s[at] == '+' && at + 1 < inside.n &&
                              skip_digits(inside, at + 1) == inside.n);
}

/* "{layer}" is the index of the repeat around it, "{experts}" that along the parameter's first
 * axis: then *stack is its name. */
static bool check_weight_name(Modeling *m, const Tensor *param, Name name, Str *stack)
{
    const char *why = name.text.n == 0 ? "it is empty" : NULL;
    Str index = m->repeat >= 0 ? m->model->repeats.v[m->repeat].index.text : (Str){0};
    Str first = param->n_axes ? m->c->contract->axes[param->axes[0]].name.text : (Str){0};
    int indices = 0, stacks = 0;
    *stack = (Str){0};
    for (int i = 0; !why && i < name.text.n; i++) {
        if (name.text.s[i] == '}')
            why = "a '}' has no '{'";
        if (name.text.s[i] != '{')
            continue;
        int end = i + 1;
        while (end < name.text.n && name.text.s[end] != '}')
            end++;
        Str inside = {name.text.s + i + 1, end - i - 1};
        if (end == name.text.n)
            why = "a '{' has no '}'";
        else if (index.n && is_index(inside, index))
            why = ++indices > 1 ? "it has two indices" : NULL;
        else if (first.n && str_eq(inside, first))
            why = ++stacks > 1 ? "it has two indices" : NULL;
        else
            why = "what stands in braces is not the index of the repeat around it, nor the "
                  "parameter's first axis";
        if (stacks)
            *stack = first;
        i = end;
    }
    if (!why)
        return true;
    Diag *d = fault(m->c, DIAG_MODEL_WEIGHT, name.span, "this is no name of a weight: %s", why);
    diag_note(m->c->diags, d, "write it as the checkpoint does, with the repeat's index in "
                              "braces: \"model.layers.{layer}.mlp.up_proj.weight\"");
    return false;
}

static i64 fan_in(const Contract *contract, const Op *op, const Tensor *param)
{
    u64 kept = 0;
    i64 n = 1;
    for (int i = 0; i < op->n_results; i++)
        kept |= op->results[i].mask;
    for (int i = 0; i < op->n_params; i++)
        if (op->params[i].index_of > 0)
            kept |= axis_mask(contract, op->params[i].index_of - 1);
    for (int i = 0; i < param->n_atoms; i++)
        if (!(kept & bit(param->atoms[i])))
            n *= atom_size(contract, param->atoms[i], 1);
    return n > 1 ? n : 0;
}

static bool is_weight(Modeling *m, const Tensor *param, Name name)
{
    const Axis *axes = m->c->contract->axes;
    bool fixed = !param->index_of;
    for (int i = 0; i < param->n_axes; i++)
        fixed &= axes[param->axes[i]].size > 0;
    if (fixed)
        return true;
    Diag *d = fault(m->c, DIAG_MODEL_WEIGHT, name.span, "parameter '%.*s' is %.*s, which no weight "
                    "is", STR_FMT(param->name.text), STR_FMT(model_type_text(m->c, param)));
    diag_note(m->c->diags, d, "pass a value: weights have axes of fixed size alone");
    return false;
}

static int axis_named(Modeling *m, const Tensor *param, Str name)
{
    int at = param->n_axes - 1;
    while (at >= 0 && !str_eq(m->c->contract->axes[param->axes[at]].name.text, name))
        at--;
    return at;
}

/* The axes of the parameter, each once, but for that of a stack, as the checkpoint has them. */
static bool check_order(Modeling *m, const Tensor *param, const AstArgument *a, ModelWeight *weight)
{
    int first = weight->stack.n ? 1 : 0;
    u64 seen = 0;
    bool moved = false, sound = a->order.n == param->n_axes - first;
    for (int i = 0; i < a->order.n && sound; i++) {
        int at = axis_named(m, param, a->order.v[i].text);
        sound = at >= first && !(seen & bit(at));
        seen |= sound ? bit(at) : 0;
        weight->order[i] = at;
        moved |= at != i + first;
    }
    weight->n_order = moved ? a->order.n : 0;
    if (sound || !a->order.n)
        return true;
    Diag *d = fault(m->c, DIAG_MODEL_WEIGHT, a->order.v[0].span, "these are not the axes of "
                    "parameter '%.*s', which is %.*s", STR_FMT(param->name.text),
                    STR_FMT(model_type_text(m->c, param)));
    diag_note(m->c->diags, d, "write each once, in the order in which the checkpoint stores them%s",
              first ? "; the first is the stack's, and no tensor has it" : "");
    return false;
}

static bool same_order(const ModelWeight *a, const ModelWeight *b)
{
    return a->n_order == b->n_order &&
           !memcmp(a->order, b->order, (size_t)a->n_order * sizeof a->order[0]);
}

/* -1, and tells that the weight's name stands for two things. */
static int other_weight(Modeling *m, const ModelWeight *old, const ModelWeight *new, Str before,
                        Str here)
{
    Diag *d = fault(m->c, DIAG_MODEL_WEIGHT, new->name.span, "this weight is %.*s here",
                    STR_FMT(here));
    diag_label(m->c->diags, d, old->name.span, "and %.*s here", STR_FMT(before));
    diag_note(m->c->diags, d, "a weight has one type, and one list of axes in one order");
    return -1;
}

/* One weight for each name, whatever takes it. */
int model_weight_of(Modeling *m, const Op *op, const Tensor *param, const AstArgument *a)
{
    Model *model = m->model;
    Name name = a->value;
    ModelWeight new = {.name = name, .tensor = param};
    if (!check_weight_name(m, param, name, &new.stack) || !is_weight(m, param, name) ||
        !check_order(m, param, a, &new))
        return -1;
    i64 sums = fan_in(m->c->contract, op, param);
    for (int i = 0; i < model->weights.n; i++) {
        ModelWeight *weight = &model->weights.v[i];
        if (!str_eq(weight->name.text, name.text))
            continue;
        if (!model_same_type(weight->tensor, param))
            return other_weight(m, weight, &new, model_type_text(m->c, weight->tensor),
                                model_type_text(m->c, param));
        if (!same_order(weight, &new))
            return other_weight(m, weight, &new, STR("stored in another order of its axes"),
                                STR("stored in this order"));
        if (sums && (!weight->fan_in || sums < weight->fan_in))
            weight->fan_in = sums;
        return i;
    }
    new.fan_in = sums;
    vec_push(m->c->arena, &model->weights, new);
    return model->weights.n - 1;
}
