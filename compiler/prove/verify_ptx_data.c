/* Tensors for the PTX machine: as large as the contract says, backed where they are touched. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "verify_ptx_impl.h"

#include "verify/sample.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, GUARD = 1 << 16 };

/* Starts at a multiple of the page; a gap on both sides keeps neighbours from being reached. */
static void *map_bytes(PtxPlace *place, size_t bytes)
{
    if (place->failed)
        return NULL;
    size_t size = (bytes + PAGE - 1) / PAGE * PAGE + 2 * GUARD;
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        place->failed = true;
        return NULL;
    }
    vec_push(place->arena, &place->maps.map, map);
    vec_push(place->arena, &place->maps.size, size);
    return (u8 *)map + GUARD;
}

static u8 *shifted(PtxPlace *place, size_t bytes)
{
    u8 *at = map_bytes(place, bytes + place->shift);
    return at ? at + place->shift : NULL;
}

void verify_ptx_unmap(PtxMaps *maps)
{
    for (int i = 0; i < maps->map.n; i++)
        munmap(maps->map.v[i], maps->size.v[i]);
    maps->map.n = maps->size.n = 0;
}

/* Rows of scores after the first eight: all equal, all -inf, all NaN, few that are not -inf, few
 * that are +inf. */
static bool put_score(const PtxTensor *t, i64 at)
{
    enum { EQUAL = 8, LOWEST, NOTHING, FEW, HIGHEST, KINDS, ONE_OF = 97 };
    static const u16 bf16[] = {0x3f80, 0xff80, 0x7fc0, 0xff80, 0x7f80};
    static const u16 f16[] = {0x3c00, 0xfc00, 0x7e00, 0xfc00, 0x7c00};
    i64 kind = at / t->pitch % KINDS;
    bool one = at % t->pitch % ONE_OF == ONE_OF / 2;
    if (kind < EQUAL || (kind == FEW && one) || (kind == HIGHEST && !one))
        return false;
    u32 bits = (u32)bf16[kind - EQUAL] << 16;
    if (t->tensor.dtype == ISO_F32)
        ((u32 *)t->tensor.data)[at] = bits;
    else
        ((u16 *)t->tensor.data)[at] = t->tensor.dtype == ISO_BF16 ? (u16)(bits >> 16)
                                                                  : f16[kind - EQUAL];
    return true;
}

static void fill(PtxTensor *t, size_t page)
{
    size_t each = (size_t)t->element, lo = page * PAGE / each, hi = (page + 1) * PAGE / each;
    static const DType types[] = {[ISO_BF16] = DT_BF16, [ISO_F16] = DT_F16, [ISO_F32] = DT_F32};
    for (size_t at = lo; at < hi && at * each < t->bytes; at++)
        if (t->scores && put_score(t, (i64)at))
            continue;
        else if (t->tensor.dtype == ISO_I32)
            sample_put_index(t->tensor.data, (i64)at, t->seed, NULL, 0, t->indices);
        else
            sample_put(types[t->tensor.dtype], t->tensor.data, (i64)at, t->seed,
                       t->row_elements ? (i64)at / t->pitch : 0);
    t->filled[page] = 1;
}

static void touch(void *self, size_t offset, size_t size)
{
    PtxTensor *t = self;
    for (size_t page = offset / PAGE; page <= (offset + size - 1) / PAGE; page++)
        if (!t->filled[page])
            fill(t, page);
}

void verify_ptx_param(PtxPlace *place, PtxTensor *t, const char *name, u64 input)
{
    t->tensor.data = shifted(place, t->bytes);
    t->filled = map_bytes(place, t->bytes / PAGE + 2);
    if (place->failed)
        return;
    PtxRegion region = {.name = name, .base = t->tensor.data, .size = t->bytes, .touch = touch,
                        .self = t, .input = place->terms && !t->indices ? input : 0,
                        .element = (u32)t->element};
    ptx_memory_add(place->memory, &region);
}

static void add_written(PtxPlace *place, PtxRegion *region, const char *name, size_t bytes)
{
    region->name = name;
    region->size = bytes;
    region->writable = true;
    region->base = shifted(place, bytes);
    region->known = map_bytes(place, bytes);
    if (place->terms)
        region->shadow = map_bytes(place, bytes * 4);
    if (!place->failed)
        ptx_memory_add(place->memory, region);
}

u8 *verify_ptx_buffer(PtxPlace *place, const char *name, size_t bytes, size_t known)
{
    PtxRegion region = {0};
    if (place->terms)
        region.writer = map_bytes(place, bytes * 2 + 8);
    add_written(place, &region, name, bytes);
    if (place->failed)
        return NULL;
    memset(region.known, 1, known);
    return region.base;
}

void verify_ptx_result(PtxPlace *place, PtxTensor *t, const char *name)
{
    PtxRegion region = {.once = true};
    add_written(place, &region, name, t->bytes);
    t->tensor.data = region.base;
    t->known = region.known;
    t->shadow = region.shadow;
    t->expected = map_bytes(place, t->bytes);
}
