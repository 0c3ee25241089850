/* The manifest's JSON, written from what the plan decided and the toolchain said. */
#include "manifest_write_impl.h"
#include "base/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- small things ---------------------------------------------------------------------------- */

static json_t *hex(ManifestWriter *w, const Digest *digest)
{
    return digest ? text(digest_hex(w->arena, digest)) : json_null();
}

/* ---- the contract ---------------------------------------------------------------------------- */

/* Through a path from the root somewhere on the way: it is found by that again. */
static bool has_whole_path(const Sources *sources, int i)
{
    Span from = sources->files.v[i].included_from;
    if (from.hi == 0)
        return false;
    const char *text = sources->files.v[from.file].text.s + from.lo;
    return text[*text == '"'] == '/' || has_whole_path(sources, from.file);
}

static json_t *sources_json(ManifestWriter *w, const Sources *sources)
{
    json_t *array = json_array();
    for (int i = 0; i < sources->files.n; i++) {
        json_t *file = json_object();
        Str main = sources->files.v[0].name, name = sources->files.v[i].name;
        put(w, file, "name", text(has_whole_path(sources, i)
                                      ? name : reader_relative(w->arena, main, name)));
        put(w, file, "text", text(sources->files.v[i].text));
        push(w, array, file);
    }
    return array;
}

/* The last factor of a ragged axis is the position, those before are sequences. */
static Str coordinate_kind(const Contract *contract, const Axis *axis)
{
    if (axis->coordinate_of < 0)
        return STR("none");
    const Axis *ragged = &contract->axes[axis->coordinate_of];
    return &contract->axes[ragged->factors[ragged->n_factors - 1]] == axis ? STR("position")
                                                                           : STR("sequence");
}

static json_t *atoms_json(ManifestWriter *w)
{
    json_t *array = json_array();
    for (int i = 0; i < w->contract->n_atoms; i++) {
        const Axis *axis = &w->contract->axes[w->contract->atom_axis[i]];
        json_t *atom = json_object();
        put(w, atom, "name", text(axis->name.text));
        put(w, atom, "size", integer(axis->free ? 0 : axis->size));
        put(w, atom, "stored", integer(axis->free ? 0 : axis->stored));
        put(w, atom, "coordinate", text(coordinate_kind(w->contract, axis)));
        if (axis->sparse_of)
            put(w, atom, "slots_of", integer(w->contract->axes[axis->sparse_of - 1].atom));
        push(w, array, atom);
    }
    return array;
}

/* The atoms of an axis, outer to inner. */
static void axis_atoms(ManifestWriter *w, int id, json_t *array)
{
    const Axis *axis = &w->contract->axes[id];
    if (axis->atom >= 0) {
        push(w, array, integer(axis->atom));
        return;
    }
    for (int i = 0; i < axis->n_factors; i++)
        axis_atoms(w, axis->factors[i], array);
}

json_t *manifest_tensor_json(ManifestWriter *w, const Tensor *tensor)
{
    json_t *object = json_object(), *axes = json_array();
    for (int k = 0; k < tensor->n_axes; k++) {
        json_t *axis = json_object(), *atoms = json_array();
        axis_atoms(w, tensor->axes[k], atoms);
        put(w, axis, "name", text(w->contract->axes[tensor->axes[k]].name.text));
        put(w, axis, "atoms", atoms);
        push(w, axes, axis);
    }
    put(w, object, "name", text(tensor->name.text));
    put(w, object, "dtype",
        json_string(tensor->index_of ? "i32" : dtype_name(tensor->type)));
    put(w, object, "axes", axes);
    return object;
}

static json_t *tensors_json(ManifestWriter *w, const Tensor *tensors, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        push(w, array, manifest_tensor_json(w, &tensors[i]));
    return array;
}

