/* A sampler's ranks: the MLP blocks of a few decoder layers, one process per rank, over a group.
 *
 * Every rank makes the part of the weights and of the hidden states that it holds, and calls the
 * same ops; what must move between ranks moves inside iso_op_run_group. Each prints a digest of
 * every row that it ends with: the sorted lines are the same for every layout and number of ranks.
 * Usage, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them:
 *
 *     torchrun --no-python --nproc-per-node 3 ranks FILE.cubin tp3_sp [rows [layers]]
 *
 * Exit codes: 0 done, 2 usage, 3 anything else. */
#include "iso_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Ranks {
    const iso_module *module;
    iso_group *group;
    const char *layout;
    int rank;
    int64_t rows;
} Ranks;

static void must(iso_status status, const char *what)
{
    if (status == ISO_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(3);
}

static const iso_op *get(const Ranks *r, const char *name)
{
    const iso_op *op;
    iso_layout at = {.name = r->layout, .rank = r->rank};
    must(iso_op_get(r->module, name, &at, &op), name);
    return op;
}

static unsigned hash(unsigned h)
{
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    return h ^ h >> 13;
}

/* ---- tensors: bf16, of one or two axes ---- */

static size_t elements(const iso_tensor *tensor)
{
    size_t n = 1;
    for (int i = 0; i < tensor->n_axes; i++)
        n *= (size_t)tensor->shape[i];
    return n;
}

/* This rank's part of an op's tensor, zeroed, and where it begins in the whole. */
static iso_tensor hold(const Ranks *r, const char *op, int index, int64_t origin[ISO_MAX_AXES])
{
    iso_tensor tensor;
    must(iso_op_held(get(r, op), r->rows, index, &tensor, origin), op);
    tensor.data = calloc(elements(&tensor) + 1, sizeof(uint16_t));
    if (!tensor.data)
        must(ISO_OUT_OF_MEMORY, op);
    return tensor;
}

/* The value at a place is the same whoever holds it, as a checkpoint's is. */
static void fill(const iso_tensor *tensor, const int64_t origin[ISO_MAX_AXES], unsigned seed)
{
    uint16_t *to = tensor->data;
    int64_t columns = tensor->shape[tensor->n_axes - 1];
    for (size_t i = 0; i < elements(tensor); i++) {
        int64_t row = tensor->n_axes > 1 ? (int64_t)i / columns + origin[0] : 0;
        int64_t column = (int64_t)i % columns + origin[tensor->n_axes - 1];
        unsigned h = hash((unsigned)row * 2654435761u + hash((unsigned)column + seed));
        to[i] = (uint16_t)((h & 0x807F) | (0x3B80 + (h >> 8 & 3) * 0x80));
    }
}

static iso_tensor weight(const Ranks *r, const char *op, int index, unsigned seed)
{
    int64_t origin[ISO_MAX_AXES];
    iso_tensor tensor = hold(r, op, index, origin);
    fill(&tensor, origin, seed);
    return tensor;
}

/* ---- one layer ---- */

static void run(const Ranks *r, const char *name, const iso_tensor *tensors, int n)
{
    iso_run how = {.rows = r->rows};
    must(iso_op_run_group(r->group, get(r, name), tensors, n, &how), name);
}

/* x = down(gate_up(norm(x))) + x; the result takes the place of x. */
static void layer(const Ranks *r, iso_tensor *x, unsigned seed)
{
    int64_t origin[ISO_MAX_AXES];
    iso_tensor norm[] = {*x, weight(r, "post_norm", 1, seed), hold(r, "post_norm", 2, origin)};
    iso_tensor up[] = {norm[2], weight(r, "gate_up", 1, seed + 1),
                       weight(r, "gate_up", 2, seed + 2), hold(r, "gate_up", 3, origin)};
    iso_tensor down[] = {up[3], weight(r, "down", 1, seed + 3), *x, hold(r, "down", 3, origin)};
    run(r, "post_norm", norm, 3);
    run(r, "gate_up", up, 4);
    run(r, "down", down, 4);
    free(x->data);
    *x = down[3];
    void *done[] = {norm[1].data, norm[2].data, up[1].data, up[2].data, up[3].data, down[1].data};
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++)
        free(done[i]);
}

static void print_rows(const iso_tensor *x, int64_t first)
{
    for (int64_t row = 0; row < x->shape[0]; row++) {
        uint64_t h = 0xCBF29CE484222325u;
        for (int64_t c = 0; c < x->shape[1]; c++)
            h = (h ^ ((const uint16_t *)x->data)[row * x->stride[0] + c]) * 0x100000001B3u;
        printf("row %3" PRId64 "  %016" PRIx64 "\n", first + row, h);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FILE.cubin LAYOUT [rows [layers]]\n", argv[0]);
        return 2;
    }
    iso_module *module;
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    iso_group_config meeting = {.size = sizeof meeting};
    const char *rank = getenv("RANK");
    Ranks r = {.layout = argv[2],
                 .rank = rank ? atoi(rank) : 0,
                 .rows = argc > 3 ? atoll(argv[3]) : 4};
    int layers = argc > 4 ? atoi(argv[4]) : 2;
    int64_t origin[ISO_MAX_AXES];
    must(iso_module_load(&module, argv[1], &config), argv[1]);
    must(iso_group_create(&r.group, module, &meeting), "iso_group_create");
    r.module = module;
    iso_tensor x = hold(&r, "post_norm", 0, origin);
    fill(&x, origin, 1);
    for (int i = 0; i < layers; i++)
        layer(&r, &x, 100u * (unsigned)i + 2);
    print_rows(&x, origin[0]);
    free(x.data);
    iso_group_destroy(r.group);
    iso_module_unload(module);
    return 0;
}
