/* Files that are read whole, and written whole or not at all.
 * Ownership: what is read lives in the arena given. */
#ifndef ISOC_FILE_H
#define ISOC_FILE_H

#include "base.h"

/* Reads a whole file, "-" being standard input. NULL, or the reason, as text. */
const char *file_read(const char *path, Str *bytes, Arena *arena);

/* Writes to a temporary file in the same folder, syncs and renames it; "-" is standard output. On
 * failure the old file is as it was. NULL, or the reason. */
const char *file_write(const char *path, Str bytes);

/* NULL, or why file_write would fail: told before long work is done in vain. */
const char *file_writable(const char *path);

#endif
