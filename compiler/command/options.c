/* getopt_long, long options in a table. */
#define _GNU_SOURCE /* getopt_long, which glibc and musl both have */
#include "options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char options_usage[] =
    "usage: isoc FILE [-o OUT]                 compile a contract to a cubin\n"
    "       isoc explain FILE OP [--layout L]  show an op's tree, roundings and owners\n"
    "       isoc diff A B                      say which ops' numerics differ\n"
    "       isoc import CONFIG [-o FILE]       write a contract for a Hugging Face config.json\n"
    "       isoc verify CUBIN [--device D]     check digests, proof and bits\n"
    "       isoc prove CUBIN [-o CERTIFICATE]  prove that the kernels' PTX computes the contract\n"
    "       isoc verify CUBIN --certificate=F  that it is the cubin of which that was proved\n"
    "       isoc run CUBIN --weights W --ids 1,2,3 [--tokens N]    continue a text of token ids\n"
    "       isoc score CUBIN --weights W --ids 1,2,3               its tokens' log-probabilities\n"
    "       isoc trace-diff A B                where two traces first differ\n"
    "\n"
    "  -o OUT                write to OUT (`-`: standard output)\n"
    "  --emit=KIND           cubin (default with -o), ptx, cuda, ast, dag, plan, manifest,\n"
    "                        header, certificate; without -o, texts go to standard output\n"
    "  --layout=NAME         only this layout\n"
    "  --arch=ARCH           sm_90a\n"
    "  -MD, -MF FILE         write the files that were read as a make rule\n"
    "  -W[no-]NAME, -Werror  switch a warning, make warnings errors\n"
    "  --diagnostics=KIND    text (default) or json\n"
    "  --explain=ISOnnnn     what a message means\n"
    "  --cache=DIR           keep compiled kernels there (`--cache=` for nowhere)\n"
    "  --device=cpu|ptx      verify: run ops on the executor, or the kernels' PTX beside it\n"
    "  --prove               compiling: write the cubin only if `prove` holds, and beside it\n"
    "                        OUT.proof.json, or --certificate=FILE\n"
    "  --kernel=NAME         verify --device=ptx, prove: only kernels whose name holds this\n"
    "  --weights=W           run, score: a folder or file of safetensors, a GGUF file, or seed:N\n"
    "  --ids=N,N,...         run, score: the tokens that are given; --tokens=N: how many to add\n"
    "  --trace=FOLDER        run, score: write every value there\n"
    "  --part=moe            import: the ops of its mixture of experts alone\n"
    "  --temperature=T, --seed=N  run: what tokens are drawn with; --device=cuda: on a GPU\n"
    "  --time, -v            seconds of each stage; more of what is done\n"
    "  -j N                  threads (the output does not depend on it)\n"
    "  --version, --help\n";

enum Long {
    LONG_EMIT = 256,
    LONG_ARCH,
    LONG_LAYOUT,
    LONG_DIAGNOSTICS,
    LONG_EXPLAIN,
    LONG_TIME,
    LONG_CACHE,
    LONG_DEVICE,
    LONG_KERNEL,
    LONG_CERTIFICATE,
    LONG_PROVE,
    LONG_WEIGHTS,
    LONG_IDS,
    LONG_TOKENS,
    LONG_TEMPERATURE,
    LONG_SEED,
    LONG_TRACE,
    LONG_PART,
    LONG_VERSION,
    LONG_HELP,
};

static const struct option long_options[] = {
    {"emit", required_argument, NULL, LONG_EMIT},
    {"arch", required_argument, NULL, LONG_ARCH},
    {"layout", required_argument, NULL, LONG_LAYOUT},
    {"diagnostics", required_argument, NULL, LONG_DIAGNOSTICS},
    {"explain", required_argument, NULL, LONG_EXPLAIN},
    {"time", no_argument, NULL, LONG_TIME},
    {"cache", required_argument, NULL, LONG_CACHE},
    {"device", required_argument, NULL, LONG_DEVICE},
    {"certificate", required_argument, NULL, LONG_CERTIFICATE},
    {"prove", no_argument, NULL, LONG_PROVE},
    {"kernel", required_argument, NULL, LONG_KERNEL},
    {"weights", required_argument, NULL, LONG_WEIGHTS},
    {"ids", required_argument, NULL, LONG_IDS},
    {"tokens", required_argument, NULL, LONG_TOKENS},
    {"temperature", required_argument, NULL, LONG_TEMPERATURE},
    {"seed", required_argument, NULL, LONG_SEED},
    {"trace", required_argument, NULL, LONG_TRACE},
    {"part", required_argument, NULL, LONG_PART},
    {"version", no_argument, NULL, LONG_VERSION},
    {"help", no_argument, NULL, LONG_HELP},
    {NULL, 0, NULL, 0},
};

