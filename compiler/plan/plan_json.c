/* The plan as JSON, for evaluators that share no code with the compiler. Format 1 is described in
 * tests/planeval/README.md; keys stand in a fixed order, so equal plans give equal bytes. */
#include "plan_impl.h"

typedef struct Json {
    const Plan *plan;
    const Contract *contract;
    Arena *arena;
    Text *out;
} Json;

static void json_text(const Json *j, const char *key, Str text)
{
    text_printf(j->out, "\"%s\": \"%.*s\"", key, STR_FMT(text));
}

static void json_separate(const Json *j, int i)
{
    text_printf(j->out, "%s", i ? ", " : "");
}

static void json_ints(const Json *j, const int *v, int n)
{
    text_printf(j->out, "[");
    for (int i = 0; i < n; i++)
        text_printf(j->out, "%s%d", i ? ", " : "", v[i]);
    text_printf(j->out, "]");
}

static void json_mask(const Json *j, u64 mask)
{
    int first = 1;
    text_printf(j->out, "[");
    for (int a = 0; a < MAX_ATOMS; a++)
        if (mask >> a & 1) {
            text_printf(j->out, "%s%d", first ? "" : ", ", a);
            first = 0;
        }
    text_printf(j->out, "]");
}

static void json_fixes(const Json *j, const Fix *fixes, int n)
{
    text_printf(j->out, "[");
    for (int i = 0; i < n; i++)
        text_printf(j->out, "%s[%d, %lld]", i ? ", " : "", fixes[i].atom, (long long)fixes[i].at);
    text_printf(j->out, "]");
}

static const char *json_bool(bool value)
{
    return value ? "true" : "false";
}

/* ---- contract -------------------------------------------------------------------------------- */

static void json_atoms(const Json *j)
{
    text_printf(j->out, "\"atoms\": [");
    for (int a = 0; a < j->contract->n_atoms; a++) {
        const Axis *axis = &j->contract->axes[j->contract->atom_axis[a]];
        json_separate(j, a);
        text_printf(j->out, "{");
        json_text(j, "name", axis->name.text);
        if (axis->coordinate_of >= 0)
            text_printf(j->out, ", \"coordinate_of\": %d}",
                        j->contract->axes[axis->coordinate_of].atom);
        else if (axis->sparse_of)
            text_printf(j->out, ", \"size\": %lld, \"slots_of\": %d}", (long long)axis->size,
                        j->contract->axes[axis->sparse_of - 1].atom);
        else
            text_printf(j->out, ", \"size\": %lld}", (long long)axis->size);
    }
    text_printf(j->out, "]");
}

static void json_axis_atoms(const Json *j, int axis, int *first)
{
    const Axis *own = &j->contract->axes[axis];
    if (own->atom >= 0) {
        text_printf(j->out, "%s%d", *first ? "" : ", ", own->atom);
        *first = 0;
        return;
    }
    for (int i = 0; i < own->n_factors; i++)
        json_axis_atoms(j, own->factors[i], first);
}

static void json_tensors(const Json *j, const char *key, const Tensor *tensors, int n)
{
    text_printf(j->out, "\"%s\": [", key);
    for (int i = 0; i < n; i++) {
        json_separate(j, i);
        text_printf(j->out, "{");
        json_text(j, "name", tensors[i].name.text);
        text_printf(j->out, ", \"type\": \"%s\", \"axes\": [",
                    tensors[i].index_of ? "i32" : dtype_name(tensors[i].type));
        for (int k = 0; k < tensors[i].n_axes; k++) {
            int first = 1;
            text_printf(j->out, "%s[", k ? ", " : "");
            json_axis_atoms(j, tensors[i].axes[k], &first);
            text_printf(j->out, "]");
        }
        text_printf(j->out, "]}");
    }
    text_printf(j->out, "]");
}

/* ---- expressions ----------------------------------------------------------------------------- */

static const char *fn_text(FnId fn)
{
    static const char *const names[] = {
#define X(id, name, arity, function) name,
#include "base/scalar.def"
#undef X
    };
    return names[fn];
}

static int node_index(const OpDag *op, const DagNode *node)
{
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i] == node)
            return i;
    return -1;
}

