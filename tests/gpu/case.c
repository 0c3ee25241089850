/* Ranks pass views of whole tensors, at their own origin and with the whole's strides. */
#include "case.h"

#include "sample.h"
#include "values.cuh"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- plumbing ---- */

void must(iso_status status, const char *what)
{
    if (status == ISO_OK)
        return;
    fprintf(stderr, "gpu suite: %s: %s: %s\n", what, iso_status_string(status), iso_last_error());
    exit(5);
}

static size_t element_bytes(const iso_tensor *tensor)
{
    return (size_t)manifest_dtype_bytes(tensor->dtype);
}

static size_t tensor_bytes(const iso_tensor *tensor)
{
    size_t bytes = element_bytes(tensor);
    for (int i = 0; i < tensor->n_axes; i++)
        bytes *= (size_t)tensor->shape[i];
    return bytes;
}

bool case_has_rows(const Case *c, int tensor)
{
    const MfTensor *t = &c->op->tensors[tensor];
    const MfAtom *atom = &c->module->manifest->atoms[t->axes[0].atom[0]];
    return !atom->size && !atom->coordinate;
}

static bool among(const Seen *seen, const char *name)
{
    for (int i = 0; i < seen->n; i++)
        if (!strcmp(seen->names[i], name))
            return true;
    return false;
}

/* False if it is there already. */
static bool note(Seen *seen, const char *name)
{
    if (among(seen, name) || seen->n == MAX_KERNELS)
        return false;
    seen->names[seen->n++] = name;
    return true;
}

static void note_kernel(Case *c, const iso_op *op, iso_phase phase, const Way *way)
{
    const char *name;
    must(iso_op_kernel(op, phase, way->rows, way->schedule, &name), "iso_op_kernel");
    if (*name && c->seen)
        note(c->seen, name);
    if (!*name || !note(&c->totals->kernels, name))
        return;
    int ranks = op->layout->ranks;
    printf("  first run of %s: layout %s (%d rank%s), schedule %d, %" PRId64 " rows\n", name,
           op->layout->name, ranks, ranks > 1 ? "s" : "", way->schedule, way->rows);
}

static void grow(DevicePtr *buffer, size_t *have, size_t need)
{
    if (need <= *have)
        return;
    gpu_sync();
    if (*buffer)
        gpu_free(*buffer);
    *buffer = gpu_alloc(need);
    *have = need;
    gpu_set(*buffer, 0, need);
}

/* ---- tensors ---- */

void case_fill(Case *c, bool weights, unsigned shift)
{
    for (int i = 0; i < c->params; i++) {
        iso_tensor *t = &c->whole[i];
        if (!weights && !case_has_rows(c, i))
            continue;
        if (t->dtype == ISO_I32) {
            gpu_fill_indices((DevicePtr)(uintptr_t)t->data, t->shape[0], sample_seed(i), shift);
            continue;
        }
        gpu_fill_bf16((DevicePtr)(uintptr_t)t->data, t->shape[0],
                      t->stride[0] * (t->dtype == ISO_F32 ? 2 : 1), c->kind, sample_seed(i),
                      case_has_rows(c, i) ? shift : 0);
    }
}

/* Tables have room for every coordinate. */
static void whole_tensor(Case *c, int index)
{
    iso_tensor *t = &c->whole[index];
    int64_t stride = 1;
    must(iso_op_tensor(c->base, ISO_PHASE_RUN, c->most, index, t, NULL), "iso_op_tensor");
    for (int a = t->n_axes - 1; a >= 0; a--) {
        t->shape[a] = t->shape[a] ? t->shape[a] : SAMPLE_TABLE;
        t->stride[a] = stride;
        stride *= t->shape[a];
    }
    c->bytes[index] = tensor_bytes(t);
    t->data = (void *)(uintptr_t)gpu_alloc(c->bytes[index]);
}

static DevicePtr coordinates(const Case *c, bool sequence)
{
    DevicePtr device = gpu_alloc((size_t)c->most * 4);
    int32_t *of = malloc((size_t)c->most * 4);
    if (!of)
        exit(5);
    for (int64_t i = 0; i < c->most; i++)
        of[i] = sample_coordinate(sequence, i);
    gpu_write(device, of, (size_t)c->most * 4);
    free(of);
    return device;
}

