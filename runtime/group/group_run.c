/* Runs an op over a group: what it needs is fetched, roots are exchanged and joined, results go
 * where they are held. */
#include "group_plan.h"

#include <inttypes.h>
#include <string.h>

typedef struct Call {
    iso_group *group;
    const iso_op *op;
    const GroupPlan *plan;
    const iso_run *run;
    int slot, syncs;
    CopyList copies;
    iso_tensor part[PLAN_TENSORS], join[PLAN_TENSORS]; /* as each phase takes them */
} Call;

static char *slot_of(const Call *call, int rank, size_t offset)
{
    const iso_group *group = call->group;
    return group->plane->slots[rank] + group->bytes * (size_t)call->slot + offset;
}

static iso_status sync_parcels(Call *call, const Parcels *parcels)
{
    iso_group *group = call->group;
    uint32_t tag = group_tag(group, call->op, call->run->rows, call->syncs++);
    iso_status status = copies_make(&call->copies);
    if (!status)
        status = group->plane->kind->sync(group->plane, tag, parcels, call->run->stream);
    if (!status)
        return ISO_OK;
    PlaneFailure failure;
    group->plane->kind->failure(group->plane, &failure);
    return failure.status ? group_fail(group, &failure) : status;
}

static iso_status sync_ranks(Call *call, SyncStage stage)
{
    return sync_parcels(call, &(Parcels){.stage = stage, .plan = call->plan, .slot = call->slot});
}

static iso_tensor *view_of(Call *call, iso_phase phase, int tensor)
{
    return phase == ISO_PHASE_JOIN ? &call->join[tensor] : &call->part[tensor];
}

/* ---- parameters ---- */

/* This rank's own part of a parameter, packed, where the others read it. */
static iso_status offer(Call *call, const Fetch *fetch)
{
    const MfTensor *declared = &call->op->op->tensors[fetch->tensor];
    iso_tensor packed;
    Box held;
    iso_status status = held_box(call->op, call->op->rank, fetch->tensor, call->run->rows, &held);
    if (status)
        return status;
    box_tensor(declared, &held, slot_of(call, call->op->rank, fetch->offset), &packed);
    return box_copy(&call->copies, declared, view_of(call, fetch->phase, fetch->tensor), &held,
                    &packed, &held);
}

/* True if a rank before this one, or the reader itself, has the same. */
static bool has_twin(const Call *call, const MfTensor *declared, const Box *boxes, int rank)
{
    for (int r = 0; r < rank; r++)
        if (box_equal(declared, &boxes[r], &boxes[rank]))
            return true;
    return rank != call->op->rank && box_equal(declared, &boxes[call->op->rank], &boxes[rank]);
}

/* Copies into `to` what every rank has of it in its slot. */
static iso_status collect(Call *call, int tensor, size_t offset, const Box *boxes,
                          const iso_tensor *to, const Box *to_box)
{
    const MfTensor *declared = &call->op->op->tensors[tensor];
    iso_status status = ISO_OK;
    for (int i = 0; i < call->group->ranks && !status; i++) {
        int rank = (call->op->rank + i) % call->group->ranks; /* not all from rank 0 at once */
        iso_tensor from;
        if (rank != call->op->rank && has_twin(call, declared, boxes, rank))
            continue;
        box_tensor(declared, &boxes[rank], slot_of(call, rank, offset), &from);
        status = box_copy(&call->copies, declared, &from, &boxes[rank], to, to_box);
    }
    return status;
}

static iso_status gather(Call *call, const Fetch *fetch)
{
    const iso_op *op = call->op;
    Box boxes[GROUP_RANKS], need;
    iso_tensor whole;
    iso_status status =
        phase_box(op, fetch->phase, op->rank, fetch->tensor, call->run->rows, &need);
    for (int r = 0; r < call->group->ranks && !status; r++)
        status = held_box(op, r, fetch->tensor, call->run->rows, &boxes[r]);
    if (status)
        return status;
    box_tensor(&op->op->tensors[fetch->tensor], &need,
               call->group->plane->scratch + fetch->scratch, &whole);
    *view_of(call, fetch->phase, fetch->tensor) = whole;
    return collect(call, fetch->tensor, fetch->offset, boxes, &whole, &need);
}

