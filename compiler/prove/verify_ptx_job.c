/* One launch: tensors, the machine's run, the executor's, the comparison. */
#include "verify_ptx_impl.h"

#include "ptx/choice.h"
#include "ptx/tests.h"
#include "verify/sample.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- draws ----------------------------------------------------------------------------------- */

static const Draw *draw_of(const PtxTrial *r)
{
    const Plan *plan = r->worker->input->prove;
    return plan && r->spec->family == MF_DRAW ? &plan->kernels.v[r->job->spec]->draw.computes
                                              : NULL;
}

static bool has_limits(const PtxTrial *r)
{
    const Draw *draw = draw_of(r);
    return draw && !terms_in_order(draw);
}

/* A temperature or a limit is a number that is known, as seeds are. */
static bool is_limit(const PtxTrial *r, int tensor)
{
    const Draw *draw = draw_of(r);
    for (int i = 0; draw && i < DRAW_PARAMS; i++)
        if (draw_param(draw, i) == tensor)
            return true;
    return false;
}

/* Rows of a draw: terms of as many scores as memory has room for. */
static i64 draw_rows(const PtxTrial *r)
{
    enum { MOST_ROWS = 13, SCORES = 100000 };
    const Draw *draw = draw_of(r);
    const Contract *contract = draw ? r->worker->input->prove->dag->contract : NULL;
    i64 rows = draw ? SCORES / atom_size(contract, draw->atom, 0) : MOST_ROWS;
    return rows < 2 ? 2 : rows > MOST_ROWS ? MOST_ROWS : rows;
}

/* ---- rows and tensors ------------------------------------------------------------------------ */

/* A tail in the last tile, and two tiles in all; more where ranks share the rows. */
static void choose_rows(PtxTrial *r)
{
    const MfPart *part = op_part(r->op, r->job->phase);
    bool few = r->job->uneven & PTX_FEW_ROWS;
    bool many = r->job->uneven & (PTX_SETTLED | PTX_FEW_CTAS);
    i64 own = few ? 5 : verify_ptx_is_gemm(r) ? r->spec->gemm.tile_m * (many ? 3 : 1) + 5
              : r->spec->family == MF_DRAW ? draw_rows(r) : r->worker->input->small ? 2 : 7;
    r->rows = own * part->rows_count + (part->rows_count > 1);
    if (r->spec->family == MF_ATTEND)
        verify_ptx_keys(r);
    i64 lo, hi;
    part_rows_of(part, r->rows, &lo, &hi);
    r->part_rows = r->live_rows = hi - lo;
    if (r->job->requests)
        r->live_rows -= r->job->requests->not_live;
    else if (hi - lo > 1 && r->job->uneven & (r->job->phase == ISO_PHASE_JOIN ? PTX_LIVE_JOIN
                                                                              : PTX_UNEVEN_ROWS))
        r->live_rows--;
    if (r->job->uneven & PTX_SETTLED && r->live_rows > r->spec->gemm.tile_m)
        r->live_rows = r->spec->gemm.tile_m + 5; /* so that CTAs have loaded for none */
    if (verify_ptx_is_gemm(r))
        r->own_rows = part_size(r->worker->module->manifest, part, &r->spec->gemm.rows, r->rows);
}

static bool rows_lead(const PtxTrial *r, const MfTensor *declared)
{
    const MfAtoms *axis = &declared->axes[0];
    return declared->n_axes > 1 && axis->n > 0 &&
           !r->worker->module->manifest->atoms[axis->atom[0]].size;
}

static u8 unevenness(const PtxTrial *r, int tensor)
{
    bool own = r->job->which < 0 || r->job->which == tensor;
    return own ? r->job->uneven : r->job->uneven & PTX_PADDED_ROWS;
}

bool verify_ptx_aligned(const MfSpec *spec, int tensor)
{
    const MfGemm *gemm = &spec->gemm;
    if (spec->family == MF_ATTEND)
        return verify_ptx_copied(spec, tensor);
    if (spec->family != MF_GEMM || !gemm->wgmma)
        return false;
    bool found = spec->bindings[gemm->a].tensor == tensor;
    for (int g = 0; g < gemm->n_groups; g++)
        for (int p = 0; p < gemm->group[g].n_products; p++)
            found |= spec->bindings[gemm->group[g].b[p]].tensor == tensor;
    return found;
}

static i64 pitch_of(i64 line, u8 uneven)
{
    return uneven & PTX_UNEVEN_ROWS ? line + 1 + line % 2
           : uneven & PTX_PADDED_ROWS ? (line + 7) / 8 * 8 : line;
}

