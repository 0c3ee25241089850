/* Groups: the ranks meet, compare what they have loaded, and open the plane that joins them. */
#include "group.h"
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- configuration ---- */

static int environment_int(const char *name, int otherwise)
{
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : otherwise;
    return text && (*end || end == text || value < 0 || value > 1 << 20) ? -1 : (int)value;
}

enum { DEFAULT_BYTES = 64 << 20, DEFAULT_TIMEOUT = 60 };

/* A second shot costs a sync and a launch, as long as it takes to read about 1.2 MiB, and saves all
 * but 1.5 of n parts of what one shot reads, results being half as wide: on H200s two shots win
 * from 5 MiB between two, from 2 MiB between four. */
static size_t measured_two_shot(int ranks)
{
    return ranks < 2 ? SIZE_MAX : (size_t)1200 * 1024 * 2 * (size_t)ranks / (2 * (size_t)ranks - 3);
}

static iso_status take_ranks(iso_group *group, const iso_group_config *config,
                             StoreConfig *meeting)
{
    bool given = config->ranks != 0;
    meeting->where = config->bootstrap;
    if (config->nccl_comm && group->module->device != ISO_CUDA)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_group_config.nccl_comm is for ISO_CUDA");
    if (config->nccl_comm) {
        iso_status status = meet_nccl(group->module->driver, config->nccl_comm, meeting,
                                      group->where);
        group->rank = meeting->rank;
        group->ranks = meeting->ranks;
        return status;
    }
    group->rank = given ? config->rank : environment_int("RANK", -1);
    group->ranks = given ? config->ranks : environment_int("WORLD_SIZE", -1);
    if (group->ranks < 1 || group->ranks > GROUP_RANKS || group->rank < 0 ||
        group->rank >= group->ranks)
        return iso_fail(ISO_BAD_RANK, "rank %d of %d; a group has 1 to %d ranks%s", group->rank,
                        group->ranks, GROUP_RANKS,
                        given ? "" : ", and $RANK and $WORLD_SIZE are not set so");
    meeting->rank = group->rank;
    meeting->ranks = group->ranks;
    return ISO_OK;
}

static iso_status take_config(iso_group *group, const iso_group_config *config,
                              StoreConfig *meeting)
{
    if (!(config->timeout >= 0 && config->timeout < 1e6))
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_group_config.timeout is %g s; it goes up to "
                        "1e6, and 0 is %d", config->timeout, DEFAULT_TIMEOUT);
    group->timeout = config->timeout > 0 ? config->timeout : DEFAULT_TIMEOUT;
    group->bytes = ((config->bytes ? config->bytes : DEFAULT_BYTES) + 255) / 256 * 256;
    *meeting = (StoreConfig){.timeout = group->timeout};
    iso_status status = take_ranks(group, config, meeting);
    group->two_shot = config->two_shot ? config->two_shot : measured_two_shot(group->ranks);
    return status;
}

/* ---- who the others are ---- */

typedef struct Identity {
    uint8_t fingerprint[32], weights[32];
    uint64_t bytes, has_weights, device;
} Identity;

