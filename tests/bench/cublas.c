/* cuBLASLt, opened at run time, for products beside which ours are timed. */
#include "cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the part of the library's interface that is used ---------------------------------------- */

typedef struct Handle *Any;
typedef struct Algo {
    uint64_t opaque[8];
} Algo;
typedef struct Heuristic {
    Algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Heuristic;

enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 68 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREFER_WORKSPACE = 1 };
enum { OP_N = 0, OP_T = 1, HEURISTICS = 8, WORKSPACE = 64 << 20, TRIALS = 2 };

#define CUBLAS_LIST(X)                                                                             \
    X(Create, "cublasLtCreate", int, (Any *))                                                      \
    X(Version, "cublasLtGetVersion", size_t, (void))                                               \
    X(DescCreate, "cublasLtMatmulDescCreate", int, (Any *, int, int))                              \
    X(DescSet, "cublasLtMatmulDescSetAttribute", int, (Any, int, const void *, size_t))            \
    X(DescDestroy, "cublasLtMatmulDescDestroy", int, (Any))                                        \
    X(LayoutCreate, "cublasLtMatrixLayoutCreate", int, (Any *, int, uint64_t, uint64_t, int64_t))  \
    X(LayoutDestroy, "cublasLtMatrixLayoutDestroy", int, (Any))                                    \
    X(PreferCreate, "cublasLtMatmulPreferenceCreate", int, (Any *))                                \
    X(PreferSet, "cublasLtMatmulPreferenceSetAttribute", int, (Any, int, const void *, size_t))    \
    X(Heuristics, "cublasLtMatmulAlgoGetHeuristic", int,                                           \
      (Any, Any, Any, Any, Any, Any, Any, int, Heuristic *, int *))                                \
    X(Matmul, "cublasLtMatmul", int,                                                               \
      (Any, Any, const void *, DevicePtr, Any, DevicePtr, Any, const void *, DevicePtr, Any,       \
       DevicePtr, Any, const Algo *, DevicePtr, size_t, void *))

struct Yardstick {
#define X(name, symbol, result, parameters) result(*name) parameters;
    CUBLAS_LIST(X)
#undef X
    Any handle, prefer;
    DevicePtr workspace;
};

static void check(int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "bench: %s: status %d\n", what, status);
    exit(5);
}

static void *open_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13"};
    const char *asked = getenv("CUBLASLT");
    void *library = asked ? dlopen(asked, RTLD_NOW) : NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW);
    return library;
}

Yardstick *cublas_open(void)
{
    void *library = open_library();
    if (!library) {
        fprintf(stderr, "bench: %s (CUBLASLT names the library's file)\n", dlerror());
        return NULL;
    }
    Yardstick *y = calloc(1, sizeof *y);
#define X(name, symbol, result, parameters)                                                        \
    {                                                                                              \
        void *address = dlsym(library, symbol);                                                    \
        check(!address, symbol);                                                                   \
        memcpy(&y->name, &address, sizeof address);                                                \
    }
    CUBLAS_LIST(X)
#undef X
    size_t most = WORKSPACE;
    check(y->Create(&y->handle), "cublasLtCreate");
    check(y->PreferCreate(&y->prefer), "preference");
    check(y->PreferSet(y->prefer, PREFER_WORKSPACE, &most, sizeof most), "preference");
    y->workspace = gpu_alloc(WORKSPACE);
    return y;
}

void cublas_close(Yardstick *yardstick)
{
    gpu_free(yardstick->workspace);
    free(yardstick);
}

size_t cublas_version(const Yardstick *yardstick)
{
    return yardstick->Version();
}

/* ---- one product: y transposed = b times a transposed, column-major -------------------------- */

typedef struct Call {
    Yardstick *y;
    const Product *product;
    Any desc, b, a, out;
    const Algo *algo;
} Call;

static void open_call(Call *call)
{
    Yardstick *y = call->y;
    const Product *p = call->product;
    int op = p->transposed ? OP_N : OP_T, op_a = p->k_outer ? OP_T : OP_N;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    check(y->DescCreate(&call->desc, COMPUTE_32F, R_32F), "descriptor");
    check(y->DescSet(call->desc, DESC_TRANSA, &op, sizeof op), "descriptor");
    check(y->DescSet(call->desc, DESC_TRANSB, &op_a, sizeof op_a), "descriptor");
    check(y->LayoutCreate(&call->b, R_16BF, p->transposed ? n : k, p->transposed ? k : n,
                          p->transposed ? p->n : p->k), "layout");
    check(y->LayoutCreate(&call->a, R_16BF, p->k_outer ? m : k, p->k_outer ? k : m,
                          p->k_outer ? p->m : p->k), "layout");
    check(y->LayoutCreate(&call->out, p->f32 ? R_32F : R_16BF, n, m, p->n), "layout");
}

static void close_call(Call *call)
{
    check(call->y->DescDestroy(call->desc), "descriptor");
    check(call->y->LayoutDestroy(call->b), "layout");
    check(call->y->LayoutDestroy(call->a), "layout");
    check(call->y->LayoutDestroy(call->out), "layout");
}

static void launch_all(void *user, void *stream)
{
    const Call *c = user;
    const Product *p = c->product;
    const float one = 1, zero = 0;
    DevicePtr add = p->c ? p->c : p->y;
    for (int i = 0; i < p->launches; i++)
        check(c->y->Matmul(c->y->handle, c->desc, &one, p->b + p->b_step * (size_t)(i % p->copies),
                           c->b, p->a, c->a, p->c ? &one : &zero, add, c->out, p->y, c->out,
                           c->algo, c->y->workspace, WORKSPACE, stream), "cublasLtMatmul");
}

/* Milliseconds of the best of a few replays, after one to warm up. */
static float best_of(void *graph)
{
    float best = gpu_replay(graph);
    for (int i = 0; i < TRIALS; i++) {
        float ms = gpu_replay(graph);
        best = i == 0 || ms < best ? ms : best;
    }
    return best;
}

void *cublas_record(Yardstick *yardstick, const Product *product, int *tried)
{
    Call call = {.y = yardstick, .product = product};
    Heuristic found[HEURISTICS];
    void *best = NULL;
    float best_ms = 0;
    open_call(&call);
    check(yardstick->Heuristics(yardstick->handle, call.desc, call.b, call.a, call.out, call.out,
                                yardstick->prefer, HEURISTICS, found, tried), "heuristics");
    for (int i = 0; i < *tried; i++) {
        call.algo = &found[i].algo;
        void *graph = gpu_record(launch_all, &call);
        float ms = best_of(graph);
        bool better = !best || ms < best_ms;
        if (better ? best != NULL : true)
            gpu_forget(better ? best : graph);
        best_ms = better ? ms : best_ms;
        best = better ? graph : best;
    }
    close_call(&call);
    return best;
}
