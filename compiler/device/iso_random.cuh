// Random numbers of `draw`: Philox4x32-10 by counter and key, and the Gumbel noise of a word, with
// one set of bits on host and device.
// Owns nothing: values only, in the common subset of C11 and CUDA C++.
#ifndef ISO_RANDOM_CUH
#define ISO_RANDOM_CUH

#include "iso_fn.cuh"

typedef struct IsoWords {
    IsoU32 w[4];
} IsoWords;

// Ten rounds of Philox on four words (Salmon et al., Parallel random numbers: as easy as 1, 2, 3).
ISO_FN IsoWords iso_philox(IsoWords c, IsoU32 key0, IsoU32 key1)
{
#if ISO_ON_DEVICE
#pragma unroll
#endif
    for (int round = 0; round < 10; ++round) {
        const unsigned long long p = 0xD2511F53ull * c.w[0], q = 0xCD9E8D57ull * c.w[2];
        IsoWords n;
        n.w[0] = (IsoU32)(q >> 32) ^ c.w[1] ^ key0;
        n.w[1] = (IsoU32)q;
        n.w[2] = (IsoU32)(p >> 32) ^ c.w[3] ^ key1;
        n.w[3] = (IsoU32)p;
        c = n;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

// The four words of indices 4 * quarter to 4 * quarter + 3.
ISO_FN IsoWords iso_draw_words(IsoU32 seed, IsoU32 stream, IsoU32 position, IsoU32 quarter)
{
    IsoWords counter;
    counter.w[0] = quarter;
    counter.w[1] = position;
    counter.w[2] = 0;
    counter.w[3] = 0;
    return iso_philox(counter, seed, stream);
}

// -log(-log(1 - v)) of a v in (0, 1) that the word's odd neighbour makes: fine where v is small,
// where the noise is great.
ISO_FN IsoF32 iso_gumbel(IsoU32 word)
{
    const IsoF32 v = iso_min(iso_mul((IsoF32)(word | 1u), 0x1p-32f), 0x1.fffffep-1f);
    const IsoF32 small = iso_log1p_near_zero(iso_neg(v)), large = iso_log(iso_sub(1.0f, v));
    return iso_neg(iso_log(iso_neg(v < 0.25f ? small : large)));
}

ISO_FN IsoU32 iso_is_zero(IsoF32 x) { return iso_f32_bits(x) << 1 == 0; }

#define ISO_RANK_NAN 0xFFFFFFFFu
#define ISO_RANK_NEGATIVE_INFINITY 0x007FFFFFu

// How scores are ordered: as unsigned numbers, -0 and +0 alike, NaN above all.
ISO_FN IsoU32 iso_score_rank(IsoF32 z)
{
    const IsoU32 all = iso_f32_bits(z), bits = all == ISO_SIGN_BIT ? 0 : all;
    const IsoU32 rank = bits & ISO_SIGN_BIT ? ~bits : bits | ISO_SIGN_BIT;
    return (all & 0x7FFFFFFFu) > 0x7F800000u ? ISO_RANK_NAN : rank;
}

// A weight as the integer that top_p sums.
ISO_FN unsigned long long iso_draw_mass(IsoF32 weight)
{
    return (unsigned long long)iso_mul(weight, 0x1p40f);
}

// floor(total * floor(share * 2^24) / 2^24) for a share below 1; one below 0 is none.
ISO_FN unsigned long long iso_draw_share(unsigned long long total, IsoF32 share)
{
    const unsigned long long c = (unsigned long long)iso_mul(iso_max(share, 0.0f), 0x1p24f);
    return (total >> 24) * c + ((total & 0xFFFFFFu) * c >> 24);
}

#endif
