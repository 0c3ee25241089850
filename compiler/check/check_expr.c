/* Types and axes of expressions. */
#include "check_impl.h"

#include "base/literal.h"

static const struct {
    const char *name;
    int arity;
} functions[] = {
#define X(id, name, arity, function) {name, arity},
#include "base/scalar.def"
#undef X
};

static const Value refused = {TYPE_REFUSED, 0};

int symbol_of(const Symbols *symbols, Str name)
{
    for (int i = 0; i < symbols->n; i++)
        if (str_eq(symbols->v[i].name.text, name))
            return i;
    return -1;
}

static bool type_by_name(Str name, DType *type)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (str_is(name, dtype_name((DType)t))) {
            *type = (DType)t;
            return true;
        }
    return false;
}

/* ---- literals -------------------------------------------------------------------------------- */

static bool is_nonzero(Str text)
{
    bool hex = text.n > 1 && (text.s[1] | 0x20) == 'x';
    for (int i = hex ? 2 : 0; i < text.n; i++) {
        char c = text.s[i];
        if ((c | 0x20) == (hex ? 'p' : 'e'))
            return false;
        if (c != '0' && c != '.')
            return true;
    }
    return false;
}

static void check_number(Checker *c, const AstExpr *e, DType type)
{
    Str text;
    u32 bits = 0, infinity = type == DT_F32 ? 0x7f800000 : type == DT_F16 ? 0x7c00 : 0x7f80;
    if (!number_text(c, &e->number, &text) || !literal_bits(text, type, &bits))
        return;
    bool lost = bits == 0 && is_nonzero(text);
    if (bits != infinity && !lost)
        return;
    Diag *d = fault(c, DIAG_LITERAL_RANGE, e->span, "%.*s is %s in %s", STR_FMT(text),
                    lost ? "0" : "infinite", dtype_name(type));
    diag_note(c->diags, d, "a literal takes the type of the operand beside it: compute in f32, or "
                           "write a value that %s can hold", dtype_name(type));
}

static void check_length(Checker *c, const AstExpr *e, DType type)
{
    int axis = axis_of_name(c, e->name);
    if (axis < 0)
        return;
    Str size = str_format(c->arena, "%lld", (long long)c->contract->axes[axis].size);
    if (literal_exact(size, type))
        return;
    Diag *d = fault(c, DIAG_LEN_INEXACT, e->span, "len(%.*s) is %.*s, which %s cannot hold exactly",
                    STR_FMT(e->name.text), STR_FMT(size), dtype_name(type));
    diag_note(c->diags, d, "compute in f32, or write the rounded number as a literal");
}

static void type_literal(Checker *c, AstExpr *e, DType type)
{
    e->type = type;
    if (e->kind == EXPR_NEG)
        type_literal(c, e->args.v[0], type);
    else if (e->kind == EXPR_NUMBER)
        check_number(c, e, type);
    else if (e->kind == EXPR_LEN)
        check_length(c, e, type);
}

/* ---- types that do not fit ------------------------------------------------------------------- */

/* A cast around the operand's own text. */
static void offer_cast(Checker *c, Diag *d, const AstExpr *e, DType type)
{
    if (e->kind == EXPR_BLOCK)
        return; /* a statement sets it: there is no place for a cast */
    diag_fix(c->diags, d, e->span, "%s(%.*s)", dtype_name(type), STR_FMT(source_text(c, e->span)));
}

void want_type(Scope *scope, AstExpr *e, Value *value, DType type, const char *what)
{
    Checker *c = scope->c;
    if (value->type == TYPE_LITERAL) {
        type_literal(c, e, type);
        value->type = type;
    }
    if (value->type == TYPE_REFUSED || value->type == (int)type)
        return;
    Diag *d = fault(c, DIAG_IMPLICIT_CAST, e->span, "%s is %s, and this is %s: casts are written",
                    what, dtype_name(type), dtype_name((DType)value->type));
    if (e->kind == EXPR_BLOCK)
        diag_note(c->diags, d, "let %.*s set a local", STR_FMT(e->name.text));
    diag_note(c->diags, d, "write %s(...) where the %s is meant to happen", dtype_name(type),
              type == DT_F32 ? "conversion" : "rounding");
    offer_cast(c, d, e, type);
    value->type = TYPE_REFUSED;
}

static Value untyped(Scope *scope, const AstExpr *e)
{
    Checker *c = scope->c;
    Diag *d = fault(c, DIAG_UNTYPED_LITERAL, e->span,
                    "literals alone have no type: nothing says how to round '%.*s'",
                    STR_FMT(source_text(c, e->span)));
    diag_note(c->diags, d, "give one of them a type: f32(%.*s)",
              STR_FMT(source_text(c, e->kind == EXPR_BINARY ? e->args.v[0]->span : e->span)));
    return refused;
}

