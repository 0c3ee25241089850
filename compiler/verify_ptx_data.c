/* Tensors for the PTX machine: as large as the contract says, backed where they are touched. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "verify_ptx_impl.h"

#include "sample.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, GUARD = 1 << 16 };

/* Starts at a multiple of the page; a gap on both sides keeps neighbours from being reached. */
void *verify_ptx_map(PtxMaps *maps, size_t bytes, Arena *arena)
{
    size_t size = (bytes + PAGE - 1) / PAGE * PAGE + 2 * GUARD;
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    vec_push(arena, &maps->map, map);
    vec_push(arena, &maps->size, size);
    return (u8 *)map + GUARD;
}

void verify_ptx_unmap(PtxMaps *maps)
{
    for (int i = 0; i < maps->map.n; i++)
        munmap(maps->map.v[i], maps->size.v[i]);
    maps->map.n = maps->size.n = 0;
}

static void fill(PtxTensor *t, size_t page)
{
    size_t each = (size_t)t->element, lo = page * PAGE / each, hi = (page + 1) * PAGE / each;
    static const DType types[] = {[ISO_BF16] = DT_BF16, [ISO_F16] = DT_F16, [ISO_F32] = DT_F32};
    for (size_t at = lo; at < hi && at * each < t->bytes; at++)
        sample_put(types[t->tensor.dtype], t->tensor.data, (i64)at, t->seed,
                   t->row_elements ? (i64)at / t->row_elements : 0);
    t->filled[page] = 1;
}

static void touch(void *self, size_t offset, size_t size)
{
    PtxTensor *t = self;
    for (size_t page = offset / PAGE; page <= (offset + size - 1) / PAGE; page++)
        if (!t->filled[page])
            fill(t, page);
}

void verify_ptx_param(PtxTensor *t, const char *name, PtxMemory *memory, PtxMaps *maps,
                      Arena *arena)
{
    t->tensor.data = verify_ptx_map(maps, t->bytes, arena);
    t->filled = verify_ptx_map(maps, t->bytes / PAGE + 2, arena);
    PtxRegion region = {.name = name, .base = t->tensor.data, .size = t->bytes, .touch = touch,
                        .self = t};
    ptx_memory_add(memory, &region);
}

u8 *verify_ptx_buffer(const char *name, size_t bytes, size_t known, PtxMemory *memory,
                      PtxMaps *maps, Arena *arena)
{
    PtxRegion region = {.name = name, .size = bytes, .writable = true};
    region.base = verify_ptx_map(maps, bytes, arena);
    region.known = verify_ptx_map(maps, bytes, arena);
    if (!region.base || !region.known)
        return NULL;
    memset(region.known, 1, known);
    ptx_memory_add(memory, &region);
    return region.base;
}

void verify_ptx_result(PtxTensor *t, const char *name, PtxMemory *memory, PtxMaps *maps,
                       Arena *arena)
{
    PtxRegion region = {.name = name, .size = t->bytes, .writable = true};
    t->tensor.data = region.base = verify_ptx_map(maps, t->bytes, arena);
    t->known = region.known = verify_ptx_map(maps, t->bytes, arena);
    t->expected = verify_ptx_map(maps, t->bytes, arena);
    ptx_memory_add(memory, &region);
}
