/* Opcodes: a base with types and flags in a row, or a text that is one thing. */
#include "inst.h"

#include <string.h>

int ptx_bits(PtxType type)
{
    static const int bits[] = {
#define X(id, n, name) n,
        PTX_TYPE_LIST(X)
#undef X
    };
    return bits[type];
}

const char *ptx_op_name(PtxOp op)
{
    static const char *const names[] = {
#define X(id, text) text,
        PTX_FAMILY_LIST(X) PTX_EXACT_LIST(X)
#undef X
            "wgmma.mma_async",
    };
    return names[op];
}

/* ---- modifiers --------------------------------------------------------------------------------
 */

typedef struct Modifier {
    const char *name;
    u16 flag;
    u8 value;
} Modifier;

static const Modifier modifiers[] = {
    {"rn", PTX_FLAG_RN, 0},         {"rzi", PTX_FLAG_RZI, 0},
    {"lo", PTX_FLAG_LO, 0},         {"hi", PTX_FLAG_HI, 0},
    {"wide", PTX_FLAG_WIDE, 0},     {"NaN", PTX_FLAG_NAN, 0},
    {"uni", PTX_FLAG_UNI, 0},       {"cg", PTX_FLAG_CACHE, 0},
    {"nc", PTX_FLAG_CACHE, 0},
    {"eq", PTX_FLAG_CMP, PTX_EQ},   {"ne", PTX_FLAG_CMP, PTX_NE},
    {"lt", PTX_FLAG_CMP, PTX_LT},   {"le", PTX_FLAG_CMP, PTX_LE},
    {"gt", PTX_FLAG_CMP, PTX_GT},   {"ge", PTX_FLAG_CMP, PTX_GE},
    {"equ", PTX_FLAG_CMP, PTX_EQ | PTX_UNORDERED}, {"neu", PTX_FLAG_CMP, PTX_NE | PTX_UNORDERED},
    {"ltu", PTX_FLAG_CMP, PTX_LT | PTX_UNORDERED}, {"leu", PTX_FLAG_CMP, PTX_LE | PTX_UNORDERED},
    {"gtu", PTX_FLAG_CMP, PTX_GT | PTX_UNORDERED}, {"geu", PTX_FLAG_CMP, PTX_GE | PTX_UNORDERED},
    {"global", PTX_FLAG_SPACE, PTX_GLOBAL}, {"shared", PTX_FLAG_SPACE, PTX_SHARED},
    {"param", PTX_FLAG_SPACE, PTX_PARAM}, {"const", PTX_FLAG_SPACE, PTX_CONSTANT},
    {"local", PTX_FLAG_SPACE, PTX_LOCAL},
    {"v2", PTX_FLAG_VEC, 2},        {"v4", PTX_FLAG_VEC, 4},
};

static PtxType find_type(Str word)
{
    static const char *const names[] = {
#define X(id, n, name) name,
        PTX_TYPE_LIST(X)
#undef X
    };
    for (int t = 1; t < PTX_TYPES; t++)
        if (str_is(word, names[t]))
            return (PtxType)t;
    return PTX_T_NONE;
}

static bool take_modifier(Str word, PtxInst *inst)
{
    for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
        const Modifier *m = &modifiers[i];
        if (!str_is(word, m->name))
            continue;
        if (inst->flags & m->flag)
            return false;
        inst->flags |= m->flag;
        if (m->flag == PTX_FLAG_CMP)
            inst->compare = m->value;
        if (m->flag == PTX_FLAG_SPACE)
            inst->space = m->value;
        if (m->flag == PTX_FLAG_VEC)
            inst->vec = m->value;
        return true;
    }
    PtxType type = find_type(word);
    if (!type || inst->from)
        return false;
    if (inst->type)
        inst->from = (u8)type;
    else
        inst->type = (u8)type;
    return true;
}

/* ---- what a base takes ------------------------------------------------------------------------
 */

