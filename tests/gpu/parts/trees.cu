#include "gemm_probe.cuh"
#include "parts/plain.cuh"

using Two = Plain<IsoTree<'L', 'L', '+'>>;
using Four = Plain<IsoTree<'L', 'L', '+', 'L', 'L', '+', '+'>>;
using LeftFour = Plain<IsoTree<'L', 'L', '+', 'L', '+', 'L', '+'>>;
using Sixteen = Plain<IsoTree<'L', 'L', '+', 'L', 'L', '+', '+', 'L', 'L', '+', 'L', 'L', '+', '+',
                              '+', 'L', 'L', '+', 'L', 'L', '+', '+', 'L', 'L', '+', 'L', 'L', '+',
                              '+', '+', '+'>>;
using Bf16Four = Plain<IsoTree<'L', 'b', 'L', 'b', '+', 'b', 'L', 'b', 'L', 'b', '+', 'b', '+',
                               'b'>>;
using F16Left = Plain<IsoTree<'L', 'h', 'L', '+', 'h', 'L', '+', 'h'>>;

template <class Op> static Subject tree_subject(const char *name) {
    Subject s = probe_subject<Op>(name);
    probe_add_wgmma<Op, IsoWgmmaTile<128, 128, 4>>(s, "wgmma 128x128 stack");
    probe_add_stream<Op, IsoStreamTile<16, 32, 64, 6, true>>(s, "stream 16x32");
    probe_add_stream<Op, IsoStreamTile<32, 32, 32, 4, false>>(s, "stream 32x32 one CTA");
    return s;
}

Subject subject_two() { return tree_subject<Two>("two leaves"); }
Subject subject_four() { return tree_subject<Four>("four leaves"); }
Subject subject_left_four() { return tree_subject<LeftFour>("four leaves, left"); }
Subject subject_sixteen() { return tree_subject<Sixteen>("sixteen leaves"); }
Subject subject_bf16_four() { return tree_subject<Bf16Four>("four leaves, bf16"); }
Subject subject_f16_left() { return tree_subject<F16Left>("three leaves, left f16"); }
