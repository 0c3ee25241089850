/* Certificates as JSON: written after a proof, read beside a cubin. */
#include "certificate.h"

#include "cubin/artifact.h"
#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char *const certificate_trusted[] = {
    "ptxas: that the cubin does what its PTX says, f32 division and square root included",
    "the tensor core: that a step is the class's fused sum, whatever the order in its group",
    "memory order: warps ran in a seeded order, clusters one after another; races are looked for "
    "between lanes, by the barriers that they went through",
    "CTAs that did not run: block indices reach only addresses, bounds and tiles",
    "exp2 and its short forms give no -0: computed for every f32; weights of rounded maxima are "
    "numbers: by an argument over their ranges, in tests/ptx/README.md",
    "choices: each row in the order that its scores have, of which ranks and no more are compared",
    "draws: with the seeds, positions, temperatures and limits that were tried; limits with the "
    "scores that were tried, where each value that decides is the contract's",
    "branches on whether values are numbers: each way ran, not each way of every block",
    "terms are 55-bit hashes, a step's members a sum modulo 2^61 - 1",
    NULL,
};

/* ---- writing --------------------------------------------------------------------------------- */

static void print_digest(const char *name, Str bytes, Text *out)
{
    Digest digest = sha256(bytes.s, (size_t)bytes.n);
    Str hex = digest_hex(out->arena, &digest);
    text_printf(out, "  \"%s\": \"%.*s\",\n", name, STR_FMT(hex));
}

static void print_counts(const VerifyPtxResult *r, Text *out)
{
    text_printf(out, "  \"instructions\": %lld, \"instructions_run\": %lld,\n",
                (long long)r->instructions, (long long)r->covered);
    text_printf(out,
                "  \"proved\": %lld, \"unproved\": %lld, \"differ\": %lld, \"findings\": %d,\n",
                (long long)r->proved, (long long)r->unproved + r->refused, (long long)r->differ,
                r->findings);
}

const char *certificate_write(const char *path, Pipeline *p, Str artifact,
                              const VerifyPtxResult *r, const Text *launches)
{
    Text text = {.arena = p->out};
    Str fingerprint = digest_hex(p->out, &p->dag.fingerprint), cubin;
    const char *problem = artifact_cubin(artifact, &cubin, p->out);
    if (problem)
        return problem;
    text_printf(&text, "{\n  \"isoc\": \"%s\",\n  \"fingerprint\": \"%.*s\",\n", ISOC_VERSION,
                STR_FMT(fingerprint));
    print_digest("cuda_sha256", p->emitted.program, &text);
    print_digest("ptx_sha256", p->binary.ptx, &text);
    print_digest("cubin_sha256", cubin, &text);
    print_counts(r, &text);
    text_printf(&text, "  \"trusted\": [");
    for (int i = 0; certificate_trusted[i]; i++)
        text_printf(&text, "%s\n    \"%s\"", i ? "," : "", certificate_trusted[i]);
    text_printf(&text, "],\n  \"launches\": [\n%s]\n}\n", launches->s ? launches->s : "");
    return file_write(path, text_str(&text));
}

/* ---- checking -------------------------------------------------------------------------------- */

static bool agrees(const json_t *root, const char *what, const char *key, Str own)
{
    const char *stated = json_string_value(json_object_get(root, key));
    bool same = stated && own.n && str_is(own, stated);
    printf("%-10s %.16s, %s\n", what, own.n ? own.s : "unknown",
           same ? "as the certificate says" : "NOT the certificate's");
    return same;
}

static bool is_whole(const json_t *root)
{
    static const char *const none[] = {"unproved", "differ", "findings"};
    long long proved = json_integer_value(json_object_get(root, "proved"));
    bool whole = proved > 0;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const json_t *n = json_object_get(root, none[i]);
        whole = whole && json_is_integer(n) && json_integer_value(n) == 0;
    }
    printf("%-10s %lld outputs proved, %s\n", "proof", proved,
           whole ? "nothing left open" : "but NOT all");
    return whole;
}

bool certificate_check(const char *path, const CertificateOf *of, Arena *arena)
{
    Str bytes, cubin;
    const char *problem = file_read(path, &bytes, arena);
    if (!problem)
        problem = artifact_cubin(of->artifact, &cubin, arena);
    json_t *root = problem ? NULL : json_loadb(bytes.s, (size_t)bytes.n, 0, NULL);
    if (!root) {
        fprintf(stderr, "isoc: error: %s: %s\n", path, problem ? problem : "it is not JSON");
        return false;
    }
    Digest digest = sha256(cubin.s, (size_t)cubin.n);
    bool ok = agrees(root, "contract", "fingerprint", of->contract);
    ok = agrees(root, "CUDA", "cuda_sha256", of->cuda) && ok;
    ok = agrees(root, "PTX", "ptx_sha256", of->ptx) && ok;
    ok = agrees(root, "cubin", "cubin_sha256", digest_hex(arena, &digest)) && ok;
    ok = is_whole(root) && ok;
    json_decref(root);
    return ok;
}
