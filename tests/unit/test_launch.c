/* What launchers would send to a device, by a driver that only takes notes. */
#include "box.h"

#include "device/iso_abi.cuh"

/* ---- the driver that takes notes ---- */

static struct {
    int launches, maps;
    unsigned grid[3], threads;
    IsoRowArgs row;
    IsoGemmArgs gemm;
} noted;

static CuResult note_launch(const CuLaunchConfig *config, CuFunction function, void **args,
                            void **extra)
{
    (void)extra;
    noted.launches++;
    noted.grid[0] = config->grid_x, noted.grid[1] = config->grid_y;
    noted.grid[2] = config->grid_z;
    noted.threads = config->block_x;
    switch (*(const MfFamily *)(void *)function) {
    case MF_DRAW:
    case MF_TOP:
        noted.row = (IsoRowArgs){.map = *(IsoMapArgs *)args[0]};
        break;
    case MF_MAP:
        noted.row = (IsoRowArgs){.map = ((IsoMapCalls *)args[0])->map[0],
                                 .also = ((IsoMapCalls *)args[0])->map[1]};
        break;
    case MF_ROW:
        noted.row = *(IsoRowArgs *)args[0];
        break;
    case MF_GEMM:
        noted.gemm = *(IsoGemmArgs *)args[0];
        break;
    case MF_JOIN:
    case MF_ATTEND:
    case MF_ORDER:
        break;
    }
    return 0;
}

