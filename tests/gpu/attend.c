/* Attention: every schedule of every attend of a cubin against the CPU executor, for telling
 * lengths, keys in pages, packed and by strides, batches in no order, and memory that is nobody's
 * full of NaN and Inf; and graphs whose rows and lengths change between replays. */
#include "case.h"
#include "modes.h"

#include "iso_num.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 12, MOST_ROWS = 192, LONGEST = 4097, AROUND = 128 };
enum { ODD_EVERY = 16, ODD_AT = 5, BEFORE_LAST = 25, REPLAYS = 3 };

static const int lengths[REQUESTS] = {128, 4097, 1, 1024, 15, 129, 17, 1025, 2, 127, 1023, 16};

typedef enum Mode { BY_STRIDES, PACKED, IN_PAGES } Mode;

/* Where keys lie. */
typedef struct Place {
    Mode mode;
    int page, pages, stride, total;
    int32_t starts[REQUESTS], *table;
    const char *name;
} Place;

typedef struct Rows {
    const char *name;
    int n;
    int32_t position[MOST_ROWS], sequence[MOST_ROWS], lengths[REQUESTS];
} Rows;

typedef struct Rig {
    const iso_module *module;
    iso_module *cpu;
    const iso_op *op, *on_cpu;
    int n, params, schedules;
    iso_tensor host[MAX_TENSORS], device[MAX_TENSORS]; /* results of the host: the executor's */
    DevicePtr positions, sequences, lengths, starts, table, workspace;
    size_t workspace_bytes;
    uint64_t runs, compared, differ;
} Rig;

