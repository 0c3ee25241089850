// Attention probe: the wgmma kernel against the general one, bit for bit, over forms, lengths,
// chunks, where keys lie, and memory of nobody full of NaN and Inf; then its speed.
//   attend_probe [bits | time | profile]
// Build: nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a --fmad=false -Icompiler/device
//        tests/gpu/attend_probe.cu
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "iso_attend_walk.cuh"
#include "iso_attend_wgmma.cuh"
#include "probe.cuh"

static const int multiprocessors = 132;

// --- forms ---

template <int Depth, int Width, int Degree, bool F16, bool Causal, int Window, bool Sinks,
          bool Capped, bool Rounded = false>
struct Form {
    static constexpr int depth = Depth, width = Width, row_tiles = 2, ahead = 1, degree = Degree;
    static constexpr int split = 1024, window = Window;
    static constexpr bool f16 = F16, values_f16 = F16;
    static constexpr bool causal = Causal, capped = Capped, sinks = Sinks, lse = true;
    static constexpr bool rounded = Rounded;
    static constexpr unsigned scale = Capped ? 0x3b03126fu : 0x3e0293eeu, cap = 0x42904396u;
    static constexpr unsigned inverse = Capped ? 0x3c63239du : 0x40faf232u;
    typedef unsigned short Value;
    ISO_FN float weight(float x) {
        return Degree == 6   ? iso_exp2_d6(x)
               : Degree == 3 ? iso_exp2_d3(x)
               : Degree == 1 ? iso_ex2(x)
                             : iso_exp2(x);
    }
    ISO_FN Value value(float x) { return F16 ? iso_f16_of_f32(x) : iso_bf16_of_f32(x); }
};

template <class Op> __global__ void __launch_bounds__(128) general(const IsoAttendArgs args) {
    iso_attend<Op>(args);
}
template <class Op>
__global__ void __launch_bounds__(ISO_ATTEND_WGMMA_THREADS, 1)
    wgmma(const __grid_constant__ IsoAttendArgs args, const __grid_constant__ IsoAttendMaps maps) {
    iso_attend_wgmma<Op>(args, maps);
}

struct Subject {
    const char *name;
    const void *general, *wgmma;
    int depth, width, general_bytes, wgmma_bytes;
    bool f16, causal;
};

template <class Op> Subject subject(const char *name) {
    Subject s{name, (const void *)general<Op>, (const void *)wgmma<Op>, Op::depth, Op::width,
              IsoAttendPlan<Op>::shared_bytes, IsoAttendWgmmaPlan<Op>::shared_bytes, Op::f16,
              Op::causal};
    CHECK(cudaFuncSetAttribute(s.general, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               s.general_bytes));
    CHECK(cudaFuncSetAttribute(s.wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               s.wgmma_bytes));
    return s;
}

// --- values ---

__device__ unsigned long long mix(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

// Nearly normal, of variance 1.
__global__ void fill(unsigned short *p, long long n, unsigned long long seed, bool f16) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        unsigned long long r = mix(i * 2 + 1 + seed * 0x1000003);
        float u = ((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) / 65536.0f;
        u = (u - 2.0f) * 1.7320508f;
        p[i] = f16 ? iso_f16_of_f32(u) : iso_bf16_of_f32(u);
    }
}

// NaN and Inf in the rows that are marked, in all elements or in some.
__global__ void spoil(unsigned short *p, const unsigned char *marks, int row, bool f16) {
    int mark = marks[blockIdx.x];
    for (int i = threadIdx.x; i < row && mark; i += blockDim.x) {
        unsigned r = (unsigned)mix(i + blockIdx.x * 4099ULL);
        unsigned short odd = r % 3 == 0 ? (f16 ? 0x7E01 : 0x7FC1) : r % 3 == 1
                                 ? (f16 ? 0x7C00 : 0x7F80) : (f16 ? 0xFC00 : 0xFF80);
        if (mark == 1 || i % 16 == 5) {
            p[(long long)blockIdx.x * row + i] = odd;
        }
    }
}

__global__ void differ(const unsigned *a, const unsigned *b, long long n,
                       unsigned long long *out) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        if (a[i] != b[i]) {
            atomicAdd(out, 1ULL);
            atomicMin(out + 1, (unsigned long long)i);
        }
    }
}

