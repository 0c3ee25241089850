/* Opens libcuda.so.1 once for the process. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static Driver table;
static char problem[256];

/* dlsym gives an object pointer; POSIX promises that its bytes are a function's address. */
static bool find(void *library, const char *symbol, void *slot)
{
    void *address = dlsym(library, symbol);
    if (!address)
        snprintf(problem, sizeof problem, "the CUDA driver has no %s; update the driver", symbol);
    memcpy(slot, &address, sizeof address);
    return address != NULL;
}

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        snprintf(problem, sizeof problem,
                 "libcuda.so.1 could not be opened; install the NVIDIA driver or use ISO_CPU");
        return;
    }
#define X(member, symbol, parameters)                                                              \
    if (!find(library, symbol, &table.member))                                                     \
        return;
    DRIVER_LIST(X)
#undef X
    CuResult result = table.init(0);
    if (result) {
        const char *text = NULL;
        table.error_string(result, &text);
        snprintf(problem, sizeof problem, "cuInit: %s", text ? text : "unknown error");
    }
}

iso_status driver_open(const Driver **driver)
{
    pthread_once(&once, open_driver);
    if (problem[0])
        return iso_fail(ISO_DRIVER, "%s", problem);
    *driver = &table;
    return ISO_OK;
}

iso_status driver_check(const Driver *driver, CuResult result, const char *what)
{
    if (result == 0)
        return ISO_OK;
    const char *text = NULL;
    driver->error_string(result, &text);
    return iso_fail(ISO_DRIVER, "%s: %s", what, text ? text : "unknown error");
}

static iso_status arrived(const Driver *driver, iso_status status)
{
    return status ? status
                  : driver_check(driver, driver->stream_sync(NULL), "cuStreamSynchronize");
}

iso_status driver_write(const Driver *driver, CuAddress to, const void *from, size_t bytes)
{
    return arrived(driver, driver_check(driver, driver->memory_write(to, from, bytes),
                                        "cuMemcpyHtoD"));
}

iso_status driver_zero(const Driver *driver, CuAddress to, size_t bytes)
{
    return arrived(driver, driver_check(driver, driver->memory_set(to, 0, bytes), "cuMemsetD8"));
}

iso_status driver_context(const Driver *driver, CuDevice *device)
{
    CuContext context = NULL;
    iso_status status = driver_check(driver, driver->context_get(&context), "cuCtxGetCurrent");
    if (status)
        return status;
    if (context)
        return driver_check(driver, driver->context_device(device), "cuCtxGetDevice");
    status = driver_check(driver, driver->device_get(device, 0), "cuDeviceGet");
    if (!status)
        status = driver_check(driver, driver->primary_retain(&context, *device),
                              "cuDevicePrimaryCtxRetain");
    if (!status)
        status = driver_check(driver, driver->context_set(context), "cuCtxSetCurrent");
    return status;
}
