/* Who has what: which axis each mesh cuts, and the part of the axis space that a rank gets. */
#include "layout.h"

const char *move_name(Move move)
{
    static const char *const names[] = {
#define X(id, name) name,
        MOVE_LIST(X)
#undef X
    };
    return names[move];
}

/* ---- axes ------------------------------------------------------------------------------------ */

int axis_outer_atom(const Contract *contract, int axis)
{
    while (contract->axes[axis].atom < 0)
        axis = contract->axes[axis].factors[0];
    return contract->axes[axis].atom;
}

int axis_next_atom(const Contract *contract, int atom)
{
    int axis = contract->atom_axis[atom], parent = contract->axes[axis].parent;
    if (parent < 0)
        return -1;
    const Axis *product = &contract->axes[parent];
    for (int i = 0; i + 1 < product->n_factors; i++)
        if (product->factors[i] == axis)
            return axis_outer_atom(contract, product->factors[i + 1]);
    return -1;
}

static const Axis *atom_of(const Contract *contract, int atom)
{
    return &contract->axes[contract->atom_axis[atom]];
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* The atom that a sparse atom's slots are of; -1: it is none. */
static int slots_of(const Contract *contract, int atom)
{
    int all = atom_of(contract, atom)->sparse_of;
    return all ? contract->axes[all - 1].atom : -1;
}

/* A table of positions is read wherever a token is; what has sequences too is a cache. */
static u64 without_tables(const Contract *contract, const Tensor *tensor)
{
    u64 coordinates = 0;
    int n = 0;
    for (int i = 0; i < tensor->n_atoms; i++)
        if (atom_of(contract, tensor->atoms[i])->coordinate_of >= 0) {
            coordinates |= (u64)1 << tensor->atoms[i];
            n++;
        }
    return n > 1 ? tensor->mask : tensor->mask & ~coordinates;
}

u64 layout_tensor_atoms(const Contract *contract, const Tensor *tensor)
{
    u64 mask = without_tables(contract, tensor);
    for (int i = 0; i < tensor->n_atoms && tensor->index_of <= 0; i++) {
        int of = slots_of(contract, tensor->atoms[i]);
        mask |= of < 0 ? 0 : (u64)1 << of;
    }
    return mask;
}

/* All slots of a token are needed together: they are summed in their own order, or ranked. */
static bool needs_slots(const OpDag *op, int slots, int of)
{
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        if (node->kind == DAG_TOP && node->top->atom == of)
            return true;
        for (int k = 0; node->kind == DAG_REDUCE && k < node->n_atoms; k++)
            if (node->atoms[k] == slots)
                return true;
    }
    return false;
}

u64 layout_op_atoms(const Contract *contract, const OpDag *op)
{
    u64 mask = op->op->space;
    for (int a = 0; a < contract->n_atoms; a++) {
        int of = slots_of(contract, a);
        if ((op->op->space >> a & 1) && of >= 0 && !needs_slots(op, a, of))
            mask |= (u64)1 << of;
    }
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i]->kind == DAG_ATTEND)
            mask |= (u64)1 << op->nodes.v[i]->attend->position;
    return mask;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static bool has_axis(const Contract *contract, u64 mask, int axis)
{
    return mask >> axis_outer_atom(contract, axis) & 1;
}

static bool choose_axis(const Contract *contract, const Mesh *mesh, u64 mask, int m, Cuts *cuts)
{
    for (int i = 0; i < mesh->n_cuts; i++)
        if (has_axis(contract, mask, mesh->cuts[i].axis)) {
            cuts->axis[m] = mesh->cuts[i].axis;
            cuts->replicating[m] = mesh->cuts[i].replicating;
            return true;
        }
    if (mesh->else_axis < 0 || !has_axis(contract, mask, mesh->else_axis))
        return false;
    cuts->axis[m] = mesh->else_axis;
    cuts->by_else[m] = true;
    return true;
}

static bool any_spent(const Mesh *mesh, const bool *spent)
{
    for (int i = 0; i < mesh->n_product; i++)
        if (spent[mesh->product[i]])
            return true;
    return false;
}

/* Products choose first: one that cuts takes its factors' ranks away from them. */
static void choose_cuts(const Contract *contract, int n, const Mesh *const *mesh, u64 mask,
                        Cuts *cuts)
{
    bool spent[MAX_MESHES] = {false};
    *cuts = (Cuts){.axis = {-1}};
    for (int m = 0; m < MAX_MESHES; m++)
        cuts->axis[m] = -1;
    for (int m = 0; m < n; m++)
        if (mesh[m]->n_product && !any_spent(mesh[m], spent) &&
            choose_axis(contract, mesh[m], mask, m, cuts))
            for (int i = 0; i < mesh[m]->n_product; i++)
                spent[mesh[m]->product[i]] = true;
    for (int m = 0; m < n; m++)
        if (!mesh[m]->n_product && !spent[m])
            choose_axis(contract, mesh[m], mask, m, cuts);
}

