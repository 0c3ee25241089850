/* Mechanical mutation of a kernel's PTX: every instruction is dropped, its operands swapped, its
 * opcode replaced by a neighbour, its constants moved by one, in turn; the proof on terms must
 * refuse each mutant, or the mutant is printed as a survivor.
 *
 *   mutate CONTRACT KERNEL [SHARD OF]     KERNEL: part of a kernel's name */
#include "bench.h"

#include "ptx/machine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERANDS = 200 };

/* ---- one line -------------------------------------------------------------------------------- */

/* An instruction's line: what stands before its operands, the operands at the top level. */
typedef struct Line {
    Str text;              /* with the semicolon */
    Str head;              /* spaces and guard */
    Str opcode;
    int n;
    Str operand[MOST_OPERANDS];
} Line;

static Str trimmed(const char *s, const char *end)
{
    while (s < end && isspace((unsigned char)*s))
        s++;
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    return (Str){s, (int)(end - s)};
}

static void split(const char *s, const char *end, Line *line)
{
    int depth = 0;
    const char *start = s;
    for (; s <= end; s++) {
        if (s < end && (*s == '{' || *s == '['))
            depth++;
        if (s < end && (*s == '}' || *s == ']'))
            depth--;
        if (s == end || (*s == ',' && depth == 0)) {
            Str operand = trimmed(start, s);
            if (operand.n && line->n < MOST_OPERANDS)
                line->operand[line->n++] = operand;
            start = s + 1;
        }
    }
}

/* False for labels, directives, comments, braces. */
static bool read_line(Str text, Line *line)
{
    const char *s = text.s, *end = text.s + text.n;
    *line = (Line){.text = text};
    while (s < end && isspace((unsigned char)*s))
        s++;
    if (s < end && *s == '@')
        while (s < end && !isspace((unsigned char)*s))
            s++;
    while (s < end && isspace((unsigned char)*s))
        s++;
    if (s == end || !islower((unsigned char)*s) || end[-1] != ';')
        return false;
    line->head = (Str){text.s, (int)(s - text.s)};
    const char *opcode = s;
    while (s < end && !isspace((unsigned char)*s) && *s != ';')
        s++;
    line->opcode = (Str){opcode, (int)(s - opcode)};
    split(s, end - 1, line);
    return memchr(line->opcode.s, ':', (size_t)line->opcode.n) != line->opcode.s;
}

static void write_line(const Line *line, Text *out)
{
    text_add(out, line->head);
    text_add(out, line->opcode);
    for (int i = 0; i < line->n; i++)
        text_printf(out, "%s%.*s", i ? ", " : " ", STR_FMT(line->operand[i]));
    text_printf(out, ";");
}

/* ---- mutants of one line --------------------------------------------------------------------- */

typedef struct Mutant {
    const char *kind;
    Str text;
} Mutant;

typedef VEC(Mutant) Mutants;

static void add(Mutants *mutants, const char *kind, const Line *line, Arena *arena)
{
    Text text = {.arena = arena};
    write_line(line, &text);
    if (str_eq(text_str(&text), line->text))
        return;
    Mutant m = {kind, text_str(&text)};
    vec_push(arena, mutants, m);
}

static bool begins(Str s, const char *with)
{
    return s.n >= (int)strlen(with) && memcmp(s.s, with, strlen(with)) == 0;
}

static bool commutes(Str opcode)
{
    static const char *const same[] = {"add.", "mul.", "and.", "or.", "xor.", "min.", "max.",
                                       "setp.eq", "setp.ne", "mad.", "fma."};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (begins(opcode, same[i]))
            return true;
    return false;
}

/* The first two elements of a vector. */
static bool swap_inside(Str *operand, Arena *arena)
{
    if (operand->n < 3 || operand->s[0] != '{')
        return false;
    Line inner = {.n = 0};
    split(operand->s + 1, operand->s + operand->n - 1, &inner);
    if (inner.n < 2 || str_eq(inner.operand[0], inner.operand[1]))
        return false;
    Str first = inner.operand[0];
    inner.operand[0] = inner.operand[1];
    inner.operand[1] = first;
    Text text = {.arena = arena};
    for (int i = 0; i < inner.n; i++)
        text_printf(&text, "%s%.*s", i ? ", " : "{", STR_FMT(inner.operand[i]));
    text_printf(&text, "}");
    *operand = text_str(&text);
    return true;
}

