/* Running a kernel's grid: memory as regions, findings instead of crashes.
 * Ownership: regions and parameters belong to the caller; findings to the arena of the report. */
#ifndef ISOC_PTX_RUN_H
#define ISOC_PTX_RUN_H

#include "base/fdpa.h"
#include "ptx.h"

/* A tensor, workspace or counter in host memory, as global memory of the machine. Addresses are the
 * host's own. */
typedef struct PtxRegion {
    const char *name;
    u8 *base;
    size_t size;
    bool writable;
    bool once;      /* with `known`: a second write to a byte is a finding */
    u8 *known; /* one byte per byte: not 0 once it holds something; NULL: it always does */
    /* Called before the machine first touches bytes: to fill them; may be NULL. */
    void (*touch)(void *self, size_t offset, size_t size);
    void *self;
    /* For terms: an input's elements are leaves; what is written has a term per two bytes. */
    u64 input;     /* number of the input; 0: what it holds is concrete */
    u32 element;   /* bytes of an input's element */
    u64 *shadow;   /* of a writable region, or NULL */
    u64 *writer;   /* per word: who stored to it, where CTAs share it (grid.h); or NULL */
} PtxRegion;

typedef struct PtxMemory {
    Arena *arena;
    VEC(PtxRegion) regions; /* in order of base */
} PtxMemory;

void ptx_memory_add(PtxMemory *memory, const PtxRegion *region);

typedef enum PtxSwizzle { PTX_SWIZZLE_NONE = 0, PTX_SWIZZLE_128B = 3 } PtxSwizzle;

enum { PTX_MAP_DIMS = 4 };

/* What the machine keeps in the 128 bytes of a tensor map: dimensions, innermost first, of which
 * those past `rank` have one index. */
typedef struct PtxTensorMap {
    u64 magic;
    u64 base;
    u64 stride[PTX_MAP_DIMS - 1]; /* bytes, of dimensions 1 and up */
    u32 dim[PTX_MAP_DIMS], box[PTX_MAP_DIMS];
    u32 rank, element, swizzle; /* element: bytes; PtxSwizzle */
} PtxTensorMap;

void ptx_encode_map(PtxTensorMap *map, u64 base, u32 element, u32 rank, const u64 *dims,
                    const u64 *strides, const u32 *box, PtxSwizzle swizzle);

typedef struct PtxLaunch {
    const PtxKernel *kernel;
    u32 grid[3], block[3];
    u32 shared_bytes;            /* dynamic */
    const void *const *params;   /* one pointer per parameter */
    const PtxMemory *memory;
    const FdpaClass *numerics;
    u64 seed;                    /* of the order of warps and copies; 0: the plain one */
    bool terms;                  /* beside the numbers */
    struct PtxTrace *trace;      /* with `terms`: gets the operations; or NULL */
    struct PtxTests *tests;      /* with `terms`: branches may test values (tests.h); or NULL */
    struct PtxChoices *choices;  /* with `terms`: ranks may be compared (choice.h); or NULL */
    u64 limit;                   /* instructions of one CTA; 0: none */
    bool early;                  /* may begin while the grid before still runs */
    u32 copy_turns;              /* of a bulk copy, at most, and all must be waited for; 0: a few */
    /* Which CTAs run; NULL: all. */
    bool (*wanted)(void *self, const u32 cta[3]);
    void *wanted_self;
} PtxLaunch;

typedef struct PtxReport {
    Arena *arena;
    VEC(Str) findings; /* "kernel:line instruction: what"; none: it ran to its end */
    u8 *covered;            /* not NULL: set to 1 for each instruction of the kernel that ran */
    u64 ctas, instructions; /* run; an instruction counts once per warp */
    u64 longest;            /* instructions of a cluster's CTAs, on the average of each */
} PtxReport;

/* False if there was a finding. */
bool ptx_run(const PtxLaunch *launch, PtxReport *report);

#endif
