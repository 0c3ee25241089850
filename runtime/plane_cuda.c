/* GPUs of one host: slots and flags in device memory that the peers map, through CUDA IPC between
 * processes and directly between threads of one. */
#include "group.h"
#include "group_ptx.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two slots for calls as they are made, two for calls that a graph holds: a replay's slots do not
 * depend on how many calls came between, so each graph begins with a sync of its own. */
enum { EAGER_SLOTS = 2, SLOTS = 4 };

/* The head of a rank's device memory; the slots follow. */
enum { HEAD_FLAGS = 0, HEAD_STATE = 1024, HEAD_PEERS = 2048, HEAD_BYTES = 4096 };

/* In host memory that the device sees. */
typedef struct Word {
    volatile uint32_t lost[GROUP_RANKS];
    volatile uint64_t report;
} Word;

typedef struct CudaPlane {
    Plane plane;
    const Driver *driver;
    CuModule module;
    CuFunction sync;
    CuAddress memory; /* head and slots */
    CuAddress opened[GROUP_RANKS];
    CuAddress scratch, word_address;
    Word *word;
    unsigned long long capture; /* the last graph that was begun */
    int calls, graph_calls;
} CudaPlane;

/* ---- calls ---- */

static iso_status cuda_sync(Plane *plane, uint32_t tag, const Parcels *parcels, void *stream)
{
    (void)parcels;
    CudaPlane *p = (CudaPlane *)plane;
    CuAddress peers = p->memory + HEAD_PEERS, flags = p->memory + HEAD_FLAGS;
    CuAddress state = p->memory + HEAD_STATE;
    CuAddress lost = p->word_address + offsetof(Word, lost);
    CuAddress report = p->word_address + offsetof(Word, report);
    uint64_t timeout = (uint64_t)(plane->config.timeout * 1e9);
    uint32_t ranks = (uint32_t)plane->config.ranks;
    void *args[] = {&peers, &flags, &state, &lost, &report, &timeout, &ranks, &tag};
    return driver_check(p->driver,
                        p->driver->launch(p->sync, 1, 1, 1, (ranks + 31) / 32 * 32, 1, 1, 0, stream,
                                          args, NULL),
                        "iso_group_sync");
}

static iso_status cuda_begin(Plane *plane, uint32_t tag, void *stream, int *slot)
{
    CudaPlane *p = (CudaPlane *)plane;
    int capturing = CU_CAPTURE_NONE;
    unsigned long long id = 0;
    CuResult result = p->driver->capture_info(stream, &capturing, &id, NULL, NULL, NULL);
    iso_status status = driver_check(p->driver, result, "cuStreamGetCaptureInfo");
    if (status || capturing == CU_CAPTURE_NONE) {
        *slot = p->calls++ % EAGER_SLOTS;
        return status;
    }
    *slot = EAGER_SLOTS + p->graph_calls++ % (SLOTS - EAGER_SLOTS);
    if (p->capture == id)
        return ISO_OK;
    p->capture = id;
    return cuda_sync(plane, tag, &(Parcels){STAGE_NOTHING, NULL, 0}, stream);
}

static iso_status cuda_copy(Plane *plane, const Copy *copy, void *stream)
{
    const Driver *driver = ((CudaPlane *)plane)->driver;
    CuAddress to = (uintptr_t)copy->to, from = (uintptr_t)copy->from;
    if (copy->rows == 1)
        return driver_check(driver, driver->copy_async(to, from, copy->width, stream),
                            "cuMemcpyAsync");
    CuCopy2d plain = {.from_type = CU_MEMORY_DEVICE,
                      .from = from,
                      .from_pitch = copy->from_pitch,
                      .to_type = CU_MEMORY_DEVICE,
                      .to = to,
                      .to_pitch = copy->to_pitch,
                      .width = copy->width,
                      .height = copy->rows};
    return driver_check(driver, driver->copy_2d_async(&plain, stream), "cuMemcpy2DAsync");
}

static void cuda_failure(Plane *plane, PlaneFailure *failure)
{
    static const iso_status of[] = {ISO_OK, ISO_RANK_LOST, ISO_RANK_TIMEOUT, ISO_DISORDER};
    uint64_t report = ((CudaPlane *)plane)->word->report;
    *failure = (PlaneFailure){of[report >> 56 & 3], (int)(report >> 32 & 0xffffff),
                              (uint32_t)report};
}

static void cuda_close(Plane *plane)
{
    CudaPlane *p = (CudaPlane *)plane;
    store_mirror(plane->config.store, NULL);
    for (int r = 0; r < plane->config.ranks; r++)
        if (p->opened[r])
            p->driver->ipc_close(p->opened[r]);
    if (p->memory)
        p->driver->memory_free(p->memory);
    if (p->scratch)
        p->driver->memory_free(p->scratch);
    if (p->word)
        p->driver->host_free(p->word);
    if (p->module)
        p->driver->module_unload(p->module);
    free(p);
}

static const PlaneKind cuda_kind = {cuda_close, cuda_begin, cuda_sync, cuda_copy, cuda_failure};

/* ---- opening ---- */

/* What the others need to reach this rank's memory. Ranks of one process have the mark in common:
 * its address with its value is no other process's. */
typedef struct Door {
    CuIpcHandle handle;
    CuAddress address;
    uint64_t process, mark, ready;
    int device;
    char host[64];
} Door;

