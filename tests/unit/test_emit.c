/* Kernel text: goldens of every family from hand-built plans, that it compiles without spills, and
 * that its PTX has the arithmetic of the census, rounded to nearest and nothing contracted. */
#include "emit_fixture.h"
#include "cubin/nvrtc.h"
#include "golden.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static const u64 T = (u64)1 << ATOM_TOKENS, H = (u64)1 << ATOM_HIDDEN;
static const u64 C = (u64)1 << ATOM_COLS, K = (u64)1 << ATOM_K;

static const Tree chain = {.form = TREE_CHAIN};
static const Tree mma = {.form = TREE_MMA};

/* ---- kernels built by hand ------------------------------------------------------------------- */

static void pieces(Fixture *f, const DagPiece *a, const DagPiece *b)
{
    f->kernel.pieces = arena_array(f->arena, const DagPiece *, 2);
    f->kernel.pieces[0] = a;
    f->kernel.pieces[1] = b;
    f->kernel.n_pieces = b ? 2 : 1;
}

static RowTree row_tree(Arena *arena, i64 extent, int lanes, i64 run, TreeForm form)
{
    Run *part = arena_new_of(arena, Run);
    *part = (Run){0, extent};
    return (RowTree){.form = form, .n_parts = 1, .parts = part, .lanes = lanes, .run = run,
                     .lane_join = JOIN_PAIRWISE, .lane_type = DT_F32,
                     .program = fixture_program(arena, &chain, extent)};
}

/* The tree's outer parts, `part` elements each. */
static void row_parts(Arena *arena, RowTree *tree, const Tree *outer, i64 extent, i64 part)
{
    Run *parts = arena_array(arena, Run, extent / part + 1);
    tree->n_parts = 0;
    for (i64 at = 0; at < extent; at += part)
        parts[tree->n_parts++] = (Run){at, at + part < extent ? part : extent - at};
    tree->parts = parts;
    tree->program = fixture_program(arena, outer, extent);
}

static void row_kernel(Fixture *f, int threads, int n, const DagNode *const *reduces,
                       const RowTree *trees)
{
    Row *row = &f->kernel.row;
    f->kernel.family = FAMILY_ROW;
    *row = (Row){.n_reduces = n, .threads = threads,
                 .reduces = arena_array(f->arena, const DagNode *, n),
                 .trees = arena_array(f->arena, RowTree, n)};
    for (int i = 0; i < n; i++) {
        row->reduces[i] = reduces[i];
        row->trees[i] = trees[i];
    }
}

/* y = bf16(f32(x) * r) * w, r = 1 / sqrt(sum(f32(x) * f32(x)) / len + eps) */
static const DagNode *build_norm(Fixture *f, Arena *arena, i64 extent, TreeForm form, int lanes,
                                 int threads)
{
    fixture_start(f, arena, "norm", extent);
    const DagNode *x = fixture_input(f, "x", DT_BF16, T | H);
    const DagNode *w = fixture_input(f, "w", DT_BF16, H);
    const DagNode *xf = fixture_cast(f, DT_F32, x);
    const DagNode *ss = fixture_reduce(f, MONOID_SUM, ATOM_HIDDEN, DT_F32,
                                       fixture_binary(f, DAG_MUL, xf, xf));
    const DagNode *mean = fixture_binary(f, DAG_DIV, ss, fixture_const(f, DT_F32, 0x45800000));
    const DagNode *sum = fixture_binary(f, DAG_ADD, mean, fixture_const(f, DT_F32, 0x358637BD));
    const DagNode *r = fixture_binary(f, DAG_DIV, fixture_const(f, DT_F32, 0x3F800000),
                                      fixture_fn(f, FN_SQRT, sum));
    const DagNode *scaled = fixture_cast(f, DT_BF16, fixture_binary(f, DAG_MUL, xf, r));
    pieces(f, fixture_result(f, "y", T | H, fixture_binary(f, DAG_MUL, scaled, w)), NULL);
    fixture_bind(f, 2, (int[]){ATOM_TOKENS, ATOM_HIDDEN});
    RowTree tree = row_tree(arena, extent, lanes, 8, form);
    row_kernel(f, threads, 1, &ss, &tree);
    return ss;
}