static void json_reduce(const Json *j, const DagNode *node)
{
    Text tree = {.arena = j->arena};
    tree_print(node->tree, &tree);
    text_printf(j->out, ", \"monoid\": \"%s\", \"over\": ", monoid_name(node->monoid));
    json_ints(j, node->atoms, node->n_atoms);
    if (node->n_fixes) {
        text_printf(j->out, ", \"slots\": %d, \"fixes\": ", node->slots);
        json_fixes(j, node->fixes, node->n_fixes);
    }
    text_printf(j->out, ", ");
    json_text(j, "tree", text_str(&tree));
}

static void json_attend(const Json *j, const DagNode *node)
{
    Text settings = {.arena = j->arena};
    dag_print_attend(node->attend, &settings);
    text_printf(j->out, ", \"lse\": %s, \"over\": ", node->lse ? "true" : "false");
    json_ints(j, node->attend->over, node->attend->n_over);
    text_printf(j->out, ", \"fixes\": ");
    json_fixes(j, node->fixes, node->n_fixes);
    text_printf(j->out, ", ");
    json_text(j, "settings", text_str(&settings));
}

static void json_top(const Json *j, const Top *top)
{
    text_printf(j->out, ", \"over\": [%d], \"slots\": %d, \"groups\": %lld, \"keep\": %lld, "
                "\"group_sum\": %lld, \"by_index\": %s", top->atom, top->picks,
                (long long)top->groups, (long long)top->keep, (long long)top->group_sum,
                json_bool(top->by_index));
}

static void json_node(const Json *j, const OpDag *op, const DagNode *node)
{
    text_printf(j->out, "{\"kind\": \"%s\", \"type\": \"%s\", \"atoms\": ",
                dag_kind_name(node->kind), dtype_name(node->type));
    json_mask(j, node->mask);
    if (node->kind == DAG_INPUT) {
        text_printf(j->out, ", \"param\": %d, \"fixes\": ", node->param);
        json_fixes(j, node->fixes, node->n_fixes);
    } else if (node->kind == DAG_CONST) {
        text_printf(j->out, ", \"bits\": %u", node->bits);
    } else {
        if (node->kind == DAG_FN)
            text_printf(j->out, ", \"fn\": \"%s\"", fn_text(node->fn));
        if (node->kind == DAG_ONLY) {
            text_printf(j->out, ", \"fixes\": ");
            json_fixes(j, node->fixes, node->n_fixes);
        }
        if (node->kind == DAG_REDUCE)
            json_reduce(j, node);
        if (node->kind == DAG_ATTEND)
            json_attend(j, node);
        if (node->kind == DAG_DRAW) {
            Text settings = {.arena = j->arena};
            dag_print_draw(NULL, node->draw, &settings);
            text_printf(j->out, ", \"over\": ");
            json_ints(j, &node->draw->atom, 1);
            text_printf(j->out, ", ");
            json_text(j, "settings", text_str(&settings));
        }
        if (node->kind == DAG_TOP)
            json_top(j, node->top);
    }
    if (node->n_args) {
        text_printf(j->out, ", \"args\": [");
        for (int i = 0; i < node->n_args; i++)
            text_printf(j->out, "%s%d", i ? ", " : "", node_index(op, node->args[i]));
        text_printf(j->out, "]");
    }
    text_printf(j->out, "}");
}

static void json_op(const Json *j, const OpDag *op)
{
    text_printf(j->out, "{");
    json_text(j, "name", op->op->name);
    text_printf(j->out, ",\n  ");
    json_tensors(j, "params", op->op->params, op->op->n_params);
    text_printf(j->out, ",\n  ");
    json_tensors(j, "results", op->op->results, op->op->n_results);
    text_printf(j->out, ",\n  \"nodes\": [");
    for (int i = 0; i < op->nodes.n; i++) {
        text_printf(j->out, "%s\n    ", i ? "," : "");
        json_node(j, op, op->nodes.v[i]);
    }
    text_printf(j->out, "],\n  \"pieces\": [");
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        json_separate(j, i);
        text_printf(j->out, "{\"result\": %d, \"fixes\": ", piece->result);
        json_fixes(j, piece->fixes, piece->n_fixes);
        text_printf(j->out, ", \"value\": %d}", node_index(op, piece->value));
    }
    text_printf(j->out, "],\n  \"reduces\": [");
    for (int i = 0; i < op->reduces.n; i++)
        text_printf(j->out, "%s%d", i ? ", " : "", node_index(op, op->reduces.v[i]));
    text_printf(j->out, "]}");
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void json_program(const Json *j, const JoinProgram *program)
{
    const JoinOp *op = program->ops;
    text_printf(j->out, "{\"n_roots\": %d, \"ops\": [", program->n_roots);
    for (int i = 0; i < program->n_roots; i++) {
        text_printf(j->out, "%s[", i ? ", " : "");
        for (int k = 0; k < program->n_ops[i]; k++, op++)
            text_printf(j->out, "%s\"%s %s\"", k ? ", " : "",
                        op->kind == NODE_JOIN ? "join" : "round", dtype_name(op->type));
        text_printf(j->out, "]");
    }
    text_printf(j->out, "]}");
}

