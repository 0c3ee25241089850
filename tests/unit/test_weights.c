/* Checkpoints: one content stored in every way has one digest and the same elements in every cut;
 * damaged files are refused; seeded weights are what they promise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LLVMFuzzerTestOneInput fuzz_weights
#include "../fuzz/fuzz_weights.c"
#include "device/iso_num.cuh"
#include "replay.h"

enum { ROWS = 8, COLUMNS = 64, HEADS = 2 };

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct Bytes {
    unsigned char v[1 << 16];
    size_t n;
} Bytes;

static void put(Bytes *b, const void *data, size_t n)
{
    ck_assert_uint_lt(b->n + n, sizeof b->v);
    memcpy(b->v + b->n, data, n);
    b->n += n;
}

static void put_number(Bytes *b, uint64_t value, size_t bytes)
{
    put(b, &value, bytes);
}

static void put_text(Bytes *b, const char *s)
{
    put_number(b, strlen(s), 8);
    put(b, s, strlen(s));
}

/* Values that bf16 and a block of Q8_0 with scale 1 hold. */
static float value_at(int tensor, int row, int column)
{
    return (float)((row * 31 + column * 7 + tensor * 5) % 255 - 127);
}

static const char *const names[] = {"model.layers.0.mlp.up_proj.weight",
                                    "model.layers.0.self_attn.q_proj.weight",
                                    "model.norm.weight"};

static int rows_of(int tensor)
{
    return tensor == 2 ? 1 : ROWS;
}

static void put_bf16(Bytes *b, int tensor)
{
    for (int r = 0; r < rows_of(tensor); r++)
        for (int c = 0; c < COLUMNS; c++)
            put_number(b, iso_bf16_of_f32(value_at(tensor, r, c)), 2);
}

/* Tensors [first, end), the matrices as [8, 64]. */
static void safetensors(Bytes *b, int first, int end)
{
    char header[2048];
    int n = snprintf(header, sizeof header, "{\"__metadata__\":{\"format\":\"pt\"}"), at = 0;
    for (int t = first; t < end; t++) {
        int bytes = rows_of(t) * COLUMNS * 2;
        n += snprintf(header + n, sizeof header - (size_t)n,
                      rows_of(t) == 1
                          ? ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%.0d64],"
                            "\"data_offsets\":[%d,%d]}"
                          : ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d,64],"
                            "\"data_offsets\":[%d,%d]}",
                      names[t], rows_of(t) == 1 ? 0 : ROWS, at, at + bytes);
        at += bytes;
    }
    n += snprintf(header + n, sizeof header - (size_t)n, "}");
    b->n = 0;
    put_number(b, (uint64_t)n, 8);
    put(b, header, (size_t)n);
    for (int t = first; t < end; t++)
        put_bf16(b, t);
}

/* Row r of q as llama.cpp has it: pairs of the two halves of each head. */
static int interleaved(int row)
{
    int per_head = ROWS / HEADS, in_head = row % per_head;
    return row / per_head * per_head + in_head % 2 * (per_head / 2) + in_head / 2;
}

static void put_q8(Bytes *b, int tensor)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            if (c % 32 == 0)
                put_number(b, 0x3C00, 2); /* 1 in f16 */
            int row = tensor == 1 ? interleaved(r) : r;
            put_number(b, (uint64_t)(int)value_at(tensor, row, c), 1);
        }
}

static void gguf(Bytes *b, const char *architecture)
{
    static const char *const own[] = {"blk.0.ffn_up.weight", "blk.0.attn_q.weight",
                                      "output_norm.weight"};
    b->n = 0;
    put(b, "GGUF", 4);
    put_number(b, 3, 4);
    put_number(b, 3, 8);
    put_number(b, 3, 8);
    put_text(b, "general.architecture");
    put_number(b, 8, 4);
    put_text(b, architecture);
    put_text(b, "llama.attention.head_count");
    put_number(b, 4, 4);
    put_number(b, HEADS, 4);
    put_text(b, "tokenizer.ggml.tokens");
    put_number(b, 9, 4);
    put_number(b, 8, 4);
    put_number(b, 2, 8);
    put_text(b, "a");
    put_text(b, "b");
    uint64_t bytes = ROWS * COLUMNS / 32 * 34;
    for (int t = 0; t < 3; t++) {
        put_text(b, own[t]);
        put_number(b, t == 2 ? 1 : 2, 4);
        put_number(b, COLUMNS, 8);
        if (t < 2)
            put_number(b, ROWS, 8);
        put_number(b, t == 2 ? 0 : 8, 4);
        put_number(b, (uint64_t)t * bytes, 8);
    }
    while (b->n % 32)
        put_number(b, 0, 1);
    put_q8(b, 0);
    put_q8(b, 1);
    for (int c = 0; c < COLUMNS; c++) {
        float x = value_at(2, 0, c);
        put(b, &x, 4);
    }
}

