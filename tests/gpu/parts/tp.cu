#include "gemm_probe.cuh"
#include "samples/o_proj_tp4.cu"

template <class Program> struct Part : OProjTp4 {
    using Tree = Program;
};
template <class Program> struct Whole : OProjTp4Join {
    using Tree = Program;
};

Subject subject_tp4() {
    Subject s = probe_subject<OProjTp4>("tp4 roots");
    probe_add_wgmma<OProjTp4Pairs, OProjTp4Large>(s, "wgmma 128x192 pairs");
    probe_add_wgmma<OProjTp4, IsoWgmmaTile<128, 128, 4>>(s, "wgmma 128x128 stack");
    probe_add_stream<OProjTp4, OProjTp4Small>(s, "stream 16x32");
    return s;
}
const void *join_tp4() { return (const void *)probe_join<OProjTp4Join>; }

// Six leaves as ((01)(23))(45), three on each of two ranks: two roots each.
using Left = Part<IsoTree<'L', 'L', '+', 'R', 'L', 'R'>>;
using Right = Part<IsoTree<'L', 'R', 'L', 'L', '+', 'R'>>;
using Six = Whole<IsoTree<'L', 'L', '+', 'L', 'L', '+', '+', 'L', 'L', '+', '+'>>;
using SixJoin = Whole<IsoTree<'L', 'L', 'L', '+', '+', 'L', '+'>>;

Subject subject_left() {
    Subject s = probe_subject<Left>("two roots, left");
    probe_add_wgmma<Left, IsoWgmmaTile<128, 128, 4>>(s, "wgmma 128x128");
    probe_add_stream<Left, IsoStreamTile<16, 32, 64, 6, true>>(s, "stream 16x32");
    probe_add_stream<Left, IsoStreamTile<32, 32, 64, 6, false>>(s, "stream 32x32 one CTA");
    return s;
}
Subject subject_right() {
    Subject s = probe_subject<Right>("two roots, right");
    probe_add_wgmma<Right, IsoWgmmaTile<128, 128, 4>>(s, "wgmma 128x128");
    probe_add_stream<Right, IsoStreamTile<16, 32, 64, 6, true>>(s, "stream 16x32");
    return s;
}
Subject subject_six() {
    Subject s = probe_subject<Six>("six leaves");
    probe_add_wgmma<Six, IsoWgmmaTile<128, 256, 4>>(s, "wgmma 128x256 stack");
    probe_add_wgmma<Whole<IsoTree<'P', 'P', '+', 'P', '+'>>, IsoWgmmaTile<128, 200, 4>>(
        s, "wgmma 128x200 pairs");
    probe_add_stream<Six, IsoStreamTile<16, 32, 64, 6, true>>(s, "stream 16x32");
    return s;
}
const void *join_six() { return (const void *)probe_join<SixJoin>; }
