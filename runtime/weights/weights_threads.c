/* Jobs of one kind over several threads. */
#include "weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 16 };

typedef struct Crew {
    WeightsJob *job;
    void *user;
    int64_t n;
    atomic_llong next;
} Crew;

static void *work(void *user)
{
    Crew *crew = user;
    for (int64_t i; (i = atomic_fetch_add(&crew->next, 1)) < crew->n;)
        crew->job(crew->user, i);
    return NULL;
}

void weights_share_out(int64_t n, WeightsJob *job, void *user)
{
    pthread_t thread[MOST_THREADS];
    Crew crew = {.job = job, .user = user, .n = n};
    long most = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    most = most < MOST_THREADS ? most : MOST_THREADS;
    while (started < most - 1 && started < n - 1 &&
           pthread_create(&thread[started], NULL, work, &crew) == 0)
        started++;
    work(&crew);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}
