/* The model block: what check makes of it, what of it the fingerprint covers, and the manifest's
 * way to the runtime, which refuses what an engine could not follow. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>

#include "front.h"
#include "manifest/manifest.h"
#include "pipeline.h"

static const char ops[] =
    "contract t version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, hidden = 64, ffn = 128;\n"
    "axis heads = kv_heads 2 * group 2, head_dim = half 2 * rot 8;\n"
    "tree whole = mma;\n"
    "op turn(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"
    "}\n"
    "op up(x: bf16[tokens, hidden], w: bf16[ffn, hidden]) -> h: bf16[tokens, ffn] {\n"
    "    h = bf16(sum(hidden by whole) x * w);\n"
    "}\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(ffn by whole) h * w) + res; }\n";

static const char model[] =
    "model m {\n"
    "    input x: bf16[tokens, hidden], q: bf16[tokens, heads, head_dim];\n"
    "    table cos, sin: bf16[position, rot] = rope { theta 1e4; scaling linear; factor 2.5; };\n"
    "    repeat 3 as layer {\n"
    "        h = up(x, w: \"l.{layer}.up\");\n"
    "        x = down(h, w: \"l.{layer}.down\", res: x);\n"
    "        h = up(x, w: \"l.{2*layer+11}.up\");\n"
    "        q = turn(q, cos, sin);\n"
    "        cache kept = q;\n"
    "    }\n"
    "    y = down(h, \"end\", x);\n"
    "    output y, q;\n"
    "}\n";

/* ---- check ----------------------------------------------------------------------------------- */

typedef struct Checked {
    Front f;
    Contract contract;
    Dag dag;
} Checked;

static void open_text(Checked *k, const char *of_model)
{
    *k = (Checked){0};
    front_open(&k->f, "");
    Str text = str_format(k->f.arena, "%s%s", ops, of_model);
    k->f.files[0].text = text.s;
    ck_assert_msg(front_parse(&k->f) &&
                  check_contract(&k->f.ast, &k->contract, k->f.arena, &k->f.diags), "%s",
                  front_text(&k->f));
    ck_assert(dag_build(&k->contract, &k->dag, k->f.arena, &k->f.diags));
}

START_TEST(values_are_set_once_and_carried)
{
    Checked k;
    open_text(&k, model);
    const Model *m = k.contract.model;
    const ModelStatement *s = m->statements.v;
    ck_assert(m->statements.n == 5 && m->repeats.n == 1 && m->weights.n == 4);
    ck_assert(m->repeats.v[0].count == 3 && m->repeats.v[0].first == 0 && m->repeats.v[0].end == 4);
    int x = m->inputs.v[0], q = m->inputs.v[1];
    ck_assert_int_eq(m->values.v[x].carry, s[1].results[0]);
    ck_assert_int_eq(m->values.v[q].carry, s[3].results[0]);
    ck_assert_int_eq(m->values.v[s[0].results[0]].carry, -1);
    ck_assert(!s[0].arguments[0].weight && s[0].arguments[0].index == x);
    ck_assert_int_eq(s[2].arguments[0].index, s[1].results[0]); /* x, set in this turn */
    ck_assert_int_eq(s[4].arguments[0].index, s[2].results[0]); /* h of the last turn */
    ck_assert_int_eq(s[4].arguments[2].index, s[1].results[0]);
    ck_assert(s[2].arguments[1].weight && s[2].arguments[1].index != s[0].arguments[1].index);
    ck_assert_int_eq(m->weights.v[0].fan_in, 64);
    ck_assert_int_eq(m->weights.v[1].fan_in, 128);
    ck_assert(m->caches.v[0].of == s[3].results[0] && m->caches.v[0].before == 4);
    ck_assert_int_eq(m->values.v[m->caches.v[0].as].tensor.n_axes, 4);
    const IsoRope *rope = &m->tables.v[0].rope;
    ck_assert(rope->dim == 16 && rope->scaling == ISO_ROPE_LINEAR);
    ck_assert(rope->theta == 1e4 && rope->factor == 2.5);
    front_close(&k.f);
}
END_TEST

/* ---- fingerprints ---------------------------------------------------------------------------- */

static const char *replaced(const char *from, const char *to, char *out, size_t size)
{
    size_t n = 0;
    for (const char *s = model; *s && n + strlen(to) + 1 < size;)
        if (!strncmp(s, from, strlen(from))) {
            memcpy(out + n, to, strlen(to));
            n += strlen(to);
            s += strlen(from);
        } else {
            out[n++] = *s++;
        }
    out[n] = 0;
    return out;
}

