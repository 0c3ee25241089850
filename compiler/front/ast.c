/* The canonical layout of the syntax tree. */
#include "ast.h"

static void put(Text *out, const char *s)
{
    text_add(out, str_of(s));
}

static void put_names(Text *out, const Names *names, const char *between)
{
    for (int i = 0; i < names->n; i++) {
        put(out, i ? between : "");
        text_add(out, names->v[i].text);
    }
}

static void put_numbers(Text *out, const Numbers *numbers, const char *between)
{
    for (int i = 0; i < numbers->n; i++) {
        put(out, i ? between : "");
        text_add(out, numbers->v[i].text);
    }
}

/* ---- trees ----------------------------------------------------------------------------------- */

static void put_tree_head(const AstTree *tree, Text *out)
{
    switch (tree->form) {
    case TREE_SPLIT:
        put(out, "split ");
        if (tree->parts.n == 0) {
            text_add(out, tree->count.text);
            return;
        }
        put(out, "[");
        put_numbers(out, &tree->parts, ", ");
        put(out, "]");
        return;
    case TREE_EVERY:
        text_printf(out, "every %.*s", STR_FMT(tree->count.text));
        return;
    case TREE_LANES:
        text_printf(out, "lanes %.*s by %.*s", STR_FMT(tree->count.text), STR_FMT(tree->run.text));
        return;
    case TREE_ROUND:
        text_printf(out, "round %.*s", STR_FMT(tree->type.text));
        return;
    default:
        return;
    }
}

static void put_tree(const AstTree *tree, Text *out)
{
    switch (tree->form) {
    case TREE_MMA:
        put(out, "mma");
        return;
    case TREE_CHAIN:
        put(out, "chain");
        return;
    case TREE_CHAIN_ADD:
        put(out, "chain add");
        return;
    case TREE_NAME:
        text_add(out, tree->name.text);
        return;
    default:
        put_tree_head(tree, out);
        put(out, " { ");
        put_tree(tree->child, out);
        put(out, " }");
        if (tree->form != TREE_ROUND)
            text_printf(out, " %s %.*s", tree->join == JOIN_LEFT ? "left" : "pairwise",
                        STR_FMT(tree->type.text));
    }
}

/* ---- expressions ----------------------------------------------------------------------------- */

/* How tightly a form binds; a reduction swallows the product to its right, so beside `*` and `-`
 * it stands in parentheses. */
enum { BIND_SUM = 1, BIND_REDUCE, BIND_PRODUCT, BIND_NEG, BIND_PRIMARY };

static int binding(const AstExpr *e)
{
    switch (e->kind) {
    case EXPR_BINARY:
        return e->op == '+' || e->op == '-' ? BIND_SUM : BIND_PRODUCT;
    case EXPR_REDUCE:
        return BIND_REDUCE;
    case EXPR_NEG:
        return BIND_NEG;
    default:
        return BIND_PRIMARY;
    }
}

static void put_expr(const AstExpr *e, Text *out);

static void put_operand(const AstExpr *e, int least, Text *out)
{
    bool bracket = binding(e) < least;
    put(out, bracket ? "(" : "");
    put_expr(e, out);
    put(out, bracket ? ")" : "");
}

static void put_index(const AstIndices *index, Text *out)
{
    for (int i = 0; i < index->n; i++)
        text_printf(out, "%s%.*s %s%.*s", i ? ", " : "[", STR_FMT(index->v[i].axis.text),
                    index->v[i].kept ? "= " : "", STR_FMT(index->v[i].at.text));
    put(out, index->n ? "]" : "");
}

static void put_call(const AstExpr *e, Text *out)
{
    text_printf(out, "%.*s(", STR_FMT(e->name.text));
    for (int i = 0; i < e->args.n; i++) {
        put(out, i ? ", " : "");
        put_expr(e->args.v[i], out);
    }
    put(out, ")");
}

