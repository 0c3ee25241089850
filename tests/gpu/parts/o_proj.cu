#include "gemm_probe.cuh"
#include "samples/o_proj.cu"

struct OProjPairs : OProj {
    using Tree = IsoTree<'P', 'P', '+', 'P', 'P', '+', '+'>;
};
// Leaves over a cluster: two CTAs of four leaves, four of two.
struct OProjHalves : OProj {
    using Tree = IsoTree<'L', 'L', '+'>;
};
struct OProjQuarters : OProj {
    using Tree = IsoTree<'L', 'L', '+', 'L', 'L', '+', '+'>;
};

Subject subject_o_proj() {
    Subject s = probe_subject<OProj>("o_proj");
    probe_add_wgmma<OProjQuads, OProjLarge>(s, "wgmma 128x128 quads near");
    probe_add_wgmma<OProjQuads, IsoWgmmaTile<128, 128, 5, 1, 2>>(s, "wgmma 128x128 quads by 2");
    probe_add_wgmma<OProjPairs, IsoWgmmaTile<128, 192, 4>>(s, "wgmma 128x192 pairs");
    probe_add_wgmma<OProj, IsoWgmmaTile<128, 256, 4>>(s, "wgmma 128x256 stack");
    probe_add_split<OProjHalves, IsoSplitTile<128, 128, 4, 4>>(s, "split 128x128 by 2");
    probe_add_split<OProjQuarters, IsoSplitTile<128, 128, 4, 2>>(s, "split 128x128 by 4");
    probe_add_split<OProjHalves, IsoSplitTile<16, 64, 20, 4>>(s, "split 16x64 by 2");
    probe_add_split<OProjHalves, IsoSplitTile<32, 64, 16, 4>>(s, "split 32x64 by 2");
    probe_add_split<OProjHalves, IsoSplitTile<64, 64, 12, 4>>(s, "split 64x64 by 2");
    probe_add_split<OProj, IsoSplitTile<16, 128, 5, 1>>(s, "split 16x128 by 8");
    probe_add_stream<OProj, OProjSmall>(s, "stream 16x64");
    probe_add_stream<OProj, IsoStreamTile<32, 24, 64, 4, false>>(s, "stream 32x24 one CTA");
    probe_add_stream<OProj, IsoStreamTile<64, 64, 64, 5, true>>(s, "stream 64x64");
    return s;
}
