/* Tensors of indices and integers through libiso: dtypes, what a draw needs, ranks that have a part
 * of a vocabulary, and what the launchers would send to a device. */
#include "artefact.h"

#include "module.h"

#include "device/iso_abi.cuh"

static const char contract[] =
    "contract lookups version 1;\n"
    "numerics sm_90;\n"
    "axis tokens = sequence * position ragged, vocab = 20, hidden = 8;\n"
    "op embed(ids: vocab[tokens], w: bf16[vocab, hidden]) -> x: bf16[tokens, hidden] {\n"
    "    x = w[vocab ids];\n"
    "}\n"
    "op logit(z: f32[tokens, vocab], ids: vocab[tokens]) -> y: f32[tokens] {\n"
    "    y = max(vocab by split 4 { chain } left f32) z[vocab = ids];\n"
    "}\n"
    "op token(z: f32[tokens, vocab], seed, k: i32[tokens]) -> token: vocab[tokens] {\n"
    "    draw token = z, seed { over vocab; top_k k; }\n"
    "}\n"
    "layout one { }\n"
    "layout two { tp 2 cuts vocab; }\n";

enum { ROWS = 5, VOCAB = 20, HIDDEN = 8, TENSORS = 4 };

static Artefact artefact;
static iso_module *module;
static int32_t ids[ROWS] = {3, 19, -1, 20, 0}, seed[ROWS], ones[ROWS] = {1, 1, 1, 1, 1};
static int32_t positions[ROWS] = {0, 1, 2, 3, 4}, token[ROWS];
static uint16_t w[VOCAB * HIDDEN], x[ROWS * HIDDEN];
static float z[ROWS * VOCAB], y[ROWS];

static void open_module(void)
{
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    artefact_open(&artefact, contract);
    ck_assert_msg(iso_module_load_data(&module, artefact.bytes.s, (size_t)artefact.bytes.n,
                                       &config) == ISO_OK, "%s", iso_last_error());
    for (int i = 0; i < VOCAB * HIDDEN; i++)
        w[i] = (uint16_t)(0x3F80 + i);
    for (int i = 0; i < ROWS * VOCAB; i++)
        z[i] = (float)(i * 7 % 19);
}

static void close_module(void)
{
    iso_module_unload(module);
    artefact_close(&artefact);
}

static const iso_op *op_of(const char *name, const char *layout, int rank)
{
    const iso_op *op;
    iso_layout at = {.name = layout, .rank = rank};
    ck_assert_msg(iso_op_get(module, name, &at, &op) == ISO_OK, "%s", iso_last_error());
    return op;
}

static void bind(const iso_op *op, iso_phase phase, void *const *data, iso_tensor *tensors)
{
    for (int i = 0; data[i]; i++) {
        ck_assert(iso_op_tensor(op, phase, ROWS, i, &tensors[i], NULL) == ISO_OK);
        tensors[i].data = data[i];
    }
}

START_TEST(rows_by_indices)
{
    const iso_op *op = op_of("embed", "one", 0);
    iso_tensor tensors[TENSORS];
    iso_run run = {.rows = ROWS};
    bind(op, ISO_PHASE_RUN, (void *const[]){ids, w, x, NULL}, tensors);
    ck_assert_int_eq(tensors[0].dtype, ISO_I32);
    ck_assert_msg(iso_op_run(op, tensors, 3, &run) == ISO_OK, "%s", iso_last_error());
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < HIDDEN; i++)
            ck_assert_uint_eq(x[r * HIDDEN + i],
                              ids[r] < 0 || ids[r] >= VOCAB ? 0 : w[ids[r] * HIDDEN + i]);
    tensors[0].dtype = ISO_F32;
    ck_assert_int_eq(iso_op_run(op, tensors, 3, &run), ISO_BAD_TENSOR);
    ck_assert_ptr_nonnull(strstr(iso_last_error(), "has dtype f32, the contract says i32"));
}
END_TEST

START_TEST(ranks_keep_their_part)
{
    static _Alignas(256) float roots[2][64];
    const void *sources[] = {roots[0], roots[1]};
    iso_tensor tensors[TENSORS];
    iso_run run = {.rows = ROWS};
    for (int rank = 0; rank < 2; rank++) {
        const iso_op *op = op_of("logit", "two", rank);
        bind(op, ISO_PHASE_PART, (void *const[]){z + rank * VOCAB / 2, ids, y, NULL}, tensors);
        tensors[0].stride[0] = VOCAB;
        ck_assert_msg(iso_op_part(op, tensors, 3, roots[rank], &run) == ISO_OK, "%s",
                      iso_last_error());
    }
    const iso_op *op = op_of("logit", "two", 1);
    bind(op, ISO_PHASE_JOIN, (void *const[]){z, ids, y, NULL}, tensors);
    ck_assert_msg(iso_op_join(op, sources, 2, tensors, 3, &run) == ISO_OK, "%s",
                  iso_last_error());
    for (int r = 0; r < ROWS; r++)
        if (ids[r] < 0 || ids[r] >= VOCAB)
            ck_assert(y[r] < -1e38f);
        else
            ck_assert(y[r] == z[r * VOCAB + ids[r]]);
}
END_TEST

