/* Index spaces of the executor: tiles of them, walks over them, and the scratch stack. */
#include "exec_impl.h"

#include <string.h>

/* ---- dimensions ------------------------------------------------------------------------------ */

ExecDim exec_whole_axis(ExecScratch *scratch, int atom, i64 size)
{
    i64 *list = scratch_array(scratch, i64, size);
    for (i64 i = 0; i < size; i++)
        list[i] = i;
    return (ExecDim){.atom = atom, .n = size, .at = list, .dense = true};
}

ExecDim exec_dim(Arena *arena, const ExecRange *range, int atom, bool list)
{
    ExecDim dim = {.atom = atom, .dense = true};
    if (list && range->list) {
        dim.n = range->n;
        dim.at = range->list;
        for (i64 i = 1; i < dim.n; i++)
            dim.dense &= dim.at[i] == dim.at[0] + i;
        return dim;
    }
    dim.n = range->hi > range->lo ? range->hi - range->lo : 0;
    i64 *at = arena_array(arena, i64, dim.n);
    for (i64 i = 0; i < dim.n; i++)
        at[i] = range->lo + i;
    dim.at = at;
    return dim;
}

i64 exec_space_size(const ExecSpace *space, u64 mask)
{
    i64 size = 1;
    for (int d = 0; d < space->n; d++)
        if (mask >> space->dim[d].atom & 1)
            size *= space->dim[d].n;
    return size;
}

u64 exec_space_atoms(const ExecSpace *space)
{
    u64 atoms = 0;
    for (int d = 0; d < space->n; d++)
        atoms |= (u64)1 << space->dim[d].atom;
    return atoms;
}

i64 exec_strides(const ExecSpace *space, u64 mask, i64 *stride)
{
    i64 size = 1;
    for (int d = space->n - 1; d >= 0; d--) {
        bool in = mask >> space->dim[d].atom & 1;
        stride[d] = in ? size : 0;
        size *= in ? space->dim[d].n : 1;
    }
    return size;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

void exec_tiles_count(const ExecSpace *space, ExecTiles *tiles)
{
    tiles->total = 1;
    for (int d = 0; d < space->n; d++) {
        i64 n = space->dim[d].n, chunk = tiles->chunk[d];
        tiles->count[d] = n ? (n + chunk - 1) / chunk : 0;
        tiles->total *= tiles->count[d];
    }
}

void exec_tiles_fill(const ExecSpace *space, u64 mask, i64 budget, ExecTiles *tiles)
{
    for (int d = space->n - 1; d >= 0; d--) {
        if (!(mask >> space->dim[d].atom & 1))
            continue;
        i64 n = space->dim[d].n ? space->dim[d].n : 1;
        tiles->chunk[d] = n < budget ? n : budget;
        budget /= tiles->chunk[d];
        if (budget < 1)
            budget = 1;
    }
}

u64 exec_tile(const ExecSpace *space, const ExecTiles *tiles, i64 index, ExecSpace *out,
              i64 *first)
{
    u64 partial = 0;
    out->n = space->n;
    for (int d = space->n - 1; d >= 0; d--) {
        ExecDim dim = space->dim[d];
        first[d] = index % tiles->count[d] * tiles->chunk[d];
        index /= tiles->count[d];
        if (tiles->count[d] > 1)
            partial |= (u64)1 << dim.atom;
        i64 left = dim.n - first[d];
        dim.at += first[d];
        dim.n = left < tiles->chunk[d] ? left : tiles->chunk[d];
        out->dim[d] = dim;
    }
    return partial;
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* True if dimension n of the walk and one of this size and strides inside it are one. */
static bool walk_collapses(const ExecWalk *w, int n, i64 size, int d, const i64 *const *strides)
{
    for (int a = 0; a < w->arrays; a++)
        if (w->stride[a][n] != strides[a][d] * size)
            return false;
    return true;
}

void exec_walk(ExecWalk *w, const ExecSpace *space, u64 mask, int arrays,
               const i64 *const *strides)
{
    memset(w, 0, sizeof *w);
    w->arrays = arrays;
    for (int d = 0; d < space->n; d++) {
        i64 size = space->dim[d].n;
        if (!(mask >> space->dim[d].atom & 1) || size == 1)
            continue;
        w->empty |= size == 0;
        bool one = w->n > 0 && walk_collapses(w, w->n - 1, size, d, strides);
        int n = one ? w->n - 1 : w->n++;
        w->size[n] = one ? w->size[n] * size : size;
        for (int a = 0; a < arrays; a++)
            w->stride[a][n] = strides[a][d];
    }
    w->inner = 1;
    if (w->n) {
        w->n--;
        w->inner = w->size[w->n];
        for (int a = 0; a < arrays; a++)
            w->step[a] = w->stride[a][w->n];
    }
}

bool exec_walk_next(ExecWalk *w)
{
    if (!w->started) {
        w->started = true;
        return !w->empty;
    }
    for (int d = w->n - 1; d >= 0; d--) {
        bool wraps = ++w->at[d] == w->size[d];
        for (int a = 0; a < w->arrays; a++)
            w->offset[a] += wraps ? -(w->size[d] - 1) * w->stride[a][d] : w->stride[a][d];
        if (!wraps)
            return true;
        w->at[d] = 0;
    }
    return false;
}

/* ---- scratch --------------------------------------------------------------------------------- */

enum { BLOCK = 1 << 20, ALIGN = 64 };

typedef struct ExecBlock {
    struct ExecBlock *next;
    size_t size;
    u8 *data;
} ExecBlock;

static ExecBlock *block_new(ExecScratch *scratch, size_t size)
{
    ExecBlock *b = arena_new_of(scratch->arena, ExecBlock);
    b->size = size > BLOCK ? size : BLOCK;
    u8 *data = arena_alloc(scratch->arena, b->size + ALIGN);
    b->data = data + (ALIGN - (uintptr_t)data % ALIGN);
    return b;
}

/* Blocks after the current one are free; the first that is large enough is used. */
static void block_enter(ExecScratch *scratch, size_t size)
{
    ExecBlock **link = scratch->block ? &scratch->block->next : &scratch->first;
    ExecBlock **at = link;
    while (*at && (*at)->size < size)
        at = &(*at)->next;
    ExecBlock *b = *at;
    if (b)
        *at = b->next;
    else
        b = block_new(scratch, size);
    b->next = *link;
    *link = b;
    scratch->block = b;
    scratch->used = 0;
}

void *scratch_alloc(ExecScratch *scratch, size_t size)
{
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!scratch->block || scratch->block->size - scratch->used < size)
        block_enter(scratch, size);
    void *p = scratch->block->data + scratch->used;
    scratch->used += size;
    return p;
}

ExecMark scratch_mark(const ExecScratch *scratch)
{
    return (ExecMark){scratch->block, scratch->used};
}

void scratch_release(ExecScratch *scratch, ExecMark mark)
{
    scratch->block = mark.block;
    scratch->used = mark.used;
}
