/* attend through libiso without a GPU: what a launch passes to the kernel, what is refused, and the
 * CPU device's bits for keys in pages, packed and by strides. */
#include "artefact.h"

#include "module.h"

#include "device/iso_abi.cuh"

#include <stdio.h>

static const char contract[] =
    "contract attention version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, heads = kv_heads 2 * group 3, d = 64;\n"
    "op f(q: bf16[tokens, heads, d], k, v: bf16[sequence, position, kv_heads, d])\n"
    "   -> (o: bf16[tokens, heads, d], l: f32[tokens, heads]) {\n"
    "    attend x, y = q, k, v { over d; scale_log2 0.18033688; }\n"
    "    o = bf16(x);\n    l = y;\n"
    "}\n"
    "op all(q: bf16[tokens, heads, d], k, v: bf16[sequence, position, kv_heads, d])\n"
    "   -> o: bf16[tokens, heads, d] {\n"
    "    attend x = q, k, v { over d; scale_log2 0.18033688; mask none; }\n"
    "    o = bf16(x);\n"
    "}\n";

enum { ROWS = 7, REQUESTS = 2, PAGE = 16, PAGES = 6, KEY = 2 * 64, LONGEST = 40 };
enum { Q, K, V, O, L, TENSORS };

static const int32_t positions[ROWS] = {0, 20, 39, 4, 30, 16, 2};
static const int32_t sequences[ROWS] = {0, 0, 0, 1, 1, -1, 1};
static const int32_t lengths[REQUESTS] = {40, 31}, starts[REQUESTS] = {31, 0};
static const int32_t table[REQUESTS * 3] = {4, 0, 2, 5, 1, -7}; /* the last one is nobody's */

typedef struct Rig {
    Artefact artefact;
    iso_module *module;
    iso_tensor tensors[TENSORS];
    iso_keys keys;
    iso_run run;
    _Alignas(16) unsigned short q[ROWS * 6 * 64], k[2][PAGES * PAGE * KEY], o[ROWS * 6 * 64];
    float l[ROWS * 6];
    _Alignas(256) unsigned char workspace[2 << 20];
} Rig;

static Rig *open_rig(void)
{
    Rig *rig = aligned_alloc(_Alignof(Rig), sizeof *rig);
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    ck_assert_ptr_nonnull(rig);
    memset(rig, 0, sizeof *rig);
    artefact_open(&rig->artefact, contract);
    Str bytes = rig->artefact.bytes;
    ck_assert_int_eq(iso_module_load_data(&rig->module, bytes.s, (size_t)bytes.n, &config), ISO_OK);
    rig->run = (iso_run){.rows = ROWS, .positions = positions, .sequences = sequences,
                         .keys = &rig->keys};
    rig->keys.lengths = lengths;
    return rig;
}

static void close_rig(Rig *rig)
{
    iso_module_unload(rig->module);
    artefact_close(&rig->artefact);
    free(rig);
}

static const iso_op *bind(Rig *rig, const char *name)
{
    const iso_op *op;
    void *const data[] = {rig->q, rig->k[0], rig->k[1], rig->o, rig->l};
    ck_assert_int_eq(iso_op_get(rig->module, name, NULL, &op), ISO_OK);
    for (int i = 0; i < op->op->n_params + op->op->n_results; i++) {
        ck_assert_int_eq(iso_op_tensor(op, ISO_PHASE_RUN, ROWS, i, &rig->tensors[i], NULL), ISO_OK);
        rig->tensors[i].data = data[i];
    }
    return op;
}

static void stored(Rig *rig, int sequences_of, int positions_of)
{
    for (int i = K; i <= V; i++) {
        rig->tensors[i].shape[0] = sequences_of;
        rig->tensors[i].shape[1] = positions_of;
        rig->tensors[i].stride[0] = (int64_t)positions_of * KEY;
        rig->tensors[i].stride[1] = KEY;
    }
}