static bool read_emit(Options *o, const char *name)
{
    for (int i = 0; i < OUTPUT_COUNT; i++)
        if (strcmp(output_name((Output)i), name) == 0) {
            o->emit = (Output)i;
            return o->emit_given = true;
        }
    return false;
}

static bool read_jobs(Options *o, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    o->jobs = (int)n;
    return *text && !*end && n >= 1 && n <= 1024;
}

static bool read_diagnostics(Options *o, const char *name)
{
    o->json = strcmp(name, "json") == 0;
    return o->json || strcmp(name, "text") == 0;
}

static bool read_device(Options *o, const char *name)
{
    bool model = o->command == COMMAND_RUN || o->command == COMMAND_SCORE;
    o->device = name;
    return strcmp(name, "cpu") == 0 || strcmp(name, model ? "cuda" : "ptx") == 0;
}

static bool read_int(int *to, int least, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    *to = (int)n;
    return *text && !*end && n >= least && n <= 1 << 24;
}

static bool read_temperature(Options *o, const char *text)
{
    char *end;
    o->temperature = strtof(text, &end);
    return *text && !*end && o->temperature >= 0 && o->temperature < 1e6f;
}

/* -Werror, -Wname, -Wno-name. */
static bool read_warning(Options *o, const char *name, Arena *arena)
{
    if (strcmp(name, "error") == 0)
        return o->werror = true;
    bool on = strncmp(name, "no-", 3) != 0;
    WarningSwitch w = {str_of(on ? name : name + 3), on};
    Diags known;
    diags_init(&known, arena, NULL);
    vec_push(arena, &o->warnings, w);
    return diag_enable(&known, w.name, on);
}

/* -MD and -MF file. */
static bool read_deps(Options *o, const char *what, int argc, char **argv)
{
    if (strcmp(what, "D") == 0)
        return o->deps = true;
    if (what[0] != 'F')
        return false;
    o->deps = true;
    o->deps_file = what[1] ? what + 1 : optind < argc ? argv[optind++] : NULL;
    return o->deps_file != NULL;
}

static bool read_option(Options *o, int option, int argc, char **argv, Arena *arena)
{
    switch (option) {
    case 'o': o->output = optarg; return true;
    case 'v': return o->verbose = true;
    case 'j': return read_jobs(o, optarg);
    case 'W': return read_warning(o, optarg, arena);
    case 'M': return read_deps(o, optarg, argc, argv);
    case LONG_EMIT: return read_emit(o, optarg);
    case LONG_ARCH: o->arch = optarg; return strcmp(optarg, "sm_90a") == 0;
    case LONG_LAYOUT: o->layout = optarg; return true;
    case LONG_DIAGNOSTICS: return read_diagnostics(o, optarg);
    case LONG_EXPLAIN: o->code = optarg; o->command = COMMAND_CODE; return true;
    case LONG_TIME: return o->time = true;
    case LONG_CACHE: o->cache = optarg; return true;
    case LONG_DEVICE: return read_device(o, optarg);
    case LONG_CERTIFICATE: o->certificate = optarg; return true;
    case LONG_PROVE: return o->prove = true;
    case LONG_KERNEL: o->kernel = optarg; return true;
    case LONG_WEIGHTS: o->weights = optarg; return true;
    case LONG_TRACE: o->trace = optarg; return true;
    case LONG_PART: return o->moe_alone = strcmp(optarg, "moe") == 0;
    case LONG_IDS: o->ids = optarg; return true;
    case LONG_TOKENS: return read_int(&o->tokens, 1, optarg);
    case LONG_SEED: return read_int(&o->seed, 0, optarg);
    case LONG_TEMPERATURE: return read_temperature(o, optarg);
    case LONG_VERSION: o->command = COMMAND_VERSION; return true;
    case LONG_HELP: o->command = COMMAND_HELP; return true;
    default: return false;
    }
}

/* ---- commands and their operands ------------------------------------------------------------- */

