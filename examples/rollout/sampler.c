/* The sampler: continuous batching over a paged cache. Every step takes the next row of each
 * sequence that is being written, with drafted tokens behind it, and fills the rest of its budget
 * with chunks of prompts. */
#include "rollout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DRAFT = 8, NGRAM = 2 };

/* A sequence that has its pages. */
typedef struct Running {
    Sequence *s;
    const Sequence *hint;
    int computed; /* rows that are in the cache */
    int n_pages;
    bool kept; /* what its pages hold is known */
    int32_t *table;
    /* in this step */
    int rows, drafted, wanted; /* wanted: the first of its wanted rows; -1: none */
    int32_t draft[MOST_DRAFT];
} Running;

/* The arrays of a step. */
typedef struct Rows {
    int n, n_wanted, n_sequences;
    iso_sequence *sequence;
    int32_t *ids, *seed, *stream, *top_k, *wanted, *token;
    float *temperature, *top_p, *min_p, *logprob, *logits;
} Rows;

typedef struct Sampler {
    Engine *engine;
    const SamplerConfig *config;
    Pages *pages;
    int64_t budget;
    int at_once, n_running, next; /* next: of the batch, to be let in */
    Running *running;
    Batch *batch;
    Kept *kept;
    SamplerCount *count;
    Rows rows;
    int vocab;
} Sampler;

/* ---- letting in and out ---- */

static void give_back(Sampler *p, Running *r)
{
    for (int i = 0; i < r->n_pages; i++)
        pages_drop(p->pages, r->table[i]);
    free(r->table);
}

/* The next page of a sequence: where ranks share the cache, of the rank that has its positions. A
 * sequence may begin on any. */
static int next_page(const Sampler *p, const Running *r)
{
    int64_t positions;
    int ranks = engine_page_ranks(p->engine, &positions);
    int64_t first = r->n_pages ? r->table[0] : r->s->id;
    int64_t passed = r->n_pages * (int64_t)p->config->page / positions;
    return pages_take(p->pages, (int)((first + passed) % ranks), ranks);
}

/* All pages that the sequence can come to need, at once: none runs out on the way. */
static bool let_in(Sampler *p, Sequence *s, Running *r)
{
    int page = p->config->page, need = (s->most + page - 1) / page;
    *r = (Running){.s = s, .table = take((size_t)need, sizeof(int32_t))};
    if (p->config->prefix)
        r->n_pages = pages_find(p->pages, s->tokens, s->prompt - 1, r->table);
    r->computed = r->n_pages * page;
    while (r->n_pages < need) {
        int taken = next_page(p, r);
        if (taken < 0) {
            give_back(p, r);
            return false;
        }
        r->table[r->n_pages++] = taken;
    }
    p->count->found += r->computed;
    if (p->config->hints)
        r->hint = &p->config->hints->sequence[s->id];
    return true;
}

static void let_all_in(Sampler *p)
{
    while (p->n_running < p->at_once && p->next < p->batch->n) {
        Sequence *s = &p->batch->sequence[p->next];
        if (!let_in(p, s, &p->running[p->n_running])) {
            if (p->n_running == 0)
                die("the cache is too small for a sequence of %d tokens", s->most);
            return;
        }
        p->n_running++;
        p->next++;
    }
}

static void let_out(Sampler *p)
{
    int left = 0;
    for (int i = 0; i < p->n_running; i++) {
        Running *r = &p->running[i];
        if (r->s->n < r->s->most)
            p->running[left++] = *r;
        else
            give_back(p, r);
    }
    p->n_running = left;
}

/* ---- drafting ---- */

/* What followed when the last tokens were there before. */
static int find_ngram(const Sequence *s, int most, int32_t *draft)
{
    for (int at = s->n - NGRAM - 1; at >= 0; at--) {
        if (memcmp(s->tokens + at, s->tokens + s->n - NGRAM, NGRAM * sizeof(int32_t)))
            continue;
        int n = s->n - (at + NGRAM) < most ? s->n - (at + NGRAM) : most;
        memcpy(draft, s->tokens + at + NGRAM, (size_t)n * sizeof(int32_t));
        return n;
    }
    return 0;
}

