/* Ops: lookup, what they take, and running them on the module's device. */
#include "module.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lookup ---- */

static void degrees_text(const MfLayout *layout, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < layout->n_meshes && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s=%d", i ? " " : "", layout->meshes[i].name,
                              layout->meshes[i].degree);
}

/* "; it has tp1, tp2, ..." of what there is instead. */
typedef const char *NameOf(const iso_module *module, int index);

static const char *names_text(const iso_module *module, NameOf *name_of, char text[512])
{
    size_t n = 0;
    const char *name;
    text[0] = 0;
    for (int i = 0; (name = name_of(module, i)) && n + strlen(name) + 16 < 512; i++)
        n += (size_t)snprintf(text + n, 512 - n, "%s%s", i ? ", " : "; it has ", name);
    if (name)
        snprintf(text + n, 512 - n, ", ...");
    return text;
}

static bool layout_matches(const MfLayout *layout, const iso_layout *wanted)
{
    char text[512];
    if (!wanted)
        return layout->ranks == 1;
    if (wanted->name)
        return !strcmp(layout->name, wanted->name);
    degrees_text(layout, text, sizeof text);
    return wanted->degrees && !strcmp(text, wanted->degrees);
}

static iso_status find_layout(const iso_module *module, const iso_layout *wanted,
                              const MfLayout **layout)
{
    char names[512];
    const Manifest *manifest = module->manifest;
    for (int i = 0; i < manifest->n_layouts; i++)
        if (layout_matches(&manifest->layouts[i], wanted)) {
            *layout = &manifest->layouts[i];
            return ISO_OK;
        }
    if (!wanted)
        return iso_fail(ISO_UNKNOWN_LAYOUT, "contract %s has no layout of one rank%s",
                        manifest->contract, names_text(module, iso_module_layout_name, names));
    return iso_fail(ISO_UNKNOWN_LAYOUT, "contract %s has no layout %s%s", manifest->contract,
                    wanted->name      ? wanted->name
                    : wanted->degrees ? wanted->degrees
                                      : "(null)",
                    names_text(module, iso_module_layout_name, names));
}

/* The module's handles lie in the order layout, op, rank. */
iso_status iso_op_get(const iso_module *module, const char *name, const iso_layout *layout,
                      const iso_op **op)
{
    if (op)
        *op = NULL;
    if (!module || !name || !op)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_get: module, name and op must not be NULL");
    const MfLayout *at = NULL;
    iso_status status = find_layout(module, layout, &at);
    if (status)
        return status;
    int rank = layout ? layout->rank : 0;
    if (rank < 0 || rank >= at->ranks)
        return iso_fail(ISO_BAD_RANK, "rank %d, but layout %s has ranks 0 to %d", rank, at->name,
                        at->ranks - 1);
    for (int i = 0; i < module->n_ops; i++) {
        const iso_op *candidate = &module->ops[i];
        if (candidate->layout == at && candidate->rank == rank &&
            !strcmp(candidate->op->name, name)) {
            *op = candidate;
            return ISO_OK;
        }
    }
    char names[512];
    return iso_fail(ISO_UNKNOWN_OP, "contract %s has no op %s%s", module->manifest->contract, name,
                    names_text(module, iso_module_op_name, names));
}

/* ---- what an op takes ---- */

iso_status iso_op_tensors(const iso_op *op, int *params, int *results)
{
    if (!op || !params || !results)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_tensors: NULL argument");
    *params = op->op->n_params;
    *results = op->op->n_results;
    return ISO_OK;
}

static iso_status check_rows(const iso_op *op, iso_phase phase, int64_t rows)
{
    if (!op)
        return iso_fail(ISO_INVALID_ARGUMENT, "the op is NULL");
    if (rows < 0 || rows > INT32_MAX)
        return iso_fail(ISO_INVALID_ARGUMENT, "%" PRId64 " rows; need 0 to %d", rows, INT32_MAX);
    if ((unsigned)phase > ISO_PHASE_JOIN)
        return iso_fail(ISO_INVALID_ARGUMENT, "phase %d is none of iso_phase", (int)phase);
    if (phase == ISO_PHASE_JOIN && op->at->join < 0)
        return iso_fail(ISO_NO_JOIN, "op %s in layout %s needs no join", op->op->name,
                        op->layout->name);
    return ISO_OK;
}

