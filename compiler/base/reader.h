/* Where contracts come from: a disk, or the texts that a manifest keeps.
 * Ownership: texts and names live in the arena that the reader is called with. */
#ifndef ISOC_READER_H
#define ISOC_READER_H

#include "source.h"

/* Reads files; "-" is standard input; an include is looked up beside the file that has it. */
SourceReader reader_disk(void);

typedef struct MemoryFile {
    Str name, text;
} MemoryFile;

typedef struct MemoryFiles {
    int n;
    const MemoryFile *v; /* the main file first */
} MemoryFiles;

/* Reads from memory; `files` must outlive the reader. */
SourceReader reader_memory(MemoryFiles *files);

/* `name` as seen from the folder of `main`: what a manifest calls the file, so that its bytes do
 * not say where the contract lay. */
Str reader_relative(Arena *arena, Str main, Str name);

#endif
