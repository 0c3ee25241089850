/* Draws, and ops that read at indices from parameters: every one of a cubin against the CPU
 * executor, and against itself with the rows in another order; then how long they take. */
#include "case.h"
#include "modes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 61, ORDER = 17 /* row i of the second run is row 17 i mod 61 of the first */ };

typedef struct Rig {
    const iso_module *module;
    iso_module *cpu;
    const iso_op *op, *on_cpu;
    int n, params;
    iso_tensor host[MAX_TENSORS], device[MAX_TENSORS];
    int32_t position[ROWS];
    DevicePtr positions;
    uint64_t compared, differ, moved;
} Rig;

static uint64_t scatter(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool of_rows(const Rig *g, int i)
{
    return g->host[i].n_axes > 0 && g->host[i].shape[0] == ROWS;
}

/* Scores of several kinds: sharp and flat, with many ties, with what is not finite. */
static float score(uint64_t r, size_t row)
{
    float x = bell(r) * (row % 3 == 0 ? 4.0f : row % 3 == 1 ? 1.5f : 0.3f);
    if (row % 7 == 2)
        return floorf(x * 2);
    if (row % 11 == 4 && r % 3)
        return -INFINITY;
    if (row == 40 && r % 100000 == 1)
        return NAN;
    if (row == 41 && r % 50000 == 1)
        return INFINITY;
    return row % 13 == 6 ? x - 1e30f : x;
}

static float limit(size_t row, int tensor)
{
    static const float values[] = {1, 0.9f, 0.7f, 0, 0.95f, 0.05f, 0.999f, -1, 0.5f};
    return values[(row * 5 + (size_t)tensor * 3) % 9];
}

static int32_t integer(size_t row, int tensor)
{
    static const int32_t values[] = {1, 50, 0, 2, 40, 100000, -1, 7, 1000, 123456789, 151935};
    return values[(row * 3 + (size_t)tensor * 4) % 11];
}

static void put(Rig *g, int i, size_t at)
{
    iso_tensor *t = &g->host[i];
    size_t line = elements(t) / (size_t)t->shape[0], row = at / line;
    float x = t->n_axes > 1 ? score(scatter(at * 31 + (size_t)i), row) : limit(row, i);
    if (t->dtype == ISO_I32) {
        ((int32_t *)t->data)[at] = integer(row, i);
    } else if (t->dtype == ISO_F32) {
        ((float *)t->data)[at] = x;
    } else {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        ((uint16_t *)t->data)[at] = (uint16_t)(bits >> 16);
    }
}

static void open_tensors(Rig *g)
{
    int results;
    must(iso_op_tensors(g->op, &g->params, &results), "iso_op_tensors");
    g->n = g->params + results;
    for (int i = 0; i < g->n; i++) {
        iso_tensor *t = &g->host[i];
        must(iso_op_tensor(g->op, ISO_PHASE_RUN, ROWS, i, t, NULL), "iso_op_tensor");
        size_t bytes = elements(t) * element(t);
        t->data = malloc(bytes);
        if (!t->data)
            exit(5);
        for (size_t at = 0; i < g->params && at < elements(t); at++)
            put(g, i, at);
        g->device[i] = *t;
        g->device[i].data = (void *)(uintptr_t)gpu_alloc(bytes);
        if (i < g->params)
            gpu_write((DevicePtr)(uintptr_t)g->device[i].data, t->data, bytes);
    }
    for (int i = 0; i < ROWS; i++)
        g->position[i] = i * i * 7;
    g->positions = gpu_alloc(sizeof g->position);
    gpu_write(g->positions, g->position, sizeof g->position);
}

static void close_tensors(Rig *g)
{
    for (int i = 0; i < g->n; i++) {
        free(g->host[i].data);
        gpu_free((DevicePtr)(uintptr_t)g->device[i].data);
    }
    gpu_free(g->positions);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void run_cpu(Rig *g)
{
    iso_run run = {.rows = ROWS, .positions = g->position};
    must(iso_op_run(g->on_cpu, g->host, g->n, &run), "the executor");
}

static void launch(void *user, void *stream)
{
    Rig *g = user;
    iso_run run = {.rows = g->device[0].shape[0], .stream = stream,
                   .positions = (const int32_t *)(uintptr_t)g->positions};
    must(iso_op_run(g->op, g->device, g->n, &run), "the device");
}

static void run_device(Rig *g)
{
    for (int i = g->params; i < g->n; i++)
        gpu_set((DevicePtr)(uintptr_t)g->device[i].data, POISON,
                elements(&g->host[i]) * element(&g->host[i]));
    launch(g, gpu_stream());
    gpu_sync();
}

/* Row i of the device's result against row order * i of the executor's. */
static uint64_t compare(Rig *g, int order)
{
    uint64_t differ = 0;
    for (int i = g->params; i < g->n; i++) {
        const iso_tensor *t = &g->host[i];
        size_t row = elements(t) / ROWS * element(t);
        char *own = malloc(row * ROWS);
        if (!own)
            exit(5);
        gpu_read(own, (DevicePtr)(uintptr_t)g->device[i].data, row * ROWS);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t at = 0; at < row; at += element(t), g->compared++)
                differ += memcmp(own + r * row + at, (char *)t->data +
                                 r * (size_t)order % ROWS * row + at, element(t)) != 0;
        free(own);
    }
    return differ;
}

/* Sends the parameters with their rows in another order. */
static void reorder(Rig *g)
{
    for (int i = 0; i < g->params; i++) {
        if (!of_rows(g, i))
            continue;
        size_t row = elements(&g->host[i]) / ROWS * element(&g->host[i]);
        for (size_t r = 0; r < ROWS; r++)
            gpu_write((DevicePtr)(uintptr_t)g->device[i].data + r * row,
                      (char *)g->host[i].data + r * ORDER % ROWS * row, row);
    }
    for (size_t r = 0; r < ROWS; r++)
        gpu_write(g->positions + 4 * r, &g->position[r * ORDER % ROWS], 4);
}

static void set_rows(Rig *g, int64_t rows)
{
    for (int i = 0; i < g->n; i++)
        if (of_rows(g, i))
            g->device[i].shape[0] = rows;
}

/* The same limits for all rows. */
static void same_limits(Rig *g, float top_p, float min_p, int32_t count)
{
    const float one = 1;
    for (int i = 0; i < g->params; i++) {
        const char *name = g->op->op->tensors[i].name;
        const void *value = g->host[i].dtype == ISO_I32 ? (const void *)&count
                            : !strcmp(name, "top_p")    ? &top_p
                            : !strcmp(name, "min_p")    ? &min_p
                                                        : &one;
        for (size_t r = 0; r < ROWS && g->host[i].n_axes == 1; r++)
            gpu_write((DevicePtr)(uintptr_t)g->device[i].data + 4 * r, value, 4);
    }
}

static void time_rows(Rig *g, const char *what)
{
    static const int64_t rows[] = {1, 8, ROWS};
    printf("  %-34s", what);
    for (int i = 0; i < 3; i++) {
        set_rows(g, rows[i]);
        printf(" %3d rows %8.1f us", (int)rows[i], gpu_graph(launch, g, 50));
    }
    printf("\n");
    set_rows(g, ROWS);
}

static bool wanted(const iso_op *op)
{
    bool indices = false;
    for (int i = 0; i < op->op->n_params + op->op->n_results; i++)
        indices |= op->op->tensors[i].dtype == ISO_I32;
    return indices && op->layout->ranks == 1;
}

static void check_op(Rig *g, bool times)
{
    open_tensors(g);
    run_cpu(g);
    run_device(g);
    uint64_t differ = compare(g, 1);
    reorder(g);
    run_device(g);
    uint64_t moved = compare(g, ORDER);
    printf("%s: %llu outputs differ from the executor's, %llu with the rows in another order\n",
           g->op->op->name, (unsigned long long)differ, (unsigned long long)moved);
    g->differ += differ + moved;
    if (times && op_spec(g->op, ISO_PHASE_RUN, ROWS, 0)->family == MF_DRAW) {
        same_limits(g, 1, 0, 0);
        time_rows(g, "no limits");
        same_limits(g, 0.9f, 0, 0);
        time_rows(g, "top_p 0.9");
        same_limits(g, 1, 0, 50);
        time_rows(g, "top_k 50");
        same_limits(g, 0.9f, 0.05f, 50);
        time_rows(g, "top_k 50, top_p 0.9, min_p 0.05");
    } else if (times) {
        time_rows(g, "");
    }
    close_tensors(g);
}

int draw_check(const iso_module *module, iso_module *cpu, const char *only, bool times)
{
    Rig rig = {.module = module, .cpu = cpu};
    for (int i = 0; i < module->n_ops; i++) {
        rig.op = &module->ops[i];
        rig.on_cpu = &cpu->ops[i];
        if (wanted(rig.op) && (!only || !strcmp(only, rig.op->op->name)))
            check_op(&rig, times);
    }
    printf("%s: %llu of %llu outputs differ\n", module->manifest->contract,
           (unsigned long long)rig.differ, (unsigned long long)rig.compared);
    return rig.differ || !rig.compared ? 4 : 0;
}
