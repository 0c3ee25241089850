/* `isoc run` and `isoc score`: a contract's model on a checkpoint, each rank of the layout a thread
 * of this process or, as torchrun starts them, a process. */
#include "commands.h"
#include "iso_model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 16, TIMEOUT = 300 };

/* What is asked. */
typedef struct ModelJob {
    const char *weights, *trace;
    bool score;
    int n_ids, tokens; /* tokens: how many to add */
    int32_t *ids;
    float temperature;
    int seed;
} ModelJob;

/* What all ranks work on. Arrays are whole: each rank writes its part of what is asked. */
typedef struct Job {
    ModelJob in;
    const iso_module *module;
    const char *layout;
    char where[64];
    int n; /* ids so far */
    int32_t *ids, *pages;
    float *logprob, *row; /* of each id; of the whole vocabulary */
    int64_t vocab;
    bool draws; /* the contract does; else the likeliest id is taken */
    uint8_t digest[32];
    pthread_barrier_t together;
    atomic_bool failed; /* a rank did */
    bool apart;         /* ranks are processes, and this one's has all that it prints */
} Job;

typedef struct Rank {
    Job *job;
    int rank;
    pthread_t thread;
    iso_group *group;
    iso_model *model;
    iso_status status;
    char message[512];
} Rank;

/* ---- a rank ---- */

/* Processes do not show each other what they have of an output. */
static iso_status check_whole(Rank *r)
{
    const Job *job = r->job;
    const char *name = job->in.score ? "logprob" : job->draws ? "token" : "logprobs";
    iso_tensor part, whole;
    iso_status status = iso_model_part(r->model, name, 64, &part, NULL);
    if (!status)
        status = iso_model_value(job->module, name, 64, &whole);
    if (!status && memcmp(part.shape, whole.shape, sizeof part.shape)) {
        snprintf(r->message, sizeof r->message, "layout %s gives each rank a part of %s: run its "
                 "ranks in one process", job->layout, name);
        return ISO_UNSUPPORTED;
    }
    return status;
}

/* As many on each rank that shares the cache as the one has that has most of the positions. */
static int64_t count_pages(const iso_model_sizes *sizes, int64_t positions)
{
    int64_t turn = sizes->page_ranks * sizes->page_positions;
    int64_t most = positions / turn * sizes->page_positions;
    int64_t rest = positions % turn;
    most += rest < sizes->page_positions ? rest : sizes->page_positions;
    return sizes->page_ranks * ((most + PAGE - 1) / PAGE);
}

static void list_pages(const iso_model_sizes *sizes, int64_t positions, int32_t *pages)
{
    int64_t n = sizes->page_ranks, each = sizes->page_positions;
    for (int64_t i = 0; i * PAGE < positions; i++) {
        int64_t split = i * PAGE / each, own = split / n * each + i * PAGE % each;
        pages[i] = (int32_t)(own / PAGE * n + split % n);
    }
}

static iso_status open_rank(Rank *r, int ranks, bool paged)
{
    Job *job = r->job;
    int64_t most = job->in.n_ids + job->in.tokens + 1;
    iso_model_sizes sizes;
    iso_model_config config = {.size = sizeof config,
                               .weights = job->in.weights,
                               .layout = job->layout,
                               .max_rows = job->in.n_ids,
                               .max_sequences = 1,
                               .max_position = most,
                               .page = PAGE,
                               .graph_rows = 1};
    iso_status status = iso_model_size(job->module, &config, r->rank, &sizes);
    if (!status && paged) {
        config.pages = count_pages(&sizes, most);
        status = iso_model_size(job->module, &config, r->rank, &sizes);
    }
    if (!status && (!r->rank || job->apart))
        list_pages(&sizes, most, job->pages);
    iso_group_config group = {.size = sizeof group,
                              .rank = r->rank,
                              .ranks = job->apart ? 0 : ranks,
                              .bootstrap = job->apart ? NULL : job->where,
                              .timeout = TIMEOUT,
                              .bytes = sizes.group};
    if (!status && ranks > 1)
        status = iso_group_create(&r->group, job->module, &group);
    config.group = r->group;
    if (!status)
        status = iso_model_load(&r->model, job->module, &config);
    if (!status && job->in.trace)
        status = iso_model_trace(r->model, job->in.trace, NULL);
    if (!status && job->apart)
        status = check_whole(r);
    return status || (r->rank && !job->apart) ? status : iso_model_weights(r->model, job->digest);
}