void case_open(Case *c, const iso_module *module, const MfOp *op, int kind, int64_t rows,
               Totals *totals)
{
    *c = (Case){.module = module,
                .op = op,
                .kind = kind,
                .most = rows,
                .n = op->n_params + op->n_results,
                .params = op->n_params,
                .shards = 1,
                .totals = totals};
    must(iso_op_get(module, op->name, NULL, &c->base), "iso_op_get");
    for (int i = 0; i < c->n; i++) {
        whole_tensor(c, i);
        if (i >= c->params)
            c->expected[i] = gpu_alloc(c->bytes[i]);
    }
    c->live = gpu_alloc(4);
    c->positions = coordinates(c, false);
    c->sequences = coordinates(c, true);
}

void case_close(Case *c)
{
    gpu_sync();
    for (int i = 0; i < c->n; i++) {
        gpu_free((DevicePtr)(uintptr_t)c->whole[i].data);
        if (i >= c->params)
            gpu_free(c->expected[i]);
    }
    for (int r = 0; r < MAX_RANKS; r++)
        if (c->roots[r])
            gpu_free(c->roots[r]);
    if (c->workspace)
        gpu_free(c->workspace);
    gpu_free(c->live);
    gpu_free(c->positions);
    gpu_free(c->sequences);
}

void case_poison(Case *c)
{
    for (int i = c->params; i < c->n; i++)
        gpu_set((DevicePtr)(uintptr_t)c->whole[i].data, POISON, c->bytes[i]);
}

void case_views(Case *c, const iso_op *op, iso_phase phase, int64_t rows, iso_tensor *tensors)
{
    for (int i = 0; i < c->n; i++) {
        int64_t origin[ISO_MAX_AXES], offset = 0;
        must(iso_op_tensor(op, phase, rows, i, &tensors[i], NULL), "iso_op_tensor");
        must(iso_op_origin(op, phase, rows, i, origin), "iso_op_origin");
        for (int a = 0; a < tensors[i].n_axes; a++) {
            tensors[i].shape[a] = tensors[i].shape[a] ? tensors[i].shape[a] : SAMPLE_TABLE;
            tensors[i].stride[a] = c->whole[i].stride[a];
            offset += origin[a] * tensors[i].stride[a];
        }
        tensors[i].data =
            (char *)c->whole[i].data + offset * (int64_t)element_bytes(&tensors[i]);
    }
}

/* ---- comparing ---- */

/* A result that sums over tokens has no rows, and is the base's whatever their number. */
static void compare_live(Case *c, const iso_op *op, const Way *way, int tensor)
{
    bool rows = case_has_rows(c, tensor);
    size_t row = c->bytes[tensor] / (size_t)c->most, element = element_bytes(&c->whole[tensor]);
    size_t live = row * (size_t)(rows ? way->live : c->most);
    size_t skip = rows ? row * (size_t)way->shift : 0;
    uint64_t first, elements = live / element;
    uint64_t differ = gpu_compare((DevicePtr)(uintptr_t)c->whole[tensor].data,
                                  c->expected[tensor] + skip, live, &first);
    c->totals->compared += elements;
    c->totals->differ += differ;
    if (differ)
        printf("  DIFFERS: op %s, layout %s, schedule %d, %" PRId64 " of %" PRId64
               " rows live, shift %" PRId64 ", tensor %s: %" PRIu64 " of %" PRIu64
               ", first in row %" PRIu64 " column %" PRIu64 "\n",
               c->op->name, op->layout->name, way->schedule, way->live, way->rows, way->shift,
               c->op->tensors[tensor].name, differ, elements, first * 2 / row,
               first * 2 % row / element);
}

