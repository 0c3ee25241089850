/* Rows into a paged cache: the CPU's bytes, the kernel's on the PTX machine, what is refused. */
#include "launch/cache_write.h"
#include "prove/machine.h"
#include "module.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 9, LIVE = 8, BLOCKS = 5, PAGE = 16, HEADS = 3, DEPTH = 24, PITCH = 80 };
enum { CACHE = BLOCKS * PAGE * HEADS * DEPTH, POISON = 0x7FC1 };

static const int64_t slots[ROWS] = {79, 0, -1, 33, 16, 15, 64, 7, 40};
static const int32_t live = LIVE;

typedef struct Rig {
    _Alignas(16) uint16_t rows[2][ROWS * PITCH], cache[2][CACHE];
    iso_tensor from[2], to[2];
    iso_cache_rows what;
    iso_module module;
    /* the machine */
    Arena *arena;
    PtxModule ptx;
    PtxMemory memory;
    Machine machine;
} Rig;

static void tensor(iso_tensor *t, void *data, int n, const int64_t *shape, const int64_t *stride)
{
    *t = (iso_tensor){.data = data, .dtype = ISO_BF16, .n_axes = n};
    memcpy(t->shape, shape, (size_t)n * sizeof *shape);
    memcpy(t->stride, stride, (size_t)n * sizeof *stride);
}

/* Keys have places before heads, values heads before places; rows have gaps. */
static Rig *open_rig(iso_device device)
{
    static const int64_t rows[] = {ROWS, HEADS, DEPTH}, row_stride[] = {PITCH, DEPTH, 1};
    static const int64_t cache[] = {BLOCKS, PAGE, HEADS, DEPTH};
    static const int64_t strides[2][4] = {{PAGE * HEADS * DEPTH, HEADS * DEPTH, DEPTH, 1},
                                          {PAGE * HEADS * DEPTH, DEPTH, PAGE * DEPTH, 1}};
    Rig *rig = calloc(1, sizeof *rig);
    ck_assert_ptr_nonnull(rig);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < ROWS * PITCH; i++)
            rig->rows[t][i] = (uint16_t)(i * 7 + t);
        for (int i = 0; i < CACHE; i++)
            rig->cache[t][i] = POISON;
        tensor(&rig->from[t], rig->rows[t], 3, rows, row_stride);
        tensor(&rig->to[t], rig->cache[t], 4, cache, strides[t]);
    }
    rig->what = (iso_cache_rows){rig->from, rig->to, 2, slots, &live};
    rig->module.device = device;
    return rig;
}

static void add_region(Rig *rig, const char *name, const void *base, size_t size, bool writable)
{
    PtxRegion region = {.name = name, .base = (u8 *)base, .size = size, .writable = writable};
    ptx_memory_add(&rig->memory, &region);
}

static void open_machine(Rig *rig)
{
    Str problem = {0};
    rig->arena = arena_new();
    rig->memory.arena = rig->arena;
    add_region(rig, "rows", rig->rows, sizeof rig->rows, false);
    add_region(rig, "cache", rig->cache, sizeof rig->cache, true);
    add_region(rig, "slots", slots, sizeof slots, false);
    add_region(rig, "live", &live, sizeof live, false);
    ck_assert_msg(ptx_parse(str_of(cache_write_ptx), &rig->ptx, &problem, rig->arena), "%.*s",
                  STR_FMT(problem));
    rig->machine = (Machine){.arena = rig->arena, .ptx = &rig->ptx, .memory = &rig->memory,
                             .report = {.arena = rig->arena}};
    rig->module.driver = machine_driver();
    ck_assert_int_eq(rig->module.driver->module_function(&rig->module.cache_write,
                                                         (CuModule)(void *)&rig->machine,
                                                         "iso_cache_write"), 0);
}

static void close_rig(Rig *rig)
{
    if (rig->arena)
        arena_free(rig->arena);
    free(rig);
}

static uint16_t expected(const Rig *rig, int t, int slot, int head, int i)
{
    for (int r = 0; r < LIVE; r++)
        if (slots[r] == slot)
            return rig->rows[t][r * PITCH + head * DEPTH + i];
    return POISON;
}

