/* libiso without a GPU: the CPU device, every refusal, tables by coordinates. */
#include "box.h"

#include <stdio.h>

/* ---- refusals ---- */

START_TEST(names_are_looked_up)
{
    Box *box = open_box();
    const iso_op *op;
    iso_layout nowhere = {.name = "nowhere"}, far = {.name = "four", .rank = 4};
    iso_layout degrees = {.degrees = "tp=4", .rank = 3}, none = {.degrees = "tp=5"};
    REFUSED(iso_op_get(box->module, "nothing", NULL, &op), ISO_UNKNOWN_OP, "no op nothing");
    ck_assert_ptr_null(op);
    REFUSED(iso_op_get(box->module, "norm", &nowhere, &op), ISO_UNKNOWN_LAYOUT, "nowhere");
    REFUSED(iso_op_get(box->module, "norm", &none, &op), ISO_UNKNOWN_LAYOUT, "tp=5");
    REFUSED(iso_op_get(box->module, "norm", &far, &op), ISO_BAD_RANK, "ranks 0 to 3");
    REFUSED(iso_op_get(NULL, "norm", NULL, &op), ISO_INVALID_ARGUMENT, "NULL");
    ck_assert_int_eq(iso_op_get(box->module, "norm", &degrees, &op), ISO_OK);
    ck_assert_int_eq(iso_op_get(box->module, "norm", NULL, &op), ISO_OK);
    ck_assert_ptr_null(iso_module_op_name(box->module, 4));
    ck_assert_str_eq(iso_module_op_name(box->module, 1), "rope");
    ck_assert_str_eq(iso_module_layout_name(box->module, 1), "four");
    close_box(box);
}
END_TEST

START_TEST(tensors_are_checked)
{
    Box *box = open_box();
    const iso_op *op = op_of(box, "norm", "one", 0);
    iso_tensor good;
    bind(box, op, ISO_PHASE_RUN, ROWS, 0);
    good = box->tensors[0];
    REFUSED(iso_op_run(op, box->tensors, 2, &box->run), ISO_BAD_COUNT,
            "takes 3 tensors (2 parameters, 1 results), not 2");
    box->tensors[0].dtype = ISO_F32;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "x has dtype f32, the contract says bf16");
    box->tensors[0].dtype = (iso_dtype)77;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "x has dtype ?");
    box->tensors[0] = good;
    box->tensors[0].n_axes = 1;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "x has 1 axes, the contract says 2");
    box->tensors[0] = good;
    box->tensors[0].shape[1] = 63;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "axis 1 of tensor x has 63 elements");
    box->tensors[0] = good;
    box->tensors[0].stride[1] = -1;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "negative stride on axis 1");
    box->tensors[0] = good;
    box->tensors[0].data = (char *)good.data + 1;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "aligned to 2 bytes");
    box->tensors[0].data = NULL;
    REFUSED(call(box, op), ISO_BAD_TENSOR, "need a non-null pointer");
    box->tensors[0] = good;
    ck_assert_int_eq(box->data[2][0], 0xCDCD);
    ck_assert_int_eq(call(box, op), ISO_OK);
    ck_assert_int_ne(box->data[2][0], 0xCDCD);
    close_box(box);
}
END_TEST

START_TEST(runs_are_checked)
{
    Box *box = open_box();
    const iso_op *op = op_of(box, "norm", "one", 0);
    size_t bytes;
    bind(box, op, ISO_PHASE_RUN, ROWS, 0);
    box->run.schedule = 99;
    REFUSED(call(box, op), ISO_INVALID_ARGUMENT, "schedule 99, but op norm has 1 to 1");
    box->run = (iso_run){.rows = -1};
    REFUSED(call(box, op), ISO_INVALID_ARGUMENT, "-1 rows");
    box->run = (iso_run){.rows = (int64_t)INT32_MAX + 1};
    REFUSED(call(box, op), ISO_INVALID_ARGUMENT, "2147483648 rows");
    REFUSED(iso_op_run(op, box->tensors, box->n, NULL), ISO_INVALID_ARGUMENT, "NULL");
    REFUSED(iso_op_run(NULL, box->tensors, box->n, &box->run), ISO_INVALID_ARGUMENT, "NULL");
    REFUSED(iso_op_workspace(op, 1, 0, NULL), ISO_INVALID_ARGUMENT, "bytes is NULL");
    REFUSED(iso_op_roots(op, 1, &bytes), ISO_NO_JOIN, "needs no join");
    REFUSED(iso_op_part(op, box->tensors, box->n, box->data[0], &box->run), ISO_NO_JOIN,
            "needs no join");
    bind(box, op, ISO_PHASE_RUN, 0, 0);
    ck_assert_int_eq(call(box, op), ISO_OK);
    ck_assert_int_eq(box->data[2][0], 0xCDCD);
    close_box(box);
}
END_TEST

