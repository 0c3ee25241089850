/* The flow of block indices through registers, whatever the order of instructions; through shared
 * memory and a thread's own as if each were one place. */
#include "blocks.h"

typedef struct Flow {
    const PtxKernel *kernel;
    bool *block; /* by row of the registers' file: a block index reached it */
    bool stored[PTX_LOCAL + 1]; /* by space */
    bool changed;
    int line;
} Flow;

static bool has(const Flow *f, const PtxInst *i, int first, int end)
{
    for (int k = first; k < end && k < i->n_args; k++)
        if ((i->args[k].kind == PTX_REG || i->args[k].kind == PTX_ADDR) &&
            f->block[i->args[k].row])
            return true;
    return false;
}

static void mark(Flow *f, const PtxInst *i, int n)
{
    for (int k = 0; k < n && k < i->n_args; k++) {
        bool *at = &f->block[i->args[k].row];
        f->changed |= i->args[k].kind == PTX_REG && !*at;
        *at |= i->args[k].kind == PTX_REG;
    }
}

static void reach(Flow *f, const PtxInst *i)
{
    if (!f->line || i->line < f->line)
        f->line = i->line;
}

static bool is_real(u8 type)
{
    return type == PTX_T_F32 || type == PTX_T_F16 || type == PTX_T_BF16;
}

static void load(Flow *f, const PtxInst *i)
{
    if (f->stored[i->space] && !is_real(i->type))
        mark(f, i, i->vec ? i->vec : 1);
}

static void store(Flow *f, const PtxInst *i)
{
    if (!has(f, i, 1, i->n_args))
        return;
    f->changed |= !f->stored[i->space];
    f->stored[i->space] = true;
    if (i->space == PTX_GLOBAL)
        reach(f, i);
}

/* A selection's predicate is a bound; comparisons give bounds. */
static void compute(Flow *f, const PtxInst *i)
{
    int results = i->n_operands ? i->count[0] : 0;
    if (i->op == PTX_SETP || !has(f, i, results, i->op == PTX_SELP ? 3 : i->n_args))
        return;
    if (is_real(i->type) && i->op != PTX_MOV && i->op != PTX_SELP)
        reach(f, i);
    else if (i->type != PTX_T_PRED)
        mark(f, i, results);
}

static void follow(Flow *f, const PtxInst *i)
{
    switch (i->op) {
    case PTX_LD: load(f, i); break;
    case PTX_ST: store(f, i); break;
    case PTX_SHFL_DOWN:
    case PTX_SHFL_UP:
    case PTX_SHFL_BFLY:
    case PTX_SHFL_IDX:
    case PTX_CVTA:
    case PTX_CVTA_PARAM:
    case PTX_CVTA_LOCAL:
    case PTX_MAPA:
        if (has(f, i, 1, i->n_args))
            mark(f, i, 1);
        break;
    case PTX_MMA_BF16:
    case PTX_MMA_F16:
        if (has(f, i, 4, i->n_args))
            reach(f, i);
        break;
    case PTX_SEND:
        if (has(f, i, 1, 5))
            reach(f, i);
        break;
    default:
        if (i->op <= PTX_TRAP)
            compute(f, i);
    }
}

int ptx_block_reaches(const PtxKernel *k, Arena *arena)
{
    static const PtxSpecial sources[] = {PTX_CTAID_X, PTX_CTAID_Y, PTX_CTAID_Z, PTX_RANK};
    Flow f = {.kernel = k, .block = arena_array(arena, bool, k->words + 1), .changed = true};
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++)
        f.block[k->special[sources[s]]] = k->special[sources[s]] != 0;
    while (f.changed) {
        f.changed = false;
        for (int i = 0; i < k->code.n; i++)
            follow(&f, &k->code.v[i]);
    }
    return f.line;
}