#define T(id) (1u << PTX_T_##id)
#define INT16 (T(U16) | T(S16))
#define INT32 (T(U32) | T(S32))
#define INT64 (T(U64) | T(S64))
#define INTS (INT16 | INT32 | INT64)
#define BITS (T(B16) | T(B32) | T(B64))
#define PLAIN (INTS | BITS | T(F32))

typedef struct Family {
    PtxOp op;
    u32 types;    /* that may stand first; 0: none does */
    u16 may, must;
    bool two;     /* types */
} Family;

static const Family families[] = {
    {PTX_ADD, INTS | T(F32), PTX_FLAG_RN, 0, false},
    {PTX_SUB, INTS | T(F32), PTX_FLAG_RN, 0, false},
    {PTX_MUL, INTS | T(F32), PTX_FLAG_RN | PTX_FLAG_LO | PTX_FLAG_HI | PTX_FLAG_WIDE, 0, false},
    {PTX_MAD, INTS, PTX_FLAG_LO | PTX_FLAG_WIDE, 0, false},
    {PTX_DIV, INTS | T(F32), PTX_FLAG_RN, 0, false},
    {PTX_REM, INTS, 0, 0, false},
    {PTX_MIN, INTS | T(F32), PTX_FLAG_NAN, 0, false},
    {PTX_MAX, INTS | T(F32), PTX_FLAG_NAN, 0, false},
    {PTX_NEG, T(S16) | T(S32) | T(S64), 0, 0, false},
    {PTX_ABS, T(S16) | T(S32) | T(S64), 0, 0, false},
    {PTX_FMA, T(F32), PTX_FLAG_RN, PTX_FLAG_RN, false},
    {PTX_SQRT, T(F32), PTX_FLAG_RN, PTX_FLAG_RN, false},
    {PTX_AND, BITS | T(PRED), 0, 0, false},
    {PTX_OR, BITS | T(PRED), 0, 0, false},
    {PTX_XOR, BITS | T(PRED), 0, 0, false},
    {PTX_NOT, BITS | T(PRED), 0, 0, false},
    {PTX_SHL, BITS, 0, 0, false},
    {PTX_SHR, BITS | INTS, 0, 0, false},
    {PTX_BFI, T(B32) | T(B64), 0, 0, false},
    {PTX_BFE, INT32 | INT64, 0, 0, false},
    {PTX_PRMT, T(B32), 0, 0, false},
    {PTX_POPC, T(B32) | T(B64), 0, 0, false},
    {PTX_CLZ, T(B32) | T(B64), 0, 0, false},
    {PTX_MOV, PLAIN | T(PRED), 0, 0, false},
    {PTX_CVT, INTS | T(F32) | T(F16) | T(BF16) | T(U8) | T(S8), PTX_FLAG_RN | PTX_FLAG_RZI, 0,
     true},
    {PTX_SETP, PLAIN, PTX_FLAG_CMP, PTX_FLAG_CMP, false},
    {PTX_SELP, PLAIN, 0, 0, false},
    {PTX_LD, PLAIN | T(U8) | T(S8) | T(B8), PTX_FLAG_SPACE | PTX_FLAG_VEC | PTX_FLAG_CACHE,
     PTX_FLAG_SPACE, false},
    {PTX_ST, PLAIN | T(U8) | T(S8) | T(B8), PTX_FLAG_SPACE | PTX_FLAG_VEC | PTX_FLAG_CACHE,
     PTX_FLAG_SPACE, false},
    {PTX_BRA, 0, PTX_FLAG_UNI, 0, false},
    {PTX_RET, 0, 0, 0, false},
    {PTX_TRAP, 0, 0, 0, false},
};

