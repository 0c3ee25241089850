/* Any bytes as PTX: a module, or a sentence that says why it is none. */
#include <stdlib.h>

#include "ptx/ptx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    PtxModule module = {0};
    Str problem = {0}, text = str_copy(arena, (Str){(const char *)data, (int)size});
    if (!ptx_parse(text, &module, &problem, arena) && problem.n == 0)
        abort();
    arena_free(arena);
    return 0;
}
