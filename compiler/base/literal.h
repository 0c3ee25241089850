/* Numbers as written, rounded once into an element type, whatever the locale.
 * Ownership: nothing is kept. */
#ifndef ISOC_LITERAL_H
#define ISOC_LITERAL_H

#include "base.h"

/* The pattern of the value nearest to the text's (ties to even, beyond the range infinity): an
 * integer, a decimal or a hexadecimal float without a sign. False when the text is none. */
bool literal_bits(Str text, DType type, u32 *bits);
/* True if the text's value is a value of the type, so that nothing is rounded. */
bool literal_exact(Str text, DType type);

/* The same in binary64, for numbers from 1e-90 to 1e60. */
bool literal_f64(Str text, u64 *bits);

#endif
