/* What ranks rows, one warp a row: sums over what is ranked, as a row kernel's; the scores, the
 * device library's call; then a lane for each slot. */
#include "emit_impl.h"

enum { TOP_THREADS = 32 };

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

/* ---- what is ranked -------------------------------------------------------------------------- */

static void write_scores(Chunked *c)
{
    const DagNode *scores = c->k->kernel->top.node->args[0];
    int width = each(c->k) < c->width ? each(c->k) : c->width;
    Writer *w = &c->k->body;
    ExprScope element;
    expr_hoist(&c->row, &scores, 1, c->atoms);
    chunked_open(c, "scores", str_format(c->k->arena, ", IsoTerms<%d> &terms", width).s, width,
                 &scores, 1);
    chunked_loop(c, width, &c->row, &element);
    Str value = expr_f32(&element, scores);
    writer_line(w, "terms.a[e] = %.*s;", STR_FMT(value));
    writer_close(w, "");
    writer_close(w, ";");
    writer_line(w, "float z[Rule::each];");
    writer_line(w, "iso_top_scores<Rule, %d>(z, vector, scores);", width);
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
    const Row *row = &c->k->kernel->row;
    const DagNode *reduce = row->reduces[index];
    const DagNode *product = row->trees[index].form == TREE_CHAIN ? expr_product(reduce) : NULL;
    const DagNode *values[2] = {product ? product->args[0] : reduce->args[0],
                                product ? product->args[1] : NULL};
    Str body = str_format(c->k->arena, "body%d", index);
    write_slot_terms(c, slots, values, product ? 2 : 1, body);
    row_bind_reduce(c, index, body, STR("IsoPace<1, 1, 1>"));
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
    writer_line(w, "const int lane = threadIdx.x, slot = lane < Rule::k ? lane : 0;");
    expr_bind(&slots, kernel->top.node, STR("chosen"));
    for (int i = 0; i < kernel->row.n_reduces; i++)
        if (is_of_slots(c->k, kernel->row.reduces[i]))
            write_slot_reduce(c, &slots, i);
    store_slots(c, &slots);
}

void emit_top(KernelText *k)
{
    const Row *row = &k->kernel->row;
    Writer *w = &k->body;
    Chunked c;
    chunked_init(&c, k, TOP_RANKED);
    k->family = "top";
    k->parameters = "const __grid_constant__ IsoMapArgs map";
    k->arguments = "IsoMapArgs";
    k->threads = TOP_THREADS;
    k->bounds = "32";
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_map.cuh\n"
                   "iso_row.cuh\niso_random.cuh\niso_top.cuh\n");
    write_rule(k);
    chunked_extents(&c);
    writer_open(w, "for (unsigned row = blockIdx.x; row < rows; row += gridDim.x)");
    chunked_row(&c);
    for (int i = 0; i < row->n_reduces; i++)
        if (!is_of_slots(k, row->reduces[i]))
            row_write_reduce(&c, i);
    write_scores(&c);
    write_slots(&c);
    writer_close(w, "");
}
