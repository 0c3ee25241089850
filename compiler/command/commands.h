/* What the command does, one function a subcommand; each returns the exit code.
 * Ownership: nothing is kept. */
#ifndef ISOC_COMMANDS_H
#define ISOC_COMMANDS_H

#include "options.h"
#include "progress.h"

int command_compile(const Options *options);
int command_explain(const Options *options);
int command_diff(const Options *options);
int command_import(const Options *options);
int command_verify(const Options *options);
int command_model(const Options *options); /* run and score */
int command_trace_diff(const Options *options);

/* The kernels' PTX against the executor. `stated`: the artifact given, whose PTX must have the
 * digest in its manifest; empty: the pipeline's own. */
int command_verify_ptx(const Options *options, Pipeline *pipeline, Str stated, Str ptx_digest);

/* Shared: a pipeline's input from the options, its messages on standard error. */
PipelineInput command_input(const Options *options, const char *path, Progress *progress);
void command_messages(const Options *options, Pipeline *pipeline);
int command_no_memory(void);
/* Runs a contract file to a stage, with progress and messages; the pipeline is open afterwards
 * even on failure, unless memory was short (p->front NULL). */
bool command_run(const Options *options, const char *path, Stage last, Pipeline *pipeline);

#endif
