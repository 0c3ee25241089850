/* The syntax tree of a contract: what was written, where; later stages annotate, never rewrite.
 * Ownership: nodes and names live in the front arena; texts point into the sources. */
#ifndef ISOC_AST_H
#define ISOC_AST_H

#include "base/source.h"
#include "base/tree.h"

typedef struct Name {
    Str text;
    Span span;
} Name;

typedef VEC(Name) Names;

/* A number as written, or the name of a param that stands for one. */
typedef struct Number {
    Str text;
    bool is_param;
    Span span;
} Number;

typedef VEC(Number) Numbers;

/* ---- axes, trees ----------------------------------------------------------------------- */

/* axis vocab = 100278 in 100352;  axis heads = kv_heads 8 * group 4;
 * axis tokens = sequence * position ragged;  axis picks = 8 of experts; */
typedef struct AstFactor {
    Name name;
    Number size;
    bool has_size; /* a ragged axis's factors have none */
} AstFactor;

typedef VEC(AstFactor) AstFactors;

typedef struct AstAxis {
    Name name;
    bool product;      /* made of factors; else of size */
    bool ragged;
    bool padded;       /* `size in stored` */
    bool sparse;       /* `size of axis` */
    Number size, stored;
    Name of;
    AstFactors factors;
    Span span;
} AstAxis;

typedef struct AstTree {
    TreeForm form;
    Name name;               /* TREE_NAME */
    Number count;            /* split, lanes: N; every: N */
    Numbers parts;           /* split [a, b, ...] */
    Number run;              /* lanes N by W */
    JoinForm join;
    Name type;               /* the join's or round's element type */
    struct AstTree *child;
    Span span;
} AstTree;

typedef struct AstTreeDecl {
    Name name;
    AstTree *tree;
} AstTreeDecl;

/* A key and what follows it, in a schedule or in a block form. */
typedef struct AstSetting {
    Name key;
    Names words;          /* `across`, `ctas`; not the x between numbers */
    Numbers numbers;
    Span span;
} AstSetting;

typedef VEC(AstSetting) AstSettings;

/* ---- expressions ------------------------------------------------------------------------ */

enum { EXPR_DEPTH_MAX = 200 };

typedef enum ExprKind {
    EXPR_NAME,   /* name, or name[half 0, group 1] */
    EXPR_NUMBER,
    EXPR_NEG,
    EXPR_BINARY,
    EXPR_CALL,   /* scalar function or cast: exp(a), bf16(a), maximum(a, b) */
    EXPR_LEN,
    EXPR_REDUCE, /* sum(axes by tree) body */
    EXPR_BLOCK,  /* a value of a block form: attend a, lse = q, k, v { ... } */
} ExprKind;

typedef struct AstIndex {
    Name axis;
    Number at;
    bool kept; /* vocab = ids: the axis stays, and what is elsewhere becomes -inf */
} AstIndex;

typedef VEC(AstIndex) AstIndices;

typedef VEC(struct AstExpr *) AstExprs;

/* One statement that sets several names; each has an EXPR_BLOCK of its own, and they share this. */
typedef struct AstBlock {
    Name form; /* "attend", "draw", "top" */
    Names targets;
    AstExprs operands;
    AstSettings settings;
    Span span;
    /* Written by check: what the settings say; NULL if refused, or of another form. */
    const struct Attend *attend;
    const struct Draw *draw;
    const struct Top *top;
} AstBlock;

typedef struct AstExpr {
    ExprKind kind;
    int depth; /* of the tree below, at most EXPR_DEPTH_MAX: walks may recurse */
    Span span;
    Name name;             /* NAME, CALL's function, LEN's axis, REDUCE's monoid */
    AstIndices index;      /* NAME; REDUCE: one, picks at experts chosen, or none */
    Number number;         /* NUMBER */
    char op;               /* BINARY: + - * / */
    AstExprs args;         /* NEG 1, BINARY 2, CALL n, REDUCE: the bodies, BLOCK: its operands */
    Names axes;            /* REDUCE */
    AstTree *tree;         /* REDUCE */
    AstBlock *block;       /* BLOCK */
    int part;              /* BLOCK: which of its targets */
    /* Written by check, read by dag: */
    int type;              /* DType; below 0: a literal, or refused (check_impl.h) */
    u64 axis_mask;         /* atomic axes that the value depends on */
    int ref;               /* NAME: parameter (>= 0) or ~local; CALL: FnId */
    int full_depth, full_size; /* with the values of locals in place of their names: bounded */
} AstExpr;