static void write_file(const char *folder, const char *name, const void *data, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert(file && fwrite(data, 1, n, file) == n && !fclose(file));
}

/* ---- one content, many files ----------------------------------------------------------------- */

static WeightTensor tensor_of(int t)
{
    WeightTensor tensor = {.name = names[t], .dtype = ISO_BF16, .n_axes = 3,
                           .size = {HEADS, ROWS / HEADS, COLUMNS}};
    if (t == 2)
        tensor = (WeightTensor){.name = names[t], .dtype = ISO_BF16, .n_axes = 1,
                                .size = {COLUMNS}};
    memcpy(tensor.stored, tensor.size, sizeof tensor.stored);
    return tensor;
}

static void check_part(const Weights *weights, int t)
{
    WeightTensor tensor = tensor_of(t);
    int64_t origin[] = {1, 2, 5}, extent[] = {1, 2, 40};
    uint16_t out[80];
    tensor.dtype = ISO_BF16;
    ck_assert_msg(!weights_read(weights, &tensor, origin, extent, out), "%s", iso_last_error());
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 40; c++)
            ck_assert_int_eq(out[r * 40 + c], iso_bf16_of_f32(value_at(t, 6 + r, 5 + c)));
}

static void check_content(const char *path, uint8_t digest[32])
{
    Weights *weights;
    WeightTensor tensors[] = {tensor_of(2), tensor_of(0), tensor_of(1)};
    ck_assert_msg(!weights_open(&weights, path), "%s: %s", path, iso_last_error());
    check_part(weights, 0);
    check_part(weights, 1);
    ck_assert(!weights_digest(weights, tensors, 3, digest));
    WeightTensor missing = tensor_of(0), large = tensor_of(0);
    missing.name = "model.layers.1.mlp.up_proj.weight";
    large.size[0] = large.stored[0] = 3;
    ck_assert_int_eq(weights_check(weights, &missing), ISO_BAD_WEIGHT);
    ck_assert_int_eq(weights_check(weights, &large), ISO_BAD_WEIGHT);
    ck_assert_ptr_nonnull(strstr(iso_last_error(), "8 x 64"));
    weights_close(weights);
}

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/weights-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char path[400];
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            remove(path);
    }
    closedir(d);
    rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

START_TEST(one_content_has_one_digest)
{
    static Bytes b;
    uint8_t whole[32], shards[32], quantised[32], other[32];
    make_folder();
    safetensors(&b, 0, 3);
    write_file(folder, "model.safetensors", b.v, b.n);
    check_content(folder, whole);
    gguf(&b, "llama");
    write_file(folder, "w.gguf", b.v, b.n);
    check_content(in_folder("w.gguf"), quantised);
    ck_assert_mem_eq(whole, quantised, 32);
    safetensors(&b, 0, 1);
    write_file(folder, "a.safetensors", b.v, b.n);
    safetensors(&b, 1, 3);
    write_file(folder, "b.safetensors", b.v, b.n);
    char index[600];
    int n = snprintf(index, sizeof index,
                     "{\"weight_map\":{\"%s\":\"a.safetensors\",\"%s\":\"b.safetensors\","
                     "\"%s\":\"b.safetensors\"}}", names[0], names[1], names[2]);
    write_file(folder, "model.safetensors.index.json", index, (size_t)n);
    check_content(folder, shards);
    ck_assert_mem_eq(whole, shards, 32);
    b.v[b.n - 1] ^= 1;
    write_file(folder, "b.safetensors", b.v, b.n);
    Weights *weights;
    WeightTensor tensors[] = {tensor_of(0), tensor_of(1), tensor_of(2)};
    ck_assert(!weights_open(&weights, folder) && !weights_digest(weights, tensors, 3, other));
    ck_assert(memcmp(whole, other, 32));
    weights_close(weights);
    remove_folder();
}
END_TEST

