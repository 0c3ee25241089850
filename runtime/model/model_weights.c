/* Weights: every part that this rank needs, once, from the checkpoint; and the digest of all. */
#include "model_run.h"
#include "weights/weights.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 512, SHARE_BYTES = 256 << 10, STAGE_BYTES = 32 << 20 };

/* Which axis of the weight axis i of the checkpoint's tensor is. */
static int stored_axis(const MfWeight *weight, int i)
{
    return weight->n_order ? weight->order[i] : i + (weight->stacked ? 1 : 0);
}

/* What the checkpoint is asked for, in one turn; of a stack one tensor, by its index. `name` has
 * room for NAME_BYTES. */
static iso_status describe(const Manifest *manifest, const MfWeight *weight, int turn,
                           int64_t index, char *name, WeightTensor *tensor)
{
    int first = weight->stacked ? 1 : 0;
    *tensor = (WeightTensor){.name = name,
                             .dtype = weight->tensor.dtype,
                             .n_axes = weight->tensor.n_axes - first,
                             .fan_in = weight->fan_in};
    if (!manifest_stacked_name(weight, turn, index, name, NAME_BYTES))
        return iso_fail(ISO_BAD_WEIGHT, "a weight's name is too long: %s", weight->name);
    tensor->exact = weight->n_order > 0;
    for (int i = 0; i < tensor->n_axes; i++) {
        const MfAtoms *axis = &weight->tensor.axes[stored_axis(weight, i)];
        tensor->size[i] = tensor->stored[i] = 1;
        for (int k = 0; k < axis->n; k++) {
            tensor->size[i] *= manifest->atoms[axis->atom[k]].size;
            tensor->stored[i] *= manifest->atoms[axis->atom[k]].stored;
        }
    }
    return ISO_OK;
}

/* ---- parts ---- */

/* A part of a tensor with the checkpoint's axes, as the weight has them. */
static void reorder(const MfWeight *weight, const WeightTensor *tensor, const int64_t *extent,
                    const char *from, char *to)
{
    int last = tensor->n_axes - 1, first = weight->stacked ? 1 : 0;
    size_t element = (size_t)manifest_dtype_bytes(tensor->dtype), stride[ISO_MAX_AXES + 1];
    int64_t at[ISO_MAX_AXES] = {0}, rows = 1;
    size_t left = 1;
    for (int axis = last; axis >= 0; axis--)
        for (int i = 0; i <= last; i++)
            if (weight->order[i] - first == axis) {
                stride[i] = left;
                left *= (size_t)extent[i];
            }
    for (int i = 0; i < last; i++)
        rows *= extent[i];
    for (int64_t row = 0; row < rows; row++) {
        size_t place = 0;
        for (int i = 0; i < last; i++)
            place += (size_t)at[i] * stride[i];
        for (int64_t k = 0; k < extent[last]; k++, from += element)
            memcpy(to + (place + (size_t)k * stride[last]) * element, from, element);
        for (int i = last - 1; i >= 0 && ++at[i] == extent[i]; i--)
            at[i] = 0;
    }
}

/* One tensor of the checkpoint: all of the piece, or what it has at an index of its stack. */
static iso_status read_tensor(const iso_model *model, const Weights *weights, const Piece *piece,
                              int64_t index, void *to)
{
    const MfWeight *weight = &model->program.model->weights[piece->weight];
    WeightTensor tensor;
    char name[NAME_BYTES], *scratch = NULL;
    int64_t origin[ISO_MAX_AXES], extent[ISO_MAX_AXES], n = 1;
    iso_status status =
        describe(model->program.manifest, weight, piece->turn, index, name, &tensor);
    for (int i = 0; i < tensor.n_axes; i++) {
        origin[i] = piece->box.lo[stored_axis(weight, i)];
        extent[i] = piece->box.hi[stored_axis(weight, i)] - origin[i];
        n *= extent[i];
    }
    if (!status && weight->n_order &&
        !(scratch = malloc((size_t)n * (size_t)manifest_dtype_bytes(tensor.dtype) + 1)))
        status = iso_fail(ISO_OUT_OF_MEMORY, "no memory to read weight %s", name);
    if (!status)
        status = weights_read(weights, &tensor, origin, extent, scratch ? scratch : to);
    if (!status && scratch)
        reorder(weight, &tensor, extent, scratch, to);
    free(scratch);
    return status;
}

/* Elements of a piece that one thread reads, whole tensors or rows of one. */
typedef struct Share {
    const iso_model *model;
    const Weights *weights;
    const Piece *piece;
    int64_t rows, bytes; /* rows of the first axis, of a share; bytes of a row */
    char *to;
    atomic_int status; /* of a share that failed */
} Share;

static iso_status read_rows(const Share *share, int64_t lo, int64_t hi)
{
    const MfWeight *weight = &share->model->program.model->weights[share->piece->weight];
    Piece part = *share->piece;
    char *to = share->to + (lo - part.box.lo[0]) * share->bytes;
    iso_status status = ISO_OK;
    part.box.lo[0] = lo;
    part.box.hi[0] = hi;
    if (!weight->stacked)
        return read_tensor(share->model, share->weights, &part, -1, to);
    for (int64_t i = lo; i < hi && !status; i++)
        status = read_tensor(share->model, share->weights, &part, i,
                             to + (i - lo) * share->bytes);
    return status;
}

