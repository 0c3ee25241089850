/* Compiled kernels on disk, by content: equal text, options and tools need no second compilation.
 * Ownership: what is found lives in the arena given. */
#ifndef ISOC_CACHE_H
#define ISOC_CACHE_H

#include "nvrtc.h"

/* `dir`, else $ISOC_CACHE, $XDG_CACHE_HOME/isoc, $HOME/.cache/isoc. Empty when there is none, or
 * when dir is "". */
Str cache_dir(const char *dir, Arena *arena);

/* Over isoc's version, NVRTC's, the options, the device library and the program. */
Digest cache_key(const Nvrtc *nvrtc, Str arch, Str program, Arena *arena);

/* The cubin and PTX of a clean compilation; a damaged entry is as none. */
bool cache_get(Str dir, const Digest *key, Binary *binary, Arena *arena);
/* Failing to store is no error. */
void cache_put(Str dir, const Digest *key, const Binary *binary, Arena *arena);

#endif
