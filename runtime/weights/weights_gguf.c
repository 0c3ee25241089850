/* GGUF: metadata, tensors by llama.cpp's names, and blocks of quantised elements. Names become
 * Hugging Face's; in the architecture `llama` the rows of q and k are put back in its order. */
#include "weights_impl.h"

#include <stdio.h>
#include <string.h>

#define STACK "{*}" /* in a name: the index along the tensor's first axis */

enum { NAME_ROOM = 256, DEPTH_MOST = 4, TENSORS_MOST = 1 << 20 };

typedef struct Cursor {
    const unsigned char *data;
    size_t size, at;
    bool bad; /* something reached past the end, or was none of the format's */
} Cursor;

typedef struct Text {
    const char *s;
    size_t n;
} Text;

/* What of the metadata decides how tensors are read. */
typedef struct Meta {
    Text architecture;
    uint64_t alignment, heads, kv_heads;
} Meta;

static uint64_t take(Cursor *c, int bytes)
{
    uint64_t value = 0;
    if (c->bad || c->size - c->at < (size_t)bytes) {
        c->bad = true;
        return 0;
    }
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | c->data[c->at + (size_t)i];
    c->at += (size_t)bytes;
    return value;
}

static void skip(Cursor *c, uint64_t bytes)
{
    if (c->bad || bytes > c->size - c->at)
        c->bad = true;
    else
        c->at += (size_t)bytes;
}

static Text take_text(Cursor *c)
{
    uint64_t n = take(c, 8);
    Text text = {(const char *)c->data + c->at, (size_t)n};
    skip(c, n);
    return c->bad ? (Text){"", 0} : text;
}

static bool is(Text text, const char *s)
{
    return text.n == strlen(s) && !memcmp(text.s, s, text.n);
}

static bool ends(Text text, const char *s)
{
    size_t n = strlen(s);
    return text.n >= n && !memcmp(text.s + text.n - n, s, n);
}

/* ---- metadata -------------------------------------------------------------------------------- */

enum { KIND_STRING = 8, KIND_ARRAY = 9, KINDS = 13 };

