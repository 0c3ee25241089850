/* What a model refuses, by status and by what it says. */
#include "iso_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 8, VOCAB = 512 };

static int failed;

static void expect(const char *what, iso_status got, iso_status wanted, const char *says)
{
    if (got == wanted && strstr(iso_last_error(), says))
        return;
    failed++;
    printf("%s: %s: %s; wanted: %s, with \"%s\"\n", what, iso_status_string(got),
           iso_last_error(), iso_status_string(wanted), says);
}

static void must(iso_status status)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s\n", iso_status_string(status), iso_last_error());
    exit(3);
}

static const iso_model_config plain = {.size = sizeof(iso_model_config),
                                       .weights = "seed:1",
                                       .layout = "tp1",
                                       .max_rows = ROWS,
                                       .max_sequences = 2,
                                       .max_position = 64,
                                       .page = 16,
                                       .pages = 4};

static iso_status load(const iso_module *module, iso_model_config config)
{
    iso_model *model;
    iso_status status = iso_model_load(&model, module, &config);
    iso_model_unload(model);
    return status;
}

static void refuse_configs(const iso_module *module)
{
    iso_model_config c = plain;
    c.size = 8;
    expect("size", load(module, c), ISO_INVALID_ARGUMENT, "iso_model_config.size is 8");
    c = plain, c.max_rows = 0;
    expect("rows", load(module, c), ISO_INVALID_ARGUMENT, "0 rows");
    c = plain, c.page = 24;
    expect("page", load(module, c), ISO_INVALID_ARGUMENT, "4 pages of 24 positions");
    c = plain, c.layout = "tp3";
    expect("layout", load(module, c), ISO_UNKNOWN_LAYOUT, "tp3");
    c = plain, c.layout = "tp2";
    expect("ranks", load(module, c), ISO_BAD_RANK, "layout tp2 has 2 ranks, the group 1");
    iso_model_sizes sizes;
    c = plain, c.layout = "kv2", c.page = 48;
    expect("splits", iso_model_size(module, &c, 0, &sizes), ISO_INVALID_ARGUMENT,
           "pages of 48 positions; layout kv2 shares the keys of attention by splits of 128");
    c = plain, c.weights = "nowhere";
    expect("weights", load(module, c), ISO_FILE, "nowhere");
}

/* A checkpoint of one tensor of zeros. */
static void write_checkpoint(const char *path, const char *name, int rows)
{
    char header[256];
    static const char zeros[64 * 2];
    uint64_t n = (uint64_t)snprintf(header, sizeof header,
                                    "{\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d,64],"
                                    "\"data_offsets\":[0,%d]}}", name, rows, rows * 128);
    FILE *file = fopen(path, "wb");
    if (!file)
        exit(3);
    fwrite(&n, sizeof n, 1, file);
    fwrite(header, 1, n, file);
    for (int i = 0; i < rows; i++)
        fwrite(zeros, 1, sizeof zeros, file);
    fclose(file);
}

static void refuse_weights(const iso_module *module, const char *path)
{
    iso_model_config c = plain;
    c.weights = path;
    write_checkpoint(path, "model.embed_tokens.weight", 500);
    expect("shape", load(module, c), ISO_BAD_WEIGHT, "model.embed_tokens.weight");
    write_checkpoint(path, "model.norm.weight", 1);
    expect("missing", load(module, c), ISO_BAD_WEIGHT, "model.embed_tokens.weight");
}

/* One sequence of some rows, all of them asked. */
static iso_status step(iso_model *model, iso_sequence sequence, int rows, size_t logits)
{
    static int32_t ids[2 * ROWS];
    static float out[2 * ROWS * VOCAB];
    iso_value input = {"ids", ids, (size_t)rows * 4}, output = {"logits", out, logits};
    iso_step s = {.sequences = &sequence,
                  .n_sequences = 1,
                  .inputs = &input,
                  .n_inputs = 1,
                  .outputs = &output,
                  .n_outputs = 1};
    return iso_model_step(model, &s);
}

static void refuse_steps(iso_model *model)
{
    static const int32_t pages[] = {0, 1, 2, 3}, far[] = {0, 4, 2, 3};
    const size_t row = VOCAB * sizeof(float);
    expect("fits", step(model, (iso_sequence){7, 0, 5, pages}, 5, 5 * row), ISO_OK, "");
    expect("rows", step(model, (iso_sequence){7, 0, 9, pages}, 9, 9 * row), ISO_STEP_ROWS,
           "9 rows, the model was loaded for 8");
    expect("position", step(model, (iso_sequence){7, 60, 5, pages}, 5, 5 * row), ISO_STEP_ROWS,
           "sequence 7 goes to position 65, the model was loaded for 64");
    expect("page", step(model, (iso_sequence){7, 12, 5, far}, 5, 5 * row), ISO_PAGES,
           "sequence 7: position 16 lies in page 4; the cache has pages 0 to 3");
    expect("packed", step(model, (iso_sequence){7, 3, 5, NULL}, 5, 5 * row), ISO_INVALID_ARGUMENT,
           "has no pages and begins at position 3");
    expect("input", step(model, (iso_sequence){7, 0, 5, pages}, 4, 5 * row), ISO_BAD_TENSOR,
           "input ids has 16 bytes");
    expect("output", step(model, (iso_sequence){7, 0, 5, pages}, 5, row), ISO_BAD_TENSOR,
           "output logits has 2048 bytes");
}

