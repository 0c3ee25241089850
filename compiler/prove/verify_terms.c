/* Expressions, literally, on terms instead of numbers; results and roots. */
#include "verify_terms_impl.h"

#include <string.h>

/* ---- what was computed before ------------------------------------------------------------------
 */

static u64 scatter(u64 x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static TermsEntry *slot(const Terms *t, u64 key)
{
    u64 mask = ((u64)1 << t->table_bits) - 1, at = key & mask;
    while (t->table[at].key && t->table[at].key != key)
        at = (at + 1) & mask;
    return &t->table[at];
}

static void grow(Terms *t)
{
    TermsEntry *old = t->table;
    u64 n = old ? (u64)1 << t->table_bits : 0;
    t->table_bits = old ? t->table_bits + 1 : 12;
    t->table = arena_array(t->arena, TermsEntry, (u64)1 << t->table_bits);
    for (u64 i = 0; i < n; i++)
        if (old[i].key)
            *slot(t, old[i].key) = old[i];
}

void terms_remember(Terms *t, u64 key, u64 value)
{
    if (!t->table || t->entries * 2 > 1 << t->table_bits)
        grow(t);
    *slot(t, key) = (TermsEntry){key, value};
    t->entries++;
}

u64 terms_recall(const Terms *t, u64 key)
{
    return t->table ? slot(t, key)->value : 0;
}

/* A node at the indices that it depends on. */
u64 terms_key(u64 kind, int number, u64 mask, const i64 *index)
{
    u64 key = scatter(kind << 32 ^ (u64)number ^ 0x517cc1b727220a95u);
    for (int a = 0; mask >> a; a++)
        if (mask >> a & 1)
            key = scatter(key ^ ((u64)index[a] + ((u64)a << 40)) * 0x9e3779b97f4a7c15u);
    return key ? key : 1;
}

/* ---- inputs -----------------------------------------------------------------------------------
 */

static const Axis *axis_of(const Terms *t, int atom)
{
    return &t->contract->axes[t->contract->atom_axis[atom]];
}

u64 terms_mask(const Terms *t, u64 mask)
{
    u64 coordinates = 0;
    for (int a = 0; a < t->contract->n_atoms; a++)
        if (axis_of(t, a)->coordinate_of >= 0)
            coordinates |= (u64)1 << a;
    return mask & coordinates ? (mask & ~coordinates) | (u64)1 << t->tokens : mask;
}

static void range_of(const Terms *t, const Part *part, int atom, i64 *lo, i64 *hi)
{
    if (axis_of(t, atom)->free)
        part_rows(part, t->setup.rows, lo, hi);
    else
        *lo = part->lo[atom], *hi = part->hi[atom];
}

i64 terms_flat(const Terms *t, const Part *part, const int *atoms, int n, const i64 *index)
{
    i64 at = 0;
    for (int i = 0; i < n; i++) {
        i64 lo, hi;
        range_of(t, part, atoms[i], &lo, &hi);
        at = at * (hi - lo) + index[atoms[i]] - lo;
    }
    return at;
}

i64 terms_row(const Terms *t, i64 token)
{
    i64 lo, hi;
    part_rows(t->part, t->setup.rows, &lo, &hi);
    return token - lo;
}

/* A coordinate's axis is as long as the table. */
u64 terms_leaf(const Terms *t, int param, const i64 *index)
{
    const Tensor *tensor = &t->op->op->params[param];
    const TermsTensor *memory = &t->setup.params[param];
    i64 at = 0;
    for (int i = 0; i < tensor->n_atoms; i++) {
        int atom = tensor->atoms[i];
        i64 lo = 0, hi = atom == t->position ? memory->positions : memory->sequences;
        if (axis_of(t, atom)->coordinate_of < 0)
            range_of(t, t->part, atom, &lo, &hi);
        at = at * (hi - lo) + index[atom] - lo;
    }
    return ptx_term_leaf(t->setup.first_param + (u64)param,
                         (u64)(at / memory->line * memory->pitch + at % memory->line));
}

i64 terms_looked_up(Terms *t, const DagNode *node, const Fix *fix, const i64 *index)
{
    const DagNode *set = dag_index_value(node, fix);
    i64 chosen = -1;
    if (set) {
        t->unknown |= set->kind != DAG_TOP || !terms_chosen(t, set, index, &chosen);
        return chosen;
    }
    const Tensor *tensor = &t->op->op->params[~fix->at];
    const TermsTensor *memory = &t->setup.params[~fix->at];
    i64 at = terms_flat(t, t->part, tensor->atoms, tensor->n_atoms, index);
    int32_t value = ((const int32_t *)memory->data)[at / memory->line * memory->pitch +
                                                     at % memory->line];
    return value >= 0 && value < axis_of(t, fix->atom)->size ? value : -1;
}

/* Past an axis's end, where kernels have +0. */
static bool is_past(const Terms *t, int param, const i64 *index)
{
    const Tensor *tensor = &t->op->op->params[param];
    for (int i = 0; i < tensor->n_atoms; i++) {
        const Axis *axis = axis_of(t, tensor->atoms[i]);
        if (axis->coordinate_of < 0 && !axis->free && index[tensor->atoms[i]] >= axis->size)
            return true;
    }
    return false;
}

static u64 input_term(Terms *t, const DagNode *node, const i64 *index)
{
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    if (t->tokens >= 0 && terms_mask(t, node->mask) >> t->tokens & 1) {
        i64 row = terms_row(t, index[t->tokens]);
        own[t->position] = t->setup.positions[row];
        own[t->sequence] = t->setup.sequences[row];
    }
    for (int i = 0; i < node->n_fixes; i++) {
        const Fix *fix = &node->fixes[i];
        own[fix->atom] = fix->at < 0 ? terms_looked_up(t, node, fix, index) : fix->at;
        if (own[fix->atom] < 0)
            return terms_constant(t, 0);
    }
    return is_past(t, node->param, own) ? terms_constant(t, 0) : terms_leaf(t, node->param, own);
}

/* ---- expressions ------------------------------------------------------------------------------
 */

PtxType terms_type(DType type)
{
    return type == DT_BF16 ? PTX_T_BF16 : type == DT_F16 ? PTX_T_F16 : PTX_T_F32;
}

static u32 f32_bits(const DagNode *constant)
{
    float x = dag_constant_value(constant->type, constant->bits);
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

u64 terms_as_f32(Terms *t, const DagNode *node, const i64 *index)
{
    if (node->kind == DAG_CONST)
        return terms_constant(t, f32_bits(node));
    if (node->kind == DAG_REDUCE)
        return terms_reduce(t, node, index);
    return terms_widened(t, node->type, terms_eval(t, node, index));
}

static u64 negated(u64 f32)
{
    const u64 args[] = {f32, ptx_term_const(0x80000000u)};
    return ptx_term_node(ptx_term_operation(PTX_XOR, PTX_T_B32, PTX_T_NONE, 0), false, args, 2);
}

static u64 operation(Terms *t, const DagNode *node, const i64 *index)
{
    static const PtxOp ops[] = {[DAG_ADD] = PTX_ADD, [DAG_SUB] = PTX_SUB, [DAG_MUL] = PTX_MUL,
                                [DAG_DIV] = PTX_DIV};
    u64 args[3];
    if (dag_has_short_form(node))
        return terms_narrow(node->type,
                            terms_short_form(t, node->args[0]->fn,
                                             terms_as_f32(t, node->args[0]->args[0], index)));
    for (int i = 0; i < node->n_args; i++)
        args[i] = terms_as_f32(t, node->args[i], index);
    u64 folded = terms_folded(t, node, args);
    if (folded)
        return folded;
    switch (node->kind) {
    case DAG_CAST: return terms_narrow(node->type, args[0]);
    case DAG_NEG: return terms_narrow(node->type, negated(args[0]));
    case DAG_FN: return terms_narrow(node->type, terms_function(t, node->fn, args));
    default: return terms_narrow(node->type, ptx_term_f32(ops[node->kind], args, 2));
    }
}

static u64 chosen(Terms *t, const DagNode *node, const i64 *index)
{
    i64 at;
    bool known = node->kind == DAG_TOP ? terms_chosen(t, node, index, &at)
                                       : terms_drawn(t, node, index, &at);
    return known ? ptx_term_const((u32)at) : TERM_POISON;
}

u64 terms_eval(Terms *t, const DagNode *node, const i64 *index)
{
    switch (node->kind) {
    case DAG_INPUT: return input_term(t, node, index);
    case DAG_CONST: return terms_constant(t, node->bits);
    case DAG_ONLY:
        return index[node->fixes[0].atom] == terms_looked_up(t, node, &node->fixes[0], index)
                   ? terms_as_f32(t, node->args[0], index)
                   : terms_constant(t, 0xFF800000u);
    case DAG_REDUCE: return terms_narrow(node->type, terms_reduce(t, node, index));
    case DAG_ATTEND: return terms_attend(t, node, index);
    case DAG_DRAW:
    case DAG_TOP: return chosen(t, node, index);
    default: return operation(t, node, index);
    }
}

/* ---- results and roots ------------------------------------------------------------------------
 */

u64 terms_result(Terms *t, int result, const i64 *index)
{
    for (int i = 0; i < t->op->pieces.n; i++) {
        const DagPiece *piece = &t->op->pieces.v[i];
        bool here = piece->result == result;
        for (int f = 0; here && f < piece->n_fixes; f++)
            here = index[piece->fixes[f].atom] == piece->fixes[f].at;
        if (here) {
            t->unknown = false;
            u64 term = terms_eval(t, piece->value, index);
            return t->unknown ? TERM_POISON : term;
        }
    }
    return TERM_CONCRETE;
}

u64 terms_root(Terms *t, const DagNode *reduce, int root, int value, const i64 *index)
{
    Forest forest = {0};
    const TreeNode *tree = t->tree[terms_reduce_number(t, reduce)];
    if (!layout_forest(t->contract, reduce, tree, t->part, &forest, t->arena) || root >= forest.n)
        return TERM_CONCRETE;
    return terms_tree(t, reduce, forest.v[root], index).v[value];
}

i64 terms_dim_size(const Terms *t, const Part *part, const PlanDim *dim)
{
    i64 size = 1;
    for (int i = 0; i < dim->n_atoms; i++) {
        i64 lo, hi;
        range_of(t, part, dim->atoms[i], &lo, &hi);
        size *= hi - lo;
    }
    return size;
}

/* ((root * parts + part) * rows + row) * columns + column, columns of all groups in a row. */
static i64 gemm_place(const Terms *t, const Part *part, const Gemm *gemm, const DagNode *reduce,
                      int root, const i64 *index)
{
    i64 columns = 0, column = -1, product = 0, rows = terms_dim_size(t, part, &gemm->rows);
    int parts = 1;
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        parts = group->n_products > parts ? group->n_products : parts;
        for (int p = 0; p < group->n_products; p++)
            if (group->product[p].reduce == reduce) {
                product = p;
                column = columns + terms_flat(t, part, group->cols.atoms, group->cols.n_atoms,
                                              index);
            }
        columns += terms_dim_size(t, part, &group->cols);
    }
    i64 row = terms_flat(t, part, gemm->rows.atoms, gemm->rows.n_atoms, index);
    return column < 0 ? -1 : ((root * parts + product) * rows + row) * columns + column;
}

/* (root * values of all reduces + value) * rows + row. */
static i64 fold_place(const Terms *t, const Part *part, const Gemm *gemm, const DagNode *reduce,
                      int root, int value, const i64 *index)
{
    int before = 0, i = 0;
    while (i < gemm->fold.n_reduces && gemm->fold.reduces[i] != reduce)
        before += monoid_values(gemm->fold.reduces[i++]->monoid);
    i64 row = terms_flat(t, part, gemm->rows.atoms, gemm->rows.n_atoms, index);
    i64 place = (i64)root * gemm->fold.values + before + value;
    return i < gemm->fold.n_reduces ? place * terms_dim_size(t, part, &gemm->rows) + row : -1;
}

i64 terms_root_place(Terms *t, int rank, const DagNode *reduce, int root, int value,
                     const i64 *index)
{
    const PlanOp *at = t->setup.at;
    const Part *part = &at->part_of_rank[rank];
    int kernel = at->variants[0].kernel_of_rank[rank];
    if (kernel < 0)
        return -1;
    const Kernel *k = t->setup.plan->kernels.v[kernel];
    if (k->gemm.fold.n_reduces)
        return fold_place(t, part, &k->gemm, reduce, root, value, index);
    if (k->family == FAMILY_GEMM)
        return gemm_place(t, part, &k->gemm, reduce, root, index);
    i64 row = 0, rows = 1;
    for (int d = 0; d < k->n_dims - 1; d++) {
        i64 size = terms_dim_size(t, part, &k->dims[d]);
        row = row * size + terms_flat(t, part, k->dims[d].atoms, k->dims[d].n_atoms, index);
        rows *= size;
    }
    return (root * monoid_values(reduce->monoid) + value) * rows + row;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static Str refusal(const Terms *t)
{
    int packed = 0;
    for (int i = 0; i < t->contract->n_axes; i++)
        packed += t->contract->axes[i].free && t->contract->axes[i].n_factors > 0;
    if (packed > 1)
        return STR("tokens that are packed twice");
    return t->op->reduces.n > TERMS_FORESTS ? STR("so many reductions") : STR("");
}

static void find_tokens(Terms *t)
{
    t->tokens = t->sequence = t->position = -1;
    for (int a = 0; a < t->contract->n_atoms; a++) {
        int ragged = axis_of(t, a)->coordinate_of;
        if (ragged < 0)
            continue;
        const Axis *r = &t->contract->axes[ragged];
        t->tokens = r->atom;
        *(r->factors[r->n_factors - 1] == t->contract->atom_axis[a] ? &t->position
                                                                     : &t->sequence) = a;
    }
}

static void expand(Terms *t)
{
    for (int i = 0; i < t->op->reduces.n; i++) {
        const DagNode *reduce = t->op->reduces.v[i];
        i64 extent = 1;
        for (int k = 0; k < reduce->n_atoms; k++)
            extent *= atom_size(t->contract, reduce->atoms[k], t->setup.rows);
        t->tree[i] = tree_expand(t->arena, reduce->tree, extent);
    }
}

static bool hear(Terms *t, const DagNode *reduce, int number)
{
    const PlanOp *at = t->setup.at;
    int *heard = arena_array(t->arena, int, at->at.ranks);
    int n = layout_sources(t->contract, &at->at, t->setup.rank, heard);
    for (int i = 0; i < n; i++) {
        TermsGiven given = {.reduce = reduce, .rank = heard[i]};
        if (!layout_forest(t->contract, reduce, t->tree[number], &at->part_of_rank[heard[i]],
                           &given.forest, t->arena))
            return false;
        vec_push(t->arena, &t->given, given);
    }
    return true;
}

Terms *terms_open(const TermsSetup *setup, Str *why, Arena *arena)
{
    Terms *t = arena_new_of(arena, Terms);
    *t = (Terms){.setup = *setup, .contract = setup->plan->dag->contract, .op = setup->at->op,
                 .arena = arena};
    t->part = setup->joins ? &setup->at->finish_of_rank[setup->rank]
                           : &setup->at->part_of_rank[setup->rank];
    *why = refusal(t);
    if (why->n)
        return NULL;
    find_tokens(t);
    expand(t);
    for (int i = 0; setup->joins && i < t->op->reduces.n; i++)
        if (layout_leaves_roots(t->contract, &setup->at->at, t->op->reduces.v[i]) &&
            !hear(t, t->op->reduces.v[i], i)) {
            *why = STR("roots that do not make the tree");
            return NULL;
        }
    return t;
}
