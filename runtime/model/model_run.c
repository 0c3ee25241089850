/* Runs a model's calls: what each tensor is in this step, the rows that go into caches, the rows
 * that go on into the tail. */
#include "model_run.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_TENSORS = 128, DEEP = 8 };

/* ---- where slots are ---- */

static bool rows_are_cut(const iso_model *model, int slot)
{
    const MfTensor *tensor;
    Box box;
    int64_t rows = 4 * (int64_t)model->ranks;
    return model_slot_box(model, slot, rows, &tensor, &box) || box.hi[0] - box.lo[0] != rows;
}

/* Wanted rows that lie as the tail takes them need no copy of their own. */
static bool in_place(const iso_model *model, const Pass *pass, int slot)
{
    return pass->whole && (pass->part == pass->run_rows || !rows_are_cut(model, slot));
}

char *model_slot_data(const iso_model *model, const Pass *pass, int slot, bool tail)
{
    const Slot *s = &model->program.slots[slot];
    if (!tail || s->first >= model->program.tail)
        return model->values + s->offset;
    if (in_place(model, pass, slot))
        return model->values + s->offset + (size_t)pass->first * s->row_bytes;
    return model->values + s->gathered;
}

static char *input_data(const iso_model *model, const Pass *pass, const Slot *slot, bool tail,
                        int64_t lo)
{
    const Batch *b = &model->batch;
    int64_t row = (tail ? pass->first : 0) + lo;
    return b->device + b->inputs[tail][slot->from] + (size_t)row * b->input_bytes[slot->from];
}

/* Pages, or the rows of a packed pass themselves: one sequence behind the other. */
static void bind_keys(const iso_model *model, const Pass *pass, const Slot *slot,
                      iso_tensor *tensor)
{
    const Program *p = &model->program;
    int64_t row = 1;
    for (int i = 2; i < tensor->n_axes; i++)
        row *= tensor->shape[i];
    tensor->shape[0] = tensor->shape[1] = 0;
    tensor->stride[1] = row;
    tensor->stride[0] = pass->paged ? row * model->config.page : 0;
    if (pass->paged)
        tensor->data = model->caches[slot->from];
    else if (slot->brought)
        tensor->data = model->values + slot->offset;
    else
        tensor->data = model_slot_data(model, pass, p->calls[slot->first].of, false);
}

static iso_status bind_argument(const iso_model *model, const Pass *pass,
                                const CallArgument *argument, bool tail, const Box *box,
                                iso_tensor *tensor)
{
    const Slot *slot = &model->program.slots[argument->index];
    if (argument->weight) {
        *tensor = model->pieces.piece[model->program.uses[argument->index].piece].tensor;
        return ISO_OK;
    }
    switch (slot->source) {
    case SLOT_INPUT:
        tensor->data = input_data(model, pass, slot, tail, box->lo[0]);
        return ISO_OK;
    case SLOT_TABLE:
        tensor->data = model->tables[2 * slot->from + slot->result];
        tensor->shape[0] = model->config.max_position;
        return ISO_OK;
    case SLOT_CACHE:
        bind_keys(model, pass, slot, tensor);
        return ISO_OK;
    case SLOT_OP:
        tensor->data = model_slot_data(model, pass, argument->index, tail);
        return ISO_OK;
    }
    return iso_fail(ISO_INTERNAL, "a value of no source");
}

static iso_status bind_call(const iso_model *model, const Pass *pass, int index, int64_t rows,
                            iso_tensor *tensors)
{
    const Program *p = &model->program;
    const ModelCall *call = &p->calls[index];
    const MfStatement *s = &p->model->statements[call->statement];
    const iso_op *op = model->ops[call->statement].op;
    bool tail = index >= p->tail;
    iso_status status = ISO_OK;
    for (int i = 0; i < s->n_arguments + s->n_results && !status; i++) {
        Box box;
        status = held_box(op, op->rank, i, rows, &box);
        if (status)
            break;
        box_tensor(&op->op->tensors[i], &box, NULL, &tensors[i]);
        if (i < s->n_arguments)
            status = bind_argument(model, pass, &call->arguments[i], tail, &box, &tensors[i]);
        else
            tensors[i].data =
                model_slot_data(model, pass, call->results[i - s->n_arguments], tail);
    }
    return status;
}

