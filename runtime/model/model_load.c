/* Loading: memory is taken once, weights are cut and placed, tables are made, ranks compare. */
#include "model_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

static int slot_of_table(const Program *p, int table, int which)
{
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].source == SLOT_TABLE && p->slots[i].from == table &&
            p->slots[i].result == which)
            return i;
    return -1;
}

static iso_status make_table(iso_model *model, int index)
{
    const Program *p = &model->program;
    const MfTensor *tensor;
    Box box;
    void *made[2] = {NULL, NULL};
    iso_status status =
        model_slot_box(model, slot_of_table(p, index, 0), model->ranks, &tensor, &box);
    size_t bytes = (size_t)(model->config.max_position * (box.hi[1] - box.lo[1])) *
                   (size_t)manifest_dtype_bytes(tensor->dtype);
    for (int i = 0; i < 2 && !status; i++) {
        made[i] = malloc(bytes + 1);
        status = made[i] ? device_new(&model->device, bytes, &model->tables[2 * index + i])
                         : iso_fail(ISO_OUT_OF_MEMORY, "no memory for a table of positions");
    }
    if (!status)
        table_fill(&p->model->tables[index], tensor->dtype, model->config.max_position, box.lo[1],
                   box.hi[1], made[0], made[1]);
    for (int i = 0; i < 2; i++) {
        if (!status)
            status = device_write(&model->device, model->tables[2 * index + i], made[i], bytes);
        free(made[i]);
    }
    return status;
}

/* ---- memory ---- */

static iso_status take_memory(iso_model *model)
{
    const Program *p = &model->program;
    const iso_model_config *config = &model->config;
    void *memory = NULL;
    iso_status status = device_open(&model->device, model->module);
    model->caches = calloc((size_t)p->n_caches + 1, sizeof(void *));
    model->tables = calloc(2 * (size_t)p->model->n_tables + 1, sizeof(void *));
    model->needed = calloc((size_t)p->n_calls + 1, sizeof(bool));
    model->asked = calloc((size_t)p->model->n_outputs + 1, sizeof(bool));
    if (!status && (!model->caches || !model->tables || !model->needed || !model->asked))
        status = iso_fail(ISO_OUT_OF_MEMORY, "no memory for a model");
    if (!status)
        status = device_new(&model->device, model->value_bytes, &memory);
    model->values = memory;
    memory = NULL;
    if (!status)
        status = device_new(&model->device, model->workspace_bytes, &memory);
    model->workspace = memory;
    for (int i = 0; i < p->n_caches && config->pages && !status; i++)
        status = device_new(&model->device,
                            model->cache_row[i] *
                                (size_t)(model_cache_pages(model) * config->page),
                            &model->caches[i]);
    for (int i = 0; i < p->model->n_tables && !status; i++)
        status = make_table(model, i);
    if (!status)
        status = batch_open(model);
    return status ? status : outputs_open(model);
}

/* ---- groups ---- */

static iso_status check_group(const iso_model *model, const iso_group *group)
{
    int have = group ? group->ranks : 1;
    if (have != model->ranks || (group && group->rank != model->rank))
        return iso_fail(ISO_BAD_RANK, "layout %s has %d ranks, the group %d",
                        model->layout ? model->layout : "(one rank)", model->ranks, have);
    if (group && group->module != model->module)
        return iso_fail(ISO_INVALID_ARGUMENT, "the group was created for another module");
    if (group && group->bytes < model->group_bytes && model->ranks > 1)
        return iso_fail(ISO_GROUP_BYTES, "the model moves %zu bytes at %" PRId64 " rows, the group "
                        "was created for %zu; iso_model_size tells", model->group_bytes,
                        model->config.max_rows, group->bytes);
    return ISO_OK;
}

/* Ranks of threads that share a GPU may not queue much: see iso_group.h. */
static bool on_one_gpu(const iso_model *model)
{
    return model->group && model->ranks > 1 && model->device.driver &&
           model->group->plane->together;
}

/* A rank that failed says so, so that none waits for it. */
static iso_status compare_ranks(const iso_model *model, iso_status own)
{
    typedef struct Loaded {
        int64_t status;
        uint8_t digest[32];
    } Loaded;
    Loaded mine = {.status = own}, all[GROUP_RANKS];
    if (!model->group)
        return own;
    memcpy(mine.digest, model->digest, 32);
    iso_status status = store_gather(model->group->store, &mine, sizeof mine, all);
    for (int r = 0; r < model->ranks && !status && !own; r++) {
        if (all[r].status)
            status = iso_fail((iso_status)all[r].status, "rank %d could not load the model: %s", r,
                              iso_status_string((iso_status)all[r].status));
        else if (memcmp(all[r].digest, all[0].digest, 32))
            status = iso_fail(ISO_WEIGHTS, "rank %d has loaded other weights than rank 0", r);
    }
    return own ? own : status;
}

