/* The driver, opened at run time, and the suite's kernels, compiled by NVRTC at start. */
#include "gpu.h"

#include "base/device_text.h"
#include "front/diag.h"
#include "cubin/nvrtc.h"
#include "suite_text.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Handle *Any;

#define CUDA_LIST(X)                                                                               \
    X(Init, "cuInit", (unsigned))                                                                  \
    X(GetErrorString, "cuGetErrorString", (int, const char **))                                    \
    X(DriverGetVersion, "cuDriverGetVersion", (int *))                                             \
    X(DeviceGetName, "cuDeviceGetName", (char *, int, int))                                        \
    X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Any *, int))                                  \
    X(CtxSetCurrent, "cuCtxSetCurrent", (Any))                                                     \
    X(CtxSynchronize, "cuCtxSynchronize", (void))                                                  \
    X(MemAlloc, "cuMemAlloc_v2", (DevicePtr *, size_t))                                            \
    X(MemFree, "cuMemFree_v2", (DevicePtr))                                                        \
    X(MemsetD8Async, "cuMemsetD8Async", (DevicePtr, unsigned char, size_t, Any))                   \
    X(MemcpyDtoH, "cuMemcpyDtoH_v2", (void *, DevicePtr, size_t))                                  \
    X(MemcpyHtoD, "cuMemcpyHtoD_v2", (DevicePtr, const void *, size_t))                            \
    X(MemcpyDtoD, "cuMemcpyDtoDAsync_v2", (DevicePtr, DevicePtr, size_t, Any))                     \
    X(StreamCreate, "cuStreamCreate", (Any *, unsigned))                                           \
    X(StreamDestroy, "cuStreamDestroy_v2", (Any))                                                  \
    X(StreamSynchronize, "cuStreamSynchronize", (Any))                                             \
    X(EventCreate, "cuEventCreate", (Any *, unsigned))                                             \
    X(EventRecord, "cuEventRecord", (Any, Any))                                                    \
    X(EventElapsedTime, "cuEventElapsedTime", (float *, Any, Any))                              \
    X(StreamBeginCapture, "cuStreamBeginCapture_v2", (Any, int))                                   \
    X(StreamEndCapture, "cuStreamEndCapture", (Any, Any *))                                        \
    X(GraphInstantiate, "cuGraphInstantiateWithFlags", (Any *, Any, unsigned long long))           \
    X(GraphLaunch, "cuGraphLaunch", (Any, Any))                                                    \
    X(GraphExecDestroy, "cuGraphExecDestroy", (Any))                                               \
    X(GraphDestroy, "cuGraphDestroy", (Any))                                                       \
    X(ModuleLoadData, "cuModuleLoadData", (Any *, const void *))                                   \
    X(ModuleGetFunction, "cuModuleGetFunction", (Any *, Any, const char *))                        \
    X(TensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                              \
      (void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *,      \
       const unsigned *, const unsigned *, int, int, int, int))                                    \
    X(LaunchKernel, "cuLaunchKernel",                                                              \
      (Any, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Any, void **,    \
       void **))

static struct {
#define X(name, symbol, parameters) int(*name) parameters;
    CUDA_LIST(X)
#undef X
    Any context, fill, fill_indices, fill_normal, compare, gate;
    char device[256];
} cu;

/* A thread's own. */
static _Thread_local Any own_stream;
static _Thread_local DevicePtr found_here;

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gpu suite: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    exit(5);
}

static void check(int result, const char *what)
{
    const char *text = NULL;
    if (result == 0)
        return;
    cu.GetErrorString(result, &text);
    die("%s: %s", what, text ? text : "unknown error");
}
#define CHECK(call) check(cu.call, #call)

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        die("no CUDA driver here");
#define X(name, symbol, parameters)                                                                \
    {                                                                                              \
        void *address = dlsym(library, symbol);                                                    \
        if (!address)                                                                              \
            die("the driver has no %s", symbol);                                                   \
        memcpy(&cu.name, &address, sizeof address);                                                \
    }
    CUDA_LIST(X)
#undef X
}

