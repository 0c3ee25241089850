/* What every family's launcher needs: the launch itself, and the column groups of products. */
#include "launch.h"

iso_status launch_kernel(const Launch *launch, const Grid *grid, void **args)
{
    return launch_program(launch, launch->spec->kernel, grid, args);
}

iso_status launch_program(const Launch *launch, int program, const Grid *grid, void **args)
{
    const iso_module *module = launch->op->module;
    const MfKernel *kernel = &module->manifest->kernels[program];
    const MfSpec *spec = launch->spec;
    /* What waits itself for what comes before may begin a little earlier. */
    bool waits = launch->phase == ISO_PHASE_JOIN ? launch->early && kernel->waits
                                         : kernel->waits || spec->family == MF_GEMM;
    CuLaunchAttribute early = {.id = CU_LAUNCH_STREAM_SERIALIZATION, .value.number = 1};
    CuLaunchConfig config = {.grid_x = grid->x,
                             .grid_y = grid->y,
                             .grid_z = grid->z,
                             .block_x = grid->threads,
                             .block_y = 1,
                             .block_z = 1,
                             .shared_bytes = (unsigned)grid->shared_bytes,
                             .stream = launch->run->stream,
                             .attributes = &early,
                             .n_attributes = waits};
    CuResult result =
        module->driver->launch_config(&config, module->functions[program], args, NULL);
    return driver_check(module->driver, result, kernel->name);
}

/* ---- column groups ---- */

int64_t groups_columns(const iso_op *op, iso_phase phase, const MfGemm *gemm, int64_t rows)
{
    int64_t columns = 0;
    for (int g = 0; g < gemm->n_groups; g++)
        columns += part_size(op->module->manifest, op_part(op, phase), &gemm->group[g].cols, rows);
    return columns;
}

int groups_parts(const MfGemm *gemm)
{
    int parts = 1;
    for (int g = 0; g < gemm->n_groups; g++)
        if (gemm->group[g].n_products > parts)
            parts = gemm->group[g].n_products;
    return parts;
}

/* A window's first row is the kernel's row 0. */
static void skip_rows(const Launch *launch, int binding, View *view)
{
    int tensor = launch->spec->bindings[binding].tensor;
    if (launch->window)
        view->data =
            (char *)view->data + launch->window->lo * view->stride[0] *
                                     manifest_dtype_bytes(launch->op->op->tensors[tensor].dtype);
}

/* Where an operand that is read at an index has which (IsoView). */
static void bind_index(const Launch *launch, const MfBinding *binding, IsoView *out)
{
    const MfPart *part = op_part(launch->op, launch->phase);
    if (binding->lookup < 0)
        return;
    out->stride[2] = lookup_stride(launch->op, launch->phase, binding, launch->tensors,
                                   launch->run->rows);
    out->stride[3] = part->lo[binding->looked_up];
    out->stride[4] = part->hi[binding->looked_up] - part->lo[binding->looked_up];
}

static iso_status bind_view(const Launch *launch, const MfGroup *group, int binding, IsoView *out)
{
    const MfAtoms *dims[] = {&launch->spec->gemm.rows, &group->cols};
    View view;
    iso_status status = view_bind(launch->op, launch->phase, &launch->spec->bindings[binding], dims,
                                  2, launch->tensors, launch->run->rows, &view);
    if (status)
        return status;
    skip_rows(launch, binding, &view);
    out->ptr = view.data;
    for (int d = 0; d < ISO_DIMS; d++)
        out->stride[d] = view.stride[d];
    bind_index(launch, &launch->spec->bindings[binding], out);
    return ISO_OK;
}

iso_status groups_bind(const Launch *launch, bool views, IsoGemmGroup *groups)
{
    const MfGemm *gemm = &launch->spec->gemm;
    iso_status status = ISO_OK;
    for (int g = 0; g < gemm->n_groups && !status; g++) {
        const MfGroup *group = &gemm->group[g];
        groups[g].columns =
            (int)part_size(launch->op->module->manifest, op_part(launch->op, launch->phase),
                           &group->cols, launch->run->rows);
        for (int i = 0; views && !status && i < group->n_operands; i++)
            status = bind_view(launch, group, group->operand[i], &groups[g].operand[i]);
        for (int i = 0; views && !status && i < group->n_results; i++)
            status = bind_view(launch, group, group->result[i], &groups[g].result[i]);
    }
    return status;
}
