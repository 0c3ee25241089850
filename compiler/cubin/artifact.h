/* The artefact: a plain cubin with its manifest in an appended section.
 * Ownership: built bytes live in the arena given; what is read points into the bytes given. */
#ifndef ISOC_ARTIFACT_H
#define ISOC_ARTIFACT_H

#include "base/base.h"

/* Appends section `.note.iso` (one ELF note, name "ISO", type 1) behind the cubin: every original
 * byte but three fields of the file header (the section table's place, count and name index)
 * stays, and so do the program headers, so that a driver loads it as before. NULL, or why the
 * cubin cannot take it. */
const char *artifact_append(Str cubin, Str manifest, Str *out, Arena *arena);

/* The manifest of an artefact. NULL, or why there is none. Safe on any bytes. */
const char *artifact_manifest(Str bytes, Str *manifest);

/* The cubin as it was before artifact_append, to compare with the manifest's digest: a copy, as
 * the file header's three fields are put back. NULL, or why the bytes are not an artefact. */
const char *artifact_cubin(Str bytes, Str *cubin, Arena *arena);

/* NULL if the artefact has a manifest whose "cubin_sha256" is that of its bytes, and every byte is
 * one that artifact_append would have written; else why not. */
const char *artifact_check(Str bytes, Arena *arena);

#endif
