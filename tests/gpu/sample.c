/* The inputs of the sampled outputs are made on the host by the same text as on the device; all the
 * rest of a tensor is untouched zero pages. */
#include "sample.h"

#include "values.cuh"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 16, MOST_ROWS = 24, COLUMNS = 96 };

typedef struct List {
    int64_t at[MOST_ROWS + COLUMNS];
    size_t n;
} List;

typedef struct Host {
    const Sample *sample;
    const Manifest *manifest;
    List atom[MF_MAX_ATOMS]; /* n == 0: all */
    void *data[MAX_TENSORS];
    int32_t *positions, *sequences;
} Host;

unsigned sample_seed(int tensor)
{
    return 1000u + 17u * (unsigned)tensor;
}

int32_t sample_coordinate(bool sequence, int64_t row)
{
    return (int32_t)(value_hash(sequence ? 92 : 91, (unsigned)row, 0) % SAMPLE_TABLE);
}

/* ---- which indices ---- */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Both ends, the borders of tiles, and others spread by a hash. */
static void choose(List *list, int64_t size, size_t most)
{
    static const int64_t borders[] = {1, 2, 7, 8, 15, 16, 31, 63, 64, 127, 128, 191, 192, 255, 256};
    size_t n = 0;
    list->n = 0;
    if (size <= (int64_t)most)
        return;
    list->at[n++] = 0;
    list->at[n++] = size - 1;
    for (size_t i = 0; i < sizeof borders / sizeof borders[0] && n < most; i++)
        if (borders[i] < size - 1)
            list->at[n++] = borders[i];
    for (unsigned i = 0; n < most; i++)
        list->at[n++] = (int64_t)(value_hash(77, i, (unsigned)size) % (uint64_t)size);
    qsort(list->at, n, sizeof list->at[0], ascending);
    for (size_t i = 0; i < n; i++)
        if (!list->n || list->at[list->n - 1] != list->at[i])
            list->at[list->n++] = list->at[i];
}

/* Rows, and the first of the results' other axes; further axes are whole. */
static void choose_all(Host *h)
{
    const MfOp *op = h->sample->op;
    for (int i = op->n_params; i < op->n_params + op->n_results; i++) {
        const MfTensor *t = &op->tensors[i];
        for (int a = 0; a < t->n_axes && a < 2; a++)
            for (int j = 0; j < t->axes[a].n; j++) {
                int atom = t->axes[a].atom[j];
                int64_t size = h->manifest->atoms[atom].size;
                if (!size)
                    choose(&h->atom[atom], h->sample->rows, (size_t)h->sample->most_rows);
                else
                    choose(&h->atom[atom], size, t->axes[a].n > 1 ? 2 : COLUMNS);
            }
    }
}

/* The k-th chosen index of a declared axis, and how many there are. */
static int64_t axis_count(const Host *h, const MfAtoms *axis)
{
    int64_t n = 1;
    for (int j = 0; j < axis->n; j++) {
        int64_t size = h->manifest->atoms[axis->atom[j]].size;
        const List *list = &h->atom[axis->atom[j]];
        n *= list->n ? (int64_t)list->n : size ? size : h->sample->rows;
    }
    return n;
}

static int64_t axis_index(const Host *h, const MfAtoms *axis, int64_t k)
{
    int64_t index = 0, inner = 1;
    for (int j = axis->n - 1; j >= 0; j--) {
        int64_t size = h->manifest->atoms[axis->atom[j]].size;
        const List *list = &h->atom[axis->atom[j]];
        if (!size)
            size = h->sample->rows;
        int64_t n = list->n ? (int64_t)list->n : size;
        index += inner * (list->n ? list->at[k % n] : k % n);
        k /= n;
        inner *= size;
    }
    return index;
}

static size_t element_bytes(const Host *h, int tensor)
{
    return (size_t)manifest_dtype_bytes(h->sample->whole[tensor].dtype);
}

/* ---- inputs ---- */

/* An f32 is two halves of which the upper is a value and the lower fills the fraction. */
static void fill_row(const Host *h, int tensor, int64_t row, int64_t inner)
{
    inner *= h->sample->whole[tensor].dtype == ISO_F32 ? 2 : 1;
    unsigned short *to = (unsigned short *)h->data[tensor] + row * inner;
    if (h->sample->whole[tensor].dtype == ISO_I32) {
        ((int32_t *)h->data[tensor])[row] = value_index(sample_seed(tensor), (unsigned)row);
        return;
    }
    for (int64_t i = 0; i < inner; i++)
        to[i] = value_bf16(h->sample->kind, sample_seed(tensor), (unsigned)row, (unsigned)i);
}

static bool make_tensor(Host *h, int tensor)
{
    const MfTensor *t = &h->sample->op->tensors[tensor];
    const iso_tensor *whole = &h->sample->whole[tensor];
    int64_t rows = whole->shape[0], inner = whole->stride[0];
    h->data[tensor] = calloc((size_t)(rows * inner) + 1, element_bytes(h, tensor));
    if (!h->data[tensor])
        return false;
    if (tensor >= h->sample->op->n_params)
        return true;
    bool all = t->n_axes == 1 || h->manifest->atoms[t->axes[0].atom[0]].coordinate;
    for (int64_t k = 0; k < (all ? rows : axis_count(h, &t->axes[0])); k++)
        fill_row(h, tensor, all ? k : axis_index(h, &t->axes[0], k), inner);
    return true;
}

