/* Checks of ops: tensors, targets of statements, and what is left when all is computed. */
#include "check_impl.h"

enum { PARTS_MAX = 4096 };

Op *op_of_name(Checker *c, Name name)
{
    Guess guess = guess_of(name.text);
    for (int i = 0; i < c->contract->n_ops; i++) {
        Str known = c->ast->ops.v[i].name.text;
        if (str_eq(known, name.text))
            return &c->contract->ops[i];
        guess_add(&guess, known);
    }
    Diag *d = fault(c, DIAG_UNKNOWN_OP, name.span, "unknown op '%.*s'", STR_FMT(name.text));
    guess_tell(c, d, name.span, &guess);
    if (!guess.best.n)
        diag_note(c->diags, d, "layouts and schedules name ops of the same contract");
    return NULL;
}

void check_op_once(Checker *c, int index)
{
    Name name = c->ast->ops.v[index].name;
    for (int i = 0; i < index; i++) {
        const Name *other = &c->ast->ops.v[i].name;
        if (!str_eq(other->text, name.text))
            continue;
        Diag *d = fault(c, DIAG_OP_TWICE, name.span, "op '%.*s' is declared twice",
                        STR_FMT(name.text));
        diag_label(c->diags, d, other->span, "it is declared here already");
        diag_note(c->diags, d, "programs find ops by name; give the second another one");
        return;
    }
}

void check_op_small(Checker *c, int index)
{
    const AstOp *op = &c->ast->ops.v[index];
    c->contract->ops[index] = (Op){.ast = op, .name = op->name.text};
    if (op->body.n <= ITEMS_MAX && op->params.n + op->results.n <= ITEMS_MAX)
        return;
    Diag *d = fault(c, DIAG_TOO_MANY, op->name.span,
                    "op '%.*s' has more than %d statements, or parameters and results",
                    STR_FMT(op->name.text), ITEMS_MAX);
    diag_note(c->diags, d, "make several ops of it: what one sets, the next takes");
}

/* ---- symbols --------------------------------------------------------------------------------- */

static bool is_new(Checker *c, const Symbols *symbols, Name name)
{
    for (int i = 0; i < c->ast->params.n; i++)
        if (str_eq(c->ast->params.v[i].name.text, name.text)) {
            Diag *d = fault(c, DIAG_NAME_TWICE, name.span, "'%.*s' is a param of the file",
                            STR_FMT(name.text));
            diag_label(c->diags, d, c->ast->params.v[i].name.span, "the param is declared here");
            diag_note(c->diags, d, "give one of the two another name");
            return false;
        }
    int at = symbol_of(symbols, name.text);
    if (at < 0)
        return true;
    Diag *d = fault(c, DIAG_NAME_TWICE, name.span, "'%.*s' is declared twice", STR_FMT(name.text));
    diag_label(c->diags, d, symbols->v[at].name.span, "it is declared here already");
    diag_note(c->diags, d, "parameters and results of an op have names of their own");
    return false;
}

static void add_symbol(Checker *c, Symbols *symbols, Name name, SymbolKind kind, int index,
                       const Tensor *tensor)
{
    Symbol symbol = {.name = name, .kind = kind, .index = index, .statement = -1,
                     .type = TYPE_REFUSED};
    if (tensor) {
        symbol.type = tensor->type;
        symbol.mask = tensor->mask;
        symbol.index_of = tensor->index_of;
    }
    vec_push(c->arena, symbols, symbol);
}

/* ---- tensors --------------------------------------------------------------------------------- */

void add_atoms(const Contract *contract, Tensor *tensor, int axis)
{
    const Axis *a = &contract->axes[axis];
    if (a->atom >= 0) {
        tensor->atoms[tensor->n_atoms++] = a->atom;
        tensor->mask |= bit(a->atom);
        return;
    }
    for (int f = 0; f < a->n_factors; f++)
        add_atoms(contract, tensor, a->factors[f]);
}

static void refuse_overlap(Checker *c, const AstTensor *ast, Name axis)
{
    Diag *d = fault(c, DIAG_AXIS_OVERLAP, axis.span, "'%.*s' has the axis '%.*s' twice",
                    STR_FMT(ast->name.text), STR_FMT(axis.text));
    diag_note(c->diags, d, "a product axis stands for its factors, and a token has one position; "
                           "a second axis of the same size is declared under its own name");
}

/* A coordinate beside its ragged axis says nothing; in a result nothing says where it ends. */
static bool check_coordinate(Checker *c, const AstTensor *ast, Name name, int axis, bool result)
{
    if (c->contract->axes[axis].coordinate_of < 0 || !result)
        return true;
    Diag *d = fault(c, DIAG_COORDINATE_RESULT, name.span,
                    "result '%.*s' has the axis '%.*s', which the tokens determine",
                    STR_FMT(ast->name.text), STR_FMT(name.text));
    Name ragged = c->contract->axes[c->contract->axes[axis].coordinate_of].name;
    diag_note(c->diags, d, "write '%.*s': only parameters, as tables, are indexed by coordinates",
              STR_FMT(ragged.text));
    return false;
}

