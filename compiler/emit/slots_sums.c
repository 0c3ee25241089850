/* The sums over slots themselves: the tree's operations, roots for other ranks, and the join of
 * theirs. */
#include "slots_impl.h"

enum { ROOTS_WRITTEN = 8 }; /* joined one by one; more in a loop, if the tree lets them */

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct Stack {
    int n, v[MAX_LEAVES + 1];
} Stack;

static void write_ops(Summing *s, const char *monoid, const JoinOp *ops, int n, Stack *stack)
{
    Writer *w = &s->c.k->body;
    for (int i = 0; i < n; i++) {
        int top = stack->v[stack->n - 1];
        if (ops[i].kind == NODE_ROUND) {
            writer_line(w, "iso_slots_round<%s, %s>(q%d);", monoid, row_type(ops[i].type), top);
            continue;
        }
        stack->n--;
        writer_line(w, "iso_slots_join<%s, %s>(q%d, q%d);", monoid, row_type(ops[i].type),
                    stack->v[stack->n - 1], top);
        s->c.k->census.add++;
    }
}

/* What no slot stands below. */
static Str nothing_text(const Summing *s, Monoid monoid)
{
    return str_format(s->c.k->arena, "0x%08Xu", monoid == MONOID_SUM ? 0u : 0xFF800000u);
}

/* The lambda that takes a root; afterwards those that no slot stands below. */
static void write_root(Summing *s, const DagNode *reduce, const char *monoid, int index)
{
    Writer *w = &s->c.k->body;
    Str nothing = nothing_text(s, reduce->monoid);
    writer_open(w, "const auto root%d = [&](int r, const IsoColumns<%s, %d> &value)", index, monoid,
                slots_width(s, reduce));
    if (s->c.k->kernel->row.roots_out && monoid_values(reduce->monoid) == 2)
        writer_line(w, "const IsoPair nothing = {__uint_as_float(%.*s), 0.0f};",
                    STR_FMT(nothing));
    else if (s->c.k->kernel->row.roots_out)
        writer_line(w, "const float nothing = __uint_as_float(%.*s);", STR_FMT(nothing));
    if (s->c.k->kernel->row.roots_out)
        writer_line(w, "iso_slots_store(args, r, column, live ? n : 0, value, nothing);");
    writer_close(w, ";");
}

static void write_absent(Summing *s, const RowTree *tree, const char *monoid, int index)
{
    Writer *w = &s->c.k->body;
    SlotTree ops;
    slots_tree(&tree->program, true, &ops);
    writer_line(w, "const IsoColumns<%s, %d> none = {};", monoid, s->c.width);
    for (int r = 0; r < ops.n_roots; r++) {
        writer_line(w, "if (!(codes%d.have & 0x%xu))", index, ops.root[r]);
        writer_line(w, "    root%d(%d, none);", index, r);
    }
}

/* The one root of parts that are joined, or those of parts that no slot is in. */
static void write_absent_alike(Summing *s, const RowTree *tree, const AlikeTree *alike,
                               const char *monoid, int index)
{
    Writer *w = &s->c.k->body;
    if (!alike->each) {
        writer_line(w, "root%d(0, q%d);", index, index);
        return;
    }
    writer_line(w, "const IsoColumns<%s, %d> none = {};", monoid, s->c.width);
    writer_line(w, "#pragma unroll 1");
    writer_line(w, "for (int r = 0; r < %d; ++r)", tree->n_parts);
    writer_line(w, "    if (!__ballot_sync(ISO_SLOTS_ALL, codes%d.have == (unsigned)r))", index);
    writer_line(w, "        root%d(r, none);", index);
}

/* The reduce's values, held as its type is. */
static void write_value(Summing *s, const DagNode *reduce, int q, int index)
{
    KernelText *k = s->c.k;
    Str nothing = nothing_text(s, reduce->monoid), text;
    if (reduce->monoid == MONOID_LOGSUMEXP)
        text = str_format(k->arena, "iso_slots_log<%s>(q%d.v[e], q%d.any, %.*s)",
                          row_type(reduce->type), q, q, STR_FMT(nothing));
    else
        text = str_format(k->arena, "iso_slots_final(q%d.v[e], q%d.any, %.*s)", q, q,
                          STR_FMT(nothing));
    text = expr_round_text(k->arena, reduce->type, text);
    writer_line(&k->body, "%s r%d[%d];", expr_held(reduce->type), index, slots_width(s, reduce));
    writer_line(&k->body, "#pragma unroll");
    writer_line(&k->body, "for (int e = 0; e < %d; ++e)", slots_width(s, reduce));
    writer_line(&k->body, "    r%d[e] = %.*s;", index, STR_FMT(text));
    expr_bind(&s->c.row, reduce,
              str_format(k->arena, "r%d[%s]", index, reduce->mask & s->c.atoms ? "e" : "0"));
}

