/* The plane of GPUs: what the calls of a group and its opening share; private to plane_cuda*.c.
 * Ownership: a CudaPlane owns its memory, its kernels and what it has opened of its peers. */
#ifndef ISO_PLANE_CUDA_H
#define ISO_PLANE_CUDA_H

#include "far.h"
#include "group_ptx.h"
#include "share.h"

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
    CuFunction sync, mark, copy, pick;
    CuDevice device;
    CuAddress memory; /* head and slots: of `share` */
    Share share, opened[GROUP_RANKS];
    CuAddress scratch, copies, word_address; /* copies: of far ranks' slots */
    Word *word;
    Far *far; /* NULL where every rank is near */
    unsigned long long capture; /* the last graph that was begun */
    int calls, graph_calls;
} CudaPlane;

/* ---- calls (plane_cuda.c) -------------------------------------------------------------------- */

extern const PlaneKind plane_cuda_kind;

/* Counts a plane among those of this process: to be called before its first call. */
void plane_cuda_count(void);
/* Launches every kernel once, so that they are loaded: one that is loaded later may have to wait
 * for others that run, which may wait for this rank. */
iso_status plane_cuda_warm(CudaPlane *p);
/* Closes what was opened of the peers' memory, and this rank's own. */
void plane_cuda_unshare(CudaPlane *p);

#endif
