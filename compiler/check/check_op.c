/* Checks of ops: their names, the targets and the values of their statements, what nothing uses. */
#include "check_impl.h"

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

void assigned_twice(Checker *c, const AstStatement *now, const AstStatement *before)
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

/* ---- what nothing uses ----------------------------------------------------------------------- */

/* Indices without a use in a value say whose the slots of other parameters are (9.7). */
static bool tells_slots(const Checker *c, int index, const Symbol *s)
{
    const Op *op = &c->contract->ops[index];
    if (s->kind != SYMBOL_PARAM || s->index_of <= 0 || op->params[s->index].n_axes != 2)
        return false;
    u64 slots = bit(c->contract->axes[op->params[s->index].axes[1]].atom);
    for (int i = 0; i < op->n_params; i++)
        if (i != s->index && op->params[i].mask & slots)
            return true;
    return false;
}

void check_op_unused(Checker *c, int index)
{
    const Symbols *symbols = &c->ops[index].symbols;
    for (int i = 0; i < symbols->n; i++) {
        const Symbol *s = &symbols->v[i];
        if (s->used || s->kind == SYMBOL_RESULT || tells_slots(c, index, s))
            continue;
        Diag *d = diag_add(c->diags, DIAG_UNUSED, s->name.span, "%s '%.*s' is never used",
                           s->kind == SYMBOL_PARAM ? "parameter" : "local", STR_FMT(s->name.text));
        diag_note(c->diags, d, s->kind == SYMBOL_PARAM
                                   ? "remove it: the op's callers would have to pass it"
                                   : "remove it, or use it");
    }
}