START_TEST(files_are_checked)
{
    Box *box = open_box();
    iso_module *module = NULL;
    iso_config config = {.size = 3};
    Str bytes = str_copy(box->artefact.pipeline.out, box->artefact.bytes);
    REFUSED(iso_module_load(&module, "/nowhere/a.cubin", NULL), ISO_FILE, "/nowhere/a.cubin");
    REFUSED(iso_module_load(NULL, "a.cubin", NULL), ISO_INVALID_ARGUMENT, "NULL");
    REFUSED(iso_module_load_data(&module, "none", 4, NULL), ISO_NOT_ISO, "4 bytes");
    REFUSED(iso_module_load_data(&module, bytes.s, (size_t)bytes.n, &config),
            ISO_INVALID_ARGUMENT, "iso_config.size is 3");
    config = (iso_config){.size = sizeof config, .device = (iso_device)7};
    REFUSED(iso_module_load_data(&module, bytes.s, (size_t)bytes.n, &config),
            ISO_INVALID_ARGUMENT, "device 7");
    ((char *)bytes.s)[66] ^= 4; /* code */
    config.device = ISO_CPU;
    REFUSED(iso_module_load_data(&module, bytes.s, (size_t)bytes.n, &config), ISO_CORRUPT,
            "not the ones that isoc wrote");
    ck_assert_ptr_null(module);
    close_box(box);
}
END_TEST

/* ---- what runs give ---- */

static float value(unsigned short bits)
{
    return iso_f32_of_bf16(bits);
}

static unsigned short rotated(const Box *box, int row, int head, int half, int rot, int position)
{
    const unsigned short *q = &box->data[0][(row * 8 + head) * 16];
    float own = value(q[half * 8 + rot]), other = value(q[(1 - half) * 8 + rot]);
    float cos = value(box->data[1][position * 8 + rot]);
    float sin = value(box->data[2][position * 8 + rot]);
    float a = value(iso_bf16_of_f32(own * cos)), b = value(iso_bf16_of_f32(other * sin));
    return iso_bf16_of_f32(half ? a + b : a - b);
}

START_TEST(positions_pick_rows_of_tables)
{
    static const int32_t positions[ROWS] = {0, 1, 2, 0, 1, 30};
    Box *box = open_box();
    const iso_op *op = op_of(box, "rope", "one", 0);
    bind(box, op, ISO_PHASE_RUN, ROWS, 31);
    REFUSED(call(box, op), ISO_INVALID_ARGUMENT,
            "tensor cos is indexed by position: iso_run.positions must hold each row's");
    box->run.positions = positions;
    ck_assert_msg(call(box, op) == ISO_OK, "%s", iso_last_error());
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 8 * 16; i++)
            ck_assert_int_eq(box->data[3][r * 128 + i],
                             rotated(box, r, i / 16, i / 8 % 2, i % 8, positions[r]));
    close_box(box);
}
END_TEST

/* Ranks that share the rows out give the coordinates of their own. */
START_TEST(sequences_pick_rows_of_tables)
{
    static const int32_t sequences[] = {2, 2, 0, 1, 1, 1, 1};
    Box *box = open_box();
    int checked = 0;
    for (int rank = 0; rank < 4; rank++) {
        const iso_op *op = op_of(box, "shift", "four", rank);
        int64_t origin[ISO_MAX_AXES];
        bind(box, op, ISO_PHASE_RUN, 7, 3);
        ck_assert(iso_op_origin(op, ISO_PHASE_RUN, 7, 0, origin) == ISO_OK);
        REFUSED(call(box, op), ISO_INVALID_ARGUMENT, "indexed by sequence");
        box->run.sequences = sequences + origin[0];
        ck_assert_msg(call(box, op) == ISO_OK, "%s", iso_last_error());
        for (int r = 0; r < box->tensors[0].shape[0]; r++)
            for (int i = 0; i < 64; i++, checked++)
                ck_assert_int_eq(box->data[2][r * 64 + i],
                                 iso_bf16_of_f32(
                                     value(box->data[0][r * 64 + i]) +
                                     value(box->data[1][sequences[origin[0] + r] * 64 + i])));
        ck_assert(iso_op_origin(op, ISO_PHASE_RUN, 7, 1, origin) == ISO_OK);
        ck_assert_int_eq(origin[0], 0);
    }
    ck_assert_int_eq(checked, 7 * 64);
    close_box(box);
}
END_TEST

START_TEST(rows_past_the_live_ones_stay)
{
    Box *box = open_box();
    const iso_op *op = op_of(box, "norm", "one", 0);
    const int32_t counts[] = {4, 0, -3, 100};
    for (int i = 0; i < 4; i++) {
        int live = counts[i] < 0 ? 0 : counts[i] > ROWS ? ROWS : counts[i];
        bind(box, op, ISO_PHASE_RUN, ROWS, 0);
        box->run.rows_device = &counts[i];
        ck_assert_int_eq(call(box, op), ISO_OK);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < 64; c++)
                ck_assert_int_eq(box->data[2][r * 64 + c] != 0xCDCD, r < live);
    }
    close_box(box);
}
END_TEST

