/* Reading cubins: an ELF64 file as untrusted bytes.
 * Ownership: results point into the bytes given. */
#ifndef ISOC_CUBIN_H
#define ISOC_CUBIN_H

#include "base/base.h"

enum { CUBIN_MACHINE = 190 };

typedef struct Section {
    Str name;
    u32 type;
    u64 offset, size; /* of the bytes in the file; size only for NOBITS */
    u32 link, info;
    bool in_file;
} Section;

typedef struct Cubin {
    Str bytes;
    u64 sections_at;
    u32 n_sections;
    u64 names_at, names_size;
} Cubin;

/* Null, or why the bytes are not a cubin that can be read. */
const char *cubin_open(Str bytes, Cubin *cubin);
/* Null, or why section i cannot be read. */
const char *cubin_section(const Cubin *cubin, u32 i, Section *section);
/* False when there is none of that name (or it cannot be read). */
bool cubin_find(const Cubin *cubin, const char *name, Section *section);

/* Little-endian fields; the caller has checked the bounds. */
u16 load16(const char *at);
u32 load32(const char *at);
u64 load64(const char *at);
void store16(char *at, u16 value);
void store32(char *at, u32 value);
void store64(char *at, u64 value);

#endif
