/* Traces of steps, and faults put into them. */
#include "model_run.h"
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Trace {
    FILE *file;
    char path[4096];
    char *ops; /* NULL: all */
};

/* ---- opening ---- */

static iso_status open_file(const iso_model *model, const char *folder, Trace *trace)
{
    int n = snprintf(trace->path, sizeof trace->path, "%s/rank-%d.trace", folder, model->rank);
    if (n < 0 || (size_t)n >= sizeof trace->path)
        return iso_fail(ISO_FILE, "the folder's path is too long: %s", folder);
    trace->file = fopen(trace->path, "wb");
    if (!trace->file)
        return iso_fail(ISO_FILE, "%s: %s", trace->path, strerror(errno));
    fwrite(TRACE_MAGIC, 1, strlen(TRACE_MAGIC), trace->file);
    return ISO_OK;
}

static iso_status close_trace(iso_model *model)
{
    Trace *trace = model->trace;
    iso_status status = ISO_OK;
    model->trace = NULL;
    if (!trace)
        return ISO_OK;
    bool failed = ferror(trace->file) != 0;
    if (fclose(trace->file) || failed)
        status = iso_fail(ISO_FILE, "%s: writing failed", trace->path);
    free(trace->ops);
    free(trace);
    return status;
}

void model_trace_close(iso_model *model)
{
    close_trace(model);
}

/* Whether a list "qkv,down" has the name. */
static bool has_name(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (!strncmp(at, name, n) && (at[n] == ',' || at[n] == 0))
            return true;
    return false;
}

static iso_status check_ops(const iso_model *model, const char *ops)
{
    const Program *p = &model->program;
    for (const char *at = ops; at && *at; at += strcspn(at, ","), at += *at == ',') {
        bool known = false;
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        for (int i = 0; i < p->model->n_statements; i++)
            known |= !strcmp(p->manifest->ops[p->model->statements[i].op].name, name);
        if (!known)
            return iso_fail(ISO_UNKNOWN_OP, "model %s runs no op %s", p->model->name, name);
    }
    return ISO_OK;
}

iso_status iso_model_trace(iso_model *model, const char *folder, const char *ops)
{
    if (!model)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_trace: the model is NULL");
    iso_status status = close_trace(model);
    if (status || !folder)
        return status;
    status = check_ops(model, ops);
    if (status)
        return status;
    Trace *trace = calloc(1, sizeof *trace);
    if (!trace || (ops && !(trace->ops = strdup(ops)))) {
        free(trace);
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a trace");
    }
    status = open_file(model, folder, trace);
    if (!status) {
        model->trace = trace;
        return ISO_OK;
    }
    free(trace->ops);
    free(trace);
    return status;
}

iso_status iso_model_fault(iso_model *model, const iso_fault *fault)
{
    if (!model || (fault && fault->op && strlen(fault->op) >= sizeof model->fault_op))
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_fault: the model is NULL, or a name is "
                                              "too long");
    model->fault = fault ? *fault : (iso_fault){0};
    if (model->fault.op)
        model->fault.op = strcpy(model->fault_op, fault->op);
    return ISO_OK;
}

/* ---- rows ---- */

/* A value as a call has just given it: this rank's rows [lo, hi) of those of its pass. */
typedef struct Given {
    const MfTensor *tensor;
    Box box;
    char *data;
    size_t row_bytes;
} Given;

static iso_status given_by(const iso_model *model, const Pass *pass, int call, int result,
                           Given *given)
{
    bool tail = call >= model->program.tail;
    int slot = model->program.calls[call].results[result];
    given->data = model_slot_data(model, pass, slot, tail);
    given->row_bytes = model->program.slots[slot].row_bytes;
    return model_slot_box(model, slot, tail ? pass->part : pass->run_rows, &given->tensor,
                          &given->box);
}

/* Which row of which sequence: the pass's row, or the wanted row where the tail is. */
static TraceRow row_of(const iso_model *model, const Pass *pass, bool tail, int64_t row)
{
    const Batch *b = &model->batch;
    int side = tail ? TAIL : HEAD;
    int64_t at = (tail ? pass->first : 0) + row;
    int sequence = ((const int32_t *)(b->host + b->sequences[side]))[at];
    int position = ((const int32_t *)(b->host + b->positions[side]))[at];
    return (TraceRow){pass->step->sequences[sequence].id, position};
}

/* ---- writing ---- */

