/* Reads the manifest's "model", and shows that an engine may follow it blindly: every value is set
 * once and before its use, and what is passed has the type and the axes of the parameter. */
#include "manifest_impl.h"

#include <stdio.h>

#define STACK "{*}" /* in a weight's name: the index along its first axis */

enum { MOST = 1 << 16, REPEATS_MOST = 1 << 12, LAYERS_MOST = 1 << 16 };

/* ---- members --------------------------------------------------------------------------------- */

static void read_value(Reader *r, json_t *object, void *element)
{
    MfValue *value = element;
    manifest_tensor(r, object, &value->tensor);
    value->index_of = (int)get_int(r, object, "index_of", -1, r->out->n_atoms - 1);
    value->carry = (int)get_int(r, object, "carry", -1, MOST);
}

/* The pattern of a number, so that no text is rounded twice. */
static double get_f64(Reader *r, json_t *object, const char *member)
{
    const char *hex = get_string(r, object, member);
    char *end = NULL;
    IsoU64 bits = strlen(hex) == 16 ? strtoull(hex, &end, 16) : 0;
    if (!end || *end)
        bad(r, member, "is not the 16 hexadecimal digits of a number");
    return iso_bits_f64(bits);
}

static IsoRopeScaling get_scaling(Reader *r, json_t *object)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"};
    const char *scaling = get_string(r, object, "scaling");
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], scaling))
            return (IsoRopeScaling)i;
    bad(r, "scaling", "is default, linear, llama3 or yarn");
    return ISO_ROPE_DEFAULT;
}

static void read_table(Reader *r, json_t *object, void *element)
{
    MfTable *table = element;
    json_t *values = json_object_get(object, "values");
    table->cos = (int)element_int(r, values, 0, "values", 0, r->out->model->n_values - 1);
    table->sin = (int)element_int(r, values, 1, "values", 0, r->out->model->n_values - 1);
    if (strcmp(get_string(r, object, "kind"), "rope"))
        bad(r, "kind", "is no table that this library can make");
    json_t *settings = json_object_get(object, "settings");
    IsoRope *rope = &table->rope;
    rope->dim = (int)get_int(r, settings, "dim", 2, 1 << 20);
    rope->scaling = get_scaling(r, settings);
    rope->theta = get_f64(r, settings, "theta");
    rope->factor = get_f64(r, settings, "factor");
    rope->low = get_f64(r, settings, "low");
    rope->high = get_f64(r, settings, "high");
    rope->original = get_f64(r, settings, "original");
    rope->beta_fast = get_f64(r, settings, "beta_fast");
    rope->beta_slow = get_f64(r, settings, "beta_slow");
    rope->attention_factor = get_f64(r, settings, "attention_factor");
    rope->truncate = get_bool(r, settings, "truncate");
}

static void read_cache(Reader *r, json_t *object, void *element)
{
    const MfModel *model = r->out->model;
    MfCache *cache = element;
    cache->of = (int)get_int(r, object, "of", 0, model->n_values - 1);
    cache->as = (int)get_int(r, object, "as", 0, model->n_values - 1);
    cache->before = (int)get_int(r, object, "before", 0, model->n_statements);
    cache->repeat = (int)get_int(r, object, "repeat", -1, model->n_repeats - 1);
}

/* The axes of the weight, but for that of a stack, each once. */
static void read_order(Reader *r, json_t *object, MfWeight *weight)
{
    int first = weight->stacked ? 1 : 0, n = 0;
    json_t *order = json_object_get(object, "order");
    unsigned seen = 0;
    if (!order)
        return;
    order = get_array(r, object, "order", ISO_MAX_AXES, &n);
    if (r->status || n != weight->tensor.n_axes - first) {
        bad(r, "order", "has not the weight's axes");
        return;
    }
    for (int i = 0; i < n; i++) {
        weight->order[i] = (int)element_int(r, order, i, "order", first, first + n - 1);
        if (!r->status && (seen >> weight->order[i] & 1))
            bad(r, "order", "has an axis twice");
        seen |= r->status ? 0 : 1u << weight->order[i];
    }
    weight->n_order = n;
}

