/* What ranks rows, one warp a row: sums over what is ranked, as a row kernel's; the scores, the
 * device library's call; then a lane for each slot. */
#include "emit_impl.h"

enum { TOP_THREADS = 32, TOP_WARPS = 4 };

static const Top *top_of(const KernelText *k)
{
    return &k->kernel->top.computes;
}

static i64 ranked(const KernelText *k)
{
    return k->contract->axes[top_of(k)->axis].size;
}

/* Neighbouring indices of a lane: IsoTop::each. */
static int each(const KernelText *k)
{
    int n = 1;
    while (n * TOP_THREADS < ranked(k))
        n *= 2;
    return n;
}

/* ---- a lane's own indices --------------------------------------------------------------------
 * What is computed of them stays in registers: node N of the graph is aN[k + e] in loops over
 * all. */

static int chunk(const Chunked *c)
{
    return each(c->k) < c->width ? each(c->k) : c->width;
}

static bool is_known(const Chunked *c, const DagNode *node)
{
    for (int i = 0; i < c->row.nodes.n; i++)
        if (c->row.nodes.v[i] == node)
            return true;
    return false;
}

/* Nodes that are computed of each index and not known yet; `inputs`: those that are read. */
static void find_new(const Chunked *c, const DagNode *const *values, int n, DagNodes *all,
                     DagNodes *inputs)
{
    DagNodes below;
    expr_below(c->k->arena, values, n, &below);
    *all = *inputs = (DagNodes){0};
    for (int i = 0; i < below.n; i++) {
        const DagNode *node = below.v[i];
        if (!(node->mask & c->atoms) || node->kind == DAG_CONST || is_known(c, node))
            continue;
        vec_push(c->k->arena, all, node);
        if (node->kind == DAG_INPUT)
            vec_push(c->k->arena, inputs, node);
    }
}

static void compute_lanes(Chunked *c, const DagNode *const *values, int n)
{
    Writer *w = &c->k->body;
    DagNodes all, inputs;
    ExprScope element;
    expr_hoist(&c->row, values, n, c->atoms);
    find_new(c, values, n, &all, &inputs);
    if (!all.n)
        return;
    for (int i = 0; i < all.n; i++)
        writer_line(w, "%s a%d[Rule::each] = {};", expr_held(all.v[i]->type), all.v[i]->number);
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int k = 0; k < Rule::each; k += %d)", chunk(c));
    writer_open(w, "const auto chunk = [&](long long i, int n, bool wide)");
    chunked_packs(c, chunk(c), inputs.v, inputs.n);
    chunked_loop(c, chunk(c), &c->row, &element);
    for (int i = 0; i < all.n; i++) {
        Str value = expr_value(&element, all.v[i]);
        writer_line(w, "a%d[k + e] = %.*s;", all.v[i]->number, STR_FMT(value));
    }
    writer_close(w, "");
    writer_close(w, ";");
    writer_line(w, "if (own + k < Rule::n)");
    writer_line(w, "    iso_chunk<%d>(own + k, Rule::n, vector, chunk);", chunk(c));
    writer_close(w, "");
    for (int i = 0; i < all.n; i++)
        expr_bind(&c->row, all.v[i], str_format(c->k->arena, "a%d[k + e]", all.v[i]->number));
}

/* Lane l of the tree has just the indices of lane l. */
static bool is_by_lanes(const KernelText *k, int index)
{
    const RowTree *tree = &k->kernel->row.trees[index];
    return tree->n_parts == 1 && tree->program.total_ops == 0 && tree->lanes == TOP_THREADS &&
           tree->run == each(k) && tree->lane_join == JOIN_PAIRWISE;
}

