/* Files, includes, and the nodes that the grammar's actions build. */
#include "parse_impl.h"

#include "isoc_parse.h"

#include <string.h>

/* The generated scanner's own header would bring its macros; these are all that is used of it. */
typedef void *yyscan_t;
struct yy_buffer_state *iso_yy_scan_bytes(const char *bytes, int n, yyscan_t scanner);
int iso_yylex_init_extra(struct Parse *extra, yyscan_t *scanner);

/* ---- nodes ----------------------------------------------------------------------------------- */

Str parse_text(const Parse *parse, Span span)
{
    return (Str){parse->sources->files.v[span.file].text.s + span.lo, span.hi - span.lo};
}

void parse_too_deep(Parse *parse, Span span)
{
    if (parse->gave_up)
        return;
    parse->gave_up = true;
    Diag *d = diag_add(parse->diags, DIAG_TOO_DEEP, span,
                       "nested too deeply: the compiler stops reading here");
    diag_note(parse->diags, d,
              "at most %d brackets may be open at once, and an expression may be %d deep; "
              "name the inner parts in statements of their own",
              NESTING_MAX, EXPR_DEPTH_MAX);
}

AstExpr *parse_leaf(Parse *parse, ExprKind kind, Span span)
{
    AstExpr *e = arena_new_of(parse->arena, AstExpr);
    e->kind = kind;
    e->span = span;
    e->depth = 1;
    e->type = -1;
    return e;
}

/* Sets the depth from the operands; beyond the limit they are let go, so that every walk over a
 * tree, this parser's own callers included, may recurse. */
static AstExpr *measured(Parse *parse, AstExpr *e)
{
    for (int i = 0; i < e->args.n; i++)
        if (e->args.v[i]->depth >= e->depth)
            e->depth = e->args.v[i]->depth + 1;
    if (e->depth > EXPR_DEPTH_MAX) {
        parse_too_deep(parse, e->span);
        return parse_leaf(parse, EXPR_NUMBER, e->span);
    }
    return e;
}

AstExpr *parse_unary(Parse *parse, Span span, AstExpr *operand)
{
    AstExpr *e = parse_leaf(parse, EXPR_NEG, span);
    vec_push(parse->arena, &e->args, operand);
    return measured(parse, e);
}

AstExpr *parse_binary(Parse *parse, char op, AstExpr *left, AstExpr *right)
{
    AstExpr *e = parse_leaf(parse, EXPR_BINARY, span_join(left->span, right->span));
    e->op = op;
    vec_push(parse->arena, &e->args, left);
    vec_push(parse->arena, &e->args, right);
    return measured(parse, e);
}

AstExpr *parse_call(Parse *parse, Name function, const AstExprs *args, Span span)
{
    AstExpr *e = parse_leaf(parse, EXPR_CALL, span);
    e->name = function;
    e->args = *args;
    return measured(parse, e);
}

AstExpr *parse_reduce(Parse *parse, Name monoid, Names axes, const AstIndices *places,
                      AstTree *tree, AstExpr *body)
{
    AstExpr *e = parse_leaf(parse, EXPR_REDUCE, span_join(monoid.span, body->span));
    e->name = monoid;
    e->axes = axes;
    e->index = *places;
    e->tree = tree;
    vec_push(parse->arena, &e->args, body);
    return measured(parse, e);
}

void parse_block(Parse *parse, AstStatements *list, AstBlock *block)
{
    for (int i = 0; i < block->targets.n; i++) {
        AstExpr *e = parse_leaf(parse, EXPR_BLOCK, block->targets.v[i].span);
        e->name = block->form;
        e->args = block->operands;
        e->block = block;
        e->part = i;
        AstStatement statement = {block->targets.v[i], {0}, measured(parse, e), block->span};
        vec_push(parse->arena, list, statement);
    }
}

AstTree *parse_tree(Parse *parse, TreeForm form, Span span)
{
    AstTree *tree = arena_new_of(parse->arena, AstTree);
    tree->form = form;
    tree->span = span;
    return tree;
}

AstTree *parse_joined(Parse *parse, TreeForm form, AstTree *child, const AstTree *join, Span span)
{
    AstTree *tree = parse_tree(parse, form, span);
    tree->child = child;
    tree->join = join->join;
    tree->type = join->type;
    return tree;
}