static void put_binary(const AstExpr *e, Text *out)
{
    bool sum = e->op == '+' || e->op == '-';
    put_operand(e->args.v[0], sum ? BIND_SUM : BIND_PRODUCT, out);
    text_printf(out, " %c ", e->op);
    put_operand(e->args.v[1], sum ? BIND_REDUCE : BIND_NEG, out);
}

static void put_reduce(const AstExpr *e, Text *out)
{
    text_printf(out, "%.*s(", STR_FMT(e->name.text));
    put_names(out, &e->axes, ", ");
    for (int i = 0; i < e->index.n; i++)
        text_printf(out, " at %.*s %.*s", STR_FMT(e->index.v[i].axis.text),
                    STR_FMT(e->index.v[i].at.text));
    put(out, " by ");
    put_tree(e->tree, out);
    put(out, ") ");
    put_operand(e->args.v[0], BIND_REDUCE, out);
}

static void put_expr(const AstExpr *e, Text *out)
{
    switch (e->kind) {
    case EXPR_NAME:
        text_add(out, e->name.text);
        put_index(&e->index, out);
        return;
    case EXPR_NUMBER:
        text_add(out, e->number.text);
        return;
    case EXPR_NEG:
        put(out, "-");
        put_operand(e->args.v[0], BIND_NEG, out);
        return;
    case EXPR_BINARY:
        put_binary(e, out);
        return;
    case EXPR_CALL:
        put_call(e, out);
        return;
    case EXPR_LEN:
        text_printf(out, "len(%.*s)", STR_FMT(e->name.text));
        return;
    case EXPR_REDUCE:
        put_reduce(e, out);
        return;
    case EXPR_BLOCK: /* a statement's, not an expression's */
        return;
    }
}

/* ---- declarations ---------------------------------------------------------------------------- */

static void put_axis(const AstAxis *axis, Text *out)
{
    text_printf(out, "axis %.*s", STR_FMT(axis->name.text));
    if (axis->product || !axis->ragged)
        put(out, " = ");
    for (int i = 0; i < axis->factors.n; i++) {
        const AstFactor *f = &axis->factors.v[i];
        text_printf(out, "%s%.*s%s%.*s", i ? " * " : "", STR_FMT(f->name.text),
                    f->has_size ? " " : "", STR_FMT(f->size.text));
    }
    text_add(out, axis->size.text);
    if (axis->padded)
        text_printf(out, " in %.*s", STR_FMT(axis->stored.text));
    if (axis->sparse)
        text_printf(out, " of %.*s", STR_FMT(axis->of.text));
    put(out, axis->ragged ? " ragged;\n" : ";\n");
}

static void put_tensors(const AstTensors *tensors, Text *out)
{
    for (int i = 0; i < tensors->n; i++) {
        const AstTensor *t = &tensors->v[i];
        text_printf(out, "%s%.*s: %.*s[", i ? ", " : "", STR_FMT(t->name.text),
                    STR_FMT(t->type.text));
        put_names(out, &t->axes, ", ");
        put(out, "]");
    }
}

/* Names, as of axes, stand apart by commas here. */
static void put_block_settings(const AstSettings *settings, Text *out)
{
    put(out, " {\n");
    for (int i = 0; i < settings->n; i++) {
        const AstSetting *s = &settings->v[i];
        text_printf(out, "        %.*s%s", STR_FMT(s->key.text),
                    s->words.n || s->numbers.n ? " " : "");
        put_names(out, &s->words, ", ");
        put(out, s->words.n && s->numbers.n ? ", " : "");
        put_numbers(out, &s->numbers, ", ");
        put(out, ";\n");
    }
}

static void put_block(const AstBlock *block, const AstExprs *operands, Text *out)
{
    text_printf(out, "    %.*s ", STR_FMT(block->form.text));
    put_names(out, &block->targets, ", ");
    put(out, " = ");
    for (int i = 0; i < operands->n; i++) {
        put(out, i ? ", " : "");
        put_expr(operands->v[i], out);
    }
    put_block_settings(&block->settings, out);
    put(out, "    }\n");
}

