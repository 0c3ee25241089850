/* The store's server: a thread of rank 0's process that gathers records and passes on deaths. */
#include "store_wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct Peer {
    int socket;        /* -1: not yet, or gone */
    bool came, gave;   /* gave: its record of the running gather is in */
    unsigned char *record;
} Peer;

struct Server {
    pthread_t thread;
    int listener;
    unsigned ranks;
    char file[108];
    double timeout;
    int wake[2]; /* a pipe: told to stop */
    size_t record; /* bytes a rank gives in the running gather; 0: none runs */
    Peer peer[GROUP_RANKS];
};

static void tell_all(Server *s, WireKind kind, int rank)
{
    for (int r = 0; r < (int)s->ranks; r++)
        if (s->peer[r].socket >= 0)
            wire_send(s->peer[r].socket, kind, rank, NULL, 0);
}

static void drop(Server *s, int rank, WireKind why)
{
    close(s->peer[rank].socket);
    s->peer[rank].socket = -1;
    tell_all(s, why, rank);
}

/* ---- meeting ---- */

/* A client that says nothing must not keep the server, a stranger least of all. */
static void limit_waits(int client, double seconds)
{
    time_t whole = (time_t)seconds;
    struct timeval wait = {whole, (suseconds_t)((seconds - (double)whole) * 1e6)};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

static bool admit(Server *s)
{
    WireHead hello;
    int client = accept(s->listener, NULL, NULL);
    if (client < 0)
        return false;
    limit_waits(client, s->timeout < 2 ? s->timeout : 2);
    if (!wire_read_head(client, &hello) || hello.kind != WIRE_HELLO || hello.rank < 0) {
        close(client);
        return false;
    }
    if (hello.size != s->ranks || hello.rank >= (int)s->ranks || s->peer[hello.rank].came) {
        wire_send(client, WIRE_TWICE, hello.rank, NULL, 0);
        close(client);
        return false;
    }
    limit_waits(client, s->timeout);
    s->peer[hello.rank] = (Peer){.socket = client, .came = true};
    return true;
}

static int absent(const Server *s)
{
    for (int r = 0; r < (int)s->ranks; r++)
        if (!s->peer[r].came)
            return r;
    return -1;
}

/* Before any rank goes on: the next group may meet at the same place at once. */
static void stop_listening(Server *s)
{
    if (s->listener < 0)
        return;
    close(s->listener);
    s->listener = -1;
    if (s->file[0])
        unlink(s->file);
}

static bool meet(Server *s)
{
    double deadline = clock_seconds() + s->timeout;
    while (absent(s) >= 0) {
        double left = deadline - clock_seconds();
        struct pollfd wait[] = {{s->listener, POLLIN, 0}, {s->wake[0], POLLIN, 0}};
        if (left <= 0) {
            tell_all(s, WIRE_ABSENT, absent(s));
            return false;
        }
        if (poll(wait, 2, (int)(left * 1000) + 1) > 0) {
            if (wait[1].revents)
                return false;
            admit(s);
        }
    }
    stop_listening(s);
    tell_all(s, WIRE_READY, 0);
    return true;
}

/* ---- gathers ---- */

static void finish_gather(Server *s)
{
    unsigned char *all = calloc(s->ranks, s->record);
    for (int r = 0; r < (int)s->ranks; r++) {
        if (all && s->peer[r].record)
            memcpy(all + s->record * (size_t)r, s->peer[r].record, s->record);
        free(s->peer[r].record);
        s->peer[r].record = NULL;
        s->peer[r].gave = false;
    }
    for (int r = 0; all && r < (int)s->ranks; r++)
        if (s->peer[r].socket >= 0)
            wire_send(s->peer[r].socket, WIRE_GATHER, r, all, s->record * s->ranks);
    free(all);
    s->record = 0;
}

static void take_record(Server *s, int rank, const WireHead *head)
{
    Peer *peer = &s->peer[rank];
    if (s->record && s->record != head->size)
        tell_all(s, WIRE_UNEQUAL, rank);
    peer->record = malloc(head->size ? head->size : 1);
    if (!peer->record || !wire_read(peer->socket, peer->record, head->size)) {
        drop(s, rank, WIRE_DIED);
        return;
    }
    s->record = head->size;
    peer->gave = true;
    for (int r = 0; r < (int)s->ranks; r++)
        if (!s->peer[r].gave)
            return;
    finish_gather(s);
}

static void pass_on(Server *s, int rank)
{
    uint32_t epoch;
    if (!wire_read(s->peer[rank].socket, &epoch, sizeof epoch)) {
        drop(s, rank, WIRE_DIED);
        return;
    }
    for (int r = 0; r < (int)s->ranks; r++)
        if (s->peer[r].socket >= 0)
            wire_send(s->peer[r].socket, WIRE_WAITS, rank, &epoch, sizeof epoch);
}

static void hear(Server *s, int rank)
{
    WireHead head;
    if (!wire_read_head(s->peer[rank].socket, &head))
        drop(s, rank, WIRE_DIED);
    else if (head.kind == WIRE_LEFT)
        drop(s, rank, WIRE_LEFT);
    else if (head.kind == WIRE_WAITS)
        pass_on(s, rank);
    else if (head.kind == WIRE_GATHER && !s->peer[rank].gave)
        take_record(s, rank, &head);
    else
        drop(s, rank, WIRE_DIED);
}

/* ---- the thread ---- */

static bool hear_any(Server *s, int timeout_ms)
{
    struct pollfd wait[GROUP_RANKS + 1];
    int rank[GROUP_RANKS], n = 0;
    for (int r = 0; r < (int)s->ranks; r++)
        if (s->peer[r].socket >= 0) {
            rank[n] = r;
            wait[n++] = (struct pollfd){s->peer[r].socket, POLLIN, 0};
        }
    wait[n] = (struct pollfd){s->wake[0], POLLIN, 0};
    if (n == 0 || poll(wait, (nfds_t)n + (timeout_ms < 0), timeout_ms) <= 0)
        return false;
    for (int i = 0; i < n; i++)
        if (wait[i].revents)
            hear(s, rank[i]);
    return !wait[n].revents || timeout_ms >= 0;
}

static void *serve(void *user)
{
    Server *s = user;
    if (meet(s)) {
        while (hear_any(s, -1))
            ;
        /* Rank 0 goes; the others, at the same point, are given a moment to say so themselves. */
        double deadline = clock_seconds() + 1;
        while (clock_seconds() < deadline && hear_any(s, 100))
            ;
    }
    for (int r = 0; r < (int)s->ranks; r++) {
        if (s->peer[r].socket >= 0)
            close(s->peer[r].socket);
        free(s->peer[r].record);
    }
    return NULL;
}

iso_status server_start(Server **server, const StoreConfig *config)
{
    Server *s = calloc(1, sizeof *s);
    if (!s)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for the ranks' meeting point");
    s->ranks = (unsigned)config->ranks;
    s->timeout = config->timeout;
    for (int r = 0; r < GROUP_RANKS; r++)
        s->peer[r].socket = -1;
    s->listener = config->listener > 0 ? config->listener : wire_listen(config->where, s->file);
    if (s->listener < 0) {
        free(s);
        return ISO_BOOTSTRAP;
    }
    if (pipe(s->wake) || pthread_create(&s->thread, NULL, serve, s)) {
        stop_listening(s);
        free(s);
        return iso_fail(ISO_OUT_OF_MEMORY, "no thread for the ranks' meeting point");
    }
    *server = s;
    return ISO_OK;
}

void server_stop(Server *s)
{
    if (!s)
        return;
    if (write(s->wake[1], "", 1) == 1)
        pthread_join(s->thread, NULL);
    close(s->wake[0]);
    close(s->wake[1]);
    stop_listening(s);
    free(s);
}