static iso_status call(Rig *rig, const iso_op *op)
{
    return iso_op_run(op, rig->tensors, op->op->n_params + op->op->n_results, &rig->run);
}

/* ---- bits ------------------------------------------------------------------------------------ */

typedef enum Mode { BY_STRIDES, PACKED, IN_PAGES, MODES } Mode;

static void set_mode(Rig *rig, Mode mode)
{
    rig->keys = (iso_keys){.lengths = lengths};
    if (mode == PACKED)
        rig->keys.starts = starts;
    if (mode == IN_PAGES) {
        rig->keys.block_table = table;
        rig->keys.block_table_stride = 3;
        rig->keys.page = PAGE;
    }
    stored(rig, mode == BY_STRIDES ? REQUESTS : mode == PACKED ? 1 : PAGES,
           mode == BY_STRIDES ? LONGEST : mode == PACKED ? 71 : PAGE);
}

/* Key j of a request in elements from the tensor's first, by the header's words. */
static int place(Mode mode, int s, int j)
{
    int row = mode == BY_STRIDES ? s * LONGEST + j
              : mode == PACKED   ? starts[s] + j
                                 : table[s * 3 + j / PAGE] * PAGE + j % PAGE;
    return row * KEY;
}

/* Numbers from -2 to 2 at keys, NaN elsewhere. */
static void fill(Rig *rig, Mode mode)
{
    for (int i = 0; i < ROWS * 6 * 64; i++)
        rig->q[i] = (unsigned short)(0x3F00 + i * 37 % 128 + (i % 3 ? 0x8000 : 0));
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < PAGES * PAGE * KEY; i++)
            rig->k[t][i] = 0x7FC0;
        for (int s = 0; s < REQUESTS; s++)
            for (int j = 0; j < lengths[s]; j++)
                for (int e = 0; e < KEY; e++)
                    rig->k[t][place(mode, s, j) + e] =
                        (unsigned short)(0x3F00 + (t * 5 + s * 11 + j * 31 + e * 7) % 128 +
                                         ((s + j + e) % 2 ? 0x8000 : 0));
    }
}

START_TEST(where_keys_are_moves_no_bit)
{
    Rig *rig = open_rig();
    unsigned short *first = malloc(sizeof rig->o);
    for (Mode mode = BY_STRIDES; mode < MODES; mode++) {
        const iso_op *op = bind(rig, "f");
        set_mode(rig, mode);
        fill(rig, mode);
        memset(rig->o, 0xA5, sizeof rig->o);
        ck_assert_msg(call(rig, op) == ISO_OK, "%s", iso_last_error());
        if (mode == BY_STRIDES)
            memcpy(first, rig->o, sizeof rig->o);
        ck_assert_mem_eq(rig->o, first, sizeof rig->o);
        ck_assert_uint_eq(rig->o[5 * 6 * 64], 0); /* of no request */
        for (int i = 0; i < ROWS * 6 * 64; i++)
            ck_assert_uint_ne(rig->o[i] & 0x7F80, 0x7F80);
    }
    free(first);
    close_rig(rig);
}
END_TEST

/* ---- launches, to a driver that takes notes -------------------------------------------------- */

static struct {
    int launches;
    unsigned grid[2], threads, shared, attributes;
    IsoAttendArgs args;
    int maps;
    unsigned long long dims[3][4], strides[3][3]; /* of queries, keys, values */
    unsigned box[3][4];
} noted;

static CuResult note_launch(const CuLaunchConfig *config, CuFunction function, void **args,
                            void **extra)
{
    (void)function, (void)extra;
    noted.launches++;
    noted.grid[0] = config->grid_x, noted.grid[1] = config->grid_y;
    noted.threads = config->block_x;
    noted.shared = config->shared_bytes;
    noted.attributes = config->n_attributes;
    noted.args = *(IsoAttendArgs *)args[0];
    return 0;
}

