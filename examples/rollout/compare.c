/* Samplers against trainers: every log-probability and kept rows of logits, bit by bit. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLERS = 16 };

/* ---- what is asked ---- */

const char *next_item(const char *list, char *item, size_t size)
{
    size_t n = strcspn(list, ",");
    if (n == 0 || n >= size)
        return NULL;
    memcpy(item, list, n);
    item[n] = 0;
    return list + n + (list[n] == ',');
}

void read_sampler(const char *text, SamplerConfig *config, char *layout, size_t size)
{
    int n = 0;
    memset(config, 0, sizeof *config);
    char format[32];
    snprintf(format, sizeof format, "%%%zu[^:]:%%d:%%d%%n", size - 1);
    if (sscanf(text, format, layout, &config->page, &config->chunk, &n) < 3)
        die("a sampler is LAYOUT:PAGE:CHUNK, not %s", text);
    config->layout = layout;
    for (text += n; *text; text += strcspn(text + 1, ":") + 1) {
        if (!strncmp(text, ":prefix", 7))
            config->prefix = true;
        else if (sscanf(text, ":draft%d", &config->draft) != 1)
            die("a sampler's settings are :prefix and :draftN, not %s", text);
    }
}

int vocabulary(const iso_module *module)
{
    iso_tensor logits;
    must(iso_model_value(module, "logits", 1, &logits), "logits");
    if (logits.dtype != ISO_F32 || logits.n_axes != 2)
        die("the model's logits are not f32[tokens, vocab]");
    return (int)logits.shape[1];
}

static int64_t longest(const Options *o)
{
    int prompt = o->prompt > o->shared + 1 ? o->prompt : o->shared + 1;
    return prompt + o->answer + 8;
}

/* The weights are hashed once. */
static Side open_side(Options *o, EngineConfig *config)
{
    double begin = seconds_now();
    config->digest = o->has_digest ? o->digest : NULL;
    Engine *engine = engine_open(config);
    must(iso_model_weights(engine_model(engine), o->digest), "iso_model_weights");
    o->has_digest = true;
    printf("%s: loaded in %.2f s\n", config->layout, seconds_now() - begin);
    fflush(stdout);
    return (Side){config->module, engine, config->max_rows, config->pages, o->at_once,
                  vocabulary(config->module)};
}

Side open_sampler(Options *o, const iso_module *module, const SamplerConfig *config)
{
    int pages = (int)((int64_t)o->pages * 16 / config->page);
    int need = (int)((longest(o) + config->page - 1) / config->page) + 1;
    EngineConfig engine = {.module = module,
                           .weights = o->weights,
                           .layout = config->layout,
                           .max_rows = o->rows,
                           .output_rows = 256,
                           .graph_rows = o->graph_rows,
                           .timeout = o->timeout,
                           .max_sequences = o->at_once,
                           .max_position = longest(o),
                           .page = config->page,
                           .pages = pages > need ? pages : need};
    return open_side(o, &engine);
}

Side open_trainer(Options *o, const iso_module *module, const char *layout)
{
    EngineConfig engine = {.module = module,
                           .weights = o->weights,
                           .layout = layout,
                           .max_rows = o->pass,
                           .output_rows = 256,
                           .timeout = o->timeout,
                           .max_sequences = o->at_once,
                           .max_position = longest(o)};
    return open_side(o, &engine);
}

/* ---- what was drawn ---- */

typedef struct Drawn {
    char name[128], layout[64];
    Batch batch;
    Kept kept;
} Drawn;

static void draw(Options *o, const iso_module *module, const char *name, const Batch *asked,
                 const Batch *hints, Drawn *drawn)
{
    SamplerConfig config;
    SamplerCount count;
    read_sampler(name, &config, drawn->layout, sizeof drawn->layout);
    config.hints = hints;
    snprintf(drawn->name, sizeof drawn->name, "%s", name);
    batch_copy(asked, &drawn->batch);
    Side side = open_sampler(o, module, &config);
    if (o->kept)
        kept_open(&drawn->kept, 5, o->kept, side.vocab);
    sampler_run(&side, &config, &drawn->batch, o->kept ? &drawn->kept : NULL, &count);
    engine_close(side.engine);
    printf("sampler %-24s %lld tokens of %d requests in %lld steps of %lld rows, %.2f s, %.0f "
           "tokens/s", name, (long long)count.drawn, asked->n, (long long)count.steps,
           (long long)count.rows, count.seconds,
           count.seconds > 0 ? (double)count.drawn / count.seconds : 0.0);
    if (config.prefix)
        printf(", %lld rows found", (long long)count.found);
    if (config.draft)
        printf(", %lld of %lld drafted tokens stand", (long long)count.accepted,
               (long long)count.drafted);
    printf("\n");
    fflush(stdout);
}

/* ---- what differs ---- */

static bool equal_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static int64_t tokens_differ(const Batch *a, const Batch *b)
{
    int64_t n = 0;
    for (int i = 0; i < a->n; i++)
        for (int t = a->sequence[i].prompt; t < a->sequence[i].n; t++)
            n += a->sequence[i].tokens[t] != b->sequence[i].tokens[t];
    return n;
}

