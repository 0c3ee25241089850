/* The stages, one per line, in pipeline_run; each only reads what the ones before it wrote. */
#include "pipeline.h"

#include "cubin/header_write.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const stage_names[] = {
#define X(id, name) name,
    STAGE_LIST(X)
#undef X
};

const char *stage_name(Stage stage)
{
    return stage_names[stage];
}

/* ---- stages ---------------------------------------------------------------------------------- */

static bool run_parse(Pipeline *p)
{
    if (parse_contract(&p->sources, p->input.path, &p->ast, p->front, &p->diags))
        return true;
    /* A main file that is not there is a slip of the command line, not of the contract. */
    for (int i = 0; i < p->diags.list.n; i++)
        if (p->diags.list.v[i]->id == DIAG_FILE_UNREADABLE && p->diags.list.v[i]->span.hi == 0)
            p->outcome = OUTCOME_USAGE;
    return false;
}

static bool run_check(Pipeline *p)
{
    return check_contract(&p->ast, &p->contract, p->front, &p->diags);
}

static bool run_dag(Pipeline *p)
{
    return dag_build(&p->contract, &p->dag, p->mid, &p->diags);
}

static void no_such_layout(Pipeline *p)
{
    Str name = str_of(p->input.layout);
    Diag *d = diag_add(&p->diags, DIAG_NO_SUCH_LAYOUT, (Span){0},
                       "contract %.*s has no layout `%.*s`", STR_FMT(p->contract.name),
                       STR_FMT(name));
    Text names = {.arena = p->front};
    for (int i = 0; i < p->contract.n_layouts; i++)
        text_printf(&names, "%s%.*s", i ? ", " : "", STR_FMT(p->contract.layouts[i].name.text));
    if (names.n)
        diag_note(&p->diags, d, "its layouts: %.*s", STR_FMT(text_str(&names)));
    else
        diag_note(&p->diags, d, "it has no layouts: leave --layout out, or declare one, "
                                "layout %.*s { ... }", STR_FMT(name));
    p->outcome = OUTCOME_USAGE;
}

bool pipeline_layout(Pipeline *p, const Layout **layout)
{
    *layout = NULL;
    if (p->input.layout)
        *layout = contract_layout(&p->contract, str_of(p->input.layout));
    if (p->input.layout && !*layout)
        no_such_layout(p);
    return *layout || !p->input.layout;
}

static bool run_plan(Pipeline *p)
{
    const Layout *only;
    if (!pipeline_layout(p, &only))
        return false;
    return plan_build(&p->dag, only, &p->plan, p->mid, &p->diags);
}

static bool run_proof(Pipeline *p)
{
    return proof_check(&p->plan, &p->certificate, p->mid, &p->diags);
}

static bool run_emit(Pipeline *p)
{
    Str digest = digest_hex(p->out, &p->dag.fingerprint);
    Str provenance = str_format(p->out, "// isoc %s, contract %.*s version %d, fingerprint %.*s",
                                ISOC_VERSION, STR_FMT(p->contract.name), p->contract.version,
                                STR_FMT(digest));
    return emit_program(&p->plan, provenance, &p->emitted, p->out, &p->diags);
}

static bool run_compile(Pipeline *p)
{
    p->outcome = OUTCOME_TOOLCHAIN;
    p->nvrtc = nvrtc_open(&p->diags);
    if (!p->nvrtc)
        return false;
    Str dir = cache_dir(p->input.cache, p->out);
    Digest key = cache_key(p->nvrtc, p->arch, p->emitted.program, p->out);
    p->cached = cache_get(dir, &key, &p->binary, p->out);
    if (p->cached)
        return true;
    if (!nvrtc_compile(p->nvrtc, p->emitted.program, p->arch, &p->binary, p->out, &p->diags))
        return false;
    cache_put(dir, &key, &p->binary, p->out);
    return true;
}

static int registers_of(const Pipeline *p, Str kernel)
{
    for (int i = 0; i < p->binary.kernels.n; i++)
        if (str_eq(p->binary.kernels.v[i].name, kernel))
            return p->binary.kernels.v[i].registers;
    return 0;
}

/* The flags, one a line, as an array. */
static Str *lines_of(Str text, int *n, Arena *arena)
{
    VEC(Str) lines = {0};
    while (text.n > 0) {
        const char *end = memchr(text.s, '\n', (size_t)text.n);
        Str line = {text.s, end ? (int)(end - text.s) : text.n};
        vec_push(arena, &lines, line);
        int used = line.n + (end != NULL);
        text = (Str){text.s + used, text.n - used};
    }
    *n = lines.n;
    return lines.v;
}

static bool run_manifest(Pipeline *p)
{
    Digest cubin = sha256(p->binary.cubin.s, (size_t)p->binary.cubin.n);
    Digest cuda = sha256(p->emitted.program.s, (size_t)p->emitted.program.n);
    Digest ptx = sha256(p->binary.ptx.s, (size_t)p->binary.ptx.n);
    int *registers = arena_array(p->out, int, p->emitted.n_kernels + 1);
    for (int i = 0; i < p->emitted.n_kernels; i++)
        registers[i] = registers_of(p, p->emitted.kernels[i].name);
    ManifestBuild build = {.arch = p->arch, .cubin = &cubin, .cuda = &cuda, .ptx = &ptx,
                           .registers = registers};
    nvrtc_numbers(p->nvrtc, &build.nvrtc_major, &build.nvrtc_minor);
    build.options = lines_of(nvrtc_options(p->out, p->arch), &build.n_options, p->out);
    p->manifest.arena = p->out;
    p->outcome = OUTCOME_MEMORY;
    return manifest_write(&p->sources, &p->plan, &p->emitted, &p->certificate, &build,
                          &p->manifest);
}

