/* The file of a trace: what one rank's ops gave, call by call.
 * Ownership: plain values. A file is TRACE_MAGIC, then records; numbers are this machine's.
 *
 * A record is a TraceRecord, `rows` TraceRows, and the rows' elements, row_bytes each, filled up to
 * a multiple of 8 bytes. A row may lie in several records: of slots that ranks share, each has its
 * own. */
#ifndef ISO_TRACE_H
#define ISO_TRACE_H

#include "iso.h"

#define TRACE_MAGIC "isotrace"

typedef struct TraceRow {
    int64_t sequence, position;
} TraceRow;

typedef struct TraceRecord {
    char op[128], value[128];
    int32_t order, result, turn; /* the call's number in the model, and the op's result */
    int32_t element_bytes, n_axes;
    int64_t whole[ISO_MAX_AXES], lo[ISO_MAX_AXES], hi[ISO_MAX_AXES]; /* of a row: its own axes */
    int64_t rows, row_bytes;
} TraceRecord;

#endif
