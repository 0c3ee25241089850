/* From checked expressions to a hash-consed graph: locals substituted, indices pushed down to the
 * parameters, literals converted. */
#include "dag.h"

#include <string.h>

#include "dag_impl.h"
#include "base/literal.h"

typedef struct Builder {
    const Contract *contract;
    const Op *op;
    Arena *arena;
    AtomOrder order;
    VEC(DagNode *) nodes; /* in order of creation */
    int *table;           /* open addressing by id: index into nodes + 1 */
    int table_size;
    const DagNode **locals;
} Builder;

/* ---- hash-consing --------------------------------------------------------------------------- */

static int *table_slot(const Builder *b, const Digest *id)
{
    u32 h;
    memcpy(&h, id->byte, sizeof h);
    int at = (int)(h & (u32)(b->table_size - 1));
    while (b->table[at] && !digest_eq(&b->nodes.v[b->table[at] - 1]->id, id))
        at = (at + 1) & (b->table_size - 1);
    return &b->table[at];
}

static void table_grow(Builder *b)
{
    b->table_size = b->table_size ? b->table_size * 2 : 64;
    b->table = arena_array(b->arena, int, b->table_size);
    for (int i = 0; i < b->nodes.n; i++)
        *table_slot(b, &b->nodes.v[i]->id) = i + 1;
}

static const DagNode *intern(Builder *b, DagNode node)
{
    for (int i = 0; i < node.n_args && node.kind < DAG_ATTEND; i++)
        node.mask |= node.args[i]->mask;
    int n_summed = 0;
    const int *summed = node.kind == DAG_REDUCE ? dag_summed(&node, &n_summed) : NULL;
    for (int i = 0; i < n_summed; i++)
        node.mask &= ~((u64)1 << summed[i]);
    node.id = dag_node_id(&b->order, b->op, &node, b->arena);
    if (2 * b->nodes.n >= b->table_size)
        table_grow(b);
    int *slot = table_slot(b, &node.id);
    if (*slot)
        return b->nodes.v[*slot - 1];
    DagNode *copy = arena_new_of(b->arena, DagNode);
    *copy = node;
    copy->number = b->nodes.n;
    *slot = b->nodes.n + 1;
    vec_push(b->arena, &b->nodes, copy);
    return copy;
}

/* ---- indices -------------------------------------------------------------------------------- */

typedef VEC(Fix) Fixes;

static Str number_text(const Contract *contract, const Number *number)
{
    const Ast *ast = contract->ast;
    for (int i = 0; number->is_param && i < ast->params.n; i++)
        if (ast->params.v[i].has_value && str_eq(ast->params.v[i].name.text, number->text))
            return ast->params.v[i].value.text;
    return number->text;
}

static int axis_by_name(const Contract *contract, Str name)
{
    int i = 0;
    while (i < contract->n_axes && !str_eq(contract->axes[i].name.text, name))
        i++;
    return i;
}

/* A product axis is held by holding its factors, row-major. */
static void fix_axis(Builder *b, int axis, i64 at, Fixes *fixes)
{
    const Axis *a = &b->contract->axes[axis];
    if (a->atom >= 0) {
        vec_push(b->arena, fixes, ((Fix){a->atom, at}));
        return;
    }
    for (int i = a->n_factors - 1; i >= 0; i--) {
        i64 size = b->contract->axes[a->factors[i]].size;
        fix_axis(b, a->factors[i], at % size, fixes);
        at /= size;
    }
}

static i64 integer_of(Str text)
{
    i64 value = 0;
    for (int i = 0; i < text.n && text.s[i] >= '0' && text.s[i] <= '9'; i++)
        value = value * 10 + (text.s[i] - '0');
    return value;
}

static void sort_fixes(const AtomOrder *order, Fix *fixes, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && fix_compare(order, &fixes[j - 1], &fixes[j]) > 0; j--) {
            Fix swap = fixes[j];
            fixes[j] = fixes[j - 1];
            fixes[j - 1] = swap;
        }
}

static const DagNode *local_value(Builder *b, int local);

/* What sets a result: a local of its name. */
static const DagNode *result_value(Builder *b, i64 result)
{
    int i = 0;
    while (!str_eq(b->op->locals.v[i].name.text, b->op->results[result].name.text))
        i++;
    return local_value(b, i);
}

