/* Row kernels: each reduce is a pass over the row, then one pass stores the results. The kernel
 * that joins other ranks' roots of a row is the same with its first reduce already there. */
#include "emit_impl.h"

enum {
    ROW_ALONE_THREADS = 128, /* rows of a CTA where each row has one thread */
    ROW_JOIN_THREADS = 128,  /* of a row whose reduce comes from roots */
    FOLD_JOIN_THREADS = 256, /* of one that comes from many */
};

const char *row_type(DType type)
{
    return type == DT_BF16 ? "ISO_BF16" : type == DT_F16 ? "ISO_F16" : "ISO_F32";
}

const char *row_monoid(Monoid monoid, bool fused)
{
    switch (monoid) {
    case MONOID_MAX: return "IsoMax";
    case MONOID_LOGSUMEXP: return "IsoLogSumExp";
    default: return fused ? "IsoSumOfProducts" : "IsoSum";
    }
}

static int values_below(const DagNode *reduce, const DagNode *product, const DagNode **values)
{
    values[0] = product ? product->args[0] : reduce->args[0];
    values[1] = product ? product->args[1] : NULL;
    return product ? 2 : 1;
}

/* The lambda that gives a reduce its terms. */
static void write_terms(Chunked *c, const DagNode *reduce, const DagNode *product, int width,
                        Str name)
{
    const DagNode *values[2];
    int n = values_below(reduce, product, values);
    Writer *w = &c->k->body;
    ExprScope element;
    expr_hoist(&c->row, values, n, c->atoms);
    chunked_open(c, name.s, str_format(c->k->arena, ", IsoTerms<%d> &terms", width).s, width,
                 values, n);
    chunked_loop(c, width, &c->row, &element);
    for (int i = 0; i < n; i++) {
        Str value = expr_f32(&element, values[i]);
        writer_line(w, "terms.%c[e] = %.*s;", "ab"[i], STR_FMT(value));
    }
    writer_close(w, "");
    writer_close(w, ";");
    c->k->census.fma += product != NULL;
    c->k->census.add += !product && reduce->monoid == MONOID_SUM;
}

/* The parts and their program as constants, and the struct that names them. */
static void write_program(KernelText *k, int index, Str text, const RowTree *tree)
{
    Writer *w = &k->head;
    writer_line(w, "__constant__ constexpr char program%d[] = \"%.*s\";", index, STR_FMT(text));
    if (tree) {
        Text begin = {.arena = k->arena};
        for (int i = 0; i < tree->n_parts; i++)
            text_printf(&begin, "%lld, ", (long long)tree->parts[i].start);
        text_printf(&begin, "%lld", (long long)row_tree_end(tree));
        writer_line(w, "__constant__ constexpr int begin%d[] = {%.*s};", index,
                    STR_FMT(text_str(&begin)));
    }
    writer_open(w, "struct Program%d", index);
    writer_line(w, "static constexpr int depth = %d;", postfix_depth(text));
    writer_line(w, "ISO_FN const char *text() { return program%d; }", index);
    if (tree)
        writer_line(w, "ISO_FN const int *begin() { return begin%d; }", index);
    writer_close(w, ";");
}

/* Takes the roots of reduce `index`; a reduce that is finished here has none. */
static void write_root(Chunked *c, int index)
{
    const Kernel *kernel = c->k->kernel;
    const char *value_type = monoid_values(kernel->row.reduces[index]->monoid) == 2 ? "IsoPair"
                                                                                   : "float";
    Writer *w = &c->k->body;
    writer_open(w, "const auto root%d = [&](int r, %s value)", index, value_type);
    if (kernel->row.roots_out)
        writer_line(w, "iso_row_root<%d>(args, r, place, value);", kernel->row.threads);
    writer_close(w, ";");
}

static Str lanes_text(Arena *arena, const RowTree *tree)
{
    bool lanes = tree->lanes > 1;
    return str_format(arena, "IsoLanes<%d, %lld, %s, %s>", tree->lanes,
                      lanes ? (long long)tree->run : 1LL,
                      lanes && tree->lane_join == JOIN_LEFT ? "true" : "false",
                      lanes ? row_type(tree->lane_type) : "ISO_F32");
}

Str row_spread_text(Arena *arena, const RowTree *tree, int cluster)
{
    return str_format(arena, "IsoSpread<%d, %d, %lld, %lld, %lld, %d>", tree->spans, tree->of_span,
                      (long long)tree->span, (long long)tree->step,
                      (long long)row_tree_end(tree), cluster);
}

/* A lane's runs in whole chunks, or element by element. */
static int reduce_width(const Chunked *c, const RowTree *tree)
{
    if (c->k->kernel->row.spread && tree->run == 2)
        return 2;
    return tree->lanes > 1 && tree->run % c->width ? 1 : c->width;
}

