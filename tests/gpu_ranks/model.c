/* A whole model over a group, every rank's part of what it gives against one rank's run: packed
 * batches of every row count, then paged prefills, of which one is longer than a split of keys,
 * and decoding in graphs. */
#include "iso_model.h"
#include "task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SEQUENCES = 8, PAGE = 16, PROMPT = 65, DECODED = 8, MOST_WANTED = 256, POISON = 0xCD,
       TRACED_ROWS = 63, LONG = 2, LONG_PROMPT = 1100 };

static const int64_t row_counts[] = {1, 2, 63, 64, 65, 1024, 4096, 8192};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof row_counts[0] };

/* What goes into a step of that many rows and comes out of it. */
typedef struct Batch {
    int rows, n_sequences, n_wanted;
    int32_t *ids, *targets, *wanted;
    float *temperature;
    iso_sequence sequences[SEQUENCES];
    int32_t pages[SEQUENCES][1024];
} Batch;

/* The outputs of one model's step: whole arrays, of which a rank writes its part. */
typedef struct Outputs {
    void *data[2];
    size_t bytes[2];
} Outputs;

static const char *const names[] = {"logits", "logprob"};

typedef struct Models {
    Rank *rank;
    const char *layout, *folder;
    iso_model *one, *many;
    iso_model_sizes sizes; /* of `many` */
    Batch batch;
    Outputs expected, have;
} Models;

static size_t output_bytes(const iso_module *module, int output, int rows)
{
    iso_tensor tensor;
    must(iso_model_value(module, names[output], rows, &tensor), names[output]);
    return tensor_bytes(&tensor);
}

static void outputs_open(Outputs *out, const iso_module *module)
{
    for (int i = 0; i < 2; i++)
        if (!(out->data[i] = malloc(output_bytes(module, i, MOST_WANTED))))
            die("no memory for %s", names[i]);
}

static void batch_open(Batch *b, int64_t most)
{
    b->ids = calloc((size_t)most, sizeof *b->ids);
    b->targets = calloc((size_t)most, sizeof *b->targets);
    b->temperature = calloc((size_t)most, sizeof *b->temperature);
    b->wanted = calloc(MOST_WANTED, sizeof *b->wanted);
    if (!b->ids || !b->targets || !b->temperature || !b->wanted)
        die("no memory for a batch");
}

static void batch_close(Batch *b)
{
    free(b->ids);
    free(b->targets);
    free(b->temperature);
    free(b->wanted);
}

/* Sequences of unequal lengths; the wanted rows are spread over all. */
static void fill_batch(Batch *b, int rows, unsigned seed)
{
    uint32_t state = seed * 2654435761u + 1;
    b->rows = rows;
    b->n_sequences = rows < SEQUENCES ? rows : SEQUENCES;
    b->n_wanted = rows < MOST_WANTED ? rows : MOST_WANTED;
    for (int i = 0; i < rows; i++) {
        state = state * 1664525u + 1013904223u;
        b->ids[i] = (int32_t)(state >> 8) % 151936;
        b->targets[i] = (int32_t)(state >> 5) % 151936;
        b->temperature[i] = 0.5f + (float)(state >> 28) / 8;
    }
    for (int i = 0; i < b->n_wanted; i++)
        b->wanted[i] = (int32_t)(((int64_t)i + 1) * rows / b->n_wanted - 1);
    for (int s = 0, first = 0; s < b->n_sequences; s++) {
        int end = (int)((int64_t)rows * (s + 1) * (s + 2) / b->n_sequences / (b->n_sequences + 1));
        end = end < first + 1 ? first + 1 : end;
        end = s == b->n_sequences - 1 ? rows : end;
        b->sequences[s] = (iso_sequence){.id = s, .rows = end - first};
        first = end;
    }
}

static void run_step(iso_model *model, const iso_module *module, const Batch *b, Outputs *out)
{
    iso_value inputs[] = {{"ids", b->ids, (size_t)b->rows * 4},
                          {"targets", b->targets, (size_t)b->rows * 4},
                          {"temperature", b->temperature, (size_t)b->rows * 4}};
    iso_value outputs[2];
    for (int i = 0; i < 2; i++) {
        out->bytes[i] = output_bytes(module, i, b->n_wanted);
        memset(out->data[i], POISON, out->bytes[i]);
        outputs[i] = (iso_value){names[i], out->data[i], out->bytes[i]};
    }
    iso_step step = {.sequences = b->sequences,
                     .n_sequences = b->n_sequences,
                     .inputs = inputs,
                     .n_inputs = 3,
                     .wanted = b->wanted,
                     .n_wanted = b->n_wanted,
                     .outputs = outputs,
                     .n_outputs = 2};
    must(iso_model_step(model, &step), "iso_model_step");
}