static const int kind_bytes[KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static void skip_value(Cursor *c, uint64_t kind, int depth)
{
    if (kind >= KINDS || depth > DEPTH_MOST) {
        c->bad = true;
    } else if (kind == KIND_STRING) {
        take_text(c);
    } else if (kind == KIND_ARRAY) {
        uint64_t of = take(c, 4), n = take(c, 8);
        if (of < KINDS && kind_bytes[of]) {
            if (n > c->size)
                c->bad = true;
            skip(c, n * (uint64_t)kind_bytes[of]);
            return;
        }
        for (uint64_t i = 0; i < n && !c->bad; i++)
            skip_value(c, of, depth + 1);
    } else {
        skip(c, (uint64_t)kind_bytes[kind]);
    }
}

static void read_pair(Cursor *c, Meta *meta)
{
    Text key = take_text(c);
    uint64_t kind = take(c, 4);
    bool count = kind == 4 || kind == 5 || kind == 10 || kind == 11;
    if (kind == KIND_STRING && is(key, "general.architecture"))
        meta->architecture = take_text(c);
    else if (count && is(key, "general.alignment"))
        meta->alignment = take(c, kind_bytes[kind]);
    else if (count && ends(key, ".attention.head_count"))
        meta->heads = take(c, kind_bytes[kind]);
    else if (count && ends(key, ".attention.head_count_kv"))
        meta->kv_heads = take(c, kind_bytes[kind]);
    else
        skip_value(c, kind, 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const struct Renamed {
    const char *own, *theirs;
} of_model[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"},
}, of_layer[] = {
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts." STACK ".gate_proj"},
    {"ffn_up_exps", "mlp.experts." STACK ".up_proj"},
    {"ffn_down_exps", "mlp.experts." STACK ".down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
}, of_mixtral[] = { /* whose architecture is llama too */
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts." STACK ".w1"},
    {"ffn_up_exps", "block_sparse_moe.experts." STACK ".w3"},
    {"ffn_down_exps", "block_sparse_moe.experts." STACK ".w2"},
};

static const char *theirs(const struct Renamed *table, size_t n, Text own)
{
    for (size_t i = 0; i < n; i++)
        if (is(own, table[i].own))
            return table[i].theirs;
    return NULL;
}

/* "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight". What is no weight of a layer,
 * as precomputed frequencies, keeps its name. */
static int rename_tensor(const Meta *meta, Text name, char *out)
{
    size_t dot = name.n;
    while (dot > 0 && name.s[dot - 1] != '.')
        dot--;
    Text stem = {name.s, dot ? dot - 1 : 0}, kind = {name.s + dot, name.n - dot};
    size_t digits = 4;
    const char *found = theirs(of_model, sizeof of_model / sizeof *of_model, stem);
    if (found)
        return snprintf(out, NAME_ROOM, "%s.%.*s", found, (int)kind.n, kind.s);
    while (digits < stem.n && stem.s[digits] >= '0' && stem.s[digits] <= '9')
        digits++;
    bool layer = stem.n > digits + 1 && digits > 4 && !memcmp(stem.s, "blk.", 4) &&
                 stem.s[digits] == '.';
    Text own = layer ? (Text){stem.s + digits + 1, stem.n - digits - 1} : (Text){"", 0};
    if (layer && is(meta->architecture, "llama"))
        found = theirs(of_mixtral, sizeof of_mixtral / sizeof *of_mixtral, own);
    if (layer && !found)
        found = theirs(of_layer, sizeof of_layer / sizeof *of_layer, own);
    if (found)
        return snprintf(out, NAME_ROOM, "model.layers.%.*s.%s.%.*s", (int)digits - 4, stem.s + 4,
                        found, (int)kind.n, kind.s);
    return snprintf(out, NAME_ROOM, "%.*s", (int)name.n, name.s);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool type_numbered(uint64_t number, WeightType *type)
{
    static const uint64_t numbers[] = {
#define X(id, name, elements, bytes, gguf) gguf,
        WEIGHT_TYPES(X)
#undef X
    };
    for (int i = 0; i < WT_COUNT; i++)
        if (numbers[i] == number) {
            *type = (WeightType)i;
            return true;
        }
    return false;
}

/* Only the architecture `llama` has q and k by interleaved pairs; its loader permutes them. */
static bool set_heads(const Meta *meta, WeightEntry *entry)
{
    const char *q = strstr(entry->name, ".self_attn.q_proj.");
    const char *k = strstr(entry->name, ".self_attn.k_proj.");
    if (!is(meta->architecture, "llama") || (!q && !k))
        return true;
    uint64_t heads = k && meta->kv_heads ? meta->kv_heads : meta->heads;
    if (!heads || heads > 65536 || entry->size[0] % (int64_t)(2 * heads))
        return false;
    entry->heads = (int)heads;
    return true;
}

/* Sizes are written from the innermost on. */
static bool read_sizes(Cursor *c, WeightEntry *entry)
{
    uint64_t n = take(c, 4);
    if (n < 1 || n > ISO_MAX_AXES)
        return false;
    entry->n_axes = (int)n;
    for (int i = entry->n_axes - 1; i >= 0; i--) {
        uint64_t size = take(c, 8);
        if (size > INT64_MAX / 2)
            return false;
        entry->size[i] = (int64_t)size;
    }
    return true;
}

static iso_status read_tensor(Weights *weights, Cursor *c, const Meta *meta, const char *label)
{
    char name[NAME_ROOM];
    WeightEntry entry = {0};
    Text own = take_text(c);
    if (c->bad || own.n == 0 || own.n > 128 || memchr(own.s, 0, own.n))
        return iso_fail(ISO_BAD_WEIGHT, "%s: a tensor's name is none", label);
    if (!read_sizes(c, &entry))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %.*s has a shape that is none", label, (int)own.n,
                        own.s);
    uint64_t number = take(c, 4);
    skip(c, 8);
    if (!type_numbered(number, &entry.type))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %.*s has the element type %llu, which is not read; "
                        "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K are", label, (int)own.n,
                        own.s, (unsigned long long)number);
    if (!weight_elements(&entry))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %.*s has rows that are no whole blocks", label,
                        (int)own.n, own.s);
    int n = rename_tensor(meta, own, name);
    WeightEntry *added = weights_add(weights, name, (size_t)n);
    if (!added)
        return ISO_OUT_OF_MEMORY;
    entry.name = added->name;
    *added = entry;
    return ISO_OK;
}

/* Where the data starts is known once all headers are read: they are gone through again. */
static iso_status place_tensor(WeightEntry *entry, const Meta *meta, const unsigned char *data,
                               uint64_t room, uint64_t offset, const char *label)
{
    uint64_t bytes = (uint64_t)(entry->elements / weight_block_elements(entry->type)) *
                     (uint64_t)weight_block_bytes(entry->type);
    if (offset > room || bytes > room - offset)
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has bytes outside of the file", label,
                        entry->name);
    if (!set_heads(meta, entry))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has rows that are no pairs of its heads", label,
                        entry->name);
    entry->data = data + offset;
    return ISO_OK;
}

