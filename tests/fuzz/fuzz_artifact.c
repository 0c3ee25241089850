/* Any bytes as a cubin with a manifest. */
#include "cubin/artifact.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    Str bytes = {(const char *)data, (int)size}, out;
    (void)artifact_check(bytes, arena);
    if (!artifact_append(bytes, STR("{}"), &out, arena) && artifact_manifest(out, &bytes))
        __builtin_trap(); /* what was appended must be found */
    arena_free(arena);
    return 0;
}
