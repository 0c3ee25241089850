/* Collecting diagnostics and rendering them as text; diag_json.c is the other renderer. */
#include "diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Beyond this many the reader is not helped, and a hostile file would only cost memory. */
enum { LISTED_MAX = 200, TAB = 8, WINDOW = 160 };

static const struct {
    int number;
    const char *id;
    Severity severity;
    const char *clause, *title, *explanation;
} registry[] = {
#define X(number, id, severity, clause, title, explanation)                                        \
    {number, #id, severity, clause, title, explanation},
#include "diag.def"
#undef X
};

/* ---- collecting ------------------------------------------------------------------------------ */

void diags_init(Diags *diags, Arena *arena, const Sources *sources)
{
    *diags = (Diags){.arena = arena, .sources = sources};
    memset(diags->enabled, 0xff, sizeof diags->enabled);
}

static Str format_args(Arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *s = arena_alloc(arena, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, format, args);
    return (Str){s, n};
}

static bool is_enabled(const Diags *diags, DiagId id)
{
    return registry[id].severity == SEV_ERROR || (diags->enabled[id / 64] >> (id % 64) & 1);
}

/* Two checks may meet the same fault at the same place: it is told once. */
static bool is_repeated(const Diags *diags, const Diag *diag)
{
    for (int i = 0; i < diags->list.n; i++) {
        const Diag *old = diags->list.v[i];
        if (old->id == diag->id && !memcmp(&old->span, &diag->span, sizeof(Span)) &&
            str_eq(old->message, diag->message))
            return true;
    }
    return false;
}

Diag *diag_add(Diags *diags, DiagId id, Span span, const char *format, ...)
{
    Diag *diag = arena_new_of(diags->arena, Diag);
    diag->id = id;
    diag->severity = registry[id].severity;
    diag->span = span;
    va_list args;
    va_start(args, format);
    diag->message = format_args(diags->arena, format, args);
    va_end(args);
    if (!is_enabled(diags, id))
        return diag;
    if (diag->severity == SEV_WARNING && diags->warnings_as_errors)
        diag->severity = SEV_ERROR;
    if (diags->list.n < LISTED_MAX && is_repeated(diags, diag))
        return diag;
    diags->errors += diag->severity == SEV_ERROR;
    if (diags->list.n < LISTED_MAX)
        vec_push(diags->arena, &diags->list, diag);
    return diag;
}

void diag_label(Diags *diags, Diag *diag, Span span, const char *format, ...)
{
    DiagLabel label = {.span = span};
    va_list args;
    va_start(args, format);
    label.text = format_args(diags->arena, format, args);
    va_end(args);
    vec_push(diags->arena, &diag->labels, label);
}

void diag_note(Diags *diags, Diag *diag, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vec_push(diags->arena, &diag->notes, format_args(diags->arena, format, args));
    va_end(args);
}

void diag_fix(Diags *diags, Diag *diag, Span span, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag->fix_span = span;
    diag->fix_text = format_args(diags->arena, format, args);
    va_end(args);
}

/* ---- the registry ---------------------------------------------------------------------------- */

Str diag_code(Arena *arena, DiagId id)
{
    return str_format(arena, "ISO%04d", registry[id].number);
}

bool diag_lookup(Str code, DiagId *id)
{
    for (int i = 0; i < DIAG_COUNT; i++) {
        char text[16];
        snprintf(text, sizeof text, "ISO%04d", registry[i].number);
        if (str_is(code, text)) {
            *id = (DiagId)i;
            return true;
        }
    }
    return false;
}

const char *diag_clause(DiagId id)
{
    return registry[id].clause;
}

/* ROOTS is switched by -Wroots, SLOW_TILE by -Wslow-tile. */
static Str option_of(Arena *arena, DiagId id)
{
    Str name = str_copy(arena, str_of(registry[id].id));
    char *s = (char *)name.s;
    for (int i = 0; i < name.n; i++)
        s[i] = (char)(s[i] == '_' ? '-' : s[i] | 0x20);
    return name;
}

Str diag_options(Arena *arena)
{
    Text text = {.arena = arena};
    for (int i = 0; i < DIAG_COUNT; i++)
        if (registry[i].severity == SEV_WARNING)
            text_printf(&text, "%s%.*s", text.n ? ", " : "",
                        STR_FMT(option_of(arena, (DiagId)i)));
    return text_str(&text);
}

bool diag_enable(Diags *diags, Str option, bool on)
{
    for (int i = 0; i < DIAG_COUNT; i++) {
        if (registry[i].severity != SEV_WARNING ||
            !str_eq(option, option_of(diags->arena, (DiagId)i)))
            continue;
        u64 bit = (u64)1 << (i % 64);
        diags->enabled[i / 64] = on ? diags->enabled[i / 64] | bit : diags->enabled[i / 64] & ~bit;
        return true;
    }
    return false;
}

Str diag_explanation(Arena *arena, DiagId id)
{
    bool language = registry[id].clause[0] != 0;
    return str_format(arena, "ISO%04d: %s (%s%s%s%s)\n\n%s", registry[id].number,
                      registry[id].title,
                      registry[id].severity == SEV_ERROR ? "error" : "warning",
                      language ? ", clause " : "", registry[id].clause,
                      language ? " of the language" : "", registry[id].explanation);
}

/* ---- text: one source line and what stands under it ------------------------------------------ */

static bool is_wide(u32 code)
{
    return (code >= 0x1100 && code < 0x1160) || (code >= 0x2e80 && code < 0xa4d0) ||
           (code >= 0xac00 && code < 0xd7a4) || (code >= 0xf900 && code < 0xfb00) ||
           (code >= 0xff00 && code < 0xff61) || (code >= 0x1f300 && code < 0x1fb00) ||
           (code >= 0x20000 && code < 0x30000);
}

/* Terminal columns of the character at s, and its bytes. */
static int char_width(const char *s, int left, int *bytes)
{
    int n = utf8_length(s, left);
    *bytes = n ? n : 1;
    if (n < 2)
        return 1;
    u32 code = (unsigned char)s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++)
        code = code << 6 | ((unsigned char)s[i] & 0x3f);
    if ((code >= 0x300 && code < 0x370) || code == 0x200b || code == 0xfe0f)
        return 0;
    return is_wide(code) ? 2 : 1;
}

