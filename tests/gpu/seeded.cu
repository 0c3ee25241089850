// The library's pipelines with at most one defect each, for tools and tests that must see it. The
// host puts one macro in front:
//   SEED_FULL   nobody waits for a copy, or for another warp's stores, before reading (for the
//               small kernels: the product's barriers would run out of step)
//   SEED_LATE   the product waits for a copy only once it has multiplied what it should bring
//   SEED_EMPTY  a stage is filled again as soon as its copy has landed, read or not
//   SEED_SYNC   __syncthreads is missing
//   SEED_INIT   barriers are never initialised
// Waits are bounded in defective kernels, so that a defect ends in wrong bits and not in a hang.
#include "iso_prim.cuh"

ISO_INLINE void seeded_wait(bool skip, unsigned bar, unsigned parity) {
    for (unsigned tries = 0; !skip && tries < 4096 && !iso_mbar_try(bar, parity); ++tries) {
    }
}

// The library calls its barriers ring.full and ring.empty: the sixth letter tells them apart.
#if defined SEED_FULL
#define iso_mbar_wait(bar, parity) seeded_wait((#bar)[5] == 'f', bar, parity)
#elif defined SEED_LATE
#define iso_mbar_wait(bar, parity) seeded_wait((#bar)[5] == 'f', bar, parity)
#define iso_mbar_arrive(bar)                                                                       \
    (seeded_wait(false, ring.full + 8 * stage, ring.phase ^ (ring.stage < stage)),                 \
     iso_mbar_arrive(bar))
#elif defined SEED_EMPTY
#define iso_mbar_wait(bar, parity)                                                                 \
    seeded_wait(false, (#bar)[5] == 'e' ? ring.full + 8 * ring.stage : bar, parity)
#elif defined SEED_SYNC
#define __syncthreads() ((void)0)
#elif defined SEED_INIT
#define iso_mbar_wait(bar, parity) seeded_wait(false, bar, parity)
#define iso_mbar_init(bar, count) ((void)(bar))
#endif

#include "iso_gemm_stream.cuh"
#include "iso_gemm_wgmma.cuh"
#include "parts/plain.cuh"
#undef iso_mbar_arrive

using SeededOp = Plain<IsoTree<'L'>>;

// A CTA must not leave while copies into it are under way, however early its threads finish.
ISO_INLINE void seeded_drain() {
#if defined SEED_FULL || defined SEED_LATE || defined SEED_EMPTY || defined SEED_INIT
    __syncthreads();
    __nanosleep(100000);
#endif
}

extern "C" __global__ void __launch_bounds__(256, 1)
    seeded_product(const __grid_constant__ IsoGemmArgs args,
                   const __grid_constant__ IsoGemmMaps maps) {
    iso_gemm_wgmma<SeededOp, IsoWgmmaTile<64, 64, 2>>(args, maps);
    seeded_drain();
}

extern "C" __global__ void __launch_bounds__(128)
    seeded_stream(const __grid_constant__ IsoGemmArgs args) {
    iso_gemm_stream<SeededOp, IsoStreamTile<16, 32, 32, 2, true>>(args);
}

// The copy engine's first box, 64 rows of 64 elements as they lie in shared memory.
extern "C" __global__ void __launch_bounds__(128)
    seeded_copy(const __grid_constant__ IsoGemmMaps maps, unsigned *out) {
    __shared__ __align__(1024) unsigned tile[2048];
    __shared__ unsigned long long bar;
    IsoRing ring{iso_shared(&bar), 0, 0, 0};
    for (int i = threadIdx.x; i < 2048; i += 128) {
        tile[i] = 0xCDCDCDCD;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (threadIdx.x == 0) {
        iso_mbar_init(ring.full, 1);
        iso_mbar_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        iso_mbar_expect(ring.full, sizeof tile);
        iso_tma_load_3d(iso_shared(tile), &maps.a, ring.full, 0, 0, 0);
    }
    iso_mbar_wait(ring.full, 0);
    for (int i = threadIdx.x; i < 2048; i += 128) {
        out[i] = tile[i];
    }
    seeded_drain();
}

// Two warps store what two others read, by a barrier of arrivals.
extern "C" __global__ void __launch_bounds__(128)
    seeded_handoff(const unsigned *in, unsigned *out) {
    __shared__ unsigned tile[64];
    __shared__ unsigned long long bar;
    IsoRing ring{iso_shared(&bar), 0, 0, 0};
    if (threadIdx.x < 64) {
        tile[threadIdx.x] = 0xCDCDCDCD;
    }
    if (threadIdx.x == 0) {
        iso_mbar_init(ring.full, 64);
    }
    __syncthreads();
    if (threadIdx.x < 64) {
        tile[threadIdx.x] = in[threadIdx.x];
        iso_mbar_arrive(ring.full);
    } else {
        iso_mbar_wait(ring.full, 0);
        out[threadIdx.x - 64] = tile[127 - threadIdx.x];
    }
}
