/* The terms that a kernel's outputs have, against those that the contract gives them. */
#include "verify_ptx_impl.h"

#include "ptx/choice.h"
#include "ptx/shadow.h"

#include <string.h>

struct PtxProof {
    PtxTrial *trial;
    const PlanOp *at;
    const Part *part;
    const Kernel *kernel;
    Terms *terms;
    const Contract *contract;
};

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

static void range_of(const PtxProof *p, int atom, i64 *lo, i64 *hi)
{
    if (p->contract->axes[p->contract->atom_axis[atom]].free)
        part_rows(p->part, p->trial->rows, lo, hi);
    else
        *lo = p->part->lo[atom], *hi = p->part->hi[atom];
}

/* The global indices of a place in a row-major box of atoms; gives what is left of the place. */
static i64 indices_of(const PtxProof *p, const int *atoms, int n, i64 at, i64 *index)
{
    for (int i = n - 1; i >= 0; i--) {
        i64 lo, hi;
        range_of(p, atoms[i], &lo, &hi);
        index[atoms[i]] = lo + at % (hi - lo);
        at /= hi - lo;
    }
    return at;
}

static void describe(const PtxProof *p, const char *what, u64 mask, const i64 *index)
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

/* The term of an element; what no input reached is a constant. 0: halves of several terms. */
static u64 term_at(const PtxTensor *t, i64 at)
{
    const u64 *own = &t->shadow[t->element == 4 ? 2 * at : at];
    u32 value = 0;
    memcpy(&value, (const u8 *)t->tensor.data + at * t->element, (size_t)t->element);
    if (t->element == 4)
        return ptx_word_term((PtxTerms){own[0], own[1]}, value);
    return own[0] ? own[0] : ptx_term_const(value);
}

static void judge(const PtxProof *p, const PtxTensor *t, i64 at, u64 wanted, const char *what,
                  u64 mask, const i64 *index)
{
    bool same = term_at(t, at) == wanted && wanted != 0;
    PtxOutcome *o = p->trial->outcome;
    if (same)
        o->proved++;
    else if (o->unproved++ == 0)
        describe(p, what, mask, index);
}

static void prove_result(const PtxProof *p, int result)
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
static void prove_roots(const PtxProof *p, const DagNode *reduce, const PlanDim *const *dims,
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
        for (int i = 0; i < roots * monoid_values(reduce->monoid); i++) {
            int root = i / monoid_values(reduce->monoid), v = i % monoid_values(reduce->monoid);
            i64 place = terms_root_place(p->terms, p->trial->op->rank, reduce, root, v, index);
            if (place >= 0 && t->known[place * 4])
                judge(p, t, place, terms_root(p->terms, reduce, root, v, index), "root",
                      reduce->mask, index);
        }
    }
}

static void prove_gemm_roots(const PtxProof *p)
{
    const Gemm *gemm = &p->kernel->gemm;
    for (int i = 0; i < gemm->fold.n_reduces; i++) {
        const PlanDim *rows = &gemm->rows;
        prove_roots(p, gemm->fold.reduces[i], &rows, 1, gemm->fold.n_roots);
    }
    if (gemm->fold.n_reduces)
        return;
    for (int g = 0; g < gemm->n_groups; g++)
        for (int k = 0; k < gemm->group[g].n_products; k++) {
            const PlanDim *dims[] = {&gemm->rows, &gemm->group[g].cols};
            prove_roots(p, gemm->group[g].product[k].reduce, dims, 2, gemm->n_roots);
        }
}

static void prove_row_roots(const PtxProof *p)
{
    const PlanDim *dims[MAX_DIMS];
    for (int d = 0; d < p->kernel->n_dims - 1; d++)
        dims[d] = &p->kernel->dims[d];
    prove_roots(p, p->kernel->row.reduces[0], dims, p->kernel->n_dims - 1, p->kernel->row.n_roots);
}

/* The indices of a row of attention in the rank's part; false past the last. */
static bool attend_row(const PtxProof *p, i64 row, i64 *index)
{
    const PlanDim *dims = p->kernel->dims;
    for (int d = ATTEND_GROUP; d >= ATTEND_TOKENS; d--)
        row = indices_of(p, dims[d].atoms, dims[d].n_atoms, row, index);
    return row == 0;
}

