/* The command. */
#include "commands.h"

#include <stdio.h>

enum { LANGUAGE_VERSION = 1 };

static int explain_code(const Options *o, Arena *arena)
{
    DiagId id;
    if (!diag_lookup(str_of(o->code), &id)) {
        fprintf(stderr, "isoc: error: no message has the code `%s`\n", o->code);
        return OUTCOME_USAGE;
    }
    Str text = diag_explanation(arena, id);
    printf("%.*s", STR_FMT(text));
    return OUTCOME_OK;
}

static int print_version(Arena *arena)
{
    Sources sources = {.arena = arena};
    Diags diags;
    diags_init(&diags, arena, &sources);
    const Nvrtc *nvrtc = nvrtc_open(&diags);
    printf("isoc %s\nlanguage %d, manifest format %d\n", ISOC_VERSION, LANGUAGE_VERSION,
           MANIFEST_FORMAT);
    if (nvrtc)
        printf("NVRTC %s (%.*s)\n", nvrtc_version(nvrtc, arena).s, STR_FMT(nvrtc_path(nvrtc)));
    else
        printf("NVRTC not found\n");
    return OUTCOME_OK;
}

static int run(const Options *o, Arena *arena)
{
    switch (o->command) {
    case COMMAND_COMPILE: return command_compile(o);
    case COMMAND_EXPLAIN: return command_explain(o);
    case COMMAND_DIFF: return command_diff(o);
    case COMMAND_IMPORT: return command_import(o);
    case COMMAND_VERIFY:
    case COMMAND_PROVE: return command_verify(o);
    case COMMAND_RUN:
    case COMMAND_SCORE: return command_model(o);
    case COMMAND_TRACE_DIFF: return command_trace_diff(o);
    case COMMAND_CODE: return explain_code(o, arena);
    case COMMAND_VERSION: return print_version(arena);
    case COMMAND_HELP: printf("%s", options_usage); return OUTCOME_OK;
    }
    return OUTCOME_USAGE;
}

int main(int argc, char **argv)
{
    jmp_buf oom;
    Options options;
    Str problem = {0};
    Arena *arena = arena_new();
    if (!arena)
        return command_no_memory();
    arena_on_oom(arena, &oom);
    if (setjmp(oom))
        return command_no_memory();
    int code = OUTCOME_USAGE;
    if (options_read(argc, argv, &options, &problem, arena))
        code = run(&options, arena);
    else
        fprintf(stderr, "isoc: error: %.*s\nisoc: `isoc --help` lists the commands and options\n",
                STR_FMT(problem));
    if (code == OUTCOME_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "isoc: error: standard output cannot be written\n");
        code = OUTCOME_USAGE;
    }
    arena_free(arena);
    return code;
}
