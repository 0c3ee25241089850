/* Boxes: what a rank has of a tensor, and copies of what two boxes share. */
#include "group.h"

#include <string.h>

/* An axis is a row-major run of atoms: a part of it is one run where every atom before the first
 * one cut has one element, and every atom after it is whole. */
static bool axis_range(const Manifest *manifest, const MfAtoms *axis, const MfPart *part,
                       int64_t rows, int64_t *lo, int64_t *hi)
{
    bool started = false;
    *lo = 0;
    *hi = 1;
    for (int i = 0; i < axis->n; i++) {
        const MfAtom *atom = &manifest->atoms[axis->atom[i]];
        int64_t size = atom->size ? atom->size : rows, first = part->lo[axis->atom[i]];
        int64_t end = part->hi[axis->atom[i]];
        if (!atom->size)
            part_rows_of(part, rows, &first, &end);
        if (started && (first != 0 || end != size))
            return false;
        *lo = *lo * size + first;
        *hi = (*hi - 1) * size + end;
        started = started || end - first != 1;
    }
    return true;
}

/* False where what the part has of some axis is not one run of it. */
static bool box_of(const Manifest *manifest, const MfTensor *tensor, const MfPart *part,
                   int64_t rows, Box *box)
{
    memset(box, 0, sizeof *box);
    for (int i = 0; i < tensor->n_axes; i++)
        if (!axis_range(manifest, &tensor->axes[i], part, rows, &box->lo[i], &box->hi[i]))
            return false;
    return true;
}

bool box_equal(const MfTensor *tensor, const Box *a, const Box *b)
{
    for (int i = 0; i < tensor->n_axes; i++)
        if (a->lo[i] != b->lo[i] || a->hi[i] != b->hi[i])
            return false;
    return true;
}

bool box_inside(const MfTensor *tensor, const Box *inner, const Box *outer)
{
    for (int i = 0; i < tensor->n_axes; i++)
        if (inner->lo[i] < outer->lo[i] || inner->hi[i] > outer->hi[i])
            return false;
    return true;
}

int64_t box_bytes(const MfTensor *tensor, const Box *box)
{
    int64_t bytes = manifest_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->n_axes; i++)
        bytes *= box->hi[i] - box->lo[i];
    return bytes;
}

void box_tensor(const MfTensor *tensor, const Box *box, void *data, iso_tensor *out)
{
    int64_t stride = 1;
    memset(out, 0, sizeof *out);
    out->data = data;
    out->dtype = tensor->dtype;
    out->n_axes = tensor->n_axes;
    for (int i = tensor->n_axes - 1; i >= 0; i--) {
        out->shape[i] = box->hi[i] - box->lo[i];
        out->stride[i] = stride;
        stride *= out->shape[i] ? out->shape[i] : 1;
    }
}

/* ---- copies ---- */

typedef struct Run {
    int n; /* axes not yet walked: the outer ones */
    int64_t count[ISO_MAX_AXES], from[ISO_MAX_AXES], to[ISO_MAX_AXES]; /* strides in bytes */
    Copy copy;
} Run;

/* Inner axes that lie densely on both sides become the width, the next one the rows. */
static void fold(Run *run, int bytes)
{
    run->copy.width = (size_t)bytes;
    while (run->n > 0 && run->from[run->n - 1] == (int64_t)run->copy.width &&
           run->to[run->n - 1] == (int64_t)run->copy.width)
        run->copy.width *= (size_t)run->count[--run->n];
    run->copy.rows = 1;
    run->copy.from_pitch = run->copy.to_pitch = run->copy.width;
    if (run->n == 0)
        return;
    run->n--;
    run->copy.rows = (size_t)run->count[run->n];
    run->copy.from_pitch = (size_t)run->from[run->n];
    run->copy.to_pitch = (size_t)run->to[run->n];
}

iso_status copies_make(CopyList *list)
{
    int n = list->n;
    list->n = 0;
    return n ? list->plane->kind->copy(list->plane, list->copy, n, list->stream) : ISO_OK;
}

static iso_status copy_runs(CopyList *list, const Run *run, int axis, const char *from, char *to)
{
    if (axis == run->n) {
        Copy copy = run->copy;
        copy.from = from;
        copy.to = to;
        list->copy[list->n++] = copy;
        return list->n < (int)(sizeof list->copy / sizeof list->copy[0]) ? ISO_OK
                                                                         : copies_make(list);
    }
    iso_status status = ISO_OK;
    for (int64_t i = 0; i < run->count[axis] && !status; i++)
        status = copy_runs(list, run, axis + 1, from + i * run->from[axis],
                           to + i * run->to[axis]);
    return status;
}

iso_status box_copy(CopyList *list, const MfTensor *declared, const iso_tensor *from,
                    const Box *from_box, const iso_tensor *to, const Box *to_box)
{
    int bytes = manifest_dtype_bytes(declared->dtype);
    const char *source = from->data;
    char *target = to->data;
    Run run = {.n = declared->n_axes};
    for (int i = 0; i < declared->n_axes; i++) {
        int64_t lo = from_box->lo[i] > to_box->lo[i] ? from_box->lo[i] : to_box->lo[i];
        int64_t hi = from_box->hi[i] < to_box->hi[i] ? from_box->hi[i] : to_box->hi[i];
        if (lo >= hi)
            return ISO_OK;
        run.count[i] = hi - lo;
        run.from[i] = from->stride[i] * bytes;
        run.to[i] = to->stride[i] * bytes;
        source += (lo - from_box->lo[i]) * run.from[i];
        target += (lo - to_box->lo[i]) * run.to[i];
    }
    fold(&run, bytes);
    return copy_runs(list, &run, 0, source, target);
}

/* ---- where tensors are ---- */

static iso_status to_box(const iso_op *op, const MfPart *part, int tensor, int64_t rows, Box *box)
{
    if (box_of(op->module->manifest, &op->op->tensors[tensor], part, rows, box))
        return ISO_OK;
    return iso_fail(ISO_UNSUPPORTED,
                    "op %s, layout %s: what a rank has of tensor %s is not one run of each axis",
                    op->op->name, op->layout->name, op->op->tensors[tensor].name);
}

iso_status phase_box(const iso_op *op, iso_phase phase, int rank, int tensor, int64_t rows,
                     Box *box)
{
    const MfPart *parts = phase == ISO_PHASE_JOIN ? op->at->join_parts : op->at->parts;
    return to_box(op, &parts[rank], tensor, rows, box);
}

/* What does not move is held where it is needed: by the join, if the join touches it. */
iso_status held_box(const iso_op *op, int rank, int tensor, int64_t rows, Box *box)
{
    if (!op->at->held)
        return iso_fail(ISO_UNSUPPORTED, "the cubin does not say where tensors are held; compile "
                                         "the contract again");
    if (op->at->held[tensor])
        return to_box(op, &op->at->held[tensor][rank], tensor, rows, box);
    bool joined =
        op->at->join >= 0 && spec_uses(&op->module->manifest->specs[op->at->join], tensor);
    return phase_box(op, joined ? ISO_PHASE_JOIN : ISO_PHASE_RUN, rank, tensor, rows, box);
}
