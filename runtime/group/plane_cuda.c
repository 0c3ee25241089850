/* GPUs: slots and flags in device memory that the peers map, as share.h has it between processes
 * and directly between threads of one. Of ranks that cannot be reached so, NCCL brings copies. */
#include "far.h"
#include "group_plan.h"
#include "group_ptx.h"
#include "share.h"

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
    CuDevice device;
    CuAddress memory; /* head and slots: of `share` */
    Share share, opened[GROUP_RANKS];
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
 * they wait for in turn: where this process has no other group, and few blocks are launched. Ranks
 * that share a GPU leave it to each other at once. */
static uint32_t how_early(const CudaPlane *p, const Parcels *parcels)
{
    enum { FEW_BYTES = 256 << 10, FEW_ROWS = 128 }; /* a block has 2 KiB of one row at most */
    if (p->plane.together)
        return SYNC_AFTER;
    if (parcels->stage != STAGE_ROOTS || atomic_load(&planes_ever) > 1)
        return SYNC_ONCE;
    const GroupPlan *plan = parcels->plan;
    bool few = plan->rows <= FEW_ROWS &&
               roots_bytes(plan->op, plan->rows, plan->keys) <= FEW_BYTES;
    return few ? SYNC_BEFORE : SYNC_ONCE;
}

/* Tells the near ranks, and waits for all. */
static iso_status launch_sync(const CudaPlane *p, uint32_t ranks, uint32_t tag, uint32_t early,
                              void *stream)
{
    CuAddress peers = p->memory + HEAD_PEERS, flags = p->memory + HEAD_FLAGS;
    CuAddress state = p->memory + HEAD_STATE;
    CuAddress lost = p->word_address + offsetof(Word, lost);
    CuAddress gone = lost + GROUP_RANKS * sizeof(uint32_t);
    CuAddress report = p->word_address + offsetof(Word, report);
    uint64_t timeout = (uint64_t)(p->plane.config.timeout * 1e9);
    void *args[] = {&peers, &flags, &state, &lost, &gone, &report, &timeout, &ranks, &tag, &early};
    /* It waits itself for what comes before: being launched takes no time then. */
    CuLaunchAttribute overlap = {.id = CU_LAUNCH_STREAM_SERIALIZATION, .value.number = 1};
    CuLaunchConfig config = {.grid_x = 1,
                             .grid_y = 1,
                             .grid_z = 1,
                             .block_x = ranks / 32 * 32 + 32,
                             .block_y = 1,
                             .block_z = 1,
                             .stream = stream,
                             .attributes = &overlap,
                             .n_attributes = !p->plane.together};
    return driver_check(p->driver, p->driver->launch_config(&config, p->sync, args, NULL),
                        "iso_group_sync");
}

