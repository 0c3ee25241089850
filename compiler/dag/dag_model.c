/* The canonical text of a model, which the contract's fingerprint covers. Clauses 11.4 and 13. */
#include "dag_impl.h"

#include <string.h>

static void axis_text(const Contract *contract, int id, Text *out)
{
    const Axis *axis = &contract->axes[id];
    if (axis->coordinate_of >= 0) {
        const Axis *ragged = &contract->axes[axis->coordinate_of];
        int which = 0;
        while (which < ragged->n_factors && ragged->factors[which] != id)
            which++;
        text_printf(out, "coordinate %d", which);
    } else if (axis->free) {
        text_printf(out, "free");
    } else {
        text_printf(out, "%lld", (long long)axis->size);
    }
}

static void tensor_text(const Contract *contract, const Tensor *tensor, Text *out)
{
    if (tensor->index_of == INTEGERS) {
        text_printf(out, "i32");
    } else if (tensor->index_of) {
        text_printf(out, "index of ");
        axis_text(contract, tensor->index_of - 1, out);
    } else {
        text_printf(out, "%s", dtype_name(tensor->type));
    }
    text_printf(out, " [");
    for (int i = 0; i < tensor->n_axes; i++) {
        text_printf(out, i ? ", " : "");
        axis_text(contract, tensor->axes[i], out);
    }
    text_printf(out, "]");
}

static void f64_text(const char *name, double value, Text *out)
{
    text_printf(out, " %s 0x%016llx", name, iso_f64_bits(value));
}

static void table_text(const Contract *contract, const ModelTable *table, Text *out)
{
    const Tensor *tensor = &contract->model->values.v[table->cos].tensor;
    const IsoRope *rope = &table->rope;
    text_printf(out, "table %%%d %%%d ", table->cos, table->sin);
    tensor_text(contract, tensor, out);
    text_printf(out, " rope scaling %d truncate %d", (int)rope->scaling, rope->truncate);
    f64_text("theta", rope->theta, out);
    f64_text("factor", rope->factor, out);
    f64_text("low", rope->low, out);
    f64_text("high", rope->high, out);
    f64_text("original", rope->original, out);
    f64_text("beta_fast", rope->beta_fast, out);
    f64_text("beta_slow", rope->beta_slow, out);
    f64_text("attention_factor", rope->attention_factor, out);
    text_printf(out, "\n");
}

/* Where the checkpoint's axes are in another order than the parameter's. */
static void order_text(const ModelWeight *weight, Text *out)
{
    for (int i = 0; i < weight->n_order; i++)
        text_printf(out, "%s%d", i ? " " : " by ", weight->order[i]);
}

/* The index of a repeat by no name: "model.layers.{}.mlp", "model.layers.{4*+3}.mlp". */
static void weight_text(Str name, Text *out)
{
    bool inside = false, letter = false;
    for (int i = 0; i < name.n; i++) {
        char c = name.s[i];
        inside &= c != '}';
        letter = inside && (letter ? c != '+' : !strchr("0123456789*+", c));
        if (!letter)
            text_add(out, (Str){name.s + i, 1});
        inside |= c == '{';
    }
}

static void statement_text(const Dag *dag, const ModelStatement *s, bool names, Text *out)
{
    const Model *model = dag->contract->model;
    const OpDag *op = &dag->ops[s->op];
    for (int i = 0; i < op->op->n_results; i++)
        text_printf(out, "%s%%%d", i ? " " : "", s->results[i]);
    Str name = names ? op->op->name : digest_hex(out->arena, &op->fingerprint);
    text_printf(out, " = op %.*s", STR_FMT(name));
    for (int i = 0; i < op->op->n_params; i++) {
        const ModelArgument *a = &s->arguments[i];
        text_printf(out, a->weight ? " \"" : " %%%d", a->index);
        if (a->weight) {
            weight_text(weight_name(out->arena, &model->weights.v[a->index]), out);
            text_printf(out, "\"");
            order_text(&model->weights.v[a->index], out);
        }
    }
    text_printf(out, "\n");
}

static void carries_text(const Contract *contract, int repeat, Text *out)
{
    const Model *model = contract->model;
    for (int i = 0; i < model->values.n; i++)
        if (model->values.v[i].carry >= 0 && model->values.v[i].read_in == repeat)
            text_printf(out, "carry %%%d = %%%d\n", i, model->values.v[i].carry);
    text_printf(out, "end\n");
}

/* Caches and the ends of repeats stand before the statement that they were written before. */
static void before_text(const Contract *contract, int at, Text *out)
{
    const Model *model = contract->model;
    for (int i = 0; i < model->repeats.n; i++)
        if (model->repeats.v[i].end == at && model->repeats.v[i].first < at)
            carries_text(contract, i, out);
    for (int i = 0; i < model->repeats.n; i++)
        if (model->repeats.v[i].first == at)
            text_printf(out, "repeat %d\n", model->repeats.v[i].count);
    for (int i = 0; i < model->caches.n; i++)
        if (model->caches.v[i].before == at)
            text_printf(out, "cache %%%d = %%%d\n", model->caches.v[i].as,
                        model->caches.v[i].of);
}

void dag_model_text(const Dag *dag, bool names, Text *out)
{
    const Contract *contract = dag->contract;
    const Model *model = contract->model;
    text_printf(out, "model\n");
    if (model->tables.n)
        dag_file_text("iso_rope.cuh", out);
    for (int i = 0; i < model->inputs.n; i++) {
        const ModelValue *input = &model->values.v[model->inputs.v[i]];
        text_printf(out, "input %%%d %.*s ", model->inputs.v[i], STR_FMT(input->name.text));
        tensor_text(contract, &input->tensor, out);
        text_printf(out, "\n");
    }
    for (int i = 0; i < model->tables.n; i++)
        table_text(contract, &model->tables.v[i], out);
    for (int i = 0; i < model->statements.n; i++) {
        before_text(contract, i, out);
        statement_text(dag, &model->statements.v[i], names, out);
    }
    before_text(contract, model->statements.n, out);
    for (int i = 0; i < model->outputs.n; i++)
        text_printf(out, "output %.*s %%%d\n", STR_FMT(model->outputs.v[i].name.text),
                    model->outputs.v[i].value);
}
