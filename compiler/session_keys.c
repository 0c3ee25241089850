/* Block tables and packed starts, written out as a place for each key that a row may see. */
#include "session_keys.h"

typedef struct Stored {
    int sequences;
    i64 positions; /* of the longest */
    i64 *n;        /* keys of each that some row may see */
} Stored;

static const Attend *find_attend(const OpDag *op)
{
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i]->kind == DAG_ATTEND)
            return op->nodes.v[i]->attend;
    return NULL;
}

static void count_keys(const ExecJob *job, const Attend *attend, i64 lo, i64 hi, Stored *out,
                       Arena *arena)
{
    for (i64 row = lo; row < hi; row++)
        if (job->sequences[row] >= out->sequences)
            out->sequences = job->sequences[row] + 1;
    out->n = arena_array(arena, i64, out->sequences + 1);
    for (i64 row = lo; row < hi; row++) {
        int s = job->sequences[row];
        if (s < 0)
            continue;
        i64 n = attend->causal ? (i64)job->positions[row] + 1 : job->lengths[s];
        if (job->lengths && n > job->lengths[s])
            n = job->lengths[s];
        out->n[s] = n > out->n[s] ? n : out->n[s];
        out->positions = n > out->positions ? n : out->positions;
    }
}

/* Strides of the stored axes of sequences and positions; false if the tensor has none. */
static bool stored_strides(const ExecJob *job, const Attend *attend, int param, i64 *by_sequence,
                           i64 *by_position)
{
    const Tensor *tensor = &job->op->op->params[param];
    const u64 stored = (u64)1 << attend->sequence | (u64)1 << attend->position;
    for (int i = 0; i < tensor->n_axes; i++) {
        int atom = job->contract->axes[tensor->axes[i]].atom;
        if (atom == attend->sequence)
            *by_sequence = job->params[param].stride[i];
        if (atom == attend->position)
            *by_position = job->params[param].stride[i];
    }
    return (tensor->mask & stored) == stored;
}

static i64 place_of(const isoc_keys *keys, int sequence, i64 key, i64 by_sequence, i64 by_position)
{
    if (!keys->block_table)
        return (keys->starts[sequence] + key) * by_position;
    i64 page = keys->block_table[sequence * keys->block_table_stride + key / keys->page];
    return page * by_sequence + key % keys->page * by_position;
}

bool session_keys(const isoc_keys *keys, const ExecJob *job, i64 lo, i64 hi, ExecTensor *params,
                  Arena *arena)
{
    const Attend *attend = find_attend(job->op);
    Stored stored = {0};
    if (!attend || (!keys->block_table && !keys->starts))
        return true;
    bool pages = !keys->block_table || (keys->page > 0 && !keys->starts);
    if (!pages || (!attend->causal && !job->lengths))
        return false;
    count_keys(job, attend, lo, hi, &stored, arena);
    for (int p = 0; p < job->op->op->n_params; p++) {
        i64 by_sequence = 0, by_position = 0;
        if (!stored_strides(job, attend, p, &by_sequence, &by_position))
            continue;
        i64 *place = arena_array(arena, i64, stored.sequences * stored.positions + 1);
        for (int s = 0; s < stored.sequences; s++)
            for (i64 key = 0; key < stored.n[s]; key++)
                place[s * stored.positions + key] =
                    place_of(keys, s, key, by_sequence, by_position);
        params[p].place = place;
        params[p].positions = stored.positions;
    }
    return true;
}
