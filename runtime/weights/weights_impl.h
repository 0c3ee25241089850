/* What the readers of checkpoints share; private to weights*.c.
 * Ownership: an entry's bytes are in a mapped file, its name in the Weights' memory. */
#ifndef ISO_WEIGHTS_IMPL_H
#define ISO_WEIGHTS_IMPL_H

#include "weights.h"

#include <stdbool.h>

/* X(id, name, elements of a block, bytes of a block, GGUF's number or -1). */
#define WEIGHT_TYPES(X)                                                                            \
    X(F32, "F32", 1, 4, 0)                                                                         \
    X(F16, "F16", 1, 2, 1)                                                                         \
    X(Q4_0, "Q4_0", 32, 18, 2)                                                                     \
    X(Q4_1, "Q4_1", 32, 20, 3)                                                                     \
    X(Q8_0, "Q8_0", 32, 34, 8)                                                                     \
    X(Q4_K, "Q4_K", 256, 144, 12)                                                                  \
    X(Q6_K, "Q6_K", 256, 210, 14)                                                                  \
    X(BF16, "BF16", 1, 2, 30)                                                                      \
    X(U8, "U8", 1, 1, -1)                                                                          \
    X(MXFP4, "MXFP4", 1, 1, -1)

typedef enum WeightType {
#define X(id, name, elements, bytes, gguf) WT_##id,
    WEIGHT_TYPES(X)
#undef X
        WT_COUNT
} WeightType;

const char *weight_type_name(WeightType type);
int weight_block_elements(WeightType type);
int weight_block_bytes(WeightType type);
/* Elements [first, first + n) of a tensor, in f32, whole blocks or not. */
void weight_decode(WeightType type, const unsigned char *data, int64_t first, int64_t n,
                   float *to);

typedef struct WeightEntry {
    char *name;
    WeightType type;
    int n_axes;
    int64_t size[ISO_MAX_AXES];
    int64_t elements;
    const unsigned char *data;
    int heads; /* > 0: in each, rows of its two halves alternate, as llama.cpp has them */
    const unsigned char *scales; /* WT_MXFP4: the exponents */
} WeightEntry;

typedef struct WeightFile {
    void *data;
    size_t size;
    bool mapped;
} WeightFile;

struct Weights {
    bool seeded;
    uint64_t seed;
    int n_entries, room;
    WeightEntry *entries; /* sorted by name once all are there */
    int n_files;
    WeightFile *files;
};

enum { WEIGHT_NAME_MOST = 1024 };

/* NULL if no tensor has the name; entries are sorted. */
const WeightEntry *weights_find(const Weights *weights, const char *name);
/* A new entry with a copy of the name; NULL with an error set. */
WeightEntry *weights_add(Weights *weights, const char *name, size_t name_size);
/* Finds the product; false where it is none or its bytes do not fit. */
bool weight_elements(WeightEntry *entry);
/* One file's tensors; `label` is the file's name, for messages. */
iso_status weights_read_safetensors(Weights *weights, const unsigned char *data, size_t size,
                                    const char *label);
iso_status weights_read_gguf(Weights *weights, const unsigned char *data, size_t size,
                             const char *label);
/* A file's bytes, which outlive the Weights, as weights_open takes them from a disk. */
iso_status weights_open_bytes(Weights **weights, const void *data, size_t size,
                              const char *label);

/* Names of which a safetensors file may have bytes that are parts of a tensor. */
bool weight_is_fp4_part(const char *name);
/* The tensors of which there are blocks and scales, behind the others. */
iso_status weights_pair_fp4(Weights *weights, const char *label);
void weight_decode_fp4(const WeightEntry *entry, int64_t first, int64_t n, float *to);

/* A tensor of these values from its row-major index `first` on. */
void weights_seeded(uint64_t seed, const WeightTensor *tensor, int64_t first, int64_t n,
                    float *to);

#endif
