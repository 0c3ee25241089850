/* Opening the plane of GPUs: slots and flags in device memory that the peers map, as share.h has it
 * between processes and directly between threads of one. Of ranks that cannot be reached so, NCCL
 * brings copies. */
#include "plane_cuda.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
                   {&p->copy, "iso_group_copy"},
                   {&p->pick, "iso_group_pick"}};
    const Driver *driver = p->driver;
    iso_status status = driver_check(driver, driver->module_load(&p->module, group_ptx),
                                     "the group's kernels");
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0] && !status; i++)
        status = driver_check(
            driver, driver->module_function(kernels[i].function, p->module, kernels[i].name),
            kernels[i].name);
    return status;
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
        status = plane_cuda_warm(p);
    return status ? status : driver_zero(p->driver, p->memory, HEAD_BYTES);
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
    return driver_write(p->driver, p->memory + HEAD_PEERS, peers, sizeof peers);
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
        plane_cuda_unshare(p);
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
    p->plane = (Plane){.kind = &plane_cuda_kind, .config = *config};
    p->driver = driver;
    plane_cuda_count();
    iso_status status = exchange_memory(p);
    if (status)
        p->plane.kind->close(&p->plane);
    else
        *plane = &p->plane;
    return status;
}