void slots_write_reduce(Summing *s, int index)
{
    const Kernel *kernel = s->c.k->kernel;
    const DagNode *reduce = kernel->row.reduces[index];
    const RowTree *tree = &kernel->row.trees[index];
    const DagNode *product = tree->form == TREE_CHAIN ? expr_product(reduce) : NULL;
    const DagNode *values[2] = {product ? product->args[0] : reduce->args[0],
                                product ? product->args[1] : NULL};
    const char *monoid = row_monoid(reduce->monoid, product != NULL);
    int width = slots_width(s, reduce);
    AlikeTree alike;
    Writer *w = &s->c.k->body;
    slots_write_terms(s, values, product ? 2 : 1, width, index);
    write_root(s, reduce, monoid, index);
    writer_line(w, "const IsoColumns<%s, %d> q%d = iso_slots_sum<Tree%d, %s, %d, %lld, %d>("
                   "codes%d, IsoSlotStack<%s, %d, %d>{waiting, 0}, load%d, body%d, root%d);",
                monoid, width,
                index, index, monoid, width, (long long)s->n, slots_batch(s), index, monoid, width,
                s->threads, index, index, index);
    s->c.k->census.fma += product != NULL;
    s->c.k->census.add += (!product && reduce->monoid == MONOID_SUM) + tree->program.total_ops;
    if (!kernel->row.roots_out)
        write_value(s, reduce, index, index);
    else if (slots_alike(tree, &alike))
        write_absent_alike(s, tree, &alike, monoid, index);
    else
        write_absent(s, tree, monoid, index);
}

/* Each root is joined to those before it, and nothing else is done. */
static bool joins_left(const JoinProgram *program)
{
    const JoinOp *op = program->ops;
    DType type = program->total_ops ? op[program->total_ops - 1].type : DT_F32;
    for (int r = 0; r < program->n_roots; r++)
        for (int i = 0; i < program->n_ops[r]; i++, op++)
            if (r == 0 || program->n_ops[r] > 1 || op->kind != NODE_JOIN || op->type != type)
                return false;
    return program->total_ops == program->n_roots - 1;
}

/* The same by a loop. */
static void write_joined_left(Summing *s, const char *monoid, int place)
{
    const Join *join = &s->c.k->kernel->join;
    Writer *w = &s->c.k->body;
    DType type = join->program.ops[join->program.total_ops - 1].type;
    writer_line(w, "IsoColumns<%s, %d> q0 = {};", monoid, s->c.width);
    writer_line(w, "int next = 0;");
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "for (int source = 0; source < %d; ++source)", join->n_sources);
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "for (int r = 0; r < args.source[source].roots; ++r, ++next)");
    writer_line(w, "const bool any = iso_slots_in(place%d, root_begin[next], root_end[next]);",
                place);
    writer_line(w, "const IsoColumns<%s, %d> x = iso_slots_root<%s, %d>(args.source[source], r, "
                   "column, live ? n : 0, any);", monoid, s->c.width, monoid, s->c.width);
    writer_line(w, "iso_slots_join<%s, %s>(q0, x);", monoid, row_type(type));
    writer_close(w, "");
    writer_close(w, "");
    s->c.k->census.add++;
}

void slots_write_root_ranges(KernelText *k)
{
    const Join *join = &k->kernel->join;
    Text begin = {.arena = k->arena}, end = {.arena = k->arena};
    for (int r = 0; r < join->n_roots; r++) {
        const Run *run = &join->runs[r];
        text_printf(&begin, "%s%lld", r ? ", " : "", (long long)run->start);
        text_printf(&end, "%s%lld", r ? ", " : "", (long long)(run->start + run->len));
    }
    writer_line(&k->head, "__constant__ constexpr int root_begin[] = {%.*s};",
                STR_FMT(text_str(&begin)));
    writer_line(&k->head, "__constant__ constexpr int root_end[] = {%.*s};",
                STR_FMT(text_str(&end)));
}

/* From the roots that all ranks sent: those are there below which a slot stands. */
void slots_write_joined(Summing *s)
{
    const Join *join = &s->c.k->kernel->join;
    const DagNode *reduce = join->reduces[0];
    const char *monoid = row_monoid(reduce->monoid, false);
    const JoinOp *ops = join->program.ops;
    int place = slots_place(s->c.k->kernel, reduce), source = 0, within = 0;
    Stack stack = {0};
    if (join->n_roots > ROOTS_WRITTEN && joins_left(&join->program)) {
        write_joined_left(s, monoid, place);
        write_value(s, reduce, 0, 0);
        return;
    }
    for (int r = 0; r < join->n_roots; r++) {
        while (within == join->roots_of_rank[source]) {
            source++;
            within = 0;
        }
        writer_line(&s->c.k->body,
                    "IsoColumns<%s, %d> q%d = iso_slots_root<%s, %d>(args.source[%d], %d, "
                    "column, live ? n : 0, iso_slots_in(place%d, %lld, %lld));", monoid,
                    s->c.width, r,
                    monoid, s->c.width, source, within++, place, (long long)join->runs[r].start,
                    (long long)(join->runs[r].start + join->runs[r].len));
        stack.v[stack.n++] = r;
        write_ops(s, monoid, ops, join->program.n_ops[r], &stack);
        ops += join->program.n_ops[r];
    }
    write_value(s, reduce, stack.v[0], 0);
}