static json_t *ops_json(ManifestWriter *w)
{
    json_t *array = json_array();
    for (int i = 0; i < w->plan->dag->n_ops; i++) {
        const OpDag *dag = &w->plan->dag->ops[i];
        json_t *op = json_object();
        put(w, op, "name", text(dag->op->name));
        put(w, op, "fingerprint", hex(w, &dag->fingerprint));
        put(w, op, "params", tensors_json(w, dag->op->params, dag->op->n_params));
        put(w, op, "results", tensors_json(w, dag->op->results, dag->op->n_results));
        push(w, array, op);
    }
    return array;
}

static json_t *contract_json(ManifestWriter *w)
{
    json_t *object = json_object();
    put(w, object, "name", text(w->contract->name));
    put(w, object, "version", integer(w->contract->version));
    put(w, object, "fingerprint", hex(w, &w->plan->dag->fingerprint));
    put(w, object, "numerics", json_string(w->contract->numerics->name));
    return object;
}

/* ---- kernels and what a launch binds to them ------------------------------------------------- */

static const struct {
    const char *name, *arguments;
} families[] = {
    [FAMILY_MAP] = {"map", "IsoMapCalls"},
    [FAMILY_ROW] = {"row", "IsoRowArgs"},
    [FAMILY_GEMM] = {"gemm", "IsoGemmArgs"},
    [FAMILY_JOIN] = {"join", "IsoJoinArgs"},
    [FAMILY_ATTEND] = {"attend", "IsoAttendArgs"},
    [FAMILY_DRAW] = {"draw", "IsoMapArgs"},
    [FAMILY_TOP] = {"top", "IsoMapArgs"},
    [FAMILY_ORDER] = {"order", "IsoOrderArgs"},
};

static json_t *lines_json(ManifestWriter *w, Str lines)
{
    json_t *array = json_array();
    while (lines.n > 0) {
        const char *end = memchr(lines.s, '\n', (size_t)lines.n);
        int n = end ? (int)(end - lines.s) : lines.n;
        if (n > 0)
            push(w, array, text((Str){lines.s, n}));
        n += end != NULL;
        lines = (Str){lines.s + n, lines.n - n};
    }
    return array;
}

static json_t *census_json(ManifestWriter *w, const Census *c)
{
    json_t *object = json_object();
    put(w, object, "add", integer(c->add));
    put(w, object, "mul", integer(c->mul));
    put(w, object, "fma", integer(c->fma));
    put(w, object, "div", integer(c->div));
    put(w, object, "sqrt", integer(c->sqrt));
    put(w, object, "mma_steps", integer(c->mma_steps));
    return object;
}

/* How many one launch has room for: ISO_CALLS of iso_abi.cuh. */
static int calls_of(const Kernel *k)
{
    return k->family == FAMILY_MAP || (k->family == FAMILY_ROW && !k->row.columns) ? 2 : 1;
}

static json_t *kernels_json(ManifestWriter *w, const ManifestBuild *build)
{
    json_t *array = json_array();
    for (int i = 0; i < w->emitted->n_kernels; i++) {
        const EmittedKernel *k = &w->emitted->kernels[i];
        json_t *kernel = json_object();
        put(w, kernel, "name", text(k->name));
        put(w, kernel, "family", json_string(families[k->kernel->family].name));
        put(w, kernel, "arguments",
            json_string(k->kernel->gemm.grouped ? "IsoGroupArgs"
                                                : families[k->kernel->family].arguments));
        put(w, kernel, "threads", integer(k->threads));
        put(w, kernel, "shared_bytes", integer(k->shared_bytes));
        put(w, kernel, "registers", integer(build->registers ? build->registers[i] : 0));
        put(w, kernel, "waits", json_true());
        put(w, kernel, "calls", integer(calls_of(k->kernel)));
        put(w, kernel, "device_files", lines_json(w, k->device_files));
        put(w, kernel, "census", census_json(w, &k->census));
        push(w, array, kernel);
    }
    return array;
}

static json_t *dim_json(ManifestWriter *w, const PlanDim *dim)
{
    return integers(w, dim->atoms, dim->n_atoms);
}

