/* Plans as text: for people, and as the identity of a kernel's specification. */
#include "plan_impl.h"

enum { BRIEF = 8 }; /* list members that people are shown */

typedef struct Printer {
    const Contract *contract;
    const Kernel *kernel;
    bool brief;
    Text *out;
} Printer;

static Str atom_text(const Printer *p, int atom)
{
    return p->contract->axes[p->contract->atom_axis[atom]].name.text;
}

static void print_dim(const Printer *p, const PlanDim *dim)
{
    for (int i = 0; i < dim->n_atoms; i++)
        text_printf(p->out, "%s%.*s", i ? "*" : "", STR_FMT(atom_text(p, dim->atoms[i])));
}

static void print_binding(const Printer *p, const Binding *b)
{
    const Op *op = p->kernel->op->op;
    const Tensor *tensor = b->result ? &op->results[b->tensor] : &op->params[b->tensor];
    text_printf(p->out, " %s%.*s", b->result ? "->" : "", STR_FMT(tensor->name.text));
    for (int i = 0; i < b->n_fixes; i++) {
        text_printf(p->out, "[%.*s ", STR_FMT(atom_text(p, b->fixes[i].atom)));
        if (b->fixes[i].at < 0)
            text_add(p->out, fix_tensor(op, &b->fixes[i])->name.text);
        else
            text_printf(p->out, "%lld", (long long)b->fixes[i].at);
        text_printf(p->out, "]");
    }
    text_printf(p->out, ".%d.", b->group);
    for (int d = 0; d < b->n_dims; d++)
        text_printf(p->out, "%c", b->has[d] ? '1' : '0');
    if (b->coordinate >= 0)
        text_printf(p->out, "@%.*s", STR_FMT(p->contract->axes[b->coordinate].name.text));
}

static void print_bindings(const Printer *p)
{
    text_printf(p->out, "  operands");
    for (int i = 0; i < p->kernel->n_bindings; i++)
        print_binding(p, &p->kernel->bindings[i]);
    text_printf(p->out, "\n");
}

static void print_program(const Printer *p, const JoinProgram *program)
{
    const JoinOp *op = program->ops;
    text_printf(p->out, "  program %d:", program->n_roots);
    for (int i = 0; i < program->n_roots; i++) {
        if (p->brief && i == BRIEF) {
            text_printf(p->out, " ...");
            break;
        }
        text_printf(p->out, " %d", i);
        for (int k = 0; k < program->n_ops[i]; k++, op++)
            text_printf(p->out, "%s%s", op->kind == NODE_JOIN ? "+" : "~",
                        op->type == DT_F32 ? "" : dtype_name(op->type));
    }
    text_printf(p->out, " depth %d\n", program->depth);
}

static int piece_index(const OpDag *op, const DagPiece *piece)
{
    return (int)(piece - op->pieces.v);
}

static void print_pieces(const Printer *p, const DagPiece *const *pieces, int n)
{
    text_printf(p->out, " writes");
    for (int i = 0; i < n; i++)
        text_printf(p->out, " %d", piece_index(p->kernel->op, pieces[i]));
}

/* ---- families -------------------------------------------------------------------------------- */

static void print_groups(const Printer *p)
{
    const Gemm *gemm = &p->kernel->gemm;
    text_printf(p->out, "  rows ");
    print_dim(p, &gemm->rows);
    text_printf(p->out, " k ");
    print_dim(p, &gemm->k);
    if (gemm->grouped)
        text_printf(p->out, " chosen %d", gemm->chosen);
    text_printf(p->out, "\n");
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        text_printf(p->out, "  cols ");
        print_dim(p, &group->cols);
        for (int i = 0; i < group->n_products; i++)
            text_printf(p->out, " product %d b %d%s", group->product[i].reduce->number,
                        group->product[i].b, group->product[i].b_k_inner ? "" : " transposed");
        print_pieces(p, group->pieces, group->n_pieces);
        text_printf(p->out, "\n");
    }
}

static void print_row_tree(const Printer *p, const DagNode *reduce, const RowTree *tree)
{
    text_printf(p->out, "  %s %d: %s, lanes %d by %lld %s %s, parts %d:",
                monoid_name(reduce->monoid), reduce->number,
                tree->form == TREE_CHAIN ? "chain" : "chain add", tree->lanes,
                (long long)tree->run, tree->lane_join == JOIN_LEFT ? "left" : "pairwise",
                dtype_name(tree->lane_type), tree->n_parts);
    for (int i = 0; i < tree->n_parts && !(p->brief && i == BRIEF); i++)
        text_printf(p->out, " %lld+%lld", (long long)tree->parts[i].start,
                    (long long)tree->parts[i].len);
    text_printf(p->out, "\n");
    print_program(p, &tree->program);
}

