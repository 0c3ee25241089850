/* Launches products and the joins of their roots. Grids, shared memory, workspace and tensor maps
 * follow the rules at the head of device/iso_abi.cuh. */
#include "launch.h"

#include <inttypes.h>
#include <string.h>

enum { GRID_Z_MAX = 65535 };

int64_t gemm_rows(const iso_op *op, iso_phase phase, const MfGemm *gemm, int64_t rows)
{
    return part_size(op->module->manifest, op_part(op, phase), &gemm->rows, rows);
}

/* Column tiles of all groups. */
int64_t gemm_column_tiles(const iso_op *op, iso_phase phase, const MfGemm *gemm, int64_t rows)
{
    int64_t tiles = 0;
    if (gemm->fold_roots)
        return gemm->fold_roots;
    for (int g = 0; g < gemm->n_groups; g++)
        tiles += ceil_div(
            part_size(op->module->manifest, op_part(op, phase), &gemm->group[g].cols, rows),
            gemm->tile_n);
    return tiles;
}

static void wgmma_grid(const iso_op *op, const MfGemm *gemm, int64_t rows, int64_t m, Grid *grid)
{
    int64_t columns = gemm_column_tiles(op, ISO_PHASE_RUN, gemm, rows), high = gemm->high;
    int64_t clusters = ceil_div(ceil_div(m, gemm->tile_m), high) *
                       ceil_div(columns, gemm->cluster / high);
    int64_t most = op->module->multiprocessors / gemm->cluster;
    grid->x = (unsigned)((clusters < most ? clusters : most) * gemm->cluster);
    grid->y = grid->z = 1;
}

static unsigned row_tiles(const iso_op *op, const MfGemm *gemm, int64_t m)
{
    int64_t tiles = ceil_div(m, gemm->tile_m), most = op->module->row_tiles;
    most = most ? most : GRID_Z_MAX;
    return (unsigned)(tiles < most ? tiles : most);
}

static void split_grid(const iso_op *op, const MfGemm *gemm, int64_t rows, int64_t m, Grid *grid)
{
    grid->x = (unsigned)(gemm_column_tiles(op, ISO_PHASE_RUN, gemm, rows) * gemm->cluster);
    grid->y = 1;
    grid->z = row_tiles(op, gemm, m);
}

static void stream_grid(const iso_op *op, const MfGemm *gemm, int64_t rows, int64_t m, Grid *grid)
{
    grid->x = (unsigned)gemm_column_tiles(op, ISO_PHASE_RUN, gemm, rows);
    grid->y = gemm->across_ctas ? (unsigned)gemm->n_leaves : 1;
    grid->z = row_tiles(op, gemm, m);
}

static void gemm_grid(const iso_op *op, const MfSpec *spec, int64_t rows, Grid *grid)
{
    const MfKernel *kernel = &op->module->manifest->kernels[spec->kernel];
    const MfGemm *gemm = &spec->gemm;
    int64_t m = gemm_rows(op, ISO_PHASE_RUN, gemm, rows);
    grid->threads = (unsigned)kernel->threads;
    grid->shared_bytes = (size_t)kernel->shared_bytes;
    if (gemm->wgmma && gemm->across_ctas)
        split_grid(op, gemm, rows, m, grid);
    else if (gemm->wgmma)
        wgmma_grid(op, gemm, rows, m, grid);
    else
        stream_grid(op, gemm, rows, m, grid);
}

static size_t counters_needed(const MfGemm *gemm, const Grid *grid)
{
    if (gemm->wgmma || !gemm->across_ctas || gemm->n_leaves < 2)
        return 0;
    return (size_t)grid->z * grid->x * 4;
}

static size_t counter_bytes(const MfGemm *gemm, const Grid *grid)
{
    return counter_region(counters_needed(gemm, grid));
}

static size_t partial_bytes(const MfGemm *gemm, const Grid *grid)
{
    size_t columns = (size_t)gemm->tile_n * (size_t)groups_parts(gemm);
    size_t tile = (size_t)gemm->tile_m * columns * 4;
    if (gemm->wgmma) /* its warpgroups hold 64 rows each */
        return (size_t)grid->x * (size_t)gemm->far * ((size_t)gemm->tile_m + 63) / 64 * 64 *
               columns * 4;
    if (!gemm->across_ctas || gemm->n_leaves < 2)
        return 0;
    return (size_t)grid->z * grid->x * (size_t)gemm->n_leaves * tile;
}

