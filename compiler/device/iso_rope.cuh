// Tables of rotary embedding: cos and sin of every position, with one set of bits on host and
// device. Owns nothing: straight-line code over f32 and f64 additions, products, quotients and
// selects, in the common subset of C11 and CUDA C++; no library function. The text is part of the
// fingerprint of every contract whose model has a table of it. Compile with contraction off.
//
// Column i turns by its frequency for each position. Frequencies are f32, computed step by step as
// Hugging Face's transformers computes them; the angle is the f32 product of position and
// frequency; its cosine and sine are rounded to f32 once and multiplied by the attention factor, in
// f32. Powers and logarithms, which libraries round in ways of their own, are correctly rounded
// here, but for about one argument in 10^7.
#ifndef ISO_ROPE_CUH
#define ISO_ROPE_CUH

#include "iso_num.cuh"

typedef unsigned long long IsoU64;

typedef enum IsoRopeScaling {
    ISO_ROPE_DEFAULT,
    ISO_ROPE_LINEAR,
    ISO_ROPE_LLAMA3,
    ISO_ROPE_YARN,
} IsoRopeScaling;

typedef struct IsoRope {
    int dim; // elements that turn, twice the columns
    IsoRopeScaling scaling;
    double theta;
    double factor;               // all but the default
    double low, high;            // llama3: factors of low and of high frequencies
    double original;             // llama3, yarn: positions that the model was first trained for
    double beta_fast, beta_slow; // yarn: turns over those positions
    double attention_factor;     // yarn: multiplies cos and sin; 0: 0.1 ln(factor) + 1
    int truncate;                // yarn: the ramp's ends are whole columns
} IsoRope;

#define ISO_PI2 0x1.921fb54442d18p+2 // 2 pi

// ---- f64 ---------------------------------------------------------------------------------------

#if ISO_ON_DEVICE
ISO_FN IsoU64 iso_f64_bits(double x) { return (IsoU64)__double_as_longlong(x); }
ISO_FN double iso_bits_f64(IsoU64 u) { return __longlong_as_double((long long)u); }
#else
ISO_FN IsoU64 iso_f64_bits(double x)
{
    IsoU64 u;
    memcpy(&u, &x, sizeof u);
    return u;
}

ISO_FN double iso_bits_f64(IsoU64 u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}
#endif