static CuResult note_map(CuTensorMap *map, int type, unsigned rank, void *address,
                         const unsigned long long *dims, const unsigned long long *strides,
                         const unsigned *box, const unsigned *element_strides, int interleave,
                         int swizzle, int l2_promotion, int oob_fill)
{
    (void)map, (void)type, (void)address, (void)element_strides, (void)interleave, (void)swizzle;
    (void)l2_promotion, (void)oob_fill;
    ck_assert_uint_eq(rank, 4);
    int at = noted.maps++ % 3;
    memcpy(noted.dims[at], dims, sizeof noted.dims[at]);
    memcpy(noted.strides[at], strides, sizeof noted.strides[at]);
    memcpy(noted.box[at], box, sizeof noted.box[at]);
    return 0;
}

enum { MULTIPROCESSORS = 3, DECODE_TOKENS = 5, MMA_TOKENS = 10, WGMMA_TOKENS = 42,
       REGION = 256 << 10 };
static const Driver notes = {.launch_config = note_launch, .tensor_map = note_map};
static CuFunction handles[8];

static void pretend(Rig *rig)
{
    rig->module->device = ISO_CUDA;
    rig->module->driver = &notes;
    rig->module->functions = handles;
    rig->module->multiprocessors = MULTIPROCESSORS;
    rig->run.workspace = rig->workspace;
    rig->run.workspace_bytes = sizeof rig->workspace;
    memset(&noted, 0, sizeof noted);
}

static void unpretend(Rig *rig)
{
    rig->module->device = ISO_CPU;
    rig->module->functions = NULL;
}

START_TEST(a_launch_says_where_keys_are)
{
    static const int32_t live = 5;
    Rig *rig = open_rig();
    const iso_op *op = bind(rig, "f");
    set_mode(rig, IN_PAGES);
    rig->run.rows_device = &live;
    pretend(rig);
    ck_assert_int_eq(iso_op_workspace(op, ROWS, 0, &rig->run.workspace_bytes), ISO_OK);
    ck_assert_msg(call(rig, op) == ISO_OK, "%s", iso_last_error());
    ck_assert_uint_eq(noted.grid[0], 2 * MULTIPROCESSORS); /* fewer than units */
    ck_assert_uint_eq(noted.grid[1], 1);
    ck_assert_uint_eq(noted.threads, 128);
    ck_assert_uint_gt(noted.shared, 0);
    ck_assert_uint_eq(noted.attributes, 1); /* it waits itself for what comes before */
    ck_assert_ptr_eq(noted.args.rows_dev, &live);
    ck_assert_int_eq(noted.args.rows, ROWS);
    ck_assert_int_eq(noted.args.group, 3);
    ck_assert_int_eq(noted.args.tile_group, 3);
    ck_assert_int_eq(noted.args.tile_tokens, DECODE_TOKENS);
    ck_assert_int_eq(noted.args.heads, 2);
    ck_assert_ptr_eq(noted.args.draws, rig->workspace);
    ck_assert_ptr_eq(noted.args.roots, rig->workspace + REGION);
    ck_assert_uint_eq(rig->run.workspace_bytes,
                      REGION + (size_t)noted.args.most_roots * 2 * 3 * (64 + 4) * 4);
    ck_assert_ptr_eq(noted.args.block_table, table);
    ck_assert_ptr_eq(noted.args.length, lengths);
    ck_assert_int_eq(noted.args.page, PAGE);
    ck_assert_int_eq(noted.args.k_sequence, PAGE * KEY);
    ck_assert_int_eq(noted.args.v_position, KEY);
    ck_assert_int_eq(noted.args.k.stride[1], 64);
    ck_assert_int_eq(noted.args.q.stride[2], 64);
    ck_assert_int_eq(noted.args.lse.stride[1], 3);
    rig->run.schedule = 3;
    ck_assert_int_eq(call(rig, op), ISO_OK);
    ck_assert_int_eq(noted.args.tile_tokens, MMA_TOKENS);
    ck_assert_int_eq(noted.maps, 0);
    ck_assert_uint_eq(noted.attributes, 1);
    ck_assert_uint_eq(noted.grid[0], 1);
    ck_assert_uint_eq(noted.grid[1], 2);
    unpretend(rig);
    close_rig(rig);
}
END_TEST

