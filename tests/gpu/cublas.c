/* Products of one chain (the tree `whole`) against cuBLAS: cublasLtMatmul restricted to algorithms
 * that do not split the sum, and cublasGemmEx with its own choice. */
#include "case.h"
#include "modes.h"
#include "values.cuh"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Handle *Any;

/* Values of cuBLAS's enumerations, which its ABI keeps. */
enum {
    R_32F = 0,
    R_16BF = 14,
    COMPUTE_32F = 68,
    OP_N = 0,
    OP_T = 1,
    GEMM_DEFAULT = -1,
    DESC_TRANSA = 3,
    DESC_TRANSB = 4,
    PREF_WORKSPACE = 1,
    PREF_REDUCTIONS = 3,
    WORKSPACE = 64 << 20
};

typedef struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Heuristic;

#define BLAS_LIST(X)                                                                               \
    X(blas, create, "cublasCreate_v2", (Any *))                                                    \
    X(blas, set_stream, "cublasSetStream_v2", (Any, Any))                                          \
    X(blas, gemm, "cublasGemmEx",                                                                  \
      (Any, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, \
       const void *, void *, int, int, int, int))                                                  \
    X(lt, lt_create, "cublasLtCreate", (Any *))                                                    \
    X(lt, desc_create, "cublasLtMatmulDescCreate", (Any *, int, int))                              \
    X(lt, desc_set, "cublasLtMatmulDescSetAttribute", (Any, int, const void *, size_t))            \
    X(lt, layout_create, "cublasLtMatrixLayoutCreate", (Any *, int, uint64_t, uint64_t, int64_t))  \
    X(lt, layout_destroy, "cublasLtMatrixLayoutDestroy", (Any))                                    \
    X(lt, pref_create, "cublasLtMatmulPreferenceCreate", (Any *))                                  \
    X(lt, pref_set, "cublasLtMatmulPreferenceSetAttribute", (Any, int, const void *, size_t))      \
    X(lt, heuristic, "cublasLtMatmulAlgoGetHeuristic",                                             \
      (Any, Any, Any, Any, Any, Any, Any, int, Heuristic *, int *))                                \
    X(lt, matmul, "cublasLtMatmul",                                                                \
      (Any, Any, const void *, const void *, Any, const void *, Any, const void *, const void *,   \
       Any, void *, Any, const uint64_t *, void *, size_t, Any))

static struct {
#define X(library, name, symbol, parameters) int(*name) parameters;
    BLAS_LIST(X)
#undef X
    Any handle, lt_handle, desc, pref;
    DevicePtr workspace;
} cb;

static void check(int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "gpu suite: cuBLAS: %s: status %d\n", what, status);
    exit(5);
}
#define CHECK(call) check(cb.call, #call)

static void *open_library(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "gpu suite: %s\n", dlerror());
        exit(5);
    }
    return library;
}

static void open_blas(const char *folder)
{
    int yes = OP_T, no = OP_N;
    uint32_t unsplit = 0;
    uint64_t bytes = WORKSPACE;
    void *lt = open_library(folder, "libcublasLt.so.13");
    void *blas = open_library(folder, "libcublas.so.13");
#define X(library, name, symbol, parameters)                                                       \
    {                                                                                              \
        void *address = dlsym(library, symbol);                                                    \
        check(!address, symbol);                                                                   \
        memcpy(&cb.name, &address, sizeof address);                                                \
    }
    BLAS_LIST(X)
#undef X
    CHECK(create(&cb.handle));
    CHECK(set_stream(cb.handle, gpu_stream()));
    CHECK(lt_create(&cb.lt_handle));
    CHECK(desc_create(&cb.desc, COMPUTE_32F, R_32F));
    CHECK(desc_set(cb.desc, DESC_TRANSA, &yes, sizeof yes));
    CHECK(desc_set(cb.desc, DESC_TRANSB, &no, sizeof no));
    CHECK(pref_create(&cb.pref));
    CHECK(pref_set(cb.pref, PREF_WORKSPACE, &bytes, sizeof bytes));
    CHECK(pref_set(cb.pref, PREF_REDUCTIONS, &unsplit, sizeof unsplit));
    cb.workspace = gpu_alloc(WORKSPACE);
}

/* ---- one product: y[m][n] = x[m][k] * w[n][k] ---- */

typedef struct Product {
    const void *x, *w;
    int m, n, k;
    int type; /* of y */
} Product;

static void *address(DevicePtr p)
{
    return (void *)(uintptr_t)p;
}

static void gemm_ex(const Product *p, DevicePtr y)
{
    float one = 1.0f, zero = 0.0f;
    CHECK(gemm(cb.handle, OP_T, OP_N, p->n, p->m, p->k, &one, p->w, R_16BF, p->k, p->x, R_16BF,
               p->k, &zero, address(y), p->type, p->n, COMPUTE_32F, GEMM_DEFAULT));
}

/* False where cuBLAS offers no algorithm that leaves the sum whole. */
static bool lt_unsplit(const Product *p, DevicePtr y)
{
    float one = 1.0f, zero = 0.0f;
    Any w, x, out;
    Heuristic found;
    int n = 0;
    CHECK(layout_create(&w, R_16BF, (uint64_t)p->k, (uint64_t)p->n, p->k));
    CHECK(layout_create(&x, R_16BF, (uint64_t)p->k, (uint64_t)p->m, p->k));
    CHECK(layout_create(&out, p->type, (uint64_t)p->n, (uint64_t)p->m, p->n));
    int status =
        cb.heuristic(cb.lt_handle, cb.desc, w, x, out, out, cb.pref, 1, &found, &n);
    if (status == 0 && n > 0)
        CHECK(matmul(cb.lt_handle, cb.desc, &one, p->w, w, p->x, x, &zero, address(y), out,
                     address(y), out, found.algorithm, address(cb.workspace), WORKSPACE,
                     gpu_stream()));
    CHECK(layout_destroy(w));
    CHECK(layout_destroy(x));
    CHECK(layout_destroy(out));
    return status == 0 && n > 0;
}

