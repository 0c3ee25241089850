/* Modules: from a file or bytes to kernels that are ready on a device. */
#include "module.h"

#include "launch/cache_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- bytes ---- */

static iso_status read_file(const char *path, unsigned char **data, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return iso_fail(ISO_FILE, "%s: %s", path, strerror(errno));
    iso_status status = ISO_OK;
    unsigned char *bytes = NULL;
    size_t n = 0, room = 0;
    for (;;) {
        if (n == room) {
            unsigned char *more = realloc(bytes, room = room ? 2 * room : 1 << 20);
            if (!more) {
                status = iso_fail(ISO_OUT_OF_MEMORY, "no memory to read %s", path);
                break;
            }
            bytes = more;
        }
        size_t got = fread(bytes + n, 1, room - n, file);
        n += got;
        if (got == 0)
            break;
    }
    if (!status && ferror(file))
        status = iso_fail(ISO_FILE, "%s: reading failed", path);
    fclose(file);
    if (status)
        free(bytes);
    *data = status ? NULL : bytes;
    *size = n;
    return status;
}

static bool is_contract(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".iso");
}

/* ---- opening ---- */

static iso_status open_manifest(iso_module *module, const void *data, size_t size)
{
    const char *json;
    size_t json_size;
    bool intact;
    if (isoc_cubin_manifest(data, size, &json, &json_size, &intact) != ISOC_OK)
        return iso_fail(ISO_NOT_ISO, "no readable .note.iso section in %zu bytes; "
                        "`isoc FILE.iso -o FILE.cubin` writes one", size);
    if (!intact)
        return iso_fail(ISO_CORRUPT, "the cubin's bytes are not the ones that isoc wrote; copy or "
                                     "compile it again");
    module->json = malloc(json_size + 1);
    if (!module->json)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a manifest of %zu bytes", json_size);
    memcpy(module->json, json, json_size);
    module->json[json_size] = '\0';
    module->json_bytes = json_size;
    return manifest_read(json, json_size, &module->manifest);
}

static iso_status make_ops(iso_module *module)
{
    const Manifest *manifest = module->manifest;
    for (int l = 0; l < manifest->n_layouts; l++)
        module->n_ops += manifest->layouts[l].n_ops * manifest->layouts[l].ranks;
    module->ops = calloc((size_t)module->n_ops + 1, sizeof(iso_op));
    if (!module->ops)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for %d ops", module->n_ops);
    iso_op *op = module->ops;
    for (int l = 0; l < manifest->n_layouts; l++) {
        const MfLayout *layout = &manifest->layouts[l];
        for (int i = 0; i < layout->n_ops; i++)
            for (int rank = 0; rank < layout->ranks; rank++)
                *op++ = (iso_op){module, layout, &layout->ops[i], &manifest->ops[layout->ops[i].op],
                                 rank};
    }
    return ISO_OK;
}

static iso_status check_architecture(iso_module *module, CuDevice device)
{
    const Driver *driver = module->driver;
    int major = 0, minor = 0, want = atoi(module->manifest->arch + 3);
    driver->device_attribute(&major, CU_ATTRIBUTE_MAJOR, device);
    driver->device_attribute(&minor, CU_ATTRIBUTE_MINOR, device);
    driver->device_attribute(&module->multiprocessors, CU_ATTRIBUTE_MULTIPROCESSORS, device);
    if (major * 10 + minor == want)
        return ISO_OK;
    return iso_fail(ISO_ARCHITECTURE,
                    "the cubin is for %s, the device has compute capability %d.%d",
                    module->manifest->arch, major, minor);
}

static iso_status load_functions(iso_module *module)
{
    const Driver *driver = module->driver;
    const Manifest *manifest = module->manifest;
    module->functions = calloc((size_t)manifest->n_kernels + 1, sizeof(CuFunction));
    if (!module->functions)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for %d kernels", manifest->n_kernels);
    for (int i = 0; i < manifest->n_kernels; i++) {
        const MfKernel *kernel = &manifest->kernels[i];
        iso_status status = driver_check(
            driver, driver->module_function(&module->functions[i], module->cubin, kernel->name),
            kernel->name);
        /* Static shared memory counts towards the default limit too, so always ask. */
        if (!status && kernel->shared_bytes > 0)
            status =
                driver_check(driver,
                             driver->function_set(module->functions[i], CU_FUNC_MAX_DYNAMIC_SHARED,
                                                  kernel->shared_bytes),
                             "cuFuncSetAttribute");
        if (status)
            return status;
    }
    return ISO_OK;
}