void parse_add_tensors(Parse *parse, AstTensors *list, const Names *names, Name type,
                       const Names *axes, Span end)
{
    for (int i = 0; i < names->n; i++) {
        AstTensor tensor = {names->v[i], type, *axes, span_join(names->v[i].span, end)};
        vec_push(parse->arena, list, tensor);
    }
}

void parse_set_contract(Parse *parse, Name name, Number version)
{
    Ast *ast = parse->ast;
    if (ast->has_contract) {
        Diag *d = diag_add(parse->diags, DIAG_SECOND_CONTRACT, name.span,
                           "a second contract '%.*s': a file and its includes make one",
                           STR_FMT(name.text));
        diag_label(parse->diags, d, ast->contract.span, "the first is here");
        diag_note(parse->diags, d, "keep the 'contract' line in the file that is compiled, and "
                                   "leave it out of the files that are included");
        return;
    }
    ast->has_contract = true;
    ast->contract = name;
    ast->version = version;
}

void parse_set_numerics(Parse *parse, Name name)
{
    Ast *ast = parse->ast;
    if (ast->has_numerics) {
        Diag *d = diag_add(parse->diags, DIAG_SECOND_NUMERICS, name.span,
                           "a second numerics class '%.*s': a contract has one",
                           STR_FMT(name.text));
        diag_label(parse->diags, d, ast->numerics.span, "the first is here");
        diag_note(parse->diags, d, "remove one of the two lines");
        return;
    }
    ast->has_numerics = true;
    ast->numerics = name;
}

AstModelStatement *parse_step(Parse *parse, StepKind kind, Span span)
{
    AstModelStatement *step = arena_new_of(parse->arena, AstModelStatement);
    step->kind = kind;
    step->span = span;
    return step;
}