size_t gemm_workspace(const iso_op *op, const MfSpec *spec, int64_t rows)
{
    if (spec->gemm.grouped)
        return group_workspace(op, spec, rows);
    Grid grid;
    gemm_grid(op, spec, rows, &grid);
    size_t partial = partial_bytes(&spec->gemm, &grid);
    return partial ? counter_bytes(&spec->gemm, &grid) + partial : 0;
}

/* ---- operands ---- */

iso_status gemm_operand(const Launch *launch, int binding, bool k_inner, const MfAtoms *rows,
                        Operand *operand)
{
    const iso_op *op = launch->op;
    const MfBinding *bound = &launch->spec->bindings[binding];
    const MfAtoms *dims[] = {rows, &launch->spec->gemm.k};
    View view;
    iso_status status =
        view_bind(op, launch->phase, bound, dims, 2, launch->tensors, launch->run->rows, &view);
    if (status)
        return status;
    const MfTensor *tensor = &op->op->tensors[bound->tensor];
    if (view.stride[k_inner ? 1 : 0] != 1)
        return iso_fail(ISO_BAD_TENSOR,
                        "op %s: tensor %s must be contiguous (stride 1) along its "
                        "innermost axis, it has stride %" PRId64,
                        op->op->name, tensor->name, view.stride[k_inner ? 1 : 0]);
    *operand = (Operand){
        .data = view.data,
        .stride = view.stride[k_inner ? 0 : 1],
        .rows =
            part_size(op->module->manifest, op_part(op, launch->phase), rows, launch->run->rows),
        .k_inner = k_inner,
        .f16 = tensor->dtype == ISO_F16,
    };
    return ISO_OK;
}

/* With one leaf its own stride is never used, but it must still be a multiple of 16. */
static unsigned long long leaf_step(unsigned long long leaves, unsigned long long length)
{
    return leaves > 1 ? length * 2 : 16 * (unsigned long long)ceil_div((int64_t)length * 2, 16);
}

/* Lines of `leaves` leaves of `length` elements. */
static iso_status lines_map(const Launch *launch, const Operand *operand, unsigned long long length,
                            unsigned long long leaves, int box_rows, int64_t experts,
                            int64_t expert_stride, IsoTensorMap *out)
{
    const Driver *driver = launch->op->module->driver;
    unsigned long long rows = (unsigned long long)operand->rows, all = (unsigned long long)experts;
    unsigned long long step = (unsigned long long)operand->stride * 2;
    unsigned long long apart = (unsigned long long)expert_stride * 2;
    unsigned long long k_dims[] = {length, leaves, rows, all};
    unsigned long long k_strides[] = {leaf_step(leaves, length), step, apart};
    unsigned long long r_dims[] = {rows, length, leaves, all};
    unsigned long long r_strides[] = {step, length * step, apart};
    unsigned k_box[] = {64, 1, (unsigned)box_rows, 1}, r_box[] = {64, 64, 1, 1};
    unsigned ones[] = {1, 1, 1, 1};
    if ((uintptr_t)operand->data % 16 || step % 16 || k_strides[0] % 16 || apart % 16)
        return iso_fail(ISO_BAD_TENSOR,
                        "op %s: the tensor-copy kernel needs 16-byte aligned rows; "
                        "got data %p with a row stride of %" PRId64 " elements",
                        launch->op->op->name, operand->data, operand->stride);
    CuTensorMap map;
    CuResult result = driver->tensor_map(
        &map, operand->f16 ? CU_TENSOR_MAP_F16 : CU_TENSOR_MAP_BF16, experts ? 4 : 3, operand->data,
        operand->k_inner ? k_dims : r_dims, operand->k_inner ? k_strides : r_strides,
        operand->k_inner ? k_box : r_box, ones, 0, CU_TENSOR_MAP_SWIZZLE_128B,
        experts ? CU_TENSOR_MAP_L2_256B : CU_TENSOR_MAP_L2_128B, 0);
    memcpy(out, &map, sizeof map);
    return driver_check(driver, result, "cuTensorMapEncodeTiled");
}

iso_status gemm_map(const Launch *launch, const Operand *operand, int box_rows, int64_t experts,
                    int64_t expert_stride, IsoTensorMap *out)
{
    const MfGemm *gemm = &launch->spec->gemm;
    unsigned long long length = (unsigned long long)(gemm->leaf_hi[0] - gemm->leaf_lo[0]);
    unsigned long long leaves = (unsigned long long)gemm->n_leaves;
    if (gemm->runs_on)
        return lines_map(launch, operand, length * leaves, 1, box_rows, experts, expert_stride,
                         out);
    return lines_map(launch, operand, length, leaves, box_rows, experts, expert_stride, out);
}

