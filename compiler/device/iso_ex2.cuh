// ex2, the exponential of 2 that sm_90 has an instruction for, with one set of bits on host and
// device. Owns nothing: straight-line code over iso_num.cuh's types. The text is part of the
// fingerprint of contracts that use it.
//
// The instruction chops |x| to a multiple of 2^-23, complements all bits of a negative one that is
// no whole number, and takes its whole part for the exponent. Six bits of the rest choose a row of
// the table, the other 17 are l: the significand is c0 + c1 l + c2 s, chopped, where s is l^2
// without the partial products below 2^-15. All of that was found from what an H200 returned, and
// holds for every f32 (tests/vectors/README.md).
#ifndef ISO_EX2_CUH
#define ISO_EX2_CUH

#include "iso_num.cuh"

#if ISO_ON_DEVICE

ISO_FN IsoF32 iso_ex2(IsoF32 x)
{
    IsoF32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

// c0 in 2^-25, c1 in 2^-21 and c2 in 2^-23 of what l as a fraction of 2^17 is multiplied by.
static const struct {
    IsoU32 c0;
    IsoU16 c1, c2;
} iso_ex2_rows[64] = {
    {33554435, 22713, 494}, {33919818, 22960, 501}, {34289182, 23210, 506}, {34662565, 23463, 511},
    {35040018, 23718, 518}, {35421577, 23977, 521}, {35807292, 24238, 527}, {36197209, 24502, 532},
    {36591372, 24768, 541}, {36989825, 25038, 546}, {37392616, 25311, 551}, {37799797, 25586, 559},
    {38211409, 25865, 564}, {38627504, 26147, 568}, {39048131, 26431, 577}, {39473337, 26719, 583},
    {39903173, 27010, 589}, {40337690, 27304, 596}, {40776937, 27602, 600}, {41220970, 27902, 609},
    {41669836, 28206, 615}, {42123592, 28513, 622}, {42582286, 28824, 627}, {43045977, 29138, 633},
    {43514717, 29455, 641}, {43988561, 29776, 647}, {44467565, 30100, 655}, {44951786, 30428, 661},
    {45441278, 30759, 670}, {45936101, 31094, 677}, {46436314, 31432, 686}, {46941971, 31775, 691},
    {47453135, 32121, 699}, {47969867, 32471, 705}, {48492225, 32824, 715}, {49020269, 33182, 721},
    {49554065, 33543, 730}, {50093674, 33908, 739}, {50639159, 34277, 748}, {51190582, 34651, 753},
    {51748011, 35028, 763}, {52311510, 35409, 773}, {52881146, 35795, 779}, {53456983, 36185, 787},
    {54039091, 36579, 796}, {54627538, 36977, 806}, {55222393, 37380, 813}, {55823725, 37787, 822},
    {56431607, 38198, 833}, {57046106, 38614, 842}, {57667297, 39035, 849}, {58295254, 39460, 858},
    {58930048, 39889, 870}, {59571754, 40324, 877}, {60220447, 40763, 887}, {60876205, 41207, 896},
    {61539104, 41655, 909}, {62209220, 42109, 917}, {62886634, 42568, 925}, {63571424, 43031, 938},
    {64263672, 43500, 946}, {64963458, 43973, 959}, {65670863, 44452, 969}, {66385972, 44936, 980},
};

// Bit i of l below the point with those after it, to the weight 2^-15: rows of the triangle.
ISO_FN IsoU32 iso_ex2_square(IsoU32 l)
{
    IsoU32 s = 0;
    for (int i = 1; i < 8; ++i)
        if (l >> (17 - i) & 1)
            s += ((l & ((1u << (17 - i)) - 1)) >> (i + 1)) + (1u << (15 - 2 * i));
    return s;
}

// Of the fraction of 23 bits, in units of 2^-23; 6114 of 2^-38 is the instruction's own rounding.
ISO_FN IsoU32 iso_ex2_significand(IsoU32 fraction)
{
    IsoU32 l = fraction & 0x1FFFFu, row = fraction >> 17;
    unsigned long long sum = ((unsigned long long)iso_ex2_rows[row].c0 << 13) + 6114u;
    sum += (unsigned long long)iso_ex2_rows[row].c1 * l;
    sum += (unsigned long long)iso_ex2_rows[row].c2 * iso_ex2_square(l);
    return (IsoU32)(sum >> 15);
}

ISO_FN IsoF32 iso_ex2(IsoF32 x)
{
    if (x != x)
        return iso_bits_f32(ISO_NAN_BITS);
    if (x >= 128.0f)
        return iso_bits_f32(0x7F800000u);
    if (x < -126.0f)
        return 0.0f;
    IsoU32 n = (IsoU32)((x < 0.0f ? -x : x) * 0x1p23f);
    if (x < 0.0f)
        n = n & 0x7FFFFFu ? ~n : 0u - n;
    IsoU32 exponent = ((n >> 23) + 127u) & 0xFFu;
    return iso_bits_f32((exponent << 23) + iso_ex2_significand(n & 0x7FFFFFu) - 0x800000u);
}

#endif

// With rounded maxima: `by` times u is an exponent, m the maximum.
ISO_FN IsoF32 iso_ex2_weight(IsoF32 u, IsoF32 by, IsoF32 m)
{
    return iso_ex2(iso_fma(u, by, iso_sub(0.0f, m)));
}

#endif
