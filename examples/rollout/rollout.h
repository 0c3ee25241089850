/* A rollout and its check: a sampler writes text, a trainer scores it, and every log-probability is
 * compared in every bit, whatever the layouts, pages and chunks of the two are.
 * Ownership: each opened thing is its opener's, and closed by the call beside it. */
#ifndef ROLLOUT_H
#define ROLLOUT_H

#include "iso_model.h"

#include <stdbool.h>
#include <stdio.h>

_Noreturn void die(const char *format, ...);
/* Dies with the status's sentence and what iso_last_error says. */
void must(iso_status status, const char *what);
void *take(size_t n, size_t size); /* zeroed */
double seconds_now(void);

/* ---- engines (engine.c): a model in one layout, a thread for each of its ranks --------------- */

typedef struct Engine Engine;

typedef struct EngineConfig {
    const iso_module *module;
    const char *weights, *layout;
    const uint8_t *digest; /* of the weights; NULL: not known yet */
    int64_t max_rows, output_rows, graph_rows;
    int max_sequences;
    int64_t max_position;
    int page;
    int64_t pages;
    int timeout; /* seconds that a rank waits for another */
} EngineConfig;

Engine *engine_open(const EngineConfig *config);
void engine_close(Engine *engine);
/* One step on every rank; outputs are whole. Where a rank fails the program ends with what it says,
 * whatever the others do; ranks that are late are named on stderr. */
void engine_step(Engine *engine, const iso_step *step);
/* How many ranks share the cache, by how many positions: as iso_model_sizes has it. */
int engine_page_ranks(const Engine *engine, int64_t *positions);
/* Rank 0's; for questions that run nothing. */
const iso_model *engine_model(const Engine *engine);
/* On every rank. */
void engine_trace(Engine *engine, const char *folder);
void engine_fault(Engine *engine, const iso_fault *fault);

/* ---- pages (pages.c): the blocks of a cache, shared by what begins alike --------------------- */

typedef struct Pages Pages;

Pages *pages_open(int page, int n);
void pages_close(Pages *pages);
/* A page that nobody has, of a number that is `rank` modulo `ranks`; -1 if there is none. What is
 * kept for its text alone gives way. */
int pages_take(Pages *pages, int rank, int ranks);
void pages_drop(Pages *pages, int page);
/* The longest run of whole pages that hold the beginning of these tokens: they are the caller's too
 * from here on. Returns how many. */
int pages_find(Pages *pages, const int32_t *tokens, int n, int32_t *table);
/* Says what the first whole pages of a table hold, so that others may find them. */
void pages_keep(Pages *pages, const int32_t *tokens, int n, const int32_t *table);

/* ---- requests and what became of them -------------------------------------------------------- */

typedef struct Sequence {
    int64_t id;
    int prompt, n, most;  /* tokens asked with, tokens so far, tokens to come to */
    int32_t *tokens;      /* room for `most` */
    float *logprob;       /* of each token when it was drawn */
    float temperature, top_p, min_p; /* how it is drawn */
    int32_t seed, top_k;
} Sequence;

typedef struct Batch {
    int n;
    Sequence *sequence;
} Batch;

/* n requests of mixed lengths; every other one begins with `shared` tokens that are common. */
void batch_make(Batch *batch, int n, int vocab, int shared, int longest_prompt, int longest_answer);
void batch_copy(const Batch *from, Batch *to);
void batch_free(Batch *batch);
int64_t batch_drawn(const Batch *batch); /* tokens that are not of the prompts */

/* Full rows of logits that are kept, of every `every`th drawn token. */
typedef struct Kept {
    int every, n, most, vocab;
    int64_t *sequence, *position; /* of the row that gave it */
    float *row;
} Kept;
void kept_open(Kept *kept, int every, int most, int vocab);
void kept_close(Kept *kept);

/* ---- the two sides --------------------------------------------------------------------------- */

typedef struct SamplerConfig {
    const char *layout;
    int page;
    int chunk;        /* rows of prefill in a step; 0: as many as there are */
    bool prefix;      /* reuse pages of prompts that begin alike */
    int draft;        /* drafted tokens that a step verifies */
    const Batch *hints; /* what to draft from; NULL: what the sequence itself said before */
} SamplerConfig;

typedef struct SamplerCount {
    int64_t steps, rows, drawn, found, drafted, accepted; /* found: rows that a prefix spared */
    double seconds;
} SamplerCount;

/* A loaded engine, and what it was loaded for. */
typedef struct Side {
    const iso_module *module;
    Engine *engine;
    int64_t budget, pages; /* rows of a step */
    int at_once, vocab;    /* sequences of a step */
} Side;

/* Draws every sequence to its end. */
void sampler_run(const Side *side, const SamplerConfig *config, Batch *batch, Kept *kept,
                 SamplerCount *count);
/* Scores all drawn tokens in packed passes: logprob[i][t] is of token t of sequence i. `rows`: the
 * rows of logits that `kept` names, in its order. */
void trainer_run(const Side *side, const Batch *batch, float **logprob, const Kept *kept,
                 float *rows);

#endif
