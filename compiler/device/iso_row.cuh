// Reductions over the inner dimension, one row at a time, in the order that a tree says.
// Owns nothing but the shared memory of its own joins. A row belongs to Threads threads: a whole
// CTA, whose threads all get the value, or, with Threads = 1, a thread of its own.
//
// A reduction is a monoid over contiguous parts of the row. A part is dealt to lanes in runs (one
// lane: the part in order), each lane is a chain, lanes are joined, and the parts are joined as a
// program says (letters as in iso_tree.cuh: L the next part, + join, b and h round, R a root).
// Lanes that hold no element are never joined: they would be the last ones.
#ifndef ISO_ROW_CUH
#define ISO_ROW_CUH

#include "iso_map.cuh"
#include "iso_short.cuh"

enum IsoType { ISO_F32, ISO_BF16, ISO_F16 };

template <int Type> ISO_FN float iso_rounded(float x)
{
    if constexpr (Type == ISO_BF16)
        return iso_f32_of_bf16(iso_bf16_of_f32(x));
    else if constexpr (Type == ISO_F16)
        return iso_f32_of_f16(iso_f16_of_f32(x));
    else
        return x;
}

template <int Type> ISO_FN IsoPair iso_rounded(IsoPair x)
{
    x.m = iso_rounded<Type>(x.m);
    x.s = iso_rounded<Type>(x.s);
    return x;
}

// How a row is gone through; free of any meaning. Unroll: chunks in flight where loads are what a
// body waits for, 1 where it computes much.
template <int Threads, int Width, int Unroll> struct IsoPace {
    static constexpr int threads = Threads, width = Width, unroll = Unroll;
};

// What a body gives of W elements: the value, or the two factors of a product.
template <int W> struct IsoTerms {
    float a[W], b[W];
};

// ---- monoids: how a chain begins and goes on, and how two values join in a type ----------------

struct IsoSum {
    typedef float Value;
    template <int W> ISO_FN float first(const IsoTerms<W> &t, int e) { return t.a[e]; }
    template <int W> ISO_FN float next(float acc, const IsoTerms<W> &t, int e)
    {
        return iso_add(acc, t.a[e]);
    }
    template <int Type> ISO_FN float join(float a, float b)
    {
        return iso_rounded<Type>(iso_add(a, b));
    }
};

// A product under a chain: rounded once as the first, then fused.
struct IsoSumOfProducts {
    typedef float Value;
    template <int W> ISO_FN float first(const IsoTerms<W> &t, int e)
    {
        return iso_mul(t.a[e], t.b[e]);
    }
    template <int W> ISO_FN float next(float acc, const IsoTerms<W> &t, int e)
    {
        return iso_fma(t.a[e], t.b[e], acc);
    }
    template <int Type> ISO_FN float join(float a, float b)
    {
        return iso_rounded<Type>(iso_add(a, b));
    }
};

struct IsoMax {
    typedef float Value;
    template <int W> ISO_FN float first(const IsoTerms<W> &t, int e) { return t.a[e]; }
    template <int W> ISO_FN float next(float acc, const IsoTerms<W> &t, int e)
    {
        return iso_max(acc, t.a[e]);
    }
    template <int Type> ISO_FN float join(float a, float b)
    {
        return iso_rounded<Type>(iso_max(a, b));
    }
};

// Pairs (max, sum of exp(x - max)); an element x is (x, 1).
struct IsoLogSumExp {
    typedef IsoPair Value;
    template <int W> ISO_FN IsoPair first(const IsoTerms<W> &t, int e)
    {
        IsoPair x;
        x.m = t.a[e];
        x.s = 1.0f;
        return x;
    }
    template <int W> ISO_FN IsoPair next(IsoPair acc, const IsoTerms<W> &t, int e)
    {
        return join<ISO_F32>(acc, first(t, e));
    }
    // Equal maxima, infinite ones too, are no distance apart.
    template <int Type> ISO_FN float scale(float x, float m)
    {
        const float d = iso_rounded<Type>(iso_sub(x, m));
        return x == m ? 1.0f : iso_rounded<Type>(iso_exp(d));
    }
    template <int Type> ISO_FN IsoPair join(IsoPair a, IsoPair b)
    {
        IsoPair r;
        if constexpr (Type == ISO_F32)
            return iso_short_join(a, b);
        r.m = iso_rounded<Type>(iso_max(a.m, b.m));
        const float left = iso_rounded<Type>(iso_mul(a.s, scale<Type>(a.m, r.m)));
        const float right = iso_rounded<Type>(iso_mul(b.s, scale<Type>(b.m, r.m)));
        r.s = iso_rounded<Type>(iso_add(left, right));
        return r;
    }
};

