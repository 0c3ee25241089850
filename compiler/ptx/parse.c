/* Modules, kernels and statements. */
#include "parse.h"

#include "order.h"

#include <string.h>

/* ---- variables --------------------------------------------------------------------------------
 */

static int type_bytes(PtxParse *p, Str type)
{
    if (type.n < 2 || type.n > 4)
        ptx_fail(p, "a variable of type %.*s", STR_FMT(type));
    const char *digits = type.s + 2;
    int bits = digits[0] == '8' ? 8 : (digits[0] - '0') * 10 + digits[1] - '0';
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        ptx_fail(p, "a variable of type %.*s", STR_FMT(type));
    return bits / 8;
}

/* .align n .type name [size] */
static void read_variable(PtxParse *p, PtxShared *out)
{
    u64 align = 1, count = 1;
    Str word = ptx_word(p);
    if (str_is(word, ".align")) {
        if (!ptx_number(p, &align) || align == 0 || align > 1024)
            ptx_fail(p, "an alignment that is none");
        word = ptx_word(p);
    }
    u64 bytes = (u64)type_bytes(p, word);
    out->name = ptx_word(p);
    if (ptx_eat(p, '[')) {
        out->dynamic = !ptx_number(p, &count);
        ptx_need(p, ']');
    }
    if (!out->name.n || count > (1u << 24))
        ptx_fail(p, "a variable without name or size");
    out->align = (u32)(align > bytes ? align : bytes);
    out->size = out->dynamic ? 0 : (u32)(bytes * count);
}

static void place(PtxShared *variable, u32 *end)
{
    variable->address = (*end + variable->align - 1) / variable->align * variable->align;
    *end = variable->address + variable->size;
}

static void module_shared(PtxParse *p)
{
    PtxShared variable = {0};
    read_variable(p, &variable);
    ptx_need(p, ';');
    vec_push(p->arena, &p->shared, variable);
}

/* The text of a kernel's block, from behind its brace on. */
static Str block_text(const PtxParse *p)
{
    const char *s = p->at;
    for (int depth = 1; s < p->end; s++) {
        depth += (*s == '{') - (*s == '}');
        if (depth == 0)
            break;
    }
    return (Str){p->at, (int)(s - p->at)};
}

static bool names(Str text, Str name)
{
    for (int at = 0; at + name.n <= text.n; at++)
        if (text.s[at + name.n - 1] == name.s[name.n - 1] && text.s[at] == name.s[0] &&
            memcmp(text.s + at, name.s, (size_t)name.n) == 0)
            return true;
    return false;
}

/* Of the module's variables a kernel has those that it names. */
static void place_module_shared(PtxParse *p)
{
    Str text = block_text(p);
    p->dynamic_align = 16;
    for (int i = 0; i < p->shared.n; i++) {
        PtxShared *v = &p->shared.v[i];
        if (!names(text, v->name))
            continue;
        if (!v->dynamic)
            place(v, &p->kernel->shared_static);
        else if (v->align > p->dynamic_align)
            p->dynamic_align = v->align;
    }
}

/* The kernel's own follow the module's, and the dynamic part follows both. */
static void kernel_shared(PtxParse *p)
{
    PtxShared variable = {0};
    read_variable(p, &variable);
    ptx_need(p, ';');
    place(&variable, &p->kernel->shared_static);
    vec_push(p->arena, &p->own_shared, variable);
}

/* After the variable's name: = {bytes}, or = one number. */
static void read_values(PtxParse *p, u8 *bytes, u32 size, u32 each)
{
    bool list = ptx_eat(p, '{');
    u64 value;
    for (u32 at = 0; at < size; at += each) {
        if (!ptx_number(p, &value))
            ptx_fail(p, "a constant of an unknown form");
        memcpy(bytes + at, &value, each);
        if (!ptx_eat(p, ','))
            break;
    }
    if (list)
        ptx_need(p, '}');
}

