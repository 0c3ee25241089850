/* Proofs: every plan of the dense layer holds, and every way of breaking a plan is seen. */
#include <check.h>
#include <jansson.h>

#include "dense.h"
#include "proof/proof.h"

enum { INPUT_NORM, QKV, O_PROJ, GATE_UP, DOWN, LM_HEAD, OPS };

typedef struct Proved {
    Dense d;
    Plan plan;
    Certificate certificate;
} Proved;

static void open_planned(Proved *p, DenseSizes sizes, const Tree *(*tree)(Dense *))
{
    dense_open(&p->d, sizes);
    if (tree)
        p->d.parallel = tree(&p->d);
    dense_ops(&p->d);
}

static void build(Proved *p)
{
    ck_assert(plan_build(&p->d.dag, NULL, &p->plan, p->d.arena, &p->d.diags));
}

static bool prove(Proved *p)
{
    return proof_check(&p->plan, &p->certificate, p->d.arena, &p->d.diags);
}

static void open_qwen(Proved *p)
{
    open_planned(p, (DenseSizes){4096, 12288, 8, 4, 64, 151936}, NULL);
    dense_tp(&p->d, "tp4", 4, true);
    build(p);
}

/* ---- what holds ------------------------------------------------------------------------------ */

static void assert_all_hold(Proved *p)
{
    build(p);
    bool good = prove(p);
    for (int i = 0; i < p->certificate.obligations.n; i++) {
        const Obligation *o = &p->certificate.obligations.v[i];
        ck_assert_msg(o->holds, "%.*s in %.*s, %.*s: %.*s", STR_FMT(o->op), STR_FMT(o->layout),
                      STR_FMT(o->what), STR_FMT(o->detail));
    }
    ck_assert(good);
    ck_assert_int_gt(p->certificate.obligations.n, 0);
    dense_close(&p->d);
}

START_TEST(all_layouts_of_qwen_hold)
{
    Proved p;
    open_planned(&p, (DenseSizes){4096, 12288, 8, 4, 64, 151936}, NULL);
    dense_layout(&p.d, "tp1");
    for (int degree = 2; degree <= 8; degree *= 2) {
        dense_tp(&p.d, "tp", degree, false);
        dense_tp(&p.d, "sp", degree, true);
    }
    Layout *layout = dense_layout(&p.d, "long");
    dense_mesh(&p.d, layout, "tp", 2, AXES(D_KV, D_FFN, D_VOCAB), D_TOKENS);
    dense_mesh(&p.d, layout, "cp", 4, AXES(D_TOKENS), -1);
    assert_all_hold(&p);
}
END_TEST

static const Tree *three_of_two(Dense *d)
{
    return dense_split(d, 3, dense_split(d, 2, d->whole, JOIN_PAIRWISE), JOIN_LEFT);
}

START_TEST(three_ranks_of_smollm_hold)
{
    Proved p;
    open_planned(&p, (DenseSizes){576, 1536, 3, 3, 32, 49152}, three_of_two);
    dense_tp(&p.d, "tp3", 3, false);
    dense_tp(&p.d, "tp3_sp", 3, true);
    assert_all_hold(&p);
}
END_TEST

static const Tree *sixteen(Dense *d)
{
    return dense_split(d, 16, d->whole, JOIN_PAIRWISE);
}

START_TEST(sixteen_ranks_with_replicated_heads_hold)
{
    Proved p;
    open_planned(&p, (DenseSizes){8192, 28672, 8, 8, 64, 128256}, sixteen);
    dense_tp(&p.d, "tp16", 16, false)->cuts[0].replicating = true;
    dense_tp(&p.d, "tp16_sp", 16, true)->cuts[0].replicating = true;
    assert_all_hold(&p);
}
END_TEST

static const Tree *left_eight(Dense *d)
{
    return dense_split(d, 8, d->whole, JOIN_LEFT);
}

START_TEST(several_roots_a_rank_hold)
{
    Proved p;
    open_planned(&p, (DenseSizes){4096, 12288, 8, 4, 64, 151936}, left_eight);
    dense_tp(&p.d, "tp4", 4, false);
    assert_all_hold(&p);
}
END_TEST

