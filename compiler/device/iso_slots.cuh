// Sums over a token's slots, for many columns side by side: a warp has neighbouring columns of one
// row, each thread some of them, and goes through the slots in the order of their places. A part of
// the places that has no slot is absent, and nothing is joined for it. All that is chosen is the
// same for a warp's lanes.
// Owns nothing: registers, and of shared memory a thread its own elements of every slot.
#ifndef ISO_SLOTS_CUH
#define ISO_SLOTS_CUH

#include "iso_row.cuh"

#define ISO_SLOTS_ALL 0xFFFFFFFFu

ISO_FN int iso_slots_at(int v, int lane) { return __shfl_sync(ISO_SLOTS_ALL, v, lane); }
ISO_FN float iso_slots_at(float v, int lane) { return __shfl_sync(ISO_SLOTS_ALL, v, lane); }
ISO_FN long long iso_slots_at(long long v, int lane)
{
    const unsigned low = __shfl_sync(ISO_SLOTS_ALL, (unsigned)v, lane);
    const int high = __shfl_sync(ISO_SLOTS_ALL, (int)(v >> 32), lane);
    return (long long)high << 32 | low;
}
ISO_FN IsoU16 iso_slots_at(IsoU16 v, int lane)
{
    return (IsoU16)__shfl_sync(ISO_SLOTS_ALL, (unsigned)v, lane);
}

// The place of a lane's slot: negative where it stands nowhere, or at an earlier slot's place.
template <int K> ISO_FN int iso_slots_place(long long at)
{
    const int own = threadIdx.x % 32 < K ? (int)at : -1;
    bool taken = false;
#pragma unroll
    for (int s = 0; s + 1 < K; ++s) {
        const int other = iso_slots_at(own, s);
        taken = taken || (other == own && s < (int)(threadIdx.x % 32));
    }
    return taken ? -1 : own;
}

// The slots that stand somewhere, in the order of their places: lane j has the jth.
struct IsoSlots {
    int slot, place, n, next;

    // `own`: the place of the lane's slot, from iso_slots_place.
    template <int K> __device__ __forceinline__ void sort(int own)
    {
        const int lane = threadIdx.x % 32;
        int before = own < 0 ? -1 : 0;
        slot = place = next = n = 0;
#pragma unroll
        for (int s = 0; s < K; ++s) {
            const int at = iso_slots_at(own, s);
            n += at >= 0;
            before += at >= 0 && at < own;
        }
#pragma unroll
        for (int s = 0; s < K; ++s) {
            const bool here = iso_slots_at(before, s) == lane;
            slot = here ? s : slot;
            const int at = iso_slots_at(own, s);
            place = here ? at : place;
        }
    }

    // The slots' own order.
    template <int K> __device__ __forceinline__ void count()
    {
        slot = place = threadIdx.x % 32;
        n = K;
        next = 0;
    }
};

// Some slot stands in lo .. hi - 1.
ISO_FN bool iso_slots_in(int own, int lo, int hi)
{
    return __ballot_sync(ISO_SLOTS_ALL, own >= lo && own < hi) != 0;
}

// What a part, or a join of some, has come to.
template <class M, int W> struct IsoColumns {
    typename M::Value v[W];
    bool any;
};

// The slots up to the place `end` that have not been taken, as a chain: body(slot, terms).
template <class M, int W, class Body>
ISO_FN IsoColumns<M, W> iso_slots_part(IsoSlots &slots, int end, const Body &body)
{
    IsoColumns<M, W> acc = {};
#pragma unroll 1
    while (slots.next < slots.n && iso_slots_at(slots.place, slots.next) < end) {
        IsoTerms<W> terms;
        body(iso_slots_at(slots.slot, slots.next), terms);
#pragma unroll
        for (int e = 0; e < W; ++e)
            acc.v[e] = acc.any ? M::next(acc.v[e], terms, e) : M::first(terms, e);
        acc.any = true;
        ++slots.next;
    }
    return acc;
}

template <class M, int Type, int W>
ISO_FN void iso_slots_join(IsoColumns<M, W> &left, const IsoColumns<M, W> &right)
{
    if (!right.any)
        return;
#pragma unroll
    for (int e = 0; e < W; ++e)
        left.v[e] = left.any ? M::template join<Type>(left.v[e], right.v[e]) : right.v[e];
    left.any = true;
}

// What is absent is not looked at.
template <class M, int Type, int W> ISO_FN void iso_slots_round(IsoColumns<M, W> &x)
{
#pragma unroll
    for (int e = 0; e < W; ++e)
        x.v[e] = iso_rounded<Type>(x.v[e]);
}

// What a sum of nothing is: elements are at bits `nothing`.
ISO_FN float iso_slots_final(float v, bool any, unsigned nothing)
{
    return any ? v : __uint_as_float(nothing);
}

template <int Type> ISO_FN float iso_slots_log(IsoPair v, bool any, unsigned nothing)
{
    return any ? iso_log_of_sum<Type>(v) : __uint_as_float(nothing);
}

// ---- roots -----------------------------------------------------------------------------------

// Root r of the row's columns from `first` on, n of them; place: that of the row's first column.
// An absent one is `nothing`, which no one reads.
template <class M, int W>
ISO_FN void iso_slots_store(const IsoRowArgs &args, int r, long long place, int n,
                            const IsoColumns<M, W> &x, typename M::Value nothing)
{
    constexpr int values = sizeof(typename M::Value) / sizeof(float);
    float *const to = args.roots + r * values * args.root_stride + place;
#pragma unroll
    for (int e = 0; e < W; ++e)
        if (e < n)
            iso_root_store(to + e, args.root_stride, x.any ? x.v[e] : nothing);
}

template <class M, int W>
ISO_FN IsoColumns<M, W> iso_slots_load(const IsoJoinSource &source, int within, long long place,
                                       int n, bool any)
{
    constexpr int values = sizeof(typename M::Value) / sizeof(float);
    const float *const from = source.ptr + within * values * source.root_stride + place;
    IsoColumns<M, W> x = {};
    x.any = any;
    if (any) {
#pragma unroll
        for (int e = 0; e < W; ++e)
            if (e < n)
                iso_root_load(from + e, source.root_stride, x.v[e]);
    }
    return x;
}

#endif