START_TEST(draws_need_positions)
{
    const iso_op *op = op_of("token", "one", 0);
    iso_tensor tensors[TENSORS];
    iso_run run = {.rows = ROWS};
    bind(op, ISO_PHASE_RUN, (void *const[]){z, seed, ones, token, NULL}, tensors);
    ck_assert_int_eq(tensors[3].dtype, ISO_I32);
    ck_assert_int_eq(iso_op_run(op, tensors, 4, &run), ISO_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(iso_last_error(), "draws by position"));
    run.positions = positions;
    ck_assert_msg(iso_op_run(op, tensors, 4, &run) == ISO_OK, "%s", iso_last_error());
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VOCAB; v++)
            ck_assert(z[r * VOCAB + v] < z[r * VOCAB + token[r]] ||
                      (z[r * VOCAB + v] == z[r * VOCAB + token[r]] && v >= token[r]));
}
END_TEST

/* ---- what is sent ---------------------------------------------------------------------------- */

static IsoRowArgs sent;
static unsigned grid;

static CuResult note_launch(const CuLaunchConfig *config, CuFunction function, void **args,
                            void **extra)
{
    (void)extra;
    grid = config->grid_x;
    if (function == (void *)&sent)
        sent.map = *(IsoMapArgs *)args[0];
    else
        sent = *(IsoRowArgs *)args[0];
    return 0;
}

static const Driver notes = {.launch_config = note_launch};

static void pretend(bool map)
{
    static CuFunction functions[16];
    for (int i = 0; i < 16; i++)
        functions[i] = map ? (CuFunction)(void *)&sent : NULL;
    module->device = ISO_CUDA;
    module->driver = &notes;
    module->functions = functions;
    module->multiprocessors = 132;
}

START_TEST(launches_say_which_indices_are_there)
{
    static _Alignas(256) float roots[64];
    iso_tensor tensors[TENSORS];
    iso_run run = {.rows = ROWS, .positions = positions};
    const iso_op *op = op_of("embed", "one", 0);
    pretend(true);
    bind(op, ISO_PHASE_RUN, (void *const[]){ids, w, x, NULL}, tensors);
    tensors[1].stride[0] = 24;
    ck_assert_msg(iso_op_run(op, tensors, 3, &run) == ISO_OK, "%s", iso_last_error());
    ck_assert_int_eq(sent.map.lookup[0].stride, 24);
    ck_assert_int_eq(sent.map.lookup[0].count, VOCAB);
    op = op_of("token", "one", 0);
    bind(op, ISO_PHASE_RUN, (void *const[]){z, seed, ones, token, NULL}, tensors);
    ck_assert_msg(iso_op_run(op, tensors, 4, &run) == ISO_OK, "%s", iso_last_error());
    ck_assert_ptr_eq(sent.map.position, positions);
    ck_assert_int_eq(sent.map.extent[1], VOCAB);
    ck_assert_int_eq(grid, ROWS);
    op = op_of("logit", "two", 1);
    pretend(false);
    bind(op, ISO_PHASE_PART, (void *const[]){z, ids, y, NULL}, tensors);
    ck_assert_msg(iso_op_part(op, tensors, 3, roots, &run) == ISO_OK, "%s", iso_last_error());
    ck_assert_int_eq(sent.map.lookup[0].stride, 1);
    ck_assert_int_eq(sent.map.lookup[0].begin, VOCAB / 2);
    ck_assert_int_eq(sent.map.lookup[0].count, VOCAB / 2);
    module->device = ISO_CPU;
    module->functions = NULL;
}
END_TEST

Suite *lookup_suite(void)
{
    Suite *suite = suite_create("lookup");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, open_module, close_module);
    tcase_add_test(tc, rows_by_indices);
    tcase_add_test(tc, ranks_keep_their_part);
    tcase_add_test(tc, draws_need_positions);
    tcase_add_test(tc, launches_say_which_indices_are_there);
    suite_add_tcase(suite, tc);
    return suite;
}
