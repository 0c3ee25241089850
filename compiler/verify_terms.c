/* Expressions and trees, literally, on terms instead of numbers. */
#include "verify_terms.h"

#include "ptx/term.h"

#include <string.h>

enum { GROUP = 16, MAX_FORESTS = 64 };

/* Of one rank, on this op's tree of one reduction. */
typedef struct Given {
    const DagNode *reduce;
    int rank;
    Forest forest;
} Given;

typedef struct Entry {
    u64 key, value;
} Entry;

struct Terms {
    TermsSetup setup;
    const Contract *contract;
    const OpDag *op;
    const Part *part;
    Arena *arena;
    const TreeNode *tree[MAX_FORESTS]; /* by reduction */
    VEC(Given) given;                  /* with `joins`: of all ranks heard */
    int table_bits, entries;
    Entry *table;
};

/* ---- what was computed before ------------------------------------------------------------------
 */

static u64 scatter(u64 x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static Entry *slot(const Terms *t, u64 key)
{
    u64 mask = ((u64)1 << t->table_bits) - 1, at = key & mask;
    while (t->table[at].key && t->table[at].key != key)
        at = (at + 1) & mask;
    return &t->table[at];
}

static void grow(Terms *t)
{
    Entry *old = t->table;
    u64 n = old ? (u64)1 << t->table_bits : 0;
    t->table_bits = old ? t->table_bits + 1 : 12;
    t->table = arena_array(t->arena, Entry, (u64)1 << t->table_bits);
    for (u64 i = 0; i < n; i++)
        if (old[i].key)
            *slot(t, old[i].key) = old[i];
}

static void remember(Terms *t, u64 key, u64 value)
{
    if (!t->table || t->entries * 2 > 1 << t->table_bits)
        grow(t);
    *slot(t, key) = (Entry){key, value};
    t->entries++;
}

static u64 recall(const Terms *t, u64 key)
{
    return t->table ? slot(t, key)->value : 0;
}

/* A node at the indices that it depends on. */
static u64 key_of(u64 kind, int number, u64 mask, const i64 *index)
{
    u64 key = scatter(kind << 32 ^ (u64)number ^ 0x517cc1b727220a95u);
    for (int a = 0; mask >> a; a++)
        if (mask >> a & 1)
            key = scatter(key ^ ((u64)index[a] + ((u64)a << 40)) * 0x9e3779b97f4a7c15u);
    return key ? key : 1;
}

/* ---- inputs -----------------------------------------------------------------------------------
 */

static void range_of(const Terms *t, const Part *part, int atom, i64 *lo, i64 *hi)
{
    const Axis *axis = &t->contract->axes[t->contract->atom_axis[atom]];
    if (axis->free)
        part_rows(part, t->setup.rows, lo, hi);
    else
        *lo = part->lo[atom], *hi = part->hi[atom];
}

static i64 flat(const Terms *t, const Part *part, const int *atoms, int n, const i64 *index)
{
    i64 at = 0;
    for (int i = 0; i < n; i++) {
        i64 lo, hi;
        range_of(t, part, atoms[i], &lo, &hi);
        at = at * (hi - lo) + index[atoms[i]] - lo;
    }
    return at;
}

/* The index at which a fix holds its atom; -1: the axis has none such, and the element is +0. */
static i64 fixed_at(const Terms *t, const Fix *fix, const i64 *index)
{
    if (fix->at >= 0)
        return fix->at;
    int param = (int)~fix->at, token = t->op->op->params[param].atoms[0];
    i64 lo, hi, at;
    range_of(t, t->part, token, &lo, &hi);
    at = t->setup.indices[param][index[token] - lo];
    return at >= 0 && at < atom_size(t->contract, fix->atom, 0) ? at : -1;
}

static bool is_outside(const Terms *t, const DagNode *node, const i64 *index)
{
    for (int i = 0; i < node->n_fixes; i++)
        if (fixed_at(t, &node->fixes[i], index) < 0)
            return true;
    return false;
}

static u64 input_term(const Terms *t, const DagNode *node, const i64 *index)
{
    const Tensor *tensor = &t->op->op->params[node->param];
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    if (is_outside(t, node, index))
        return ptx_term_const(0);
    for (int i = 0; i < node->n_fixes; i++)
        own[node->fixes[i].atom] = fixed_at(t, &node->fixes[i], index);
    i64 at = flat(t, t->part, tensor->atoms, tensor->n_atoms, own);
    i64 line = t->setup.line[node->param], pitch = t->setup.pitch[node->param];
    return ptx_term_leaf(t->setup.first_param + (u64)node->param,
                         (u64)(at / line * pitch + at % line));
}

/* ---- functions --------------------------------------------------------------------------------
 */

static const char *const c_names[] = {
#define X(id, name, arity, function) #function,
#include "scalar.def"
#undef X
};

Str verify_terms_program(Arena *arena)
{
    Text text = {.arena = arena};
    text_printf(&text, "#include \"iso_fn.cuh\"\n");
#define X(id, name, arity, function)                                                               \
    if (arity == 1)                                                                                \
        text_printf(&text,                                                                         \
                    "extern \"C\" __global__ void ref_%s(const float *x, float *y)\n"              \
                    "{\n    *y = %s(*x);\n}\n",                                                    \
                    #function, #function);
#include "scalar.def"
#undef X
    return text_str(&text);
}

/* Runs the function's own PTX on the argument's term. */
static u64 run_function(Terms *t, FnId fn, u64 argument)
{
    _Alignas(16) float x = 1.0f, y = 0.0f;
    u64 in[2] = {argument, TERM_WHOLE}, out[2] = {0};
    PtxMemory memory = {.arena = t->arena};
    PtxRegion from = {.name = "x", .base = (u8 *)&x, .size = 4, .shadow = in};
    PtxRegion to = {.name = "y", .base = (u8 *)&y, .size = 4, .writable = true, .shadow = out};
    ptx_memory_add(&memory, &from);
    ptx_memory_add(&memory, &to);
    void *a = &x, *b = &y;
    const void *params[] = {&a, &b};
    Str name = str_format(t->arena, "ref_%s", c_names[fn]);
    PtxLaunch launch = {.kernel = ptx_find(t->setup.functions, name), .grid = {1, 1, 1},
                        .block = {1, 1, 1}, .params = params, .memory = &memory,
                        .numerics = t->setup.numerics, .terms = true};
    PtxReport report = {.arena = t->arena};
    return launch.kernel && ptx_run(&launch, &report) ? out[0] : TERM_POISON;
}

static u64 function_term(Terms *t, FnId fn, const u64 *args)
{
    if (fn == FN_SQRT)
        return ptx_term_f32(PTX_SQRT, args, 1);
    if (fn == FN_MINIMUM || fn == FN_MAXIMUM)
        return ptx_term_f32(fn == FN_MINIMUM ? PTX_MIN : PTX_MAX, args, 2);
    u64 key = scatter(args[0] ^ (u64)(fn + 1) << 56) | 1, term = recall(t, key);
    if (!term) {
        term = run_function(t, fn, args[0]);
        remember(t, key, term);
    }
    return term;
}

/* ---- expressions ------------------------------------------------------------------------------
 */

static u64 eval(Terms *t, const DagNode *node, const i64 *index);

static PtxType ptx_type(DType type)
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

static u64 as_f32(Terms *t, const DagNode *node, const i64 *index)
{
    if (node->kind == DAG_CONST)
        return ptx_term_const(f32_bits(node));
    if (node->kind == DAG_INPUT && is_outside(t, node, index))
        return ptx_term_const(0);
    u64 term = eval(t, node, index);
    return node->type == DT_F32 ? term : ptx_term_widen(ptx_type(node->type), term);
}

static u64 narrowed(DType type, u64 f32)
{
    return type == DT_F32 ? f32 : ptx_term_narrow(ptx_type(type), f32);
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
    for (int i = 0; i < node->n_args; i++)
        args[i] = as_f32(t, node->args[i], index);
    switch (node->kind) {
    case DAG_CAST: return narrowed(node->type, args[0]);
    case DAG_NEG: return narrowed(node->type, negated(args[0]));
    case DAG_FN: return narrowed(node->type, function_term(t, node->fn, args));
    default: return narrowed(node->type, ptx_term_f32(ops[node->kind], args, 2));
    }
}

/* ---- reductions -------------------------------------------------------------------------------
 */

static int reduce_number(const Terms *t, const DagNode *reduce)
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

/* Factors of one operand over the elements [lo, hi), for all others' indices alike. */
static const u64 *factors(Terms *t, const DagNode *reduce, const DagNode *operand, i64 lo, i64 hi,
                          const i64 *index)
{
    u64 mask = operand->mask;
    for (int i = 0; i < reduce->n_atoms; i++)
        mask &= ~((u64)1 << reduce->atoms[i]);
    u64 key = key_of(2 + (u64)lo, operand->number, mask, index), found = recall(t, key);
    if (found)
        return (const u64 *)(uintptr_t)found;
    u64 *out = arena_array(t->arena, u64, hi - lo);
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (i64 e = lo; e < hi; e++) {
        set_element(t, reduce, e, own);
        out[e - lo] = ptx_term_factor(eval(t, operand, own));
    }
    remember(t, key, (u64)(uintptr_t)out);
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

static u64 chain_leaf(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index)
{
    const DagNode *body = reduce->args[0];
    bool fused = node->leaf == TREE_CHAIN && body->kind == DAG_MUL && body->type == DT_F32;
    u64 acc = TERM_CONCRETE;
    i64 own[MAX_ATOMS];
    memcpy(own, index, sizeof own);
    for (int r = 0; r < node->n_runs; r++)
        for (i64 e = node->runs[r].start; e < node->runs[r].start + node->runs[r].len; e++) {
            set_element(t, reduce, e, own);
            u64 args[3] = {fused ? as_f32(t, body->args[0], own) : acc,
                           as_f32(t, fused ? body->args[1] : body, own), acc};
            if (!acc)
                acc = fused ? ptx_term_f32(PTX_MUL, args, 2) : args[1];
            else
                acc = fused ? ptx_term_f32(PTX_FMA, args, 3) : ptx_term_f32(PTX_ADD, args, 2);
        }
    return acc;
}

/* A node whose value some rank sent. */
static u64 given_term(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index)
{
    for (int i = 0; i < t->given.n; i++) {
        const Given *g = &t->given.v[i];
        for (int root = 0; g->reduce == reduce && root < g->forest.n; root++)
            if (g->forest.v[root] == node) {
                i64 at = terms_root_place(t, g->rank, reduce, root, index);
                return ptx_term_leaf(t->setup.first_roots + (u64)g->rank, (u64)at);
            }
    }
    return TERM_CONCRETE;
}

/* As f32: a value of a narrower type is its widening. */
static u64 tree_term(Terms *t, const DagNode *reduce, const TreeNode *node, const i64 *index)
{
    u64 given = given_term(t, reduce, node, index);
    if (given)
        return given;
    if (node->kind == NODE_LEAF)
        return node->leaf == TREE_MMA ? mma_leaf(t, reduce, node, index)
                                      : chain_leaf(t, reduce, node, index);
    u64 args[2] = {tree_term(t, reduce, node->left, index)};
    u64 value = args[0];
    if (node->kind == NODE_JOIN) {
        args[1] = tree_term(t, reduce, node->right, index);
        value = ptx_term_f32(PTX_ADD, args, 2);
    }
    return node->type == DT_F32
               ? value
               : ptx_term_widen(ptx_type(node->type), ptx_term_narrow(ptx_type(node->type), value));
}

static u64 reduce_term(Terms *t, const DagNode *reduce, const i64 *index)
{
    u64 key = key_of(1, reduce->number, reduce->mask, index), term = recall(t, key);
    if (term)
        return term;
    term = tree_term(t, reduce, t->tree[reduce_number(t, reduce)], index);
    remember(t, key, term);
    return term;
}

static u64 eval(Terms *t, const DagNode *node, const i64 *index)
{
    switch (node->kind) {
    case DAG_INPUT: return input_term(t, node, index);
    case DAG_CONST: return ptx_term_const(node->bits);
    case DAG_REDUCE: return reduce_term(t, node, index);
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
        if (here)
            return eval(t, piece->value, index);
    }
    return TERM_CONCRETE;
}

u64 terms_root(Terms *t, const DagNode *reduce, int root, const i64 *index)
{
    Forest forest = {0};
    const TreeNode *tree = t->tree[reduce_number(t, reduce)];
    if (!layout_forest(t->contract, reduce, tree, t->part, &forest, t->arena) || root >= forest.n)
        return TERM_CONCRETE;
    return tree_term(t, reduce, forest.v[root], index);
}

static i64 dim_size(const Terms *t, const Part *part, const PlanDim *dim)
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
    i64 columns = 0, column = -1, product = 0, rows = dim_size(t, part, &gemm->rows);
    int parts = 1;
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        parts = group->n_products > parts ? group->n_products : parts;
        for (int p = 0; p < group->n_products; p++)
            if (group->product[p].reduce == reduce) {
                product = p;
                column = columns + flat(t, part, group->cols.atoms, group->cols.n_atoms, index);
            }
        columns += dim_size(t, part, &group->cols);
    }
    i64 row = flat(t, part, gemm->rows.atoms, gemm->rows.n_atoms, index);
    return column < 0 ? -1 : ((root * parts + product) * rows + row) * columns + column;
}

i64 terms_root_place(Terms *t, int rank, const DagNode *reduce, int root, const i64 *index)
{
    const PlanOp *at = t->setup.at;
    const Part *part = &at->part_of_rank[rank];
    int kernel = at->variants[0].kernel_of_rank[rank];
    if (kernel < 0)
        return -1;
    const Kernel *k = t->setup.plan->kernels.v[kernel];
    if (k->family == FAMILY_GEMM)
        return gemm_place(t, part, &k->gemm, reduce, root, index);
    i64 row = 0, rows = 1;
    for (int d = 0; d < k->n_dims - 1; d++) {
        i64 size = dim_size(t, part, &k->dims[d]);
        row = row * size + flat(t, part, k->dims[d].atoms, k->dims[d].n_atoms, index);
        rows *= size;
    }
    return root * rows + row;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static Str refusal(const Terms *t)
{
    for (int i = 0; i < t->contract->n_axes; i++)
        for (int p = 0; t->contract->axes[i].coordinate_of >= 0 && p < t->op->op->n_params; p++)
            if (t->op->op->params[p].mask >> t->contract->axes[i].atom & 1)
                return STR("tensors indexed by position");
    for (int i = 0; i < t->op->nodes.n; i++)
        if (t->op->nodes.v[i]->kind > DAG_REDUCE)
            return STR("block forms");
    for (int i = 0; i < t->op->reduces.n; i++)
        if (t->op->reduces.v[i]->monoid != MONOID_SUM)
            return STR("reductions other than sums");
    return t->op->reduces.n > MAX_FORESTS ? STR("so many reductions") : STR("");
}

/* Free axes have no tree here: their length is a launch's. */
static void expand(Terms *t)
{
    for (int i = 0; i < t->op->reduces.n; i++) {
        const DagNode *reduce = t->op->reduces.v[i];
        t->tree[i] = tree_expand(t->arena, reduce->tree, reduce_extent(t->contract, reduce));
    }
}

static bool hear(Terms *t, const DagNode *reduce, int number)
{
    const PlanOp *at = t->setup.at;
    int *heard = arena_array(t->arena, int, at->at.ranks);
    int n = layout_sources(t->contract, &at->at, t->setup.rank, heard);
    for (int i = 0; i < n; i++) {
        Given given = {.reduce = reduce, .rank = heard[i]};
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
    expand(t);
    for (int i = 0; setup->joins && i < t->op->reduces.n; i++)
        if (layout_cuts(t->contract, &setup->at->at, t->op->reduces.v[i]) &&
            !hear(t, t->op->reduces.v[i], i)) {
            *why = STR("roots that do not make the tree");
            return NULL;
        }
    return t;
}
