/* How every call of libiso fails: a status, and a sentence for iso_last_error.
 * Ownership: the sentence's buffer is the thread's own and reused. */
#ifndef ISO_ERROR_H
#define ISO_ERROR_H

#include "iso.h"

#include <stdbool.h>

/* Records the sentence for iso_last_error and returns `status`, so that a failure is one line. */
iso_status iso_fail(iso_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