/* The part of the rank against one rank's, everything around it against the poison. */
static void compare(Models *m, int output)
{
    int64_t origin[ISO_MAX_AXES];
    iso_tensor part, whole;
    must(iso_model_value(m->rank->module, names[output], m->batch.n_wanted, &whole), "value");
    must(iso_model_part(m->many, names[output], m->batch.n_wanted, &part, origin), "part");
    size_t element = whole.dtype == ISO_F32 ? 4 : 2;
    size_t columns = whole.n_axes > 1 ? (size_t)whole.shape[1] : 1;
    size_t lo = whole.n_axes > 1 ? (size_t)origin[1] * element : 0;
    size_t n = (whole.n_axes > 1 ? (size_t)part.shape[1] : 1) * element;
    const char *have = m->have.data[output];
    char *want = m->expected.data[output];
    for (int64_t r = 0; r < whole.shape[0]; r++) {
        char *row = want + (size_t)r * columns * element;
        bool mine = r >= origin[0] && r < origin[0] + part.shape[0];
        memset(row, POISON, mine ? lo : columns * element);
        if (mine)
            memset(row + lo + n, POISON, columns * element - lo - n);
        m->rank->compared += mine ? n / 2 : 0;
    }
    uint64_t differ = 0;
    for (size_t i = 0; i < m->have.bytes[output]; i += 2)
        differ += memcmp(have + i, want + i, 2) != 0;
    m->rank->differ += differ;
    if (differ)
        printf("  DIFFERS: %s, layout %s, rank %d, %d rows: %llu halves\n", names[output],
               m->layout, m->rank->rank, m->batch.rows, (unsigned long long)differ);
}

/* While faults are awaited every call is a launch of its own, and no step a graph. */
static void expect_step(Models *m)
{
    iso_fault nowhere = {.op = "none of them"};
    if (m->one == m->many)
        must(iso_model_fault(m->one, &nowhere), "iso_model_fault");
    run_step(m->one, m->rank->module, &m->batch, &m->expected);
    must(iso_model_fault(m->one, NULL), "iso_model_fault");
}

static void check_step(Models *m)
{
    expect_step(m);
    run_step(m->many, m->rank->module, &m->batch, &m->have);
    m->rank->runs++;
    for (int i = 0; i < 2; i++)
        compare(m, i);
}

/* ---- every value of a step ---- */

static void trace_step(Models *m, iso_model *model, const char *folder, Outputs *out)
{
    if (mkdir(folder, 0700) && errno != EEXIST)
        die("no folder %s", folder);
    must(iso_model_trace(model, folder, NULL), "iso_model_trace");
    run_step(model, m->rank->module, &m->batch, out);
    must(iso_model_trace(model, NULL, NULL), "iso_model_trace");
}

static void remove_folder(const char *folder)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        die("%s is not to be removed", folder);
}

/* All that the ops give, the rank's parts of it. */
static void check_trace(Models *m)
{
    char one[128], many[128];
    iso_difference d;
    snprintf(one, sizeof one, "%s/one%d", m->folder, m->rank->rank);
    snprintf(many, sizeof many, "%s/many%d", m->folder, m->rank->rank);
    trace_step(m, m->one, one, &m->expected);
    trace_step(m, m->many, many, &m->have);
    must(iso_trace_diff(one, many, &d), "iso_trace_diff");
    printf("  %s, rank %d, %d rows: %lld of %lld traced elements differ\n", m->layout,
           m->rank->rank, m->batch.rows, (long long)d.differ, (long long)d.compared);
    if (d.differ)
        printf("  DIFFERS first: op %s value %s turn %d sequence %lld position %lld index %lld: "
               "%08x %08x\n", d.op, d.value, d.turn, (long long)d.sequence, (long long)d.position,
               (long long)d.index, (unsigned)d.a, (unsigned)d.b);
    m->rank->differ += (uint64_t)d.differ;
    remove_folder(one);
    remove_folder(many);
}

/* ---- what is run ---- */

static void check_packed(Models *m, int64_t most)
{
    for (int i = 0; i < N_ROW_COUNTS && row_counts[i] <= most; i++) {
        fill_batch(&m->batch, (int)row_counts[i], (unsigned)i + 1);
        check_step(m);
        if (row_counts[i] == TRACED_ROWS && m->one != m->many)
            check_trace(m);
    }
}

/* Pages of the sequences lie interleaved; where ranks share the cache, each on the one whose turn
 * it is. */
static void page_sequences(Models *m, int n, int prompt)
{
    int ranks = m->sizes.page_ranks, taken[GROUP_RANKS] = {0};
    for (int p = 0; p < (prompt + DECODED) / PAGE + 1; p++)
        for (int s = 0; s < n; s++) {
            int64_t split = ranks > 1 ? p * (int64_t)PAGE / m->sizes.page_positions : 0;
            int rank = (int)((s + split) % ranks);
            m->batch.pages[s][p] = taken[rank]++ * ranks + rank;
        }
}

static void fill_paged(Batch *b, int n, int rows, int position)
{
    fill_batch(b, rows * n, (unsigned)position + 77);
    b->n_sequences = n;
    for (int s = 0; s < n; s++)
        b->sequences[s] = (iso_sequence){
            .id = s, .position = position, .rows = rows, .pages = b->pages[s]};
}

