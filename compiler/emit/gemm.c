/* Products and the joins of their roots: an Op struct for the device library (iso_gemm.cuh) and
 * the call of its kernel. The shapes are those of tests/gpu/samples. */
#include "emit_impl.h"

/* "LL+" as 'L', 'L', '+' */
static Str quoted(Arena *arena, Str program)
{
    Text text = {.arena = arena};
    for (int i = 0; i < program.n; i++)
        text_printf(&text, "%s'%c'", i ? ", " : "", program.s[i]);
    return text_str(&text);
}

static void write_op(KernelText *k, Str program, bool epilogue)
{
    const Gemm *gemm = &k->kernel->gemm;
    const GemmProduct *product = &gemm->group[0].product[0];
    bool join = k->kernel->family == FAMILY_JOIN;
    bool f16 = !join && binding_tensor(k->kernel, gemm->a)->type == DT_F16;
    bool a_trans = !join && !gemm->a_k_inner, b_trans = !join && !product->b_k_inner;
    static const char *const truth[2] = {"false", "true"};
    Writer *w = &k->head;
    writer_open(w, epilogue ? "struct Op" : "struct Op : IsoNoEpilogue");
    writer_line(w, "static constexpr int groups = %d, parts = %d;", gemm->n_groups,
                gemm->group[0].n_products);
    writer_line(w, "static constexpr bool f16 = %s, a_trans = %s, b_trans = %s;", truth[f16],
                truth[a_trans], truth[b_trans]);
    writer_line(w, "using Tree = IsoTree<%.*s>;", STR_FMT(quoted(k->arena, program)));
    if (gemm->fold.n_reduces)
        fold_write_op(k);
    else if (epilogue)
        emit_epilogues(k);
    writer_close(w, ";");
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void count_leaves(KernelText *k)
{
    const Gemm *gemm = &k->kernel->gemm;
    int group = k->contract->numerics->group, parts = gemm->group[0].n_products;
    for (int i = 0; i < gemm->n_leaves; i++)
        k->census.mma_steps +=
            parts * (int)((gemm->leaf_hi[i] - gemm->leaf_lo[i] + group - 1) / group);
}

static void count_joins(KernelText *k, const JoinProgram *program)
{
    for (int i = 0; i < program->total_ops; i++)
        k->census.add += program->ops[i].kind == NODE_JOIN;
}

static i64 pad64(i64 n)
{
    return (n + 63) / 64 * 64;
}

/* The rule is at the head of iso_abi.cuh. */
static i64 wgmma_shared(const Gemm *gemm)
{
    i64 parts = gemm->group[0].n_products, bm = gemm->tile_m, bn = gemm->tile_n;
    bool b_trans = !gemm->group[0].product[0].b_k_inner;
    i64 lines = bm + parts * (b_trans ? pad64(bn) : bn);
    i64 fixed = 1024 + gemm->stages * ((lines < 64 ? 64 : lines) * 128 + 16);
    if (gemm->leaves == LEAVES_ACROSS_CTAS)
        return fixed + bm * bn * parts * 4 + 16;
    return fixed + gemm->near * pad64(bm) * bn * parts * 4;
}

static void emit_wgmma(KernelText *k)
{
    const Gemm *gemm = &k->kernel->gemm;
    int units, bm = gemm->tile_m, bn = gemm->tile_n;
    bool split = gemm->leaves == LEAVES_ACROSS_CTAS;
    Str program = postfix_text(k->arena, &gemm->program, gemm->roots_out, gemm->fused);
    if (split)
        program = postfix_units(k->arena, program, gemm->fused, &units);
    write_op(k, program, !gemm->roots_out && !gemm->fold.n_reduces);
    k->parameters = "const __grid_constant__ IsoGemmArgs args, "
                    "const __grid_constant__ IsoGemmMaps maps";
    k->arguments = "IsoGemmArgs, IsoGemmMaps";
    k->threads = 128 * (1 + (bm + 63) / 64);
    k->cluster = gemm->cluster;
    k->shared_bytes = wgmma_shared(gemm);
    k->bounds = str_format(k->arena, "%d, 1", k->threads).s;
    k->files = str_format(k->arena,
                          "iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\n%s"
                          "iso_gemm_%s.cuh\n", gemm->fold.n_reduces ? "iso_fold.cuh\n" : "",
                          split ? "split" : "wgmma");
    if (split)
        writer_line(&k->body, "iso_gemm_split<Op, IsoSplitTile<%d, %d, %d, %d>>(args, maps);", bm,
                    bn, gemm->stages, gemm->fused);
    else
        writer_line(&k->body, "iso_gemm_wgmma<Op, IsoWgmmaTile<%d, %d, %d, %d, %d>>(args, maps);",
                    bm, bn, gemm->stages, gemm->near, gemm->cluster);
}

/* Steps of 16 k in a leaf's last block. */
static int tail_steps(const Gemm *gemm)
{
    i64 leaf = gemm->leaf_hi[0] - gemm->leaf_lo[0];
    return leaf > 64 && leaf % 64 && !gemm->runs_on ? (int)(leaf % 64 + 15) / 16 : 4;
}

/* Words of a thread's accumulators and waiting values (IsoWgmmaTile). The producers need registers
 * too, roots leave through more of them, and so does what reads tensors. */
static int group_room(const Kernel *kernel)
{
    const Gemm *gemm = &kernel->gemm;
    int sums = gemm->group[0].n_products * gemm->tile_n / 2;
    for (int i = 0; i < kernel->n_bindings; i++)
        if (kernel->bindings[i].group >= 0 && !kernel->bindings[i].result)
            return sums + 32 < 128 ? sums + 32 : 128;
    return gemm->roots_out ? 136 : 160;
}

static void emit_group(KernelText *k)
{
    const Gemm *gemm = &k->kernel->gemm;
    write_op(k, postfix_text(k->arena, &gemm->program, gemm->roots_out, gemm->fused),
             !gemm->roots_out);
    k->parameters = "const __grid_constant__ IsoGroupArgs args, "
                    "const __grid_constant__ IsoGemmMaps maps";
    k->arguments = "IsoGroupArgs, IsoGemmMaps";
    k->threads = 128 * (1 + (gemm->tile_m + 63) / 64);
    k->cluster = gemm->cluster;
    k->shared_bytes = wgmma_shared(gemm) + gemm_staging(gemm) + 128;
    k->bounds = str_format(k->arena, "%d, 1", k->threads).s;
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_group_wgmma.cuh\n");
    int odd = gemm->runs_on ? (int)(gemm->leaf_hi[0] - gemm->leaf_lo[0]) % 64 / 16 : 0;
    writer_line(&k->body,
                "iso_gemm_group<Op, IsoGroupTile<%d, %d, %d, %d, %d, %d, %d, %d>>(args, maps);",
                gemm->tile_m, gemm->tile_n, gemm->stages, gemm->near, tail_steps(gemm),
                group_room(k->kernel), odd, gemm_sorts(k->kernel) ? gemm->cluster : 0);
}

void emit_order(KernelText *k)
{
    k->family = "order";
    k->parameters = "const __grid_constant__ IsoOrderArgs args";
    k->arguments = "IsoOrderArgs";
    k->threads = 512;
    k->shared_bytes = 16 * 513 * 4 + 514 * 8 + 128;
    k->cluster = 8;
    k->bounds = "512";
    k->files = STR("iso_abi.cuh\niso_group_order.cuh\n");
    writer_line(&k->body, "iso_group_order(args);");
}

static void emit_stream(KernelText *k)
{
    const Gemm *gemm = &k->kernel->gemm;
    i64 parts = gemm->group[0].n_products, bm = gemm->tile_m, bn = gemm->tile_n;
    bool split = gemm->leaves == LEAVES_ACROSS_CTAS;
    Str program = postfix_text(k->arena, &gemm->program, gemm->roots_out, 1);
    write_op(k, program, !gemm->roots_out);
    k->parameters = "const __grid_constant__ IsoGemmArgs args";
    k->arguments = "IsoGemmArgs";
    k->threads = 128;
    k->bounds = "128";
    k->shared_bytes = gemm->stages * (bm + parts * bn) * gemm->tile_k * 2;
    if (!split)
        k->shared_bytes += (postfix_depth(program) - 1) * parts * bm * bn * 4;
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_gemm_stream.cuh\n");
    writer_line(&k->body, "iso_gemm_stream<Op, IsoStreamTile<%d, %d, %d, %d, %s>>(args);",
                gemm->tile_m, gemm->tile_n, gemm->tile_k, gemm->stages, split ? "true" : "false");
}

void emit_gemm(KernelText *k)
{
    k->family = "gemm";
    if (k->kernel->gemm.grouped)
        emit_group(k);
    else if (k->kernel->gemm.kernel == KERNEL_WGMMA)
        emit_wgmma(k);
    else
        emit_stream(k);
    count_leaves(k);
    count_joins(k, &k->kernel->gemm.program);
}

void emit_join(KernelText *k)
{
    const JoinProgram *program = &k->kernel->join.program;
    write_op(k, postfix_text(k->arena, program, false, 1), true);
    k->family = "join";
    k->parameters = "const __grid_constant__ IsoJoinArgs args";
    k->arguments = "IsoJoinArgs";
    k->threads = 256;
    k->bounds = "256";
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_join.cuh\n");
    writer_line(&k->body, "iso_join<Op>(args);");
    count_joins(k, program);
}