static Digest fingerprint_of(const char *of_model)
{
    Checked k;
    open_text(&k, of_model);
    Digest digest = k.dag.fingerprint;
    front_close(&k.f);
    return digest;
}

START_TEST(the_fingerprint_covers_what_the_model_computes)
{
    static const struct {
        const char *from, *to;
        bool same;
    } edits[] = {
        {"h = up", "hidden_state = up", false}, /* of another name: the last line reads another h */
        {"layer", "index", true},
        {"2*layer", "3*layer", false},
        {"layer+11", "layer+1", false},
        {"2*layer+11", "layer*2", false},
        {"model m", "model other", true},
        {"cache kept", "cache keys", true},
        {"1e4", "10000.0", true},
        {"1e4", "1e5", false},
        {"repeat 3", "repeat 4", false},
        {"\"end\"", "\"enD\"", false},
        {"linear", "linear; factor 3", false},
        {"output y, q", "output y", false},
        {"output y", "output x", false},
        {"bf16[position", "f16[position", false},
        {"cache kept = q;", "", false},
        {"\"end\"", "\"end\" [ffn, hidden]", false},
        {"\"end\"", "\"end\" [hidden, ffn]", true},
    };
    Digest with = fingerprint_of(model), without = fingerprint_of("");
    ck_assert(!digest_eq(&with, &without));
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        char text[2048];
        Front f;
        front_open(&f, "");
        replaced(edits[i].from, edits[i].to, text, sizeof text);
        f.files[0].text = str_format(f.arena, "%s%s", ops, text).s;
        Contract contract;
        Dag dag;
        bool sound = front_parse(&f) && check_contract(&f.ast, &contract, f.arena, &f.diags);
        if (sound) {
            ck_assert(dag_build(&contract, &dag, f.arena, &f.diags));
            ck_assert_msg(digest_eq(&dag.fingerprint, &with) == edits[i].same, "%s to %s",
                          edits[i].from, edits[i].to);
        }
        ck_assert_msg(sound || !edits[i].same, "%s to %s: %s", edits[i].from, edits[i].to,
                      front_text(&f));
        front_close(&f);
    }
}
END_TEST

/* ---- the manifest ---------------------------------------------------------------------------- */

static json_t *written(void)
{
    Pipeline p;
    Digest digest = sha256("", 0);
    ManifestBuild build = {.arch = STR("sm_90a"), .cubin = &digest, .cuda = &digest,
                           .ptx = &digest};
    Arena *arena = arena_new();
    MemoryFile file = {STR("m.iso"), str_format(arena, "%s%s", ops, model)};
    MemoryFiles files = {1, &file};
    PipelineInput input = {.path = STR("m.iso"), .reader = reader_memory(&files), .cache = ""};
    ck_assert(pipeline_open(&p, &input) && pipeline_run(&p, STAGE_EMIT));
    Text text = {.arena = p.out};
    ck_assert(manifest_write(&p.sources, &p.plan, &p.emitted, &p.certificate, &build, &text));
    json_t *root = json_loadb(text.s, (size_t)text.n, 0, NULL);
    ck_assert_ptr_nonnull(root);
    pipeline_close(&p);
    arena_free(arena);
    return root;
}

static iso_status read_json(json_t *root, Manifest **m)
{
    char *bytes = json_dumps(root, 0);
    ck_assert_ptr_nonnull(bytes);
    iso_status status = manifest_read(bytes, strlen(bytes), m);
    free(bytes);
    return status;
}

START_TEST(stacks_of_weights)
{
    Checked k;
    char name[64];
    const MfWeight stack = {.name = "l.{3*layer+1}.e.{*}.up", .stacked = true};
    open_text(&k, "model m { input x: bf16[tokens, hidden];\n"
                  "    repeat 2 as layer {\n"
                  "        h = up(x, w: \"l.{layer}\");\n"
                  "        x = down(h, w: \"l.{layer}.{hidden}\", res: x);\n"
                  "    }\n"
                  "    output x; }\n");
    const ModelWeight *w = &k.contract.model->weights.v[1];
    Text out = {.arena = k.f.arena};
    ck_assert(str_is(w->stack, "hidden"));
    ck_assert(str_is(weight_name(k.f.arena, w), "l.{layer}.{*}"));
    dag_model_text(&k.dag, false, &out);
    ck_assert_ptr_nonnull(strstr(text_str(&out).s, "\"l.{}.{*}\""));
    front_close(&k.f);
    ck_assert(manifest_stacked_name(&stack, 2, 10, name, sizeof name));
    ck_assert_str_eq(name, "l.7.e.10.up");
    ck_assert(manifest_weight_name(&stack, 2, name, sizeof name));
    ck_assert_str_eq(name, "l.7.e.{*}.up");
    ck_assert(!manifest_stacked_name(&stack, 2, 10, name, 11));
}
END_TEST

