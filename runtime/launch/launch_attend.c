/* Launches attention: the views of its operands, where keys are, and which tokens a CTA takes. */
#include "launch.h"

#include <string.h>

enum { TOKENS, HEADS, GROUP, DEPTH, WIDTH, DIMS };
enum { ALIGNED = 16, STEP = 8 }; /* bytes of a copy, elements */

static iso_status bind_view(const Launch *launch, int binding, IsoView *out)
{
    const MfSpec *spec = launch->spec;
    const MfAtoms *dims[DIMS];
    View view;
    if (binding < 0)
        return ISO_OK;
    for (int d = 0; d < DIMS; d++)
        dims[d] = &spec->dims[d];
    iso_status status = view_bind(launch->op, launch->phase, &spec->bindings[binding], dims, DIMS,
                                  launch->tensors, launch->run->rows, &view);
    out->ptr = status ? NULL : view.data;
    for (int d = 0; d < DIMS && !status; d++)
        out->stride[d] = view.stride[d];
    return status;
}

int attend_stored_axis(const Launch *launch, int tensor, MfCoordinate kind)
{
    const Manifest *manifest = launch->op->module->manifest;
    const MfTensor *declared = &launch->op->op->tensors[tensor];
    for (int i = 0; i < declared->n_axes; i++)
        if (axis_is_table(manifest, &declared->axes[i]) &&
            manifest->atoms[declared->axes[i].atom[0]].coordinate == kind)
            return i;
    return -1;
}

static int64_t stored_stride(const Launch *launch, int binding, MfCoordinate kind)
{
    int tensor = binding < 0 ? -1 : launch->spec->bindings[binding].tensor;
    int axis = binding < 0 ? -1 : attend_stored_axis(launch, tensor, kind);
    return axis < 0 ? 0 : launch->tensors[tensor].stride[axis];
}

/* What a copy of 16 bytes needs: neighbours, and rows that begin at multiples of it. */
static iso_status check_copied(const Launch *launch, int binding, int inner, const IsoView *view)
{
    int tensor = launch->spec->bindings[binding].tensor;
    const char *name = launch->op->op->tensors[tensor].name;
    bool even = (uintptr_t)view->ptr % ALIGNED == 0 &&
                stored_stride(launch, binding, MF_SEQUENCE) % STEP == 0 &&
                stored_stride(launch, binding, MF_POSITION) % STEP == 0;
    for (int d = 0; d < DEPTH; d++)
        even = even && view->stride[d] % STEP == 0;
    if (view->stride[inner] != 1)
        return iso_fail(ISO_BAD_TENSOR, "op %s: the innermost axes of tensor %s have stride %lld; "
                        "attention reads them as neighbours", launch->op->op->name, name,
                        (long long)view->stride[inner]);
    if (!even)
        return iso_fail(ISO_BAD_TENSOR, "op %s: tensor %s must lie on 16 bytes, with strides that "
                        "are multiples of 8 elements", launch->op->op->name, name);
    return ISO_OK;
}

static iso_status bind_views(const Launch *launch, IsoAttendArgs *args)
{
    const MfAttend *a = &launch->spec->attend;
    const struct {
        int binding;
        IsoView *view;
    } views[] = {{a->queries, &args->q}, {a->keys, &args->k},   {a->values, &args->v},
                 {a->sinks, &args->sinks}, {a->value, &args->o}, {a->lse, &args->lse}};
    iso_status status = ISO_OK;
    for (size_t i = 0; i < sizeof views / sizeof views[0] && !status; i++)
        status = bind_view(launch, views[i].binding, views[i].view);
    if (!status && a->queries >= 0)
        status = check_copied(launch, a->queries, DEPTH, &args->q);
    if (!status && a->keys >= 0)
        status = check_copied(launch, a->keys, DEPTH, &args->k);
    if (!status && a->values >= 0)
        status = check_copied(launch, a->values, WIDTH, &args->v);
    return status;
}

