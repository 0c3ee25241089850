/* Schedules: the contract's own where it has one, else this table. It depends on nothing but the
 * numbers given, so that every rank and every run chooses alike. */
#include "plan_impl.h"

enum {
    SHARED_MAX = 227 * 1024,  /* bytes that one CTA can have */
    SHARED_HEAD = 1024,       /* of the wgmma kernel, before its stages */
    STREAM_ROWS = 64,         /* above, the tensor cores are worth feeding from shared memory */
    MULTIPROCESSORS = 132,
    STAGES_MAX = 6,
    STREAM_SHARED = SHARED_MAX / 2, /* so that two CTAs share a multiprocessor */
    ACCUMULATORS = 256,       /* columns times products in registers, leaves apart */
    ACCUMULATORS_PAIR = 192,  /* with a second leaf beside the first */
};

static i64 extent_of(const Planner *planner, const PlanDim *dim, const Part *part)
{
    i64 extent = 1;
    for (int i = 0; i < dim->n_atoms; i++)
        if (!plan_atom(planner, dim->atoms[i])->free)
            extent *= part->hi[dim->atoms[i]] - part->lo[dim->atoms[i]];
    return extent;
}

/* ---- what the kernels take (device/iso_abi.cuh) ---------------------------------------------- */

static bool equal_leaves(const Gemm *gemm)
{
    for (int i = 1; i < gemm->n_leaves; i++)
        if (gemm->leaf_hi[i] - gemm->leaf_lo[i] != gemm->leaf_hi[0] - gemm->leaf_lo[0])
            return false;
    return true;
}

/* Dense operands: the stride between lines is the length of a line. */
static bool wgmma_takes(Planner *planner, const Gemm *gemm, const Part *part)
{
    i64 leaf = gemm->n_leaves ? gemm->leaf_hi[0] - gemm->leaf_lo[0] : 0;
    i64 k = extent_of(planner, &gemm->k, part);
    bool b_inner = gemm->group[0].product[0].b_k_inner;
    if (!equal_leaves(gemm))
        return plan_misfit(planner, "its leaves have different lengths");
    if ((gemm->a_k_inner || b_inner) && (k % 8 || (gemm->n_leaves > 1 && leaf % 8)))
        return plan_misfit(planner, "its leaves of %lld elements are not a multiple of 8",
                           (long long)(k % 8 ? k : leaf));
    for (int g = 0; g < gemm->n_groups && !b_inner; g++)
        if (extent_of(planner, &gemm->group[g].cols, part) % 8)
            return plan_misfit(planner, "its columns are not a multiple of 8");
    if (!gemm->a_k_inner)
        return plan_misfit(planner, "its rows lie innermost, in a number known only at launch");
    return true;
}

static i64 wgmma_stage(const Gemm *gemm, int tile_m, int tile_n)
{
    const GemmGroup *group = &gemm->group[0];
    i64 n = group->product[0].b_k_inner ? tile_n : (tile_n + 63) / 64 * 64;
    return (i64)tile_m * 128 + group->n_products * n * 128 + 16;
}

static i64 stream_stage(const Gemm *gemm)
{
    return ((i64)gemm->tile_m + (i64)gemm->group[0].n_products * gemm->tile_n) * gemm->tile_k * 2;
}

/* Values that wait while a later leaf runs, where one CTA walks the whole tree. */
static i64 stream_waiting(const Gemm *gemm)
{
    int levels = gemm->leaves == LEAVES_ACROSS_CTAS || gemm->program.depth < 1
                     ? 0 : gemm->program.depth - 1;
    return (i64)levels * gemm->group[0].n_products * gemm->tile_m * gemm->tile_n * 4;
}

