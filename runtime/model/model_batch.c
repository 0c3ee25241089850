/* A step's arrays: what each row is, where its keys are, which rows are wanted. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

/* ---- where they lie ---- */

static size_t take(size_t *used, size_t bytes)
{
    size_t at = *used;
    *used += (size_t)round_up((int64_t)bytes, 256);
    return at;
}

size_t batch_row_bytes(const iso_model *model, int value)
{
    const Program *p = &model->program;
    const MfTensor *tensor = &p->model->values[value].tensor;
    size_t bytes = (size_t)manifest_dtype_bytes(tensor->dtype);
    Box box;
    whole_box(p->manifest, tensor, 1, &box);
    for (int i = 1; i < tensor->n_axes; i++)
        bytes *= (size_t)box.hi[i];
    return bytes;
}

static size_t input_row(const iso_model *model, int input)
{
    return batch_row_bytes(model, model->program.model->inputs[input]);
}

static void lay_out(iso_model *model)
{
    const iso_model_config *config = &model->config;
    Batch *b = &model->batch;
    size_t used = 0, rows = (size_t)config->max_rows * sizeof(int32_t);
    size_t sequences = ((size_t)config->max_sequences + 1) * sizeof(int32_t);
    for (int pass = HEAD; pass < PASSES; pass++) {
        b->positions[pass] = take(&used, rows);
        b->sequences[pass] = take(&used, rows);
        b->live[pass] = take(&used, MAX_SHARES * sizeof(int32_t));
        for (int i = 0; i < model->program.model->n_inputs; i++) {
            b->input_bytes[i] = input_row(model, i);
            b->inputs[pass][i] = take(&used, (size_t)config->max_rows * b->input_bytes[i]);
        }
    }
    b->places = take(&used, 2 * rows);
    b->wanted = take(&used, rows);
    b->order = take(&used, rows);
    b->lengths = take(&used, sequences);
    b->starts = take(&used, sequences);
    b->turns = take(&used, sequences);
    b->table = b->fixed = used;
    b->table_stride =
        config->pages ? (config->max_position + config->page - 1) / config->page : 0;
    b->bytes = used + (size_t)config->max_sequences * (size_t)b->table_stride * sizeof(int32_t);
}

iso_status batch_open(iso_model *model)
{
    Batch *b = &model->batch;
    void *memory;
    lay_out(model);
    b->runs_at = malloc((size_t)model->config.max_rows * sizeof *b->runs_at);
    if (!b->runs_at)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a step's rows");
    iso_status status = device_host_new(&model->device, b->bytes, &memory);
    b->host = b->device = memory;
    if (status || !model->device.driver)
        return status;
    status = device_new(&model->device, b->bytes, &memory);
    b->device = memory;
    return status;
}

void batch_close(iso_model *model)
{
    Batch *b = &model->batch;
    if (b->device != b->host)
        device_free(&model->device, b->device);
    device_host_free(&model->device, b->host);
    free(b->runs_at);
}

/* ---- the order in which rows run ---- */

static int32_t *array(const Batch *b, size_t at)
{
    return (int32_t *)(b->host + at);
}

static int64_t *places(const Batch *b)
{
    return (int64_t *)(b->host + b->places);
}

static int64_t put_rows(const Batch *b, int64_t from, int64_t end, int64_t at)
{
    for (int64_t row = from; row < end; row++) {
        array(b, b->order)[at] = (int32_t)row;
        b->runs_at[row] = (int32_t)at++;
    }
    return at;
}

/* Each sequence is cut into twice as many pieces as there are ranks, and rank r begins with pieces
 * r and 2 n - 1 - r, counted from its start: causal rows then see equally many keys on every rank
 * (the zigzag of context parallelism). */
static void deal_rows(const iso_model *model, const Pass *pass)
{
    const Batch *b = &model->batch;
    int64_t at = 0, pieces = 2 * model->deal;
    for (int64_t rank = 0; rank < model->deal; rank++)
        for (int64_t i = 0, first = 0; i < pass->step->n_sequences; i++) {
            int64_t rows = pass->step->sequences[i].rows, back = pieces - 1 - rank;
            at = put_rows(b, first + rows * rank / pieces, first + rows * (rank + 1) / pieces, at);
            at = put_rows(b, first + rows * back / pieces, first + rows * (back + 1) / pieces, at);
            first += rows;
        }
}

/* ---- what they say ---- */

/* Where a row goes in this rank's cache; -1: to no place of it. */
static int64_t place_of(const iso_model *model, const iso_sequence *s, int64_t at)
{
    int page = model->config.page, pieces = model->keys.pieces;
    if (!s->pages ||
        (pieces > 1 && model_key_piece(model, s->pages[0], at) != model->keys.piece))
        return -1;
    return (int64_t)s->pages[at / page] / pieces * page + at % page;
}

