/* Proof level 1: the list of obligations, and each plan taken through it. */
#include "proof.h"
#include "proof_impl.h"

#include <string.h>

static Str layout_text(const PlanOp *op)
{
    return op->at.layout ? op->at.layout->name.text : STR("");
}

void proof_record(Prover *prover, const char *what, Str schedule, Str difference, Str compared,
                  const Digest *contract, const Digest *plan)
{
    const PlanOp *op = prover->op;
    Obligation obligation = {.op = op->op->op->name, .layout = layout_text(op),
                             .schedule = schedule, .what = str_of(what), .holds = !difference.n,
                             .detail = difference.n ? difference : compared};
    if (contract)
        obligation.contract = *contract;
    if (plan)
        obligation.plan = *plan;
    vec_push(prover->arena, &prover->certificate->obligations, obligation);
    if (obligation.holds)
        return;
    prover->certificate->failed++;
    Diag *diag = diag_add(prover->diags, DIAG_PROOF_FAILED,
                          op->op->op->ast ? op->op->op->ast->name.span : (Span){0},
                          "the plan of %.*s in layout %.*s is not what the contract says",
                          STR_FMT(op->op->op->name), STR_FMT(layout_text(op)));
    diag_note(prover->diags, diag, "%s, %.*s: %.*s", what, STR_FMT(schedule),
              STR_FMT(difference));
}

/* ---- trees ----------------------------------------------------------------------------------- */

static Str variant_text(const Prover *prover, const Variant *variant)
{
    Text text = {.arena = prover->arena};
    text_printf(&text, "rows %lld", (long long)variant->rows_min);
    if (variant->rows_max < INT32_MAX)
        text_printf(&text, "..%lld", (long long)variant->rows_max);
    else
        text_printf(&text, " and more");
    text_printf(&text, ", kernel");
    for (int r = 0; r < prover->op->at.ranks; r++)
        if (!r || variant->kernel_of_rank[r] != variant->kernel_of_rank[r - 1])
            text_printf(&text, " %d", variant->kernel_of_rank[r]);
    return text_str(&text);
}

/* Per reduce the contract's term; its tree is expanded over the whole extent. */
static void contract_terms(const Prover *prover, Terms *out)
{
    const OpDag *op = prover->op->op;
    for (int i = 0; i < op->reduces.n; i++) {
        const DagNode *reduce = op->reduces.v[i];
        const TreeNode *root = tree_expand(prover->arena, reduce->tree,
                                           reduce_extent(prover->contract, reduce));
        Digest term = term_of(reduce, root);
        vec_push(prover->arena, out, term);
    }
}

static Digest digest_of(const Prover *prover, const Terms *terms)
{
    Text text = {.arena = prover->arena};
    for (int i = 0; i < terms->n; i++)
        text_add(&text, (Str){(const char *)terms->v[i].byte, 32});
    return sha256(text.s ? text.s : "", (size_t)text.n);
}

/* Per reduce the term that a rank ends up with. */
static Str rank_terms(const Prover *prover, const Variant *variant, int rank, Terms *out)
{
    const OpDag *op = prover->op->op;
    for (int i = 0; i < op->reduces.n; i++) {
        Digest term = {{0}};
        Str difference = proof_reduce_term(prover, variant, op->reduces.v[i], rank, &term);
        if (difference.n)
            return str_format(prover->arena, "rank %d: %.*s", rank, STR_FMT(difference));
        vec_push(prover->arena, out, term);
    }
    return (Str){"", 0};
}

static bool same_sums(const PlanOp *op, int a, int b)
{
    const Part *one = &op->part_of_rank[a], *two = &op->part_of_rank[b];
    for (int i = 0; i < op->op->reduces.n; i++)
        for (int k = 0; k < op->op->reduces.v[i]->n_atoms; k++) {
            int atom = op->op->reduces.v[i]->atoms[k];
            if (one->lo[atom] != two->lo[atom] || one->hi[atom] != two->hi[atom])
                return false;
        }
    return true;
}

