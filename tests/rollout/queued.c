/* When outputs are copied: behind the ops, but where ranks share a GPU once these are done. To a
 * driver that takes notes, of a step that the executor ran. */
#include "model/model_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5 };

static char noted[16];

static CuResult note_copy(CuAddress to, CuAddress from, size_t bytes, CuStream stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    strcat(noted, "copy ");
    return 0;
}

static CuResult note_wait(CuStream stream)
{
    (void)stream;
    strcat(noted, "wait ");
    return 0;
}

static const Driver notes = {.copy_async = note_copy, .stream_sync = note_wait};

static void must(iso_status status)
{
    if (!status)
        return;
    fprintf(stderr, "queued: %s: %s\n", iso_status_string(status), iso_last_error());
    exit(3);
}

static int differs(iso_model *model, const iso_step *step, bool shares, const char *wanted)
{
    Pass pass = {.step = step, .rows = ROWS, .run_rows = ROWS, .wanted = ROWS, .part = ROWS,
                 .whole = true, .paged = true};
    float before[ROWS], *output = step->outputs[0].data;
    memcpy(before, output, sizeof before);
    memset(output, 0, sizeof before);
    noted[0] = 0;
    model->device.driver = &notes;
    model->shares_gpu = shares;
    must(outputs_read(model, &pass, true));
    model->device.driver = NULL;
    if (!strcmp(noted, wanted) && !memcmp(before, output, sizeof before))
        return 0;
    printf("queued: %s%s, wanted: %s\n", noted, shares ? "where ranks share a GPU" : "", wanted);
    return 1;
}

int main(int argc, char **argv)
{
    iso_module *module;
    iso_model *model;
    iso_config cpu = {.size = sizeof cpu, .device = ISO_CPU, .cpu_threads = 1};
    iso_model_config config = {.size = sizeof config, .weights = "seed:1", .layout = "tp1",
                               .max_rows = 8, .max_sequences = 1, .max_position = 64, .page = 16,
                               .pages = 4};
    int32_t ids[ROWS] = {1, 2, 3, 4, 5}, pages[] = {0}, targets[ROWS] = {2, 3, 4, 5, 6};
    float temperature[ROWS] = {1, 1, 1, 1, 1}, logprob[ROWS];
    iso_sequence sequence = {7, 0, ROWS, pages};
    iso_value inputs[] = {{"ids", ids, sizeof ids},
                          {"targets", targets, sizeof targets},
                          {"temperature", temperature, sizeof temperature}};
    iso_value output = {"logprob", logprob, sizeof logprob};
    iso_step step = {.sequences = &sequence, .n_sequences = 1, .inputs = inputs, .n_inputs = 3,
                     .outputs = &output, .n_outputs = 1};
    if (argc != 2)
        return 2;
    must(iso_module_load(&module, argv[1], &cpu));
    must(iso_model_load(&model, module, &config));
    must(iso_model_step(model, &step));
    int bad = differs(model, &step, false, "copy wait ") |
              differs(model, &step, true, "wait copy wait ");
    iso_model_unload(model);
    iso_module_unload(module);
    return bad;
}