static bool attends(const Manifest *manifest)
{
    for (int i = 0; i < manifest->n_kernels; i++)
        if (manifest->kernels[i].family == MF_ATTEND)
            return true;
    return false;
}

static iso_status open_cuda(iso_module *module, const void *data)
{
    CuDevice device;
    iso_status status = driver_open(&module->driver);
    if (!status)
        status = driver_context(module->driver, &device);
    if (!status)
        status = check_architecture(module, device);
    if (!status)
        status = driver_check(module->driver, module->driver->module_load(&module->cubin, data),
                              "cuModuleLoadData");
    if (!status)
        status = load_functions(module);
    if (!status && attends(module->manifest))
        status = cache_write_open(module->driver, &module->cache_module, &module->cache_write);
    return status;
}

static iso_status open_cpu(iso_module *module, int threads)
{
    const Manifest *manifest = module->manifest;
    isoc_source *sources = calloc((size_t)manifest->n_sources + 1, sizeof *sources);
    if (!sources)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for the contract");
    for (int i = 0; i < manifest->n_sources; i++)
        sources[i] = (isoc_source){manifest->sources[i].name, manifest->sources[i].text};
    char *messages = NULL;
    isoc_status opened =
        isoc_session_open(sources, (size_t)manifest->n_sources, &module->session, &messages);
    free(sources);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    module->cpu_threads = threads > 0 ? threads : processors > 0 ? (int)processors : 1;
    iso_status status = ISO_OK;
    uint8_t digest[32];
    if (opened != ISOC_OK) {
        status = iso_fail(ISO_CONTRACT, "the manifest's contract: %s",
                          messages ? messages : "no memory");
    } else {
        isoc_session_fingerprint(module->session, digest);
        if (memcmp(digest, manifest->fingerprint, 32))
            status = iso_fail(ISO_FINGERPRINT, "this library reads the manifest's contract as "
                                               "another one; recompile it with this version");
    }
    free(messages);
    return status;
}

static iso_status open_module(iso_module *module, const void *data, size_t size,
                              const iso_config *config)
{
    iso_status status = open_manifest(module, data, size);
    if (!status)
        status = make_ops(module);
    if (status)
        return status;
    module->device = config ? config->device : ISO_CUDA;
    if (module->device == ISO_CUDA)
        return open_cuda(module, data);
    if (module->device == ISO_CPU)
        return open_cpu(module, config->cpu_threads);
    return iso_fail(ISO_INVALID_ARGUMENT, "device %d is neither ISO_CUDA nor ISO_CPU",
                    (int)module->device);
}

iso_status iso_module_load_data(iso_module **module, const void *data, size_t size,
                                const iso_config *config)
{
    if (module)
        *module = NULL;
    if (!module || !data)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_module_load: module and data must not be NULL");
    if (config && config->size != sizeof(iso_config))
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_config.size is %zu, this library's is %zu",
                        config->size, sizeof(iso_config));
    iso_module *opened = calloc(1, sizeof *opened);
    if (!opened)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a module");
    iso_status status = open_module(opened, data, size, config);
    if (status)
        iso_module_unload(opened);
    else
        *module = opened;
    return status;
}

iso_status module_load_on(iso_module **module, const void *data, size_t size, const Driver *driver,
                          CuModule loaded)
{
    iso_module *opened = calloc(1, sizeof *opened);
    *module = NULL;
    if (!opened)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a module");
    iso_status status = open_manifest(opened, data, size);
    if (!status)
        status = make_ops(opened);
    if (!status) {
        opened->driver = driver;
        opened->cubin = loaded;
        status = check_architecture(opened, 0);
    }
    if (!status)
        status = load_functions(opened);
    if (status)
        iso_module_unload(opened);
    else
        *module = opened;
    return status;
}

