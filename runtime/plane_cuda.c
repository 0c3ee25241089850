/* GPUs: slots and flags in device memory that the peers map, through CUDA IPC between processes and
 * directly between threads of one. Of ranks that cannot be reached so, NCCL brings copies. */
#include "far.h"
#include "group_plan.h"
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
enum {
    HEAD_FLAGS = 0,
    HEAD_STATE = 1024,
    HEAD_OWN = 1280,     /* the flag that far ranks are sent */
    HEAD_NOWHERE = 1536, /* where a flag goes that nobody reads: a far rank's is sent */
    HEAD_PEERS = 2048,
    HEAD_BYTES = 4096
};

typedef struct CudaPlane {
    Plane plane;
    const Driver *driver;
    CuModule module;
    CuFunction sync, mark, copy;
    CuAddress memory; /* head and slots */
    CuAddress opened[GROUP_RANKS];
    CuAddress scratch, copies, word_address; /* copies: of far ranks' slots */
    Word *word;
    Far *far; /* NULL where every rank is near */
    unsigned long long capture; /* the last graph that was begun */
    int calls, graph_calls;
} CudaPlane;

/* Groups that were opened at once, at most: a process that has had two may have graphs of both. */
static atomic_int planes_open, planes_ever;

/* ---- calls ---- */

/* A join may take its places while the others are waited for, if it leaves room enough for whatever
 * they wait for in turn: where this process has no other group, and few blocks are launched. */
static bool may_begin_early(const CudaPlane *p, const Parcels *parcels)
{
    enum { FEW_BYTES = 256 << 10 }; /* 2 KiB to a block of 256 threads */
    if (parcels->stage != STAGE_ROOTS || p->plane.together || atomic_load(&planes_ever) > 1)
        return false;
    const GroupPlan *plan = parcels->plan;
    return roots_bytes(plan->op, plan->rows) <= FEW_BYTES;
}

/* Tells the near ranks, and waits for all. */
static iso_status sync_flags(Plane *plane, uint32_t tag, const Parcels *parcels, void *stream)
{
    CudaPlane *p = (CudaPlane *)plane;
    uint32_t early = may_begin_early(p, parcels);
    CuAddress peers = p->memory + HEAD_PEERS, flags = p->memory + HEAD_FLAGS;
    CuAddress state = p->memory + HEAD_STATE;
    CuAddress lost = p->word_address + offsetof(Word, lost);
    CuAddress gone = lost + GROUP_RANKS * sizeof(uint32_t);
    CuAddress report = p->word_address + offsetof(Word, report);
    uint64_t timeout = (uint64_t)(plane->config.timeout * 1e9);
    uint32_t ranks = (uint32_t)plane->config.ranks;
    void *args[] = {&peers, &flags, &state, &lost, &gone, &report, &timeout, &ranks, &tag, &early};
    /* It waits itself for what comes before: being launched takes no time then. */
    CuLaunchAttribute overlap = {.id = CU_LAUNCH_STREAM_SERIALIZATION, .value.number = 1};
    CuLaunchConfig config = {.grid_x = 1,
                             .grid_y = 1,
                             .grid_z = 1,
                             .block_x = (ranks + 31) / 32 * 32,
                             .block_y = 1,
                             .block_z = 1,
                             .stream = stream,
                             .attributes = &overlap,
                             .n_attributes = 1};
    return driver_check(p->driver, p->driver->launch_config(&config, p->sync, args, NULL),
                        "iso_group_sync");
}

static iso_status mark(CudaPlane *p, uint32_t tag, uint32_t ahead, size_t word, void *stream)
{
    CuAddress state = p->memory + HEAD_STATE, flag = p->memory + HEAD_OWN;
    CuAddress at = p->word_address + word;
    void *args[] = {&state, &flag, &at, &tag, &ahead};
    return driver_check(p->driver,
                        p->driver->launch(p->mark, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL),
                        "iso_group_mark");
}

static iso_status cuda_sync(Plane *plane, uint32_t tag, const Parcels *parcels, void *stream)
{
    CudaPlane *p = (CudaPlane *)plane;
    if (!p->far)
        return sync_flags(plane, tag, parcels, stream);
    iso_status status = mark(p, tag, 1, offsetof(Word, begun), stream);
    if (!status)
        status = far_exchange(p->far, parcels, plane->slots, stream);
    if (!status)
        status = sync_flags(plane, tag, parcels, stream);
    return status ? status : mark(p, tag, 0, offsetof(Word, ended), stream);
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
    return cuda_sync(plane, tag, &(Parcels){.stage = STAGE_NOTHING}, stream);
}