static void refuse_names(iso_model *model)
{
    static int32_t ids[1], wanted[] = {1};
    static float out[VOCAB];
    iso_sequence sequence = {.rows = 1};
    iso_value input = {"ids", ids, 4}, output = {"logit", out, sizeof out};
    iso_step s = {.sequences = &sequence, .n_sequences = 1, .inputs = &input, .n_inputs = 1,
                  .outputs = &output, .n_outputs = 1};
    expect("name", iso_model_step(model, &s), ISO_INVALID_ARGUMENT, "has no output logit");
    output = (iso_value){"logprob", out, 4};
    expect("lacks", iso_model_step(model, &s), ISO_INVALID_ARGUMENT, "lacks input targets");
    output = (iso_value){"logits", out, sizeof out};
    s.wanted = wanted, s.n_wanted = 1;
    expect("wanted", iso_model_step(model, &s), ISO_INVALID_ARGUMENT, "row 1 is wanted of 1");
}

static void refuse_traces(iso_model *model, const char *file)
{
    expect("ops", iso_model_trace(model, ".", "qkv,up"), ISO_UNKNOWN_OP, "runs no op up");
    expect("folder", iso_model_trace(model, "nowhere", "qkv"), ISO_FILE, "nowhere/rank-0.trace");
    iso_difference difference;
    expect("diff", iso_trace_diff("nowhere", file, &difference), ISO_FILE, "nowhere");
}

/* ---- a page of another rank ---- */

typedef struct Sharer {
    const iso_module *module;
    const char *where;
    int rank;
    iso_status status;
    char says[512];
} Sharer;

/* Positions 16 to 31 lie with the first 16, on rank 0. */
static void *share_keys(void *user)
{
    static const int32_t pages[] = {0, 1};
    Sharer *s = user;
    iso_group *group = NULL;
    iso_model *model = NULL;
    iso_model_config c = plain;
    iso_group_config wanted = {.size = sizeof wanted, .rank = s->rank, .ranks = 2,
                               .bootstrap = s->where};
    c.layout = "kv2";
    s->status = iso_group_create(&group, s->module, &wanted);
    c.group = group;
    if (!s->status)
        s->status = iso_model_load(&model, s->module, &c);
    if (!s->status)
        s->status = step(model, (iso_sequence){7, 12, 5, pages}, 5, 5 * VOCAB * sizeof(float));
    snprintf(s->says, sizeof s->says, "%s", iso_last_error());
    iso_model_unload(model);
    iso_group_destroy(group);
    return NULL;
}

static void refuse_pages(const iso_module *module)
{
    char folder[] = "/tmp/errors-XXXXXX", where[64];
    Sharer sharer[2];
    pthread_t thread[2];
    if (!mkdtemp(folder))
        exit(3);
    snprintf(where, sizeof where, "file:%s", folder);
    for (int r = 0; r < 2; r++) {
        sharer[r] = (Sharer){.module = module, .where = where, .rank = r};
        if (pthread_create(&thread[r], NULL, share_keys, &sharer[r]))
            exit(3);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(thread[r], NULL);
        if (sharer[r].status == ISO_PAGES &&
            strstr(sharer[r].says, "position 16 lies in page 1; layout kv2 shares keys over 2"))
            continue;
        failed++;
        printf("pages of ranks: %s: %s\n", iso_status_string(sharer[r].status), sharer[r].says);
    }
    rmdir(folder);
}

int main(int argc, char **argv)
{
    iso_module *module;
    iso_model *model;
    uint8_t digest[32] = {0};
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    if (argc != 3)
        return 2;
    must(iso_module_load(&module, argv[1], &config));
    expect("fingerprint", iso_module_expect(module, digest), ISO_FINGERPRINT, "isoc diff");
    refuse_configs(module);
    refuse_weights(module, argv[2]);
    must(iso_model_load(&model, module, &plain));
    refuse_steps(model);
    refuse_names(model);
    refuse_traces(model, argv[2]);
    iso_model_unload(model);
    refuse_pages(module);
    iso_module_unload(module);
    printf("rollout: what a model refuses: %d of 24 otherwise than they should be\n", failed);
    return failed != 0;
}