START_TEST(parts_and_join_give_the_runs_bits)
{
    static _Alignas(256) float roots[4][2 * ROWS * 64];
    Box *box = open_box();
    unsigned short whole[ROWS * 64];
    int32_t live = 4;
    int rows = 0;
    const void *sources[4] = {roots[0], roots[1], roots[2], roots[3]};
    const iso_op *op = op_of(box, "down", "one", 0);
    bind(box, op, ISO_PHASE_RUN, ROWS, 0);
    ck_assert_int_eq(call(box, op), ISO_OK);
    memcpy(whole, box->data[3], sizeof whole);
    for (int rank = 0; rank < 4; rank++) {
        int64_t origin[ISO_MAX_AXES];
        size_t bytes;
        op = op_of(box, "down", "four", rank);
        bind(box, op_of(box, "down", "one", 0), ISO_PHASE_RUN, ROWS, 0);
        iso_tensor all[MOST_TENSORS];
        memcpy(all, box->tensors, sizeof all);
        for (int i = 0; i < 4; i++) {
            ck_assert(iso_op_tensor(op, ISO_PHASE_PART, ROWS, i, &box->tensors[i], NULL) ==
                      ISO_OK);
            ck_assert(iso_op_origin(op, ISO_PHASE_PART, ROWS, i, origin) == ISO_OK);
            box->tensors[i].data = (unsigned short *)all[i].data +
                                   origin[0] * all[i].stride[0] + origin[1] * all[i].stride[1];
            memcpy(box->tensors[i].stride, all[i].stride, sizeof all[i].stride);
        }
        ck_assert(iso_op_roots(op, ROWS, &bytes) == ISO_OK);
        ck_assert_uint_le(bytes, sizeof roots[0]);
        REFUSED(call(box, op), ISO_NEEDS_JOIN, "ends in a join");
        REFUSED(iso_op_part(op, box->tensors, 4, (char *)roots[rank] + 4, &box->run),
                ISO_INVALID_ARGUMENT, "aligned to 256");
        ck_assert_int_eq(iso_op_part(op, box->tensors, 4, roots[rank], &box->run), ISO_OK);
    }
    for (int rank = 0; rank < 4; rank++) {
        int64_t origin[ISO_MAX_AXES];
        op = op_of(box, "down", "four", rank);
        bind(box, op, ISO_PHASE_JOIN, ROWS, 0);
        ck_assert(iso_op_origin(op, ISO_PHASE_JOIN, ROWS, 3, origin) == ISO_OK);
        box->tensors[2].data = &box->data[2][origin[0] * 64];
        REFUSED(iso_op_join(op, sources, 3, box->tensors, 4, &box->run), ISO_INVALID_ARGUMENT,
                "has 4 ranks");
        box->run.rows_device = &live; /* of the roots' rows */
        ck_assert_int_eq(iso_op_join(op, sources, 4, box->tensors, 4, &box->run), ISO_OK);
        for (int r = 0; r < box->tensors[3].shape[0]; r++, rows++)
            ck_assert_int_eq(box->data[3][r * 64] != 0xCDCD, origin[0] + r < live);
        box->run.rows_device = NULL;
        ck_assert_int_eq(iso_op_join(op, sources, 4, box->tensors, 4, &box->run), ISO_OK);
        ck_assert_mem_eq(box->data[3], whole + origin[0] * 64,
                         (size_t)box->tensors[3].shape[0] * 128);
    }
    ck_assert_int_eq(rows, ROWS);
    close_box(box);
}
END_TEST

START_TEST(damaged_bytes_never_load)
{
    Box *box = open_box();
    iso_config config = {.size = sizeof config, .device = ISO_CPU};
    Str bytes = str_copy(box->artefact.pipeline.out, box->artefact.bytes);
    for (i64 i = 0; i < bytes.n; i += i < 512 ? 1 : 97) {
        iso_module *module;
        ((char *)bytes.s)[i] ^= 0x20;
        if (iso_module_load_data(&module, bytes.s, (size_t)bytes.n, &config) == ISO_OK)
            iso_module_unload(module);
        ((char *)bytes.s)[i] ^= 0x20;
        if (i % 5 == 0)
            ck_assert_int_ne(iso_module_load_data(&module, bytes.s, (size_t)i, &config), ISO_OK);
    }
    close_box(box);
}
END_TEST

Suite *runtime_suite(void);
Suite *runtime_suite(void)
{
    Suite *suite = suite_create("runtime");
    TCase *tests = tcase_create("runtime");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, names_are_looked_up);
    tcase_add_test(tests, tensors_are_checked);
    tcase_add_test(tests, runs_are_checked);
    tcase_add_test(tests, files_are_checked);
    tcase_add_test(tests, positions_pick_rows_of_tables);
    tcase_add_test(tests, sequences_pick_rows_of_tables);
    tcase_add_test(tests, rows_past_the_live_ones_stay);
    tcase_add_test(tests, parts_and_join_give_the_runs_bits);
    tcase_add_test(tests, damaged_bytes_never_load);
    suite_add_tcase(suite, tests);
    return suite;
}
