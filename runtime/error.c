/* Statuses and sentences. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[1024];

const char *iso_version(void)
{
    return ISO_VERSION;
}

const char *iso_status_string(iso_status status)
{
    switch (status) {
#define X(id, value, sentence)                                                                     \
    case ISO_##id:                                                                                 \
        return sentence;
#include "status.def"
#undef X
    }
    return "not a status of this library";
}

const char *iso_last_error(void)
{
    return last_error;
}

iso_status iso_fail(iso_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return status;
}
