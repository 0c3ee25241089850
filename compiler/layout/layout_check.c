/* Which cuts an op allows: pieces are equal, and borders between ranks are borders of trees. */
#include "layout.h"

enum { DEGREES_TRIED = 256, DEGREES_SHOWN = 12, BORDERS_SHOWN = 9 };

static const Axis *atom_of(const Contract *contract, int atom)
{
    return &contract->axes[contract->atom_axis[atom]];
}

/* ---- where the message points ---------------------------------------------------------------- */

static bool find_cut(const AstMesh *mesh, Str axis, Span *span)
{
    for (int i = 0; i < mesh->cuts.n; i++)
        if (str_eq(mesh->cuts.v[i].axis.text, axis)) {
            *span = mesh->cuts.v[i].axis.span;
            return true;
        }
    if (!mesh->has_else || !str_eq(mesh->else_axis.text, axis))
        return false;
    *span = mesh->else_axis.span;
    return true;
}

static bool same_place(Span a, Span b)
{
    return a.file == b.file && a.lo == b.lo && a.hi == b.hi;
}

static bool find_mesh(const AstLayout *layout, const Mesh *mesh, Str axis, Span *span)
{
    for (int i = 0; i < layout->meshes.n; i++)
        if (same_place(layout->meshes.v[i].name.span, mesh->name.span) &&
            find_cut(&layout->meshes.v[i], axis, span))
            return true;
    for (int i = 0; i < layout->overrides.n; i++)
        for (int j = 0; j < layout->overrides.v[i].meshes.n; j++) {
            const AstMesh *other = &layout->overrides.v[i].meshes.v[j];
            if (same_place(other->name.span, mesh->name.span) && find_cut(other, axis, span))
                return true;
        }
    return false;
}

static Span cut_span(const Contract *contract, const OpLayout *at, int m, int axis)
{
    Span span = at->mesh[m]->name.span;
    if (at->layout->ast)
        find_mesh(at->layout->ast, at->mesh[m], contract->axes[axis].name.text, &span);
    return span;
}

/* ---- degrees that divide --------------------------------------------------------------------- */

/* Cuts of one kind of thing: the op, or one of its tensors. */
typedef struct Subject {
    const Contract *contract;
    const OpLayout *at;
    const Cuts *cuts;
    u64 mask;
    Diags *diags;
    Arena *arena;
} Subject;

static bool may_replicate(const Subject *subject, int atom)
{
    for (int m = 0; m < subject->at->n_meshes; m++)
        if (subject->cuts->axis[m] >= 0 && subject->cuts->replicating[m] &&
            axis_outer_atom(subject->contract, subject->cuts->axis[m]) == atom)
            return true;
    return false;
}

static bool count_fits(const Subject *subject, int atom, i64 count)
{
    const Axis *axis = atom_of(subject->contract, atom);
    if (!axis->size)
        return true;
    if (count <= axis->stored)
        return axis->stored % count == 0;
    if (!may_replicate(subject, atom) || count % axis->stored)
        return false;
    int next = axis_next_atom(subject->contract, atom);
    return next < 0 || !(subject->mask >> next & 1) ||
           atom_of(subject->contract, next)->size % (count / axis->stored) == 0;
}

static void degrees_that_fit(const Subject *subject, int atom, i64 others, Text *out)
{
    int shown = 0;
    for (i64 d = 1; d <= DEGREES_TRIED; d++) {
        if (!count_fits(subject, atom, others * d))
            continue;
        if (++shown > DEGREES_SHOWN) {
            text_printf(out, " ...");
            return;
        }
        text_printf(out, " %lld", (long long)d);
    }
}

static void refuse_degree(const Subject *subject, int m, int atom, i64 count)
{
    const Contract *contract = subject->contract;
    const Axis *axis = atom_of(contract, atom);
    int degree = subject->at->degree[m];
    Text legal = {.arena = subject->arena};
    degrees_that_fit(subject, atom, count / degree, &legal);
    bool padded = axis->stored != axis->size;
    Diag *diag = diag_add(
        subject->diags, DIAG_LAYOUT_DEGREE,
        cut_span(contract, subject->at, m, subject->cuts->axis[m]),
        "%.*s %d does not divide %.*s %lld; legal degrees:%.*s",
        STR_FMT(subject->at->mesh[m]->name.text), degree, STR_FMT(axis->name.text),
        (long long)axis->stored, STR_FMT(text_str(&legal)));
    if (count != degree)
        diag_note(subject->diags, diag, "other meshes cut it too: %lld parts in all",
                  (long long)count);
    if (count > axis->stored && !may_replicate(subject, atom))
        diag_note(subject->diags, diag, "`%.*s replicating` lets several ranks hold one index",
                  STR_FMT(axis->name.text));
    else if (!padded && axis->parent < 0 && count < axis->stored)
        diag_note(subject->diags, diag,
                  "an axis padded in memory is cut by its stored size: `axis %.*s = %lld in %lld`",
                  STR_FMT(axis->name.text), (long long)axis->size,
                  (long long)((axis->size + count - 1) / count * count));
}

