/* Products whose columns are reduced in their kernel: the members of an Op that folds
 * (iso_fold.cuh). */
#include "emit_impl.h"

typedef struct Folded {
    KernelText *k;
    const Fold *fold;
    GroupBindings touched;
    ExprScope row, element;
} Folded;

static int place_of(const Folded *f, int binding)
{
    int i = 0;
    while (f->touched.operand[i] != binding)
        i++;
    return i;
}

static Str row_input(void *user, const DagNode *node)
{
    const Folded *f = user;
    return str_format(f->k->arena, "in.in%d", place_of(f, kernel_input(f->k->kernel, 0, node)));
}

static Str element_kept(void *user, const DagNode *node)
{
    const Folded *f = user;
    return str_format(f->k->arena, "col == in.in%d",
                      place_of(f, kernel_kept(f->k->kernel, 0, node)));
}

/* What is kept of a row's columns is told by their index here. */
static void write_inputs(Folded *f)
{
    Writer *w = &f->k->head;
    const Kernel *kernel = f->k->kernel;
    writer_open(w, "struct Inputs");
    for (int i = 0; i < f->touched.n_operands; i++) {
        const Tensor *tensor = binding_tensor(kernel, f->touched.operand[i]);
        writer_line(w, "%s in%d;", tensor->index_of ? "int" : expr_held(tensor->type), i);
    }
    writer_close(w, ";");
    writer_open(w, "ISO_INLINE void row(const IsoGemmGroup &g, int row, Inputs &in)");
    for (int i = 0; i < f->touched.n_operands; i++) {
        const Binding *b = &kernel->bindings[f->touched.operand[i]];
        const Tensor *tensor = binding_tensor(kernel, f->touched.operand[i]);
        writer_line(w, "in.in%d = %s((const %s *)g.operand[%d].ptr)%s%s;", i,
                    tensor->index_of ? "iso_fold_index(" : "",
                    tensor->index_of ? "int" : expr_held(tensor->type), i,
                    b->has[0] ? str_format(f->k->arena, "[row * g.operand[%d].stride[0]]", i).s
                              : "[0]",
                    tensor->index_of ? ", g)" : "");
    }
    writer_close(w, "");
}

static const char *value_type(const DagNode *reduce)
{
    return monoid_values(reduce->monoid) == 2 ? "IsoPair" : "float";
}

static const DagNode *fused_product(const Fold *fold, int i)
{
    return fold->trees[i].form == TREE_CHAIN ? expr_product(fold->reduces[i]) : NULL;
}

static void bind_product(Folded *f, ExprScope *scope)
{
    const DagNode *product = f->k->kernel->gemm.group[0].product[0].reduce;
    expr_bind(scope, product, expr_round_text(f->k->arena, product->type, STR("sum")));
}

static const char *monoid_of(const Fold *fold, int i)
{
    return row_monoid(fold->reduces[i]->monoid, fused_product(fold, i) != NULL);
}

/* The greatest of values of which all but one are -inf is found by its column, where a tile has it:
 * the one reduce of that kind, or -1. */
static int picked(const Fold *fold)
{
    int found = -1;
    for (int i = 0; i < fold->n_reduces; i++) {
        bool kept = fold->reduces[i]->monoid == MONOID_MAX &&
                    fold->reduces[i]->args[0]->kind == DAG_ONLY;
        if (kept && found >= 0)
            return -1;
        found = kept ? i : found;
    }
    return found;
}

static void write_pick(Folded *f)
{
    Writer *w = &f->k->head;
    int at = picked(f->fold);
    writer_line(w, "static constexpr bool picks = %s;", at < 0 ? "false" : "true");
    if (at < 0)
        return;
    const DagNode *only = f->fold->reduces[at]->args[0];
    int column = place_of(f, kernel_kept(f->k->kernel, 0, only));
    writer_open(w, "ISO_INLINE int wanted(const Inputs &in)");
    writer_line(w, "return in.in%d;", column);
    writer_close(w, "");
    writer_open(w, "ISO_INLINE void pick(const Inputs &in, bool found, float sum, Values &v)");
    ExprScope scope = f->element;
    bind_product(f, &scope);
    Str value = expr_f32(&scope, only->args[0]);
    writer_line(w, "v.v%d = found ? %.*s : iso_bits_f32(0xFF800000u);", at, STR_FMT(value));
    writer_close(w, "");
}

