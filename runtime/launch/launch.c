/* Which launcher takes an op, and how much memory its runs need. */
#include "launch.h"

iso_status launch_cuda(const Launch *launch)
{
    switch (launch->spec->family) {
    case MF_GEMM:
        return launch_gemm(launch);
    case MF_JOIN:
        return launch->spec->join_of_row ? launch_row(launch) : launch_join(launch);
    case MF_ROW:
        return launch_row(launch);
    case MF_MAP:
        return launch_map(launch);
    case MF_ATTEND:
        return launch_attend(launch);
    case MF_DRAW:
        return launch_draw(launch);
    case MF_TOP:
        return launch_top(launch);
    case MF_ORDER:
        break;
    }
    return iso_fail(ISO_INTERNAL, "a kernel of no family");
}

/* ---- counters ---- */

enum { COUNTER_REGION = 256 * 1024, COUNTER_STEP = 256 };

size_t counter_region(size_t need)
{
    return need <= COUNTER_REGION ? COUNTER_REGION
                                  : (size_t)ceil_div((int64_t)need, COUNTER_STEP) * COUNTER_STEP;
}

iso_status counters_ready(const Launch *launch, size_t need)
{
    const Driver *driver = launch->op->module->driver;
    if (need <= COUNTER_REGION)
        return ISO_OK;
    return driver_check(driver,
                        driver->memset_async((uintptr_t)launch->run->workspace, 0, need,
                                             launch->run->stream),
                        "cuMemsetD8Async");
}

/* ---- sizes ---- */

/* One rank's roots: ((root * parts + part) * rows + row) * columns + column for products,
 * (root * values + value) * rows + row for rows. Roots are those of the first variant: every
 * variant of an op leaves the same. */
size_t roots_bytes(const iso_op *op, int64_t rows, int64_t keys)
{
    const Manifest *manifest = op->module->manifest;
    const MfSpec *spec = op_spec(op, ISO_PHASE_PART, rows, 1);
    const MfPart *part = op_part(op, ISO_PHASE_PART);
    int64_t elements = 0;
    if (spec && spec->family == MF_ATTEND)
        return attend_roots(op, spec, rows, keys);
    if (spec && spec->family == MF_GEMM && spec->gemm.fold_roots) {
        elements = part_size(manifest, part, &spec->gemm.rows, rows) * spec->gemm.fold_roots *
                   spec->gemm.fold_values;
    } else if (spec && spec->family == MF_GEMM) {
        elements = part_size(manifest, part, &spec->gemm.rows, rows) *
                   groups_columns(op, ISO_PHASE_PART, &spec->gemm, rows) *
                   groups_parts(&spec->gemm) * spec->gemm.n_roots;
    } else if (spec && spec->family == MF_ROW) {
        elements = (int64_t)spec->row_roots * spec->values;
        for (int d = 0; d < spec->n_dims - 1; d++)
            elements *= part_size(manifest, part, &spec->dims[d], rows);
    }
    return (size_t)elements * sizeof(float);
}

/* Of all its schedules: hints that no row count tells may choose any. */
static size_t most_of_attention(const iso_op *op, int64_t rows)
{
    size_t most = 0;
    for (int s = 1; s <= op->at->n_variants; s++) {
        size_t bytes = attend_workspace(op, op_spec(op, ISO_PHASE_RUN, rows, s), rows);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Behind the counters, which stay as they are, and behind what the product itself needs. */
size_t roots_place(const iso_op *op, int64_t rows, int schedule)
{
    const MfSpec *spec = op_spec(op, ISO_PHASE_PART, rows, schedule);
    size_t own = spec ? gemm_workspace(op, spec, rows) : 0;
    own = own > COUNTER_REGION ? own : COUNTER_REGION;
    return (own + COUNTER_STEP - 1) / COUNTER_STEP * COUNTER_STEP;
}

size_t workspace_bytes(const iso_op *op, int64_t rows, int schedule)
{
    const MfSpec *spec = op_spec(op, ISO_PHASE_RUN, rows, schedule);
    if (op_joins_alone(op)) {
        size_t roots = roots_bytes(op, rows, 0);
        return roots ? roots_place(op, rows, schedule) + roots : 0;
    }
    if (spec && spec->family == MF_GEMM)
        return gemm_workspace(op, spec, rows);
    if (!spec || spec->family != MF_ATTEND)
        return 0;
    if (schedule)
        return attend_workspace(op, spec, rows);
    return most_of_attention(op, rows);
}