/* ---- ops -------------------------------------------------------------------------------- */

typedef struct AstTensor { /* a parameter or a result */
    Name name;
    Name type;
    Names axes;
    Span span;
} AstTensor;

typedef VEC(AstTensor) AstTensors;

typedef struct AstStatement {
    Name target;
    AstIndices index;
    AstExpr *value;
    Span span;
} AstStatement;

typedef VEC(AstStatement) AstStatements;

typedef struct AstOp {
    Name name;
    AstTensors params, results;
    AstStatements body;
    Span span;
} AstOp;

/* ---- layouts, schedules ------------------------------------------------------------------ */

/* tp 4 cuts kv_heads replicating, ffn else tokens;   ep = dp * tp cuts experts; */
typedef struct AstCut {
    Name axis;
    bool replicating;
} AstCut;

typedef VEC(AstCut) AstCuts;

typedef struct AstMesh {
    Name name;
    Number degree;  /* unless product */
    bool has_degree;
    Names product;  /* names of the meshes that multiply */
    AstCuts cuts;
    bool has_else;
    Name else_axis;
    Span span;
} AstMesh;

typedef VEC(AstMesh) AstMeshes;

typedef struct AstOverride { /* op o_proj { tp cuts hidden; } */
    Name op;
    AstMeshes meshes;     /* degree absent: the layout's */
} AstOverride;

typedef VEC(AstOverride) AstOverrides;

typedef struct AstLayout {
    Name name;
    AstMeshes meshes;
    AstOverrides overrides;
    Span span;
} AstLayout;

/* schedule o_proj when tokens <= 64 { tile 16 x 64 x 128; leaves across ctas; stages 4; } */
typedef struct AstSchedule {
    Name op;
    bool has_when;
    Name when_axis;
    Str when_op; /* "<=", "<", ">=", ">" */
    Number when_bound;
    AstSettings settings;
    Span span;
} AstSchedule;

/* ---- models ------------------------------------------------------------------------------ */

typedef enum StepKind {
    STEP_INPUT,  /* tensors */
    STEP_TABLE,  /* tensors = name { settings } */
    STEP_CACHE,  /* targets = values */
    STEP_CALL,   /* targets = name(arguments) */
    STEP_REPEAT, /* repeat count as name { body } */
    STEP_OUTPUT, /* targets */
} StepKind;

/* norm(x, w: "model.norm.weight"): a value's name, or a weight's in the checkpoint. */
typedef struct AstArgument {
    bool named, weight;
    Name param;  /* if named */
    Name value;  /* a weight's name without its quotes */
    Names order; /* of a weight's axes in the checkpoint; empty: the parameter's */
    Span span;
} AstArgument;

typedef VEC(AstArgument) AstArguments;

typedef VEC(struct AstModelStatement) AstModelStatements;

typedef struct AstModelStatement {
    StepKind kind;
    AstTensors tensors;
    Names targets, values;
    Name name;
    AstArguments arguments;
    AstSettings settings;
    Number count;
    AstModelStatements body;
    Span span;
} AstModelStatement;

typedef struct AstModel {
    Name name;
    AstModelStatements body;
    Span span;
} AstModel;

typedef struct AstParam { /* param HIDDEN = 4096;  or a demand: param HIDDEN; */
    Name name;
    bool has_value;
    Number value;
} AstParam;

typedef struct Ast {
    Name contract;
    Number version;
    bool has_contract;
    Name numerics;
    bool has_numerics;
    VEC(AstParam) params;
    VEC(AstAxis) axes;
    VEC(AstTreeDecl) trees;
    VEC(AstOp) ops;
    VEC(AstLayout) layouts;
    VEC(AstSchedule) schedules;
    AstModel model;
    bool has_model;
} Ast;

/* Canonical layout of the syntax: printing, parsing and printing again is the identity. Includes
 * are expanded, params stay names. */
void ast_print(const Ast *ast, Text *out);

#endif
