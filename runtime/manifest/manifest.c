/* Reads a manifest. Hostile input is expected: whatever is missing, of another kind or out of
 * range ends the reading with the member's name. */
#include "manifest_impl.h"

/* ---- tensors and ops ---- */

static void read_atom_list(Reader *r, json_t *array, const char *member, MfAtoms *atoms)
{
    if (!json_is_array(array) || json_array_size(array) > MF_MAX_ATOMS) {
        bad(r, member, "is not an array of atoms");
        return;
    }
    atoms->n = (int)json_array_size(array);
    atoms->atom = take(r, (size_t)atoms->n, sizeof(int));
    for (int i = 0; atoms->atom && i < atoms->n; i++)
        atoms->atom[i] = (int)element_int(r, array, i, member, 0, r->out->n_atoms - 1);
}

static void read_source(Reader *r, json_t *object, void *element)
{
    MfSource *source = element;
    source->name = get_string(r, object, "name");
    source->text = get_string(r, object, "text");
}

static void read_atom(Reader *r, json_t *object, void *element)
{
    static const char *const kinds[] = {"none", "position", "sequence"};
    MfAtom *atom = element;
    atom->name = get_string(r, object, "name");
    atom->size = get_int(r, object, "size", 0, INT64_MAX / 4096);
    atom->stored = get_int(r, object, "stored", atom->size, INT64_MAX / 4096);
    const char *coordinate = get_string(r, object, "coordinate");
    int c = 0;
    while (c < 3 && strcmp(kinds[c], coordinate))
        c++;
    if (c == 3)
        bad(r, "coordinate", "is none, position or sequence");
    atom->coordinate = (MfCoordinate)c;
    json_t *of = json_object_get(object, "slots_of");
    atom->slots_of = of ? (int)json_integer_value(of) : -1;
    if (of && (!json_is_integer(of) || atom->slots_of < 0 || atom->slots_of >= MF_MAX_ATOMS))
        bad(r, "slots_of", "is no atom");
}

enum { DTYPES = 4 };
static const char *const dtype_names[DTYPES] = {"bf16", "f16", "f32", "i32"};

const char *manifest_dtype_name(iso_dtype dtype)
{
    return (unsigned)dtype < DTYPES ? dtype_names[dtype] : "?";
}

int manifest_dtype_bytes(iso_dtype dtype)
{
    static const int bytes[DTYPES] = {2, 2, 4, 4};
    return (unsigned)dtype < DTYPES ? bytes[dtype] : 0;
}

void manifest_tensor(Reader *r, json_t *object, void *element)
{
    MfTensor *tensor = element;
    const char *dtype = get_string(r, object, "dtype");
    int d = 0;
    while (d < DTYPES && strcmp(dtype_names[d], dtype))
        d++;
    if (d == DTYPES)
        bad(r, "dtype", "is no element type");
    tensor->dtype = (iso_dtype)d;
    tensor->name = get_string(r, object, "name");
    json_t *axes = get_array(r, object, "axes", ISO_MAX_AXES, &tensor->n_axes);
    for (int i = 0; i < tensor->n_axes; i++)
        read_atom_list(r, json_object_get(json_array_get(axes, (size_t)i), "atoms"), "atoms",
                       &tensor->axes[i]);
}

static void read_op(Reader *r, json_t *object, void *element)
{
    MfOp *op = element;
    op->name = get_string(r, object, "name");
    get_digest(r, object, "fingerprint", op->fingerprint);
    MfTensor *params =
        get_objects(r, object, "params", 64, sizeof(MfTensor), &op->n_params, manifest_tensor);
    MfTensor *results =
        get_objects(r, object, "results", 64, sizeof(MfTensor), &op->n_results, manifest_tensor);
    op->tensors = take(r, (size_t)(op->n_params + op->n_results), sizeof(MfTensor));
    if (r->status)
        return;
    memcpy(op->tensors, params, (size_t)op->n_params * sizeof(MfTensor));
    memcpy(op->tensors + op->n_params, results, (size_t)op->n_results * sizeof(MfTensor));
}

/* ---- kernels and specs ---- */

static MfFamily get_family(Reader *r, json_t *object)
{
    static const char *const names[] = {"map", "row", "gemm", "join", "attend", "draw",
                                        "top", "order"};
    const char *family = get_string(r, object, "family");
    for (int f = 0; f <= MF_ORDER; f++)
        if (!strcmp(names[f], family))
            return (MfFamily)f;
    bad(r, "family", "is no kernel family");
    return MF_MAP;
}

