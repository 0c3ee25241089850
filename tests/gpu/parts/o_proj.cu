#include "gemm_probe.cuh"
#include "samples/o_proj.cu"

struct OProjPairs : OProj {
    using Tree = IsoTree<'P', 'P', '+', 'P', 'P', '+', '+'>;
};

Subject subject_o_proj() {
    Subject s = probe_subject<OProj>("o_proj");
    probe_add_wgmma<OProjQuads, OProjLarge>(s, "wgmma 128x128 quads near");
    probe_add_wgmma<OProjPairs, IsoWgmmaTile<128, 192, 4>>(s, "wgmma 128x192 pairs");
    probe_add_wgmma<OProjPairs, IsoWgmmaTile<128, 128, 3, 2>>(s, "wgmma 128x128 pairs near");
    probe_add_wgmma<OProjPairs, IsoWgmmaTile<128, 192, 3, 1>>(s, "wgmma 128x192 pairs 1 near");
    probe_add_wgmma<OProj, IsoWgmmaTile<128, 256, 4>>(s, "wgmma 128x256 stack");
    probe_add_stream<OProj, OProjSmall>(s, "stream 16x64");
    probe_add_stream<OProj, IsoStreamTile<16, 32, 128, 4, true>>(s, "stream 16x32");
    probe_add_stream<OProj, IsoStreamTile<32, 24, 64, 4, false>>(s, "stream 32x24 one CTA");
    probe_add_stream<OProj, IsoStreamTile<16, 48, 64, 6, true>>(s, "stream 16x48");
    probe_add_stream<OProj, IsoStreamTile<64, 64, 64, 5, true>>(s, "stream 64x64");
    probe_add_stream<OProj, IsoStreamTile<32, 128, 64, 4, false>>(s, "stream 32x128 one CTA");
    return s;
}
