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

/* ---- slots ----
 * Where ranks share out what a token's slots stand at, a rank's part has all slots and its own
 * values in some. Elements are filled with bits that no op gives before the call; slots that have
 * nothing else afterwards are not here. */

enum { UNWRITTEN = 0xFF }; /* 0xFFFF and 0xFFFFFFFF are NaNs, and not the one that ops give */

static bool is_slots_of(const MfTensor *tensor, int axis, int atom)
{
    return tensor->axes[axis].n == 1 && tensor->axes[axis].atom[0] == atom;
}

/* Whether the op is told where that kind of slot stands. */
static bool knows_places(const MfOp *op, int atom)
{
    for (int i = 0; i < op->n_params; i++)
        for (int a = 1; op->tensors[i].dtype == ISO_I32 && a < op->tensors[i].n_axes; a++)
            if (is_slots_of(&op->tensors[i], a, atom))
                return true;
    return false;
}

/* The axis of a result that is slots of which this rank has some; 0: none is. */
static int shared_slots(const iso_model *model, int call, int result)
{
    const iso_op *op = model->ops[model->program.calls[call].statement].op;
    const Manifest *manifest = model->program.manifest;
    int index = op->op->n_params + result;
    const MfTensor *tensor = &op->op->tensors[index];
    const MfPart *part = op->at->held[index] ? &op->at->held[index][op->rank]
                                             : &op->at->parts[op->rank];
    for (int a = 1; a < tensor->n_axes && tensor->dtype != ISO_I32; a++) {
        int atom = tensor->axes[a].atom[0], of = manifest->atoms[atom].slots_of;
        if (of >= 0 && is_slots_of(tensor, a, atom) && knows_places(op->op, atom) &&
            part->hi[of] - part->lo[of] < manifest->atoms[of].size)
            return a;
    }
    return 0;
}

iso_status model_trace_ready(iso_model *model, const Pass *pass, int call)
{
    int statement = model->program.calls[call].statement;
    iso_status status = ISO_OK;
    for (int i = 0; i < model->program.model->statements[statement].n_results && !status; i++) {
        Given given;
        if (!shared_slots(model, call, i))
            continue;
        status = given_by(model, pass, call, i, &given);
        if (!status)
            status = device_fill(&model->device, given.data, UNWRITTEN,
                                 (size_t)(given.box.hi[0] - given.box.lo[0]) * given.row_bytes);
    }
    return status;
}

/* Rows as one slot has them: runs of `bytes`, `stride` apart, `n` in a row. */
typedef struct SlotRuns {
    size_t first, bytes, stride;
    int n;
} SlotRuns;

static SlotRuns runs_of(const TraceRecord *record, int axis, int64_t slot)
{
    SlotRuns runs = {.bytes = (size_t)record->element_bytes, .n = 1};
    for (int a = axis + 1; a < record->n_axes; a++)
        runs.bytes *= (size_t)(record->hi[a] - record->lo[a]);
    for (int a = 0; a < axis; a++)
        runs.n *= (int)(record->hi[a] - record->lo[a]);
    runs.stride = runs.bytes * (size_t)(record->hi[axis] - record->lo[axis]);
    runs.first = runs.bytes * (size_t)(slot - record->lo[axis]);
    return runs;
}

/* The slot of a row, put together; false if nothing wrote it. */
static bool take_slot(const SlotRuns *runs, const char *row, char *to)
{
    bool written = false;
    for (int i = 0; i < runs->n; i++)
        memcpy(to + (size_t)i * runs->bytes, row + runs->first + (size_t)i * runs->stride,
               runs->bytes);
    for (size_t i = 0; i < (size_t)runs->n * runs->bytes; i++)
        written |= (unsigned char)to[i] != UNWRITTEN;
    return written;
}

/* ---- records ---- */

static void write_record(FILE *file, const TraceRecord *record, const TraceRow *rows,
                         const char *data)
{
    size_t bytes = (size_t)(record->rows * record->row_bytes);
    fwrite(record, sizeof *record, 1, file);
    fwrite(rows, sizeof *rows, (size_t)record->rows, file);
    fwrite(data, 1, bytes, file);
    fwrite(&(int64_t){0}, 1, (8 - bytes % 8) % 8, file);
}

/* A record for each slot, of the rows that have it here; `scratch` has room for all. */
static void write_slots(FILE *file, const TraceRecord *all, int axis, const TraceRow *rows,
                        const char *data, TraceRow *here, char *scratch)
{
    for (int64_t slot = all->lo[axis]; slot < all->hi[axis]; slot++) {
        TraceRecord record = *all;
        SlotRuns runs = runs_of(all, axis, slot);
        record.lo[axis] = slot;
        record.hi[axis] = slot + 1;
        record.row_bytes = (int64_t)((size_t)runs.n * runs.bytes);
        record.rows = 0;
        for (int64_t i = 0; i < all->rows; i++)
            if (take_slot(&runs, data + i * all->row_bytes,
                          scratch + record.rows * record.row_bytes))
                here[record.rows++] = rows[i];
        write_record(file, &record, here, scratch);
    }
}

static iso_status write_result(iso_model *model, const Pass *pass, int call, int result)
{
    Given given;
    TraceRecord record;
    int axis = shared_slots(model, call, result);
    iso_status status = given_by(model, pass, call, result, &given);
    if (status)
        return status;
    describe(model, call, result, &given, &record);
    size_t n = (size_t)record.rows, bytes = n * given.row_bytes;
    char *data = malloc(2 * bytes + 1);
    TraceRow *rows = malloc((2 * n + 1) * sizeof *rows);
    FILE *file = model->trace->file;
    status = data && rows ? device_read(&model->device, data, given.data, bytes)
                          : iso_fail(ISO_OUT_OF_MEMORY, "no memory for a trace");
    for (size_t i = 0; i < n && !status; i++)
        rows[i] = row_of(model, pass, call >= model->program.tail,
                         given.box.lo[0] + (int64_t)i);
    if (!status && axis)
        write_slots(file, &record, axis - 1, rows, data, rows + n, data + bytes);
    else if (!status)
        write_record(file, &record, rows, data);
    free(data);
    free(rows);
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

/* Not where a traced slot is another rank's. */
static iso_status flip(iso_model *model, char *element, int bytes)
{
    static const unsigned char unwritten[4] = {UNWRITTEN, UNWRITTEN, UNWRITTEN, UNWRITTEN};
    unsigned char value[4] = {0};
    iso_status status = device_sync(&model->device);
    if (!status)
        status = device_read(&model->device, value, element, (size_t)bytes);
    if (status || !memcmp(value, unwritten, (size_t)bytes))
        return status;
    value[0] ^= 1;
    return device_write(&model->device, element, value, 1);
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
                                     (size_t)element * (size_t)bytes, bytes);
    }
    return status;
}