static Any compile(const char *what)
{
    Arena *arena = arena_new();
    Sources sources = {.arena = arena};
    Diags diags;
    diags_init(&diags, arena, &sources);
    const Nvrtc *nvrtc = nvrtc_open(&diags);
    Binary binary = {0};
    if (!nvrtc || !nvrtc_compile(nvrtc, str_of(what), STR("sm_90a"), &binary, arena, &diags)) {
        Text text = {.arena = arena};
        diags_render_text(&diags, &text, false);
        die("the suite's kernels: %s", text_str(&text).s);
    }
    Any module;
    CHECK(ModuleLoadData(&module, binary.cubin.s));
    arena_free(arena);
    return module;
}

static void load_kernels(void)
{
    Any module = compile(suite_text);
    CHECK(ModuleGetFunction(&cu.fill, module, "fill_bf16"));
    CHECK(ModuleGetFunction(&cu.fill_indices, module, "fill_indices"));
    CHECK(ModuleGetFunction(&cu.fill_normal, module, "fill_normal"));
    CHECK(ModuleGetFunction(&cu.compare, module, "compare_u16"));
    CHECK(ModuleGetFunction(&cu.gate, module, "gate_bf16"));
}

void gpu_open_device(int ordinal)
{
    open_driver();
    CHECK(Init(0));
    CHECK(PrimaryCtxRetain(&cu.context, ordinal));
    CHECK(CtxSetCurrent(cu.context));
    CHECK(DeviceGetName(cu.device, sizeof cu.device, ordinal));
    load_kernels();
    gpu_open_thread();
}

void gpu_open(void)
{
    gpu_open_device(0);
}

void gpu_open_thread(void)
{
    CHECK(CtxSetCurrent(cu.context));
    CHECK(StreamCreate(&own_stream, 1));
    found_here = gpu_alloc(16);
}

void gpu_close_thread(void)
{
    gpu_sync();
    CHECK(StreamDestroy(own_stream));
}

DevicePtr gpu_alloc(size_t bytes)
{
    DevicePtr buffer;
    CHECK(MemAlloc(&buffer, bytes ? bytes : 256));
    return buffer;
}

void gpu_free(DevicePtr buffer)
{
    CHECK(MemFree(buffer));
}

void gpu_set(DevicePtr buffer, int byte, size_t bytes)
{
    CHECK(MemsetD8Async(buffer, (unsigned char)byte, bytes, own_stream));
}

void gpu_read(void *to, DevicePtr from, size_t bytes)
{
    gpu_sync();
    CHECK(MemcpyDtoH(to, from, bytes));
}

void gpu_write(DevicePtr to, const void *from, size_t bytes)
{
    gpu_sync();
    CHECK(MemcpyHtoD(to, from, bytes));
    CHECK(StreamSynchronize(NULL)); // from pageable memory it may arrive after the call
}

void gpu_sync(void)
{
    CHECK(StreamSynchronize(own_stream));
}

void *gpu_stream(void)
{
    return own_stream;
}

const char *gpu_name(void)
{
    return cu.device;
}

int gpu_driver_version(void)
{
    int version = 0;
    CHECK(DriverGetVersion(&version));
    return version;
}

static void launch(Any kernel, void **args)
{
    CHECK(LaunchKernel(kernel, 1056, 1, 1, 256, 1, 1, 0, own_stream, args, NULL));
}

void gpu_fill_bf16(DevicePtr out, int64_t rows, int64_t columns, int kind, unsigned seed,
                   unsigned shift)
{
    long long r = rows, c = columns;
    void *args[] = {&out, &r, &c, &kind, &seed, &shift};
    launch(cu.fill, args);
}

void gpu_fill_indices(DevicePtr out, int64_t n, unsigned seed, unsigned shift)
{
    long long count = n;
    void *args[] = {&out, &count, &seed, &shift};
    launch(cu.fill_indices, args);
}

void gpu_gate(DevicePtr g, DevicePtr u, int64_t n)
{
    long long count = n;
    void *args[] = {&g, &u, &count};
    launch(cu.gate, args);
}

void gpu_compare_begin(void)
{
    uint64_t none[2] = {0, UINT64_MAX};
    gpu_write(found_here, none, sizeof none);
}

void gpu_compare_more(DevicePtr a, DevicePtr b, size_t bytes)
{
    long long n = (long long)(bytes / 2);
    void *args[] = {&a, &b, &n, &found_here};
    launch(cu.compare, args);
}

uint64_t gpu_compare_end(uint64_t *first)
{
    uint64_t found[2];
    gpu_read(found, found_here, sizeof found);
    *first = found[1];
    return found[0];
}

