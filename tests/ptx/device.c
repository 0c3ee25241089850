/* The launches of the PTX machine on a GPU: the same cubin, the same tensors byte for byte, and
 * every output that the machine wrote compared with the device's. Runs where there is a driver.
 *
 *   device CUBIN PTX [KERNEL]     KERNEL: part of the kernels' names */
#include "gpu.h"
#include "iso.h"
#include "verify_ptx_impl.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTER_MAPPED = 2 };

/* Memory of the host that the device reaches at the same address. */
typedef struct Pins {
    int (*pin)(void *memory, size_t bytes, unsigned flags);
    int (*unpin)(void *memory);
} Pins;

typedef struct Device {
    iso_module *module;
    Pins pins;
    u8 *wrote; /* the device's outputs of the launch under way */
    int launches, refused;
    i64 outputs, differ;
} Device;

static void fail(const char *what)
{
    fprintf(stderr, "device: %s\n", what);
    exit(2);
}

static Str read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail("a file cannot be read");
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    char *bytes = malloc((size_t)size + 1);
    rewind(file);
    if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        fail("a file cannot be read");
    fclose(file);
    bytes[size] = 0;
    return (Str){bytes, (int)size};
}

static void open_pins(Pins *pins)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        fail("no driver");
    *(void **)(void *)&pins->pin = dlsym(driver, "cuMemHostRegister_v2");
    *(void **)(void *)&pins->unpin = dlsym(driver, "cuMemHostUnregister");
}

/* ---- one launch ------------------------------------------------------------------------------ */

static void fill_inputs(const PtxTrial *t)
{
    for (int i = 0; i < t->worker->memory.regions.n; i++) {
        const PtxRegion *r = &t->worker->memory.regions.v[i];
        if (r->touch && r->size)
            r->touch(r->self, 0, r->size);
    }
}

static PtxTensor *output(PtxTrial *t, int i)
{
    return t->job->phase == ISO_PHASE_PART ? &t->roots : &t->tensor[t->n_params + i];
}

static int outputs(const PtxTrial *t)
{
    return t->job->phase == ISO_PHASE_PART ? 1 : t->n_results;
}

/* What the device wrote is kept, and the machine finds nothing of it. */
static void keep_outputs(Device *d, PtxTrial *t)
{
    size_t total = 0;
    for (int i = 0; i < outputs(t); i++)
        total += output(t, i)->bytes;
    d->wrote = malloc(total + 1);
    u8 *to = d->wrote;
    for (int i = 0; to && i < outputs(t); i++) {
        PtxTensor *o = output(t, i);
        memcpy(to, o->tensor.data, o->bytes);
        memset(o->tensor.data, 0, o->bytes);
        to += o->bytes;
    }
    if (t->run.workspace)
        memset(t->run.workspace, 0, t->run.workspace_bytes);
}

static void launch(Device *d, PtxTrial *t)
{
    const iso_op *op;
    const iso_layout at = {.name = t->op->layout->name, .rank = t->op->rank};
    if (iso_op_get(d->module, t->op->op->name, &at, &op))
        fail(iso_last_error());
    fill_inputs(t);
    for (int i = 0; i < t->place.maps.map.n; i++)
        if (d->pins.pin(t->place.maps.map.v[i], t->place.maps.size.v[i], REGISTER_MAPPED))
            fail("memory cannot be pinned");
    iso_status status = verify_ptx_start(t, op);
    gpu_sync();
    d->refused += status != ISO_OK;
    d->launches++;
    for (int i = 0; i < t->place.maps.map.n; i++)
        d->pins.unpin(t->place.maps.map.v[i]);
    keep_outputs(d, t);
}

static void compare(Device *d, PtxTrial *t)
{
    const u8 *from = d->wrote;
    i64 differ = 0, n = 0;
    for (int i = 0; from && i < outputs(t); i++) {
        const PtxTensor *o = output(t, i);
        size_t each = (size_t)o->element;
        for (size_t at = 0; at + each <= o->bytes; at += each)
            if (o->known[at]) {
                n++;
                differ += memcmp(from + at, (const u8 *)o->tensor.data + at, each) != 0;
            }
        from += o->bytes;
    }
    if (differ)
        printf("%s %s %s phase %d uneven %d: %" PRId64 " of %" PRId64 " differ\n", t->op->op->name,
               t->op->layout->name,
               t->worker->module->manifest->kernels[t->spec->kernel].name, (int)t->job->phase,
               t->job->uneven, differ, n);
    d->outputs += n;
    d->differ += differ;
    free(d->wrote);
    d->wrote = NULL;
}

static void watch(void *self, PtxTrial *trial, bool after)
{
    if (after)
        compare(self, trial);
    else
        launch(self, trial);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        fail("device CUBIN PTX [KERNEL]");
    Device d = {.launches = 0};
    Arena *arena = arena_new();
    Text report = {.arena = arena};
    VerifyPtxResult result;
    gpu_open();
    open_pins(&d.pins);
    VerifyPtxInput input = {.artifact = read_all(argv[1]), .ptx = read_all(argv[2]), .threads = 1,
                            .seed = 1, .only = argc > 3 ? str_of(argv[3]) : STR(""),
                            .watch = watch, .watch_self = &d};
    if (iso_module_load_data(&d.module, input.artifact.s, (size_t)input.artifact.n, NULL))
        fail(iso_last_error());
    const char *problem = verify_ptx(&input, &result, &report);
    if (problem)
        fail(problem);
    printf("%s on %s, driver %d: %d launches, %d refused\n", argv[1], gpu_name(),
           gpu_driver_version(), d.launches, d.refused);
    printf("  machine: %d findings, %" PRId64 " of %" PRId64 " differ from the executor\n",
           result.findings, result.differ, result.outputs);
    printf("  device: %" PRId64 " of %" PRId64 " differ from the machine\n", d.differ, d.outputs);
    iso_module_unload(d.module);
    return d.differ || result.findings || !d.outputs ? 1 : 0;
}
