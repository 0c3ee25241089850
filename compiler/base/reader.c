/* Names of included files, and the two places that texts come from. */
#include "reader.h"

#include "file.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

typedef VEC(Str) Parts;

static bool is_absolute(Str name)
{
    return name.n > 0 && name.s[0] == '/';
}

/* The components, with "." left out and "x/.." taken back. */
static void split(Arena *arena, Str name, Parts *parts)
{
    for (int i = 0; i < name.n;) {
        int j = i;
        while (j < name.n && name.s[j] != '/')
            j++;
        Str part = {name.s + i, j - i};
        i = j + 1;
        if (part.n == 0 || str_is(part, "."))
            continue;
        if (str_is(part, "..") && parts->n > 0 && !str_is(parts->v[parts->n - 1], ".."))
            parts->n--;
        else
            vec_push(arena, parts, part);
    }
}

static Str join(Arena *arena, bool absolute, int ups, const Str *parts, int n)
{
    Text text = {.arena = arena};
    text_add(&text, absolute ? STR("/") : STR(""));
    for (int i = 0; i < ups; i++)
        text_add(&text, i + 1 < ups + n ? STR("../") : STR(".."));
    for (int i = 0; i < n; i++) {
        text_add(&text, parts[i]);
        if (i + 1 < n)
            text_add(&text, STR("/"));
    }
    return text_str(&text);
}

static Str folder_of(Str name)
{
    int n = name.n;
    while (n > 0 && name.s[n - 1] != '/')
        n--;
    return (Str){name.s, n};
}

static Str resolve(Arena *arena, Str from, Str name)
{
    Str folder = is_absolute(name) ? STR("") : folder_of(from);
    Str whole = str_format(arena, "%.*s%.*s", STR_FMT(folder), STR_FMT(name));
    Parts parts = {0};
    split(arena, whole, &parts);
    return join(arena, is_absolute(whole), 0, parts.v, parts.n);
}

Str reader_relative(Arena *arena, Str main, Str name)
{
    Parts base = {0}, parts = {0};
    split(arena, folder_of(main), &base);
    split(arena, name, &parts);
    if (is_absolute(main) != is_absolute(name))
        return name;
    int same = 0;
    while (same < base.n && same < parts.n && str_eq(base.v[same], parts.v[same]))
        same++;
    for (int i = same; i < base.n; i++)
        if (str_is(base.v[i], ".."))
            return name; /* the way back has no name */
    return join(arena, false, base.n - same, parts.v + same, parts.n - same);
}

/* ---- disk ------------------------------------------------------------------------------------ */

static bool disk_read(void *self, Arena *arena, Str from, Str name, Str *resolved, Str *text,
                      Str *reason)
{
    (void)self;
    bool first = from.n == 0;
    *resolved = first ? str_copy(arena, name) : resolve(arena, from, name);
    const char *problem = file_read(resolved->s, text, arena);
    if (problem)
        *reason = str_copy(arena, str_of(problem));
    else if (first && str_is(name, "-"))
        *resolved = STR("<stdin>");
    return !problem;
}

SourceReader reader_disk(void)
{
    return (SourceReader){disk_read, NULL};
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool memory_read(void *self, Arena *arena, Str from, Str name, Str *resolved, Str *text,
                        Str *reason)
{
    const MemoryFiles *files = self;
    *resolved = from.n == 0 ? str_copy(arena, name) : resolve(arena, from, name);
    for (int i = 0; i < files->n; i++)
        if (str_eq(files->v[i].name, *resolved)) {
            *text = files->v[i].text;
            return true;
        }
    *reason = STR("it is not among the sources");
    return false;
}

SourceReader reader_memory(MemoryFiles *files)
{
    return (SourceReader){memory_read, files};
}
