/* A mutated instruction beside the kernel's own: what both give is compared wherever it runs.
 * Ownership: the bench's kernel is as before when the call returns. */
#ifndef ISOC_TEST_PTX_BESIDE_H
#define ISOC_TEST_PTX_BESIDE_H

#include "bench.h"
#include "mutants.h"

/* A word for why a mutant that survives does so; `ptx`: a module's text with the mutant.
 * same: it gives the same values wherever it runs; unseen: others, that no output minds; branch: it
 * is one; effect: it gives no values; unread: it cannot be run beside. */
const char *beside_reason(Bench *bench, const Mutant *mutant, Str ptx, Arena *arena);

typedef enum Beside {
    BESIDE_UNKNOWN, /* it was not run so */
    BESIDE_UNSEEN,  /* as above */
    BESIDE_SAME,
    BESIDE_ALIKE,   /* the same, and no input is in it: it does what the kernel does */
} Beside;

/* Of all wanted mutants at once, by runs of the kernel as it is. */
const Beside *beside_all(Bench *bench, const Mutants *mutants, const bool *wanted, Arena *arena);

#endif
