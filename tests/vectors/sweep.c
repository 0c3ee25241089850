// The host's side of `record sweep`, over all 2^32 operands of every function; prints the same
// lines.
#include "functions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 64 };

typedef struct Part {
    int function;
    VectorU64 first, step, sum;
    pthread_t thread;
} Part;

static void *run(void *arg)
{
    Part *p = arg;
    for (VectorU64 x = p->first; x < 1ull << 32; x += p->step)
        p->sum += vector_mix((IsoU32)x, vector_apply(p->function, (IsoU32)x, 0, 0));
    return NULL;
}

static VectorU64 sweep(int function, VectorU64 stride, int threads)
{
    Part parts[MAX_THREADS];
    VectorU64 sum = 0;
    for (int i = 0; i < threads; i++) {
        parts[i] = (Part){.function = function, .first = i * stride, .step = threads * stride};
        if (pthread_create(&parts[i].thread, NULL, run, &parts[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(parts[i].thread, NULL);
        sum += parts[i].sum;
    }
    return sum;
}

int main(int argc, char **argv)
{
    VectorU64 stride = argc > 1 ? (VectorU64)atoll(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    if (stride < 1 || threads < 1 || threads > MAX_THREADS)
        return 2;
    for (int f = 0; f < VECTOR_FUNCTIONS; f++)
        if (vector_sweeps[f])
            printf("%s %llu %016llx\n", vector_names[f], stride, sweep(f, stride, threads));
    return 0;
}
