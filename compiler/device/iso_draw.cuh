// Draws an index of a row by its scores: one CTA a row. What the limits keep is a prefix of the
// scores' order, found by counting digits of their ranks; sums are of integers, so that no order of
// threads shows.
// Owns nothing but the CTA's shared memory.
#ifndef ISO_DRAW_CUH
#define ISO_DRAW_CUH

#include "iso_random.cuh"
#include "iso_row.cuh"

typedef unsigned long long IsoU64;

// What a row brings.
struct IsoDraw {
    unsigned seed, stream, position;
    bool scaled; // by a temperature
    float temperature;
    int top_k;   // below 1: all
    float top_p; // from 1 on: all
    float min_p; // to 0: all
};

enum { ISO_DRAW_DIGIT = 11, ISO_DRAW_BINS = 1 << ISO_DRAW_DIGIT, ISO_WARP = 32 };

struct IsoDrawShared {
    unsigned low[ISO_DRAW_BINS], high[ISO_DRAW_BINS]; // of the masses' sums
    unsigned count[ISO_DRAW_BINS];
    IsoU64 most[ISO_WARP];
    IsoU64 above, total;         // of the found bin: what lies above it; of all bins
    unsigned digit, alone, cuts; // alone: the bin need not be looked into
};

// An index and its score as one number: the greater comes first, of equal scores the lower index.
ISO_FN IsoU64 iso_draw_key(float z, unsigned index, unsigned n)
{
    return (IsoU64)iso_score_rank(z) << 32 | (n - 1 - index);
}

ISO_FN IsoU64 iso_shuffle_xor(IsoU64 v, int by)
{
    const unsigned low = __shfl_xor_sync(0xFFFFFFFFu, (unsigned)v, by);
    const unsigned high = __shfl_xor_sync(0xFFFFFFFFu, (unsigned)(v >> 32), by);
    return (IsoU64)high << 32 | low;
}

ISO_FN IsoU64 iso_shuffle_up(IsoU64 v, int by)
{
    const unsigned low = __shfl_up_sync(0xFFFFFFFFu, (unsigned)v, by);
    const unsigned high = __shfl_up_sync(0xFFFFFFFFu, (unsigned)(v >> 32), by);
    return (IsoU64)high << 32 | low;
}

ISO_FN IsoU64 iso_draw_warp_most(IsoU64 v)
{
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        const IsoU64 other = iso_shuffle_xor(v, by);
        v = other > v ? other : v;
    }
    return v;
}

// The greatest of all threads' values, in every thread.
template <int Threads> ISO_FN IsoU64 iso_draw_most(IsoDrawShared &shared, IsoU64 v)
{
    const unsigned lane = threadIdx.x % ISO_WARP;
    v = iso_draw_warp_most(v);
    __syncthreads();
    if (lane == 0)
        shared.most[threadIdx.x / ISO_WARP] = v;
    __syncthreads();
    return iso_draw_warp_most(lane < Threads / ISO_WARP ? shared.most[lane] : 0);
}

ISO_FN void iso_shared_add(unsigned *to, unsigned v)
{
    asm volatile("red.shared.add.u32 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "r"(v)
                 : "memory");
}

ISO_FN unsigned iso_shared_fetch_add(unsigned *to, unsigned v)
{
    unsigned old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "r"(v)
                 : "memory");
    return old;
}

// By words: shared memory adds 32 bits at a time.
ISO_FN void iso_draw_add_mass(IsoDrawShared &shared, unsigned bin, IsoU64 mass)
{
    const unsigned low = (unsigned)mass, old = iso_shared_fetch_add(&shared.low[bin], low);
    const unsigned high = (unsigned)(mass >> 32) + (old + low < low);
    if (high)
        iso_shared_add(&shared.high[bin], high);
}

template <bool Mass> ISO_FN IsoU64 iso_draw_bin(const IsoDrawShared &shared, int bin)
{
    return Mass ? (IsoU64)shared.high[bin] << 32 | shared.low[bin] : shared.count[bin];
}

// All scores of a row of n, divided by its temperature: chunk(i, k, z) takes k of them from i on.
template <int Threads, int Width, class Body, class Chunk>
ISO_FN void iso_draw_scores(const IsoDraw &draw, unsigned n, bool vector, const Body &body,
                            const Chunk &chunk)
{
    const bool divides = draw.scaled && !iso_is_zero(draw.temperature);
#pragma unroll 1
    for (unsigned i = threadIdx.x * Width; i < n; i += Threads * Width)
        iso_chunk<Width>(i, n, vector, [&](long long at, int k, bool wide) {
            IsoTerms<Width> terms;
            float z[Width];
            body(at, k, wide, terms);
#pragma unroll
            for (int e = 0; e < Width; ++e)
                z[e] = divides ? iso_div(terms.a[e], draw.temperature) : terms.a[e];
            chunk((unsigned)at, k, z);
        });
}