/* p = e / sum(e), e = exp(x - max(x)); z = sum(e) is a result of its own */
static void build_softmax(Fixture *f, Arena *arena)
{
    fixture_start(f, arena, "softmax", 1000);
    const DagNode *x = fixture_input(f, "x", DT_F32, T | H);
    const DagNode *m = fixture_reduce(f, MONOID_MAX, ATOM_HIDDEN, DT_F32, x);
    const DagNode *e = fixture_fn(f, FN_EXP, fixture_binary(f, DAG_SUB, x, m));
    const DagNode *z = fixture_reduce(f, MONOID_SUM, ATOM_HIDDEN, DT_F32, e);
    const DagPiece *sum = fixture_result(f, "z", T, z);
    pieces(f, fixture_result(f, "p", T | H, fixture_binary(f, DAG_DIV, e, z)), sum);
    fixture_bind(f, 2, (int[]){ATOM_TOKENS, ATOM_HIDDEN});
    const DagNode *reduces[] = {m, z};
    RowTree trees[] = {row_tree(arena, 1000, 64, 4, TREE_CHAIN),
                       row_tree(arena, 1000, 64, 4, TREE_CHAIN)};
    row_kernel(f, 64, 2, reduces, trees);
}

static void build_logsumexp(Fixture *f, Arena *arena)
{
    static const Tree outer = {.form = TREE_EVERY, .count = 512, .join = JOIN_LEFT,
                               .type = DT_F32, .child = &chain};
    fixture_start(f, arena, "lse", 1500);
    const DagNode *x = fixture_input(f, "x", DT_BF16, T | H);
    const DagNode *lse = fixture_reduce(f, MONOID_LOGSUMEXP, ATOM_HIDDEN, DT_F32,
                                        fixture_cast(f, DT_F32, x));
    pieces(f, fixture_result(f, "lse", T, lse), NULL);
    fixture_bind(f, 2, (int[]){ATOM_TOKENS, ATOM_HIDDEN});
    RowTree tree = row_tree(arena, 1500, 64, 8, TREE_CHAIN);
    row_parts(arena, &tree, &outer, 1500, 512);
    row_kernel(f, 64, 1, &lse, &tree);
}

/* h = bf16(silu(f32(g))) * u, over three dims of which u lacks the middle one */
static void build_map(Fixture *f, Arena *arena)
{
    fixture_start(f, arena, "gate", 4096);
    const DagNode *g = fixture_input(f, "g", DT_BF16, T | C | H);
    const DagNode *u = fixture_input(f, "u", DT_BF16, T | H);
    const DagNode *s = fixture_cast(f, DT_BF16, fixture_fn(f, FN_SILU, fixture_cast(f, DT_F32, g)));
    pieces(f, fixture_result(f, "h", T | C | H, fixture_binary(f, DAG_MUL, s, u)), NULL);
    f->kernel.family = FAMILY_MAP;
    fixture_bind(f, 3, (int[]){ATOM_TOKENS, ATOM_COLS, ATOM_HIDDEN});
}

/* y = (a + b) * c - a / b in f32: arithmetic alone, counted exactly */
static void build_arithmetic(Fixture *f, Arena *arena)
{
    fixture_start(f, arena, "arithmetic", 64);
    const DagNode *a = fixture_input(f, "a", DT_F32, T | H);
    const DagNode *b = fixture_input(f, "b", DT_F32, T | H);
    const DagNode *c = fixture_input(f, "c", DT_F32, T | H);
    const DagNode *product = fixture_binary(f, DAG_MUL, fixture_binary(f, DAG_ADD, a, b), c);
    const DagNode *y = fixture_binary(f, DAG_SUB, product, fixture_binary(f, DAG_DIV, a, b));
    pieces(f, fixture_result(f, "y", T | H, y), NULL);
    f->kernel.family = FAMILY_MAP;
    fixture_bind(f, 2, (int[]){ATOM_TOKENS, ATOM_HIDDEN});
}

