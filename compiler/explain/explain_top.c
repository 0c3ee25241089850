/* What one row of `top` does, in order. */
#include "explain_impl.h"

void explain_top(const Contract *contract, const Top *top, Str name, Text *out)
{
    const Axis *axis = &contract->axes[top->axis];
    text_printf(out, "\n%.*s is top over %.*s %lld, row by row:\n", STR_FMT(name),
                STR_FMT(axis->name.text), (long long)axis->size);
    text_printf(out, "  order: greater scores first, of equal ones the lower index; a NaN before "
                "all numbers\n");
    if (top->groups > 1) {
        text_printf(out, "  keeps the first %lld of %lld groups of %lld; a group's score is ",
                    (long long)top->keep, (long long)top->groups,
                    (long long)(axis->size / top->groups));
        if (top->group_sum == 1)
            text_printf(out, "that of its first\n");
        else
            text_printf(out, "the sum of its first %lld, from the left in f32\n",
                        (long long)top->group_sum);
    }
    text_printf(out, "  chooses the first %lld, in the order of their %s\n", (long long)top->k,
                top->by_index ? "indices" : "scores");
}
