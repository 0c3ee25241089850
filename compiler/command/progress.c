/* One thread that sleeps, and speaks only when a step is slow. */
#include "progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { QUIET = 2, AGAIN_TTY = 1, AGAIN_PLAIN = 10 }; /* seconds */

struct Progress {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, tty, shown;
    char what[160];
    int done, total;
    struct timespec since;
};

static void show(Progress *p, long seconds)
{
    char count[64] = "";
    if (p->total > 0)
        snprintf(count, sizeof count, " %d of %d", p->done, p->total);
    fprintf(stderr, "%sisoc: %s%s, %ld s%s", p->tty ? "\r" : "", p->what, count, seconds,
            p->tty ? "\033[K" : "\n");
    fflush(stderr);
    p->shown = p->tty;
}

static void *speak(void *self)
{
    Progress *p = self;
    pthread_mutex_lock(&p->lock);
    long next = QUIET;
    while (!p->stop) {
        struct timespec now, until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        pthread_cond_timedwait(&p->wake, &p->lock, &until);
        clock_gettime(CLOCK_MONOTONIC, &now);
        long seconds = now.tv_sec - p->since.tv_sec;
        if (p->stop || seconds < next)
            continue;
        show(p, seconds);
        next = seconds + (p->tty ? AGAIN_TTY : AGAIN_PLAIN);
    }
    if (p->shown)
        fprintf(stderr, "\r\033[K");
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

Progress *progress_start(void)
{
    Progress *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->tty = isatty(STDERR_FILENO);
    clock_gettime(CLOCK_MONOTONIC, &p->since);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    if (pthread_create(&p->thread, NULL, speak, p) == 0)
        return p;
    free(p);
    return NULL;
}

void progress_say(Progress *p, const char *what, int done, int total)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    snprintf(p->what, sizeof p->what, "%s", what);
    p->done = done;
    p->total = total;
    pthread_mutex_unlock(&p->lock);
}

void progress_stop(Progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    free(p);
}