/* Scalar functions and divisions are long: more of them in flight costs registers, not time. */
static bool is_long(const Chunked *c, const DagNode *const *values, int n)
{
    DagNodes nodes;
    expr_below(c->k->arena, values, n, &nodes);
    for (int i = 0; i < nodes.n; i++)
        if ((nodes.v[i]->kind == DAG_FN || nodes.v[i]->kind == DAG_DIV) &&
            (nodes.v[i]->mask & c->atoms))
            return true;
    return false;
}

static Str pace_text(const Chunked *c, int threads, int width, bool lengthy, int unroll)
{
    return str_format(c->k->arena, "IsoPace<%d, %d, %d>", threads, width,
                      lengthy ? 1 : unroll);
}

/* "iso_row_part<...>(...)" for one part and nothing to join, else the program's run. */
static Str reduce_text(Chunked *c, int index, Str body, Str pace)
{
    KernelText *k = c->k;
    const Row *row = &k->kernel->row;
    const RowTree *tree = &row->trees[index];
    const DagNode *reduce = row->reduces[index];
    const char *monoid = row_monoid(reduce->monoid,
                                     tree->form == TREE_CHAIN && expr_product(reduce));
    Str text = postfix_text(k->arena, &tree->program, row->roots_out, 1);
    Str lanes = lanes_text(k->arena, tree);
    if (row->spread)
        return str_format(k->arena, "iso_row_spread<%s, %.*s, %.*s, %.*s>(vector, %.*s)", monoid,
                          STR_FMT(lanes), STR_FMT(pace),
                          STR_FMT(row_spread_text(k->arena, tree, row->cluster)), STR_FMT(body));
    if (str_is(text, "L"))
        return str_format(k->arena, "iso_row_part<%s, %.*s, %.*s>(%lld, %lld, vector, %.*s)",
                          monoid, STR_FMT(lanes), STR_FMT(pace),
                          (long long)tree->parts[0].start,
                          (long long)(tree->parts[0].start + tree->parts[0].len), STR_FMT(body));
    write_program(k, index, text, tree);
    write_root(c, index);
    return str_format(k->arena, "iso_row_reduce<%s, %.*s, %.*s, Program%d>(vector, %.*s, root%d)",
                      monoid, STR_FMT(lanes), STR_FMT(pace), index, STR_FMT(body), index);
}

/* The reduce's value, held as its type is. */
void row_bind_value(Chunked *c, const DagNode *reduce, Str value)
{
    Arena *arena = c->k->arena;
    if (reduce->monoid == MONOID_LOGSUMEXP)
        value = str_format(arena, "iso_log_of_sum<%s>(%.*s)", row_type(reduce->type),
                           STR_FMT(value));
    value = expr_round_text(arena, reduce->type, value);
    Str name = writer_decl(&c->k->body, expr_held(reduce->type), "%.*s", STR_FMT(value));
    expr_bind(&c->row, reduce, name);
}

/* Its one root, which the first CTA of a cluster alone has. */
static void write_only_root(Chunked *c, Str value)
{
    Writer *w = &c->k->body;
    const Row *row = &c->k->kernel->row;
    bool pair = row->reduces[0]->monoid == MONOID_LOGSUMEXP;
    Str root = writer_decl(w, pair ? "IsoPair" : "float", "%.*s", STR_FMT(value));
    if (row->cluster > 1)
        writer_open(w, "if (iso_cluster_rank() == 0)");
    writer_line(w, "iso_row_root<%d>(args, 0, place, %.*s);", row->threads, STR_FMT(root));
    if (row->cluster > 1)
        writer_close(w, "");
}

void row_bind_reduce(Chunked *c, int index, Str body, Str pace)
{
    const Row *row = &c->k->kernel->row;
    Str value = reduce_text(c, index, body, pace);
    if (row->roots_out && row->spread)
        write_only_root(c, value);
    else if (row->roots_out)
        writer_line(&c->k->body, "%.*s;", STR_FMT(value));
    else
        row_bind_value(c, row->reduces[index], value);
}

void row_write_reduce(Chunked *c, int index)
{
    const Row *row = &c->k->kernel->row;
    const DagNode *reduce = row->reduces[index];
    const RowTree *tree = &row->trees[index];
    const DagNode *product = tree->form == TREE_CHAIN ? expr_product(reduce) : NULL;
    Str body = str_format(c->k->arena, "body%d", index);
    bool lengthy = reduce->monoid == MONOID_LOGSUMEXP || is_long(c, reduce->args, 1);
    write_terms(c, reduce, product, reduce_width(c, tree), body);
    row_bind_reduce(c, index, body,
                    pace_text(c, row->threads, reduce_width(c, tree), lengthy, 4));
}

