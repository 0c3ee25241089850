/* What a model needs of one rank: its ops, which rows and parts it has, and how much memory. */
#include "model_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_ROWS = 1024, ROOTS_ROOM = 64 << 20 /* bytes, if one row's take no more */ };

int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t model_tail_rows(const iso_model *model)
{
    int64_t rows = model->config.output_rows;
    return rows < model->config.max_rows ? rows : model->config.max_rows;
}

/* ---- what was asked ---- */

static iso_status check_config(const iso_model_config *c)
{
    if (c->max_rows < 1 || c->max_rows > INT32_MAX / 2 || c->max_sequences < 1 ||
        c->max_sequences > 1 << 20 || c->max_position < 1 || c->max_position > 1 << 24)
        return iso_fail(ISO_INVALID_ARGUMENT,
                        "iso_model_config: %" PRId64 " rows, %d sequences, %" PRId64
                        " positions: each from 1, positions to 16777216", c->max_rows,
                        c->max_sequences, c->max_position);
    if (c->pages < 0 || c->pages > INT32_MAX || (c->pages && (c->page < 1 || c->page % 16)))
        return iso_fail(ISO_INVALID_ARGUMENT,
                        "iso_model_config: %" PRId64 " pages of %d positions; a page has a "
                        "multiple of 16", c->pages, c->page);
    if (c->pages && c->pages * c->page > INT32_MAX)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_config: a cache of more than %d positions",
                        INT32_MAX);
    if (c->output_rows < 0 || c->graph_rows < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_config: a negative number of rows");
    return ISO_OK;
}

/* ---- ops ---- */

static bool leads_with_tokens(const Manifest *manifest, const MfTensor *tensor)
{
    if (tensor->n_axes == 0 || tensor->axes[0].n != 1)
        return false;
    const MfAtom *atom = &manifest->atoms[tensor->axes[0].atom[0]];
    return atom->size == 0 && atom->coordinate == MF_NONE;
}

static iso_status find_share(iso_model *model, const iso_op *op, int *share)
{
    const MfPart *part = op_part(op, ISO_PHASE_RUN);
    for (*share = 0; *share < model->n_shares; (*share)++)
        if (model->shares[*share].index == part->rows_index &&
            model->shares[*share].count == part->rows_count)
            return ISO_OK;
    if (model->n_shares == MAX_SHARES)
        return iso_fail(ISO_UNSUPPORTED, "layout %s cuts rows in more than %d ways", model->layout,
                        MAX_SHARES);
    model->shares[model->n_shares++] = (RowShare){part->rows_index, part->rows_count};
    return ISO_OK;
}

/* The one phase that reads a parameter; false where both do, or none. */
static bool phase_of(const iso_op *op, int parameter, iso_phase *phase)
{
    const Manifest *manifest = op->module->manifest;
    bool run = false;
    for (int v = 0; v < op->at->n_variants; v++)
        for (int r = 0; r < op->layout->ranks; r++) {
            int spec = op->at->variants[v].specs[r];
            run |= spec >= 0 && spec_uses(&manifest->specs[spec], parameter);
        }
    bool join = op->at->join >= 0 && spec_uses(&manifest->specs[op->at->join], parameter);
    *phase = join ? ISO_PHASE_JOIN : ISO_PHASE_RUN;
    return run != join;
}

/* A weight that its op needs otherwise than the layout holds it is kept as the op needs it: it
 * would have to move in every step. */
static iso_status place_weight(const iso_op *op, int parameter, uint64_t *placed)
{
    iso_phase phase;
    if (!phase_of(op, parameter, &phase))
        return ISO_OK;
    for (int r = 0; r < op->layout->ranks; r++) {
        Box held, need;
        iso_status status = held_box(op, r, parameter, 1, &held);
        if (!status)
            status = phase_box(op, phase, r, parameter, 1, &need);
        if (status)
            return status;
        if (!box_equal(&op->op->tensors[parameter], &held, &need))
            *placed |= (uint64_t)1 << parameter;
    }
    return ISO_OK;
}

static iso_status weight_box(const StatementOp *at, int parameter, Box *box)
{
    iso_phase phase;
    if (at->placed >> parameter & 1 && phase_of(at->op, parameter, &phase))
        return phase_box(at->op, phase, at->op->rank, parameter, 1, box);
    return held_box(at->op, at->op->rank, parameter, 1, box);
}