static void json_bindings(const Json *j, const Kernel *kernel)
{
    text_printf(j->out, ",\n  \"bindings\": [");
    for (int i = 0; i < kernel->n_bindings; i++) {
        const Binding *b = &kernel->bindings[i];
        text_printf(j->out, "%s{\"result\": %s, \"tensor\": %d, \"fixes\": ", i ? ", " : "",
                    json_bool(b->result), b->tensor);
        json_fixes(j, b->fixes, b->n_fixes);
        text_printf(j->out, ", \"group\": %d, \"has\": [", b->group);
        for (int d = 0; d < b->n_dims; d++)
            text_printf(j->out, "%s%s", d ? ", " : "", json_bool(b->has[d]));
        text_printf(j->out, "]}");
    }
    text_printf(j->out, "]");
}

static void json_pieces(const Json *j, const OpDag *op, const DagPiece *const *pieces, int n)
{
    text_printf(j->out, "\"pieces\": [");
    for (int i = 0; i < n; i++)
        text_printf(j->out, "%s%d", i ? ", " : "", (int)(pieces[i] - op->pieces.v));
    text_printf(j->out, "]");
}

static void json_groups(const Json *j, const Kernel *kernel)
{
    const Gemm *gemm = &kernel->gemm;
    text_printf(j->out, ",\n  \"a\": %d, \"rows\": ", gemm->a);
    json_ints(j, gemm->rows.atoms, gemm->rows.n_atoms);
    text_printf(j->out, ", \"k\": ");
    json_ints(j, gemm->k.atoms, gemm->k.n_atoms);
    if (gemm->grouped)
        text_printf(j->out, ", \"chosen\": %d", gemm->chosen);
    text_printf(j->out, ",\n  \"groups\": [");
    for (int g = 0; g < gemm->n_groups; g++) {
        const GemmGroup *group = &gemm->group[g];
        text_printf(j->out, "%s{\"cols\": ", g ? ", " : "");
        json_ints(j, group->cols.atoms, group->cols.n_atoms);
        text_printf(j->out, ", \"products\": [");
        for (int p = 0; p < group->n_products; p++)
            text_printf(j->out, "%s{\"reduce\": %d, \"b\": %d}", p ? ", " : "",
                        node_index(kernel->op, group->product[p].reduce), group->product[p].b);
        text_printf(j->out, "], ");
        json_pieces(j, kernel->op, group->pieces, group->n_pieces);
        text_printf(j->out, "}");
    }
    text_printf(j->out, "]");
}

static void json_row_reduce(const Json *j, const OpDag *op, const DagNode *reduce,
                            const RowTree *tree, bool first)
{
    RowLeaves leaves;
    row_leaves(j->arena, tree, &leaves);
    text_printf(j->out, "%s{\"reduce\": %d, \"form\": \"%s\", \"leaves\": [",
                first ? "" : ", ", node_index(op, reduce),
                tree->form == TREE_CHAIN ? "chain" : "chain add");
    for (int l = 0; l < leaves.n; l++) {
        text_printf(j->out, "%s[", l ? ", " : "");
        for (int r = 0; r < leaves.n_runs[l]; r++)
            text_printf(j->out, "%s[%lld, %lld]", r ? ", " : "",
                        (long long)leaves.runs[l][r].start, (long long)leaves.runs[l][r].len);
        text_printf(j->out, "]");
    }
    text_printf(j->out, "], \"program\": ");
    json_program(j, &leaves.program);
    text_printf(j->out, "}");
}

