/* What the checks of a model share; private to check_model*.c.
 * Ownership: as check_impl.h. */
#ifndef ISOC_CHECK_MODEL_IMPL_H
#define ISOC_CHECK_MODEL_IMPL_H

#include "check_impl.h"

/* What a name means at some point; value -1: it was refused, and uses are not judged. */
typedef struct ModelName {
    Name name;
    int value;
    int repeat; /* in whose body it was set; -1 */
} ModelName;

typedef VEC(ModelName) ModelNames;

typedef struct Modeling {
    Checker *c;
    Model *model;
    ModelNames names; /* as they stand where the check has come to */
    int repeat;       /* the one whose body is read; -1 */
    int steps;        /* statements so far, against the limit of 2.6 */
} Modeling;

/* "bf16[tokens, hidden]" */
Str model_type_text(Checker *c, const Tensor *tensor);
/* One type, and the same axes in the same order. */
bool model_same_type(const Tensor *a, const Tensor *b);

/* Index of the weight that is an argument, added where it is new; -1 after a fault. */
int model_weight_of(Modeling *m, const Op *op, const Tensor *param, const AstArgument *a);
/* The settings of a table, told where they do not fit. */
bool check_rope(Checker *c, const AstModelStatement *step, IsoRope *rope);

#endif
