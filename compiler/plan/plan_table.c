/* Schedules: the contract's own where it has one, else this table. It depends on nothing but the
 * numbers given, so that every rank and every run chooses alike. */
#include "plan_impl.h"

#include <string.h>

enum {
    SHARED_MAX = 227 * 1024,  /* bytes that one CTA can have */
    SHARED_HALF = 113 * 1024, /* so that two CTAs share a multiprocessor */
    SHARED_HEAD = 1024,       /* of the wgmma kernel, before its stages */
    SHARED_PLACES = 128,      /* of grouped products beside it: the places of a tile's rows */
    STREAM_ROWS = 64,         /* up to which the weights' way through the chip is all that counts */
    MULTIPROCESSORS = 132,
    STAGES_MAX = 6,
    STAGES_SHORT = 20,        /* of short tiles, whose stages are small */
    STAGES_FEW = 4,           /* below, a value waits in workspace rather than in a stage's place */
    ACCUMULATORS = 256,       /* columns times products in registers, of one leaf */
    ACCUMULATORS_PAIR = 192,  /* with a second leaf beside the first */
    ACCUMULATORS_QUAD = 128,  /* with two more */
    SPLIT_ROWS = 256,         /* up to which leaves lie over CTAs */
    CLUSTER_MAX = 8,
};

static bool has_free(const Planner *planner, const PlanDim *dim)
{
    for (int i = 0; i < dim->n_atoms; i++)
        if (plan_atom(planner, dim->atoms[i])->free)
            return true;
    return false;
}

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
    if (!gemm->a_k_inner && has_free(planner, &gemm->rows))
        return plan_misfit(planner, "its rows lie innermost, in a number known only at launch");
    if (!gemm->a_k_inner && extent_of(planner, &gemm->rows, part) % 8)
        return plan_misfit(planner, "its rows, innermost, are not a multiple of 8");
    return true;
}

/* Columns of the wgmma kernel's tile as they lie in shared memory. */
static i64 padded_columns(const Gemm *gemm)
{
    const GemmGroup *group = &gemm->group[0];
    i64 n = group->product[0].b_k_inner ? gemm->tile_n : (gemm->tile_n + 63) / 64 * 64;
    return n * group->n_products;
}

/* The tensor cores read 64 rows of a, whatever was loaded. */
static i64 wgmma_stage(const Gemm *gemm)
{
    i64 lines = gemm->tile_m + padded_columns(gemm);
    return (lines < 64 ? 64 : lines) * 128 + 16;
}

/* What a CTA receives where leaves lie over CTAs. */
static i64 split_values(const Gemm *gemm)
{
    return (i64)gemm->tile_m * gemm->tile_n * gemm->group[0].n_products * 4 + 16;
}

/* One waiting value of a CTA; a warpgroup holds 64 rows. */
static i64 wgmma_value(const Gemm *gemm)
{
    return (gemm->tile_m + 63) / 64 * 64 * (i64)gemm->tile_n * gemm->group[0].n_products * 4;
}

i64 gemm_staging(const Gemm *gemm)
{
    bool staged = gemm->grouped && !gemm->roots_out && gemm->n_leaves > 1 && !gemm->near;
    return staged ? (gemm->tile_m + 63) / 64 * 64 * (i64)(gemm->tile_n * 2 + 16) : 0;
}

bool gemm_sorts(const Kernel *kernel)
{
    return kernel->bindings[kernel->gemm.a].has[1] && !kernel->gemm.roots_out;
}

bool gemm_shares_b(const Gemm *gemm)
{
    return gemm->leaves != LEAVES_ACROSS_CTAS && gemm->cluster > 1 && !gemm->grouped &&
           gemm->tile_n * gemm->group[0].n_products > gemm->tile_m;
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
    gemm->stages = stages_that_fit(SHARED_HALF - waiting, stage, STAGES_MAX);
    if (gemm->stages < 3)
        gemm->stages = stages_that_fit(SHARED_MAX - waiting, stage, 3);
}

