/* Rope tables, computed by the text that the fingerprint covers. */
#include "model_run.h"

static void store_entry(iso_dtype dtype, void *to, int64_t at, float value)
{
    if (dtype == ISO_F32)
        ((float *)to)[at] = value;
    else
        ((uint16_t *)to)[at] =
            dtype == ISO_BF16 ? iso_bf16_of_f32(value) : iso_f16_of_f32(value);
}

void table_fill(const MfTable *table, iso_dtype dtype, int64_t positions, int64_t lo, int64_t hi,
                void *cos, void *sin)
{
    float attention = iso_rope_attention(&table->rope);
    for (int64_t column = lo; column < hi; column++) {
        float frequency = iso_rope_frequency(&table->rope, (int)column);
        for (int64_t p = 0; p < positions; p++) {
            float c, s;
            iso_rope_entry(frequency, attention, (int)p, &c, &s);
            store_entry(dtype, cos, p * (hi - lo) + column - lo, c);
            store_entry(dtype, sin, p * (hi - lo) + column - lo, s);
        }
    }
}

/* Columns of a table: the elements of its second axis. */
static int64_t table_columns(const Manifest *manifest, const MfTensor *tensor)
{
    int64_t columns = 1;
    for (int i = 0; i < tensor->axes[1].n; i++)
        columns *= manifest->atoms[tensor->axes[1].atom[i]].size;
    return columns;
}

iso_status iso_model_table(const iso_module *module, int table, int64_t positions, void *cos,
                           void *sin, size_t bytes)
{
    if (!module || !cos || !sin || positions < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "module, cos or sin is NULL, or positions < 0");
    const MfModel *model = module->manifest->model;
    if (!model)
        return iso_fail(ISO_NO_MODEL, "contract %s", module->manifest->contract);
    if (table < 0 || table >= model->n_tables)
        return iso_fail(ISO_BAD_COUNT, "table %d of %d", table, model->n_tables);
    const MfTensor *tensor = &model->values[model->tables[table].cos].tensor;
    int64_t columns = table_columns(module->manifest, tensor);
    size_t need = (size_t)(positions * columns) * (size_t)manifest_dtype_bytes(tensor->dtype);
    if (bytes != need)
        return iso_fail(ISO_BAD_TENSOR, "arrays of %zu bytes; %lld positions need %zu", bytes,
                        (long long)positions, need);
    table_fill(&model->tables[table], tensor->dtype, positions, 0, columns, cos, sin);
    return ISO_OK;
}
