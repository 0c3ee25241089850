/* The terms that a kernel's outputs have, against those that the contract gives them. */
#include "verify_ptx_impl.h"

#include "ptx/term.h"
#include "verify_terms.h"

#include <string.h>

enum { WHOLE = 1 }; /* of a 32-bit value's upper half, as ptx/term.h has it */

typedef struct Proof {
    PtxTrial *trial;
    const PlanOp *at;
    const Part *part;
    const Kernel *kernel;
    Terms *terms;
    const Contract *contract;
} Proof;

static const PlanOp *plan_op(const PtxTrial *r)
{
    const Plan *plan = r->worker->input->prove;
    for (int i = 0; i < plan->ops.n; i++) {
        const PlanOp *at = &plan->ops.v[i];
        Str layout = at->at.layout ? at->at.layout->name.text : STR("");
        if (str_is(at->op->op->name, r->op->op->name) && str_is(layout, r->op->layout->name))
            return at;
    }
    return NULL;
}

static void range_of(const Proof *p, int atom, i64 *lo, i64 *hi)
{
    if (p->contract->axes[p->contract->atom_axis[atom]].free)
        part_rows(p->part, p->trial->rows, lo, hi);
    else
        *lo = p->part->lo[atom], *hi = p->part->hi[atom];
}

/* The global indices of a place in a row-major box of atoms; gives what is left of the place. */
static i64 indices_of(const Proof *p, const int *atoms, int n, i64 at, i64 *index)
{
    for (int i = n - 1; i >= 0; i--) {
        i64 lo, hi;
        range_of(p, atoms[i], &lo, &hi);
        index[atoms[i]] = lo + at % (hi - lo);
        at /= hi - lo;
    }
    return at;
}

static void describe(const Proof *p, const char *what, u64 mask, const i64 *index)
{
    Text text = {.arena = p->trial->arena};
    text_printf(&text, "%s", what);
    for (int a = 0; a < p->contract->n_atoms; a++)
        if (mask >> a & 1)
            text_printf(&text, " %.*s %lld",
                        STR_FMT(p->contract->axes[p->contract->atom_axis[a]].name.text),
                        (long long)index[a]);
    p->trial->outcome->unlike = text_str(&text);
}

static void judge(const Proof *p, const PtxTensor *t, i64 at, u64 wanted, const char *what,
                  u64 mask, const i64 *index)
{
    const u64 *own = &t->shadow[t->element == 4 ? 2 * at : at];
    bool same = own[0] == wanted && wanted != 0 && (t->element == 2 || own[1] == WHOLE);
    u32 bits = 0;
    memcpy(&bits, (const u8 *)t->tensor.data + at * t->element, (size_t)t->element);
    same |= own[0] == 0 && (t->element == 2 || own[1] == 0) && wanted == ptx_term_const(bits);
    PtxOutcome *o = p->trial->outcome;
    if (same)
        o->proved++;
    else if (o->unproved++ == 0)
        describe(p, what, mask, index);
}

static void prove_result(const Proof *p, int result)
{
    const PtxTensor *t = &p->trial->tensor[p->trial->n_params + result];
    const Tensor *declared = &p->at->op->op->results[result];
    i64 index[MAX_ATOMS] = {0}, n = (i64)t->bytes / t->element;
    for (i64 at = 0; at < n; at++) {
        if (!t->known[at * t->element] || verify_ptx_flat(t, at) < 0)
            continue;
        indices_of(p, declared->atoms, declared->n_atoms, verify_ptx_flat(t, at), index);
        judge(p, t, at, terms_result(p->terms, result, index), p->trial->op->op->tensors[
              p->trial->n_params + result].name, declared->mask, index);
    }
}

/* ---- roots ------------------------------------------------------------------------------------
 */