/* ---- rows that ranks have cut between them ---- */

/* Every rank's rows of a value lie in its slot of the group. */
static iso_status share_rows(iso_model *model, const Pass *pass, int index, Box boxes[GROUP_RANKS],
                             const char *parts[GROUP_RANKS])
{
    const Slot *slot = &model->program.slots[index];
    const iso_op *op = model->ops[model->program.calls[slot->from].statement].op;
    size_t bytes[GROUP_RANKS];
    iso_status status = ISO_OK;
    for (int r = 0; r < model->ranks && !status; r++) {
        status = model_rank_box(model, r, index, pass->run_rows, &boxes[r]);
        bytes[r] = (size_t)(boxes[r].hi[0] - boxes[r].lo[0]) * slot->row_bytes;
    }
    return status ? status
                  : group_share(model->group, op, pass->run_rows, model->values + slot->offset,
                                bytes, model->device.stream, parts);
}

/* This rank takes those that it has of the wanted. */
static iso_status gather_cut(iso_model *model, const Pass *pass, int index)
{
    const Slot *slot = &model->program.slots[index];
    const MfTensor *tensor;
    const char *parts[GROUP_RANKS];
    Box to, boxes[GROUP_RANKS];
    iso_status status = model_slot_box(model, index, pass->part, &tensor, &to);
    if (!status)
        status = share_rows(model, pass, index, boxes, parts);
    for (int r = 0; r < model->ranks && !status; r++) {
        RowCopy copy = {
            .to = model->values + slot->gathered,
            .from = parts[r],
            .from_index = (const int32_t *)(model->batch.device + model->batch.wanted) +
                          pass->first + to.lo[0],
            .rows = to.hi[0] - to.lo[0],
            .first = boxes[r].lo[0],
            .count = boxes[r].hi[0] - boxes[r].lo[0],
            .row_bytes = slot->row_bytes,
        };
        if (copy.count)
            status = device_rows(&model->device, &copy);
    }
    return status;
}

/* Whether two ranks have the same part of every row. */
static bool same_columns(const MfTensor *tensor, const Box *a, const Box *b)
{
    for (int i = 1; i < tensor->n_axes; i++)
        if (a->lo[i] != b->lo[i] || a->hi[i] != b->hi[i])
            return false;
    return true;
}

/* All rows of a cache's value, in the order of the step where they are read in place, else in that
 * in which they run. Ranks that have the same rows and columns count once. */
static iso_status bring_rows(iso_model *model, const Pass *pass, const ModelCall *call)
{
    const Program *p = &model->program;
    const Slot *as = &p->slots[p->caches[call->cache].slot];
    const MfTensor *tensor;
    const char *parts[GROUP_RANKS];
    Box own, boxes[GROUP_RANKS];
    int64_t have = 0;
    iso_status status = model_slot_box(model, call->of, pass->run_rows, &tensor, &own);
    if (!status)
        status = share_rows(model, pass, call->of, boxes, parts);
    while (have < pass->run_rows && !status) {
        int r = 0;
        while (r < model->ranks && !(boxes[r].lo[0] == have && boxes[r].hi[0] > have &&
                                     same_columns(tensor, &own, &boxes[r])))
            r++;
        if (r == model->ranks)
            return iso_fail(ISO_UNSUPPORTED, "layout %s: no rank has row %" PRId64 " of %s as rank "
                            "%d has its own", model->layout, have, tensor->name, model->rank);
        bool scattered = pass->dealt && !pass->paged;
        RowCopy copy = {
            .to = model->values + as->offset +
                  (scattered ? 0 : (size_t)have * as->row_bytes),
            .to_index = scattered ? (const int32_t *)(model->batch.device + model->batch.order) +
                                        have
                                  : NULL,
            .from = parts[r],
            .rows = boxes[r].hi[0] - have,
            .row_bytes = as->row_bytes,
        };
        have = boxes[r].hi[0];
        status = device_rows(&model->device, &copy);
    }
    return status;
}

/* ---- one call ---- */

static bool leads_with_rows(const iso_op *op, int tensor)
{
    const MfTensor *declared = &op->op->tensors[tensor];
    return declared->n_axes > 0 && axis_is_free(op->module->manifest, &declared->axes[0]);
}

