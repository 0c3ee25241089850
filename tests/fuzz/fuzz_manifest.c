/* Any bytes as a manifest: what is taken can be asked all that libiso tells of its ops, and its
 * kernels be launched on a driver that does nothing. */
#include "group/group_plan.h"
#include "iso_model.h"
#include "module.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, TENSORS = 128, RANKS_MOST = 8, CALLS_MOST = 4096 };

/* ---- a driver that does nothing -------------------------------------------------------------- */

static CuResult launch_nothing(const CuLaunchConfig *config, CuFunction function, void **args,
                               void **extra)
{
    (void)config, (void)function, (void)args, (void)extra;
    return 0;
}

static CuResult map_nothing(CuTensorMap *map, int type, unsigned rank, void *address,
                            const unsigned long long *dims, const unsigned long long *strides,
                            const unsigned *box, const unsigned *steps, int interleave,
                            int swizzle, int promotion, int fill)
{
    (void)map, (void)type, (void)rank, (void)address, (void)dims, (void)strides, (void)box;
    (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return 0;
}

static CuResult set_nothing(unsigned long long address, unsigned char byte, size_t bytes,
                            CuStream stream)
{
    (void)address, (void)byte, (void)bytes, (void)stream;
    return 0;
}

static const Driver idle = {.launch_config = launch_nothing, .tensor_map = map_nothing,
                            .memset_async = set_nothing};

/* ---- what may be asked ----------------------------------------------------------------------- */

static void run_op(const iso_op *op, iso_phase phase)
{
    static _Alignas(256) char workspace[1 << 20];
    static const int32_t zeros[ROWS];
    const void *sources[RANKS_MOST];
    iso_tensor tensors[TENSORS] = {{0}};
    iso_run run = {.rows = ROWS, .positions = zeros, .sequences = zeros, .workspace = workspace,
                   .workspace_bytes = sizeof workspace};
    int n = op->op->n_params + op->op->n_results;
    for (int t = 0; t < n && t < TENSORS; t++) {
        int64_t origin[ISO_MAX_AXES];
        iso_op_tensor(op, phase, ROWS, t, &tensors[t], NULL);
        iso_op_origin(op, phase, ROWS, t, origin);
        tensors[t].data = workspace;
    }
    for (int r = 0; r < RANKS_MOST; r++)
        sources[r] = workspace;
    if (phase == ISO_PHASE_RUN)
        iso_op_run(op, tensors, n, &run);
    else if (phase == ISO_PHASE_PART)
        iso_op_part(op, tensors, n, workspace, &run);
    else
        iso_op_join(op, sources, op->layout->ranks, tensors, n, &run);
}

static void ask_op(const iso_op *op)
{
    size_t bytes;
    for (int phase = ISO_PHASE_RUN; phase <= ISO_PHASE_JOIN; phase++)
        run_op(op, (iso_phase)phase);
    iso_op_roots(op, ROWS, &bytes);
    for (int s = 0; s <= op->at->n_variants; s++)
        iso_op_workspace(op, ROWS, s, &bytes);
    iso_group_bytes(op, ROWS, &bytes);
    for (int t = 0; t < op->op->n_params + op->op->n_results; t++) {
        int64_t origin[ISO_MAX_AXES];
        iso_tensor tensor;
        iso_op_held(op, ROWS, t, &tensor, origin);
    }
}

/* Repeats are written out: how many calls they give decides the time. */
static int64_t calls_of(const MfModel *model)
{
    int64_t calls = model ? model->n_statements : CALLS_MOST;
    for (int i = 0; model && i < model->n_repeats; i++)
        calls += (int64_t)model->repeats[i].count *
                 (model->repeats[i].end - model->repeats[i].first + model->n_caches);
    return calls;
}

static void ask_model(const iso_module *module)
{
    iso_model_sizes sizes;
    iso_model_config config = {.size = sizeof config, .weights = "seed:1", .max_rows = ROWS,
                               .max_sequences = 2, .max_position = 32, .page = 16, .pages = 4};
    if (calls_of(module->manifest->model) < CALLS_MOST)
        iso_model_size(module, &config, 0, &sizes);
}

/* As a module has them: by layout, op and rank. */
static void list_ops(iso_module *module)
{
    for (int l = 0; l < module->manifest->n_layouts; l++) {
        const MfLayout *layout = &module->manifest->layouts[l];
        for (int i = 0; i < layout->n_ops && layout->ranks <= RANKS_MOST; i++)
            for (int r = 0; r < layout->ranks; r++)
                module->ops[module->n_ops++] =
                    (iso_op){module, layout, &layout->ops[i],
                             &module->manifest->ops[layout->ops[i].op], r};
    }
}

static void ask_all(Manifest *manifest)
{
    size_t room = 1;
    for (int l = 0; l < manifest->n_layouts; l++)
        room += (size_t)manifest->layouts[l].n_ops * RANKS_MOST;
    iso_module module = {.manifest = manifest, .device = ISO_CUDA, .driver = &idle,
                         .functions = calloc((size_t)manifest->n_kernels + 1, sizeof(CuFunction)),
                         .ops = calloc(room, sizeof(iso_op)), .multiprocessors = 132};
    list_ops(&module);
    for (int i = 0; i < module.n_ops; i++)
        ask_op(&module.ops[i]);
    ask_model(&module);
    free(module.functions);
    free(module.ops);
}

/* Whether it is taken. */
static bool ask_manifest(const char *json, size_t size)
{
    Manifest *manifest;
    if (manifest_read(json, size, &manifest) != ISO_OK)
        return false;
    ask_all(manifest);
    manifest_free(manifest);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)ask_manifest((const char *)data, size);
    return 0;
}
