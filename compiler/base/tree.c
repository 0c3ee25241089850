/* Expansion of trees over extents, cuts, join programs, canonical text. */
#include "tree.h"

const char *monoid_name(Monoid monoid)
{
    static const char *const names[] = {
#define X(id, name, values) name,
        MONOID_LIST(X)
#undef X
    };
    return names[monoid];
}

int monoid_values(Monoid monoid)
{
    static const int values[] = {
#define X(id, name, values) values,
        MONOID_LIST(X)
#undef X
    };
    return values[monoid];
}

/* ---- properties ----------------------------------------------------------------------------- */

DType tree_type(const Tree *tree)
{
    bool leaf = tree->form == TREE_MMA || tree->form == TREE_CHAIN || tree->form == TREE_CHAIN_ADD;
    return leaf ? DT_F32 : tree->type;
}

bool tree_is_mma(const Tree *tree)
{
    while (tree->child)
        tree = tree->child;
    return tree->form == TREE_MMA;
}

const char *tree_anchor_problem(const Tree *tree)
{
    while (tree->form == TREE_ROUND)
        tree = tree->child;
    if (tree->form == TREE_EVERY)
        return NULL;
    return tree->form == TREE_SPLIT
               ? "the boundaries of a `split` move with the length"
               : "only parts of a fixed length, counted from index 0, can be computed apart";
}

/* Nearest divisors of extent below and above n, for the way out. */
static Str near_divisors(Arena *arena, i64 extent, i64 n)
{
    enum { REACH = 1 << 16 };
    i64 below = n < extent ? n : extent - 1, above = n + 1;
    for (int i = 0; i < REACH && below > 1 && extent % below; i++)
        below--;
    for (int i = 0; i < REACH && above < extent && extent % above; i++)
        above++;
    if (above > extent || extent % above)
        above = extent;
    if (below < 1 || extent % below)
        return str_format(arena, "%lld does", (long long)above);
    return str_format(arena, "%lld and %lld do", (long long)below, (long long)above);
}

static Str split_problem(Arena *arena, const Tree *tree, i64 extent)
{
    if (!tree->n_parts) {
        if (tree->count >= 1 && extent % tree->count == 0)
            return (Str){"", 0};
        if (tree->count < 1)
            return str_format(arena, "`split %lld` has no part", (long long)tree->count);
        return str_format(arena, "%lld equal parts of %lld: %lld does not divide it, %.*s",
                          (long long)tree->count, (long long)extent, (long long)tree->count,
                          STR_FMT(near_divisors(arena, extent, tree->count)));
    }
    i64 sum = 0;
    for (int i = 0; i < tree->n_parts; i++) {
        if (tree->parts[i] < 0 || tree->parts[i] > extent - sum)
            return str_format(arena, "the first %d written parts pass the end of %lld", i + 1,
                              (long long)extent);
        sum += tree->parts[i];
    }
    if (sum == extent)
        return (Str){"", 0};
    return str_format(arena, "the written parts hold %lld of %lld elements", (long long)sum,
                      (long long)extent);
}

static i64 lane_length(const Tree *tree, i64 len, i64 lane)
{
    i64 runs = len / tree->run, rest = len % tree->run;
    i64 whole = runs / tree->count * tree->run;
    i64 last = runs % tree->count; /* the lane of the run that is not complete */
    return whole + (lane < last ? tree->run : lane == last ? rest : 0);
}

static Str shape_problem(Arena *arena, const Tree *tree, i64 extent);

/* A lane's length takes at most three values: before, at and after the lane of the last run. */
static Str lanes_problem(Arena *arena, const Tree *tree, i64 extent)
{
    if (tree->count < 1 || tree->run < 1)
        return str_format(arena, "`lanes %lld by %lld` has no lane", (long long)tree->count,
                          (long long)tree->run);
    i64 last = extent / tree->run % tree->count;
    const i64 tried[] = {0, last, last + 1};
    for (int i = 0; i < 3; i++) {
        i64 len = tried[i] < tree->count ? lane_length(tree, extent, tried[i]) : 0;
        Str problem = len ? shape_problem(arena, tree->child, len) : (Str){"", 0};
        if (problem.n)
            return problem;
    }
    return (Str){"", 0};
}

