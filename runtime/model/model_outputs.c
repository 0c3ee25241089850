/* Outputs: asked rows of a step, from where its ops put them to the caller's arrays. */
#include "model_run.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_BYTES = 4 << 20, CPU_ROOM_BYTES = 8 << 10, ALIGNED = 256 };

/* A part of a row into the caller's whole one. */
typedef struct Spread {
    const MfTensor *tensor;
    Box part, whole;
    size_t part_row, whole_row; /* bytes */
    int axes; /* from which on axes are whole */
} Spread;

static void spread_row(const Spread *s, int axis, const char *from, char *to, size_t from_bytes,
                       size_t to_bytes)
{
    if (axis == s->axes) {
        memcpy(to, from, from_bytes);
        return;
    }
    int64_t n = s->part.hi[axis] - s->part.lo[axis];
    size_t step = from_bytes / (size_t)(n ? n : 1);
    size_t stride = to_bytes / (size_t)(s->whole.hi[axis] ? s->whole.hi[axis] : 1);
    if (axis + 1 == s->axes) {
        memcpy(to + (size_t)s->part.lo[axis] * stride, from, from_bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        spread_row(s, axis + 1, from + (size_t)i * step,
                   to + (size_t)(s->part.lo[axis] + i) * stride, step, stride);
}

static void open_spread(const iso_model *model, const MfTensor *tensor, const Box *part, Spread *s)
{
    *s = (Spread){.tensor = tensor, .part = *part, .axes = 1};
    whole_box(model->program.manifest, tensor, 1, &s->whole);
    s->part_row = s->whole_row = (size_t)manifest_dtype_bytes(tensor->dtype);
    for (int i = 1; i < tensor->n_axes; i++) {
        s->part_row *= (size_t)(part->hi[i] - part->lo[i]);
        s->whole_row *= (size_t)s->whole.hi[i];
        if (part->lo[i] != 0 || part->hi[i] != s->whole.hi[i])
            s->axes = i + 1;
    }
}

/* One output of a step: this rank's rows of it, and where they lie. */
typedef struct Asked {
    const iso_value *value;
    Spread spread;
    Box box;
    const char *data; /* as the ops left it */
    size_t at;        /* in the model's memory for outputs, if they are all there */
    bool here;
} Asked;

static iso_status open_asked(const iso_model *model, const Pass *pass, int output, bool tail,
                             Asked *asked)
{
    int slot = model->program.outputs[output];
    const MfTensor *tensor;
    iso_status status = model_slot_box(model, slot, tail ? pass->part : pass->run_rows, &tensor,
                                       &asked->box);
    if (status)
        return status;
    open_spread(model, tensor, &asked->box, &asked->spread);
    asked->data = model_slot_data(model, pass, slot, tail);
    return ISO_OK;
}

/* Rows [first, first + n) of the rank's, which lie at `from`, to the caller. */
static void give_rows(const iso_model *model, const Pass *pass, const Asked *asked, bool tail,
                      int64_t first, int64_t n, const char *from)
{
    const Spread *s = &asked->spread;
    int64_t all = tail ? pass->part : pass->wanted;
    for (int64_t i = 0; i < all; i++) {
        int64_t at = (tail ? i : model->batch.runs_at[pass_wanted(pass, i)]) - asked->box.lo[0];
        int64_t to = (tail ? pass->first : 0) + i;
        if (at >= first && at < first + n && to < pass->wanted)
            spread_row(s, 1, from + (size_t)(at - first) * s->part_row,
                       (char *)asked->value->data + (size_t)to * s->whole_row, s->part_row,
                       s->whole_row);
    }
}

static int64_t asked_rows(const Asked *asked)
{
    return asked->box.hi[0] - asked->box.lo[0];
}

/* What is more than the memory for outputs goes through it some rows at a time. */
static iso_status fetch_large(iso_model *model, const Pass *pass, const Asked *asked, bool tail)
{
    size_t row = asked->spread.part_row;
    int64_t rows = asked_rows(asked), most = (int64_t)(model->out_bytes / row);
    iso_status status = ISO_OK;
    for (int64_t first = 0; first < rows && !status; first += most) {
        int64_t n = rows - first < most ? rows - first : most;
        status = device_copy(&model->device, model->out, asked->data + (size_t)first * row,
                             (size_t)n * row);
        if (!status)
            status = device_sync(&model->device);
        if (!status)
            give_rows(model, pass, asked, tail, first, n, model->out);
    }
    return status;
}

/* Behind what the stream has to do, as far as there is room. */
static iso_status ask_for(iso_model *model, Asked *asked, size_t *used)
{
    size_t bytes = (size_t)asked_rows(asked) * asked->spread.part_row;
    asked->at = *used;
    asked->here = bytes <= model->out_bytes && *used <= model->out_bytes - bytes;
    if (!asked->here)
        return ISO_OK;
    *used += (size_t)round_up((int64_t)bytes, ALIGNED);
    return device_copy(&model->device, model->out + asked->at, asked->data, bytes);
}

static iso_status finish(iso_model *model)
{
    iso_status status = device_sync(&model->device);
    return status || !model->group ? status : iso_group_status(model->group);
}

iso_status outputs_open(iso_model *model)
{
    const MfModel *m = model->program.model;
    void *memory = NULL;
    model->out_bytes = model->device.driver ? ROOM_BYTES : CPU_ROOM_BYTES;
    for (int i = 0; i < m->n_outputs; i++) {
        size_t row = batch_row_bytes(model, m->outputs[i].value);
        model->out_bytes = row > model->out_bytes ? row : model->out_bytes;
    }
    iso_status status = device_host_new(&model->device, model->out_bytes, &memory);
    model->out = memory;
    return status;
}

void outputs_close(iso_model *model)
{
    device_host_free(&model->device, model->out);
}

iso_status outputs_read(iso_model *model, const Pass *pass, bool tail)
{
    const Program *p = &model->program;
    const iso_step *step = pass->step;
    Asked *asked = calloc((size_t)step->n_outputs + 1, sizeof *asked);
    size_t used = 0;
    int n = 0;
    iso_status status =
        asked ? ISO_OK : iso_fail(ISO_OUT_OF_MEMORY, "no memory to read outputs");
    /* A copy that waits for ops holds up what is queued behind it, and where ranks share a GPU that
     * may be a copy of the rank that they wait for. */
    if (!status && model->shares_gpu)
        status = device_sync(&model->device);
    for (int i = 0; i < step->n_outputs && !status; i++) {
        int output = model_output(p->model, step->outputs[i].name);
        if (tail != (p->slots[p->outputs[output]].first >= p->tail))
            continue;
        asked[n].value = &step->outputs[i];
        status = open_asked(model, pass, output, tail, &asked[n]);
        if (!status)
            status = ask_for(model, &asked[n++], &used);
    }
    if (!status)
        status = finish(model);
    for (int i = 0; i < n && !status; i++)
        if (asked[i].here)
            give_rows(model, pass, &asked[i], tail, 0, asked_rows(&asked[i]),
                      model->out + asked[i].at);
    for (int i = 0; i < n && !status; i++)
        if (!asked[i].here)
            status = fetch_large(model, pass, &asked[i], tail);
    free(asked);
    return status;
}
