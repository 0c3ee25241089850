/* Trees, literally, on terms: leaves, joins, and what ranks sent. */
#include "verify_terms_impl.h"

#include <string.h>

enum { GROUP = 16 };

#define ONE 0x3f800000u
#define NEGATIVE_INFINITY 0xff800000u

int terms_reduce_number(const Terms *t, const DagNode *reduce)
{
    for (int i = 0; i < t->op->reduces.n; i++)
        if (t->op->reduces.v[i] == reduce)
            return i;
    return -1;
}

/* Element e of the reduced axes, row-major. */
static void set_element(const Terms *t, const DagNode *reduce, i64 e, i64 *index)
{
    for (int i = reduce->n_atoms - 1; i >= 0; i--) {
        i64 size = atom_size(t->contract, reduce->atoms[i], t->setup.rows);
        index[reduce->atoms[i]] = e % size;
        e /= size;
    }
}

/* ---- mma --------------------------------------------------------------------------------------
 */

/* Factors of one operand over the elements [lo, hi), for all others' indices alike. */
static const u64 *factors(Terms *t, const DagNode *reduce, const DagNode *operand, i64 lo, i64 hi,
                          const i64 *index)
{
    u64 mask = terms_mask(t, operand->mask);
    for (int i = 0; i < reduce->n_atoms; i++)
        mask &= ~((u64)1 << reduce->atoms[i]);
    u64 key = terms_key(2 + (u64)lo, operand->number, mask, index), found = terms_recall(t, key);
    if (found)
        return (const u64 *)(uintptr_t)found;
    u64 *out = arena_array(t->arena, u64, hi - lo);
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (i64 e = lo; e < hi; e++) {
        set_element(t, reduce, e, own);
        out[e - lo] = ptx_term_factor(terms_eval(t, operand, own));
    }
    terms_remember(t, key, (u64)(uintptr_t)out);
    return out;
}

static u64 mma_leaf(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index)
{
    const DagNode *body = reduce->args[0];
    const u64 *a = factors(t, reduce, body->args[0], node->lo, node->hi, index);
    const u64 *b = factors(t, reduce, body->args[1], node->lo, node->hi, index);
    i64 n = node->hi - node->lo;
    u64 acc = TERM_CONCRETE;
    for (i64 k = 0; k < n; k += GROUP) {
        TermSum sum = 0;
        for (i64 j = k; j < k + GROUP && j < n; j++)
            sum += (TermSum)a[j] * b[j];
        acc = ptx_term_step(acc, sum, true);
    }
    return acc;
}

/* ---- joins: a value of a narrower type is held as its widening --------------------------------
 */

static u64 rounded(DType type, u64 f32)
{
    return type == DT_F32 ? f32 : terms_widen(type, terms_narrow(type, f32));
}

/* exp of the distance to the joint maximum, and 1 where there is none. */
static u64 weight(Terms *t, DType type, u64 own, u64 most)
{
    u64 distance = rounded(type, terms_binary(PTX_SUB, own, most));
    u64 e = rounded(type, terms_function(t, FN_EXP, &distance));
    return ptx_term_select(ptx_term_const(ONE), e, ptx_term_compare(PTX_EQ, own, most));
}

/* In f32, as iso_short_join does it, of which a test shows that it has 6.8's bits. */
static TermsValue join_pairs(Terms *t, TermsValue l, TermsValue r)
{
    u64 less = ptx_term_compare(PTX_LT, l.v[0], r.v[0]);
    u64 weight = terms_short_weight(t, terms_binary(PTX_SUB, l.v[0], r.v[0]));
    u64 low = ptx_term_select(l.v[1], r.v[1], less), high = ptx_term_select(r.v[1], l.v[1], less);
    u64 sum = terms_binary(PTX_ADD, high, terms_binary(PTX_MUL, low, weight));
    return (TermsValue){{terms_binary(PTX_MAX, l.v[0], r.v[0]), sum}};
}

static TermsValue join(Terms *t, Monoid monoid, DType type, TermsValue l, TermsValue r)
{
    TermsValue out = {{0}};
    if (monoid == MONOID_LOGSUMEXP && type == DT_F32)
        return join_pairs(t, l, r);
    PtxOp op = monoid == MONOID_SUM ? PTX_ADD : PTX_MAX;
    out.v[0] = rounded(type, terms_binary(op, l.v[0], r.v[0]));
    if (monoid_values(monoid) == 1)
        return out;
    u64 left = weight(t, type, l.v[0], out.v[0]), right = weight(t, type, r.v[0], out.v[0]);
    for (int i = 1; i < monoid_values(monoid); i++) {
        u64 a = rounded(type, terms_binary(PTX_MUL, l.v[i], left));
        u64 b = rounded(type, terms_binary(PTX_MUL, r.v[i], right));
        out.v[i] = rounded(type, terms_binary(PTX_ADD, a, b));
    }
    return out;
}

static u64 final_value(Terms *t, Monoid monoid, DType type, TermsValue x)
{
    if (monoid != MONOID_LOGSUMEXP)
        return x.v[0];
    u64 log = rounded(type, terms_function(t, FN_LOG, &x.v[1]));
    return rounded(type, terms_binary(PTX_ADD, x.v[0], log));
}

/* ---- chains -----------------------------------------------------------------------------------
 */