static void read_kernel(Reader *r, json_t *object, void *element)
{
    MfKernel *kernel = element;
    kernel->name = get_string(r, object, "name");
    kernel->family = get_family(r, object);
    kernel->threads = (int)get_int(r, object, "threads", 1, 1024);
    kernel->shared_bytes = (int)get_int(r, object, "shared_bytes", 0, 1 << 20);
    /* Older kernels do not say these. */
    kernel->waits = json_is_true(json_object_get(object, "waits"));
    bool calls = json_object_get(object, "calls") != NULL;
    kernel->calls = calls ? (int)get_int(r, object, "calls", 1, 1024) : 1;
}

static void read_binding(Reader *r, json_t *object, void *element)
{
    MfBinding *binding = element;
    binding->tensor = (int)get_int(r, object, "tensor", 0, 127);
    json_t *fixes = get_array(r, object, "fixes", MF_MAX_ATOMS, &binding->n_fixes);
    binding->fixes = take(r, (size_t)binding->n_fixes, sizeof *binding->fixes);
    for (int i = 0; binding->fixes && i < binding->n_fixes; i++) {
        json_t *pair = json_array_get(fixes, (size_t)i);
        binding->fixes[i].atom = (int)element_int(r, pair, 0, "fixes", 0, r->out->n_atoms - 1);
        binding->fixes[i].at = element_int(r, pair, 1, "fixes", 0, INT64_MAX / 4096);
    }
    json_t *has = get_array(r, object, "has", MF_MAX_DIMS, &binding->n_dims);
    for (int i = 0; i < binding->n_dims; i++)
        binding->has[i] = json_is_true(json_array_get(has, (size_t)i));
    binding->coordinate = get_bool(r, object, "coordinate");
    json_t *lookup = json_object_get(object, "lookup");
    binding->lookup = -1;
    if (!lookup)
        return;
    binding->looked_up = (int)element_int(r, lookup, 0, "lookup", 0, r->out->n_atoms - 1);
    binding->lookup = (int)element_int(r, lookup, 1, "lookup", 0, 63);
}

static void read_views(Reader *r, json_t *object, const char *member, size_t most, MfSpec *spec,
                       int *n, int *views)
{
    json_t *array = get_array(r, object, member, most, n);
    for (int i = 0; i < *n; i++)
        views[i] = (int)element_int(r, array, i, member, 0, spec->n_bindings - 1);
}

static void read_groups(Reader *r, json_t *object, MfSpec *spec)
{
    MfGemm *gemm = &spec->gemm;
    json_t *groups = get_array(r, object, "groups", MF_MAX_GROUPS, &gemm->n_groups);
    for (int g = 0; g < gemm->n_groups && !r->status; g++) {
        MfGroup *group = &gemm->group[g];
        json_t *from = json_array_get(groups, (size_t)g);
        read_atom_list(r, json_object_get(from, "cols"), "cols", &group->cols);
        json_t *products = get_array(r, from, "products", MF_MAX_PARTS, &group->n_products);
        for (int p = 0; p < group->n_products; p++) {
            json_t *product = json_array_get(products, (size_t)p);
            group->b[p] = (int)get_int(r, product, "b", spec->family == MF_JOIN ? -1 : 0,
                                        spec->n_bindings - 1);
            group->b_k_inner[p] = get_bool(r, product, "b_k_inner");
        }
        read_views(r, from, "operands", MF_MAX_OPERANDS, spec, &group->n_operands, group->operand);
        read_views(r, from, "results", MF_MAX_RESULTS, spec, &group->n_results, group->result);
    }
}

static void read_leaves(Reader *r, json_t *object, MfGemm *gemm)
{
    json_t *leaves = get_array(r, object, "leaves", MF_MAX_LEAVES, &gemm->n_leaves);
    if (gemm->n_leaves == 0)
        bad(r, "leaves", "has no element");
    for (int i = 0; i < gemm->n_leaves; i++) {
        json_t *pair = json_array_get(leaves, (size_t)i);
        gemm->leaf_lo[i] = element_int(r, pair, 0, "leaves", 0, INT32_MAX);
        gemm->leaf_hi[i] = element_int(r, pair, 1, "leaves", gemm->leaf_lo[i], INT32_MAX);
    }
}

