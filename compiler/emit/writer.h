/* The structured writer: indentation, scopes and names, so that no other file prints a brace.
 * Ownership: the text grows in the writer's arena. */
#ifndef ISOC_EMIT_WRITER_H
#define ISOC_EMIT_WRITER_H

#include "base/base.h"

typedef struct Writer {
    Text text;
    int depth;
    int names; /* the next number of `name` */
} Writer;

void writer_init(Writer *w, Arena *arena);
/* A line at the current depth; an empty format gives an empty line. */
void writer_line(Writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "HEAD {" and one level deeper; "}TAIL" and one level back. */
void writer_open(Writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void writer_close(Writer *w, const char *tail);
/* The same without a deeper level: namespaces. */
void writer_open_flat(Writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void writer_close_flat(Writer *w);
/* "const TYPE tN = VALUE;": the name, numbered in order of appearance. */
Str writer_decl(Writer *w, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Lines of another writer, indented as here. */
void writer_insert(Writer *w, Str lines);

/* Constants as bits, with the decimal in a comment: no decimal is ever read back. */
Str writer_f32(Arena *arena, u32 bits);
Str writer_u16(Arena *arena, DType type, u32 bits);

#endif
