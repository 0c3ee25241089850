/* The mutants of an instruction's line. */
#include "mutants.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- one line -------------------------------------------------------------------------------- */

static Str trimmed(const char *s, const char *end)
{
    while (s < end && isspace((unsigned char)*s))
        s++;
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    return (Str){s, (int)(end - s)};
}

static void split(const char *s, const char *end, MutantLine *line)
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
            if (operand.n && line->n < MUTANT_OPERANDS)
                line->operand[line->n++] = operand;
            start = s + 1;
        }
    }
}

bool mutant_read_line(Str text, MutantLine *line)
{
    const char *s = text.s, *end = text.s + text.n;
    *line = (MutantLine){.text = text};
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

static void write_line(const MutantLine *line, Text *out)
{
    text_add(out, line->head);
    text_add(out, line->opcode);
    for (int i = 0; i < line->n; i++)
        text_printf(out, "%s%.*s", i ? ", " : " ", STR_FMT(line->operand[i]));
    text_printf(out, ";");
}

/* ---- mutants of one line --------------------------------------------------------------------- */

static void add(Mutants *mutants, const char *kind, const MutantLine *line, Arena *arena)
{
    Text text = {.arena = arena};
    write_line(line, &text);
    if (str_eq(text_str(&text), line->text))
        return;
    Mutant m = {.kind = kind, .text = text_str(&text)};
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
    MutantLine inner = {.n = 0};
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

static void swap_mutants(const MutantLine *line, Mutants *out, Arena *arena)
{
    MutantLine m = *line;
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

static void neighbour_mutants(const MutantLine *line, Mutants *out, Arena *arena)
{
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++) {
        if (!begins(line->opcode, neighbours[i][0]))
            continue;
        MutantLine m = *line;
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

static void constant_mutants(const MutantLine *line, Mutants *out, Arena *arena)
{
    for (int i = 0; i < line->n; i++) {
        Str operand = line->operand[i];
        MutantLine m = *line;
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

static void line_mutants(Str text, Mutants *out, Arena *arena)
{
    MutantLine line;
    if (!mutant_read_line(text, &line))
        return;
    if (!begins(line.opcode, "ret")) {
        Mutant drop = {.kind = "drop", .text = STR("")};
        vec_push(arena, out, drop);
    }
    swap_mutants(&line, out, arena);
    neighbour_mutants(&line, out, arena);
    constant_mutants(&line, out, arena);
}

/* ---- names ----------------------------------------------------------------------------------- */

enum { MOST_NAMES = 256 };

typedef struct Names {
    int n;
    Str name[MOST_NAMES];
} Names;

static int place_of(Names *names, Str name)
{
    int i = 0;
    while (i < names->n && !str_eq(names->name[i], name))
        i++;
    if (i == names->n && i < MOST_NAMES)
        names->name[names->n++] = name;
    return i;
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Registers by their order in `names` or, without it, alike; labels and parameters alike; runs of
 * spaces as one. constants: false leaves out those of addresses. */
static void add_shape(Text *out, Str line, Names *names, bool constants)
{
    const char *s = line.s, *end = s + line.n;
    for (bool inside = false; s < end;) {
        const char *start = s;
        inside = (inside || *s == '[') && *s != ']';
        if (isspace((unsigned char)*s)) {
            while (s < end && isspace((unsigned char)*s))
                s++;
            text_printf(out, " ");
        } else if (in_name(*s) || *s == '%') {
            for (s++; s < end && in_name(*s);)
                s++;
            Str name = {start, (int)(s - start)};
            if (*start == '%' && names && isdigit((unsigned char)s[-1]))
                text_printf(out, "%%%c%d", start[1], place_of(names, name));
            else if (*start == '%')
                text_printf(out, "%%%c", start[1]);
            else if (*start == '$' || begins(name, "iso_"))
                text_printf(out, "%s", *start == '$' ? "label" : "parameter");
            else if (constants || !inside || !isdigit((unsigned char)*start))
                text_add(out, name);
        } else {
            text_add(out, (Str){s++, 1});
        }
    }
}

static Str shape_of(const Mutant *m, Arena *arena)
{
    Names *names = arena_new_of(arena, Names);
    Text out = {.arena = arena};
    Str was = trimmed(m->line.s, m->line.s + m->line.n);
    Str is = trimmed(m->text.s, m->text.s + m->text.n);
    text_printf(&out, "%s: ", m->kind);
    add_shape(&out, was, names, true);
    if (is.n) {
        text_printf(&out, " -> ");
        add_shape(&out, is, names, true);
    }
    return text_str(&out);
}

static u64 hash_of(Str s)
{
    u64 hash = 0xcbf29ce484222325u;
    for (int i = 0; i < s.n; i++)
        hash = (hash ^ (u8)s.s[i]) * 0x100000001b3u;
    return hash;
}

/* ---- a kernel -------------------------------------------------------------------------------- */

typedef VEC(Str) Lines;

static void split_lines(Str body, Lines *lines, Arena *arena)
{
    const char *s = body.s, *end = s + body.n;
    for (const char *stop; s < end && (stop = memchr(s, '\n', (size_t)(end - s))); s = stop + 1) {
        Str line = {s, (int)(stop - s)};
        vec_push(arena, lines, line);
    }
}

/* An instruction or label next to line `at`, or nothing. */
static Str beside(const Lines *lines, int at, int step)
{
    for (at += step; at >= 0 && at < lines->n; at += step) {
        MutantLine line;
        Str text = trimmed(lines->v[at].s, lines->v[at].s + lines->v[at].n);
        if (mutant_read_line(lines->v[at], &line) || (text.n && text.s[0] == '$'))
            return text;
    }
    return STR("");
}

static u64 alike(const Lines *lines, int at, const Mutant *m, Arena *arena)
{
    Text out = {.arena = arena};
    const Str around[] = {beside(lines, at, -1), lines->v[at], beside(lines, at, 1), m->text};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        add_shape(&out, trimmed(around[i].s, around[i].s + around[i].n), NULL, false);
        text_printf(&out, "\n");
    }
    text_printf(&out, "%s", m->kind);
    return hash_of(text_str(&out));
}

void mutants_of(Str body, Mutants *out, Arena *arena)
{
    Lines lines = {0};
    split_lines(body, &lines, arena);
    for (int at = 0; at < lines.n; at++) {
        int first = out->n;
        line_mutants(lines.v[at], out, arena);
        for (int i = first; i < out->n; i++) {
            Mutant *m = &out->v[i];
            m->line = lines.v[at];
            m->number = at + 1;
            m->shape = shape_of(m, arena);
            m->alike = alike(&lines, at, m, arena);
        }
    }
}
