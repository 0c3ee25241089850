/* Runs an op on the CPU executor, through the compiler's session. */
#include "module.h"

#include <stdlib.h>

iso_status launch_cpu(const Launch *launch)
{
    const iso_op *op = launch->op;
    isoc_tensor tensors[128];
    int n = op->op->n_params + op->op->n_results;
    if (n > (int)(sizeof tensors / sizeof tensors[0]))
        return iso_fail(ISO_UNSUPPORTED, "op %s has %d tensors", op->op->name, n);
    for (int i = 0; i < n; i++)
        tensors[i] = (isoc_tensor){launch->tensors[i].data, launch->tensors[i].stride};
    const int32_t *live = launch->run->rows_device;
    isoc_call call = {
        .op = op->op->name,
        .layout = op->layout->name,
        .rank = op->rank,
        .phase = (isoc_phase)launch->phase,
        .rows = launch->run->rows,
        .live_rows = !live ? -1 : *live > 0 ? *live : 0,
        .positions = launch->run->positions,
        .sequences = launch->run->sequences,
        .tensors = tensors,
        .roots = launch->roots,
        .sources = (const float *const *)launch->sources,
        .threads = op->module->cpu_threads,
    };
    isoc_status status = isoc_session_run(op->module->session, &call);
    if (status == ISOC_OK)
        return ISO_OK;
    return iso_fail(status == ISOC_ERROR_MEMORY ? ISO_OUT_OF_MEMORY : ISO_INTERNAL,
                    "the executor could not run op %s in layout %s", op->op->name,
                    op->layout->name);
}