/* Row counts at which the table changes its mind; a range is judged by its last. */
static const i64 borders[] = {17, 33, STREAM_ROWS + 1, 129, SPLIT_ROWS + 1, 1025, 4097};
enum { N_BORDERS = sizeof borders / sizeof *borders, ROWS_MANY = 8192 };

static i64 judged_rows(i64 rows)
{
    for (int i = 0; i < N_BORDERS; i++)
        if (rows < borders[i])
            return borders[i] - 1;
    return ROWS_MANY;
}

static int short_rows(i64 rows)
{
    return rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= STREAM_ROWS ? 64 : 128;
}

static i64 column_tiles(Planner *planner, const Gemm *gemm, const Part *part, int tile_n)
{
    i64 tiles = 0;
    for (int g = 0; g < gemm->n_groups; g++)
        tiles += (extent_of(planner, &gemm->group[g].cols, part) + tile_n - 1) / tile_n;
    return tiles;
}

/* Rounds of tiles times what one costs: its rows times its columns, and something for its rows. */
static i64 tile_cost(Planner *planner, const Gemm *gemm, const Part *part, i64 rows, int tile_n)
{
    enum { ROWS_COST = 24 };
    i64 tiles = column_tiles(planner, gemm, part, tile_n) *
                ((rows + gemm->tile_m - 1) / gemm->tile_m);
    return (tiles + MULTIPROCESSORS - 1) / MULTIPROCESSORS *
           ((i64)tile_n * gemm->group[0].n_products + ROWS_COST) * gemm->tile_m;
}

/* The cheapest width; of equals the widest. */
static int wgmma_columns(Planner *planner, const Gemm *gemm, const Part *part, i64 rows, int most)
{
    int best = 0;
    i64 best_cost = 0;
    for (int n = most / 8 * 8; n >= 8; n -= n > 64 ? 32 : n > 32 ? 16 : 8) {
        i64 cost = tile_cost(planner, gemm, part, rows, n);
        if (best && cost >= best_cost)
            continue;
        best = n;
        best_cost = cost;
    }
    return best;
}

static Str program_text(Planner *planner, const Gemm *gemm, int fused)
{
    return postfix_text(planner->arena, &gemm->program, gemm->roots_out, fused);
}

/* The most leaves that the tree joins as neighbours, four at most. */
static int fusible(Planner *planner, const Gemm *gemm)
{
    Str text = program_text(planner, gemm, 4);
    return memchr(text.s, 'Q', (size_t)text.n) ? 4 : memchr(text.s, 'P', (size_t)text.n) ? 2 : 1;
}

static int columns_beside(const Gemm *gemm, int fused)
{
    int most = fused == 4 ? ACCUMULATORS_QUAD : fused == 2 ? ACCUMULATORS_PAIR : ACCUMULATORS;
    return (gemm->tile_m > 128 ? most / 2 : most) / gemm->group[0].n_products;
}

/* CTAs of a cluster that hold `fused` leaves each; 0: they cannot. */
static int split_cluster(Planner *planner, const Gemm *gemm, int fused)
{
    int units;
    postfix_units(planner->arena, program_text(planner, gemm, fused), fused, &units);
    return units >= 2 && units <= CLUSTER_MAX ? units : 0;
}

/* The tensor cores read 64 rows of a stage: it has as many. */
static void fill_stage(Gemm *gemm)
{
    while (gemm->tile_m < 64 && gemm->tile_m + padded_columns(gemm) < 64)
        gemm->tile_m *= 2;
}

/* The smallest cluster: its CTAs wait least for one another. */
static int split_fused(Planner *planner, const Gemm *gemm)
{
    int fused = 4;
    while (fused && !split_cluster(planner, gemm, fused))
        fused /= 2;
    return fused;
}

