/* Any bytes as a rank's trace, compared with itself: refused, or without a difference. */
#include "iso_model.h"
#include "model/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Of this process, which takes it away. */
static char folder[] = "/tmp/isoc-trace-XXXXXX";
static char path[64];

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void write_trace(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        if (!mkdtemp(folder) || atexit(remove_folder))
            abort();
        snprintf(path, sizeof path, "%s/rank-0.trace", folder);
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file))
        abort();
}

static iso_status compare_trace(const uint8_t *data, size_t size, iso_difference *difference)
{
    write_trace(data, size);
    return iso_trace_diff(folder, folder, difference);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    iso_difference difference;
    if (!compare_trace(data, size, &difference) && difference.differ)
        abort();
    return 0;
}
