/* Waiting for the grid before, fences of registers, and their numbers. */
#include "order.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

enum { REGISTERS = 65536, STEP = 8 };

/* ---- what to look at ------------------------------------------------------------------------- */

static bool touches_global(const PtxInst *i)
{
    switch (i->op) {
    case PTX_LD:
    case PTX_ST: return i->space == PTX_GLOBAL;
    case PTX_ATOM_INC:
    case PTX_ATOM_ADD:
    case PTX_CP_ASYNC:
    case PTX_TMA_3D:
    case PTX_TMA_4D:
    case PTX_TMA_3D_ALL: return true;
    default: return false;
    }
}

/* Registers that a product reads or writes: accumulators, and perhaps the left operand. */
static int product_registers(const PtxInst *i)
{
    int n = i->vec * 4;
    return i->n_args == n + 9 ? n + 4 : n;
}

static bool names_product(const PtxKernel *k, const PtxInst *i)
{
    bool any = false;
    for (int a = 0; a < i->n_args; a++)
        any |= i->args[a].kind != PTX_SINK && k->product_row[i->args[a].row / PTX_WARP];
    return any;
}

void ptx_order_mark(PtxKernel *k, Arena *arena)
{
    for (int n = 0; n < k->code.n; n++) {
        PtxInst *i = &k->code.v[n];
        i->order = touches_global(i) ? PTX_ORDER_GLOBAL : 0;
        if (i->op != PTX_WGMMA)
            continue;
        if (!k->product_row)
            k->product_row = arena_array(arena, u8, k->words / PTX_WARP + 1);
        for (int a = 0; a < product_registers(i); a++)
            k->product_row[i->args[a].row / PTX_WARP] = 1;
    }
    for (int n = 0; k->product_row && n < k->code.n; n++)
        if (names_product(k, &k->code.v[n]))
            k->code.v[n].order |= PTX_ORDER_PRODUCT;
}

/* ---- a CTA ----------------------------------------------------------------------------------- */

void ptx_order_open(PtxCta *c, PtxWarp *w)
{
    if (c->launch->kernel->product_row)
        w->unfenced = arena_array(c->arena, u8, c->launch->kernel->words / PTX_WARP + 1);
}

void ptx_order_start(PtxCta *c, PtxWarp *w)
{
    const PtxKernel *k = c->launch->kernel;
    u32 each = REGISTERS / ((u32)c->n_warps * PTX_WARP) / STEP * STEP;
    w->waited = c->launch->early ? 0 : 0xffffffffu;
    w->registers = each;
    w->fenced = false;
    c->registers = REGISTERS - each * (u32)c->n_warps * PTX_WARP;
    if (w->unfenced)
        memset(w->unfenced, 0, k->words / PTX_WARP + 1);
}

/* A product takes its registers after a fence behind all else that touched them. */
static bool fenced(PtxCta *c, PtxWarp *w, const PtxInst *i)
{
    if (!w->fenced)
        return ptx_fault(c, i, "no wgmma.fence is before the first product");
    for (int a = 0; a < product_registers(i); a++)
        if (w->unfenced[i->args[a].row / PTX_WARP])
            return ptx_fault(c, i, "operand %d was used since the last wgmma.fence", a);
    return true;
}

static void note(PtxWarp *w, const PtxKernel *k, const PtxInst *i)
{
    for (int a = 0; a < i->n_args; a++)
        if (i->args[a].kind != PTX_SINK)
            w->unfenced[i->args[a].row / PTX_WARP] = k->product_row[i->args[a].row / PTX_WARP];
}

bool ptx_order_check(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    if (i->order & PTX_ORDER_GLOBAL && mask & ~w->waited)
        return ptx_fault(c, i, "touches memory before it has waited for the grid before");
    if (!(i->order & PTX_ORDER_PRODUCT))
        return true;
    if (i->op == PTX_WGMMA)
        return fenced(c, w, i);
    note(w, c->launch->kernel, i);
    return true;
}

/* ---- instructions ---------------------------------------------------------------------------- */

RUN(wait_grid)
{
    (void)c, (void)i;
    w->waited |= mask;
    return true;
}

RUN(fence_registers)
{
    (void)i, (void)mask;
    w->fenced = true;
    if (w->unfenced)
        memset(w->unfenced, 0, c->launch->kernel->words / PTX_WARP + 1);
    return true;
}

static bool take(PtxCta *c, PtxWarp *w)
{
    u32 more = w->registers_wanted > w->registers
                   ? (w->registers_wanted - w->registers) * PTX_WARP : 0;
    if (more > c->registers)
        return false;
    c->registers = c->registers + w->registers * PTX_WARP - w->registers_wanted * PTX_WARP;
    w->registers = w->registers_wanted;
    c->changes++;
    return true;
}

RUN(set_registers)
{
    (void)mask;
    u64 n = (u64)i->args[0].imm;
    if (n % STEP || n < 24 || n > 256)
        return ptx_fault(c, i, "%llu registers", (unsigned long long)n);
    w->registers_wanted = (u32)n;
    if (!take(c, w))
        w->wait = PTX_AT_REGISTERS;
    return true;
}

void ptx_order_release(PtxCta *c)
{
    for (int k = 0; k < c->n_warps; k++)
        if (c->warps[k].wait == PTX_AT_REGISTERS && take(c, &c->warps[k]))
            c->warps[k].wait = PTX_READY;
}

PtxRun ptx_find_order(const PtxInst *i)
{
    switch (i->op) {
    case PTX_DEP_WAIT: return i->n_args == 0 ? wait_grid : NULL;
    case PTX_WGMMA_FENCE: return i->n_args == 0 ? fence_registers : NULL;
    case PTX_REGS_INC:
    case PTX_REGS_DEC: return ptx_shape(i, "n") ? set_registers : NULL;
    default: return NULL;
    }
}
