// The instructions that C++ has no words for, as inline PTX: barriers, asynchronous copies,
// tensor-core steps. Owns nothing; shared memory is passed as 32-bit shared addresses.
#ifndef ISO_PRIM_CUH
#define ISO_PRIM_CUH

#define ISO_INLINE static __device__ __forceinline__

ISO_INLINE unsigned iso_shared(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// --- mbarriers ---

ISO_INLINE void iso_mbar_init(unsigned bar, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

// Makes initialised barriers visible to the copy engine.
ISO_INLINE void iso_mbar_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Makes what the thread has stored to shared memory visible to wgmma and the copy engine.
ISO_INLINE void iso_async_fence() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

ISO_INLINE void iso_mbar_expect(unsigned bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

ISO_INLINE void iso_mbar_arrive(unsigned bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

ISO_INLINE bool iso_mbar_try(unsigned bar, unsigned parity) {
    unsigned done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

// Arrives at the barrier in the same place of another CTA of the cluster. It publishes nothing: the
// scope of the cluster would cost a fence of the whole device.
ISO_INLINE void iso_mbar_arrive_at(unsigned bar, unsigned rank) {
    asm volatile("{\n\t.reg .b32 at;\n\t"
                 "mapa.shared::cluster.u32 at, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [at];\n\t}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

// Waits until the phase of the given parity has completed. With ISO_WATCHDOG defined, that many
// tries trap instead of hanging.
ISO_INLINE void iso_mbar_wait(unsigned bar, unsigned parity) {
#ifdef ISO_WATCHDOG
    for (unsigned tries = 0; !iso_mbar_try(bar, parity); ++tries) {
        if (tries == ISO_WATCHDOG) {
            __trap();
        }
    }
#else
    while (!iso_mbar_try(bar, parity)) {
    }
#endif
}

// --- warps ---

// What is the same in all lanes, so that ptxas sees it: copies and products take their operands
// from uniform registers, and what is not known to be uniform goes through three instructions
// first.
ISO_INLINE unsigned iso_uniform(unsigned x) {
    return __shfl_sync(0xffffffff, x, 0);
}

// True in one lane of a whole warp, always the same one: ptxas then knows that what follows is done
// once.
ISO_INLINE bool iso_elect() {
    unsigned chosen;
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b32 lane;\n\telect.sync lane|p, %1;\n\t"
                 "selp.b32 %0, 1, 0, p;\n\t}"
                 : "=r"(chosen)
                 : "r"(0xffffffff));
    return chosen != 0;
}

// --- grids ---

// For kernels launched so that they may begin while what comes before them still runs: lets what
// comes after begin, and waits for all that comes before. Only kernel parameters, the CTA's own
// shared memory and what the launch says is settled may be touched before.
ISO_INLINE void iso_grid_open() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

ISO_INLINE void iso_grid_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

ISO_INLINE void iso_grid_begin() {
    iso_grid_open();
    iso_grid_wait();
}

// --- clusters ---

ISO_INLINE unsigned iso_cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits until every CTA of the cluster runs; of memory only initialised barriers are visible after
// (iso_mbar_init_fence).
ISO_INLINE void iso_cluster_start() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;" ::
                     : "memory");
}

// Waits for all threads of the cluster; memory written before is visible after.
ISO_INLINE void iso_cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// Sends 16 bytes into the shared memory of another CTA of the cluster, which counts them at its
// barrier; both addresses are this CTA's own for the same places.
ISO_INLINE void iso_cluster_send_f4(unsigned dst, unsigned bar, unsigned rank, float4 v) {
    asm volatile("{\n\t.reg .b32 to, at;\n\t"
                 "mapa.shared::cluster.u32 to, %0, %2;\n\t"
                 "mapa.shared::cluster.u32 at, %1, %2;\n\t"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[to], {%3, %4, %5, %6}, [at];\n\t}" ::"r"(dst),
                 "r"(bar), "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}

// --- copies ---

ISO_INLINE void iso_tma_prefetch(const void *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

ISO_INLINE void iso_tma_load_3d(unsigned dst, const void *map, unsigned bar, int c0, int c1,
                                int c2) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}

// The same into every CTA of the cluster that is in the mask, at the same place, each counting the
// bytes at its own barrier.
ISO_INLINE void iso_tma_load_3d_all(unsigned dst, const void *map, unsigned bar, int c0, int c1,
                                    int c2, unsigned mask) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"((unsigned short)mask)
                 : "memory");
}

// Copies the first `bytes` (0 to 16) of 16 and fills the rest with zeros.
ISO_INLINE void iso_cp_async16(unsigned dst, const void *src, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst),
                 "l"(__cvta_generic_to_global(src)), "r"(bytes)
                 : "memory");
}

ISO_INLINE void iso_cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Pending> ISO_INLINE void iso_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

ISO_INLINE void iso_shared_store16(unsigned dst, const unsigned (&v)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

ISO_INLINE void iso_shared_store4(unsigned dst, unsigned v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(dst), "r"(v) : "memory");
}

ISO_INLINE unsigned iso_shared_load4(unsigned src) {
    unsigned v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(src) : "memory");
    return v;
}

