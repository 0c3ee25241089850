/* Far ranks: one communicator of all ranks, of which each exchanges with its far ones only. A
 * thread watches for ranks that do not come: NCCL itself would wait for ever. */
#include "far.h"
#include "group_ptx.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct Far {
    FarConfig config;
    PlaneConfig plane;
    const Nccl *nccl;
    NcclComm comm;
    NcclId id;
    CuContext context;
    pthread_mutex_t lock; /* of queueing against aborting */
    bool aborted;
    pthread_t watcher, ender;
    NcclResult (*ending)(NcclComm comm); /* what the ender calls */
    atomic_bool ended;
    bool watched;
    atomic_bool stop;
    /* opening */
    atomic_bool opened;
    iso_status status;
    char why[256];
    /* watching */
    uint64_t seen;
    double since, lost_since;
    bool told;
};

enum { WATCH_MS = 10, END_SECONDS = 2 };

static void nap(int milliseconds)
{
    struct timespec time = {0, milliseconds * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- exchanging ---- */

static iso_status exchange_flag(const Far *far, int rank, CuStream stream)
{
    const Nccl *nccl = far->nccl;
    void *to = (void *)(uintptr_t)(far->config.flags + 8 * (CuAddress)rank);
    const void *from = (const void *)(uintptr_t)far->config.own_flag;
    iso_status status = nccl_check(nccl, nccl->send(from, 8, NCCL_BYTES, rank, far->comm, stream),
                                   "ncclSend");
    return status ? status
                  : nccl_check(nccl, nccl->receive(to, 8, NCCL_BYTES, rank, far->comm, stream),
                               "ncclRecv");
}

static iso_status exchange_parcels(const Far *far, const Parcels *parcels, int rank,
                                   char *const slots[GROUP_RANKS], CuStream stream)
{
    const Nccl *nccl = far->nccl;
    int own = far->plane.rank, n;
    size_t slot = far->plane.bytes * (size_t)parcels->slot;
    Parcel parcel[MOST_PARCELS];
    iso_status status = plan_parcels(parcels, own, rank, parcel, &n);
    for (int i = 0; i < n && !status; i++)
        status = nccl_check(nccl,
                            nccl->send(slots[own] + slot + parcel[i].offset, parcel[i].bytes,
                                       NCCL_BYTES, rank, far->comm, stream),
                            "ncclSend");
    if (!status)
        status = plan_parcels(parcels, rank, own, parcel, &n);
    for (int i = 0; i < n && !status; i++)
        status = nccl_check(nccl,
                            nccl->receive(slots[rank] + slot + parcel[i].offset, parcel[i].bytes,
                                          NCCL_BYTES, rank, far->comm, stream),
                            "ncclRecv");
    return status;
}

static iso_status exchange_all(const Far *far, const Parcels *parcels,
                               char *const slots[GROUP_RANKS], CuStream stream)
{
    const Nccl *nccl = far->nccl;
    iso_status status = nccl_check(nccl, nccl->group_start(), "ncclGroupStart");
    if (status)
        return status;
    for (int r = 0; r < far->plane.ranks && !status; r++) {
        if (!far->config.far[r])
            continue;
        status = exchange_flag(far, r, stream);
        if (!status && parcels->stage != STAGE_NOTHING)
            status = exchange_parcels(far, parcels, r, slots, stream);
    }
    iso_status ended = nccl_check(nccl, nccl->group_end(), "ncclGroupEnd");
    return status ? status : ended;
}

iso_status far_exchange(Far *far, const Parcels *parcels, char *const slots[GROUP_RANKS],
                        CuStream stream)
{
    pthread_mutex_lock(&far->lock);
    iso_status status =
        far->aborted ? ISO_OK : exchange_all(far, parcels, slots, stream);
    pthread_mutex_unlock(&far->lock);
    return status;
}

/* ---- watching ---- */

static void *end_comm(void *user)
{
    Far *far = user;
    far->config.driver->context_set(far->context);
    far->ending(far->comm);
    far->ended = true;
    return NULL;
}

/* In a thread of its own: NCCL returns only once no graph holds its kernels any more. */
static void start_ending(Far *far, NcclResult (*ending)(NcclComm comm))
{
    far->ending = ending;
    if (pthread_create(&far->ender, NULL, end_comm, far))
        far->ending = NULL;
}

/* The queue may be full, and whoever fills it wait inside NCCL for what only aborting ends. */
static void abort_all(Far *far)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec++;
    bool locked = pthread_mutex_timedlock(&far->lock, &at) == 0;
    far->aborted = true;
    start_ending(far, far->nccl->comm_abort);
    if (locked)
        pthread_mutex_unlock(&far->lock);
}

static void fail(Far *far, int kind, int rank)
{
    Word *word = far->config.word;
    if (!word->report)
        word->found = (uint64_t)kind << 56 | (uint64_t)rank << 32 | (uint32_t)far->seen;
    for (int r = 0; r < far->plane.ranks; r++)
        if (far->config.far[r] && !word->lost[r])
            word->lost[r] = RANK_LEFT;
    abort_all(far);
}

/* The rank that has not said that it waits here too. */
static int late_rank(const Far *far)
{
    uint32_t epoch = (uint32_t)(far->seen >> 32);
    int first = -1;
    for (int r = 0; r < far->plane.ranks; r++) {
        if (r == far->plane.rank || store_told(far->plane.store, r) == epoch)
            continue;
        if (first < 0 || (far->config.far[r] && !far->config.far[first]))
            first = r;
    }
    return first < 0 ? far->plane.rank : first;
}

static int lost_rank(const Far *far)
{
    for (int r = 0; r < far->plane.ranks; r++)
        if (store_rank(far->plane.store, r))
            return r;
    return -1;
}

/* What is lost may have come before: a second is given to what still runs. */
static void look(Far *far, double now)
{
    const Word *word = far->config.word;
    uint64_t begun = word->begun;
    double limit = far->plane.timeout;
    if (begun >> 32 == word->ended >> 32)
        return;
    if (begun != far->seen) {
        far->seen = begun;
        far->since = now;
        far->told = false;
        far->lost_since = 0;
    }
    int lost = lost_rank(far);
    if (lost >= 0 && far->lost_since == 0)
        far->lost_since = now;
    if (lost >= 0 && now - far->lost_since > (limit < 1 ? limit : 1)) {
        fail(far, SYNC_LOST, lost);
    } else if (now - far->since > limit) {
        fail(far, SYNC_LATE, late_rank(far));
    } else if (!far->told && now - far->since > limit / 4) {
        far->told = true;
        store_tell(far->plane.store, (uint32_t)(begun >> 32));
    }
}

static void *watch(void *user)
{
    Far *far = user;
    far->config.driver->context_set(far->context);
    while (!far->stop && !far->aborted) {
        nap(WATCH_MS);
        look(far, clock_seconds());
    }
    return NULL;
}

/* ---- opening ---- */

/* Connections are made by the first exchange: here, not in a call. */
static iso_status connect_all(Far *far)
{
    const Nccl *nccl = far->nccl;
    const Driver *driver = far->config.driver;
    iso_status status = driver_check(driver, driver->context_set(far->context), "cuCtxSetCurrent");
    if (!status)
        status = nccl_check(
            nccl, nccl->comm_init(&far->comm, far->plane.ranks, far->id, far->plane.rank),
            "ncclCommInitRank");
    if (!status)
        status = exchange_all(far, &(Parcels){.stage = STAGE_NOTHING}, NULL, NULL);
    return status ? status
                  : driver_check(driver, driver->context_sync(), "NCCL's first exchange");
}

static void *open_in_thread(void *user)
{
    Far *far = user;
    far->status = connect_all(far);
    strncpy(far->why, iso_last_error(), sizeof far->why - 1);
    far->opened = true;
    return NULL;
}

/* A rank that dies meanwhile would keep this one for ever: the thread is then left behind, with all
 * that it uses. */
static iso_status open_in_time(Far *far, bool *left_behind)
{
    pthread_t thread;
    double deadline = clock_seconds() + far->plane.timeout;
    if (pthread_create(&thread, NULL, open_in_thread, far))
        return iso_fail(ISO_OUT_OF_MEMORY, "no thread to open NCCL");
    while (!far->opened && clock_seconds() < deadline && lost_rank(far) < 0)
        nap(2);
    *left_behind = !far->opened;
    if (far->opened) {
        pthread_join(thread, NULL);
        return far->status ? iso_fail(far->status, "%s", far->why) : ISO_OK;
    }
    pthread_detach(thread);
    int lost = lost_rank(far);
    return lost >= 0 ? iso_fail(ISO_RANK_LOST, "rank %d was lost while NCCL was opened", lost)
                     : iso_fail(ISO_RANK_TIMEOUT, "NCCL was not open within %g s",
                                far->plane.timeout);
}

typedef struct Invitation {
    NcclId id; /* of rank 0 */
    uint64_t ready;
    char why[128];
} Invitation;

/* Every rank says whether it has NCCL, so that none waits for one that has not. */
static iso_status invite(Far *far)
{
    Invitation own = {.ready = 1}, all[GROUP_RANKS];
    iso_status mine = nccl_open(&far->nccl);
    if (!mine && far->plane.rank == 0)
        mine = nccl_check(far->nccl, far->nccl->unique_id(&own.id), "ncclGetUniqueId");
    if (mine) {
        own.ready = 0;
        strncpy(own.why, iso_last_error(), sizeof own.why - 1);
    }
    iso_status status = store_gather(far->plane.store, &own, sizeof own, all);
    for (int r = 0; r < far->plane.ranks && !status; r++)
        if (!all[r].ready)
            status = iso_fail(ISO_UNSUPPORTED, "rank %d has no NCCL, which ranks that cannot reach "
                                               "each other's memory need: %.127s", r, all[r].why);
    far->id = all[0].id;
    return status;
}

iso_status far_open(Far **far, const FarConfig *config)
{
    bool left_behind = false;
    Far *f = calloc(1, sizeof *f);
    *far = NULL;
    if (!f)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for far ranks");
    f->config = *config;
    f->plane = *config->plane;
    f->config.plane = &f->plane;
    pthread_mutex_init(&f->lock, NULL);
    iso_status status = driver_check(config->driver, config->driver->context_get(&f->context),
                                     "cuCtxGetCurrent");
    iso_status invited = invite(f);
    if (!status)
        status = invited;
    if (!status)
        status = open_in_time(f, &left_behind);
    if (!status && pthread_create(&f->watcher, NULL, watch, f))
        status = iso_fail(ISO_OUT_OF_MEMORY, "no thread to watch NCCL");
    if (left_behind)
        return status;
    if (status) {
        far_close(f, true);
        return status;
    }
    f->watched = true;
    *far = f;
    return ISO_OK;
}

/* What a graph still holds is left behind with its thread. */
static bool ends_in_time(Far *far)
{
    double deadline = clock_seconds() + END_SECONDS;
    while (!far->ended && clock_seconds() < deadline)
        nap(2);
    if (!far->ended)
        pthread_detach(far->ender);
    else
        pthread_join(far->ender, NULL);
    return far->ended;
}

void far_close(Far *far, bool failed)
{
    if (!far)
        return;
    for (int r = 0; r < far->plane.ranks; r++)
        failed |= store_rank(far->plane.store, r) == RANK_DIED;
    far->stop = true;
    if (far->watched)
        pthread_join(far->watcher, NULL);
    if (far->comm && !far->aborted)
        start_ending(far, failed ? far->nccl->comm_abort : far->nccl->comm_destroy);
    if (far->ending && !ends_in_time(far))
        return;
    pthread_mutex_destroy(&far->lock);
    free(far);
}