template <int Type> ISO_FN float iso_log_of_sum(IsoPair x)
{
    return iso_rounded<Type>(iso_add(x.m, iso_rounded<Type>(iso_log(x.s))));
}

// ---- lanes -----------------------------------------------------------------------------------

template <int Lanes, int Run, bool Left, int Type> struct IsoLanes {
    static constexpr int lanes = Lanes, run = Run, type = Type;
    static constexpr bool left = Left;
};

// Elements start .. start + len - 1 go on with a chain; `any`: it has begun.
template <class M, class P, class Body>
ISO_FN void iso_chain(typename M::Value &acc, bool &any, int start, int len, bool vector,
                      const Body &body)
{
    int i = 0;
    if (vector && start % P::width == 0) {
#pragma unroll(P::unroll)
        for (; i + P::width <= len; i += P::width) {
            IsoTerms<P::width> t;
            body((long long)start + i, P::width, true, t);
            acc = any ? M::next(acc, t, 0) : M::first(t, 0);
            any = true;
#pragma unroll
            for (int e = 1; e < P::width; ++e)
                acc = M::next(acc, t, e);
        }
    }
#pragma unroll 1
    for (; i < len; i += P::width) {
        const int n = len - i < P::width ? len - i : P::width;
        IsoTerms<P::width> t;
        body((long long)start + i, n, false, t);
        acc = any ? M::next(acc, t, 0) : M::first(t, 0);
        any = true;
#pragma unroll
        for (int e = 1; e < P::width; ++e)
            acc = e < n ? M::next(acc, t, e) : acc;
    }
}

// The chain of one lane; the last run may be short.
template <class M, class L, class P, class Body>
ISO_FN typename M::Value iso_lane(int lane, int begin, int end, bool vector, const Body &body)
{
    typename M::Value acc = {};
    bool any = false;
    int start = begin + lane * L::run;
    if (L::run % P::width == 0 && vector && begin % P::width == 0) {
#pragma unroll(P::unroll)
        for (; start + L::run <= end; start += L::lanes * L::run)
            iso_chain<M, P>(acc, any, start, L::run, true, body);
    }
#pragma unroll 1
    for (; start < end; start += L::lanes * L::run) {
        const int left = end - start;
        iso_chain<M, P>(acc, any, start, left < L::run ? left : L::run, false, body);
    }
    return acc;
}

ISO_FN float iso_shuffle_down(float v, int by) { return __shfl_down_sync(0xFFFFFFFFu, v, by); }
ISO_FN IsoPair iso_shuffle_down(IsoPair v, int by)
{
    v.m = iso_shuffle_down(v.m, by);
    v.s = iso_shuffle_down(v.s, by);
    return v;
}

// Values that wait while n are joined in a balanced tree.
static __host__ __device__ constexpr int iso_levels(int n)
{
    int levels = 1;
    for (int s = 1; s < n; s *= 2)
        ++levels;
    return levels;
}

// A stack of values in registers: every access names all its places, so that none is indexed.
template <class V, int Depth> struct IsoStack {
    V at[Depth];
    int height = 0;

    __device__ __forceinline__ void push(V v)
    {
#pragma unroll
        for (int i = 0; i < Depth; ++i)
            at[i] = i == height ? v : at[i];
        ++height;
    }

    __device__ __forceinline__ V pop()
    {
        V v = at[0];
        --height;
#pragma unroll
        for (int i = 1; i < Depth; ++i)
            v = i == height ? at[i] : v;
        return v;
    }
};