iso_status iso_op_tensor(const iso_op *op, iso_phase phase, int64_t rows, int index,
                         iso_tensor *tensor, const char **name)
{
    iso_status status = check_rows(op, phase, rows);
    if (status)
        return status;
    int n = op->op->n_params + op->op->n_results;
    if (!tensor)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_tensor: tensor is NULL");
    if (index < 0 || index >= n)
        return iso_fail(ISO_BAD_COUNT, "op %s has tensors 0 to %d, not %d", op->op->name, n - 1,
                        index);
    const MfTensor *declared = &op->op->tensors[index];
    memset(tensor, 0, sizeof *tensor);
    tensor->dtype = declared->dtype;
    tensor->n_axes = declared->n_axes;
    int64_t stride = 1;
    for (int i = declared->n_axes - 1; i >= 0; i--) {
        tensor->shape[i] =
            part_size(op->module->manifest, op_part(op, phase), &declared->axes[i], rows);
        tensor->stride[i] = stride;
        stride *= tensor->shape[i] ? tensor->shape[i] : 1;
    }
    if (name)
        *name = declared->name;
    return ISO_OK;
}

/* The index of a part's first element along a declared axis, its atoms being one row-major run. */
static int64_t axis_origin(const iso_op *op, const MfPart *part, const MfAtoms *axis, int64_t rows)
{
    const Manifest *manifest = op->module->manifest;
    int64_t origin = 0;
    for (int i = 0; i < axis->n; i++) {
        const MfAtom *atom = &manifest->atoms[axis->atom[i]];
        int64_t lo = part->lo[axis->atom[i]], hi;
        if (!atom->size && !atom->coordinate)
            part_rows_of(part, rows, &lo, &hi);
        origin = origin * (atom->size ? atom->size : 1) + lo;
    }
    return origin;
}

iso_status iso_op_origin(const iso_op *op, iso_phase phase, int64_t rows, int index,
                         int64_t origin[ISO_MAX_AXES])
{
    iso_tensor tensor;
    iso_status status = iso_op_tensor(op, phase, rows, index, &tensor, NULL);
    if (!status && !origin)
        status = iso_fail(ISO_INVALID_ARGUMENT, "iso_op_origin: origin is NULL");
    for (int i = 0; !status && i < tensor.n_axes; i++)
        origin[i] = axis_origin(op, op_part(op, phase), &op->op->tensors[index].axes[i], rows);
    return status;
}

iso_status iso_op_schedules(const iso_op *op, int *schedules)
{
    if (!op || !schedules)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_schedules: NULL argument");
    *schedules = op->at->n_variants;
    return ISO_OK;
}

iso_status iso_op_fingerprint(const iso_op *op, uint8_t digest[32])
{
    if (!op || !digest)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_fingerprint: NULL argument");
    memcpy(digest, op->op->fingerprint, 32);
    return ISO_OK;
}

iso_status iso_op_needs_join(const iso_op *op, int *needs)
{
    if (!op || !needs)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_needs_join: NULL argument");
    *needs = op->at->join >= 0 && !op_joins_alone(op);
    return ISO_OK;
}

iso_status iso_op_roots(const iso_op *op, int64_t rows, size_t *bytes)
{
    return iso_op_roots_of_keys(op, rows, 0, bytes);
}

iso_status iso_op_roots_of_keys(const iso_op *op, int64_t rows, int64_t most_keys, size_t *bytes)
{
    iso_status status = check_rows(op, ISO_PHASE_JOIN, rows);
    if (!status && !bytes)
        status = iso_fail(ISO_INVALID_ARGUMENT, "iso_op_roots: bytes is NULL");
    if (!status && most_keys <= 0 && op_shares_keys(op))
        status = iso_fail(ISO_INVALID_ARGUMENT, "op %s in layout %s has roots by keys: "
                          "iso_op_roots_of_keys, with iso_keys.most_keys", op->op->name,
                          op->layout->name);
    if (!status)
        *bytes = roots_bytes(op, rows, most_keys);
    return status;
}

static iso_status check_schedule(const iso_op *op, int schedule)
{
    if (schedule >= 0 && schedule <= op->at->n_variants)
        return ISO_OK;
    return iso_fail(ISO_INVALID_ARGUMENT, "schedule %d, but op %s has 1 to %d (0: by rows)",
                    schedule, op->op->name, op->at->n_variants);
}

