/* What trees join: the monoids of the language as scalars. This text is their definition. */
#include "exec_impl.h"

#include "device/iso_num.cuh"
#include "device/iso_short.cuh"

#include <math.h>

/* ---- joins ----------------------------------------------------------------------------------- */

/* exp(a - m), and 1 where the two are equal: an infinite maximum has no distance from itself. */
static float weight_of(DType type, float a, float m)
{
    float d = a == m ? 0.0f : exec_round(type, iso_sub(a, m));
    return exec_round(type, iso_exp(exec_widen(type, d)));
}

static float weighted_sum(DType type, float l, float fl, float r, float fr)
{
    float pl = exec_round(type, iso_mul(l, fl)), pr = exec_round(type, iso_mul(r, fr));
    return exec_round(type, iso_add(pl, pr));
}

/* As kernels do it, with the bits of join_weighted but for s beside an infinite maximum: that is
 * seen where roots leave a rank. */
static void join_pairs(const float *l, const float *r, float *out)
{
    IsoPair joined = iso_short_join((IsoPair){l[0], l[1]}, (IsoPair){r[0], r[1]});
    out[0] = joined.m;
    out[1] = joined.s;
}

static void join_weighted(DType type, const float *l, const float *r, float *out)
{
    float m = exec_round(type, iso_max(l[0], r[0]));
    float fl = weight_of(type, l[0], m), fr = weight_of(type, r[0], m);
    out[1] = weighted_sum(type, l[1], fl, r[1], fr);
    out[0] = m;
}

void exec_join_values(Monoid monoid, DType type, const float *left, const float *right, float *out)
{
    switch (monoid) {
    case MONOID_SUM:
        *out = exec_round(type, iso_add(*left, *right));
        break;
    case MONOID_MAX:
        *out = exec_round(type, iso_max(*left, *right));
        break;
    case MONOID_LOGSUMEXP:
        if (type == DT_F32)
            join_pairs(left, right, out);
        else
            join_weighted(type, left, right, out);
        break;
    case MONOID_COUNT:
        break;
    }
}

/* ---- elements and results -------------------------------------------------------------------- */

void exec_lift(Monoid monoid, float x, float *out)
{
    out[0] = x;
    if (monoid == MONOID_LOGSUMEXP)
        out[1] = 1.0f;
}

float exec_final(Monoid monoid, DType type, const float *value)
{
    switch (monoid) {
    case MONOID_LOGSUMEXP:
        return exec_round(
            type, iso_add(value[0], exec_round(type, iso_log(exec_widen(type, value[1])))));
    default:
        return value[0];
    }
}

float exec_of_nothing(Monoid monoid)
{
    return monoid == MONOID_MAX || monoid == MONOID_LOGSUMEXP ? -INFINITY : 0.0f;
}
