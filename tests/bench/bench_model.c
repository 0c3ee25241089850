/* What a decoding step of a whole model costs: one row for each of so many sequences, with graphs
 * and without, with and without drawing. One process, or one for each rank as torchrun starts them.
 *
 * usage: bench_model CUBIN LAYOUT SEQUENCES POSITION [cpu] */
#include "iso_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 16, STEPS = 50, WARM = 5, MOST_POSITION = 8192 };

typedef struct Bench {
    iso_model *model;
    iso_group *group;
    int sequences, position, rank;
    int32_t *pages, *ids;
    float *ones, *logprob;
} Bench;

static void must(iso_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(3);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void step(Bench *b, const char *output, int graphs)
{
    size_t n = (size_t)b->sequences * 4;
    iso_sequence sequences[256];
    iso_value inputs[] = {{"ids", b->ids, n},       {"targets", b->ids, n},
                          {"seed", b->ids, n},      {"stream", b->ids, n},
                          {"top_k", b->ids, n},     {"temperature", b->ones, n},
                          {"top_p", b->ones, n},    {"min_p", b->ones, n}};
    iso_value value = {output, b->logprob, n};
    int32_t wanted[256];
    int each = MOST_POSITION / PAGE;
    for (int i = 0; i < b->sequences; i++) {
        sequences[i] = (iso_sequence){i, b->position, 1, b->pages + i * each};
        wanted[i] = graphs ? i : b->sequences - 1 - i; /* another order is no graph */
    }
    iso_step s = {.sequences = sequences,
                  .n_sequences = b->sequences,
                  .inputs = inputs,
                  .n_inputs = sizeof inputs / sizeof inputs[0],
                  .wanted = wanted,
                  .n_wanted = b->sequences,
                  .outputs = &value,
                  .n_outputs = output != NULL};
    must(iso_model_step(b->model, &s), "iso_model_step");
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(Bench *b, const char *output, int graphs)
{
    double times[STEPS];
    for (int i = -WARM; i < STEPS; i++) {
        double begin = now();
        step(b, output, graphs);
        if (i >= 0)
            times[i] = now() - begin;
    }
    qsort(times, STEPS, sizeof times[0], by_time);
    if (b->rank == 0)
        printf("  %-16s %-7s median %.3f ms, %.3f to %.3f\n", output ? output : "(cache alone)",
               graphs ? "graph" : "calls", 1e3 * times[STEPS / 2], 1e3 * times[STEPS / 10],
               1e3 * times[STEPS * 9 / 10]);
}

static void open_model(Bench *b, const iso_module *module, const char *layout)
{
    int ranks;
    const char *rank = getenv("RANK");
    iso_model_sizes sizes;
    iso_model_config config = {.size = sizeof config,
                               .weights = "seed:1",
                               .digest = (const uint8_t[32]){0},
                               .layout = layout,
                               .max_rows = 256,
                               .max_sequences = 256,
                               .max_position = MOST_POSITION,
                               .page = PAGE,
                               .pages = (int64_t)b->sequences * MOST_POSITION / PAGE,
                               .graph_rows = 256};
    must(iso_module_layout_ranks(module, layout, &ranks), layout);
    b->rank = ranks > 1 && rank ? atoi(rank) : 0;
    must(iso_model_size(module, &config, b->rank, &sizes), "iso_model_size");
    iso_group_config group = {.size = sizeof group, .bytes = sizes.group};
    if (ranks > 1)
        must(iso_group_create(&b->group, module, &group), "iso_group_create");
    config.group = b->group;
    must(iso_model_load(&b->model, module, &config), "iso_model_load");
    if (b->rank == 0)
        printf("%s, %d sequences at position %d: %.0f MB of weights, %.0f MB of values\n", layout,
               b->sequences, b->position, 1e-6 * (double)sizes.weights,
               1e-6 * (double)sizes.memory);
}

int main(int argc, char **argv)
{
    iso_module *module;
    iso_config config = {.size = sizeof config, .device = argc > 5 ? ISO_CPU : ISO_CUDA};
    Bench b = {.sequences = argc > 4 ? atoi(argv[3]) : 0, .position = argc > 4 ? atoi(argv[4]) : 0};
    if (b.sequences < 1 || b.sequences > 256 || b.position < 0 || b.position >= MOST_POSITION) {
        fprintf(stderr, "usage: %s CUBIN LAYOUT SEQUENCES POSITION [cpu]\n", argv[0]);
        return 2;
    }
    int pages = b.sequences * MOST_POSITION / PAGE;
    b.pages = calloc((size_t)pages, sizeof *b.pages);
    b.ids = calloc(256, sizeof *b.ids);
    b.ones = calloc(256, sizeof *b.ones);
    b.logprob = calloc(256, sizeof *b.logprob);
    for (int i = 0; i < pages; i++)
        b.pages[i] = i;
    for (int i = 0; i < 256; i++)
        b.ids[i] = i, b.ones[i] = 1;
    must(iso_module_load(&module, argv[1], &config), argv[1]);
    open_model(&b, module, argv[2]);
    const char *outputs[] = {NULL, "logprob", "token_logprob"};
    for (int i = 0; i < 3; i++) {
        measure(&b, outputs[i], 1);
        measure(&b, outputs[i], 0);
    }
    iso_model_unload(b.model);
    iso_group_destroy(b.group);
    iso_module_unload(module);
    return 0;
}