static void lay_out(PtxTensor *t, int element, u8 uneven)
{
    t->line = 1;
    for (int i = 0; i < t->tensor.n_axes; i++)
        t->line *= i || t->tensor.n_axes == 1 ? t->tensor.shape[i] : 1;
    i64 rows = t->tensor.n_axes > 1 ? t->tensor.shape[0] : 1;
    t->line = t->line ? t->line : 1;
    t->pitch = t->tensor.n_axes > 1 ? pitch_of(t->line, uneven) : t->line;
    if (t->tensor.n_axes > 1)
        t->tensor.stride[0] = t->pitch;
    t->element = element;
    t->elements = rows * t->line;
    t->bytes = (size_t)(rows * t->pitch) * (size_t)element;
}

/* How many indices the axis has that a parameter of indices speaks of. */
static i64 indices_of(const PtxTrial *r, int tensor)
{
    const MfSpec *spec = r->spec;
    for (int b = 0; b < spec->n_bindings; b++)
        if (spec->bindings[b].lookup >= 0 &&
            spec->bindings[spec->bindings[b].lookup].tensor == tensor)
            return r->worker->module->manifest->atoms[spec->bindings[b].looked_up].size;
    return SAMPLE_INTEGERS;
}

static bool make_tensor(PtxTrial *r, int index)
{
    static const int bytes[] = {2, 2, 4, 4};
    PtxTensor *t = &r->tensor[index];
    const MfTensor *declared = &r->op->op->tensors[index];
    if (iso_op_tensor(r->op, r->job->phase, r->rows, index, &t->tensor, NULL))
        return false;
    if (verify_ptx_stored(r, index))
        verify_ptx_shape(r, index, &t->tensor);
    else if (!r->keys)
        verify_ptx_table_shape(r, index, &t->tensor);
    u8 uneven = verify_ptx_aligned(r->spec, index) ? 0 : unevenness(r, index);
    lay_out(t, bytes[t->tensor.dtype], uneven);
    r->place.shift = uneven & PTX_UNEVEN_BASE ? (size_t)t->element : 0;
    t->seed = verify_ptx_scatter(r->worker->input->seed * 1000 + (u64)index + 1);
    t->row_elements = rows_lead(r, declared) ? t->tensor.stride[0] : 0;
    if (t->tensor.dtype == ISO_I32)
        t->indices = indices_of(r, index);
    t->scores = draw_of(r) && t->row_elements && !is_limit(r, index);
    if (index < r->n_params)
        verify_ptx_param(&r->place, t, declared->name,
                         is_limit(r, index) ? 0 : PTX_INPUT_PARAM + (u64)index);
    else
        verify_ptx_result(&r->place, t, declared->name);
    r->passed[index] = t->tensor;
    r->place.shift = 0;
    if (verify_ptx_stored(r, index) && !r->place.failed)
        verify_ptx_fill_keys(r, index);
    if (!r->place.failed)
        verify_ptx_group_fill(r, index);
    return !r->place.failed;
}

/* One rank's roots: in a part what it writes, in a join what it reads. */
static PtxTensor *make_roots(PtxTrial *r, int rank, bool written)
{
    const iso_op *op = r->op - r->op->rank + rank;
    PtxTensor *t = arena_new_of(r->arena, PtxTensor);
    t->element = 4;
    t->tensor.dtype = ISO_F32;
    t->seed = verify_ptx_scatter(r->worker->input->seed * 999 + (u64)rank);
    if (iso_op_roots_of_keys(op, r->rows, verify_ptx_most_keys(r), &t->bytes))
        return NULL;
    t->elements = t->line = t->pitch = (i64)t->bytes / 4;
    u8 uneven = unevenness(r, r->n_params + r->n_results + rank);
    r->place.shift = uneven & PTX_UNEVEN_BASE && !written ? 4 : 0;
    if (written)
        verify_ptx_result(&r->place, t, "the roots");
    else
        verify_ptx_param(&r->place, t, "the roots", PTX_INPUT_ROOTS + (u64)rank);
    r->place.shift = 0;
    return r->place.failed ? NULL : t;
}

static bool make_sources(PtxTrial *r)
{
    int ranks = r->op->layout->ranks;
    const MfRanks *heard = &r->op->at->sources[r->op->rank];
    r->sources = arena_array(r->arena, const void *, ranks);
    for (int i = 0; i < heard->n; i++) {
        PtxTensor *t = make_roots(r, heard->rank[i], false);
        if (!t)
            return false;
        r->sources[heard->rank[i]] = t->tensor.data;
    }
    return true;
}

