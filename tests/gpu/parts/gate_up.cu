#include "gemm_probe.cuh"
#include "samples/gate_up.cu"

Subject subject_gate_up() {
    Subject s = probe_subject<GateUp>("gate_up");
    probe_add_wgmma<GateUp, GateUpLarge>(s, "wgmma 128x(128+128)");
    probe_add_wgmma<GateUp, IsoWgmmaTile<128, 128, 4, 0, 2>>(s, "wgmma 128x128 by 2");
    probe_add_wgmma<GateUp, IsoWgmmaTile<128, 96, 5>>(s, "wgmma 128x96");
    probe_add_wgmma<GateUp, IsoWgmmaTile<16, 96, 8>>(s, "wgmma 16x96");
    probe_add_wgmma<GateUp, IsoWgmmaTile<32, 96, 7>>(s, "wgmma 32x96");
    probe_add_wgmma<GateUp, IsoWgmmaTile<64, 96, 6>>(s, "wgmma 64x96");
    probe_add_wgmma<GateUp, IsoWgmmaTile<64, 96, 6, 0, 4>>(s, "wgmma 64x96 by 4");
    probe_add_stream<GateUp, GateUpSmall>(s, "stream 16x32");
    probe_add_stream<GateUp, IsoStreamTile<64, 32, 128, 3, true>>(s, "stream 64x32");
    return s;
}