// What is kept so far.
struct IsoDrawKept {
    IsoU64 first, least; // keys
    float most;          // the first's score
    float min_p;
    bool massive;        // only those with a mass
};

ISO_FN bool iso_draw_keeps(const IsoDrawKept &kept, IsoU64 key, float z)
{
    if (key < kept.least)
        return false;
    if (key == kept.first || !(kept.massive || kept.min_p > 0.0f))
        return true;
    const float weight = iso_pair_scale(z, kept.most);
    return (!(kept.min_p > 0.0f) || weight >= kept.min_p) &&
           (!kept.massive || iso_draw_mass(weight) > 0);
}

// Warp 0 finds the bin in which the sum from above reaches `reach`; of a share, `reach` is told by
// the first level's sum.
template <bool Mass>
ISO_FN IsoU64 iso_draw_find(IsoDrawShared &shared, IsoU64 above, IsoU64 reach, bool level0,
                            float share)
{
    enum { EACH = ISO_DRAW_BINS / ISO_WARP };
    const unsigned lane = threadIdx.x;
    const int top = ISO_DRAW_BINS - 1 - (int)lane * EACH;
    IsoU64 own = 0, sum, total;
#pragma unroll 4
    for (int b = top; b > top - EACH; --b)
        own += iso_draw_bin<Mass>(shared, b);
    sum = own;
#pragma unroll
    for (int by = 1; by < ISO_WARP; by *= 2) {
        const IsoU64 before = iso_shuffle_up(sum, by);
        sum += lane >= (unsigned)by ? before : 0;
    }
    total = sum;
    if (lane == 0)
        shared.cuts = 0;
    __syncwarp();
    if (lane == ISO_WARP - 1)
        shared.total = total;
    __syncwarp();
    total = shared.total;
    if (Mass && level0)
        reach = iso_draw_share(total, share);
    IsoU64 at = above + sum - own;
    if (at < reach && at + own >= reach) {
        int b = top;
        IsoU64 in = iso_draw_bin<Mass>(shared, b);
#pragma unroll 1
        while (at + in < reach) {
            at += in;
            --b;
            in = iso_draw_bin<Mass>(shared, b);
        }
        shared.digit = (unsigned)b;
        shared.above = at;
        shared.alone = shared.count[b] == 1 || (!Mass && at + in == reach);
        shared.cuts = 1;
    }
    return reach;
}

// Raises kept.least to the last key before which less than `reach` lies: kept ones are counted, or
// their masses summed, and reach is then that share of their sum. The first is kept in any case.
template <int Threads, int Width, bool Mass, class Body>
ISO_FN void iso_draw_cut(IsoDrawShared &shared, const IsoDraw &draw, unsigned n, bool vector,
                         const Body &body, IsoDrawKept &kept, IsoU64 reach, float share)
{
    kept.massive = Mass;
    const int index_bits = 32 - __clz((int)((n - 1) | 1u));
    IsoU64 prefix = 0, above = 0;
    int top = 64;
#pragma unroll 1
    for (;;) {
        const int rest = top > 32 ? top - 32 : top;
        const int shift = top - (rest < ISO_DRAW_DIGIT ? rest : ISO_DRAW_DIGIT);
        const unsigned digits = (1u << (top - shift)) - 1;
        const bool level0 = top == 64;
        __syncthreads();
#pragma unroll 1
        for (unsigned b = threadIdx.x; b < ISO_DRAW_BINS; b += Threads) {
            shared.count[b] = 0;
            if (Mass)
                shared.low[b] = shared.high[b] = 0;
        }
        __syncthreads();
        iso_draw_scores<Threads, Width>(
            draw, n, vector, body, [&](unsigned i, int k, const float *z) {
#pragma unroll
                for (int e = 0; e < Width; ++e) {
                    const IsoU64 key = iso_draw_key(z[e], i + e, n);
                    if (e >= k || (!level0 && key >> top != prefix >> top) ||
                        !iso_draw_keeps(kept, key, z[e]))
                        continue;
                    const unsigned digit = (unsigned)(key >> shift) & digits;
                    iso_shared_add(&shared.count[digit], 1u);
                    if (Mass)
                        iso_draw_add_mass(shared, digit,
                                          iso_draw_mass(iso_pair_scale(z[e], kept.most)));
                }
            });
        __syncthreads();
        if (threadIdx.x < ISO_WARP) {
            const IsoU64 told = iso_draw_find<Mass>(shared, above, reach, level0, share);
            __syncwarp();
            if (threadIdx.x == 0 && Mass)
                shared.total = told;
        }
        __syncthreads();
        if (!shared.cuts) {
            // A share of nothing keeps the first alone; a count beyond all keeps all.
            if (Mass)
                kept.least = kept.first;
            return;
        }
        if (Mass)
            reach = shared.total;
        prefix |= (IsoU64)shared.digit << shift;
        above = shared.above;
        if (shared.alone || shift == 0)
            break;
        top = shift == 32 ? index_bits : shift;
    }
    kept.least = prefix > kept.least ? prefix : kept.least;
}