static json_t *bindings_json(ManifestWriter *w, const Kernel *k)
{
    json_t *array = json_array();
    for (int i = 0; i < k->n_bindings; i++) {
        const Binding *b = &k->bindings[i];
        json_t *binding = json_object(), *fixes = json_array(), *has = json_array();
        for (int f = 0; f < b->n_fixes; f++)
            if (b->fixes[f].at >= 0)
                push(w, fixes, pair(w, b->fixes[f].atom, b->fixes[f].at));
        for (int d = 0; d < b->n_dims; d++)
            push(w, has, json_boolean(b->has[d]));
        put(w, binding, "tensor", integer(b->tensor + (b->result ? k->op->op->n_params : 0)));
        put(w, binding, "fixes", fixes);
        put(w, binding, "has", has);
        put(w, binding, "coordinate", json_boolean(b->coordinate >= 0));
        if (b->lookup >= 0)
            put(w, binding, "lookup", pair(w, binding_looked_up(b), b->lookup));
        push(w, array, binding);
    }
    return array;
}

static json_t *groups_json(ManifestWriter *w, const Kernel *k)
{
    const Gemm *g = &k->gemm;
    json_t *array = json_array();
    for (int i = 0; i < g->n_groups; i++) {
        json_t *group = json_object(), *products = json_array();
        GroupBindings touched = {0};
        if (!emit_group_bindings(k, &g->group[i], &touched))
            w->failed = true;
        for (int p = 0; p < g->group[i].n_products; p++) {
            json_t *product = json_object();
            put(w, product, "b", integer(g->group[i].product[p].b));
            put(w, product, "b_k_inner", json_boolean(g->group[i].product[p].b_k_inner));
            push(w, products, product);
        }
        put(w, group, "cols", dim_json(w, &g->group[i].cols));
        put(w, group, "products", products);
        put(w, group, "operands", integers(w, touched.operand, touched.n_operands));
        put(w, group, "results", integers(w, touched.result, touched.n_results));
        push(w, array, group);
    }
    return array;
}

static json_t *tile_json(ManifestWriter *w, const Gemm *g)
{
    const int tile[] = {g->tile_m, g->tile_n, g->tile_k};
    return integers(w, tile, 3);
}

/* Of what the rows' indices are, and where. */
static json_t *chosen_json(ManifestWriter *w, const Kernel *k)
{
    const Contract *c = w->plan->dag->contract;
    const Tensor *tensor = &k->op->op->params[k->bindings[k->gemm.chosen].tensor];
    return pair(w, c->axes[tensor->index_of - 1].atom, k->gemm.chosen);
}

static json_t *gemm_json(ManifestWriter *w, const Kernel *k)
{
    const Gemm *g = &k->gemm;
    json_t *object = json_object(), *leaves = json_array();
    for (int i = 0; i < g->n_leaves; i++)
        push(w, leaves, pair(w, g->leaf_lo[i], g->leaf_hi[i]));
    put(w, object, "kernel", json_string(g->kernel == KERNEL_WGMMA ? "wgmma" : "stream"));
    put(w, object, "tile", tile_json(w, g));
    put(w, object, "stages", integer(g->stages));
    put(w, object, "leaves_across_ctas", json_boolean(g->leaves == LEAVES_ACROSS_CTAS));
    put(w, object, "a", integer(g->a));
    put(w, object, "a_k_inner", json_boolean(g->a_k_inner));
    put(w, object, "rows", dim_json(w, &g->rows));
    put(w, object, "k", dim_json(w, &g->k));
    put(w, object, "roots_out", json_boolean(g->roots_out));
    put(w, object, "roots", integer(g->n_roots));
    put(w, object, "leaves", leaves);
    if (g->fold.n_reduces)
        put(w, object, "fold", pair(w, g->fold.n_roots, g->fold.values));
    put(w, object, "far", integer(g->far));
    put(w, object, "cluster", integer(g->cluster));
    put(w, object, "shares_b", json_boolean(gemm_shares_b(g)));
    if (g->grouped) {
        put(w, object, "chosen", chosen_json(w, k));
        put(w, object, "order", integer(w->emitted->order));
        put(w, object, "runs_on", json_boolean(g->runs_on));
    }
    put(w, object, "groups", groups_json(w, k));
    return object;
}