/* Each slot from the rank at whose expert it stands. */
static iso_status gather_slots(Call *call, const Fetch *fetch)
{
    const iso_op *op = call->op;
    const MfTensor *declared = &op->op->tensors[fetch->tensor];
    const MfPart *held = op->at->held[fetch->tensor];
    size_t atoms = (size_t)op->module->manifest->n_atoms * sizeof held->lo[0];
    Plane *plane = call->group->plane;
    SlotsMove move = {.tensor = fetch->tensor, .indices = fetch->indices,
                      .index = *view_of(call, fetch->phase, fetch->indices)};
    iso_status status = phase_box(op, fetch->phase, op->rank, fetch->tensor, call->run->rows,
                                  &move.to_box);
    if (!status)
        status = phase_box(op, fetch->phase, op->rank, fetch->indices, call->run->rows,
                           &move.index_box);
    box_tensor(declared, &move.to_box, plane->scratch + fetch->scratch, &move.to);
    for (int i = 0; i < call->group->ranks && !status; i++) {
        int rank = (op->rank + i) % call->group->ranks;
        bool twin = false;
        for (int r = 0; r < i && !twin; r++) {
            const MfPart *other = &held[(op->rank + r) % call->group->ranks];
            twin = !memcmp(other->lo, held[rank].lo, atoms) &&
                   !memcmp(other->hi, held[rank].hi, atoms) &&
                   other->rows_index == held[rank].rows_index;
        }
        Pick pick;
        if (twin)
            continue;
        status = held_box(op, rank, fetch->tensor, call->run->rows, &move.from_box);
        box_tensor(declared, &move.from_box, slot_of(call, rank, fetch->offset), &move.from);
        if (!status)
            status = slots_pick(op, &move, rank, &pick);
        if (!status && pick.tokens > 0)
            status = plane->kind->pick(plane, &pick, call->run->stream);
    }
    *view_of(call, fetch->phase, fetch->tensor) = move.to;
    return status;
}

static iso_status slice(Call *call, const Fetch *fetch)
{
    iso_tensor *view = view_of(call, fetch->phase, fetch->tensor);
    Box held, need;
    iso_status status = held_box(call->op, call->op->rank, fetch->tensor, call->run->rows, &held);
    if (!status)
        status = phase_box(call->op, fetch->phase, call->op->rank, fetch->tensor, call->run->rows,
                           &need);
    for (int i = 0; i < view->n_axes && !status; i++) {
        view->data = (char *)view->data +
                     (need.lo[i] - held.lo[i]) * view->stride[i] *
                         manifest_dtype_bytes(view->dtype);
        view->shape[i] = need.hi[i] - need.lo[i];
    }
    return status;
}

static iso_status fetch_params(Call *call)
{
    const GroupPlan *plan = call->plan;
    iso_status status = ISO_OK;
    for (int i = 0; i < plan->n_fetches && !status; i++)
        if (!plan->fetch[i].slice)
            status = offer(call, &plan->fetch[i]);
    if (!status && plan->n_gathers)
        status = sync_ranks(call, STAGE_PARAMS);
    for (int i = 0; i < plan->n_fetches && !status; i++)
        if (plan->fetch[i].slice)
            status = slice(call, &plan->fetch[i]);
        else if (plan->fetch[i].indices < 0)
            status = gather(call, &plan->fetch[i]);
    if (!status)
        status = copies_make(&call->copies);
    for (int i = 0; i < plan->n_fetches && !status; i++)
        if (plan->fetch[i].indices >= 0)
            status = gather_slots(call, &plan->fetch[i]);
    return status;
}

/* ---- results ---- */

/* A result that is sent on is made in the slot. */
static iso_status redirect(Call *call, const Send *send)
{
    iso_phase phase = call->plan->join ? ISO_PHASE_JOIN : ISO_PHASE_RUN;
    Box box;
    iso_status status =
        phase_box(call->op, phase, call->op->rank, send->tensor, call->run->rows, &box);
    if (!status)
        box_tensor(&call->op->op->tensors[send->tensor], &box,
                   slot_of(call, call->op->rank, send->offset), view_of(call, phase, send->tensor));
    return status;
}

/* A rank's share lies in its slot at the rows of the whole part. */
static iso_status receive(Call *call, const Send *send, const iso_tensor *result)
{
    const iso_op *op = call->op;
    const GroupPlan *plan = call->plan;
    Box boxes[GROUP_RANKS], held;
    iso_status status = held_box(op, op->rank, send->tensor, call->run->rows, &held);
    for (int r = 0; r < call->group->ranks && !status; r++)
        status = plan_sent(plan, r, send->tensor, &boxes[r]);
    if (status || !plan->two_shot)
        return status ? status : collect(call, send->tensor, send->offset, boxes, result, &held);
    const MfRanks *heard = &op->at->sources[op->rank];
    for (int i = 0; i < heard->n && !status; i++) {
        int rank = heard->rank[i];
        Window window;
        iso_tensor from;
        Box whole;
        plan_window(plan, rank, &window);
        status = phase_box(op, ISO_PHASE_JOIN, rank, send->tensor, call->run->rows, &whole);
        box_tensor(&op->op->tensors[send->tensor], &whole, slot_of(call, rank, send->offset),
                   &from);
        from.data = (char *)from.data +
                    window.lo * from.stride[0] * manifest_dtype_bytes(from.dtype);
        if (!status)
            status = box_copy(&call->copies, &op->op->tensors[send->tensor], &from, &boxes[rank],
                              result, &held);
    }
    return status;
}

static iso_status send_results(Call *call, const iso_tensor *tensors)
{
    const GroupPlan *plan = call->plan;
    iso_status status = plan->n_sends ? sync_ranks(call, STAGE_RESULTS) : ISO_OK;
    for (int i = 0; i < plan->n_sends && !status; i++)
        status = receive(call, &plan->send[i], &tensors[plan->send[i].tensor]);
    return status ? status : copies_make(&call->copies);
}

/* ---- the op ---- */

