/* What the parts of the manifest's reader share: members of JSON objects, with their bounds.
 * Ownership: a Reader lives for one call of manifest_read; what it takes is the Manifest's. */
#ifndef ISO_MANIFEST_IMPL_H
#define ISO_MANIFEST_IMPL_H

#include "manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* All arrays hang on one list; the JSON tree keeps the strings. */
typedef struct Block {
    struct Block *next;
    _Alignas(16) unsigned char data[];
} Block;

typedef struct Memory {
    json_t *root;
    Block *blocks;
} Memory;

typedef struct Reader {
    Memory *memory;
    Manifest *out;
    iso_status status; /* the first failure */
} Reader;

static inline void bad(Reader *r, const char *member, const char *why)
{
    if (!r->status)
        r->status = iso_fail(ISO_NOT_ISO, "the manifest's \"%s\" %s", member, why);
}

static inline void *take(Reader *r, size_t n, size_t size)
{
    Block *block = calloc(1, sizeof(Block) + (n ? n : 1) * size);
    if (!block) {
        if (!r->status)
            r->status = iso_fail(ISO_OUT_OF_MEMORY, "no memory for the manifest");
        return NULL;
    }
    block->next = r->memory->blocks;
    r->memory->blocks = block;
    return block->data;
}

/* ---- members ---- */

static inline int64_t get_int(Reader *r, json_t *object, const char *member, int64_t lo,
                              int64_t hi)
{
    json_t *value = json_object_get(object, member);
    if (!json_is_integer(value)) {
        bad(r, member, "is not an integer");
        return lo;
    }
    json_int_t v = json_integer_value(value);
    if (v < lo || v > hi) {
        bad(r, member, "is out of range");
        return lo;
    }
    return v;
}

static inline bool get_bool(Reader *r, json_t *object, const char *member)
{
    json_t *value = json_object_get(object, member);
    if (!json_is_boolean(value))
        bad(r, member, "is not a boolean");
    return json_is_true(value);
}

static inline const char *get_string(Reader *r, json_t *object, const char *member)
{
    const char *s = json_string_value(json_object_get(object, member));
    if (!s)
        bad(r, member, "is not a string");
    return s ? s : "";
}

/* An array member and its length; NULL with length 0 where it is no array or too long. */
static inline json_t *get_array(Reader *r, json_t *object, const char *member, size_t most,
                                int *n)
{
    json_t *value = json_object_get(object, member);
    *n = 0;
    if (!json_is_array(value) || json_array_size(value) > most) {
        bad(r, member, json_is_array(value) ? "has too many elements" : "is not an array");
        return NULL;
    }
    *n = (int)json_array_size(value);
    return value;
}

static inline int64_t element_int(Reader *r, json_t *array, int i, const char *member, int64_t lo,
                                  int64_t hi)
{
    json_t *value = json_array_get(array, (size_t)i);
    json_int_t v = json_integer_value(value);
    if (!json_is_integer(value) || v < lo || v > hi) {
        bad(r, member, "has an element that is no integer in range");
        return lo;
    }
    return v;
}

static inline void get_digest(Reader *r, json_t *object, const char *member, uint8_t digest[32])
{
    const char *hex = get_string(r, object, member);
    static const char digits[] = "0123456789abcdef";
    bool right = strlen(hex) == 64;
    for (int i = 0; right && i < 32; i++) {
        const char *high = strchr(digits, hex[2 * i]), *low = strchr(digits, hex[2 * i + 1]);
        right = high && low;
        if (right)
            digest[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    if (!right)
        bad(r, member, "is not 64 lower-case hexadecimal digits");
}

/* Runs `read` over an array of objects into a new array of `size`-byte structs. */
typedef void (*ReadElement)(Reader *r, json_t *object, void *element);

static inline void *get_objects(Reader *r, json_t *object, const char *member, size_t most,
                                size_t size, int *n, ReadElement read)
{
    json_t *array = get_array(r, object, member, most, n);
    unsigned char *elements = take(r, (size_t)*n, size);
    for (int i = 0; elements && i < *n && !r->status; i++) {
        json_t *element = json_array_get(array, (size_t)i);
        if (!json_is_object(element))
            bad(r, member, "has an element that is not an object");
        else
            read(r, element, elements + (size_t)i * size);
    }
    return elements;
}

/* { "name", "dtype", "axes" } into an MfTensor. */
void manifest_tensor(Reader *r, json_t *object, void *element);
/* The member "model": null, or clause 13's; ops and atoms have been read. */
void manifest_model(Reader *r, json_t *root);

#endif