/* Inputs that the model may have, one element for each row; those that it has not are left out. */
typedef struct Inputs {
    iso_value value[8];
    void *array[8];
    int n;
} Inputs;

static bool has_name(const iso_module *module, const char *name, bool input)
{
    const char *at;
    for (int i = 0; (at = input ? iso_model_input_name(module, i)
                                : iso_model_output_name(module, i)); i++)
        if (strcmp(at, name) == 0)
            return true;
    return false;
}

static void add_input(Inputs *inputs, const Job *job, const char *name, int rows, uint32_t bits)
{
    if (!has_name(job->module, name, true))
        return;
    uint32_t *array = malloc((size_t)rows * sizeof *array + 1);
    for (int i = 0; array && i < rows; i++)
        array[i] = bits;
    inputs->array[inputs->n] = array;
    inputs->value[inputs->n++] = (iso_value){name, array, (size_t)rows * sizeof *array};
}

static void make_inputs(Inputs *inputs, const Job *job, int first, int rows)
{
    float one = 1;
    uint32_t temperature, all;
    memcpy(&temperature, &job->in.temperature, sizeof temperature);
    memcpy(&all, &one, sizeof all);
    *inputs = (Inputs){.n = 0};
    add_input(inputs, job, "temperature", rows, temperature);
    add_input(inputs, job, "seed", rows, (uint32_t)job->in.seed);
    add_input(inputs, job, "stream", rows, 0);
    add_input(inputs, job, "top_k", rows, 0);
    add_input(inputs, job, "top_p", rows, all);
    add_input(inputs, job, "min_p", rows, 0);
    inputs->value[inputs->n++] =
        (iso_value){"ids", job->ids + first, (size_t)rows * sizeof(int32_t)};
}

static void free_inputs(Inputs *inputs)
{
    for (int i = 0; i < inputs->n; i++)
        free(inputs->array[i]);
}

/* One id more: all ranks run the same step, and go on when each has written its part. */
static iso_status next_id(Rank *r, int first, int rows)
{
    Job *job = r->job;
    Inputs inputs;
    int32_t last = rows - 1;
    iso_value drawn[] = {{"token", job->ids + job->n, sizeof(int32_t)},
                         {"token_logprob", job->logprob + job->n, sizeof(float)}};
    iso_value all = {"logprobs", job->row, (size_t)job->vocab * sizeof(float)};
    iso_sequence sequence = {.position = first, .rows = rows, .pages = job->pages};
    make_inputs(&inputs, job, first, rows);
    iso_step step = {.sequences = &sequence,
                     .n_sequences = 1,
                     .inputs = inputs.value,
                     .n_inputs = inputs.n,
                     .wanted = &last,
                     .n_wanted = 1,
                     .outputs = job->draws ? drawn : &all,
                     .n_outputs = job->draws ? 2 : 1};
    iso_status status = iso_model_step(r->model, &step);
    free_inputs(&inputs);
    return status;
}

static void take_likeliest(Job *job)
{
    int64_t best = 0;
    for (int64_t i = 1; i < job->vocab; i++)
        best = job->row[i] > job->row[best] ? i : best;
    job->ids[job->n] = (int32_t)best;
    job->logprob[job->n] = job->row[best];
}

/* Rank 0 counts between two barriers, so that every rank sees the same. */
static iso_status generate(Rank *r)
{
    Job *job = r->job;
    iso_status status = ISO_OK;
    for (int i = 0, first = 0; i < job->in.tokens && !job->failed; i++) {
        int rows = job->n - first;
        status = next_id(r, first, rows);
        first += rows;
        if (status)
            job->failed = true;
        pthread_barrier_wait(&job->together);
        if ((r->rank == 0 || job->apart) && !job->failed) {
            if (!job->draws)
                take_likeliest(job);
            job->n++;
        }
        pthread_barrier_wait(&job->together);
    }
    return status;
}

/* Every id but the first, from the row before it. */
static iso_status score(Rank *r)
{
    Job *job = r->job;
    Inputs inputs;
    int rows = job->in.n_ids - 1;
    iso_value output = {"logprob", job->logprob + 1, (size_t)rows * sizeof(float)};
    iso_sequence sequence = {.rows = rows};
    make_inputs(&inputs, job, 0, rows);
    inputs.value[inputs.n++] = (iso_value){"targets", job->ids + 1, (size_t)rows * sizeof(int32_t)};
    iso_step step = {.sequences = &sequence,
                     .n_sequences = 1,
                     .inputs = inputs.value,
                     .n_inputs = inputs.n,
                     .outputs = &output,
                     .n_outputs = 1};
    iso_status status = iso_model_step(r->model, &step);
    inputs.n--;
    free_inputs(&inputs);
    return status;
}