iso_status iso_op_workspace(const iso_op *op, int64_t rows, int schedule, size_t *bytes)
{
    iso_status status = check_rows(op, ISO_PHASE_RUN, rows);
    if (!status && !bytes)
        status = iso_fail(ISO_INVALID_ARGUMENT, "iso_op_workspace: bytes is NULL");
    if (!status)
        status = check_schedule(op, schedule);
    if (!status)
        *bytes = op->module->device == ISO_CUDA ? workspace_bytes(op, rows, schedule) : 0;
    return status;
}

iso_status iso_op_kernel(const iso_op *op, iso_phase phase, int64_t rows, int schedule,
                         const char **name)
{
    iso_status status = check_rows(op, phase, rows);
    if (!status)
        status = check_schedule(op, schedule);
    if (status)
        return status;
    const MfSpec *spec = op_spec(op, phase, rows, schedule);
    if (!name)
        return iso_fail(ISO_INVALID_ARGUMENT, "iso_op_kernel: name is NULL");
    *name = spec ? op->module->manifest->kernels[spec->kernel].name : "";
    return ISO_OK;
}

/* ---- running ---- */

static iso_status check_workspace(const iso_op *op, const iso_run *run)
{
    size_t need =
        op->module->device == ISO_CUDA ? workspace_bytes(op, run->rows, run->schedule) : 0;
    if (need == 0 ||
        (run->workspace && run->workspace_bytes >= need && (uintptr_t)run->workspace % 256 == 0))
        return ISO_OK;
    return iso_fail(ISO_WORKSPACE,
                    "op %s needs %zu bytes of workspace aligned to 256, got %zu at %p",
                    op->op->name, need, run->workspace_bytes, run->workspace);
}

/* What attention needs of each row, and of each sequence. */
static iso_status check_keys(const iso_op *op, const MfSpec *spec, const iso_run *run)
{
    const iso_keys *keys = run->keys;
    if (!run->positions || !run->sequences)
        return iso_fail(ISO_INVALID_ARGUMENT, "op %s: iso_run.positions and .sequences must hold "
                        "each row's", op->op->name);
    if (!spec->attend.causal && (!keys || !keys->lengths))
        return iso_fail(ISO_INVALID_ARGUMENT, "op %s: iso_run.keys must have lengths, since a row "
                        "sees all keys of its sequence", op->op->name);
    if (keys && keys->block_table && (keys->page <= 0 || keys->starts))
        return iso_fail(ISO_INVALID_ARGUMENT, "op %s: iso_run.keys has a block table and %s",
                        op->op->name, keys->starts ? "starts" : "no size of a page");
    return ISO_OK;
}

/* A table needs the coordinate of each row that it is indexed by. */
static iso_status check_coordinates(const iso_op *op, const MfSpec *spec, const iso_run *run)
{
    if (spec->family == MF_DRAW && !run->positions)
        return iso_fail(ISO_INVALID_ARGUMENT, "op %s draws by position: iso_run.positions must "
                        "hold each row's", op->op->name);
    for (int b = 0; b < spec->n_bindings; b++) {
        const MfTensor *tensor = &op->op->tensors[spec->bindings[b].tensor];
        for (int i = 0; spec->bindings[b].coordinate && i < tensor->n_axes; i++) {
            if (!axis_is_table(op->module->manifest, &tensor->axes[i]))
                continue;
            const MfAtom *atom = &op->module->manifest->atoms[tensor->axes[i].atom[0]];
            bool position = atom->coordinate == MF_POSITION;
            if (!(position ? run->positions : run->sequences))
                return iso_fail(ISO_INVALID_ARGUMENT,
                                "op %s: tensor %s is indexed by %s: iso_run.%s must hold each "
                                "row's", op->op->name, tensor->name, atom->name,
                                position ? "positions" : "sequences");
        }
    }
    return ISO_OK;
}

/* A rank whose part is empty, of the op or of its rows, has nothing to launch: that is no error. */
static bool nothing_to_do(const iso_op *op, iso_phase phase, int64_t rows)
{
    const MfTensor *result = &op->op->tensors[op->op->n_params];
    for (int i = 0; i < result->n_axes; i++)
        if (part_size(op->module->manifest, op_part(op, phase), &result->axes[i], rows) == 0)
            return true;
    return false;
}

