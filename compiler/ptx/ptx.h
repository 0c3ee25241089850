/* PTX as a program that can be run: the text that NVRTC wrote for isoc's kernels, decoded.
 * Ownership: a module and all that it points to live in the arena given to ptx_parse. */
#ifndef ISOC_PTX_H
#define ISOC_PTX_H

#include "base/base.h"

typedef struct PtxInst PtxInst;

/* A range of registers `.reg .b32 %r<9>`, or one named register. */
typedef struct PtxRegs {
    Str prefix;
    int count; /* -1: one register of this very name */
    u32 row;   /* of the first; see PtxKernel */
    u8 width;  /* 1, 16, 32 or 64 */
} PtxRegs;

typedef struct PtxParam {
    Str name;
    u32 offset, size;
} PtxParam;

/* A constant that the registers' file holds: an immediate operand, in all lanes. */
typedef struct PtxConst {
    u64 bits;
    u32 row;
    u8 width;
} PtxConst;

/* A warp's registers are one array of 32-bit words. A register of up to 32 bits has a row of 32
 * words, one per lane; one of 64 bits has 32 double words; a predicate is its row's first word, a
 * bit per lane. Immediates and special registers have rows too, so that operands are all alike. */
typedef struct PtxKernel {
    Str name;
    int n_params;
    PtxParam params[8];
    u32 param_bytes;
    u32 shared_static; /* bytes, from PTX_SHARED_BASE on */
    u32 local_bytes;   /* of a thread */
    const u8 *constants; /* the module's */
    u32 constant_bytes;
    u32 max_threads;   /* .maxntid; 0: not stated */
    u32 cluster;       /* CTAs of one, along x */
    u32 words;         /* of the registers' file */
    u32 special[16];   /* rows, by PtxSpecial; 0: not used */
    u8 *product_row;       /* by row / 32: 1 where wgmma takes it; NULL without wgmma */
    VEC(PtxConst) consts;
    VEC(PtxInst) code;
} PtxKernel;

typedef struct PtxModule {
    VEC(PtxKernel) kernels;
} PtxModule;

enum {
    PTX_SHARED_BASE = 1024, /* the system's own part of shared memory lies before */
    PTX_WARP = 32,
    PTX_CLUSTER_MAX = 8,
};
/* Where parameters, the module's constants and a thread's own memory lie in generic addresses. */
#define PTX_PARAM_BASE ((u64)1 << 56)
#define PTX_CONSTANT_BASE ((u64)1 << 57)
#define PTX_LOCAL_BASE ((u64)1 << 58)
enum { PTX_LOCAL_MOST = 1 << 20 }; /* bytes of a thread, and from one thread's to the next's */

/* False with a sentence that has the line in *problem: a text that is no PTX, or an instruction
 * that the machine does not know. Safe on any text. */
bool ptx_parse(Str text, PtxModule *module, Str *problem, Arena *arena);
/* Registers that are never alive together may get the same rows, which makes the machine faster; a
 * row is then no register of its own for who looks at the code. */
void ptx_share_rows(PtxKernel *kernel, Arena *arena);
const PtxKernel *ptx_find(const PtxModule *module, Str name);

#endif
