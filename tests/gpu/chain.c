/* Two grouped products run as a model runs them: what the first gives lies in the order of its
 * rows' experts, and the second takes it so. Each alone, by slots, says what is right. */
#include "case.h"
#include "modes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 11 };
static const int64_t most_tokens = 8192;

typedef struct Chain {
    Case c[2];
    int from, chosen[2]; /* parameters: of the second what the first gives, of both the indices */
    iso_tensor tensors[2][MAX_TENSORS];
    iso_run run[2];
    OpCall calls[2];
} Chain;

static void bind(Chain *chain, int64_t rows)
{
    iso_run run = case_run(&chain->c[0], chain->c[0].base, rows, 0);
    iso_run other = case_run(&chain->c[1], chain->c[1].base, rows, 0);
    for (int i = 0; i < 2; i++) {
        Case *c = &chain->c[i];
        case_views(c, c->base, ISO_PHASE_RUN, rows, chain->tensors[i]);
        chain->run[i] = run.workspace_bytes > other.workspace_bytes ? run : other;
        chain->calls[i] = (OpCall){c->base, chain->tensors[i], c->n, &chain->run[i]};
    }
    chain->tensors[1][chain->from].data = chain->tensors[0][chain->c[0].params].data;
    chain->tensors[1][chain->chosen[1]].data = chain->tensors[0][chain->chosen[0]].data;
}

/* ---- bits ---- */

static void compare(Chain *chain, int64_t rows, int32_t live, DevicePtr alive, const char *routing)
{
    Case *last = &chain->c[1];
    size_t bytes = last->bytes[last->params] / (size_t)last->most * (size_t)rows;
    DevicePtr result = (DevicePtr)(uintptr_t)last->whole[last->params].data;
    uint64_t first;
    bind(chain, rows);
    gpu_write(alive, &live, sizeof live);
    for (int i = 0; i < 2 && live < rows; i++)
        chain->run[i].rows_device = (const int32_t *)(uintptr_t)alive;
    case_poison(&chain->c[0]);
    case_poison(last);
    for (int i = 0; i < 2; i++)
        must(iso_op_run(chain->calls[i].op, chain->calls[i].tensors, chain->calls[i].n,
                        chain->calls[i].run), "iso_op_run");
    gpu_copy(last->expected[last->params], result, bytes);
    case_poison(&chain->c[0]);
    case_poison(last);
    must(op_run_chain(chain->calls), "op_run_chain");
    uint64_t differ = gpu_compare(result, last->expected[last->params], bytes, &first);
    last->totals->compared += bytes / 2;
    last->totals->differ += differ;
    if (differ)
        printf("  DIFFERS: %s and %s in the order of experts, %" PRId32 " of %" PRId64
               " tokens, %s: %" PRIu64 ", first at %" PRIu64 "\n", chain->c[0].op->name,
               last->op->name, live, rows, routing, differ, first);
}

/* ---- times ---- */

static void timed_chain(void *user, void *stream)
{
    Chain *chain = user;
    chain->run[0].stream = chain->run[1].stream = stream;
    must(op_run_chain(chain->calls), "op_run_chain");
}

static void timed_second(void *user, void *stream)
{
    Chain *chain = user;
    chain->run[1].stream = stream;
    must(op_run_sorted(&chain->calls[1], true, false, true), "op_run_sorted");
}