/* Each CTA finishes the same number of columns, in steps of 8. */
static void split_columns(Planner *planner, i64 rows, const Part *part, Gemm *gemm)
{
    i64 row_tiles = (rows + gemm->tile_m - 1) / gemm->tile_m;
    int most = columns_beside(gemm, gemm->fused), step = 8 * gemm->cluster;
    gemm->tile_n = (most < 128 ? most : 128) / step * step;
    while (gemm->tile_n > step && column_tiles(planner, gemm, part, gemm->tile_n) * row_tiles *
                                          gemm->cluster < MULTIPROCESSORS * 7 / 8)
        gemm->tile_n -= step;
}

static void split_defaults(Planner *planner, i64 rows, const Part *part, Gemm *gemm)
{
    gemm->fused = split_fused(planner, gemm);
    gemm->cluster = split_cluster(planner, gemm, gemm->fused);
    if (!gemm->tile_n)
        split_columns(planner, rows, part, gemm);
    fill_stage(gemm);
    if (gemm->stages)
        return;
    gemm->stages = stages_that_fit(SHARED_MAX - SHARED_HEAD - split_values(gemm),
                                   wgmma_stage(gemm), STAGES_SHORT);
}

static i64 wgmma_head(const Gemm *gemm)
{
    return SHARED_HEAD + (gemm->grouped ? SHARED_PLACES : 0);
}

/* Values wait in shared memory as long as enough stages remain. */
static void place_waiting(Planner *planner, Gemm *gemm)
{
    int depth = postfix_depth(program_text(planner, gemm, gemm->fused));
    int few = gemm->stages ? gemm->stages : STAGES_FEW;
    i64 room = SHARED_MAX - wgmma_head(gemm), value = wgmma_value(gemm);
    i64 stage = wgmma_stage(gemm);
    gemm->near = depth > 1 ? depth - 1 : 0;
    while (gemm->near && room - gemm->near * value < few * stage)
        gemm->near--;
    gemm->far = (depth > 1 ? depth - 1 : 0) - gemm->near;
    if (!gemm->stages)
        gemm->stages = stages_that_fit(room - gemm->near * value - gemm_staging(gemm), stage,
                                       gemm->tile_m <= 64 ? STAGES_SHORT : STAGES_MAX);
}

static int fused_beside(Planner *planner, const Gemm *gemm)
{
    int fused = fusible(planner, gemm);
    while (fused > 1 && gemm->tile_n > columns_beside(gemm, fused))
        fused /= 2;
    return fused;
}

/* CTAs share the loads of what a tile has more of, where it is the same for neighbours. With few
 * rows only columns are worth waiting for one another. */
static int sharing_cluster(Planner *planner, const Gemm *gemm, const Part *part, i64 rows)
{
    bool k_inner = gemm->group[0].product[0].b_k_inner;
    if (rows <= gemm->tile_m)
        return 1;
    if (gemm->tile_n * gemm->group[0].n_products > gemm->tile_m)
        return gemm->tile_n % (k_inner ? 16 : 128) ? 1 : 2;
    return rows > SPLIT_ROWS && gemm->a_k_inner &&
           column_tiles(planner, gemm, part, gemm->tile_n) > 1 ? 2 : 1;
}

/* With many rows a third warpgroup's may make the rounds come out better. */
static void choose_tile(Planner *planner, Gemm *gemm, const Part *part, i64 rows, bool any_rows)
{
    gemm->tile_n = wgmma_columns(planner, gemm, part, rows, columns_beside(gemm, gemm->fused));
    if (!any_rows || gemm->fused > 1 || rows <= SPLIT_ROWS)
        return;
    Gemm high = *gemm;
    high.tile_m = 192;
    high.tile_n = wgmma_columns(planner, &high, part, rows, columns_beside(&high, high.fused));
    if (tile_cost(planner, &high, part, rows, high.tile_n) <
        tile_cost(planner, gemm, part, rows, gemm->tile_n))
        *gemm = high;
}

