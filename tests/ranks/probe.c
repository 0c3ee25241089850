/* Inputs that show the order of a sum, and what the trees of order.iso make of them. */
#include "ranks.h"

enum { LEAF = 16, BF16_ONE = 0x3F80, BF16_BIG = 0x7180 };

const Probe probes[N_PROBES] = {{"nine", 9, false}, {"twelve", 12, true}, {"sixteen", 16, true}};

int64_t probe_rows(const Probe *probe)
{
    return probe->leaves * (probe->leaves - 1) / 2;
}

/* Leaves under the least node of the balanced tree of n leaves from `at` that has both. */
static int pairwise_meet(int at, int n, int a, int b)
{
    int left = 1;
    while (left * 2 < n)
        left *= 2;
    if (b < at + left)
        return pairwise_meet(at, left, a, b);
    if (a >= at + left)
        return pairwise_meet(at + left, n - left, a, b);
    return n;
}

void fill_probe(const Probe *probe, Whole *whole)
{
    uint16_t *x = whole->tensor[0].data, *w = whole->tensor[1].data;
    int64_t k = whole->tensor[0].shape[1], columns = whole->tensor[1].shape[0];
    for (int64_t i = 0; i < columns * k; i++)
        w[i] = BF16_ONE;
    for (int a = 0; a < probe->leaves; a++)
        for (int b = a + 1; b < probe->leaves; b++, x += k) {
            for (int64_t i = 0; i < k; i++)
                x[i] = BF16_ONE;
            x[a * LEAF + a % LEAF] = BF16_BIG;
            x[b * LEAF + (b + 3) % LEAF] = BF16_BIG | 0x8000;
        }
}

/* What the contract's tree gives, from its definition alone. */
void expect_probe(const Probe *probe, Whole *whole)
{
    float *y = whole->expected[2];
    int64_t columns = whole->tensor[1].shape[0];
    for (int a = 0; a < probe->leaves; a++)
        for (int b = a + 1; b < probe->leaves; b++)
            for (int64_t c = 0; c < columns; c++)
                *y++ = (float)(LEAF * (probe->leaves -
                                       (probe->pairwise ? pairwise_meet(0, probe->leaves, a, b)
                                                        : b + 1)));
}
