/* Which fields a family's config may have, and with which values. */
#include "import_config.h"

#include <stdlib.h>
#include <string.h>

#define OF(family) (1 << IMPORT_##family)

enum {
    LATENT = OF(DEEPSEEK_V3) | OF(DEEPSEEK_V32) | OF(KIMI_K2) | OF(GLM4_MOE_LITE),
    NEXT = OF(QWEN3_NEXT) | OF(QWEN3_5_MOE),
    PARTS = LATENT | NEXT,
    ALL = (1 << IMPORT_FAMILIES) - 1,
    WHOLE = ALL & ~PARTS,
    OLMO = OF(OLMO2) | OF(OLMO3),
    QWEN = OF(QWEN2) | OF(QWEN3) | OF(QWEN3_MOE),
    MISTRAL = OF(MISTRAL) | OF(MIXTRAL),
    LLAMA = OF(LLAMA),
    GLM = OF(GLM4_MOE),
    GPT_OSS = OF(GPT_OSS),
    SIGMOID = GLM | LATENT,
    EXPERTS = OF(QWEN3_MOE) | OF(MIXTRAL) | GPT_OSS | SIGMOID | NEXT
};

/* A field that is read elsewhere has no `must`; "" is any value: it moves no bit of inference. One
 * that families have with different values has a row for each. */
static const struct {
    const char *name;
    int families;
    const char *must; /* JSON, one of several apart by | */
} fields[] = {
    {"model_type", ALL, NULL},
    {"architectures", ALL, NULL},
    {"hidden_size", ALL, NULL},
    {"intermediate_size", ALL, NULL},
    {"num_attention_heads", WHOLE, NULL},
    {"num_key_value_heads", WHOLE, NULL},
    {"num_hidden_layers", WHOLE, NULL},
    {"head_dim", WHOLE, NULL},
    {"vocab_size", WHOLE, NULL},
    {"rms_norm_eps", WHOLE, NULL},
    {"rope_theta", WHOLE, NULL},
    {"rope_scaling", WHOLE, NULL},
    {"rope_parameters", WHOLE, NULL},
    {"max_position_embeddings", WHOLE, NULL},
    {"tie_word_embeddings", WHOLE, NULL},
    {"_name_or_path", ALL, NULL},
    {"sliding_window", MISTRAL | QWEN | OF(OLMO3) | GPT_OSS, NULL},
    {"use_sliding_window", QWEN, NULL},
    {"max_window_layers", QWEN, NULL},
    {"layer_types", QWEN | OF(OLMO3) | GPT_OSS, NULL},
    {"num_experts", OF(QWEN3_MOE) | NEXT, NULL},
    {"num_local_experts", EXPERTS, NULL},
    {"n_routed_experts", SIGMOID, NULL},
    {"n_shared_experts", SIGMOID, NULL},
    {"num_experts_per_tok", EXPERTS, NULL},
    {"experts_per_token", GPT_OSS, NULL},
    {"moe_intermediate_size", OF(QWEN3_MOE) | SIGMOID | NEXT, NULL},
    {"shared_expert_intermediate_size", NEXT, NULL},
    {"shared_expert_intermediate_size", OF(QWEN3_MOE), "0"},
    {"n_group", SIGMOID, NULL},
    {"topk_group", SIGMOID, NULL},
    {"routed_scaling_factor", SIGMOID, NULL},
    {"first_k_dense_replace", SIGMOID, NULL},
    {"use_qk_norm", GLM, NULL},
    {"use_qk_norm", OF(QWEN3_MOE), "true"},
    {"qkv_bias", OF(QWEN3_MOE), "false"},
    {"scoring_func", SIGMOID, "\"sigmoid\""},
    {"topk_method", SIGMOID, "\"noaux_tc\""},
    {"moe_layer_freq", SIGMOID, "1"},
    {"norm_topk_prob", OF(QWEN3_MOE) | SIGMOID | NEXT, "true"},
    {"decoder_sparse_step", OF(QWEN3_MOE) | NEXT, "1"},
    {"mlp_only_layers", OF(QWEN3_MOE) | NEXT, "[]"},
    {"router_jitter_noise", OF(MIXTRAL), "0.0|0"},
    {"router_aux_loss_coef", EXPERTS, ""},
    {"output_router_logits", EXPERTS, ""},
    {"num_nextn_predict_layers", SIGMOID, ""},
    {"swiglu_alpha", GPT_OSS, "1.702"},
    {"swiglu_limit", GPT_OSS, "7.0|7"},
    {"initial_context_length", GPT_OSS, ""},
    {"hidden_act", ALL, "\"silu\""},
    {"attention_bias", GLM, NULL},
    {"attention_bias", GPT_OSS, "true"},
    {"attention_bias", WHOLE & ~(GLM | GPT_OSS), "false"},
    {"mlp_bias", WHOLE, "false"},
    {"attention_dropout", WHOLE, "0.0|0"},
    {"partial_rotary_factor", GLM, NULL},
    {"partial_rotary_factor", WHOLE & ~GLM, "1.0|1"},
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

/* The numbers of few bits are those that are multiplied where loading makes bf16 of them without
 * rounding: of gpt-oss's, which are two bits times a power of two. */
static void check_quantised(Config *c, json_t *value)
{
    const char *method = json_string_value(json_object_get(value, "quant_method"));
    if (c->model->family == IMPORT_GPT_OSS && method && !strcmp(method, "mxfp4"))
        return;
    config_fault(c, "quantization_config", "is of weights that are not bf16",
                 "dequantise the checkpoint, as transformers does with dequantize=True, and import "
                 "the config that it is saved with");
}

static void check_field(Config *c, const char *name, json_t *value)
{
    int i = 0, family = (int)c->model->family;
    while (i < FIELDS && (strcmp(fields[i].name, name) || !(fields[i].families >> family & 1)))
        i++;
    const char *type = import_family_name(c->model->family);
    if (!strcmp(name, "quantization_config")) {
        check_quantised(c, value);
    } else if (i == FIELDS && c->model->part == IMPORT_WHOLE) {
        Diag *d = config_refuse(c, name, "is no field that an import understands");
        diag_note(c->diags, d, "remove it if a %s model computes the same without it, or write the "
                               "contract by hand: contracts/include has the pieces", type);
    } else if (i < FIELDS && fields[i].must && *fields[i].must && !json_is_null(value) &&
               !is_one_of(value, fields[i].must)) {
        Diag *d = config_refuse(c, name, "has a value that no family of ops here computes");
        diag_note(c->diags, d, "%s models are imported with %s", type, fields[i].must);
    }
}

/* Of a part's config, what other parts have is not looked at. */
void config_check_fields(Config *c)
{
    const char *name;
    json_t *value;
    json_object_foreach(c->root, name, value)
    {
        check_field(c, name, value);
    }
}