START_TEST(a_padded_vocabulary_with_an_idle_rank_holds)
{
    Proved p;
    open_planned(&p, (DenseSizes){4096, 12288, 8, 4, 64, 300}, NULL);
    p.d.axes[D_VOCAB].stored = 512;
    p.d.contract.n_ops = p.d.dag.n_ops = OPS;
    dense_tp(&p.d, "tp4", 4, false);
    assert_all_hold(&p);
}
END_TEST

START_TEST(a_norm_cut_along_its_sum_holds)
{
    Proved p;
    dense_open(&p.d, (DenseSizes){4096, 12288, 8, 4, 64, 151936});
    p.d.row = dense_split(&p.d, 8, p.d.row, JOIN_PAIRWISE);
    dense_norm(&p.d, "norm");
    dense_mesh(&p.d, dense_layout(&p.d, "wide"), "tp", 4, AXES(D_HIDDEN), -1);
    assert_all_hold(&p);
}
END_TEST

/* ---- random trees ---------------------------------------------------------------------------- */

static u32 draw(u32 *state, u32 below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* A tree over `extent` elements, splits down to chains. */
static const Tree *draw_tree(Dense *d, u32 *state, i64 extent, int depth)
{
    static const DType types[] = {DT_F32, DT_F32, DT_BF16};
    Tree tree = {.join = (JoinForm)draw(state, 2), .type = types[draw(state, 3)]};
    i64 n = 2 + draw(state, 4);
    if (depth == 0 || draw(state, 4) == 0)
        return d->whole;
    if (draw(state, 6) == 0) {
        tree.form = TREE_ROUND;
        tree.child = draw_tree(d, state, extent, depth - 1);
    } else if (extent % n == 0 && draw(state, 3)) {
        tree.form = TREE_SPLIT;
        tree.count = n;
        tree.child = draw_tree(d, state, extent / n, depth - 1);
    } else {
        tree.form = TREE_EVERY;
        tree.count = (1 + draw(state, 12)) * extent / 12;
        tree.child = d->whole;
    }
    return dense_tree(d, tree);
}

START_TEST(random_trees_hold_or_are_refused)
{
    u32 state = 2463534242u + (u32)_i;
    int held = 0, refused = 0, joined = 0;
    for (int i = 0; i < 150; i++) {
        Proved p;
        dense_open(&p.d, (DenseSizes){64, 1440, 2, 1, 8, 64});
        p.d.parallel = draw_tree(&p.d, &state, 1440, 3);
        dense_down(&p.d);
        dense_tp(&p.d, "tp", 1 + (int)draw(&state, 6), draw(&state, 2));
        if (!plan_build(&p.d.dag, NULL, &p.plan, p.d.arena, &p.d.diags)) {
            refused++;
        } else {
            ck_assert(prove(&p));
            held++;
            joined += p.plan.ops.v[0].join_kernel >= 0;
        }
        dense_close(&p.d);
    }
    ck_assert_int_gt(held, 20);
    ck_assert_int_gt(joined, 10);
    ck_assert_int_gt(refused, 10);
}
END_TEST

/* ---- what is seen ---------------------------------------------------------------------------- */

static Kernel *kernel_of(Proved *p, int op, int variant, int rank)
{
    return p->plan.kernels.v[p->plan.ops.v[op].variants[variant].kernel_of_rank[rank]];
}

static Kernel *join_of(Proved *p, int op)
{
    return p->plan.kernels.v[p->plan.ops.v[op].join_kernel];
}

static void join_pairs_right_to_left(Proved *p)
{
    JoinProgram *program = &join_of(p, O_PROJ)->join.program; /* LL+LL++ becomes LL+L+L+ */
    program->n_ops[2] = 1;
    program->n_ops[3] = 1;
}

static void join_in_bf16(Proved *p)
{
    join_of(p, DOWN)->join.program.ops[0].type = DT_BF16;
}

static void skip_a_leaf(Proved *p)
{
    Gemm *gemm = &kernel_of(p, O_PROJ, 0, 0)->gemm;
    gemm->leaf_lo[1] += 16;
}

static void swap_leaves(Proved *p)
{
    Gemm *gemm = &kernel_of(p, O_PROJ, 0, 0)->gemm;
    i64 lo = gemm->leaf_lo[0], hi = gemm->leaf_hi[0];
    gemm->leaf_lo[0] = gemm->leaf_lo[1];
    gemm->leaf_hi[0] = gemm->leaf_hi[1];
    gemm->leaf_lo[1] = lo;
    gemm->leaf_hi[1] = hi;
}

static void swap_sources(Proved *p)
{
    int *sources = p->plan.ops.v[O_PROJ].sources_of_rank;
    int first = sources[0];
    sources[0] = sources[1];
    sources[1] = first;
}

static void multiply_by_another_weight(Proved *p)
{
    Kernel *kernel = kernel_of(p, GATE_UP, 0, 0);
    kernel->gemm.group[0].product[1].b = kernel->gemm.group[0].product[0].b;
}

static void narrow_the_lanes(Proved *p)
{
    kernel_of(p, INPUT_NORM, 0, 0)->row.trees[0].lanes = 64;
}

static void widen_the_runs(Proved *p)
{
    kernel_of(p, INPUT_NORM, 0, 0)->row.trees[0].run = 4;
}

static void round_products_of_a_chain(Proved *p)
{
    kernel_of(p, INPUT_NORM, 0, 0)->row.trees[0].form = TREE_CHAIN_ADD;
}

static void read_another_residual(Proved *p)
{
    Kernel *kernel = join_of(p, O_PROJ);
    for (int i = 0; i < kernel->n_bindings; i++)
        if (!kernel->bindings[i].result)
            kernel->bindings[i].tensor = 0;
}

static void write_a_piece_twice(Proved *p)
{
    GemmGroup *group = &kernel_of(p, QKV, 0, 0)->gemm.group[1];
    group->pieces[0] = kernel_of(p, QKV, 0, 0)->gemm.group[2].pieces[0];
}

static void leave_rows_out(Proved *p)
{
    p->plan.ops.v[LM_HEAD].variants[1].rows_min++;
}

static void overlap_parts(Proved *p)
{
    p->plan.ops.v[LM_HEAD].part_of_rank[1].lo[D_VOCAB]--;
}

static void leave_columns_out(Proved *p)
{
    p->plan.ops.v[LM_HEAD].part_of_rank[1].lo[D_VOCAB]++;
}

static void gather_nothing(Proved *p)
{
    p->plan.ops.v[QKV].at.param_move[0] = MOVE_NONE;
}

static void scatter_to_other_rows(Proved *p)
{
    p->plan.ops.v[O_PROJ].finish_of_rank[0].rows_index = 1;
}

static void copy_uneven_boxes(Proved *p)
{
    Gemm *gemm = &kernel_of(p, O_PROJ, 3, 0)->gemm;
    ck_assert_int_eq(gemm->kernel, KERNEL_WGMMA);
    gemm->leaf_hi[1] += 8;
}

static const struct {
    void (*mutate)(Proved *);
    const char *what;
} mutations[] = {
    {join_pairs_right_to_left, "tree"},
    {join_in_bf16, "tree"},
    {skip_a_leaf, "tree"},
    {swap_leaves, "tree"},
    {swap_sources, "tree"},
    {multiply_by_another_weight, "tree"},
    {narrow_the_lanes, "tree"},
    {widen_the_runs, "tree"},
    {round_products_of_a_chain, "tree"},
    {read_another_residual, "epilogue"},
    {write_a_piece_twice, "epilogue"},
    {leave_rows_out, "coverage"},
    {overlap_parts, "coverage"},
    {leave_columns_out, "coverage"},
    {gather_nothing, "movement"},
    {scatter_to_other_rows, "coverage"},
    {copy_uneven_boxes, "alignment"},
};

START_TEST(a_broken_plan_is_seen)
{
    Proved p;
    bool named = false;
    open_qwen(&p);
    mutations[_i].mutate(&p);
    ck_assert(!prove(&p));
    ck_assert_int_gt(p.certificate.failed, 0);
    for (int i = 0; i < p.certificate.obligations.n; i++) {
        const Obligation *o = &p.certificate.obligations.v[i];
        named |= !o->holds && str_is(o->what, mutations[_i].what);
    }
    ck_assert_msg(named, "mutation %d is not seen as %s", _i, mutations[_i].what);
    ck_assert_int_gt(p.d.diags.errors, 0);
    dense_close(&p.d);
}
END_TEST

/* ---- text ------------------------------------------------------------------------------------ */

START_TEST(the_certificate_is_json)
{
    Proved p;
    open_qwen(&p);
    ck_assert(prove(&p));
    Text out = {.arena = p.d.arena};
    proof_json(&p.d.dag, &p.certificate, &out);
    json_t *root = json_loadb(out.s, (size_t)out.n, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq((int)json_array_size(json_object_get(root, "obligations")),
                     p.certificate.obligations.n);
    ck_assert_int_eq((int)json_integer_value(json_object_get(root, "failed")), 0);
    json_decref(root);
    dense_close(&p.d);
}
END_TEST

/* Every key is a property of the schema, every required property is a key, every value of an
 * enumeration is one of it. */
static void assert_object(const json_t *object, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)object, key, value) {
        const json_t *property = json_object_get(properties, key);
        ck_assert_msg(property != NULL, "the schema has no \"%s\"", key);
        json_t *allowed = json_object_get(property, "enum"), *one;
        bool found = !allowed;
        json_array_foreach(allowed, i, one)
            found |= json_equal(one, value);
        ck_assert_msg(found, "\"%s\" has a value that the schema does not list", key);
    }
    json_array_foreach(json_object_get(schema, "required"), i, value)
        ck_assert_ptr_nonnull(json_object_get(object, json_string_value(value)));
}

