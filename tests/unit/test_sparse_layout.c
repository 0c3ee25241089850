/* Layouts of a mixture of experts: who owns which slots, what moves, and that all ranks together
 * compute the bits of one. */
#include <check.h>

#include "meaning.h"
#include "verify/verify.h"

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, experts = 8, picks = 3 of experts;\n"
    "axis hidden = 32, ffn = 64;\n"
    "tree by_expert = split 8 { chain } pairwise f32;\n"
    "tree inside = split 4 { mma } pairwise f32;\n"
    "op router(x: bf16[tokens, hidden], w: bf16[experts, hidden]) -> z: f32[tokens, experts] {\n"
    "    z = sum(hidden by mma) x * w;\n"
    "}\n"
    "op route(z: f32[tokens, experts]) -> (chosen: experts[tokens, picks],\n"
    "         weight: f32[tokens, picks]) {\n"
    "    e = exp(z - (max(experts by chain) z));\n"
    "    top chosen = e { over experts; order score; }\n"
    "    p = e[experts chosen];\n"
    "    weight = p / sum(picks by chain) p;\n"
    "}\n"
    "op gate_up(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
    "           wg, wu: bf16[experts, ffn, hidden], b: f32[experts, ffn])\n"
    "   -> h: bf16[tokens, picks, ffn] {\n"
    "    g = bf16((sum(hidden by mma) x * wg[experts chosen]) + b[experts chosen]);\n"
    "    u = bf16(sum(hidden by mma) x * wu[experts chosen]);\n"
    "    h = bf16(silu(f32(g))) * u;\n"
    "}\n"
    "op act(g: bf16[tokens, picks, ffn]) -> h: bf16[tokens, picks, ffn] {\n"
    "    h = bf16(silu(f32(g)));\n"
    "}\n"
    "op down(h: bf16[tokens, picks, ffn], chosen: experts[tokens, picks],\n"
    "        w: bf16[experts, hidden, ffn]) -> d: bf16[tokens, picks, hidden] {\n"
    "    d = bf16(sum(ffn by inside) h * w[experts chosen]);\n"
    "}\n"
    "op combine(d: bf16[tokens, picks, hidden], weight: f32[tokens, picks],\n"
    "           chosen: experts[tokens, picks], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] {\n"
    "    y = bf16(sum(picks at experts chosen by by_expert) weight * f32(d)) + res;\n"
    "}\n"
    "op in_order(d: bf16[tokens, picks, hidden], weight: f32[tokens, picks])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(picks by chain) weight * f32(d)); }\n"
    "layout one { }\n"
    "layout ep2 { ep 2 cuts experts else tokens; }\n"
    "layout ep4 { ep 4 cuts experts else tokens; }\n"
    "layout ep8 { ep 8 cuts experts else tokens; }\n"
    "layout ep8_whole { ep 8 cuts experts; }\n"
    "layout trainer { dp 2 cuts tokens; tp 4 else tokens; ep = dp * tp cuts experts; }\n"
    "layout sampler { tp 4 cuts ffn else tokens; }\n"
    "layout inside { etp 2 cuts ffn else tokens; ep 4 cuts experts else tokens; }\n"
    "layout apart { dp 2 cuts tokens; ep 2 cuts experts else tokens; }\n";

static Front f;
static Contract contract;
static Dag dag;

static void open_ops(void)
{
    meaning_open(&f, text, &contract, &dag);
}

static void close_ops(void)
{
    front_close(&f);
}

static void print_op(const OpLayout *at, Text *out)
{
    const Op *op = at->op;
    text_printf(out, "%.*s %.*s:", STR_FMT(at->layout->name.text), STR_FMT(op->name));
    for (int i = 0; i < op->n_params; i++)
        if (at->param_move[i])
            text_printf(out, " %.*s %s", STR_FMT(op->params[i].name.text),
                        move_name(at->param_move[i]));
    for (int i = 0; i < op->n_results; i++)
        if (at->result_move[i])
            text_printf(out, " -> %.*s %s", STR_FMT(op->results[i].name.text),
                        move_name(at->result_move[i]));
    text_printf(out, "\n");
}

static void apply(int layout, int op, OpLayout *at)
{
    ck_assert_msg(layout_apply(&contract, &dag.ops[op], &contract.layouts[layout], at, f.arena,
                               &f.diags), "%s", front_text(&f));
}

static const char *moves_of(const char *layout)
{
    Text out = {.arena = f.arena};
    for (int l = 0; l < contract.n_layouts; l++)
        for (int o = 0; str_is(contract.layouts[l].name.text, layout) && o < dag.n_ops; o++) {
            OpLayout at;
            apply(l, o, &at);
            print_op(&at, &out);
        }
    return text_str(&out).s;
}

