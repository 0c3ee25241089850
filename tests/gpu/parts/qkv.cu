#include "gemm_probe.cuh"
#include "samples/qkv.cu"

Subject subject_qkv() {
    Subject s = probe_subject<Qkv>("qkv");
    probe_add_wgmma<Qkv, QkvLarge>(s, "wgmma 128x256");
    probe_add_wgmma<Qkv, IsoWgmmaTile<128, 256, 4, 0, 2>>(s, "wgmma 128x256 by 2");
    probe_add_wgmma<Qkv, IsoWgmmaTile<128, 128, 6>>(s, "wgmma 128x128");
    probe_add_wgmma<Qkv, IsoWgmmaTile<128, 128, 6, 0, 2>>(s, "wgmma 128x128 by 2");
    probe_add_wgmma<Qkv, IsoWgmmaTile<128, 96, 7>>(s, "wgmma 128x96");
    probe_add_wgmma<Qkv, IsoWgmmaTile<128, 96, 7, 0, 4>>(s, "wgmma 128x96 by 4");
    probe_add_wgmma<Qkv, IsoWgmmaTile<192, 136, 4>>(s, "wgmma 192x136");
    probe_add_wgmma<Qkv, IsoWgmmaTile<16, 48, 20>>(s, "wgmma 16x48");
    probe_add_wgmma<Qkv, IsoWgmmaTile<16, 24, 20>>(s, "wgmma 16x24");
    probe_add_wgmma<Qkv, IsoWgmmaTile<32, 48, 20>>(s, "wgmma 32x48");
    probe_add_wgmma<Qkv, IsoWgmmaTile<32, 48, 20, 0, 2>>(s, "wgmma 32x48 by 2");
    probe_add_wgmma<Qkv, IsoWgmmaTile<64, 48, 14>>(s, "wgmma 64x48");
    probe_add_stream<Qkv, QkvSmall>(s, "stream 16x24");
    probe_add_stream<Qkv, IsoStreamTile<64, 32, 128, 4, true>>(s, "stream 64x32");
    return s;
}
