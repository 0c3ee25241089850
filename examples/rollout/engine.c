/* Engines: the ranks of a layout as threads of this process. */
#include "rollout.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, GRACE_SECONDS = 5 };

typedef enum Task { TASK_STEP, TASK_TRACE, TASK_FAULT, TASK_END } Task;

typedef struct Rank {
    Engine *engine;
    int rank;
    pthread_t thread;
    iso_group *group;
    iso_model *model;
    bool back; /* from the task; what follows is then of the task */
    iso_status status;
    char message[512];
} Rank;

struct Engine {
    EngineConfig config;
    int ranks;
    char where[128];
    int page_ranks; /* rank 0 says */
    int64_t page_positions;
    Rank rank[MAX_RANKS];
    pthread_barrier_t begin;
    pthread_mutex_t lock; /* of what ranks say when they are back */
    pthread_cond_t came;
    Task task;
    const iso_step *step;
    const char *folder;
    const iso_fault *fault;
};

/* ---- what a rank does ---- */

static iso_status open_rank(Rank *r)
{
    const EngineConfig *config = &r->engine->config;
    iso_model_sizes sizes;
    iso_model_config wanted = {.size = sizeof wanted,
                               .weights = config->weights,
                               .digest = config->digest,
                               .layout = config->layout,
                               .max_rows = config->max_rows,
                               .max_sequences = config->max_sequences,
                               .max_position = config->max_position,
                               .page = config->page,
                               .pages = config->pages,
                               .output_rows = config->output_rows,
                               .graph_rows = config->graph_rows};
    iso_status status = iso_model_size(config->module, &wanted, r->rank, &sizes);
    if (!status && r->rank == 0) {
        r->engine->page_ranks = sizes.page_ranks;
        r->engine->page_positions = sizes.page_positions;
    }
    iso_group_config group = {.size = sizeof group,
                              .rank = r->rank,
                              .ranks = r->engine->ranks,
                              .bootstrap = r->engine->where,
                              .timeout = config->timeout,
                              .bytes = sizes.group};
    if (!status && r->engine->ranks > 1)
        status = iso_group_create(&r->group, config->module, &group);
    wanted.group = r->group;
    return status ? status : iso_model_load(&r->model, config->module, &wanted);
}

/* Whether a rank before this one has the same part of an output. */
static iso_status has_twin(const Rank *r, const char *name, bool *twin)
{
    int64_t rows = 4 * r->engine->ranks, origin[ISO_MAX_AXES], other_origin[ISO_MAX_AXES];
    iso_tensor part, other;
    iso_status status = iso_model_part(r->model, name, rows, &part, origin);
    *twin = false;
    for (int k = 0; k < r->rank && !status && !*twin; k++) {
        size_t n = (size_t)part.n_axes * sizeof origin[0];
        status = iso_model_part(r->engine->rank[k].model, name, rows, &other, other_origin);
        *twin = !status && !memcmp(part.shape, other.shape, n) && !memcmp(origin, other_origin, n);
    }
    return status;
}

/* Every element of an output is wanted of one rank. */
static iso_status step_rank(Rank *r)
{
    const iso_step *step = r->engine->step;
    iso_step own = *step;
    iso_value *outputs = take((size_t)step->n_outputs + 1, sizeof *outputs);
    void **spare = take((size_t)step->n_outputs + 1, sizeof *spare);
    iso_status status = ISO_OK;
    for (int i = 0; i < step->n_outputs && !status; i++) {
        bool twin;
        outputs[i] = step->outputs[i];
        status = has_twin(r, outputs[i].name, &twin);
        if (!status && twin)
            outputs[i].data = spare[i] = take(outputs[i].bytes + 1, 1);
    }
    own.outputs = outputs;
    if (!status)
        status = iso_model_step(r->model, &own);
    for (int i = 0; i < step->n_outputs; i++)
        free(spare[i]);
    free(spare);
    free(outputs);
    return status;
}

static iso_status do_task(Rank *r)
{
    switch (r->engine->task) {
    case TASK_STEP: return step_rank(r);
    case TASK_TRACE: return iso_model_trace(r->model, r->engine->folder, NULL);
    case TASK_FAULT: return iso_model_fault(r->model, r->engine->fault);
    case TASK_END: break;
    }
    return ISO_OK;
}

