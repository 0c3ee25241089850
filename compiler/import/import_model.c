/* The model's text: equal layers written once, in repeats. */
#include "import_impl.h"

enum { PERIOD_MOST = 8 };

/* Layers first, first + step, ..., as one repeat's statements name them: "{4*layer+3}". */
typedef struct Layers {
    const ImportModel *m;
    int step, first;
    bool slides, dense;
    Text *out;
} Layers;

static void put(const Layers *l, const char *text)
{
    text_printf(l->out, "%s", text);
}

/* "model.layers.{layer}.NAME.KIND", or without a kind where it has none. */
static void put_weight(const Layers *l, const char *param, const char *name, const char *kind)
{
    text_printf(l->out, "%s: \"model.layers.{", param);
    if (l->step > 1)
        text_printf(l->out, "%d*", l->step);
    put(l, "layer");
    if (l->first)
        text_printf(l->out, "+%d", l->first);
    text_printf(l->out, *kind ? "}.%s.%s\"" : "}.%s\"", name, kind);
}

static void put_weights(const Layers *l, const char *const *params, const char *const *names,
                        int n, const char *kind)
{
    for (int i = 0; i < n; i++) {
        put(l, n > 1 ? ",\n                      " : ", ");
        put_weight(l, params[i], names[i], kind);
    }
}

static void put_attention(const Layers *l)
{
    static const char *const weights[] = {"wq", "wk", "wv"}, *const biases[] = {"bq", "bk", "bv"};
    static const char *const names[] = {"self_attn.q_proj", "self_attn.k_proj",
                                        "self_attn.v_proj"};
    const ImportModel *m = l->m;
    bool own_table = l->slides && m->sliding_rope.n && m->any_full;
    text_printf(l->out, "        q, k, v = qkv(%s", import_is_olmo(m) ? "x" : "h");
    put_weights(l, weights, names, 3, "weight");
    if (m->qkv_bias)
        put_weights(l, biases, names, 3, "bias");
    put(l, ");\n");
    if (m->head_norm || import_is_olmo(m)) {
        put(l, "        q = q_norm(q, ");
        put_weight(l, "w", "self_attn.q_norm", "weight");
        put(l, ");\n        k = k_norm(k, ");
        put_weight(l, "w", "self_attn.k_norm", "weight");
        put(l, ");\n");
    }
    for (int i = 0; i < 2; i++)
        text_printf(l->out, "        %s = %s_rope(%s, %s);\n", i ? "k" : "q", i ? "k" : "q",
                    i ? "k" : "q", own_table ? "near_cos, near_sin" : "cos, sin");
    put(l, "        cache keys = k, values = v;\n");
    text_printf(l->out, "        o, sums = %s(q, keys, values",
                l->slides ? "sliding_attention" : "attention");
    if (m->family == IMPORT_GPT_OSS) {
        put(l, ", ");
        put_weight(l, "sinks", "self_attn.sinks", "");
    }
    put(l, ");\n");
}

static void put_call(const Layers *l, const char *call, const char *name, const char *rest)
{
    text_printf(l->out, "        %s, ", call);
    put_weight(l, "w", name, "weight");
    text_printf(l->out, "%s);\n", rest);
}

static void put_output(const Layers *l)
{
    put(l, "        x = o_proj(o, ");
    put_weight(l, "w", "self_attn.o_proj", "weight");
    if (l->m->family == IMPORT_GPT_OSS) {
        put(l, ", ");
        put_weight(l, "b", "self_attn.o_proj", "bias");
    }
    put(l, ", res: x);\n");
}

static void put_gate_up(const Layers *l, const char *call, const char *gate, const char *up)
{
    static const char *const params[] = {"wg", "wu"};
    const char *const names[] = {gate, up};
    text_printf(l->out, "        %s", call);
    put_weights(l, params, names, 2, "weight");
    put(l, ");\n");
}

/* Gate, up and down of each expert, and the router, by the family's names. */
static void put_chosen(const Layers *l)
{
    static const char *const names[2][4] = {
        {"mlp.experts.{experts}.gate_proj", "mlp.experts.{experts}.up_proj",
         "mlp.experts.{experts}.down_proj", "mlp.gate"},
        {"block_sparse_moe.experts.{experts}.w1", "block_sparse_moe.experts.{experts}.w3",
         "block_sparse_moe.experts.{experts}.w2", "block_sparse_moe.gate"},
    };
    const char *const *own = names[l->m->family == IMPORT_MIXTRAL];
    put_call(l, "logits = router(h", own[3], "");
    put(l, "        chosen, weight = route(logits");
    if (l->m->moe.router == ROUTER_SIGMOID) {
        put(l, ", ");
        put_weight(l, "bias", "mlp.gate.e_score_correction_bias", "");
    }
    put(l, ");\n");
    put_gate_up(l, "a = expert_gate_up(h, chosen", own[0], own[1]);
    put_call(l, "d = expert_down(a, chosen", own[2], "");
}

/* One tensor of all experts, each as it is multiplied from the left, with a bias. */
static void put_stack(const Layers *l, const char *call, const char *name, const char *bias,
                      const char *axes)
{
    text_printf(l->out, "        %s, ", call);
    put_weight(l, "w", name, "");
    text_printf(l->out, " [experts, %s],\n                      ", axes);
    put_weight(l, "b", bias, "");
    put(l, ");\n");
}