static json_t *row_json(ManifestWriter *w, const Kernel *k)
{
    const Row *row = &k->row;
    json_t *object = json_object();
    put(w, object, "reduces", integer(row->n_reduces));
    put(w, object, "roots_out", json_boolean(row->roots_out));
    put(w, object, "roots", integer(row->n_roots));
    put(w, object, "values", integer(monoid_values(row->reduces[0]->monoid)));
    put(w, object, "row_threads", integer(row->threads));
    if (row->columns)
        put(w, object, "columns", integer(row_columns(k)));
    if (row->cluster > 1)
        put(w, object, "cluster", integer(row->cluster));
    return object;
}

/* Of a root. */
static int join_values(const Join *join)
{
    int values = 0;
    for (int i = 0; i < (join->folds ? join->n_reduces : 1); i++)
        values += monoid_values(join->reduces[i]->monoid);
    return values;
}

static json_t *join_json(ManifestWriter *w, const Kernel *k)
{
    const Join *join = &k->join;
    json_t *object = json_object();
    put(w, object, "of", json_string(families[join->of].name));
    put(w, object, "reduces", integer(join->n_reduces));
    put(w, object, "roots_of_rank", integers(w, join->roots_of_rank, join->n_sources));
    put(w, object, "values", integer(join_values(join)));
    put(w, object, "rows", dim_json(w, &k->gemm.rows));
    put(w, object, "groups", groups_json(w, k));
    if (join->of == FAMILY_GEMM && k->gemm.grouped)
        put(w, object, "chosen", chosen_json(w, k));
    return object;
}

static json_t *attend_json(ManifestWriter *w, const AttendKernel *k, int sources)
{
    json_t *object = json_object();
    put(w, object, "queries", integer(k->queries));
    put(w, object, "keys", integer(k->keys));
    put(w, object, "values", integer(k->values));
    put(w, object, "sinks", integer(k->sinks));
    put(w, object, "value", integer(k->value));
    put(w, object, "lse", integer(k->lse));
    put(w, object, "kernel", json_string(attend_choice_name(k->choice)));
    put(w, object, "rows", integer(16 * k->row_tiles));
    put(w, object, "resident", integer(k->resident));
    put(w, object, "causal", json_boolean(k->computes.causal));
    put(w, object, "split", integer(k->computes.split));
    if (k->choice == ATTEND_PARTS && k->computes.window)
        put(w, object, "window", integer(k->computes.window));
    if (k->choice == ATTEND_JOIN)
        put(w, object, "sources", integer(sources));
    return object;
}

static int op_index(const ManifestWriter *w, const OpDag *op)
{
    return (int)(op - w->plan->dag->ops);
}

static json_t *spec_json(ManifestWriter *w, int i)
{
    const Kernel *k = w->plan->kernels.v[i];
    json_t *spec = json_object(), *dims = json_array();
    for (int d = 0; d < k->n_dims; d++)
        push(w, dims, dim_json(w, &k->dims[d]));
    put(w, spec, "kernel", integer(w->emitted->program_of_kernel[i]));
    put(w, spec, "op", integer(op_index(w, k->op)));
    put(w, spec, "family", json_string(families[k->family].name));
    put(w, spec, "dims", dims);
    put(w, spec, "bindings", bindings_json(w, k));
    if (k->family == FAMILY_GEMM)
        put(w, spec, "gemm", gemm_json(w, k));
    if (k->family == FAMILY_ROW ||
        (k->family == FAMILY_JOIN && k->join.of == FAMILY_ROW && !k->join.folds))
        put(w, spec, "row", row_json(w, k));
    if (k->family == FAMILY_JOIN)
        put(w, spec, "join", join_json(w, k));
    if (k->family == FAMILY_ATTEND)
        put(w, spec, "attend", attend_json(w, &k->attend, k->join.n_sources));
    return spec;
}