/* Twice the same atom, or a packed atom and one of its coordinates. Two coordinates go together. */
static bool overlaps(const Contract *contract, u64 mask, u64 own)
{
    return (mask & own) || (effective_mask(contract, own) & mask) ||
           (effective_mask(contract, mask) & own);
}

/* As a Tensor's index_of: where the type is an axis's name, or i32. */
static int index_type(const Checker *c, const AstTensor *ast, bool result)
{
    for (int i = 0; i < c->contract->n_axes; i++)
        if (str_eq(c->contract->axes[i].name.text, ast->type.text))
            return i + 1;
    return !result && str_is(ast->type.text, "i32") ? INTEGERS : 0;
}

/* One index for each token, or one for each of a token's slots: then a row still depends on nothing
 * but itself. */
static bool has_index_axes(const Contract *contract, const Tensor *tensor)
{
    const Axis *first = tensor->n_axes ? &contract->axes[tensor->axes[0]] : NULL;
    if (!first || !first->free || !first->n_factors)
        return false;
    return tensor->n_axes == 1 ||
           (tensor->n_axes == 2 && tensor->index_of > 0 &&
            contract->axes[tensor->axes[1]].sparse_of == tensor->index_of);
}

static bool check_index_tensor(Checker *c, const AstTensor *ast, const Tensor *tensor)
{
    bool tokens = has_index_axes(c->contract, tensor);
    if (tensor->index_of == INTEGERS) {
        if (tokens)
            return true;
        Diag *d = fault(c, DIAG_INDEX_TENSOR, ast->span,
                        "'%.*s' holds integers, and has other axes than the tokens",
                        STR_FMT(ast->name.text));
        diag_note(c->diags, d, "a parameter may hold one for each token: seed: i32[tokens]");
        return false;
    }
    const Axis *of = &c->contract->axes[tensor->index_of - 1];
    if (of->size && of->atom >= 0 && of->coordinate_of < 0 && tokens)
        return true;
    Diag *d = fault(c, DIAG_INDEX_TENSOR, ast->span, tokens
                        ? "'%.*s' holds indices of '%.*s', which has factors or no fixed size"
                        : "'%.*s' holds indices of '%.*s', and has other axes than the tokens",
                    STR_FMT(ast->name.text), STR_FMT(of->name.text));
    diag_note(c->diags, d, "a tensor may hold one index for each token, of an axis of fixed "
                           "size: ids: vocab[tokens]; or one for each of its slots of a sparse "
                           "axis: axis picks = 8 of experts, chosen: experts[tokens, picks]");
    return false;
}

bool build_tensor(Checker *c, const AstTensor *ast, bool result, Tensor *tensor)
{
    int of = index_type(c, ast, result);
    bool sound = of || type_of_name(c, ast->type, &tensor->type);
    tensor->index_of = of;
    if (of)
        tensor->type = DT_F32; /* as wide */
    tensor->name = ast->name;
    if (ast->axes.n > MAX_TENSOR_AXES) {
        Diag *d = fault(c, DIAG_TOO_MANY_AXES, ast->span, "'%.*s' has %d axes, more than %d",
                        STR_FMT(ast->name.text), ast->axes.n, MAX_TENSOR_AXES);
        diag_note(c->diags, d, "a product axis counts once: heads instead of kv_heads, group");
        return false;
    }
    for (int i = 0; i < ast->axes.n; i++) {
        Name name = ast->axes.v[i];
        int axis = axis_of_name(c, name);
        if (axis < 0 || !check_coordinate(c, ast, name, axis, result)) {
            sound = false;
            continue;
        }
        u64 mask = axis_mask(c->contract, axis);
        if (overlaps(c->contract, mask, tensor->mask)) {
            refuse_overlap(c, ast, name);
            sound = false;
            continue;
        }
        tensor->axes[tensor->n_axes++] = axis;
        add_atoms(c->contract, tensor, axis);
    }
    if (sound && tensor->index_of)
        sound = check_index_tensor(c, ast, tensor);
    return sound;
}

static Tensor *build_tensors(Checker *c, Symbols *symbols, const AstTensors *ast, SymbolKind kind)
{
    Tensor *tensors = arena_array(c->arena, Tensor, ast->n + 1);
    for (int i = 0; i < ast->n; i++) {
        bool sound = build_tensor(c, &ast->v[i], kind == SYMBOL_RESULT, &tensors[i]);
        if (is_new(c, symbols, ast->v[i].name))
            add_symbol(c, symbols, ast->v[i].name, kind, i, sound ? &tensors[i] : NULL);
    }
    return tensors;
}