ISO_INLINE void iso_shared_load16(unsigned (&v)[4], unsigned src) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(src)
                 : "memory");
}

ISO_INLINE void iso_shared_store_f4(unsigned dst, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
}

ISO_INLINE float4 iso_shared_load_f4(unsigned src) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(src)
                 : "memory");
    return v;
}

ISO_INLINE float2 iso_shared_load_f2(unsigned src) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(src) : "memory");
    return v;
}

// Makes what other threads' copies wrote, once this one knows of it, visible to its tensor-core
// steps, and ends what it reads before a copy of the engine may come. Of all memory, not of shared
// memory alone, it would be a fence of the whole device.
ISO_INLINE void iso_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- warp-wide tensor-core steps ---

template <bool Trans> ISO_INLINE void iso_ldmatrix(unsigned (&v)[4], unsigned addr) {
    if constexpr (Trans) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(addr)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(addr)
                     : "memory");
    }
}

// d = a * b + d, one step of 16 k.
template <bool F16>
ISO_INLINE void iso_mma_k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    if constexpr (F16) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// --- warpgroup tensor-core steps (the product itself: iso_wgmma.cuh) ---

ISO_INLINE void iso_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

ISO_INLINE void iso_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int Pending> ISO_INLINE void iso_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving uses of registers across the asynchronous product.
template <int N> ISO_INLINE void iso_pin(float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "+f"(v[i])::"memory");
    }
}

template <int Registers> ISO_INLINE void iso_registers_grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers> ISO_INLINE void iso_registers_shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Two values rounded to 16 bits each, x in the lower half.
template <bool F16> ISO_INLINE unsigned iso_round_pair(float x, float y) {
    unsigned pair;
    if constexpr (F16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    }
    return pair;
}

// Four neighbouring lanes hold a 4 x 4 matrix of words, a column each; after, a row each.
ISO_INLINE void iso_quad_transpose(unsigned (&v)[4]) {
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    unsigned a = __shfl_xor_sync(0xffffffff, odd ? v[0] : v[1], 1);
    unsigned b = __shfl_xor_sync(0xffffffff, odd ? v[2] : v[3], 1);
    (odd ? v[0] : v[1]) = a;
    (odd ? v[2] : v[3]) = b;
    a = __shfl_xor_sync(0xffffffff, high ? v[0] : v[2], 2);
    b = __shfl_xor_sync(0xffffffff, high ? v[1] : v[3], 2);
    (high ? v[0] : v[2]) = a;
    (high ? v[1] : v[3]) = b;
}

// --- global memory in pairs, for epilogues ---

// Four words at once: as an assignment, the compiler would sometimes store them one by one.
ISO_INLINE void iso_store16(void *to, const unsigned (&v)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

ISO_INLINE void iso_load16(const void *from, unsigned (&v)[4]) {
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
}

// Two neighbours of 2 bytes each, `step` elements apart. Pairs: both exist, in one 4-byte word;
// otherwise only the first `valid` are touched and the other reads as 0.
template <bool Pairs>
ISO_INLINE unsigned iso_load_pair(const unsigned short *p, long long step, int valid) {
    if constexpr (Pairs) {
        return *(const unsigned *)p;
    } else {
        unsigned lo = p[0];
        return valid == 2 ? lo | (unsigned)p[step] << 16 : lo;
    }
}

template <bool Pairs>
ISO_INLINE void iso_store_pair(unsigned short *p, long long step, int valid, unsigned pair) {
    if constexpr (Pairs) {
        *(unsigned *)p = pair;
    } else {
        p[0] = (unsigned short)pair;
        if (valid == 2) {
            p[step] = (unsigned short)(pair >> 16);
        }
    }
}

// The same for f32, in one 8-byte word.
template <bool Pairs>
ISO_INLINE float2 iso_load_pair_f32(const float *p, long long step, int valid) {
    if constexpr (Pairs) {
        return *(const float2 *)p;
    } else {
        return make_float2(p[0], valid == 2 ? p[step] : 0.0f);
    }
}

template <bool Pairs>
ISO_INLINE void iso_store_pair_f32(float *p, long long step, int valid, float x, float y) {
    if constexpr (Pairs) {
        *(float2 *)p = make_float2(x, y);
    } else {
        p[0] = x;
        if (valid == 2) {
            p[step] = y;
        }
    }
}

#endif