static void check_caches(const Rig *rig)
{
    for (int t = 0; t < 2; t++)
        for (int slot = 0; slot < BLOCKS * PAGE; slot++)
            for (int head = 0; head < HEADS; head++)
                for (int i = 0; i < DEPTH; i++) {
                    int64_t at = slot / PAGE * rig->to[t].stride[0] +
                                 slot % PAGE * rig->to[t].stride[1] +
                                 head * rig->to[t].stride[2] + i;
                    ck_assert_uint_eq(rig->cache[t][at], expected(rig, t, slot, head, i));
                }
}

static void write_all(Rig *rig)
{
    iso_status status = iso_cache_write(&rig->module, &rig->what, NULL);
    if (rig->arena && rig->machine.report.findings.n)
        ck_abort_msg("%.*s", STR_FMT(rig->machine.report.findings.v[0]));
    ck_assert_msg(status == ISO_OK, "%s", iso_last_error());
}

START_TEST(rows_go_to_their_slots)
{
    Rig *rig = open_rig(_i ? ISO_CUDA : ISO_CPU);
    if (_i)
        open_machine(rig);
    write_all(rig);
    check_caches(rig);
    close_rig(rig);
}
END_TEST

/* Nothing on 16 bytes: two bytes at once. */
START_TEST(rows_that_lie_anyhow)
{
    Rig *rig = open_rig(_i ? ISO_CUDA : ISO_CPU);
    if (_i)
        open_machine(rig);
    for (int t = 0; t < 2; t++) {
        rig->from[t].shape[2] = rig->to[t].shape[3] = 23;
        rig->from[t].data = rig->rows[t] + 1;
    }
    write_all(rig);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < DEPTH; i++)
            ck_assert_uint_eq(rig->cache[t][33 / PAGE * rig->to[t].stride[0] +
                                            33 % PAGE * rig->to[t].stride[1] +
                                            rig->to[t].stride[2] + i],
                              i < 23 ? rig->rows[t][3 * PITCH + DEPTH + i + 1] : POISON);
    close_rig(rig);
}
END_TEST

#define REFUSED(status, part)                                                                      \
    do {                                                                                           \
        ck_assert_int_eq(iso_cache_write(&rig->module, &rig->what, NULL), status);                 \
        ck_assert_msg(strstr(iso_last_error(), part) != NULL, "%s", iso_last_error());             \
    } while (0)

START_TEST(what_does_not_fit_is_refused)
{
    static const int64_t past[ROWS] = {BLOCKS * PAGE};
    Rig *rig = open_rig(ISO_CPU);
    rig->what.slots = past;
    REFUSED(ISO_INVALID_ARGUMENT, "row 0 has slot 80, the cache has 80");
    rig->what.slots = NULL;
    REFUSED(ISO_INVALID_ARGUMENT, "NULL");
    rig->what.slots = slots;
    rig->what.n = 5;
    REFUSED(ISO_INVALID_ARGUMENT, "takes 1 to 4");
    rig->what.n = 2;
    rig->from[1].dtype = ISO_F16;
    REFUSED(ISO_BAD_TENSOR, "dtype");
    rig->from[1].dtype = ISO_BF16;
    rig->to[1].shape[1] = 8;
    REFUSED(ISO_BAD_TENSOR, "other places");
    rig->to[1].shape[1] = PAGE;
    rig->from[0].stride[2] = 2;
    REFUSED(ISO_BAD_TENSOR, "stride other than 1");
    rig->from[0].stride[2] = 1;
    rig->from[0].shape[0] = 0;
    rig->from[1].shape[0] = 0;
    ck_assert_int_eq(iso_cache_write(&rig->module, &rig->what, NULL), ISO_OK);
    close_rig(rig);
}
END_TEST

Suite *cache_write_suite(void)
{
    Suite *suite = suite_create("cache_write");
    TCase *tc = tcase_create("all");
    tcase_add_loop_test(tc, rows_go_to_their_slots, 0, 2);
    tcase_add_loop_test(tc, rows_that_lie_anyhow, 0, 2);
    tcase_add_test(tc, what_does_not_fit_is_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