static void operands_differ(Checker *c, const AstExpr *e, DType left, DType right)
{
    const AstExpr *a = e->args.v[0], *b = e->args.v[1];
    Span operator= {e->span.file, a->span.hi, b->span.lo};
    const char *text = c->diags->sources->files.v[e->span.file].text.s;
    while (operator.lo < operator.hi && text[operator.lo] != e->op)
        operator.lo++;
    operator.hi = operator.lo + 1;
    Diag *d = fault(c, DIAG_IMPLICIT_CAST, operator, "%s %c %s: casts are written",
                    dtype_name(left), e->op, dtype_name(right));
    diag_label(c->diags, d, a->span, "this is %s", dtype_name(left));
    diag_label(c->diags, d, b->span, "this is %s", dtype_name(right));
    const char *which = left == DT_F32 ? dtype_name(right) : dtype_name(left);
    diag_note(c->diags, d, "the operation's type is that of its operands: write f32(...) around "
                           "the %s one to compute in f32, or round the other first", which);
}

/* ---- names ----------------------------------------------------------------------------------- */

static Value unknown_name(Scope *scope, const AstExpr *e)
{
    Checker *c = scope->c;
    Guess guess = guess_of(e->name.text);
    for (int i = 0; i < scope->state->symbols.n; i++)
        guess_add(&guess, scope->state->symbols.v[i].name.text);
    for (int i = 0; i < c->ast->params.n; i++) {
        if (str_eq(c->ast->params.v[i].name.text, e->name.text)) {
            Diag *d = fault(c, DIAG_BAD_INDEX, e->span, "'%.*s' is a param: a number has no axes",
                            STR_FMT(e->name.text));
            diag_note(c->diags, d, "leave out the index");
            return refused;
        }
        guess_add(&guess, c->ast->params.v[i].name.text);
    }
    Diag *d = fault(c, DIAG_UNKNOWN_NAME, e->name.span, "unknown name '%.*s' in op '%.*s'",
                    STR_FMT(e->name.text), STR_FMT(scope->op->name));
    guess_tell(c, d, e->name.span, &guess);
    if (!guess.best.n)
        diag_note(c->diags, d, "it is no parameter of the op, no param of the file, and no "
                               "statement before this one defines it");
    return refused;
}

/* A name is read after the statement that sets all of it. */
static bool is_set(Scope *scope, const AstExpr *e, const Symbol *symbol)
{
    Checker *c = scope->c;
    if (symbol->kind == SYMBOL_PARAM ||
        (symbol->statement >= 0 && symbol->statement < scope->statement))
        return true;
    if (symbol->statement < 0) {
        Diag *d = fault(c, DIAG_RESULT_READ, e->span,
                        "result '%.*s' is read, and no one statement sets all of it",
                        STR_FMT(e->name.text));
        diag_note(c->diags, d, "compute the value as a local first, then set the result from it");
        return false;
    }
    Diag *d = fault(c, DIAG_USED_BEFORE, e->span, "'%.*s' is used before it is set",
                    STR_FMT(e->name.text));
    diag_label(c->diags, d, scope->ast->body.v[symbol->statement].target.span, "it is set here");
    diag_note(c->diags, d, "statements run in order, and each name is set once");
    return false;
}

/* A result that is read becomes a local too. */
static int reference(Scope *scope, Symbol *symbol)
{
    if (symbol->kind == SYMBOL_PARAM)
        return symbol->index;
    if (symbol->kind == SYMBOL_LOCAL)
        return ~symbol->index;
    for (int i = 0; i < scope->op->locals.n; i++)
        if (str_eq(scope->op->locals.v[i].name.text, symbol->name.text))
            return ~i;
    Local local = {symbol->name, scope->ast->body.v[symbol->statement].value};
    vec_push(scope->c->arena, &scope->op->locals, local);
    return ~(scope->op->locals.n - 1);
}

/* What attend gives is computed for all of a row's keys, and not picked apart by tokens. */
static bool has_block(const Scope *scope, const AstExpr *e)
{
    bool found = e->kind == EXPR_BLOCK;
    if (e->kind == EXPR_NAME && e->ref < 0)
        found = has_block(scope, scope->op->locals.v[~e->ref].value);
    for (int i = 0; !found && i < e->args.n; i++)
        found = has_block(scope, e->args.v[i]);
    return found;
}

