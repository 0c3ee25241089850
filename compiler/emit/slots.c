/* Sums over a token's slots, a thread for neighbouring columns: its slots' elements are loaded some
 * at once, in the order of their places, and what of the tree they need is done between them. */
#include "slots_impl.h"

enum { SLOT_THREADS = 128, WARP = 32, SHARED_MAX = 48 * 1024 };

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Bytes of a thread's values that wait for their right sides. */
static i64 waiting_bytes(const Summing *s)
{
    const Row *row = &s->c.k->kernel->row;
    i64 most = 16;
    for (int i = 0; i < row->n_reduces && s->c.k->kernel->family != FAMILY_JOIN; i++) {
        i64 each = (i64)s->c.width * monoid_values(row->reduces[i]->monoid) * 4;
        AlikeTree alike;
        int depth = slots_alike(&row->trees[i], &alike) ? 2 : row->trees[i].program.depth;
        i64 bytes = (depth - 1) * each;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int threads_of(const Summing *s)
{
    int threads = SLOT_THREADS;
    while (threads > WARP && threads * waiting_bytes(s) > SHARED_MAX)
        threads /= 2;
    return threads;
}

/* What is the same for all rows. */
static void write_before(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    writer_line(w, "const unsigned groups = (e%d + %d) / %d;", s->c.inner, WARP * s->c.width - 1,
                WARP * s->c.width);
    writer_line(w, "const int lane = threadIdx.x %% %d;", WARP);
    if (kernel->family == FAMILY_JOIN) {
        slots_write_root_ranges(s->c.k);
        return;
    }
    writer_line(w, "__shared__ float4 waiting[%lld];",
                (long long)(waiting_bytes(s) / 16 * s->threads));
    for (int i = 0; i < kernel->row.n_reduces; i++) {
        SlotTree ops;
        AlikeTree alike;
        if (slots_alike(&kernel->row.trees[i], &alike)) {
            slots_write_alike(s->c.k, &alike, i);
            continue;
        }
        slots_tree(&kernel->row.trees[i].program, kernel->row.roots_out, &ops);
        slots_write_tree(s->c.k, &kernel->row.trees[i], &ops, i);
    }
}

/* Each warp has neighbouring tasks: columns of a row, then those of the next. */
static void open_tasks(Summing *s)
{
    Writer *w = &s->c.k->body;
    writer_line(w, "const unsigned tasks = rows * groups, warps = gridDim.x * %du;",
                s->threads / WARP);
    writer_line(w, "const unsigned share = (tasks + warps - 1) / warps;");
    writer_line(w, "unsigned task = (blockIdx.x * %du + threadIdx.x / %d) * share;",
                s->threads / WARP, WARP);
    writer_line(w, "const unsigned end = task + share < tasks ? task + share : tasks;");
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "while (task < end)");
    writer_line(w, "const unsigned row = task / groups;");
    writer_line(w, "const unsigned stop = (row + 1) * groups < end ? (row + 1) * groups : end;");
}

static bool has_reduce(const DagNode *node)
{
    bool found = node->kind == DAG_REDUCE;
    for (int i = 0; i < node->n_args && !found; i++)
        found = has_reduce(node->args[i]);
    return found;
}

/* What the terms have of a row, and of a lane's slot, before any sum. */
static void write_row_values(Summing *s, const DagNode *reduce, int index)
{
    DagNodes below;
    expr_below(s->c.k->arena, reduce->args, 1, &below);
    for (int i = 0; i < below.n; i++) {
        const DagNode *node = below.v[i];
        if (node->kind == DAG_CONST || (node->mask & s->c.atoms) || has_reduce(node))
            continue;
        if (node->mask & s->slots)
            slots_ordered(s, node, index);
        else
            expr_value(&s->c.row, node);
    }
}

static void write_row_start(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    chunked_row(&s->c);
    slots_write_lanes(s);
    for (int i = 0; i < kernel->row.n_reduces && kernel->family != FAMILY_JOIN; i++) {
        int place = slots_place(kernel, kernel->row.reduces[i]);
        if (place < 0) {
            writer_line(w, "IsoSlots slots%d;", i);
            writer_line(w, "slots%d.count<%lld>();", i, (long long)s->n);
        }
        AlikeTree alike;
        if (slots_alike(&kernel->row.trees[i], &alike))
            writer_line(w, "const IsoSlotCodes codes%d = iso_slots_alike<Tree%d>(%s%d);", i, i,
                        place < 0 ? "slots" : "order", place < 0 ? i : place);
        else
            writer_line(w, "const IsoSlotCodes codes%d = iso_slots_codes<Tree%d, %lld>(%s%d, "
                           "follow%d);", i, i, (long long)s->n, place < 0 ? "slots" : "order",
                        place < 0 ? i : place, i);
        write_row_values(s, kernel->row.reduces[i], i);
    }
    if (kernel->family == FAMILY_JOIN || kernel->row.roots_out)
        row_write_place(&s->c);
}

static void write_chunk(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    Writer *w = &s->c.k->body;
    int inner = s->c.inner, width = s->c.width;
    writer_line(w, "const unsigned first = (task %% groups * %d + lane) * %d;", WARP, width);
    writer_line(w, "const long long i = first;");
    writer_line(w, "const int n = first >= e%d ? 0 : first + %d <= e%d ? %d : (int)(e%d - first);",
                inner, width, inner, width, inner);
    slots_write_fast(s);
    if (kernel->family == FAMILY_JOIN)
        writer_line(w, "const long long start = (long long)place * args.source_columns + "
                       "args.column_begin + first;");
    else if (kernel->row.roots_out)
        writer_line(w, "const long long start = (long long)place * map.extent[%d] + first;",
                    inner);
}

/* The sums and what is computed of them, of s->c.width columns. */
static void write_work(Summing *s)
{
    const Kernel *kernel = s->c.k->kernel;
    const Row *row = &kernel->row;
    const DagNode **values = arena_array(s->c.k->arena, const DagNode *, row->n_reduces + 1);
    int nodes = s->c.row.nodes.n, own = s->lanes.nodes.n, ordered_before = s->ordered.n;
    if (kernel->family == FAMILY_JOIN) {
        slots_write_joined(s);
    } else {
        for (int i = 0; i < row->n_reduces; i++)
            values[i] = row->reduces[i]->args[0];
        chunked_packs(&s->c, s->c.width, values, row->n_reduces);
        for (int i = 0; i < row->n_reduces; i++)
            slots_write_reduce(s, i);
    }
    if ((kernel->family == FAMILY_JOIN || !row->roots_out) && chunked_store(&s->c, "store")) {
        writer_line(&s->c.k->body, "if (live)");
        writer_line(&s->c.k->body, "    store(i, n, wide);");
    }
    s->c.row.nodes.n = s->c.row.names.n = nodes;
    s->lanes.nodes.n = s->lanes.names.n = own;
    s->ordered.n = ordered_before;
}

/* Chunks that lie well are read as they are; a lane beyond the columns reads the first and keeps
 * nothing. Of others each column is a chunk. */
static void write_chunks(Summing *s)
{
    Writer *w = &s->c.k->body;
    bool roots = s->c.k->kernel->family == FAMILY_JOIN || s->c.k->kernel->row.roots_out;
    int width = s->c.width;
    writer_open(w, "if (fast)");
    writer_line(w, "const bool live = n > 0;");
    writer_line(w, "const long long i = live ? first : 0;");
    if (roots)
        writer_line(w, "const long long column = live ? start : start - first;");
    writer_open(w, "const auto work = [&](int n, bool wide)");
    write_work(s);
    writer_close(w, ";");
    writer_line(w, "work(%d, true);", width);
    writer_close(w, " else {");
    writer_line(w, "    #pragma unroll 1");
    writer_open(w, "    for (int c = 0; c < %d; ++c)", width);
    writer_line(w, "const bool live = c < n;");
    writer_line(w, "const long long i = live ? first + c : 0;");
    if (roots)
        writer_line(w, "const long long column = start + c;");
    writer_open(w, "const auto work = [&](int n, bool wide)");
    s->c.width = 1;
    write_work(s);
    s->c.width = width;
    writer_close(w, ";");
    writer_line(w, "work(live, false);");
    writer_close(w, "");
    writer_line(w, "}");
}

static void open_kernel(Summing *s, KernelText *k)
{
    const Kernel *kernel = k->kernel;
    *s = (Summing){.dim = kernel->n_dims - 1};
    chunked_init(&s->c, k, kernel->n_dims - 2);
    s->c.width = row_columns(kernel);
    s->slots = s->c.apart = dim_mask(&kernel->dims[s->dim]);
    s->n = atom_size(k->contract, kernel->dims[s->dim].atoms[0], 0);
    s->threads = threads_of(s);
    k->family = kernel->family == FAMILY_JOIN ? "join" : "slots";
    k->parameters = "const __grid_constant__ IsoRowArgs args";
    k->arguments = "IsoRowArgs";
    k->threads = s->threads;
    k->bounds = str_format(k->arena, "%d, 4", s->threads).s; /* not to spill for more of them */
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_prim.cuh\n"
                   "iso_map.cuh\niso_row.cuh\niso_slots.cuh\n");
}

void emit_slots(KernelText *k)
{
    Writer *w = &k->body;
    Summing s;
    open_kernel(&s, k);
    writer_line(w, "const IsoMapArgs &map = args.map;");
    chunked_extents(&s.c);
    write_before(&s);
    open_tasks(&s);
    write_row_start(&s);
    writer_line(w, "#pragma unroll 1");
    writer_open(w, "for (; task < stop; ++task)");
    write_chunk(&s);
    write_chunks(&s);
    writer_close(w, "");
    writer_close(w, "");
}
