// The first K indices of a row by its scores: one warp a row, scores and ranks in registers. Groups
// of indices may be chosen first. Ranks are integers and equal ones go by index, so that no order
// of lanes shows.
// Owns nothing: a warp's registers.
#ifndef ISO_TOP_CUH
#define ISO_TOP_CUH

#include "iso_random.cuh"
#include "iso_row.cuh"

enum { ISO_TOP_LANES = 32, ISO_TOP_ABSENT = 0 /* below the rank of every score */ };

#define ISO_TOP_ALL 0xFFFFFFFFu

// Of N indices, in Groups of equal length of which Keep count, by the Sum first of each, the K
// first; ByIndex: ascending. A lane has Each neighbouring indices.
template <int N, int K, int Groups, int Keep, int Sum, bool ByIndex> struct IsoTop {
    static constexpr int n = N, k = K, groups = Groups, keep = Keep, sum = Sum;
    static constexpr bool by_index = ByIndex;
    static constexpr int each = N <= 32 ? 1 : N <= 64 ? 2 : N <= 128 ? 4 : N <= 256 ? 8
                                : N <= 512 ? 16 : 32;
    static constexpr int group = N / Groups;
    // Lanes of a group, where groups are lanes' own and a butterfly stays in one; else 0.
    static constexpr int group_lanes = group % each ? 0 : group / each;
    static constexpr bool apart =
        group_lanes > 0 && group_lanes <= ISO_TOP_LANES && !(group_lanes & (group_lanes - 1));
};

// A lane's best rank that is left, and which of its own it is: the lowest of equal ones.
template <int Each> struct IsoTopBest {
    unsigned rank;
    int at;

    __device__ __forceinline__ void find(const unsigned (&ranks)[Each])
    {
        rank = ranks[0];
        at = 0;
#pragma unroll
        for (int e = 1; e < Each; ++e) {
            at = ranks[e] > rank ? e : at;
            rank = ranks[e] > rank ? ranks[e] : rank;
        }
    }

    // Takes it out.
    __device__ __forceinline__ void drop(unsigned (&ranks)[Each])
    {
#pragma unroll
        for (int e = 0; e < Each; ++e)
            ranks[e] = e == at ? (unsigned)ISO_TOP_ABSENT : ranks[e];
        find(ranks);
    }
};

ISO_FN unsigned iso_top_most(unsigned v)
{
    unsigned most;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(v));
    return most;
}

ISO_FN unsigned iso_top_least(unsigned v)
{
    unsigned least;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(least) : "r"(v));
    return least;
}

ISO_FN int iso_top_lowest(unsigned lanes) { return 31 - __clz((int)(lanes & (0u - lanes))); }

// The first lane that has `rank`: lanes hold ascending indices.
ISO_FN int iso_top_owner(unsigned own, unsigned rank, unsigned lanes)
{
    return iso_top_lowest(__ballot_sync(ISO_TOP_ALL, own == rank) & lanes);
}

template <int Each>
ISO_FN float iso_top_score(const float (&z)[Each], int at)
{
    float x = z[0];
#pragma unroll
    for (int e = 1; e < Each; ++e)
        x = e == at ? z[e] : x;
    return x;
}

// The sum, from the left, of the first Sum scores of those that have a rank, among `Width` lanes.
template <class Top, int Width>
ISO_FN float iso_top_sum(const float (&z)[Top::each], const unsigned (&ranks)[Top::each])
{
    const int lane = threadIdx.x % ISO_TOP_LANES, base = lane / Width * Width;
    const unsigned lanes = ISO_TOP_ALL >> (ISO_TOP_LANES - Width) << base;
    unsigned left[Top::each];
    IsoTopBest<Top::each> best;
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < Top::each; ++e)
        left[e] = ranks[e];
    best.find(left);
#pragma unroll
    for (int i = 0; i < Top::sum; ++i) {
        unsigned most = best.rank;
#pragma unroll
        for (int by = Width / 2; by > 0; by /= 2)
            most = max(most, __shfl_xor_sync(ISO_TOP_ALL, most, by));
        const int owner = iso_top_owner(best.rank, most, lanes);
        const float x = __shfl_sync(ISO_TOP_ALL, iso_top_score(z, best.at), owner);
        sum = i == 0 ? x : iso_add(sum, x);
        if (lane == owner)
            best.drop(left);
    }
    return sum;
}

// Group g's score: in lane g * group_lanes where groups are apart, else in lane g.
template <class Top>
ISO_FN unsigned iso_top_group_rank(const float (&z)[Top::each],
                                   const unsigned (&ranks)[Top::each])
{
    const int lane = threadIdx.x % ISO_TOP_LANES;
    if constexpr (Top::apart) {
        const float sum = iso_top_sum<Top, Top::group_lanes>(z, ranks);
        return lane % Top::group_lanes || lane * Top::each >= Top::n ? (unsigned)ISO_TOP_ABSENT
                                                                     : iso_score_rank(sum);
    } else {
        unsigned rank = ISO_TOP_ABSENT;
#pragma unroll 1
        for (int g = 0; g < Top::groups; ++g) {
            unsigned members[Top::each];
#pragma unroll
            for (int e = 0; e < Top::each; ++e)
                members[e] = (lane * Top::each + e) / Top::group == g ? ranks[e]
                                                                     : (unsigned)ISO_TOP_ABSENT;
            const float sum = iso_top_sum<Top, ISO_TOP_LANES>(z, members);
            rank = lane == g ? iso_score_rank(sum) : rank;
        }
        return rank;
    }
}