static void add_index_values(Builder *b, DagNode *node)
{
    node->n_args = 0;
    for (int i = 0; i < node->n_fixes; i++) {
        if (!fix_is_result(&node->fixes[i]))
            continue;
        const DagNode *value = result_value(b, ~node->fixes[i].at - FIX_RESULT);
        bool known = false;
        for (int k = 0; k < node->n_args; k++)
            known |= node->args[k] == value;
        if (!known)
            node->args[node->n_args++] = value;
    }
}

/* The node, whose atoms are its own and not its operands', with those of the fixes that it has an
 * atom for. */
static const DagNode *fix_node(Builder *b, const DagNode *whole, const Fixes *fixes)
{
    Fixes all = {0};
    for (int i = 0; i < whole->n_fixes; i++)
        vec_push(b->arena, &all, whole->fixes[i]);
    DagNode node = *whole;
    for (int i = 0; i < fixes->n; i++)
        if (whole->mask & (u64)1 << fixes->v[i].atom) {
            vec_push(b->arena, &all, fixes->v[i]);
            node.mask &= ~((u64)1 << fixes->v[i].atom);
            if (fixes->v[i].at < 0)
                node.mask |= fix_tensor(b->op, &fixes->v[i])->mask;
        }
    sort_fixes(&b->order, all.v, all.n);
    node.fixes = all.v;
    node.n_fixes = all.n;
    if (node.kind == DAG_INPUT)
        add_index_values(b, &node);
    return intern(b, node);
}

/* The value at the held indices: every node up to it is built again over held inputs. */
static const DagNode *fix_value(Builder *b, const DagNode *value, const Fixes *fixes)
{
    u64 held = 0;
    for (int i = 0; i < fixes->n; i++)
        held |= (u64)1 << fixes->v[i].atom;
    const DagNode **at = arena_array(b->arena, const DagNode *, value->number + 1);
    for (int i = 0; i <= value->number; i++) {
        DagNode node = *b->nodes.v[i];
        if (!(node.mask & held)) {
            at[i] = b->nodes.v[i];
        } else if (node.kind == DAG_INPUT || node.kind == DAG_ATTEND) {
            at[i] = fix_node(b, b->nodes.v[i], fixes);
        } else {
            node.mask = node.n_fixes ? fix_tensor(b->op, &node.fixes[0])->mask : 0;
            for (int j = 0; j < node.n_args; j++)
                node.args[j] = at[node.args[j]->number];
            at[i] = intern(b, node);
        }
    }
    return at[value->number];
}

/* ---- expressions ---------------------------------------------------------------------------- */

static const DagNode *build(Builder *b, const AstExpr *e);

/* In the type of what stands beside it, which check has found out. */
static const DagNode *constant(Builder *b, const AstExpr *e, Str text)
{
    DagNode node = {.kind = DAG_CONST, .type = (DType)e->type};
    literal_bits(text, node.type, &node.bits);
    return intern(b, node);
}

static const DagNode *local_value(Builder *b, int local)
{
    if (!b->locals[local])
        b->locals[local] = build(b, b->op->locals.v[local].value);
    return b->locals[local];
}

static bool is_index(const Tensor *tensor, Str name)
{
    return tensor->index_of > 0 && str_eq(tensor->name.text, name);
}

/* As Fix.at, where a tensor gives an index; else 0. */
static i64 index_tensor(const Op *op, const Number *at)
{
    for (int i = 0; at->is_param && i < op->n_params; i++)
        if (is_index(&op->params[i], at->text))
            return ~(i64)i;
    for (int i = 0; at->is_param && i < op->n_results; i++)
        if (is_index(&op->results[i], at->text))
            return ~(i64)(FIX_RESULT + i);
    return 0;
}

/* z[vocab = ids], of all such indices. */
static const DagNode *build_kept(Builder *b, const AstExpr *e, const DagNode *value)
{
    for (int i = 0; i < e->index.n; i++) {
        if (!e->index.v[i].kept)
            continue;
        int axis = axis_by_name(b->contract, e->index.v[i].axis.text);
        Fix *fix = arena_new_of(b->arena, Fix);
        *fix = (Fix){b->contract->axes[axis].atom, index_tensor(b->op, &e->index.v[i].at)};
        DagNode node = {.kind = DAG_ONLY, .type = DT_F32, .n_args = 1, .args = {value},
                        .n_fixes = 1, .fixes = fix, .mask = fix_tensor(b->op, fix)->mask};
        if (fix_is_result(fix))
            node.args[node.n_args++] = result_value(b, ~fix->at - FIX_RESULT);
        value = intern(b, node);
    }
    return value;
}