static bool check_degrees(const Subject *subject)
{
    bool good = true;
    u64 told = 0;
    for (int m = 0; m < subject->at->n_meshes; m++) {
        i64 index, count;
        if (subject->cuts->axis[m] < 0)
            continue;
        int atom = axis_outer_atom(subject->contract, subject->cuts->axis[m]);
        layout_piece(subject->contract, subject->at, subject->cuts, atom, 0, &index, &count);
        if (told >> atom & 1 || count_fits(subject, atom, count))
            continue;
        told |= (u64)1 << atom;
        good = false;
        refuse_degree(subject, m, atom, count);
    }
    return good;
}

static bool check_all_degrees(const Contract *contract, const OpDag *op, const OpLayout *at,
                              Arena *arena, Diags *diags)
{
    Subject subject = {contract, at, &at->cut, at->space, diags, arena};
    bool good = check_degrees(&subject);
    for (int i = 0; good && i < op->op->n_params + op->op->n_results; i++) {
        const Tensor *tensor = i < op->op->n_params ? &op->op->params[i]
                                                    : &op->op->results[i - op->op->n_params];
        Cuts held;
        layout_held_cuts(contract, at, tensor, &held);
        Subject other = {contract, at, &held, layout_tensor_atoms(contract, tensor), diags, arena};
        good &= check_degrees(&other);
    }
    return good;
}

/* ---- indices that are held ------------------------------------------------------------------- */

/* An atom held where the op's slots stand is cut as the slots are. */
static bool is_fixed(const Op *op, const Fix *fixes, int n, int atom)
{
    for (int i = 0; i < n; i++)
        if (fixes[i].atom == atom &&
            !(fixes[i].at < 0 && fix_tensor(op, &fixes[i])->n_axes == 2))
            return true;
    return false;
}

static bool op_fixes(const OpDag *op, int atom)
{
    for (int i = 0; i < op->pieces.n; i++)
        if (is_fixed(op->op, op->pieces.v[i].fixes, op->pieces.v[i].n_fixes, atom))
            return true;
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i]->kind != DAG_ONLY && op->nodes.v[i]->kind != DAG_REDUCE &&
            is_fixed(op->op, op->nodes.v[i]->fixes, op->nodes.v[i]->n_fixes, atom))
            return true;
    return false;
}

/* A score is one chain over its axes, on whatever rank has the row. */
static bool op_scores(const OpDag *op, int atom)
{
    for (int i = 0; i < op->nodes.n; i++) {
        const DagNode *node = op->nodes.v[i];
        for (int k = 0; node->kind == DAG_ATTEND && k < node->attend->n_over; k++)
            if (node->attend->over[k] == atom)
                return true;
    }
    return false;
}

static bool check_scores(const Contract *contract, const OpDag *op, const OpLayout *at,
                         Diags *diags)
{
    bool good = true;
    for (int m = 0; m < at->n_meshes; m++) {
        int axis = at->cut.axis[m];
        if (axis < 0 || at->degree[m] == 1 || !op_scores(op, axis_outer_atom(contract, axis)))
            continue;
        good = false;
        Diag *diag = diag_add(diags, DIAG_LAYOUT_INSIDE, cut_span(contract, at, m, axis),
                              "%.*s cuts %.*s inside the scores of %.*s",
                              STR_FMT(at->mesh[m]->name.text),
                              STR_FMT(contract->axes[axis].name.text), STR_FMT(op->op->name));
        diag_note(diags, diag, "cut the heads of the keys, or the tokens");
    }
    return good;
}

