// Product probe: every kernel of every subject against the plain reference, bit for bit, over rows,
// shapes and kinds of values, outputs poisoned, repeated. Prints one line per subject and variant.
//   gemm_probe [small [SUBJECT] | time | mutate | seeded]
// small: sizes fit for compute-sanitizer; time: only speed; mutate: wrong trees must be seen;
// seeded: a race that compute-sanitizer's racecheck must report.
// Build: nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a --fmad=false -Icompiler/device
//        -Itests/gpu tests/gpu/gemm_probe.cu tests/gpu/parts/*.cu
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm_probe_launch.cuh"

Subject subject_qkv(), subject_gate_up(), subject_o_proj(), subject_tp4(), subject_left(),
    subject_right(), subject_six(), subject_two(), subject_four(), subject_left_four(),
    subject_sixteen(), subject_bf16_four(), subject_f16_left(), subject_f16(), subject_ta(),
    subject_tb(), subject_tab(), subject_seeded();
const void *join_tp4(), *join_six();

// --- comparing ---

struct Tally {
    unsigned long long runs, words, wrong;
};
static Tally tally[24];
static int failures;

static void compare(const Subject &s, const Problem &q, int variant, size_t bytes) {
    count_of(true);
    differ<<<512, 256>>>((unsigned *)buffer[BUF_OUT].ptr, (unsigned *)buffer[BUF_REF].ptr,
                         bytes / 4, (unsigned long long *)buffer[BUF_DIFF].ptr);
    unsigned long long n = count_of(false);
    Tally &t = tally[variant];
    ++t.runs;
    t.words += bytes / 4;
    t.wrong += n;
    if (n && ++failures <= 20) {
        printf("  DIFFER %s, %s: rows %d columns %d leaf %d kind %d pads %d %d %d: %llu of %zu\n",
               s.name, s.variant[variant].name, q.rows, q.columns[0], q.leaf[0], q.kind, q.a_pad,
               q.b_pad, q.out_pad, n, bytes / 4);
    }
}

// Runs the reference, then every variant, each `repeats` times over poisoned outputs.
static void probe(const Subject &s, const Problem &q, int repeats) {
    size_t bytes = place(s, q, 0, true).out_bytes;
    char *ref = need(BUF_REF, bytes), *out = need(BUF_OUT, bytes);
    CHECK(cudaMemset(ref, 0xa5, bytes));
    launch_reference(s, place(s, q, ref, false).args);
    CHECK(cudaGetLastError());
    count_of(true);
    touched<<<512, 256>>>((unsigned *)ref, 0xa5a5a5a5, bytes / 4,
                          (unsigned long long *)buffer[BUF_DIFF].ptr);
    if (count_of(false) == 0) {
        printf("  the reference of %s wrote nothing\n", s.name);
        ++failures;
    }
    int *rows = (int *)need(BUF_ROWS, 4);
    CHECK(cudaMemcpy(rows, &q.rows, 4, cudaMemcpyHostToDevice));
    for (int i = 0; i < s.count; ++i) {
        IsoGemmArgs args = place(s, q, out, false).args;
        if (q.spare) {
            args.rows = q.rows + q.spare;
            args.rows_dev = rows;
        }
        for (int r = 0; r < repeats; ++r) {
            CHECK(cudaMemset(out, 0xa5, bytes));
            if (!launch(s, s.variant[i], args)) {
                break;
            }
            compare(s, q, i, bytes);
        }
    }
}

static void report(const Subject &s) {
    for (int i = 0; i < s.count; ++i) {
        printf("%-22s %-24s %6llu runs %12llu words %llu differ\n", s.name, s.variant[i].name,
               tally[i].runs, tally[i].words, tally[i].wrong);
    }
    memset(tally, 0, sizeof tally);
    fflush(stdout);
}

// --- what to run ---

static const int all_rows[] = {1, 2, 9, 10, 16, 17, 32, 33, 63, 64, 65, 127, 128, 129, 256, 257,
                               1024};
static const int small_rows[] = {17, 130};

static Problem problem(int leaves, int rows, int leaf, int c0, int c1, int c2) {
    Problem q;
    memset(&q, 0, sizeof q);
    q.rows = rows;
    q.columns[0] = c0, q.columns[1] = c1, q.columns[2] = c2;
    for (int i = 0; i < leaves; ++i) {
        q.leaf[i] = leaf;
    }
    return q;
}

