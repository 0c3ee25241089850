/* Grouped products on the PTX machine: where slots stand, which items that makes, which of their
 * tiles run. */
#include "verify_ptx_impl.h"

#include <string.h>

/* Tiles of the kernel's sweeps (device/iso_gemm_fill.cuh). */
enum { RASTER = 16 };

typedef struct Item {
    i64 first, count; /* of its expert's rows */
    bool wanted;
} Item;

struct PtxGroups {
    i64 *rows;   /* per expert that lies here, and rows without one */
    i64 experts;
    int n_items;
    Item *item;
    i64 tiles, grid, columns; /* columns: tiles, or pairs of them */
    int shared;               /* 1: a cluster of two takes two columns at a time */
};

static const MfBinding *weights_of(const PtxTrial *r)
{
    return &r->spec->bindings[r->spec->gemm.group[0].b[0]];
}

static int chosen_of(const PtxTrial *r)
{
    return r->spec->bindings[r->spec->gemm.chosen].tensor;
}

/* Three rows in eight have one expert, one in eight has none, some another number that is none. */
static int32_t expert_of(const PtxTrial *r, i64 at, i64 all)
{
    u64 h = ((u64)at + r->worker->input->seed * 977) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    i64 hot = all / 3;
    return (int32_t)(h % 8 < 3    ? hot
                     : h % 8 == 3 ? (h >> 8) % 3 ? -1 : all
                                  : (i64)((h >> 8) % (u64)all));
}

/* Of rows that stand in the order of their experts. */
static int32_t next_expert(i64 at, i64 n, i64 all)
{
    i64 hot = all / 3, eighth = at * 8 / n;
    return (int32_t)(eighth < 2 ? at * 4 * hot / n
                     : eighth < 5 ? hot
                     : eighth < 7 ? hot + 1 + (at * 8 - 5 * n) * (all - hot - 1) / (2 * n)
                                  : all);
}

bool verify_ptx_group_sorts(const PtxTrial *r)
{
    const MfPart *part = op_part(r->op, r->job->phase);
    int atom = weights_of(r)->looked_up;
    return part->hi[atom] - part->lo[atom] == r->worker->module->manifest->atoms[atom].size;
}

iso_status verify_ptx_group_start(PtxTrial *r, const iso_op *op, int tensors)
{
    return op_run_sorted(&(OpCall){op, r->passed, tensors, &r->run}, group_takes_sorted(r->spec),
                         group_gives_sorted(r->spec), false);
}

void verify_ptx_group_fill(PtxTrial *r, int index)
{
    PtxTensor *t = &r->tensor[index];
    if (r->spec->family != MF_GEMM || !r->spec->gemm.grouped || index != chosen_of(r))
        return;
    i64 n = (i64)t->bytes / t->element;
    i64 all = r->worker->module->manifest->atoms[weights_of(r)->looked_up].size;
    for (i64 at = 0; at < n; at++)
        ((int32_t *)t->tensor.data)[at] =
            r->job->uneven & PTX_SORTED ? next_expert(at, n, all) : expert_of(r, at, all);
    memset(t->filled, 1, t->bytes / 4096 + 2);
}

/* The slot of an index: an expert that lies here, the last for rows without one; -1: elsewhere. */
static i64 slot_of(const PtxTrial *r, const MfPart *part, i64 index)
{
    int atom = weights_of(r)->looked_up;
    if (index < 0 || index >= r->worker->module->manifest->atoms[atom].size)
        return part->lo[atom] == 0 ? part->hi[atom] - part->lo[atom] : -1;
    return index >= part->lo[atom] && index < part->hi[atom] ? index - part->lo[atom] : -1;
}

static void count_rows(PtxTrial *r, PtxGroups *g)
{
    const MfPart *part = op_part(r->op, r->job->phase);
    const PtxTensor *t = &r->tensor[chosen_of(r)];
    i64 picks = t->tensor.shape[1];
    for (i64 row = 0; row < r->live_rows * picks; row++) {
        i64 at = row / picks * t->tensor.stride[0] + row % picks * t->tensor.stride[1];
        i64 slot = slot_of(r, part, ((const int32_t *)t->tensor.data)[at]);
        if (slot >= 0)
            g->rows[slot]++;
    }
}