/* Between the experts' products nothing moves; rows are brought together, and roots come apart. */
START_TEST(moves)
{
    ck_assert_str_eq(moves_of("ep8_whole"), "ep8_whole router:\n"
                                            "ep8_whole route: z all-gather -> weight slice\n"
                                            "ep8_whole gate_up:\n"
                                            "ep8_whole act:\n"
                                            "ep8_whole down:\n"
                                            "ep8_whole combine: -> y all-reduce\n"
                                            "ep8_whole in_order: d all-gather weight all-gather\n");
    ck_assert_str_eq(moves_of("trainer"),
                     "trainer router: x all-gather\n"
                     "trainer route: z all-to-all -> weight all-to-all\n"
                     "trainer gate_up: x all-gather chosen all-gather\n"
                     "trainer act:\n"
                     "trainer down: chosen all-gather\n"
                     "trainer combine: chosen all-gather -> y reduce-scatter\n"
                     "trainer in_order: d all-to-all weight all-to-all\n");
    ck_assert_str_eq(moves_of("sampler"), "sampler router:\n"
                                          "sampler route:\n"
                                          "sampler gate_up: x all-gather chosen all-gather\n"
                                          "sampler act:\n"
                                          "sampler down: chosen all-gather -> d reduce-scatter\n"
                                          "sampler combine:\n"
                                          "sampler in_order:\n");
}
END_TEST

START_TEST(slots_are_where_their_experts_are)
{
    OpLayout at;
    Part part, held;
    apply(5, 2, &at); /* trainer, gate_up */
    int experts = contract.axes[dag.ops[2].op->params[1].index_of - 1].atom;
    int picks = dag.ops[2].op->params[1].atoms[1];
    for (int rank = 0; rank < 8; rank++) {
        layout_part(&contract, &at, rank, &part);
        ck_assert_int_eq((int)part.lo[experts], rank);
        ck_assert_int_eq((int)part.hi[experts], rank + 1);
        ck_assert_int_eq((int)part.hi[picks], 3);
        ck_assert_int_eq(part.rows_count, 1);
        layout_held(&contract, &at, &at.op->params[1], rank, &held); /* chosen: whole */
        ck_assert_int_eq((int)(held.hi[experts] - held.lo[experts]), 8);
        ck_assert_int_eq(held.rows_count, 8);
        layout_held(&contract, &at, &at.op->results[0], rank, &held);
        ck_assert_int_eq((int)held.lo[experts], rank);
        ck_assert_int_eq(held.rows_count, 1);
    }
}
END_TEST

/* What verify_cpu reads of a plan; kernels are not run. */
static void plan_without_kernels(Plan *plan)
{
    *plan = (Plan){.dag = &dag};
    for (int l = 0; l < contract.n_layouts; l++)
        for (int o = 0; o < dag.n_ops; o++) {
            PlanOp op = {.op = &dag.ops[o], .join_kernel = -1};
            apply(l, o, &op.at);
            int ranks = op.at.ranks, n = 0;
            op.part_of_rank = arena_array(f.arena, Part, ranks);
            op.finish_of_rank = arena_array(f.arena, Part, ranks);
            op.sources_of_rank = arena_array(f.arena, int, ranks * ranks);
            for (int r = 0; r < ranks; r++) {
                layout_part(&contract, &op.at, r, &op.part_of_rank[r]);
                layout_finish(&contract, &op.at, r, &op.finish_of_rank[r]);
                if (op.at.any_reduced)
                    n = layout_sources(&contract, &op.at, r, op.sources_of_rank + r * n);
            }
            if (op.at.any_reduced) {
                Kernel *join = arena_new_of(f.arena, Kernel);
                join->join.n_sources = n;
                op.join_kernel = plan->kernels.n;
                vec_push(f.arena, &plan->kernels, join);
            }
            vec_push(f.arena, &plan->ops, op);
        }
}

START_TEST(all_ranks_compute_the_bits_of_one)
{
    Plan plan;
    VerifyInput input = {.rows = 37, .seed = 5, .columns = 4096, .threads = 2};
    VerifyResult result;
    Text report = {.arena = f.arena};
    plan_without_kernels(&plan);
    ck_assert(verify_cpu(&plan, &input, &result, &report));
    ck_assert_msg(result.differ == 0, "%s", text_str(&report).s);
    ck_assert_int_gt(result.outputs, 0);
    ck_assert_msg(result.plain_differ > 0, "%s", text_str(&report).s);
}
END_TEST

Suite *sparse_layout_suite(void)
{
    Suite *suite = suite_create("sparse_layout");
    TCase *tc = tcase_create("sparse_layout");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_add_test(tc, moves);
    tcase_add_test(tc, slots_are_where_their_experts_are);
    tcase_add_test(tc, all_ranks_compute_the_bits_of_one);
    suite_add_tcase(suite, tc);
    return suite;
}