/* Grouped products, and their joins. */
static void read_chosen(Reader *r, json_t *object, MfSpec *spec)
{
    json_t *chosen = json_object_get(object, "chosen");
    spec->gemm.grouped = chosen != NULL;
    if (!chosen)
        return;
    spec->gemm.experts = (int)element_int(r, chosen, 0, "chosen", 0, r->out->n_atoms - 1);
    spec->gemm.chosen = (int)element_int(r, chosen, 1, "chosen", 0, spec->n_bindings - 1);
    if (spec->gemm.rows.n != 2)
        bad(r, "rows", "are not tokens by slots");
}

static void read_gemm(Reader *r, json_t *object, MfSpec *spec)
{
    MfGemm *gemm = &spec->gemm;
    int n;
    gemm->wgmma = !strcmp(get_string(r, object, "kernel"), "wgmma");
    json_t *tile = get_array(r, object, "tile", 3, &n);
    gemm->tile_m = (int)element_int(r, tile, 0, "tile", 1, 1024);
    gemm->tile_n = (int)element_int(r, tile, 1, "tile", 1, 1024);
    gemm->tile_k = (int)element_int(r, tile, 2, "tile", 1, 1024);
    gemm->stages = (int)get_int(r, object, "stages", 1, 64);
    gemm->across_ctas = get_bool(r, object, "leaves_across_ctas");
    gemm->a = (int)get_int(r, object, "a", 0, spec->n_bindings - 1);
    gemm->a_k_inner = get_bool(r, object, "a_k_inner");
    read_atom_list(r, json_object_get(object, "rows"), "rows", &gemm->rows);
    read_atom_list(r, json_object_get(object, "k"), "k", &gemm->k);
    gemm->roots_out = get_bool(r, object, "roots_out");
    gemm->n_roots = (int)get_int(r, object, "roots", 1, MF_MAX_LEAVES);
    gemm->far = (int)get_int(r, object, "far", 0, MF_MAX_LEAVES);
    gemm->cluster = (int)get_int(r, object, "cluster", 1, 8);
    gemm->high = json_is_true(json_object_get(object, "shares_b")) ? gemm->cluster : 1;
    if (json_object_get(object, "fold")) {
        int n;
        json_t *fold = get_array(r, object, "fold", 2, &n);
        gemm->fold_roots = (int)element_int(r, fold, 0, "fold", 1, 1 << 20);
        gemm->fold_values = (int)element_int(r, fold, 1, "fold", 1, 8);
    }
    read_chosen(r, object, spec);
    if (gemm->grouped) {
        gemm->order = (int)get_int(r, object, "order", 0, r->out->n_kernels - 1);
        gemm->runs_on = get_bool(r, object, "runs_on");
    }
    read_leaves(r, object, gemm);
    read_groups(r, object, spec);
}

static void read_join(Reader *r, json_t *object, MfSpec *spec)
{
    json_t *roots = get_array(r, object, "roots_of_rank", 1024, &spec->n_sources);
    spec->roots_of_source = take(r, (size_t)spec->n_sources, sizeof(int));
    for (int i = 0; spec->roots_of_source && i < spec->n_sources; i++)
        spec->roots_of_source[i] = (int)element_int(r, roots, i, "roots_of_rank", 0, 1 << 20);
    spec->join_of_row = !strcmp(get_string(r, object, "of"), "row");
    read_atom_list(r, json_object_get(object, "rows"), "rows", &spec->gemm.rows);
    spec->values = (int)get_int(r, object, "values", 1, 8);
    read_chosen(r, object, spec);
    read_groups(r, object, spec);
}

static MfAttendKernel get_attend_kernel(Reader *r, json_t *object)
{
    static const char *const names[] = {"mma", "decode", "wgmma", "parts", "join"};
    const char *name = get_string(r, object, "kernel");
    for (int i = 0; !r->status && i < (int)(sizeof names / sizeof names[0]); i++)
        if (!strcmp(name, names[i]))
            return (MfAttendKernel)i;
    bad(r, "kernel", "is none of attention's");
    return MF_ATTEND_MMA;
}