/* Where the slots of a sparse axis stand is what one parameter says. */
static void check_slots(Checker *c, const Op *op)
{
    const AstTensor *first[MAX_ATOMS] = {NULL};
    for (int i = 0; i < op->n_params; i++) {
        const Tensor *tensor = &op->params[i];
        const AstTensor *ast = &op->ast->params.v[i];
        if (tensor->index_of <= 0 || tensor->n_axes < 2)
            continue;
        const AstTensor **before = &first[tensor->atoms[1]];
        if (*before) {
            Name slots = c->contract->axes[tensor->axes[1]].name;
            Diag *d = fault(c, DIAG_INDEX_TENSOR, ast->span,
                            "'%.*s' says where the slots of '%.*s' stand, and is the second",
                            STR_FMT(tensor->name.text), STR_FMT(slots.text));
            diag_label(c->diags, d, (*before)->span, "the first is this");
            diag_note(c->diags, d, "other slots are another sparse axis");
        }
        *before = ast;
    }
}

void check_op_tensors(Checker *c, int index)
{
    const AstOp *ast = &c->ast->ops.v[index];
    Symbols *symbols = &c->ops[index].symbols;
    Op *op = &c->contract->ops[index];
    *op = (Op){.ast = ast, .name = ast->name.text};
    op->n_params = ast->params.n;
    op->n_results = ast->results.n;
    op->params = build_tensors(c, symbols, &ast->params, SYMBOL_PARAM);
    op->results = build_tensors(c, symbols, &ast->results, SYMBOL_RESULT);
    for (int i = 0; i < op->n_results; i++)
        op->space |= op->results[i].mask;
    check_slots(c, op);
}

/* ---- indices --------------------------------------------------------------------------------- */

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

/* ---- targets --------------------------------------------------------------------------------- */

static void new_local(Checker *c, int index, int at)
{
    const AstStatement *statement = &c->ast->ops.v[index].body.v[at];
    OpState *state = &c->ops[index];
    Op *op = &c->contract->ops[index];
    state->target[at] = -1;
    if (statement->index.n) {
        Diag *d = fault(c, DIAG_BAD_INDEX, statement->target.span,
                        "'%.*s' is no result: only results are set by parts",
                        STR_FMT(statement->target.text));
        diag_note(c->diags, d, "a local has one value for all its axes; name each part by itself");
        return;
    }
    if (!is_new(c, &state->symbols, statement->target))
        return;
    add_symbol(c, &state->symbols, statement->target, SYMBOL_LOCAL, op->locals.n, NULL);
    state->symbols.v[state->symbols.n - 1].statement = at;
    state->target[at] = state->symbols.n - 1;
    Local local = {statement->target, statement->value};
    vec_push(c->arena, &op->locals, local);
}

static void assigned_twice(Checker *c, const AstStatement *now, const AstStatement *before)
{
    Diag *d = fault(c, DIAG_ASSIGNED_TWICE, now->target.span, "'%.*s' is set twice",
                    STR_FMT(now->target.text));
    diag_label(c->diags, d, before->target.span, "it is set here already");
    diag_note(c->diags, d, "every name is set once: give the second value a name of its own");
}

static void new_piece(Checker *c, int index, int at, Symbol *symbol)
{
    const AstOp *ast = &c->ast->ops.v[index];
    const AstStatement *statement = &ast->body.v[at];
    OpState *state = &c->ops[index];
    Op *op = &c->contract->ops[index];
    Piece piece = {.result = symbol->index, .value = statement->value};
    u64 held = 0;
    if (symbol->type == TYPE_REFUSED ||
        !check_indices(c, &statement->index, symbol->mask, symbol->name.text, &held, &piece)) {
        c->failed = true;
        return;
    }
    for (int i = 0; i < at; i++)
        if (str_eq(ast->body.v[i].target.text, statement->target.text) &&
            (!statement->index.n || !ast->body.v[i].index.n)) {
            assigned_twice(c, statement, &ast->body.v[i]);
            return;
        }
    if (!statement->index.n)
        symbol->statement = at;
    state->piece[at] = op->pieces.n;
    vec_push(c->arena, &op->pieces, piece);
}