/* Constants that a kernel reads. */
static void module_constant(PtxParse *p)
{
    PtxShared variable = {0};
    u32 end = (u32)p->constant_bytes.n;
    u64 each = 1;
    const char *start = p->at;
    Str word = ptx_word(p);
    if (str_is(word, ".align") && ptx_number(p, &each))
        word = ptx_word(p);
    each = (u64)type_bytes(p, word);
    p->at = start;
    read_variable(p, &variable);
    if (variable.dynamic)
        ptx_fail(p, "a constant without a size");
    place(&variable, &end);
    while ((u32)p->constant_bytes.n < end)
        vec_push(p->arena, &p->constant_bytes, 0);
    if (ptx_eat(p, '='))
        read_values(p, p->constant_bytes.v + variable.address, variable.size, (u32)each);
    ptx_need(p, ';');
    vec_push(p->arena, &p->constants, variable);
}

/* Memory of each thread's own. */
static void kernel_local(PtxParse *p)
{
    PtxShared variable = {0};
    read_variable(p, &variable);
    ptx_need(p, ';');
    place(&variable, &p->kernel->local_bytes);
    if (p->kernel->local_bytes > PTX_LOCAL_MOST)
        ptx_fail(p, "too much memory of each thread's own");
    vec_push(p->arena, &p->local, variable);
}

static void read_params(PtxParse *p)
{
    PtxKernel *k = p->kernel;
    ptx_need(p, '(');
    while (!ptx_eat(p, ')')) {
        PtxShared variable = {0};
        if (!str_is(ptx_word(p), ".param") || k->n_params == 8)
            ptx_fail(p, "parameters of an unknown form");
        read_variable(p, &variable);
        place(&variable, &k->param_bytes);
        k->params[k->n_params++] = (PtxParam){variable.name, variable.address, variable.size};
        ptx_eat(p, ',');
    }
}

/* ---- statements -------------------------------------------------------------------------------
 */

static void read_guard(PtxParse *p, PtxInst *inst)
{
    inst->guard_not = ptx_eat(p, '!');
    Str name = ptx_word(p);
    const PtxRegs *r = ptx_find_reg(p, name, &inst->guard);
    if (!r || r->width != 1)
        ptx_fail(p, "a guard that is no predicate: %.*s", STR_FMT(name));
    inst->guarded = true;
}

static void read_instruction(PtxParse *p, Str opcode, PtxInst *inst)
{
    Str target = {0};
    inst->line = p->line;
    if (!ptx_decode(opcode, inst))
        ptx_fail(p, "unknown instruction %.*s", STR_FMT(opcode));
    if (inst->op == PTX_BRA) {
        target = ptx_word(p);
        ptx_need(p, ';');
    } else {
        ptx_read_operands(p, inst);
    }
    if (!ptx_bind(inst))
        ptx_fail(p, "%.*s with operands that are not known", STR_FMT(opcode));
    vec_push(p->arena, &p->targets, target);
    vec_push(p->arena, &p->kernel->code, *inst);
}

static void read_directive(PtxParse *p, Str word)
{
    if (str_is(word, ".reg"))
        ptx_declare_regs(p);
    else if (str_is(word, ".shared"))
        kernel_shared(p);
    else if (str_is(word, ".local"))
        kernel_local(p);
    else if (str_is(word, ".loc"))
        ptx_skip_line(p);
    else if (str_is(word, ".pragma"))
        ptx_skip_past(p, ';');
    else
        ptx_fail(p, "unknown directive %.*s", STR_FMT(word));
}

static void read_statement(PtxParse *p)
{
    PtxInst inst = {0};
    if (ptx_eat(p, '@'))
        read_guard(p, &inst);
    if (ptx_peek(p, '.')) {
        read_directive(p, ptx_word(p));
        return;
    }
    const char *start = p->at;
    Str word = ptx_word(p);
    if (word.n && ptx_eat(p, ':')) {
        PtxLabel label = {word, p->kernel->code.n};
        vec_push(p->arena, &p->labels, label);
        return;
    }
    p->at = start;
    word = ptx_opcode(p);
    if (!word.n)
        ptx_fail(p, "an instruction is missing");
    read_instruction(p, word, &inst);
}

/* Registers of an inner block end with it; labels are the kernel's. */
static void read_block(PtxParse *p, int depth)
{
    int outer = p->regs.n;
    if (depth > 8)
        ptx_fail(p, "blocks nested too deep");
    while (!ptx_eat(p, '}')) {
        if (p->at == p->end)
            ptx_fail(p, "the text ends in a kernel");
        if (ptx_eat(p, '{'))
            read_block(p, depth + 1);
        else
            read_statement(p);
    }
    p->regs.n = outer;
}