static bool make_tensors(PtxTrial *r)
{
    iso_op_tensors(r->op, &r->n_params, &r->n_results);
    if (r->n_params + r->n_results > PTX_MAX_TENSORS)
        return false;
    for (int i = 0; i < r->n_params + r->n_results; i++)
        if (!make_tensor(r, i))
            return false;
    if (r->job->phase == ISO_PHASE_PART) {
        const PtxTensor *t = make_roots(r, r->op->rank, true);
        if (!t)
            return false;
        r->roots = *t;
    }
    return r->job->phase != ISO_PHASE_JOIN || make_sources(r);
}

/* Counters are the workspace's first bytes and begin as zeros; partial values are nobody's. */
static void *make_workspace(PtxTrial *r, size_t *bytes)
{
    const MfGemm *gemm = &r->spec->gemm;
    size_t counters = 0;
    if (iso_op_workspace(r->op, r->rows, r->job->schedule, bytes) || *bytes == 0)
        return NULL;
    if (verify_ptx_is_gemm(r) && !gemm->wgmma) {
        counters = (size_t)((verify_ptx_tiles(r) * 4 + 255) / 256 * 256);
    }
    if (r->keys)
        counters = attend_counters(r->op, r->spec, r->rows);
    r->counters = counters < *bytes ? counters : *bytes;
    return verify_ptx_buffer(&r->place, "the workspace", *bytes, r->counters);
}

/* ---- the machine ------------------------------------------------------------------------------
 */

/* All that a launch takes beside the tensors. */
static bool prepare(PtxTrial *r)
{
    r->run = (iso_run){.rows = r->rows, .schedule = r->job->schedule,
                       .settled = (r->job->uneven & PTX_SETTLED) != 0};
    if (!verify_ptx_pass_coordinates(r) || (r->keys && !verify_ptx_pass_keys(r, &r->run)))
        return false;
    if (r->live_rows < r->part_rows) {
        int32_t *live = (int32_t *)(void *)verify_ptx_buffer(&r->place, "the live rows", 4, 4);
        if (!live)
            return false;
        *live = (int32_t)r->live_rows;
        r->run.rows_device = live;
    }
    r->none_live = (int32_t *)(void *)verify_ptx_buffer(&r->place, "no live rows", 4, 4);
    r->run.workspace = make_workspace(r, &r->run.workspace_bytes);
    return !r->place.failed;
}

/* As the second call of a launch whose first has no live rows. */
static iso_status run_second(PtxTrial *r, const iso_op *op, int n)
{
    iso_run first = r->run;
    first.rows_device = r->none_live;
    return op_run_pair((OpCall[]){{op, r->passed, n, &first}, {op, r->passed, n, &r->run}});
}

iso_status verify_ptx_start(PtxTrial *r, const iso_op *op)
{
    int n = r->n_params + r->n_results;
    if (r->job->phase == ISO_PHASE_PART)
        return iso_op_part(op, r->passed, n, r->roots.tensor.data, &r->run);
    if (r->job->phase == ISO_PHASE_JOIN)
        return iso_op_join(op, r->sources, r->op->layout->ranks, r->passed, n, &r->run);
    if (r->job->uneven & PTX_SORTED)
        return verify_ptx_group_start(r, op, n);
    return r->job->uneven && op_pairs(op, op, r->rows) ? run_second(r, op, n)
                                                       : iso_op_run(op, r->passed, n, &r->run);
}

/* A replay of the launch finds them as it leaves them. */
static bool counters_are_zero(const PtxTrial *r)
{
    const u8 *at = r->run.workspace;
    for (size_t i = 0; at && i < r->counters; i++)
        if (at[i])
            return false;
    return true;
}

/* So that none ends by itself before the CTA does. */
enum { SLOW_COPIES = 16 };

static void run_machine(PtxTrial *r)
{
    Machine *m = &r->worker->machine;
    PtxOutcome *o = r->outcome;
    const MfKernel *kernel = &r->worker->module->manifest->kernels[r->spec->kernel];
    const PtxKernel *program = ptx_find(r->worker->ptx, str_of(kernel->name));
    o->covered = arena_array(r->arena, u8, program ? program->code.n + 1 : 1);
    m->report = (PtxReport){.arena = r->arena, .covered = o->covered};
    m->memory = &r->worker->memory;
    m->copy_turns = r->job->uneven & PTX_SETTLED ? SLOW_COPIES : 0;
    m->early = kernel->waits && !(r->job->uneven & PTX_SETTLED);
    m->wanted = verify_ptx_is_gemm(r) ? verify_ptx_wanted : NULL;
    m->wanted_self = r;
    m->wanted_of = str_of(kernel->name);
    bool prepared = prepare(r);
    if (prepared && r->worker->input->watch)
        r->worker->input->watch(r->worker->input->watch_self, r, false);
    iso_status status = prepared ? verify_ptx_start(r, r->op) : ISO_OUT_OF_MEMORY;
    if (r->worker->input->watch)
        r->worker->input->watch(r->worker->input->watch_self, r, true);
    o->ctas = m->report.ctas;
    o->grid = m->grid;
    o->instructions = m->report.instructions;
    o->longest = m->report.longest;
    if (m->report.findings.n)
        o->finding = m->report.findings.v[0];
    else if (status == ISO_BAD_TENSOR && r->job->uneven)
        o->skipped = true;
    else if (status)
        o->finding = str_format(r->arena, "%s", iso_last_error());
    else if (!counters_are_zero(r))
        o->finding = STR("counters of the workspace are not 0 after the launch");
}

