/* Checks of indices that hold axes: y[half 0], w[vocab ids]. */
#include "check_impl.h"

static void add_fix(Checker *c, Piece *piece, int atom, i64 at)
{
    Fix *fixes = arena_array(c->arena, Fix, piece->n_fixes + 1);
    for (int i = 0; i < piece->n_fixes; i++)
        fixes[i] = piece->fixes[i];
    fixes[piece->n_fixes++] = (Fix){atom, at};
    piece->fixes = fixes;
}

/* A product axis is held by holding its factors, row-major. */
static void add_fixes(Checker *c, Piece *piece, int axis, i64 at)
{
    const Axis *a = &c->contract->axes[axis];
    if (a->atom >= 0) {
        add_fix(c, piece, a->atom, at);
        return;
    }
    for (int f = a->n_factors - 1; f >= 0; f--) {
        i64 size = c->contract->axes[a->factors[f]].size;
        add_fixes(c, piece, a->factors[f], at % size);
        at /= size;
    }
}

bool check_held(Checker *c, Name axis, u64 mask, Str of, u64 *held, int *id)
{
    *id = axis_of_name(c, axis);
    if (*id < 0)
        return false;
    u64 own = axis_mask(c->contract, *id);
    if ((own & ~mask) || (own & *held)) {
        Diag *d = fault(c, DIAG_BAD_INDEX, axis.span,
                        own & *held ? "'%.*s' is held at '%.*s' twice"
                                    : "'%.*s' does not have the axis '%.*s'",
                        STR_FMT(of), STR_FMT(axis.text));
        Str have = mask ? mask_text(c, mask) : STR("no axis");
        diag_note(c->diags, d, "it has %.*s", STR_FMT(have));
        return false;
    }
    if (c->contract->axes[*id].sparse_of) {
        Diag *d = fault(c, DIAG_BAD_INDEX, axis.span,
                        "'%.*s' cannot be held at an index: its slots are a token's own",
                        STR_FMT(axis.text));
        diag_note(c->diags, d, "reduce them, or give the axis to the result");
        return false;
    }
    *held |= own;
    return true;
}

static bool check_index(Checker *c, const AstIndex *index, u64 mask, Str of, u64 *held, i64 *at)
{
    int id;
    if (index->kept) {
        Diag *d = fault(c, DIAG_BAD_INDEX, index->at.span,
                        "'%.*s' is kept at '%.*s', which is no parameter of indices",
                        STR_FMT(index->axis.text), STR_FMT(index->at.text));
        diag_note(c->diags, d, "in an expression z[vocab = ids] is z where the index of vocab is "
                               "what the parameter ids: vocab[tokens] says, and -inf elsewhere");
        return false;
    }
    if (!check_held(c, index->axis, mask, of, held, &id))
        return false;
    const Axis *axis = &c->contract->axes[id];
    if (axis->size == 0) {
        Diag *d = fault(c, DIAG_BAD_INDEX, index->axis.span,
                        "'%.*s' cannot be held at an index: its length is known at launch only",
                        STR_FMT(index->axis.text));
        diag_note(c->diags, d, "rows do not know of each other; index an axis of fixed size");
        return false;
    }
    return number_int(c, &index->at, 0, axis->size - 1, DIAG_BAD_INDEX,
                      str_format(c->arena, "an index of '%.*s'", STR_FMT(axis->name.text)).s, at);
}

bool check_indices(Checker *c, const AstIndices *index, u64 mask, Str of, u64 *held, Piece *piece)
{
    bool sound = true;
    for (int i = 0; i < index->n; i++) {
        i64 at = 0;
        if (!check_index(c, &index->v[i], mask, of, held, &at))
            sound = false;
        else if (piece)
            add_fixes(c, piece, axis_of_name(c, index->v[i].axis), at);
    }
    return sound;
}
