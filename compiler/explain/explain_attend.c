/* What one row of `attend` computes, in order. */
#include "explain_impl.h"

static void write_scores(const Contract *contract, const DagNode *node, Text *out)
{
    const Attend *a = node->attend;
    const FdpaClass *class = contract->numerics;
    i64 n = 1;
    text_printf(out, "  score: one mma chain over ");
    for (int i = 0; i < a->n_over; i++) {
        const Axis *axis = &contract->axes[contract->atom_axis[a->over[i]]];
        text_printf(out, "%s%.*s %lld", i ? " x " : "", STR_FMT(axis->name.text),
                    (long long)axis->size);
        n *= axis->size;
    }
    text_printf(out, " (%lld steps of %d)\n  t = score * ",
                (long long)((n + class->group - 1) / class->group), class->group);
    dag_print_constant(DT_F32, a->scale, out);
    if (a->capped) {
        text_printf(out, ", then tanh(t) * ");
        dag_print_constant(DT_F32, a->cap, out);
    }
    text_printf(out, ": an exponent of 2, %s\n", a->rounded ? "its last product part of fmas"
                                                            : "f32, each product rounded");
}

static void write_keys(const Attend *a, Text *out)
{
    text_printf(out, "  keys: of the row's sequence, ");
    if (a->window)
        text_printf(out, "the %lld up to its own position", (long long)a->window);
    else
        text_printf(out, a->causal ? "up to its own position" : "all");
    text_printf(out, "; the others are absent\n");
    text_printf(out, "  in blocks of %lld, in splits of %lld, counted from position 0\n",
                (long long)a->block, (long long)a->split);
}

static void write_block(const Contract *contract, const Attend *a, Text *out)
{
    const char *exp2 = dag_fn_name(a->exp2);
    int group = contract->numerics->group;
    text_printf(out, "  in a split, block by block, m the maximum of t so far%s:\n"
                "    weight = %s(t - m), f32; what was before is multiplied by %s(old m - m)\n",
                a->rounded ? ", of each block's rounded to a multiple of 8" : "", exp2, exp2);
    if (a->rounded && a->exp2 == FN_EX2)
        text_printf(out, "    (t - m is one fma)\n");
    else if (a->rounded)
        text_printf(out, "    (n = round(t - m), r = t - (n + m), an fma each; n is added to the "
                         "exponent of the\n    polynomial of r; t is at least m - 124)\n");
    text_printf(out,
                "    sum: of the f32 weights, lanes 4 by 2 { split 4 { chain add } pairwise } of "
                "the block;\n"
                "         a lane is carried over blocks, lanes join pairwise at the split's end\n"
                "    value: of the weights rounded to %s, %lld steps of %d keys onto what was "
                "carried\n", dtype_name(a->weights), (long long)(a->block / group), group);
}

static void write_result(const DagNode *node, const char *before, Text *out)
{
    const char *quotient = node->attend->rounded ? "value * (1 / sum)"
                                                 : "value / sum, one division";
    text_printf(out, "%s ", before);
    text_printf(out, node->lse ? "m * ln 2 + log(sum); -inf for a row without keys\n"
                               : "%s; +0 for a row without keys\n", quotient);
}

void explain_attend(const Contract *contract, const DagNode *node, Str name, Str like, Text *out)
{
    const Attend *a = node->attend;
    if (like.n) {
        text_printf(out, "\n%.*s is of the rows of %.*s", STR_FMT(name), STR_FMT(like));
        write_result(node, ":", out);
        return;
    }
    text_printf(out, "\n%.*s is attend, row by row:\n", STR_FMT(name));
    write_scores(contract, node, out);
    write_keys(a, out);
    write_block(contract, a, out);
    text_printf(out, "  splits join left to right by (m, sum, value), two products and one sum each"
                "%s\n", node->n_args > 3 ? ";\n  the sink joins last, as a score without a value"
                                         : "");
    write_result(node, " ", out);
}