START_TEST(the_certificate_follows_its_schema)
{
    Proved p;
    json_t *schema = json_load_file("compiler/proof/certificate.schema.json", 0, NULL), *obligation;
    size_t i;
    ck_assert_ptr_nonnull(schema);
    open_qwen(&p);
    ck_assert(prove(&p));
    Text out = {.arena = p.d.arena};
    proof_json(&p.d.dag, &p.certificate, &out);
    json_t *root = json_loadb(out.s, (size_t)out.n, 0, NULL);
    assert_object(root, schema);
    const json_t *of = json_object_get(json_object_get(schema, "$defs"), "obligation");
    json_array_foreach(json_object_get(root, "obligations"), i, obligation)
        assert_object(obligation, of);
    json_decref(root);
    json_decref(schema);
    dense_close(&p.d);
}
END_TEST

START_TEST(the_table_names_what_moves)
{
    Proved p;
    open_planned(&p, (DenseSizes){4096, 12288, 8, 4, 64, 151936}, NULL);
    dense_layout(&p.d, "tp1");
    dense_tp(&p.d, "tp4_sp", 4, true);
    build(&p);
    ck_assert(prove(&p));
    Text out = {.arena = p.d.arena};
    proof_table(&p.plan, &p.certificate, &out);
    static const char want[] =
        "layout  ranks  ops                  cut along  moves                roots  proof\n"
        "tp1     1      input_norm           whole      nothing              -      ok (6)\n"
        "               qkv                  whole      nothing              -      ok (24)\n"
        "               o_proj gate_up down  whole      nothing              -      ok (21)\n"
        "               lm_head              whole      nothing              -      ok (18)\n"
        "tp4_sp  4      input_norm           tokens     nothing              -      ok (6)\n"
        "               qkv                  kv_heads   all-gather of x      -      ok (18)\n"
        "               o_proj               kv_heads   reduce-scatter of y  1      ok (24)\n"
        "               gate_up              ffn        all-gather of x      -      ok (24)\n"
        "               down                 ffn        reduce-scatter of y  1      ok (24)\n"
        "               lm_head              vocab      all-gather of x      -      ok (21)\n"
        "228 obligations, 0 failed\n";
    ck_assert_str_eq(out.s, want);
    dense_close(&p.d);
}
END_TEST

Suite *proof_suite(void);
Suite *proof_suite(void)
{
    Suite *suite = suite_create("proof");
    TCase *tests = tcase_create("proof");
    tcase_add_test(tests, all_layouts_of_qwen_hold);
    tcase_add_test(tests, three_ranks_of_smollm_hold);
    tcase_add_test(tests, sixteen_ranks_with_replicated_heads_hold);
    tcase_add_test(tests, several_roots_a_rank_hold);
    tcase_add_test(tests, a_padded_vocabulary_with_an_idle_rank_holds);
    tcase_add_test(tests, a_norm_cut_along_its_sum_holds);
    tcase_add_loop_test(tests, random_trees_hold_or_are_refused, 0, 4);
    tcase_add_loop_test(tests, a_broken_plan_is_seen, 0, sizeof mutations / sizeof *mutations);
    tcase_add_test(tests, the_certificate_is_json);
    tcase_add_test(tests, the_certificate_follows_its_schema);
    tcase_add_test(tests, the_table_names_what_moves);
    suite_add_tcase(suite, tests);
    return suite;
}
