/* Requests, and the rows of logits that are kept of them. */
#include "rollout.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Noreturn void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("rollout: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    exit(3);
}

void must(iso_status status, const char *what)
{
    if (status)
        die("%s: %s: %s", what, iso_status_string(status), iso_last_error());
}

void *take(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    if (!memory)
        die("no memory");
    return memory;
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- requests ---- */

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_sequence(Sequence *s, int64_t id, int vocab, int shared, int prompt, int answer)
{
    uint32_t own = (uint32_t)id * 2654435761u + 12345, common = 99;
    *s = (Sequence){.id = id,
                    .prompt = prompt,
                    .n = prompt,
                    .most = prompt + answer,
                    .tokens = take((size_t)(prompt + answer), sizeof(int32_t)),
                    .logprob = take((size_t)(prompt + answer), sizeof(float)),
                    .temperature = 0.7f + 0.15f * (float)(id % 3),
                    .top_p = id % 4 == 1 ? 0.9f : 1.0f,
                    .min_p = id % 4 == 2 ? 0.05f : 0.0f,
                    .top_k = id % 4 == 3 ? 40 : id % 8 == 0 ? 1 : 0,
                    .seed = (int32_t)(id * 7919 + 17)};
    for (int i = 0; i < prompt; i++)
        s->tokens[i] = (int32_t)(next(i < shared ? &common : &own) % (uint32_t)vocab);
}

/* Most prompts are short, some are long; answers alike. */
static int mixed(uint32_t *state, int longest)
{
    int spread = next(state) % 4 == 0 ? longest : (longest + 3) / 4;
    return 1 + (int)(next(state) % (uint32_t)spread);
}

void batch_make(Batch *batch, int n, int vocab, int shared, int longest_prompt, int longest_answer)
{
    uint32_t state = 7;
    *batch = (Batch){n, take((size_t)n, sizeof(Sequence))};
    for (int i = 0; i < n; i++) {
        int prompt = mixed(&state, longest_prompt);
        int answer = longest_answer / 2 + mixed(&state, (longest_answer + 1) / 2);
        prompt = prompt <= shared && i % 2 == 0 ? shared + 1 : prompt;
        make_sequence(&batch->sequence[i], i, vocab, i % 2 == 0 ? shared : 0, prompt, answer);
    }
}

void batch_copy(const Batch *from, Batch *to)
{
    *to = (Batch){from->n, take((size_t)from->n, sizeof(Sequence))};
    for (int i = 0; i < from->n; i++) {
        const Sequence *s = &from->sequence[i];
        Sequence *copy = &to->sequence[i];
        *copy = *s;
        copy->tokens = take((size_t)s->most, sizeof(int32_t));
        copy->logprob = take((size_t)s->most, sizeof(float));
        memcpy(copy->tokens, s->tokens, (size_t)s->n * sizeof(int32_t));
        memcpy(copy->logprob, s->logprob, (size_t)s->n * sizeof(float));
    }
}

void batch_free(Batch *batch)
{
    for (int i = 0; i < batch->n; i++) {
        free(batch->sequence[i].tokens);
        free(batch->sequence[i].logprob);
    }
    free(batch->sequence);
    *batch = (Batch){0};
}

int64_t batch_drawn(const Batch *batch)
{
    int64_t n = 0;
    for (int i = 0; i < batch->n; i++)
        n += batch->sequence[i].n - batch->sequence[i].prompt;
    return n;
}

/* ---- rows of logits ---- */

void kept_open(Kept *kept, int every, int most, int vocab)
{
    *kept = (Kept){.every = every,
                   .most = most,
                   .vocab = vocab,
                   .sequence = take((size_t)most, sizeof(int64_t)),
                   .position = take((size_t)most, sizeof(int64_t)),
                   .row = take((size_t)most * (size_t)vocab, sizeof(float))};
}

void kept_close(Kept *kept)
{
    free(kept->sequence);
    free(kept->position);
    free(kept->row);
}