static int64_t logprobs_differ(const Batch *batch, float **logprob)
{
    int64_t n = 0;
    for (int i = 0; i < batch->n; i++) {
        const Sequence *s = &batch->sequence[i];
        for (int t = s->prompt; t < s->n; t++) {
            bool same = equal_bits(s->logprob[t], logprob[i][t]);
            if (!same && n++ == 0)
                printf("  first: sequence %d, token %d: sampler %.9g, trainer %.9g\n", i, t,
                       s->logprob[t], logprob[i][t]);
        }
    }
    return n;
}

static int64_t logits_differ(const Kept *kept, const float *rows)
{
    int64_t n = 0;
    for (size_t i = 0; i < (size_t)kept->n * (size_t)kept->vocab; i++)
        n += !equal_bits(kept->row[i], rows[i]);
    return n;
}

static int64_t compare(const Side *trainer, const char *layout, const Drawn *drawn)
{
    const Batch *batch = &drawn->batch;
    const Kept *kept = &drawn->kept;
    float **logprob = take((size_t)batch->n, sizeof *logprob);
    float *rows = take((size_t)kept->n * (size_t)kept->vocab, sizeof *rows);
    for (int i = 0; i < batch->n; i++)
        logprob[i] = take((size_t)batch->sequence[i].most, sizeof(float));
    double begin = seconds_now();
    trainer_run(trainer, batch, logprob, kept->n ? kept : NULL, rows);
    int64_t probs = logprobs_differ(batch, logprob), logits = logits_differ(kept, rows);
    printf("trainer %-8s sampler %-24s %lld of %lld log-probabilities differ, %lld of %lld logits "
           "of %d rows, %.2f s\n", layout, drawn->name, (long long)probs,
           (long long)batch_drawn(batch), (long long)logits, (long long)kept->n * kept->vocab,
           kept->n, seconds_now() - begin);
    fflush(stdout);
    for (int i = 0; i < batch->n; i++)
        free(logprob[i]);
    free(logprob);
    free(rows);
    return probs + logits;
}

/* ---- which kernels ran ---- */

typedef struct Kernels {
    int n;
    char *line[4096];
} Kernels;

static void add_line(void *user, const char *op, int turn, const char *kernel)
{
    Kernels *k = user;
    char line[512];
    snprintf(line, sizeof line, "%s %s", op, kernel);
    if (turn > 0 || k->n == (int)(sizeof k->line / sizeof k->line[0]))
        return;
    k->line[k->n] = take(strlen(line) + 1, 1);
    strcpy(k->line[k->n++], line);
}

static void log_kernels(const Side *side, const char *what, int64_t rows, Kernels *k)
{
    k->n = 0;
    must(iso_model_kernels(engine_model(side->engine), rows, add_line, k), "iso_model_kernels");
    for (int i = 0; i < k->n; i++)
        printf("  %s at %lld rows: %s\n", what, (long long)rows, k->line[i]);
}

static void log_both(Options *o, const iso_module *trainer, const iso_module *sampler)
{
    static Kernels a, b;
    SamplerConfig config;
    char layout[64], item[128];
    next_item(o->samplers, item, sizeof item);
    read_sampler(item, &config, layout, sizeof layout);
    Side s = open_sampler(o, sampler, &config);
    log_kernels(&s, "sampler", o->at_once < o->rows ? o->at_once : o->rows, &a);
    engine_close(s.engine);
    next_item(o->trainers, item, sizeof item);
    Side t = open_trainer(o, trainer, item);
    log_kernels(&t, "trainer", o->pass, &b);
    engine_close(t.engine);
    int differ = 0;
    for (int i = 0; i < a.n && i < b.n; i++)
        differ += strcmp(a.line[i], b.line[i]) != 0;
    printf("%d of %d ops run another kernel in the trainer than in the sampler\n", differ, a.n);
}

/* ---- all of it ---- */

static int64_t compare_trainers(Options *o, const iso_module *module, const Drawn *drawn,
                                int n)
{
    char layout[64];
    int64_t differ = 0;
    for (const char *at = o->trainers; (at = next_item(at, layout, sizeof layout));) {
        Side side = open_trainer(o, module, layout);
        for (int i = 0; i < n; i++)
            differ += compare(&side, layout, &drawn[i]);
        engine_close(side.engine);
    }
    return differ;
}

int64_t compare_all(Options *o, const iso_module *trainer, const iso_module *sampler)
{
    static Drawn drawn[MOST_SAMPLERS];
    Batch asked;
    char name[128];
    int n = 0;
    if (o->log)
        log_both(o, trainer, sampler);
    batch_make(&asked, o->requests, vocabulary(trainer), o->shared, o->prompt, o->answer);
    for (const char *at = o->samplers; n < MOST_SAMPLERS && (at = next_item(at, name, sizeof name));
         n++)
        draw(o, sampler, name, &asked, n ? &drawn[0].batch : NULL, &drawn[n]);
    int64_t differ = 0;
    for (int i = 1; i < n; i++)
        differ += tokens_differ(&drawn[0].batch, &drawn[i].batch);
    printf("%lld tokens differ between samplers\n", (long long)differ);
    differ += compare_trainers(o, trainer, drawn, n);
    for (int i = 0; i < n; i++) {
        batch_free(&drawn[i].batch);
        kept_close(&drawn[i].kept);
    }
    batch_free(&asked);
    return differ;
}