ISO_FN unsigned iso_warp_most(unsigned v)
{
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        v = max(v, __shfl_xor_sync(0xFFFFFFFFu, v, by));
    return v;
}

// More than the noise of the word: e is not below u, which is 2^-(zeros + 1) at least.
ISO_FN float iso_gumbel_bound(unsigned word)
{
    return iso_fma((float)(__clz((int)(word | 1u)) + 1), 0x1.62e430p-1f, 0x1p-10f);
}

// The key of the greatest score with its noise; all ones where a score is NaN. What cannot be above
// what the warp has seen has its noise not computed.
template <int Threads, int Width, class Body>
ISO_FN IsoU64 iso_draw_noisy(const IsoDraw &draw, unsigned n, bool vector, const Body &body,
                             const IsoDrawKept &kept)
{
    IsoU64 best = 0;
    unsigned bound = 0;
    const unsigned first = threadIdx.x % ISO_WARP * Width;
    iso_draw_scores<Threads, Width>(draw, n, vector, body, [&](unsigned i, int k, const float *z) {
        static_assert(Width % 4 == 0, "a chunk has whole groups of four words");
        if (i - first + ISO_WARP * Width <= n)
            bound = iso_warp_most((unsigned)(best >> 32));
#pragma unroll
        for (int g = 0; g < Width; g += 4) {
            unsigned wanted = 0;
#pragma unroll
            for (int e = g; e < g + 4; ++e)
                wanted |= (e < k && iso_draw_keeps(kept, iso_draw_key(z[e], i + e, n), z[e]))
                          << (e - g);
            if (!wanted)
                continue;
            const IsoWords words =
                iso_draw_words(draw.seed, draw.stream, draw.position, (i + g) / 4);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float x = z[g + e];
                if (!(wanted >> e & 1) ||
                    iso_score_rank(iso_add(x, iso_gumbel_bound(words.w[e]))) < bound)
                    continue;
                IsoU64 key = iso_draw_key(iso_add(x, iso_gumbel(words.w[e])), i + g + e, n);
                key = iso_score_rank(x) == ISO_RANK_NAN ? ~0ull : key;
                best = key > best ? key : best;
            }
        }
    });
    return best;
}

// The index drawn, in every thread; -1 where a score is NaN or none is above -Inf.
template <int Threads, int Width, class Body>
ISO_FN int iso_draw(const IsoDraw &draw, unsigned n, bool vector, const Body &body)
{
    __shared__ IsoDrawShared shared;
    const bool greedy = draw.scaled && iso_is_zero(draw.temperature);
    const bool shares = iso_score_rank(draw.top_p) < iso_score_rank(1.0f);
    const bool limited = draw.top_k > 0 || shares || draw.min_p > 0.0f;
    IsoDrawKept kept;
    kept.least = (IsoU64)(ISO_RANK_NEGATIVE_INFINITY + 1) << 32;
    kept.first = 0;
    kept.most = 0.0f;
    kept.min_p = 0.0f;
    kept.massive = false;
    if (greedy || limited) {
        IsoU64 best = 0;
        iso_draw_scores<Threads, Width>(
            draw, n, vector, body, [&](unsigned i, int k, const float *z) {
#pragma unroll
                for (int e = 0; e < Width; ++e) {
                    const IsoU64 key = iso_draw_key(z[e], i + e, n);
                    best = e < k && key > best ? key : best;
                }
            });
        kept.first = iso_draw_most<Threads>(shared, best);
        // Bits of the greatest score, but for a zero's sign, from its rank.
        const unsigned rank = (unsigned)(kept.first >> 32);
        kept.most = __uint_as_float(rank & ISO_SIGN_BIT ? rank ^ ISO_SIGN_BIT : ~rank);
        if (rank == ISO_RANK_NAN || rank <= ISO_RANK_NEGATIVE_INFINITY)
            return -1;
        if (greedy)
            return (int)(n - 1 - (unsigned)kept.first);
        kept.min_p = draw.min_p;
        if (draw.top_k > 0)
            iso_draw_cut<Threads, Width, false>(shared, draw, n, vector, body, kept,
                                                (IsoU64)draw.top_k, 0.0f);
        if (shares)
            iso_draw_cut<Threads, Width, true>(shared, draw, n, vector, body, kept, 0, draw.top_p);
    }
    const IsoU64 best = iso_draw_most<Threads>(
        shared, iso_draw_noisy<Threads, Width>(draw, n, vector, body, kept));
    if (best == 0 || best >> 32 == ISO_RANK_NAN)
        return -1;
    return (int)(n - 1 - (unsigned)best);
}

#endif
