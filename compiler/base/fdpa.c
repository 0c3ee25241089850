/* The tensor-core step of fdpa.h, written out and by rows, and the table of classes. */
#include "fdpa.h"

#include "fdpa_avx2.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_GROUP = 32 };

/* Parameters: M. Khattak and M. Mikaitis, arXiv 2512.07004, and MMA-Sim, arXiv 2511.10909; sm_90
 * measured. */
enum {
    HALVES = 1 << FDPA_BF16 | 1 << FDPA_F16,
    F16 = 1 << FDPA_F16,
    TF32 = 1 << FDPA_TF32,
    FP8 = 1 << FDPA_E4M3 | 1 << FDPA_E5M2,
};

static const FdpaClass CLASSES[] = {
    {"sm_70", F16, 4, 23, -133, 24},      {"sm_75", F16, 8, 24, -132, 24},
    {"sm_80", HALVES, 8, 24, -132, 24},   {"sm_80", TF32, 4, 24, -132, 24},
    {"sm_86", HALVES, 8, 24, -132, 24},   {"sm_86", TF32, 4, 24, -132, 24},
    {"sm_89", HALVES, 8, 24, -132, 24},   {"sm_89", TF32, 4, 24, -132, 24},
    {"sm_89", FP8, 16, 13, -133, 14},     {"sm_90", HALVES, 16, 25, -133, 24},
    {"sm_90", TF32, 8, 25, -133, 24},     {"sm_90", FP8, 32, 13, -133, 14},
    {"sm_100", HALVES, 16, 25, -133, 24}, {"sm_100", TF32, 8, 25, -133, 24},
    {"sm_100", FP8, 32, 25, -133, 24},
};

/* How a type's bits divide; `shift` drops the bits that the tensor core does not read. */
typedef struct Format {
    size_t size;
    int shift, exp_bits, frac_bits;
} Format;

static const Format FORMATS[] = {
    [FDPA_BF16] = {2, 0, 8, 7}, [FDPA_F16] = {2, 0, 5, 10}, [FDPA_TF32] = {4, 13, 8, 10},
    [FDPA_E4M3] = {1, 0, 4, 3}, [FDPA_E5M2] = {1, 0, 5, 2},
};

const FdpaClass *fdpa_class(const char *arch, FdpaType type)
{
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (CLASSES[i].types >> type & 1 && strcmp(CLASSES[i].name, arch) == 0)
            return &CLASSES[i];
    return NULL;
}

const FdpaClass *fdpa_classes(size_t *count)
{
    *count = sizeof CLASSES / sizeof *CLASSES;
    return CLASSES;
}

bool fdpa_same(const FdpaClass *a, const FdpaClass *b)
{
    return a->group == b->group && a->bits == b->bits && a->floor == b->floor &&
           a->out_bits == b->out_bits;
}

int fdpa_text(const FdpaClass *cls, char *buf, size_t size)
{
    return snprintf(buf, size, "fdpa group %d bits %d floor %d out %d", cls->group, cls->bits,
                    cls->floor, cls->out_bits);
}

size_t fdpa_padded(const FdpaClass *cls, size_t k)
{
    size_t group = (size_t)cls->group;
    return (k + group - 1) / group * group;
}

/* Inlined with a constant type, so that loops over elements keep no trace of the table. */
#define FOR_ONE_TYPE static inline __attribute__((always_inline))

/* e4m3 has one NaN (all ones) and no Inf; the other formats keep the top exponent for both. */
FOR_ONE_TYPE int special_exp(FdpaType type, uint32_t exp, uint32_t frac)
{
    const Format *f = &FORMATS[type];
    if (exp != (1u << f->exp_bits) - 1)
        return 0;
    if (type == FDPA_E4M3)
        return frac == 7 ? FDPA_EXP_NAN : 0;
    return frac ? FDPA_EXP_NAN : FDPA_EXP_INF;
}

FOR_ONE_TYPE FdpaElem elem_of(FdpaType type, uint32_t bits)
{
    const Format *f = &FORMATS[type];
    uint32_t u = bits >> f->shift, frac = u & ((1u << f->frac_bits) - 1);
    uint32_t exp = (u >> f->frac_bits) & ((1u << f->exp_bits) - 1);
    bool minus = (u >> (f->frac_bits + f->exp_bits)) & 1;
    int special = special_exp(type, exp, frac), bias = (1 << (f->exp_bits - 1)) - 1;
    int sig = (int)(frac | (exp ? 1u << f->frac_bits : 0u)) << (13 - f->frac_bits);
    FdpaElem e = {(int16_t)(minus ? -sig : sig), (int16_t)((exp ? (int)exp : 1) - bias)};
    if (special)
        e.exp = (int16_t)special;
    else if (sig == 0)
        e.exp = FDPA_EXP_ZERO;
    return e;
}

FdpaElem fdpa_elem(FdpaType type, uint32_t bits) { return elem_of(type, bits); }