START_TEST(other_architectures_have_rows_in_order)
{
    static Bytes b;
    Weights *weights;
    gguf(&b, "qwen3");
    ck_assert(!weights_open_bytes(&weights, b.v, b.n, "w.gguf"));
    WeightTensor tensor = tensor_of(1);
    int64_t origin[] = {0, 1, 0}, extent[] = {1, 1, 1};
    uint16_t out;
    ck_assert(!weights_read(weights, &tensor, origin, extent, &out));
    ck_assert_int_eq(out, iso_bf16_of_f32(value_at(1, interleaved(1), 0)));
    weights_close(weights);
}
END_TEST

START_TEST(padding_is_zero_or_the_files)
{
    static Bytes b;
    Weights *weights;
    safetensors(&b, 0, 1);
    ck_assert(!weights_open_bytes(&weights, b.v, b.n, "w"));
    WeightTensor tensor = {.name = names[0], .dtype = ISO_F32, .n_axes = 2,
                           .size = {ROWS, COLUMNS}, .stored = {ROWS + 2, COLUMNS}};
    int64_t origin[] = {ROWS - 1, 0}, extent[] = {3, COLUMNS};
    float out[3 * COLUMNS];
    ck_assert(!weights_read(weights, &tensor, origin, extent, out));
    ck_assert(out[1] == value_at(0, ROWS - 1, 1) && out[COLUMNS] == 0 && out[2 * COLUMNS] == 0);
    tensor.size[0] = ROWS - 2; /* the file has what memory has */
    tensor.stored[0] = ROWS;
    ck_assert(!weights_read(weights, &tensor, origin, (int64_t[]){1, COLUMNS}, out));
    ck_assert(out[1] == value_at(0, ROWS - 1, 1));
    weights_close(weights);
}
END_TEST

/* ---- experts in a stack ---- */

/* Three matrices of 2 x 4 in f32, by a name of llama.cpp's. */
static void stack_file(Bytes *b, const char *architecture, int axes)
{
    b->n = 0;
    put(b, "GGUF", 4);
    put_number(b, 3, 4);
    put_number(b, 1, 8);
    put_number(b, 1, 8);
    put_text(b, "general.architecture");
    put_number(b, 8, 4);
    put_text(b, architecture);
    put_text(b, "blk.7.ffn_down_exps.weight");
    put_number(b, (uint64_t)axes, 4);
    put_number(b, 4, 8);
    put_number(b, axes == 3 ? 2 : 6, 8);
    if (axes == 3)
        put_number(b, 3, 8);
    put_number(b, 0, 4);
    put_number(b, 0, 8);
    while (b->n % 32)
        put_number(b, 0, 1);
    for (int i = 0; i < 24; i++) {
        float x = (float)i;
        put(b, &x, 4);
    }
}

START_TEST(a_stacks_experts_are_tensors)
{
    static const char *const architectures[] = {"qwen3moe", "llama"};
    static const char *const experts[] = {"model.layers.7.mlp.experts.2.down_proj.weight",
                                          "model.layers.7.block_sparse_moe.experts.2.w2.weight"};
    static Bytes b;
    for (int i = 0; i < 2; i++) {
        Weights *weights;
        WeightTensor tensor = {.name = experts[i], .dtype = ISO_F32, .n_axes = 2,
                               .size = {2, 4}, .stored = {2, 4}};
        float out[8];
        stack_file(&b, architectures[i], 3);
        ck_assert_msg(!weights_open_bytes(&weights, b.v, b.n, "w"), "%s", iso_last_error());
        ck_assert(!weights_read(weights, &tensor, (int64_t[]){0, 0}, tensor.size, out));
        ck_assert(out[0] == 16 && out[7] == 23);
        tensor.name = experts[!i];
        ck_assert_int_eq(weights_check(weights, &tensor), ISO_BAD_WEIGHT);
        weights_close(weights);
    }
    Weights *weights;
    stack_file(&b, "qwen3moe", 2);
    ck_assert_int_eq(weights_open_bytes(&weights, b.v, b.n, "w"), ISO_BAD_WEIGHT);
}
END_TEST

/* ---- four bits ---- */

enum { EXPERTS = 2, OUTPUTS = 3, TERMS = 64 };

static int nibble(int expert, int output, int term)
{
    return (expert * 5 + output * 7 + term * 3) % 16;
}

