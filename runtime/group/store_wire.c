/* Messages over stream sockets, and the addresses that a bootstrap names. */
#include "store_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- messages ---- */

static bool send_bytes(int socket, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t n = send(socket, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool wire_send(int socket, WireKind kind, int rank, const void *data, size_t size)
{
    WireHead head = {WIRE_MAGIC, kind, rank, (uint32_t)size};
    return send_bytes(socket, &head, sizeof head) && (!data || send_bytes(socket, data, size));
}

bool wire_read(int socket, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        ssize_t n = recv(socket, at, size, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool wire_read_head(int socket, WireHead *head)
{
    return wire_read(socket, head, sizeof *head) && head->magic == WIRE_MAGIC &&
           head->size <= WIRE_MOST;
}

/* ---- addresses ---- */

typedef struct Address {
    int family;
    struct sockaddr_storage at;
    socklen_t size;
} Address;

static iso_status file_address(const char *folder, Address *address)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    if (!strncmp(folder, "//", 2))
        folder += 2;
    int n = snprintf(local.sun_path, sizeof local.sun_path, "%s/iso-group", folder);
    if (n < 0 || (size_t)n >= sizeof local.sun_path)
        return iso_fail(ISO_BOOTSTRAP, "the folder's name is too long: %s", folder);
    address->family = AF_UNIX;
    address->size = sizeof local;
    memcpy(&address->at, &local, sizeof local);
    return ISO_OK;
}

static iso_status tcp_address(const char *host, const char *port, Address *address)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return iso_fail(ISO_BOOTSTRAP, "%s port %s: %s", host, port, gai_strerror(failed));
    address->family = found->ai_family;
    address->size = found->ai_addrlen;
    memcpy(&address->at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return ISO_OK;
}

static iso_status url_address(const char *url, Address *address)
{
    char host[256];
    const char *colon = strrchr(url, ':');
    if (!colon || colon == url || (size_t)(colon - url) >= sizeof host)
        return iso_fail(ISO_BOOTSTRAP, "tcp://%s is not tcp://HOST:PORT", url);
    memcpy(host, url, (size_t)(colon - url));
    host[colon - url] = 0;
    return tcp_address(host, colon + 1, address);
}

static iso_status environment_address(Address *address)
{
    const char *host = getenv("MASTER_ADDR"), *base = getenv("MASTER_PORT");
    const char *own = getenv("ISO_GROUP_PORT");
    char port[16];
    if (!host || (!base && !own))
        return iso_fail(ISO_BOOTSTRAP, "$MASTER_ADDR and $MASTER_PORT are not set; start the ranks "
                                       "with torchrun or give a bootstrap");
    snprintf(port, sizeof port, "%d", own ? atoi(own) : atoi(base) + 1);
    return tcp_address(host, port, address);
}

static iso_status read_address(const char *where, Address *address)
{
    memset(address, 0, sizeof *address);
    if (!where)
        return environment_address(address);
    if (!strncmp(where, "file:", 5))
        return file_address(where + 5, address);
    if (!strncmp(where, "tcp://", 6))
        return url_address(where + 6, address);
    return iso_fail(ISO_BOOTSTRAP, "%s is neither tcp://HOST:PORT nor file:FOLDER", where);
}

/* ---- sockets ---- */

/* Listening on every interface: what a host calls itself may not be what the others reach. */
static void any_interface(Address *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (address->family == AF_INET) {
        memcpy(&four, &address->at, sizeof four);
        four.sin_addr.s_addr = htonl(INADDR_ANY);
        memcpy(&address->at, &four, sizeof four);
    } else if (address->family == AF_INET6) {
        memcpy(&six, &address->at, sizeof six);
        six.sin6_addr = in6addr_any;
        memcpy(&address->at, &six, sizeof six);
    }
}

int wire_listen(const char *where, char *file)
{
    Address address;
    int on = 1;
    file[0] = 0;
    if (read_address(where, &address))
        return -1;
    if (address.family == AF_UNIX) {
        struct sockaddr_un local;
        memcpy(&local, &address.at, sizeof local);
        unlink(local.sun_path); /* of an earlier run that died */
        memcpy(file, local.sun_path, sizeof local.sun_path);
    } else {
        any_interface(&address);
    }
    int listener = socket(address.family, SOCK_STREAM, 0);
    if (listener >= 0 && address.family != AF_UNIX)
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener >= 0 && !bind(listener, (struct sockaddr *)&address.at, address.size) &&
        !listen(listener, GROUP_RANKS))
        return listener;
    iso_fail(ISO_BOOTSTRAP, "rank 0 cannot listen at %s: %s",
             where ? where : "$MASTER_ADDR's port", strerror(errno));
    if (listener >= 0)
        close(listener);
    return -1;
}

int wire_listen_anywhere(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof any;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener > 0 && !bind(listener, (struct sockaddr *)&any, sizeof any) &&
        !listen(listener, GROUP_RANKS) &&
        !getsockname(listener, (struct sockaddr *)&any, &size)) {
        *port = ntohs(any.sin_port);
        return listener;
    }
    iso_fail(ISO_BOOTSTRAP, "rank 0 cannot listen: %s", strerror(errno));
    if (listener > 0)
        close(listener);
    return 0;
}

void wire_own_address(char *text, size_t size)
{
    struct ifaddrs *all = NULL;
    snprintf(text, size, "127.0.0.1");
    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct sockaddr_in four;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&four, i->ifa_addr, sizeof four);
        if (ntohl(four.sin_addr.s_addr) >> 24 != 127 &&
            inet_ntop(AF_INET, &four.sin_addr, text, (socklen_t)size))
            break;
    }
    freeifaddrs(all);
}

int wire_connect(const char *where, double deadline)
{
    Address address;
    int on = 1;
    if (read_address(where, &address))
        return -1;
    for (;;) {
        int joined = socket(address.family, SOCK_STREAM, 0);
        if (joined >= 0 && !connect(joined, (struct sockaddr *)&address.at, address.size)) {
            if (address.family != AF_UNIX)
                setsockopt(joined, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return joined;
        }
        int problem = errno;
        if (joined >= 0)
            close(joined);
        if (clock_seconds() > deadline) {
            iso_fail(ISO_BOOTSTRAP, "rank 0 does not answer at %s: %s",
                     where ? where : "$MASTER_ADDR's port", strerror(problem));
            return -1;
        }
        poll(NULL, 0, 20);
    }
}
