/* A C header for other launchers: the kernels' names, threads and shared memory, the fingerprints.
 * Ownership: the text lives in its own arena. */
#ifndef ISOC_HEADER_WRITE_H
#define ISOC_HEADER_WRITE_H

#include "emit/emit.h"

void header_write(const Dag *dag, const Emitted *emitted, Text *out);

#endif
