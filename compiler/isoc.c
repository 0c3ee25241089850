/* The compiler's public calls: compiling a file, and looking into a cubin. */
#include "isoc.h"

#include "pipeline.h"

#include <stdlib.h>

_Static_assert((int)ISOC_ERROR_MEMORY == (int)OUTCOME_MEMORY, "one set of codes");

isoc_status isoc_compile_file(const char *path, const isoc_options *options, isoc_result *result)
{
    if (result)
        *result = (isoc_result){0};
    if (!path || !result || (options && options->size != sizeof *options))
        return ISOC_ERROR_USAGE;
    PipelineInput input = {.path = str_of(path), .reader = reader_disk()};
    if (options) {
        input.arch = options->arch;
        input.layout = options->layout;
        input.cache = options->cache_dir;
    }
    Pipeline *p = malloc(sizeof *p);
    if (!p || !pipeline_open(p, &input)) {
        free(p);
        return ISOC_ERROR_MEMORY;
    }
    result->memory = p;
    if (pipeline_run(p, STAGE_ARTIFACT)) {
        result->cubin = (void *)p->artifact.s;
        result->cubin_size = (size_t)p->artifact.n;
    }
    result->messages = pipeline_messages(p);
    return (isoc_status)p->outcome;
}

void isoc_result_free(isoc_result *result)
{
    if (!result)
        return;
    if (result->memory)
        pipeline_close(result->memory);
    free(result->memory);
    free(result->messages);
    *result = (isoc_result){0};
}

isoc_status isoc_cubin_manifest(const void *cubin, size_t size, const char **json,
                                size_t *json_size, bool *intact)
{
    if (!cubin || !json || !json_size || !intact)
        return ISOC_ERROR_USAGE;
    Str bytes = {cubin, size > INT32_MAX ? -1 : (int)size}, manifest;
    if (bytes.n < 0 || artifact_manifest(bytes, &manifest))
        return ISOC_ERROR_ARTIFACT;
    *json = manifest.s;
    *json_size = (size_t)manifest.n;
    jmp_buf oom;
    Arena *arena = arena_new();
    if (!arena)
        return ISOC_ERROR_MEMORY;
    isoc_status status = ISOC_ERROR_MEMORY;
    arena_on_oom(arena, &oom);
    if (!setjmp(oom)) {
        *intact = artifact_check(bytes, arena) == NULL;
        status = ISOC_OK;
    }
    arena_free(arena);
    return status;
}
