/* The files of compiler/device and contracts/include, embedded at build time, so that a compilation
 * reads no disk, and an import writes a contract that needs none.
 * Ownership: static, constant. */
#ifndef ISOC_DEVICE_TEXT_H
#define ISOC_DEVICE_TEXT_H

#include <stddef.h>

typedef struct DeviceText {
    const char *name; /* "iso_num.cuh" */
    const char *text; /* zero-terminated */
    size_t size;      /* without the zero */
} DeviceText;

/* In order of name; an entry with a NULL name ends the table. */
extern const DeviceText device_texts[];
extern const DeviceText contract_texts[];

#endif
