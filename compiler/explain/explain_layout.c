/* A reduction's tree with its owners, and what each rank does under a layout. */
#include "explain_impl.h"

#include <string.h>

/* ---- trees ---------------------------------------------------------------------------------- */

static bool reduce_is_free(const Contract *contract, const DagNode *reduce)
{
    for (int i = 0; i < reduce->n_atoms; i++)
        if (contract->axes[contract->atom_axis[reduce->atoms[i]]].free)
            return true;
    return false;
}

static void write_extent(const Contract *contract, const DagNode *reduce, Text *out)
{
    i64 extent = reduce_extent(contract, reduce);
    text_printf(out, reduce->n_fixes ? "%lld places, those that no slot stands at left out"
                                     : "%lld elements", (long long)extent);
    for (int i = 0; reduce->n_atoms > 1 && i < reduce->n_atoms; i++) {
        const Axis *axis = &contract->axes[contract->atom_axis[reduce->atoms[i]]];
        text_printf(out, "%s%.*s %lld", i ? " x " : ", row-major over ",
                    STR_FMT(axis->name.text), (long long)axis->size);
    }
}

static const char *product_note(const DagNode *reduce)
{
    const Tree *leaf = reduce->tree;
    while (leaf->child)
        leaf = leaf->child;
    if (leaf->form == TREE_MMA)
        return "products are not rounded, f32 is carried";
    if (reduce->monoid == MONOID_MAX)
        return "nothing is rounded in a leaf";
    if (reduce->monoid == MONOID_SUM && reduce->args[0]->kind == DAG_MUL)
        return leaf->form == TREE_CHAIN ? "the first product is rounded, later ones are fused"
                                        : "products are rounded, then added";
    return "f32 is carried";
}

/* Ranks that own the same elements share a line. */
static bool collect_owned(const Contract *contract, const OpLayout *at, const DagNode *reduce,
                          const TreeNode *root, OwnedRoots *owned, Arena *arena)
{
    *owned = (OwnedRoots){0};
    if (!at || !layout_cuts(contract, at, reduce))
        return true;
    for (int rank = 0; rank < at->ranks; rank++) {
        Part part;
        Forest forest;
        layout_part(contract, at, rank, &part);
        if (!layout_forest(contract, reduce, root, &part, &forest, arena))
            return false;
        for (int i = 0; i < forest.n; i++) {
            int j = 0;
            while (j < owned->n && owned->v[j].node != forest.v[i])
                j++;
            if (j == owned->n) {
                OwnedRoot new = {forest.v[i], 1, str_format(arena, "%d", rank)};
                vec_push(arena, owned, new);
            } else {
                owned->v[j].n++;
                owned->v[j].ranks =
                    str_format(arena, "%.*s, %d", STR_FMT(owned->v[j].ranks), rank);
            }
        }
    }
    return true;
}

bool explain_alike(const Contract *contract, const DagNode *a, const DagNode *b)
{
    return a == b || (a->tree == b->tree && a->monoid == b->monoid &&
                      a->args[0]->kind == b->args[0]->kind && a->n_atoms == b->n_atoms &&
                      !memcmp(a->atoms, b->atoms, sizeof *a->atoms * (size_t)a->n_atoms) &&
                      !reduce_is_free(contract, a));
}

static void sort_owned(OwnedRoots *owned)
{
    for (int i = 1; i < owned->n; i++)
        for (int j = i; j > 0 && owned->v[j - 1].node->lo > owned->v[j].node->lo; j--) {
            OwnedRoot swap = owned->v[j];
            owned->v[j] = owned->v[j - 1];
            owned->v[j - 1] = swap;
        }
}

/* A tree over a length that only the launch knows is drawn for three of its parts. */
static i64 drawn_extent(const Contract *contract, const DagNode *reduce)
{
    const Tree *tree = reduce->tree;
    if (!reduce_is_free(contract, reduce))
        return reduce_extent(contract, reduce);
    while (tree->form != TREE_EVERY)
        tree = tree->child;
    return 3 * tree->count;
}

bool explain_reduce(const Contract *contract, const DagNode *reduce, const OpLayout *at, Str name,
                    Text *out, Arena *arena)
{
    OwnedRoots owned;
    i64 extent = drawn_extent(contract, reduce);
    const TreeNode *root = tree_expand(arena, reduce->tree, extent);
    text_printf(out, "\n%.*s is the tree ", STR_FMT(name));
    tree_print(reduce->tree, out);
    text_printf(out, "\n  over ");
    if (reduce_is_free(contract, reduce))
        text_printf(out, "a length known at launch, drawn for %lld", (long long)extent);
    else
        write_extent(contract, reduce, out);
    text_printf(out, ";\n  %s\n", product_note(reduce));
    if (!collect_owned(contract, at, reduce, root, &owned, arena))
        return false;
    sort_owned(&owned);
    explain_tree(&(TreeDrawing){contract, reduce, root, &owned, arena, out});
    return true;
}

/* ---- layouts -------------------------------------------------------------------------------- */

static Str axis_name(const Contract *contract, int axis)
{
    return contract->axes[axis].name.text;
}