static const DagNode *product(Fixture *f, const DagNode *a, const char *name)
{
    const DagNode *b = fixture_input(f, name, DT_BF16, C | K);
    return fixture_reduce(f, MONOID_SUM, ATOM_K, DT_F32, fixture_binary(f, DAG_MUL, a, b));
}

/* Bindings of a product: a, b and what the epilogue touches have their own dims. */
static void bind_gemm(Fixture *f)
{
    fixture_bind(f, 2, (int[]){ATOM_TOKENS, ATOM_COLS});
    f->kernel.n_dims = 0;
    f->kernel.gemm.rows = (PlanDim){1, {ATOM_TOKENS}};
    f->kernel.gemm.k = (PlanDim){1, {ATOM_K}};
    f->kernel.gemm.a_k_inner = true;
}

static void leaves(Fixture *f, const Tree *tree, int n)
{
    Gemm *gemm = &f->kernel.gemm;
    gemm->n_leaves = n;
    for (int i = 0; i < n; i++) {
        gemm->leaf_lo[i] = 4096 / n * i;
        gemm->leaf_hi[i] = 4096 / n * (i + 1);
    }
    gemm->program = fixture_program(f->arena, tree, 4096);
    gemm->n_roots = 1;
}

static void tile(Fixture *f, KernelChoice kernel, int m, int n, int k, int stages, LeafPlace place)
{
    Gemm *gemm = &f->kernel.gemm;
    f->kernel.family = FAMILY_GEMM;
    gemm->kernel = kernel;
    gemm->tile_m = m;
    gemm->tile_n = n;
    gemm->tile_k = k;
    gemm->stages = stages;
    gemm->leaves = place;
    gemm->fused = kernel == KERNEL_WGMMA ? 2 : 1;
    gemm->cluster = 1;
}

static void group(Fixture *f, int n, const DagNode *const *reduces, const int *b,
                        const DagPiece *piece)
{
    GemmGroup *g = &f->kernel.gemm.group[f->kernel.gemm.n_groups++];
    *g = (GemmGroup){.cols = {1, {ATOM_COLS}}, .n_products = n, .n_pieces = 1,
                     .pieces = arena_array(f->arena, const DagPiece *, 1)};
    g->pieces[0] = piece;
    for (int i = 0; i < n; i++)
        g->product[i] = (GemmProduct){reduces[i], b[i], true};
    f->kernel.bindings[f->op.n_params + piece->result].group = f->kernel.gemm.n_groups - 1;
}

static const Tree eighth = {.form = TREE_SPLIT, .count = 8, .join = JOIN_PAIRWISE, .type = DT_F32,
                            .child = &mma};

/* y = bf16(sum(x * w)) + res */
static void build_o_proj(Fixture *f, Arena *arena)
{
    fixture_start(f, arena, "o_proj", 64);
    const DagNode *x = fixture_input(f, "x", DT_BF16, T | K);
    const DagNode *sum = product(f, x, "w");
    const DagNode *res = fixture_input(f, "res", DT_BF16, T | C);
    const DagNode *y = fixture_binary(f, DAG_ADD, fixture_cast(f, DT_BF16, sum), res);
    const DagPiece *piece = fixture_result(f, "y", T | C, y);
    bind_gemm(f);
    group(f, 1, &sum, (int[]){1}, piece);
    f->kernel.bindings[2].group = 0;
    leaves(f, &eighth, 8);
}

