/* Hostile manifests: of contracts that have every family of kernels and a model, every value is
 * replaced by values of every kind. What is taken all the same must be harmless. */
#define LLVMFuzzerTestOneInput fuzz_manifest
#include "../fuzz/fuzz_manifest.c"

#include "artefact.h"

#include <jansson.h>

static const char *const contracts[] = {
    "contract dense version 3; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, hidden = 64, ffn = 256, vocab = 1024, width = 64;\n"
    "axis heads = kv_heads 4 * group 2, head_dim = half 2 * rot 8;\n"
    "tree eighth = split 8 { mma } pairwise f32;\n"
    "tree tile = split 4 { every 256 { lanes 8 by 2 { chain } pairwise f32 } pairwise f32 }\n"
    "    pairwise f32;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"
    "    ss = sum(hidden by lanes 32 by 2 { chain } pairwise f32) f32(x) * f32(x);\n"
    "    y = bf16(f32(x) * (1.0 / sqrt(ss / len(hidden) + 1e-6))) * w;\n"
    "}\n"
    "op rope(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"
    "}\n"
    "op attention(q: bf16[tokens, heads, width],\n"
    "             k, v: bf16[sequence, position, kv_heads, width])\n"
    "   -> o: bf16[tokens, heads, width] {\n"
    "    attend x = q, k, v { over width; scale_log2 0.18; }\n"
    "    o = bf16(x);\n"
    "}\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(ffn by eighth) h * w) + res; }\n"
    "op score(x: bf16[tokens, hidden], w: bf16[vocab, hidden], targets: vocab[tokens])\n"
    "   -> (lp, more, most: f32[tokens]) {\n"
    "    z = sum(hidden by mma) x * w;\n"
    "    lp = (max(vocab by tile) z[vocab = targets]) - (logsumexp(vocab by tile) z);\n"
    "    more = logsumexp(vocab by tile) z * 2.0; most = max(vocab by tile) z;\n"
    "}\n"
    "op sample(z: f32[tokens, vocab], seed: i32[tokens]) -> token: vocab[tokens] {\n"
    "    draw token = z, seed { over vocab; top_k 5; }\n"
    "}\n"
    "model both {\n"
    "    input x: bf16[tokens, hidden], q: bf16[tokens, heads, head_dim], f: bf16[tokens, ffn];\n"
    "    table cos, sin: bf16[position, rot] = rope { theta 10000; };\n"
    "    repeat 2 as layer {\n"
    "        h = norm(x, w: \"layers.{layer}.norm\");\n"
    "        x = down(f, w: \"layers.{layer}.down\", res: h);\n"
    "        q = rope(q, cos, sin);\n"
    "    }\n"
    "    output x, q;\n"
    "}\n"
    "layout one { }\n"
    "layout four { tp 4 cuts kv_heads, ffn else tokens; op score { tp cuts vocab; } }\n"
    "schedule down when tokens <= 16 { kernel stream; leaves across ctas; }\n",

    "contract experts version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, hidden = 192, ffn = 320;\n"
    "axis experts = 16, picks = 4 of experts;\n"
    "tree by_expert = split 4 { chain } pairwise f32;\n"
    "op route(z: f32[tokens, experts]) -> (chosen: experts[tokens, picks],\n"
    "                                      weight: f32[tokens, picks]) {\n"
    "    top chosen = z { over experts; order score; }\n"
    "    p = z[experts chosen];\n"
    "    weight = p / (sum(picks by chain) p);\n"
    "}\n"
    "op down(h: bf16[tokens, picks, ffn], chosen: experts[tokens, picks],\n"
    "        w: bf16[experts, hidden, ffn]) -> d: bf16[tokens, picks, hidden] {\n"
    "    d = bf16(sum(ffn by split 4 { mma } pairwise f32) h * w[experts chosen]);\n"
    "}\n"
    "op combine(d: bf16[tokens, picks, hidden], weight: f32[tokens, picks],\n"
    "           chosen: experts[tokens, picks]) -> y: bf16[tokens, hidden] {\n"
    "    y = bf16(sum(picks at experts chosen by by_expert) weight * f32(d));\n"
    "}\n"
    "layout one { }\n"
    "layout ep2 { ep 2 cuts experts else tokens; }\n"
    "layout tp2 { tp 2 cuts ffn else tokens; }\n",
};

typedef struct Mutation {
    json_t *root;
    int tried, taken;
} Mutation;

static void try_manifest(Mutation *m)
{
    char *text = json_dumps(m->root, JSON_COMPACT);
    ck_assert_ptr_nonnull(text);
    m->tried++;
    m->taken += ask_manifest(text, strlen(text));
    free(text);
}

static json_t *other_value(int which)
{
    switch (which) {
    case 0:
        return json_null();
    case 1:
        return json_integer(-1);
    case 2:
        return json_integer(0);
    case 3:
        return json_integer(7);
    case 4:
        return json_integer(INT64_MAX);
    case 5:
        return json_string("every_family");
    case 6:
        return json_array();
    default:
        return json_object();
    }
}

enum { OTHERS = 8 };

/* Every value of the tree replaced, one at a time, by values of every kind. */
static void mutate(Mutation *m, json_t *value)
{
    const char *key;
    json_t *child;
    void *next;
    json_object_foreach_safe(value, next, key, child)
    {
        if (!strcmp(key, "certificate") || !strcmp(key, "census") || !strcmp(key, "sources"))
            continue;
        char *name = strdup(key); /* the key goes with the member */
        json_incref(child);
        for (int i = 0; i < OTHERS; i++) {
            json_object_set_new(value, name, other_value(i));
            try_manifest(m);
        }
        json_object_set_new(value, name, child);
        mutate(m, child);
        free(name);
    }
    for (size_t k = 0; k < json_array_size(value) && k < 2; k++) {
        child = json_incref(json_array_get(value, k));
        for (int i = 0; i < OTHERS; i++) {
            json_array_set_new(value, k, other_value(i));
            try_manifest(m);
        }
        json_array_set_new(value, k, child);
        mutate(m, child);
    }
    if (json_array_size(value)) {
        child = json_incref(json_array_get(value, json_array_size(value) - 1));
        json_array_remove(value, json_array_size(value) - 1);
        try_manifest(m);
        json_array_append_new(value, child);
    }
}

/* A contract's own manifest is taken; of the changed ones most are not. */
START_TEST(changed_manifests_are_refused_or_harmless)
{
    Artefact artefact;
    Mutation m = {0};
    artefact_open(&artefact, contracts[_i]);
    m.root = json_loadb(artefact.manifest.s, (size_t)artefact.manifest.n, 0, NULL);
    json_object_del(m.root, "certificate");
    try_manifest(&m);
    ck_assert_msg(m.taken == 1, "%s", iso_last_error());
    mutate(&m, m.root);
    ck_assert_int_gt(m.tried, 2000);
    ck_assert_int_gt(m.tried - m.taken, m.tried / 2);
    json_decref(m.root);
    artefact_close(&artefact);
}
END_TEST

Suite *hostile_suite(void);
Suite *hostile_suite(void)
{
    Suite *suite = suite_create("hostile");
    TCase *tests = tcase_create("manifests");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, changed_manifests_are_refused_or_harmless, 0,
                        sizeof contracts / sizeof contracts[0]);
    suite_add_tcase(suite, tests);
    return suite;
}
