/* iso_cache_write: moves new rows of keys and values to their slots, on either device. */
#include "cache_write.h"

#include "module.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A CTA has row %ctaid.x of pair %ctaid.y; its threads copy the row's units. */
const char cache_write_ptx[] =
    ".version 7.8\n"
    ".target sm_90\n"
    ".address_size 64\n"
    ".visible .entry iso_cache_write(.param .align 8 .b8 args[280])\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b16 %half;\n"
    "    .reg .b32 %row, %live, %page, %unit, %y, %inner, %units, %u, %outer, %rest, %a, %b, %c, "
    "%d;\n"
    "    .reg .b64 %at, %from, %to, %pair, %step, %slots, %x, %z;\n"
    "    .reg .b64 %slot, %block, %place, %wide;\n"
    "    griddepcontrol.launch_dependents;\n"
    "    griddepcontrol.wait;\n"
    "    mov.u32 %row, %ctaid.x;\n"
    "    ld.param.u64 %at, [args + 8];\n"
    "    setp.eq.u64 %p, %at, 0;\n"
    "    @%p bra ALL;\n"
    "    ld.global.u32 %live, [%at];\n"
    "    setp.ge.s32 %p, %row, %live;\n"
    "    @%p bra DONE;\n"
    "ALL:\n"
    "    ld.param.u64 %slots, [args];\n"
    "    mul.wide.u32 %x, %row, 8;\n"
    "    add.u64 %slots, %slots, %x;\n"
    "    ld.global.s64 %slot, [%slots];\n"
    "    setp.lt.s64 %p, %slot, 0;\n"
    "    @%p bra DONE;\n"
    "    ld.param.u32 %page, [args + 16];\n"
    "    cvt.s64.u32 %wide, %page;\n"
    "    div.s64 %block, %slot, %wide;\n"
    "    mul.lo.s64 %place, %block, %wide;\n"
    "    sub.s64 %place, %slot, %place;\n"
    /* the pair */
    "    mov.u32 %y, %ctaid.y;\n"
    "    mul.wide.u32 %x, %y, 64;\n"
    "    mov.u64 %pair, args;\n"
    "    add.u64 %pair, %pair, %x;\n"
    "    ld.param.u64 %from, [%pair + 24];\n"
    "    ld.param.u64 %step, [%pair + 40];\n"
    "    cvt.u64.u32 %x, %row;\n"
    "    mul.lo.u64 %x, %x, %step;\n"
    "    add.u64 %from, %from, %x;\n"
    "    ld.param.u64 %to, [%pair + 32];\n"
    "    ld.param.u64 %step, [%pair + 56];\n"
    "    mul.lo.u64 %x, %block, %step;\n"
    "    add.u64 %to, %to, %x;\n"
    "    ld.param.u64 %step, [%pair + 64];\n"
    "    mul.lo.u64 %x, %place, %step;\n"
    "    add.u64 %to, %to, %x;\n"
    "    ld.param.u32 %inner, [%pair + 80];\n"
    "    ld.param.u32 %units, [%pair + 84];\n"
    "    ld.param.u32 %unit, [args + 20];\n"
    "    mov.u32 %u, %tid.x;\n"
    "LOOP:\n"
    "    setp.ge.u32 %p, %u, %units;\n"
    "    @%p bra DONE;\n"
    "    div.u32 %outer, %u, %inner;\n"
    "    mul.lo.u32 %rest, %outer, %inner;\n"
    "    sub.u32 %rest, %u, %rest;\n"
    "    mul.wide.u32 %x, %rest, %unit;\n"
    "    cvt.u64.u32 %at, %outer;\n"
    "    ld.param.u64 %step, [%pair + 48];\n"
    "    mul.lo.u64 %z, %at, %step;\n"
    "    add.u64 %z, %z, %x;\n"
    "    add.u64 %z, %z, %from;\n"
    "    ld.param.u64 %step, [%pair + 72];\n"
    "    mul.lo.u64 %at, %at, %step;\n"
    "    add.u64 %at, %at, %x;\n"
    "    add.u64 %at, %at, %to;\n"
    "    add.u32 %u, %u, 128;\n"
    "    setp.eq.u32 %p, %unit, 16;\n"
    "    @%p bra WIDE;\n"
    "    ld.global.u16 %half, [%z];\n"
    "    st.global.u16 [%at], %half;\n"
    "    bra LOOP;\n"
    "WIDE:\n"
    "    ld.global.v4.u32 {%a, %b, %c, %d}, [%z];\n"
    "    st.global.v4.u32 [%at], {%a, %b, %c, %d};\n"
    "    bra LOOP;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n";