// Lanes by one thread: after lane i, not the last, as many joins as i + 1 has trailing zeros.
template <class M, class L, class P, class Body>
ISO_FN typename M::Value iso_lanes_alone(int begin, int end, bool vector, const Body &body)
{
    IsoStack<typename M::Value, iso_levels(L::lanes)> stack;
#pragma unroll 1
    for (int l = 0; l < L::lanes && begin + l * L::run < end; ++l) {
        typename M::Value v = iso_lane<M, L, P>(l, begin, end, vector, body);
        v = iso_rounded<L::type>(v);
        for (int done = l; L::left ? stack.height > 0 : (done & 1); done >>= 1)
            v = M::template join<L::type>(stack.pop(), v);
        stack.push(v);
    }
    typename M::Value v = stack.pop();
    while (stack.height > 0)
        v = M::template join<L::type>(stack.pop(), v);
    return v;
}

// The first `n` of N values joined, left operand the lower one. Joining neighbours, then
// neighbours of those, gives the balanced tree for any n.
template <class M, class L, int N>
ISO_FN typename M::Value iso_join_all(typename M::Value *v, int n)
{
    if constexpr (L::left) {
        typename M::Value acc = v[0];
#pragma unroll 1
        for (int i = 1; i < n; ++i)
            acc = M::template join<L::type>(acc, v[i]);
        return acc;
    } else {
#pragma unroll
        for (int s = 1; s < N; s *= 2) {
#pragma unroll
            for (int i = 0; i + s < N; i += 2 * s)
                v[i] = i + s < n ? M::template join<L::type>(v[i], v[i + s]) : v[i];
        }
        return v[0];
    }
}

// Thread t has lane t's value, the first n lanes hold elements; every thread gets the join.
template <class M, class L>
ISO_FN typename M::Value iso_join_warps(typename M::Value v, int n)
{
    constexpr int warps = (L::lanes + 31) / 32;
    __shared__ typename M::Value shared[warps];
    const int t = threadIdx.x;
#pragma unroll
    for (int s = 1; s < 32 && s < L::lanes; s *= 2) {
        const typename M::Value right = iso_shuffle_down(v, s);
        if ((t & (2 * s - 1)) == 0 && t + s < n)
            v = M::template join<L::type>(v, right);
    }
    __syncthreads();
    if (t % 32 == 0 && t / 32 < warps)
        shared[t / 32] = v;
    __syncthreads();
    typename M::Value all[warps];
#pragma unroll
    for (int w = 0; w < warps; ++w)
        all[w] = shared[w];
    return iso_join_all<M, L, warps>(all, (n + 31) / 32);
}

// Values of all lanes in shared memory: for joins from left to right and for more lanes than
// threads.
template <class M, class L, class P, class Body>
ISO_FN typename M::Value iso_join_shared(int begin, int end, int n, bool vector, const Body &body)
{
    __shared__ typename M::Value shared[L::lanes];
    __syncthreads();
#pragma unroll 1
    for (int l = threadIdx.x; l < n; l += P::threads)
        shared[l] = iso_rounded<L::type>(iso_lane<M, L, P>(l, begin, end, vector, body));
    __syncthreads();
    if constexpr (L::left) {
        return iso_join_all<M, L, L::lanes>(shared, n);
    } else {
#pragma unroll 1
        for (int s = 1; s < n; s *= 2) {
#pragma unroll 1
            for (int l = 2 * s * threadIdx.x; l + s < n; l += 2 * s * P::threads)
                shared[l] = M::template join<L::type>(shared[l], shared[l + s]);
            __syncthreads();
        }
        return shared[0];
    }
}

// ---- one part, then the row --------------------------------------------------------------------

template <class M, class L, class P, class Body>
ISO_FN typename M::Value iso_row_part(int begin, int end, bool vector, const Body &body)
{
    typename M::Value v = {};
    if constexpr (L::lanes == 1) {
        bool any = false;
        iso_chain<M, P>(v, any, begin, end - begin, vector, body);
    } else if constexpr (P::threads == 1) {
        v = iso_lanes_alone<M, L, P>(begin, end, vector, body);
    } else {
        const int runs = (end - begin + L::run - 1) / L::run;
        const int n = runs < L::lanes ? runs : L::lanes;
        if constexpr (L::left || L::lanes > P::threads) {
            v = iso_join_shared<M, L, P>(begin, end, n, vector, body);
        } else {
            if (threadIdx.x < n)
                v = iso_rounded<L::type>(
                    iso_lane<M, L, P>(threadIdx.x, begin, end, vector, body));
            v = iso_join_warps<M, L>(v, n);
        }
    }
    return v;
}