static void compare_dead(Case *c, const iso_op *op, const Way *way, int tensor)
{
    size_t row = c->bytes[tensor] / (size_t)c->most;
    size_t dead = row * (size_t)(way->rows - way->live);
    DevicePtr reference = gpu_alloc(dead);
    uint64_t first;
    gpu_set(reference, POISON, dead);
    uint64_t touched =
        gpu_compare((DevicePtr)(uintptr_t)c->whole[tensor].data + row * (size_t)way->live,
                    reference, dead, &first);
    gpu_free(reference);
    c->totals->compared += dead / element_bytes(&c->whole[tensor]);
    c->totals->differ += touched;
    if (touched)
        printf("  DIFFERS: op %s, layout %s, schedule %d wrote past its %" PRId64
               " live rows of %" PRId64 "\n",
               c->op->name, op->layout->name, way->schedule, way->live, way->rows);
}

void case_compare(Case *c, const iso_op *op, const Way *way)
{
    for (int i = c->params; i < c->n && !c->blind; i++) {
        compare_live(c, op, way, i);
        if (way->live < way->rows && case_has_rows(c, i))
            compare_dead(c, op, way, i);
    }
}

/* ---- running ---- */

const iso_op *case_op(const Case *c, const MfLayout *layout, int rank)
{
    iso_layout at = {.name = layout->name, .rank = rank};
    const iso_op *op;
    must(iso_op_get(c->module, c->op->name, &at, &op), "iso_op_get");
    return op;
}

iso_run case_run(Case *c, const iso_op *op, int64_t rows, int schedule)
{
    size_t need;
    must(iso_op_workspace(op, rows, schedule, &need), "iso_op_workspace");
    grow(&c->workspace, &c->workspace_bytes, need);
    return (iso_run){.rows = rows,
                     .schedule = schedule,
                     .stream = gpu_stream(),
                     .positions = (const int32_t *)(uintptr_t)c->positions,
                     .sequences = (const int32_t *)(uintptr_t)c->sequences,
                     .workspace = (void *)(uintptr_t)c->workspace,
                     .workspace_bytes = c->workspace_bytes};
}

/* The live rows of the rank's part on the device, or NULL where all are. */
static const int32_t *live_rows(Case *c, const iso_op *op, const Way *way)
{
    int64_t lo, hi;
    if (way->live == way->rows)
        return NULL;
    part_rows_of(op_part(op, ISO_PHASE_PART), way->rows, &lo, &hi);
    int32_t live = (int32_t)(way->live < lo ? 0 : way->live < hi ? way->live - lo : hi - lo);
    gpu_write(c->live, &live, sizeof live);
    return (const int32_t *)(uintptr_t)c->live;
}

/* The run's rows are the base's from the rank's first, shifted. */
static void shift_coordinates(const iso_op *op, iso_phase phase, const Way *way, iso_run *run)
{
    int64_t lo, hi;
    part_rows_of(op_part(op, phase), way->rows, &lo, &hi);
    run->positions += lo + way->shift;
    run->sequences += lo + way->shift;
}

static void run_rank(Case *c, const iso_op *op, const Way *way, bool join)
{
    iso_phase phase = join ? ISO_PHASE_PART : ISO_PHASE_RUN;
    iso_tensor tensors[MAX_TENSORS];
    iso_run run = case_run(c, op, way->rows, way->schedule);
    run.rows_device = live_rows(c, op, way);
    shift_coordinates(op, phase, way, &run);
    case_views(c, op, phase, way->rows, tensors);
    run.settled = way->rows % 2;
    if (run.settled)
        gpu_sync();
    c->totals->runs++;
    note_kernel(c, op, phase, way);
    if (join)
        must(iso_op_part(op, tensors, c->n, (void *)(uintptr_t)c->roots[op->rank], &run),
             "iso_op_part");
    else
        must(iso_op_run(op, tensors, c->n, &run), "iso_op_run");
}

/* The most that any rank has: a cut may leave more roots on one rank than on another. */
static void make_roots(Case *c, const MfLayout *layout, int64_t rows)
{
    size_t need = 0;
    for (int r = 0; r < layout->ranks; r++) {
        size_t own;
        must(iso_op_roots(case_op(c, layout, r), rows, &own), "iso_op_roots");
        need = own > need ? own : need;
    }
    if (need <= c->roots_bytes)
        return;
    for (int r = 0; r < MAX_RANKS; r++) {
        if (c->roots[r])
            gpu_free(c->roots[r]);
        c->roots[r] = gpu_alloc(need);
    }
    c->roots_bytes = need;
}

