// Every scalar function by number, for the recorder (CUDA) and the tests (C11) alike.
// Owns nothing.
#ifndef TESTS_VECTORS_FUNCTIONS_H
#define TESTS_VECTORS_FUNCTIONS_H

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"

typedef unsigned long long VectorU64;

ISO_FN IsoPair vector_pair(IsoF32 x, IsoF32 y, IsoF32 z)
{
    IsoPair a, b;
    a.m = x;
    a.s = 1.0f;
    b.m = y;
    b.s = z;
    return iso_pair_join(a, b);
}

ISO_FN IsoTriple vector_triple(IsoF32 x, IsoF32 y, IsoF32 z)
{
    IsoTriple a, b;
    a.m = x;
    a.s = 1.0f;
    a.o = z;
    b.m = y;
    b.s = 1.0f;
    b.o = x;
    return iso_triple_join(a, b);
}

enum VectorFunction {
#define F(name, expr) VECTOR_##name,
#define S(name, expr) VECTOR_##name,
#include "functions.def"
#undef F
#undef S
    VECTOR_FUNCTIONS
};

static const char *const vector_names[] = {
#define F(name, expr) #name,
#define S(name, expr) #name,
#include "functions.def"
#undef F
#undef S
};

static const unsigned char vector_sweeps[] = {
#define F(name, expr) 0,
#define S(name, expr) 1,
#include "functions.def"
#undef F
#undef S
};

ISO_FN IsoU32 vector_apply(int function, IsoU32 x, IsoU32 y, IsoU32 z)
{
    IsoF32 X = iso_bits_f32(x), Y = iso_bits_f32(y), Z = iso_bits_f32(z);
    switch (function) {
#define F(name, expr)                                                                              \
    case VECTOR_##name:                                                                            \
        return expr;
#define S(name, expr) F(name, expr)
#include "functions.def"
#undef F
#undef S
    }
    return 0;
}

// What one operand and its result add to a sweep's sum; the sum does not depend on the order.
ISO_FN VectorU64 vector_mix(IsoU32 x, IsoU32 out)
{
    VectorU64 z = ((VectorU64)x << 32 | out) + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// The operands of a sweep: 0, stride, 2 stride, ... below 2^32.
enum { VECTOR_STRIDE = 4099 };

#endif
