// Sums over a token's slots, for many columns side by side: a warp has neighbouring columns of one
// row, each thread some of them, and goes through the slots in the order of their places. A part of
// the places that has no slot is absent, and nothing is joined for it: what is left of the tree is
// found once for a row, and all lanes of its warp do the same.
// Owns nothing: registers, and of shared memory a thread its own waiting values.
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

// One lane's number, which the compiler then knows to be the same for all: what is chosen by it is
// no divergence.
ISO_FN unsigned iso_slots_of(unsigned v, int lane)
{
    unsigned r;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;"
                 : "=r"(r) : "r"((int)(threadIdx.x % 32) == lane ? v : 0u));
    return r;
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
    int slot, place, n;

    // `own`: the place of the lane's slot, from iso_slots_place.
    template <int K> __device__ __forceinline__ void sort(int own)
    {
        const int lane = threadIdx.x % 32;
        int before = own < 0 ? -1 : 0;
        slot = place = n = 0;
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

// What is done of a row's slots: lane j has what the jth is, and which operations follow it.
struct IsoSlotCodes {
    int n, code;
    unsigned ops, have; // have: the parts that have a slot
};

// Of a code: the slot, whether it is the first of its part, and how many operations follow it, or,
// where all parts are alike, whether it is the last.
enum { ISO_SLOTS_SLOT = 31, ISO_SLOTS_FIRST = 32, ISO_SLOTS_OPS = 64, ISO_SLOTS_LAST = 64 };

// Trees: operations one by one; parts of Tree::length places, each rounded to Tree::type and joined
// to those before it; and parts each of which is a root.
enum IsoSlotTrees { ISO_SLOTS_LISTED, ISO_SLOTS_LEFT, ISO_SLOTS_EACH };

template <class Tree> ISO_FN IsoSlotCodes iso_slots_alike(const IsoSlots &slots)
{
    const int lane = threadIdx.x % 32;
    const int part = lane < slots.n ? slots.place / Tree::length : -1;
    const int before = __shfl_up_sync(ISO_SLOTS_ALL, part, 1);
    const int after = __shfl_down_sync(ISO_SLOTS_ALL, part, 1);
    IsoSlotCodes codes;
    codes.n = (int)iso_slots_of((unsigned)slots.n, 0);
    codes.code = slots.slot | (lane == 0 || before != part ? ISO_SLOTS_FIRST : 0) |
                 (lane == 31 || after != part ? ISO_SLOTS_LAST : 0);
    codes.ops = codes.have = (unsigned)part;
    return codes;
}

// Operations of the tree, one a lane, in the order of their text: parts on whose left side and on
// whose right side (of a rounding and a root: on which) some slot must stand. An operation follows
// the last slot of its right side; where either side is empty there is none.
struct IsoSlotOps {
    unsigned left, right;
};

// part: Tree's part of a place.
template <class Tree, int K>
ISO_FN IsoSlotCodes iso_slots_codes(const IsoSlots &slots, const IsoSlotOps &own)
{
    const int lane = threadIdx.x % 32;
    const int part = lane < slots.n ? Tree::part(slots.place) : 32;
    const int before = __shfl_up_sync(ISO_SLOTS_ALL, part, 1);
    const int after = __shfl_down_sync(ISO_SLOTS_ALL, part, 1);
    unsigned have = 0;
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int at = iso_slots_at(part, j);
        have |= at < 32 ? 1u << at : 0;
    }
    const unsigned right = own.right & have;
    const int last = right && (own.left & have) ? 31 - __clz((int)right) : -1;
    IsoSlotCodes codes;
    codes.n = (int)iso_slots_of((unsigned)slots.n, 0);
    codes.have = have;
    codes.code = slots.slot | (lane == 0 || before != part ? ISO_SLOTS_FIRST : 0);
    codes.ops = 0;
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const unsigned ops = __ballot_sync(ISO_SLOTS_ALL, last == iso_slots_at(part, j));
        codes.ops = lane == j ? ops : codes.ops;
    }
    codes.ops = lane == 31 || after != part || lane == slots.n - 1 ? codes.ops : 0;
    codes.code |= __popc(codes.ops) * ISO_SLOTS_OPS;
    return codes;
}

