/* What attention by wgmma takes beside the arguments: tensor maps of queries, keys and values. */
#include "launch.h"

#include <string.h>

enum { MAP_DIMS = 4, PANEL = 64, BLOCK = 128, LEAST_PIECE = 8 };
enum { ALIGNED = 16, ELEMENT = 2 }; /* bytes */
#define MOST_STRIDE ((int64_t)1 << 40)

/* Dimensions 1 and up of a map, innermost first; one of size 1 has any stride. */
typedef struct Stored {
    int64_t size[MAP_DIMS - 1], stride[MAP_DIMS - 1]; /* elements */
} Stored;

/* Keys that lie together wherever a block's parts begin. */
static int piece_of(const iso_keys *keys)
{
    int piece = BLOCK;
    while (keys && keys->block_table && keys->page > 0 && keys->page % piece)
        piece /= 2;
    return piece;
}

static Stored stored_keys(const Launch *launch, int binding, int64_t heads)
{
    int tensor = launch->spec->bindings[binding].tensor;
    const iso_tensor *t = &launch->tensors[tensor];
    int position = attend_stored_axis(launch, tensor, MF_POSITION);
    int sequence = attend_stored_axis(launch, tensor, MF_SEQUENCE);
    Stored s = {{heads, 1, 1}, {0, 0, 0}};
    if (position >= 0)
        s.size[1] = t->shape[position], s.stride[1] = t->stride[position];
    if (sequence >= 0)
        s.size[2] = t->shape[sequence], s.stride[2] = t->stride[sequence];
    return s;
}

static Stored of_queries(const IsoAttendArgs *args)
{
    return (Stored){{args->group, args->heads, args->rows},
                    {args->q.stride[2], args->q.stride[1], args->q.stride[0]}};
}

static Stored of_keys(const Launch *launch, const IsoAttendArgs *args)
{
    Stored s = stored_keys(launch, launch->spec->attend.keys, args->heads);
    s.stride[0] = args->k.stride[1];
    return s;
}

/* Values may be the same for all heads. */
static Stored of_values(const Launch *launch, const IsoAttendArgs *args)
{
    Stored s = stored_keys(launch, launch->spec->attend.values,
                           args->v.stride[1] ? args->heads : 1);
    s.stride[0] = args->v.stride[1];
    return s;
}

static bool stored_fits(const Stored *s)
{
    for (int d = 0; d < MAP_DIMS - 1; d++)
        if (s->size[d] <= 0 || s->size[d] > INT32_MAX ||
            (s->size[d] > 1 && (s->stride[d] <= 0 || s->stride[d] * ELEMENT >= MOST_STRIDE)))
            return false;
    return true;
}

bool attend_maps_fit(const Launch *launch, const IsoAttendArgs *args)
{
    Stored q = of_queries(args), k = of_keys(launch, args), v = of_values(launch, args);
    return piece_of(launch->run->keys) >= LEAST_PIECE && stored_fits(&q) && stored_fits(&k) &&
           stored_fits(&v);
}

static iso_status encode(const Launch *launch, int binding, const IsoView *view, int64_t elements,
                         const Stored *s, const unsigned box[MAP_DIMS], IsoTensorMap *out)
{
    const Driver *driver = launch->op->module->driver;
    const MfTensor *t = &launch->op->op->tensors[launch->spec->bindings[binding].tensor];
    unsigned long long dims[MAP_DIMS] = {(unsigned long long)elements}, strides[MAP_DIMS - 1];
    unsigned ones[MAP_DIMS] = {1, 1, 1, 1};
    for (int d = 0; d < MAP_DIMS - 1; d++) {
        dims[d + 1] = (unsigned long long)s->size[d];
        strides[d] = s->size[d] > 1 ? (unsigned long long)(s->stride[d] * ELEMENT) : ALIGNED;
    }
    CuTensorMap map;
    CuResult result = driver->tensor_map(
        &map, t->dtype == ISO_F16 ? CU_TENSOR_MAP_F16 : CU_TENSOR_MAP_BF16, MAP_DIMS, view->ptr,
        dims, strides, box, ones, 0, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_256B, 0);
    memcpy(out, &map, sizeof map);
    return driver_check(driver, result, "cuTensorMapEncodeTiled");
}

iso_status attend_maps(const Launch *launch, IsoAttendArgs *args, int64_t depth, int64_t width,
                       IsoAttendMaps *maps)
{
    const MfAttend *a = &launch->spec->attend;
    Stored q = of_queries(args), k = of_keys(launch, args), v = of_values(launch, args);
    args->piece = piece_of(launch->run->keys);
    const unsigned tile[] = {PANEL, (unsigned)args->tile_group, 1, (unsigned)args->tile_tokens};
    const unsigned piece[] = {PANEL, 1, (unsigned)args->piece, 1};
    iso_status status = encode(launch, a->queries, &args->q, depth, &q, tile, &maps->q);
    if (!status)
        status = encode(launch, a->keys, &args->k, depth, &k, piece, &maps->k);
    return status ? status : encode(launch, a->values, &args->v, width, &v, piece, &maps->v);
}
