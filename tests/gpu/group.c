/* Times of grouped products: the op's base and one rank of each other layout, for routings whose
 * seed is 7, against a copy of the weights that they touch. */
#include "case.h"
#include "modes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 11 };

/* ---- routings -------------------------------------------------------------------------------- */

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* Different experts for each token, drawn without replacement; Zipf: the i-th of a shuffle has the
 * weight 1 / (i + 1). */
void group_route(int32_t *chosen, int64_t tokens, int picks, int experts, bool zipf)
{
    double *weight = malloc(sizeof *weight * (size_t)experts);
    int32_t *name = malloc(sizeof *name * (size_t)experts);
    uint64_t state = 7;
    if (!weight || !name)
        exit(5);
    for (int i = 0; i < experts; i++) {
        int j = (int)(draw(&state) * (i + 1));
        name[i] = name[j];
        name[j] = i;
    }
    for (int64_t t = 0; t < tokens; t++) {
        double left = 0;
        for (int i = 0; i < experts; i++)
            left += weight[i] = zipf ? 1.0 / (i + 1) : 1.0;
        for (int p = 0; p < picks; p++) {
            double at = draw(&state) * left;
            int i = 0;
            while (i < experts - 1 && (at -= weight[i]) >= 0)
                i++;
            while (weight[i] == 0)
                i = (i + 1) % experts;
            left -= weight[i];
            weight[i] = 0;
            chosen[t * picks + p] = name[i];
        }
    }
    free(weight);
    free(name);
}

/* ---- what a launch has to do ----------------------------------------------------------------- */

typedef struct Work {
    double flops, bytes; /* of products; of weights touched */
} Work;

static int64_t extent(const iso_op *op, const MfAtoms *atoms, iso_phase phase)
{
    return part_size(op->module->manifest, op_part(op, phase), atoms, 1);
}

static Work work_of(const iso_op *op, const MfSpec *spec, iso_phase phase, const int32_t *chosen,
                    int64_t rows)
{
    const MfPart *part = op_part(op, phase);
    const MfGemm *gemm = &spec->gemm;
    int64_t lo = part->lo[gemm->experts], hi = part->hi[gemm->experts], own = 0, touched = 0;
    bool *seen = calloc((size_t)(hi - lo), sizeof *seen);
    if (!seen)
        exit(5);
    for (int64_t i = 0; i < rows; i++)
        if (chosen[i] >= lo && chosen[i] < hi) {
            own++;
            touched += !seen[chosen[i] - lo];
            seen[chosen[i] - lo] = true;
        }
    double each = 0;
    for (int g = 0; g < gemm->n_groups; g++)
        each += (double)(extent(op, &gemm->group[g].cols, phase) * extent(op, &gemm->k, phase) *
                         gemm->group[g].n_products);
    free(seen);
    return (Work){2 * each * (double)own, 2 * each * (double)touched};
}

/* ---- replays --------------------------------------------------------------------------------- */

typedef struct Timed {
    Case *c;
    const iso_op *op;
    bool part;
    iso_run run;
    iso_tensor tensors[MAX_TENSORS];
    DevicePtr roots, from, to;
    size_t copied;
} Timed;

static void timed_run(void *user, void *stream)
{
    Timed *t = user;
    t->run.stream = stream;
    if (t->part)
        must(iso_op_part(t->op, t->tensors, t->c->n, (void *)(uintptr_t)t->roots, &t->run),
             "iso_op_part");
    else
        must(iso_op_run(t->op, t->tensors, t->c->n, &t->run), "iso_op_run");
}

static void timed_copy(void *user, void *stream)
{
    Timed *t = user;
    (void)stream;
    gpu_copy(t->to, t->from, t->copied / 2);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Weights beyond the second-level cache are read anew each time, as in a model. */
static void clock_one(Case *c, const MfLayout *layout, int64_t tokens, const int32_t *chosen,
                      int picks, const char *routing)
{
    const iso_op *op = case_op(c, layout, 0);
    int join;
    must(iso_op_needs_join(op, &join), "iso_op_needs_join");
    iso_phase phase = join ? ISO_PHASE_PART : ISO_PHASE_RUN;
    const MfSpec *spec = op_spec(op, phase, tokens, 0);
    Timed t = {.c = c, .op = op, .part = join, .run = case_run(c, op, tokens, 0)};
    Work work = work_of(op, spec, phase, chosen, tokens * picks);
    float own[TIMES], copy[TIMES];
    size_t roots = 0;
    case_views(c, op, phase, tokens, t.tensors);
    if (join)
        must(iso_op_roots(op, tokens, &roots), "iso_op_roots");
    t.roots = roots ? gpu_alloc(roots) : 0;
    t.copied = (size_t)(work.bytes < 4e9 ? work.bytes : 4e9) + 256;
    t.from = gpu_alloc(t.copied / 2);
    t.to = gpu_alloc(t.copied / 2);
    void *graph = gpu_record(timed_run, &t), *yard = gpu_record(timed_copy, &t);
    for (int i = -2; i < TIMES; i++) {
        float a = gpu_replay(graph), b = gpu_replay(yard);
        if (i >= 0)
            own[i] = a * 1000, copy[i] = b * 1000;
    }
    qsort(own, TIMES, sizeof *own, by_value);
    qsort(copy, TIMES, sizeof *copy, by_value);
    double us = own[TIMES / 2];
    printf("| %s | %s | %" PRId64 " | %s | %dx%d | %.1f (%.1f-%.1f) | %.0f | %.0f | %.2f |\n",
           c->op->name, layout->name, tokens, routing, spec->gemm.tile_m, spec->gemm.tile_n, us,
           own[0], own[TIMES - 1], work.flops / us * 1e-6, work.bytes / us * 1e-3,
           work.bytes / us / ((double)t.copied / copy[TIMES / 2]));
    gpu_forget(graph);
    gpu_forget(yard);
    gpu_free(t.from);
    gpu_free(t.to);
    if (t.roots)
        gpu_free(t.roots);
}

void group_times(Case *c)
{
    static const int64_t tokens[] = {8192, 1024, 64, 1};
    const MfSpec *spec = op_spec(c->base, ISO_PHASE_RUN, 1, 0);
    int index = spec->bindings[spec->gemm.chosen].tensor;
    int picks = (int)c->whole[index].shape[1];
    int experts = (int)c->module->manifest->atoms[spec->gemm.experts].size;
    int32_t *chosen = malloc((size_t)(c->most * picks) * sizeof *chosen);
    if (!chosen)
        exit(5);
    printf("| op | layout | tokens | routing | tile | us | TFLOP/s | weights GB/s | of a copy |\n");
    for (int zipf = 0; zipf < 2; zipf++)
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            group_route(chosen, tokens[i], picks, experts, zipf);
            gpu_write((DevicePtr)(uintptr_t)c->whole[index].data, chosen,
                      (size_t)(tokens[i] * picks) * sizeof *chosen);
            for (int l = 0; l < c->module->manifest->n_layouts; l++)
                clock_one(c, &c->module->manifest->layouts[l], tokens[i], chosen, picks,
                          zipf ? "zipf" : "uniform");
        }
    free(chosen);
}
