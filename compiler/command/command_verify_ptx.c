/* `isoc verify --device ptx` and `isoc prove`: digests first, then every kernel on the PTX machine,
 * with numbers against the executor; `prove` adds terms against the contract's expressions. */
#include "cubin/census.h"
#include "prove/certificate.h"
#include "commands.h"
#include "ptx/blocks.h"
#include "prove/verify_ptx.h"
#include "prove/verify_terms.h"

#include <stdio.h>
#include <string.h>

enum { SEED = 1 };

static void say_kernel(void *self, Str kernel, int done, int total)
{
    char line[160];
    snprintf(line, sizeof line, "PTX machine: %.*s,", STR_FMT(kernel));
    progress_say(self, line, done + 1, total);
}

/* ---- what is said -----------------------------------------------------------------------------
 */

static void print_proof(const VerifyPtxResult *r)
{
    printf("%lld of %lld outputs have the contract's term\n", (long long)r->proved,
           (long long)(r->proved + r->unproved));
    if (r->refused)
        printf("%d launches are of ops whose terms cannot be written yet\n", r->refused);
    printf("trusted:\n");
    for (int i = 0; certificate_trusted[i]; i++)
        printf("  %s\n", certificate_trusted[i]);
}

static int print_result(const VerifyPtxResult *r, Str table, bool proves)
{
    printf("\n%.*s\n", STR_FMT(table));
    printf("%d kernels in %d launches on the PTX machine, against the executor\n", r->kernels,
           r->launches);
    printf("of a product's column tiles the first, the last and one between ran, of every group; "
           "all of k; `+1`: odd strides, unaligned, the last row not live; 5 rows: "
           "fewer than a tile has; 141: more than decode's window of tokens\n");
    printf("%lld of the kernels' %lld PTX instructions ran\n", (long long)r->covered,
           (long long)r->instructions);
    if (proves)
        print_proof(r);
    printf("%lld of %lld outputs differ, %d findings\n", (long long)r->differ,
           (long long)r->outputs, r->findings);
    if (r->differ || r->findings || r->unproved)
        return OUTCOME_DIFFER;
    return r->outputs && !r->refused ? OUTCOME_OK : OUTCOME_INCONCLUSIVE;
}

/* The PTX that is run must be the one that the cubin was assembled from. */
static bool same_ptx(Pipeline *p, Str stated)
{
    Digest own = sha256(p->binary.ptx.s, (size_t)p->binary.ptx.n);
    Str hex = digest_hex(p->out, &own);
    bool same = stated.n == 0 || str_eq(hex, stated);
    printf("%-10s %.16s, %s\n", "PTX", hex.s, same ? "as its manifest says" : "NOT as stated");
    return same;
}

/* Whether CTAs differ in more than in what they read and write. */
static void say_blocks(const PtxModule *ptx, Text *lines)
{
    int clean = 0;
    for (int i = 0; i < ptx->kernels.n; i++) {
        const PtxKernel *k = &ptx->kernels.v[i];
        int line = ptx_block_reaches(k, lines->arena);
        clean += line == 0;
        if (line)
            text_printf(lines, "    %.*s: a block's index reaches a value, PTX line %d\n",
                        STR_FMT(k->name), line);
    }
    printf("blocks     %d kernels, in %d a block's index reaches only addresses, bounds and "
           "selections\n", ptx->kernels.n, clean);
    printf("%.*s", STR_FMT(text_str(lines)));
}

/* True unless the cubin has arithmetic that its PTX does not explain. */
static bool take_census(Pipeline *p, Str cubin, CodeCensus *census)
{
    PtxModule ptx = {0};
    Text over = {.arena = p->out};
    Str problem = {0};
    const char *why = ptx_parse(p->binary.ptx, &ptx, &problem, p->out)
                          ? census_take(cubin, &ptx, census, &over)
                          : problem.s;
    printf("census     %d kernels, %d with exactly their PTX's additions, products, fmas and mma "
           "steps and the known expansions of division and root, %d with a part laid out twice\n",
           census->kernels, census->equal, census->twice);
    if (over.n)
        printf("%.*s", STR_FMT(text_str(&over)));
    if (why)
        printf("census     %s\n", why);
    Text blocks = {.arena = p->out};
    say_blocks(&ptx, &blocks);
    return !why && census->over == 0;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* The PTX of the contract's scalar functions, each alone. */
static const char *compile_functions(Pipeline *p, PtxModule *functions)
{
    Binary binary = {0};
    Str program = verify_terms_program(p->out), problem;
    Str dir = cache_dir(p->input.cache, p->out);
    Digest key = cache_key(p->nvrtc, p->arch, program, p->out);
    if (!cache_get(dir, &key, &binary, p->out)) {
        if (!nvrtc_compile(p->nvrtc, program, p->arch, &binary, p->out, &p->diags))
            return "NVRTC refuses the scalar functions";
        cache_put(dir, &key, &binary, p->out);
    }
    return ptx_parse(binary.ptx, functions, &problem, p->out) ? NULL : problem.s;
}

/* Where the certificate goes; NULL: nowhere. */
static const char *certificate_path(const Options *o, Pipeline *p)
{
    if (o->command == COMMAND_PROVE)
        return o->output;
    return o->certificate ? o->certificate : str_format(p->out, "%s.proof.json", o->output).s;
}

static int run(const Options *o, Pipeline *p, VerifyPtxInput *input)
{
    VerifyPtxResult result;
    PtxModule functions = {0};
    Text table = {.arena = p->out}, launches = {.arena = p->out};
    bool proves = o->command == COMMAND_PROVE || o->prove;
    const char *problem = proves ? compile_functions(p, &functions) : NULL;
    Progress *progress = progress_start();
    input->progress = say_kernel;
    input->progress_self = progress;
    input->prove = proves ? &p->plan : NULL;
    input->functions = &functions;
    input->certificate = &launches;
    if (!problem)
        problem = verify_ptx(input, &result, &table);
    progress_stop(progress);
    if (problem) {
        fprintf(stderr, "isoc: error: %s [ISO6202]\n", problem);
        return OUTCOME_INCONCLUSIVE;
    }
    int code = print_result(&result, text_str(&table), proves);
    const char *path = proves ? certificate_path(o, p) : NULL;
    const char *unwritten = path ? certificate_write(path, p, input->artifact, &result, &launches)
                                 : NULL;
    if (unwritten)
        fprintf(stderr, "isoc: error: %s: %s\n", path, unwritten);
    return unwritten ? OUTCOME_USAGE : code;
}

int command_verify_ptx(const Options *o, Pipeline *p, Str stated, Str ptx_digest)
{
    jmp_buf oom;
    arena_on_oom(p->out, &oom);
    if (setjmp(oom))
        return command_no_memory();
    if (!same_ptx(p, ptx_digest))
        return OUTCOME_INCONCLUSIVE;
    VerifyPtxInput input = {.artifact = stated.n ? stated : p->artifact, .ptx = p->binary.ptx,
                            .threads = o->jobs, .seed = SEED,
                            .only = o->kernel ? str_of(o->kernel) : STR("")};
    CodeCensus census = {0};
    bool counted = take_census(p, input.artifact, &census);
    int code = run(o, p, &input);
    if (code == OUTCOME_OK && !counted)
        code = OUTCOME_DIFFER;
    arena_on_oom(p->out, NULL);
    return code;
}
