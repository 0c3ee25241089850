/* safetensors: a length, a JSON header of names, types, shapes and offsets, and the bytes. */
#include "weights_impl.h"

#include <jansson.h>
#include <string.h>

enum { HEADER_MOST = 100 << 20 };

static bool type_named(const char *name, WeightType *type)
{
    static const WeightType plain[] = {WT_F32, WT_F16, WT_BF16};
    for (int i = 0; name && i < 3; i++)
        if (!strcmp(name, weight_type_name(plain[i]))) {
            *type = plain[i];
            return true;
        }
    return false;
}

static bool read_shape(json_t *shape, WeightEntry *entry)
{
    if (!json_is_array(shape) || json_array_size(shape) > ISO_MAX_AXES)
        return false;
    entry->n_axes = (int)json_array_size(shape);
    for (int i = 0; i < entry->n_axes; i++) {
        json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size))
            return false;
        entry->size[i] = json_integer_value(size);
    }
    return weight_elements(entry);
}

static bool read_offsets(json_t *offsets, size_t size, int64_t *from, int64_t *to)
{
    json_t *first = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(end))
        return false;
    *from = json_integer_value(first);
    *to = json_integer_value(end);
    return *from >= 0 && *from <= *to && *to <= (int64_t)size;
}

/* Tensors of other types may be there: they are no weights of a model, and are passed over. */
static iso_status read_tensor(Weights *weights, const char *name, json_t *object,
                              const unsigned char *bytes, size_t size, const char *label)
{
    int64_t from = 0, to = 0;
    WeightEntry entry = {0};
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    if (!dtype)
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has no dtype", label, name);
    if (!read_offsets(json_object_get(object, "data_offsets"), size, &from, &to))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has bytes outside of the file", label, name);
    if (!strcmp(dtype, "U8") && weight_is_fp4_part(name))
        entry.type = WT_U8;
    else if (!type_named(dtype, &entry.type))
        return ISO_OK;
    if (!read_shape(json_object_get(object, "shape"), &entry))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has a shape that is none", label, name);
    if (to - from != entry.elements * weight_block_bytes(entry.type))
        return iso_fail(ISO_BAD_WEIGHT, "%s: %s has %lld bytes, its shape needs %lld", label, name,
                        (long long)(to - from),
                        (long long)entry.elements * weight_block_bytes(entry.type));
    WeightEntry *added = weights_add(weights, name, strlen(name));
    if (!added)
        return ISO_OUT_OF_MEMORY;
    entry.name = added->name;
    entry.data = bytes + from;
    *added = entry;
    return ISO_OK;
}

iso_status weights_read_safetensors(Weights *weights, const unsigned char *data, size_t size,
                                    const char *label)
{
    uint64_t header = 0;
    for (int i = 7; i >= 0 && size >= 8; i--)
        header = header << 8 | data[i];
    if (size < 8 || header > size - 8 || header > HEADER_MOST)
        return iso_fail(ISO_BAD_WEIGHT, "%s: neither safetensors nor GGUF", label);
    json_error_t error;
    json_t *root = json_loadb((const char *)data + 8, (size_t)header, JSON_REJECT_DUPLICATES,
                              &error);
    if (!json_is_object(root)) {
        json_decref(root);
        return iso_fail(ISO_BAD_WEIGHT, "%s: neither safetensors nor GGUF: its header is no JSON "
                                        "object", label);
    }
    iso_status status = ISO_OK;
    const char *name;
    json_t *object;
    json_object_foreach(root, name, object)
    {
        if (strcmp(name, "__metadata__"))
            status = read_tensor(weights, name, object, data + 8 + header,
                                 size - 8 - (size_t)header, label);
        if (status)
            break;
    }
    json_decref(root);
    return status;
}
