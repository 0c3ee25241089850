/* The PTX machine behind the driver's table: the runtime's own launchers run kernels on it.
 * Ownership: a Machine belongs to its maker; functions that it gave out live in its arena. */
#ifndef ISOC_MACHINE_H
#define ISOC_MACHINE_H

#include "launch/driver.h"
#include "ptx/run.h"

/* A device of its own; cast to CuModule, it is the module that is loaded on it. */
typedef struct Machine {
    Arena *arena;
    const PtxModule *ptx;
    const FdpaClass *numerics;
    const PtxMemory *memory;
    u64 seed;
    struct PtxTests *tests; /* with `terms`, or NULL */
    struct PtxChoices *choices; /* likewise */
    bool terms;
    u64 limit;        /* instructions of one CTA; 0: none */
    bool early;       /* launches may begin while what comes before still runs */
    u32 copy_turns;   /* of bulk copies at most; 0: a few */
    /* Which CTAs run of a launch of this kernel, whose instructions the report says were covered;
     * NULL: all. */
    bool (*wanted)(void *self, const u32 cta[3]);
    void *wanted_self;
    Str wanted_of;
    PtxReport report; /* of all launches since the caller cleared it */
    u64 grid;         /* CTAs of the last launch */
} Machine;

/* So many multiprocessors that no kernel's CTA has more than one tile. */
enum { MACHINE_MULTIPROCESSORS = 1 << 20 };

const Driver *machine_driver(void);

#endif