/* True if an earlier rank runs the same kernels over the same part of the sums. */
static bool is_repeated(const Prover *prover, const Variant *variant, int rank)
{
    const PlanOp *op = prover->op;
    int n = op->join_kernel < 0 ? 0
                                : prover->plan->kernels.v[op->join_kernel]->join.n_sources;
    for (int r = 0; r < rank; r++) {
        bool same = n ? !memcmp(op->sources_of_rank + r * n, op->sources_of_rank + rank * n,
                                sizeof(int) * (size_t)n)
                      : variant->kernel_of_rank[r] == variant->kernel_of_rank[rank] &&
                            same_sums(op, r, rank);
        if (same)
            return true;
    }
    return false;
}

/* A rank that has no part of a padded axis computes nothing. */
static bool is_idle(const Prover *prover, const Variant *variant, int rank)
{
    return prover->op->join_kernel < 0 && variant->kernel_of_rank[rank] < 0;
}

static Str tree_difference(const Prover *prover, const Terms *want, const Terms *have, int rank)
{
    for (int i = 0; i < want->n; i++)
        if (!digest_eq(&want->v[i], &have->v[i]))
            return str_format(prover->arena, "rank %d: sum %d of %d is another tree", rank, i + 1,
                              want->n);
    return (Str){"", 0};
}

static void prove_trees(Prover *prover, const Variant *variant, const Terms *want)
{
    Str difference = {"", 0};
    Digest contract = digest_of(prover, want), plan = contract;
    for (int r = 0; r < prover->op->at.ranks && !difference.n; r++) {
        Terms have = {0};
        if (is_idle(prover, variant, r) || is_repeated(prover, variant, r))
            continue;
        difference = rank_terms(prover, variant, r, &have);
        if (!difference.n)
            difference = tree_difference(prover, want, &have, r);
        plan = digest_of(prover, &have);
    }
    proof_record(prover, "tree", variant_text(prover, variant), difference,
                 STR("leaves and joins of all ranks, run as terms, give the contract's term"),
                 &contract, &plan);
}

/* ---- epilogues ------------------------------------------------------------------------------- */

static const Kernel *writer_of(const Prover *prover, const Variant *variant, int rank)
{
    int kernel = prover->op->join_kernel >= 0 ? prover->op->join_kernel
                                              : variant->kernel_of_rank[rank];
    return kernel < 0 ? NULL : prover->plan->kernels.v[kernel];
}

static bool writes(const DagPiece *const *pieces, int n, const DagPiece *piece, int *times)
{
    for (int i = 0; i < n; i++)
        *times += pieces[i] == piece;
    return *times > 0;
}

static int times_written(const Kernel *kernel, const DagPiece *piece)
{
    int times = 0;
    bool products = kernel->family == FAMILY_GEMM ||
                    (kernel->family == FAMILY_JOIN && kernel->join.of == FAMILY_GEMM);
    if (!products) {
        writes(kernel->pieces, kernel->n_pieces, piece, &times);
        return times;
    }
    for (int g = 0; g < kernel->gemm.n_groups; g++)
        writes(kernel->gemm.group[g].pieces, kernel->gemm.group[g].n_pieces, piece, &times);
    return times;
}

static Str piece_difference(const Prover *prover, const Kernel *kernel, const DagPiece *piece,
                            const Terms *reduces, Terms *want, Terms *have)
{
    Digest contract, plan;
    if (times_written(kernel, piece) != 1)
        return str_format(prover->arena, "a piece of %.*s is written %d times",
                          STR_FMT(prover->op->op->op->results[piece->result].name.text),
                          times_written(kernel, piece));
    Str difference = proof_piece_term(prover, piece, NULL, reduces, &contract);
    if (!difference.n)
        difference = proof_piece_term(prover, piece, kernel, reduces, &plan);
    if (difference.n)
        return difference;
    vec_push(prover->arena, want, contract);
    vec_push(prover->arena, have, plan);
    if (digest_eq(&contract, &plan))
        return difference;
    return str_format(prover->arena, "%.*s is another expression",
                      STR_FMT(prover->op->op->op->results[piece->result].name.text));
}

