/* Rows of keys and values into a paged cache: the kernel's parameters and its text.
 * Ownership: the text is static; an iso_module holds the kernel once it is loaded. */
#ifndef ISO_CACHE_WRITE_H
#define ISO_CACHE_WRITE_H

#include "driver.h"

#include <stdint.h>

enum { CACHE_PAIRS = 4, CACHE_THREADS = 128 };

/* One tensor of rows and its cache; steps count bytes. */
typedef struct CachePair {
    uint64_t from, to;
    int64_t row, from_outer; /* of the rows: to the next one; to the next run of units in one */
    int64_t block, place, to_outer;
    uint32_t inner, units;   /* of a run, of a row */
} CachePair;

/* The one parameter of iso_cache_write. Launched with a CTA for each row and pair. */
typedef struct CacheArgs {
    uint64_t slots, live; /* addresses; live may be 0 */
    uint32_t page, unit;  /* places of a block; bytes that are copied at once: 16 or 2 */
    CachePair pair[CACHE_PAIRS];
} CacheArgs;

extern const char cache_write_ptx[];

/* Loads the kernel. */
iso_status cache_write_open(const Driver *driver, CuModule *module, CuFunction *function);

#endif
