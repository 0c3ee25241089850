/* Lines, scopes and constants of the text that is emitted. */
#include "writer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void writer_init(Writer *w, Arena *arena)
{
    *w = (Writer){.text = {.arena = arena}};
    text_add(&w->text, STR(""));
}

static Str format_list(Arena *arena, const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *s = arena_alloc(arena, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, format, list);
    return (Str){s, n};
}

static void put(Writer *w, Str line, const char *tail)
{
    if (line.n || *tail)
        text_printf(&w->text, "%*s%.*s%s", 4 * w->depth, "", STR_FMT(line), tail);
    text_add(&w->text, STR("\n"));
}

void writer_line(Writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    put(w, format_list(w->text.arena, format, list), "");
    va_end(list);
}

void writer_open(Writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    put(w, format_list(w->text.arena, format, list), " {");
    va_end(list);
    w->depth++;
}

void writer_open_flat(Writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    put(w, format_list(w->text.arena, format, list), " {");
    va_end(list);
}

void writer_close_flat(Writer *w)
{
    put(w, STR("}"), "");
}

void writer_close(Writer *w, const char *tail)
{
    w->depth--;
    put(w, STR("}"), tail);
}

Str writer_decl(Writer *w, const char *type, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    Str value = format_list(w->text.arena, format, list);
    va_end(list);
    Str name = str_format(w->text.arena, "t%d", w->names++);
    writer_line(w, "const %s %.*s = %.*s;", type, STR_FMT(name), STR_FMT(value));
    return name;
}

void writer_insert(Writer *w, Str lines)
{
    while (lines.n > 0) {
        const char *end = memchr(lines.s, '\n', (size_t)lines.n);
        int n = end ? (int)(end - lines.s) : lines.n;
        put(w, (Str){lines.s, n}, "");
        lines.s += end ? n + 1 : n;
        lines.n -= end ? n + 1 : n;
    }
}

Str writer_f32(Arena *arena, u32 bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return str_format(arena, "iso_bits_f32(0x%08Xu /* %.9g */)", bits, (double)value);
}

/* The exact value of 16 bits of either format; for the comment alone. */
static double value_of_16(DType type, u32 bits)
{
    if (type == DT_F16) {
        int exp = bits >> 10 & 31, sig = bits & 0x3FF;
        double size = exp ? ldexp(sig | 0x400, exp - 25) : ldexp(sig, -24);
        return bits & 0x8000 ? -size : size;
    }
    u32 wide = bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

Str writer_u16(Arena *arena, DType type, u32 bits)
{
    return str_format(arena, "(IsoU16)0x%04Xu /* %.9g */", bits, value_of_16(type, bits));
}