/* Rounding is always written where an operation rounds: what ptxas may contract is no contract. */
static bool rounds_as_written(const PtxInst *inst)
{
    bool real = inst->type == PTX_T_F32;
    u16 width = inst->flags & (PTX_FLAG_LO | PTX_FLAG_HI | PTX_FLAG_WIDE);
    switch (inst->op) {
    case PTX_ADD:
    case PTX_SUB:
    case PTX_DIV:
        return real == !!(inst->flags & PTX_FLAG_RN);
    case PTX_MUL:
        return real ? inst->flags == PTX_FLAG_RN : width && !(width & (width - 1)) &&
                                                       inst->flags == width;
    case PTX_MAD:
        return width == PTX_FLAG_LO || width == PTX_FLAG_WIDE;
    case PTX_MIN:
        return real == !!(inst->flags & PTX_FLAG_NAN);
    case PTX_MAX:
        return real || !(inst->flags & PTX_FLAG_NAN);
    default:
        return true;
    }
}

static bool decode_family(const Family *family, Str rest, PtxInst *inst)
{
    inst->op = (u16)family->op;
    while (rest.n) {
        int n = 1;
        while (n < rest.n && rest.s[n] != '.')
            n++;
        if (rest.s[0] != '.' || !take_modifier((Str){rest.s + 1, n - 1}, inst))
            return false;
        rest = (Str){rest.s + n, rest.n - n};
    }
    bool typed = family->types ? family->types >> inst->type & 1 : inst->type == PTX_T_NONE;
    return typed && !(inst->flags & ~family->may) &&
           (inst->flags & family->must) == family->must && family->two == (inst->from != 0) &&
           rounds_as_written(inst);
}

/* wgmma.mma_async.sync.aligned.m64n<N>k16.f32.T.T */
static bool decode_wgmma(Str opcode, PtxInst *inst)
{
    static const char head[] = "wgmma.mma_async.sync.aligned.m64n";
    int at = (int)sizeof head - 1, n = 0;
    if (opcode.n < at || memcmp(opcode.s, head, (size_t)at) != 0)
        return false;
    for (; at < opcode.n && opcode.s[at] >= '0' && opcode.s[at] <= '9' && n < 1000; at++)
        n = n * 10 + opcode.s[at] - '0';
    Str rest = {opcode.s + at, opcode.n - at};
    inst->op = PTX_WGMMA;
    inst->vec = (u8)(n / 8);
    inst->type = str_is(rest, "k16.f32.bf16.bf16") ? PTX_T_BF16
                 : str_is(rest, "k16.f32.f16.f16") ? PTX_T_F16
                                                   : PTX_T_NONE;
    return n % 8 == 0 && n >= 8 && n <= 256 && inst->type;
}

static bool decode_exact(Str opcode, PtxInst *inst)
{
    static const struct {
        const char *text;
        PtxOp op;
    } table[] = {
#define X(id, text) {text, PTX_##id},
        PTX_EXACT_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_is(opcode, table[i].text)) {
            inst->op = (u16)table[i].op;
            return true;
        }
    return false;
}

static bool decode_any(Str opcode, PtxInst *inst)
{
    if (decode_exact(opcode, inst) || decode_wgmma(opcode, inst))
        return true;
    int n = 0;
    while (n < opcode.n && opcode.s[n] != '.')
        n++;
    Str base = {opcode.s, n}, rest = {opcode.s + n, opcode.n - n};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (str_is(base, ptx_op_name(families[i].op)))
            return decode_family(&families[i], rest, inst);
    return false;
}

/* Instructions of a whole warp. */
static bool is_aligned(PtxOp op)
{
    switch (op) {
    case PTX_BAR:
    case PTX_BAR_ARRIVE:
    case PTX_BAR_WARP:
    case PTX_CLUSTER_ARRIVE:
    case PTX_CLUSTER_RELEASE:
    case PTX_CLUSTER_WAIT:
    case PTX_CLUSTER_ACQUIRE:
    case PTX_SHFL_DOWN:
    case PTX_SHFL_UP:
    case PTX_SHFL_BFLY:
    case PTX_SHFL_IDX:
    case PTX_BALLOT:
    case PTX_REDUX_MAX:
    case PTX_REDUX_MIN:
    case PTX_ELECT:
    case PTX_LDMATRIX:
    case PTX_LDMATRIX_T:
    case PTX_MMA_BF16:
    case PTX_MMA_F16:
    case PTX_WGMMA:
    case PTX_WGMMA_FENCE:
    case PTX_WGMMA_COMMIT:
    case PTX_WGMMA_WAIT:
    case PTX_REGS_INC:
    case PTX_REGS_DEC:
        return true;
    default:
        return false;
    }
}

