/* Registers' declarations, and the operands of an instruction. */
#include "parse.h"

#include <string.h>

/* Rows begin at multiples of 32 words, so that loops over lanes may use vector instructions. */
u32 ptx_take_words(PtxParse *p, u32 words)
{
    u32 row = p->kernel->words;
    if (words > (1u << 24) || row > (1u << 24))
        ptx_fail(p, "too many registers");
    p->kernel->words += (words + 31) / 32 * 32;
    return row;
}

static u32 words_of(int width)
{
    return width == 64 ? 2 * PTX_WARP : PTX_WARP;
}

static int width_of(Str type)
{
    static const struct {
        const char *name;
        int width;
    } widths[] = {{".pred", 1}, {".b16", 16}, {".u16", 16}, {".s16", 16}, {".b32", 32},
                  {".u32", 32}, {".s32", 32}, {".f32", 32}, {".b64", 64}, {".u64", 64},
                  {".s64", 64}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (str_is(type, widths[i].name))
            return widths[i].width;
    return 0;
}

/* After ".reg". */
void ptx_declare_regs(PtxParse *p)
{
    Str type = ptx_word(p);
    int width = width_of(type);
    if (!width)
        ptx_fail(p, "registers of type %.*s", STR_FMT(type));
    do {
        PtxRegs regs = {.prefix = ptx_word(p), .count = -1, .width = (u8)width};
        u64 n = 1;
        if (ptx_eat(p, '<')) {
            if (!ptx_number(p, &n) || n == 0 || n > 1000000)
                ptx_fail(p, "a range of registers without a count");
            regs.count = (int)n;
            ptx_need(p, '>');
        }
        if (!regs.prefix.n)
            ptx_fail(p, "a register without a name");
        regs.row = ptx_take_words(p, (u32)n * words_of(width));
        vec_push(p->arena, &p->regs, regs);
    } while (ptx_eat(p, ','));
    ptx_need(p, ';');
}

/* The number at a name's end, or -1. */
static int trailing(Str name, int prefix)
{
    int n = 0;
    if (name.n == prefix || name.n - prefix > 7)
        return -1;
    for (int i = prefix; i < name.n; i++) {
        if (name.s[i] < '0' || name.s[i] > '9')
            return -1;
        n = n * 10 + name.s[i] - '0';
    }
    return n;
}

const PtxRegs *ptx_find_reg(const PtxParse *p, Str name, u32 *row)
{
    for (int i = p->regs.n; i-- > 0;) {
        const PtxRegs *r = &p->regs.v[i];
        *row = r->row;
        if (r->count < 0 && str_eq(r->prefix, name))
            return r;
        if (r->count < 0 || name.n <= r->prefix.n ||
            memcmp(name.s, r->prefix.s, (size_t)r->prefix.n) != 0)
            continue;
        int n = trailing(name, r->prefix.n);
        *row += (u32)n * words_of(r->width);
        if (n >= 0 && n < r->count)
            return r;
    }
    return NULL;
}

/* ---- constants and names ---------------------------------------------------------------------
 */

static u32 constant_row(PtxParse *p, u64 bits, int width)
{
    PtxKernel *k = p->kernel;
    if (width == 1)
        bits = bits ? 0xffffffffu : 0;
    else if (width < 64)
        bits &= ((u64)1 << width) - 1;
    int row_width = width == 1 ? 1 : width == 64 ? 64 : 32;
    for (int i = 0; i < k->consts.n; i++)
        if (k->consts.v[i].bits == bits && k->consts.v[i].width == row_width)
            return k->consts.v[i].row;
    PtxConst c = {bits, ptx_take_words(p, words_of(row_width)), (u8)row_width};
    vec_push(p->arena, &k->consts, c);
    return c.row;
}

static bool special_row(PtxParse *p, Str name, u32 *row)
{
    static const char *const names[] = {"%tid.x",   "%tid.y",    "%tid.z",    "%ntid.x",
                                        "%ntid.y",  "%ntid.z",   "%ctaid.x",  "%ctaid.y",
                                        "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
                                        "%laneid",  "%cluster_ctarank"};
    for (int i = 0; i < PTX_SPECIALS; i++)
        if (str_is(name, names[i])) {
            if (!p->kernel->special[i])
                p->kernel->special[i] = ptx_take_words(p, PTX_WARP);
            *row = p->kernel->special[i];
            return true;
        }
    return false;
}

static bool symbol_address(PtxParse *p, Str name, u64 *address)
{
    const PtxKernel *k = p->kernel;
    for (int i = 0; i < k->n_params; i++)
        if (str_eq(k->params[i].name, name)) {
            *address = PTX_PARAM_BASE + k->params[i].offset;
            return true;
        }
    for (int own = 0; own < 2; own++) {
        const PtxShared *v = own ? p->local.v : p->constants.v;
        for (int i = 0; i < (own ? p->local.n : p->constants.n); i++)
            if (str_eq(v[i].name, name)) {
                *address = (own ? PTX_LOCAL_BASE : PTX_CONSTANT_BASE) + v[i].address;
                return true;
            }
    }
    for (int own = 0; own < 2; own++) {
        const PtxShared *v = own ? p->own_shared.v : p->shared.v;
        int n = own ? p->own_shared.n : p->shared.n;
        for (int i = 0; i < n; i++)
            if (str_eq(v[i].name, name)) {
                *address = v[i].dynamic ? ptx_dynamic_place(p) : v[i].address;
                return true;
            }
    }
    return false;
}

/* ---- operands --------------------------------------------------------------------------------
 */

enum { MOST_ARGS = 192 };

typedef struct Args {
    PtxArg v[MOST_ARGS];
    int n;
} Args;

static PtxArg *new_arg(PtxParse *p, Args *args)
{
    if (args->n == MOST_ARGS)
        ptx_fail(p, "too many operands");
    args->v[args->n] = (PtxArg){0};
    return &args->v[args->n++];
}

/* A register, an immediate, an address as a value, or `_`. */
static void read_value(PtxParse *p, Args *args)
{
    PtxArg *arg = new_arg(p, args);
    u64 bits;
    if (ptx_number(p, &bits)) {
        *arg = (PtxArg){.kind = PTX_IMM, .imm = (i64)bits};
        return;
    }
    Str name = ptx_word(p);
    if (str_is(name, "_")) {
        arg->kind = PTX_SINK;
        return;
    }
    const PtxRegs *r = ptx_find_reg(p, name, &arg->row);
    if (r) {
        arg->width = r->width;
    } else if (special_row(p, name, &arg->row)) {
        arg->width = 32;
    } else if (symbol_address(p, name, &bits)) {
        *arg = (PtxArg){.kind = PTX_IMM, .imm = (i64)bits};
    } else {
        ptx_fail(p, "unknown name %.*s", STR_FMT(name));
    }
}

static void read_list(PtxParse *p, Args *args)
{
    do
        read_value(p, args);
    while (ptx_eat(p, ','));
    ptx_need(p, '}');
}

/* [base], [base+n], [base, {a, b, c}] */
static void read_address(PtxParse *p, Args *args)
{
    int at = args->n;
    read_value(p, args);
    PtxArg *base = &args->v[at];
    u64 more = 0;
    if (ptx_eat(p, '+') && !ptx_number(p, &more))
        ptx_fail(p, "an address of an unknown form");
    if (base->kind == PTX_IMM)
        *base = (PtxArg){.row = constant_row(p, (u64)base->imm, 64), .width = 64};
    base->kind = PTX_ADDR;
    base->imm = (i64)more;
    if (ptx_eat(p, ',')) {
        ptx_need(p, '{');
        read_list(p, args);
    }
    ptx_need(p, ']');
}

static void read_operand(PtxParse *p, Args *args)
{
    if (ptx_eat(p, '{')) {
        read_list(p, args);
    } else if (ptx_eat(p, '[')) {
        read_address(p, args);
    } else {
        read_value(p, args);
        if (ptx_eat(p, '|'))
            read_value(p, args);
    }
}

static void give_rows(PtxParse *p, PtxInst *inst)
{
    for (int o = 0; o < inst->n_operands; o++)
        for (int i = 0; i < inst->count[o]; i++) {
            PtxArg *arg = &inst->args[inst->first[o] + i];
            if (arg->kind != PTX_IMM)
                continue;
            arg->width = (u8)ptx_operand_bits(inst, o);
            arg->row = constant_row(p, (u64)arg->imm, arg->width);
        }
}

void ptx_read_operands(PtxParse *p, PtxInst *inst)
{
    Args args = {.n = 0};
    while (!ptx_peek(p, ';')) {
        if (inst->n_operands == PTX_MAX_OPERANDS)
            ptx_fail(p, "too many operands");
        int o = inst->n_operands++;
        inst->first[o] = (u16)args.n;
        read_operand(p, &args);
        inst->count[o] = (u16)(args.n - inst->first[o]);
        if (!ptx_eat(p, ','))
            break;
    }
    ptx_need(p, ';');
    inst->n_args = (u16)args.n;
    inst->args = arena_array(p->arena, PtxArg, args.n + 1);
    memcpy(inst->args, args.v, (size_t)args.n * sizeof *args.v);
    give_rows(p, inst);
}