/* An op whose ranks share keys, some rows at a time where the roots of all have no room. Rows of no
 * sequence are then run too. */
static iso_status run_shared(iso_model *model, const StatementOp *at, iso_tensor *tensors, int n,
                             const iso_run *all)
{
    int64_t most;
    iso_status status = model_rows_at_once(model, at->op, all->rows, all->keys->most_keys,
                                           model->group->bytes, &most);
    for (int64_t first = 0; first < all->rows && !status; first += most) {
        iso_run run = *all;
        run.rows = all->rows - first < most ? all->rows - first : most;
        if (run.rows < all->rows)
            run.rows_device = NULL;
        run.positions += first;
        run.sequences += first;
        iso_tensor own[MAX_TENSORS];
        for (int i = 0; i < n; i++) {
            own[i] = tensors[i];
            if (!leads_with_rows(at->op, i) || most == all->rows)
                continue;
            own[i].data = (char *)own[i].data + (size_t)(first * own[i].stride[0]) *
                                                    (size_t)manifest_dtype_bytes(own[i].dtype);
            own[i].shape[0] = run.rows;
        }
        status = group_call(model->group, at->op, own, n, &run, at->placed);
    }
    return status;
}

/* Weights lie in memory since the model was loaded: whether nothing else of a call has no rows. */
static bool is_settled(const Manifest *manifest, const ModelCall *call, const MfOp *op)
{
    for (int i = 0; i < op->n_params; i++) {
        const MfTensor *tensor = &op->tensors[i];
        bool rows = call->arguments[i].weight;
        for (int a = 0; a < tensor->n_axes; a++)
            rows = rows || axis_is_free(manifest, &tensor->axes[a]);
        if (!rows)
            return false;
    }
    return true;
}

/* What a call passes to its op. */
typedef struct Bound {
    const StatementOp *at;
    int n;
    iso_tensor tensors[MAX_TENSORS];
    iso_keys keys;
    iso_run run;
} Bound;

static iso_status bind_run(const iso_model *model, const Pass *pass, int index, Bound *bound)
{
    const ModelCall *call = &model->program.calls[index];
    const StatementOp *at = bound->at = &model->ops[call->statement];
    const Batch *b = &model->batch;
    const RowShare *share = &model->shares[at->share];
    const int side = index >= model->program.tail ? TAIL : HEAD;
    int64_t rows = side == TAIL ? pass->part : pass->run_rows;
    int64_t lo = rows * share->index / share->count + (side == TAIL ? pass->first : 0);
    bound->n = at->op->op->n_params + at->op->op->n_results;
    bound->keys = (iso_keys){
        .lengths = (const int32_t *)(b->device + b->lengths),
        .starts = pass->paged ? NULL : (const int32_t *)(b->device + b->starts),
        .block_table = pass->paged ? (const int32_t *)(b->device + b->table) : NULL,
        .block_table_stride = b->table_stride,
        .page = model->config.page,
        .most_rows = pass->most_rows,
        .most_keys = pass->most_keys,
        .turns = (const int32_t *)(b->device + b->turns),
    };
    bound->run = (iso_run){
        .rows = rows,
        .settled = is_settled(model->program.manifest, call, at->op->op),
        .rows_device =
            pass->live ? (const int32_t *)(b->device + b->live[side]) + at->share : NULL,
        .positions = (const int32_t *)(b->device + b->positions[side]) + lo,
        .sequences = (const int32_t *)(b->device + b->sequences[side]) + lo,
        .keys = at->keys ? &bound->keys : NULL,
        .workspace = model->workspace,
        .workspace_bytes = model->workspace_bytes,
        .stream = model->device.stream,
    };
    if (bound->n > MAX_TENSORS)
        return iso_fail(ISO_UNSUPPORTED, "op %s has %d tensors", at->op->op->name, bound->n);
    return bind_call(model, pass, index, rows, bound->tensors);
}

static iso_status run_op(iso_model *model, const Pass *pass, int index)
{
    Bound b;
    iso_status status = bind_run(model, pass, index, &b);
    if (status)
        return status;
    if (op_shares_keys(b.at->op))
        return run_shared(model, b.at, b.tensors, b.n, &b.run);
    return model->ranks > 1 ? group_call(model->group, b.at->op, b.tensors, b.n, &b.run,
                                         b.at->placed)
                            : iso_op_run(b.at->op, b.tensors, b.n, &b.run);
}