/* h = bf16(silu(f32(bf16(g)))) * bf16(u): one group of two products */
static void build_gate_up(Fixture *f, Arena *arena)
{
    fixture_start(f, arena, "gate_up", 64);
    const DagNode *x = fixture_input(f, "x", DT_BF16, T | K);
    const DagNode *sums[] = {product(f, x, "wg"), product(f, x, "wu")};
    const DagNode *g = fixture_cast(f, DT_F32, fixture_cast(f, DT_BF16, sums[0]));
    const DagNode *u = fixture_cast(f, DT_BF16, sums[1]);
    const DagNode *s = fixture_cast(f, DT_BF16, fixture_fn(f, FN_SILU, g));
    const DagPiece *piece = fixture_result(f, "h", T | C, fixture_binary(f, DAG_MUL, s, u));
    bind_gemm(f);
    group(f, 2, sums, (int[]){1, 2}, piece);
    leaves(f, &mma, 1);
}

/* q, k = bf16(sum(x * w)), and v kept in f32: three groups, two epilogues */
static void build_qkv(Fixture *f, Arena *arena)
{
    static const char *const names[3] = {"q", "k", "v"};
    const DagNode *sums[3];
    const DagPiece *piece[3];
    fixture_start(f, arena, "qkv", 64);
    const DagNode *x = fixture_input(f, "x", DT_BF16, T | K);
    for (int i = 0; i < 3; i++)
        sums[i] = product(f, x, names[i]);
    for (int i = 0; i < 3; i++)
        piece[i] = fixture_result(f, names[i], T | C,
                                  i < 2 ? fixture_cast(f, DT_BF16, sums[i]) : sums[i]);
    bind_gemm(f);
    for (int i = 0; i < 3; i++)
        group(f, 1, &sums[i], (int[]){1 + i}, piece[i]);
    leaves(f, &mma, 1);
}

/* ---- goldens --------------------------------------------------------------------------------- */

enum { FIXTURES = 16 };

typedef struct Corpus {
    Arena *arena;
    Fixture fixture[FIXTURES];
    Dag dag;
    Plan plan;
    Emitted emitted;
} Corpus;

static void corpus_rows(Corpus *c, Fixture *f)
{
    static const Tree every = {.form = TREE_EVERY, .count = 1000, .join = JOIN_PAIRWISE,
                               .type = DT_BF16, .child = &chain};
    build_norm(&f[0], c->arena, 4096, TREE_CHAIN, 128, 128);
    build_norm(&f[1], c->arena, 576, TREE_CHAIN, 1, 1);
    build_norm(&f[2], c->arena, 4096, TREE_CHAIN_ADD, 128, 128);
    row_parts(c->arena, &f[2].kernel.row.trees[0], &every, 4096, 1000);
    build_softmax(&f[3], c->arena);
    build_logsumexp(&f[4], c->arena);
    build_norm(&f[5], c->arena, 4096, TREE_CHAIN, 32, 32);
    row_parts(c->arena, &f[5].kernel.row.trees[0], &every, 4096, 1000);
    f[5].kernel.row.roots_out = true;
    f[5].kernel.row.n_roots = 1;
    build_logsumexp(&f[14], c->arena); /* the join of the roots of five ranks */
    f[14].kernel.family = FAMILY_JOIN;
    f[14].kernel.join = (Join){.of = FAMILY_ROW, .n_reduces = 1, .n_sources = 5, .n_roots = 5,
                               .reduces = f[14].kernel.row.reduces,
                               .program = fixture_program(c->arena, &every, 4096)};
    build_map(&f[6], c->arena);
    build_arithmetic(&f[7], c->arena);
}

