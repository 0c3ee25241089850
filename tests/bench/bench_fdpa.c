/* Products per second of the tensor-core model, scalar and AVX2, on one core. */
#include "base/fdpa.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { M = 16, N = 64, K = 4096 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* bf16 bits of either sign with exponents over 16 binades. */
static void fill(uint16_t *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t r = (uint32_t)(seed >> 33);
        x[i] = (uint16_t)((r & 0x807F) | ((112 + ((r >> 8) & 15)) << 7));
    }
}

static double rate(const FdpaClass *cls, const FdpaTile *t, bool avx2)
{
    double start = now(), spent;
    size_t runs = 0;
    do {
        if (!avx2)
            fdpa_tile_scalar(cls, t);
        else if (!fdpa_tile_avx2(cls, t))
            return 0;
        runs++;
        spent = now() - start;
    } while (spent < 0.5);
    return (double)runs * (double)(t->m * t->n * (t->k1 - t->k0)) / spent;
}

static void bench(const char *arch)
{
    const FdpaClass *cls = fdpa_class(arch, FDPA_BF16);
    uint16_t *a = malloc(M * K * sizeof *a), *b = malloc(N * K * sizeof *b);
    FdpaElem *rows = malloc(M * K * sizeof *rows), *panels = malloc(N * K * sizeof *panels);
    float *out = malloc(M * N * sizeof *out);
    FdpaTile t = {rows, panels, M, N, K, 0, K, out, N, false};
    if (!a || !b || !rows || !panels || !out)
        exit(1);
    fill(a, M * K, 1);
    fill(b, N * K, 2);
    double best = 1e9;
    for (int run = 0; run < 5; run++) {
        double start = now();
        for (size_t i = 0; i < M; i++)
            fdpa_decode(cls, FDPA_BF16, a + i * K, 1, K, rows + i * K);
        fdpa_decode_panels(cls, FDPA_BF16, b, K, 1, N, K, panels);
        double spent = now() - start;
        best = spent < best ? spent : best;
    }
    double decoded = (M + N) * (double)K / best;
    printf("%-6s  decode %6.0f M/s  scalar %6.0f M products/s", arch, decoded / 1e6,
           rate(cls, &t, false) / 1e6);
    printf("  AVX2 %6.0f M products/s\n", rate(cls, &t, true) / 1e6);
    free(a), free(b), free(rows), free(panels), free(out);
}

int main(void)
{
    bench("sm_80");
    bench("sm_90");
    return 0;
}
