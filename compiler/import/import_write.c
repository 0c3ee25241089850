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
    i64 unit = (i64)parts * MMA_GROUP;
    bool dense = m->part == IMPORT_WHOLE && import_has_dense(m);
    return m->heads * m->head_dim % unit == 0 && m->moe.ffn % unit == 0 &&
           m->moe.shared % unit == 0 && (!dense || m->ffn % unit == 0);
}

static Parts parts_of(const ImportModel *m)
{
    Parts p = {1, 1};
    i64 odd = m->part == IMPORT_WHOLE ? m->kv_heads : 1;
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

/* Of the vocabulary's tree. */
static int vocab_parts(Parts p)
{
    return p.odd > 1 ? p.odd : 2 * p.even;
}

static i64 stored_vocab(const ImportModel *m, Parts p)
{
    i64 parts = p.odd > 1 ? (i64)p.odd * p.even : vocab_parts(p);
    return m->vocab % parts == 0 ? m->vocab : (m->vocab + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT;
}

/* Parts of the stored vocabulary: the last has the padding, which no sum has. Blocks are those that
 * a product's tile reduces (iso_fold.cuh), so that a head without logits has the same bits. */
static void vocab_tree(const ImportModel *m, Parts p, Text *out)
{
    static const char leaf[] = "every 256 { lanes 8 by 2 { chain } pairwise f32 } pairwise f32";
    int outer = vocab_parts(p);
    if (m->vocab % outer == 0)
        text_printf(out, "split %d { %s } pairwise f32", outer, leaf);
    else
        text_printf(out, "every %lld { %s } pairwise f32", (long long)stored_vocab(m, p) / outer,
                    leaf);
}

/* ---- head ------------------------------------------------------------------------------------ */

static void write_moe_params(const ImportMoe *moe, Text *out)
{
    text_printf(out, "param EXPERTS = %lld, PICKS = %lld, MOE_FFN = %lld;\n",
                (long long)moe->experts, (long long)moe->picks, (long long)moe->ffn);
    if (moe->shared)
        text_printf(out, "param SHARED_FFN = %lld;\n", (long long)moe->shared);
    if (moe->router == ROUTER_SIGMOID)
        text_printf(out, "param EXPERT_GROUPS = %lld, KEPT_GROUPS = %lld, WEIGHT_SCALE = %.*s;\n",
                    (long long)moe->groups, (long long)moe->kept,
                    STR_FMT(import_number(out->arena, moe->scale)));
}

static void write_params(const ImportModel *m, Text *out)
{
    double scale = 1.4426950408889634 / sqrt((double)m->head_dim);
    text_printf(out, "param HIDDEN = %lld, FFN = %lld, KV_HEADS = %lld, GROUP = %lld, HALF = %lld, "
                "VOCAB = %lld;\n", (long long)m->hidden, (long long)m->ffn,
                (long long)m->kv_heads, (long long)(m->heads / m->kv_heads),
                (long long)(m->head_dim / (m->half_turns ? 4 : 2)), (long long)m->vocab);
    text_printf(out, "param EPS = %.*s, SCALE_LOG2 = %.8g;\n",
                STR_FMT(import_number(out->arena, m->eps)), scale);
    if (m->moe.experts)
        write_moe_params(&m->moe, out);
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

static void write_pieces(const char *const *pieces, Text *out)
{
    for (; *pieces; pieces++)
        write_piece(*pieces, out);
}

static void write_experts(const ImportMoe *moe, Text *out)
{
    static const char *const chosen[] = {"moe-axes.isoi", "moe-combine.isoi", "moe-gpt-oss.isoi",
                                         NULL};
    static const char *const plain[] = {"moe-axes.isoi", "moe-router.isoi", "moe-gate-up.isoi",
                                        "moe-down.isoi", NULL};
    static const char *const sigmoid[] = {"moe-axes.isoi", "moe-router-sigmoid.isoi",
                                          "moe-gate-up.isoi", "moe-down.isoi", NULL};
    if (moe->router == ROUTER_CHOSEN) {
        write_pieces(chosen, out);
        return;
    }
    write_pieces(moe->router == ROUTER_SIGMOID ? sigmoid : plain, out);
    if (moe->shared)
        write_piece("moe-shared.isoi", out);
    write_piece(!moe->shared        ? "moe-combine.isoi"
                : moe->shared_gate ? "moe-combine-gated.isoi"
                                   : "moe-combine-shared.isoi",
                out);
}

static void write_attention(const ImportModel *m, Text *out)
{
    bool sinks = m->family == IMPORT_GPT_OSS;
    write_piece(m->qkv_bias ? "qkv-bias.isoi" : "qkv.isoi", out);
    if (import_is_olmo(m))
        write_piece("qk-norm-wide.isoi", out);
    else if (m->head_norm)
        write_piece("qk-norm.isoi", out);
    write_piece(m->half_turns ? "rope-half.isoi" : "rope.isoi", out);
    if (m->any_full)
        write_piece(sinks ? "attention-sinks.isoi" : "attention.isoi", out);
    if (m->any_slides)
        write_piece(sinks ? "sliding-attention-sinks.isoi" : "sliding-attention.isoi", out);
    if (!import_is_olmo(m))
        write_piece(sinks ? "o-proj-bias.isoi" : "o-proj.isoi", out);
}

static void write_ops(const ImportModel *m, i64 stored, Text *out)
{
    bool olmo = import_is_olmo(m);
    write_piece(m->half_turns ? "half-axes.isoi" : "dense-axes.isoi", out);
    if (stored == m->vocab)
        text_printf(out, "axis vocab = VOCAB;\n");
    else
        text_printf(out, "axis vocab = VOCAB in %lld;\n", (long long)stored);
    write_piece("dense-trees.isoi", out);
    write_piece("embedding.isoi", out);
    write_piece(olmo                           ? "norms-after.isoi"
                : m->family == IMPORT_GPT_OSS ? "norms-f32.isoi"
                                              : "norms.isoi",
                out);
    write_attention(m, out);
    if (import_has_dense(m))
        write_piece(olmo ? "products-plain.isoi" : "products.isoi", out);
    if (m->moe.experts)
        write_experts(&m->moe, out);
    write_piece("lm-head-f32.isoi", out);
    write_piece("logprobs.isoi", out);
    write_piece("sampling.isoi", out);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static bool can_share(const ImportModel *m, Parts p, int ranks)
{
    bool dense = m->part == IMPORT_WHOLE && import_has_dense(m);
    return p.odd * p.even % ranks == 0 && m->moe.ffn % ranks == 0 && m->moe.shared % ranks == 0 &&
           (!dense || m->ffn % ranks == 0);
}

static bool can_share_all(const ImportModel *m, Parts p, i64 stored, int ranks)
{
    bool shared = ranks % m->kv_heads == 0 && m->heads % ranks == 0;
    bool heads = m->kv_heads % ranks == 0 || (shared && !import_is_olmo(m)); /* k_norm sums them */
    return heads && stored % ranks == 0 && can_share(m, p, ranks);
}

static void put_cut(bool there, const char *axis, bool *any, Text *out)
{
    if (there)
        text_printf(out, "%s %s", *any ? "," : " cuts", axis);
    *any |= there;
}

/* What a mesh of so many ranks cuts of attention, feed-forward blocks and the vocabulary. */
static void put_cuts(const ImportModel *m, int ranks, bool experts, Text *out)
{
    bool whole = m->part == IMPORT_WHOLE, any = false;
    put_cut(whole, m->kv_heads % ranks ? "kv_heads replicating" : "kv_heads", &any, out);
    put_cut(whole && import_has_dense(m), "ffn", &any, out);
    put_cut(experts, import_expert_axis(m), &any, out);
    put_cut(m->moe.shared > 0, "shared_ffn", &any, out);
    put_cut(whole, "vocab", &any, out);
}

/* Ranks with their own rows, and so many that share them out, all of which have experts. */
static void put_folded(const ImportModel *m, int ranks, Text *out)
{
    text_printf(out, "layout tp%d_ep8_sp { dp %d cuts tokens; tp %d", ranks, 8 / ranks, ranks);
    put_cuts(m, ranks, false, out);
    text_printf(out, " else tokens; ep = dp * tp cuts experts; }\n");
}

static void write_layouts(const ImportModel *m, Parts p, i64 stored, Text *out)
{
    text_printf(out, "\nlayout tp1 { }\n");
    for (int n = 2; n <= RANKS_MOST; n++)
        for (int rows = 0; rows < 2 && can_share_all(m, p, stored, n); rows++) {
            text_printf(out, rows ? "layout tp%d_sp { tp %d" : "layout tp%d { tp %d", n, n);
            put_cuts(m, n, m->moe.experts > 0, out);
            text_printf(out, rows ? " else tokens; }\n" : "; }\n");
        }
    for (int n = 2; m->moe.experts && n <= RANKS_MOST; n *= 2)
        text_printf(out, "layout ep%d { ep %d cuts experts else tokens; }\n", n, n);
    for (int n = 2; m->moe.experts && n < RANKS_MOST; n *= 2)
        if (can_share_all(m, p, stored, n))
            put_folded(m, n, out);
}

/* Layouts of the part: ranks cut experts inside, have some of them, or both. */
static void write_part_layouts(const ImportModel *m, Parts p, Text *out)
{
    text_printf(out, "\nlayout tp1 { }\n");
    for (int n = 2; n <= RANKS_MOST; n++)
        if (can_share(m, p, n)) {
            text_printf(out, "layout tp%d { tp %d", n, n);
            put_cuts(m, n, true, out);
            text_printf(out, "; }\n");
        }
    for (int n = 2; n <= RANKS_MOST; n *= 2)
        text_printf(out, "layout ep%d { ep %d cuts experts else tokens; }\n", n, n);
    if (!can_share(m, p, 2))
        return;
    text_printf(out, "layout tp2_ep4 { dp 4 cuts tokens; tp 2");
    put_cuts(m, 2, true, out);
    text_printf(out, "; ep = dp cuts experts; }\n");
}

/* The ops of one layer's experts, over axes of their own. */
static void write_part(const ImportModel *m, Parts p, Text *out)
{
    text_printf(out, "param HIDDEN = %lld;\n", (long long)m->hidden);
    write_moe_params(&m->moe, out);
    text_printf(out, "\ntree parallel = ");
    split_text(p, "mma", out);
    text_printf(out, ";\n\naxis tokens = sequence * position ragged;\naxis hidden = HIDDEN;\n");
    write_piece("dense-trees.isoi", out);
    write_experts(&m->moe, out);
    write_part_layouts(m, p, out);
}

static void write_whole(const ImportModel *m, Parts p, Text *out)
{
    i64 stored = stored_vocab(m, p);
    write_params(m, out);
    write_trees(m, p, out);
    write_ops(m, stored, out);
    import_write_model(m, out);
    write_layouts(m, p, stored, out);
}

void import_write(const ImportModel *m, Text *out)
{
    Parts p = parts_of(m);
    text_printf(out, "# Imported from a config.json whose model_type is %s.\n",
                import_family_name(m->family));
    text_printf(out, "contract %.*s version 1;\nnumerics sm_90;\n\n", STR_FMT(m->name));
    if (m->part == IMPORT_MOE)
        write_part(m, p, out);
    else
        write_whole(m, p, out);
}