/* The next element of a chain; `fused`: a product goes into it unrounded. */
static TermsValue next(Terms *t, const DagNode *reduce, bool fused, const TermsValue *acc,
                       const i64 *index)
{
    const DagNode *body = reduce->args[0];
    if (fused) {
        u64 args[3] = {terms_as_f32(t, body->args[0], index), terms_as_f32(t, body->args[1], index),
                       acc ? acc->v[0] : 0};
        return (TermsValue){{ptx_term_f32(acc ? PTX_FMA : PTX_MUL, args, acc ? 3 : 2)}};
    }
    TermsValue x = {{terms_as_f32(t, body, index), ptx_term_const(ONE)}};
    return acc ? join(t, reduce->monoid, DT_F32, *acc, x) : x;
}

/* The element at place e: of slots (6.23) the one that stands there, of two the first. */
static bool find_element(Terms *t, const DagNode *reduce, i64 e, i64 *index)
{
    if (!reduce->n_fixes) {
        set_element(t, reduce, e, index);
        return true;
    }
    i64 n = atom_size(t->contract, reduce->slots, 0);
    for (i64 *slot = &index[reduce->slots], k = 0; k < n; k++) {
        *slot = k;
        if (terms_looked_up(t, reduce, &reduce->fixes[0], index) == e)
            return true;
    }
    return false;
}

static bool leaf_has_any(Terms *t, const DagNode *reduce, const TreeNode *node,
                         const i64 *index)
{
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (int r = 0; r < node->n_runs; r++)
        for (i64 e = node->runs[r].start; e < node->runs[r].start + node->runs[r].len; e++)
            if (find_element(t, reduce, e, own))
                return true;
    return false;
}

static bool has_any(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index)
{
    if (!reduce->n_fixes)
        return true;
    if (node->kind == NODE_LEAF)
        return leaf_has_any(t, reduce, node, index);
    return has_any(t, reduce, node->left, index) ||
           (node->kind == NODE_JOIN && has_any(t, reduce, node->right, index));
}

static TermsValue chain_leaf(Terms *t, const DagNode *reduce, const TreeNode *node,
                             const i64 *index)
{
    const DagNode *body = reduce->args[0];
    bool fused = reduce->monoid == MONOID_SUM && node->leaf == TREE_CHAIN &&
                 body->kind == DAG_MUL && body->type == DT_F32;
    TermsValue acc = {{0}};
    bool any = false;
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (int r = 0; r < node->n_runs; r++)
        for (i64 e = node->runs[r].start; e < node->runs[r].start + node->runs[r].len; e++) {
            if (!find_element(t, reduce, e, own))
                continue;
            acc = next(t, reduce, fused, any ? &acc : NULL, own);
            any = true;
        }
    return acc;
}

/* ---- trees ------------------------------------------------------------------------------------
 */

/* A node whose value some rank sent. */
static bool given_value(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index,
                        TermsValue *out)
{
    for (int i = 0; i < t->given.n; i++) {
        const TermsGiven *g = &t->given.v[i];
        for (int root = 0; g->reduce == reduce && root < g->forest.n; root++) {
            if (g->forest.v[root] != node)
                continue;
            for (int v = 0; v < monoid_values(reduce->monoid); v++) {
                i64 at = terms_root_place(t, g->rank, reduce, root, v, index);
                out->v[v] = ptx_term_leaf(t->setup.first_roots + (u64)g->rank, (u64)at);
            }
            return true;
        }
    }
    return false;
}

static TermsValue nothing(const DagNode *reduce)
{
    return (TermsValue){{ptx_term_const(reduce->monoid == MONOID_SUM ? 0 : NEGATIVE_INFINITY),
                         ptx_term_const(0), ptx_term_const(0)}};
}

/* A node with no slot below it is absent: nothing is joined for it. */
TermsValue terms_tree(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index)
{
    TermsValue out = {{0}};
    if (!has_any(t, reduce, node, index))
        return nothing(reduce);
    if (given_value(t, reduce, node, index, &out))
        return out;
    if (node->kind == NODE_LEAF && node->leaf == TREE_MMA)
        return (TermsValue){{mma_leaf(t, reduce, node, index)}};
    if (node->kind == NODE_LEAF)
        return chain_leaf(t, reduce, node, index);
    if (node->kind == NODE_JOIN && !has_any(t, reduce, node->left, index))
        return terms_tree(t, reduce, node->right, index);
    out = terms_tree(t, reduce, node->left, index);
    if (node->kind == NODE_JOIN && !has_any(t, reduce, node->right, index))
        return out;
    if (node->kind == NODE_JOIN)
        return join(t, reduce->monoid, node->type, out, terms_tree(t, reduce, node->right, index));
    for (int v = 0; v < monoid_values(reduce->monoid); v++)
        out.v[v] = rounded(node->type, out.v[v]);
    return out;
}

u64 terms_reduce(Terms *t, const DagNode *reduce, const i64 *index)
{
    u64 key = terms_key(1, reduce->number, terms_mask(t, reduce->mask), index);
    u64 term = terms_recall(t, key);
    if (term)
        return term;
    const TreeNode *tree = t->tree[terms_reduce_number(t, reduce)];
    TermsValue value = terms_tree(t, reduce, tree, index);
    term = has_any(t, reduce, tree, index)
               ? final_value(t, reduce->monoid, reduce->type, value) : value.v[0];
    terms_remember(t, key, term);
    return term;
}