static void fill_table(const iso_model *model, const iso_sequence *s, int32_t *row)
{
    int pieces = model->keys.pieces, page = model->config.page;
    int64_t n = (s->position + s->rows + page - 1) / page;
    if (pieces == 1)
        memcpy(row, s->pages, (size_t)n * sizeof *row);
    for (int64_t i = 0; pieces > 1 && i < n; i++)
        row[i] = s->pages[i] / pieces;
}

static void fill_sequence(iso_model *model, const Pass *pass, int index, int64_t row)
{
    const Batch *b = &model->batch;
    const iso_sequence *s = &pass->step->sequences[index];
    array(b, b->turns)[index] = s->pages ? s->pages[0] % model->keys.pieces : 0;
    array(b, b->lengths)[index] = (int32_t)(s->position + s->rows);
    array(b, b->starts)[index] = (int32_t)row;
    array(b, b->starts)[index + 1] = (int32_t)(row + s->rows);
    for (int i = 0; i < s->rows; i++) {
        int64_t at = s->position + i;
        int run = b->runs_at[row + i];
        array(b, b->positions[HEAD])[run] = (int32_t)at;
        array(b, b->sequences[HEAD])[run] = index;
        places(b)[run] = place_of(model, s, at);
    }
    if (s->pages)
        fill_table(model, s, array(b, b->table) + index * b->table_stride);
}

/* Rows that fill a bucket are of no sequence and are kept nowhere; their values are nobody's. */
static void fill_padding(const iso_model *model, const Pass *pass)
{
    const Batch *b = &model->batch;
    for (int64_t row = pass->rows; row < pass->run_rows; row++) {
        array(b, b->positions[HEAD])[row] = 0;
        array(b, b->sequences[HEAD])[row] = -1;
        places(b)[row] = -1;
        for (int i = 0; i < model->program.model->n_inputs; i++)
            memset(b->host + b->inputs[HEAD][i] + (size_t)row * b->input_bytes[i], 0xff,
                   b->input_bytes[i]);
    }
}

static void fill_inputs(const iso_model *model, const Pass *pass)
{
    const Batch *b = &model->batch;
    for (int i = 0; i < model->program.model->n_inputs; i++)
        for (int64_t row = 0; pass->inputs[i] && row < pass->rows; row++)
            memcpy(b->host + b->inputs[HEAD][i] + (size_t)b->runs_at[row] * b->input_bytes[i],
                   (const char *)pass->inputs[i]->data + (size_t)row * b->input_bytes[i],
                   b->input_bytes[i]);
}

/* Wanted rows, in the order asked; those that fill a bucket come after them. */
static void fill_wanted(const iso_model *model, const Pass *pass)
{
    const Batch *b = &model->batch;
    int64_t n = pass->whole ? pass->run_rows : pass->wanted;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = pass->whole ? i : b->runs_at[pass_wanted(pass, i)];
        array(b, b->wanted)[i] = (int32_t)row;
        array(b, b->positions[TAIL])[i] = array(b, b->positions[HEAD])[row];
        array(b, b->sequences[TAIL])[i] = array(b, b->sequences[HEAD])[row];
        for (int k = 0; k < model->program.model->n_inputs; k++)
            memcpy(b->host + b->inputs[TAIL][k] + (size_t)i * b->input_bytes[k],
                   b->host + b->inputs[HEAD][k] + (size_t)row * b->input_bytes[k],
                   b->input_bytes[k]);
    }
}

/* Both passes of a bucket have the same rows. */
static void fill_live(const iso_model *model, const Pass *pass)
{
    const Batch *b = &model->batch;
    for (int i = 0; i < model->n_shares; i++) {
        const RowShare *share = &model->shares[i];
        int64_t lo = pass->run_rows * share->index / share->count;
        int64_t n = pass->run_rows * (share->index + 1) / share->count - lo;
        int64_t live = pass->rows < lo ? 0 : pass->rows - lo < n ? pass->rows - lo : n;
        array(b, b->live[HEAD])[i] = array(b, b->live[TAIL])[i] = (int32_t)live;
    }
}

iso_status batch_fill(iso_model *model, const Pass *pass)
{
    Batch *b = &model->batch;
    int64_t row = 0;
    if (pass->dealt)
        deal_rows(model, pass);
    else
        put_rows(b, 0, pass->rows, 0);
    for (int i = 0; i < pass->step->n_sequences; i++) {
        fill_sequence(model, pass, i, row);
        row += pass->step->sequences[i].rows;
    }
    fill_inputs(model, pass);
    fill_padding(model, pass);
    fill_wanted(model, pass);
    fill_live(model, pass);
    size_t used = b->fixed + (pass->paged ? (size_t)pass->step->n_sequences *
                                                (size_t)b->table_stride * sizeof(int32_t)
                                          : 0);
    return device_copy(&model->device, b->device, b->host, used);
}
