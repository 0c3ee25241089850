/* Routing, products at slots' experts, sums of slots: every op of a cubin that has a token's slots,
 * or the one that --op names, in every layout, its ranks one after another, at many row counts,
 * against the CPU executor; then how long it takes beside a copy of as many bytes. Scores tie where
 * it hurts: at the last slot, at the last group.
 *
 * The executor computes the first rows; row i of every run has the inputs of row i modulo these. */
#include "case.h"
#include "modes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BASE = 256, BASE_OF_PRODUCTS = 48, MOST = 8192 };
enum { UNIFORM, SKEWED, ONE_PLACE, KINDS };

static const char *const kind_name[KINDS] = {"uniform", "skewed", "all at one place"};

typedef struct Route {
    Case c;
    const iso_op *on_cpu;
    int routing;
    size_t base; /* rows that the executor computes */
    iso_tensor host[MAX_TENSORS];
} Route;

static uint64_t scatter(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Rows of several kinds: plain, of few values, of one value, with zeros of both signs, with what
 * is not finite, all NaN as a row of padding may be. */
static float value(uint64_t r, size_t row)
{
    static const float rare[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, 3e38f, -1.0f};
    float x = bell(r);
    switch (row % 16) {
    case 1: case 9: return floorf(x * 2) / 2;
    case 3: return 0.5f;
    case 5: return r & 1 ? 0.0f : -0.0f;
    case 7: return r % 29 ? x : rare[r / 29 % 8];
    case 11: return row == 11 ? NAN : floorf(x);
    case 13: return x > 0 ? 1.0f : x;
    default: return x;
    }
}

static void put_value(iso_tensor *t, size_t at, uint64_t r, size_t row)
{
    float x = value(r, row);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (t->dtype == ISO_F32)
        ((float *)t->data)[at] = x;
    else
        ((uint16_t *)t->data)[at] = (uint16_t)(bits >> 16);
}

/* The size of the axis that a tensor of indices has indices of. */
static int64_t places(const Route *g, int tensor)
{
    const MfSpec *spec = op_spec(g->c.base, ISO_PHASE_RUN, MOST, 0);
    for (int i = 0; i < spec->n_bindings; i++) {
        const MfBinding *b = &spec->bindings[i];
        if (b->lookup >= 0 && spec->bindings[b->lookup].tensor == tensor)
            return g->c.module->manifest->atoms[b->looked_up].size;
    }
    return 1;
}

/* Different places, as a router gives them; in some rows one twice, or none. */
static void put_slots(int32_t *slots, int64_t k, int64_t n, int routing, size_t row)
{
    for (int64_t s = 0; s < k; s++) {
        uint64_t r = scatter(row * 1009 + (uint64_t)s);
        bool fresh = false;
        int64_t at = routing == UNIFORM   ? (int64_t)(r % (uint64_t)n)
                     : routing == SKEWED ? (int64_t)((r >> 8) % (1 + r % (uint64_t)n))
                                         : s % n;
        for (int64_t tried = 0; !fresh && tried < n; tried++, at = (at + !fresh) % n) {
            fresh = true;
            for (int64_t i = 0; i < s; i++)
                fresh &= slots[i] != at;
        }
        slots[s] = (int32_t)at;
    }
    if (row % 19 == 4)
        slots[k / 2] = -1;
    if (row % 23 == 6)
        slots[k - 1] = slots[0];
    for (int64_t s = 0; row % 61 == 7 && s < k; s++)
        slots[s] = -1;
}

/* Of weights the first elements, again and again, in a period that no axis has. */
static void repeat_weights(iso_tensor *t, size_t have)
{
    size_t all = elements(t) * element(t), bytes = have * element(t);
    for (size_t at = bytes; at < all; at += bytes)
        memcpy((char *)t->data + at, t->data, all - at < bytes ? all - at : bytes);
}

static void put_param(Route *g, int i)
{
    enum { PERIOD = 1000003 };
    iso_tensor *t = &g->host[i];
    size_t n = elements(t), line = n / (size_t)t->shape[0];
    bool rows = case_has_rows(&g->c, i);
    if (t->dtype == ISO_I32) {
        for (size_t row = 0; row < g->base; row++)
            put_slots((int32_t *)t->data + row * line, (int64_t)line, places(g, i), g->routing,
                      row);
        return;
    }
    for (size_t at = 0; at < n && (rows || at < PERIOD); at++)
        put_value(t, at, scatter(at * 31 + (uint64_t)i * 77 + (uint64_t)g->routing),
                  rows ? at / line : 0);
    if (!rows && n > PERIOD)
        repeat_weights(t, PERIOD);
}

/* ---- the executor's rows, again and again ---------------------------------------------------- */

static void repeat_rows(const Route *g, DevicePtr to, const iso_tensor *host)
{
    size_t bytes = elements(host) * element(host), all = bytes / g->base * MOST;
    char last;
    gpu_write(to, host->data, bytes);
    gpu_read(&last, to + bytes - 1, 1); /* what was written is there for the stream's copies */
    for (size_t have = bytes; have < all; have *= 2)
        gpu_copy(to + have, to, have * 2 <= all ? have : all - have);
}

static void make_base(Route *g)
{
    Case *c = &g->c;
    for (int i = 0; i < c->n; i++) {
        iso_tensor *t = &g->host[i];
        must(iso_op_tensor(g->on_cpu, ISO_PHASE_RUN, (int64_t)g->base, i, t, NULL),
             "iso_op_tensor");
        t->data = malloc(elements(t) * element(t));
        if (!t->data)
            exit(5);
        if (i < c->params)
            put_param(g, i);
    }
    iso_run run = {.rows = (int64_t)g->base};
    must(iso_op_run(g->on_cpu, g->host, c->n, &run), "the executor");
    for (int i = 0; i < c->n; i++) {
        DevicePtr to = i < c->params ? (DevicePtr)(uintptr_t)c->whole[i].data : c->expected[i];
        if (case_has_rows(c, i))
            repeat_rows(g, to, &g->host[i]);
        else
            gpu_write(to, g->host[i].data, elements(&g->host[i]) * element(&g->host[i]));
        free(g->host[i].data);
    }
    gpu_sync();
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Few rows by every schedule, many by the one that is meant for them. */
static void run_layouts(Route *g, Way way)
{
    for (int l = 0; l < g->c.module->manifest->n_layouts; l++) {
        int schedules;
        way.layout = &g->c.module->manifest->layouts[l];
        must(iso_op_schedules(case_op(&g->c, way.layout, 0), &schedules), "iso_op_schedules");
        for (way.schedule = 0; way.schedule <= schedules; way.schedule++)
            if (way.schedule == 0 || way.rows <= 205)
                case_way(&g->c, &way);
    }
}

static void run_all(Route *g)
{
    static const int64_t rows[] = {1, 2, 31, 32, 33, 205, 1024, MOST};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        run_layouts(g, (Way){.rows = rows[i], .live = rows[i]});
    run_layouts(g, (Way){.rows = 100, .live = 67});
}

/* ---- times ----------------------------------------------------------------------------------- */

typedef struct Timed {
    Case *c;
    iso_run run;
    iso_tensor tensors[MAX_TENSORS];
    DevicePtr from, to;
    size_t bytes; /* that a copy moves: read and written */
} Timed;

static void timed_run(void *user, void *stream)
{
    Timed *t = user;
    t->run.stream = stream;
    must(iso_op_run(t->c->base, t->tensors, t->c->n, &t->run), "iso_op_run");
}

static void timed_copy(void *user, void *stream)
{
    Timed *t = user;
    (void)stream;
    gpu_copy(t->to, t->from, t->bytes / 2);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Medians of replays that take turns. */
static void time_rows(Route *g, int64_t rows)
{
    enum { TIMES = 15 };
    Case *c = &g->c;
    Timed t = {.c = c, .run = case_run(c, c->base, rows, 0)};
    float own[TIMES], copy[TIMES];
    case_views(c, c->base, ISO_PHASE_RUN, rows, t.tensors);
    for (int i = 0; i < c->n; i++)
        t.bytes += elements(&t.tensors[i]) * element(&t.tensors[i]);
    t.from = gpu_alloc(t.bytes);
    t.to = gpu_alloc(t.bytes);
    void *graph = gpu_record(timed_run, &t), *yard = gpu_record(timed_copy, &t);
    for (int i = -2; i < TIMES; i++) {
        float a = gpu_replay(graph), b = gpu_replay(yard);
        if (i >= 0)
            own[i] = a * 1000, copy[i] = b * 1000;
    }
    qsort(own, TIMES, sizeof *own, by_value);
    qsort(copy, TIMES, sizeof *copy, by_value);
    printf("  %5d rows: %8.2f us (%.2f to %.2f), %8.2f MB; a copy of as many bytes %8.2f us "
           "(%.2f to %.2f)\n", (int)rows, own[TIMES / 2], own[0], own[TIMES - 1],
           (double)t.bytes * 1e-6, copy[TIMES / 2], copy[0], copy[TIMES - 1]);
    gpu_forget(graph);
    gpu_forget(yard);
    gpu_free(t.from);
    gpu_free(t.to);
}

static void time_op(Route *g)
{
    static const int64_t rows[] = {1, 64, MOST};
    if (op_spec(g->c.base, ISO_PHASE_RUN, MOST, 0)->gemm.grouped) {
        group_times(&g->c);
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        time_rows(g, rows[i]);
}

/* ---- all ------------------------------------------------------------------------------------- */

static const iso_op *op_of(const iso_module *module, const char *name)
{
    const iso_op *op;
    must(iso_op_get(module, name, NULL, &op), "iso_op_get");
    return op;
}

static const MfSpec *spec_of(const iso_module *module, const char *name)
{
    return op_spec(op_of(module, name), ISO_PHASE_RUN, MOST, 0);
}

static bool has_slots(const iso_module *module, const char *name)
{
    const MfSpec *spec = spec_of(module, name);
    return spec && (spec->family == MF_TOP || spec->row_columns || spec->gemm.grouped);
}

int route_check(const iso_module *module, iso_module *cpu, const char *only, bool times)
{
    Totals totals = {0};
    for (int i = 0; i < module->manifest->n_ops; i++) {
        const MfOp *op = &module->manifest->ops[i];
        if (only ? strcmp(only, op->name) : !has_slots(module, op->name))
            continue;
        for (int routing = 0; routing < KINDS; routing++) {
            bool products = spec_of(module, op->name)->family == MF_GEMM;
            Route g = {.routing = routing, .on_cpu = op_of(cpu, op->name),
                       .base = products ? BASE_OF_PRODUCTS : BASE};
            uint64_t differ = totals.differ, compared = totals.compared;
            case_open(&g.c, module, op, 0, MOST, &totals);
            make_base(&g);
            run_all(&g);
            printf("%s, %s: %llu of %llu outputs differ from the executor's\n", op->name,
                   kind_name[routing], (unsigned long long)(totals.differ - differ),
                   (unsigned long long)(totals.compared - compared));
            if (times && routing == UNIFORM)
                time_op(&g);
            case_close(&g.c);
        }
        fflush(stdout);
    }
    if (!only)
        chain_check(module, &totals, times);
    printf("%s: %llu runs with %d kernels: %llu of %llu outputs differ\n",
           module->manifest->contract, (unsigned long long)totals.runs, totals.kernels.n,
           (unsigned long long)totals.differ, (unsigned long long)totals.compared);
    return totals.differ || !totals.compared ? 4 : 0;
}
