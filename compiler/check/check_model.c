/* The check of a model: names to values, calls to the parameters of their ops, and what a repeat
 * carries from one turn to the next. Clause 13. */
#include "check_model_impl.h"

enum { REPEAT_MAX = 65536, STEPS_MAX = 1024 };

/* ---- tensors --------------------------------------------------------------------------------- */

Str model_type_text(Checker *c, const Tensor *tensor)
{
    const Axis *axes = c->contract->axes;
    Text out = {.arena = c->arena};
    if (tensor->index_of == INTEGERS)
        text_printf(&out, "i32");
    else if (tensor->index_of)
        text_add(&out, axes[tensor->index_of - 1].name.text);
    else
        text_printf(&out, "%s", dtype_name(tensor->type));
    text_printf(&out, "[");
    for (int i = 0; i < tensor->n_axes; i++)
        text_printf(&out, "%s%.*s", i ? ", " : "", STR_FMT(axes[tensor->axes[i]].name.text));
    text_printf(&out, "]");
    return text_str(&out);
}

bool model_same_type(const Tensor *a, const Tensor *b)
{
    bool same = a->type == b->type && a->index_of == b->index_of && a->n_axes == b->n_axes;
    for (int i = 0; same && i < a->n_axes; i++)
        same = a->axes[i] == b->axes[i];
    return same;
}

