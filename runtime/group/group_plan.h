/* What one call of an op over a group moves, and where that lies in every rank's slot.
 * Ownership: plain values. A plan follows from the op, the row count, the most keys and the
 * threshold alone, so every rank makes the same. */
#ifndef ISO_GROUP_PLAN_H
#define ISO_GROUP_PLAN_H

#include "group.h"

enum { PLAN_TENSORS = 128, PLAN_RESULTS = 16 };

/* A parameter that a phase needs otherwise than it is held. */
typedef struct Fetch {
    int tensor;
    iso_phase phase;
    bool slice;             /* what is needed lies in what is held, on every rank */
    int indices;            /* the parameter that says whose slots are; -1: no slots are mixed */
    size_t offset, scratch; /* where it is sent from in the slot, and gathered */
} Fetch;

/* A result that lies elsewhere than it is to be held, or in shares of two-shot joins. */
typedef struct Send {
    int tensor;
    size_t offset;
} Send;

struct GroupPlan {
    const iso_op *op;
    int64_t rows;
    int64_t keys;    /* of a sequence at most, where ranks share them */
    uint64_t placed; /* parameters that are given as the op needs them: they do not move */
    bool join, two_shot;
    size_t roots; /* offset in the slot */
    int n_fetches, n_gathers, n_sends;
    Fetch fetch[2 * PLAN_RESULTS];
    Send send[PLAN_RESULTS];
    size_t slot_bytes, scratch_bytes;
};

iso_status group_plan(const iso_op *op, int64_t rows, size_t two_shot, GroupPlan *plan);
iso_status group_plan_placed(const iso_op *op, int64_t rows, int64_t keys, size_t two_shot,
                             uint64_t placed, GroupPlan *plan);
/* iso_group_bytes, and iso_op_run_group, where some parameters are placed. */
iso_status group_call_bytes(const iso_op *op, int64_t rows, int64_t keys, uint64_t placed,
                            size_t *bytes);
iso_status group_call(iso_group *group, const iso_op *op, const iso_tensor *tensors, int n,
                      const iso_run *run, uint64_t placed);
/* Puts a rank's bytes where the others may read them, for the op that follows at that row count:
 * parts[r] are rank r's bytes[r], until the call after the next. Collective. */
iso_status group_share(iso_group *group, const iso_op *op, int64_t rows, const void *data,
                       const size_t bytes[GROUP_RANKS], void *stream,
                       const char *parts[GROUP_RANKS]);

/* ---- slots of several ranks (group_slots.c) ---- */

/* The parameter by which a tensor's slots are gathered, -1: they need not be. */
iso_status slots_fetched(const iso_op *op, iso_phase phase, int tensor, int *indices);

/* What moves of a tensor: from a rank's, by a tensor of indices. */
typedef struct SlotsMove {
    int tensor, indices;
    iso_tensor from, to, index;
    Box from_box, to_box, index_box;
} SlotsMove;

iso_status slots_pick(const iso_op *op, const SlotsMove *move, int rank, Pick *pick);

/* The rows that a rank joins of those of its part, in a two-shot join: its share among the ranks
 * it hears. */
void plan_window(const GroupPlan *plan, int rank, Window *window);
/* What a rank sends of a result: its phase's box, or its window of it. */
iso_status plan_sent(const GroupPlan *plan, int rank, int tensor, Box *box);

#endif
