/* NCCL, opened at run time: the few entry points that move bytes; it never adds.
 * Ownership: the library stays open for the life of the process; communicators belong to whoever
 * made them. Types and values follow NCCL's documentation. */
#ifndef ISO_NCCL_H
#define ISO_NCCL_H

#include "launch/driver.h"
#include "store.h"

typedef int NcclResult;
typedef struct NcclCommStruct *NcclComm;

typedef struct NcclId {
    char opaque[128];
} NcclId;

enum { NCCL_BYTES = 0 /* ncclInt8 */ };

/* X(member, symbol, parameters) */
#define NCCL_LIST(X)                                                                               \
    X(unique_id, "ncclGetUniqueId", (NcclId * id))                                                 \
    X(comm_init, "ncclCommInitRank", (NcclComm * comm, int ranks, NcclId id, int rank))            \
    X(comm_destroy, "ncclCommDestroy", (NcclComm comm))                                            \
    X(comm_abort, "ncclCommAbort", (NcclComm comm))                                                \
    X(comm_count, "ncclCommCount", (NcclComm comm, int *count))                                    \
    X(comm_rank, "ncclCommUserRank", (NcclComm comm, int *rank))                                   \
    X(group_start, "ncclGroupStart", (void))                                                       \
    X(group_end, "ncclGroupEnd", (void))                                                           \
    X(send, "ncclSend",                                                                            \
      (const void *from, size_t count, int type, int peer, NcclComm comm, CuStream stream))        \
    X(receive, "ncclRecv",                                                                         \
      (void *to, size_t count, int type, int peer, NcclComm comm, CuStream stream))                \
    X(all_gather, "ncclAllGather",                                                                 \
      (const void *from, void *to, size_t count, int type, NcclComm comm, CuStream stream))

typedef struct Nccl {
#define X(member, symbol, parameters) NcclResult(*member) parameters;
    NCCL_LIST(X)
#undef X
    const char *(*error_string)(NcclResult result);
} Nccl;

/* $ISO_NCCL, else libnccl.so.2 where the loader looks or where the process has it already;
 * ISO_UNSUPPORTED with what is missing. Safe from several threads. */
iso_status nccl_open(const Nccl **nccl);
/* Rank and size of a communicator, and where its ranks meet (`where` is the text's memory): rank 0
 * listens there already. Collective over the communicator, on the legacy stream. */
enum { WHERE_BYTES = 96 };
iso_status meet_nccl(const Driver *driver, void *comm, StoreConfig *meeting,
                     char where[WHERE_BYTES]);
/* ISO_DRIVER with NCCL's own words, or ISO_OK. */
iso_status nccl_check(const Nccl *nccl, NcclResult result, const char *what);

#endif