/* ---- two calls in one launch ---- */

static bool apart(const iso_tensor *a, const iso_tensor *b)
{
    uintptr_t lo[2], hi[2];
    for (int i = 0; i < 2; i++) {
        const iso_tensor *t = i ? b : a;
        int64_t last = 0;
        for (int k = 0; k < t->n_axes; k++)
            last += t->shape[k] > 0 ? (t->shape[k] - 1) * t->stride[k] : 0;
        lo[i] = (uintptr_t)t->data;
        hi[i] = lo[i] + (size_t)(last + 1) * (size_t)manifest_dtype_bytes(t->dtype);
    }
    return hi[0] <= lo[1] || hi[1] <= lo[0];
}

/* Neither writes what the other reads or writes. */
static bool independent(const Bound *a, const Bound *b)
{
    int writes_a = a->at->op->op->n_params, writes_b = b->at->op->op->n_params;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if ((i >= writes_a || k >= writes_b) && !apart(&a->tensors[i], &b->tensors[k]))
                return false;
    return true;
}

/* What a call gives, the next one alone takes, as the rows that it gathers by the same indices. */
static bool chains(const iso_model *model, int index, int64_t rows)
{
    const Program *p = &model->program;
    const ModelCall *call = &p->calls[index], *next = call + 1;
    const iso_op *a = model->ops[call->statement].op, *b = model->ops[next->statement].op;
    int from[2], chosen[2];
    if (!op_chains(a, b, rows) || !op_gathers(a, rows, &from[0], &chosen[0]) ||
        !op_gathers(b, rows, &from[1], &chosen[1]))
        return false;
    const Slot *slot = &p->slots[call->results[0]];
    for (int i = 0; i < p->model->n_outputs; i++)
        if (p->outputs[i] == call->results[0])
            return false;
    return slot->first == index && slot->last == index + 1 && !slot->crosses &&
           !next->arguments[from[1]].weight &&
           next->arguments[from[1]].index == call->results[0] &&
           !call->arguments[chosen[0]].weight &&
           call->arguments[chosen[0]].index == next->arguments[chosen[1]].index;
}

/* Runs a call and the one after it, if one launch can or the order of rows is theirs alone; *paired
 * says so. */
static iso_status run_pair(iso_model *model, const Pass *pass, int index, bool *paired)
{
    const Program *p = &model->program;
    Bound b[2];
    *paired = false;
    if (index + 1 == p->tail || p->calls[index + 1].cache >= 0 || !model->needed[index + 1])
        return ISO_OK;
    int64_t rows = index >= p->tail ? pass->part : pass->run_rows;
    bool chained = chains(model, index, rows);
    if (!chained && !op_pairs(model->ops[p->calls[index].statement].op,
                              model->ops[p->calls[index + 1].statement].op, rows))
        return ISO_OK;
    for (int i = 0; i < 2; i++) {
        iso_status status = bind_run(model, pass, index + i, &b[i]);
        if (status)
            return status;
    }
    *paired = chained || independent(&b[0], &b[1]);
    OpCall calls[2] = {{b[0].at->op, b[0].tensors, b[0].n, &b[0].run},
                       {b[1].at->op, b[1].tensors, b[1].n, &b[1].run}};
    return chained ? op_run_chain(calls) : *paired ? op_run_pair(calls) : ISO_OK;
}

/* The rows of one cache, and the cache: [tokens, rest...] and [pages, page, rest...]. */
static iso_status bind_cache(const iso_model *model, const Pass *pass, const ModelCall *call,
                             iso_tensor *rows, iso_tensor *cache)
{
    const MfTensor *tensor;
    Box box;
    int page = model->config.page;
    iso_status status = model_slot_box(model, call->of, pass->run_rows, &tensor, &box);
    if (status)
        return status;
    const Slot *as = &model->program.slots[model->program.caches[call->cache].slot];
    char *data = model_slot_data(model, pass, call->of, false);
    if (as->brought) {
        box.lo[0] = 0, box.hi[0] = pass->run_rows;
        data = model->values + as->offset;
    }
    box_tensor(tensor, &box, data, rows);
    *cache = *rows;
    cache->data = model->caches[call->cache];
    cache->n_axes = rows->n_axes + 1;
    for (int i = rows->n_axes - 1; i >= 1; i--) {
        cache->shape[i + 1] = rows->shape[i];
        cache->stride[i + 1] = rows->stride[i];
    }
    cache->shape[0] = model_cache_pages(model);
    cache->shape[1] = page;
    cache->stride[1] = rows->stride[0];
    cache->stride[0] = rows->stride[0] * page;
    return ISO_OK;
}