static void read_attend(Reader *r, json_t *object, MfSpec *spec)
{
    MfAttend *attend = &spec->attend;
    if (spec->n_dims != 5)
        bad(r, "dims", "has not the five dimensions of attention");
    attend->kernel = get_attend_kernel(r, object);
    int reads = attend->kernel == MF_ATTEND_JOIN ? -1 : 0; /* the least that it must */
    int writes = attend->kernel == MF_ATTEND_PARTS ? -1 : 0;
    attend->queries = (int)get_int(r, object, "queries", reads, spec->n_bindings - 1);
    attend->keys = (int)get_int(r, object, "keys", reads, spec->n_bindings - 1);
    attend->values = (int)get_int(r, object, "values", reads, spec->n_bindings - 1);
    attend->sinks = (int)get_int(r, object, "sinks", -1, spec->n_bindings - 1);
    attend->value = (int)get_int(r, object, "value", writes, spec->n_bindings - 1);
    attend->lse = (int)get_int(r, object, "lse", -1, spec->n_bindings - 1);
    if (reads)
        spec->n_sources = (int)get_int(r, object, "sources", 1, MF_MAX_SOURCES);
    attend->rows = (int)get_int(r, object, "rows", 16, 128);
    attend->resident = (int)get_int(r, object, "resident", 1, 32);
    attend->causal = get_bool(r, object, "causal");
    attend->split = (int)get_int(r, object, "split", 1, INT32_MAX);
    if (json_object_get(object, "window"))
        attend->window = (int)get_int(r, object, "window", 1, INT32_MAX);
}

static void check_bindings(Reader *r, MfSpec *spec)
{
    const MfOp *op = &r->out->ops[spec->op];
    for (int i = 0; i < spec->n_bindings; i++)
        if (spec->bindings[i].tensor >= op->n_params + op->n_results)
            bad(r, "tensor", "is past the op's tensors");
    for (int i = 0; i < spec->n_bindings; i++)
        if (spec->bindings[i].lookup > i)
            bad(r, "lookup", "is a later binding");
}

static void read_spec(Reader *r, json_t *object, void *element)
{
    MfSpec *spec = element;
    spec->kernel = (int)get_int(r, object, "kernel", 0, r->out->n_kernels - 1);
    spec->op = (int)get_int(r, object, "op", 0, r->out->n_ops - 1);
    spec->family = get_family(r, object);
    json_t *dims = get_array(r, object, "dims", MF_MAX_DIMS, &spec->n_dims);
    for (int i = 0; i < spec->n_dims; i++)
        read_atom_list(r, json_array_get(dims, (size_t)i), "dims", &spec->dims[i]);
    spec->bindings =
        get_objects(r, object, "bindings", 64, sizeof(MfBinding), &spec->n_bindings, read_binding);
    if (r->status)
        return;
    check_bindings(r, spec);
    if (spec->family == MF_GEMM)
        read_gemm(r, json_object_get(object, "gemm"), spec);
    if (spec->family == MF_JOIN)
        read_join(r, json_object_get(object, "join"), spec);
    if (spec->family == MF_ATTEND)
        read_attend(r, json_object_get(object, "attend"), spec);
    if (spec->family == MF_ROW) {
        json_t *row = json_object_get(object, "row");
        spec->row_roots_out = get_bool(r, row, "roots_out");
        spec->row_roots = (int)get_int(r, row, "roots", 0, 1 << 20);
        spec->values = (int)get_int(r, row, "values", 1, 3);
        spec->row_threads = (int)get_int(r, row, "row_threads", 1, 1024);
        spec->row_cluster =
            json_object_get(row, "cluster") ? (int)get_int(r, row, "cluster", 2, 8) : 1;
    }
    json_t *columns = json_object_get(json_object_get(object, "row"), "columns");
    if (columns) /* older kernels have none */
        spec->row_columns = (int)json_integer_value(columns);
    if (spec->row_columns && (spec->n_dims < 3 || spec->row_columns < 0))
        bad(r, "columns", "does not fit the dimensions");
}

/* ---- layouts ---- */

static void read_mesh(Reader *r, json_t *object, void *element)
{
    struct MfMesh *mesh = element;
    mesh->name = get_string(r, object, "name");
    mesh->degree = (int)get_int(r, object, "degree", 1, 1 << 20);
}

static void read_part_atoms(Reader *r, json_t *atoms, MfPart *part)
{
    const char *key;
    json_t *range;
    json_object_foreach(atoms, key, range)
    {
        char *end;
        long atom = strtol(key, &end, 10);
        if (*end || atom < 0 || atom >= r->out->n_atoms) {
            bad(r, "atoms", "has a member that is no atom");
            return;
        }
        part->lo[atom] = element_int(r, range, 0, "atoms", 0, r->out->atoms[atom].stored);
        part->hi[atom] =
            element_int(r, range, 1, "atoms", part->lo[atom], r->out->atoms[atom].stored);
    }
}

