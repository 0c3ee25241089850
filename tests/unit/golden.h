/* Whole texts against the files that hold them. GOLDEN_UPDATE=1 writes the files instead: read what
 * changed before it is committed.
 * Ownership: scratch comes from the arena given. */
#ifndef ISOC_TEST_GOLDEN_H
#define ISOC_TEST_GOLDEN_H

#include <check.h>
#include <stdlib.h>

#include "base/file.h"

enum { GOLDEN_SHOWN = 12 }; /* lines of a difference */

/* Of the first line in which two texts differ its number and its start; 0: they are equal. */
static inline int golden_difference(Str a, Str b, int *start)
{
    int line = 1, i = 0;
    *start = 0;
    for (; i < a.n && i < b.n && a.s[i] == b.s[i]; i++)
        if (a.s[i] == '\n') {
            line++;
            *start = i + 1;
        }
    return i == a.n && i == b.n ? 0 : line;
}

static inline Str golden_lines(Str text, int start)
{
    int end = start, lines = 0;
    while (end < text.n && lines < GOLDEN_SHOWN)
        lines += text.s[end++] == '\n';
    return (Str){text.s + start, end - start};
}

static inline void golden_compare(const char *path, Str got, Arena *arena)
{
    Str want;
    int start;
    if (getenv("GOLDEN_UPDATE")) {
        const char *problem = file_write(path, got);
        ck_assert_msg(!problem, "%s: %s", path, problem);
        return;
    }
    const char *problem = file_read(path, &want, arena);
    ck_assert_msg(!problem, "%s: %s (GOLDEN_UPDATE=1 writes it)", path, problem);
    int line = golden_difference(want, got, &start);
    ck_assert_msg(!line, "%s differs at line %d (GOLDEN_UPDATE=1 writes it anew); found\n%.*s",
                  path, line, STR_FMT(golden_lines(got, start)));
}

#endif
