/* Where ranks meet: gathers of small records, and word of ranks that died or left.
 * Ownership: a Store owns its sockets and threads; rank 0's also serves the others.
 *
 * Every rank holds one stream to the server in rank 0's process. A process that dies, however it
 * dies, closes its stream, and the server tells the others. */
#ifndef ISO_STORE_H
#define ISO_STORE_H

#include "error.h"

enum { GROUP_RANKS = 64 };

enum { RANK_HERE = 0, RANK_DIED = 1, RANK_LEFT = 2 };

typedef struct Store Store;

typedef struct StoreConfig {
    int rank, ranks;
    const char *where; /* as iso_group_config.bootstrap */
    double timeout;
    int listener; /* > 0: rank 0 listens there already; the store's from then on */
} StoreConfig;

/* Returns when every rank is connected. */
iso_status store_open(Store **store, const StoreConfig *config);
/* all: `size` bytes of each rank, in order of rank. Collective; also a barrier. */
iso_status store_gather(Store *store, const void *own, size_t size, void *all);
/* RANK_HERE, RANK_DIED or RANK_LEFT. */
int store_rank(const Store *store, int rank);
/* From now on what befalls rank r is also written to word[r], and for the first one 1 + r to
 * word[GROUP_RANKS]; they must outlive the store. */
void store_mirror(Store *store, volatile uint32_t *word);
/* Where this rank waits, told to all; where each said last that it waits, 0 at first. */
void store_tell(Store *store, uint32_t epoch);
uint32_t store_told(const Store *store, int rank);
void store_close(Store *store);

/* Seconds of a clock that only goes forward. */
double clock_seconds(void);

#endif
