/* A trial of attention: requests of telling lengths, tokens in no order, keys in permuted pages, in
 * a packed batch or by strides, and memory that is nobody's full of NaN and Inf. */
#include "verify_ptx_impl.h"

#include "verify/sample.h"

#include <string.h>

enum { MOST_ROWS = 272, MODES = 3, BEFORE_LAST = 25, MANY = 132, ODD_EVERY = 16, ODD_AT = 5 };

static const int all_lengths[PTX_REQUESTS] = {17, 1, 1025, 128, 15, 129, 16, 127};
static const int few_lengths[] = {17, 1, 262};
static const int page_sizes[] = {48, 16, 528};

struct PtxKeys {
    PtxPlaces mode;
    int requests, chunk; /* tokens before the last of a long one */
    const int *lengths;
    int page, pages;  /* keys of one; how many */
    int starts[PTX_REQUESTS], total, longest;
    int n_rows, position[MOST_ROWS], sequence[MOST_ROWS];
    int turns[PTX_REQUESTS];
    int *table;       /* of all requests' pages */
    iso_keys passed;
};

static u64 scatter(u64 x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_row(PtxKeys *k, int sequence, int position)
{
    k->sequence[k->n_rows] = sequence;
    k->position[k->n_rows++] = position;
}

static void swap(int *a, int *b)
{
    int x = *a;
    *a = *b;
    *b = x;
}

/* First, middle and last token of each request, a chunk before the last of long ones, and a token
 * of no request; the first half in order, the rest not. */
static void make_rows(PtxKeys *k, u64 seed)
{
    for (int s = 0; s < k->requests; s++) {
        add_row(k, s, 0);
        add_row(k, s, k->lengths[s] / 2);
        for (int p = k->lengths[s] - k->chunk; k->lengths[s] > 100 && p < k->lengths[s] - 1; p++)
            add_row(k, s, p);
        add_row(k, s, k->lengths[s] - 1);
    }
    add_row(k, -1, 5);
    int half = k->n_rows / 2;
    for (int i = half; i < k->n_rows; i++) {
        int with = half + (int)(scatter(seed + (u64)i) % (u64)(k->n_rows - half));
        swap(&k->sequence[i], &k->sequence[with]);
        swap(&k->position[i], &k->position[with]);
    }
}

/* ---- where keys lie -------------------------------------------------------------------------- */

static int pages_of(const PtxKeys *k, int length)
{
    return (length + k->page - 1) / k->page;
}

static void make_pages(PtxKeys *k, u64 seed, Arena *arena)
{
    int stride = pages_of(k, k->longest), n = 0;
    for (int s = 0; s < k->requests; s++)
        n += pages_of(k, k->lengths[s]);
    k->pages = n + 1; /* one is nobody's */
    int *order = arena_array(arena, int, k->pages);
    for (int i = 0; i < k->pages; i++)
        order[i] = i;
    for (int i = k->pages - 1; i > 0; i--)
        swap(&order[i], &order[scatter(seed * 7 + (u64)i) % (u64)(i + 1)]);
    k->table = arena_array(arena, int, k->requests * stride);
    k->passed.block_table_stride = stride;
    k->passed.page = k->page;
    for (int s = 0, next = 0; s < k->requests; s++)
        for (int i = 0; i < pages_of(k, k->lengths[s]); i++)
            k->table[s * stride + i] = order[next++];
}

static void take_requests(PtxKeys *k, const PtxRequests *asked)
{
    k->lengths = asked->lengths;
    k->requests = asked->n;
    k->mode = asked->places;
    k->page = asked->page;
    for (const PtxTokens *t = asked->run; t < asked->run + asked->n_runs; t++)
        for (int j = 0; j < t->n && k->n_rows < MOST_ROWS; j++)
            add_row(k, t->with && j % 2 ? t->with - 1 : t->sequence,
                    t->every && j % t->every == 0 ? t->far : t->first + j * t->step);
}

static void make_requests(PtxTrial *r, PtxKeys *k)
{
    int which = r->job->spec * 2 + (r->job->uneven != 0);
    bool many = r->job->uneven & PTX_MANY_TOKENS;
    bool few = r->worker->input->few_keys || r->worker->input->small || many;
    k->lengths = few ? few_lengths : all_lengths;
    k->chunk = many ? MANY
               : r->worker->input->small ? 2 : few ? 20 : r->worker->input->prove ? 3 : 6;
    k->requests = few ? (int)(sizeof few_lengths / sizeof *few_lengths) : PTX_REQUESTS;
    k->mode = (PtxPlaces)(which % MODES);
    k->page = page_sizes[which / MODES % 3];
}

void verify_ptx_keys(PtxTrial *r)
{
    PtxKeys *k = r->keys = arena_new_of(r->arena, PtxKeys);
    if (r->job->requests)
        take_requests(k, r->job->requests);
    else
        make_requests(r, k);
    for (int s = 0; s < k->requests; s++) {
        k->starts[s] = k->total;
        k->total += k->lengths[s];
        k->longest = k->lengths[s] > k->longest ? k->lengths[s] : k->longest;
        k->turns[s] = s % r->op->at->parts[r->op->rank].keys_count;
    }
    if (!r->job->requests)
        make_rows(k, r->worker->input->seed);
    make_pages(k, r->worker->input->seed, r->arena);
    r->rows = k->n_rows;
    i64 lo, hi;
    part_rows_of(op_part(r->op, r->job->phase), r->rows, &lo, &hi);
    r->position = k->position + lo;
    r->sequence = k->sequence + lo;
}

int verify_ptx_coordinate_axis(const PtxTrial *r, int tensor, MfCoordinate kind)
{
    const Manifest *m = r->worker->module->manifest;
    const MfTensor *declared = &r->op->op->tensors[tensor];
    for (int i = 0; i < declared->n_axes; i++)
        if (axis_is_table(m, &declared->axes[i]) &&
            m->atoms[declared->axes[i].atom[0]].coordinate == kind)
            return i;
    return -1;
}

bool verify_ptx_copied(const MfSpec *spec, int tensor)
{
    const MfAttend *a = &spec->attend;
    return a->queries >= 0 && (spec->bindings[a->queries].tensor == tensor ||
                               spec->bindings[a->keys].tensor == tensor ||
                               spec->bindings[a->values].tensor == tensor);
}

/* Of a rank's roots those of its own splits that some row sees; lengths end no row before its
 * position here. */
static i64 splits_seen(const PtxTrial *r, i64 row)
{
    const MfPart *part = op_part(r->op, r->job->phase);
    int sequence = r->sequence[row], position = r->position[row];
    i64 split = r->spec->attend.split, window = r->spec->attend.window, n = 0;
    i64 first = window && position + 1 > window ? (position + 1 - window) / split : 0;
    for (i64 i = first; sequence >= 0 && i <= position / split; i++)
        n += (i + r->keys->turns[sequence]) % part->keys_count == part->keys_index;
    return n;
}

i64 verify_ptx_most_keys(const PtxTrial *r)
{
    return r->keys ? r->keys->longest : 0;
}

i64 verify_ptx_roots_seen(const PtxTrial *r)
{
    i64 n = 0;
    for (i64 row = 0; row < r->live_rows; row++)
        n += splits_seen(r, row);
    const MfPart *part = op_part(r->op, r->job->phase);
    i64 places = (r->keys->longest + r->spec->attend.split - 1) / r->spec->attend.split;
    places = (places + part->keys_count - 1) / part->keys_count;
    return (i64)r->roots.bytes / 4 / (r->part_rows * places) * n;
}

bool verify_ptx_stored(const PtxTrial *r, int index)
{
    return r->keys && verify_ptx_coordinate_axis(r, index, MF_SEQUENCE) >= 0;
}

void verify_ptx_shape(const PtxTrial *r, int index, iso_tensor *tensor)
{
    const PtxKeys *k = r->keys;
    i64 stride = 1;
    tensor->shape[verify_ptx_coordinate_axis(r, index, MF_SEQUENCE)] =
        k->mode == PTX_IN_PAGES ? k->pages : k->mode == PTX_PACKED ? 1 : k->requests;
    tensor->shape[verify_ptx_coordinate_axis(r, index, MF_POSITION)] =
        k->mode == PTX_IN_PAGES ? k->page : k->mode == PTX_PACKED ? k->total + 3 : k->longest;
    for (int i = tensor->n_axes - 1; i >= 0; i--) {
        tensor->stride[i] = stride;
        stride *= tensor->shape[i];
    }
}

/* ---- what they hold -------------------------------------------------------------------------- */

/* The key that lies a and b steps along the stored axes: its request and number, or -1. */
static int owner_of(const PtxKeys *k, i64 a, i64 b, int *key)
{
    for (int s = 0; s < k->requests; s++) {
        i64 stride = k->passed.block_table_stride;
        *key = k->mode == PTX_PACKED                  ? (int)b - k->starts[s]
               : k->mode == PTX_BY_STRIDES && a == s ? (int)b
                                                     : -1;
        for (int i = 0; k->mode == PTX_IN_PAGES && i < pages_of(k, k->lengths[s]); i++)
            if (k->table[s * stride + i] == a)
                *key = i * k->page + (int)b;
        if (*key >= 0 && *key < k->lengths[s])
            return s;
    }
    return -1;
}

/* The last keys of some requests, and one that a window leaves behind, are no numbers: all of a
 * key, some elements of a value. */
static bool is_odd(const PtxKeys *k, bool values, int s, int key, i64 at)
{
    bool last = key == k->lengths[s] - 1;
    if (!values)
        return last && s % 4 == 1;
    return at % ODD_EVERY == ODD_AT &&
           ((last && s % 2 == 0) || (k->lengths[s] > 128 && key == k->lengths[s] - BEFORE_LAST));
}

static void put_odd(PtxTensor *t, i64 at)
{
    static const u16 bf16[] = {0x7FC1, 0x7F80, 0xFF80}, f16[] = {0x7E01, 0x7C00, 0xFC00};
    ((u16 *)t->tensor.data)[at] = (t->tensor.dtype == ISO_F16 ? f16 : bf16)[at / 7 % 3];
}

void verify_ptx_fill_keys(PtxTrial *r, int index)
{
    PtxTensor *t = &r->tensor[index];
    int sequence = verify_ptx_coordinate_axis(r, index, MF_SEQUENCE);
    int position = verify_ptx_coordinate_axis(r, index, MF_POSITION);
    int of = r->spec->attend.values;
    bool values = of >= 0 && r->spec->bindings[of].tensor == index;
    for (i64 at = 0; at < t->elements; at++) {
        int key, s = owner_of(r->keys, at / t->tensor.stride[sequence] % t->tensor.shape[sequence],
                              at / t->tensor.stride[position] % t->tensor.shape[position], &key);
        if (s < 0 || is_odd(r->keys, values, s, key, at))
            put_odd(t, at);
        else
            sample_put(t->tensor.dtype == ISO_F16 ? DT_F16 : DT_BF16, t->tensor.data, at, t->seed,
                       0);
    }
    memset(t->filled, 1, t->bytes / 4096 + 2);
}

/* ---- what is passed -------------------------------------------------------------------------- */

static const int32_t *pass(PtxTrial *r, const char *name, const int *from, i64 n)
{
    int32_t *to = (int32_t *)(void *)verify_ptx_buffer(&r->place, name, (size_t)n * 4,
                                                       (size_t)n * 4);
    for (i64 i = 0; to && i < n; i++)
        to[i] = from[i];
    return to;
}

bool verify_ptx_pass_keys(PtxTrial *r, iso_run *run)
{
    PtxKeys *k = r->keys;
    if (!r->job->requests || !r->job->requests->no_lengths)
        k->passed.lengths = pass(r, "the lengths", k->lengths, k->requests);
    if (k->mode == PTX_PACKED)
        k->passed.starts = pass(r, "the starts", k->starts, k->requests);
    if (k->mode == PTX_IN_PAGES)
        k->passed.block_table = pass(r, "the block table", k->table,
                                     k->requests * k->passed.block_table_stride);
    k->passed.most_keys = k->longest;
    if (op_shares_keys(r->op))
        k->passed.turns = pass(r, "the turns", k->turns, k->requests);
    run->keys = &k->passed;
    return !r->place.failed;
}

isoc_keys verify_ptx_executor_keys(const PtxTrial *r)
{
    const iso_keys *k = &r->keys->passed;
    return (isoc_keys){k->lengths, k->starts, k->block_table, k->block_table_stride, k->page,
                       k->most_keys, k->turns};
}

/* ---- for terms ------------------------------------------------------------------------------- */

static void place(const void *self, int sequence, i64 key, i64 *a, i64 *b)
{
    const PtxKeys *k = self;
    i64 page = k->mode == PTX_IN_PAGES ? k->page : 1;
    *a = k->mode == PTX_BY_STRIDES ? sequence : 0;
    *b = k->mode == PTX_PACKED ? k->starts[sequence] + key : key % page;
    if (k->mode == PTX_BY_STRIDES)
        *b = key;
    if (k->mode == PTX_IN_PAGES)
        *a = k->table[sequence * k->passed.block_table_stride + key / page];
}

const TermsKeys *verify_ptx_terms_keys(const PtxTrial *r)
{
    TermsKeys *keys = arena_new_of(r->arena, TermsKeys);
    bool all = r->job->requests && r->job->requests->no_lengths;
    *keys = (TermsKeys){all ? NULL : r->keys->lengths, r->keys->longest, r->keys->turns, place,
                        r->keys};
    return keys;
}