static iso_status open_op(iso_model *model, int statement)
{
    const MfModel *m = model->program.model;
    const MfStatement *s = &m->statements[statement];
    StatementOp *at = &model->ops[statement];
    iso_layout layout = {.name = model->layout, .rank = model->rank};
    iso_status status = iso_op_get(model->module, model->program.manifest->ops[s->op].name,
                                   model->layout ? &layout : NULL, &at->op);
    if (!status)
        status = find_share(model, at->op, &at->share);
    for (int i = 0; i < s->n_arguments && !status; i++) {
        if (s->arguments[i].weight && model->ranks > 1)
            status = place_weight(at->op, i, &at->placed);
        for (int c = 0; c < m->n_caches; c++)
            at->keys |= !s->arguments[i].weight && m->caches[c].as == s->arguments[i].index;
    }
    return status;
}

/* ---- values ---- */

/* The call and the parameter, or result, by which a slot's part is known. */
static const iso_op *op_of_slot(const iso_model *model, int slot, int *tensor)
{
    const Program *p = &model->program;
    const Slot *s = &p->slots[slot];
    if (s->source == SLOT_OP) {
        const iso_op *op = model->ops[p->calls[s->from].statement].op;
        *tensor = op->op->n_params + s->result;
        return op;
    }
    for (int i = s->first; i < p->n_calls; i++) {
        const ModelCall *call = &p->calls[i];
        for (int k = 0; call->cache < 0 && k < p->model->statements[call->statement].n_arguments;
             k++)
            if (!call->arguments[k].weight && call->arguments[k].index == slot) {
                *tensor = k;
                return model->ops[call->statement].op;
            }
    }
    return NULL;
}

void whole_box(const Manifest *manifest, const MfTensor *tensor, int64_t rows, Box *box)
{
    memset(box, 0, sizeof *box);
    for (int i = 0; i < tensor->n_axes; i++) {
        box->hi[i] = 1;
        for (int k = 0; k < tensor->axes[i].n; k++) {
            const MfAtom *atom = &manifest->atoms[tensor->axes[i].atom[k]];
            box->hi[i] *= atom->size ? atom->stored : rows;
        }
    }
}

iso_status model_slot_box(const iso_model *model, int slot, int64_t rows, const MfTensor **tensor,
                          Box *box)
{
    int index = 0;
    const iso_op *op = op_of_slot(model, slot, &index);
    *tensor = &model->program.model->values[model->program.slots[slot].value].tensor;
    if (op)
        return held_box(op, op->rank, index, rows, box);
    whole_box(model->program.manifest, *tensor, rows, box);
    return ISO_OK;
}

iso_status model_rank_box(const iso_model *model, int rank, int slot, int64_t rows, Box *box)
{
    int index = 0;
    const iso_op *op = op_of_slot(model, slot, &index);
    if (!op)
        return iso_fail(ISO_INTERNAL, "a value that no op gives or takes");
    return held_box(op, rank, index, rows, box);
}

/* Every op that takes a value finds it as the one before left it. */
static iso_status check_argument(const iso_model *model, const ModelCall *call, int parameter)
{
    const iso_op *op = model->ops[call->statement].op;
    int64_t rows = 4 * (int64_t)model->ranks + 1;
    const MfTensor *tensor;
    Box own, taken;
    iso_status status =
        model_slot_box(model, call->arguments[parameter].index, rows, &tensor, &own);
    if (!status)
        status = held_box(op, op->rank, parameter, rows, &taken);
    if (!status && !box_equal(tensor, &own, &taken))
        status = iso_fail(ISO_UNSUPPORTED, "layout %s: op %s takes parameter %s where no op before "
                          "leaves it", op->layout->name, op->op->name,
                          op->op->tensors[parameter].name);
    return status;
}

static iso_status check_call(const iso_model *model, const ModelCall *call)
{
    const MfStatement *s = &model->program.model->statements[call->statement];
    iso_status status = ISO_OK;
    for (int i = 0; i < s->n_arguments && !status; i++)
        if (!call->arguments[i].weight)
            status = check_argument(model, call, i);
    return status;
}

/* ---- keys that ranks share ---- */

