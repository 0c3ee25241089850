/* libiso without a GPU: the CPU device, every refusal, tables by coordinates; and what launchers
 * would send to a device, by a driver that only takes notes. */
#include "artefact.h"

#include "module.h"

#include "device/iso_abi.cuh"
#include "device/iso_num.cuh"

#include <stdio.h>

static const char contract[] =
    "contract every_family version 3;\n"
    "numerics sm_90;\n"
    "axis tokens = sequence * position ragged;\n"
    "axis hidden = 64, ffn = 256;\n"
    "axis heads = kv_heads 4 * group 2, head_dim = half 2 * rot 8;\n"
    "tree eighth = split 8 { mma } pairwise f32;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"
    "    ss = sum(hidden by lanes 32 by 2 { chain } pairwise f32) f32(x) * f32(x);\n"
    "    y = bf16(f32(x) * (1.0 / sqrt(ss / len(hidden) + 1e-6))) * w;\n"
    "}\n"
    "op rope(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"
    "}\n"
    "op shift(x: bf16[tokens, hidden], b: bf16[sequence, hidden]) -> y: bf16[tokens, hidden] {\n"
    "    y = x + b;\n"
    "}\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(ffn by eighth) h * w) + res; }\n"
    "layout one { }\n"
    "layout four { tp 4 cuts kv_heads, ffn else tokens; }\n"
    "schedule down when tokens <= 16 { kernel stream; leaves across ctas; }\n";

enum { ROWS = 6, MOST_TENSORS = 4, MOST_ELEMENTS = 64 * 256 };

/* ---- fixture: the module on the CPU, and tensors with room to spare ---- */

typedef struct Box {
    Artefact artefact;
    iso_module *module;
    unsigned short data[MOST_TENSORS][MOST_ELEMENTS];
    iso_tensor tensors[MOST_TENSORS];
    int n;
    iso_run run;
} Box;

static Box *open_text(const char *text)
{
    Box *box = calloc(1, sizeof *box);
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    ck_assert_ptr_nonnull(box);
    artefact_open(&box->artefact, text);
    Str bytes = box->artefact.bytes;
    iso_status status =
        iso_module_load_data(&box->module, bytes.s, (size_t)bytes.n, &config);
    ck_assert_msg(status == ISO_OK, "%s", iso_last_error());
    return box;
}

static Box *open_box(void)
{
    return open_text(contract);
}

static void close_box(Box *box)
{
    iso_module_unload(box->module);
    artefact_close(&box->artefact);
    free(box);
}

static const iso_op *op_of(const Box *box, const char *name, const char *layout, int rank)
{
    iso_layout at = {.name = layout, .rank = rank};
    const iso_op *op;
    iso_status status = iso_op_get(box->module, name, &at, &op);
    ck_assert_msg(status == ISO_OK, "%s", iso_last_error());
    return op;
}

static unsigned short small(unsigned seed)
{
    return iso_bf16_of_f32((float)(int)(seed * 2654435761u >> 27) - 16.0f);
}

/* Contiguous tensors of the rank's own shapes; table axes get `length`. */
static void bind(Box *box, const iso_op *op, iso_phase phase, int64_t rows, int64_t length)
{
    int params, results;
    ck_assert(iso_op_tensors(op, &params, &results) == ISO_OK);
    box->n = params + results;
    box->run = (iso_run){.rows = rows};
    for (int i = 0; i < box->n; i++) {
        iso_tensor *t = &box->tensors[i];
        ck_assert(iso_op_tensor(op, phase, rows, i, t, NULL) == ISO_OK);
        for (int a = 0; a < t->n_axes; a++)
            t->shape[a] = t->shape[a] ? t->shape[a] : length;
        t->data = box->data[i];
        for (unsigned k = 0; k < MOST_ELEMENTS; k++)
            box->data[i][k] = i < params ? small(k * 7 + (unsigned)i) : 0xCDCD;
    }
}

static iso_status call(const Box *box, const iso_op *op)
{
    return iso_op_run(op, box->tensors, box->n, &box->run);
}

#define REFUSED(status, want, part)                                                                \
    do {                                                                                           \
        iso_status got_ = (status);                                                                \
        ck_assert_msg(got_ == (want), "got \"%s\": %s", iso_status_string(got_),                   \
                      iso_last_error());                                                           \
        ck_assert_msg(strstr(iso_last_error(), part) != NULL, "\"%s\" lacks \"%s\"",               \
                      iso_last_error(), part);                                                     \
    } while (0)

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

/* ---- launches, to a driver that takes notes ---- */

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
    tcase_add_test(tests, launches_pass_coordinates_and_live_rows);
    tcase_add_test(tests, two_calls_of_a_program_are_one_launch);
    tcase_add_test(tests, tables_are_strided_along_the_tokens);
    tcase_add_test(tests, workspaces_are_checked);
    tcase_add_test(tests, roots_of_an_op_that_joins_alone_spare_the_counters);
    tcase_add_test(tests, damaged_bytes_never_load);
    suite_add_tcase(suite, tests);
    return suite;
}
