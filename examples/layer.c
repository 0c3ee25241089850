/* The ops of one decoder layer in every layout of a module, by libiso's public interface alone.
 *
 * Each rank runs its part on the executor, ranks' roots are joined in tree order, and the whole
 * result is hashed: the digests of all layouts are the same. Usage:
 *
 *     layer FILE.cubin [rows]          (a contract, FILE.iso, does too where NVRTC is)
 *
 * Exit codes: 0 all digests agree, 4 some differ, 2 usage, 3 anything else. */
#include "iso.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 16, MAX_RANKS = 64 };

/* What one op works on: whole tensors in host memory, of which ranks get views. */
typedef struct Data {
    int n, params;
    iso_tensor whole[MAX_TENSORS];
} Data;

static void must(iso_status status, const char *what)
{
    if (status == ISO_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(3);
}

static size_t element_bytes(iso_dtype dtype)
{
    return dtype == ISO_F32 || dtype == ISO_I32 ? 4 : 2;
}

static size_t elements(const iso_tensor *tensor)
{
    size_t n = 1;
    for (int i = 0; i < tensor->n_axes; i++)
        n *= (size_t)tensor->shape[i];
    return n;
}

/* bf16 values between -1 and 1 from a counter: the same on every machine. */
static void fill(iso_tensor *tensor, unsigned seed)
{
    uint16_t *to = tensor->data;
    for (size_t i = 0; i < elements(tensor); i++) {
        unsigned h = (unsigned)i * 2654435761u + seed;
        h ^= h >> 16;
        h *= 0x85EBCA6Bu;
        h ^= h >> 13;
        to[i] = (uint16_t)((h & 0x807F) | (0x3B80 + (h >> 8 & 3) * 0x80));
    }
}

static void make_data(const iso_op *op, int64_t rows, Data *data)
{
    int results;
    must(iso_op_tensors(op, &data->params, &results), "iso_op_tensors");
    data->n = data->params + results;
    for (int i = 0; i < data->n && i < MAX_TENSORS; i++) {
        iso_tensor *tensor = &data->whole[i];
        must(iso_op_tensor(op, ISO_PHASE_RUN, rows, i, tensor, NULL), "iso_op_tensor");
        tensor->data = calloc(elements(tensor) + 1, element_bytes(tensor->dtype));
        if (!tensor->data) {
            fprintf(stderr, "no memory\n");
            exit(3);
        }
        if (i < data->params && tensor->dtype != ISO_I32) /* index 0 is every axis's */
            fill(tensor, 7u * (unsigned)i + 1);
    }
}

/* A rank's part of each whole tensor, in place: its shape, its origin, the whole's strides. */
static void view(const iso_op *op, iso_phase phase, int64_t rows, const Data *data,
                 iso_tensor *tensors)
{
    for (int i = 0; i < data->n; i++) {
        int64_t origin[ISO_MAX_AXES], offset = 0;
        must(iso_op_tensor(op, phase, rows, i, &tensors[i], NULL), "iso_op_tensor");
        must(iso_op_origin(op, phase, rows, i, origin), "iso_op_origin");
        for (int a = 0; a < tensors[i].n_axes; a++) {
            tensors[i].stride[a] = data->whole[i].stride[a];
            offset += origin[a] * tensors[i].stride[a];
        }
        tensors[i].data =
            (char *)data->whole[i].data + (size_t)offset * element_bytes(tensors[i].dtype);
    }
}

static const iso_op *get(const iso_module *module, const char *name, const char *layout, int rank)
{
    const iso_op *op;
    iso_layout at = {.name = layout, .rank = rank};
    must(iso_op_get(module, name, &at, &op), name);
    return op;
}

/* One op in one layout, ranks one after another. */
static void run(const iso_module *module, const char *name, const char *layout, int ranks,
                int64_t rows, Data *data)
{
    iso_tensor tensors[MAX_TENSORS];
    void *roots[MAX_RANKS] = {NULL};
    iso_run how = {.rows = rows};
    int join;
    must(iso_op_needs_join(get(module, name, layout, 0), &join), name);
    for (int r = 0; r < ranks; r++) {
        const iso_op *op = get(module, name, layout, r);
        view(op, join ? ISO_PHASE_PART : ISO_PHASE_RUN, rows, data, tensors);
        if (!join) {
            must(iso_op_run(op, tensors, data->n, &how), name);
            continue;
        }
        size_t bytes;
        must(iso_op_roots(op, rows, &bytes), name);
        roots[r] = aligned_alloc(256, (bytes + 255) / 256 * 256);
        must(iso_op_part(op, tensors, data->n, roots[r], &how), name);
    }
    for (int r = 0; join && r < ranks; r++) {
        const iso_op *op = get(module, name, layout, r);
        view(op, ISO_PHASE_JOIN, rows, data, tensors);
        must(iso_op_join(op, (const void *const *)roots, ranks, tensors, data->n, &how), name);
    }
    for (int r = 0; r < ranks; r++)
        free(roots[r]);
}

/* FNV-1a over the results' bytes: enough to show equality to a reader. */
static uint64_t digest(const Data *data)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (int i = data->params; i < data->n; i++) {
        const unsigned char *bytes = data->whole[i].data;
        size_t n = elements(&data->whole[i]) * element_bytes(data->whole[i].dtype);
        for (size_t j = 0; j < n; j++)
            h = (h ^ bytes[j]) * 0x100000001B3u;
    }
    return h;
}

static int compare_layouts(const iso_module *module, const char *name, int64_t rows)
{
    int differ = 0, ranks;
    uint64_t first = 0;
    Data data;
    make_data(get(module, name, iso_module_layout_name(module, 0), 0), rows, &data);
    for (int l = 0; iso_module_layout_name(module, l); l++) {
        const char *layout = iso_module_layout_name(module, l);
        must(iso_module_layout_ranks(module, layout, &ranks), layout);
        for (int i = data.params; i < data.n; i++)
            memset(data.whole[i].data, 0xCD,
                   elements(&data.whole[i]) * element_bytes(data.whole[i].dtype));
        run(module, name, layout, ranks, rows, &data);
        uint64_t h = digest(&data);
        if (l == 0)
            first = h;
        differ += h != first;
        printf("%-12s %-10s %2d ranks  %016" PRIx64 "%s\n", name, layout, ranks, h,
               h == first ? "" : "  DIFFERS");
    }
    for (int i = 0; i < data.n; i++)
        free(data.whole[i].data);
    return differ;
}

int main(int argc, char **argv)
{
    iso_module *module;
    iso_config config = {.size = sizeof config, .device = ISO_CPU};
    int differ = 0;
    int64_t rows = argc > 2 ? atoll(argv[2]) : 3;
    if (argc < 2 || rows < 1) {
        fprintf(stderr, "usage: %s FILE.cubin|FILE.iso [rows]\n", argv[0]);
        return 2;
    }
    must(iso_module_load(&module, argv[1], &config), argv[1]);
    for (int i = 0; iso_module_op_name(module, i); i++)
        differ += compare_layouts(module, iso_module_op_name(module, i), rows);
    printf("%s\n", differ ? "some layouts differ" : "all layouts agree in every bit");
    iso_module_unload(module);
    return differ ? 4 : 0;
}
