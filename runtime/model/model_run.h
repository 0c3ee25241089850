/* How a step's calls are run; shared by the files of libiso that step a model.
 * Ownership: nothing is kept. */
#ifndef ISO_MODEL_RUN_H
#define ISO_MODEL_RUN_H

#include "model.h"

/* A slot's rows of this rank, in the head's order or, in the tail, of the wanted rows it is at. */
char *model_slot_data(const iso_model *model, const Pass *pass, int slot, bool tail);
/* What a rank has of a slot that an op gives. */
iso_status model_rank_box(const iso_model *model, int rank, int slot, int64_t rows, Box *box);

/* Those of the calls [first, end) that are needed. */
iso_status model_run_calls(iso_model *model, const Pass *pass, int first, int end);
/* The tail for the wanted rows [pass->first, pass->first + pass->part). */
iso_status model_run_tail(iso_model *model, const Pass *pass);

/* ---- graphs (model_graph.c) ------------------------------------------------------------------ */

/* Rows of the bucket that takes so many; 0: such a step is no graph. */
int64_t model_bucket(const iso_model *model, int64_t rows);
/* The needed calls in a bucket's rows: as a graph, which is captured where there is none. */
iso_status model_run_graph(iso_model *model, const Pass *pass);
void model_close_graphs(iso_model *model);

/* ---- outputs (model_outputs.c) --------------------------------------------------------------- */

iso_status outputs_open(iso_model *model);
void outputs_close(iso_model *model);
/* Waits for all that the stream has, and gives the caller what the tail, or what is before it,
 * made of the asked outputs. */
iso_status outputs_read(iso_model *model, const Pass *pass, bool tail);
/* The number of a model's output; -1: it has none of that name. */
int model_output(const MfModel *m, const char *name);

/* Places every piece of weights and makes the digest. */
iso_status model_load_weights(iso_model *model);

/* ---- tables (model_table.c) ------------------------------------------------------------------ */

/* Columns [lo, hi) of a table's rows, row-major. */
void table_fill(const MfTable *table, iso_dtype dtype, int64_t positions, int64_t lo, int64_t hi,
                void *cos, void *sin);

/* ---- traces (model_trace.c) ------------------------------------------------------------------ */

/* Before a call that is traced. */
iso_status model_trace_ready(iso_model *model, const Pass *pass, int call);
/* Writes what a call gave, and before that spoils it, if that is asked. */
iso_status model_trace_call(iso_model *model, const Pass *pass, int call);
iso_status model_fault_call(iso_model *model, const Pass *pass, int call);
void model_trace_close(iso_model *model);

#endif
