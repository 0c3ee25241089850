/* Runs one kernel of seeded.cu with one defect, or none, and counts the outputs that are not what
 * they must be. Values are small integers, so that every order of adding gives the same bits. */
#include "gpu.h"
#include "modes.h"
#include "seeded_text.h"
#include "values.cuh"

#include "iso_abi.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 128, COLUMNS = 256, LENGTH = 512, BEYOND = 16 };

typedef struct Seeded {
    int stride; /* of A and B, in elements */
    unsigned short *a, *b, *wanted;
    DevicePtr a_device, b_device, out;
    size_t out_bytes;
} Seeded;

static const struct {
    const char *name, *define;
} defects[] = {{"none", ""},
               {"full", "#define SEED_FULL\n"},
               {"late", "#define SEED_LATE\n"},
               {"empty", "#define SEED_EMPTY\n"},
               {"sync", "#define SEED_SYNC\n"},
               {"init", "#define SEED_INIT\n"},
               {"bounds", ""}};

/* ---- inputs and what must come out ---- */

static float small_value(unsigned seed, unsigned row, unsigned column)
{
    return (float)(value_hash(seed, row, column) % 9) - 4.0f;
}

static void *room(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        exit(5);
    return p;
}

static unsigned short *make_matrix(unsigned seed, int rows, int stride)
{
    unsigned short *m = room((size_t)(rows * stride) * 2);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < LENGTH; k++)
            m[r * stride + k] = iso_bf16_of_f32(small_value(seed, (unsigned)r, (unsigned)k));
    return m;
}

static DevicePtr to_device(const void *data, size_t bytes)
{
    DevicePtr p = gpu_alloc(bytes);
    gpu_write(p, data, bytes);
    return p;
}

static void want_product(Seeded *s)
{
    s->out_bytes = (size_t)ROWS * COLUMNS * 2;
    s->wanted = room(s->out_bytes);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            float sum = 0;
            for (int k = 0; k < LENGTH; k++)
                sum += iso_f32_of_bf16(s->a[r * s->stride + k]) *
                       iso_f32_of_bf16(s->b[c * s->stride + k]);
            s->wanted[r * COLUMNS + c] = iso_bf16_of_f32(sum);
        }
}

/* The first box of A: 16-byte chunks of a row lie where the 128-byte swizzle puts them. */
static void want_copy(Seeded *s)
{
    s->out_bytes = 8192;
    s->wanted = room(s->out_bytes);
    for (int r = 0; r < 64; r++)
        for (int k = 0; k < 64; k++)
            s->wanted[r * 64 + (k / 8 ^ r % 8) * 8 + k % 8] = s->a[r * s->stride + k];
}

/* 64 words of A, backwards. */
static void want_handoff(Seeded *s)
{
    s->out_bytes = 256;
    s->wanted = room(s->out_bytes);
    for (int i = 0; i < 64; i++)
        memcpy(&s->wanted[2 * i], &s->a[2 * (63 - i)], 4);
}

/* ---- launching ---- */

static IsoGemmArgs product_args(const Seeded *s)
{
    IsoGemmArgs args = {.a = (void *)(uintptr_t)s->a_device,
                        .a_stride = s->stride,
                        .rows = ROWS,
                        .leaves = 1};
    args.leaf_begin[1] = LENGTH;
    args.group[0] = (IsoGemmGroup){.b = {(void *)(uintptr_t)s->b_device},
                                   .b_stride = {s->stride},
                                   .columns = COLUMNS};
    args.group[0].result[0] = (IsoView){(void *)(uintptr_t)s->out, {COLUMNS, 1}};
    return args;
}

static IsoGemmMaps *make_maps(const Seeded *s)
{
    static IsoGemmMaps maps;
    gpu_map_rows(&maps.a, s->a_device, ROWS, LENGTH, 64);
    gpu_map_rows(&maps.b[0], s->b_device, COLUMNS, LENGTH, 64);
    return &maps;
}

