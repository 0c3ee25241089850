/* The grammar: clauses 2 to 10 of LANGUAGE.md. Actions build nodes; check says what they mean. */
%require "3.8"
%define api.pure full
%define api.prefix {iso_yy}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {void *scanner}
%parse-param {struct Parse *parse}

%code requires {
#include "front/parse_impl.h"

#define YYLLOC_DEFAULT(current, rhs, n)                                                            \
    ((current) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                               \
                     : (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).hi, YYRHSLOC(rhs, 0).hi})
}

%code provides {
int iso_yylex(ISO_YYSTYPE *value, Span *span, void *scanner);
/* iso_yylex with what error recovery needs on top of it. */
int parse_next_token(struct Parse *parse, ISO_YYSTYPE *value, Span *span);
bool parse_resumes(struct Parse *parse);
/* `expected` holds `n` token kinds by their aliases. */
void parse_syntax_error(struct Parse *parse, Span span, const char *found, bool found_keyword,
                        const char *const *expected, int n);
}

%code {
/* The parser's stacks never grow: all its memory is its frame. */
#define YYINITDEPTH PARSE_DEPTH_MAX
#define YYMAXDEPTH PARSE_DEPTH_MAX
#define iso_yylex(value, span, scanner) ((void)(scanner), parse_next_token(parse, (value), (span)))

#define A parse->arena

/* After an error without its terminator: the lookahead is let go where it belongs to the error. */
#define RESUME                                                                                     \
    do {                                                                                           \
        yyerrok;                                                                                   \
        if (parse_resumes(parse))                                                                  \
            yyclearin;                                                                             \
    } while (0)

static void iso_yyerror(Span *span, void *scanner, Parse *parse, const char *message)
{
    (void)scanner;
    (void)message;
    parse_too_deep(parse, *span);
}
}

%union {
    Name name;
    Names names;
    Number number;
    Numbers numbers;
    AstAxis *axis;
    AstFactor *factor;
    AstFactors factors;
    AstTree *tree;
    AstExpr *expr;
    AstExprs exprs;
    AstIndices indices;
    AstIndex index_item;
    AstTensors tensors;
    AstStatement *statement;
    AstBlock *block;
    AstStatements statements;
    AstCut cut;
    AstCuts cuts;
    AstMesh *mesh;
    AstMeshes meshes;
    AstOverride *override;
    AstLayout *layout;
    AstSetting *setting;
    AstSettings settings;
    AstSchedule *schedule;
    AstModelStatement *step;
    AstModelStatements steps;
    AstArgument argument;
    AstArguments arguments;
}

%token END 0        "the end of the file"
%token CONTRACT     "contract"
       VERSION      "version"
       NUMERICS     "numerics"
       INCLUDE      "include"
       PARAM        "param"
       AXIS         "axis"
       RAGGED       "ragged"
       OF           "of"
       AT           "at"
       TREE         "tree"
       MMA          "mma"
       CHAIN        "chain"
       ADD          "add"
       SPLIT        "split"
       EVERY        "every"
       LANES        "lanes"
       BY           "by"
       ROUND        "round"
       PAIRWISE     "pairwise"
       LEFT         "left"
       OP           "op"
       ATTEND       "attend"
       DRAW         "draw"
       TOP          "top"
       LEN          "len"
       LAYOUT       "layout"
       CUTS         "cuts"
       REPLICATING  "replicating"
       ELSE         "else"
       SCHEDULE     "schedule"
       WHEN         "when"
       MODEL        "model"
       INPUT        "input"
       TABLE        "table"
       CACHE        "cache"
       REPEAT       "repeat"
       AS           "as"
       OUTPUT       "output"
%token <name> IN    "in"
       SUM          "sum"
       MAX          "max"
       LOGSUMEXP    "logsumexp"
%token ARROW        "->"
       LE           "<="
       GE           ">="
       X            "x"
%token <name> ID    "a name"
       DEGREE_NAME  "a function's name"
       STRING       "a quoted path"
