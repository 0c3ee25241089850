/* What the files of the proof share: the plan of one op in one layout, and where results go.
 * Ownership: everything lives in the prover's arena. */
#ifndef ISOC_PROOF_IMPL_H
#define ISOC_PROOF_IMPL_H

#include "proof.h"

typedef struct Prover {
    const Plan *plan;
    const Contract *contract;
    const PlanOp *op;
    Certificate *certificate;
    Arena *arena;
    Diags *diags;
} Prover;

typedef VEC(Digest) Terms;

/* Records the obligation; a failed one is a diagnostic too. */
void proof_record(Prover *prover, const char *what, Str schedule, Str difference, Str compared,
                  const Digest *contract, const Digest *plan);

/* ---- proof_terms.c: a plan run as terms ------------------------------------------------------ */

/* The term of a reduce as `rank` ends up with it in a variant. The difference is empty, or says why
 * a kernel cannot be run so. */
Str proof_reduce_term(const Prover *prover, const Variant *variant, const DagNode *reduce,
                      int rank, Digest *out);
/* The term of a piece: by the contract where kernel is NULL, else with the kernel's operands. */
Str proof_piece_term(const Prover *prover, const DagPiece *piece, const Kernel *kernel,
                     const Terms *reduces, Digest *out);

/* ---- proof_parts.c: who has which elements --------------------------------------------------- */

void proof_coverage(Prover *prover);
void proof_movement(Prover *prover);
void proof_rows(Prover *prover);

#endif