static void persistent_defaults(Planner *planner, i64 rows, const Part *part, Gemm *gemm,
                                bool any_rows)
{
    gemm->fused = fused_beside(planner, gemm);
    if (!gemm->tile_n)
        choose_tile(planner, gemm, part, rows, any_rows);
    fill_stage(gemm);
    gemm->cluster = sharing_cluster(planner, gemm, part, rows);
    place_waiting(planner, gemm);
}

static bool epilogue_reads(const Kernel *kernel)
{
    for (int i = 0; i < kernel->n_bindings; i++)
        if (kernel->bindings[i].group >= 0 && !kernel->bindings[i].result)
            return true;
    return false;
}

/* Of a grouped product every expert's columns are tiled alike: the fewest padded ones. What an
 * epilogue reads takes registers too. */
static int group_columns(Planner *planner, const Kernel *kernel, const Part *part)
{
    enum { TILE_COST = 24, COLUMNS_FEW_ROWS = 128 };
    const Gemm *gemm = &kernel->gemm;
    i64 parts = gemm->group[0].n_products, best_cost = 0;
    int best = 0, most = columns_beside(gemm, gemm->fused);
    if (epilogue_reads(kernel))
        most = most * 3 / 4;
    if (gemm->tile_m <= STREAM_ROWS && most > COLUMNS_FEW_ROWS / parts)
        most = (int)(COLUMNS_FEW_ROWS / parts);
    for (int n = most / 8 * 8; n >= 8; n -= n > 32 && n % 32 ? n % 32 : n > 32 ? 32 : 8) {
        i64 cost = column_tiles(planner, gemm, part, n) * (n * parts + TILE_COST);
        if (best && cost >= best_cost)
            continue;
        best = n;
        best_cost = cost;
    }
    return best;
}

/* Whether leaves go over CTAs unasked: with few rows, and a width that allows it. */
static bool splits(Planner *planner, const Gemm *gemm, i64 rows)
{
    int fused = rows <= SPLIT_ROWS ? split_fused(planner, gemm) : 0;
    return fused && gemm->tile_n <= columns_beside(gemm, fused) &&
           gemm->tile_n % (8 * split_cluster(planner, gemm, fused)) == 0;
}

