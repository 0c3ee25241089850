/* Draws: the scores as a row kernel's chunks, what a row brings, the device library's call. */
#include "emit_impl.h"

enum { DRAW_THREADS = 1024 };

/* The lambda that gives a row's scores. */
static void write_scores(Chunked *c)
{
    const DagNode *scores = c->k->kernel->draw.scores;
    ExprScope element;
    expr_hoist(&c->row, &scores, 1, c->atoms);
    chunked_open(c, "body", str_format(c->k->arena, ", IsoTerms<%d> &terms", c->width).s, c->width,
                 &scores, 1);
    chunked_loop(c, c->width, &c->row, &element);
    Str value = expr_f32(&element, scores);
    writer_line(&c->k->body, "terms.a[e] = %.*s;", STR_FMT(value));
    writer_close(&c->k->body, "");
    writer_close(&c->k->body, ";");
}

static Str own_or(const KernelText *k, int which, Str other)
{
    int binding = k->kernel->draw.param[which];
    return binding < 0 ? other : str_format(k->arena, "*p%d", binding);
}

static Str limit_text(const KernelText *k, int which, const DrawLimit *limit, u32 none)
{
    return own_or(k, which, writer_f32(k->arena, limit->set ? limit->bits : none));
}

static void write_row(KernelText *k)
{
    const Draw *draw = &k->kernel->draw.computes;
    const Str zero = STR("0");
    Str top_k = str_format(k->arena, "%u", draw->top_k.set ? draw->top_k.bits : 0);
    Writer *w = &k->body;
    writer_line(w, "IsoDraw draw;");
    writer_line(w, "draw.seed = (unsigned)%.*s;", STR_FMT(own_or(k, DRAW_SEED, zero)));
    writer_line(w, "draw.stream = (unsigned)%.*s;", STR_FMT(own_or(k, DRAW_STREAM, zero)));
    writer_line(w, "draw.position = (unsigned)map.position[i0];");
    writer_line(w, "draw.scaled = %s;", draw->temperature >= 0 ? "true" : "false");
    writer_line(w, "draw.temperature = %.*s;",
                STR_FMT(own_or(k, DRAW_TEMPERATURE, STR("1.0f"))));
    writer_line(w, "draw.top_k = %.*s;", STR_FMT(own_or(k, DRAW_TOP_K, top_k)));
    writer_line(w, "draw.top_p = %.*s;",
                STR_FMT(limit_text(k, DRAW_TOP_P, &draw->top_p, 0x3F800000)));
    writer_line(w, "draw.min_p = %.*s;", STR_FMT(limit_text(k, DRAW_MIN_P, &draw->min_p, 0)));
}

void emit_draw(KernelText *k)
{
    Writer *w = &k->body;
    Chunked c;
    chunked_init(&c, k, k->kernel->n_dims - 1);
    k->family = "draw";
    k->parameters = "const __grid_constant__ IsoMapArgs map";
    k->arguments = "IsoMapArgs";
    k->threads = DRAW_THREADS;
    k->bounds = "1024";
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_prim.cuh\niso_map.cuh\niso_row.cuh\n"
                   "iso_random.cuh\niso_draw.cuh\n");
    chunked_extents(&c);
    writer_open(w, "for (unsigned row = blockIdx.x; row < rows; row += gridDim.x)");
    chunked_row(&c);
    write_row(k);
    write_scores(&c);
    writer_line(w, "const int token = iso_draw<%d, %d>(draw, e%d, vector, body);", DRAW_THREADS,
                c.width, c.inner);
    writer_line(w, "if (threadIdx.x == 0)");
    writer_line(w, "    *p%d = token;", k->kernel->draw.token);
    writer_close(w, "");
}
