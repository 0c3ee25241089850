/* Attention: an Op struct for the device library (iso_attend.cuh) and the call of its kernel. */
#include "emit_impl.h"

enum { THREADS = 128, PITCH = 8 /* elements between lines in shared memory */ };
enum { DECODE_STATE = 4480, PLACE = 8 };
enum { WGMMA_THREADS = 384, WGMMA_STATE = 3072, PANEL = 64 /* elements of a swizzled line */ };

static const char *truth(bool x)
{
    return x ? "true" : "false";
}

static const char *weight_function(FnId fn)
{
    switch (fn) {
    case FN_EXP2_D3: return "iso_exp2_d3";
    case FN_EXP2_D6: return "iso_exp2_d6";
    case FN_EX2: return "iso_ex2";
    default: return "iso_exp2";
    }
}

/* Of the polynomial; 0: the exponential that takes any number; 1: ISO_ATTEND_EX2. */
static int weight_degree(FnId fn)
{
    return fn == FN_EXP2_D3 ? 3 : fn == FN_EXP2_D6 ? 6 : fn == FN_EX2 ? 1 : 0;
}

/* Where a kernel has no such operand its type does not matter. */
static DType binding_type(const KernelText *k, int binding)
{
    return binding < 0 ? DT_F32 : binding_tensor(k->kernel, binding)->type;
}

static void write_sizes(Writer *w, const AttendKernel *a)
{
    writer_line(w, "static constexpr int depth = %lld, width = %lld, row_tiles = %d, ahead = %d;",
                (long long)a->depth, (long long)a->width, a->row_tiles, a->ahead);
    writer_line(w, "static constexpr int split = %lld, window = %lld;",
                (long long)a->computes.split, (long long)a->computes.window);
}

static void write_op(KernelText *k)
{
    const AttendKernel *a = &k->kernel->attend;
    Writer *w = &k->head;
    DType value = binding_type(k, a->value);
    writer_open(w, "struct Op");
    write_sizes(w, a);
    writer_line(w, "static constexpr bool f16 = %s, values_f16 = %s;",
                truth(binding_type(k, a->queries) == DT_F16),
                truth(a->computes.weights == DT_F16));
    writer_line(w, "static constexpr bool causal = %s, capped = %s, sinks = %s, lse = %s;",
                truth(a->computes.causal), truth(a->computes.capped), truth(a->sinks >= 0),
                truth(a->lse >= 0));
    writer_line(w, "static constexpr unsigned scale = 0x%08xu, cap = 0x%08xu;", a->computes.scale,
                a->computes.cap);
    writer_line(w, "static constexpr bool rounded = %s;", truth(a->computes.rounded));
    writer_line(w, "static constexpr unsigned inverse = 0x%08xu;", a->computes.inverse);
    writer_line(w, "static constexpr int degree = %d;", weight_degree(a->computes.exp2));
    writer_line(w, "typedef %s Value;", expr_held(value));
    Str rounded = expr_round_text(k->arena, value, STR("x"));
    writer_line(w, "ISO_FN float weight(float x) { return %s(x); }",
                weight_function(a->computes.exp2));
    writer_line(w, "ISO_FN Value value(float x) { return %.*s; }", STR_FMT(rounded));
    writer_close(w, ";");
}

static i64 larger(i64 a, i64 b)
{
    return a > b ? a : b;
}

/* IsoAttendPlan::shared_bytes: queries, a block of keys, one of values, the weights. For decode
 * IsoDecodePlan's: a ring of blocks; queries or weights; state, keys' places. */
static i64 shared_bytes(const AttendKernel *a)
{
    i64 rows = 16 * a->row_tiles, depth = a->depth + PITCH, width = a->width + PITCH;
    i64 weights = ATTEND_BLOCK + PITCH;
    if (a->choice == ATTEND_JOIN)
        return 0;
    if (a->choice == ATTEND_DECODE || a->choice == ATTEND_PARTS)
        return 2 * ((2 * a->ahead + 1) * ATTEND_BLOCK * larger(depth, width) +
                    rows * larger(depth, weights)) +
               DECODE_STATE + (a->ahead + 1) * ATTEND_BLOCK * PLACE;
    return 2 * (rows * depth + ATTEND_BLOCK * (depth + width) + rows * weights);
}

/* IsoAttendWgmmaPlan::shared_bytes: queries, two blocks of keys, two of values, totals, state. */
static i64 wgmma_shared_bytes(const AttendKernel *a)
{
    i64 keys = (a->depth + PANEL - 1) / PANEL, values = (a->width + PANEL - 1) / PANEL;
    return (3 * keys + 2 * values) * ATTEND_BLOCK * PANEL * 2 + a->width * ATTEND_BLOCK * 4 +
           WGMMA_STATE;
}

static void emit_wgmma(KernelText *k)
{
    k->family = "attend";
    k->parameters = "const __grid_constant__ IsoAttendArgs args, "
                    "const __grid_constant__ IsoAttendMaps maps";
    k->arguments = "IsoAttendArgs, IsoAttendMaps";
    k->threads = WGMMA_THREADS;
    k->bounds = "384, 1";
    k->shared_bytes = wgmma_shared_bytes(&k->kernel->attend);
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_rounded.cuh\niso_prim.cuh\n"
                   "iso_wgmma.cuh\niso_attend_base.cuh\niso_attend_tile.cuh\n"
                   "iso_attend_wgmma.cuh\n");
    write_op(k);
    writer_line(&k->body, "iso_grid_begin();");
    writer_line(&k->body, "iso_attend_wgmma<Op>(args, maps);");
}

static void emit_mma(KernelText *k)
{
    const AttendKernel *a = &k->kernel->attend;
    bool decode = a->choice == ATTEND_DECODE;
    k->family = "attend";
    k->parameters = "const __grid_constant__ IsoAttendArgs args";
    k->arguments = "IsoAttendArgs";
    k->threads = THREADS;
    k->shared_bytes = shared_bytes(a);
    k->bounds = a->resident == 2 ? "128, 2" : "128";
    k->files = decode ? STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_rounded.cuh\n"
                            "iso_prim.cuh\niso_attend.cuh\niso_attend_decode.cuh\n")
                      : STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_rounded.cuh\n"
                            "iso_prim.cuh\niso_attend.cuh\niso_attend_walk.cuh\n");
    write_op(k);
    if (!decode)
        writer_line(&k->body, "iso_grid_begin();");
    writer_line(&k->body, "iso_attend%s<Op>(args);", decode ? "_decode" : "");
}

/* Of keys that lie on several ranks. */
static void emit_cut(KernelText *k)
{
    const AttendKernel *a = &k->kernel->attend;
    k->family = "attend";
    k->parameters = "const __grid_constant__ IsoAttendArgs args, "
                    "const __grid_constant__ IsoAttendCut cut";
    k->arguments = "IsoAttendArgs, IsoAttendCut";
    k->threads = THREADS;
    k->shared_bytes = shared_bytes(a);
    k->bounds = a->resident == 2 ? "128, 2" : "128";
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_rounded.cuh\niso_prim.cuh\n"
                   "iso_attend.cuh\niso_attend_decode.cuh\niso_attend_parts.cuh\n");
    write_op(k);
    writer_line(&k->body, "iso_attend_%s<Op>(args, cut);", attend_choice_name(a->choice));
}

void emit_attend(KernelText *k)
{
    AttendChoice choice = k->kernel->attend.choice;
    bool cut = choice == ATTEND_PARTS || choice == ATTEND_JOIN;
    (cut ? emit_cut : choice == ATTEND_WGMMA ? emit_wgmma : emit_mma)(k);
}