static void read_share(void *user, int64_t i)
{
    Share *share = user;
    const Box *box = &share->piece->box;
    int64_t lo = box->lo[0] + i * share->rows, hi = lo + share->rows;
    iso_status status = read_rows(share, lo, hi < box->hi[0] ? hi : box->hi[0]);
    if (status)
        share->status = (int)status;
}

/* On several threads where it is much; what one of them could not read is asked for again, since
 * a message is its own thread's. */
static iso_status read_elements(const Share *from)
{
    const Box *box = &from->piece->box;
    Share share = *from;
    int64_t rows = box->hi[0] - box->lo[0];
    share.rows = SHARE_BYTES / (share.bytes + 1) + 1;
    if (rows > share.rows)
        weights_share_out((rows + share.rows - 1) / share.rows, read_share, &share);
    return rows > share.rows && !share.status ? ISO_OK : read_rows(from, box->lo[0], box->hi[0]);
}

/* ---- to the device ---- */

/* What is read goes to a GPU through memory that its copies reach without the driver's own copying,
 * some rows at a time; the CPU reads into place. */
typedef struct Stage {
    char *data;
    size_t bytes;
} Stage;

static int64_t piece_rows(const MfWeight *weight, const Piece *piece)
{
    return weight->tensor.n_axes ? piece->box.hi[0] - piece->box.lo[0] : 1;
}

static iso_status open_stage(const iso_model *model, Stage *stage)
{
    void *data = NULL;
    stage->bytes = STAGE_BYTES;
    for (int i = 0; i < model->pieces.n; i++) {
        const Piece *piece = &model->pieces.piece[i];
        const MfWeight *weight = &model->program.model->weights[piece->weight];
        int64_t rows = piece_rows(weight, piece);
        size_t row = rows ? (size_t)(box_bytes(&weight->tensor, &piece->box) / rows) : 0;
        stage->bytes = row > stage->bytes ? row : stage->bytes;
    }
    iso_status status =
        model->device.driver ? device_host_new(&model->device, stage->bytes, &data) : ISO_OK;
    stage->data = data;
    return status;
}

static iso_status read_part(const iso_model *model, const Weights *weights, const Piece *part,
                            int64_t row_bytes, void *to)
{
    if (!model->program.model->weights[part->weight].tensor.n_axes)
        return read_tensor(model, weights, part, -1, to);
    return read_elements(&(Share){.model = model, .weights = weights, .piece = part,
                                  .bytes = row_bytes, .to = to});
}

static iso_status read_piece(iso_model *model, const Weights *weights, const Stage *stage,
                             Piece *piece)
{
    const MfWeight *weight = &model->program.model->weights[piece->weight];
    size_t bytes = (size_t)box_bytes(&weight->tensor, &piece->box);
    int64_t rows = piece_rows(weight, piece), done = 0;
    int64_t row_bytes = rows ? (int64_t)bytes / rows : 0;
    int64_t most = stage->data && row_bytes ? (int64_t)stage->bytes / row_bytes : rows;
    iso_status status = device_new(&model->device, bytes, &piece->tensor.data);
    for (Piece part = *piece; done < rows && !status; done += most) {
        char *at = (char *)piece->tensor.data + done * row_bytes;
        int64_t n = rows - done < most ? rows - done : most;
        part.box.lo[0] = piece->box.lo[0] + done;
        part.box.hi[0] = part.box.lo[0] + n;
        status = read_part(model, weights, &part, row_bytes, stage->data ? stage->data : at);
        if (!status && stage->data)
            status = device_write(&model->device, at, stage->data, (size_t)(n * row_bytes));
    }
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

/* Tensors of the checkpoint that a weight is. */
static int64_t tensors_of(const Manifest *manifest, const MfWeight *weight)
{
    int64_t n = 1;
    for (int k = 0; weight->stacked && k < weight->tensor.axes[0].n; k++)
        n *= manifest->atoms[weight->tensor.axes[0].atom[k]].size;
    return n;
}

/* Every weight of the model in every turn, each name once: whatever this rank has of them. */
static iso_status list_names(const Program *p, Names *names)
{
    iso_status status = ISO_OK;
    size_t all = 0, at = 0;
    for (int i = 0; i < p->n_uses; i++)
        all += (size_t)tensors_of(p->manifest, &p->model->weights[p->uses[i].weight]);
    names->tensor = calloc(all + 1, sizeof *names->tensor);
    names->text = malloc((all + 1) * NAME_BYTES);
    if (!names->tensor || !names->text)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for the names of weights");
    for (int i = 0; i < p->n_uses && !status; i++) {
        const MfWeight *weight = &p->model->weights[p->uses[i].weight];
        int64_t n = tensors_of(p->manifest, weight);
        for (int64_t k = 0; k < n && !status; k++, at++)
            status = describe(p->manifest, weight, p->uses[i].turn, weight->stacked ? k : -1,
                              names->text + at * NAME_BYTES, &names->tensor[at]);
    }
    if (status)
        return status;
    qsort(names->tensor, all, sizeof *names->tensor, by_name);
    for (size_t i = 0; i < all; i++)
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
    Stage stage = {NULL, 0};
    iso_status status = weights_open(&weights, model->config.weights);
    if (!status)
        status = open_stage(model, &stage);
    for (int i = 0; i < model->pieces.n && !status; i++)
        status = read_piece(model, weights, &stage, &model->pieces.piece[i]);
    device_host_free(&model->device, stage.data);
    if (model->config.digest)
        memcpy(model->digest, model->config.digest, sizeof model->digest);
    else if (!status)
        status = make_digest(model, weights);
    weights_close(weights);
    return status;
}