/* The fullest expert's first item and its last, a few others, and that of rows without one. */
static void make_items(PtxTrial *r, PtxGroups *g)
{
    i64 hot = 0, m = r->spec->gemm.tile_m, most = 0;
    for (i64 e = 0; e <= g->experts; e++) {
        hot = g->rows[e] > g->rows[hot] ? e : hot;
        most += (g->rows[e] + m - 1) / m;
    }
    g->item = arena_array(r->arena, Item, most + 1);
    for (i64 e = 0; e <= g->experts; e++)
        for (i64 first = 0; first < g->rows[e]; first += m) {
            i64 left = g->rows[e] - first;
            bool ends = first == 0 || left <= m;
            bool wanted = (e == hot && ends) || (e == g->experts && first == 0) || e % 61 == 7;
            g->item[g->n_items++] = (Item){first, left < m ? left : m, wanted};
        }
}

/* Uneven launches give each CTA two tiles. */
void verify_ptx_group_open(PtxTrial *r)
{
    const MfPart *part = op_part(r->op, r->job->phase);
    int atom = weights_of(r)->looked_up;
    PtxGroups *g = arena_new_of(r->arena, PtxGroups);
    r->groups = g;
    g->experts = part->hi[atom] - part->lo[atom];
    g->rows = arena_array(r->arena, i64, g->experts + 1);
    count_rows(r, g);
    make_items(r, g);
    i64 cluster = r->spec->gemm.cluster;
    g->shared = cluster > 1 && r->job->uneven & PTX_SORTED;
    g->columns = gemm_column_tiles(r->op, r->job->phase, &r->spec->gemm, r->rows) >> g->shared;
    g->tiles = g->n_items * g->columns;
    g->grid = (r->job->uneven ? (g->tiles + 1) / 2 : g->tiles) << g->shared;
    g->grid = (g->grid + cluster - 1) / cluster * cluster;
    r->worker->module->multiprocessors = g->grid > 0 ? (int)g->grid : 1;
}

/* The first of a CTA's tiles, and the next one; < 0: there is none. */
static i64 next_tile(const PtxGroups *g, i64 cta, i64 tile)
{
    tile = tile < 0 ? cta >> g->shared : tile + (g->grid >> g->shared);
    return tile < g->tiles ? tile : -1;
}

static void tile_at(const PtxGroups *g, i64 cta, i64 tile, i64 *item, i64 *column)
{
    i64 sweep = tile / (RASTER * g->columns), left = g->n_items - sweep * RASTER;
    i64 high = left < RASTER ? left : RASTER, i = tile - sweep * RASTER * g->columns;
    *column = (i / high << g->shared) + (cta & g->shared);
    *item = sweep * RASTER + i % high;
}

static bool wanted_alone(const PtxTrial *r, i64 cta, bool (*chosen)(const PtxTrial *, i64))
{
    const PtxGroups *g = r->groups;
    for (i64 tile = -1; (tile = next_tile(g, cta, tile)) >= 0;) {
        i64 item, column;
        tile_at(g, cta, tile, &item, &column);
        if (g->item[item].wanted && chosen(r, column))
            return true;
    }
    return false;
}

/* The CTAs of a cluster run together. */
bool verify_ptx_group_wanted(const PtxTrial *r, i64 cta, bool (*chosen)(const PtxTrial *, i64))
{
    i64 cluster = r->spec->gemm.cluster, first = cta / cluster * cluster;
    for (i64 i = first; i < first + cluster; i++)
        if (wanted_alone(r, i, chosen))
            return true;
    return false;
}

i64 verify_ptx_group_area(const PtxTrial *r, bool (*chosen)(const PtxTrial *, i64),
                          i64 (*width)(const PtxTrial *, i64))
{
    const PtxGroups *g = r->groups;
    i64 area = 0;
    for (i64 cta = 0; cta < g->grid; cta++)
        for (i64 tile = -1; verify_ptx_group_wanted(r, cta, chosen) &&
                            (tile = next_tile(g, cta, tile)) >= 0;) {
            i64 item, column;
            tile_at(g, cta, tile, &item, &column);
            area += g->item[item].count * width(r, column);
        }
    return area;
}
