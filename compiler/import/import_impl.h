/* What reading a config and writing the contract share; private to import*.c.
 * Ownership: as import.h. */
#ifndef ISOC_IMPORT_IMPL_H
#define ISOC_IMPORT_IMPL_H

#include "import.h"

typedef enum ImportFamily {
    IMPORT_LLAMA,
    IMPORT_MISTRAL,
    IMPORT_QWEN2,
    IMPORT_QWEN3,
    IMPORT_OLMO2,
    IMPORT_OLMO3,
    IMPORT_QWEN3_MOE,
    IMPORT_MIXTRAL,
    IMPORT_FAMILIES
} ImportFamily;

/* The settings of a table as they stand in the contract, "theta 10000; scaling linear; ...". */
typedef struct ImportModel {
    ImportFamily family;
    Str name;
    i64 experts, picks; /* 0: no mixture of experts; else `ffn` is an expert's */
    i64 hidden, ffn, heads, kv_heads, head_dim, layers, vocab, positions, window;
    double eps;
    bool tied;
    Str rope;         /* of layers that see everything */
    Str sliding_rope; /* of those with a window, where it is another; else empty */
    bool *slides;     /* per layer */
    bool any_slides, any_full;
} ImportModel;

static inline bool import_is_olmo(const ImportModel *m)
{
    return m->family == IMPORT_OLMO2 || m->family == IMPORT_OLMO3;
}

/* The shortest decimal text that is read back as the number. */
Str import_number(Arena *arena, double value);
bool import_read(int file, ImportModel *model, Arena *arena, Diags *diags);
/* "model { ... }" */
void import_write_model(const ImportModel *model, Text *out);
void import_write(const ImportModel *model, Text *out);

#endif