%token <number> NUMBER "a number"

%type <name> monoid function word else
%type <names> names names_or_none order words product
%type <number> number degree
%type <numbers> numbers sizes
%type <axis> axis_body
%type <factor> factor
%type <factors> factors
%type <tree> tree join
%type <expr> expr term product_expr reduction unary primary
%type <exprs> args
%type <indices> index index_list places
%type <index_item> index_item
%type <tensors> tensors tensor_groups results
%type <statement> statement
%type <block> block
%type <statements> statements
%type <cut> cut
%type <cuts> cuts cut_list
%type <mesh> mesh
%type <meshes> meshes
%type <override> override
%type <layout> layout_body
%type <setting> setting block_setting values
%type <settings> settings block_settings
%type <name> block_key
%type <schedule> when
%type <step> step cached
%type <steps> steps
%type <argument> argument
%type <arguments> arguments

%%

file:
  %empty
| file item
;

item:
  CONTRACT ID VERSION number ';'    { parse_set_contract(parse, $2, $4); }
| NUMERICS ID ';'                   { parse_set_numerics(parse, $2); }
| INCLUDE STRING ';'                { parse_include(parse, $2); }
| PARAM params ';'
| AXIS axes ';'
| TREE ID '=' tree ';'
    {
        AstTreeDecl decl = {$2, $4};
        vec_push(A, &parse->ast->trees, decl);
    }
| OP ID '(' tensors ')' "->" results '{' statements '}'
    {
        AstOp op = {.name = $2, .params = $4, .results = $7, .body = $9, .span = @$};
        vec_push(A, &parse->ast->ops, op);
    }
| LAYOUT ID '{' layout_body '}'
    {
        $4->name = $2;
        $4->span = @$;
        vec_push(A, &parse->ast->layouts, *$4);
    }
| SCHEDULE ID when '{' settings '}'
    {
        $3->op = $2;
        $3->settings = $5;
        $3->span = @$;
        vec_push(A, &parse->ast->schedules, *$3);
    }
| MODEL ID '{' steps '}'
    {
        AstModel model = {$2, $4, @$};
        parse_set_model(parse, &model);
    }
| error ';'                         { yyerrok; }
| error '}'                         { yyerrok; }
| error                             { RESUME; }
;

/* ---- params, axes ---------------------------------------------------------------------- */

params: param | params ',' param;

param:
  ID
    {
        AstParam p = {.name = $1};
        vec_push(A, &parse->ast->params, p);
    }
| ID '=' NUMBER
    {
        AstParam p = {.name = $1, .has_value = true, .value = $3};
        vec_push(A, &parse->ast->params, p);
    }
;

number:
  NUMBER
| ID                                { $$ = (Number){$1.text, true, $1.span}; }
;

axes: axis | axes ',' axis;

axis:
  ID '=' axis_body
    {
        $3->name = $1;
        $3->span = @$;
        vec_push(A, &parse->ast->axes, *$3);
    }
| ID RAGGED
    {
        AstAxis axis = {.name = $1, .ragged = true, .span = @$};
        vec_push(A, &parse->ast->axes, axis);
    }
;

/* One lone name is a param that gives the size. */
axis_body:
  number
    {
        $$ = arena_new_of(A, AstAxis);
        $$->size = $1;
    }
| number IN number
    {
        $$ = arena_new_of(A, AstAxis);
        $$->size = $1;
        $$->stored = $3;
        $$->padded = true;
    }
| number OF ID
    {
        $$ = arena_new_of(A, AstAxis);
        $$->size = $1;
        $$->of = $3;
        $$->sparse = true;
    }
| factors
    {
        $$ = arena_new_of(A, AstAxis);
        $$->product = true;
        $$->factors = $1;
    }
| factors RAGGED
    {
        $$ = arena_new_of(A, AstAxis);
        $$->product = true;
        $$->ragged = true;
        $$->factors = $1;
    }
;

factors:
  factor '*' factor
    {
        $$ = (AstFactors){0};
        vec_push(A, &$$, *$1);
        vec_push(A, &$$, *$3);
    }
