/* The CUDA driver, opened at run time: the few entry points that libiso calls.
 * Ownership: the library stays open for the life of the process; contexts and modules belong to
 * whoever made them. Types and values follow the CUDA driver API's documentation. */
#ifndef ISO_DRIVER_H
#define ISO_DRIVER_H

#include "error.h"

typedef int CuResult;
typedef int CuDevice;
typedef struct CuContextStruct *CuContext;
typedef struct CuModuleStruct *CuModule;
typedef struct CuFunctionStruct *CuFunction;
typedef struct CuStreamStruct *CuStream;
typedef struct CuGraphStruct *CuGraph;
typedef struct CuGraphExecStruct *CuGraphExec;

typedef unsigned long long CuAddress;

typedef struct CuIpcHandle {
    char opaque[64];
} CuIpcHandle;

typedef unsigned long long CuMemory;

typedef struct CuLocation {
    int type, id;
} CuLocation;

/* CUmemAllocationProp. */
typedef struct CuMemoryKind {
    int type, handles;
    CuLocation where;
    void *unused;
    unsigned char flags[8];
} CuMemoryKind;

typedef struct CuMemoryAccess {
    CuLocation where;
    int access;
} CuMemoryAccess;

/* CUDA_MEMCPY2D; arrays are not used. */
typedef struct CuCopy2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    CuAddress from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void *to_host;
    CuAddress to;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
} CuCopy2d;

typedef struct CuTensorMap {
    unsigned long long opaque[16];
} __attribute__((aligned(64))) CuTensorMap;

enum {
    CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_ATTRIBUTE_FILE_HANDLES = 103,
    CU_MEMORY_PINNED = 1,
    CU_HANDLE_FILE = 1,
    CU_LOCATION_DEVICE = 1,
    CU_ACCESS_READ_WRITE = 3,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    CU_LAUNCH_STREAM_SERIALIZATION = 6,
    CU_TENSOR_MAP_F16 = 6,
    CU_TENSOR_MAP_BF16 = 9,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_128B = 2,
    CU_TENSOR_MAP_L2_256B = 3,
    CU_MEMORY_DEVICE = 2,
    CU_IPC_LAZY_PEER_ACCESS = 1,
    CU_HOST_PORTABLE = 1,
    CU_HOST_MAPPED = 2,
    CU_CAPTURE_NONE = 0,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_STREAM_NON_BLOCKING = 1,
};

/* One attribute, CUlaunchAttribute: its id, then a value of 64 bytes of which one is used here. */
typedef struct CuLaunchAttribute {
    int id, pad;
    union {
        char all[64];
        int number;
    } value;
} CuLaunchAttribute;

typedef struct CuLaunchConfig {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CuStream stream;
    CuLaunchAttribute *attributes;
    unsigned n_attributes;
} CuLaunchConfig;