// Leaves the kept groups' members their ranks.
template <class Top>
ISO_FN void iso_top_keep(const float (&z)[Top::each], unsigned (&ranks)[Top::each])
{
    const int lane = threadIdx.x % ISO_TOP_LANES;
    unsigned own = iso_top_group_rank<Top>(z, ranks), kept = 0;
#pragma unroll 1
    for (int i = 0; i < Top::keep; ++i) {
        const int owner = iso_top_owner(own, iso_top_most(own), ISO_TOP_ALL);
        kept |= 1u << (Top::apart ? owner / Top::group_lanes : owner);
        own = lane == owner ? (unsigned)ISO_TOP_ABSENT : own;
    }
#pragma unroll
    for (int e = 0; e < Top::each; ++e) {
        const int index = lane * Top::each + e;
        const bool in = index < Top::n && (kept >> index / Top::group & 1);
        ranks[e] = in ? ranks[e] : (unsigned)ISO_TOP_ABSENT;
    }
}

// Lane t < K has one of K different indices; gives it the one with t lower ones.
template <int K> ISO_FN unsigned iso_top_ascending(unsigned chosen)
{
    const int lane = threadIdx.x % ISO_TOP_LANES;
    int place = 0;
    unsigned at = 0;
#pragma unroll
    for (int i = 0; i < K; ++i)
        place += __shfl_sync(ISO_TOP_ALL, chosen, i) < chosen;
#pragma unroll
    for (int i = 0; i < K; ++i) {
        const unsigned index = __shfl_sync(ISO_TOP_ALL, chosen, i);
        at = __shfl_sync(ISO_TOP_ALL, place, i) == lane ? index : at;
    }
    return at;
}

// Index t of the row in lane t < K, what other lanes have is nothing. z: the scores of the lane's
// own indices, lane * each and so on; those beyond n are not read.
template <class Top> ISO_FN unsigned iso_top(const float (&z)[Top::each])
{
    const int lane = threadIdx.x % ISO_TOP_LANES;
    unsigned ranks[Top::each], chosen = 0;
    IsoTopBest<Top::each> best;
#pragma unroll
    for (int e = 0; e < Top::each; ++e)
        ranks[e] = lane * Top::each + e < Top::n ? iso_score_rank(z[e])
                                                 : (unsigned)ISO_TOP_ABSENT;
    if constexpr (Top::groups > 1)
        iso_top_keep<Top>(z, ranks);
    best.find(ranks);
#pragma unroll 1
    for (int i = 0; i < Top::k; ++i) {
        const unsigned most = iso_top_most(best.rank);
        const unsigned own = (unsigned)(lane * Top::each + best.at);
        const unsigned index = iso_top_least(best.rank == most ? own : ISO_TOP_ALL);
        chosen = lane == i ? index : chosen;
        if (own == index)
            best.drop(ranks);
    }
    return Top::by_index ? iso_top_ascending<Top::k>(chosen) : chosen;
}

// A chain over the slots: the values, or factors, of slot s are in lane s.
template <class Top, class M>
ISO_FN typename M::Value iso_top_chain(float a, float b)
{
    IsoTerms<1> terms;
    terms.a[0] = __shfl_sync(ISO_TOP_ALL, a, 0);
    terms.b[0] = __shfl_sync(ISO_TOP_ALL, b, 0);
    typename M::Value v = M::first(terms, 0);
#pragma unroll
    for (int s = 1; s < Top::k; ++s) {
        terms.a[0] = __shfl_sync(ISO_TOP_ALL, a, s);
        terms.b[0] = __shfl_sync(ISO_TOP_ALL, b, s);
        v = M::next(v, terms, 0);
    }
    return v;
}

ISO_FN float iso_top_first(float v) { return __shfl_sync(ISO_TOP_ALL, v, 0); }
ISO_FN IsoPair iso_top_first(IsoPair v)
{
    v.m = iso_top_first(v.m);
    v.s = iso_top_first(v.s);
    return v;
}

// A reduction by 32 lanes, each a chain over its own indices: every lane gets the value.
template <class Top, class M, int Type>
ISO_FN typename M::Value iso_top_reduce(const IsoTerms<Top::each> &terms)
{
    constexpr int lanes = (Top::n + Top::each - 1) / Top::each;
    const int lane = threadIdx.x % ISO_TOP_LANES;
    typename M::Value v = M::first(terms, 0);
#pragma unroll
    for (int e = 1; e < Top::each; ++e)
        v = lane * Top::each + e < Top::n ? M::next(v, terms, e) : v;
    v = iso_rounded<Type>(v);
#pragma unroll
    for (int s = 1; s < lanes; s *= 2) {
        const typename M::Value right = iso_shuffle_down(v, s);
        if ((lane & (2 * s - 1)) == 0 && lane + s < lanes)
            v = M::template join<Type>(v, right);
    }
    return iso_top_first(v);
}

#endif