| factors '*' factor                { $$ = $1; vec_push(A, &$$, *$3); }
;

factor:
  ID
    {
        $$ = arena_new_of(A, AstFactor);
        $$->name = $1;
    }
| ID number
    {
        $$ = arena_new_of(A, AstFactor);
        *$$ = (AstFactor){$1, $2, true};
    }
;

names:
  ID                                { $$ = (Names){0}; vec_push(A, &$$, $1); }
| names ',' ID                      { $$ = $1; vec_push(A, &$$, $3); }
;

names_or_none:
  %empty                            { $$ = (Names){0}; }
| names
;

/* ---- trees ----------------------------------------------------------------------------- */

tree:
  MMA                               { $$ = parse_tree(parse, TREE_MMA, @$); }
| CHAIN                             { $$ = parse_tree(parse, TREE_CHAIN, @$); }
| CHAIN ADD                         { $$ = parse_tree(parse, TREE_CHAIN_ADD, @$); }
| ID
    {
        $$ = parse_tree(parse, TREE_NAME, @$);
        $$->name = $1;
    }
| SPLIT number '{' tree '}' join
    {
        $$ = parse_joined(parse, TREE_SPLIT, $4, $6, @$);
        $$->count = $2;
    }
| SPLIT '[' numbers ']' '{' tree '}' join
    {
        $$ = parse_joined(parse, TREE_SPLIT, $6, $8, @$);
        $$->parts = $3;
    }
| EVERY number '{' tree '}' join
    {
        $$ = parse_joined(parse, TREE_EVERY, $4, $6, @$);
        $$->count = $2;
    }
| LANES number BY number '{' tree '}' join
    {
        $$ = parse_joined(parse, TREE_LANES, $6, $8, @$);
        $$->count = $2;
        $$->run = $4;
    }
| ROUND ID '{' tree '}'
    {
        $$ = parse_tree(parse, TREE_ROUND, @$);
        $$->type = $2;
        $$->child = $4;
    }
;

numbers:
  number                            { $$ = (Numbers){0}; vec_push(A, &$$, $1); }
| numbers ',' number                { $$ = $1; vec_push(A, &$$, $3); }
;

/* A tree node that holds only the join and its type, for parse_joined. */
join:
  PAIRWISE ID
    {
        $$ = parse_tree(parse, TREE_SPLIT, @$);
        $$->join = JOIN_PAIRWISE;
        $$->type = $2;
    }
| LEFT ID
    {
        $$ = parse_tree(parse, TREE_SPLIT, @$);
        $$->join = JOIN_LEFT;
        $$->type = $2;
    }
;

/* ---- ops ------------------------------------------------------------------------------- */

tensors:
  %empty                            { $$ = (AstTensors){0}; }
| tensor_groups
;

tensor_groups:
  names ':' ID '[' names_or_none ']'
    {
        $$ = (AstTensors){0};
        parse_add_tensors(parse, &$$, &$1, $3, &$5, @6);
    }
| tensor_groups ',' names ':' ID '[' names_or_none ']'
    {
        $$ = $1;
        parse_add_tensors(parse, &$$, &$3, $5, &$7, @8);
    }
;

results:
  names ':' ID '[' names_or_none ']'
    {
        $$ = (AstTensors){0};
        parse_add_tensors(parse, &$$, &$1, $3, &$5, @6);
    }
| '(' tensor_groups ')'             { $$ = $2; }
;

statements:
  %empty                            { $$ = (AstStatements){0}; }
| statements statement              { $$ = $1; vec_push(A, &$$, *$2); }
| statements form block
    {
        $$ = $1;
        $3->form = (Name){parse_text(parse, @2), @2};
        $3->span = span_join(@2, @3);
        parse_block(parse, &$$, $3);
    }
| statements error ';'              { $$ = $1; yyerrok; }
| statements error                  { $$ = $1; RESUME; }
;

