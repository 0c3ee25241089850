/* The thread's last error and the library's own allocation: shared by all of libiso.
 * Ownership: the message buffer is per thread and reused. */
#ifndef ISO_ERROR_H
#define ISO_ERROR_H

#include "iso.h"

#include <stdbool.h>

/* Records the sentence for iso_last_error and returns `status`, so that a failure is one line. */
iso_status iso_fail(iso_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
