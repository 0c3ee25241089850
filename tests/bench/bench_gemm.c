/* Products against cuBLAS, and ops along rows against a copy: both sides alternate in one run, as
 * replays of graphs; medians, with the least and the most beside them. Prints Markdown.
 *
 * usage: bench_gemm FILE.cubin [--quick] [--op NAME] [--rows N] [--tp N] [--once]
 * The file is tests/bench/products.iso, compiled. --quick: up to 4096 rows. --once: no times, one
 * launch of some products each, for a profiler. */
#include "cublas.h"
#include "iso.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 16, REPEATS = 11, FEW_ROWS = 64 };
static const float weight_deviation = 0.02f; /* as models are initialised */
static const size_t past_l2 = (size_t)256 << 20; /* bytes that one round of launches reads */

/* An op as cuBLAS sees it: one product of n columns. TP cuts k or n. */
typedef struct Op {
    const char *name;
    int64_t n, k;
    bool transposed, cut_k;
    bool adds; /* a residual, where nothing is cut */
    int64_t m; /* of a product that sums over tokens, whose k they are; else the tokens: 0 */
} Op;

static const Op ops[] = {
    {"qkv", 6144, 4096, false, false, false, 0},
    {"gate_up", 24576, 4096, false, false, false, 0},
    {"o_proj", 4096, 4096, false, true, true, 0},
    {"down", 4096, 12288, false, true, true, 0},
    {"dgrad", 4096, 12288, true, false, false, 0},
    {"wgrad", 4096, 4096, true, false, false, 12288},
};

typedef struct Options {
    const char *cubin, *op;
    bool quick, once;
    int64_t rows, tp; /* 0: all */
} Options;

