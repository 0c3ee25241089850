/* Indices from a parameter, w[vocab ids]: rows of a table, and elements of what was computed. */
#include <check.h>
#include <string.h>

#include "device/iso_num.cuh"
#include "exec/exec.h"
#include "meaning.h"

enum { TOKENS = 37, HIDDEN = 40, VOCAB = 23 };

#define HEAD                                                                                       \
    "contract c version 1; numerics sm_90;\n"                                                      \
    "axis tokens = sequence * position ragged, hidden = 40, vocab = 23, other = 23;\n"

static const char text[] =
    HEAD
    "op embed(ids: vocab[tokens], w: bf16[vocab, hidden]) -> x: bf16[tokens, hidden] {\n"
    "    x = w[vocab ids];\n"
    "}\n"
    "op all(x: bf16[tokens, hidden], w: bf16[vocab, hidden]) -> y: f32[tokens, vocab] {\n"
    "    y = -(sum(hidden by mma) x * w);\n"
    "}\n"
    "op one(ids: vocab[tokens], x: bf16[tokens, hidden], w: bf16[vocab, hidden])\n"
    "   -> y: f32[tokens] {\n"
    "    z = -(sum(hidden by mma) x * w);  y = z[vocab ids];\n"
    "}\n"
    "op less(ids: vocab[tokens], z: f32[tokens, vocab]) -> y: f32[tokens] {\n"
    "    y = z[vocab ids] - (max(vocab by chain) z);\n"
    "}\n"
    "op kept(ids: vocab[tokens], z: f32[tokens, vocab]) -> y: f32[tokens, vocab] {\n"
    "    y = z[vocab = ids];\n"
    "}\n"
    "op most(ids: vocab[tokens], z: f32[tokens, vocab]) -> y: f32[tokens] {\n"
    "    k = -z;  y = max(vocab by lanes 4 by 1 { chain } pairwise f32) k[vocab = ids];\n"
    "}\n";

static Front f;
static Contract contract;
static Dag dag;
static int32_t ids[2 * TOKENS];
static u16 x[TOKENS * HIDDEN], w[VOCAB * HIDDEN], embedded[TOKENS * HIDDEN];
static float all[TOKENS * VOCAB], one[TOKENS];

static void open_ops(void)
{
    u32 r = 1;
    meaning_open(&f, text, &contract, &dag);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        x[i] = (u16)(0x3E00 + (r = r * 1664525 + 1013904223) % 0x200);
    for (int i = 0; i < VOCAB * HIDDEN; i++)
        w[i] = (u16)(0x3E00 + ((r = r * 1664525 + 1013904223) >> 8) % 0x200);
    w[3 * HIDDEN] = 0x7FA5; /* a NaN whose payload a move keeps */
    for (int t = 0; t < TOKENS; t++)
        ids[2 * t] = t * 7 % VOCAB;
}

static void close_ops(void)
{
    front_close(&f);
}

/* Parameters in the order of the op's, ids at every second element. */
static void run(int op, ExecTensor *params, ExecTensor result, ExecRange tokens)
{
    ExecJob job = {.contract = &contract, .op = &dag.ops[op], .params = params, .results = &result,
                   .threads = 2};
    exec_box_all(&contract, TOKENS, &job.box);
    for (int a = 0; a < contract.n_atoms; a++)
        if (contract.axes[contract.atom_axis[a]].free)
            job.box.atom[a] = tokens;
    ck_assert(exec_op(&job, f.arena));
}

static const ExecRange whole = {.lo = 0, .hi = TOKENS};

#define IDS {.data = ids, .stride = {2}}
#define X {.data = x, .stride = {HIDDEN, 1}}
#define W {.data = w, .stride = {HIDDEN, 1}}

START_TEST(rows_of_a_table)
{
    run(0, (ExecTensor[]){IDS, W}, (ExecTensor){.data = embedded, .stride = {HIDDEN, 1}}, whole);
    for (int t = 0; t < TOKENS; t++)
        ck_assert_mem_eq(embedded + t * HIDDEN, w + ids[2 * t] * HIDDEN, sizeof *w * HIDDEN);
}
END_TEST

START_TEST(elements_of_a_product)
{
    run(1, (ExecTensor[]){X, W}, (ExecTensor){.data = all, .stride = {VOCAB, 1}}, whole);
    run(2, (ExecTensor[]){IDS, X, W}, (ExecTensor){.data = one, .stride = {1}}, whole);
    for (int t = 0; t < TOKENS; t++)
        ck_assert_uint_eq(iso_f32_bits(one[t]), iso_f32_bits(all[t * VOCAB + ids[2 * t]]));
}
END_TEST

