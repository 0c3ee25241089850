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

/* A row of the kernel's own that holds an immediate operand of the mutant. */
static u32 constant_row(Bench *b, const PtxArg *arg)
{
    PtxKernel *k = b->kernel;
    u64 bits = arg->width == 1 ? (arg->imm ? 0xffffffffu : 0) : (u64)arg->imm;
    if (arg->width < 64 && arg->width > 1)
        bits &= ((u64)1 << arg->width) - 1;
    PtxConst constant = {bits, k->words, arg->width == 1 ? 1 : arg->width == 64 ? 64 : 32};
    k->words += 2 * PTX_WARP;
    vec_push(b->arena, &k->consts, constant);
    return constant.row;
}

/* The mutant's operands in the registers' file of the kernel itself. */
static bool take_operands(Bench *b, const PtxInst *own, const MutantLine *was, const MutantLine *is)
{
    PtxInst *m = &beside.mutant;
    for (int o = 0; o < m->n_operands; o++) {
        int from = -1;
        for (int k = 0; k < was->n && k < own->n_operands; k++)
            if (str_eq(was->operand[k], is->operand[o]) && own->count[k] == m->count[o])
                from = k;
        for (int k = 0; k < m->count[o]; k++) {
            PtxArg *arg = &m->args[m->first[o] + k];
            if (from >= 0)
                *arg = own->args[own->first[from] + k];
            else if (arg->kind == PTX_IMM)
                arg->row = constant_row(b, arg);
            else if (arg->kind == PTX_ADDR && o < own->n_operands)
                arg->row = own->args[own->first[o] + k].row;
            else
                return false;
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
static bool read_mutant(Bench *b, const PtxInst *own, const Mutant *m, Str ptx, Arena *arena)
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
    beside.mutant = *other;
    return take_operands(b, own, &was, &is);
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
    if (!beside.dropped && !read_mutant(b, own, m, ptx, arena))
        return "unread";
    own->run = observe;
    u64 limit = b->worker.machine.limit;
    b->worker.machine.limit = 0;
    Verdict verdict = bench_run(b, &outcome, arena);
    b->worker.machine.limit = limit;
    own->run = beside.own;
    return verdict != SURVIVES ? "unread" : beside.differs ? "unseen" : "same";
}
