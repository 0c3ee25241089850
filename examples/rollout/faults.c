/* Faults of one bit, put into one element of one layer of a sampler: two traces say where. */
#include "report.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Place {
    char op[128];
    int turn, calls;
    int choose; /* which call */
} Place;

static void choose_call(void *user, const char *op, int turn, const char *kernel)
{
    Place *p = user;
    (void)kernel;
    if (p->calls++ != p->choose)
        return;
    snprintf(p->op, sizeof p->op, "%s", op);
    p->turn = turn;
}

static void empty_folder(const char *folder)
{
    char path[512];
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (dir)
        closedir(dir);
}

static void trace_sampler(const Side *side, const SamplerConfig *config,
                          const Batch *asked, const iso_fault *fault, const char *folder)
{
    SamplerCount count;
    Batch batch;
    batch_copy(asked, &batch);
    empty_folder(folder);
    engine_trace(side->engine, folder);
    engine_fault(side->engine, fault);
    sampler_run(side, config, &batch, NULL, &count);
    engine_fault(side->engine, NULL);
    engine_trace(side->engine, NULL);
    batch_free(&batch);
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* One call of the model, one row of one prompt, one element. */
static iso_fault make_fault(const Side *side, const Batch *asked, uint32_t *state, Place *place)
{
    *place = (Place){.choose = -1};
    must(iso_model_kernels(engine_model(side->engine), 1, choose_call, place), "calls");
    int calls = place->calls;
    *place = (Place){.choose = (int)(next(state) % (uint32_t)calls)};
    must(iso_model_kernels(engine_model(side->engine), 1, choose_call, place), "calls");
    const Sequence *s = &asked->sequence[next(state) % (uint32_t)asked->n];
    return (iso_fault){.op = place->op,
                       .turn = place->turn,
                       .sequence = s->id,
                       .position = s->prompt - 1, /* its last row, which every op has */
                       .index = place->turn < 0 ? 0 : next(state) % 32};
}

/* ---- two contracts ---- */

/* Both write one token for each of two prompts, and what their ops gave is compared. */
void show_difference(Options *o, const iso_module *a, const iso_module *b)
{
    char folders[2][32] = {"/tmp/rollout-a-XXXXXX", "/tmp/rollout-b-XXXXXX"}, layout[64], item[128];
    const iso_module *modules[] = {a, b};
    SamplerConfig config;
    iso_difference first;
    Batch asked;
    next_item(o->samplers, item, sizeof item);
    read_sampler(item, &config, layout, sizeof layout);
    config.prefix = false;
    config.draft = 0;
    batch_make(&asked, o->requests < 2 ? o->requests : 2, vocabulary(a), 0, o->prompt, 1);
    for (int i = 0; i < 2; i++) {
        if (!mkdtemp(folders[i]))
            die("there is no room in /tmp");
        Side side = open_sampler(o, modules[i], &config);
        trace_sampler(&side, &config, &asked, NULL, folders[i]);
        engine_close(side.engine);
    }
    must(iso_trace_diff(folders[0], folders[1], &first), "iso_trace_diff");
    if (first.differ)
        printf("the contracts part in op %s of layer %d, sequence %lld, position %lld, element "
               "%lld: %08x and %08x; %lld of %lld elements differ from there on\n", first.op,
               first.turn, (long long)first.sequence, (long long)first.position,
               (long long)first.index, first.a, first.b, (long long)first.differ,
               (long long)first.compared);
    for (int i = 0; i < 2; i++) {
        empty_folder(folders[i]);
        rmdir(folders[i]);
    }
    batch_free(&asked);
}

/* ---- faults ---- */

int find_faults(Options *o, const iso_module *module)
{
    char clean[] = "/tmp/rollout-clean-XXXXXX", spoilt[] = "/tmp/rollout-fault-XXXXXX";
    char layouts[2][64], item[128];
    SamplerConfig config[2];
    uint32_t state = 1;
    int lost = 0;
    Batch asked;
    next_item(o->samplers, item, sizeof item);
    read_sampler(item, &config[0], layouts[0], sizeof layouts[0]);
    const char *comma = strrchr(o->samplers, ',');
    read_sampler(comma ? comma + 1 : o->samplers, &config[1], layouts[1], sizeof layouts[1]);
    config[0].prefix = config[1].prefix = false;
    config[0].draft = config[1].draft = 0;
    if (!mkdtemp(clean) || !mkdtemp(spoilt))
        die("there is no room in /tmp");
    batch_make(&asked, o->requests, vocabulary(module), 0, o->prompt, 1);
    Side a = open_sampler(o, module, &config[0]), b = open_sampler(o, module, &config[1]);
    trace_sampler(&a, &config[0], &asked, NULL, clean);
    for (int i = 0; i < o->faults; i++) {
        iso_difference found;
        Place place;
        iso_fault fault = make_fault(&b, &asked, &state, &place);
        trace_sampler(&b, &config[1], &asked, &fault, spoilt);
        must(iso_trace_diff(clean, spoilt, &found), "iso_trace_diff");
        bool right = found.differ && !strcmp(found.op, fault.op) && found.turn == fault.turn &&
                     found.sequence == fault.sequence && found.position == fault.position &&
                     found.index == fault.index;
        lost += !right;
        printf("fault in %s of layer %d, sequence %lld, position %lld, element %lld: %s %s of "
               "layer %d, sequence %lld, position %lld, element %lld: %08x and %08x\n",
               fault.op, fault.turn, (long long)fault.sequence, (long long)fault.position,
               (long long)fault.index, right ? "found in" : "NOT FOUND but in", found.op,
               found.turn, (long long)found.sequence, (long long)found.position,
               (long long)found.index, found.a, found.b);
    }
    printf("%d of %d faults found where they are\n", o->faults - lost, o->faults);
    engine_close(a.engine);
    engine_close(b.engine);
    empty_folder(clean);
    empty_folder(spoilt);
    rmdir(clean);
    rmdir(spoilt);
    batch_free(&asked);
    return lost;
}