// Values that wait for their right sides: a thread's own, in shared memory.
template <class M, int W, int Threads> struct IsoSlotStack {
    static constexpr int values = sizeof(typename M::Value) / sizeof(float) * W;
    static constexpr int words = (values + 3) / 4;
    float4 *base;
    int height;

    __device__ __forceinline__ void push(const IsoColumns<M, W> &x)
    {
        float from[4 * words] = {};
        memcpy(from, x.v, sizeof x.v);
#pragma unroll
        for (int q = 0; q < words; ++q)
            base[(height * words + q) * Threads + threadIdx.x] =
                make_float4(from[4 * q], from[4 * q + 1], from[4 * q + 2], from[4 * q + 3]);
        ++height;
    }

    __device__ __forceinline__ void pop(IsoColumns<M, W> &x)
    {
        float to[4 * words];
        --height;
#pragma unroll
        for (int q = 0; q < words; ++q) {
            const float4 v = base[(height * words + q) * Threads + threadIdx.x];
            to[4 * q] = v.x, to[4 * q + 1] = v.y, to[4 * q + 2] = v.z, to[4 * q + 3] = v.w;
        }
        memcpy(x.v, to, sizeof x.v);
    }
};

template <class M, int Type, int W, class Stack>
ISO_FN void iso_slots_pop_join(IsoColumns<M, W> &acc, Stack &stack)
{
    IsoColumns<M, W> left;
    stack.pop(left);
#pragma unroll
    for (int e = 0; e < W; ++e)
        acc.v[e] = M::template join<Type>(left.v[e], acc.v[e]);
}

// Joins in f32, so many.
template <class M, int W, class Stack>
ISO_FN void iso_slots_joins(IsoColumns<M, W> &acc, Stack &stack, int n)
{
#pragma unroll 1
    for (; n > 0; --n)
        iso_slots_pop_join<M, ISO_F32>(acc, stack);
}

// Operations of any kind: letters as in iso_tree.cuh, B and H joins in bf16 and f16; R is root
// number Tree::root(i).
template <class Tree, class M, int W, class Stack, class Root>
ISO_FN void iso_slots_ops(IsoColumns<M, W> &acc, Stack &stack, unsigned ops, const Root &root)
{
#pragma unroll 1
    while (ops) {
        const int i = 31 - __clz((int)(ops & (0u - ops)));
        const char c = Tree::text()[i];
        ops &= ops - 1;
        if (c == 'R') {
            root(Tree::root()[i], acc);
            acc.any = false;
        } else if (c == '+') {
            iso_slots_pop_join<M, ISO_F32>(acc, stack);
        } else if (c == 'B') {
            iso_slots_pop_join<M, ISO_BF16>(acc, stack);
        } else if (c == 'H') {
            iso_slots_pop_join<M, ISO_F16>(acc, stack);
        } else if (c == 'b') {
            iso_slots_round<M, ISO_BF16>(acc);
        } else {
            iso_slots_round<M, ISO_F16>(acc);
        }
    }
}

// All slots of a row, `Batch` of K at a time: load(code, first) brings their elements, body(j, at,
// terms) gives those of the jth that was brought, the at-th of all.
template <class Tree, class M, int W, int K, int Batch, class Stack, class Load, class Body,
          class Root>