static void swap_mutants(const Line *line, Mutants *out, Arena *arena)
{
    Line m = *line;
    if (begins(line->opcode, "fma.") || begins(line->opcode, "mad.")) {
        m.operand[2] = line->operand[3];
        m.operand[3] = line->operand[2];
        add(out, "swap", &m, arena);
    } else if (line->n >= 3 && !commutes(line->opcode) && line->operand[1].s[0] != '{' &&
               line->operand[1].s[0] != '[' && line->operand[2].s[0] != '[') {
        m.operand[1] = line->operand[2];
        m.operand[2] = line->operand[1];
        add(out, "swap", &m, arena);
    }
    for (int i = 0; i < line->n; i++) {
        m = *line;
        if (swap_inside(&m.operand[i], arena))
            add(out, "swap", &m, arena);
    }
}

static const char *const neighbours[][2] = {
    {"add.", "sub."}, {"sub.", "add."}, {"mul.rn", "add.rn"}, {"div.rn", "mul.rn"},
    {"min.", "max."}, {"max.", "min."}, {"and.", "or."}, {"or.", "xor."}, {"xor.", "or."},
    {"shl.b", "shr.u"}, {"shr.u", "shl.b"}, {"shr.s", "shr.u"}, {"setp.lt", "setp.le"},
    {"setp.le", "setp.lt"}, {"setp.gt", "setp.ge"}, {"setp.ge", "setp.gt"},
    {"setp.eq", "setp.ne"}, {"setp.ne", "setp.eq"}, {"cvt.rn.bf16", "cvt.rn.f16"},
    {"div.s32", "rem.s32"}, {"rem.s32", "div.s32"}, {"shfl.sync.down", "shfl.sync.bfly"},
    {"ldmatrix.sync.aligned.m8n8.x4.shared", "ldmatrix.sync.aligned.m8n8.x4.trans.shared"},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared", "ldmatrix.sync.aligned.m8n8.x4.shared"},
    {"atom.global.inc", "atom.global.add"}, {"cvt.s64.s32", "cvt.u64.u32"},
    {"mul.wide.s", "mul.wide.u"}, {"mul.lo", "add"},
};

static void neighbour_mutants(const Line *line, Mutants *out, Arena *arena)
{
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++) {
        if (!begins(line->opcode, neighbours[i][0]))
            continue;
        Line m = *line;
        int skip = (int)strlen(neighbours[i][0]);
        m.opcode = str_format(arena, "%s%.*s", neighbours[i][1], line->opcode.n - skip,
                              line->opcode.s + skip);
        add(out, "neighbour", &m, arena);
    }
}

/* The number at a place moved by `by`; false if there is none. */
static bool moved(Str operand, int at, int by, Str *out, Arena *arena)
{
    char *end;
    long long v = strtoll(operand.s + at, &end, 0);
    int used = (int)(end - (operand.s + at));
    if (used <= 0 || at + used > operand.n || begins((Str){operand.s + at, operand.n - at}, "0f"))
        return false;
    *out = str_format(arena, "%.*s%lld%.*s", at, operand.s, v + by, operand.n - at - used,
                      operand.s + at + used);
    return true;
}

static void constant_mutants(const Line *line, Mutants *out, Arena *arena)
{
    for (int i = 0; i < line->n; i++) {
        Str operand = line->operand[i];
        Line m = *line;
        const char *plus = memchr(operand.s, '+', (size_t)operand.n);
        if (operand.s[0] == '[' && plus) {
            int by = strstr(line->opcode.s, "16") ? 2 : 4;
            if (moved(operand, (int)(plus + 1 - operand.s), by, &m.operand[i], arena))
                add(out, "constant", &m, arena);
        } else if (isdigit((unsigned char)operand.s[0]) || operand.s[0] == '-') {
            if (begins(operand, "0f"))
                m.operand[i] = STR("0f40490FDB");
            else if (!moved(operand, 0, 1, &m.operand[i], arena))
                continue;
            add(out, "constant", &m, arena);
        }
    }
}

static void all_mutants(Str text, Mutants *out, Arena *arena)
{
    Line line;
    if (!read_line(text, &line))
        return;
    if (!begins(line.opcode, "ret")) {
        Mutant drop = {"drop", STR("")};
        vec_push(arena, out, drop);
    }
    swap_mutants(&line, out, arena);
    neighbour_mutants(&line, out, arena);
    constant_mutants(&line, out, arena);
}

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
static bool take_operands(Bench *b, const PtxInst *own, const Line *was, const Line *is)
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

/* A word for it: the mutant gives the same values wherever it runs, or is a branch, or gives others
 * that no output minds. */