void check_op_targets(Checker *c, int index)
{
    const AstOp *ast = &c->ast->ops.v[index];
    OpState *state = &c->ops[index];
    state->target = arena_array(c->arena, int, ast->body.n + 1);
    state->piece = arena_array(c->arena, int, ast->body.n + 1);
    for (int i = 0; i < ast->body.n; i++) {
        const AstStatement *statement = &ast->body.v[i];
        int at = symbol_of(&state->symbols, statement->target.text);
        state->piece[i] = -1;
        state->target[i] = at;
        if (at < 0) {
            new_local(c, index, i);
            continue;
        }
        Symbol *symbol = &state->symbols.v[at];
        if (symbol->kind == SYMBOL_RESULT) {
            new_piece(c, index, i, symbol);
        } else if (symbol->kind == SYMBOL_LOCAL) {
            assigned_twice(c, statement, &ast->body.v[symbol->statement]);
            state->target[i] = -1;
        } else {
            Diag *d = fault(c, DIAG_ASSIGNED_TWICE, statement->target.span,
                            "'%.*s' is a parameter and cannot be set",
                            STR_FMT(statement->target.text));
            diag_label(c->diags, d, symbol->name.span, "the parameter is declared here");
            diag_note(c->diags, d, "give the value a name of its own");
            state->target[i] = -1;
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void untyped_local(Checker *c, const AstStatement *statement)
{
    Diag *d = fault(c, DIAG_UNTYPED_LITERAL, statement->value->span,
                    "a literal alone has no type: nothing says how to round '%.*s'",
                    STR_FMT(source_text(c, statement->value->span)));
    diag_note(c->diags, d, "give it one: %.*s = f32(%.*s);", STR_FMT(statement->target.text),
              STR_FMT(source_text(c, statement->value->span)));
}

/* An index is what `draw` and `top` give, and what they give is nothing else. */
static bool check_drawn(Checker *c, const AstStatement *statement, const Symbol *symbol)
{
    const AstExpr *e = statement->value;
    const Draw *draw = e->kind == EXPR_BLOCK ? e->block->draw : NULL;
    if (e->kind == EXPR_BLOCK && e->block->top)
        return true; /* check_top has seen to it */
    if ((draw ? draw->axis + 1 : 0) == symbol->index_of && symbol->kind == SYMBOL_RESULT)
        return true;
    if (!draw && symbol->index_of <= 0)
        return true;
    Diag *d = fault(c, DIAG_INDEX_TENSOR, e->span, draw
                        ? "'%.*s' is set to an index that is drawn, and is no result of that type"
                        : "'%.*s' holds indices, and is set to a value",
                    STR_FMT(statement->target.text));
    diag_note(c->diags, d, "`draw` sets a result that has the axis for its type: -> token: "
                           "vocab[tokens]");
    return false;
}

/* What a row ranks is on whatever rank has the row. */
static void keep_whole(Op *op, const AstOp *ast)
{
    for (int i = 0; i < ast->body.n; i++) {
        const AstExpr *e = ast->body.v[i].value;
        if (e->kind == EXPR_BLOCK && e->block->top)
            op->space &= ~bit(e->block->top->atom);
    }
}

void check_op_values(Checker *c, int index)
{
    const AstOp *ast = &c->ast->ops.v[index];
    OpState *state = &c->ops[index];
    Scope scope = {c, ast, &c->contract->ops[index], state, 0};
    for (int i = 0; i < ast->body.n; i++) {
        const AstStatement *statement = &ast->body.v[i];
        scope.statement = i;
        Value value = check_value(&scope, statement->value);
        Symbol *symbol = state->target[i] >= 0 ? &state->symbols.v[state->target[i]] : NULL;
        if (symbol && value.type >= 0 && !check_drawn(c, statement, symbol)) {
            statement->value->type = -1;
            symbol->type = TYPE_REFUSED;
            continue;
        }
        if (value.type == TYPE_LITERAL) {
            untyped_local(c, statement);
        } else if (symbol && symbol->kind == SYMBOL_LOCAL) {
            symbol->type = value.type;
            symbol->mask = value.mask;
            symbol->full_depth = statement->value->full_depth;
            symbol->full_size = statement->value->full_size;
        } else if (symbol && symbol->type != TYPE_REFUSED) {
            const char *what = str_format(c->arena, "'%.*s'", STR_FMT(symbol->name.text)).s;
            want_type(&scope, statement->value, &value, (DType)symbol->type, what);
            if (value.type == TYPE_REFUSED)
                statement->value->type = -1;
            symbol->full_depth = statement->value->full_depth;
            symbol->full_size = statement->value->full_size;
        }
    }
    keep_whole(scope.op, ast);
}

/* ---- results --------------------------------------------------------------------------------- */

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

void check_op_unused(Checker *c, int index)
{
    const Symbols *symbols = &c->ops[index].symbols;
    for (int i = 0; i < symbols->n; i++) {
        const Symbol *s = &symbols->v[i];
        if (s->used || s->kind == SYMBOL_RESULT)
            continue;
        Diag *d = diag_add(c->diags, DIAG_UNUSED, s->name.span, "%s '%.*s' is never used",
                           s->kind == SYMBOL_PARAM ? "parameter" : "local", STR_FMT(s->name.text));
        diag_note(c->diags, d, s->kind == SYMBOL_PARAM
                                   ? "remove it: the op's callers would have to pass it"
                                   : "remove it, or use it");
    }
}