static uint64_t scatter(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t x = *a;
    *a = *b;
    *b = x;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_row(Rows *rows, int sequence, int position)
{
    if (rows->n < MOST_ROWS && position >= 0) {
        rows->sequence[rows->n] = sequence;
        rows->position[rows->n++] = position;
    }
}

static void shuffle(Rows *rows, int from)
{
    for (int i = rows->n - 1; i > from; i--) {
        int with = from + (int)(scatter((uint64_t)i * 97) % (uint64_t)(i - from + 1));
        swap(&rows->sequence[i], &rows->sequence[with]);
        swap(&rows->position[i], &rows->position[with]);
    }
}

/* The last row of each request, and one of none. */
static void decode_rows(Rows *rows)
{
    *rows = (Rows){.name = "decode"};
    for (int s = 0; s < REQUESTS; s++)
        add_row(rows, s, lengths[s] - 1);
    add_row(rows, -1, 3);
    shuffle(rows, 0);
    memcpy(rows->lengths, lengths, sizeof lengths);
}

/* The last five of each request, in order. */
static void verify_rows(Rows *rows)
{
    *rows = (Rows){.name = "verify 5"};
    for (int s = 0; s < REQUESTS; s++)
        for (int p = lengths[s] - 5; p < lengths[s]; p++)
            add_row(rows, s, p);
    memcpy(rows->lengths, lengths, sizeof lengths);
}

/* A chunk across a block's border, ends and middles, the second part in no order. */
static void chunk_rows(Rows *rows)
{
    *rows = (Rows){.name = "chunks"};
    for (int p = 1015; p < 1080; p++)
        add_row(rows, 1, p);
    int ordered = rows->n;
    for (int s = 0; s < REQUESTS; s++) {
        add_row(rows, s, 0);
        for (int i = 0; i < 5; i++)
            add_row(rows, s, (int)(scatter((uint64_t)(s * 5 + i)) % (uint64_t)lengths[s]));
        add_row(rows, s, lengths[s] - 1);
    }
    add_row(rows, -1, 3);
    shuffle(rows, ordered);
    memcpy(rows->lengths, lengths, sizeof lengths);
}

/* The last of a long request: more splits than the roots have room for. */
static void late_rows(Rows *rows)
{
    *rows = (Rows){.name = "late"};
    for (int p = LONGEST - MOST_ROWS; p < LONGEST; p++)
        add_row(rows, 1, p);
    memcpy(rows->lengths, lengths, sizeof lengths);
}

/* ---- where keys lie -------------------------------------------------------------------------- */

static int pages_of(const Place *place, int s)
{
    return (lengths[s] + place->page - 1) / place->page;
}

static void make_place(Place *place, Mode mode, int page, const char *name)
{
    *place = (Place){.mode = mode, .page = page, .name = name};
    for (int s = 0; s < REQUESTS; s++) {
        place->starts[s] = place->total;
        place->total += lengths[s];
        place->pages += page ? pages_of(place, s) : 0;
    }
    if (mode != IN_PAGES)
        return;
    place->pages++; /* one is nobody's */
    place->stride = (LONGEST + page - 1) / page;
    int32_t *order = calloc((size_t)place->pages, sizeof *order);
    place->table = calloc((size_t)(REQUESTS * place->stride), sizeof *place->table);
    for (int i = 0; i < place->pages; i++)
        order[i] = i;
    for (int i = place->pages - 1; i > 0; i--)
        swap(&order[i], &order[scatter((uint64_t)i) % (uint64_t)(i + 1)]);
    for (int i = 0; i < REQUESTS * place->stride; i++)
        place->table[i] = -1;
    for (int s = 0, next = 0; s < REQUESTS; s++)
        for (int i = 0; i < pages_of(place, s); i++)
            place->table[s * place->stride + i] = order[next++];
    free(order);
}

static const MfSpec *spec_of(const Rig *b)
{
    return op_spec(b->op, ISO_PHASE_RUN, 1, 1);
}

static int tensor_of(const Rig *b, int binding)
{
    return spec_of(b)->bindings[binding].tensor;
}

static int coordinate_axis(const Rig *b, int tensor, MfCoordinate kind)
{
    const Manifest *m = b->module->manifest;
    const MfTensor *declared = &b->op->op->tensors[tensor];
    for (int i = 0; i < declared->n_axes; i++)
        if (axis_is_table(m, &declared->axes[i]) &&
            m->atoms[declared->axes[i].atom[0]].coordinate == kind)
            return i;
    return -1;
}

static void shape_stored(const Rig *b, const Place *place, int index, iso_tensor *t)
{
    int sequence = coordinate_axis(b, index, MF_SEQUENCE);
    if (sequence < 0)
        return;
    t->shape[sequence] = place->mode == IN_PAGES ? place->pages
                         : place->mode == PACKED ? 1
                                                 : REQUESTS;
    t->shape[coordinate_axis(b, index, MF_POSITION)] = place->mode == IN_PAGES ? place->page
                                                       : place->mode == PACKED ? place->total + 3
                                                                               : LONGEST;
    int64_t stride = 1;
    for (int i = t->n_axes - 1; i >= 0; i--) {
        t->stride[i] = stride;
        stride *= t->shape[i];
    }
}

static int64_t elements_of(const iso_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_axes; i++)
        n *= t->shape[i];
    return n;
}