static const struct {
    const char *name;
    Command command;
    int operands;
    const char *takes;
} commands[] = {
    {"explain", COMMAND_EXPLAIN, 2, "FILE OP"},     {"diff", COMMAND_DIFF, 2, "A B"},
    {"import", COMMAND_IMPORT, 1, "CONFIG"},        {"verify", COMMAND_VERIFY, 1, "CUBIN"},
    {"prove", COMMAND_PROVE, 1, "CUBIN"},           {"run", COMMAND_RUN, 1, "CUBIN"},
    {"score", COMMAND_SCORE, 1, "CUBIN"},           {"trace-diff", COMMAND_TRACE_DIFF, 2, "A B"},
    {NULL, COMMAND_COMPILE, 1, "FILE"}, /* no word stands for it */
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static Command read_command(const char *word)
{
    int i = 0;
    while (commands[i].name && strcmp(commands[i].name, word))
        i++;
    return commands[i].command;
}

/* A file that is no file may be a command, misspelt. */
static const char *nearest_command(const char *word)
{
    for (int i = 0; commands[i].name; i++)
        if (str_distance(str_of(word), str_of(commands[i].name)) <= 2)
            return commands[i].name;
    return NULL;
}

static bool check_operands(const Options *o, Str *problem, Arena *arena)
{
    int i = 0;
    while (i < COMMANDS && commands[i].command != o->command)
        i++;
    if (i == COMMANDS || o->n_operands == commands[i].operands) /* --help and such take any */
        return true;
    const char *name = commands[i].name, *near = NULL;
    if (!name && o->n_operands > 1)
        near = nearest_command(o->operand[0]);
    if (o->n_operands == 0)
        *problem = STR("no file is named");
    else if (near)
        *problem = str_format(arena, "`%s` is no command; did you mean `%s`?", o->operand[0], near);
    else
        *problem = str_format(arena, "`isoc%s%s` takes %s, and %d operand%s given",
                              name ? " " : "", name ? name : "", commands[i].takes, o->n_operands,
                              o->n_operands == 1 ? " is" : "s are");
    return false;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* "ast, dag, plan, ..." */
static const char *kinds_text(Arena *arena)
{
    Text text = {.arena = arena};
    for (int i = 0; i < OUTPUT_COUNT; i++)
        text_printf(&text, "%s%s", i ? ", " : "", output_name((Output)i));
    return text_str(&text).s;
}

/* What may stand where a value was not understood. */
static const char *values_of(const Options *o, int option, Arena *arena)
{
    switch (option) {
    case 'j': return "a number of threads, 1 to 1024";
    case 'W': return str_format(arena, "error, or with or without no-: %.*s",
                                STR_FMT(diag_options(arena))).s;
    case 'M': return "D, or F and a file";
    case LONG_EMIT: return kinds_text(arena);
    case LONG_ARCH: return "sm_90a, which the kernels are written for";
    case LONG_DIAGNOSTICS: return "text or json";
    case LONG_DEVICE:
        return o->command == COMMAND_RUN || o->command == COMMAND_SCORE ? "cpu or cuda"
                                                                        : "cpu or ptx";
    case LONG_TOKENS: return "a whole number from 1";
    case LONG_SEED: return "a whole number from 0";
    case LONG_TEMPERATURE: return "a number from 0";
    default: return NULL;
    }
}

static Str option_problem(const Options *o, int option, const char *at, Arena *arena)
{
    const char *values = option == ':' || option == '?' ? NULL : values_of(o, option, arena);
    if (option == ':')
        return str_format(arena, "option `%s` lacks its value", at);
    if (!values)
        return str_format(arena, "option `%s` is not understood", at);
    const char *name = NULL;
    for (int i = 0; long_options[i].name; i++)
        if (long_options[i].val == option)
            name = long_options[i].name;
    Str given = name ? str_format(arena, "--%s=%s", name, optarg)
                     : str_format(arena, "-%c%s", option, optarg);
    return str_format(arena, "`%.*s` is not understood; it takes %s", STR_FMT(given), values);
}

bool options_read(int argc, char **argv, Options *o, Str *problem, Arena *arena)
{
    *o = (Options){.emit = OUTPUT_CUBIN, .jobs = (int)sysconf(_SC_NPROCESSORS_ONLN),
                   .tokens = 16, .temperature = 1};
    int first = 1, option;
    if (argc > 1 && (o->command = read_command(argv[1])) != COMMAND_COMPILE)
        first = 2;
    opterr = 0;
    optind = first;
    while ((option = getopt_long(argc, argv, ":o:vj:W:M:", long_options, NULL)) != -1) {
        const char *at = argv[optind - 1];
        if (option == ':' || option == '?' || !read_option(o, option, argc, argv, arena)) {
            *problem = option_problem(o, option, at, arena);
            return false;
        }
    }
    for (; optind < argc; optind++) {
        if (o->n_operands < 3)
            o->operand[o->n_operands] = argv[optind];
        o->n_operands++;
    }
    return check_operands(o, problem, arena);
}
