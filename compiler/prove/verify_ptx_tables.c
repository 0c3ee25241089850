/* Tokens' positions and sequences, and the tables that are indexed by them. */
#include "verify_ptx_impl.h"

enum { SEQUENCES = 3 };

void verify_ptx_coordinates(PtxTrial *r)
{
    i64 n = r->part_rows;
    int32_t *position = arena_array(r->arena, int32_t, n + 1);
    int32_t *sequence = arena_array(r->arena, int32_t, n + 1);
    if (r->keys)
        return;
    for (i64 i = 0; i < n; i++) {
        position[i] = (int32_t)((5 * i + 3) % n);
        sequence[i] = (int32_t)(i % SEQUENCES);
    }
    r->position = position;
    r->sequence = sequence;
}

i64 verify_ptx_table(const PtxTrial *r, int tensor, MfCoordinate kind)
{
    int axis = verify_ptx_coordinate_axis(r, tensor, kind);
    return axis < 0 ? 0 : r->tensor[tensor].tensor.shape[axis];
}

void verify_ptx_table_shape(const PtxTrial *r, int index, iso_tensor *shape)
{
    int position = verify_ptx_coordinate_axis(r, index, MF_POSITION);
    int sequence = verify_ptx_coordinate_axis(r, index, MF_SEQUENCE);
    i64 stride = 1;
    if (position >= 0)
        shape->shape[position] = r->part_rows;
    if (sequence >= 0)
        shape->shape[sequence] = SEQUENCES;
    for (int i = shape->n_axes - 1; i >= 0; i--) {
        shape->stride[i] = stride;
        stride *= shape->shape[i];
    }
}

static const int32_t *pass(PtxTrial *r, const char *name, const int32_t *from)
{
    size_t bytes = (size_t)r->part_rows * 4;
    int32_t *to = (int32_t *)(void *)verify_ptx_buffer(&r->place, name, bytes, bytes);
    for (i64 i = 0; to && i < r->part_rows; i++)
        to[i] = from[i];
    return to;
}

bool verify_ptx_pass_coordinates(PtxTrial *r)
{
    r->run.positions = pass(r, "the positions", r->position);
    r->run.sequences = pass(r, "the sequences", r->sequence);
    return !r->place.failed;
}
