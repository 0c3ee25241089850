/* Tensor-core arithmetic on the CPU: the truncated fused dot-product-add, literal and fast.
 * Owns no memory: callers give every buffer; the class table is constant.
 *
 * One step takes `group` pairs and an f32 accumulator c:
 *   1. NaN, 0 x Inf, or Infs of both signs among exact products and c give NaN (0x7FFFFFFF); else
 *      any Inf is that Inf.
 *   2. A pair's exponent is the sum of its operands' exponents; significands are not normalised (a
 *      subnormal keeps its format's least exponent). Zero products and a zero c are dropped.
 *   3. E = max(floor, all pair exponents, exponent of c).
 *   4. Every magnitude is chopped to a multiple of 2^(E - bits); the signed sum is exact.
 *   5. A zero sum is +0; otherwise it is chopped to `out_bits` significant bits and to multiples of
 *      2^-149; 2^128 and above is Inf.
 * So order within a group is free, membership is not, and where out_bits is 24 a group of zeros
 * changes nothing but -0. */
#ifndef ISOC_FDPA_H
#define ISOC_FDPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum FdpaType { FDPA_BF16, FDPA_F16, FDPA_TF32, FDPA_E4M3, FDPA_E5M2 } FdpaType;

typedef struct FdpaClass {
    const char *name; /* the architecture that the table lists it under, e.g. "sm_90" */
    unsigned types;   /* operand types, 1u << FdpaType each */
    int group;        /* pairs in one step */
    int bits;         /* fraction bits kept below 2^E */
    int floor;        /* least E */
    int out_bits;     /* significant bits of a result */
} FdpaClass;

/* The class of an architecture and operand type, or NULL. bf16 and f16 of one architecture share
 * one class, so a contract holds one pointer for both. */
const FdpaClass *fdpa_class(const char *arch, FdpaType type);

/* The whole table, grouped by architecture, for messages that list or guess names. */
const FdpaClass *fdpa_classes(size_t *count);

/* Equal parameters mean equal bits; neither the name nor the type is a parameter. */
bool fdpa_same(const FdpaClass *a, const FdpaClass *b);

/* "fdpa group 16 bits 25 floor -133 out 24": what fingerprints hash. Returns snprintf's value. */
int fdpa_text(const FdpaClass *cls, char *buf, size_t size);

/* A decoded operand: sig / 2^13 x 2^exp, |sig| < 2^14; zero, Inf and NaN by exp. */
typedef struct FdpaElem {
    int16_t sig;
    int16_t exp;
} FdpaElem;

enum {
    FDPA_EXP_ZERO = -4096, /* with sig 0; an absent lane is this on both sides */
    FDPA_EXP_INF = 12000,  /* sign in sig */
    FDPA_EXP_NAN = 12001,
    FDPA_PANEL = 8, /* rows that stand side by side in a panel */
};

/* The element that a pattern is; tf32 is an f32 word whose low 13 bits are ignored. */
FdpaElem fdpa_elem(FdpaType type, uint32_t bits);

/* k rounded up to whole groups. */
size_t fdpa_padded(const FdpaClass *cls, size_t k);

/* The definition, written out: `group` pairs and c. */
float fdpa_step(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, float c);

/* One row of k elements, `stride` elements apart, into row[fdpa_padded(k)]; the padding is zero. */
void fdpa_decode(const FdpaClass *cls, FdpaType type, const void *src, ptrdiff_t stride, size_t k,
                 FdpaElem *row);

/* n rows, `ld` elements apart, into panels: element k of row j lies at
 * (j / PANEL * kp + k) * PANEL + j % PANEL, kp = fdpa_padded(k). Rows past n are zero. */
size_t fdpa_panels_size(const FdpaClass *cls, size_t n, size_t k); /* in FdpaElem */
void fdpa_decode_panels(const FdpaClass *cls, FdpaType type, const void *src, ptrdiff_t ld,
                        ptrdiff_t stride, size_t n, size_t k, FdpaElem *panels);

/* A chain of steps over k elements (a multiple of the group) of two decoded rows, from c;
 * +0 is the same as absent. */
float fdpa_chain(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, size_t k, float c);

/* out[i * ld + j] = the chain over k in [k0, k1) of row i of a and row j of b; k0, k1 multiples of
 * the group. `a` holds m rows of `kp` elements, `b` panels of the same kp. The chains start from
 * out when `accumulate`, else absent. Groups are anchored at k0, so leaves whose length is no
 * multiple of the group are decoded apart. */
typedef struct FdpaTile {
    const FdpaElem *a, *b;
    size_t m, n, kp, k0, k1;
    float *out;
    size_t ld;
    bool accumulate;
} FdpaTile;
void fdpa_tile(const FdpaClass *cls, const FdpaTile *t); /* the fastest form this CPU has */
void fdpa_tile_scalar(const FdpaClass *cls, const FdpaTile *t);
/* false, and nothing done: no AVX2, or not for this class. */
bool fdpa_tile_avx2(const FdpaClass *cls, const FdpaTile *t);

#endif
