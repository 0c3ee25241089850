/* `isoc import`: a contract from a Hugging Face config.json. */
#include "commands.h"
#include "base/file.h"
#include "import/import.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int import_file(const Options *o, Sources *sources, Diags *diags, Arena *arena)
{
    Str json;
    Text text = {.arena = arena};
    const char *path = o->operand[0], *problem = file_read(path, &json, arena);
    if (problem) {
        diag_add(diags, DIAG_FILE_UNREADABLE, (Span){0}, "cannot read '%s': %s", path, problem);
        return OUTCOME_USAGE;
    }
    int file = sources_add(sources, str_of(path), json, (Span){0});
    if (!import_config(file, o->moe_alone ? IMPORT_MOE : IMPORT_WHOLE, &text, arena, diags))
        return OUTCOME_CONTRACT;
    problem = file_write(o->output ? o->output : "-", text_str(&text));
    if (!problem)
        return OUTCOME_OK;
    diag_add(diags, DIAG_CANNOT_WRITE, (Span){0}, "%s: %s",
             o->output && strcmp(o->output, "-") ? o->output : "standard output", problem);
    return OUTCOME_USAGE;
}

int command_import(const Options *o)
{
    jmp_buf oom;
    Diags diags;
    Arena *arena = arena_new();
    Sources sources = {.arena = arena};
    if (!arena)
        return command_no_memory();
    arena_on_oom(arena, &oom);
    if (setjmp(oom)) {
        arena_free(arena);
        return command_no_memory();
    }
    diags_init(&diags, arena, &sources);
    int code = import_file(o, &sources, &diags, arena);
    Text messages = {.arena = arena};
    if (o->json)
        diags_render_json(&diags, &messages);
    else
        diags_render_text(&diags, &messages, isatty(STDERR_FILENO));
    fwrite(text_str(&messages).s, 1, (size_t)text_str(&messages).n, stderr);
    arena_free(arena);
    return code;
}