static void write_next(Folded *f)
{
    Writer *w = &f->k->head;
    ExprScope scope = f->element;
    writer_open(w, "ISO_INLINE void next(const Inputs &in, int col, float sum, bool first, "
                   "Values &v)");
    bind_product(f, &scope);
    for (int i = 0; i < f->fold->n_reduces; i++) {
        const DagNode *fused = fused_product(f->fold, i), *body = f->fold->reduces[i]->args[0];
        const char *monoid = monoid_of(f->fold, i);
        if (i == picked(f->fold))
            continue;
        writer_line(w, "IsoTerms<1> terms%d;", i);
        Str a = expr_f32(&scope, fused ? fused->args[0] : body);
        writer_line(w, "terms%d.a[0] = %.*s;", i, STR_FMT(a));
        if (fused) {
            Str b = expr_f32(&scope, fused->args[1]);
            writer_line(w, "terms%d.b[0] = %.*s;", i, STR_FMT(b));
        }
        writer_line(w, "v.v%d = first ? %s::first(terms%d, 0) : %s::next(v.v%d, terms%d, 0);", i,
                    monoid, i, monoid, i, i);
        f->k->census.fma += fused != NULL;
        f->k->census.add += !fused && f->fold->reduces[i]->monoid == MONOID_SUM;
    }
    writer_close(w, "");
}

static void write_values(Folded *f)
{
    Writer *w = &f->k->head;
    int n = f->fold->n_reduces;
    writer_open(w, "struct Values");
    for (int i = 0; i < n; i++)
        writer_line(w, "%s v%d;", value_type(f->fold->reduces[i]), i);
    writer_close(w, ";");
    writer_open(w, "ISO_INLINE void join(Values &left, const Values &right)");
    for (int i = 0; i < n; i++)
        writer_line(w, "left.v%d = %s::join<ISO_F32>(left.v%d, right.v%d);", i,
                    monoid_of(f->fold, i), i, i);
    writer_close(w, "");
    writer_open(w, "ISO_INLINE Values below(const Values &v, int by)");
    writer_line(w, "Values other;");
    for (int i = 0; i < n; i++)
        writer_line(w, "other.v%d = iso_shuffle_down(v.v%d, by);", i, i);
    writer_line(w, "return other;");
    writer_close(w, "");
    writer_open(w, "ISO_INLINE void store(float *to, long long step, const Values &v)");
    for (int i = 0, at = 0; i < n; at += monoid_values(f->fold->reduces[i++]->monoid))
        writer_line(w, "iso_root_store(to + %d * step, step, v.v%d);", at, i);
    writer_close(w, "");
}

void fold_write_op(KernelText *k)
{
    const RowTree *tree = &k->kernel->gemm.fold.trees[0];
    Folded f = {.k = k, .fold = &k->kernel->gemm.fold};
    f.row = (ExprScope){.w = &k->head, .census = &k->census, .input = row_input, .user = &f};
    f.element = (ExprScope){.w = &k->head, .outer = &f.row, .census = &k->census,
                            .kept = element_kept, .input = row_input, .user = &f};
    emit_fold_bindings(k->kernel, &f.touched);
    writer_line(&k->head, "using Fold = %.*s;", STR_FMT(row_spread_text(k->arena, tree, 1)));
    writer_line(&k->head, "static constexpr int lanes = %d, values = %d;", tree->lanes,
                f.fold->values);
    write_inputs(&f);
    write_values(&f);
    write_pick(&f);
    write_next(&f);
}

void emit_fold_bindings(const Kernel *kernel, GroupBindings *out)
{
    *out = (GroupBindings){0};
    for (int i = 0; i < kernel->n_bindings; i++)
        if (kernel->bindings[i].group == 0 && !kernel->bindings[i].result)
            out->operand[out->n_operands++] = i;
}

/* ---- the join of all ranks' roots ------------------------------------------------------------ */

Str fold_joined_text(Arena *arena, const Join *join, int index, int threads)
{
    int values = 0, first = 0;
    for (int i = 0; i < join->n_reduces; i++) {
        first += i < index ? monoid_values(join->reduces[i]->monoid) : 0;
        values += monoid_values(join->reduces[i]->monoid);
    }
    return str_format(arena, "iso_row_gathered<%s, %d, %d, %d, %d, %d>(args, place)",
                      row_monoid(join->reduces[index]->monoid, false), threads, join->spans,
                      join->of_span, values, first);
}