static void write_lane_reduce(Chunked *c, int index)
{
    const DagNode *reduce = c->k->kernel->row.reduces[index];
    const RowTree *tree = &c->k->kernel->row.trees[index];
    const DagNode *product = tree->form == TREE_CHAIN ? expr_product(reduce) : NULL;
    const DagNode *values[2] = {product ? product->args[0] : reduce->args[0],
                                product ? product->args[1] : NULL};
    Writer *w = &c->k->body;
    ExprScope element;
    compute_lanes(c, values, product ? 2 : 1);
    writer_line(w, "IsoTerms<Rule::each> terms%d;", index);
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int k = 0; k < Rule::each; k += %d)", chunk(c));
    chunked_loop(c, chunk(c), &c->row, &element);
    for (int i = 0; i < (product ? 2 : 1); i++) {
        Str value = expr_f32(&element, values[i]);
        writer_line(w, "terms%d.%c[k + e] = %.*s;", index, "ab"[i], STR_FMT(value));
    }
    writer_close(w, "");
    writer_close(w, "");
    row_bind_value(c, reduce,
                   str_format(c->k->arena, "iso_top_reduce<Rule, %s, %s>(terms%d)",
                              row_monoid(reduce->monoid, product != NULL),
                              row_type(tree->lane_type), index));
    c->k->census.fma += product != NULL;
    c->k->census.add += !product && reduce->monoid == MONOID_SUM;
}

/* ---- what is ranked -------------------------------------------------------------------------- */

static void write_scores(Chunked *c)
{
    const DagNode *scores = c->k->kernel->top.node->args[0];
    Writer *w = &c->k->body;
    ExprScope element;
    compute_lanes(c, &scores, 1);
    writer_line(w, "float z[Rule::each];");
    writer_line(w, "#pragma unroll");
    writer_open(w, "for (int k = 0; k < Rule::each; k += %d)", chunk(c));
    chunked_loop(c, chunk(c), &c->row, &element);
    Str value = expr_f32(&element, scores);
    writer_line(w, "z[k + e] = %.*s;", STR_FMT(value));
    writer_close(w, "");
    writer_close(w, "");
    writer_line(w, "const int chosen = (int)iso_top<Rule>(z);");
}

static void write_rule(KernelText *k)
{
    const Top *top = top_of(k);
    writer_line(&k->head, "typedef IsoTop<%lld, %lld, %lld, %lld, %lld, %s> Rule;",
                (long long)ranked(k), (long long)top->k, (long long)top->groups,
                (long long)top->keep, (long long)top->group_sum,
                top->by_index ? "true" : "false");
    k->census.add += top->groups > 1 && top->group_sum > 1;
}

/* ---- slots: lanes below their number, the others as the first -------------------------------- */

static Str slot_input(void *user, const DagNode *node)
{
    const Chunked *c = user;
    int b = kernel_input(c->k->kernel, -1, node);
    Writer *w = &c->k->body;
    Str at = STR("0");
    if (c->k->kernel->bindings[b].has[TOP_SLOTS])
        at = str_format(c->k->arena, "slot * map.view[%d].stride[%d]", b, TOP_SLOTS);
    if (c->k->kernel->bindings[b].lookup < 0)
        return str_format(c->k->arena, "p%d[%.*s]", b, STR_FMT(at));
    writer_line(w, "const long long l%d = iso_look_up(chosen, map.lookup[%d]);", b,
                chunked_lookup(c, b));
    return str_format(c->k->arena, "l%d < 0 ? (%s)0 : p%d[%.*s + l%d]", b,
                      expr_held(node->type), b, STR_FMT(at), b);
}

static bool is_of_slots(const KernelText *k, const DagNode *reduce)
{
    return reduce->atoms[0] == top_of(k)->picks;
}

/* The lambda that gives a sum over slots its terms: each is in its own lane. */
static void write_slot_terms(Chunked *c, ExprScope *slots, const DagNode *const *values, int n,
                             Str name)
{
    Writer *w = &c->k->body;
    Str terms[2];
    for (int i = 0; i < n; i++)
        terms[i] = expr_f32(slots, values[i]);
    writer_open(w, "const auto %.*s = [&](long long i, int, bool, IsoTerms<1> &terms)",
                STR_FMT(name));
    for (int i = 0; i < n; i++)
        writer_line(w, "terms.%c[0] = __shfl_sync(ISO_TOP_ALL, %.*s, (int)i);", "ab"[i],
                    STR_FMT(terms[i]));
    writer_close(w, ";");
}