static void timed_apart(void *user, void *stream)
{
    Chain *chain = user;
    for (int i = 0; i < 2; i++) {
        chain->run[i].stream = stream;
        must(iso_op_run(chain->calls[i].op, chain->calls[i].tensors, chain->calls[i].n,
                        chain->calls[i].run), "iso_op_run");
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Operations of the second product. */
static double flops_of(const Chain *chain, int64_t rows)
{
    const iso_tensor *from = &chain->tensors[1][chain->from];
    const iso_tensor *to = &chain->tensors[1][chain->c[1].params];
    return 2.0 * (double)(rows * from->shape[1] * from->shape[2] * to->shape[to->n_axes - 1]);
}

static void clock_rows(Chain *chain, int64_t rows, const char *routing)
{
    static void (*const what[])(void *, void *) = {timed_apart, timed_second, timed_chain};
    float us[3][TIMES];
    void *graph[3];
    bind(chain, rows);
    must(op_run_chain(chain->calls), "op_run_chain");
    gpu_sync();
    for (int k = 0; k < 3; k++)
        graph[k] = gpu_record(what[k], chain);
    for (int i = -2; i < TIMES; i++)
        for (int k = 2; k >= 0; k--) {
            float ms = gpu_replay(graph[k]);
            if (i >= 0)
                us[k][i] = ms * 1000;
            if (k == 0) /* the order, and its rows, for the second alone */
                gpu_replay(graph[2]);
        }
    for (int k = 0; k < 3; k++) {
        qsort(us[k], TIMES, sizeof us[k][0], by_value);
        gpu_forget(graph[k]);
    }
    const float *own = us[1];
    printf("| %s, sorted | tp1 | %" PRId64 " | %s | %.1f (%.1f-%.1f) | %.0f TFLOP/s | both %.1f, "
           "apart %.1f |\n", chain->c[1].op->name, rows, routing, own[TIMES / 2], own[0],
           own[TIMES - 1], flops_of(chain, rows) / own[TIMES / 2] * 1e-6, us[2][TIMES / 2],
           us[0][TIMES / 2]);
}

/* ---- all ---- */

static void check_rows(Chain *chain, bool times)
{
    static const int64_t tokens[] = {1, 5, 64, 205, 1024, 8192};
    Case *c = &chain->c[0];
    const iso_tensor *indices = &c->whole[chain->chosen[0]];
    const MfSpec *spec = op_spec(c->base, ISO_PHASE_RUN, 1, 0);
    int picks = (int)indices->shape[1];
    int experts = (int)c->module->manifest->atoms[spec->gemm.experts].size;
    int32_t *chosen = malloc((size_t)(most_tokens * picks) * sizeof *chosen);
    DevicePtr alive = gpu_alloc(sizeof(int32_t));
    if (!chosen)
        exit(5);
    for (int zipf = 0; zipf < 2; zipf++)
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            int64_t n = tokens[i];
            if (!op_chains(c->base, chain->c[1].base, n))
                continue;
            group_route(chosen, n, picks, experts, zipf);
            for (int64_t k = 0; n == 205 && k < n; k++)
                chosen[k * 7 % (n * picks)] = -1;
            gpu_write((DevicePtr)(uintptr_t)indices->data, chosen,
                      (size_t)(n * picks) * sizeof *chosen);
            const char *routing = zipf ? "zipf" : "uniform";
            compare(chain, n, (int32_t)n, alive, routing);
            compare(chain, n, (int32_t)(n * 2 / 3), alive, routing);
            if (times && n != 205)
                clock_rows(chain, n, routing);
        }
    gpu_free(alive);
    free(chosen);
}

void chain_check(const iso_module *module, Totals *totals, bool times)
{
    for (int i = 0; i + 1 < module->manifest->n_ops; i++) {
        Chain chain = {0};
        int unused;
        const iso_op *op[2];
        for (int k = 0; k < 2; k++)
            must(iso_op_get(module, module->manifest->ops[i + k].name, NULL, &op[k]), "iso_op_get");
        if (!op_chains(op[0], op[1], most_tokens) ||
            !op_gathers(op[0], most_tokens, &unused, &chain.chosen[0]) ||
            !op_gathers(op[1], most_tokens, &chain.from, &chain.chosen[1]))
            continue;
        uint64_t differ = totals->differ, compared = totals->compared;
        for (int k = 0; k < 2; k++) {
            case_open(&chain.c[k], module, &module->manifest->ops[i + k], 0, most_tokens, totals);
            case_fill(&chain.c[k], true, 0);
        }
        check_rows(&chain, times);
        printf("%s and %s in the order of experts: %" PRIu64 " of %" PRIu64 " outputs differ\n",
               chain.c[0].op->name, chain.c[1].op->name, totals->differ - differ,
               totals->compared - compared);
        case_close(&chain.c[0]);
        case_close(&chain.c[1]);
        fflush(stdout);
    }
}