typedef struct Shown { /* a source line as shown: bytes [lo, hi) of its file */
    const SourceFile *file;
    int file_index, lo, hi;
    bool cut_left, cut_right;
} Shown;

static int column_of(const Shown *line, int offset)
{
    int column = 0, bytes = 1;
    for (int i = line->lo; i < offset && i < line->hi; i += bytes) {
        int width = char_width(line->file->text.s + i, line->hi - i, &bytes);
        column = line->file->text.s[i] == '\t' ? (column / TAB + 1) * TAB : column + width;
    }
    return column + (offset > line->hi); /* past the end: one more */
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* A line of a generated file may be a megabyte: show the part around the caret. */
static Shown shown_line(const Sources *sources, Span span)
{
    const SourceFile *file = &sources->files.v[span.file];
    int start;
    Str text = source_line(file, span.lo, &start);
    Shown line = {file, span.file, start, start + text.n, false, false};
    if (text.n <= WINDOW)
        return line;
    if (span.lo - start > WINDOW / 2) {
        line.lo = span.lo - WINDOW / 2;
        line.cut_left = true;
    }
    if (line.hi - line.lo > WINDOW) {
        line.hi = line.lo + WINDOW;
        line.cut_right = true;
    }
    while (line.cut_left && line.lo < line.hi && is_continuation(file->text.s[line.lo]))
        line.lo++;
    while (line.cut_right && line.hi > line.lo && is_continuation(file->text.s[line.hi]))
        line.hi--;
    return line;
}

static void put_line(const Shown *line, Text *out)
{
    int column = 0, bytes = 1;
    text_add(out, line->cut_left ? STR("...") : STR(""));
    for (int i = line->lo; i < line->hi; i += bytes) {
        const char *s = line->file->text.s + i;
        int width = char_width(s, line->hi - i, &bytes);
        int next = *s == '\t' ? (column / TAB + 1) * TAB : column + width;
        if (*s == '\t')
            text_printf(out, "%*s", next - column, "");
        else if ((unsigned char)*s < 0x20 || *s == 0x7f || (bytes == 1 && (*s & 0x80)))
            text_add(out, STR("?"));
        else
            text_add(out, (Str){s, bytes});
        column = next;
    }
    text_add(out, line->cut_right ? STR("...\n") : STR("\n"));
}

static void mark(char *marks, int room, const Shown *line, Span span, char first)
{
    if (span.file != line->file_index || span.lo < line->lo || span.lo > line->hi)
        return;
    int shift = line->cut_left ? 3 : 0;
    int lo = column_of(line, span.lo) + shift, hi = column_of(line, span.hi) + shift;
    for (int i = lo; i < room && (i < hi || i == lo); i++)
        if (marks[i] == ' ' || first == '^')
            marks[i] = i == lo ? first : '~';
}

static int trimmed(const char *s, int n)
{
    while (n > 0 && s[n - 1] == ' ')
        n--;
    return n;
}

/* The insertion goes in the file's first free place under the carets, at its column. */
static void put_fix(const Shown *line, const Diag *diag, Text *out, const char *on, const char *off)
{
    int lo = diag->fix_span.lo;
    if (diag->fix_span.hi == 0 || diag->fix_span.file != line->file_index || lo < line->lo ||
        lo > line->hi)
        return;
    text_printf(out, "%*s%s%.*s%s\n", column_of(line, lo) + (line->cut_left ? 3 : 0), "", on,
                STR_FMT(diag->fix_text), off);
}

typedef struct Colours {
    const char *bold, *red, *magenta, *cyan, *green, *off;
} Colours;

static const Colours plain = {"", "", "", "", "", ""};
static const Colours bright = {"\033[1m", "\033[1;31m", "\033[1;35m", "\033[1;36m", "\033[1;32m",
                               "\033[0m"};

static void put_snippet(const Diags *diags, const Diag *diag, Span span, bool primary, Text *out,
                        const Colours *c)
{
    enum { ROOM = WINDOW * TAB + 16 };
    char marks[ROOM];
    memset(marks, ' ', sizeof marks);
    Shown line = shown_line(diags->sources, span);
    put_line(&line, out);
    for (int i = 0; primary && i < diag->labels.n; i++)
        mark(marks, ROOM, &line, diag->labels.v[i].span, '~');
    mark(marks, ROOM, &line, span, '^');
    text_printf(out, "%s%.*s%s\n", c->green, trimmed(marks, ROOM), marks, c->off);
    if (primary)
        put_fix(&line, diag, out, c->green, c->off);
}

static void put_place(const Diags *diags, Span span, Text *out)
{
    const SourceFile *file = &diags->sources->files.v[span.file];
    int line, column;
    source_position(file, span.lo, &line, &column);
    text_printf(out, "%.*s:%d:%d: ", STR_FMT(file->name), line, column);
}

static void put_include_chain(const Diags *diags, Span span, Text *out)
{
    Span from = diags->sources->files.v[span.file].included_from;
    for (; from.hi; from = diags->sources->files.v[from.file].included_from) {
        const SourceFile *file = &diags->sources->files.v[from.file];
        int line, column;
        source_position(file, from.lo, &line, &column);
        text_printf(out, "In file included from %.*s:%d:\n", STR_FMT(file->name), line);
    }
}

static void put_headline(const Diags *diags, const Diag *diag, Text *out, const Colours *c)
{
    bool error = diag->severity == SEV_ERROR;
    if (diag->span.hi) {
        put_include_chain(diags, diag->span, out);
        text_printf(out, "%s", c->bold);
        put_place(diags, diag->span, out);
    }
    text_printf(out, "%s%s:%s %s%.*s%s [ISO%04d", error ? c->red : c->magenta,
                error ? "error" : "warning", c->off, c->bold, STR_FMT(diag->message), c->off,
                registry[diag->id].number);
    if (registry[diag->id].severity == SEV_WARNING)
        text_printf(out, ", -W%.*s", STR_FMT(option_of(diags->arena, diag->id)));
    text_add(out, STR("]\n"));
}

static void render_one(const Diags *diags, const Diag *diag, Text *out, const Colours *c)
{
    put_headline(diags, diag, out, c);
    if (diag->span.hi)
        put_snippet(diags, diag, diag->span, true, out, c);
    for (int i = 0; i < diag->labels.n; i++) {
        const DiagLabel *label = &diag->labels.v[i];
        text_printf(out, "%s", c->bold);
        put_place(diags, label->span, out);
        text_printf(out, "%snote:%s %.*s\n", c->cyan, c->off, STR_FMT(label->text));
        put_snippet(diags, diag, label->span, false, out, c);
    }
    for (int i = 0; i < diag->notes.n; i++)
        text_printf(out, "%snote:%s %.*s\n", c->cyan, c->off, STR_FMT(diag->notes.v[i]));
}

/* In the order of the files and lines, so that the output does not depend on which check ran
 * first; messages without a place come last. */
static bool comes_before(const Diag *a, const Diag *b)
{
    if (!a->span.hi || !b->span.hi)
        return a->span.hi > 0 && b->span.hi == 0;
    return a->span.file != b->span.file ? a->span.file < b->span.file : a->span.lo < b->span.lo;
}

int diags_sorted(const Diags *diags, const Diag **list)
{
    for (int i = 0; i < diags->list.n; i++) {
        int j = i;
        for (; j > 0 && comes_before(diags->list.v[i], list[j - 1]); j--)
            list[j] = list[j - 1];
        list[j] = diags->list.v[i];
    }
    return diags->list.n;
}

void diags_render_text(const Diags *diags, Text *out, bool colour)
{
    const Diag **list = arena_array(diags->arena, const Diag *, diags->list.n + 1);
    int n = diags_sorted(diags, list);
    for (int i = 0; i < n; i++)
        render_one(diags, list[i], out, colour ? &bright : &plain);
    if (n == LISTED_MAX)
        text_printf(out, "note: only the first %d messages are shown\n", LISTED_MAX);
}
