/* Launches of decoding attention that go each of its kernel's ways: requests, pages, splits, roots
 * with and without room, windows of tokens, groups of queries.
 * Ownership: constants. */
#ifndef ISOC_TEST_PTX_REQUESTS_H
#define ISOC_TEST_PTX_REQUESTS_H

#include "prove/verify_ptx_impl.h"

typedef struct Requests {
    const char *op; /* of mutants.iso */
    u8 uneven;
    PtxRequests requests;
} Requests;

/* NULL past the last. */
const Requests *requests_at(int i);

#endif