ISO_FN IsoColumns<M, W> iso_slots_sum(const IsoSlotCodes &codes, Stack stack, const Load &load,
                                      const Body &body, const Root &root)
{
    IsoColumns<M, W> acc = {};
#pragma unroll 1
    for (int first = 0; first < K; first += Batch) {
        int code[Batch];
#pragma unroll
        for (int j = 0; j < Batch; ++j)
            code[j] = (int)iso_slots_of((unsigned)codes.code, first + j);
        load(code, first);
#pragma unroll
        for (int j = 0; j < Batch; ++j) {
            if (first + j >= codes.n)
                continue;
            IsoTerms<W> terms;
            body(j, first + j, terms);
            if (code[j] & ISO_SLOTS_FIRST) {
                if (acc.any)
                    stack.push(acc);
#pragma unroll
                for (int e = 0; e < W; ++e)
                    acc.v[e] = M::first(terms, e);
            } else {
#pragma unroll
                for (int e = 0; e < W; ++e)
                    acc.v[e] = M::next(acc.v[e], terms, e);
            }
            acc.any = true;
            if constexpr (Tree::kind != ISO_SLOTS_LISTED) {
                if (!(code[j] & ISO_SLOTS_LAST))
                    continue;
                iso_slots_round<M, Tree::type>(acc);
                if constexpr (Tree::kind == ISO_SLOTS_EACH) {
                    root((int)iso_slots_of(codes.ops, first + j), acc);
                    acc.any = false;
                } else if (stack.height > 0) {
                    iso_slots_pop_join<M, Tree::type>(acc, stack);
                }
            } else if constexpr (Tree::plain)
                iso_slots_joins(acc, stack, code[j] / ISO_SLOTS_OPS);
            else
                iso_slots_ops<Tree>(acc, stack, iso_slots_of(codes.ops, first + j), root);
        }
    }
    return acc;
}

// Elements i .. i + W - 1 of a row that lie together on 16 bytes, or none.
template <class T, int W>
ISO_FN void iso_slots_load(IsoPack<T, W> &to, const T *row, long long i, bool on)
{
    constexpr int word = 16 / sizeof(T);
    static_assert(W % word == 0, "a thread's columns are whole words");
#pragma unroll
    for (int k = 0; k < W; k += word) {
        const uint4 v = on ? *(const uint4 *)(row + i + k) : make_uint4(0u, 0u, 0u, 0u);
        iso_unpack(v, to.v + k);
    }
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

// Root r of the row's columns from place `column` on, n of them. An absent one is `nothing`, which
// no one reads.
template <class M, int W>
ISO_FN void iso_slots_store(const IsoRowArgs &args, int r, long long column, int n,
                            const IsoColumns<M, W> &x, typename M::Value nothing)
{
    constexpr int values = sizeof(typename M::Value) / sizeof(float);
    float *const to = args.roots + r * values * args.root_stride + column;
    if constexpr (values == 1 && W % 4 == 0) {
        if (n == W && ((unsigned long long)to & 15) == 0) {
#pragma unroll
            for (int e = 0; e < W; e += 4)
                *(float4 *)(to + e) =
                    make_float4(x.any ? x.v[e] : nothing, x.any ? x.v[e + 1] : nothing,
                                x.any ? x.v[e + 2] : nothing, x.any ? x.v[e + 3] : nothing);
            return;
        }
    }
#pragma unroll
    for (int e = 0; e < W; ++e)
        if (e < n)
            iso_root_store(to + e, args.root_stride, x.any ? x.v[e] : nothing);
}

template <class M, int W>
ISO_FN IsoColumns<M, W> iso_slots_root(const IsoJoinSource &source, int within, long long column,
                                       int n, bool any)
{
    constexpr int values = sizeof(typename M::Value) / sizeof(float);
    const float *const from = source.ptr + within * values * source.root_stride + column;
    IsoColumns<M, W> x = {};
    x.any = any;
    if (!any)
        return x;
    if constexpr (values == 1 && W % 4 == 0) {
        if (n == W && ((unsigned long long)from & 15) == 0) {
#pragma unroll
            for (int e = 0; e < W; e += 4) {
                const float4 v = *(const float4 *)(from + e);
                x.v[e] = v.x, x.v[e + 1] = v.y, x.v[e + 2] = v.z, x.v[e + 3] = v.w;
            }
            return x;
        }
    }
#pragma unroll
    for (int e = 0; e < W; ++e)
        if (e < n)
            iso_root_load(from + e, source.root_stride, x.v[e]);
    return x;
}

#endif