static bool run_artifact(Pipeline *p)
{
    const char *problem = artifact_append(p->binary.cubin, text_str(&p->manifest), &p->artifact,
                                          p->out);
    if (!problem)
        return true;
    p->outcome = OUTCOME_TOOLCHAIN;
    diag_add(&p->diags, DIAG_CUBIN_REFUSED, (Span){0}, "NVRTC's cubin cannot take a manifest: %s",
             problem);
    return false;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Str detail_of(Pipeline *p, Stage stage)
{
    if (stage == STAGE_COMPILE)
        return str_format(p->out, "%d kernels", p->emitted.n_kernels);
    if (stage == STAGE_PROOF)
        return str_format(p->out, "%d ops in layouts", p->plan.ops.n);
    return p->input.path;
}

static bool step(Pipeline *p, Stage stage, Stage last, bool (*run)(Pipeline *))
{
    if (stage > last)
        return true;
    if (p->input.progress)
        p->input.progress(p->input.progress_self, stage, detail_of(p, stage));
    double start = now();
    p->outcome = OUTCOME_CONTRACT; /* what a failure is, unless the stage knows better */
    bool ok = run(p);
    p->seconds[stage] = now() - start;
    if (ok && p->diags.errors == 0)
        p->outcome = OUTCOME_OK;
    return p->outcome == OUTCOME_OK;
}

bool pipeline_run(Pipeline *p, Stage last)
{
    jmp_buf oom;
    Arena *const arenas[] = {p->front, p->mid, p->out};
    for (size_t i = 0; i < 3; i++)
        arena_on_oom(arenas[i], &oom);
    bool ok = false;
    if (setjmp(oom))
        p->outcome = OUTCOME_MEMORY;
    else
        ok = step(p, STAGE_PARSE, last, run_parse) &&
             step(p, STAGE_CHECK, last, run_check) &&
             step(p, STAGE_DAG, last, run_dag) &&
             step(p, STAGE_PLAN, last, run_plan) &&
             step(p, STAGE_PROOF, last, run_proof) &&
             step(p, STAGE_EMIT, last, run_emit) &&
             step(p, STAGE_COMPILE, last, run_compile) &&
             step(p, STAGE_MANIFEST, last, run_manifest) &&
             step(p, STAGE_ARTIFACT, last, run_artifact);
    for (size_t i = 0; i < 3; i++)
        arena_on_oom(arenas[i], NULL);
    return ok && p->outcome == OUTCOME_OK;
}

bool pipeline_open(Pipeline *p, const PipelineInput *input)
{
    *p = (Pipeline){.input = *input, .front = arena_new(), .mid = arena_new(),
                    .out = arena_new()};
    if (!p->front || !p->mid || !p->out) {
        pipeline_close(p);
        return false;
    }
    p->arch = str_of(input->arch ? input->arch : "sm_90a");
    p->sources = (Sources){.arena = p->front, .reader = input->reader};
    diags_init(&p->diags, p->front, &p->sources);
    p->diags.warnings_as_errors = input->warnings_as_errors;
    for (int i = 0; i < input->n_warnings; i++)
        diag_enable(&p->diags, input->warnings[i].name, input->warnings[i].on);
    return true;
}

void pipeline_close(Pipeline *p)
{
    arena_free(p->front);
    arena_free(p->mid);
    arena_free(p->out);
    *p = (Pipeline){0};
}

/* ---- outputs --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    Stage stage;
} outputs[] = {
#define X(id, name, stage) {name, STAGE_##stage},
    OUTPUT_LIST(X)
#undef X
};

const char *output_name(Output output)
{
    return outputs[output].name;
}

Stage output_stage(Output output)
{
    return outputs[output].stage;
}

static Str print_dag(Pipeline *p, Text *text)
{
    for (int i = 0; i < p->dag.n_ops; i++)
        dag_print(&p->dag, &p->dag.ops[i], text);
    if (p->contract.model)
        dag_model_text(&p->dag, false, text);
    return text_str(text);
}

static Str print_output(Pipeline *p, Output output)
{
    Text text = {.arena = p->out};
    switch (output) {
    case OUTPUT_AST: ast_print(&p->ast, &text); return text_str(&text);
    case OUTPUT_DAG: return print_dag(p, &text);
    case OUTPUT_PLAN: plan_print(&p->plan, &text); return text_str(&text);
    case OUTPUT_CERTIFICATE:
        proof_json(&p->dag, &p->certificate, &text);
        return text_str(&text);
    case OUTPUT_CUDA: return p->emitted.program;
    case OUTPUT_HEADER: header_write(&p->dag, &p->emitted, &text); return text_str(&text);
    case OUTPUT_PTX: return p->binary.ptx;
    case OUTPUT_MANIFEST: return text_str(&p->manifest);
    case OUTPUT_CUBIN: return p->artifact;
    case OUTPUT_COUNT: break;
    }
    return STR("");
}

Str pipeline_output(Pipeline *p, Output output)
{
    jmp_buf oom;
    arena_on_oom(p->out, &oom);
    Str bytes = STR("");
    if (setjmp(oom))
        p->outcome = OUTCOME_MEMORY;
    else
        bytes = print_output(p, output);
    arena_on_oom(p->out, NULL);
    return bytes;
}

char *pipeline_messages(Pipeline *p)
{
    jmp_buf oom;
    char *volatile copy = NULL;
    arena_on_oom(p->front, &oom);
    if (!setjmp(oom)) {
        Text text = {.arena = p->front};
        diags_render_text(&p->diags, &text, false);
        copy = strdup(text_str(&text).s);
    }
    arena_on_oom(p->front, NULL);
    return copy;
}