/* 1, then 2 to the -3, -1, 1, ...; the last is no number. */
static int exponent(int at)
{
    return at == EXPERTS * OUTPUTS * 2 - 1 ? 255 : 127 + (at ? at * 2 - 5 : 0);
}

static void fp4_file(Bytes *b, const char *scales)
{
    char header[400];
    int half = EXPERTS * OUTPUTS * TERMS / 2, units = half / 16;
    int n = snprintf(header, sizeof header,
                     "{\"w_blocks\":{\"dtype\":\"U8\",\"shape\":[2,3,2,16],"
                     "\"data_offsets\":[0,%d]},\"%s\":{\"dtype\":\"U8\",\"shape\":[2,3,2],"
                     "\"data_offsets\":[%d,%d]}}", half, scales, half, half + units);
    b->n = 0;
    put_number(b, (uint64_t)n, 8);
    put(b, header, (size_t)n);
    for (int i = 0; i < half; i++) {
        int expert = i / (OUTPUTS * TERMS / 2), output = i / (TERMS / 2) % OUTPUTS;
        int term = i % (TERMS / 2) * 2;
        put_number(b, (uint64_t)(nibble(expert, output, term) |
                                 nibble(expert, output, term + 1) << 4), 1);
    }
    for (int i = 0; i < units; i++)
        put_number(b, (uint64_t)exponent(i), 1);
}

START_TEST(four_bits_are_what_transformers_makes_of_them)
{
    static const float magnitude[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static Bytes b;
    Weights *weights;
    static float out[EXPERTS][TERMS][OUTPUTS];
    WeightTensor tensor = {.name = "w", .dtype = ISO_F32, .n_axes = 3, .exact = true,
                           .size = {EXPERTS, TERMS, OUTPUTS}, .stored = {EXPERTS, TERMS, OUTPUTS}};
    int64_t origin[] = {0, 0, 0};
    fp4_file(&b, "w_scales");
    ck_assert_msg(!weights_open_bytes(&weights, b.v, b.n, "w"), "%s", iso_last_error());
    ck_assert(!weights_read(weights, &tensor, origin, tensor.size, out));
    for (int e = 0; e < EXPERTS; e++)
        for (int t = 0; t < TERMS; t++)
            for (int o = 0; o < OUTPUTS; o++) {
                int bits = nibble(e, o, t), scale = exponent((e * OUTPUTS + o) * 2 + t / 32);
                float want = ldexpf(magnitude[bits & 7], scale - 127) * (bits & 8 ? -1.0f : 1.0f);
                if (scale == 255)
                    ck_assert(out[e][t][o] != out[e][t][o]);
                else
                    ck_assert_mem_eq(&out[e][t][o], &want, 4);
            }
    tensor.size[1] = OUTPUTS, tensor.size[2] = TERMS;
    memcpy(tensor.stored, tensor.size, sizeof tensor.size);
    ck_assert_int_eq(weights_check(weights, &tensor), ISO_BAD_WEIGHT);
    weights_close(weights);
    fp4_file(&b, "v_scales");
    ck_assert_int_eq(weights_open_bytes(&weights, b.v, b.n, "w"), ISO_BAD_WEIGHT);
    ck_assert_ptr_nonnull(strstr(iso_last_error(), "w_blocks has no w_scales"));
}
END_TEST

/* ---- damage ---------------------------------------------------------------------------------- */

static void refuse_header(const char *header)
{
    static Bytes b;
    Weights *weights;
    b.n = 0;
    put_number(&b, strlen(header), 8);
    put(&b, header, strlen(header));
    put_number(&b, 0, 8);
    ck_assert_msg(weights_open_bytes(&weights, b.v, b.n, "w") == ISO_BAD_WEIGHT, "%s", header);
    ck_assert_ptr_null(weights);
}

START_TEST(damaged_files_are_refused)
{
    static Bytes b;
    Weights *weights;
    refuse_header("[]");
    refuse_header("{\"a\":3}");
    refuse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,16]}}");
    refuse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[4,2]}}");
    refuse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":[-4],\"data_offsets\":[0,8]}}");
    refuse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":[4611686018427387904,4],"
                  "\"data_offsets\":[0,8]}}");
    refuse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[0,8]}}");
    refuse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":4,\"data_offsets\":[0,8]}}");
    refuse_header("{\"a\":{\"shape\":[4],\"data_offsets\":[0,8]}}");
    ck_assert_int_eq(weights_open_bytes(&weights, "short", 5, "w"), ISO_BAD_WEIGHT);
    ck_assert_int_eq(weights_open(&weights, "/nowhere/at/all"), ISO_FILE);
    ck_assert_int_eq(weights_open(&weights, "seed:x"), ISO_INVALID_ARGUMENT);
    gguf(&b, "llama");
    for (size_t n = 0; n < b.n; n += n < 700 ? 1 : 97)
        ck_assert_int_eq(weights_open_bytes(&weights, b.v, n, "w"), ISO_BAD_WEIGHT);
    for (size_t i = 0; i < 600; i++) { /* whatever it says then, nothing outside is read */
        b.v[i] ^= 0xFF;
        LLVMFuzzerTestOneInput(b.v, b.n);
        b.v[i] ^= 0xFF;
    }
}
END_TEST

