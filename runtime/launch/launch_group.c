/* Launches grouped products: the kernel that sorts rows by expert, then the product. Grids, shared
 * memory, workspace and tensor maps follow the rules at the head of device/iso_abi.cuh; nothing of
 * the indices is known here. */
#include "launch.h"

#include <inttypes.h>
#include <string.h>

/* The experts that lie here, and all. */
typedef struct Experts {
    int64_t lo, n, all;
} Experts;

static Experts experts_of(const iso_op *op, iso_phase phase, const MfSpec *spec)
{
    const MfPart *part = op_part(op, phase);
    int atom = spec->gemm.experts;
    return (Experts){part->lo[atom], part->hi[atom] - part->lo[atom],
                     op->module->manifest->atoms[atom].size};
}

static iso_phase product_phase(const MfSpec *spec)
{
    return spec->gemm.roots_out ? ISO_PHASE_PART : ISO_PHASE_RUN;
}

static int64_t most_items(const iso_op *op, const MfSpec *spec, int64_t m)
{
    int64_t most = m / spec->gemm.tile_m + experts_of(op, product_phase(spec), spec).n + 1;
    return m < most ? m : most;
}

static Grid product_grid(const iso_op *op, const MfSpec *spec, int64_t rows, int64_t m)
{
    const MfKernel *kernel = &op->module->manifest->kernels[spec->kernel];
    int64_t columns = gemm_column_tiles(op, product_phase(spec), &spec->gemm, rows);
    int64_t tiles = most_items(op, spec, m) * columns, most = op->module->multiprocessors;
    int64_t cluster = spec->gemm.cluster, ctas = tiles < most ? tiles : most / cluster * cluster;
    return (Grid){(unsigned)(ceil_div(ctas, cluster) * cluster), 1, 1, (unsigned)kernel->threads,
                  (size_t)kernel->shared_bytes};
}

/* Where everything lies in the workspace, in bytes. The order is first: it is another product's
 * too, whatever that needs besides. */
typedef struct Places {
    size_t counts, number, items, order, rows, partial, end;
} Places;

static size_t align16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static Places places_of(const iso_op *op, const MfSpec *spec, int64_t rows)
{
    const MfGemm *gemm = &spec->gemm;
    int64_t m = gemm_rows(op, product_phase(spec), gemm, rows);
    Grid grid = product_grid(op, spec, rows, m);
    size_t level = ((size_t)gemm->tile_m + 63) / 64 * 64 * (size_t)gemm->tile_n *
                   (size_t)groups_parts(gemm) * 4;
    Places at = {.counts = counter_region(0)};
    at.number = align16(at.counts + ISO_GROUP_COUNTS * sizeof(int));
    at.items = at.number + 16;
    at.order = at.items + (size_t)most_items(op, spec, m) * sizeof(IsoGroupItem);
    at.rows = align16(at.order + (size_t)m * sizeof(int));
    at.partial = align16(at.rows + (size_t)m * sizeof(IsoGroupRow));
    at.end = at.partial + grid.x * (size_t)gemm->far * level;
    return at;
}

size_t group_workspace(const iso_op *op, const MfSpec *spec, int64_t rows)
{
    return places_of(op, spec, rows).end;
}

/* ---- the experts of rows ---- */

static iso_status bind_chosen(const Launch *launch, View *view)
{
    const MfGemm *gemm = &launch->spec->gemm;
    const MfAtoms tokens = {1, &gemm->rows.atom[0]}, slots = {1, &gemm->rows.atom[1]};
    const MfAtoms *dims[] = {&tokens, &slots};
    return view_bind(launch->op, launch->phase, &launch->spec->bindings[gemm->chosen], dims, 2,
                     launch->tensors, launch->run->rows, view);
}

bool group_same_order(const iso_op *a, const MfSpec *x, const iso_op *b, const MfSpec *y)
{
    Experts own = experts_of(a, ISO_PHASE_RUN, x), other = experts_of(b, ISO_PHASE_RUN, y);
    const int *p = x->gemm.rows.atom, *q = y->gemm.rows.atom;
    return own.lo == other.lo && own.n == other.n && own.all == other.all &&
           x->gemm.tile_m == y->gemm.tile_m && p[0] == q[0] && p[1] == q[1];
}

