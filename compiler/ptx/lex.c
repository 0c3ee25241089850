/* The cursor over PTX text. */
#include "parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ptx_fail(PtxParse *p, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *p->problem = str_format(p->arena, "PTX line %d: %s", p->line, text);
    longjmp(p->failed, 1);
}

static bool starts(const PtxParse *p, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, s, n) == 0;
}

void ptx_skip_line(PtxParse *p)
{
    while (p->at < p->end && *p->at != '\n')
        p->at++;
}

static void skip_comment(PtxParse *p)
{
    for (p->at += 2; p->at < p->end && !starts(p, "*/"); p->at++)
        p->line += *p->at == '\n';
    p->at = p->end - p->at < 2 ? p->end : p->at + 2;
}

void ptx_space(PtxParse *p)
{
    while (p->at < p->end) {
        if (*p->at == '\n')
            p->line++;
        if (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
            p->at++;
        else if (starts(p, "//"))
            ptx_skip_line(p);
        else if (starts(p, "/*"))
            skip_comment(p);
        else
            return;
    }
}

bool ptx_peek(PtxParse *p, char c)
{
    ptx_space(p);
    return p->at < p->end && *p->at == c;
}

bool ptx_eat(PtxParse *p, char c)
{
    if (!ptx_peek(p, c))
        return false;
    p->at++;
    return true;
}

void ptx_need(PtxParse *p, char c)
{
    if (!ptx_eat(p, c))
        ptx_fail(p, "'%c' is missing", c);
}

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '$';
}

/* Names may begin with % or, directives, with a dot; special registers have one inside. */
Str ptx_word(PtxParse *p)
{
    ptx_space(p);
    const char *start = p->at;
    if (p->at < p->end && (*p->at == '%' || *p->at == '.'))
        p->at++;
    while (p->at < p->end && (in_name(*p->at) || (*start == '%' && *p->at == '.')))
        p->at++;
    return (Str){start, (int)(p->at - start)};
}

Str ptx_opcode(PtxParse *p)
{
    ptx_space(p);
    const char *start = p->at;
    while (p->at < p->end && (in_name(*p->at) || *p->at == '.' || *p->at == ':'))
        p->at++;
    return (Str){start, (int)(p->at - start)};
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

bool ptx_number(PtxParse *p, u64 *bits)
{
    ptx_space(p);
    const char *start = p->at;
    bool minus = p->at < p->end && *p->at == '-';
    p->at += minus;
    int base = starts(p, "0x") || starts(p, "0X") || starts(p, "0f") || starts(p, "0F") ? 16 : 10;
    p->at += base == 16 ? 2 : 0;
    const char *digits = p->at;
    for (*bits = 0; p->at < p->end && digit_of(*p->at) < base; p->at++)
        *bits = *bits * (u64)base + (u64)digit_of(*p->at);
    if (p->at == digits) {
        p->at = start;
        return false;
    }
    if (p->at < p->end && (*p->at == 'U' || *p->at == 'u'))
        p->at++;
    if (p->at < p->end && (in_name(*p->at) || *p->at == '.'))
        ptx_fail(p, "a number of an unknown form");
    if (minus)
        *bits = 0 - *bits;
    return true;
}

void ptx_skip_past(PtxParse *p, char c)
{
    for (; p->at < p->end && *p->at != c; p->at++)
        p->line += *p->at == '\n';
    ptx_need(p, c);
}

void ptx_skip_braces(PtxParse *p)
{
    int depth = 1;
    for (ptx_need(p, '{'); p->at < p->end && depth; p->at++) {
        p->line += *p->at == '\n';
        depth += (*p->at == '{') - (*p->at == '}');
    }
}
