/* Reading a config: every field is one that the model's family has, means what the contract says,
 * and contradicts no other; else it is refused by its name. */
#include "import_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MOST = 1 << 24, LAYERS_MOST = 1000 };

typedef struct Config {
    json_t *root;
    int file;
    Arena *arena;
    Diags *diags;
    ImportModel *model;
    bool failed;
} Config;

static const struct {
    const char *type, *architecture;
} families[IMPORT_FAMILIES] = {
    [IMPORT_LLAMA] = {"llama", "LlamaForCausalLM"},
    [IMPORT_MISTRAL] = {"mistral", "MistralForCausalLM"},
    [IMPORT_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [IMPORT_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},
    [IMPORT_OLMO2] = {"olmo2", "Olmo2ForCausalLM"},
    [IMPORT_OLMO3] = {"olmo3", "Olmo3ForCausalLM"},
    [IMPORT_QWEN3_MOE] = {"qwen3_moe", "Qwen3MoeForCausalLM"},
    [IMPORT_MIXTRAL] = {"mixtral", "MixtralForCausalLM"},
};

/* ---- faults ---------------------------------------------------------------------------------- */

/* Where `"field"` stands as a key; no place if it stands nowhere. */
static Span place_of(const Config *c, const char *field)
{
    Str text = c->diags->sources->files.v[c->file].text;
    int n = (int)strlen(field);
    for (int i = 0; i + n + 2 <= text.n; i++) {
        int end = i + n + 2;
        if (text.s[i] != '"' || text.s[end - 1] != '"' || memcmp(text.s + i + 1, field, (size_t)n))
            continue;
        while (end < text.n && strchr(" \t\r\n", text.s[end]))
            end++;
        if (end < text.n && text.s[end] == ':')
            return (Span){c->file, i, i + n + 2};
    }
    return (Span){c->file, 0, 0};
}

static Diag *refuse(Config *c, const char *field, const char *why)
{
    c->failed = true;
    return diag_add(c->diags, DIAG_IMPORT_FIELD, place_of(c, field), "\"%s\" %s", field, why);
}

static void note(Config *c, Diag *d, const char *text)
{
    diag_note(c->diags, d, "%s", text);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static json_t *get(const Config *c, const char *field)
{
    json_t *value = json_object_get(c->root, field);
    return json_is_null(value) ? NULL : value;
}

static i64 get_size(Config *c, const char *field, i64 most, i64 otherwise)
{
    json_t *value = get(c, field);
    i64 n = json_integer_value(value);
    if (!value && otherwise > 0)
        return otherwise;
    if (!value || !json_is_integer(value) || n < 1 || n > most) {
        Diag *d = refuse(c, field, value ? "is no positive integer in range" : "is missing");
        note(c, d, "the contract's sizes come from it");
        return 1;
    }
    return n;
}

static double number_of(json_t *value)
{
    return json_number_value(value);
}

Str import_number(Arena *arena, double value)
{
    for (int digits = 6; digits < 17; digits++) {
        Str text = str_format(arena, "%.*g", digits, value);
        if (strtod(text.s, NULL) == value)
            return text;
    }
    return str_format(arena, "%.17g", value);
}

static bool get_bool(Config *c, const char *field, bool otherwise)
{
    json_t *value = get(c, field);
    if (value && !json_is_boolean(value))
        note(c, refuse(c, field, "is neither true nor false"), "write one of the two");
    return value ? json_is_true(value) : otherwise;
}

/* ---- which fields there may be --------------------------------------------------------------- */

enum { ALL = (1 << IMPORT_FAMILIES) - 1, OLMO = 1 << IMPORT_OLMO2 | 1 << IMPORT_OLMO3,
       QWEN = 1 << IMPORT_QWEN2 | 1 << IMPORT_QWEN3 | 1 << IMPORT_QWEN3_MOE,
       QWEN_MOE = 1 << IMPORT_QWEN3_MOE, MIXTRAL = 1 << IMPORT_MIXTRAL,
       MISTRAL = 1 << IMPORT_MISTRAL | 1 << IMPORT_MIXTRAL, LLAMA = 1 << IMPORT_LLAMA,
       OLMO3 = 1 << IMPORT_OLMO3 };

/* A field that is read elsewhere has no `must`; "" is any value: it moves no bit of inference. */
static const struct {
    const char *name;
    int families;
    const char *must; /* JSON, one of several apart by | */
} fields[] = {
    {"model_type", ALL, NULL},
    {"architectures", ALL, NULL},
    {"hidden_size", ALL, NULL},
    {"intermediate_size", ALL, NULL},
    {"num_attention_heads", ALL, NULL},
    {"num_key_value_heads", ALL, NULL},
    {"num_hidden_layers", ALL, NULL},
    {"head_dim", ALL, NULL},
    {"vocab_size", ALL, NULL},
    {"rms_norm_eps", ALL, NULL},
    {"rope_theta", ALL, NULL},
    {"rope_scaling", ALL, NULL},
    {"rope_parameters", ALL, NULL},
    {"max_position_embeddings", ALL, NULL},
    {"tie_word_embeddings", ALL, NULL},
    {"_name_or_path", ALL, NULL},
    {"sliding_window", MISTRAL | QWEN | OLMO3, NULL},
    {"use_sliding_window", QWEN, NULL},
    {"max_window_layers", QWEN, NULL},
    {"layer_types", QWEN | OLMO3, NULL},
    {"num_experts", QWEN_MOE, NULL},
    {"num_local_experts", MIXTRAL, NULL},
    {"num_experts_per_tok", QWEN_MOE | MIXTRAL, NULL},
    {"moe_intermediate_size", QWEN_MOE, NULL},
    {"norm_topk_prob", QWEN_MOE, "true"},
    {"decoder_sparse_step", QWEN_MOE, "1"},
    {"mlp_only_layers", QWEN_MOE, "[]"},
    {"router_jitter_noise", MIXTRAL, "0.0|0"},
    {"router_aux_loss_coef", QWEN_MOE | MIXTRAL, ""},
    {"output_router_logits", QWEN_MOE | MIXTRAL, ""},
    {"hidden_act", ALL, "\"silu\""},
    {"attention_bias", ALL, "false"},
    {"mlp_bias", ALL, "false"},
    {"attention_dropout", ALL, "0.0|0"},
    {"partial_rotary_factor", ALL, "1.0|1"},
    {"pretraining_tp", LLAMA, "1"},
    {"rope_interleaved", LLAMA, "false"},
    {"clip_qkv", OLMO, "null"},
    {"torch_dtype", ALL, "\"bfloat16\"|\"float32\""},
    {"dtype", ALL, "\"bfloat16\"|\"float32\""},
    {"is_llama_config", LLAMA, ""},
    {"transformers.js_config", ALL, ""},
    {"bos_token_id", ALL, ""},
    {"eos_token_id", ALL, ""},
    {"pad_token_id", ALL, ""},
    {"unk_token_id", ALL, ""},
    {"initializer_range", ALL, ""},
    {"transformers_version", ALL, ""},
    {"use_cache", ALL, ""},
};

enum { FIELDS = sizeof fields / sizeof fields[0] };

static bool is_one_of(json_t *value, const char *must)
{
    char *own = json_dumps(value, JSON_ENCODE_ANY);
    bool found = false;
    for (const char *s = must; own && *s && !found;) {
        size_t n = strcspn(s, "|");
        found = strlen(own) == n && !memcmp(own, s, n);
        s += n + (s[n] == '|');
    }
    free(own);
    return found;
}

static void check_field(Config *c, const char *name, json_t *value)
{
    int i = 0;
    while (i < FIELDS && strcmp(fields[i].name, name))
        i++;
    const char *type = families[c->model->family].type;
    if (i == FIELDS || !(fields[i].families >> c->model->family & 1)) {
        Diag *d = refuse(c, name, "is no field that an import understands");
        diag_note(c->diags, d, "remove it if a %s model computes the same without it, or write the "
                               "contract by hand: contracts/include has the pieces", type);
    } else if (fields[i].must && *fields[i].must && !json_is_null(value) &&
               !is_one_of(value, fields[i].must)) {
        Diag *d = refuse(c, name, "has a value that no family of ops here computes");
        diag_note(c->diags, d, "%s models are imported with %s", type, fields[i].must);
    }
}

static void check_architecture(Config *c)
{
    json_t *list = get(c, "architectures");
    const char *first = json_string_value(json_array_get(list, 0));
    const char *want = families[c->model->family].architecture;
    if (!list || (json_array_size(list) == 1 && first && !strcmp(first, want)))
        return;
    Diag *d = refuse(c, "architectures", "contradicts \"model_type\"");
    diag_note(c->diags, d, "a %s model for text is a %s", families[c->model->family].type, want);
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

typedef struct RopeField {
    const char *theirs, *ours;
    int scalings; /* bits of the names below */
} RopeField;

enum { LINEAR = 2, LLAMA3 = 4, YARN = 8 };

static const RopeField rope_fields[] = {
    {"factor", "factor", LINEAR | LLAMA3 | YARN},
    {"low_freq_factor", "low", LLAMA3},
    {"high_freq_factor", "high", LLAMA3},
    {"original_max_position_embeddings", "original", LLAMA3 | YARN},
    {"beta_fast", "beta_fast", YARN},
    {"beta_slow", "beta_slow", YARN},
    {"attention_factor", "attention_factor", YARN},
};

static int scaling_of(Config *c, json_t *settings)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"};
    json_t *type = json_object_get(settings, "rope_type");
    const char *name = json_string_value(type ? type : json_object_get(settings, "type"));
    for (int i = 0; i < 4; i++)
        if (!name || !strcmp(name, names[i]))
            return i;
    note(c, refuse(c, type ? "rope_type" : "type", "is a scaling that has no written tables"),
         "default, linear, llama3 and yarn have; others are passed as inputs of the ops");
    return 0;
}

static void rope_field(Config *c, const char *name, json_t *value, int scaling, Text *out)
{
    static const char *const passed[] = {"rope_type", "type", "rope_theta", "truncate"};
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
        if (!strcmp(name, passed[i]))
            return;
    if (!strcmp(name, "partial_rotary_factor") && number_of(value) == 1.0)
        return;
    for (size_t i = 0; i < sizeof rope_fields / sizeof rope_fields[0]; i++)
        if (!strcmp(name, rope_fields[i].theirs) && (rope_fields[i].scalings >> scaling & 1)) {
            if (!json_is_number(value) || number_of(value) <= 0)
                note(c, refuse(c, name, "is no positive number"), "frequencies come from it");
            text_printf(out, " %s %.*s;", rope_fields[i].ours,
                        STR_FMT(import_number(c->arena, number_of(value))));
            return;
        }
    note(c, refuse(c, name, "is no setting of this rotary embedding"),
         "each scaling has its own; remove what it does not use");
}

static void rope_scaling(Config *c, json_t *settings, int scaling, Text *out)
{
    static const char *const names[] = {"", "linear", "llama3", "yarn"};
    const char *name;
    json_t *value;
    if (scaling)
        text_printf(out, " scaling %s;", names[scaling]);
    json_object_foreach(settings, name, value)
    {
        if (!json_is_null(value))
            rope_field(c, name, value, scaling, out);
    }
    json_t *truncate = json_object_get(settings, "truncate");
    if (truncate && scaling == 3)
        text_printf(out, " truncate %s;", json_is_true(truncate) ? "yes" : "no");
    if (scaling == 3 && !json_object_get(settings, "original_max_position_embeddings"))
        text_printf(out, " original %lld;", (long long)c->model->positions);
}

/* "theta 10000;" and what the scaling adds; the base may stand inside or beside. */
static Str rope_text(Config *c, json_t *settings, bool scaled)
{
    Text out = {.arena = c->arena};
    json_t *inside = json_object_get(settings, "rope_theta"), *beside = get(c, "rope_theta");
    if (inside && beside && number_of(inside) != number_of(beside))
        note(c, refuse(c, "rope_theta", "has two values"), "keep the one that the model has");
    json_t *theta = inside ? inside : beside;
    double base = theta ? number_of(theta) : 10000.0;
    if (!(base > 1.0))
        note(c, refuse(c, "rope_theta", "is no number above 1"), "it is the base of frequencies");
    text_printf(&out, "theta %.*s;", STR_FMT(import_number(c->arena, base)));
    if (scaled && settings)
        rope_scaling(c, settings, scaling_of(c, settings), &out);
    return text_str(&out);
}

/* Settings by kind of layer stand alone. */
static void check_kinds(Config *c, json_t *settings)
{
    const char *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        if (strcmp(name, "full_attention") && strcmp(name, "sliding_attention"))
            note(c, refuse(c, name, "stands beside settings for kinds of layers"),
                 "move it into \"full_attention\" or \"sliding_attention\"");
    }
}

/* One table for all layers, one for each kind of layer, or, in OLMo 3, a scaling of full ones. */
static void read_rope(Config *c)
{
    ImportModel *m = c->model;
    json_t *old = get(c, "rope_scaling"), *new = get(c, "rope_parameters");
    json_t *settings = new ? new : old;
    if (old && new && !json_equal(old, new))
        note(c, refuse(c, "rope_scaling", "contradicts \"rope_parameters\""), "keep one of them");
    if (settings && !json_is_object(settings))
        note(c, refuse(c, new ? "rope_parameters" : "rope_scaling", "is no object"),
             "it holds the settings of a scaling, or is null");
    json_t *full = json_object_get(settings, "full_attention");
    json_t *sliding = json_object_get(settings, "sliding_attention");
    if (full || sliding) {
        check_kinds(c, settings);
        m->rope = rope_text(c, full, true);
        m->sliding_rope = rope_text(c, sliding, true);
    } else {
        m->rope = rope_text(c, settings, true);
        m->sliding_rope = m->family == IMPORT_OLMO3 ? rope_text(c, settings, false) : m->rope;
    }
    if (str_eq(m->rope, m->sliding_rope))
        m->sliding_rope = (Str){0};
}

/* ---- layers ---------------------------------------------------------------------------------- */

static bool slides_by_default(Config *c, int layer)
{
    switch (c->model->family) {
    case IMPORT_MISTRAL:
    case IMPORT_MIXTRAL: return get(c, "sliding_window") != NULL;
    case IMPORT_OLMO3: return (layer + 1) % 4 != 0;
    case IMPORT_QWEN2:
    case IMPORT_QWEN3:
    case IMPORT_QWEN3_MOE:
        return get_bool(c, "use_sliding_window", false) &&
               layer >= json_integer_value(get(c, "max_window_layers"));
    default: return false;
    }
}

static void read_layer_types(Config *c, json_t *types)
{
    ImportModel *m = c->model;
    bool agree = json_is_array(types) && (i64)json_array_size(types) == m->layers;
    for (int i = 0; agree && i < (int)m->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        m->slides[i] = type && !strcmp(type, "sliding_attention");
        agree = m->slides[i] || (type && !strcmp(type, "full_attention"));
        if (m->family != IMPORT_OLMO3 && m->slides[i] != slides_by_default(c, i))
            agree = false;
    }
    if (!agree)
        note(c, refuse(c, "layer_types", "contradicts the other fields, or has other layers"),
             "it has full_attention or sliding_attention for each of \"num_hidden_layers\"");
}

static void read_layers(Config *c)
{
    ImportModel *m = c->model;
    m->slides = arena_array(c->arena, bool, (int)m->layers + 1);
    for (int i = 0; i < (int)m->layers; i++)
        m->slides[i] = slides_by_default(c, i);
    if (get(c, "layer_types"))
        read_layer_types(c, get(c, "layer_types"));
    for (int i = 0; i < (int)m->layers; i++) {
        m->any_slides |= m->slides[i];
        m->any_full |= !m->slides[i];
    }
    if (m->any_slides)
        m->window = get_size(c, "sliding_window", SIZE_MOST, 0);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A layer's experts share out equal groups of themselves among ranks: 8. Qwen3's norm_topk_prob is
 * not true by default. */
static void read_experts(Config *c)
{
    ImportModel *m = c->model;
    const char *name = m->family == IMPORT_MIXTRAL ? "num_local_experts" : "num_experts";
    if (m->family != IMPORT_MIXTRAL && m->family != IMPORT_QWEN3_MOE)
        return;
    m->experts = get_size(c, name, SIZE_MOST, 0);
    m->picks = get_size(c, "num_experts_per_tok", SIZE_MOST, 0);
    if (m->family == IMPORT_QWEN3_MOE)
        m->ffn = get_size(c, "moe_intermediate_size", SIZE_MOST, 0);
    if (m->experts % 8)
        note(c, refuse(c, name, "is no multiple of 8"), "their sum is of 8 equal groups of them");
    if (m->picks > m->experts)
        note(c, refuse(c, "num_experts_per_tok", "is more than there are"),
             "a token has each expert once at most");
    if (m->family == IMPORT_QWEN3_MOE && !get(c, "norm_topk_prob"))
        note(c, refuse(c, "norm_topk_prob", "is missing, which is false"),
             "qwen3_moe models are imported with true");
}

static void read_sizes(Config *c)
{
    ImportModel *m = c->model;
    m->hidden = get_size(c, "hidden_size", SIZE_MOST, 0);
    m->ffn = get_size(c, "intermediate_size", SIZE_MOST, 0);
    m->heads = get_size(c, "num_attention_heads", SIZE_MOST, 0);
    bool grouped = m->family != IMPORT_LLAMA && !import_is_olmo(m);
    m->kv_heads = get_size(c, "num_key_value_heads", SIZE_MOST, grouped ? 0 : m->heads);
    m->layers = get_size(c, "num_hidden_layers", LAYERS_MOST, 0);
    m->vocab = get_size(c, "vocab_size", SIZE_MOST, 0);
    m->positions = get_size(c, "max_position_embeddings", SIZE_MOST, 0);
    i64 head_dim = m->family == IMPORT_QWEN3 ? 128 : m->hidden / m->heads;
    if (!get(c, "head_dim") && m->family != IMPORT_QWEN3 && m->hidden % m->heads)
        note(c, refuse(c, "hidden_size", "is no multiple of \"num_attention_heads\""),
             "say \"head_dim\"");
    m->head_dim = get_size(c, "head_dim", SIZE_MOST, head_dim ? head_dim : 1);
    if (m->heads % m->kv_heads)
        note(c, refuse(c, "num_key_value_heads", "does not divide \"num_attention_heads\""),
             "equal groups of query heads share a head of keys");
    if (m->head_dim % 2)
        note(c, refuse(c, get(c, "head_dim") ? "head_dim" : "hidden_size",
                       "gives heads of an odd size"), "rotary embedding turns halves of a head");
    m->eps = number_of(get(c, "rms_norm_eps"));
    if (!(m->eps > 0 && m->eps < 1))
        note(c, refuse(c, "rms_norm_eps", "is no small positive number"), "norms add it");
    m->tied = get_bool(c, "tie_word_embeddings", false);
    read_experts(c);
}

/* Models whose mixture of experts has a contract, and what they have that no op here computes. */
static const struct {
    const char *type, *lacks, *contract;
} known_in_part[] = {
    {"deepseek_v2", "attention over latent keys (MLA)", "deepseek-v3-moe.iso"},
    {"deepseek_v3", "attention over latent keys (MLA)", "deepseek-v3-moe.iso"},
    {"kimi_k2", "attention over latent keys (MLA)", "deepseek-v3-moe.iso"},
    {"glm4_moe", "rotary embedding of half of each head", "glm-4.5-moe.iso"},
    {"gpt_oss", "weights of 4 bits", "gpt-oss-20b-moe.iso"},
    {"qwen3_next", "gated delta rules in most layers", "qwen3-next-moe.iso"},
    {"qwen3_5_moe", "gated delta rules in most layers", "qwen3-next-moe.iso"},
};

static void refuse_family(Config *c, const char *type)
{
    for (size_t i = 0; type && i < sizeof known_in_part / sizeof known_in_part[0]; i++) {
        if (strcmp(type, known_in_part[i].type))
            continue;
        Diag *d = refuse(c, "model_type", str_format(c->arena, "has %s, which no op here computes",
                                                     known_in_part[i].lacks).s);
        diag_note(c->diags, d, "contracts/%s has its mixture of experts",
                  known_in_part[i].contract);
        return;
    }
    note(c, refuse(c, "model_type", type ? "is no family that is imported" : "is missing"),
         "llama (SmolLM too), mistral, mixtral, qwen2, qwen3, qwen3_moe, olmo2 and olmo3 are");
}

static bool find_family(Config *c)
{
    const char *type = json_string_value(get(c, "model_type"));
    for (int i = 0; type && i < IMPORT_FAMILIES; i++)
        if (!strcmp(type, families[i].type)) {
            c->model->family = (ImportFamily)i;
            return true;
        }
    refuse_family(c, type);
    return false;
}

/* "Qwen/Qwen3-0.6B" or the type, as a name of the language. */
static Str name_of(Config *c)
{
    const char *path = json_string_value(get(c, "_name_or_path"));
    const char *slash = path ? strrchr(path, '/') : NULL, *from = slash ? slash + 1 : path;
    if (!from || !*from || strlen(from) > 100)
        from = families[c->model->family].type;
    Text out = {.arena = c->arena};
    if (*from >= '0' && *from <= '9')
        text_printf(&out, "_");
    for (; *from; from++) {
        bool letter = (*from >= 'a' && *from <= 'z') || (*from >= '0' && *from <= '9');
        bool capital = *from >= 'A' && *from <= 'Z';
        text_printf(&out, "%c", letter ? *from : capital ? *from + 32 : '_');
    }
    text_printf(&out, "_model");
    return text_str(&out);
}

static void read_config(Config *c)
{
    const char *name;
    json_t *value;
    if (!find_family(c))
        return;
    json_object_foreach(c->root, name, value)
    {
        check_field(c, name, value);
    }
    check_architecture(c);
    read_sizes(c);
    if (c->failed)
        return;
    read_layers(c);
    read_rope(c);
    c->model->name = name_of(c);
}

bool import_read(int file, ImportModel *model, Arena *arena, Diags *diags)
{
    Str text = diags->sources->files.v[file].text;
    json_error_t error;
    *model = (ImportModel){0};
    Config c = {.file = file, .arena = arena, .diags = diags, .model = model};
    c.root = json_loadb(text.s, (size_t)text.n, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(c.root)) {
        Span at = {file, 0, 0};
        if (!c.root && error.position > 0 && error.position <= text.n)
            at = (Span){file, error.position - 1, error.position};
        diag_add(diags, DIAG_IMPORT_JSON, at, "not a config: %s",
                 c.root ? "it is no JSON object" : error.text);
        json_decref(c.root);
        return false;
    }
    read_config(&c);
    json_decref(c.root);
    return !c.failed;
}

bool import_config(int file, Text *out, Arena *arena, Diags *diags)
{
    ImportModel model;
    if (!import_read(file, &model, arena, diags))
        return false;
    import_write(&model, out);
    return true;
}
