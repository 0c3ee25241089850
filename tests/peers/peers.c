/* What peers.py calls: tables of rotary embedding, and tensors of a checkpoint.
 * Ownership: one checkpoint is open at a time, until another is. */
#include "../../compiler/device/iso_rope.cuh"
#include "weights/weights.h"

void peer_rope(const IsoRope *rope, int positions, float *frequency, float *cos, float *sin);
int peer_read(const char *path, const char *name, int rows, int columns, float *to);

void peer_rope(const IsoRope *rope, int positions, float *frequency, float *cos, float *sin)
{
    int columns = rope->dim / 2;
    for (int i = 0; i < columns; i++) {
        frequency[i] = iso_rope_frequency(rope, i);
        for (long p = 0; p < positions; p++)
            iso_rope_entry(frequency[i], iso_rope_attention(rope), (int)p, &cos[p * columns + i],
                           &sin[p * columns + i]);
    }
}

int peer_read(const char *path, const char *name, int rows, int columns, float *to)
{
    Weights *weights;
    WeightTensor tensor = {.name = name, .dtype = ISO_F32, .n_axes = 2, .size = {rows, columns},
                           .stored = {rows, columns}};
    int64_t origin[2] = {0, 0};
    iso_status status = weights_open(&weights, path);
    if (!status)
        status = weights_read(weights, &tensor, origin, tensor.size, to);
    weights_close(weights);
    return status;
}