static const char *reason(Bench *b, Str line, const Mutant *m, Str ptx, int number, Arena *arena)
{
    PtxModule module = {0};
    Str problem;
    Line was, is;
    PtxOutcome outcome;
    PtxInst *own = instruction_at(b->kernel, b->first_line + number - 1);
    if (!own || !read_line(line, &was) || own->op == PTX_BRA)
        return "branch";
    if (own->op > PTX_LD || own->op == PTX_ST || !own->run)
        return "effect";
    beside.dropped = m->text.n == 0;
    beside.own = own->run;
    beside.differs = false;
    if (!beside.dropped) {
        if (!ptx_parse(ptx, &module, &problem, arena) || !read_line(m->text, &is))
            return "unread";
        int head = 1;
        for (const char *at = b->before.s; at < b->before.s + b->before.n; at++)
            head += *at == '\n';
        const PtxInst *other = instruction_at(&module.kernels.v[0], head + number - 1);
        if (!other || other->count[0] != own->count[0])
            return "unread";
        beside.mutant = *other;
        if (!take_operands(b, own, &was, &is))
            return "unread";
    }
    own->run = observe;
    u64 limit = b->worker.machine.limit;
    b->worker.machine.limit = 0;
    bench_run(b, &outcome, arena);
    b->worker.machine.limit = limit;
    own->run = beside.own;
    return beside.differs ? "unseen" : "same";
}

/* ---- trying ---------------------------------------------------------------------------------- */

typedef struct Tally {
    Bench *bench;
    int shard, of;
    int mutants, idle, invalid, found, unlike, survived, same, branches;
} Tally;

/* Whether an instruction that stands on this line of the kernel's text runs at all. */
static bool runs(const Bench *b, int number)
{
    for (int i = 0; i < b->kernel->code.n; i++)
        if (b->kernel->code.v[i].line == b->first_line + number - 1)
            return b->covered[i];
    return true;
}

static void try_line(Tally *t, Str line, int number)
{
    const Bench *b = t->bench;
    Mutants mutants = {0};
    Arena *arena = arena_new();
    all_mutants(line, &mutants, arena);
    for (int i = 0; i < mutants.n; i++) {
        const Mutant *m = &mutants.v[i];
        if (t->mutants++ % t->of != t->shard)
            continue;
        Text body = {.arena = arena};
        PtxOutcome outcome;
        if (!runs(b, number)) {
            t->idle++;
            continue;
        }
        text_add(&body, b->before);
        text_add(&body, (Str){b->body.s, (int)(line.s - b->body.s)});
        text_add(&body, m->text);
        text_add(&body, (Str){line.s + line.n,
                              b->body.n - (int)(line.s + line.n - b->body.s)});
        Verdict verdict = bench_judge(t->bench, text_str(&body), &outcome, arena);
        t->invalid += verdict == INVALID;
        t->found += verdict == FOUND;
        t->unlike += verdict == UNLIKE;
        t->survived += verdict == SURVIVES;
        if (verdict == SURVIVES) {
            Str was = trimmed(line.s, line.s + line.n);
            const char *why = reason(t->bench, line, m, text_str(&body), number, arena);
            t->same += strcmp(why, "same") == 0;
            t->branches += strcmp(why, "branch") == 0;
            printf("survivor %s %s line %d: %.*s -> %.*s\n", why, m->kind, number,
                   was.n > 90 ? 90 : was.n, was.s, m->text.n > 90 ? 90 : m->text.n, m->text.s);
            fflush(stdout);
        }
    }
    arena_free(arena);
}

static void try_all(Tally *t)
{
    const Bench *b = t->bench;
    const char *s = b->body.s, *end = s + b->body.n;
    for (int number = 1; s < end; number++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop)
            break;
        try_line(t, (Str){s, (int)(stop - s)}, number);
        s = stop + 1;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        bench_fail("mutate CONTRACT KERNEL [SHARD OF]");
    Tally t = {.bench = bench_open(argv[1]), .of = 1};
    if (argc > 4)
        t.shard = atoi(argv[3]), t.of = atoi(argv[4]);
    bench_choose(t.bench, argv[2], true);
    try_all(&t);
    printf("%.*s shard %d of %d: %d mutants, %d of idle instructions, %d invalid, %d by a finding, "
           "%d by a term, %d survive: %d give the same values, %d are of branches\n",
           STR_FMT(t.bench->kernel->name), t.shard, t.of,
           t.idle + t.invalid + t.found + t.unlike + t.survived, t.idle, t.invalid, t.found,
           t.unlike, t.survived, t.same, t.branches);
    bench_close(t.bench);
    return 0;
}