static unsigned long long next_random(unsigned long long *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

// --- a batch ---

enum Mode { PAGED, PACKED, STRIDED };

struct Batch {
    Mode mode;
    int heads, group, page, piece;
    std::vector<int> length, start, position, sequence, table;
    int table_stride, rows_a, rows_b; // stored axes of sequences and positions
    std::vector<unsigned char> k_mark, v_mark;
};

static void finish(Batch &b, unsigned long long seed) {
    int total = 0, longest = 0, pages = 0;
    for (int n : b.length) {
        b.start.push_back(total);
        total += n;
        longest = std::max(longest, n);
        pages += (n + b.page - 1) / b.page;
    }
    b.table_stride = (longest + b.page - 1) / b.page;
    b.table.assign(b.length.size() * b.table_stride, -7);
    std::vector<int> order(pages + 1);
    for (int i = 0; i <= pages; ++i) {
        order[i] = i;
    }
    for (int i = pages; i > 0; --i) {
        std::swap(order[i], order[next_random(&seed) % (i + 1)]);
    }
    for (size_t s = 0, next = 0; s < b.length.size(); ++s) {
        for (int i = 0; i * b.page < b.length[s]; ++i) {
            b.table[s * b.table_stride + i] = order[next++];
        }
    }
    b.rows_a = b.mode == PAGED ? pages + 1 : b.mode == PACKED ? 1 : (int)b.length.size();
    b.rows_b = b.mode == PAGED ? b.page : b.mode == PACKED ? total + 3 : longest;
}

static int stored_row(const Batch &b, int s, int key) {
    if (b.mode == PAGED) {
        return b.table[s * b.table_stride + key / b.page] * b.page + key % b.page;
    }
    return b.mode == PACKED ? b.start[s] + key : s * b.rows_b + key;
}

// What is nobody's is odd; so are the last keys of some requests, and one a window leaves behind.
static void mark(Batch &b) {
    b.k_mark.assign(b.rows_a * b.rows_b, 1);
    b.v_mark.assign(b.rows_a * b.rows_b, 1);
    for (size_t s = 0; s < b.length.size(); ++s) {
        for (int key = 0; key < b.length[s]; ++key) {
            bool last = key == b.length[s] - 1;
            int at = stored_row(b, (int)s, key);
            b.k_mark[at] = last && s % 4 == 1;
            b.v_mark[at] = (last && s % 2 == 0) || (b.length[s] > 128 && key == b.length[s] - 25)
                               ? 2 : 0;
        }
    }
}

// --- the device's side ---

template <class T> static T *upload(const std::vector<T> &v) {
    T *p;
    CHECK(cudaMalloc((void **)&p, std::max<size_t>(v.size(), 1) * sizeof(T)));
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

static void *room(size_t bytes) {
    void *p;
    CHECK(cudaMalloc(&p, bytes));
    CHECK(cudaMemset(p, 0xCD, bytes));
    return p;
}

struct Problem {
    IsoAttendArgs args;
    IsoAttendMaps maps;
    size_t o_bytes, lse_bytes;
    std::vector<void *> owned;
    int heads;
};

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void encode(IsoTensorMap *map, bool f16, void *ptr, const cuuint64_t (&dims)[4],
                   const long long (&steps)[3], const cuuint32_t (&box)[4]) {
    static Encode entry;
    if (!entry) {
        cudaDriverEntryPointQueryResult r;
        CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&entry, 12000,
                                               cudaEnableDefault, &r));
    }
    cuuint64_t strides[3];
    cuuint32_t ones[4] = {1, 1, 1, 1};
    for (int i = 0; i < 3; ++i) {
        strides[i] = (cuuint64_t)steps[i] * 2;
    }
    CUresult r = entry((CUtensorMap *)map,
                       f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                       ptr, dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", (int)r);
        exit(1);
    }
}

