/* Weights: every part that this rank needs, once, from the checkpoint. */
#include "model_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

static void fill_piece(const iso_model *model, const Piece *piece, uint64_t seed, uint16_t *to)
{
    const MfWeight *w = &model->program.model->weights[piece->weight];
    char name[512];
    Box whole;
    manifest_weight_name(w, piece->turn, name, sizeof name);
    for (const char *c = name; *c; c++)
        seed = mix(seed * 257 + (unsigned char)*c);
    whole_box(model->program.manifest, &w->tensor, 1, &whole);
    int64_t n = 1;
    for (int i = 0; i < w->tensor.n_axes; i++)
        n *= piece->tensor.shape[i];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i, index = 0, stride = 1;
        for (int a = w->tensor.n_axes - 1; a >= 0; a--) {
            index += (at % piece->tensor.shape[a] + piece->box.lo[a]) * stride;
            at /= piece->tensor.shape[a];
            stride *= whole.hi[a];
        }
        uint64_t h = mix(seed + (uint64_t)index * 0x9E3779B97F4A7C15ull);
        to[i] = w->fan_in ? (uint16_t)((h & 0x807F) | (0x3D00 + (h >> 8 & 3) * 0x80))
                          : (uint16_t)(0x3F80 | (h & 0x7F));
    }
}

iso_status model_load_weights(iso_model *model)
{
    iso_status status = ISO_OK;
    if (strncmp(model->config.weights, "seed:", 5))
        return iso_fail(ISO_FILE, "weights %s: only seed:N is read", model->config.weights);
    for (int i = 0; i < model->pieces.n && !status; i++) {
        Piece *piece = &model->pieces.piece[i];
        const MfTensor *tensor = &model->program.model->weights[piece->weight].tensor;
        size_t bytes = (size_t)box_bytes(tensor, &piece->box);
        void *data = malloc(bytes + 1);
        fill_piece(model, piece, (uint64_t)atoi(model->config.weights + 5), data);
        status = device_new(&model->device, bytes, &piece->tensor.data);
        if (!status)
            status = device_write(&model->device, piece->tensor.data, data, bytes);
        free(data);
    }
    return status;
}