_Static_assert(sizeof(CacheArgs) == 280 && offsetof(CacheArgs, pair) == 24 &&
                   sizeof(CachePair) == 64,
               "as the text reads them");
_Static_assert(offsetof(CachePair, to_outer) == 48 && offsetof(CachePair, inner) == 56,
               "as the text reads them");

iso_status cache_write_open(const Driver *driver, CuModule *module, CuFunction *function)
{
    iso_status status = driver_check(driver, driver->module_load(module, cache_write_ptx),
                                     "cuModuleLoadData");
    return status ? status
                  : driver_check(driver,
                                 driver->module_function(function, *module, "iso_cache_write"),
                                 "iso_cache_write");
}

/* ---- what is passed -------------------------------------------------------------------------- */

static iso_status check_pair(int i, const iso_tensor *rows, const iso_tensor *cache)
{
    bool same = rows->n_axes >= 2 && rows->n_axes < ISO_MAX_AXES &&
                cache->n_axes == rows->n_axes + 1 && rows->dtype == cache->dtype;
    for (int a = 1; same && a < rows->n_axes; a++)
        same = rows->shape[a] == cache->shape[a + 1];
    if (!same)
        return iso_fail(ISO_BAD_TENSOR, "iso_cache_write: cache %d has not the dtype of its rows, "
                        "or other axes than blocks, places, and theirs but the first", i);
    if (rows->stride[rows->n_axes - 1] != 1 || cache->stride[cache->n_axes - 1] != 1)
        return iso_fail(ISO_BAD_TENSOR, "iso_cache_write: the innermost axis of tensor %d has a "
                        "stride other than 1", i);
    if (!rows->data || !cache->data)
        return iso_fail(ISO_BAD_TENSOR, "iso_cache_write: tensor %d has data NULL", i);
    return ISO_OK;
}

/* Axes 1.. as runs of neighbours and one step between runs, in both tensors. */
static iso_status make_pair(int i, const iso_tensor *rows, const iso_tensor *cache, CachePair *out)
{
    int64_t each = manifest_dtype_bytes(rows->dtype), inner = 1, outer = 1;
    int a = rows->n_axes - 1;
    for (; a >= 1 && rows->stride[a] == inner && cache->stride[a + 1] == inner; a--)
        inner *= rows->shape[a];
    int64_t from = a >= 1 ? rows->stride[a] : 0, to = a >= 1 ? cache->stride[a + 1] : 0;
    for (; a >= 1; a--) {
        if (rows->stride[a] != from * outer || cache->stride[a + 1] != to * outer)
            return iso_fail(ISO_BAD_TENSOR, "iso_cache_write: the axes of tensor %d are no runs at "
                            "one distance", i);
        outer *= rows->shape[a];
    }
    if (inner * outer * each > INT32_MAX)
        return iso_fail(ISO_BAD_TENSOR, "iso_cache_write: a row of tensor %d is too long", i);
    *out = (CachePair){(uint64_t)(uintptr_t)rows->data,
                       (uint64_t)(uintptr_t)cache->data,
                       rows->stride[0] * each,
                       from * each,
                       cache->stride[0] * each,
                       cache->stride[1] * each,
                       to * each,
                       (uint32_t)(inner * each),
                       (uint32_t)(inner * outer * each)};
    return ISO_OK;
}

static bool copies_by(const CachePair *p, int64_t bytes)
{
    return p->from % (uint64_t)bytes == 0 && p->to % (uint64_t)bytes == 0 && p->row % bytes == 0 &&
           p->from_outer % bytes == 0 && p->block % bytes == 0 && p->place % bytes == 0 &&
           p->to_outer % bytes == 0 && p->inner % bytes == 0;
}