// To the nearest integer, |x| < 2^51: the addend leaves no room for a fraction.
ISO_FN double iso_whole(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

ISO_FN double iso_floor(double x)
{
    double n = iso_whole(x);
    return n > x ? n - 1.0 : n;
}

// Of a positive normal number: x = m 2^e with m around 1, ln m = 2 artanh((m - 1) / (m + 1)).
ISO_FN double iso_ln(double x)
{
    IsoU64 u = iso_f64_bits(x) - 0x3FE6A09E667F3BCDull; // sqrt(1/2)
    double e = (double)((long long)u >> 52);
    double m = iso_bits_f64((u & 0xFFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull);
    double s = (m - 1.0) / (m + 1.0), q = s * s, p = 0.0;
    for (int k = 25; k >= 3; k -= 2)
        p = (p + 1.0 / k) * q;
    return e * 0x1.62e42feep-1 + (2.0 * s + (2.0 * s * p + e * 0x1.a39ef35793c76p-33));
}

// |x| < 700.
ISO_FN double iso_e_to(double x)
{
    double n = iso_whole(x * 0x1.71547652b82fep+0);
    double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33, p = 1.0;
    for (int k = 16; k >= 1; k--)
        p = p * (r / k) + 1.0;
    return p * iso_bits_f64((IsoU64)(1023 + (long long)n) << 52);
}

// Of an angle in [0, 2^24): pi/2 in three parts, of which the first two times n are exact.
ISO_FN void iso_turn(double x, double *cos, double *sin)
{
    double n = iso_whole(x * 0x1.45f306dc9c883p-1);
    double r = ((x - n * 0x1.921fb54p+0) - n * 0x1.10b461p-30) - n * 0x1.a62633145c06ep-58;
    double q = r * r, c = 1.0, s = 1.0;
    for (int k = 18; k >= 2; k -= 2) {
        c = 1.0 - c * (q / ((k - 1) * k));
        s = 1.0 - s * (q / (k * (k + 1)));
    }
    s = s * r;
    int quarter = (int)((long long)n & 3);
    *cos = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
    *sin = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
}

// ---- frequencies -------------------------------------------------------------------------------

// theta^(2i / dim)
ISO_FN IsoF32 iso_rope_power(const IsoRope *rope, int i)
{
    IsoF32 exponent = iso_div((IsoF32)(2 * i), (IsoF32)rope->dim);
    return (IsoF32)iso_e_to((double)exponent * iso_ln(rope->theta));
}

// Wavelengths below original / high stay, above original / low they grow by the factor, between
// these they blend.
ISO_FN IsoF32 iso_rope_llama3(const IsoRope *rope, IsoF32 frequency)
{
    IsoF32 wave = iso_mul(iso_div(1.0f, frequency), (IsoF32)ISO_PI2);
    IsoF32 turns = iso_mul(iso_div(1.0f, wave), (IsoF32)rope->original);
    IsoF32 blend = iso_div(iso_sub(turns, (IsoF32)rope->low), (IsoF32)(rope->high - rope->low));
    IsoF32 slow = iso_div(frequency, (IsoF32)rope->factor);
    IsoF32 mixed = iso_add(iso_div(iso_mul(iso_sub(1.0f, blend), frequency), (IsoF32)rope->factor),
                           iso_mul(blend, frequency));
    if (wave > (IsoF32)(rope->original / rope->low))
        return slow;
    return wave < (IsoF32)(rope->original / rope->high) ? frequency : mixed;
}

// The column that turns so many times over the original positions.
ISO_FN double iso_rope_column(const IsoRope *rope, double turns)
{
    double positions = rope->original / (turns * 2.0 * (ISO_PI2 / 2.0));
    return (rope->dim * iso_ln(positions)) / (2.0 * iso_ln(rope->theta));
}

// Columns before the ramp stay, those after it slow down by the factor.
ISO_FN IsoF32 iso_rope_yarn(const IsoRope *rope, int i, IsoF32 power)
{
    double low = iso_rope_column(rope, rope->beta_fast);
    double high = iso_rope_column(rope, rope->beta_slow);
    if (rope->truncate) {
        low = iso_floor(low);
        high = -iso_floor(-high);
    }
    low = low < 0.0 ? 0.0 : low;
    high = high > rope->dim - 1 ? rope->dim - 1 : high;
    high = high == low ? high + 0.001 : high;
    IsoF32 ramp = iso_div(iso_sub((IsoF32)i, (IsoF32)low), (IsoF32)(high - low));
    ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
    IsoF32 keep = iso_sub(1.0f, ramp), fast = iso_div(1.0f, power);
    IsoF32 slow = iso_div(1.0f, iso_mul((IsoF32)rope->factor, power));
    return iso_add(iso_mul(slow, iso_sub(1.0f, keep)), iso_mul(fast, keep));
}

ISO_FN IsoF32 iso_rope_frequency(const IsoRope *rope, int i)
{
    IsoF32 power = iso_rope_power(rope, i), frequency = iso_div(1.0f, power);
    if (rope->scaling == ISO_ROPE_LINEAR)
        return iso_div(frequency, (IsoF32)rope->factor);
    if (rope->scaling == ISO_ROPE_LLAMA3)
        return iso_rope_llama3(rope, frequency);
    return rope->scaling == ISO_ROPE_YARN ? iso_rope_yarn(rope, i, power) : frequency;
}

ISO_FN IsoF32 iso_rope_attention(const IsoRope *rope)
{
    if (rope->scaling != ISO_ROPE_YARN)
        return 1.0f;
    if (rope->attention_factor != 0.0)
        return (IsoF32)rope->attention_factor;
    return rope->factor <= 1.0 ? 1.0f : (IsoF32)(0.1 * iso_ln(rope->factor) + 1.0);
}

// ---- tables ------------------------------------------------------------------------------------

// One position, below 2^24, of the column with this frequency (iso_rope_frequency); `attention` is
// iso_rope_attention's.
ISO_FN void iso_rope_entry(IsoF32 frequency, IsoF32 attention, int position, IsoF32 *cos,
                           IsoF32 *sin)
{
    double c, s;
    iso_turn((double)iso_mul((IsoF32)position, frequency), &c, &s);
    *cos = iso_mul((IsoF32)c, attention);
    *sin = iso_mul((IsoF32)s, attention);
}

#endif