static void put_biased(const Layers *l)
{
    put(l, "        logits = router(h, ");
    put_weight(l, "w", "mlp.router", "weight");
    put(l, ", ");
    put_weight(l, "b", "mlp.router", "bias");
    put(l, ");\n        chosen, weight = route(logits);\n");
    put_stack(l, "a = expert_gate_up(h, chosen", "mlp.experts.gate_up_proj",
              "mlp.experts.gate_up_proj_bias", "hidden, gate_and_up");
    put_stack(l, "d = expert_down(a, chosen", "mlp.experts.down_proj",
              "mlp.experts.down_proj_bias", "inner, hidden");
}

static void put_experts(const Layers *l)
{
    if (l->m->moe.router == ROUTER_CHOSEN)
        put_biased(l);
    else
        put_chosen(l);
    if (l->m->moe.shared) {
        put_gate_up(l, "s = shared_gate_up(h", "mlp.shared_experts.gate_proj",
                    "mlp.shared_experts.up_proj");
        put_call(l, "s = shared_down(s", "mlp.shared_experts.down_proj", "");
    }
    text_printf(l->out, "        x = combine(d, weight, chosen, %sres: x);\n",
                l->m->moe.shared ? "shared: s, " : "");
}

static void put_layer(const Layers *l)
{
    const ImportModel *m = l->m;
    if (import_is_olmo(m)) {
        put_attention(l);
        put_call(l, "h = o_proj(o", "self_attn.o_proj", "");
        put_call(l, "x = post_norm(h", "post_attention_layernorm", ", res: x");
        put_gate_up(l, "h = gate_up(x", "mlp.gate_proj", "mlp.up_proj");
        put_call(l, "h = down(h", "mlp.down_proj", "");
        put_call(l, "x = ffn_norm(h", "post_feedforward_layernorm", ", res: x");
        return;
    }
    put_call(l, "h = input_norm(x", "input_layernorm", "");
    put_attention(l);
    put_output(l);
    put_call(l, "h = post_norm(x", "post_attention_layernorm", "");
    if (!l->dense) {
        put_experts(l);
        return;
    }
    put_gate_up(l, "h = gate_up(h", "mlp.gate_proj", "mlp.up_proj");
    put_call(l, "x = down(h", "mlp.down_proj", ", res: x");
}

static bool is_dense(const ImportModel *m, int layer)
{
    return !m->moe.experts || layer < m->moe.dense_first;
}

static bool same_kind(const ImportModel *m, int a, int b)
{
    return m->slides[a] == m->slides[b] && is_dense(m, a) == is_dense(m, b);
}

/* The shortest period of the layers' kinds that divides their number; 0 if it is long. */
static int period_of(const ImportModel *m)
{
    for (int p = 1; p <= PERIOD_MOST; p++) {
        bool repeats = m->layers % p == 0;
        for (int i = p; repeats && i < (int)m->layers; i++)
            repeats = same_kind(m, i, i - p);
        if (repeats)
            return p;
    }
    return 0;
}

static void put_layers(const ImportModel *m, Text *out)
{
    int period = period_of(m);
    if (period) {
        text_printf(out, "    repeat %lld as layer {\n", (long long)m->layers / period);
        for (int i = 0; i < period; i++)
            put_layer(&(Layers){m, period, i, m->slides[i], is_dense(m, i), out});
        text_printf(out, "    }\n");
        return;
    }
    for (int first = 0, end; first < (int)m->layers; first = end) {
        for (end = first + 1; end < (int)m->layers && same_kind(m, end, first);)
            end++;
        text_printf(out, "    repeat %d as layer {\n", end - first);
        put_layer(&(Layers){m, 1, first, m->slides[first], is_dense(m, first), out});
        text_printf(out, "    }\n");
    }
}

void import_write_model(const ImportModel *m, Text *out)
{
    bool own_table = m->any_slides && m->sliding_rope.n;
    text_printf(out, "\nmodel decoder {\n"
                     "    input ids, targets: vocab[tokens], temperature: f32[tokens];\n"
                     "    input seed, stream, top_k: i32[tokens], top_p, min_p: f32[tokens];\n");
    text_printf(out, "    table cos, sin: bf16[position, rot] = rope { %.*s };\n",
                STR_FMT(own_table && !m->any_full ? m->sliding_rope : m->rope));
    if (own_table && m->any_full)
        text_printf(out, "    table near_cos, near_sin: bf16[position, rot] = rope { %.*s };\n",
                    STR_FMT(m->sliding_rope));
    text_printf(out, "    x = embedding(ids, w: \"model.embed_tokens.weight\");\n");
    put_layers(m, out);
    text_printf(out, "    x        = final_norm(x, w: \"model.norm.weight\");\n"
                     "    logits   = lm_head(x, w: \"%s\");\n"
                     "    z        = scaled_logits(logits, temperature);\n"
                     "    lse      = vocab_lse(z);\n"
                     "    zt       = target_logit(z, targets);\n"
                     "    logprob  = token_logprob(zt, lse);\n"
                     "    logprobs = log_softmax(z, lse);\n"
                     "    token    = sample(z, seed, stream, top_k, top_p, min_p);\n"
                     "    zt       = target_logit(z, token);\n"
                     "    token_logprob = token_logprob(zt, lse);\n"
                     "    output logits, logprob, logprobs, token, token_logprob;\n"
                     "}\n", m->tied ? "model.embed_tokens.weight" : "lm_head.weight");
}