static CuResult note_map(CuTensorMap *map, int type, unsigned rank, void *address,
                         const unsigned long long *dims, const unsigned long long *strides,
                         const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                         int promotion, int fill)
{
    (void)map, (void)type, (void)rank, (void)address, (void)dims, (void)strides, (void)box;
    (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    noted.maps++;
    return 0;
}

static CuResult note_memset(unsigned long long address, unsigned char byte, size_t bytes,
                            CuStream stream)
{
    (void)address, (void)byte, (void)bytes, (void)stream;
    return 0;
}

/* The module as if it lay on a device: each function's handle points at its kernel's family. */
static void pretend(iso_module *module, const Driver *driver, Arena *arena)
{
    CuFunction *functions = arena_array(arena, CuFunction, module->manifest->n_kernels);
    for (int i = 0; i < module->manifest->n_kernels; i++)
        functions[i] = (CuFunction)(void *)&module->manifest->kernels[i].family;
    module->device = ISO_CUDA;
    module->driver = driver;
    module->functions = functions;
    module->multiprocessors = 132;
    memset(&noted, 0, sizeof noted);
}

static void unpretend(iso_module *module)
{
    module->device = ISO_CPU;
    module->functions = NULL;
}

static const Driver notes = {.launch_config = note_launch, .tensor_map = note_map,
                             .memset_async = note_memset};

/* ---- what it is sent ---- */

START_TEST(launches_pass_coordinates_and_live_rows)
{
    static const int32_t positions[ROWS] = {0}, sequences[ROWS] = {0}, live = 3;
    Box *box = open_box();
    const char *const ops[] = {"norm", "rope", "shift", "down"};
    pretend(box->module, &notes, box->artefact.pipeline.out);
    for (int i = 0; i < 4; i++) {
        const iso_op *op = op_of(box, ops[i], "one", 0);
        static _Alignas(256) char workspace[4 << 20];
        bind(box, op, ISO_PHASE_RUN, ROWS, 8);
        box->run.positions = positions;
        box->run.sequences = sequences;
        box->run.rows_device = &live;
        box->run.workspace = workspace;
        box->run.workspace_bytes = sizeof workspace;
        ck_assert_msg(call(box, op) == ISO_OK, "%s", iso_last_error());
        ck_assert_int_eq(noted.launches, i + 1);
        if (i == 3) {
            ck_assert_ptr_eq(noted.gemm.rows_dev, &live);
            continue;
        }
        ck_assert_ptr_eq(noted.row.map.rows_dev, &live);
        ck_assert_ptr_eq(noted.row.map.position, positions);
        ck_assert_ptr_eq(noted.row.map.sequence, sequences);
        ck_assert_int_eq(noted.row.map.extent[0], ROWS);
    }
    unpretend(box->module);
    close_box(box);
}
END_TEST

START_TEST(two_calls_of_a_program_are_one_launch)
{
    static const int32_t positions[ROWS] = {0}, live = 3;
    static const char *const ops[] = {"norm", "rope"};
    Box *box = open_box();
    pretend(box->module, &notes, box->artefact.pipeline.out);
    for (int i = 0; i < 2; i++) {
        const iso_op *op = op_of(box, ops[i], "one", 0);
        ck_assert(op_pairs(op, op, ROWS));
        ck_assert(!op_pairs(op, op_of(box, ops[1 - i], "one", 0), ROWS));
        bind(box, op, ISO_PHASE_RUN, ROWS, 8);
        box->run.positions = positions;
        int n = op->op->n_params + op->op->n_results;
        iso_tensor tensors[2][MOST_TENSORS];
        iso_run run[2] = {box->run, box->run};
        memcpy(tensors[0], box->tensors, sizeof box->tensors);
        memcpy(tensors[1], box->tensors, sizeof box->tensors);
        tensors[1][n - 1].data = box->tensors[0].data;
        run[1].rows_device = &live;
        OpCall calls[2] = {{op, tensors[0], n, &run[0]}, {op, tensors[1], n, &run[1]}};
        ck_assert_msg(op_run_pair(calls) == ISO_OK, "%s", iso_last_error());
        ck_assert_int_eq(noted.launches, i + 1);
        ck_assert_uint_eq(noted.grid[1], 2);
        ck_assert_ptr_null(noted.row.map.rows_dev);
        ck_assert_ptr_eq(noted.row.also.rows_dev, &live);
        ck_assert_int_eq(noted.row.also.extent[0], ROWS);
        ck_assert_ptr_eq(noted.row.also.view[0].ptr, noted.row.map.view[0].ptr);
    }
    ck_assert(!op_pairs(op_of(box, "down", "one", 0), op_of(box, "down", "one", 0), ROWS));
    unpretend(box->module);
    close_box(box);
}
END_TEST

START_TEST(tables_are_strided_along_the_tokens)
{
    static const int32_t positions[ROWS] = {0};
    Box *box = open_box();
    const iso_op *op = op_of(box, "rope", "one", 0);
    Str text = pipeline_output(&box->artefact.pipeline, OUTPUT_CUDA);
    pretend(box->module, &notes, box->artefact.pipeline.out);
    bind(box, op, ISO_PHASE_RUN, ROWS, 8);
    box->tensors[1].stride[0] = 40;
    box->run.positions = positions;
    ck_assert_int_eq(call(box, op), ISO_OK);
    const MfSpec *spec = op_spec(op, ISO_PHASE_RUN, ROWS, 0);
    int tables = 0;
    for (int b = 0; b < spec->n_bindings; b++) {
        if (spec->bindings[b].tensor == 1)
            ck_assert_int_eq(noted.row.map.view[b].stride[0], 40);
        tables += spec->bindings[b].coordinate;
    }
    ck_assert_int_eq(tables, 2);
    ck_assert_ptr_nonnull(strstr(text.s, "map.position[i0] * map.view["));
    ck_assert_ptr_nonnull(strstr(text.s, "map.sequence[i0] * map.view["));
    unpretend(box->module);
    close_box(box);
}
END_TEST

START_TEST(workspaces_are_checked)
{
    static _Alignas(256) char workspace[4 << 20];
    Box *box = open_box();
    const iso_op *op = op_of(box, "down", "one", 0);
    size_t need;
    pretend(box->module, &notes, box->artefact.pipeline.out);
    bind(box, op, ISO_PHASE_RUN, 1, 0);
    ck_assert_int_eq(iso_op_workspace(op, 1, 0, &need), ISO_OK);
    ck_assert_uint_gt(need, 0);
    ck_assert_uint_le(need, sizeof workspace - 256);
    REFUSED(call(box, op), ISO_WORKSPACE, "got 0 at");
    box->run.workspace = workspace;
    box->run.workspace_bytes = need - 1;
    REFUSED(call(box, op), ISO_WORKSPACE, "bytes of workspace aligned to 256");
    box->run.workspace = workspace + 64;
    box->run.workspace_bytes = need;
    REFUSED(call(box, op), ISO_WORKSPACE, "bytes of workspace aligned to 256");
    ck_assert_int_eq(noted.launches, 0);
    box->run.workspace = workspace;
    ck_assert_int_eq(call(box, op), ISO_OK);
    ck_assert_int_eq(noted.launches, 1);
    unpretend(box->module);
    close_box(box);
}
END_TEST

/* Other ops find them as they left them, in a workspace that all have. */
START_TEST(roots_of_an_op_that_joins_alone_spare_the_counters)
{
    enum { COUNTERS = 256 << 10 };
    static const char fold[] =
        "contract t version 1; numerics sm_90;\n"
        "axis tokens = sequence * position ragged, vocab = 512, hidden = 64;\n"
        "tree whole = mma;\n"
        "tree row = every 256 { lanes 4 by 2 { chain } pairwise f32 } pairwise f32;\n"
        "op squares(x: bf16[tokens, hidden], w: bf16[vocab, hidden]) -> y: f32[tokens] {\n"
        "    z = sum(hidden by whole) x * w;\n"
        "    y = sum(vocab by row) z * z;\n"
        "}\n"
        "layout one { }\n";
    static _Alignas(256) char workspace[4 << 20];
    Box *box = open_text(fold);
    const iso_op *op = op_of(box, "squares", "one", 0);
    size_t need, roots;
    pretend(box->module, &notes, box->artefact.pipeline.out);
    bind(box, op, ISO_PHASE_RUN, ROWS, 0);
    ck_assert_int_eq(iso_op_workspace(op, ROWS, 0, &need), ISO_OK);
    ck_assert_int_eq(iso_op_roots(op, ROWS, &roots), ISO_OK);
    ck_assert_uint_gt(roots, 0);
    ck_assert_uint_le(need, sizeof workspace);
    REFUSED(call(box, op), ISO_WORKSPACE, "got 0 at");
    box->run.workspace = workspace;
    box->run.workspace_bytes = need;
    ck_assert_msg(call(box, op) == ISO_OK, "%s", iso_last_error());
    ck_assert_int_eq(noted.launches, 2);
    char *at = (char *)noted.gemm.group[0].roots;
    ck_assert(at >= workspace + COUNTERS && at + roots <= workspace + need);
    unpretend(box->module);
    close_box(box);
}
END_TEST

/* A model's products of experts: sorted once, and what lies between them stays in that order. */
START_TEST(two_products_of_experts_have_one_order)
{
    static const char experts[] =
        "contract t version 1; numerics sm_90;\n"
        "axis tokens = sequence * position ragged, hidden = 64, ffn = 64;\n"
        "axis experts = 4, picks = 2 of experts;\n"
        "tree whole = mma;\n"
        "op up(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
        "      w: bf16[experts, ffn, hidden]) -> h: bf16[tokens, picks, ffn] {\n"
        "    h = bf16(sum(hidden by whole) x * w[experts chosen]);\n"
        "}\n"
        "op biased(x: bf16[tokens, hidden], chosen: experts[tokens, picks],\n"
        "          w: bf16[experts, ffn, hidden], b: f32[experts, ffn])\n"
        "    -> h: bf16[tokens, picks, ffn] {\n"
        "    h = bf16((sum(hidden by whole) x * w[experts chosen]) + b[experts chosen]);\n"
        "}\n"
        "op down(h: bf16[tokens, picks, ffn], chosen: experts[tokens, picks],\n"
        "        w: bf16[experts, hidden, ffn]) -> d: bf16[tokens, picks, hidden] {\n"
        "    d = bf16(sum(ffn by whole) h * w[experts chosen]);\n"
        "}\n"
        "layout one { }\n";
    static _Alignas(256) char workspace[4 << 20];
    Box *box = open_text(experts);
    const iso_op *op[2] = {op_of(box, "up", "one", 0), op_of(box, "down", "one", 0)};
    iso_tensor tensors[2][MOST_TENSORS];
    OpCall calls[2];
    int from, chosen;
    pretend(box->module, &notes, box->artefact.pipeline.out);
    ck_assert(op_chains(op[0], op[1], ROWS) && !op_chains(op[0], op[0], ROWS));
    ck_assert(!op_chains(op_of(box, "biased", "one", 0), op[1], ROWS)); /* read by rows of tokens */
    ck_assert(op_gathers(op[1], ROWS, &from, &chosen) && from == 0 && chosen == 1);
    for (int i = 0; i < 2; i++) {
        bind(box, op[i], ISO_PHASE_RUN, ROWS, 0);
        memcpy(tensors[i], box->tensors, sizeof box->tensors);
        box->run.workspace = workspace;
        box->run.workspace_bytes = sizeof workspace;
        calls[i] = (OpCall){op[i], tensors[i], 4, &box->run};
        ck_assert_msg(call(box, op[i]) == ISO_OK, "%s", iso_last_error());
    }
    ck_assert_int_eq(noted.launches, 4); /* each with an order of its own */
    ck_assert_int_eq(noted.maps, 2);
    ck_assert_msg(op_run_chain(calls) == ISO_OK, "%s", iso_last_error());
    ck_assert_int_eq(noted.launches, 4 + 3);
    ck_assert_int_eq(noted.maps, 2 + 3); /* rows too */
    unpretend(box->module);
    close_box(box);
}
END_TEST

/* Nothing that a stream of one's own does may overtake them. */
static int started, awaited;

static CuResult start_write(CuAddress to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    started++;
    return 0;
}

static CuResult start_set(CuAddress to, unsigned char value, size_t bytes)
{
    (void)to, (void)value, (void)bytes;
    started++;
    return 0;
}

static CuResult await(CuStream stream)
{
    ck_assert_ptr_null(stream);
    awaited = started;
    return 0;
}

START_TEST(writes_have_arrived_when_they_return)
{
    static const Driver driver = {.memory_write = start_write, .memory_set = start_set,
                                  .stream_sync = await};
    started = awaited = 0;
    ck_assert_int_eq(driver_write(&driver, 256, "abc", 3), ISO_OK);
    ck_assert_int_eq(awaited, 1);
    ck_assert_int_eq(driver_zero(&driver, 256, 3), ISO_OK);
    ck_assert_int_eq(awaited, 2);
}
END_TEST

Suite *launch_suite(void);
Suite *launch_suite(void)
{
    Suite *suite = suite_create("launch");
    TCase *tests = tcase_create("launch");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, launches_pass_coordinates_and_live_rows);
    tcase_add_test(tests, two_calls_of_a_program_are_one_launch);
    tcase_add_test(tests, tables_are_strided_along_the_tokens);
    tcase_add_test(tests, workspaces_are_checked);
    tcase_add_test(tests, roots_of_an_op_that_joins_alone_spare_the_counters);
    tcase_add_test(tests, two_products_of_experts_have_one_order);
    tcase_add_test(tests, writes_have_arrived_when_they_return);
    suite_add_tcase(suite, tests);
    return suite;
}
