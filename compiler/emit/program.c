/* The whole CUDA text: every distinct kernel once, in order of name. */
#include "emit_impl.h"

#include <stdlib.h>
#include <string.h>

static void emit_rows(KernelText *k)
{
    if (k->kernel->row.columns)
        emit_slots(k);
    else
        emit_row(k);
}

static void emit_family(KernelText *k)
{
    switch (k->kernel->family) {
    case FAMILY_MAP: emit_map(k); break;
    case FAMILY_ROW: emit_rows(k); break;
    case FAMILY_GEMM: emit_gemm(k); break;
    case FAMILY_ATTEND: emit_attend(k); break;
    case FAMILY_DRAW: emit_draw(k); break;
    case FAMILY_TOP: emit_top(k); break;
    case FAMILY_ORDER: emit_order(k); break;
    case FAMILY_JOIN:
        if (k->kernel->join.of == FAMILY_ROW)
            emit_rows(k);
        else
            emit_join(k);
        break;
    }
}

/* The name is the digest of all that is in the function and before it. */
static Str kernel_name(KernelText *k)
{
    Text all = {.arena = k->arena};
    text_printf(&all, "%s\n%s\n%s %d\n%.*s\n%.*s", k->family, k->parameters, k->bounds,
                k->cluster, STR_FMT(text_str(&k->head.text)), STR_FMT(text_str(&k->body.text)));
    Str text = text_str(&all);
    Digest digest = sha256(text.s, (size_t)text.n);
    return str_format(k->arena, "iso_%s_%.16s", k->family, digest_hex(k->arena, &digest).s);
}

/* A namespace of its own keeps the kernel's structs and constants from those of others. */
static Str kernel_text(KernelText *k, Str name)
{
    Writer w;
    writer_init(&w, k->arena);
    writer_open_flat(&w, "namespace text_%.*s", STR_FMT(name));
    if (k->head.text.n) {
        writer_insert(&w, text_str(&k->head.text));
        writer_line(&w, "%s", "");
    }
    writer_line(&w, "extern \"C\" __global__ void __launch_bounds__(%s)", k->bounds);
    if (k->cluster > 1)
        writer_line(&w, "__cluster_dims__(%d, 1, 1)", k->cluster);
    writer_open(&w, "%.*s(%s)", STR_FMT(name), k->parameters);
    writer_insert(&w, text_str(&k->body.text));
    writer_close(&w, "");
    writer_close_flat(&w);
    return text_str(&w.text);
}

void emit_kernel(const Contract *contract, const Kernel *kernel, EmittedKernel *out, Arena *arena)
{
    KernelText k = {.arena = arena, .contract = contract, .kernel = kernel};
    writer_init(&k.head, arena);
    writer_init(&k.body, arena);
    emit_family(&k);
    *out = (EmittedKernel){.name = kernel_name(&k), .kernel = kernel,
                           .arguments = str_of(k.arguments), .device_files = k.files,
                           .threads = k.threads, .shared_bytes = k.shared_bytes,
                           .census = k.census};
    out->text = kernel_text(&k, out->name);
}

/* ---- programs -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    Str x = ((const EmittedKernel *)a)->name, y = ((const EmittedKernel *)b)->name;
    int n = x.n < y.n ? x.n : y.n, order = memcmp(x.s, y.s, (size_t)n);
    return order ? order : x.n - y.n;
}

static int find_kernel(const Emitted *out, Str name)
{
    for (int i = 0; i < out->n_kernels; i++)
        if (str_eq(out->kernels[i].name, name))
            return i;
    return -1;
}

/* Every device file once, in the order of first use. */
static void write_includes(Writer *w, const Emitted *out)
{
    Text seen = {.arena = w->text.arena};
    text_add(&seen, STR("\n"));
    for (int i = 0; i < out->n_kernels; i++) {
        Str rest = out->kernels[i].device_files;
        while (rest.n > 0) {
            int n = (int)((const char *)memchr(rest.s, '\n', (size_t)rest.n) - rest.s);
            Str line = str_format(w->text.arena, "\n%.*s\n", n, rest.s);
            if (!strstr(seen.s, line.s)) {
                text_printf(&seen, "%.*s\n", n, rest.s);
                writer_line(w, "#include \"%.*s\"", n, rest.s);
            }
            rest.s += n + 1;
            rest.n -= n + 1;
        }
    }
}