static const DagNode *build_name(Builder *b, const AstExpr *e)
{
    const DagNode *value;
    if (e->ref >= 0) {
        const Tensor *param = &b->op->params[e->ref];
        value = intern(b, (DagNode){.kind = DAG_INPUT, .type = param->type, .mask = param->mask,
                                    .param = e->ref});
    } else {
        value = local_value(b, ~e->ref);
    }
    Fixes fixes = {0};
    for (int i = 0; i < e->index.n; i++) {
        if (e->index.v[i].kept)
            continue;
        int axis = axis_by_name(b->contract, e->index.v[i].axis.text);
        i64 at = index_tensor(b->op, &e->index.v[i].at);
        fix_axis(b, axis,
                 at < 0 ? at : integer_of(number_text(b->contract, &e->index.v[i].at)), &fixes);
    }
    return build_kept(b, e, fixes.n ? fix_value(b, value, &fixes) : value);
}

static const DagNode *build_negation(Builder *b, const AstExpr *e)
{
    const DagNode *a = build(b, e->args.v[0]);
    if (a->kind != DAG_CONST)
        return intern(b, (DagNode){.kind = DAG_NEG, .type = a->type, .n_args = 1, .args = {a}});
    u32 sign = a->type == DT_F32 ? 0x80000000 : 0x8000;
    return intern(b, (DagNode){.kind = DAG_CONST, .type = a->type, .bits = a->bits ^ sign});
}

static const DagNode *build_binary(Builder *b, const AstExpr *e)
{
    const DagNode *left = build(b, e->args.v[0]), *right = build(b, e->args.v[1]);
    DagKind kind = e->op == '+' ? DAG_ADD : e->op == '-' ? DAG_SUB
                   : e->op == '*' ? DAG_MUL : DAG_DIV;
    return intern(b, (DagNode){.kind = kind, .type = left->type, .n_args = 2,
                               .args = {left, right}});
}

static bool dtype_by_name(Str name, DType *type)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (str_is(name, dtype_name((DType)t))) {
            *type = (DType)t;
            return true;
        }
    return false;
}

static const DagNode *build_call(Builder *b, const AstExpr *e)
{
    DType type;
    if (dtype_by_name(e->name.text, &type)) {
        const DagNode *a = build(b, e->args.v[0]);
        if (a->type == type)
            return a;
        return intern(b, (DagNode){.kind = DAG_CAST, .type = type, .n_args = 1, .args = {a}});
    }
    DagNode node = {.kind = DAG_FN, .type = DT_F32, .n_args = e->args.n, .fn = (FnId)e->ref};
    for (int i = 0; i < e->args.n; i++)
        node.args[i] = build(b, e->args.v[i]);
    return intern(b, node);
}

static const DagNode *build_length(Builder *b, const AstExpr *e)
{
    const Axis *axis = &b->contract->axes[axis_by_name(b->contract, e->name.text)];
    return constant(b, e, str_format(b->arena, "%lld", (long long)axis->size));
}

static void collect_atoms(const Contract *contract, Arena *arena, int axis, DagNode *node)
{
    const Axis *a = &contract->axes[axis];
    if (a->atom >= 0) {
        int *atoms = arena_array(arena, int, node->n_atoms + 1);
        if (node->n_atoms)
            memcpy(atoms, node->atoms, sizeof *atoms * (size_t)node->n_atoms);
        atoms[node->n_atoms++] = a->atom;
        node->atoms = atoms;
        return;
    }
    for (int i = 0; i < a->n_factors; i++)
        collect_atoms(contract, arena, a->factors[i], node);
}