/* Rows of 2 heads of 3 queries, keys in pages of 16: maps have {elements, group, heads, tokens} and
 * {elements, heads, positions, pages}. */
START_TEST(maps_say_where_operands_are)
{
    Rig *rig = open_rig();
    const iso_op *op = bind(rig, "f");
    set_mode(rig, IN_PAGES);
    pretend(rig);
    rig->run.schedule = 2;
    ck_assert_msg(call(rig, op) == ISO_OK, "%s", iso_last_error());
    ck_assert_uint_eq(noted.threads, 384);
    ck_assert_int_eq(noted.args.tile_tokens, WGMMA_TOKENS);
    ck_assert_int_eq(noted.args.piece, PAGE);
    ck_assert_int_eq(noted.maps, 3);
    static const unsigned long long q[] = {64, 3, 2, ROWS}, k[] = {64, 2, PAGE, PAGES};
    static const unsigned long long q_strides[] = {128, 384, 768};
    static const unsigned long long k_strides[] = {128, 2 * KEY, 2 * KEY * PAGE};
    static const unsigned q_box[] = {64, 3, 1, WGMMA_TOKENS}, k_box[] = {64, 1, PAGE, 1};
    ck_assert_mem_eq(noted.dims[0], q, sizeof q);
    ck_assert_mem_eq(noted.dims[2], k, sizeof k);
    ck_assert_mem_eq(noted.strides[0], q_strides, sizeof q_strides);
    ck_assert_mem_eq(noted.strides[1], k_strides, sizeof k_strides);
    ck_assert_mem_eq(noted.box[0], q_box, sizeof q_box);
    ck_assert_mem_eq(noted.box[2], k_box, sizeof k_box);
    rig->keys.page = 12; /* no box of 8 keys lies in one page: the general kernel's */
    ck_assert_int_eq(call(rig, op), ISO_OK);
    ck_assert_int_eq(noted.args.tile_tokens, MMA_TOKENS);
    set_mode(rig, PACKED);
    ck_assert_int_eq(call(rig, op), ISO_OK);
    ck_assert_int_eq(noted.args.piece, 128);
    ck_assert_uint_eq(noted.dims[1][2], 71);
    unpretend(rig);
    close_rig(rig);
}
END_TEST

/* Rows are few in any case; what one sequence has tells. */
START_TEST(hints_choose)
{
    static const struct {
        int schedule, most_rows, multiprocessors, tokens;
    } cases[] = {{0, 0, 2, DECODE_TOKENS}, {0, 1, 2, DECODE_TOKENS}, {0, 5, 2, DECODE_TOKENS},
                 {0, 6, 2, MMA_TOKENS},    {0, 6, 3, DECODE_TOKENS}, {0, 21, 3, DECODE_TOKENS},
                 {0, 22, 3, WGMMA_TOKENS}, {1, 22, 3, DECODE_TOKENS}, {3, 1, 3, MMA_TOKENS}};
    Rig *rig = open_rig();
    const iso_op *op = bind(rig, "f");
    set_mode(rig, IN_PAGES);
    pretend(rig);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig->run.schedule = cases[i].schedule;
        rig->keys.most_rows = cases[i].most_rows;
        rig->module->multiprocessors = cases[i].multiprocessors;
        ck_assert_msg(call(rig, op) == ISO_OK, "%s", iso_last_error());
        ck_assert_int_eq(noted.args.tile_tokens, cases[i].tokens);
    }
    rig->run.schedule = 0;
    rig->keys.most_rows = 0;
    rig->keys.most_keys = 5;
    rig->run.rows_device = NULL;
    rig->run.workspace_bytes = 256;
    ck_assert_int_eq(call(rig, op), ISO_WORKSPACE);
    unpretend(rig);
    close_rig(rig);
}
END_TEST