static void read_part(Reader *r, json_t *object, void *element)
{
    MfPart *part = element;
    json_t *rows = json_object_get(object, "rows");
    part->rows_count = (int)element_int(r, rows, 1, "rows", 1, 1 << 20);
    part->rows_index = (int)element_int(r, rows, 0, "rows", 0, part->rows_count - 1);
    json_t *keys = json_object_get(object, "keys");
    part->keys_count = keys ? (int)element_int(r, keys, 1, "keys", 1, MF_MAX_SOURCES) : 1;
    part->keys_index = keys ? (int)element_int(r, keys, 0, "keys", 0, part->keys_count - 1) : 0;
    for (int i = 0; i < r->out->n_atoms; i++)
        part->hi[i] = r->out->atoms[i].size;
    read_part_atoms(r, json_object_get(object, "atoms"), part);
}

static MfPart *get_parts(Reader *r, json_t *object, const char *member, int ranks)
{
    int n;
    MfPart *parts = get_objects(r, object, member, 1 << 20, sizeof(MfPart), &n, read_part);
    if (n != ranks)
        bad(r, member, "has not one element a rank");
    return parts;
}

static void read_variant(Reader *r, json_t *object, MfVariant *variant, int ranks)
{
    int n;
    json_t *rows = json_object_get(object, "rows");
    variant->rows_min = element_int(r, rows, 0, "rows", 0, INT64_MAX);
    variant->rows_max = element_int(r, rows, 1, "rows", 0, INT64_MAX);
    json_t *specs = get_array(r, object, "specs", 1 << 20, &n);
    if (n != ranks)
        bad(r, "specs", "has not one element a rank");
    variant->specs = take(r, (size_t)n, sizeof(int));
    for (int i = 0; variant->specs && i < n; i++)
        variant->specs[i] = (int)element_int(r, specs, i, "specs", -1, r->out->n_specs - 1);
}

static void read_sources(Reader *r, json_t *object, MfLayoutOp *at, int ranks)
{
    int n;
    json_t *sources = get_array(r, object, "sources", 1 << 20, &n);
    if (n != ranks)
        bad(r, "sources", "has not one element a rank");
    at->sources = take(r, (size_t)n, sizeof(MfRanks));
    for (int i = 0; at->sources && i < n && !r->status; i++) {
        json_t *ranks_heard = json_array_get(sources, (size_t)i);
        MfRanks *heard = &at->sources[i];
        heard->n = (int)json_array_size(ranks_heard);
        heard->rank = take(r, (size_t)heard->n, sizeof(int));
        for (int j = 0; heard->rank && j < heard->n; j++)
            heard->rank[j] = (int)element_int(r, ranks_heard, j, "sources", 0, ranks - 1);
    }
}

static bool is_join(const MfSpec *spec)
{
    return spec->family == MF_JOIN ||
           (spec->family == MF_ATTEND && spec->attend.kernel == MF_ATTEND_JOIN);
}

/* A layout's op launches kernels of that op alone: a join where it joins, others elsewhere, with
 * as many roots as ranks are heard. */
static void check_specs(Reader *r, const MfLayoutOp *at, int ranks)
{
    const MfSpec *join = at->join < 0 ? NULL : &r->out->specs[at->join];
    for (int i = 0; i < at->n_variants; i++)
        for (int k = 0; k < ranks; k++) {
            int own = at->variants[i].specs[k];
            const MfSpec *spec = own < 0 ? NULL : &r->out->specs[own];
            if (spec && (spec->op != at->op || is_join(spec)))
                bad(r, "specs", "has another op's kernel");
        }
    if (join && (join->op != at->op || !is_join(join)))
        bad(r, "join", "is another op's kernel");
    for (int i = 0; join && i < ranks; i++)
        if (at->sources[i].n != join->n_sources)
            bad(r, "sources", "has not as many ranks as the join has roots");
}

static void read_held(Reader *r, json_t *object, MfLayoutOp *at, int ranks)
{
    int n;
    if (!json_object_get(object, "held"))
        return;
    json_t *held = get_array(r, object, "held", 128, &n);
    if (n != r->out->ops[at->op].n_params + r->out->ops[at->op].n_results)
        bad(r, "held", "has not one element a tensor");
    at->held = take(r, (size_t)n, sizeof(MfPart *));
    for (int i = 0; at->held && i < n && !r->status; i++) {
        json_t *parts = json_array_get(held, (size_t)i);
        if (json_is_null(parts))
            continue;
        at->held[i] = take(r, (size_t)ranks, sizeof(MfPart));
        if (json_array_size(parts) != (size_t)ranks)
            bad(r, "held", "has not one element a rank");
        for (int k = 0; at->held[i] && k < ranks && !r->status; k++)
            read_part(r, json_array_get(parts, (size_t)k), &at->held[i][k]);
    }
}

