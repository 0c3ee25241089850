// Test values as a function of (seed, row, column): the same bits on the device and on the host, so
// that nothing large is ever copied. Compiles as C11 and as CUDA. Nothing is owned.
#ifndef VALUES_CUH
#define VALUES_CUH

#include "iso_num.cuh"

enum ValueKind {
    VALUES_NORMAL,      // bell-shaped, eight binades
    VALUES_ADVERSARIAL, // cancellation, subnormals, signed zeros, wide binades; Inf, NaN, overflow
                        // in some rows only, so that most results still say something
};

ISO_FN unsigned value_hash(unsigned seed, unsigned row, unsigned column)
{
    unsigned h = seed * 0x9E3779B1u ^ row * 0x85EBCA77u ^ column * 0xC2B2AE3Du;
    h = (h ^ h >> 15) * 0x2C1B3C6Du;
    h = (h ^ h >> 12) * 0x297A2D39u;
    return h ^ h >> 15;
}

// Four bytes of a hash, summed: an integer in [-512, 508].
ISO_FN float value_bell(unsigned h)
{
    int sum = (int)(h & 255) + (int)(h >> 8 & 255) + (int)(h >> 16 & 255) + (int)(h >> 24);
    return (float)(sum - 512);
}

ISO_FN float value_power(int exponent)
{
    return iso_bits_f32((unsigned)(exponent + 127) << 23);
}

ISO_FN float value_adversarial(unsigned seed, unsigned row, unsigned column)
{
    unsigned h = value_hash(seed, row, column), choice = value_hash(seed + 1, row, column / 2) % 64;
    if (row % 16 == 3 && h % 1024 == 0)
        return iso_bits_f32(h & 1024 ? 0x7FC00000u : h & 2048 ? 0x7F800000u : 0xFF800000u);
    if (row % 16 == 5 && h % 256 == 0)
        return value_power(126) * (h & 256 ? 1.75f : -1.75f);
    if (choice < 8) // neighbours that cancel, large
        return (column % 2 ? -1.0f : 1.0f) * (1.0f + (float)(choice) * 0.125f) * value_power(40);
    if (choice < 12)
        return h & 1 ? 0.0f : -0.0f;
    if (choice < 16)
        return iso_bits_f32((h & 0x80000000u) | (h & 0x007F0000u)); // subnormal
    return value_bell(h) * value_power((int)(choice % 32) - 24);
}

// Scaled so that sums of a few thousand products stay in bf16's middle, and spread over eight
// binades: in one, sums would be exact and no order of adding could be told from another.
ISO_FN unsigned short value_bf16(int kind, unsigned seed, unsigned row, unsigned column)
{
    int binade = -11 - (int)(value_hash(seed + 2, row, column) % 8);
    float v = kind == VALUES_NORMAL
                  ? value_bell(value_hash(seed, row, column)) * value_power(binade)
                  : value_adversarial(seed, row, column);
    return iso_bf16_of_f32(v);
}

// An index that a parameter gives for a row: now and then none of its axis.
ISO_FN int value_index(unsigned seed, unsigned row)
{
    unsigned h = value_hash(seed, row, 0);
    return (int)(h % 2 ? h / 2 % 1000 : h / 2 % 160000);
}

#endif