static void prove_epilogue(Prover *prover, const Variant *variant, const Terms *reduces)
{
    const OpDag *op = prover->op->op;
    Terms want = {0}, have = {0};
    Str difference = {"", 0};
    for (int r = 0; r < prover->op->at.ranks && !difference.n; r++) {
        const Kernel *kernel = writer_of(prover, variant, r);
        if (!kernel || (r && kernel == writer_of(prover, variant, r - 1)))
            continue;
        for (int i = 0; i < op->pieces.n && !difference.n; i++)
            difference = piece_difference(prover, kernel, &op->pieces.v[i], reduces, &want, &have);
    }
    Digest contract = digest_of(prover, &want), plan = digest_of(prover, &have);
    proof_record(prover, "epilogue", variant_text(prover, variant), difference,
                 STR("every piece is written once, as the contract's expression of the sums"),
                 &contract, &plan);
}

/* ---- what a kernel relies on ----------------------------------------------------------------- */

static Str alignment_difference(const Prover *prover, const Variant *variant)
{
    for (int r = 0; r < prover->op->at.ranks; r++) {
        int index = variant->kernel_of_rank[r];
        const Kernel *kernel = index < 0 ? NULL : prover->plan->kernels.v[index];
        if (!kernel || kernel->family != FAMILY_GEMM || kernel->gemm.kernel != KERNEL_WGMMA)
            continue;
        i64 first = kernel->gemm.leaf_hi[0] - kernel->gemm.leaf_lo[0];
        for (int i = 0; i < kernel->gemm.n_leaves; i++)
            if (kernel->gemm.leaf_hi[i] - kernel->gemm.leaf_lo[i] != first ||
                kernel->gemm.leaf_lo[i] != i * first || (kernel->gemm.n_leaves > 1 && first % 8))
                return str_format(prover->arena, "leaf %d of kernel %d cannot be copied by boxes",
                                  i, index);
    }
    return (Str){"", 0};
}

static void prove_alignment(Prover *prover, const Variant *variant)
{
    proof_record(prover, "alignment", variant_text(prover, variant),
                 alignment_difference(prover, variant),
                 STR("leaves fit the kernel that runs them"), NULL, NULL);
}

static void add_condition(Certificate *certificate, Arena *arena, Str condition)
{
    for (int i = 0; i < certificate->side_conditions.n; i++)
        if (str_eq(certificate->side_conditions.v[i], condition))
            return;
    vec_push(arena, &certificate->side_conditions, condition);
}

static void side_conditions(const Plan *plan, Certificate *certificate, Arena *arena)
{
    add_condition(certificate, arena,
                  STR("ptxas compiles the emitted PTX faithfully"));
    add_condition(certificate, arena,
                  STR("one tensor-core step is the class's model, whichever instruction runs it"));
    add_condition(certificate, arena,
                  STR("stores of one CTA are seen by those that wait for its counter (PTX memory "
                      "model)"));
    for (int i = 0; i < plan->kernels.n; i++) {
        const Kernel *kernel = plan->kernels.v[i];
        if (kernel->family == FAMILY_GEMM && kernel->gemm.kernel == KERNEL_WGMMA)
            add_condition(certificate, arena,
                          STR("operands of wgmma kernels lie on 16 bytes, with strides that are "
                              "multiples of 8 elements (checked at launch)"));
        if (kernel->family == FAMILY_JOIN)
            add_condition(certificate, arena,
                          STR("roots are moved between ranks unchanged, and all have arrived "
                              "before a join runs"));
    }
    add_condition(certificate, arena,
                  STR("strides of each tensor collapse along the dims of its kernel (checked at "
                      "launch)"));
}

/* ---- the stage ------------------------------------------------------------------------------- */

static void prove_op(Prover *prover)
{
    Terms reduces = {0};
    contract_terms(prover, &reduces);
    for (int i = 0; i < prover->op->n_variants; i++) {
        const Variant *variant = &prover->op->variants[i];
        prove_trees(prover, variant, &reduces);
        prove_epilogue(prover, variant, &reduces);
        prove_alignment(prover, variant);
    }
    proof_coverage(prover);
    proof_movement(prover);
    proof_rows(prover);
}

bool proof_check(const Plan *plan, Certificate *certificate, Arena *arena, Diags *diags)
{
    *certificate = (Certificate){0};
    for (int i = 0; i < plan->ops.n; i++) {
        Prover prover = {plan, plan->dag->contract, &plan->ops.v[i], certificate, arena, diags};
        prove_op(&prover);
    }
    side_conditions(plan, certificate, arena);
    return !certificate->failed;
}
