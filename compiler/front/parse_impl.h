/* What the scanner, the parser and parse.c share; private to them.
 * Ownership: as parse.h; a Parse lives as long as the parsing of its file. */
#ifndef ISOC_PARSE_IMPL_H
#define ISOC_PARSE_IMPL_H

#include <setjmp.h>

#include "parse.h"

enum {
    SOURCE_MAX = 4 << 20, /* bytes of a file */
    NAME_MAX_BYTES = 128,
    NESTING_MAX = 64,     /* brackets and braces */
    PARSE_DEPTH_MAX = 800,
    INCLUDE_MAX = 16,
};

/* An open brace: of a block (op, layout, schedule, override), or of a tree. */
typedef struct Brace {
    bool block;
    Span span;
} Brace;

typedef struct Parse {
    Sources *sources;
    Arena *arena;
    Diags *diags;
    Ast *ast;
    int file, depth;   /* depth of includes */
    void *scanner;
    jmp_buf fatal;
    bool gave_up;      /* nested too deeply: the rest is not read */

    /* The token source (parse_recover.c). */
    int at;            /* bytes scanned */
    Brace braces[NESTING_MAX];
    int brace_count, block_count, paren_count;
    bool tree_pending; /* a tree's keyword was seen, its brace not yet */
    bool in_axes;      /* between a reduction's parenthesis and its `by` */
    int item;          /* the keyword of the item being read */
    bool panic;        /* skipping to where the parser can go on */
    int panic_blocks;  /* blocks open where the error is */
    int owed_braces;   /* closing braces to hand out before `held` */
    int held;          /* an item's keyword that came too early; 0 none */
    Span held_span;
    int last;          /* the last token handed out, */
    Span last_span;
    Span before_span;  /* the one before it, */
    int blocks_before; /* and the blocks open between the two */
    bool last_closes;  /* the last token is the closing brace of a block */
    bool resumed;      /* the parser went on at the error; a `;` skipped to is not for it */
    int bad_at;        /* where the scanner complained last; -1 nowhere */
} Parse;

/* ---- called by the scanner ------------------------------------------------------------- */

void parse_bad_text(Parse *parse, Span span, Str text);
void parse_bad_number(Parse *parse, Span span, Str text);
void parse_long_name(Parse *parse, Span span);
void parse_open_string(Parse *parse, Span span);

/* ---- called by the grammar's actions: they build nodes and no more ---------------------- */

AstExpr *parse_leaf(Parse *parse, ExprKind kind, Span span);
AstExpr *parse_unary(Parse *parse, Span span, AstExpr *operand);
AstExpr *parse_binary(Parse *parse, char op, AstExpr *left, AstExpr *right);
AstExpr *parse_call(Parse *parse, Name function, const AstExprs *args, Span span);
AstExpr *parse_reduce(Parse *parse, Name monoid, Names axes, const AstIndices *places,
                      AstTree *tree, AstExpr *body);
/* One statement for each of the block's targets. */
void parse_block(Parse *parse, AstStatements *list, AstBlock *block);
AstTree *parse_tree(Parse *parse, TreeForm form, Span span);
AstTree *parse_joined(Parse *parse, TreeForm form, AstTree *child, const AstTree *join, Span span);
void parse_add_tensors(Parse *parse, AstTensors *list, const Names *names, Name type,
                       const Names *axes, Span end);
void parse_set_contract(Parse *parse, Name name, Number version);
void parse_set_numerics(Parse *parse, Name name);
void parse_set_model(Parse *parse, const AstModel *model);
AstModelStatement *parse_step(Parse *parse, StepKind kind, Span span);
void parse_include(Parse *parse, Name path);
Str parse_text(const Parse *parse, Span span);
void parse_too_deep(Parse *parse, Span span);

#endif