/* What the hint says comes next, every seventh token being another one. */
static int copy_hint(const Sampler *p, const Running *r, int most, int32_t *draft)
{
    int n = r->hint->n - r->s->n < most ? r->hint->n - r->s->n : most;
    for (int i = 0; i < n; i++) {
        int at = r->s->n + i;
        draft[i] = at % 7 ? r->hint->tokens[at] : (r->hint->tokens[at] + 1) % p->vocab;
    }
    return n > 0 ? n : 0;
}

static void make_draft(const Sampler *p, Running *r, int64_t left)
{
    int most = r->s->most - r->s->n - 1;
    most = most < p->config->draft ? most : p->config->draft;
    most = most < MOST_DRAFT ? most : MOST_DRAFT;
    most = most < left ? most : (int)left;
    r->drafted = 0;
    if (most > 0)
        r->drafted = r->hint ? copy_hint(p, r, most, r->draft)
                             : find_ngram(r->s, most, r->draft);
    p->count->drafted += r->drafted;
}

/* ---- a step ---- */

static void add_row(Rows *rows, const Running *r, int at)
{
    const Sequence *s = r->s;
    rows->ids[rows->n] = at < s->n ? s->tokens[at] : r->draft[at - s->n];
    rows->seed[rows->n] = s->seed;
    rows->stream[rows->n] = 0;
    rows->top_k[rows->n] = s->top_k;
    rows->top_p[rows->n] = s->top_p;
    rows->min_p[rows->n] = s->min_p;
    rows->temperature[rows->n++] = s->temperature;
}

static void add_sequence(Sampler *p, Running *r, int n)
{
    Rows *rows = &p->rows;
    int end = r->computed + n, known = r->s->n;
    rows->sequence[rows->n_sequences++] = (iso_sequence){r->s->id, r->computed, n, r->table};
    r->rows = n;
    r->wanted = end >= known ? rows->n_wanted : -1;
    for (int at = r->computed; at < end; at++) {
        if (at >= known - 1)
            rows->wanted[rows->n_wanted++] = rows->n;
        add_row(rows, r, at);
    }
}

/* Sequences that are being written come first, then prompts as far as the budget goes. */
static void fill_step(Sampler *p)
{
    Rows *rows = &p->rows;
    int64_t chunk = p->config->chunk ? p->config->chunk : p->budget;
    rows->n = rows->n_wanted = rows->n_sequences = 0;
    for (int i = 0; i < p->n_running; i++) {
        Running *r = &p->running[i];
        r->rows = r->drafted = 0;
        if (r->computed != r->s->n - 1)
            continue;
        make_draft(p, r, p->budget - rows->n - (p->n_running - i));
        add_sequence(p, r, 1 + r->drafted);
    }
    for (int i = 0; i < p->n_running; i++) {
        Running *r = &p->running[i];
        int64_t left = p->budget - rows->n < chunk ? p->budget - rows->n : chunk;
        int64_t need = r->s->n - r->computed;
        if (r->rows || need < 2 || left < 1)
            continue;
        int n = (int)(need < left ? need : left);
        chunk -= n;
        add_sequence(p, r, n);
    }
}

static bool wants_logits(const Sampler *p)
{
    return p->kept && p->kept->n < p->kept->most && p->count->steps % p->kept->every == 0;
}

static int ask(Sampler *p, bool logits, iso_value *outputs)
{
    Rows *rows = &p->rows;
    size_t wanted = (size_t)rows->n_wanted;
    outputs[0] = (iso_value){"token", rows->token, wanted * sizeof(int32_t)};
    outputs[1] = (iso_value){"token_logprob", rows->logprob, wanted * sizeof(float)};
    outputs[2] = (iso_value){"logits", rows->logits,
                             wanted * (size_t)p->vocab * sizeof(float)};
    return wanted == 0 ? 0 : logits ? 3 : 2;
}

static void run_step(Sampler *p, bool logits)
{
    Rows *rows = &p->rows;
    size_t n = (size_t)rows->n * sizeof(int32_t);
    iso_value outputs[3];
    iso_value inputs[] = {{"ids", rows->ids, n},     {"temperature", rows->temperature, n},
                          {"seed", rows->seed, n},   {"stream", rows->stream, n},
                          {"top_k", rows->top_k, n}, {"top_p", rows->top_p, n},
                          {"min_p", rows->min_p, n}};
    iso_step step = {.sequences = rows->sequence,
                     .n_sequences = rows->n_sequences,
                     .inputs = inputs,
                     .n_inputs = 7,
                     .wanted = rows->wanted,
                     .n_wanted = rows->n_wanted,
                     .outputs = outputs,
                     .n_outputs = ask(p, logits, outputs)};
    engine_step(p->engine, &step);
    p->count->steps++;
    p->count->rows += rows->n;
}