/* Where the row lies among the rows of the roots: live lengths do not count, and a rank that joins
 * may have begun further on. */
void row_write_place(Chunked *c)
{
    const Kernel *kernel = c->k->kernel;
    Str place = STR("0u");
    for (int d = 0; d < c->inner; d++) {
        bool moved = kernel->family == FAMILY_JOIN &&
                     dim_is_free(c->k->contract, &kernel->dims[d]);
        Str index = str_format(c->k->arena, moved ? "(i%d + args.row_begin)" : "i%d", d);
        place = d ? str_format(c->k->arena, "(%.*s) * map.extent[%d] + %.*s", STR_FMT(place), d,
                               STR_FMT(index))
                  : index;
    }
    writer_line(&c->k->body, "const unsigned place = %.*s;", STR_FMT(place));
}

/* The value of a cut reduce from the roots that all ranks sent. */
static void write_joined(Chunked *c)
{
    const Join *join = &c->k->kernel->join;
    const DagNode *reduce = join->reduces[0];
    if (join->folds) {
        row_write_place(c);
        for (int i = 0; i < join->n_reduces; i++)
            row_bind_value(c, join->reduces[i],
                           fold_joined_text(c->k->arena, join, i, FOLD_JOIN_THREADS));
        return;
    }
    const char *monoid = row_monoid(reduce->monoid, false);
    write_program(c->k, 0, postfix_text(c->k->arena, &join->program, false, 1), NULL);
    row_write_place(c);
    row_bind_value(c, reduce,
               str_format(c->k->arena, "iso_row_joined<%s, Program0>(args, place)", monoid));
    c->k->census.add += join->program.n_roots - 1;
}

static void write_rows_loop(Writer *w, int threads, int cluster)
{
    if (cluster > 1)
        writer_open(w, "if (const unsigned row = blockIdx.x / %du; row < rows)", cluster);
    else if (threads > 1)
        writer_open(w, "for (unsigned row = blockIdx.x; row < rows; row += gridDim.x)");
    else
        writer_open(w, "for (unsigned row = blockIdx.x * %du + threadIdx.x; row < rows; "
                       "row += gridDim.x * %du)", ROW_ALONE_THREADS, ROW_ALONE_THREADS);
}

static Str store_pace(const Chunked *c, int threads)
{
    bool lengthy = false;
    for (int i = 0; i < c->k->kernel->n_pieces; i++)
        lengthy = lengthy || is_long(c, &c->k->kernel->pieces[i]->value, 1);
    return pace_text(c, threads, c->width, lengthy, 2);
}

void emit_row(KernelText *k)
{
    const Row *row = &k->kernel->row;
    bool join = k->kernel->family == FAMILY_JOIN;
    bool folds = join && k->kernel->join.folds;
    int threads = folds ? FOLD_JOIN_THREADS : join ? ROW_JOIN_THREADS : row->threads;
    Writer *w = &k->body;
    Chunked c;
    chunked_init(&c, k, k->kernel->n_dims - 1);
    k->family = join ? "join" : "row";
    k->parameters = "const __grid_constant__ IsoRowArgs args";
    k->arguments = "IsoRowArgs";
    k->threads = threads > 1 ? threads : ROW_ALONE_THREADS;
    k->bounds = str_format(k->arena, "%d", k->threads).s;
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_prim.cuh\n"
                   "iso_map.cuh\niso_row.cuh\n");
    if (folds || (row->spread && !join)) {
        k->cluster = row->cluster;
        k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_prim.cuh\n"
                   "iso_map.cuh\niso_row.cuh\niso_row_spread.cuh\n");
    }

    writer_line(w, "const IsoMapArgs &map = %s;",
                join ? "args.map" : "blockIdx.y ? args.also : args.map");
    chunked_extents(&c);
    write_rows_loop(w, threads, join ? 1 : row->cluster);
    chunked_row(&c);
    chunked_own(&c);
    if (row->roots_out && !join)
        row_write_place(&c);
    if (join)
        write_joined(&c);
    for (int i = 0; i < row->n_reduces && !join; i++)
        row_write_reduce(&c, i);
    if (join || !row->roots_out) {
        chunked_store_row(&c, k->cluster > 1 ? "threadIdx.x == 0 && iso_cluster_rank() == 0"
                              : threads > 1  ? "threadIdx.x == 0" : NULL);
        if (chunked_store(&c, "store"))
            writer_line(w, "iso_row_each<%.*s>(e%d, vector, store);",
                        STR_FMT(store_pace(&c, threads)), c.inner);
    }
    writer_close(w, "");
}
