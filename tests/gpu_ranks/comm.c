/* Ranks that meet over a communicator of NCCL's, as a trainer has one already. */
#include "group/nccl.h"
#include "task.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 64, BYTES = 1 << 20 };

/* Rank 0's id, over a file that appears whole. */
static NcclId share_id(const Task *task, const Nccl *nccl, int rank)
{
    char name[128], part[128];
    NcclId id;
    struct timespec wait = {0, 5000000};
    snprintf(name, sizeof name, "%s/id", task->folder);
    snprintf(part, sizeof part, "%s/part", task->folder);
    if (rank == 0) {
        must(nccl_check(nccl, nccl->unique_id(&id), "ncclGetUniqueId"), "an id");
        FILE *file = fopen(part, "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(part, name))
            die("no file for NCCL's id");
        return id;
    }
    for (int i = 0; i < 2000 && access(name, R_OK); i++)
        nanosleep(&wait, NULL);
    FILE *file = fopen(name, "rb");
    if (!file || fread(&id, sizeof id, 1, file) != 1)
        die("no id from rank 0");
    fclose(file);
    return id;
}

static int comm_rank(int r, int ranks, void *user)
{
    const Task *task = user;
    const Nccl *nccl;
    NcclComm comm;
    iso_group *group;
    char layout[16];
    Device d;
    Rank rank = open_rank(task, r);
    must(nccl_open(&nccl), "NCCL");
    must(nccl_check(nccl, nccl->comm_init(&comm, ranks, share_id(task, nccl, r), r), "init"),
         "ncclCommInitRank");
    iso_group_config config = {.size = sizeof config, .bytes = BYTES, .nccl_comm = comm};
    must(iso_group_create(&group, rank.module, &config), "iso_group_create");
    snprintf(layout, sizeof layout, "tp%d", ranks);
    device_prepare(&d, &rank, group, "residual", ROWS);
    device_check(&d, op_of(rank.module, "residual", layout, r), ROWS);
    device_release(&d);
    iso_group_destroy(group);
    nccl->comm_destroy(comm);
    return rank.differ != 0;
}

int run_comm(Task *task)
{
    char name[128];
    int failed = run_ranks(task, comm_rank);
    snprintf(name, sizeof name, "%s/id", task->folder);
    unlink(name);
    printf("%d ranks meet over an ncclComm_t: %s\n", task->ranks, failed ? "FAILED" : "equal bits");
    return failed;
}
