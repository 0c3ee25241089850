/* All stages, in order, from a contract's bytes to a cubin with its manifest.
 * Ownership: a Pipeline owns its arenas and all that its members point to. */
#ifndef ISOC_PIPELINE_H
#define ISOC_PIPELINE_H

#include "base/reader.h"
#include "cubin/artifact.h"
#include "cubin/cache.h"
#include "cubin/manifest_write.h"
#include "front/parse.h"

/* X(ID, name), in the order in which they run; what each gives stands in Pipeline. */
#define STAGE_LIST(X)                                                                              \
    X(PARSE, "parse")                                                                              \
    X(CHECK, "check")                                                                              \
    X(DAG, "dag")                                                                                  \
    X(PLAN, "plan")                                                                                \
    X(PROOF, "proof")                                                                              \
    X(EMIT, "emit")                                                                                \
    X(COMPILE, "compile")                                                                          \
    X(MANIFEST, "manifest")                                                                        \
    X(ARTIFACT, "artifact")

typedef enum Stage {
#define X(id, name) STAGE_##id,
    STAGE_LIST(X)
#undef X
        STAGE_COUNT
} Stage;

const char *stage_name(Stage stage);

/* Exit codes of the command, as README.md has them, and the first values of isoc_status. */
typedef enum Outcome {
    OUTCOME_OK = 0,
    OUTCOME_CONTRACT = 1,
    OUTCOME_USAGE = 2,
    OUTCOME_TOOLCHAIN = 3,
    OUTCOME_DIFFER = 4,
    OUTCOME_INCONCLUSIVE = 5,
    OUTCOME_MEMORY = 6,
} Outcome;

/* -Wname, -Wno-name. */
typedef struct WarningSwitch {
    Str name;
    bool on;
} WarningSwitch;

typedef struct PipelineInput {
    Str path;              /* as the reader takes it */
    SourceReader reader;
    const char *arch;      /* NULL: sm_90a */
    const char *layout;    /* NULL: all */
    const char *cache;     /* as cache_dir takes it */
    bool warnings_as_errors;
    int n_warnings;
    const WarningSwitch *warnings;
    /* Called before each stage, with what it is about to do; may be NULL. */
    void (*progress)(void *self, Stage stage, Str detail);
    void *progress_self;
} PipelineInput;

typedef struct Pipeline {
    PipelineInput input;
    Arena *front, *mid, *out; /* source to contract; DAG to proof; texts and bytes */
    Sources sources;
    Diags diags;
    Ast ast;
    Contract contract;
    Dag dag;
    Plan plan;
    Certificate certificate;
    Emitted emitted;
    Str arch;
    Binary binary;
    bool cached;      /* the kernels came from the cache */
    const Nvrtc *nvrtc; /* once STAGE_COMPILE was reached */
    Text manifest;
    Str artifact;
    Outcome outcome;
    double seconds[STAGE_COUNT];
} Pipeline;

/* False only when memory is short. */
bool pipeline_open(Pipeline *p, const PipelineInput *input);
void pipeline_close(Pipeline *p);
/* Runs all stages up to `last`. True if there was no error; p->outcome says which kind there was,
 * p->diags what. */
bool pipeline_run(Pipeline *p, Stage last);

/* The layout that the input names; NULL if it names none. False, and told, if it does not exist. */
bool pipeline_layout(Pipeline *p, const Layout **layout);

/* What can be asked for. X(ID, name, the last stage that it needs) */
#define OUTPUT_LIST(X)                                                                             \
    X(AST, "ast", PARSE)                                                                           \
    X(DAG, "dag", DAG)                                                                             \
    X(PLAN, "plan", PLAN)                                                                          \
    X(CERTIFICATE, "certificate", PROOF)                                                           \
    X(CUDA, "cuda", EMIT)                                                                          \
    X(HEADER, "header", EMIT)                                                                      \
    X(PTX, "ptx", COMPILE)                                                                         \
    X(MANIFEST, "manifest", MANIFEST)                                                              \
    X(CUBIN, "cubin", ARTIFACT)

typedef enum Output {
#define X(id, name, stage) OUTPUT_##id,
    OUTPUT_LIST(X)
#undef X
        OUTPUT_COUNT
} Output;

const char *output_name(Output output);
Stage output_stage(Output output);
/* The bytes; the stages must have run. Empty where memory is short, with p->outcome saying so. */
Str pipeline_output(Pipeline *p, Output output);
/* The diagnostics as text, for free(); NULL where memory is short. */
char *pipeline_messages(Pipeline *p);

#endif
