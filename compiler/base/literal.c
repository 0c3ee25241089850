/* A literal's value is a quotient of two integers, whose binary digits are drawn one by one. */
#include "literal.h"

/* 2,400 bits hold 10^400 and 300 digits; what is longer is cut and leaves a sticky one behind. */
enum { WORDS = 80, DIGITS = 300, FAR = 400 };

typedef struct Big {
    int n; /* words in use, without leading zeros */
    u32 w[WORDS]; /* least first */
} Big;

static void big_mul_add(Big *a, u32 factor, u32 term)
{
    u64 carry = term;
    for (int i = 0; i < a->n; i++) {
        carry += (u64)a->w[i] * factor;
        a->w[i] = (u32)carry;
        carry >>= 32;
    }
    if (carry)
        a->w[a->n++] = (u32)carry;
}

static int big_compare(const Big *a, const Big *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->w[i] != b->w[i])
            return a->w[i] < b->w[i] ? -1 : 1;
    return 0;
}

/* a >= b */
static void big_subtract(Big *a, const Big *b)
{
    u64 borrow = 0;
    for (int i = 0; i < a->n; i++) {
        u64 d = (u64)a->w[i] - (i < b->n ? b->w[i] : 0) - borrow;
        a->w[i] = (u32)d;
        borrow = d >> 63;
    }
    while (a->n && !a->w[a->n - 1])
        a->n--;
}

/* ---- the text as num / den x 2^shift --------------------------------------------------------- */

typedef struct Quotient {
    Big num, den;
    i64 shift;
    bool sticky; /* digits cut off behind num */
    bool huge;
} Quotient;

typedef struct Scan {
    const char *at, *end;
    int base, digits; /* digits taken, without leading zeros */
    i64 exponent;     /* of the base, from digits after the point or cut off */
    int seen;
} Scan;

static int digit_value(char c, int base)
{
    int v = c >= '0' && c <= '9' ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
    return v < base ? v : -1;
}

static void scan_digits(Scan *scan, Quotient *q, int after_point)
{
    for (; scan->at < scan->end; scan->at++) {
        int v = digit_value(*scan->at, scan->base);
        if (v < 0)
            return;
        scan->seen++;
        if (scan->digits == DIGITS) {
            q->sticky |= v != 0;
            scan->exponent += 1 - after_point;
            continue;
        }
        big_mul_add(&q->num, (u32)scan->base, (u32)v);
        scan->digits += v || scan->digits;
        scan->exponent -= after_point;
    }
}

/* An optional exponent; false for what is not one. The value is held within bounds that are far
 * outside of every type's range. */
static bool scan_exponent(Scan *scan, char mark, i64 *exponent)
{
    enum { BOUND = 1 << 20 };
    *exponent = 0;
    if (scan->at == scan->end)
        return true;
    if ((*scan->at | 32) != mark)
        return false;
    scan->at++;
    bool negative = scan->at < scan->end && *scan->at == '-';
    if (scan->at < scan->end && (*scan->at == '-' || *scan->at == '+'))
        scan->at++;
    if (scan->at == scan->end)
        return false;
    for (; scan->at < scan->end; scan->at++) {
        int v = digit_value(*scan->at, 10);
        if (v < 0)
            return false;
        if (*exponent < BOUND)
            *exponent = *exponent * 10 + v;
    }
    if (negative)
        *exponent = -*exponent;
    return true;
}

static bool scan_literal(Str text, Quotient *q)
{
    Scan scan = {.at = text.s, .end = text.s + text.n, .base = 10};
    i64 exponent;
    if (text.n > 2 && text.s[0] == '0' && (text.s[1] | 32) == 'x') {
        scan.base = 16;
        scan.at += 2;
    }
    scan_digits(&scan, q, 0);
    if (scan.at < scan.end && *scan.at == '.') {
        scan.at++;
        scan_digits(&scan, q, 1);
    }
    if (!scan.seen || !scan_exponent(&scan, scan.base == 16 ? 'p' : 'e', &exponent))
        return false;
    big_mul_add(&q->den, 1, 1);
    if (scan.base == 16) {
        q->shift = 4 * scan.exponent + exponent;
        return true;
    }
    exponent += scan.exponent;
    q->huge = exponent > 60 && q->num.n > 0;
    if (exponent < -FAR) { /* below 10^-100: every type's zero */
        q->sticky |= q->num.n > 0;
        q->num.n = 0;
        return true;
    }
    for (; exponent > 0 && !q->huge; exponent--)
        big_mul_add(&q->num, 10, 0);
    for (; exponent < 0; exponent++)
        big_mul_add(&q->den, 10, 0);
    return true;
}

/* ---- rounding -------------------------------------------------------------------------------- */

typedef struct Format {
    int precision, least; /* significant bits; exponent of the least normal value */
    u64 infinity;
} Format;

static Format format_of(DType type)
{
    switch (type) {
    case DT_BF16: return (Format){8, -126, 0x7F80};
    case DT_F16: return (Format){11, -14, 0x7C00};
    default: return (Format){24, -126, 0x7F800000};
    }
}

/* Scales num / den into [1, 2) and returns the exponent. */
static i64 normalise(Quotient *q)
{
    i64 k = 0;
    while (big_compare(&q->num, &q->den) >= 0) {
        big_mul_add(&q->den, 2, 0);
        k++;
    }
    while (big_compare(&q->num, &q->den) < 0) {
        big_mul_add(&q->num, 2, 0);
        k--;
    }
    return k + q->shift;
}

static int next_bit(Quotient *q)
{
    int bit = big_compare(&q->num, &q->den) >= 0;
    if (bit)
        big_subtract(&q->num, &q->den);
    big_mul_add(&q->num, 2, 0);
    return bit;
}

static bool round_literal(Str text, Format f, u64 *bits, bool *exact)
{
    Quotient q = {.shift = 0};
    *bits = 0;
    *exact = false;
    if (!scan_literal(text, &q))
        return false;
    if (q.huge) {
        *bits = f.infinity;
        return true;
    }
    if (q.num.n == 0) {
        *exact = !q.sticky;
        return true;
    }
    i64 k = normalise(&q);
    if (k > 1100) {
        *bits = f.infinity;
        return true;
    }
    i64 kept = k >= f.least ? f.precision : f.precision - (f.least - k);
    if (kept < 0)
        return true;
    u64 m = 0;
    for (i64 i = 0; i < kept; i++)
        m = m << 1 | (u64)next_bit(&q);
    int half = next_bit(&q);
    bool rest = q.sticky || q.num.n > 0;
    m += half && (rest || (m & 1));
    *bits = k >= f.least ? ((u64)(k - f.least) << (f.precision - 1)) + m : m;
    if (*bits > f.infinity)
        *bits = f.infinity;
    *exact = !half && !rest && *bits < f.infinity;
    return true;
}

bool literal_bits(Str text, DType type, u32 *bits)
{
    bool exact;
    u64 wide;
    bool number = round_literal(text, format_of(type), &wide, &exact);
    *bits = (u32)wide;
    return number;
}

bool literal_exact(Str text, DType type)
{
    u64 bits;
    bool exact;
    return round_literal(text, format_of(type), &bits, &exact) && exact;
}

bool literal_f64(Str text, u64 *bits)
{
    static const Format f64 = {53, -1022, 0x7FF0000000000000};
    bool exact;
    return round_literal(text, f64, bits, &exact);
}