static int stages_that_fit(i64 room, i64 stage, int most)
{
    i64 stages = room / stage;
    return stages < most ? (int)stages : most;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Columns (of each product) that the busiest multiprocessor streams. */
static i64 column_load(Planner *planner, const Gemm *gemm, const Part *part, int tile_n)
{
    i64 ctas = 0, leaves = gemm->leaves == LEAVES_ACROSS_CTAS ? gemm->n_leaves : 1;
    for (int g = 0; g < gemm->n_groups; g++)
        ctas += (extent_of(planner, &gemm->group[g].cols, part) + tile_n - 1) / tile_n;
    return (ctas * leaves + MULTIPROCESSORS - 1) / MULTIPROCESSORS * tile_n;
}

/* The tile that spreads the weights most evenly; of equals the narrowest, since its CTAs are more.
 * With more rows a narrow tile would read them too often. */
static int stream_columns(Planner *planner, const Gemm *gemm, const Part *part)
{
    static const int widths[] = {24, 32, 48, 64};
    int best = 0;
    i64 best_load = 0;
    for (int i = gemm->tile_m > 16; i < (int)(sizeof widths / sizeof *widths); i++) {
        i64 load = column_load(planner, gemm, part, widths[i]);
        bool legal = gemm->group[0].product[0].b_k_inner || !(widths[i] & (widths[i] - 1));
        if (!legal || (best && load >= best_load))
            continue;
        best = widths[i];
        best_load = load;
    }
    return best;
}

static void stream_defaults(Planner *planner, i64 rows, const Part *part, Gemm *gemm)
{
    if (!gemm->tile_m)
        gemm->tile_m = rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
    if (gemm->leaves == LEAVES_UNSET)
        gemm->leaves = gemm->n_leaves > 1 && rows <= STREAM_ROWS ? LEAVES_ACROSS_CTAS
                                                                 : LEAVES_IN_REGISTERS;
    if (!gemm->tile_n)
        gemm->tile_n = stream_columns(planner, gemm, part);
    if (!gemm->tile_k)
        gemm->tile_k = 128;
    if (gemm->stages)
        return;
    i64 stage = stream_stage(gemm), waiting = stream_waiting(gemm);
    gemm->stages = stages_that_fit(STREAM_SHARED - waiting, stage, STAGES_MAX);
    if (gemm->stages < 3)
        gemm->stages = stages_that_fit(SHARED_MAX - waiting, stage, 3);
}

static void wgmma_defaults(Gemm *gemm)
{
    int products = gemm->group[0].n_products;
    if (!gemm->tile_m)
        gemm->tile_m = 128;
    if (gemm->leaves == LEAVES_UNSET)
        gemm->leaves = LEAVES_IN_REGISTERS;
    if (!gemm->tile_n) {
        int columns = (gemm->n_leaves > 1 ? ACCUMULATORS_PAIR : ACCUMULATORS) / products;
        gemm->tile_n = columns >= 64 ? columns / 32 * 32 : columns / 8 * 8;
    }
    if (!gemm->tile_k)
        gemm->tile_k = 64;
    if (!gemm->stages)
        gemm->stages = stages_that_fit(SHARED_MAX - SHARED_HEAD,
                                       wgmma_stage(gemm, gemm->tile_m, gemm->tile_n), STAGES_MAX);
}

/* ---- what was asked for, checked ------------------------------------------------------------- */

static bool one_of(int value, int a, int b, int c)
{
    return value == a || value == b || value == c;
}

/* Column blocks of 8 are shared out to four warps, three, or at most two. */
static bool stream_width(const Gemm *gemm)
{
    int n = gemm->tile_n, eights = n / 8;
    bool power = !(n & (n - 1));
    return n > 0 && n % 8 == 0 && n <= 128 &&
           (eights <= 3 || eights % 4 == 0 || eights % 3 == 0) &&
           (power || gemm->group[0].product[0].b_k_inner);
}

static bool stream_legal(Planner *planner, const Gemm *gemm)
{
    if (!one_of(gemm->tile_m, 16, 32, 64) || !stream_width(gemm) ||
        !one_of(gemm->tile_k, 32, 64, 128))
        return plan_misfit(planner, "tile %d x %d x %d: the stream kernel has 16, 32 or 64 rows by "
                           "8, 16, or up to 128 columns in steps of 24 or 32 (transposed: a power "
                           "of two) by 32, 64 or 128", gemm->tile_m, gemm->tile_n, gemm->tile_k);
    i64 need = gemm->stages * stream_stage(gemm) + stream_waiting(gemm);
    return (gemm->stages >= 2 && need <= SHARED_MAX) ||
           plan_misfit(planner, "%d stages of this tile take %lld bytes of shared memory; at least "
                       "2 stages, at most %d bytes", gemm->stages, (long long)need, SHARED_MAX);
}

static bool wgmma_legal(Planner *planner, const Gemm *gemm)
{
    if (gemm->leaves == LEAVES_ACROSS_CTAS)
        return plan_misfit(planner, "leaves across ctas are for the stream kernel");
    if (!one_of(gemm->tile_m, 64, 128, 192) || gemm->tile_n % 8 || gemm->tile_n < 8 ||
        gemm->tile_n > 256 || gemm->tile_k != 64)
        return plan_misfit(planner, "tile %d x %d x %d: the wgmma kernel has 64, 128 or 192 rows "
                           "by 8 to 256 columns in steps of 8 by 64", gemm->tile_m, gemm->tile_n,
                           gemm->tile_k);
    i64 need = SHARED_HEAD + gemm->stages * wgmma_stage(gemm, gemm->tile_m, gemm->tile_n);
    return (gemm->stages >= 2 && need <= SHARED_MAX) ||
           plan_misfit(planner, "%d stages of this tile take %lld bytes of shared memory; at least "
                       "2 stages, at most %d bytes", gemm->stages, (long long)need, SHARED_MAX);
}

/* What a tile of a schedule without a kernel says about it. */
static KernelChoice implied_kernel(const Gemm *gemm)
{
    if (gemm->leaves == LEAVES_ACROSS_CTAS || (gemm->tile_m && gemm->tile_m < 64))
        return KERNEL_STREAM;
    return gemm->tile_m > 64 ? KERNEL_WGMMA : KERNEL_UNSET;
}

bool plan_schedule(Planner *planner, const Schedule *contract, i64 rows, const Part *part,
                   Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    if (contract) {
        gemm->tile_m = contract->tile_m;
        gemm->tile_n = contract->tile_n;
        gemm->tile_k = contract->tile_k;
        gemm->stages = contract->stages;
        gemm->leaves = contract->leaves;
        gemm->kernel = contract->kernel;
    }
    if (gemm->kernel == KERNEL_UNSET)
        gemm->kernel = implied_kernel(gemm);
    bool asked = gemm->kernel != KERNEL_UNSET;
    if (!asked)
        gemm->kernel = rows > STREAM_ROWS ? KERNEL_WGMMA : KERNEL_STREAM;
    if (gemm->kernel == KERNEL_WGMMA && !wgmma_takes(planner, gemm, part)) {
        if (asked)
            return false;
        gemm->kernel = KERNEL_STREAM;
    }
    if (gemm->kernel == KERNEL_WGMMA) {
        wgmma_defaults(gemm);
        return wgmma_legal(planner, gemm);
    }
    stream_defaults(planner, rows, part, gemm);
    return stream_legal(planner, gemm);
}

int plan_table_borders(const i64 **borders)
{
    static const i64 at[] = {17, 33, STREAM_ROWS + 1};
    *borders = at;
    return 3;
}
