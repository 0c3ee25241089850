/* What the parts of the manifest's writer share; private to manifest_write*.c.
 * Ownership: JSON values pass to the object or array that they are put into. */
#ifndef ISOC_MANIFEST_WRITE_IMPL_H
#define ISOC_MANIFEST_WRITE_IMPL_H

#include "manifest_write.h"

#include <jansson.h>

/* jansson gives NULL when memory is short, and the setters pass that on: one flag remembers it. */
typedef struct ManifestWriter {
    const Plan *plan;
    const Contract *contract;
    const Emitted *emitted;
    Arena *arena;
    bool failed;
} ManifestWriter;

static inline void put(ManifestWriter *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static inline void push(ManifestWriter *w, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        w->failed = true;
}

static inline json_t *text(Str s)
{
    return json_stringn(s.s, (size_t)s.n);
}

static inline json_t *integer(i64 n)
{
    return json_integer((json_int_t)n);
}

static inline json_t *integers(ManifestWriter *w, const int *v, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        push(w, array, integer(v[i]));
    return array;
}

static inline json_t *pair(ManifestWriter *w, i64 a, i64 b)
{
    json_t *array = json_array();
    push(w, array, integer(a));
    push(w, array, integer(b));
    return array;
}

/* T of manifest_write.h. */
json_t *manifest_tensor_json(ManifestWriter *w, const Tensor *tensor);
/* M, or null. */
json_t *manifest_model_json(ManifestWriter *w);

#endif