static void read_weight(Reader *r, json_t *object, void *element)
{
    MfWeight *weight = element;
    weight->name = get_string(r, object, "name");
    weight->stacked = strstr(weight->name, STACK) != NULL;
    weight->fan_in = get_int(r, object, "fan_in", 0, INT64_MAX);
    manifest_tensor(r, json_object_get(object, "tensor"), &weight->tensor);
    if (weight->stacked && weight->tensor.n_axes < 1)
        bad(r, "name", "has an index along an axis that the weight has not");
    read_order(r, object, weight);
}

static void read_repeat(Reader *r, json_t *object, void *element)
{
    MfRepeat *repeat = element;
    repeat->count = (int)get_int(r, object, "count", 1, LAYERS_MOST);
    repeat->first = (int)get_int(r, object, "first", 0, r->out->model->n_statements);
    repeat->end = (int)get_int(r, object, "end", repeat->first, r->out->model->n_statements);
}

static void read_argument(Reader *r, json_t *object, void *element)
{
    const MfModel *model = r->out->model;
    MfArgument *argument = element;
    argument->weight = json_object_get(object, "weight") != NULL;
    argument->index = argument->weight
                          ? (int)get_int(r, object, "weight", 0, model->n_weights - 1)
                          : (int)get_int(r, object, "value", 0, model->n_values - 1);
}

static void read_statement(Reader *r, json_t *object, void *element)
{
    const MfModel *model = r->out->model;
    MfStatement *statement = element;
    statement->op = (int)get_int(r, object, "op", 0, r->out->n_ops - 1);
    statement->repeat = (int)get_int(r, object, "repeat", -1, model->n_repeats - 1);
    statement->arguments = get_objects(r, object, "arguments", 64, sizeof(MfArgument),
                                       &statement->n_arguments, read_argument);
    json_t *results = get_array(r, object, "results", 64, &statement->n_results);
    statement->results = take(r, (size_t)statement->n_results, sizeof(int));
    for (int i = 0; statement->results && i < statement->n_results; i++)
        statement->results[i] = (int)element_int(r, results, i, "results", 0,
                                                 model->n_values - 1);
}

static void read_output(Reader *r, json_t *object, void *element)
{
    MfOutput *output = element;
    output->name = get_string(r, object, "name");
    output->value = (int)get_int(r, object, "value", 0, r->out->model->n_values - 1);
}

static void read_inputs(Reader *r, json_t *object, MfModel *model)
{
    json_t *inputs = get_array(r, object, "inputs", MOST, &model->n_inputs);
    model->inputs = take(r, (size_t)model->n_inputs, sizeof(int));
    for (int i = 0; model->inputs && i < model->n_inputs; i++)
        model->inputs[i] = (int)element_int(r, inputs, i, "inputs", 0, model->n_values - 1);
}

/* Counts come first: members refer to each other by index. */
static void read_members(Reader *r, json_t *object, MfModel *model)
{
    model->name = get_string(r, object, "name");
    get_array(r, object, "statements", MOST, &model->n_statements);
    model->values = get_objects(r, object, "values", MOST, sizeof(MfValue), &model->n_values,
                                read_value);
    model->repeats = get_objects(r, object, "repeats", REPEATS_MOST, sizeof(MfRepeat),
                                 &model->n_repeats, read_repeat);
    model->weights = get_objects(r, object, "weights", MOST, sizeof(MfWeight), &model->n_weights,
                                 read_weight);
    read_inputs(r, object, model);
    model->tables = get_objects(r, object, "tables", MOST, sizeof(MfTable), &model->n_tables,
                                read_table);
    model->caches = get_objects(r, object, "caches", MOST, sizeof(MfCache), &model->n_caches,
                                read_cache);
    model->statements = get_objects(r, object, "statements", MOST, sizeof(MfStatement),
                                    &model->n_statements, read_statement);
    model->outputs = get_objects(r, object, "outputs", MOST, sizeof(MfOutput), &model->n_outputs,
                                 read_output);
}

/* ---- whether it can be followed -------------------------------------------------------------- */

/* Where a value is set: at the start, or by a statement, or by the cache before one. */
typedef struct Setter {
    bool set;
    int at;     /* a statement's results can be used after it: its index + 1 */
    int repeat; /* -1: none */
} Setter;