static iso_status make_args(const iso_cache_rows *what, CacheArgs *args)
{
    *args = (CacheArgs){.slots = (uint64_t)(uintptr_t)what->slots,
                        .live = (uint64_t)(uintptr_t)what->rows_device,
                        .page = (uint32_t)what->cache[0].shape[1],
                        .unit = 16};
    for (int i = 0; i < what->n; i++) {
        const iso_tensor *rows = &what->rows[i], *cache = &what->cache[i];
        iso_status status = check_pair(i, rows, cache);
        if (!status && (cache->shape[1] != args->page || rows->shape[0] != what->rows[0].shape[0]))
            status = iso_fail(ISO_BAD_TENSOR, "iso_cache_write: tensor %d has other rows, or other "
                              "places of a block, than tensor 0", i);
        if (!status)
            status = make_pair(i, rows, cache, &args->pair[i]);
        if (status)
            return status;
        if (!copies_by(&args->pair[i], args->unit))
            args->unit = 2;
    }
    for (int i = 0; i < what->n; i++) {
        args->pair[i].inner /= args->unit;
        args->pair[i].units /= args->unit;
    }
    return ISO_OK;
}

/* ---- both devices ---------------------------------------------------------------------------- */

static iso_status write_here(const iso_cache_rows *what, const CacheArgs *args)
{
    int64_t rows = what->rows[0].shape[0];
    int64_t live = what->rows_device && *what->rows_device < rows ? *what->rows_device : rows;
    for (int64_t r = 0; r < live; r++) {
        int64_t slot = what->slots[r], blocks = what->cache[0].shape[0];
        if (slot < 0)
            continue;
        if (slot / args->page >= blocks)
            return iso_fail(ISO_INVALID_ARGUMENT, "iso_cache_write: row %" PRId64 " has slot %"
                            PRId64 ", the cache has %" PRId64, r, slot, blocks * args->page);
        for (int i = 0; i < what->n; i++) {
            const CachePair *p = &args->pair[i];
            char *to = (char *)(uintptr_t)p->to + slot / args->page * p->block +
                       slot % args->page * p->place;
            const char *from = (const char *)(uintptr_t)p->from + r * p->row;
            for (uint32_t run = 0; run < p->units / p->inner; run++)
                memcpy(to + run * p->to_outer, from + run * p->from_outer,
                       (size_t)p->inner * args->unit);
        }
    }
    return ISO_OK;
}

static iso_status write_there(const iso_module *module, const iso_cache_rows *what,
                              CacheArgs *args, void *stream)
{
    CuLaunchAttribute early = {.id = CU_LAUNCH_STREAM_SERIALIZATION, .value.number = 1};
    CuLaunchConfig config = {.grid_x = (unsigned)what->rows[0].shape[0],
                             .grid_y = (unsigned)what->n,
                             .grid_z = 1,
                             .block_x = CACHE_THREADS,
                             .block_y = 1,
                             .block_z = 1,
                             .stream = stream,
                             .attributes = &early,
                             .n_attributes = 1};
    void *parameters[] = {args};
    if (!module->cache_write)
        return iso_fail(ISO_UNSUPPORTED, "iso_cache_write: contract %s has no `attend`",
                        module->manifest->contract);
    return driver_check(module->driver,
                        module->driver->launch_config(&config, module->cache_write, parameters,
                                                      NULL),
                        "iso_cache_write");
}

iso_status iso_cache_write(const iso_module *module, const iso_cache_rows *what, void *stream)
{
    CacheArgs args;
    if (!module || !what || !what->rows || !what->cache || !what->slots)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_cache_write: a NULL argument");
    if (what->n < 1 || what->n > CACHE_PAIRS)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_cache_write: %d tensors; it takes 1 to %d",
                        what->n, CACHE_PAIRS);
    if (what->rows[0].n_axes < 1 || what->rows[0].shape[0] < 0 ||
        what->rows[0].shape[0] > INT32_MAX || what->cache[0].n_axes < 2 ||
        what->cache[0].shape[1] < 1 || what->cache[0].shape[1] > INT32_MAX)
        return iso_fail(ISO_BAD_TENSOR, "iso_cache_write: tensor 0 has no rows, or its cache no "
                        "places");
    iso_status status = make_args(what, &args);
    if (status || what->rows[0].shape[0] == 0)
        return status;
    return module->device == ISO_CPU ? write_here(what, &args)
                                     : write_there(module, what, &args, stream);
}
