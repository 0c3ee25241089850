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

#endif