static void prove_root(const PtxProof *p, const i64 *index, i64 split, i64 values)
{
    static const char *const what[] = {"a root's maximum", "a root's sum", "zero", "zero"};
    enum { TAIL = sizeof what / sizeof *what, PADDING = 2 };
    const PtxTensor *t = &p->trial->roots;
    i64 root = terms_split_place(p->terms, p->trial->op->rank, index, split);
    for (i64 v = 0; root >= 0 && v < values + TAIL; v++) {
        bool zero = v >= values + TAIL - PADDING; /* so that a root is whole 16 bytes */
        if (t->known[(root + v) * 4])
            judge(p, t, root + v,
                  zero ? ptx_term_const(0) : terms_split(p->terms, index, split, v),
                  v < values ? "a root's value" : what[v - values],
                  p->kernel->attend.computes.rows, index);
    }
}

/* Those of the splits that the rank has, of every row. */
static void prove_attend_roots(const PtxProof *p)
{
    i64 index[MAX_ATOMS] = {0}, first, end;
    for (i64 row = 0; attend_row(p, row, index); row++) {
        i64 values = terms_splits(p->terms, index, &first, &end);
        for (i64 split = first; split < end; split++)
            prove_root(p, index, split, values);
    }
}

/* ---- all --------------------------------------------------------------------------------------
 */

static const TermsTensor *params_of(const PtxTrial *r)
{
    TermsTensor *params = arena_array(r->arena, TermsTensor, r->n_params + 1);
    for (int i = 0; i < r->n_params; i++) {
        const PtxTensor *t = &r->tensor[i];
        params[i] = (TermsTensor){t->tensor.data, t->line, t->pitch,
                                  verify_ptx_table(r, i, MF_SEQUENCE),
                                  verify_ptx_table(r, i, MF_POSITION)};
    }
    return params;
}

static bool open_proof(PtxProof *p)
{
    PtxTrial *r = p->trial;
    const VerifyPtxInput *input = r->worker->input;
    Str why = STR("an op that the plan does not have");
    bool joins = r->job->phase == ISO_PHASE_JOIN;
    p->at = plan_op(r);
    if (p->at) {
        TermsSetup setup = {
            .params = params_of(r),
            .positions = r->position,
            .sequences = r->sequence,
            .keys = r->keys ? verify_ptx_terms_keys(r) : NULL,
            .tests = r->worker->machine.tests,
            .choices = r->worker->machine.choices,
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

/* What attention weighs by is known to have no sign before it is met: a column of each row has it
 * computed. */
static void prepare(const PtxProof *p)
{
    const Tensor *result = &p->at->op->op->results[0];
    const Attend *attend = &p->kernel->attend.computes;
    i64 index[MAX_ATOMS] = {0}, first, end;
    for (i64 row = 0; p->kernel->attend.choice == ATTEND_PARTS && attend_row(p, row, index); row++)
        terms_splits(p->terms, index, &first, &end);
    if (p->kernel->attend.choice == ATTEND_PARTS)
        return;
    i64 n = p->trial->tensor[p->trial->n_params].elements;
    for (i64 at = 0; at < n; at++) {
        bool first = true;
        indices_of(p, result->atoms, result->n_atoms, at, index);
        for (int i = 0; i < result->n_atoms; i++)
            first &= attend->rows >> result->atoms[i] & 1 || index[result->atoms[i]] == 0;
        if (first)
            terms_result(p->terms, 0, index);
    }
}

PtxProof *verify_ptx_prove_open(PtxTrial *trial)
{
    PtxProof *p = arena_new_of(trial->arena, PtxProof);
    p->trial = trial;
    if (!open_proof(p)) {
        trial->outcome->refused = true;
        return NULL;
    }
    if (p->kernel->family == FAMILY_ATTEND)
        prepare(p);
    return p;
}

/* Scores that a choice rests on, and that the contract does not rank. */
static void judge_choices(const PtxProof *p)
{
    const PtxTrial *r = p->trial;
    const PtxChoices *choices = r->worker->machine.choices;
    i64 foreign = choices ? ptx_choices_foreign(choices) : 0;
    r->outcome->unproved += foreign;
    if (foreign && !r->outcome->unlike.n)
        r->outcome->unlike = str_format(r->arena, "what %lld values choose, which the contract "
                                                  "does not rank", (long long)foreign);
}

void verify_ptx_prove(PtxProof *p)
{
    const PtxTrial *r = p->trial;
    if (r->job->phase != ISO_PHASE_PART)
        for (int i = 0; i < r->n_results; i++)
            prove_result(p, i);
    else if (p->kernel->family == FAMILY_ATTEND)
        prove_attend_roots(p);
    else if (p->kernel->family == FAMILY_GEMM)
        prove_gemm_roots(p);
    else
        prove_row_roots(p);
    judge_choices(p);
}
