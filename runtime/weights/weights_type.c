/* Element types of checkpoints: plain ones and GGUF's blocks. */
#include "weights_impl.h"

#include "../../compiler/device/iso_num.cuh"

#include <string.h>

static const struct {
    const char *name;
    int elements, bytes;
} types[] = {
#define X(id, name, elements, bytes, gguf) {name, elements, bytes},
    WEIGHT_TYPES(X)
#undef X
};

const char *weight_type_name(WeightType type)
{
    return types[type].name;
}

int weight_block_elements(WeightType type)
{
    return types[type].elements;
}

int weight_block_bytes(WeightType type)
{
    return types[type].bytes;
}

static uint16_t u16_at(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static float f16_at(const unsigned char *p)
{
    return iso_f32_of_f16(u16_at(p));
}

/* ---- one block to f32, every operation rounded ----------------------------------------------- */

static void block_q4_0(const unsigned char *b, float *to)
{
    float d = f16_at(b);
    for (int i = 0; i < 16; i++) {
        to[i] = (float)((b[2 + i] & 15) - 8) * d;
        to[i + 16] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

static void block_q4_1(const unsigned char *b, float *to)
{
    float d = f16_at(b), m = f16_at(b + 2);
    for (int i = 0; i < 16; i++) {
        to[i] = (float)(b[4 + i] & 15) * d + m;
        to[i + 16] = (float)(b[4 + i] >> 4) * d + m;
    }
}

static void block_q8_0(const unsigned char *b, float *to)
{
    float d = f16_at(b);
    for (int i = 0; i < 32; i++)
        to[i] = (float)(signed char)b[2 + i] * d;
}

/* Six bits of scale and of minimum for each of eight runs, packed in twelve bytes. */
static void scale_q4_k(const unsigned char *packed, int run, int *scale, int *minimum)
{
    if (run < 4) {
        *scale = packed[run] & 63;
        *minimum = packed[run + 4] & 63;
        return;
    }
    *scale = (packed[run + 4] & 15) | (packed[run - 4] >> 6) << 4;
    *minimum = (packed[run + 4] >> 4) | (packed[run] >> 6) << 4;
}

static void block_q4_k(const unsigned char *b, float *to)
{
    float d = f16_at(b), m = f16_at(b + 2);
    for (int run = 0; run < 8; run++) {
        int scale, minimum, shift = run % 2 * 4;
        scale_q4_k(b + 4, run, &scale, &minimum);
        float dl = d * (float)scale, ml = m * (float)minimum;
        for (int i = 0; i < 32; i++) {
            int q = b[16 + run / 2 * 32 + i] >> shift & 15;
            to[run * 32 + i] = dl * (float)q - ml;
        }
    }
}

static void block_q6_k(const unsigned char *b, float *to)
{
    const signed char *scales = (const signed char *)b + 192;
    float d = f16_at(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, at = i % 128, quarter = at / 32, lane = at % 32;
        int low = b[half * 64 + quarter % 2 * 32 + lane] >> quarter / 2 * 4 & 15;
        int high = b[128 + half * 32 + lane] >> quarter * 2 & 3;
        to[i] = d * (float)scales[i / 16] * (float)((low | high << 4) - 32);
    }
}

static void decode_block(WeightType type, const unsigned char *b, float *to)
{
    switch (type) {
    case WT_Q4_0: block_q4_0(b, to); return;
    case WT_Q4_1: block_q4_1(b, to); return;
    case WT_Q8_0: block_q8_0(b, to); return;
    case WT_Q4_K: block_q4_k(b, to); return;
    case WT_Q6_K: block_q6_k(b, to); return;
    default: return;
    }
}

/* ---- runs of elements ------------------------------------------------------------------------ */

static void decode_plain(WeightType type, const unsigned char *data, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        if (type == WT_U8)
            to[i] = data[i];
        else if (type == WT_F32)
            memcpy(&to[i], data + 4 * i, 4);
        else if (type == WT_F16)
            to[i] = f16_at(data + 2 * i);
        else
            to[i] = iso_f32_of_bf16(u16_at(data + 2 * i));
    }
}

void weight_decode(WeightType type, const unsigned char *data, int64_t first, int64_t n, float *to)
{
    int elements = types[type].elements, bytes = types[type].bytes;
    float block[256];
    if (elements == 1) {
        decode_plain(type, data + first * bytes, n, to);
        return;
    }
    while (n > 0) {
        int64_t from = first % elements, count = elements - from < n ? elements - from : n;
        decode_block(type, data + first / elements * bytes, block);
        memcpy(to, block + from, (size_t)count * sizeof *to);
        first += count;
        to += count;
        n -= count;
    }
}