/* sum(picks at experts chosen by T): over experts, with what says where slots stand. */
static void place_slots(Builder *b, const AstExpr *e, DagNode *node)
{
    const AstIndex *place = &e->index.v[0];
    Fix *fix = arena_new_of(b->arena, Fix);
    node->slots = node->atoms[0];
    node->n_atoms = 0;
    collect_atoms(b->contract, b->arena, axis_by_name(b->contract, place->axis.text), node);
    *fix = (Fix){node->atoms[0], index_tensor(b->op, &place->at)};
    node->n_fixes = 1;
    node->fixes = fix;
    node->mask = fix_tensor(b->op, fix)->mask;
    if (fix_is_result(fix))
        node->args[node->n_args++] = result_value(b, ~fix->at - FIX_RESULT);
}

static const DagNode *build_reduce(Builder *b, const AstExpr *e)
{
    DagNode node = {.kind = DAG_REDUCE, .n_args = e->args.n,
                    .tree = contract_tree(b->contract, e->tree, b->arena)};
    while (node.monoid < MONOID_COUNT && !str_is(e->name.text, monoid_name(node.monoid)))
        node.monoid++;
    for (int i = 0; i < e->args.n; i++)
        node.args[i] = build(b, e->args.v[i]);
    for (int i = 0; i < e->axes.n; i++)
        collect_atoms(b->contract, b->arena, axis_by_name(b->contract, e->axes.v[i].text), &node);
    if (e->index.n)
        place_slots(b, e, &node);
    node.type = tree_type(node.tree);
    return intern(b, node);
}

static const DagNode *build_attend(Builder *b, const AstExpr *e)
{
    const Attend *attend = e->block->attend;
    DagNode node = {.kind = DAG_ATTEND, .type = DT_F32, .n_args = e->args.n, .attend = attend,
                    .lse = e->part == 1, .mask = attend->rows};
    if (!node.lse)
        node.mask |= attend->values;
    for (int i = 0; i < e->args.n; i++)
        node.args[i] = build(b, e->args.v[i]);
    return intern(b, node);
}

static const DagNode *build_draw(Builder *b, const AstExpr *e)
{
    const Draw *draw = e->block->draw;
    return intern(b, (DagNode){.kind = DAG_DRAW, .type = DT_F32, .n_args = 1, .draw = draw,
                               .args = {build(b, e->args.v[0])},
                               .mask = (u64)1 << draw->tokens});
}

static const DagNode *build_top(Builder *b, const AstExpr *e)
{
    const Top *top = e->block->top;
    return intern(b, (DagNode){.kind = DAG_TOP, .type = DT_F32, .n_args = 1, .top = top,
                               .args = {build(b, e->args.v[0])},
                               .mask = (u64)1 << top->tokens | (u64)1 << top->picks});
}

static const DagNode *build_block(Builder *b, const AstExpr *e)
{
    return e->block->draw ? build_draw(b, e) : e->block->top ? build_top(b, e)
                                                            : build_attend(b, e);
}

static const DagNode *build(Builder *b, const AstExpr *e)
{
    switch (e->kind) {
    case EXPR_NAME: return build_name(b, e);
    case EXPR_NUMBER: return constant(b, e, number_text(b->contract, &e->number));
    case EXPR_NEG: return build_negation(b, e);
    case EXPR_BINARY: return build_binary(b, e);
    case EXPR_CALL: return build_call(b, e);
    case EXPR_LEN: return build_length(b, e);
    case EXPR_BLOCK: return build_block(b, e);
    default: return build_reduce(b, e);
    }
}

/* ---- ops ------------------------------------------------------------------------------------ */

static int piece_compare(const AtomOrder *order, const DagPiece *a, const DagPiece *b)
{
    if (a->result != b->result)
        return a->result < b->result ? -1 : 1;
    for (int i = 0; i < a->n_fixes && i < b->n_fixes; i++) {
        int c = fix_compare(order, &a->fixes[i], &b->fixes[i]);
        if (c)
            return c;
    }
    return a->n_fixes - b->n_fixes;
}

static void build_pieces(Builder *b, OpDag *out)
{
    for (int i = 0; i < b->op->pieces.n; i++) {
        const Piece *piece = &b->op->pieces.v[i];
        Fix *fixes = arena_array(b->arena, Fix, piece->n_fixes + 1);
        if (piece->n_fixes)
            memcpy(fixes, piece->fixes, sizeof *fixes * (size_t)piece->n_fixes);
        sort_fixes(&b->order, fixes, piece->n_fixes);
        vec_push(b->arena, &out->pieces, ((DagPiece){piece->result, piece->n_fixes, fixes,
                                                     build(b, piece->value)}));
        for (int j = i; j > 0; j--) {
            DagPiece *p = &out->pieces.v[j], swap = *p;
            if (piece_compare(&b->order, p - 1, p) <= 0)
                break;
            *p = p[-1];
            p[-1] = swap;
        }
    }
}

