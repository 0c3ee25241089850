/* The trainer: whole sequences, packed one behind the other, scored in one pass each. */
#include "rollout.h"

#include <stdlib.h>
#include <string.h>

typedef struct Pack {
    const Batch *batch;
    int n, rows, n_wanted;
    int first; /* the first sequence that has not been packed */
    iso_sequence *sequence;
    int32_t *ids, *targets, *wanted;
    float *temperature, *logprob;
} Pack;

static void open_pack(Pack *p, const Side *side, const Batch *batch)
{
    size_t n = (size_t)side->budget;
    *p = (Pack){.batch = batch,
                .sequence = take((size_t)side->at_once, sizeof(iso_sequence)),
                .ids = take(n, 4),
                .targets = take(n, 4),
                .wanted = take(n, 4),
                .temperature = take(n, 4),
                .logprob = take(n, 4)};
}

static void close_pack(Pack *p)
{
    void *all[] = {p->sequence, p->ids, p->targets, p->wanted, p->temperature, p->logprob};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* The last token has no row: nothing was drawn after it. */
static void add_sequence(Pack *p, const Sequence *s)
{
    for (int at = 0; at < s->n - 1; at++) {
        if (at + 1 >= s->prompt)
            p->wanted[p->n_wanted++] = p->rows;
        p->ids[p->rows] = s->tokens[at];
        p->targets[p->rows] = s->tokens[at + 1];
        p->temperature[p->rows++] = s->temperature;
    }
    p->sequence[p->n++] = (iso_sequence){.id = s->id, .rows = s->n - 1};
}

/* False when all have been packed. */
static bool fill_pack(Pack *p, const Side *side)
{
    p->n = p->rows = p->n_wanted = 0;
    for (int from = p->first; p->first < p->batch->n && p->n < side->at_once; p->first++) {
        const Sequence *s = &p->batch->sequence[p->first];
        if (p->rows + s->n - 1 > side->budget) {
            if (p->first == from)
                die("a sequence of %d tokens does not fit into a pass of %lld rows", s->n,
                    (long long)side->budget);
            break;
        }
        add_sequence(p, s);
    }
    return p->n > 0;
}

static void run_pack(const Side *side, Pack *p, const int32_t *wanted, int n_wanted,
                     const iso_value *output)
{
    size_t n = (size_t)p->rows * sizeof(int32_t);
    iso_value inputs[] = {
        {"ids", p->ids, n}, {"targets", p->targets, n}, {"temperature", p->temperature, n}};
    iso_step step = {.sequences = p->sequence,
                     .n_sequences = p->n,
                     .inputs = inputs,
                     .n_inputs = 3,
                     .wanted = wanted,
                     .n_wanted = n_wanted,
                     .outputs = output,
                     .n_outputs = 1};
    engine_step(side->engine, &step);
}

static void score(const Side *side, Pack *p, float **logprob)
{
    iso_value output = {"logprob", p->logprob, (size_t)p->n_wanted * sizeof(float)};
    if (!p->n_wanted)
        return;
    run_pack(side, p, p->wanted, p->n_wanted, &output);
    for (int i = p->first - p->n, at = 0; i < p->first; i++) {
        const Sequence *s = &p->batch->sequence[i];
        for (int t = s->prompt; t < s->n; t++)
            logprob[i][t] = p->logprob[at++];
    }
}

/* The row of the pass that is this position of this sequence; -1: it is not there. */
static int find_row(const Pack *p, int64_t id, int64_t position)
{
    for (int i = 0, row = 0; i < p->n; row += p->sequence[i++].rows)
        if (p->sequence[i].id == id)
            return position < p->sequence[i].rows ? row + (int)position : -1;
    return -1;
}

static void read_logits(const Side *side, Pack *p, const Kept *kept, float *rows)
{
    size_t row = (size_t)kept->vocab * sizeof(float);
    int32_t *wanted = take((size_t)kept->n, sizeof *wanted);
    int *which = take((size_t)kept->n, sizeof *which), n = 0;
    for (int i = 0; i < kept->n; i++) {
        wanted[n] = find_row(p, kept->sequence[i], kept->position[i]);
        if (wanted[n] >= 0)
            which[n++] = i;
    }
    float *logits = take((size_t)n * row, 1);
    iso_value output = {"logits", logits, (size_t)n * row};
    if (n)
        run_pack(side, p, wanted, n, &output);
    for (int i = 0; i < n; i++)
        memcpy((char *)rows + (size_t)which[i] * row, (char *)logits + (size_t)i * row, row);
    free(logits);
    free(which);
    free(wanted);
}

void trainer_run(const Side *side, const Batch *batch, float **logprob, const Kept *kept,
                 float *rows)
{
    Pack p;
    open_pack(&p, side, batch);
    while (fill_pack(&p, side)) {
        score(side, &p, logprob);
        if (kept)
            read_logits(side, &p, kept, rows);
    }
    close_pack(&p);
}
