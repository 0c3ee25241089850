/* Tensors in memory and values: patterns, parameters read and results written by any strides, and
 * at what tensors of indices say. */
#include "exec_impl.h"

#include "device/iso_num.cuh"

#include <string.h>

/* ---- patterns -------------------------------------------------------------------------------- */

/* f16 among f32 patterns: NaN keeps its payload in the upper bits of the f32 fraction. */
static float f16_move(u16 h)
{
    u32 bits = (u32)(h & 0x8000u) << 16 | 0x7F800000u | (u32)(h & 0x3FFu) << 13;
    bool nan = (h & 0x7C00u) == 0x7C00u && h & 0x3FFu;
    return nan ? iso_bits_f32(bits) : iso_f32_of_f16(h);
}

float exec_round(DType type, float x)
{
    switch (type) {
    case DT_BF16:
        return iso_f32_of_bf16(iso_bf16_of_f32(x));
    case DT_F16:
        return f16_move(iso_f16_of_f32(x));
    default:
        return x;
    }
}

float exec_widen(DType type, float x)
{
    return type == DT_F16 ? iso_canon(x) : x;
}

u16 exec_pack(DType type, float x)
{
    u32 bits = iso_f32_bits(x);
    if (type == DT_BF16)
        return (u16)(bits >> 16);
    if (x != x)
        return (u16)((bits >> 16 & 0x8000u) | 0x7C00u | (bits >> 13 & 0x3FFu));
    return iso_f16_of_f32(x);
}

void exec_load(DType type, const void *data, i64 n, i64 step, float *out)
{
    const u16 *half = data;
    const u32 *word = data;
    u32 *bits = (u32 *)(void *)out;
    if (type == DT_BF16)
        for (i64 i = 0; i < n; i++)
            bits[i] = (u32)half[i * step] << 16;
    else if (type == DT_F16)
        for (i64 i = 0; i < n; i++)
            out[i] = f16_move(half[i * step]);
    else
        for (i64 i = 0; i < n; i++)
            bits[i] = word[i * step];
}

void exec_save(DType type, const float *x, i64 n, i64 step, i64 x_step, void *data)
{
    u16 *half = data;
    u32 *word = data;
    if (type == DT_F32)
        for (i64 i = 0; i < n; i++)
            word[i * step] = iso_f32_bits(x[i * x_step]);
    else
        for (i64 i = 0; i < n; i++)
            half[i * step] = exec_pack(type, x[i * x_step]);
}

/* ---- tensors in memory ----------------------------------------------------------------------- */

/* A tensor by the dimensions of a space: element offsets of each index of each dimension. */
typedef struct View {
    i64 base;
    const i64 *offset[MAX_ATOMS]; /* NULL: the tensor has nothing of the dimension */
    bool even[MAX_ATOMS];         /* offsets are at equal steps */
} View;

/* Strides by atom: an axis of factors is its atoms row-major. Gives the axis's size. */
static i64 axis_strides(const Contract *contract, int axis, i64 stride, i64 *by_atom)
{
    const Axis *a = &contract->axes[axis];
    if (a->atom >= 0) {
        by_atom[a->atom] += stride;
        return a->size;
    }
    i64 size = 1;
    for (int f = a->n_factors - 1; f >= 0; f--)
        size *= axis_strides(contract, a->factors[f], stride * size, by_atom);
    return size;
}

void exec_atom_strides(const Contract *contract, const Tensor *tensor, const ExecTensor *memory,
                       i64 *by_atom)
{
    memset(by_atom, 0, sizeof *by_atom * MAX_ATOMS);
    for (int k = 0; k < tensor->n_axes; k++)
        axis_strides(contract, tensor->axes[k], memory->stride[k], by_atom);
}

/* The token's coordinate that `atom` is, or NULL. Sequence comes before position in its axis. */
static const int *coordinate_of(const ExecJob *job, int atom)
{
    const Contract *c = job->contract;
    int axis = c->atom_axis[atom], ragged = c->axes[axis].coordinate_of;
    if (ragged < 0)
        return NULL;
    const Axis *r = &c->axes[ragged];
    return r->factors[r->n_factors - 1] == axis ? job->positions : job->sequences;
}

/* The atom whose dimension decides `atom`'s index. */
static int atom_dim(const Contract *c, int atom)
{
    int ragged = c->axes[c->atom_axis[atom]].coordinate_of;
    return ragged < 0 ? atom : c->axes[ragged].atom;
}

static i64 *no_offsets(ExecScope *scope, const ExecDim *dim)
{
    i64 *offset = scratch_array(scope->scratch, i64, dim->n);
    return memset(offset, 0, sizeof(i64) * (size_t)dim->n);
}

