/* Public calls with what they cannot take: NULL in every place, sizes of another library, phases
 * and indices that are none. Each gives a status and a sentence of its own, sets its handle to
 * NULL, and touches nothing else. */
#include "artefact.h"

#include "iso_model.h"
#include "module.h"

#include <pthread.h>

static const char contract[] =
    "contract little version 1; numerics sm_90;\n"
    "axis tokens = sequence * position ragged, hidden = 64, ffn = 128;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] { y = x * w; }\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn]) -> y: bf16[tokens, hidden] {\n"
    "    y = bf16(sum(ffn by split 2 { mma } pairwise f32) h * w);\n"
    "}\n"
    "model m { input x: bf16[tokens, hidden]; y = norm(x, w: \"w\"); output y; }\n"
    "layout one { }\n"
    "layout two { tp 2 cuts ffn else tokens; }\n";

typedef struct Rig {
    Artefact artefact;
    iso_module *module;
    const iso_op *norm, *down; /* of one rank, of the second of two */
} Rig;

static void open_rig(Rig *rig)
{
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    iso_layout second = {.name = "two", .rank = 1};
    artefact_open(&rig->artefact, contract);
    ck_assert_int_eq(iso_module_load_data(&rig->module, rig->artefact.bytes.s,
                                          (size_t)rig->artefact.bytes.n, &config), ISO_OK);
    ck_assert_int_eq(iso_op_get(rig->module, "norm", NULL, &rig->norm), ISO_OK);
    ck_assert_int_eq(iso_op_get(rig->module, "down", &second, &rig->down), ISO_OK);
}

static void close_rig(Rig *rig)
{
    iso_module_unload(rig->module);
    artefact_close(&rig->artefact);
}

static const char stale[] = "what another call said";

/* The call is refused so, with a sentence that is not another call's. */
#define REFUSED(want, call)                                                                        \
    do {                                                                                           \
        (void)iso_fail(ISO_INTERNAL, "%s", stale);                                                 \
        iso_status got_ = (call);                                                                  \
        ck_assert_msg(got_ == (want), #call ": %s: %s", iso_status_string(got_),                   \
                      iso_last_error());                                                           \
        ck_assert_msg(iso_last_error()[0] && strcmp(iso_last_error(), stale), #call                \
                      " says nothing");                                                            \
    } while (0)

#define NULLED(want, handle, call)                                                                 \
    do {                                                                                           \
        (handle) = (void *)1;                                                                      \
        REFUSED(want, call);                                                                       \
        ck_assert_msg((handle) == NULL, #call " leaves its handle");                               \
    } while (0)

START_TEST(modules)
{
    Rig rig;
    iso_module *m;
    const iso_op *op;
    uint8_t digest[32];
    const char *name, *json;
    int version, ranks;
    iso_config other = {.size = sizeof other + 8};
    open_rig(&rig);
    Str bytes = rig.artefact.bytes;
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_load(NULL, "k.cubin", NULL));
    NULLED(ISO_INVALID_ARGUMENT, m, iso_module_load(&m, NULL, NULL));
    NULLED(ISO_FILE, m, iso_module_load(&m, "", NULL));
    NULLED(ISO_FILE, m, iso_module_load(&m, "tests", NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_load_data(NULL, bytes.s, 8, NULL));
    NULLED(ISO_INVALID_ARGUMENT, m, iso_module_load_data(&m, NULL, 8, NULL));
    NULLED(ISO_NOT_ISO, m, iso_module_load_data(&m, bytes.s, 0, NULL));
    NULLED(ISO_INVALID_ARGUMENT, m, iso_module_load_data(&m, bytes.s, (size_t)bytes.n, &other));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_fingerprint(NULL, digest));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_fingerprint(rig.module, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_expect(NULL, digest));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_expect(rig.module, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_name(NULL, &name, &version));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_name(rig.module, NULL, &version));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_name(rig.module, &name, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_layout_ranks(rig.module, NULL, &ranks));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_manifest(NULL, &json, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_module_manifest(rig.module, NULL, NULL));
    NULLED(ISO_INVALID_ARGUMENT, op, iso_op_get(NULL, "norm", NULL, &op));
    NULLED(ISO_INVALID_ARGUMENT, op, iso_op_get(rig.module, NULL, NULL, &op));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_get(rig.module, "norm", NULL, NULL));
    ck_assert_ptr_null(iso_module_op_name(NULL, 0));
    ck_assert_ptr_null(iso_module_op_name(rig.module, -1));
    ck_assert_ptr_null(iso_module_layout_name(rig.module, 2));
    iso_module_unload(NULL);
    close_rig(&rig);
}
END_TEST