statement:
  ID index '=' expr ';'
    {
        $$ = arena_new_of(A, AstStatement);
        *$$ = (AstStatement){$1, $2, $4, @$};
    }
;

/* ---- block forms ----------------------------------------------------------------------- */

form:
  ATTEND
| DRAW
| TOP
;

block:
  names '=' args '{' block_settings '}'
    {
        $$ = arena_new_of(A, AstBlock);
        $$->targets = $1;
        $$->operands = $3;
        $$->settings = $5;
    }
;

block_settings:
  %empty                            { $$ = (AstSettings){0}; }
| block_settings block_setting      { $$ = $1; vec_push(A, &$$, *$2); }
| block_settings error ';'          { $$ = $1; yyerrok; }
| block_settings error              { $$ = $1; RESUME; }
;

block_setting:
  block_key values ';'              { $$ = $2; $$->key = $1; $$->span = @$; }
;

block_key:
  ID
| SPLIT                             { $$ = (Name){parse_text(parse, @1), @1}; }
;

/* A name may be a param: check knows which settings take numbers. */
values:
  function
    {
        $$ = arena_new_of(A, AstSetting);
        vec_push(A, &$$->words, $1);
    }
| NUMBER
    {
        $$ = arena_new_of(A, AstSetting);
        vec_push(A, &$$->numbers, $1);
    }
| values ',' function               { $$ = $1; vec_push(A, &$$->words, $3); }
| values ',' NUMBER                 { $$ = $1; vec_push(A, &$$->numbers, $3); }
;

index:
  %empty                            { $$ = (AstIndices){0}; }
| '[' index_list ']'                { $$ = $2; }
;

index_list:
  index_item
    {
        $$ = (AstIndices){0};
        vec_push(A, &$$, $1);
    }
| index_list ',' index_item
    {
        $$ = $1;
        vec_push(A, &$$, $3);
    }
;

index_item:
  ID number                         { $$ = (AstIndex){$1, $2, false}; }
| ID '=' ID
    {
        $$ = (AstIndex){$1, {$3.text, true, $3.span}, true};
    }
;

/* ---- expressions: a reduction's body runs to the end of its product ---------------------- */

expr:
  term
| expr '+' term                     { $$ = parse_binary(parse, '+', $1, $3); }
| expr '-' term                     { $$ = parse_binary(parse, '-', $1, $3); }
;

term:
  product_expr
| reduction
| product_expr '*' reduction        { $$ = parse_binary(parse, '*', $1, $3); }
| product_expr '/' reduction        { $$ = parse_binary(parse, '/', $1, $3); }
;

reduction:
  monoid '(' names places BY tree ')' term
    {
        $$ = parse_reduce(parse, $1, $3, &$4, $6, $8);
    }
| '-' reduction                     { $$ = parse_unary(parse, @$, $2); }
;

/* picks at experts chosen */
places:
  %empty                            { $$ = (AstIndices){0}; }
| AT ID ID
    {
        AstIndex place = {$2, {$3.text, true, $3.span}, false};
        $$ = (AstIndices){0};
        vec_push(A, &$$, place);
    }
;

monoid: SUM | MAX | LOGSUMEXP;

product_expr:
  unary
| product_expr '*' unary            { $$ = parse_binary(parse, '*', $1, $3); }
| product_expr '/' unary            { $$ = parse_binary(parse, '/', $1, $3); }
;

unary:
  primary
| '-' unary                         { $$ = parse_unary(parse, @$, $2); }
;

primary:
  NUMBER
    {
        $$ = parse_leaf(parse, EXPR_NUMBER, @$);
        $$->number = $1;
    }
| ID index
    {
        $$ = parse_leaf(parse, EXPR_NAME, @$);
        $$->name = $1;
        $$->index = $2;
    }
| function '(' args ')'             { $$ = parse_call(parse, $1, &$3, @$); }
| LEN '(' ID ')'
    {
        $$ = parse_leaf(parse, EXPR_LEN, @$);
        $$->name = $3;
    }
| '(' expr ')'                      { $$ = $2; }
;