static void print_gemm(const Printer *p)
{
    const Gemm *gemm = &p->kernel->gemm;
    print_groups(p);
    text_printf(p->out, "  a %d%s; %s %d x %d x %d, %d stages, cluster %d, leaves %s",
                gemm->a,
                gemm->a_k_inner ? "" : " transposed",
                gemm->kernel == KERNEL_WGMMA ? "wgmma" : "stream", gemm->tile_m, gemm->tile_n,
                gemm->tile_k, gemm->stages, gemm->cluster,
                gemm->leaves == LEAVES_ACROSS_CTAS ? "across ctas" : "in registers");
    text_printf(p->out, ", fused %d, waiting %d near %d far%s\n", gemm->fused, gemm->near,
                gemm->far, gemm->roots_out ? ", roots out" : "");
    text_printf(p->out, "  leaves %d:", gemm->n_leaves);
    for (int i = 0; i < gemm->n_leaves && !(p->brief && i == BRIEF); i++)
        text_printf(p->out, " [%lld,%lld)", (long long)gemm->leaf_lo[i],
                    (long long)gemm->leaf_hi[i]);
    text_printf(p->out, "; roots %d:", gemm->n_roots);
    for (int i = 0; i < gemm->n_roots; i++)
        text_printf(p->out, " %d", gemm->root_leaves[i]);
    text_printf(p->out, "\n");
    print_program(p, &gemm->program);
    for (int i = 0; i < gemm->fold.n_reduces; i++)
        print_row_tree(p, gemm->fold.reduces[i], &gemm->fold.trees[i]);
}

static void print_dims(const Printer *p)
{
    text_printf(p->out, "  dims");
    for (int d = 0; d < p->kernel->n_dims; d++) {
        text_printf(p->out, " ");
        print_dim(p, &p->kernel->dims[d]);
    }
    print_pieces(p, p->kernel->pieces, p->kernel->n_pieces);
    text_printf(p->out, "\n");
}

static void print_row(const Printer *p)
{
    const Row *row = &p->kernel->row;
    print_dims(p);
    text_printf(p->out, "  threads %d%s roots %d%s", row->threads,
                row->columns ? " of columns" : "", row->n_roots, row->roots_out ? " out" : "");
    if (row->spread)
        text_printf(p->out, ", parts spread over threads of %d", row->cluster);
    text_printf(p->out, "\n");
    for (int i = 0; i < row->n_reduces; i++)
        print_row_tree(p, row->reduces[i], &row->trees[i]);
}

static void print_join(const Printer *p)
{
    const Join *join = &p->kernel->join;
    if (join->of == FAMILY_GEMM)
        print_groups(p);
    else
        print_dims(p);
    text_printf(p->out, "  roots of sources");
    for (int i = 0; i < join->n_sources; i++)
        text_printf(p->out, " %d", join->roots_of_rank[i]);
    if (join->folds)
        text_printf(p->out, ", of %d reductions, %d spans of %d", join->n_reduces, join->spans,
                    join->of_span);
    text_printf(p->out, "\n");
    print_program(p, &join->program);
}

static void print_attend(const Printer *p)
{
    const AttendKernel *k = &p->kernel->attend;
    print_dims(p);
    text_printf(p->out, "  ");
    dag_print_attend(&k->computes, p->out);
    text_printf(p->out, "\n  operands %d %d %d %d results %d %d; depth %lld width %lld\n",
                k->queries, k->keys, k->values, k->sinks, k->value, k->lse, (long long)k->depth,
                (long long)k->width);
    text_printf(p->out, "  %s: rows %d, ahead %d, resident %d\n", attend_choice_name(k->choice),
                16 * k->row_tiles, k->ahead, k->resident);
    if (k->choice == ATTEND_JOIN)
        text_printf(p->out, "  roots of %d sources\n", p->kernel->join.n_sources);
}

static const char *family_text(Family family)
{
    static const char *const names[] = {"map", "row", "gemm", "join", "attend", "draw",
                                        "top"};
    return names[family];
}