/* ---- one result of an op ---- */

typedef struct Subject {
    const Case *c;
    int result;          /* tensor */
    int n_weights, weight[2];
    int x;
    DevicePtr y[2];
} Subject;

static bool product_of(const Subject *s, int i, int64_t rows, int lt, DevicePtr y)
{
    const iso_tensor *x = &s->c->whole[s->x], *w = &s->c->whole[s->weight[i]];
    int64_t k = x->stride[0], n = w->shape[0] * w->stride[0] / k;
    Product p = {.x = x->data, .w = w->data, .m = (int)rows, .n = (int)n, .k = (int)k,
                 .type = s->c->whole[s->result].dtype == ISO_F32 ? R_32F : R_16BF};
    if (lt)
        return lt_unsplit(&p, y);
    gemm_ex(&p, y);
    return true;
}

/* The op's rows 0 to m - 1 are the base's at every m: the suite has compared them. */
static void compare_at(const Subject *s, int64_t rows, uint64_t differ[2], bool ran[2])
{
    size_t bytes = s->c->bytes[s->result] / (size_t)s->c->most * (size_t)rows;
    for (int lt = 0; lt < 2; lt++) {
        uint64_t first;
        differ[lt] = 0;
        ran[lt] = true;
        for (int i = 0; i < s->n_weights; i++) {
            gpu_set(s->y[i], POISON, bytes);
            ran[lt] &= product_of(s, i, rows, lt, s->y[i]);
        }
        if (ran[lt] && s->n_weights == 2)
            gpu_gate(s->y[0], s->y[1], (int64_t)bytes / 2);
        if (ran[lt])
            differ[lt] = gpu_compare(s->y[0], s->c->expected[s->result], bytes, &first);
    }
}

static void print_line(const Subject *s, int64_t rows, const uint64_t differ[2], const bool ran[2])
{
    const Case *c = s->c;
    const iso_tensor *w = &c->whole[s->weight[0]];
    int64_t k = c->whole[s->x].stride[0];
    uint64_t outputs = c->bytes[s->result] / (uint64_t)c->most * (uint64_t)rows /
                       (c->whole[s->result].dtype == ISO_F32 ? 4 : 2);
    printf("  %s %s, %s values, M %" PRId64 ", N %" PRId64 ", K %" PRId64 ": cublasLt unsplit ",
           c->op->name, c->op->tensors[s->result].name,
           c->kind == VALUES_NORMAL ? "normal" : "adversarial", rows,
           w->shape[0] * w->stride[0] / k, k);
    if (ran[1])
        printf("%" PRIu64 " of %" PRIu64 " differ", differ[1], outputs);
    else
        printf("not offered");
    printf(", cublasGemmEx %" PRIu64 " differ\n", differ[0]);
}

/* What the group's result is made of, if it is one that cuBLAS can make. */
static bool make_subject(const Case *c, const MfSpec *spec, int group, Subject *s)
{
    const MfGemm *gemm = &spec->gemm;
    const MfGroup *g = &gemm->group[group];
    if (gemm->roots_out || gemm->n_leaves != 1 || g->n_results != 1 || g->n_products > 2 ||
        g->n_operands)
        return false;
    *s = (Subject){.c = c,
                   .result = spec->bindings[g->result[0]].tensor,
                   .x = spec->bindings[gemm->a].tensor,
                   .n_weights = g->n_products};
    for (int i = 0; i < g->n_products; i++) {
        s->weight[i] = spec->bindings[g->b[i]].tensor;
        s->y[i] = gpu_alloc(c->bytes[s->result]);
    }
    return true;
}

static void compare_op(Case *c, uint64_t tally[4])
{
    static const int64_t rows[] = {1, 2, 16, 17, 64, 65, 128, 129, 257, 1024, 4096};
    const MfSpec *spec = op_spec(c->base, ISO_PHASE_RUN, c->most, 0);
    for (int g = 0; spec && spec->family == MF_GEMM && g < spec->gemm.n_groups; g++) {
        Subject s;
        if (!make_subject(c, spec, g, &s))
            continue;
        for (size_t m = 0; m < sizeof rows / sizeof rows[0]; m++) {
            uint64_t differ[2];
            bool ran[2];
            compare_at(&s, rows[m], differ, ran);
            print_line(&s, rows[m], differ, ran);
            tally[0] += ran[1];
            tally[1] += ran[1] && differ[1] == 0;
            tally[2]++;
            tally[3] += differ[0] == 0;
        }
        for (int i = 0; i < s.n_weights; i++)
            gpu_free(s.y[i]);
    }
}

int cublas_compare(const iso_module *module, const char *folder)
{
    uint64_t tally[4] = {0};
    Totals totals = {0};
    Case *c = malloc(sizeof *c);
    if (!c)
        return 5;
    open_blas(folder);
    for (int i = 0; i < module->manifest->n_ops; i++)
        for (int kind = VALUES_NORMAL; kind <= VALUES_ADVERSARIAL; kind++) {
            case_open(c, module, &module->manifest->ops[i], kind, 4096, &totals);
            case_base(c);
            compare_op(c, tally);
            case_close(c);
        }
    free(c);
    printf("%s against cuBLAS: unsplit cublasLtMatmul equal in %" PRIu64 " of %" PRIu64
           " products, cublasGemmEx in %" PRIu64 " of %" PRIu64 "\n",
           module->manifest->contract, tally[1], tally[0], tally[3], tally[2]);
    return tally[0] ? 0 : 5;
}
