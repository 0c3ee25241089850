/* Launches row and elementwise kernels, the joins of rows' roots, draws, and what ranks rows. */
#include "launch.h"

#include <string.h>

enum { CHUNK = 8 }; /* elements that a thread of a map kernel takes at a time */

/* The dimensions' extents, and which of them holds the free axis. */
static void bind_extents(const Launch *launch, IsoMapArgs *args)
{
    const MfSpec *spec = launch->spec;
    const Manifest *manifest = launch->op->module->manifest;
    const MfPart *part = op_part(launch->op, launch->phase);
    args->rows_each = 1;
    for (int d = 0; d < spec->n_dims; d++) {
        const MfAtoms *dim = &spec->dims[d];
        args->extent[d] = (unsigned)part_size(manifest, part, dim, launch->run->rows);
        for (int i = 0; i < dim->n; i++) {
            if (manifest->atoms[dim->atom[i]].size)
                continue;
            for (int j = 0; j < dim->n; j++)
                if (j != i)
                    args->rows_each *=
                        (unsigned)part_atom_size(manifest, part, dim->atom[j], launch->run->rows);
        }
    }
}

static IsoLookup bind_lookup(const Launch *launch, const MfBinding *binding)
{
    const MfPart *part = op_part(launch->op, launch->phase);
    int atom = binding->looked_up;
    return (IsoLookup){lookup_stride(launch->op, launch->phase, binding, launch->tensors,
                                     launch->run->rows),
                       (int)part->lo[atom], (int)(part->hi[atom] - part->lo[atom])};
}

static iso_status bind_map(const Launch *launch, IsoMapArgs *args)
{
    const MfSpec *spec = launch->spec;
    const MfAtoms *dims[MF_MAX_DIMS];
    for (int d = 0; d < spec->n_dims; d++)
        dims[d] = &spec->dims[d];
    if (spec->n_bindings > ISO_VIEWS)
        return iso_fail(ISO_UNSUPPORTED, "op %s has %d operands, a kernel takes %d",
                        launch->op->op->name, spec->n_bindings, ISO_VIEWS);
    args->rows_dev = launch->run->rows_device;
    args->position = launch->run->positions;
    args->sequence = launch->run->sequences;
    bind_extents(launch, args);
    for (int i = 0, lookups = 0; i < spec->n_bindings; i++) {
        View view;
        iso_status status = view_bind(launch->op, launch->phase, &spec->bindings[i], dims,
                                      spec->n_dims, launch->tensors, launch->run->rows, &view);
        if (status)
            return status;
        args->view[i].ptr = view.data;
        for (int d = 0; d < ISO_DIMS; d++)
            args->view[i].stride[d] = view.stride[d];
        if (spec->bindings[i].lookup < 0)
            continue;
        if (lookups == ISO_LOOKUPS)
            return iso_fail(ISO_UNSUPPORTED, "op %s reads more than %d operands by indices",
                            launch->op->op->name, ISO_LOOKUPS);
        args->lookup[lookups] = bind_lookup(launch, &spec->bindings[i]);
        if (spec->bindings[i].lookup == i)
            args->lookup[lookups].stride = 1; /* not read at the index, but told it */
        lookups++;
    }
    return ISO_OK;
}

static void set_threads(const Launch *launch, Grid *grid)
{
    const MfKernel *kernel = &launch->op->module->manifest->kernels[launch->spec->kernel];
    *grid = (Grid){1, 1, 1, (unsigned)kernel->threads, (size_t)kernel->shared_bytes};
}

static int64_t elements_of(const Launch *launch, const IsoMapArgs *args)
{
    int64_t elements = 1;
    for (int d = 0; d < launch->spec->n_dims; d++)
        elements *= args->extent[d];
    return elements;
}

/* Of a launch's second call, if it has one. */
static iso_status bind_beside(const Launch *launch, IsoMapArgs *args, Grid *grid)
{
    if (!launch->beside)
        return ISO_OK;
    grid->y = ISO_CALLS;
    return bind_map(launch->beside, args);
}

iso_status launch_map(const Launch *launch)
{
    IsoMapCalls calls;
    Grid grid;
    memset(&calls, 0, sizeof calls);
    set_threads(launch, &grid);
    iso_status status = bind_map(launch, &calls.map[0]);
    if (!status)
        status = bind_beside(launch, &calls.map[1], &grid);
    if (status)
        return status;
    int64_t elements = elements_of(launch, &calls.map[0]);
    if (launch->beside && elements_of(launch->beside, &calls.map[1]) > elements)
        elements = elements_of(launch->beside, &calls.map[1]);
    grid.x = (unsigned)ceil_div(elements, (int64_t)CHUNK * grid.threads);
    void *parameters[] = {&calls};
    return launch_kernel(launch, &grid, parameters);
}

/* Rows of the outer dimensions in a part. */
static int64_t outer_rows(const Launch *launch, iso_phase phase)
{
    const MfSpec *spec = launch->spec;
    int64_t rows = 1;
    for (int d = 0; d < spec->n_dims - 1; d++)
        rows *= part_size(launch->op->module->manifest, op_part(launch->op, phase), &spec->dims[d],
                          launch->run->rows);
    return rows;
}