static bool make_coordinates(Host *h)
{
    size_t rows = (size_t)h->sample->rows;
    h->positions = malloc(rows * 4);
    h->sequences = malloc(rows * 4);
    for (size_t i = 0; h->positions && h->sequences && i < rows; i++) {
        h->positions[i] = sample_coordinate(false, (int64_t)i);
        h->sequences[i] = sample_coordinate(true, (int64_t)i);
    }
    return h->positions && h->sequences;
}

/* ---- running and comparing ---- */

static bool execute(Host *h, isoc_session *session)
{
    const MfOp *op = h->sample->op;
    isoc_tensor tensors[MAX_TENSORS];
    isoc_selection select[MF_MAX_ATOMS];
    size_t n_select = 0;
    for (int i = 0; i < op->n_params + op->n_results; i++)
        tensors[i] = (isoc_tensor){h->data[i], h->sample->whole[i].stride};
    for (int a = 0; a < h->manifest->n_atoms; a++)
        if (h->atom[a].n)
            select[n_select++] =
                (isoc_selection){h->manifest->atoms[a].name, h->atom[a].at, h->atom[a].n};
    isoc_call call = {.op = op->name,
                      .layout = h->sample->layout,
                      .phase = ISOC_RUN,
                      .rows = h->sample->rows,
                      .live_rows = -1,
                      .positions = h->positions,
                      .sequences = h->sequences,
                      .tensors = tensors,
                      .select = select,
                      .n_select = n_select,
                      .threads = h->sample->threads};
    return isoc_session_run(session, &call) == ISOC_OK;
}

/* One row of a result: `flat` walks the chosen indices of the axes after the first. */
static void compare_row(const Host *h, int tensor, int64_t row, const unsigned char *device,
                        SampleReport *report)
{
    const MfTensor *t = &h->sample->op->tensors[tensor];
    const iso_tensor *whole = &h->sample->whole[tensor];
    size_t size = element_bytes(h, tensor);
    int64_t count = 1;
    for (int a = 1; a < t->n_axes; a++)
        count *= axis_count(h, &t->axes[a]);
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, column = 0;
        for (int a = t->n_axes - 1; a > 0; a--) {
            int64_t n = axis_count(h, &t->axes[a]);
            column += axis_index(h, &t->axes[a], rest % n) * whole->stride[a];
            rest /= n;
        }
        const unsigned char *host = (const unsigned char *)h->data[tensor] +
                                    (size_t)(row * whole->stride[0] + column) * size;
        bool differs = memcmp(host, device + (size_t)column * size, size) != 0;
        report->compared++;
        report->differ += differs;
        if (differs && report->differ <= 3)
            printf("  CPU DIFFERS: op %s, tensor %s, row %" PRId64 ", column %" PRId64
                   ": device %02x%02x, executor %02x%02x (low bytes)\n",
                   h->sample->op->name, t->name, row, column, device[(size_t)column * size + 1],
                   device[(size_t)column * size], host[1], host[0]);
    }
}

static bool compare_all(const Host *h, SampleReport *report)
{
    const MfOp *op = h->sample->op;
    for (int i = op->n_params; i < op->n_params + op->n_results; i++) {
        const iso_tensor *whole = &h->sample->whole[i];
        size_t row_bytes = (size_t)whole->stride[0] * element_bytes(h, i);
        unsigned char *row = malloc(row_bytes);
        if (!row)
            return false;
        for (int64_t k = 0; k < axis_count(h, &op->tensors[i].axes[0]); k++) {
            int64_t at = axis_index(h, &op->tensors[i].axes[0], k);
            gpu_read(row, h->sample->expected[i] + (size_t)at * row_bytes, row_bytes);
            compare_row(h, i, at, row, report);
        }
        free(row);
    }
    return true;
}

bool sample_check(isoc_session *session, const Sample *sample, SampleReport *report)
{
    Host *h = calloc(1, sizeof *h);
    const MfOp *op = sample->op;
    int n = op->n_params + op->n_results;
    memset(report, 0, sizeof *report);
    if (!h)
        return false;
    h->sample = sample;
    h->manifest = sample->module->manifest;
    choose_all(h);
    bool done = make_coordinates(h);
    for (int i = 0; done && i < n; i++)
        done = make_tensor(h, i);
    done = done && execute(h, session) && compare_all(h, report);
    snprintf(report->what, sizeof report->what,
             "%" PRId64 " rows of %" PRId64 ", %" PRIu64
             " outputs a row; ends, tile borders, hashed",
             axis_count(h, &op->tensors[op->n_params].axes[0]), sample->rows,
             report->compared / (uint64_t)axis_count(h, &op->tensors[op->n_params].axes[0]));
    for (int i = 0; i < n; i++)
        free(h->data[i]);
    free(h->positions);
    free(h->sequences);
    free(h);
    return done;
}
