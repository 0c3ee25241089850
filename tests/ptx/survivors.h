/* The list of mutants that survive, each with the reason why it is as right as the kernel's own.
 * A file of lines: "= CLASS: why", "@ KERNEL HASH" and, after it, "CLASS LINE SHAPE", or
 * "- FIRST LAST: why" of lines that no launch runs; `#` begins a comment.
 * Ownership: everything lives in the arena given. */
#ifndef ISOC_TEST_PTX_SURVIVORS_H
#define ISOC_TEST_PTX_SURVIVORS_H

#include "base/base.h"

typedef struct Survivors Survivors;

/* Exits where the file cannot be read or names a class that it does not explain. */
Survivors *survivors_open(const char *path, Arena *arena);
/* Whether the list was made for this text of the kernel. */
bool survivors_know(const Survivors *list, const char *kernel, u64 text);
/* Whether the mutant is on it: by its line, or, for another text, by its shape alone. */
bool survivors_have(const Survivors *list, const char *kernel, u64 text, int line, Str shape);

/* Whether the list says why no launch runs this line; where the text is another, any line. */
bool survivors_explain(const Survivors *list, const char *kernel, u64 text, int line);

#endif