START_TEST(ops)
{
    Rig rig;
    iso_tensor tensors[3] = {{0}};
    int64_t origin[ISO_MAX_AXES];
    int n;
    size_t bytes;
    uint8_t digest[32];
    const char *name;
    iso_phase none = (iso_phase)7;
    open_rig(&rig);
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_tensors(NULL, &n, &n));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_tensors(rig.norm, NULL, &n));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_tensor(NULL, ISO_PHASE_RUN, 1, 0, tensors, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_tensor(rig.norm, ISO_PHASE_RUN, 1, 0, NULL, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_tensor(rig.norm, none, 1, 0, tensors, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_tensor(rig.norm, ISO_PHASE_RUN, -1, 0, tensors, NULL));
    REFUSED(ISO_NO_JOIN, iso_op_tensor(rig.norm, ISO_PHASE_JOIN, 1, 0, tensors, NULL));
    REFUSED(ISO_BAD_COUNT, iso_op_tensor(rig.norm, ISO_PHASE_RUN, 1, 3, tensors, NULL));
    REFUSED(ISO_BAD_COUNT, iso_op_tensor(rig.norm, ISO_PHASE_RUN, 1, -1, tensors, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_origin(rig.norm, ISO_PHASE_RUN, 1, 0, NULL));
    REFUSED(ISO_BAD_COUNT, iso_op_origin(rig.norm, ISO_PHASE_RUN, 1, 3, origin));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_fingerprint(NULL, digest));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_fingerprint(rig.norm, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_schedules(rig.norm, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_needs_join(rig.norm, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_roots(rig.down, 1, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_roots(NULL, 1, &bytes));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_workspace(rig.norm, 1, 9, &bytes));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_workspace(rig.norm, 1, -1, &bytes));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_kernel(rig.norm, none, 1, 0, &name));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_kernel(rig.norm, ISO_PHASE_RUN, 1, 0, NULL));
    close_rig(&rig);
}
END_TEST

