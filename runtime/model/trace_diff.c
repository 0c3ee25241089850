/* Compares two traces row by row, whatever the layouts and batches were that made them. */
#include "error.h"
#include "iso_model.h"
#include "trace.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MOST = 1 << 28 }; /* elements of a row */

/* One rank's part of one row. */
typedef struct Row {
    const TraceRecord *record;
    TraceRow at;
    const char *data;
    int64_t written; /* when */
} Row;

typedef struct Folder {
    const char *path;
    int n_files, n_rows, room;
    char *files[256];
    Row *rows;
    int64_t written;
} Folder;

/* ---- reading ---- */

static iso_status read_all(const char *path, char **bytes, size_t *size)
{
    FILE *file = fopen(path, "rb");
    long end = -1;
    *bytes = NULL;
    if (!file)
        return iso_fail(ISO_FILE, "%s: %s", path, strerror(errno));
    if (!fseek(file, 0, SEEK_END))
        end = ftell(file);
    rewind(file);
    if (end >= 0 && (*bytes = malloc((size_t)end + 1)))
        *size = fread(*bytes, 1, (size_t)end, file);
    fclose(file);
    if (end < 0)
        return iso_fail(ISO_FILE, "%s: cannot be read", path);
    return *bytes ? ISO_OK : iso_fail(ISO_OUT_OF_MEMORY, "no memory to read %s", path);
}

static iso_status add_row(Folder *folder, const Row *row)
{
    if (folder->n_rows == folder->room) {
        int room = folder->room ? 2 * folder->room : 4096;
        Row *more = realloc(folder->rows, (size_t)room * sizeof *more);
        if (!more)
            return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a trace's rows");
        folder->rows = more;
        folder->room = room;
    }
    folder->rows[folder->n_rows++] = *row;
    return ISO_OK;
}

/* Of a whole row; -1 where that is more than any row has. */
static int64_t whole_elements(const TraceRecord *r)
{
    int64_t n = 1;
    for (int i = 0; i < r->n_axes; i++) {
        if (r->whole[i] < 0 || (r->whole[i] && n > ROW_MOST / r->whole[i]))
            return -1;
        n *= r->whole[i];
    }
    return n;
}

static int64_t part_elements(const TraceRecord *r)
{
    int64_t n = 1;
    for (int i = 0; i < r->n_axes; i++) {
        if (r->lo[i] < 0 || r->hi[i] < r->lo[i] || r->hi[i] > r->whole[i])
            return -1;
        n *= r->hi[i] - r->lo[i];
    }
    return n;
}

static bool plausible(const TraceRecord *r)
{
    return (r->element_bytes == 2 || r->element_bytes == 4) && r->n_axes >= 0 &&
           r->n_axes < ISO_MAX_AXES && r->rows >= 0 && r->row_bytes >= 0 &&
           memchr(r->op, 0, sizeof r->op) && memchr(r->value, 0, sizeof r->value) &&
           whole_elements(r) >= 0 && part_elements(r) * r->element_bytes == r->row_bytes;
}

static iso_status read_records(Folder *folder, const char *path, const char *bytes, size_t size)
{
    size_t at = strlen(TRACE_MAGIC);
    if (size < at || memcmp(bytes, TRACE_MAGIC, at))
        return iso_fail(ISO_NOT_ISO, "%s is no trace", path);
    while (at < size) {
        const TraceRecord *record = (const TraceRecord *)(bytes + at);
        if (size - at < sizeof *record || !plausible(record) ||
            (size_t)record->rows >
                (size - at - sizeof *record) / (sizeof(TraceRow) + (size_t)record->row_bytes))
            return iso_fail(ISO_NOT_ISO, "%s is cut short or damaged at byte %zu", path, at);
        const char *rows = bytes + at + sizeof *record;
        const char *data = rows + (size_t)record->rows * sizeof(TraceRow);
        for (int64_t i = 0; i < record->rows; i++) {
            Row row = {record, {0, 0}, data + i * record->row_bytes, folder->written++};
            memcpy(&row.at, rows + (size_t)i * sizeof(TraceRow), sizeof row.at);
            iso_status status = add_row(folder, &row);
            if (status)
                return status;
        }
        at = (size_t)(data - bytes) + (size_t)(record->rows * record->row_bytes);
        at = (at + 7) / 8 * 8;
    }
    return ISO_OK;
}

static bool is_trace(const char *name)
{
    size_t n = strlen(name);
    return n > 6 && !strcmp(name + n - 6, ".trace");
}

static iso_status read_file(Folder *folder, const char *name)
{
    char path[4096];
    size_t size = 0;
    int n = snprintf(path, sizeof path, "%s/%s", folder->path, name);
    if (n < 0 || (size_t)n >= sizeof path ||
        folder->n_files == sizeof folder->files / sizeof folder->files[0])
        return iso_fail(ISO_FILE, "%s: too many files, or too long a path", folder->path);
    iso_status status = read_all(path, &folder->files[folder->n_files], &size);
    if (status)
        return status;
    return read_records(folder, path, folder->files[folder->n_files++], size);
}

static iso_status read_folder(Folder *folder, const char *path)
{
    iso_status status = ISO_OK;
    *folder = (Folder){.path = path};
    DIR *dir = opendir(path);
    if (!dir)
        return iso_fail(ISO_FILE, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; !status && (entry = readdir(dir));)
        if (is_trace(entry->d_name))
            status = read_file(folder, entry->d_name);
    closedir(dir);
    if (!status && !folder->n_files)
        status = iso_fail(ISO_FILE, "%s holds no trace", path);
    return status;
}

