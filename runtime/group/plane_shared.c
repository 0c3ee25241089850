/* CPU ranks of one host: slots and flags in POSIX shared memory. */
#include "group.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 2 };

/* flag[a][b]: the last sync that b told a of, its epoch above its tag. */
typedef struct Shared {
    _Atomic uint64_t flag[GROUP_RANKS][GROUP_RANKS];
} Shared;

typedef struct SharedPlane {
    Plane plane;
    char *shared_slots[GROUP_RANKS], *copies; /* copies: of far ranks' slots */
    bool far[GROUP_RANKS];
    Shared *shared;
    size_t size;
    uint32_t epoch;
    int calls;
    PlaneFailure failure;
} SharedPlane;

static void shared_close(Plane *plane)
{
    SharedPlane *p = (SharedPlane *)plane;
    if (p->shared)
        munmap(p->shared, p->size);
    free(p->copies);
    free(plane->scratch);
    free(p);
}

static iso_status shared_begin(Plane *plane, uint32_t tag, void *stream, int *slot)
{
    (void)tag;
    (void)stream;
    *slot = ((SharedPlane *)plane)->calls++ % SLOTS;
    return ISO_OK;
}

static iso_status shared_copy(Plane *plane, const Copy *copies, int n, void *stream)
{
    (void)plane;
    (void)stream;
    for (const Copy *copy = copies; copy < copies + n; copy++)
        for (size_t i = 0; i < copy->rows; i++)
            memcpy(copy->to + i * copy->to_pitch, copy->from + i * copy->from_pitch, copy->width);
    return ISO_OK;
}

/* ---- flags ---- */

/* Short waits cost a yield, long ones at most a millisecond of lateness. */
static void pause_for(int turn)
{
    struct timespec sleep = {0, turn < 200 ? 50000 : 1000000};
    if (turn < 50)
        sched_yield();
    else
        nanosleep(&sleep, NULL);
}

static bool arrived(const SharedPlane *p, int rank, uint32_t epoch, uint64_t *flag)
{
    const PlaneConfig *config = &p->plane.config;
    *flag = atomic_load_explicit(&p->shared->flag[config->rank][rank], memory_order_acquire);
    return (int32_t)((uint32_t)(*flag >> 32) - epoch) >= 0;
}

static iso_status await(SharedPlane *p, int rank, uint32_t epoch, uint32_t tag)
{
    const PlaneConfig *config = &p->plane.config;
    double deadline = clock_seconds() + config->timeout;
    uint64_t flag;
    for (int turn = 0; !arrived(p, rank, epoch, &flag); turn++) {
        if (store_rank(config->store, rank) && !arrived(p, rank, epoch, &flag))
            return ISO_RANK_LOST;
        if (clock_seconds() > deadline)
            return ISO_RANK_TIMEOUT;
        pause_for(turn);
    }
    return (uint32_t)(flag >> 32) == epoch && (uint32_t)flag != tag ? ISO_DISORDER : ISO_OK;
}

/* What a far rank sends is what a network would carry, no more. */
static iso_status fetch_parcels(SharedPlane *p, const Parcels *parcels)
{
    const PlaneConfig *config = &p->plane.config;
    iso_status status = ISO_OK;
    for (int r = 0; r < config->ranks && !status; r++) {
        size_t slot = config->bytes * (size_t)parcels->slot;
        Parcel parcel[MOST_PARCELS];
        int n = 0;
        if (p->far[r])
            status = plan_parcels(parcels, r, config->rank, parcel, &n);
        for (int i = 0; i < n; i++)
            memcpy(p->plane.slots[r] + slot + parcel[i].offset,
                   p->shared_slots[r] + slot + parcel[i].offset, parcel[i].bytes);
    }
    return status;
}

/* A rank that failed tells nobody of later syncs, so that none takes what it could not finish. */
static iso_status shared_sync(Plane *plane, uint32_t tag, const Parcels *parcels, void *stream)
{
    SharedPlane *p = (SharedPlane *)plane;
    (void)stream;
    if (p->failure.status)
        return p->failure.status;
    uint32_t epoch = ++p->epoch;
    for (int r = 0; r < plane->config.ranks; r++)
        atomic_store_explicit(&p->shared->flag[r][plane->config.rank],
                              (uint64_t)epoch << 32 | tag, memory_order_release);
    for (int r = 0; r < plane->config.ranks && !p->failure.status; r++)
        p->failure = (PlaneFailure){await(p, r, epoch, tag), r, tag};
    return p->failure.status ? p->failure.status : fetch_parcels(p, parcels);
}

static iso_status shared_pick(Plane *plane, const Pick *pick, void *stream)
{
    (void)plane;
    (void)stream;
    for (int64_t t = 0; t < pick->tokens; t++)
        for (int64_t k = 0; k < pick->slots; k++) {
            int32_t at;
            memcpy(&at, (const char *)pick->index + t * pick->index_token + k * pick->index_slot,
                   sizeof at);
            at = at < 0 || at >= pick->all ? 0 : at;
            if (at >= pick->lo && at < pick->hi)
                memcpy(pick->to + t * pick->to_token + k * pick->to_slot,
                       pick->from + t * pick->from_token + k * pick->from_slot, pick->width);
        }
    return ISO_OK;
}