static Problem place(const Subject &s, const Batch &b) {
    Problem p;
    memset(&p.args, 0, sizeof p.args);
    IsoAttendArgs &a = p.args;
    long long tokens = (long long)b.position.size(), stored = (long long)b.rows_a * b.rows_b;
    long long nq = tokens * b.heads * b.group * s.depth, nk = stored * b.heads * s.depth;
    long long nv = stored * b.heads * s.width;
    a.rows = (int)tokens;
    a.group = b.group;
    a.q.ptr = room(nq * 2);
    a.k.ptr = room(nk * 2);
    a.v.ptr = room(nv * 2);
    fill<<<1024, 256>>>((unsigned short *)a.q.ptr, nq, 1, s.f16);
    fill<<<1024, 256>>>((unsigned short *)a.k.ptr, nk, 2, s.f16);
    fill<<<1024, 256>>>((unsigned short *)a.v.ptr, nv, 3, s.f16);
    if (!b.k_mark.empty()) {
        unsigned char *k = upload(b.k_mark), *v = upload(b.v_mark);
        spoil<<<(int)stored, 128>>>((unsigned short *)a.k.ptr, k, b.heads * s.depth, s.f16);
        spoil<<<(int)stored, 128>>>((unsigned short *)a.v.ptr, v, b.heads * s.width, s.f16);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(k));
        CHECK(cudaFree(v));
    }
    std::vector<float> sinks(b.heads * b.group);
    for (size_t i = 0; i < sinks.size(); ++i) {
        sinks[i] = (float)i * 0.25f - 1.0f;
    }
    a.sinks.ptr = upload(sinks);
    a.sinks.stride[1] = b.group, a.sinks.stride[2] = 1;
    a.q.stride[0] = (long long)b.heads * b.group * s.depth;
    a.q.stride[1] = (long long)b.group * s.depth;
    a.q.stride[2] = s.depth, a.q.stride[3] = 1;
    a.k.stride[1] = s.depth, a.k.stride[3] = 1;
    a.v.stride[1] = s.width, a.v.stride[4] = 1;
    a.k_position = (long long)b.heads * s.depth, a.k_sequence = a.k_position * b.rows_b;
    a.v_position = (long long)b.heads * s.width, a.v_sequence = a.v_position * b.rows_b;
    a.o.stride[0] = (long long)b.heads * b.group * s.width;
    a.o.stride[1] = (long long)b.group * s.width;
    a.o.stride[2] = s.width, a.o.stride[4] = 1;
    a.lse.stride[0] = b.heads * b.group, a.lse.stride[1] = b.group, a.lse.stride[2] = 1;
    p.o_bytes = tokens * a.o.stride[0] * 2;
    p.lse_bytes = tokens * a.lse.stride[0] * 4;
    int *position = upload(b.position), *sequence = upload(b.sequence), *length = upload(b.length);
    a.position = position, a.sequence = sequence, a.length = length;
    p.owned = {a.q.ptr, a.k.ptr, a.v.ptr, a.sinks.ptr, position, sequence, length};
    if (b.mode == PACKED) {
        int *start = upload(b.start);
        a.key_start = start;
        p.owned.push_back(start);
    }
    if (b.mode == PAGED) {
        int *table = upload(b.table);
        a.block_table = table, a.block_table_stride = b.table_stride, a.page = b.page;
        p.owned.push_back(table);
    }
    a.piece = b.piece;
    p.heads = a.heads = b.heads;
    a.draws = upload(std::vector<unsigned>(2));
    p.owned.push_back(a.draws);
    return p;
}

static void map_all(const Subject &s, const Batch &b, Problem &p, int tile_tokens) {
    IsoAttendArgs &a = p.args;
    cuuint64_t heads = b.heads, ra = b.rows_a, rb = b.rows_b;
    encode(&p.maps.q, s.f16, a.q.ptr,
           {(cuuint64_t)s.depth, (cuuint64_t)b.group, heads, (cuuint64_t)a.rows},
           {a.q.stride[2], a.q.stride[1], a.q.stride[0]},
           {64, (cuuint32_t)a.tile_group, 1, (cuuint32_t)tile_tokens});
    encode(&p.maps.k, s.f16, a.k.ptr, {(cuuint64_t)s.depth, heads, rb, ra},
           {a.k.stride[1], a.k_position, a.k_sequence}, {64, 1, (cuuint32_t)b.piece, 1});
    encode(&p.maps.v, s.f16, a.v.ptr, {(cuuint64_t)s.width, heads, rb, ra},
           {a.v.stride[1], a.v_position, a.v_sequence}, {64, 1, (cuuint32_t)b.piece, 1});
}

static void launch(const Subject &s, Problem &p, bool general, void *o, void *lse) {
    IsoAttendArgs &a = p.args;
    a.o.ptr = o, a.lse.ptr = lse;
    int tiles = (a.rows + a.tile_tokens - 1) / a.tile_tokens *
                ((a.group + a.tile_group - 1) / a.tile_group);
    dim3 grid(general ? tiles : std::min(tiles * p.heads, multiprocessors), general ? p.heads : 1);
    void *parameters[] = {&a, &p.maps};
    CHECK(cudaLaunchKernel(general ? s.general : s.wgmma, grid,
                           dim3(general ? 128 : ISO_ATTEND_WGMMA_THREADS), parameters,
                           general ? s.general_bytes : s.wgmma_bytes, 0));
}