static void read_layout_op(Reader *r, json_t *object, MfLayoutOp *at, int ranks)
{
    at->op = (int)get_int(r, object, "op", 0, r->out->n_ops - 1);
    at->join = (int)get_int(r, object, "join", -1, r->out->n_specs - 1);
    json_t *variants = get_array(r, object, "variants", 64, &at->n_variants);
    at->variants = take(r, (size_t)at->n_variants, sizeof(MfVariant));
    for (int i = 0; at->variants && i < at->n_variants && !r->status; i++)
        read_variant(r, json_array_get(variants, (size_t)i), &at->variants[i], ranks);
    at->parts = get_parts(r, object, "parts", ranks);
    read_held(r, object, at, ranks);
    if (at->join >= 0) {
        at->join_parts = get_parts(r, object, "join_parts", ranks);
        read_sources(r, object, at, ranks);
    }
    if (!r->status)
        check_specs(r, at, ranks);
}

static void read_layout(Reader *r, json_t *object, void *element)
{
    MfLayout *layout = element;
    layout->name = get_string(r, object, "name");
    layout->ranks = (int)get_int(r, object, "ranks", 1, 1 << 20);
    layout->meshes =
        get_objects(r, object, "meshes", 64, sizeof(struct MfMesh), &layout->n_meshes, read_mesh);
    json_t *ops = get_array(r, object, "ops", 1 << 16, &layout->n_ops);
    layout->ops = take(r, (size_t)layout->n_ops, sizeof(MfLayoutOp));
    for (int i = 0; layout->ops && i < layout->n_ops && !r->status; i++)
        read_layout_op(r, json_array_get(ops, (size_t)i), &layout->ops[i], layout->ranks);
}

/* ---- the whole ---- */

enum { FORMAT = 2 };

static void read_all(Reader *r, json_t *root)
{
    Manifest *m = r->out;
    int64_t format = get_int(r, root, "format", 0, INT32_MAX);
    if (!r->status && format != FORMAT) {
        r->status = iso_fail(ISO_VERSION_MISMATCH,
                             "the manifest has format %d, this library reads format %d; recompile "
                             "the contract or update libiso",
                             (int)format, FORMAT);
        return;
    }
    json_t *contract = json_object_get(root, "contract");
    m->contract = get_string(r, contract, "name");
    m->version = (int)get_int(r, contract, "version", 0, INT32_MAX);
    m->arch = get_string(r, root, "arch");
    get_digest(r, contract, "fingerprint", m->fingerprint);
    get_digest(r, root, "cubin_sha256", m->cubin);
    m->sources =
        get_objects(r, root, "sources", 4096, sizeof(MfSource), &m->n_sources, read_source);
    m->atoms = get_objects(r, root, "atoms", MF_MAX_ATOMS, sizeof(MfAtom), &m->n_atoms, read_atom);
    m->ops = get_objects(r, root, "ops", 1 << 16, sizeof(MfOp), &m->n_ops, read_op);
    m->kernels =
        get_objects(r, root, "kernels", 1 << 16, sizeof(MfKernel), &m->n_kernels, read_kernel);
    m->specs = get_objects(r, root, "specs", 1 << 16, sizeof(MfSpec), &m->n_specs, read_spec);
    m->layouts =
        get_objects(r, root, "layouts", 4096, sizeof(MfLayout), &m->n_layouts, read_layout);
    manifest_model(r, root);
}

iso_status manifest_read(const char *json, size_t size, Manifest **manifest)
{
    *manifest = NULL;
    json_error_t error;
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return iso_fail(ISO_NOT_ISO, "the manifest is not JSON: line %d: %s", error.line,
                        error.text);
    Manifest *m = calloc(1, sizeof *m);
    Memory *memory = calloc(1, sizeof *memory);
    if (!m || !memory) {
        free(m);
        free(memory);
        json_decref(root);
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for the manifest");
    }
    memory->root = root;
    m->memory = memory;
    Reader reader = {memory, m, ISO_OK};
    read_all(&reader, root);
    if (reader.status) {
        manifest_free(m);
        return reader.status;
    }
    *manifest = m;
    return ISO_OK;
}

void manifest_free(Manifest *manifest)
{
    if (!manifest)
        return;
    Memory *memory = manifest->memory;
    for (Block *block = memory->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    json_decref(memory->root);
    free(memory);
    free(manifest);
}