/* ---- from a file ---- */

static iso_status compile_and_load(iso_module **module, const char *path, const iso_config *config)
{
    isoc_options options = {.size = sizeof options, .cache_dir = config ? config->cache_dir : NULL};
    isoc_result result = {0};
    isoc_status compiled = isoc_compile_file(path, &options, &result);
    iso_status status;
    if (compiled == ISOC_OK)
        status = iso_module_load_data(module, result.cubin, result.cubin_size, config);
    else
        status = iso_fail(compiled == ISOC_ERROR_TOOLCHAIN ? ISO_TOOLCHAIN
                          : compiled == ISOC_ERROR_MEMORY  ? ISO_OUT_OF_MEMORY
                          : compiled == ISOC_ERROR_USAGE   ? ISO_FILE
                                                           : ISO_CONTRACT,
                          "%s", result.messages ? result.messages : "no memory");
    isoc_result_free(&result);
    return status;
}

iso_status iso_module_load(iso_module **module, const char *path, const iso_config *config)
{
    if (module)
        *module = NULL;
    if (!module || !path)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_module_load: module and path must not be NULL");
    if (is_contract(path))
        return compile_and_load(module, path, config);
    unsigned char *data = NULL;
    size_t size = 0;
    iso_status status = read_file(path, &data, &size);
    if (!status)
        status = iso_module_load_data(module, data, size, config);
    free(data);
    return status;
}

void iso_module_unload(iso_module *module)
{
    if (!module)
        return;
    if (module->cubin)
        module->driver->module_unload(module->cubin);
    if (module->cache_module)
        module->driver->module_unload(module->cache_module);
    isoc_session_close(module->session);
    manifest_free(module->manifest);
    free(module->json);
    free(module->functions);
    free(module->ops);
    free(module);
}

/* ---- what a module says of itself ---- */

iso_status iso_module_fingerprint(const iso_module *module, uint8_t digest[32])
{
    if (!module || !digest)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_module_fingerprint: NULL argument");
    memcpy(digest, module->manifest->fingerprint, 32);
    return ISO_OK;
}

iso_status iso_module_expect(const iso_module *module, const uint8_t digest[32])
{
    if (!module || !digest)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_module_expect: NULL argument");
    if (!memcmp(digest, module->manifest->fingerprint, 32))
        return ISO_OK;
    return iso_fail(ISO_FINGERPRINT,
                    "contract %s has another fingerprint than the one expected; "
                    "`isoc diff` names the ops that differ",
                    module->manifest->contract);
}

iso_status iso_module_name(const iso_module *module, const char **name, int *version)
{
    if (!module || !name || !version)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_module_name: NULL argument");
    *name = module->manifest->contract;
    *version = module->manifest->version;
    return ISO_OK;
}

const char *iso_module_op_name(const iso_module *module, int index)
{
    return module && index >= 0 && index < module->manifest->n_ops
               ? module->manifest->ops[index].name
               : NULL;
}

const char *iso_module_layout_name(const iso_module *module, int index)
{
    return module && index >= 0 && index < module->manifest->n_layouts
               ? module->manifest->layouts[index].name
               : NULL;
}

iso_status iso_module_layout_ranks(const iso_module *module, const char *layout, int *ranks)
{
    if (!module || !layout || !ranks)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_module_layout_ranks: NULL argument");
    for (int i = 0; i < module->manifest->n_layouts; i++)
        if (!strcmp(module->manifest->layouts[i].name, layout)) {
            *ranks = module->manifest->layouts[i].ranks;
            return ISO_OK;
        }
    return iso_fail(ISO_UNKNOWN_LAYOUT, "contract %s has no layout %s", module->manifest->contract,
                    layout);
}

iso_status iso_module_manifest(const iso_module *module, const char **json, size_t *bytes)
{
    if (!module || !json)
        return iso_fail(ISO_INVALID_ARGUMENT, "module or json is NULL");
    *json = module->json;
    if (bytes)
        *bytes = module->json_bytes;
    return ISO_OK;
}