/* A tensor for each expert of a stack, by Hugging Face's names. */
static iso_status unstack_one(Weights *weights, int index, const char *label)
{
    WeightEntry stack = weights->entries[index], one = stack;
    const char *at = strstr(stack.name, STACK);
    char name[NAME_ROOM];
    if (stack.n_axes != 3 || stack.size[0] < 1)
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s is no stack of matrices", label, stack.name);
    one.n_axes = 2;
    one.size[0] = stack.size[1];
    one.size[1] = stack.size[2];
    one.elements = stack.elements / stack.size[0];
    int64_t bytes = one.elements / weight_block_elements(one.type) * weight_block_bytes(one.type);
    for (int64_t i = 0; i < stack.size[0]; i++) {
        int n = snprintf(name, sizeof name, "%.*s%lld%s", (int)(at - stack.name), stack.name,
                         (long long)i, at + strlen(STACK));
        WeightEntry *added = weights_add(weights, name, (size_t)n);
        if (!added)
            return ISO_OUT_OF_MEMORY;
        one.name = added->name;
        one.data = stack.data + bytes * i;
        *added = one;
    }
    return ISO_OK;
}

static iso_status unstack(Weights *weights, int first, const char *label)
{
    iso_status status = ISO_OK;
    for (int i = first, n = weights->n_entries; i < n && !status; i++)
        if (strstr(weights->entries[i].name, STACK))
            status = unstack_one(weights, i, label);
    return status;
}

iso_status weights_read_gguf(Weights *weights, const unsigned char *data, size_t size,
                             const char *label)
{
    Cursor c = {data, size, 4, false};
    Meta meta = {.architecture = {"", 0}, .alignment = 32};
    uint64_t version = take(&c, 4), tensors = take(&c, 8), pairs = take(&c, 8);
    if (c.bad || version < 2 || version > 3 || tensors > TENSORS_MOST)
        return iso_fail(ISO_BAD_WEIGHT, "%s: not a GGUF file of version 2 or 3", label);
    for (uint64_t i = 0; i < pairs && !c.bad; i++)
        read_pair(&c, &meta);
    if (c.bad || meta.alignment == 0 || meta.alignment > 1 << 20)
        return iso_fail(ISO_BAD_WEIGHT, "%s: the GGUF file's metadata is damaged", label);
    size_t headers = c.at;
    int first = weights->n_entries;
    for (uint64_t i = 0; i < tensors; i++) {
        iso_status status = read_tensor(weights, &c, &meta, label);
        if (status)
            return status;
    }
    uint64_t start = (c.at + meta.alignment - 1) / meta.alignment * meta.alignment;
    if (c.bad || (start > size && tensors))
        return iso_fail(ISO_BAD_WEIGHT, "%s: the GGUF file ends in its header", label);
    c.at = headers;
    for (uint64_t i = 0; i < tensors; i++) {
        WeightEntry again = {0};
        take_text(&c);
        read_sizes(&c, &again);
        skip(&c, 4);
        uint64_t offset = take(&c, 8);
        iso_status status = place_tensor(&weights->entries[first + (int)i], &meta, data + start,
                                         size - start, offset, label);
        if (status)
            return status;
    }
    return unstack(weights, first, label);
}