/* All elements of a reduction over these dimensions. */
static void prove_roots(const Proof *p, const DagNode *reduce, const PlanDim *const *dims,
                        int n_dims, int roots)
{
    const PtxTensor *t = &p->trial->roots;
    i64 index[MAX_ATOMS] = {0}, n = 1;
    for (int d = 0; d < n_dims; d++)
        for (int i = 0; i < dims[d]->n_atoms; i++) {
            i64 lo, hi;
            range_of(p, dims[d]->atoms[i], &lo, &hi);
            n *= hi - lo;
        }
    for (i64 at = 0; at < n; at++) {
        i64 rest = at;
        for (int d = n_dims - 1; d >= 0; d--)
            rest = indices_of(p, dims[d]->atoms, dims[d]->n_atoms, rest, index);
        for (int root = 0; root < roots; root++) {
            i64 place = terms_root_place(p->terms, p->trial->op->rank, reduce, root, index);
            if (place >= 0 && t->known[place * 4])
                judge(p, t, place, terms_root(p->terms, reduce, root, index), "root", reduce->mask,
                      index);
        }
    }
}

static void prove_gemm_roots(const Proof *p)
{
    const Gemm *gemm = &p->kernel->gemm;
    for (int g = 0; g < gemm->n_groups; g++)
        for (int k = 0; k < gemm->group[g].n_products; k++) {
            const PlanDim *dims[] = {&gemm->rows, &gemm->group[g].cols};
            prove_roots(p, gemm->group[g].product[k].reduce, dims, 2, gemm->n_roots);
        }
}

static void prove_row_roots(const Proof *p)
{
    const PlanDim *dims[MAX_DIMS];
    for (int d = 0; d < p->kernel->n_dims - 1; d++)
        dims[d] = &p->kernel->dims[d];
    prove_roots(p, p->kernel->row.reduces[0], dims, p->kernel->n_dims - 1, p->kernel->row.n_roots);
}

/* ---- all --------------------------------------------------------------------------------------
 */

static bool open_proof(Proof *p)
{
    PtxTrial *r = p->trial;
    const VerifyPtxInput *input = r->worker->input;
    Str why = STR("an op that the plan does not have");
    bool joins = r->job->phase == ISO_PHASE_JOIN;
    p->at = plan_op(r);
    if (p->at) {
        i64 *line = arena_array(r->arena, i64, r->n_params + 1);
        i64 *pitch = arena_array(r->arena, i64, r->n_params + 1);
        const int32_t **indices = arena_array(r->arena, const int32_t *, r->n_params + 1);
        for (int i = 0; i < r->n_params; i++) {
            line[i] = r->tensor[i].line, pitch[i] = r->tensor[i].pitch;
            indices[i] = r->tensor[i].indices ? r->tensor[i].tensor.data : NULL;
        }
        TermsSetup setup = {
            .indices = indices,
            .line = line,
            .pitch = pitch,
            .plan = input->prove,
            .at = p->at,
            .rank = r->op->rank,
            .joins = joins,
            .rows = r->rows,
            .first_param = PTX_INPUT_PARAM,
            .first_roots = PTX_INPUT_ROOTS,
            .functions = input->functions,
            .numerics = r->worker->machine.numerics,
        };
        p->terms = terms_open(&setup, &why, r->arena);
        p->contract = input->prove->dag->contract;
        p->part = joins ? &p->at->finish_of_rank[r->op->rank]
                        : &p->at->part_of_rank[r->op->rank];
        p->kernel = input->prove->kernels.v[r->job->spec];
    }
    if (!p->terms)
        r->outcome->unlike = str_format(r->arena, "no terms for %.*s", STR_FMT(why));
    return p->terms != NULL;
}

void verify_ptx_prove(PtxTrial *trial)
{
    Proof p = {.trial = trial};
    if (!open_proof(&p)) {
        trial->outcome->refused = true;
        return;
    }
    if (trial->job->phase != ISO_PHASE_PART)
        for (int i = 0; i < trial->n_results; i++)
            prove_result(&p, i);
    else if (p.kernel->family == FAMILY_GEMM)
        prove_gemm_roots(&p);
    else
        prove_row_roots(&p);
}
