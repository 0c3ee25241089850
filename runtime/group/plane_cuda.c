/* Calls on GPUs: syncs by flags in device memory, copies, and how a wait ended. */
#include "plane_cuda.h"
#include "group_plan.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Groups that were opened at once, at most: a process that has had two may have graphs of both. */
static atomic_int planes_open, planes_ever;

void plane_cuda_count(void)
{
    int open = atomic_fetch_add(&planes_open, 1) + 1, ever = atomic_load(&planes_ever);
    while (open > ever && !atomic_compare_exchange_weak(&planes_ever, &ever, open))
        ;
}

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

static iso_status launch_pick(CudaPlane *p, const DevicePick *pick, void *stream)
{
    enum { THREADS = 256, MOST_BLOCKS = 1024 };
    unsigned blocks = pick->units / THREADS + 1 < MOST_BLOCKS ? pick->units / THREADS + 1
                                                              : MOST_BLOCKS;
    void *args[] = {(void *)(uintptr_t)pick};
    return driver_check(p->driver, p->driver->launch(p->pick, blocks, 1, 1, THREADS, 1, 1, 0,
                                                     stream, args, NULL),
                        "iso_group_pick");
}

/* The widest unit that everything is a multiple of: 2 bytes at least, as every type has. */
static iso_status cuda_pick(Plane *plane, const Pick *pick, void *stream)
{
    CudaPlane *p = (CudaPlane *)plane;
    uint64_t all = (uintptr_t)pick->to | (uintptr_t)pick->from | pick->width |
                   (uint64_t)(pick->to_token | pick->to_slot | pick->from_token | pick->from_slot);
    uint32_t log = 4;
    while (log > 1 && all & ((1u << log) - 1))
        log--;
    int64_t row = pick->slots * (int64_t)(pick->width >> log), most = (1 << 30) / row;
    iso_status status = ISO_OK;
    for (int64_t t = 0; t < pick->tokens && !status; t += most) {
        int64_t tokens = pick->tokens - t < most ? pick->tokens - t : most;
        DevicePick part = {.to = (uintptr_t)(pick->to + t * pick->to_token),
                           .from = (uintptr_t)(pick->from + t * pick->from_token),
                           .index = (uintptr_t)((const char *)pick->index + t * pick->index_token),
                           .to_token = pick->to_token,
                           .to_slot = pick->to_slot,
                           .from_token = pick->from_token,
                           .from_slot = pick->from_slot,
                           .index_token = pick->index_token,
                           .index_slot = pick->index_slot,
                           .units = (uint32_t)(tokens * row),
                           .width = (uint32_t)(pick->width >> log),
                           .slots = (uint32_t)pick->slots,
                           .log = log,
                           .all = (uint32_t)pick->all,
                           .lo = (uint32_t)pick->lo,
                           .hi = (uint32_t)pick->hi};
        status = launch_pick(p, &part, stream);
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

void plane_cuda_unshare(CudaPlane *p)
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
    plane_cuda_unshare(p);
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

iso_status plane_cuda_warm(CudaPlane *p)
{
    DeviceCopy none[DEVICE_COPIES] = {{0}};
    iso_status status = copy_by_kernel(p, none, 1, NULL);
    if (!status)
        status = launch_pick(p, &(DevicePick){.width = 1, .slots = 1}, NULL);
    if (!status)
        status = mark(p, 0, 0, offsetof(Word, ended), NULL);
    if (!status)
        status = launch_sync(p, 0, 0, SYNC_AFTER, NULL);
    return status ? status
                  : driver_check(p->driver, p->driver->stream_sync(NULL), "a group's kernels");
}

const PlaneKind plane_cuda_kind = {cuda_close, cuda_begin, cuda_sync, cuda_copy, cuda_pick,
                                    cuda_failure};