/* The axes at which a local's value is kept at indices. */
static u64 kept_axes(const Scope *scope, const AstExpr *e)
{
    u64 mask = 0;
    for (int i = 0; i < e->index.n; i++)
        if (e->index.v[i].kept)
            mask |= axis_mask(scope->c->contract, axis_of_name(scope->c, e->index.v[i].axis));
    if (e->kind == EXPR_NAME && e->ref < 0)
        mask |= kept_axes(scope, scope->op->locals.v[~e->ref].value);
    for (int i = 0; i < e->args.n; i++)
        mask |= kept_axes(scope, e->args.v[i]);
    return mask;
}

/* What is kept is f32, and neither held nor kept along that axis again. */
static bool check_kept(Scope *scope, const AstExpr *e, int type, u64 held)
{
    u64 kept = 0, own;
    bool sound = true, again;
    for (int i = 0; i < e->index.n; i++) {
        if (!e->index.v[i].kept)
            continue;
        own = axis_mask(scope->c->contract, axis_of_name(scope->c, e->index.v[i].axis));
        again = kept & own;
        kept |= own;
        if (type == DT_F32 && !again)
            continue;
        Diag *d = fault(scope->c, DIAG_BAD_INDEX, e->span,
                        again ? "'%.*s' is kept at two indices of one axis"
                              : "'%.*s' is not f32, and is kept at indices",
                        STR_FMT(e->name.text));
        diag_note(scope->c->diags, d, "where the index is another one the value is -inf, f32");
        sound = false;
    }
    if (e->ref < 0)
        kept |= kept_axes(scope, scope->op->locals.v[~e->ref].value);
    if (!sound || !(kept & held))
        return sound;
    Diag *d = fault(scope->c, DIAG_BAD_INDEX, e->span, "'%.*s' is kept at indices of %.*s, and "
                    "held there", STR_FMT(e->name.text), STR_FMT(mask_text(scope->c, kept & held)));
    diag_note(scope->c->diags, d, "reduce it along that axis: max(vocab by tree) z[vocab = ids]");
    return false;
}

/* Values of other nodes hang on a result that is read as an index: they are few. */
static bool check_index_result(Scope *scope, const AstIndex *index, Symbol *by)
{
    Checker *c = scope->c;
    AstExpr name = {.kind = EXPR_NAME, .name = {index->at.text, index->at.span},
                    .span = index->at.span};
    if (!is_set(scope, &name, by))
        return false;
    int read = 0;
    reference(scope, by);
    for (int i = 0; i < scope->op->locals.n; i++) {
        int at = symbol_of(&scope->state->symbols, scope->op->locals.v[i].name.text);
        const Symbol *local = at < 0 ? NULL : &scope->state->symbols.v[at];
        read += local && local->kind == SYMBOL_RESULT && local->index_of > 0;
    }
    if (read <= INDEX_RESULTS_MAX)
        return true;
    Diag *d = fault(c, DIAG_TOO_MANY, index->at.span,
                    "more than %d results of the op are read as indices", INDEX_RESULTS_MAX);
    diag_note(c->diags, d, "make two ops of it: what one sets, the other takes");
    return false;
}

bool check_index_by(Scope *scope, const AstIndex *index, int axis, Symbol *by)
{
    Checker *c = scope->c;
    if (by->type == TYPE_REFUSED) {
        c->failed = true; /* told where it is declared */
        return false;
    }
    if (by->index_of != axis + 1) {
        Diag *d = fault(c, DIAG_BAD_INDEX, index->at.span, "'%.*s' holds no indices of '%.*s'",
                        STR_FMT(by->name.text), STR_FMT(index->axis.text));
        diag_label(c->diags, d, by->name.span, "it is declared here");
        diag_note(c->diags, d, "a tensor of indices has the axis for its type: %.*s: "
                               "%.*s[tokens]", STR_FMT(by->name.text), STR_FMT(index->axis.text));
        return false;
    }
    return by->kind == SYMBOL_PARAM || check_index_result(scope, index, by);
}

/* Splits off the indices that a tensor gives, w[vocab ids]; *brought: the axes of these. */
static bool check_lookups(Scope *scope, const AstExpr *e, u64 mask, u64 *held, u64 *brought,
                          AstIndices *rest)
{
    Checker *c = scope->c;
    bool sound = true;
    for (int i = 0; i < e->index.n; i++) {
        const AstIndex *index = &e->index.v[i];
        int id, at = index->at.is_param ? symbol_of(&scope->state->symbols, index->at.text) : -1;
        Symbol *by = at >= 0 ? &scope->state->symbols.v[at] : NULL;
        if (!by) {
            vec_push(c->arena, rest, *index);
            continue;
        }
        u64 kept = *held, *taken = index->kept ? &kept : held;
        by->used = true;
        sound &= check_held(c, index->axis, mask, e->name.text, taken, &id) &&
                 check_index_by(scope, index, id, by);
        *brought |= by->mask;
    }
    if (sound && *brought && e->ref < 0 && has_block(scope, e)) {
        Diag *d = fault(c, DIAG_BAD_INDEX, e->span, "'%.*s' comes from a block form, and is held "
                        "at constants only", STR_FMT(e->name.text));
        diag_note(c->diags, d, "set a result to it, and pick from that in an op of its own");
        sound = false;
    }
    return sound;
}