static void shared_failure(Plane *plane, PlaneFailure *failure)
{
    *failure = ((SharedPlane *)plane)->failure;
}

static const PlaneKind shared_kind = {shared_close, shared_begin, shared_sync, shared_copy,
                                      shared_pick,  shared_failure};

/* ---- opening ---- */

/* Reserved at once: a page that cannot be had must be a status now, not a signal later. */
static int create_memory(SharedPlane *p, char name[64])
{
    static atomic_uint serial;
    snprintf(name, 64, "/iso-%ld-%u", (long)getpid(), atomic_fetch_add(&serial, 1));
    shm_unlink(name);
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    int problem = file < 0 ? errno : posix_fallocate(file, 0, (off_t)p->size);
    if (!problem)
        return file;
    iso_fail(ISO_OUT_OF_MEMORY, "no %zu bytes of shared memory: %s", p->size, strerror(problem));
    if (file >= 0) {
        close(file);
        shm_unlink(name);
    }
    return -1;
}

static iso_status map_memory(SharedPlane *p, int file)
{
    if (file < 0)
        return ISO_OUT_OF_MEMORY;
    void *at = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED)
        return iso_fail(ISO_OUT_OF_MEMORY, "shared memory cannot be mapped: %s", strerror(errno));
    p->shared = at;
    return ISO_OK;
}

/* Rank 0 makes the memory, tells its name, and takes the name away once all have it. A rank that
 * could not go on still takes part in the exchanges, so that none waits. */
static iso_status share_memory(SharedPlane *p)
{
    const PlaneConfig *config = &p->plane.config;
    char name[64] = "", names[GROUP_RANKS][64];
    int file = config->rank == 0 ? create_memory(p, name) : -1, mapped[GROUP_RANKS];
    iso_status status = store_gather(config->store, name, sizeof name, names);
    if (!status && !names[0][0])
        status = config->rank == 0 ? ISO_OUT_OF_MEMORY
                                   : iso_fail(ISO_OUT_OF_MEMORY, "rank 0 has no shared memory");
    if (status)
        return status;
    if (config->rank != 0)
        file = shm_open(names[0], O_RDWR, 0);
    iso_status own = file >= 0 || config->rank == 0
                         ? map_memory(p, file)
                         : iso_fail(ISO_UNSUPPORTED, "rank %d is on another host than rank 0: CPU "
                                                     "ranks share memory", config->rank);
    int done = own == ISO_OK;
    status = store_gather(config->store, &done, sizeof done, mapped);
    if (config->rank == 0)
        shm_unlink(name);
    for (int r = 0; r < config->ranks && !status && !own; r++)
        if (!mapped[r])
            status = iso_fail(ISO_UNSUPPORTED, "rank %d cannot share rank 0's memory", r);
    return own ? own : status;
}

/* Ranks of other islands are treated as if their memory could not be read; 0xCD shows what did not
 * come. */
static iso_status find_far(SharedPlane *p)
{
    const PlaneConfig *config = &p->plane.config;
    int islands[GROUP_RANKS], n = 0;
    size_t bytes = config->bytes * SLOTS;
    iso_status status = store_gather(config->store, &config->island, sizeof(int), islands);
    for (int r = 0; r < config->ranks; r++) {
        p->shared_slots[r] = p->plane.slots[r] = (char *)(p->shared + 1) + bytes * (size_t)r;
        p->far[r] = !status && islands[r] != config->island;
        n += p->far[r];
    }
    if (status || n == 0)
        return status;
    p->copies = malloc(bytes * (size_t)n);
    if (!p->copies)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for copies of %d ranks' slots", n);
    memset(p->copies, 0xCD, bytes * (size_t)n);
    for (int r = 0, i = 0; r < config->ranks; r++)
        if (p->far[r])
            p->plane.slots[r] = p->copies + bytes * (size_t)i++;
    return ISO_OK;
}

iso_status plane_shared_open(const PlaneConfig *config, Plane **plane)
{
    *plane = NULL;
    SharedPlane *p = calloc(1, sizeof *p);
    if (!p)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a group");
    p->plane = (Plane){.kind = &shared_kind, .config = *config};
    p->size = sizeof(Shared) + config->bytes * SLOTS * (size_t)config->ranks;
    iso_status status = share_memory(p);
    if (!status && !(p->plane.scratch = aligned_alloc(256, config->bytes)))
        status = iso_fail(ISO_OUT_OF_MEMORY, "no %zu bytes of scratch", config->bytes);
    if (!status)
        status = find_far(p);
    if (status) {
        shared_close(&p->plane);
        return status;
    }
    *plane = &p->plane;
    return ISO_OK;
}
