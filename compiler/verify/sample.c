/* Samples: lists per atom, tensors in lazily backed memory, values by a counter. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "sample.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- numbers by counter ---------------------------------------------------------------------- */

static u64 mix(u64 x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static float from_bits(u32 bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static u32 to_bits(float x)
{
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Near normal: the sum of four uniform 16-bit numbers, in units of about a standard deviation. */
static float bell(u64 r)
{
    i64 sum = (i64)(r & 0xffff) + (i64)(r >> 16 & 0xffff) + (i64)(r >> 32 & 0xffff) +
              (i64)(r >> 48) - 2 * 0xffff;
    return (float)sum / 37837.0f;
}

/* Rows are of several kinds, so that orders of addition, roundings and specials all show. */
static float value_of(u64 r, i64 row)
{
    switch (row % 8) {
    case 3: /* over forty binades, both signs */
        return from_bits((u32)(r & 0x80000000u) | (u32)(107 + (r >> 8) % 40) << 23 |
                         ((u32)r & 0x7fffffu));
    case 5: /* cancelling: large pairs of opposite sign among small ones */
        return bell(r) + ((r >> 20) % 16 == 0 ? (r & 1 ? 1e20f : -1e20f) : 0.0f);
    case 6: /* subnormal in bf16, and zeros of both signs */
        return from_bits((u32)(r & 0x80000000u) | (u32)(r >> 40 & 0x3) << 16);
    case 7: /* specials, rarely */
        if (r % 4099 == 0)
            return from_bits((r >> 33 & 1) ? 0x7fc00000u : (u32)(r & 0x80000000u) | 0x7f800000u);
        return bell(r);
    default: return bell(r);
    }
}

static u16 to_bf16(float x)
{
    u32 bits = to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* f16 inputs need no exact rounding: any pattern is an input. */
static u16 to_f16(float x, u64 r)
{
    u32 bits = to_bits(x);
    int exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
    if (exponent <= 0 || exponent >= 31)
        return (u16)(r & 0x83ff);
    return (u16)((bits >> 16 & 0x8000u) | (u32)exponent << 10 | (bits >> 13 & 0x3ffu));
}

static void put(DType type, void *data, i64 at, float x, u64 r)
{
    if (type == DT_F32)
        ((float *)data)[at] = x;
    else
        ((u16 *)data)[at] = type == DT_BF16 ? to_bf16(x) : to_f16(x, r);
}

void sample_put(DType type, void *data, i64 at, u64 seed, i64 row)
{
    u64 r = mix(seed ^ (u64)at * 0x2545f4914f6cdd1du);
    put(type, data, at, value_of(r, row), r);
}

void sample_put_index(void *data, i64 at, u64 seed, const i64 *list, i64 n, i64 size)
{
    static const int32_t outside[] = {-1, INT32_MAX, INT32_MIN};
    u64 r = mix(seed ^ (u64)at * 0x2545f4914f6cdd1du);
    i64 own = list && n ? list[r % (u64)n] : (i64)(r % (u64)size);
    int32_t index = (int32_t)own;
    if (at % 5 == 2)
        index = r >> 40 & 1 ? (int32_t)size : outside[(r >> 41) % 3];
    ((int32_t *)data)[at] = index;
}

/* ---- walking a tensor ------------------------------------------------------------------------ */

/* An odometer over the atoms of a tensor. */
typedef struct Walk {
    int n;
    const ExecRange *range[MAX_ATOMS];
    i64 count[MAX_ATOMS], at[MAX_ATOMS], stride[MAX_ATOMS];
    int atom[MAX_ATOMS];
    bool done;
} Walk;

static i64 range_count(const ExecRange *range)
{
    return range->list ? range->n : range->hi - range->lo;
}

static i64 range_at(const ExecRange *range, i64 i)
{
    return range->list ? range->list[i] : range->lo + i;
}

/* Strides of a tensor's atoms from those of its declared axes. */
static void atom_strides(const Contract *c, int axis, i64 stride, Walk *walk)
{
    const Axis *a = &c->axes[axis];
    if (a->atom >= 0) {
        walk->atom[walk->n] = a->atom;
        walk->stride[walk->n++] = stride;
        return;
    }
    for (int i = a->n_factors - 1; i >= 0; i--) {
        atom_strides(c, a->factors[i], stride, walk);
        stride *= c->axes[a->factors[i]].size;
    }
}

static void walk_start(const Contract *c, const Tensor *tensor, const ExecTensor *memory,
                       const ExecBox *box, Walk *walk)
{
    *walk = (Walk){0};
    for (int i = tensor->n_axes - 1; i >= 0; i--)
        atom_strides(c, tensor->axes[i], memory->stride[i], walk);
    for (int i = 0; i < walk->n; i++) {
        walk->range[i] = &box->atom[walk->atom[i]];
        walk->count[i] = range_count(walk->range[i]);
        if (walk->count[i] == 0)
            walk->done = true;
    }
}

static i64 walk_offset(const Walk *walk)
{
    i64 offset = 0;
    for (int i = 0; i < walk->n; i++)
        offset += range_at(walk->range[i], walk->at[i]) * walk->stride[i];
    return offset;
}

/* Atom 0 is the innermost. */
static void walk_next(Walk *walk)
{
    for (int i = 0; i < walk->n; i++) {
        if (++walk->at[i] < walk->count[i])
            return;
        walk->at[i] = 0;
    }
    walk->done = true;
}

static i64 walk_row(const Contract *c, const Walk *walk)
{
    for (int i = 0; i < walk->n; i++)
        if (c->axes[c->atom_axis[walk->atom[i]]].free)
            return range_at(walk->range[i], walk->at[i]);
    return 0;
}

static i64 walk_index(const Walk *walk, int atom)
{
    int i = 0;
    while (walk->atom[i] != atom)
        i++;
    return range_at(walk->range[i], walk->at[i]);
}

/* A box has the slots that stand at its part of the axis that they are of. */
static bool walk_owned(const Sample *s, const Tensor *tensor, const ExecBox *box, const Walk *walk)
{
    const Axis *axes = s->contract->axes;
    for (int i = 0; i < tensor->n_atoms && tensor->index_of <= 0; i++) {
        int slots = tensor->atoms[i], of = axes[s->contract->atom_axis[slots]].sparse_of - 1;
        int by = of < 0 ? -1 : op_slots(s->op, slots);
        if (by < 0 || tensor->mask >> axes[of].atom & 1)
            continue;
        const ExecTensor *memory = &s->params[by];
        i64 at = memory->offset + memory->stride[0] * walk_row(s->contract, walk) +
                 memory->stride[1] * walk_index(walk, slots);
        i64 index = ((const int32_t *)memory->data)[at];
        const ExecRange *range = &box->atom[axes[of].atom];
        return slot_is_in(range->lo, range->hi,
                          index < 0 || index >= axes[of].size ? -1 : index);
    }
    return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static i64 axis_stored(const Contract *c, int axis, i64 rows)
{
    const Axis *a = &c->axes[axis];
    if (a->free || a->coordinate_of >= 0)
        return rows;
    return a->stored > a->size ? a->stored : a->size;
}

static bool map_tensor(Sample *s, const Tensor *tensor, ExecTensor *memory)
{
    i64 elements = 1;
    for (int i = tensor->n_axes - 1; i >= 0; i--) {
        memory->stride[i] = elements;
        elements *= axis_stored(s->contract, tensor->axes[i], s->rows);
    }
    size_t size = (size_t)elements * (size_t)dtype_bytes(tensor->type) + 64;
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    s->maps[s->n_maps] = map;
    s->sizes[s->n_maps++] = size;
    memory->data = map;
    return true;
}

static i64 gcd(i64 a, i64 b)
{
    while (b) {
        i64 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A token's slots stand at different elements: steps of a number prime to how many there are, some
 * of them outside. With a list, of those in it as long as they last. */
static void put_slots(const Sample *s, const Tensor *tensor, const ExecTensor *memory,
                      const ExecRange *range, i64 size, i64 token, u64 seed)
{
    i64 n = range->list ? range->n : size, slots = s->contract->axes[tensor->axes[1]].size;
    u64 r = mix(seed ^ (u64)token * 0x2545f4914f6cdd1du);
    i64 first = (i64)(r % (u64)n), step = 1 + (i64)(r >> 32) % n;
    while (gcd(step, n) != 1)
        step = step % n + 1;
    for (i64 k = 0; k < slots; k++) {
        i64 at = memory->offset + memory->stride[0] * token + memory->stride[1] * k;
        i64 own = (first + k % n * step) % n;
        bool stands = k < n && mix(r + (u64)k) % 11;
        ((int32_t *)memory->data)[at] =
            stands ? (int32_t)(range->list ? range->list[own] : own) : -1;
    }
}

/* A parameter has the sampled indices of atoms that only results have, all of the others. */
static void fill(const Sample *s, const Tensor *tensor, const ExecTensor *memory, u64 seed)
{
    ExecBox box = s->box;
    for (int a = 0; a < s->contract->n_atoms; a++)
        if (s->reduced >> a & 1)
            box.atom[a].list = NULL;
    Walk walk;
    for (walk_start(s->contract, tensor, memory, &box, &walk); !walk.done; walk_next(&walk)) {
        i64 offset = walk_offset(&walk);
        if (tensor->index_of == INTEGERS) {
            sample_put_index(memory->data, offset, seed, NULL, 0, SAMPLE_INTEGERS);
            continue;
        }
        if (tensor->index_of) {
            const Axis *of = &s->contract->axes[tensor->index_of - 1];
            const ExecRange *range = &box.atom[of->atom];
            if (tensor->n_axes > 1) {
                put_slots(s, tensor, memory, range, of->size, walk_row(s->contract, &walk), seed);
                continue;
            }
            sample_put_index(memory->data, offset, seed, range->list, range->n, of->size);
            continue;
        }
        u64 r = mix(seed ^ (u64)offset * 0x2545f4914f6cdd1du);
        put(tensor->type, memory->data, offset, value_of(r, walk_row(s->contract, &walk)), r);
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

typedef VEC(i64) Indices;

static int ascending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void sort_unique(Indices *v)
{
    qsort(v->v, (size_t)v->n, sizeof *v->v, ascending);
    int n = 0;
    for (int i = 0; i < v->n; i++)
        if (n == 0 || v->v[n - 1] != v->v[i])
            v->v[n++] = v->v[i];
    v->n = n;
}

/* The first and last index of every rank's part in every layout. */
static void borders(const Plan *plan, const OpDag *op, int atom, i64 size, Indices *list,
                    Arena *arena)
{
    vec_push(arena, list, 0);
    vec_push(arena, list, size - 1);
    for (int i = 0; i < plan->ops.n; i++) {
        const PlanOp *at = &plan->ops.v[i];
        for (int r = 0; at->op == op && r < at->at.ranks; r++) {
            const Part *part = &at->part_of_rank[r];
            if (part->hi[atom] > part->lo[atom]) {
                vec_push(arena, list, part->lo[atom]);
                vec_push(arena, list, part->hi[atom] - 1);
            }
        }
    }
    sort_unique(list);
}

static void more(Indices *list, i64 size, i64 want, u64 seed, Arena *arena)
{
    for (i64 i = 0; list->n < want && i < 4 * want; i++)
        vec_push(arena, list, (i64)(mix(seed + (u64)i) % (u64)size));
    sort_unique(list);
}

/* Atoms that something is read at by indices. */
static u64 looked_up_mask(const OpDag *op)
{
    u64 mask = 0;
    for (int i = 0; i < op->nodes.n; i++)
        for (int f = 0; f < op->nodes.v[i]->n_fixes; f++)
            if (op->nodes.v[i]->fixes[f].at < 0)
                mask |= (u64)1 << op->nodes.v[i]->fixes[f].atom;
    return mask;
}

static u64 results_mask(const Op *op)
{
    u64 mask = 0;
    for (int i = 0; i < op->n_results; i++)
        mask |= op->results[i].mask;
    return mask;
}

/* Borders first, then the widest atoms grow until the product is what is wanted. */
static void choose(Sample *s, const Plan *plan, const OpDag *op, int columns, u64 seed,
                   Arena *arena)
{
    const Contract *c = s->contract;
    Indices lists[MAX_ATOMS] = {{0}};
    i64 product = 1;
    u64 chosen = results_mask(s->op) | looked_up_mask(op);
    for (int a = 0; a < c->n_atoms; a++) {
        const Axis *axis = &c->axes[c->atom_axis[a]];
        if (!(chosen >> a & 1) || axis->free || axis->coordinate_of >= 0)
            continue;
        borders(plan, op, a, axis->size, &lists[a], arena);
        product *= lists[a].n;
    }
    for (int a = c->n_atoms - 1; a >= 0; a--) {
        i64 size = c->axes[c->atom_axis[a]].size;
        i64 factor = product < columns ? (columns + product - 1) / product : 1;
        i64 want = lists[a].n * factor < size ? lists[a].n * factor : size;
        if (lists[a].n == 0)
            continue;
        product /= lists[a].n;
        more(&lists[a], size, want, seed + (u64)a, arena);
        product *= lists[a].n;
        s->box.atom[a].n = lists[a].n;
        s->box.atom[a].list = lists[a].v;
    }
}

/* ---- the sample ------------------------------------------------------------------------------ */

static bool map_all(Sample *s, Arena *arena)
{
    const Op *op = s->op;
    int most = op->n_params + 2 * op->n_results;
    bool ok = true;
    s->maps = arena_array(arena, void *, most);
    s->sizes = arena_array(arena, size_t, most);
    s->params = arena_array(arena, ExecTensor, op->n_params + 1);
    s->expected = arena_array(arena, ExecTensor, op->n_results + 1);
    s->actual = arena_array(arena, ExecTensor, op->n_results + 1);
    for (int i = 0; i < op->n_params; i++)
        ok = ok && map_tensor(s, &op->params[i], &s->params[i]);
    for (int i = 0; i < op->n_results; i++)
        ok = ok && map_tensor(s, &op->results[i], &s->expected[i]) &&
             map_tensor(s, &op->results[i], &s->actual[i]);
    return ok;
}

bool sample_open(Sample *s, const Plan *plan, const OpDag *op, i64 rows, int columns, u64 seed,
                 Arena *arena)
{
    const Contract *c = plan->dag->contract;
    *s = (Sample){.contract = c, .op = op->op, .rows = rows};
    for (int i = 0; i < op->reduces.n; i++)
        for (int k = 0; k < op->reduces.v[i]->n_atoms; k++)
            s->reduced |= (u64)1 << op->reduces.v[i]->atoms[k];
    exec_box_all(c, rows, &s->box);
    choose(s, plan, op, columns, seed, arena);
    s->positions = arena_array(arena, int, rows + 1);
    s->sequences = arena_array(arena, int, rows + 1);
    for (i64 i = 0; i < rows; i++)
        s->positions[i] = (int)i;
    if (!map_all(s, arena)) {
        sample_close(s);
        return false;
    }
    for (int i = 0; i < op->op->n_params; i++)
        fill(s, &op->op->params[i], &s->params[i], mix(seed + 1000 * (u64)i));
    return true;
}

void sample_close(Sample *s)
{
    for (int i = 0; i < s->n_maps; i++)
        munmap(s->maps[i], s->sizes[i]);
    s->n_maps = 0;
}

void sample_clip(const Sample *s, const ExecBox *ranges, ExecBox *box, Arena *arena)
{
    *box = *ranges;
    for (int a = 0; a < s->contract->n_atoms; a++) {
        const ExecRange *mine = &s->box.atom[a];
        ExecRange *out = &box->atom[a];
        if (!mine->list)
            continue;
        i64 *list = arena_array(arena, i64, mine->n + 1);
        out->list = list;
        out->n = 0;
        for (int i = 0; i < mine->n; i++)
            if (mine->list[i] >= out->lo && mine->list[i] < out->hi)
                list[out->n++] = mine->list[i];
    }
}

i64 sample_count(const Sample *s, const ExecBox *box)
{
    i64 total = 0;
    for (int i = 0; i < s->op->n_results; i++) {
        Walk walk;
        i64 n = 1;
        walk_start(s->contract, &s->op->results[i], &s->actual[i], box, &walk);
        for (int k = 0; k < walk.n; k++)
            n *= walk.count[k];
        total += n;
    }
    return total;
}

void sample_poison(const Sample *s, const ExecBox *box)
{
    for (int i = 0; i < s->op->n_results; i++) {
        size_t bytes = (size_t)dtype_bytes(s->op->results[i].type);
        Walk walk;
        walk_start(s->contract, &s->op->results[i], &s->actual[i], box, &walk);
        for (; !walk.done; walk_next(&walk))
            if (walk_owned(s, &s->op->results[i], box, &walk))
                memset((char *)s->actual[i].data + (size_t)walk_offset(&walk) * bytes, 0xa5, bytes);
    }
}

i64 sample_differ(const Sample *s, const ExecBox *box)
{
    i64 differ = 0;
    for (int i = 0; i < s->op->n_results; i++) {
        size_t bytes = (size_t)dtype_bytes(s->op->results[i].type);
        Walk walk;
        walk_start(s->contract, &s->op->results[i], &s->actual[i], box, &walk);
        for (; !walk.done; walk_next(&walk)) {
            size_t at = (size_t)walk_offset(&walk) * bytes;
            if (!walk_owned(s, &s->op->results[i], box, &walk))
                continue;
            differ += memcmp((char *)s->actual[i].data + at, (char *)s->expected[i].data + at,
                             bytes) != 0;
        }
    }
    return differ;
}

Digest sample_digest(const Sample *s, Arena *arena)
{
    Text text = {.arena = arena};
    for (int i = 0; i < s->op->n_results; i++) {
        int bytes = dtype_bytes(s->op->results[i].type);
        Walk walk;
        walk_start(s->contract, &s->op->results[i], &s->actual[i], &s->box, &walk);
        for (; !walk.done; walk_next(&walk))
            text_add(&text, (Str){(char *)s->actual[i].data + walk_offset(&walk) * bytes, bytes});
    }
    return sha256(text.s, (size_t)text.n);
}

void sample_print(const Sample *s, Text *out)
{
    enum { SHOWN = 6 };
    for (int a = 0; a < s->contract->n_atoms; a++) {
        const ExecRange *range = &s->box.atom[a];
        if (!range->list)
            continue;
        const Axis *axis = &s->contract->axes[s->contract->atom_axis[a]];
        text_printf(out, " %.*s", STR_FMT(axis->name.text));
        if (range->n == axis->size)
            text_printf(out, " all %lld", (long long)axis->size);
        for (int i = 0; range->n < axis->size && i < range->n; i++)
            if (i < SHOWN || i == range->n - 1)
                text_printf(out, " %lld", (long long)range->list[i]);
            else if (i == SHOWN)
                text_printf(out, " ... (%d of %lld) ...", range->n, (long long)axis->size);
        text_printf(out, ";");
    }
}