static void *run_rank(void *user)
{
    Rank *r = user;
    Job *job = r->job;
    int ranks = 1;
    iso_module_layout_ranks(job->module, job->layout, &ranks);
    r->status = open_rank(r, ranks, !job->in.score);
    if (!r->status)
        r->status = job->in.score ? score(r) : generate(r);
    if (r->status && !r->message[0])
        snprintf(r->message, sizeof r->message, "%s: %s", iso_status_string(r->status),
                 iso_last_error());
    iso_model_unload(r->model);
    iso_group_destroy(r->group);
    return NULL;
}

/* ---- all ranks ---- */

static const char *first_layout(const iso_module *module)
{
    const char *name;
    int ranks;
    for (int i = 0; (name = iso_module_layout_name(module, i)); i++)
        if (!iso_module_layout_ranks(module, name, &ranks) && ranks == 1)
            return name;
    return "";
}

/* $RANK where $WORLD_SIZE says that the layout's ranks are processes; else -1. */
static int own_rank(int ranks)
{
    const char *world = getenv("WORLD_SIZE"), *rank = getenv("RANK");
    return ranks > 1 && world && rank && atoi(world) == ranks ? atoi(rank) : -1;
}

static bool run_ranks(Job *job, int first, int ranks, char *message, size_t size)
{
    Rank *all = calloc((size_t)ranks, sizeof *all);
    int started = 0;
    bool ok = all != NULL;
    pthread_barrier_init(&job->together, NULL, (unsigned)ranks);
    for (int r = 0; ok && r < ranks; r++) {
        all[r] = (Rank){.job = job, .rank = first + r};
        ok = pthread_create(&all[r].thread, NULL, run_rank, &all[r]) == 0;
        started += ok;
    }
    for (int r = 0; r < started; r++)
        pthread_join(all[r].thread, NULL);
    if (!ok)
        snprintf(message, size, "no memory for %d ranks", ranks);
    for (int r = 0; ok && r < ranks; r++)
        if (all[r].status && ok) {
            ok = false;
            snprintf(message, size, "%s", all[r].message);
        }
    pthread_barrier_destroy(&job->together);
    free(all);
    return ok;
}

static bool open_arrays(Job *job)
{
    iso_tensor all;
    const char *whole = job->in.score || job->draws ? NULL : "logprobs";
    size_t most = (size_t)(job->in.n_ids + job->in.tokens) + 1;
    if (whole && iso_model_value(job->module, whole, 1, &all))
        return false;
    job->vocab = whole ? all.shape[all.n_axes - 1] : 0;
    job->ids = calloc(most, sizeof *job->ids);
    job->pages = calloc(most / PAGE + 1, sizeof *job->pages);
    job->logprob = calloc(most, sizeof *job->logprob);
    job->row = calloc((size_t)job->vocab + 1, sizeof *job->row);
    if (!job->ids || !job->pages || !job->logprob || !job->row)
        return false;
    memcpy(job->ids, job->in.ids, (size_t)job->in.n_ids * sizeof *job->ids);
    job->n = job->in.n_ids;
    return true;
}

static void print_ids(const Job *job)
{
    double sum = 0;
    int first = job->in.score ? 1 : job->in.n_ids;
    for (int i = first; i < job->n; i++) {
        printf("%6d %8d  %.9g\n", i, job->ids[i], (double)job->logprob[i]);
        sum += (double)job->logprob[i];
    }
    printf("%d ids, mean log-probability %.6f\n", job->n - first,
           job->n > first ? sum / (job->n - first) : 0.0);
}

static void print_digests(const Job *job)
{
    uint8_t contract[32];
    if (iso_module_fingerprint(job->module, contract))
        return;
    printf("contract ");
    for (int i = 0; i < 8; i++)
        printf("%02x", contract[i]);
    printf(", weights ");
    for (int i = 0; i < 8; i++)
        printf("%02x", job->digest[i]);
    printf(", layout %s\n", job->layout);
}

