/* Shares, and the sockets that their files go through. */
#include "share.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- memory ---- */

static CuMemoryKind kind_on(CuDevice device)
{
    return (CuMemoryKind){.type = CU_MEMORY_PINNED,
                          .handles = CU_HANDLE_FILE,
                          .where = {CU_LOCATION_DEVICE, device}};
}

static iso_status map_memory(const Driver *driver, CuDevice device, Share *share)
{
    CuMemoryAccess access = {{CU_LOCATION_DEVICE, device}, CU_ACCESS_READ_WRITE};
    CuAddress address = 0;
    iso_status status = driver_check(
        driver, driver->address_reserve(&address, share->bytes, 0, 0, 0), "cuMemAddressReserve");
    if (status)
        return status;
    status = driver_check(driver, driver->memory_map(address, share->bytes, 0, share->memory, 0),
                          "cuMemMap");
    if (status) {
        driver->address_free(address, share->bytes);
        return status;
    }
    share->address = address;
    return driver_check(driver, driver->memory_access(address, share->bytes, &access, 1),
                        "cuMemSetAccess");
}

static iso_status make_files(const Driver *driver, CuDevice device, Share *share)
{
    CuMemoryKind kind = kind_on(device);
    size_t grain = 0;
    int offered = 0;
    iso_status status = driver_check(
        driver, driver->device_attribute(&offered, CU_ATTRIBUTE_FILE_HANDLES, device),
        "cuDeviceGetAttribute");
    if (!status && !offered)
        status = iso_fail(ISO_UNSUPPORTED, "the driver gives no files for device memory");
    if (!status)
        status = driver_check(driver, driver->memory_grain(&grain, &kind, 0),
                              "cuMemGetAllocationGranularity");
    if (status)
        return status;
    share->bytes = (share->bytes + grain - 1) / grain * grain;
    status = driver_check(driver, driver->memory_create(&share->memory, share->bytes, &kind, 0),
                          "cuMemCreate");
    if (!status)
        status = map_memory(driver, device, share);
    if (!status)
        status = driver_check(
            driver, driver->memory_export(&share->file, share->memory, CU_HANDLE_FILE, 0),
            "cuMemExportToShareableHandle");
    return status;
}

static iso_status make_ipc(const Driver *driver, Share *share)
{
    enum { GRAIN = 2 << 20 }; /* an allocation of its own, which IPC handles are for */
    share->bytes = (share->bytes + GRAIN - 1) / GRAIN * GRAIN;
    iso_status status =
        driver_check(driver, driver->memory_new(&share->address, share->bytes), "cuMemAlloc");
    return status ? status
                  : driver_check(driver, driver->ipc_get(&share->handle, share->address),
                                 "cuIpcGetMemHandle");
}

iso_status share_make(const Driver *driver, CuDevice device, ShareKind kind, size_t bytes,
                      Share *share)
{
    *share = (Share){.kind = kind, .own = true, .bytes = bytes, .file = -1};
    iso_status status =
        kind == SHARE_FILES ? make_files(driver, device, share) : make_ipc(driver, share);
    if (status)
        share_close(driver, share);
    return status;
}

iso_status share_open(const Driver *driver, CuDevice device, const Share *theirs, int file,
                      Share *share)
{
    *share = (Share){.kind = theirs->kind, .bytes = theirs->bytes, .file = -1};
    if (theirs->kind == SHARE_IPC)
        return driver_check(driver,
                            driver->ipc_open(&share->address, theirs->handle,
                                             CU_IPC_LAZY_PEER_ACCESS),
                            "cuIpcOpenMemHandle");
    iso_status status =
        file < 0 ? iso_fail(ISO_UNSUPPORTED, "its file did not come")
                 : driver_check(driver,
                                driver->memory_import(&share->memory, (void *)(intptr_t)file,
                                                      CU_HANDLE_FILE),
                                "cuMemImportFromShareableHandle");
    if (!status)
        status = map_memory(driver, device, share);
    if (status)
        share_close(driver, share);
    return status;
}

void share_close(const Driver *driver, Share *share)
{
    if (share->kind == SHARE_FILES) {
        if (share->address) {
            driver->memory_unmap(share->address, share->bytes);
            driver->address_free(share->address, share->bytes);
        }
        if (share->memory)
            driver->memory_release(share->memory);
        if (share->file >= 0)
            close(share->file);
    } else if (share->address && share->own) {
        driver->memory_free(share->address);
    } else if (share->address) {
        driver->ipc_close(share->address);
    }
    memset(share, 0, sizeof *share);
    share->file = -1;
}

/* ---- files ---- */

/* Names without a file of their own, which Linux has. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

bool post_open(Post *post)
{
    static atomic_uint serial;
    struct sockaddr_un address;
    snprintf(post->name, sizeof post->name, "iso-share-%ld-%u", (long)getpid(),
             atomic_fetch_add(&serial, 1));
    socklen_t size = address_of(post->name, &address);
    post->socket = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (post->socket >= 0 && bind(post->socket, (struct sockaddr *)&address, size) == 0)
        return true;
    post_close(post);
    return false;
}

void post_close(Post *post)
{
    if (post->socket >= 0)
        close(post->socket);
    post->socket = -1;
    post->name[0] = 0;
}

typedef union Control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
} Control;

bool post_send(const Post *post, const char *name, int rank, int file)
{
    struct sockaddr_un address;
    struct iovec data = {&rank, sizeof rank};
    Control control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_name = &address,
                             .msg_namelen = address_of(name, &address),
                             .msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &file, sizeof file);
    return sendmsg(post->socket, &message, MSG_DONTWAIT) == (ssize_t)sizeof rank;
}

static void take_file(const Post *post, int file[GROUP_RANKS])
{
    int rank = -1, got = -1;
    struct iovec data = {&rank, sizeof rank};
    Control control;
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(post->socket, &message, MSG_DONTWAIT);
    struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!head || head->cmsg_type != SCM_RIGHTS)
        return;
    memcpy(&got, CMSG_DATA(head), sizeof got);
    if (n == (ssize_t)sizeof rank && rank >= 0 && rank < GROUP_RANKS && file[rank] < 0)
        file[rank] = got;
    else
        close(got);
}

static bool all_came(const bool wanted[GROUP_RANKS], const int file[GROUP_RANKS])
{
    for (int r = 0; r < GROUP_RANKS; r++)
        if (wanted[r] && file[r] < 0)
            return false;
    return true;
}

void post_receive(const Post *post, const bool wanted[GROUP_RANKS], double deadline,
                  int file[GROUP_RANKS])
{
    while (!all_came(wanted, file) && clock_seconds() < deadline) {
        struct pollfd wait = {post->socket, POLLIN, 0};
        if (poll(&wait, 1, 20) > 0)
            take_file(post, file);
    }
}
