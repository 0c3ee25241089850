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

/* Of the rank's rows; whoever joins splits of keys has those of the rows that it computes. */
static const int32_t *pass(PtxTrial *r, const char *name, const int32_t *from)
{
    i64 lo, hi, own, end;
    const MfPart *part = op_part(r->op, r->job->phase);
    part_rows_of(part, r->rows, &own, &end);
    part_rows_of(op_shares_keys(r->op) ? &r->op->at->parts[r->op->rank] : part, r->rows, &lo, &hi);
    size_t bytes = (size_t)(hi - lo) * 4;
    int32_t *to = (int32_t *)(void *)verify_ptx_buffer(&r->place, name, bytes, bytes);
    for (i64 i = 0; to && i < hi - lo; i++)
        to[i] = from[i + lo - own];
    return to;
}

bool verify_ptx_pass_coordinates(PtxTrial *r)
{
    r->run.positions = pass(r, "the positions", r->position);
    r->run.sequences = pass(r, "the sequences", r->sequence);
    return !r->place.failed;
}
