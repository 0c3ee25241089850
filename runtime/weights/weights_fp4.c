/* Weights of four bits, with an exponent of eight for each 32 of a row (MXFP4), as checkpoints of
 * gpt-oss have them: NAME_blocks and NAME_scales, row by row of what is computed. The tensor NAME
 * is what transformers makes of them: its last two axes are exchanged. */
#include "weights_impl.h"

#include <math.h>
#include <string.h>

enum { ROW_UNIT = 32, UNIT_BYTES = 16, SCALE_BIAS = 127, SCALE_NAN = 255 };

static const char blocks_end[] = "_blocks", scales_end[] = "_scales";

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

bool weight_is_fp4_part(const char *name)
{
    return ends_with(name, blocks_end) || ends_with(name, scales_end);
}

static float element(const WeightEntry *entry, int64_t at)
{
    static const float magnitude[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    int bits = entry->data[at / 2] >> at % 2 * 4 & 15, scale = entry->scales[at / ROW_UNIT];
    float x = scale == SCALE_NAN ? NAN : ldexpf(magnitude[bits & 7], scale - SCALE_BIAS);
    return bits & 8 ? -x : x;
}

void weight_decode_fp4(const WeightEntry *entry, int64_t first, int64_t n, float *to)
{
    int64_t rows = entry->size[2], terms = entry->size[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t expert = (first + i) / (rows * terms), rest = (first + i) % (rows * terms);
        to[i] = element(entry, (expert * rows + rest % rows) * terms + rest / rows);
    }
}

/* [experts, rows, units, 16] beside [experts, rows, units]. */
static bool fits(const WeightEntry *blocks, const WeightEntry *scales)
{
    bool same = blocks->n_axes == 4 && scales->n_axes == 3 && blocks->size[3] == UNIT_BYTES;
    for (int i = 0; i < 3 && same; i++)
        same = blocks->size[i] == scales->size[i];
    return same;
}

static iso_status add_pair(Weights *weights, const char *name, size_t name_size, int blocks,
                           const char *label)
{
    WeightEntry from = weights->entries[blocks];
    char partner[WEIGHT_NAME_MOST];
    if (name_size + sizeof scales_end > sizeof partner)
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s is too long a name", label, from.name);
    memcpy(partner, name, name_size);
    memcpy(partner + name_size, scales_end, sizeof scales_end);
    const WeightEntry *scales = weights_find(weights, partner);
    if (!scales || !fits(&from, scales))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has no %s of its shape", label, from.name, partner);
    WeightEntry made = {.type = WT_MXFP4, .n_axes = 3, .data = from.data, .scales = scales->data,
                        .size = {from.size[0], from.size[2] * ROW_UNIT, from.size[1]}};
    WeightEntry *added = weights_add(weights, name, name_size);
    if (!added)
        return ISO_OUT_OF_MEMORY;
    made.name = added->name;
    made.elements = from.elements * 2;
    *added = made;
    return ISO_OK;
}

/* Names are looked for among those that were there, which are sorted. */
iso_status weights_pair_fp4(Weights *weights, const char *label)
{
    int n = weights->n_entries;
    iso_status status = ISO_OK;
    for (int i = 0; i < n && !status; i++) {
        const WeightEntry *entry = &weights->entries[i];
        if (entry->type == WT_U8 && ends_with(entry->name, blocks_end))
            status = add_pair(weights, entry->name, strlen(entry->name) - strlen(blocks_end), i,
                              label);
    }
    return status;
}