static i64 *dim_offsets(ExecScope *scope, const ExecDim *dim, const i64 *by_atom, u64 mask,
                        bool *even)
{
    const Contract *c = scope->call->job->contract;
    i64 *offset = NULL;
    *even = dim->dense;
    for (int a = 0; a < c->n_atoms; a++) {
        if (!(mask >> a & 1) || atom_dim(c, a) != dim->atom)
            continue;
        if (!offset)
            offset = no_offsets(scope, dim);
        const int *of = coordinate_of(scope->call->job, a);
        *even &= of == NULL;
        for (i64 i = 0; i < dim->n; i++)
            offset[i] += by_atom[a] * (of ? of[dim->at[i]] : dim->at[i]);
    }
    return offset;
}

static void view_tensor(ExecScope *scope, const Tensor *tensor, const ExecTensor *memory,
                        int n_fixes, const Fix *fixes, View *view)
{
    i64 by_atom[MAX_ATOMS];
    u64 mask = tensor->mask;
    exec_atom_strides(scope->call->job->contract, tensor, memory, by_atom);
    view->base = memory->offset;
    for (int f = 0; f < n_fixes; f++) {
        view->base += fixes[f].at < 0 ? 0 : by_atom[fixes[f].atom] * fixes[f].at;
        mask &= ~((u64)1 << fixes[f].atom);
    }
    for (int d = 0; d < scope->space.n; d++)
        view->offset[d] = dim_offsets(scope, &scope->space.dim[d], by_atom, mask, &view->even[d]);
}

/* ---- inputs and results ---------------------------------------------------------------------- */

typedef struct Transfer {
    const ExecScope *scope;
    View view;
    DType type;
    u8 *memory;
    float *values;
    const i64 *stride; /* of the values */
    int last;          /* innermost dimension that is moved */
    bool save;
} Transfer;

static void transfer_run(const Transfer *t, i64 at, i64 n, i64 step, float *x, i64 x_step)
{
    u8 *p = t->memory + at * dtype_bytes(t->type);
    if (t->save)
        exec_save(t->type, x, n, step, x_step, p);
    else
        exec_load(t->type, p, n, step, x);
}

static void transfer(const Transfer *t, int d, i64 at, float *x)
{
    const ExecSpace *space = &t->scope->space;
    while (d < t->last && !t->view.offset[d])
        d++;
    const i64 *offset = d <= t->last ? t->view.offset[d] : NULL;
    if (!offset) {
        transfer_run(t, at, 1, 1, x, 1);
        return;
    }
    i64 n = space->dim[d].n;
    if (d == t->last && t->view.even[d] && n > 0 && (t->save || t->stride[d] == 1)) {
        transfer_run(t, at + offset[0], n, n > 1 ? offset[1] - offset[0] : 1, x, t->stride[d]);
        return;
    }
    for (i64 i = 0; i < n; i++)
        transfer(t, d + 1, at + offset[i], x + i * t->stride[d]);
}

static int last_dim(const ExecSpace *space, const View *view)
{
    int last = -1;
    for (int d = 0; d < space->n; d++)
        if (view->offset[d])
            last = d;
    return last;
}

/* A parameter read at indices that tensors give, or a result of which the box has some slots: one
 * index of the dimensions that those tensors have after another. */
typedef struct Picking {
    ExecScope *scope;
    u64 others; /* atoms of the value that no index depends on */
    Transfer *inner;
    View view;  /* with the dimensions that the inner one lacks */
    int n;
    ExecLookup lookups[MAX_ATOMS];
    const ExecRange *own; /* NULL: the lookups are of what is read; else of the slots to store */
    i64 place[MAX_ATOMS];
} Picking;

/* Slots that stand at another rank's part are not computed here. */
static bool is_here(const ExecLookup *lookup, i64 index)
{
    return index >= 0 &&
           (!lookup->here || (index >= lookup->here->lo && index < lookup->here->hi));
}

/* What an index outside of its axis picks is +0. */
static void clear_others(const Picking *p, float *x)
{
    ExecWalk walk;
    exec_walk(&walk, &p->scope->space, p->others, 1, (const i64 *const[]){p->inner->stride});
    while (exec_walk_next(&walk))
        for (i64 i = 0; i < walk.inner; i++)
            x[walk.offset[0] + i * walk.step[0]] = 0;
}

