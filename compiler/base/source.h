/* Source files and byte spans; lines and columns are computed only when a message is printed.
 * Ownership: texts and names live in the arena given to sources_add; a Span stays valid with it. */
#ifndef ISOC_SOURCE_H
#define ISOC_SOURCE_H

#include "base.h"

/* Bytes [lo, hi) of file number `file` in Sources. */
typedef struct Span {
    int file, lo, hi;
} Span;

typedef struct SourceFile {
    Str name; /* as the user wrote it, for messages */
    Str text;
    Span included_from; /* the include directive; hi == 0 for the first file */
} SourceFile;

/* How the front end gets bytes: the driver reads disks, tests read memory, the library reads the
 * source kept in a manifest. `from` is the name of the including file ("" for the first). False
 * when there is no such file; *reason then says why. The reader resolves relative names. */
typedef struct SourceReader {
    bool (*read)(void *self, Arena *arena, Str from, Str name, Str *resolved, Str *text,
                 Str *reason);
    void *self;
} SourceReader;

typedef struct Sources {
    Arena *arena;
    SourceReader reader;
    VEC(SourceFile) files;
} Sources;

int sources_add(Sources *sources, Str name, Str text, Span included_from);
Span span_join(Span a, Span b);
/* 1-based line and column (in bytes) of a position. */
void source_position(const SourceFile *file, int offset, int *line, int *column);
/* The whole line that holds the position, without its end. */
Str source_line(const SourceFile *file, int offset, int *line_start);
/* Bytes of the well-formed UTF-8 character at s; 0 if there is none. */
int utf8_length(const char *s, int left);

#endif
