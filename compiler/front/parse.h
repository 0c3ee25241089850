/* Bytes to syntax tree: scanner, parser and includes.
 * Ownership: the tree lives in `arena`, the texts in `sources`. */
#ifndef ISOC_PARSE_H
#define ISOC_PARSE_H

#include "ast.h"
#include "diag.h"

/* Parses the file `name` through sources->reader, following includes. All syntax errors of all
 * files are reported (the parser resynchronises at `;` and `}`). True if there was none. */
bool parse_contract(Sources *sources, Str name, Ast *ast, Arena *arena, Diags *diags);

#endif