static size_t bytes_of(const iso_tensor *t)
{
    return (size_t)elements_of(t) * (t->dtype == ISO_F32 ? 4 : 2);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void put_value(iso_tensor *t, int64_t at, uint64_t seed)
{
    float x = (float)(int)(scatter(seed) % 4001 - 2000) / 1024.0f;
    if (t->dtype == ISO_F32)
        ((float *)t->data)[at] = x;
    else
        ((uint16_t *)t->data)[at] = t->dtype == ISO_F16 ? iso_f16_of_f32(x) : iso_bf16_of_f32(x);
}

static void put_odd(iso_tensor *t, int64_t at)
{
    static const uint16_t bf16[] = {0x7FC1, 0x7F80, 0xFF80}, f16[] = {0x7E01, 0x7C00, 0xFC00};
    ((uint16_t *)t->data)[at] = (t->dtype == ISO_F16 ? f16 : bf16)[at / 7 % 3];
}

/* The last keys of some requests, and one that a window leaves behind, are no numbers. */
static bool is_odd(bool values, int s, int key, int64_t element)
{
    bool last = key == lengths[s] - 1;
    if (!values)
        return last && s % 4 == 1 && lengths[s] < AROUND;
    return element % ODD_EVERY == ODD_AT &&
           ((last && s % 2 == 0) || (lengths[s] > AROUND && key == lengths[s] - BEFORE_LAST));
}

/* Steps along the stored axes. */
static void place_key(const Place *place, int s, int key, int64_t *a, int64_t *b)
{
    *a = place->mode == IN_PAGES ? place->table[s * place->stride + key / place->page]
         : place->mode == PACKED ? 0
                                 : s;
    *b = place->mode == IN_PAGES ? key % place->page
         : place->mode == PACKED ? place->starts[s] + key
                                 : key;
}

/* Element `i` of a key, counted over the axes that are not stored, from the tensor's first. */
static int64_t inner_offset(const iso_tensor *t, int sequence, int position, int64_t i)
{
    int64_t offset = 0;
    for (int axis = t->n_axes - 1; axis >= 0; axis--)
        if (axis != sequence && axis != position) {
            offset += i % t->shape[axis] * t->stride[axis];
            i /= t->shape[axis];
        }
    return offset;
}

static void fill_stored(const Rig *b, const Place *place, int index, iso_tensor *t)
{
    int sequence = coordinate_axis(b, index, MF_SEQUENCE);
    int position = coordinate_axis(b, index, MF_POSITION);
    bool values = index == tensor_of(b, spec_of(b)->attend.values);
    int64_t inner = elements_of(t) / t->shape[sequence] / t->shape[position];
    for (int64_t i = 0; i < elements_of(t); i++)
        put_odd(t, i);
    for (int s = 0; s < REQUESTS; s++)
        for (int key = 0; key < lengths[s]; key++) {
            int64_t x, y;
            place_key(place, s, key, &x, &y);
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = x * t->stride[sequence] + y * t->stride[position] +
                             inner_offset(t, sequence, position, i);
                uint64_t seed = (((uint64_t)index * REQUESTS + (uint64_t)s) * LONGEST +
                                 (uint64_t)key) * 4096 + (uint64_t)i;
                put_value(t, at, seed);
                if (is_odd(values, s, key, i))
                    put_odd(t, at);
            }
        }
}