/* ---- loading ---- */

static iso_status load(iso_model *model, const iso_module *module, const iso_model_config *config)
{
    int rank = config->group ? config->group->rank : 0;
    iso_status status = model_plan(model, module, config, rank);
    if (!status)
        status = check_group(model, config->group);
    if (status)
        return status;
    model->group = config->group;
    status = take_memory(model);
    if (!status)
        status = model_load_weights(model);
    model->shares_gpu = on_one_gpu(model);
    return compare_ranks(model, status);
}

static iso_status check_arguments(const iso_module *module, const iso_model_config *config)
{
    if (!module || !config)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model: a NULL argument");
    if (config->size != sizeof *config)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_config.size is %zu, this library's is %zu",
                        config->size, sizeof *config);
    return ISO_OK;
}

iso_status iso_model_load(iso_model **model, const iso_module *module,
                          const iso_model_config *config)
{
    if (model)
        *model = NULL;
    iso_status status = check_arguments(module, config);
    if (!status && (!model || !config->weights))
        status = iso_fail(ISO_INVALID_ARGUMENT, "iso_model_load: model and weights must not be "
                                                "NULL");
    if (status)
        return status;
    iso_model *made = calloc(1, sizeof *made);
    if (!made)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a model");
    status = load(made, module, config);
    if (status)
        iso_model_unload(made);
    else
        *model = made;
    return status;
}

iso_status iso_model_size(const iso_module *module, const iso_model_config *config, int rank,
                          iso_model_sizes *sizes)
{
    iso_status status = check_arguments(module, config);
    if (!status && !sizes)
        status = iso_fail(ISO_INVALID_ARGUMENT, "iso_model_size: sizes is NULL");
    iso_model *model = status ? NULL : calloc(1, sizeof *model);
    if (!status && !model)
        status = iso_fail(ISO_OUT_OF_MEMORY, "no memory for a model");
    if (!status)
        status = model_plan(model, module, config, rank);
    if (!status)
        *sizes = (iso_model_sizes){model->group_bytes, model->pieces.bytes, model->cache_bytes,
                                   model->value_bytes + model->workspace_bytes,
                                   model->keys.pieces, model->keys.split};
    iso_model_unload(model);
    return status;
}

static void free_each(const iso_model *model, void **memory, int n)
{
    for (int i = 0; memory && i < n; i++)
        device_free(&model->device, memory[i]);
    free(memory);
}

void iso_model_unload(iso_model *model)
{
    if (!model)
        return;
    model_trace_close(model);
    model_close_graphs(model);
    batch_close(model);
    outputs_close(model);
    free_each(model, model->caches, model->program.n_caches);
    free_each(model, model->tables,
              model->program.model ? 2 * model->program.model->n_tables : 0);
    for (int i = 0; i < model->pieces.n; i++)
        device_free(&model->device, model->pieces.piece[i].tensor.data);
    free(model->pieces.piece);
    device_free(&model->device, model->values);
    device_free(&model->device, model->workspace);
    device_close(&model->device);
    program_close(&model->program);
    free(model->ops);
    free(model->cache_row);
    free(model->needed);
    free(model->asked);
    free(model);
}

iso_status iso_model_weights(const iso_model *model, uint8_t digest[32])
{
    if (!model || !digest)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_weights: a NULL argument");
    memcpy(digest, model->digest, 32);
    return ISO_OK;
}

iso_status iso_model_kernels(const iso_model *model, int64_t rows, iso_kernel_line line, void *user)
{
    if (!model || !line || rows < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_kernels: a NULL argument");
    const Program *p = &model->program;
    for (int i = 0; i < p->n_calls; i++) {
        const ModelCall *call = &p->calls[i];
        if (call->cache >= 0)
            continue;
        const iso_op *op = model->ops[call->statement].op;
        for (iso_phase phase = ISO_PHASE_RUN; phase <= ISO_PHASE_JOIN; phase++) {
            const char *name;
            if (phase == ISO_PHASE_PART || (phase == ISO_PHASE_JOIN && op->at->join < 0))
                continue;
            iso_status status = iso_op_kernel(op, phase, rows, 0, &name);
            if (status)
                return status;
            line(user, op->op->name, call->turn, name);
        }
    }
    return ISO_OK;
}
