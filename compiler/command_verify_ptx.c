/* `isoc verify --device ptx`: digests first, then every kernel on the PTX machine. */
#include "commands.h"
#include "verify_ptx.h"

#include <stdio.h>
#include <string.h>

enum { SEED = 1 };

static void say_kernel(void *self, Str kernel, int done, int total)
{
    char line[160];
    snprintf(line, sizeof line, "verify: %.*s,", STR_FMT(kernel));
    progress_say(self, line, done + 1, total);
}

static int print_result(const VerifyPtxResult *r, Str table)
{
    printf("\n%.*s\n", STR_FMT(table));
    printf("%d kernels in %d launches on the PTX machine, against the executor\n", r->kernels,
           r->launches);
    printf("of a product's column tiles the first, the last and one between ran, of every group; "
           "all of k\n");
    printf("%lld of %lld outputs differ, %d findings\n", (long long)r->differ,
           (long long)r->outputs, r->findings);
    if (r->differ || r->findings)
        return OUTCOME_DIFFER;
    return r->outputs ? OUTCOME_OK : OUTCOME_INCONCLUSIVE;
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

int command_verify_ptx(const Options *o, Pipeline *p, Str stated, Str ptx_digest)
{
    jmp_buf oom;
    arena_on_oom(p->out, &oom);
    if (setjmp(oom))
        return command_no_memory();
    if (!same_ptx(p, ptx_digest))
        return OUTCOME_INCONCLUSIVE;
    Progress *progress = progress_start();
    VerifyPtxInput input = {.artifact = stated.n ? stated : p->artifact, .ptx = p->binary.ptx,
                            .threads = o->jobs, .seed = SEED,
                            .only = o->kernel ? str_of(o->kernel) : STR(""),
                            .progress = say_kernel, .progress_self = progress};
    VerifyPtxResult result;
    Text table = {.arena = p->out};
    const char *problem = verify_ptx(&input, &result, &table);
    progress_stop(progress);
    arena_on_oom(p->out, NULL);
    if (problem) {
        fprintf(stderr, "isoc: error: %s [ISO6202]\n", problem);
        return OUTCOME_INCONCLUSIVE;
    }
    return print_result(&result, text_str(&table));
}
