/* Steps: what is asked is checked, runs, and is brought to the caller. */
#include "model_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static int find_input(const MfModel *m, const char *name)
{
    for (int i = 0; i < m->n_inputs; i++)
        if (!strcmp(m->values[m->inputs[i]].tensor.name, name))
            return i;
    return -1;
}

int model_output(const MfModel *m, const char *name)
{
    for (int i = 0; i < m->n_outputs; i++)
        if (!strcmp(m->outputs[i].name, name))
            return i;
    return -1;
}

const char *iso_model_input_name(const iso_module *module, int index)
{
    const MfModel *m = module ? module->manifest->model : NULL;
    return m && index >= 0 && index < m->n_inputs ? m->values[m->inputs[index]].tensor.name : NULL;
}

const char *iso_model_output_name(const iso_module *module, int index)
{
    const MfModel *m = module ? module->manifest->model : NULL;
    return m && index >= 0 && index < m->n_outputs ? m->outputs[index].name : NULL;
}

iso_status iso_model_value(const iso_module *module, const char *name, int64_t rows,
                           iso_tensor *tensor)
{
    if (!module || !name || !tensor || rows < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_value: a NULL argument, or negative rows");
    const MfModel *m = module->manifest->model;
    if (!m)
        return iso_fail(ISO_NO_MODEL, "contract %s has no model block", module->manifest->contract);
    int input = find_input(m, name), output = model_output(m, name);
    if (input < 0 && output < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "model %s has no input or output %s", m->name, name);
    const MfTensor *declared =
        &m->values[input >= 0 ? m->inputs[input] : m->outputs[output].value].tensor;
    Box box;
    whole_box(module->manifest, declared, rows, &box);
    box_tensor(declared, &box, NULL, tensor);
    return ISO_OK;
}

iso_status iso_model_part(const iso_model *model, const char *name, int64_t rows,
                          iso_tensor *tensor, int64_t origin[ISO_MAX_AXES])
{
    if (!model || !name || !tensor || rows < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_part: a NULL argument, or negative rows");
    const MfModel *m = model->program.model;
    int output = model_output(m, name);
    const MfTensor *declared;
    Box box;
    if (output < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "model %s has no output %s", m->name, name);
    iso_status status =
        model_slot_box(model, model->program.outputs[output], rows, &declared, &box);
    if (status)
        return status;
    box_tensor(declared, &box, NULL, tensor);
    if (origin)
        memcpy(origin, box.lo, sizeof box.lo);
    return ISO_OK;
}

/* ---- what is asked ---- */

static iso_status check_page_ranks(const iso_model *model, const iso_sequence *s)
{
    const KeyShare *k = &model->keys;
    for (int64_t i = 0; i * model->config.page < s->position + s->rows; i++) {
        int piece = model_key_piece(model, s->pages[0], i * model->config.page);
        if (s->pages[i] % k->pieces != piece)
            return iso_fail(ISO_PAGES, "sequence %" PRId64 ": position %" PRId64 " lies in page "
                            "%d; layout %s shares keys over %d ranks by splits of %" PRId64 ": the "
                            "rank whose turn it is has pages %d, %d, ...", s->id,
                            i * model->config.page, s->pages[i], model->layout, k->pieces,
                            k->split, piece, piece + k->pieces);
    }
    return ISO_OK;
}

static iso_status check_pages(const iso_model *model, const iso_sequence *s)
{
    const iso_model_config *config = &model->config;
    if (!config->pages)
        return iso_fail(ISO_PAGES, "sequence %" PRId64 " has pages, the model was loaded with none",
                        s->id);
    for (int64_t i = 0; i * config->page < s->position + s->rows; i++)
        if (s->pages[i] < 0 || s->pages[i] >= config->pages)
            return iso_fail(ISO_PAGES,
                            "sequence %" PRId64 ": position %" PRId64 " lies in page %d; the cache "
                            "has pages 0 to %" PRId64, s->id, i * config->page, s->pages[i],
                            config->pages - 1);
    return model->keys.pieces > 1 ? check_page_ranks(model, s) : ISO_OK;
}

static iso_status check_sequence(const iso_model *model, const iso_step *step, int index)
{
    const iso_sequence *s = &step->sequences[index];
    if (s->rows < 0 || s->position < 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "sequence %" PRId64 " has %d rows at position %"
                        PRId64, s->id, s->rows, s->position);
    if (s->position + s->rows > model->config.max_position)
        return iso_fail(ISO_STEP_ROWS,
                        "sequence %" PRId64 " goes to position %" PRId64 ", the model was loaded "
                        "for %" PRId64, s->id, s->position + s->rows, model->config.max_position);
    if (!s->pages != !step->sequences[0].pages)
        return iso_fail(ISO_INVALID_ARGUMENT, "sequence %" PRId64 " has %s pages, the first has: "
                        "a step's sequences are all the one or all the other", s->id,
                        s->pages ? "" : "no");
    if (s->pages)
        return check_pages(model, s);
    if (s->position)
        return iso_fail(ISO_INVALID_ARGUMENT, "sequence %" PRId64 " has no pages and begins at "
                        "position %" PRId64 ": its keys before that are nowhere", s->id,
                        s->position);
    return ISO_OK;
}

static iso_status check_rows(const iso_model *model, const iso_step *step, Pass *pass)
{
    if (step->n_sequences < 1 || !step->sequences)
        return iso_fail(ISO_INVALID_ARGUMENT, "a step of no sequences");
    if (step->n_sequences > model->config.max_sequences)
        return iso_fail(ISO_STEP_ROWS, "%d sequences, the model was loaded for %d",
                        step->n_sequences, model->config.max_sequences);
    for (int i = 0; i < step->n_sequences; i++) {
        iso_status status = check_sequence(model, step, i);
        if (status)
            return status;
        int rows = step->sequences[i].rows;
        int64_t keys = step->sequences[i].position + rows;
        pass->rows += rows;
        pass->most_rows = rows > pass->most_rows ? rows : pass->most_rows;
        pass->most_keys = keys > pass->most_keys ? keys : pass->most_keys;
    }
    if (pass->rows > model->config.max_rows)
        return iso_fail(ISO_STEP_ROWS, "%" PRId64 " rows, the model was loaded for %" PRId64,
                        pass->rows, model->config.max_rows);
    pass->run_rows = pass->rows;
    pass->paged = step->sequences[0].pages != NULL;
    return ISO_OK;
}

static iso_status check_wanted(const iso_model *model, const iso_step *step, Pass *pass)
{
    pass->wanted = step->wanted || step->n_wanted ? step->n_wanted : pass->rows;
    if (step->n_wanted < 0 || (step->n_wanted && !step->wanted) ||
        pass->wanted > model->config.max_rows)
        return iso_fail(ISO_INVALID_ARGUMENT, "%d rows are wanted of %" PRId64, step->n_wanted,
                        pass->rows);
    pass->whole = pass->wanted == pass->rows;
    for (int64_t i = 0; step->wanted && i < pass->wanted; i++) {
        if (step->wanted[i] < 0 || step->wanted[i] >= pass->rows)
            return iso_fail(ISO_INVALID_ARGUMENT, "row %d is wanted of %" PRId64, step->wanted[i],
                            pass->rows);
        pass->whole &= step->wanted[i] == i;
    }
    return ISO_OK;
}

static size_t output_row(const iso_model *model, int output)
{
    return batch_row_bytes(model, model->program.model->outputs[output].value);
}

static iso_status check_array(const iso_value *value, const char *what, int64_t rows, size_t row)
{
    if (value->data && value->bytes == (size_t)rows * row)
        return ISO_OK;
    return iso_fail(ISO_BAD_TENSOR, "%s %s has %zu bytes at %p; %" PRId64 " rows take %zu", what,
                    value->name, value->bytes, value->data, rows, (size_t)rows * row);
}

static iso_status check_outputs(iso_model *model, const iso_step *step, const Pass *pass)
{
    const MfModel *m = model->program.model;
    memset(model->asked, 0, (size_t)m->n_outputs * sizeof(bool));
    for (int i = 0; i < step->n_outputs; i++) {
        int output = step->outputs[i].name ? model_output(m, step->outputs[i].name) : -1;
        if (output < 0)
            return iso_fail(ISO_INVALID_ARGUMENT, "model %s has no output %s", m->name,
                            step->outputs[i].name ? step->outputs[i].name : "(null)");
        iso_status status =
            check_array(&step->outputs[i], "output", pass->wanted, output_row(model, output));
        if (status)
            return status;
        model->asked[output] = true;
    }
    return ISO_OK;
}

static bool input_needed(const iso_model *model, int input)
{
    const Program *p = &model->program;
    for (int i = 0; i < p->n_calls; i++) {
        const ModelCall *call = &p->calls[i];
        if (!model->needed[i] || call->cache >= 0)
            continue;
        for (int k = 0; k < p->model->statements[call->statement].n_arguments; k++) {
            const CallArgument *a = &call->arguments[k];
            if (!a->weight && p->slots[a->index].source == SLOT_INPUT &&
                p->slots[a->index].from == input)
                return true;
        }
    }
    return false;
}

static iso_status check_inputs(const iso_model *model, const iso_step *step, Pass *pass)
{
    const MfModel *m = model->program.model;
    iso_status status = ISO_OK;
    for (int i = 0; i < step->n_inputs && !status; i++) {
        int input = step->inputs[i].name ? find_input(m, step->inputs[i].name) : -1;
        if (input < 0)
            return iso_fail(ISO_INVALID_ARGUMENT, "model %s has no input %s", m->name,
                            step->inputs[i].name ? step->inputs[i].name : "(null)");
        status = check_array(&step->inputs[i], "input", pass->rows,
                             model->batch.input_bytes[input]);
        pass->inputs[input] = &step->inputs[i];
    }
    for (int i = 0; i < m->n_inputs && !status; i++)
        if (!pass->inputs[i] && input_needed(model, i))
            status = iso_fail(ISO_INVALID_ARGUMENT, "the step lacks input %s of model %s",
                              m->values[m->inputs[i]].tensor.name, m->name);
    return status;
}

static iso_status check_step(iso_model *model, const iso_step *step, Pass *pass)
{
    if (!model || !step || step->n_inputs < 0 || step->n_outputs < 0 ||
        (step->n_inputs && !step->inputs) || (step->n_outputs && !step->outputs))
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_model_step: a NULL argument");
    *pass = (Pass){.step = step};
    iso_status status = check_rows(model, step, pass);
    if (!status)
        status = check_wanted(model, step, pass);
    if (!status)
        status = check_outputs(model, step, pass);
    if (status)
        return status;
    program_needs(&model->program, model->asked, pass->paged, model->needed);
    return check_inputs(model, step, pass);
}

/* ---- running ---- */

static iso_status run_tail(iso_model *model, Pass *pass)
{
    int64_t most = model_tail_rows(model), n = pass->whole ? pass->run_rows : pass->wanted;
    iso_status status = ISO_OK;
    for (pass->first = 0; pass->first < n && !status; pass->first += most) {
        pass->part = n - pass->first < most ? n - pass->first : most;
        status = model_run_tail(model, pass);
        if (!status)
            status = outputs_read(model, pass, true);
    }
    return status;
}

static iso_status run_pass(iso_model *model, Pass *pass)
{
    pass->dealt = model->deal > 1;
    pass->whole &= !pass->dealt;
    iso_status status = batch_fill(model, pass);
    if (!status)
        status = model_run_calls(model, pass, 0, model->program.tail);
    if (!status)
        status = run_tail(model, pass);
    return status ? status : outputs_read(model, pass, false);
}

static int64_t power_above(int64_t n)
{
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* A bucket's rows are all run, and the device is told how many of them live. */
static iso_status run_bucket(iso_model *model, Pass *pass, int64_t bucket)
{
    pass->run_rows = pass->part = bucket;
    pass->live = true;
    pass->most_rows = (int)power_above(pass->most_rows);
    pass->most_keys = power_above(pass->most_keys);
    if (pass->most_keys > model->config.max_position)
        pass->most_keys = model->config.max_position;
    iso_status status = batch_fill(model, pass);
    if (!status)
        status = model_run_graph(model, pass);
    if (!status)
        status = outputs_read(model, pass, true);
    return status ? status : outputs_read(model, pass, false);
}

iso_status iso_model_step(iso_model *model, const iso_step *step)
{
    Pass pass;
    CuDevice device;
    iso_status status = check_step(model, step, &pass);
    if (!status && model->device.driver)
        status = driver_context(model->device.driver, &device);
    if (status || pass.rows == 0)
        return status;
    int64_t bucket = pass.whole && pass.paged ? model_bucket(model, pass.rows) : 0;
    return bucket ? run_bucket(model, &pass, bucket) : run_pass(model, &pass);
}