static Str shape_problem(Arena *arena, const Tree *tree, i64 extent)
{
    Str problem = {"", 0};
    switch (tree->form) {
    case TREE_SPLIT:
        problem = split_problem(arena, tree, extent);
        if (problem.n)
            return problem;
        if (!tree->n_parts)
            return shape_problem(arena, tree->child, extent / tree->count);
        for (int i = 0; i < tree->n_parts && !problem.n; i++)
            if (tree->parts[i])
                problem = shape_problem(arena, tree->child, tree->parts[i]);
        return problem;
    case TREE_EVERY:
        if (tree->count < 1)
            return str_format(arena, "`every %lld` has empty parts", (long long)tree->count);
        return shape_problem(arena, tree->child, tree->count);
    case TREE_LANES:
        return lanes_problem(arena, tree, extent);
    case TREE_ROUND:
        return shape_problem(arena, tree->child, extent);
    default:
        return problem;
    }
}

/* An upper bound on the nodes and runs of an expansion, so that a typing error in a size does not
 * ask for all of memory. */
static double expansion_bound(const Tree *tree, double extent)
{
    double parts, n;
    switch (tree->form) {
    case TREE_SPLIT:
        parts = tree->n_parts ? tree->n_parts : (double)tree->count;
        if (!tree->n_parts)
            return parts * expansion_bound(tree->child, extent / parts);
        n = 0;
        for (int i = 0; i < tree->n_parts; i++)
            n += expansion_bound(tree->child, (double)tree->parts[i]);
        return n;
    case TREE_EVERY:
        parts = extent / (double)tree->count + 1;
        return parts * expansion_bound(tree->child, extent / parts);
    case TREE_LANES:
        parts = extent / (double)tree->run + 1;
        n = parts < (double)tree->count ? parts : (double)tree->count;
        return parts + n * expansion_bound(tree->child, extent / n);
    case TREE_ROUND:
        return expansion_bound(tree->child, extent);
    default:
        return 1;
    }
}

Str tree_extent_problem(Arena *arena, const Tree *tree, i64 extent)
{
    static const double most = 1 << 24;
    Str problem = shape_problem(arena, tree, extent);
    if (!problem.n && expansion_bound(tree, (double)extent) > most)
        return str_format(arena, "%lld elements make more than %.0f parts", (long long)extent,
                          most);
    return problem;
}

/* ---- expansion ------------------------------------------------------------------------------ */

/* A sequence of `len` positions. The runs hold its present elements; what is absent (past the end
 * of a last, short part of `every`) is always its tail. */

typedef struct Sequence {
    Runs present;
    i64 len;
} Sequence;

typedef VEC(const TreeNode *) Nodes;

static const TreeNode *expand(Arena *arena, const Tree *tree, const Sequence *seq);

static void add_run(Arena *arena, Runs *runs, i64 start, i64 len)
{
    Run *last = runs->n ? &runs->v[runs->n - 1] : NULL;
    if (last && last->start + last->len == start)
        last->len += len;
    else
        vec_push(arena, runs, ((Run){start, len}));
}

static const TreeNode *new_leaf(Arena *arena, TreeForm form, const Runs *runs)
{
    TreeNode *node = arena_new_of(arena, TreeNode);
    *node = (TreeNode){.kind = NODE_LEAF, .leaf = form, .n_runs = runs->n, .runs = runs->v,
                       .type = DT_F32, .lo = runs->v[0].start};
    for (int i = 0; i < runs->n; i++) {
        const Run *run = &runs->v[i];
        node->count += run->len;
        if (run->start < node->lo)
            node->lo = run->start;
        if (run->start + run->len > node->hi)
            node->hi = run->start + run->len;
    }
    return node;
}