/* ---- the executor -----------------------------------------------------------------------------
 */

/* Marks the local indices of each axis at which something was written. */
static void mark_written(const PtxTensor *t, u8 **marks)
{
    i64 n = (i64)t->bytes / t->element;
    for (i64 at = 0; at < n; at++) {
        if (!t->known[at * t->element])
            continue;
        i64 rest = verify_ptx_flat(t, at);
        for (int i = t->tensor.n_axes - 1; rest >= 0 && i >= 0; i--) {
            marks[i][rest % t->tensor.shape[i]] = 1;
            rest /= t->tensor.shape[i];
        }
    }
}

/* From an axis's marks to marks of its atoms, which are a row-major run. */
static void mark_atoms(const PtxTrial *r, const MfAtoms *axis, const u8 *marks, i64 size,
                       u8 **atoms)
{
    const Manifest *m = r->worker->module->manifest;
    const MfPart *part = op_part(r->op, r->job->phase);
    for (i64 at = 0; at < size; at++) {
        i64 rest = at;
        for (int i = axis->n - 1; marks[at] && i >= 0; i--) {
            i64 own = part_atom_size(m, part, axis->atom[i], r->rows);
            if (atoms[axis->atom[i]])
                atoms[axis->atom[i]][rest % own] = 1;
            rest /= own;
        }
    }
}

static int selection_of(const PtxTrial *r, isoc_selection *select)
{
    const Manifest *m = r->worker->module->manifest;
    const MfPart *part = op_part(r->op, r->job->phase);
    u8 *atoms[MF_MAX_ATOMS] = {NULL};
    int n = 0;
    for (int k = 0; k < r->n_results; k++) {
        const PtxTensor *t = &r->tensor[r->n_params + k];
        const MfTensor *declared = &r->op->op->tensors[r->n_params + k];
        u8 *marks[ISO_MAX_AXES];
        for (int i = 0; i < declared->n_axes; i++) {
            marks[i] = arena_array(r->arena, u8, t->tensor.shape[i] + 1);
            for (int j = 0; j < declared->axes[i].n; j++) {
                int a = declared->axes[i].atom[j];
                if (m->atoms[a].size && !atoms[a])
                    atoms[a] = arena_array(r->arena, u8, part->hi[a] - part->lo[a] + 1);
            }
        }
        mark_written(t, marks);
        for (int i = 0; i < declared->n_axes; i++)
            mark_atoms(r, &declared->axes[i], marks[i], t->tensor.shape[i], atoms);
    }
    for (int a = 0; a < m->n_atoms; a++) {
        if (!atoms[a])
            continue;
        i64 *index = arena_array(r->arena, i64, part->hi[a] - part->lo[a] + 1);
        isoc_selection s = {.axis = m->atoms[a].name, .index = index};
        for (i64 i = 0; i < part->hi[a] - part->lo[a]; i++)
            if (atoms[a][i])
                index[s.n++] = part->lo[a] + i;
        select[n++] = s;
    }
    return n;
}

static bool run_executor(PtxTrial *r)
{
    isoc_tensor tensors[PTX_MAX_TENSORS];
    isoc_selection select[MF_MAX_ATOMS];
    for (int i = 0; i < r->n_params + r->n_results; i++)
        tensors[i] = (isoc_tensor){i < r->n_params ? r->tensor[i].tensor.data
                                                   : r->tensor[i].expected,
                                   r->passed[i].stride};
    isoc_keys keys = r->keys ? verify_ptx_executor_keys(r) : (isoc_keys){0};
    isoc_call call = {
        .op = r->op->op->name,
        .layout = r->op->layout->name,
        .rank = r->op->rank,
        .phase = (isoc_phase)r->job->phase,
        .rows = r->rows,
        .live_rows = r->live_rows < r->part_rows ? r->live_rows : -1,
        .positions = r->run.positions,
        .sequences = r->run.sequences,
        .keys = r->keys ? &keys : NULL,
        .tensors = tensors,
        .roots = r->roots.expected,
        .sources = (const float *const *)r->sources,
        .threads = 1,
    };
    if (r->job->phase == ISO_PHASE_RUN) {
        call.select = select;
        call.n_select = (size_t)selection_of(r, select);
    }
    return isoc_session_run(r->worker->session, &call) == ISOC_OK;
}

