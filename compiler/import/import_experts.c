/* The mixture of experts that a config has: its sizes, its router, and what goes with it. */
#include "import_config.h"

/* What the families call their experts, and what stands beside those that a token chooses. */
static const struct {
    const char *experts, *other; /* other: what newer configs call them */
    const char *ffn, *shared;    /* shared: their ffn; or, by a router with a bias, their number */
    ImportRouter router;
} mixtures[IMPORT_FAMILIES] = {
    [IMPORT_QWEN3_MOE] = {"num_experts", "num_local_experts", "moe_intermediate_size", NULL,
                          ROUTER_SOFTMAX},
    [IMPORT_MIXTRAL] = {"num_local_experts", NULL, "intermediate_size", NULL, ROUTER_SOFTMAX},
    [IMPORT_GLM4_MOE] = {"n_routed_experts", "num_local_experts", "moe_intermediate_size",
                         "n_shared_experts", ROUTER_SIGMOID},
    [IMPORT_GPT_OSS] = {"num_local_experts", NULL, "intermediate_size", NULL, ROUTER_CHOSEN},
    [IMPORT_DEEPSEEK_V3] = {"n_routed_experts", "num_local_experts", "moe_intermediate_size",
                            "n_shared_experts", ROUTER_SIGMOID},
    [IMPORT_DEEPSEEK_V32] = {"n_routed_experts", "num_local_experts", "moe_intermediate_size",
                             "n_shared_experts", ROUTER_SIGMOID},
    [IMPORT_KIMI_K2] = {"n_routed_experts", "num_local_experts", "moe_intermediate_size",
                        "n_shared_experts", ROUTER_SIGMOID},
    [IMPORT_GLM4_MOE_LITE] = {"n_routed_experts", "num_local_experts", "moe_intermediate_size",
                              "n_shared_experts", ROUTER_SIGMOID},
    [IMPORT_QWEN3_NEXT] = {"num_experts", "num_local_experts", "moe_intermediate_size",
                           "shared_expert_intermediate_size", ROUTER_SOFTMAX},
    [IMPORT_QWEN3_5_MOE] = {"num_experts", "num_local_experts", "moe_intermediate_size",
                            "shared_expert_intermediate_size", ROUTER_SOFTMAX},
};

bool import_has_experts(ImportFamily family)
{
    return mixtures[family].experts != NULL;
}

static const char *experts_field(const Config *c)
{
    ImportFamily family = c->model->family;
    const char *other = mixtures[family].other;
    bool newer = other && !config_get(c, mixtures[family].experts) && config_get(c, other);
    return newer ? other : mixtures[family].experts;
}

/* Groups of experts are for the choice alone; ranks have eighths of all. */
static void check_experts(Config *c)
{
    const ImportMoe *moe = &c->model->moe;
    const char *name = experts_field(c);
    if (moe->experts % 8)
        config_fault(c, name, "is no multiple of 8", "their sum is of 8 equal groups of them");
    if (moe->picks > moe->experts)
        config_fault(c, "num_experts_per_tok", "is more than there are",
                     "a token has each expert once at most");
    if (moe->router != ROUTER_SIGMOID)
        return;
    if (moe->experts % moe->groups || moe->experts / moe->groups < 2)
        config_fault(c, "n_group", "makes no equal groups of two experts or more",
                     "a group's score is that of its two first experts");
    else if (moe->kept > moe->groups || moe->experts / moe->groups * moe->kept < moe->picks)
        config_fault(c, "topk_group", "keeps too many groups, or too few",
                     "what is kept has the experts that a token chooses");
}

static void read_sigmoid(Config *c)
{
    ImportMoe *moe = &c->model->moe;
    moe->groups = config_size(c, "n_group", SIZE_MOST, 0);
    moe->kept = config_size(c, "topk_group", SIZE_MOST, 0);
    moe->scale = config_positive(c, "routed_scaling_factor");
    moe->shared *= moe->ffn;
    json_t *first = config_get(c, "first_k_dense_replace");
    moe->dense_first = json_integer_value(first);
    if (c->model->part == IMPORT_WHOLE &&
        (!json_is_integer(first) || moe->dense_first < 0 || moe->dense_first >= c->model->layers))
        config_fault(c, "first_k_dense_replace", "is no number of some layers",
                     "so many layers have one feed-forward block, the others experts");
}

void config_read_experts(Config *c)
{
    ImportModel *m = c->model;
    const char *shared = mixtures[m->family].shared;
    if (!import_has_experts(m->family))
        return;
    m->moe.router = mixtures[m->family].router;
    m->moe.experts = config_size(c, experts_field(c), SIZE_MOST, 0);
    m->moe.picks = config_size(c, "num_experts_per_tok", SIZE_MOST, 0);
    m->moe.ffn = config_size(c, mixtures[m->family].ffn, SIZE_MOST, 0);
    m->moe.shared = shared ? config_size(c, shared, SIZE_MOST, 0) : 0;
    m->moe.shared_gate = shared && m->moe.router == ROUTER_SOFTMAX;
    if (m->moe.router == ROUTER_SIGMOID)
        read_sigmoid(c);
    bool may_not_scale = m->family == IMPORT_QWEN3_MOE || m->family == IMPORT_QWEN3_NEXT;
    if (may_not_scale && !config_get(c, "norm_topk_prob"))
        config_fault(c, "norm_topk_prob", "is missing, which is false",
                     "a mixture of experts is imported with true");
    if (config_get(c, "experts_per_token") &&
        config_size(c, "experts_per_token", SIZE_MOST, 0) != m->moe.picks)
        config_fault(c, "experts_per_token", "contradicts \"num_experts_per_tok\"",
                     "keep the one that the model has");
    check_experts(c);
}
