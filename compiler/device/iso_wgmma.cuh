// The warpgroup product wgmma m64nNk16 for every N that is a multiple of 8: one row of the table
// below per N, because the operand list of an asm statement cannot be computed. Owns nothing.
#ifndef ISO_WGMMA_CUH
#define ISO_WGMMA_CUH

#include "iso_prim.cuh"

// Shared-memory descriptor of a tile with 128-byte swizzle whose base is 1024-byte aligned.
// leading and stride are in bytes; k-major: stride between groups of 8 rows (leading unused);
// otherwise: leading between blocks of 64 rows, stride between groups of 8 k.
ISO_INLINE unsigned long long iso_wgmma_desc(unsigned addr, unsigned leading, unsigned stride) {
    return (unsigned long long)((addr & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | 1ULL << 62;
}

// d (m64 x N) = a * b + d, or a * b where accumulate is 0 (the chain starts absent).
template <int N, bool F16, bool ATrans, bool BTrans> struct IsoWgmma;

// Register lists: ISO_WN(n) names the n / 2 accumulators in the text, ISO_WD(n) binds them.
#define ISO_WN_8 "%0,%1,%2,%3"
#define ISO_WD_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define ISO_WN_16 ISO_WN_8 ",%4,%5,%6,%7"
#define ISO_WD_16 ISO_WD_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define ISO_WN_24 ISO_WN_16 ",%8,%9,%10,%11"
#define ISO_WD_24 ISO_WD_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define ISO_WN_32 ISO_WN_24 ",%12,%13,%14,%15"
#define ISO_WD_32 ISO_WD_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define ISO_WN_40 ISO_WN_32 ",%16,%17,%18,%19"
#define ISO_WD_40 ISO_WD_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define ISO_WN_48 ISO_WN_40 ",%20,%21,%22,%23"
#define ISO_WD_48 ISO_WD_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define ISO_WN_56 ISO_WN_48 ",%24,%25,%26,%27"
#define ISO_WD_56 ISO_WD_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define ISO_WN_64 ISO_WN_56 ",%28,%29,%30,%31"
#define ISO_WD_64 ISO_WD_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define ISO_WN_72 ISO_WN_64 ",%32,%33,%34,%35"
#define ISO_WD_72 ISO_WD_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define ISO_WN_80 ISO_WN_72 ",%36,%37,%38,%39"
#define ISO_WD_80 ISO_WD_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define ISO_WN_88 ISO_WN_80 ",%40,%41,%42,%43"
#define ISO_WD_88 ISO_WD_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define ISO_WN_96 ISO_WN_88 ",%44,%45,%46,%47"
#define ISO_WD_96 ISO_WD_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define ISO_WN_104 ISO_WN_96 ",%48,%49,%50,%51"
#define ISO_WD_104 ISO_WD_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define ISO_WN_112 ISO_WN_104 ",%52,%53,%54,%55"
#define ISO_WD_112 ISO_WD_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define ISO_WN_120 ISO_WN_112 ",%56,%57,%58,%59"
#define ISO_WD_120 ISO_WD_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define ISO_WN_128 ISO_WN_120 ",%60,%61,%62,%63"
#define ISO_WD_128 ISO_WD_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define ISO_WN_136 ISO_WN_128 ",%64,%65,%66,%67"
#define ISO_WD_136 ISO_WD_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define ISO_WN_144 ISO_WN_136 ",%68,%69,%70,%71"
#define ISO_WD_144 ISO_WD_136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define ISO_WN_152 ISO_WN_144 ",%72,%73,%74,%75"
#define ISO_WD_152 ISO_WD_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define ISO_WN_160 ISO_WN_152 ",%76,%77,%78,%79"
#define ISO_WD_160 ISO_WD_152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define ISO_WN_168 ISO_WN_160 ",%80,%81,%82,%83"
#define ISO_WD_168 ISO_WD_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define ISO_WN_176 ISO_WN_168 ",%84,%85,%86,%87"
#define ISO_WD_176 ISO_WD_168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define ISO_WN_184 ISO_WN_176 ",%88,%89,%90,%91"
#define ISO_WD_184 ISO_WD_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define ISO_WN_192 ISO_WN_184 ",%92,%93,%94,%95"
#define ISO_WD_192 ISO_WD_184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define ISO_WN_200 ISO_WN_192 ",%96,%97,%98,%99"
#define ISO_WD_200 ISO_WD_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define ISO_WN_208 ISO_WN_200 ",%100,%101,%102,%103"
#define ISO_WD_208 ISO_WD_200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define ISO_WN_216 ISO_WN_208 ",%104,%105,%106,%107"
#define ISO_WD_216 ISO_WD_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define ISO_WN_224 ISO_WN_216 ",%108,%109,%110,%111"
#define ISO_WD_224 ISO_WD_216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define ISO_WN_232 ISO_WN_224 ",%112,%113,%114,%115"
#define ISO_WD_232 ISO_WD_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define ISO_WN_240 ISO_WN_232 ",%116,%117,%118,%119"
#define ISO_WD_240 ISO_WD_232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define ISO_WN_248 ISO_WN_240 ",%120,%121,%122,%123"
#define ISO_WD_248 ISO_WD_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define ISO_WN_256 ISO_WN_248 ",%124,%125,%126,%127"
#define ISO_WD_256 ISO_WD_248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

#define ISO_WGMMA_TEXT(n, type, ia, ib, is, ita, itb)                                              \
    "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #is ", 0;\n\t"                                      \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" ISO_WN_##n "}, %" #ia     \
    ", %" #ib ", p, 1, 1, %" #ita ", %" #itb ";\n\t}"

#define ISO_WGMMA_ASM(n, type, ...)                                                                \
    asm volatile(ISO_WGMMA_TEXT(n, type, __VA_ARGS__)                                              \
                 : ISO_WD_##n                                                                      \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(ATrans), "n"(BTrans))

#define ISO_WGMMA(n, ...)                                                                          \
    template <bool F16, bool ATrans, bool BTrans> struct IsoWgmma<n, F16, ATrans, BTrans> {        \
        ISO_INLINE void step(float (&d)[n / 2], unsigned long long a, unsigned long long b,        \
                             int accumulate) {                                                     \
            if constexpr (F16) {                                                                   \
                ISO_WGMMA_ASM(n, "f16", __VA_ARGS__);                                              \
            } else {                                                                               \
                ISO_WGMMA_ASM(n, "bf16", __VA_ARGS__);                                             \
            }                                                                                      \
        }                                                                                          \
    };

// N, then the positions of the operands after the accumulators
ISO_WGMMA(8, 4, 5, 6, 7, 8)
ISO_WGMMA(16, 8, 9, 10, 11, 12)
ISO_WGMMA(24, 12, 13, 14, 15, 16)
ISO_WGMMA(32, 16, 17, 18, 19, 20)
ISO_WGMMA(40, 20, 21, 22, 23, 24)
ISO_WGMMA(48, 24, 25, 26, 27, 28)
ISO_WGMMA(56, 28, 29, 30, 31, 32)
ISO_WGMMA(64, 32, 33, 34, 35, 36)
ISO_WGMMA(72, 36, 37, 38, 39, 40)
ISO_WGMMA(80, 40, 41, 42, 43, 44)
ISO_WGMMA(88, 44, 45, 46, 47, 48)
ISO_WGMMA(96, 48, 49, 50, 51, 52)
ISO_WGMMA(104, 52, 53, 54, 55, 56)
ISO_WGMMA(112, 56, 57, 58, 59, 60)
ISO_WGMMA(120, 60, 61, 62, 63, 64)
ISO_WGMMA(128, 64, 65, 66, 67, 68)
ISO_WGMMA(136, 68, 69, 70, 71, 72)
ISO_WGMMA(144, 72, 73, 74, 75, 76)
ISO_WGMMA(152, 76, 77, 78, 79, 80)
ISO_WGMMA(160, 80, 81, 82, 83, 84)
ISO_WGMMA(168, 84, 85, 86, 87, 88)
ISO_WGMMA(176, 88, 89, 90, 91, 92)
ISO_WGMMA(184, 92, 93, 94, 95, 96)
ISO_WGMMA(192, 96, 97, 98, 99, 100)
ISO_WGMMA(200, 100, 101, 102, 103, 104)
ISO_WGMMA(208, 104, 105, 106, 107, 108)
ISO_WGMMA(216, 108, 109, 110, 111, 112)
ISO_WGMMA(224, 112, 113, 114, 115, 116)
ISO_WGMMA(232, 116, 117, 118, 119, 120)
ISO_WGMMA(240, 120, 121, 122, 123, 124)
ISO_WGMMA(248, 124, 125, 126, 127, 128)
ISO_WGMMA(256, 128, 129, 130, 131, 132)

// d (m64 x N) = a * b + d, or a * b where accumulate is 0, with a in registers, as mma has it, and
// b [k][column] with columns contiguous.
template <int N, bool F16> struct IsoWgmmaRegs;

#define ISO_WGMMA_REGS_ASM(n, type, i0, i1, i2, i3, ib, is)                                        \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #is ", 0;\n\t"                          \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" ISO_WN_##n   \
                 "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #ib ", p, 1, 1, 1;\n\t}"            \
                 : ISO_WD_##n                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define ISO_WGMMA_REGS(n, ...)                                                                     \
    template <bool F16> struct IsoWgmmaRegs<n, F16> {                                              \
        ISO_INLINE void step(float (&d)[n / 2], const unsigned *a, unsigned long long b,           \
                             int accumulate) {                                                     \
            if constexpr (F16) {                                                                   \
                ISO_WGMMA_REGS_ASM(n, "f16", __VA_ARGS__);                                         \
            } else {                                                                               \
                ISO_WGMMA_REGS_ASM(n, "bf16", __VA_ARGS__);                                        \
            }                                                                                      \
        }                                                                                          \
    };

ISO_WGMMA_REGS(64, 32, 33, 34, 35, 36, 37)
ISO_WGMMA_REGS(96, 48, 49, 50, 51, 52, 53)
ISO_WGMMA_REGS(128, 64, 65, 66, 67, 68, 69)

#endif
