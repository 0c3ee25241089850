/* Shapes and strides: what a rank's tensors must look like, and how a kernel addresses them. */
#include "module.h"

#include <inttypes.h>

void part_rows_of(const MfPart *part, int64_t rows, int64_t *lo, int64_t *hi)
{
    *lo = rows * part->rows_index / part->rows_count;
    *hi = rows * (part->rows_index + 1) / part->rows_count;
}

bool axis_is_table(const Manifest *manifest, const MfAtoms *axis)
{
    return axis->n == 1 && manifest->atoms[axis->atom[0]].coordinate != MF_NONE;
}

int64_t part_atom_size(const Manifest *manifest, const MfPart *part, int atom, int64_t rows)
{
    if (manifest->atoms[atom].coordinate)
        return 0;
    if (manifest->atoms[atom].size)
        return part->hi[atom] - part->lo[atom];
    int64_t lo, hi;
    part_rows_of(part, rows, &lo, &hi);
    return hi - lo;
}

int64_t part_size(const Manifest *manifest, const MfPart *part, const MfAtoms *atoms, int64_t rows)
{
    int64_t size = 1;
    for (int i = 0; i < atoms->n; i++)
        size *= part_atom_size(manifest, part, atoms->atom[i], rows);
    return size;
}

bool axis_is_free(const Manifest *manifest, const MfAtoms *atoms)
{
    for (int i = 0; i < atoms->n; i++)
        if (!manifest->atoms[atoms->atom[i]].size && !manifest->atoms[atoms->atom[i]].coordinate)
            return true;
    return false;
}

const MfPart *op_part(const iso_op *op, iso_phase phase)
{
    return phase == ISO_PHASE_JOIN ? &op->at->join_parts[op->rank] : &op->at->parts[op->rank];
}

bool op_joins_alone(const iso_op *op)
{
    const MfSpec *spec = op->at->join < 0 ? NULL : op_spec(op, ISO_PHASE_RUN, 1, 1);
    bool folds = spec && spec->family == MF_GEMM && spec->gemm.fold_roots > 0;
    return folds && op->at->sources[op->rank].n == 1;
}

bool op_shares_keys(const iso_op *op)
{
    return op->at->parts[op->rank].keys_count > 1;
}

const MfSpec *op_spec(const iso_op *op, iso_phase phase, int64_t rows, int schedule)
{
    const Manifest *manifest = op->module->manifest;
    if (phase == ISO_PHASE_JOIN)
        return &manifest->specs[op->at->join];
    for (int i = 0; i < op->at->n_variants; i++) {
        const MfVariant *variant = &op->at->variants[i];
        if (schedule ? i == schedule - 1 : rows >= variant->rows_min && rows <= variant->rows_max)
            return variant->specs[op->rank] < 0 ? NULL : &manifest->specs[variant->specs[op->rank]];
    }
    return NULL;
}

const MfSpec *run_spec(const iso_op *op, iso_phase phase, const iso_run *run)
{
    const MfSpec *spec = op_spec(op, phase, run->rows, run->schedule);
    bool free = !run->schedule && spec && spec->family == MF_ATTEND;
    return free ? attend_spec(op, spec, run) : spec;
}

bool spec_uses(const MfSpec *spec, int tensor)
{
    for (int i = 0; i < spec->n_bindings; i++)
        if (spec->bindings[i].tensor == tensor)
            return true;
    return false;
}

static iso_status check_tensor(const iso_op *op, iso_phase phase, const iso_tensor *tensor,
                               const MfTensor *declared, int64_t rows)
{
    const Manifest *manifest = op->module->manifest;
    if (tensor->dtype != declared->dtype)
        return iso_fail(ISO_BAD_TENSOR, "op %s: tensor %s has dtype %s, the contract says %s",
                        op->op->name, declared->name, manifest_dtype_name(tensor->dtype),
                        manifest_dtype_name(declared->dtype));
    if (tensor->n_axes != declared->n_axes)
        return iso_fail(ISO_BAD_TENSOR, "op %s: tensor %s has %d axes, the contract says %d",
                        op->op->name, declared->name, tensor->n_axes, declared->n_axes);
    for (int i = 0; i < declared->n_axes; i++) {
        int64_t want = part_size(manifest, op_part(op, phase), &declared->axes[i], rows);
        if (tensor->shape[i] != want && !axis_is_table(manifest, &declared->axes[i]))
            return iso_fail(ISO_BAD_TENSOR,
                            "op %s, layout %s, rank %d: axis %d of tensor %s has %" PRId64
                            " elements, this rank takes %" PRId64 " of it for %" PRId64 " rows",
                            op->op->name, op->layout->name, op->rank, i, declared->name,
                            tensor->shape[i], want, rows);
        if (tensor->stride[i] < 0)
            return iso_fail(ISO_BAD_TENSOR, "op %s: tensor %s has a negative stride on axis %d",
                            op->op->name, declared->name, i);
    }
    if (!tensor->data || (uintptr_t)tensor->data % (uintptr_t)manifest_dtype_bytes(declared->dtype))
        return iso_fail(ISO_BAD_TENSOR,
                        "op %s: tensor %s has data %p, need a non-null pointer "
                        "aligned to %d bytes",
                        op->op->name, declared->name, tensor->data,
                        manifest_dtype_bytes(declared->dtype));
    return ISO_OK;
}

