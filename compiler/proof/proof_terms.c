/* Plans run as terms: leaves from the kernels' own tables, joins from their own programs. */
#include "proof_impl.h"

static Str none(void)
{
    return (Str){"", 0};
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Runs a program over given values; what is left on the stack is appended. */
static Str run_program(const Prover *prover, const JoinProgram *program, Monoid monoid,
                       const Terms *values, Terms *out)
{
    Terms stack = {0};
    int done = 0;
    if (program->n_roots != values->n)
        return str_format(prover->arena, "a program over %d values is given %d",
                          program->n_roots, values->n);
    for (int i = 0; i < values->n; i++) {
        vec_push(prover->arena, &stack, values->v[i]);
        for (int k = 0; k < program->n_ops[i]; k++, done++) {
            const JoinOp *op = &program->ops[done];
            if (stack.n < (op->kind == NODE_JOIN ? 2 : 1))
                return STR("a program takes more values than there are");
            Digest *top = &stack.v[stack.n - 1];
            if (op->kind == NODE_ROUND) {
                *top = term_round(op->type, top);
                continue;
            }
            top[-1] = term_join(monoid, op->type, &top[-1], top);
            stack.n--;
        }
    }
    for (int i = 0; i < stack.n; i++)
        vec_push(prover->arena, out, stack.v[i]);
    return none();
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static void gemm_leaves(const Prover *prover, const Gemm *gemm, const DagNode *reduce, i64 base,
                        Terms *out)
{
    for (int i = 0; i < gemm->n_leaves; i++) {
        Run run = {base + gemm->leaf_lo[i], gemm->leaf_hi[i] - gemm->leaf_lo[i]};
        Digest term = term_leaf(reduce, TREE_MMA, &run, 1);
        vec_push(prover->arena, out, term);
    }
}

static void row_leaf_terms(const Prover *prover, const RowTree *tree, const RowLeaves *leaves,
                           const DagNode *reduce, i64 base, Terms *out)
{
    for (int i = 0; i < leaves->n; i++) {
        Run *runs = arena_array(prover->arena, Run, leaves->n_runs[i]);
        for (int k = 0; k < leaves->n_runs[i]; k++)
            runs[k] = (Run){base + leaves->runs[i][k].start, leaves->runs[i][k].len};
        Digest term = term_leaf(reduce, tree->form, runs, leaves->n_runs[i]);
        vec_push(prover->arena, out, term);
    }
}

static bool same_operand(const Binding *binding, const DagNode *input)
{
    if (binding->result || binding->tensor != input->param ||
        binding->n_fixes != input->n_fixes)
        return false;
    for (int i = 0; i < input->n_fixes; i++)
        if (binding->fixes[i].atom != input->fixes[i].atom ||
            binding->fixes[i].at != input->fixes[i].at)
            return false;
    return true;
}

/* The kernel's product multiplies the operands of the reduce, paired by the reduce's own axes. */
static Str product_operands(const Prover *prover, const Kernel *kernel, const DagNode *reduce)
{
    const Gemm *gemm = &kernel->gemm;
    const DagNode *body = reduce->args[0];
    bool same_k = gemm->k.n_atoms == reduce->n_atoms;
    for (int i = 0; same_k && i < reduce->n_atoms; i++)
        same_k = gemm->k.atoms[i] == reduce->atoms[i];
    if (!same_k)
        return STR("a product runs over other axes than the sum");
    for (int g = 0; g < gemm->n_groups; g++)
        for (int p = 0; p < gemm->group[g].n_products; p++) {
            const GemmProduct *product = &gemm->group[g].product[p];
            if (product->reduce != reduce)
                continue;
            const Binding *a = &kernel->bindings[gemm->a], *b = &kernel->bindings[product->b];
            if ((same_operand(a, body->args[0]) && same_operand(b, body->args[1])) ||
                (same_operand(a, body->args[1]) && same_operand(b, body->args[0])))
                return none();
            return str_format(prover->arena, "product %d multiplies other operands", p);
        }
    return STR("no product of the kernel computes the sum");
}

static Str row_terms(const Prover *prover, const Kernel *kernel, const DagNode *reduce, i64 base,
                     Terms *out)
{
    const Fold *fold = &kernel->gemm.fold;
    bool folds = fold->n_reduces > 0;
    const DagNode **reduces = folds ? fold->reduces : kernel->row.reduces;
    const RowTree *trees = folds ? fold->trees : kernel->row.trees;
    for (int i = 0; i < (folds ? fold->n_reduces : kernel->row.n_reduces); i++) {
        RowLeaves leaves;
        Terms terms = {0};
        if (reduces[i] != reduce)
            continue;
        row_leaves(prover->arena, &trees[i], &leaves);
        row_leaf_terms(prover, &trees[i], &leaves, reduce, base, &terms);
        return run_program(prover, &leaves.program, reduce->monoid, &terms, out);
    }
    return STR("no sum of the kernel computes it");
}

/* Pushes what the kernel of a rank leaves of the op's reduce: its roots, or the whole value. */
static Str kernel_terms(const Prover *prover, const Kernel *kernel, const DagNode *reduce,
                        const Part *part, Terms *out)
{
    i64 lo, hi;
    if (!layout_range(prover->contract, reduce, part, &lo, &hi))
        return STR("the rank's elements are not one run of the tree's order");
    if (kernel->family == FAMILY_ROW || kernel->family == FAMILY_TOP)
        return row_terms(prover, kernel, reduce, lo, out);
    if (kernel->family != FAMILY_GEMM)
        return STR("the kernel has no sum");
    if (dag_folds(reduce))
        return row_terms(prover, kernel, reduce, lo, out);
    Terms leaves = {0};
    Str difference = product_operands(prover, kernel, reduce);
    if (difference.n)
        return difference;
    gemm_leaves(prover, &kernel->gemm, reduce, lo, &leaves);
    return run_program(prover, &kernel->gemm.program, reduce->monoid, &leaves, out);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static Str joined_term(const Prover *prover, const Variant *variant, const DagNode *reduce,
                       int rank, Terms *out)
{
    const PlanOp *op = prover->op;
    const Kernel *join = prover->plan->kernels.v[op->join_kernel];
    int n = join->join.n_sources;
    Terms roots = {0};
    for (int i = 0; i < n; i++) {
        int source = op->sources_of_rank[rank * n + i], before = roots.n;
        int kernel = variant->kernel_of_rank[source];
        Str difference = kernel < 0 ? none()
                                    : kernel_terms(prover, prover->plan->kernels.v[kernel],
                                                         reduce, &op->part_of_rank[source], &roots);
        if (difference.n)
            return difference;
        if (roots.n - before != join->join.roots_of_rank[i])
            return str_format(prover->arena, "rank %d sends %d roots where the join takes %d",
                              source, roots.n - before, join->join.roots_of_rank[i]);
    }
    return run_program(prover, &join->join.program, reduce->monoid, &roots, out);
}

Str proof_reduce_term(const Prover *prover, const Variant *variant, const DagNode *reduce,
                      int rank, Digest *out)
{
    Terms left = {0};
    const PlanOp *op = prover->op;
    int kernel = variant->kernel_of_rank[rank];
    Str difference;
    if (op->join_kernel >= 0 && layout_leaves_roots(prover->contract, &op->at, reduce))
        difference = joined_term(prover, variant, reduce, rank, &left);
    else if (kernel < 0)
        return STR("the rank runs no kernel");
    else
        difference = kernel_terms(prover, prover->plan->kernels.v[kernel], reduce,
                                        &op->part_of_rank[rank], &left);
    if (!difference.n && left.n != 1)
        return str_format(prover->arena, "%d values are left where one is needed", left.n);
    if (!difference.n)
        *out = left.v[0];
    return difference;
}

/* ---- expressions ----------------------------------------------------------------------------- */

enum { ATTEND_SINKS = 3 }; /* the argument; those before it are of the splits */

typedef struct Expression {
    const Prover *prover;
    const Kernel *kernel; /* NULL: as the contract has it */
    int group;            /* whose operands may be read; -1: any */
    const Terms *reduces;
    Digest *known;
    bool *is_known;
    Str difference;
} Expression;

static void add(Text *text, const void *data, size_t size)
{
    text_add(text, (Str){data, (int)size});
}

static int reduce_index(const OpDag *op, const DagNode *node)
{
    for (int i = 0; i < op->reduces.n; i++)
        if (op->reduces.v[i] == node)
            return i;
    return -1;
}

/* As Fix.at: what the kernel's binding is looked up by. */
static i64 looked_up_by(const Kernel *kernel, const Binding *binding)
{
    if (binding->lookup < 0)
        return 0;
    const Binding *by = &kernel->bindings[binding->lookup];
    return ~(i64)(by->tensor + (by->result ? FIX_RESULT : 0));
}

static void add_input(Expression *e, const DagNode *node, Text *text)
{
    const Binding *found = NULL;
    for (int i = 0; e->kernel && i < e->kernel->n_bindings && !found; i++)
        if (same_operand(&e->kernel->bindings[i], node) &&
            (e->group < 0 || e->kernel->bindings[i].group == e->group))
            found = &e->kernel->bindings[i];
    if (e->kernel && !found)
        e->difference = str_format(e->prover->arena, "operand %.*s is not bound",
                                   STR_FMT(e->prover->op->op->op->params[node->param].name.text));
    text_printf(text, "in %d", found ? found->tensor : node->param);
    for (int i = 0; i < node->n_fixes; i++) {
        i64 at = node->fixes[i].at;
        if (found && at < 0)
            at = looked_up_by(e->kernel, found);
        text_printf(text, " %d %lld", node->fixes[i].atom, (long long)at);
    }
}

static void add_kept(Expression *e, const DagNode *node, Text *text)
{
    int param = (int)~node->fixes[0].at, found = -1;
    for (int i = 0; e->kernel && i < e->kernel->n_bindings; i++) {
        const Binding *b = &e->kernel->bindings[i];
        if (b->lookup == i && b->tensor == param && binding_looked_up(b) == node->fixes[0].atom)
            found = i;
    }
    if (e->kernel && found < 0)
        e->difference = STR("what is kept is not bound");
    text_printf(text, " only %d %d", node->fixes[0].atom, param);
}

/* Blocks, splits, masks and scales: the node's own, or those that the kernel's text is made from.
 * Its lanes, parts and steps are the clause's by the accumulator's layout, for blocks of 128. */
static void add_numbers(const Attend *a, Text *text)
{
    dag_print_attend(a, text);
    for (int i = 0; i < a->n_over; i++)
        text_printf(text, " %d", a->over[i]);
    text_printf(text, " %llx %llx %llx", (unsigned long long)a->batch,
                (unsigned long long)a->rows, (unsigned long long)a->values);
}

/* Of a join of splits the kernel that leaves their roots; NULL: it is none. */
static const Kernel *attend_parts(const Expression *e)
{
    const PlanOp *op = e->prover->op;
    if (!e->kernel || e->kernel->family != FAMILY_ATTEND ||
        e->kernel->attend.choice != ATTEND_JOIN)
        return NULL;
    return e->prover->plan->kernels.v[op->variants[0].kernel_of_rank[0]];
}

static void check_parts(Expression *e, const Attend *joined)
{
    Text parts = {.arena = e->prover->arena}, join = {.arena = e->prover->arena};
    if (!attend_parts(e))
        return;
    add_numbers(&attend_parts(e)->attend.computes, &parts);
    add_numbers(joined, &join);
    if (!str_eq(text_str(&parts), text_str(&join)))
        e->difference = STR("the roots that are joined are of another attention");
}

static void add_attend(Expression *e, const DagNode *node, Text *text)
{
    const Attend *a = node->attend;
    if (e->kernel && e->kernel->family != FAMILY_ATTEND)
        e->difference = STR("the kernel has no attention");
    else if (e->kernel)
        a = &e->kernel->attend.computes;
    check_parts(e, a);
    add_numbers(a, text);
    text_printf(text, " %d", node->lse);
}

/* The limits that the kernel's text is made from, and the parameters that it binds for each row. */
static void add_draw(Expression *e, const DagNode *node, Text *text)
{
    Draw draw = *node->draw;
    if (e->kernel && e->kernel->family != FAMILY_DRAW) {
        e->difference = STR("the kernel draws nothing");
        return;
    }
    for (int i = 0; i < DRAW_PARAMS; i++) {
        int param = draw_param(&draw, i);
        if (e->kernel && e->kernel->draw.param[i] >= 0)
            param = e->kernel->bindings[e->kernel->draw.param[i]].tensor;
        text_printf(text, " %d", param);
    }
    if (e->kernel)
        draw = e->kernel->draw.computes;
    text_printf(text, " %d %d", draw.tokens, draw.atom);
    dag_print_draw(NULL, &draw, text);
}

/* Groups, sums and order: the node's own, or those that the kernel's text is made from. */
static void add_top(Expression *e, const DagNode *node, Text *text)
{
    const Top *top = node->top;
    if (e->kernel && (e->kernel->family != FAMILY_TOP || e->kernel->top.node != node))
        e->difference = STR("the kernel ranks nothing");
    else if (e->kernel)
        top = &e->kernel->top.computes;
    text_printf(text, " %d %d %d", top->tokens, top->atom, top->picks);
    dag_print_top(top, text);
}

static Digest expression_term(Expression *e, const DagNode *node)
{
    const OpDag *op = e->prover->op->op;
    int reduce = reduce_index(op, node);
    Text text = {.arena = e->prover->arena};
    if (reduce >= 0)
        return e->reduces->v[reduce];
    if (e->is_known[node->number])
        return e->known[node->number];
    text_printf(&text, "%d %d %d %u ", (int)node->kind, (int)node->type, (int)node->fn,
                node->bits);
    if (node->kind == DAG_INPUT)
        add_input(e, node, &text);
    if (node->kind == DAG_ONLY)
        add_kept(e, node, &text);
    if (node->kind == DAG_ATTEND)
        add_attend(e, node, &text);
    if (node->kind == DAG_DRAW)
        add_draw(e, node, &text);
    if (node->kind == DAG_TOP)
        add_top(e, node, &text);
    const Kernel *own = e->kernel, *parts = node->kind == DAG_ATTEND ? attend_parts(e) : NULL;
    for (int i = 0; i < node->n_args; i++) {
        e->kernel = parts && i < ATTEND_SINKS ? parts : own;
        Digest arg = expression_term(e, node->args[i]);
        add(&text, arg.byte, sizeof arg.byte);
    }
    e->kernel = own;
    e->is_known[node->number] = true;
    return e->known[node->number] = sha256(text.s, (size_t)text.n);
}

static int group_of(const Kernel *kernel, const DagPiece *piece)
{
    bool products = kernel && (kernel->family == FAMILY_GEMM ||
                               (kernel->family == FAMILY_JOIN && kernel->join.of == FAMILY_GEMM));
    for (int g = 0; products && g < kernel->gemm.n_groups; g++)
        for (int i = 0; i < kernel->gemm.group[g].n_pieces; i++)
            if (kernel->gemm.group[g].pieces[i] == piece)
                return g;
    return -1;
}

Str proof_piece_term(const Prover *prover, const DagPiece *piece, const Kernel *kernel,
                     const Terms *reduces, Digest *out)
{
    int n = piece->value->number + 1;
    Expression e = {prover, kernel, group_of(kernel, piece), reduces,
                    arena_array(prover->arena, Digest, n), arena_array(prover->arena, bool, n),
                    none()};
    Digest value = expression_term(&e, piece->value);
    Text text = {.arena = prover->arena};
    text_printf(&text, "piece %d", piece->result);
    for (int i = 0; i < piece->n_fixes; i++)
        text_printf(&text, " %d %lld", piece->fixes[i].atom, (long long)piece->fixes[i].at);
    add(&text, value.byte, sizeof value.byte);
    *out = sha256(text.s, (size_t)text.n);
    return e.difference;
}