static void bind_keys(const Launch *launch, IsoAttendArgs *args)
{
    const MfAttend *a = &launch->spec->attend;
    const iso_run *run = launch->run;
    args->position = run->positions;
    args->sequence = run->sequences;
    if (run->keys) {
        args->length = run->keys->lengths;
        args->key_start = run->keys->starts;
        args->block_table = run->keys->block_table;
        args->block_table_stride = run->keys->block_table_stride;
        args->page = run->keys->page;
    }
    args->k_sequence = stored_stride(launch, a->keys, MF_SEQUENCE);
    args->k_position = stored_stride(launch, a->keys, MF_POSITION);
    args->v_sequence = stored_stride(launch, a->values, MF_SEQUENCE);
    args->v_position = stored_stride(launch, a->values, MF_POSITION);
}

static int64_t dim_size(const Launch *launch, int dim)
{
    return part_size(launch->op->module->manifest, op_part(launch->op, launch->phase),
                     &launch->spec->dims[dim], launch->run->rows);
}

/* A group that has more queries than a CTA has rows is cut; else whole tokens share the rows. */
static void choose_tile(const MfAttend *a, IsoAttendArgs *args)
{
    args->tile_group = args->group < a->rows ? args->group : a->rows;
    args->tile_tokens = a->rows / args->tile_group;
}

/* ---- which kernel ---------------------------------------------------------------------------- */

static const MfSpec *find_kernel(const iso_op *op, MfAttendKernel kernel)
{
    for (int i = op->at->n_variants - 1; i >= 0; i--) {
        int own = op->at->variants[i].specs[op->rank];
        if (own >= 0 && op->module->manifest->specs[own].attend.kernel == kernel)
            return &op->module->manifest->specs[own];
    }
    return NULL;
}

enum { DECODE_TILES = 4 };

/* Whether decode is best where no sequence has more than `most` rows: they fit its tile, or few of
 * its tiles, each of which goes through the keys, while the general kernel, which has a CTA for all
 * of a tile's splits, would leave multiprocessors idle. */
static bool decodes(const iso_op *op, const MfSpec *decode, const MfSpec *general, int64_t rows,
                    int64_t most)
{
    const Manifest *manifest = op->module->manifest;
    const MfPart *part = op_part(op, ISO_PHASE_RUN);
    int64_t group = part_size(manifest, part, &decode->dims[GROUP], rows);
    int64_t tokens = part_size(manifest, part, &decode->dims[TOKENS], rows);
    int64_t heads = part_size(manifest, part, &decode->dims[HEADS], rows);
    if (most * group <= decode->attend.rows)
        return true;
    return ceil_div(tokens * group, general->attend.rows) * heads < op->module->multiprocessors &&
           most * group <= DECODE_TILES * decode->attend.rows;
}

/* Rows of a sequence that fill half a tile: each sequence in a tile is gone through apart. */
static bool fills_tile(const iso_op *op, const MfSpec *wgmma, int64_t rows, int64_t most)
{
    int64_t group = part_size(op->module->manifest, op_part(op, ISO_PHASE_RUN),
                              &wgmma->dims[GROUP], rows);
    return 2 * most * group >= wgmma->attend.rows;
}

const MfSpec *attend_spec(const iso_op *op, const MfSpec *by_rows, const iso_run *run)
{
    int64_t most = run->keys ? run->keys->most_rows : 0;
    const MfSpec *decode = find_kernel(op, MF_ATTEND_DECODE);
    const MfSpec *wgmma = find_kernel(op, MF_ATTEND_WGMMA);
    const MfSpec *general = find_kernel(op, MF_ATTEND_MMA);
    if (most <= 0 || !general)
        return by_rows;
    if (decode && decodes(op, decode, general, run->rows, most))
        return decode;
    return wgmma && fills_tile(op, wgmma, run->rows, most) ? wgmma : general;
}

/* ---- decode's workspace ---------------------------------------------------------------------- */

enum { MIN_ROOTS = 1024, ROOTS_EACH = 8, MOST_TOKENS = 256, ROOT_TAIL = 4, DRAWS = 2 };

typedef struct Scratch {
    int64_t pieces, roots, counters, region, root_floats; /* of a token's rows in one piece */
} Scratch;

/* Roots for some splits of each token, and for long contexts of few. Splits that have no room are
 * gone through by one CTA; of many tokens there are CTAs enough for that. */