uint64_t gpu_compare(DevicePtr a, DevicePtr b, size_t bytes, uint64_t *first)
{
    gpu_compare_begin();
    gpu_compare_more(a, b, bytes);
    return gpu_compare_end(first);
}

void *gpu_kernel(const char *text, const char *name)
{
    Any kernel;
    CHECK(ModuleGetFunction(&kernel, compile(text), name));
    return kernel;
}

void gpu_launch(void *kernel, const unsigned grid[3], unsigned block, unsigned shared_bytes,
                void **parameters)
{
    CHECK(LaunchKernel(kernel, grid[0], grid[1], grid[2], block, 1, 1, shared_bytes, own_stream,
                       parameters, NULL));
}

void gpu_map_rows(void *map, DevicePtr data, unsigned rows, unsigned length, unsigned box_rows)
{
    enum { BF16 = 9, SWIZZLE_128B = 3, PROMOTE_256B = 3 };
    unsigned long long dims[] = {length, 1, rows}, strides[] = {16, length * 2ull};
    unsigned box[] = {64, 1, box_rows}, ones[] = {1, 1, 1};
    CHECK(TensorMapEncodeTiled(map, BF16, 3, (void *)(uintptr_t)data, dims, strides, box, ones, 0,
                               SWIZZLE_128B, PROMOTE_256B, 0));
}

void gpu_fill_normal(DevicePtr out, size_t elements, unsigned seed, float deviation)
{
    long long n = (long long)elements;
    void *args[] = {&out, &n, &seed, &deviation};
    launch(cu.fill_normal, args);
}

void gpu_copy(DevicePtr to, DevicePtr from, size_t bytes)
{
    CHECK(MemcpyDtoD(to, from, bytes, own_stream));
}

void *gpu_record(void (*work)(void *user, void *stream), void *user)
{
    Any graph, exec;
    CHECK(StreamBeginCapture(own_stream, 1));
    work(user, own_stream);
    CHECK(StreamEndCapture(own_stream, &graph));
    CHECK(GraphInstantiate(&exec, graph, 0));
    CHECK(GraphDestroy(graph));
    return exec;
}

float gpu_replay(void *graph)
{
    static _Thread_local Any start, end;
    float milliseconds;
    if (!start) {
        CHECK(EventCreate(&start, 0));
        CHECK(EventCreate(&end, 0));
    }
    CHECK(EventRecord(start, own_stream));
    CHECK(GraphLaunch(graph, own_stream));
    CHECK(EventRecord(end, own_stream));
    gpu_sync();
    CHECK(EventElapsedTime(&milliseconds, start, end));
    return milliseconds;
}

void gpu_forget(void *graph)
{
    CHECK(GraphExecDestroy(graph));
}

float gpu_graph(void (*work)(void *user, void *stream), void *user, int times)
{
    Any graph, exec, start, end;
    float milliseconds;
    CHECK(StreamBeginCapture(own_stream, 1));
    work(user, own_stream);
    CHECK(StreamEndCapture(own_stream, &graph));
    CHECK(GraphInstantiate(&exec, graph, 0));
    CHECK(EventCreate(&start, 0));
    CHECK(EventCreate(&end, 0));
    CHECK(GraphLaunch(exec, own_stream));
    CHECK(EventRecord(start, own_stream));
    for (int i = 1; i < times; i++)
        CHECK(GraphLaunch(exec, own_stream));
    CHECK(EventRecord(end, own_stream));
    gpu_sync();
    CHECK(EventElapsedTime(&milliseconds, start, end));
    CHECK(GraphExecDestroy(exec));
    CHECK(GraphDestroy(graph));
    return times > 1 ? milliseconds * 1000 / (float)(times - 1) : 0;
}

float gpu_microseconds(void (*work)(void *user, void *stream), void *user, int times)
{
    Any start, end;
    float milliseconds;
    CHECK(EventCreate(&start, 0));
    CHECK(EventCreate(&end, 0));
    CHECK(EventRecord(start, own_stream));
    for (int i = 0; i < times; i++)
        work(user, own_stream);
    CHECK(EventRecord(end, own_stream));
    gpu_sync();
    CHECK(EventElapsedTime(&milliseconds, start, end));
    return milliseconds * 1000 / (float)times;
}
