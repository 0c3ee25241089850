/* Plans of calls over a group: which tensors move, how the join is shared, where all that lies. */
#include "group_plan.h"

#include <inttypes.h>
#include <string.h>

static size_t take(size_t *used, size_t bytes)
{
    size_t at = *used;
    *used += (bytes + 255) / 256 * 256;
    return at;
}

/* ---- parameters ---- */

typedef struct Need {
    bool equal, inside; /* on every rank */
    size_t held, phase; /* bytes of the most that a rank has */
} Need;

static iso_status compare_need(const iso_op *op, iso_phase phase, int tensor, int64_t rows,
                               Need *need)
{
    const MfTensor *declared = &op->op->tensors[tensor];
    *need = (Need){true, true, 0, 0};
    for (int r = 0; r < op->layout->ranks; r++) {
        Box held, wanted;
        iso_status status = held_box(op, r, tensor, rows, &held);
        if (!status)
            status = phase_box(op, phase, r, tensor, rows, &wanted);
        if (status)
            return status;
        size_t have = (size_t)box_bytes(declared, &held);
        size_t want = (size_t)box_bytes(declared, &wanted);
        need->equal &= box_equal(declared, &held, &wanted);
        need->inside &= box_inside(declared, &wanted, &held);
        need->held = have > need->held ? have : need->held;
        need->phase = want > need->phase ? want : need->phase;
    }
    return ISO_OK;
}

static bool is_fetched(const GroupPlan *plan, iso_phase phase, int tensor)
{
    for (int i = 0; i < plan->n_fetches; i++)
        if (plan->fetch[i].tensor == tensor && plan->fetch[i].phase == phase)
            return true;
    return false;
}

static iso_status plan_fetch(GroupPlan *plan, iso_phase phase, int tensor, int indices)
{
    Need need;
    iso_status status = compare_need(plan->op, phase, tensor, plan->rows, &need);
    if (status || (need.equal && indices < 0) || is_fetched(plan, phase, tensor))
        return status;
    if (plan->n_fetches == 2 * PLAN_RESULTS)
        return iso_fail(ISO_UNSUPPORTED, "op %s moves too many tensors", plan->op->op->name);
    Fetch *fetch = &plan->fetch[plan->n_fetches++];
    *fetch = (Fetch){.tensor = tensor, .phase = phase, .slice = need.inside && indices < 0,
                     .indices = indices};
    if (fetch->slice)
        return ISO_OK;
    plan->n_gathers++;
    fetch->offset = take(&plan->slot_bytes, need.held);
    fetch->scratch = take(&plan->scratch_bytes, need.phase);
    return ISO_OK;
}

/* Slots come after what says whose they are. */
static iso_status plan_param(GroupPlan *plan, iso_phase phase, int tensor)
{
    int indices;
    iso_status status = slots_fetched(plan->op, phase, tensor, &indices);
    if (!status && indices >= 0 && plan->op->at->held[indices])
        status = plan_fetch(plan, phase, indices, -1);
    return status ? status : plan_fetch(plan, phase, tensor, indices);
}

static iso_status plan_params(GroupPlan *plan, iso_phase phase)
{
    const iso_op *op = plan->op;
    const MfSpec *spec = op_spec(op, phase, plan->rows, 0);
    iso_status status = ISO_OK;
    for (int i = 0; i < op->op->n_params && spec && !status; i++)
        if (op->at->held && op->at->held[i] && spec_uses(spec, i) &&
            !(i < 64 && plan->placed >> i & 1))
            status = plan_param(plan, phase, i);
    return status;
}

/* ---- results ---- */

static iso_status plan_send(GroupPlan *plan, int tensor, size_t bytes)
{
    if (plan->n_sends == PLAN_RESULTS)
        return iso_fail(ISO_UNSUPPORTED, "op %s has too many results", plan->op->op->name);
    plan->send[plan->n_sends++] = (Send){tensor, take(&plan->slot_bytes, bytes)};
    return ISO_OK;
}

