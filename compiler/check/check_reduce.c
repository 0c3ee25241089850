/* Checks of reductions: their axes, their tree over these, and what the leaves take. */
#include "check_impl.h"

static const Value refused = {TYPE_REFUSED, 0};

/* ---- axes ------------------------------------------------------------------------------------ */

/* Rows of tokens do not know of each other; other free axes need a tree anchored at index 0. */
static bool check_free_axis(Scope *scope, const AstExpr *e, Name name, const Axis *axis)
{
    Checker *c = scope->c;
    if (axis->coordinate_of >= 0 || (axis->free && axis->n_factors)) {
        Diag *d = fault(c, DIAG_TOKEN_REDUCTION, name.span,
                        "a reduction over '%.*s' makes a row depend on what else is in the batch",
                        STR_FMT(name.text));
        diag_label(c->diags, d, axis->name.span, "the axis of packed tokens is declared here");
        diag_note(c->diags, d, "reduce over the axes of one row, for instance a scale per token; "
                               "or take the value as a parameter that does not change");
        return false;
    }
    if (axis->free && e->axes.n > 1) {
        Diag *d = fault(c, DIAG_FREE_REDUCTION, name.span,
                        "the free axis '%.*s' is reduced together with others",
                        STR_FMT(name.text));
        diag_note(c->diags, d, "reduce the others first, then '%.*s' alone", STR_FMT(name.text));
        return false;
    }
    return true;
}