FOR_ONE_TYPE uint32_t load_bits(const unsigned char *p, size_t size)
{
    uint16_t half;
    uint32_t word;
    if (size == 1)
        return *p;
    if (size == 2) {
        memcpy(&half, p, sizeof half);
        return half;
    }
    memcpy(&word, p, sizeof word);
    return word;
}

static float float_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The accumulator's value is sig / 2^23 x 2^exp. */
typedef struct Acc {
    int32_t sig;
    int exp;
} Acc;

static Acc acc_of_float(float c)
{
    uint32_t u, exp;
    memcpy(&u, &c, sizeof u);
    exp = (u >> 23) & 255;
    Acc acc = {(int32_t)(u & 0x7FFFFF), (exp ? (int)exp : 1) - 127};
    if (exp == 255)
        acc.exp = acc.sig ? FDPA_EXP_NAN : FDPA_EXP_INF;
    else if (exp == 0 && acc.sig == 0)
        acc.exp = FDPA_EXP_ZERO;
    if (exp)
        acc.sig |= 0x800000;
    if (u >> 31)
        acc.sig = -acc.sig;
    return acc;
}

/* Rule 1. Returns whether it decides the step's result. */
static bool special_result(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, Acc c,
                           float *out)
{
    bool nan = c.exp == FDPA_EXP_NAN;
    bool plus = c.exp == FDPA_EXP_INF && c.sig > 0, minus = c.exp == FDPA_EXP_INF && c.sig < 0;
    for (int i = 0; i < cls->group; i++) {
        bool inf = a[i].exp == FDPA_EXP_INF || b[i].exp == FDPA_EXP_INF;
        nan |= a[i].exp == FDPA_EXP_NAN || b[i].exp == FDPA_EXP_NAN;
        nan |= inf && (a[i].sig == 0 || b[i].sig == 0);
        plus |= inf && (a[i].sig < 0) == (b[i].sig < 0);
        minus |= inf && (a[i].sig < 0) != (b[i].sig < 0);
    }
    if (nan || (plus && minus))
        *out = float_of_bits(0x7FFFFFFF);
    else
        *out = float_of_bits(minus ? 0xFF800000 : 0x7F800000);
    return nan || plus || minus;
}

static int max_int(int a, int b) { return a > b ? a : b; }

/* sig x 2^(exp - frac) chopped toward zero to a multiple of 2^unit, counted in those units. */
static int64_t chop(int64_t sig, int exp, int frac, int unit)
{
    int shift = exp - frac - unit;
    int64_t mag = sig < 0 ? -sig : sig;
    if (shift >= 0)
        mag <<= shift;
    else
        mag = shift > -63 ? mag >> -shift : 0;
    return sig < 0 ? -mag : mag;
}

/* Rule 5: sum x 2^unit as f32. */
static float pack(const FdpaClass *cls, int64_t sum, int unit)
{
    int64_t mag = sum < 0 ? -sum : sum;
    int top = 0, drop;
    if (mag == 0)
        return 0.0f;
    while (mag >> (top + 1))
        top++;
    if (top + unit >= 128)
        return float_of_bits(sum < 0 ? 0xFF800000 : 0x7F800000);
    drop = max_int(0, max_int(top + 1 - cls->out_bits, -149 - unit));
    mag >>= drop > 63 ? 63 : drop;
    if (mag == 0)
        return 0.0f;
    return (float)ldexp((double)(sum < 0 ? -mag : mag), unit + drop);
}

float fdpa_step(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, float c)
{
    Acc acc = acc_of_float(c);
    float special;
    int top = cls->floor, unit;
    int64_t sum;
    if (special_result(cls, a, b, acc, &special))
        return special;
    for (int i = 0; i < cls->group; i++)
        if (a[i].sig != 0 && b[i].sig != 0)
            top = max_int(top, a[i].exp + b[i].exp);
    if (acc.sig != 0)
        top = max_int(top, acc.exp);
    unit = top - cls->bits;
    sum = chop(acc.sig, acc.exp, 23, unit);
    for (int i = 0; i < cls->group; i++)
        sum += chop((int64_t)a[i].sig * b[i].sig, a[i].exp + b[i].exp, 26, unit);
    return pack(cls, sum, unit);
}

FOR_ONE_TYPE void decode_run(FdpaType type, const unsigned char *p, ptrdiff_t bytes, size_t k,
                             FdpaElem *dst, size_t step)
{
    for (size_t i = 0; i < k; i++, p += bytes)
        dst[i * step] = elem_of(type, load_bits(p, FORMATS[type].size));
}

/* Where a row lies: `stride` elements apart in memory, `step` apart decoded, kp long with padding.
 */
typedef struct Row {
    FdpaType type;
    ptrdiff_t stride;
    size_t kp, step;
} Row;