/* Reductions of a product's columns: every value that the programs leave is a root. */
static void json_fold(const Json *j, const Kernel *kernel)
{
    const Fold *fold = &kernel->gemm.fold;
    text_printf(j->out, ",\n  \"folds\": [");
    for (int i = 0; i < fold->n_reduces; i++)
        json_row_reduce(j, kernel->op, fold->reduces[i], &fold->trees[i], i == 0);
    text_printf(j->out, "]");
}

static void json_gemm(const Json *j, const Kernel *kernel)
{
    const Gemm *gemm = &kernel->gemm;
    json_groups(j, kernel);
    text_printf(j->out, ",\n  \"leaves\": [");
    for (int i = 0; i < gemm->n_leaves; i++)
        text_printf(j->out, "%s[%lld, %lld]", i ? ", " : "", (long long)gemm->leaf_lo[i],
                    (long long)gemm->leaf_hi[i]);
    text_printf(j->out, "],\n  \"program\": ");
    json_program(j, &gemm->program);
    text_printf(j->out, ",\n  \"roots_out\": %s, \"n_roots\": %d, \"kernel\": \"%s\", "
                "\"place\": \"%s\", \"tile\": [%d, %d, %d], \"stages\": %d, \"cluster\": %d",
                json_bool(gemm->roots_out), gemm->n_roots,
                gemm->kernel == KERNEL_WGMMA ? "wgmma" : "stream",
                gemm->leaves == LEAVES_ACROSS_CTAS ? "ctas" : "registers", gemm->tile_m,
                gemm->tile_n, gemm->tile_k, gemm->stages, gemm->cluster);
    if (gemm->fold.n_reduces)
        json_fold(j, kernel);
}

static void json_row(const Json *j, const Kernel *kernel)
{
    const Row *row = &kernel->row;
    text_printf(j->out, ",\n  \"reduces\": [");
    for (int i = 0; i < row->n_reduces; i++)
        json_row_reduce(j, kernel->op, row->reduces[i], &row->trees[i], i == 0);
    text_printf(j->out, "],\n  \"roots_out\": %s, \"n_roots\": %d", json_bool(row->roots_out),
                row->n_roots);
}

static void json_join(const Json *j, const Kernel *kernel)
{
    const Join *join = &kernel->join;
    if (join->of == FAMILY_GEMM)
        json_groups(j, kernel);
    text_printf(j->out, ",\n  \"reduces\": [");
    for (int i = 0; i < join->n_reduces; i++)
        text_printf(j->out, "%s%d", i ? ", " : "", node_index(kernel->op, join->reduces[i]));
    text_printf(j->out, "], \"roots_of_rank\": ");
    json_ints(j, join->roots_of_rank, join->n_sources);
    text_printf(j->out, ",\n  \"program\": ");
    json_program(j, &join->program);
}

/* A join of products writes all that their epilogues would. */
static void json_kernel_pieces(const Json *j, const Kernel *kernel)
{
    int all[MAX_ATOMS], n = 0;
    if (kernel->family != FAMILY_JOIN || kernel->join.of != FAMILY_GEMM) {
        json_pieces(j, kernel->op, kernel->pieces, kernel->n_pieces);
        return;
    }
    for (int g = 0; g < kernel->gemm.n_groups; g++)
        for (int i = 0; i < kernel->gemm.group[g].n_pieces && n < MAX_ATOMS; i++)
            all[n++] = (int)(kernel->gemm.group[g].pieces[i] - kernel->op->pieces.v);
    text_printf(j->out, "\"pieces\": ");
    json_ints(j, all, n);
}