static void launch(const Seeded *s, void *kernel, const char *name, bool beyond)
{
    IsoGemmArgs args = product_args(s);
    DevicePtr in = s->a_device, out = s->out;
    args.rows += beyond ? BEYOND : 0;
    if (!strcmp(name, "product")) {
        void *parameters[] = {&args, make_maps(s)};
        gpu_launch(kernel, (const unsigned[3]){1, 1, 1}, 256, 1024 + 2 * (16384 + 16), parameters);
    } else if (!strcmp(name, "copy")) {
        void *parameters[] = {make_maps(s), &out};
        gpu_launch(kernel, (const unsigned[3]){1, 1, 1}, 128, 0, parameters);
    } else if (!strcmp(name, "handoff")) {
        void *parameters[] = {&in, &out};
        gpu_launch(kernel, (const unsigned[3]){1, 1, 1}, 128, 0, parameters);
    } else {
        void *parameters[] = {&args};
        unsigned z = (unsigned)(args.rows + 15) / 16;
        gpu_launch(kernel, (const unsigned[3]){COLUMNS / 32, 1, z}, 128, 2 * (16 + 32) * 64,
                   parameters);
    }
}

static uint64_t run_once(const Seeded *s, void *kernel, const char *name, bool beyond)
{
    unsigned short *got = room(s->out_bytes);
    uint64_t differ = 0;
    gpu_set(s->out, 0xCD, s->out_bytes);
    launch(s, kernel, name, beyond);
    gpu_read(got, s->out, s->out_bytes);
    for (size_t i = 0; i < s->out_bytes / 2; i++)
        differ += got[i] != s->wanted[i];
    free(got);
    return differ;
}

static void *make_kernel(const char *name, size_t defect)
{
    char symbol[64];
    size_t bytes = strlen(defects[defect].define) + strlen(seeded_text) + 1;
    char *text = room(bytes);
    snprintf(text, bytes, "%s%s", defects[defect].define, seeded_text);
    snprintf(symbol, sizeof symbol, "seeded_%s", strcmp(name, "gather") ? name : "stream");
    void *kernel = gpu_kernel(text, symbol);
    free(text);
    return kernel;
}

/* gather: the stream kernel where nothing is aligned, so that it stores to shared memory itself. */
int seeded_run(int argc, char **argv)
{
    size_t defect = 0, n = sizeof defects / sizeof defects[0];
    while (argc > 1 && defect < n && strcmp(argv[1], defects[defect].name))
        defect++;
    if (argc < 2 || defect == n) {
        fputs("gpu suite: seeded needs a kernel and a defect\n", stderr);
        return 2;
    }
    int runs = argc > 2 ? atoi(argv[2]) : 1;
    const char *name = argv[0];
    Seeded s = {.stride = LENGTH + !strcmp(name, "gather")};
    s.a = make_matrix(1, ROWS, s.stride);
    s.b = make_matrix(2, COLUMNS, s.stride);
    s.a_device = to_device(s.a, (size_t)(ROWS * s.stride) * 2);
    s.b_device = to_device(s.b, (size_t)(COLUMNS * s.stride) * 2);
    if (!strcmp(name, "copy"))
        want_copy(&s);
    else if (!strcmp(name, "handoff"))
        want_handoff(&s);
    else
        want_product(&s);
    s.out = gpu_alloc(s.out_bytes);
    void *kernel = make_kernel(name, defect);
    uint64_t differ = 0;
    for (int i = 0; i < runs; i++)
        differ += run_once(&s, kernel, name, !strcmp(argv[1], "bounds"));
    printf("seeded %s, defect %s: %llu of %llu outputs differ in %d runs\n", name, argv[1],
           (unsigned long long)differ, (unsigned long long)(s.out_bytes / 2) * (unsigned)runs,
           runs);
    free(s.a);
    free(s.b);
    free(s.wanted);
    return differ ? 4 : 0;
}