static iso_status plan_results(GroupPlan *plan)
{
    const iso_op *op = plan->op;
    iso_phase phase = plan->join ? ISO_PHASE_JOIN : ISO_PHASE_RUN;
    iso_status status = ISO_OK;
    for (int i = 0; i < op->op->n_results && !status; i++) {
        int tensor = op->op->n_params + i;
        Need need;
        if (!op->at->held || !op->at->held[tensor])
            continue;
        int indices;
        status = slots_fetched(op, phase, tensor, &indices);
        if (!status)
            status = compare_need(op, phase, tensor, plan->rows, &need);
        if (!status && !need.equal)
            status = plan_send(plan, tensor, need.phase);
    }
    return status;
}

/* ---- the join ---- */

static size_t most_roots(const iso_op *op, int64_t rows, int64_t keys)
{
    size_t most = 0;
    for (int r = 0; r < op->layout->ranks; r++) {
        size_t own = roots_bytes(op - op->rank + r, rows, keys);
        most = own > most ? own : most;
    }
    return most;
}

static bool same_finish(const iso_op *op, int a, int b)
{
    const MfPart *p = &op->at->join_parts[a], *q = &op->at->join_parts[b];
    if (p->rows_index * (int64_t)q->rows_count != q->rows_index * (int64_t)p->rows_count ||
        p->rows_count != q->rows_count)
        return false;
    size_t atoms = (size_t)op->module->manifest->n_atoms * sizeof p->lo[0];
    return !memcmp(p->lo, q->lo, atoms) && !memcmp(p->hi, q->hi, atoms);
}

/* The ranks that hear the same roots finish the same rows, and each is among them. */
static bool shares_joins(const iso_op *op)
{
    for (int r = 0; r < op->layout->ranks; r++) {
        const MfRanks *heard = &op->at->sources[r];
        bool own = false;
        for (int i = 0; i < heard->n; i++) {
            own |= heard->rank[i] == r;
            if (!same_finish(op, r, heard->rank[i]))
                return false;
        }
        if (!own)
            return false;
    }
    return true;
}

/* Rows are the first axis of each result, and all that the kernel counts as rows. */
static bool rows_lead(const iso_op *op)
{
    const Manifest *manifest = op->module->manifest;
    const MfSpec *spec = &manifest->specs[op->at->join];
    if (spec->join_of_row || spec->gemm.rows.n != 1 ||
        manifest->atoms[spec->gemm.rows.atom[0]].size)
        return false;
    for (int i = 0; i < op->op->n_results; i++) {
        const MfTensor *result = &op->op->tensors[op->op->n_params + i];
        if (result->n_axes == 0 || result->axes[0].n != 1 ||
            result->axes[0].atom[0] != spec->gemm.rows.atom[0])
            return false;
    }
    return true;
}

/* All that is asked here is equal on all ranks. */
static bool wants_two_shot(const GroupPlan *plan, size_t roots, size_t threshold)
{
    const iso_op *op = plan->op;
    size_t peers = (size_t)op->at->sources[op->rank].n - 1;
    return peers > 0 && roots * peers > threshold && plan->n_sends == 0 && rows_lead(op) &&
           shares_joins(op);
}

static iso_status plan_join(GroupPlan *plan, size_t threshold)
{
    const iso_op *op = plan->op;
    size_t roots = most_roots(op, plan->rows, plan->keys);
    plan->roots = take(&plan->slot_bytes, roots);
    if (!wants_two_shot(plan, roots, threshold))
        return ISO_OK;
    iso_status status = ISO_OK;
    plan->two_shot = true;
    for (int i = 0; i < op->op->n_results && !status; i++) {
        Need need;
        int tensor = op->op->n_params + i;
        status = compare_need(op, ISO_PHASE_JOIN, tensor, plan->rows, &need);
        if (!status)
            status = plan_send(plan, tensor, need.phase);
    }
    return status;
}