// Runs a program on values: next() gives the next part or root, root(r, value) takes a root, and
// what is left at the end is returned.
template <class M, class Program, class Next, class Root>
ISO_FN typename M::Value iso_row_run(const Next &next, const Root &root)
{
    typedef typename M::Value V;
    IsoStack<V, Program::depth> stack;
    int roots = 0;
#pragma unroll 1
    for (int pc = 0; Program::text()[pc]; ++pc) {
        const char c = Program::text()[pc];
        if (c == 'L') {
            stack.push(next());
            continue;
        }
        V v = stack.pop();
        if (c == 'R') {
            root(roots++, v);
            continue;
        }
        // The letter after a join says its type.
        const char type = c == '+' ? Program::text()[pc + 1] : c;
        if (c == '+' && type == 'b')
            v = M::template join<ISO_BF16>(stack.pop(), v);
        else if (c == '+' && type == 'h')
            v = M::template join<ISO_F16>(stack.pop(), v);
        else if (c == '+')
            v = M::template join<ISO_F32>(stack.pop(), v);
        else
            v = c == 'b' ? iso_rounded<ISO_BF16>(v) : iso_rounded<ISO_F16>(v);
        stack.push(v);
    }
    return stack.at[0];
}

// The row's parts, begin[p] .. begin[p + 1] - 1, joined by Program.
template <class M, class L, class P, class Program, class Body, class Root>
ISO_FN typename M::Value iso_row_reduce(bool vector, const Body &body, const Root &root)
{
    int part = 0;
    const auto next = [&]() {
        const int begin = Program::begin()[part], end = Program::begin()[part + 1];
        ++part;
        return iso_row_part<M, L, P>(begin, end, vector, body);
    };
    return iso_row_run<M, Program>(next, root);
}

// ---- roots that leave a rank, and come from ranks ----------------------------------------------

ISO_FN void iso_root_store(float *to, long long, float v) { *to = v; }
ISO_FN void iso_root_store(float *to, long long step, IsoPair v)
{
    to[0] = v.m;
    to[step] = v.s;
}

ISO_FN void iso_root_load(const float *from, long long, float &v) { v = *from; }
ISO_FN void iso_root_load(const float *from, long long step, IsoPair &v)
{
    v.m = from[0];
    v.s = from[step];
}

template <int Threads, class V>
ISO_FN void iso_row_root(const IsoRowArgs &args, int r, unsigned place, V v)
{
    constexpr int values = sizeof(V) / sizeof(float);
    if (Threads == 1 || threadIdx.x == 0)
        iso_root_store(args.roots + r * values * args.root_stride + place, args.root_stride, v);
}

// All sources' roots of one row, in the order of their elements.
template <class M, class Program>
ISO_FN typename M::Value iso_row_joined(const IsoRowArgs &args, unsigned place)
{
    typedef typename M::Value V;
    constexpr int values = sizeof(V) / sizeof(float);
    int source = 0, within = 0;
    const auto next = [&]() {
        const IsoJoinSource &s = args.source[source];
        V v;
        iso_root_load(s.ptr + within * values * s.root_stride + place,
                      s.root_stride, v);
        if (++within == s.roots) {
            within = 0;
            ++source;
        }
        return v;
    };
    return iso_row_run<M, Program>(next, [](int, V) {});
}

// All elements of a row of n, chunks dealt to the row's threads.
template <class P, class Body>
ISO_FN void iso_row_each(unsigned n, bool vector, const Body &body)
{
    const unsigned t = P::threads == 1 ? 0 : threadIdx.x;
    if (vector) {
#pragma unroll(P::unroll)
        for (unsigned i = t * P::width; i < n; i += P::threads * P::width)
            iso_chunk<P::width>(i, n, true, body);
    } else {
#pragma unroll 1
        for (unsigned i = t * P::width; i < n; i += P::threads * P::width)
            iso_chunk<P::width>(i, n, false, body);
    }
}

#endif
