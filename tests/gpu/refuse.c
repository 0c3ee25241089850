/* What a device must refuse: each wrong call and each damaged file, by its status and a part of its
 * sentence, with nothing written; and that right calls still work afterwards. */
#include "cubin/artifact.h"
#include "cubin/manifest_write.h"
#include "case.h"
#include "base/file.h"
#include "modes.h"
#include "sample.h"
#include "values.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256 };

typedef struct Refuse {
    const iso_module *module;
    int asked, wrong;
} Refuse;

static void expect(Refuse *r, const char *what, iso_status got, iso_status want, const char *part)
{
    const char *said = got ? iso_last_error() : "success";
    bool right = got == want && (!got || strstr(said, part));
    r->asked++;
    r->wrong += !right;
    printf("  %s %s: %s\n", right ? "ok" : "WRONG", what, said);
    if (!right)
        printf("    wanted \"%s\" with \"%s\"\n", iso_status_string(want), part);
}

/* ---- calls ---- */

typedef struct Call {
    Case *c;
    const iso_op *op;
    iso_tensor tensors[MAX_TENSORS];
    iso_run run;
    int n;
} Call;

static Call good_call(Case *c, int64_t rows, int schedule)
{
    Call call = {.c = c, .op = c->base, .n = c->n, .run = case_run(c, c->base, rows, schedule)};
    case_views(c, c->base, ISO_PHASE_RUN, rows, call.tensors);
    return call;
}

static iso_status make(const Call *call)
{
    return iso_op_run(call->op, call->tensors, call->n, &call->run);
}

/* The first schedule of the case's op whose kernel is of that kind, or 0. */
static int find_schedule(const Case *c, bool wgmma)
{
    for (int s = 1; s <= c->base->at->n_variants; s++) {
        const MfSpec *spec = op_spec(c->base, ISO_PHASE_RUN, ROWS, s);
        if (spec && spec->family == MF_GEMM && spec->gemm.wgmma == wgmma)
            return s;
    }
    return 0;
}

static void refuse_tensors(Refuse *r, Case *c)
{
    Call call = good_call(c, ROWS, 0);
    call.n--;
    expect(r, "one tensor too few", make(&call), ISO_BAD_COUNT, "tensors");
    call = good_call(c, ROWS, 0);
    call.tensors[0].dtype = call.tensors[0].dtype == ISO_F16 ? ISO_F32 : ISO_F16;
    expect(r, "another dtype", make(&call), ISO_BAD_TENSOR, "has dtype f");
    call = good_call(c, ROWS, 0);
    call.tensors[0].shape[0]--;
    expect(r, "a row too few", make(&call), ISO_BAD_TENSOR, "for 256 rows");
    call = good_call(c, ROWS, 0);
    call.tensors[0].n_axes--;
    expect(r, "an axis too few", make(&call), ISO_BAD_TENSOR, "axes");
    call = good_call(c, ROWS, 0);
    call.tensors[0].stride[0] = -call.tensors[0].stride[0];
    expect(r, "a negative stride", make(&call), ISO_BAD_TENSOR, "negative stride");
    call = good_call(c, ROWS, 0);
    call.tensors[0].data = NULL;
    expect(r, "no data", make(&call), ISO_BAD_TENSOR, "non-null");
    call = good_call(c, ROWS, 0);
    call.tensors[c->params].data = (char *)call.tensors[c->params].data + 1;
    expect(r, "half an element of offset", make(&call), ISO_BAD_TENSOR, "aligned to");
}

static void refuse_alignment(Refuse *r, Case *c)
{
    int schedule = find_schedule(c, true);
    if (!schedule)
        return;
    Call call = good_call(c, ROWS, schedule);
    call.tensors[0].data = (char *)call.tensors[0].data + 2;
    expect(r, "a tensor map's base off 16 bytes", make(&call), ISO_BAD_TENSOR, "16-byte");
    call = good_call(c, ROWS, schedule);
    call.tensors[0].stride[0]++;
    expect(r, "a tensor map's rows off 16 bytes", make(&call), ISO_BAD_TENSOR, "16-byte");
    call = good_call(c, ROWS, schedule);
    call.tensors[0].stride[call.tensors[0].n_axes - 1] = 2;
    expect(r, "k apart", make(&call), ISO_BAD_TENSOR, "stride");
}