/* Values have a row for each token, of the one packed axis that the model is about. */
static bool is_by_tokens(Modeling *m, const Tensor *tensor, Name name)
{
    const Axis *first = tensor->n_axes ? &m->c->contract->axes[tensor->axes[0]] : NULL;
    bool packed = first && first->free && first->n_factors;
    if (packed && m->model->tokens < 0)
        m->model->tokens = tensor->axes[0];
    if (packed && tensor->axes[0] == m->model->tokens)
        return true;
    Diag *d = fault(m->c, DIAG_MODEL_ROWS, name.span, "'%.*s' is %.*s, which has no row for each "
                    "token", STR_FMT(name.text), STR_FMT(model_type_text(m->c, tensor)));
    diag_note(m->c->diags, d, "the first axis of what a model passes on is its packed axis, the "
                              "same for all");
    return false;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int new_value(Modeling *m, Name name, const Tensor *tensor)
{
    ModelValue value = {.name = name, .tensor = *tensor, .carry = -1, .read_in = -1};
    vec_push(m->c->arena, &m->model->values, value);
    return m->model->values.n - 1;
}

static ModelName *binding_of(Modeling *m, Str name)
{
    for (int i = 0; i < m->names.n; i++)
        if (str_eq(m->names.v[i].name.text, name))
            return &m->names.v[i];
    return NULL;
}

static void bind(Modeling *m, Name name, int value)
{
    ModelName binding = {name, value, m->repeat}, *known = binding_of(m, name.text);
    if (known)
        *known = binding;
    else
        vec_push(m->c->arena, &m->names, binding);
}

/* The value that a name stands for; -1 unknown (told) or refused before. */
static int read_name(Modeling *m, Name name)
{
    const ModelName *binding = binding_of(m, name.text);
    if (binding && binding->value >= 0) {
        ModelValue *value = &m->model->values.v[binding->value];
        value->used = true;
        if (m->repeat >= 0 && binding->repeat != m->repeat)
            value->read_in = m->repeat;
    }
    if (binding)
        return binding->value;
    Guess guess = guess_of(name.text);
    for (int i = 0; i < m->names.n; i++)
        guess_add(&guess, m->names.v[i].name.text);
    Diag *d = fault(m->c, DIAG_MODEL_NAME, name.span, "'%.*s' is not set here",
                    STR_FMT(name.text));
    guess_tell(m->c, d, name.span, &guess);
    if (!guess.best.n)
        diag_note(m->c->diags, d, "set it before, or make it an input; a weight's name stands in "
                                  "quotes");
    return -1;
}

static void check_distinct(Modeling *m, const Names *names, const char *what)
{
    for (int i = 0; i < names->n; i++)
        for (int k = 0; k < i; k++)
            if (str_eq(names->v[i].text, names->v[k].text)) {
                Diag *d = fault(m->c, DIAG_MODEL_SET, names->v[i].span, "'%.*s' is %s twice",
                                STR_FMT(names->v[i].text), what);
                diag_label(m->c->diags, d, names->v[k].span, "here already");
                diag_note(m->c->diags, d, "give one of the two another name, or leave it out");
            }
}

/* ---- inputs, tables, caches ------------------------------------------------------------------ */

static void check_input(Modeling *m, const AstModelStatement *step)
{
    for (int i = 0; i < step->tensors.n; i++) {
        const AstTensor *ast = &step->tensors.v[i];
        Tensor tensor = {0};
        int value = -1;
        if (binding_of(m, ast->name.text)) {
            Diag *d = fault(m->c, DIAG_MODEL_SET, ast->name.span, "'%.*s' is set before it is an "
                            "input", STR_FMT(ast->name.text));
            diag_note(m->c->diags, d, "inputs are found by their names: give one of the two "
                                      "another");
        } else if (build_tensor(m->c, ast, false, &tensor) &&
                   is_by_tokens(m, &tensor, ast->name)) {
            value = new_value(m, ast->name, &tensor);
            vec_push(m->c->arena, &m->model->inputs, value);
        }
        bind(m, ast->name, value);
    }
}

static bool is_table(Modeling *m, const AstModelStatement *step, const Tensor *tensor)
{
    const Axis *axes = m->c->contract->axes;
    bool fits = tensor->n_axes == 2 && !tensor->index_of &&
                axes[tensor->axes[0]].coordinate_of >= 0;
    if (fits) {
        const Axis *ragged = &axes[axes[tensor->axes[0]].coordinate_of];
        fits = ragged->factors[ragged->n_factors - 1] == tensor->axes[0] &&
               axes[tensor->axes[1]].size > 0 && axes[tensor->axes[1]].size <= 1 << 16;
    }
    if (fits)
        return true;
    Diag *d = fault(m->c, DIAG_MODEL_TABLE, step->tensors.v[0].span,
                    "a table is by position and one axis of fixed size, not %.*s",
                    STR_FMT(model_type_text(m->c, tensor)));
    diag_note(m->c->diags, d, "write table cos, sin: bf16[position, rot] = rope { ... };");
    return false;
}

static void check_table(Modeling *m, const AstModelStatement *step)
{
    ModelTable table = {-1, -1, {0}};
    Tensor tensor = {0};
    bool sound = build_tensor(m->c, &step->tensors.v[0], false, &tensor) &&
                 is_table(m, step, &tensor);
    if (sound)
        table.rope.dim = 2 * (int)m->c->contract->axes[tensor.axes[1]].size;
    if (step->tensors.n != 2) {
        Diag *d = fault(m->c, DIAG_MODEL_TABLE, step->tensors.v[0].span,
                        "'%.*s' gives two tables, not %d", STR_FMT(step->name.text),
                        step->tensors.n);
        diag_note(m->c->diags, d, "the first is the cosines, the second the sines");
        sound = false;
    }
    sound &= check_rope(m->c, step, &table.rope);
    Names names = {0};
    for (int i = 0; i < step->tensors.n; i++) {
        Name name = step->tensors.v[i].name;
        vec_push(m->c->arena, &names, name);
        int value = sound ? new_value(m, name, &tensor) : -1;
        *(i ? &table.sin : &table.cos) = value;
        bind(m, name, value);
    }
    check_distinct(m, &names, "set");
    if (sound)
        vec_push(m->c->arena, &m->model->tables, table);
}

/* [tokens, rest] by sequence and position. */
static bool cache_tensor(Modeling *m, Name of, const Tensor *tensor, Tensor *out)
{
    const Contract *contract = m->c->contract;
    const Axis *first = &contract->axes[tensor->axes[0]];
    if (!first->n_factors || tensor->index_of || tensor->n_axes == 1 ||
        tensor->n_axes - 1 + first->n_factors > MAX_TENSOR_AXES) {
        Diag *d = fault(m->c, DIAG_MODEL_CACHE, of.span, "'%.*s' is %.*s, which cannot be kept",
                        STR_FMT(of.text), STR_FMT(model_type_text(m->c, tensor)));
        diag_note(m->c->diags, d, "a cache keeps values with a row of further axes for each "
                                  "token");
        return false;
    }
    *out = (Tensor){.name = tensor->name, .type = tensor->type};
    for (int i = 0; i < first->n_factors; i++)
        out->axes[out->n_axes++] = first->factors[i];
    for (int i = 1; i < tensor->n_axes; i++)
        out->axes[out->n_axes++] = tensor->axes[i];
    for (int i = 0; i < out->n_axes; i++)
        add_atoms(contract, out, out->axes[i]);
    return true;
}

static void check_cache(Modeling *m, const AstModelStatement *step)
{
    check_distinct(m, &step->targets, "set");
    for (int i = 0; i < step->targets.n; i++) {
        Tensor tensor;
        int of = read_name(m, step->values.v[i]), as = -1;
        if (of >= 0 &&
            cache_tensor(m, step->values.v[i], &m->model->values.v[of].tensor, &tensor)) {
            as = new_value(m, step->targets.v[i], &tensor);
            ModelCache cache = {of, as, m->model->statements.n, m->repeat};
            vec_push(m->c->arena, &m->model->caches, cache);
        }
        bind(m, step->targets.v[i], as);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int param_named(Modeling *m, const Op *op, Name name)
{
    Guess guess = guess_of(name.text);
    for (int i = 0; i < op->n_params; i++) {
        if (str_eq(op->params[i].name.text, name.text))
            return i;
        guess_add(&guess, op->params[i].name.text);
    }
    Diag *d = fault(m->c, DIAG_MODEL_ARGUMENTS, name.span, "op '%.*s' has no parameter '%.*s'",
                    STR_FMT(op->name), STR_FMT(name.text));
    diag_label(m->c->diags, d, op->ast->name.span, "the op is declared here");
    guess_tell(m->c, d, name.span, &guess);
    return -1;
}

static void wrong_value(Modeling *m, const Tensor *param, const AstArgument *a, int value)
{
    Diag *d = fault(m->c, DIAG_MODEL_TYPE, a->value.span,
                    "'%.*s' is %.*s, and parameter '%.*s' is %.*s", STR_FMT(a->value.text),
                    STR_FMT(model_type_text(m->c, &m->model->values.v[value].tensor)),
                    STR_FMT(param->name.text), STR_FMT(model_type_text(m->c, param)));
    diag_label(m->c->diags, d, param->name.span, "the parameter is declared here");
    diag_note(m->c->diags, d, "nothing is converted between ops; a value is read by sequence and "
                              "position where a cache keeps it");
}

static bool check_argument(Modeling *m, const Op *op, const Tensor *param, const AstArgument *a,
                           ModelArgument *out)
{
    out->weight = a->weight;
    out->index = a->weight ? model_weight_of(m, op, param, a) : read_name(m, a->value);
    if (out->index < 0 || a->weight)
        return out->index >= 0;
    if (model_same_type(&m->model->values.v[out->index].tensor, param))
        return true;
    wrong_value(m, param, a, out->index);
    return false;
}

static void wrong_count(Modeling *m, const Op *op, Span span, const char *what, int got, int want)
{
    Diag *d = fault(m->c, DIAG_MODEL_ARGUMENTS, span, "op '%.*s' has %d %s%s, not %d",
                    STR_FMT(op->name), want, what, want == 1 ? "" : "s", got);
    diag_label(m->c->diags, d, op->ast->name.span, "the op is declared here");
}

static bool check_arguments(Modeling *m, const AstModelStatement *step, const Op *op,
                            ModelArgument *out)
{
    const AstArgument **given = arena_array(m->c->arena, const AstArgument *, op->n_params + 1);
    bool sound = true, by_name = false;
    if (step->arguments.n != op->n_params) {
        wrong_count(m, op, step->name.span, "parameter", step->arguments.n, op->n_params);
        sound = false;
    }
    for (int i = 0; i < step->arguments.n; i++) {
        const AstArgument *a = &step->arguments.v[i];
        by_name |= a->named;
        int at = a->named ? param_named(m, op, a->param) : by_name ? -1 : i;
        if (at < 0 && !a->named) {
            Diag *d = fault(m->c, DIAG_MODEL_ARGUMENTS, a->span, "an argument by place after one "
                            "by name");
            diag_note(m->c->diags, d, "write its parameter's name before it");
        } else if (at >= 0 && at < op->n_params && given[at]) {
            Diag *d = fault(m->c, DIAG_MODEL_ARGUMENTS, a->span, "parameter '%.*s' is given twice",
                            STR_FMT(op->params[at].name.text));
            diag_label(m->c->diags, d, given[at]->span, "here already");
        } else if (at >= 0 && at < op->n_params) {
            given[at] = a;
            sound &= check_argument(m, op, &op->params[at], a, &out[at]);
            continue;
        } else if (!a->weight) {
            read_name(m, a->value);
        }
        sound = false;
    }
    return sound;
}

static void check_call(Modeling *m, const AstModelStatement *step)
{
    const Op *op = op_of_name(m->c, step->name);
    bool known = op && has_passed(m->c, CHECK_OP_TENSORS, (int)(op - m->c->contract->ops));
    ModelStatement statement = {.repeat = m->repeat, .span = step->span};
    bool sound = known;
    if (known) {
        statement.op = (int)(op - m->c->contract->ops);
        statement.arguments = arena_array(m->c->arena, ModelArgument, op->n_params + 1);
        statement.results = arena_array(m->c->arena, int, op->n_results + 1);
        sound = check_arguments(m, step, op, statement.arguments);
        if (step->targets.n != op->n_results) {
            wrong_count(m, op, step->targets.v[0].span, "result", step->targets.n, op->n_results);
            sound = known = false;
        }
    }
    check_distinct(m, &step->targets, "set");
    for (int i = 0; i < step->targets.n; i++) {
        Name name = step->targets.v[i];
        int value = known && is_by_tokens(m, &op->results[i], name)
                        ? new_value(m, name, &op->results[i]) : -1;
        if (known)
            statement.results[i] = value;
        sound &= value >= 0;
        bind(m, name, value);
    }
    if (sound)
        vec_push(m->c->arena, &m->model->statements, statement);
    m->c->failed |= !sound;
}

/* ---- repeats --------------------------------------------------------------------------------- */

/* What the body reads from before it, and sets, is another value in the next turn. */
static void check_carry(Modeling *m, const ModelName *before)
{
    const ModelName *after = binding_of(m, before->name.text);
    if (before->value < 0 || after->value < 0 || after->value == before->value)
        return;
    ModelValue *old = &m->model->values.v[before->value];
    ModelValue *new = &m->model->values.v[after->value];
    if (old->read_in != m->repeat)
        return;
    old->carry = after->value;
    new->used = true;
    if (old->tensor.axes[0] != m->model->tokens) {
        Diag *d = fault(m->c, DIAG_MODEL_REPEAT, after->name.span,
                        "'%.*s' cannot pass from turn to turn", STR_FMT(after->name.text));
        diag_label(m->c->diags, d, old->name.span, "it is set here before the repeat");
        diag_note(m->c->diags, d, "caches and tables are not carried: give one another name");
        return;
    }
    if (model_same_type(&old->tensor, &new->tensor))
        return;
    Diag *d = fault(m->c, DIAG_MODEL_TYPE, after->name.span,
                    "'%.*s' is %.*s at the end of a turn, and %.*s at the start of the first",
                    STR_FMT(after->name.text), STR_FMT(model_type_text(m->c, &new->tensor)),
                    STR_FMT(model_type_text(m->c, &old->tensor)));
    diag_label(m->c->diags, d, old->name.span, "it is set here before the repeat");
    diag_note(m->c->diags, d, "the body reads it before it sets it, so that each turn passes it "
                              "to the next");
}

static void check_steps(Modeling *m, const AstModelStatements *steps);

static void check_repeat(Modeling *m, const AstModelStatement *step)
{
    i64 count = 1;
    number_int(m->c, &step->count, 1, REPEAT_MAX, DIAG_MODEL_REPEAT, "the count of a repeat",
               &count);
    ModelRepeat repeat = {step->name, (int)count, m->model->statements.n, 0};
    ModelNames before = {0};
    for (int i = 0; i < m->names.n; i++)
        vec_push(m->c->arena, &before, m->names.v[i]);
    m->repeat = m->model->repeats.n;
    vec_push(m->c->arena, &m->model->repeats, repeat);
    check_steps(m, &step->body);
    m->model->repeats.v[m->repeat].end = m->model->statements.n;
    for (int i = 0; i < before.n; i++)
        check_carry(m, &before.v[i]);
    m->repeat = -1;
}

static bool stands_well(Modeling *m, const AstModelStatement *step)
{
    static const char *const what[] = {
        [STEP_INPUT] = "an input", [STEP_TABLE] = "a table",    [STEP_CACHE] = "",
        [STEP_CALL] = "",          [STEP_REPEAT] = "a repeat",  [STEP_OUTPUT] = "an output",
    };
    if (m->repeat < 0 || !what[step->kind][0])
        return true;
    Diag *d = fault(m->c, DIAG_MODEL_REPEAT, step->span, "%s may not stand in a repeat",
                    what[step->kind]);
    diag_label(m->c->diags, d, m->model->repeats.v[m->repeat].index.span, "the repeat is here");
    diag_note(m->c->diags, d, step->kind == STEP_REPEAT ? "write the inner statements out"
                                                        : "put it outside: there is one of it");
    return false;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void check_steps(Modeling *m, const AstModelStatements *steps)
{
    for (int i = 0; i < steps->n; i++) {
        const AstModelStatement *step = &steps->v[i];
        if (++m->steps == STEPS_MAX + 1) {
            Diag *d = fault(m->c, DIAG_TOO_MANY, step->span, "more than %d statements of a model",
                            STEPS_MAX);
            diag_note(m->c->diags, d, "write equal layers once, in a repeat");
        }
        if (m->steps > STEPS_MAX || !stands_well(m, step))
            continue;
        switch (step->kind) {
        case STEP_INPUT: check_input(m, step); break;
        case STEP_TABLE: check_table(m, step); break;
        case STEP_CACHE: check_cache(m, step); break;
        case STEP_CALL: check_call(m, step); break;
        case STEP_REPEAT: check_repeat(m, step); break;
        case STEP_OUTPUT: break; /* what a name is at the end */
        }
    }
}

static void check_outputs(Modeling *m, const AstModel *ast)
{
    Names all = {0};
    for (int i = 0; i < ast->body.n; i++)
        for (int k = 0; ast->body.v[i].kind == STEP_OUTPUT && k < ast->body.v[i].targets.n; k++)
            vec_push(m->c->arena, &all, ast->body.v[i].targets.v[k]);
    check_distinct(m, &all, "an output");
    for (int i = 0; i < all.n; i++) {
        ModelOutput output = {all.v[i], read_name(m, all.v[i])};
        if (output.value >= 0 &&
            is_by_tokens(m, &m->model->values.v[output.value].tensor, all.v[i]))
            vec_push(m->c->arena, &m->model->outputs, output);
    }
    if (all.n)
        return;
    Diag *d = fault(m->c, DIAG_MODEL_OUTPUT, ast->name.span, "model '%.*s' has no output",
                    STR_FMT(ast->name.text));
    diag_note(m->c->diags, d, "say what it computes: output logits;");
}

static void warn_unused(Modeling *m, int value, const char *what)
{
    const ModelValue *v = &m->model->values.v[value];
    Diag *d = diag_add(m->c->diags, DIAG_MODEL_UNUSED, v->name.span, "%s '%.*s' is never used",
                       what, STR_FMT(v->name.text));
    diag_note(m->c->diags, d, "remove it, or use it");
}

static void check_unused(Modeling *m)
{
    const Model *model = m->model;
    const ModelValue *values = model->values.v;
    for (int i = 0; i < model->inputs.n; i++)
        if (!values[model->inputs.v[i]].used)
            warn_unused(m, model->inputs.v[i], "input");
    for (int i = 0; i < model->tables.n; i++)
        if (!values[model->tables.v[i].cos].used && !values[model->tables.v[i].sin].used)
            warn_unused(m, model->tables.v[i].cos, "table");
    for (int i = 0; i < model->caches.n; i++)
        if (!values[model->caches.v[i].as].used)
            warn_unused(m, model->caches.v[i].as, "cache");
    for (int i = 0; i < model->statements.n; i++) {
        const ModelStatement *s = &model->statements.v[i];
        bool used = false;
        for (int k = 0; k < m->c->contract->ops[s->op].n_results; k++)
            used |= values[s->results[k]].used;
        if (!used)
            warn_unused(m, s->results[0], "value");
    }
}

void check_model(Checker *c, int index)
{
    (void)index;
    Model *model = arena_new_of(c->arena, Model);
    Modeling m = {.c = c, .model = model, .repeat = -1};
    model->name = c->ast->model.name;
    model->tokens = -1;
    c->contract->model = model;
    check_steps(&m, &c->ast->model.body);
    check_outputs(&m, &c->ast->model);
    if (!c->failed)
        check_unused(&m);
}