static void corpus_products(Corpus *c, Fixture *f)
{
    static const Tree fourth = {.form = TREE_SPLIT, .count = 4, .join = JOIN_PAIRWISE,
                                .type = DT_F32, .child = &mma};
    build_o_proj(&f[0], c->arena);
    tile(&f[0], KERNEL_WGMMA, 128, 192, 64, 4, LEAVES_IN_REGISTERS);
    build_o_proj(&f[1], c->arena);
    tile(&f[1], KERNEL_STREAM, 16, 64, 128, 4, LEAVES_ACROSS_CTAS);
    build_gate_up(&f[2], c->arena);
    tile(&f[2], KERNEL_WGMMA, 128, 128, 64, 4, LEAVES_IN_REGISTERS);
    build_qkv(&f[3], c->arena);
    tile(&f[3], KERNEL_STREAM, 16, 32, 128, 6, LEAVES_IN_REGISTERS);
    build_o_proj(&f[4], c->arena); /* two of eight leaves: one root */
    tile(&f[4], KERNEL_WGMMA, 128, 192, 64, 4, LEAVES_IN_REGISTERS);
    leaves(&f[4], &(Tree){.form = TREE_SPLIT, .count = 2, .join = JOIN_PAIRWISE, .type = DT_F32,
                          .child = &mma}, 2);
    f[4].kernel.gemm.roots_out = true;
    build_o_proj(&f[5], c->arena);
    f[5].kernel.family = FAMILY_JOIN;
    f[5].kernel.join = (Join){.of = FAMILY_GEMM, .n_roots = 4, .n_sources = 4,
                              .program = fixture_program(c->arena, &fourth, 4096)};
}

static void corpus_open(Corpus *c)
{
    memset(c, 0, sizeof *c);
    c->arena = arena_new();
    corpus_rows(c, c->fixture);
    corpus_products(c, c->fixture + 8);
    for (int i = 0; i < 15; i++)
        vec_push(c->arena, &c->plan.kernels, &c->fixture[i].kernel);
    c->dag.contract = &c->fixture[0].contract;
    c->plan.dag = &c->dag;
}

START_TEST(texts_are_the_golden_ones)
{
    Corpus c;
    corpus_open(&c);
    ck_assert(emit_program(&c.plan, STR("families by hand"), &c.emitted, c.arena, NULL));
    golden_compare("tests/golden/emit/families.cu", c.emitted.program, c.arena);
    arena_free(c.arena);
}
END_TEST

START_TEST(equal_kernels_are_written_once)
{
    Corpus c;
    corpus_open(&c);
    build_norm(&c.fixture[15], c.arena, 4096, TREE_CHAIN, 128, 128);
    c.fixture[15].op.name = STR("another_norm");
    vec_push(c.arena, &c.plan.kernels, &c.fixture[15].kernel);
    ck_assert(emit_program(&c.plan, STR(""), &c.emitted, c.arena, NULL));
    ck_assert_int_eq(c.emitted.n_kernels, 15);
    ck_assert_int_eq(c.emitted.program_of_kernel[15], c.emitted.program_of_kernel[0]);
    for (int i = 1; i < c.emitted.n_kernels; i++)
        ck_assert_int_lt(strcmp(c.emitted.kernels[i - 1].name.s, c.emitted.kernels[i].name.s), 0);
    arena_free(c.arena);
}
END_TEST

/* ---- compiled -------------------------------------------------------------------------------- */

static int count(const char *text, const char *end, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) && at < end; at++)
        n++;
    return n;
}

/* The PTX of one kernel. */
static const char *ptx_of(const Binary *binary, Str name, const char **end)
{
    char entry[128];
    snprintf(entry, sizeof entry, ".visible .entry %.*s(", STR_FMT(name));
    const char *at = strstr(binary->ptx.s, entry);
    ck_assert_ptr_nonnull(at);
    const char *next = strstr(at + 1, ".visible .entry");
    *end = next ? next : binary->ptx.s + binary->ptx.n;
    return at;
}

static const EmittedKernel *kernel_of(const Corpus *c, int fixture)
{
    return &c->emitted.kernels[c->emitted.program_of_kernel[fixture]];
}

