/* Numbers: f32 by the C compiler's IEEE operations, everything else in integers. */
#include "planeval.h"

#include <math.h>
#include <string.h>

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh" /* the scalar functions: their text is their definition */

static uint32_t word(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float real(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float clean(float x)
{
    return isnan(x) ? real(0x7FFFFFFF) : x;
}

/* ---- formats --------------------------------------------------------------------------------- */

/* Fraction bits and least exponent of the 16-bit formats. */
static int fraction_of(Type t)
{
    return t == BF16 ? 7 : 10;
}

static int least_of(Type t)
{
    return t == BF16 ? -126 : -14;
}

static int special_of(Type t)
{
    return t == BF16 ? 255 : 31;
}

/* Significand and exponent of a finite pattern: value = sig * 2^(exp - fraction). */
static void take_apart(Type t, uint32_t bits, int *sig, int *exp)
{
    int f = fraction_of(t), e = (int)(bits & 0x7FFF) >> f, m = (int)bits & ((1 << f) - 1);
    *sig = e ? m | 1 << f : m;
    *exp = e ? e - 1 + least_of(t) : least_of(t);
}

float as_f32(Type t, uint32_t bits)
{
    int sig, exp, f = fraction_of(t);
    if (t == F32)
        return real(bits);
    if (t == BF16)
        return real(bits << 16);
    if ((int)(bits & 0x7FFF) >> f == special_of(t))
        return bits & 0x3FF ? real(0x7FFFFFFF) : bits & 0x8000 ? -INFINITY : INFINITY;
    take_apart(t, bits, &sig, &exp);
    float x = ldexpf((float)sig, exp - f);
    return bits & 0x8000 ? -x : x;
}

/* |x| in units of the format's last place at its size, to nearest even. */
uint32_t as_bits(Type t, float x)
{
    uint32_t sign = word(x) >> 31 << 15;
    int exp, f = fraction_of(t);
    if (t == F32)
        return word(x);
    if (isnan(x))
        return 0x7FFF;
    if (isinf(x))
        return sign | (uint32_t)special_of(t) << f;
    if (x == 0)
        return sign;
    double a = fabs((double)x);
    frexp(a, &exp);
    exp = exp - 1 < least_of(t) ? least_of(t) : exp - 1;
    int64_t units = (int64_t)nearbyint(ldexp(a, f - exp)); /* scaling is exact, rounding to even */
    int64_t bits = units + ((int64_t)(exp - least_of(t)) << f);
    int64_t top = (int64_t)special_of(t) << f;
    return sign | (uint32_t)(bits > top ? top : bits);
}

float rounded(Type t, float x)
{
    return t == F32 ? x : as_f32(t, as_bits(t, x));
}

/* ---- operations ------------------------------------------------------------------------------ */

float add(float a, float b)
{
    return clean(a + b);
}

float mul(float a, float b)
{
    return clean(a * b);
}

float fma_once(float a, float b, float c)
{
    return clean(fmaf(a, b, c));
}

float binary(const char *kind, float a, float b)
{
    if (!strcmp(kind, "add"))
        return add(a, b);
    if (!strcmp(kind, "sub"))
        return clean(a - b);
    if (!strcmp(kind, "mul"))
        return mul(a, b);
    if (!strcmp(kind, "div"))
        return clean(a / b);
    die("no operation is called %s", kind);
}

/* NaN if either is; of two zeros the positive one. */
float greater(float a, float b)
{
    if (isnan(a) || isnan(b))
        return real(0x7FFFFFFF);
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static float smaller(float a, float b)
{
    return clean(-greater(-a, -b));
}

static float root(float a)
{
    return clean(sqrtf(a));
}

bool function(const char *name, float a, float b, float *out)
{
    static const struct {
        const char *name;
        float (*of)(float);
    } one[] = {{"sqrt", root},           {"exp2", iso_exp2},       {"exp2.d3", iso_exp2_d3},
               {"exp2.d6", iso_exp2_d6}, {"exp", iso_exp},         {"log2", iso_log2},
               {"log", iso_log},         {"sigmoid", iso_sigmoid}, {"silu", iso_silu},
               {"tanh", iso_tanh},       {"gelu", iso_gelu},       {"gelu_tanh", iso_gelu_tanh},
               {"softplus", iso_softplus}, {"ex2", iso_ex2}};
    if (!strcmp(name, "minimum") || !strcmp(name, "maximum")) {
        *out = name[1] == 'i' ? smaller(a, b) : greater(a, b);
        return true;
    }
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (!strcmp(name, one[i].name)) {
            *out = one[i].of(a);
            return true;
        }
    return false;
}

/* ---- the tensor-core step -------------------------------------------------------------------- */

typedef __int128 Wide;

typedef struct Term { /* sign * sig * 2^(exp - scale), exp as the class counts exponents */
    int sign, exp, scale;
    int64_t sig;
} Term;

typedef struct Kinds {
    bool nan, plus_inf, minus_inf;
} Kinds;

static bool is_nan16(Type t, uint32_t bits)
{
    return (int)(bits & 0x7FFF) > special_of(t) << fraction_of(t);
}

static bool is_inf16(Type t, uint32_t bits)
{
    return (int)(bits & 0x7FFF) == special_of(t) << fraction_of(t);
}

/* False: a special, or nothing. */
static bool product_of(Type t, uint32_t a, uint32_t b, Term *term, Kinds *kinds)
{
    int sig_a, sig_b, exp_a, exp_b;
    bool zero = !(a & 0x7FFF) || !(b & 0x7FFF), minus = (a ^ b) & 0x8000;
    bool inf = is_inf16(t, a) || is_inf16(t, b);
    kinds->nan |= is_nan16(t, a) || is_nan16(t, b) || (inf && zero);
    kinds->plus_inf |= inf && !minus;
    kinds->minus_inf |= inf && minus;
    if (zero || inf || kinds->nan)
        return false;
    take_apart(t, a, &sig_a, &exp_a);
    take_apart(t, b, &sig_b, &exp_b);
    *term = (Term){minus ? -1 : 1, exp_a + exp_b, 2 * fraction_of(t), (int64_t)sig_a * sig_b};
    return true;
}

static bool accumulator_of(float c, Term *term, Kinds *kinds)
{
    uint32_t u = word(c), e = u >> 23 & 0xFF, m = u & 0x7FFFFF;
    bool minus = u >> 31;
    kinds->nan |= e == 0xFF && m;
    kinds->plus_inf |= e == 0xFF && !m && !minus;
    kinds->minus_inf |= e == 0xFF && !m && minus;
    if (e == 0xFF || !(u << 1))
        return false;
    *term = (Term){minus ? -1 : 1, e ? (int)e - 127 : -126, 23, e ? m | 1 << 23 : m};
    return true;
}

/* |sum| * 2^unit to f32, toward zero. */
static float chopped(const StepClass *cls, Wide sum, int unit)
{
    bool minus = sum < 0;
    Wide a = minus ? -sum : sum;
    if (!a)
        return 0;
    while (a >> cls->out_bits || unit < -149) {
        a >>= 1;
        unit++;
    }
    double x = ldexp((double)(int64_t)a, unit);
    if (x >= 0x1p128)
        x = INFINITY;
    return (float)(minus && a ? -x : x);
}

float step(const StepClass *cls, Type type, const uint32_t *a, const uint32_t *b, float c)
{
    Term term[65];
    Kinds kinds = {false, false, false};
    int n = 0, top = cls->floor;
    for (int i = 0; i < cls->group; i++)
        n += product_of(type, a[i], b[i], &term[n], &kinds);
    n += accumulator_of(c, &term[n], &kinds);
    if (kinds.nan || (kinds.plus_inf && kinds.minus_inf))
        return real(0x7FFFFFFF);
    if (kinds.plus_inf || kinds.minus_inf)
        return kinds.plus_inf ? INFINITY : -INFINITY;
    for (int i = 0; i < n; i++)
        top = term[i].exp > top ? term[i].exp : top;
    Wide sum = 0;
    for (int i = 0; i < n; i++) {
        int up = term[i].exp - term[i].scale - (top - cls->bits);
        Wide sig = term[i].sig;
        sig = up >= 0 ? sig << up : up > -100 ? sig >> -up : 0;
        sum += term[i].sign * sig;
    }
    return chopped(cls, sum, top - cls->bits);
}