static void fill_plain(iso_tensor *t, int index)
{
    for (int64_t i = 0; i < elements_of(t); i++)
        put_value(t, i, (uint64_t)(index + 50) << 32 | (uint64_t)i);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The cache as iso_cache_write takes it, blocks and places first, and rows for all keys. */
static void cache_axes(const Rig *b, int index, iso_tensor *cache, iso_tensor *rows)
{
    const iso_tensor *t = &b->device[index];
    int sequence = coordinate_axis(b, index, MF_SEQUENCE);
    int position = coordinate_axis(b, index, MF_POSITION), n = 2;
    *cache = *t;
    cache->shape[0] = t->shape[sequence], cache->stride[0] = t->stride[sequence];
    cache->shape[1] = t->shape[position], cache->stride[1] = t->stride[position];
    for (int i = 0; i < t->n_axes; i++)
        if (i != sequence && i != position) {
            cache->shape[n] = t->shape[i];
            cache->stride[n++] = t->stride[i];
        }
    *rows = (iso_tensor){.dtype = t->dtype, .n_axes = n - 1};
    int64_t stride = 1;
    for (int i = n - 1; i >= 1; i--) {
        rows->shape[i - 1] = i > 1 ? cache->shape[i] : 0;
        rows->stride[i - 1] = stride;
        stride *= cache->shape[i];
    }
}

/* Takes all keys out of the device's cache and has them written anew, from rows. */
static void rewrite_cache(Rig *b, const Place *place)
{
    iso_tensor cache[MAX_TENSORS], rows[MAX_TENSORS];
    int64_t *slots = calloc((size_t)place->total, sizeof *slots), n = 0;
    int tensors = 0;
    for (int s = 0; s < REQUESTS; s++)
        for (int key = 0; key < lengths[s]; key++)
            slots[n++] = (int64_t)place->table[s * place->stride + key / place->page] *
                             place->page + key % place->page;
    DevicePtr on_device = gpu_alloc((size_t)n * 8);
    gpu_write(on_device, slots, (size_t)n * 8);
    for (int i = 0; i < b->params; i++) {
        if (coordinate_axis(b, i, MF_SEQUENCE) < 0)
            continue;
        iso_tensor *c = &cache[tensors], *r = &rows[tensors++];
        cache_axes(b, i, c, r);
        r->shape[0] = 1;
        int64_t inner = elements_of(r);
        r->shape[0] = n;
        uint16_t *line = malloc((size_t)(n * inner) * 2), *image = malloc(bytes_of(c));
        memcpy(image, b->host[i].data, bytes_of(c));
        for (int64_t k = 0; k < n; k++)
            for (int64_t e = 0; e < inner; e++) {
                int64_t at = slots[k] / place->page * c->stride[0] +
                             slots[k] % place->page * c->stride[1] + inner_offset(c, 0, 1, e);
                line[k * inner + e] = image[at];
                image[at] = 0x7FFF;
            }
        DevicePtr data = gpu_alloc((size_t)(n * inner) * 2);
        gpu_write(data, line, (size_t)(n * inner) * 2);
        gpu_write((DevicePtr)(uintptr_t)c->data, image, bytes_of(c));
        r->data = (void *)(uintptr_t)data;
        free(line);
        free(image);
    }
    iso_cache_rows what = {rows, cache, tensors, (const int64_t *)(uintptr_t)on_device, NULL};
    must(iso_cache_write(b->module, &what, gpu_stream()), "iso_cache_write");
    gpu_sync();
    for (int i = 0; i < tensors; i++)
        gpu_free((DevicePtr)(uintptr_t)rows[i].data);
    gpu_free(on_device);
    free(slots);
}

/* Bytes of the device's cache that are not as the host's. */
static void check_cache(Rig *b)
{
    for (int i = 0; i < b->params; i++) {
        if (coordinate_axis(b, i, MF_SEQUENCE) < 0)
            continue;
        size_t bytes = bytes_of(&b->host[i]);
        char *actual = malloc(bytes);
        gpu_read(actual, (DevicePtr)(uintptr_t)b->device[i].data, bytes);
        if (memcmp(actual, b->host[i].data, bytes)) {
            printf("  DIFFERS: %s, the cache that was written\n", b->op->op->name);
            b->differ++;
        }
        free(actual);
    }
}

/* Keys and values as they lie, here and on the device. */
static void open_stored(Rig *b, const Place *place)
{
    for (int i = 0; i < b->params; i++) {
        if (coordinate_axis(b, i, MF_SEQUENCE) < 0)
            continue;
        iso_tensor *t = &b->host[i];
        must(iso_op_tensor(b->op, ISO_PHASE_RUN, 1, i, t, NULL), "iso_op_tensor");
        shape_stored(b, place, i, t);
        t->data = malloc(bytes_of(t));
        fill_stored(b, place, i, t);
        b->device[i] = *t;
        DevicePtr data = gpu_alloc(bytes_of(t));
        gpu_write(data, t->data, bytes_of(t));
        b->device[i].data = (void *)(uintptr_t)data;
    }
    gpu_write(b->starts, place->starts, sizeof place->starts);
    if (place->mode != IN_PAGES)
        return;
    size_t bytes = (size_t)(REQUESTS * place->stride) * sizeof *place->table;
    b->table = gpu_alloc(bytes);
    gpu_write(b->table, place->table, bytes);
    rewrite_cache(b, place);
    check_cache(b);
}

static void close_stored(Rig *b, Place *place)
{
    for (int i = 0; i < b->params; i++)
        if (coordinate_axis(b, i, MF_SEQUENCE) >= 0) {
            free(b->host[i].data);
            gpu_free((DevicePtr)(uintptr_t)b->device[i].data);
        }
    if (place->mode == IN_PAGES)
        gpu_free(b->table);
    free(place->table);
}

static bool is_stored(const Rig *b, int index)
{
    return index < b->params && coordinate_axis(b, index, MF_SEQUENCE) >= 0;
}

/* All else for a number of rows. */
static void open_rows(Rig *b, const Rows *rows)
{
    for (int i = 0; i < b->n; i++) {
        iso_tensor *t = &b->host[i];
        if (is_stored(b, i))
            continue;
        must(iso_op_tensor(b->op, ISO_PHASE_RUN, rows->n, i, t, NULL), "iso_op_tensor");
        t->data = malloc(bytes_of(t));
        fill_plain(t, i);
        b->device[i] = *t;
        DevicePtr data = gpu_alloc(bytes_of(t));
        gpu_write(data, t->data, bytes_of(t));
        b->device[i].data = (void *)(uintptr_t)data;
    }
    b->workspace_bytes = 0;
    for (int s = 0; s <= b->schedules; s++) {
        size_t bytes;
        must(iso_op_workspace(b->op, rows->n, s, &bytes), "iso_op_workspace");
        b->workspace_bytes = bytes > b->workspace_bytes ? bytes : b->workspace_bytes;
    }
    b->workspace = gpu_alloc(b->workspace_bytes);
    gpu_set(b->workspace, 0, b->workspace_bytes);
}

static void close_rows(Rig *b)
{
    for (int i = 0; i < b->n; i++)
        if (!is_stored(b, i)) {
            free(b->host[i].data);
            gpu_free((DevicePtr)(uintptr_t)b->device[i].data);
        }
    gpu_free(b->workspace);
}

static void write_rows(Rig *b, const Rows *rows)
{
    gpu_write(b->positions, rows->position, sizeof rows->position);
    gpu_write(b->sequences, rows->sequence, sizeof rows->sequence);
    gpu_write(b->lengths, rows->lengths, sizeof rows->lengths);
}

static void set_keys(const Place *place, const int32_t *of_lengths, const int32_t *starts,
                     const int32_t *table, iso_keys *keys)
{
    *keys = (iso_keys){.lengths = of_lengths};
    if (place->mode == PACKED)
        keys->starts = starts;
    if (place->mode == IN_PAGES) {
        keys->block_table = table;
        keys->block_table_stride = place->stride;
        keys->page = place->page;
    }
}

static void run_executor(Rig *b, const Place *place, const Rows *rows)
{
    iso_keys keys;
    set_keys(place, rows->lengths, place->starts, place->table, &keys);
    iso_run run = {.rows = rows->n, .positions = rows->position, .sequences = rows->sequence,
                   .keys = &keys};
    must(iso_op_run(b->on_cpu, b->host, b->n, &run), "iso_op_run on the CPU");
}

/* Differing elements of all results. */
static uint64_t compare(Rig *b)
{
    uint64_t differ = 0;
    for (int i = b->params; i < b->n; i++) {
        const iso_tensor *t = &b->host[i];
        size_t each = t->dtype == ISO_F32 ? 4 : 2, bytes = bytes_of(t);
        char *actual = malloc(bytes);
        gpu_read(actual, (DevicePtr)(uintptr_t)b->device[i].data, bytes);
        for (size_t at = 0; at < bytes; at += each)
            differ += memcmp(actual + at, (char *)t->data + at, each) != 0;
        b->compared += bytes / each;
        free(actual);
    }
    b->differ += differ;
    b->runs++;
    return differ;
}

static void poison(Rig *b)
{
    for (int i = b->params; i < b->n; i++)
        gpu_set((DevicePtr)(uintptr_t)b->device[i].data, POISON, bytes_of(&b->device[i]));
}

typedef struct Call {
    Rig *rig;
    iso_keys keys;
    iso_run run;
} Call;

static void set_call(Rig *b, const Place *place, const Rows *rows, int schedule, Call *call)
{
    *call = (Call){.rig = b};
    set_keys(place, (const int32_t *)(uintptr_t)b->lengths, (const int32_t *)(uintptr_t)b->starts,
             (const int32_t *)(uintptr_t)b->table, &call->keys);
    call->run = (iso_run){.rows = rows->n,
                          .schedule = schedule,
                          .positions = (const int32_t *)(uintptr_t)b->positions,
                          .sequences = (const int32_t *)(uintptr_t)b->sequences,
                          .keys = &call->keys,
                          .workspace = (void *)(uintptr_t)b->workspace,
                          .workspace_bytes = b->workspace_bytes,
                          .stream = gpu_stream()};
}

static void make_call(void *user, void *stream)
{
    Call *call = user;
    call->run.keys = &call->keys;
    call->run.stream = stream;
    must(iso_op_run(call->rig->op, call->rig->device, call->rig->n, &call->run), "iso_op_run");
}

static void tell(const Rig *b, const char *what, const Place *place, const Rows *rows, int schedule,
                 uint64_t differ)
{
    if (differ)
        printf("  DIFFERS: %s %s, keys %s, rows %s, schedule %d: %llu\n", b->op->op->name, what,
               place->name, rows->name, schedule, (unsigned long long)differ);
}

static void run_schedules(Rig *b, const Place *place, const Rows *rows)
{
    for (int schedule = 0; schedule <= b->schedules; schedule++) {
        Call call;
        set_call(b, place, rows, schedule, &call);
        poison(b);
        make_call(&call, gpu_stream());
        tell(b, "run", place, rows, schedule, compare(b));
    }
}

/* ---- ranks that share the keys by whole splits ----------------------------------------------- */

/* The op of a layout whose ranks have some splits each, and all of the rest; NULL: another. */
static const iso_op *shared_op(const Rig *b, const MfLayout *layout, int rank)
{
    const iso_op *op;
    const iso_layout at = {.name = layout->name, .rank = rank};
    must(iso_op_get(b->module, b->op->op->name, &at, &op), layout->name);
    for (int i = 0; i < b->n && op_shares_keys(op); i++) {
        iso_tensor part, finish, whole;
        must(iso_op_tensor(b->op, ISO_PHASE_RUN, MOST_ROWS, i, &whole, NULL), "iso_op_tensor");
        must(iso_op_tensor(op, ISO_PHASE_PART, MOST_ROWS, i, &part, NULL), "iso_op_tensor");
        must(iso_op_tensor(op, ISO_PHASE_JOIN, MOST_ROWS, i, &finish, NULL), "iso_op_tensor");
        if (memcmp(part.shape, whole.shape, sizeof whole.shape) ||
            memcmp(finish.shape, whole.shape, sizeof whole.shape))
            return NULL;
    }
    return op_shares_keys(op) ? op : NULL;
}

static void run_ranks(Rig *b, const MfLayout *layout, Call *call)
{
    const void *roots[MAX_RANKS] = {NULL};
    size_t bytes;
    for (int r = 0; r < layout->ranks; r++) {
        const iso_op *op = shared_op(b, layout, r);
        must(iso_op_roots_of_keys(op, call->run.rows, LONGEST, &bytes), "iso_op_roots_of_keys");
        DevicePtr own = gpu_alloc(bytes);
        gpu_set(own, POISON, bytes);
        roots[r] = (const void *)(uintptr_t)own;
        must(iso_op_part(op, b->device, b->n, (void *)(uintptr_t)own, &call->run), "iso_op_part");
    }
    poison(b);
    must(iso_op_join(shared_op(b, layout, layout->ranks - 1), roots, layout->ranks, b->device,
                     b->n, &call->run), "iso_op_join");
    for (int r = 0; r < layout->ranks; r++)
        gpu_free((DevicePtr)(uintptr_t)roots[r]);
}

/* Sequences begin on different ranks. */
static void run_shared(Rig *b, const Place *place, const Rows *rows)
{
    const Manifest *m = b->module->manifest;
    for (int l = 0; l < m->n_layouts; l++) {
        const MfLayout *layout = &m->layouts[l];
        int32_t turns[REQUESTS];
        Call call;
        if (layout->ranks > MAX_RANKS || !shared_op(b, layout, 0))
            continue;
        for (int s = 0; s < REQUESTS; s++)
            turns[s] = s % shared_op(b, layout, 0)->at->parts[0].keys_count;
        DevicePtr on_device = gpu_alloc(sizeof turns);
        gpu_write(on_device, turns, sizeof turns);
        set_call(b, place, rows, 0, &call);
        call.run.keys = &call.keys;
        call.keys.most_keys = LONGEST;
        call.keys.turns = (const int32_t *)(uintptr_t)on_device;
        run_ranks(b, layout, &call);
        tell(b, layout->name, place, rows, 0, compare(b));
        gpu_free(on_device);
    }
}

/* One graph, whose rows and lengths change on the device before each replay. */
static void run_graphs(Rig *b, const Place *place, const Rows *whole)
{
    for (int schedule = 1; schedule <= b->schedules; schedule++) {
        Call call;
        Rows rows = *whole;
        set_call(b, place, &rows, schedule, &call);
        void *graph = gpu_record(make_call, &call);
        for (int replay = 0; replay < REPLAYS; replay++) {
            for (int s = 0; s < REQUESTS; s++)
                rows.lengths[s] = lengths[s] - lengths[s] * replay / 4;
            for (int i = 0; i < rows.n; i++)
                if (rows.sequence[i] >= 0)
                    rows.position[i] = rows.lengths[rows.sequence[i]] - 1;
            write_rows(b, &rows);
            run_executor(b, place, &rows);
            poison(b);
            gpu_replay(graph);
            tell(b, "replay", place, &rows, schedule, compare(b));
        }
        gpu_forget(graph);
    }
}

static void run_place(Rig *b, Mode mode, int page, const char *name)
{
    static void (*const make[])(Rows *) = {decode_rows, verify_rows, chunk_rows, late_rows};
    Place place;
    make_place(&place, mode, page, name);
    open_stored(b, &place);
    for (int i = 0; i < (page == 528 ? 4 : 3); i++) {
        Rows rows;
        make[i](&rows);
        open_rows(b, &rows);
        write_rows(b, &rows);
        run_executor(b, &place, &rows);
        run_schedules(b, &place, &rows);
        run_shared(b, &place, &rows);
        if (i == 0 && mode == IN_PAGES)
            run_graphs(b, &place, &rows);
        close_rows(b);
    }
    close_stored(b, &place);
}

static void run_op(Rig *b)
{
    run_place(b, IN_PAGES, 16, "in pages of 16");
    run_place(b, IN_PAGES, 528, "in pages of 528");
    run_place(b, IN_PAGES, 48, "in pages of 48");
    run_place(b, PACKED, 0, "packed");
    run_place(b, BY_STRIDES, 0, "by strides");
    printf("  %s: %d schedules, %llu runs, %llu of %llu outputs differ\n", b->op->op->name,
           b->schedules, (unsigned long long)b->runs, (unsigned long long)b->differ,
           (unsigned long long)b->compared);
    fflush(stdout);
}

int attend_check(const iso_module *module, iso_module *cpu, const char *only)
{
    uint64_t compared = 0, differ = 0;
    Rig b = {.module = module, .cpu = cpu};
    b.positions = gpu_alloc(sizeof(int32_t) * MOST_ROWS);
    b.sequences = gpu_alloc(sizeof(int32_t) * MOST_ROWS);
    b.lengths = gpu_alloc(sizeof(int32_t) * REQUESTS);
    b.starts = gpu_alloc(sizeof(int32_t) * REQUESTS);
    for (int i = 0; i < module->manifest->n_ops; i++) {
        int results;
        const char *name = module->manifest->ops[i].name;
        must(iso_op_get(module, name, NULL, &b.op), name);
        must(iso_op_get(cpu, name, NULL, &b.on_cpu), name);
        if (spec_of(&b)->family != MF_ATTEND || (only && strcmp(only, name)))
            continue;
        must(iso_op_tensors(b.op, &b.params, &results), name);
        must(iso_op_schedules(b.op, &b.schedules), name);
        b.n = b.params + results;
        b.runs = b.compared = b.differ = 0;
        run_op(&b);
        compared += b.compared;
        differ += b.differ;
    }
    printf("attend of %s: %llu of %llu outputs differ\n", module->manifest->contract,
           (unsigned long long)differ, (unsigned long long)compared);
    return differ || !compared ? 4 : 0;
}