static iso_status make_memory(CudaPlane *p, Door *door)
{
    enum { GRAIN = 2 << 20 }; /* an allocation of its own, which IPC handles are for */
    const Driver *driver = p->driver;
    size_t bytes = HEAD_BYTES + SLOTS * p->plane.config.bytes;
    void *word = NULL;
    iso_status status = driver_check(driver, driver->module_load(&p->module, group_ptx),
                                     "the group's kernel");
    if (!status)
        status = driver_check(driver, driver->module_function(&p->sync, p->module,
                                                              "iso_group_sync"),
                              "iso_group_sync");
    if (!status)
        status = driver_check(driver,
                              driver->memory_new(&p->memory, (bytes + GRAIN - 1) / GRAIN * GRAIN),
                              "cuMemAlloc of a group's slots");
    if (!status)
        status = driver_check(driver, driver->memory_new(&p->scratch, p->plane.config.bytes),
                              "cuMemAlloc of a group's scratch");
    if (!status)
        status = driver_check(driver, driver->memory_set(p->memory, 0, HEAD_BYTES), "cuMemsetD8");
    if (!status)
        status = driver_check(
            driver, driver->host_new(&word, sizeof(Word), CU_HOST_PORTABLE | CU_HOST_MAPPED),
            "cuMemHostAlloc");
    if (status)
        return status;
    p->word = memset(word, 0, sizeof(Word));
    p->plane.scratch = (char *)(uintptr_t)p->scratch;
    store_mirror(p->plane.config.store, p->word->lost);
    door->address = p->memory;
    status = driver_check(driver, driver->host_address(&p->word_address, word, 0),
                          "cuMemHostGetDevicePointer");
    return status ? status
                  : driver_check(driver, driver->ipc_get(&door->handle, p->memory),
                                 "cuIpcGetMemHandle");
}

static iso_status open_peer(CudaPlane *p, int rank, const Door *own, const Door *door,
                            CuAddress *memory)
{
    bool here = door->process == own->process && door->mark == own->mark &&
                !memcmp(door->host, own->host, sizeof own->host);
    *memory = door->address;
    if (!door->ready)
        return iso_fail(ISO_DRIVER, "rank %d could not open its device memory", rank);
    if (here && door->device != own->device)
        return iso_fail(ISO_UNSUPPORTED, "rank %d is a thread of this process on another GPU: give "
                                         "each GPU a process", rank);
    if (here)
        return ISO_OK;
    CuResult result =
        p->driver->ipc_open(&p->opened[rank], door->handle, CU_IPC_LAZY_PEER_ACCESS);
    *memory = p->opened[rank];
    if (!result)
        return ISO_OK;
    p->opened[rank] = 0;
    driver_check(p->driver, result, "cuIpcOpenMemHandle");
    char why[200];
    snprintf(why, sizeof why, "%s", iso_last_error());
    return iso_fail(ISO_UNSUPPORTED, "the memory of rank %d on host %s is not to be reached from "
                                     "here: %s", rank, door->host, why);
}

static iso_status open_peers(CudaPlane *p, const Door *own, const Door *doors)
{
    const PlaneConfig *config = &p->plane.config;
    CuAddress peers[GROUP_RANKS] = {0};
    for (int r = 0; r < config->ranks; r++) {
        CuAddress memory;
        iso_status status = open_peer(p, r, own, &doors[r], &memory);
        if (status)
            return status;
        p->plane.together |= r != config->rank && !p->opened[r];
        p->plane.slots[r] = (char *)(uintptr_t)(memory + HEAD_BYTES);
        peers[r] = memory + HEAD_FLAGS + 8 * (CuAddress)config->rank;
    }
    return driver_check(p->driver,
                        p->driver->memory_write(p->memory + HEAD_PEERS, peers, sizeof peers),
                        "cuMemcpyHtoD");
}

/* A rank that fails still takes part in both exchanges, so that none waits for it. */
static iso_status exchange_memory(CudaPlane *p)
{
    static atomic_int mark;
    const PlaneConfig *config = &p->plane.config;
    Door own = {.process = (uint64_t)getpid(), .mark = (uintptr_t)&mark}, doors[GROUP_RANKS];
    int done, all[GROUP_RANKS];
    iso_status mine = driver_context(p->driver, &own.device);
    gethostname(own.host, sizeof own.host - 1);
    if (!mine)
        mine = make_memory(p, &own);
    own.ready = mine == ISO_OK;
    iso_status status = store_gather(config->store, &own, sizeof own, doors);
    if (!mine && !status)
        mine = open_peers(p, &own, doors);
    done = mine == ISO_OK;
    if (!status)
        status = store_gather(config->store, &done, sizeof done, all);
    for (int r = 0; r < config->ranks && !status && !mine; r++)
        if (!all[r])
            status = iso_fail(ISO_UNSUPPORTED, "rank %d cannot reach the others' memory", r);
    return mine ? mine : status;
}

iso_status plane_cuda_open(const PlaneConfig *config, const Driver *driver, Plane **plane)
{
    *plane = NULL;
    CudaPlane *p = calloc(1, sizeof *p);
    if (!p)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a group");
    p->plane = (Plane){.kind = &cuda_kind, .config = *config};
    p->driver = driver;
    iso_status status = exchange_memory(p);
    if (status)
        cuda_close(&p->plane);
    else
        *plane = &p->plane;
    return status;
}