static Value index_read(Scope *scope, const AstExpr *e, const Symbol *symbol)
{
    Checker *c = scope->c;
    if (symbol->index_of == INTEGERS) {
        Diag *d = fault(c, DIAG_BAD_INDEX, e->span, "'%.*s' holds integers and no values",
                        STR_FMT(e->name.text));
        diag_note(c->diags, d, "only `draw` reads them");
        return refused;
    }
    Name of = c->contract->axes[symbol->index_of - 1].name;
    Diag *d = fault(c, DIAG_BAD_INDEX, e->span, "'%.*s' holds indices of '%.*s' and no values",
                    STR_FMT(e->name.text), STR_FMT(of.text));
    diag_note(c->diags, d, "it stands in an index, after the axis: w[%.*s %.*s]", STR_FMT(of.text),
              STR_FMT(e->name.text));
    return refused;
}

static Value check_name(Scope *scope, AstExpr *e)
{
    Checker *c = scope->c;
    int at = symbol_of(&scope->state->symbols, e->name.text);
    if (at < 0)
        return unknown_name(scope, e);
    Symbol *symbol = &scope->state->symbols.v[at];
    symbol->used = true;
    if (!is_set(scope, e, symbol))
        return refused;
    if (symbol->type == TYPE_REFUSED) {
        c->failed = true;
        return refused;
    }
    if (symbol->index_of)
        return index_read(scope, e, symbol);
    u64 held = 0, brought = 0;
    AstIndices constants = {0};
    Value value = {symbol->type, symbol->mask};
    e->ref = reference(scope, symbol);
    if (!check_lookups(scope, e, symbol->mask, &held, &brought, &constants) ||
        !check_indices(c, &constants, symbol->mask, symbol->name.text, &held, NULL) ||
        !check_kept(scope, e, symbol->type, held))
        return refused;
    value.mask = (value.mask & ~held) | brought;
    return value;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static Value unknown_function(Scope *scope, AstExpr *e)
{
    Checker *c = scope->c;
    Guess guess = guess_of(e->name.text);
    for (int i = 0; i < FN_COUNT; i++)
        guess_add(&guess, str_of(functions[i].name));
    for (int t = 0; t < DT_COUNT; t++)
        guess_add(&guess, str_of(dtype_name((DType)t)));
    Diag *d = fault(c, DIAG_UNKNOWN_FUNCTION, e->name.span, "unknown function '%.*s'",
                    STR_FMT(e->name.text));
    if (str_is(e->name.text, "rsqrt"))
        diag_note(c->diags, d, "it is written 1.0 / sqrt(x): two roundings, the same everywhere");
    else
        guess_tell(c, d, e->name.span, &guess);
    for (int i = 0; i < e->args.n; i++)
        check_value(scope, e->args.v[i]);
    return refused;
}

static bool has_arity(Scope *scope, AstExpr *e, int arity)
{
    if (e->args.n == arity)
        return true;
    Diag *d = fault(scope->c, DIAG_ARITY, e->span, "%.*s takes %d operand%s, not %d",
                    STR_FMT(e->name.text), arity, arity == 1 ? "" : "s", e->args.n);
    diag_note(scope->c->diags, d, arity == 1 ? "write %.*s(a)" : "write %.*s(a, b)",
              STR_FMT(e->name.text));
    for (int i = 0; i < e->args.n; i++)
        check_value(scope, e->args.v[i]);
    return false;
}

static Value check_cast(Scope *scope, AstExpr *e, DType type)
{
    if (!has_arity(scope, e, 1))
        return refused;
    Value value = check_value(scope, e->args.v[0]);
    if (value.type == TYPE_LITERAL)
        type_literal(scope->c, e->args.v[0], type);
    if (value.type != TYPE_REFUSED)
        value.type = type;
    return value;
}

static Value check_call(Scope *scope, AstExpr *e)
{
    DType type;
    int fn = 0;
    if (type_by_name(e->name.text, &type))
        return check_cast(scope, e, type);
    while (fn < FN_COUNT && !str_is(e->name.text, functions[fn].name))
        fn++;
    if (fn == FN_COUNT)
        return unknown_function(scope, e);
    if (!has_arity(scope, e, functions[fn].arity))
        return refused;
    e->ref = fn;
    Value result = {DT_F32, 0};
    const char *what = str_format(scope->c->arena, "an operand of %s", functions[fn].name).s;
    for (int i = 0; i < e->args.n; i++) {
        Value value = check_value(scope, e->args.v[i]);
        want_type(scope, e->args.v[i], &value, DT_F32, what);
        result.mask |= value.mask;
        if (value.type == TYPE_REFUSED)
            result.type = TYPE_REFUSED;
    }
    return result;
}

/* ---- operators ------------------------------------------------------------------------------- */

static Value check_binary(Scope *scope, AstExpr *e)
{
    AstExpr *left = e->args.v[0], *right = e->args.v[1];
    Value a = check_value(scope, left), b = check_value(scope, right);
    Value both = {a.type, a.mask | b.mask};
    if (a.type == TYPE_REFUSED || b.type == TYPE_REFUSED)
        return refused;
    if (a.type == TYPE_LITERAL && b.type == TYPE_LITERAL)
        return untyped(scope, e);
    if (a.type == TYPE_LITERAL) {
        type_literal(scope->c, left, (DType)b.type);
        both.type = b.type;
    } else if (b.type == TYPE_LITERAL) {
        type_literal(scope->c, right, (DType)a.type);
    } else if (a.type != b.type) {
        operands_differ(scope->c, e, (DType)a.type, (DType)b.type);
        return refused;
    }
    return both;
}

static Value check_len(Scope *scope, AstExpr *e)
{
    Checker *c = scope->c;
    int axis = axis_of_name(c, e->name);
    if (axis < 0)
        return refused;
    const Axis *a = &c->contract->axes[axis];
    if (!a->free && a->coordinate_of < 0)
        return (Value){TYPE_LITERAL, 0};
    Diag *d = fault(c, DIAG_LEN_FREE, e->span, "len(%.*s) is known at launch only",
                    STR_FMT(e->name.text));
    diag_note(c->diags, d, "pass it as a parameter of its own: an f32[] scalar");
    return refused;
}

static Value value_of(Scope *scope, AstExpr *e)
{
    switch (e->kind) {
    case EXPR_NAME:
        return check_name(scope, e);
    case EXPR_NUMBER:
        return (Value){TYPE_LITERAL, 0};
    case EXPR_NEG:
        return check_value(scope, e->args.v[0]);
    case EXPR_BINARY:
        return check_binary(scope, e);
    case EXPR_CALL:
        return check_call(scope, e);
    case EXPR_LEN:
        return check_len(scope, e);
    case EXPR_REDUCE:
        return check_reduction(scope, e);
    case EXPR_BLOCK:
        return check_block(scope, e);
    }
    return refused;
}

static void measure(Scope *scope, AstExpr *e)
{
    int at = e->kind == EXPR_NAME ? symbol_of(&scope->state->symbols, e->name.text) : -1;
    if (at >= 0) {
        e->full_depth = scope->state->symbols.v[at].full_depth;
        e->full_size = scope->state->symbols.v[at].full_size;
    }
    for (int i = 0; i < e->args.n; i++) {
        const AstExpr *arg = e->args.v[i];
        e->full_depth = e->full_depth > arg->full_depth ? e->full_depth : arg->full_depth;
        e->full_size += arg->full_size;
        if (e->full_size > FULL_SIZE_MAX)
            break;
    }
    e->full_depth++;
    e->full_size++;
}

/* Sharing makes expressions that are small as written and endless written out. */
static bool is_bounded(Scope *scope, AstExpr *e, int type)
{
    measure(scope, e);
    if (type == TYPE_REFUSED ||
        (e->full_depth <= FULL_DEPTH_MAX && e->full_size <= FULL_SIZE_MAX))
        return true;
    Diag *d = fault(scope->c, DIAG_TOO_LARGE, e->span,
                    "with its locals written out this has more than %d operations, or is more "
                    "than %d deep", FULL_SIZE_MAX, FULL_DEPTH_MAX);
    diag_note(scope->c->diags, d, "make two ops of it: what one sets, the other takes");
    e->full_depth = e->full_size = 1;
    return false;
}

Value check_value(Scope *scope, AstExpr *e)
{
    Value value = value_of(scope, e);
    if (!is_bounded(scope, e, value.type))
        value = refused;
    e->type = value.type < 0 ? -1 : value.type;
    e->axis_mask = value.mask;
    return value;
}