static void renumber(Builder *b, OpDag *out)
{
    int *number = arena_array(b->arena, int, b->nodes.n + 1);
    for (int i = 0; i < out->nodes.n; i++)
        number[out->nodes.v[i]->number] = i;
    for (int i = 0; i < b->nodes.n; i++)
        b->nodes.v[i]->number = number[i];
    for (int i = 0; i < out->nodes.n; i++)
        if (out->nodes.v[i]->kind == DAG_REDUCE)
            vec_push(b->arena, &out->reduces, out->nodes.v[i]);
}

/* Keeps what the pieces need, numbered depth first from them: the order of statements and what is
 * never used leave no trace. */
static void list_nodes(Builder *b, OpDag *out)
{
    enum { NEW, OPEN, DONE };
    u8 *state = arena_array(b->arena, u8, b->nodes.n + 1);
    VEC(DagNode *) stack = {0};
    for (int i = out->pieces.n - 1; i >= 0; i--)
        vec_push(b->arena, &stack, b->nodes.v[out->pieces.v[i].value->number]);
    while (stack.n) {
        DagNode *node = stack.v[stack.n - 1];
        u8 *s = &state[node->number];
        if (*s == NEW) {
            *s = OPEN;
            for (int i = node->n_args - 1; i >= 0; i--)
                if (state[node->args[i]->number] == NEW)
                    vec_push(b->arena, &stack, b->nodes.v[node->args[i]->number]);
            continue;
        }
        stack.n--;
        if (*s == OPEN)
            vec_push(b->arena, &out->nodes, node);
        *s = DONE;
    }
    renumber(b, out);
}

static void build_op(const Contract *contract, const Op *op, OpDag *out, Arena *arena)
{
    Builder b = {.contract = contract, .op = op, .arena = arena,
                 .locals = arena_array(arena, const DagNode *, op->locals.n + 1)};
    *out = (OpDag){.op = op};
    atom_order(contract, op, &b.order);
    for (int i = 0; i < op->locals.n; i++)
        local_value(&b, i);
    build_pieces(&b, out);
    list_nodes(&b, out);
}

bool dag_build(const Contract *contract, Dag *dag, Arena *arena, Diags *diags)
{
    (void)diags;
    *dag = (Dag){.contract = contract, .n_ops = contract->n_ops,
                 .ops = arena_array(arena, OpDag, contract->n_ops + 1)};
    for (int i = 0; i < contract->n_ops; i++) {
        build_op(contract, &contract->ops[i], &dag->ops[i], arena);
        dag_fingerprint_op(dag, &dag->ops[i], arena);
    }
    dag_fingerprint_all(dag, arena);
    return true;
}

const int *dag_summed(const DagNode *reduce, int *n)
{
    *n = reduce->n_fixes ? 1 : reduce->n_atoms;
    return reduce->n_fixes ? &reduce->slots : reduce->atoms;
}

const DagNode *dag_index_value(const DagNode *node, const Fix *fix)
{
    int k = node->kind == DAG_INPUT ? 0 : 1;
    if (!fix_is_result(fix))
        return NULL;
    for (int i = 0; i < node->n_fixes && node->fixes[i].at != fix->at; i++) {
        bool first = fix_is_result(&node->fixes[i]);
        for (int j = 0; j < i; j++)
            first &= node->fixes[j].at != node->fixes[i].at;
        k += first;
    }
    return node->args[k];
}

bool dag_has_short_form(const DagNode *cast)
{
    static const bool known[FN_COUNT] = {
#define X(id, form, function) [FN_##id] = true,
#include "base/short.def"
#undef X
    };
    const DagNode *fn = cast->args[0];
    return cast->kind == DAG_CAST && cast->type == DT_BF16 && fn->kind == DAG_FN &&
           known[fn->fn] && fn->args[0]->kind == DAG_CAST && fn->args[0]->args[0]->type == DT_BF16;
}