/* ---- kernels ----------------------------------------------------------------------------------
 */

static void read_bounds(PtxParse *p)
{
    while (ptx_peek(p, '.')) {
        Str word = ptx_word(p);
        u64 product = 1, n;
        if (str_is(word, ".explicitcluster"))
            continue;
        do {
            if (!ptx_number(p, &n))
                ptx_fail(p, "%.*s without a number", STR_FMT(word));
            product *= n;
        } while (ptx_eat(p, ','));
        if (str_is(word, ".maxntid"))
            p->kernel->max_threads = (u32)product;
        if (str_is(word, ".reqnctapercluster") && (product == 0 || product > PTX_CLUSTER_MAX))
            ptx_fail(p, "a cluster of %llu CTAs", (unsigned long long)product);
        if (str_is(word, ".reqnctapercluster"))
            p->kernel->cluster = (u32)product;
    }
}

static void resolve(PtxParse *p)
{
    PtxKernel *k = p->kernel;
    int line = p->line;
    for (int i = 0; i < k->code.n; i++) {
        PtxInst *inst = &k->code.v[i];
        if (inst->op != PTX_BRA)
            continue;
        inst->target = -1;
        for (int l = 0; l < p->labels.n; l++)
            if (str_eq(p->labels.v[l].name, p->targets.v[i]))
                inst->target = p->labels.v[l].at;
        p->line = inst->line;
        if (inst->target < 0 || inst->target >= k->code.n)
            ptx_fail(p, "a branch to nowhere: %.*s", STR_FMT(p->targets.v[i]));
    }
    p->line = line;
    if (!k->code.n || (k->code.v[k->code.n - 1].op != PTX_RET &&
                       k->code.v[k->code.n - 1].op != PTX_BRA))
        ptx_fail(p, "a kernel that does not end in ret");
}

static void read_kernel(PtxParse *p)
{
    PtxKernel kernel = {.shared_static = PTX_SHARED_BASE, .cluster = 1};
    p->kernel = &kernel;
    p->regs.n = p->labels.n = p->targets.n = p->own_shared.n = p->local.n = 0;
    ptx_take_words(p, PTX_WARP); /* row 0 is nobody's */
    kernel.name = ptx_word(p);
    kernel.constants = p->constant_bytes.v;
    kernel.constant_bytes = (u32)p->constant_bytes.n;
    read_params(p);
    read_bounds(p);
    ptx_need(p, '{');
    place_module_shared(p);
    read_block(p, 0);
    kernel.shared_static = ptx_dynamic_place(p);
    resolve(p);
    ptx_order_mark(&kernel, p->arena);
    vec_push(p->arena, &p->module->kernels, kernel);
    p->kernel = NULL;
}

static void read_module(PtxParse *p)
{
    for (ptx_space(p); p->at < p->end; ptx_space(p)) {
        Str word = ptx_word(p);
        if (str_is(word, ".version") || str_is(word, ".target") || str_is(word, ".address_size") ||
            str_is(word, ".file"))
            ptx_skip_line(p);
        else if (str_is(word, ".visible") || str_is(word, ".extern"))
            continue;
        else if (str_is(word, ".global"))
            ptx_skip_past(p, ';'); /* constants that no kernel reads: their names stay unknown */
        else if (str_is(word, ".const"))
            module_constant(p);
        else if (str_is(word, ".shared"))
            module_shared(p);
        else if (str_is(word, ".entry"))
            read_kernel(p);
        else if (str_is(word, ".section") && ptx_word(p).n)
            ptx_skip_braces(p);
        else
            ptx_fail(p, "unknown directive %.*s", STR_FMT(word));
    }
}

bool ptx_parse(Str text, PtxModule *module, Str *problem, Arena *arena)
{
    PtxParse *p = arena_new_of(arena, PtxParse);
    *p = (PtxParse){.arena = arena, .at = text.s, .end = text.s + text.n, .line = 1,
                    .problem = problem, .module = module};
    if (setjmp(p->failed))
        return false;
    read_module(p);
    return true;
}

const PtxKernel *ptx_find(const PtxModule *module, Str name)
{
    for (int i = 0; i < module->kernels.n; i++)
        if (str_eq(module->kernels.v[i].name, name))
            return &module->kernels.v[i];
    return NULL;
}