// No live row on the device: nothing may be written.
static void nobody(const Subject &s) {
    Problem q = problem(s.leaves, 33, 64, 72, 72, 72);
    size_t bytes = place(s, q, 0, true).out_bytes;
    char *ref = need(BUF_REF, bytes), *out = need(BUF_OUT, bytes);
    CHECK(cudaMemset(ref, 0xa5, bytes));
    CHECK(cudaMemset(out, 0xa5, bytes));
    int *rows = (int *)need(BUF_ROWS, 4);
    CHECK(cudaMemset(rows, 0, 4));
    IsoGemmArgs args = place(s, q, out, false).args;
    args.rows_dev = rows;
    for (int i = 0; i < s.count; ++i) {
        launch(s, s.variant[i], args);
        compare(s, q, i, bytes);
    }
}

// A shape over all rows; kinds of values and strides take turns.
static void sweep(const Subject &s, int leaf, int c0, int c1, int c2, bool small) {
    const int *rows = small ? small_rows : all_rows;
    int n = small ? 2 : (int)(sizeof all_rows / sizeof *all_rows);
    for (int i = 0; i < n; ++i) {
        for (int turn = 0; turn < (small ? 1 : 3); ++turn) {
            Problem q = problem(s.leaves, rows[i], leaf, c0, c1, c2);
            q.kind = (i + turn * 2) % 5;
            q.spare = (i + turn) % 3 == 0 ? 3 : 0;
            q.a_pad = turn == 1 ? 8 : 0;
            q.b_pad = turn == 2 ? 16 : 0;
            q.out_pad = turn == 1 ? 1 : turn * 2;
            probe(s, q, turn == 0 && !small ? 3 : 1);
        }
    }
}

// What only the streaming kernel takes: odd strides and odd leaves.
static void odd(const Subject &s, bool small) {
    for (int i = small ? 4 : 0; i < 6; ++i) {
        Problem q = problem(s.leaves, 1 + i * 13, 100 + 31 * i, 70 + i, 33, 9);
        for (int l = 0; l < s.leaves; ++l) {
            q.leaf[l] += i < 3 ? 0 : (l * 7 + i) % 5 * 9 - 18;
        }
        q.a_pad = i % 3, q.b_pad = i % 2 * 3, q.out_pad = i % 2, q.kind = i % 5;
        probe(s, q, 2);
        int k = 0;
        for (int l = 0; l < s.leaves; ++l) {
            q.leaf[l] = l + 1 < s.leaves ? 40 + i * 8 : 53 + i;
            k += q.leaf[l];
        }
        q.a_pad = s.a_trans ? 0 : (8 - k % 8) % 8;
        q.b_pad = s.b_trans ? 0 : (8 - k % 8) % 8;
        probe(s, q, 1);
    }
}

static const char *only;        // the one subject to run

static void subject(const Subject &s, int leaf, int c0, int c1, int c2, bool small) {
    if (only && strcmp(only, s.name)) {
        return;
    }
    if (!small) {
        sweep(s, leaf, c0, c1, c2, false);
        sweep(s, 360, 520, 96, 104, false);
    }
    sweep(s, 176, 200, 136, 72, true);
    odd(s, small);
    nobody(s);
    report(s);
}

// --- ranks and the join ---

static void shift(const Subject &s, IsoGemmArgs &a, int k0) {
    a.a = (const char *)a.a + 2 * (s.a_trans ? k0 * a.a_stride : k0);
    for (int i = 0; i < s.groups * s.parts; ++i) {
        IsoGemmGroup &g = a.group[i / s.parts];
        const void *&b = g.b[i % s.parts];
        b = (const char *)b + 2 * (s.b_trans ? k0 * g.b_stride[i % s.parts] : k0);
    }
}

