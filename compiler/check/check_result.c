/* Checks of what an op sets: every element of each result, once, with its axes and no others. */
#include "check_impl.h"

enum { PARTS_MAX = 4096 };

static u64 fixes_mask(const Piece *piece)
{
    u64 mask = 0;
    for (int i = 0; i < piece->n_fixes; i++)
        mask |= bit(piece->fixes[i].atom);
    return mask;
}

static void check_axes(Checker *c, const AstStatement *statement, const Tensor *result,
                       const Piece *piece, Span declared)
{
    const AstExpr *e = statement->value;
    u64 want = result->mask & ~fixes_mask(piece);
    u64 have = effective_mask(c->contract, e->axis_mask), over = 0;
    if (e->type < 0)
        return;
    for (int a = 0; a < c->contract->n_atoms; a++)
        if ((e->axis_mask & bit(a)) && (effective_mask(c->contract, bit(a)) & ~want))
            over |= bit(a);
    if (over) {
        Diag *d = fault(c, DIAG_AXIS_LEFT, e->span, "%.*s is left over: '%.*s' does not have it",
                        STR_FMT(mask_text(c, over)), STR_FMT(result->name.text));
        diag_label(c->diags, d, declared, "the result is declared here");
        diag_note(c->diags, d, "reduce the axis, sum(... by TREE), or give it to the result");
    }
    if (want & ~have) {
        Diag *d = fault(c, DIAG_AXIS_MISSING, e->span, "%.*s is missing: '%.*s' has it",
                        STR_FMT(mask_text(c, want & ~have)), STR_FMT(result->name.text));
        diag_label(c->diags, d, declared, "the result is declared here");
        diag_note(c->diags, d, "a value is not repeated along an axis that it does not have: take "
                               "the axis from the result");
    }
}

static i64 fix_at(const Piece *piece, int atom)
{
    for (int i = 0; i < piece->n_fixes; i++)
        if (piece->fixes[i].atom == atom)
            return piece->fixes[i].at;
    return 0;
}

/* The number of a piece among all index combinations of the held atoms, ascending. */
static i64 place_of(const Contract *contract, const Piece *piece, u64 held)
{
    i64 place = 0;
    for (int a = 0; a < contract->n_atoms; a++)
        if (held & bit(a))
            place = place * contract->axes[contract->atom_axis[a]].size + fix_at(piece, a);
    return place;
}

static i64 places(const Contract *contract, u64 held)
{
    i64 n = 1;
    for (int a = 0; a < contract->n_atoms; a++)
        if ((held & bit(a)) && n <= PARTS_MAX)
            n *= contract->axes[contract->atom_axis[a]].size;
    return n;
}

static Str place_text(Checker *c, u64 held, i64 place)
{
    Text out = {.arena = c->arena};
    i64 after = places(c->contract, held);
    for (int a = 0; a < c->contract->n_atoms; a++) {
        const Axis *axis = &c->contract->axes[c->contract->atom_axis[a]];
        if (!(held & bit(a)))
            continue;
        after /= axis->size;
        text_printf(&out, "%s%.*s %lld", out.n ? ", " : "", STR_FMT(axis->name.text),
                    (long long)(place / after % axis->size));
    }
    return text_str(&out);
}

static void parts_missing(Checker *c, const Tensor *result, u64 held, i64 place)
{
    Str at = held ? str_format(c->arena, "[%.*s]", STR_FMT(place_text(c, held, place))) : STR("");
    Diag *d = fault(c, DIAG_PARTS_MISSING, result->name.span, "'%.*s%.*s' is never set",
                    STR_FMT(result->name.text), STR_FMT(at));
    diag_note(c->diags, d, "set every index of an axis that is set by parts, or the whole result");
}

/* All parts of a result hold the same atoms, each combination once. */
static void check_parts(Checker *c, int index, int result)
{
    const Op *op = &c->contract->ops[index];
    const AstOp *ast = &c->ast->ops.v[index];
    const Tensor *tensor = &op->results[result];
    const AstStatement *first = NULL;
    u64 held = 0;
    i64 n = 0;
    u8 *seen = NULL;
    for (int i = 0; i < ast->body.n; i++) {
        int at = c->ops[index].piece[i];
        if (at < 0 || op->pieces.v[at].result != result)
            continue;
        const Piece *piece = &op->pieces.v[at];
        if (!first) {
            first = &ast->body.v[i];
            held = fixes_mask(piece);
            n = places(c->contract, held);
            seen = arena_array(c->arena, u8, PARTS_MAX + 1);
        }
        if (fixes_mask(piece) != held || n > PARTS_MAX) {
            Diag *d = fault(c, DIAG_PARTS_MISSING, ast->body.v[i].target.span,
                            "the parts of '%.*s' hold different axes, or too many indices",
                            STR_FMT(tensor->name.text));
            diag_label(c->diags, d, first->target.span, "the first part is set here");
            diag_note(c->diags, d, "hold the same axes in every part, of %d indices together at "
                                   "most", PARTS_MAX);
            return;
        }
        if (seen[place_of(c->contract, piece, held)]++)
            assigned_twice(c, &ast->body.v[i], first);
    }
    for (i64 place = 0; place < n; place++)
        if (!seen[place]) {
            parts_missing(c, tensor, held, place);
            return;
        }
    if (!first)
        parts_missing(c, tensor, 0, 0);
}

void check_op_results(Checker *c, int index)
{
    const AstOp *ast = &c->ast->ops.v[index];
    Op *op = &c->contract->ops[index];
    for (int i = 0; i < ast->body.n; i++) {
        int at = c->ops[index].piece[i];
        if (at < 0)
            continue;
        const Piece *piece = &op->pieces.v[at];
        check_axes(c, &ast->body.v[i], &op->results[piece->result], piece,
                   ast->results.v[piece->result].span);
    }
    for (int r = 0; r < op->n_results; r++)
        check_parts(c, index, r);
}
