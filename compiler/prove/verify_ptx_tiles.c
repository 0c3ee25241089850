/* Which tiles of a product run, and how much a launch should write. */
#include "verify_ptx_impl.h"

static i64 ceil_of(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

/* ---- which CTAs ------------------------------------------------------------------------------ */

static i64 group_columns(const PtxTrial *r, int g)
{
    return part_size(r->worker->module->manifest, op_part(r->op, r->job->phase),
                     &r->spec->gemm.group[g].cols, r->rows);
}

/* Where columns are reduced, a tile for each root. */
static i64 group_tiles(const PtxTrial *r, int g)
{
    const MfGemm *gemm = &r->spec->gemm;
    return gemm->fold_roots ? gemm->fold_roots : ceil_of(group_columns(r, g), gemm->tile_n);
}

static void add_one(PtxTrial *r, i64 tile)
{
    for (int i = 0; i < r->n_tiles; i++)
        if (r->tile[i] == tile)
            return;
    if (r->n_tiles < PTX_MAX_TILES)
        r->tile[r->n_tiles++] = tile;
}

/* With it those that the CTAs of its cluster have, or would have beyond the last. */
static void add_tile(PtxTrial *r, i64 tile)
{
    const MfGemm *gemm = &r->spec->gemm;
    i64 n = gemm->wgmma && !gemm->across_ctas ? gemm->cluster / gemm->high : 1;
    for (i64 k = 0; k < n; k++)
        add_one(r, tile / n * n + k);
}

/* Of every group the first tile, the last one, which may be short, and one between them; uneven
 * launches run the last alone. */
void verify_ptx_choose_tiles(PtxTrial *r)
{
    const MfGemm *gemm = &r->spec->gemm;
    bool small = r->worker->input->small, one = small && r->job->which >= 0;
    bool last = r->job->uneven & (PTX_UNEVEN | PTX_FEW_ROWS) || one;
    i64 before = 0;
    for (int g = 0; g < gemm->n_groups; g++) {
        i64 tiles = group_tiles(r, g);
        u64 random = verify_ptx_scatter(r->worker->input->seed + (u64)r->job->spec * 77 + (u64)g);
        add_tile(r, before + tiles - 1);
        if (!last)
            add_tile(r, before);
        if (!last && !small && tiles > 2)
            add_tile(r, before + 1 + (i64)(random % (u64)(tiles - 2)));
        before += tiles;
    }
}

static bool is_chosen(const PtxTrial *r, i64 column_tile)
{
    for (int i = 0; i < r->n_tiles; i++)
        if (r->tile[i] == column_tile)
            return true;
    return false;
}

static i64 row_tiles(const PtxTrial *r)
{
    return ceil_of(r->own_rows, r->spec->gemm.tile_m);
}

static i64 column_tiles(const PtxTrial *r)
{
    i64 tiles = 0;
    for (int g = 0; g < r->spec->gemm.n_groups; g++)
        tiles += group_tiles(r, g);
    return tiles;
}

/* The persistent wgmma kernel: a cluster has as many column tiles as CTAs, or row tiles, counts
 * such shares down the rows first, and goes on to further ones. Uneven launches have half as many
 * clusters as shares. */
static bool is_persistent(const PtxTrial *r)
{
    return r->spec->gemm.wgmma && !r->spec->gemm.across_ctas;
}

static i64 share_rows(const PtxTrial *r)
{
    return ceil_of(row_tiles(r), r->spec->gemm.high);
}

static i64 share_width(const PtxTrial *r)
{
    return r->spec->gemm.cluster / r->spec->gemm.high;
}

static i64 shares(const PtxTrial *r)
{
    return share_rows(r) * ceil_of(column_tiles(r), share_width(r));
}

static i64 clusters(const PtxTrial *r)
{
    return r->job->uneven ? ceil_of(shares(r), 2) : shares(r);
}

int verify_ptx_multiprocessors(const PtxTrial *r)
{
    return is_persistent(r) ? (int)(clusters(r) * r->spec->gemm.cluster)
                            : MACHINE_MULTIPROCESSORS;
}

/* Whether one of a cluster's shares has a chosen tile; tiles are chosen by whole shares. */
static bool cluster_runs(const PtxTrial *r, i64 cluster)
{
    for (i64 share = cluster; share < shares(r); share += clusters(r))
        if (is_chosen(r, share / share_rows(r) * share_width(r)))
            return true;
    return false;
}

static bool tile_runs(const PtxTrial *r, i64 column, i64 row)
{
    if (!is_persistent(r))
        return is_chosen(r, column);
    i64 share = column / share_width(r) * share_rows(r) + row / r->spec->gemm.high;
    return cluster_runs(r, share % clusters(r));
}

bool verify_ptx_wanted(void *self, const u32 cta[3])
{
    const PtxTrial *r = self;
    const MfGemm *gemm = &r->spec->gemm;
    if (r->groups)
        return verify_ptx_group_wanted(r, cta[0], is_chosen);
    if (is_persistent(r))
        return cluster_runs(r, cta[0] / (u32)gemm->cluster);
    return is_chosen(r, gemm->wgmma ? cta[0] / (u32)gemm->cluster : cta[0]);
}

/* How much of a length a tile has. */
static i64 within(i64 length, i64 tile, i64 size)
{
    i64 left = length - tile * size;
    return left < 0 ? 0 : left < size ? left : size;
}

i64 verify_ptx_tiles(const PtxTrial *r)
{
    i64 tiles = 0;
    for (int g = 0; g < r->spec->gemm.n_groups; g++)
        tiles += ceil_of(group_columns(r, g), r->spec->gemm.tile_n);
    return tiles * row_tiles(r);
}

/* Elements of group g in live rows that the tiles which run have. */
static i64 tiles_area(const PtxTrial *r, int g, i64 live)
{
    const MfGemm *gemm = &r->spec->gemm;
    i64 before = 0, columns = group_columns(r, g), area = 0;
    for (int i = 0; i < g; i++)
        before += ceil_of(group_columns(r, i), gemm->tile_n);
    for (i64 c = 0; c < ceil_of(columns, gemm->tile_n); c++)
        for (i64 row = 0; row < row_tiles(r); row++)
            if (tile_runs(r, before + c, row))
                area += within(columns, c, gemm->tile_n) * within(live, row, gemm->tile_m);
    return area;
}

/* Values of the roots of live rows that the tiles which run have. */
static i64 fold_outputs(const PtxTrial *r, i64 live)
{
    i64 values = 0;
    for (i64 c = 0; c < r->spec->gemm.fold_roots; c++)
        for (i64 row = 0; row < row_tiles(r); row++)
            if (tile_runs(r, c, row))
                values += within(live, row, r->spec->gemm.tile_m) * r->spec->gemm.fold_values;
    return values;
}

/* Columns of a tile, counted over all groups; times what is written of each. */
static i64 tile_outputs(const PtxTrial *r, i64 tile)
{
    const MfGemm *gemm = &r->spec->gemm;
    int g = 0;
    for (; tile >= ceil_of(group_columns(r, g), gemm->tile_n); g++)
        tile -= ceil_of(group_columns(r, g), gemm->tile_n);
    i64 each = gemm->roots_out ? (i64)gemm->n_roots * groups_parts(gemm)
                               : gemm->group[g].n_results;
    return within(group_columns(r, g), tile, gemm->tile_n) * each;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Of a number that is the same for each row. */
static i64 live_part(const PtxTrial *r, i64 of_all_rows)
{
    return of_all_rows / r->part_rows * r->live_rows;
}

/* What says which slots are the rank's: a tensor of indices of an atom that is cut. */
typedef struct Owner {
    int tensor, atom; /* tensor below 0: all are */
} Owner;

static Owner owner_of(const PtxTrial *r)
{
    const MfPart *part = op_part(r->op, r->job->phase);
    const MfSpec *spec = r->spec;
    int experts = spec->gemm.experts;
    if (spec->gemm.grouped && part->hi[experts] - part->lo[experts] <
                                  r->worker->module->manifest->atoms[experts].size)
        return (Owner){spec->bindings[spec->gemm.chosen].tensor, experts};
    for (int i = 0; i < spec->n_bindings && !spec->row_columns; i++) {
        const MfBinding *b = &spec->bindings[i];
        if (b->lookup == i && r->op->op->tensors[b->tensor].n_axes == 2 &&
            part->hi[b->looked_up] - part->lo[b->looked_up] <
                r->worker->module->manifest->atoms[b->looked_up].size)
            return (Owner){b->tensor, b->looked_up};
    }
    return (Owner){-1, -1};
}

/* Of a result's live elements those whose slots stand at the rank's part. */
static i64 owned(const PtxTrial *r, i64 elements)
{
    Owner owner = owner_of(r);
    if (owner.tensor < 0)
        return elements;
    const MfPart *part = op_part(r->op, r->job->phase);
    const iso_tensor *t = &r->tensor[owner.tensor].tensor;
    i64 lo = part->lo[owner.atom], own = 0, slots = r->live_rows * t->shape[1];
    i64 size = r->worker->module->manifest->atoms[owner.atom].size;
    for (i64 i = 0; i < slots; i++) {
        i64 at = ((const int32_t *)t->data)[i / t->shape[1] * t->stride[0] +
                                            i % t->shape[1] * t->stride[1]];
        own += at < 0 || at >= size ? lo == 0 : at >= lo && at < part->hi[owner.atom];
    }
    return slots ? elements / slots * own : 0;
}

/* Of a product's rows, which need not be the launch's. */
static i64 live_rows(const PtxTrial *r)
{
    const Manifest *manifest = r->worker->module->manifest;
    return axis_is_free(manifest, &r->spec->gemm.rows) ? live_part(r, r->own_rows) : r->own_rows;
}

i64 verify_ptx_outputs(const PtxTrial *r)
{
    i64 total = 0;
    const MfGemm *gemm = &r->spec->gemm;
    if (verify_ptx_is_gemm(r) && gemm->fold_roots)
        return fold_outputs(r, live_part(r, r->own_rows));
    for (int g = 0; verify_ptx_is_gemm(r) && g < gemm->n_groups; g++) {
        i64 each = gemm->group[g].n_results;
        if (gemm->roots_out)
            each = (i64)gemm->n_roots * groups_parts(gemm);
        total += tiles_area(r, g, live_rows(r)) * each;
    }
    if (r->groups)
        return verify_ptx_group_area(r, is_chosen, tile_outputs);
    if (verify_ptx_is_gemm(r))
        return total;
    if (r->job->phase == ISO_PHASE_PART && r->keys)
        return verify_ptx_roots_seen(r);
    if (r->job->phase == ISO_PHASE_PART)
        return owned(r, live_part(r, (i64)r->roots.bytes / 4));
    for (int i = 0; i < r->n_results; i++)
        total += owned(r, live_part(r, r->tensor[r->n_params + i].elements));
    return total;
}