int64_t model_cache_pages(const iso_model *model)
{
    return (model->config.pages + model->keys.pieces - 1) / model->keys.pieces;
}

int model_key_piece(const iso_model *model, int32_t first_page, int64_t position)
{
    const KeyShare *k = &model->keys;
    return (int)((position / k->split + first_page) % k->pieces);
}

/* Roots are as many as rows and splits: those of many rows go in turns, if every rank has all rows.
 */
iso_status model_rows_at_once(const iso_model *model, const iso_op *op, int64_t rows, int64_t keys,
                              size_t bytes, int64_t *n)
{
    const MfPart *part = op_part(op, ISO_PHASE_PART), *finish = op_part(op, ISO_PHASE_JOIN);
    uint64_t placed = 0;
    iso_status status = ISO_OK;
    *n = rows;
    for (int i = 0; i < model->program.model->n_statements; i++)
        if (model->ops[i].op == op)
            placed = model->ops[i].placed;
    for (size_t need = bytes + 1; need > bytes && !status;) {
        status = group_call_bytes(op, *n, keys, placed, &need);
        if (need <= bytes || *n == 1 || part->rows_count > 1 || finish->rows_count > 1)
            break;
        *n = (*n + 1) / 2;
    }
    return status;
}

static iso_status check_key_pages(const iso_model *model, const iso_op *op)
{
    const iso_model_config *c = &model->config;
    const KeyShare *k = &model->keys;
    if (k->pieces > 1 && c->pages && k->split % c->page)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_config: pages of %d positions; layout %s "
                        "shares the keys of %s by splits of %" PRId64 ", which pages must divide",
                        c->page, model->layout, op->op->name, k->split);
    return ISO_OK;
}

/* One share for all caches: a page is of all of them. */
static iso_status find_key_share(iso_model *model)
{
    const Program *p = &model->program;
    const MfSpec *specs = p->manifest->specs;
    bool found = false;
    iso_status status = ISO_OK;
    model->keys = (KeyShare){0, 1, 1};
    for (int i = 0; i < p->model->n_statements && !status; i++) {
        const iso_op *op = model->ops[i].op;
        const MfPart *part = op_part(op, ISO_PHASE_RUN);
        KeyShare own = {part->keys_index, part->keys_count, 1};
        if (!model->ops[i].keys)
            continue;
        if (own.pieces > 1)
            own.split = specs[op->at->join].attend.split;
        if (found && memcmp(&own, &model->keys, sizeof own))
            return iso_fail(ISO_UNSUPPORTED, "layout %s shares the keys of %s otherwise than those "
                            "of the op before it", model->layout, op->op->name);
        found = true;
        model->keys = own;
        status = check_key_pages(model, op);
    }
    return status;
}

/* A cache has every row: those that other ranks make are brought here. */
static iso_status size_cache(iso_model *model, int index)
{
    const Program *p = &model->program;
    Slot *as = &p->slots[p->caches[index].slot];
    const Slot *of = &p->slots[p->calls[as->first].of];
    const MfTensor *tensor;
    Box box;
    int64_t rows = 4 * (int64_t)model->ranks;
    iso_status status = model_slot_box(model, (int)(of - p->slots), rows, &tensor, &box);
    as->row_bytes = model->cache_row[index] = of->row_bytes;
    as->brought = !status && box.hi[0] - box.lo[0] != rows;
    if (!status && model->config.pages)
        model->cache_bytes +=
            (size_t)round_up((int64_t)of->row_bytes * model_cache_pages(model) *
                                 model->config.page, 256);
    return status;
}

static iso_status size_slot(iso_model *model, int index)
{
    Program *p = &model->program;
    Slot *slot = &p->slots[index];
    const MfTensor *tensor;
    Box box;
    if (slot->source == SLOT_TABLE || slot->source == SLOT_CACHE)
        return ISO_OK;
    iso_status status = model_slot_box(model, index, model->ranks, &tensor, &box);
    if (!status && !leads_with_tokens(p->manifest, tensor))
        status = iso_fail(ISO_UNSUPPORTED, "model %s: the first axis of %s is not the packed one",
                          p->model->name, tensor->name);
    slot->row_bytes = (size_t)manifest_dtype_bytes(tensor->dtype);
    for (int i = 1; i < tensor->n_axes && !status; i++)
        slot->row_bytes *= (size_t)(box.hi[i] - box.lo[i]);
    return status;
}

