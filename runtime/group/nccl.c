/* Opens libnccl.so.2 once for the process. */
#include "nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static Nccl table;
static char problem[256];

/* dlsym gives an object pointer; POSIX promises that its bytes are a function's address. */
static bool find(void *library, const char *symbol, void *slot)
{
    void *address = dlsym(library, symbol);
    if (!address)
        snprintf(problem, sizeof problem, "NCCL has no %s; update it", symbol);
    memcpy(slot, &address, sizeof address);
    return address != NULL;
}

static void open_nccl(void)
{
    const char *named = getenv("ISO_NCCL"), *name = named ? named : "libnccl.so.2";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(problem, sizeof problem, "%.180s could not be opened; install NCCL or name its "
                                          "file in $ISO_NCCL", name);
        return;
    }
#define X(member, symbol, parameters)                                                              \
    if (!find(library, symbol, &table.member))                                                     \
        return;
    NCCL_LIST(X)
#undef X
    find(library, "ncclGetErrorString", &table.error_string);
}

iso_status nccl_open(const Nccl **nccl)
{
    pthread_once(&once, open_nccl);
    if (problem[0])
        return iso_fail(ISO_UNSUPPORTED, "%s", problem);
    *nccl = &table;
    return ISO_OK;
}

iso_status nccl_check(const Nccl *nccl, NcclResult result, const char *what)
{
    if (result == 0)
        return ISO_OK;
    return iso_fail(ISO_DRIVER, "%s: %s", what, nccl->error_string(result));
}
