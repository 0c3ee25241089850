/* The launches of the PTX machine on a GPU: the same cubin, the same tensors byte for byte, and
 * every output that the machine wrote compared with the device's. Runs where there is a driver.
 *
 *   device CUBIN PTX [KERNEL]     KERNEL: part of the kernels' names */
#include "gpu.h"
#include "iso.h"
#include "prove/verify_ptx_impl.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REGISTER_MAPPED = 2 };

/* Memory of the host that the device reaches at the same address. */
typedef struct Pins {
    int (*pin)(void *memory, size_t bytes, unsigned flags);
    int (*unpin)(void *memory);
    int (*sync)(void);
} Pins;

/* The workers of the machine take turns on it. */
typedef struct Device {
    pthread_mutex_t turn;
    iso_module *module;
    Pins pins;
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
    *(void **)(void *)&pins->sync = dlsym(driver, "cuCtxSynchronize");
}

/* ---- one launch ------------------------------------------------------------------------------ */

static PtxTensor *output(PtxTrial *t, int i)
{
    return t->job->phase == ISO_PHASE_PART ? &t->roots : &t->tensor[t->n_params + i];
}

static int outputs(const PtxTrial *t)
{
    return t->job->phase == ISO_PHASE_PART ? 1 : t->n_results;
}

/* What the machine wrote is kept, and the device finds nothing of it; the outputs come back. */
static size_t take_outputs(PtxTrial *t, u8 *kept)
{
    size_t total = 0;
    for (int i = 0; i < outputs(t); i++) {
        PtxTensor *o = output(t, i);
        if (kept) {
            memcpy(kept + total, o->tensor.data, o->bytes);
            memset(o->tensor.data, 0, o->bytes);
        }
        total += o->bytes;
    }
    if (kept && t->run.workspace)
        memset(t->run.workspace, 0, t->run.workspace_bytes);
    return total;
}

static void launch(Device *d, PtxTrial *t)
{
    const iso_op *op;
    const iso_layout at = {.name = t->op->layout->name, .rank = t->op->rank};
    if (iso_op_get(d->module, t->op->op->name, &at, &op))
        fail(iso_last_error());
    for (int i = 0; i < t->place.maps.map.n; i++)
        if (d->pins.pin(t->place.maps.map.v[i], t->place.maps.size.v[i], REGISTER_MAPPED))
            fail("memory cannot be pinned");
    iso_status status = verify_ptx_start(t, op);
    int error = d->pins.sync();
    if (error) {
        fprintf(stderr, "%s %s %s phase %d uneven %d: error %d\n", t->op->op->name,
                t->op->layout->name,
                t->worker->module->manifest->kernels[t->spec->kernel].name, (int)t->job->phase,
                t->job->uneven, error);
        fail("the device failed");
    }
    d->refused += status != ISO_OK;
    d->launches++;
    for (int i = 0; i < t->place.maps.map.n; i++)
        d->pins.unpin(t->place.maps.map.v[i]);
}

static void compare(Device *d, const PtxTrial *t, const PtxTensor *o, const u8 *machine)
{
    size_t each = (size_t)o->element;
    i64 differ = 0, n = 0;
    for (size_t at = 0; at + each <= o->bytes; at += each)
        if (o->known[at]) {
            n++;
            differ += memcmp(machine + at, (const u8 *)o->tensor.data + at, each) != 0;
        }
    if (differ)
        printf("%s %s %s phase %d uneven %d: %" PRId64 " of %" PRId64 " differ\n", t->op->op->name,
               t->op->layout->name,
               t->worker->module->manifest->kernels[t->spec->kernel].name, (int)t->job->phase,
               t->job->uneven, differ, n);
    d->outputs += n;
    d->differ += differ;
}

static void open_here(void)
{
    static _Thread_local bool open;
    if (!open)
        gpu_open_thread();
    open = true;
}

/* After the machine, which has filled what it read of the inputs; the rest, which the tiles that
 * it ran do not read, is zeros. */
static void watch(void *self, PtxTrial *t, bool after)
{
    if (!after)
        return;
    Device *d = self;
    u8 *machine = malloc(take_outputs(t, NULL) + 1), *from = machine;
    if (!machine)
        fail("no memory");
    take_outputs(t, machine);
    pthread_mutex_lock(&d->turn);
    open_here();
    launch(d, t);
    for (int i = 0; i < outputs(t); i++) {
        PtxTensor *o = output(t, i);
        compare(d, t, o, from);
        memcpy(o->tensor.data, from, o->bytes);
        from += o->bytes;
    }
    pthread_mutex_unlock(&d->turn);
    free(machine);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        fail("device CUBIN PTX [KERNEL]");
    Device d = {.turn = PTHREAD_MUTEX_INITIALIZER};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    Arena *arena = arena_new();
    Text report = {.arena = arena};
    VerifyPtxResult result;
    gpu_open();
    open_pins(&d.pins);
    VerifyPtxInput input = {.artifact = read_all(argv[1]), .ptx = read_all(argv[2]), .seed = 1,
                            .threads = cores < 1 ? 1 : (int)cores,
                            .only = argc > 3 ? str_of(argv[3]) : STR(""),
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
