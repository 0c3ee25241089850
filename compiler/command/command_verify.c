/* `isoc verify`: a cubin's digests, its contract's proof, and its bits. */
#include "prove/certificate.h"
#include "commands.h"
#include "base/file.h"
#include "verify/verify.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 33, COLUMNS = 1024, SEED = 1 };

/* What a manifest states, as far as it can be checked without a device. */
typedef struct Stated {
    MemoryFiles files;
    Str bytes, isoc, fingerprint, cuda, ptx, layout;
} Stated;

static Str member(const json_t *object, const char *key, Arena *arena)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? str_copy(arena, str_of(s)) : STR("");
}

static void read_stated(const json_t *root, Stated *stated, Arena *arena)
{
    const json_t *sources = json_object_get(root, "sources");
    const json_t *layouts = json_object_get(root, "layouts");
    int n = (int)json_array_size(sources);
    MemoryFile *files = arena_array(arena, MemoryFile, n + 1);
    for (int i = 0; i < n; i++) {
        const json_t *file = json_array_get(sources, (size_t)i);
        files[i] = (MemoryFile){member(file, "name", arena), member(file, "text", arena)};
    }
    stated->files = (MemoryFiles){n, files};
    stated->isoc = member(root, "isoc", arena);
    stated->cuda = member(root, "cuda_sha256", arena);
    stated->ptx = member(root, "ptx_sha256", arena);
    stated->fingerprint = member(json_object_get(root, "contract"), "fingerprint", arena);
    if (json_array_size(layouts) == 1) /* the cubin of one layout */
        stated->layout = member(json_array_get(layouts, 0), "name", arena);
}

static int refuse(const char *path, const char *problem, int code)
{
    fprintf(stderr, "isoc: error: %s: %s [ISO6202]\n", path, problem);
    return code;
}

/* 0, or the exit code. */
static int read_artifact(const char *path, Str bytes, Stated *stated, Arena *arena)
{
    Str manifest;
    const char *problem = artifact_manifest(bytes, &manifest);
    if (problem)
        return refuse(path, problem, OUTCOME_USAGE);
    problem = artifact_check(bytes, arena);
    if (problem)
        return refuse(path, problem, OUTCOME_DIFFER);
    json_t *root = json_loadb(manifest.s, (size_t)manifest.n, 0, NULL);
    json_int_t format = json_integer_value(json_object_get(root, "format"));
    if (format == MANIFEST_FORMAT)
        read_stated(root, stated, arena);
    json_decref(root);
    if (format != MANIFEST_FORMAT || stated->files.n == 0)
        return refuse(path, "its manifest has a format that this isoc does not know",
                      OUTCOME_INCONCLUSIVE);
    printf("cubin      %d bytes, as its manifest says\n", bytes.n);
    return OUTCOME_OK;
}

static bool same(const char *what, const Digest *mine, Str stated, Arena *arena)
{
    Str hex = digest_hex(arena, mine);
    bool equal = stated.n == 0 || str_eq(hex, stated);
    printf("%-10s %.16s, %s\n", what, hex.s, equal ? "as its manifest says" : "NOT as stated");
    return equal;
}

static bool check_stated(Pipeline *p, const Stated *stated)
{
    bool ok = same("contract", &p->dag.fingerprint, stated->fingerprint, p->out);
    if (!str_is(stated->isoc, ISOC_VERSION)) {
        printf("kernels    written by isoc %.*s; this is %s, whose text may differ\n",
               STR_FMT(stated->isoc), ISOC_VERSION);
        return ok;
    }
    Digest cuda = sha256(p->emitted.program.s, (size_t)p->emitted.program.n);
    return same("kernels", &cuda, stated->cuda, p->out) && ok;
}

static void say_op(void *self, Str op, int done, int total)
{
    char line[160];
    snprintf(line, sizeof line, "verify: op %.*s,", STR_FMT(op));
    progress_say(self, line, done + 1, total);
}