/* Finds the spec of what is asked and checks the rest; *nothing: there is nothing to launch. */
static iso_status prepare(Launch *launch, int n, bool *nothing)
{
    const iso_op *op = launch->op;
    *nothing = true;
    if (!launch->run || !launch->tensors)
        return iso_fail(ISO_INVALID_ARGUMENT, "the run or the tensors are NULL");
    iso_status status = check_rows(op, launch->phase, launch->run->rows);
    if (!status)
        status = check_schedule(op, launch->run->schedule);
    if (status)
        return status;
    launch->spec = run_spec(op, launch->phase, launch->run);
    if (!launch->spec || nothing_to_do(op, launch->phase, launch->run->rows))
        return ISO_OK;
    *nothing = false;
    status =
        op_check_tensors(op, launch->phase, launch->spec, launch->tensors, n, launch->run->rows);
    if (!status)
        status = check_coordinates(op, launch->spec, launch->run);
    if (!status && launch->spec->family == MF_ATTEND)
        status = check_keys(op, launch->spec, launch->run);
    if (!status && launch->phase != ISO_PHASE_JOIN)
        status = check_workspace(op, launch->run);
    return status;
}

static iso_status launch_on(const Launch *launch)
{
    return launch->op->module->device == ISO_CUDA ? launch_cuda(launch) : launch_cpu(launch);
}

static iso_status run_phase(Launch *launch, int n)
{
    bool nothing;
    iso_status status = prepare(launch, n, &nothing);
    return status || nothing ? status : launch_on(launch);
}

/* Both phases, with the roots in the workspace. */
static iso_status run_alone(const iso_op *op, const iso_tensor *tensors, int n,
                            const iso_run *run)
{
    Launch launch = {.op = op, .phase = ISO_PHASE_RUN, .tensors = tensors, .run = run};
    if (!run)
        return iso_fail(ISO_INVALID_ARGUMENT, "the run or the tensors are NULL");
    iso_status status = check_rows(op, ISO_PHASE_PART, run->rows);
    if (!status)
        status = check_schedule(op, run->schedule);
    if (status)
        return status;
    launch.phase = ISO_PHASE_PART;
    if (run->workspace)
        launch.roots = (char *)run->workspace + roots_place(op, run->rows, run->schedule);
    status = run_phase(&launch, n);
    if (status)
        return status;
    const void **sources = calloc((size_t)op->layout->ranks, sizeof *sources);
    if (!sources)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for %d ranks", op->layout->ranks);
    sources[op->rank] = launch.roots;
    launch.phase = ISO_PHASE_JOIN;
    launch.sources = sources;
    launch.early = true;
    status = run_phase(&launch, n);
    free(sources);
    return status;
}

iso_status iso_op_run(const iso_op *op, const iso_tensor *tensors, int n, const iso_run *run)
{
    if (op && op_joins_alone(op) && op->module->device == ISO_CUDA)
        return run_alone(op, tensors, n, run);
    if (op && op->at->join >= 0 && !op_joins_alone(op))
        return iso_fail(ISO_NEEDS_JOIN, "op %s in layout %s ends in a join over ranks: use "
                        "iso_op_part and iso_op_join, or iso_op_run_group", op->op->name,
                        op->layout->name);
    Launch launch = {.op = op, .phase = ISO_PHASE_RUN, .tensors = tensors, .run = run};
    return run_phase(&launch, n);
}

/* ---- two calls in one launch ---- */

static const MfSpec *runs_alone(const iso_op *op, int64_t rows)
{
    bool whole = op->at->join < 0 && op->module->device == ISO_CUDA;
    const MfSpec *spec = whole ? op_spec(op, ISO_PHASE_RUN, rows, 0) : NULL;
    return spec && (spec->family == MF_MAP || spec->family == MF_ROW) ? spec : NULL;
}

bool op_pairs(const iso_op *a, const iso_op *b, int64_t rows)
{
    const MfSpec *x = runs_alone(a, rows), *y = runs_alone(b, rows);
    return x && y && a->module == b->module && x->kernel == y->kernel &&
           a->module->manifest->kernels[x->kernel].calls > 1;
}

