/* Slots of several ranks: which parameter says where they stand, and what of a rank's tensor is its
 * own. */
#include "group_plan.h"

#include <string.h>

static bool has_atom(const MfTensor *tensor, int atom)
{
    for (int i = 0; i < tensor->n_axes; i++)
        for (int k = 0; k < tensor->axes[i].n; k++)
            if (tensor->axes[i].atom[k] == atom)
                return true;
    return false;
}

/* An op has one tensor of indices for a sparse axis at most. */
static int indices_of(const iso_op *op, int sparse)
{
    for (int i = 0; i < op->op->n_params; i++)
        if (op->op->tensors[i].dtype == ISO_I32 && has_atom(&op->op->tensors[i], sparse))
            return i;
    return -1;
}

/* The sparse axis of a tensor of whose slots `to` has others than `from`, or -1. */
static int mixed_axis(const Manifest *manifest, const MfTensor *declared, const MfPart *from,
                      const MfPart *to)
{
    for (int a = 0; declared->dtype != ISO_I32 && a < manifest->n_atoms; a++) {
        int of = manifest->atoms[a].slots_of;
        if (of >= 0 && has_atom(declared, a) && !has_atom(declared, of) &&
            (to->lo[of] < from->lo[of] || to->hi[of] > from->hi[of]))
            return a;
    }
    return -1;
}

iso_status slots_fetched(const iso_op *op, iso_phase phase, int tensor, int *indices)
{
    const Manifest *manifest = op->module->manifest;
    const MfTensor *declared = &op->op->tensors[tensor];
    const MfPart *phased = phase == ISO_PHASE_JOIN ? op->at->join_parts : op->at->parts;
    const MfPart *held = op->at->held[tensor];
    bool param = tensor < op->op->n_params;
    *indices = -1;
    for (int r = 0; held && r < op->layout->ranks; r++) {
        int sparse = mixed_axis(manifest, declared, param ? &held[r] : &phased[r],
                                param ? &phased[r] : &held[r]);
        if (sparse < 0)
            continue;
        *indices = param ? indices_of(op, sparse) : -1;
        if (*indices >= 0)
            return ISO_OK;
        return iso_fail(ISO_UNSUPPORTED,
                        "op %s, layout %s: %s %s has slots of several ranks, and %s; sum them at "
                        "their places, sum(%s at %s ...)%s",
                        op->op->name, op->layout->name, param ? "parameter" : "result",
                        declared->name, param ? "no parameter says whose they are"
                                              : "no movement brings a result's together",
                        manifest->atoms[sparse].name,
                        manifest->atoms[manifest->atoms[sparse].slots_of].name,
                        param ? ", or give the op the tensor of their indices" : "");
    }
    return ISO_OK;
}

static int axis_of(const MfTensor *tensor, const MfAtoms *axis)
{
    for (int i = 0; i < tensor->n_axes; i++)
        if (tensor->axes[i].n == axis->n &&
            !memcmp(tensor->axes[i].atom, axis->atom, (size_t)axis->n * sizeof axis->atom[0]))
            return i;
    return -1;
}

/* The axes of tokens and of slots of a tensor of indices, and those of another with the same. */
typedef struct SlotAxes {
    int token, slot, own_token, own_slot;
} SlotAxes;

static bool slot_axes(const Manifest *manifest, const MfTensor *tensor, const MfTensor *indices,
                      SlotAxes *axes)
{
    for (int i = 0; i < indices->n_axes; i++)
        if (manifest->atoms[indices->axes[i].atom[0]].slots_of >= 0)
            axes->slot = i;
    axes->token = 1 - axes->slot;
    axes->own_token = axis_of(tensor, &indices->axes[axes->token]);
    axes->own_slot = axis_of(tensor, &indices->axes[axes->slot]);
    return indices->n_axes == 2 && axes->own_token >= 0 && axes->own_slot >= 0;
}

/* What both boxes have. */
static bool meet(const MfTensor *tensor, const Box *a, const Box *b, Box *both)
{
    for (int i = 0; i < tensor->n_axes; i++) {
        both->lo[i] = a->lo[i] > b->lo[i] ? a->lo[i] : b->lo[i];
        both->hi[i] = a->hi[i] < b->hi[i] ? a->hi[i] : b->hi[i];
        if (both->lo[i] >= both->hi[i])
            return false;
    }
    return true;
}

static char *element_at(const MfTensor *declared, const iso_tensor *tensor, const Box *box,
                        const Box *at)
{
    int64_t element = 0;
    for (int i = 0; i < declared->n_axes; i++)
        element += (at->lo[i] - box->lo[i]) * tensor->stride[i];
    return (char *)tensor->data + element * manifest_dtype_bytes(declared->dtype);
}

/* A slot's other axes are one run on both sides. */
static bool dense(const MfTensor *declared, const SlotAxes *axes, const Box *both,
                  const iso_tensor *from, const iso_tensor *to, size_t *width)
{
    int64_t n = 1;
    for (int i = declared->n_axes - 1; i >= 0; i--) {
        int64_t count = both->hi[i] - both->lo[i];
        if (i == axes->own_token || i == axes->own_slot || count == 1)
            continue;
        if (from->stride[i] != n || to->stride[i] != n)
            return false;
        n *= count;
    }
    *width = (size_t)(n * manifest_dtype_bytes(declared->dtype));
    return true;
}

iso_status slots_pick(const iso_op *op, const SlotsMove *move, int rank, Pick *pick)
{
    const Manifest *manifest = op->module->manifest;
    const MfTensor *declared = &op->op->tensors[move->tensor];
    const MfTensor *indices = &op->op->tensors[move->indices];
    const iso_tensor *from = &move->from, *to = &move->to, *index = &move->index;
    int bytes = manifest_dtype_bytes(declared->dtype);
    SlotAxes axes = {0};
    Box both;
    *pick = (Pick){0};
    if (!meet(declared, &move->from_box, &move->to_box, &both))
        return ISO_OK;
    if (!slot_axes(manifest, declared, indices, &axes) ||
        !dense(declared, &axes, &both, from, to, &pick->width))
        return iso_fail(ISO_UNSUPPORTED, "op %s, layout %s: what a slot has of %s is not one run",
                        op->op->name, op->layout->name, declared->name);
    const MfAtom *sparse = &manifest->atoms[indices->axes[axes.slot].atom[0]];
    const MfPart *own = &op->at->held[move->tensor][rank];
    int t = axes.own_token, k = axes.own_slot;
    pick->to = element_at(declared, to, &move->to_box, &both);
    pick->from = element_at(declared, from, &move->from_box, &both);
    pick->index = (const int32_t *)index->data +
                  (both.lo[t] - move->index_box.lo[axes.token]) * index->stride[axes.token] +
                  (both.lo[k] - move->index_box.lo[axes.slot]) * index->stride[axes.slot];
    pick->tokens = both.hi[t] - both.lo[t];
    pick->slots = both.hi[k] - both.lo[k];
    pick->to_token = to->stride[t] * bytes;
    pick->to_slot = to->stride[k] * bytes;
    pick->from_token = from->stride[t] * bytes;
    pick->from_slot = from->stride[k] * bytes;
    pick->index_token = index->stride[axes.token] * 4;
    pick->index_slot = index->stride[axes.slot] * 4;
    pick->all = (int32_t)manifest->atoms[sparse->slots_of].size;
    pick->lo = (int32_t)own->lo[sparse->slots_of];
    pick->hi = (int32_t)own->hi[sparse->slots_of];
    return ISO_OK;
}
