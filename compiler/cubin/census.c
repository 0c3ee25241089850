/* Counts of SASS opcodes and of PTX instructions, kernel by kernel. */
#include "census.h"

#include "cubin.h"
#include "ptx/inst.h"

#include <string.h>

/* X(ID, name, the opcode's low nine bits) */
#define COUNTED(X)                                                                                 \
    X(FADD, "FADD", 0x021)                                                                         \
    X(FMUL, "FMUL", 0x020)                                                                         \
    X(FFMA, "FFMA", 0x023)                                                                         \
    X(HMMA, "HMMA", 0x03c)                                                                         \
    X(MUFU, "MUFU", 0x108)

enum {
#define X(id, name, code) id,
    COUNTED(X)
#undef X
    KINDS
};

typedef struct Counts {
    int n[KINDS];
} Counts;

static const char *const names[] = {
#define X(id, name, code) name,
    COUNTED(X)
#undef X
};

/* ---- the cubin ---------------------------------------------------------------------------------
 */

enum { INSTRUCTION = 16, OPCODE = 0x1ff };

static Counts count_code(const Cubin *cubin, const Section *section)
{
    static const int codes[] = {
#define X(id, name, code) code,
        COUNTED(X)
#undef X
    };
    Counts c = {{0}};
    const char *code = cubin->bytes.s + section->offset;
    for (u64 at = 0; at + INSTRUCTION <= section->size; at += INSTRUCTION)
        for (int k = 0; k < KINDS; k++)
            c.n[k] += (int)(load64(code + at) & OPCODE) == codes[k];
    return c;
}

/* ---- the PTX -----------------------------------------------------------------------------------
 */

/* What ptxas 13.0 makes of an operation: for each one, and once for the first, which stands for the
 * path of operands that are no ordinary numbers. A constant divisor needs no MUFU. */
typedef struct Expansion {
    Counts each, once;
} Expansion;

static const Expansion division = {.each = {.n = {[FFMA] = 5, [MUFU] = 1}},
                                   .once = {.n = {[FFMA] = 12, [FADD] = 2, [MUFU] = 2}}};
static const Expansion root = {.each = {.n = {[FFMA] = 2, [FMUL] = 2, [MUFU] = 1}},
                               .once = {.n = {[FFMA] = 3, [FMUL] = 3, [FADD] = 2, [MUFU] = 1}}};
static const Expansion short_division = {.each = {.n = {[FMUL] = 3, [MUFU] = 1}}};
static const Expansion integer_division = {.each = {.n = {[MUFU] = 1}}};
static const Expansion long_division = {.each = {.n = {[MUFU] = 2}}};

static void expand(Counts *c, const Expansion *expansion, int times)
{
    for (int k = 0; times && k < KINDS; k++)
        c->n[k] += expansion->each.n[k] * times + expansion->once.n[k];
}

static Counts expected_of(const PtxKernel *kernel)
{
    Counts c = {{0}};
    int divisions = 0, roots = 0, shorts = 0, integers = 0, longs = 0;
    for (int i = 0; i < kernel->code.n; i++) {
        const PtxInst *inst = &kernel->code.v[i];
        bool real = inst->type == PTX_T_F32;
        switch (inst->op) {
        case PTX_ADD:
        case PTX_SUB: c.n[FADD] += real; break;
        case PTX_MUL: c.n[FMUL] += real; break;
        case PTX_FMA: c.n[FFMA]++; break;
        case PTX_SQRT: roots++; break;
        case PTX_EX2: c.n[MUFU]++; break;
        case PTX_DIV:
        case PTX_REM:
            divisions += real;
            shorts += ptx_bits((PtxType)inst->type) == 16;
            longs += ptx_bits((PtxType)inst->type) == 64;
            integers += !real && ptx_bits((PtxType)inst->type) == 32;
            break;
        case PTX_MMA_BF16:
        case PTX_MMA_F16: c.n[HMMA]++; break;
        default: break;
        }
    }
    expand(&c, &division, divisions);
    expand(&c, &root, roots);
    expand(&c, &short_division, shorts);
    expand(&c, &integer_division, integers);
    expand(&c, &long_division, longs);
    return c;
}

/* ---- both ---- */

static void compare(const PtxKernel *kernel, const Counts *has, CodeCensus *census, Text *report)
{
    Counts wants = expected_of(kernel);
    bool equal = true, more = false;
    for (int k = 0; k < KINDS; k++) {
        equal &= k == MUFU || has->n[k] == wants.n[k];
        /* A block with steps may be laid out twice, and no other arithmetic becomes a step: more
         * of them than the PTX has is no contraction. */
        more |= k != HMMA && has->n[k] > wants.n[k];
    }
    /* What is contracted, or made of other operations, is missing somewhere. */
    bool twice = has->n[FADD] >= wants.n[FADD] && has->n[FMUL] >= wants.n[FMUL] &&
                 has->n[FFMA] >= wants.n[FFMA];
    census->kernels++;
    census->equal += equal;
    census->twice += more && twice;
    census->over += more && !twice;
    if (!more)
        return;
    text_printf(report, "    %s %.*s:", twice ? "in part twice" : "unexplained",
                STR_FMT(kernel->name));
    for (int k = 0; k < KINDS; k++)
        text_printf(report, " %s %d of %d", names[k], has->n[k], wants.n[k]);
    text_printf(report, "\n");
}

const char *census_take(Str bytes, const PtxModule *ptx, CodeCensus *census, Text *report)
{
    Cubin cubin;
    *census = (CodeCensus){0};
    const char *problem = cubin_open(bytes, &cubin);
    for (int i = 0; !problem && i < ptx->kernels.n; i++) {
        Section section;
        Str name = str_format(report->arena, ".text.%.*s", STR_FMT(ptx->kernels.v[i].name));
        if (!cubin_find(&cubin, name.s, &section) || !section.in_file)
            return "a kernel of its PTX is missing";
        Counts has = count_code(&cubin, &section);
        compare(&ptx->kernels.v[i], &has, census, report);
    }
    return problem;
}