static void wgmma_defaults(Planner *planner, i64 rows, const Part *part, Gemm *gemm)
{
    bool any_rows = !gemm->tile_m;
    if (any_rows)
        gemm->tile_m = gemm->a_k_inner || rows > STREAM_ROWS ? short_rows(rows) : STREAM_ROWS;
    if (gemm->leaves == LEAVES_UNSET)
        gemm->leaves = splits(planner, gemm, rows) ? LEAVES_ACROSS_CTAS : LEAVES_IN_REGISTERS;
    if (!gemm->tile_k)
        gemm->tile_k = 64;
    if (gemm->leaves == LEAVES_ACROSS_CTAS)
        split_defaults(planner, rows, part, gemm);
    else
        persistent_defaults(planner, rows, part, gemm, any_rows);
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

/* The wgmma kernel's place for its waiting values and stages. */
static bool wgmma_room(Planner *planner, const Gemm *gemm)
{
    bool split = gemm->leaves == LEAVES_ACROSS_CTAS;
    i64 values = split ? split_values(gemm)
                       : gemm->near * wgmma_value(gemm) + gemm_staging(gemm);
    i64 need = wgmma_head(gemm) + gemm->stages * wgmma_stage(gemm) + values;
    return (gemm->stages >= 2 && need <= SHARED_MAX) ||
           plan_misfit(planner, "%d stages of this tile take %lld bytes of shared memory; at least "
                       "2 stages, at most %d bytes", gemm->stages, (long long)need, SHARED_MAX);
}

static bool wgmma_legal(Planner *planner, const Gemm *gemm)
{
    bool rows = one_of(gemm->tile_m, 64, 128, 192) || one_of(gemm->tile_m, 16, 32, 64);
    if (!gemm->a_k_inner && gemm->tile_m % 64)
        return plan_misfit(planner, "tile %d x %d: rows that lie innermost are loaded by 64",
                           gemm->tile_m, gemm->tile_n);
    if (!rows || gemm->tile_n % 8 || gemm->tile_n < 8 || gemm->tile_n > 256 || gemm->tile_k != 64)
        return plan_misfit(planner, "tile %d x %d x %d: the wgmma kernel has 16, 32, 64, 128 or "
                           "192 rows by 8 to 256 columns in steps of 8 by 64", gemm->tile_m,
                           gemm->tile_n, gemm->tile_k);
    bool split = gemm->leaves == LEAVES_ACROSS_CTAS;
    if (split && (!gemm->cluster || gemm->tile_n % (8 * gemm->cluster)))
        return plan_misfit(planner, "its leaves do not lie over a cluster of 2 to %d CTAs that "
                           "each finish as many columns, in steps of 8", CLUSTER_MAX);
    if (gemm->tile_n > columns_beside(gemm, gemm->fused))
        return plan_misfit(planner, "%d columns: the registers hold %d", gemm->tile_n,
                           columns_beside(gemm, gemm->fused));
    return wgmma_room(planner, gemm);
}

/* Where columns are reduced, a tile has the columns of a part, in the wgmma kernel. */
static bool fold_obeys(Planner *planner, const Part *part, Gemm *gemm)
{
    bool free = gemm->kernel != KERNEL_STREAM && gemm->leaves != LEAVES_ACROSS_CTAS &&
                (!gemm->tile_n || gemm->tile_n == FOLD_COLUMNS);
    gemm->kernel = KERNEL_WGMMA;
    gemm->leaves = LEAVES_IN_REGISTERS;
    gemm->tile_n = FOLD_COLUMNS;
    if (!free)
        return plan_misfit(planner, "a product whose columns are reduced has tiles of %d of them, "
                           "by the wgmma kernel", FOLD_COLUMNS);
    return wgmma_takes(planner, gemm, part);
}

/* ---- grouped products ------------------------------------------------------------------------ */

/* Rows of an expert, were all experts chosen alike. */
static i64 rows_each(Planner *planner, const Kernel *kernel, i64 rows)
{
    const Gemm *gemm = &kernel->gemm;
    int experts = binding_looked_up(&kernel->bindings[gemm->group[0].product[0].b]);
    i64 all = atom_size(planner->contract, experts, 0);
    return rows * atom_size(planner->contract, gemm->rows.atoms[1], 0) / (all ? all : 1);
}

/* Some experts have more rows than others. */
static int group_rows(i64 each)
{
    return each <= 6 ? 16 : each <= 16 ? 32 : each <= 40 ? 64 : 128;
}

static void group_defaults(Planner *planner, i64 from, const Part *part, Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    if (!gemm->tile_m)
        gemm->tile_m = group_rows(rows_each(planner, kernel, judged_rows(from)));
    gemm->leaves = LEAVES_IN_REGISTERS;
    gemm->tile_k = 64;
    gemm->fused = fused_beside(planner, gemm);
    if (!gemm->tile_n)
        gemm->tile_n = group_columns(planner, kernel, part);
    fill_stage(gemm);
    place_waiting(planner, gemm);
}

static bool group_legal(Planner *planner, const Schedule *contract, const Part *part,
                        Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    enum { EXPERTS_MAX = 512 };
    int experts = binding_looked_up(&kernel->bindings[gemm->group[0].product[0].b]);
    if (contract && (contract->kernel == KERNEL_STREAM || contract->leaves == LEAVES_ACROSS_CTAS))
        return plan_misfit(planner, "products at indices have the wgmma kernel alone, with leaves "
                           "in registers");
    if (part->hi[experts] - part->lo[experts] > EXPERTS_MAX)
        return plan_misfit(planner, "a rank has more than %d experts", EXPERTS_MAX);
    return one_of(gemm->tile_m, 16, 32, 64) || gemm->tile_m == 128 ||
           plan_misfit(planner, "a tile of %d rows: products at indices have 16, 32, 64 or 128",
                       gemm->tile_m);
}

/* Blocks of k go on over the borders of leaves, which need not be theirs, where those that a CTA
 * joins in registers end with a block. */
static bool runs_on(Planner *planner, const Gemm *gemm)
{
    i64 length = gemm->leaf_hi[0] - gemm->leaf_lo[0];
    Str text = program_text(planner, gemm, gemm->fused);
    return gemm->fused > 1 && length > gemm->tile_k && length % 16 == 0 &&
           length % gemm->tile_k && length * gemm->fused % gemm->tile_k == 0 &&
           gemm->group[0].product[0].b_k_inner && !memchr(text.s, 'L', (size_t)text.n) &&
           !(gemm->fused == 4 && memchr(text.s, 'P', (size_t)text.n));
}

/* Where rows lie in the order of their experts, two CTAs of a cluster take two column tiles of the
 * same rows. A tile of one chain is wide enough. */
static bool pairs(Planner *planner, const Kernel *kernel, const Part *part)
{
    const Gemm *gemm = &kernel->gemm;
    Str text = program_text(planner, gemm, gemm->fused);
    return gemm_sorts(kernel) && gemm->n_groups == 1 && gemm->tile_m == 128 && gemm->fused > 1 &&
           !memchr(text.s, 'L', (size_t)text.n) &&
           column_tiles(planner, gemm, part, gemm->tile_n) % 2 == 0;
}

static bool group_schedule(Planner *planner, const Schedule *contract, i64 rows, const Part *part,
                           Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    gemm->kernel = KERNEL_WGMMA;
    if (!wgmma_takes(planner, gemm, part))
        return false;
    group_defaults(planner, rows, part, kernel);
    gemm->runs_on = runs_on(planner, gemm);
    gemm->cluster = pairs(planner, kernel, part) ? 2 : 1;
    return group_legal(planner, contract, part, kernel) && wgmma_legal(planner, gemm);
}

/* What a tile of a schedule without a kernel says about it. */
static KernelChoice implied_kernel(const Gemm *gemm)
{
    if (gemm->leaves == LEAVES_ACROSS_CTAS || (gemm->tile_m && gemm->tile_m < 64))
        return KERNEL_STREAM;
    return gemm->tile_m > 64 ? KERNEL_WGMMA : KERNEL_UNSET;
}

bool plan_schedule(Planner *planner, const Schedule *contract, i64 from, const Part *part,
                   Kernel *kernel)
{
    Gemm *gemm = &kernel->gemm;
    bool free = has_free(planner, &gemm->rows);
    i64 rows = free ? from : extent_of(planner, &gemm->rows, part);
    if (contract) {
        gemm->tile_m = contract->tile_m;
        gemm->tile_n = contract->tile_n;
        gemm->tile_k = contract->tile_k;
        gemm->stages = contract->stages;
        gemm->leaves = contract->leaves;
        gemm->kernel = contract->kernel;
    }
    gemm->fused = gemm->cluster = 1;
    if (gemm->grouped)
        return group_schedule(planner, contract, rows, part, kernel);
    if (gemm->fold.n_reduces && !fold_obeys(planner, part, gemm))
        return false;
    if (gemm->kernel == KERNEL_UNSET)
        gemm->kernel = implied_kernel(gemm);
    bool asked = gemm->kernel != KERNEL_UNSET;
    if (!asked)
        gemm->kernel = KERNEL_WGMMA;
    if (gemm->kernel == KERNEL_WGMMA && !wgmma_takes(planner, gemm, part)) {
        if (asked)
            return false;
        gemm->kernel = KERNEL_STREAM;
    }
    if (gemm->kernel == KERNEL_WGMMA) {
        wgmma_defaults(planner, free ? judged_rows(rows) : rows, part, gemm);
        return wgmma_legal(planner, gemm);
    }
    stream_defaults(planner, rows, part, gemm);
    return stream_legal(planner, gemm);
}

int plan_table_borders(const i64 **at)
{
    *at = borders;
    return N_BORDERS;
}
