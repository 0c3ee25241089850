/* Attention: every schedule of every attend of a cubin against the CPU executor, for telling
 * lengths, keys in pages, packed and by strides, batches in no order, and memory that is nobody's
 * full of NaN and Inf; and graphs whose rows and lengths change between replays. */
#include "attend_case.h"
#include "modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLAYS = 3 };

/* ---- runs ------------------------------------------------------------------------------------ */

/* The cache as iso_cache_write takes it, blocks and places first, and rows for all keys. */
static void cache_axes(const Rig *b, int index, iso_tensor *cache, iso_tensor *rows)
{
    const iso_tensor *t = &b->device[index];
    int sequence = attend_axis(b, index, MF_SEQUENCE);
    int position = attend_axis(b, index, MF_POSITION), n = 2;
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
        for (int key = 0; key < attend_lengths[s]; key++)
            slots[n++] = (int64_t)place->table[s * place->stride + key / place->page] *
                             place->page + key % place->page;
    DevicePtr on_device = gpu_alloc((size_t)n * 8);
    gpu_write(on_device, slots, (size_t)n * 8);
    for (int i = 0; i < b->params; i++) {
        if (attend_axis(b, i, MF_SEQUENCE) < 0)
            continue;
        iso_tensor *c = &cache[tensors], *r = &rows[tensors++];
        cache_axes(b, i, c, r);
        r->shape[0] = 1;
        int64_t inner = attend_elements(r);
        r->shape[0] = n;
        uint16_t *line = malloc((size_t)(n * inner) * 2), *image = malloc(attend_bytes(c));
        memcpy(image, b->host[i].data, attend_bytes(c));
        for (int64_t k = 0; k < n; k++)
            for (int64_t e = 0; e < inner; e++) {
                int64_t at = slots[k] / place->page * c->stride[0] +
                             slots[k] % place->page * c->stride[1] +
                             attend_inner_offset(c, 0, 1, e);
                line[k * inner + e] = image[at];
                image[at] = 0x7FFF;
            }
        DevicePtr data = gpu_alloc((size_t)(n * inner) * 2);
        gpu_write(data, line, (size_t)(n * inner) * 2);
        gpu_write((DevicePtr)(uintptr_t)c->data, image, attend_bytes(c));
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
        if (attend_axis(b, i, MF_SEQUENCE) < 0)
            continue;
        size_t bytes = attend_bytes(&b->host[i]);
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
        if (attend_axis(b, i, MF_SEQUENCE) < 0)
            continue;
        iso_tensor *t = &b->host[i];
        must(iso_op_tensor(b->op, ISO_PHASE_RUN, 1, i, t, NULL), "iso_op_tensor");
        attend_shape_stored(b, place, i, t);
        t->data = malloc(attend_bytes(t));
        attend_fill_stored(b, place, i, t);
        b->device[i] = *t;
        DevicePtr data = gpu_alloc(attend_bytes(t));
        gpu_write(data, t->data, attend_bytes(t));
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
        if (attend_axis(b, i, MF_SEQUENCE) >= 0) {
            free(b->host[i].data);
            gpu_free((DevicePtr)(uintptr_t)b->device[i].data);
        }
    if (place->mode == IN_PAGES)
        gpu_free(b->table);
    free(place->table);
}

static bool is_stored(const Rig *b, int index)
{
    return index < b->params && attend_axis(b, index, MF_SEQUENCE) >= 0;
}

/* All else for a number of rows. */
static void open_rows(Rig *b, const Rows *rows)
{
    for (int i = 0; i < b->n; i++) {
        iso_tensor *t = &b->host[i];
        if (is_stored(b, i))
            continue;
        must(iso_op_tensor(b->op, ISO_PHASE_RUN, rows->n, i, t, NULL), "iso_op_tensor");
        t->data = malloc(attend_bytes(t));
        attend_fill_plain(t, i);
        b->device[i] = *t;
        DevicePtr data = gpu_alloc(attend_bytes(t));
        gpu_write(data, t->data, attend_bytes(t));
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
        size_t each = t->dtype == ISO_F32 ? 4 : 2, bytes = attend_bytes(t);
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
        gpu_set((DevicePtr)(uintptr_t)b->device[i].data, POISON, attend_bytes(&b->device[i]));
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
                rows.lengths[s] = attend_lengths[s] - attend_lengths[s] * replay / 4;
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
    static void (*const make[])(Rows *) = {attend_decode_rows, attend_verify_rows,
                                           attend_chunk_rows, attend_late_rows};
    Place place;
    attend_make_place(&place, mode, page, name);
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
        if (attend_first_spec(&b)->family != MF_ATTEND || (only && strcmp(only, name)))
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
