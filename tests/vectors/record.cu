// Records what a GPU computes: tensor-core steps and every scalar function. See README.md.
//
//   record mma-bf16 | mma-f16 | wgmma-bf16    lines: 16 words of a, 16 of b, c, d
//   record functions                          lines: name, x, y, z, result
//   record sweep                              lines: name, stride, sum of mixed results
#include "functions.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace
{

void must(cudaError_t e)
{
    if (e != cudaSuccess) {
        fprintf(stderr, "record: %s\n", cudaGetErrorString(e));
        exit(1);
    }
}

uint64_t rng_state = 20261129;

uint32_t draw()
{
    uint64_t z = rng_state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)((z ^ (z >> 31)) >> 13);
}

// Shapes of data: near one, all binades, few binades near the least (for bf16, products near
// 2^-149), any bits, near overflow, and sums that show the least exponent (bf16 products around
// 2^-147 and c = 0).
enum Kind { NEAR_ONE, WIDE, TINY, ANY, HUGE_VALUES, LEAST, KINDS };

uint16_t draw_half(bool bf16, int kind)
{
    uint32_t r = draw(), shift = bf16 ? 7 : 10, top = bf16 ? 255 : 31, bias = top / 2,
             e = r >> 16 & 255;
    uint32_t exp = kind == NEAR_ONE ? bias - e % 6
                   : kind == WIDE   ? 1 + e % (top - 1)
                                    : top - 1 - e % 4;
    if (kind == TINY)
        exp = e % 3 + (bf16 && r >> 30 ? 52 : 0);
    if (kind == LEAST) { // one sign, so that what is chopped adds up
        exp = e % 6 + (bf16 ? 51 : 0);
        r &= 0x7FFF;
    }
    if (kind == ANY)
        exp = e % 16 ? e % top : top;
    return (uint16_t)((r & 0x8000) | exp << shift | (r & ((1u << shift) - 1)));
}

uint32_t draw_acc(int kind)
{
    uint32_t r = draw(), e = draw() & 255;
    if (kind == LEAST)
        return 0;
    uint32_t exp = kind == NEAR_ONE      ? 120 + e % 12
                   : kind == TINY        ? e % 20
                   : kind == HUGE_VALUES ? 240 + e % 15
                                         : e;
    return (r & 0x807FFFFF) | exp << 23;
}