static void json_kernel(const Json *j, const Kernel *kernel)
{
    static const char *const families[] = {"map", "row", "gemm", "join", "attend",
                                           "draw", "top"};
    text_printf(j->out, "{\"family\": \"%s\", \"op\": %d, \"dims\": [", families[kernel->family],
                (int)(kernel->op - j->plan->dag->ops));
    for (int d = 0; d < kernel->n_dims; d++) {
        json_separate(j, d);
        json_ints(j, kernel->dims[d].atoms, kernel->dims[d].n_atoms);
    }
    text_printf(j->out, "], ");
    json_kernel_pieces(j, kernel);
    json_bindings(j, kernel);
    if (kernel->family == FAMILY_GEMM)
        json_gemm(j, kernel);
    if (kernel->family == FAMILY_ROW || kernel->family == FAMILY_TOP)
        json_row(j, kernel);
    if (kernel->family == FAMILY_JOIN)
        json_join(j, kernel);
    text_printf(j->out, "}");
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void json_parts(const Json *j, const char *key, const Part *parts, int n)
{
    text_printf(j->out, ",\n  \"%s\": [", key);
    for (int r = 0; r < n; r++) {
        bool first = true;
        text_printf(j->out, "%s{\"atoms\": [", r ? ", " : "");
        for (int a = 0; a < j->contract->n_atoms; a++) {
            const Axis *axis = &j->contract->axes[j->contract->atom_axis[a]];
            if (axis->free || axis->coordinate_of >= 0)
                continue;
            text_printf(j->out, "%s[%d, %lld, %lld]", first ? "" : ", ", a,
                        (long long)parts[r].lo[a], (long long)parts[r].hi[a]);
            first = false;
        }
        text_printf(j->out, "], \"rows\": [%d, %d]", parts[r].rows_index, parts[r].rows_count);
        if (parts[r].keys_count > 1)
            text_printf(j->out, ", \"keys\": [%d, %d]", parts[r].keys_index,
                        parts[r].keys_count);
        text_printf(j->out, "}");
    }
    text_printf(j->out, "]");
}

static void json_variants(const Json *j, const PlanOp *op)
{
    text_printf(j->out, ",\n  \"variants\": [");
    for (int i = 0; i < op->n_variants; i++) {
        const Variant *variant = &op->variants[i];
        text_printf(j->out, "%s{\"rows\": [%lld, %lld], \"schedule\": \"%s\", "
                    "\"kernel_of_rank\": ", i ? ", " : "", (long long)variant->rows_min,
                    (long long)variant->rows_max, variant->schedule);
        json_ints(j, variant->kernel_of_rank, op->at.ranks);
        text_printf(j->out, "}");
    }
    text_printf(j->out, "]");
}

static void json_plan_op(const Json *j, const PlanOp *op)
{
    text_printf(j->out, "{\"op\": %d, ", (int)(op->op - j->plan->dag->ops));
    json_text(j, "layout", op->at.layout ? op->at.layout->name.text : STR(""));
    text_printf(j->out, ", \"ranks\": %d", op->at.ranks);
    json_parts(j, "parts", op->part_of_rank, op->at.ranks);
    json_variants(j, op);
    text_printf(j->out, ",\n  \"join\": %d", op->join_kernel);
    if (op->join_kernel >= 0) {
        int n = j->plan->kernels.v[op->join_kernel]->join.n_sources;
        json_parts(j, "finish_parts", op->finish_of_rank, op->at.ranks);
        text_printf(j->out, ",\n  \"sources\": [");
        for (int r = 0; r < op->at.ranks; r++) {
            json_separate(j, r);
            json_ints(j, op->sources_of_rank + r * n, n);
        }
        text_printf(j->out, "]");
    }
    text_printf(j->out, "}");
}

void plan_json(const Plan *plan, Text *out)
{
    Json j = {plan, plan->dag->contract, out->arena, out};
    const FdpaClass *class = j.contract->numerics;
    text_printf(out, "{\"isoc_plan\": 1, ");
    json_text(&j, "contract", j.contract->name);
    text_printf(out, ",\n\"class\": {\"group\": %d, \"bits\": %d, \"floor\": %d, "
                "\"out_bits\": %d},\n", class->group, class->bits, class->floor, class->out_bits);
    json_atoms(&j);
    text_printf(out, ",\n\"ops\": [");
    for (int i = 0; i < plan->dag->n_ops; i++) {
        text_printf(out, "%s\n ", i ? "," : "");
        json_op(&j, &plan->dag->ops[i]);
    }
    text_printf(out, "],\n\"kernels\": [");
    for (int i = 0; i < plan->kernels.n; i++) {
        text_printf(out, "%s\n ", i ? "," : "");
        json_kernel(&j, plan->kernels.v[i]);
    }
    text_printf(out, "],\n\"plans\": [");
    for (int i = 0; i < plan->ops.n; i++) {
        text_printf(out, "%s\n ", i ? "," : "");
        json_plan_op(&j, &plan->ops.v[i]);
    }
    text_printf(out, "]}\n");
}
