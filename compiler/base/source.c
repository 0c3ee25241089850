/* Source files, lines and columns. */
#include "source.h"

#include <string.h>

int sources_add(Sources *sources, Str name, Str text, Span included_from)
{
    SourceFile file = {name, text, included_from};
    vec_push(sources->arena, &sources->files, file);
    return sources->files.n - 1;
}

Span span_join(Span a, Span b)
{
    Span both = a;
    if (a.file != b.file)
        return both;
    if (b.lo < both.lo)
        both.lo = b.lo;
    if (b.hi > both.hi)
        both.hi = b.hi;
    return both;
}

/* A position may be the text's end: that is where a missing token is missed. */
static int clamp_offset(const SourceFile *file, int offset)
{
    if (offset < 0)
        return 0;
    return offset > file->text.n ? file->text.n : offset;
}

void source_position(const SourceFile *file, int offset, int *line, int *column)
{
    int end = clamp_offset(file, offset), start = 0;
    *line = 1;
    for (int i = 0; i < end; i++)
        if (file->text.s[i] == '\n') {
            ++*line;
            start = i + 1;
        }
    *column = end - start + 1;
}

Str source_line(const SourceFile *file, int offset, int *line_start)
{
    const char *s = file->text.s;
    int lo = clamp_offset(file, offset), hi = lo;
    while (lo > 0 && s[lo - 1] != '\n')
        lo--;
    while (hi < file->text.n && s[hi] != '\n')
        hi++;
    if (hi > lo && s[hi - 1] == '\r')
        hi--;
    *line_start = lo;
    return (Str){s + lo, hi - lo};
}

int utf8_length(const char *s, int left)
{
    const unsigned char *c = (const unsigned char *)s;
    if (left < 1)
        return 0;
    if (c[0] < 0x80)
        return 1;
    int n = c[0] >= 0xf5 ? 0 : c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : c[0] >= 0xc2 ? 2 : 0;
    if (n == 0 || n > left)
        return 0;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool surrogate = c[0] == 0xed && c[1] >= 0xa0, beyond = c[0] == 0xf4 && c[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : n;
}