static void check_paged(Models *m, int n, int prompt)
{
    page_sequences(m, n, prompt);
    fill_paged(&m->batch, n, prompt, 0);
    check_step(m);
    for (int i = 0; i < DECODED; i++) {
        fill_paged(&m->batch, n, 1, prompt + i);
        check_step(m);
    }
}

static void say_time(const Models *m, const char *what, double begin)
{
    if (m->rank->rank == 0)
        printf("  %s: %s in %.1f s\n", m->layout, what, clock_seconds() - begin);
}

static void check_rows(Models *m, int64_t most)
{
    double begin = clock_seconds();
    check_packed(m, most);
    say_time(m, "packed batches", begin);
    check_paged(m, SEQUENCES, PROMPT);
    if (LONG * LONG_PROMPT <= most)
        check_paged(m, LONG, LONG_PROMPT);
    say_time(m, "all", begin);
}

/* A layout's own result as soon as it is known: a run may be cut off before the next. */
static void check_layout(Models *m, iso_model_config config, const char *layout, int64_t most)
{
    const Rank *rank = m->rank;
    double begin = clock_seconds();
    uint64_t runs = rank->runs, differ = rank->differ, compared = rank->compared;
    m->layout = config.layout = layout;
    must(iso_model_size(rank->module, &config, rank->rank, &m->sizes), "iso_model_size");
    config.group = rank_group(m->rank, 30, m->sizes.group, 0);
    must(iso_model_load(&m->many, m->rank->module, &config), layout);
    say_time(m, "loaded", begin);
    check_rows(m, most);
    iso_model_unload(m->many);
    iso_group_destroy(config.group);
    printf("%s: whole model, layout %s, rank %d: %llu steps, %llu of %llu halves differ\n",
           rank->module->manifest->contract, layout, rank->rank,
           (unsigned long long)(rank->runs - runs), (unsigned long long)(rank->differ - differ),
           (unsigned long long)(rank->compared - compared));
}

/* One rank's model, and room for what steps of it give. */
static void models_open(Models *m, Rank *rank, int64_t most, iso_model_config *config)
{
    double begin = clock_seconds();
    *m = (Models){.rank = rank, .layout = "one rank", .sizes = {.page_ranks = 1}};
    *config = (iso_model_config){.size = sizeof *config,
                                 .weights = "seed:7",
                                 .max_rows = most < SEQUENCES * PROMPT ? SEQUENCES * PROMPT : most,
                                 .max_sequences = SEQUENCES,
                                 .max_position = most < 1024 ? 1024 : most,
                                 .page = PAGE,
                                 .pages = 1024,
                                 .graph_rows = 64};
    must(iso_model_load(&m->one, rank->module, config), "iso_model_load on one rank");
    say_time(m, "loaded", begin);
    batch_open(&m->batch, config->max_rows);
    outputs_open(&m->expected, rank->module);
    outputs_open(&m->have, rank->module);
}

static void models_close(Models *m)
{
    iso_model_unload(m->one);
    for (int i = 0; i < 2; i++) {
        free(m->expected.data[i]);
        free(m->have.data[i]);
    }
    batch_close(&m->batch);
}

static void check_layouts(Rank *rank, const char *folder, int64_t most)
{
    const Manifest *manifest = rank->module->manifest;
    Models m;
    iso_model_config config;
    uint8_t digest[32];
    models_open(&m, rank, most, &config);
    m.folder = folder;
    must(iso_model_weights(m.one, digest), "iso_model_weights");
    config.digest = digest;
    for (int l = 0; l < manifest->n_layouts; l++)
        if (manifest->layouts[l].ranks == rank->ranks)
            check_layout(&m, config, manifest->layouts[l].name, most);
    models_close(&m);
}

static int model_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    Rank rank = open_rank(task, r);
    const Manifest *manifest = rank.module->manifest;
    check_layouts(&rank, task->folder, task->most);
    printf("%s: whole model, rank %d of %d: %llu steps, %llu of %llu halves differ\n",
           manifest->contract, r, ranks, (unsigned long long)rank.runs,
           (unsigned long long)rank.differ, (unsigned long long)rank.compared);
    return rank.differ != 0 || rank.runs == 0;
}

int run_model(Task *task)
{
    return run_ranks(task, model_rank);
}

/* Calls that share a launch, and graphs, against calls one by one. */
int run_pairs(Task *task)
{
    Rank rank = open_rank(task, 0);
    Models m;
    iso_model_config config;
    models_open(&m, &rank, task->most, &config);
    m.many = m.one;
    check_rows(&m, task->most);
    int64_t paired = launches_paired(m.one);
    models_close(&m);
    printf("%s: %lld launches had two calls; against calls one by one, in %llu steps %llu of %llu "
           "halves differ\n", rank.module->manifest->contract, (long long)paired,
           (unsigned long long)rank.runs, (unsigned long long)rank.differ,
           (unsigned long long)rank.compared);
    return rank.differ != 0 || paired == 0;
}