static bool check_axis(Scope *scope, const AstExpr *e, Name name, const Value *body, u64 *reduced)
{
    Checker *c = scope->c;
    int id = axis_of_name(c, name);
    if (id < 0)
        return false;
    const Axis *axis = &c->contract->axes[id];
    u64 mask = axis_mask(c->contract, id);
    if (mask & *reduced) {
        Diag *d = fault(c, DIAG_AXIS_OVERLAP, name.span, "'%.*s' is reduced twice",
                        STR_FMT(name.text));
        diag_note(c->diags, d, "a product axis stands for its factors: name it, or them");
        return false;
    }
    *reduced |= mask;
    if (body->type != TYPE_REFUSED && (mask & ~body->mask)) {
        Diag *d = fault(c, DIAG_AXIS_NOT_IN_BODY, name.span,
                        "nothing in the body has the axis '%.*s'", STR_FMT(name.text));
        Str have = body->mask ? mask_text(c, body->mask) : STR("no axis");
        diag_label(c->diags, d, e->args.v[0]->span, "the body has %.*s", STR_FMT(have));
        diag_note(c->diags, d, "a value is not added to itself: reduce the axes that the body has");
        return false;
    }
    return check_free_axis(scope, e, name, axis);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* sum(picks at experts chosen by T): the axis whose elements are the places; -1 after a fault. */
static int place_axis(Scope *scope, const AstExpr *e)
{
    Checker *c = scope->c;
    const AstIndex *place = &e->index.v[0];
    int slots = e->axes.n == 1 ? axis_of_name(c, e->axes.v[0]) : -1, at;
    int axis = axis_of_name(c, place->axis);
    if (axis < 0 || (e->axes.n == 1 && slots < 0))
        return -1;
    if (slots >= 0 && c->contract->axes[slots].sparse_of == axis + 1)
        return axis;
    at = e->axes.n - 1;
    Diag *d = fault(c, DIAG_PLACES, e->axes.v[at].span,
                    e->axes.n > 1 ? "'%.*s' and others have places in '%.*s'"
                                  : "'%.*s' has no places in '%.*s'",
                    STR_FMT(e->axes.v[at].text), STR_FMT(place->axis.text));
    diag_note(c->diags, d, "one sparse axis has, of that axis: axis picks = 8 of %.*s",
              STR_FMT(place->axis.text));
    return -1;
}

/* What says where the slots stand. *mask: its axes. */
static bool check_place(Scope *scope, const AstExpr *e, int axis, u64 *mask)
{
    Checker *c = scope->c;
    const AstIndex *place = &e->index.v[0];
    int at = symbol_of(&scope->state->symbols, place->at.text);
    Symbol *by = at < 0 ? NULL : &scope->state->symbols.v[at];
    u64 slots = axis_mask(c->contract, axis_of_name(c, e->axes.v[0]));
    if (by)
        by->used = true;
    if (by && (by->type == TYPE_REFUSED || (by->index_of == axis + 1 && (by->mask & slots)))) {
        *mask = by->mask;
        return check_index_by(scope, place, axis, by);
    }
    Diag *d = fault(c, DIAG_PLACES, place->at.span,
                    "'%.*s' does not say where the slots of '%.*s' stand in '%.*s'",
                    STR_FMT(place->at.text), STR_FMT(e->axes.v[0].text),
                    STR_FMT(place->axis.text));
    diag_note(c->diags, d, "a tensor of indices does: chosen: %.*s[tokens, %.*s]",
              STR_FMT(place->axis.text), STR_FMT(e->axes.v[0].text));
    return false;
}

static bool check_placed_body(Scope *scope, const AstExpr *e, int axis, const Tree *tree,
                              const Value *body)
{
    Checker *c = scope->c;
    u64 own = axis_mask(c->contract, axis);
    if (tree_is_mma(tree)) {
        Diag *d = fault(c, DIAG_PLACES, e->tree->span, "slots are summed by mma");
        diag_note(c->diags, d, "tensor cores take elements that are all there: take a tree that "
                               "ends in chain, over an f32 body");
        return false;
    }
    if (body->type == TYPE_REFUSED || !(body->mask & own))
        return true;
    Diag *d = fault(c, DIAG_PLACES, e->args.v[0]->span, "the body has '%.*s' itself",
                    STR_FMT(e->index.v[0].axis.text));
    diag_note(c->diags, d, "hold it where the slots stand: s[%.*s %.*s]",
              STR_FMT(e->index.v[0].axis.text), STR_FMT(e->index.v[0].at.text));
    return false;
}

/* ---- the tree over them ---------------------------------------------------------------------- */

/* The axes whose elements the tree joins: the places', if slots have them. */
static Names tree_axes(Checker *c, const AstExpr *e)
{
    Names axes = e->axes;
    if (e->index.n) {
        axes = (Names){0};
        vec_push(c->arena, &axes, e->index.v[0].axis);
    }
    return axes;
}

static bool check_extent(Scope *scope, const AstExpr *e, const Tree *tree)
{
    Checker *c = scope->c;
    const Names axes = tree_axes(c, e);
    i64 extent = 1;
    for (int i = 0; i < axes.n; i++) {
        const Axis *axis = &c->contract->axes[axis_of_name(c, axes.v[i])];
        if (axis->free) {
            const char *problem = tree_anchor_problem(tree);
            if (problem) {
                Diag *d = fault(c, DIAG_FREE_REDUCTION, e->tree->span,
                                "'%.*s' is known at launch only, and %s",
                                STR_FMT(axis->name.text), problem);
                diag_note(c->diags, d, "anchor the parts at index 0: every 128 { ... } left f32");
                return false;
            }
            return true;
        }
        extent = extent > ((i64)1 << 40) ? extent : extent * axis->size;
    }
    Str problem = tree_extent_problem(c->arena, tree, extent);
    if (!problem.n)
        return true;
    Diag *d = fault(c, DIAG_TREE_EXTENT, e->tree->span, "the tree does not fit: %.*s",
                    STR_FMT(problem));
    for (int i = 0; i < axes.n; i++) {
        const Axis *axis = &c->contract->axes[axis_of_name(c, axes.v[i])];
        diag_label(c->diags, d, axis->name.span, "'%.*s' has %lld elements",
                   STR_FMT(axis->name.text), (long long)axis->size);
    }
    diag_note(c->diags, d, "take another number of parts, or write their lengths: "
                           "split [a, b, ...] { ... }");
    return false;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

bool class_takes(const FdpaClass *class, int type)
{
    FdpaType wanted = type == DT_BF16 ? FDPA_BF16 : FDPA_F16;
    return (type == DT_BF16 || type == DT_F16) && (!class || (class->types & 1u << wanted));
}

static bool is_product_of_tensors(const AstExpr *body)
{
    return body->kind == EXPR_BINARY && body->op == '*' && body->args.v[0]->kind == EXPR_NAME &&
           body->args.v[1]->kind == EXPR_NAME;
}

static bool check_mma(Scope *scope, const AstExpr *e, const Value *body)
{
    Checker *c = scope->c;
    const AstExpr *product = e->args.v[0];
    if (!str_is(e->name.text, "sum")) {
        Diag *d = fault(c, DIAG_MMA_MONOID, e->name.span, "%.*s by mma: tensor cores add products",
                        STR_FMT(e->name.text));
        diag_note(c->diags, d, "take a tree that ends in chain, over an f32 body");
        return false;
    }
    if (!is_product_of_tensors(product)) {
        Diag *d = fault(c, DIAG_MMA_BODY, product->span,
                        "the body of an mma is one product of two tensors");
        diag_label(c->diags, d, e->tree->span, "the tree ends in mma");
        diag_note(c->diags, d, "tensor cores round nothing between the product and the sum; give "
                               "other values a name and a 16-bit type first, or take a chain");
        return false;
    }
    if (body->type == TYPE_REFUSED || class_takes(c->contract->numerics, body->type))
        return body->type != TYPE_REFUSED;
    Diag *d = fault(c, DIAG_MMA_TYPE, product->span, "the class '%.*s' has no mma of %s",
                    STR_FMT(c->ast->numerics.text), dtype_name((DType)body->type));
    diag_note(c->diags, d, "round the operands to a type of the class, or take a chain in f32");
    return false;
}

/* A 16-bit product is rounded before the chain sees it: hardly ever what is meant. */
static void narrow_product(Checker *c, const AstExpr *product, DType type)
{
    Str a = source_text(c, product->args.v[0]->span), b = source_text(c, product->args.v[1]->span);
    Diag *d = fault(c, DIAG_IMPLICIT_CAST, product->span,
                    "the body of a chain is f32, and this is a product in %s: casts are written",
                    dtype_name(type));
    diag_note(c->diags, d, "write f32(%.*s) * f32(%.*s), whose products are exact, or "
                           "f32(%.*s * %.*s), whose products are rounded to %s", STR_FMT(a),
              STR_FMT(b), STR_FMT(a), STR_FMT(b), dtype_name(type));
    diag_fix(c->diags, d, product->span, "f32(%.*s) * f32(%.*s)", STR_FMT(a), STR_FMT(b));
}

static bool check_chain(Scope *scope, const AstExpr *e, Value *body)
{
    if (body->type == TYPE_LITERAL) {
        body->type = TYPE_REFUSED; /* that nothing has the axis is told */
        return false;
    }
    if (is_product_of_tensors(e->args.v[0]) && (body->type == DT_BF16 || body->type == DT_F16)) {
        narrow_product(scope->c, e->args.v[0], (DType)body->type);
        return false;
    }
    want_type(scope, e->args.v[0], body, DT_F32, "the body of a chain");
    return body->type != TYPE_REFUSED;
}

Value check_reduction(Scope *scope, AstExpr *e)
{
    Checker *c = scope->c;
    u64 reduced = 0, placed = 0;
    Value body = check_value(scope, e->args.v[0]);
    bool sound = true;
    int places = e->index.n ? place_axis(scope, e) : -1;
    for (int i = 0; i < e->axes.n; i++)
        sound &= check_axis(scope, e, e->axes.v[i], &body, &reduced);
    if (e->index.n)
        sound &= places >= 0 && check_place(scope, e, places, &placed);
    if (!tree_is_sound(c, e->tree)) {
        c->failed = true;
        return refused;
    }
    const Tree *tree = contract_tree(c->contract, e->tree, c->arena);
    sound = sound && check_extent(scope, e, tree) &&
            (places < 0 || check_placed_body(scope, e, places, tree, &body));
    sound &= tree_is_mma(tree) ? check_mma(scope, e, &body) : check_chain(scope, e, &body);
    if (!sound) {
        c->failed = true;
        return refused;
    }
    scope->op->space |= reduced | (places >= 0 ? axis_mask(c->contract, places) : 0);
    return (Value){(int)tree_type(tree), (body.mask | placed) & ~reduced};
}