/* f32 arithmetic without a rounding may be contracted; approximations are nobody's, but for the one
 * instruction of which every bit is known (iso_ex2.cuh). */
static void check_forbidden(const Binary *binary)
{
    static const char *const forbidden[] = {"add.f32",  "sub.f32",  "mul.f32",  "fma.f32", ".ftz",
                                            ".approx",  "mad.f32",  "ex2",      "rcp",     "rsqrt",
                                            "\tred.",   "atom.global.add.f32"};
    static const char known[] = "ex2.approx.ftz.f32";
    const char *ptx = binary->ptx.s, *end = ptx + binary->ptx.n;
    int known_there = count(ptx, end, known);
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        ck_assert_msg(count(ptx, end, forbidden[i]) ==
                          (strstr(known, forbidden[i]) ? known_there : 0),
                      "%s in PTX", forbidden[i]);
}

static void check_counts(const Corpus *c, const Binary *binary)
{
    /* Four elements, once for each way of access. */
    const EmittedKernel *k = kernel_of(c, 7);
    const char *end, *ptx = ptx_of(binary, k->name, &end);
    ck_assert_int_eq(count(ptx, end, "add.rn.f32") + count(ptx, end, "sub.rn.f32"),
                     8 * k->census.add);
    ck_assert_int_eq(count(ptx, end, "mul.rn.f32"), 8 * k->census.mul);
    ck_assert_int_eq(count(ptx, end, "fma.rn.f32"), 8 * k->census.fma);
    ck_assert_int_eq(count(ptx, end, "div.rn.f32"), 8 * k->census.div);
    /* A norm's chain is fused, and `chain add` is not. */
    ptx = ptx_of(binary, kernel_of(c, 0)->name, &end);
    ck_assert_int_gt(count(ptx, end, "fma.rn.f32"), 0);
    ck_assert_int_eq(count(ptx, end, "div.rn.f32"), kernel_of(c, 0)->census.div);
    ck_assert_int_eq(count(ptx, end, "sqrt.rn.f32"), kernel_of(c, 0)->census.sqrt);
    ptx = ptx_of(binary, kernel_of(c, 2)->name, &end);
    ck_assert_int_eq(count(ptx, end, "fma.rn.f32"), 0);
    ck_assert_int_eq(kernel_of(c, 2)->census.fma, 0);
}

START_TEST(kernels_compile_to_their_arithmetic)
{
    Corpus c;
    Diags diags;
    Binary binary;
    Text messages = {0};
    corpus_open(&c);
    Sources sources = {.arena = c.arena};
    diags_init(&diags, c.arena, &sources);
    const Nvrtc *nvrtc = nvrtc_open(&diags);
    if (!nvrtc) {
        fprintf(stderr, "skipped: NVRTC is not installed\n");
        arena_free(c.arena);
        return;
    }
    ck_assert(emit_program(&c.plan, STR(""), &c.emitted, c.arena, NULL));
    bool ok = nvrtc_compile(nvrtc, c.emitted.program, STR("sm_90a"), &binary, c.arena, &diags);
    messages.arena = c.arena;
    diags_render_text(&diags, &messages, false);
    ck_assert_msg(ok, "%s", messages.n ? messages.s : "");
    check_forbidden(&binary);
    check_counts(&c, &binary);
    arena_free(c.arena);
}
END_TEST

Suite *emit_suite(void)
{
    Suite *suite = suite_create("emit");
    TCase *text = tcase_create("text");
    tcase_add_test(text, texts_are_the_golden_ones);
    tcase_add_test(text, equal_kernels_are_written_once);
    suite_add_tcase(suite, text);
    TCase *compiled = tcase_create("compiled");
    tcase_set_timeout(compiled, 300);
    tcase_add_test(compiled, kernels_compile_to_their_arithmetic);
    suite_add_tcase(suite, compiled);
    return suite;
}