static void put_statement(const AstStatement *statement, Text *out)
{
    const AstExpr *value = statement->value;
    if (value->kind == EXPR_BLOCK) {
        if (value->part == 0)
            put_block(value->block, &value->args, out);
        return;
    }
    text_printf(out, "    %.*s", STR_FMT(statement->target.text));
    put_index(&statement->index, out);
    put(out, " = ");
    put_expr(value, out);
    put(out, ";\n");
}

static void put_op(const AstOp *op, Text *out)
{
    text_printf(out, "op %.*s(", STR_FMT(op->name.text));
    put_tensors(&op->params, out);
    put(out, op->results.n == 1 ? ") -> " : ") -> (");
    put_tensors(&op->results, out);
    put(out, op->results.n == 1 ? " {\n" : ") {\n");
    for (int i = 0; i < op->body.n; i++)
        put_statement(&op->body.v[i], out);
    put(out, "}\n");
}

static void put_mesh(const AstMesh *mesh, const char *indent, Text *out)
{
    text_printf(out, "%s%.*s", indent, STR_FMT(mesh->name.text));
    if (mesh->product.n)
        put(out, " = ");
    put_names(out, &mesh->product, " * ");
    if (mesh->has_degree)
        text_printf(out, " %.*s", STR_FMT(mesh->degree.text));
    for (int i = 0; i < mesh->cuts.n; i++)
        text_printf(out, "%s%.*s%s", i ? ", " : " cuts ", STR_FMT(mesh->cuts.v[i].axis.text),
                    mesh->cuts.v[i].replicating ? " replicating" : "");
    if (mesh->has_else)
        text_printf(out, " else %.*s", STR_FMT(mesh->else_axis.text));
    put(out, ";\n");
}

static void put_layout(const AstLayout *layout, Text *out)
{
    text_printf(out, "layout %.*s {\n", STR_FMT(layout->name.text));
    for (int i = 0; i < layout->meshes.n; i++)
        put_mesh(&layout->meshes.v[i], "    ", out);
    for (int i = 0; i < layout->overrides.n; i++) {
        const AstOverride *o = &layout->overrides.v[i];
        text_printf(out, "    op %.*s {\n", STR_FMT(o->op.text));
        for (int k = 0; k < o->meshes.n; k++)
            put_mesh(&o->meshes.v[k], "        ", out);
        put(out, "    }\n");
    }
    put(out, "}\n");
}

static void put_schedule(const AstSchedule *s, Text *out)
{
    text_printf(out, "schedule %.*s", STR_FMT(s->op.text));
    if (s->has_when)
        text_printf(out, " when %.*s %.*s %.*s", STR_FMT(s->when_axis.text), STR_FMT(s->when_op),
                    STR_FMT(s->when_bound.text));
    put(out, " {\n");
    for (int i = 0; i < s->settings.n; i++) {
        const AstSetting *set = &s->settings.v[i];
        text_printf(out, "    %.*s%s", STR_FMT(set->key.text), set->words.n ? " " : "");
        put_names(out, &set->words, " ");
        put(out, set->numbers.n ? " " : "");
        put_numbers(out, &set->numbers, " x ");
        put(out, ";\n");
    }
    put(out, "}\n");
}

/* ---- models ---------------------------------------------------------------------------------- */

static void put_table(const AstModelStatement *step, Text *out)
{
    const AstTensors *tensors = &step->tensors;
    put(out, "table ");
    for (int i = 0; i < tensors->n; i++)
        text_printf(out, "%s%.*s", i ? ", " : "", STR_FMT(tensors->v[i].name.text));
    text_printf(out, ": %.*s[", STR_FMT(tensors->v[0].type.text));
    put_names(out, &tensors->v[0].axes, ", ");
    text_printf(out, "] = %.*s", STR_FMT(step->name.text));
    put_block_settings(&step->settings, out);
    put(out, "    };\n");
}

