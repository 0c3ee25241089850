/* The store's client: every rank's stream to the server, heard by a thread of its own. */
#include "store_wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct Store {
    int rank, ranks, socket;
    double timeout;
    Server *server; /* rank 0's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ready, refused, closing;
    int absent, unequal; /* rank, or -1 */
    unsigned char *gathered; /* the running gather's records, once they came */
    size_t gathered_size;
    _Atomic uint32_t state[GROUP_RANKS], waits[GROUP_RANKS]; /* read without the lock */
    pthread_mutex_t sending;
    volatile uint32_t *mirror;
};

/* ---- hearing ---- */

static void mark(Store *s, int rank, uint32_t state)
{
    if (rank < 0 || rank >= s->ranks || s->state[rank])
        return;
    s->state[rank] = state;
    if (s->mirror && !s->mirror[GROUP_RANKS])
        s->mirror[GROUP_RANKS] = 1 + (uint32_t)rank;
    if (s->mirror)
        s->mirror[rank] = state;
}

static bool take_gathered(Store *s, size_t size)
{
    unsigned char *data = malloc(size ? size : 1);
    if (!data || !wire_read(s->socket, data, size)) {
        free(data);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    free(s->gathered);
    s->gathered = data;
    s->gathered_size = size;
    pthread_mutex_unlock(&s->lock);
    return true;
}

static bool take_epoch(Store *s, int rank)
{
    uint32_t epoch;
    if (!wire_read(s->socket, &epoch, sizeof epoch))
        return false;
    if (rank >= 0 && rank < s->ranks)
        s->waits[rank] = epoch;
    return true;
}

static bool take_message(Store *s)
{
    WireHead head;
    if (!wire_read_head(s->socket, &head))
        return false;
    if (head.kind == WIRE_WAITS)
        return take_epoch(s, head.rank);
    if (head.kind == WIRE_GATHER && !take_gathered(s, head.size))
        return false;
    pthread_mutex_lock(&s->lock);
    s->ready |= head.kind == WIRE_READY;
    s->refused |= head.kind == WIRE_TWICE;
    if (head.kind == WIRE_ABSENT)
        s->absent = head.rank;
    if (head.kind == WIRE_UNEQUAL)
        s->unequal = head.rank;
    if (head.kind == WIRE_DIED || head.kind == WIRE_LEFT)
        mark(s, head.rank, head.kind == WIRE_DIED ? RANK_DIED : RANK_LEFT);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* Without the server nobody tells of the others any more: rank 0 is gone, and the group with it. */
static void *listen_to_server(void *user)
{
    Store *s = user;
    while (take_message(s))
        ;
    pthread_mutex_lock(&s->lock);
    if (!s->closing)
        mark(s, 0, RANK_DIED);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- waiting ---- */

static void deadline_of(double seconds, struct timespec *at)
{
    clock_gettime(CLOCK_MONOTONIC, at);
    double whole = (double)at->tv_sec + 1e-9 * (double)at->tv_nsec + seconds;
    at->tv_sec = (time_t)whole;
    at->tv_nsec = (long)((whole - (double)at->tv_sec) * 1e9);
}

static int gone(const Store *s)
{
    for (int r = 0; r < s->ranks; r++)
        if (s->state[r])
            return r;
    return -1;
}

static iso_status how_it_failed(const Store *s, const char *doing)
{
    if (s->refused)
        return iso_fail(ISO_BOOTSTRAP,
                        "rank %d of %d was refused: the rank is there already, or rank 0 counts "
                        "other ranks",
                        s->rank, s->ranks);
    if (s->absent >= 0)
        return iso_fail(ISO_RANK_TIMEOUT, "rank %d did not come within %g s", s->absent,
                        s->timeout);
    if (s->unequal >= 0)
        return iso_fail(ISO_BOOTSTRAP, "rank %d is of another version of libiso", s->unequal);
    int rank = gone(s);
    if (rank >= 0)
        return iso_fail(ISO_RANK_LOST, "rank %d %s while %s", rank,
                        s->state[rank] == RANK_DIED ? "died" : "left", doing);
    return iso_fail(ISO_RANK_TIMEOUT, "the ranks were not complete within %g s while %s",
                    s->timeout, doing);
}

/* Under the lock, until `done` says so. A little longer than the server, which names the rank. */
static iso_status wait_until(Store *s, bool (*done)(const Store *), const char *doing)
{
    struct timespec at;
    deadline_of(s->timeout + 1, &at);
    int waited = 0;
    while (!done(s) && !s->refused && s->absent < 0 && s->unequal < 0 && gone(s) < 0 &&
           waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&s->changed, &s->lock, &at);
    return done(s) ? ISO_OK : how_it_failed(s, doing);
}

static bool is_ready(const Store *s)
{
    return s->ready;
}

static bool has_gathered(const Store *s)
{
    return s->gathered != NULL;
}

/* ---- the interface ---- */

static Store *store_new(const StoreConfig *config)
{
    Store *s = calloc(1, sizeof *s);
    pthread_condattr_t monotonic;
    if (!s)
        return NULL;
    s->rank = config->rank;
    s->ranks = config->ranks;
    s->timeout = config->timeout;
    s->socket = -1;
    s->absent = s->unequal = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->sending, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return s;
}

static void store_free(Store *s)
{
    server_stop(s->server);
    if (s->socket >= 0)
        close(s->socket);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->sending);
    free(s->gathered);
    free(s);
}

static iso_status join_server(Store *s, const StoreConfig *config)
{
    s->socket = wire_connect(config->where, clock_seconds() + s->timeout);
    if (s->socket < 0)
        return ISO_BOOTSTRAP;
    WireHead hello = {WIRE_MAGIC, WIRE_HELLO, s->rank, (uint32_t)s->ranks};
    if (send(s->socket, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return iso_fail(ISO_BOOTSTRAP, "rank 0 hung up: %s", strerror(errno));
    if (pthread_create(&s->thread, NULL, listen_to_server, s))
        return iso_fail(ISO_OUT_OF_MEMORY, "no thread to hear the other ranks");
    return ISO_OK;
}

iso_status store_open(Store **store, const StoreConfig *config)
{
    *store = NULL;
    Store *s = store_new(config);
    if (!s)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory to meet the other ranks");
    iso_status status = config->rank == 0 ? server_start(&s->server, config) : ISO_OK;
    if (!status)
        status = join_server(s, config);
    if (status) {
        store_free(s);
        return status;
    }
    pthread_mutex_lock(&s->lock);
    status = wait_until(s, is_ready, "the ranks met");
    pthread_mutex_unlock(&s->lock);
    if (status)
        store_close(s);
    else
        *store = s;
    return status;
}

static bool say(Store *s, WireKind kind, const void *data, size_t size)
{
    pthread_mutex_lock(&s->sending);
    bool sent = wire_send(s->socket, kind, s->rank, data, size);
    pthread_mutex_unlock(&s->sending);
    return sent;
}

iso_status store_gather(Store *s, const void *own, size_t size, void *all)
{
    pthread_mutex_lock(&s->lock);
    free(s->gathered);
    s->gathered = NULL;
    pthread_mutex_unlock(&s->lock);
    if (!say(s, WIRE_GATHER, own, size))
        return iso_fail(ISO_RANK_LOST, "rank 0 died while the ranks exchanged records");
    pthread_mutex_lock(&s->lock);
    iso_status status = wait_until(s, has_gathered, "the ranks exchanged records");
    if (!status && s->gathered_size != size * (size_t)s->ranks)
        status = iso_fail(ISO_BOOTSTRAP, "the ranks are of different versions of libiso");
    if (!status)
        memcpy(all, s->gathered, s->gathered_size);
    pthread_mutex_unlock(&s->lock);
    return status;
}

int store_rank(const Store *s, int rank)
{
    return (int)s->state[rank];
}

void store_tell(Store *s, uint32_t epoch)
{
    say(s, WIRE_WAITS, &epoch, sizeof epoch);
}

uint32_t store_told(const Store *s, int rank)
{
    return s->waits[rank];
}

void store_mirror(Store *s, volatile uint32_t *word)
{
    pthread_mutex_lock(&s->lock);
    s->mirror = word;
    for (int r = 0; word && r < s->ranks; r++) {
        word[r] = s->state[r];
        if (s->state[r] && !word[GROUP_RANKS])
            word[GROUP_RANKS] = 1 + (uint32_t)r;
    }
    pthread_mutex_unlock(&s->lock);
}

void store_close(Store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    s->mirror = NULL;
    pthread_mutex_unlock(&s->lock);
    say(s, WIRE_LEFT, NULL, 0);
    shutdown(s->socket, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    store_free(s);
}
