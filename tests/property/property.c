/* Properties of the executor over seeded random ops. For each: the naive reading gives the same
 * bits; any forest-wise evaluation joins to the whole, bit for bit; any box of lists gives the
 * elements of the whole. Usage: property [cases [seed]]. Counts the hazards that it met, and fails
 * where one of them never occurred. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "naive.h"

typedef struct Tally {
    long cases, cuts, refused, roots_many, parts_empty, nodes, joins_of_types, short_leaves;
    long nan, inf, minus_zero, subnormal, order_matters, nowhere, failed;
} Tally;

static u64 state;
static Tally tally;

static i64 pick(i64 lo, i64 hi)
{
    return lo + (i64)(lab_random(&state) % (u64)(hi - lo + 1));
}

static bool chance(int percent)
{
    return pick(1, 100) <= percent;
}

/* ---- trees ----------------------------------------------------------------------------------- */

static i64 divisor_of(i64 n)
{
    i64 d;
    do
        d = pick(1, n < 24 ? n : 24);
    while (n % d);
    return d;
}

static const Tree *written(Lab *lab, i64 extent, Tree *tree)
{
    i64 *parts = arena_array(lab->arena, i64, 8);
    int n = 0;
    for (; n < 7 && extent > 1 && chance(70); n++) {
        parts[n] = pick(1, extent - 1);
        extent -= parts[n];
    }
    parts[n++] = extent;
    tree->parts = parts;
    tree->n_parts = n;
    tree->count = n;
    return tree;
}

