/* The checked list of survivors, read from its file. */
#include "survivors.h"

#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Survivor {
    int kernel, line;
    Str shape;
} Survivor;

/* Lines that no launch runs, and why. */
typedef struct Idle {
    int kernel, first, last;
} Idle;

typedef struct Known {
    Str name;
    u64 text;
} Known;

struct Survivors {
    Arena *arena;
    VEC(Str) classes;
    VEC(Known) kernels;
    VEC(Survivor) all;
    VEC(Idle) idle;
};

static void read_class(Survivors *list, const char *line)
{
    const char *colon = strchr(line, ':');
    if (!colon)
        bench_fail("a class of survivors without a reason");
    Str name = str_copy(list->arena, (Str){line + 2, (int)(colon - line - 2)});
    vec_push(list->arena, &list->classes, name);
}

static void read_kernel(Survivors *list, const char *line)
{
    char name[64];
    Known kernel;
    if (sscanf(line, "@ %63s %" SCNx64, name, &kernel.text) != 2)
        bench_fail("a kernel of survivors without its hash");
    kernel.name = str_copy(list->arena, str_of(name));
    vec_push(list->arena, &list->kernels, kernel);
}

static void read_survivor(Survivors *list, const char *line)
{
    char class[32];
    int number, at;
    bool known = false;
    if (sscanf(line, "%31s %d %n", class, &number, &at) != 2 || !list->kernels.n)
        bench_fail("a survivor without class or line");
    for (int i = 0; i < list->classes.n; i++)
        known |= str_is(list->classes.v[i], class);
    if (!known)
        bench_fail("a survivor of a class without a reason");
    Survivor s = {list->kernels.n - 1, number, str_copy(list->arena, str_of(line + at))};
    vec_push(list->arena, &list->all, s);
}

static void read_idle(Survivors *list, const char *line)
{
    Idle idle = {.kernel = list->kernels.n - 1};
    int at = 0;
    if (sscanf(line, "- %d %d: %n", &idle.first, &idle.last, &at) != 2 || !at || !line[at] ||
        idle.kernel < 0)
        bench_fail("lines that no launch runs without a reason");
    vec_push(list->arena, &list->idle, idle);
}

Survivors *survivors_open(const char *path, Arena *arena)
{
    Survivors *list = arena_new_of(arena, Survivors);
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file)
        bench_fail("the list of survivors cannot be read");
    list->arena = arena;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '=')
            read_class(list, line);
        else if (line[0] == '@')
            read_kernel(list, line);
        else if (line[0] == '-')
            read_idle(list, line);
        else if (line[0] && line[0] != '#' && line[0] != ' ')
            read_survivor(list, line);
    }
    fclose(file);
    return list;
}

bool survivors_know(const Survivors *list, const char *kernel, u64 text)
{
    bool known = false;
    for (int i = 0; i < list->kernels.n; i++)
        known |= str_is(list->kernels.v[i].name, kernel) && list->kernels.v[i].text == text;
    return known;
}

bool survivors_have(const Survivors *list, const char *kernel, u64 text, int line, Str shape)
{
    for (int i = 0; i < list->all.n; i++) {
        const Survivor *s = &list->all.v[i];
        const Known *k = &list->kernels.v[s->kernel];
        if (str_is(k->name, kernel) && str_eq(s->shape, shape) &&
            (k->text != text || s->line == line))
            return true;
    }
    return false;
}

bool survivors_explain(const Survivors *list, const char *kernel, u64 text, int line)
{
    for (int i = 0; i < list->idle.n; i++) {
        const Idle *idle = &list->idle.v[i];
        const Known *k = &list->kernels.v[idle->kernel];
        if (str_is(k->name, kernel) &&
            (k->text != text || (line >= idle->first && line <= idle->last)))
            return true;
    }
    return false;
}
