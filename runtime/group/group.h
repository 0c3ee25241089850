/* What a group holds, and the planes that move its bytes; shared by the files of libiso.
 * Ownership: iso_group owns its store and plane; slots and scratch belong to the plane.
 *
 * Ranks that share memory are near, the others far: of a far rank's slots each keeps a copy, which
 * a sync brings up to date where this rank needs it.
 *
 * Every rank has slots of equal size that its peers can read: a call takes the next one. A sync
 * tells every peer that all this rank did before it is done and waits for the same from each. Since
 * every call that uses a slot has a sync, and a slot is taken again two calls later at the
 * earliest, nobody still reads what is overwritten. */
#ifndef ISO_GROUP_IMPL_H
#define ISO_GROUP_IMPL_H

#include "iso_group.h"
#include "module.h"
#include "store.h"

/* rows of `width` bytes. */
typedef struct Copy {
    char *to;
    const char *from;
    size_t width, rows, to_pitch, from_pitch;
} Copy;

/* `width` bytes of each slot of each token that stands in [lo, hi) of `all`; one that stands
 * nowhere stands at 0. Strides are in bytes. No tokens: nothing. */
typedef struct Pick {
    char *to;
    const char *from;
    const int32_t *index;
    int64_t to_token, to_slot, from_token, from_slot, index_token, index_slot;
    int64_t tokens, slots;
    size_t width;
    int32_t all, lo, hi;
} Pick;

typedef struct Plane Plane;
typedef struct GroupPlan GroupPlan;

/* What a sync makes known: what of a slot one rank needs of another. */
typedef enum SyncStage {
    STAGE_NOTHING,
    STAGE_PARAMS,
    STAGE_ROOTS,
    STAGE_RESULTS,
    STAGE_SHARE
} SyncStage;

typedef struct Parcels {
    SyncStage stage;
    const GroupPlan *plan;
    int slot;
    const size_t *shared; /* STAGE_SHARE: how much of each rank's slot, for all */
} Parcels;

typedef struct Parcel {
    size_t offset, bytes; /* in the slot */
} Parcel;

enum { MOST_PLANES = 64, MOST_PARCELS = 64 };

/* The same on all ranks, in the same order. */
iso_status plan_parcels(const Parcels *parcels, int from, int to, Parcel parcel[MOST_PARCELS],
                        int *n);

typedef struct PlaneConfig {
    Store *store;
    int rank, ranks;
    size_t bytes; /* of a slot, a multiple of 256 */
    double timeout;
    int island; /* ranks of other islands are far */
} PlaneConfig;

/* How a wait ended. */
typedef struct PlaneFailure {
    iso_status status; /* ISO_OK: it has not failed */
    int rank;
    uint32_t tag; /* of the sync */
} PlaneFailure;

typedef struct PlaneKind {
    void (*close)(Plane *plane);
    /* The slot that the next call takes; the tag is for a sync that this may need. */
    iso_status (*begin)(Plane *plane, uint32_t tag, void *stream, int *slot);
    /* Host planes fail here; stream planes later, in `failure`. */
    iso_status (*sync)(Plane *plane, uint32_t tag, const Parcels *parcels, void *stream);
    /* What is written must not overlap what is read. */
    iso_status (*copy)(Plane *plane, const Copy *copies, int n, void *stream);
    iso_status (*pick)(Plane *plane, const Pick *pick, void *stream);
    void (*failure)(Plane *plane, PlaneFailure *failure);
} PlaneKind;

struct Plane {
    const PlaneKind *kind;
    PlaneConfig config;
    char *slots[GROUP_RANKS]; /* of each rank, as addressed here */
    char *scratch;            /* this rank's own, one slot long */
    bool together;            /* other ranks are threads of this process on the same GPU */
};

/* Collective. CPU processes over shared memory; GPUs of one host over peer memory. */
iso_status plane_shared_open(const PlaneConfig *config, Plane **plane);
iso_status plane_cuda_open(const PlaneConfig *config, const Driver *driver, Plane **plane);

struct iso_group {
    const iso_module *module;
    Store *store;
    Plane *plane;
    int rank, ranks;
    double timeout;
    size_t bytes, two_shot;
    iso_status failed;
    char failure[256], where[96];
};

/* Records how the group failed, for good; returns its status. */
iso_status group_fail(iso_group *group, const PlaneFailure *failure);
/* The tag of a sync: of the op, the row count and the stage. */
uint32_t group_tag(const iso_group *group, const iso_op *op, int64_t rows, int stage);

/* ---- boxes (group_box.c): where a part lies along the declared axes of a tensor ---- */

typedef struct Box {
    int64_t lo[ISO_MAX_AXES], hi[ISO_MAX_AXES];
} Box;

bool box_equal(const MfTensor *tensor, const Box *a, const Box *b);
bool box_inside(const MfTensor *tensor, const Box *inner, const Box *outer);
int64_t box_bytes(const MfTensor *tensor, const Box *box);
/* A tensor of the box's shape, contiguous at `data`. */
void box_tensor(const MfTensor *tensor, const Box *box, void *data, iso_tensor *out);
/* Copies that are made together. */
typedef struct CopyList {
    Plane *plane;
    void *stream;
    int n;
    Copy copy[32];
} CopyList;

/* Lists copies of what both boxes have; each tensor begins at its own box's first element. */
iso_status box_copy(CopyList *list, const MfTensor *declared, const iso_tensor *from,
                    const Box *from_box, const iso_tensor *to, const Box *to_box);
/* Makes those that are listed. */
iso_status copies_make(CopyList *list);

/* Where a tensor is held by a rank, and where a phase of the op needs or gives it. */
iso_status held_box(const iso_op *op, int rank, int tensor, int64_t rows, Box *box);
iso_status phase_box(const iso_op *op, iso_phase phase, int rank, int tensor, int64_t rows,
                     Box *box);

#endif