static void describe(const iso_model *model, int call, int result, const Given *given,
                     TraceRecord *record)
{
    const ModelCall *c = &model->program.calls[call];
    Box whole;
    memset(record, 0, sizeof *record);
    snprintf(record->op, sizeof record->op, "%s", model->ops[c->statement].op->op->name);
    snprintf(record->value, sizeof record->value, "%s", given->tensor->name);
    record->order = call;
    record->result = result;
    record->turn = c->turn;
    record->element_bytes = manifest_dtype_bytes(given->tensor->dtype);
    record->n_axes = given->tensor->n_axes - 1;
    whole_box(model->program.manifest, given->tensor, 1, &whole);
    for (int i = 0; i < record->n_axes; i++) {
        record->whole[i] = whole.hi[i + 1];
        record->lo[i] = given->box.lo[i + 1];
        record->hi[i] = given->box.hi[i + 1];
    }
    record->rows = given->box.hi[0] - given->box.lo[0];
    record->row_bytes = (int64_t)given->row_bytes;
}

static iso_status write_result(iso_model *model, const Pass *pass, int call, int result)
{
    Given given;
    TraceRecord record;
    iso_status status = given_by(model, pass, call, result, &given);
    if (status)
        return status;
    describe(model, call, result, &given, &record);
    size_t bytes = (size_t)record.rows * given.row_bytes;
    char *data = malloc(bytes + 1);
    if (!data)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a trace");
    FILE *file = model->trace->file;
    status = device_read(&model->device, data, given.data, bytes);
    fwrite(&record, sizeof record, 1, file);
    for (int64_t i = 0; i < record.rows; i++) {
        TraceRow row =
            row_of(model, pass, call >= model->program.tail, given.box.lo[0] + i);
        fwrite(&row, sizeof row, 1, file);
    }
    fwrite(data, 1, bytes, file);
    fwrite(&(int64_t){0}, 1, (8 - bytes % 8) % 8, file);
    free(data);
    if (!status && ferror(file))
        status = iso_fail(ISO_FILE, "%s: writing failed", model->trace->path);
    return status;
}

iso_status model_trace_call(iso_model *model, const Pass *pass, int call)
{
    int statement = model->program.calls[call].statement;
    int results = model->program.model->statements[statement].n_results;
    if (model->trace->ops && !has_name(model->trace->ops, model->ops[statement].op->op->name))
        return ISO_OK;
    iso_status status = device_sync(&model->device);
    for (int i = 0; i < results && !status; i++)
        status = write_result(model, pass, call, i);
    return status;
}

/* ---- faults ---- */

/* Where the element lies in this rank's part of a row; -1: not here. */
static int64_t element_at(const iso_model *model, const Given *given, int64_t index)
{
    Box whole;
    int64_t at = 0, stride = 1;
    whole_box(model->program.manifest, given->tensor, 1, &whole);
    for (int i = given->tensor->n_axes - 1; i >= 1; i--) {
        int64_t here = index % whole.hi[i];
        index /= whole.hi[i];
        if (here < given->box.lo[i] || here >= given->box.hi[i])
            return -1;
        at += (here - given->box.lo[i]) * stride;
        stride *= given->box.hi[i] - given->box.lo[i];
    }
    return index ? -1 : at;
}

static iso_status flip(iso_model *model, char *element)
{
    unsigned char low = 0;
    iso_status status = device_sync(&model->device);
    if (!status)
        status = device_read(&model->device, &low, element, 1);
    low ^= 1;
    return status ? status : device_write(&model->device, element, &low, 1);
}

iso_status model_fault_call(iso_model *model, const Pass *pass, int call)
{
    const ModelCall *c = &model->program.calls[call];
    const iso_fault *fault = &model->fault;
    Given given;
    if (strcmp(model->ops[c->statement].op->op->name, fault->op) || c->turn != fault->turn ||
        fault->result < 0 ||
        fault->result >= model->program.model->statements[c->statement].n_results)
        return ISO_OK;
    iso_status status = given_by(model, pass, call, fault->result, &given);
    int64_t element = status ? -1 : element_at(model, &given, fault->index);
    int bytes = manifest_dtype_bytes(given.tensor->dtype);
    for (int64_t row = given.box.lo[0]; element >= 0 && row < given.box.hi[0] && !status; row++) {
        TraceRow at = row_of(model, pass, call >= model->program.tail, row);
        if (at.sequence == fault->sequence && at.position == fault->position)
            status = flip(model, given.data +
                                     (size_t)(row - given.box.lo[0]) * given.row_bytes +
                                     (size_t)element * (size_t)bytes);
    }
    return status;
}
