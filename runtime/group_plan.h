/* What one call of an op over a group moves, and where that lies in every rank's slot.
 * Ownership: plain values. A plan follows from the op, the row count and the threshold alone, so
 * every rank makes the same. */
#ifndef ISO_GROUP_PLAN_H
#define ISO_GROUP_PLAN_H

#include "group.h"

enum { PLAN_TENSORS = 128, PLAN_RESULTS = 16 };

/* A parameter that a phase needs otherwise than it is held. */
typedef struct Fetch {
    int tensor;
    iso_phase phase;
    bool slice;             /* what is needed lies in what is held, on every rank */
    size_t offset, scratch; /* where it is sent from in the slot, and gathered */
} Fetch;

/* A result that lies elsewhere than it is to be held, or in shares of two-shot joins. */
typedef struct Send {
    int tensor;
    size_t offset;
} Send;

typedef struct GroupPlan {
    const iso_op *op;
    int64_t rows;
    bool join, two_shot;
    size_t roots; /* offset in the slot */
    int n_fetches, n_gathers, n_sends;
    Fetch fetch[2 * PLAN_RESULTS];
    Send send[PLAN_RESULTS];
    size_t slot_bytes, scratch_bytes;
} GroupPlan;

iso_status group_plan(const iso_op *op, int64_t rows, size_t two_shot, GroupPlan *plan);

/* The rows that a rank joins of those of its part, in a two-shot join: its share among the ranks
 * it hears. */
void plan_window(const GroupPlan *plan, int rank, Window *window);
/* What a rank sends of a result: its phase's box, or its window of it. */
iso_status plan_sent(const GroupPlan *plan, int rank, int tensor, Box *box);

#endif
