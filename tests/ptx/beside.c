/* A mutated instruction beside the kernel's own: what both give is compared wherever it runs. */
#include "beside.h"

#include "ptx/machine.h"

#include <string.h>

/* ---- why a mutant survives ------------------------------------------------------------------- */

/* Beside an instruction its mutant runs, and what both give is compared. */
static struct {
    PtxInst mutant;
    bool dropped; /* the mutant does nothing */
    PtxRun own;
    bool differs;
} beside;

enum { MOST_RESULTS = 8 };

#define NO_ROW UINT32_MAX

typedef struct Results {
    u32 word[MOST_RESULTS][2 * PTX_WARP];
} Results;

static u32 words_of(const PtxArg *arg)
{
    return arg->width == 64 ? 2 * PTX_WARP : arg->width == 1 ? 1 : PTX_WARP;
}

static void copy_results(PtxWarp *w, const PtxInst *i, Results *r, bool back)
{
    for (int k = 0; k < i->count[0] && k < MOST_RESULTS; k++) {
        u32 *at = w->file + i->args[k].row;
        memcpy(back ? at : r->word[k], back ? r->word[k] : at, words_of(&i->args[k]) * 4);
    }
}

static bool observe(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    Results before, other, own;
    copy_results(w, i, &before, false);
    if (!beside.dropped && !beside.mutant.run(c, w, &beside.mutant, mask))
        return false;
    copy_results(w, i, &other, false);
    copy_results(w, i, &before, true);
    if (!beside.own(c, w, i, mask))
        return false;
    copy_results(w, i, &own, false);
    for (int k = 0; k < i->count[0] && k < MOST_RESULTS; k++)
        beside.differs |= memcmp(own.word[k], other.word[k], words_of(&i->args[k]) * 4) != 0;
    return true;
}

static u64 constant_bits(const PtxArg *arg)
{
    u64 bits = arg->width == 1 ? (arg->imm ? 0xffffffffu : 0) : (u64)arg->imm;
    return arg->width < 64 && arg->width > 1 ? bits & (((u64)1 << arg->width) - 1) : bits;
}

/* A row of the kernel's own that holds an immediate operand of the mutant. */
static u32 constant_row(Bench *b, const PtxArg *arg)
{
    PtxKernel *k = b->kernel;
    PtxConst constant = {constant_bits(arg), k->words,
                         arg->width == 1 ? 1 : arg->width == 64 ? 64 : 32};
    k->words += 2 * PTX_WARP;
    vec_push(b->arena, &k->consts, constant);
    return constant.row;
}

/* The mutant's operands in the registers' file of the kernel itself; immediate ones stay without a
 * row. */
static bool take_operands(const PtxInst *own, const MutantLine *was, const MutantLine *is,
                          PtxInst *m)
{
    for (int o = 0; o < m->n_operands; o++) {
        int from = -1;
        for (int k = 0; k < was->n && k < own->n_operands; k++)
            if (str_eq(was->operand[k], is->operand[o]) && own->count[k] == m->count[o])
                from = k;
        for (int k = 0; k < m->count[o]; k++) {
            PtxArg *arg = &m->args[m->first[o] + k];
            if (from >= 0)
                *arg = own->args[own->first[from] + k];
            else if (arg->kind == PTX_ADDR && o < own->n_operands)
                arg->row = own->args[own->first[o] + k].row;
            else if (arg->kind != PTX_IMM)
                return false;
            else
                arg->row = NO_ROW;
        }
    }
    return true;
}

static PtxInst *instruction_at(const PtxKernel *k, int line)
{
    for (int i = 0; i < k->code.n; i++)
        if (k->code.v[i].line == line)
            return &k->code.v[i];
    return NULL;
}

