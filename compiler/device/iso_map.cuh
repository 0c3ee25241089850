// Chunks of neighbouring elements: how elementwise and row kernels touch global memory.
// Owns nothing. A chunk body is a lambda body(i, n, wide, ...) that handles elements i .. i + n - 1
// of the inner dimension, n at most the chunk's width; `wide` says that the chunk is full and that
// 16-byte accesses may be used. Elements beyond n are computed from zeros and dropped.
#ifndef ISO_MAP_CUH
#define ISO_MAP_CUH

#include "iso_abi.cuh"
#include "iso_num.cuh"
#include "iso_prim.cuh"

template <class T, int W> struct IsoPack {
    T v[W];
};

// Elements of a view that stay in one 16-byte access each: the inner step is 1 and a row's start
// is aligned. Chunks begin at multiples of the width, which is 8 for types of 2 bytes and may be
// 4 or 8 for f32.
ISO_FN bool iso_vector(const void *row, long long step)
{
    return step == 1 && ((unsigned long long)row & 15) == 0;
}

ISO_FN void iso_unpack(const uint4 &from, IsoU16 *to)
{
    const unsigned word[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 8; ++i)
        to[i] = (IsoU16)(word[i / 2] >> 16 * (i % 2));
}

ISO_FN void iso_unpack(const uint4 &from, float *to)
{
    to[0] = __uint_as_float(from.x);
    to[1] = __uint_as_float(from.y);
    to[2] = __uint_as_float(from.z);
    to[3] = __uint_as_float(from.w);
}

ISO_FN uint4 iso_pack(const IsoU16 *from)
{
    return make_uint4(from[0] | (unsigned)from[1] << 16, from[2] | (unsigned)from[3] << 16,
                      from[4] | (unsigned)from[5] << 16, from[6] | (unsigned)from[7] << 16);
}

ISO_FN uint4 iso_pack(const float *from)
{
    return make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]),
                      __float_as_uint(from[2]), __float_as_uint(from[3]));
}

template <class T, int W>
ISO_FN void iso_load(IsoPack<T, W> &to, const T *row, long long step, long long i, int n, bool wide)
{
    constexpr int word = 16 / sizeof(T);
    if constexpr (W % word == 0) {
        if (wide) {
#pragma unroll
            for (int k = 0; k < W; k += word)
                iso_unpack(*(const uint4 *)(row + i + k), to.v + k);
            return;
        }
    }
    if constexpr (sizeof(T) == 2 && W == 4) {
        if (wide) {
            const uint2 four = *(const uint2 *)(row + i);
            const unsigned pair[2] = {four.x, four.y};
#pragma unroll
            for (int k = 0; k < W; ++k)
                to.v[k] = (T)(pair[k / 2] >> 16 * (k % 2));
            return;
        }
    }
    if constexpr (W == 2 && sizeof(T) == 4) {
        if (wide) {
            const float2 both = *(const float2 *)(row + i);
            to.v[0] = both.x;
            to.v[1] = both.y;
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < W; ++k)
        to.v[k] = k < n ? row[(i + k) * step] : (T)0;
}

template <class T, int W>
ISO_FN void iso_store(const IsoPack<T, W> &from, T *row, long long step, long long i, int n,
                      bool wide)
{
    constexpr int word = 16 / sizeof(T);
    if constexpr (W % word == 0) {
        if (wide) {
#pragma unroll
            for (int k = 0; k < W; k += word)
                *(uint4 *)(row + i + k) = iso_pack(from.v + k);
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < W; ++k)
        if (k < n)
            row[(i + k) * step] = from.v[k];
}

// Where an operand with a lookup is read, in elements from its index `begin`; -1: it has no such
// index, and its element there is +0.
ISO_FN long long iso_look_up(int index, const IsoLookup &lookup)
{
    const unsigned at = (unsigned)index - (unsigned)lookup.begin;
    return at < (unsigned)lookup.count ? at * lookup.stride : -1;
}

// A chunk along the tokens of an operand with a lookup.
template <class T, int W>
ISO_FN void iso_load_looked_up(IsoPack<T, W> &to, const T *row, long long step, const int *index,
                               long long index_step, const IsoLookup &lookup, long long i, int n)
{
#pragma unroll
    for (int k = 0; k < W; ++k) {
        const long long at = k < n ? iso_look_up(index[(i + k) * index_step], lookup) : -1;
        to.v[k] = at >= 0 ? row[(i + k) * step + at] : (T)0;
    }
}

// A slot that stands at `index` of `size` is this rank's; one that stands nowhere is the first's.
ISO_FN bool iso_owns(int index, const IsoLookup &lookup, unsigned size)
{
    return iso_look_up(index, lookup) >= 0 || (lookup.begin == 0 && (unsigned)index >= size);
}

// Of a chunk along the slots what is this rank's.
template <class T, int W>
ISO_FN void iso_store_own(const IsoPack<T, W> &from, T *row, long long step, long long i, int n,
                          const int *index, long long index_step, const IsoLookup &lookup,
                          unsigned size)
{
#pragma unroll
    for (int k = 0; k < W; ++k)
        if (k < n && iso_owns(index[(i + k) * index_step], lookup, size))
            row[(i + k) * step] = from.v[k];
}

// The length of the free dimension: what the device says, but never more than the tensors have.
// `begin`: which element of the dimension, as the device counts it, the tensors' first one is.
ISO_FN unsigned iso_live(const int *rows_dev, unsigned extent, unsigned each, unsigned begin)
{
    if (!rows_dev)
        return extent;
    unsigned live = *rows_dev > 0 ? (unsigned)*rows_dev * each : 0;
    live = live > begin ? live - begin : 0;
    return live < extent ? live : extent;
}

// The chunk at i of a row of n elements, by one thread.
template <int Width, class Body>
ISO_FN void iso_chunk(unsigned i, unsigned n, bool vector, const Body &body)
{
    if (vector && i + Width <= n)
        body((long long)i, Width, true);
    else
        body((long long)i, (int)(n - i < Width ? n - i : Width), false);
}

#endif