/* extent 0: of any length, so that no `split` may stand here. */
static const Tree *random_tree(Lab *lab, TreeForm leaf, i64 extent, int depth)
{
    Tree *t = arena_new_of(lab->arena, Tree);
    TreeForm forms[] = {TREE_SPLIT, TREE_SPLIT, TREE_EVERY, TREE_LANES, TREE_ROUND};
    i64 inner = 0;
    if (depth == 0 || chance(15))
        return lab_leaf(lab, leaf);
    t->form = forms[pick(0, 4)];
    if (t->form == TREE_SPLIT && !extent)
        t->form = TREE_EVERY;
    t->join = chance(50) ? JOIN_PAIRWISE : JOIN_LEFT;
    t->type = chance(60) ? DT_F32 : chance(60) ? DT_BF16 : DT_F16;
    t->count = pick(1, 9);
    t->run = t->form == TREE_LANES ? pick(1, 5) : 0;
    if (t->form == TREE_SPLIT && chance(70)) {
        t->count = divisor_of(extent);
        inner = extent / t->count;
    } else if (t->form == TREE_SPLIT) {
        written(lab, extent, t);
    } else if (t->form == TREE_EVERY) {
        inner = t->count = pick(1, 40);
    } else if (t->form == TREE_LANES && extent && extent % (t->count * t->run) == 0) {
        inner = extent / t->count;
    } else if (t->form == TREE_ROUND) {
        inner = extent;
        t->count = 0;
    }
    t->child = random_tree(lab, leaf, inner, depth - 1);
    return t;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void count_hazard(DType type, u32 bits)
{
    u32 fraction = type == DT_F32 ? 23 : type == DT_BF16 ? 7 : 10;
    u32 top = type == DT_F16 ? 31 : 255, low = bits & ((1u << fraction) - 1);
    u32 exponent = bits >> fraction & top;
    tally.nan += exponent == top && low;
    tally.inf += exponent == top && !low;
    tally.subnormal += exponent == 0 && low;
    tally.minus_zero += exponent == 0 && !low && bits;
}

static void fail(const char *what, u64 seed, const Lab *lab)
{
    tally.failed++;
    printf("FAILED: %s, seed %" PRIu64 "\n", what, seed);
    for (int i = 0; i < lab->dag.reduces.n; i++) {
        Text text = {.arena = lab->arena};
        tree_print(lab->dag.reduces.v[i]->tree, &text);
        printf("  %s by %s\n", monoid_name(lab->dag.reduces.v[i]->monoid), text_str(&text).s);
    }
}

static size_t result_bytes(const Lab *lab, int r)
{
    return (size_t)(lab_elements(lab, &lab->results[r]) * dtype_bytes(lab->results[r].type));
}

static void *result_copy(Lab *lab, int r)
{
    void *copy = arena_alloc(lab->arena, result_bytes(lab, r) + 1);
    memcpy(copy, lab->out[r].data, result_bytes(lab, r));
    return copy;
}

static void poison(Lab *lab)
{
    for (int r = 0; r < lab->op.n_results; r++)
        memset(lab->out[r].data, 0xA5, result_bytes(lab, r));
}

static void index_of(const Lab *lab, const Tensor *t, i64 element, i64 *index)
{
    for (int i = t->n_atoms - 1; i >= 0; i--) {
        i64 size = lab_size(lab, t->atoms[i]);
        index[t->atoms[i]] = element % size;
        element /= size;
    }
}

static void check_naive(Lab *lab, u64 seed)
{
    for (int p = 0; p < lab->dag.pieces.n; p++) {
        const DagPiece *piece = &lab->dag.pieces.v[p];
        const Tensor *t = &lab->results[piece->result];
        for (i64 e = 0; e < lab_elements(lab, t); e++) {
            i64 index[MAX_ATOMS] = {0};
            index_of(lab, t, e, index);
            u32 want = naive_value(lab, piece->value, index), got = lab_out(lab, piece->result, e);
            count_hazard(t->type, got);
            if (want != got) {
                printf("  element %" PRId64 ": naive %08x, executor %08x\n", e, want, got);
                fail("naive reading", seed, lab);
                return;
            }
        }
    }
}

/* Some indices of every result atom, in any order; everything else must stay poisoned. */
static void check_lists(Lab *lab, u64 seed)
{
    void *whole[LAB_TENSORS];
    ExecJob job = lab_job(lab, 1);
    u8 *wanted[MAX_ATOMS];
    for (int r = 0; r < lab->op.n_results; r++)
        whole[r] = result_copy(lab, r);
    for (int a = 0; a < lab->contract.n_atoms; a++) {
        i64 size = lab_size(lab, a), *list = arena_array(lab->arena, i64, size + 1);
        wanted[a] = arena_array(lab->arena, u8, size + 1);
        job.box.atom[a].list = list;
        for (i64 i = size - 1; i >= 0; i--)
            if (chance(50)) {
                list[job.box.atom[a].n++] = i;
                wanted[a][i] = 1;
            }
    }
    poison(lab);
    exec_op(&job, lab->arena);
    for (int r = 0; r < lab->op.n_results; r++)
        for (i64 e = 0; e < lab_elements(lab, &lab->results[r]); e++) {
            i64 index[MAX_ATOMS] = {0};
            int size = dtype_bytes(lab->results[r].type);
            bool in = true;
            index_of(lab, &lab->results[r], e, index);
            for (int i = 0; i < lab->results[r].n_atoms; i++)
                in &= wanted[lab->results[r].atoms[i]][index[lab->results[r].atoms[i]]];
            const u8 *got = (u8 *)lab->out[r].data + e * size, *want = (u8 *)whole[r] + e * size;
            if (memcmp(got, in ? want : (const u8 *)"\xA5\xA5\xA5\xA5", (size_t)size)) {
                fail("box of lists", seed, lab);
                return;
            }
        }
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Ascending boundaries over the first reduced atom, most of them where some leaf starts. */
static int random_cut(Lab *lab, const DagNode *reduce, i64 *cut)
{
    i64 size = lab_size(lab, reduce->atoms[0]), inner = 1;
    int ranks = (int)pick(1, 6);
    Forest leaves = {0};
    for (int i = 1; i < reduce->n_atoms; i++)
        inner *= lab_size(lab, reduce->atoms[i]);
    tree_leaves(lab->arena, tree_expand(lab->arena, reduce->tree, size * inner), &leaves);
    cut[0] = 0;
    cut[ranks] = size;
    for (int r = 1; r < ranks; r++) {
        i64 at = chance(85) ? leaves.v[pick(0, leaves.n - 1)]->lo / inner : pick(0, size);
        cut[r] = at < cut[r - 1] ? cut[r - 1] : at;
    }
    return ranks;
}

static bool all_parts(Lab *lab, const i64 *cut, int ranks, const ExecRoots **roots, int *n)
{
    int atom = lab->dag.reduces.v[0]->atoms[0];
    for (int r = 0; r < ranks; r++) {
        ExecJob job = lab_job(lab, (int)pick(1, 2));
        ExecRoots *own;
        job.box.atom[atom].lo = cut[r];
        job.box.atom[atom].hi = cut[r + 1];
        if (!exec_part(&job, &own, &n[r], lab->arena))
            return false;
        roots[r] = own;
        for (int i = 0; i < n[r]; i++) {
            tally.roots_many += own[i].forest.n > 1;
            tally.parts_empty += own[i].forest.n == 0;
        }
    }
    return true;
}

static void check_cuts(Lab *lab, u64 seed)
{
    i64 cut[8];
    const ExecRoots *roots[8];
    int n[8];
    void *whole = result_copy(lab, 0);
    for (int tries = 0; tries < 4; tries++) {
        int ranks = random_cut(lab, lab->dag.reduces.v[0], cut);
        if (!all_parts(lab, cut, ranks, roots, n)) {
            tally.refused++;
            continue;
        }
        ExecJob job = lab_job(lab, 2);
        tally.cuts++;
        poison(lab);
        if (!exec_join(&job, roots, n, ranks, lab->arena) ||
            memcmp(whole, lab->out[0].data, result_bytes(lab, 0)))
            fail("parts and join", seed, lab);
    }
}

/* ---- random reductions ----------------------------------------------------------------------- */

static void tree_facts(const TreeNode *node)
{
    tally.nodes++;
    if (node->kind == NODE_LEAF) {
        tally.short_leaves += node->count % 16 != 0;
        return;
    }
    tally.joins_of_types += node->kind == NODE_JOIN && node->type != DT_F32;
    tree_facts(node->left);
    if (node->kind == NODE_JOIN)
        tree_facts(node->right);
}

/* The sum again by one chain: another value somewhere, or the trees tested nothing. */
static void count_order(Lab *lab)
{
    void *whole = result_copy(lab, 0);
    Tree *tree = (Tree *)lab->dag.reduces.v[0]->tree, keep = *tree;
    bool mma = tree_is_mma(tree);
    *tree = (Tree){.form = TREE_ROUND, .type = tree_type(&keep),
                   .child = lab_leaf(lab, mma ? TREE_MMA : TREE_CHAIN)};
    lab_run(lab, 1);
    tally.order_matters += memcmp(whole, lab->out[0].data, result_bytes(lab, 0)) != 0;
    *tree = keep;
    memcpy(lab->out[0].data, whole, result_bytes(lab, 0));
}

static DType random_type(void)
{
    return chance(50) ? DT_BF16 : chance(60) ? DT_F32 : DT_F16;
}

static const DagNode *random_body(Lab *lab, const int *x, int nx, const int *w, int nw, bool mma)
{
    DType type = mma ? chance(80) ? DT_BF16 : DT_F16 : random_type();
    const DagNode *a = lab_input(lab, lab_param(lab, type, nx, x));
    if (!mma && chance(30))
        return a;
    const DagNode *b = lab_input(lab, lab_param(lab, type, nw, w));
    if (!mma && chance(70)) {
        a = lab_cast(lab, DT_F32, a);
        b = lab_cast(lab, DT_F32, b);
    }
    return lab_op(lab, mma || chance(80) ? DAG_MUL : DAG_SUB, a->type, a, b);
}

/* y[t, n] = reduce(k [, j] by tree) of x[t, k, j] and w[n, k, j]. */
static void random_reduction(u64 seed)
{
    Lab lab;
    state = seed * 0x9E3779B97F4A7C15u | 1;
    lab_init(&lab, pick(1, 5));
    bool mma = chance(40), two = chance(30);
    Monoid monoid = mma || chance(60) ? MONOID_SUM : chance(50) ? MONOID_MAX : MONOID_LOGSUMEXP;
    int t = lab_axis(&lab, 0), n = lab_axis(&lab, pick(1, 12)), k = lab_axis(&lab, pick(1, 70));
    int j = lab_axis(&lab, two ? pick(1, 4) : 1), tn[] = {t, n};
    int x[] = {t, k, j}, w[] = {n, k, j}, over[] = {k, j};
    i64 extent = lab_size(&lab, k) * lab_size(&lab, j);
    TreeForm leaf = mma ? TREE_MMA : chance(60) ? TREE_CHAIN : TREE_CHAIN_ADD;
    const Tree *tree = random_tree(&lab, leaf, extent, (int)pick(0, 3));
    const DagNode *body = random_body(&lab, x, 3, w, 3, mma);
    const DagNode *value = lab_reduce(&lab, monoid, tree, 2, over, body);
    lab_result(&lab, body->mask >> n & 1 ? 2 : 1, tn, value);
    lab_fill(&lab, (int)pick(0, 20) ? (int)pick(0, 1) : 2, &state);
    tally.cases++;
    if (tree_extent_problem(lab.arena, tree, extent).n || !lab_run(&lab, (int)pick(1, 3)))
        fail("generator", seed, &lab);
    tree_facts(tree_expand(lab.arena, tree, extent));
    check_naive(&lab, seed);
    check_cuts(&lab, seed);
    check_lists(&lab, seed);
    if (monoid == MONOID_SUM && lab_run(&lab, 1))
        count_order(&lab);
    lab_free(&lab);
}

/* ---- random sums of slots -------------------------------------------------------------------- */

/* Where slots stand: anywhere, nowhere, and now and then two at one place. */
static void fill_places(Lab *lab, int param, i64 places)
{
    int32_t *at = lab->in[param].data;
    for (i64 i = 0; i < lab_elements(lab, &lab->params[param]); i++) {
        at[i] = chance(85) ? (int32_t)pick(0, places - 1) : (int32_t)pick(-1, 0) - (int)pick(0, 1);
        tally.nowhere += at[i] < 0;
    }
}

/* y[t, n] = reduce(picks at places by tree) of x[t, picks, n] and w[t, picks]. */
static void random_slots(u64 seed)
{
    Lab lab;
    state = seed * 0xA24BAED4963EE407u | 1;
    lab_init(&lab, pick(1, 5));
    Monoid monoid = chance(60) ? MONOID_SUM : chance(50) ? MONOID_MAX : MONOID_LOGSUMEXP;
    int t = lab_axis(&lab, 0), n = lab_axis(&lab, pick(1, 6)), places = lab_axis(&lab, pick(1, 50));
    int picks = lab_axis(&lab, pick(1, lab_size(&lab, places) < 9 ? lab_size(&lab, places) : 9));
    int tn[] = {t, n}, x[] = {t, picks, n}, w[] = {t, picks};
    lab.axes[picks].sparse_of = places + 1;
    const Tree *tree = random_tree(&lab, chance(60) ? TREE_CHAIN : TREE_CHAIN_ADD,
                                   lab_size(&lab, places), (int)pick(0, 3));
    const DagNode *body = random_body(&lab, x, 3, w, 2, false);
    int chosen = lab_param(&lab, DT_F32, 2, w);
    lab.params[chosen].index_of = places + 1;
    DagNode *sum = (DagNode *)lab_reduce(&lab, monoid, tree, 1, &places, body);
    sum->mask = (body->mask | (u64)1 << t) & ~((u64)1 << picks);
    sum->slots = picks;
    sum->n_fixes = 1;
    sum->fixes = &(Fix){places, ~(i64)chosen};
    lab_result(&lab, sum->mask >> n & 1 ? 2 : 1, tn, sum);
    lab_fill(&lab, (int)pick(0, 20) ? (int)pick(0, 1) : 2, &state);
    fill_places(&lab, chosen, lab_size(&lab, places));
    tally.cases++;
    if (tree_extent_problem(lab.arena, tree, lab_size(&lab, places)).n ||
        !lab_run(&lab, (int)pick(1, 3)))
        fail("generator of slots", seed, &lab);
    check_naive(&lab, seed);
    check_cuts(&lab, seed);
    check_lists(&lab, seed);
    lab_free(&lab);
}

/* ---- random expressions ---------------------------------------------------------------------- */

enum { POOL = 24 };

typedef struct Pool {
    Lab *lab;
    int n;
    const DagNode *node[POOL];
    int k;
} Pool;

static const DagNode *any(Pool *p, DType type)
{
    const DagNode *node = p->node[pick(0, p->n - 1)];
    return node->type == type ? node : lab_cast(p->lab, type, node);
}

static const DagNode *random_function(Pool *p)
{
    static const int arity[] = {
#define X(id, name, arity, function) arity,
#include "base/scalar.def"
#undef X
    };
    FnId fn = (FnId)pick(0, FN_COUNT - 1);
    const DagNode *a = any(p, DT_F32);
    return lab_fn(p->lab, fn, a, arity[fn] == 2 ? any(p, DT_F32) : NULL);
}

static const DagNode *random_inner_reduce(Pool *p)
{
    const DagNode *body = any(p, random_type());
    if (!(body->mask >> p->k & 1))
        return body;
    Monoid monoid = chance(50) ? MONOID_SUM : chance(50) ? MONOID_MAX : MONOID_LOGSUMEXP;
    const Tree *tree = random_tree(p->lab, TREE_CHAIN, lab_size(p->lab, p->k), 2);
    return lab_reduce(p->lab, monoid, tree, 1, &p->k, body);
}

static const DagNode *random_step(Pool *p)
{
    static const DagKind kinds[] = {DAG_ADD, DAG_SUB, DAG_MUL, DAG_DIV};
    DType type = random_type();
    int what = (int)pick(0, 9);
    if (what == 0)
        return lab_op(p->lab, DAG_NEG, type, any(p, type), NULL);
    if (what == 1)
        return lab_const(p->lab, type, lab_random_bits(type, (int)pick(0, 1), &state));
    if (what == 2)
        return lab_cast(p->lab, type, any(p, random_type()));
    if (what == 3)
        return random_function(p);
    if (what <= 5)
        return random_inner_reduce(p);
    return lab_op(p->lab, kinds[pick(0, 3)], type, any(p, type), any(p, type));
}

/* Results of any shape over (t, n, k) from a pool of random nodes, reductions over k among them. */
static void random_expression(u64 seed)
{
    Lab lab;
    state = seed * 0xD1342543DE82EF95u | 1;
    lab_init(&lab, pick(1, 4));
    int t = lab_axis(&lab, 0), n = lab_axis(&lab, pick(1, 4)), k = lab_axis(&lab, pick(1, 9));
    int all[] = {t, n, k}, tk[] = {t, k}, nk[] = {k, n};
    Pool p = {.lab = &lab, .k = k};
    p.node[p.n++] = lab_input(&lab, lab_param(&lab, random_type(), 3, all));
    p.node[p.n++] = lab_input(&lab, lab_param(&lab, random_type(), 2, tk));
    p.node[p.n++] = lab_input(&lab, lab_param(&lab, random_type(), 2, nk));
    p.node[p.n++] = lab_input(&lab, lab_param(&lab, random_type(), 1, &t));
    for (i64 steps = pick(3, 10); steps > 0; steps--) {
        const DagNode *next = random_step(&p);
        p.node[p.n++] = next;
    }
    lab_result(&lab, 3, all, p.node[p.n - 1]);
    lab_result(&lab, 3, all, p.node[p.n - 2]);
    lab_fill(&lab, (int)pick(0, 6) ? (int)pick(0, 1) : 2, &state);
    tally.cases++;
    if (!lab_run(&lab, (int)pick(1, 3)))
        fail("run", seed, &lab);
    check_naive(&lab, seed);
    check_lists(&lab, seed);
    lab_free(&lab);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void need(const char *hazard, long count)
{
    printf("  %-28s %ld\n", hazard, count);
    if (!count) {
        printf("FAILED: %s never occurred\n", hazard);
        tally.failed++;
    }
}

int main(int argc, char **argv)
{
    long cases = argc > 1 ? atol(argv[1]) : 1500;
    u64 seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%ld random ops ...\n", 3 * cases);
    for (long i = 0; i < cases && tally.failed < 10; i++) {
        random_reduction(seed + (u64)i);
        random_expression(seed + (u64)i);
        random_slots(seed + (u64)i);
    }
    printf("%ld random ops, seeds from %" PRIu64 "; %ld nodes of trees\n", tally.cases, seed,
           tally.nodes);
    need("cuts joined", tally.cuts);
    need("cuts refused", tally.refused);
    need("parts of several roots", tally.roots_many);
    need("parts with no element", tally.parts_empty);
    need("joins in bf16 or f16", tally.joins_of_types);
    need("leaves of broken groups", tally.short_leaves);
    need("sums that a chain changes", tally.order_matters);
    need("slots that stand nowhere", tally.nowhere);
    need("NaN results", tally.nan);
    need("Inf results", tally.inf);
    need("-0 results", tally.minus_zero);
    need("subnormal results", tally.subnormal);
    printf("%s\n", tally.failed ? "FAILED" : "all equal, bit for bit");
    return tally.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
