/* What reading a config and writing the contract share; private to import*.c.
 * Ownership: as import.h. */
#ifndef ISOC_IMPORT_IMPL_H
#define ISOC_IMPORT_IMPL_H

#include "import.h"

typedef enum ImportFamily {
    IMPORT_LLAMA,
    IMPORT_MISTRAL,
    IMPORT_QWEN2,
    IMPORT_QWEN3,
    IMPORT_OLMO2,
    IMPORT_OLMO3,
    IMPORT_QWEN3_MOE,
    IMPORT_MIXTRAL,
    IMPORT_GLM4_MOE,
    IMPORT_GPT_OSS,
    IMPORT_DEEPSEEK_V3, /* from here on the mixture of experts alone */
    IMPORT_DEEPSEEK_V32,
    IMPORT_KIMI_K2,
    IMPORT_GLM4_MOE_LITE,
    IMPORT_QWEN3_NEXT,
    IMPORT_QWEN3_5_MOE,
    IMPORT_FAMILIES
} ImportFamily;

typedef enum ImportRouter {
    ROUTER_SOFTMAX, /* over all experts, then those chosen make up 1 */
    ROUTER_SIGMOID, /* with a bias for the choice, among groups of experts */
    ROUTER_CHOSEN,  /* softmax over the chosen; biases everywhere, as gpt-oss has them */
} ImportRouter;

typedef struct ImportMoe {
    i64 experts, picks, ffn; /* experts 0: no mixture of experts */
    i64 shared;              /* ffn of what all tokens have besides; 0: nothing */
    bool shared_gate;        /* by a gate of its own */
    i64 dense_first;         /* layers before the first mixture */
    ImportRouter router;
    i64 groups, kept; /* ROUTER_SIGMOID */
    double scale;
} ImportMoe;

/* The settings of a table as they stand in the contract, "theta 10000; scaling linear; ...". */
typedef struct ImportModel {
    ImportFamily family;
    ImportPart part;
    Str name;
    ImportMoe moe;
    i64 hidden, ffn, heads, kv_heads, head_dim, layers, vocab, positions, window;
    double eps;
    bool tied;
    bool qkv_bias, head_norm;
    bool half_turns;  /* rotary embedding turns the first half of a head alone */
    Str rope;         /* of layers that see everything */
    Str sliding_rope; /* of those with a window, where it is another; else empty */
    bool *slides;     /* per layer */
    bool any_slides, any_full;
} ImportModel;

static inline bool import_is_olmo(const ImportModel *m)
{
    return m->family == IMPORT_OLMO2 || m->family == IMPORT_OLMO3;
}

/* Whether some layer has one feed-forward block for all tokens. */
static inline bool import_has_dense(const ImportModel *m)
{
    return !m->moe.experts || m->moe.dense_first > 0;
}

/* The axis of an expert's hidden values, which tensor parallelism cuts. */
static inline const char *import_expert_axis(const ImportModel *m)
{
    return m->moe.router == ROUTER_CHOSEN ? "inner" : "moe_ffn";
}

/* "qwen3_moe" */
const char *import_family_name(ImportFamily family);
/* The shortest decimal text that is read back as the number. */
Str import_number(Arena *arena, double value);
bool import_has_experts(ImportFamily family);
bool import_read(int file, ImportPart part, ImportModel *model, Arena *arena, Diags *diags);
/* "model { ... }" */
void import_write_model(const ImportModel *model, Text *out);
void import_write(const ImportModel *model, Text *out);

#endif