static json_t *specs_json(ManifestWriter *w)
{
    json_t *array = json_array();
    for (int i = 0; i < w->plan->kernels.n; i++)
        push(w, array, spec_json(w, i));
    return array;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static json_t *part_json(ManifestWriter *w, const Part *part)
{
    json_t *object = json_object(), *atoms = json_object();
    for (int i = 0; i < w->contract->n_atoms; i++) {
        const Axis *axis = &w->contract->axes[w->contract->atom_axis[i]];
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        if (!axis->free && (part->lo[i] != 0 || part->hi[i] != axis->size))
            put(w, atoms, key, pair(w, part->lo[i], part->hi[i]));
    }
    put(w, object, "rows", pair(w, part->rows_index, part->rows_count));
    if (part->keys_count > 1)
        put(w, object, "keys", pair(w, part->keys_index, part->keys_count));
    put(w, object, "atoms", atoms);
    return object;
}

static json_t *parts_json(ManifestWriter *w, const Part *parts, int ranks)
{
    json_t *array = json_array();
    for (int i = 0; i < ranks; i++)
        push(w, array, part_json(w, &parts[i]));
    return array;
}

static json_t *moves_json(ManifestWriter *w, const Move *moves, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        push(w, array, json_string(move_name(moves ? moves[i] : MOVE_NONE)));
    return array;
}

static json_t *variants_json(ManifestWriter *w, const PlanOp *op)
{
    json_t *array = json_array();
    for (int i = 0; i < op->n_variants; i++) {
        const Variant *v = &op->variants[i];
        json_t *variant = json_object();
        put(w, variant, "rows", pair(w, v->rows_min, v->rows_max));
        put(w, variant, "schedule", json_string(v->schedule));
        put(w, variant, "specs", integers(w, v->kernel_of_rank, op->at.ranks));
        push(w, array, variant);
    }
    return array;
}

static void put_join(ManifestWriter *w, json_t *object, const PlanOp *op)
{
    int n = w->plan->kernels.v[op->join_kernel]->join.n_sources;
    json_t *sources = json_array();
    for (int rank = 0; rank < op->at.ranks; rank++)
        push(w, sources, integers(w, op->sources_of_rank + rank * n, n));
    put(w, object, "sources", sources);
    put(w, object, "join_parts", parts_json(w, op->finish_of_rank, op->at.ranks));
}

/* Where each rank holds a tensor, unless that is where it is needed. */
static json_t *held_json(ManifestWriter *w, const PlanOp *op, const Tensor *tensor, Move move)
{
    if (move == MOVE_NONE)
        return json_null();
    json_t *array = json_array();
    for (int rank = 0; rank < op->at.ranks; rank++) {
        Part held;
        layout_held(w->contract, &op->at, tensor, rank, &held);
        push(w, array, part_json(w, &held));
    }
    return array;
}

static json_t *all_held_json(ManifestWriter *w, const PlanOp *op)
{
    json_t *array = json_array();
    const Op *of = op->op->op;
    for (int i = 0; i < of->n_params; i++)
        push(w, array, held_json(w, op, &of->params[i],
                                 op->at.param_move ? op->at.param_move[i] : MOVE_NONE));
    for (int i = 0; i < of->n_results; i++)
        push(w, array, held_json(w, op, &of->results[i],
                                 op->at.result_move ? op->at.result_move[i] : MOVE_NONE));
    return array;
}

static json_t *plan_op_json(ManifestWriter *w, const PlanOp *op)
{
    json_t *object = json_object(), *moves = json_object();
    put(w, moves, "params", moves_json(w, op->at.param_move, op->op->op->n_params));
    put(w, moves, "results", moves_json(w, op->at.result_move, op->op->op->n_results));
    put(w, object, "op", integer(op_index(w, op->op)));
    put(w, object, "join", integer(op->join_kernel));
    put(w, object, "moves", moves);
    put(w, object, "held", all_held_json(w, op));
    put(w, object, "variants", variants_json(w, op));
    put(w, object, "parts", parts_json(w, op->part_of_rank, op->at.ranks));
    if (op->join_kernel >= 0)
        put_join(w, object, op);
    return object;
}

static json_t *layout_json(ManifestWriter *w, const PlanOp *first)
{
    const Layout *layout = first->at.layout;
    json_t *object = json_object(), *meshes = json_array();
    for (int i = 0; layout && i < layout->n_meshes; i++)
        if (layout->meshes[i].n_product == 0) {
            json_t *mesh = json_object();
            put(w, mesh, "name", text(layout->meshes[i].name.text));
            put(w, mesh, "degree", integer(layout->meshes[i].degree));
            push(w, meshes, mesh);
        }
    put(w, object, "name", layout ? text(layout->name.text) : json_string(""));
    put(w, object, "ranks", integer(first->at.ranks));
    put(w, object, "meshes", meshes);
    put(w, object, "ops", json_array());
    return object;
}

static json_t *layouts_json(ManifestWriter *w)
{
    json_t *array = json_array(), *layout = NULL;
    for (int i = 0; i < w->plan->ops.n; i++) {
        const PlanOp *op = &w->plan->ops.v[i];
        if (i == 0 || op->at.layout != w->plan->ops.v[i - 1].at.layout) {
            layout = layout_json(w, op);
            push(w, array, layout);
        }
        push(w, json_object_get(layout, "ops"), plan_op_json(w, op));
    }
    return array;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_build(ManifestWriter *w, json_t *root, const ManifestBuild *build)
{
    json_t *options = json_array();
    for (int i = 0; i < build->n_options; i++)
        push(w, options, text(build->options[i]));
    put(w, root, "format", integer(MANIFEST_FORMAT));
    put(w, root, "isoc", json_string(ISOC_VERSION));
    put(w, root, "arch", text(build->arch));
    put(w, root, "nvrtc", pair(w, build->nvrtc_major, build->nvrtc_minor));
    put(w, root, "options", options);
    put(w, root, "cubin_sha256", hex(w, build->cubin));
    put(w, root, "cuda_sha256", hex(w, build->cuda));
    put(w, root, "ptx_sha256", hex(w, build->ptx));
}

static json_t *certificate_json(ManifestWriter *w, const Certificate *certificate)
{
    Text json = {.arena = w->arena};
    proof_json(w->plan->dag, certificate, &json);
    return json_loadb(json.s, (size_t)json.n, 0, NULL);
}

bool manifest_write(const Sources *sources, const Plan *plan, const Emitted *emitted,
                    const Certificate *certificate, const ManifestBuild *build, Text *out)
{
    ManifestWriter w = {.plan = plan, .contract = plan->dag->contract, .emitted = emitted,
                .arena = out->arena};
    json_t *root = json_object();
    put_build(&w, root, build);
    put(&w, root, "contract", contract_json(&w));
    put(&w, root, "sources", sources_json(&w, sources));
    put(&w, root, "atoms", atoms_json(&w));
    put(&w, root, "ops", ops_json(&w));
    put(&w, root, "kernels", kernels_json(&w, build));
    put(&w, root, "specs", specs_json(&w));
    put(&w, root, "layouts", layouts_json(&w));
    put(&w, root, "model", manifest_model_json(&w));
    put(&w, root, "certificate", certificate_json(&w, certificate));
    char *json = w.failed ? NULL : json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    if (!json)
        return false;
    text_printf(out, "%s\n", json);
    free(json);
    return true;
}
