#include "attend_case.h"

#include "iso_num.cuh"

#include <stdlib.h>
#include <string.h>

enum { ODD_EVERY = 16, ODD_AT = 5, BEFORE_LAST = 25 };

const int attend_lengths[REQUESTS] = {128, 4097, 1, 1024, 15, 129, 17, 1025, 2, 127, 1023, 16};

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
void attend_decode_rows(Rows *rows)
{
    *rows = (Rows){.name = "decode"};
    for (int s = 0; s < REQUESTS; s++)
        add_row(rows, s, attend_lengths[s] - 1);
    add_row(rows, -1, 3);
    shuffle(rows, 0);
    memcpy(rows->lengths, attend_lengths, sizeof attend_lengths);
}

/* The last five of each request, in order. */
void attend_verify_rows(Rows *rows)
{
    *rows = (Rows){.name = "verify 5"};
    for (int s = 0; s < REQUESTS; s++)
        for (int p = attend_lengths[s] - 5; p < attend_lengths[s]; p++)
            add_row(rows, s, p);
    memcpy(rows->lengths, attend_lengths, sizeof attend_lengths);
}

/* A chunk across a block's border, ends and middles, the second part in no order. */
void attend_chunk_rows(Rows *rows)
{
    *rows = (Rows){.name = "chunks"};
    for (int p = 1015; p < 1080; p++)
        add_row(rows, 1, p);
    int ordered = rows->n;
    for (int s = 0; s < REQUESTS; s++) {
        add_row(rows, s, 0);
        for (int i = 0; i < 5; i++)
            add_row(rows, s, (int)(scatter((uint64_t)(s * 5 + i)) % (uint64_t)attend_lengths[s]));
        add_row(rows, s, attend_lengths[s] - 1);
    }
    add_row(rows, -1, 3);
    shuffle(rows, ordered);
    memcpy(rows->lengths, attend_lengths, sizeof attend_lengths);
}

/* The last of a long request: more splits than the roots have room for. */
void attend_late_rows(Rows *rows)
{
    *rows = (Rows){.name = "late"};
    for (int p = LONGEST - MOST_ROWS; p < LONGEST; p++)
        add_row(rows, 1, p);
    memcpy(rows->lengths, attend_lengths, sizeof attend_lengths);
}

/* ---- where keys lie -------------------------------------------------------------------------- */

static int pages_of(const Place *place, int s)
{
    return (attend_lengths[s] + place->page - 1) / place->page;
}

void attend_make_place(Place *place, Mode mode, int page, const char *name)
{
    *place = (Place){.mode = mode, .page = page, .name = name};
    for (int s = 0; s < REQUESTS; s++) {
        place->starts[s] = place->total;
        place->total += attend_lengths[s];
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

const MfSpec *attend_first_spec(const Rig *b)
{
    return op_spec(b->op, ISO_PHASE_RUN, 1, 1);
}

static int tensor_of(const Rig *b, int binding)
{
    return attend_first_spec(b)->bindings[binding].tensor;
}

int attend_axis(const Rig *b, int tensor, MfCoordinate kind)
{
    const Manifest *m = b->module->manifest;
    const MfTensor *declared = &b->op->op->tensors[tensor];
    for (int i = 0; i < declared->n_axes; i++)
        if (axis_is_table(m, &declared->axes[i]) &&
            m->atoms[declared->axes[i].atom[0]].coordinate == kind)
            return i;
    return -1;
}

void attend_shape_stored(const Rig *b, const Place *place, int index, iso_tensor *t)
{
    int sequence = attend_axis(b, index, MF_SEQUENCE);
    if (sequence < 0)
        return;
    t->shape[sequence] = place->mode == IN_PAGES ? place->pages
                         : place->mode == PACKED ? 1
                                                 : REQUESTS;
    t->shape[attend_axis(b, index, MF_POSITION)] = place->mode == IN_PAGES ? place->page
                                                       : place->mode == PACKED ? place->total + 3
                                                                               : LONGEST;
    int64_t stride = 1;
    for (int i = t->n_axes - 1; i >= 0; i--) {
        t->stride[i] = stride;
        stride *= t->shape[i];
    }
}

int64_t attend_elements(const iso_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_axes; i++)
        n *= t->shape[i];
    return n;
}

size_t attend_bytes(const iso_tensor *t)
{
    return (size_t)attend_elements(t) * (t->dtype == ISO_F32 ? 4 : 2);
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
    int length = attend_lengths[s];
    bool last = key == length - 1;
    if (!values)
        return last && s % 4 == 1 && length < AROUND;
    return element % ODD_EVERY == ODD_AT &&
           ((last && s % 2 == 0) || (length > AROUND && key == length - BEFORE_LAST));
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

int64_t attend_inner_offset(const iso_tensor *t, int sequence, int position, int64_t i)
{
    int64_t offset = 0;
    for (int axis = t->n_axes - 1; axis >= 0; axis--)
        if (axis != sequence && axis != position) {
            offset += i % t->shape[axis] * t->stride[axis];
            i /= t->shape[axis];
        }
    return offset;
}

void attend_fill_stored(const Rig *b, const Place *place, int index, iso_tensor *t)
{
    int sequence = attend_axis(b, index, MF_SEQUENCE);
    int position = attend_axis(b, index, MF_POSITION);
    bool values = index == tensor_of(b, attend_first_spec(b)->attend.values);
    int64_t inner = attend_elements(t) / t->shape[sequence] / t->shape[position];
    for (int64_t i = 0; i < attend_elements(t); i++)
        put_odd(t, i);
    for (int s = 0; s < REQUESTS; s++)
        for (int key = 0; key < attend_lengths[s]; key++) {
            int64_t x, y;
            place_key(place, s, key, &x, &y);
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = x * t->stride[sequence] + y * t->stride[position] +
                             attend_inner_offset(t, sequence, position, i);
                uint64_t seed = (((uint64_t)index * REQUESTS + (uint64_t)s) * LONGEST +
                                 (uint64_t)key) * 4096 + (uint64_t)i;
                put_value(t, at, seed);
                if (is_odd(values, s, key, i))
                    put_odd(t, at);
            }
        }
}

void attend_fill_plain(iso_tensor *t, int index)
{
    for (int64_t i = 0; i < attend_elements(t); i++)
        put_value(t, i, (uint64_t)(index + 50) << 32 | (uint64_t)i);
}
