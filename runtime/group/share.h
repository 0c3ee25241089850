/* Device memory that other processes of the host map: by file descriptors, where the driver offers
 * them, or CUDA IPC.
 * Ownership: whoever makes or opens a Share closes it. */
#ifndef ISO_SHARE_H
#define ISO_SHARE_H

#include "store.h"

#include "launch/driver.h"

typedef enum ShareKind { SHARE_FILES, SHARE_IPC, SHARE_KINDS } ShareKind;

typedef struct Share {
    CuAddress address; /* 0: none */
    ShareKind kind;
    bool own; /* made here */
    size_t bytes;
    CuMemory memory; /* SHARE_FILES */
    int file;        /* of an own one, else -1 */
    CuIpcHandle handle;
} Share;

/* Zeroed where a Share of this kind cannot be made here. */
iso_status share_make(const Driver *driver, CuDevice device, ShareKind kind, size_t bytes,
                      Share *share);
/* Another process's: by its file, or its handle. */
iso_status share_open(const Driver *driver, CuDevice device, const Share *theirs, int file,
                      Share *share);
void share_close(const Driver *driver, Share *share);

/* A socket that files come to, by its name on this host. */
typedef struct Post {
    int socket;
    char name[64];
} Post;

bool post_open(Post *post);
void post_close(Post *post);
/* Does not wait; false where there is nobody of that name. */
bool post_send(const Post *post, const char *name, int rank, int file);
/* Files of other ranks into file[rank], which are -1, until all that are `wanted` came or the
 * deadline passed. */
void post_receive(const Post *post, const bool wanted[GROUP_RANKS], double deadline,
                  int file[GROUP_RANKS]);

#endif
