/* Any bytes as a config.json: refused with a message, or imported, whole and in part, to contracts
 * that are such. */
#include <stdlib.h>

#include "check/contract.h"
#include "front/parse.h"
#include "import/import.h"

typedef struct Written {
    Str text;
} Written;

static bool read_written(void *self, Arena *arena, Str from, Str name, Str *resolved, Str *text,
                         Str *reason)
{
    (void)arena;
    *resolved = name;
    *text = ((const Written *)self)->text;
    *reason = STR("a contract that is imported includes nothing");
    return from.n == 0;
}

static void trap(bool holds)
{
    if (!holds)
        abort();
}

static void check_written(Str text, Arena *arena)
{
    Written written = {text};
    Sources sources = {.arena = arena, .reader = {read_written, &written}};
    Diags diags;
    Ast ast;
    Contract contract;
    diags_init(&diags, arena, &sources);
    trap(parse_contract(&sources, STR("imported.iso"), &ast, arena, &diags));
    trap(check_contract(&ast, &contract, arena, &diags) || diags.errors > 0);
}

static void import(Str config, ImportPart part)
{
    Arena *arena = arena_new();
    Sources sources = {.arena = arena};
    Diags diags;
    Text text = {.arena = arena}, messages = {.arena = arena};
    diags_init(&diags, arena, &sources);
    int file = sources_add(&sources, STR("config.json"), config, (Span){0});
    if (import_config(file, part, &text, arena, &diags))
        check_written(text_str(&text), arena);
    else
        trap(diags.errors > 0);
    diags_render_text(&diags, &messages, true);
    arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    import((Str){(const char *)data, (int)size}, IMPORT_WHOLE);
    import((Str){(const char *)data, (int)size}, IMPORT_MOE);
    return 0;
}