static void hex(const uint8_t digest[32], char text[17])
{
    for (int i = 0; i < 8; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static iso_status digests_differ(iso_status status, const char *what, int rank,
                                 const uint8_t theirs[32], const uint8_t first[32])
{
    char a[17], b[17];
    hex(theirs, a);
    hex(first, b);
    return iso_fail(status, "rank %d has %s %s..., rank 0 has %s...", rank, what, a, b);
}

/* Every rank sees all and so comes to the same end. */
static iso_status compare_identities(const iso_group *group, const Identity *all)
{
    for (int r = 1; r < group->ranks; r++) {
        if (memcmp(all[r].fingerprint, all[0].fingerprint, 32))
            return digests_differ(ISO_FINGERPRINT, "fingerprint", r, all[r].fingerprint,
                                  all[0].fingerprint);
        if (all[r].has_weights != all[0].has_weights ||
            memcmp(all[r].weights, all[0].weights, 32))
            return digests_differ(ISO_WEIGHTS, "weights", r, all[r].weights, all[0].weights);
        if (all[r].bytes != all[0].bytes || all[r].device != all[0].device)
            return iso_fail(ISO_BOOTSTRAP,
                            "rank %d gives buffers of %llu bytes on device kind %llu, rank 0 of "
                            "%llu on %llu",
                            r, (unsigned long long)all[r].bytes, (unsigned long long)all[r].device,
                            (unsigned long long)all[0].bytes, (unsigned long long)all[0].device);
    }
    return ISO_OK;
}

static iso_status meet(iso_group *group, const iso_group_config *config)
{
    Identity own = {.bytes = group->bytes,
                    .has_weights = config->weights != NULL,
                    .device = (uint64_t)group->module->device},
             all[GROUP_RANKS];
    memcpy(own.fingerprint, group->module->manifest->fingerprint, 32);
    if (config->weights)
        memcpy(own.weights, config->weights, 32);
    iso_status status = store_gather(group->store, &own, sizeof own, all);
    return status ? status : compare_identities(group, all);
}

/* ---- creating ---- */

static iso_status open_group(iso_group *group, const iso_group_config *config)
{
    StoreConfig meeting;
    iso_status status = take_config(group, config, &meeting);
    if (!status)
        status = store_open(&group->store, &meeting);
    if (!status)
        status = meet(group, config);
    PlaneConfig plane = {group->store, group->rank,    group->ranks,
                         group->bytes, group->timeout, config->island};
    if (status)
        return status;
    return group->module->device == ISO_CPU
               ? plane_shared_open(&plane, &group->plane)
               : plane_cuda_open(&plane, group->module->driver, &group->plane);
}

static void close_group(iso_group *group)
{
    if (group->plane)
        group->plane->kind->close(group->plane);
    store_close(group->store);
    free(group);
}

iso_status iso_group_create(iso_group **group, const iso_module *module,
                            const iso_group_config *config)
{
    if (group)
        *group = NULL;
    if (!group || !module || !config)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_group_create: group, module and config must not "
                                              "be NULL");
    if (config->size != sizeof *config)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_group_config.size is %zu, this library's is %zu",
                        config->size, sizeof *config);
    iso_group *made = calloc(1, sizeof *made);
    if (!made)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a group");
    made->module = module;
    iso_status status = open_group(made, config);
    if (status)
        close_group(made);
    else
        *group = made;
    return status;
}

/* Peers may still read this rank's slots until they too are at the end. */
void iso_group_destroy(iso_group *group)
{
    char none = 0, all[GROUP_RANKS];
    if (!group)
        return;
    if (!iso_group_status(group))
        store_gather(group->store, &none, sizeof none, all);
    close_group(group);
}

/* ---- failures ---- */

uint32_t group_tag(const iso_group *group, const iso_op *op, int64_t rows, int stage)
{
    uint32_t index = (uint32_t)(op - group->module->ops) - (uint32_t)op->rank;
    uint32_t call = ((uint32_t)rows * 2654435761u >> 16) + (uint32_t)stage;
    return index << 16 | (call & 0xffff);
}

static const char *tag_op(const iso_group *group, uint32_t tag)
{
    int index = (int)(tag >> 16);
    return index < group->module->n_ops ? group->module->ops[index].op->name : "?";
}

/* A rank that left may have done so for one that died. */
static int first_lost(const Store *store, int rank, int ranks)
{
    for (int r = 0; r < ranks && store_rank(store, rank) != RANK_DIED; r++)
        if (store_rank(store, r) == RANK_DIED)
            return r;
    return rank;
}

iso_status group_fail(iso_group *group, const PlaneFailure *failure)
{
    const char *op = tag_op(group, failure->tag);
    int rank = failure->rank;
    if (failure->status == ISO_RANK_LOST)
        rank = first_lost(group->store, rank, group->ranks);
    if (group->failed)
        return iso_fail(group->failed, "%s", group->failure);
    group->failed = failure->status;
    if (failure->status == ISO_RANK_LOST)
        snprintf(group->failure, sizeof group->failure, "rank %d %s before op %s was done", rank,
                 store_rank(group->store, rank) == RANK_LEFT ? "left" : "died", op);
    else if (failure->status == ISO_RANK_TIMEOUT)
        snprintf(group->failure, sizeof group->failure,
                 "rank %d did not come to op %s within %g s", rank, op, group->timeout);
    else
        snprintf(group->failure, sizeof group->failure,
                 "rank %d runs another op, layout or row count than op %s here", rank, op);
    return iso_fail(group->failed, "%s", group->failure);
}

iso_status iso_group_status(iso_group *group)
{
    PlaneFailure failure;
    if (!group)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_group_status: the group is NULL");
    group->plane->kind->failure(group->plane, &failure);
    return failure.status || group->failed ? group_fail(group, &failure) : ISO_OK;
}