static Scratch scratch_of(const iso_op *op, const MfSpec *spec, int64_t rows)
{
    const Manifest *manifest = op->module->manifest;
    const MfPart *part = op_part(op, ISO_PHASE_RUN);
    int64_t tokens = part_size(manifest, part, &spec->dims[TOKENS], rows);
    int64_t group = part_size(manifest, part, &spec->dims[GROUP], rows);
    int64_t tile = group < spec->attend.rows ? group : spec->attend.rows;
    Scratch s = {.roots = MIN_ROOTS + ROOTS_EACH * (tokens < MOST_TOKENS ? tokens : MOST_TOKENS)};
    if (op->module->decode_roots)
        s.roots = op->module->decode_roots;
    if (!group || !tokens)
        return (Scratch){0};
    s.pieces = part_size(manifest, part, &spec->dims[HEADS], rows) * ceil_div(group, tile);
    s.counters = (tokens * s.pieces + DRAWS) * 4;
    s.region = (int64_t)counter_region((size_t)s.counters);
    s.root_floats = tile * (part_size(manifest, part, &spec->dims[WIDTH], rows) + ROOT_TAIL);
    return s;
}

size_t attend_workspace(const iso_op *op, const MfSpec *spec, int64_t rows)
{
    if (spec && spec->attend.kernel == MF_ATTEND_WGMMA)
        return counter_region(DRAWS * 4);
    bool draws = spec && (spec->attend.kernel == MF_ATTEND_DECODE ||
                          spec->attend.kernel == MF_ATTEND_PARTS);
    if (!draws)
        return 0;
    Scratch s = scratch_of(op, spec, rows);
    if (spec->attend.kernel == MF_ATTEND_PARTS)
        return (size_t)s.region;
    return (size_t)(s.region + s.roots * s.pieces * s.root_floats * 4);
}

size_t attend_counters(const iso_op *op, const MfSpec *spec, int64_t rows)
{
    switch (spec->attend.kernel) {
    case MF_ATTEND_DECODE:
    case MF_ATTEND_PARTS: return (size_t)scratch_of(op, spec, rows).counters;
    case MF_ATTEND_WGMMA: return DRAWS * 4;
    default: return 0;
    }
}

/* ---- the launch ------------------------------------------------------------------------------ */

/* Keys that a sequence may have, by what is known here. */
static int64_t most_keys(const Launch *launch)
{
    const iso_keys *keys = launch->run->keys;
    int tensor = launch->spec->bindings[launch->spec->attend.keys].tensor;
    if (keys && keys->most_keys > 0)
        return keys->most_keys;
    if (keys && keys->block_table)
        return keys->block_table_stride * keys->page;
    int axis = attend_stored_axis(launch, tensor, MF_POSITION);
    return axis < 0 ? 1 : launch->tensors[tensor].shape[axis];
}

/* Decode counts 16 bytes in 32 bits. */
static iso_status check_extent(const Launch *launch, int binding)
{
    int tensor = launch->spec->bindings[binding].tensor;
    const iso_tensor *t = &launch->tensors[tensor];
    int sequence = attend_stored_axis(launch, tensor, MF_SEQUENCE);
    int position = attend_stored_axis(launch, tensor, MF_POSITION);
    int64_t steps = 0;
    if (sequence >= 0)
        steps += (t->shape[sequence] - 1) * t->stride[sequence] / STEP;
    if (position >= 0)
        steps += (t->shape[position] - 1) * t->stride[position] / STEP;
    return steps < UINT32_MAX
               ? ISO_OK
               : iso_fail(ISO_UNSUPPORTED, "op %s: tensor %s has more than 64 GiB; take another "
                          "schedule", launch->op->op->name, launch->op->op->tensors[tensor].name);
}

/* CTAs that draw units: as many as there may be, or as have room. */
static iso_status draw_units(const Launch *launch, const Scratch *s, int64_t units, Grid *grid)
{
    const MfAttend *a = &launch->spec->attend;
    int64_t room = (int64_t)launch->op->module->multiprocessors * a->resident;
    grid->x = (unsigned)(units < room ? units : room);
    grid->y = 1;
    iso_status status = check_extent(launch, a->keys);
    if (!status)
        status = check_extent(launch, a->values);
    return status ? status : counters_ready(launch, (size_t)s->counters);
}