static iso_status sync_flags(const CudaPlane *p, uint32_t tag, const Parcels *parcels,
                             void *stream)
{
    return launch_sync(p, (uint32_t)p->plane.config.ranks, tag, how_early(p, parcels), stream);
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
        return sync_flags(p, tag, parcels, stream);
    iso_status status = mark(p, tag, 1, offsetof(Word, begun), stream);
    if (!status)
        status = far_exchange(p->far, parcels, plane->slots, stream);
    if (!status)
        status = sync_flags(p, tag, parcels, stream);
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

static void close_shares(CudaPlane *p)
{
    for (int r = 0; r < p->plane.config.ranks; r++)
        if (p->opened[r].address)
            share_close(p->driver, &p->opened[r]);
    if (p->share.address)
        share_close(p->driver, &p->share);
    p->memory = 0;
}

static void cuda_close(Plane *plane)
{
    CudaPlane *p = (CudaPlane *)plane;
    atomic_fetch_sub(&planes_open, 1);
    far_close(p->far, p->word && (p->word->report || p->word->found));
    store_mirror(plane->config.store, NULL);
    close_shares(p);
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

enum { FILE_SECONDS = 10 }; /* that a file may be on its way */

/* What the others need to reach this rank's memory. Ranks of one process have the mark in common:
 * its address with its value is no other process's. */
typedef struct Door {
    Share share;
    char post[64]; /* where its rank takes files */
    uint64_t process, mark, ready;
    int device, island;
    char host[64];
} Door;

/* Whom a rank can reach, and why not the first that it cannot. */
typedef struct Reach {
    bool rank[GROUP_RANKS];
    char why[200];
} Reach;

static iso_status load_kernels(CudaPlane *p)
{
    const struct {
        CuFunction *function;
        const char *name;
    } kernels[] = {{&p->sync, "iso_group_sync"},
                   {&p->mark, "iso_group_mark"},
                   {&p->copy, "iso_group_copy"}};
    const Driver *driver = p->driver;
    iso_status status = driver_check(driver, driver->module_load(&p->module, group_ptx),
                                     "the group's kernels");
    for (int i = 0; i < 3 && !status; i++)
        status = driver_check(
            driver, driver->module_function(kernels[i].function, p->module, kernels[i].name),
            kernels[i].name);
    return status;
}

/* Launched once, so that they are loaded: a kernel that is loaded later may have to wait for others
 * that run, which may wait for this rank. */
static iso_status warm_kernels(CudaPlane *p)
{
    DeviceCopy none[DEVICE_COPIES] = {{0}};
    iso_status status = copy_by_kernel(p, none, 1, NULL);
    if (!status)
        status = mark(p, 0, 0, offsetof(Word, ended), NULL);
    if (!status)
        status = launch_sync(p, 0, 0, SYNC_AFTER, NULL);
    return status ? status
                  : driver_check(p->driver, p->driver->stream_sync(NULL), "a group's kernels");
}

/* What no other rank sees. */
static iso_status make_own(CudaPlane *p)
{
    const Driver *driver = p->driver;
    void *word = NULL;
    iso_status status = driver_context(driver, &p->device);
    if (!status)
        status = load_kernels(p);
    if (!status)
        status = driver_check(driver, driver->memory_new(&p->scratch, p->plane.config.bytes),
                              "cuMemAlloc of a group's scratch");
    if (!status)
        status = driver_check(
            driver, driver->host_new(&word, sizeof(Word), CU_HOST_PORTABLE | CU_HOST_MAPPED),
            "cuMemHostAlloc");
    if (status)
        return status;
    p->word = memset(word, 0, sizeof(Word));
    p->plane.scratch = (char *)(uintptr_t)p->scratch;
    store_mirror(p->plane.config.store, p->word->lost);
    return driver_check(driver, driver->host_address(&p->word_address, word, 0),
                        "cuMemHostGetDevicePointer");
}

static iso_status make_slots(CudaPlane *p, ShareKind kind)
{
    iso_status status = share_make(p->driver, p->device, kind,
                                   HEAD_BYTES + SLOTS * p->plane.config.bytes, &p->share);
    p->memory = p->share.address;
    if (!status)
        status = warm_kernels(p);
    return status ? status
                  : driver_check(p->driver, p->driver->memory_set(p->memory, 0, HEAD_BYTES),
                                 "cuMemsetD8");
}

static bool same_host(const Door *a, const Door *b)
{
    return !memcmp(a->host, b->host, sizeof a->host) && a->island == b->island;
}

static bool same_process(const Door *a, const Door *b)
{
    return a->process == b->process && a->mark == b->mark && same_host(a, b);
}

/* ISO_UNSUPPORTED if the rank is far. */
static iso_status open_peer(CudaPlane *p, int rank, const Door *own, const Door *door, int file,
                            CuAddress *memory)
{
    *memory = door->share.address;
    if (!same_host(own, door))
        return iso_fail(ISO_UNSUPPORTED, "rank %d is on host %s", rank, door->host);
    if (same_process(own, door) && door->device != own->device)
        return iso_fail(ISO_UNSUPPORTED, "rank %d is a thread of this process on another GPU: give "
                                         "each GPU a process", rank);
    if (same_process(own, door))
        return ISO_OK;
    iso_status status =
        share_open(p->driver, p->device, &door->share, file, &p->opened[rank]);
    *memory = p->opened[rank].address;
    if (!status)
        return ISO_OK;
    char why[200];
    snprintf(why, sizeof why, "%s", iso_last_error());
    return iso_fail(ISO_UNSUPPORTED, "the memory of rank %d on host %s is not to be reached from "
                                     "here: %s", rank, door->host, why);
}

/* Every rank of the host sends the others its file, and takes theirs. */
static void trade_files(const CudaPlane *p, const Post *post, const Door *own, const Door *doors,
                        int file[GROUP_RANKS])
{
    const PlaneConfig *config = &p->plane.config;
    bool wanted[GROUP_RANKS] = {false};
    double limit = config->timeout < FILE_SECONDS ? config->timeout : FILE_SECONDS;
    for (int r = 0; r < GROUP_RANKS; r++)
        file[r] = -1;
    if (own->share.kind != SHARE_FILES)
        return;
    for (int r = 0; r < config->ranks; r++)
        if (same_host(own, &doors[r]) && !same_process(own, &doors[r]))
            wanted[r] = post_send(post, doors[r].post, config->rank, own->share.file);
    post_receive(post, wanted, clock_seconds() + limit, file);
}

static void open_peers(CudaPlane *p, const Post *post, const Door *own, const Door *doors,
                       CuAddress *memory, Reach *reach)
{
    int file[GROUP_RANKS];
    memset(reach, 0, sizeof *reach);
    trade_files(p, post, own, doors, file);
    for (int r = 0; r < p->plane.config.ranks; r++) {
        reach->rank[r] = !open_peer(p, r, own, &doors[r], file[r], &memory[r]);
        if (!reach->rank[r] && !reach->why[0])
            snprintf(reach->why, sizeof reach->why, "%s", iso_last_error());
        if (file[r] >= 0)
            close(file[r]);
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
        p->plane.together |= r != config->rank && !far[r] && !p->opened[r].address;
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

/* Whether ranks that should be near could not be reached by files: CUDA IPC is tried then. */
static bool files_failed(const PlaneConfig *config, const Door *doors, const Reach *reach)
{
    bool failed = false;
    for (int a = 0; a < config->ranks; a++)
        for (int b = 0; b < config->ranks; b++)
            failed |= doors[a].share.kind == SHARE_FILES && same_host(&doors[a], &doors[b]) &&
                      !reach[a].rank[b];
    return failed;
}

/* Collective. The doors and reach of all ranks, by one kind of share. */
static iso_status try_shares(CudaPlane *p, ShareKind kind, Door *doors, CuAddress *memory,
                             Reach *reach)
{
    static atomic_int mark_of_process;
    const PlaneConfig *config = &p->plane.config;
    Post post = {.socket = -1};
    Door own = {.process = (uint64_t)getpid(),
                .mark = (uintptr_t)&mark_of_process,
                .island = config->island,
                .device = p->device};
    Reach mine;
    iso_status made = make_slots(p, kind);
    if (!made && kind == SHARE_FILES && !post_open(&post))
        made = iso_fail(ISO_UNSUPPORTED, "no socket for files");
    own.share = p->share;
    own.ready = made == ISO_OK;
    memcpy(own.post, post.name, sizeof own.post);
    gethostname(own.host, sizeof own.host - 1);
    iso_status status = store_gather(config->store, &own, sizeof own, doors);
    for (int r = 0; r < config->ranks && !made && !status; r++)
        if (!doors[r].ready)
            made = iso_fail(ISO_DRIVER, "rank %d could not open its device memory", r);
    memset(&mine, 0, sizeof mine);
    if (!made && !status)
        open_peers(p, &post, &own, doors, memory, &mine);
    if (!status)
        status = store_gather(config->store, &mine, sizeof mine, reach);
    post_close(&post);
    return status ? status : made;
}

static iso_status place_ranks(CudaPlane *p, const CuAddress *memory, const Reach *reach)
{
    bool far[GROUP_RANKS] = {false};
    bool apart = sort_ranks(&p->plane.config, reach, far);
    iso_status status = place_slots(p, memory, far);
    if (!apart)
        return status;
    char why[200];
    snprintf(why, sizeof why, "%s", first_reason(&p->plane.config, reach));
    iso_status opened = open_far(p, far, why);
    return status ? status : opened;
}

/* What failed for any rank by files has failed for all: they go on together. */
static iso_status reach_ranks(CudaPlane *p)
{
    const PlaneConfig *config = &p->plane.config;
    CuAddress memory[GROUP_RANKS] = {0};
    Door *doors = calloc(GROUP_RANKS, sizeof *doors);
    Reach *reach = calloc(GROUP_RANKS, sizeof *reach);
    iso_status status = doors && reach ? ISO_OK
                                       : iso_fail(ISO_OUT_OF_MEMORY, "no memory for a group");
    for (ShareKind kind = SHARE_FILES; kind < SHARE_KINDS && doors && reach; kind++) {
        status = try_shares(p, kind, doors, memory, reach);
        bool again = status == ISO_UNSUPPORTED || status == ISO_DRIVER ||
                     (!status && files_failed(config, doors, reach));
        if (!again || kind == SHARE_IPC)
            break;
        close_shares(p);
    }
    if (!status)
        status = place_ranks(p, memory, reach);
    free(doors);
    free(reach);
    return status;
}

/* A rank that fails still takes part in the exchanges, so that none waits for it. */
static iso_status exchange_memory(CudaPlane *p)
{
    const PlaneConfig *config = &p->plane.config;
    int done, all[GROUP_RANKS];
    iso_status mine = make_own(p);
    done = mine == ISO_OK;
    iso_status status = store_gather(config->store, &done, sizeof done, all);
    for (int r = 0; r < config->ranks && !status && !mine; r++)
        if (!all[r])
            mine = iso_fail(ISO_DRIVER, "rank %d could not open its device memory", r);
    if (mine || status)
        return mine ? mine : status;
    mine = reach_ranks(p);
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