iso_status op_run_pair(const OpCall calls[2])
{
    Launch launches[2];
    bool nothing[2];
    for (int i = 0; i < 2; i++) {
        launches[i] = (Launch){.op = calls[i].op, .phase = ISO_PHASE_RUN,
                               .tensors = calls[i].tensors, .run = calls[i].run};
        iso_status status = prepare(&launches[i], calls[i].n, &nothing[i]);
        if (status)
            return status;
    }
    if (!nothing[0] && !nothing[1])
        launches[0].beside = &launches[1];
    for (int i = 0; i < 2; i++)
        if (!nothing[i] && !(i && !nothing[0]))
            return launch_on(&launches[i]);
    return ISO_OK;
}

/* ---- two grouped products ---- */

static const MfSpec *groups_alone(const iso_op *op, int64_t rows)
{
    bool whole = op->at->join < 0 && op->module->device == ISO_CUDA;
    const MfSpec *spec = whole ? op_spec(op, ISO_PHASE_RUN, rows, 0) : NULL;
    return spec && spec->family == MF_GEMM && spec->gemm.grouped ? spec : NULL;
}

bool op_gathers(const iso_op *op, int64_t rows, int *from, int *chosen)
{
    const MfSpec *spec = groups_alone(op, rows);
    if (!spec)
        return false;
    *from = spec->bindings[spec->gemm.a].tensor;
    *chosen = spec->bindings[spec->gemm.chosen].tensor;
    return true;
}

bool op_chains(const iso_op *a, const iso_op *b, int64_t rows)
{
    const MfSpec *x = groups_alone(a, rows), *y = groups_alone(b, rows);
    return x && y && a->module == b->module && a->op->n_results == 1 &&
           group_gives_sorted(x) && group_takes_sorted(y) && group_same_order(a, x, b, y);
}

iso_status op_run_sorted(const OpCall *call, bool in, bool out, bool ordered)
{
    Launch launch = {.op = call->op, .phase = ISO_PHASE_RUN, .tensors = call->tensors,
                     .run = call->run, .sorted_in = in, .sorted_out = out, .ordered = ordered};
    return run_phase(&launch, call->n);
}

iso_status op_run_chain(const OpCall calls[2])
{
    iso_status status = op_run_sorted(&calls[0], false, true, false);
    return status ? status : op_run_sorted(&calls[1], true, false, true);
}

iso_status iso_op_part(const iso_op *op, const iso_tensor *tensors, int n, void *roots,
                       const iso_run *run)
{
    if (!op)
        return iso_fail(ISO_INVALID_ARGUMENT, "the op is NULL");
    if (op->at->join < 0)
        return iso_fail(ISO_NO_JOIN, "op %s in layout %s needs no join", op->op->name,
                        op->layout->name);
    if (!roots || (uintptr_t)roots % 256)
        return iso_fail(ISO_INVALID_ARGUMENT, "roots at %p; need a buffer aligned to 256 bytes",
                        roots);
    Launch launch = {
        .op = op, .phase = ISO_PHASE_PART, .tensors = tensors, .run = run, .roots = roots};
    return run_phase(&launch, n);
}

/* Only the ranks that this one hears need a buffer. */
static iso_status check_sources(const iso_op *op, const void *const *roots, int ranks)
{
    if (!roots || ranks != op->layout->ranks)
        return iso_fail(ISO_INVALID_ARGUMENT, "layout %s has %d ranks, got roots of %d",
                        op->layout->name, op->layout->ranks, roots ? ranks : 0);
    const MfRanks *heard = &op->at->sources[op->rank];
    for (int i = 0; i < heard->n; i++)
        if (!roots[heard->rank[i]])
            return iso_fail(ISO_INVALID_ARGUMENT, "the roots of rank %d are NULL", heard->rank[i]);
    return ISO_OK;
}

iso_status op_join_window(const iso_op *op, const void *const *roots, int ranks,
                          const iso_tensor *tensors, int n, const iso_run *run,
                          const Window *window, bool early)
{
    iso_status status = check_rows(op, ISO_PHASE_JOIN, 0);
    if (!status)
        status = check_sources(op, roots, ranks);
    if (status)
        return status;
    if (window && window->n == 0)
        return ISO_OK;
    Launch launch = {.op = op,
                     .phase = ISO_PHASE_JOIN,
                     .tensors = tensors,
                     .run = run,
                     .sources = roots,
                     .window = window,
                     .early = early};
    return run_phase(&launch, n);
}

iso_status iso_op_join(const iso_op *op, const void *const *roots, int ranks,
                       const iso_tensor *tensors, int n, const iso_run *run)
{
    return op_join_window(op, roots, ranks, tensors, n, run, NULL, false);
}