/* The op has slots of the axis, and not the axis. */
static bool cuts_slots(const Contract *contract, const OpLayout *at, int axis)
{
    int atom = axis_outer_atom(contract, axis);
    return contract->axes[axis].coordinate_of < 0 && (at->space >> atom & 1) &&
           !(at->op->space >> atom & 1);
}

static void write_mesh(const Contract *contract, const OpLayout *at, int m, Text *out)
{
    int cut = at->cut.axis[m], finish = at->finish.axis[m];
    text_printf(out, "  %.*s %d: ", STR_FMT(at->mesh[m]->name.text), at->degree[m]);
    if (cut < 0) {
        text_printf(out, "does not cut this op\n");
        return;
    }
    text_printf(out, "cuts %.*s%s", STR_FMT(axis_name(contract, cut)),
                at->cut.replicating[m] ? ", replicating" : "");
    if (cuts_slots(contract, at, cut))
        text_printf(out, ": a rank has the slots that stand at its own");
    if (contract->axes[cut].coordinate_of >= 0)
        text_printf(out, ": of each sequence a rank has every %dth split of the keys",
                    at->degree[m]);
    if (at->cuts_reduced[m]) {
        text_printf(out, ", which is reduced: ranks exchange roots and finish the tree");
        if (finish >= 0)
            text_printf(out, ", each for a part of %.*s", STR_FMT(axis_name(contract, finish)));
        else
            text_printf(out, ", each for all");
    }
    text_printf(out, "\n");
}

static void write_part(const Contract *contract, const Part *part, Text *out)
{
    bool any = false;
    for (int a = 0; a < contract->n_atoms; a++) {
        const Axis *axis = &contract->axes[contract->atom_axis[a]];
        if (axis->free || (part->lo[a] == 0 && part->hi[a] == axis->size))
            continue;
        text_printf(out, "%s%.*s %lld..%lld", any ? ", " : "", STR_FMT(axis->name.text),
                    (long long)part->lo[a], (long long)part->hi[a]);
        any = true;
    }
    if (part->rows_count > 1)
        text_printf(out, "%srows %d/%d to %d/%d", any ? ", " : "", part->rows_index,
                    part->rows_count, part->rows_index + 1, part->rows_count);
    else if (!any)
        text_printf(out, "all");
}

static bool write_roots(const Contract *contract, const OpDag *op, const OpLayout *at,
                        const Part *part, Text *out, Arena *arena)
{
    for (int i = 0; i < op->reduces.n; i++) {
        const DagNode *reduce = op->reduces.v[i];
        if (!layout_cuts(contract, at, reduce))
            continue;
        Forest forest;
        const TreeNode *root = tree_expand(arena, reduce->tree, reduce_extent(contract, reduce));
        if (!layout_forest(contract, reduce, root, part, &forest, arena))
            return false;
        text_printf(out, "; sends %d root%s", forest.n, forest.n == 1 ? "" : "s");
        for (int j = 0; j < forest.n && forest.n <= 4; j++)
            text_printf(out, "%s%.*s", j ? ", " : " ",
                        STR_FMT(explain_elements(arena, forest.v[j])));
    }
    return true;
}

static bool write_rank(const Contract *contract, const OpDag *op, const OpLayout *at, int rank,
                       Text *out, Arena *arena)
{
    Part part;
    layout_part(contract, at, rank, &part);
    text_printf(out, "  rank %d: ", rank);
    write_part(contract, &part, out);
    if (part.keys_count > 1)
        text_printf(out, "; keys of splits %d, %d, ...", part.keys_index,
                    part.keys_index + part.keys_count);
    if (at->any_reduced) {
        if (!write_roots(contract, op, at, &part, out, arena))
            return false;
        layout_finish(contract, at, rank, &part);
        text_printf(out, "; finishes ");
        write_part(contract, &part, out);
    }
    text_printf(out, "\n");
    return true;
}

static void write_moves(const Tensor *tensors, const Move *moves, int n, Text *out)
{
    for (int i = 0; i < n; i++)
        text_printf(out, "%s%.*s %s", i ? ", " : "", STR_FMT(tensors[i].name.text),
                    move_name(moves[i]));
}

bool explain_layout(const Contract *contract, const OpDag *op, const OpLayout *at, Text *out,
                    Arena *arena)
{
    enum { MOST_RANKS = 32 };
    if (!at->layout)
        return true;
    text_printf(out, "\nlayout %.*s: %d rank%s\n", STR_FMT(at->layout->name.text), at->ranks,
                at->ranks == 1 ? "" : "s");
    for (int m = 0; m < at->n_meshes; m++)
        write_mesh(contract, at, m, out);
    for (int rank = 0; rank < at->ranks && rank < MOST_RANKS; rank++)
        if (!write_rank(contract, op, at, rank, out, arena))
            return false;
    if (at->ranks > MOST_RANKS)
        text_printf(out, "  ... and %d more\n", at->ranks - MOST_RANKS);
    text_printf(out, "  moves before: ");
    write_moves(op->op->params, at->param_move, op->op->n_params, out);
    text_printf(out, "\n  moves after:  ");
    write_moves(op->op->results, at->result_move, op->op->n_results, out);
    text_printf(out, "\n");
    return true;
}
