/* One decoded instruction, and what decides how it runs.
 * Ownership: instructions belong to their kernel's arena. */
#ifndef ISOC_PTX_INST_H
#define ISOC_PTX_INST_H

#include "ptx.h"

/* X(ID, base of the opcode): those whose modifiers are types and flags in a row. */
#define PTX_FAMILY_LIST(X)                                                                         \
    X(ADD, "add") X(SUB, "sub") X(MUL, "mul") X(MAD, "mad") X(DIV, "div") X(REM, "rem")            \
    X(MIN, "min") X(MAX, "max") X(NEG, "neg") X(ABS, "abs") X(FMA, "fma") X(SQRT, "sqrt")          \
    X(AND, "and") X(OR, "or") X(XOR, "xor") X(NOT, "not") X(SHL, "shl") X(SHR, "shr")              \
    X(BFI, "bfi") X(BFE, "bfe") X(PRMT, "prmt") X(POPC, "popc") X(CLZ, "clz") X(MOV, "mov")        \
    X(CVT, "cvt") X(SETP, "setp") X(SELP, "selp") X(LD, "ld") X(ST, "st") X(BRA, "bra")            \
    X(RET, "ret") X(TRAP, "trap")

/* X(ID, the opcode in full): those that are one thing. */
#define PTX_EXACT_LIST(X)                                                                          \
    X(CVTA, "cvta.to.global.u64")                                                                  \
    X(CVTA_PARAM, "cvta.param.u64")                                                                \
    X(CVTA_LOCAL, "cvta.local.u64")                                                                \
    X(CVT_BF16X2, "cvt.rn.bf16x2.f32")                                                             \
    X(CVT_F16X2, "cvt.rn.f16x2.f32")                                                               \
    X(EX2, "ex2.approx.ftz.f32")                                                                   \
    X(BAR, "bar.sync")                                                                             \
    X(BAR_ARRIVE, "bar.arrive")                                                                    \
    X(BAR_WARP, "bar.warp.sync")                                                                   \
    X(FENCE, "membar.gl")                                                                          \
    X(FENCE_PROXY, "fence.proxy.async")                                                            \
    X(FENCE_PROXY_CTA, "fence.proxy.async.shared::cta")                                            \
    X(FENCE_INIT, "fence.mbarrier_init.release.cluster")                                           \
    X(ATOM_INC, "atom.global.inc.u32")                                                             \
    X(ATOM_ADD, "atom.global.add.u32")                                                             \
    X(RED_ADD_32, "red.shared.add.u32")                                                            \
    X(ATOM_SHARED_ADD, "atom.shared.add.u32")                                                      \
    X(SHFL_DOWN, "shfl.sync.down.b32")                                                             \
    X(SHFL_UP, "shfl.sync.up.b32")                                                                 \
    X(SHFL_BFLY, "shfl.sync.bfly.b32")                                                             \
    X(SHFL_IDX, "shfl.sync.idx.b32")                                                               \
    X(BALLOT, "vote.sync.ballot.b32")                                                              \
    X(REDUX_MAX, "redux.sync.max.u32")                                                             \
    X(REDUX_MIN, "redux.sync.min.u32")                                                             \
    X(ELECT, "elect.sync")                                                                         \
    X(CP_ASYNC, "cp.async.cg.shared.global.L2::128B")                                              \
    X(CP_COMMIT, "cp.async.commit_group")                                                          \
    X(CP_WAIT, "cp.async.wait_group")                                                              \
    X(CP_ARRIVE, "cp.async.mbarrier.arrive.noinc.shared::cta.b64")                                 \
    X(MBAR_INIT, "mbarrier.init.shared::cta.b64")                                                  \
    X(MBAR_EXPECT, "mbarrier.arrive.expect_tx.shared::cta.b64")                                    \
    X(MBAR_ARRIVE, "mbarrier.arrive.shared::cta.b64")                                              \
    X(MBAR_TRY, "mbarrier.try_wait.parity.shared::cta.b64")                                        \
    X(TMA_3D, "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes")       \
    X(TMA_4D, "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes")       \
    X(TMA_3D_ALL, "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"    \
                  ".multicast::cluster")                                                           \
    X(PREFETCH_MAP, "prefetch.tensormap")                                                          \
    X(MAPA, "mapa.shared::cluster.u32")                                                            \
    X(MBAR_ARRIVE_AT, "mbarrier.arrive.shared::cluster.b64")                                       \
    X(SEND, "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32")                        \
    X(CLUSTER_ARRIVE, "barrier.cluster.arrive.relaxed.aligned")                                    \
    X(CLUSTER_RELEASE, "barrier.cluster.arrive.release.aligned")                                   \
    X(CLUSTER_WAIT, "barrier.cluster.wait.aligned")                                                \
    X(CLUSTER_ACQUIRE, "barrier.cluster.wait.acquire.aligned")                                     \
    X(LDMATRIX, "ldmatrix.sync.aligned.m8n8.x4.shared.b16")                                        \
    X(LDMATRIX_T, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")                                \
    X(MMA_BF16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")                             \
    X(MMA_F16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")                                \
    X(WGMMA_FENCE, "wgmma.fence.sync.aligned")                                                     \
    X(WGMMA_COMMIT, "wgmma.commit_group.sync.aligned")                                             \
    X(WGMMA_WAIT, "wgmma.wait_group.sync.aligned")                                                 \
    X(REGS_INC, "setmaxnreg.inc.sync.aligned.u32")                                                 \
    X(REGS_DEC, "setmaxnreg.dec.sync.aligned.u32")                                                 \
    X(DEP_WAIT, "griddepcontrol.wait")                                                             \
    X(DEP_LAUNCH, "griddepcontrol.launch_dependents")

typedef enum PtxOp {
#define X(id, text) PTX_##id,
    PTX_FAMILY_LIST(X) PTX_EXACT_LIST(X)
#undef X
        PTX_WGMMA,
} PtxOp;

/* X(ID, bits, name) */
#define PTX_TYPE_LIST(X)                                                                           \
    X(NONE, 0, "") X(PRED, 1, "pred")                                                              \
    X(B8, 8, "b8") X(B16, 16, "b16") X(B32, 32, "b32") X(B64, 64, "b64")                           \
    X(U8, 8, "u8") X(U16, 16, "u16") X(U32, 32, "u32") X(U64, 64, "u64")                           \
    X(S8, 8, "s8") X(S16, 16, "s16") X(S32, 32, "s32") X(S64, 64, "s64")                           \
    X(BF16, 16, "bf16") X(F16, 16, "f16") X(F32, 32, "f32")

typedef enum PtxType {
#define X(id, bits, name) PTX_T_##id,
    PTX_TYPE_LIST(X)
#undef X
        PTX_TYPES
} PtxType;

/* With PTX_UNORDERED: true of a NaN too. */
typedef enum PtxCompare {
    PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_UNORDERED = 8,
} PtxCompare;
typedef enum PtxSpace {
    PTX_NO_SPACE, PTX_GLOBAL, PTX_SHARED, PTX_PARAM, PTX_CONSTANT, PTX_LOCAL,
} PtxSpace;
typedef enum PtxSpecial {
    PTX_TID_X, PTX_TID_Y, PTX_TID_Z, PTX_NTID_X, PTX_NTID_Y, PTX_NTID_Z, PTX_CTAID_X, PTX_CTAID_Y,
    PTX_CTAID_Z, PTX_NCTAID_X, PTX_NCTAID_Y, PTX_NCTAID_Z, PTX_LANEID, PTX_RANK, PTX_SPECIALS,
} PtxSpecial;

enum { PTX_FLAG_RN = 1, PTX_FLAG_RZI = 2, PTX_FLAG_LO = 4, PTX_FLAG_HI = 8, PTX_FLAG_WIDE = 16,
       PTX_FLAG_NAN = 32, PTX_FLAG_UNI = 64, PTX_FLAG_CACHE = 128, PTX_FLAG_CMP = 256,
       PTX_FLAG_SPACE = 512, PTX_FLAG_VEC = 1024 };

typedef enum PtxArgKind { PTX_REG, PTX_IMM, PTX_ADDR, PTX_SINK } PtxArgKind;

/* One operand, vectors being several in a row. ADDR: the base's row and the constant added. */
typedef struct PtxArg {
    u8 kind;
    u8 width; /* of the register or base */
    u32 row;
    i64 imm;
} PtxArg;

enum { PTX_MAX_OPERANDS = 10 };

typedef struct PtxWarp PtxWarp;
typedef struct PtxCta PtxCta;
/* Runs the instruction in the lanes of `mask`; false: the CTA has a fault and stops. */
typedef bool (*PtxRun)(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);

struct PtxInst {
    PtxRun run; /* NULL for bra and ret, which the warp's loop does itself */
    u16 op, flags;
    u8 type, from; /* of the operation; of the source where that differs (cvt, mul.wide: result) */
    u8 compare, space, vec;
    bool guarded, guard_not;
    bool aligned; /* needs all lanes of the warp together */
    u8 order;     /* order.h */
    u8 n_operands;
    u16 n_args;
    u16 first[PTX_MAX_OPERANDS]; /* of each operand, in args */
    u16 count[PTX_MAX_OPERANDS];
    u32 guard; /* row */
    int target; /* of a branch: index of an instruction */
    int line;
    PtxArg *args;
};

int ptx_bits(PtxType type);
const char *ptx_op_name(PtxOp op);

/* Reads an opcode into op, flags, types, compare, space and vec. False: unknown. */
bool ptx_decode(Str opcode, PtxInst *inst);
/* Bits that an operand of a family's instruction has, and so an immediate there. */
int ptx_operand_bits(const PtxInst *inst, int operand);
/* Whether the operands, vectors flattened, are of these widths: r 16 or 32 bits, l 64, p predicate,
 * a address, s a sink or 64 bits, n an immediate, v either width. */
bool ptx_shape(const PtxInst *inst, const char *shape);
/* Chooses how it runs. False: not with these operands or types. */
bool ptx_bind(PtxInst *inst);

/* One concern each; NULL: not theirs. */
PtxRun ptx_find_integer(const PtxInst *inst);
PtxRun ptx_find_logic(const PtxInst *inst);
PtxRun ptx_find_float(const PtxInst *inst);
PtxRun ptx_find_convert(const PtxInst *inst);
PtxRun ptx_find_memory(const PtxInst *inst);
PtxRun ptx_find_barrier(const PtxInst *inst);
PtxRun ptx_find_copy(const PtxInst *inst);
PtxRun ptx_find_cluster(const PtxInst *inst);
PtxRun ptx_find_tensor(const PtxInst *inst);
PtxRun ptx_find_warp(const PtxInst *inst);
PtxRun ptx_find_order(const PtxInst *inst);

#endif
