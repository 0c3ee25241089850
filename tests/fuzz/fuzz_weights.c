/* Any bytes as a checkpoint: whatever opens can be read at both ends of every tensor. */
#include "weights/weights_impl.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_ends(const Weights *weights, const WeightEntry *entry)
{
    WeightTensor tensor = {.name = entry->name, .dtype = ISO_BF16, .n_axes = 1,
                           .size = {entry->elements}, .stored = {entry->elements}};
    int64_t n = entry->elements < 300 ? entry->elements : 300, first = 0;
    int64_t last = entry->elements - n;
    uint16_t out[300];
    if (weights_read(weights, &tensor, &first, &n, out) ||
        weights_read(weights, &tensor, &last, &n, out))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Weights *weights;
    if (weights_open_bytes(&weights, data, size, "fuzz") != ISO_OK)
        return 0;
    for (int i = 0; i < weights->n_entries; i++)
        read_ends(weights, &weights->entries[i]);
    weights_close(weights);
    return 0;
}
