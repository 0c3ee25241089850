/* Compiling: stages run, bytes and messages out. */
#include "commands.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- messages -------------------------------------------------------------------------------- */

void command_messages(const Options *o, Pipeline *p)
{
    jmp_buf oom;
    arena_on_oom(p->front, &oom);
    if (!setjmp(oom)) {
        Text text = {.arena = p->front};
        if (o->json)
            diags_render_json(&p->diags, &text);
        else
            diags_render_text(&p->diags, &text, isatty(STDERR_FILENO));
        fwrite(text_str(&text).s, 1, (size_t)text_str(&text).n, stderr);
    }
    arena_on_oom(p->front, NULL);
}

static void print_times(const Pipeline *p, Stage last)
{
    double sum = 0;
    for (int i = 0; i <= (int)last; i++) {
        fprintf(stderr, "%-10s %8.3f s%s\n", stage_name((Stage)i), p->seconds[i],
                i == STAGE_COMPILE && p->cached ? "  (from the cache)" : "");
        sum += p->seconds[i];
    }
    fprintf(stderr, "%-10s %8.3f s\n", "total", sum);
}

static void say_stage(void *self, Stage stage, Str detail)
{
    char line[160];
    snprintf(line, sizeof line, "%s: %.*s", stage_name(stage), STR_FMT(detail));
    progress_say(self, line, 0, 0);
}

PipelineInput command_input(const Options *o, const char *path, Progress *progress)
{
    return (PipelineInput){
        .path = str_of(path),
        .reader = reader_disk(),
        .arch = o->arch,
        .layout = o->layout,
        .cache = o->cache,
        .warnings_as_errors = o->werror,
        .n_warnings = o->warnings.n,
        .warnings = o->warnings.v,
        .progress = say_stage,
        .progress_self = progress,
    };
}

int command_no_memory(void)
{
    fprintf(stderr, "isoc: error: out of memory\n");
    return OUTCOME_MEMORY;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool write_file(Pipeline *p, const char *path, Str bytes)
{
    const char *problem = file_write(path, bytes);
    if (!problem)
        return true;
    diag_add(&p->diags, DIAG_CANNOT_WRITE, (Span){0}, "%s: %s",
             strcmp(path, "-") ? path : "standard output", problem);
    p->outcome = OUTCOME_USAGE;
    return false;
}

/* A make rule: the output, and every file that was read. A blank in a name is escaped. */
static Str rule_of(const Pipeline *p, const char *output, Arena *arena)
{
    Text text = {.arena = arena};
    text_printf(&text, "%s:", output);
    for (int i = 0; i < p->sources.files.n; i++) {
        Str name = p->sources.files.v[i].name;
        text_printf(&text, " ");
        for (int k = 0; k < name.n; k++)
            text_printf(&text, "%s%c", name.s[k] == ' ' ? "\\" : "", name.s[k]);
    }
    text_printf(&text, "\n");
    return text_str(&text);
}

static bool write_rule(Pipeline *p, const Options *o)
{
    const char *output = o->output ? o->output : "-", *file = o->deps_file;
    if (!file)
        file = str_format(p->out, "%s.d", o->output ? o->output : o->operand[0]).s;
    return write_file(p, file, rule_of(p, output, p->out));
}

/* Without -o and --emit a contract is checked and proved; there is nowhere to put a cubin. */
static Stage last_stage(const Options *o)
{
    if (!o->output && !o->emit_given)
        return STAGE_PROOF;
    return output_stage(o->emit);
}

static void write_outputs(Pipeline *p, const Options *o)
{
    bool binary = o->emit == OUTPUT_CUBIN;
    const char *path = o->output ? o->output : binary ? NULL : "-";
    if (path) {
        Str bytes = pipeline_output(p, o->emit);
        if (p->outcome != OUTCOME_OK || !write_file(p, path, bytes))
            return;
    }
    if (o->deps && !write_rule(p, o))
        return;
    if (last_stage(o) < STAGE_PROOF || (path && strcmp(path, "-") == 0) || o->json)
        return;
    Text table = {.arena = p->out};
    proof_table(&p->plan, &p->certificate, &table);
    Str s = text_str(&table);
    printf("%.*s%s", STR_FMT(s), s.n && s.s[s.n - 1] != '\n' ? "\n" : "");
}

bool command_run(const Options *o, const char *path, Stage last, Pipeline *p)
{
    Progress *progress = progress_start();
    PipelineInput input = command_input(o, path, progress);
    bool ok = pipeline_open(p, &input) && pipeline_run(p, last);
    p->input.progress = NULL;
    progress_stop(progress);
    return ok;
}

static void print_facts(const Options *o, Pipeline *p)
{
    if (o->verbose && p->nvrtc)
        fprintf(stderr, "NVRTC %s: %.*s, %d kernels%s\n", nvrtc_version(p->nvrtc, p->out).s,
                STR_FMT(nvrtc_path(p->nvrtc)), p->emitted.n_kernels,
                p->cached ? ", from the cache" : "");
    for (int i = 0; o->verbose && i < p->binary.kernels.n; i++) {
        const KernelUse *use = &p->binary.kernels.v[i];
        fprintf(stderr, "%-28.*s %3d registers, %d bytes of stack\n", STR_FMT(use->name),
                use->registers, use->stack);
    }
    if (o->time)
        print_times(p, last_stage(o));
}

int command_compile(const Options *o)
{
    Pipeline p;
    if (o->emit == OUTPUT_CUBIN && o->emit_given && !o->output) {
        fprintf(stderr, "isoc: error: a cubin needs `-o FILE`, or `-o -` for standard output\n");
        return OUTCOME_USAGE;
    }
    if (o->prove && (o->emit != OUTPUT_CUBIN || !o->output || strcmp(o->output, "-") == 0)) {
        fprintf(stderr, "isoc: error: --prove needs `-o FILE` for a cubin\n");
        return OUTCOME_USAGE;
    }
    const char *problem = o->output ? file_writable(o->output) : NULL;
    if (problem) {
        fprintf(stderr, "isoc: error: cannot write %s: %s\n", o->output, problem);
        return OUTCOME_USAGE;
    }
    bool ok = command_run(o, o->operand[0], last_stage(o), &p);
    if (!p.front)
        return command_no_memory();
    int unproved = ok && o->prove ? command_verify_ptx(o, &p, STR(""), STR("")) : OUTCOME_OK;
    if (ok && !unproved)
        write_outputs(&p, o);
    print_facts(o, &p);
    command_messages(o, &p);
    int code = unproved ? unproved : (int)p.outcome;
    pipeline_close(&p);
    return code == OUTCOME_MEMORY ? command_no_memory() : code;
}