/* Roots of a row are joined with all their values: the ranks that finish share rows out. */
static bool check_shared_keys(const Contract *contract, const OpDag *op, const OpLayout *at,
                              Diags *diags)
{
    if (!at->reduced || at->reduced->kind != DAG_ATTEND)
        return true;
    for (int m = 0; m < at->n_meshes; m++) {
        int axis = at->finish.axis[m], atom = axis < 0 ? -1 : axis_outer_atom(contract, axis);
        if (axis < 0 || at->degree[m] == 1 || !at->cuts_reduced[m] ||
            !(at->reduced->attend->values >> atom & 1))
            continue;
        Diag *diag = diag_add(diags, DIAG_LAYOUT_INSIDE, cut_span(contract, at, m, axis),
                              "%.*s cuts %.*s inside the values of a row of %.*s, whose keys it "
                              "cuts", STR_FMT(at->mesh[m]->name.text),
                              STR_FMT(contract->axes[axis].name.text), STR_FMT(op->op->name));
        diag_note(diags, diag, "cut the heads, or the tokens, behind the positions; or nothing");
        return false;
    }
    return true;
}

static bool check_fixed(const Contract *contract, const OpDag *op, const OpLayout *at,
                        Diags *diags)
{
    bool good = true;
    for (int m = 0; m < at->n_meshes; m++) {
        int axis = at->cut.axis[m];
        if (axis < 0 || at->degree[m] == 1 || !op_fixes(op, axis_outer_atom(contract, axis)))
            continue;
        good = false;
        Diag *diag = diag_add(diags, DIAG_LAYOUT_FIXED, cut_span(contract, at, m, axis),
                              "%.*s cuts %.*s, which %.*s holds at an index",
                              STR_FMT(at->mesh[m]->name.text),
                              STR_FMT(contract->axes[axis].name.text), STR_FMT(op->op->name));
        diag_note(diags, diag, "every rank needs each index that is held: list another axis first");
    }
    return good;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static int slots_of(const Contract *contract, u64 space, int of)
{
    int n = 0;
    for (int a = 0; a < contract->n_atoms; a++)
        n += (space >> a & 1) && atom_of(contract, a)->sparse_of == contract->atom_axis[of] + 1;
    return n;
}

/* An element with two of a token's slots may be of two ranks. */
static bool check_slots(const Contract *contract, const OpDag *op, const OpLayout *at,
                        Diags *diags)
{
    bool good = true;
    for (int m = 0; m < at->n_meshes; m++) {
        int axis = at->cut.axis[m], atom = axis < 0 ? -1 : axis_outer_atom(contract, axis);
        if (axis < 0 || at->degree[m] == 1 || slots_of(contract, op->op->space, atom) < 2)
            continue;
        good = false;
        Diag *diag = diag_add(diags, DIAG_LAYOUT_SLOTS, cut_span(contract, at, m, axis),
                              "%.*s cuts %.*s, of which %.*s has slots of two axes",
                              STR_FMT(at->mesh[m]->name.text),
                              STR_FMT(contract->axes[axis].name.text), STR_FMT(op->op->name));
        diag_note(diags, diag, "a rank has the slots that stand at its part of the axis: make two "
                  "ops of it, or cut this one otherwise: op %.*s { %.*s cuts ...; }",
                  STR_FMT(op->op->name), STR_FMT(at->mesh[m]->name.text));
    }
    return good;
}

/* ---- borders of trees ------------------------------------------------------------------------ */

typedef struct Reduced {
    const Contract *contract;
    const OpDag *op;
    const OpLayout *at;
    const DagNode *reduce;
    const TreeNode *root;
    int mesh; /* the first that cuts it */
    Arena *arena;
    Diags *diags;
} Reduced;

static int cutting_mesh(const Contract *contract, const OpLayout *at, const DagNode *reduce)
{
    for (int m = 0; m < at->n_meshes; m++)
        for (int i = 0; i < reduce->n_atoms && at->cut.axis[m] >= 0 && at->degree[m] > 1; i++)
            if (reduce->atoms[i] == axis_outer_atom(contract, at->cut.axis[m]))
                return m;
    return -1;
}

/* The leaf that [lo, hi) has a part of but not all; NULL if there is none. */
static const TreeNode *leaf_cut(const Forest *leaves, i64 lo, i64 hi)
{
    for (int i = 0; i < leaves->n; i++) {
        const TreeNode *leaf = leaves->v[i];
        i64 inside = 0;
        for (int k = 0; k < leaf->n_runs; k++) {
            i64 from = leaf->runs[k].start, to = from + leaf->runs[k].len;
            from = from > lo ? from : lo;
            to = to < hi ? to : hi;
            inside += to > from ? to - from : 0;
        }
        if (inside && inside != leaf->count)
            return leaf;
    }
    return NULL;
}

static bool rank_forest(const Reduced *r, const OpLayout *at, int rank, Forest *forest)
{
    Part part;
    *forest = (Forest){0};
    layout_part(r->contract, at, rank, &part);
    return layout_forest(r->contract, r->reduce, r->root, &part, forest, r->arena);
}

/* All ranks' forests are whole with the first cutting mesh at this degree. */
static bool degree_fits(const Reduced *r, int degree)
{
    OpLayout at = *r->at;
    Forest forest;
    i64 index, count;
    Subject subject = {r->contract, &at, &at.cut, at.space, r->diags, r->arena};
    int atom = axis_outer_atom(r->contract, at.cut.axis[r->mesh]);
    at.ranks = at.ranks / at.degree[r->mesh] * degree;
    at.degree[r->mesh] = degree;
    layout_piece(r->contract, &at, &at.cut, atom, 0, &index, &count);
    if (!count_fits(&subject, atom, count))
        return false;
    for (int rank = 0; rank < at.ranks; rank++)
        if (!rank_forest(r, &at, rank, &forest))
            return false;
    return true;
}

static Str legal_degrees(const Reduced *r)
{
    Text out = {.arena = r->arena};
    int limit = 64, shown = 0;
    if (r->at->mesh[r->mesh]->n_product)
        return STR("");
    for (int d = 1; d <= limit && shown < DEGREES_SHOWN; d++)
        if (degree_fits(r, d)) {
            text_printf(&out, " %d", d);
            shown++;
        }
    return str_format(r->arena, "; legal degrees:%.*s", STR_FMT(text_str(&out)));
}

static Str part_borders(Arena *arena, const Forest *leaves)
{
    Text out = {.arena = arena};
    for (int i = 1; i < leaves->n; i++) {
        if (i > BORDERS_SHOWN) {
            text_printf(&out, " ...");
            break;
        }
        text_printf(&out, " %lld", (long long)leaves->v[i]->lo);
    }
    return text_str(&out);
}

static const char *leaf_words(const TreeNode *leaf)
{
    if (leaf->n_runs > 1)
        return "lanes";
    return leaf->leaf == TREE_MMA ? "an mma chain" : "a chain";
}

static void refuse_inside(const Reduced *r, i64 lo, i64 hi)
{
    int axis = r->at->cut.axis[r->mesh];
    Forest leaves = {0};
    tree_leaves(r->arena, r->root, &leaves);
    const TreeNode *leaf = leaf_cut(&leaves, lo, hi);
    i64 extent = reduce_extent(r->contract, r->reduce);
    Span span = cut_span(r->contract, r->at, r->mesh, axis);
    Str name = r->at->mesh[r->mesh]->name.text, legal = legal_degrees(r);
    if (!leaf) {
        diag_add(r->diags, DIAG_LAYOUT_INSIDE, span,
                 "%.*s cuts %.*s inside %.*s, whose order runs over outer axes first%.*s",
                 STR_FMT(name), STR_FMT(r->contract->axes[axis].name.text),
                 STR_FMT(r->op->op->name), STR_FMT(legal));
        return;
    }
    Diag *diag = diag_add(r->diags, DIAG_LAYOUT_INSIDE, span,
                          "%.*s %d cuts inside %s of %.*s%.*s", STR_FMT(name),
                          r->at->degree[r->mesh], leaf_words(leaf), STR_FMT(r->op->op->name),
                          STR_FMT(legal));
    diag_note(r->diags, diag, "a rank has elements %lld to %lld of %lld; %s is from %lld to %lld",
              (long long)lo, (long long)hi - 1, (long long)extent,
              leaf->n_runs > 1 ? "one lane" : "one chain", (long long)leaf->lo,
              (long long)leaf->hi - 1);
    if (leaves.n > 1 && leaf->n_runs == 1) {
        diag_note(r->diags, diag, "cut at part borders:%.*s",
                  STR_FMT(part_borders(r->arena, &leaves)));
        return;
    }
    Text tree = {.arena = r->arena};
    tree_print(r->reduce->tree, &tree);
    diag_note(r->diags, diag,
              "a tree of that many parts can be cut: split %d { %.*s } pairwise f32",
              r->at->degree[r->mesh], STR_FMT(text_str(&tree)));
}

/* One root is what an all-reduce would send. */
static void warn_roots(const Reduced *r, int most, int rank)
{
    int axis = r->at->cut.axis[r->mesh];
    if (most <= 1 || dag_folds(r->reduce))
        return;
    Diag *diag = diag_add(r->diags, DIAG_ROOTS, cut_span(r->contract, r->at, r->mesh, axis),
                          "rank %d owns %d roots of %.*s, not one", rank, most,
                          STR_FMT(r->op->op->name));
    diag_note(r->diags, diag, "it stores and sends %d values of f32 (%d bytes) for each output "
              "where one (%d bytes) would do", most, most * 4 * monoid_values(r->reduce->monoid),
              4 * monoid_values(r->reduce->monoid));
    diag_note(r->diags, diag, "a tree whose outermost join has %d parts gives every rank one root",
              r->at->degree[r->mesh]);
}

static bool check_forests(const Reduced *r)
{
    int most = 0, most_rank = 0;
    for (int rank = 0; rank < r->at->ranks; rank++) {
        Forest forest;
        if (!rank_forest(r, r->at, rank, &forest)) {
            Part part;
            i64 lo = 0, hi = 0;
            layout_part(r->contract, r->at, rank, &part);
            layout_range(r->contract, r->reduce, &part, &lo, &hi);
            refuse_inside(r, lo, hi);
            return false;
        }
        if (forest.n > most) {
            most = forest.n;
            most_rank = rank;
        }
    }
    warn_roots(r, most, most_rank);
    return true;
}

/* Ranks that share an index of a replicating axis must share out what the sum has below it. */
static bool check_shared(const Reduced *r)
{
    for (int i = 0; i < r->reduce->n_atoms; i++) {
        i64 index, count;
        int atom = r->reduce->atoms[i], next = axis_next_atom(r->contract, atom);
        layout_piece(r->contract, r->at, &r->at->cut, atom, 0, &index, &count);
        if (count <= atom_of(r->contract, atom)->stored)
            continue;
        bool shared = i + 1 < r->reduce->n_atoms && r->reduce->atoms[i + 1] == next;
        if (shared)
            continue;
        diag_add(r->diags, DIAG_LAYOUT_DEGREE,
                 cut_span(r->contract, r->at, r->mesh, r->at->cut.axis[r->mesh]),
                 "%lld ranks share %lld indices of %.*s, which %.*s sums over: nothing below it "
                 "can be shared out", (long long)count,
                 (long long)atom_of(r->contract, atom)->stored,
                 STR_FMT(atom_of(r->contract, atom)->name.text), STR_FMT(r->op->op->name));
        return false;
    }
    return true;
}

static bool has_free(const Contract *contract, const DagNode *reduce)
{
    for (int i = 0; i < reduce->n_atoms; i++)
        if (atom_of(contract, reduce->atoms[i])->free)
            return true;
    return false;
}

static bool check_reduce(Reduced *r)
{
    r->mesh = cutting_mesh(r->contract, r->at, r->reduce);
    if (r->mesh < 0)
        return true;
    if (has_free(r->contract, r->reduce)) {
        int axis = r->at->cut.axis[r->mesh];
        Diag *diag = diag_add(
            r->diags, DIAG_LAYOUT_REDUCED_FREE, cut_span(r->contract, r->at, r->mesh, axis),
            "%.*s cuts %.*s, which %.*s sums over", STR_FMT(r->at->mesh[r->mesh]->name.text),
            STR_FMT(r->contract->axes[axis].name.text), STR_FMT(r->op->op->name));
        diag_note(r->diags, diag, "its borders would move with the length: cut another axis of "
                  "this op");
        return false;
    }
    if (!check_shared(r))
        return false;
    r->root = tree_expand(r->arena, r->reduce->tree, reduce_extent(r->contract, r->reduce));
    return check_forests(r);
}

bool layout_check(const Contract *contract, const OpDag *op, const OpLayout *at, Arena *arena,
                  Diags *diags)
{
    bool good = check_fixed(contract, op, at, diags) && check_scores(contract, op, at, diags) &&
                check_shared_keys(contract, op, at, diags) &&
                check_slots(contract, op, at, diags) &&
                check_all_degrees(contract, op, at, arena, diags);
    for (int i = 0; good && i < op->reduces.n; i++) {
        Reduced reduced = {contract, op, at, op->reduces.v[i], NULL, -1, arena, diags};
        good &= check_reduce(&reduced);
    }
    return good;
}