/* What an epilogue reads, it reads by the rows' own numbers. */
bool group_gives_sorted(const MfSpec *spec)
{
    for (int g = 0; g < spec->gemm.n_groups; g++)
        if (spec->gemm.group[g].n_operands > 0)
            return false;
    return !spec->gemm.roots_out;
}

/* Slots have rows of their own. */
bool group_takes_sorted(const MfSpec *spec)
{
    return spec->bindings[spec->gemm.a].has[1];
}

static iso_status launch_order(const Launch *launch, const Places *at)
{
    const iso_op *op = launch->op;
    const MfGemm *gemm = &launch->spec->gemm;
    const Manifest *manifest = op->module->manifest;
    Experts experts = experts_of(op, launch->phase, launch->spec);
    int64_t picks = manifest->atoms[gemm->rows.atom[1]].size;
    char *base = launch->run->workspace;
    View view;
    iso_status status = bind_chosen(launch, &view);
    if (status)
        return status;
    IsoOrderArgs args = {
        .rows_dev = launch->run->rows_device,
        .rows = (int)(gemm_rows(op, launch->phase, gemm, launch->run->rows) / picks),
        .picks = (int)picks,
        .chosen = view.data,
        .chosen_token = view.stride[0],
        .chosen_pick = view.stride[1],
        .all = (int)experts.all,
        .begin = (int)experts.lo,
        .experts = (int)experts.n,
        .bm = gemm->tile_m,
        .counts = (int *)(void *)(base + at->counts),
        .places = (IsoGroupRow *)(void *)(base + at->rows),
        .order = (int *)(void *)(base + at->order),
        .items = (IsoGroupItem *)(void *)(base + at->items),
        .n_items = (int *)(void *)(base + at->number),
    };
    const MfKernel *kernel = &manifest->kernels[gemm->order];
    Grid grid = {8, 1, 1, (unsigned)kernel->threads, (size_t)kernel->shared_bytes};
    void *parameters[] = {&args};
    return launch_program(launch, gemm->order, &grid, parameters);
}

iso_status group_join(const Launch *launch, IsoJoinArgs *args)
{
    Experts experts = experts_of(launch->op, ISO_PHASE_JOIN, launch->spec);
    View view;
    iso_status status = bind_chosen(launch, &view);
    if (status || experts.n == experts.all)
        return status;
    args->chosen = view.data;
    args->chosen_token = view.stride[0];
    args->chosen_pick = view.stride[1];
    args->all = (int)experts.all;
    args->begin = (int)experts.lo;
    args->experts = (int)experts.n;
    return ISO_OK;
}

/* ---- the product ---- */

static iso_status bind_rows(const Launch *launch, IsoGroupArgs *args)
{
    const iso_op *op = launch->op;
    const MfGemm *gemm = &launch->spec->gemm;
    const MfAtoms tokens = {1, &gemm->rows.atom[0]}, slots = {1, &gemm->rows.atom[1]};
    const MfAtoms *dims[] = {&tokens, &slots, &gemm->k};
    View view;
    iso_status status = view_bind(op, launch->phase, &launch->spec->bindings[gemm->a], dims, 3,
                                  launch->tensors, launch->run->rows, &view);
    if (status)
        return status;
    const char *name = op->op->tensors[launch->spec->bindings[gemm->a].tensor].name;
    if (view.stride[2] != 1 || (uintptr_t)view.data % 16 || view.stride[0] % 8 ||
        view.stride[1] % 8)
        return iso_fail(ISO_BAD_TENSOR,
                        "op %s: rows of tensor %s are gathered in words of 16 bytes: it must be "
                        "aligned to 16 bytes and contiguous along its innermost axis, with strides "
                        "that are multiples of 8, and has data %p with strides %" PRId64
                        ", %" PRId64 " and %" PRId64,
                        op->op->name, name, view.data, view.stride[0], view.stride[1],
                        view.stride[2]);
    args->gemm.a = view.data;
    args->gemm.a_stride = view.stride[0];
    args->a_pick_stride = view.stride[1];
    return ISO_OK;
}