static void put_model_call(const AstModelStatement *step, Text *out)
{
    put_names(out, &step->targets, ", ");
    text_printf(out, " = %.*s(", STR_FMT(step->name.text));
    for (int i = 0; i < step->arguments.n; i++) {
        const AstArgument *a = &step->arguments.v[i];
        put(out, i ? ", " : "");
        if (a->named)
            text_printf(out, "%.*s: ", STR_FMT(a->param.text));
        text_printf(out, a->weight ? "\"%.*s\"" : "%.*s", STR_FMT(a->value.text));
        if (a->order.n) {
            put(out, " [");
            put_names(out, &a->order, ", ");
            put(out, "]");
        }
    }
    put(out, ");\n");
}

static void put_steps(const AstModelStatements *steps, const char *indent, Text *out);

static void put_step(const AstModelStatement *step, const char *indent, Text *out)
{
    put(out, indent);
    switch (step->kind) {
    case STEP_INPUT:
        put(out, "input ");
        put_tensors(&step->tensors, out);
        put(out, ";\n");
        return;
    case STEP_TABLE:
        put_table(step, out);
        return;
    case STEP_CACHE:
        for (int i = 0; i < step->targets.n; i++)
            text_printf(out, "%s%.*s = %.*s", i ? ", " : "cache ",
                        STR_FMT(step->targets.v[i].text), STR_FMT(step->values.v[i].text));
        put(out, ";\n");
        return;
    case STEP_CALL:
        put_model_call(step, out);
        return;
    case STEP_REPEAT:
        text_printf(out, "repeat %.*s as %.*s {\n", STR_FMT(step->count.text),
                    STR_FMT(step->name.text));
        put_steps(&step->body, "        ", out);
        text_printf(out, "%s}\n", indent);
        return;
    case STEP_OUTPUT:
        put(out, "output ");
        put_names(out, &step->targets, ", ");
        put(out, ";\n");
        return;
    }
}

static void put_steps(const AstModelStatements *steps, const char *indent, Text *out)
{
    for (int i = 0; i < steps->n; i++)
        put_step(&steps->v[i], indent, out);
}

static void put_head(const Ast *ast, Text *out)
{
    if (ast->has_contract)
        text_printf(out, "contract %.*s version %.*s;\n", STR_FMT(ast->contract.text),
                    STR_FMT(ast->version.text));
    if (ast->has_numerics)
        text_printf(out, "numerics %.*s;\n", STR_FMT(ast->numerics.text));
    for (int i = 0; i < ast->params.n; i++)
        text_printf(out, "param %.*s%s%.*s;\n", STR_FMT(ast->params.v[i].name.text),
                    ast->params.v[i].has_value ? " = " : "",
                    STR_FMT(ast->params.v[i].value.text));
}

void ast_print(const Ast *ast, Text *out)
{
    put_head(ast, out);
    for (int i = 0; i < ast->axes.n; i++)
        put_axis(&ast->axes.v[i], out);
    for (int i = 0; i < ast->trees.n; i++) {
        text_printf(out, "tree %.*s = ", STR_FMT(ast->trees.v[i].name.text));
        put_tree(ast->trees.v[i].tree, out);
        put(out, ";\n");
    }
    for (int i = 0; i < ast->ops.n; i++)
        put_op(&ast->ops.v[i], out);
    for (int i = 0; i < ast->layouts.n; i++)
        put_layout(&ast->layouts.v[i], out);
    for (int i = 0; i < ast->schedules.n; i++)
        put_schedule(&ast->schedules.v[i], out);
    if (ast->has_model) {
        text_printf(out, "model %.*s {\n", STR_FMT(ast->model.name.text));
        put_steps(&ast->model.body, "    ", out);
        put(out, "}\n");
    }
}