/* ---- products ---- */

/* Rows of a that a CTA loads at once: its share of a cluster's, or no more than there are. */
static int a_box(const MfGemm *gemm, int64_t rows)
{
    if (!gemm->across_ctas && gemm->cluster > 1)
        return gemm->tile_m / (gemm->cluster / gemm->high);
    return rows < gemm->tile_m ? (int)rows : gemm->tile_m;
}

/* Columns, likewise. */
static int b_box(const MfGemm *gemm)
{
    return gemm->tile_n / gemm->high;
}

static iso_status bind_products(const Launch *launch, IsoGemmArgs *args, IsoGemmMaps *maps)
{
    const MfGemm *gemm = &launch->spec->gemm;
    int parts = groups_parts(gemm);
    Operand operand;
    iso_status status = gemm_operand(launch, gemm->a, gemm->a_k_inner, &gemm->rows, &operand);
    if (!status && gemm->wgmma)
        status = gemm_map(launch, &operand, a_box(gemm, operand.rows), 0, 0, &maps->a);
    args->a = operand.data;
    args->a_stride = operand.stride;
    for (int g = 0; g < gemm->n_groups; g++) {
        const MfGroup *group = &gemm->group[g];
        for (int p = 0; p < group->n_products && !status; p++) {
            status = gemm_operand(launch, group->b[p], group->b_k_inner[p], &group->cols, &operand);
            args->group[g].b[p] = operand.data;
            args->group[g].b_stride[p] = operand.stride;
            if (!status && gemm->wgmma)
                status = gemm_map(launch, &operand, b_box(gemm), 0, 0, &maps->b[g * parts + p]);
        }
    }
    return status;
}

/* Where many rows of the only operand of an epilogue lie as the sums do, the kernel may load them
 * as it loads rows of a. */
static iso_status bind_read(const Launch *launch, IsoGemmArgs *args, IsoGemmMaps *maps)
{
    enum { ROWS_MANY = 128 };
    const MfGemm *gemm = &launch->spec->gemm;
    const IsoView *view = &args->group[0].operand[0];
    if (!gemm->wgmma || gemm->across_ctas || gemm->roots_out || gemm->n_groups != 1 ||
        gemm->group[0].n_operands != 1 || gemm->tile_m < ROWS_MANY)
        return ISO_OK;
    const MfBinding *bound = &launch->spec->bindings[gemm->group[0].operand[0]];
    const MfTensor *tensor = &launch->op->op->tensors[bound->tensor];
    if (!bound->has[0] || !bound->has[1] || bound->lookup >= 0 || bound->coordinate ||
        manifest_dtype_bytes(tensor->dtype) != 2 || view->stride[1] != 1 || view->stride[0] <= 0 ||
        view->stride[0] % 8 || (uintptr_t)view->ptr % 16)
        return ISO_OK;
    args->reads = 1;
    const Operand operand = {.data = view->ptr, .stride = view->stride[0], .rows = args->rows,
                             .k_inner = true, .f16 = tensor->dtype == ISO_F16};
    return lines_map(launch, &operand, (unsigned long long)args->group[0].columns, 1, gemm->tile_m,
                     0, 0, &maps->read);
}

void gemm_roots(const Launch *launch, IsoGemmArgs *args)
{
    const MfGemm *gemm = &launch->spec->gemm;
    int64_t columns = groups_columns(launch->op, launch->phase, gemm, launch->run->rows);
    float *roots = launch->roots;
    for (int g = 0; g < gemm->n_groups; g++) {
        args->group[g].roots = roots;
        args->group[g].root_stride = args->rows * columns;
        args->group[g].root_row_stride = columns;
        roots += args->group[g].columns;
    }
}

/* Columns are reduced: roots lie as a row kernel's do. */
static void bind_fold(const Launch *launch, IsoGemmArgs *args)
{
    const MfAtoms *columns = &launch->spec->gemm.group[0].cols;
    args->group[0].roots = launch->roots;
    args->group[0].root_stride = args->rows;
    if (columns->n == 1)
        args->group[0].first_column =
            (int)op_part(launch->op, launch->phase)->lo[columns->atom[0]];
}

