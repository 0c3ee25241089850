// The streaming product with its barriers taken out: what racecheck must report.
#include "iso_prim.cuh"
#define __syncthreads() ((void)0)
#include "gemm_probe.cuh"
#include "parts/plain.cuh"

struct Seeded : Plain<IsoTree<'L'>> {};

Subject subject_seeded() {
    Subject s = probe_subject<Seeded>("seeded");
    probe_add_stream<Seeded, IsoStreamTile<16, 32, 32, 2, true>>(s, "stream without barriers");
    return s;
}