void parse_set_model(Parse *parse, const AstModel *model)
{
    Ast *ast = parse->ast;
    if (ast->has_model) {
        Diag *d = diag_add(parse->diags, DIAG_SECOND_MODEL, model->name.span,
                           "a second model '%.*s': a contract has one", STR_FMT(model->name.text));
        diag_label(parse->diags, d, ast->model.name.span, "the first is here");
        diag_note(parse->diags, d, "make a contract of each: both can include the same ops");
        return;
    }
    ast->has_model = true;
    ast->model = *model;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool text_is_sound(Sources *sources, int file, Diags *diags)
{
    const SourceFile *f = &sources->files.v[file];
    Span start = {file, 0, 1};
    if (f->text.n > SOURCE_MAX) {
        Diag *d = diag_add(diags, DIAG_FILE_TOO_LARGE, (Span){0},
                           "'%.*s' has %d bytes, more than the %d that a file may have",
                           STR_FMT(f->name), f->text.n, SOURCE_MAX);
        diag_note(diags, d, "move a part into a file of its own and include it");
        return false;
    }
    for (int i = 0, n; i < f->text.n; i += n) {
        n = utf8_length(f->text.s + i, f->text.n - i);
        if (n > 0)
            continue;
        start.lo = i;
        start.hi = i + 1;
        Diag *d = diag_add(diags, DIAG_NOT_UTF8, start, "not UTF-8 text: byte 0x%02x",
                           (unsigned char)f->text.s[i]);
        diag_note(diags, d, "save the file as UTF-8; outside of comments it is ASCII anyway");
        return false;
    }
    return true;
}

static bool run_parser(Parse *parse)
{
    Str text = parse->sources->files.v[parse->file].text;
    int mark = text.n >= 3 && !memcmp(text.s, "\xef\xbb\xbf", 3) ? 3 : 0; /* of byte order */
    if (setjmp(parse->fatal))
        return false;
    parse->at = mark;
    parse->bad_at = -1;
    parse->last_span = parse->before_span = (Span){parse->file, mark, mark};
    iso_yylex_init_extra(parse, &parse->scanner);
    iso_yy_scan_bytes(text.s + mark, text.n - mark, parse->scanner);
    return iso_yyparse(parse->scanner, parse) == 0;
}

static void parse_file(Parse *outer, int file)
{
    if (!text_is_sound(outer->sources, file, outer->diags))
        return;
    Parse parse = {.sources = outer->sources,
                   .arena = outer->arena,
                   .diags = outer->diags,
                   .ast = outer->ast,
                   .file = file,
                   .depth = outer->depth + 1};
    run_parser(&parse);
}

/* The files that the one being read was included by, itself first. */
static bool is_open(const Parse *parse, Str name)
{
    for (int file = parse->file;;) {
        const SourceFile *f = &parse->sources->files.v[file];
        if (str_eq(f->name, name))
            return true;
        if (f->included_from.hi == 0)
            return false;
        file = f->included_from.file;
    }
}

static void refuse_recursion(Parse *parse, Name path, Str resolved)
{
    Diag *d = diag_add(parse->diags, DIAG_INCLUDE_RECURSIVE, path.span,
                       "'%.*s' includes itself", STR_FMT(resolved));
    for (int file = parse->file; !str_eq(parse->sources->files.v[file].name, resolved);) {
        Span from = parse->sources->files.v[file].included_from;
        diag_label(parse->diags, d, from, "'%.*s' is included from here",
                   STR_FMT(parse->sources->files.v[file].name));
        file = from.file;
    }
    diag_note(parse->diags, d, "remove one include of the circle; what both files need goes into "
                               "a third that both include");
}

static bool was_read(const Sources *sources, Str name)
{
    for (int i = 0; i < sources->files.n; i++)
        if (str_eq(sources->files.v[i].name, name))
            return true;
    return false;
}

void parse_include(Parse *parse, Name path)
{
    SourceReader *reader = &parse->sources->reader;
    Str from = parse->sources->files.v[parse->file].name, resolved, text, reason = STR("");
    if (!reader->read(reader->self, parse->sources->arena, from, path.text, &resolved, &text,
                      &reason)) {
        Diag *d = diag_add(parse->diags, DIAG_FILE_UNREADABLE, path.span,
                           "cannot read '%.*s': %.*s", STR_FMT(path.text), STR_FMT(reason));
        diag_note(parse->diags, d, "an include's path is relative to the file that includes it");
        return;
    }
    if (is_open(parse, resolved)) {
        refuse_recursion(parse, path, resolved);
        return;
    }
    if (was_read(parse->sources, resolved))
        return; /* the same declarations, once */
    if (parse->depth >= INCLUDE_MAX) {
        Diag *d = diag_add(parse->diags, DIAG_INCLUDE_DEEP, path.span,
                           "includes are nested more than %d deep", INCLUDE_MAX);
        diag_note(parse->diags, d, "include the inner files from the outer ones directly");
        return;
    }
    parse_file(parse, sources_add(parse->sources, resolved, text, path.span));
}

/* ---- params in expressions ------------------------------------------------------------------- */

static bool is_param(const Ast *ast, Str name)
{
    for (int i = 0; i < ast->params.n; i++)
        if (str_eq(ast->params.v[i].name.text, name))
            return true;
    return false;
}

/* A param's name in an expression is a number; only now are all params known. */
static void name_params(const Ast *ast, AstExpr *e)
{
    for (int i = 0; i < e->args.n; i++)
        name_params(ast, e->args.v[i]);
    if (e->kind != EXPR_NAME || e->index.n || !is_param(ast, e->name.text))
        return;
    e->kind = EXPR_NUMBER;
    e->number = (Number){e->name.text, true, e->name.span};
}

static void name_params_of_ops(const Ast *ast)
{
    for (int i = 0; i < ast->ops.n; i++)
        for (int k = 0; k < ast->ops.v[i].body.n; k++)
            name_params(ast, ast->ops.v[i].body.v[k].value);
}

bool parse_contract(Sources *sources, Str name, Ast *ast, Arena *arena, Diags *diags)
{
    int before = diags->errors;
    Str resolved, text, reason = STR("");
    if (!sources->reader.read(sources->reader.self, sources->arena, STR(""), name, &resolved,
                              &text, &reason)) {
        diag_add(diags, DIAG_FILE_UNREADABLE, (Span){0}, "cannot read '%.*s': %.*s", STR_FMT(name),
                 STR_FMT(reason));
        return false;
    }
    *ast = (Ast){0};
    Parse outer = {.sources = sources, .arena = arena, .diags = diags, .ast = ast};
    parse_file(&outer, sources_add(sources, resolved, text, (Span){0}));
    name_params_of_ops(ast);
    return diags->errors == before;
}