static void must(iso_status status, const char *what)
{
    if (status == ISO_OK)
        return;
    fprintf(stderr, "bench: %s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(5);
}

/* ---- times ----------------------------------------------------------------------------------- */

typedef struct Times {
    double us[REPEATS];
} Times;

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(Times *times)
{
    qsort(times->us, REPEATS, sizeof *times->us, by_time);
    return times->us[REPEATS / 2];
}

/* ---- one op of the module -------------------------------------------------------------------- */

typedef struct Subject {
    const iso_op *op;
    int n, params;
    iso_tensor tensors[MAX_TENSORS];
    size_t step[MAX_TENSORS]; /* bytes from copy to copy; 0: one copy */
    bool part;                /* leaves roots */
    DevicePtr roots;
    iso_run run;
    int copies, launches;
} Subject;

static size_t bytes_of(const iso_tensor *tensor)
{
    size_t bytes = tensor->dtype == ISO_F32 || tensor->dtype == ISO_I32 ? 4 : 2;
    for (int i = 0; i < tensor->n_axes; i++)
        bytes *= (size_t)tensor->shape[i];
    return (bytes + 255) / 256 * 256;
}

static bool has_rows(const Subject *s, int index)
{
    iso_tensor one, two;
    iso_phase phase = s->part ? ISO_PHASE_PART : ISO_PHASE_RUN;
    must(iso_op_tensor(s->op, phase, s->run.rows, index, &one, NULL), "iso_op_tensor");
    must(iso_op_tensor(s->op, phase, 2 * s->run.rows, index, &two, NULL), "iso_op_tensor");
    return bytes_of(&one) != bytes_of(&two) || one.shape[0] != two.shape[0];
}

/* With `all`, what has rows is rotated too. */
static void open_tensors(Subject *s, bool all)
{
    for (int i = 0; i < s->n; i++) {
        iso_phase phase = s->part ? ISO_PHASE_PART : ISO_PHASE_RUN;
        iso_tensor *t = &s->tensors[i];
        must(iso_op_tensor(s->op, phase, s->run.rows, i, t, NULL), "iso_op_tensor");
        bool rotated = all || !has_rows(s, i);
        size_t bytes = bytes_of(t), copies = rotated ? (size_t)s->copies : 1;
        DevicePtr data = gpu_alloc(bytes * copies);
        t->data = (void *)(uintptr_t)data;
        s->step[i] = rotated ? bytes : 0;
        if (i < s->params)
            gpu_fill_normal(data, bytes * copies / 2, (unsigned)i + 1,
                            has_rows(s, i) ? 1 : weight_deviation);
    }
}

static void open_subject(Subject *s, bool all)
{
    size_t bytes;
    int join, results;
    must(iso_op_needs_join(s->op, &join), "iso_op_needs_join");
    must(iso_op_tensors(s->op, &s->params, &results), "iso_op_tensors");
    s->n = s->params + results;
    s->part = join;
    open_tensors(s, all);
    must(iso_op_workspace(s->op, s->run.rows, 0, &bytes), "iso_op_workspace");
    DevicePtr workspace = gpu_alloc(bytes);
    gpu_set(workspace, 0, bytes);
    s->run.workspace = (void *)(uintptr_t)workspace;
    s->run.workspace_bytes = bytes;
    if (!s->part)
        return;
    must(iso_op_roots(s->op, s->run.rows, &bytes), "iso_op_roots");
    s->roots = gpu_alloc(bytes);
}

static void close_subject(Subject *s)
{
    for (int i = 0; i < s->n; i++)
        gpu_free((DevicePtr)(uintptr_t)s->tensors[i].data);
    gpu_free((DevicePtr)(uintptr_t)s->run.workspace);
    if (s->part)
        gpu_free(s->roots);
}

static void launch_all(void *user, void *stream)
{
    Subject *s = user;
    s->run.stream = stream;
    for (int i = 0; i < s->launches; i++) {
        iso_tensor tensors[MAX_TENSORS];
        for (int t = 0; t < s->n; t++) {
            tensors[t] = s->tensors[t];
            tensors[t].data = (char *)tensors[t].data + s->step[t] * (size_t)(i % s->copies);
        }
        if (s->part)
            must(iso_op_part(s->op, tensors, s->n, (void *)(uintptr_t)s->roots, &s->run),
                 "iso_op_part");
        else
            must(iso_op_run(s->op, tensors, s->n, &s->run), "iso_op_run");
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static const char *short_name(const Subject *s)
{
    const char *name;
    must(iso_op_kernel(s->op, s->part ? ISO_PHASE_PART : ISO_PHASE_RUN, s->run.rows, 0, &name),
         "iso_op_kernel");
    return name;
}

static Product product_of(const Op *op, int64_t rows, int tp, bool f32)
{
    int64_t m = op->m ? op->m : rows;
    Product p = {.m = m, .n = op->n / (op->cut_k ? 1 : tp), .k = op->k / (op->cut_k ? tp : 1),
                 .k_outer = op->m > 0, .transposed = op->transposed, .f32 = f32, .copies = 1};
    size_t weights = (size_t)p.n * (size_t)p.k * 2;
    if (m <= FEW_ROWS)
        p.copies = (int)((past_l2 + weights - 1) / weights);
    if (m <= FEW_ROWS && p.copies < 2)
        p.copies = 2;
    int least = m <= 256 ? 16 : m <= 1024 ? 8 : m <= 4096 ? 4 : 2;
    p.launches = p.copies > least ? p.copies : (least + p.copies - 1) / p.copies * p.copies;
    p.b_step = weights;
    p.a = gpu_alloc((size_t)m * (size_t)p.k * 2);
    p.b = gpu_alloc(weights * (size_t)p.copies);
    p.y = gpu_alloc((size_t)m * (size_t)p.n * (f32 ? 4 : 2));
    gpu_fill_normal(p.a, (size_t)m * (size_t)p.k, 101, 1);
    gpu_fill_normal(p.b, (size_t)p.n * (size_t)p.k * (size_t)p.copies, 102, weight_deviation);
    return p;
}

static void close_product(Product *p)
{
    gpu_free(p->a);
    gpu_free(p->b);
    gpu_free(p->y);
}

static void print_cell(const char *name, const Product *p, int64_t rows, int tp, int tried,
                       Times *cublas, Times *isoc, const char *kernel)
{
    double a = median(cublas), b = median(isoc);
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    double bytes = 2.0 * (double)p->n * (double)p->k;
    printf("| %s | %d | %" PRId64 " | %.1f (%.1f-%.1f) | %.1f (%.1f-%.1f) | **%.3f** | %.0f / %.0f "
           "| %.0f / %.0f | %d | %.8s |\n", name, tp, rows, a, cublas->us[0],
           cublas->us[REPEATS - 1], b, isoc->us[0], isoc->us[REPEATS - 1], b / a, flops / a / 1e6,
           flops / b / 1e6, bytes / a / 1e3, bytes / b / 1e3, tried, kernel + 9);
    fflush(stdout);
}

/* Both sides in turns. */
static void compare(Yardstick *yardstick, const Product *p, const Subject *s, void *ours,
                    const char *name, int tp)
{
    Times cublas, isoc;
    int tried;
    void *theirs = cublas_record(yardstick, p, &tried);
    gpu_replay(ours);
    for (int i = 0; i < REPEATS; i++) {
        cublas.us[i] = gpu_replay(theirs) * 1e3 / p->launches;
        isoc.us[i] = gpu_replay(ours) * 1e3 / p->launches;
    }
    print_cell(name, p, s->run.rows, tp, tried, &cublas, &isoc, short_name(s));
    gpu_forget(theirs);
}

static void run_cell(Yardstick *yardstick, const iso_module *module, const Op *op, int64_t m,
                     int tp, bool once)
{
    Subject s = {.run = {.rows = m, .settled = 1}};
    iso_layout layout = {.name = tp == 1 ? "tp1" : "tp8"};
    must(iso_op_get(module, op->name, &layout, &s.op), "iso_op_get");
    int join;
    must(iso_op_needs_join(s.op, &join), "iso_op_needs_join");
    Product p = product_of(op, m, tp, join);
    s.copies = p.copies;
    s.launches = p.launches;
    open_subject(&s, false);
    gpu_sync();
    if (once) {
        s.launches = 1;
        launch_all(&s, NULL);
        gpu_sync();
        printf("%s, TP %d, %" PRId64 " rows\n", op->name, tp, m);
        close_subject(&s);
        close_product(&p);
        return;
    }
    void *ours = gpu_record(launch_all, &s);
    compare(yardstick, &p, &s, ours, op->name, tp);
    if (op->adds && tp == 1) {
        char name[32];
        snprintf(name, sizeof name, "%s, both add", op->name);
        p.c = gpu_alloc((size_t)p.m * (size_t)p.n * 2);
        gpu_fill_normal(p.c, (size_t)p.m * (size_t)p.n, 103, 1);
        compare(yardstick, &p, &s, ours, name, tp);
        gpu_free(p.c);
    }
    gpu_forget(ours);
    close_subject(&s);
    close_product(&p);
}

static bool wanted(const Options *options, const Op *op, int64_t rows, int tp)
{
    bool known = !op->transposed || (tp == 1 && rows == 4096);
    bool asked = (!options->op || !strcmp(options->op, op->name)) &&
                 (!options->rows || options->rows == rows) && (!options->tp || options->tp == tp);
    bool sample = rows == 4096 || (tp == 1 && (rows == 16 || rows == 256 || rows == 16384));
    bool shown = !options->once || sample;
    return known && asked && shown && rows <= (options->quick || tp > 1 ? 4096 : 16384);
}

static void run_products(const Options *options, Yardstick *yardstick, const iso_module *module)
{
    static const int64_t rows[] = {1, 8, 16, 32, 64, 256, 1024, 4096, 8192, 16384};
    printf("| product | TP | M | cuBLAS us | isoc us | ratio | TFLOP/s | weights GB/s | heuristics "
           "| kernel |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int tp = 1; tp <= 8; tp += 7)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
                if (wanted(options, &ops[o], rows[m], tp))
                    run_cell(yardstick, module, &ops[o], rows[m], tp, options->once);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A copy of as many bytes, read and written together, rotated over as many buffers. */
static const char copy_text[] =
    "extern \"C\" __global__ void __launch_bounds__(1024)\n"
    "copy_words(uint4 *to, const uint4 *from, long long n)\n"
    "{\n"
    "    long long step = (long long)gridDim.x * 1024, i = blockIdx.x * 1024LL + threadIdx.x;\n"
    "    for (; i + 3 * step < n; i += 4 * step) {\n"
    "        uint4 a = from[i], b = from[i + step], c = from[i + 2 * step],\n"
    "              d = from[i + 3 * step];\n"
    "        to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;\n"
    "    }\n"
    "    for (; i < n; i += step)\n"
    "        to[i] = from[i];\n"
    "}\n";

typedef struct Copy {
    void *kernel;
    DevicePtr from, to;
    long long words; /* of one launch */
    int launches;
} Copy;

static void copy_all(void *user, void *stream)
{
    Copy *copy = user;
    unsigned most = 264, blocks = (unsigned)((copy->words + 1023) / 1024);
    const unsigned grid[3] = {blocks < most ? blocks : most, 1, 1};
    (void)stream;
    for (int i = 0; i < copy->launches; i++) {
        DevicePtr skip = (DevicePtr)copy->words * 16 * (DevicePtr)i;
        DevicePtr to = copy->to + skip, from = copy->from + skip;
        void *arguments[] = {&to, &from, &copy->words};
        gpu_launch(copy->kernel, grid, 1024, 0, arguments);
    }
}

/* An op along rows: bytes that an element of a row moves. */
typedef struct RowOp {
    const char *name;
    int64_t columns;
    double bytes;
} RowOp;

static const RowOp row_ops[] = {
    {"input_norm", 4096, 4}, {"add_norm", 4096, 8}, {"vocab_lse", 151936, 4}};

static void run_row_op(const iso_module *module, const RowOp *op, int64_t rows, void *copy_kernel)
{
    double bytes = op->bytes * (double)op->columns * (double)rows;
    Subject s = {.run = {.rows = rows}};
    s.copies = (int)((double)past_l2 / bytes) + 1;
    s.copies = s.copies > 64 ? 64 : s.copies;
    s.launches = s.copies;
    iso_layout layout = {.name = "tp1"};
    must(iso_op_get(module, op->name, &layout, &s.op), "iso_op_get");
    open_subject(&s, true);
    Copy copy = {.kernel = copy_kernel, .words = (long long)(bytes / 32), .launches = s.launches};
    size_t size = (size_t)copy.words * 16 * (size_t)copy.launches;
    copy.from = gpu_alloc(size);
    copy.to = gpu_alloc(size);
    gpu_fill_normal(copy.from, size / 2, 7, 1);
    void *ours = gpu_record(launch_all, &s), *theirs = gpu_record(copy_all, &copy);
    Times times, copies;
    gpu_replay(ours);
    gpu_replay(theirs);
    for (int i = 0; i < REPEATS; i++) {
        times.us[i] = gpu_replay(ours) * 1e3 / s.launches;
        copies.us[i] = gpu_replay(theirs) * 1e3 / s.launches;
    }
    double us = median(&times), copy_us = median(&copies);
    printf("| %s | %" PRId64 " | %.1f (%.1f-%.1f) | %.1f (%.1f-%.1f) | %.0f | %.0f | **%.2f** |\n",
           op->name, rows, us, times.us[0], times.us[REPEATS - 1], copy_us, copies.us[0],
           copies.us[REPEATS - 1], bytes / us / 1e3, bytes / copy_us / 1e3, copy_us / us);
    fflush(stdout);
    gpu_forget(ours);
    gpu_forget(theirs);
    gpu_free(copy.from);
    gpu_free(copy.to);
    close_subject(&s);
}

static void run_row_ops(const Options *options, const iso_module *module)
{
    static const int64_t rows[] = {1, 8, 16, 64, 1024, 4096, 16384};
    void *kernel = gpu_kernel(copy_text, "copy_words");
    printf("\n| op | rows | us | copy of as many bytes us | GB/s | copy GB/s | share |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t o = 0; o < sizeof row_ops / sizeof *row_ops; o++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            bool large = row_ops[o].columns > 100000 && rows[i] > 4096;
            bool asked = (!options->op || !strcmp(options->op, row_ops[o].name)) &&
                         (!options->rows || options->rows == rows[i]) && options->tp != 8;
            if (asked && !large)
                run_row_op(module, &row_ops[o], rows[i], kernel);
        }
}

/* ---- the head -------------------------------------------------------------------------------- */

static void open_head(const iso_module *module, const char *name, int64_t rows, Subject *s)
{
    iso_layout layout = {.name = "tp1"};
    size_t weights = (size_t)151936 * 4096 * 2;
    *s = (Subject){.run = {.rows = rows}, .launches = rows <= 1024 ? 8 : 2};
    s->copies = rows <= FEW_ROWS ? (int)((past_l2 + weights - 1) / weights) + 1 : 1;
    must(iso_op_get(module, name, &layout, &s->op), "iso_op_get");
    open_subject(s, false);
}

static void run_once(const Subject *s, const iso_tensor *tensors)
{
    if (s->part)
        exit(5);
    must(iso_op_run(s->op, tensors, s->n, &s->run), "iso_op_run");
}

/* What lm_head, the normaliser and the logit give one after another, against what the one op gives
 * of the same numbers. */
static void compare_head(const iso_module *module, Subject *product, Subject *fused)
{
    int64_t rows = product->run.rows;
    Subject lse, target;
    float *values[3];
    open_head(module, "vocab_lse", rows, &lse);
    open_head(module, "target_logit", rows, &target);
    gpu_fill_indices((DevicePtr)(uintptr_t)fused->tensors[2].data, rows, 5, 0);
    gpu_sync();
    iso_tensor of_lse[2] = {product->tensors[2], lse.tensors[1]};
    iso_tensor of_target[3] = {product->tensors[2], fused->tensors[2], target.tensors[2]};
    iso_tensor of_both[4] = {product->tensors[0], product->tensors[1], fused->tensors[2],
                             fused->tensors[3]};
    run_once(product, product->tensors);
    run_once(&lse, of_lse);
    run_once(&target, of_target);
    run_once(fused, of_both);
    const void *from[3] = {lse.tensors[1].data, target.tensors[2].data, fused->tensors[3].data};
    for (int i = 0; i < 3; i++) {
        values[i] = malloc((size_t)rows * 4);
        gpu_read(values[i], (DevicePtr)(uintptr_t)from[i], (size_t)rows * 4);
    }
    int64_t differ = 0;
    for (int64_t i = 0; i < rows; i++) {
        float expected = values[1][i] - values[0][i];
        differ += memcmp(&expected, &values[2][i], 4) != 0;
    }
    printf("| %" PRId64 " rows: %" PRId64 " log-probabilities differ from the ops' one after "
           "another |\n", rows, differ);
    for (int i = 0; i < 3; i++)
        free(values[i]);
    close_subject(&lse);
    close_subject(&target);
}

/* The logits' product alone, in f32, beside the same product with the given tokens' log-probability
 * in the logits' place. */
static void run_head(const iso_module *module, int64_t rows)
{
    Subject product, fused;
    Times alone, whole;
    open_head(module, "lm_head", rows, &product);
    open_head(module, "head_logprob", rows, &fused);
    compare_head(module, &product, &fused);
    void *theirs = gpu_record(launch_all, &product), *ours = gpu_record(launch_all, &fused);
    gpu_replay(theirs);
    gpu_replay(ours);
    for (int i = 0; i < REPEATS; i++) {
        alone.us[i] = gpu_replay(theirs) * 1e3 / product.launches;
        whole.us[i] = gpu_replay(ours) * 1e3 / fused.launches;
    }
    double a = median(&alone), b = median(&whole);
    printf("| %" PRId64 " | %.1f (%.1f-%.1f) | %.1f (%.1f-%.1f) | **%.3f** | %.0f |\n", rows, a,
           alone.us[0], alone.us[REPEATS - 1], b, whole.us[0], whole.us[REPEATS - 1], b / a,
           2.0 * 151936 * 4096 * (double)rows / b / 1e6);
    fflush(stdout);
    gpu_forget(theirs);
    gpu_forget(ours);
    close_subject(&product);
    close_subject(&fused);
}

static void run_heads(const Options *options, const iso_module *module)
{
    static const int64_t rows[] = {1, 16, 64, 256, 1024, 4096, 16384};
    if ((options->op && strcmp(options->op, "head_logprob") != 0) || options->tp == 8)
        return;
    printf("\n| rows | lm_head us | head_logprob us | ratio | TFLOP/s |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!options->rows || options->rows == rows[i])
            run_head(module, rows[i]);
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool read_options(int argc, char **argv, Options *options)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            options->quick = true;
        else if (!strcmp(argv[i], "--once"))
            options->once = true;
        else if (!strcmp(argv[i], "--op") && i + 1 < argc)
            options->op = argv[++i];
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc)
            options->rows = atoll(argv[++i]);
        else if (!strcmp(argv[i], "--tp") && i + 1 < argc)
            options->tp = atoll(argv[++i]);
        else if (argv[i][0] != '-' && !options->cubin)
            options->cubin = argv[i];
        else
            return false;
    }
    return options->cubin != NULL;
}

int main(int argc, char **argv)
{
    Options options = {0};
    iso_module *module;
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: bench_gemm FILE.cubin [--quick] [--op NAME] [--rows N] [--tp N] "
                        "[--once]\n");
        return 2;
    }
    gpu_open();
    Yardstick *yardstick = cublas_open();
    if (!yardstick)
        return 5;
    must(iso_module_load(&module, options.cubin, NULL), "iso_module_load");
    printf("%s, driver %d, cublasLt %zu; medians of %d (least-most)\n\n", gpu_name(),
           gpu_driver_version(), cublas_version(yardstick), REPEATS);
    run_products(&options, yardstick, module);
    if (!options.once) {
        run_row_ops(&options, module);
        run_heads(&options, module);
    }
    iso_module_unload(module);
    cublas_close(yardstick);
    return 0;
}