/* The sources' columns, and which of them is this rank's first: a run of atoms, row-major. */
static void bind_columns(const Launch *launch, IsoRowArgs *args)
{
    const Manifest *manifest = launch->op->module->manifest;
    const MfAtoms *dim = &launch->spec->dims[launch->spec->n_dims - 2];
    const MfPart *mine = op_part(launch->op, ISO_PHASE_JOIN);
    const MfPart *all = op_part(launch->op, ISO_PHASE_PART);
    args->source_columns = (int)part_size(manifest, all, dim, launch->run->rows);
    for (int i = 0; i < dim->n; i++) {
        int64_t own = part_atom_size(manifest, all, dim->atom[i], launch->run->rows);
        args->column_begin = (int)(args->column_begin * own + mine->lo[dim->atom[i]] -
                                   all->lo[dim->atom[i]]);
    }
}

/* Where the roots of each rank lie, and which of their rows is this rank's first. */
static iso_status bind_sources(const Launch *launch, IsoRowArgs *args)
{
    const iso_op *op = launch->op;
    const MfRanks *heard = &op->at->sources[op->rank];
    int64_t mine, all, end;
    if (heard->n > ISO_JOIN_SOURCES)
        return iso_fail(ISO_UNSUPPORTED, "op %s joins %d ranks, a kernel takes %d", op->op->name,
                        heard->n, ISO_JOIN_SOURCES);
    part_rows_of(op_part(op, ISO_PHASE_JOIN), launch->run->rows, &mine, &end);
    part_rows_of(op_part(op, ISO_PHASE_PART), launch->run->rows, &all, &end);
    args->row_begin = (int)((mine - all) * args->map.rows_each);
    if (launch->spec->row_columns)
        bind_columns(launch, args);
    for (int i = 0; i < heard->n; i++)
        args->source[i] =
            (IsoJoinSource){launch->sources[heard->rank[i]], outer_rows(launch, ISO_PHASE_PART), 0,
                            launch->spec->roots_of_source[i]};
    return ISO_OK;
}

/* A warp goes from neighbouring columns of a row to the next, with all that there is room for. */
static unsigned column_ctas(const Launch *launch, const IsoMapArgs *args, unsigned threads)
{
    enum { WARP = 32, RESIDENT = 32 /* warps of a multiprocessor */ };
    int columns = launch->spec->n_dims - 2, most = launch->op->module->multiprocessors * RESIDENT;
    int64_t tasks = ceil_div(args->extent[columns], WARP * launch->spec->row_columns);
    for (int d = 0; d < columns; d++)
        tasks *= args->extent[d];
    int64_t warps = most > 0 && tasks > most ? ceil_div(tasks, ceil_div(tasks, most)) : tasks;
    return (unsigned)ceil_div(warps * WARP, threads);
}

iso_status launch_row(const Launch *launch)
{
    IsoRowArgs args;
    Grid grid;
    memset(&args, 0, sizeof args);
    set_threads(launch, &grid);
    iso_status status = bind_map(launch, &args.map);
    if (!status && launch->phase == ISO_PHASE_JOIN)
        status = bind_sources(launch, &args);
    if (!status)
        status = bind_beside(launch, &args.also, &grid);
    if (status)
        return status;
    int64_t rows = outer_rows(launch, launch->phase);
    args.roots = launch->roots;
    args.root_stride = rows;
    if (launch->beside && outer_rows(launch->beside, launch->phase) > rows)
        rows = outer_rows(launch->beside, launch->phase);
    if (launch->spec->row_columns)
        grid.x = column_ctas(launch, &args.map, grid.threads);
    else
        grid.x = (unsigned)(launch->spec->row_threads == 1 ? ceil_div(rows, grid.threads) : rows);
    if (launch->phase != ISO_PHASE_JOIN)
        grid.x *= (unsigned)launch->spec->row_cluster;
    void *parameters[] = {&args};
    return launch_kernel(launch, &grid, parameters);
}

/* Of one op's tensors alone; the grid is the caller's. */
static iso_status begin_map(const Launch *launch, IsoMapArgs *args, Grid *grid)
{
    memset(args, 0, sizeof *args);
    iso_status status = bind_map(launch, args);
    if (!status)
        set_threads(launch, grid);
    return status;
}

/* One CTA a row. */
iso_status launch_draw(const Launch *launch)
{
    IsoMapArgs args;
    Grid grid;
    iso_status status = begin_map(launch, &args, &grid);
    if (status)
        return status;
    grid.x = (unsigned)outer_rows(launch, launch->phase);
    void *parameters[] = {&args};
    return launch_kernel(launch, &grid, parameters);
}

/* One warp a row: a token, whose indices and slots are the other dimensions. Warps take further
 * rows where there are more than have room. */
iso_status launch_top(const Launch *launch)
{
    IsoMapArgs args;
    Grid grid;
    iso_status status = begin_map(launch, &args, &grid);
    if (status)
        return status;
    enum { WARP = 32, RESIDENT = 1024 };
    int64_t room = (int64_t)launch->op->module->multiprocessors * (RESIDENT / grid.threads);
    int64_t ctas = ceil_div(args.extent[0], grid.threads / WARP);
    grid.x = (unsigned)(room > 0 && ctas > room ? ceil_div(ctas, ceil_div(ctas, room)) : ctas);
    void *parameters[] = {&args};
    return launch_kernel(launch, &grid, parameters);
}