static int run_job(Job *job)
{
    char message[512] = "";
    int ranks;
    if (iso_module_layout_ranks(job->module, job->layout, &ranks)) {
        fprintf(stderr, "isoc: error: %s\n", iso_last_error());
        return OUTCOME_USAGE;
    }
    int own = own_rank(ranks);
    char folder[] = "/tmp/isoc-XXXXXX";
    job->apart = own >= 0;
    if (ranks > 1 && !job->apart && !mkdtemp(folder)) {
        fprintf(stderr, "isoc: error: there is no room in /tmp for the ranks to meet\n");
        return OUTCOME_USAGE;
    }
    snprintf(job->where, sizeof job->where, "file:%s", folder);
    bool ok = run_ranks(job, job->apart ? own : 0, job->apart ? 1 : ranks, message,
                        sizeof message);
    if (ranks > 1 && !job->apart)
        rmdir(folder);
    if (!ok) {
        fprintf(stderr, "isoc: error: %s\n", message);
        return OUTCOME_USAGE;
    }
    if (own <= 0) {
        print_digests(job);
        print_ids(job);
    }
    return OUTCOME_OK;
}

/* ---- what is asked ---- */

/* "1,2,3"; false where it is no such list. */
static bool read_ids(const char *text, ModelJob *job)
{
    job->ids = calloc(strlen(text) + 1, sizeof *job->ids);
    while (job->ids && *text) {
        char *end;
        long id = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || id < 0 || id > INT32_MAX)
            return false;
        job->ids[job->n_ids++] = (int32_t)id;
        text = end + (*end == ',');
    }
    return job->ids != NULL;
}

static const char *read_job(const Options *o, ModelJob *job)
{
    *job = (ModelJob){.weights = o->weights,
                      .trace = o->trace,
                      .score = o->command == COMMAND_SCORE,
                      .tokens = o->command == COMMAND_SCORE ? 0 : o->tokens,
                      .temperature = o->temperature,
                      .seed = o->seed};
    if (!o->weights)
        return "--weights must name a checkpoint";
    if (!o->ids || !read_ids(o->ids, job) || job->n_ids < 1 + job->score)
        return job->score ? "--ids must be a list of at least two ids, as 1,2,3"
                          : "--ids must be a list of ids, as 1,2,3";
    return NULL;
}

static int run_module(const Options *o, const ModelJob *in, iso_module *module)
{
    Job job = {.in = *in, .module = module, .layout = o->layout ? o->layout
                                                                : first_layout(module)};
    job.draws = has_name(module, "token", false) && has_name(module, "token_logprob", false);
    int code = OUTCOME_USAGE;
    if (open_arrays(&job))
        code = run_job(&job);
    else
        fprintf(stderr, "isoc: error: %s\n", iso_last_error());
    free(job.ids);
    free(job.pages);
    free(job.logprob);
    free(job.row);
    return code;
}

int command_model(const Options *o)
{
    ModelJob in;
    iso_module *module;
    iso_config config = {.size = sizeof config,
                         .device = o->device && strcmp(o->device, "cuda") == 0 ? ISO_CUDA : ISO_CPU,
                         .cpu_threads = o->jobs,
                         .cache_dir = o->cache};
    const char *problem = read_job(o, &in);
    int code = OUTCOME_USAGE;
    if (problem)
        fprintf(stderr, "isoc: error: %s\n", problem);
    else if (iso_module_load(&module, o->operand[0], &config))
        fprintf(stderr, "isoc: error: %s\n", iso_last_error());
    else {
        code = run_module(o, &in, module);
        iso_module_unload(module);
    }
    free(in.ids);
    return code;
}

int command_trace_diff(const Options *o)
{
    iso_difference d;
    if (iso_trace_diff(o->operand[0], o->operand[1], &d)) {
        fprintf(stderr, "isoc: error: %s\n", iso_last_error());
        return OUTCOME_USAGE;
    }
    printf("%lld of %lld elements differ\n", (long long)d.differ, (long long)d.compared);
    if (!d.differ)
        return d.compared ? OUTCOME_OK : OUTCOME_INCONCLUSIVE;
    printf("first: op %s, value %s", d.op, d.value);
    if (d.turn >= 0)
        printf(", repeat %d", d.turn);
    printf(", sequence %lld, position %lld, index %lld: %x and %x\n", (long long)d.sequence,
           (long long)d.position, (long long)d.index, d.a, d.b);
    return OUTCOME_DIFFER;
}