/* ---- the comparison ---------------------------------------------------------------------------
 */

static i64 compare(PtxTrial *r, const PtxTensor *t)
{
    size_t each = (size_t)t->element;
    const u8 *actual = t->tensor.data, *expected = t->expected;
    i64 written = 0;
    for (size_t at = 0; at + each <= t->bytes; at += each) {
        if (!t->known[at])
            continue;
        written++;
        if (!r->worker->input->terms_only)
            r->outcome->differ += memcmp(actual + at, expected + at, each) != 0;
    }
    r->outcome->outputs += written;
    return written;
}

static void compare_all(PtxTrial *r)
{
    i64 written = 0;
    if (r->job->phase == ISO_PHASE_PART) {
        written = compare(r, &r->roots);
    } else {
        for (int i = 0; i < r->n_results; i++)
            written += compare(r, &r->tensor[r->n_params + i]);
    }
    i64 want = verify_ptx_outputs(r);
    r->outcome->missing = want > written ? want - written : written - want;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const iso_op *op_of(const PtxWorker *w, const PtxJob *job)
{
    const Manifest *m = w->module->manifest;
    const MfLayout *layout = &m->layouts[job->layout];
    const iso_op *op = NULL;
    const iso_layout at = {.name = layout->name, .rank = job->rank};
    iso_op_get(w->module, m->ops[layout->ops[job->op].op].name, &at, &op);
    return op;
}

/* So few that a CTA of decode has several units. */
enum { ATTEND_MULTIPROCESSORS = 5 };

void verify_ptx_job(PtxWorker *worker, const PtxJob *job, Arena *arena, PtxOutcome *outcome)
{
    PtxTrial *r = arena_new_of(arena, PtxTrial);
    double start = seconds();
    *r = (PtxTrial){.worker = worker, .job = job, .outcome = outcome, .arena = arena};
    r->op = op_of(worker, job);
    r->spec = &worker->module->manifest->specs[job->spec];
    worker->memory = (PtxMemory){.arena = arena};
    r->place = (PtxPlace){.memory = &worker->memory, .arena = arena,
                          .terms = worker->input->prove != NULL};
    choose_rows(r);
    verify_ptx_coordinates(r);
    outcome->rows = r->rows;
    worker->module->multiprocessors = MACHINE_MULTIPROCESSORS;
    if (verify_ptx_is_gemm(r))
        verify_ptx_choose_tiles(r);
    worker->module->row_tiles = job->uneven & PTX_FEW_CTAS ? 1 : 0;
    worker->module->decode_roots = job->requests ? job->requests->roots : 0;
    if (r->keys)
        worker->module->multiprocessors =
            job->requests ? job->requests->multiprocessors : ATTEND_MULTIPROCESSORS;
    if (verify_ptx_is_gemm(r))
        worker->module->multiprocessors = verify_ptx_multiprocessors(r);
    PtxTests tests = {.arena = arena};
    PtxChoices choices = {.arena = arena, .ways = &worker->ways, .by_value = has_limits(r)};
    PtxProof *proof = NULL;
    worker->machine.tests = r->keys && r->place.terms ? &tests : NULL;
    worker->machine.choices = r->spec->family >= MF_DRAW && r->place.terms ? &choices : NULL;
    if (job->uneven & PTX_SORTED && !verify_ptx_group_sorts(r)) {
        outcome->skipped = true;
    } else if (!make_tensors(r)) {
        outcome->finding = STR("no memory for the tensors");
    } else {
        if (verify_ptx_is_gemm(r) && r->spec->gemm.grouped)
            verify_ptx_group_open(r);
        proof = r->place.terms ? verify_ptx_prove_open(r) : NULL;
        run_machine(r);
    }
    if (!outcome->finding.n && !outcome->skipped && proof)
        verify_ptx_prove(proof);
    if (!outcome->finding.n && !outcome->skipped) {
        if (worker->input->terms_only || run_executor(r))
            compare_all(r);
        else
            outcome->finding = STR("the executor refuses the launch");
    }
    verify_ptx_unmap(&r->place.maps);
    outcome->seconds = seconds() - start;
}
