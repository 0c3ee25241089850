/* Runs an op on the CPU executor, through the compiler's session. */
#include "module.h"

#include <stdlib.h>

/* A window of a join's rows as a list, by the global count. */
static iso_status select_rows(const Launch *launch, isoc_selection *rows)
{
    const Manifest *manifest = launch->op->module->manifest;
    int64_t lo, hi, *index = malloc((size_t)launch->window->n * sizeof *index);
    if (!index)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory to run op %s", launch->op->op->name);
    part_rows_of(op_part(launch->op, launch->phase), launch->run->rows, &lo, &hi);
    for (int64_t i = 0; i < launch->window->n; i++)
        index[i] = lo + launch->window->lo + i;
    *rows = (isoc_selection){manifest->atoms[launch->spec->gemm.rows.atom[0]].name, index,
                             (size_t)launch->window->n};
    return ISO_OK;
}

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
    const iso_keys *keys = launch->run->keys;
    isoc_keys where = {0};
    if (keys)
        where = (isoc_keys){keys->lengths, keys->starts, keys->block_table,
                            keys->block_table_stride, keys->page, keys->most_keys, keys->turns};
    isoc_call call = {
        .op = op->op->name,
        .layout = op->layout->name,
        .rank = op->rank,
        .phase = (isoc_phase)launch->phase,
        .rows = launch->run->rows,
        .live_rows = !live ? -1 : *live > 0 ? *live : 0,
        .positions = launch->run->positions,
        .sequences = launch->run->sequences,
        .keys = keys ? &where : NULL,
        .tensors = tensors,
        .roots = launch->roots,
        .sources = (const float *const *)launch->sources,
        .threads = op->module->cpu_threads,
    };
    isoc_selection rows = {0};
    if (launch->window && select_rows(launch, &rows))
        return ISO_OUT_OF_MEMORY;
    if (launch->window) {
        call.select = &rows;
        call.n_select = 1;
    }
    isoc_status status = isoc_session_run(op->module->session, &call);
    free((void *)rows.index);
    if (status == ISOC_OK)
        return ISO_OK;
    return iso_fail(status == ISOC_ERROR_MEMORY ? ISO_OUT_OF_MEMORY : ISO_INTERNAL,
                    "the executor could not run op %s in layout %s", op->op->name,
                    op->layout->name);
}
