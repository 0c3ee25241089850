// Reductions of rows whose tree has many short parts: all threads of a row, in one CTA or in a
// cluster, take parts, a thread for each lane, and nobody waits for another until all are there.
// Owns the shared memory in which parts are joined.
//
// A row is S::spans spans of S::span elements, but for the last, which ends where the row does; a
// span is S::of_span parts of S::step elements, the last of which may be short. Lanes, then parts,
// then spans are joined pairwise in f32.
#ifndef ISO_ROW_SPREAD_CUH
#define ISO_ROW_SPREAD_CUH

#include "iso_prim.cuh"
#include "iso_row.cuh"

template <int Spans, int OfSpan, int Span, int Step, int Row, int Cluster> struct IsoSpread {
    static constexpr int spans = Spans, of_span = OfSpan, span = Span, step = Step;
    static constexpr int cluster = Cluster, parts = Spans * OfSpan;

    ISO_FN int begin(int part) { return part / OfSpan * Span + part % OfSpan * Step; }
    ISO_FN int end(int part)
    {
        const int full = begin(part) + Step;
        const int span_end = part / OfSpan == Spans - 1 ? Row : (part / OfSpan + 1) * Span;
        return full < span_end ? full : span_end;
    }
};

// What is sent to another CTA: 16 bytes.
ISO_FN float4 iso_spread_pack(float v) { return make_float4(v, 0.0f, 0.0f, 0.0f); }
ISO_FN float4 iso_spread_pack(IsoPair v) { return make_float4(v.m, v.s, 0.0f, 0.0f); }
ISO_FN void iso_spread_pack(float4 &to, float v) { to.x = v; }
ISO_FN void iso_spread_pack(float4 &to, IsoPair v)
{
    to.x = v.m;
    to.y = v.s;
}
template <class V> ISO_FN void iso_spread_pack(V &to, V v) { to = v; }
ISO_FN void iso_spread_unpack(float4 from, float &v) { v = from.x; }
ISO_FN void iso_spread_unpack(float4 from, IsoPair &v)
{
    v.m = from.x;
    v.s = from.y;
}
template <class V> ISO_FN void iso_spread_unpack(V from, V &v) { v = from; }

// The chain of one lane of a part; of a full one every element is asked for before any is used.
template <class M, class L, class P, int Step, class Body>
ISO_FN typename M::Value iso_spread_lane(int lane, int begin, int end, bool vector,
                                         const Body &body)
{
    constexpr int chunks = Step / (L::lanes * P::width), of_run = L::run / P::width;
    constexpr bool even = Step % (L::lanes * L::run) == 0 && L::run % P::width == 0;
    if constexpr (even && chunks * P::width <= 64) {
        if (vector && end - begin == Step && begin % P::width == 0) {
            IsoTerms<P::width> t[chunks];
#pragma unroll
            for (int i = 0; i < chunks; ++i)
                body(begin + (i / of_run * L::lanes + lane) * L::run + i % of_run * P::width,
                     P::width, true, t[i]);
            typename M::Value acc = M::first(t[0], 0);
#pragma unroll
            for (int i = 1; i < chunks * P::width; ++i)
                acc = M::next(acc, t[i / P::width], i % P::width);
            return acc;
        }
    }
    return iso_lane<M, L, P>(lane, begin, end, vector, body);
}

// The first n lanes of a part hold elements; lane 0 gets their join.
template <class M, class L>
ISO_FN typename M::Value iso_spread_lanes(typename M::Value v, int lane, int n)
{
#pragma unroll
    for (int s = 1; s < L::lanes; s *= 2) {
        const typename M::Value right = iso_shuffle_down(v, s);
        if (lane % (2 * s) == 0 && lane + s < n)
            v = M::template join<ISO_F32>(v, right);
    }
    return v;
}

// put(part, value) for the parts from `begin` to `end` - 1.
template <class M, class L, class P, class S, class Body, class Put>
ISO_FN void iso_spread_parts(int begin, int end, bool vector, const Body &body, const Put &put)
{
    typedef typename M::Value V;
    constexpr int at_once = P::threads / L::lanes;
    const int lane = threadIdx.x % L::lanes;
#pragma unroll 1
    for (int first = begin; first < end; first += at_once) {
        const int part = first + threadIdx.x / L::lanes;
        V v = {};
        int n = 0;
        if (part < end) {
            const int lo = S::begin(part), hi = S::end(part);
            const int runs = (hi - lo + L::run - 1) / L::run;
            n = runs < L::lanes ? runs : L::lanes;
            if (lane < n)
                v = iso_spread_lane<M, L, P, S::step>(lane, lo, hi, vector, body);
        }
        v = iso_spread_lanes<M, L>(v, lane, n);
        if (part < end && lane == 0)
            put(part, v);
    }
}