/* Whether what the mutant gives can be seen: it is read in the place of the kernel's own. */
static bool read_mutant(const Bench *b, const PtxInst *own, const Mutant *m, Str ptx,
                        PtxInst *to, Arena *arena)
{
    PtxModule module = {0};
    Str problem;
    MutantLine was, is;
    int head = 1;
    if (!ptx_parse(ptx, &module, &problem, arena) || !mutant_read_line(m->text, &is) ||
        !mutant_read_line(m->line, &was))
        return false;
    for (const char *at = b->before.s; at < b->before.s + b->before.n; at++)
        head += *at == '\n';
    const PtxInst *other = instruction_at(&module.kernels.v[0], head + m->number - 1);
    if (!other || other->count[0] != own->count[0])
        return false;
    *to = *other;
    return take_operands(own, &was, &is, to);
}

const char *beside_reason(Bench *b, const Mutant *m, Str ptx, Arena *arena)
{
    PtxOutcome outcome;
    PtxInst *own = instruction_at(b->kernel, b->first_line + m->number - 1);
    if (!own || own->op == PTX_BRA)
        return "branch";
    if (own->op > PTX_LD || own->op == PTX_ST || !own->run)
        return "effect";
    beside.dropped = m->text.n == 0;
    beside.own = own->run;
    beside.differs = false;
    if (!beside.dropped && !read_mutant(b, own, m, ptx, &beside.mutant, arena))
        return "unread";
    for (int k = 0; !beside.dropped && k < beside.mutant.n_args; k++)
        if (beside.mutant.args[k].row == NO_ROW)
            beside.mutant.args[k].row = constant_row(b, &beside.mutant.args[k]);
    own->run = observe;
    u64 limit = b->worker.machine.limit;
    b->worker.machine.limit = 0;
    Verdict verdict = bench_run(b, &outcome, arena);
    b->worker.machine.limit = limit;
    own->run = beside.own;
    return verdict != SURVIVES ? "unread" : beside.differs ? "unseen" : "same";
}

/* ---- all at once ----------------------------------------------------------------------------- */

enum { MOST_ARGS = 8 };

typedef struct Other {
    PtxInst inst;
    bool dropped, differs, input;
    int place; /* among all mutants */
} Other;

typedef VEC(Other) Others;

/* By instruction of the kernel. */
static struct {
    const PtxInst *code;
    PtxRun *own;
    Others *others;
    u32 scratch; /* rows for immediate operands */
} all;

static bool has_input(const PtxWarp *w, const PtxInst *i, u32 mask)
{
    u32 taint = 0;
    for (int k = 0; k < i->n_args; k++)
        taint |= i->args[k].kind == PTX_REG ? w->taint[i->args[k].row] : 0;
    return (taint & mask) != 0;
}

static void put_constants(PtxWarp *w, const PtxInst *i)
{
    for (int k = 0; k < i->n_args; k++) {
        const PtxArg *arg = &i->args[k];
        u32 *row = w->file + arg->row;
        if (arg->row < all.scratch)
            continue;
        row[0] = (u32)constant_bits(arg);
        for (int l = 0; l < PTX_WARP && arg->width > 1; l++)
            if (arg->width == 64)
                ((u64 *)(void *)row)[l] = constant_bits(arg);
            else
                row[l] = (u32)constant_bits(arg);
    }
}

static bool results_differ(const PtxWarp *w, const PtxInst *i, const Results *other)
{
    bool differ = false;
    for (int k = 0; k < i->count[0] && k < MOST_RESULTS; k++)
        differ |= memcmp(w->file + i->args[k].row, other->word[k],
                         words_of(&i->args[k]) * 4) != 0;
    return differ;
}

static bool observe_all(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)
{
    Others *others = &all.others[i - all.code];
    Results before, own;
    bool input = has_input(w, i, mask);
    copy_results(w, i, &before, false);
    if (!all.own[i - all.code](c, w, i, mask))
        return false;
    copy_results(w, i, &own, false);
    for (int k = 0; k < others->n; k++) {
        Other *o = &others->v[k];
        if (o->differs)
            continue;
        copy_results(w, i, &before, true);
        o->input |= input || (!o->dropped && has_input(w, &o->inst, mask));
        put_constants(w, &o->inst);
        if (!o->dropped)
            o->inst.run(c, w, &o->inst, mask);
        o->differs |= results_differ(w, i, &own);
    }
    copy_results(w, i, &own, true);
    return true;
}

