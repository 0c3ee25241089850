#include "gemm_probe.cuh"
#include "samples/gate_up.cu"

Subject subject_gate_up() {
    Subject s = probe_subject<GateUp>("gate_up");
    probe_add_wgmma<GateUp, GateUpLarge>(s, "wgmma 128x(128+128)");
    probe_add_wgmma<GateUp, IsoWgmmaTile<64, 96, 4>>(s, "wgmma 64x(96+96)");
    probe_add_stream<GateUp, GateUpSmall>(s, "stream 16x32");
    probe_add_stream<GateUp, IsoStreamTile<32, 32, 128, 4, true>>(s, "stream 32x32");
    probe_add_stream<GateUp, IsoStreamTile<64, 32, 128, 3, true>>(s, "stream 64x32");
    return s;
}