/* Which ops run the kernel, and its arithmetic. */
static void write_kernel_comment(Writer *w, const Plan *plan, const Emitted *out, int index)
{
    const EmittedKernel *k = &out->kernels[index];
    Text ops = {.arena = w->text.arena};
    for (int i = 0; i < plan->kernels.n; i++) {
        if (out->program_of_kernel[i] != index)
            continue;
        Str op = plan->kernels.v[i]->op->op->name;
        if (!ops.n || !strstr(ops.s, str_format(w->text.arena, " %.*s;", STR_FMT(op)).s))
            text_printf(&ops, " %.*s;", STR_FMT(op));
    }
    const Census *c = &k->census;
    writer_line(w, "//%.*s threads %d, shared %lld", STR_FMT(text_str(&ops)), k->threads,
                (long long)k->shared_bytes);
    writer_line(w, "// add %d, mul %d, fma %d, div %d, sqrt %d, mma %d", c->add, c->mul, c->fma,
                c->div, c->sqrt, c->mma_steps);
}

static bool has_groups(const Plan *plan)
{
    for (int i = 0; i < plan->kernels.n; i++)
        if (plan->kernels.v[i]->family == FAMILY_GEMM && plan->kernels.v[i]->gemm.grouped)
            return true;
    return false;
}

static Str add_order(const Plan *plan, Emitted *out, Arena *arena)
{
    Kernel *kernel = arena_new_of(arena, Kernel);
    EmittedKernel *order = &out->kernels[out->n_kernels++];
    kernel->family = FAMILY_ORDER;
    emit_kernel(plan->dag->contract, kernel, order, arena);
    return order->name;
}

static void emit_kernels(const Plan *plan, Emitted *out, Str *names, Arena *arena)
{
    Str order = has_groups(plan) ? add_order(plan, out, arena) : (Str){0};
    for (int i = 0; i < plan->kernels.n; i++) {
        EmittedKernel kernel;
        emit_kernel(plan->dag->contract, plan->kernels.v[i], &kernel, arena);
        names[i] = kernel.name;
        if (find_kernel(out, kernel.name) < 0)
            out->kernels[out->n_kernels++] = kernel;
    }
    if (out->n_kernels)
        qsort(out->kernels, (size_t)out->n_kernels, sizeof *out->kernels, by_name);
    for (int i = 0; i < plan->kernels.n; i++)
        out->program_of_kernel[i] = find_kernel(out, names[i]);
    out->order = order.n ? find_kernel(out, order) : -1;
}

static void write_provenance(Writer *w, Str lines)
{
    while (lines.n > 0) {
        const char *end = memchr(lines.s, '\n', (size_t)lines.n);
        int n = end ? (int)(end - lines.s) : lines.n;
        writer_line(w, "// %.*s", n, lines.s);
        lines.s += end ? n + 1 : n;
        lines.n -= end ? n + 1 : n;
    }
}

bool emit_program(const Plan *plan, Str provenance, Emitted *out, Arena *arena, Diags *diags)
{
    (void)diags; /* what no family can do was refused when it was planned */
    int n = plan->kernels.n;
    *out = (Emitted){.kernels = arena_array(arena, EmittedKernel, n + 2),
                     .program_of_kernel = arena_array(arena, int, n + 1)};
    emit_kernels(plan, out, arena_array(arena, Str, n + 1), arena);
    Writer w;
    writer_init(&w, arena);
    write_provenance(&w, provenance);
    writer_line(&w, "%s", "");
    write_includes(&w, out);
    for (int i = 0; i < out->n_kernels; i++) {
        writer_line(&w, "%s", "");
        write_kernel_comment(&w, plan, out, i);
        writer_insert(&w, out->kernels[i].text);
    }
    out->program = text_str(&w.text);
    return true;
}
