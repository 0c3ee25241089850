/* planeval PLAN.json JOB.json: evaluates the results that a job asks for and writes their patterns.
 *
 * A job: {"op": name, "layout": name, "rows": n, "coordinates": [position of each row],
 *         "params": [{"file": raw patterns, "offset": elements, "stride": [per declared axis]}],
 *         "results": [file to write, per result],
 *         "lists": [[atom, [indices wanted]], ...]}       (an atom without a list: all of it)
 * A result is written over the wanted indices of its atoms, row-major. Every rank that holds an
 * element computes it; one that none holds, or two of different bits, fail the run. */
#include "planeval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Wanted {
    int n;
    int64_t *at;
} Wanted;

typedef struct Job {
    Machine machine;
    Wanted wanted[ATOMS_MOST];
    json_t *results;
} Job;

static json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        die("%s:%d: %s", path, error.line, error.text);
    return root;
}

static void *load_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long size;
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0)
        die("%s cannot be read", path);
    rewind(file);
    void *data = room((size_t)size + 16, 1);
    if (fread(data, 1, (size_t)size, file) != (size_t)size)
        die("%s cannot be read", path);
    fclose(file);
    return data;
}

static int64_t *integers(json_t *array, int *n)
{
    *n = (int)json_array_size(array);
    int64_t *v = room((size_t)*n, sizeof *v);
    for (int i = 0; i < *n; i++)
        v[i] = json_integer_value(json_array_get(array, (size_t)i));
    return v;
}

/* ---- the job --------------------------------------------------------------------------------- */

static const Placed *find_placed(const Plan *plan, const char *op, const char *layout)
{
    for (int i = 0; i < plan->n_placed; i++)
        if (!strcmp(plan->placed[i].op->name, op) && !strcmp(plan->placed[i].layout, layout))
            return &plan->placed[i];
    die("the plan has no op %s in layout %s", op, layout);
}

static Memory *params_read(json_t *array, const PlanOp *op)
{
    Memory *memory = room((size_t)op->n_params, sizeof *memory);
    if ((int)json_array_size(array) != op->n_params)
        die("%s takes %d parameters", op->name, op->n_params);
    for (int i = 0; i < op->n_params; i++) {
        json_t *own = json_array_get(array, (size_t)i);
        int n;
        int64_t *stride = integers(json_object_get(own, "stride"), &n);
        memory[i].data = load_file(json_string_value(json_object_get(own, "file")));
        memory[i].offset = json_integer_value(json_object_get(own, "offset"));
        for (int a = 0; a < n && a < AXES_MOST; a++)
            memory[i].stride[a] = stride[a];
    }
    return memory;
}

static void wanted_read(json_t *lists, Job *job)
{
    const Plan *plan = job->machine.plan;
    for (int a = 0; a < plan->n_atoms; a++) {
        Wanted *w = &job->wanted[a];
        w->n = (int)(plan->size[a] ? plan->size[a] : job->machine.rows);
        w->at = room((size_t)w->n, sizeof *w->at);
        for (int i = 0; i < w->n; i++)
            w->at[i] = i;
    }
    for (size_t i = 0; i < json_array_size(lists); i++) {
        json_t *own = json_array_get(lists, i);
        Wanted *w = &job->wanted[json_integer_value(json_array_get(own, 0))];
        w->at = integers(json_array_get(own, 1), &w->n);
    }
}

static void job_read(json_t *root, const Plan *plan, Job *job)
{
    int n;
    json_t *coordinates = json_object_get(root, "coordinates");
    Machine *m = &job->machine;
    m->plan = plan;
    m->at = find_placed(plan, json_string_value(json_object_get(root, "op")),
                        json_string_value(json_object_get(root, "layout")));
    m->rows = json_integer_value(json_object_get(root, "rows"));
    m->coordinates = coordinates ? integers(coordinates, &n) : NULL;
    m->params = params_read(json_object_get(root, "params"), m->at->op);
    job->results = json_object_get(root, "results");
    wanted_read(json_object_get(root, "lists"), job);
    machine_init(m);
}

/* ---- results --------------------------------------------------------------------------------- */

static uint32_t element(Job *job, int result, const int64_t *index)
{
    uint32_t bits = 0, own;
    bool found = false;
    for (int rank = 0; rank < job->machine.at->ranks; rank++) {
        if (!machine_element(&job->machine, rank, result, index, &own))
            continue;
        if (found && own != bits)
            die("%s: ranks differ in an element that both hold: %08x and %08x",
                job->machine.at->op->name, bits, own);
        bits = own;
        found = true;
    }
    if (!found)
        die("%s: no rank computes some element of result %d", job->machine.at->op->name, result);
    return bits;
}

static int result_atoms(const Shape *shape, int *atoms)
{
    int n = 0;
    for (int a = 0; a < shape->n_axes; a++)
        for (int i = 0; i < shape->n_atoms[a]; i++)
            atoms[n++] = shape->atoms[a][i];
    return n;
}

static void write_result(Job *job, int result)
{
    const Shape *shape = &job->machine.at->op->results[result];
    const char *path = json_string_value(json_array_get(job->results, (size_t)result));
    int atoms[ATOMS_MOST], n = result_atoms(shape, atoms);
    int64_t total = 1, index[ATOMS_MOST] = {0};
    FILE *file = fopen(path, "wb");
    if (!file)
        die("%s cannot be written", path);
    for (int i = 0; i < n; i++)
        total *= job->wanted[atoms[i]].n;
    for (int64_t e = 0; e < total; e++) {
        int64_t left = e;
        for (int i = n - 1; i >= 0; i--) {
            index[atoms[i]] = job->wanted[atoms[i]].at[left % job->wanted[atoms[i]].n];
            left /= job->wanted[atoms[i]].n;
        }
        uint32_t bits = element(job, result, index);
        fwrite(&bits, shape->type == F32 ? 4 : 2, 1, file);
    }
    if (fclose(file))
        die("%s cannot be written", path);
}

int main(int argc, char **argv)
{
    Plan plan = {0};
    if (argc != 3)
        die("usage: planeval PLAN.json JOB.json");
    plan_read(load_json(argv[1]), &plan);
    json_t *jobs = load_json(argv[2]);
    size_t n = json_is_array(jobs) ? json_array_size(jobs) : 1;
    for (size_t i = 0; i < n; i++) {
        Job job = {.results = NULL};
        job_read(json_is_array(jobs) ? json_array_get(jobs, i) : jobs, &plan, &job);
        for (int r = 0; r < job.machine.at->op->n_results; r++)
            write_result(&job, r);
    }
    return 0;
}
