/* Lookups in the executor: what a tensor of indices says for an element of a scope. */
#include "exec_impl.h"

#include "device/iso_num.cuh"

static int dim_of(const ExecSpace *space, int atom)
{
    int d = 0;
    while (space->dim[d].atom != atom)
        d++;
    return d;
}

void exec_lookup(ExecScope *scope, const DagNode *node, const Fix *fix, i64 stride,
                 ExecLookup *out)
{
    const ExecJob *job = scope->call->job;
    const Tensor *tensor = fix_tensor(job->op->op, fix);
    const Contract *contract = job->contract;
    *out = (ExecLookup){.size = contract->axes[contract->atom_axis[fix->atom]].size,
                        .stride = stride, .n_dims = tensor->n_axes};
    if (tensor->n_axes == 2 && !job->box.atom[fix->atom].list)
        out->here = &job->box.atom[fix->atom];
    if (fix_is_result(fix))
        out->value = exec_eval(scope, dag_index_value(node, fix));
    else
        out->memory = &job->params[~fix->at];
    for (int i = 0; i < tensor->n_axes; i++) {
        out->dim[i] = dim_of(&scope->space, tensor->atoms[i]);
        out->at[i] = scope->space.dim[out->dim[i]].at;
    }
}

i64 exec_lookup_at(const ExecLookup *lookup, const i64 *place)
{
    i64 at = lookup->memory ? lookup->memory->offset : 0;
    for (int i = 0; i < lookup->n_dims; i++) {
        i64 own = place[lookup->dim[i]];
        at += lookup->memory ? lookup->memory->stride[i] * lookup->at[i][own]
                             : lookup->value->stride[lookup->dim[i]] * own;
    }
    int32_t index = lookup->memory ? ((const int32_t *)lookup->memory->data)[at]
                                   : (int32_t)iso_f32_bits(lookup->value->v[at]);
    return index >= 0 && index < lookup->size ? index : -1;
}

bool exec_looks_up(const ExecLookup *lookups, int n, int dim)
{
    for (int l = 0; l < n; l++)
        for (int i = 0; i < lookups[l].n_dims; i++)
            if (lookups[l].dim[i] == dim)
                return true;
    return false;
}