static const TreeNode *new_round(Arena *arena, DType type, const TreeNode *child)
{
    if (!child || child->type == type)
        return child;
    TreeNode *node = arena_new_of(arena, TreeNode);
    *node = (TreeNode){.kind = NODE_ROUND, .type = type, .left = child, .count = child->count,
                       .lo = child->lo, .hi = child->hi};
    return node;
}

static const TreeNode *new_join(Arena *arena, DType type, const TreeNode *left,
                                const TreeNode *right)
{
    TreeNode *node = arena_new_of(arena, TreeNode);
    *node = (TreeNode){.kind = NODE_JOIN, .type = type, .left = left, .right = right,
                       .count = left->count + right->count,
                       .lo = left->lo < right->lo ? left->lo : right->lo,
                       .hi = left->hi > right->hi ? left->hi : right->hi};
    return node;
}

static const TreeNode *join_pairwise(Arena *arena, DType type, const TreeNode *const *nodes, int n)
{
    if (n == 1)
        return nodes[0];
    int left = 1;
    while (left * 2 < n)
        left *= 2;
    return new_join(arena, type, join_pairwise(arena, type, nodes, left),
                    join_pairwise(arena, type, nodes + left, n - left));
}

static const TreeNode *join_parts(Arena *arena, const Tree *tree, const Nodes *parts)
{
    if (!parts->n)
        return NULL;
    const TreeNode **nodes = arena_array(arena, const TreeNode *, parts->n);
    for (int i = 0; i < parts->n; i++)
        nodes[i] = new_round(arena, tree->type, parts->v[i]);
    if (tree->join == JOIN_PAIRWISE)
        return join_pairwise(arena, tree->type, nodes, parts->n);
    const TreeNode *all = nodes[0];
    for (int i = 1; i < parts->n; i++)
        all = new_join(arena, tree->type, all, nodes[i]);
    return all;
}

/* Where a walk along a sequence stands: run `at`, of which `used` elements are taken. */
typedef struct Cursor {
    const Runs *runs;
    int at;
    i64 used;
} Cursor;

static Sequence take(Arena *arena, Cursor *cursor, i64 len)
{
    Sequence part = {.len = len};
    i64 left = len;
    while (left && cursor->at < cursor->runs->n) {
        const Run *run = &cursor->runs->v[cursor->at];
        i64 n = run->len - cursor->used < left ? run->len - cursor->used : left;
        add_run(arena, &part.present, run->start + cursor->used, n);
        left -= n;
        cursor->used += n;
        if (cursor->used == run->len) {
            cursor->at++;
            cursor->used = 0;
        }
    }
    return part;
}

static const TreeNode *expand_contiguous(Arena *arena, const Tree *tree, const Sequence *seq)
{
    Nodes parts = {0};
    Cursor cursor = {&seq->present, 0, 0};
    i64 equal = tree->n_parts ? 0
                : tree->form == TREE_EVERY ? tree->count : seq->len / tree->count;
    for (int i = 0; cursor.at < seq->present.n; i++) {
        Sequence part = take(arena, &cursor, tree->n_parts ? tree->parts[i] : equal);
        const TreeNode *node = expand(arena, tree->child, &part);
        if (node)
            vec_push(arena, &parts, node);
    }
    return join_parts(arena, tree, &parts);
}

static const TreeNode *expand_lanes(Arena *arena, const Tree *tree, const Sequence *seq)
{
    i64 filled = (seq->len + tree->run - 1) / tree->run;
    int n = (int)(filled < tree->count ? filled : tree->count);
    Sequence *lanes = arena_array(arena, Sequence, n);
    Cursor cursor = {&seq->present, 0, 0};
    for (int lane = 0; cursor.at < seq->present.n; lane = (lane + 1) % n) {
        Sequence piece = take(arena, &cursor, tree->run);
        for (int i = 0; i < piece.present.n; i++)
            add_run(arena, &lanes[lane].present, piece.present.v[i].start,
                    piece.present.v[i].len);
    }
    Nodes parts = {0};
    for (int lane = 0; lane < n; lane++) {
        lanes[lane].len = lane_length(tree, seq->len, lane);
        const TreeNode *node = expand(arena, tree->child, &lanes[lane]);
        if (node)
            vec_push(arena, &parts, node);
    }
    return join_parts(arena, tree, &parts);
}

