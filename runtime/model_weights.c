/* Weights: every part that this rank needs, once, from the checkpoint; and the digest of all. */
#include "model_run.h"
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 512 };

/* What the checkpoint is asked for, in one turn; `name` has room for NAME_BYTES. */
static iso_status describe(const Manifest *manifest, const MfWeight *weight, int turn, char *name,
                           WeightTensor *tensor)
{
    *tensor = (WeightTensor){.name = name,
                             .dtype = weight->tensor.dtype,
                             .n_axes = weight->tensor.n_axes,
                             .fan_in = weight->fan_in};
    if (!manifest_weight_name(weight, turn, name, NAME_BYTES))
        return iso_fail(ISO_BAD_WEIGHT, "a weight's name is too long: %s", weight->name);
    for (int i = 0; i < weight->tensor.n_axes; i++) {
        const MfAtoms *axis = &weight->tensor.axes[i];
        tensor->size[i] = tensor->stored[i] = 1;
        for (int k = 0; k < axis->n; k++) {
            tensor->size[i] *= manifest->atoms[axis->atom[k]].size;
            tensor->stored[i] *= manifest->atoms[axis->atom[k]].stored;
        }
    }
    return ISO_OK;
}

/* ---- parts ---- */

static iso_status read_piece(iso_model *model, const Weights *weights, Piece *piece)
{
    const MfWeight *weight = &model->program.model->weights[piece->weight];
    WeightTensor tensor;
    char name[NAME_BYTES];
    int64_t extent[ISO_MAX_AXES];
    size_t bytes = (size_t)box_bytes(&weight->tensor, &piece->box);
    iso_status status =
        describe(model->program.manifest, weight, piece->turn, name, &tensor);
    void *data = malloc(bytes + 1);
    if (!data)
        status = iso_fail(ISO_OUT_OF_MEMORY, "no memory to read weight %s", name);
    for (int i = 0; i < tensor.n_axes; i++)
        extent[i] = piece->box.hi[i] - piece->box.lo[i];
    if (!status)
        status = weights_check(weights, &tensor);
    if (!status)
        status = weights_read(weights, &tensor, piece->box.lo, extent, data);
    if (!status)
        status = device_new(&model->device, bytes, &piece->tensor.data);
    if (!status)
        status = device_write(&model->device, piece->tensor.data, data, bytes);
    free(data);
    return status;
}

/* ---- the digest ---- */

typedef struct Names {
    int n;
    WeightTensor *tensor;
    char *text;
} Names;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const WeightTensor *)a)->name, ((const WeightTensor *)b)->name);
}

/* Every weight of the model in every turn, each name once: whatever this rank has of them. */
static iso_status list_names(const Program *p, Names *names)
{
    iso_status status = ISO_OK;
    names->tensor = calloc((size_t)p->n_uses + 1, sizeof *names->tensor);
    names->text = malloc(((size_t)p->n_uses + 1) * NAME_BYTES);
    if (!names->tensor || !names->text)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for the names of weights");
    for (int i = 0; i < p->n_uses && !status; i++)
        status = describe(p->manifest, &p->model->weights[p->uses[i].weight], p->uses[i].turn,
                          names->text + (size_t)i * NAME_BYTES, &names->tensor[i]);
    if (status)
        return status;
    qsort(names->tensor, (size_t)p->n_uses, sizeof *names->tensor, by_name);
    for (int i = 0; i < p->n_uses; i++)
        if (!names->n || by_name(&names->tensor[names->n - 1], &names->tensor[i]))
            names->tensor[names->n++] = names->tensor[i];
    return ISO_OK;
}

static iso_status make_digest(iso_model *model, const Weights *weights)
{
    Names names = {0};
    iso_status status = list_names(&model->program, &names);
    if (!status)
        status = weights_digest(weights, names.tensor, names.n, model->digest);
    free(names.tensor);
    free(names.text);
    return status;
}

iso_status model_load_weights(iso_model *model)
{
    Weights *weights = NULL;
    iso_status status = weights_open(&weights, model->config.weights);
    for (int i = 0; i < model->pieces.n && !status; i++)
        status = read_piece(model, weights, &model->pieces.piece[i]);
    if (model->config.digest)
        memcpy(model->digest, model->config.digest, sizeof model->digest);
    else if (!status)
        status = make_digest(model, weights);
    weights_close(weights);
    return status;
}
