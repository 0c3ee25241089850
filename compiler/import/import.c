/* Reading a config: every field is one that the model's family has, means what the contract says,
 * and contradicts no other; else it is refused by its name. */
#include "import_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    [IMPORT_GLM4_MOE] = {"glm4_moe", "Glm4MoeForCausalLM"},
    [IMPORT_GPT_OSS] = {"gpt_oss", "GptOssForCausalLM"},
    [IMPORT_DEEPSEEK_V3] = {"deepseek_v3", "DeepseekV3ForCausalLM"},
    [IMPORT_DEEPSEEK_V32] = {"deepseek_v32", "DeepseekV32ForCausalLM"},
    [IMPORT_KIMI_K2] = {"kimi_k2", "DeepseekV3ForCausalLM"},
    [IMPORT_GLM4_MOE_LITE] = {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"},
    [IMPORT_QWEN3_NEXT] = {"qwen3_next", "Qwen3NextForCausalLM"},
    [IMPORT_QWEN3_5_MOE] = {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"},
};

const char *import_family_name(ImportFamily family)
{
    return families[family].type;
}

static void check_architecture(Config *c)
{
    json_t *list = config_get(c, "architectures");
    const char *first = json_string_value(json_array_get(list, 0));
    const char *want = families[c->model->family].architecture;
    if (!list || (json_array_size(list) == 1 && first && !strcmp(first, want)))
        return;
    Diag *d = config_refuse(c, "architectures", "contradicts \"model_type\"");
    diag_note(c->diags, d, "a %s model for text is a %s", families[c->model->family].type, want);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static bool slides_by_default(Config *c, int layer)
{
    switch (c->model->family) {
    case IMPORT_MISTRAL:
    case IMPORT_MIXTRAL: return config_get(c, "sliding_window") != NULL;
    case IMPORT_OLMO3: return (layer + 1) % 4 != 0;
    case IMPORT_GPT_OSS: return layer % 2 == 0;
    case IMPORT_QWEN2:
    case IMPORT_QWEN3:
    case IMPORT_QWEN3_MOE:
        return config_bool(c, "use_sliding_window", false) &&
               layer >= json_integer_value(config_get(c, "max_window_layers"));
    default: return false;
    }
}

static void read_layer_types(Config *c, json_t *types)
{
    ImportModel *m = c->model;
    bool any_order = m->family == IMPORT_OLMO3 || m->family == IMPORT_GPT_OSS;
    bool agree = json_is_array(types) && (i64)json_array_size(types) == m->layers;
    for (int i = 0; agree && i < (int)m->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        m->slides[i] = type && !strcmp(type, "sliding_attention");
        agree = m->slides[i] || (type && !strcmp(type, "full_attention"));
        agree &= any_order || m->slides[i] == slides_by_default(c, i);
    }
    if (!agree)
        config_fault(c, "layer_types", "contradicts the other fields, or has other layers",
                     "it has full_attention or sliding_attention for each of "
                     "\"num_hidden_layers\"");
}

static void read_layers(Config *c)
{
    ImportModel *m = c->model;
    m->slides = arena_array(c->arena, bool, (int)m->layers + 1);
    for (int i = 0; i < (int)m->layers; i++)
        m->slides[i] = slides_by_default(c, i);
    if (config_get(c, "layer_types"))
        read_layer_types(c, config_get(c, "layer_types"));
    for (int i = 0; i < (int)m->layers; i++) {
        m->any_slides |= m->slides[i];
        m->any_full |= !m->slides[i];
    }
    if (m->any_slides)
        m->window = config_size(c, "sliding_window", SIZE_MOST, 0);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What attention has besides products, in this family or this model. */
static void read_features(Config *c)
{
    ImportModel *m = c->model;
    bool glm = m->family == IMPORT_GLM4_MOE;
    m->qkv_bias = m->family == IMPORT_QWEN2 || m->family == IMPORT_GPT_OSS ||
                  (glm && config_bool(c, "attention_bias", false));
    m->head_norm = m->family == IMPORT_QWEN3 || m->family == IMPORT_QWEN3_MOE ||
                   (glm && config_bool(c, "use_qk_norm", false));
}

static void read_sizes(Config *c)
{
    ImportModel *m = c->model;
    m->hidden = config_size(c, "hidden_size", SIZE_MOST, 0);
    m->ffn = config_size(c, "intermediate_size", SIZE_MOST, 0);
    m->heads = config_size(c, "num_attention_heads", SIZE_MOST, 0);
    bool grouped = m->family != IMPORT_LLAMA && !import_is_olmo(m);
    m->kv_heads = config_size(c, "num_key_value_heads", SIZE_MOST, grouped ? 0 : m->heads);
    m->layers = config_size(c, "num_hidden_layers", LAYERS_MOST, 0);
    m->vocab = config_size(c, "vocab_size", SIZE_MOST, 0);
    m->positions = config_size(c, "max_position_embeddings", SIZE_MOST, 0);
    i64 head_dim = m->family == IMPORT_QWEN3 ? 128 : m->hidden / m->heads;
    if (!config_get(c, "head_dim") && m->family != IMPORT_QWEN3 && m->hidden % m->heads)
        config_fault(c, "hidden_size", "is no multiple of \"num_attention_heads\"",
                     "say \"head_dim\"");
    m->head_dim = config_size(c, "head_dim", SIZE_MOST, head_dim ? head_dim : 1);
    if (m->heads % m->kv_heads)
        config_fault(c, "num_key_value_heads", "does not divide \"num_attention_heads\"",
                     "equal groups of query heads share a head of keys");
    if (m->head_dim % 2)
        config_fault(c, config_get(c, "head_dim") ? "head_dim" : "hidden_size",
                     "gives heads of an odd size", "rotary embedding turns halves of a head");
    m->eps = json_number_value(config_get(c, "rms_norm_eps"));
    if (!(m->eps > 0 && m->eps < 1))
        config_fault(c, "rms_norm_eps", "is no small positive number", "norms add it");
    m->tied = config_bool(c, "tie_word_embeddings", false);
    read_features(c);
    config_read_experts(c);
}

/* What families have that no op here computes, so that their experts alone are imported. */
static const char *const lacks[IMPORT_FAMILIES] = {
    [IMPORT_DEEPSEEK_V3] = "attention over latent keys (MLA)",
    [IMPORT_DEEPSEEK_V32] = "attention over chosen latent keys (MLA)",
    [IMPORT_KIMI_K2] = "attention over latent keys (MLA)",
    [IMPORT_GLM4_MOE_LITE] = "attention over latent keys (MLA)",
    [IMPORT_QWEN3_NEXT] = "gated delta rules, and gated attention",
    [IMPORT_QWEN3_5_MOE] = "gated delta rules, and gated attention",
};

static bool has_part(Config *c)
{
    const char *lacking = lacks[c->model->family];
    if (c->model->part == IMPORT_WHOLE && lacking) {
        Str why = str_format(c->arena, "has %s, which no op here computes", lacking);
        config_fault(c, "model_type", why.s, "--part=moe imports its mixture of experts alone");
    } else if (c->model->part == IMPORT_MOE && !import_has_experts(c->model->family)) {
        config_fault(c, "model_type", "has no mixture of experts",
                     "import the model without --part");
    }
    return !c->failed;
}

static void refuse_family(Config *c, const char *type)
{
    config_fault(c, "model_type", type ? "is no family that is imported" : "is missing",
                 "llama (SmolLM too), mistral, mixtral, qwen2, qwen3, qwen3_moe, olmo2, olmo3, "
                 "glm4_moe and gpt_oss are; of others --part=moe imports the experts");
}

static bool find_family(Config *c)
{
    const char *type = json_string_value(config_get(c, "model_type"));
    for (int i = 0; type && i < IMPORT_FAMILIES; i++)
        if (!strcmp(type, families[i].type)) {
            c->model->family = (ImportFamily)i;
            return has_part(c);
        }
    refuse_family(c, type);
    return false;
}

/* "Qwen/Qwen3-0.6B" or the type, as a name of the language. */
static Str name_of(Config *c)
{
    const char *path = json_string_value(config_get(c, "_name_or_path"));
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
    text_printf(&out, c->model->part == IMPORT_MOE ? "_moe" : "_model");
    return text_str(&out);
}

/* Models of several kinds of data have the decoder's config in their own. */
static void enter_text_config(Config *c)
{
    json_t *inner = config_get(c, "text_config");
    if (c->model->family == IMPORT_QWEN3_5_MOE && inner)
        c->root = inner;
}

static void read_config(Config *c)
{
    if (!find_family(c))
        return;
    check_architecture(c);
    enter_text_config(c);
    config_check_fields(c);
    c->model->name = name_of(c);
    if (c->model->part == IMPORT_MOE) {
        c->model->hidden = config_size(c, "hidden_size", SIZE_MOST, 0);
        config_read_experts(c);
        return;
    }
    read_sizes(c);
    if (c->failed)
        return;
    read_layers(c);
    config_read_rope(c);
}

bool import_read(int file, ImportPart part, ImportModel *model, Arena *arena, Diags *diags)
{
    Str text = diags->sources->files.v[file].text;
    json_error_t error;
    *model = (ImportModel){.part = part};
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
    json_t *root = c.root;
    read_config(&c);
    json_decref(root);
    return !c.failed;
}

bool import_config(int file, ImportPart part, Text *out, Arena *arena, Diags *diags)
{
    ImportModel model;
    if (!import_read(file, part, &model, arena, diags))
        return false;
    import_write(&model, out);
    return true;
}