#define REFUSED(expression, status, part)                                                          \
    do {                                                                                           \
        ck_assert_int_eq((expression), status);                                                    \
        ck_assert_msg(strstr(iso_last_error(), part) != NULL, "%s", iso_last_error());             \
    } while (0)

START_TEST(what_a_copy_cannot_take_is_refused)
{
    Rig *rig = open_rig();
    const iso_op *op = bind(rig, "f");
    set_mode(rig, PACKED);
    pretend(rig);
    rig->tensors[K].stride[1] = KEY + 4;
    REFUSED(call(rig, op), ISO_BAD_TENSOR, "multiples of 8");
    set_mode(rig, PACKED);
    rig->tensors[V].stride[3] = 2;
    REFUSED(call(rig, op), ISO_BAD_TENSOR, "have stride 2");
    rig->tensors[V].stride[3] = 1;
    rig->tensors[Q].data = rig->q + 4;
    REFUSED(call(rig, op), ISO_BAD_TENSOR, "lie on 16 bytes");
    ck_assert_int_eq(noted.launches, 0);
    unpretend(rig);
    close_rig(rig);
}
END_TEST

/* On both devices: 0 is the CPU. */
START_TEST(what_is_missing_is_refused)
{
    Rig *rig = open_rig();
    const iso_op *op = bind(rig, "all");
    set_mode(rig, IN_PAGES);
    if (_i)
        pretend(rig);
    rig->keys.page = 0;
    REFUSED(call(rig, op), ISO_INVALID_ARGUMENT, "no size of a page");
    set_mode(rig, IN_PAGES);
    rig->keys.starts = starts;
    REFUSED(call(rig, op), ISO_INVALID_ARGUMENT, "a block table and starts");
    set_mode(rig, BY_STRIDES);
    rig->keys.lengths = NULL;
    REFUSED(call(rig, op), ISO_INVALID_ARGUMENT, "must have lengths");
    rig->run.keys = NULL;
    REFUSED(call(rig, op), ISO_INVALID_ARGUMENT, "must have lengths");
    op = bind(rig, "f");
    set_mode(rig, BY_STRIDES);
    rig->run.sequences = NULL;
    REFUSED(call(rig, op), ISO_INVALID_ARGUMENT, "sequences");
    rig->run.sequences = sequences;
    ck_assert_msg(call(rig, op) == ISO_OK, "%s", iso_last_error());
    ck_assert_int_eq(noted.launches, _i);
    if (_i)
        unpretend(rig);
    close_rig(rig);
}
END_TEST

/* A manifest may say anything of its sizes. */
START_TEST(an_empty_group_launches_nothing)
{
    Rig *rig = open_rig();
    const iso_op *op = bind(rig, "f");
    set_mode(rig, BY_STRIDES);
    const MfAtoms *group = &op_spec(op, ISO_PHASE_RUN, ROWS, 0)->dims[2];
    MfPart *part = &op->at->parts[0];
    pretend(rig);
    part->hi[group->atom[0]] = part->lo[group->atom[0]];
    for (int i = 0; i < TENSORS; i++)
        ck_assert_int_eq(iso_op_tensor(op, ISO_PHASE_RUN, ROWS, i, &rig->tensors[i], NULL), ISO_OK);
    ck_assert_int_eq(call(rig, op), ISO_OK);
    ck_assert_int_eq(noted.launches, 0);
    unpretend(rig);
    close_rig(rig);
}
END_TEST

Suite *launch_attend_suite(void)
{
    Suite *suite = suite_create("launch_attend");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, where_keys_are_moves_no_bit);
    tcase_add_test(tc, a_launch_says_where_keys_are);
    tcase_add_test(tc, maps_say_where_operands_are);
    tcase_add_test(tc, hints_choose);
    tcase_add_test(tc, what_a_copy_cannot_take_is_refused);
    tcase_add_loop_test(tc, what_is_missing_is_refused, 0, 2);
    tcase_add_test(tc, an_empty_group_launches_nothing);
    suite_add_tcase(suite, tc);
    return suite;
}
