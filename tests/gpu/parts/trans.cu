#include "gemm_probe.cuh"
#include "parts/plain.cuh"

using Tree2 = IsoTree<'L', 'L', '+'>;

template <bool F16, bool A, bool B> static Subject trans_subject(const char *name) {
    using Op = Plain<Tree2, F16, A, B>;
    Subject s = probe_subject<Op>(name);
    probe_add_wgmma<Op, IsoWgmmaTile<128, 256, 4>>(s, "wgmma 128x256");
    probe_add_wgmma<Op, IsoWgmmaTile<128, 256, 4, 0, 2>>(s, "wgmma 128x256 by 2");
    probe_add_wgmma<Op, IsoWgmmaTile<64, 136, 4>>(s, "wgmma 64x136");
    probe_add_stream<Op, IsoStreamTile<16, 32, 64, 5, true>>(s, "stream 16x32");
    probe_add_stream<Op, IsoStreamTile<64, 64, 32, 4, false>>(s, "stream 64x64 one CTA");
    return s;
}

Subject subject_f16() { return trans_subject<true, false, false>("f16"); }
Subject subject_ta() { return trans_subject<false, true, false>("A transposed"); }
Subject subject_tb() { return trans_subject<false, false, true>("B transposed"); }
Subject subject_tab() { return trans_subject<false, true, true>("both transposed"); }