static void write_slot_reduce(Chunked *c, ExprScope *slots, int index)
{
    const RowTree *tree = &c->k->kernel->row.trees[index];
    const DagNode *reduce = c->k->kernel->row.reduces[index];
    const DagNode *product = tree->form == TREE_CHAIN ? expr_product(reduce) : NULL;
    const DagNode *values[2] = {product ? product->args[0] : reduce->args[0],
                                product ? product->args[1] : NULL};
    Str body = str_format(c->k->arena, "body%d", index);
    if (tree->n_parts == 1 && tree->lanes == 1 && tree->program.total_ops == 0) {
        Str a = expr_f32(slots, values[0]), b = product ? expr_f32(slots, values[1]) : a;
        row_bind_value(c, reduce, str_format(c->k->arena, "iso_top_chain<Rule, %s>(%.*s, %.*s)",
                                             row_monoid(reduce->monoid, product != NULL),
                                             STR_FMT(a), STR_FMT(b)));
    } else {
        write_slot_terms(c, slots, values, product ? 2 : 1, body);
        row_bind_reduce(c, index, body, STR("IsoPace<1, 1, 1>"));
    }
    c->k->census.fma += product != NULL;
    c->k->census.add += !product && reduce->monoid == MONOID_SUM;
}

static void store_slots(Chunked *c, ExprScope *slots)
{
    const Kernel *kernel = c->k->kernel;
    Writer *w = &c->k->body;
    for (int i = 0; i < kernel->n_pieces; i++) {
        const DagPiece *piece = kernel->pieces[i];
        int b = kernel_piece(kernel, -1, piece);
        bool own = kernel->bindings[b].has[TOP_SLOTS];
        Str value = expr_value(own ? slots : &c->row, piece->value);
        if (own)
            writer_line(w, "if (lane < Rule::k)");
        else
            writer_line(w, "if (lane == 0)");
        writer_line(w, "    p%d[%s%s] = %.*s;", b, own ? "slot * " : "0",
                    own ? str_format(c->k->arena, "map.view[%d].stride[%d]", b, TOP_SLOTS).s : "",
                    STR_FMT(value));
    }
}

static void write_slots(Chunked *c)
{
    const Kernel *kernel = c->k->kernel;
    Writer *w = &c->k->body;
    ExprScope slots = {.w = w, .outer = &c->row, .census = &c->k->census, .input = slot_input,
                       .user = c};
    writer_line(w, "const int slot = lane < Rule::k ? lane : 0;");
    expr_bind(&slots, kernel->top.node, STR("chosen"));
    for (int i = 0; i < kernel->row.n_reduces; i++)
        if (is_of_slots(c->k, kernel->row.reduces[i]))
            write_slot_reduce(c, &slots, i);
    store_slots(c, &slots);
}

static bool is_ranked_by_lanes(const KernelText *k)
{
    const Row *row = &k->kernel->row;
    for (int i = 0; i < row->n_reduces; i++)
        if (!is_of_slots(k, row->reduces[i]) && !is_by_lanes(k, i))
            return false;
    return true;
}

/* A row kernel's sums wait for all threads: then a CTA has one row. */
static void open_rows(KernelText *k)
{
    Writer *w = &k->body;
    int warps = is_ranked_by_lanes(k) ? TOP_WARPS : 1;
    k->threads = warps * TOP_THREADS;
    k->bounds = str_format(k->arena, "%d", k->threads).s;
    writer_line(w, "const int lane = threadIdx.x %% %d, own = lane * Rule::each;", TOP_THREADS);
    writer_open(w, "for (unsigned row = blockIdx.x * %du + threadIdx.x / %d; row < rows; "
                   "row += gridDim.x * %du)", warps, TOP_THREADS, warps);
}

void emit_top(KernelText *k)
{
    const Row *row = &k->kernel->row;
    Chunked c;
    chunked_init(&c, k, TOP_RANKED);
    k->family = "top";
    k->parameters = "const __grid_constant__ IsoMapArgs map";
    k->arguments = "IsoMapArgs";
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_prim.cuh\n"
                   "iso_map.cuh\niso_row.cuh\niso_random.cuh\niso_top.cuh\n");
    write_rule(k);
    chunked_extents(&c);
    open_rows(k);
    chunked_row(&c);
    for (int i = 0; i < row->n_reduces; i++) {
        if (is_of_slots(k, row->reduces[i]))
            continue;
        if (is_by_lanes(k, i))
            write_lane_reduce(&c, i);
        else
            row_write_reduce(&c, i);
    }
    write_scores(&c);
    write_slots(&c);
    writer_close(&k->body, "");
}