iso_status group_plan_placed(const iso_op *op, int64_t rows, int64_t keys, size_t two_shot,
                             uint64_t placed, GroupPlan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->op = op;
    plan->rows = rows;
    plan->keys = keys;
    plan->placed = placed;
    plan->join = op->at->join >= 0;
    if (keys <= 0 && op_shares_keys(op))
        return iso_fail(ISO_INVALID_ARGUMENT, "op %s in layout %s: iso_keys.most_keys must be "
                        "given, since ranks share the keys", op->op->name, op->layout->name);
    if (op->op->n_params + op->op->n_results > PLAN_TENSORS)
        return iso_fail(ISO_UNSUPPORTED, "op %s has too many tensors", op->op->name);
    iso_status status = plan_params(plan, ISO_PHASE_RUN);
    if (!status && plan->join)
        status = plan_params(plan, ISO_PHASE_JOIN);
    if (!status)
        status = plan_results(plan);
    if (!status && plan->join)
        status = plan_join(plan, two_shot);
    return status;
}

iso_status group_plan(const iso_op *op, int64_t rows, size_t two_shot, GroupPlan *plan)
{
    return group_plan_placed(op, rows, 0, two_shot, 0, plan);
}

void plan_window(const GroupPlan *plan, int rank, Window *window)
{
    const iso_op *op = plan->op;
    const MfRanks *heard = &op->at->sources[rank];
    int64_t lo, hi, share = 0;
    part_rows_of(&op->at->join_parts[rank], plan->rows, &lo, &hi);
    while (heard->rank[share] != rank)
        share++;
    window->lo = (hi - lo) * share / heard->n;
    window->n = (hi - lo) * (share + 1) / heard->n - window->lo;
}

iso_status plan_sent(const GroupPlan *plan, int rank, int tensor, Box *box)
{
    iso_status status = phase_box(plan->op, plan->join ? ISO_PHASE_JOIN : ISO_PHASE_RUN, rank,
                                  tensor, plan->rows, box);
    if (status || !plan->two_shot)
        return status;
    Window window;
    plan_window(plan, rank, &window);
    box->lo[0] += window.lo;
    box->hi[0] = box->lo[0] + window.n;
    return ISO_OK;
}

/* ---- what the caller asks ---- */

static iso_status check(const iso_op *op, int64_t rows, const void *out)
{
    if (op && out && rows >= 0 && rows <= INT32_MAX)
        return ISO_OK;
    return iso_fail(ISO_INVALID_ARGUMENT, "a NULL argument, or %" PRId64 " rows", rows);
}

/* Whichever way the join is made. */
iso_status group_call_bytes(const iso_op *op, int64_t rows, int64_t keys, uint64_t placed,
                            size_t *bytes)
{
    GroupPlan plan;
    iso_status status = check(op, rows, bytes);
    if (!status)
        status = group_plan_placed(op, rows, keys, 0, placed, &plan);
    if (!status)
        *bytes = plan.slot_bytes > plan.scratch_bytes ? plan.slot_bytes : plan.scratch_bytes;
    return status;
}

iso_status iso_group_bytes(const iso_op *op, int64_t rows, size_t *bytes)
{
    return group_call_bytes(op, rows, 0, 0, bytes);
}

iso_status iso_group_bytes_of_keys(const iso_op *op, int64_t rows, int64_t most_keys, size_t *bytes)
{
    return group_call_bytes(op, rows, most_keys, 0, bytes);
}

iso_status iso_op_held(const iso_op *op, int64_t rows, int index, iso_tensor *tensor,
                       int64_t origin[ISO_MAX_AXES])
{
    Box box;
    iso_status status = check(op, rows, tensor);
    if (!status && (index < 0 || index >= op->op->n_params + op->op->n_results))
        status = iso_fail(ISO_BAD_COUNT, "op %s has no tensor %d", op->op->name, index);
    if (!status)
        status = held_box(op, op->rank, index, rows, &box);
    if (status)
        return status;
    box_tensor(&op->op->tensors[index], &box, NULL, tensor);
    if (origin)
        memcpy(origin, box.lo, sizeof box.lo);
    return ISO_OK;
}