static bool same_atoms(const MfTensor *a, int from_a, const MfTensor *b, int from_b)
{
    if (a->dtype != b->dtype || a->n_axes - from_a != b->n_axes - from_b)
        return false;
    for (int i = from_a; i < a->n_axes; i++) {
        const MfAtoms *x = &a->axes[i], *y = &b->axes[i - from_a + from_b];
        if (x->n != y->n || memcmp(x->atom, y->atom, (size_t)x->n * sizeof(int)))
            return false;
    }
    return true;
}

static void set_value(Reader *r, Setter *setters, int value, int at, int repeat)
{
    if (setters[value].set)
        bad(r, "model", "sets a value twice");
    setters[value] = (Setter){true, at, repeat};
}

static void set_values(Reader *r, Setter *setters)
{
    const MfModel *m = r->out->model;
    for (int i = 0; i < m->n_inputs; i++)
        set_value(r, setters, m->inputs[i], 0, -1);
    for (int i = 0; i < m->n_tables; i++) {
        set_value(r, setters, m->tables[i].cos, 0, -1);
        set_value(r, setters, m->tables[i].sin, 0, -1);
    }
    for (int i = 0; i < m->n_caches; i++)
        set_value(r, setters, m->caches[i].as, m->caches[i].before, m->caches[i].repeat);
    for (int i = 0; i < m->n_statements; i++)
        for (int k = 0; k < m->statements[i].n_results; k++)
            set_value(r, setters, m->statements[i].results[k], i + 1, m->statements[i].repeat);
}

static void check_use(Reader *r, const Setter *setters, int value, int at)
{
    if (!setters[value].set || setters[value].at > at)
        bad(r, "model", "uses a value before it is set");
}

static void check_statement(Reader *r, const Setter *setters, int i)
{
    const MfModel *m = r->out->model;
    const MfStatement *s = &m->statements[i];
    const MfOp *op = &r->out->ops[s->op];
    if (s->n_arguments != op->n_params || s->n_results != op->n_results) {
        bad(r, "arguments", "are not as many as the op's parameters");
        return;
    }
    for (int k = 0; k < s->n_arguments; k++) {
        int index = s->arguments[k].index;
        const MfTensor *given =
            s->arguments[k].weight ? &m->weights[index].tensor : &m->values[index].tensor;
        if (!same_atoms(given, 0, &op->tensors[k], 0))
            bad(r, "arguments", "have not the type and axes of the op's parameters");
        if (!s->arguments[k].weight)
            check_use(r, setters, index, i);
    }
    for (int k = 0; k < s->n_results; k++)
        if (!same_atoms(&m->values[s->results[k]].tensor, 0, &op->tensors[op->n_params + k], 0))
            bad(r, "results", "have not the type and axes of the op's");
}

static void check_repeats(Reader *r)
{
    const MfModel *m = r->out->model;
    for (int i = 0; i < m->n_repeats; i++)
        if (i && m->repeats[i].first < m->repeats[i - 1].end)
            bad(r, "repeats", "lie in each other");
    for (int i = 0; i < m->n_statements; i++) {
        int inside = -1;
        for (int k = 0; k < m->n_repeats; k++)
            if (m->repeats[k].first <= i && i < m->repeats[k].end)
                inside = k;
        if (m->statements[i].repeat != inside)
            bad(r, "repeat", "is not where the statement stands");
    }
}

/* Across a repeat's turns a value of before it becomes one of its body. */
static void check_carry(Reader *r, const Setter *setters, int value)
{
    const MfModel *m = r->out->model;
    int carry = m->values[value].carry;
    if (carry < 0)
        return;
    if (carry >= m->n_values || !setters[carry].set || setters[carry].repeat < 0 ||
        setters[value].at > m->repeats[setters[carry].repeat].first ||
        !same_atoms(&m->values[value].tensor, 0, &m->values[carry].tensor, 0))
        bad(r, "carry", "is no value of a later repeat that it could become");
}