static void pick_here(Picking *p, i64 at, float *x)
{
    for (int l = 0; l < p->n; l++) {
        i64 index = exec_lookup_at(&p->lookups[l], p->place);
        if (p->own && !slot_is_in(p->own->lo, p->own->hi, index))
            return;
        if (p->own)
            continue;
        if (!is_here(&p->lookups[l], index)) {
            clear_others(p, x);
            return;
        }
        at += index * p->lookups[l].stride;
    }
    transfer(p->inner, 0, at, x);
}

static void pick(Picking *p, int d, i64 at, float *x)
{
    const ExecSpace *space = &p->scope->space;
    while (d < space->n && !exec_looks_up(p->lookups, p->n, d))
        d++;
    if (d == space->n) {
        pick_here(p, at, x);
        return;
    }
    const i64 *offset = p->view.offset[d];
    for (i64 i = 0; i < space->dim[d].n; i++) {
        p->place[d] = i;
        pick(p, d + 1, at + (offset ? offset[i] : 0), x + i * p->inner->stride[d]);
    }
}

static void pick_all(Picking *p, float *x)
{
    const ExecSpace *space = &p->scope->space;
    Transfer *t = p->inner;
    p->view = t->view;
    for (int d = 0; d < space->n; d++)
        if (exec_looks_up(p->lookups, p->n, d)) {
            p->others &= ~((u64)1 << space->dim[d].atom);
            t->view.offset[d] = NULL;
        }
    t->last = last_dim(space, &t->view);
    pick(p, 0, t->view.base, x);
}

static void eval_picked(ExecScope *scope, const DagNode *node, Transfer *t, const i64 *by_atom,
                        float *out)
{
    Picking p = {.scope = scope, .others = exec_mask(scope->call, node), .inner = t};
    for (int f = 0; f < node->n_fixes; f++)
        if (node->fixes[f].at < 0)
            exec_lookup(scope, node, &node->fixes[f], by_atom[node->fixes[f].atom],
                        &p.lookups[p.n++]);
    pick_all(&p, out);
}

void exec_input(ExecScope *scope, const DagNode *node, const i64 *stride, float *out)
{
    const ExecJob *job = scope->call->job;
    const Tensor *tensor = &job->op->op->params[node->param];
    const ExecTensor *memory = &job->params[node->param];
    i64 by_atom[MAX_ATOMS];
    Transfer t = {.scope = scope, .type = tensor->type, .memory = memory->data, .stride = stride};
    exec_atom_strides(job->contract, tensor, memory, by_atom);
    view_tensor(scope, tensor, memory, node->n_fixes, node->fixes, &t.view);
    for (int f = 0; f < node->n_fixes; f++)
        if (node->fixes[f].at < 0) {
            eval_picked(scope, node, &t, by_atom, out);
            return;
        }
    t.last = last_dim(&scope->space, &t.view);
    transfer(&t, 0, t.view.base, out);
}

/* Of slots the box has those that stand in its part of the axis that they are of. */
static bool owns_some(ExecScope *scope, const Tensor *tensor, Picking *p)
{
    const ExecJob *job = scope->call->job;
    const Contract *c = job->contract;
    for (int i = 0; i < tensor->n_atoms && tensor->index_of <= 0; i++) {
        int of = c->axes[c->atom_axis[tensor->atoms[i]]].sparse_of - 1;
        int by = of < 0 ? -1 : op_slots(job->op->op, tensor->atoms[i]);
        if (by < 0 || tensor->mask >> c->axes[of].atom & 1)
            continue;
        p->own = &job->box.atom[c->axes[of].atom];
        Fix fix = {c->axes[of].atom, ~(i64)by};
        exec_lookup(scope, NULL, &fix, 0, &p->lookups[p->n++]);
        return p->own->lo > 0 || p->own->hi < c->axes[of].size;
    }
    return false;
}

void exec_store(ExecScope *scope, const DagPiece *piece)
{
    const ExecJob *job = scope->call->job;
    const Tensor *tensor = &job->op->op->results[piece->result];
    const ExecTensor *memory = &job->results[piece->result];
    const ExecValue *value = exec_eval_over(scope, piece->value, exec_space_atoms(&scope->space));
    ExecMark mark = scratch_mark(scope->scratch);
    Transfer t = {.scope = scope, .type = tensor->type, .memory = memory->data, .save = true,
                  .stride = value->stride};
    view_tensor(scope, tensor, memory, piece->n_fixes, piece->fixes, &t.view);
    t.last = last_dim(&scope->space, &t.view);
    Picking p = {.scope = scope, .inner = &t};
    if (exec_space_size(&scope->space, ~(u64)0) > 0) {
        if (owns_some(scope, tensor, &p))
            pick_all(&p, value->v);
        else
            transfer(&t, 0, t.view.base, value->v);
    }
    scratch_release(scope->scratch, mark);
}
