/* The contract's text: params, trees, the families' ops, the model, layouts. */
#include "import_impl.h"

#include "base/device_text.h"

#include <math.h>
#include <string.h>

enum { RANKS_MOST = 8, MMA_GROUP = 16, VOCAB_UNIT = 128 };

/* ---- trees that ranks can share -------------------------------------------------------------- */

/* Row-parallel products have `odd` x `even` chains, the odd factor being the key heads'. */
typedef struct Parts {
    int odd, even;
} Parts;

static bool can_split(const ImportModel *m, int parts)
{
    i64 width = m->heads * m->head_dim;
    return width % ((i64)parts * MMA_GROUP) == 0 && m->ffn % ((i64)parts * MMA_GROUP) == 0;
}

static Parts parts_of(const ImportModel *m)
{
    Parts p = {1, 1};
    i64 odd = m->kv_heads;
    while (odd % 2 == 0)
        odd /= 2;
    if (odd > 1 && odd <= RANKS_MOST && can_split(m, (int)odd))
        p.odd = (int)odd;
    int most = p.odd == 1 ? RANKS_MOST : 2;
    while (p.even < most && can_split(m, p.odd * p.even * 2))
        p.even *= 2;
    return p;
}

static void split_text(Parts p, const char *leaf, Text *out)
{
    Str inner = p.even == 1 ? str_of(leaf)
                            : str_format(out->arena, "split %d { %s } pairwise f32", p.even, leaf);
    if (p.odd == 1)
        text_add(out, inner);
    else
        text_printf(out, "split %d { %.*s } left f32", p.odd, STR_FMT(inner));
}