static void refuse_run(Refuse *r, Case *c)
{
    Call call = good_call(c, ROWS, 0);
    call.run.schedule = 99;
    expect(r, "schedule 99", make(&call), ISO_INVALID_ARGUMENT, "schedule 99");
    call = good_call(c, ROWS, 0);
    call.run.rows = -1;
    expect(r, "-1 rows", make(&call), ISO_INVALID_ARGUMENT, "-1 rows");
    call = good_call(c, ROWS, 0);
    expect(r, "no run", iso_op_run(c->base, call.tensors, c->n, NULL), ISO_INVALID_ARGUMENT,
           "NULL");
    expect(r, "no op", iso_op_run(NULL, call.tensors, c->n, &call.run), ISO_INVALID_ARGUMENT,
           "NULL");
    call.run.rows = 0;
    for (int i = 0; i < c->n; i++)
        must(iso_op_tensor(c->base, ISO_PHASE_RUN, 0, i, &call.tensors[i], NULL), "no rows");
    expect(r, "no rows, which is nothing to do", make(&call), ISO_OK, "");
}

/* Of an op that needs some, at a row count that does. */
static void refuse_workspace(Refuse *r, Case *c)
{
    Call call = good_call(c, 1, 0);
    size_t need;
    must(iso_op_workspace(c->base, 1, 0, &need), "iso_op_workspace");
    if (need == 0)
        return;
    call.run.workspace = NULL;
    expect(r, "no workspace", make(&call), ISO_WORKSPACE, "of workspace");
    call = good_call(c, 1, 0);
    call.run.workspace_bytes = need - 1;
    expect(r, "a workspace one byte short", make(&call), ISO_WORKSPACE, "of workspace");
    call = good_call(c, 1, 0);
    call.run.workspace = (char *)call.run.workspace + 16;
    expect(r, "a workspace off 256 bytes", make(&call), ISO_WORKSPACE, "aligned to 256");
}

static void refuse_join(Refuse *r, Case *c, const MfLayout *layout)
{
    const iso_op *op = case_op(c, layout, 0);
    const void *roots[MAX_RANKS] = {0};
    int join;
    Call call = {.c = c, .op = op, .n = c->n, .run = case_run(c, op, ROWS, 0)};
    case_views(c, op, ISO_PHASE_RUN, ROWS, call.tensors);
    must(iso_op_needs_join(op, &join), "iso_op_needs_join");
    if (!join) {
        expect(r, "a part of an op that is complete",
               iso_op_part(op, call.tensors, c->n, call.run.workspace, &call.run), ISO_NO_JOIN,
               "needs no join");
        return;
    }
    expect(r, "a run of an op that joins", make(&call), ISO_NEEDS_JOIN, "join");
    expect(r, "a part without roots", iso_op_part(op, call.tensors, c->n, NULL, &call.run),
           ISO_INVALID_ARGUMENT, "aligned to 256");
    expect(r, "a join of too few ranks",
           iso_op_join(op, roots, layout->ranks - 1, call.tensors, c->n, &call.run),
           ISO_INVALID_ARGUMENT, "ranks");
    expect(r, "a join of no roots",
           iso_op_join(op, roots, layout->ranks, call.tensors, c->n, &call.run),
           ISO_INVALID_ARGUMENT, "are NULL");
}

static void refuse_names(Refuse *r, const char *op_name)
{
    const iso_op *op;
    iso_layout nowhere = {.name = "nowhere"}, far = {.name = "", .rank = 4096};
    far.name = r->module->manifest->layouts[0].name;
    expect(r, "an unknown op", iso_op_get(r->module, "nothing", NULL, &op), ISO_UNKNOWN_OP,
           "nothing");
    expect(r, "an unknown layout", iso_op_get(r->module, op_name, &nowhere, &op),
           ISO_UNKNOWN_LAYOUT, "nowhere");
    expect(r, "rank 4096", iso_op_get(r->module, op_name, &far, &op), ISO_BAD_RANK, "rank 4096");
}

/* A product of few rows takes any alignment and any stride, with the same bits. */
static void take_odd_rows(Refuse *r, Case *c)
{
    int schedule = find_schedule(c, false);
    int64_t length = c->whole[0].stride[0];
    if (!schedule || c->whole[0].n_axes != 2)
        return;
    DevicePtr odd = gpu_alloc((size_t)((length + 1) * ROWS + 1) * 2);
    gpu_fill_bf16(odd + 2, ROWS, length + 1, c->kind, sample_seed(0), 0);
    Call call = good_call(c, ROWS, schedule);
    call.tensors[0].data = (void *)(uintptr_t)(odd + 2);
    call.tensors[0].stride[0] = length + 1;
    case_poison(c);
    expect(r, "odd rows in a stream kernel, which takes them", make(&call), ISO_OK, "");
    Way way = {.layout = c->base->layout, .schedule = schedule, .rows = ROWS, .live = ROWS};
    case_compare(c, c->base, &way);
    gpu_sync();
    gpu_free(odd);
}