static void check_cache(Reader *r, const Setter *setters, const MfCache *cache)
{
    const MfModel *m = r->out->model;
    const MfTensor *as = &m->values[cache->as].tensor, *of = &m->values[cache->of].tensor;
    const MfAtom *atoms = r->out->atoms;
    if (as->n_axes < 2 || as->axes[0].n != 1 || as->axes[1].n != 1 ||
        atoms[as->axes[0].atom[0]].coordinate != MF_SEQUENCE ||
        atoms[as->axes[1].atom[0]].coordinate != MF_POSITION || of->n_axes < 1 ||
        !same_atoms(as, 2, of, 1))
        bad(r, "caches", "have one that is not its value by sequence and position");
    if (cache->repeat >= 0 && (cache->before < m->repeats[cache->repeat].first ||
                               cache->before > m->repeats[cache->repeat].end))
        bad(r, "before", "is not inside of the cache's repeat");
    check_use(r, setters, cache->of, cache->before);
}

static void check_table(Reader *r, const MfTable *table)
{
    const MfModel *m = r->out->model;
    const MfTensor *cos = &m->values[table->cos].tensor;
    const MfAtom *atoms = r->out->atoms;
    if (cos->n_axes != 2 || cos->axes[0].n != 1 || cos->axes[1].n != 1 ||
        atoms[cos->axes[0].atom[0]].coordinate != MF_POSITION ||
        2 * atoms[cos->axes[1].atom[0]].size != table->rope.dim ||
        !same_atoms(cos, 0, &m->values[table->sin].tensor, 0))
        bad(r, "tables", "have one that is no two tensors of positions and half of \"dim\"");
    if (!(table->rope.theta > 1.0))
        bad(r, "theta", "is not above 1");
}

static void check_model(Reader *r)
{
    const MfModel *m = r->out->model;
    Setter *setters = take(r, (size_t)m->n_values, sizeof(Setter));
    if (r->status)
        return;
    set_values(r, setters);
    check_repeats(r);
    for (int i = 0; i < m->n_statements; i++)
        check_statement(r, setters, i);
    for (int i = 0; i < m->n_values; i++)
        check_carry(r, setters, i);
    for (int i = 0; i < m->n_caches; i++)
        check_cache(r, setters, &m->caches[i]);
    for (int i = 0; i < m->n_tables; i++)
        check_table(r, &m->tables[i]);
    for (int i = 0; i < m->n_outputs; i++)
        check_use(r, setters, m->outputs[i].value, m->n_statements);
}

void manifest_model(Reader *r, json_t *root)
{
    json_t *object = json_object_get(root, "model");
    if (!object || json_is_null(object) || r->status)
        return;
    MfModel *model = take(r, 1, sizeof *model);
    r->out->model = model;
    if (!json_is_object(object))
        bad(r, "model", "is not an object");
    if (!r->status)
        read_members(r, object, model);
    if (!r->status)
        check_model(r);
}

static unsigned long turn_index(const char *open, const char *close, int turn)
{
    const char *plus = strchr(open, '+');
    bool times = open[1] >= '0' && open[1] <= '9';
    return (unsigned long)turn * (times ? strtoul(open + 1, NULL, 10) : 1) +
           (plus && plus < close ? strtoul(plus + 1, NULL, 10) : 0);
}

/* index below 0: the stack's own name. */
bool manifest_stacked_name(const MfWeight *weight, int turn, int64_t index, char *name,
                           size_t size)
{
    size_t used = 0;
    for (const char *at = weight->name; *at;) {
        const char *close = *at == '{' ? strchr(at, '}') : NULL;
        bool stack = close && !strncmp(at, STACK, sizeof STACK - 1);
        int n = !close || (stack && index < 0)
                    ? snprintf(name + used, size - used, "%c", *at)
                    : snprintf(name + used, size - used, "%llu",
                               stack ? (unsigned long long)index
                                     : (unsigned long long)turn_index(at, close, turn));
        if (n < 0 || (size_t)n >= size - used)
            return false;
        used += (size_t)n;
        at = !close || (stack && index < 0) ? at + 1 : close + 1;
    }
    if (used < size)
        name[used] = 0;
    return used < size;
}

bool manifest_weight_name(const MfWeight *weight, int turn, char *name, size_t size)
{
    return manifest_stacked_name(weight, turn, -1, name, size);
}
