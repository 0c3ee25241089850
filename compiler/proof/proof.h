/* Proof level 1: every plan, run as terms, gives the contract's own terms.
 * Ownership: the certificate lives in the arena given. */
#ifndef ISOC_PROOF_H
#define ISOC_PROOF_H

#include "plan/plan.h"

typedef struct Obligation {
    Str op, layout, schedule; /* schedule: "rows 1..64 kernel 3" */
    Str what;                 /* the obligation's name: README.md lists them */
    bool holds;
    Str detail;               /* what was compared; on failure the first difference */
    Digest contract, plan;    /* the two terms */
} Obligation;

typedef struct Certificate {
    VEC(Obligation) obligations;
    VEC(Str) side_conditions; /* what stays trusted */
    int failed;
} Certificate;

/* Fails (ISO4901) if an obligation does not hold: that is a defect of the compiler. */
bool proof_check(const Plan *plan, Certificate *certificate, Arena *arena, Diags *diags);
/* JSON; the schema is compiler/proof/certificate.schema.json, restated in README. */
void proof_json(const Dag *dag, const Certificate *certificate, Text *out);
/* One table of layouts for people. */
void proof_table(const Plan *plan, const Certificate *certificate, Text *out);

#endif
