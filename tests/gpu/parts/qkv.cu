#include "gemm_probe.cuh"
#include "samples/qkv.cu"

Subject subject_qkv() {
    Subject s = probe_subject<Qkv>("qkv");
    probe_add_wgmma<Qkv, QkvLarge>(s, "wgmma 128x256");
    probe_add_wgmma<Qkv, IsoWgmmaTile<128, 128, 5>>(s, "wgmma 128x128");
    probe_add_wgmma<Qkv, IsoWgmmaTile<64, 256, 4>>(s, "wgmma 64x256");
    probe_add_wgmma<Qkv, IsoWgmmaTile<192, 136, 4>>(s, "wgmma 192x136");
    probe_add_stream<Qkv, QkvSmall>(s, "stream 16x24");
    probe_add_stream<Qkv, IsoStreamTile<16, 16, 128, 6, true>>(s, "stream 16x16");
    probe_add_stream<Qkv, IsoStreamTile<16, 32, 128, 6, true>>(s, "stream 16x32");
    probe_add_stream<Qkv, IsoStreamTile<32, 64, 64, 6, true>>(s, "stream 32x64");
    probe_add_stream<Qkv, IsoStreamTile<32, 32, 128, 6, true>>(s, "stream 32x32");
    probe_add_stream<Qkv, IsoStreamTile<64, 32, 128, 4, true>>(s, "stream 64x32");
    probe_add_stream<Qkv, IsoStreamTile<64, 64, 64, 5, false>>(s, "stream 64x64");
    return s;
}