START_TEST(beside_a_reduction_of_the_axis)
{
    for (int i = 0; i < TOKENS * VOCAB; i++)
        all[i] = (float)(i * 37 % 101);
    run(3, (ExecTensor[]){IDS, {.data = all, .stride = {VOCAB, 1}}},
        (ExecTensor){.data = one, .stride = {1}}, whole);
    for (int t = 0; t < TOKENS; t++) {
        float most = all[t * VOCAB];
        for (int v = 1; v < VOCAB; v++)
            most = iso_max(most, all[t * VOCAB + v]);
        ck_assert_uint_eq(iso_f32_bits(one[t]), iso_f32_bits(all[t * VOCAB + ids[2 * t]] - most));
    }
}
END_TEST

START_TEST(an_index_outside_picks_zeros)
{
    const i64 some[] = {30, 2, 36, 2};
    const int32_t outside[] = {-1, VOCAB, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        memset(embedded, 0xAA, sizeof embedded);
        ids[2 * 2] = outside[i];
        run(0, (ExecTensor[]){IDS, W}, (ExecTensor){.data = embedded, .stride = {HIDDEN, 1}},
            (ExecRange){.n = 4, .list = some});
        for (int h = 0; h < HIDDEN; h++) {
            ck_assert_uint_eq(embedded[2 * HIDDEN + h], 0);
            ck_assert_uint_eq(embedded[30 * HIDDEN + h], w[ids[60] * HIDDEN + h]);
            ck_assert_uint_eq(embedded[3 * HIDDEN + h], 0xAAAA);
        }
    }
    run(2, (ExecTensor[]){IDS, X, W}, (ExecTensor){.data = one, .stride = {1}}, whole);
    ck_assert_uint_eq(iso_f32_bits(one[2]), 0x80000000u); /* the minus of a sum of zeros */
}
END_TEST

START_TEST(what_is_kept_is_minus_infinity_elsewhere)
{
    static float kept[TOKENS * VOCAB];
    ids[2 * 5] = -1;
    for (int i = 0; i < TOKENS * VOCAB; i++)
        all[i] = (float)(i * 37 % 101);
    ExecTensor z = {.data = all, .stride = {VOCAB, 1}};
    run(4, (ExecTensor[]){IDS, z}, (ExecTensor){.data = kept, .stride = {VOCAB, 1}}, whole);
    run(5, (ExecTensor[]){IDS, z}, (ExecTensor){.data = one, .stride = {1}}, whole);
    for (int t = 0; t < TOKENS; t++) {
        for (int v = 0; v < VOCAB; v++)
            ck_assert_uint_eq(iso_f32_bits(kept[t * VOCAB + v]),
                              v == ids[2 * t] ? iso_f32_bits(all[t * VOCAB + v]) : 0xFF800000u);
        ck_assert_uint_eq(iso_f32_bits(one[t]),
                          t == 5 ? 0xFF800000u : iso_f32_bits(-all[t * VOCAB + ids[2 * t]]));
    }
}
END_TEST

START_TEST(the_graph_as_text)
{
    Text out = {.arena = f.arena}, hashed = {.arena = f.arena};
    dag_print(&dag, &dag.ops[2], &out);
    *strstr(out.s, "  fingerprint") = 0;
    ck_assert_str_eq(out.s, "op one\n"
                            "  %0 = x: bf16[tokens, hidden]\n"
                            "  %1 = w[vocab ids]: bf16[tokens, hidden]\n"
                            "  %2 = mul %0 %1: bf16[tokens, hidden]\n"
                            "  %3 = sum over [hidden] by mma %2: f32[tokens]\n"
                            "  %4 = neg %3: f32[tokens]\n"
                            "  y = %4\n");
    dag_canonical(&dag, &dag.ops[0], &hashed);
    ck_assert_str_eq(hashed.s, "isoc numerics 1\nop embed\n"
                               "param 0 ids index of a1:23 [a0:free]\n"
                               "param 1 w bf16 [a1:23, a2:40]\n"
                               "result 0 x bf16 [a0:free, a2:40]\n"
                               "%0 = input bf16 1 [a1:23, a2:40] at a1=param 0\n"
                               "store 0 = %0\n");
}
END_TEST

Suite *index_suite(void)
{
    Suite *suite = suite_create("index");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_add_test(tc, rows_of_a_table);
    tcase_add_test(tc, elements_of_a_product);
    tcase_add_test(tc, beside_a_reduction_of_the_axis);
    tcase_add_test(tc, an_index_outside_picks_zeros);
    tcase_add_test(tc, what_is_kept_is_minus_infinity_elsewhere);
    tcase_add_test(tc, the_graph_as_text);
    suite_add_tcase(suite, tc);
    return suite;
}
