/* A contract held in memory, for tests of the front end.
 * Ownership: everything lives in the Front's arena until front_close. */
#ifndef ISOC_TEST_FRONT_H
#define ISOC_TEST_FRONT_H

#include <string.h>

#include "front/parse.h"

typedef struct FrontFile {
    const char *name, *text;
} FrontFile;

typedef struct Front {
    Arena *arena;
    Sources sources;
    Diags diags;
    Ast ast;
    FrontFile files[8];
    int file_count;
} Front;

static inline bool front_read(void *self, Arena *arena, Str from, Str name, Str *resolved,
                              Str *text, Str *reason)
{
    Front *f = self;
    (void)arena;
    (void)from;
    for (int i = 0; i < f->file_count; i++)
        if (str_is(name, f->files[i].name)) {
            *resolved = name;
            *text = str_of(f->files[i].text);
            return true;
        }
    *reason = STR("no such file");
    return false;
}

static inline void front_add(Front *f, const char *name, const char *text)
{
    f->files[f->file_count++] = (FrontFile){name, text};
}

static inline void front_open(Front *f, const char *text)
{
    *f = (Front){.arena = arena_new()};
    f->sources = (Sources){.arena = f->arena, .reader = {front_read, f}};
    diags_init(&f->diags, f->arena, &f->sources);
    front_add(f, "main.iso", text);
}

static inline bool front_parse(Front *f)
{
    return parse_contract(&f->sources, STR("main.iso"), &f->ast, f->arena, &f->diags);
}

static inline const char *front_text(Front *f)
{
    Text out = {.arena = f->arena};
    diags_render_text(&f->diags, &out, false);
    return text_str(&out).s;
}

static inline void front_close(Front *f)
{
    arena_free(f->arena);
}

#endif
