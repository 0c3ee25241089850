/* Memory, copies and the stream of a model, on a GPU or on the CPU. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, ROW_THREADS = 256 };

iso_status device_open(Device *device, const iso_module *module)
{
    CuDevice ordinal;
    memset(device, 0, sizeof *device);
    if (module->device == ISO_CPU)
        return ISO_OK;
    const Driver *driver = device->driver = module->driver;
    iso_status status = driver_context(driver, &ordinal);
    if (!status)
        status = driver_check(driver, driver->stream_new(&device->stream, CU_STREAM_NON_BLOCKING),
                              "cuStreamCreate");
    if (!status)
        status = driver_check(driver, driver->module_load(&device->kernels, model_ptx),
                              "the model's kernel");
    if (!status)
        status = driver_check(driver, driver->module_function(&device->rows, device->kernels,
                                                              "iso_model_rows"),
                              "iso_model_rows");
    return status;
}

void device_close(Device *device)
{
    if (device->kernels)
        device->driver->module_unload(device->kernels);
    if (device->stream)
        device->driver->stream_free(device->stream);
    memset(device, 0, sizeof *device);
}

/* ---- memory ---- */

static iso_status host_memory(size_t bytes, void **memory)
{
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *memory = aligned_alloc(ALIGNMENT, bytes + ALIGNMENT);
    if (!*memory)
        return iso_fail(ISO_OUT_OF_MEMORY, "no %zu bytes for a model", bytes);
    memset(*memory, 0, bytes + ALIGNMENT);
    return ISO_OK;
}

iso_status device_new(const Device *device, size_t bytes, void **memory)
{
    const Driver *driver = device->driver;
    CuAddress address = 0;
    *memory = NULL;
    if (!driver)
        return host_memory(bytes, memory);
    iso_status status =
        driver_check(driver, driver->memory_new(&address, bytes + ALIGNMENT), "cuMemAlloc");
    if (status)
        return iso_fail(ISO_OUT_OF_MEMORY, "no %zu bytes of device memory for a model", bytes);
    *memory = (void *)(uintptr_t)address;
    return driver_zero(driver, address, bytes + ALIGNMENT);
}

void device_free(const Device *device, void *memory)
{
    if (!device->driver)
        free(memory);
    else if (memory)
        device->driver->memory_free((uintptr_t)memory);
}

iso_status device_host_new(const Device *device, size_t bytes, void **memory)
{
    const Driver *driver = device->driver;
    *memory = NULL;
    if (!driver)
        return host_memory(bytes, memory);
    iso_status status = driver_check(driver, driver->host_new(memory, bytes + ALIGNMENT, 0),
                                     "cuMemHostAlloc");
    if (!status)
        memset(*memory, 0, bytes + ALIGNMENT);
    return status;
}

void device_host_free(const Device *device, void *memory)
{
    if (!device->driver)
        free(memory);
    else if (memory)
        device->driver->host_free(memory);
}

/* ---- copies ---- */

iso_status device_write(const Device *device, void *to, const void *from, size_t bytes)
{
    const Driver *driver = device->driver;
    if (driver && bytes)
        return driver_write(driver, (uintptr_t)to, from, bytes);
    memcpy(to, from, bytes);
    return ISO_OK;
}

iso_status device_read(const Device *device, void *to, const void *from, size_t bytes)
{
    const Driver *driver = device->driver;
    if (driver && bytes)
        return driver_check(driver, driver->memory_read(to, (uintptr_t)from, bytes),
                            "cuMemcpyDtoH");
    memcpy(to, from, bytes);
    return ISO_OK;
}

iso_status device_copy(const Device *device, void *to, const void *from, size_t bytes)
{
    if (!device->driver) {
        if (to != from)
            memcpy(to, from, bytes);
        return ISO_OK;
    }
    if (bytes == 0)
        return ISO_OK;
    return driver_check(device->driver,
                        device->driver->copy_async((uintptr_t)to, (uintptr_t)from, bytes,
                                                   device->stream),
                        "cuMemcpyAsync");
}

iso_status device_fill(const Device *device, void *to, unsigned char value, size_t bytes)
{
    const Driver *driver = device->driver;
    if (driver && bytes)
        return driver_check(
            driver, driver->memset_async((uintptr_t)to, value, bytes, device->stream),
            "cuMemsetD8Async");
    memset(to, value, bytes);
    return ISO_OK;
}

static void copy_rows(const RowCopy *copy)
{
    for (int64_t i = 0; i < copy->rows; i++) {
        int64_t to = copy->to_index ? copy->to_index[i] : i;
        int64_t from = copy->from_index ? copy->from_index[i] : i;
        if (to < 0 || from < 0)
            continue;
        from -= copy->first;
        if (!copy->count || (from >= 0 && from < copy->count))
            memcpy((char *)copy->to + (size_t)to * copy->row_bytes,
                   (const char *)copy->from + (size_t)from * copy->row_bytes, copy->row_bytes);
    }
}

iso_status device_rows(const Device *device, const RowCopy *copy)
{
    const Driver *driver = device->driver;
    if (copy->rows == 0 || copy->row_bytes == 0)
        return ISO_OK;
    if (!driver) {
        copy_rows(copy);
        return ISO_OK;
    }
    CuAddress to = (uintptr_t)copy->to, from = (uintptr_t)copy->from;
    CuAddress to_index = (uintptr_t)copy->to_index, from_index = (uintptr_t)copy->from_index;
    uint32_t units = (uint32_t)(copy->row_bytes / 2);
    uint32_t first = (uint32_t)copy->first;
    uint32_t count = copy->count ? (uint32_t)copy->count : UINT32_MAX;
    void *args[] = {&to, &from, &to_index, &from_index, &units, &first, &count};
    CuLaunchAttribute early = {.id = CU_LAUNCH_STREAM_SERIALIZATION, .value.number = 1};
    CuLaunchConfig config = {.grid_x = (unsigned)copy->rows,
                             .grid_y = 1,
                             .grid_z = 1,
                             .block_x = ROW_THREADS,
                             .block_y = 1,
                             .block_z = 1,
                             .stream = device->stream,
                             .attributes = &early,
                             .n_attributes = 1};
    return driver_check(driver, driver->launch_config(&config, device->rows, args, NULL),
                        "iso_model_rows");
}

iso_status device_sync(const Device *device)
{
    if (!device->driver)
        return ISO_OK;
    return driver_check(device->driver, device->driver->stream_sync(device->stream),
                        "cuStreamSynchronize");
}
