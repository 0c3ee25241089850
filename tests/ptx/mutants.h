/* The mutants of a kernel's PTX: each instruction dropped, its operands swapped, its opcode
 * replaced by a neighbour, its constants moved by one.
 * Ownership: everything lives in the arena given. */
#ifndef ISOC_TEST_PTX_MUTANTS_H
#define ISOC_TEST_PTX_MUTANTS_H

#include "base/base.h"

enum { MUTANT_OPERANDS = 200 };

/* An instruction's line: what stands before its operands, the operands at the top level. */
typedef struct MutantLine {
    Str text;   /* with the semicolon */
    Str head;   /* spaces and guard */
    Str opcode;
    int n;
    Str operand[MUTANT_OPERANDS];
} MutantLine;

/* False for labels, directives, comments, braces. */
bool mutant_read_line(Str text, MutantLine *line);

typedef struct Mutant {
    Str line;         /* of the text, as it was */
    int number;       /* of the line, from 1 */
    const char *kind; /* drop, swap, neighbour, constant */
    Str text;         /* as it is */
    Str shape;        /* both, with registers named in order */
    u64 alike;        /* equal where the instruction and those beside it are, but for registers and
                         addresses' constants, and so is the mutation */
} Mutant;

typedef VEC(Mutant) Mutants;

/* Of all lines of a kernel, in order. */
void mutants_of(Str body, Mutants *out, Arena *arena);

#endif