static i64 stored_vocab(const ImportModel *m, Parts p)
{
    i64 parts = (i64)p.odd * p.even;
    return m->vocab % parts == 0 ? m->vocab : (m->vocab + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT;
}

/* Parts of the stored vocabulary: the last has the padding, which no sum has. */
static void vocab_tree(const ImportModel *m, Parts p, Text *out)
{
    static const char leaf[] = "every 1024 { lanes 128 by 8 { chain } pairwise f32 } left f32";
    int outer = p.odd > 1 ? p.odd : p.even;
    const char *join = p.odd > 1 ? "left" : "pairwise";
    if (outer == 1)
        text_printf(out, "%s", leaf);
    else if (m->vocab % outer == 0)
        text_printf(out, "split %d { %s } %s f32", outer, leaf, join);
    else
        text_printf(out, "every %lld { %s } %s f32", (long long)stored_vocab(m, p) / outer, leaf,
                    join);
}

/* ---- head ------------------------------------------------------------------------------------ */

static const char *const family_names[IMPORT_FAMILIES] = {
    [IMPORT_LLAMA] = "llama", [IMPORT_MISTRAL] = "mistral", [IMPORT_QWEN2] = "qwen2",
    [IMPORT_QWEN3] = "qwen3", [IMPORT_OLMO2] = "olmo2",     [IMPORT_OLMO3] = "olmo3",
    [IMPORT_QWEN3_MOE] = "qwen3_moe", [IMPORT_MIXTRAL] = "mixtral",
};

static void write_params(const ImportModel *m, Text *out)
{
    double scale = 1.4426950408889634 / sqrt((double)m->head_dim);
    text_printf(out, "param HIDDEN = %lld, FFN = %lld, KV_HEADS = %lld, GROUP = %lld, HALF = %lld, "
                "VOCAB = %lld;\n", (long long)m->hidden, (long long)m->ffn,
                (long long)m->kv_heads, (long long)(m->heads / m->kv_heads),
                (long long)(m->head_dim / 2), (long long)m->vocab);
    text_printf(out, "param EPS = %.*s, SCALE_LOG2 = %.8g;\n",
                STR_FMT(import_number(out->arena, m->eps)), scale);
    if (m->experts)
        text_printf(out, "param EXPERTS = %lld, PICKS = %lld, MOE_FFN = %lld;\n",
                    (long long)m->experts, (long long)m->picks, (long long)m->ffn);
    if (m->any_slides)
        text_printf(out, "param WINDOW = %lld;\n", (long long)m->window);
    if (import_is_olmo(m))
        text_printf(out, "param Q_WIDTH = %lld, K_WIDTH = %lld;\n",
                    (long long)(m->heads * m->head_dim), (long long)(m->kv_heads * m->head_dim));
}

static void write_trees(const ImportModel *m, Parts p, Text *out)
{
    text_printf(out, "\ntree parallel  = ");
    split_text(p, "mma", out);
    text_printf(out, ";\ntree vocab_row = ");
    vocab_tree(m, p, out);
    text_printf(out, ";\n");
    for (int i = 0; i < 2 && import_is_olmo(m); i++) {
        text_printf(out, i ? "tree k_row     = " : "tree q_row     = ");
        split_text(p, "lanes 16 by 8 { chain } pairwise f32", out);
        text_printf(out, ";\n");
    }
}

/* ---- families -------------------------------------------------------------------------------- */

static bool starts_with(Str line, const char *word)
{
    return line.n > (int)strlen(word) && !memcmp(line.s, word, strlen(word));
}

/* A file of contracts/include without what it includes and the params that it demands. */
static void write_piece(const char *name, Text *out)
{
    const DeviceText *piece = contract_texts;
    while (piece->name && strcmp(piece->name, name))
        piece++;
    Str left = {piece->text, (int)piece->size};
    text_printf(out, "\n");
    while (left.n > 0) {
        const char *end = memchr(left.s, '\n', (size_t)left.n);
        Str line = {left.s, end ? (int)(end - left.s) + 1 : left.n};
        if (!starts_with(line, "include ") && !starts_with(line, "param "))
            text_add(out, line);
        left = (Str){left.s + line.n, left.n - line.n};
    }
}

static void write_experts(Text *out)
{
    static const char *const pieces[] = {"moe-axes.isoi", "moe-router.isoi", "moe-gate-up.isoi",
                                         "moe-down.isoi", "moe-combine.isoi"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        write_piece(pieces[i], out);
}

static void write_ops(const ImportModel *m, i64 stored, Text *out)
{
    bool olmo = import_is_olmo(m);
    write_piece("dense-axes.isoi", out);
    if (stored == m->vocab)
        text_printf(out, "axis vocab = VOCAB;\n");
    else
        text_printf(out, "axis vocab = VOCAB in %lld;\n", (long long)stored);
    write_piece("dense-trees.isoi", out);
    write_piece("embedding.isoi", out);
    write_piece(olmo ? "norms-after.isoi" : "norms.isoi", out);
    write_piece(m->family == IMPORT_QWEN2 ? "qkv-bias.isoi" : "qkv.isoi", out);
    if (olmo)
        write_piece("qk-norm-wide.isoi", out);
    else if (m->family == IMPORT_QWEN3 || m->family == IMPORT_QWEN3_MOE)
        write_piece("qk-norm.isoi", out);
    write_piece("rope.isoi", out);
    if (m->any_full)
        write_piece("attention.isoi", out);
    if (m->any_slides)
        write_piece("sliding-attention.isoi", out);
    if (!olmo)
        write_piece("o-proj.isoi", out);
    if (m->experts)
        write_experts(out);
    else
        write_piece(olmo ? "products-plain.isoi" : "products.isoi", out);
    write_piece("lm-head-f32.isoi", out);
    write_piece("logprobs.isoi", out);
    write_piece("sampling.isoi", out);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static bool can_share(const ImportModel *m, Parts p, i64 stored, int ranks)
{
    bool shared = ranks % m->kv_heads == 0 && m->heads % ranks == 0;
    bool heads = m->kv_heads % ranks == 0 || (shared && !import_is_olmo(m)); /* k_norm sums them */
    return (p.odd * p.even) % ranks == 0 && heads && m->ffn % ranks == 0 && stored % ranks == 0;
}

static void write_layouts(const ImportModel *m, Parts p, i64 stored, Text *out)
{
    const char *ffn = m->experts ? "moe_ffn" : "ffn";
    text_printf(out, "\nlayout tp1 { }\n");
    for (int n = 2; n <= RANKS_MOST; n++) {
        const char *shared = m->kv_heads % n ? " replicating" : "";
        if (!can_share(m, p, stored, n))
            continue;
        text_printf(out, "layout tp%d { tp %d cuts kv_heads%s, %s, vocab; }\n", n, n, shared, ffn);
        text_printf(out, "layout tp%d_sp { tp %d cuts kv_heads%s, %s, vocab else tokens; }\n", n,
                    n, shared, ffn);
    }
    for (int n = 2; m->experts && n <= RANKS_MOST; n *= 2)
        text_printf(out, "layout ep%d { ep %d cuts experts else tokens; }\n", n, n);
}

void import_write(const ImportModel *m, Text *out)
{
    Parts p = parts_of(m);
    i64 stored = stored_vocab(m, p);
    text_printf(out, "# Imported from a config.json whose model_type is %s.\n",
                family_names[m->family]);
    text_printf(out, "contract %.*s version 1;\nnumerics sm_90;\n\n", STR_FMT(m->name));
    write_params(m, out);
    write_trees(m, p, out);
    write_ops(m, stored, out);
    import_write_model(m, out);
    write_layouts(m, p, stored, out);
}
