/* Registers that live within one run of instructions without a branch share rows: a warp's file is
 * then small, which is most of what a CTA's start and the memory's traffic cost. */
#include "order.h"

#include <string.h>

enum { UNSEEN = -1, ELSEWHERE = -2 }; /* blocks of a register */

/* A register, by its first row. */
typedef struct Reg {
    int block;      /* in which all of it happens */
    int first, last; /* instructions */
    u32 row;        /* that it gets */
    bool wide;
} Reg;

typedef struct Rows {
    PtxKernel *kernel;
    Arena *arena;
    Reg *reg;       /* by row / 32 */
    u8 *starts;     /* instructions at which a block begins */
    u32 words;
    VEC(u32) free[2]; /* rows of one word a lane, of two */
} Rows;

static Reg *reg_at(const Rows *r, u32 row)
{
    return &r->reg[row / PTX_WARP];
}

/* ---- where registers live -------------------------------------------------------------------- */

static void find_blocks(Rows *r)
{
    const PtxKernel *k = r->kernel;
    r->starts = arena_array(r->arena, u8, k->code.n + 1);
    for (int n = 0; n < k->code.n; n++) {
        const PtxInst *i = &k->code.v[n];
        if (i->op == PTX_BRA)
            r->starts[i->target] = 1;
        if (i->op == PTX_BRA || i->op == PTX_RET)
            r->starts[n + 1] = 1;
    }
}

/* How many of the first operands an instruction writes in each lane that runs it, at once. */
static int written(const PtxInst *i)
{
    if (i->guarded || !i->n_operands)
        return 0;
    switch (i->op) {
    case PTX_CVTA:
    case PTX_CVTA_PARAM:
    case PTX_CVTA_LOCAL:
    case PTX_CVT_BF16X2:
    case PTX_CVT_F16X2: return 1;
    case PTX_SHFL_DOWN:
    case PTX_SHFL_UP:
    case PTX_SHFL_BFLY:
    case PTX_SHFL_IDX:
    case PTX_LDMATRIX:
    case PTX_LDMATRIX_T:
    case PTX_MMA_BF16:
    case PTX_MMA_F16: return i->count[0];
    default: return i->op <= PTX_LD ? i->count[0] : 0;
    }
}

static void meet(Rows *r, const PtxArg *arg, int block, int n, bool writes)
{
    Reg *reg = reg_at(r, arg->row);
    if (arg->kind != PTX_REG && arg->kind != PTX_ADDR)
        return;
    if (reg->block == UNSEEN) {
        *reg = (Reg){.block = writes ? block : ELSEWHERE, .first = n, .wide = arg->width == 64};
    } else if (reg->block != block) {
        reg->block = ELSEWHERE;
    }
    reg->last = n;
}

/* What a product has is taken later than its instruction, and a branch's guard after its ways. */
static bool keeps(const PtxInst *i)
{
    return i->op == PTX_WGMMA;
}

static void find_lives(Rows *r)
{
    int block = 0;
    for (int n = 0; n < r->kernel->code.n; n++) {
        const PtxInst *i = &r->kernel->code.v[n];
        const PtxArg guard = {.kind = PTX_REG, .width = 1, .row = i->guard};
        int results = written(i);
        block += r->starts[n];
        if (i->guarded)
            meet(r, &guard, i->op == PTX_BRA ? ELSEWHERE : block, n, false);
        for (int a = results; a < i->n_args; a++)
            meet(r, &i->args[a], keeps(i) ? ELSEWHERE : block, n, false);
        for (int a = 0; a < results; a++)
            meet(r, &i->args[a], block, n, true);
    }
}

/* Constants and special registers are there from the start. */
static void find_fixed(Rows *r)
{
    const PtxKernel *k = r->kernel;
    for (int i = 0; i < k->consts.n; i++)
        *reg_at(r, k->consts.v[i].row) = (Reg){.block = ELSEWHERE,
                                               .wide = k->consts.v[i].width == 64};
    for (int s = 0; s < PTX_SPECIALS; s++)
        if (k->special[s])
            reg_at(r, k->special[s])->block = ELSEWHERE;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static u32 new_row(Rows *r, bool wide)
{
    u32 row = r->words;
    r->words += wide ? 2 * PTX_WARP : PTX_WARP;
    return row;
}

static void give_fixed(Rows *r)
{
    for (u32 at = 1; at < r->kernel->words / PTX_WARP; at++)
        if (r->reg[at].block == ELSEWHERE)
            r->reg[at].row = new_row(r, r->reg[at].wide);
}

/* A register gets a row where it is first written, and gives it back after its last use. */
static void give_shared(Rows *r, int n)
{
    const PtxInst *i = &r->kernel->code.v[n];
    for (int a = 0; a < i->n_args; a++) {
        Reg *reg = reg_at(r, i->args[a].row);
        bool is = i->args[a].kind == PTX_REG || i->args[a].kind == PTX_ADDR;
        if (is && reg->block >= 0 && reg->first == n && !reg->row)
            reg->row = r->free[reg->wide].n ? r->free[reg->wide].v[--r->free[reg->wide].n]
                                            : new_row(r, reg->wide);
    }
}

static void take_back(Rows *r, const PtxArg *arg, int n)
{
    Reg *reg = reg_at(r, arg->row);
    if ((arg->kind == PTX_REG || arg->kind == PTX_ADDR) && reg->block >= 0 && reg->last == n) {
        vec_push(r->arena, &r->free[reg->wide], reg->row);
        reg->last = -1;
    }
}

static void share(Rows *r)
{
    for (int n = 0; n < r->kernel->code.n; n++) {
        const PtxInst *i = &r->kernel->code.v[n];
        const PtxArg guard = {.kind = PTX_REG, .row = i->guard};
        give_shared(r, n);
        for (int a = 0; a < i->n_args; a++)
            take_back(r, &i->args[a], n);
        if (i->guarded)
            take_back(r, &guard, n);
    }
}

static void rename_all(Rows *r)
{
    PtxKernel *k = r->kernel;
    for (int n = 0; n < k->code.n; n++) {
        PtxInst *i = &k->code.v[n];
        i->guard = reg_at(r, i->guard)->row;
        for (int a = 0; a < i->n_args; a++)
            i->args[a].row = reg_at(r, i->args[a].row)->row;
    }
    for (int i = 0; i < k->consts.n; i++)
        k->consts.v[i].row = reg_at(r, k->consts.v[i].row)->row;
    for (int s = 0; s < PTX_SPECIALS; s++)
        k->special[s] = reg_at(r, k->special[s])->row;
    k->words = r->words;
}

void ptx_share_rows(PtxKernel *k, Arena *arena)
{
    Rows r = {.kernel = k, .arena = arena, .words = PTX_WARP};
    r.reg = arena_array(arena, Reg, k->words / PTX_WARP + 1);
    for (u32 at = 0; at < k->words / PTX_WARP + 1; at++)
        r.reg[at].block = UNSEEN;
    find_fixed(&r);
    find_blocks(&r);
    find_lives(&r);
    r.reg[0] = (Reg){.block = UNSEEN}; /* row 0 is nobody's */
    give_fixed(&r);
    share(&r);
    rename_all(&r);
    k->product_row = NULL;
    ptx_order_mark(k, arena);
}
