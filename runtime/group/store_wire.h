/* What a store's client and server say to each other, and how addresses are read.
 * Ownership: sockets are the caller's. */
#ifndef ISO_STORE_WIRE_H
#define ISO_STORE_WIRE_H

#include "store.h"

enum {
    WIRE_MAGIC = 0x49534f32, /* "ISO2" */
    WIRE_MOST = 1 << 20,     /* bytes of one message */
};

typedef enum WireKind {
    WIRE_HELLO = 1, /* rank; size: how many ranks it counts */
    WIRE_READY,     /* to all: every rank is here */
    WIRE_ABSENT,    /* to all: rank did not come */
    WIRE_TWICE,     /* to one: its rank is taken, or it counts other ranks */
    WIRE_GATHER,    /* size bytes follow; back to all: those of every rank */
    WIRE_UNEQUAL,   /* to all: rank gathers another size */
    WIRE_DIED,      /* to all: rank */
    WIRE_LEFT,      /* from and to all: rank */
    WIRE_WAITS,     /* from and to all: rank; the epoch follows */
} WireKind;

typedef struct WireHead {
    uint32_t magic, kind;
    int32_t rank;
    uint32_t size;
} WireHead;

bool wire_send(int socket, WireKind kind, int rank, const void *data, size_t size);
/* False at the stream's end and on anything that is no message. */
bool wire_read(int socket, void *data, size_t size);
bool wire_read_head(int socket, WireHead *head);

/* A listening socket, or one connected before the deadline; -1 with iso_fail's text. A socket file
 * is written to `file` (size 108) and is the caller's to remove; "" for TCP. */
int wire_listen(const char *where, char *file);
int wire_connect(const char *where, double deadline);

/* The same at a port that is free; 0 on failure. */
int wire_listen_anywhere(int *port);
/* The numeric address of the first network interface, else of the loopback. */
void wire_own_address(char *text, size_t size);

/* The server: runs in a thread of its own until every rank has gone or it is told to stop. */
typedef struct Server Server;
iso_status server_start(Server **server, const StoreConfig *config);
void server_stop(Server *server);

#endif
