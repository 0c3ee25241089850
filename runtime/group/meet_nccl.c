/* Ranks that have a communicator of NCCL's: it carries rank 0's address, where all meet then. */
#include "nccl.h"
#include "store_wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct Place {
    char host[64], address[64];
    int port;
} Place;

static iso_status gather_on_device(const Driver *driver, const Nccl *nccl, NcclComm comm, int rank,
                                   CuAddress buffer, const Place *own, Place *all, int ranks)
{
    CuAddress mine = buffer + (CuAddress)rank * sizeof *own;
    iso_status status = driver_write(driver, mine, own, sizeof *own);
    if (!status)
        status = nccl_check(nccl,
                            nccl->all_gather((void *)(uintptr_t)mine, (void *)(uintptr_t)buffer,
                                             sizeof *own, NCCL_BYTES, comm, NULL),
                            "ncclAllGather");
    if (!status)
        status = driver_check(driver, driver->context_sync(), "the communicator's all-gather");
    if (!status)
        status = driver_check(driver,
                              driver->memory_read(all, buffer, sizeof *own * (size_t)ranks),
                              "cuMemcpyDtoH");
    return status;
}

static iso_status gather_places(const Driver *driver, const Nccl *nccl, NcclComm comm, int rank,
                                int ranks, const Place *own, Place *all)
{
    CuAddress buffer;
    CuDevice device;
    iso_status status = driver_context(driver, &device);
    if (!status)
        status = driver_check(driver,
                              driver->memory_new(&buffer, sizeof *own * (size_t)ranks),
                              "cuMemAlloc");
    if (status)
        return status;
    status = gather_on_device(driver, nccl, comm, rank, buffer, own, all, ranks);
    driver->memory_free(buffer);
    return status;
}

iso_status meet_nccl(const Driver *driver, void *comm, StoreConfig *meeting,
                     char where[WHERE_BYTES])
{
    const Nccl *nccl;
    Place own = {.port = 0}, all[GROUP_RANKS];
    iso_status status = nccl_open(&nccl);
    if (!status)
        status = nccl_check(nccl, nccl->comm_count(comm, &meeting->ranks), "ncclCommCount");
    if (!status)
        status = nccl_check(nccl, nccl->comm_rank(comm, &meeting->rank), "ncclCommUserRank");
    if (!status && meeting->ranks > GROUP_RANKS)
        status = iso_fail(ISO_BAD_RANK, "a communicator of %d ranks; a group has 1 to %d",
                          meeting->ranks, GROUP_RANKS);
    if (status)
        return status;
    gethostname(own.host, sizeof own.host - 1);
    wire_own_address(own.address, sizeof own.address);
    if (meeting->rank == 0)
        meeting->listener = wire_listen_anywhere(&own.port);
    status = gather_places(driver, nccl, comm, meeting->rank, meeting->ranks, &own, all);
    if (!status && all[0].port == 0)
        status = meeting->rank == 0 ? ISO_BOOTSTRAP
                                    : iso_fail(ISO_BOOTSTRAP, "rank 0 can listen nowhere");
    if (status && meeting->listener > 0)
        close(meeting->listener);
    if (status)
        return status;
    bool here = !memcmp(all[0].host, own.host, sizeof own.host);
    snprintf(where, WHERE_BYTES, "tcp://%s:%d", here ? "127.0.0.1" : all[0].address, all[0].port);
    meeting->where = where;
    return ISO_OK;
}