/* Caches that are written one after another go in one launch. *call is the last of them. */
static iso_status write_caches(iso_model *model, const Pass *pass, int *call, int end)
{
    enum { AT_ONCE = 4 };
    const Program *p = &model->program;
    iso_tensor rows[AT_ONCE], caches[AT_ONCE];
    iso_status status = ISO_OK;
    int n = 0, i = *call;
    for (; i < end && n < AT_ONCE && p->calls[i].cache >= 0 && model->needed[i] && !status; i++) {
        if (p->slots[p->caches[p->calls[i].cache].slot].brought)
            status = bring_rows(model, pass, &p->calls[i]);
        if (!status)
            status = bind_cache(model, pass, &p->calls[i], &rows[n], &caches[n]);
        n++;
    }
    *call = i - 1;
    if (status || !pass->paged || pass->run_rows == 0)
        return status;
    iso_cache_rows what = {
        .rows = rows,
        .cache = caches,
        .n = n,
        .slots = (const int64_t *)(model->batch.device + model->batch.places),
    };
    return iso_cache_write(model->module, &what, model->device.stream);
}

iso_status model_run_calls(iso_model *model, const Pass *pass, int first, int end)
{
    bool pairs = model->ranks == 1 && !model->fault.op && !model->trace;
    iso_status status = ISO_OK;
    for (int i = first, done = 0; i < end && !status; i++) {
        const ModelCall *call = &model->program.calls[i];
        bool paired = false;
        if (!model->needed[i])
            continue;
        if (pairs && call->cache < 0 && i + 1 < end)
            status = run_pair(model, pass, i, &paired);
        i += paired;
        model->paired += paired;
        if (status || paired)
            continue;
        if (model->trace && call->cache < 0)
            status = model_trace_ready(model, pass, i);
        if (!status)
            status = call->cache >= 0 ? write_caches(model, pass, &i, end)
                                      : run_op(model, pass, i);
        if (!status && call->cache < 0 && model->fault.op)
            status = model_fault_call(model, pass, i);
        if (!status && call->cache < 0 && model->trace)
            status = model_trace_call(model, pass, i);
        if (!status && model->shares_gpu && ++done % DEEP == 0)
            status = device_sync(&model->device);
    }
    return status;
}

/* ---- the tail's rows ---- */

static iso_status gather_slot(iso_model *model, const Pass *pass, int index)
{
    const Slot *slot = &model->program.slots[index];
    if (in_place(model, pass, index))
        return ISO_OK;
    if (rows_are_cut(model, index))
        return gather_cut(model, pass, index);
    RowCopy copy = {
        .to = model->values + slot->gathered,
        .from = model->values + slot->offset,
        .from_index = (const int32_t *)(model->batch.device + model->batch.wanted) + pass->first,
        .rows = pass->part,
        .row_bytes = slot->row_bytes,
    };
    return device_rows(&model->device, &copy);
}

static bool slot_needed(const iso_model *model, int index)
{
    const Slot *slot = &model->program.slots[index];
    return slot->crosses && model->needed[slot->from];
}

iso_status model_run_tail(iso_model *model, const Pass *pass)
{
    const Program *p = &model->program;
    iso_status status = ISO_OK;
    bool any = false;
    for (int i = p->tail; i < p->n_calls; i++)
        any |= model->needed[i];
    if (!any)
        return ISO_OK;
    for (int i = 0; i < p->n_slots && !status; i++)
        if (slot_needed(model, i))
            status = gather_slot(model, pass, i);
    return status ? status : model_run_calls(model, pass, p->tail, p->n_calls);
}