static void refuse_op(Refuse *r, const MfOp *op, Totals *totals)
{
    Case *c = malloc(sizeof *c);
    if (!c)
        exit(5);
    printf("%s\n", op->name);
    case_open(c, r->module, op, VALUES_NORMAL, ROWS, totals);
    case_base(c);
    Way none = {.layout = c->base->layout, .rows = ROWS, .live = 0};
    Way all = {.layout = c->base->layout, .rows = ROWS, .live = ROWS};
    case_poison(c);
    refuse_tensors(r, c);
    refuse_alignment(r, c);
    refuse_run(r, c);
    refuse_workspace(r, c);
    for (int l = 0; l < r->module->manifest->n_layouts; l++)
        refuse_join(r, c, &r->module->manifest->layouts[l]);
    refuse_names(r, op->name);
    gpu_sync();
    case_compare(c, c->base, &none); /* nothing was written */
    case_way(c, &all);               /* and everything still works */
    take_odd_rows(r, c);
    case_close(c);
    free(c);
}

/* ---- files ---- */

static void load_bytes(Refuse *r, const char *what, Str bytes, iso_status want, const char *part)
{
    iso_module *module;
    iso_status got = iso_module_load_data(&module, bytes.s, (size_t)bytes.n, NULL);
    expect(r, what, got, want, part);
    if (!got)
        iso_module_unload(module);
}

/* The artefact with the first `from` of its manifest replaced by as many characters. */
static Str edited(Str file, const char *from, const char *to, Arena *arena)
{
    Str cubin, manifest, out = {0};
    if (artifact_cubin(file, &cubin, arena) || artifact_manifest(file, &manifest))
        exit(5);
    manifest = str_copy(arena, manifest);
    size_t n = strlen(from);
    bool found = false;
    for (char *at = (char *)manifest.s; at + n <= manifest.s + manifest.n; at++)
        if (!memcmp(at, from, n)) {
            memcpy(at, to, n);
            found = true;
            break;
        }
    if (!found || artifact_append(cubin, manifest, &out, arena)) {
        fprintf(stderr, "gpu suite: the manifest has no %s\n", from);
        exit(5);
    }
    return out;
}

static void refuse_files(Refuse *r, const char *path)
{
    Arena *arena = arena_new();
    Str file;
    iso_module *module;
    if (!arena || file_read(path, &file, arena))
        exit(5);
    const char *name = r->module->manifest->kernels[0].name + 1;
    Str kernel = str_format(arena, "\"name\":\"i%s\"", name);
    Str renamed = str_format(arena, "\"name\":\"q%s\"", name);
    printf("files\n");
    expect(r, "no file", iso_module_load(&module, "/nowhere/none.cubin", NULL), ISO_FILE,
           "/nowhere");
    load_bytes(r, "no cubin", STR("not a cubin at all"), ISO_NOT_ISO, ".note.iso");
    load_bytes(r, "half a cubin", (Str){file.s, file.n / 2}, ISO_NOT_ISO, ".note.iso");
    Str damaged = str_copy(arena, file);
    ((char *)damaged.s)[file.n / 4] ^= 1;
    load_bytes(r, "a bit of a kernel flipped", damaged, ISO_CORRUPT, "not the ones");
    load_bytes(r, "for another device", edited(file, "\"sm_90a\"", "\"sm_80a\"", arena),
               ISO_ARCHITECTURE, "capability 9.0");
    Str format = str_format(arena, "\"format\":%d", MANIFEST_FORMAT);
    load_bytes(r, "another format", edited(file, format.s, "\"format\":9", arena),
               ISO_VERSION_MISMATCH, "format 9");
    load_bytes(r, "a kernel that is not there", edited(file, kernel.s, renamed.s, arena),
               ISO_DRIVER, name);
    iso_config config = {.size = 1};
    expect(r, "a config of another size", iso_module_load(&module, path, &config),
           ISO_INVALID_ARGUMENT, "iso_config.size");
    config = (iso_config){.size = sizeof config, .device = (iso_device)7};
    expect(r, "device 7", iso_module_load(&module, path, &config), ISO_INVALID_ARGUMENT,
           "device 7");
    load_bytes(r, "the file as it is", file, ISO_OK, "");
    arena_free(arena);
}

int refuse_all(const iso_module *module, const char *path)
{
    Refuse r = {.module = module};
    Totals totals = {0};
    for (int i = 0; i < module->manifest->n_ops; i++)
        refuse_op(&r, &module->manifest->ops[i], &totals);
    refuse_files(&r, path);
    printf("%s: %d of %d refusals wrong; after them %llu of %llu outputs differ\n",
           module->manifest->contract, r.wrong, r.asked, (unsigned long long)totals.differ,
           (unsigned long long)totals.compared);
    return r.wrong || totals.differ || !totals.compared ? 4 : 0;
}