// Runs the ranks' parts of `whole` and joins rows from row0 on; the result must be the whole's.
static void ranks(const Subject &whole, const Subject *const *part, int n, const void *join,
                  const Problem &q, int variant, int row0) {
    size_t bytes = place(whole, q, 0, true).out_bytes;
    char *ref = need(BUF_REF, bytes), *out = need(BUF_OUT, bytes);
    CHECK(cudaMemset(ref, 0xa5, bytes));
    CHECK(cudaMemset(out, 0xa5, bytes));
    IsoGemmArgs full = place(whole, q, ref, false).args;
    launch_reference(whole, full);
    IsoJoinArgs j;
    memset(&j, 0, sizeof j);
    j.rows_each = 1;
    long long row_stride = q.columns[0] + 3, root_stride = row_stride * q.rows;
    float *roots = (float *)need(BUF_ROOTS, 64 * root_stride * 4);
    CHECK(cudaMemset(roots, 0xff, buffer[BUF_ROOTS].bytes));
    int leaf = 0;
    for (int r = 0; r < n; ++r) {
        IsoGemmArgs a = full;
        shift(whole, a, full.leaf_begin[leaf]);
        a.leaves = part[r]->leaves;
        int begin = full.leaf_begin[leaf];
        for (int i = 0; i <= a.leaves; ++i) {
            a.leaf_begin[i] = full.leaf_begin[leaf + i] - begin;
        }
        leaf += a.leaves;
        int count = 0;
        for (const char *c = part[r]->tree; *c; ++c) {
            count += *c == 'R';
        }
        a.group[0].roots = roots;
        a.group[0].root_stride = root_stride;
        a.group[0].root_row_stride = row_stride;
        j.source[r] = IsoJoinSource{roots, root_stride, row_stride, count};
        roots += count * root_stride;
        if (!launch(*part[r], part[r]->variant[(variant + r) % part[r]->count], a)) {
            printf("  rank %d did not launch\n", r);
            ++failures;
        }
    }
    j.sources = n;
    j.row_begin = row0;
    j.rows = q.rows - row0;
    j.group[0] = place(whole, q, out, false).args.group[0];
    IsoView &y = j.group[0].result[0], &x = j.group[0].operand[0];
    y.ptr = (short *)y.ptr + row0 * y.stride[0];
    x.ptr = (short *)x.ptr + row0 * x.stride[0];
    void *params[] = {&j};
    dim3 grid(ceil_div(ceil_div(q.columns[0], 2), 256), q.rows < 64 ? q.rows : 64);
    CHECK(cudaLaunchKernel(join, grid, 256, params, 0, stream));
    long long skip = full.group[0].result[0].stride[0] * row0 * 2;
    CHECK(cudaMemcpy(out, ref, skip, cudaMemcpyDeviceToDevice));
    compare(whole, q, 0, bytes);
}

static void all_ranks(bool small) {
    Subject o = subject_o_proj(), tp4 = subject_tp4(), six = subject_six(), left = subject_left(),
            right = subject_right();
    const Subject *four[] = {&tp4, &tp4, &tp4, &tp4}, *two[] = {&left, &right};
    for (int i = 0; i < (small ? 3 : 16); ++i) {
        Problem q = problem(8, all_rows[i], small ? 88 : 512, small ? 200 : 1000 + i, 0, 0);
        q.kind = i % 5, q.out_pad = i % 2;
        for (int v = 0; v < 3; ++v) {
            ranks(o, four, 4, join_tp4(), q, v, 0);
            ranks(o, four, 4, join_tp4(), q, v, q.rows / 2);
        }
        q = problem(6, all_rows[i], small ? 88 : 256, 576, 0, 0);
        q.kind = i % 5;
        for (int v = 0; v < 2; ++v) {
            ranks(six, two, 2, join_six(), q, v, q.rows / 3);
        }
    }
    printf("%-22s %-24s %6llu runs %12llu words %llu differ\n", "ranks and join", "", tally[0].runs,
           tally[0].words, tally[0].wrong);
    memset(tally, 0, sizeof tally);
}

// --- speed ---

static void launch_copies(const Subject &s, const Variant &v, const Layout &l, int n) {
    for (int i = 0; i < n; ++i) {
        IsoGemmArgs a = l.args;
        for (int j = 0; j < s.groups * s.parts; ++j) {
            const void *&b = a.group[j / s.parts].b[j % s.parts];
            b = (const char *)b + l.b_bytes * (i % copies);
        }
        launch(s, v, a);
    }
}

// Microseconds of one launch, from a graph of n.
static float clock_graph(const Subject &s, const Variant &v, const Layout &l, int n) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t e[2];
    float ms = 0;
    launch_copies(s, v, l, 1);
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    launch_copies(s, v, l, n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&e[0]));
    CHECK(cudaEventCreate(&e[1]));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(e[0], stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(e[1], stream));
    CHECK(cudaEventSynchronize(e[1]));
    CHECK(cudaEventElapsedTime(&ms, e[0], e[1]));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    stream = 0;
    return ms * 1e3f / n;
}