void layout_cuts_of(const Contract *contract, const OpLayout *at, u64 mask, bool overridden,
                    Cuts *cuts)
{
    const Mesh *mesh[MAX_MESHES];
    for (int m = 0; m < at->n_meshes; m++)
        mesh[m] = overridden ? at->mesh[m] : &at->layout->meshes[m];
    choose_cuts(contract, at->n_meshes, mesh, mask, cuts);
}

static bool has_free_axis(const Contract *contract, const Tensor *tensor)
{
    for (int i = 0; i < tensor->n_atoms; i++)
        if (atom_of(contract, tensor->atoms[i])->free)
            return true;
    return false;
}

void layout_held_cuts(const Contract *contract, const OpLayout *at, const Tensor *tensor,
                      Cuts *cuts)
{
    layout_cuts_of(contract, at, layout_tensor_atoms(contract, tensor),
                   !has_free_axis(contract, tensor), cuts);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Position of a rank in each plain mesh; the first mesh listed is the outermost. */
static void rank_position(const OpLayout *at, int rank, int *position)
{
    for (int m = at->n_meshes - 1; m >= 0; m--) {
        if (at->mesh[m]->n_product)
            continue;
        position[m] = rank % at->degree[m];
        rank /= at->degree[m];
    }
}

typedef struct AtomPiece {
    i64 index, count;
} AtomPiece;

static void piece_add(const OpLayout *at, const int *position, int m, AtomPiece *piece)
{
    const Mesh *mesh = at->mesh[m];
    for (int i = 0; i < mesh->n_product; i++)
        piece_add(at, position, mesh->product[i], piece);
    if (mesh->n_product)
        return;
    piece->index = piece->index * at->degree[m] + position[m];
    piece->count *= at->degree[m];
}

/* Listed cuts are outside `else` cuts, so that what `else` adds lies inside what others have. */
void layout_piece(const Contract *contract, const OpLayout *at, const Cuts *cuts, int atom,
                  int rank, i64 *index, i64 *count)
{
    int position[MAX_MESHES] = {0};
    AtomPiece piece = {0, 1};
    rank_position(at, rank, position);
    for (int by_else = 0; by_else < 2; by_else++)
        for (int m = 0; m < at->n_meshes; m++)
            if (cuts->axis[m] >= 0 && cuts->by_else[m] == by_else &&
                axis_outer_atom(contract, cuts->axis[m]) == atom)
                piece_add(at, position, m, &piece);
    *index = piece.index;
    *count = piece.count;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void cut_atom(const Contract *contract, int atom, i64 index, i64 count, u64 mask,
                     Part *part)
{
    const Axis *axis = atom_of(contract, atom);
    if (count <= axis->stored) {
        i64 lo = index * axis->stored / count, hi = (index + 1) * axis->stored / count;
        part->lo[atom] = lo < axis->size ? lo : axis->size;
        part->hi[atom] = hi < axis->size ? hi : axis->size;
        return;
    }
    /* More ranks than indices: those of one index share the factor that follows. */
    i64 sharers = count / axis->stored;
    part->lo[atom] = index / sharers;
    part->hi[atom] = part->lo[atom] + 1;
    int next = axis_next_atom(contract, atom);
    if (next < 0 || !(mask >> next & 1))
        return;
    i64 size = atom_of(contract, next)->size;
    part->lo[next] = index % sharers * size / sharers;
    part->hi[next] = (index % sharers + 1) * size / sharers;
}

static void part_of(const Contract *contract, const OpLayout *at, const Cuts *cuts, u64 mask,
                    int rank, Part *part)
{
    *part = (Part){.rows_count = 1, .keys_count = 1};
    for (int a = 0; a < contract->n_atoms; a++)
        part->hi[a] = atom_of(contract, a)->size;
    for (int a = 0; a < contract->n_atoms; a++) {
        i64 index, count;
        if (!(mask >> a & 1))
            continue;
        layout_piece(contract, at, cuts, a, rank, &index, &count);
        if (count == 1)
            continue;
        if (atom_of(contract, a)->coordinate_of >= 0) {
            part->keys_index = (int)index;
            part->keys_count = (int)count;
            continue;
        }
        if (!atom_of(contract, a)->free) {
            cut_atom(contract, a, index, count, mask, part);
            continue;
        }
        part->rows_index = (int)index;
        part->rows_count = (int)count;
    }
}

void layout_part(const Contract *contract, const OpLayout *at, int rank, Part *part)
{
    part_of(contract, at, &at->cut, at->space, rank, part);
}

void layout_finish(const Contract *contract, const OpLayout *at, int rank, Part *part)
{
    part_of(contract, at, &at->finish, at->space, rank, part);
}

void layout_held(const Contract *contract, const OpLayout *at, const Tensor *tensor, int rank,
                 Part *part)
{
    Cuts cuts;
    layout_held_cuts(contract, at, tensor, &cuts);
    part_of(contract, at, &cuts, layout_tensor_atoms(contract, tensor), rank, part);
}

void part_rows(const Part *part, i64 rows, i64 *lo, i64 *hi)
{
    *lo = rows * part->rows_index / part->rows_count;
    *hi = rows * (part->rows_index + 1) / part->rows_count;
}

/* ---- reduces --------------------------------------------------------------------------------- */

i64 reduce_extent(const Contract *contract, const DagNode *reduce)
{
    i64 extent = 1;
    for (int i = 0; i < reduce->n_atoms; i++)
        extent *= atom_of(contract, reduce->atoms[i])->size;
    return extent;
}

bool layout_cuts(const Contract *contract, const OpLayout *at, const DagNode *reduce)
{
    for (int i = 0; i < reduce->n_atoms; i++) {
        i64 index, count;
        layout_piece(contract, at, &at->cut, reduce->atoms[i], 0, &index, &count);
        if (count > 1)
            return true;
    }
    return false;
}

bool layout_cuts_keys(const Contract *contract, const OpLayout *at, const DagNode *node)
{
    i64 index, count = 1;
    if (node->kind == DAG_ATTEND)
        layout_piece(contract, at, &at->cut, node->attend->position, 0, &index, &count);
    return count > 1;
}

bool layout_leaves_roots(const Contract *contract, const OpLayout *at, const DagNode *reduce)
{
    return layout_cuts(contract, at, reduce) || dag_folds(reduce);
}

/* Row-major, a box is one run of elements if, after the outermost atom of which it has more than
 * one index, every atom is whole. */
bool layout_range(const Contract *contract, const DagNode *reduce, const Part *part, i64 *lo,
                  i64 *hi)
{
    i64 first = 0, last = 0;
    bool several = false, empty = false;
    for (int i = 0; i < reduce->n_atoms; i++) {
        int a = reduce->atoms[i];
        i64 size = atom_of(contract, a)->size, have = part->hi[a] - part->lo[a];
        if (several && have != size)
            return false;
        several |= have > 1;
        empty |= have <= 0;
        first = first * size + part->lo[a];
        last = last * size + part->hi[a] - 1;
    }
    *lo = first;
    *hi = empty ? first : last + 1;
    return true;
}

bool layout_forest(const Contract *contract, const DagNode *reduce, const TreeNode *root,
                   const Part *part, Forest *forest, Arena *arena)
{
    i64 lo, hi;
    if (!layout_range(contract, reduce, part, &lo, &hi))
        return false;
    if (dag_folds(reduce))
        return tree_part_forest(arena, reduce->tree, root, lo, hi, forest);
    return lo == hi || tree_forest(arena, root, lo, hi, forest);
}

static bool shares_reduced(const OpLayout *at, const int *a, const int *b)
{
    for (int m = 0; m < at->n_meshes; m++)
        if (!at->mesh[m]->n_product && !at->cuts_reduced[m] && a[m] != b[m])
            return false;
    return true;
}

static i64 range_start(const Contract *contract, const OpLayout *at, int rank)
{
    Part part;
    i64 lo = 0, hi = 0;
    layout_part(contract, at, rank, &part);
    if (at->reduced->kind == DAG_ATTEND)
        return part.keys_index;
    layout_range(contract, at->reduced, &part, &lo, &hi);
    return lo;
}

int layout_sources(const Contract *contract, const OpLayout *at, int rank, int *ranks)
{
    int own[MAX_MESHES] = {0}, other[MAX_MESHES] = {0}, n = 0;
    rank_position(at, rank, own);
    for (int r = 0; r < at->ranks; r++) {
        rank_position(at, r, other);
        if (!shares_reduced(at, own, other))
            continue;
        i64 start = range_start(contract, at, r);
        int i = n++;
        for (; i > 0 && range_start(contract, at, ranks[i - 1]) > start; i--)
            ranks[i] = ranks[i - 1];
        ranks[i] = r;
    }
    return n;
}