/* Rows that a rank can have of a step of that many: its share, rounded up. */
static int64_t most_rows(const iso_model *model, const Slot *slot, int64_t rows)
{
    const MfTensor *tensor;
    Box box;
    int64_t whole = round_up(rows, model->ranks);
    if (model_slot_box(model, (int)(slot - model->program.slots), whole, &tensor, &box))
        return whole;
    return box.hi[0] - box.lo[0];
}

static int by_first(const void *a, const void *b)
{
    const Interval *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static iso_status place_values(iso_model *model)
{
    Program *p = &model->program;
    Interval *intervals = calloc(2 * (size_t)p->n_slots + 1, sizeof *intervals);
    int n = 0;
    if (!intervals)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a model's plan");
    for (int i = 0; i < p->n_slots; i++) {
        Slot *slot = &p->slots[i];
        if (slot->brought)
            intervals[n++] = (Interval){slot->first, slot->last,
                                        slot->row_bytes * (size_t)model->config.max_rows,
                                        &slot->offset};
        if (slot->source != SLOT_OP)
            continue;
        bool tail = slot->first >= p->tail;
        int64_t tail_rows = model_tail_rows(model);
        size_t rows = (size_t)most_rows(model, slot, tail ? tail_rows : model->config.max_rows);
        /* One call longer, so that the one after the last that reads it may run beside that. */
        intervals[n++] = (Interval){slot->first, slot->crosses ? p->n_calls : slot->last + 1,
                                    slot->row_bytes * rows, &slot->offset};
        if (slot->crosses)
            intervals[n++] =
                (Interval){p->tail, slot->last,
                           slot->row_bytes * (size_t)most_rows(model, slot, tail_rows),
                           &slot->gathered};
    }
    qsort(intervals, (size_t)n, sizeof *intervals, by_first);
    model->value_bytes = plan_intervals(intervals, n);
    free(intervals);
    return ISO_OK;
}

/* ---- what calls need besides ---- */

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Workspaces are not monotone in the rows: schedules change. Powers of two and the most. */
static iso_status size_workspace(iso_model *model, const iso_op *op, int64_t rows)
{
    iso_status status = ISO_OK;
    for (int64_t m = 1, last = 0; !last && !status; m *= 2) {
        size_t bytes = 0;
        last = m >= rows;
        for (int64_t at = m - 1; at <= m + 1 && !status; at++) {
            status = iso_op_workspace(op, at < 1 ? 1 : at < rows ? at : rows, 0, &bytes);
            model->workspace_bytes = most(model->workspace_bytes, bytes);
        }
    }
    return status;
}

static iso_status size_calls(iso_model *model)
{
    const Program *p = &model->program;
    iso_status status = ISO_OK;
    for (int i = 0; i < p->n_calls && !status; i++) {
        const ModelCall *call = &p->calls[i];
        int64_t rows = i >= p->tail ? model_tail_rows(model) : model->config.max_rows;
        if (call->cache >= 0 || (i && call->turn > 0))
            continue;
        const StatementOp *at = &model->ops[call->statement];
        size_t bytes = 0;
        status = size_workspace(model, at->op, rows);
        if (!status && op_shares_keys(at->op))
            status = model_rows_at_once(model, at->op, rows, model->config.max_position, ROOTS_ROOM,
                                        &rows);
        if (!status && model->ranks > 1)
            status = group_call_bytes(at->op, round_up(rows, model->ranks),
                                      model->config.max_position, at->placed, &bytes);
        model->group_bytes = most(model->group_bytes, bytes);
    }
    for (int i = 0; i < p->n_slots && model->ranks > 1; i++) {
        const Slot *slot = &p->slots[i];
        const Slot *of = slot->brought ? &p->slots[p->calls[slot->first].of] : slot;
        if (slot->crosses || slot->brought)
            model->group_bytes =
                most(model->group_bytes,
                     of->row_bytes * (size_t)most_rows(model, of, model->config.max_rows));
    }
    return status;
}

/* ---- weights ---- */

static bool same_piece(const Program *p, const Piece *piece, const WeightUse *use, const Box *box)
{
    char a[256], b[256];
    const MfWeight *x = &p->model->weights[piece->weight], *y = &p->model->weights[use->weight];
    return manifest_weight_name(x, piece->turn, a, sizeof a) &&
           manifest_weight_name(y, use->turn, b, sizeof b) && !strcmp(a, b) &&
           x->tensor.n_axes == y->tensor.n_axes && box_equal(&x->tensor, &piece->box, box);
}

static iso_status find_piece(iso_model *model, WeightUse *use)
{
    Program *p = &model->program;
    Pieces *pieces = &model->pieces;
    Box box;
    iso_status status = weight_box(&model->ops[use->statement], use->parameter, &box);
    if (status)
        return status;
    for (use->piece = 0; use->piece < pieces->n; use->piece++)
        if (same_piece(p, &pieces->piece[use->piece], use, &box))
            return ISO_OK;
    Piece *piece = &pieces->piece[pieces->n++];
    *piece = (Piece){.weight = use->weight, .turn = use->turn, .box = box};
    const MfTensor *tensor = &p->model->weights[use->weight].tensor;
    box_tensor(tensor, &box, NULL, &piece->tensor);
    pieces->bytes += (size_t)round_up(box_bytes(tensor, &box), 256);
    return ISO_OK;
}

static iso_status find_pieces(iso_model *model)
{
    iso_status status = ISO_OK;
    model->pieces.piece = calloc((size_t)model->program.n_uses + 1, sizeof(Piece));
    if (!model->pieces.piece)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a list of weights");
    for (int i = 0; i < model->program.n_uses && !status; i++)
        status = find_piece(model, &model->program.uses[i]);
    return status;
}

/* ---- all of it ---- */

/* Rows are dealt where every cache is brought together: none is then read where it was made. */
static void find_deal(iso_model *model)
{
    const Program *p = &model->program;
    model->deal = 1;
    for (int i = 0; i < p->n_caches; i++)
        if (!p->slots[p->caches[i].slot].brought)
            return;
    for (int i = 0; i < p->model->n_statements; i++)
        if (model->ops[i].keys)
            model->deal = model->shares[model->ops[i].share].count;
}

static iso_status plan_parts(iso_model *model)
{
    Program *p = &model->program;
    iso_status status = ISO_OK;
    for (int i = 0; i < p->model->n_statements && !status; i++)
        status = open_op(model, i);
    for (int i = 0; i < p->n_slots && !status; i++)
        status = size_slot(model, i);
    for (int i = 0; i < p->n_calls && !status; i++)
        if (p->calls[i].cache < 0)
            status = check_call(model, &p->calls[i]);
    if (!status)
        status = find_key_share(model);
    for (int i = 0; i < p->n_caches && !status; i++)
        status = size_cache(model, i);
    find_deal(model);
    if (!status)
        status = find_pieces(model);
    if (!status)
        status = place_values(model);
    return status ? status : size_calls(model);
}

static iso_status count_ranks(iso_model *model)
{
    int ranks = 1;
    if (model->layout) {
        iso_status status = iso_module_layout_ranks(model->module, model->layout, &ranks);
        if (status)
            return status;
    }
    model->ranks = ranks;
    if (model->rank < 0 || model->rank >= ranks)
        return iso_fail(ISO_BAD_RANK, "rank %d, but layout %s has ranks 0 to %d", model->rank,
                        model->layout ? model->layout : "of one rank", ranks - 1);
    return ISO_OK;
}

iso_status model_plan(iso_model *model, const iso_module *module, const iso_model_config *config,
                      int rank)
{
    model->module = module;
    model->config = *config;
    model->rank = rank;
    model->layout = config->layout;
    if (!model->config.output_rows)
        model->config.output_rows = OUTPUT_ROWS;
    iso_status status = check_config(config);
    if (!status)
        status = count_ranks(model);
    if (!status)
        status = program_open(&model->program, module->manifest);
    if (status)
        return status;
    const Program *p = &model->program;
    if (p->model->n_inputs > MAX_INPUTS)
        return iso_fail(ISO_UNSUPPORTED, "model %s has more than %d inputs", p->model->name,
                        MAX_INPUTS);
    model->ops = calloc((size_t)p->model->n_statements + 1, sizeof *model->ops);
    model->cache_row = calloc((size_t)p->n_caches + 1, sizeof *model->cache_row);
    if (!model->ops || !model->cache_row)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a model");
    return plan_parts(model);
}