void gemm_leaves(const MfGemm *gemm, IsoGemmArgs *args)
{
    args->leaves = gemm->n_leaves;
    for (int i = 0; i < gemm->n_leaves; i++)
        args->leaf_begin[i] = (int)gemm->leaf_lo[i];
    args->leaf_begin[gemm->n_leaves] = (int)gemm->leaf_hi[gemm->n_leaves - 1];
}

iso_status launch_gemm(const Launch *launch)
{
    const MfGemm *gemm = &launch->spec->gemm;
    if (gemm->grouped)
        return launch_group(launch);
    IsoGemmArgs args;
    IsoGemmMaps maps;
    Grid grid;
    memset(&args, 0, sizeof args);
    memset(&maps, 0, sizeof maps);
    gemm_grid(launch->op, launch->spec, launch->run->rows, &grid);
    args.rows = (int)gemm_rows(launch->op, launch->phase, gemm, launch->run->rows);
    if (axis_is_free(launch->op->module->manifest, &gemm->rows))
        args.rows_dev = launch->run->rows_device;
    args.settled = launch->run->settled;
    args.counters = launch->run->workspace;
    args.workspace = (float *)((char *)launch->run->workspace + counter_bytes(gemm, &grid));
    gemm_leaves(gemm, &args);
    iso_status status = groups_bind(launch, !gemm->roots_out, args.group);
    if (!status)
        status = bind_products(launch, &args, &maps);
    if (!status)
        status = bind_read(launch, &args, &maps);
    if (status)
        return status;
    if (gemm->roots_out)
        gemm_roots(launch, &args);
    if (gemm->fold_roots)
        bind_fold(launch, &args);
    status = counters_ready(launch, counters_needed(gemm, &grid));
    void *parameters[] = {&args, &maps};
    return status ? status : launch_kernel(launch, &grid, parameters);
}

/* ---- joins ---- */

/* Where the rows that a rank finishes lie among the rows of the roots. */
static void join_rows(const Launch *launch, IsoJoinArgs *args)
{
    const iso_op *op = launch->op;
    int64_t mine_lo, mine_hi, all_lo, all_hi;
    part_rows_of(op_part(op, ISO_PHASE_JOIN), launch->run->rows, &mine_lo, &mine_hi);
    part_rows_of(op_part(op, ISO_PHASE_PART), launch->run->rows, &all_lo, &all_hi);
    args->row_begin = (int)(mine_lo - all_lo);
    args->rows = (int)(mine_hi - mine_lo);
    if (launch->window) {
        args->row_begin += (int)launch->window->lo;
        args->rows = (int)launch->window->n;
    }
    const MfGemm *gemm = &launch->spec->gemm;
    args->rows_each =
        gemm->grouped ? (int)op->module->manifest->atoms[gemm->rows.atom[1]].size : 1;
    args->row_begin *= args->rows_each;
    args->rows *= args->rows_each;
}

iso_status launch_join(const Launch *launch)
{
    const iso_op *op = launch->op;
    const MfSpec *spec = launch->spec;
    const MfRanks *heard = &op->at->sources[op->rank];
    int64_t rows = launch->run->rows;
    int64_t columns = groups_columns(op, ISO_PHASE_PART, &spec->gemm, rows);
    int64_t source_rows = gemm_rows(op, ISO_PHASE_PART, &spec->gemm, rows);
    IsoJoinArgs args;
    memset(&args, 0, sizeof args);
    if (heard->n > ISO_JOIN_SOURCES || heard->n != spec->n_sources)
        return iso_fail(ISO_UNSUPPORTED, "op %s joins %d ranks, the kernel takes %d", op->op->name,
                        heard->n, spec->n_sources);
    join_rows(launch, &args);
    args.rows_dev = launch->run->rows_device;
    args.sources = heard->n;
    for (int i = 0; i < heard->n; i++)
        args.source[i] = (IsoJoinSource){launch->sources[heard->rank[i]], source_rows * columns,
                                         columns, spec->roots_of_source[i]};
    iso_status status = groups_bind(launch, true, args.group);
    if (!status && spec->gemm.grouped)
        status = group_join(launch, &args);
    if (status)
        return status;
    int64_t pairs = 0;
    for (int g = 0; g < spec->gemm.n_groups; g++)
        pairs += ceil_div(args.group[g].columns, 2);
    Grid grid = {(unsigned)ceil_div(pairs, 256), (unsigned)(args.rows < 1024 ? args.rows : 1024), 1,
                 256, 0};
    void *parameters[] = {&args};
    return launch_kernel(launch, &grid, parameters);
}