START_TEST(corpus_of_weights)
{
    ck_assert_int_ge(replay_folder("tests/fuzz/corpus/weights", LLVMFuzzerTestOneInput), 2);
}
END_TEST

/* ---- seeds ----------------------------------------------------------------------------------- */

static void read_seeded(Weights *weights, const char *name, int64_t rows, int64_t fan_in, float *to)
{
    WeightTensor tensor = {.name = name, .dtype = ISO_F32, .n_axes = 2, .size = {rows, 256},
                           .stored = {rows, 256}, .fan_in = fan_in};
    int64_t origin[] = {0, 0}, extent[] = {rows, 256};
    ck_assert(!weights_read(weights, &tensor, origin, extent, to));
}

START_TEST(seeded_weights)
{
    static float all[64 * 256], again[64 * 256], down[64 * 256];
    Weights *weights, *other;
    double sum = 0, squares = 0;
    int massive = 0;
    ck_assert(!weights_open(&weights, "seed:7") && !weights_open(&other, "seed:8"));
    read_seeded(weights, "model.layers.0.mlp.up_proj.weight", 64, 256, all);
    read_seeded(weights, "model.layers.0.mlp.up_proj.weight", 64, 256, again);
    ck_assert_mem_eq(all, again, sizeof all);
    read_seeded(other, "model.layers.0.mlp.up_proj.weight", 64, 256, again);
    ck_assert(memcmp(all, again, sizeof all));
    for (int i = 0; i < 64 * 256; i++) {
        sum += (double)all[i];
        squares += (double)all[i] * (double)all[i];
    }
    ck_assert(fabs(sum / (64 * 256)) < 0.002 && fabs(squares / 64 - 1.0) < 0.05);
    WeightTensor part = {.name = "model.layers.0.mlp.up_proj.weight", .dtype = ISO_F32,
                         .n_axes = 2, .size = {64, 256}, .stored = {64, 256}, .fan_in = 256};
    read_seeded(weights, part.name, 64, 256, all);
    ck_assert(!weights_read(weights, &part, (int64_t[]){9, 100}, (int64_t[]){2, 7}, again));
    ck_assert_mem_eq(again, all + 9 * 256 + 100, 7 * sizeof(float));
    ck_assert_mem_eq(again + 7, all + 10 * 256 + 100, 7 * sizeof(float));
    read_seeded(weights, "model.layers.1.mlp.down_proj.weight", 64, 256, down);
    for (int row = 0; row < 64; row++)
        massive += fabsf(down[row * 256]) + fabsf(down[row * 256 + 1]) > 5.0f;
    ck_assert(massive >= 1 && massive <= 3);
    read_seeded(weights, "model.norm.weight", 1, 0, down);
    for (int i = 0; i < 256; i++)
        ck_assert(down[i] > 0.5f && down[i] < 1.5f);
    weights_close(weights);
    weights_close(other);
}
END_TEST

Suite *weights_suite(void);
Suite *weights_suite(void)
{
    Suite *suite = suite_create("weights");
    TCase *tests = tcase_create("weights");
    tcase_add_test(tests, one_content_has_one_digest);
    tcase_add_test(tests, other_architectures_have_rows_in_order);
    tcase_add_test(tests, padding_is_zero_or_the_files);
    tcase_add_test(tests, a_stacks_experts_are_tensors);
    tcase_add_test(tests, four_bits_are_what_transformers_makes_of_them);
    tcase_add_test(tests, damaged_files_are_refused);
    tcase_add_test(tests, corpus_of_weights);
    tcase_add_test(tests, seeded_weights);
    suite_add_tcase(suite, tests);
    return suite;
}