/* Rows that lie in the order are loaded as other products' are. */
static iso_status bind_sorted(const Launch *launch, IsoGroupArgs *args, IsoGemmMaps *maps)
{
    const MfGemm *gemm = &launch->spec->gemm;
    args->a_sorted = launch->sorted_in;
    args->out_sorted = launch->sorted_out;
    if (!launch->sorted_in)
        return ISO_OK;
    if (args->gemm.a_stride != args->picks * args->a_pick_stride)
        return iso_fail(ISO_INTERNAL, "op %s: rows in the order of experts do not lie evenly",
                        launch->op->op->name);
    const MfBinding *a = &launch->spec->bindings[gemm->a];
    Operand operand = {.data = (void *)(uintptr_t)args->gemm.a, .stride = args->a_pick_stride,
                       .rows = args->gemm.rows, .k_inner = true,
                       .f16 = launch->op->op->tensors[a->tensor].dtype == ISO_F16};
    return gemm_map(launch, &operand, gemm->tile_m < 64 ? gemm->tile_m : 64, 0, 0, &maps->a);
}

static iso_status bind_weights(const Launch *launch, IsoGroupArgs *args, IsoGemmMaps *maps)
{
    const MfSpec *spec = launch->spec;
    const MfGemm *gemm = &spec->gemm;
    int64_t experts = experts_of(launch->op, launch->phase, spec).n;
    int parts = groups_parts(gemm);
    iso_status status = ISO_OK;
    for (int g = 0; g < gemm->n_groups; g++) {
        const MfGroup *group = &gemm->group[g];
        for (int p = 0; p < group->n_products && !status; p++) {
            Operand operand;
            status = gemm_operand(launch, group->b[p], group->b_k_inner[p], &group->cols, &operand);
            if (status)
                break;
            args->gemm.group[g].b[p] = operand.data;
            args->gemm.group[g].b_stride[p] = operand.stride;
            int64_t apart = lookup_stride(launch->op, launch->phase, &spec->bindings[group->b[p]],
                                          launch->tensors, launch->run->rows);
            status = gemm_map(launch, &operand, gemm->tile_n, experts, apart,
                              &maps->b[g * parts + p]);
        }
    }
    return status;
}

iso_status launch_group(const Launch *launch)
{
    const iso_op *op = launch->op;
    const MfGemm *gemm = &launch->spec->gemm;
    IsoGroupArgs args;
    IsoGemmMaps maps;
    memset(&args, 0, sizeof args);
    memset(&maps, 0, sizeof maps);
    int64_t rows = launch->run->rows, m = gemm_rows(op, launch->phase, gemm, rows);
    Places at = places_of(op, launch->spec, rows);
    char *base = launch->run->workspace;
    args.gemm.rows = (int)m;
    args.gemm.rows_dev = launch->run->rows_device;
    args.gemm.workspace = (float *)(void *)(base + at.partial);
    args.picks = (int)op->module->manifest->atoms[gemm->rows.atom[1]].size;
    args.order = (const int *)(void *)(base + at.order);
    args.items = (const IsoGroupItem *)(void *)(base + at.items);
    args.n_items = (const int *)(void *)(base + at.number);
    gemm_leaves(gemm, &args.gemm);
    iso_status status = groups_bind(launch, !gemm->roots_out, args.gemm.group);
    if (!status)
        status = bind_rows(launch, &args);
    if (!status)
        status = bind_weights(launch, &args, &maps);
    if (!status)
        status = bind_sorted(launch, &args, &maps);
    if (!status && !launch->ordered)
        status = launch_order(launch, &at);
    if (status)
        return status;
    if (gemm->roots_out)
        gemm_roots(launch, &args.gemm);
    Grid grid = product_grid(op, launch->spec, rows, m);
    void *parameters[] = {&args, &maps};
    return launch_kernel(launch, &grid, parameters);
}