/* X(member, symbol, parameters) */
#define DRIVER_LIST(X)                                                                             \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_string, "cuGetErrorString", (CuResult result, const char **text))                      \
    X(device_get, "cuDeviceGet", (CuDevice * device, int ordinal))                                 \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CuDevice device))      \
    X(primary_retain, "cuDevicePrimaryCtxRetain", (CuContext * context, CuDevice device))          \
    X(context_get, "cuCtxGetCurrent", (CuContext * context))                                       \
    X(context_set, "cuCtxSetCurrent", (CuContext context))                                         \
    X(context_device, "cuCtxGetDevice", (CuDevice * device))                                       \
    X(context_sync, "cuCtxSynchronize", (void))                                                    \
    X(module_load, "cuModuleLoadData", (CuModule * module, const void *image))                     \
    X(module_unload, "cuModuleUnload", (CuModule module))                                          \
    X(module_function, "cuModuleGetFunction",                                                      \
      (CuFunction * function, CuModule module, const char *name))                                  \
    X(function_set, "cuFuncSetAttribute", (CuFunction function, int attribute, int value))         \
    X(launch, "cuLaunchKernel",                                                                    \
      (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void **args,    \
       void **extra))                                                                              \
    X(memory_new, "cuMemAlloc_v2", (CuAddress * address, size_t bytes))                            \
    X(memory_free, "cuMemFree_v2", (CuAddress address))                                            \
    X(memory_set, "cuMemsetD8_v2", (CuAddress address, unsigned char value, size_t bytes))         \
    X(memory_write, "cuMemcpyHtoD_v2", (CuAddress to, const void *from, size_t bytes))             \
    X(memory_read, "cuMemcpyDtoH_v2", (void *to, CuAddress from, size_t bytes))                    \
    X(stream_new, "cuStreamCreate", (CuStream * stream, unsigned flags))                           \
    X(stream_free, "cuStreamDestroy_v2", (CuStream stream))                                        \
    X(stream_sync, "cuStreamSynchronize", (CuStream stream))                                       \
    X(capture_begin, "cuStreamBeginCapture_v2", (CuStream stream, int mode))                       \
    X(capture_end, "cuStreamEndCapture", (CuStream stream, CuGraph *graph))                        \
    X(graph_new, "cuGraphInstantiateWithFlags",                                                    \
      (CuGraphExec * exec, CuGraph graph, unsigned long long flags))                               \
    X(graph_launch, "cuGraphLaunch", (CuGraphExec exec, CuStream stream))                          \
    X(graph_free, "cuGraphDestroy", (CuGraph graph))                                               \
    X(graph_exec_free, "cuGraphExecDestroy", (CuGraphExec exec))                                   \
    X(host_new, "cuMemHostAlloc", (void **memory, size_t bytes, unsigned flags))                   \
    X(host_free, "cuMemFreeHost", (void *memory))                                                  \
    X(host_address, "cuMemHostGetDevicePointer_v2",                                                \
      (CuAddress * address, void *memory, unsigned flags))                                         \
    X(memory_grain, "cuMemGetAllocationGranularity",                                               \
      (size_t * grain, const CuMemoryKind *kind, int option))                                      \
    X(memory_create, "cuMemCreate",                                                                \
      (CuMemory * memory, size_t bytes, const CuMemoryKind *kind, unsigned long long flags))       \
    X(memory_release, "cuMemRelease", (CuMemory memory))                                           \
    X(memory_export, "cuMemExportToShareableHandle",                                               \
      (void *handle, CuMemory memory, int type, unsigned long long flags))                         \
    X(memory_import, "cuMemImportFromShareableHandle",                                             \
      (CuMemory * memory, void *handle, int type))                                                 \
    X(address_reserve, "cuMemAddressReserve",                                                      \
      (CuAddress * address, size_t bytes, size_t alignment, CuAddress wanted,                      \
       unsigned long long flags))                                                                  \
    X(address_free, "cuMemAddressFree", (CuAddress address, size_t bytes))                         \
    X(memory_map, "cuMemMap",                                                                      \
      (CuAddress address, size_t bytes, size_t offset, CuMemory memory,                            \
       unsigned long long flags))                                                                  \
    X(memory_unmap, "cuMemUnmap", (CuAddress address, size_t bytes))                               \
    X(memory_access, "cuMemSetAccess",                                                             \
      (CuAddress address, size_t bytes, const CuMemoryAccess *access, size_t n))                   \
    X(ipc_get, "cuIpcGetMemHandle", (CuIpcHandle * handle, CuAddress address))                     \
    X(ipc_open, "cuIpcOpenMemHandle_v2",                                                           \
      (CuAddress * address, CuIpcHandle handle, unsigned flags))                                   \
    X(ipc_close, "cuIpcCloseMemHandle", (CuAddress address))                                       \
    X(copy_async, "cuMemcpyAsync",                                                                 \
      (CuAddress to, CuAddress from, size_t bytes, CuStream stream))                               \
    X(copy_2d_async, "cuMemcpy2DAsync_v2", (const CuCopy2d *copy, CuStream stream))                \
    X(capture_info, "cuStreamGetCaptureInfo_v2",                                                   \
      (CuStream stream, int *status, unsigned long long *id, void **graph, void **dependencies,    \
       size_t *n))                                                                                 \
    X(launch_config, "cuLaunchKernelEx",                                                           \
      (const CuLaunchConfig *config, CuFunction function, void **args, void **extra))              \
    X(memset_async, "cuMemsetD8Async",                                                             \
      (unsigned long long address, unsigned char value, size_t bytes, CuStream stream))            \
    X(tensor_map, "cuTensorMapEncodeTiled",                                                        \
      (CuTensorMap * map, int type, unsigned rank, void *address,                                  \
       const unsigned long long *dims, const unsigned long long *strides, const unsigned *box,     \
       const unsigned *element_strides, int interleave, int swizzle, int l2_promotion,             \
       int oob_fill))

typedef struct Driver {
#define X(member, symbol, parameters) CuResult(*member) parameters;
    DRIVER_LIST(X)
#undef X
} Driver;

/* The driver, initialised; ISO_DRIVER with what is missing otherwise. Safe from several threads. */
iso_status driver_open(const Driver **driver);
/* ISO_DRIVER with the driver's own words, or ISO_OK. `what` names the call. */
iso_status driver_check(const Driver *driver, CuResult result, const char *what);
/* Bytes of the device that are written, or zero, when the call returns. The driver's own calls come
 * back earlier where the host's memory is pageable, and streams that do not wait for the default
 * one then overtake them. */
iso_status driver_write(const Driver *driver, CuAddress to, const void *from, size_t bytes);
iso_status driver_zero(const Driver *driver, CuAddress to, size_t bytes);
/* Makes sure that the thread has a current context: its own, else device 0's primary one. */
iso_status driver_context(const Driver *driver, CuDevice *device);

#endif