/* Elements k0 to k of a row, and zeros from there. */
static void decode_into(const Row *r, const unsigned char *src, size_t k0, size_t k, FdpaElem *dst)
{
    ptrdiff_t bytes = r->stride * (ptrdiff_t)FORMATS[r->type].size;
    size_t step = r->step;
    src += (ptrdiff_t)k0 * bytes;
    if (r->type == FDPA_BF16)
        decode_run(FDPA_BF16, src, bytes, k - k0, dst + k0 * step, step);
    else if (r->type == FDPA_F16)
        decode_run(FDPA_F16, src, bytes, k - k0, dst + k0 * step, step);
    else
        decode_run(r->type, src, bytes, k - k0, dst + k0 * step, step);
    for (size_t i = k; i < r->kp; i++)
        dst[i * step] = (FdpaElem){0, FDPA_EXP_ZERO};
}

void fdpa_decode(const FdpaClass *cls, FdpaType type, const void *src, ptrdiff_t stride, size_t k,
                 FdpaElem *row)
{
    size_t k0 = stride == 1 ? fdpa_row_avx2(type, src, k, row) : 0;
    Row r = {type, stride, fdpa_padded(cls, k), 1};
    decode_into(&r, src, k0, k, row);
}

size_t fdpa_panels_size(const FdpaClass *cls, size_t n, size_t k)
{
    return (n + FDPA_PANEL - 1) / FDPA_PANEL * FDPA_PANEL * fdpa_padded(cls, k);
}

void fdpa_decode_panels(const FdpaClass *cls, FdpaType type, const void *src, ptrdiff_t ld,
                        ptrdiff_t stride, size_t n, size_t k, FdpaElem *panels)
{
    Row r = {type, stride, fdpa_padded(cls, k), FDPA_PANEL};
    ptrdiff_t bytes = ld * (ptrdiff_t)FORMATS[type].size;
    const unsigned char *row = src;
    for (size_t j0 = 0; j0 < n; j0 += FDPA_PANEL, panels += r.kp * FDPA_PANEL) {
        bool whole = n - j0 >= FDPA_PANEL;
        size_t k0 = whole ? fdpa_panel_avx2(type, row, ld, stride, k, panels) : 0;
        for (size_t j = 0; j < FDPA_PANEL; j++)
            if (j0 + j < n)
                decode_into(&r, row + (ptrdiff_t)j * bytes, k0, k, panels + j);
            else
                decode_into(&r, src, 0, 0, panels + j);
        row += FDPA_PANEL * bytes;
    }
}

/* fdpa_step without its rare cases; the elements of b are `step` apart. An exponent above 118 may
 * mean a special operand or a result near overflow, and goes to the definition. */
static float step_fast(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, size_t step,
                       float c)
{
    Acc acc = acc_of_float(c);
    int top = max_int(cls->floor, acc.exp), unit;
    int64_t sum;
    for (int i = 0; i < cls->group; i++)
        top = max_int(top, a[i].exp + b[(size_t)i * step].exp);
    if (top > 118) {
        FdpaElem col[MAX_GROUP];
        for (int i = 0; i < cls->group; i++)
            col[i] = b[(size_t)i * step];
        return fdpa_step(cls, a, col, c);
    }
    unit = top - cls->bits;
    sum = chop(acc.sig, acc.exp, 23, unit);
    for (int i = 0; i < cls->group; i++) {
        const FdpaElem e = b[(size_t)i * step];
        int32_t p = a[i].sig * e.sig, mag = p < 0 ? -p : p;
        int down = top - a[i].exp - e.exp + 26 - cls->bits;
        mag = down < 31 ? mag >> down : 0;
        sum += p < 0 ? -mag : mag;
    }
    return pack(cls, sum, unit);
}

float fdpa_chain(const FdpaClass *cls, const FdpaElem *a, const FdpaElem *b, size_t k, float c)
{
    size_t group = (size_t)cls->group;
    for (size_t i = 0; i < k; i += group)
        c = step_fast(cls, a + i, b + i, 1, c);
    return c;
}

void fdpa_tile_scalar(const FdpaClass *cls, const FdpaTile *t)
{
    size_t group = (size_t)cls->group;
    for (size_t i = 0; i < t->m; i++)
        for (size_t j = 0; j < t->n; j++) {
            const FdpaElem *a = t->a + i * t->kp;
            const FdpaElem *b = t->b + j / FDPA_PANEL * t->kp * FDPA_PANEL + j % FDPA_PANEL;
            float *out = t->out + i * t->ld + j, c = t->accumulate ? *out : 0.0f;
            for (size_t k = t->k0; k < t->k1; k += group)
                c = step_fast(cls, a + k, b + k * FDPA_PANEL, FDPA_PANEL, c);
            *out = c;
        }
}

void fdpa_tile(const FdpaClass *cls, const FdpaTile *t)
{
    if (!fdpa_tile_avx2(cls, t))
        fdpa_tile_scalar(cls, t);
}