// One warp: d[16][8] = a[16][16] b[8][16]^T + c.
template <bool BF16>
__global__ void mma_sync(const uint16_t *a, const uint16_t *b, const float *c, float *d)
{
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    auto pair = [](const uint16_t *m, int row, int k) {
        return *(const uint32_t *)(m + row * 16 + k);
    };
    uint32_t a0 = pair(a, g, 2 * t), a1 = pair(a, g + 8, 2 * t), a2 = pair(a, g, 2 * t + 8);
    uint32_t a3 = pair(a, g + 8, 2 * t + 8), b0 = pair(b, g, 2 * t), b1 = pair(b, g, 2 * t + 8);
    float x[4];
    for (int i = 0; i < 4; i++)
        x[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    if (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = x[i];
}

// Shared-memory descriptor of unswizzled 8 x 16-byte core matrices: 128 bytes apart along k, 256
// along the rows.
__device__ uint64_t core_matrices(const void *p)
{
    uint64_t at = __cvta_generic_to_shared(p);
    return (at >> 4 & 0x3FFF) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}

// One warpgroup: d[64][8] = a[64][16] b[8][16]^T + c, both operands from shared memory.
__global__ void wgmma(const uint16_t *a, const uint16_t *b, const float *c, float *d)
{
    __shared__ alignas(128) uint16_t sa[64 * 16], sb[8 * 16];
    for (int i = threadIdx.x; i < 64 * 16; i += 128)
        sa[i / 128 * 128 + i / 8 % 2 * 64 + i / 16 % 8 * 8 + i % 8] = a[i];
    sb[threadIdx.x / 8 % 2 * 64 + threadIdx.x / 16 * 8 + threadIdx.x % 8] = b[threadIdx.x];
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    float x[4];
    for (int i = 0; i < 4; i++)
        x[i] = c[(row + i / 2 * 8) * 8 + col + i % 2];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{ .reg .pred p; setp.ne.u32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, p, 1, "
                 "1, 0, 0; }"
                 : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
                 : "l"(core_matrices(sa)), "l"(core_matrices(sb)));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++)
        d[(row + i / 2 * 8) * 8 + col + i % 2] = x[i];
}

template <class T> T *on_device(const std::vector<T> &v)
{
    T *p;
    must(cudaMalloc(&p, v.size() * sizeof(T)));
    must(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

// Row i is written with column i mod 8, so that every line has operands of its own.
void record_steps(const char *what, int lines)
{
    bool bf16 = strcmp(what, "mma-f16") != 0, group = strcmp(what, "wgmma-bf16") == 0;
    int rows = group ? 64 : 16;
    for (int done = 0, kind = 0; done < lines; done += rows, kind = (kind + 1) % KINDS) {
        std::vector<uint16_t> a(rows * 16), b(8 * 16);
        std::vector<uint32_t> c(rows * 8), d(rows * 8);
        for (auto &x : a)
            x = draw_half(bf16, kind);
        for (auto &x : b)
            x = draw_half(bf16, kind);
        for (auto &x : c)
            x = draw_acc(kind);
        uint16_t *da = on_device(a), *db = on_device(b);
        float *dc = (float *)on_device(c), *dd = (float *)on_device(d);
        if (group)
            wgmma<<<1, 128>>>(da, db, dc, dd);
        else if (bf16)
            mma_sync<true><<<1, 32>>>(da, db, dc, dd);
        else
            mma_sync<false><<<1, 32>>>(da, db, dc, dd);
        must(cudaGetLastError());
        must(cudaMemcpy(d.data(), dd, d.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
        for (int i = 0; i < rows; i++) {
            for (int k = 0; k < 16; k++)
                printf("%04x ", a[i * 16 + k]);
            for (int k = 0; k < 16; k++)
                printf("%04x ", b[i % 8 * 16 + k]);
            printf("%08x %08x\n", c[i * 8 + i % 8], d[i * 8 + i % 8]);
        }
        must(cudaFree(da));
        must(cudaFree(db));
        must(cudaFree(dc));
        must(cudaFree(dd));
    }
}

const uint32_t EDGES[] = {
    0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001, 0x2F800000, 0x33000000,
    0x33800000, 0x3EAAAAAA, 0x3EAAAAAB, 0x3F000000, 0x3F19999A, 0x3F2AAAAA, 0x3F2AAAAB, 0x3F7FFFFF,
    0x3F800000, 0x3F800001, 0x3FAAAAAA, 0x3FAAAAAB, 0x40000000, 0x41500000, 0x41700000, 0x41800000,
    0x42AEAC50, 0x42B17217, 0x42B17218, 0x42B40000, 0x42CFF1B5, 0x42D20000, 0x42FC0000, 0x42FE0000,
    0x42FEFFFF, 0x42FF0000, 0x43000000, 0x43010000, 0x43150000, 0x43160000, 0x43170000, 0x477FE000,
    0x477FEFFF, 0x477FF000, 0x4B000000, 0x5F800000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0x7F800000,
    0x7F800001, 0x7F812345, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF,
};

uint32_t draw_operand()
{
    uint32_t how = draw() % 4, r = draw();
    if (how == 0)
        return EDGES[r % (sizeof EDGES / sizeof *EDGES)] | (draw() & 1) << 31;
    if (how == 1)
        return r ^ draw() << 16;
    uint32_t exp = how == 2 ? 118 + draw() % 17 : 1 + draw() % 254;
    return ((r ^ draw() << 16) & 0x807FFFFF) | exp << 23;
}

__global__ void apply(int function, const uint32_t *x, int n, uint32_t *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = vector_apply(function, x[3 * i], x[3 * i + 1], x[3 * i + 2]);
}

void record_functions(int lines)
{
    for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
        std::vector<uint32_t> x(3 * lines), out(lines);
        for (auto &v : x)
            v = draw_operand();
        uint32_t *dx = on_device(x), *dout = on_device(out);
        apply<<<(lines + 127) / 128, 128>>>(f, dx, lines, dout);
        must(cudaGetLastError());
        must(cudaMemcpy(out.data(), dout, lines * sizeof(uint32_t), cudaMemcpyDeviceToHost));
        for (int i = 0; i < lines; i++)
            printf("%s %08x %08x %08x %08x\n", vector_names[f], x[3 * i], x[3 * i + 1],
                   x[3 * i + 2], out[i]);
        must(cudaFree(dx));
        must(cudaFree(dout));
    }
}

__global__ void sweep(int function, uint64_t stride, VectorU64 *sum)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x * stride;
    VectorU64 mine = 0;
    for (uint64_t x = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) * stride; x < 1ull << 32;
         x += step)
        mine += vector_mix((uint32_t)x, vector_apply(function, (uint32_t)x, 0, 0));
    atomicAdd(sum, mine);
}

void record_sweeps(uint64_t stride)
{
    for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
        if (!vector_sweeps[f])
            continue;
        std::vector<VectorU64> sum(1, 0);
        VectorU64 *dsum = on_device(sum);
        sweep<<<1056, 256>>>(f, stride, dsum);
        must(cudaGetLastError());
        must(cudaMemcpy(sum.data(), dsum, sizeof(VectorU64), cudaMemcpyDeviceToHost));
        printf("%s %llu %016llx\n", vector_names[f], (unsigned long long)stride, sum[0]);
        must(cudaFree(dsum));
    }
}

} // namespace

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "mma-bf16") == 0 || strcmp(what, "mma-f16") == 0 ||
        strcmp(what, "wgmma-bf16") == 0)
        record_steps(what, 1920);
    else if (strcmp(what, "functions") == 0)
        record_functions(1000);
    else if (strcmp(what, "sweep") == 0) {
        record_sweeps(VECTOR_STRIDE);
        record_sweeps(1);
    } else {
        fprintf(stderr, "usage: record mma-bf16 | mma-f16 | wgmma-bf16 | functions | sweep\n");
        return 2;
    }
    return 0;
}
