/* The driver's entry points, each in terms of the PTX machine. */
#include "machine.h"

#include <string.h>

typedef struct Function {
    Machine *machine;
    const PtxKernel *kernel;
} Function;

enum { FINDING = 1, ABSENT = 2 };

static CuResult machine_init(unsigned flags)
{
    (void)flags;
    return 0;
}

static CuResult machine_error(CuResult result, const char **text)
{
    *text = result == FINDING ? "the PTX machine stopped with a finding"
                              : "the PTX machine has no such thing";
    return 0;
}

static CuResult machine_device(CuDevice *device, int ordinal)
{
    *device = 0;
    return ordinal == 0 ? 0 : ABSENT;
}

static CuResult machine_attribute(int *value, int attribute, CuDevice device)
{
    (void)device;
    *value = attribute == CU_ATTRIBUTE_MAJOR   ? 9
             : attribute == CU_ATTRIBUTE_MINOR ? 0
                                               : MACHINE_MULTIPROCESSORS;
    return 0;
}

static CuResult machine_retain(CuContext *context, CuDevice device)
{
    (void)device;
    *context = NULL;
    return 0;
}

static CuResult machine_context(CuContext *context)
{
    *context = NULL;
    return 0;
}

static CuResult machine_set_context(CuContext context)
{
    (void)context;
    return 0;
}

static CuResult machine_context_device(CuDevice *device)
{
    *device = 0;
    return 0;
}

/* A module comes from its maker, not from bytes. */
static CuResult machine_load(CuModule *module, const void *image)
{
    (void)image;
    *module = NULL;
    return ABSENT;
}

static CuResult machine_unload(CuModule module)
{
    (void)module;
    return 0;
}

static CuResult machine_function(CuFunction *function, CuModule module, const char *name)
{
    Machine *m = (Machine *)(void *)module;
    Function *f = arena_new_of(m->arena, Function);
    *f = (Function){m, ptx_find(m->ptx, str_of(name))};
    *function = (CuFunction)(void *)f;
    return f->kernel ? 0 : ABSENT;
}

static CuResult machine_function_set(CuFunction function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return 0;
}

/* A launch has waited for all that the one before stored. */
static void forget_writers(const PtxMemory *memory)
{
    for (int i = 0; i < memory->regions.n; i++) {
        const PtxRegion *r = &memory->regions.v[i];
        if (r->writer)
            memset(r->writer, 0, r->size * 2);
    }
}

static CuResult machine_launch(const CuLaunchConfig *config, CuFunction function, void **args,
                               void **extra)
{
    Function *f = (Function *)(void *)function;
    Machine *m = f->machine;
    bool it = str_eq(f->kernel->name, m->wanted_of);
    u8 *covered = m->report.covered;
    PtxLaunch launch = {
        .kernel = f->kernel,
        .grid = {config->grid_x, config->grid_y, config->grid_z},
        .block = {config->block_x, config->block_y, config->block_z},
        .shared_bytes = config->shared_bytes,
        .params = (const void *const *)args,
        .memory = m->memory,
        .numerics = m->numerics,
        .seed = m->seed,
        .terms = m->terms,
        .tests = m->tests,
        .choices = m->choices,
        .limit = m->limit,
        .early = m->early,
        .copy_turns = m->copy_turns,
        .wanted = it ? m->wanted : NULL,
        .wanted_self = m->wanted_self,
    };
    (void)extra;
    m->grid = (u64)config->grid_x * config->grid_y * config->grid_z;
    m->report.covered = it ? covered : NULL;
    bool ran = ptx_run(&launch, &m->report);
    m->report.covered = covered;
    forget_writers(m->memory);
    return ran ? 0 : FINDING;
}

static CuResult machine_tensor_map(CuTensorMap *map, int type, unsigned rank, void *address,
                                   const unsigned long long *dims,
                                   const unsigned long long *strides, const unsigned *box,
                                   const unsigned *element_strides, int interleave, int swizzle,
                                   int l2_promotion, int oob_fill)
{
    u64 wide_dims[PTX_MAP_DIMS], wide_strides[PTX_MAP_DIMS - 1];
    (void)l2_promotion;
    if ((type != CU_TENSOR_MAP_F16 && type != CU_TENSOR_MAP_BF16) || rank < 3 ||
        rank > PTX_MAP_DIMS || interleave || oob_fill || swizzle != CU_TENSOR_MAP_SWIZZLE_128B)
        return ABSENT;
    for (unsigned d = 0; d < rank; d++) {
        wide_dims[d] = dims[d];
        if (d + 1 < rank)
            wide_strides[d] = strides[d];
        if (element_strides[d] != 1 || dims[d] == 0 || dims[d] > UINT32_MAX || box[d] > 256)
            return ABSENT;
    }
    ptx_encode_map((PtxTensorMap *)(void *)map, (u64)(uintptr_t)address, 2, rank, wide_dims,
                   wide_strides, box, PTX_SWIZZLE_128B);
    return 0;
}

const Driver *machine_driver(void)
{
    static const Driver driver = {
        .init = machine_init,
        .error_string = machine_error,
        .device_get = machine_device,
        .device_attribute = machine_attribute,
        .primary_retain = machine_retain,
        .context_get = machine_context,
        .context_set = machine_set_context,
        .context_device = machine_context_device,
        .module_load = machine_load,
        .module_unload = machine_unload,
        .module_function = machine_function,
        .function_set = machine_function_set,
        .launch_config = machine_launch,
        .tensor_map = machine_tensor_map,
    };
    return &driver;
}