START_TEST(the_runtime_reads_what_was_written)
{
    Manifest *m;
    json_t *root = written();
    ck_assert_msg(read_json(root, &m) == ISO_OK, "%s", iso_last_error());
    const MfModel *read = m->model;
    char name[64];
    ck_assert_str_eq(read->name, "m");
    ck_assert(read->n_inputs == 2 && read->n_statements == 5 && read->n_outputs == 2);
    ck_assert_str_eq(read->values[read->inputs[0]].tensor.name, "x");
    ck_assert_int_eq(read->values[read->inputs[0]].carry, read->statements[1].results[0]);
    ck_assert(read->tables[0].rope.theta == 1e4 && read->tables[0].rope.factor == 2.5);
    ck_assert(manifest_weight_name(&read->weights[0], 12, name, sizeof name));
    ck_assert_str_eq(name, "l.12.up");
    ck_assert(manifest_weight_name(&read->weights[2], 12, name, sizeof name));
    ck_assert_str_eq(name, "l.35.up");
    ck_assert(manifest_weight_name(&read->weights[3], 12, name, sizeof name));
    ck_assert_str_eq(name, "end");
    ck_assert(!manifest_weight_name(&read->weights[0], 12, name, 5));
    manifest_free(m);
    json_decref(root);
}
END_TEST

START_TEST(the_order_of_a_weights_axes)
{
    static const char *const orders[] = {"[0,1]", "[1,0]", "[1,1]", "[0,2]", "[0]", "[0,1,2]"};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        Manifest *m;
        json_t *root = written(), *order = json_loads(orders[i], 0, NULL);
        json_object_set_new(
            json_array_get(json_object_get(json_object_get(root, "model"), "weights"), 0), "order",
            order);
        iso_status status = read_json(root, &m);
        ck_assert_msg(status == (i < 2 ? ISO_OK : ISO_NOT_ISO), "%s", orders[i]);
        if (!status) {
            const MfWeight *weight = &m->model->weights[0];
            ck_assert(weight->n_order == 2 && weight->order[0] == (int)i);
            manifest_free(m);
        }
        json_decref(root);
    }
}
END_TEST

/* Each makes the model one that cannot be followed. */
START_TEST(the_runtime_refuses_what_it_cannot_follow)
{
    static const struct {
        const char *member;
        int at;
        const char *key;
        int value;
    } faults[] = {
        {"statements", 0, "op", 99},      {"statements", 0, "op", 0},
        {"statements", 0, "repeat", -1},  {"statements", 4, "repeat", 0},
        {"caches", 0, "of", 2},           {"caches", 0, "as", 0},
        {"caches", 0, "before", 1},       {"caches", 0, "repeat", 3},
        {"repeats", 0, "count", 0},       {"repeats", 0, "end", 7},
        {"values", 0, "carry", 3},        {"values", 0, "carry", 40000},
        {"values", 0, "dtype", 1},        {"outputs", 0, "value", 77},
        {"weights", 0, "tensor", 1},      {"tables", 0, "values", 1},
        {"tables", 0, "settings", 1},     {"weights", 0, "order", 1},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        Manifest *m;
        json_t *root = written();
        json_t *object = json_array_get(
            json_object_get(json_object_get(root, "model"), faults[i].member),
            (size_t)faults[i].at);
        json_object_set_new(object, faults[i].key, json_integer(faults[i].value));
        ck_assert_msg(read_json(root, &m) == ISO_NOT_ISO, "%s.%s", faults[i].member,
                      faults[i].key);
        json_decref(root);
    }
}
END_TEST

Suite *model_suite(void);
Suite *model_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *tests = tcase_create("model");
    tcase_add_test(tests, values_are_set_once_and_carried);
    tcase_add_test(tests, the_fingerprint_covers_what_the_model_computes);
    tcase_add_test(tests, stacks_of_weights);
    tcase_add_test(tests, the_runtime_reads_what_was_written);
    tcase_add_test(tests, the_order_of_a_weights_axes);
    tcase_add_test(tests, the_runtime_refuses_what_it_cannot_follow);
    suite_add_tcase(suite, tests);
    return suite;
}
