/* Graphs: steps of few rows, captured once for every bucket of rows and keys, and set of outputs.
 */
#include "model_run.h"

#include <stdlib.h>
#include <string.h>

struct Graph {
    Graph *next;
    int64_t rows, most_keys;
    int most_rows;
    bool *asked;
    CuGraphExec exec;
};

int64_t model_bucket(const iso_model *model, int64_t rows)
{
    const iso_model_config *config = &model->config;
    int64_t bucket = 1;
    if (rows > config->graph_rows || model->trace || model->fault.op || model->shares_gpu)
        return 0;
    while (bucket < rows)
        bucket *= 2;
    return bucket <= model_tail_rows(model) ? bucket : 0;
}

static iso_status run_calls(iso_model *model, const Pass *pass)
{
    iso_status status = model_run_calls(model, pass, 0, model->program.tail);
    return status ? status : model_run_tail(model, pass);
}

static iso_status instantiate(const Driver *driver, CuGraph graph, Graph *made)
{
    iso_status status =
        driver_check(driver, driver->graph_new(&made->exec, graph, 0), "cuGraphInstantiate");
    driver->graph_free(graph);
    return status;
}

/* The capture is ended in any case: the stream is to be used again. */
static iso_status capture(iso_model *model, const Pass *pass, Graph *made)
{
    const Driver *driver = model->device.driver;
    CuGraph graph = NULL;
    iso_status status = driver_check(
        driver, driver->capture_begin(model->device.stream, CU_CAPTURE_THREAD_LOCAL),
        "cuStreamBeginCapture");
    if (status)
        return status;
    status = run_calls(model, pass);
    iso_status ended = driver_check(
        driver, driver->capture_end(model->device.stream, &graph), "cuStreamEndCapture");
    if (!status && !ended)
        return instantiate(driver, graph, made);
    if (graph)
        driver->graph_free(graph);
    return status ? status : ended;
}

static Graph *find_graph(const iso_model *model, const Pass *pass)
{
    size_t outputs = (size_t)model->program.model->n_outputs;
    for (Graph *graph = model->graphs; graph; graph = graph->next)
        if (graph->rows == pass->run_rows && graph->most_rows == pass->most_rows &&
            graph->most_keys == pass->most_keys &&
            !memcmp(graph->asked, model->asked, outputs * sizeof(bool)))
            return graph;
    return NULL;
}

static iso_status add_graph(iso_model *model, const Pass *pass, Graph **graph)
{
    size_t outputs = (size_t)model->program.model->n_outputs;
    Graph *made = calloc(1, sizeof *made);
    bool *asked = malloc(outputs * sizeof(bool) + 1);
    iso_status status = made && asked ? capture(model, pass, made)
                                      : iso_fail(ISO_OUT_OF_MEMORY, "no memory for a graph");
    if (status) {
        free(asked);
        free(made);
        return status;
    }
    memcpy(asked, model->asked, outputs * sizeof(bool));
    *made = (Graph){model->graphs, pass->run_rows, pass->most_keys, pass->most_rows, asked,
                    made->exec};
    *graph = model->graphs = made;
    return ISO_OK;
}

iso_status model_run_graph(iso_model *model, const Pass *pass)
{
    const Driver *driver = model->device.driver;
    if (!driver)
        return run_calls(model, pass);
    Graph *graph = find_graph(model, pass);
    iso_status status = graph ? ISO_OK : add_graph(model, pass, &graph);
    return status ? status
                  : driver_check(driver, driver->graph_launch(graph->exec, model->device.stream),
                                 "cuGraphLaunch");
}

void model_close_graphs(iso_model *model)
{
    for (Graph *graph = model->graphs, *next; graph; graph = next) {
        next = graph->next;
        model->device.driver->graph_exec_free(graph->exec);
        free(graph->asked);
        free(graph);
    }
    model->graphs = NULL;
}
