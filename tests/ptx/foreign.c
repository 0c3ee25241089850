/* PTX that isoc did not write, on the PTX machine and on a GPU: nvcc's of foreign/NAME.cu, whose
 * outputs' digests were recorded on a device.
 *
 *   foreign FOLDER            the machine's outputs against FOLDER/digests
 *   foreign FOLDER --device   the device's; prints the digests to be recorded */
#include "launch/driver.h"
#include "prove/machine.h"
#include "ptx/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_WORDS = 1 << 16, OUT_WORDS = 1 << 14, THREADS = 128, CTAS = 4, SHARED = 16384 };

typedef struct Kernel {
    const char *file, *name;
    int ctas;
    bool map; /* takes a tensor map */
} Kernel;

static const Kernel kernels[] = {
    {"rows", "shuffles", CTAS, false},     {"rows", "tree", CTAS, false},
    {"rows", "ways", CTAS, false},         {"numbers", "integers", CTAS, false},
    {"numbers", "conversions", CTAS, false}, {"numbers", "reals", CTAS, false},
    {"tiles", "pipeline", 2, false},       {"tiles", "groups", 2, false},
    {"tiles", "boxes", 3, true},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void fail(const char *what, const char *more)
{
    fprintf(stderr, "foreign: %s%s%s\n", what, *more ? ": " : "", more);
    exit(2);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static u64 scatter(u64 x)
{
    x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 29;
}

/* Any bits, and often the patterns where arithmetic has corners. */
static u32 word(u64 i)
{
    static const u32 corners[] = {0, 1, 0x80000000, 0x7fffffff, 0xffffffff, 0x7f800000,
                                  0xff800000, 0x7fc00001, 0x00000001, 0x807fffff, 0x3f800000,
                                  0xbf800001, 0x4f000000, 0xcf000000, 0x47800000, 0x33800000};
    u64 x = scatter(i * 7 + 1);
    u32 any = (u32)(x >> 20);
    return x % 5 == 0 ? corners[x >> 32 & 15] : x % 5 == 1 ? (any & 0x83ffffff) | 0x3c000000 : any;
}

/* Pairs of 16 bits that are numbers of middling size, for tensor cores: sums do not overflow. */
static u32 pair(u64 i)
{
    u64 x = scatter(i * 11 + 3);
    return ((u32)x & 0x80ff80ff) | 0x3f003f00;
}

static void fill(const Kernel *k, u32 *in)
{
    bool tiles = strcmp(k->file, "tiles") == 0 && !k->map;
    for (u64 i = 0; i < IN_WORDS; i++)
        in[i] = tiles ? pair(i) : word(i);
    in[0] = k->map ? 0 : in[0];
}

/* 100 x 30 x 2 elements of 2 bytes. */
static bool make_map(const Driver *driver, CuTensorMap *map, void *base)
{
    const unsigned long long dims[] = {100, 30, 2}, strides[] = {256, 256 * 30};
    const unsigned box[] = {64, 16, 1}, ones[] = {1, 1, 1};
    return driver->tensor_map(map, CU_TENSOR_MAP_BF16, 3, base, dims, strides, box, ones, 0,
                              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_256B, 0) == 0;
}

static Str read_text(const char *folder, const char *name, Arena *arena)
{
    Str path = str_format(arena, "%s/%s.ptx", folder, name);
    FILE *file = fopen(path.s, "rb");
    if (!file)
        fail("cannot read", path.s);
    char *text = calloc(1, 1 << 20);
    size_t n = text ? fread(text, 1, (1 << 20) - 1, file) : 0;
    fclose(file);
    return (Str){text, (int)n};
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void run_machine(const Kernel *k, Str text, u32 *in, u32 *out, Arena *arena)
{
    PtxModule module = {0};
    Str problem = {0};
    CuTensorMap map;
    PtxMemory memory = {.arena = arena};
    PtxReport report = {.arena = arena};
    PtxRegion from = {.name = "in", .base = (u8 *)in, .size = IN_WORDS * 4, .input = 1,
                      .element = 4};
    PtxRegion to = {.name = "out", .base = (u8 *)out, .size = OUT_WORDS * 4, .writable = true};
    if (!ptx_parse(text, &module, &problem, arena))
        fail(k->name, problem.s);
    ptx_memory_add(&memory, &from);
    ptx_memory_add(&memory, &to);
    if (k->map && !make_map(machine_driver(), &map, in))
        fail(k->name, "no tensor map");
    const void *a = in, *b = out;
    const void *params[] = {&a, &b, &map};
    PtxLaunch launch = {.kernel = ptx_find(&module, str_of(k->name)), .seed = 1,
                        .grid = {(u32)k->ctas, 1, 1}, .block = {THREADS, 1, 1},
                        .shared_bytes = SHARED, .params = params, .memory = &memory,
                        .numerics = fdpa_class("sm_90", FDPA_BF16)};
    if (!launch.kernel || !ptx_run(&launch, &report))
        fail(k->name, report.findings.n ? report.findings.v[0].s : "no such kernel");
}

/* ---- the device ------------------------------------------------------------------------------ */

static void must(const Driver *driver, CuResult result, const char *what)
{
    const char *text = "";
    if (result && driver->error_string)
        driver->error_string(result, &text);
    if (result)
        fail(what, text);
}

static void run_device(const Driver *d, const Kernel *k, Str text, const u32 *in, u32 *out)
{
    CuModule module;
    CuFunction function;
    CuAddress from, to;
    CuTensorMap map;
    must(d, d->module_load(&module, text.s), k->file);
    must(d, d->module_function(&function, module, k->name), k->name);
    must(d, d->memory_new(&from, IN_WORDS * 4), "memory");
    must(d, d->memory_new(&to, OUT_WORDS * 4), "memory");
    must(d, d->memory_write(from, in, IN_WORDS * 4), "memory");
    must(d, d->memory_write(to, out, OUT_WORDS * 4), "memory");
    if (k->map && !make_map(d, &map, (void *)(uintptr_t)from))
        fail(k->name, "no tensor map");
    void *params[] = {&from, &to, &map};
    must(d, d->launch(function, (unsigned)k->ctas, 1, 1, THREADS, 1, 1, SHARED, NULL, params, NULL),
         k->name);
    must(d, d->stream_sync(NULL), k->name);
    must(d, d->memory_read(out, to, OUT_WORDS * 4), "memory");
    d->memory_free(from);
    d->memory_free(to);
    d->module_unload(module);
}

static const Driver *open_device(void)
{
    const Driver *d;
    CuDevice device;
    CuContext context;
    if (driver_open(&d))
        fail("no driver", "");
    must(d, d->device_get(&device, 0), "device");
    must(d, d->primary_retain(&context, device), "context");
    must(d, d->context_set(context), "context");
    return d;
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool recorded(const char *folder, const char *name, Str digest, Arena *arena)
{
    Str path = str_format(arena, "%s/digests", folder);
    char line[200], wanted[100] = "", own[100];
    FILE *file = fopen(path.s, "r");
    if (!file)
        fail("cannot read", path.s);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%99s %99s", own, wanted) == 2 && strcmp(own, name) == 0)
            break;
        else
            wanted[0] = 0;
    fclose(file);
    return str_is(digest, wanted);
}

int main(int argc, char **argv)
{
    bool device = argc > 2 && strcmp(argv[2], "--device") == 0;
    if (argc < 2)
        fail("foreign FOLDER [--device]", "");
    Arena *arena = arena_new();
    const Driver *driver = device ? open_device() : NULL;
    u32 *in = arena_alloc(arena, IN_WORDS * 4), *out = arena_alloc(arena, OUT_WORDS * 4);
    int equal = 0;
    for (int i = 0; i < KERNELS; i++) {
        const Kernel *k = &kernels[i];
        Str text = read_text(argv[1], k->file, arena);
        fill(k, in);
        memset(out, 0, OUT_WORDS * 4);
        if (device)
            run_device(driver, k, text, in, out);
        else
            run_machine(k, text, in, out, arena);
        Digest digest = sha256(out, OUT_WORDS * 4);
        Str hex = digest_hex(arena, &digest);
        bool same = !device && recorded(argv[1], k->name, hex, arena);
        equal += same;
        if (device || !same)
            printf("%s %.*s%s\n", k->name, STR_FMT(hex), device ? "" : " DIFFERS");
    }
    if (!device)
        printf("%d of %d kernels by nvcc have the device's bits\n", equal, KERNELS);
    return device || equal == KERNELS ? 0 : 1;
}