static void join_rank(Case *c, const iso_op *op, const Way *way)
{
    iso_tensor tensors[MAX_TENSORS];
    const void *roots[MAX_RANKS];
    for (int r = 0; r < MAX_RANKS; r++)
        roots[r] = (const void *)(uintptr_t)c->roots[r];
    iso_run run = case_run(c, op, way->rows, 0);
    run.rows_device = live_rows(c, op, way);
    shift_coordinates(op, ISO_PHASE_JOIN, way, &run);
    case_views(c, op, ISO_PHASE_JOIN, way->rows, tensors);
    note_kernel(c, op, ISO_PHASE_JOIN, way);
    must(iso_op_join(op, roots, op->layout->ranks, tensors, c->n, &run), "iso_op_join");
}

static bool joins(const iso_op *op)
{
    int join;
    must(iso_op_needs_join(op, &join), "iso_op_needs_join");
    return join;
}

/* Whether ranks write the slots that stand at their own experts. */
static bool shares_slots(const iso_op *op, iso_phase phase)
{
    const MfSpec *spec = op_spec(op, phase, 1, 0);
    const MfPart *part = op_part(op, phase);
    int atom = spec && spec->gemm.grouped ? spec->gemm.experts : -1;
    return atom >= 0 && part->hi[atom] - part->lo[atom] < op->module->manifest->atoms[atom].size;
}

/* Whether the rank's results are the whole: then each rank's own run is compared. */
static bool is_whole(Case *c, const iso_op *op, iso_phase phase, int64_t rows)
{
    iso_tensor part, whole;
    if (shares_slots(op, phase))
        return false;
    must(iso_op_tensor(op, phase, rows, c->params, &part, NULL), "iso_op_tensor");
    must(iso_op_tensor(c->base, ISO_PHASE_RUN, rows, c->params, &whole, NULL), "iso_op_tensor");
    return tensor_bytes(&part) == tensor_bytes(&whole);
}

void case_way(Case *c, const Way *way)
{
    const MfLayout *layout = way->layout;
    const iso_op *op = case_op(c, layout, 0);
    bool join = joins(op);
    bool whole = is_whole(c, op, join ? ISO_PHASE_JOIN : ISO_PHASE_RUN, way->rows);
    if (join)
        make_roots(c, layout, way->rows);
    for (int r = 0; join && r < layout->ranks; r++) {
        gpu_set(c->roots[r], POISON, c->roots_bytes);
        run_rank(c, case_op(c, layout, r), way, true);
    }
    case_poison(c);
    for (int r = 0; r < layout->ranks; r++) {
        op = case_op(c, layout, r);
        if (whole && r)
            case_poison(c);
        if (join)
            join_rank(c, op, way);
        else
            run_rank(c, op, way, false);
        if (whole)
            case_compare(c, op, way);
    }
    if (!whole)
        case_compare(c, op, way);
}

/* A kernel's name ends in the hexadecimal hash of its text. */
static bool is_new(const Case *c, const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !among(c->seen, name) &&
           (int)(strtoul(name + n - 4, NULL, 16) % (unsigned)c->shards) == c->shard;
}

bool case_way_is_new(Case *c, const Way *way)
{
    for (int r = 0; r < way->layout->ranks; r++) {
        const iso_op *op = case_op(c, way->layout, r);
        const char *own, *join = "";
        must(iso_op_kernel(op, ISO_PHASE_RUN, way->rows, way->schedule, &own), "iso_op_kernel");
        if (joins(op))
            must(iso_op_kernel(op, ISO_PHASE_JOIN, way->rows, 0, &join), "iso_op_kernel");
        if (is_new(c, own) || is_new(c, join))
            return true;
    }
    return false;
}

void case_base(Case *c)
{
    Way way = {.layout = c->base->layout, .rows = c->most, .live = c->most};
    case_fill(c, true, 0);
    case_poison(c);
    run_rank(c, c->base, &way, false);
    gpu_sync();
    for (int i = c->params; i < c->n; i++) {
        DevicePtr result = c->expected[i];
        c->expected[i] = (DevicePtr)(uintptr_t)c->whole[i].data;
        c->whole[i].data = (void *)(uintptr_t)result;
    }
}
