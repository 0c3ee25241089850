/* What the GPU suite needs of the driver beyond libiso, and its own small kernels.
 * Ownership: gpu_open's context and module live for the process; the caller frees buffers. */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t DevicePtr;

/* Each ends the program with the driver's words if the call fails: a test that cannot run fails. */
void gpu_open(void);
void gpu_open_device(int ordinal);
/* Another thread of the process: a stream of its own, which its calls below go to. */
void gpu_open_thread(void);
void gpu_close_thread(void);
DevicePtr gpu_alloc(size_t bytes);
void gpu_free(DevicePtr buffer);
void gpu_set(DevicePtr buffer, int byte, size_t bytes);
void gpu_read(void *to, DevicePtr from, size_t bytes);
void gpu_write(DevicePtr to, const void *from, size_t bytes);
void gpu_sync(void);
void *gpu_stream(void);
const char *gpu_name(void);
int gpu_driver_version(void);

void gpu_fill_bf16(DevicePtr out, int64_t rows, int64_t columns, int kind, unsigned seed,
                   unsigned shift);
/* Indices of rows from `shift` on (values.cuh). */
void gpu_fill_indices(DevicePtr out, int64_t n, unsigned seed, unsigned shift);
/* Elements of two bytes that differ; *first is the least index of one. */
uint64_t gpu_compare(DevicePtr a, DevicePtr b, size_t bytes, uint64_t *first);

/* The same over several comparisons, in the stream's order. */
void gpu_compare_begin(void);
void gpu_compare_more(DevicePtr a, DevicePtr b, size_t bytes);
uint64_t gpu_compare_end(uint64_t *first);

/* g = bf16(silu(g)) * u, in bf16. */
void gpu_gate(DevicePtr g, DevicePtr u, int64_t n);

/* Normal random bf16 with mean 0. */
void gpu_fill_normal(DevicePtr out, size_t elements, unsigned seed, float deviation);
/* Copies within the device, in the stream. */
void gpu_copy(DevicePtr to, DevicePtr from, size_t bytes);

/* Records `work` under stream capture; a replay waits for its end and returns its milliseconds. */
void *gpu_record(void (*work)(void *user, void *stream), void *user);
float gpu_replay(void *graph);
void gpu_forget(void *graph);

/* Compiles CUDA text, which may include the embedded device files, and finds a kernel in it. */
void *gpu_kernel(const char *text, const char *name);
void gpu_launch(void *kernel, const unsigned grid[3], unsigned block, unsigned shared_bytes,
                void **parameters);
/* A tensor map of a contiguous [rows][length] bf16 matrix, of one leaf: boxes of 64 x box_rows, as
 * the product kernels take them. */
void gpu_map_rows(void *map, DevicePtr data, unsigned rows, unsigned length, unsigned box_rows);

/* Runs `work` under stream capture, then replays the graph `times` times; microseconds of each but
 * the first. */
float gpu_graph(void (*work)(void *user, void *stream), void *user, int times);
/* The same for calls that the host makes. */
float gpu_microseconds(void (*work)(void *user, void *stream), void *user, int times);

#endif