function: ID | DEGREE_NAME;

args:
  expr                              { $$ = (AstExprs){0}; vec_push(A, &$$, $1); }
| args ',' expr                     { $$ = $1; vec_push(A, &$$, $3); }
;

/* ---- layouts --------------------------------------------------------------------------- */

layout_body:
  %empty                            { $$ = arena_new_of(A, AstLayout); }
| layout_body mesh                  { $$ = $1; vec_push(A, &$$->meshes, *$2); }
| layout_body override              { $$ = $1; vec_push(A, &$$->overrides, *$2); }
| layout_body error ';'             { $$ = $1; yyerrok; }
| layout_body error                 { $$ = $1; RESUME; }
;

meshes:
  %empty                            { $$ = (AstMeshes){0}; }
| meshes mesh                       { $$ = $1; vec_push(A, &$$, *$2); }
| meshes error ';'                  { $$ = $1; yyerrok; }
| meshes error                      { $$ = $1; RESUME; }
;

override:
  OP ID '{' meshes '}'
    {
        $$ = arena_new_of(A, AstOverride);
        *$$ = (AstOverride){$2, $4};
    }
;

mesh:
  ID degree cuts else ';'
    {
        $$ = arena_new_of(A, AstMesh);
        *$$ = (AstMesh){.name = $1, .degree = $2, .has_degree = $2.text.n > 0, .cuts = $3,
                        .has_else = $4.text.n > 0, .else_axis = $4, .span = @$};
    }
| ID '=' product cuts else ';'
    {
        $$ = arena_new_of(A, AstMesh);
        *$$ = (AstMesh){.name = $1, .product = $3, .cuts = $4, .has_else = $5.text.n > 0,
                        .else_axis = $5, .span = @$};
    }
;

degree:
  %empty                            { $$ = (Number){0}; }
| number
;

product:
  ID                                { $$ = (Names){0}; vec_push(A, &$$, $1); }
| product '*' ID                    { $$ = $1; vec_push(A, &$$, $3); }
;

cuts:
  %empty                            { $$ = (AstCuts){0}; }
| CUTS cut_list                     { $$ = $2; }
;

cut_list:
  cut                               { $$ = (AstCuts){0}; vec_push(A, &$$, $1); }
| cut_list ',' cut                  { $$ = $1; vec_push(A, &$$, $3); }
;

cut:
  ID                                { $$ = (AstCut){$1, false}; }
| ID REPLICATING                    { $$ = (AstCut){$1, true}; }
;

else:
  %empty                            { $$ = (Name){0}; }
| ELSE ID                           { $$ = $2; }
;

/* ---- models ---------------------------------------------------------------------------- */

steps:
  %empty                            { $$ = (AstModelStatements){0}; }
| steps step                        { $$ = $1; vec_push(A, &$$, *$2); }
| steps error ';'                   { $$ = $1; yyerrok; }
| steps error                       { $$ = $1; RESUME; }
;

step:
  INPUT tensor_groups ';'
    {
        $$ = parse_step(parse, STEP_INPUT, @$);
        $$->tensors = $2;
    }
| TABLE names ':' ID '[' names_or_none ']' '=' ID '{' block_settings '}' ';'
    {
        $$ = parse_step(parse, STEP_TABLE, @$);
        parse_add_tensors(parse, &$$->tensors, &$2, $4, &$6, @7);
        $$->name = $9;
        $$->settings = $11;
    }
| CACHE cached ';'                  { $$ = $2; $$->span = @$; }
| names '=' ID '(' arguments ')' ';'
    {
        $$ = parse_step(parse, STEP_CALL, @$);
        $$->targets = $1;
        $$->name = $3;
        $$->arguments = $5;
    }
| REPEAT number AS ID '{' steps '}'
    {
        $$ = parse_step(parse, STEP_REPEAT, @$);
        $$->count = $2;
        $$->name = $4;
        $$->body = $6;
    }