/* Arithmetic alone, so that a mutant changes nothing but its results. */
static bool is_plain(const PtxInst *i)
{
    return i && i->op <= PTX_SELP && i->run && i->count[0] > 0 && i->count[0] <= MOST_RESULTS;
}

/* The mutant's instruction, of whose text nothing is kept. */
static bool read_other(const Bench *b, const PtxInst *own, const Mutant *m, PtxInst *to,
                       Arena *arena)
{
    Arena *scratch = arena_new();
    Str text = bench_text(b, m->line, m->text, scratch);
    bool plain = read_mutant(b, own, m, text, to, scratch) && is_plain(to) &&
                 to->n_args <= MOST_ARGS;
    PtxArg *args = arena_array(arena, PtxArg, MOST_ARGS);
    if (plain)
        memcpy(args, to->args, sizeof *args * to->n_args);
    to->args = args;
    for (int k = 0; plain && k < to->n_args; k++)
        if (args[k].row == NO_ROW)
            args[k].row = all.scratch + (u32)k * 2 * PTX_WARP;
    arena_free(scratch);
    return plain;
}

static void add_other(const Bench *b, const Mutants *mutants, int place, Arena *arena)
{
    const Mutant *m = &mutants->v[place];
    PtxInst *own = instruction_at(b->kernel, b->first_line + m->number - 1);
    Other other = {.dropped = m->text.n == 0, .place = place};
    if (is_plain(own) && b->covered[own - b->kernel->code.v] &&
        (other.dropped || read_other(b, own, m, &other.inst, arena)))
        vec_push(arena, &all.others[own - all.code], other);
}

/* What is dropped leaves what another instruction gave. */
static bool is_own_result(const PtxKernel *k, const PtxInst *own)
{
    int writers = 0;
    for (int i = 0; i < k->code.n; i++)
        for (int r = 0; r < k->code.v[i].count[0] && k->code.v[i].n_operands; r++)
            writers += k->code.v[i].args[r].row == own->args[0].row;
    return writers == 1 && own->count[0] == 1;
}

static Beside state_of(const PtxKernel *k, const PtxInst *own, const Other *o)
{
    bool left = o->dropped && !is_own_result(k, own);
    return o->differs ? BESIDE_UNSEEN : o->input || left ? BESIDE_SAME : BESIDE_ALIKE;
}

const Beside *beside_all(Bench *b, const Mutants *mutants, const bool *wanted, Arena *arena)
{
    PtxKernel *k = b->kernel;
    PtxOutcome outcome;
    Beside *states = arena_array(arena, Beside, mutants->n + 1);
    all.code = k->code.v;
    all.own = arena_array(arena, PtxRun, k->code.n + 1);
    all.others = arena_array(arena, Others, k->code.n + 1);
    all.scratch = k->words;
    for (int i = 0; i < mutants->n; i++)
        if (wanted[i])
            add_other(b, mutants, i, arena);
    k->words += MOST_ARGS * 2 * PTX_WARP;
    for (int i = 0; i < k->code.n; i++) {
        all.own[i] = k->code.v[i].run;
        k->code.v[i].run = all.others[i].n ? observe_all : all.own[i];
    }
    b->only = -1;
    bool survives = bench_run(b, &outcome, arena) == SURVIVES;
    for (int i = 0; i < k->code.n; i++) {
        k->code.v[i].run = all.own[i];
        for (int o = 0; survives && o < all.others[i].n; o++)
            states[all.others[i].v[o].place] = state_of(k, &k->code.v[i], &all.others[i].v[o]);
    }
    return states;
}