bool ptx_decode(Str opcode, PtxInst *inst)
{
    PtxInst clean = {.guarded = inst->guarded, .guard_not = inst->guard_not, .guard = inst->guard,
                     .line = inst->line};
    *inst = clean;
    if (!decode_any(opcode, inst))
        return false;
    inst->aligned = is_aligned((PtxOp)inst->op);
    return true;
}

/* ---- operands ---------------------------------------------------------------------------------
 */

int ptx_operand_bits(const PtxInst *inst, int operand)
{
    int bits = ptx_bits((PtxType)inst->type);
    switch (inst->op) {
    case PTX_SHL:
    case PTX_SHR:
        return operand == 2 ? 32 : bits;
    case PTX_BFI:
    case PTX_BFE:
        return operand >= inst->n_operands - 2 ? 32 : bits;
    case PTX_POPC:
    case PTX_CLZ:
        return operand == 0 ? 32 : bits;
    case PTX_MUL:
    case PTX_MAD:
        return (operand == 0 || operand == 3) && inst->flags & PTX_FLAG_WIDE ? 2 * bits : bits;
    case PTX_SETP:
        return operand == 0 ? 1 : bits;
    case PTX_SELP:
        return operand == 3 ? 1 : bits;
    case PTX_CVT:
        return operand == 0 ? bits : ptx_bits((PtxType)inst->from);
    default:
        return bits ? bits : 32;
    }
}

static int kind_of_width(int bits)
{
    return bits == 1 ? 1 : bits == 64 ? 64 : 32;
}

/* Loads and stores take wider registers, and moves of pairs narrower ones: they look themselves. */
static bool widths_fit(const PtxInst *inst)
{
    if (inst->op == PTX_LD || inst->op == PTX_ST || inst->op > PTX_TRAP)
        return true;
    for (int o = 0; o < inst->n_operands; o++) {
        const PtxArg *arg = &inst->args[inst->first[o]];
        if (inst->count[o] == 1 &&
            kind_of_width(arg->width) != kind_of_width(ptx_operand_bits(inst, o)))
            return false;
    }
    return true;
}

static bool arg_fits(const PtxArg *arg, char wanted)
{
    bool value = arg->kind == PTX_REG || arg->kind == PTX_IMM;
    switch (wanted) {
    case 'r': return value && (arg->width == 32 || arg->width == 16);
    case 'l': return value && arg->width == 64;
    case 'p': return value && arg->width == 1;
    case 'v': return value && arg->width != 1;
    case 'a': return arg->kind == PTX_ADDR && arg->width != 1;
    case 's': return arg->kind == PTX_SINK || (value && arg->width == 64);
    case 'n': return arg->kind == PTX_IMM;
    default: return false;
    }
}

bool ptx_shape(const PtxInst *inst, const char *shape)
{
    int n = (int)strlen(shape);
    if (inst->n_args != n)
        return false;
    for (int i = 0; i < n; i++)
        if (!arg_fits(&inst->args[i], shape[i]))
            return false;
    return true;
}

bool ptx_bind(PtxInst *inst)
{
    static PtxRun (*const find[])(const PtxInst *) = {
        ptx_find_integer, ptx_find_logic, ptx_find_float,  ptx_find_convert, ptx_find_memory,
        ptx_find_barrier, ptx_find_copy,  ptx_find_tensor, ptx_find_warp, ptx_find_cluster,
        ptx_find_order,
    };
    if (inst->op == PTX_BRA || inst->op == PTX_RET)
        return true;
    if (!widths_fit(inst))
        return false;
    for (size_t i = 0; i < sizeof find / sizeof *find && !inst->run; i++)
        inst->run = find[i](inst);
    return inst->run != NULL;
}