| OUTPUT names ';'
    {
        $$ = parse_step(parse, STEP_OUTPUT, @$);
        $$->targets = $2;
    }
;

cached:
  ID '=' ID
    {
        $$ = parse_step(parse, STEP_CACHE, @$);
        vec_push(A, &$$->targets, $1);
        vec_push(A, &$$->values, $3);
    }
| cached ',' ID '=' ID
    {
        $$ = $1;
        vec_push(A, &$$->targets, $3);
        vec_push(A, &$$->values, $5);
    }
;

arguments:
  argument                          { $$ = (AstArguments){0}; vec_push(A, &$$, $1); }
| arguments ',' argument            { $$ = $1; vec_push(A, &$$, $3); }
;

argument:
  ID                                { $$ = (AstArgument){.value = $1, .span = @$}; }
| STRING order
    {
        $$ = (AstArgument){.value = $1, .weight = true, .order = $2, .span = @$};
    }
| ID ':' ID
    {
        $$ = (AstArgument){.named = true, .param = $1, .value = $3, .span = @$};
    }
| ID ':' STRING order
    {
        $$ = (AstArgument){.named = true, .param = $1, .value = $3, .weight = true, .order = $4,
                           .span = @$};
    }
;

order:
  %empty                            { $$ = (Names){0}; }
| '[' names ']'                     { $$ = $2; }
;

/* ---- schedules ------------------------------------------------------------------------- */

when:
  %empty                            { $$ = arena_new_of(A, AstSchedule); }
| WHEN ID compare number
    {
        $$ = arena_new_of(A, AstSchedule);
        $$->has_when = true;
        $$->when_axis = $2;
        $$->when_op = parse_text(parse, @3);
        $$->when_bound = $4;
    }
;

compare: LE | GE | '<' | '>';

settings:
  %empty                            { $$ = (AstSettings){0}; }
| settings setting                  { $$ = $1; vec_push(A, &$$, *$2); }
| settings error ';'                { $$ = $1; yyerrok; }
| settings error                    { $$ = $1; RESUME; }
;

/* A lone name after the key is a word; names beside an x are numbers. */
setting:
  ID words ';'
    {
        $$ = arena_new_of(A, AstSetting);
        *$$ = (AstSetting){.key = $1, .words = $2, .span = @$};
    }
| ID words sizes ';'
    {
        $$ = arena_new_of(A, AstSetting);
        *$$ = (AstSetting){.key = $1, .words = $2, .numbers = $3, .span = @$};
    }
;

words:
  %empty                            { $$ = (Names){0}; }
| words word                        { $$ = $1; vec_push(A, &$$, $2); }
;

word: ID | IN;

sizes:
  NUMBER                            { $$ = (Numbers){0}; vec_push(A, &$$, $1); }
| ID X number
    {
        Number first = {$1.text, true, $1.span};
        $$ = (Numbers){0};
        vec_push(A, &$$, first);
        vec_push(A, &$$, $3);
    }
| sizes X number                    { $$ = $1; vec_push(A, &$$, $3); }
;

%%

/* Only names, numbers and the like may be missing where a keyword stands: then the keyword was
 * meant as a name. */
static bool is_keyword(yysymbol_kind_t kind)
{
    return kind >= YYSYMBOL_CONTRACT && kind <= YYSYMBOL_LOGSUMEXP;
}

static int yyreport_syntax_error(const yypcontext_t *context, void *scanner, Parse *parse)
{
    (void)scanner;
    yysymbol_kind_t kinds[YYNTOKENS];
    const char *names[YYNTOKENS];
    yysymbol_kind_t found = yypcontext_token(context);
    int n = yypcontext_expected_tokens(context, kinds, YYNTOKENS);
    for (int i = 0; i < n; i++)
        names[i] = yysymbol_name(kinds[i]);
    parse_syntax_error(parse, *yypcontext_location(context),
                       found == YYSYMBOL_YYEMPTY ? "" : yysymbol_name(found), is_keyword(found),
                       names, n < 0 ? 0 : n);
    return 0;
}
