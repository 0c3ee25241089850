/* What the parts of check share; private to check*.c.
 * Ownership: a Checker lives for one call of check_contract; what it builds is the contract's. */
#ifndef ISOC_CHECK_IMPL_H
#define ISOC_CHECK_IMPL_H

#include "contract.h"

/* What the later stages may count on: their walks recurse, and look things up one by one. */
enum {
    ITEMS_MAX = 1024,      /* params, ops, schedules; statements and tensors of an op */
    DECLS_MAX = 256,       /* axes, trees, layouts */
    TREE_DEPTH_MAX = 64,   /* with names written out */
    PARTS_WRITTEN_MAX = 65536,
    FULL_DEPTH_MAX = 1000, /* of an expression with its locals written out, */
    FULL_SIZE_MAX = 65536, /* and its operations */
};

typedef enum Subject {
    OF_CONTRACT,
    OF_PARAM,
    OF_AXIS,
    OF_TREE,
    OF_OP,
    OF_LAYOUT,
    OF_SCHEDULE,
    OF_MODEL,
    SUBJECT_COUNT
} Subject;

typedef enum CheckId {
#define X(id, clause, subject, function, prerequisites) CHECK_##id,
#include "check.def"
#undef X
    CHECK_COUNT
} CheckId;

/* A check whose prerequisite did not pass is not run: its complaint would be a consequence. */
typedef enum CheckStatus { UNCHECKED, PREREQ, PASSED, FAILED } CheckStatus;

/* A tensor or local in an op; `bad`: its declaration was refused, so that uses are not judged. */
typedef enum SymbolKind { SYMBOL_PARAM, SYMBOL_RESULT, SYMBOL_LOCAL } SymbolKind;

typedef struct Symbol {
    Name name;
    SymbolKind kind;
    int index;       /* of params or results; of locals, -1 until it is one */
    int statement;   /* that defines all of it; -1 for parameters and what is set by parts */
    int type;        /* DType; TYPE_REFUSED: uses are not judged */
    u64 mask;
    int full_depth, full_size;
    int index_of;    /* as a Tensor's */
    bool used;
} Symbol;

typedef VEC(Symbol) Symbols;

/* What checking an op finds out, statement by statement. */
typedef struct OpState {
    Symbols symbols;
    int *target;      /* per statement: index of its symbol, -1 if refused */
    int *piece;       /* per statement: index of its piece, -1 */
} OpState;

typedef struct Checker {
    const Ast *ast;
    Contract *contract;
    Arena *arena;
    Diags *diags;
    CheckStatus *status[CHECK_COUNT]; /* per subject */
    bool failed;                      /* the running check found a fault */
    bool quiet;                       /* faults are found and not told */
    OpState *ops;
} Checker;

static inline u64 bit(int i)
{
    return (u64)1 << i;
}

/* diag_add, and the running check has failed. */
Diag *fault(Checker *c, DiagId id, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool has_passed(const Checker *c, CheckId id, int subject);
Op *op_of_name(Checker *c, Name name);

/* ---- the nearest name ------------------------------------------------------------------------ */

typedef struct Guess {
    Str want, best;
    int rank;
} Guess;

Guess guess_of(Str want);
void guess_add(Guess *guess, Str name);
/* "did you mean", and the fix-it, if a name is near; else nothing. */
void guess_tell(Checker *c, Diag *diag, Span span, const Guess *guess);

/* ---- numbers, types, axes, trees ------------------------------------------------------------- */

/* The text of a number or of its param, which check has found to be defined. */
Str number_value(const Ast *ast, const Number *number);
/* The same. False if the param is unknown (told) or not defined. */
bool number_text(Checker *c, const Number *number, Str *text);
/* An integer in [lo, hi]; else a fault `id`: "`what` must be ...". */
bool number_int(Checker *c, const Number *number, i64 lo, i64 hi, DiagId id, const char *what,
                i64 *value);
bool type_of_name(Checker *c, Name name, DType *type);
/* The axis's id; -1 unknown (told), -2 declared but refused. */
int axis_of_name(Checker *c, Name name);
u64 axis_mask(const Contract *contract, int axis);
/* False when a named tree is unknown or unsound; told where the tree is declared or used. */
bool tree_is_sound(Checker *c, const AstTree *tree);
Str source_text(const Checker *c, Span span);
/* Names of the axes of a mask, "tokens, hidden". */
Str mask_text(Checker *c, u64 mask);

/* ---- tensors and their parts ----------------------------------------------------------------- */

/* The type and axes of a parameter or result; false after a fault. */
bool build_tensor(Checker *c, const AstTensor *ast, bool result, Tensor *tensor);
/* An axis's atoms behind those that the tensor has. */
void add_atoms(const Contract *contract, Tensor *tensor, int axis);
/* The fault of a name, or of a part of a result, that two statements set. */
void assigned_twice(Checker *c, const AstStatement *now, const AstStatement *before);

/* ---- expressions ----------------------------------------------------------------------------- */

/* type -1: a literal, which takes the type of what stands beside it; -2: refused, judge nothing. */
enum { TYPE_LITERAL = -1, TYPE_REFUSED = -2 };

typedef struct Value {
    int type;
    u64 mask;
} Value;

typedef struct Scope {
    Checker *c;
    const AstOp *ast;
    Op *op;
    OpState *state;
    int statement; /* the one being checked */
} Scope;

Value check_value(Scope *scope, AstExpr *e);
/* A value where `type` is wanted: a literal takes it, another type is a fault. */
void want_type(Scope *scope, AstExpr *e, Value *value, DType type, const char *what);
Value check_reduction(Scope *scope, AstExpr *e);
/* The tensor that gives an index of an axis: a parameter, or a result that was set before. */
bool check_index_by(Scope *scope, const AstIndex *index, int axis, Symbol *by);
/* The value of one target of a block form; the first of them checks all of the statement. */
Value check_block(Scope *scope, AstExpr *e);
Value check_draw(Scope *scope, AstExpr *e);
Value check_top(Scope *scope, AstExpr *e);
/* The class has tensor-core steps of the type. */
bool class_takes(const FdpaClass *class, int type);
/* Index of a name's symbol, -1. */
int symbol_of(const Symbols *symbols, Str name);
/* The atoms that indices hold, and at what if `piece` is given. False after a fault. */
bool check_indices(Checker *c, const AstIndices *index, u64 mask, Str of, u64 *held,
                   Piece *piece);
/* The same of an axis that has no factors; told: that it is not `mask`'s, or held already. */
bool check_held(Checker *c, Name axis, u64 mask, Str of, u64 *held, int *id);
/* Coordinates replaced by the ragged axes that determine them. */
u64 effective_mask(const Contract *contract, u64 mask);

#define X(id, clause, subject, function, prerequisites) void function(Checker *c, int index);
#include "check.def"
#undef X

#endif