START_TEST(runs)
{
    Rig rig;
    static _Alignas(256) char roots[1 << 12];
    iso_tensor tensors[3] = {{0}};
    const void *sources[2] = {roots, NULL};
    iso_run run = {.rows = 1};
    open_rig(&rig);
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_run(NULL, tensors, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_run(rig.norm, NULL, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_run(rig.norm, tensors, 3, NULL));
    REFUSED(ISO_BAD_COUNT, iso_op_run(rig.norm, tensors, 0, &run));
    REFUSED(ISO_BAD_TENSOR, iso_op_run(rig.norm, tensors, 3, &run));
    REFUSED(ISO_NEEDS_JOIN, iso_op_run(rig.down, tensors, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_part(NULL, tensors, 3, roots, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_part(rig.down, tensors, 3, NULL, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_part(rig.down, tensors, 3, roots, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_join(NULL, sources, 2, tensors, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_join(rig.down, NULL, 2, tensors, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_join(rig.down, sources, 3, tensors, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_join(rig.down, sources, 2, tensors, 3, &run));
    REFUSED(ISO_NO_JOIN, iso_op_join(rig.norm, sources, 1, tensors, 3, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_cache_write(NULL, &(iso_cache_rows){.n = 1}, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_cache_write(rig.module, NULL, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_cache_write(rig.module, &(iso_cache_rows){.n = 1}, NULL));
    close_rig(&rig);
}
END_TEST

START_TEST(groups)
{
    Rig rig;
    iso_group *g;
    iso_group_config config = {.size = sizeof config, .ranks = 1}, other = config;
    iso_tensor tensor;
    iso_run run = {.rows = 1};
    size_t bytes;
    other.size = 4;
    open_rig(&rig);
    REFUSED(ISO_INVALID_ARGUMENT, iso_group_create(NULL, rig.module, &config));
    NULLED(ISO_INVALID_ARGUMENT, g, iso_group_create(&g, NULL, &config));
    NULLED(ISO_INVALID_ARGUMENT, g, iso_group_create(&g, rig.module, NULL));
    NULLED(ISO_INVALID_ARGUMENT, g, iso_group_create(&g, rig.module, &other));
    other = config, other.rank = 1;
    NULLED(ISO_BAD_RANK, g, iso_group_create(&g, rig.module, &other));
    other = config, other.ranks = 1000;
    NULLED(ISO_BAD_RANK, g, iso_group_create(&g, rig.module, &other));
    other = config, other.timeout = -1;
    NULLED(ISO_INVALID_ARGUMENT, g, iso_group_create(&g, rig.module, &other));
    other = config, other.bootstrap = "carrier pigeon";
    NULLED(ISO_BOOTSTRAP, g, iso_group_create(&g, rig.module, &other));
    REFUSED(ISO_INVALID_ARGUMENT, iso_group_bytes(NULL, 1, &bytes));
    REFUSED(ISO_INVALID_ARGUMENT, iso_group_bytes(rig.down, 1, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_held(rig.down, 1, 0, NULL, NULL));
    REFUSED(ISO_BAD_COUNT, iso_op_held(rig.down, 1, 3, &tensor, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_op_run_group(NULL, rig.norm, &tensor, 1, &run));
    REFUSED(ISO_INVALID_ARGUMENT, iso_group_status(NULL));
    iso_group_destroy(NULL);
    close_rig(&rig);
}
END_TEST

START_TEST(models)
{
    Rig rig;
    iso_model *m;
    iso_model_sizes sizes;
    iso_tensor tensor;
    iso_difference difference;
    uint8_t digest[32];
    float table[4];
    iso_model_config config = {.size = sizeof config, .weights = "seed:1", .max_rows = 4,
                               .max_sequences = 1, .max_position = 16, .page = 16};
    iso_model_config other = config;
    other.size = 0;
    open_rig(&rig);
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_load(NULL, rig.module, &config));
    NULLED(ISO_INVALID_ARGUMENT, m, iso_model_load(&m, NULL, &config));
    NULLED(ISO_INVALID_ARGUMENT, m, iso_model_load(&m, rig.module, NULL));
    NULLED(ISO_INVALID_ARGUMENT, m, iso_model_load(&m, rig.module, &other));
    other = config, other.weights = NULL;
    NULLED(ISO_INVALID_ARGUMENT, m, iso_model_load(&m, rig.module, &other));
    other = config, other.layout = "two";
    NULLED(ISO_BAD_RANK, m, iso_model_load(&m, rig.module, &other));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_size(rig.module, &config, 0, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_size(NULL, &config, 0, &sizes));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_weights(NULL, digest));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_step(NULL, &(iso_step){.n_sequences = 1}));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_value(rig.module, NULL, 1, &tensor));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_value(rig.module, "z", 1, &tensor));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_part(NULL, "y", 1, &tensor, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_table(NULL, 0, 1, table, table, sizeof table));
    REFUSED(ISO_BAD_COUNT, iso_model_table(rig.module, 0, 1, table, table, sizeof table));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_trace(NULL, "tests", NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_fault(NULL, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_kernels(NULL, 1, NULL, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_trace_diff(NULL, "b", &difference));
    ck_assert_ptr_null(iso_model_input_name(NULL, 0));
    ck_assert_ptr_null(iso_model_output_name(rig.module, 1));
    ck_assert_int_eq(iso_model_load(&m, rig.module, &config), ISO_OK);
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_step(m, NULL));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_step(m, &(iso_step){.n_sequences = 1}));
    REFUSED(ISO_INVALID_ARGUMENT, iso_model_weights(m, NULL));
    iso_model_unload(m);
    iso_model_unload(NULL);
    close_rig(&rig);
}
END_TEST

START_TEST(compiler_calls)
{
    isoc_result result = {.cubin_size = 3};
    isoc_options other = {.size = 1};
    isoc_session *session;
    const isoc_source nothing = {"m.iso", "contract"};
    char *messages;
    const char *json;
    size_t size;
    bool intact;
    ck_assert_int_eq(isoc_compile_file(NULL, NULL, &result), ISOC_ERROR_USAGE);
    ck_assert_ptr_null(result.cubin);
    ck_assert_int_eq(isoc_compile_file("m.iso", NULL, NULL), ISOC_ERROR_USAGE);
    ck_assert_int_eq(isoc_compile_file("m.iso", &other, &result), ISOC_ERROR_USAGE);
    isoc_result_free(&result);
    isoc_result_free(&result);
    isoc_result_free(NULL);
    ck_assert_int_eq(isoc_cubin_manifest(NULL, 1, &json, &size, &intact), ISOC_ERROR_USAGE);
    ck_assert_int_eq(isoc_session_open(NULL, 1, &session, &messages), ISOC_ERROR_USAGE);
    ck_assert_int_eq(isoc_session_open(&nothing, 0, &session, &messages), ISOC_ERROR_USAGE);
    ck_assert_int_eq(isoc_session_open(&nothing, 1, &session, &messages), ISOC_ERROR_CONTRACT);
    ck_assert_ptr_nonnull(messages);
    ck_assert_ptr_null(session);
    free(messages);
    ck_assert_int_eq(isoc_session_run(NULL, &(isoc_call){.op = "f"}), ISOC_ERROR_USAGE);
    isoc_session_close(NULL);
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------- */

static void *fail_elsewhere(void *said)
{
    (void)iso_module_load(NULL, NULL, NULL);
    strcpy(said, iso_last_error());
    return NULL;
}

START_TEST(errors_are_a_threads_own)
{
    char said[1024] = "";
    pthread_t thread;
    (void)iso_fail(ISO_INTERNAL, "%s", stale);
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, said), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(iso_last_error(), stale);
    ck_assert_ptr_nonnull(strstr(said, "must not be NULL"));
}
END_TEST

Suite *misuse_suite(void);
Suite *misuse_suite(void)
{
    Suite *suite = suite_create("misuse");
    TCase *tests = tcase_create("misuse");
    tcase_add_test(tests, modules);
    tcase_add_test(tests, ops);
    tcase_add_test(tests, runs);
    tcase_add_test(tests, groups);
    tcase_add_test(tests, models);
    tcase_add_test(tests, compiler_calls);
    tcase_add_test(tests, errors_are_a_threads_own);
    suite_add_tcase(suite, tests);
    return suite;
}