static iso_status run_joined(Call *call, int n)
{
    const GroupPlan *plan = call->plan;
    const void *roots[GROUP_RANKS];
    Window window;
    for (int r = 0; r < call->group->ranks; r++)
        roots[r] = slot_of(call, r, plan->roots);
    iso_status status = iso_op_part(call->op, call->part, n,
                                    slot_of(call, call->op->rank, plan->roots), call->run);
    if (!status)
        status = sync_ranks(call, STAGE_ROOTS);
    if (status)
        return status;
    if (plan->two_shot)
        plan_window(plan, call->op->rank, &window);
    return op_join_window(call->op, roots, call->group->ranks, call->join, n, call->run,
                          plan->two_shot ? &window : NULL, !call->group->plane->together);
}

static iso_status run_call(Call *call, const iso_tensor *tensors, int n)
{
    const GroupPlan *plan = call->plan;
    Plane *plane = call->group->plane;
    uint32_t tag = group_tag(call->group, call->op, call->run->rows, call->syncs++);
    iso_status status = ISO_OK;
    if (plan->slot_bytes)
        status = plane->kind->begin(plane, tag, call->run->stream, &call->slot);
    if (!status)
        status = fetch_params(call);
    for (int i = 0; i < plan->n_sends && !status; i++)
        status = redirect(call, &plan->send[i]);
    if (!status)
        status = plan->join ? run_joined(call, n)
                            : iso_op_run(call->op, call->part, n, call->run);
    return status ? status : send_results(call, tensors);
}

static iso_status check_call(iso_group *group, const iso_op *op, const iso_tensor *tensors, int n,
                             const iso_run *run)
{
    if (!group || !op || !tensors || !run || run->rows < 0 || run->rows > INT32_MAX)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_run_group: a NULL argument, or rows out of "
                                              "range");
    if (op->module != group->module || op->layout->ranks != group->ranks ||
        op->rank != group->rank)
        return iso_fail(ISO_BAD_RANK,
                        "op %s is rank %d of %d in layout %s, the group has rank %d of %d here",
                        op->op->name, op->rank, op->layout->ranks, op->layout->name, group->rank,
                        group->ranks);
    int want = op->op->n_params + op->op->n_results;
    if (n != want)
        return iso_fail(ISO_BAD_COUNT, "op %s takes %d tensors, not %d", op->op->name, want, n);
    return iso_group_status(group);
}

iso_status iso_op_run_group(iso_group *group, const iso_op *op, const iso_tensor *tensors, int n,
                            const iso_run *run)
{
    return group_call(group, op, tensors, n, run, 0);
}

iso_status group_call(iso_group *group, const iso_op *op, const iso_tensor *tensors, int n,
                      const iso_run *run, uint64_t placed)
{
    GroupPlan plan;
    iso_status status = check_call(group, op, tensors, n, run);
    if (!status)
        status = group_plan_placed(op, run->rows, run->keys ? run->keys->most_keys : 0,
                                   group->two_shot, placed, &plan);
    if (status)
        return status;
    size_t need =
        plan.slot_bytes > plan.scratch_bytes ? plan.slot_bytes : plan.scratch_bytes;
    if (need > group->bytes)
        return iso_fail(ISO_GROUP_BYTES,
                        "op %s moves %zu bytes at %" PRId64 " rows, the group was created for %zu; "
                        "iso_group_bytes tells",
                        op->op->name, need, run->rows, group->bytes);
    Call call = {.group = group, .op = op, .plan = &plan, .run = run,
                 .copies = {.plane = group->plane, .stream = run->stream}};
    memcpy(call.part, tensors, (size_t)n * sizeof *tensors);
    memcpy(call.join, tensors, (size_t)n * sizeof *tensors);
    return run_call(&call, tensors, n);
}

enum { SHARE_SYNCS = 0x100 };

iso_status group_share(iso_group *group, const iso_op *op, int64_t rows, const void *data,
                       const size_t all_bytes[GROUP_RANKS], void *stream,
                       const char *parts[GROUP_RANKS])
{
    const iso_run run = {.rows = rows, .stream = stream};
    Call call = {.group = group, .op = op, .run = &run, .syncs = SHARE_SYNCS};
    Plane *plane = group->plane;
    size_t bytes = all_bytes[group->rank];
    iso_status status = iso_group_status(group);
    if (!status && bytes > group->bytes)
        status = iso_fail(ISO_GROUP_BYTES, "op %s leaves %zu bytes to share, the group was created "
                          "for %zu", op->op->name, bytes, group->bytes);
    uint32_t tag = group_tag(group, op, rows, call.syncs++);
    if (!status)
        status = plane->kind->begin(plane, tag, stream, &call.slot);
    Copy copy = {slot_of(&call, group->rank, 0), data, bytes, 1, bytes, bytes};
    if (!status && bytes)
        status = plane->kind->copy(plane, &copy, 1, stream);
    for (int r = 0; r < group->ranks; r++)
        parts[r] = slot_of(&call, r, 0);
    Parcels parcels = {.stage = STAGE_SHARE, .slot = call.slot, .shared = all_bytes};
    return status ? status : sync_parcels(&call, &parcels);
}
