/* The manifest's "model": clause 13's statements by index. */
#include "manifest_write_impl.h"

static json_t *tensor_named(ManifestWriter *w, const Tensor *tensor, Str name)
{
    json_t *object = manifest_tensor_json(w, tensor);
    put(w, object, "name", text(name));
    return object;
}

static json_t *values_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->values.n; i++) {
        const ModelValue *value = &model->values.v[i];
        int of = value->tensor.index_of - 1;
        json_t *object = tensor_named(w, &value->tensor, value->name.text);
        put(w, object, "index_of", integer(of < 0 ? -1 : w->contract->axes[of].atom));
        put(w, object, "carry", integer(value->carry));
        push(w, array, object);
    }
    return array;
}

static json_t *f64_json(ManifestWriter *w, double value)
{
    return text(str_format(w->arena, "%016llx", iso_f64_bits(value)));
}

static json_t *rope_json(ManifestWriter *w, const IsoRope *rope)
{
    static const char *const scalings[] = {"default", "linear", "llama3", "yarn"};
    json_t *object = json_object();
    put(w, object, "dim", integer(rope->dim));
    put(w, object, "scaling", json_string(scalings[rope->scaling]));
    put(w, object, "truncate", json_boolean(rope->truncate));
    put(w, object, "theta", f64_json(w, rope->theta));
    put(w, object, "factor", f64_json(w, rope->factor));
    put(w, object, "low", f64_json(w, rope->low));
    put(w, object, "high", f64_json(w, rope->high));
    put(w, object, "original", f64_json(w, rope->original));
    put(w, object, "beta_fast", f64_json(w, rope->beta_fast));
    put(w, object, "beta_slow", f64_json(w, rope->beta_slow));
    put(w, object, "attention_factor", f64_json(w, rope->attention_factor));
    return object;
}

static json_t *tables_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->tables.n; i++) {
        const ModelTable *table = &model->tables.v[i];
        json_t *object = json_object();
        put(w, object, "kind", json_string("rope"));
        put(w, object, "values", pair(w, table->cos, table->sin));
        put(w, object, "settings", rope_json(w, &table->rope));
        push(w, array, object);
    }
    return array;
}

static json_t *caches_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->caches.n; i++) {
        const ModelCache *cache = &model->caches.v[i];
        json_t *object = json_object();
        put(w, object, "of", integer(cache->of));
        put(w, object, "as", integer(cache->as));
        put(w, object, "before", integer(cache->before));
        put(w, object, "repeat", integer(cache->repeat));
        push(w, array, object);
    }
    return array;
}

static json_t *weights_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->weights.n; i++) {
        const ModelWeight *weight = &model->weights.v[i];
        json_t *object = json_object();
        put(w, object, "name", text(weight_name(w->arena, weight)));
        put(w, object, "tensor", manifest_tensor_json(w, weight->tensor));
        put(w, object, "fan_in", integer(weight->fan_in));
        if (weight->n_order)
            put(w, object, "order", integers(w, weight->order, weight->n_order));
        push(w, array, object);
    }
    return array;
}

static json_t *repeats_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->repeats.n; i++) {
        json_t *object = json_object();
        put(w, object, "count", integer(model->repeats.v[i].count));
        put(w, object, "first", integer(model->repeats.v[i].first));
        put(w, object, "end", integer(model->repeats.v[i].end));
        push(w, array, object);
    }
    return array;
}

static json_t *statements_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->statements.n; i++) {
        const ModelStatement *s = &model->statements.v[i];
        const Op *op = &w->contract->ops[s->op];
        json_t *object = json_object(), *arguments = json_array();
        for (int k = 0; k < op->n_params; k++) {
            json_t *argument = json_object();
            put(w, argument, s->arguments[k].weight ? "weight" : "value",
                integer(s->arguments[k].index));
            push(w, arguments, argument);
        }
        put(w, object, "op", integer(s->op));
        put(w, object, "repeat", integer(s->repeat));
        put(w, object, "arguments", arguments);
        put(w, object, "results", integers(w, s->results, op->n_results));
        push(w, array, object);
    }
    return array;
}

static json_t *outputs_json(ManifestWriter *w, const Model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->outputs.n; i++) {
        json_t *object = json_object();
        put(w, object, "name", text(model->outputs.v[i].name.text));
        put(w, object, "value", integer(model->outputs.v[i].value));
        push(w, array, object);
    }
    return array;
}

json_t *manifest_model_json(ManifestWriter *w)
{
    const Model *model = w->contract->model;
    if (!model)
        return json_null();
    json_t *object = json_object();
    put(w, object, "name", text(model->name.text));
    put(w, object, "values", values_json(w, model));
    put(w, object, "inputs", integers(w, model->inputs.v, model->inputs.n));
    put(w, object, "tables", tables_json(w, model));
    put(w, object, "caches", caches_json(w, model));
    put(w, object, "weights", weights_json(w, model));
    put(w, object, "repeats", repeats_json(w, model));
    put(w, object, "statements", statements_json(w, model));
    put(w, object, "outputs", outputs_json(w, model));
    return object;
}
