/* Weights from a seed: each element is a function of the tensor's name and of its own index. */
#include "weights_impl.h"

#include <math.h>
#include <string.h>

enum { MASSIVE_ROWS = 3 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

static uint64_t key_of(uint64_t seed, const char *name)
{
    uint64_t key = mix(seed + 0x9E3779B97F4A7C15ull);
    for (; *name; name++)
        key = mix(key ^ (unsigned char)*name) * 0x100000001B3ull;
    return key;
}

/* Four uniform numbers of 16 bits: their sum, centred, is about normal, here of unit variance. */
static float normal(uint64_t h)
{
    int sum = (int)((h & 0xFFFF) + (h >> 16 & 0xFFFF) + (h >> 32 & 0xFFFF) + (h >> 48));
    return (float)(sum - 131070) * 0x1.bb67aep-16f; /* sqrt(3) / 65536 */
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Elements of rows that are massive, times so much. */
static void make_massive(uint64_t key, const WeightTensor *tensor, int64_t first, int64_t n,
                         float *to)
{
    int64_t row_elements = 1;
    for (int i = 1; i < tensor->n_axes; i++)
        row_elements *= tensor->size[i];
    for (int i = 0; i < MASSIVE_ROWS; i++) {
        uint64_t row = mix(key + 0x51ED27u * (unsigned)(i + 1)) % (uint64_t)tensor->size[0];
        int64_t lo = (int64_t)row * row_elements - first, hi = lo + row_elements;
        bool again = false;
        for (int k = 0; k < i; k++)
            again |= mix(key + 0x51ED27u * (unsigned)(k + 1)) % (uint64_t)tensor->size[0] == row;
        for (int64_t at = lo < 0 ? 0 : lo; at < hi && at < n && !again; at++)
            to[at] *= 1000.0f;
    }
}

void weights_seeded(uint64_t seed, const WeightTensor *tensor, int64_t first, int64_t n, float *to)
{
    uint64_t key = key_of(seed, tensor->name);
    bool norm = strstr(tensor->name, "norm"), bias = ends_with(tensor->name, "bias");
    float scale = norm || bias ? 0.1f : 1.0f;
    if (!norm && !bias && tensor->fan_in > 0)
        scale = (float)sqrt(1.0 / (double)tensor->fan_in);
    for (int64_t i = 0; i < n; i++)
        to[i] = normal(mix(key + (uint64_t)(first + i) * 0x9E3779B97F4A7C15ull)) * scale;
    if (ends_with(tensor->name, "layers.1.mlp.down_proj.weight"))
        make_massive(key, tensor, first, n, to);
    for (int64_t i = 0; i < n && norm; i++)
        to[i] += 1.0f;
}