static iso_status copy_by_driver(const Driver *driver, const Copy *copy, void *stream)
{
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

/* The widest unit that everything is a multiple of; what no unit fits, and what units of 32 bits do
 * not count, is the driver's. */
static bool device_copy(const Copy *copy, DeviceCopy *out)
{
    uint64_t all = (uintptr_t)copy->to | (uintptr_t)copy->from | copy->width;
    uint32_t log = 4;
    if (copy->rows > 1)
        all |= copy->to_pitch | copy->from_pitch;
    while (log > 0 && all & ((1u << log) - 1))
        log--;
    uint64_t units = copy->rows * (copy->width >> log);
    *out = (DeviceCopy){(uintptr_t)copy->to, (uintptr_t)copy->from, copy->to_pitch,
                        copy->from_pitch,    (uint32_t)units,       (uint32_t)(copy->width >> log),
                        log,                 0};
    return log > 0 && units < 1u << 30;
}

static iso_status copy_by_kernel(CudaPlane *p, const DeviceCopy *list, int n, void *stream)
{
    enum { THREADS = 256, EACH = 4 * THREADS, MOST_BLOCKS = 512 };
    unsigned most = 0;
    for (int i = 0; i < n; i++)
        most = list[i].units > most ? list[i].units : most;
    unsigned blocks = most / EACH + 1 < MOST_BLOCKS ? most / EACH + 1 : MOST_BLOCKS;
    void *args[] = {(void *)(uintptr_t)list};
    if (n == 0)
        return ISO_OK;
    return driver_check(p->driver,
                        p->driver->launch(p->copy, blocks, (unsigned)n, 1, THREADS, 1, 1, 0, stream,
                                          args, NULL),
                        "iso_group_copy");
}

static iso_status cuda_copy(Plane *plane, const Copy *copies, int n, void *stream)
{
    CudaPlane *p = (CudaPlane *)plane;
    DeviceCopy list[DEVICE_COPIES];
    int listed = 0;
    iso_status status = ISO_OK;
    for (int i = 0; i < n && !status; i++) {
        if (!device_copy(&copies[i], &list[listed]))
            status = copy_by_driver(p->driver, &copies[i], stream);
        else
            listed++;
        if (listed == DEVICE_COPIES || i == n - 1) {
            status = status ? status : copy_by_kernel(p, list, listed, stream);
            listed = 0;
        }
    }
    return status;
}

static void cuda_failure(Plane *plane, PlaneFailure *failure)
{
    static const iso_status of[] = {ISO_OK, ISO_RANK_LOST, ISO_RANK_TIMEOUT, ISO_DISORDER};
    const Word *word = ((CudaPlane *)plane)->word;
    uint64_t report = word->found ? word->found : word->report;
    *failure = (PlaneFailure){of[report >> 56 & 3], (int)(report >> 32 & 0xffffff),
                              (uint32_t)report};
}

static void cuda_close(Plane *plane)
{
    CudaPlane *p = (CudaPlane *)plane;
    atomic_fetch_sub(&planes_open, 1);
    far_close(p->far, p->word && (p->word->report || p->word->found));
    store_mirror(plane->config.store, NULL);
    for (int r = 0; r < plane->config.ranks; r++)
        if (p->opened[r])
            p->driver->ipc_close(p->opened[r]);
    if (p->memory)
        p->driver->memory_free(p->memory);
    if (p->scratch)
        p->driver->memory_free(p->scratch);
    if (p->copies)
        p->driver->memory_free(p->copies);
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
    int device, island;
    char host[64];
} Door;

/* Whom a rank can reach, and why not the first that it cannot. */
typedef struct Reach {
    bool rank[GROUP_RANKS];
    char why[200];
} Reach;

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
        status = driver_check(driver, driver->module_function(&p->mark, p->module,
                                                              "iso_group_mark"),
                              "iso_group_mark");
    if (!status)
        status = driver_check(driver, driver->module_function(&p->copy, p->module,
                                                              "iso_group_copy"),
                              "iso_group_copy");
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

static bool same_host(const Door *a, const Door *b)
{
    return !memcmp(a->host, b->host, sizeof a->host) && a->island == b->island;
}

/* ISO_UNSUPPORTED if the rank is far. */
static iso_status open_peer(CudaPlane *p, int rank, const Door *own, const Door *door,
                            CuAddress *memory)
{
    bool here = door->process == own->process && door->mark == own->mark && same_host(own, door);
    *memory = door->address;
    if (!same_host(own, door))
        return iso_fail(ISO_UNSUPPORTED, "rank %d is on host %s", rank, door->host);
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

static void open_peers(CudaPlane *p, const Door *own, const Door *doors, CuAddress *memory,
                       Reach *reach)
{
    for (int r = 0; r < p->plane.config.ranks; r++) {
        reach->rank[r] = doors[r].ready && !open_peer(p, r, own, &doors[r], &memory[r]);
        if (!reach->rank[r] && !reach->why[0])
            snprintf(reach->why, sizeof reach->why, "%s", iso_last_error());
    }
}

/* Near is who can be reached and reaches back; slots of far ranks are copies here. */
static iso_status place_slots(CudaPlane *p, const CuAddress *memory, const bool *far)
{
    const PlaneConfig *config = &p->plane.config;
    CuAddress peers[GROUP_RANKS] = {0}, copy;
    size_t bytes = SLOTS * config->bytes, n = 0;
    for (int r = 0; r < config->ranks; r++)
        n += far[r];
    if (n) {
        iso_status status = driver_check(p->driver, p->driver->memory_new(&p->copies, n * bytes),
                                         "cuMemAlloc of copies of far ranks' slots");
        if (status)
            return status;
    }
    copy = p->copies;
    for (int r = 0; r < config->ranks; r++) {
        CuAddress slots = far[r] ? copy : memory[r] + HEAD_BYTES;
        p->plane.together |= r != config->rank && !far[r] && !p->opened[r];
        p->plane.slots[r] = (char *)(uintptr_t)slots;
        peers[r] = far[r] ? p->memory + HEAD_NOWHERE
                          : memory[r] + HEAD_FLAGS + 8 * (CuAddress)config->rank;
        copy += far[r] ? bytes : 0;
    }
    return driver_check(p->driver,
                        p->driver->memory_write(p->memory + HEAD_PEERS, peers, sizeof peers),
                        "cuMemcpyHtoD");
}

static iso_status open_far(CudaPlane *p, const bool *far, const char *why)
{
    FarConfig config = {.plane = &p->plane.config,
                        .driver = p->driver,
                        .word = p->word,
                        .own_flag = p->memory + HEAD_OWN,
                        .flags = p->memory + HEAD_FLAGS};
    memcpy(config.far, far, sizeof config.far);
    iso_status status = far_open(&p->far, &config);
    if (status != ISO_UNSUPPORTED)
        return status;
    char problem[300];
    snprintf(problem, sizeof problem, "%s", iso_last_error());
    return iso_fail(status, "%s; %s", why, problem);
}

/* Which ranks are far of this one, and whether any rank has one that is. */
static bool sort_ranks(const PlaneConfig *config, const Reach *reach, bool *far)
{
    bool any = false;
    for (int a = 0; a < config->ranks; a++)
        for (int b = 0; b < config->ranks; b++) {
            bool apart = !reach[a].rank[b] || !reach[b].rank[a];
            any |= apart;
            if (a == config->rank)
                far[b] = apart;
        }
    return any;
}

static const char *first_reason(const PlaneConfig *config, const Reach *reach)
{
    for (int r = 0; r < config->ranks; r++)
        if (reach[r].why[0])
            return reach[r].why;
    return "a rank cannot reach another's memory";
}

static iso_status reach_ranks(CudaPlane *p, const Door *own, const Door *doors)
{
    const PlaneConfig *config = &p->plane.config;
    CuAddress memory[GROUP_RANKS] = {0};
    bool far[GROUP_RANKS] = {false};
    Reach mine, *all = calloc(GROUP_RANKS, sizeof *all);
    if (!all)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a group");
    memset(&mine, 0, sizeof mine);
    open_peers(p, own, doors, memory, &mine);
    iso_status status = store_gather(config->store, &mine, sizeof mine, all);
    bool apart = !status && sort_ranks(config, all, far);
    if (!status)
        status = place_slots(p, memory, far);
    if (apart) {
        char why[200];
        snprintf(why, sizeof why, "%s", first_reason(config, all));
        iso_status opened = open_far(p, far, why);
        status = status ? status : opened;
    }
    free(all);
    return status;
}

/* A rank that fails still takes part in the exchanges, so that none waits for it. */
static iso_status exchange_memory(CudaPlane *p)
{
    static atomic_int mark_of_process;
    const PlaneConfig *config = &p->plane.config;
    Door own = {.process = (uint64_t)getpid(),
                .mark = (uintptr_t)&mark_of_process,
                .island = config->island},
         doors[GROUP_RANKS];
    int done, all[GROUP_RANKS];
    iso_status mine = driver_context(p->driver, &own.device);
    gethostname(own.host, sizeof own.host - 1);
    if (!mine)
        mine = make_memory(p, &own);
    own.ready = mine == ISO_OK;
    iso_status status = store_gather(config->store, &own, sizeof own, doors);
    if (mine || status)
        return mine ? mine : status;
    for (int r = 0; r < config->ranks; r++)
        if (!doors[r].ready)
            return iso_fail(ISO_DRIVER, "rank %d could not open its device memory", r);
    mine = reach_ranks(p, &own, doors);
    done = mine == ISO_OK;
    status = store_gather(config->store, &done, sizeof done, all);
    for (int r = 0; r < config->ranks && !status && !mine; r++)
        if (!all[r])
            status = iso_fail(ISO_UNSUPPORTED, "rank %d cannot reach the others", r);
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
    int open = atomic_fetch_add(&planes_open, 1) + 1, ever = atomic_load(&planes_ever);
    while (open > ever && !atomic_compare_exchange_weak(&planes_ever, &ever, open))
        ;
    iso_status status = exchange_memory(p);
    if (status)
        cuda_close(&p->plane);
    else
        *plane = &p->plane;
    return status;
}