static void come_back(Rank *r, iso_status status)
{
    pthread_mutex_lock(&r->engine->lock);
    r->back = true;
    r->status = status;
    if (status)
        snprintf(r->message, sizeof r->message, "rank %d of %s: %s: %s", r->rank,
                 r->engine->config.layout, iso_status_string(status), iso_last_error());
    pthread_cond_signal(&r->engine->came);
    pthread_mutex_unlock(&r->engine->lock);
}

static void *run_rank(void *user)
{
    Rank *r = user;
    Engine *e = r->engine;
    come_back(r, open_rank(r));
    for (;;) {
        pthread_barrier_wait(&e->begin);
        if (e->task == TASK_END)
            break;
        come_back(r, do_task(r));
    }
    iso_model_unload(r->model);
    iso_group_destroy(r->group);
    return NULL;
}

/* ---- what the engine's user asks ---- */

/* How many are not back, and how many have failed. */
static int count_out(const Engine *e, int *failed)
{
    int out = 0;
    *failed = 0;
    for (int r = 0; r < e->ranks; r++) {
        out += !e->rank[r].back;
        *failed += e->rank[r].back && e->rank[r].status;
    }
    return out;
}

static void name_ranks_out(const Engine *e)
{
    for (int r = 0; r < e->ranks; r++)
        if (!e->rank[r].back)
            fprintf(stderr, "rollout: rank %d of %s is not back\n", r, e->config.layout);
}

/* What every rank that failed says. Others may never come back, so nothing is waited for. */
static _Noreturn void leave(const Engine *e)
{
    for (int r = 0; r < e->ranks; r++)
        if (e->rank[r].back && e->rank[r].status)
            fprintf(stderr, "rollout: %s\n", e->rank[r].message);
    name_ranks_out(e);
    fflush(stdout);
    _exit(3);
}

/* False if none came within that time. */
static bool await_one(Engine *e, int seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += seconds;
    return pthread_cond_timedwait(&e->came, &e->lock, &at) != ETIMEDOUT;
}

/* Where one fails the others soon do, or wait for it in vain until their time is over: they have a
 * little while to say what they know. */
static void await_all(Engine *e)
{
    int failed;
    pthread_mutex_lock(&e->lock);
    while (count_out(e, &failed)) {
        bool late = !await_one(e, failed ? GRACE_SECONDS : e->config.timeout);
        if (late && failed)
            leave(e);
        if (late)
            name_ranks_out(e);
    }
    if (failed)
        leave(e);
    pthread_mutex_unlock(&e->lock);
}

static void all_ranks(Engine *e, Task task)
{
    e->task = task;
    for (int r = 0; r < e->ranks; r++)
        e->rank[r].back = false;
    pthread_barrier_wait(&e->begin);
    if (task != TASK_END)
        await_all(e);
}

Engine *engine_open(const EngineConfig *config)
{
    Engine *e = take(1, sizeof *e);
    char folder[] = "/tmp/rollout-XXXXXX";
    e->config = *config;
    must(iso_module_layout_ranks(config->module, config->layout, &e->ranks), config->layout);
    if (e->ranks > MAX_RANKS || !mkdtemp(folder))
        die("layout %s has %d ranks, or there is no room in /tmp", config->layout, e->ranks);
    snprintf(e->where, sizeof e->where, "file:%s", folder);
    pthread_barrier_init(&e->begin, NULL, (unsigned)e->ranks + 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->came, NULL);
    for (int r = 0; r < e->ranks; r++) {
        e->rank[r] = (Rank){.engine = e, .rank = r};
        if (pthread_create(&e->rank[r].thread, NULL, run_rank, &e->rank[r]))
            die("no thread for rank %d", r);
    }
    await_all(e);
    return e;
}

void engine_close(Engine *e)
{
    all_ranks(e, TASK_END);
    for (int r = 0; r < e->ranks; r++)
        pthread_join(e->rank[r].thread, NULL);
    pthread_barrier_destroy(&e->begin);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->came);
    rmdir(e->where + strlen("file:"));
    free(e);
}

void engine_step(Engine *e, const iso_step *step)
{
    e->step = step;
    all_ranks(e, TASK_STEP);
}

int engine_page_ranks(const Engine *e, int64_t *positions)
{
    *positions = e->page_positions;
    return e->page_ranks;
}

const iso_model *engine_model(const Engine *e)
{
    return e->rank[0].model;
}

void engine_trace(Engine *e, const char *folder)
{
    e->folder = folder;
    all_ranks(e, TASK_TRACE);
}

void engine_fault(Engine *e, const iso_fault *fault)
{
    e->fault = fault;
    all_ranks(e, TASK_FAULT);
}