// Of `n` values in each of `groups` groups, `apart` from one to the next, the first becomes the
// pairwise join.
template <class M, int Threads, int N, int Groups, int Apart, class Slot>
ISO_FN void iso_spread_pairwise(Slot *slots)
{
    typedef typename M::Value V;
#pragma unroll 1
    for (int s = 1; s < N; s *= 2) {
        const int of_group = (N + 2 * s - 1) / (2 * s);
#pragma unroll 1
        for (int i = threadIdx.x; i < of_group * Groups; i += Threads) {
            const int at = i % of_group * 2 * s;
            Slot *to = slots + (i / of_group * N + at) * Apart;
            V left, right;
            if (at + s < N) {
                iso_spread_unpack(*to, left);
                iso_spread_unpack(to[s * Apart], right);
                iso_spread_pack(*to, M::template join<ISO_F32>(left, right));
            }
        }
        __syncthreads();
    }
}

template <class M, class P, class S, class Slot>
ISO_FN typename M::Value iso_spread_join(Slot *slots)
{
    typename M::Value v;
    iso_spread_pairwise<M, P::threads, S::of_span, S::spans, 1>(slots);
    iso_spread_pairwise<M, P::threads, S::spans, 1, S::of_span>(slots);
    iso_spread_unpack(slots[0], v);
    return v;
}

// The value of a row; with a cluster its first CTA alone gets it, and a CTA has one row.
template <class M, class L, class P, class S, class Body>
ISO_FN typename M::Value iso_row_spread(bool vector, const Body &body)
{
    typedef typename M::Value V;
    if constexpr (S::cluster == 1) {
        __shared__ V slots[S::parts];
        __syncthreads();
        iso_spread_parts<M, L, P, S>(0, S::parts, vector, body,
                                     [&](int part, V v) { slots[part] = v; });
        __syncthreads();
        return iso_spread_join<M, P, S>(slots);
    } else {
        __shared__ float4 slots[S::parts];
        __shared__ unsigned long long all_there;
        constexpr int each = (S::parts + S::cluster - 1) / S::cluster;
        const unsigned bar = iso_shared(&all_there), rank = iso_cluster_rank();
        const int begin = rank * each, end = begin + each < S::parts ? begin + each : S::parts;
        if (threadIdx.x == 0) {
            iso_mbar_init(bar, 1);
            iso_mbar_init_fence();
            if (rank == 0)
                iso_mbar_expect(bar, 16 * S::parts);
        }
        __syncthreads();
        iso_cluster_start();
        iso_spread_parts<M, L, P, S>(begin, end, vector, body, [&](int part, V v) {
            iso_cluster_send_f4(iso_shared(&slots[part]), bar, 0, iso_spread_pack(v));
        });
        V v = {};
        if (rank == 0) {
            iso_mbar_wait(bar, 0);
            v = iso_spread_join<M, P, S>(slots);
        }
        return v;
    }
}

// Of the roots that all sources sent, each of Values values, those of one reduction begin with
// value First.
template <class M, int Threads, int Spans, int OfSpan, int Values, int First>
ISO_FN typename M::Value iso_row_gathered(const IsoRowArgs &args, unsigned place)
{
    typedef typename M::Value V;
    __shared__ V slots[Spans * OfSpan];
    V v;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < Spans * OfSpan; i += Threads) {
        int source = 0, within = i;
#pragma unroll 1
        while (within >= args.source[source].roots)
            within -= args.source[source++].roots;
        const IsoJoinSource &s = args.source[source];
        iso_root_load(s.ptr + (long long)(within * Values + First) * s.root_stride + place,
                      s.root_stride, slots[i]);
    }
    __syncthreads();
    iso_spread_pairwise<M, Threads, OfSpan, Spans, 1>(slots);
    iso_spread_pairwise<M, Threads, Spans, 1, OfSpan>(slots);
    iso_spread_unpack(slots[0], v);
    return v;
}

#endif