static void clock_one(const Subject &s, int rows, int leaf, int c0, int c1, int c2) {
    Problem q = problem(s.leaves, rows, leaf, c0, c1, c2);
    copies = 4;
    size_t bytes = place(s, q, 0, true).out_bytes;
    Layout l = place(s, q, need(BUF_OUT, bytes), false);
    double weights = 2.0 * (c0 + c1 + c2) * s.parts * leaf * s.leaves;
    for (int i = 0; i < s.count; ++i) {
        const Variant &v = s.variant[i];
        bool fits = v.wgmma ? (rows > 64) == (v.bm > 64) : rows <= 64;
        if (!fits || (v.bm < 64 && v.bm < rows) || (v.bm <= 64 && v.bm >= 4 * rows && rows > 1) ||
            (v.split && rows > 256)) {
            continue;
        }
        float us = clock_graph(s, v, l, rows > 1024 ? 8 : 24);
        printf("%-8s k %5d rows %5d %-24s %8.1f us %7.1f TFLOP/s %7.1f GB/s\n", s.name,
               leaf * s.leaves, rows, v.name, us, weights * rows / us / 1e6, weights / us / 1e3);
    }
    copies = 1;
    fflush(stdout);
}

static void clock_all() {
    static const int rows[] = {1, 16, 32, 64, 256, 1024, 4096};
    for (int i = 0; i < 7; ++i) {
        clock_one(subject_qkv(), rows[i], 4096, 4096, 1024, 1024);
        clock_one(subject_gate_up(), rows[i], 4096, 12288, 0, 0);
        clock_one(subject_o_proj(), rows[i], 512, 4096, 0, 0);
        clock_one(subject_o_proj(), rows[i], 1536, 4096, 0, 0);
    }
}

// --- that the probe can fail ---

// A subject against another tree's reference: the bits must differ.
static bool told_apart(Subject s, const Subject &other, const char *what) {
    s.reference = other.reference;
    s.count = 2;
    failures = 20;
    for (int rows = 16; rows <= 128; rows *= 2) {
        probe(s, problem(s.leaves, rows, 256, 576, 0, 0), 1);
    }
    bool all = tally[0].wrong > 0 && tally[1].wrong > 0;
    printf("%-40s %s\n", what, all ? "seen" : "NOT SEEN");
    memset(tally, 0, sizeof tally);
    return all;
}

static bool mutations() {
    bool all = told_apart(subject_four(), subject_left_four(), "a join reassociated");
    all &= told_apart(subject_bf16_four(), subject_four(), "a rounding dropped");
    all &= told_apart(subject_six(), subject_four(), "two leaves skipped");
    all &= told_apart(subject_f16(), subject_two(), "another element type");
    return all;
}

int main(int argc, char **argv) {
    bool small = argc > 1 && !strcmp(argv[1], "small");
    if (argc > 1 && !strcmp(argv[1], "mutate")) {
        return !mutations();
    }
    if (argc > 1 && !strcmp(argv[1], "seeded")) {
        Subject s = subject_seeded();
        probe(s, problem(1, 16, 512, 32, 0, 0), 1);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "time")) {
        clock_all();
        return 0;
    }
    only = argc > 2 ? argv[2] : 0;
    if (!small) {
        sweep(subject_qkv(), 576, 576, 192, 192, false);
    }
    subject(subject_qkv(), 4096, 4096, 1024, 1024, small);
    subject(subject_gate_up(), small ? 96 : 4096, 12288, 0, 0, small);
    subject(subject_o_proj(), 512, 4096, 0, 0, small);
    subject(subject_two(), 512, 576, 0, 0, small);
    subject(subject_four(), 512, 576, 0, 0, small);
    subject(subject_left_four(), 512, 576, 0, 0, small);
    subject(subject_six(), 256, 576, 0, 0, small);
    subject(subject_sixteen(), 512, 1024, 0, 0, small);
    subject(subject_bf16_four(), 256, 576, 0, 0, small);
    subject(subject_f16_left(), 256, 576, 0, 0, small);
    subject(subject_tp4(), 512, 1024, 0, 0, small);
    subject(subject_left(), 256, 576, 0, 0, small);
    subject(subject_right(), 256, 576, 0, 0, small);
    subject(subject_f16(), 512, 1024, 0, 0, small);
    subject(subject_ta(), 512, 1024, 0, 0, small);
    subject(subject_tb(), 512, 1024, 0, 0, small);
    subject(subject_tab(), 512, 1024, 0, 0, small);
    if (!only) {
        all_ranks(small);
    }
    CHECK(cudaDeviceSynchronize());
    printf("%s\n", failures ? "FAILED" : "all bits equal");
    return failures != 0;
}
