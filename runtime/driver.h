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

typedef struct CuTensorMap {
    unsigned long long opaque[16];
} __attribute__((aligned(64))) CuTensorMap;

enum {
    CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    CU_TENSOR_MAP_F16 = 6,
    CU_TENSOR_MAP_BF16 = 9,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_256B = 3,
};

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
    X(module_load, "cuModuleLoadData", (CuModule * module, const void *image))                     \
    X(module_unload, "cuModuleUnload", (CuModule module))                                          \
    X(module_function, "cuModuleGetFunction",                                                      \
      (CuFunction * function, CuModule module, const char *name))                                  \
    X(function_set, "cuFuncSetAttribute", (CuFunction function, int attribute, int value))         \
    X(launch, "cuLaunchKernel",                                                                    \
      (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void **args,    \
       void **extra))                                                                              \
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
/* Makes sure that the thread has a current context: its own, else device 0's primary one. */
iso_status driver_context(const Driver *driver, CuDevice *device);

#endif