iso_status op_check_tensors(const iso_op *op, iso_phase phase, const MfSpec *spec,
                            const iso_tensor *tensors, int n, int64_t rows)
{
    int want = op->op->n_params + op->op->n_results;
    if (n != want)
        return iso_fail(ISO_BAD_COUNT, "op %s takes %d tensors (%d parameters, %d results), not %d",
                        op->op->name, want, op->op->n_params, op->op->n_results, n);
    for (int i = 0; i < n; i++) {
        if (!spec_uses(spec, i))
            continue;
        iso_status status = check_tensor(op, phase, &tensors[i], &op->op->tensors[i], rows);
        if (status)
            return status;
    }
    return ISO_OK;
}

/* ---- views ---- */

/* Where an atom lies in a tensor: its stride in elements, from the declared axis's own stride. */
static bool atom_stride(const iso_op *op, const MfPart *part, const MfTensor *declared,
                        const iso_tensor *tensor, int atom, int64_t rows, int64_t *stride)
{
    for (int i = 0; i < declared->n_axes; i++) {
        const MfAtoms *axis = &declared->axes[i];
        int64_t inner = 1;
        for (int j = axis->n - 1; j >= 0; j--) {
            if (axis->atom[j] == atom) {
                *stride = tensor->stride[i] * inner;
                return true;
            }
            inner *= part_atom_size(op->module->manifest, part, axis->atom[j], rows);
        }
    }
    return false;
}

/* The atom of a tensor that a dimension's atom walks: for the tokens, a table's coordinate. */
static int addressed(const iso_op *op, const MfTensor *declared, int atom)
{
    const Manifest *manifest = op->module->manifest;
    for (int i = 0; !manifest->atoms[atom].size && i < declared->n_axes; i++)
        if (axis_is_table(manifest, &declared->axes[i]))
            return declared->axes[i].atom[0];
    return atom;
}

/* One stride for a run of atoms: the innermost's, if the others follow from it. Atoms of size 1
 * may have any stride. */
static iso_status collapse(const iso_op *op, const MfPart *part, const MfTensor *declared,
                           const iso_tensor *tensor, const MfAtoms *dim, int64_t rows,
                           int64_t *stride)
{
    int64_t expected = 0;
    *stride = 0;
    for (int i = dim->n - 1; i >= 0; i--) {
        int64_t size = part_atom_size(op->module->manifest, part, dim->atom[i], rows), own;
        if (!atom_stride(op, part, declared, tensor, addressed(op, declared, dim->atom[i]), rows,
                         &own))
            return iso_fail(ISO_INTERNAL, "op %s: tensor %s lacks an atom of its own dimension",
                            op->op->name, declared->name);
        if (size == 1 && dim->n > 1)
            continue;
        if (!expected)
            *stride = own;
        else if (own != expected)
            return iso_fail(ISO_BAD_TENSOR,
                            "op %s: axes of tensor %s that the kernel walks as one have strides "
                            "that do not follow from each other (%" PRId64 " where %" PRId64
                            " is needed); pass a contiguous copy of those axes",
                            op->op->name, declared->name, own, expected);
        expected = own * size;
    }
    return ISO_OK;
}

int64_t lookup_stride(const iso_op *op, iso_phase phase, const MfBinding *binding,
                      const iso_tensor *tensors, int64_t rows)
{
    int64_t stride = 0;
    atom_stride(op, op_part(op, phase), &op->op->tensors[binding->tensor],
                &tensors[binding->tensor], binding->looked_up, rows, &stride);
    return stride;
}

iso_status view_bind(const iso_op *op, iso_phase phase, const MfBinding *binding,
                     const MfAtoms *const *dims, int n_dims, const iso_tensor *tensors,
                     int64_t rows, View *view)
{
    const MfPart *part = op_part(op, phase);
    const MfTensor *declared = &op->op->tensors[binding->tensor];
    const iso_tensor *tensor = &tensors[binding->tensor];
    int64_t offset = 0, stride;
    for (int i = 0; i < binding->n_fixes; i++) {
        int atom = binding->fixes[i].atom;
        if (atom_stride(op, part, declared, tensor, atom, rows, &stride))
            offset += (binding->fixes[i].at - part->lo[atom]) * stride;
    }
    view->data = (char *)tensor->data + offset * manifest_dtype_bytes(declared->dtype);
    for (int d = 0; d < MF_MAX_DIMS; d++) {
        view->stride[d] = 0;
        if (d >= n_dims || d >= binding->n_dims || !binding->has[d])
            continue;
        iso_status status = collapse(op, part, declared, tensor, dims[d], rows, &view->stride[d]);
        if (status)
            return status;
    }
    return ISO_OK;
}