static void keep_row(Sampler *p, const Running *r, int row)
{
    Kept *kept = p->kept;
    if (kept->n == kept->most)
        return;
    kept->sequence[kept->n] = r->s->id;
    kept->position[kept->n] = r->s->n - 1;
    memcpy(kept->row + (size_t)kept->n++ * (size_t)p->vocab,
           p->rows.logits + (size_t)row * (size_t)p->vocab, (size_t)p->vocab * sizeof(float));
}

/* A drafted token stands as long as the one that is drawn in its place is the same. */
static void take_tokens(Sampler *p, Running *r, bool keep)
{
    Sequence *s = r->s;
    int row = r->wanted;
    r->computed += r->rows - r->drafted;
    if (row < 0)
        return;
    if (keep)
        keep_row(p, r, row);
    for (int i = 0; i <= r->drafted && s->n < s->most; i++) {
        s->tokens[s->n] = p->rows.token[row + i];
        s->logprob[s->n++] = p->rows.logprob[row + i];
        p->count->drawn++;
        if (i == r->drafted || s->tokens[s->n - 1] != r->draft[i])
            break;
        r->computed++;
        p->count->accepted++;
    }
}

/* Of a step whose logits were asked, one row is kept. */
static void finish_step(Sampler *p, bool keep)
{
    for (int i = 0; i < p->n_running; i++) {
        Running *r = &p->running[i];
        if (!r->rows)
            continue;
        bool here = keep && r->wanted >= 0;
        take_tokens(p, r, here);
        keep &= !here;
        if (p->config->prefix && !r->kept && r->computed >= r->s->prompt)
            pages_keep(p->pages, r->s->tokens, r->s->prompt, r->table), r->kept = true;
    }
}

/* ---- all of it ---- */

static void open_rows(Sampler *p)
{
    size_t n = (size_t)p->budget, drawn = (size_t)p->at_once * (1 + MOST_DRAFT);
    size_t all = (drawn < n ? drawn : n) * (size_t)p->vocab;
    p->rows = (Rows){.sequence = take((size_t)p->at_once, sizeof(iso_sequence)),
                     .ids = take(n, 4),
                     .seed = take(n, 4),
                     .stream = take(n, 4),
                     .top_k = take(n, 4),
                     .top_p = take(n, 4),
                     .min_p = take(n, 4),
                     .wanted = take(n, 4),
                     .token = take(n, 4),
                     .temperature = take(n, 4),
                     .logprob = take(n, 4),
                     .logits = take(p->kept ? all : 1, sizeof(float))};
}

static void close_rows(Rows *rows)
{
    void *all[] = {rows->sequence, rows->ids,   rows->seed,        rows->stream,
                   rows->top_k,    rows->top_p, rows->min_p,       rows->wanted,
                   rows->token,    rows->logits, rows->temperature, rows->logprob};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

void sampler_run(const Side *side, const SamplerConfig *config, Batch *batch, Kept *kept,
                 SamplerCount *count)
{
    Sampler p = {.engine = side->engine,
                 .config = config,
                 .pages = pages_open(config->page, (int)side->pages),
                 .budget = side->budget,
                 .at_once = side->at_once,
                 .running = take((size_t)side->at_once, sizeof(Running)),
                 .batch = batch,
                 .kept = kept,
                 .count = count,
                 .vocab = side->vocab};
    *count = (SamplerCount){0};
    open_rows(&p);
    double begin = seconds_now();
    for (let_all_in(&p); p.n_running; let_all_in(&p)) {
        bool logits = wants_logits(&p);
        fill_step(&p);
        run_step(&p, logits);
        finish_step(&p, logits);
        let_out(&p);
    }
    count->seconds = seconds_now() - begin;
    close_rows(&p.rows);
    free(p.running);
    pages_close(p.pages);
}