static const TreeNode *expand(Arena *arena, const Tree *tree, const Sequence *seq)
{
    if (!seq->present.n)
        return NULL;
    switch (tree->form) {
    case TREE_SPLIT:
    case TREE_EVERY:
        return expand_contiguous(arena, tree, seq);
    case TREE_LANES:
        return expand_lanes(arena, tree, seq);
    case TREE_ROUND:
        return new_round(arena, tree->type, expand(arena, tree->child, seq));
    default:
        return new_leaf(arena, tree->form, &seq->present);
    }
}

const TreeNode *tree_expand(Arena *arena, const Tree *tree, i64 extent)
{
    Sequence seq = {.len = extent};
    if (extent > 0)
        add_run(arena, &seq.present, 0, extent);
    return expand(arena, tree, &seq);
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_split_parts(const Tree *tree, Text *out)
{
    if (!tree->n_parts) {
        text_printf(out, "split %lld", (long long)tree->count);
        return;
    }
    text_printf(out, "split [");
    for (int i = 0; i < tree->n_parts; i++)
        text_printf(out, "%s%lld", i ? ", " : "", (long long)tree->parts[i]);
    text_printf(out, "]");
}

static void print_head(const Tree *tree, Text *out)
{
    switch (tree->form) {
    case TREE_MMA: text_printf(out, "mma"); break;
    case TREE_CHAIN: text_printf(out, "chain"); break;
    case TREE_CHAIN_ADD: text_printf(out, "chain add"); break;
    case TREE_SPLIT: print_split_parts(tree, out); break;
    case TREE_EVERY: text_printf(out, "every %lld", (long long)tree->count); break;
    case TREE_LANES:
        text_printf(out, "lanes %lld by %lld", (long long)tree->count, (long long)tree->run);
        break;
    case TREE_ROUND: text_printf(out, "round %s", dtype_name(tree->type)); break;
    case TREE_NAME: break;
    }
}

void tree_print(const Tree *tree, Text *out)
{
    print_head(tree, out);
    if (!tree->child)
        return;
    text_printf(out, " { ");
    tree_print(tree->child, out);
    text_printf(out, " }");
    if (tree->form != TREE_ROUND)
        text_printf(out, " %s %s", tree->join == JOIN_PAIRWISE ? "pairwise" : "left",
                    dtype_name(tree->type));
}

/* ---- cuts and programs ----------------------------------------------------------------------
 * Walks keep their own stack: a `left` join over many parts is as deep as it is long. */

/* What lies before, in and after the cut must come in this order in the tree too, or the ranks'
 * roots in order of rank would not be the tree's; lanes make it so. */
bool tree_forest(Arena *arena, const TreeNode *root, i64 lo, i64 hi, Forest *forest)
{
    enum { BEFORE, INSIDE, AFTER } phase = BEFORE;
    Nodes stack = {0};
    *forest = (Forest){0};
    if (root && lo < hi)
        vec_push(arena, &stack, root);
    while (stack.n) {
        const TreeNode *node = stack.v[--stack.n];
        if (node->hi <= lo) {
            if (phase != BEFORE)
                return false;
        } else if (node->lo >= hi) {
            phase = AFTER;
        } else if (node->lo >= lo && node->hi <= hi) {
            if (phase == AFTER)
                return false;
            phase = INSIDE;
            vec_push(arena, forest, node);
        } else if (node->kind == NODE_LEAF) {
            return false;
        } else {
            if (node->right)
                vec_push(arena, &stack, node->right);
            vec_push(arena, &stack, node->left);
        }
    }
    return true;
}

static const Tree *below_rounds(const Tree *tree)
{
    while (tree->form == TREE_ROUND)
        tree = tree->child;
    return tree;
}

/* Of `places` places from lo the first `len` hold elements: a short last part keeps the boundaries
 * of a full one. */
static void parts_from(Arena *arena, const Tree *tree, i64 lo, i64 len, i64 places, Runs *parts)
{
    tree = below_rounds(tree);
    if (tree->form != TREE_SPLIT && tree->form != TREE_EVERY) {
        Run run = {lo, len};
        vec_push(arena, parts, run);
        return;
    }
    i64 step = tree->form == TREE_EVERY ? tree->count : places / tree->count;
    for (i64 at = 0, i = 0; at < len; at += step, i++) {
        if (tree->n_parts)
            step = tree->parts[i];
        i64 have = len - at < step ? len - at : step;
        if (have)
            parts_from(arena, tree->child, lo + at, have, step, parts);
    }
}

void tree_parts(Arena *arena, const Tree *tree, i64 extent, Runs *parts)
{
    parts_from(arena, tree, 0, extent, extent, parts);
}

bool tree_part_forest(Arena *arena, const Tree *tree, const TreeNode *root, i64 lo, i64 hi,
                      Forest *forest)
{
    Runs parts = {0};
    *forest = (Forest){0};
    tree_parts(arena, tree, root ? root->hi : 0, &parts);
    for (int i = 0; i < parts.n; i++) {
        Forest part;
        i64 from = parts.v[i].start, to = from + parts.v[i].len;
        if (to <= lo || from >= hi)
            continue;
        if (from < lo || to > hi || !tree_forest(arena, root, from, to, &part))
            return false;
        for (int k = 0; k < part.n; k++)
            vec_push(arena, forest, part.v[k]);
    }
    return true;
}

void tree_leaves(Arena *arena, const TreeNode *root, Forest *leaves)
{
    Nodes stack = {0};
    *leaves = (Forest){0};
    if (root)
        vec_push(arena, &stack, root);
    while (stack.n) {
        const TreeNode *node = stack.v[--stack.n];
        if (node->kind == NODE_LEAF) {
            vec_push(arena, leaves, node);
            continue;
        }
        if (node->right)
            vec_push(arena, &stack, node->right);
        vec_push(arena, &stack, node->left);
    }
}

/* A node waits on the stack twice: to be opened, and then, marked, to be computed. */
typedef struct Pending {
    const TreeNode *node;
    bool opened;
} Pending;

bool tree_join_program(Arena *arena, const TreeNode *root, const Forest *roots, JoinProgram *out)
{
    VEC(Pending) stack = {0};
    VEC(JoinOp) ops = {0};
    int height = 0, next = 0;
    *out = (JoinProgram){.n_roots = roots->n, .n_ops = arena_array(arena, int, roots->n + 1)};
    if (root)
        vec_push(arena, &stack, ((Pending){root, false}));
    while (stack.n) {
        Pending top = stack.v[--stack.n];
        if (top.opened) {
            vec_push(arena, &ops, ((JoinOp){top.node->kind, top.node->type}));
            out->n_ops[next - 1]++;
            height -= top.node->kind == NODE_JOIN;
        } else if (next < roots->n && roots->v[next] == top.node) {
            next++;
            if (++height > out->depth)
                out->depth = height;
        } else if (top.node->kind == NODE_LEAF) {
            return false;
        } else {
            vec_push(arena, &stack, ((Pending){top.node, true}));
            if (top.node->right)
                vec_push(arena, &stack, ((Pending){top.node->right, false}));
            vec_push(arena, &stack, ((Pending){top.node->left, false}));
        }
    }
    out->ops = ops.v;
    out->total_ops = ops.n;
    return next == roots->n;
}