static void set_tile(Problem &p, int rows) {
    p.args.tile_group = std::min(p.args.group, rows);
    p.args.tile_tokens = rows / p.args.tile_group;
}

static bool same(const void *a, const void *b, size_t bytes, unsigned long long *first) {
    unsigned long long *d = (unsigned long long *)room(16), h[2] = {0, ~0ULL};
    CHECK(cudaMemcpy(d, h, 16, cudaMemcpyHostToDevice));
    differ<<<1024, 256>>>((const unsigned *)a, (const unsigned *)b, bytes / 4, d);
    CHECK(cudaMemcpy(h, d, 16, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(d));
    *first = h[1];
    return h[0] == 0;
}

static bool compare(const Subject &s, const Batch &b, const char *what) {
    Problem p = place(s, b);
    void *o[2] = {room(p.o_bytes), room(p.o_bytes)}, *lse[2] = {room(p.lse_bytes),
                                                                room(p.lse_bytes)};
    unsigned long long first_o, first_lse;
    set_tile(p, 32);
    launch(s, p, true, o[0], lse[0]);
    set_tile(p, ISO_ATTEND_WGMMA_ROWS);
    map_all(s, b, p, p.args.tile_tokens);
    launch(s, p, false, o[1], lse[1]);
    CHECK(cudaDeviceSynchronize());
    bool good = same(o[0], o[1], p.o_bytes, &first_o);
    good &= same(lse[0], lse[1], p.lse_bytes, &first_lse);
    printf("%-10s %-28s %d heads x %d, %zu tokens: %s", s.name, what, b.heads, b.group,
           b.position.size(), good ? "equal\n" : "");
    if (!good) {
        printf("DIFFER first o word %lld lse %lld\n", (long long)first_o, (long long)first_lse);
    }
    for (void *x : {o[0], o[1], lse[0], lse[1]}) {
        CHECK(cudaFree(x));
    }
    for (void *x : p.owned) {
        CHECK(cudaFree(x));
    }
    fflush(stdout);
    return good;
}

// --- bits ---

static Batch batch_of(Mode mode, int heads, int group, int page, int piece, bool whole,
                      unsigned long long seed) {
    static const int lengths[] = {17, 1, 1025, 128, 15, 129, 16, 127, 2, 1023, 1024, 4097};
    Batch b;
    b.mode = mode, b.heads = heads, b.group = group, b.page = page, b.piece = piece;
    for (int n : lengths) {
        int s = (int)b.length.size(), from = whole ? 0 : (int)(next_random(&seed) % n);
        b.length.push_back(n);
        for (int i = from; i < n; ++i) {
            b.sequence.push_back(s);
            b.position.push_back(i);
        }
        if (s % 3 == 1) {
            b.sequence.push_back(-1);
            b.position.push_back(5);
        }
    }
    finish(b, seed);
    mark(b);
    return b;
}

static bool bits(const Subject &s, int heads, int group) {
    bool good = true;
    good &= compare(s, batch_of(PACKED, heads, group, 16, 128, true, 1), "packed, whole");
    good &= compare(s, batch_of(PACKED, heads, group, 16, 128, false, 2), "packed, chunks");
    good &= compare(s, batch_of(STRIDED, heads, group, 16, 128, false, 3), "strides, chunks");
    good &= compare(s, batch_of(PAGED, heads, group, 16, 16, true, 4), "pages of 16, whole");
    good &= compare(s, batch_of(PAGED, heads, group, 528, 16, false, 5), "pages of 528, chunks");
    good &= compare(s, batch_of(PAGED, heads, group, 64, 64, false, 6), "pages of 64, chunks");
    Batch b = batch_of(PAGED, heads, group, 48, 16, true, 7);
    unsigned long long seed = 8;
    for (size_t i = b.position.size() - 1; i > 0; --i) {
        size_t j = next_random(&seed) % (i + 1);
        std::swap(b.position[i], b.position[j]);
        std::swap(b.sequence[i], b.sequence[j]);
    }
    b.position.resize(400);
    b.sequence.resize(400);
    return compare(s, b, "pages of 48, no order") && good;
}

// --- speed ---

static Batch batch_long(int tokens, int requests) {
    Batch b;
    b.mode = PACKED, b.heads = 8, b.group = 4, b.page = 16, b.piece = 128;
    for (int s = 0; s < requests; ++s) {
        b.length.push_back(tokens);
        for (int i = 0; i < tokens; ++i) {
            b.sequence.push_back(s);
            b.position.push_back(i);
        }
    }
    finish(b, 1);
    return b;
}

static void speed(const Subject &s, const Batch &b, bool general, const char *what) {
    Problem p = place(s, b);
    void *o = room(p.o_bytes), *lse = room(p.lse_bytes);
    set_tile(p, general ? 32 : ISO_ATTEND_WGMMA_ROWS);
    map_all(s, b, p, p.args.tile_tokens);
    cudaEvent_t from, to;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    std::vector<float> ms;
    double keys = 0;
    for (size_t i = 0; i < b.position.size(); ++i) {
        keys += s.causal ? b.position[i] + 1 : b.length[b.sequence[i]];
    }
    double flop = keys * 2 * (s.depth + s.width) * b.heads * b.group;
    for (int i = 0; i < (general ? 3 : 12); ++i) {
        CHECK(cudaEventRecord(from));
        launch(s, p, general, o, lse);
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        float x;
        CHECK(cudaEventElapsedTime(&x, from, to));
        if (i >= 2) {
            ms.push_back(x);
        }
    }
    std::sort(ms.begin(), ms.end());
    float median = ms[ms.size() / 2];
    printf("%-10s %-24s %8.3f ms (%.3f to %.3f)  %6.1f TFLOP/s\n", s.name, what, median, ms[0],
           ms.back(), flop / median * 1e-9);
    fflush(stdout);
    CHECK(cudaFree(o));
    CHECK(cudaFree(lse));
    for (void *x : p.owned) {
        CHECK(cudaFree(x));
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "bits";
    Subject d6 = subject<Form<128, 128, 6, false, true, 0, false, false>>("128 d6");
    Subject d3 = subject<Form<128, 128, 3, false, true, 0, false, false>>("128 d3");
    Subject narrow = subject<Form<64, 64, 6, false, true, 300, true, false>>("64 window");
    Subject capped = subject<Form<96, 64, 0, true, true, 0, false, true>>("96x64 cap");
    Subject rounded3 = subject<Form<128, 128, 3, false, true, 0, false, false, true>>("rounded d3");
    Subject rounded6 = subject<Form<64, 128, 6, false, true, 300, true, false, true>>("rounded d6");
    Subject capped3 = subject<Form<96, 64, 3, true, true, 0, false, true, true>>("rounded cap");
    Subject ex2 = subject<Form<128, 128, 1, false, true, 0, false, false>>("ex2");
    Subject fast = subject<Form<128, 128, 1, false, true, 0, false, false, true>>("rounded ex2");
    Subject fast_cap = subject<Form<96, 64, 1, true, true, 300, true, true, true>>("ex2 cap");
    Subject all = subject<Form<64, 96, 6, true, false, 0, false, false>>("64x96 all");
    if (strcmp(mode, "bits") == 0) {
        bool good = bits(d6, 2, 4);
        good &= bits(d6, 1, 7) & bits(d6, 2, 1) & bits(d3, 1, 8);
        good &= bits(narrow, 1, 5) & bits(capped, 2, 3) & bits(all, 1, 16) & bits(d6, 1, 160);
        good &= bits(rounded3, 2, 4) & bits(rounded6, 1, 5) & bits(capped3, 2, 3);
        good &= bits(ex2, 2, 4) & bits(fast, 2, 4) & bits(fast, 1, 8) & bits(fast_cap, 1, 5);
        printf(good ? "all equal\n" : "SOME DIFFER\n");
        return !good;
    }
    if (strcmp(mode, "profile") == 0) {
        speed(d6, batch_long(16384, 1), false, "1 x 16384 causal");
        return 0;
    }
    for (int tokens : {1024, 4096, 16384}) {
        char what[40];
        snprintf(what, sizeof what, "%d x %d causal", 16384 / tokens, tokens);
        speed(d6, batch_long(tokens, 16384 / tokens), false, what);
        speed(d3, batch_long(tokens, 16384 / tokens), false, what);
        speed(rounded3, batch_long(tokens, 16384 / tokens), false, what);
        speed(ex2, batch_long(tokens, 16384 / tokens), false, what);
        speed(fast, batch_long(tokens, 16384 / tokens), false, what);
    }
    Batch paged = batch_long(16384, 1);
    paged.mode = PAGED, paged.piece = 16;
    paged.start.clear();
    finish(paged, 3);
    speed(d6, paged, false, "16384, pages of 16");
    speed(d6, batch_long(4096, 4), true, "4 x 4096, general");
    return 0;
}