/* As many roots as the workspace holds. */
static iso_status set_decode(const Launch *launch, IsoAttendArgs *args, Grid *grid)
{
    const MfAttend *a = &launch->spec->attend;
    Scratch s = scratch_of(launch->op, launch->spec, launch->run->rows);
    int64_t roots = ((int64_t)launch->run->workspace_bytes - s.region) /
                    (s.pieces * s.root_floats * 4);
    int64_t units = s.pieces * args->rows * (most_keys(launch) / a->split + 1);
    args->draws = launch->run->workspace;
    args->counters = args->draws + DRAWS;
    args->roots = (float *)(void *)((char *)launch->run->workspace + s.region);
    args->most_roots = (int)(roots < INT32_MAX ? roots : INT32_MAX);
    return draw_units(launch, &s, units, grid);
}

/* CTAs stay, and draw tiles. */
static void set_draws(const Launch *launch, IsoAttendArgs *args, Grid *grid)
{
    int64_t room = launch->op->module->multiprocessors, tiles = (int64_t)grid->x * grid->y;
    args->draws = launch->run->workspace;
    grid->x = (unsigned)(tiles < room ? tiles : room);
    grid->y = 1;
}

/* ---- keys that ranks share by splits --------------------------------------------------------- */

/* Splits of a rank that a row may see. */
static int64_t root_places(const iso_op *op, const MfSpec *spec, int64_t keys)
{
    int pieces = op->at->parts[op->rank].keys_count;
    return ceil_div(ceil_div(keys, spec->attend.split), pieces);
}

size_t attend_roots(const iso_op *op, const MfSpec *spec, int64_t rows, int64_t keys)
{
    int64_t elements = root_places(op, spec, keys);
    for (int d = 0; d < DEPTH; d++)
        elements *= part_size(op->module->manifest, op_part(op, ISO_PHASE_PART), &spec->dims[d],
                              rows);
    return (size_t)(elements * (part_size(op->module->manifest, op_part(op, ISO_PHASE_PART),
                                          &spec->dims[WIDTH], rows) + ROOT_TAIL)) * sizeof(float);
}

static iso_status bind_cut(const Launch *launch, IsoAttendCut *cut)
{
    const MfPart *part = &launch->op->at->parts[launch->op->rank];
    const iso_keys *keys = launch->run->keys;
    if (!keys || keys->most_keys <= 0)
        return iso_fail(ISO_INVALID_ARGUMENT, "op %s: iso_run.keys must have most_keys, since "
                        "ranks share the keys: roots have their places by it",
                        launch->op->op->name);
    cut->roots = launch->roots;
    cut->turn = keys->turns;
    cut->pieces = part->keys_count;
    cut->piece = part->keys_index;
    cut->places = (int)root_places(launch->op, launch->spec, keys->most_keys);
    return ISO_OK;
}

/* A unit for every split that a row may see. */
static iso_status set_parts(const Launch *launch, IsoAttendArgs *args, const IsoAttendCut *cut,
                            Grid *grid)
{
    Scratch s = scratch_of(launch->op, launch->spec, launch->run->rows);
    int64_t units = s.pieces * args->rows * cut->places;
    args->draws = launch->run->workspace;
    return draw_units(launch, &s, units, grid);
}

/* How far the first index of a dimension is behind a source's. */
static int first_of(const Launch *launch, const MfPart *source, int dim)
{
    const Manifest *manifest = launch->op->module->manifest;
    const MfPart *own = op_part(launch->op, ISO_PHASE_JOIN);
    const MfAtoms *atoms = &launch->spec->dims[dim];
    int64_t first = 0;
    for (int i = 0; i < atoms->n; i++) {
        int atom = atoms->atom[i];
        int64_t lo = own->lo[atom] - source->lo[atom], end;
        if (axis_is_free(manifest, atoms)) {
            int64_t before;
            part_rows_of(own, launch->run->rows, &lo, &end);
            part_rows_of(source, launch->run->rows, &before, &end);
            lo -= before;
        }
        first = first * part_atom_size(manifest, source, atom, launch->run->rows) + lo;
    }
    return (int)first;
}