void plan_print_kernel(const Dag *dag, const Kernel *kernel, bool brief, Text *out)
{
    Printer p = {dag->contract, kernel, brief, out};
    text_printf(out, "%s of %.*s\n", family_text(kernel->family), STR_FMT(kernel->op->op->name));
    switch (kernel->family) {
    case FAMILY_MAP:
        print_dims(&p);
        break;
    case FAMILY_ROW:
        print_row(&p);
        break;
    case FAMILY_GEMM:
        print_gemm(&p);
        break;
    case FAMILY_JOIN:
        print_join(&p);
        break;
    case FAMILY_ATTEND:
        print_attend(&p);
        break;
    case FAMILY_DRAW:
        print_dims(&p);
        text_printf(out, "  draw over %.*s", STR_FMT(atom_text(&p, kernel->draw.computes.atom)));
        dag_print_draw(kernel->op->op, &kernel->draw.computes, out);
        text_printf(out, "\n");
        break;
    case FAMILY_ORDER:
        break;
    case FAMILY_TOP:
        print_row(&p);
        text_printf(out, "  top over %.*s", STR_FMT(atom_text(&p, kernel->top.computes.atom)));
        dag_print_top(&kernel->top.computes, out);
        text_printf(out, "\n");
        break;
    }
    if (kernel->own)
        text_printf(out, "  writes what stands here by operand %d\n", kernel->own - 1);
    print_bindings(&p);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void print_cuts(const Contract *contract, const OpLayout *at, Text *out)
{
    bool any = false;
    for (int m = 0; m < at->n_meshes; m++) {
        if (at->cut.axis[m] < 0 || at->degree[m] == 1)
            continue;
        text_printf(out, "%s %.*s %d cuts %.*s%s", any ? "," : "",
                    STR_FMT(at->mesh[m]->name.text), at->degree[m],
                    STR_FMT(contract->axes[at->cut.axis[m]].name.text),
                    at->cuts_reduced[m] ? " (summed)" : "");
        any = true;
    }
    if (!any)
        text_printf(out, at->ranks > 1 ? " replicated" : " whole");
}

static void print_moves(const Op *op, const OpLayout *at, Text *out)
{
    for (int i = 0; i < op->n_params; i++)
        if (at->param_move[i] != MOVE_NONE)
            text_printf(out, "; %.*s: %s", STR_FMT(op->params[i].name.text),
                        move_name(at->param_move[i]));
    for (int i = 0; i < op->n_results; i++)
        if (at->result_move[i] != MOVE_NONE)
            text_printf(out, "; %.*s: %s", STR_FMT(op->results[i].name.text),
                        move_name(at->result_move[i]));
}

static void print_variant(const Variant *variant, int ranks, Text *out)
{
    text_printf(out, "    rows %lld", (long long)variant->rows_min);
    if (variant->rows_max < ROWS_MAX)
        text_printf(out, " to %lld", (long long)variant->rows_max);
    else
        text_printf(out, " and more");
    text_printf(out, " (%s): kernel", variant->schedule);
    for (int r = 0; r < ranks; r++)
        if (r == 0 || variant->kernel_of_rank[r] != variant->kernel_of_rank[r - 1])
            text_printf(out, " %d", variant->kernel_of_rank[r]);
    text_printf(out, "\n");
}

static void print_op(const Contract *contract, const PlanOp *op, Text *out)
{
    text_printf(out, "  %.*s:", STR_FMT(op->op->op->name));
    print_cuts(contract, &op->at, out);
    print_moves(op->op->op, &op->at, out);
    text_printf(out, "\n");
    for (int i = 0; i < op->n_variants; i++)
        print_variant(&op->variants[i], op->at.ranks, out);
    if (op->join_kernel >= 0)
        text_printf(out, "    join: kernel %d\n", op->join_kernel);
}

void plan_print(const Plan *plan, Text *out)
{
    const Layout *last = NULL;
    for (int i = 0; i < plan->ops.n; i++) {
        const PlanOp *op = &plan->ops.v[i];
        if (i == 0 || op->at.layout != last)
            text_printf(out, "layout %.*s, %d rank%s\n",
                        op->at.layout ? op->at.layout->name.text.n : 6,
                        op->at.layout ? op->at.layout->name.text.s : "(none)", op->at.ranks,
                        op->at.ranks == 1 ? "" : "s");
        last = op->at.layout;
        print_op(plan->dag->contract, op, out);
    }
    for (int i = 0; i < plan->kernels.n; i++) {
        text_printf(out, "kernel %d: ", i);
        plan_print_kernel(plan->dag, plan->kernels.v[i], true, out);
    }
}
