/* The command line, as data.
 * Ownership: strings are argv's own; lists live in the arena given. */
#ifndef ISOC_OPTIONS_H
#define ISOC_OPTIONS_H

#include "pipeline.h"

typedef enum Command {
    COMMAND_COMPILE,
    COMMAND_EXPLAIN, /* explain FILE OP [--layout L] */
    COMMAND_DIFF,    /* diff A B */
    COMMAND_IMPORT,  /* import CONFIG [--part=moe] [-o FILE] */
    COMMAND_VERIFY,  /* verify CUBIN|FILE [--device cpu|ptx] [--certificate FILE] */
    COMMAND_PROVE,   /* prove CUBIN|FILE [-o CERTIFICATE] */
    COMMAND_RUN,     /* run CUBIN|FILE --weights W --ids 1,2,3 [--tokens N] */
    COMMAND_SCORE,   /* score CUBIN|FILE --weights W --ids 1,2,3 */
    COMMAND_TRACE_DIFF, /* trace-diff A B */
    COMMAND_CODE,    /* --explain=ISOnnnn */
    COMMAND_VERSION,
    COMMAND_HELP,
} Command;

typedef struct Options {
    Command command;
    int n_operands;
    const char *operand[3];
    const char *output;     /* -o */
    Output emit;
    bool emit_given;
    const char *arch, *layout, *cache, *device, *kernel, *code;
    const char *certificate; /* verify: to check; compiling with `prove`: to write */
    bool prove;
    bool deps;              /* -MD */
    const char *deps_file;  /* -MF */
    bool werror, json, time, verbose;
    int jobs;
    bool moe_alone;                    /* import: --part=moe */
    const char *weights, *ids, *trace; /* run, score */
    int tokens, seed;
    float temperature;
    VEC(WarningSwitch) warnings;
} Options;

/* False with a sentence in *problem (usage errors); the program's name is not in it. */
bool options_read(int argc, char **argv, Options *options, Str *problem, Arena *arena);

extern const char options_usage[];

#endif
