/* What one row of `draw` does, in order. */
#include "explain_impl.h"

static void write_limit(const Op *op, const DrawLimit *limit, bool integer, Text *out)
{
    if (limit->param >= 0)
        text_add(out, op->params[limit->param].name.text);
    else if (integer)
        text_printf(out, "%u", limit->bits);
    else
        dag_print_constant(DT_F32, limit->bits, out);
}

void explain_draw(const Contract *contract, const Op *op, const Draw *draw, Str name, Text *out)
{
    const Axis *axis = &contract->axes[draw->axis];
    text_printf(out, "\n%.*s is draw over %.*s %lld, row by row:\n", STR_FMT(name),
                STR_FMT(axis->name.text), (long long)axis->size);
    if (draw->temperature >= 0)
        text_printf(out, "  z = score / %.*s, one division; where that is 0, z = score and the "
                    "greatest is taken\n", STR_FMT(op->params[draw->temperature].name.text));
    text_printf(out, "  order: greater z first, of equal ones the lower index; weight = "
                "exp(z - the greatest)\n");
    if (draw->min_p.set) {
        text_printf(out, "  keeps weights from min_p = ");
        write_limit(op, &draw->min_p, false, out);
        text_printf(out, " on\n");
    }
    if (draw->top_k.set) {
        text_printf(out, "  keeps the first top_k = ");
        write_limit(op, &draw->top_k, true, out);
        text_printf(out, "\n");
    }
    if (draw->top_p.set) {
        text_printf(out, "  keeps those before which less than top_p = ");
        write_limit(op, &draw->top_p, false, out);
        text_printf(out, " of the kept weights' sum lies,\n"
                    "    weights summed as integers of 2^-40\n");
    }
    text_printf(out, "  takes the greatest z - log(-log(1 - v)), the lowest index of equal ones; v "
                "from word index mod 4\n    of Philox4x32-10, key (%.*s, ",
                STR_FMT(op->params[draw->seed].name.text));
    if (draw->stream >= 0)
        text_add(out, op->params[draw->stream].name.text);
    else
        text_printf(out, "0");
    text_printf(out, "), counter (index div 4, position, 0, 0)\n"
                "  -1 where a score is NaN or none is above -inf\n");
}