/* Rows of a warp each. Positions and sequences are given of the rows that the rank computes. */
static void set_join(const Launch *launch, IsoAttendArgs *args, IsoAttendCut *cut, Grid *grid)
{
    const iso_op *op = launch->op;
    const Manifest *manifest = op->module->manifest;
    const MfRanks *heard = &op->at->sources[op->rank];
    enum { WARPS = 4 };
    for (int i = 0; i < heard->n; i++) {
        const MfPart *part = &op->at->parts[heard->rank[i]];
        cut->source[i] = (IsoAttendSource){
            launch->sources[heard->rank[i]], first_of(launch, part, TOKENS),
            first_of(launch, part, HEADS), first_of(launch, part, GROUP),
            (int)part_size(manifest, part, &launch->spec->dims[HEADS], launch->run->rows),
            (int)part_size(manifest, part, &launch->spec->dims[GROUP], launch->run->rows)};
    }
    int skipped = first_of(launch, &op->at->parts[op->rank], TOKENS);
    args->position += skipped;
    args->sequence += skipped;
    grid->x = (unsigned)args->rows;
    grid->y = (unsigned)ceil_div((int64_t)args->heads * args->group, WARPS);
}

static iso_status bind_args(const Launch *launch, IsoAttendArgs *args)
{
    bind_keys(launch, args);
    return bind_views(launch, args);
}

static iso_status launch_bound(const Launch *launch, IsoAttendArgs bound)
{
    const MfKernel *kernel = &launch->op->module->manifest->kernels[launch->spec->kernel];
    IsoAttendArgs args = bound;
    IsoAttendMaps maps;
    IsoAttendCut cut;
    MfAttendKernel choice = launch->spec->attend.kernel;
    bool cuts = choice == MF_ATTEND_PARTS || choice == MF_ATTEND_JOIN;
    iso_status status = ISO_OK;
    memset(&maps, 0, sizeof maps);
    memset(&cut, 0, sizeof cut);
    if (cuts)
        status = bind_cut(launch, &cut);
    choose_tile(&launch->spec->attend, &args);
    Grid grid = {.y = (unsigned)args.heads, .z = 1, .threads = (unsigned)kernel->threads,
                 .shared_bytes = (size_t)kernel->shared_bytes};
    grid.x = (unsigned)(ceil_div(args.rows, args.tile_tokens) *
                        ceil_div(args.group, args.tile_group));
    if (!status && choice == MF_ATTEND_PARTS)
        status = set_parts(launch, &args, &cut, &grid);
    if (!status && choice == MF_ATTEND_JOIN)
        set_join(launch, &args, &cut, &grid);
    if (choice == MF_ATTEND_DECODE)
        status = set_decode(launch, &args, &grid);
    if (choice == MF_ATTEND_WGMMA) {
        set_draws(launch, &args, &grid);
        status = attend_maps(launch, &args, dim_size(launch, DEPTH), dim_size(launch, WIDTH),
                             &maps);
    }
    void *parameters[] = {&args, cuts ? (void *)&cut : &maps};
    return status ? status : launch_kernel(launch, &grid, parameters);
}

/* What tensor maps cannot say, such as small pages, is the general kernel's. */
iso_status launch_attend(const Launch *launch)
{
    Launch own = *launch;
    IsoAttendArgs args;
    memset(&args, 0, sizeof args);
    args.rows_dev = launch->run->rows_device;
    args.rows = (int)dim_size(launch, TOKENS);
    args.group = (int)dim_size(launch, GROUP);
    args.heads = (int)dim_size(launch, HEADS);
    if (args.rows <= 0 || args.group <= 0 || args.heads <= 0)
        return ISO_OK;
    iso_status status = bind_args(launch, &args);
    if (status)
        return status;
    if (launch->spec->attend.kernel == MF_ATTEND_WGMMA && !attend_maps_fit(launch, &args))
        own.spec = find_kernel(launch->op, MF_ATTEND_MMA);
    return launch_bound(&own, args);
}