static void close_folder(Folder *folder)
{
    for (int i = 0; i < folder->n_files; i++)
        free(folder->files[i]);
    free(folder->rows);
}

/* ---- order ---- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* The same row of the same value. */
static int compare_keys(const Row *a, const Row *b)
{
    int c = compare_numbers(a->record->order, b->record->order);
    if (!c)
        c = compare_numbers(a->record->result, b->record->result);
    if (!c)
        c = compare_numbers(a->at.sequence, b->at.sequence);
    return c ? c : compare_numbers(a->at.position, b->at.position);
}

static int compare_rows(const void *a, const void *b)
{
    int c = compare_keys(a, b);
    return c ? c : compare_numbers(((const Row *)a)->written, ((const Row *)b)->written);
}

/* ---- rows put together ---- */

/* A whole row from its parts; `have` tells which elements there are. */
typedef struct Whole {
    int64_t room;
    uint32_t *value;
    bool *have;
} Whole;

static iso_status make_room(Whole *whole, int64_t elements)
{
    if (elements <= whole->room)
        return ISO_OK;
    free(whole->value);
    free(whole->have);
    whole->value = malloc((size_t)elements * sizeof *whole->value);
    whole->have = malloc((size_t)elements);
    whole->room = whole->value && whole->have ? elements : 0;
    return whole->room ? ISO_OK : iso_fail(ISO_OUT_OF_MEMORY, "no memory for a row");
}

/* Element `at` of a part, as an index of the whole row. */
static int64_t index_of(const TraceRecord *r, int64_t at)
{
    int64_t index = 0, stride = 1;
    for (int i = r->n_axes - 1; i >= 0; i--) {
        int64_t n = r->hi[i] - r->lo[i];
        index += (at % n + r->lo[i]) * stride;
        at /= n;
        stride *= r->whole[i];
    }
    return index;
}

static void add_part(const Row *row, Whole *whole)
{
    const TraceRecord *r = row->record;
    int64_t n = part_elements(r);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = index_of(r, i);
        whole->value[index] = 0;
        memcpy(&whole->value[index], row->data + i * r->element_bytes, (size_t)r->element_bytes);
        whole->have[index] = true;
    }
}

/* Rows [first, end) have one key. */
static iso_status put_together(const Row *first, const Row *end, Whole *whole)
{
    int64_t elements = whole_elements(first->record);
    iso_status status = make_room(whole, elements);
    if (status)
        return status;
    memset(whole->have, 0, (size_t)elements);
    for (const Row *row = first; row < end; row++)
        if (whole_elements(row->record) == elements)
            add_part(row, whole);
    return ISO_OK;
}

/* ---- comparing ---- */

typedef struct Comparison {
    Whole a, b;
    iso_difference *out;
} Comparison;

static void note_first(iso_difference *out, const Row *row, int64_t index, uint32_t a, uint32_t b)
{
    memcpy(out->op, row->record->op, sizeof out->op);
    memcpy(out->value, row->record->value, sizeof out->value);
    out->turn = row->record->turn;
    out->sequence = row->at.sequence;
    out->position = row->at.position;
    out->index = index;
    out->a = a;
    out->b = b;
}

static iso_status compare_row(Comparison *c, const Row *a, const Row *a_end, const Row *b,
                              const Row *b_end)
{
    int64_t elements = whole_elements(a->record);
    if (strcmp(a->record->op, b->record->op) || elements != whole_elements(b->record) ||
        a->record->element_bytes != b->record->element_bytes)
        return iso_fail(ISO_NOT_ISO, "call %d is op %s in one trace and %s in the other: they are "
                        "of different models", a->record->order, a->record->op, b->record->op);
    iso_status status = put_together(a, a_end, &c->a);
    if (!status)
        status = put_together(b, b_end, &c->b);
    for (int64_t i = 0; i < elements && !status; i++) {
        if (!c->a.have[i] || !c->b.have[i])
            continue;
        c->out->compared++;
        if (c->a.value[i] != c->b.value[i] && c->out->differ++ == 0)
            note_first(c->out, a, i, c->a.value[i], c->b.value[i]);
    }
    return status;
}

static const Row *end_of_key(const Row *row, const Row *end)
{
    const Row *at = row;
    while (at < end && compare_keys(at, row) == 0)
        at++;
    return at;
}

static iso_status compare_folders(Comparison *c, Folder *a, Folder *b)
{
    const Row *x = a->rows, *y = b->rows, *x_all = x + a->n_rows, *y_all = y + b->n_rows;
    iso_status status = ISO_OK;
    while (x < x_all && y < y_all && !status) {
        const Row *x_end = end_of_key(x, x_all), *y_end = end_of_key(y, y_all);
        int order = compare_keys(x, y);
        if (order == 0)
            status = compare_row(c, x, x_end, y, y_end);
        x = order <= 0 ? x_end : x;
        y = order >= 0 ? y_end : y;
    }
    return status;
}

iso_status iso_trace_diff(const char *a, const char *b, iso_difference *difference)
{
    Folder x = {0}, y = {0};
    if (!a || !b || !difference)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_trace_diff: a NULL argument");
    memset(difference, 0, sizeof *difference);
    Comparison c = {.out = difference};
    iso_status status = read_folder(&x, a);
    if (!status)
        status = read_folder(&y, b);
    if (!status) {
        qsort(x.rows, (size_t)x.n_rows, sizeof *x.rows, compare_rows);
        qsort(y.rows, (size_t)y.n_rows, sizeof *y.rows, compare_rows);
        status = compare_folders(&c, &x, &y);
    }
    free(c.a.value);
    free(c.a.have);
    free(c.b.value);
    free(c.b.have);
    close_folder(&x);
    close_folder(&y);
    return status;
}