static int verify_bits(Pipeline *p, const Options *o)
{
    Progress *progress = progress_start();
    VerifyInput input = {.rows = ROWS, .columns = COLUMNS, .seed = SEED, .threads = o->jobs,
                         .progress = say_op, .progress_self = progress};
    VerifyResult result;
    Text report = {.arena = p->out};
    bool ok = verify_cpu(&p->plan, &input, &result, &report);
    progress_stop(progress);
    if (!ok)
        return command_no_memory();
    printf("\n%.*s\n", STR_FMT(text_str(&report)));
    if (result.plain_outputs)
        printf("control: with a plain all-reduce in the tree's place %lld of %lld outputs differ\n",
               (long long)result.plain_differ, (long long)result.plain_outputs);
    printf("%lld of %lld outputs differ\n", (long long)result.differ, (long long)result.outputs);
    if (result.differ)
        return OUTCOME_DIFFER;
    return result.outputs ? OUTCOME_OK : OUTCOME_INCONCLUSIVE;
}

/* Whether the cubin is the one that a certificate is of: nothing is run again. */
static int verify_certificate(const Options *o, const Stated *stated, Pipeline *p)
{
    if (!pipeline_run(p, STAGE_EMIT)) {
        command_messages(o, p);
        return p->outcome == OUTCOME_MEMORY ? command_no_memory() : (int)p->outcome;
    }
    CertificateOf of = {.artifact = stated->bytes, .cuda = stated->cuda, .ptx = stated->ptx,
                        .contract = digest_hex(p->out, &p->dag.fingerprint)};
    bool as_stated = check_stated(p, stated);
    bool certified = certificate_check(o->certificate, &of, p->out);
    printf("%s\n", as_stated && certified ? "the certificate is of this cubin"
                                          : "the certificate is NOT of this cubin");
    return as_stated && certified ? OUTCOME_OK : OUTCOME_DIFFER;
}

static int verify_contract(const Options *o, const Stated *stated, Pipeline *p)
{
    if (o->certificate && stated)
        return verify_certificate(o, stated, p);
    bool ptx = o->command == COMMAND_PROVE || (o->device && strcmp(o->device, "ptx") == 0);
    Progress *progress = ptx ? progress_start() : NULL;
    progress_say(progress, "verify: compiling the kernels", 0, 0);
    bool built = pipeline_run(p, ptx ? STAGE_ARTIFACT : stated ? STAGE_EMIT : STAGE_PROOF);
    progress_stop(progress);
    if (!built) {
        command_messages(o, p);
        return p->outcome == OUTCOME_MEMORY ? command_no_memory() : (int)p->outcome;
    }
    bool as_stated = !stated || check_stated(p, stated);
    printf("proof      %d obligations, %d failed\n", p->certificate.obligations.n,
           p->certificate.failed);
    int code = ptx ? command_verify_ptx(o, p, stated ? stated->bytes : STR(""),
                                        stated ? stated->ptx : STR(""))
                   : verify_bits(p, o);
    return code == OUTCOME_OK && !as_stated ? OUTCOME_DIFFER : code;
}

static int verify_file(const Options *o, Arena *arena)
{
    Str bytes;
    Stated stated = {0};
    const char *path = o->operand[0], *problem = file_read(path, &bytes, arena);
    if (problem) {
        fprintf(stderr, "isoc: error: %s: %s\n", path, problem);
        return OUTCOME_USAGE;
    }
    stated.bytes = bytes;
    bool cubin = bytes.n >= 4 && memcmp(bytes.s, "\177ELF", 4) == 0;
    PipelineInput input = command_input(o, path, NULL);
    if (!cubin && o->certificate) {
        fprintf(stderr, "isoc: error: %s is no cubin; a certificate is of one\n", path);
        return OUTCOME_USAGE;
    }
    if (cubin) {
        int code = read_artifact(path, bytes, &stated, arena);
        if (code != OUTCOME_OK)
            return code;
        input.path = stated.files.v[0].name;
        input.reader = reader_memory(&stated.files);
        if (!input.layout && stated.layout.n)
            input.layout = stated.layout.s;
    }
    Pipeline p;
    if (!pipeline_open(&p, &input))
        return command_no_memory();
    int code = verify_contract(o, cubin ? &stated : NULL, &p);
    pipeline_close(&p);
    return code;
}

int command_verify(const Options *o)
{
    jmp_buf oom;
    Arena *arena = arena_new();
    if (!arena)
        return command_no_memory();
    arena_on_oom(arena, &oom);
    volatile int code = OUTCOME_MEMORY;
    if (!setjmp(oom))
        code = verify_file(o, arena);
    else
        command_no_memory();
    arena_free(arena);
    return code;
}
