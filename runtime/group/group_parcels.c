/* Which bytes of a rank's slot another rank needs of it, for ranks that cannot read each other's
 * memory: the tensors that meet what it gathers, the rows of roots that it joins, the results that
 * it holds. */
#include "group_plan.h"
#include "launch/launch.h"

typedef struct List {
    Parcel *parcel;
    int n;
} List;

static void add(List *list, size_t offset, size_t bytes)
{
    if (bytes)
        list->parcel[list->n++] = (Parcel){offset, bytes};
}

static bool boxes_meet(const MfTensor *tensor, const Box *a, const Box *b)
{
    for (int i = 0; i < tensor->n_axes; i++)
        if (a->lo[i] >= b->hi[i] || b->lo[i] >= a->hi[i])
            return false;
    return true;
}

static bool hears(const GroupPlan *plan, int to, int from)
{
    const MfRanks *heard = &plan->op->at->sources[to];
    for (int i = 0; i < heard->n; i++)
        if (heard->rank[i] == from)
            return true;
    return false;
}

static iso_status params(const GroupPlan *plan, int from, int to, List *list)
{
    for (int i = 0; i < plan->n_fetches; i++) {
        const Fetch *fetch = &plan->fetch[i];
        const MfTensor *tensor = &plan->op->op->tensors[fetch->tensor];
        Box held, need;
        iso_status status = held_box(plan->op, from, fetch->tensor, plan->rows, &held);
        if (!status)
            status = phase_box(plan->op, fetch->phase, to, fetch->tensor, plan->rows, &need);
        if (status)
            return status;
        if (!fetch->slice && boxes_meet(tensor, &held, &need))
            add(list, fetch->offset, (size_t)box_bytes(tensor, &held));
    }
    return ISO_OK;
}

/* ---- roots ---- */

/* The rows that a rank joins among those of the roots that it hears. */
static void joined_rows(const GroupPlan *plan, int rank, Window *window)
{
    int64_t lo, hi, first, end;
    part_rows_of(&plan->op->at->join_parts[rank], plan->rows, &lo, &hi);
    part_rows_of(&plan->op->at->parts[rank], plan->rows, &first, &end);
    *window = (Window){0, hi - lo};
    if (plan->two_shot)
        plan_window(plan, rank, window);
    window->lo += lo - first;
}

/* Planes of rows of columns, one per root and part; all at once where the rows are all. */
static void roots(const GroupPlan *plan, int from, int to, List *list)
{
    const iso_op *op = plan->op - plan->op->rank + from;
    const MfSpec *spec = op_spec(op, ISO_PHASE_PART, plan->rows, 1);
    size_t bytes = roots_bytes(op, plan->rows, plan->keys);
    Window window;
    if (!hears(plan, to, from) || !bytes)
        return;
    joined_rows(plan, to, &window);
    int planes = spec->family == MF_GEMM ? spec->gemm.n_roots * groups_parts(&spec->gemm) : 0;
    int64_t rows = planes ? part_size(op->module->manifest, op_part(op, ISO_PHASE_PART),
                                      &spec->gemm.rows, plan->rows) : 0;
    if (planes == 0 || planes > MOST_PLANES || spec->gemm.rows.n != 1 || window.n == rows) {
        add(list, plan->roots, bytes);
        return;
    }
    size_t plane = bytes / (size_t)planes, row = plane / (size_t)rows;
    for (int i = 0; i < planes; i++)
        add(list, plan->roots + plane * (size_t)i + row * (size_t)window.lo,
            row * (size_t)window.n);
}

/* ---- results ---- */

/* A share of a two-shot join lies at its rows of the whole part. */
static iso_status share(const GroupPlan *plan, const Send *send, int from, List *list)
{
    const MfTensor *tensor = &plan->op->op->tensors[send->tensor];
    Window window;
    Box whole;
    iso_status status =
        phase_box(plan->op, ISO_PHASE_JOIN, from, send->tensor, plan->rows, &whole);
    if (status || whole.hi[0] == whole.lo[0])
        return status;
    plan_window(plan, from, &window);
    size_t row = (size_t)(box_bytes(tensor, &whole) / (whole.hi[0] - whole.lo[0]));
    add(list, send->offset + row * (size_t)window.lo, row * (size_t)window.n);
    return ISO_OK;
}

static iso_status results(const GroupPlan *plan, int from, int to, List *list)
{
    iso_status status = ISO_OK;
    for (int i = 0; i < plan->n_sends && !status; i++) {
        const Send *send = &plan->send[i];
        const MfTensor *tensor = &plan->op->op->tensors[send->tensor];
        Box sent, held;
        if (plan->two_shot) {
            status = hears(plan, to, from) ? share(plan, send, from, list) : ISO_OK;
            continue;
        }
        status = plan_sent(plan, from, send->tensor, &sent);
        if (!status)
            status = held_box(plan->op, to, send->tensor, plan->rows, &held);
        if (!status && boxes_meet(tensor, &sent, &held))
            add(list, send->offset, (size_t)box_bytes(tensor, &sent));
    }
    return status;
}

iso_status plan_parcels(const Parcels *parcels, int from, int to, Parcel parcel[MOST_PARCELS],
                        int *n)
{
    const GroupPlan *plan = parcels->plan;
    List list = {parcel, 0};
    iso_status status = ISO_OK;
    if (parcels->stage == STAGE_PARAMS)
        status = params(plan, from, to, &list);
    else if (parcels->stage == STAGE_ROOTS)
        roots(plan, from, to, &list);
    else if (parcels->stage == STAGE_RESULTS)
        status = results(plan, from, to, &list);
    else if (parcels->stage == STAGE_SHARE)
        add(&list, 0, parcels->shared[from]);
    *n = list.n;
    return status;
}
